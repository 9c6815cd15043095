"""Live sections of `bench warehouse`: policies under load, the push path beside it, point queries.

Real processes on this machine: servers on disk, and clients. What is compared takes turns in one run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from math import nan
from typing import Any

import numpy as np

from hullcast.broker.warehouse.deciding.policies import POLICIES
from hullcast.clients.processes.worker import Worker
from hullcast.sim.bench.frame.benchmark import Tick
from hullcast.sim.bench.frame.push import (
    CREATE_PUSHES,
    PUSH_CLIENTS,
    PushLoad,
    PushSection,
    push_beside,
)
from hullcast.sim.bench.frame.stage import PATIENCE_S, BenchStage, StageUse, staged
from hullcast.sim.bench.frame.timing import SideBySide, p50_and_p99, rotated, turns
from hullcast.sim.bench.warehouse.workload import FRESHNESS, BusyFeed, create, feeds

WORKERS = "hullcast.sim.bench.warehouse.worker"
LOADER, GRINDER = "loader", "grinder"


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
    used: StageUse
    asked: list[dict[str, Any]]
    published: int
    loaded: int


async def policies(settings: LiveWarehouseSettings, tick: Tick) -> PolicySection:
    """All policies in turns, under the same load and the same questions."""
    some = feeds(settings.policy_rows_s, settings.keys)
    phases: dict[str, list[_Phase]] = {name: [] for name in POLICIES}
    async with staged(["loader", "asker"], WORKERS) as stage:
        tick("policies, filling tables")
        await _fill(stage, stage.workers["loader"], some, settings.seed)
        sums: dict[str, float] = {}
        for turn in range(settings.policy_rounds):
            for name in rotated(POLICIES, turn):
                tick(f"policies, round {turn + 1} of {settings.policy_rounds}, {name}")
                await stage.control.policy(name)
                phases[name].append(await _policy_phase(stage, settings, some, f"{settings.seed}/{turn}", sums))
        wrong = [feed.table for feed in some if not await _is_right(stage, feed, sums[feed.table])]
    errors = {one["error"] for of in phases.values() for phase in of for one in phase.asked if one["error"]}
    lines = tuple(_policy_line(name, of) for name, of in phases.items())
    return PolicySection(settings.policy_rows_s, settings.questions_s, lines, tuple(wrong), tuple(sorted(errors)[:5]))


async def _policy_phase(
    stage: BenchStage,
    settings: LiveWarehouseSettings,
    some: Sequence[BusyFeed],
    seed: str,
    sums: dict[str, float],
) -> _Phase:
    loader, asker = stage.workers["loader"], stage.workers["asker"]
    tables = [feed.table for feed in some]
    before = await _unapplied(stage, tables)
    use_before = stage.use()
    await loader.ask("load", feeds=[asdict(feed) for feed in some], seed=settings.seed)
    how = {"keys": settings.keys, "rate": settings.questions_s, "seconds": settings.policy_s, "seed": seed}
    await asker.ask("ask", tables=tables, **how)
    await asyncio.sleep(settings.policy_s)
    loaded, asked = await asyncio.gather(loader.ask("end"), asker.ask("end"))
    after = await _unapplied(stage, tables)
    used = stage.use().since(use_before)
    sums.update(loaded["sums"])
    published = sum(loaded["rows"].values())
    for table in tables:  # the next policy begins with nothing to make up for
        await stage.control.query(f"SELECT COUNT(*) FROM {table}", timeout=PATIENCE_S)
    return _Phase(used, asked["asked"], published, published - (after - before))


async def _unapplied(stage: BenchStage, tables: Sequence[str]) -> int:
    """Updates that are acknowledged and not loaded now, as answers say it."""
    found = [await stage.control.query(f"SELECT V FROM {table} LIMIT 1", freshness=0.0) for table in tables]
    return sum(rows.worth.unapplied for rows in found if rows.worth is not None)


async def _is_right(stage: BenchStage, feed: BusyFeed, total: float) -> bool:
    sql = f"SELECT COUNT(*), SUM(V) FROM {feed.table}"
    ((count, found),) = await stage.control.query(sql, timeout=PATIENCE_S)
    return bool(count == feed.keys and abs(found - total) < 1e-6 * total)


async def _fill(
    stage: BenchStage,
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


def _policy_line(name: str, phases: Sequence[_Phase]) -> PolicyLine:
    asked = [one for phase in phases for one in phase.asked]
    answers = [one for one in asked if "staleness_s" in one]
    free = _ms(one for one in answers if one["deadline_s"] is None)
    deadlines = [one for one in asked if one["deadline_s"] is not None]
    seconds = sum(phase.used.seconds for phase in phases)
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
        sum(phase.used.server_s for phase in phases) / seconds,
        sum(phase.used.below_s for phase in phases) / seconds,
        tuple(_by_freshness(freshness, answers) for freshness in FRESHNESS),
    )


def _by_freshness(freshness: float, answers: Sequence[Mapping[str, Any]]) -> FreshnessFigures:
    mine = [one for one in answers if one["freshness"] == freshness]
    return FreshnessFigures(
        freshness,
        len(mine),
        *p50_and_p99(_ms(one for one in mine if one["deadline_s"] is None)),
        _mean([one["staleness_s"] for one in mine]),
    )


def _ms(asked: Any) -> list[float]:
    return [1e3 * one["s"] for one in asked]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else nan


# -- the push path -----------------------------------------------------------------------------------------


async def push(settings: LiveWarehouseSettings, tick: Tick) -> PushSection:
    """At a server whose warehouse loads and answers without a pause, beside one that nobody asks."""
    tables = [feed.table for feed in feeds(settings.rows_s, settings.keys)]

    async def ask(stage: BenchStage) -> None:
        for table in tables:  # so that its file is there
            await stage.control.query(f"SELECT COUNT(*) FROM {table}", timeout=PATIENCE_S)

    return await push_loaded(settings, tick, ask, {"what": "grind", "tables": tables, "at_once": settings.grinders})


async def push_loaded(
    settings: LiveWarehouseSettings,
    tick: Tick,
    prepare: Callable[[BenchStage], Awaitable[None]],
    beside: Mapping[str, Any],
    module: str = WORKERS,
) -> PushSection:
    """The same pushes and the same updates: at a server that nobody asks, and at one that was prepared and of which
    another client asks something (`beside`, a task of such a client)."""
    some = feeds(settings.rows_s, settings.keys)
    loads = [asdict(feed) for feed in some]
    async with AsyncExitStack() as stack:
        tick("push path, filling tables")
        quiet = await stack.enter_async_context(staged([LOADER, GRINDER, *PUSH_CLIENTS], module))
        asked = await stack.enter_async_context(staged([]))
        loader, grinder = quiet.workers[LOADER], quiet.workers[GRINDER]

        async def begin(stage: BenchStage, busy: bool) -> None:
            await asyncio.gather(*(one.ask("open", url=stage.server, name=one.name) for one in (loader, grinder)))
            await loader.ask("load", feeds=loads, seed=settings.seed)
            if busy:
                await grinder.ask(**beside)

        async def end(stage: BenchStage, busy: bool) -> int:
            answers = (await grinder.ask("end"))["answers"] if busy else 0
            await loader.ask("end")
            return int(answers)

        for stage in (quiet, asked):
            await loader.ask("open", url=stage.server, name=LOADER)
            await stage.control.execute(CREATE_PUSHES)
            await _fill(stage, loader, some, settings.seed, declare=False, ask=False)
        await prepare(asked)
        load = PushLoad(settings.push_rate, settings.push_s, settings.push_rounds, begin, end)
        return await push_beside(load, quiet, asked, settings.rows_s, tick)


# -- point queries -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PointLine:
    """One way of asking for a row, over all rounds; beside it a request that the server answers without a query."""

    way: str
    freshness: float
    count: int
    ms: SideBySide


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
    async with staged(["direct", "gateway"], WORKERS, nodes=1) as stage:
        tick("point queries, filling the table")
        await stage.workers["gateway"].ask("open", url=stage.gateways[0], name="gateway")
        await stage.control.execute(create(table))
        await stage.workers["direct"].ask("fill", table=table, keys=keys, seed=settings.seed)
        await stage.control.query(f"SELECT COUNT(*) FROM {table}", timeout=PATIENCE_S)
        for turn in turns(settings.point_rounds, tick, "point queries"):
            for way, freshness in POINT_WAYS:
                how = {"table": table, "keys": keys, "count": settings.points, "freshness": freshness}
                said = await stage.workers[way].ask("points", seed=f"{settings.seed}/{turn}", **how)
                if turn:  # the first round only warms up
                    asked[way, freshness] += said["ms"]
                    bare[way, freshness] += said["other_ms"]
    lines = [PointLine(*way, len(asked[way]), SideBySide.of(asked[way], bare[way])) for way in POINT_WAYS]
    return PointSection(keys, tuple(lines))
