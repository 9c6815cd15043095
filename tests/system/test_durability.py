"""A server process killed at any moment, its log torn or damaged: what was acknowledged is there, and there once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from hullcast.broker.log.directory import read_identity
from hullcast.broker.log.record import PlacedRecord, Record, RecordKind, Scan, encode_header
from hullcast.broker.log.segment import HEADER_BYTES, decode_header, segments
from hullcast.clients.sdk.client import Client
from tests.support.cluster import COMMAND, ProcessMember, cluster
from tests.support.queries import COLUMNS, KEY
from tests.support.sqlite_oracle import stored
from tests.support.watching import EVERY_KIND as ASKED
from tests.support.watching import History, check_answers, settle, watch

PATIENCE_S = 120.0


@dataclass
class Tail:
    """The last segment of a log."""

    path: Path
    content: bytes
    seed: int
    records: list[PlacedRecord]
    scan: Scan

    @property
    def next_record(self) -> bytes:
        """What the next write would be: a record nobody has been told of."""
        payload = bytes(range(256)) * 4
        record = Record(RecordKind.BATCH, self.scan.number + 1, self.scan.seq + 1, 3, b"p" * 16, 1, payload)
        return encode_header(record, self.scan.synced, self.seed) + payload


def tail_of(data: Path) -> Tail:
    _, path = segments(data / "log")[-1]
    content = path.read_bytes()
    header = decode_header(content)
    assert header is not None
    scan = Scan(content, HEADER_BYTES, seed=header.seed, number=header.number - 1, seq=header.seq)
    return Tail(path, content, header.seed, list(scan), scan)


def leave_alone(data: Path, rng: Random) -> None:
    """The process died, the disk did not."""


def tear(data: Path, rng: Random) -> None:
    """A write of which only the beginning came to the disk."""
    tail = tail_of(data)
    torn = tail.next_record[: rng.randrange(1, len(tail.next_record))]
    tail.path.write_bytes(tail.content[: tail.scan.end] + torn)


def spoil(data: Path, rng: Random) -> None:
    """A write of which some pages came to the disk, and some did not."""
    tail = tail_of(data)
    spoilt = bytearray(tail.next_record)
    spoilt[rng.randrange(len(spoilt))] ^= 1 << rng.randrange(8)
    tail.path.write_bytes(tail.content[: tail.scan.end] + spoilt)


async def publish_until(stop: asyncio.Event, history: History, client: Client, rng: Random) -> None:
    while not stop.is_set():
        await history.publish(client, rng)


async def check_rows(history: History, client: Client) -> None:
    """Every acknowledged row is in the server's tables, and nothing else."""
    oracle = history.now()
    for table, columns in COLUMNS.items():
        names = ", ".join((KEY[table], *columns))
        sql = f"SELECT {names} FROM {table} ORDER BY {KEY[table]}"
        expected = oracle.database.execute(sql).fetchall()
        found = [tuple(stored(value) for value in row) for row in await client.query(sql)]
        assert found == expected


async def survive(seed: int, kills: int, tmp_path: Path) -> None:
    """Kill the server under load, do something to its log, start it again; publishers and subscribers go on."""
    rng = Random(seed)
    history, stop = History(), asyncio.Event()
    data = tmp_path / "data"
    small: dict[str, Any] = {"segment_bytes": 65536, "checkpoint_updates": 200}
    async with (
        asyncio.timeout(PATIENCE_S),
        AsyncExitStack() as stack,
        cluster(0, data, processes=tmp_path, **small) as c,
    ):
        clients = [await stack.enter_async_context(c.client()) for _ in range(3)]
        await history.create(clients[0])
        watchers = await watch(clients[0], ASKED)
        async with asyncio.TaskGroup() as tasks:
            for client in clients * 2:
                tasks.create_task(publish_until(stop, history, client, Random(rng.random())), name="test.publisher")
            for number in range(kills):
                await _grow(history, rng.randrange(1, 300))
                await c.kill("server")
                (leave_alone, tear, spoil)[(seed + number) % 3](data, rng)
                await c.restart_server()
            await _grow(history, 50)
            stop.set()
        await settle(clients)
        history.check_complete(await clients[0].sync())
        await check_rows(history, clients[1])
        check_answers(history, watchers)
        for client in clients:
            await client.close()


