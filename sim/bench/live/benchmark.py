"""`hullcast bench live`: a cluster of real processes under load, every figure beside a baseline of the same run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import cpu_count
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.processes.worker import ask_all
from hullcast.sim.bench.frame.answers import different, minima_by_sql, range_minima
from hullcast.sim.bench.frame.benchmark import Benchmark, BenchSection, Shown, Tick
from hullcast.sim.bench.frame.machine import cpu_by_name
from hullcast.sim.bench.frame.stage import PUBLISHER, BenchStage, ages_ms, collected, staged
from hullcast.sim.bench.frame.timing import medians, p50_and_p99
from hullcast.sim.bench.live.baselines import Chain, ChainSizes, measure_chain, measure_disk, measure_unpruned
from hullcast.sim.output.goals import Goal
from hullcast.sim.output.text import number, plain_table, short, times
from hullcast.sim.traces.table51 import CREATE, RANGE_MIN, Workload

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from hullcast.network.wire.arrays import Floats

WORKERS = "hullcast.sim.bench.live.worker"
#: The same ranges as an interval channel: each update goes to every subscription whose range holds it.
RANGE_SUM = "SELECT SUM(Y) FROM POINTS WHERE X BETWEEN ? AND ?"
#: Goals.
UPDATES_S = 100_000.0
P99_MS = 20.0
GROWTH = 1.3
INSTALL_S = 10.0
SINGLE_MS = 5.0


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
class Latency:
    """From the call of `publish` to the yield of `changes()`, each update once per client that receives it."""

    rate: float  # updates/s, as they went
    batch: int
    samples: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    receipt_p50_ms: float  # to the publisher's receipt
    late_p99_ms: float  # how late the publisher itself was


@dataclass(frozen=True, slots=True)
class Sustained:
    """As fast as acknowledged; the clock stops when the last client has heard everything."""

    updates: int
    seconds: float
    updates_s: float
    drain_s: float  # of these, after the last receipt
    checked: int  # answers compared, all of them
    wrong: int
    busy: Mapping[str, float]  # process to its share of one core
    cores: int


@dataclass(frozen=True, slots=True)
class CostLine:
    """One update, by the number of subscriptions, paced; medians of the rounds. Microseconds of CPU, and counts."""

    subscriptions: int
    server_us: float
    nodes_us: float
    clients_us: float
    server_messages: float
    server_bytes: float
    client_messages: float
    client_bytes: float
    told: float  # pairs of an update and a subscription whose answer it changes: what unicast would send


@dataclass(frozen=True, slots=True)
class Single:
    """Publishes of one row, one after the other, each durable; and the least that could take."""

    count: int
    p50_ms: float
    p99_ms: float
    disk_p50_ms: float


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """Everything that was measured."""

    settings: LiveSettings
    installed_s: float  # until all subscriptions were there
    latency: Latency
    sustained: Sustained
    costs: tuple[CostLine, ...]
    interval: CostLine  # the CN way: the same ranges as SUM, whose messages are the updates
    single: Single
    unpruned_bytes: float  # an update, from a server that prunes nothing
    chain: Chain


# --- measuring -----------------------------------------------------------------------------------------------------


def live_stage(settings: LiveSettings) -> AbstractAsyncContextManager[BenchStage]:
    """A server, a root, gateways, subscribing clients at the gateways in turns, and a publisher."""
    names = [f"client-{number + 1}" for number in range(settings.clients)]
    return staged([*names, PUBLISHER], WORKERS, nodes=1 + settings.gateways, at_gateways=True)


async def load_rows(stage: BenchStage, settings: LiveSettings) -> None:
    """Make the table with its rows, and have updates drawn."""
    await stage.control.execute(CREATE)
    rows = Workload(settings.rows, root=settings.seed).rows
    await stage.control.publish("POINTS", rows.columns())
    await stage.workers[PUBLISHER].ask("prepare", seed=settings.seed, rows=settings.rows, count=settings.prepared)


async def subscribed(stage: BenchStage, settings: LiveSettings, sql: str, total: int, *, sync: bool = True) -> Any:
    """Have all clients subscribe at once, each to its part of the ranges."""
    how = {"sql": sql, "total": total, "sync": sync, "seed": settings.seed, "rows": settings.rows}
    return await stage.ask_subscribers("subscribe", **how)


async def measure_live(settings: LiveSettings, tick: Tick) -> LiveFigures:
    """Measure everything; some minutes for the full settings."""
    tick("starting the cluster")
    async with live_stage(settings) as stage:
        await load_rows(stage, settings)
        tick(f"installing {settings.subscriptions:,} subscriptions")
        installed_s = await _install(stage, settings)
        tick(f"latency at {settings.paced_rate:,} updates/s")
        latency = await _latency(stage, settings)
        tick("as fast as acknowledged")
        sustained = await _sustain(stage, settings)
        tick("one row at a time")
        single = await _singly(stage, settings)
        tick("cost by the number of subscriptions")
        costs = await _costs(stage, settings)
        tick("the same ranges as intervals")
        interval = await _intervals(stage, settings)
        traffic = await stage.traffic()
    tick("without pruning")
    unpruned = await measure_unpruned(settings)
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
    return LiveFigures(settings, installed_s, latency, sustained, costs, interval, single, unpruned, chain)


async def _install(stage: BenchStage, settings: LiveSettings) -> float:
    """All clients subscribe at once, to a channel that is not there yet: seconds until the last has its answers."""
    started = perf_counter()
    await subscribed(stage, settings, RANGE_MIN, settings.subscriptions, sync=False)
    return perf_counter() - started


async def _latency(stage: BenchStage, settings: LiveSettings) -> Latency:
    rate, batch, path = settings.paced_rate, settings.paced_batch, stage.folder / "published.npz"
    publisher = stage.workers[PUBLISHER]
    await publisher.ask("paced", rate=rate, batch=batch, updates=int(rate * settings.warm_s))
    await stage.synced()
    await ask_all(stage.subscribers, "sample")
    said = await publisher.ask("paced", rate=rate, batch=batch, updates=int(rate * settings.latency_s), path=str(path))
    await stage.synced()
    ages = await ages_ms(path, stage.subscribers, stage.folder)
    achieved = said["updates"] / (said["ended"] - said["began"]) * 1e9
    quantiles = (*p50_and_p99(ages), float(ages.max()))
    return Latency(achieved, batch, len(ages), *quantiles, said["receipt_p50_ms"], said["late_p99_ms"])


async def _sustain(stage: BenchStage, settings: LiveSettings) -> Sustained:
    how = {"batch": settings.batch, "in_flight": settings.in_flight}
    await stage.workers[PUBLISHER].ask("fast", seconds=settings.warm_s, **how)
    await stage.synced()
    before = cpu_by_name(stage.pids)
    said = await stage.workers[PUBLISHER].ask("fast", seconds=settings.sustained_s, **how)
    _, finished = await stage.synced()
    after = cpu_by_name(stage.pids)
    seconds = (finished - said["began"]) / 1e9
    checked, wrong = await _check_answers(stage, settings)
    await stage.heard()  # raises if somebody lost a link
    return Sustained(
        said["updates"],
        seconds,
        said["updates"] / seconds,
        (finished - said["ended"]) / 1e9,
        checked,
        wrong,
        {name: (after[name] - before[name]) / seconds for name in before},
        cpu_count() or 1,
    )


async def _check_answers(stage: BenchStage, settings: LiveSettings) -> tuple[int, int]:
    """Compare every answer with what the rows give now: all by NumPy, some by SQLite; how many, and how many wrong."""
    rows = np.array([(row[0], row[1], row[2]) for row in await stage.control.query("SELECT ID, X, Y FROM POINTS")])
    published = (await stage.workers[PUBLISHER].ask("published"))["updates"] + settings.rows
    seq, _ = await stage.synced()
    if seq != published or len(rows) != settings.rows:
        return 0, settings.subscriptions
    ranges = Workload(settings.rows, root=settings.seed).ranges(settings.subscriptions)
    held = await collected(stage.subscribers, "answers", stage.folder)
    answer: Floats = np.concatenate([one["answers"] for one in held])
    wrong = different(answer, range_minima(rows[:, 1], rows[:, 2], ranges.low, ranges.high))
    sample = np.linspace(0, settings.subscriptions - 1, settings.checked_by_sql).astype(np.int64)
    by_sql = minima_by_sql([CREATE], rows.tolist(), RANGE_MIN, ranges.low[sample], ranges.high[sample])
    wrong[sample] |= different(answer[sample], by_sql)
    return len(answer), int(wrong.sum())


async def _singly(stage: BenchStage, settings: LiveSettings) -> Single:
    times = (await stage.workers[PUBLISHER].ask("singly", count=settings.singles))["ms"]
    disk = await asyncio.to_thread(measure_disk, stage.folder, settings.singles, 128)
    return Single(settings.singles, *p50_and_p99(times), disk)


async def _costs(stage: BenchStage, settings: LiveSettings) -> tuple[CostLine, ...]:
    """All sizes in turns, so that a busy moment of the machine falls on all of them alike. Large batches: of small ones
    a system that lags merges more, and its updates then look cheaper."""
    rounds: dict[int, list[CostLine]] = {size: [] for size in settings.sizes}
    rate = settings.paced_rate
    load = {"rate": rate, "batch": settings.batch}
    for _ in range(settings.size_rounds):
        for size in settings.sizes:
            await _subscribed_anew(stage, settings, RANGE_MIN, size)
            line = await _cost(stage, size, int(rate * settings.warm_s / 2), int(rate * settings.size_s), load)
            rounds[size].append(line)
    return tuple(map(medians, rounds.values()))


async def _subscribed_anew(stage: BenchStage, settings: LiveSettings, sql: str, total: int) -> None:
    """Have all leave, and subscribe when the server sends nothing for them any more."""
    await ask_all(stage.subscribers, "unsubscribe")
    await stage.status_when(lambda status: not status["children"]["channels"])
    await subscribed(stage, settings, sql, total)


async def _cost(stage: BenchStage, size: int, warm: int, updates: int, load: dict[str, int]) -> CostLine:
    publisher, traffic, told = stage.workers[PUBLISHER], await stage.traffic(), await stage.heard()
    counted = (await publisher.ask("paced", updates=warm, **load))["updates"]
    await stage.synced()
    cpu = stage.cpu_by_kind()
    n = (await publisher.ask("paced", updates=updates, **load))["updates"]
    await stage.synced()
    used = {name: 1e6 * (after - cpu[name]) / n for name, after in stage.cpu_by_kind().items()}
    sent, heard = (await stage.traffic()).since(traffic), (await stage.heard())["told"] - told["told"]
    counted += n
    return CostLine(
        size,
        used["server"],
        used["nodes"],
        used["clients"],
        sent.server_messages / counted,
        sent.server_bytes / counted,
        sent.client_messages / counted,
        sent.client_bytes / counted,
        heard / counted,
    )


async def _intervals(stage: BenchStage, settings: LiveSettings) -> CostLine:
    await _subscribed_anew(stage, settings, RANGE_SUM, settings.subscriptions)
    load = {"rate": settings.paced_rate // 10, "batch": settings.paced_batch}
    return await _cost(stage, settings.subscriptions, settings.paced_batch, settings.interval_updates, load)


# --- goals and tables ----------------------------------------------------------------------------------------------


def live_goals(found: LiveFigures) -> Iterator[Goal]:
    """All aims."""
    latency, sustained, costs = found.latency, found.sustained, found.costs
    all_right = sustained.checked == found.settings.subscriptions and not sustained.wrong
    right = f"all {short(sustained.checked)}" if all_right else f"{sustained.wrong:,} wrong"
    first, last = costs[0], costs[-1]
    span = f"{short(first.subscriptions)} to {short(last.subscriptions)} subs"
    # The system counts processor time in hundredths of a second: a short round may have none.
    server = times(last.server_us, first.server_us)
    growth = times(last.server_us + last.nodes_us, first.server_us + first.nodes_us)

    def below(aim: str, limit: float, value: float, unit: str) -> Goal:
        return Goal(aim, f"< {limit:.0f} {unit}", f"{value:.1f} {unit}", limit / value)

    rate = sustained.updates_s
    yield Goal("updates/s, sustained", f">= {short(UPDATES_S)}", short(rate), rate / UPDATES_S)
    yield Goal.fact("every answer right", "all", right, all_right)
    yield below(f"publish to event, p99, {short(latency.rate)}/s", P99_MS, latency.p99_ms, "ms")
    yield Goal(f"CPU, server, {span}", f"<= {GROWTH}x", f"{server:.2f}x", times(GROWTH, server))
    yield Goal(f"CPU, server and nodes, {span}", f"<= {GROWTH}x", f"{growth:.2f}x", times(GROWTH, growth))
    yield below(f"{short(found.settings.subscriptions)} subs with snapshots", INSTALL_S, found.installed_s, "s")
    yield below("durable publish of one row, p50", SINGLE_MS, found.single.p50_ms, "ms")


def _tables_of_speed(found: LiveFigures) -> Iterator[Shown]:
    sustained, latency, single, chain = found.sustained, found.latency, found.single, found.chain
    table = plain_table("beside a bare ZeroMQ chain of the same hops and frames", "", "live", "chain", "live/chain")
    rows = (
        ("updates/s, as fast as acknowledged", sustained.updates_s, chain.updates_s),
        ("publish to event, p50 ms", latency.p50_ms, chain.p50_ms),
        ("publish to event, p99 ms", latency.p99_ms, chain.p99_ms),
        ("publish to event, max ms", latency.max_ms, chain.max_ms),
        ("receipt of one row, p50 ms", single.p50_ms, chain.single_p50_ms),
    )
    for name, ours, bare in rows:
        table.add_row(name, number(ours), number(bare), f"{ours / bare:.2f}x")
    yield table
    yield (
        f"As fast as acknowledged: {sustained.updates:,} updates in batches of {found.settings.batch:,}, "
        f"{found.settings.in_flight} on the way, {sustained.seconds:.1f} s until the last client had heard all "
        f"({sustained.drain_s:.2f} s of it after the last receipt). Answers compared afterwards: {sustained.checked:,} "
        f"with NumPy, {found.settings.checked_by_sql} of them with SQLite too; wrong: {sustained.wrong}. "
        f"Events: {latency.samples:,} samples at {latency.rate:,.0f} updates/s in batches of {latency.batch}, each "
        "update once per client that receives it, from the call of publish to the yield of changes(); the publisher "
        f"itself was up to {latency.late_p99_ms:.1f} ms late (p99), its receipts took {latency.receipt_p50_ms:.1f} ms "
        f"(p50). One row, durable: p99 {single.p99_ms:.1f} ms; a bare write and sync here {single.disk_p50_ms:.2f} ms "
        f"(p50). Installing {found.settings.subscriptions:,} subscriptions took {found.installed_s:.2f} s."
    )


def _tables_of_limit(found: LiveFigures) -> Iterator[Shown]:
    sustained = found.sustained
    table = plain_table("where the limit is: CPU while as fast as acknowledged", "process", "of a core")
    for name, share in sorted(sustained.busy.items(), key=lambda item: -item[1]):
        table.add_row(name, f"{share:.0%}")
    total = sum(sustained.busy.values())
    table.add_row("all", f"{total:.0%} of {sustained.cores}00%")
    yield table
    cost_us = 1e6 * total / sustained.updates_s
    yield (
        f"{cost_us:.1f} us of CPU an update in all processes together: at that, {sustained.cores} cores that do "
        f"nothing else would carry {1e6 * sustained.cores / cost_us:,.0f} updates/s. The rest of "
        f"{sustained.cores}00% was used by other processes or idle: each process also waits for those before it."
    )


def _tables_of_costs(found: LiveFigures) -> Iterator[Shown]:
    title = f"an update, at {found.settings.paced_rate:,} updates/s in batches of {found.settings.batch:,}"
    cpu, sent = (
        ("CPU us:\nserver", "\nnodes", "\nclients"),
        ("server:\nmsgs", "\nbytes", "to clients:\nmsgs", "\nbytes"),
    )
    table = plain_table(title, "\nsubs", *cpu, *sent, "\nunicast")
    for line in found.costs:
        used = map(number, (line.server_us, line.nodes_us, line.clients_us))
        server = (f"{line.server_messages:.2f}", number(line.server_bytes))
        clients = (f"{line.client_messages:.2f}", number(line.client_bytes))
        table.add_row(f"{line.subscriptions:,}", *used, *server, *clients, number(line.told))
    yield table
    most = found.costs[-1]
    yield (
        f"Without pruning {found.unpruned_bytes:,.0f} bytes leave the server for an update, with it "
        f"{most.server_bytes / found.unpruned_bytes:.0%} of them at {most.subscriptions:,} subscriptions and "
        f"{found.costs[0].server_bytes / found.unpruned_bytes:.0%} at {found.costs[0].subscriptions:,}. Unicast: "
        "pairs of an update and a subscription whose answer it changes."
    )


def _tables_of_ways(found: LiveFigures) -> Iterator[Shown]:
    ours, theirs = found.costs[-1], found.interval
    title = f"the CN way: each update to every subscription whose range holds it ({ours.subscriptions:,} subscriptions)"
    table = plain_table(title, "an update", "MIN, ours", "SUM, as CN", "CN/ours")
    rows = (
        ("subscriptions notified", ours.told, theirs.told),
        ("messages to client processes", ours.client_messages, theirs.client_messages),
        ("bytes to client processes", ours.client_bytes, theirs.client_bytes),
        ("clients' CPU us", ours.clients_us, theirs.clients_us),
    )
    for name, our, cn in rows:
        table.add_row(name, number(our), number(cn), f"{cn / our:.1f}x" if our else "")
    yield table


def live_tables(found: LiveFigures) -> Iterator[Shown]:
    """All of it."""
    for tables in (_tables_of_speed, _tables_of_limit, _tables_of_costs, _tables_of_ways):
        yield from tables(found)


def _head(settings: LiveSettings) -> str:
    return (
        f"One server with a synced log, one root, {settings.gateways} gateways, {settings.clients} clients, one "
        f"publisher: a process each; {settings.rows:,} rows, Table 5.1's ranges and updates."
    )


LIVE = Benchmark(
    name="live",
    about="throughput, latency and cost of a cluster of processes",
    description="Starts a server, a root, two gateways, four clients with 25,000 MIN subscriptions each and a "
    "publisher, and measures updates/s with every answer checked, latency, CPU by the number of subscriptions, "
    "installation and durable publishes; beside a bare ZeroMQ chain, the same ranges as intervals, and a server that "
    "does not prune.",
    full=FULL_LIVE,
    quick=QUICK_LIVE,
    quick_about="shorter phases: about half a minute",
    head=_head,
    sections=(
        BenchSection(
            "live", "a cluster, beside its baselines", measure_live, live_tables, live_goals, steps=lambda settings: 9
        ),
    ),
)
