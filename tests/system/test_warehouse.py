"""One-time queries in the warehouse: bounded in time and memory, killed without harm, and nobody keeps others out."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from hullcast.broker.processes.ends import message_bytes
from hullcast.broker.server import queries
from hullcast.broker.server.service import Server
from hullcast.broker.server.warehouse import Warehouse
from hullcast.clients.sdk.client import Client
from hullcast.network.wire.errors import HullcastError, NotPermitted, Overloaded, SqlError, UnknownTable
from tests.support.cluster import PATIENCE_S, PATIENT, Cluster, cluster, server_of, wait_for
from tests.support.secured import secured

CREATE = "CREATE TABLE T (K INTEGER PRIMARY KEY, X REAL, S TEXT, AT TIMESTAMP)"
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"


def warehouse_process() -> psutil.Process:
    (found,) = [
        one
        for one in psutil.Process().children()
        if "hullcast.broker.warehouse.process.live" in " ".join(one.cmdline())
    ]
    return found


@asynccontextmanager
async def serving(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[Cluster, Server, Client]]:
    """A server with a data directory, and a client of it."""
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(0, tmp_path / "data", link=PATIENT, **settings) as made,
        made.client() as hc,
    ):
        yield made, server_of(made), hc


async def test_a_query_sees_everything_published_before_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, _, hc):
        await hc.execute(CREATE)
        for i in range(50):
            await hc.publish("T", {"K": np.arange(i * 3), "X": np.full(i * 3, float(i)), "S": [f"s{i}"] * (i * 3)})
            await hc.delete("T", [1])
            rows = await hc.query("SELECT count(*), min(X), max(X), min(S) FROM T WHERE K <> ?", 2)
            n = max(0, i * 3 - (i > 0) * 2)
            assert rows == [(n, float(i), float(i), f"s{i}") if n else (0, None, None, None)]
        await hc.execute("DROP TABLE T")
        with pytest.raises(UnknownTable):
            await hc.query("SELECT * FROM T")
        await hc.execute("CREATE TABLE T (NAME TEXT PRIMARY KEY)")
        await hc.publish("T", [{"NAME": "other"}])
        assert await hc.query("SELECT * FROM T") == [("other",)]


async def test_workers_are_less_urgent_than_the_server_in_its_own_session(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, _, hc):
        await hc.execute(CREATE)
        await hc.query("SELECT count(*) FROM T")
        process = warehouse_process()
        workers = process.children()
        assert workers
        assert all(worker.nice() > psutil.Process().nice() for worker in workers)
        for one in (process, *workers):  # where sessions are groups, niceness would count for nothing in another one
            assert os.getsid(one.pid) == os.getsid(0)
            assert os.getpgid(one.pid) == process.pid  # yet they are killed together, and get no Ctrl-C


async def test_a_query_is_stopped_at_its_time_and_others_go_on(tmp_path: Path) -> None:
    async with serving(tmp_path, query_s=1.0) as (_, _, hc):
        await hc.execute(CREATE)
        began = time.monotonic()
        slow = asyncio.create_task(hc.query(ENDLESS))
        assert await hc.query("SELECT count(*) FROM T") == [(0,)]
        assert not slow.done()
        with pytest.raises(SqlError, match="stopped after 1 s"):
            await slow
        assert time.monotonic() - began >= 1.0


async def test_a_query_gets_no_more_memory_than_it_may(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"query_s": 30.0, "query_memory_bytes": 64 << 20}
    async with serving(tmp_path, **limits) as (_, _, hc):
        await hc.execute(CREATE)
        await hc.publish("T", {"K": np.arange(50_000), "S": ["x" * 200] * 50_000})
        with pytest.raises(SqlError, match=r"64 MiB of memory|too big|too much memory"):
            await hc.query("SELECT a.S || b.S, a.K FROM T a, T b ORDER BY 1")
        assert await hc.query("SELECT count(*) FROM T") == [(50_000,)]


async def test_when_the_warehouse_process_is_killed_the_next_query_finds_another(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server, hc):
        await hc.execute(CREATE)
        await hc.publish("T", {"K": np.arange(1000), "X": np.arange(1000) / 2})
        assert await hc.query("SELECT max(X) FROM T") == [(499.5,)]
        for _ in range(2):
            os.kill(warehouse_process().pid, signal.SIGKILL)
            await hc.publish("T", [{"K": 1, "X": 1000.0}])
            assert await hc.query("SELECT max(X) FROM T") == [(1000.0,)]  # retried by the client, if need be
        waiting = asyncio.create_task(hc.query("SELECT count(*) FROM T a, T b, T c WHERE a.X < b.X AND b.X < c.X"))
        await wait_for(lambda: warehouse_process().children(), "the query runs")
        os.kill(warehouse_process().pid, signal.SIGKILL)
        await wait_for(lambda: server.warehouse.child.lives == 4, "it is tried again in another process")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_table_that_was_dropped_is_forgotten(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server, hc):
        stores: list[weakref.ref[Any]] = []
        for i in range(3):
            await hc.execute(f"CREATE TABLE T{i} (K INTEGER PRIMARY KEY)")
            await hc.publish(f"T{i}", {"K": np.arange(10)})
            assert await hc.query(f"SELECT count(*) FROM T{i}") == [(10,)]
            stores.append(weakref.ref(server.engine.catalogue.store(f"T{i}")))
            await hc.execute(f"DROP TABLE T{i}")
        gc.collect()
        assert [store() is None for store in stores] == [True] * 3


async def test_a_process_that_cannot_be_started_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as (_, server, hc):
        await hc.execute(CREATE)
        with monkeypatch.context() as broken:
            broken.setattr("sys.executable", "/nowhere/python")
            waiting = asyncio.create_task(hc.query("SELECT count(*) FROM T"))
            await wait_for(lambda: server.queries.failed > 2, "it is tried again and again")
        assert await waiting == [(0,)]
        assert len(server.engine.feed.tallies) == 1


async def test_a_query_reads_no_table_that_was_made_after_its_rights_were_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the rights are checked, B is nothing but its own CTE; when the text is read there is a table of that name.
    So they are checked again."""
    async with serving(tmp_path) as (_, server, hc):
        await hc.execute(CREATE)
        ask, check, checked = Warehouse.ask, server.queries._check, list[tuple[str, ...]]()

        async def meanwhile(self: Warehouse, *arguments: Any) -> Any:
            server.engine.execute("CREATE TABLE IF NOT EXISTS B (K INTEGER PRIMARY KEY)")
            await self.start()  # the process knows of it
            return await ask(self, *arguments)

        def only_ctes(origin: Any, tables: tuple[str, ...]) -> None:
            checked.append(tables)
            if tables:
                raise NotPermitted("somebody", "query", tables[0])
            check(origin, tables)

        monkeypatch.setattr(Warehouse, "ask", meanwhile)
        monkeypatch.setattr(server.queries, "_check", only_ctes)
        with pytest.raises(NotPermitted, match="on b"):
            await hc.query("SELECT * FROM (WITH B AS (SELECT 1) SELECT * FROM B) JOIN B")
        assert checked == [("b",)]


