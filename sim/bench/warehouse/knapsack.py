"""What Pareto's knapsack takes by size: seconds and memory (Thiele, Bader, Lehner (2009), figure 8).

The goal: 1,000 queries and 1,000 updates at once, a tenth dependent, in half a second and 100 MB, exact to the
millisecond.
"""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from hullcast.broker.warehouse.deciding.policies.knapsack import packed
from hullcast.sim.traces.tradeoff import knapsack_of

GOAL_S, GOAL_BYTES, GOAL_SIZE, GOAL_DEPENDENCY = 0.5, 100e6, 1_000, 0.1
QOS = (0.1, 0.5, 0.9)
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class KnapsackCost:
    """What one knapsack took, positions included; the slowest of several preferences."""

    workload: str
    size: int  # queries, and as many updates
    dependency: float
    seconds: float  # the median of some rounds
    peak_bytes: int  # of all arrays, at once
    items: int
    exact: bool
    lost_profit: float  # at most, as a share of what was found

    @property
    def is_goal(self) -> bool:
        """Whether the goal speaks of it."""
        return self.size == GOAL_SIZE and self.dependency == GOAL_DEPENDENCY

    @property
    def met(self) -> bool:
        """Whether it is within the goal."""
        return self.exact and self.seconds <= GOAL_S and self.peak_bytes <= GOAL_BYTES


def knapsack_cost(*, quick: bool = False) -> list[KnapsackCost]:
    """By size with a tenth dependent, and by dependency for a thousand of each."""
    sizes = (100, 1_000) if quick else (100, 200, 500, 1_000, 2_000)
    rates = () if quick else (0.01, 0.5, 1.0)
    packed(*knapsack_of("Gauss", 10, 0.5, 0.5, 0))  # compile or load the kernels
    cases = [(size, GOAL_DEPENDENCY) for size in sizes] + [(GOAL_SIZE, rate) for rate in rates]
    return [_cost(kind, size, rate) for kind in ("Gauss", "Zipf") for size, rate in cases]


def _cost(kind: str, size: int, dependency: float) -> KnapsackCost:
    found = [_measured(kind, size, dependency, qos) for qos in QOS]
    return max(found, key=lambda each: each.seconds)


def _measured(kind: str, size: int, dependency: float, qos: float) -> KnapsackCost:
    positions, slot = knapsack_of(kind, size, dependency, qos, 0)
    seconds = []
    for _ in range(ROUNDS):
        began = perf_counter()
        found = packed(positions, slot)
        seconds.append(perf_counter() - began)
    tracemalloc.start()
    packed(positions, slot)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    peak += sum(each.nbytes for each in (positions.first, positions.place, positions.cost, positions.profit))
    lost = found.lost_profit / max(1, found.profit)
    return KnapsackCost(kind, size, dependency, median(seconds), peak, len(positions.cost), found.exact, lost)
