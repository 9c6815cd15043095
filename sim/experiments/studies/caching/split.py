"""How HEEB divides the memory between two streams (figure 3.15)."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from hullcast.sim.experiments.studies.caching.configurations import CITED, HEEB, OBSERVED, policy_of, trending
from hullcast.sim.experiments.studies.caching.means import BANDS, NOTE, bands, interval, mean_claim
from hullcast.sim.experiments.studies.caching.models import normal_chances
from hullcast.sim.experiments.studies.caching.simulated import simulate_join
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section

LAGS, RATIOS = (0, 1, 2, 3, 4), (1, 2, 3, 4)
MEMORY, SD, BOUND = 10, 1.0, 10
#: How far from one half is still one half.
ROOM = 0.05


def points(quick: bool) -> list[dict[str, Any]]:
    """R behind S by some steps, and noise of S that is wider by some times."""
    shape: dict[str, list[Any]] = {"policy": [HEEB, OBSERVED], "steps": [1_000 if quick else 5_000]}
    return grid(lag=LAGS, ratio=[1], **shape) + grid(lag=[0], ratio=RATIOS[1:], **shape)


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """TOWER, with two streams that are alike but for what is varied."""
    noise = normal_chances(SD, BOUND), normal_chances(SD * point["ratio"], BOUND)
    lifetime = SD * (1 + point["ratio"])  # twice the standard deviation, the mean of both
    streams = trending(noise, point["lag"], point["steps"], seed, lifetime, (BOUND, BOUND))
    done = simulate_join(policy_of(point["policy"], streams, MEMORY, seed), streams.r, streams.s, MEMORY)
    return {"share of R": float(np.mean(done.share_of_r[4 * MEMORY :]))}


def sections(found: Sweep, folder: Path) -> list[Section]:
    """One."""
    panels = [
        Panel(title, [BandCurve(name, bands(found.where(**fixed), parameter, "share of R", policy=name))
                      for name in (HEEB, OBSERVED)], "share of R", level=(0.5, "half"))
        for parameter, fixed, title in (
            ("lag", {"ratio": 1}, "R is behind S by x steps"),
            ("ratio", {"lag": 0}, "noise of S is x times as wide"),
        )
    ]  # fmt: skip
    picture = folder / "caching-split.png"
    draw_panels([panels], picture, title="Memory that tuples of R have", x_label="x", y_log=False, bands=BANDS)
    table = [["mean share of R", *(f"{lag} behind" for lag in LAGS), *(f"S {ratio}x as wide" for ratio in RATIOS[1:])]]
    for name in (HEEB, OBSERVED):
        by_lag, by_ratio = _shares(found, name)
        table.append([name, *(f"{fmean(each):.0%}" for each in (*by_lag.values(), *list(by_ratio.values())[1:]))])
    return [
        Section(
            "caching-split",
            "How the memory is divided between the streams",
            f"As TOWER, but alike: noise within {BOUND}, a standard deviation of {SD:g}, no lag, unless varied; a "
            f"memory of {MEMORY}.",
            "HEEB allocates less memory to streams that lag behind or have large variances.",
            [claim for name in (HEEB, OBSERVED) for claim in _claims(found, name)],
            pictures={"The share of memory that tuples of R have, by lag and by width of noise": picture},
            figures=[table],
            notes=[NOTE],
            cited=CITED,
            items=("Figure 3.15",),
        )
    ]


def _shares(found: Sweep, name: str) -> tuple[dict[int, list[float]], dict[int, list[float]]]:
    """By lag, and by the width of the noise of S."""
    return (
        {lag: found.values("share of R", policy=name, lag=lag, ratio=1) for lag in LAGS},
        {ratio: found.values("share of R", policy=name, lag=0, ratio=ratio) for ratio in RATIOS},
    )


def _claims(found: Sweep, name: str) -> list[Claim]:
    by_lag, by_ratio = _shares(found, name)
    low, half, high = interval(by_lag[0])
    judged = [
        Claim(name, f"gives streams that are alike the same memory, within {ROOM:.0%}", f"{half:.1%}",
              low >= 0.5 - ROOM and high <= 0.5 + ROOM, "of equal ones the oldest goes, and R comes first in each step",
              value=half, form="{:.1%}".format)
    ]  # fmt: skip
    for less, more in ((0, 2), (2, 4)):
        judged.append(
            mean_claim(name, f"gives R less memory when it is {more} steps behind than {less}", by_lag[less],
                       [by_lag[more]], paper="less memory to streams that lag behind")
        )  # fmt: skip
    for less, more in ((1, 2), (2, 4)):
        judged.append(
            mean_claim(name, f"gives S less memory when its noise is {more} times as wide than {less}",
                       [1 - share for share in by_ratio[less]], [[1 - share for share in by_ratio[more]]],
                       paper="or have large variances")
        )  # fmt: skip
    return judged
