"""How far FlowExpect should look ahead (figure 3.20)."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from hullcast.sim.experiments.studies.caching.configurations import (
    CITED,
    FLOOR,
    FLOW,
    HEEB,
    OPT,
    policy_of,
    two_streams,
)
from hullcast.sim.experiments.studies.caching.means import BANDS, NOTE, bands, interval, mean_claim
from hullcast.sim.experiments.studies.caching.simulated import simulate_join
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import GREEN, INK, PINK, BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import number

AHEAD = (1, 2, 3, 5, 7, 10, 15, 20)
MEMORY, STEPS = 20, 500
#: From one step to five there is an apparent improvement; from then on none that could be told, up or down.
BETTER, SAME = 1.03, 0.03


def points(quick: bool) -> list[dict[str, Any]]:
    """Every distance; the others look as far as they always do."""
    distances = (1, 5, 10) if quick else AHEAD
    return grid(policy=[FLOW], ahead=distances) + grid(policy=[HEEB, OPT], ahead=[0])


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """FLOOR, shorter and with more memory."""
    streams = two_streams(FLOOR, STEPS, seed)
    policy = policy_of(point["policy"], streams, MEMORY, seed, point["ahead"])
    return {"results": simulate_join(policy, streams.r, streams.s, MEMORY).after(4 * MEMORY)}


def sections(found: Sweep, folder: Path) -> list[Section]:
    """One."""
    picture = folder / "caching-lookahead.png"
    flow = found.where(policy=FLOW)
    ends = sorted(flow.all_of("ahead"))
    curves = [BandCurve(FLOW, bands(flow, "ahead", "results"), PINK, "v")]
    for name, colour, mark in ((HEEB, GREEN, "o"), (OPT, INK, "D")):
        level = interval(found.values("results", policy=name))
        curves.append(BandCurve(name, [(ends[0], level), (ends[-1], level)], colour, mark, thin=True))
    draw_panels(
        [[Panel("FLOOR", curves, "results")]], picture, title="Results by how far FlowExpect looks", y_log=False,
        x_label="steps ahead", bands=BANDS,
    )  # fmt: skip
    table = [["mean results", *(f"{each} ahead" for each in ends), HEEB, OPT]]
    row = [number(fmean(flow.values("results", ahead=each))) for each in ends]
    table.append([FLOW, *row, *(number(fmean(found.values("results", policy=name))) for name in (HEEB, OPT))])
    return [
        Section(
            "caching-lookahead",
            "How far FlowExpect should look",
            f"FLOOR with {STEPS} steps and a memory of {MEMORY}.",
            "a look-ahead of 5 steps brings an apparent improvement; beyond, the effect is indistinguishable.",
            _claims(flow),
            pictures={"Results by the look-ahead of FlowExpect, beside HEEB and OPT-offline": picture},
            figures=[table],
            notes=[NOTE],
            cited=CITED,
            items=("Figure 3.20",),
        )
    ]


def _claims(flow: Sweep) -> list[Claim]:
    at = {ahead: flow.values("results", ahead=ahead) for ahead in flow.all_of("ahead")}
    far = max(at)
    return [
        mean_claim(FLOW, f"looks 5 steps ahead and produces {BETTER:g}x or more of what it does with 1", at[5], [at[1]],
                   lambda ratio: ratio >= BETTER, "one step shows most of what matters here",
                   paper="an apparent improvement"),
        mean_claim(FLOW, f"produces as much, within {SAME:.0%}, by looking {far} steps ahead instead of 5", at[far],
                   [at[5]], lambda ratio: abs(ratio - 1.0) <= SAME, "uniform noise keeps tuples useful for longer",
                   paper="indistinguishable"),
    ]  # fmt: skip
