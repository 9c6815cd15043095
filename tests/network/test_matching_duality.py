"""The box of a message finds exactly the subscriptions that the definition names, infinities included."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from network.matching.duality import (
    around_query,
    box_points,
    rectangle_query,
    set_around,
    set_rectangle,
    with_partition,
)
from network.matching.index import PointIndex

INFINITE = float("inf")
finite = st.integers(-3, 3).map(float)
lower = st.one_of(finite, st.just(-INFINITE))
upper = st.one_of(finite, st.just(INFINITE))

RANGES = [
    (x1, x2)
    for x1, x2 in itertools.product(
        [-INFINITE, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0], [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, INFINITE]
    )
    if x1 <= x2
]


def concerned(x1: float, x2: float, inner_l: float, inner_r: float, outer_l: float, outer_r: float) -> bool:
    """The definition: the range contains INNER and leaves OUTER, where there is one, outside."""
    left = outer_l == -INFINITE or outer_l < x1
    right = outer_r == INFINITE or x2 < outer_r
    return left and x1 <= inner_l and inner_r <= x2 and right


@settings(deadline=None)  # the first example may have to compile
@given(inner_l=finite, inner_r=finite, outer_l=lower, outer_r=upper)
def test_a_rectangle_finds_the_ranges_it_concerns(
    inner_l: float, inner_r: float, outer_l: float, outer_r: float
) -> None:
    index = PointIndex(2)
    index.insert(np.arange(len(RANGES)), np.array(RANGES))
    lows, highs = rectangle_query([inner_l], [inner_r], [outer_l], [outer_r])
    message = (inner_l, inner_r, outer_l, outer_r)
    expected = [i for i, (x1, x2) in enumerate(RANGES) if concerned(x1, x2, *message)]
    assert sorted(index.report(lows[0], highs[0]).tolist()) == expected
    low, high = np.zeros(2), np.zeros(2)
    set_rectangle(low, high, inner_l, inner_r, outer_l, outer_r)
    assert np.array_equal(low, lows[0])
    assert np.array_equal(high, highs[0])


def test_a_one_sided_range_meets_an_unbounded_rectangle() -> None:
    lows, highs = rectangle_query(5.0, 5.0, -INFINITE, INFINITE)
    assert lows.tolist() == [[-INFINITE, 5.0]]
    assert highs.tolist() == [[5.0, INFINITE]]


def test_strict_bounds_exclude_the_row_itself_but_not_its_neighbour() -> None:
    lows, highs = rectangle_query([2.0, 2.0], [2.0, 2.0], [1.0, 0.0], [3.0, 4.0])
    assert lows[0, 0] == np.nextafter(1.0, 2.0)
    assert highs[0, 1] == np.nextafter(3.0, 2.0)
    assert lows.shape == highs.shape == (2, 2)


@settings(deadline=None)  # the first example may have to compile
@given(st.lists(st.tuples(lower, upper, lower, upper, st.integers(0, 2)), max_size=60), finite, finite)
def test_boxes_around_a_point_are_found_within_their_partition(
    boxes: list[tuple[float, float, float, float, int]], a: float, b: float
) -> None:
    table = np.array(boxes, np.float64).reshape(-1, 5)
    points = with_partition(box_points(table[:, [0, 2]], table[:, [1, 3]]), table[:, 4])
    index = PointIndex(5)
    index.insert(np.arange(len(points)), points)
    lows, highs = around_query([[a, b]])
    found = index.report(with_partition(lows, 1)[0], with_partition(highs, 1)[0])
    expected = [i for i, (l1, h1, l2, h2, g) in enumerate(boxes) if l1 <= a <= h1 and l2 <= b <= h2 and g == 1]
    assert sorted(found.tolist()) == expected
    low, high = np.zeros(4), np.zeros(4)
    set_around(low, high, np.array([a, b]))
    assert np.array_equal(low, lows[0])
    assert np.array_equal(high, highs[0])
