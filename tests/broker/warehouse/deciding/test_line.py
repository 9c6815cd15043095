"""The line against its plain definition, which looks at everything each time; and what a decision costs."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hullcast.broker.scheduling.policy import FairShare, Item
from hullcast.broker.warehouse.deciding import turns as line_module
from hullcast.broker.warehouse.deciding.board import Answer, Board, Question
from hullcast.broker.warehouse.deciding.policies import POLICIES
from hullcast.broker.warehouse.deciding.turns import AHEAD, AHEAD_OF_ONE, PATIENCE_S, QuestionLine, Turns

#: Few, so that owners and the board are full often.
FEW, FEW_OF_ONE = 5, 2


class LineMachine(RuleBasedStateMachine):
    """Questions come, come forward, leave the board and are withdrawn; owners are served."""

    def __init__(self) -> None:
        super().__init__()
        self.shares = FairShare()
        self.line = QuestionLine(self.shares)
        self.behind: list[Question] = []
        self.ahead: list[Question] = []
        self.now = 0.0
        self.number = 0

    @rule(
        owner=st.sampled_from("abcd"),
        priority=st.integers(0, 1),
        deadline=st.just(inf) | st.integers(0, 3).map(float),
        later=st.booleans(),
    )
    def come(self, owner: str, priority: int, deadline: float, later: bool) -> None:
        self.now += later
        self.number += 1
        question = Question(self.number, owner, (), self.now, self.now + 4 * deadline, priority)
        self.behind.append(question)
        self.line.add(question)

    @rule(owner=st.sampled_from("abcd"), seconds=st.integers(0, 2))
    def serve(self, owner: str, seconds: int) -> None:
        self.shares.served(Item(owner, self.now), float(seconds), self.now)
        self.line.rank(owner)

    @precondition(lambda self: self.behind)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        question = data.draw(st.sampled_from(self.behind))
        self.behind.remove(question)
        assert self.line.remove(question)
        assert not self.line.remove(question)

    @precondition(lambda self: self.ahead)
    @rule(data=st.data())
    def leave_board(self, data: st.DataObject) -> None:
        self.ahead.remove(data.draw(st.sampled_from(self.ahead)))

    @rule()
    def come_forward(self) -> None:
        with pytest.MonkeyPatch.context() as few:
            few.setattr(line_module, "AHEAD", FEW)
            few.setattr(line_module, "AHEAD_OF_ONE", FEW_OF_ONE)
            for found in self.line.forward(self.ahead):
                assert _rank(found) == min(_rank(one) for one in self.behind if one.owner == found.owner)
                mine = self._may()
                assert found.owner in mine
                least = min(self.shares.given(owner, self.now) for owner in mine)
                assert self.shares.given(found.owner, self.now) == pytest.approx(least)
                self.behind.remove(found)
                self.ahead.append(found)
        assert len(self.ahead) >= FEW or not self._may(), "nobody waits for nothing"

    def _may(self) -> set[str]:
        counts = Counter(question.owner for question in self.ahead)
        return {question.owner for question in self.behind if counts[question.owner] < FEW_OF_ONE}

    @invariant()
    def as_many_wait(self) -> None:
        assert len(self.line) == len(self.behind)


def _rank(question: Question) -> tuple[int, float]:
    return -question.priority, question.deadline if question.deadline < inf else question.arrived + PATIENCE_S


TestLine = LineMachine.TestCase
TestLine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_decision_costs_no_more_if_very_many_wait(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a decision looks at is how often it asks whether a question is ready, and the entries of rankings."""
    looks, is_ready = list[Question](), Board.ready

    def ready(self: Board, question: Question) -> bool:
        looks.append(question)
        return is_ready(self, question)

    monkeypatch.setattr(Board, "ready", ready)
    found = []
    for waiting in (200, 1_000, 4_000):
        board = Board(2)
        turns = Turns(board, POLICIES[policy]())
        looks.clear()
        for number in range(waiting):
            turns.ask(Question(number, f"owner {number % 20}", (), float(number), freshness=0.5))
        steps = 0
        for now in range(50):
            turns.come_forward(10_000.0 + now)
            task: Any = turns.next([], 10_000.0 + now)
            assert isinstance(task, Answer)
            board.begin(task, 10_000.0 + now)
            board.end(task, 10_000.5 + now)
            turns.served(task.question.owner, 0.5, 10_000.5 + now)
            steps = turns.line._turns.steps - waiting
        assert len(board.waiting) <= AHEAD
        assert turns.waiting == waiting - 50
        found.append((len(looks), steps))
    assert max(looked for looked, _ in found) <= 1.2 * min(looked for looked, _ in found)
    assert max(steps for _, steps in found) <= 50 * 40


def test_an_owner_that_floods_leaves_room_to_others() -> None:
    board = Board(2)
    turns = Turns(board, POLICIES["fifo"]())
    for number in range(1_000):
        turns.ask(Question(number, "greedy", (), float(number)))
    turns.come_forward(1_000.0)
    assert len(board.waiting) == AHEAD_OF_ONE
    modest = Question(1_000, "modest", (), 1_000.0)
    turns.ask(modest)
    turns.come_forward(1_000.0)
    assert modest in board.waiting
    turns.withdraw(modest, 1_001.0)
    assert modest not in board.waiting
