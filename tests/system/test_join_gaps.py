"""Joins over streams that miss results: every subscriber hears of it, in order, whenever it comes."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from hullcast import Client, Resync, StreamTuple
from hullcast.broker.processes import heartbeat
from hullcast.broker.processes.background import NICENESS
from hullcast.broker.server import streams
from hullcast.clients.sdk.subscription import Subscription
from hullcast.network.wire.errors import TooLarge
from tests.support.cluster import PATIENCE_S, Cluster, cluster, server_of, wait_for
from tests.support.stream_oracle import moment
from tests.system.test_derived_streams import streams_processes

CREATES = (
    "CREATE STREAM R (TS TIMESTAMP, K INTEGER, A REAL)",
    "CREATE TABLE T (K INTEGER PRIMARY KEY, V TEXT)",
    "CREATE STREAM L AS SELECT TS, A, V FROM R JOIN T ON R.K = T.K",
    "CREATE STREAM LL AS SELECT A FROM L WHERE A >= 0",
)
JOIN = "SELECT A, V FROM R JOIN T ON R.K = T.K WHERE A BETWEEN ? AND ? AND V = ?"
WHY = TooLarge("results of one tuple in a test", 2, 1)


async def publish(hc: Client, *values: float) -> None:
    await hc.publish("R", [{"TS": moment(0), "K": 1, "A": value} for value in values])


async def until(made: Cluster, what: str, condition: Any) -> None:
    process = server_of(made).streams
    await wait_for(lambda: condition(process), what)


async def opened(made: Cluster, joins: int) -> None:
    """All joins are open."""
    await until(made, "open joins", lambda p: [join.state.opened for join in p._joins] == [True] * joins)


def fail(made: Cluster) -> int:
    """Let all joins with the table fail; how many there are."""
    process = server_of(made).streams
    failing = process._joins.reading("t")
    for join in failing:
        process._failed(join, WHY)
    return len(failing)


async def again(made: Cluster, gaps: int, joins: int) -> None:
    """All joins with the table have begun again, so many times in all."""
    await until(
        made,
        "joins that begin again",
        lambda p: [join.gaps for join in p._joins.reading("t")] == [gaps] * (joins - 1),
    )
    await opened(made, joins)


async def take(subscription: Subscription, values: int) -> list[Any]:
    """What is heard up to the so many'th tuple: first columns and, as "gap", the Resyncs; several in a row are one."""
    found: list[Any] = []
    seqs: list[int] = []
    while sum(one != "gap" for one in found) < values:
        event = await anext(subscription)
        if isinstance(event, StreamTuple):
            found.append(event.row.A)
        else:
            assert isinstance(event, Resync), event
            assert (event.answer, event.lost, event.reason) == (None, 0, "gap")
            found += [] if found[-1:] == ["gap"] else ["gap"]
        seqs.append(event.seq)
    assert seqs == sorted(set(seqs))
    return found


