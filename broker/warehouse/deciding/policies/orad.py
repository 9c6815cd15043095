"""ORAD: updates wait until a question needs them; the question whose deadline is nearest comes first.

Vu and Gopalkrishnan (2009): objects are tables, a load is the update on demand, and the board holds a question's tables
at one moment (`Board.missing`, `Board.pinned`). The paper's transactions, which read one object after the other, are in
`sim/experiments/studies/scheduling/`; they share `urgency` (who is first), `committed` and `first_of` (what idle time
is for).
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from hullcast.broker.warehouse.deciding.board import Answer, Load
from hullcast.broker.warehouse.deciding.policies.policy import WarehousePolicy, toward

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hullcast.broker.warehouse.deciding.board import Board, Question, Task

#: Objects in the cache of those that are read often; tables are few.
CACHED = 16
#: A question without a deadline counts as of the next higher priority after so long.
PATIENCE_S = 10.0

Id = TypeVar("Id", bound=Hashable)


def urgency(priority: int, deadline: float, arrived: float, now: float) -> tuple[float, float, float]:
    """Least first: higher priority, then the earlier deadline, then what came first.

    What has no deadline comes after all that have one, and rises with the time that it waits: it does not starve.
    """
    waited = 0.0 if deadline < inf else max(0.0, now - arrived) // PATIENCE_S
    return -(priority + waited), deadline, arrived


def by_deadline(questions: Iterable[Question], now: float) -> list[Question]:
    return sorted(questions, key=lambda each: urgency(each.priority, each.deadline, each.arrived, now))


def before_it(question: Question, board: Board) -> list[str]:
    """The tables of a question with updates from before it was asked that are not loaded."""
    pending = {table: board.feeds[table].pending for table in question.tables}
    return [table for table, releases in pending.items() if releases and releases[0].first <= question.seq]


def fresher(question: Question, tables: list[str], board: Board) -> Load | None:
    """A load that makes one of these tables of a question fresher; None: none can begin now."""
    for feed in board.loadable():
        if feed.name in tables:
            return board.load(feed, None if question.needs_common else question)
    return None


class ClockCache(Generic[Id]):
    """C_ft: the objects that are read often, told by the clock algorithm (nearly: those read last).

    A hand goes round over the places. An object that is read again is marked. When a place is needed, the hand removes
    the mark of each marked object that it comes to, and the first unmarked one leaves.

    Invariant C1 (`check`): `_place` has each object at its place, and there are at most `size`.
    """

    def __init__(self, size: int) -> None:
        assert size >= 1
        self.size = size
        self._objects: list[Id] = []
        self._marked: list[bool] = []
        self._place: dict[Id, int] = {}
        self._hand = 0

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, object_id: Id) -> bool:
        return object_id in self._place

    def touch(self, object_id: Id) -> None:
        place = self._place.get(object_id)
        if place is not None:
            self._marked[place] = True
        elif len(self._objects) < self.size:
            self._place[object_id] = len(self._objects)
            self._objects.append(object_id)
            self._marked.append(True)
        else:
            while self._marked[self._hand]:
                self._marked[self._hand] = False
                self._hand = (self._hand + 1) % self.size
            del self._place[self._objects[self._hand]]
            self._objects[self._hand], self._marked[self._hand] = object_id, True
            self._place[object_id] = self._hand
            self._hand = (self._hand + 1) % self.size

    def rank(self, object_id: Id) -> int:
        """0: read since the hand was there; 1: read before; 2: not here. Least first."""
        place = self._place.get(object_id)
        return 2 if place is None else 0 if self._marked[place] else 1

    def check(self) -> None:
        assert self._place == {object_id: place for place, object_id in enumerate(self._objects)}, "C1"
        assert len(self._objects) == len(self._marked) <= self.size, "C1"
        assert self._hand < self.size, "C1"


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
        for object_id in objects:
            self.often.touch(object_id)

    def first_of(self, objects: Iterable[Id]) -> Id:
        """Of objects in the order of arrival of their updates, the one to bring up to date first."""
        return min(objects, key=self.often.rank)
