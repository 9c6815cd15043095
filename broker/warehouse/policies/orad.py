"""ORAD: updates wait until a question needs them; the question whose deadline is nearest comes first.

Vu and Gopalkrishnan (2009): "On-demand ReAl-time Data warehouse". Objects are tables, a load is the update on demand,
and the board holds a question's tables at one moment (`Board.missing`, `Board.pinned`). The paper's transactions, which
read one object after the other, are in `sim/experiments/studies/scheduling/`; they share `urgency` (who is first),
`committed` and `first_of` (what idle time is for).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, ClassVar

from hullcast.broker.warehouse.board import Answer, Load
from hullcast.broker.warehouse.policies.clock_cache import ClockCache
from hullcast.broker.warehouse.policies.policy import WarehousePolicy, toward

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from hullcast.broker.warehouse.board import Board, Question, Task
    from hullcast.broker.warehouse.policies.clock_cache import Id

#: Objects in the cache of those that are read often; tables are few.
CACHED = 16
#: A question without a deadline counts as of the next higher priority after so long.
PATIENCE_S = 10.0


def urgency(priority: int, deadline: float, arrived: float, now: float) -> tuple[float, float, float]:
    """Least first: higher priority, then the earlier deadline, then what came first.

    What has no deadline comes after all that have one, and rises with the time that it waits: it does not starve.
    """
    waited = 0.0 if deadline < inf else max(0.0, now - arrived) // PATIENCE_S
    return -(priority + waited), deadline, arrived


def by_deadline(questions: Iterable[Question], now: float) -> list[Question]:
    """Questions in the order of their urgency."""
    return sorted(questions, key=lambda each: urgency(each.priority, each.deadline, each.arrived, now))


def before_it(question: Question, board: Board, *, since: float = inf) -> list[str]:
    """The tables of a question with updates from before it was asked that are not loaded (released before `since`)."""
    found = []
    for table in question.tables:
        pending = board.feeds[table].pending
        if pending and pending[0].first <= question.seq and pending[0].at < since:
            found.append(table)
    return found


def fresher(question: Question, tables: list[str], board: Board) -> Load | None:
    """A load that makes one of these tables of a question fresher; None: none can begin now."""
    for feed in board.loadable():
        if feed.name in tables:
            return board.load(feed, None if question.needs_common else question)
    return None


class Orad(WarehousePolicy):
    """The earliest deadline first; loads on demand, with the priority of the question that needs them; idle places load
    what is read often first."""

    name: ClassVar[str] = "orad"
    about: ClassVar[str] = (
        "the earliest deadline first; loads what a query needs when it needs it, and others in idle time"
    )

    def __init__(self, cached: int = CACHED) -> None:
        self.often: ClockCache[Hashable] = ClockCache(cached)
        self._on_demand = self._idle = self._as_it_is = 0

    def next(self, board: Board, now: float) -> Task | None:
        for question in by_deadline(board.waiting, now):
            if (task := self._toward(question, board, now)) is not None:
                self._on_demand += isinstance(task, Load)
                return task
        loadable = {feed.name: feed for feed in sorted(board.loadable(), key=lambda feed: feed.pending[0].at)}
        if not loadable:
            return None
        self._idle += 1
        return board.load(loadable[self.first_of(loadable)])

    def _toward(self, question: Question, board: Board, now: float) -> Task | None:
        """As fresh as possible: a question that need not have everything gets it nevertheless if there is time."""
        if 0.0 < question.freshness < 1.0 and question.target is None and (late := before_it(question, board)):
            feeds = [board.feeds[table] for table in late]
            loads_s = sum(feed.cost.of(feed.pending_rows) for feed in feeds)
            if now + loads_s + question.expected_s <= question.deadline:
                load = fresher(question, late, board)
                if load is not None or any(feed.loading for feed in feeds):
                    return load
            self._as_it_is += board.ready(question)
        return toward(question, board)

    def ended(self, task: Task, took_s: float, board: Board, now: float) -> None:
        if isinstance(task, Answer):
            self.committed(task.question.tables)

    def counters(self) -> dict[str, float]:
        return {
            "loads on demand": self._on_demand,
            "loads in idle time": self._idle,
            "answers not made fresher for lack of time": self._as_it_is,
            "tables read often": len(self.often),
        }

    # -- what idle time is for -----------------------------------------------------------------------------

    def committed(self, objects: Iterable[Id]) -> None:
        """A question that read these was answered."""
        for object_id in objects:
            self.often.touch(object_id)

    def first_of(self, objects: Iterable[Id]) -> Id:
        """Of objects in the order of arrival of their updates, the one to bring up to date first."""
        return min(objects, key=self.often.rank)
