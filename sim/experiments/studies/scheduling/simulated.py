"""The warehouse by a simulated clock: the live board and policies, with costs that the caller gives.

warehouse = SimulatedWarehouse(Myopic(), places=2, load_s=lambda load, board: ..)
warehouse.release_at(3.0, "STOCK", rows=100)
warehouse.ask_at(4.0, Question(..))
warehouse.run()
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from hullcast.broker.warehouse.board import Answer, Board, Feed, Load
from hullcast.sim.experiments.studies.scheduling.places import SimulatedTime, TaskPlaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hullcast.broker.warehouse.board import Question, Task
    from hullcast.broker.warehouse.policies.policy import WarehousePolicy


def learnt_cost(load: Load, board: Board) -> float:
    """What the board expects of a load."""
    return board.feeds[load.table].cost.of(sum(release.rows for release in load.batch))


class SimulatedWarehouse:
    """`places` processors. A question past its deadline is aborted, also when it runs."""

    def __init__(
        self,
        policy: WarehousePolicy,
        places: int = 1,
        *,
        feeds: Iterable[Feed] = (),
        load_s: Callable[[Load, Board], float] = learnt_cost,
        answer_s: Callable[[Question], float] = lambda question: question.expected_s,
    ) -> None:
        self.policy = policy
        self.board = Board(places)
        self.answered: list[tuple[Question, float]] = []  # and when
        self.missed: list[Question] = []
        self._load_s, self._answer_s = load_s, answer_s
        self._time = SimulatedTime()
        self._places: TaskPlaces[Task] = TaskPlaces(places, lambda now: self.policy.next(self.board, now), self._begin)
        for feed in feeds:
            self.board.add(feed)

    @property
    def now(self) -> float:
        """The simulated time."""
        return self._time.now

    def release_at(self, when: float, table: str, rows: int = 1) -> None:
        """Updates of a table come then."""
        self._time.at(when, partial(self._release, table, rows))

    def ask_at(self, when: float, question: Question) -> None:
        """A question comes then."""
        self._time.at(when, partial(self._ask, question))

    def run(self, until: float = inf) -> None:
        """Let it all happen."""
        self._time.run(self._places.fill, until)

    def _release(self, table: str, rows: int) -> None:
        board = self.board
        release = board.release(table, board.horizon + 1, board.horizon + rows, rows, self.now)
        self.policy.released(board.feeds[table], release, board, self.now)

    def _ask(self, question: Question) -> None:
        self.board.ask(question)
        self.policy.asked(question, self.board, self.now)
        if question.deadline != inf:
            self._time.at(question.deadline, partial(self._tardy, question))

    def _tardy(self, question: Question) -> None:
        running = next(
            (task for task in self.board.running if isinstance(task, Answer) and task.question is question), None
        )
        if running is not None:
            self._end(running, aborted=True)
        elif question in self.board.waiting:
            self.board.withdraw(question)
        else:
            return
        self.missed.append(question)
        self.policy.withdrawn(question, self.board, self.now)

    def _begin(self, task: Task, now: float) -> None:
        self.board.begin(task, now)
        if isinstance(task, Answer):
            self.board.pinned(task.question)
            took_s = self._answer_s(task.question)
        else:
            took_s = self._load_s(task, self.board)
        self._time.at(now + took_s, partial(self._end, task, took_s))

    def _end(self, task: Task, took_s: float = 0.0, *, aborted: bool = False) -> None:
        if task not in self.board.running:  # it was aborted
            return
        self.board.end(task, self.now)
        self._places.ended(task)
        if aborted:
            return
        if isinstance(task, Answer):
            self.answered.append((task.question, self.now))
        else:
            self.board.feeds[task.table].cost.learn(sum(release.rows for release in task.batch), took_s)
        self.policy.ended(task, took_s, self.board, self.now)
