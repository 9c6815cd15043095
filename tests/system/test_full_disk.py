"""Full disks. That of the warehouse: questions are told why, old rows are answered, publishing goes on. That of the
log: publishes are refused, all else goes on. And when there is room again, everything is there once."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest
import zmq

from hullcast.broker.server.metrics import server_metrics
from hullcast.broker.warehouse.files.table_file import FOLDER
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.connecting import configure
from hullcast.network.wire.errors import HullcastError, SqlError, TimedOut
from tests.support.answered import TABLES, Answered, UpdateHistory, create
from tests.support.cluster import COMMAND, PATIENCE_S, PATIENT, TaskMember, cluster, free_port, server_of, wait_for
from tests.support.disks import fill, small_disk
from tests.support.secured import secured

#: A file system of its own for the files of tables, then the server.
MOUNT = 'mount -t tmpfs -o size=2m none "$0" && exec "$@"'


class Confined:
    """A server whose files of tables are on a small disk of their own."""

    context: zmq.Context[Any]

    def __init__(self, process: asyncio.subprocess.Process, folder: Path, endpoint: str) -> None:
        self.process, self.endpoint = process, endpoint
        self._filler = Path(f"/proc/{process.pid}/root{folder}") / "lost+found" / "filler"  # as disks have one

    def fill(self) -> None:
        """Leave no room."""
        self._filler.parent.mkdir(exist_ok=True)
        with suppress(OSError), self._filler.open("ab", buffering=0) as file:
            for size in (65536, 4096, 1):
                with suppress(OSError):
                    while True:
                        file.write(b"x" * size)

    def make_room(self) -> None:
        self._filler.unlink()

    def warehouse(self) -> psutil.Process:
        found = [one for one in psutil.Process(self.process.pid).children() if len(one.cmdline()) > 3]
        (warehouse,) = [one for one in found if "hullcast.broker.warehouse.process.live" in " ".join(one.cmdline())]
        return warehouse


@asynccontextmanager
async def confined(tmp_path: Path) -> AsyncIterator[Confined]:
    if not sys.platform.startswith("linux") or shutil.which("unshare") is None:
        pytest.skip("there is no `unshare` command")
    data = tmp_path / "data"
    (data / FOLDER).mkdir(parents=True)
    (data / FOLDER).chmod(0o700)
    data.chmod(0o700)
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    words = ["server", "--json", "--until-input-ends", f"--listen={endpoint}", f"--data={data}"]
    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, str(data / FOLDER)),
            str(COMMAND), *words,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            said = (tmp_path / "log").read_text()
            assert "mount" in said or "unshare" in said, said
            pytest.skip(f"no file system can be mounted here: {said.strip()}")
        assert json.loads(line)["ready"]
        with zmq.Context() as context:
            made = Confined(process, data / FOLDER, endpoint)
            made.context = context
            yield made
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.communicate()


@pytest.mark.slow
async def test_a_full_disk_holds_up_loads_only_and_nothing_is_lost(tmp_path: Path) -> None:
    history, rng, stop = UpdateHistory(), Random(3), asyncio.Event()
    answers: list[Answered] = []
    everything = " UNION ALL ".join(f"SELECT '{table}', count(*), sum(V) FROM {table}" for table in TABLES)

    async def publish(hc: Client) -> None:
        while not stop.is_set():
            await history.publish(hc, rng)

    async def ask(sql: str, *tables: str, freshness: float = 1.0, **terms: object) -> Answered:
        answer = await history.answer(hc, sql, (), tables, {"freshness": freshness, **terms})
        assert answer is not None
        answers.append(answer)
        return answer

    async def refused(sql: str) -> str:
        with pytest.raises(HullcastError) as raised:
            await hc.query(sql, timeout=2.0)
        return str(raised.value)

    async with (
        asyncio.timeout(2 * PATIENCE_S),
        confined(tmp_path) as server,
        Client(configure([server.endpoint], timeout=PATIENCE_S), server.context) as hc,
    ):
        await history.create(hc)
        for _ in range(20):
            await history.publish(hc, rng)
        await ask(everything, *TABLES)
        publishing = asyncio.create_task(publish(hc))
        server.fill()
        full_from = history.acknowledged
        reason = ""
        while "is full" not in reason:  # what room there was in the files is used first
            try:
                await ask("SELECT * FROM A", "A", timeout=1.0)
            except TimedOut as error:
                reason = str(error)
        assert "table A cannot be loaded" in reason
        assert "no update is lost" in reason
        assert "freshness=0" in reason
        for _ in range(5):
            await ask(everything, *TABLES, freshness=0.0)
            await ask("SELECT * FROM A", "A", freshness=0.0)
        assert answers[-1].worth.unapplied > 0
        await hc.execute(create("A").replace("TABLE A", "TABLE NEW"))
        assert "table NEW cannot be loaded" in await refused("SELECT * FROM NEW")
        for process in (*server.warehouse().children()[:2], server.warehouse()):
            os.kill(process.pid, signal.SIGKILL)
            await ask(everything, *TABLES, freshness=0.0)
        published = history.acknowledged
        assert published > full_from
        await wait_for(lambda: history.acknowledged > published + 50, "publishing goes on")
        waiting = asyncio.create_task(ask(everything, *TABLES))
        server.make_room()
        await waiting
        stop.set()
        await publishing
        for table in TABLES:
            await ask(f"SELECT * FROM {table}", table)
        assert await hc.query("SELECT count(*) FROM NEW") == [(0,)]
    kinds = history.judge(answers)
    assert kinds["stale"] >= 5


@pytest.mark.parametrize("reserve_bytes", [1 << 30, 0], ids=["a reserve", "no reserve"])
async def test_a_full_disk_of_the_log_refuses_publishes_and_nothing_else(tmp_path: Path, reserve_bytes: int) -> None:
    """With a reserve they are refused before they are applied; without one the first waits for the disk."""
    processes = None if reserve_bytes else tmp_path  # then the server is killed, too
    with small_disk(tmp_path / "disk", 8 << 20) as disk:
        async with (
            asyncio.timeout(PATIENCE_S),
            cluster(0, disk / "data", processes=processes, link=PATIENT, reserve_bytes=reserve_bytes) as made,
            made.client() as hc,
            made.client() as other_hc,
        ):
            await hc.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, V INTEGER)")
            await hc.publish("T", {"K": [1, 2], "V": [1, 2]})
            total = "SELECT COUNT(*), SUM(V) FROM T"
            assert await hc.query(total) == [(2, 3)]
            many = {"K": list(range(1000, 2000)), "V": [0] * 1000}
            async with hc.subscribe("SELECT SUM(V) FROM T WHERE K < 100") as sub:
                filler = fill(disk)
                waiting = asyncio.create_task(hc.publish("T", many))
                assert "the server's disk is full" in await why_full(hc)
                with pytest.raises(TimedOut, match=r"disk is full: .* bytes are free .* again without a restart"):
                    await other_hc.publish("T", {"K": [3], "V": [10]}, timeout=0.5)
                assert await hc.query(total) == [(2, 3)]
                if isinstance(made.server, TaskMember):
                    server = server_of(made)
                    assert "disk full: publishes refused" in str(server.ready())
                    values = {one.name: one.samples[0].value for one in server_metrics(server) if one.samples}
                    assert values["hullcast_disk_full"] == 1
                    assert values["hullcast_disk_free_bytes"] < values["hullcast_disk_reserve_bytes"]
                if reserve_bytes:  # nothing was applied that is not on disk, so there is nothing to hide
                    async with hc.subscribe("SELECT MAX(V) FROM T WHERE K < 100") as other:
                        assert other.answer == 2
                assert not waiting.done()
                filler.unlink()
                receipt = await waiting
                assert (receipt.first_seq, receipt.seq) == (3, 1002)
                assert await hc.query(total) == [(1002, 3)]

                filler = fill(disk)
                waiting = asyncio.create_task(hc.publish("T", {"K": [4] * 1000, "V": [100] * 1000}))
                await why_full(hc)
                if processes is not None:
                    await made.server.kill()
                    await made.server.start()
                assert await hc.query(total) == [(1002, 3)]
                assert not waiting.done()
                filler.unlink()
                assert (await waiting).seq == 2002
                await wait_for(lambda: sub.answer == 103, "the change")
                assert (await other_hc.publish("T", {"K": [5], "V": [1000]})).seq == 2003
                await wait_for(lambda: sub.answer == 1103, "the change")
            assert await hc.query(total) == [(1004, 1103)]


async def why_full(hc: Client) -> str:
    """Wait until a server's disk is full; why it is."""
    while (full := (await hc.status())["log"]["disk_full"]) is None:  # noqa: ASYNC110  (of another process)
        await asyncio.sleep(0.01)
    return str(full)


