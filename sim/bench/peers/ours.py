"""Hullcast itself: clients at the server, or at the gateways of a server with three nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic_ns

import numpy as np

from hullcast.clients.processes.cluster import Cluster, Layout
from hullcast.clients.sdk.client import Client, connect
from hullcast.clients.sdk.publisher import WINDOW_BYTES, Publisher
from hullcast.clients.sdk.subscriptions import Subscriptions
from hullcast.network.wire.arrays import Floats
from hullcast.sim.bench.frame.worker import Sampler, updates_of
from hullcast.sim.bench.peers.interface import WINDOW, BenchPeer, Facts, Part, Seen
from hullcast.sim.bench.peers.sending import IN_FLIGHT
from hullcast.sim.bench.peers.workload import CREATE, RANGE_MIN, TABLE, Call, Job

TIMEOUT_S = 60.0
#: About what a `Publisher` counts for a row of this table.
ROW_BYTES = 160


class HullcastPublisher:
    """Publishes single rows with a `Publisher`, as a user would send ticks, and others with `publish`."""

    def __init__(self, facts: Facts, progress: Seen) -> None:
        self._url = facts["urls"][0]
        self._client: Client | None = None
        self._streams: dict[bool, Publisher] = {}  # with a small window or not
        self._room = asyncio.Semaphore(IN_FLIGHT)
        self._under_way: set[asyncio.Task[None]] = set()
        self._failed: BaseException | None = None

    async def open(self) -> None:
        """Connect."""
        self._client = await connect(self._url, name="publisher", timeout=TIMEOUT_S)

    async def send(self, call: Call, *, wait: bool) -> None:
        """Single rows as a user would send ticks; others as columns."""
        if self._failed is not None:
            raise self._failed
        assert self._client is not None, "open comes first"
        if call.row is not None:
            if wait not in self._streams:
                window = WINDOW * ROW_BYTES if wait else WINDOW_BYTES
                self._streams[wait] = self._client.publisher(TABLE, window_bytes=window)
            if wait:
                await self._streams[wait].ready()
            self._streams[wait].send(dict(zip(("ID", "RISK", "PER"), call.row, strict=True)))
            return
        if wait:
            await self._room.acquire()
        task = asyncio.create_task(self._publish(self._client, call, wait), name="publish")
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    async def _publish(self, client: Client, call: Call, release: bool) -> None:
        try:
            await client.publish(TABLE, call.rows.columns())
        finally:
            if release:
                self._room.release()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failed = task.exception()

    async def flush(self) -> None:
        """All receipts are here."""
        for stream in self._streams.values():
            await stream.flush()
        while self._under_way:
            await asyncio.wait(self._under_way)
        if self._failed is not None:
            raise self._failed

    async def close(self) -> None:
        """Hang up."""
        if self._client is not None:
            await self._client.close()


class HullcastSubscriber:
    """A client and one `subscribe_many` per connection."""

    def __init__(self, facts: Facts, part: Part) -> None:
        self._facts, self._part = facts, part
        self._clients: list[Client] = []
        self._many: list[Subscriptions] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Connect all; gateways in turns."""
        urls, job = self._facts["urls"], self._part.job
        for connection in self._part.connections:
            which = job.part(connection, self._part.total)
            name = f"client-{connection}"
            client = await connect(urls[connection % len(urls)], name=name, timeout=TIMEOUT_S)
            self._clients.append(client)
            many = await client.subscribe_many(RANGE_MIN, job.low[which], job.high[which])
            self._many.append(many)
            self._tasks.append(asyncio.create_task(_take(many, self._part.sampler, self._facts["seq"]), name=name))

    async def drained(self, published: int) -> int:
        """Everything that the server has applied is here, and taken."""
        seqs = await asyncio.gather(*(client.sync() for client in self._clients))
        await asyncio.sleep(0)
        assert min(seqs) >= published + self._facts["seq"], "a client that is synced has all that was acknowledged"
        return monotonic_ns()

    async def answers(self) -> list[Floats]:
        """As they are now."""
        return [np.asarray(many.answers, np.float64) for many in self._many]

    async def close(self) -> None:
        """Leave, and hang up."""
        for many in self._many:
            await many.close()
        await asyncio.gather(*self._tasks)
        for client in self._clients:
            await client.close()


async def _take(many: Subscriptions, sampler: Sampler, base: int) -> None:
    async for changed in many.changes():
        if sampler.on:
            sampler.heard(monotonic_ns(), updates_of(changed) - base - 1)


class Hullcast(BenchPeer):
    """A server, and nodes below it."""

    publisher, subscriber = HullcastPublisher, HullcastSubscriber

    def __init__(self, nodes: int) -> None:
        self.name = "hullcast-nodes" if nodes else "hullcast"
        self.title = f"Hullcast, server + {nodes} nodes" if nodes else "Hullcast, direct"
        self._nodes = nodes
        self._cluster: Cluster | None = None

    def keeps(self, *, durable: bool) -> str:
        """A receipt is sent when the log is synced."""
        return "synced" if durable else "memory"

    async def start(self, folder: Path, job: Job, *, durable: bool) -> Facts:
        """Start all, and publish the rows."""
        layout = Layout(nodes=self._nodes, data=str(folder / "data") if durable else "")
        self._cluster = Cluster(layout)
        await self._cluster.start()
        urls = [gateway.endpoint for gateway in self._cluster.gateways]
        async with connect(urls[0], name="bench", timeout=TIMEOUT_S) as client:
            await client.execute(CREATE)
            receipt = await client.publish(TABLE, job.start.columns())
        return {"urls": urls, "seq": receipt.seq}

    @property
    def pids(self) -> list[int]:
        """Server and nodes."""
        return [] if self._cluster is None else [child.pid for child in self._cluster.children.values()]

    async def stop(self) -> None:
        """Stop all."""
        if self._cluster is not None:
            await self._cluster.stop()
