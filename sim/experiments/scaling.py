"""How the time of a replay grows with events, subscriptions and cores: ratios within one run, Spark warm."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow has no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import functions as F

from sim.experiments.claims import Claim
from sim.experiments.inputs import market_trace
from sim.experiments.memory import PeakMemory
from sim.experiments.section import Section
from sim.experiments.stage import chunks_for
from sim.experiments.subscriptions import Law
from sim.experiments.summary import reduced
from sim.spark import spark_session, watched
from sim.traces.trace import events as events_of
from sim.traces.trace import read_info
from sim.traffic.replay import replay, sent
from sim.workloads import Ranges

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sim.experiments.inputs import Input
    from sim.experiments.settings import FigureSettings
    from sim.experiments.stage import Stage
    from sim.traffic.chunk import World

#: Parts of the whole that are timed.
PARTS = (0.25, 0.5, 1.0)
ROUNDS = 3  # each is timed so often, and the faster one counts; once in the quick form


@dataclass(frozen=True, slots=True)
class Timing:
    """One replay: what varied, and how long it took."""

    varied: str  # events, subscriptions or cores
    events: int
    subscriptions: int
    cores: int
    seconds: float
    memory_bytes: int


def steps() -> int:
    """How many steps it takes."""
    return 2


def run(stage: Stage, settings: FigureSettings) -> Section:
    """Time replays of the calibrated market: with one core and with all, with parts of events and subscriptions."""
    given = market_trace(stage, settings)
    stage.progress.begin("scaling")
    name = {"trace": asdict(read_info(given.trace)), "parts": PARTS, "cores": _cores(), "rounds": rounds_of(settings)}
    place = stage.folder.step("scaling", name, lambda path: _measure(stage, settings, given, path))
    timings = [Timing(**row) for row in pq.read_table(place / "timings.parquet").to_pylist()]
    table = stage.folder.folder / "scaling.parquet"
    pq.write_table(pa.Table.from_pylist([asdict(timing) for timing in timings]), table)
    return section(timings, settings, table)


def section(timings: list[Timing], settings: FigureSettings, table: Path) -> Section:
    """What was found."""
    figures = [["varied", "events", "subscriptions", "cores", "seconds", "of the first", "memory, GB"]]
    for varied in ("events", "subscriptions", "cores"):
        mine = [timing for timing in timings if timing.varied == varied]
        for timing in mine:
            ratio = timing.seconds / mine[0].seconds
            sizes = [f"{timing.events:,}", f"{timing.subscriptions:,}", f"{timing.cores}"]
            memory = f"{timing.memory_bytes / 1e9:.1f}"
            figures.append([varied, *sizes, f"{timing.seconds:.1f}", f"{ratio:.2f}x", memory])
    return Section(
        "scaling",
        "How time grows",
        f"The calibrated market on {settings.network.brokers:,} brokers, all placements and approaches. Each time is "
        f"the best of {rounds_of(settings)} in interleaved rounds, after one that is not counted; Spark's start and "
        "the making of topology and indexes are not in it. One core and all cores are two sessions.",
        "(Nothing is said.) Our expectation: at most linear in events and subscriptions; cores help.",
        claims(timings),
        [table],
        [],
        figures,
    )


def claims(timings: list[Timing]) -> list[Claim]:
    """At most linear growth, and what the cores bring."""
    found = []
    for varied in ("events", "subscriptions"):
        mine = [timing for timing in timings if timing.varied == varied]
        if len(mine) < 2:
            continue
        size = getattr(mine[-1], varied) / getattr(mine[0], varied)
        time = mine[-1].seconds / mine[0].seconds
        found.append(
            Claim(
                varied,
                "time grows at most linearly",
                f"{size:.0f}x as many take {time:.2f}x the time",
                time <= 1.1 * size,
                f"{size:.0f}x as many took more than {1.1 * size:.1f}x the time",
            )
        )
    mine = [timing for timing in timings if timing.varied == "cores"]
    if len(mine) > 1:
        gain = mine[0].seconds / mine[-1].seconds
        share = gain / mine[-1].cores
        found.append(
            Claim(
                "cores",
                "more cores make it faster",
                f"{mine[-1].cores} cores are {gain:.2f}x as fast as one ({share:.0%} of what is possible)",
                gain > 1.2,
                f"{mine[-1].cores} cores are only {gain:.2f}x as fast as one",
            )
        )
    return found


def rounds_of(settings: FigureSettings) -> int:
    """How often each is timed."""
    return ROUNDS if settings.full else 1


def _cores() -> int:
    return os.cpu_count() or 1


def _measure(stage: Stage, settings: FigureSettings, given: Input, path: Path) -> None:
    law, most = Law().over(given.domain), settings.growing[-1]
    ranges, network = law.ranges(most, root=settings.network.seed), stage.network()
    worlds = {}
    for count in [int(part * most) for part in PARTS]:
        worlds[count] = stage.warmed(network.world(law, Ranges(ranges.low[:count], ranges.high[:count])))
    total, rounds = read_info(given.trace).events, rounds_of(settings)
    some = [(int(part * total), most) for part in PARTS] + [(total, count) for count in worlds if count < most]
    timings: list[Timing] = []
    stage.stop_spark()
    for cores in dict.fromkeys((1, _cores())):
        sizes = some if cores == _cores() else [(total, most)]
        with (
            spark_session(f"local[{cores}]", app="hullcast sim scaling") as spark,
            watched(spark, stage.progress.tasks),
        ):
            found = _timed(spark, given.trace, worlds, sizes, rounds)
        timings.append(Timing("cores", total, most, cores, *found[total, most]))
        if cores == _cores():
            timings += [Timing("events", *size, cores, *found[size]) for size in sizes if size[1] == most]
            by_subscriptions = sorted(size for size in sizes if size[0] == total)
            timings += [Timing("subscriptions", *size, cores, *found[size]) for size in by_subscriptions]
    pq.write_table(pa.Table.from_pylist([asdict(timing) for timing in timings]), path / "timings.parquet")


def _timed(
    spark: SparkSession, trace: Path, worlds: dict[int, World], sizes: list[tuple[int, int]], rounds: int
) -> dict[tuple[int, int], tuple[float, int]]:
    """For each number of events and subscriptions the seconds of the fastest replay, and the peak memory of all.

    Rounds are interleaved, so that what else this machine does meanwhile concerns all sizes alike; the first round,
    in which Spark compiles its own code, is not counted.
    """
    found = {size: (float("inf"), 0) for size in sizes}
    for turn in range(1 + rounds):
        for events, subscriptions in sizes:
            some = events_of(spark, trace).where(F.col("seq") < events)
            chunks = chunks_for(events, spark.sparkContext.defaultParallelism)
            with PeakMemory() as memory, sent(spark, worlds[subscriptions]) as given:
                begun = perf_counter()
                reduced(replay(spark, some, given, chunks=chunks))
                seconds = perf_counter() - begun
            best, peak = found[events, subscriptions]
            seconds = min(best, seconds) if turn else best
            found[events, subscriptions] = (seconds, max(peak, memory.peak_bytes))
    return found