async def test_all_subscribers_hear_of_a_gap_in_order_also_those_that_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "AGAIN_S", 0.05)
    often: dict[str, Any] = {"checkpoint_updates": 1}
    async with asyncio.timeout(PATIENCE_S), cluster(1, tmp_path / "data", **often) as made, made.client() as hc:
        for sql in CREATES:
            await hc.execute(sql)
        await hc.publish("T", {"K": 1, "V": "x"})
        subscriptions = [
            await hc.subscribe(JOIN, 1, 50, "x"),
            await hc.subscribe("SELECT A FROM L WHERE A BETWEEN ? AND ?", 1, 50),
            await hc.subscribe("SELECT * FROM L WHERE V = ? AND A > ?", "x", 0),
            await hc.subscribe("SELECT A FROM LL"),
        ]
        nowhere = await hc.subscribe("SELECT A FROM L WHERE A BETWEEN ? AND ?", 1000, 2000)
        await opened(made, 3)
        await publish(hc, 1.0, 2.0)
        for subscription in subscriptions:
            assert await take(subscription, 2) == [1.0, 2.0]
        tokens = [subscription.token for subscription in subscriptions]
        assert fail(made) == 2
        await again(made, 1, 3)
        await publish(hc, 3.0)
        for subscription in subscriptions:
            assert await take(subscription, 1) == ["gap", 3.0]
        assert isinstance(await anext(nowhere), Resync), "its results may be among those missing"
        await hc.sync()

        async def check() -> None:
            """Whoever comes later hears the same."""
            async with hc.subscribe("SELECT A FROM L", after=0) as from_the_beginning:
                assert await take(from_the_beginning, 3) == [1.0, 2.0, "gap", 3.0]
            async with hc.subscribe("SELECT A FROM LL", resume=tokens[3]) as resumed:
                assert await take(resumed, 1) == ["gap", 3.0]
            async with hc.subscribe("SELECT A FROM L WHERE A BETWEEN ? AND ?", 1, 50, resume=tokens[1]) as resumed:
                assert await take(resumed, 1) == ["gap", 3.0]

        await check()
        made["root"].proxy.cut()  # it comes back by itself, and has heard of the gap
        await publish(hc, 4.0)
        for subscription in subscriptions:
            assert await take(subscription, 1) == [4.0]
        await made.kill("server")
        await made.restart_server()
        await check()
        await opened(made, 3)
        await publish(hc, 5.0)
        for subscription in subscriptions:
            assert await take(subscription, 1) == [5.0]


async def test_the_log_is_kept_by_what_it_says_of_joins_not_by_what_only_memory_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path / "data") as made, made.client() as hc:
        for sql in CREATES:
            await hc.execute(sql)
        await hc.publish("T", {"K": 1, "V": "x"})
        await opened(made, 2)
        server = server_of(made)
        process, joined = server.streams, server.engine.streams["l"]
        monkeypatch.setattr(streams, "LOOK_S", 1e9)
        await publish(hc, 1.0)
        await wait_for(lambda: len(joined.order) == 1, "a result")
        assert joined.consumed is not None
        needed = process.needed_behind()
        assert needed is not None
        assert needed < joined.consumed[1]
        process._note_tables()
        noted = joined.consumed[1]
        await wait_for(lambda: process.needed_behind() == noted, "a record of it")


async def test_a_streams_process_that_was_stopped_is_replaced_and_no_result_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path / "data") as made, made.client() as hc:
        for sql in CREATES:
            await hc.execute(sql)
        await hc.publish("T", {"K": 1, "V": "x"})
        async with hc.subscribe("SELECT A FROM L") as heard:
            await opened(made, 2)
            await publish(hc, 1.0)
            assert await take(heard, 1) == [1.0]
            (pid,) = streams_processes()
            assert os.getsid(pid) == os.getsid(0), "niceness counts within a session only (sched_autogroup)"
            assert psutil.Process(pid).nice() >= min(19, psutil.Process().nice() + NICENESS)
            monkeypatch.setattr(heartbeat, "STOPPED_S", 0.3)
            os.kill(pid, signal.SIGSTOP)
            await publish(hc, 2.0, 3.0)
            async with asyncio.timeout(streams.STREAMS.silence_s / 2):  # it is not the silence that is noticed
                assert await take(heard, 2) == [2.0, 3.0]
            assert pid not in streams_processes()
            assert server_of(made).streams.status()["derived"]["L"]["gaps"] == 0


async def test_the_joins_of_a_client_that_vanishes_go_after_a_while(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0, channel_linger_s=0.2) as made, made.client() as hc:
        for sql in CREATES[:2]:
            await hc.execute(sql)
        server = server_of(made)
        async with made.client() as other:
            for column in ("A", "R.K", "V"):
                await other.subscribe(f"SELECT {column} FROM R JOIN T ON R.K = T.K")
            assert len(server.streams.status()["joins"]) == 3
        await wait_for(lambda: set(server.engine.tables) == {"R", "T"}, "streams that nobody reads are dropped")
        await until(made, "queries that nobody needs are closed", lambda p: not p._numbered)
        await hc.execute("DROP STREAM R")
