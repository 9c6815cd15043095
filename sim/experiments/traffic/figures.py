"""The traffic figures of Xie (2007) as a paper: its sections, how they are measured, and how its report begins."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace

from hullcast.network.wire.errors import UsageError
from hullcast.sim import XIE
from hullcast.sim.experiments.claims import Section
from hullcast.sim.experiments.data import RealData
from hullcast.sim.experiments.figures import Paper
from hullcast.sim.experiments.report import glossary
from hullcast.sim.experiments.run import ExperimentRun
from hullcast.sim.experiments.steps import RunFolder
from hullcast.sim.experiments.traffic import SECTIONS
from hullcast.sim.experiments.traffic.goals import EFFORT, goals
from hullcast.sim.experiments.traffic.inputs import check_prices, check_topology
from hullcast.sim.experiments.traffic.market import (
    control_section,
    market_inputs,
    market_section,
    market_steps,
    measure_market,
    stress_section,
)
from hullcast.sim.experiments.traffic.networks import frame_sizes
from hullcast.sim.experiments.traffic.replays import Replays
from hullcast.sim.experiments.traffic.scaling import STEPS as SCALING_STEPS
from hullcast.sim.experiments.traffic.scaling import scaling_section
from hullcast.sim.experiments.traffic.settings import FULL, QUICK, FigureSettings
from hullcast.sim.experiments.traffic.shares import affected_section, ignorable_section
from hullcast.sim.experiments.traffic.summary import read_lines
from hullcast.sim.output.goals import Goal

#: The words of the report, for readers who have seen nothing else.
WORDS = {
    "event": "a change of one row of a table, here a new price of a stock; x is the column that ranges are about, y "
    "the column whose minimum is asked for",
    "subscription": "`SELECT MIN(y) .. WHERE x BETWEEN x1 AND x2`, kept up to date for one user; an event *affects* it "
    "by changing its answer",
    "ignorable": "an event that cannot change any answer: another row with the same x has a y at least as low, before "
    "and after",
    "broker, gateway": "a process that passes messages on; the gateway of a subscription is the broker that its user "
    "is connected to",
    "frame": "all that one broker sends to another for one event, as one message",
    "S-CN": "server and content-based network, the way of Hullcast: the server describes in a few messages whose "
    "answers change, and brokers pass each message on to where a subscription is affected",
    "S-UN": "server and unicast: the server sends a frame to the gateway of every affected subscription; *aggregated*: "
    "one frame to every gateway that has any",
    "CN": "content-based network alone, without a server: every changed row, ignorable or not, goes to all gateways "
    "with a range that holds its x, and subscribers keep the rows and compute their answers",
    "placement": "how brokers are connected, and which of them is the gateway of a subscription: one of the following",
    "can": "content-addressable network (CAN): the plane of all ranges (x1, x2) is cut into *zones*, one for each "
    "broker, and the gateway is the owner of the zone that the range lies in",
    "can-greedy": "the same, but a message reaches its first zone from neighbour to neighbour instead of directly",
    "tree-content": "brokers form a tree below the server; the gateway is the owner of the range's zone, as in `can`",
    "tree-nearest, tree-random": "the same tree; the gateway is the broker nearest to the user, or any broker",
    "fanout": "how many children a broker of a tree has at most",
    "node stress, link stress": "the most frames that one broker sends, or that cross one physical link, for one event",
    "bytes x links": "the bytes of every frame, times the physical links on its path",
    "p99": "the least value that 99 % of the events do not exceed",
}


def steps(settings: FigureSettings, asked: Sequence[str], data: RealData | None) -> int:
    """How many steps the sections take: the network, Spark, and each section's own."""
    market = market_steps(settings, data.prices if data is not None else None)
    count = {
        "5.8": 2 * len(settings.ignorable),
        "5.9": 2 * len(settings.spikes),
        "5.10": market,
        "stress": 0 if "5.10" in asked else market,
        "control": 3 if data is not None and data.topology is not None else 0,
        "scaling": SCALING_STEPS,
    }
    return 2 + sum(count[name] for name in asked)


