"""Rows from Spark into a table: columns, deletes, refusals, and tasks that run twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import psutil
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import hullcast
from hullcast.clients.spark.writing import Numbering
from tests.clients.spark.conftest import Live

ROWS = """
    SELECT concat('S', id) AS SYMBOL, concat('SECTOR ', id % 7) AS SECTOR, id / 10 AS RISK, CAST(id AS FLOAT) AS PER,
           CAST(id AS INT) AS LOTS, timestamp_micros(id * 1000001) AS AT
    FROM range(0, {}, 1, 4)
"""


def test_every_type_arrives_and_the_rows_are_those_of_spark(live: Live) -> None:
    table = live.table()
    live.write(live.spark.sql(ROWS.format(60_000)), table)
    found = live.rows(f"SELECT COUNT(*), SUM(RISK), SUM(PER), SUM(LOTS), COUNT(DISTINCT SECTOR) FROM {table}")
    total = 60_000 * 59_999 // 2
    assert found == [(60_000, pytest.approx(total / 10), total, total, 7)]
    row = live.db.query(f"SELECT SECTOR, RISK, PER, LOTS, AT FROM {table} WHERE SYMBOL = 'S59999'")[0]
    assert (row.SECTOR, row.RISK, row.PER, row.LOTS) == ("SECTOR 2", 5999.9, 59999.0, 59999)
    assert row.AT.timestamp() == pytest.approx(59999 * 1.000001, abs=1e-6)


def test_rows_marked_as_deleted_are_deleted_in_the_order_of_the_rows(live: Live) -> None:
    table = live.table()
    rows = [
        ("A", 1.0, False),
        ("B", 2.0, False),
        ("A", None, True),
        ("C", 3.0, None),
        ("B", 4.0, True),
        ("A", 5.0, False),
    ]
    frame = live.spark.createDataFrame(rows, "SYMBOL STRING, PER DOUBLE, _deleted BOOLEAN").coalesce(1)
    live.write(frame, table, deleted="_deleted")
    assert live.rows(f"SELECT SYMBOL, PER FROM {table} ORDER BY SYMBOL") == [("A", 5.0), ("C", 3.0)]


def test_nan_is_refused_or_stored_as_null(live: Live) -> None:
    table = live.table()
    frame = live.spark.sql("SELECT 'A' AS SYMBOL, double('NaN') AS PER")
    with pytest.raises(PySparkException, match=r"column PER: .*NaN"):
        live.write(frame, table)
    live.write(frame, table, nan="null")
    assert live.rows(f"SELECT SYMBOL, PER FROM {table}") == [("A", None)]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT 'A' AS SYMBOL, 'cheap' AS PER", "column PER of {} is REAL, which takes .*; the rows have STRING"),
        ("SELECT 'A' AS SYMBOL, 1.5D AS LOTS", "column LOTS of {} is INTEGER, which takes .*; the rows have DOUBLE"),
        ("SELECT 'A' AS SYMBOL, 1 AS PRICE", "no column PRICE in {}; columns: SYMBOL, SECTOR, RISK, PER, LOTS, AT"),
        (
            "SELECT 'A' AS SYMBOL, 1.0D AS PER, 2.0D AS per",
            r"the rows have column PER twice \(PER, per\); rename or drop",
        ),
        ("SELECT 1.0D AS PER", "the rows lack the key column SYMBOL of {}; they have PER"),
    ],
)
def test_columns_that_do_not_fit_are_named_before_anything_is_written(live: Live, sql: str, said: str) -> None:
    table = live.table()
    before = live.db.sync()
    with pytest.raises(PySparkException, match=said.format(table)):
        live.write(live.spark.sql(sql), table)
    assert live.db.sync() == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tabel": "X"}, "option tabel = 'X': did you mean table? options of a write are table, deleted, nan, url, "),
        ({"table": ""}, 'option table = None: is needed, such as .option("table", "STOCK")'),
        ({"table": "NOT_THERE"}, "no table NOT_THERE; tables: "),
        ({"url": "here"}, "url = 'here': "),
        ({"nan": "maybe"}, "option nan = 'maybe': must be refuse or null"),
        ({"deleted": "GONE"}, "option deleted = 'GONE': the rows have no such column; they have SYMBOL, PER"),
        ({"key": "/no/such.key"}, "an encrypted connection needs both your key pair"),
        ({"timeout": "soon"}, "timeout = 'soon': must be a number of seconds"),
    ],
)
def test_a_wrong_option_is_answered_with_one_line(live: Live, options: dict[str, str], said: str) -> None:
    table = live.table()
    frame = live.spark.sql("SELECT 'A' AS SYMBOL, 1.0D AS PER")
    with pytest.raises(PySparkException) as caught:
        live.write(frame, **{"table": table} | options)
    lines = [line for line in str(caught.value).splitlines() if said in line]
    assert lines, str(caught.value)
    assert "hullcast.network.wire.errors" in lines[0]  # as `told_in_a_line` looks for it


def test_overwriting_is_refused(live: Live) -> None:
    table = live.table()
    writer = live.spark.sql("SELECT 'A' AS SYMBOL").write.format("hullcast").options(**live.options(table))
    with pytest.raises(PySparkException, match=r'use mode\("append"\)'):
        writer.mode("overwrite").save()


# -- tasks that run again ------------------------------------------------------------------------------------


def wait_for_key(url: str, table: str, key: str) -> None:
    """Until the first rows of a task are in the table."""
    with hullcast.connect_blocking(url, timeout=60) as db:
        while not db.query(f"SELECT SYMBOL FROM {table} WHERE SYMBOL = ?", key):
            pass


def dying(frame: DataFrame, url: str, table: str, victims: str) -> DataFrame:
    """The same rows. The first attempt at each partition ends with SIGKILL once some of its rows are in the table:
    `own` is the process that computes the rows, `others` are those that write them (and their other siblings)."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        sent = 0
        for batch in batches:
            yield batch
            sent += batch.num_rows
            if task.attemptNumber() == 0 and sent >= 100_000:
                wait_for_key(url, table, batch.column(0)[0].as_py().split("-")[0] + "-0")
                if victims == "own":
                    os.kill(os.getpid(), signal.SIGKILL)
                for sibling in psutil.Process(os.getppid()).children():
                    if sibling.pid != os.getpid():
                        sibling.kill()

    return frame.mapInArrow(run, frame.schema)


