"""The processes of a section of `bench warehouse`: server, gateway, clients; and what they use."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mode
from time import monotonic, sleep

from hullcast.clients.processes.cluster import Cluster, Layout
from hullcast.clients.processes.worker import Worker
from hullcast.clients.sdk.client import Client, connect
from hullcast.sim.bench.timing import process_of

WORKERS = "hullcast.sim.bench.warehouse.workers"
#: For requests of the benchmark itself.
PATIENCE_S = 110.0


@dataclass(frozen=True, slots=True)
class WarehouseStage:
    """A server, perhaps a gateway, a client of our own, and client processes by name."""

    cluster: Cluster
    control: Client
    workers: dict[str, Worker]

    @property
    def server(self) -> str:
        """Where the server itself listens."""
        return self.cluster.server.endpoint

    def cpu_s(self) -> tuple[float, float]:
        """Seconds of CPU so far: of the server's process, and of all processes below it (those that ended included)."""
        process = process_of(self.cluster.server.pid)
        own = process.cpu_times()
        below = own.children_user + own.children_system
        for child in process.children(recursive=True):
            times = child.cpu_times()
            below += sum(times[:2]) + times.children_user + times.children_system
        return own.user + own.system, below

    def nice(self) -> int:
        """The niceness of the processes below the server: of most of them, 0 if there are none."""
        levels = [child.nice() for child in process_of(self.cluster.server.pid).children(recursive=True)]
        return int(mode(levels)) if levels else 0


def others_cores(seconds: float) -> float:
    """Cores that other programs use now: to be asked before anything is started."""
    before, began = busy_cores_s(), monotonic()
    sleep(seconds)
    return (busy_cores_s() - before) / (monotonic() - began)


def busy_cores_s() -> float:
    """Seconds of CPU that everything on this machine has used so far."""
    import psutil

    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


@asynccontextmanager
async def staged(
    names: Sequence[str], *, nodes: int = 0, options: tuple[str, ...] = (), clients: str = WORKERS
) -> AsyncIterator[WarehouseStage]:
    """Start all, with the clients (of this module) connected to the server; at the end no process and no file is
    left."""
    with tempfile.TemporaryDirectory(prefix="hullcast-bench-", ignore_cleanup_errors=True) as folder:
        cluster = Cluster(Layout(nodes=nodes, data=str(Path(folder) / "data"), server_options=options))
        workers: dict[str, Worker] = {}
        try:
            await cluster.start()
            for name in names:
                workers[name] = await Worker.start(name, clients)
            url = cluster.server.endpoint
            await asyncio.gather(*(worker.ask("open", url=url, name=name) for name, worker in workers.items()))
            async with connect(url, name="bench", timeout=PATIENCE_S) as control:
                yield WarehouseStage(cluster, control, workers)
        finally:
            await asyncio.gather(*(worker.stop() for worker in workers.values()))
            await cluster.stop()
