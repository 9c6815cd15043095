"""Traces on disk: what is written is read again, by Spark and without."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.spark.storage import place_of
from hullcast.sim.traces import trace
from hullcast.sim.traces.folders import check_folder
from hullcast.sim.traces.market import market, market_trace
from hullcast.sim.traces.synthetic import table51_trace
from hullcast.sim.traces.trace import (
    Columns,
    TraceInfo,
    create_statement,
    files_of,
    parts_of,
    read_info,
    read_parts,
    runs,
)
from hullcast.sim.traffic.replay import check_trace

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NAN = float("nan")


def small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> TraceInfo:
    """Two rows, then seven events in parts of three: the third deletes."""
    monkeypatch.setattr(trace, "PART_EVENTS", 3)
    start = Columns(["1", "2"], np.array([1.0, 2.0]), np.array([5.0, 6.0]))
    x = np.array([1.0, 2.0, NAN, 3.0, 3.0, 1.0, NAN])
    changes = Columns(["1", "2", "1", "3", "3", "1", "2"], x, 10 * x)
    info = TraceInfo("small", "POINTS", "ID", "X", "Y", "INTEGER", (0.0, 10.0), events=7, start=2, refused={"dirt": 3})
    trace.write_columns(folder, info, changes, start)
    return info


def test_spark_reads_what_was_written(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(tmp_path, monkeypatch)
    rows = trace.events(spark, tmp_path).sort("seq").collect()
    assert [row.seq for row in rows] == list(range(-2, 7))
    assert [(part.first, part.last) for part in parts_of(tmp_path)] == [(-2, -1), (0, 2), (3, 5), (6, 6)]
    for strange in ("00009.parquet", "00001.parquet.bak", "README.txt", "seq=5/00001.parquet"):
        file = tmp_path / "events" / strange
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(parts_of(tmp_path)[1].place.read_bytes() if "01" in strange else b"of an older trace")
        assert trace.events(spark, tmp_path).count() == 9
        file.unlink()
    assert [(row.key, row.x, row.y) for row in rows[1:5]] == [
        ("2", 2, 6),
        ("1", 1, 10),
        ("2", 2, 20),
        ("1", None, None),
    ]
    assert {row.at for row in rows} == {None}


def test_a_replay_refuses_a_trace_that_lacks_its_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = small(tmp_path, monkeypatch)
    assert check_trace(trace.events(spark, tmp_path), (info.events, info.start)) == 7
    trace.write_info(info, tmp_path, parts_of(tmp_path)[:-1])
    with pytest.raises(UsageError, match=r"has 6 events and 2 rows at the start, but its trace\.json says 7 and 2"):
        check_trace(trace.events(spark, tmp_path), (info.events, info.start))
    small(tmp_path, monkeypatch)
    parts_of(tmp_path)[-1].place.local.unlink()
    with pytest.raises(UsageError, match=r"is incomplete: events/0000\d\.parquet is missing; make the trace again"):
        trace.events(spark, tmp_path)


def test_it_is_read_in_order_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = small(tmp_path, monkeypatch)
    assert read_info(tmp_path) == info
    tables = list(read_parts(tmp_path))
    assert [table.column("seq").to_pylist() for table in tables] == [[-2, -1], [0, 1, 2], [3, 4, 5], [6]]
    cut = [(run.deletes, run.begin, run.count) for table in tables for run in runs(info, table)]
    assert cut == [(False, 0, 2), (False, 0, 2), (True, 2, 1), (False, 0, 3), (True, 0, 1)]
    rows = next(runs(info, tables[2])).rows
    assert {name: values.tolist() for name, values in rows.items()} == {
        "ID": [3, 3, 1],
        "X": [3.0, 3.0, 1.0],
        "Y": [30.0, 30.0, 10.0],
    }
    assert create_statement(info) == "CREATE TABLE POINTS (ID INTEGER PRIMARY KEY, X REAL, Y REAL)"


def test_a_folder_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not a trace: it has no trace\.json"):
        read_info(tmp_path)
    for text in ("{", "[]", json.dumps({"version": 99, "name": "x", "events": 1}), json.dumps({"version": 2})):
        (tmp_path / "trace.json").write_text(text)
        with pytest.raises(UsageError, match=r"trace\.json"):
            read_info(tmp_path)


@pytest.mark.parametrize("domain", ["[1]", '"15"', "[5, 1]", "[1, NaN]", "null", "[1, true]"])
def test_a_domain_that_is_none_is_refused(tmp_path: Path, domain: str) -> None:
    (tmp_path / "trace.json").write_text(
        f'{{"version": 2, "name": "x", "events": 1, "files": {{"events": []}}, "domain": {domain}}}'
    )
    with pytest.raises(UsageError, match=r"trace\.json: domain cannot be"):
        read_info(tmp_path)


def test_a_trace_of_an_older_version_is_refused_by_its_version(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(json.dumps({"version": 1, "name": "x", "events": 1}))
    with pytest.raises(UsageError, match="a trace of version 1, and this is version 2; make the trace again"):
        read_info(tmp_path)
    (tmp_path / "events" / "part=0000").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"replaces traces and nothing else: .* version 1"):
        check_folder(tmp_path, force=True)


def test_a_trace_in_another_storage_is_written_read_checked_and_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """Another scheme than `file:`; below it is a folder here, so that we can look."""
    java: Any = spark.sparkContext._jsc
    java.hadoopConfiguration().set("fs.viewfs.mounttable.traces.link./data", f"file:{tmp_path}")
    folder = place_of("viewfs://traces/data/trace")
    info = market_trace(spark, market(20, 3), folder)
    assert read_info(folder) == info
    assert check_trace(trace.events(spark, folder), (info.events, 0)) == info.events
    with pytest.raises(UsageError, match="is not empty"):
        table51_trace(folder, rows=5, updates=7)
    other = table51_trace(folder, rows=5, updates=7, force=True)
    assert check_trace(trace.events(spark, folder), (7, 5)) == other.events == 7
    assert [table.column("seq").to_pylist() for table in read_parts(folder)] == [[*range(-5, 0)], [*range(7)]]
    assert sorted(found.name for found in folder.entries()) == ["events", "trace.json"]
    assert {path.name for path in (tmp_path / "trace" / "events").glob("*.parquet")} == files_of(folder)["events"]