async def test_answers_that_a_reader_leaves_unfetched_fill_no_disk_and_stop_no_publisher(tmp_path: Path) -> None:
    """Its key may only query. The rest of each answer takes 16 MB until it is fetched."""
    squared = "SELECT a.SYMBOL || b.SYMBOL FROM STOCK a, STOCK b"
    with small_disk(tmp_path / "disk", 48 << 20) as disk:
        async with (
            asyncio.timeout(PATIENCE_S),
            secured(tmp_path, data=disk / "data") as place,
            place.client("admin") as admin,
            place.client("ticker") as ticker,
            place.client("reader") as reader,
            AsyncExitStack() as left,
        ):
            await admin.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, PER REAL)")
            await ticker.publish("STOCK", {"SYMBOL": [f"{i:0200}" for i in range(200)], "PER": [1.0] * 200})
            answers = []
            for _ in range(6):
                answers.append(await left.enter_async_context(aclosing(reader.query_portions(squared))))
                assert await anext(answers[-1])
                await ticker.publish("STOCK", {"SYMBOL": ["A"], "PER": [2.0]})
            space = place.server.storage.space
            assert space is not None
            kept = place.server.queries._kept.values()
            await wait_for(lambda: all(one.rest.ended for one in kept), "all of them to end")
            assert space.free_bytes > space.reserve_bytes > 4 << 20
            with pytest.raises(SqlError, match=r"bytes are free .* are reserved for the commit log; fetch or close"):
                async for _ in answers[-1]:
                    pass
            for number in range(20):
                await ticker.publish("STOCK", {"SYMBOL": ["B"] * 1000, "PER": [float(number)] * 1000})
            assert await reader.query("SELECT PER FROM STOCK WHERE SYMBOL = 'B'") == [(19.0,)]
            assert place.server.ready() is None


