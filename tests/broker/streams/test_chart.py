"""Progress charts and their lower envelopes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.streams.chart import Chart
from tests.broker.streams.charts import charts

#: Of the picture in chart.py: the fast and selective operator is the third.
FOUR = Chart((0, 1, 3, 4, 6), (1, 0.9, 0.85, 0.1, 0))


def descent(chart: Chart, begin: int, end: int) -> float:
    return (chart.sizes[begin] - chart.sizes[end]) / (chart.times[end] - chart.times[begin])


def on_envelope(chart: Chart, time: float) -> float:
    """The size that the envelope has there."""
    for begin, end in pairwise(chart.envelope()):
        if chart.times[begin] <= time <= chart.times[end]:
            return chart.sizes[begin] - descent(chart, begin, end) * (time - chart.times[begin])
    raise AssertionError(f"{time} is not on the chart")


def test_the_worked_example_has_two_chains_of_one_operator() -> None:
    chart = Chart.of([0.2, 0.0], [1.0, 5.0])
    assert chart == Chart((0.0, 1.0, 2.0), (1.0, 0.2, 0.0))
    assert chart.envelope() == (0, 1, 2)
    assert chart.slopes() == chart.steps() == pytest.approx((0.8, 0.2))


def test_a_selective_operator_takes_those_before_it_into_its_chain() -> None:
    assert FOUR.envelope() == (0, 3, 4)
    assert FOUR.slopes() == pytest.approx((0.225, 0.225, 0.225, 0.05))
    assert FOUR.steps() == pytest.approx((0.1, 0.025, 0.75, 0.05))


def test_a_join_that_makes_more_belongs_to_the_chain_of_what_follows() -> None:
    chart = Chart((0, 1, 2, 3, 6), (1, 0.9, 1.8, 0.1, 0))
    assert chart.envelope() == (0, 3, 4)
    assert chart.steps()[1] < 0 < chart.slopes()[1]
    assert chart.gaps()[0] == pytest.approx(1.8 - 0.1)


def test_of_points_in_one_line_the_envelope_takes_the_first() -> None:
    assert Chart((0, 1, 2, 4), (1, 0.75, 0.5, 0)).envelope() == (0, 1, 2, 3)


def test_gaps_are_widest_just_before_an_operator_is_done() -> None:
    assert FOUR.gaps() == pytest.approx((0.85 - 0.1, 0.1))  # at 4 - and at 6 -


def test_selectivities_and_costs_are_of_an_operators_own_input() -> None:
    chart = Chart.of([0.5, 2.0, 0.1, 0.7], [1.0, 2.0, 3.0, 4.0])
    assert chart.times == pytest.approx((0, 1, 2, 5, 5.4))
    assert chart.sizes == pytest.approx((1, 0.5, 1, 0.1, 0))
    assert chart.remaining(1) == pytest.approx((5.4 - 1) / 0.5)


def test_operators_behind_one_that_lets_nothing_pass_have_priority_0() -> None:
    chart = Chart.of([0.5, 0.0, 0.5, 0.5], [1.0, 1.0, 1.0, 1.0])
    assert chart.slopes()[2:] == (0.0, 0.0)
    assert chart.operators == 4


@pytest.mark.parametrize(
    ("times", "sizes"),
    [
        ((0,), (1,)),
        ((0, 1), (1,)),
        ((1, 2), (1, 0)),
        ((0, 1, 1), (1, 0.5, 0)),
        ((0, 1, float("nan")), (1, 0.5, 0)),
        ((0, float("inf")), (1, 0)),
        ((0, 1), (0.5, 0)),
        ((0, 1), (1, 0.5)),
        ((0, 1, 2), (1, -0.5, 0)),
        ((0, 1, 2), (1, float("nan"), 0)),
    ],
)
def test_what_is_not_a_chart_is_refused(times: tuple[float, ...], sizes: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="chart"):
        Chart(times, sizes)


@pytest.mark.parametrize(
    ("selectivities", "costs"), [([], []), ([1], [1, 1]), ([1], [0]), ([-1], [1]), ([float("nan")], [1])]
)
def test_operators_without_a_cost_or_selectivity_are_refused(selectivities: list[float], costs: list[float]) -> None:
    with pytest.raises(ValueError, match="cost"):
        Chart.of(selectivities, costs)


@given(chart=charts(join=True))
def test_the_envelope_is_convex_and_below_every_point(chart: Chart) -> None:
    slopes = chart.slopes()
    assert all(before >= after - 1e-12 for before, after in pairwise(slopes))
    assert all(size >= on_envelope(chart, time) - 1e-12 for time, size in zip(chart.times, chart.sizes, strict=True))
    assert chart.envelope()[0] == 0
    assert chart.envelope()[-1] == chart.operators


@given(chart=charts(join=True))
def test_every_segment_is_the_steepest_descent_and_the_shortest_of_equals(chart: Chart) -> None:
    for begin, end in pairwise(chart.envelope()):
        for other in range(begin + 1, chart.operators + 1):
            mine, others = descent(chart, begin, end), descent(chart, begin, other)
            assert mine >= others
            assert mine > others or end <= other


@given(chart=charts(join=True))
def test_gaps_are_the_largest_differences_on_a_fine_grid(chart: Chart) -> None:
    for (begin, end), gap in zip(pairwise(chart.envelope()), chart.gaps(), strict=True):
        found = 0.0
        for place in range(begin, end):
            width = chart.times[place + 1] - chart.times[place]
            for step in range(100):
                at = chart.times[place] + width * step / 100
                found = max(found, chart.sizes[place] - on_envelope(chart, at))
        assert found <= gap + 1e-9
        # over the last hundredth of an operator the envelope descends by this much at most
        width = max(chart.times[place + 1] - chart.times[place] for place in range(begin, end))
        assert gap <= found + descent(chart, begin, end) * width / 100 + 1e-9


@given(chart=charts(join=False))
def test_without_joins_the_gaps_of_a_path_are_at_most_one_unit(chart: Chart) -> None:
    assert sum(chart.gaps()) <= 1 + 1e-9


@given(st.lists(st.tuples(st.sampled_from([0.0, 1e-9, 0.5, 1.0, 3.0]), st.sampled_from([1e-9, 1.0, 1e6])), min_size=1))
def test_any_measures_give_a_chart(operators: list[tuple[float, float]]) -> None:
    chart = Chart.of([selectivity for selectivity, _ in operators], [cost for _, cost in operators])
    assert all(slope >= 0 for slope in chart.slopes())