async def test_one_client_with_many_slow_queries_does_not_keep_another_out(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"query_s": 2.0, "warehouse_processes": 3}
    async with serving(tmp_path, **limits) as (made, server, greedy):
        await greedy.execute(CREATE)
        slow = [asyncio.create_task(greedy.query(ENDLESS, timeout=PATIENCE_S)) for _ in range(20)]
        await wait_for(lambda: server.queries.waiting > 10, "they wait for each other")
        async with made.client() as modest:
            for _ in range(3):
                assert await modest.query("SELECT count(*) FROM T") == [(0,)]
        assert sum(task.done() for task in slow) <= 4
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


async def test_an_odd_statement_is_refused_and_the_server_lives(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server, hc):
        await hc.execute(CREATE)
        await hc.publish("T", [{"K": 1, "AT": "2026-01-01"}])
        for sql in (
            "SELECT * FROM T LATERAL . UNION SELECT * FROM T",
            "SELECT",
            "x" * 5000,
            "SELECT * FROM T WHERE " + "(" * 900 + "1" + ")" * 900,
            "SELECT '\ud800'",
        ):
            with pytest.raises(HullcastError):
                await hc.query(sql)
        rows = await hc.query("SELECT AT FROM T UNION ALL SELECT 'total'")
        assert [type(row[0]).__name__ for row in rows] == ["datetime", "str"]
        for sql in ("SELECT * FROM T LATERAL . UNION SELECT * FROM T", "SELECT MIN(", "SELECT MIN(X) FROM T LATERAL ."):
            with pytest.raises(HullcastError):
                await hc.subscribe(sql)
        assert server.hall.failures == 0


async def test_a_query_needs_a_right_and_errors_tell_nothing_without_one(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path) as made:
        async with made.client("admin") as admin:
            await admin.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, PER REAL)")
            await admin.execute("CREATE TABLE SECRET (PASSWORD TEXT PRIMARY KEY, N REAL)")
        async with made.client("ticker") as ticker:  # may publish only
            for sql in (ENDLESS, "SELECT 1", "SELECT * FROM STOCK"):
                with pytest.raises(NotPermitted):
                    await ticker.query(sql)
            assert made.server.warehouse.child.lives == 0, "nothing was read for somebody who may not ask"
            with pytest.raises(NotPermitted):
                await ticker.subscribe("SELECT NOPE FROM SECRET")
            with pytest.raises(NotPermitted):
                await ticker.explain("SELECT NOPE FROM SECRET")
        async with made.client("reader") as reader:
            assert await reader.query("SELECT count(*) FROM STOCK") == [(0,)]
            for ask in (reader.query, _opened(reader), reader.explain):
                for sql in ("SELECT * FROM SECRET", "SELECT NOPE FROM SECRET", "SELECT * FROM NOWHERE"):
                    with pytest.raises((NotPermitted, UnknownTable, SqlError)) as refused:
                        await ask(sql)
                    assert "PASSWORD" not in str(refused.value)
                    if isinstance(refused.value, UnknownTable):
                        assert refused.value.known == ("STOCK",)
            with pytest.raises(HullcastError):
                await reader.query("WITH sqlite_master AS (SELECT 1 AS sql) SELECT sql FROM main.sqlite_master")


