"""Streams with real processes: whatever is killed, every subscriber gets the log's tuples, in order, none twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from hullcast import Client, StreamTuple
from hullcast.clients.sdk.subscription import Subscription
from hullcast.clients.sdk.subscriptions import Subscriptions
from tests.support.cluster import Cluster, cluster
from tests.support.stream_oracle import moment

PATIENCE_S = 180.0
TRADES = "CREATE STREAM TRADES (TS TIMESTAMP, SYMBOL TEXT, PRICE REAL)"
FILTER = "SELECT PRICE, SYMBOL FROM TRADES WHERE PRICE BETWEEN ? AND ?"
BY_SYMBOL = "SELECT PRICE, SYMBOL FROM TRADES WHERE PRICE BETWEEN ? AND ? AND SYMBOL = ?"
SYMBOLS = "abcd"
BOUNDS = [(0.0, 99.0), (10.0, 19.0), (50.0, 50.0)]


async def publish(hc: Client, rng: Random, stop: asyncio.Event) -> int:
    """Publish in batches and one by one until told to stop; how many tuples were acknowledged."""
    count = 0
    while not stop.is_set():
        n = rng.choice([1, 1, 5, 40])
        rows = [
            {"TS": moment(count + i), "SYMBOL": rng.choice(SYMBOLS), "PRICE": float(rng.randrange(100))}
            for i in range(n)
        ]
        await hc.publish("TRADES", rows[0] if n == 1 else rows)
        count += n
        await asyncio.sleep(rng.random() * 0.01)
    return count


async def trouble(made: Cluster, rng: Random) -> None:
    """Kill the server a few times; once a gateway, or cut what leads to it."""
    for _ in range(3):
        await asyncio.sleep(0.2 + rng.random() * 0.3)
        await made.kill("server")
        await made.restart_server()
        if rng.random() < 0.5:
            made["g1"].proxy.cut()
    await asyncio.sleep(0.2)
    await made.kill("g1")
    await asyncio.sleep(0.3)
    await made["g1"].start()
    await asyncio.sleep(0.3)


def heard(subscription: Subscription) -> list[tuple[int, tuple[Any, ...]]]:
    found = []
    while (event := subscription.take_nowait()) is not None:
        assert isinstance(event, StreamTuple), event
        found.append((event.seq, tuple(event.row)))
    return found


async def heard_by_many(many: Subscriptions, found: dict[int, list[tuple[int, float]]]) -> None:
    while (changed := await many.next_changes(timeout=0.5)) is not None:
        assert not changed.resync.any()
        for which, seq, row in zip(changed.which.tolist(), changed.seq.tolist(), changed.answer, strict=True):
            found.setdefault(which, []).append((seq, row.PRICE))


@pytest.mark.parametrize(("seed", "processes"), [(1, True), (2, False)], ids=["processes", "tasks"])
async def test_no_tuple_is_lost_or_repeated_whatever_is_killed(seed: int, processes: bool, tmp_path: Path) -> None:
    rng = Random(seed)
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(3, tmp_path / "data", processes=tmp_path if processes else None) as made,
        made.client() as publisher,
        made.client("g1", "g2") as hc,
        made.client("g2") as other,
    ):
        await publisher.execute(TRADES)
        ranges = [await hc.subscribe(FILTER, *bounds, buffer=100_000) for bounds in BOUNDS]
        symbols = [await other.subscribe(BY_SYMBOL, 0, 99, symbol, buffer=100_000) for symbol in SYMBOLS]
        lows = [float(i) for i in range(100)]
        many = await hc.subscribe_many(FILTER, lows, lows)
        await publisher.publish("TRADES", {"TS": moment(0), "SYMBOL": "a", "PRICE": 50.0})
        stop = asyncio.Event()
        publishing = asyncio.create_task(publish(publisher, rng, stop))
        await trouble(made, rng)
        stop.set()
        acknowledged = await publishing + 1
        for client in (hc, other):
            await client.sync()
        rows = await publisher.query("SELECT POSITION, PRICE, SYMBOL FROM TRADES ORDER BY POSITION")
        truth = [tuple(row) for row in rows]
        assert len(truth) == acknowledged
        for (low, high), one in zip(BOUNDS, ranges, strict=True):
            assert heard(one) == [(at, (price, symbol)) for at, price, symbol in truth if low <= price <= high]
        for symbol, one in zip(SYMBOLS, symbols, strict=True):
            assert heard(one) == [(at, (price, name)) for at, price, name in truth if name == symbol]
        found: dict[int, list[tuple[int, float]]] = {}
        await heard_by_many(many, found)
        assert found == {
            which: expected
            for which in range(100)
            if (expected := [(at, price) for at, price, _ in truth if price == which])
        }
        async with other.subscribe(FILTER, 0, 99, after=0, buffer=100_000) as again:
            await other.sync()
            assert [seq for seq, _ in heard(again)] == [at for at, _, _ in truth]


async def test_a_hundred_thousand_filters_over_one_stream_are_one_channel() -> None:
    n, tuples = 100_000, 2000
    rng = np.random.default_rng(5)
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(1) as made,
        made.client() as publisher,
        made.client() as hc,
    ):
        await publisher.execute(TRADES)
        lows = rng.random(n) * 1e6
        highs = lows + 20.0
        many = await hc.subscribe_many(FILTER, lows, highs)
        prices = np.round(rng.random(tuples) * 1e6, 3)
        receipt = await publisher.publish("TRADES", {"TS": [moment(0)] * tuples, "PRICE": prices})
        found: dict[int, list[tuple[int, float]]] = {}
        await heard_by_many(many, found)
        expected: dict[int, list[tuple[int, float]]] = {}
        for i, price in enumerate(prices.tolist()):
            for which in np.flatnonzero((lows <= price) & (price <= highs)).tolist():
                expected.setdefault(which, []).append((receipt.first_seq + i, price))
        assert expected
        assert found == expected
        status = await publisher.status()
        assert [channel["name"] for channel in status["channels"]] == ["SELECT PRICE, SYMBOL FROM TRADES OVER PRICE"]
