"""Policies of papers that no server offers: they are here to be compared with those that do (`POLICIES` has both).

`Myopic` and `GroupAndRun` are those of Bateni et al. (2009), `Odrtb` is what Vu and Gopalkrishnan (2009) compare ORAD
with: the on-demand hybrid with relative consistency of Kao et al., *Maintaining Temporal Consistency of Discrete
Objects in Soft Real-Time Database Systems* (2003), as they describe it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hullcast.broker.warehouse.deciding import policies
from hullcast.broker.warehouse.deciding.board import Load
from hullcast.broker.warehouse.deciding.policies.orad import before_it, by_deadline, fresher
from hullcast.broker.warehouse.deciding.policies.policy import (
    UpdatesFirst,
    WarehousePolicy,
    first_toward,
    in_turn,
    oldest_load,
    toward,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hullcast.broker.warehouse.deciding.board import Board, Feed, Question, Release, Task

#: Periods of one group differ by this factor at most.
RANGE = 2.0
#: How much of the mean period the latest release is.
PERIOD_SHARE = 0.125
#: How old data may be to ODRTB (Delta).
TOLERANCE_S = 10.0


class Myopic(UpdatesFirst):
    """Loads the table whose oldest pending update was released first: the rule of updates-first, by its other name.

    Never leaves a place idle while a table could be loaded: the paper calls that eager. Total staleness is then
    within a constant of the least possible if loads are fast enough (Theorem 3.1).
    Feeds are all that the paper has; questions are answered, in their turn, on places that loads leave free.
    """

    name: ClassVar[str] = "myopic"
    about: ClassVar[str] = "loads the table that has waited longest; queries get the workers that are left"


@dataclass(frozen=True, slots=True, eq=False)
class LoadGroup:
    """Tables with periods from `shortest` to twice that, and how many of them may be loaded at the same time."""

    tables: tuple[str, ...]
    shortest: float
    places: int

    def holds(self, period_s: float) -> bool:
        """Whether a table of this period belongs here."""
        return self.shortest <= period_s <= RANGE * self.shortest


def grouped(periods: Mapping[str, float], places: int) -> list[LoadGroup]:
    """As few groups as possible, from the shortest period on. Together they have at most `places` places, unless there
    are more groups than that."""
    groups: list[list[str]] = []
    for table in sorted(periods, key=lambda table: periods[table]):
        if not groups or periods[table] > RANGE * periods[groups[-1][0]]:
            groups.append([])
        groups[-1].append(table)
    shared = max(places - len(groups), 0)
    return [
        LoadGroup(tuple(tables), periods[tables[0]], max(1, -(-shared * len(tables) // len(periods))))
        for tables in groups
    ]


class GroupAndRun(WarehousePolicy):
    """Tables of similar periods share places, so long loads do not delay short ones (Figure 2). In each group loads are
    chosen as Myopic does; nothing is shared between groups.

        period     0.5 s  0.8 s  1 s     |  60 s  100 s         |  3600 s          three groups, 6 tables
        places     ceil((p - 3) 3 / 6)   |  ceil((p - 3) 2 / 6) |  ceil((p - 3) / 6)

    Stretch stays below 3 and weighted staleness below 4.5 times the least possible (Theorems 4.3 and 5.1) if, with p
    places, t tables and g groups, p >= 2 g, loading what a table gets in a second takes at most (p - g) / (8 t) and at
    most 1/8 of a second, updates of a group are between B/2 and B apart, and nothing else has places.

    With fewer than 2 g places it does what Myopic does; the counter `too_few_places` says so. Periods are those that
    were declared, or seen. Questions are answered, in their turn, on places that loads leave free.
    """

    name: ClassVar[str] = "group-and-run"
    about: ClassVar[str] = "tables of similar periods share workers, so that long loads do not delay short ones"

    def __init__(self) -> None:
        self._groups: list[LoadGroup] = []
        self._group: dict[str, LoadGroup] = {}  # by table
        self._made_for: tuple[int, int] | None = None  # so many places and tables; None: periods are others now
        self._too_few = False
        self._regrouped = 0
        self._seen: dict[str, float] = {}  # by table the mean length of releases, early ones forgotten

    def next(self, board: Board, now: float) -> Task | None:
        return self._oldest_load(board) or first_toward(in_turn(board.waiting), board)

    def released(self, feed: Feed, release: Release, board: Board, now: float) -> None:
        if (length := release.length) > 0:
            seen = self._seen.get(feed.name, length)
            self._seen[feed.name] = seen + PERIOD_SHARE * (length - seen)
        group, period_s = self._group.get(feed.name), self._period(feed)
        if group is None or (period_s is not None and not group.holds(period_s)):
            self._made_for = None

    def _period(self, feed: Feed) -> float | None:
        """As declared, or as seen lately; None if nothing is known."""
        return self._seen.get(feed.name) if feed.period_s is None else feed.period_s

    def counters(self) -> dict[str, float]:
        return {"groups": len(self._groups), "regrouped": self._regrouped, "too_few_places": float(self._too_few)}

    def _oldest_load(self, board: Board) -> Load | None:
        if self._made_for != (board.places, len(board.feeds)):
            self._regroup(board)
        loadable = board.loadable()
        if not self._too_few:
            busy = Counter(self._group.get(task.table) for task in board.running if isinstance(task, Load))
            full = {group for group, loads in busy.items() if group is not None and loads >= group.places}
            loadable = [feed for feed in loadable if self._group.get(feed.name) not in full]
        feed = min(loadable, key=lambda feed: feed.pending[0].at, default=None)
        return None if feed is None else board.load(feed)

    def _regroup(self, board: Board) -> None:
        periods = {name: period for name, feed in board.feeds.items() if (period := self._period(feed))}
        self._groups = grouped(periods, board.places)
        self._group = {table: group for group in self._groups for table in group.tables}
        self._made_for = (board.places, len(board.feeds))
        self._too_few = board.places < 2 * len(self._groups)
        self._regrouped += 1


class Odrtb(WarehousePolicy):
    """The earliest deadline first. Idle places load in the order of arrival."""

    name: ClassVar[str] = "odrtb"
    about: ClassVar[str] = "the earliest deadline first; loads what a query reads when that is 10 s old"

    def __init__(self, tolerance_s: float = TOLERANCE_S) -> None:
        self._tolerance_s = tolerance_s

    def next(self, board: Board, now: float) -> Task | None:
        for question in by_deadline(board.waiting, now):
            if (task := self._toward(question, board)) is not None:
                return task
        return oldest_load(board)

    def _toward(self, question: Question, board: Board) -> Task | None:
        if 0.0 < question.freshness < 1.0 and question.target is None:
            since = question.arrived - self._tolerance_s
            late = [table for table in before_it(question, board) if board.feeds[table].pending[0].at < since]
            load = fresher(question, late, board)
            if load is not None or any(board.feeds[table].loading for table in late):
                return load
        return toward(question, board)


#: All policies by name: those that servers offer, and these.
POLICIES: dict[str, type[WarehousePolicy]] = {
    **policies.POLICIES,
    **{policy.name: policy for policy in (Myopic, GroupAndRun, Odrtb)},
}
