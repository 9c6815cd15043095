"""Redis: pub/sub carries every row to connected clients; a stream keeps rows for clients to read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hullcast.sim.bench.peers.interface import Facts, Part, Seen, ServerPeer, executable, free_port, importable
from hullcast.sim.bench.peers.row_clients import RowClient, RowClients, packed
from hullcast.sim.bench.peers.sending import BatchingPublisher
from hullcast.sim.bench.peers.workload import Call, Job

CHANNEL = "stock"
PLACES = ("/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")
#: Messages of one read of the stream, and how many the stream keeps.
READ, KEPT = 1_000, 1_000_000


def _connected(facts: Facts) -> Any:
    from redis.asyncio import Redis as Connection

    return Connection(host="127.0.0.1", port=facts["port"], single_connection_client=True, socket_timeout=None)


class RedisPublisher(BatchingPublisher):
    """One connection; calls that wait go out in one pipeline."""

    def __init__(self, facts: Facts, progress: Seen) -> None:
        super().__init__(progress)
        self._facts = facts
        self._redis: Any = None

    async def connect(self) -> None:
        """Connect."""
        self._redis = _connected(self._facts)
        await self._redis.ping()

    async def deliver(self, calls: Sequence[Call]) -> None:
        """A message a call."""
        pipeline = self._redis.pipeline(transaction=False)
        for call in calls:
            if self._facts["streams"]:
                pipeline.xadd(CHANNEL, {"m": packed(call)}, maxlen=KEPT)
            else:
                pipeline.publish(CHANNEL, packed(call))
        await pipeline.execute()

    async def disconnect(self) -> None:
        """Hang up."""
        if self._redis is not None:
            await self._redis.aclose()


class RedisSubscriber(RowClients):
    """A Redis connection, rows and answers for each of our connections."""

    def __init__(self, facts: Facts, part: Part) -> None:
        super().__init__(part)
        self._facts = facts
        self._open: list[Any] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Connect all."""
        for listener in self.listeners:
            redis = _connected(self._facts)
            self._open.append(redis)
            await redis.ping()
            if self._facts["streams"]:
                reading = self._read(redis, listener)
            else:
                channel = redis.pubsub(ignore_subscribe_messages=True)
                self._open.append(channel)
                await channel.subscribe(CHANNEL)
                await channel.parse_response()  # that it is subscribed
                reading = self._hear(channel, listener)
            self._tasks.append(asyncio.create_task(self._kept(reading), name="redis.read"))

    async def _kept(self, reading: Any) -> None:
        from redis.exceptions import RedisError

        try:
            await reading
        except (RedisError, OSError) as error:
            await self.failed(error)

    async def _hear(self, channel: Any, listener: RowClient) -> None:
        while True:
            kind, _, message = await channel.parse_response()
            if kind == b"message":
                listener.hear(message)

    async def _read(self, redis: Any, listener: RowClient) -> None:
        last: Any = "0"
        while True:
            (entries,) = dict(await redis.xread({CHANNEL: last}, count=READ, block=0)).values()
            last = entries[-1][0]
            listener.take([fields[b"m"] for _, fields in entries])

    async def close(self) -> None:
        """Hang up."""
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for connection in reversed(self._open):
            await connection.aclose()


class Redis(ServerPeer):
    """One redis-server."""

    publisher, subscriber = RedisPublisher, RedisSubscriber

    def __init__(self, *, streams: bool) -> None:
        self.name = "redis-streams" if streams else "redis"
        self.title = "Redis Streams + client state" if streams else "Redis pub/sub + client state"
        self._streams = streams
        super().__init__("redis-server")

    def missing(self) -> str:
        """It needs the server and its Python client."""
        if not executable("redis-server", *PLACES):
            return "redis-server is not installed (apt install redis-server)"
        return "" if importable("redis") else "redis is not installed (pip install 'hullcast[peers]')"

    def keeps(self, *, durable: bool) -> str:
        """Published messages are never kept; streams are in the append-only file."""
        return "synced" if self._streams and durable else "memory"

    async def start(self, folder: Path, job: Job, *, durable: bool) -> Facts:
        """Start it; rows are not its business."""
        port = free_port()
        words = [executable("redis-server", *PLACES), "--bind", "127.0.0.1", "--port", str(port), "--save", ""]
        words += ["--dir", str(folder), "--appendonly", "yes" if durable else "no", "--appendfsync", "always"]
        words += ["--client-output-buffer-limit", "pubsub 0 0 0"]
        await self._server.start(words, port, folder)
        return {"port": port, "streams": self._streams}
