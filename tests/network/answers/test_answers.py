"""What messages do to answers: the outbox against a model, sums against fractions, collections against dicts."""

from __future__ import annotations

import math
from collections import deque
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hullcast.network.answers import collection
from hullcast.network.answers.aggregate import (
    AVG,
    COUNT,
    EXACT_SUM,
    SUM,
    AggregateAnswers,
    exact_state,
    first_answers,
    sums_in_boxes,
)
from hullcast.network.answers.audience import Audience
from hullcast.network.answers.collection import CHANGE, ENTER, LEAVE, Collection
from hullcast.network.answers.events import Change
from hullcast.network.answers.outbox import Outbox, Taken
from hullcast.network.wire.bodies import ChannelSpec

# --- the outbox ----------------------------------------------------------------------------------------------------

Waiting = tuple[int, int, float, float, object]  # subscription, seq, value, rest, item


class OutboxHistory(RuleBasedStateMachine):
    """Events come for some and are taken by some; the model is a list in which what was taken leaves a hole."""

    @initialize(limit=st.sampled_from([1, 2, 3, 8, 60, 1500, 4000]))
    def start(self, limit: int) -> None:
        self.outbox = Outbox(limit)
        self.limit = next(2**k for k in range(13) if 2**k >= limit)
        self.ring: deque[Waiting | None] = deque()
        self.lost: dict[int, int] = {}
        self.subscriptions = 8
        self.outbox.reserve(8)
        self.seq = 0
        self.named = 0

    @rule(more=st.integers(1, 30))
    def reserve(self, more: int) -> None:
        if self.subscriptions < 100:
            self.subscriptions += more
            self.outbox.reserve(self.subscriptions)

    @rule(seed=st.integers(0, 2**32 - 1), n=st.sampled_from([0, 1, 2, 7, 100, 900]), with_items=st.booleans())
    def put(self, seed: int, n: int, with_items: bool) -> None:
        rng = np.random.default_rng(seed)
        who = rng.integers(0, rng.integers(1, self.subscriptions, endpoint=True), n)
        seqs = self.seq + np.sort(rng.integers(1, 5, n))
        self.seq += 5
        values, rests = rng.integers(0, 9, n).astype(float), rng.random(n)
        items = [f"item {self.named + i}" for i in range(3)] if with_items else []
        self.named += len(items)
        places = rng.integers(0, 3, n)
        if with_items:
            self.outbox.put(who, seqs, values, rests, places, items)
        else:
            self.outbox.put(who, seqs, values, rests)
        for event in zip(who.tolist(), seqs.tolist(), values.tolist(), rests.tolist(), places.tolist(), strict=True):
            if len(self.ring) == self.limit:
                oldest = self.ring.popleft()
                assert oldest is not None
                self.lost[oldest[0]] = self.lost.get(oldest[0], 0) + 1
                self.close_up()
            self.ring.append((*event[:4], items[event[4]] if with_items else None))

    @rule(subscription=st.integers(0, 7))
    def take(self, subscription: int) -> None:
        expected = [event for event in self.ring if event is not None and event[0] == subscription]
        assert self.outbox.waiting(subscription) == len(expected)
        taken = self.outbox.take(subscription)
        assert list(zip(taken.seqs, taken.values, taken.rests, taken.items, strict=True)) == [e[1:] for e in expected]
        self.ring = deque(None if event is not None and event[0] == subscription else event for event in self.ring)
        self.close_up()

    @rule(subscription=st.integers(0, 7))
    def take_lost(self, subscription: int) -> None:
        assert self.outbox.take_lost(subscription) == self.lost.pop(subscription, 0)

    @rule()
    def take_all(self) -> None:
        for subscription in range(self.subscriptions):
            self.take(subscription)
        assert len(self.outbox._chunks) == 0, "items go with their events"

    def close_up(self) -> None:
        while self.ring and self.ring[0] is None:
            self.ring.popleft()

    @invariant()
    def structure_is_sound(self) -> None:
        if hasattr(self, "outbox"):
            self.outbox.check()
            assert len(self.outbox) == sum(event is not None for event in self.ring) <= self.limit
            assert self.outbox.limit == self.limit


TestOutboxHistory = OutboxHistory.TestCase
TestOutboxHistory.settings = settings(max_examples=120, stateful_step_count=30)


def test_an_outbox_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="room for at least 1 event"):
        Outbox(0)


# --- sums ----------------------------------------------------------------------------------------------------------


def spec(function: int) -> ChannelSpec:
    return ChannelSpec("", "SUM", "places", 1, False, function, "REAL", (), (), ())


