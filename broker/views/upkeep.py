"""The upkeep of one view: what must be propagated now, so that whoever asks finds it ready within its promise. Pure.

    changes are released   `due`: does what is pending still take at most `limit_s`? If not, the planner says which
                           tables are propagated now
    tables were propagated `propagated`: what it took teaches the cost functions, and the planner
    somebody asked         `refreshed`: how long they waited until the view was up to date, within the promise or not

What the planner keeps within its limit is what a refresh is *expected* to take. The promise is kept by the rest: a part
of it (`share`) for the work, the other part for what nobody can foresee, such as changes that are not known yet, work
that has begun already, and a machine that is busy otherwise. When a promise was broken the share gets smaller, and
grows back slowly.

`spent_s` is what propagating took. Whether batching pays is seen by what it was expected to take (`expected_s`) beside
what a refresh of all tables at the same limit would have been expected to take (`naive_s`), by the same cost functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hullcast.broker.views.costs import LearnedCost
from hullcast.broker.views.planners.naive import Naive
from hullcast.broker.views.planners.planner import emptied, taken
from hullcast.broker.views.planners.thrifty import Thrifty

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hullcast.broker.views.planners.planner import ViewPlanner

#: What a refresh takes besides propagating, whatever is pending: messages between processes, and a place for it.
OVERHEAD_S = 0.002
#: Which part of the promise, less that, expected work may fill: at first and at most, and at least.
SHARE, LEAST_SHARE = 0.5, 0.1
#: What becomes of the share when a promise was broken, and of what it lacks to `SHARE` when one was kept.
CUT, GROWTH = 0.7, 0.02


#: Changes of each table that may wait in any case.
FEW = 8


def limit_of(response_time_s: float, share: float = SHARE) -> float:
    """Seconds of expected work that may be pending."""
    return max(0.0, response_time_s - OVERHEAD_S) * share


def shortest_promise(costs: Sequence[LearnedCost]) -> float:
    """The shortest response time that can be promised where propagating takes so long: one change of each table may be
    pending, whatever is done."""
    return OVERHEAD_S + sum(cost.of(1) for cost in costs)


class Spent(NamedTuple):
    """What it took to propagate changes of one table."""

    rows: int
    took_s: float


class Upkeep:
    """Decides for one view, and counts. `tables` are the folded names of those it reads."""

    def __init__(
        self,
        tables: Sequence[str],
        response_time_s: float,
        measured: Mapping[str, Sequence[Spent]] | None = None,
        planner: ViewPlanner | None = None,
    ) -> None:
        self.tables = tuple(tables)
        self.response_time_s = response_time_s
        self.share = SHARE
        self.costs = {table: LearnedCost() for table in self.tables}
        for table, some in (measured or {}).items():
            for each in some:
                self.costs[table].learn(*each)
        self.planner = planner or Thrifty()
        self._naive = Naive()
        self._naive_pending = dict.fromkeys(self.tables, 0)
        self.changes = 0
        self.propagations = 0
        self.spent_s = self.expected_s = self.naive_s = 0.0
        self.within = self.beyond = 0
        self.longest_s = 0.0

    @property
    def limit_s(self) -> float:
        """What is pending may be expected to take so long. Some changes of each table may always wait, however often
        the promise was broken: to propagate each by itself would take more of a machine that is too busy already."""
        few_s = sum(cost.of(FEW) for cost in self.costs.values())
        return max(limit_of(self.response_time_s, self.share), min(limit_of(self.response_time_s), few_s))

    # -- what happens --------------------------------------------------------------------------------------

    def released(self, table: str, rows: int, now: float) -> None:
        """Changes of a table are pending from now on."""
        self.changes += rows
        self._naive_pending[table] += rows
        costs = self._ordered_costs()
        pending = list(self._naive_pending.values())
        if self._naive.next(pending, costs, self.limit_s, now):
            self._refresh_naively()

    def propagated(self, spent: Mapping[str, Spent], pending: Mapping[str, int], now: float) -> None:
        """Changes were propagated; this is pending now."""
        self.propagations += 1
        took_s = 0.0
        for table, (rows, each_s) in spent.items():
            self.expected_s += self.costs[table].of(rows)
            self.costs[table].learn(rows, each_s)
            took_s += each_s
        self.spent_s += took_s
        numbers = [place for place, table in enumerate(self.tables) if table in spent]
        self.planner.acted(numbers, [pending[table] for table in self.tables], took_s, now)

    def up_to_date(self, now: float) -> None:
        """Somebody asked, and nothing is pending."""
        self._refresh_naively()
        self.planner.refreshed(now)

    def refreshed(self, took_s: float) -> None:
        """Somebody waited so long until the view was up to date."""
        self.longest_s = max(self.longest_s, took_s)
        if took_s <= self.response_time_s:
            self.within += 1
            self.share += GROWTH * (SHARE - self.share)
        else:
            self.beyond += 1
            self.share = max(LEAST_SHARE, CUT * self.share)

    def _refresh_naively(self) -> None:
        self.naive_s += taken(list(self._naive_pending.values()), self._ordered_costs())
        self._naive_pending = dict.fromkeys(self.tables, 0)

    # -- what is asked -------------------------------------------------------------------------------------

    def due(self, pending: Mapping[str, int], now: float) -> tuple[str, ...]:
        """The tables to propagate now; () if all can wait."""
        chosen = self.planner.next([pending[table] for table in self.tables], self._ordered_costs(), self.limit_s, now)
        return tuple(self.tables[number] for number in chosen)

    def refresh_s(self, pending: Mapping[str, int]) -> float:
        """What a refresh is expected to take now."""
        return taken([pending[table] for table in self.tables], self._ordered_costs())

    def check(self, pending: Mapping[str, int]) -> None:
        """Assert that what is pending is expected to take at most the limit, as it is whenever nothing is due."""
        assert self.refresh_s(pending) <= self.limit_s, f"{self.refresh_s(pending)} s pending of {self.limit_s} s"

    def left_after(self, pending: Mapping[str, int], tables: Sequence[str]) -> float:
        """What a refresh is expected to take when these tables were propagated."""
        numbers = [self.tables.index(table) for table in tables]
        return taken(emptied([pending[table] for table in self.tables], numbers), self._ordered_costs())

    def facts(self, pending: Mapping[str, int]) -> dict[str, Any]:
        """For people."""
        return {
            "response_time_s": self.response_time_s,
            "planner": self.planner.name,
            "pending": dict(pending),
            "refresh_s": self.refresh_s(pending),
            "limit_s": self.limit_s,
            "within": self.within,
            "beyond": self.beyond,
            "longest_refresh_s": self.longest_s,
            "changes": self.changes,
            "propagations": self.propagations,
            "spent_s": self.spent_s,
            "expected_s": self.expected_s,
            "naive_s": self.naive_s,
            "costs": {
                table: dict(zip(("batch_s", "row_s"), cost.fitted, strict=True)) for table, cost in self.costs.items()
            },
        }

    def _ordered_costs(self) -> list[LearnedCost]:
        return [self.costs[table] for table in self.tables]
