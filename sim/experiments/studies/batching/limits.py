"""What planning can gain, by the limit: the costs of `plans`, one change per table and step.

If the limit is far above what a batch costs however small it is, a refresh of everything is a large batch already, and
there is little to gain. If it is just above, a refresh pays these fixed costs again and again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hullcast.sim.experiments.studies.batching import plans
from hullcast.sim.experiments.studies.batching.planning import LGM, NAIVE, PLANNERS, THRIFTY, UNIFORM
from hullcast.sim.experiments.study import GridPoint, Sweep, grid
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section, ratio_claim

#: Limits, as multiples of what one change of each table costs together.
LIMITS = (1.05, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)
SHAPES = ("measured", "concave")
#: Limits of verdicts: half as much where the limit is tight, and hardly less where it is wide.
TIGHT, WIDE, HALF, LITTLE = 1.2, 10.0, 0.5, 0.9


def points(quick: bool) -> list[dict[str, Any]]:
    """Every planner at every limit."""
    return grid(shape=SHAPES, times=LIMITS[1::3] if quick else LIMITS, T=[300 if quick else 1_000], planner=PLANNERS)


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """Let one planner maintain the view up to T."""
    costs = plans.costs_of(point["shape"])
    limit = point["times"] * sum(cost.of(1) for cost in costs)
    return plans.maintained({**point, "limit": limit, "kind": UNIFORM}, costs, seed)


def sections(found: Sweep, folder: Path) -> list[Section]:
    """One."""
    picture = folder / "batching-limits.png"
    panels = [
        Panel(f"{shape} costs", [
            BandCurve(name, [(times, [_ratio(found, shape, times, name)]) for times in sorted(found.all_of("times"))])
            for name in PLANNERS if name != NAIVE
        ]) for shape in SHAPES
    ]  # fmt: skip
    draw_panels(
        [panels], picture, title="Cost by the limit (1 = NAIVE)", x_label="limit / cost of one change of each (log)",
        x_log=True, y_log=False,
    )  # fmt: skip
    times = sorted(found.all_of("times"))
    table = [["cost / NAIVE, limit =", *(f"{each:g}x" for each in times)]]
    for shape in SHAPES:
        for name in PLANNERS[1:]:
            table.append([f"{shape}, {name}", *(f"{_ratio(found, shape, each, name):.2f}" for each in times)])
    return [
        Section(
            "batching-limits",
            "What there is to gain, by the limit",
            f"One change of each table in a step, T = {found.rows[0]['T']:,}. The limit is a multiple of what one "
            "change of each table costs together.",
            "",
            found.judged(_claims),
            pictures={"Cost in units of NAIVE by the limit, a line for each planner": picture},
            figures=[table],
        )
    ]


def _ratio(found: Sweep, shape: str, times: float, name: str) -> float:
    at = found.where(shape=shape, times=times)
    return at.middle("cost", planner=name) / at.middle("cost", planner=NAIVE)


def _claims(found: Sweep) -> list[Claim]:
    judged = []
    for shape in SHAPES:
        for name in (THRIFTY, LGM):
            if TIGHT in found.all_of("times"):
                tight = _ratio(found, shape, TIGHT, name)
                judged.append(
                    ratio_claim(name, f"at a limit of {TIGHT:g}x costs at most {HALF:g}x as much as NAIVE", tight,
                                tight <= HALF, "the other table has a fixed cost, too", shape)
                )  # fmt: skip
            if WIDE in found.all_of("times"):
                wide = _ratio(found, shape, WIDE, name)
                judged.append(
                    ratio_claim(name, f"at a limit of {WIDE:g}x costs at least {LITTLE:g}x as much as NAIVE", wide,
                                wide >= LITTLE, "large batches still gain much", shape)
                )  # fmt: skip
    return judged