def measure(
    run: ExperimentRun, settings: FigureSettings, asked: Sequence[str], data: RealData | None
) -> tuple[list[Section], list[Goal]]:
    """The sections, and the goals that Figure 5.10 or node stress let us judge."""
    prices, topology = (data.prices, data.topology) if data is not None else (None, None)
    of_market = "5.10" in asked or "stress" in asked
    if topology is not None and "control" in asked:
        check_topology(topology, settings.network)
    if prices is not None and of_market and prices.is_local:
        check_prices(prices)
    replays = Replays(run, settings.network)
    replays.prepare()
    inputs = market_inputs(replays, settings, prices) if of_market else []
    found: dict[str, Section] = {}
    judged: list[Goal] = []
    if "5.8" in asked:
        found["5.8"] = ignorable_section(replays, settings)
    if "5.9" in asked:
        found["5.9"] = affected_section(replays, settings)
    if inputs:
        market = measure_market(replays, settings, inputs)
        judged = goals(market.lines, settings.network.fanout)
        if "5.10" in asked:
            found["5.10"] = market_section(replays, market)
        if "stress" in asked:
            found["stress"] = stress_section(replays, market)
    if "control" in asked and topology is not None:
        found["control"] = control_section(replays, settings, topology)
    if "scaling" in asked:
        found["scaling"] = scaling_section(replays, settings)
    return [found[name] for name in asked if name in found], judged


def begin(settings: FigureSettings, folder: RunFolder) -> list[str]:
    """What was run, what a small run cannot show, and the words of the report."""
    network = settings.network
    form = "full size" if settings.full else "a small run (`--quick`)"
    return [
        "# What a workload costs on the wire",
        f"The traffic figures of {XIE}, chapter 5, reproduced by simulation; below it is called Xie (2007). This is "
        f"{form}: {network.nodes:,} nodes of a network like the Internet (INET), {network.brokers:,} brokers, trees "
        f"with fanout {network.fanout}, seed {network.seed}. All replays together took {_minutes(folder):.1f} minutes.",
        *([] if settings.full else _small(settings)),
        "## Words",
        glossary(WORDS),
        "Bytes are those of frames between brokers as `network` encodes them, per event, ignorable events included. In "
        "the tables **bold** is what misses its goal or does not hold, *italic* what holds by construction and is not "
        "counted. How it is simulated: sim/SIMULATION.md.",
    ]


def _small(settings: FigureSettings) -> list[str]:
    """What a run of these sizes cannot show."""
    brokers, most = settings.network.brokers, settings.growing[-1]
    return [
        "## What this small run cannot show",
        f"- How far S-CN is below the others. With {brokers:,} brokers instead of {FULL.network.brokers:,} CN reaches "
        f"fewer gateways, and with at most {most:,} subscriptions instead of {FULL.growing[-1]:,} S-UN notifies fewer: "
        "both look cheaper than at full size, so goals may be missed here that full size reaches.",
        f"- The usual share of ignorable events. The market has {settings.days} days instead of {FULL.days}, and the "
        "first price of each stock is an insert, which is less often ignorable than a change.",
        "- Rare events. p99 and the most of all events stand on fewer events, so the worst may not be among them.",
        "- Time and memory. Replays are so short that starting Spark's jobs takes most of the time; goals of time and "
        "memory are judged at full size only.",
        "It does show the order of the approaches, and the shape of the curves.",
    ]


def _minutes(folder: RunFolder) -> float:
    """Of replay, in all steps there are, whenever they were made."""
    seconds = 0.0
    for path in (place / "lines.parquet" for place in folder.finished_steps()):
        if path.exists():
            with suppress(UsageError):  # damaged, and of a section that nobody asks for now
                seconds += sum(line.seconds for line in read_lines(path)[:1])
    return seconds / 60


PAPER = Paper(
    cited="Xie (2007)",
    sections=SECTIONS,
    full=FULL,
    quick=QUICK,
    seeded=lambda settings, seed: replace(settings, network=replace(settings.network, seed=seed)),
    plain=lambda settings: asdict(settings) | frame_sizes(),
    steps=steps,
    measure=measure,
    begin=begin,
    effort=EFFORT,
    no_goals="Goals are judged from Figure 5.10, which was not asked for.",
    no_data={
        "prices": "Real prices, EPS and recommendations: neither --prices and --fundamentals nor --data was given.",
        "topology": "A real network: neither --topology nor --data was given.",
    },
    need_topology=("control",),
)
