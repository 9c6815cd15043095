"""The live system's benchmark: real processes, and every figure beside a baseline of the same run."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from hullcast.clients.processes.worker import ask_all
from hullcast.sim.bench.engine import machine
from hullcast.sim.bench.live.baselines import ChainSizes, measure_chain, measure_disk, measure_unpruned
from hullcast.sim.bench.live.cluster import Cpu, LiveCluster, LiveSettings
from hullcast.sim.bench.live.report import (
    CostLine,
    Installed,
    Interval,
    Latency,
    LiveReport,
    Single,
    Sustained,
    live_goals,
)
from hullcast.sim.bench.timing import process_of
from hullcast.sim.traces.table51 import CREATE, RANGE_MIN, Workload

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats

    Tick = Callable[[str], None]

#: The same ranges as an interval channel: each update goes to every subscription whose range holds it.
RANGE_SUM = "SELECT SUM(Y) FROM POINTS WHERE X BETWEEN ? AND ?"


STEPS = 9


def run_live(settings: LiveSettings, tick: Tick = lambda what: None) -> LiveReport:
    """Measure everything; some minutes for the full settings."""
    process_of()  # or CPU time cannot be measured
    with tempfile.TemporaryDirectory(prefix="hullcast-bench-", ignore_cleanup_errors=True) as folder:
        return asyncio.run(_run(settings, Path(folder), tick))


async def _run(settings: LiveSettings, folder: Path, tick: Tick) -> LiveReport:
    here = machine()
    cluster = LiveCluster(settings, folder)
    try:
        tick("starting the cluster")
        await cluster.start()
        tick(f"installing {settings.subscriptions:,} subscriptions")
        installed = await _install(cluster)
        tick(f"latency at {settings.paced_rate:,} updates/s")
        latency = await _latency(cluster)
        tick("as fast as acknowledged")
        sustained = await _sustain(cluster)
        tick("one row at a time")
        single = await _singly(cluster)
        tick("cost by the number of subscriptions")
        costs = await _costs(cluster)
        tick("the same ranges as intervals")
        interval = await _intervals(cluster)
        traffic = await cluster.traffic()
    finally:
        await cluster.stop()
    tick("without pruning")
    unpruned = await measure_unpruned(settings, settings.subscriptions)
    tick("a bare ZeroMQ chain")
    line = costs[-1]
    root_share = traffic.root_bytes / traffic.server_bytes / settings.gateways
    sizes = ChainSizes(
        publish=16.0,
        server=line.server_bytes,
        root=line.server_bytes * root_share,
        gateway=line.client_bytes / settings.clients,
    )
    chain = await measure_chain(settings, sizes)
    figures = (installed, latency, sustained, costs, interval, single, unpruned, chain)
    return LiveReport(here, settings, *figures, live_goals(settings, installed, latency, sustained, costs, single))


async def _install(cluster: LiveCluster) -> Installed:
    started = perf_counter()
    replies = await cluster.subscribe(RANGE_MIN, cluster.settings.subscriptions, sync=False)
    seconds = perf_counter() - started
    return Installed(cluster.settings.subscriptions, seconds, max(reply["seconds"] for reply in replies))


async def _latency(cluster: LiveCluster) -> Latency:
    settings = cluster.settings
    rate, batch = settings.paced_rate, settings.paced_batch
    await cluster.publisher.ask("paced", rate=rate, batch=batch, updates=int(rate * settings.warm_s), path=None)
    await cluster.synced()
    await ask_all(cluster.clients, "sample", on=True)
    path = cluster.folder / "published.npz"
    updates = int(rate * settings.latency_s)
    said = await cluster.publisher.ask("paced", rate=rate, batch=batch, updates=updates, path=str(path))
    await cluster.synced()
    await ask_all(cluster.clients, "sample", on=False)
    published = np.load(path)
    ages = []
    for number, client in enumerate(cluster.clients):
        heard_path = cluster.folder / f"heard-{number}.npz"
        await client.ask("samples", path=str(heard_path))
        heard = np.load(heard_path)
        batches = np.searchsorted(published["last"], heard["seq"])
        ages.append((heard["time"] - published["sent"][batches]) / 1e6)
    p50, p90, p99 = np.quantile(np.concatenate(ages), (0.5, 0.9, 0.99)).tolist()
    return Latency(
        said["updates"] / (said["ended"] - said["began"]) * 1e9,
        batch,
        sum(map(len, ages)),
        p50,
        p90,
        p99,
        float(max(age.max() for age in ages)),
        said["receipt_p50_ms"],
        said["late_p99_ms"],
    )


async def _sustain(cluster: LiveCluster) -> Sustained:
    settings = cluster.settings
    how = {"batch": settings.batch, "in_flight": settings.in_flight}
    await cluster.publisher.ask("fast", seconds=settings.warm_s, **how)
    await cluster.synced()
    before = cluster.cpu()
    said = await cluster.publisher.ask("fast", seconds=settings.sustained_s, **how)
    _, finished = await cluster.synced()
    after = cluster.cpu()
    seconds = (finished - said["began"]) / 1e9
    checked, by_sql, wrong = await _check_answers(cluster)
    await cluster.told()  # raises if somebody lost a link
    return Sustained(
        said["updates"],
        seconds,
        said["updates"] / seconds,
        (finished - said["ended"]) / 1e9,
        checked,
        by_sql,
        wrong,
        {name: (after[name] - before[name]) / seconds for name in before},
        machine()["cores"],
    )


async def _check_answers(cluster: LiveCluster) -> tuple[int, int, int]:
    """Compare every answer with what the rows give now: all by NumPy, some by SQLite; how many, and how many wrong."""
    settings = cluster.settings
    rows = np.array([(row[0], row[1], row[2]) for row in await cluster.control.query("SELECT ID, X, Y FROM POINTS")])
    published = (await cluster.publisher.ask("published"))["updates"] + settings.rows
    seq, _ = await cluster.synced()
    if seq != published or len(rows) != settings.rows:
        return 0, 0, settings.subscriptions
    ranges = Workload(settings.rows, root=settings.seed).ranges(settings.subscriptions)
    answers = []
    for number, client in enumerate(cluster.clients):
        path = cluster.folder / f"answers-{number}.npy"
        await client.ask("answers", path=str(path))
        answers.append(np.load(path))
    answer: Floats = np.concatenate(answers)
    right = range_minima(rows[:, 1], rows[:, 2], ranges.low, ranges.high)
    wrong = ~((answer == right) | (np.isnan(answer) & np.isnan(right)))
    sample = np.linspace(0, settings.subscriptions - 1, settings.checked_by_sql).astype(np.int64)
    for i, value in zip(sample.tolist(), _by_sql(rows, ranges.low[sample], ranges.high[sample]), strict=True):
        wrong[i] |= not (answer[i] == value or (np.isnan(answer[i]) and value is None))
    return len(answer), len(sample), int(wrong.sum())


def _by_sql(rows: Floats, low: Floats, high: Floats) -> list[float | None]:
    """The answers as SQLite gives them."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(CREATE)
        database.executemany("INSERT INTO POINTS VALUES (?, ?, ?)", rows.tolist())
        return [
            database.execute(RANGE_MIN, between).fetchone()[0]
            for between in zip(low.tolist(), high.tolist(), strict=True)
        ]


