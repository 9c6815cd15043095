"""Metrics: what is written can be read by a strict reader, and says what was counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.monitor.metrics import Counters, Histogram, Metric, Sample, counter, gauge, number, render
from hullcast.network.monitor.process import process_metrics
from hullcast.network.wire.errors import InvariantBroken
from tests.support.exposition import read_exposition


def test_the_text_is_what_the_format_says() -> None:
    text = render(
        [
            counter("hullcast_rows_total", "Rows taken in.", 3, table="STOCK"),
            gauge("hullcast_lag_seconds", "How far behind.", 0.25),
        ]
    )
    assert text == (
        "# HELP hullcast_rows_total Rows taken in.\n"
        "# TYPE hullcast_rows_total counter\n"
        'hullcast_rows_total{table="STOCK"} 3\n'
        "# HELP hullcast_lag_seconds How far behind.\n"
        "# TYPE hullcast_lag_seconds gauge\n"
        "hullcast_lag_seconds 0.25\n"
    )
    assert render([]) == ""


@given(st.text(), st.text(), st.floats())
def test_any_label_help_and_number_survive(label: str, about: str, value: float) -> None:
    about = " ".join(about.split(" "))
    family = read_exposition(render([gauge("x", about, value, who=label)]))["x"]
    assert family.about == about
    (found,) = family.samples.items()
    assert found[0] == ("x", (("who", label),))
    assert found[1] == value or (math.isnan(found[1]) and math.isnan(value))


def test_metrics_of_one_name_are_put_together() -> None:
    text = render([gauge("x", "X.", 1, peer=1), gauge("y", "Y.", 5), gauge("x", "X.", 2, peer=2)])
    assert read_exposition(text)["x"].samples == {("x", (("peer", "1"),)): 1, ("x", (("peer", "2"),)): 2}


@pytest.mark.parametrize(
    "metrics",
    [
        [gauge("a b", "", 1)],
        [gauge("1a", "", 1)],
        [gauge("a", "", 1), gauge("a", "", 2)],
        [gauge("a", "", 1, x=1), gauge("a", "", 2, x="1")],
        [gauge("a_total", "", 1)],
        [counter("a", "", 1)],
        [gauge("a", "", 1), Metric("a", "histogram", "", ())],
        [Metric("a", "gauge", "", (Sample(1, (("x-y", "1"),)),))],
        [Metric("a", "gauge", "", (Sample(1, (("__x", "1"),)),))],
        [Metric("a", "gauge", "", (Sample(1, (("x", "1"), ("x", "2"))),))],
    ],
)
def test_what_a_scraper_would_refuse_is_refused_here(metrics: list[Metric]) -> None:
    with pytest.raises(InvariantBroken):
        render(metrics)


@pytest.mark.parametrize(
    ("value", "text"), [(1, "1"), (2.0, "2"), (0.1, "0.1"), (-0.5, "-0.5"), (1e300, "1e+300"), (math.inf, "+Inf")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_counters_count_by_label() -> None:
    refused = Counters("hullcast_refused_total", "Refused.", "why")
    assert refused["slow"] == 0
    refused.add("slow")
    refused.add("slow", 2)
    refused.add('odd "one"\n')
    assert (refused["slow"], refused.total(), refused.as_dict()) == (3, 4, {"slow": 3, 'odd "one"\n': 1})
    samples = read_exposition(render([refused.metric()]))["hullcast_refused_total"].samples
    assert samples["hullcast_refused_total", (("why", "slow"),)] == 3
    assert samples["hullcast_refused_total", (("why", 'odd "one"\n'),)] == 1


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 9.0])))
def test_a_histogram_counts_values_up_to_each_bound(values: list[float]) -> None:
    one, many = Histogram((1.0, 2.0, 4.0)), Histogram((1.0, 2.0, 4.0))
    for value in values:
        one.observe(value)
    many.observe_many(np.array(values))
    metric = one.metric("h", "H.", kind="x")
    assert metric == many.metric("h", "H.", kind="x")
    samples = read_exposition(render([metric]))["h"].samples
    for bound, text in ((1.0, "1"), (2.0, "2"), (4.0, "4"), (math.inf, "+Inf")):
        expected = sum(value <= bound for value in values)
        assert samples["h_bucket", (("kind", "x"), ("le", text))] == expected
    assert samples["h_sum", (("kind", "x"),)] == sum(values)
    assert samples["h_count", (("kind", "x"),)] == one.count == len(values)


@given(st.lists(st.floats(0, 20), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_the_bound_just_above_the_true_one(values: list[float], share: float) -> None:
    histogram = Histogram()
    histogram.observe_many(np.array(values))
    true = sorted(values)[max(0, math.ceil(share * len(values) - 1e-9) - 1)]
    found = histogram.quantile(share)
    assert found >= true
    single = Histogram()
    single.observe(true)
    assert found == single.quantile(1)


def test_an_empty_histogram_has_no_quantile_and_bounds_must_rise() -> None:
    assert math.isnan(Histogram().quantile(0.5))
    for bounds in ((), (1.0, 1.0), (2.0, 1.0), (1.0, math.inf)):
        with pytest.raises(InvariantBroken):
            Histogram(bounds)


def test_a_process_knows_its_memory_and_processor_time() -> None:
    families = read_exposition(render(process_metrics()))
    assert families["process_cpu_seconds_total"].samples["process_cpu_seconds_total", ()] > 0
    assert families["process_resident_memory_bytes"].samples["process_resident_memory_bytes", ()] > 1 << 20
    assert families["process_open_fds"].samples["process_open_fds", ()] >= 3


@pytest.mark.parametrize(
    "text",
    [
        "x 1\n",
        "# HELP x X\n# TYPE x gauge\nx 1",
        "# HELP x X\n# TYPE x gauge\nx  1\n",
        "# HELP x X\n# TYPE x gauge\ny 1\n",
        "# HELP x X\n# TYPE x gauge\nx 1\nx 1\n",
        '# HELP x X\n# TYPE x gauge\nx{a="\\t"} 1\n',
        "# HELP x X\n# TYPE x gauge\nx{} 1\n",
        '# HELP h H\n# TYPE h histogram\nh_bucket{le="1"} 1\nh_sum 1\nh_count 1\n',
    ],
)
def test_the_strict_reader_is_strict(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        read_exposition(text)
