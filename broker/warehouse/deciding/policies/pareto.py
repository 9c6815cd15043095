"""Pareto: loads go between queries where they bring most within a slot of time.

M. Thiele, A. Bader, W. Lehner: Multi-objective scheduling for real-time data warehouses (2009). What its words mean,
when a plan is made anew, and where we leave the paper: `sim/experiments/studies/scheduling/POLICIES.md`.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass
from heapq import nlargest
from math import ceil
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from hullcast.broker.scheduling.knapsack import EFFORT, PackedUpdates, packed, update_positions
from hullcast.broker.warehouse.deciding.board import Answer, Load
from hullcast.broker.warehouse.deciding.policies.policy import WarehousePolicy, toward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.scheduling.knapsack import Integers
    from hullcast.broker.warehouse.deciding.board import Board, Feed, Question, Release, Task

#: The unit of time of plans.
UNIT_S = 1e-4
#: A question goes before one that takes a second less if it has waited so many seconds longer.
PATIENCE = 10.0
#: A plan has at most so many questions and updates, and looks at so many states: some milliseconds. If there are more,
#: the first questions and the updates that bring most for their time are planned, and that plan serves for some tasks.
MOST_QUESTIONS, MOST_UPDATES, PLAN_EFFORT = 256, 128, 1 << 16
PLAN_TASKS = 16


def turn(question: Question) -> tuple[int, float, int]:
    """The order of questions: priority first, then the shortest, where waiting counts as being shorter.

    All that wait get older at the same rate, so the order of two questions never changes.
    """
    return -question.priority, question.expected_s + question.arrived / PATIENCE, question.number


@dataclass(frozen=True, slots=True)
class PositionPlan:
    place: Integers  # by update: it runs before the last so many questions
    slot: int
    packed: PackedUpdates | None = None  # None if a pure policy says it all


def positioned(
    depends: npt.NDArray[np.bool_],
    costs: Integers,
    profits: Integers,
    qos: npt.NDArray[np.float64],
    least: Integers | None = None,
    effort: int = EFFORT,
) -> PositionPlan:
    """The positions of updates: `depends[u, q]` for update u and question q, questions in their order.

    Costs are whole units of time, 1 or more; profits whole numbers. `least`: positions that updates must have at least,
    because a question cannot do without them; what they cost is taken from the slot first.
    """
    updates, questions = depends.shape
    least = np.zeros(updates, dtype=np.int64) if least is None else least
    if not updates or not questions or (qos == 1.0).all():
        return PositionPlan(least, 0)
    together = int(costs.sum()) * questions
    if (qos == 0.0).all():
        return PositionPlan(np.full(updates, questions, dtype=np.int64), together)
    slot = int(together * float(np.mean(1.0 - qos)))
    owner, place = np.nonzero(depends[:, ::-1])
    place = place + 1
    beyond = place > least[owner]
    owner, place = owner[beyond], place[beyond] - least[owner[beyond]]
    first = np.searchsorted(owner, np.arange(updates + 1)).astype(np.int64)
    positions = update_positions(costs, profits, first, place.astype(np.int64))
    chosen = packed(positions, max(0, slot - int((costs * least).sum())), effort=effort)
    return PositionPlan(chosen.place + least, slot, chosen)


class Pareto(WarehousePolicy):
    """Plans ahead. A load takes all that is pending of a table, so the pending updates of a table are one update: its
    profit is the rows times the table's weight, its cost what such a load is expected to take."""

    name: ClassVar[str] = "pareto"
    about: ClassVar[str] = "weighs fresh rows against short waits by what each query prefers"

    def __init__(self) -> None:
        self._order: list[Question] = []
        self._readers: Counter[str] = Counter()  # by table how many of these read it
        self._eager = self._patient = 0  # how many of them have qos = 1, and qos = 0
        self._place: dict[str, int] = {}  # by table with pending updates; 0 if it is not here
        self._stale = True  # whether a new plan is due
        self._off = 0  # for how many tasks it is put off
        self._rows: dict[Feed, int] = {}  # pending; the board would have to add them up
        self._made = self._kept = self._cut = self._inexact = self._lost = self._work = 0

    def next(self, board: Board, now: float) -> Task | None:
        self._look(board)
        loadable = sorted(board.loadable(), key=lambda feed: feed.pending[0].at)
        count = len(self._order)
        latest = max(map(self._due, loadable), default=0)
        for place, question in zip(range(count, 0, -1), self._order, strict=True):
            if latest >= place:
                early = next(feed for feed in loadable if self._due(feed) >= place)
                return self._begun(board.load(early), board)
            if (task := toward(question, board)) is not None:
                return self._begun(task, board)
        return board.load(loadable[0]) if loadable and not count else None

    def released(self, feed: Feed, release: Release, board: Board, now: float) -> None:
        if feed in self._rows:
            self._rows[feed] += release.rows
        self._touched(feed.loading is None and self._readers[feed.name] > 0)

    def asked(self, question: Question, board: Board, now: float) -> None:
        pure = self._pure()
        insort(self._order, question, key=turn)
        self._count(question, 1)
        self._shift(question, 1)
        self._touched(_depends(question, board) or pure != self._pure())

    def withdrawn(self, question: Question, board: Board, now: float) -> None:
        if question in self._order:
            self._left(question, board)

    def ended(self, task: Task, took_s: float, board: Board, now: float) -> None:
        if isinstance(task, Load) and (feed := board.feeds.get(task.table)) is not None:
            self._rows.pop(feed, None)
            if feed.pending:
                self._touched(self._readers[task.table] > 0)

    def counters(self) -> dict[str, float]:
        return {
            "plans made": self._made,
            "plans kept": self._kept,
            "plans of a part of what waits": self._cut,
            "plans not exact": self._inexact,
            "profit lost at most": self._lost,
            "states looked at per plan": self._work / max(1, self._made),
        }

    def _touched(self, dependency: bool) -> bool:
        """A plan is due if a dependency is touched; whether one is due."""
        self._stale = self._stale or dependency
        self._kept += not self._stale
        return self._stale

    def _pure(self) -> bool | None:
        """Whether all updates come first, or (False) all questions; None: as planned."""
        if self._patient == len(self._order):
            return True
        return False if self._eager == len(self._order) else None

    def _due(self, feed: Feed) -> int:
        """Before how many of the last questions a load of this table runs."""
        pure = self._pure()
        return self._place.get(feed.name, 0) if pure is None else len(self._order) * pure

    def _begun(self, task: Task, board: Board) -> Task:
        self._off -= 1
        if isinstance(task, Answer):
            self._left(task.question, board)
        else:
            self._touched(self._readers[task.table] > 0)
        return task

    def _left(self, question: Question, board: Board) -> None:
        pure = self._pure()
        self._shift(question, -1)
        self._order.remove(question)
        self._count(question, -1)
        self._touched(_depends(question, board) or pure != self._pure())

    def _count(self, question: Question, change: int) -> None:
        self._eager += change * (question.freshness <= 0.0)
        self._patient += change * question.needs_all
        for table in question.tables:
            self._readers[table] += change

    def _shift(self, question: Question, change: int) -> None:
        """Updates stay before the same questions when one comes or goes."""
        behind = len(self._order) - 1 - self._order.index(question)
        for table, place in self._place.items():
            self._place[table] = place + change * (place > behind)

    def _look(self, board: Board) -> None:
        """Make a plan if one is due; on a board too large for a whole plan only after some tasks."""
        if len(self._order) != len(board.waiting) or (self._stale and self._off <= 0):
            self._plan(board)

    def _plan(self, board: Board) -> None:
        self._stale, self._off = False, 0
        if len(self._order) != len(board.waiting):  # it is new to this board
            self._order = sorted(board.waiting, key=turn)
            self._eager = self._patient = 0
            self._readers.clear()
            for question in self._order:
                self._count(question, 1)
        pending = board.waiting_feeds()
        if (pure := self._pure()) is not None:
            self._place = dict.fromkeys((feed.name for feed in pending), len(self._order) * pure)
        else:
            self._rows = {feed: self._rows.get(feed) or feed.pending_rows for feed in pending}
            self._position(self._order[:MOST_QUESTIONS], nlargest(MOST_UPDATES, pending, key=self._worth), board)
            if len(self._order) > MOST_QUESTIONS or len(pending) > MOST_UPDATES:
                self._cut, self._off = self._cut + 1, PLAN_TASKS
        self._made += 1

    def _position(self, planned: Sequence[Question], pending: Sequence[Feed], board: Board) -> None:
        row = {feed.name: place for place, feed in enumerate(pending)}
        depends = np.zeros((len(pending), len(planned)), dtype=bool)
        least = np.zeros(len(pending), dtype=np.int64)
        for column, question in enumerate(planned):
            depends[[row[table] for table in question.tables if table in row], column] = True
            for load in board.missing(question) if question.needs_all or question.consistent else ():
                if load.table in row:
                    least[row[load.table]] = max(least[row[load.table]], len(planned) - column)
        plan = positioned(
            depends,
            np.array([ceil(self._cost_s(feed) / UNIT_S) for feed in pending], dtype=np.int64),
            np.array([self._profit(feed) for feed in pending], dtype=np.int64),
            np.array([1.0 - question.freshness for question in planned]),
            least,
            PLAN_EFFORT,
        )
        rest = len(self._order) - len(planned)
        self._place = {
            feed.name: place + rest if place else 0 for feed, place in zip(pending, plan.place.tolist(), strict=True)
        }
        if plan.packed is not None:
            self._work += plan.packed.work
            self._inexact += not plan.packed.exact
            self._lost += plan.packed.lost_profit

    def _cost_s(self, feed: Feed) -> float:
        return max(UNIT_S, feed.cost.of(self._rows[feed]))

    def _profit(self, feed: Feed) -> int:
        return max(1, round(self._rows[feed] * feed.weight))

    def _worth(self, feed: Feed) -> float:
        return self._profit(feed) / self._cost_s(feed)


def _depends(question: Question, board: Board) -> bool:
    """Whether an update is pending that a question depends on."""
    return any(table in board.feeds and board.feeds[table].pending for table in question.tables)
