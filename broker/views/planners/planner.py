"""What a planner is: it says which base tables of a view are propagated now. Pure.

A *plan* is *valid* if at any time what is pending takes at most the limit, sum_i f_i(k_i) <= limit: then the view can
be brought up to date within the limit whenever somebody asks. A valid action empties tables until that holds again. It
is *lazy* if it is taken only when the limit is broken, *greedy* if tables are emptied as a whole, and *minimal* if
emptying fewer of the same tables would not do (Xie (2007), section 2.3).
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.views.costs import CostFunction

#: Up to so many tables with pending changes all minimal actions are looked at: at most 252 of them.
MOST_TABLES = 10


class ViewPlanner:
    """Decides for one view. Tables are numbers, the same in all calls; all times are of one clock, of any unit."""

    name: ClassVar[str]
    #: What it is for, in a line.
    about: ClassVar[str]

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

    def counters(self) -> dict[str, float]:
        """What it did, for people."""
        return {}


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
    if _holds(each_s, (), limit_s):
        return [()]
    if len(costly) > MOST_TABLES:
        return sorted({_greedy(each_s, costly[at:] + costly[:at], limit_s) for at in range(len(costly))}, key=len)
    found: list[tuple[int, ...]] = []
    for size in range(1, len(costly) + 1):
        for tables in combinations(costly, size):
            if not any(set(tables).issuperset(fewer) for fewer in found) and _holds(each_s, tables, limit_s):
                found.append(tables)
    return found


def made_minimal(each_s: Sequence[float], wanted: Sequence[int], limit_s: float) -> tuple[int, ...]:
    """A minimal valid action out of the wanted tables, the first of them most likely; of others if these do not do."""
    if _holds(each_s, (), limit_s):
        return ()
    others = sorted((table for table in range(len(each_s)) if table not in wanted), key=lambda table: -each_s[table])
    return _greedy(each_s, [*dict.fromkeys(wanted), *others], limit_s)


def _greedy(each_s: Sequence[float], order: Sequence[int], limit_s: float) -> tuple[int, ...]:
    """Take tables in this order until the limit holds, then leave out those that are not needed, the last first."""
    chosen: list[int] = []
    for table in order:
        if _holds(each_s, chosen, limit_s):
            break
        if each_s[table] > 0:
            chosen.append(table)
    for table in reversed(chosen[:]):
        fewer = [other for other in chosen if other != table]
        if _holds(each_s, fewer, limit_s):
            chosen = fewer
    return tuple(sorted(chosen))


def _holds(each_s: Sequence[float], tables: Sequence[int], limit_s: float) -> bool:
    """Whether the limit holds when these tables are empty."""
    total = 0.0
    for table, each in enumerate(each_s):
        if table not in tables:
            total += each
    return total <= limit_s
