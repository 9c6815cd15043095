"""Interval histograms: exact where they can be, near where they cannot, kept in step with changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.joins.histogram import (
    Counts,
    Density,
    IntervalHistogram,
    Steps,
    by_groups,
)
from hullcast.broker.joins.partition import canonical
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.network.wire.errors import InvariantBroken

ends = st.one_of(st.integers(-5, 5).map(float), st.sampled_from([-np.inf, np.inf]))
intervals = st.lists(st.tuples(ends, ends).map(sorted), min_size=1, max_size=30)
PLACES = np.concatenate(([-1e9, 1e9], np.arange(-6, 6.25, 0.25)))


def holding(intervals: Floats, xs: Floats) -> Ints:
    """The definition: how many intervals (low, high) hold each x."""
    held: Ints = ((intervals[:, :1] <= xs) & (xs <= intervals[:, 1:])).sum(axis=0)
    return held


def normal_intervals(n: int, seed: int) -> tuple[Floats, Floats]:
    """Xie (2007), 4.6.6: midpoints N(5000, 1500), lengths N(1000, 2000), of these all inside the range."""
    rng = np.random.default_rng(seed)
    middle, length = rng.normal(5000, 1500, 8 * n), rng.normal(1000, 2000, 8 * n)
    lows, highs = middle - length / 2, middle + length / 2
    inside = (lows >= 0) & (lows < highs) & (highs <= 10_000)
    return lows[inside][:n], highs[inside][:n]


def mean_error(counts: Counts, steps: Steps, xs: Floats) -> float:
    """The mean relative error of an estimate; where nobody is, relative to 1."""
    true = counts.counts[np.searchsorted(counts.places, xs, "right") - 1]
    return float(np.mean(np.abs(steps.at(xs) - true) / np.maximum(true, 1)))


@given(intervals, intervals)
@settings(max_examples=100)
def test_with_as_many_buckets_as_breakpoints_an_estimate_is_exact(
    some: list[list[float]], others: list[list[float]]
) -> None:
    histogram = IntervalHistogram(buckets=200)
    both = np.array(some), np.array(others)
    for lows, highs in (both[0].T, both[1].T):
        histogram.add(lows, highs)
    assert np.allclose(histogram.estimate(PLACES), holding(np.concatenate(both), PLACES))
    histogram.remove(*both[0].T)
    histogram.check()
    assert len(histogram) == len(others)
    assert np.array_equal(histogram.exact(PLACES), holding(both[1], PLACES))
    histogram.rebuild()
    assert np.allclose(histogram.estimate(PLACES), holding(both[1], PLACES))


@given(st.integers(0, 1000), st.integers(1, 120), st.integers(0, 120))
@settings(max_examples=50)
def test_an_update_is_off_by_less_than_one_and_only_in_the_buckets_where_it_ends(seed: int, come: int, go: int) -> None:
    rng = np.random.default_rng(seed)
    there = np.sort(rng.integers(0, 200, (1000, 2)), axis=1).astype(float)
    fresh = np.sort(rng.integers(-20, 220, (come, 2)), axis=1).astype(float)
    histogram = IntervalHistogram(buckets=10)
    histogram.add(*there.T)
    xs = rng.uniform(-30, 230, 300)
    edges, before = histogram.steps.edges.copy(), histogram.estimate(xs)
    histogram.add(*fresh.T)
    histogram.remove(*there[:go].T)
    changed = np.concatenate((fresh, there[:go]))
    moved = holding(fresh, xs) - holding(there[:go], xs)
    after = histogram.estimate(xs)
    assert histogram.rebuilds == 1
    bucket, of_ends = np.searchsorted(edges, xs, "right"), np.searchsorted(edges, changed, "right")
    doubtful = (of_ends[:, :, None] == bucket).any(axis=1).sum(axis=0)
    doubtful[(bucket == 0) | (bucket == len(edges))] = 0  # outside nothing is known but what covers all of it
    inside = (bucket > 0) & (bucket < len(edges))
    assert (np.abs(after - before - moved)[inside] <= doubtful[inside] + 1e-9).all()
    histogram.remove(*fresh.T)
    histogram.add(*there[:go].T)
    assert np.allclose(histogram.estimate(xs), before)
    histogram.check()


def test_after_many_changes_the_steps_are_found_anew() -> None:
    lows, highs = normal_intervals(4000, 1)
    histogram = IntervalHistogram(20, Density.uniform(0, 10_000))
    histogram.add(lows[:2000] / 2, highs[:2000] / 2)
    histogram.estimate(lows)
    histogram.remove(lows[:2000] / 2, highs[:2000] / 2)
    histogram.add(lows, highs)
    fresh = IntervalHistogram(20, Density.uniform(0, 10_000))
    fresh.add(lows, highs)
    assert np.array_equal(histogram.estimate(lows), fresh.estimate(lows))
    assert histogram.rebuilds == 2


def test_what_is_not_there_cannot_be_removed() -> None:
    histogram = IntervalHistogram()
    histogram.add(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    histogram.remove(np.array([1.0]), np.array([5.0]))
    with pytest.raises(InvariantBroken, match="only intervals that are there"):
        histogram.check()


@pytest.mark.parametrize("far", [1e300, 1.7976931348623157e308, np.inf])
def test_intervals_may_end_as_far_out_as_floats_go(far: float) -> None:
    histogram = IntervalHistogram(8)
    histogram.add(np.array([-far, far, -far, 0.0]), np.array([far, far, -far, 1.0]))
    assert histogram.estimate(np.array([0.5, 2.0])).tolist() == pytest.approx([2.0, 1.0], abs=1.0)


def test_without_intervals_everything_is_estimated_as_nothing() -> None:
    assert IntervalHistogram().estimate(np.array([-np.inf, 0, 1, np.inf])).tolist() == [0, 0, 0, 0]


@given(intervals)
def test_pairing_sorted_ends_makes_no_more_groups_each_of_them_a_stretch(some: list[list[float]]) -> None:
    lows, highs = np.array(some).T
    groups, meets = canonical(np.sort(lows), np.sort(highs))
    assert (np.diff(groups) >= 0).all()
    assert len(meets) <= len(canonical(lows.copy(), highs.copy())[1])


@pytest.mark.parametrize("seed", range(3))
def test_twenty_buckets_for_a_hundred_thousand_intervals_are_off_by_less_than_15_percent(seed: int) -> None:
    lows, highs = map(np.sort, normal_intervals(100_000, seed))
    counts = Counts.of(lows, highs, Density.uniform(0, 10_000))
    xs = np.random.default_rng(seed).uniform(0, 10_000, 100_000)
    assert mean_error(counts, by_groups(lows, highs, counts, 20), xs) < 0.15


def test_buckets_are_fine_where_x_is_expected() -> None:
    lows, highs = map(np.sort, normal_intervals(20_000, 4))
    narrow = Density(np.array([0.0, 2000, 3000, 10_000]), np.array([0.01, 0.98, 0.01]))
    xs = np.random.default_rng(4).uniform(2000, 3000, 20_000)
    counts, expected = (Counts.of(lows, highs, domain) for domain in (Density.uniform(0, 10_000), narrow))
    anywhere = mean_error(counts, by_groups(lows, highs, counts, 20), xs)
    assert mean_error(expected, by_groups(lows, highs, expected, 20), xs) < anywhere / 2
