"""Live sections of `bench warehouse`: policies under load, the push path beside it, point queries.

Real processes on this machine: servers on disk, and clients. What is compared takes turns in one run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from math import nan
from statistics import median
from time import monotonic
from typing import Any

import numpy as np

from hullcast.broker.warehouse.policies import POLICIES
from hullcast.clients.processes.worker import Worker
from hullcast.sim.bench.timing import MeasurementFailed
from hullcast.sim.bench.warehouse.stage import PATIENCE_S, WORKERS, WarehouseStage, busy_cores_s, staged
from hullcast.sim.bench.warehouse.workers import CREATE_PUSHES
from hullcast.sim.bench.warehouse.workload import FRESHNESS, BusyFeed, create, feeds

Tick = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LiveWarehouseSettings:
    """Sizes of the live sections."""

    keys: int = 50_000  # rows of each feed
    rows_s: float = 20_000.0  # updates a second of all feeds together, beside the push path
    policy_rows_s: float = 80_000.0  # the same beside questions: so many that loaders have work all the time
    questions_s: float = 60.0
    policy_s: float = 5.0  # of each policy in each round
    policy_rounds: int = 3
    push_rate: float = 100.0
    push_s: float = 3.0  # of each phase
    push_rounds: int = 8
    grinders: int = 2  # long questions at a time, while the warehouse is to be busy
    point_rows: int = 100_000
    points: int = 300  # of each way in each round
    point_rounds: int = 4
    seed: int = 0


# -- policies ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FreshnessFigures:
    """Answers to questions of one freshness: those without a deadline for the time, all for the staleness."""

    freshness: float
    answers: int
    p50_ms: float
    p99_ms: float
    staleness_s: float  # mean
    staleness_p99_s: float
    unapplied: float  # updates, mean


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """One policy, over all rounds."""

    policy: str
    asked: int
    p50_ms: float  # of questions without a deadline
    p99_ms: float
    staleness_s: float  # mean over all answers
    unapplied: float
    deadlines: int
    missed: int
    failed: int  # for another reason than a deadline: then the other figures lack these questions
    published_s: float  # rows a second
    loaded_s: float
    server_cores: float
    warehouse_cores: float
    by_freshness: tuple[FreshnessFigures, ...]

    @property
    def missed_share(self) -> float:
        """Of the questions with a deadline."""
        return self.missed / self.deadlines if self.deadlines else 0.0


@dataclass(frozen=True, slots=True)
class PolicySection:
    """All policies, and whether the tables were right in the end."""

    rows_s: float
    questions_s: float
    lines: tuple[PolicyLine, ...]
    wrong: tuple[str, ...]  # tables that were not what was published
    errors: tuple[str, ...]  # some, of questions that failed


@dataclass(frozen=True, slots=True)
class _Phase:
    seconds: float
    asked: list[dict[str, Any]]
    published: int
    loaded: int
    server_s: float
    warehouse_s: float


async def policies(settings: LiveWarehouseSettings, tick: Tick) -> PolicySection:
    """All policies in turns, under the same load and the same questions."""
    some = feeds(settings.policy_rows_s, settings.keys)
    phases: dict[str, list[_Phase]] = {name: [] for name in POLICIES}
    async with staged(["loader", "asker"]) as stage:
        tick("policies, filling tables")
        await _fill(stage, stage.workers["loader"], some, settings.seed)
        sums: dict[str, float] = {}
        for turn in range(settings.policy_rounds):
            for name in _rotated(list(POLICIES), turn):
                tick(f"policies, round {turn + 1} of {settings.policy_rounds}, {name}")
                await stage.control.policy(name)
                phases[name].append(await _policy_phase(stage, settings, some, f"{settings.seed}/{turn}", sums))
        wrong = [feed.table for feed in some if not await _is_right(stage, feed, sums[feed.table])]
    errors = {one["error"] for of in phases.values() for phase in of for one in phase.asked if one["error"]}
    lines = tuple(_policy_line(name, of) for name, of in phases.items())
    return PolicySection(settings.policy_rows_s, settings.questions_s, lines, tuple(wrong), tuple(sorted(errors)[:5]))


async def _policy_phase(
    stage: WarehouseStage,
    settings: LiveWarehouseSettings,
    some: Sequence[BusyFeed],
    seed: str,
    sums: dict[str, float],
) -> _Phase:
    loader, asker = stage.workers["loader"], stage.workers["asker"]
    tables = [feed.table for feed in some]
    before = await _unapplied(stage, tables)
    cpu, began = stage.cpu_s(), monotonic()
    await loader.ask("load", feeds=[asdict(feed) for feed in some], seed=settings.seed)
    how = {"keys": settings.keys, "rate": settings.questions_s, "seconds": settings.policy_s, "seed": seed}
    await asker.ask("ask", tables=tables, **how)
    await asyncio.sleep(settings.policy_s)
    loaded, asked = await asyncio.gather(loader.ask("end"), asker.ask("end"))
    after = await _unapplied(stage, tables)
    seconds, now = monotonic() - began, stage.cpu_s()
    sums.update(loaded["sums"])
    published = sum(loaded["rows"].values())
    for table in tables:  # the next policy begins with nothing to make up for
        await stage.control.query(f"SELECT COUNT(*) FROM {table}", timeout=PATIENCE_S)
    applied = published - (after - before)
    return _Phase(seconds, asked["asked"], published, applied, now[0] - cpu[0], now[1] - cpu[1])


async def _unapplied(stage: WarehouseStage, tables: Sequence[str]) -> int:
    """Updates that are acknowledged and not loaded now, as answers say it."""
    found = [await stage.control.query(f"SELECT V FROM {table} LIMIT 1", freshness=0.0) for table in tables]
    return sum(rows.worth.unapplied for rows in found if rows.worth is not None)


async def _is_right(stage: WarehouseStage, feed: BusyFeed, total: float) -> bool:
    sql = f"SELECT COUNT(*), SUM(V) FROM {feed.table}"
    ((count, found),) = await stage.control.query(sql, timeout=PATIENCE_S)
    return bool(count == feed.keys and abs(found - total) < 1e-6 * total)


async def _fill(
    stage: WarehouseStage,
    worker: Worker,
    some: Sequence[BusyFeed],
    seed: int,
    *,
    declare: bool = True,
    ask: bool = True,
) -> None:
    """Make the feeds' tables with their first rows; declare them as feeds, and ask for each, so that its file is there.

    A server of which nobody asks anything, and that has no feeds, has no warehouse.
    """
    for feed in some:
        await stage.control.execute(feed.create if declare else create(feed.table))
        await worker.ask("fill", table=feed.table, keys=feed.keys, seed=seed)
        if ask:
            await stage.control.query(f"SELECT COUNT(*) FROM {feed.table}", timeout=PATIENCE_S)


def _rotated(names: list[str], turn: int) -> list[str]:
    """Another one first each time: what comes first may find a colder machine."""
    start = turn % len(names)
    return names[start:] + names[:start]


def _policy_line(name: str, phases: Sequence[_Phase]) -> PolicyLine:
    asked = [one for phase in phases for one in phase.asked]
    answers = [one for one in asked if "staleness_s" in one]
    free = _ms(one for one in answers if one["deadline_s"] is None)
    deadlines = [one for one in asked if one["deadline_s"] is not None]
    seconds = sum(phase.seconds for phase in phases)
    return PolicyLine(
        name,
        len(asked),
        *p50_and_p99(free),
        _mean([one["staleness_s"] for one in answers]),
        _mean([one["unapplied"] for one in answers]),
        len(deadlines),
        sum(one["missed"] for one in deadlines),
        sum(bool(one["error"]) for one in asked),
        sum(phase.published for phase in phases) / seconds,
        sum(phase.loaded for phase in phases) / seconds,
        sum(phase.server_s for phase in phases) / seconds,
        sum(phase.warehouse_s for phase in phases) / seconds,
        tuple(_by_freshness(freshness, answers) for freshness in FRESHNESS),
    )


def _by_freshness(freshness: float, answers: Sequence[Mapping[str, Any]]) -> FreshnessFigures:
    mine = [one for one in answers if one["freshness"] == freshness]
    stale = [one["staleness_s"] for one in mine]
    return FreshnessFigures(
        freshness,
        len(mine),
        *p50_and_p99(_ms(one for one in mine if one["deadline_s"] is None)),
        _mean(stale),
        p50_and_p99(stale)[1],
        _mean([one["unapplied"] for one in mine]),
    )


def _ms(asked: Any) -> list[float]:
    return [1e3 * one["s"] for one in asked]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else nan


def p50_and_p99(values: Sequence[float]) -> tuple[float, float]:
    """Of no values: nan."""
    if not values:
        return nan, nan
    p50, p99 = np.quantile(values, (0.5, 0.99)).tolist()
    return p50, p99


# -- the push path -----------------------------------------------------------------------------------------

IDLE, BUSY, CONTENDED = "idle", "busy", "contended"


@dataclass(frozen=True, slots=True)
class PushPhase:
    """One way, over all rounds: from publish to the subscriber's event."""

    name: str
    events: int
    p50_ms: float
    p99_ms: float
    p50_ratio: float  # by that of the idle phase of the same round, median over rounds
    p99_ratio: float
    server_cores: float
    warehouse_cores: float  # busy processes, where there are some instead
    machine_cores: float  # everything on this machine


