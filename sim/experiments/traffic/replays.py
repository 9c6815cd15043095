"""One way to measure a workload, for all figures: a replay over the network, as a step of the run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.run import ExperimentRun, PeakMemory, cores_of, kept
from hullcast.sim.experiments.steps import file_mark
from hullcast.sim.experiments.traffic.networks import Law, Network, build_network, drawn_world, undrawn
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
from hullcast.sim.traces.trace import Where, contents_mark, read_info
from hullcast.sim.traces.trace import events as events_of
from hullcast.sim.traffic.chunk import compile_kernels
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

    def __init__(
        self,
        run: ExperimentRun,
        settings: NetworkSettings,
        *,
        chunks: int | None = None,
        draws: int = 1,
        keep: bool = False,
    ) -> None:
        """`draws`: networks, all replayed in one pass. `keep`: the per-event table of every step."""
        self.run, self.settings, self.draws = run, settings, draws
        self._chunks, self._keep = chunks, keep
        self._warm = False
        self._networks: dict[tuple[Path | None, int], Network] = {}

    def network(self, topology: Path | None = None, draw: int = 0) -> Network:
        """A network over INET's topology, or over the one in a file; each draw has a seed of its own."""
        if (topology, draw) not in self._networks:
            drawn = replace(self.settings, seed=self.settings.seed + draw)
            self._networks[topology, draw] = build_network(drawn, topology)
        return self._networks[topology, draw]

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
        keep = keep or self._keep
        settings: dict[str, object] = {
            "workload": point.workload,
            "trace": asdict(read_info(point.trace)),
            "trace_contents": contents_mark(point.trace),
            "law": asdict(point.law),
            "subscriptions": point.subscriptions,
            "placements": point.placements,
            "topology": file_mark(point.topology),
            "keep": keep,
        }
        place = self.run.step(point.name, settings, lambda path: self._measure(point, path, keep))
        return Measured(read_lines(place / "lines.parquet"), read_stress(place / "stress.parquet"), place)

    def warmed(self, world: World) -> World:
        """The world, for which all kernels are compiled by now."""
        if not self._warm:
            compile_kernels(world)
            self._warm = True
        return world

    def _measure(self, point: Point, path: Place, keep: bool) -> None:
        info, spark = read_info(point.trace), self.run.spark
        networks = [self.network(point.topology, draw) for draw in range(self.draws)]
        if info.events < 1:
            raise UsageError(f"the trace {point.trace} has no events")
        begun = perf_counter()
        ranges = point.law.ranges(point.subscriptions, root=self.settings.seed)
        world = drawn_world(networks, point.law, ranges, point.placements)
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
        about = (point.workload, networks[0].topology.name, point.x, point.subscriptions, info.start)
        measured = (self.settings.brokers, seconds, memory.peak_bytes)
        lines = []
        for cost in found:
            draw, name = undrawn(cost.placement)
            lines.append(TrafficLine(*about, *measured, replace(cost, placement=name), cores_of(spark), draw))
        entries = [(entry, *undrawn(entry.placement)) for entry in stress]
        write_lines(lines, path / "lines.parquet")
        write_stress([replace(e, placement=name, draw=draw) for e, draw, name in entries], path / "stress.parquet")
