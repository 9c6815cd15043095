"""How the time of a replay grows with events, subscriptions and cores: ratios within one run."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import psutil
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.run import PeakMemory
from hullcast.sim.experiments.steps import read_rows, write_rows
from hullcast.sim.experiments.traffic.inputs import Input, market_trace
from hullcast.sim.experiments.traffic.networks import Law
from hullcast.sim.experiments.traffic.replays import Replays
from hullcast.sim.experiments.traffic.settings import FigureSettings
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.spark.options import SparkOptions
from hullcast.sim.spark.session import spark_session, watched
from hullcast.sim.spark.storage import Place
from hullcast.sim.traces.table51 import RangeColumns
from hullcast.sim.traces.trace import events as events_of
from hullcast.sim.traces.trace import read_info
from hullcast.sim.traffic.replay import chunks_for, replay_sums
from hullcast.sim.traffic.sending import sent
from hullcast.sim.traffic.world import World

#: The whole is this share of the trace: a section about time should not take the most of it.
SHARE = 0.5
#: Parts of the whole that are timed.
PARTS = (0.25, 1.0)
#: Sessions with one core and with all take turns so often, and in each session every size is timed so often, in turns
#: as well: what else goes on concerns all alike. A first replay in each session is not counted.
PASSES, TURNS, QUICK_TURNS = 2, 2, 1
#: Rounds of the same that differ by more say nothing about anything else.
NOISE = 1.3


@dataclass(frozen=True, slots=True)
class Timing:
    """One size, replayed once in each round: what varied, and how long it took."""

    varied: str  # events, subscriptions or cores
    events: int
    subscriptions: int
    cores: int
    seconds: float  # of the fastest round
    slowest: float
    rounds: int
    load: float  # load average of the machine when rounds began, the mean: what we do ourselves is in it
    memory_bytes: int

    @property
    def spread(self) -> float:
        """By how much the rounds differ."""
        return self.slowest / self.seconds


STEPS = 2


def scaling_section(replays: Replays, settings: FigureSettings) -> Section:
    """Time replays of the calibrated market: with one core and with all, with parts of events and subscriptions."""
    given = market_trace(replays, settings)
    name = {
        "trace": asdict(read_info(given.trace)),
        "parts": PARTS,
        "share": SHARE,
        "cores": _cores(),
        "rounds": rounds_of(settings),
    }
    place = replays.run.step("scaling", name, lambda path: _measure(replays, settings, given, path))
    timings = [Timing(**row) for row in read_rows(place / "timings.parquet")]
    table = replays.run.folder.folder / "scaling.parquet"
    write_rows(map(asdict, timings), table)
    return _section(timings, settings, table)


def _section(timings: list[Timing], settings: FigureSettings, table: Path) -> Section:
    """What was found."""
    figures = [["varied", "events", "subscriptions", "cores", "seconds, by round", "load average", "memory, GB"]]
    for timing in timings:
        sizes = [f"{timing.events:,}", f"{timing.subscriptions:,}", f"{timing.cores}"]
        seconds = f"{timing.seconds:.1f} to {timing.slowest:.1f}"
        figures.append([timing.varied, *sizes, seconds, f"{timing.load:.1f}", f"{timing.memory_bytes / 1e9:.1f}"])
    return Section(
        "scaling",
        "How time grows",
        f"{SHARE:.0%} of the calibrated market on {settings.network.brokers:,} brokers, all placements and approaches, "
        f"each size timed in {rounds_of(settings)} rounds, sessions with one core and with all in turns. "
        "The fastest round counts, without the start of Spark, the first replay of each session and the making of "
        f"topology and indexes.{projected(timings)}",
        "says nothing about it. We expect at most linear growth with events and subscriptions, and cores to help.",
        scaling_claims(timings),
        [table],
        figures=[figures],
    )


#: Cores of the cluster that the report speaks of.
CLUSTER = 100


def projected(timings: list[Timing]) -> str:
    """What ten million events would take on a cluster, by the growth with events; nothing if that cannot be told."""
    mine = [timing for timing in timings if timing.varied == "events"]
    if len(mine) < 2 or _unknown(mine) or mine[-1].seconds <= mine[0].seconds:
        return ""
    few, many = mine[0], mine[-1]
    each = many.cores * (many.seconds - few.seconds) / (many.events - few.events)
    fixed = max(0.0, many.seconds - each * many.events / many.cores)
    return (
        f" One more event takes {1e6 * each:.0f} microseconds of a core, and a replay {fixed:.1f} s whatever its "
        f"length (planning, sending the subscriptions, collecting): {CLUSTER} cores like these would replay ten "
        f"million events in about {fixed + each * 1e7 / CLUSTER:.0f} s. `hullcast sim scale` measures it at full size."
    )


def scaling_claims(timings: list[Timing]) -> list[Claim]:
    """At most linear growth, and what the cores bring: unless rounds of one size differ too much to tell."""
    found = []
    for varied in ("events", "subscriptions"):
        mine = [timing for timing in timings if timing.varied == varied]
        if len(mine) < 2:
            continue
        size = getattr(mine[-1], varied) / getattr(mine[0], varied)
        time = mine[-1].seconds / mine[0].seconds
        found.append(
            Claim(
                "",
                f"time grows at most linearly with {varied}",
                f"{size:.0f}x as many take {time:.2f}x the time",
                time <= 1.1 * size,
                f"{size:.0f}x as many took more than {1.1 * size:.1f}x the time",
                unknown=_unknown(mine),
            )
        )
    mine = [timing for timing in timings if timing.varied == "cores"]
    if len(mine) > 1:
        gain = mine[0].seconds / mine[-1].seconds
        share = gain / mine[-1].cores
        found.append(
            Claim(
                "",
                "more cores make it faster",
                f"{mine[-1].cores} cores are {gain:.2f}x as fast as one ({share:.0%} of what is possible)",
                gain > 1.2,
                f"{mine[-1].cores} cores are only {gain:.2f}x as fast as one",
                unknown=_unknown(mine),
            )
        )
    return found


def _unknown(timings: list[Timing]) -> str:
    """Why these cannot be compared, if so."""
    worst = max(timings, key=lambda timing: timing.spread)
    if worst.spread <= NOISE:
        return ""
    load = max(timing.load for timing in timings)
    return f"rounds of one size differ by {worst.spread:.2f}x (load average up to {load:.1f} on {_cores()} cores)"


def rounds_of(settings: FigureSettings) -> int:
    """How often each is timed."""
    return PASSES * turns_of(settings)


def turns_of(settings: FigureSettings) -> int:
    """How often each is timed within a session."""
    return TURNS if settings.full else QUICK_TURNS


def _cores() -> int:
    return os.cpu_count() or 1


#: Cores, events and subscriptions of a replay.
Size = tuple[int, int, int]


def _measure(replays: Replays, settings: FigureSettings, given: Input, path: Place) -> None:
    law, most = Law().over(given.domain), settings.growing[-1]
    ranges, network = law.ranges(most, root=settings.network.seed), replays.network()
    worlds = {}
    for count in [int(part * most) for part in PARTS]:
        worlds[count] = replays.warmed(network.world(law, RangeColumns(ranges.low[:count], ranges.high[:count])))
    total = int(SHARE * read_info(given.trace).events)
    some, few, cores = int(PARTS[0] * total), int(PARTS[0] * most), _cores()
    varied: dict[str, list[Size]] = {
        "events": [(cores, some, most), (cores, total, most)],
        "subscriptions": [(cores, total, few), (cores, total, most)],
        "cores": [(one, total, most) for one in dict.fromkeys((1, cores))],
    }
    sizes = list(dict.fromkeys(size for those in varied.values() for size in those))
    rounds: dict[Size, list[Round]] = defaultdict(list)
    if not replays.run.stop_spark():
        raise UsageError(
            f"sessions of one core and of all cores here cannot be timed while {replays.run.folder.place} is "
            "reached through Spark; give --out a folder of this machine, or leave out scaling with --only"
        )
    for one in sorted({size[0] for size in sizes}) * PASSES:
        session = spark_session(
            SparkOptions(f"local[{one}]"), app="hullcast sim scaling", spark_sql_adaptive_enabled="false"
        )
        with session as spark, watched(spark, replays.run.progress.tasks):
            _once(spark, given.trace, worlds[few], some)  # Spark compiles its own code
            for size in [size for size in sizes if size[0] == one] * turns_of(settings):
                rounds[size].append(_once(spark, given.trace, worlds[size[2]], size[1]))
    timings = [_timing(name, size, rounds[size]) for name, those in varied.items() for size in those]
    write_rows(map(asdict, timings), path / "timings.parquet")


@dataclass(frozen=True, slots=True)
class Round:
    """One replay."""

    seconds: float
    memory_bytes: int
    load: float


def _once(spark: SparkSession, trace: Place, world: World, events: int) -> Round:
    load = psutil.getloadavg()[0]
    some = events_of(spark, trace).where(F.col("seq") < events)
    chunks = chunks_for(events, spark.sparkContext.defaultParallelism)
    with PeakMemory() as memory, sent(spark, world) as given:
        begun = perf_counter()
        replay_sums(spark, some, given, chunks=chunks).toArrow()
        seconds = perf_counter() - begun
    return Round(seconds, memory.peak_bytes, load)


def _timing(varied: str, size: Size, rounds: list[Round]) -> Timing:
    cores, events, subscriptions = size
    seconds = [each.seconds for each in rounds]
    load = sum(each.load for each in rounds) / len(rounds)
    memory = max(each.memory_bytes for each in rounds)
    return Timing(varied, events, subscriptions, cores, min(seconds), max(seconds), len(rounds), load, memory)
