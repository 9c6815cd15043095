"""CPU seconds that A* takes to plan 1,000 steps of two tables, and of four.

Costs are like those of the four-way join: a flat one, a steep one, and for four tables two between them; linear or
concave. The limit is what 45 changes of each table take, as in the study of batched maintenance. Changes come one of
each table in each step, or by chance: then planning is harder, because fewer plans look alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time

import numpy as np
import numpy.typing as npt

from hullcast.broker.views.costs import CostFunction, LinearCost
from hullcast.sim.bench.frame.benchmark import Tick
from hullcast.sim.experiments.studies.batching.costs import PowerCost
from hullcast.sim.experiments.studies.batching.lgm import best_plan
from hullcast.sim.seeds import generator

STEPS, TOGETHER = 1_000, 45
ARRIVALS = ("one each", "by chance")


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One plan; seconds are of CPU, the median of rounds."""

    steps: int
    tables: int
    costs: str
    arrivals: str
    seconds: float
    expanded: int  # states
    above: float  # what it costs by the least that any such plan can cost

    @property
    def best(self) -> bool:
        """Whether A* came to its end. If not, the plan is that of a beam."""
        return self.above == 1.0


def plans(steps: int, rounds: int, seed: int, tick: Tick) -> tuple[PlanLine, ...]:
    """Plan so many steps in all cases."""
    costs_of: dict[str, tuple[CostFunction, ...]] = {
        "linear": (LinearCost(7e-6, 7e-4), LinearCost(7e-5, 1e-4), LinearCost(2e-5, 4e-4), LinearCost(4e-5, 2e-4)),
        "concave": (PowerCost(5e-4, 0.2), PowerCost(1e-4, 0.9), PowerCost(3e-4, 0.4), PowerCost(2e-4, 0.6)),
    }
    lines = []
    for tables in (2, 4):
        tick(f"plans, {tables} tables")
        best_plan(np.ones((20, tables), np.int64), costs_of["linear"][:tables], 0.003)  # so that it is compiled
        for name, costs in costs_of.items():
            for kind in ARRIVALS:
                lines.append(_planned(name, costs[:tables], kind, steps, rounds, seed))
    return tuple(lines)


def _planned(name: str, costs: Sequence[CostFunction], kind: str, steps: int, rounds: int, seed: int) -> PlanLine:
    arrivals, times = _arrivals(kind, steps, len(costs), seed), []
    limit_s = sum(cost.of(TOGETHER) for cost in costs)
    for _ in range(rounds):
        began = process_time()
        plan = best_plan(arrivals, costs, limit_s)
        times.append(process_time() - began)
    return PlanLine(steps, len(costs), name, kind, median(times), plan.expanded, plan.cost_s / plan.least_s)


def _arrivals(kind: str, steps: int, tables: int, seed: int) -> npt.NDArray[np.int64]:
    if kind == ARRIVALS[0]:
        return np.ones((steps, tables), np.int64)
    return generator(seed, "bench/views/plans", tables).poisson(1.0, (steps, tables)).astype(np.int64)
