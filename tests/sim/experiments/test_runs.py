"""Whole runs on a tiny network: what they write, that they resume, and that they do not depend on chunks."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow has no types
import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.engine import EngineSettings
from hullcast.sim.experiments.figures import run_figures
from hullcast.sim.experiments.traffic.figures import PAPER
from hullcast.sim.experiments.traffic.settings import FigureSettings, NetworkSettings
from hullcast.sim.experiments.traffic.summary import read_lines
from hullcast.sim.experiments.traffic.workload import TrafficSettings, run_traffic
from hullcast.sim.overlay import PLACEMENTS
from hullcast.sim.traces.synthetic import table51_trace

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

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
    assert "no --data was given" in again.report.read_text()
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
    assert "no --data was given" in report
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


def test_a_replay_does_not_depend_on_chunks_and_counts_every_event(spark: SparkSession, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    table51_trace(trace, rows=40, updates=50, root=1)
    settings = TrafficSettings(TINY.network, 80, ("can-greedy", "tree-content"), trace)
    found = [run_traffic(settings, tmp_path / f"out{chunks}", Told(), chunks=chunks, spark=spark) for chunks in (1, 7)]
    one, seven = ([replace(line, seconds=0.0, memory_bytes=0) for line in each.lines] for each in found)
    assert one == seven
    table = pq.read_table(found[0].events)
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


def test_what_goes_wrong_inside_spark_is_told_in_a_line_and_nothing_is_left(
    spark: SparkSession, tmp_path: Path
) -> None:
    trace, out = tmp_path / "trace", tmp_path / "out"
    table51_trace(trace, rows=5, updates=10, root=1)
    file = trace / "events" / "part=0000" / "events.parquet"
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
        run_figures(PAPER, TINY, ["5.10"], tmp_path / "out", Told(), data=tmp_path)
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
