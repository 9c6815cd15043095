"""How long publishes and status requests wait while a large table is queried for the first time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from time import monotonic

from hullcast.sim.bench.frame.benchmark import Tick
from hullcast.sim.bench.frame.push import CREATE_PUSHES
from hullcast.sim.bench.frame.stage import PATIENCE_S, BenchStage, staged
from hullcast.sim.bench.frame.timing import MeasurementFailed
from hullcast.sim.bench.warehouse.live import WORKERS
from hullcast.sim.bench.warehouse.workload import create

LOOK_S, SETTLE_S = 0.05, 0.5
#: What a request may have to wait for, whatever the server does: the disk, and the processor.
DISK, NOBODY = "disk", "nobody"
ASKING = ("publish", "status")
PROBES = (*ASKING, DISK, NOBODY)


@dataclass(frozen=True, slots=True)
class FirstQueryLine:
    """One kind of request. Each figure is the median over tables of the longest that one took, in milliseconds."""

    probe: str
    without_ms: float  # afterwards: in the better of two times that are as long
    during_ms: float  # from the first query to its answer
    worst_ms: float  # the same, of the worst table
    without_p50_ms: float
    during_p50_ms: float

    @property
    def ratio(self) -> float:
        """How much longer."""
        return self.during_ms / self.without_ms


@dataclass(frozen=True, slots=True)
class FirstQuerySection:
    """Both kinds, and the query itself."""

    rows: int
    tables: int
    first_s: float  # the first query, median over tables
    second_s: float  # the same again
    lines: tuple[FirstQueryLine, ...]


async def first_query(rows: int, tables: int, seed: int, tick: Tick) -> FirstQuerySection:
    """Fill one table after the other, and query each for the first time while others publish and ask for the status."""
    without: dict[str, list[list[float]]] = {name: [] for name in PROBES}
    during: dict[str, list[list[float]]] = {name: [] for name in PROBES}
    firsts, seconds = [], []
    # A checkpoint each table: made before anybody measures, and not meanwhile.
    async with staged(["filler", *PROBES], WORKERS, options=("--checkpoint-updates", str(rows))) as stage:
        await stage.control.execute(CREATE_PUSHES)
        await _fill(stage, "WARM", 1_000, seed)
        for number in range(tables):
            tick(f"first query, table {number + 1} of {tables}")
            first_s, second_s, quiet, busy = await _one(stage, f"LARGE{number}", rows, seed)
            firsts.append(first_s)
            seconds.append(second_s)
            for name in PROBES:
                without[name].append(quiet[name])
                during[name].append(busy[name])
    return FirstQuerySection(
        rows,
        tables,
        median(firsts),
        median(seconds),
        tuple(_line(name, without[name], during[name]) for name in PROBES),
    )


async def _one(
    stage: BenchStage, table: str, rows: int, seed: int
) -> tuple[float, float, dict[str, list[float]], dict[str, list[float]]]:
    sql = f"SELECT COUNT(*), SUM(V) FROM {table}"
    checkpoints = (await stage.control.status())["log"]["checkpoints"]
    expected = await _fill(stage, table, rows, seed)
    async with asyncio.timeout(PATIENCE_S):
        while (await stage.control.status())["log"]["checkpoints"] == checkpoints:  # noqa: ASYNC110  (another process)
            await asyncio.sleep(LOOK_S)
    await asyncio.gather(*(stage.workers[name].ask("probe", how=name) for name in PROBES))
    asked = monotonic()
    ((count, total),) = await stage.control.query(sql, timeout=PATIENCE_S)
    answered = monotonic()
    if count != rows or abs(total - expected) > 1e-6 * expected:
        raise MeasurementFailed(f"{table}: {count} rows that sum up to {total}, expected {rows} and {expected}")
    await stage.control.query(sql, timeout=PATIENCE_S)
    again = monotonic()
    await asyncio.sleep(SETTLE_S)
    quiet = [monotonic()]
    for _ in range(2):
        await asyncio.sleep(answered - asked)
        quiet.append(monotonic())
    trips = {name: (await stage.workers[name].ask("end"))["trips"] for name in PROBES}
    return (
        answered - asked,
        again - answered,
        {name: min((_within(trips[name], *times) for times in pairwise(quiet)), key=max) for name in PROBES},
        {name: _within(trips[name], asked, answered) for name in PROBES},
    )


async def _fill(stage: BenchStage, table: str, rows: int, seed: int) -> float:
    """A new table; the sum of its values."""
    await stage.control.execute(create(table))
    return float((await stage.workers["filler"].ask("fill", table=table, keys=rows, seed=seed))["sum"])


def _within(trips: Sequence[tuple[float, float]], start: float, end: float) -> list[float]:
    """Milliseconds of the round trips that were under way between two moments."""
    return [1e3 * (ended - began) for began, ended in trips if ended > start and began < end]


def _line(name: str, without: list[list[float]], during: list[list[float]]) -> FirstQueryLine:
    return FirstQueryLine(
        name,
        median(max(times) for times in without),
        median(max(times) for times in during),
        max(max(times) for times in during),
        median(time for times in without for time in times),
        median(time for times in during for time in times),
    )