@dataclass(frozen=True, slots=True)
class PushSection:
    """Idle, busy, and idle beside plain processes that take as much CPU as a busy warehouse does."""

    rows_s: float
    answers_s: float  # long questions answered a second while it was busy
    nice: int  # of the warehouse's processes
    cores: int
    phases: tuple[PushPhase, ...]

    def phase(self, name: str) -> PushPhase:
        """One of them."""
        return next(phase for phase in self.phases if phase.name == name)

    def contention(self, ratio: Callable[[PushPhase], float]) -> float:
        """Which part of the growth a plain process of the same CPU time and niceness causes as well; nan: it does not
        grow."""
        grown = ratio(self.phase(BUSY)) - 1
        return min(1.0, max(0.0, (ratio(self.phase(CONTENDED)) - 1) / grown)) if grown > 0 else nan


@dataclass(frozen=True, slots=True)
class Pushed:
    """What came of one phase of pushes."""

    ms: list[float]
    answers: int
    seconds: float
    server_s: float
    warehouse_s: float
    machine_s: float


async def push(settings: LiveWarehouseSettings, tick: Tick) -> PushSection:
    """At a server whose warehouse loads and answers without a pause, beside one that nobody asks."""
    tables = [feed.table for feed in feeds(settings.rows_s, settings.keys)]

    async def ask(stage: WarehouseStage) -> None:
        for table in tables:  # so that its file is there
            await stage.control.query(f"SELECT COUNT(*) FROM {table}", timeout=PATIENCE_S)

    return await push_beside(settings, tick, ask, {"what": "grind", "tables": tables, "at_once": settings.grinders})


