"""Changes of one client are made in the order in which they were called, however often they are refused on the way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hullcast.clients.sdk import publishing
from hullcast.clients.sdk.client import Client, Receipt
from hullcast.network.settings.common import LinkSettings
from hullcast.network.wire.errors import TimedOut, UnknownTable
from tests.support.cluster import PATIENCE_S, PATIENT, ROOT, SERVER, cluster, node_of
from tests.support.faults import Fault, happen

CREATE = "CREATE TABLE T (K INTEGER PRIMARY KEY, V REAL, PADDING TEXT)"
ROUNDS = 30
PIPELINED = 40
PADDING = "x" * 10_000


async def publish_at_once(client: Client, base: int, padding: str = PADDING) -> list[Receipt]:
    """Change one row many times without waiting for any reply: alone, which are gathered, and in batches."""
    rows = [{"K": 1, "V": float(base + i), "PADDING": padding} for i in range(PIPELINED)]
    batches = [[row] if i % 4 else [{**row, "K": 2}, row] for i, row in enumerate(rows)]
    return await asyncio.gather(*(client.publish("T", batch) for batch in batches))


def check_in_order(receipts: list[Receipt]) -> None:
    seqs = [receipt.seq for receipt in receipts]
    assert seqs == sorted(seqs)
    assert len(set(seqs)) == len(seqs)


async def value(client: Client) -> float:
    rows = await client.query("SELECT V FROM T WHERE K = 1")
    return float(rows[0][0])


async def test_the_value_published_last_is_last_though_the_server_has_no_room_for_most(tmp_path: Path) -> None:
    small = cluster(0, tmp_path, link=PATIENT, pending_bytes=64 << 10)
    async with asyncio.timeout(PATIENCE_S), small as made, made.client() as client:
        await client.execute(CREATE)
        for number in range(ROUNDS):
            check_in_order(await publish_at_once(client, number * PIPELINED))
            assert await value(client) == (number + 1) * PIPELINED - 1
        assert client.statistics().retries > 0


async def test_the_value_published_last_is_last_though_a_node_has_no_room_for_most() -> None:
    narrow = LinkSettings(heartbeat_s=0.05, silence_s=20.0, window_bytes=512 << 10, queue_bytes=512 << 10)
    async with asyncio.timeout(PATIENCE_S), cluster(2, link=narrow) as made, made.client("g1") as client:
        await client.execute(CREATE)
        for number in range(ROUNDS):
            check_in_order(await publish_at_once(client, number * PIPELINED))
            assert await value(client) == (number + 1) * PIPELINED - 1
        assert node_of(made, "g1").greedy_refused > 0


@pytest.mark.parametrize(
    ("kind", "member"), [("kill", "g1"), ("restart", ROOT), ("cut", SERVER), ("kill", SERVER), ("restart", SERVER)]
)
async def test_changes_stay_in_order_whoever_dies_on_their_way(kind: str, member: str, tmp_path: Path) -> None:
    small = cluster(3, tmp_path, pending_bytes=64 << 10)
    async with asyncio.timeout(PATIENCE_S), small as made, made.client("g1", "g2") as client:
        await client.execute(CREATE)
        base = 0
        for _ in range(3):
            rounds = []
            async with asyncio.TaskGroup() as tasks:
                fault = tasks.create_task(happen(Fault(kind, member, 0.05, 0), made), name="test.fault")
                while not fault.done():  # from before the fault until after it
                    rounds.append(await publish_at_once(client, base))
                    base += PIPELINED
            check_in_order([receipt for receipts in rounds for receipt in receipts])
            assert await value(client) == base - 1


async def test_a_change_in_pieces_is_not_mixed_with_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "WHOLE_ROWS", 2)
    monkeypatch.setattr(publishing, "PIECE_ROWS", 2)
    async with asyncio.timeout(PATIENCE_S), cluster(0, link=PATIENT) as made, made.client() as client:
        await client.execute(CREATE)
        large = {"K": [2, 3, 4, 5, 6, 7, 1], "V": [0.0] * 7}
        receipts = await asyncio.gather(client.publish("T", large), client.publish("T", [{"K": 1, "V": 5.0}]))
        check_in_order(list(receipts))
        assert receipts[0].updates == 7
        assert await value(client) == 5.0


async def test_a_change_that_was_given_up_or_refused_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path, link=PATIENT) as made, made.client() as client:
        await client.execute(CREATE)
        made.server.proxy.stall()
        given_up = [asyncio.ensure_future(client.publish("T", [{"K": 1, "V": -1.0}], timeout=0.05)) for _ in range(3)]
        refused = asyncio.ensure_future(client.publish("NOWHERE", [{"K": 1}]))
        kept = [asyncio.ensure_future(client.publish("T", [{"K": 1, "V": float(i)}])) for i in range(5)]
        for late in given_up:
            with pytest.raises(TimedOut):
                await late
        made.server.proxy.resume()
        with pytest.raises(UnknownTable):
            await refused
        check_in_order([await receipt for receipt in kept])
        assert await value(client) == 4.0