MANY = """
    SELECT concat(id DIV 150000, '-', id % 150000) AS SYMBOL, concat('SECTOR ', id % 7) AS SECTOR, DOUBLE(id) AS PER
    FROM range(0, 300000, 1, 2)
"""


@pytest.mark.parametrize("victims", [pytest.param("own", marks=pytest.mark.slow), "others"])
def test_the_rows_of_a_task_that_was_killed_and_runs_again_are_applied_once(live: Live, victims: str) -> None:
    table = live.table()
    before = live.db.sync()
    live.write(dying(live.spark.sql(MANY), live.url, table, victims), table)
    assert live.rows(f"SELECT COUNT(*), COUNT(DISTINCT SECTOR), SUM(PER) FROM {table}") == [
        (300_000, 7, 300_000 * 299_999 / 2)
    ]
    assert live.db.sync() - before == 300_000  # each row is one update


@pytest.mark.slow
def test_a_task_whose_rows_come_in_another_order_the_second_time_loses_none(live: Live) -> None:
    table = live.table("SYMBOL TEXT PRIMARY KEY, PER REAL")
    url = live.url

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        for batch in batches:
            keys = range(200_000) if task.attemptNumber() == 0 else range(200_000, 0, -1)
            for begin in range(0, len(keys), 10_000):
                some = keys[begin : begin + 10_000]
                yield pa.record_batch([pa.array(map(str, some)), pa.array(some, pa.float64())], batch.schema.names)
                if task.attemptNumber() == 0 and begin == 150_000:
                    wait_for_key(url, table, "0")
                    raise ValueError("once more")

    frame = live.spark.sql("SELECT 'A' AS SYMBOL, 1.0D AS PER FROM range(0, 1, 1, 1)")
    live.write(frame.mapInArrow(run, frame.schema), table)
    count, total, keys = live.rows(f"SELECT COUNT(*), SUM(PER), SUM(CAST(SYMBOL AS INTEGER)) FROM {table}")[0]
    assert (count, total) == (200_001, keys)  # both attempts' rows: 0 to 199,999, then 200,000 to 1


