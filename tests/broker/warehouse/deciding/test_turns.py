"""Turns: whatever a policy wants, neither loads nor queries, nor one owner, have all places."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest

from hullcast.broker.warehouse.deciding.board import Answer, Board, Feed, Load, Question, Task
from hullcast.broker.warehouse.deciding.policies import POLICIES
from hullcast.broker.warehouse.deciding.policies.policy import WarehousePolicy
from hullcast.broker.warehouse.deciding.turns import Turns
from hullcast.broker.warehouse.process.answering import with_worth
from hullcast.network.wire import bodies
from hullcast.network.wire.value_columns import Mixed

TABLES = tuple("ABCDEFGH")


def crowded(places: int, policy: str) -> tuple[Board, Turns]:
    """Each table has updates to load, and one owner asks far more than another."""
    board = Board(places)
    for name in TABLES:
        board.add(Feed(name))
        board.release(name, board.horizon + 1, board.horizon + 1, 1, 0.5)
    for number in range(20):
        board.ask(Question(number, "greedy" if number else "modest", (), 1.0 + number, freshness=0.0))
    return board, Turns(board, POLICIES[policy]())


def filled(board: Board, turns: Turns) -> list[Task]:
    running: list[Task] = []
    while len(running) < board.places and (task := turns.next(running, 2.0)) is not None:
        running.append(task)
        assert isinstance(task, Load | Answer)
        board.begin(task, 2.0)
    return running


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("places", [2, 3, 4, 8])
def test_no_kind_of_work_has_all_places(policy: str, places: int) -> None:
    board, turns = crowded(places, policy)
    running = filled(board, turns)
    loads = sum(isinstance(task, Load) for task in running)
    owners = Counter(task.question.owner for task in running if isinstance(task, Answer))
    assert loads < places
    assert owners.total() < places
    assert owners["greedy"] <= max(1, places - 2)


@pytest.mark.parametrize("policy", POLICIES)
def test_with_one_place_for_queries_owners_take_turns(policy: str) -> None:
    board = Board(2)
    turns = Turns(board, POLICIES[policy]())
    for number in range(10):
        board.ask(Question(number, "greedy", (), float(number), priority=9))
    board.ask(Question(10, "modest", (), 10.0))
    board.ask(Question(11, "modest", (), 11.0))
    served = []
    for now in range(20, 24):
        task = turns.next([], float(now))
        assert isinstance(task, Answer)
        board.begin(task, float(now))
        board.end(task, now + 0.9)
        turns.served(task.question.owner, 0.9, now + 0.9)
        served.append(task.question.owner)
    assert sorted(served) == ["greedy", "greedy", "modest", "modest"]


class Faulty(WarehousePolicy):
    name: ClassVar[str] = "faulty"
    about: ClassVar[str] = "fails"

    def next(self, board: Board, now: float) -> Task | None:
        raise ZeroDivisionError


def test_a_policy_that_fails_is_replaced() -> None:
    board, turns = crowded(3, "fifo")
    turns.policy = Faulty()
    assert filled(board, turns)
    assert turns.policy.name == "fifo"


def test_a_worth_is_put_into_what_was_encoded() -> None:
    worth: dict[str, Any] = {"seq": None, "tables": {"T": {"seq": 7, "staleness_s": 0.5, "unapplied": 3}}}
    worth |= {"waited_s": 0.25, "ran_s": 1.0, "deadline_s": None, "met": True, "policy": "fifo"}
    for plain in (bodies.QueryAnswer(("x",), (Mixed((1, None)),)), bodies.QueryPart((Mixed((1, None)),), False)):
        found = bodies.decode(with_worth(bodies.encode(plain), worth))
        assert isinstance(found, bodies.QueryAnswer | bodies.QueryPart)
        assert found.worth == worth
        assert found.columns == plain.columns


@pytest.mark.parametrize("policy", POLICIES)
def test_a_question_of_several_tables_is_answered_while_updates_never_stop(policy: str) -> None:
    board = Board(4)
    turns = Turns(board, POLICIES[policy]())
    for name in "AB":
        board.add(Feed(name))
    running: list[Task] = []
    question = Question(0, "desk", ("A", "B"), 0.0)
    for now in range(40):
        for name in "ABAB":
            board.release(name, board.horizon + 1, board.horizon + 1, 1, float(now))
        if now == 2:
            board.ask(question)
        while len(running) < 4 and (task := turns.next(running, float(now))) is not None:
            assert isinstance(task, Load | Answer)
            running.append(task)
            board.begin(task, float(now))
        if question.began is not None:
            return
        ended = running.pop(0)  # they overlap: there is always one under way
        assert isinstance(ended, Load | Answer)
        board.end(ended, now + 0.5)
    pytest.fail("the question was never answered")
