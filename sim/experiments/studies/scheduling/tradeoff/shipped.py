"""The shipped board and policies on one place, in the paper's workloads. A load takes all updates of its table."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from hullcast.broker.warehouse.deciding.board import Answer, Feed, LoadCost, Question
from hullcast.broker.warehouse.deciding.policies.pareto import Pareto, turn
from hullcast.broker.warehouse.deciding.policies.policy import QueriesFirst, UpdatesFirst, first_toward, oldest_load
from hullcast.sim.experiments.studies.scheduling.simulated import SimulatedWarehouse
from hullcast.sim.traces.tradeoff import TABLES

if TYPE_CHECKING:
    from hullcast.broker.warehouse.deciding.board import Board, Task
    from hullcast.broker.warehouse.deciding.policies.policy import WarehousePolicy
    from hullcast.sim.traces.tradeoff import TradeoffWorkload


class QueriesInTurn(QueriesFirst):
    """Queries first, in the order that Pareto has for them."""

    def next(self, board: Board, now: float) -> Task | None:
        return first_toward(sorted(board.waiting, key=turn), board) or (None if board.waiting else oldest_load(board))


class UpdatesInTurn(UpdatesFirst):
    """Updates first, and then queries in the order that Pareto has for them."""

    def next(self, board: Board, now: float) -> Task | None:
        return oldest_load(board) or first_toward(sorted(board.waiting, key=turn), board)


class MeasuredPareto(Pareto):
    """Pareto, and how far each plan is from the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.distances: list[tuple[float, float]] = []  # when, and how far
        self._now = 0.0

    def next(self, board: Board, now: float) -> Task | None:
        self._now = now
        return super().next(board, now)

    def _plan(self, board: Board) -> None:
        before = self._place
        super()._plan(board)
        if common := before.keys() & self._place.keys():
            moved = sum(abs(before[table] - self._place[table]) for table in common)
            self.distances.append((self._now, moved / len(common)))


POLICIES: dict[str, type[WarehousePolicy]] = {
    "pareto": MeasuredPareto,
    "queries-first": QueriesInTurn,
    "updates-first": UpdatesInTurn,
}


@dataclass(slots=True)
class KnownCost(LoadCost):
    """What a load takes, known beforehand as in the paper: the sum of what its updates take."""

    takes: dict[int, float] = field(default_factory=dict)  # by last sequence number
    feed: Feed | None = None

    def learn(self, rows: int, took_s: float) -> None:
        """There is nothing to learn."""

    def of(self, rows: int) -> float:
        """What all that is pending takes."""
        assert self.feed is not None
        return sum(self.takes[release.through] for release in self.feed.pending)


class FlippingWarehouse(SimulatedWarehouse):
    """One place; who waits asks again when preferences change. Writes down how each answer began."""

    def __init__(self, policy: WarehousePolicy, load: TradeoffWorkload) -> None:
        self.takes: dict[int, float] = {}
        self.qos = 1.0
        self.begun: list[tuple[float, float, float]] = []  # when, response time, freshness
        feeds = [Feed(str(table), cost=KnownCost(self.takes)) for table in range(TABLES)]
        for feed in feeds:
            assert isinstance(feed.cost, KnownCost)
            feed.cost.feed = feed
        super().__init__(
            policy, feeds=feeds, load_s=lambda load, board: sum(self.takes[each.through] for each in load.batch)
        )
        for number_, (when, takes, reads) in enumerate(zip(load.asked, load.takes, load.reads, strict=True)):
            question = Question(number_, "desk", tuple(map(str, reads)), float(when), expected_s=float(takes))
            self.ask_at(float(when), question)
        for when, cost, rows, table in zip(load.released, load.costs, load.rows, load.touches, strict=True):
            self._time.at(float(when), partial(self._known, float(cost), str(table), int(rows)))

    def prefer(self, qos: float) -> None:
        """From now on, also for those that wait."""
        self.qos = qos
        if not isinstance(self.policy, Pareto):
            return  # the others do not ask for preferences, and nothing is loaded on demand
        for question in list(self.board.waiting):
            self.board.withdraw(question)
            self.policy.withdrawn(question, self.board, self.now)
            self._ask(question)

    def prefer_at(self, when: float, qos: float) -> None:
        """Then."""
        self._time.at(when, partial(self.prefer, qos))

    def _known(self, cost: float, table: str, rows: int) -> None:
        self.takes[self.board.horizon + rows] = cost
        self._release(table, rows)

    def _ask(self, question: Question) -> None:
        question.freshness = 1.0 - self.qos if isinstance(self.policy, Pareto) else 0.0
        super()._ask(question)

    def _begin(self, task: Task, now: float) -> None:
        if isinstance(task, Answer):
            unapplied = sum(self.board.feeds[table].pending_rows for table in task.question.tables)
            response = now + task.question.expected_s - task.question.arrived
            self.begun.append((now, response, 1 / (1 + unapplied)))
        super()._begin(task, now)
