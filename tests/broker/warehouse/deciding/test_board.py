"""The board under every policy, by a simulated clock: nothing is lost, and questions see what they were promised."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.warehouse.deciding.board import (
    GATHERED,
    MOST_GATHERED_S,
    Answer,
    Board,
    Feed,
    Load,
    LoadCost,
    Question,
)
from hullcast.broker.warehouse.deciding.policies import POLICIES
from hullcast.sim.experiments.studies.scheduling.simulated import SimulatedWarehouse

if TYPE_CHECKING:
    from hullcast.broker.warehouse.deciding.board import Task
    from hullcast.broker.warehouse.deciding.policies.policy import WarehousePolicy

TABLES = ("A", "B", "C")
MOMENTS = st.integers(0, 12).map(float)
RELEASES = st.lists(st.tuples(MOMENTS, st.sampled_from(TABLES), st.integers(1, 3)), max_size=12)
QUESTIONS = st.lists(
    st.tuples(
        MOMENTS,
        st.lists(st.sampled_from(TABLES), min_size=1, max_size=3, unique=True),
        st.sampled_from([0.0, 0.5, 1.0]),
        st.booleans(),
        st.sampled_from([inf, 1.0, 4.0]),
        st.integers(0, 2),
    ),
    max_size=8,
)


class _Seen(SimulatedWarehouse):
    """Keeps what is in each file, by sequence numbers, and looks at it when a question begins."""

    def __init__(self, policy: WarehousePolicy, places: int) -> None:
        feeds = [Feed(name, weight=1.0 + place) for place, name in enumerate(TABLES)]
        super().__init__(policy, places, feeds=feeds, load_s=lambda load, board: float(1 + len(load.batch)))
        self.updates: dict[str, list[int]] = {table: [] for table in TABLES}
        self.files: dict[str, int] = dict.fromkeys(TABLES, 0)

    def _release(self, table: str, rows: int) -> None:
        first = self.board.horizon + 1
        self.updates[table] += range(first, first + rows)
        super()._release(table, rows)

    def _begin(self, task: Task, now: float) -> None:
        super()._begin(task, now)
        if isinstance(task, Answer):
            self._look(task.question)

    def _look(self, question: Question) -> None:
        if question.needs_all:
            for table in question.tables:
                assert not [seq for seq in self.updates[table] if self.files[table] < seq <= question.seq]
        if question.needs_common:
            said = self.board.common(question.tables)
            assert said is not None
            for table in question.tables:
                low, high = sorted((said, self.files[table]))
                assert not [seq for seq in self.updates[table] if low < seq <= high]

    def _end(self, task: Task, took_s: float = 0.0, *, aborted: bool = False) -> None:
        if isinstance(task, Load) and task in self.board.running:
            assert task.through >= self.files[task.table], "a file goes forward only"
            self.files[task.table] = task.through
        super()._end(task, took_s, aborted=aborted)


@pytest.mark.parametrize("name", POLICIES)
@given(releases=RELEASES, questions=QUESTIONS, places=st.integers(1, 3))
def test_every_update_is_loaded_and_every_question_ends(
    name: str,
    releases: list[tuple[float, str, int]],
    questions: list[tuple[float, list[str], float, bool, float, int]],
    places: int,
) -> None:
    warehouse = _Seen(POLICIES[name](), places)
    for when, table, rows in releases:
        warehouse.release_at(when, table, rows)
    for number, (when, tables, freshness, consistent, within, priority) in enumerate(questions):
        warehouse.ask_at(
            when,
            Question(
                number, "desk", tuple(tables), when, when + within, priority, freshness, consistent, expected_s=1.0
            ),
        )
    warehouse.run()
    board = warehouse.board
    assert not board.waiting
    assert not board.running
    for table, feed in board.feeds.items():
        assert not feed.pending
        assert feed.loaded_rows == len(warehouse.updates[table])
        assert feed.loaded >= max(warehouse.updates[table], default=0)
        assert board.valid_until(feed) == board.horizon
    ended = [question.number for question, _ in warehouse.answered] + [each.number for each in warehouse.missed]
    assert sorted(ended) == list(range(len(questions)))
    assert all(now <= question.deadline for question, now in warehouse.answered)


def test_a_question_of_two_tables_holds_them_at_one_moment_until_it_reads() -> None:
    warehouse = SimulatedWarehouse(POLICIES["queries-first"](), places=2, feeds=[Feed("A"), Feed("B")])
    board = warehouse.board
    board.release("A", 1, 1, 1, 0.0)
    board.release("B", 2, 2, 1, 0.0)
    question = Question(0, "desk", ("A", "B"), 0.0)
    board.ask(question)
    assert not board.ready(question)
    first, second = board.missing(question)
    board.begin(first, 0.0)
    board.release("A", 3, 3, 1, 0.5)
    board.end(first, 1.0)
    assert board.reach(board.feeds["A"]) == 2
    assert not [feed for feed in board.loadable() if feed.name == "A"]
    board.begin(second, 1.0)
    board.end(second, 2.0)
    assert board.ready(question)
    assert board.common(("A", "B")) == 2
    board.begin(Answer(question), 2.0)
    board.pinned(question)
    assert [feed.name for feed in board.loadable()] == ["A"]


def test_a_load_that_was_not_done_leaves_its_updates_waiting() -> None:
    warehouse = SimulatedWarehouse(POLICIES["fifo"](), feeds=[Feed("A")])
    board = warehouse.board
    board.release("A", 1, 4, 4, 1.0)
    load = board.load(board.feeds["A"])
    board.begin(load, 2.0)
    board.end(load, 3.0, done=False)
    assert board.feeds["A"].pending_rows == 4
    assert board.feeds["A"].loaded == 0
    assert board.loadable() == [board.feeds["A"]]


def test_very_many_releases_are_made_one_and_can_still_be_loaded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hullcast.broker.warehouse.deciding.board.MOST_PENDING", 2)
    warehouse = SimulatedWarehouse(POLICIES["fifo"](), feeds=[Feed("A"), Feed("B")])
    board = warehouse.board
    for seq in range(1, 6):
        board.release("A", seq, seq, 1, float(seq))
    feed = board.feeds["A"]
    assert [(each.first, each.through, each.rows) for each in feed.pending] == [(1, 1, 1), (2, 5, 4)]
    board.feeds["B"].loaded = board.feeds["B"].version = 3
    question = Question(0, "desk", ("A", "B"), 5.0, freshness=0.0, consistent=True)
    board.ask(question)
    (load,) = board.missing(question)
    assert load.through == 3
    board.begin(load, 5.0)
    board.end(load, 6.0)
    assert board.common(("A", "B")) == 3
    assert board.ready(question)


def test_a_release_that_comes_while_very_many_are_loaded_waits_for_the_next_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hullcast.broker.warehouse.deciding.board.MOST_PENDING", 2)
    board = Board()
    board.add(feed := Feed("A"))
    board.release("A", 1, 1, 1, 1.0)
    board.release("A", 2, 2, 1, 2.0)
    board.begin(load := board.load(feed), 2.0)
    for seq in (3, 4):
        board.release("A", seq, seq, 1, float(seq))
    board.end(load, 5.0)
    assert (feed.loaded, feed.loaded_rows) == (2, 2)
    assert [(each.first, each.through, each.rows) for each in feed.pending] == [(3, 4, 2)]
    assert board.valid_until(feed) == 2
    assert not board.ready(Question(0, "desk", ("A",), 5.0, seq=4))


def test_costs_are_learnt() -> None:
    cost = LoadCost()
    for rows in (10, 1000, 50, 400, 2000, 10, 700):
        cost.learn(rows, 0.01 + rows * 1e-4)
    fixed_s, row_s = cost.fitted
    assert fixed_s == pytest.approx(0.01)
    assert row_s == pytest.approx(1e-4)
    cost = LoadCost()
    cost.learn(100, 0.5)
    assert cost.of(100) == pytest.approx(0.5)
    assert cost.of(0) >= 0


def test_updates_wait_for_others_if_nobody_waits_for_them() -> None:
    board = Board()
    board.add(feed := Feed("A"))
    board.add(Feed("B", period_s=60.0))
    feed.cost = LoadCost(fixed_s=0.001, row_s=0.0)
    assert board.gather(1.0) == inf
    for table in ("A", "B"):
        board.release(table, board.horizon + 1, board.horizon + 1, 1, 1.0)
    assert board.gather(1.0) == 1.0 + GATHERED * 0.001
    assert [feed.name for feed in board.loadable()] == ["B"]  # it has a period
    board.release("A", 3, 3, 1, 1.04)  # they wait from the first on
    assert board.gather(1.04) == 1.0 + GATHERED * 0.001
    board.ask(question := Question(1, "me", ("A",), 1.04))
    assert board.gather(1.04) == inf
    assert {feed.name for feed in board.loadable()} == {"A", "B"}
    board.withdraw(question)
    assert board.gather(1.0 + GATHERED * 0.001) == inf
    assert {feed.name for feed in board.loadable()} == {"A", "B"}
    feed.cost = LoadCost(fixed_s=1.0)  # however long a load takes, not for longer than this
    assert board.gather(1.04) == 1.0 + MOST_GATHERED_S
    assert board.gather(1.0 + MOST_GATHERED_S) == inf


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_what_a_question_needs_is_loaded_though_its_updates_wait_for_others(name: str) -> None:
    board, policy = Board(2), POLICIES[name]()
    board.add(Feed("A"))
    board.release("A", 1, 1, 1, 1.0)
    assert board.gather(1.0) < inf
    assert policy.next(board, 1.0) is None
    board.ask(Question(1, "me", ("A",), 1.0))
    task = policy.next(board, 1.0)
    assert isinstance(task, Load)
    assert task.table == "A"


def test_a_load_whose_worker_died_after_it_was_done_counts_as_done() -> None:
    board = Board()
    board.add(Feed("A"))
    board.release("A", 1, 3, 3, 1.0)
    load = board.load(board.feeds["A"])
    board.begin(load, 2.0)
    board.release("A", 4, 5, 2, 3.0)
    board.end(load, 4.0, done=False)
    board.found("A", 3, 2, 4.0)
    feed = board.feeds["A"]
    assert (feed.loaded, feed.version, feed.loads, feed.loaded_rows, feed.pending_rows) == (3, 2, 1, 3, 2)
    assert feed.lag(5.0) == 2.0
    board.found("A", 0, 0, 5.0)
    assert (feed.loaded, feed.version) == (3, 2)
