"""Thrifty: at the limit, the minimal action that wastes least for the time it buys. Our own rule.

Every change must be propagated at some time, and costs at least what it costs in the largest batch that the limit
allows, f_i(P_i) / P_i. That much is no argument for or against any action. What is spent beyond it is *waste*:

    waste of an action = sum of  f_i(k_i) - k_i f_i(P_i) / P_i        over the tables that it empties
    chosen:              the least waste for each unit of time until the limit is reached again

A table with a linear cost wastes nothing, and is emptied again and again; one with a high fixed cost wastes less the
larger its batch is. The online rule of Xie (2007) (online.py) counts the whole cost. So it is drawn to actions that
are cheap now, and between tables whose costs grow alike it cannot tell which of them has more to gain from waiting.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, ClassVar

from hullcast.broker.views.planners.arrivals import ArrivalRates
from hullcast.broker.views.planners.online import time_until
from hullcast.broker.views.planners.planner import ViewPlanner, emptied, minimal_actions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.views.costs import CostFunction


class Thrifty(ViewPlanner):
    """Lazy, greedy and minimal; needs no guess. Costs as much to ask as `Online`."""

    name: ClassVar[str] = "thrifty"
    about: ClassVar[str] = "at the limit, what wastes least for the time it buys, at the rates seen lately"

    def __init__(self) -> None:
        self._arrivals = ArrivalRates()
        self._actions = 0

    def next(
        self, pending: Sequence[int], costs: Sequence[CostFunction], limit_s: float, now: float
    ) -> tuple[int, ...]:
        self._arrivals.see(pending, now)
        each_s = [cost.of(k) for k, cost in zip(pending, costs, strict=True)]
        actions = minimal_actions(each_s, limit_s)
        if len(actions) == 1:
            return actions[0]
        wasted_s = [
            max(0.0, each - k * cost.of(most) / most)
            for each, k, cost in zip(each_s, pending, costs, strict=True)
            for most in [max(1, cost.largest_within(limit_s))]
        ]
        rates = self._arrivals.rates
        best, chosen = (inf, inf), actions[0]
        for tables in actions:
            time = time_until(emptied(pending, tables), rates, costs, limit_s)
            waste_s = sum(wasted_s[table] for table in tables)
            rank = (waste_s / time if time > 0 else inf, sum(each_s[table] for table in tables))
            if rank < best:
                best, chosen = rank, tables
        return chosen

    def acted(self, tables: Sequence[int], left: Sequence[int], took_s: float, now: float) -> None:
        self._arrivals.act(tables, left, now)
        self._actions += 1

    def refreshed(self, now: float) -> None:
        self._arrivals.refresh(now)

    def counters(self) -> dict[str, float]:
        return {"actions": self._actions}
