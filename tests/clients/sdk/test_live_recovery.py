"""Servers die and come back, links break at bad moments: what a client's user sees of it."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

import hullcast
from hullcast import Resync, testing
from hullcast.clients.sdk.testing import serving
from hullcast.network.link.limits import LinkLimits
from hullcast.network.node.node import Node
from hullcast.network.node.settings import NodeSettings
from hullcast.network.security.rights import Rights
from hullcast.network.wire import frames
from tests.clients.sdk.test_live_streams import server_on
from tests.support.cluster import cluster
from tests.support.links import wait_until

LIMIT_S = 60
QUICK = LinkLimits(heartbeat_s=0.05, silence_s=0.3, handshake_s=0.5, backoff_s=0.02, backoff_most_s=0.1)
CREATE = "CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, PER REAL, RISK REAL)"
MIN = "SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?"
ROWS = "SELECT SYMBOL, PER FROM STOCK WHERE RISK BETWEEN ? AND ?"
SUM = "SELECT SUM(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?"


def row(symbol: str, per: float, risk: float = 30.0) -> dict[str, object]:
    return {"SYMBOL": symbol, "PER": per, "RISK": risk}


async def test_after_a_restart_of_the_server_all_subscriptions_resync_and_changes_are_applied_once(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(LIMIT_S):
        async with server_on(tmp_path) as endpoint:
            client = await hullcast.connect(endpoint, limits=QUICK)
            await client.execute(CREATE)
            await client.publish("STOCK", [row("a", 3.0), row("b", 4.0)])
            best = await client.subscribe(MIN, 20, 60)
            rows = await client.subscribe(ROWS, 20, 60)
            many = await client.subscribe_many(SUM, [20.0, 20.0], [60.0, 20.0])
        publishing = asyncio.create_task(client.publish("STOCK", row("c", 1.0)))
        await asyncio.sleep(0.05)
        assert not publishing.done()
        assert best.answer == 3.0  # what it knew is still there while nobody can tell more
        async with server_on(tmp_path, endpoint):
            receipt = await publishing
            assert (receipt.first_seq, receipt.updates) == (3, 1)
            event = await anext(best)
            assert isinstance(event, Resync)
            assert event.reason == "gap"
            event = await anext(rows)
            assert isinstance(event, Resync)
            await client.sync()
            assert (best.answer, len(rows.answer), many.answers.tolist()[0]) == (1.0, 3, 8.0)
            assert await client.query("SELECT COUNT(*) FROM STOCK") == [(3,)]
            await client.publish("STOCK", row("d", 0.5))
            await client.sync()
            assert best.answer == 0.5
            await client.close()


@pytest.mark.parametrize("sql", [MIN, SUM, ROWS])
async def test_changes_of_many_say_which_of_them_are_resyncs_after_a_restart(sql: str, tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S):
        async with server_on(tmp_path) as endpoint:
            client = await hullcast.connect(endpoint, limits=QUICK)
            await client.execute(CREATE)
            await client.publish("STOCK", [row("a", 3.0), row("b", 4.0, 70.0)])
            many = await client.subscribe_many(sql, [20.0, 70.0, 80.0], [60.0, 80.0, 90.0])
            await client.publish("STOCK", row("a", 2.0))
            changed = await many.next_changes()
            assert changed is not None
            assert (changed.which.tolist(), changed.reason.tolist()) == ([0], [""])
            assert not changed.resync.any()
        async with server_on(tmp_path, endpoint):
            changed = await many.next_changes()
            assert changed is not None
            assert changed.which.tolist() == [0, 1, 2]  # also those whose answer is as it was
            assert (changed.reason.tolist(), changed.resync.tolist()) == (["gap"] * 3, [True] * 3)
            await client.publish("STOCK", row("b", 1.0, 70.0))
            changed = await many.next_changes()
            assert changed is not None
            assert (changed.which.tolist(), changed.resync.tolist()) == ([1], [False])
            await client.close()


async def test_a_call_that_nobody_answers_says_what_it_waited_for(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S):
        async with server_on(tmp_path) as endpoint:
            client = await hullcast.connect(endpoint, timeout=0.5, limits=QUICK)
            await client.sync()
        try:
            with pytest.raises(hullcast.TimedOut, match=r"sync \(no connection\): no reply after 0.5 s"):
                await client.sync()
        finally:
            await client.close()


async def test_a_table_gone_meanwhile_ends_its_subscriptions_and_no_others() -> None:
    async with asyncio.timeout(LIMIT_S), cluster(0) as made, made.client() as admin:
        await admin.execute(CREATE)
        await admin.execute("CREATE TABLE OTHER (K INTEGER PRIMARY KEY, X REAL)")
        async with made.client() as client:
            doomed = await client.subscribe(MIN, 20, 60)
            fine = await client.subscribe("SELECT COUNT(*) FROM OTHER")
            waiting = asyncio.create_task(anext(doomed))
            dialer = client._line.dialer
            dialer.endpoints = ["tcp://127.0.0.1:1"]
            dialer.redial(why="test")
            while "STOCK" in await admin.tables():
                with contextlib.suppress(hullcast.TableInUse):  # until the server has seen that the client is gone
                    await admin.execute("DROP TABLE STOCK")
            dialer.endpoints = [made.server.endpoint]
            with pytest.raises(hullcast.UnknownTable):
                await waiting
            with pytest.raises(hullcast.UnknownTable):
                _ = doomed.answer
            await wait_until(lambda: client.connected)
            await admin.publish("OTHER", {"K": 1, "X": 1.0})
            await client.sync()
            assert fine.answer == 1


async def test_when_a_gateway_dies_clients_go_on_by_another_way_and_miss_nothing() -> None:
    everybody = Rights.everything()
    async with asyncio.timeout(LIMIT_S), testing.cluster(1) as root, hullcast.connect(root) as publisher:
        await publisher.execute(CREATE)
        gateway = Node(NodeSettings(listen="inproc://dying", parent=(root,), name="dying"), everybody)
        async with serving(gateway):
            client = await hullcast.connect([gateway.endpoint, root], limits=QUICK)
            sub = await client.subscribe(MIN, 20, 60, overflow="block")
            for i in range(20):
                await publisher.publish("STOCK", row("a", float(i)))
        for i in range(20, 40):
            await publisher.publish("STOCK", row("a", float(i)))
        heard = [await anext(sub) for _ in range(40)]
        assert [event.answer for event in heard] == [float(i) for i in range(40)]
        assert sub.pending == 0
        await client.close()


async def test_subscriptions_that_come_back_one_by_one_while_rows_are_published_miss_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hullcast.clients.sdk.resuming.PORTION_BYTES", 1)
    everybody = Rights.everything()
    async with asyncio.timeout(LIMIT_S), testing.cluster(1) as root, hullcast.connect(root) as publisher:
        await publisher.execute(CREATE)
        gateway = Node(NodeSettings(listen="inproc://one-by-one", parent=(root,), name="dying"), everybody)

        async def publish(count: int) -> None:
            for i in range(count):
                await publisher.publish("STOCK", row("a", float(i)))

        async with serving(gateway):
            client = await hullcast.connect([gateway.endpoint, root], limits=QUICK)
            texts = [MIN, ROWS, SUM, MIN, "SELECT DISTINCT PER FROM STOCK WHERE RISK BETWEEN ? AND ?", MIN] * 4
            subs = [await client.subscribe(sql, 20, 60, overflow="block", buffer=4096) for sql in texts]
            publishing = asyncio.create_task(publish(600))
            await asyncio.sleep(0.05)
        await publishing
        await client.sync()
        assert client.statistics().resumes >= 1
        for sub in subs:
            heard = []
            while (event := sub.take_nowait()) is not None:
                assert isinstance(event, hullcast.Change), sub.sql
                heard.append(event.seq)
            assert heard == list(range(heard[0], heard[0] + 600)), sub.sql
            assert sub.seq == client.seq
        await client.close()


async def test_a_client_learns_other_ways_to_the_server_from_the_one_it_knows() -> None:
    everybody = Rights.everything()
    async with asyncio.timeout(LIMIT_S), testing.cluster(1) as root, hullcast.connect(root) as publisher:
        await publisher.execute(CREATE)
        gateway = Node(NodeSettings(listen="inproc://only-one-known", parent=(root,), name="known"), everybody)
        async with serving(gateway):
            client = await hullcast.connect(gateway.endpoint, limits=QUICK)
            sub = await client.subscribe(MIN, 20, 60)
            await wait_until(lambda: root in client._line.dialer.endpoints)
        await publisher.publish("STOCK", row("a", 1.0))
        assert (await anext(sub)).answer == 1.0
        assert client.statistics().link.endpoint != gateway.endpoint
        await client.close()


async def test_a_frame_that_nobody_should_send_ends_the_link_and_not_the_client() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        sub = await client.subscribe(MIN, 20, 60)
        with pytest.raises(hullcast.BadFrame):
            client._line.on_frame(b"nonsense")
        await client.publish("STOCK", row("a", 1.0))
        assert (await anext(sub)).answer == 1.0


async def test_a_bug_in_the_client_is_raised_where_somebody_waits() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        sub = await client.subscribe(MIN, 20, 60)
        waiting = asyncio.create_task(anext(sub))

        def broken(columns: object) -> int:
            raise ZeroDivisionError

        sub._listening.hear = broken  # type: ignore[method-assign]
        with contextlib.suppress(ZeroDivisionError):  # its receipt may come before the message that fails
            await client.publish("STOCK", row("a", 1.0))
        with pytest.raises(hullcast.InvariantBroken, match="ZeroDivisionError"):
            await waiting
        with pytest.raises(ZeroDivisionError):
            await client.sync()


async def test_a_sum_that_lost_bits_comes_anew_from_the_server() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        await client.publish("STOCK", row("a", 1.0))
        async with client.subscribe(SUM, 20, 60, overflow="block") as sub:
            for symbol, per in (("b", 1e40), ("c", 1e70)):  # 1 + 1e40 + 1e70 has more bits than a client keeps
                await client.publish("STOCK", row(symbol, per))
            await client.delete("STOCK", ["c", "b"])
            await client.sync()
            await client.sync()  # the fresh sum was asked for before this one
            assert sub.answer == 1.0
            last: hullcast.Event | None = None
            while (event := sub.take_nowait()) is not None:
                last = event
            assert last == Resync(client.seq, 1.0, 2, "sum")
            await client.publish("STOCK", row("a", 2.0))
            assert (await anext(sub)).answer == 2.0
            assert client.statistics().groups == 1


async def test_frames_that_come_together_wake_a_waiter_once_also_if_the_link_ends_behind_them() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.sync()
        line, woken = client._line, []
        line.progress_waiters.add(lambda: woken.append(client.seq))
        for through in (7, 8, 9):
            line.on_frame(frames.encode(frames.Advance(through)))
        assert (client.seq, woken) == (9, [])
        line.on_quiet()
        assert woken == [9]
        line.on_quiet()
        assert woken == [9]  # nothing new
        line.on_frame(frames.encode(frames.Advance(10)))
        line.on_down("a test")
        assert woken == [9, 10]
        line.on_up({}, fresh=False)


async def test_a_fresh_link_is_read_where_only_held_frames_kept_a_client_from_reading() -> None:
    """Its queue had just been emptied when the link was lost, and the frames held for it go with the old link."""
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.sync()
        line = client._line
        line._held.append(frames.encode(frames.Advance(1)))
        line.regulate()
        assert client.statistics().paused
        line.on_up({}, fresh=True)
        assert not client.statistics().paused
