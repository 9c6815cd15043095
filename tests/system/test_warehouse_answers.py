"""What one-time queries answer: as fresh as asked, of one moment, in time, in portions, whoever is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from hullcast.broker.server import queries
from hullcast.broker.server.service import Server
from hullcast.broker.warehouse.files.table_file import FOLDER
from hullcast.broker.warehouse.process.questions import SPOOL
from hullcast.clients.sdk.client import Client
from hullcast.network.answers.named import QueryRows, QueryWorth
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import AnswerGone, DeadlineMissed, Overloaded, SqlError, TimedOut
from tests.support.cluster import PATIENCE_S, ProcessMember, cluster, server_of, wait_for
from tests.system.test_warehouse import CREATE, ENDLESS, serving, warehouse_process

BOTH = "SELECT (SELECT max(V) FROM main.A), (SELECT max(V) FROM main.B)"
MANY = "SELECT a.K, b.K AS L, a.S FROM T a, T b"


def workers() -> list[psutil.Process]:
    return warehouse_process().children()


def worth(rows: QueryRows) -> QueryWorth:
    assert rows.worth is not None
    return rows.worth


async def alternate(hc: Client, until: asyncio.Event) -> int:
    """Rounds of A, then B: so the table A has round (seq + 1) // 2, and B round seq // 2."""
    rounds = 0
    while not until.is_set():
        rounds += 1
        await hc.publish("A", [{"K": 1, "V": rounds}])
        await hc.publish("B", [{"K": 1, "V": rounds}])
    return rounds


