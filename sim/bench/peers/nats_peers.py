"""NATS: the broker carries every row to every client, which keeps them and evaluates its ranges.

Core NATS publishes and forgets; with JetStream it keeps a stream in files and acknowledges each publish.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path
from typing import Any

from hullcast.sim.bench.peers.interface import Facts, Part, Seen, ServerPeer, executable, free_port, importable
from hullcast.sim.bench.peers.row_clients import RowClients, packed
from hullcast.sim.bench.peers.workload import Call, Job

SUBJECT, STREAM = "stock", "STOCK"
PLACES = ("/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin")
INSTALL = "apt install nats-server, or a release from github.com/nats-io/nats-server"
#: JetStream publishes without acknowledgement, at most.
UNACKNOWLEDGED = 256


def _version() -> tuple[int, ...]:
    said = subprocess.run([executable("nats-server", *PLACES), "--version"], capture_output=True, text=True, check=True)
    return tuple(int(number) for number in re.findall(r"\d+", said.stdout)[:2])


async def _make_stream(url: str, durable: bool) -> None:
    import nats
    from nats.js.api import StorageType, StreamConfig

    connection = await nats.connect(url)
    storage = StorageType.FILE if durable else StorageType.MEMORY
    config = StreamConfig(name=STREAM, subjects=[SUBJECT], storage=storage, max_bytes=1 << 28)
    await connection.jetstream().add_stream(config)
    await connection.close()


class NatsPublisher:
    """One connection."""

    def __init__(self, facts: Facts, progress: Seen) -> None:
        self._facts, self._progress = facts, progress
        self._connection: Any = None
        self._stream: Any = None
        self._acks: set[asyncio.Future[Any]] = set()

    async def open(self) -> None:
        """Connect."""
        import nats

        self._connection = await nats.connect(self._facts["url"], pending_size=64 << 20)
        if self._facts["jetstream"]:
            self._stream = self._connection.jetstream(publish_async_max_pending=UNACKNOWLEDGED)

    async def send(self, call: Call, *, wait: bool) -> None:
        """A message a call."""
        if wait:
            await self._progress.wait_room(call)
        if self._stream is None:
            await self._connection.publish(SUBJECT, packed(call))
            if wait and self._connection.pending_data_size > 65_536:
                await self._connection.flush()
            return
        ack = await self._stream.publish_async(SUBJECT, packed(call), wait_stall=30.0)
        self._acks.add(ack)
        ack.add_done_callback(self._acks.discard)

    async def flush(self) -> None:
        """The server has all; JetStream has acknowledged all."""
        await self._connection.flush()
        if self._acks:
            await asyncio.gather(*self._acks)

    async def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            await self._connection.close()


class NatsSubscriber(RowClients):
    """A NATS connection, rows and answers for each of our connections."""

    def __init__(self, facts: Facts, part: Part) -> None:
        super().__init__(part)
        self._facts = facts
        self._open: list[Any] = []

    async def open(self) -> None:
        """Connect all."""
        import nats

        for listener in self.listeners:
            connection = await nats.connect(self._facts["url"], error_cb=self.failed)
            self._open.append(connection)

            async def hear(message: Any, hear_it: Any = listener.hear) -> None:
                hear_it(message.data)

            if self._facts["jetstream"]:
                await connection.jetstream().subscribe(SUBJECT, cb=hear, ordered_consumer=True)
            else:
                await connection.subscribe(SUBJECT, cb=hear, pending_msgs_limit=-1, pending_bytes_limit=-1)
            await connection.flush()

    async def close(self) -> None:
        """Hang up."""
        for connection in self._open:
            await connection.close()


class Nats(ServerPeer):
    """One nats-server."""

    publisher, subscriber = NatsPublisher, NatsSubscriber

    def __init__(self, *, jetstream: bool) -> None:
        self.name = "jetstream" if jetstream else "nats"
        self.title = "NATS JetStream + client state" if jetstream else "NATS + client state"
        self._jetstream = jetstream
        super().__init__("nats-server")

    def missing(self) -> str:
        """It needs the server and its Python client."""
        if not executable("nats-server", *PLACES):
            return f"nats-server is not installed ({INSTALL})"
        return "" if importable("nats") else "nats-py is not installed (pip install 'hullcast[peers]')"

    def keeps(self, *, durable: bool) -> str:
        """Up to 2.9 a server cannot be told to sync each write."""
        if not self._jetstream or not durable:
            return "memory"
        return "synced" if _version() >= (2, 10) else "written"

    async def start(self, folder: Path, job: Job, *, durable: bool) -> Facts:
        """Start it; rows are not its business."""
        sync = "sync_interval: always" if _version() >= (2, 10) else ""
        stream = f'jetstream {{ store_dir: "{folder}/jetstream", {sync} }}' if self._jetstream else ""
        config = folder / "nats.conf"
        config.write_text(f"max_payload: 8MB\nmax_pending: 256MB\n{stream}\n", encoding="utf-8")
        port = free_port()
        words = [executable("nats-server", *PLACES), "-a", "127.0.0.1", "-p", str(port), "-c", str(config)]
        await self._server.start(words, port, folder)
        url = f"nats://127.0.0.1:{port}"
        if self._jetstream:
            await _make_stream(url, durable)
        return {"url": url, "jetstream": self._jetstream}
