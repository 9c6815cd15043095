"""How HEEB divides the memory between two streams (figure 3.15)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hullcast.sim.experiments.studies.caching.configurations import CITED, HEEB, OBSERVED, policy_of, trending
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
        Panel(title, [BandCurve(name, [(x, list(values)) for x, values in found.where(**fixed).along(
            parameter, "share of R", policy=name)]) for name in (HEEB, OBSERVED)], "share of R",
            level=(0.5, "half"))
        for parameter, fixed, title in (
            ("lag", {"ratio": 1}, "R is behind S by x steps"),
            ("ratio", {"lag": 0}, "noise of S is x times as wide"),
        )
    ]  # fmt: skip
    picture = folder / "caching-split.png"
    draw_panels([panels], picture, title="Memory that tuples of R have", x_label="x", y_log=False)
    table = [["share of R", *(f"{lag} behind" for lag in LAGS), *(f"S {ratio}x as wide" for ratio in RATIOS[1:])]]
    for name in (HEEB, OBSERVED):
        row = [f"{found.middle('share of R', policy=name, lag=lag, ratio=1):.0%}" for lag in LAGS]
        row += [f"{found.middle('share of R', policy=name, lag=0, ratio=ratio):.0%}" for ratio in RATIOS[1:]]
        table.append([name, *row])
    return [
        Section(
            "caching-split",
            "How the memory is divided between the streams",
            f"As TOWER, but alike: noise within {BOUND}, a standard deviation of {SD:g}, no lag, unless varied; a "
            f"memory of {MEMORY}.",
            "HEEB allocates less memory to streams that lag behind or have large variances.",
            found.judged(_claims),
            pictures={"The share of memory that tuples of R have, by lag and by width of noise": picture},
            figures=[table],
            cited=CITED,
        )
    ]


def _claims(found: Sweep) -> list[Claim]:
    judged = []
    for name in (HEEB, OBSERVED):
        by_lag = [found.middle("share of R", policy=name, lag=lag, ratio=1) for lag in LAGS]
        by_ratio = [found.middle("share of R", policy=name, lag=0, ratio=ratio) for ratio in RATIOS]
        judged += [
            Claim(name, f"gives streams that are alike the same memory, within {ROOM:.0%}", f"{by_lag[0]:.0%}",
                  abs(by_lag[0] - 0.5) <= ROOM, "of equal ones the oldest goes, and R comes first in each step",
                  value=by_lag[0], form="{:.0%}".format),
            Claim(name, "gives R the less memory the farther it is behind, at 0, 2 and 4 steps",
                  ", ".join(f"{each:.0%}" for each in by_lag[::2]), by_lag[0] > by_lag[2] > by_lag[4] - 1e-9,
                  value=by_lag[0] - by_lag[4], form="{:.2f}".format),
            Claim(name, "gives S the less memory the wider its noise, 1, 2 and 4 times",
                  ", ".join(f"{1 - by_ratio[at]:.0%}" for at in (0, 1, 3)), by_ratio[0] < by_ratio[1] < by_ratio[3],
                  value=by_ratio[3] - by_ratio[0], form="{:.2f}".format),
        ]  # fmt: skip
    return judged