def aggregates(function: int) -> AggregateAnswers:
    return AggregateAnswers(spec(function), never_decoded, never_needed)


def side(name: str, places: list[tuple[float, float] | None]) -> dict[str, Any]:
    """The columns of rows before or after, given as places and values; None is no row."""
    x, y = np.array([place or (np.nan, np.nan) for place in places]).reshape(-1, 2).T.copy()
    return {f"{name}.there": ~np.isnan(x), f"{name}.0": x, f"{name}.y": y}


RANGES = np.array([(0.0, 9.0), (2.0, 5.0), (4.0, 4.0), (-np.inf, 3.0), (7.0, 6.0)])
#: Doubles that span 53 + 40 bits: any sum of a few of them fits the 106 bits of a pair exactly.
NUMBERS = st.builds(lambda m, e: float(m) * 2.0**e, st.integers(-(2**53), 2**53), st.integers(-20, 20))
SOME = st.none() | st.tuples(st.integers(0, 9).map(float), NUMBERS)


@pytest.mark.parametrize("function", [COUNT, SUM, EXACT_SUM, AVG])
@given(histories=st.lists(st.lists(st.tuples(st.integers(0, 5), SOME), min_size=1, max_size=8), max_size=8))
@settings(max_examples=60)
def test_sums_are_those_of_fractions(
    function: int, histories: list[list[tuple[int, tuple[float, float] | None]]]
) -> None:
    outbox, answers = Outbox(1 << 14), aggregates(function)
    audience = Audience(2, outbox)
    ids = audience.admit(RANGES)
    answers.start(ids, first_answers(np.zeros((len(ids), 4))))
    rows: dict[int, tuple[float, float]] = {}
    seq = 0
    for updates in histories:
        old: list[tuple[float, float] | None] = []
        expected: dict[int, list[tuple[int, tuple[float, float]]]] = {i: [] for i in ids.tolist()}
        before = {i: shown(function, rows, i) for i in ids.tolist()}
        for t, (row, new) in enumerate(updates):
            old.append(rows.pop(row, None))
            if new is not None:
                rows[row] = new
            for i in ids.tolist():
                now = shown(function, rows, i)
                if repr(now) != repr(before[i]):
                    expected[i].append((seq + t, now))
                    before[i] = now
        news = [new for _, new in updates]
        seqs = np.arange(seq, seq + len(updates))
        told = answers.hear(audience, {"seq": seqs, **side("old", old), **side("new", news)})
        seq += len(updates)
        assert told == sum(map(len, expected.values()))
        for i in ids.tolist():
            held = [y for x, y in rows.values() if RANGES[i, 0] <= x <= RANGES[i, 1]]
            count, high, low, lost_bits = answers.state[i].tolist()
            assert lost_bits == 0
            assert count == len(held)
            assert Fraction(high) + Fraction(low) == sum(map(Fraction, held))
            assert repr(answers.number(i)) == repr(shown(function, rows, i))
            taken = outbox.take(i)
            assert repr(list(zip(taken.seqs, zip(taken.values, taken.rests, strict=True), strict=True))) == repr(
                expected[i]
            )


never_decoded: Any = None  # sums and counts are no codes


def never_needed(ids: Any) -> Any:
    """In place of the rows: sums that fit a pair need not be taken anew."""
    raise AssertionError(f"the sums of {ids} fit, yet were doubted")


def shown(function: int, rows: dict[int, tuple[float, float]], i: int) -> tuple[float, float]:
    """(value, rest) as the definition has it: the exact sum (or mean) rounded once, and what rounding left."""
    held = [Fraction(y) for x, y in rows.values() if RANGES[i, 0] <= x <= RANGES[i, 1]]
    if function == COUNT:
        return float(len(held)), 0.0
    if not held:
        return np.nan, 0.0
    total = sum(held, Fraction(0))
    value = float(total)
    if function == AVG:
        return float(total / len(held)), 0.0
    return value, float(total - Fraction(value)) if function == EXACT_SUM else 0.0


