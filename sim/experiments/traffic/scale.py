"""`hullcast sim scale`: what a large replay costs here, and what a cluster would take.

Three replays: all events with all subscriptions, a tenth of the events, and a tenth of the subscriptions. Counted is
the time of all cores (of this process and all it started), which says the same on a busy machine. Two numbers of events
give two unknowns: the work of an event, which cores share, and what a replay costs whatever its length.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

import psutil
from pyspark.sql import functions as F

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.run import PeakMemory, StepProgress, cores_of
from hullcast.sim.experiments.traffic.networks import Law, build_network
from hullcast.sim.experiments.traffic.settings import NetworkSettings
from hullcast.sim.experiments.traffic.summary import verified
from hullcast.sim.spark.needs import check_shared, is_local
from hullcast.sim.spark.options import SparkOptions
from hullcast.sim.spark.session import DEFAULT, spark_session, watched
from hullcast.sim.spark.storage import Place
from hullcast.sim.traces.folders import check_folder
from hullcast.sim.traces.synthetic import table51_trace
from hullcast.sim.traces.table51 import RangeColumns
from hullcast.sim.traces.trace import events as events_of
from hullcast.sim.traffic.chunk import compile_kernels
from hullcast.sim.traffic.replay import chunks_for, replay_sums
from hullcast.sim.traffic.sending import sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from hullcast.sim.traffic.world import World

#: The smaller sizes are this part of the whole.
PART = 10
#: Bytes of an event and of a row of a state on their way to a chunk, about.
EVENT_BYTES, STATE_BYTES = 60, 30
STEPS = 8


@dataclass(frozen=True, slots=True)
class ScaleSettings:
    """What is measured, and for how many cores it is projected."""

    network: NetworkSettings = field(default_factory=NetworkSettings)
    events: int = 10_000_000
    subscriptions: int = 1_000_000
    rows: int = 100_000
    cores: int = 100

    def __post_init__(self) -> None:
        if min(self.events, self.subscriptions) < PART:
            raise UsageError(f"events and subscriptions must be {PART} or more: a part of 1 in {PART} is measured, too")


@dataclass(frozen=True, slots=True)
class Replayed:
    """One replay."""

    events: int
    subscriptions: int
    chunks: int
    seconds: float
    core_seconds: float  # of all processes; on a cluster, of all its cores while it lasted
    memory_bytes: int

    @property
    def event_us(self) -> float:
        """Microseconds of a core for each event."""
        return 1e6 * self.core_seconds / self.events


@dataclass(frozen=True, slots=True)
class ScaleFound:
    """What was measured."""

    settings: ScaleSettings
    cores: int
    once: dict[str, float]  # seconds of what is done once, by one core
    replays: list[Replayed]  # fewer events, fewer subscriptions, all

    @property
    def work_s(self) -> float:
        """Core seconds of one more event."""
        some, _, whole = self.replays
        return max(0.0, (whole.core_seconds - some.core_seconds) / (whole.events - some.events))

    @property
    def fixed_s(self) -> float:
        """Core seconds of a replay without events."""
        whole = self.replays[-1]
        return max(0.0, whole.core_seconds - self.work_s * whole.events)

    @property
    def flatness(self) -> float:
        """The cost of an event among all events, to that among a tenth of them."""
        return self.replays[-1].event_us / self.replays[0].event_us

    def seconds_on(self, cores: int) -> float:
        """What the largest replay would take on so many cores like these."""
        return sum(self.once.values()) + self.fixed_s + self.work_s * self.settings.events / cores

    def moved_bytes(self, cores: int) -> int:
        """What goes from machine to machine, about: events to their chunks, and the table to every chunk."""
        chunks = chunks_for(self.settings.events, cores)
        return EVENT_BYTES * self.settings.events + STATE_BYTES * self.settings.rows * chunks

    def plain(self) -> dict[str, object]:
        """As JSON has it."""
        projected = {"cores": self.settings.cores, "seconds": self.seconds_on(self.settings.cores)}
        derived = {"work_s": self.work_s, "fixed_s": self.fixed_s, "flatness": self.flatness, "projected": projected}
        return asdict(self) | derived


def measure_scale(
    settings: ScaleSettings, folder: Place, progress: StepProgress, options: SparkOptions = DEFAULT
) -> ScaleFound:
    """Make a trace of Table 5.1 in `folder`, replay it three times, and remove it."""
    once: dict[str, float] = {}
    law = Law()

    def timed(name: str, begun: float) -> None:
        once[name] = perf_counter() - begun

    trace = check_folder(folder / "trace")
    progress.begin("network")
    begun = perf_counter()
    network = build_network(settings.network)
    timed("network", begun)
    progress.begin("subscriptions")
    begun = perf_counter()
    ranges = law.ranges(settings.subscriptions, root=settings.network.seed)
    world = network.world(law, ranges)
    timed("subscriptions", begun)
    few = settings.subscriptions // PART
    smaller = network.world(law, RangeColumns(ranges.low[:few], ranges.high[:few]))
    compile_kernels(smaller)
    progress.begin("Spark")
    with spark_session(options, app="hullcast sim scale") as spark, watched(spark, progress.tasks):
        check_shared(spark, write=[folder])
        progress.begin("trace")
        table51_trace(trace, rows=settings.rows, updates=settings.events, root=settings.network.seed)
        try:  # from here on it is ours to remove
            some = settings.events // PART
            progress.begin("warming up")
            _replay(spark, trace, smaller, settings, few, min(some, 100_000))
            found = []
            for events, count, there in (
                (some, settings.subscriptions, world),
                (settings.events, few, smaller),
                (settings.events, settings.subscriptions, world),
            ):
                progress.begin(f"{events:,} events, {count:,} subscriptions")
                seconds, replayed = _replay(spark, trace, there, settings, count, events)
                found.append(replayed)
            once["sending"] = seconds
        finally:
            trace.remove()
        return ScaleFound(settings, cores_of(spark), once, found)


def _replay(
    spark: SparkSession, trace: Place, world: World, settings: ScaleSettings, subscriptions: int, events: int
) -> tuple[float, Replayed]:
    """The seconds of sending the world, and the replay of the first events."""
    begun = perf_counter()
    with sent(spark, world) as given:
        sending = perf_counter() - begun
        chunks = chunks_for(events, spark.sparkContext.defaultParallelism)
        some = events_of(spark, trace).where(F.col("seq") < events)
        local = is_local(spark.sparkContext.master or "")
        with PeakMemory() as memory:
            begun, before = perf_counter(), _core_seconds()
            sums = replay_sums(spark, some, given, chunks=chunks, expected=(events, settings.rows)).toArrow()
            seconds = perf_counter() - begun
            used = _since(before) if local else seconds * cores_of(spark)
    verified(sums, given.names, events)
    return sending, Replayed(events, subscriptions, chunks, seconds, used, memory.peak_bytes)


def _since(before: dict[psutil.Process, float]) -> float:
    """The core seconds since then of all that still run. Those of Spark's workers that ended meanwhile are lost: the
    process that started them does not wait for them."""
    return sum(now - before.get(process, 0.0) for process, now in _core_seconds().items())


def _core_seconds() -> dict[psutil.Process, float]:
    """Of this process and each that it started, with those of its own that it waited for."""
    here, found = psutil.Process(), dict[psutil.Process, float]()
    for process in [here, *here.children(recursive=True)]:
        with suppress(psutil.Error):  # it ended meanwhile
            times = process.cpu_times()
            found[process] = times.user + times.system
            if process != here:
                found[process] += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return found


def told(found: ScaleFound) -> str:
    """What it comes to, in a few sentences."""
    settings, whole = found.settings, found.replays[-1]
    serial = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in found.once.items())
    share = found.work_s * settings.events / settings.cores
    return (
        f"An event costs {1e6 * found.work_s:.1f} microseconds of a core, and {found.flatness:.2f} times as much among "
        f"{whole.events:,} events as among {found.replays[0].events:,}. {settings.cores} cores like these would take "
        f"about {found.seconds_on(settings.cores):.0f} s: {share:.1f} s of work that they share, and what more cores "
        f"do not make shorter ({serial}, planning and collecting {found.fixed_s:.1f} s). About "
        f"{found.moved_bytes(settings.cores) / 1e9:.1f} GB would go from machine to machine. The start of Spark is not "
        "counted."
    )
