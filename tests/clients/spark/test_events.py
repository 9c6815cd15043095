"""The events of a subscription as a stream of Spark's: as the SDK gives them, from a checkpoint on, and lost ones."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

import hullcast
from hullcast.clients.sdk.blocking import BlockingClient, LoopThread
from hullcast.clients.spark import events as events_module
from hullcast.clients.spark import replaying
from hullcast.clients.spark.events import EventReader
from hullcast.clients.spark.source import HullcastSource
from hullcast.network.wire.errors import HullcastError, UsageError
from tests.clients.spark.conftest import Live
from tests.support.cluster import PATIENCE_S, cluster


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


KINDS = {
    "min": "SELECT MIN(PER) AS LOWEST FROM {0} WHERE RISK BETWEEN 20 AND 60",
    "sum": "SELECT SUM(LOTS) AS ALL_LOTS FROM {0} WHERE RISK < 60",
    "count": "SELECT COUNT(*) AS N FROM {0} WHERE PER > 3",
    "distinct": "SELECT DISTINCT SECTOR FROM {0} WHERE RISK > 20",
    "rows": "SELECT SYMBOL, PER, AT FROM {0} WHERE RISK > 40",
    "join": "SELECT {0}.SYMBOL, {0}.PER, {1}.CITY FROM {0} JOIN {1} ON {0}.SECTOR = {1}.SECTOR WHERE {0}.RISK > 30",
}


class Followed:
    """A stream as Spark drives it, without Spark: what it gave, and the offsets."""

    def __init__(self, url: str, sql: str, **options: object) -> None:
        given = {"url": url, "timeout": str(PATIENCE_S), "subscription": sql}
        self._options = given | {name: str(value) for name, value in options.items()}
        self.rows: list[tuple[Any, ...]] = []
        self.batches: list[list[tuple[Any, ...]]] = []
        self.reader = self._reader()
        try:
            self.offsets = [json.loads(json.dumps(self.reader.initialOffset()))]
        except HullcastError:
            self.stop()
            raise

    def _reader(self) -> EventReader:
        source = HullcastSource(self._options)
        schema = source.schema()
        assert isinstance(schema, StructType)
        reader = source.simpleStreamReader(schema)
        assert isinstance(reader, EventReader)
        return reader

    def go_on(self) -> list[tuple[Any, ...]]:
        """One micro-batch more."""
        batches, end = self.reader.read(self.offsets[-1])
        rows = as_rows(batches)
        self.rows += rows
        self.batches.append(rows)
        self.offsets.append(json.loads(json.dumps(end)))
        return rows

    def start_again(self, **options: object) -> None:
        """As if the query had been stopped, and were started with its checkpoint."""
        self.stop()
        self._options |= {name: str(value) for name, value in options.items()}
        self.reader = self._reader()

    def again(self, at: int) -> list[tuple[Any, ...]]:
        """A micro-batch that is read again, as a worker does it."""
        worker = pickle.loads(pickle.dumps(self.reader))
        return as_rows(worker.readBetweenOffsets(self.offsets[at], self.offsets[at + 1]))

    def stop(self) -> None:
        """Spark ends the process that it is in; here is another one."""
        thread, client = self.reader._thread, self.reader._client
        self.reader._thread = self.reader._client = None
        if thread is not None:
            if client is not None:
                thread.wait(client.close())
            thread.stop()


def as_rows(batches: Iterator[Any]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def answer_of(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The answer after these rows; none of them leaves that is not there, and no value follows itself."""
    answer: Counter[tuple[Any, ...]] = Counter()
    many = any(event == "entered" for _, event, *_ in rows)
    for _, event, *values in rows:
        row = tuple(values)
        if event in ("snapshot", "resync", "change"):
            assert event != "change" or answer[row] == 0
            answer.clear()
        if event == "left":
            assert answer[row] > 0
            answer[row] -= 1
        elif event == "entered" or not many:
            answer[row] += 1
    return sorted(answer.elements(), key=repr)


