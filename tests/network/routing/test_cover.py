"""A cover contains every point it was given, within its budget, whatever they are and however they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.matching.index import PointIndex
from hullcast.network.matching.messages import query_boxes
from hullcast.network.routing.carve import Space, units
from hullcast.network.routing.cover import FEW, Cover
from hullcast.sim.traces.table51 import DOMAIN, Workload
from tests.support.routes import QUESTIONS, Question

if TYPE_CHECKING:
    from numpy.typing import NDArray

RANGES = Space(2, 1, True)
INFINITE = float("inf")
ends = st.sampled_from([-INFINITE, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, INFINITE])
questions = st.sampled_from(QUESTIONS)


def space_of(question: Question) -> Space:
    return Space(question.coordinates, question.dimensions, question.form == "rectangles")


def within(cover: Cover, points: NDArray[np.float64]) -> bool:
    """R1 by definition."""
    lows, highs = cover.boxes()
    inside = np.logical_and(lows <= points[:, np.newaxis], points[:, np.newaxis] <= highs)
    return bool(np.all(np.any(np.all(inside, axis=2), axis=1)))


@given(questions, st.integers(1, 12), st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_every_point_stays_in_a_box_however_they_come(
    question: Question, budget: int, portions: list[int], seed: int
) -> None:
    random = np.random.default_rng(seed)
    cover = Cover(space_of(question), budget)
    given_so_far = np.empty((0, question.coordinates))
    for n in portions:
        points = question.points(random, n)
        cover.extend(points)
        given_so_far = np.concatenate((given_so_far, points))
        cover.check()
        assert within(cover, given_so_far)
    columns = question.messages(random, 40)
    mask = np.zeros(40, np.bool_)
    for lows, highs in query_boxes(question.form, question.dimensions, question.partitioned, columns):
        mask |= cover.intersects_many(lows, highs)
    assert not (question.concerned(given_so_far, columns) & ~mask).any()


@given(st.lists(st.tuples(ends, ends, ends, ends), max_size=30), st.lists(st.tuples(ends, ends), max_size=20))
def test_a_box_is_met_iff_the_definition_says_so(
    boxes: list[tuple[float, ...]], queries: list[tuple[float, float]]
) -> None:
    table = np.array(boxes).reshape(-1, 2, 2)
    cover = Cover(RANGES, 30)
    cover.extend_boxes(table.min(axis=1), table.max(axis=1))
    low, high = cover.boxes()
    for query_low in queries:
        for query_high in queries:
            lows, highs = np.array([query_low]), np.array([query_high])
            expected = ((low <= highs) & (lows <= high)).all(axis=1).any()
            assert cover.intersects_many(lows, highs).tolist() == [expected]


@given(st.lists(st.tuples(ends, ends), max_size=20), st.lists(ends, max_size=9), st.integers(1, 5))
def test_it_holds_the_values_that_lie_in_a_box(
    intervals: list[tuple[float, float]], values: list[float], budget: int
) -> None:
    cover = Cover(Space(1, 0, False), budget)
    table = np.array(intervals).reshape(-1, 2)
    cover.extend_boxes(table.min(axis=1, keepdims=True), table.max(axis=1, keepdims=True))
    low, high = (side[:, 0] for side in cover.boxes())
    expected = [bool(((low <= value) & (value <= high)).any()) for value in values]
    assert cover.holds(0, np.array(values)).tolist() == expected


def test_few_points_are_their_own_boxes_until_the_budget_is_spent() -> None:
    cover = Cover(RANGES, 10)
    points = np.column_stack((np.arange(10.0), np.arange(10.0) + 1))
    for point in points:
        cover.extend(point[np.newaxis])
    assert np.array_equal(cover.boxes()[0], points)
    assert np.array_equal(cover.boxes()[1], points)
    cover.extend(points)  # nothing new
    assert len(cover) == 10


def test_one_unbounded_range_does_not_unbound_the_others() -> None:
    random = np.random.default_rng(8)
    low = np.concatenate((random.uniform(0, 9, 50), random.uniform(40, 49, 50), [90.0]))
    points = np.column_stack((low, low + 1))
    points[-1, 1] = INFINITE
    cover = Cover(Space(2, 1, False), 4)
    cover.extend(points)
    x = np.array([-5.0, 5.0, 20.0, 30.0, 45.0, 60.0, 80.0, 95.0, 1e9])
    infinite = np.full(len(x), INFINITE)
    met = cover.intersects_many(np.column_stack((-infinite, x)), np.column_stack((x, infinite)))
    assert x[met].tolist() == [5.0, 45.0, 95.0, 1e9]


def test_partitions_far_apart_do_not_share_a_box() -> None:
    random = np.random.default_rng(4)
    numbers = random.choice([3.0, 4.0, 900.0, 5_000.0], 400)
    low = random.uniform(0, 10, 400)
    points = np.column_stack((low, low + random.uniform(0, 5, 400), numbers))
    cover = Cover(Space(3, 1, True), 16)
    cover.extend(points)
    assert cover.holds(2, np.array([3.0, 4.0, 900.0, 5_000.0])).all()
    assert not cover.holds(2, np.array([2.0, 5.0, 899.0, 1_000.0, 4_999.0, 6_000.0])).any()


def test_units_rise_with_values_and_are_finite() -> None:
    ends = np.array([[-INFINITE, -1e308], [-1.0, 0.0], [0.0, 1e-300], [1.0, 1e308], [1.0, INFINITE]])
    low, high = units(RANGES, ends, ends)
    order = np.argsort(ends.ravel(), kind="stable")
    assert np.isfinite(low).all()
    assert np.array_equal(low, high)
    assert (np.diff(low.ravel()[order]) >= 0).all()


@pytest.mark.parametrize("one_by_one", [False, True])
def test_it_lets_through_a_fraction_of_the_messages_that_concern_nobody(one_by_one: bool) -> None:
    """A box around everything lets through nearly all of them, and so do cuts at medians."""
    load = Workload(2_000)
    ranges = load.ranges(2_000)
    points = np.column_stack((ranges.low, ranges.high))
    random = np.random.default_rng(2)
    x = random.uniform(0, DOMAIN, 5_000)
    gap = random.exponential(5.0, (2, 5_000))
    columns = {"il": x, "ir": x, "ol": x - gap[0], "or": x + gap[1]}
    ((lows, highs),) = query_boxes("rectangles", 1, False, columns)
    index = PointIndex(2)
    index.insert(np.arange(len(points)), points)
    exact = index.exists_many(lows, highs)
    shares = []
    for budget in (1, 16, 64):
        cover = Cover(RANGES, budget)
        for portion in np.array_split(points, len(points) if one_by_one else 1):
            cover.extend(portion)
        met = cover.intersects_many(lows, highs)
        assert not (exact & ~met).any()
        shares.append((met & ~exact).mean())
    assert shares[0] > 0.8
    assert shares[1] < 0.6
    assert shares[2] < 0.15


def test_a_cover_needs_a_budget() -> None:
    with pytest.raises(ValueError, match="budget of 0"):
        Cover(RANGES, 0)
    assert FEW >= 1
