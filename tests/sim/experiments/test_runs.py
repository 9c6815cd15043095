"""Whole runs on a tiny network: what they write, that they resume, and that they do not depend on chunks."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow has no types
import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.engine.benchmark import EngineSettings
from hullcast.sim.experiments.data import NetworkFile, Prices, RealData, collected
from hullcast.sim.experiments.figures import run_figures
from hullcast.sim.experiments.run import ExperimentRun, kept
from hullcast.sim.experiments.steps import RunFolder
from hullcast.sim.experiments.traffic import replays
from hullcast.sim.experiments.traffic.figures import PAPER
from hullcast.sim.experiments.traffic.inputs import Input, real_traces, spreads
from hullcast.sim.experiments.traffic.networks import Law
from hullcast.sim.experiments.traffic.replays import Point, Replays
from hullcast.sim.experiments.traffic.settings import FigureSettings, NetworkSettings
from hullcast.sim.experiments.traffic.summary import read_lines
from hullcast.sim.experiments.traffic.workload import TrafficSettings, run_traffic
from hullcast.sim.overlay import PLACEMENTS
from hullcast.sim.spark.storage import Place
from hullcast.sim.traces.columns import reading_of
from hullcast.sim.traces.synthetic import table51_trace
from hullcast.sim.traces.trace import Columns, TraceInfo, write_columns
from hullcast.sim.traffic.replay import replay_sums

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

TINY = FigureSettings(
    network=NetworkSettings(nodes=50, brokers=6, fanout=3),
    subscriptions=200,
    rows=60,
    events=60,
    ignorable=(0.0, 0.8),
    spikes=(0.0, 0.1),
    growing=(50, 100),
    stocks=30,
    days=2,
    seeds=2,
    engine=EngineSettings(
        rows=(200, 400),
        subscriptions=300,
        fewest_rows=200,
        sweep=(100, 400),
        rounds=2,
        updates=200,
        unicast_updates=100,
        batch=50,
        curve=(),
        requeries=5,
    ),
    full=False,
)


class Told:
    """A progress that remembers, and can break a run off."""

    def __init__(self, stop_at: str | None = None) -> None:
        self.begun: list[str] = []
        self._stop_at = stop_at

    def begin(self, what: str) -> None:
        self.begun.append(what)
        if what == self._stop_at:
            raise KeyboardInterrupt

    def tasks(self, done: int, known: int) -> None:
        assert 0 <= done <= known


def test_a_run_that_was_broken_off_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_figures(PAPER, TINY, ["5.8"], out, Told("5.8-0.80"), keep=True, spark=spark)
    told = Told()
    found = run_figures(PAPER, TINY, ["5.8"], out, told, resume=True, keep=True, spark=spark)
    assert found.reused == ["trace-ignorable-0.00", "5.8-0.00", "trace-ignorable-0.80"]
    assert "5.8-walk-0.80" in told.begun
    assert len(told.begun) == PAPER.steps(TINY, ["5.8"], None)
    lines = read_lines(out / "fig_5_8.parquet")
    assert len(lines) == 2 * 2 * 2 * 4 * 4, "points, variants, draws, placements and approaches"
    assert Counter(line.draw for line in lines) == {0: 64, 1: 64}
    assert {line.cores for line in lines} == {2}
    shares = {line.x: 1 - line.cost.changing / line.cost.events for line in lines}
    assert shares[0.0] == 0.0
    assert shares[0.8] > 0.6
    (out / "steps" / "5.8-0.00" / "lines.parquet").write_bytes(b"PAR1")
    again = run_figures(PAPER, TINY, ["5.8"], out, Told(), resume=True, keep=True, spark=spark)
    assert "5.8-0.00" not in again.reused
    assert "5.8-0.80" in again.reused
    assert "nor --data was given" in again.report.read_text()
    # The events that were kept are those that were counted.
    for step in ("5.8-0.80", "5.8-walk-0.00"):
        table = pq.read_table(out / "steps" / step / "events").to_pandas()
        assert len(table) == 60 * 2 * 4 * 4
        assert set(table["placement"]) == {f"{draw}/{name}" for draw in (0, 1) for name in PLACEMENTS}
        of = {(line.draw, line.cost.placement, line.cost.approach): line.cost.bytes
              for line in read_lines(out / "steps" / step / "lines.parquet")}  # fmt: skip
        mine = table[(table["placement"] == "1/can") & (table["approach"] == "CN")]
        assert mine["bytes"].mean() == pytest.approx(of[1, "can", "CN"])


@pytest.mark.slow
def test_a_whole_run_reports_everything(spark: SparkSession, tmp_path: Path) -> None:
    asked = ["5.2", "5.6", "5.3", "5.7", "networks", "5.8", "5.9", "5.10", "stress"]
    out, told = tmp_path / "out", Told()
    found = run_figures(PAPER, TINY, asked, out, told, spark=spark)
    assert len(told.begun) == PAPER.steps(TINY, asked, None)
    report = found.report.read_text()
    for picture in re.findall(r"\]\(([^)]+\.png)\)", report):
        assert (out / picture).read_bytes().startswith(b"\x89PNG")
    for table in re.findall(r"`([^`]+\.parquet)`", report):
        assert pq.read_table(out / table).num_rows
    assert "## Goals" in report
    assert "nor --data was given" in report
    assert [section.name for section in found.sections] == asked
    for part in (
        "2 networks were drawn (seeds 0 to 1)",
        "random walk (as Xie 2007",
        "of 2 draws",
        "Times are those of this",
    ):
        assert part in report
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == len(re.findall(r"^!\[", report, re.MULTILINE)) == 8


def own_files(folder: Path, recommendations: list[str]) -> tuple[Place, Place]:
    """Prices of stocks in August 1999, and fundamentals of other names."""
    rows = [
        f"08/{day}/1999,{10 + stock},x,{10 + stock + (day * stock) % 3},S{stock}"
        for day in (16, 17, 18)
        for stock in range(len(recommendations))
    ]
    (folder / "mine.csv").write_text("\n".join(["date,open,high,close,Name", *rows]) + "\n")
    stocks = [f"S{stock},Company {stock},1.5,{reco}" for stock, reco in enumerate(recommendations)]
    (folder / "stocks.csv").write_text("\n".join(["Symbol,Name,Earnings/Share,Stars", *stocks]) + "\n")
    return Place(folder / "mine.csv"), Place(folder / "stocks.csv")


def test_a_workload_speaks_of_the_files_and_dates_it_is_made_of(spark: SparkSession, tmp_path: Path) -> None:
    given = own_files(tmp_path, ["2.31", "1.75", "3"])
    prices = Prices(*given, reading_of(["RECO=Stars"]), first=date(1999, 8, 17))

    def made(prices: Prices) -> tuple[Input, list[str]]:
        with RunFolder(tmp_path / "out", {}, resume=True) as folder, ExperimentRun(folder, Told(), spark=spark) as run:
            (found,) = real_traces(Replays(run, TINY.network), TINY, prices)
            return found, folder.reused

    found, _ = made(prices)
    assert (found.workload, found.stocks) == ("mine.csv", 3)
    assert found.about == (
        "mine.csv from 1999-08-17 to 1999-08-18, RECO as published: 3 distinct RECO; 0 prices refused."
    )
    assert found.note == "EPS and RECO are those of stocks.csv, taken as constant while prices change (1999)."
    found, reused = made(replace(prices, name="real prices", dated="May 1998"))
    assert reused == ["trace-real"]
    assert found.about.startswith("Real prices from 1999-08-17 to")
    assert found.note == "Prices are of 1999, EPS and RECO of May 1998: the real workload mixes two dates."
    own_files(tmp_path, ["2.31", "1.75", "3", "4"])  # other prices under the same name
    found, reused = made(prices)
    assert (found.stocks, reused) == (4, [])
    file = given[0].local
    file.write_text(file.read_text().replace("08/17/1999,10,", "08/17/1999,19,"))  # as many bytes, another price
    assert made(prices)[1] == []
    assert made(prices)[1] == ["trace-real"]


@pytest.mark.slow
def test_figures_speak_of_the_user_s_own_prices_and_network(spark: SparkSession, tmp_path: Path) -> None:
    small = replace(TINY, growing=(50, 60))
    ring = "".join(f"{node}|{(node + 1) % 20}|-1|bgp\n" for node in range(20))
    (tmp_path / "ring.txt").write_text(ring)
    prices = Prices(*own_files(tmp_path, ["2.31", "1.75", "3"]), reading_of(["RECO=Stars"]))
    data = RealData(replace(prices, first=date(1999, 8, 17)), NetworkFile(tmp_path / "ring.txt", ("2", "1")))
    told, asked = Told(), ["5.10", "control"]
    found = run_figures(PAPER, small, asked, tmp_path / "out", told, data=data, spark=spark)
    assert len(told.begun) == PAPER.steps(small, asked, data)
    assert told.begun.index("trace real") < told.begun.index("5.10-market-50"), "what may be wrong comes first"
    report = found.report.read_text()
    for part in (
        "workloads: calibrated market; mine.csv\n",
        "mine.csv from 1999-08-17 to 1999-08-18, RECO as published: 3 distinct RECO; 0 prices refused.",
        "EPS and RECO are those of stocks.csv, taken as constant while prices change (1999).",
        "Control: ring.txt",
    ):
        assert part in report
    for part in ("2013", "2015", "2006", "--data was given"):
        assert part not in report
    events = {line.workload: line.cost.events for line in read_lines(tmp_path / "out" / "fig_5_10.parquet")}
    assert events["mine.csv"] == 2 * 2 * 3
    assert {line.topology for line in read_lines(tmp_path / "out" / "control.parquet")} == {"INET 50 seed 0", "ring"}


def test_recommendations_by_tenths_are_also_spread(tmp_path: Path) -> None:
    reading = reading_of(["RECO=Stars"])
    assert list(spreads(Prices(*own_files(tmp_path, ["2.3", "1.7", "0.123"]), reading)).values()) == [None, 0.01]
    assert list(spreads(Prices(*own_files(tmp_path, ["2.3", "1.75"]), reading)).values()) == [None]


def test_prices_of_which_none_can_be_used_end_a_run_at_once(spark: SparkSession, tmp_path: Path) -> None:
    data = RealData(Prices(*own_files(tmp_path, ["7", "0"]), reading_of(["RECO=Stars"])))
    told = Told()
    with pytest.raises(UsageError, match=r"every price was refused \(RECO outside 1 to 5\); .*sim trace yahoo"):
        run_figures(PAPER, TINY, ["5.8", "5.10"], tmp_path / "out", told, data=data, spark=spark)
    assert not any(what.startswith("5.") for what in told.begun)
    assert not (tmp_path / "out").exists()
    days = RealData(replace(Prices(*own_files(tmp_path, ["2"]), reading_of(["RECO=Stars"])), days=9))
    with pytest.raises(UsageError, match=r"have 3 days, but 9 were asked for; give --days 3 or fewer"):
        run_figures(PAPER, TINY, ["5.10"], tmp_path / "out", Told(), data=days, spark=spark)


def test_a_replay_does_not_depend_on_chunks_and_counts_every_event(spark: SparkSession, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    table51_trace(trace, rows=40, updates=50, root=1)
    settings = TrafficSettings(TINY.network, 80, ("can-greedy", "tree-content"), trace)
    found = [
        run_traffic(settings, tmp_path / f"out{chunks}", Told(), chunks=chunks, keep=chunks == 1, spark=spark)
        for chunks in (1, 7)
    ]
    one, seven = ([replace(line, seconds=0.0, memory_bytes=0) for line in each.lines] for each in found)
    assert one == seven
    assert found[1].events is None
    assert not (tmp_path / "out7" / "steps" / "replay" / "events").exists()
    assert found[0].events is not None
    table = pq.read_table(found[0].events.local)
    assert table.num_rows == 50 * 2 * 4
    for line in one:
        mine = [
            row
            for row in table.to_pylist()
            if (row["placement"], row["approach"]) == (line.cost.placement, line.cost.approach)
        ]
        assert line.cost.bytes == pytest.approx(sum(row["bytes"] for row in mine) / 50)
    assert "can-greedy" in found[0].summary.read_text()
    assert (tmp_path / "out1" / "summary.png").exists()


def test_results_of_other_events_are_not_taken_for_those_of_a_trace(
    spark: SparkSession, tmp_path: Path, elsewhere: Place
) -> None:
    """The same trace.json, other events: a run is not continued, and a step of a run is made again."""

    def written(folder: Place, y: float) -> Place:
        info = TraceInfo("mine", domain=(0.0, 10.0), events=2)
        write_columns(folder, info, Columns(["a", "b"], np.array([1.0, 5.0]), np.array([2.0, y])))
        return folder

    for trace in (Place(tmp_path / "trace"), elsewhere / "trace"):
        settings = TrafficSettings(TINY.network, 80, ("can",), written(trace, 3.0))
        out = tmp_path / f"out-{trace.is_local}"
        run_traffic(settings, out, Told(), spark=spark)
        written(trace, 3.0)
        if trace.is_local:  # elsewhere a file that was written again counts as another one
            assert run_traffic(settings, out, Told(), spark=spark, resume=True).reused == ["replay"]
        written(trace, 1.0)
        with pytest.raises(UsageError, match="was made with other settings: trace_contents "):
            run_traffic(settings, out, Told(), spark=spark, resume=True)
    point = Point("p", "mine", 1, tmp_path / "trace", Law().over((0.0, 10.0)), 80, ("can",))
    for y, reused in ((1.0, []), (1.0, ["p"]), (4.0, [])):
        written(Place(tmp_path / "trace"), y)
        out = tmp_path / "steps"
        with RunFolder(out, {}, resume=True) as folder, ExperimentRun(folder, Told(), spark=spark) as run:
            Replays(run, TINY.network).measure(point)
            assert folder.reused == reused


def test_results_are_the_same_where_only_spark_reaches(spark: SparkSession, tmp_path: Path, elsewhere: Place) -> None:
    trace = tmp_path / "trace"
    table51_trace(trace, rows=40, updates=50, root=1)
    settings = TrafficSettings(TINY.network, 80, ("can",), trace)
    here = run_traffic(settings, tmp_path / "out", Told(), keep=True, spark=spark)
    there = run_traffic(settings, elsewhere, Told(), keep=True, spark=spark)
    again = run_traffic(settings, elsewhere, Told(), keep=True, spark=spark, resume=True)
    assert again.reused == ["replay"]
    for found in (there, again):
        mine, other = ([replace(line, seconds=0.0, memory_bytes=0) for line in each.lines] for each in (found, here))
        assert mine == other
        rows, expected = (
            spark.read.parquet(each.events.to_read if each.events is not None else "")
            .orderBy("seq", "placement", "approach")
            .collect()
            for each in (found, here)
        )
        assert rows == expected
    assert {item.name for item in elsewhere.entries()} == {
        "run.json",
        "steps",
        "summary.md",
        "summary.parquet",
        "summary.png",
    }
    assert (elsewhere / "summary.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("keep", [True, False])
def test_results_that_are_lost_on_the_way_fail_the_step(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    """As with a worker that writes to a disk of its own."""
    trace, out = tmp_path / "trace", tmp_path / "out"
    table51_trace(trace, rows=40, updates=50, root=1)
    settings = TrafficSettings(TINY.network, 80, ("can",), trace)

    def losing_a_file(table: DataFrame, folder: Place) -> DataFrame:
        kept(table, folder)
        next(folder.local.glob("*.parquet")).unlink()
        return spark.read.schema(table.schema).parquet(folder.to_read)

    def losing_a_chunk(*given: Any, **how: Any) -> DataFrame:
        return replay_sums(*given, **how).where("NOT (approach = 'CN' AND node_stress > 0)")

    monkeypatch.setattr(replays, "kept", losing_a_file)
    monkeypatch.setattr(replays, "replay_sums", losing_a_chunk)
    with pytest.raises(UsageError, match=r"the replay has \d+ events for can, [-A-Z]+, but the trace has 50"):
        run_traffic(settings, out, Told(), chunks=3, keep=keep, spark=spark)
    assert not out.exists()
    monkeypatch.undo()
    assert run_traffic(settings, out, Told(), chunks=3, keep=keep, spark=spark).reused == []


def test_what_goes_wrong_inside_spark_is_told_in_a_line_and_nothing_is_left(
    spark: SparkSession, tmp_path: Path
) -> None:
    trace, out = tmp_path / "trace", tmp_path / "out"
    table51_trace(trace, rows=5, updates=10, root=1)
    file = trace / "events" / "00001.parquet"
    table = pq.read_table(file, partitioning=None)
    place = table.schema.get_field_index("x")
    pq.write_table(table.set_column(place, "x", table["x"].cast("string")), file)
    assert spark.getActiveSession() is not None  # which is the one that the run takes
    with pytest.raises(UsageError, match="Spark cannot continue"):
        run_traffic(TrafficSettings(TINY.network, 80, ("can",), trace), out, Told())
    assert not out.exists()


def test_what_cannot_be_run_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown placement ring"):
        TrafficSettings(placements=("ring",))
    with pytest.raises(UsageError, match="is not a trace"):
        run_traffic(TrafficSettings(trace=tmp_path), tmp_path / "out", Told())
    with pytest.raises(UsageError, match=r"pystock.* not found"):
        collected(tmp_path)
    away = Place(tmp_path / "gone.csv")
    with pytest.raises(UsageError, match=r"cannot read .*gone.csv: No such file"):
        run_figures(PAPER, TINY, ["5.10"], tmp_path / "out", Told(), data=RealData(Prices(away, away)))
    assert not (tmp_path / "out").exists()


def test_sections_come_in_the_order_of_the_report() -> None:
    assert PAPER.asked(["stress", "5.8"], None) == ["5.8", "stress"]
    assert PAPER.asked([], None)[0] == "5.2"


def test_tables_and_figures_of_the_server_need_neither_network_nor_spark_and_are_measured_once(tmp_path: Path) -> None:
    asked, told = ["5.2", "5.6", "5.3", "5.7"], Told()
    found = run_figures(PAPER, TINY, asked, tmp_path / "out", told)
    assert told.begun == ["server, by rows", "server, by subscriptions"]
    assert len(told.begun) == PAPER.steps(TINY, asked, None)
    assert [section.name for section in found.sections] == asked
    report = found.report.read_text()
    assert "Measured on " in report
    assert "other work on it disturbs" in report
    again = run_figures(PAPER, TINY, ["5.7"], tmp_path / "out", Told(), resume=True)
    assert again.reused == ["server-subscriptions"]
    assert again.sections[0] == found.sections[3], "what is read back is what was measured"


def test_more_draws_than_fit_in_a_pass_are_refused() -> None:
    assert PAPER.seeded(TINY, 7, None).seeds == 2
    with pytest.raises(UsageError, match="at most 25 networks"):
        PAPER.seeded(TINY, 0, 26)
