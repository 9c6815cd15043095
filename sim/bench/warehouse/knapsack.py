"""The seconds that Pareto's knapsack takes by size (Thiele, Bader, Lehner (2009), figure 8).

The goal: 1,000 queries and 1,000 updates at once, a tenth dependent, in half a second. What does not depend on the
machine, its memory and that it is exact, is judged in `hullcast sim tradeoff`.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from time import perf_counter

from hullcast.broker.scheduling.knapsack import packed
from hullcast.sim.bench.frame.benchmark import Tick
from hullcast.sim.traces.tradeoff import knapsack_of

GOAL_S, GOAL_SIZE, GOAL_DEPENDENCY = 0.5, 1_000, 0.1
QOS = (0.1, 0.5, 0.9)
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class KnapsackCost:
    """What one knapsack took, positions included; the slowest of several preferences."""

    workload: str
    size: int  # queries, and as many updates
    dependency: float
    seconds: float  # the median of some rounds
    items: int
    exact: bool
    lost_profit: float  # at most, as a share of what was found

    @property
    def is_goal(self) -> bool:
        """Whether the goal speaks of it."""
        return self.size == GOAL_SIZE and self.dependency == GOAL_DEPENDENCY


def knapsack_cost(tick: Tick, *, quick: bool = False) -> tuple[KnapsackCost, ...]:
    """By size with a tenth dependent, and by dependency for a thousand of each."""
    tick("knapsack")
    sizes = (100, 1_000) if quick else (100, 200, 500, 1_000, 2_000)
    rates = () if quick else (0.01, 0.5, 1.0)
    packed(*knapsack_of("Gauss", 10, 0.5, 0.5, 0))  # compile or load the kernels
    cases = [(size, GOAL_DEPENDENCY) for size in sizes] + [(GOAL_SIZE, rate) for rate in rates]
    found = ([_measured(kind, *case, qos) for qos in QOS] for kind in ("Gauss", "Zipf") for case in cases)
    return tuple(max(of, key=lambda each: each.seconds) for of in found)


def _measured(kind: str, size: int, dependency: float, qos: float) -> KnapsackCost:
    positions, slot = knapsack_of(kind, size, dependency, qos, 0)
    seconds = []
    for _ in range(ROUNDS):
        began = perf_counter()
        found = packed(positions, slot)
        seconds.append(perf_counter() - began)
    lost = found.lost_profit / max(1, found.profit)
    return KnapsackCost(kind, size, dependency, median(seconds), len(positions.cost), found.exact, lost)
