"""The processes that something is measured with: server, nodes, clients; and what they use and carry."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import mode
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from hullcast.clients.processes.cluster import SERVER, Cluster, Layout
from hullcast.clients.processes.worker import Worker, WorkerFailed, ask_all
from hullcast.clients.sdk.client import Client, connect
from hullcast.network.wire.arrays import Floats
from hullcast.sim.bench.frame.machine import below_s, busy_cores_s, cpu_by_name, cpu_s, process_of

#: For requests of the benchmark itself; until nodes have reported; between two looks.
PATIENCE_S, SETTLE_S, LOOK_S = 110.0, 30.0, 0.05
PUBLISHER = "publisher"


@dataclass(frozen=True, slots=True)
class TrafficCounts:
    """Messages and bytes so far, that left the server, the root, and the gateways for clients."""

    server_messages: int
    server_bytes: int
    root_bytes: int
    client_messages: int
    client_bytes: int

    def since(self, before: TrafficCounts) -> TrafficCounts:
        """What came in between."""
        return TrafficCounts(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))


class StageUse(NamedTuple):
    """A moment, and seconds of CPU until then; or what came in between two of them."""

    seconds: float
    server_s: float  # the server's own process
    below_s: float  # all processes below it
    machine_s: float  # everything on this machine

    def since(self, before: StageUse) -> StageUse:
        """What came in between."""
        return StageUse(*(now - then for now, then in zip(self, before, strict=True)))


@dataclass(frozen=True, slots=True)
class BenchStage:
    """A server, perhaps nodes, a client of our own, and client processes by name."""

    cluster: Cluster
    workers: dict[str, Worker]
    folder: Path
    client: Client | None

    @property
    def control(self) -> Client:
        """The client of our own."""
        assert self.client is not None, "asked for"
        return self.client

    @property
    def server(self) -> str:
        """Where the server itself listens."""
        return self.cluster.server.endpoint

    @property
    def gateways(self) -> list[str]:
        """Where clients should dial."""
        return [gateway.endpoint for gateway in self.cluster.gateways]

    @property
    def pids(self) -> dict[str, int]:
        """All processes by name."""
        served = {name: child.pid for name, child in self.cluster.children.items()}
        return served | {name: worker.pid for name, worker in self.workers.items()}

    @property
    def subscribers(self) -> list[Worker]:
        """The clients that do not publish."""
        return [worker for name, worker in self.workers.items() if name != PUBLISHER]

    def use(self) -> StageUse:
        """What is used so far."""
        server = self.cluster.server.pid
        return StageUse(monotonic(), cpu_s(server), below_s(server), busy_cores_s())

    def cpu_by_kind(self) -> dict[str, float]:
        """Seconds of CPU so far by kind of process."""
        used = dict.fromkeys((SERVER, "nodes", "clients", PUBLISHER), 0.0)
        for name, seconds in cpu_by_name(self.pids).items():
            kind = name if name in used else "clients" if name in self.workers else "nodes"
            used[kind] += seconds
        return used

    def nice(self) -> int:
        """The niceness of the processes below the server: of most of them, 0 if there are none."""
        levels = [child.nice() for child in process_of(self.cluster.server.pid).children(recursive=True)]
        return int(mode(levels)) if levels else 0

    async def ask_subscribers(self, what: str, **how: Any) -> list[dict[str, Any]]:
        """Have all do their part of the same at the same time."""
        parts = len(self.subscribers)
        return await asyncio.gather(
            *(worker.ask(what, part=part, parts=parts, **how) for part, worker in enumerate(self.subscribers))
        )

    async def synced(self) -> tuple[int, int]:
        """Wait until all subscribers have all; up to where, and when (monotonic ns) the last one had."""
        replies = await ask_all(self.subscribers, "sync")
        return min(reply["seq"] for reply in replies), max(reply["now"] for reply in replies)

    async def heard(self) -> dict[str, int]:
        """What all subscribers together received since they subscribed."""
        counts = await ask_all(self.subscribers, "heard")
        total = {name: sum(count[name] for count in counts) for name in counts[0]}
        if total["resumes"]:
            raise WorkerFailed("a client lost its link while it was measured, and had to subscribe again")
        return total

    async def traffic(self) -> TrafficCounts:
        """Counters, once all nodes have reported on all updates so far."""
        seq, _ = await self.synced()
        count = len(self.cluster.nodes)
        status = await self.status_when(
            lambda status: sum(node["through"] >= seq for node in status["nodes"]) == count == len(status["nodes"])
        )
        nodes = status["nodes"]
        gateways = [node for node in nodes if not node["nodes"]]
        return TrafficCounts(
            status["children"]["delivered_messages"],
            status["children"]["delivered_bytes"],
            sum(node["delivered_bytes"] for node in nodes if node["nodes"]),
            sum(node["delivered_messages"] for node in gateways),
            sum(node["delivered_bytes"] for node in gateways),
        )

    async def status_when(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The server's status as soon as it is as wanted: nodes report once a second."""
        async with asyncio.timeout(SETTLE_S):
            status = await self.control.status()
            while not holds(status):
                await asyncio.sleep(LOOK_S)
                status = await self.control.status()
        return status


async def collected(workers: Sequence[Worker], what: str, folder: Path) -> list[dict[str, Any]]:
    """The arrays that each of them writes to a file when it is asked for that."""
    found = []
    for number, worker in enumerate(workers):
        path = folder / f"{what}-{number}.npz"
        await worker.ask(what, path=str(path))
        with np.load(path) as written:
            found.append(dict(written))
    return found


async def ages_ms(published: Path, workers: Sequence[Worker], folder: Path) -> Floats:
    """From publishing an update to hearing of it, for each update and each of those who sampled it. The file says of
    each publish when it was sent, and its last update."""
    calls = np.load(published)
    return np.concatenate(
        [
            (heard["time"] - calls["sent"][np.searchsorted(calls["last"], heard["update"])]) / 1e6
            for heard in await collected(workers, "samples", folder)
        ]
    )


@asynccontextmanager
async def staged(
    names: Sequence[str],
    clients: str = "",
    *,
    nodes: int = 0,
    data: bool = True,
    at_gateways: bool = False,
    connected: bool = True,
    options: tuple[str, ...] = (),
    server_module: str = "hullcast",
) -> AsyncIterator[BenchStage]:
    """Start all, with the clients (processes of that module) connected to the server, or to gateways in turns; at the
    end no process and no file is left. Without `data` the server keeps everything in memory."""
    with tempfile.TemporaryDirectory(prefix="hullcast-bench-", ignore_cleanup_errors=True) as folder:
        place = str(Path(folder) / "data") if data else ""
        layout = Layout(nodes=nodes, data=place, server_options=options, server_module=server_module)
        cluster, workers = Cluster(layout), dict[str, Worker]()
        try:
            await cluster.start()
            for name in names:
                workers[name] = await Worker.start(name, clients)
            if not connected:
                yield BenchStage(cluster, workers, Path(folder), None)
                return
            urls = [gateway.endpoint for gateway in cluster.gateways] if at_gateways else [cluster.server.endpoint]
            some = enumerate(workers.items())
            await asyncio.gather(
                *(worker.ask("open", url=urls[number % len(urls)], name=name) for number, (name, worker) in some)
            )
            async with connect(urls[0], name="bench", timeout=PATIENCE_S) as control:
                yield BenchStage(cluster, workers, Path(folder), control)
        finally:
            await asyncio.gather(*(worker.stop() for worker in workers.values()))
            await cluster.stop()
