"""Planners that views are not kept by, to compare the one that keeps them with: Naive and Online."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import ClassVar

from hullcast.broker.views.costs import CostFunction
from hullcast.broker.views.planner import (
    ArrivalRates,
    Thrifty,
    ViewPlanner,
    emptied,
    greedy,
    holds,
    minimal_actions,
    taken,
    time_until,
)


class Naive(ViewPlanner):
    """A whole refresh at the limit: lazy and greedy, but not minimal. What others are measured against."""

    name: ClassVar[str] = "naive"

    def next(
        self, pending: Sequence[int], costs: Sequence[CostFunction], limit_s: float, now: float
    ) -> tuple[int, ...]:
        if taken(pending, costs) <= limit_s:
            return ()
        return tuple(table for table, k in enumerate(pending) if k)


class Online(ViewPlanner):
    """At the limit, the minimal action after which a unit of time will have cost least: the one with the least

        (what was spent since the last refresh + f(Z))  /  (time since then + time until the limit is reached again)

    for the chosen Z (Xie (2007), section 2.4.4). It counts the whole cost. So it is drawn to actions that are cheap
    now, and between tables whose costs grow alike it cannot tell which of them has more to gain from waiting.
    """

    name: ClassVar[str] = "online"

    def __init__(self) -> None:
        self._arrivals = ArrivalRates()
        self.spent_s = 0.0
        self._began: float | None = None

    def next(
        self, pending: Sequence[int], costs: Sequence[CostFunction], limit_s: float, now: float
    ) -> tuple[int, ...]:
        if self._began is None:
            self._began = now
        self._arrivals.see(pending, now)
        each_s = [cost.of(k) for k, cost in zip(pending, costs, strict=True)]
        actions = minimal_actions(each_s, limit_s)
        if len(actions) == 1:
            return actions[0]
        rates, since = self._arrivals.rates, max(0.0, now - self._began)
        best, chosen = (inf, inf), actions[0]
        for tables in actions:
            cost_s = sum(each_s[table] for table in tables)
            time = since + time_until(emptied(pending, tables), rates, costs, limit_s)
            rank = ((self.spent_s + cost_s) / time if time > 0 else inf, cost_s)
            if rank < best:
                best, chosen = rank, tables
        return chosen

    def acted(self, tables: Sequence[int], left: Sequence[int], took_s: float, now: float) -> None:
        self._arrivals.act(tables, left, now)
        self.spent_s += took_s

    def refreshed(self, now: float) -> None:
        self._arrivals.refresh(now)
        self.spent_s, self._began = 0.0, now


#: Planners that need no guess, by name; `Guessed` needs one of when the view is refreshed, and `Lgm` all that comes.
PLANNERS: dict[str, type[ViewPlanner]] = {planner.name: planner for planner in (Naive, Online, Thrifty)}


def made_minimal(each_s: Sequence[float], wanted: Sequence[int], limit_s: float) -> tuple[int, ...]:
    """A minimal valid action out of the wanted tables, the first of them most likely; of others if these do not do."""
    if holds(each_s, (), limit_s):
        return ()
    others = sorted((table for table in range(len(each_s)) if table not in wanted), key=lambda table: -each_s[table])
    return greedy(each_s, [*dict.fromkeys(wanted), *others], limit_s)