def range_minima(x: Floats, y: Floats, low: Floats, high: Floats) -> Floats:
    """The least y of the rows with low <= x <= high, NaN where there are none: a table of minima of 2**k neighbours."""
    order = np.argsort(x)
    levels = [y[order]]
    while len(levels[-1]) > (step := 1 << (len(levels) - 1)):
        levels.append(np.minimum(levels[-1][:-step], levels[-1][step:]))
    first, stop = np.searchsorted(x[order], low, "left"), np.searchsorted(x[order], high, "right")
    found = np.full(len(low), np.nan)
    length = stop - first
    for k, minima in enumerate(levels):
        mine = (length >= 1 << k) & (length < 2 << k)
        found[mine] = np.minimum(minima[first[mine]], minima[stop[mine] - (1 << k)])
    return found


async def _singly(cluster: LiveCluster) -> Single:
    settings = cluster.settings
    times = (await cluster.publisher.ask("singly", count=settings.singles))["ms"]
    disk = await asyncio.to_thread(measure_disk, cluster.folder, settings.singles, 128)
    p50, p99 = np.quantile(times, (0.5, 0.99)).tolist()
    return Single(settings.singles, p50, p99, disk)


async def _costs(cluster: LiveCluster) -> tuple[CostLine, ...]:
    """All sizes in turns, so that a busy moment of the machine falls on all of them alike."""
    settings = cluster.settings
    rounds: dict[int, list[CostLine]] = {size: [] for size in settings.sizes}
    for _ in range(settings.size_rounds):
        for size in settings.sizes:
            await cluster.unsubscribe()
            await cluster.subscribe(RANGE_MIN, size)
            rounds[size].append(await _cost(cluster, size))
    return tuple(
        CostLine(size, *(median(values) for values in zip(*(_numbers(line) for line in lines), strict=True)))
        for size, lines in rounds.items()
    )


def _numbers(line: CostLine) -> list[float]:
    return list(asdict(line).values())[1:]


async def _cost(cluster: LiveCluster, size: int) -> CostLine:
    """Large batches: of small ones a system that lags merges more, and its updates then look cheaper."""
    settings = cluster.settings
    rate, batch = settings.paced_rate, settings.batch
    traffic, told = await cluster.traffic(), await cluster.told()
    how = {"rate": rate, "batch": batch, "path": None}
    warm = (await cluster.publisher.ask("paced", updates=int(rate * settings.warm_s / 2), **how))["updates"]
    await cluster.synced()
    cpu = cluster.cpu()
    n = (await cluster.publisher.ask("paced", updates=int(rate * settings.size_s), **how))["updates"]
    await cluster.synced()
    used = Cpu.between(cpu, cluster.cpu())
    sent, heard = (await cluster.traffic()).since(traffic), (await cluster.told())["told"] - told["told"]
    counted = warm + n
    return CostLine(
        size,
        1e6 * used.server / n,
        1e6 * used.nodes / n,
        1e6 * used.clients / n,
        sent.server_messages / counted,
        sent.server_bytes / counted,
        sent.client_messages / counted,
        sent.client_bytes / counted,
        heard / counted,
    )


async def _intervals(cluster: LiveCluster) -> Interval:
    settings = cluster.settings
    await cluster.unsubscribe()
    await cluster.subscribe(RANGE_SUM, settings.subscriptions)
    how = {"rate": settings.paced_rate // 10, "batch": settings.paced_batch, "path": None}
    await cluster.publisher.ask("paced", updates=settings.paced_batch, **how)
    traffic, told, cpu = await cluster.traffic(), await cluster.told(), cluster.cpu()
    n = (await cluster.publisher.ask("paced", updates=settings.interval_updates, **how))["updates"]
    await cluster.synced()
    used = Cpu.between(cpu, cluster.cpu())
    sent = (await cluster.traffic()).since(traffic)
    pairs = (await cluster.told())["told"] - told["told"]
    return Interval(n, pairs / n, sent.client_messages / n, sent.client_bytes / n, 1e6 * used.clients / n)
