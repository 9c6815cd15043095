"""The warehouse by a simulated clock: the live board and policies, with costs that the caller gives.

warehouse = SimulatedWarehouse(Myopic(), places=2, load_s=lambda load, board: ..)
warehouse.release_at(3.0, "STOCK", rows=100)
warehouse.ask_at(4.0, Question(..))
warehouse.run()
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from hullcast.broker.warehouse.deciding.board import Answer, Board, Feed, Load
from hullcast.sim.experiments.studies.scheduling.places import SimulatedTime, TaskPlaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hullcast.broker.warehouse.deciding.board import Question, Release, Task
    from hullcast.broker.warehouse.deciding.policies.policy import WarehousePolicy


def learnt_cost(load: Load, board: Board) -> float:
    """What the board expects of a load."""
    return board.feeds[load.table].cost.of(sum(release.rows for release in load.batch))


@dataclass(eq=False, slots=True)
class CountedFeed(Feed):
    """A table of which all is counted that Bateni et al. (2009) speak of. Staleness is the time since the release up to
    which a table is current."""

    penalty: float = 0.0  # sum of squared flow times of batches
    low: float = 0.0  # sum of squared lengths of releases: half of it is the least that staleness can sum up to
    current_at: float = 0.0  # the release up to which it is current
    #: Staleness summed up to the end of the last load (`_summed_at`): at most half of `penalty`, and at least half of
    #: `low` if nothing is pending.
    loaded_staleness: float = 0.0
    _summed_at: float = 0.0

    def total_staleness(self, now: float) -> float:
        """Staleness summed over time, from the beginning to now."""
        before, after = self._summed_at - self.current_at, now - self.current_at
        return self.loaded_staleness + (after * after - before * before) / 2

    def came(self, release: Release) -> None:
        Feed.came(self, release)
        self.low += release.length**2

    def apply(self, load: Load, now: float) -> None:
        if load.batch:
            self.loaded_staleness, self._summed_at = self.total_staleness(now), now
            self.current_at = load.batch[-1].at
            self.penalty += (now - load.batch[0].since) ** 2
        Feed.apply(self, load, now)


def counted(board: Board) -> list[CountedFeed]:
    """The tables of a board."""
    return [feed for feed in board.feeds.values() if isinstance(feed, CountedFeed)]


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