async def push_beside(
    settings: LiveWarehouseSettings,
    tick: Tick,
    prepare: Callable[[WarehouseStage], Awaitable[None]],
    beside: Mapping[str, Any],
    module: str = WORKERS,
) -> PushSection:
    """The same pushes and the same updates: at a server that nobody asks, at one that was prepared and of which another
    client asks something (`beside`, a task of such a client), and at the first one again beside plain busy
    processes."""
    some = feeds(settings.rows_s, settings.keys)
    clients = ["loader", "pusher", "listener", "grinder"]
    spinners = ["spinner-1", "spinner-2"]
    found: dict[str, list[Pushed]] = {IDLE: [], BUSY: [], CONTENDED: []}
    async with AsyncExitStack() as stack:
        tick("push path, filling tables")
        quiet = await stack.enter_async_context(staged([*clients, *spinners], clients=module))
        asked = await stack.enter_async_context(staged([]))
        workers = quiet.workers
        for stage in (quiet, asked):
            await workers["loader"].ask("open", url=stage.server, name="loader")
            await stage.control.execute(CREATE_PUSHES)
            await _fill(stage, workers["loader"], some, settings.seed, declare=False, ask=False)
        await prepare(asked)
        nice = asked.nice()
        for turn in range(settings.push_rounds + 1):
            for name, stage in ((IDLE, quiet), (BUSY, asked), (CONTENDED, quiet)):
                tick(f"push path, round {turn} of {settings.push_rounds}, {name}" if turn else f"push path, {name}")
                spin = found[BUSY][-1].warehouse_s / found[BUSY][-1].seconds if name == CONTENDED else 0.0
                for spinner in spinners if spin else []:
                    await workers[spinner].ask("spin", share=min(1.0, spin / len(spinners)), nice=nice)
                pushed = await _pushed(stage, workers, settings, some, clients, beside if name == BUSY else None)
                spun = [(await workers[spinner].ask("end"))["cpu_s"] for spinner in spinners if spin]
                found[name].append(replace(pushed, warehouse_s=pushed.warehouse_s + sum(spun)))
    for of in found.values():
        del of[0]  # the first round only warms up
    phases = tuple(push_phase(name, of, found[IDLE]) for name, of in found.items())
    busy = found[BUSY]
    answers_s = sum(one.answers for one in busy) / sum(one.seconds for one in busy)
    return PushSection(settings.rows_s, answers_s, nice, os.cpu_count() or 1, phases)


