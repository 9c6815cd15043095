"""The traffic figures of Xie (2007) as a paper: its sections, their measurements, and its report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace

from hullcast.network.wire.errors import UsageError
from hullcast.sim import XIE
from hullcast.sim.experiments.data import RealData
from hullcast.sim.experiments.figures import Paper
from hullcast.sim.experiments.report import glossary
from hullcast.sim.experiments.run import ExperimentRun
from hullcast.sim.experiments.steps import RunFolder
from hullcast.sim.experiments.traffic import SECTIONS
from hullcast.sim.experiments.traffic.charts import draw_servers
from hullcast.sim.experiments.traffic.goals import EFFORT, goals
from hullcast.sim.experiments.traffic.inputs import check_prices, check_topology
from hullcast.sim.experiments.traffic.judging import CITED
from hullcast.sim.experiments.traffic.market import (
    control_section,
    market_inputs,
    market_section,
    market_steps,
    measure_market,
    stress_section,
)
from hullcast.sim.experiments.traffic.networks import MOST_DRAWS, Draw, frame_sizes
from hullcast.sim.experiments.traffic.replays import Replays
from hullcast.sim.experiments.traffic.scaling import STEPS as SCALING_STEPS
from hullcast.sim.experiments.traffic.scaling import scaling_section
from hullcast.sim.experiments.traffic.server import server_sections
from hullcast.sim.experiments.traffic.settings import FULL, QUICK, FigureSettings
from hullcast.sim.experiments.traffic.shares import affected_section, ignorable_section, shares_steps
from hullcast.sim.experiments.traffic.summary import read_lines
from hullcast.sim.output.claims import Claim, Section, over_draws
from hullcast.sim.output.goals import Goal
from hullcast.sim.output.text import number
from hullcast.sim.spark.storage import Place

#: A server is an outlier if fewer or more of the brokers than these are nearer to all others than it is.
USUAL = (0.05, 0.95)
#: Sections that need no network.
SERVER = {"5.2", "5.3", "5.6", "5.7"}
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
    "draw": "one of the networks: which nodes are brokers, which of them is the server, and where gateways are",
    "fanout": "how many children a broker of a tree has at most",
    "node stress, link stress": "the most frames that one broker sends, or that cross one physical link, for one event",
    "bytes x links": "the bytes of every frame, times the physical links on its path",
    "p99": "the least value that 99 % of the events do not exceed",
}


def steps(settings: FigureSettings, asked: Sequence[str], data: RealData | None) -> int:
    """How many steps the sections take: the network, Spark, and each section's own."""
    market = market_steps(settings, data.prices if data is not None else None)
    count = {
        "5.2": 1,
        "5.6": 0 if "5.2" in asked else 1,
        "5.3": 1,
        "5.7": 0 if "5.3" in asked else 1,
        "networks": 1,
        "5.8": shares_steps(len(settings.ignorable)),
        "5.9": shares_steps(len(settings.spikes)),
        "5.10": market,
        "stress": 0 if "5.10" in asked else market,
        "control": 3 if data is not None and data.topology is not None else 0,
        "scaling": SCALING_STEPS,
    }
    return (2 if _replayed(asked) else 0) + sum(count[name] for name in asked)


def _replayed(asked: Sequence[str]) -> bool:
    """Whether any section needs the network."""
    return not set(asked) <= SERVER


def measure(
    run: ExperimentRun, settings: FigureSettings, asked: Sequence[str], data: RealData | None, keep: bool
) -> tuple[list[Section], list[Goal]]:
    """The sections, and the goals that Figure 5.10 or node stress let us judge."""
    prices, topology = (data.prices, data.topology) if data is not None else (None, None)
    of_market = "5.10" in asked or "stress" in asked
    if topology is not None and "control" in asked:
        check_topology(topology, settings.network)
    if prices is not None and of_market and prices.is_local:
        check_prices(prices)
    replays = Replays(run, settings.network, draws=settings.seeds, keep=keep)
    if _replayed(asked):
        replays.prepare()
    inputs = market_inputs(replays, settings, prices) if of_market else []
    found: dict[str, Section] = {}
    judged: list[Goal] = []
    if "networks" in asked:
        found["networks"] = networks_section(replays)
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
    found |= server_sections(run, settings.engine, asked)  # last, without Spark beside it
    if "scaling" in asked:
        found["scaling"] = scaling_section(replays, settings)
    return [found[name] for name in asked if name in found], judged


