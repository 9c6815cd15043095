"""The benchmark of streams at toy sizes: it runs, results are right, and figures are of what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hullcast.broker.streams.batch import StreamMoment, TupleBatch
from hullcast.broker.streams.memory.bounded_join import BoundedJoin, JoinWindow
from hullcast.sim.bench.frame.push import BUSY, CONTENDED, IDLE
from hullcast.sim.bench.frame.report import draw, to_json, write_json
from hullcast.sim.bench.frame.timing import MeasurementFailed, Spread
from hullcast.sim.bench.streams.benchmark import (
    STREAMS,
    StreamBenchSettings,
    _goals_of_bursts,
    _goals_of_decisions,
    _goals_of_filters,
    _goals_of_scheduling,
)
from hullcast.sim.bench.streams.bursts import (
    CHART,
    GROUP,
    UNIT_S,
    BurstLine,
    BurstPeaks,
    BurstSection,
    WorkClock,
    bursts,
    four_operators,
    run_burst,
)
from hullcast.sim.bench.streams.engine import (
    ALL_KEPT,
    ALL_LARGE,
    BOUNDED,
    JoinSizes,
    join_query,
    join_streams,
    joins,
    path,
    plain_join,
    plain_path,
)
from hullcast.sim.bench.streams.feeding import FedFigures, FedStream, feed, finish, opened, path_cells, table_cells
from hullcast.sim.bench.streams.live import FilterLine, FilterSection, LiveStreamSettings
from hullcast.sim.bench.streams.memory import DECISION_STREAMS, decisions, drawn_arrivals
from hullcast.sim.bench.streams.scheduling import SchedulingCase, scheduling, unlike_queries
from hullcast.sim.bench.streams.workload import (
    QUOTES,
    TABLE,
    TICKS,
    TRADES,
    filter_ranges,
    hits,
    joined_keys,
    joined_rows,
    tick_rows,
    ticks,
    time_after,
)
from hullcast.sim.experiments.studies.streams.baselines import STUDIED
from hullcast.sim.experiments.studies.streams.workload import BURSTS, FOUR, FRACTION, POLICIES, load_of, policy_of
from tests.sim.bench.reports import shown

if TYPE_CHECKING:
    from pathlib import Path

TINY = StreamBenchSettings(
    path_tuples=20_000,
    join=JoinSizes(tuples=2_000, warm=600, plain=1_000, kept=100),
    decision_arrivals=1_000,
    kept=100,
    rounds=1,
    burst_arrivals=60,
    burst_draws=2,
    live=LiveStreamSettings(
        filters=200, filter_clients=2, prepared=4_000, batch=100, filter_s=0.3, filter_rounds=1, window=50, join_s=0.3,
        join_rounds=1, latency_s=0.5, push_s=0.3, push_rounds=1,
    ),
)  # fmt: skip
ENGINE = ["path", "join", "decisions", "scheduling", "bursts"]


def nothing(what: str) -> None:
    """No progress is shown."""


def test_every_section_of_the_engine_is_measured_shown_and_drawn(tmp_path: Path) -> None:
    ticked: list[str] = []
    report = STREAMS.measure(TINY, ENGINE, ticked.append, look_s=0)
    assert len(ticked) == STREAMS.steps(TINY, ENGINE)
    assert [line.name for line in report.found["join"].lines] == [ALL_KEPT, ALL_LARGE, *BOUNDED]
    results = {line.name: line.results for line in report.found["join"].lines}
    assert all(results[name] < results[ALL_LARGE] for name in BOUNDED)
    assert [stream.stream for stream in report.found["decisions"].streams] == list(DECISION_STREAMS)
    assert all(0 < line.produced <= 1 for stream in report.found["decisions"].streams for line in stream.lines)
    assert "filters" not in report.found
    assert "derived" not in report.found
    text = shown(report)
    for title in (
        "path: selection",
        "window join: 100",
        "decisions: us",
        "scheduling: time",
        "bursts: tuples",
        "goals",
    ):
        assert title in text
    write_json(to_json(report), tmp_path / "streams.json")
    assert json.loads((tmp_path / "streams.json").read_text(encoding="utf-8"))["derived"] is None
    drawn = draw(report, tmp_path)
    assert [one.name for one in drawn] == [
        "streams_path.png", "streams_join.png", "streams_decisions.png", "streams_scheduling.png",
        "streams_bursts.png",
    ]  # fmt: skip
    assert all(one.stat().st_size > 10_000 for one in drawn)


@pytest.mark.parametrize("policy", STUDIED)
def test_a_path_gives_what_numpy_gives_and_a_window_join_what_a_loop_gives(policy: str) -> None:
    cells = path_cells(20_000, 3)
    runner = opened(unlike_queries(1), policy, 3, 300)
    passing = (cells[1] >= 0.0) & (cells[1] <= 0.5) & (cells[0] < 1_000)
    assert feed(runner, {"trades": FedStream(cells)}, 0, 20_000).results == np.count_nonzero(passing) > 4_000
    streams = join_streams(1_500, 100, 3)
    left, right = (stream.cells[0].tolist() for stream in streams.values())
    pairs = 0
    for i, (one, other) in enumerate(zip(left, right, strict=True)):  # they come alternately, the left first
        pairs += right[max(0, i - 100) : i].count(one) + left[max(0, i - 99) : i + 1].count(other)
    assert plain_join(streams, 100, 1_500) == pairs
    runner = opened([join_query(100)], policy, 3, 300)
    assert feed(runner, streams, 0, 1_500).results + finish(runner, streams) == pairs


def test_a_path_is_compared_with_numpy_over_the_same_tuples() -> None:
    section = path(20_000, 1, 0, nothing)
    assert {line.results for line in section.lines} == {plain_path(path_cells(20_000, 0), table_cells(0))}
    assert all(0 < line.deciding < 1 for line in section.lines)


def test_a_fixed_order_gives_what_a_policy_gives() -> None:
    streams, queries = {"trades": FedStream(path_cells(5_000, 0))}, unlike_queries(3)
    by_policy = feed(opened(queries, "chain", 0), streams, 0, 5_000, at_once=500)
    fixed = feed(opened(queries, "chain", 0), streams, 0, 5_000, at_once=500, drained=(1, 2, 3))
    assert by_policy.results == fixed.results > 0
    assert by_policy.steps > fixed.steps == 0


def test_what_is_spent_on_deciding_is_the_time_of_steps_outside_of_operators() -> None:
    assert FedFigures(100, 1, 2.0, 1.0, 0.75, 3).deciding == 0.25
    assert FedFigures(100, 1, 2.0, 1.0, 0.75, 3).tuples_s == 50.0


@pytest.mark.parametrize("stream", DECISION_STREAMS)
def test_an_arrival_has_a_partner_or_so(stream: str) -> None:
    kept = 500
    came = drawn_arrivals(stream, 5_000, kept, 0)
    join = BoundedJoin(JoinWindow(rows=kept), JoinWindow(rows=kept))
    join.add(came.sides, came.values, came.ordinals, came.times)
    assert 0.2 < join.statistics().produced / 5_000 < 5
    for side in (0, 1):
        assert np.array_equal(came.ordinals[came.sides == side], np.arange(np.count_nonzero(came.sides == side)))


def test_a_decision_is_judged_by_what_it_takes_more_than_a_join_without_a_bound() -> None:
    section = decisions(100, 500, 1, 0, nothing)
    stream = section.streams[0]
    slow, fast = (
        replace(stream, lines=tuple(replace(line, more_than_unbounded_us=us) for line in stream.lines))
        for us in (1.0, 0.9)
    )
    assert [goal.passed for goal in _goals_of_decisions(replace(section, streams=(slow, fast)))] == [False, True]


def test_scheduling_is_judged_for_each_policy_but_not_where_few_tuples_come_at_once() -> None:
    cases = (SchedulingCase(2, 1_000, 2_000), SchedulingCase(5, 1_000, 2_000), SchedulingCase(2, 8, 400))
    loads = scheduling(cases, 1, 0, nothing)
    assert [load.case.name for load in loads][1] == "15 queues, 1,000 tuples at once"
    assert len(_goals_of_scheduling(loads)) == 2 * len(STUDIED)
    assert all(line.steps > 0 and line.deciding > 0 for load in loads for line in load.lines)


def test_the_runner_needs_in_a_burst_about_what_the_simulator_says() -> None:
    load = load_of(FOUR, BURSTS, 600, FRACTION, 1, ())
    for name in ("chain", "fifo"):
        found = run_burst(name, load, 1)
        assert found.simulated_peak == load.run(policy_of(name)).peak * GROUP
        assert 0.6 < found.peak / found.simulated_peak < 1.6
        assert 0 < found.average < found.peak


def test_a_burst_is_the_same_again_and_nothing_of_it_is_left() -> None:
    first, again = (bursts(60, 1, 4, nothing) for _ in range(2))
    assert first == again
    assert [line.policy for line in first.lines] == list(POLICIES)


def test_operators_of_the_burst_take_and_let_pass_what_the_chart_says() -> None:
    clock = WorkClock()
    cells = np.random.default_rng(0).random((3, 10_000))
    sizes, times = [1.0], [0.0]
    for operator in four_operators(clock):
        batch = TupleBatch(np.arange(cells.shape[1]), np.zeros(cells.shape[1]), cells, StreamMoment(0.0, 10_000), 0.0)
        cells = operator.apply(batch).cells
        sizes.append(cells.shape[1] / 10_000)
        times.append(clock.time / UNIT_S / 10_000)
    assert sizes[:-1] == pytest.approx(CHART.sizes[:-1], rel=0.1)
    assert times == pytest.approx(CHART.times, rel=0.1)


def test_bursts_are_judged_by_the_median_of_draws() -> None:
    def line(policy: str, *peaks: float) -> BurstLine:
        return BurstLine(policy, tuple(BurstPeaks(peak, 1.0, peak / 2) for peak in peaks))

    section = BurstSection(1, (line("chain", 1, 1, 1), line("fifo", 1.5, 2, 3), line("round-robin", 1.5, 1.9, 3)))
    assert section.ratios("fifo", simulated=True) == [1.5, 2.0, 3.0]
    assert [goal.passed for goal in _goals_of_bursts(section)] == [True, False]


def test_filters_want_of_a_tuple_what_they_should_and_hits_are_counted_right() -> None:
    low, high = filter_ranges(500, 2.0, 0)
    x = ticks(2_000, 0)
    found = hits(x, low, high)
    assert found.tolist() == [int(np.count_nonzero((low <= one) & (one <= high))) for one in x]
    assert found.mean() == pytest.approx(2.0, rel=0.1)
    assert set(tick_rows(TICKS, x, 0)) == {"X", "V"}
    assert tick_rows(TABLE, x[:3], 9_999)["ID"].tolist() == [9_999, 0, 1]


def test_keys_are_the_same_however_they_are_cut_and_times_of_two_streams_alternate() -> None:
    whole = joined_keys(TRADES, 50, 0, 200_000, 0)
    assert np.array_equal(whole[65_000:131_500], joined_keys(TRADES, 50, 65_000, 131_500, 0))
    trades, quotes = (joined_rows(name, whole[:3], 7, 1)["TS"] for name in (TRADES, QUOTES))
    both = np.stack([trades, quotes]).T.ravel()
    assert (np.diff(both) == np.timedelta64(1, "us")).all()
    assert np.datetime64(time_after(10).replace(tzinfo=None)) > both[-1]


def test_a_lost_tuple_is_a_goal_missed() -> None:
    line = FilterLine(TICKS, 1.0, 1e5, 1e5, 9, 0, 0, 0.1, {}, Spread(2.0, 2.0, 2.0))
    section = FilterSection(10, 4, 2, (line, replace(line, source=TABLE, by_table=None, wrong=7)))
    assert [goal.passed for goal in _goals_of_filters(section)] == [True, True]
    lost = replace(section, lines=(replace(line, missed=1, tuples_s=99_999.0),))
    assert [goal.passed for goal in _goals_of_filters(lost)] == [False, False]


def test_a_join_that_is_not_right_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hullcast.sim.bench.streams.engine.plain_join", lambda streams, rows, each: 1)
    with pytest.raises(MeasurementFailed, match=r"has \d+ results, the one in Python 1"):
        joins(TINY.join, 1, 0, nothing)


@pytest.mark.slow
def test_every_live_section_of_streams_runs(tmp_path: Path) -> None:
    ticked: list[str] = []
    report = STREAMS.measure(TINY, ["filters", "derived"], ticked.append, look_s=0)
    assert len(ticked) == STREAMS.steps(TINY, ["filters", "derived"])
    assert [(line.wrong, line.missed) for line in report.found["filters"].lines] == [(0, 0)] * 4
    assert all(line.events > 0 for line in report.found["filters"].lines)
    assert report.found["derived"].joined.wrong == 0
    assert report.found["derived"].joined.results_s > 0
    assert report.found["derived"].heard > 0
    assert [phase.name for phase in report.found["derived"].push.phases] == [IDLE, BUSY, CONTENDED]
    assert report.found["derived"].push.phase(IDLE).warehouse_cores == 0  # nobody joins there
    assert "a join in a server" in shown(report)
    assert [one.name for one in draw(report, tmp_path)] == ["streams_filters.png", "streams_derived.png"]