@given(points=st.lists(st.tuples(st.integers(0, 9).map(float), NUMBERS | st.just(np.nan)), max_size=20))
def test_first_sums_are_those_of_fractions(points: list[tuple[float, float]]) -> None:
    state = np.zeros((len(RANGES), 4))
    columns = np.array([[x for x, _ in points]]).reshape(1, len(points))
    y = np.array([value for _, value in points])
    starts, stops = np.zeros(len(RANGES), np.int64), np.full(len(RANGES), len(points))
    lows, highs = np.ascontiguousarray(RANGES[:, :1]), np.ascontiguousarray(RANGES[:, 1:])
    sums_in_boxes(columns, y, lows, highs, starts, stops, state)
    for (low, high), (count, total, rest, _) in zip(RANGES.tolist(), state.tolist(), strict=True):
        held = [value for x, value in points if low <= x <= high and value == value]
        assert count == len(held)
        assert Fraction(total) + Fraction(rest) == sum(map(Fraction, held))


#: Doubles of every size, a few of them often: large and small next to each other, zeros, subnormal ones.
WILD = st.floats(allow_nan=False, allow_infinity=False, max_value=1e300, min_value=-1e300) | st.sampled_from(
    [0.0, 1.0, -1.0, 3.0, 0.1, 5e-324, -5e-324, 2.0**-1022, 1e-310, 2.0**53 + 2, 1e16, 1e40, 1e300, -1e300]
)


@given(values=st.lists(WILD | NUMBERS, min_size=1, max_size=12), rows=st.integers(1, 12) | st.integers(1, 2**40))
@example(values=[1.0, 2.0**-53 * 3, 2.0], rows=3)  # half-way between two floats
@example(values=[1.0, 2.0**-53 * 3, 2.0, 1e-300], rows=3)  # a little more than that
@example(values=[1.0, 2.0**-53 * 3, 2.0, -1e-300], rows=3)
@settings(max_examples=500)
def test_means_are_rounded_once_whatever_the_values(values: list[float], rows: int) -> None:
    exact = sum(map(Fraction, values), Fraction(0))
    _, high, low, lost = exact_state(values)
    answers = aggregates(AVG)
    answers.start(np.arange(1), first_answers(np.array([[rows, high, low, lost]])))
    assert answers.number(0) == (float(exact / rows), 0.0)
    assert answers.column(np.arange(1)).tolist() == [float(exact / rows)]


@given(
    result=WILD | NUMBERS,
    rows=st.integers(2, 1000) | st.integers(2, 2**40),
    half=st.sampled_from([-1, 1]),
    nudge=st.sampled_from([0, -1, 1]),
)
@settings(max_examples=500)
def test_means_half_way_between_two_floats_go_to_the_even_one(result: float, rows: int, half: int, nudge: int) -> None:
    """Sums made so that their mean lies in the middle between neighbours, or next to it by the least there is."""
    middle = (Fraction(result) + Fraction(math.nextafter(result, math.inf * half))) / 2
    exact = middle * rows + nudge * Fraction(5e-324)
    assume(abs(exact) < 10**300)
    high = float(exact)
    low = float(exact - Fraction(high))
    exact = Fraction(high) + Fraction(low)
    answers = aggregates(AVG)
    answers.start(np.arange(1), first_answers(np.array([[float(rows), high, low, 0.0]])))
    assert answers.number(0) == (float(exact / rows), 0.0)


# --- collections -----------------------------------------------------------------------------------------------------


