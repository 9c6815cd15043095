"""The server knows exactly the ranges of joins while clients subscribe, close, vanish with their gateway and return."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from hullcast.broker.server import attendance as attendance_module
from hullcast.broker.server import pipeline as pipeline_module
from hullcast.clients.sdk.client import Client
from hullcast.network.security.rights import Rights
from hullcast.network.settings.common import LinkSettings
from hullcast.network.wire.errors import TooLarge
from hullcast.network.wire.limits import WireLimits
from tests.support.cluster import PATIENCE_S, ROOT, SERVER, Cluster, TaskMember, cluster, server_of, wait_for
from tests.support.faults import workload
from tests.support.ranges import exact, known, wait_exact
from tests.support.watching import EVERY_KIND, History, check_answers, check_streams, settle, watch

CREATE = (
    "CREATE TABLE L (K INTEGER PRIMARY KEY, J INTEGER, A REAL, W TEXT)",
    "CREATE TABLE R (K INTEGER PRIMARY KEY, J INTEGER)",
)
PAIRS = "SELECT L.K, R.K, L.A, L.W FROM L JOIN R ON L.J = R.J WHERE L.A BETWEEN ? AND ?"
#: Nobody's ranges are forgotten while a test runs, however slow the machine is.
FOR_LONG = 3600.0
#: Small queues, so that little is enough to be too slow; patient, so that nothing else ends a link.
TIGHT = LinkSettings(heartbeat_s=0.5, silence_s=20.0, window_bytes=512 << 10, queue_bytes=2 << 20, queue_frames=4096)


@asynccontextmanager
async def rows(c: Cluster) -> AsyncIterator[Client]:
    """A client that has made the tables and ten rows each, which all join."""
    async with c.client(SERVER) as client:
        for statement in CREATE:
            await client.execute(statement)
        await client.publish("R", [{"K": 1, "J": 1}])
        yield client


async def change(client: Client, value: float) -> None:
    """One pair moves from nowhere to `value`, and away again."""
    await client.publish("L", [{"K": 1, "J": 1, "A": value, "W": ""}])
    await client.delete("L", [1])


async def test_the_server_makes_plans_for_many_ranges_while_rows_are_answered_without() -> None:
    """Rows that come before there are plans, with plans, and with plans that are behind: the same answers."""
    lows = np.arange(400.0)
    async with asyncio.timeout(PATIENCE_S), cluster(0) as c, rows(c) as publisher, c.client(SERVER) as client:
        made = await client.subscribe_many(PAIRS, lows, lows + 1)
        seen: list[dict[str, object]] = []

        async def left() -> dict[str, Any]:
            found: dict[str, Any] = (await client.explain(PAIRS, 0, 1))["join"]["left"]
            seen.append(found)
            return found

        assert "chosen" not in await left()
        number = 0
        while "chosen" not in seen[-1]:
            number += 1
            await publisher.publish("L", [{"K": number, "J": 1, "A": number % 400 + 0.5, "W": ""}])
            await left()
        assert seen[-1]["without a plan"]
        more = await client.subscribe_many(PAIRS, lows[:9] + 0.25, lows[:9] + 0.75)
        for value in (3.5, 4.5):
            number += 1
            await publisher.publish("L", [{"K": number, "J": 1, "A": value, "W": ""}])
        assert (await left())["changes behind"] == 9
        await client.sync()
        values = {k: k % 400 + 0.5 for k in range(1, number - 1)} | {number - 1: 3.5, number: 4.5}
        for subscriptions, starts, ends in ((made, lows, lows + 1), (more, lows[:9] + 0.25, lows[:9] + 0.75)):
            for i, (low, high) in enumerate(zip(starts, ends, strict=True)):
                expected = sorted(k for k, value in values.items() if low <= value <= high)
                assert sorted(row[0] for row in subscriptions[i].answer) == expected
        assert (await client.status())["failed"] == 0


async def test_the_server_follows_what_clients_subscribe_to_and_close() -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(channel_linger_s=FOR_LONG) as c,
        rows(c) as publisher,
        c.client("g1") as one,
        c.client("g2") as two,
        c.client(ROOT) as three,
        c.client(SERVER) as four,
    ):
        server, clients = server_of(c), (one, two, three, four)
        single = [await client.subscribe(PAIRS, 0, 10) for client in clients]
        many = await one.subscribe_many(PAIRS, np.arange(0.0, 200.0), np.arange(1.0, 201.0))
        nothing = await two.subscribe(PAIRS, 5, 4)  # never: known to nobody
        assert known(server) == (201, 204, 0)
        assert exact(server, clients)
        assert c.members.keys() == {SERVER, ROOT, "g1", "g2"}

        await many.close()
        await publisher.sync()
        await wait_for(lambda: known(server) == (1, 4, 0), "the ranges that were closed go")
        (attending,) = server.attendance
        before = attending.channel.statistics().messages
        await change(publisher, 150.0)
        assert attending.channel.statistics().messages == before
        await change(publisher, 5.0)
        assert attending.channel.statistics().messages == before + 2

        for made in single[:3]:
            await made.close()
        await wait_for(lambda: known(server) == (1, 1, 0), "one is left")
        await change(publisher, 5.0)
        assert attending.channel.statistics().messages == before + 4
        await single[3].close()
        await nothing.close()
        await wait_for(lambda: known(server) == (0, 0, 0), "none is left")
        await change(publisher, 5.0)
        assert attending.channel.statistics().messages == before + 4
        status = await publisher.status()
        assert [channel["ranges"] for channel in status["channels"]] == [{"distinct": 0, "wanted": 0, "lingering": 0}]


async def test_a_table_can_be_dropped_at_once_when_its_joins_are_closed() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(channel_linger_s=FOR_LONG) as c, rows(c), c.client("g1") as one:
        for _ in range(3):
            made = await one.subscribe(PAIRS, 0, 10)
            await made.close()
            await one.execute("DROP TABLE L")
            await one.execute(CREATE[0])
        assert known(server_of(c)) == (0, 0, 0)


async def test_a_reply_that_an_allow_list_voids_leaves_no_range() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0, channel_linger_s=0.0) as c, rows(c), c.client() as client:
        server = server_of(c)
        pipeline = server.pipeline
        assert pipeline is not None
        pipeline._busy = True  # as if it waited for the disk
        asking = asyncio.ensure_future(client.subscribe(PAIRS, 0, 10))
        await wait_for(lambda: any(step.outcome.installs for step in pipeline), "the reply waits")
        server.take_rights(Rights.everything())
        pipeline._busy = False
        pipeline.start()
        made = await asking  # it asked again
        await wait_for(lambda: known(server) == (1, 1, 0), "one range is known, once")
        await made.close()


async def test_clients_that_vanish_while_they_are_answered_leave_no_range() -> None:
    """Their gateway finds nobody to give the reply to; some are answered twice, for the allow list was read again."""
    async with asyncio.timeout(PATIENCE_S), cluster(channel_linger_s=0.0) as c, rows(c), c.client("g2") as other:
        server = server_of(c)
        made = await other.subscribe(PAIRS, 0, 10)
        for _ in range(5):
            client = c.client("g1")
            await client.__aenter__()
            asking = [asyncio.ensure_future(client.subscribe(PAIRS, i, i + 1)) for i in range(20)]
            await asyncio.sleep(0)
            server.take_rights(Rights.everything())
            await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            await client.close()
            await asyncio.gather(*asking, return_exceptions=True)
        await wait_exact(server, [other])
        await other.sync()
        assert (await other.status())["channels"][0]["ranges"] == {"distinct": 1, "wanted": 1, "lingering": 0}
        await made.close()


async def test_an_answer_that_is_too_large_to_send_leaves_no_range(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0, channel_linger_s=0.0) as c, rows(c) as client:
        made = await client.subscribe(PAIRS, 0, 10)
        with monkeypatch.context() as patch:
            patch.setattr(pipeline_module, "DEFAULT", WireLimits(body_bytes=100))
            with pytest.raises(TooLarge):
                await client.subscribe(PAIRS, 5, 15)
        await wait_for(lambda: known(server_of(c)) == (1, 1, 0), "only one range is known")
        await made.close()


async def resumed(client: Client, token: str) -> tuple[str, int]:
    """What the first event of a resumed subscription is, and how many pairs there are by then."""
    async with client.subscribe(PAIRS, 5, 10, resume=token, overflow="block", buffer=100) as made:
        event = await anext(made)
        return type(event).__name__, len(made.answer)


async def test_only_what_was_described_all_the_time_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages come while nobody has a range: it lingers since a token of it was made, or it was given up early."""
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(channel_linger_s=FOR_LONG) as c,
        rows(c) as publisher,
        c.client(SERVER) as other,
        c.client("g1") as client,
    ):
        server = server_of(c)
        await other.subscribe(PAIRS, 0, 1)  # keeps the channel and its window open
        made = await client.subscribe(PAIRS, 5, 10)
        token = made.token
        await made.close()
        await client.sync()
        assert known(server) == (2, 2, 1)
        await publisher.publish("L", [{"K": 1, "J": 1, "A": 7.0, "W": "missed"}])
        assert await resumed(client, token) == ("Change", 1)
        monkeypatch.setattr(attendance_module, "MOST_LINGERING", 0)
        made = await client.subscribe(PAIRS, 5, 10)
        token = made.token
        await made.close()
        server.attendance.expire(time.monotonic() + 2 * FOR_LONG)
        await client.sync()
        assert known(server) == (1, 1, 0)
        await publisher.publish("L", [{"K": 2, "J": 1, "A": 7.0, "W": "not described"}])
        assert await resumed(client, token) == ("Resync", 2)
        await wait_exact(server, [other, client])


