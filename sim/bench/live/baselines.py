"""What the live system is compared with: a ZeroMQ chain, the disk alone, a server that prunes nothing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.processes.worker import Worker
from hullcast.sim.bench.frame.machine import write_and_sync
from hullcast.sim.bench.frame.stage import staged
from hullcast.sim.bench.frame.timing import p50_and_p99
from hullcast.sim.traces.table51 import CREATE, RANGE_MIN, Workload

if TYPE_CHECKING:
    from hullcast.sim.bench.live.benchmark import LiveSettings

PAUSE_S = 0.3


@dataclass(frozen=True, slots=True)
class ChainSizes:
    """Mean bytes per update on each kind of hop: of a publish, and of messages from server, root and gateways."""

    publish: float
    server: float
    root: float
    gateway: float

    def of(self, hop: str, settings: LiveSettings) -> list[int]:
        """Bytes of a frame by phase: one row, a large batch, a small one."""
        counts = (1, settings.batch, settings.paced_batch)
        return [max(1, round(count * float(getattr(self, hop)))) for count in counts]


@dataclass(frozen=True, slots=True)
class Chain:
    """The bare chain's figures."""

    updates_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    single_p50_ms: float


async def measure_chain(settings: LiveSettings, sizes: ChainSizes) -> Chain:
    """Start it, run all phases, and end it."""
    workers: list[Worker] = []

    async def process(role: str, hop: str, parent: str = "", plan: dict[str, float] | None = None) -> Worker:
        words = (role, json.dumps(sizes.of(hop, settings)), parent, json.dumps(plan or {}))
        workers.append(await Worker.start(f"chain {role}", "hullcast.sim.bench.live.chain", *words))
        return workers[-1]

    try:
        server = (await (await process("server", "server")).hear("listen"))["endpoint"]
        root = (await (await process("relay", "root", server)).hear("listen"))["endpoint"]
        gateways = [await process("relay", "gateway", root) for _ in range(settings.gateways)]
        ends = [(await gateway.hear("listen"))["endpoint"] for gateway in gateways]
        clients = [await process("client", "gateway", ends[k % len(ends)]) for k in range(settings.clients)]
        for client in clients:
            await client.hear("dial")
        await asyncio.sleep(PAUSE_S)
        paced = max(1, round(settings.chain_s * settings.paced_rate / settings.paced_batch))
        plan = {
            "singles": settings.singles,
            "seconds": settings.chain_s,
            "in_flight": settings.in_flight,
            "paced": paced,
            "interval_s": settings.paced_batch / settings.paced_rate,
            "pause_s": PAUSE_S,
        }
        publisher = await process("publisher", "publish", ends[0], plan)
        said = await publisher.hear("publish")
        heard = [await client.hear("listen") for client in clients]
    finally:
        await asyncio.gather(*(worker.stop() for worker in workers))
    return _figures(settings, said, heard)


def _figures(settings: LiveSettings, said: dict[str, Any], heard: list[dict[str, Any]]) -> Chain:
    seconds = (max(one["fast_ended"] for one in heard) - said["began"]) / 1e9
    updates = settings.batch * min(one["fast_frames"] for one in heard)
    ages = np.concatenate([np.array(one["paced"]) for one in heard]) / 1e6
    return Chain(updates / seconds, *p50_and_p99(ages), float(ages.max()), float(np.median(said["singly_ms"])))


def measure_disk(folder: Path, count: int, size_bytes: int) -> float:
    """Milliseconds of a bare write and sync of so many bytes at the end of a file, the median."""
    times = []
    with (folder / "disk").open("ab", buffering=0) as file:
        for _ in range(count):
            started = perf_counter()
            write_and_sync(file.fileno(), size_bytes)
            times.append(1e3 * (perf_counter() - started))
    return float(np.median(times))


async def measure_unpruned(settings: LiveSettings) -> float:
    """Bytes an update that leave a server which prunes nothing, with all subscriptions below its root."""
    load = Workload(settings.rows, root=settings.seed)
    async with staged([], nodes=1, data=False, at_gateways=True, options=("--no-prune",)) as stage:
        client = stage.control
        await client.execute(CREATE)
        await client.publish("POINTS", load.rows.columns())
        ranges = load.ranges(settings.subscriptions)
        async with client.subscribe_many(RANGE_MIN, ranges.low, ranges.high):
            before = (await client.status())["children"]["delivered_bytes"]
            for some in load.changes(settings.unpruned_updates).batches(settings.batch):
                await client.publish("POINTS", some.columns())
            await client.sync()
            after = (await client.status())["children"]["delivered_bytes"]
    return float(after - before) / settings.unpruned_updates
