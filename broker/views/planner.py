"""Which base tables of a view are propagated now. Pure.

A *plan* is *valid* if at any time what is pending takes at most the limit, sum_i f_i(k_i) <= limit: then the view can
be brought up to date within the limit whenever somebody asks. A valid action empties tables until that holds again. It
is *lazy* if it is taken only when the limit is broken, *greedy* if tables are emptied as a whole, and *minimal* if
emptying fewer of the same tables would not do (Xie (2007), section 2.3).

What decides in a server is `Thrifty`, our own rule: at the limit, the minimal action that wastes least for the time it
buys. Every change must be propagated at some time, and costs at least what it costs in the largest batch that the limit
allows, f_i(P_i) / P_i. That much is no argument for or against any action. What is spent beyond it is *waste*:

    waste of an action = sum of  f_i(k_i) - k_i f_i(P_i) / P_i        over the tables that it empties
    chosen:              the least waste for each unit of time until the limit is reached again

A table with a linear cost wastes nothing, and is emptied again and again; one with a high fixed cost wastes less the
larger its batch is. The planners that it is compared with are in `sim/experiments/studies/batching/`.
"""

from __future__ import annotations

from itertools import combinations
from math import inf
from typing import TYPE_CHECKING, ClassVar

from hullcast.broker.views.costs import MOST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.views.costs import CostFunction

#: Up to so many tables with pending changes all minimal actions are looked at: at most 252 of them.
MOST_TABLES = 10
#: How exactly the time until the limit is known; and if it is very short, after how many halvings that is enough.
EXACTLY, HALVINGS = 1e-5, 60
#: Longer than any limit takes to be reached that matters.
FOR_EVER = 1e12


class ViewPlanner:
    """Decides for one view. Tables are numbers, the same in all calls; all times are of one clock, of any unit."""

    name: ClassVar[str]

    def next(
        self, pending: Sequence[int], costs: Sequence[CostFunction], limit_s: float, now: float
    ) -> tuple[int, ...]:
        """The tables to empty now, () for none. Called when changes were released.

        Invariant V1: when these are empty, what is pending costs at most the limit.
        """
        raise NotImplementedError

    def acted(self, tables: Sequence[int], left: Sequence[int], took_s: float, now: float) -> None:
        """Tables were propagated in so long; `left` is what is pending now. That may be more than before: of the tables
        that were emptied, what was released in the meantime."""

    def refreshed(self, now: float) -> None:
        """The view is up to date: nothing is pending, and a new period begins."""


class Thrifty(ViewPlanner):
    """Lazy, greedy and minimal. Cost below the limit: one look at each cost function. At the limit: for each minimal
    action (n tables have at most 2^n / sqrt(n) of them) some 20 looks at each."""

    name: ClassVar[str] = "thrifty"

    def __init__(self) -> None:
        self._arrivals = ArrivalRates()

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

    def refreshed(self, now: float) -> None:
        self._arrivals.refresh(now)


class ArrivalRates:
    """Changes by time, of each table. What came before an action counts `MEMORY` as much after it: rates follow changes
    of load within a dozen actions, whatever the unit of time is."""

    MEMORY = 0.9

    def __init__(self) -> None:
        self._known: list[int] = []  # pending changes that were counted
        self._counts: list[float] = []
        self._since: float | None = None
        self._span = 0.0

    def see(self, pending: Sequence[int], now: float) -> None:
        """So much is pending: what is more than before has come since."""
        if len(self._known) != len(pending):  # the first look; nobody knows how long it took to come
            self._known = list(pending) if self._since is None else [0] * len(pending)
            self._counts = [0.0] * len(pending)
        if self._since is not None:
            self._span += max(0.0, now - self._since)
        for table, k in enumerate(pending):
            self._counts[table] += max(0, k - self._known[table])
            self._known[table] = k
        self._since = now

    def act(self, tables: Sequence[int], left: Sequence[int], now: float) -> None:
        """Tables were emptied, and this is pending now."""
        for table in tables:
            if table < len(self._known):
                self._known[table] = 0
        self.see(left, now)
        self._counts = [self.MEMORY * count for count in self._counts]
        self._span *= self.MEMORY

    def refresh(self, now: float) -> None:
        """All tables were emptied."""
        self.act(range(len(self._known)), [0] * len(self._known), now)

    @property
    def rates(self) -> list[float]:
        """By table; 0 for all while no time has passed."""
        return [count / self._span if self._span else 0.0 for count in self._counts]


def taken(pending: Sequence[int], costs: Sequence[CostFunction]) -> float:
    """What a refresh would take now."""
    total = 0.0  # added one by one, as the kernels do: `sum` rounds in another way
    for k, cost in zip(pending, costs, strict=True):
        total += cost.of(k)
    return total


def emptied(pending: Sequence[int], tables: Sequence[int]) -> list[int]:
    """What is pending after an action."""
    return [0 if table in tables else k for table, k in enumerate(pending)]


def minimal_actions(each_s: Sequence[float], limit_s: float) -> list[tuple[int, ...]]:
    """All minimal valid actions where the pending changes of each table take so long, the smallest first; [()] if the
    limit holds. With many tables (MOST_TABLES) only some of them, one for each table that they may begin with."""
    costly = [table for table, each in enumerate(each_s) if each > 0]
    if holds(each_s, (), limit_s):
        return [()]
    if len(costly) > MOST_TABLES:
        return sorted({greedy(each_s, costly[at:] + costly[:at], limit_s) for at in range(len(costly))}, key=len)
    found: list[tuple[int, ...]] = []
    for size in range(1, len(costly) + 1):
        for tables in combinations(costly, size):
            if not any(set(tables).issuperset(fewer) for fewer in found) and holds(each_s, tables, limit_s):
                found.append(tables)
    return found


def greedy(each_s: Sequence[float], order: Sequence[int], limit_s: float) -> tuple[int, ...]:
    """Take tables in this order until the limit holds, then leave out those that are not needed, the last first."""
    chosen: list[int] = []
    for table in order:
        if holds(each_s, chosen, limit_s):
            break
        if each_s[table] > 0:
            chosen.append(table)
    for table in reversed(chosen[:]):
        fewer = [other for other in chosen if other != table]
        if holds(each_s, fewer, limit_s):
            chosen = fewer
    return tuple(sorted(chosen))


def holds(each_s: Sequence[float], tables: Sequence[int], limit_s: float) -> bool:
    """Whether the limit holds when these tables are empty."""
    total = 0.0
    for table, each in enumerate(each_s):
        if table not in tables:
            total += each
    return total <= limit_s


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