JOINS = [one for one in EVERY_KIND if " JOIN " in one.sql]


@pytest.mark.parametrize("gone", ["g1", pytest.param(ROOT, marks=pytest.mark.slow)])
async def test_everybody_resumes_when_a_process_is_killed_and_a_vanished_client_s_ranges_linger(
    gone: str, tmp_path: Path
) -> None:
    """kill -9, publishers running: every answer is SQL's, every change is told once, and nobody begins again."""
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(processes=tmp_path, channel_linger_s=FOR_LONG) as c,
        c.client(SERVER) as observer,
        c.client("g1", "g2") as one,
        c.client("g2", "g1") as two,
        c.client(ROOT) as three,
    ):
        history, clients = History(), (one, two, three)
        await history.create(observer)
        watchers = [watcher for client in clients for watcher in await watch(client, JOINS)]
        vanished = c.client("g1")
        await vanished.__aenter__()
        await watch(vanished, JOINS)
        await wait_for(
            lambda: all(len(client._line.dialer.endpoints) >= 4 for client in clients), "all know other ways"
        )
        rng = Random(11)
        for _ in range(10):
            await history.publish(two, rng)
        vanished._line.dialer._hang_up()  # without a word, and it never dials again
        await asyncio.gather(c.kill(gone), *(history.publish(client, Random(i)) for i, client in enumerate(clients)))
        for _ in range(20):
            await history.publish(rng.choice(clients), rng)
        await settle(clients)
        check_answers(history, watchers)
        check_streams(history, watchers, resyncs_allowed=False)
        while True:  # until the server has noticed it: by silence, at the latest
            status = await observer.status()
            ranges = [channel["ranges"] for channel in status["channels"]]
            if all(known["wanted"] - known["lingering"] == 3 for known in ranges):
                break
        assert [known["distinct"] for known in ranges] == [1] * len(JOINS)
        assert all(known["lingering"] for known in ranges)


