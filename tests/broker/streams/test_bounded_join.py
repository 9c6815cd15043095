"""A window join in bounded memory: with enough of it exactly the window join, with less a subset that adds up."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.streams.memory.bounded_join import LEFT, RIGHT, BoundedJoin, JoinWindow, KeepBy
from hullcast.network.wire.arrays import Floats, Ints

EVERYTHING = 1_000_000


@dataclass(frozen=True)
class Arrival:
    side: int
    value: float
    ordinal: int
    time: float


def window_join(arrivals: list[Arrival], left: JoinWindow, right: JoinWindow) -> list[tuple[int, int]]:
    """The definition: each arrival with those before it, of the other side, of equal value, in that side's window."""
    windows, position, found = (left, right), [-inf, -inf], []
    for at, one in enumerate(arrivals):
        position[one.side] = one.ordinal
        for before, other in enumerate(arrivals[:at]):
            window = windows[other.side]
            if (
                other.side != one.side
                and other.value == one.value
                and other.ordinal > position[other.side] - window.rows
                and not other.time < one.time - window.span
            ):
                found.append((at, before))
    return found


def columns(arrivals: list[Arrival]) -> tuple[Ints, Floats, Ints, Floats]:
    return (
        np.array([one.side for one in arrivals], np.int64), np.array([one.value for one in arrivals], np.float64),
        np.array([one.ordinal for one in arrivals], np.int64), np.array([one.time for one in arrivals], np.float64),
    )  # fmt: skip


def joined(join: BoundedJoin, arrivals: list[Arrival], sizes: list[int]) -> list[tuple[int, int]]:
    """All results, as numbers of the later and the earlier tuple; what may be forgotten is checked on the way."""
    found: list[tuple[int, int]] = []
    held: set[int] = set()
    at = turn = 0
    while at < len(arrivals):
        size = sizes[turn % len(sizes)] if sizes else len(arrivals)
        batch = arrivals[at : at + size]
        gave = join.add(*columns(batch))
        held |= set(range(at, at + len(batch)))
        assert set(gave.kept.tolist()) <= held, "a result names a tuple that was let go before"
        assert len(set(gave.let_go.tolist())) == len(gave.let_go)
        held -= set(gave.let_go.tolist())
        assert join.numbers().tolist() == sorted(held)
        join.check()
        found += zip((gave.arrivals + at).tolist(), gave.kept.tolist(), strict=True)
        at, turn = at + len(batch), turn + 1
    return found


@st.composite
def histories(draw: st.DrawFn) -> list[Arrival]:
    """Few values, many NULLs, ordinals with gaps, times that stand still or jump."""
    arrivals, ordinals, time = [], [0, 0], 0.0
    for _ in range(draw(st.integers(0, 60))):
        side = draw(st.integers(0, 1))
        ordinals[side] += draw(st.sampled_from([1, 1, 1, 2, 5]))
        time += draw(st.sampled_from([0.0, 0.0, 1.0, 2.0, 50.0]))
        value = draw(st.sampled_from([0.0, -0.0, 1.0, 2.0, 3.5, nan]))
        arrivals.append(Arrival(side, value, ordinals[side], time))
    return arrivals


windows = st.builds(
    JoinWindow, rows=st.sampled_from([1, 2, 3, 8, inf]), span=st.sampled_from([0.0, 1.0, 4.0, 60.0, inf])
)
sizes = st.lists(st.integers(1, 9), max_size=4)


@given(histories(), windows, windows, sizes, st.sampled_from(KeepBy), st.booleans())
@settings(max_examples=300, deadline=None)
def test_with_enough_memory_it_is_the_window_join_in_order(
    arrivals: list[Arrival], left: JoinWindow, right: JoinWindow, sizes: list[int], policy: KeepBy, bounded: bool
) -> None:
    join = BoundedJoin(left, right, max(1, len(arrivals)) if bounded else None, policy)
    assert joined(join, arrivals, sizes) == window_join(arrivals, left, right)
    assert join.statistics().dropped == join.statistics().missed == 0