@pytest.mark.parametrize("policy", ["updates-first", "orad"])
async def test_an_answer_is_the_sql_at_its_sequence_number(tmp_path: Path, policy: str) -> None:
    async with serving(tmp_path, warehouse_policy=policy) as (made, server, hc):
        for name in "AB":
            await hc.execute(f"CREATE TABLE {name} (K INTEGER PRIMARY KEY, V INTEGER)")
        stop = asyncio.Event()
        async with made.client() as publisher:
            publishing = asyncio.create_task(alternate(publisher, stop))
            await hc.query(BOTH)
            for i in range(40):
                acknowledged = server.log.synced_seq
                terms: dict[str, Any] = {} if i % 2 else {"freshness": 0.0, "read_set": "consistent"}
                rows = await hc.query(BOTH, **terms)
                seq = worth(rows).seq
                assert seq is not None
                assert tuple(rows[0]) == ((seq + 1) // 2 or None, seq // 2 or None)
                assert not i % 2 or seq >= acknowledged
                assert worth(rows).policy == policy
            stop.set()
            rounds = await publishing
        assert tuple((await hc.query(BOTH))[0]) == (rounds, rounds)


def table_file(server: Server, name: str) -> Path:
    assert server.settings.data is not None
    (found,) = (server.settings.data / FOLDER).glob(f"{name.lower()}-*.sqlite")
    return found


async def test_freshness_decides_between_waiting_and_old_rows(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server, hc):
        await hc.execute(CREATE)
        await hc.publish("T", [{"K": 1, "X": 1.0}])
        first = await hc.query("SELECT X FROM T", freshness=0.0)
        assert first == [(1.0,)], "a table that was never loaded is loaded first"
        with closing(sqlite3.connect(table_file(server, "T"), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # so nothing can be loaded
            await hc.publish("T", [{"K": 1, "X": 2.0}, {"K": 2, "X": 3.0}])
            while worth(rows := await hc.query("SELECT X FROM T", freshness=0.0)).unapplied != 2:
                assert rows == [(1.0,)]
            assert rows == [(1.0,)]
            assert worth(rows).staleness_s > 0
            assert worth(rows).tables["T"].seq == worth(first).tables["T"].seq
            with pytest.raises(DeadlineMissed) as missed:
                await hc.query("SELECT X FROM T", deadline=0.3)
            assert missed.value.ran_s == 0
            assert missed.value.waited_s >= 0.3
            waiting = asyncio.create_task(hc.query("SELECT X FROM T ORDER BY K"))
            other.execute("ROLLBACK")
        rows = await waiting
        assert rows == [(2.0,), (3.0,)]
        assert (worth(rows).unapplied, worth(rows).staleness_s, worth(rows).deadline_met) == (0, 0.0, True)


async def test_a_table_that_was_read_while_it_was_empty_waits_for_no_load_at_freshness_0(tmp_path: Path) -> None:
    """Its file was not made by a load but by the query, because there was nothing to load."""
    async with serving(tmp_path) as (_, server, hc):
        await hc.execute(CREATE)
        assert await hc.query("SELECT count(*) FROM T") == [(0,)]
        with closing(sqlite3.connect(table_file(server, "T"), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # so nothing can be loaded
            await hc.publish("T", [{"K": 1}])
            rows = await hc.query("SELECT count(*) FROM T", freshness=0.0, deadline=5.0)
            assert (rows, worth(rows).unapplied) == ([(0,)], 1)
            other.execute("ROLLBACK")
        assert await hc.query("SELECT count(*) FROM T") == [(1,)]


async def test_what_nobody_asks_for_is_loaded_all_the_same(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server, hc):
        await hc.execute(CREATE)
        await hc.query("SELECT count(*) FROM T")
        for i in range(10):
            await hc.publish("T", [{"K": i}])

        def loaded() -> bool:
            table = server.warehouse.status()["tables"].get("T")
            return table is not None and table["loaded"] >= server.engine.seq and not table["unapplied"]

        await wait_for(loaded, "the load of what was published")


async def test_a_query_past_its_deadline_is_stopped_and_its_place_is_free(tmp_path: Path) -> None:
    async with serving(tmp_path, warehouse_processes=2) as (_, server, hc):
        await hc.execute(CREATE)
        assert await hc.query("SELECT count(*) FROM T") == [(0,)]
        with pytest.raises(DeadlineMissed) as missed:
            await hc.query(ENDLESS, deadline="300ms")
        assert missed.value.ran_s > 0
        assert await hc.query("SELECT count(*) FROM T", deadline=PATIENCE_S) == [(0,)]
        await wait_for(lambda: server.queries.status()["missed"] == 1, "it is counted")


async def test_a_query_whose_deadline_passes_before_the_warehouse_has_it_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "QUERIES", replace(queries.QUERIES, at_once=10, at_once_per_owner=1))
    async with serving(tmp_path) as (_, server, hc):
        running = asyncio.create_task(hc.query(ENDLESS))
        await wait_for(lambda: server.queries.admitted == 1, "it runs")
        with pytest.raises(DeadlineMissed) as missed:
            await hc.query("SELECT 1", deadline="50ms")
        assert missed.value.ran_s == 0
        assert server.queries.status()["missed"] == 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_of_queries_that_wait_the_most_urgent_runs_first(tmp_path: Path) -> None:
    async with serving(tmp_path, warehouse_processes=2) as (_, server, hc):
        await hc.execute(CREATE)
        await hc.query("SELECT 1")
        slow = asyncio.create_task(hc.query(ENDLESS, deadline=1.0))
        await wait_for(lambda: server.warehouse.reported("running") == 1, "the only place is taken")
        ended: list[int] = []

        async def ask(priority: int) -> None:
            await hc.query("SELECT 1", priority=priority)
            ended.append(priority)

        waiting = [asyncio.create_task(ask(priority)) for priority in (0, 5, -3, 9)]
        await asyncio.gather(slow, *waiting, return_exceptions=True)
        assert ended == [9, 5, 0, -3]


async def test_a_large_answer_comes_in_portions_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hullcast.broker.server.warehouse.ROW_LIMIT", 100_000)
    async with serving(tmp_path) as (_, server, hc):
        await hc.execute(CREATE)
        await hc.publish("T", {"K": np.arange(300), "S": [f"text {i}" for i in range(300)]})
        rows = await hc.query(MANY + " ORDER BY 1, 2")
        assert rows == [(i, j, f"text {i}") for i in range(300) for j in range(300)]
        assert worth(rows).seq == 300
        assert server.settings.data is not None
        assert list((server.settings.data / SPOOL).iterdir()) == []
        with pytest.raises(SqlError, match=r"more than 100,000 rows"):
            await hc.query(f"{MANY}, T c")
        assert await hc.query("SELECT count(*) FROM T") == [(300,)]
        assert list((server.settings.data / SPOOL).iterdir()) == []


async def test_portions_are_the_owners_and_are_not_kept_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as (made, server, hc):
        await hc.execute(CREATE)
        await hc.publish("T", {"K": np.arange(300), "S": ["x" * 20] * 300})
        first = await hc._ask(bodies.Query(MANY, ()), "query", PATIENCE_S)
        assert isinstance(first, bodies.QueryAnswer)
        assert first.ticket
        assert first.worth is None
        async with made.client() as stranger:
            with pytest.raises(AnswerGone):
                await stranger._ask(bodies.FetchRows(first.ticket, 1), "fetch", PATIENCE_S)
        part = await hc._ask(bodies.FetchRows(first.ticket, 1), "fetch", PATIENCE_S)
        again = await hc._ask(bodies.FetchRows(first.ticket, 1), "fetch", PATIENCE_S)
        assert isinstance(part, bodies.QueryPart)
        assert isinstance(again, bodies.QueryPart)
        assert bodies.encode(part) == bodies.encode(again)
        assert part.more
        with pytest.raises(AnswerGone, match="order"):
            await hc._ask(bodies.FetchRows(first.ticket, 7), "fetch", PATIENCE_S)
        await wait_for(lambda: server.queries.kept_bytes > 1 << 20, "the rest is on disk")
        server.queries.expire(asyncio.get_running_loop().time() + 3600)
        with pytest.raises(AnswerGone):
            await hc._ask(bodies.FetchRows(first.ticket, 2), "fetch", PATIENCE_S)
        assert server.queries.kept_bytes == 0
        monkeypatch.setattr("hullcast.broker.server.queries.KEPT_S", 3600.0)
        async with made.client() as leaving:
            await leaving._ask(bodies.Query(f"{MANY}, T c", ()), "query", PATIENCE_S)
            await wait_for(lambda: server.queries.kept_bytes > 1 << 20, "it goes on")
        await wait_for(lambda: server.queries.kept_bytes == 0, "it is dropped with its client")
        await wait_for(lambda: server.warehouse.reported("running") == 0, "and stopped")
        monkeypatch.setattr("hullcast.broker.server.queries.KEPT_BYTES_PER_OWNER", 1 << 20)
        first = await hc._ask(bodies.Query(MANY, ()), "query", PATIENCE_S)
        assert isinstance(first, bodies.QueryAnswer)
        number, refused = 0, ""
        while not refused:
            number += 1
            try:
                await hc._ask(bodies.FetchRows(first.ticket, number), "fetch", 1.0)
            except TimedOut as error:
                refused = str(error)
        assert str(Overloaded("bytes of large answers being fetched", 1 << 20)).split(";")[0] in refused


async def test_a_worker_that_is_killed_fails_one_query_and_no_load(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server, hc):
        await hc.execute(CREATE)
        assert await hc.query("SELECT count(*) FROM T") == [(0,)]
        slow = asyncio.create_task(hc.query(ENDLESS))
        await wait_for(lambda: server.warehouse.reported("running") == 1, "it runs")
        busiest = max(workers(), key=lambda worker: worker.cpu_times().user)
        os.kill(busiest.pid, signal.SIGKILL)
        with pytest.raises(SqlError, match="its process was killed"):
            await slow
        for i in range(3):  # whichever of them loads, and how ever far it is
            await hc.publish("T", {"K": np.arange(20_000), "X": np.full(20_000, float(i))})
            asking = asyncio.create_task(hc.query("SELECT count(*), min(X), max(X) FROM T"))
            await asyncio.sleep(0.004 * i)
            loading = [
                worker.pid for worker in workers() if any(".sqlite" in file.path for file in worker.open_files())
            ]
            for process in loading or [workers()[0].pid]:
                os.kill(process, signal.SIGKILL)
            rows = None
            while rows is None:
                try:
                    rows = await asking
                except SqlError:  # the one that answered was killed
                    asking = asyncio.create_task(hc.query("SELECT count(*), min(X), max(X) FROM T"))
            assert rows == [(20_000, float(i), float(i))]


async def test_garbage_in_the_folders_is_removed_or_made_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(tmp_path) as (made, server, hc):
        await hc.execute(CREATE)
        await hc.publish("T", {"K": np.arange(100)})
        assert await hc.query("SELECT count(*) FROM T") == [(100,)]
        path = table_file(server, "T")
        await made.server.stop()
        path.write_bytes(os.urandom(50_000))
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).write_bytes(b"garbage")
        (data / FOLDER / "unknown.sqlite").write_bytes(b"garbage")
        (data / FOLDER / "lost+found").mkdir()
        (data / SPOOL / "left").write_bytes(b"garbage")
        (data / SPOOL / "folder").mkdir()
        await made.server.start()
        assert await hc.query("SELECT count(*), max(K) FROM T") == [(100, 99)]
        assert not (data / FOLDER / "unknown.sqlite").exists()
        assert list((data / SPOOL).iterdir()) == []
        path = table_file(server_of(made), "T")
        path.unlink()  # under its hands
        assert await hc.query("SELECT count(*), max(K) FROM T") == [(100, 99)]


async def test_the_policy_is_switched_while_queries_run(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server, hc):
        await hc.execute(CREATE)
        await hc.publish("T", {"K": np.arange(100)})
        for name in ("updates-first", "queries-first", "fifo") * 3:
            slow = asyncio.create_task(hc.query("SELECT count(*) FROM T a, T b, T c"))
            server.warehouse.switch(name)
            assert worth(await hc.query("SELECT count(*) FROM T")).policy == name
            assert await slow == [(1_000_000,)]
            await hc.publish("T", [{"K": 1}])


async def test_many_tables_are_refused_in_words(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, _, hc):
        for i in range(12):
            await hc.execute(f"CREATE TABLE T{i} (K INTEGER PRIMARY KEY)")
            await hc.publish(f"T{i}", [{"K": i}])
        tables = [f"main.T{i}" for i in range(12)]
        assert await hc.query(f"SELECT * FROM {', '.join(tables[:11])}") == [tuple(range(11))]
        with pytest.raises(SqlError, match=r"12 tables.*at most 11"):
            await hc.query(f"SELECT * FROM {', '.join(tables)}")


@pytest.mark.slow
async def test_a_killed_server_takes_the_warehouse_along_and_the_next_goes_on_from_its_files(
    tmp_path: Path,
) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(0, tmp_path / "data", processes=tmp_path) as made,
        made.client() as hc,
    ):
        await hc.execute(CREATE)
        await hc.publish("T", {"K": np.arange(1000), "X": np.zeros(1000)})
        assert await hc.query("SELECT count(*), max(X) FROM T") == [(1000, 0.0)]
        slow = asyncio.create_task(hc.query(ENDLESS))
        member = made.server
        assert isinstance(member, ProcessMember)
        assert member.process is not None
        below = psutil.Process(member.process.pid).children(recursive=True)
        assert len(below) == 5
        await hc.publish("T", [{"K": 1, "X": 1.0}])
        await member.kill()
        await wait_for(lambda: not any(one.is_running() for one in below), "its children end")
        (file,) = (tmp_path / "data" / FOLDER).glob("t-*.sqlite")
        inode = file.stat().st_ino
        await member.start()
        rows = await hc.query("SELECT count(*), max(X) FROM T")
        assert (rows, worth(rows).seq) == ([(1000, 1.0)], 1001)
        assert file.stat().st_ino == inode
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)


async def test_updates_that_were_not_on_disk_when_the_process_began_are_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were applied before the server began to count for the process, and written after."""
    async with serving(tmp_path) as (_, server, hc):
        await hc.execute("CREATE TABLE T (K INTEGER PRIMARY KEY) WITH (period = '1m')")
        await hc.publish("T", [{"K": 1}])
        assert await hc.query("SELECT count(*) FROM T") == [(1,)]
        server.warehouse.child._next_try = inf  # it is not started again by itself
        os.kill(warehouse_process().pid, signal.SIGKILL)
        await wait_for(lambda: not server.warehouse.child.running, "it is gone")
        write, written = os.fdatasync, threading.Event()

        def slowly(descriptor: int) -> None:
            written.wait(PATIENCE_S)
            write(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", slowly)
            publishing = asyncio.create_task(hc.publish("T", [{"K": 2}]))
            await wait_for(lambda: server.engine.seq == 2, "it is applied")
            server.warehouse.child._next_try = 0.0
            server.warehouse.watch(0.0)
            await wait_for(lambda: server.warehouse.child.running, "the process is started")
            await asyncio.sleep(0)
            written.set()
            await publishing
        rows = await hc.query("SELECT count(*) FROM T")
        assert rows == [(2,)]
        assert worth(rows).seq == 2


async def test_files_are_kept_though_updates_are_released_while_the_process_learns_of_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of tables that it does not know are removed: so it must know all of them first."""
    monkeypatch.setattr("hullcast.broker.server.warehouse.TABLES_AT_ONCE", 1)
    monkeypatch.setattr("hullcast.broker.server.warehouse.RELEASE_S", 0.0)
    async with serving(tmp_path) as (_, server, hc):
        for name in "ABCDEFGH":
            await hc.execute(f"CREATE TABLE {name} (K INTEGER PRIMARY KEY)")
            await hc.publish(name, [{"K": 1}])
        assert await hc.query("SELECT count(*) FROM A, B, C, D, E, F, G, H") == [(1,)]
        files = {name: table_file(server, name).stat().st_ino for name in "ABCDEFGH"}
        os.kill(warehouse_process().pid, signal.SIGKILL)
        await wait_for(lambda: not server.warehouse.child.running, "it is gone")
        asking = asyncio.create_task(hc.query("SELECT count(*) FROM A"))
        while not asking.done():
            server.warehouse.on_release()
            await asyncio.sleep(0)
        assert await asking == [(1,)]
        assert {name: table_file(server, name).stat().st_ino for name in "ABCDEFGH"} == files


async def test_after_a_restart_the_worth_of_rows_is_counted_from_the_log(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server, hc):
        for name in "AB":
            await hc.execute(f"CREATE TABLE {name} (K INTEGER PRIMARY KEY, V INTEGER)")
            await hc.publish(name, [{"K": 1, "V": 1}])
        await hc.query(BOTH)
        with closing(sqlite3.connect(table_file(server, "A"), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # so nothing can be loaded
            await hc.publish("A", [{"K": 1, "V": 2}, {"K": 2, "V": 3}])
            await hc.delete("A", [1, 5, 7])
            os.kill(warehouse_process().pid, signal.SIGKILL)
            rows = await hc.query(BOTH, freshness=0.0)
            assert rows == [(1, 1)]
            assert {name: table.unapplied for name, table in worth(rows).tables.items()} == {"A": 5, "B": 0}
            assert worth(rows).tables["A"].staleness_s > 0
            assert worth(rows).tables["B"].staleness_s == 0
            other.execute("ROLLBACK")
        assert await hc.query(BOTH) == [(3, 1)]


async def test_what_is_left_of_updates_that_were_loaded_in_part_is_counted(tmp_path: Path) -> None:
    """After a restart all that a file lacks is one release; a question may need a part of it."""
    async with serving(tmp_path) as (_, server, hc):
        for name in "AB":
            await hc.execute(f"CREATE TABLE {name} (K INTEGER PRIMARY KEY, V INTEGER)")
            await hc.publish(name, [{"K": 1, "V": 1}])
        await hc.query(BOTH)
        with closing(sqlite3.connect(table_file(server, "A"), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # so nothing can be loaded
            await hc.publish("A", [{"K": 1, "V": 3}])
            await hc.publish("B", [{"K": 1, "V": 4}])
            assert await hc.query("SELECT V FROM B") == [(4,)]
            await hc.publish("A", [{"K": 1, "V": 5}, {"K": 1, "V": 6}])
            os.kill(warehouse_process().pid, signal.SIGKILL)
            other.execute("ROLLBACK")
        rows = await hc.query(BOTH, freshness=0.0, read_set="consistent")
        assert rows == [(3, 4)]
        assert worth(rows).seq == 4
        assert {name: table.unapplied for name, table in worth(rows).tables.items()} == {"A": 2, "B": 0}


def long_rows(value: int) -> list[dict[str, Any]]:
    return [{"K": k, "X": float(value), "S": "x" * 1000} for k in range(80)]


async def cut_log(server: Server, hc: Client, table: str) -> None:
    """Publish until nothing of what was before can be read from the log."""
    seq, value = server.engine.seq, 0
    while server.storage.readable_from is None or server.storage.readable_from <= seq:
        await hc.publish(table, long_rows(value))
        value += 1


async def test_a_query_is_answered_though_the_log_is_cut_while_its_tables_are_loaded(tmp_path: Path) -> None:
    """It has aimed at a sequence number, to which a table cannot be loaded any more: only further."""
    async with serving(tmp_path, checkpoint_updates=50, segment_bytes=64 << 10) as (_, server, hc):
        await hc.execute(CREATE)
        for name in "AB":
            await hc.execute(f"CREATE TABLE {name} (K INTEGER PRIMARY KEY, V INTEGER)")
            await hc.publish(name, [{"K": 1, "V": 1}])
        await hc.query(BOTH)
        with closing(sqlite3.connect(table_file(server, "B"), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await hc.publish("A", [{"K": 1, "V": 2}])
            await hc.publish("B", [{"K": 1, "V": 2}])
            asking = asyncio.create_task(hc.query(BOTH))
            await cut_log(server, hc, "T")
            assert not asking.done()
            other.execute("ROLLBACK")
        assert await asking == [(2, 2)]


async def test_a_file_that_is_lost_is_made_again_though_the_log_is_cut(tmp_path: Path) -> None:
    async with serving(tmp_path, checkpoint_updates=50, segment_bytes=64 << 10) as (_, server, hc):
        await hc.execute(CREATE)
        await hc.execute("CREATE TABLE A (K INTEGER PRIMARY KEY)")
        await hc.publish("A", {"K": np.arange(100)})
        assert await hc.query("SELECT count(*) FROM A") == [(100,)]
        for freshness in (1.0, 0.0):
            await cut_log(server, hc, "T")
            table_file(server, "A").unlink()
            assert await hc.query("SELECT count(*) FROM A", freshness=freshness) == [(100,)]