# -- streams -------------------------------------------------------------------------------------------------


def stream(live: Live, table: str, folder: Path, sectors: bool = False) -> None:
    """All files of a folder that are not in the table yet, and no longer; or how many rows each of ten sectors has."""
    frame = live.spark.readStream.schema("SYMBOL STRING, PER DOUBLE").json(str(folder / "in"))
    if sectors:
        frame = frame.groupBy((frame.PER % 10).cast("string").alias("SYMBOL")).agg({"PER": "count"})
        frame = frame.withColumnRenamed("count(PER)", "LOTS")
    writer = frame.writeStream.format("hullcast").options(**live.options(table))
    writer = writer.outputMode("complete" if sectors else "append")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def add_file(spark: SparkSession, folder: Path, first: int, last: int) -> None:
    frame = spark.sql(f"SELECT concat('S', id) AS SYMBOL, CAST(id AS DOUBLE) AS PER FROM range({first}, {last}, 1, 2)")
    frame.write.mode("append").json(str(folder / "in"))


def test_a_micro_batch_that_runs_again_is_applied_once(live: Live, tmp_path: Path) -> None:
    table = live.table()
    before = live.db.sync()
    add_file(live.spark, tmp_path, 0, 1000)
    stream(live, table, tmp_path)
    add_file(live.spark, tmp_path, 1000, 3000)
    stream(live, table, tmp_path)
    assert live.db.sync() - before == 3000
    commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    commits[-1].unlink()  # as if the driver had died after the rows were written
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink()
    add_file(live.spark, tmp_path, 3000, 3500)
    stream(live, table, tmp_path)
    assert live.rows(f"SELECT COUNT(*), SUM(PER) FROM {table}") == [(3500, 3500 * 3499 / 2)]
    assert live.db.sync() - before == 3500


@pytest.mark.slow
def test_a_stream_of_aggregates_updates_their_rows(live: Live, tmp_path: Path) -> None:
    table = live.table()
    for first, last in ((0, 100), (100, 1000)):
        add_file(live.spark, tmp_path, first, last)
        stream(live, table, tmp_path, sectors=True)
    assert live.rows(f"SELECT COUNT(*), MIN(LOTS), MAX(LOTS) FROM {table}") == [(10, 100, 100)]


@pytest.mark.slow
def test_a_stream_that_goes_back_further_than_receipts_are_kept_says_so(live: Live, tmp_path: Path) -> None:
    table = live.table()
    for batch in range(2):
        add_file(live.spark, tmp_path, 10 * batch, 10 * batch + 10)
        stream(live, table, tmp_path)
    before = live.db.sync()
    query = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    name = blake2b(f"{query} {table}".encode(), digest_size=16).digest()
    for batch in range(2, 70):  # as many micro-batches, without Spark
        for partition in range(2):
            numbering = Numbering(name, partition, batch)
            live.db.change_once(numbering.publisher(0), numbering.number(0, 7), table, keys=["NOT THERE"])
    for folder in ("commits", "offsets"):
        for path in (tmp_path / "checkpoint" / folder).glob("*1*"):
            path.unlink()
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink()
    with pytest.raises(PySparkException, match=r"of micro-batch 0 was written to .* so long ago"):
        stream(live, table, tmp_path)
    assert live.db.sync() == before + 2 * 68


@pytest.mark.slow
def test_a_stream_whose_columns_do_not_fit_says_which_and_writes_nothing(live: Live, tmp_path: Path) -> None:
    table = live.table("SYMBOL TEXT PRIMARY KEY, PER TEXT")
    add_file(live.spark, tmp_path, 0, 10)
    with pytest.raises(PySparkException, match=f"column PER of {table} is TEXT, which takes"):
        stream(live, table, tmp_path)
    assert live.rows(f"SELECT COUNT(*) FROM {table}") == [(0,)]
