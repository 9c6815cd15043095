"""Guessed: follows the best plan for a guessed refresh time and guessed rates (Xie (2007), 2.4.3).

    round   0 ............. T0   0 ............. T0   0 ....
    acts        S   S R  S  all      S   S R  S  all     S     as planned for changes that come evenly

If the guessed rates are right, costs are f_i(k) = a_i k + b_i, and the view is refreshed at T, then the rounds cost at
most ceil(T / T0) sum_i b_i more than the best plan for T (Theorems 5 and 6). What really comes may differ from the
guess. Then the plan says only which tables are next: they are emptied when the limit is reached, no sooner; if that is
not enough, more of them; and if fewer are enough, fewer. So the limit is kept whatever comes.
"""

from __future__ import annotations

from math import isclose
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hullcast.broker.views.planner import ArrivalRates, ViewPlanner
from hullcast.sim.experiments.studies.batching.lgm import MOST_TABLES, best_plan
from hullcast.sim.experiments.studies.batching.planners import made_minimal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.views.costs import CostFunction
    from hullcast.sim.experiments.studies.batching.lgm import Integers

#: States to look at for a plan: about a second.
EFFORT = 50_000
#: A table with more changes in a round is planned for in larger units.
MOST_CHANGES = 20_000
#: A plan is made again when a cost or a rate is so much off.
OFF = 0.1


class Guessed(ViewPlanner):
    """Rounds of `period`, each planned in so many steps. Without `rates` those seen are taken.

    A plan is made when the limit is first reached, and again in a later round if costs or rates changed (`OFF`). With
    more tables than can be planned for, those that cost most are emptied.
    """

    name: ClassVar[str] = "guessed"

    def __init__(
        self, period: float, rates: Sequence[float] | None = None, steps: int = 500, effort: int = EFFORT
    ) -> None:
        if not period > 0 or steps < 1:
            raise ValueError(f"needs a period above 0 and a step or more, got {period} and {steps}")
        self._period, self._given, self._steps, self._effort = period, rates, steps, effort
        self._arrivals = ArrivalRates()
        self._began: float | None = None
        self._wanted: list[tuple[int, ...]] = []
        self._made_for: list[float] = []
        self._at = 0
        self._fresh = True  # a round has begun, and no action was taken in it
        self._plans = self._rounds = 0

    def next(
        self, pending: Sequence[int], costs: Sequence[CostFunction], limit_s: float, now: float
    ) -> tuple[int, ...]:
        self._arrivals.see(pending, now)
        if self._began is None:
            self._began = now
        if now - self._began >= self._period:
            self._begin(now)
            self._rounds += 1
            return tuple(table for table, k in enumerate(pending) if k)
        each_s = [cost.of(k) for k, cost in zip(pending, costs, strict=True)]
        chosen = made_minimal(each_s, (), limit_s)
        if not chosen:
            return ()
        if self._fresh:
            self._plan(costs, limit_s)
            self._fresh = False
        if self._wanted:
            chosen = made_minimal(each_s, self._wanted[self._at % len(self._wanted)], limit_s)
            self._at += 1
        return chosen

    def acted(self, tables: Sequence[int], left: Sequence[int], took_s: float, now: float) -> None:
        self._arrivals.act(tables, left, now)

    def refreshed(self, now: float) -> None:
        self._arrivals.refresh(now)
        self._begin(now)

    def counters(self) -> dict[str, float]:
        return {"plans": self._plans, "rounds": self._rounds}

    def _begin(self, now: float) -> None:
        self._began, self._at, self._fresh = now, 0, True

    def _plan(self, costs: Sequence[CostFunction], limit_s: float) -> None:
        rates = list(self._given or self._arrivals.rates)
        largest = [cost.largest_within(limit_s) for cost in costs]
        basis = [limit_s, *rates, *(cost.of(k) for cost, most in zip(costs, largest, strict=True) for k in (1, most))]
        if len(basis) == len(self._made_for) and all(map(_near, basis, self._made_for)):
            return
        self._made_for = basis
        self._wanted = []
        come = even_arrivals([rate * self._period / self._steps for rate in rates], self._steps)
        if len(costs) <= MOST_TABLES and come.any():
            unit = max(1, -(-int(come.sum(axis=0).max()) // MOST_CHANGES))
            if unit > 1:
                come = even_arrivals([rate * self._period / self._steps / unit for rate in rates], self._steps)
            by_unit = [_InUnits(cost, unit) for cost in costs]
            self._wanted = [tables for _, tables in best_plan(come, by_unit, limit_s, self._effort).actions]
            self._plans += 1


class _InUnits:
    """A cost function that counts changes by so many at a time."""

    def __init__(self, cost: CostFunction, unit: int) -> None:
        self._cost, self._unit = cost, unit

    def of(self, k: int) -> float:
        return self._cost.of(k * self._unit)

    def largest_within(self, limit_s: float) -> int:
        return self._cost.largest_within(limit_s) // self._unit


def even_arrivals(rates: Sequence[float], steps: int) -> Integers:
    """Changes that come evenly: in each step as many of each table as its rate says, and never a part of one."""
    come = np.floor(np.outer(np.arange(steps + 1), rates) + 1e-9).astype(np.int64)
    return np.diff(come, axis=0)


def _near(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=OFF)