async def _grow(history: History, updates: int) -> None:
    wanted = history.seq + updates
    while history.seq < wanted:  # noqa: ASYNC110  many publishers, one number
        await asyncio.sleep(0.001)


async def test_every_acknowledged_row_survives_kills_under_load(tmp_path: Path) -> None:
    await survive(seed=1, kills=2, tmp_path=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
async def test_every_acknowledged_row_survives_many_kills_under_load(seed: int, tmp_path: Path) -> None:
    await survive(seed, kills=8, tmp_path=tmp_path)


async def test_a_damaged_record_that_was_acknowledged_is_never_passed_over(tmp_path: Path) -> None:
    """Any flipped bit of it: the server refuses to start and says where, and changes nothing."""
    rng = Random(4)
    history = History()
    data = tmp_path / "data"
    async with asyncio.timeout(PATIENCE_S), cluster(0, data, processes=tmp_path) as c:
        async with c.client() as client:
            await history.create(client)
            for _ in range(60):
                await history.publish(client, rng)
        server = c.server
        assert isinstance(server, ProcessMember)
        await server.kill()
        tail = tail_of(data)
        acknowledged = [placed for placed in tail.records if placed.record.number <= tail.scan.synced]
        assert len(acknowledged) > 50
        placed = rng.choice(acknowledged)
        spoilt = bytearray(tail.content)
        spoilt[placed.offset + rng.randrange(placed.size_bytes)] ^= 1 << rng.randrange(8)
        tail.path.write_bytes(spoilt)
        server.logs.write_bytes(b"")
        with pytest.raises(AssertionError, match="did not start"):
            await server.start()
        said = server.logs.read_text()
        assert tail.path.name in said
        assert f"byte {placed.offset}" in said, said
        assert "Traceback" not in said
        assert tail.path.read_bytes() == bytes(spoilt)
        verify = await asyncio.create_subprocess_exec(
            COMMAND, "log", "verify", data, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await verify.communicate()
        assert verify.returncode == 1, output
        assert tail.path.name.encode() in output
        tail.path.write_bytes(tail.content)
        server.process = None
        await c.restart_server()
        async with c.client() as client:
            history.check_complete(await client.sync())
            await check_rows(history, client)


async def test_the_epoch_names_one_run_of_a_server_and_the_identity_its_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    seen = []
    async with asyncio.timeout(PATIENCE_S), cluster(0, data) as running:
        for _ in range(2):
            async with running.client() as client:
                seen.append(((await client.status())["epoch"], read_identity(data)))
            await running.stop_server()
            await running.restart_server()
    (epoch, identity), (later, same) = seen
    assert epoch != later
    assert identity == same
    assert identity is not None
    assert identity.hex() not in (epoch, later)


@pytest.mark.parametrize("after_s", [0.05, 0.4, 1.0])
async def test_a_large_batch_that_a_kill_interrupts_is_there_once_and_whole(tmp_path: Path, after_s: float) -> None:
    """It is prepared in slices; nothing of it is logged before the last one."""
    n = 20_000
    columns = {"K": np.arange(n), "X": np.arange(n) * 1.0, "Y": np.arange(n)[::-1] * 1.0}
    async with (
        asyncio.timeout(120),
        cluster(0, tmp_path / "data", processes=tmp_path) as made,
        made.client() as hc,
        made.client() as reader,
    ):
        await hc.execute("CREATE TABLE L (K INTEGER PRIMARY KEY, X REAL, Y REAL)")
        kinds = ("MIN(Y)", "MAX(Y)", "COUNT(*)", "SUM(Y)", "DISTINCT Y", "K, Y", "MIN(K)", "AVG(Y)")
        subs = [await reader.subscribe(f"SELECT {kind} FROM L WHERE X BETWEEN ? AND ?", 5, 6) for kind in kinds]
        publishing = asyncio.create_task(hc.publish("L", columns, timeout=100))
        await asyncio.sleep(after_s)
        await made.kill("server")
        await made.restart_server()
        receipt = await publishing  # sent again by the client
        assert (receipt.updates, receipt.seq - receipt.first_seq + 1) == (n, n)
        assert await hc.query("SELECT count(*), sum(X), max(K) FROM L") == [(n, sum(range(n)), n - 1)]
        await reader.sync()
        assert subs[2].answer == 2
