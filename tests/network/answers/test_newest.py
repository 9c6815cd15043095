"""Newest answers: the kernel that lists no pairs does what finding, replacing and settling one by one does."""

from __future__ import annotations

import numpy as np
import pytest

from hullcast.network.answers.audience import Audience
from hullcast.network.answers.newest import replace_newest, settle, take_newest
from hullcast.network.answers.outbox import Outbox
from hullcast.network.matching.duality import NO_PARTITIONS
from hullcast.network.wire.arrays import SPARSE, distinct


@pytest.mark.parametrize("partitioned", [False, True])
def test_messages_replace_answers_as_if_each_pair_were_listed(partitioned: bool) -> None:
    random = np.random.default_rng(3)
    for listeners, messages in ((1, 1), (40, 7), (500, 60)):
        audience = Audience(3 if partitioned else 2, Outbox(16))
        points = random.integers(0, 20, (listeners, 3 if partitioned else 2)).astype(float)
        points[:, -1] %= 3 if partitioned else 1000
        audience.admit(points)
        inner_l, inner_r = random.integers(5, 15, (2, messages)).astype(float)
        outer_l, outer_r = inner_l - random.integers(1, 9, messages), inner_r + random.integers(1, 9, messages)
        outer_l[0], outer_r[-1] = -np.inf, np.inf
        partitions = random.integers(0, 3, messages).astype(float) if partitioned else NO_PARTITIONS
        sides = (inner_l, inner_r, outer_l, outer_r, partitions)
        seqs, best = np.arange(messages) + 10, random.uniform(0, 1, messages)
        values, latest, fresh = np.zeros(listeners), np.zeros(listeners, np.int64), np.zeros(listeners, np.int64)
        fresh[::3] = 1
        expected = values.copy(), latest.copy(), fresh.copy()
        pairs, fresh_before = 0, fresh.copy()
        for what, who in audience.inside(*sides):
            pairs += len(who)
            expected[0][who] = best[what]
            settle(who, seqs[what], expected[1], expected[2])
        told, news = replace_newest(audience.index.arrays, *sides, seqs, best, values, latest, fresh)
        assert told == pairs
        for found, wanted in zip((values, latest, fresh), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert sorted(news.tolist()) == np.flatnonzero((fresh > 0) & (fresh_before == 0)).tolist()


def test_a_listener_is_news_once_until_it_is_taken() -> None:
    latest, fresh, conflated = (np.zeros(4, np.int64) for _ in range(3))
    who, seqs = np.array([2, 1, 2]), np.array([5, 6, 7])
    assert settle(who, seqs, latest, fresh).tolist() == [2, 1]
    assert settle(who, seqs + 3, latest, fresh).tolist() == []
    assert latest.tolist() == [0, 9, 10, 0]
    gaps, told, told_rests = np.zeros(4, np.int64), np.zeros(4), np.zeros(4)
    candidates = np.array([3, 2, 1, 2])
    cells = (told, told_rests, fresh, conflated, gaps)
    assert take_newest(candidates, np.ones(4), np.zeros(4), *cells).tolist() == [1, 2]
    assert conflated.tolist() == [0, 1, 3, 0]
    assert told.tolist() == [0.0, 1.0, 1.0, 0.0]
    assert settle(who[:1], seqs[:1], latest, fresh).tolist() == [2]


def test_an_answer_that_came_back_is_taken_only_if_something_was_missed() -> None:
    nan = np.nan
    told, told_rests = np.array([5.0, nan, 5.0, 5.0, 5.0]), np.array([0.0, 0.0, 0.0, 1.0, 0.0])
    values, rests = np.array([5.0, nan, nan, 5.0, 5.0]), np.zeros(5)
    fresh, conflated, gaps = np.full(5, 2), np.zeros(5, np.int64), np.array([0, 0, 0, 0, 1])
    taken = take_newest(np.arange(5), values, rests, told, told_rests, fresh, conflated, gaps)
    assert taken.tolist() == [2, 3, 4]  # NULL instead of 5, another rest, and a gap
    assert conflated.tolist() == [2, 2, 1, 1, 1]
    assert not fresh.any()
    np.testing.assert_array_equal(told, values)
    np.testing.assert_array_equal(told_rests, rests)


@pytest.mark.parametrize("below", [1, 10, 3 * SPARSE, 100 * SPARSE])
def test_distinct_numbers_are_those_of_numpy_however_few_there_are(below: int) -> None:
    random = np.random.default_rng(below)
    for count in (0, 1, 2, 50, 1000):
        numbers = random.integers(0, below, count)
        found = distinct(numbers, below)
        assert found.dtype == np.int64
        assert found.tolist() == sorted(set(numbers.tolist()))
