"""The box of a message finds exactly the subscriptions that the definition names, infinities included."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.network.matching.duality import NO_PARTITIONS, around_points, box_points, in_rectangles
from hullcast.network.matching.index import EVERY, PointIndex

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
@given(st.lists(st.tuples(finite, finite, lower, upper), min_size=1, max_size=40))
def test_a_rectangle_finds_the_ranges_it_concerns(messages: list[tuple[float, float, float, float]]) -> None:
    index = PointIndex(2)
    index.insert(np.arange(len(RANGES)), np.array(RANGES))
    inner_l, inner_r, outer_l, outer_r = np.array(messages).T.copy()
    _, found, ids = in_rectangles(index.arrays, inner_l, inner_r, outer_l, outer_r, NO_PARTITIONS, 0, EVERY)
    expected = [
        (k, i) for k, message in enumerate(messages) for i, (x1, x2) in enumerate(RANGES) if concerned(x1, x2, *message)
    ]
    assert found.tolist() == sorted(found.tolist())
    assert sorted(zip(found.tolist(), ids.tolist(), strict=True)) == expected


def test_only_ranges_of_the_same_partition_are_found() -> None:
    index = PointIndex(3)
    index.insert(np.arange(2), np.array([[0.0, 5.0, 7.0], [0.0, 5.0, 8.0]]))
    one = np.array([1.0])
    _, found, ids = in_rectangles(index.arrays, one, one, one - 2, one + 9, np.array([8.0]), 0, EVERY)
    assert (found.tolist(), ids.tolist()) == ([0], [1])


@settings(deadline=None)  # the first example may have to compile
@given(st.lists(st.tuples(lower, upper, lower, upper, st.integers(0, 2)), max_size=60), finite, finite)
def test_boxes_around_a_point_are_found_within_their_partition(
    boxes: list[tuple[float, float, float, float, int]], a: float, b: float
) -> None:
    table = np.array(boxes, np.float64).reshape(-1, 5)
    points = box_points(table[:, [0, 2]], table[:, [1, 3]], table[:, 4])
    index = PointIndex(5)
    index.insert(np.arange(len(points)), points)
    columns = [np.array([a, a]), np.array([b, b])]
    lows, highs = around_points(columns, np.array([1.0, 1.0]), np.array([True, False]))
    found = index.report(lows[0], highs[0])
    expected = [i for i, (l1, h1, l2, h2, g) in enumerate(boxes) if l1 <= a <= h1 and l2 <= b <= h2 and g == 1]
    assert sorted(found.tolist()) == expected
    assert not len(index.report(lows[1], highs[1])), "where there is no point nothing is around it"


def test_a_predicate_without_ranges_is_around_everything() -> None:
    index = PointIndex(1)
    index.insert(np.array([0]), box_points(np.empty((1, 0)), np.empty((1, 0))))
    lows, highs = around_points([], None, np.array([True, False]))
    assert [len(index.report(low, high)) for low, high in zip(lows, highs, strict=True)] == [1, 0]
