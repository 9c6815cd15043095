"""A slow client is its own problem: others are as quick as ever, memory is bounded, and it catches up when it reads."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import psutil

from hullcast.clients.sdk.client import Client
from hullcast.network.settings.common import LinkSettings
from tests.support.cluster import PATIENCE_S, Cluster, TaskMember, cluster, wait_for

#: Small, so that little is enough to be too slow; patient, so that nothing else ends a link.
TIGHT = LinkSettings(
    heartbeat_s=0.5, silence_s=20.0, window_bytes=512 << 10, queue_bytes=2 << 20, queue_frames=4096
)  # fmt: skip
ROWS = 500
CREATE = "CREATE TABLE T (K INTEGER PRIMARY KEY, V REAL, W TEXT)"
EVERYTHING = "SELECT * FROM T"


async def rewrite(client: Client, seed: int) -> None:
    """Change every row."""
    values = np.random.default_rng(seed).random(ROWS)
    await client.publish("T", {"K": np.arange(ROWS), "V": values, "W": ["something to carry"] * ROWS})


async def seconds_for(publisher: Client, others: list[Client], seeds: range) -> float:
    """How long it takes until everybody has heard of a number of batches."""
    start = time.perf_counter()
    for seed in seeds:
        await rewrite(publisher, seed)
    await asyncio.gather(*(client.sync() for client in others))
    return time.perf_counter() - start


def left_slow(c: Cluster, name: str) -> int:
    member = c[name]
    assert isinstance(member, TaskMember)
    return member.service.listener.statistics().left.get("slow", 0)


async def answers_agree(clients: list[Any]) -> None:
    answers = [sorted(map(tuple, made.answer)) for made in clients]
    assert all(answer == answers[0] for answer in answers)
    assert len(answers[0]) == ROWS


async def test_a_client_that_stops_reading_slows_nobody_and_catches_up() -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(link=TIGHT) as c,
        c.client("g1") as publisher,
        c.client("g1") as near,
        c.client("g2") as far,
        c.client("g1") as slow,
    ):
        await publisher.execute(CREATE)
        await rewrite(publisher, 0)
        made = [await client.subscribe(EVERYTHING, overflow="drop_oldest", buffer=10) for client in (near, far)]
        await seconds_for(publisher, [near, far], range(1, 4))
        alone = await seconds_for(publisher, [near, far], range(4, 24))

        lazy = await slow.subscribe(EVERYTHING, overflow="block", buffer=10)
        await rewrite(publisher, 24)
        await anext(lazy)  # it takes one event, and then no more for a long time
        before = psutil.Process().memory_info().rss
        beside = await seconds_for(publisher, [near, far], range(25, 45))
        for seed in range(45, 200):
            if left_slow(c, "g1"):
                break
            await rewrite(publisher, seed)
        await wait_for(lambda: slow.statistics().paused, "its reading is paused")
        assert left_slow(c, "g1"), "it was never too slow for its gateway"
        assert beside < 3 * alone + 0.5, f"{beside:.2f} s beside a slow client, {alone:.2f} s without"
        assert psutil.Process().memory_info().rss - before < 200 << 20

        await rewrite(publisher, 200)
        last = await publisher.sync()
        async for event in lazy:
            if event.seq >= last:
                break
        await asyncio.gather(near.sync(), far.sync(), slow.sync())
        await answers_agree([*made, lazy])
        assert near.statistics().link.interruptions == far.statistics().link.interruptions == 0


async def test_a_client_whose_connection_stalls_slows_nobody() -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(link=TIGHT) as c,
        c.client("g2") as publisher,
        c.client("g2") as near,
        c.client("g1") as stalled,
    ):
        await publisher.execute(CREATE)
        await rewrite(publisher, 0)
        made = [await client.subscribe(EVERYTHING, overflow="drop_oldest", buffer=10) for client in (near, stalled)]
        await seconds_for(publisher, [near, stalled], range(1, 4))
        alone = await seconds_for(publisher, [near], range(4, 24))
        c["g1"].proxy.stall()
        beside = await seconds_for(publisher, [near], range(24, 44))
        for seed in range(44, 300):
            if left_slow(c, "g1"):
                break
            await seconds_for(publisher, [near], range(seed, seed + 1))  # no faster than nodes, with their tiny queues
        await wait_for(lambda: left_slow(c, "g1"), "its gateway gives it up")  # what was published may be on its way
        assert beside < 3 * alone + 0.5, f"{beside:.2f} s beside a stalled client, {alone:.2f} s without"
        c["g1"].proxy.resume()
        await asyncio.gather(near.sync(), stalled.sync())
        await answers_agree(made)
