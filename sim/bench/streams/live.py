"""Live sections of `bench streams`: many filters over one stream, and a join of two streams.

Real processes on this machine: servers on disk, nodes, and clients. What is compared takes turns in one run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import median
from time import monotonic
from typing import Any

import numpy as np

from hullcast.clients.processes.worker import Worker, ask_all
from hullcast.sim.bench.frame.benchmark import Tick, quietly
from hullcast.sim.bench.frame.push import (
    CREATE_PUSHES,
    PUSH_CLIENTS,
    PushLoad,
    PushSection,
    push_beside,
)
from hullcast.sim.bench.frame.stage import PUBLISHER, BenchStage, staged
from hullcast.sim.bench.frame.timing import MeasurementFailed, Spread, medians, p50_and_p99, spread, turns
from hullcast.sim.bench.frame.worker import part_of
from hullcast.sim.bench.streams.engine import plain_join
from hullcast.sim.bench.streams.feeding import FedStream
from hullcast.sim.bench.streams.workload import (
    CREATE_JOINED,
    CREATE_TICKS,
    QUOTES,
    TABLE,
    TICKS,
    TRADES,
    create_hot,
    filter_ranges,
    hits,
    joined_keys,
    ticks,
)

CLIENTS = "hullcast.sim.bench.streams.worker"
#: How long is waited for what does not come, and how long nothing must have come to be all.
WAIT_S, QUIET_S = 60.0, 0.5


@dataclass(frozen=True, slots=True)
class LiveStreamSettings:
    """Sizes of the live sections."""

    filters: int = 10_000
    filter_clients: int = 4
    gateways: int = 2
    prepared: int = 200_000  # ticks that are drawn; then they come again
    batch: int = 1_000  # tuples of a publish
    in_flight: int = 8
    filter_s: float = 4.0
    filter_rounds: int = 3
    window: int = 5_000  # rows of each window of the join; as many keys
    join_s: float = 5.0
    join_rounds: int = 3
    latency_s: float = 8.0
    push_rate: float = 100.0
    push_s: float = 3.0
    push_rounds: int = 5
    seed: int = 0


# -- many filters ------------------------------------------------------------------------------------------

#: Ways: what is published to, and in how many filters a tuple is on average.
FILTER_WAYS = ((TICKS, 1.0), (TICKS, 0.1), (TABLE, 1.0), (TABLE, 0.1))


@dataclass(frozen=True, slots=True)
class FilterLine:
    """One way, over all rounds."""

    source: str
    wanted_by: float  # filters that want a tuple, on average
    tuples_s: float  # from the first publish until the last client had the last tuple, median
    acknowledged_s: float  # until the last receipt
    events: int
    wrong: int  # events that are too many or missing, of a stream
    missed: int  # Resyncs
    install_s: float
    cores: dict[str, float]  # by kind of process
    by_table: Spread | None  # tuples/s of the stream / of the table, round by round


@dataclass(frozen=True, slots=True)
class FilterSection:
    """All ways."""

    filters: int
    clients: int
    gateways: int
    lines: tuple[FilterLine, ...]


async def filters(settings: LiveStreamSettings, tick: Tick) -> FilterSection:
    """Publish as fast as acknowledged, to a stream and to a table with the same filters, in turns."""
    names = [f"client-{number + 1}" for number in range(settings.filter_clients)]
    found: dict[tuple[str, float], list[FilterLine]] = {way: [] for way in FILTER_WAYS}
    async with staged([PUBLISHER, *names], CLIENTS, nodes=1 + settings.gateways, at_gateways=True) as stage:
        tick("filters, starting")
        for create in CREATE_TICKS:
            await stage.control.execute(create)
        await stage.workers[PUBLISHER].ask("prepare", size=settings.prepared, seed=settings.seed)
        for _ in turns(settings.filter_rounds, quietly, ""):
            for way in FILTER_WAYS:
                tick(f"filters, {way[0]}, {way[1]:g} filters a tuple, turn {len(found[way]) + 1}")
                found[way].append(await _filtered(stage, settings, *way))
    for of in found.values():
        del of[0]  # the first round only warms up
    lines = [_filter_line(of, found[TABLE, way[1]] if way[0] == TICKS else []) for way, of in found.items()]
    return FilterSection(settings.filters, settings.filter_clients, settings.gateways, tuple(lines))


async def _filtered(stage: BenchStage, settings: LiveStreamSettings, source: str, wanted_by: float) -> FilterLine:
    seed, total, clients = settings.seed, settings.filters, stage.subscribers
    installed = await stage.ask_subscribers("filters", source=source, total=total, wanted_by=wanted_by, seed=seed)
    cpu, began = stage.cpu_by_kind(), monotonic()
    load = {"seconds": settings.filter_s, "batch": settings.batch, "in_flight": settings.in_flight}
    said = await stage.workers[PUBLISHER].ask("tick", source=source, **load)
    low, high = filter_ranges(total, wanted_by, seed)
    cuts = [part_of(total, part, len(clients)) for part in range(len(clients))]
    wanted = [_wanted(said["updates"], settings, low[cut], high[cut]) if source == TICKS else 0 for cut in cuts]
    heard = await asyncio.gather(
        *(one.ask("filtered", events=events, patience_s=WAIT_S) for one, events in zip(clients, wanted, strict=True))
    )
    seconds = monotonic() - began
    cores = {name: (after - cpu[name]) / seconds for name, after in stage.cpu_by_kind().items()}
    await ask_all(clients, "unsubscribe")
    last_ns = max(said["ended"], *(one["last_ns"] for one in heard))
    events = [one["events"] for one in heard]
    wrong = sum(abs(a - b) for a, b in zip(events, wanted, strict=True)) if source == TICKS else 0
    return FilterLine(
        source,
        wanted_by,
        1e9 * said["updates"] / (last_ns - said["began"]),
        1e9 * said["updates"] / (said["ended"] - said["began"]),
        sum(events),
        wrong,
        sum(one["missed"] for one in heard),
        max(one["seconds"] for one in installed),
        cores,
        None,
    )


def _wanted(tuples: int, settings: LiveStreamSettings, low: Any, high: Any) -> int:
    """How many events so many ticks make for these filters."""
    each = hits(ticks(settings.prepared, settings.seed), low, high)
    whole, rest = divmod(tuples, settings.prepared)
    return int(whole * each.sum() + each[:rest].sum())


def _filter_line(of: Sequence[FilterLine], table: Sequence[FilterLine]) -> FilterLine:
    beside = [a.tuples_s / b.tuples_s for a, b in zip(of, table, strict=False)]
    wrong, missed = (sum(getattr(one, name) for one in of) for name in ("wrong", "missed"))
    last = {"events": of[-1].events, "wrong": wrong, "missed": missed}
    return medians(of, **last, by_table=spread(beside) if beside else None)


# -- a join of two streams ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinedRate:
    """As many tuples as are acknowledged, until their last result was heard."""

    tuples_s: float  # of both streams
    results_s: float
    server_cores: float
    streams_cores: float
    wrong: int  # results that are too many or missing


@dataclass(frozen=True, slots=True)
class StreamJoinSection:
    """A derived stream: how fast, how late, and what others notice."""

    window: int
    joined: JoinedRate  # medians
    plain_tuples_s: float  # the same publishes where nobody joins
    ratio: Spread  # tuples/s with the join / without, round by round
    rate: float  # tuples/s of both streams, for what follows
    p50_ms: float
    p99_ms: float
    heard: int
    push: PushSection


class _Fed:
    """A server with the two streams, how many tuples each got, and how many results that makes."""

    def __init__(self, stage: BenchStage, settings: LiveStreamSettings, *, joined: bool) -> None:
        self.stage, self.settings, self.joined = stage, settings, joined
        self.each = 0

    async def create(self) -> None:
        for create in (*CREATE_JOINED, CREATE_PUSHES):
            await self.stage.control.execute(create)
        if self.joined:
            await self.stage.control.execute(create_hot(self.settings.window))

    async def opened(self, workers: dict[str, Worker]) -> tuple[Worker, Worker]:
        """Who feeds it, and who listens to its results, if there are any: connected here."""
        feeder, listener = workers["feeder"], workers["listener"]
        for one in (feeder, listener):
            await one.ask("open", url=self.stage.server, name=one.name)
        await feeder.ask("begin_at", each=self.each)
        if self.joined:
            await listener.ask("listen", keys=self.settings.window)
        return feeder, listener

    def results(self, each: int) -> int:
        """How many results the first `each` tuples of both streams make."""
        window, seed = self.settings.window, self.settings.seed
        if not each:
            return 0
        keys = [joined_keys(name, window, 0, each, seed).astype(np.float64) for name in (TRADES, QUOTES)]
        return plain_join(
            {name: FedStream(np.vstack([of, of])) for name, of in zip("tq", keys, strict=True)}, window, each
        )


async def live_join(settings: LiveStreamSettings, tick: Tick) -> StreamJoinSection:
    """A server with a join of two streams, beside one where nobody joins them."""
    found: list[JoinedRate] = []
    plain: list[JoinedRate] = []
    async with AsyncExitStack() as stack:
        tick("live join, starting")
        quiet = await stack.enter_async_context(staged(["feeder", "listener", *PUSH_CLIENTS], CLIENTS))
        asked = await stack.enter_async_context(staged([]))
        workers = quiet.workers
        without, within = _Fed(quiet, settings, joined=False), _Fed(asked, settings, joined=True)
        for fed in (without, within):
            await fed.create()
        for _ in turns(settings.join_rounds, tick, "live join"):
            found.append(await _throughput(within, workers))
            plain.append(await _throughput(without, workers))
        found, plain = found[1:], plain[1:]
        joined = medians(found, wrong=sum(one.wrong for one in found))
        rate = joined.tuples_s / 10
        tick("live join, latency")
        heard = await _latency(within, workers, rate)
        pushed = await _pushes(without, within, workers["feeder"], rate, tick)
    return StreamJoinSection(
        settings.window,
        joined,
        median(one.tuples_s for one in plain),
        spread(a.tuples_s / b.tuples_s for a, b in zip(found, plain, strict=True)),
        rate,
        *p50_and_p99(heard["ms"]),
        heard["events"],
        pushed,
    )


async def _throughput(fed: _Fed, workers: dict[str, Worker]) -> JoinedRate:
    """As many tuples as are acknowledged, and how long it takes until their last result is heard."""
    settings, stage = fed.settings, fed.stage
    feeder, listener = await fed.opened(workers)
    use_before, before = stage.use(), fed.each
    load = {"batch": settings.batch, "in_flight": settings.in_flight, "keys": settings.window, "seed": settings.seed}
    said = await feeder.ask("feed", seconds=settings.join_s, **load)
    await feeder.ask("advance")
    fed.each, wanted = said["fed"], 0
    heard = {"events": 0, "missed": 0, "last_ns": said["ended"]}
    if fed.joined:
        heard = await listener.ask("settled", quiet_s=QUIET_S, patience_s=WAIT_S)
    used = stage.use().since(use_before)
    if fed.joined:
        wanted = fed.results(fed.each) - fed.results(before)
        if heard["events"] < wanted:
            heard = await listener.ask("listened", events=wanted, patience_s=WAIT_S)
        await listener.ask("unlisten")
    took_s = (max(heard["last_ns"], said["ended"]) - said["began"]) / 1e9
    return JoinedRate(
        2 * said["each"] / took_s,
        heard["events"] / took_s,
        used.server_s / took_s,
        used.below_s / took_s,
        abs(wanted - heard["events"]) + heard["missed"],
    )


async def _latency(fed: _Fed, workers: dict[str, Worker], rate: float) -> dict[str, Any]:
    """How old results are when they are heard, at so many tuples a second."""
    settings = fed.settings
    feeder, listener = await fed.opened(workers)
    await feeder.ask("feed_paced", rate=rate, keys=settings.window, seed=settings.seed)
    await asyncio.sleep(1.0)
    await listener.ask("latencies")  # of the first second: not counted
    await asyncio.sleep(settings.latency_s)
    heard = await listener.ask("latencies")
    fed.each += (await feeder.ask("end"))["each"]
    await listener.ask("unlisten")
    if not heard["ms"]:
        raise MeasurementFailed("no result was heard of all that was published")
    return heard


async def _pushes(without: _Fed, within: _Fed, feeder: Worker, rate: float, tick: Tick) -> PushSection:
    """From publish to event of another subscription: where nobody joins, and beside the join."""
    settings, fed = within.settings, {id(one.stage): one for one in (without, within)}

    async def begin(stage: BenchStage, busy: bool) -> None:
        await feeder.ask("open", url=stage.server, name="feeder")
        await feeder.ask("begin_at", each=fed[id(stage)].each)
        await feeder.ask("feed_paced", rate=rate, keys=settings.window, seed=settings.seed)

    async def end(stage: BenchStage, busy: bool) -> int:
        fed[id(stage)].each += (await feeder.ask("end"))["each"]
        return 0

    load = PushLoad(settings.push_rate, settings.push_s, settings.push_rounds, begin, end, "live join, push path")
    return await push_beside(load, without.stage, within.stage, rate, tick)
