"""Selectivities and costs, as measured."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.streams.chart import Chart
from hullcast.broker.streams.measuring import ENOUGH, PathMeasures


def test_a_chart_is_that_of_the_window_before() -> None:
    path = PathMeasures([(1.0, 1.0), (1.0, 1.0)], now=0.0, window_s=10.0)
    path.ran(0, taken=100, given=20, seconds=100.0)
    path.ran(1, taken=20, given=20, seconds=100.0)
    path.ran(1, taken=20, given=20, seconds=100.0)
    assert not path.rebuilt(9.9)
    assert path.chart == Chart.of([1.0, 1.0], [1.0, 1.0])  # M1
    assert path.rebuilt(10.0)
    assert path.chart == Chart.of([0.2, 1.0], [1.0, 5.0])
    path.ran(0, taken=100, given=90, seconds=200.0)
    assert path.rebuilt(20.0)
    assert path.chart == Chart.of([0.9, 1.0], [2.0, 5.0])  # the second operator saw nothing in this window


def test_an_operator_that_sees_little_is_judged_when_it_has_seen_enough() -> None:
    path = PathMeasures([(1.0, 1.0), (1.0, 1.0)], now=0.0, window_s=1.0)
    path.ran(0, taken=ENOUGH - 1, given=0, seconds=1.0)
    assert not path.rebuilt(1.0)
    path.ran(0, taken=1, given=ENOUGH / 4, seconds=0.0)
    assert path.rebuilt(2.0)
    assert path.operators[0].selectivity == 0.25
    assert path.operators[0].cost == 1 / ENOUGH


def test_a_join_may_make_more_than_it_takes() -> None:
    path = PathMeasures.unknown(3, now=0.0, window_s=1.0)
    path.ran(1, taken=100, given=250, seconds=1.0)
    assert path.rebuilt(1.0)
    assert path.chart.sizes == (1.0, 1.0, 2.5, 0.0)


def test_an_operator_that_lets_nothing_pass_leaves_priorities_to_those_behind_it() -> None:
    path = PathMeasures.unknown(3, now=0.0, window_s=1.0)
    path.ran(0, taken=100, given=0, seconds=1.0)
    assert path.rebuilt(1.0)
    assert path.operators[0].selectivity == 0.005
    assert path.chart.slopes()[2] > 0


def test_a_chart_that_stays_the_same_is_not_told_again() -> None:
    path = PathMeasures.unknown(1, now=0.0, window_s=1.0)
    path.ran(0, taken=100, given=50, seconds=1.0)
    assert path.rebuilt(1.0)
    path.ran(0, taken=100, given=50, seconds=1.0)
    assert not path.rebuilt(2.0)


@given(
    runs=st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from([0, 1, 40]), st.sampled_from([0, 1, 80]), st.sampled_from([0.0, 1.0])
        )
    )
)
def test_whatever_is_measured_gives_a_chart(runs: list[tuple[int, int, int, float]]) -> None:
    path = PathMeasures.unknown(3, now=0.0, window_s=1.0)
    for step, (place, taken, given_, seconds) in enumerate(runs):
        path.ran(place, taken, given_, seconds)
        path.rebuilt(float(step))
        assert path.chart.operators == 3
        assert all(slope >= 0 for slope in path.chart.slopes())