def disturb(live: Live, tables: tuple[str, str], turn: int) -> None:
    """Changes of both tables: rows that come, change and go, some several times in a batch, some with NULLs."""
    stock, place = tables
    draw = random.Random(turn)
    for _ in range(4):
        rows = [
            {
                "SYMBOL": f"S{draw.randrange(8)}",
                "SECTOR": draw.choice(["TECH", "OIL", "FOOD", None]),
                "RISK": draw.choice([10.0, 30.0, 50.0, 70.0, None]),
                "PER": draw.choice([1.0, 2.5, 4.0, 5.5]),
                "LOTS": draw.choice([1, 2, 3, None]),
                "AT": draw.choice([None, datetime(2026, 1, 1 + draw.randrange(20), tzinfo=UTC)]),
            }
            for _ in range(6)
        ]
        live.db.publish(stock, rows)
        live.db.publish(place, [{"SECTOR": draw.choice(["TECH", "OIL"]), "CITY": draw.choice(["ULM", "BONN"])}])
        live.db.delete(stock, [f"S{draw.randrange(8)}" for _ in range(2)])
        live.db.delete(place, [draw.choice(["TECH", "OIL"])])


def restart(live: Live) -> None:
    """What the server had in memory is gone."""
    live.run(live.cluster.kill("server"))
    live.run(live.cluster.restart_server())
    live.db.sync()


def both_tables(live: Live) -> tuple[str, str]:
    return live.table(), live.table("SECTOR TEXT PRIMARY KEY, CITY TEXT")


def test_nothing_is_lost_or_doubled_where_the_server_was_restarted(live: Live) -> None:
    tables = both_tables(live)
    disturb(live, tables, 0)
    queries = [sql.format(*tables) for sql in KINDS.values()]
    start = live.db.sync()
    followed = [Followed(live.url, sql) for sql in queries]
    for turn, stopped in ((1, False), (2, True)):
        disturb(live, tables, 10 * turn)
        for one in followed:
            one.go_on()
        disturb(live, tables, 10 * turn + 1)  # not read yet
        restart(live)
        disturb(live, tables, 10 * turn + 2)
        for one in followed:
            if stopped:
                one.start_again()
            one.go_on()
    disturb(live, tables, 30)
    for sql, one in zip(queries, followed, strict=True):
        one.go_on()
        assert [row for row in one.rows if row[1] == "resync"] == []
        assert answer_of(one.rows) == sorted(live.rows(sql), key=repr), sql
        replayed = Followed(live.url, sql, startingSeq=start)  # all of it from the history
        replayed.go_on()
        assert replayed.rows[0][:2] == (start, "snapshot")
        assert sorted(replayed.rows, key=repr) == sorted(one.rows, key=repr), sql
        assert replayed.again(0) == replayed.again(0) == replayed.rows
        batches = [one.again(at) for at in range(len(one.offsets) - 1)]  # the first ones from the history, now
        assert [sorted(batch, key=repr) for batch in batches] == [sorted(batch, key=repr) for batch in one.batches]
        replayed.stop()
        one.stop()


@pytest.mark.slow
def test_a_query_goes_on_where_the_server_was_restarted_while_it_ran_and_while_it_was_stopped(
    live: Live, tmp_path: Path
) -> None:
    tables = both_tables(live)
    start = live.db.sync()
    sql = KINDS["rows"].format(*tables)
    frame = events(live, sql, startingSeq=start)
    disturb(live, tables, 1)
    writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        for turn in (2, 3):
            query.processAllAvailable()
            disturb(live, tables, 10 * turn)
            restart(live)
            disturb(live, tables, 10 * turn + 1)
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        query.stop()
    disturb(live, tables, 40)
    restart(live)
    disturb(live, tables, 41)
    take(frame, tmp_path)
    replayed = Followed(live.url, sql, startingSeq=start)
    replayed.go_on()
    replayed.stop()
    got = live.spark.read.parquet(str(tmp_path / "out"))
    rows = [(*row[:-1], row["AT"] and row["AT"].timestamp()) for row in got.collect()]
    expected = [(*row[:-1], row[-1] and row[-1].timestamp()) for row in replayed.rows]
    assert sorted(rows, key=repr) == sorted(expected, key=repr)
    assert answer_of(replayed.rows) == sorted(live.rows(sql), key=repr)


