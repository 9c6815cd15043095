"""Queries that nobody waits for any more: they stop wherever they are, whoever asked, and nobody else notices."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hullcast.broker.server import queries
from hullcast.broker.server.service import Server
from hullcast.broker.warehouse.process.questions import SPOOL
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.effects import Effect
from hullcast.network.wire import bodies, frames
from hullcast.network.wire.errors import TimedOut
from tests.support.cluster import (
    COMMAND,
    PATIENCE_S,
    PATIENT,
    QUICK,
    Cluster,
    cluster,
    node_of,
    server_of,
    wait_for,
)
from tests.system.test_warehouse import CREATE, ENDLESS
from tests.system.test_warehouse_answers import workers

#: No query ends by itself while a test runs.
FOR_EVER_S = 10 * PATIENCE_S
#: Rows without end: the first portion comes, and the others fill a file.
MANY = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 900000) SELECT printf('%0120d', x) FROM c"

#: Clients directly at the server, and below two nodes. (Tests that do not ask where have one node.)
PLACES = pytest.mark.parametrize("nodes", [0, 2], ids=["direct", "two nodes"])


@asynccontextmanager
async def asking(nodes: int, tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[Cluster, Server, Client]]:
    """A cluster whose queries run for ever, and a client of its gateway."""
    settings = {"link": PATIENT, "query_s": FOR_EVER_S, "warehouse_processes": 2, **settings}
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(nodes, tmp_path / "data", **settings) as made,
        made.client() as hc,
    ):
        await hc.query("SELECT 1")
        yield made, server_of(made), hc


def nothing_is_open(server: Server) -> bool:
    server.jobs.check()
    return not (server.queries.waiting + server.queries.admitted + len(server.queries._kept) + len(server.jobs.open))


async def running(server: Server, number: int) -> None:
    await wait_for(lambda: server.warehouse.reported("running") == number, f"{number} run")


async def stopped(server: Server) -> None:
    await wait_for(lambda: nothing_is_open(server), "the server has let go")
    await running(server, 0)


@PLACES
async def test_a_cancelled_query_frees_its_worker(tmp_path: Path, nodes: int) -> None:
    async with asking(nodes, tmp_path) as (_, server, hc):
        slow = asyncio.create_task(hc.query(ENDLESS))
        await running(server, 1)
        before = {worker.pid for worker in workers()}
        slow.cancel()
        await stopped(server)
        assert server.queries.given_up == 1
        await wait_for(lambda: len(workers()) == 2, "another worker is there")
        assert len(before & {worker.pid for worker in workers()}) == 1
        assert await hc.query("SELECT 1") == [(1,)]


async def test_a_query_that_the_client_timed_out_frees_its_worker(tmp_path: Path) -> None:
    async with asking(1, tmp_path) as (_, server, hc):
        with pytest.raises(TimedOut):
            await hc.query(ENDLESS, timeout=0.3)
        await stopped(server)


@PLACES
async def test_a_query_that_waits_is_taken_out_of_the_queue(
    tmp_path: Path, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "QUERIES", replace(queries.QUERIES, at_once=1))
    async with asking(nodes, tmp_path) as (_, server, hc):
        slow = asyncio.create_task(hc.query(ENDLESS))
        await wait_for(lambda: server.queries.admitted == 1, "it is there")
        waiting = [asyncio.create_task(hc.query("SELECT 2")) for _ in range(3)]
        await wait_for(lambda: server.jobs.waiting(queries.QUERIES) == 3, "the others wait")
        waiting[1].cancel()
        await wait_for(lambda: server.jobs.waiting(queries.QUERIES) == 2, "one is gone")
        slow.cancel()
        for asked in (waiting[0], waiting[2]):
            assert await asked == [(2,)]
        await stopped(server)


@PLACES
async def test_portions_that_nobody_reads_to_the_end_are_dropped(tmp_path: Path, nodes: int) -> None:
    async with asking(nodes, tmp_path) as (_, server, hc):
        portions = hc.query_portions(MANY)
        assert len(await anext(portions)) > 0
        await wait_for(lambda: server.queries.kept_bytes > 1 << 20, "the rest is on disk")
        await portions.aclose()
        await stopped(server)
        spool = tmp_path / "data" / SPOOL
        await wait_for(lambda: not list(spool.iterdir()), "no file is left")


async def test_an_answer_that_was_read_to_the_end_is_not_kept(tmp_path: Path) -> None:
    async with asking(1, tmp_path) as (_, server, hc):
        await hc.execute(CREATE)
        await hc.publish("T", {"K": np.arange(20_000), "S": ["x" * 40] * 20_000})
        assert len(await hc.query("SELECT * FROM T")) == 20_000
        await stopped(server)
        assert server.queries.given_up == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
@pytest.mark.parametrize("sql", [ENDLESS, MANY], ids=["endless", "large"])
async def test_a_client_that_vanishes_behind_gateways_is_not_answered(
    tmp_path: Path, how: signal.Signals, sql: str
) -> None:
    """Its gateway hears nothing of it for a while, and tells the server that its link is gone."""
    async with asking(2, tmp_path, link=QUICK) as (made, server, hc):
        other = asyncio.create_task(hc.query(ENDLESS))
        await running(server, 1)
        read, write = os.pipe()  # nobody reads what it prints, so it does not come to an end
        process = await asyncio.create_subprocess_exec(
            COMMAND,
            "query",
            sql,
            "--csv",
            "--url",
            made["g1"].endpoint,
            stdout=write,
            stderr=asyncio.subprocess.DEVNULL,
        )
        os.close(write)
        try:
            await wait_for(lambda: server.queries.admitted == 2 or server.queries._kept, "its query is there")
            process.send_signal(how)
            await process.wait()
        finally:
            os.close(read)
        await wait_for(lambda: len(server.jobs.open) == 1, "its query is gone")
        assert server.queries.admitted == 1
        assert not other.done()
        other.cancel()
        await stopped(server)


async def test_nobody_can_give_up_the_query_of_another(tmp_path: Path) -> None:
    async with asking(1, tmp_path, warehouse_processes=4) as (made, server, hc):
        slow = asyncio.create_task(hc.query(ENDLESS))
        portions = hc.query_portions(MANY)
        await anext(portions)
        await wait_for(lambda: server.queries.admitted == 1 and len(server.queries._kept) == 1, "both are there")
        (ticket,) = server.queries._kept
        async with made.client() as stranger, made.client("server") as direct:
            victims = list(hc._line.session._sent)
            for client in (stranger, direct):
                for number in range(1, max(victims) + 20):
                    for route in ((), (1,), (1, 1), (2, 1)):
                        request = frames.Request(number, route, None, bodies.encode(bodies.GiveUp()))
                        client._line.dialer.send(frames.encode(request))
                client._line.tell(bodies.DropRows(ticket))
                for number in range(1000, 1050):  # it is not a node: what it says is refused, and does nothing
                    gone = frames.Request(number, (), None, bodies.encode(bodies.LinksGone(tuple(range(50)))))
                    client._line.dialer.send(frames.encode(gone))
                await client.sync()  # all of it has arrived
        assert (server.queries.admitted, len(server.queries._kept)) == (1, 1)
        assert server.queries.given_up == 0
        assert len(await anext(portions)) > 0
        slow.cancel()
        await portions.aclose()
        await stopped(server)


async def test_a_give_up_has_no_reply_however_often_and_whatever_it_is_about(tmp_path: Path) -> None:
    async with asking(0, tmp_path) as (_, server, hc):
        heard: list[bytes] = []
        take = hc._line.session.take

        def hear(payload: bytes) -> list[Effect]:
            heard.append(payload)
            return take(payload)

        hc._line.session.take = hear  # type: ignore[method-assign]
        for number in (1, 2, 2, 99, 1 << 60):
            for body in (bodies.GiveUp(), bodies.DropRows(bytes(16))):
                hc._line.dialer.send(frames.encode(frames.Request(number, (), None, bodies.encode(body))))
        await hc.sync()
        replies = [frame for frame in map(frames.decode, heard) if isinstance(frame, frames.Reply)]
        assert [type(bodies.decode(reply.body)) for reply in replies] == [bodies.Synced]
        assert server.queries.given_up == 0


@PLACES
async def test_queries_given_up_at_any_moment_leave_nothing_and_disturb_no_others(tmp_path: Path, nodes: int) -> None:
    """Cancelled before they are sent, while they wait, run or are answered, and as the reply comes."""
    chance = random.Random(nodes)
    async with asking(nodes, tmp_path) as (_, server, hc):
        texts = ["SELECT 1", MANY, ENDLESS, "SELECT x FROM nowhere"]

        async def impatient() -> None:
            asked = asyncio.create_task(hc.query(chance.choice(texts)))
            await asyncio.sleep(chance.choice([0, 0, 0.001, 0.003, 0.01, 0.03]))
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

        async def patient() -> None:
            for i in range(10):
                assert await hc.query("SELECT ?", i) == [(i,)]

        others = asyncio.create_task(patient())
        for _ in range(20):
            await asyncio.gather(*(impatient() for _ in range(5)))
        await others
        await stopped(server)


async def test_a_reset_does_not_leave_a_query_running_twice(tmp_path: Path) -> None:
    async with asking(1, tmp_path) as (_, server, hc):
        slow = asyncio.create_task(hc.query(ENDLESS))
        await running(server, 1)
        server.take_rights(server.children.rights)
        await wait_for(lambda: server.queries.given_up == 1, "the first one is given up")
        await wait_for(lambda: server.queries.admitted == 1, "it is asked again")
        slow.cancel()
        await stopped(server)


async def test_what_is_given_up_ends_also_while_the_disk_is_full_of_work(tmp_path: Path) -> None:
    async with asking(0, tmp_path) as (_, server, hc):
        slow = asyncio.create_task(hc.query(ENDLESS))
        await running(server, 1)
        assert server.pipeline is not None
        server.pipeline.waiting_bytes += 1 << 40  # all else is refused
        slow.cancel()
        broken = frames.Request(77, (), None, bodies.encode(bodies.GiveUp()) + b"?")
        hc._line.dialer.send(frames.encode(broken))  # refused like all else
        await wait_for(lambda: not server.queries.admitted, "it was given up")
        server.pipeline.waiting_bytes -= 1 << 40
        await stopped(server)


async def test_a_node_forgets_who_left_when_its_own_way_is_new(tmp_path: Path) -> None:
    async with cluster(1, tmp_path / "data") as made:
        node = node_of(made, "root")
        await wait_for(lambda: node.attached, "the node is there")
        await made.server.stop()
        await wait_for(lambda: not node.attached, "and alone")
        node._gone.extend(range(10))
        await made.server.start()
        await wait_for(lambda: node.attached and not node._gone, "it has another way up")
