"""`hullcast sim traffic`: one workload replayed, event by event and in summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from hullcast.network.wire.errors import UsageError
from hullcast.sim.experiments.run import ExperimentRun, StepProgress
from hullcast.sim.experiments.steps import RunFolder, file_mark
from hullcast.sim.experiments.traffic.charts import draw_summary
from hullcast.sim.experiments.traffic.inputs import market_step
from hullcast.sim.experiments.traffic.judging import placements_of
from hullcast.sim.experiments.traffic.networks import WITH_GREEDY, Law, frame_sizes
from hullcast.sim.experiments.traffic.replays import Point, Replays
from hullcast.sim.experiments.traffic.settings import NetworkSettings
from hullcast.sim.experiments.traffic.summary import TrafficLine, write_lines
from hullcast.sim.output.text import markdown, number
from hullcast.sim.overlay import PLACEMENTS
from hullcast.sim.spark.options import SparkOptions
from hullcast.sim.spark.session import DEFAULT, reaching
from hullcast.sim.spark.storage import Place, place_of
from hullcast.sim.traces.checking import check_whole
from hullcast.sim.traces.trace import Where, contents_mark, read_info

STEPS = 5
#: Each takes up to 140 bytes in the command and in every worker; more is a typing error rather than a wish.
MOST_SUBSCRIPTIONS = 20_000_000
COLUMNS = (
    *("placement", "approach", "bytes", "messages", "bytes x links", "bytes, changing only"),
    *("node stress", "p99", "most", "link stress", "p99", "most"),
)
#: What the columns mean, for readers who have seen nothing else.
LEGEND = (
    "S-CN is the way of Hullcast. S-UN: the server sends a message to each affected subscription (aggregated: to each "
    "broker that has any). CN: each changed row goes to all brokers with a range that holds it. Changing only: the "
    "mean over events that can change an answer. Stress: the most messages that one broker sends, or that cross one "
    "link, for one event."
)


@dataclass(frozen=True, slots=True)
class TrafficSettings:
    """All that decides what a replay finds. Without a trace it is the calibrated market."""

    network: NetworkSettings = field(default_factory=NetworkSettings)
    subscriptions: int = 500_000
    placements: tuple[str, ...] = PLACEMENTS
    trace: Where | None = None
    topology: Path | None = None
    stocks: int = 3_053
    days: int = 60

    def __post_init__(self) -> None:
        strange = [name for name in self.placements if name not in WITH_GREEDY]
        if strange:
            raise UsageError(f"unknown placement {', '.join(strange)}; choose among {', '.join(WITH_GREEDY)}")
        if self.subscriptions < 1:
            raise UsageError("a replay needs at least one subscription")
        if self.subscriptions > MOST_SUBSCRIPTIONS:
            raise UsageError(
                f"{self.subscriptions:,} subscriptions are more than fit in memory; the limit is {MOST_SUBSCRIPTIONS:,}"
            )


@dataclass(frozen=True, slots=True)
class TrafficFound:
    """What was found, and where it is."""

    lines: list[TrafficLine]
    events: Place | None  # Parquet: a row per event, placement and approach, if it was asked for
    summary: Place
    reused: list[str]


def run_traffic(
    settings: TrafficSettings,
    out: Place | Path,
    progress: StepProgress,
    *,
    options: SparkOptions = DEFAULT,
    chunks: int | None = None,
    keep: bool = False,
    resume: bool = False,
    spark: SparkSession | None = None,
) -> TrafficFound:
    """Replay, and write summary.parquet, summary.md and summary.png; with `keep` the per-event table, too."""
    trace = None if settings.trace is None else place_of(settings.trace)
    with reaching([place_of(out), *([trace] if trace is not None else [])], options, app="hullcast sim"):
        return _run_traffic(settings, trace, out, progress, options, chunks, keep, resume, spark)


def _run_traffic(
    settings: TrafficSettings,
    given: Place | None,
    out: Place | Path,
    progress: StepProgress,
    options: SparkOptions,
    chunks: int | None,
    keep: bool,
    resume: bool,
    spark: SparkSession | None,
) -> TrafficFound:
    plain = asdict(settings) | frame_sizes() | {"trace": None, "topology": file_mark(settings.topology)}
    if given is not None:
        info = read_info(given)
        if given.is_local:  # elsewhere the replay itself looks
            check_whole(given, info)
        plain |= {"trace": asdict(info), "trace_contents": contents_mark(given)}
    with (
        RunFolder(out, plain, resume=resume) as folder,
        ExperimentRun(folder, progress, options=options, reads=[given] if given else (), spark=spark) as run,
    ):
        replays = Replays(run, settings.network, chunks=chunks)
        replays.prepare(settings.topology)
        if given is not None:
            progress.begin("trace")
        trace = given or market_step(replays, settings.stocks, settings.days, "trace")
        info = read_info(trace)
        law, count = Law().over(info.domain), settings.subscriptions
        point = Point("replay", info.name, count, trace, law, count, settings.placements, settings.topology)
        found = replays.measure(point, keep=keep)
        progress.begin("summary")
        write_lines(found.lines, folder.folder / "summary.parquet")
        place_of(folder.folder / "summary.md").write_text(summary_text(found.lines))
        draw_summary(found.lines, folder.folder / "summary.png")
        kept = found.place / "events" if keep else None
        return TrafficFound(found.lines, kept, folder.place / "summary.md", folder.reused)


def rows_of(lines: Sequence[TrafficLine]) -> list[list[str]]:
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


def about(lines: Sequence[TrafficLine]) -> str:
    """What was replayed, in a sentence."""
    line = lines[0]
    cost = line.cost
    return (
        f"{line.workload}: {cost.events:,} events, of which {cost.changing / cost.events:.1%} can change an answer; "
        f"{line.subscriptions:,} subscriptions, of which an event affects {number(cost.affected)} on average; "
        f"{line.brokers:,} brokers on {line.topology}. Replayed in {line.seconds:.1f} s on {line.cores} cores, with "
        f"{line.memory_bytes / 1e9:.1f} GB of memory"
    )


def summary_text(lines: Sequence[TrafficLine]) -> str:
    """summary.md."""
    return (
        f"# Traffic\n\n{about(lines)}.\n\nPer event, ignorable ones included:\n\n"
        f"{markdown([list(COLUMNS), *rows_of(lines)])}\n\n{LEGEND}\n\n![traffic](summary.png)\n"
    )
