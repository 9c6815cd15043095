"""The events of a subscription as a stream of Spark's: as the SDK gives them, from a checkpoint on, and lost ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tests.clients.spark.conftest import Live
from tests.support.cluster import PATIENCE_S


def events(live: Live, sql: str, *parameters: object, **options: object) -> DataFrame:
    given = {"url": live.url, "timeout": str(PATIENCE_S), "subscription": sql, "parameters": json.dumps(parameters)}
    reader = live.spark.readStream.format("hullcast").options(**given, **{k: str(v) for k, v in options.items()})
    return reader.load()


def take(frame: DataFrame, folder: Path) -> None:
    """What there is now, after what the folder has, into it."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out")).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        assert query.awaitTermination(int(PATIENCE_S))
    finally:
        query.stop()


def found(live: Live, folder: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in live.spark.read.parquet(str(folder / "out")).collect())


def test_each_change_of_an_answer_is_a_row_across_restarts_of_the_query(live: Live, tmp_path: Path) -> None:
    table = live.table()
    live.db.publish(table, {"SYMBOL": ["A"], "RISK": [30.0], "PER": [9.0]})
    frame = events(live, f"SELECT MIN(PER) AS LOWEST FROM {table} WHERE RISK BETWEEN ? AND ?", 20, 60)
    assert frame.schema.simpleString() == "struct<_seq:bigint,_event:string,LOWEST:double>"
    start = live.db.sync()
    take(frame, tmp_path)
    for per in (8.0, 8.5, 7.0):  # while no query runs
        live.db.publish(table, {"SYMBOL": ["A"], "RISK": [30.0], "PER": [per]})
    live.db.publish(table, {"SYMBOL": ["B"], "RISK": [70.0], "PER": [1.0]})  # outside
    take(frame, tmp_path)
    live.db.delete(table, ["A"])
    take(frame, tmp_path)
    take(frame, tmp_path)  # nothing new
    expected = [(0, "snapshot", 9.0), (1, "change", 8.0), (2, "change", 8.5), (3, "change", 7.0), (5, "change", None)]
    assert [(seq - start, event, value) for seq, event, value in found(live, tmp_path)] == expected


@pytest.mark.slow
def test_a_micro_batch_of_events_that_is_read_again_has_the_same_rows(live: Live, tmp_path: Path) -> None:
    table = live.table()
    frame = events(live, f"SELECT SYMBOL, LOTS, AT FROM {table} WHERE LOTS > ?", 10)
    live.db.publish(table, {"SYMBOL": ["A", "B"], "LOTS": [5, 50], "AT": [datetime(2026, 1, 2, tzinfo=UTC)] * 2})
    take(frame, tmp_path)
    live.db.publish(table, {"SYMBOL": ["A", "B", "C"], "LOTS": [15, 51, 70]})
    take(frame, tmp_path)
    before = found(live, tmp_path)
    left, entered = (
        [row[2:4] for row in before if row[1] == "left"],
        [row[2:4] for row in before if row[1] == "entered"],
    )
    assert left == [("B", 50)]
    assert sorted(entered) == [("A", 15), ("B", 50), ("B", 51), ("C", 70)]
    for folder in (
        "out/_spark_metadata",
        "checkpoint/commits",
    ):  # as if the driver had died before the end of the batch
        last = max((tmp_path / folder).glob("[0-9]*"), key=lambda path: int(path.name))
        (last.parent / f".{last.name}.crc").unlink()
        last.unlink()
    take(frame, tmp_path)
    assert found(live, tmp_path) == before


@pytest.mark.slow
def test_events_that_the_server_no_longer_has_end_the_query_or_give_the_answer_anew(live: Live, tmp_path: Path) -> None:
    table = live.table()
    sql = f"SELECT COUNT(*) AS ROWS FROM {table}"
    take(events(live, sql), tmp_path)
    live.run(live.cluster.stop_server())
    live.run(live.cluster.restart_server())  # its memory of messages is gone
    live.db.publish(table, {"SYMBOL": ["A", "B"]})
    with pytest.raises(PySparkException, match=r'are lost.*\.option\("failOnDataLoss", "false"\)'):
        take(events(live, sql), tmp_path)
    take(events(live, sql, failOnDataLoss="false"), tmp_path)
    assert [row[1:] for row in found(live, tmp_path)] == [("snapshot", 0), ("resync", 2)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sql": "SELECT MEDIAN(PER) FROM {}"}, "MEDIAN"),
        ({"parameters": "20"}, "option parameters = '20': must be a JSON list"),
        ({"parameters": "[1, 2, 3]"}, "3"),
        ({"resume": "xyz"}, "it is not a resume token"),
        ({"table": "X"}, "option table = 'X': options of a subscription are"),
    ],
)
def test_a_wrong_subscription_is_answered_with_one_line(
    live: Live, tmp_path: Path, options: dict[str, str], said: str
) -> None:
    table = live.table()
    sql = options.pop("sql", "SELECT MIN(PER) FROM {}").format(table)
    given = {"url": live.url, "subscription": sql} | options
    with pytest.raises(PySparkException) as caught:
        take(live.spark.readStream.format("hullcast").options(**given).load(), tmp_path)
    assert [line for line in str(caught.value).splitlines() if said in line], str(caught.value)


def test_a_subscription_cannot_be_read_at_once(live: Live) -> None:
    table = live.table()
    reader = live.spark.read.format("hullcast").option("url", live.url)
    with pytest.raises(PySparkException, match=r"use spark\.readStream"):
        reader.option("subscription", f"SELECT MIN(PER) FROM {table}").load().collect()