@pytest.mark.parametrize("gone", ["g1", ROOT])
async def test_after_the_linger_time_only_ranges_of_those_who_returned_are_known(gone: str) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(channel_linger_s=0.5) as c:
        server = server_of(c)
        async with workload(c, Random(12), pause_s=0.01) as work:
            work.resyncs_allowed = True  # who is slow to return may find its ranges gone
            await wait_for(lambda: all(len(one._line.dialer.endpoints) >= 4 for one in work.clients), "all know others")
            await work.wait_acknowledged(20)
            await c.kill(gone)
            await work.wait_acknowledged(40)
            work.stop()
            await wait_for(
                lambda: exact(server, work.clients) and not server.attendance.lingering,
                "the server knows the ranges there are, and nothing lingers",
            )


async def test_a_client_that_is_too_slow_loses_its_ranges_and_gets_them_back() -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(2, link=TIGHT, channel_linger_s=0.0) as c,
        rows(c),
        c.client("g1") as near,
        c.client("g1") as slow,
    ):

        async def rewrite(seed: int) -> None:
            texts = [f"{key} {seed} " + "x" * 100 for key in range(200)]
            places = np.random.default_rng(seed).integers(0, 9, 200)
            await near.publish(
                "L", {"K": np.arange(200), "J": np.ones(200, np.int64), "A": places.astype(np.float64), "W": texts}
            )
            await near.sync()  # no faster than nodes, with their tiny queues

        server, gateway = server_of(c), c["g1"]
        assert isinstance(gateway, TaskMember)
        made = await near.subscribe(PAIRS, 0, 10, overflow="latest")
        lazy = await slow.subscribe(PAIRS, 0, 9, overflow="block", buffer=10)
        await rewrite(0)
        await anext(lazy)  # it takes one event, and then no more for a long time
        for seed in range(1, 1000):
            if gateway.service.listener.statistics().left.get("slow"):
                break
            await rewrite(seed)
        await wait_for(lambda: gateway.service.listener.statistics().left.get("slow"), "it is too slow")
        await rewrite(1000)
        last = await near.sync()
        async for event in lazy:
            if event.seq >= last:
                break
        await asyncio.gather(near.sync(), slow.sync())
        assert len(lazy.answer) == 200
        assert sorted(map(str, made.answer)) == sorted(map(str, lazy.answer))
        await wait_exact(server, [near, slow])
        await wait_for(lambda: known(server) == (2, 2, 0), "nothing lingers")
