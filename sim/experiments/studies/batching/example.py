"""The example that opens the chapter: R join S, an index on R only, a limit of 0.35 s.

The text gives enough of the two cost functions to compute with them: 180 changes of each take 0.35 s, 600 of R take
0.35 s, and S takes 0.25 ms a change. So 82 % of the limit is a fixed cost, and 18 % grows with the changes.

What the text tells of is the long run. In a run up to T the refresh at T pays the fixed cost of one more batch, however
little came since the last one: up to 286 ms, which is 0.14 ms a change at T = 1,000 and 0.03 ms at T = 5,000. So the
statements are judged at `LONG` steps only, by `--quick`, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from hullcast.broker.views.costs import CostFunction, LinearCost
from hullcast.broker.views.planner import ViewPlanner, taken
from hullcast.sim.experiments.studies.batching.planning import (
    CITED,
    LGM,
    NAIVE,
    PLANNERS,
    UNIFORM,
    drawn_arrivals,
    planned,
)
from hullcast.sim.experiments.studies.batching.simulated import simulate
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section, ratio_claim

LIMIT_S = 0.35
S = LinearCost(0.00025)
R = LinearCost((0.35 - (0.35 - 180 * 0.00025)) / 420, 0.35 - 600 * (0.35 - (0.35 - 180 * 0.00025)) / 420)
BY_HAND = "S AT ONCE"
#: What the text says, in milliseconds for a change; and what is as much.
NAIVE_MS, BY_HAND_MS, SAME = 0.97, 0.42, 1.05
LONG = 5_000
STEPS = (500, 1_000, 2_000, LONG)


class AtOnce(ViewPlanner):
    """The plan of the text: changes of S (1) are propagated as they come, those of R (0) at the limit. Not lazy."""

    name: ClassVar[str] = "at once"

    def next(
        self, pending: Sequence[int], costs: Sequence[CostFunction], limit_s: float, now: float
    ) -> tuple[int, ...]:
        at_once = (1,) if pending[1] else ()
        return at_once if taken([pending[0], 0], costs) <= limit_s else (0, *at_once)


def points(quick: bool) -> list[dict[str, Any]]:
    """Every planner, and the plan of the text."""
    return grid(planner=(*PLANNERS, BY_HAND), steps=STEPS)


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """One change of each table in a step."""
    arrivals = drawn_arrivals(UNIFORM, point["steps"], seed)
    costs = [R, S]
    if point["planner"] == BY_HAND:
        found = simulate(AtOnce(), arrivals, costs, LIMIT_S)
    else:
        found = planned(point["planner"], arrivals, costs, LIMIT_S)
    return {"ms per change": 1e3 * found.cost_s / arrivals.sum(), "actions": len(found.actions)}


def sections(found: Sweep, folder: Path) -> list[Section]:
    """One."""
    picture = folder / "batching-example.png"
    planners = (*PLANNERS, BY_HAND)
    curves = [BandCurve(name, found.along("steps", "ms per change", planner=name)) for name in planners]
    draw_panels(
        [[Panel("milliseconds for a change", curves)]], picture, title="R join S, limit 0.35 s", x_label="T (log)",
        x_log=True, y_log=False,
    )  # fmt: skip
    steps = sorted(found.all_of("steps"))
    table = [["ms for a change, T =", *map(str, steps)]]
    table += [
        [name, *(f"{found.middle('ms per change', planner=name, steps=each):.3f}" for each in steps)]
        for name in planners
    ]
    return [
        Section(
            "batching-example",
            "The example: R join S with an index on R only",
            "One change of each table in a step. f(k) is 0.107 ms k + 286 ms for R and 0.25 ms k for S; the limit is "
            "350 ms.",
            f"to refresh all at the limit costs {NAIVE_MS} ms for a change; to propagate S at once, and R at the "
            f"limit, {BY_HAND_MS} ms.",
            found.judged(_claims),
            pictures={"Milliseconds for a change by T, a line for each planner": picture},
            figures=[table],
            notes=["At small T a change costs more: the refresh at T pays R's fixed cost again, however little came."],
            cited=CITED,
            items=("Section 2.1, example", "Theorem 2"),
        )
    ]


def _claims(found: Sweep) -> list[Claim]:
    ms = {name: found.middle("ms per change", steps=LONG, planner=name) for name in found.all_of("planner")}
    judged = [
        ratio_claim(name, f"costs {told} ms for a change (between 1/{SAME}x and {SAME}x of it)", ms[name] / told,
                    1 / SAME <= ms[name] / told <= SAME, "the cost functions are others",
                    item="Section 2.1, example", paper=f"{told} ms")
        for name, told in ((NAIVE, NAIVE_MS), (BY_HAND, BY_HAND_MS))
    ]  # fmt: skip
    judged.append(
        ratio_claim(LGM, "costs no more than the plan by hand", ms[LGM] / ms[BY_HAND], ms[LGM] <= ms[BY_HAND] + 1e-9,
                    "the search is wrong", construction="costs are linear, so no valid plan is cheaper (Theorem 2)",
                    item="Theorem 2", paper="the optimum")
    )  # fmt: skip
    judged += [
        ratio_claim(name, "(ours) costs at most half of NAIVE", ms[name] / ms[NAIVE], ms[name] <= ms[NAIVE] / 2,
                    "it propagates R too often")
        for name in PLANNERS if name != NAIVE
    ]  # fmt: skip
    return judged