class CollectionHistory(RuleBasedStateMachine):
    """Rows enter, change and leave, several at one update; the model is a dict per update."""

    @initialize(rows=st.booleans(), limit=st.sampled_from([2, 5, 1000]), first=st.sets(st.integers(0, 5)))
    def start(self, rows: bool, limit: int, first: set[int]) -> None:
        self.now: dict[int, Any] = {key: (key, 0) if rows else key for key in first}
        self.limit = limit
        self.rows = rows
        self.collection = Collection(dict(self.now), tuple if rows else None, limit)
        self.expected: list[tuple[int, dict[int, Any], dict[int, Any]]] = []
        self.lost = 0
        self.seq = 0
        self.held: list[tuple[Change, Any]] = []  # events that somebody keeps, and their answers

    def shown(self, contents: dict[int, Any]) -> Any:
        return [contents[key] for key in sorted(contents)] if self.rows else set(contents)

    @rule(updates=st.lists(st.sets(st.integers(0, 5), min_size=1, max_size=3), max_size=6), seed=st.integers(0, 999))
    def hear(self, updates: list[set[int]], seed: int) -> None:
        rng = np.random.default_rng(seed)
        taken = Taken([], [], [], [])
        for keys in updates:
            self.seq += 1
            before = dict(self.now)
            for key in keys:
                row = (key, self.seq) if self.rows else key
                how = ENTER if key not in self.now else CHANGE if self.rows and rng.random() < 0.5 else LEAVE
                if how == LEAVE:
                    del self.now[key]
                else:
                    self.now[key] = row
                taken.seqs.append(self.seq)
                taken.values.append(how)
                taken.rests.append(0.0)
                taken.items.append((key, row))
            self.expected.append((self.seq, before, dict(self.now)))
        self.collection.hear(taken)
        over = max(0, len(self.expected) - self.limit)
        self.lost += over
        del self.expected[:over]
        assert self.collection.pending == len(self.expected)
        assert self.collection.lost == self.lost

    @rule()
    def take(self) -> None:
        if self.lost:
            assert self.collection.take_lost() == self.lost + len(self.expected)
            self.lost = 0
            self.expected.clear()
        changes = self.collection.take()
        assert [change.seq for change in changes] == [seq for seq, _, _ in self.expected]
        for change, (_, before, after) in zip(changes, self.expected, strict=True):
            assert change.answer == self.shown(after)
            assert sorted(change.entered) == sorted(after[key] for key in after if key not in before)
            assert sorted(change.left) == sorted(before[key] for key in before if key not in after)
            changed = [(before[key], after[key]) for key in after if key in before and before[key] != after[key]]
            assert sorted(change.changed) == sorted(changed)
        self.expected.clear()
        assert self.collection.take() == []

    @rule(most=st.integers(1, 3), hold=st.booleans())
    def take_some(self, most: int, hold: bool) -> None:
        if self.lost:
            return
        changes = self.collection.take(most)
        expected, self.expected = self.expected[: len(changes)], self.expected[len(changes) :]
        assert len(changes) == min(most, len(expected) + len(self.expected))
        for change, (seq, _, after) in zip(changes, expected, strict=True):
            assert (change.seq, change.answer) == (seq, self.shown(after))
            self.held += [(change, self.shown(after))] if hold else []

    @rule(limit=st.integers(0, 3))
    def keep(self, limit: int) -> None:
        self.collection.keep(limit)
        over = max(0, len(self.expected) - limit)
        self.lost += over
        del self.expected[:over]

    @rule(lost=st.integers(1, 9))
    def begin_again(self, lost: int) -> None:
        """Events were lost on the way: contents come anew, and nothing pending counts as heard."""
        self.collection.lose(dict(self.now), lost)
        self.lost += lost + len(self.expected)
        self.expected.clear()
        assert self.collection.lost == self.lost

    @invariant()
    def the_answer_is_the_models(self) -> None:
        if hasattr(self, "collection"):
            answer = self.collection.answer()
            assert answer == self.shown(self.now)
            answer.clear()  # a copy: the caller may do with it as it likes
            assert self.collection.answer() == self.shown(self.now)
            assert all(change.answer == answer for change, answer in self.held)


TestCollectionHistory = CollectionHistory.TestCase
TestCollectionHistory.settings = settings(max_examples=100, stateful_step_count=20)


def test_taking_changes_one_by_one_lists_those_that_wait_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    class Counted(collection._History):
        def __init__(self, final: Any, deltas: list[Any]) -> None:
            super().__init__(final, deltas)
            made.append(len(deltas))

    monkeypatch.setattr(collection, "_History", Counted)
    numbers = collection.Collection({}, None, 1000)
    numbers.hear(Taken(list(range(100)), [ENTER] * 100, [], [(i, i) for i in range(100)]))
    held = [numbers.take(1)[0].answer for _ in range(50)]
    assert (held[0], held[49]) == ({0}, set(range(50)))
    numbers.hear(Taken([100], [ENTER], [], [(100, 100)]))
    assert [numbers.take(1)[0].answer for _ in range(51)][-1] == set(range(101))
    assert made == [100, 51]


# --- the audience ----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=20))
def test_listeners_have_distinct_small_numbers_and_leave_nothing_behind(steps: list[tuple[bool, int]]) -> None:
    outbox = Outbox(64)
    audience = Audience(2, outbox)
    here: list[int] = []
    most = 0
    for comes, n in steps:
        if comes:
            never = np.arange(n) % 3 == 2
            ids = audience.admit(np.tile([0.0, 9.0], (n, 1)), never)
            assert not set(ids.tolist()) & set(here)
            assert all(outbox.waiting(i) == 0 for i in ids.tolist())
            here += ids.tolist()
            outbox.put(ids, np.arange(n), np.zeros(n))
        else:
            leaving, here = here[:n], here[n:]
            audience.dismiss(np.array(leaving, np.int64))
        most = max(most, len(here))
        assert len(audience) == len(here)
        assert audience.capacity == most
        audience.index.check()
        outbox.check()
