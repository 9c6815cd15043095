"""PointIndex agrees with the definition on every history, however the points are ordered or tied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hullcast.network.matching.index import MANY, PointIndex
from hullcast.network.matching.tree import BLOCK_POINTS, LEFT, Tree

if TYPE_CHECKING:
    from numpy.typing import NDArray


def depth_of(tree: Tree) -> int:
    """Number of levels."""
    deepest, todo = 0, [(0, 1)]
    while todo:
        node, level = todo.pop()
        deepest = max(deepest, level)
        left = int(tree.nodes[node, LEFT])
        if left >= 0:
            todo += [(left, level + 1), (left + 1, level + 1)]
    return deepest


GRID = [-np.inf, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, np.inf]
coordinates = st.sampled_from(GRID)


def inside(points: NDArray[np.float64], low: object, high: object) -> NDArray[np.bool_]:
    """The definition."""
    return np.asarray(((np.asarray(low) <= points) & (points <= np.asarray(high))).all(axis=1))


class PointIndexHistory(RuleBasedStateMachine):
    """Random inserts and deletes, a few or many at a time; blocks overflow because many come at once."""

    @initialize(dimensions=st.sampled_from([2, 3, 5]))
    def start(self, dimensions: int) -> None:
        self.k = dimensions
        self.index = PointIndex(dimensions)
        self.model: dict[int, tuple[float, ...]] = {}

    @rule(data=st.data())
    def insert_one(self, data: st.DataObject) -> None:
        point = data.draw(st.tuples(*[coordinates] * self.k))
        self.insert([point])

    @rule(seed=st.integers(0, 2**32 - 1), number=st.integers(1, 300), values=st.integers(1, 9))
    def insert_many(self, seed: int, number: int, values: int) -> None:
        rng = np.random.default_rng(seed)
        grid = rng.permutation(GRID)[:values]
        self.insert([tuple(row) for row in rng.choice(grid, (number, self.k)).tolist()])

    def insert(self, points: list[tuple[float, ...]]) -> None:
        absent = (i for i in range(len(self.model) + len(points)) if i not in self.model)
        ids = [next(absent) for _ in points]
        self.index.insert(ids, np.array(points))
        self.model.update(zip(ids, points, strict=True))

    @rule(seed=st.integers(0, 2**32 - 1), share=st.floats(0, 1))
    def delete_some(self, seed: int, share: float) -> None:
        rng = np.random.default_rng(seed)
        ids = rng.permutation(np.array(sorted(self.model), np.int64))[: int(share * len(self.model))]
        self.index.delete(ids)
        for id_ in ids.tolist():
            del self.model[id_]

    @rule(data=st.data())
    def answers_match_the_definition(self, data: st.DataObject) -> None:
        low = data.draw(st.tuples(*[coordinates] * self.k))
        high = data.draw(st.tuples(*[coordinates] * self.k))
        ids = np.array(list(self.model), np.int64)
        points = np.array(list(self.model.values())).reshape(-1, self.k)
        expected = sorted(ids[inside(points, low, high)].tolist())
        assert sorted(self.index.report(low, high).tolist()) == expected
        assert self.index.count_many([low], [high]).tolist() == [len(expected)]
        assert self.index.exists_many([low], [high]).tolist() == [bool(expected)]

    @invariant()
    def structure_is_sound(self) -> None:
        if hasattr(self, "index"):
            self.index.check()
            assert len(self.index) == len(self.model)


PointIndexHistory.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestPointIndexHistory = PointIndexHistory.TestCase


def orders(n: int) -> dict[str, NDArray[np.float64]]:
    """Point sequences that unbalance a careless tree."""
    rng = np.random.default_rng(5)
    line = np.arange(n, dtype=np.float64)
    heavy = np.zeros((n, 2))
    heavy[::10] = rng.normal(size=(len(heavy[::10]), 2))
    return {
        "sorted": np.column_stack((line, line)),
        "falling": np.column_stack((-line, line)),
        "all equal": np.full((n, 2), 7.0),
        "one dimension constant": np.column_stack((np.full(n, 3.0), rng.permutation(line))),
        "heavy point": heavy,
        "closing in": np.column_stack((0.5 ** (line % 900), np.zeros(n))),
        "infinite": rng.choice([-np.inf, 0.0, np.inf], (n, 2)),
    }


@pytest.mark.parametrize("order", orders(1))
def test_any_order_one_at_a_time_keeps_the_tree_shallow_and_exact(order: str) -> None:
    points = orders(6000)[order]
    index = PointIndex(2)
    for begin in range(0, len(points), 7):  # small enough to go through single inserts
        index.insert(np.arange(begin, min(begin + 7, len(points))), points[begin : begin + 7])
    index.check()
    assert depth_of(index.arrays) <= 40
    rng = np.random.default_rng(6)
    for a, b in points[rng.integers(0, len(points), (30, 2))]:
        low, high = np.minimum(a, b), np.maximum(a, b)
        assert np.array_equal(np.sort(index.report(low, high)), np.flatnonzero(inside(points, low, high)))
    index.delete(np.arange(0, 5990))
    index.check()
    assert sorted(index.report([-np.inf] * 2, [np.inf] * 2).tolist()) == list(range(5990, 6000))


def test_emptying_one_side_and_refilling_the_other_does_not_deepen_the_tree() -> None:
    """The kind of history that the docstring of update.py argues with."""
    index, n = PointIndex(1), 512
    live = [(i, float(i)) for i in range(n)]
    index.insert([i for i, _ in live], [[x] for _, x in live])
    low, high, fresh = 0.0, float(n), n
    for _ in range(30):
        middle = (low + high) / 2
        gone = [(i, x) for i, x in live if x < middle]
        new = [(fresh + i, middle + (high - middle) * (i + 1) / (len(gone) + 1)) for i in range(len(gone))]
        for i, x in new:
            index.insert([i], [[x]])
        for i, _ in gone:
            index.delete([i])
        live = [(i, x) for i, x in live if x >= middle] + new
        low, fresh = middle, fresh + len(gone)
        index.check()
    assert len(index) == n
    assert depth_of(index.arrays) <= 16


@pytest.mark.parametrize("k", [2, 3, 5])
def test_a_hundred_thousand_points_with_churn_match_a_mask(k: int) -> None:
    rng = np.random.default_rng(k)
    n = 100_000
    points = np.round(rng.normal(size=(n, k)), 2)
    index = PointIndex(k)
    index.insert(np.arange(n), points)
    for _ in range(3):
        ids = rng.permutation(n)[:20_000]
        index.delete(ids)
        points[ids] = np.round(rng.normal(size=(len(ids), k)) + 1, 2)
        index.insert(ids, points[ids])
    index.check()
    centres = points[rng.integers(0, n, 40)]
    width = rng.exponential(0.7, (40, k))
    lows, highs = centres - width, centres + width
    query, found = index.report_many(lows, highs)
    counts = index.count_many(lows, highs)
    for row in range(40):
        expected = np.flatnonzero(inside(points, lows[row], highs[row]))
        assert np.array_equal(np.sort(found[query == row]), expected)
        assert counts[row] == len(expected)
    assert (np.diff(query) >= 0).all()
    assert np.array_equal(index.exists_many(lows, highs), counts > 0)


def test_memory_follows_the_number_of_points_up_and_down() -> None:
    index, n, rng = PointIndex(2), 50_000, np.random.default_rng(9)
    points = rng.normal(size=(n, 2))
    index.insert(np.arange(n), points)
    full = index.memory_bytes()
    assert full <= 200 * n
    for _ in range(20):  # a steady state does not leak
        ids = rng.permutation(n)[: n // 4]
        index.delete(ids)
        index.insert(ids, rng.normal(size=(len(ids), 2)))
    assert index.memory_bytes() <= 3 * full
    index.delete(np.arange(100, n))
    index.check()
    assert index.memory_bytes() <= 64 * 1024
    assert len(index) == 100


def test_equal_points_stay_in_one_leaf_until_a_different_one_comes() -> None:
    index = PointIndex(2)
    n = 10 * BLOCK_POINTS
    index.insert(np.arange(n), np.ones((n, 2)))
    assert depth_of(index.arrays) == 1
    index.insert([n], [[1.0, 2.0]])  # the one that differs gets a leaf of its own
    index.check()
    assert depth_of(index.arrays) == 2


def test_callers_mistakes_are_refused_and_change_nothing() -> None:
    index = PointIndex(2)
    index.insert([1, 2], [[0, 0], [1, 1]])
    wrong: list[tuple[list[float], list[list[float]], str]] = [
        ([3, 2], [[0, 0], [0, 0]], "id 2 is in the index already"),
        ([3, 3], [[0, 0], [0, 0]], "id 3 occurs more than once"),
        ([-1], [[0, 0]], "negative"),
        ([3], [[0, np.nan]], "NaN"),
        ([3], [[0, 0, 0]], r"shape \(n, 2\)"),
        ([3, 4], [[0, 0]], "2 ids for 1 points"),
        ([3.5], [[0, 0]], "integers"),
    ]
    for ids, points, message in wrong:
        with pytest.raises(ValueError, match=message):
            index.insert(ids, points)
    for old, message in [([3], "id 3 is not in"), ([900], "id 900 is not in"), ([1, 1], "more than once")]:
        with pytest.raises(ValueError, match=message):
            index.delete(old)
    with pytest.raises(ValueError, match="lower bounds"):
        index.report_many([[0, 0]], [[0, 0], [1, 1]])
    with pytest.raises(ValueError, match="dimension"):
        PointIndex(0)
    index.check()
    assert sorted(index.report([0, 0], [1, 1]).tolist()) == [1, 2]
    assert 1 in index
    assert 3 not in index


def test_read_only_columns_from_the_wire_are_taken() -> None:
    index = PointIndex(2)
    ids = np.frombuffer(np.arange(3).tobytes(), np.int64)
    index.insert(ids, np.frombuffer(np.zeros(6).tobytes()).reshape(3, 2))
    index.delete(ids)
    assert len(index) == 0


@pytest.mark.parametrize("leaving", [MANY - 1, MANY, 2 * MANY, 3 * MANY])
def test_most_points_leave_at_once_and_the_rest_is_found_as_before(leaving: int) -> None:
    n, rng = 3 * MANY, np.random.default_rng(3)
    index, points = PointIndex(2), rng.integers(0, 50, (n, 2)).astype(float)
    index.insert(np.arange(n), points)
    order = rng.permutation(n)
    index.delete(order[:leaving])
    index.check()
    left = np.sort(order[leaving:])
    assert np.array_equal(index.points_of(left), points[left])
    assert sorted(index.report([-1.0, -1.0], [50.0, 50.0]).tolist()) == left.tolist()
    index.insert(order[:leaving], points[order[:leaving]])
    index.check()
    assert (
        sorted(index.report([10.0, 10.0], [20.0, 20.0]).tolist())
        == np.flatnonzero(((points >= 10.0) & (points <= 20.0)).all(axis=1)).tolist()
    )
