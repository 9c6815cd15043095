"""SIGTERM ends a server and everything it started within five seconds, whatever it is doing, and loses nothing.

A stop during the replay of the log is in test_server_and_node.py, one under many publishers too; `hullcast up` is in
test_up.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from asyncio.subprocess import PIPE
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest

import hullcast
from hullcast.clients.processes.child import command, environment, launch
from hullcast.clients.processes.signals import SAME_S
from hullcast.network.node.stopping import STOP_S
from tests.support.processes import ANYWHERE, LIMIT_S, marked, running, started, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from hullcast.clients.processes.child import Child
    from hullcast.clients.sdk.client import Client

    Situation = Callable[[Child, Client, AsyncExitStack], Awaitable[object]]

CREATE = "CREATE TABLE IF NOT EXISTS T (K INTEGER PRIMARY KEY, X REAL, Y REAL)"
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
ROWS = 30_000


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from marked(monkeypatch)


@asynccontextmanager
async def serving(data: Path, *words: str) -> AsyncIterator[tuple[Child, Client]]:
    """A server on a folder, and a client of it."""
    async with (
        started("server", "--data", str(data), "--listen", ANYWHERE, *words) as server,
        hullcast.connect(server.endpoint, timeout=LIMIT_S) as hc,
    ):
        yield server, hc


async def in_time(stopped: Awaitable[int], code: int = 0) -> None:
    """A stop that ends with a code, and leaves nothing, within five seconds."""
    async with asyncio.timeout(STOP_S):
        assert await stopped == code
        while running():  # noqa: ASYNC110  (processes of others; one that was just killed may be shown for a moment)
            await asyncio.sleep(0.01)


def rows(first: int, count: int) -> dict[str, Any]:
    keys = np.arange(first, first + count)
    return {"K": keys, "X": keys * 1.0, "Y": keys % 10 * 1.0}


def later(stack: AsyncExitStack, work: Any) -> asyncio.Task[Any]:
    """Work that goes on until the end, whatever becomes of it."""
    task: asyncio.Task[Any] = asyncio.ensure_future(work)

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)
    return task


# --- what a server may be doing --------------------------------------------------------------------------------


async def a_large_batch(server: Child, hc: Client, stack: AsyncExitStack) -> None:
    """It is prepared in slices, for so many channels, and not there before the last."""
    for kind in ("MIN(Y)", "MAX(Y)", "COUNT(*)", "SUM(Y)", "DISTINCT Y", "K, Y", "MIN(K)", "AVG(Y)"):
        await hc.subscribe(f"SELECT {kind} FROM T WHERE X BETWEEN ? AND ?", 5, 6)
    publishing = later(stack, hc.publish("T", rows(10 * ROWS, 3 * ROWS)))
    await asyncio.sleep(0.1)
    assert not publishing.done()


async def a_checkpoint(server: Child, hc: Client, stack: AsyncExitStack) -> None:
    folder = next(arg for arg in psutil.Process(server.pid).cmdline() if arg.endswith("/data"))

    async def publish() -> None:
        while True:
            await hc.publish("T", rows(0, ROWS))

    later(stack, publish())
    await wait_until(lambda: any("checkpoint" in name and not name.endswith(".sqlite") for name in os.listdir(folder)))


async def a_query(server: Child, hc: Client, stack: AsyncExitStack) -> None:
    later(stack, hc.query(ENDLESS))
    await busy_worker(server)


async def a_view(server: Child, hc: Client, stack: AsyncExitStack) -> None:
    await hc.execute("CREATE TABLE IF NOT EXISTS U (L INTEGER PRIMARY KEY, Z REAL)")
    await hc.publish("U", {"L": np.arange(ROWS), "Z": np.arange(ROWS) % 10 * 1.0})
    sql = "SELECT T.Y, COUNT(*) AS N FROM T JOIN U ON T.Y = U.Z GROUP BY T.Y"
    making = later(stack, hc.execute(f"CREATE VIEW V AS {sql} WITH (response_time = '60s')"))
    await busy_worker(server)
    assert not making.done()


async def busy_worker(server: Child) -> None:
    """A worker of the warehouse has begun something that takes long."""

    def busy() -> bool:
        own = psutil.Process(server.pid)
        workers = [one for child in own.children() for one in child.children()]
        return any(sum(worker.cpu_times()[:2]) > 0.3 for worker in workers)

    await wait_until(busy)


async def a_join(server: Child, hc: Client, stack: AsyncExitStack) -> None:
    for name in "RS":
        await hc.execute(f"CREATE STREAM IF NOT EXISTS {name} (K INTEGER, V REAL)")
    sql = "SELECT R.V, S.V FROM R [ROWS 1000] JOIN S [ROWS 1000] ON R.K = S.K"
    got = await hc.subscribe(sql)

    async def publish(name: str) -> None:
        while True:
            await hc.publish(name, {"K": np.arange(500) % 7, "V": np.arange(500) * 1.0})

    for name in "RS":
        later(stack, publish(name))
    async with asyncio.timeout(LIMIT_S):
        await anext(aiter(got))


async def stopped_children(server: Child, hc: Client, stack: AsyncExitStack) -> None:
    """One of each kind, and a question for each that nobody will answer."""
    await a_join(server, hc, stack)
    assert await hc.query("SELECT count(*) FROM T")
    assert (await anext(hc.changes("T"))).last
    children = psutil.Process(server.pid).children(recursive=True)
    assert len(children) >= 4  # the warehouse, workers of it, the reader of the history, streams
    for child in children:
        child.suspend()
    later(stack, hc.query("SELECT count(*) FROM T"))
    later(stack, anext(hc.changes("T")))
    await asyncio.sleep(0.1)


SITUATIONS: dict[Situation, tuple[str, ...]] = {
    a_large_batch: (),
    a_checkpoint: ("--checkpoint-updates", str(ROWS)),
    a_query: ("--query-s", "600"),
    a_view: ("--query-s", "600"),
    a_join: (),
    stopped_children: (),
}


async def test_a_server_stops_in_time_whatever_it_is_doing(tmp_path: Path) -> None:
    """One folder: the start after a stop shows that all that was acknowledged is there."""
    data, acknowledged = tmp_path / "data", 0
    for situation, words in SITUATIONS.items():
        async with serving(data, *words) as (server, hc), AsyncExitStack() as stack:
            await hc.execute(CREATE)
            if acknowledged:
                ((found,),) = await hc.query(f"SELECT count(*) FROM T WHERE K < {10 * ROWS}")
                assert found == acknowledged
            await hc.publish("T", rows(acknowledged, ROWS))
            acknowledged += ROWS
            await situation(server, hc, stack)
            await in_time(server.stop())
    async with serving(data) as (_, hc):
        ((found,),) = await hc.query(f"SELECT count(*) FROM T WHERE K < {10 * ROWS}")
        assert found == acknowledged


async def test_a_server_and_its_nodes_stop_in_time_beside_clients_that_do_not_answer(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as (server, hc), AsyncExitStack() as stack:
        await hc.execute(CREATE)
        words = ("node", "--parent", server.endpoint, "--listen", ANYWHERE)
        node, silent = [await stack.enter_async_context(started(*words)) for _ in range(2)]
        ways = (server.endpoint, node.endpoint)
        clients = [await stack.enter_async_context(hullcast.connect(ways[at % 2])) for at in range(200)]
        await asyncio.gather(*(client.tables() for client in clients))
        asked = command("subscribe", "SELECT COUNT(*) FROM T", "--url", server.endpoint)
        reader = await asyncio.create_subprocess_exec(*asked, env=environment(), stdout=PIPE)
        assert reader.stdout is not None
        await reader.stdout.readline()
        reader.send_signal(signal.SIGSTOP)
        silent.signal(signal.SIGSTOP)
        began = time.monotonic()
        assert list(await asyncio.gather(server.stop(), node.stop())) == [0, 0]
        assert time.monotonic() - began < STOP_S
        reader.kill()
        await asyncio.gather(reader.communicate(), silent.stop(0.0))
        assert running() == []


async def test_a_server_whose_disk_blocks_ends_by_force_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time in its time, the second time at a second signal; its children end with it, also stopped ones."""
    stuck, data = tmp_path / "stuck", tmp_path / "data"
    monkeypatch.setenv("STUCK", str(stuck))
    words = ("server", "--data", str(data), "--listen", ANYWHERE)
    for number, code in enumerate((2, 128 + signal.SIGTERM)):
        lines: list[str] = []
        server = await launch(words, name="server", hear=lines.append, module="tests.support.stuck_disk")
        try:
            await server.wait_ready(LIMIT_S)
            async with hullcast.connect(server.endpoint, timeout=LIMIT_S) as hc:
                await hc.execute(CREATE)
                await hc.publish("T", [{"K": number}])
                assert await hc.query("SELECT count(*) FROM T WHERE K >= 0") == [(number + 1,)]
                for child in psutil.Process(server.pid).children(recursive=True):
                    child.suspend()
                stuck.touch()
                publishing = asyncio.ensure_future(hc.publish("T", [{"K": -1}]))
                await asyncio.sleep(0.2)
                server.signal(signal.SIGTERM)
                if code != 2:
                    await asyncio.sleep(2 * SAME_S)
                    server.signal(signal.SIGTERM)
                await in_time(server.wait(), code)
                publishing.cancel()
                await asyncio.gather(publishing, return_exceptions=True)
        finally:
            stuck.unlink(missing_ok=True)
            await server.stop(0.0)
        assert any("ended by force" in line and 'busy="syncing the log"' in line for line in lines), lines
    async with serving(data) as (_, hc):
        assert await hc.query("SELECT count(*) FROM T WHERE K >= 0") == [(2,)]


async def test_children_of_a_server_that_is_killed_end_though_they_are_stopped(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as (server, hc):
        await hc.execute(CREATE)
        assert await hc.query("SELECT count(*) FROM T") == [(0,)]
        for child in psutil.Process(server.pid).children(recursive=True):
            child.suspend()
        server.signal(signal.SIGKILL)
        await in_time(server.wait(), -signal.SIGKILL)
