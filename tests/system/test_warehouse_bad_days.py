"""Greedy clients, unlucky operators and bad days of the warehouse: nobody else waits, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest

from hullcast.broker.processes import heartbeat
from hullcast.broker.server.service import Server
from hullcast.broker.server.warehouse import WAREHOUSE
from hullcast.broker.warehouse.files.table_file import FOLDER
from hullcast.broker.warehouse.messages import AnswerRows, Ask
from hullcast.broker.warehouse.process.questions import SPOOL
from hullcast.network.wire.errors import HullcastError
from hullcast.network.wire.logs import event_of
from tests.support.cluster import PATIENCE_S, PATIENT, ProcessMember, cluster, wait_for
from tests.system.test_warehouse import CREATE, ENDLESS, serving, warehouse_process
from tests.system.test_warehouse_answers import MANY, table_file, workers


def _wait(server: Server, number: int) -> bool:
    return server.warehouse.reported("waiting") == number


async def test_a_question_that_may_not_run_yet_holds_up_no_loads(tmp_path: Path) -> None:
    """It reads two tables of one moment: they are held there until it runs, but its owner has no place free."""
    async with serving(tmp_path, query_s=30.0) as (made, server, greedy):
        for name in "AB":
            await greedy.execute(f"CREATE TABLE {name} (K INTEGER PRIMARY KEY, V INTEGER)")
            await greedy.publish(name, [{"K": 1, "V": 0}])
        await greedy.query("SELECT * FROM A, B")
        slow = [asyncio.create_task(greedy.query(ENDLESS, timeout=PATIENCE_S)) for _ in range(2)]
        await wait_for(lambda: server.warehouse.reported("running") == 2, "its places are taken")
        async with made.client() as modest:
            for i in range(1, 4):
                for name in "AB":
                    await modest.publish(name, [{"K": 1, "V": i}])
                slow.append(asyncio.create_task(greedy.query("SELECT * FROM A, B", timeout=PATIENCE_S)))
                await wait_for(partial(_wait, server, i), "it waits")
                await modest.publish("A", [{"K": 1, "V": 10 + i}])
                assert await modest.query("SELECT V FROM A", deadline=5.0) == [(10 + i,)]
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


@pytest.mark.slow
async def test_loads_that_somebody_demands_with_the_highest_priority_leave_a_place_for_others(tmp_path: Path) -> None:
    async with serving(tmp_path) as (made, server, greedy):
        rows = 60_000
        for i in range(12):
            await greedy.execute(f"CREATE TABLE L{i} (K INTEGER PRIMARY KEY, S TEXT)")
            await greedy.publish(f"L{i}", {"K": np.arange(rows), "S": [f"text {j}" for j in range(rows)]})
        await greedy.execute(CREATE)
        await greedy.query("SELECT count(*) FROM T")
        ended: list[float] = []

        async def ask(i: int) -> None:
            await greedy.query(f"SELECT count(*) FROM L{i}", priority=1000, timeout=PATIENCE_S)
            ended.append(time.monotonic())

        asking = [asyncio.create_task(ask(i)) for i in range(12)]
        await wait_for(lambda: server.warehouse.reported("waiting") >= 8, "loads are wanted")
        async with made.client() as modest:
            await modest.publish("T", [{"K": 1}])
            assert await modest.query("SELECT count(*) FROM T") == [(1,)]
        assert len(ended) <= 9, "it was not behind all the others"
        await asyncio.gather(*asking)


async def test_deadlines_of_queries_long_answered_are_forgotten(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, _, hc):
        await hc.query("SELECT 1")
        before = len(asyncio.get_running_loop()._scheduled)  # type: ignore[attr-defined]  # there is no public count
        for _ in range(10):
            await asyncio.gather(*(hc.query("SELECT 1", deadline="1h") for _ in range(20)))
        assert len(asyncio.get_running_loop()._scheduled) < before + 120  # type: ignore[attr-defined]


async def test_a_damaged_page_is_noticed_and_the_file_made_again(tmp_path: Path) -> None:
    async with serving(tmp_path, warehouse_processes=2) as (_, server, hc):
        await hc.execute(CREATE)
        await hc.publish("T", {"K": np.arange(50_000), "S": [f"text {i}" for i in range(50_000)]})
        assert await hc.query("SELECT count(*) FROM T") == [(50_000,)]
        path = table_file(server, "T")
        old = workers()
        for worker in old:  # they have pages of it in memory
            worker.kill()
        await wait_for(lambda: not any(map(_lives, old)) and len(workers()) == 2, "there are others")
        with path.open("r+b") as file:
            for page in range(5, path.stat().st_size // 8192, 3):
                file.seek(page * 8192)
                file.write(os.urandom(200))
        sql = "SELECT count(*), max(S), min(K), max(K), sum(length(S)) FROM T"
        expected = [(50_000, "text 9999", 0, 49_999, sum(len(f"text {i}") for i in range(50_000)))]
        assert await hc.query(sql, freshness=0.0) == expected
        await hc.publish("T", [{"K": 1, "S": "text 1"}])
        assert await hc.query(sql) == expected


@pytest.mark.slow
async def test_a_table_dropped_while_it_is_loaded_leaves_no_file(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server, hc):
        assert server.settings.data is not None
        folder = server.settings.data / FOLDER
        for i in range(3):
            await hc.execute(f"CREATE TABLE D{i} (K INTEGER PRIMARY KEY, S TEXT)")
            await hc.publish(f"D{i}", {"K": np.arange(200_000), "S": [f"text {j}" for j in range(200_000)]})
            asking = asyncio.create_task(hc.query(f"SELECT count(*) FROM D{i}"))
            await wait_for(lambda: list(folder.glob("*.tmp")), "it is being loaded")
            await hc.execute(f"DROP TABLE D{i}")
            with pytest.raises(HullcastError):
                await asking
        await wait_for(lambda: not list(folder.iterdir()), "nothing is left")


@pytest.mark.slow
async def test_when_server_and_warehouse_are_killed_their_workers_end(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(0, tmp_path / "data", processes=tmp_path, link=PATIENT, query_s=2.0) as made,
        made.client() as hc,
    ):
        await hc.query("SELECT 1")
        slow = asyncio.create_task(hc.query(ENDLESS, timeout=PATIENCE_S))
        assert isinstance(made.server, ProcessMember)
        assert made.server.process is not None
        (process,) = psutil.Process(made.server.process.pid).children()
        left = process.children()
        assert len(left) == 4
        await wait_for(lambda: max(one.cpu_times().user for one in left) > 0.2, "it runs")
        made.server.process.kill()
        process.kill()
        await wait_for(lambda: not any(_lives(one) for one in left), "they are gone")
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        await made.server.kill()


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_a_worker_that_was_stopped_is_replaced(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, _server, hc):
        await hc.execute(CREATE)
        await hc.publish("T", [{"K": 1}])
        assert await hc.query("SELECT count(*) FROM T") == [(1,)]
        for worker in workers():
            os.kill(worker.pid, signal.SIGSTOP)
        await hc.publish("T", [{"K": 2}])
        assert await hc.query("SELECT count(*) FROM T", timeout=10.0) == [(2,)]


async def test_a_warehouse_that_was_stopped_is_replaced_and_the_query_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "STOPPED_S", 0.3)
    async with serving(tmp_path) as (_, _server, hc):
        await hc.execute(CREATE)
        await hc.publish("T", [{"K": 1}])
        assert await hc.query("SELECT count(*) FROM T") == [(1,)]
        stopped = warehouse_process()
        stopped.suspend()
        assert await hc.query("SELECT count(*) FROM T", timeout=WAREHOUSE.silence_s / 2) == [(1,)]
        assert not _lives(stopped)
        stopped = warehouse_process()
        stopped.suspend()  # otherwise all that it is told would wait in the server's memory, though nobody asks
        await wait_for(lambda: not _lives(stopped), "it is killed")


@pytest.mark.slow
async def test_answers_that_nobody_waits_for_are_not_kept(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, server, hc):
        await hc.execute(CREATE)
        await hc.publish("T", {"K": np.arange(300), "S": [f"text {i}" for i in range(300)]})
        await hc.query("SELECT count(*) FROM T")
        before, spool = psutil.Process().num_fds(), tmp_path / "data" / SPOOL
        for i in range(60):
            ask = Ask(0, "me", MANY, (), ("t",), time.monotonic(), os.urandom(16))
            asking = asyncio.create_task(server.warehouse.ask(ask))
            await asyncio.sleep(0.0005 * i)  # so that it is left at every stage
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        server.warehouse._on_message(AnswerRows(10**6, (), b"", str(spool / "nobody")))  # on its way still
        await wait_for(lambda: not server.warehouse._large, "nothing is owed")
        await wait_for(lambda: not list(spool.iterdir()), "no file is left")
        assert psutil.Process().num_fds() <= before + 5


@pytest.mark.slow
async def test_one_large_answer_after_the_other_is_no_overload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hullcast.broker.server.queries.KEPT_PER_OWNER", 3)
    async with serving(tmp_path) as (_, server, hc):
        await hc.execute(CREATE)
        await hc.publish("T", {"K": np.arange(300), "S": [f"text {i}" for i in range(300)]})
        for _ in range(8):
            assert len(await hc.query(MANY)) == 90_000
        assert server.queries.failed == 0


@pytest.mark.slow
async def test_many_sets_of_tables_need_few_open_files(tmp_path: Path) -> None:
    async with serving(tmp_path, warehouse_processes=2) as (_, _server, hc):
        for i in range(14):
            await hc.execute(f"CREATE TABLE F{i} (K INTEGER PRIMARY KEY)")
            await hc.publish(f"F{i}", [{"K": i}])
        for i in range(36):
            chosen = (
                [f"F{(i + j) % 14}" for j in range(11)] if i < 14 else [f"F{(i * 3 + j * j) % 14}" for j in range(4)]
            )
            names = list(dict.fromkeys(chosen))
            rows = await hc.query(f"SELECT * FROM {', '.join(names)}")
            assert rows == [tuple(int(name[1:]) for name in names)]
        assert max(worker.num_fds() for worker in workers()) < 300


async def test_loads_have_memory_however_little_a_query_may_take(tmp_path: Path) -> None:
    async with serving(tmp_path, warehouse_processes=1, query_memory_bytes=16 << 20) as (_, _server, hc):
        await hc.query("SELECT 1")
        await hc.execute("CREATE TABLE T (K TEXT PRIMARY KEY, S TEXT)")
        keys = [f"key {i}" for i in range(100_000)]
        texts = [f"{i:0500}" for i in range(1000)]
        for _ in range(2):
            await hc.publish("T", {"K": keys, "S": [texts[i % 1000] for i in range(100_000)]})
            assert await hc.query("SELECT count(*) FROM T") == [(100_000,)]


@pytest.mark.slow
async def test_the_log_says_once_which_table_cannot_be_loaded_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as (_, server, hc):
        await hc.execute(CREATE)
        await hc.publish("T", [{"K": 1}])
        (tmp_path / "data" / FOLDER).write_text("in the way")
        asking = asyncio.create_task(hc.query("SELECT count(*) FROM T"))
        await wait_for(lambda: server.warehouse.reported("load_failures") > 2, "it is tried again")
        (tmp_path / "data" / FOLDER).unlink()
        assert await asking == [(1,)]
        (said,) = [record for record in caplog.records if event_of(record) == "load failed"]
        assert said.__dict__["table"] == "t"
        assert "File exists" in said.__dict__["why"]