async def _pushed(
    stage: WarehouseStage,
    workers: Mapping[str, Worker],
    settings: LiveWarehouseSettings,
    some: Sequence[BusyFeed],
    clients: Sequence[str],
    beside: Mapping[str, Any] | None,
) -> Pushed:
    await asyncio.gather(*(workers[name].ask("open", url=stage.server, name=name) for name in clients))
    await workers["listener"].ask("hear")
    await workers["loader"].ask("load", feeds=[asdict(feed) for feed in some], seed=settings.seed)
    if beside is not None:
        await workers["grinder"].ask(**beside)
    began, cpu, machine = monotonic(), stage.cpu_s(), busy_cores_s()
    await workers["pusher"].ask("push", rate=settings.push_rate, seconds=settings.push_s)
    heard = await workers["listener"].ask("end")
    seconds, after, machine_after = monotonic() - began, stage.cpu_s(), busy_cores_s()
    ground = await workers["grinder"].ask("end") if beside is not None else {"answers": 0}
    await workers["loader"].ask("end")
    if not heard["ms"]:
        raise MeasurementFailed("no event came of all that was published")
    used = (after[0] - cpu[0], after[1] - cpu[1], machine_after - machine)
    return Pushed(heard["ms"], ground["answers"], seconds, *used)


def push_phase(name: str, of: Sequence[Pushed], idle: Sequence[Pushed]) -> PushPhase:
    """All rounds of one way, beside those of the idle one."""
    p50, p99 = p50_and_p99([ms for one in of for ms in one.ms])
    by_round = [p50_and_p99(one.ms) for one in of]
    idle_by_round = [p50_and_p99(one.ms) for one in idle]
    seconds = sum(one.seconds for one in of)
    return PushPhase(
        name,
        sum(len(one.ms) for one in of),
        p50,
        p99,
        median(a[0] / b[0] for a, b in zip(by_round, idle_by_round, strict=True)),
        median(a[1] / b[1] for a, b in zip(by_round, idle_by_round, strict=True)),
        sum(one.server_s for one in of) / seconds,
        sum(one.warehouse_s for one in of) / seconds,
        sum(one.machine_s for one in of) / seconds,
    )


# -- point queries -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PointLine:
    """One way of asking for a row, over all rounds; beside it a request that the server answers without a query."""

    way: str
    freshness: float
    count: int
    p50_ms: float
    p99_ms: float
    bare_p50_ms: float
    bare_p99_ms: float

    @property
    def ratio(self) -> float:
        """By the bare request, both at p50."""
        return self.p50_ms / self.bare_p50_ms


@dataclass(frozen=True, slots=True)
class PointSection:
    """All ways."""

    rows: int
    lines: tuple[PointLine, ...]


POINT_WAYS = (("direct", 0.0), ("gateway", 0.0), ("direct", 1.0))


async def points(settings: LiveWarehouseSettings, tick: Tick) -> PointSection:
    """Single rows by key from a table that is loaded: directly and through a gateway."""
    asked: dict[tuple[str, float], list[float]] = {way: [] for way in POINT_WAYS}
    bare: dict[tuple[str, float], list[float]] = {way: [] for way in POINT_WAYS}
    table, keys = "POINTS", settings.point_rows
    async with staged(["direct", "gateway"], nodes=1) as stage:
        tick("point queries, filling the table")
        await stage.workers["gateway"].ask("open", url=stage.cluster.gateways[0].endpoint, name="gateway")
        await stage.control.execute(create(table))
        await stage.workers["direct"].ask("fill", table=table, keys=keys, seed=settings.seed)
        await stage.control.query(f"SELECT COUNT(*) FROM {table}", timeout=PATIENCE_S)
        for turn in range(settings.point_rounds + 1):
            tick(f"point queries, round {turn} of {settings.point_rounds}" if turn else "point queries, first round")
            for way, freshness in POINT_WAYS:
                how = {"table": table, "keys": keys, "count": settings.points, "freshness": freshness}
                said = await stage.workers[way].ask("points", seed=f"{settings.seed}/{turn}", **how)
                if turn:  # the first round only warms up
                    asked[way, freshness] += said["ms"]
                    bare[way, freshness] += said["bare_ms"]
    lines = [PointLine(*way, len(asked[way]), *p50_and_p99(asked[way]), *p50_and_p99(bare[way])) for way in POINT_WAYS]
    return PointSection(keys, tuple(lines))