@given(histories(), windows, windows, sizes, st.sampled_from(KeepBy), st.integers(1, 6))
@settings(max_examples=300, deadline=None)
def test_with_less_memory_results_are_a_subset_and_what_is_missed_is_accounted_for(
    arrivals: list[Arrival], left: JoinWindow, right: JoinWindow, sizes: list[int], policy: KeepBy, memory: int
) -> None:
    join = BoundedJoin(left, right, memory, policy, shadow=EVERYTHING // 1_000)
    found, all_of_them = joined(join, arrivals, sizes), window_join(arrivals, left, right)
    assert set(found) <= set(all_of_them)
    assert found == sorted(found)
    told = join.statistics()
    assert told.produced == len(found)
    assert told.produced + told.missed == len(all_of_them), "the shadow held all that was dropped"
    assert (told.dropped == 0) <= (found == all_of_them)


@given(histories(), windows, sizes, st.sampled_from(KeepBy), st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_it_makes_no_difference_where_batches_end(
    arrivals: list[Arrival], window: JoinWindow, sizes: list[int], policy: KeepBy, memory: int
) -> None:
    at_once = joined(BoundedJoin(window, window, memory, policy), arrivals, [])
    assert joined(BoundedJoin(window, window, memory, policy), arrivals, sizes) == at_once


def drawn(n: int, seed: int, values: int, skew: float = 1.0) -> list[Arrival]:
    chance = np.random.default_rng(seed)
    sides = chance.integers(0, 2, n)
    shown = np.floor(values * chance.random(n) ** skew)
    ordinals = [0, 0]
    arrivals: list[Arrival] = []
    for side, value in zip(sides.tolist(), shown.tolist(), strict=True):
        ordinals[side] += 1
        arrivals.append(Arrival(side, value, ordinals[side], float(len(arrivals))))
    return arrivals


@pytest.mark.parametrize("policy", KeepBy)
def test_a_sampled_shadow_estimates_what_is_missed(policy: KeepBy) -> None:
    arrivals = drawn(20_000, 3, 200, skew=2.0)
    window = JoinWindow(rows=400)
    full, small = BoundedJoin(window, window), BoundedJoin(window, window, 150, policy, shadow=128)
    all_of_them = len(full.add(*columns(arrivals)).kept)
    found = len(small.add(*columns(arrivals)).kept)
    missed = 1 - found / all_of_them
    assert missed > 0.2
    assert small.statistics().missed_share == pytest.approx(missed, abs=0.05)


def dropped_by_lru(arrivals: list[Arrival], memory: int) -> list[int]:
    """The definition, without windows: a look queues the eighth of least worth, of equal ones the oldest first."""
    used: dict[int, int] = {}
    queue: list[int] = []
    dropped, looked = [], 0
    for number, one in enumerate(arrivals):
        for other in used:
            if arrivals[other].side != one.side and arrivals[other].value == one.value:
                used[other] = number
        if len(used) == memory:
            if not queue or number + 1 - looked >= memory // 8:
                queue = sorted(used, key=lambda kept: (used[kept], kept))[: memory // 8]
                looked = number + 1
            dropped.append(queue.pop(0))
            del used[dropped[-1]]
        used[number] = number
    return dropped


@pytest.mark.parametrize("values", [3, 20, 1_000])
@pytest.mark.parametrize("memory", [16, 40, 200])
def test_what_is_worth_least_goes_and_of_equals_the_oldest(memory: int, values: int) -> None:
    arrivals = drawn(1_500, 8, values)
    join = BoundedJoin(JoinWindow(), JoinWindow(), memory, KeepBy.LRU)
    assert join.add(*columns(arrivals)).let_go.tolist() == dropped_by_lru(arrivals, memory)


def test_what_is_kept_grows_to_its_limit_and_not_beyond() -> None:
    arrivals = drawn(5_000, 1, 50)
    join = BoundedJoin(JoinWindow(), JoinWindow(), 700)
    joined(join, arrivals, [1_000, 300])
    assert len(join) == 700
    unlimited = BoundedJoin(JoinWindow(), JoinWindow())
    joined(unlimited, arrivals, [2_000])
    assert len(unlimited) == 5_000


def test_prob_and_heeb_keep_what_the_other_stream_shows_often() -> None:
    chance = np.random.default_rng(5)
    n = 20_000
    sides = np.arange(n) % 2
    often = np.where(chance.random(n) < 0.9, chance.integers(0, 5, n), chance.integers(5, 1_000, n))
    values = np.where(sides == LEFT, chance.integers(0, 1_000, n), often).astype(float)
    results = {}
    for policy in KeepBy:
        join = BoundedJoin(JoinWindow(rows=2_000), JoinWindow(rows=2_000), 20, policy)
        results[policy] = len(join.add(sides, values, np.arange(n) // 2, np.arange(n, dtype=np.float64)).kept)
    best_others = max(results[KeepBy.RAND], results[KeepBy.LRU])
    assert min(results[KeepBy.PROB], results[KeepBy.HEEB]) > 2 * best_others


def test_null_joins_nothing_and_is_never_kept() -> None:
    join = BoundedJoin(JoinWindow(), JoinWindow(), 5)
    found = join.add(np.array([LEFT, RIGHT]), np.array([nan, nan]), np.array([1, 1]), np.array([0.0, 0.0]))
    assert len(found.kept) == len(join) == 0
    assert found.let_go.tolist() == [0, 1]


def test_windows_and_memory_must_make_sense() -> None:
    with pytest.raises(ValueError, match="1 row or more"):
        JoinWindow(rows=0)
    with pytest.raises(ValueError, match="memory of 1 tuple"):
        BoundedJoin(JoinWindow(), JoinWindow(), 0)
    with pytest.raises(ValueError, match="columns of one length"):
        BoundedJoin(JoinWindow(), JoinWindow()).add(np.array([0]), np.array([1.0, 2.0]), np.array([0]), np.array([0.0]))
