"""What every experiment stands on: the run's folder, Spark, networks, and one way to measure a workload.

Spark and networks are made when a step needs them first, so that a run whose steps are all there needs neither.
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.memory import PeakMemory
from hullcast.sim.experiments.networks import build_network
from hullcast.sim.experiments.steps import file_mark
from hullcast.sim.experiments.summary import (
    Line,
    Stress,
    read_lines,
    read_stress,
    reduced,
    summarize,
    write_lines,
    write_stress,
)
from hullcast.sim.spark.needs import check_workers, is_local
from hullcast.sim.spark.session import path_to_read, path_to_write, spark_session, watched
from hullcast.sim.traces.trace import events as events_of
from hullcast.sim.traces.trace import read_info
from hullcast.sim.traffic.chunk import Events, StartRows, replay_chunk
from hullcast.sim.traffic.replay import replay, sent

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from pyspark.sql import DataFrame, SparkSession

    from hullcast.sim.experiments.networks import Network
    from hullcast.sim.experiments.settings import NetworkSettings
    from hullcast.sim.experiments.steps import RunFolder
    from hullcast.sim.experiments.subscriptions import Law
    from hullcast.sim.traffic.chunk import World

#: Events in a chunk at most: what comes back from one is held in memory (16 rows of 70 bytes an event).
CHUNK_EVENTS = 50_000
MEMORY = "2g"


class Progress(Protocol):
    """Whoever shows how far a run has come."""

    def begin(self, what: str) -> None:
        """A step begins, and the one before it is done."""

    def tasks(self, done: int, known: int) -> None:
        """Within a step: Spark's tasks."""


@dataclass(frozen=True, slots=True)
class Point:
    """A workload to be measured: one point of each of a figure's lines."""

    name: str  # of the step
    workload: str
    x: float
    trace: Path
    law: Law
    subscriptions: int
    placements: tuple[str, ...]
    topology: Path | None = None  # None: INET


@dataclass(frozen=True, slots=True)
class Measured:
    """What a step found."""

    lines: list[Line]
    stress: list[Stress]
    place: Path  # its folder; with `keep` the per-event table is in `events` there


class Stage:
    """For `with`; Spark ends with it."""

    def __init__(
        self,
        folder: RunFolder,
        settings: NetworkSettings,
        progress: Progress,
        *,
        master: str | None = None,
        chunks: int | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        """`spark`: a session that is there already, and stays."""
        self.folder, self.settings, self.progress, self.master = folder, settings, progress, master
        self._chunks = chunks
        self._ends = ExitStack()
        self._spark = spark
        self._warm = False
        self._networks: dict[Path | None, Network] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.__exit__(kind, error, trace)  # the session tells in a line what went wrong inside the JVM

    @property
    def spark(self) -> SparkSession:
        """The session, started when first asked for."""
        if self._spark is None:
            # Plans as they are: chunks have partitions of their own already, and a job for each stage would cost more.
            options = {"spark_sql_adaptive_enabled": "false"}
            session = spark_session(self.master, app="hullcast sim", memory=MEMORY, **options)
            spark = self._ends.enter_context(session)
            if not is_local(spark.sparkContext.master or ""):
                check_workers(spark)
            self._spark = spark
        return self._spark

    def stop_spark(self) -> None:
        """End the session; it starts again when somebody asks for it. For those who open sessions of their own."""
        self._ends.close()
        self._ends, self._spark = ExitStack(), None

    def network(self, topology: Path | None = None) -> Network:
        """The network over INET's topology, or over the one in a file."""
        if topology not in self._networks:
            self._networks[topology] = build_network(self.settings, topology)
        return self._networks[topology]

    def prepare(self, topology: Path | None = None) -> None:
        """Make the network and start Spark, if the run is a new one: what is missing is better told before steps."""
        self.progress.begin("network")
        if self.folder.is_new:
            self.network(topology)
        self.progress.begin("Spark")
        if self.folder.is_new:
            assert self.spark is not None

    def chunks(self, events: int) -> int:
        """How many, unless it was said: enough for every core, and none larger than fits in memory."""
        return self._chunks or chunks_for(events, self.spark.sparkContext.defaultParallelism)

    def measure(self, point: Point, *, keep: bool = False) -> Measured:
        """Replay a workload, or read what an earlier run found. `keep`: the per-event table as well."""
        self.progress.begin(point.name)
        settings = {
            "workload": point.workload,
            "trace": asdict(read_info(point.trace)),
            "law": asdict(point.law),
            "subscriptions": point.subscriptions,
            "placements": point.placements,
            "topology": file_mark(point.topology),
        }
        place = self.folder.step(point.name, settings, lambda path: self._measure(point, path, keep))
        return Measured(read_lines([place / "lines.parquet"]), read_stress(place / "stress.parquet"), place)

    def warmed(self, world: World) -> World:
        """Compile all kernels here, once: Spark's workers then load them, and do not all compile them at a time."""
        if not self._warm:
            one, empty = np.zeros(1, np.int64), np.empty(0, np.int64)
            replay_chunk(StartRows(empty, np.empty(0), np.empty(0)), Events(one, one, np.ones(1), np.ones(1)), world)
            self._warm = True
        return world

    def _measure(self, point: Point, path: Path, keep: bool) -> None:
        info, network, spark = read_info(point.trace), self.network(point.topology), self.spark
        if info.events < 1:
            raise UsageError(f"the trace {point.trace} has no events")
        begun = perf_counter()
        ranges = point.law.ranges(point.subscriptions, root=self.settings.seed)
        world = network.world(point.law, ranges, point.placements)
        seconds = perf_counter() - begun
        self.warmed(world)
        begun = perf_counter()
        with PeakMemory() as memory, watched(spark, self.progress.tasks), sent(spark, world) as given:
            chunks, expected = self.chunks(info.events), (info.events, info.start)
            costs = replay(spark, events_of(spark, point.trace), given, chunks=chunks, expected=expected)
            found, stress = summarize(reduced(kept(costs, path / "events") if keep else costs))
        seconds += perf_counter() - begun
        about = (point.workload, network.topology.name, point.x, point.subscriptions, info.start)
        measured = (self.settings.brokers, seconds, memory.peak_bytes)
        lines = [Line(*about, *measured, cost, cores_of(spark)) for cost in found]
        write_lines(lines, path / "lines.parquet")
        write_stress(stress, path / "stress.parquet")


def kept(table: DataFrame, folder: Path) -> DataFrame:
    """A table that is on disk from now on, and not computed again."""
    table.write.parquet(path_to_write(folder))
    return table.sparkSession.read.schema(table.schema).parquet(path_to_read(folder))


def cores_of(spark: SparkSession) -> int:
    """How many tasks run at the same time. (`defaultParallelism` says of local sessions what we set it to.)"""
    local = re.fullmatch(r"local(?:\[(\d+|\*).*\])?", spark.sparkContext.master or "")
    if local is None:
        return spark.sparkContext.defaultParallelism
    return os.cpu_count() or 1 if local[1] == "*" else int(local[1] or 1)


def chunks_for(events: int, parallel: int) -> int:
    """A multiple of what runs at the same time, so that nobody waits for a last chunk."""
    rounds = -(-events // (parallel * CHUNK_EVENTS))
    return max(1, rounds) * parallel