def networks_section(replays: Replays) -> Section:
    """Where the server of each draw is among its brokers: a remote one makes S-UN expensive, and every tree deep."""

    def make(path: Place) -> None:
        drawn = [asdict(replays.network(draw=draw).draw()) for draw in range(replays.draws)]
        (path / "draws.json").write_bytes(json.dumps(drawn, indent=1).encode())

    place = replays.run.step("networks", {}, make, what="where the servers are")
    draws = [Draw(**told) for told in json.loads((place / "draws.json").read_bytes())]
    picture = draw_servers(draws, replays.run.folder.folder / "networks.png")
    rows = [["seed", "mean latency to a broker", "of the median broker", "brokers that are nearer", "links to a broker",
             "of the median broker"]]  # fmt: skip
    for draw in draws:
        latency = [number(draw.distance), number(draw.quantiles[2])]
        rows.append([str(draw.seed), *latency, f"{draw.rank:.1%}", number(draw.links), number(draw.links_median)])
    return Section(
        "networks",
        "Networks: where the server is",
        f"{replays.settings.brokers:,} of {replays.settings.nodes:,} nodes are brokers, one of them is the server, all "
        "drawn with equal chance. The latency between two brokers is that of the shortest path; a server that is far "
        "from all others makes more bytes cross more links, above all with S-UN, which sends everything itself.",
        "",
        over_draws([[_usual(draw)] for draw in draws]),
        pictures={"Mean latency of the server to all brokers, among that of all brokers, a row for each draw": picture},
        figures=[rows],
    )


def _usual(draw: Draw) -> Claim:
    low, high = USUAL
    statement = f"(ours) the server is no outlier: {low:.0%} to {high:.0%} of the brokers are nearer to all others"
    because, far = "it was drawn so", f"{draw.rank:.1%}"
    holds = low <= draw.rank <= high
    return Claim("", statement, far, holds, because, far, value=draw.rank, form="{:.1%}".format)


def begin(settings: FigureSettings, folder: RunFolder) -> list[str]:
    """What was run, what a small run cannot show, and the words of the report."""
    network = settings.network
    form = "full size" if settings.full else "a small run (`--quick`)"
    return [
        "# What a workload costs on the wire",
        f"The tables and figures of {XIE}, chapter 5, reproduced by simulation; below it is called Xie (2007). This is "
        f"{form}: {network.nodes:,} nodes of a network like the Internet (INET), {network.brokers:,} brokers, trees "
        f"with fanout {network.fanout}. {_drawn(settings)} All replays together took {_minutes(folder):.1f} minutes.",
        *([] if settings.full else _small(settings)),
        "## Words",
        glossary(WORDS),
        "Bytes are those of frames between brokers as `network` encodes them, per event, ignorable events included. In "
        "the tables **bold** is what misses its goal or does not hold, *italic* what holds by construction and is not "
        "counted. How it is simulated: sim/SIMULATION.md.",
    ]


def _drawn(settings: FigureSettings) -> str:
    first, draws = settings.network.seed, settings.seeds
    if draws == 1:
        return f"One network was drawn (seed {first}); how much depends on the draw cannot be seen."
    return (
        f"{draws} networks were drawn (seeds {first} to {first + draws - 1}), each with brokers, server and gateways "
        f"of its own; workload and subscriptions are the same on all (seed {first}). Figures are those of the draw in "
        "the middle; in brackets from where to where the draws go, in a statement with several figures for the one "
        "that decides. A statement *holds* if it does in every draw."
    )


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


def _seeded(settings: FigureSettings, seed: int, seeds: int | None) -> FigureSettings:
    draws = settings.seeds if seeds is None else seeds
    if draws > MOST_DRAWS:
        raise UsageError(f"--seeds {draws}: one pass replays at most {MOST_DRAWS} networks")
    return replace(settings, network=replace(settings.network, seed=seed), seeds=draws)


PAPER = Paper(
    cited=CITED,
    sections=SECTIONS,
    full=FULL,
    quick=QUICK,
    seeded=_seeded,
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
