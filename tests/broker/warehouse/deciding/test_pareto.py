"""Pareto: no schedule is better in one objective and not worse in the other; at the ends it is a pure policy."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from hullcast.broker.warehouse.deciding.board import Answer, Board, Feed, Load, Question
from hullcast.broker.warehouse.deciding.policies import POLICIES, pareto
from hullcast.broker.warehouse.deciding.policies.pareto import Pareto, positioned, turn
from hullcast.broker.warehouse.deciding.policies.policy import WarehousePolicy, first_toward, oldest_load
from hullcast.sim.experiments.studies.scheduling.simulated import SimulatedWarehouse
from hullcast.sim.experiments.studies.scheduling.tradeoff.shipped import MeasuredPareto

if TYPE_CHECKING:
    import pytest

    from hullcast.broker.warehouse.deciding.board import Task

TABLES = ("A", "B", "C")
QOS = st.sampled_from([0.0, 0.25, 0.5, 1.0])
UPDATES = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.lists(st.booleans(), min_size=3, max_size=3)), max_size=3
)
Update = tuple[int, int, list[bool]]  # cost, profit, which of the questions depend on it


def planned(policy: Pareto, board: Board) -> list[str | int]:
    """What it would do if nothing else happened: tables to load and numbers of questions, in order."""
    policy._look(board)
    left = sorted(board.waiting_feeds(), key=lambda feed: feed.pending[0].at)
    found: list[str | int] = []
    for place, question in zip(range(len(policy._order), 0, -1), policy._order, strict=True):
        found += [feed.name for feed in left if policy._due(feed) >= place]
        left = [feed for feed in left if policy._due(feed) < place]
        found.append(question.number)
    return found + [feed.name for feed in left]


def objectives(sequence: list[int], updates: list[Update]) -> tuple[int, int]:
    """What an order comes to by the definitions: summed response times (a question takes 1), and profit. Negative
    numbers are updates."""
    now = waited = profit = question = 0
    applied: list[Update] = []
    for each in sequence:
        if each < 0:
            applied.append(updates[-each - 1])
            now += updates[-each - 1][0]
        else:
            now += 1
            waited += now
            profit += sum(update[1] for update in applied if update[2][question])
            question += 1
    return waited, profit


def every_schedule(questions: int, updates: list[Update]) -> set[tuple[int, int]]:
    """What all orders come to that keep the order of questions."""
    signs = [0] * questions + [-1 - each for each in range(len(updates))]
    return {objectives(list(order), updates) for order in set(permutations(signs))}


@given(st.lists(QOS, min_size=1, max_size=3), UPDATES)
def test_no_schedule_is_better_in_one_objective_and_not_worse_in_the_other(
    qos: list[float], updates: list[Update]
) -> None:
    count = len(qos)
    depends = np.array([row[:count] for _, _, row in updates], dtype=bool).reshape(len(updates), count)
    costs, profits = (np.array([each[at] for each in updates], dtype=np.int64) for at in (0, 1))
    plan = positioned(depends, costs, profits, np.array(qos))
    sequence: list[int] = []
    for place in range(count, -1, -1):
        sequence += [-1 - each for each in range(len(updates)) if plan.place[each] == place]
        sequence += [0] * (place > 0)
    waited, profit = objectives(sequence, updates)
    others = every_schedule(count, updates)
    assert (waited, profit) in others
    quickest = min(waited for waited, _ in others)
    assert waited <= quickest + plan.slot
    assert profit == max(profit for waited, profit in others if waited <= quickest + plan.slot)
    if any(qos):
        assert not [each for each in others if each[0] < waited and each[1] >= profit]
    else:  # updates first: nothing has more profit, but loads that no question depends on come first too
        assert plan.place.tolist() == [count] * len(updates)
    if all(each == 1.0 for each in qos):
        assert plan.place.tolist() == [0] * len(updates)


def test_what_a_question_cannot_do_without_is_paid_first() -> None:
    depends = np.array([[True, True], [True, True]])
    costs, profits = np.array([4, 1]), np.array([1, 1])
    least = np.array([1, 0])  # the last question needs the first update
    plan = positioned(depends, costs, profits, np.array([0.0, 1.0]), least)
    assert plan.slot == 5
    assert plan.place.tolist() == [1, 1]


class _QueriesInTurn(WarehousePolicy):
    """Queries first, in the order that Pareto has for them."""

    name: ClassVar[str] = "queries in turn"

    def next(self, board: Board, now: float) -> Task | None:
        return first_toward(sorted(board.waiting, key=turn), board) or (None if board.waiting else oldest_load(board))


class _UpdatesInTurn(WarehousePolicy):
    name: ClassVar[str] = "updates in turn"

    def next(self, board: Board, now: float) -> Task | None:
        return oldest_load(board) or first_toward(sorted(board.waiting, key=turn), board)


class _Traced(SimulatedWarehouse):
    """Writes down what begins, and when."""

    def __init__(self, policy: WarehousePolicy, places: int) -> None:
        feeds = [Feed(name, weight=1.0 + at) for at, name in enumerate(TABLES)]
        super().__init__(policy, places, feeds=feeds, load_s=lambda load, board: float(1 + len(load.batch)))
        self.trace: list[tuple[float, str, int]] = []

    def _begin(self, task: Task, now: float) -> None:
        told = ("answer", task.question.number) if isinstance(task, Answer) else (task.table, task.through)
        self.trace.append((now, *told))
        super()._begin(task, now)


MOMENTS = st.integers(0, 9).map(float)
RELEASED = st.lists(st.tuples(MOMENTS, st.sampled_from(TABLES), st.integers(1, 3)), max_size=10)
READ = st.lists(st.sampled_from(TABLES), min_size=1, max_size=3, unique=True)
ASKED = st.lists(st.tuples(MOMENTS, READ, st.integers(1, 3).map(float), st.integers(0, 1)), max_size=8)


@given(RELEASED, ASKED, st.sampled_from([0.0, 1.0]), st.integers(1, 3), st.booleans())
def test_at_the_ends_it_does_exactly_what_the_pure_policies_do(
    releases: list[tuple[float, str, int]],
    asked: list[tuple[float, list[str], float, int]],
    freshness: float,
    places: int,
    alike: bool,
) -> None:
    traces = []
    pure = ("updates-first" if freshness else "queries-first") if alike else ""
    ordered = _UpdatesInTurn() if freshness else _QueriesInTurn()
    for policy in (Pareto(), POLICIES[pure]() if pure else ordered):
        warehouse = _Traced(policy, places)
        for when, table, rows in releases:
            warehouse.release_at(when, table, rows)
        for number, (when, tables, takes, priority) in enumerate(sorted(asked, key=lambda each: each[0])):
            question = Question(number, "desk", tuple(tables), when, priority=priority, freshness=freshness)
            question.expected_s = 1.0 if alike else takes
            warehouse.ask_at(when, question)
        warehouse.run()
        traces.append(warehouse.trace)
    assert traces[0] == traces[1]


def test_with_no_preference_for_short_waits_a_table_that_nobody_reads_is_loaded_first_too() -> None:
    board, policy = Board(), Pareto()
    for name in TABLES:
        board.add(Feed(name))
    question = Question(0, "desk", ("A",), 0.0, freshness=1.0, expected_s=1.0)
    board.ask(question)
    policy.asked(question, board, 0.0)
    assert planned(policy, board) == [0]
    policy.released(board.feeds["C"], board.release("C", 1, 2, 2, 0.0), board, 0.0)
    assert planned(policy, board) == ["C", 0]


class _Rescheduling(RuleBasedStateMachine):
    """A plan that was kept is the old one with what came or went; a plan that was made is that of a new policy."""

    @initialize()
    def begin(self) -> None:
        self.board, self.policy = Board(), Pareto()
        self.now, self.number = 0.0, 0
        for at, name in enumerate(TABLES):
            self.board.add(Feed(name, weight=1.0 + at))

    @rule(table=st.sampled_from(TABLES), rows=st.integers(1, 500))
    def release(self, table: str, rows: int) -> None:
        before = self._plan()
        board, feed = self.board, self.board.feeds[table]
        release = board.release(table, board.horizon + 1, board.horizon + rows, rows, self.now)
        self.policy.released(feed, release, board, self.now)
        self._compare(before, {table})

    @rule(tables=READ, freshness=st.sampled_from([0.0, 0.5, 1.0]), takes=st.integers(1, 3), priority=st.integers(0, 1))
    def ask(self, tables: list[str], freshness: float, takes: int, priority: int) -> None:
        before = self._plan()
        question = Question(self.number, "desk", tuple(tables), self.now, priority=priority, freshness=freshness)
        question.expected_s = takes / 10
        self.number += 1
        self.board.ask(question)
        self.policy.asked(question, self.board, self.now)
        self._compare(before, {question.number})

    @precondition(lambda self: self.board.waiting)
    @rule(which=st.integers(0, 20))
    def withdraw(self, which: int) -> None:
        before = self._plan()
        question = self.board.waiting[which % len(self.board.waiting)]
        self.board.withdraw(question)
        self.policy.withdrawn(question, self.board, self.now)
        self._compare(before, {question.number})

    @rule()
    def go_on(self) -> None:
        before = self._plan()
        task = self.policy.next(self.board, self.now)
        again = Pareto().next(self.board, self.now)
        if self.fresh:
            assert (type(task), _told(task)) == (type(again), _told(again))
        if task is None:
            return
        self.board.begin(task, self.now)
        gone = _told(task)
        if isinstance(task, Answer):
            self.board.pinned(task.question)
            assert before[0] == gone
        self._compare(before, {gone})
        self.now += 1.0
        self.board.end(task, self.now)
        self.policy.ended(task, 1.0, self.board, self.now)

    def _plan(self) -> list[str | int]:
        plan = planned(self.policy, self.board)
        self.made = self.policy.counters()["plans made"]
        self.fresh = plan == planned(Pareto(), self.board)
        return plan

    def _compare(self, before: list[str | int], changed: set[str | int]) -> None:
        after = planned(self.policy, self.board)
        if self.policy.counters()["plans made"] > self.made:
            assert after == planned(Pareto(), self.board)
        else:
            assert [each for each in after if each not in changed] == [each for each in before if each not in changed]


def _told(task: Task | None) -> str | int:
    if task is None:
        return "nothing"
    return task.question.number if isinstance(task, Answer) else task.table


TestRescheduling = _Rescheduling.TestCase
TestRescheduling.settings = settings(max_examples=30, stateful_step_count=30)


def test_what_touches_no_dependency_keeps_the_plan() -> None:
    board, policy = Board(), Pareto()
    for name in TABLES:
        board.add(Feed(name))
    policy.released(board.feeds["A"], board.release("A", 1, 9, 9, 0.0), board, 0.0)
    for number, freshness in enumerate((0.2, 0.9)):
        question = Question(number, "desk", ("A",), 0.0, freshness=freshness, expected_s=1.0)
        board.ask(question)
        policy.asked(question, board, 0.0)
    assert planned(policy, board) == [0, "A", 1]
    made = policy.counters()["plans made"]
    stranger = Question(2, "desk", ("B",), 0.0, freshness=0.5, expected_s=0.1)
    board.ask(stranger)
    policy.asked(stranger, board, 0.0)
    policy.released(board.feeds["C"], board.release("C", 10, 11, 2, 0.0), board, 0.0)
    assert planned(policy, board) == [2, 0, "A", 1, "C"]
    assert policy.counters()["plans made"] == made
    policy.released(board.feeds["B"], board.release("B", 12, 12, 1, 0.0), board, 0.0)
    planned(policy, board)
    assert policy.counters()["plans made"] == made + 1


def test_a_huge_board_is_planned_in_part_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pareto, "MOST_QUESTIONS", 2)
    monkeypatch.setattr(pareto, "MOST_UPDATES", 2)
    policy = Pareto()
    warehouse = _Traced(policy, 1)
    for table in TABLES:
        warehouse.release_at(0.0, table, 5)
    for number in range(6):
        freshness = 0.2 + 0.1 * number
        warehouse.ask_at(0.0, Question(number, "desk", TABLES, 0.0, freshness=freshness, expected_s=1.0))
    warehouse.run()
    assert len(warehouse.answered) == 6
    assert not any(feed.pending for feed in warehouse.board.feeds.values())
    assert policy.counters()["plans of a part of what waits"] > 0


def test_moves_are_measured() -> None:
    policy, board = MeasuredPareto(), Board()
    board.add(Feed("A"))
    policy.released(board.feeds["A"], board.release("A", 1, 9, 9, 0.0), board, 0.0)
    for number, freshness in enumerate((0.0, 1.0)):
        question = Question(number, "desk", ("A",), 0.0, freshness=freshness, expected_s=1.0)
        board.ask(question)
        policy.asked(question, board, 0.0)
        planned(policy, board)
    assert [how_far for _, how_far in policy.distances] == [1.0]
    task = policy.next(board, 0.0)
    assert isinstance(task, Answer), (
        "the slot of half has no room for both, and the second needs the load only before it"
    )
    board.begin(task, 0.0)
    board.end(task, 1.0)
    assert isinstance(policy.next(board, 1.0), Load)