def _opened(client: Client) -> Any:
    async def ask(sql: str) -> None:
        await client.subscribe(sql)

    return ask


async def test_too_many_waiting_queries_of_one_client_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "QUERIES", replace(queries.QUERIES, waiting_per_owner=3))
    monkeypatch.setattr("hullcast.clients.sdk.session.FIRST_RETRY_S", PATIENCE_S)
    async with serving(tmp_path, warehouse_processes=1) as (_, server, hc):
        tasks = [asyncio.create_task(hc.query(ENDLESS, timeout=2.0)) for _ in range(8)]
        await wait_for(lambda: server.queries.admitted == 3, "three wait")
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert any(str(Overloaded("waiting queries of one client", 3)) in str(result) for result in results)


async def test_queries_that_wait_take_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "QUERIES", replace(queries.QUERIES, held_bytes_per_owner=150_000))
    monkeypatch.setattr("hullcast.clients.sdk.session.FIRST_RETRY_S", PATIENCE_S)
    async with serving(tmp_path, warehouse_processes=1) as (_, server, hc):
        tasks = [asyncio.create_task(hc.query(f"{ENDLESS} WHERE x = ?", "x" * 60_000, timeout=2.0)) for _ in range(8)]
        await wait_for(lambda: server.queries.admitted == 2, "two are there, and the others are refused")
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert server.queries.admitted + server.queries.failed <= 2
        assert any(
            str(Overloaded("bytes of waiting queries of one client", 150_000)) in str(result) for result in results
        )


async def test_rows_of_dropped_tables_are_forgotten(tmp_path: Path) -> None:
    async with serving(tmp_path) as (made, server, hc):
        server, gone = server_of(made), []
        for i in range(4):
            await hc.execute(f"CREATE TABLE T{i} (K INTEGER PRIMARY KEY)")
            await hc.publish(f"T{i}", {"K": np.arange(10_000)})
            assert await hc.query(f"SELECT count(*) FROM T{i}") == [(10_000,)]
            gone.append(weakref.ref(server.engine.catalogue.store(f"T{i}").alive))
            await hc.execute(f"DROP TABLE T{i}")
        await hc.execute(CREATE)
        assert await hc.query("SELECT count(*) FROM T") == [(0,)]
        gc.collect()
        assert [one for one in gone if one() is not None] == []
        with pytest.raises(UnknownTable):
            await hc.query("SELECT * FROM T0")


async def test_a_query_costs_the_server_no_more_where_there_are_many_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What tables there are is told once, table by table; with every query it would be megabytes."""
    sent: list[bytes] = []

    def noted(message: Any) -> bytes:
        sent.append(message_bytes(message))
        return sent[-1]

    monkeypatch.setattr("hullcast.broker.processes.ends.message_bytes", noted)
    columns = ", ".join(f"C{i} REAL" for i in range(250))
    async with serving(tmp_path) as (_, _, hc):
        for i in range(50):
            await hc.execute(f"CREATE TABLE T{i} (K INTEGER PRIMARY KEY, {columns})")
        assert await hc.query("SELECT count(*) FROM T7") == [(0,)]
        assert max(map(len, sent)) < 50_000
        sent.clear()
        assert await hc.query("SELECT max(K) FROM T7") == [(None,)]
        assert sum(map(len, sent)) < 10_000
        await hc.execute("DROP TABLE T3")
        await hc.execute("CREATE TABLE T3 (OTHER TEXT PRIMARY KEY)")
        await hc.publish("T3", [{"OTHER": "x"}])
        assert await hc.query("SELECT OTHER FROM T3") == [("x",)]
        await hc.execute("DROP TABLE T8")
        with pytest.raises(UnknownTable):
            await hc.query("SELECT * FROM T8")


async def test_a_queue_full_of_one_clients_queries_has_room_for_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "QUERIES", replace(queries.QUERIES, waiting=5))
    async with serving(tmp_path, warehouse_processes=3) as (made, server, greedy):
        await greedy.execute(CREATE)
        slow = [asyncio.create_task(greedy.query(ENDLESS, timeout=PATIENCE_S)) for _ in range(20)]
        await wait_for(lambda: server.queries.admitted == 5, "the queue is full")
        async with made.client() as modest:
            assert await modest.query("SELECT count(*) FROM T") == [(0,)]
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


async def test_queries_of_a_client_that_is_gone_wait_no_longer(tmp_path: Path) -> None:
    async with serving(tmp_path, warehouse_processes=2) as (made, server, _):
        async with made.client() as gone:
            slow = [asyncio.create_task(gone.query(ENDLESS, timeout=PATIENCE_S)) for _ in range(20)]
            await wait_for(lambda: server.queries.waiting > 10, "they wait for each other")
        await asyncio.gather(*slow, return_exceptions=True)
        await wait_for(lambda: not server.queries.admitted + server.queries.waiting, "nobody waits, and nothing runs")
        await wait_for(lambda: server.warehouse.reported("running") == 0, "the one that ran was stopped")
