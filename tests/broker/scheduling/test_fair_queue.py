"""The queue of one-time queries against its plain definition, which looks at everything each time."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hullcast.broker.scheduling.fair_queue import FairQueue, Measure, Queued
from hullcast.broker.scheduling.policy import FairShare
from hullcast.broker.scheduling.ranking import OUTDATED, Ranking
from hullcast.network.wire.errors import InvariantBroken

AT_ONCE = 2
#: FairShare halves what was given in so many seconds: on this grid ties are exact.
HALF_LIFE_S = 10.0


class PlainQueue:
    """What waits, what is served, and every question answered by a look at all of it."""

    def __init__(self) -> None:
        self.waiting: list[Queued] = []
        self.served: list[Queued] = []
        self.shares = FairShare(HALF_LIFE_S)

    def next(self, now: float) -> Queued | None:
        owners = Counter(item.owner for item in self.served)
        may = [item for item in self.waiting if owners[item.owner] < AT_ONCE]
        found = self.shares.pick(may, now) if may else None
        assert found is None or isinstance(found, Queued)
        return found

    def weight(self, owner: str, measure: Measure) -> int:
        mine = [item for item in self.waiting if item.owner == owner]
        return len(mine) if measure == "items" else sum(item.size_bytes for item in mine)

    def most(self, measure: Measure) -> str | None:
        owners = dict.fromkeys(item.owner for item in self.waiting)
        return max(owners, key=lambda owner: self.weight(owner, measure), default=None)


class QueueMachine(RuleBasedStateMachine):
    """Items come, are served, end and are given up; both queues say the same after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[Queued] = FairQueue(AT_ONCE)
        self.plain = PlainQueue()
        self.now = 0.0

    @rule(
        owner=st.sampled_from("abcde"),
        size=st.integers(0, 3),
        deadline=st.none() | st.integers(0, 5),
        later=st.booleans(),
    )
    def comes(self, owner: str, size: int, deadline: int | None, later: bool) -> None:
        self.now += HALF_LIFE_S if later else 0.0
        item = Queued(owner, self.now, size, None if deadline is None else float(deadline))
        self.queue.add(item)
        self.plain.waiting.append(item)

    @precondition(lambda self: self.plain.next(self.now) is not None)
    @rule()
    def is_served(self) -> None:
        item = self.queue.next()
        assert item is not None
        self.queue.begin(item)
        self.plain.waiting.remove(item)
        self.plain.served.append(item)

    @precondition(lambda self: self.plain.served)
    @rule(which=st.integers(0, 99), seconds=st.sampled_from([0.0, 0.5, 1.0, 2.0]))
    def ends(self, which: int, seconds: float) -> None:
        item = self.plain.served.pop(which % len(self.plain.served))
        self.queue.end(item, seconds, self.now)
        self.plain.shares.served(item, seconds, self.now)

    @precondition(lambda self: self.plain.waiting)
    @rule(which=st.integers(0, 99))
    def is_given_up(self, which: int) -> None:
        item = self.plain.waiting.pop(which % len(self.plain.waiting))
        self.queue.remove(item)

    @invariant()
    def they_say_the_same(self) -> None:
        queue, plain = self.queue, self.plain
        queue.check()
        assert queue.next() is plain.next(self.now)
        assert set(queue) == set(plain.waiting)
        assert (len(queue), queue.serving) == (len(plain.waiting), len(plain.served))
        assert queue.held_bytes == sum(item.size_bytes for item in (*plain.waiting, *plain.served))
        for measure in ("items", "bytes"):
            most = queue.most(measure)
            assert most == plain.most(measure)
            if most is not None:
                assert queue.latest_of(most) is [item for item in plain.waiting if item.owner == most][-1]
        for owner in "abcde":
            held = [item for item in (*plain.waiting, *plain.served) if item.owner == owner]
            assert queue.holds(owner) == bool(held)
            assert queue.held_by(owner) == sum(item.size_bytes for item in held)
            assert queue.waiting_of(owner) == plain.weight(owner, "items")
            assert queue.waiting_of(owner, "bytes") == plain.weight(owner, "bytes")


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def steps_with(waiting: int, owners: int) -> float:
    """Steps per query that comes and is served, while so many wait."""
    queue: FairQueue[Queued] = FairQueue(AT_ONCE)
    for i in range(waiting):
        queue.add(Queued(str(i % owners), float(i), i % 7, float(i % 13)))
    before, rounds = queue.steps, 2000
    for i in range(rounds):
        queue.add(Queued(str(i % owners), float(waiting + i), i % 7, float(i % 13)))
        queue.most("items"), queue.most("bytes")
        item = queue.next()
        assert item is not None
        queue.begin(item)
        queue.end(item, 0.001 * (i % 5), float(waiting + i))
    return (queue.steps - before) / rounds


@pytest.mark.parametrize("owners", [1, 5, 1000])
def test_what_one_query_costs_does_not_grow_with_those_that_wait(owners: int) -> None:
    assert steps_with(10_000, owners) < 3 * steps_with(100, min(owners, 100)) + 10


def test_when_owners_are_forgotten_turns_are_those_of_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FairShare, "MOST_OWNERS", 4)
    queue: FairQueue[Queued] = FairQueue(AT_ONCE)
    for i in range(12):
        items = [Queued(f"owner {i}", 0.0, 1, None) for _ in range(2)]
        for item in items:
            queue.add(item)
        queue.begin(items[0])
        queue.end(items[0], 1.0 + i, 0.0)
        queue.check()


def test_a_ranking_of_keys_that_change_often_stays_small() -> None:
    ranking: Ranking[str] = Ranking()
    for i in range(10_000):
        ranking.set("abc"[i % 3], -i)
    ranking.check()
    assert ranking.first() == "abc"[9999 % 3]
    assert len(ranking._heap) <= 2 * 3 + OUTDATED
    ranking.drop("abc"[9999 % 3])
    assert ranking.first() == "abc"[9998 % 3]


def test_a_queue_that_counts_wrongly_is_found_out() -> None:
    queue: FairQueue[Queued] = FairQueue(AT_ONCE)
    queue.add(Queued("a", 0.0, 1, 1.0))
    queue.check()
    queue.held_bytes += 1
    with pytest.raises(InvariantBroken, match="Q1"):
        queue.check()
    queue.held_bytes -= 1
    queue._turns.set("a", (5.0, 5))
    with pytest.raises(InvariantBroken, match="Q2"):
        queue.check()
