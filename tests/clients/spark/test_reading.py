"""Tables and their changes read by Spark, at once and as a stream, beside what the server itself answers."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import LongType, StructField, StructType

import hullcast
from hullcast.clients.spark.options import STREAM, Options
from hullcast.clients.spark.reading import ChangesStreamReader, as_batches
from hullcast.network.wire.errors import UsageError
from tests.clients.spark.conftest import Live
from tests.support.cluster import PATIENCE_S


def some(first: int, last: int, per: float = 0.0) -> dict[str, list[Any]]:
    keys = range(first, last)
    return {
        "SYMBOL": [f"S{key}" for key in keys],
        "SECTOR": [None if key % 5 == 0 else f"SECTOR {key % 7}" for key in keys],
        "RISK": [None if key % 3 == 0 else key / 10 for key in keys],
        "PER": [per + key for key in keys],
        "LOTS": [None if key % 11 == 0 else key for key in keys],
    }


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_a_table_as_of_a_sequence_number_is_what_sql_answered_then(live: Live) -> None:
    table = live.table()
    live.db.publish(table, some(0, 3000))
    live.db.delete(table, ["S7", "S8"])
    then, seq = sorted(live.rows(f"SELECT * FROM {table}")), live.db.sync()
    now = live.read(table, partitions=3)
    live.db.publish(table, some(2000, 4000, per=1.0))
    assert hullcast.spark.seq_of(now) == seq
    assert now.rdd.getNumPartitions() == 3
    assert now.count() == len(then) == 2998  # the DataFrame stays as of its load
    shown = live.rows(f"SELECT * FROM {table}")
    assert rows_of(live.read(table.lower(), seq=seq)) == then
    assert rows_of(live.read(table)) == sorted(shown)


def test_changes_before_a_table_was_created_are_refused_but_0_is_its_beginning(live: Live) -> None:
    live.db.publish(live.table(), some(0, 10))
    table = live.table()
    live.db.publish(table, some(0, 1))
    with pytest.raises(PySparkException, match="the table was created later"):
        live.read(table, changes="true", after=1).count()
    assert live.read(table, changes="true", after=0).count() == 1


def test_a_range_of_the_history_has_every_change_once_in_any_number_of_partitions(live: Live) -> None:
    table = live.table()
    start = live.db.sync()
    live.db.publish(table, some(0, 100))
    live.db.publish(live.table(), some(0, 10))  # another table's numbers are in between
    live.db.publish(table, {"SYMBOL": ["S1"], "PER": [99.5]})
    live.db.delete(table, ["S2"])
    end = live.db.sync()
    frame = live.read(table, changes="true", after=start, through=end, partitions=4)
    assert frame.rdd.getNumPartitions() == 4
    found = frame.orderBy("_seq").collect()
    assert [row._seq - start for row in found] == [*range(1, 101), 111, 112]
    assert [row._deleted for row in found] == [False] * 101 + [True]
    assert (found[100].SYMBOL, found[100].PER, found[100].SECTOR, found[100].LOTS) == ("S1", 99.5, "SECTOR 1", 1)
    assert (found[101].SYMBOL, found[101].PER) == ("S2", None)
    assert live.read(table, changes="true", after=end).count() == 0
    assert live.read(table, changes="true", after=start + 50, through=start + 60).count() == 10
    with pytest.raises(PySparkException, match=f"option through = {end - 1}: must not be less than after"):
        live.read(table, changes="true", after=end, through=end - 1).count()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seq": "soon"}, "option seq = 'soon': must be a whole number, 0 or more"),
        ({"seq": "999999999"}, "999999999"),
        ({"partitions": "0"}, "option partitions = '0': must be a whole number, 1 or more"),
        ({"after": "5"}, 'option after = \'5\': needs .option("changes", "true")'),
        ({"changes": "maybe"}, "option changes = 'maybe': must be true or false"),
        (
            {"changes": "true", "through": "999999999"},
            "option through = 999999999: the last update on the server's disk",
        ),
        ({"path": "STOCK"}, "option path = 'STOCK': name the table with option(\"table\", ..)"),
        ({"table": "NOT_THERE"}, "no table NOT_THERE"),
        ({"partitions": "1000000000"}, "option partitions = '1000000000': must be a whole number from 1 to 65536"),
        ({"seq": "9" * 5000}, "must be a whole number, 0 or more"),
        ({"changes": "true", "after": "999999999"}, "option after = 999999999: the last update on the server's disk"),
        ({"secretKey": "abc"}, "option secretkey = '(not shown)': did you mean server_key? options of a read"),
        ({"startingSeq": "5"}, "option startingseq = '5': options of a read are"),
    ],
)
def test_a_wrong_option_of_a_read_is_answered_with_one_line(live: Live, options: dict[str, str], said: str) -> None:
    table = live.table()
    live.db.publish(table, some(0, 10))
    with pytest.raises(PySparkException) as caught:
        live.read(**{"table": table} | options).count()
    assert [line for line in str(caught.value).splitlines() if said in line], str(caught.value)


def test_a_table_made_again_is_not_taken_for_the_one_that_was_loaded(live: Live) -> None:
    """Even if nothing was published in between, so that its history begins where the other was read."""
    table = live.table()
    live.db.publish(table, some(0, 3))
    rows, changes = live.read(table), live.read(table, changes="true")
    assert rows.count() == 3
    live.db.execute(f"DROP TABLE {table}")
    live.db.execute(f"CREATE TABLE {table} (SYMBOL TEXT PRIMARY KEY, X REAL)")
    for frame in (rows, changes):
        with pytest.raises(PySparkException, match="dropped and created again since it was loaded"):
            frame.count()


def test_a_schema_with_another_column_is_refused_in_a_sentence(live: Live) -> None:
    table = live.table("K INTEGER PRIMARY KEY")
    live.db.publish(table, {"K": 1})
    with hullcast.connect_blocking(live.url) as db, pytest.raises(UsageError, match="a column k, which is not there"):
        list(as_batches(db.table_at(table), StructType([StructField("k", LongType())])))


def test_a_checkpoint_ahead_of_the_server_is_not_waited_for(live: Live) -> None:
    """A server that was restored from an older copy gives the numbers behind it to other changes."""
    table = live.table()
    access = Options(live.options(table), STREAM, "a stream").access()
    for fails in (True, False):
        reader = ChangesStreamReader(access, table, StructType(), "latest", None, fails, None)
        start = reader.initialOffset()
        assert reader.latestOffset(start, ReadAllAvailable()) == start
        ahead = start | {"seq": start["seq"] + 10}
        with pytest.raises(UsageError, match="older copy") if fails else nullcontext():
            assert reader.latestOffset(ahead, ReadAllAvailable()) == ahead
        reader.stop()


# -- streams -------------------------------------------------------------------------------------------------


def changes_into(live: Live, table: str, folder: Path, **options: object) -> StreamingQuery:
    """A stream of a table's changes into Parquet files, which Spark writes exactly once."""
    reader = live.spark.readStream.format("hullcast").options(**live.options(table, changes="true", **options))
    writer = reader.load().writeStream.format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def wait_for_seq(query: StreamingQuery, seq: int) -> None:
    """Until a query has gone so far."""
    while True:
        query.processAllAvailable()
        progress = query.lastProgress
        if progress is not None and f'"seq": {seq},' in str(progress.sources[0].endOffset):
            return


