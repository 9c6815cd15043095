"""One way to measure a workload, for all figures: a replay over the simulated network, as a step of the run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.run import ExperimentRun, PeakMemory, cores_of, kept
from hullcast.sim.experiments.steps import file_mark
from hullcast.sim.experiments.traffic.networks import Law, Network, build_network
from hullcast.sim.experiments.traffic.settings import NetworkSettings
from hullcast.sim.experiments.traffic.summary import (
    Stress,
    TrafficLine,
    read_lines,
    read_stress,
    summarize,
    verified,
    write_lines,
    write_stress,
)
from hullcast.sim.spark.session import watched
from hullcast.sim.spark.storage import Place
from hullcast.sim.traces.trace import Where, read_info
from hullcast.sim.traces.trace import events as events_of
from hullcast.sim.traffic.chunk import replay_chunk
from hullcast.sim.traffic.rectangles import Events, StartRows
from hullcast.sim.traffic.replay import chunks_for, replay, replay_sums, sums_of
from hullcast.sim.traffic.sending import sent
from hullcast.sim.traffic.world import World


@dataclass(frozen=True, slots=True)
class Point:
    """A workload to be measured: one point of each of a figure's lines."""

    name: str  # of the step
    workload: str
    x: float
    trace: Where
    law: Law
    subscriptions: int
    placements: tuple[str, ...]
    topology: Path | None = None  # None: INET


@dataclass(frozen=True, slots=True)
class Measured:
    """What a step found."""

    lines: list[TrafficLine]
    stress: list[Stress]
    place: Place  # its folder; with `keep` the per-event table is in `events` there


class Replays:
    """Replays of one run. Networks are made when a step first needs them, and kept."""

    def __init__(self, run: ExperimentRun, settings: NetworkSettings, *, chunks: int | None = None) -> None:
        self.run, self.settings = run, settings
        self._chunks = chunks
        self._warm = False
        self._networks: dict[Path | None, Network] = {}

    def network(self, topology: Path | None = None) -> Network:
        """The network over INET's topology, or over the one in a file."""
        if topology not in self._networks:
            self._networks[topology] = build_network(self.settings, topology)
        return self._networks[topology]

    def prepare(self, topology: Path | None = None) -> None:
        """Make the network and start Spark for a new run, so that what is missing is reported before the first step."""
        self.run.progress.begin("network")
        if self.run.folder.is_new:
            self.network(topology)
        self.run.progress.begin("Spark")
        if self.run.folder.is_new:
            assert self.run.spark is not None

    def measure(self, point: Point, *, keep: bool = False) -> Measured:
        """Replay a workload, or read what an earlier run found. `keep`: the per-event table as well.

        UsageError, and no step, if the result does not hold every event of the trace.
        """
        settings = {
            "workload": point.workload,
            "trace": asdict(read_info(point.trace)),
            "law": asdict(point.law),
            "subscriptions": point.subscriptions,
            "placements": point.placements,
            "topology": file_mark(point.topology),
            "keep": keep,
        }
        place = self.run.step(point.name, settings, lambda path: self._measure(point, path, keep))
        return Measured(read_lines(place / "lines.parquet"), read_stress(place / "stress.parquet"), place)

    def warmed(self, world: World) -> World:
        """Compile all kernels here, once: Spark's workers then load them, and do not all compile them at a time."""
        if not self._warm:
            one, empty = np.zeros(1, np.int64), np.empty(0, np.int64)
            replay_chunk(StartRows(empty, np.empty(0), np.empty(0)), Events(one, one, np.ones(1), np.ones(1)), world)
            self._warm = True
        return world

    def _measure(self, point: Point, path: Place, keep: bool) -> None:
        info, network, spark = read_info(point.trace), self.network(point.topology), self.run.spark
        if info.events < 1:
            raise UsageError(f"the trace {point.trace} has no events")
        begun = perf_counter()
        ranges = point.law.ranges(point.subscriptions, root=self.settings.seed)
        world = network.world(point.law, ranges, point.placements)
        seconds = perf_counter() - begun
        self.warmed(world)
        begun = perf_counter()
        with PeakMemory() as memory, watched(spark, self.run.progress.tasks), sent(spark, world) as given:
            chunks = self._chunks or chunks_for(info.events, spark.sparkContext.defaultParallelism)
            events, expected = events_of(spark, point.trace), (info.events, info.start)
            if keep:
                costs = replay(spark, events, given, chunks=chunks, expected=expected)
                sums = sums_of(kept(costs, path / "events"))
            else:
                sums = replay_sums(spark, events, given, chunks=chunks, expected=expected)
            found, stress = summarize(verified(sums.toArrow(), given.names, info.events))
        seconds += perf_counter() - begun
        about = (point.workload, network.topology.name, point.x, point.subscriptions, info.start)
        measured = (self.settings.brokers, seconds, memory.peak_bytes)
        lines = [TrafficLine(*about, *measured, cost, cores_of(spark)) for cost in found]
        write_lines(lines, path / "lines.parquet")
        write_stress(stress, path / "stress.parquet")