async def test_a_table_too_large_for_queries_is_refused_and_its_bytes_are_counted(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(0, tmp_path / "data", link=PATIENT, warehouse_file_bytes=2 << 20) as made,
        made.client() as hc,
    ):
        await hc.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, S TEXT)")
        await hc.publish("T", {"K": list(range(20)), "S": ["x" * 65536] * 20})
        assert await hc.query("SELECT COUNT(*), SUM(LENGTH(S)) FROM T") == [(20, 20 << 16)]
        queries = server_of(made).queries
        await wait_for(lambda: queries.status()["tables"].get("T", {"bytes": 0})["bytes"] > 20 << 16, "a report")
        assert (await hc.status())["queries"]["tables"]["T"]["bytes"] < 2 << 20
        await hc.publish("T", {"K": list(range(100)), "S": ["x" * 65536] * 100})
        with pytest.raises(TimedOut, match=r"table T cannot be loaded .* more than 2,097,152 bytes .* every row"):
            await hc.query("SELECT COUNT(*) FROM T", timeout=0.5)
        assert await hc.query("SELECT COUNT(*) FROM T", freshness=0) == [(20,)]
        await hc.delete("T", list(range(10, 100)))
        assert await hc.query("SELECT COUNT(*) FROM T") == [(10,)]
