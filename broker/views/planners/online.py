"""Online: at the limit, the minimal action after which a unit of time will have cost least.

    (what was spent since the last refresh + f(Z))  /  (time since then + time until the limit is reached again)

is least for the chosen Z (Xie (2007), section 2.4.4). It needs no guess of when somebody asks, and takes the rates of
changes as they have been lately (arrivals.py).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, ClassVar

from hullcast.broker.views.costs import MOST
from hullcast.broker.views.planners.arrivals import ArrivalRates
from hullcast.broker.views.planners.planner import ViewPlanner, emptied, minimal_actions, taken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.views.costs import CostFunction

#: How exactly the time until the limit is known; and if it is very short, after how many halvings that is enough.
EXACTLY, HALVINGS = 1e-5, 60
#: Longer than any limit takes to be reached that matters.
FOR_EVER = 1e12


class Online(ViewPlanner):
    """Lazy, greedy and minimal. Cost below the limit: one look at each cost function. At the limit: for each minimal
    action (n tables have at most 2^n / sqrt(n) of them) some 20 looks at each."""

    name: ClassVar[str] = "online"
    about: ClassVar[str] = "at the limit, what keeps the cost of a unit of time lowest at the rates seen lately"

    def __init__(self) -> None:
        self._arrivals = ArrivalRates()
        self._spent_s = 0.0
        self._began: float | None = None
        self._actions = 0

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
            rank = ((self._spent_s + cost_s) / time if time > 0 else inf, cost_s)
            if rank < best:
                best, chosen = rank, tables
        return chosen

    def acted(self, tables: Sequence[int], left: Sequence[int], took_s: float, now: float) -> None:
        self._arrivals.act(tables, left, now)
        self._spent_s += took_s
        self._actions += 1

    def refreshed(self, now: float) -> None:
        self._arrivals.refresh(now)
        self._spent_s, self._began = 0.0, now

    def counters(self) -> dict[str, float]:
        return {"actions": self._actions, "spent_s": self._spent_s}


def time_until(pending: Sequence[int], rates: Sequence[float], costs: Sequence[CostFunction], limit_s: float) -> float:
    """How long the limit holds if changes come at these rates; FOR_EVER if it always does."""
    alone = [
        (most + 1 - k) / rate
        for k, rate, cost in zip(pending, rates, costs, strict=True)
        if rate > 0 and (most := cost.largest_within(limit_s)) < MOST
    ]
    low, high = 0.0, min(alone, default=FOR_EVER)
    for _ in range(HALVINGS):
        if high - low <= EXACTLY * high:
            return high
        middle = (low + high) / 2
        later = [k + int(rate * middle) for k, rate in zip(pending, rates, strict=True)]
        low, high = (middle, high) if taken(later, costs) <= limit_s else (low, middle)
    return high
