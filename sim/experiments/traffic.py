"""`hullcast sim traffic`: one workload replayed, event by event and in summary."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

from network.wire.errors import UsageError
from sim.experiments.claims import number, placements_of
from sim.experiments.inputs import make_market
from sim.experiments.memory import PeakMemory
from sim.experiments.networks import WITH_GREEDY, frame_sizes
from sim.experiments.report import table
from sim.experiments.settings import NetworkSettings
from sim.experiments.stage import Stage
from sim.experiments.steps import RunFolder, file_mark, write_text
from sim.experiments.subscriptions import Law
from sim.experiments.summary import Line, read_lines, reduced, summarize, write_lines, write_stress
from sim.experiments.summary_chart import draw_summary
from sim.overlay.placement import PLACEMENTS
from sim.spark import watched
from sim.traces.trace import events as events_of
from sim.traces.trace import read_info
from sim.traffic.replay import replay, sent

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sim.experiments.stage import Progress

STEPS = 3
COLUMNS = (
    *("placement", "approach", "bytes", "messages", "bytes x links", "bytes, changing only"),
    *("node stress", "p99", "most", "link stress", "p99", "most"),
)


@dataclass(frozen=True, slots=True)
class TrafficSettings:
    """All that decides what a replay finds. Without a trace it is the calibrated market."""

    network: NetworkSettings = field(default_factory=NetworkSettings)
    subscriptions: int = 500_000
    placements: tuple[str, ...] = PLACEMENTS
    trace: Path | None = None
    topology: Path | None = None
    stocks: int = 3_053
    days: int = 60

    def __post_init__(self) -> None:
        strange = [name for name in self.placements if name not in WITH_GREEDY]
        if strange:
            raise UsageError(f"no placement {', '.join(strange)}; there are {', '.join(WITH_GREEDY)}")
        if self.subscriptions < 1:
            raise UsageError("a replay needs a subscription at least")


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was found, and where it is."""

    lines: list[Line]
    events: Path  # Parquet: a row per event, placement and approach
    summary: Path
    reused: list[str]


def run_traffic(
    settings: TrafficSettings,
    out: Path,
    progress: Progress,
    *,
    master: str | None = None,
    chunks: int | None = None,
    resume: bool = False,
    spark: SparkSession | None = None,
) -> Traffic:
    """Replay, and write events, summary.parquet, summary.md and summary.png."""
    plain = asdict(settings) | frame_sizes() | {"trace": None, "topology": file_mark(settings.topology)}
    if settings.trace is not None:
        plain["trace"] = asdict(read_info(settings.trace))
    with (
        RunFolder(out, plain, resume=resume) as folder,
        Stage(folder, settings.network, progress, master=master, chunks=chunks, spark=spark) as stage,
    ):
        progress.begin("trace")
        trace = settings.trace or _market(stage, settings)
        progress.begin("replay")
        place = folder.step("replay", {}, lambda path: _replay(stage, settings, trace, path))
        progress.begin("summary")
        lines = read_lines([place / "lines.parquet"])
        write_lines(lines, out / "summary.parquet")
        write_text(out / "summary.md", summary_text(lines))
        draw_summary(lines, out / "summary.png")
        return Traffic(lines, place / "events", out / "summary.md", folder.reused)


def _market(stage: Stage, settings: TrafficSettings) -> Path:
    sizes = {"stocks": settings.stocks, "days": settings.days}
    return stage.folder.step(
        "trace-market",
        sizes,
        lambda path: make_market(path, settings.stocks, settings.days, settings.network.seed),
    )


def _replay(stage: Stage, settings: TrafficSettings, trace: Path, path: Path) -> None:
    info, network = read_info(trace), stage.network(settings.topology)
    law, spark = Law().over(info.domain), stage.spark
    begun = perf_counter()
    ranges = law.ranges(settings.subscriptions, root=settings.network.seed)
    world = stage.warmed(network.world(law, ranges, settings.placements))
    with PeakMemory() as memory, watched(spark, stage.progress.tasks), sent(spark, world) as given:
        costs = replay(spark, events_of(spark, trace), given, chunks=stage.chunks(info.events))
        costs.write.parquet(str((path / "events").resolve()))
        found, stress = summarize(reduced(spark.read.parquet(str((path / "events").resolve()))))
    seconds = perf_counter() - begun
    about = (info.name, network.topology.name, float(settings.subscriptions), settings.subscriptions, info.start)
    lines = [Line(*about, settings.network.brokers, seconds, memory.peak_bytes, cost) for cost in found]
    write_lines(lines, path / "lines.parquet")
    write_stress(stress, path / "stress.parquet")


def rows_of(lines: Sequence[Line]) -> list[list[str]]:
    """Per event: a row for each placement and approach, below COLUMNS."""
    rows = []
    for placement in placements_of(lines):
        for line in lines:
            cost = line.cost
            if cost.placement == placement:
                traffic = (cost.bytes, cost.messages, cost.byte_links, cost.bytes_changing)
                node = [number(cost.node_stress), f"{cost.node_stress_p99:,}", f"{cost.node_stress_max:,}"]
                link = [number(cost.link_stress), f"{cost.link_stress_p99:,}", f"{cost.link_stress_max:,}"]
                rows.append([placement, cost.approach, *map(number, traffic), *node, *link])
    return rows


def about(lines: Sequence[Line]) -> str:
    """What was replayed, in a sentence."""
    line = lines[0]
    cost = line.cost
    return (
        f"{line.workload}: {cost.events:,} events, {cost.changing / cost.events:.1%} of them not ignorable, "
        f"{line.subscriptions:,} subscriptions (an event affects {number(cost.affected)}), {line.brokers:,} brokers "
        f"over {line.topology}; replayed in {line.seconds:.1f} s with {line.memory_bytes / 1e9:.1f} GB"
    )


def summary_text(lines: Sequence[Line]) -> str:
    """summary.md."""
    return (
        f"# Traffic\n\n{about(lines)}.\n\nPer event, ignorable ones included:\n\n"
        f"{table([list(COLUMNS), *rows_of(lines)])}\n\n![traffic](summary.png)\n"
    )
