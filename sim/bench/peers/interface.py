"""What a peer is to the benchmark: servers to start, a publisher and subscribers in worker processes.

One file per peer implements it (`ours.py`, `nats_peers.py`, ..); `cells.py` lists them.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import shutil
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hullcast.clients.processes.worker import WorkerFailed
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.bench.frame.worker import Sampler
from hullcast.sim.bench.peers.workload import Call, Job

Facts = Mapping[str, Any]  # what workers must know of a started peer, as JSON
START_S = 30.0
STOP_S = 5.0
LOOK_S = 0.002
#: Rows that the slowest client has not seen yet, at most, where a publisher waits.
WINDOW = 256
_PR_SET_PDEATHSIG = 1


class PeerPublisher(Protocol):
    """In the publishing process."""

    async def open(self) -> None:
        """Connect."""

    async def send(self, call: Call, *, wait: bool) -> None:
        """Publish; with `wait` only once there is room, so that the work in flight is bounded."""

    async def flush(self) -> None:
        """Wait until all is acknowledged, as far as the peer acknowledges."""

    async def close(self) -> None:
        """Hang up."""


class Subscriber(Protocol):
    """In a client process: some connections, each with its ranges."""

    async def open(self) -> None:
        """Connect, and have the first answers."""

    async def drained(self, published: int) -> int:
        """Wait until all connections have so many updates; when (monotonic ns) the last one had them."""

    async def answers(self) -> list[Floats]:
        """Of each connection, in the order of its ranges."""

    async def close(self) -> None:
        """Hang up."""


class Seen:
    """How far each connection is: a file that all processes map, the benchmark's own, beside what peers send.

    Brokers without end-to-end flow control need it: a publisher that outran its clients would measure lost messages.
    """

    def __init__(self, path: Path, connections: int, *, create: bool = False) -> None:
        mode: Any = "w+" if create else "r+"
        self._seen: Ints = np.memmap(path, np.int64, mode, shape=(connections,))
        self._least = 0  # when we last looked

    def saw(self, connection: int) -> Callable[[int], None]:
        """For one connection: say how many updates it has seen."""

        def say(count: int) -> None:
            self._seen[connection] = count

        return say

    async def wait_room(self, call: Call) -> None:
        """Until all connections have seen nearly all that came before a call."""
        count = call.first - max(WINDOW, 8 * len(call))
        while self._least < count:
            self._least = int(self._seen.min())
            if self._least < count:
                await asyncio.sleep(LOOK_S)


@dataclass(frozen=True, slots=True)
class Part:
    """What a client process needs to know: the job, its connections among all, and where to tell what it hears."""

    job: Job
    connections: Sequence[int]
    total: int
    sampler: Sampler
    progress: Seen


class ServerProcess:
    """A server that is not ours: started on a free port, there when it accepts connections, gone when we are."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = 0
        self._process: asyncio.subprocess.Process | None = None
        self._said: Path | None = None

    async def start(self, words: Sequence[str], port: int, folder: Path, *, user: str | None = None) -> None:
        """Run the command; WorkerFailed with its last words if it does not serve."""
        self.port, self._said = port, folder / f"{self.name}.log"
        with self._said.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                cwd=folder,
                user=user,
                preexec_fn=_die_with_parent,
            )
        try:
            async with asyncio.timeout(START_S):
                while not await self._accepts():
                    if self._process.returncode is not None:
                        raise WorkerFailed(f"{self.name} did not start: {self._last_words()}")
                    await asyncio.sleep(0.02)
        except TimeoutError:
            await self.stop()
            raise WorkerFailed(f"{self.name} does not listen after {START_S:g} s: {self._last_words()}") from None

    @property
    def pids(self) -> list[int]:
        """Its process."""
        return [] if self._process is None else [self._process.pid]

    async def stop(self) -> None:
        """INT, and KILL if that does not help."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()

    async def _accepts(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    def _last_words(self) -> str:
        assert self._said is not None, "set by start"
        lines = self._said.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


class BenchPeer(ABC):
    """A system that does the job. It is made anew for each start, and in worker processes for its two ends."""

    name: str  # for `--only`
    title: str
    in_process = False  # table and subscriptions are in the publishing process: no clients are started
    publisher: Callable[[Facts, Seen], PeerPublisher]  # of no use where both ends are one
    subscriber: Callable[[Facts, Part], Subscriber]

    def missing(self) -> str:
        """Why it cannot run here, and how to install it; empty if it can."""
        return ""

    @abstractmethod
    def keeps(self, *, durable: bool) -> str:
        """What is on disk when a call returns: 'synced', 'written' or 'memory'."""

    @abstractmethod
    async def start(self, folder: Path, job: Job, *, durable: bool) -> Facts:
        """Start its servers, with the rows loaded."""

    @property
    def pids(self) -> list[int]:
        """Its server processes; their children are found."""
        return []

    async def stop(self) -> None:  # noqa: B027  (there may be nothing to stop)
        """Stop them for certain."""


class ServerPeer(BenchPeer):
    """One with a server of another make."""

    def __init__(self, server: str) -> None:
        self._server = ServerProcess(server)

    @property
    def pids(self) -> list[int]:
        """The server; its children are found."""
        return self._server.pids

    async def stop(self) -> None:
        """INT: for PostgreSQL that is its fast shutdown."""
        await self._server.stop()


def _die_with_parent() -> None:
    with suppress(OSError, AttributeError):  # Linux only; elsewhere stop() is all there is
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def free_port() -> int:
    """A TCP port that nobody listens on right now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def executable(name: str, *places: str) -> str:
    """Where a program is: on the PATH, or in a usual place; empty if nowhere."""
    for folder in (None, *places):
        found = shutil.which(name, path=folder)
        if found:
            return found
    return ""


def importable(module: str) -> bool:
    """Whether a package is installed."""
    return importlib.util.find_spec(module) is not None
