"""The live benchmark's cluster: server, root, gateways, subscribers, a publisher, and their costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from hullcast.clients.processes.cluster import SERVER, Cluster, Layout
from hullcast.clients.processes.worker import Worker, WorkerFailed, ask_all
from hullcast.clients.sdk.client import Client, connect
from hullcast.sim.bench.timing import process_of
from hullcast.sim.traces.table51 import CREATE, Workload

SETTLE_S = 20.0
LOOK_S = 0.05
WORKERS = "hullcast.sim.bench.live.workers"


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """Sizes and times. Rates, the latencies' quantiles and CPU times get steadier with longer phases."""

    rows: int = 10_000
    subscriptions: int = 100_000  # in total
    clients: int = 4
    gateways: int = 2
    prepared: int = 400_000  # updates drawn beforehand; then they are published again from the first on
    batch: int = 1_000  # rows of a publish, when as many updates as possible are wanted
    in_flight: int = 8  # publishes without a receipt then
    warm_s: float = 2.0  # of each kind of load, before anything is counted
    sustained_s: float = 12.0
    paced_rate: int = 20_000  # updates/s, for latencies and the cost of an update
    paced_batch: int = 100
    latency_s: float = 10.0
    sizes: tuple[int, ...] = (1_000, 10_000, 100_000)  # subscriptions, for the cost of an update
    size_rounds: int = 3
    size_s: float = 3.0
    singles: int = 500  # publishes of one row, one after the other
    interval_updates: int = 4_000  # each to every subscription whose range holds it
    unpruned_updates: int = 40_000
    chain_s: float = 4.0
    checked_by_sql: int = 200  # answers that SQLite computes too; NumPy computes all
    seed: int = 0


FULL_LIVE = LiveSettings()
QUICK_LIVE = LiveSettings(
    prepared=150_000,
    warm_s=0.5,
    sustained_s=3.0,
    latency_s=2.5,
    size_rounds=1,
    size_s=1.0,
    singles=100,
    interval_updates=1_000,
    unpruned_updates=10_000,
    chain_s=1.0,
    checked_by_sql=50,
)


@dataclass(frozen=True, slots=True)
class TrafficCounts:
    """Messages and bytes since the cluster began, that left the server, the root, and the gateways for clients."""

    server_messages: int
    server_bytes: int
    root_bytes: int
    client_messages: int
    client_bytes: int

    def since(self, before: TrafficCounts) -> TrafficCounts:
        """What came in between."""
        return TrafficCounts(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))


class LiveCluster:
    """Real processes on this host, from `start` to `stop`; after `stop` none is left."""

    def __init__(self, settings: LiveSettings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self._workload = {"seed": settings.seed, "rows": settings.rows}
        self._cluster = Cluster(Layout(nodes=1 + settings.gateways, data=str(folder / "data")))
        self.clients: list[Worker] = []
        self._publisher: Worker | None = None
        self._control: Client | None = None

    async def start(self) -> None:
        """Start everything, and load the rows."""
        settings = self.settings
        self._publisher = await Worker.start("publisher", WORKERS, "publisher")
        for number in range(settings.clients):
            self.clients.append(await Worker.start(f"client-{number + 1}", WORKERS, "client"))
        await self._cluster.start()
        gateways = self._cluster.gateways
        self._control = await connect(gateways[0].endpoint, name="bench", timeout=60.0)
        await self.control.execute(CREATE)
        rows = Workload(settings.rows, root=settings.seed).rows
        await self.control.publish("POINTS", rows.columns())
        await asyncio.gather(
            self.publisher.ask("open", url=gateways[0].endpoint, prepared=settings.prepared, **self._workload),
            *(
                client.ask("open", url=gateways[number % len(gateways)].endpoint, name=client.name)
                for number, client in enumerate(self.clients)
            ),
        )

    async def stop(self) -> None:
        """End all processes."""
        workers = [*self.clients, *([] if self._publisher is None else [self._publisher])]
        await asyncio.gather(*(worker.stop() for worker in workers))
        if self._control is not None:
            await self._control.close()
        await self._cluster.stop()

    @property
    def control(self) -> Client:
        """A client of our own, at a gateway."""
        assert self._control is not None, "start comes first"
        return self._control

    @property
    def publisher(self) -> Worker:
        """The publishing process."""
        assert self._publisher is not None, "start comes first"
        return self._publisher

    async def subscribe(self, sql: str, total: int, *, sync: bool = True) -> list[dict[str, Any]]:
        """Have all clients subscribe at once, each to its part of the ranges."""
        how = {"sql": sql, "total": total, "parts": len(self.clients), "sync": sync, **self._workload}
        return await asyncio.gather(
            *(client.ask("subscribe", part=part, **how) for part, client in enumerate(self.clients))
        )

    async def unsubscribe(self) -> None:
        """Have all leave, and wait until the server sends nothing for them any more."""
        await ask_all(self.clients, "unsubscribe")
        await self._status_when(lambda status: not status["children"]["channels"])

    async def synced(self) -> tuple[int, int]:
        """Wait until all clients have all; up to where, and when (monotonic ns) the last one had."""
        replies = await ask_all(self.clients, "sync")
        return min(reply["seq"] for reply in replies), max(reply["now"] for reply in replies)

    async def told(self) -> dict[str, int]:
        """What all clients together received since they subscribed."""
        counts = await ask_all(self.clients, "counts")
        total = {name: sum(count[name] for count in counts) for name in counts[0]}
        if total["resumes"]:
            raise WorkerFailed("a client lost its link while it was measured, and had to subscribe again")
        return total

    async def traffic(self) -> TrafficCounts:
        """Counters, once all nodes have reported on all updates so far."""
        seq, _ = await self.synced()
        count = 1 + self.settings.gateways
        status = await self._status_when(
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

    async def _status_when(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The server's status as soon as it is as wanted: nodes report once a second."""
        async with asyncio.timeout(SETTLE_S):
            status = await self.control.status()
            while not holds(status):
                await asyncio.sleep(LOOK_S)
                status = await self.control.status()
        return status

    def cpu(self) -> dict[str, float]:
        """Seconds of CPU that each process has used."""
        return {name: sum(process_of(pid).cpu_times()[:2]) for name, pid in self.pids().items()}

    def pids(self) -> dict[str, int]:
        """The processes by name."""
        served = {name: child.pid for name, child in self._cluster.children.items()}
        return served | {worker.name: worker.pid for worker in (*self.clients, self.publisher)}


@dataclass(frozen=True, slots=True)
class Cpu:
    """Seconds of CPU by part of the system."""

    server: float
    nodes: float
    clients: float
    publisher: float

    @classmethod
    def between(cls, before: Mapping[str, float], after: Mapping[str, float]) -> Cpu:
        """What was used between two readings."""
        used = {name: after[name] - before[name] for name in before}
        clients = sum(seconds for name, seconds in used.items() if name.startswith("client-"))
        server, publisher = used[SERVER], used["publisher"]
        return cls(server, sum(used.values()) - clients - server - publisher, clients, publisher)
