"""Cost functions: monotone, subadditive and 0 for nothing, whatever was measured."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.views.costs import (
    MOST,
    CheaperCost,
    CostFunction,
    CurveCost,
    LearnedCost,
    LinearCost,
    largest_within,
)
from hullcast.sim.experiments.studies.batching.costs import PowerCost, StepCost, tabulated

UPTO = 70
#: Coarse, so that sizes come again and times tie.
measured = st.lists(st.tuples(st.integers(1, 60), st.sampled_from([0.0, 0.001, 0.002, 0.5, 1.0, 8.0])), max_size=60)


def is_a_cost(cost: CostFunction) -> None:
    """The definition, pair by pair."""
    f = [cost.of(k) for k in range(2 * UPTO + 1)]
    assert f[0] == 0
    for k in range(2 * UPTO):
        assert f[k] <= f[k + 1] * (1 + 1e-12)
    for j in range(1, UPTO + 1):
        for k in range(1, UPTO + 1):
            assert f[j + k] <= (f[j] + f[k]) * (1 + 1e-9)


def largest_is_largest(cost: CostFunction, limit_s: float) -> None:
    most = cost.largest_within(limit_s)
    assert most == 0 or cost.of(most) <= limit_s
    assert most >= MOST or cost.of(most + 1) > limit_s


@given(measured, st.sampled_from([0.0, 0.001, 0.3, 1.0, 20.0]))
def test_a_learned_cost_is_monotone_and_subadditive_whatever_was_measured(
    batches: list[tuple[int, float]], limit_s: float
) -> None:
    cost = LearnedCost()
    for rows, took_s in batches:
        cost.learn(rows, took_s)
        cost.check()
    is_a_cost(cost)
    largest_is_largest(cost, limit_s)
    fixed_s, row_s = cost.fitted
    assert fixed_s >= 0
    assert row_s >= 0


@pytest.mark.parametrize(
    "cost", [LinearCost(0.5, 3.0), LinearCost(0.25), LinearCost(0.0, 2.0), StepCost(7, 0.5), PowerCost(2.0, 0.5)]
)
def test_given_costs_are_monotone_and_subadditive(cost: CostFunction) -> None:
    is_a_cost(cost)
    for limit_s in (0.0, 0.1, 0.5, 1.0, 3.5, 40.0):
        largest_is_largest(cost, limit_s)
    assert tabulated(cost, 9).tolist() == [cost.of(k) for k in range(10)]


@given(measured, st.sampled_from([0.0, 0.01, 0.1]), st.sampled_from([0.0, 0.02, 1.0]))
def test_the_cheaper_of_two_costs_is_one(batches: list[tuple[int, float]], row_s: float, fixed_s: float) -> None:
    cost = LearnedCost()
    for rows, took_s in batches:
        cost.learn(rows, took_s)
    cheaper = CheaperCost(cost, LinearCost(row_s, fixed_s))
    is_a_cost(cheaper)
    for limit_s in (0.0, 0.01, 0.5, 3.0):
        largest_is_largest(cheaper, limit_s)


@given(measured, st.lists(st.tuples(st.integers(1, 60), st.sampled_from([0.001, 1.0])), max_size=5))
def test_what_was_learned_can_be_begun_with(batches: list[tuple[int, float]], later: list[tuple[int, float]]) -> None:
    cost, again = LearnedCost(), LearnedCost()
    for rows, took_s in batches:
        cost.learn(rows, took_s)
    again.begin_with(cost.kept())
    for rows, took_s in [(0, 0.0), *later]:
        cost.learn(rows, took_s)
        again.learn(rows, took_s)
        again.check()
        assert [again.of(k) for k in range(UPTO)] == [cost.of(k) for k in range(UPTO)]
        assert again.fitted == pytest.approx(cost.fitted)


@pytest.mark.parametrize(
    "kept",
    [
        [[1.0, 2.0, 3.0]],
        [[1.0, 2.0, nan, 2.0]],
        [[1.0, 0.0, 1.0, 2.0]],
        [[0.0, 2.0, 1.0, 2.0]],
        [[1.0, 3.0, 1.0, 2.0]],
        [[1.0, 2.0, 1.0, 2.0], [1.0, 3.0, 1.0, 3.0]],
    ],
)
def test_what_is_not_kept_by_a_cost_is_refused(kept: list[list[float]]) -> None:
    cost = LearnedCost()
    with pytest.raises(ValueError, match=r"."):
        cost.begin_with(kept)
    assert cost.batches == 0


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 9)), min_size=1, max_size=8, unique_by=lambda point: point[0])
)
def test_a_curve_through_any_points_is_monotone_and_subadditive(points: list[tuple[int, int]]) -> None:
    curve = CurveCost([(float(k), float(s)) for k, s in sorted(points)])
    curve.check()
    is_a_cost(curve)


@given(st.integers(0, 5), st.integers(0, 5), st.lists(st.integers(1, 60), min_size=1, max_size=8, unique=True))
def test_a_curve_goes_through_points_that_need_no_change(row: int, fixed: int, sizes: list[int]) -> None:
    line = LinearCost(row, fixed or 1)
    curve = CurveCost([(k, line.of(k)) for k in sorted(sizes)])
    for k in range(min(sizes), max(sizes) + 1):
        assert curve.of(k) == pytest.approx(line.of(k))


def test_a_line_is_learned_as_a_line() -> None:
    cost, line = LearnedCost(), LinearCost(0.0004, 0.25)
    for k in [*range(1, 400, 7)] * 3:
        cost.learn(k, line.of(k))
    for k in (1, 10, 100, 380):
        assert cost.of(k) == pytest.approx(line.of(k), rel=0.02)
    assert cost.fitted == pytest.approx((0.25, 0.0004), rel=0.05)


def test_beyond_the_largest_batch_seen_a_change_costs_what_it_did_there() -> None:
    cost = LearnedCost()
    cost.learn(10, 1.0)
    assert cost.of(30) == pytest.approx(3.0)
    assert cost.of(2) == pytest.approx(1.0), "a smaller batch may take as long"
    cost.learn(30, 1.0)
    assert cost.of(30) == pytest.approx(1.0)


@pytest.mark.parametrize("factor", [10.0, 0.1])
def test_costs_that_drift_are_followed(factor: float) -> None:
    cost = LearnedCost()
    sizes = [1, 3, 9, 27, 81, 243]
    for k in sizes * 20:
        cost.learn(k, 0.1 + 0.001 * k)
    for _ in range(100):  # only batches of one size are seen from now on
        cost.learn(50, factor * (0.1 + 0.05))
    assert cost.of(50) == pytest.approx(factor * 0.15, rel=0.05)
    cost.check()


def test_what_large_batches_took_is_remembered_while_only_small_ones_come() -> None:
    cost = LearnedCost()
    cost.learn(1_000, 1.0)
    for _ in range(500):
        cost.learn(1, 0.5)
    assert cost.of(1_000) == pytest.approx(1.0, rel=0.01), "not a thousand times as much as one"
    cost.check()


def test_sizes_that_never_come_again_hardly_count_against_what_is_seen_now() -> None:
    cost = LearnedCost()
    cost.learn(1_000, 100.0)
    for _ in range(500):
        cost.learn(10, 0.1)
    assert cost.of(10) == pytest.approx(0.1, rel=0.05)
    cost.check()


def test_what_is_no_measurement_is_not_learned() -> None:
    cost = LearnedCost(0.5, 0.25)
    for rows, took_s in ((0, 1.0), (-1, 1.0), (3, -1.0), (3, nan), (3, inf)):
        cost.learn(rows, took_s)
    assert cost.batches == 0
    assert cost.of(2) == 1.0
    assert cost.fitted == (0.5, 0.25)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LinearCost(-1.0),
        lambda: LinearCost(nan),
        lambda: StepCost(0, 1.0),
        lambda: PowerCost(1.0, 1.5),
        lambda: CurveCost([]),
        lambda: CurveCost([(1.0, 0.0)]),
        lambda: CurveCost([(2.0, 1.0), (2.0, 1.0)]),
    ],
)
def test_a_function_that_is_no_cost_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=r"."):
        make()


def test_the_largest_batch_is_found_in_few_looks() -> None:
    looks = 0

    def of(k: int) -> float:
        nonlocal looks
        looks += 1
        return float(k)

    assert largest_within(of, 1e6) == 1_000_000
    assert looks < 50
