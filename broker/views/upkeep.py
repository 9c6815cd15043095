"""The upkeep of one view: what must be propagated now to keep its promise. Pure.

    changes are released   `due`: does what is pending still take at most `limit_s`? If not, the planner says which
                           tables are propagated now
    tables were propagated `propagated`: what it took teaches the cost functions, and the planner
    before that            `recomputes`: would it take less to compute the whole result again?
    somebody asked         `refreshed`: how long they waited until the view was up to date, within the promise or not

What the planner keeps within its limit is what a refresh is *expected* to take. The promise is kept by the rest: a part
of it (`share`) for the work, the other part for what nobody can foresee, such as changes that are not known yet, work
that has begun already, and a machine that is busy otherwise. When a promise was broken the share gets smaller, and
grows back slowly.

`spent_s` is what propagating took, `expected_s` what the cost functions said before.
"""

from __future__ import annotations

import json
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from hullcast.broker.views.costs import CheaperCost, LearnedCost, LinearCost
from hullcast.broker.views.planner import Thrifty, taken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hullcast.broker.views.costs import CostFunction
    from hullcast.broker.views.planner import ViewPlanner

#: What a refresh takes besides propagating, whatever is pending: messages between processes, and a place for it.
OVERHEAD_S = 0.002
#: Which part of the promise, less that, expected work may fill: at first and at most, and at least.
SHARE, LEAST_SHARE = 0.5, 0.1
#: What becomes of the share when a promise was broken, and of what it lacks to `SHARE` when one was kept.
CUT, GROWTH = 0.7, 0.02
#: The result is computed again where that is expected to take less than this part of what deltas take: what either
#: takes is not known exactly, and deltas are written to the disk as they are.
RECOMPUTED_BELOW = 0.8
#: Seconds after which what was learned is kept again.
KEPT_S = 1.0
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


class Propagation(NamedTuple):
    """What became of a propagation. `spent`: by table that was asked for, with its part of the commit; only what it
    took to bring the copies up to date, if the result was computed from them, in `recomputed_s`. `given_up`: the table
    whose deltas were given up for that, and what they had taken. `computing`: what it takes by now to compute the
    result again, if that is known. `built`: the file was made again, with all tables, which tells nothing of changes.
    """

    spent: Mapping[str, Spent]
    recomputed_s: float | None = None
    given_up: tuple[str, float] | None = None
    computing: LinearCost | None = None
    built: bool = False


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
        self._computing: LinearCost | None = None
        self._cheaper: list[CostFunction] = list(self.costs.values())
        self._kept_at = -inf
        self.planner = planner or Thrifty()
        self.changes = 0  # of its tables, by whoever hears of them
        self.propagations = self.recomputations = 0
        self.spent_s = self.expected_s = 0.0
        self.within = self.beyond = 0
        self.longest_s = 0.0

    @property
    def limit_s(self) -> float:
        """What is pending may be expected to take so long. Some changes of each table may always wait, however often
        the promise was broken: to propagate each by itself would take more of a machine that is too busy already."""
        few_s = sum(cost.of(FEW) for cost in self._cheaper)
        return max(limit_of(self.response_time_s, self.share), min(limit_of(self.response_time_s), few_s))

    # -- what happens --------------------------------------------------------------------------------------

    def propagated(self, done: Propagation, pending: Mapping[str, int], now: float) -> None:
        """Changes were propagated; this is pending now. What recomputing takes teaches nothing of deltas; but if deltas
        were given up for it, it is known that they take that long at least."""
        spent = done.spent
        self.propagations += 1
        self.expected_s += self._expected({table: rows for table, (rows, _) in spent.items()})
        took_s = sum(each_s for _, each_s in spent.values())
        if done.recomputed_s is None:
            for table, (rows, each_s) in spent.items():
                self.costs[table].learn(rows, each_s)
        else:
            self.recomputations += 1
            took_s += done.recomputed_s
            if done.given_up is not None:
                table, each_s = done.given_up
                self.costs[table].learn(spent[table].rows, each_s)
                took_s += each_s
        self.computing = done.computing
        self.spent_s += took_s
        numbers = [place for place, table in enumerate(self.tables) if table in spent]
        self.planner.acted(numbers, [pending[table] for table in self.tables], took_s, now)

    def up_to_date(self, now: float) -> None:
        """Somebody asked, and nothing is pending."""
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

    # -- deltas, or all again ------------------------------------------------------------------------------

    @property
    def computing(self) -> LinearCost | None:
        """What it takes to bring the copies up to date with k changes and to compute the result from them."""
        return self._computing

    @computing.setter
    def computing(self, computing: LinearCost | None) -> None:
        self._computing = computing
        deltas = self.costs.values()
        self._cheaper = [each if computing is None else CheaperCost(each, computing) for each in deltas]

    def recomputes(self, rows: Mapping[str, int]) -> bool:
        """Whether the result should be computed again for so many changes of tables."""
        if self._computing is None:
            return False
        deltas_s = sum(self.costs[table].of(k) for table, k in rows.items())
        return self._computing.of(sum(rows.values())) < RECOMPUTED_BELOW * deltas_s

    def _expected(self, rows: Mapping[str, int]) -> float:
        """Seconds to propagate so many changes, the one way or the other."""
        if self.recomputes(rows) and self._computing is not None:
            return self._computing.of(sum(rows.values()))
        return sum(self.costs[table].of(k) for table, k in rows.items())

    # -- what outlives this object -------------------------------------------------------------------------

    def to_keep(self, now: float) -> str | None:
        """`kept`, if it is time to keep it again."""
        if now - self._kept_at < KEPT_S:
            return None
        self._kept_at = now
        return self.kept()

    def kept(self) -> str:
        """What was learned of deltas, and how much of the promise may be pending; for the file of the view."""
        costs = {table: cost.kept() for table, cost in self.costs.items()}
        return json.dumps({"share": self.share, "costs": costs})

    def begin_with(self, kept: str) -> None:
        """Begin with what was learned before; ValueError if that is not what is kept of this view."""
        try:
            found = json.loads(kept)
            share, costs = float(found["share"]), found["costs"]
            for table in self.tables:
                self.costs[table].begin_with(costs[table])
        except (KeyError, TypeError) as error:
            raise ValueError(f"not what a view keeps of its costs: {kept[:100]}") from error
        self.share = min(SHARE, max(LEAST_SHARE, share))

    # -- what is asked -------------------------------------------------------------------------------------

    def due(self, pending: Mapping[str, int], now: float) -> tuple[str, ...]:
        """The tables to propagate now; () if all can wait."""
        chosen = self.planner.next([pending[table] for table in self.tables], self._cheaper, self.limit_s, now)
        return tuple(self.tables[number] for number in chosen)

    def refresh_s(self, pending: Mapping[str, int]) -> float:
        """What a refresh is expected to take now."""
        return taken([pending[table] for table in self.tables], self._cheaper)

    def check(self, pending: Mapping[str, int]) -> None:
        """Assert that what is pending is expected to take at most the limit, as it is whenever nothing is due."""
        assert self.refresh_s(pending) <= self.limit_s, f"{self.refresh_s(pending)} s pending of {self.limit_s} s"

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
            "recomputations": self.recomputations,
            "recompute_s": None if self._computing is None else self._computing.fixed_s,
            "spent_s": self.spent_s,
            "expected_s": self.expected_s,
            "costs": {
                table: dict(zip(("batch_s", "row_s"), cost.fitted, strict=True)) for table, cost in self.costs.items()
            },
        }