def check_changes(live: Live, table: str, folder: Path, start: int, end: int) -> None:
    expected = rows_of(live.read(table, changes="true", after=start, through=end))
    assert [row[0] for row in expected] == sorted({row[0] for row in expected})  # each once
    assert rows_of(live.spark.read.parquet(str(folder / "out"))) == expected


def test_a_stream_goes_on_from_its_checkpoint_with_nothing_lost_or_doubled(live: Live, tmp_path: Path) -> None:
    table = live.table()
    live.db.publish(table, some(0, 50))
    start = live.db.sync()
    query = changes_into(live, table, tmp_path, startingSeq=start, maxRowsPerTrigger=40)
    try:
        live.db.publish(table, some(0, 100, per=1.0))
        live.db.delete(table, ["S3"])
        wait_for_seq(query, start + 101)
    finally:
        query.stop()
    live.db.publish(table, some(100, 150, per=2.0))  # while it does not run
    query = changes_into(live, table, tmp_path, startingSeq="earliest")  # which its checkpoint overrides
    try:
        end = live.db.sync()
        wait_for_seq(query, end)
    finally:
        query.stop()
    assert end == start + 151
    check_changes(live, table, tmp_path, start, end)


@pytest.mark.slow
def test_a_stream_that_takes_what_is_there_begins_where_it_is_told(live: Live, tmp_path: Path) -> None:
    table = live.table()
    live.db.publish(table, some(0, 30))
    for begin, rows in (("earliest", 30), ("latest", 0), (live.db.sync() - 10, 10)):
        reader = live.spark.readStream.format("hullcast")
        frame = reader.options(**live.options(table, changes="true", startingSeq=begin)).load()
        writer = frame.writeStream.format("memory").queryName(f"begun_{rows}").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / str(begin))).start()
        assert query.awaitTermination(int(PATIENCE_S))
        assert live.spark.table(f"begun_{rows}").count() == rows


def test_a_stream_without_changes_is_refused_with_what_to_add(live: Live, tmp_path: Path) -> None:
    table = live.table()
    frame = live.spark.readStream.format("hullcast").options(**live.options(table)).load()
    with pytest.raises(PySparkException, match=r'add \.option\("changes", "true"\)'):
        frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start().awaitTermination()
