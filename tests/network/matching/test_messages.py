"""The boxes of travelling messages are those of the definition, for every form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.matching.duality import NO_PARTITIONS, around_points, box_points, in_rectangles
from hullcast.network.matching.index import EVERY, PointIndex
from hullcast.network.matching.messages import PLACES, RECTANGLES, dimensions_of, query_boxes, unreachable

INFINITE = float("inf")
finite = st.integers(-3, 3).map(float)
lower = st.one_of(finite, st.just(-INFINITE))
upper = st.one_of(finite, st.just(INFINITE))
parts = st.integers(0, 2).map(float)


@given(
    st.booleans(),
    st.lists(st.tuples(finite, finite, lower, upper, parts), min_size=1, max_size=30),
    st.lists(st.tuples(lower, upper, parts), min_size=1, max_size=30),
)
def test_rectangles_find_what_the_kernel_of_the_subscribers_finds(
    partitioned: bool, messages: list[tuple[float, ...]], ranges: list[tuple[float, ...]]
) -> None:
    table, wanted = np.array(messages), np.array(ranges)
    index = PointIndex(2 + partitioned)
    index.insert(
        np.arange(len(ranges)), box_points(wanted[:, :1], wanted[:, 1:2], wanted[:, 2] if partitioned else None)
    )
    il, ir, ol, outer_r, part = (column.copy() for column in table.T)
    columns = {"il": il, "ir": ir, "ol": ol, "or": outer_r} | ({"part": part} if partitioned else {})
    ((lows, highs),) = query_boxes(RECTANGLES, 1, partitioned, columns)
    assert lows.shape == (len(messages), 2 + partitioned)
    found = index.report_many(lows, highs)
    kernel = in_rectangles(index.arrays, il, ir, ol, outer_r, part if partitioned else NO_PARTITIONS, 0, EVERY)[1:]
    assert sorted(zip(*map(np.ndarray.tolist, found), strict=True)) == sorted(
        zip(*map(np.ndarray.tolist, kernel), strict=True)
    )


@pytest.mark.parametrize("dimensions", [0, 1, 2])
@pytest.mark.parametrize("partitioned", [False, True])
def test_places_are_asked_for_as_points_before_and_after(dimensions: int, partitioned: bool) -> None:
    random, n = np.random.default_rng(1), 20
    columns: dict[str, object] = {"seq": np.arange(n)}
    expected = []
    for side in ("old", "new"):
        there = random.random(n) < 0.7
        values = [np.where(there, random.integers(-3, 3, n), np.nan) for _ in range(dimensions)]
        part = np.where(there, random.integers(0, 3, n), np.nan) if partitioned else None
        columns[f"{side}.there"] = there
        columns |= {f"{side}.{i}": column for i, column in enumerate(values)}
        if part is not None:
            columns[f"{side}.part"] = part
        expected.append(around_points(values, part, there))
    boxes = query_boxes(PLACES, dimensions, partitioned, columns)
    for (lows, highs), (expected_lows, expected_highs) in zip(boxes, expected, strict=True):
        assert np.array_equal(lows, expected_lows)
        assert np.array_equal(highs, expected_highs)
        assert lows.shape[1] == max(1, 2 * dimensions + partitioned)
    assert dimensions_of(PLACES, boxes[0][0].shape[1], partitioned=partitioned) == dimensions


def test_a_band_is_asked_for_between_its_two_neighbours() -> None:
    one = np.array([1.0])
    side = {"there": np.array([True]), "0": one, "1": 5 * one, "up": 6 * one}
    columns = {f"{name}.{field}": values for name in ("old", "new") for field, values in side.items()}
    for lows, highs in query_boxes(PLACES, 2, False, columns):
        assert lows.tolist() == [[-INFINITE, 1.0, -INFINITE, 6.0]]
        assert highs.tolist() == [[1.0, INFINITE, 5.0, INFINITE]]


def test_predicates_that_nothing_satisfies_are_out_of_reach() -> None:
    points = [
        [0.0, 1.0],
        [-INFINITE, INFINITE],
        [INFINITE, -INFINITE],
        [INFINITE, 1.0],
        [0.0, -INFINITE],
        [np.nan, 0.0],
        [-INFINITE, -INFINITE],  # NULL
    ]
    assert unreachable(np.array(points), 1).tolist() == [False, False, True, True, True, True, False]
    assert unreachable(np.array([[0.0], [np.nan], [np.inf]]), 0).tolist() == [False, True, True]