def test_a_long_history_comes_in_several_micro_batches(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = both_tables(live)
    for turn in range(3):
        disturb(live, tables, turn)
    sql = KINDS["join"].format(*tables)
    whole = Followed(live.url, sql, startingSeq="earliest")
    whole.go_on()
    monkeypatch.setattr(events_module, "MOST_EVENTS", 5)
    monkeypatch.setattr(replaying, "UPDATES_AT_ONCE", 3)
    divided = Followed(live.url, sql, startingSeq="earliest")
    divided.reader.prepareForTriggerAvailableNow()
    disturb(live, tables, 3)
    for one in (whole, divided):
        while one.go_on():
            pass
    assert len(divided.batches) > 2
    assert sorted(whole.again(1), key=repr) == sorted(whole.batches[1], key=repr)
    assert divided.offsets[-1] == divided.offsets[-2]
    assert sorted(divided.rows, key=repr) == sorted(whole.rows, key=repr)
    assert answer_of(divided.rows) == sorted(live.rows(sql), key=repr)
    for one in (whole, divided):
        one.stop()


@contextmanager
def small(data: Path | None, **options: Any) -> Iterator[tuple[str, BlockingClient, Callable[[], None]]]:
    """A server alone, and how to restart it."""
    thread = LoopThread("tests small")
    made = cluster(0, data, **options)
    try:
        entered = thread.wait(made.__aenter__())

        def again() -> None:
            thread.wait(entered.stop_server())
            thread.wait(entered.restart_server())

        with hullcast.connect_blocking(entered.server.endpoint, timeout=PATIENCE_S) as db:
            yield entered.server.endpoint, db, again
        thread.wait(made.__aexit__(None, None, None))
    finally:
        thread.stop()


@pytest.mark.parametrize("sql", ["SELECT MAX(V) AS HIGHEST FROM T", "SELECT K, V FROM T WHERE V > 1"])
def test_a_token_of_the_sdk_goes_on_where_the_server_was_restarted(tmp_path: Path, sql: str) -> None:
    with small(tmp_path / "data") as (url, db, restart):
        db.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, V REAL)")
        with db.subscribe(sql, overflow="block") as sub:
            for value in (2.0, 3.0, 4.0):
                db.publish("T", {"K": 1, "V": value})
            db.sync()
            seq = next(iter(sub)).seq
            token = sub.token  # two events were not taken
        restart()
        db.publish("T", {"K": 2, "V": 5.0})
        resumed, replayed = Followed(url, sql, resume=token), Followed(url, sql, startingSeq=seq)
        resumed.go_on()
        replayed.go_on()
        assert sorted({row[0] - seq for row in resumed.rows}) == [1, 2, 3]
        assert resumed.rows == [row for row in replayed.rows if row[0] > seq]
        for one in (resumed, replayed):
            one.stop()


@pytest.mark.parametrize("why", ["begins with update", "keeps no change history", "was dropped and created again"])
def test_events_that_the_history_lacks_end_the_query_or_give_the_answer_anew(tmp_path: Path, why: str) -> None:
    options = {"checkpoint_updates": 5000, "segment_bytes": 1 << 16, "history_bytes": 0} if "begins" in why else {}
    with small(None if "keeps" in why else tmp_path / "data", **options) as (url, db, restart):
        create = "CREATE TABLE T (K INTEGER PRIMARY KEY, V REAL)"
        db.execute(create)
        db.publish("T", {"K": [7]})
        one = Followed(url, "SELECT COUNT(*) AS N FROM T")
        one.go_on()
        one.stop()
        if "begins" in why:
            while db.history("T").first < 100:
                db.publish("T", {"K": list(range(2000))})
        elif "dropped" in why:
            db.execute("DROP TABLE T")
        restart()
        if "begins" not in why:
            db.execute(create)
        db.publish("T", {"K": [1, 2]})
        one.start_again()
        with pytest.raises(UsageError, match=rf'are lost: .*{why}.*\.option\("failOnDataLoss", "false"\)'):
            one.go_on()
        one.start_again(failOnDataLoss="false")
        one.go_on()
        db.publish("T", {"K": [10_000]})
        one.go_on()
        count = db.query("SELECT COUNT(*) FROM T")[0][0]
        assert [row[1:] for row in one.rows] == [("snapshot", 1), ("resync", count - 1), ("change", count)]
        one.stop()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sql": "SELECT MEDIAN(PER) FROM {}"}, "MEDIAN"),
        ({"parameters": "20"}, "option parameters = '20': must be a JSON list"),
        ({"parameters": "[1, 2, 3]"}, "3"),
        ({"resume": "xyz"}, "it is not a resume token"),
        ({"startingSeq": "soon"}, "must be earliest, latest, or the sequence number"),
        ({"startingSeq": "1000000000"}, "the last update on the server's disk is"),
        ({"startingSeq": "1", "resume": "xyz"}, "resume says where to begin, too"),
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
