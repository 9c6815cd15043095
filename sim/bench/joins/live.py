"""Standing joins over a cluster: with the server's knowledge of ranges, and with all pairs described.

Both run one after the other: the same rows, the same merchants in four client processes, the same changes. "Probe" is
a server that knows no ranges (probe.py): it describes every pair that joins, and passes on what the covers of its
children let through.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hullcast.clients.processes.cluster import SERVER, Cluster, Layout
from hullcast.clients.processes.worker import Worker, WorkerFailed, ask_all
from hullcast.clients.sdk.client import Client, connect
from hullcast.sim.bench.timing import process_of
from hullcast.sim.traces.merchants import CREATES, JOIN, TABLES, Merchants, answers

WORKERS = "hullcast.sim.bench.joins.workers"
SETTLE_S, LOOK_S = 30.0, 0.05
SERVERS = {"ranges": "hullcast", "probe": "hullcast.sim.bench.joins.probe"}


@dataclass(frozen=True, slots=True)
class LiveJoinSettings:
    """Sizes."""

    rows: int = 100_000  # of each table
    meeting: int = 1_000
    merchants: int = 100_000
    width: float = 1.0  # of ranges, of 10,000: a pair is wanted by 1 in 100 merchants' worth of area
    clients: int = 4
    gateways: int = 2
    batch: int = 100
    in_flight: int = 2
    warm: int = 10  # batches before anything is counted
    batches: int = 400
    probe_batches: int = 20  # all pairs are described then: fewer will do
    checked_by_sql: int = 100
    seed: int = 0

    @property
    def load(self) -> Merchants:
        """The workload."""
        return Merchants(self.rows, self.meeting, self.merchants, self.width, self.seed)


FULL_LIVE_JOINS = LiveJoinSettings()
QUICK_LIVE_JOINS = LiveJoinSettings(rows=20_000, merchants=20_000, width=2.0, batches=60, probe_batches=8, meeting=500)


@dataclass(frozen=True, slots=True)
class LiveJoinLine:
    """One way, per change."""

    way: str
    changes: int
    install_s: float
    changes_s: float
    server_us: float  # of CPU
    nodes_us: float
    clients_us: float
    server_messages: float
    server_bytes: float
    client_bytes: float
    told: float  # new answers taken, over all merchants
    pairs: int  # in all answers, in the end
    checked: int
    checked_by_sql: int
    wrong: int


@dataclass(frozen=True, slots=True)
class LiveJoinSection:
    """Both ways."""

    settings: LiveJoinSettings
    ranges: LiveJoinLine
    probe: LiveJoinLine


LIVE_STEPS = 2


def live(settings: LiveJoinSettings, tick: Callable[[str], None]) -> LiveJoinSection:
    """Measure both ways."""
    lines = []
    for way, batches in (("ranges", settings.batches), ("probe", settings.probe_batches)):
        tick(f"live, {way}")
        with tempfile.TemporaryDirectory(prefix="hullcast-bench-", ignore_cleanup_errors=True) as folder:
            lines.append(asyncio.run(_run(settings, way, batches, Path(folder))))
    ranges, probe = lines
    return LiveJoinSection(settings, ranges, probe)


async def _run(settings: LiveJoinSettings, way: str, batches: int, folder: Path) -> LiveJoinLine:
    cluster = Cluster(Layout(nodes=1 + settings.gateways, data=str(folder / "data"), server_module=SERVERS[way]))
    workers: list[Worker] = []
    try:
        await cluster.start()
        for number in range(settings.clients + 1):
            workers.append(await Worker.start(f"client-{number}", WORKERS))
        ends = [gateway.endpoint for gateway in cluster.gateways]
        for number, worker in enumerate(workers):
            await worker.ask("open", url=ends[number % len(ends)], name=worker.name)
        async with connect(ends[0], name="bench", timeout=110.0) as control:
            return await _measure(settings, way, batches, folder, cluster, workers, control)
    finally:
        await asyncio.gather(*(worker.stop() for worker in workers))
        await cluster.stop()


async def _measure(
    settings: LiveJoinSettings,
    way: str,
    batches: int,
    folder: Path,
    cluster: Cluster,
    workers: list[Worker],
    control: Client,
) -> LiveJoinLine:
    publisher, *clients = workers
    load = asdict(settings.load)
    for create in CREATES:
        await control.execute(create)
    for table in TABLES:
        await control.publish(table, settings.load.table(table))
    await publisher.ask("prepare", load=load, changes=(settings.warm + batches) * settings.batch, batch=settings.batch)
    installed = await asyncio.gather(
        *(client.ask("subscribe", load=load, part=part, parts=len(clients)) for part, client in enumerate(clients))
    )
    await publisher.ask("publish", first=0, count=settings.warm, in_flight=settings.in_flight)
    traffic, before = await _traffic(settings, control, clients), _cpu(cluster, clients)
    start = await ask_all(clients, "sync")
    said = await publisher.ask("publish", first=settings.warm, count=batches, in_flight=settings.in_flight)
    replies = await ask_all(clients, "sync")
    after = _cpu(cluster, clients)
    if [reply["resumes"] for reply in replies] != [reply["resumes"] for reply in start]:
        raise WorkerFailed("a client lost its link while it was measured, and had to subscribe again")
    n = said["updates"]
    sent = (await _traffic(settings, control, clients)) - traffic
    pairs, checked, by_sql, wrong = await _check(settings, folder, clients, control)
    server_us, nodes_us, clients_us = (1e6 * (now - then) / n for then, now in zip(before, after, strict=True))
    messages, server_bytes, client_bytes = (sent / n).tolist()
    return LiveJoinLine(
        way,
        n,
        max(reply["seconds"] for reply in installed),
        1e9 * n / (max(reply["now"] for reply in replies) - said["began"]),
        server_us,
        nodes_us,
        clients_us,
        messages,
        server_bytes,
        client_bytes,
        sum(after["taken"] - before["taken"] for before, after in zip(start, replies, strict=True)) / n,
        pairs,
        checked,
        by_sql,
        wrong,
    )


def _cpu(cluster: Cluster, clients: list[Worker]) -> tuple[float, float, float]:
    """Seconds of CPU so far: the server, all nodes, all subscribing clients."""

    def used(pid: int) -> float:
        return float(sum(process_of(pid).cpu_times()[:2]))

    nodes = sum(used(child.pid) for name, child in cluster.children.items() if name != SERVER)
    return used(cluster.server.pid), nodes, sum(used(client.pid) for client in clients)


async def _traffic(settings: LiveJoinSettings, control: Client, clients: list[Worker]) -> np.ndarray[Any, Any]:
    """Messages and bytes that left the server so far, and bytes that reached clients; once all nodes have reported."""
    seq = min(reply["seq"] for reply in await ask_all(clients, "sync"))
    async with asyncio.timeout(SETTLE_S):
        status = await control.status()
        while not (
            len(status["nodes"]) == 1 + settings.gateways and all(node["through"] >= seq for node in status["nodes"])
        ):
            await asyncio.sleep(LOOK_S)
            status = await control.status()
    children = status["children"]
    below = sum(node["delivered_bytes"] for node in status["nodes"] if not node["nodes"])
    return np.array([children["delivered_messages"], children["delivered_bytes"], below], np.float64)


async def _check(
    settings: LiveJoinSettings, folder: Path, clients: list[Worker], control: Client
) -> tuple[int, int, int, int]:
    """(pairs, answers compared, those by SQLite too, wrong ones): every answer with what the rows give now."""
    tables: dict[str, dict[str, Any]] = {}
    for table in TABLES:
        rows = await control.query(f"SELECT ID, PRODUCT, QUANTITY FROM {table}")
        ids, products, quantities = zip(*rows, strict=True)
        tables[table] = {"ID": np.array(ids), "PRODUCT": np.array(products), "QUANTITY": np.array(quantities)}
    total = checked = by_sql = wrong = 0
    with closing(_sqlite(tables)) as database:
        for part, client in enumerate(clients):
            path = folder / f"answers-{part}.npz"
            await client.ask("answers", path=str(path))
            ranges = settings.load.ranges(part, len(clients))
            with np.load(path) as held:
                ends = [0, *np.cumsum(held["counts"]).tolist()]
                pairs = [tuple(pair) for pair in held["pairs"].tolist()]
            mine = [pairs[start:end] for start, end in pairwise(ends)]
            right = answers(tables, ranges)
            bad = {i for i, (ours, theirs) in enumerate(zip(mine, right, strict=True)) if ours != theirs}
            for i in np.linspace(0, len(mine) - 1, settings.checked_by_sql // len(clients)).astype(int).tolist():
                asked = tuple(float(column[i]) for column in ranges)
                bad |= {i} if sorted(database.execute(JOIN, asked).fetchall()) != mine[i] else set()
                by_sql += 1
            total, checked, wrong = total + len(pairs), checked + len(mine), wrong + len(bad)
    return total, checked, by_sql, wrong


def _sqlite(tables: dict[str, dict[str, Any]]) -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    for create, (table, columns) in zip(CREATES, tables.items(), strict=True):
        database.execute(create)
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        database.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
        database.execute(f"CREATE INDEX {table}_Q ON {table} (QUANTITY)")
    return database
