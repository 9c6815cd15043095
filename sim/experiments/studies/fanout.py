"""How many children a broker should have: traffic, load and delay by the fanout of the tree.

An operator who connects brokers chooses a fanout. A flat tree is fast and sends few frames, but its root sends all of
them; a deep tree shares the work, and every level delays. Here both are measured on a small network.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from statistics import median

import numpy as np

from hullcast.sim.experiments.study import GridPoint, Study, StudyPart, Sweep, grid
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.claims import Claim, Section
from hullcast.sim.output.text import factor, number, short, times
from hullcast.sim.overlay.placement import choose_brokers, place
from hullcast.sim.overlay.tree import FANOUT, BrokerTree
from hullcast.sim.topology.inet import inet
from hullcast.sim.topology.paths import Routes, routes
from hullcast.sim.traces.table51 import Changes, RangeColumns, Workload
from hullcast.sim.traffic.chunk import S_CN, replay_chunk
from hullcast.sim.traffic.rectangles import Events, StartRows
from hullcast.sim.traffic.world import World

PLACED = {"tree-content": "by content", "tree-nearest": "nearest", "tree-random": "random"}
COST = {"tree-content": 1.0, "tree-nearest": 2.0, "tree-random": 3.0}
ANY = "tree-content"
FANOUTS = (2, 4, 6, 9, 16, 32, 64)
#: A fanout costs little if it takes at most so much more than the best one.
LITTLE = 1.25


# -- what is measured ------------------------------------------------------------------------------------------


def points(quick: bool) -> list[dict[str, object]]:
    """Every placement with every fanout."""
    sizes = {"brokers": [100], "events": [2_000]} if quick else {"brokers": [400], "events": [10_000]}
    return grid(placement=PLACED, fanout=FANOUTS, **sizes)


def measure(point: GridPoint, seed: int) -> dict[str, float]:
    """Replay a trace of Table 5.1 over one tree; what S-CN sends per event, and how far the gateways are."""
    ways = network(point["brokers"], seed)
    start, changes, ranges = workload(point["events"], seed)
    sample = np.stack((ranges.low, ranges.high), axis=1)
    placed = place(point["placement"], ways, sample, fanout=point["fanout"], root=seed)
    world = World.of(ranges.low, ranges.high, [(placed, placed.gateways(sample, seed))])
    events = Events(np.arange(len(changes)), changes.ids, changes.x, changes.y)
    costs = replay_chunk(start, events, world)
    mine = costs["approach"] == S_CN
    assert placed.tree is not None
    depth, delay = ways_down(placed.tree, ways)
    return {
        "frames": costs["messages"][mine].mean(),
        "bytes x links": costs["byte_links"][mine].mean(),
        "node stress": costs["node_stress"][mine].mean(),
        "most stress": costs["node_stress"][mine].max(),
        "depth": depth.max(),
        "farthest": delay.max() / ways.latency[0].max(),
    }


def ways_down(tree: BrokerTree, ways: Routes) -> tuple[np.ndarray, np.ndarray]:
    """Of each broker, how many edges it is below the server, and the latency down to it."""
    depth, delay = np.zeros(tree.brokers, np.int64), np.zeros(tree.brokers)
    for broker in tree.order[1:].tolist():
        above = tree.parent[broker]
        depth[broker], delay[broker] = depth[above] + 1, delay[above] + ways.latency[above, broker]
    return depth, delay


@lru_cache(maxsize=2)
def network(brokers: int, seed: int) -> Routes:
    """Shortest paths between the brokers of a network; all points of a seed share it."""
    topology = inet(10 * brokers, root=seed)
    return routes(topology, choose_brokers(topology, brokers, root=seed))


@lru_cache(maxsize=2)
def workload(events: int, seed: int) -> tuple[StartRows, Changes, RangeColumns]:
    """Rows, their changes, and the subscriptions to them."""
    load = Workload(events, root=seed)
    return StartRows(load.rows.ids, load.rows.x, load.rows.y), load.changes(events), load.ranges(10 * events)


# -- what is found ---------------------------------------------------------------------------------------------


def sections(found: Sweep, folder: Path) -> list[Section]:
    """One section: three charts side by side, what we expect, and the figures to choose by."""
    picture = folder / "fanout.png"
    panels = [
        Panel(title, [BandCurve(told, found.along("fanout", metric, placement=name)) for name, told in PLACED.items()])
        for metric, title in (("bytes x links", "bytes x links per event"), ("node stress", "node stress, mean"))
    ]
    delay = found.along("fanout", "farthest", placement=ANY)  # the tree is the same for all placements
    panels.append(Panel("delay to the farthest broker", [BandCurve("all", delay)]))
    draw_panels(
        [panels], picture, title="The fanout of a tree of brokers", x_label="fanout (log)", x_log=True, share_y=False,
        source="Delay: 1 is the direct way to the farthest broker",
    )  # fmt: skip
    brokers, events = found.rows[0]["brokers"], found.rows[0]["events"]
    return [
        Section(
            "fanout",
            "Traffic, load and delay by fanout",
            f"{brokers:,} brokers on an INET network of {10 * brokers:,} nodes, {10 * events:,} subscriptions and "
            f"{events:,} events of Table 5.1; network and workload are drawn anew for each seed.",
            "",
            found.judged(claims),
            pictures={"Bytes times links, node stress and delay by fanout, a line for each placement": picture},
            figures=[table(found)],
            notes=[advice(found)],
        )
    ]


def claims(found: Sweep) -> list[Claim]:
    """What we expect of one draw: of traffic and load for each placement, of the delay for all together."""
    least, most = min(FANOUTS), max(FANOUTS)
    judged = []
    for name, told in PLACED.items():
        mine = found.where(placement=name)
        links = {fanout: mine.middle("bytes x links", fanout=fanout) for fanout in FANOUTS}
        dearer = times(links[FANOUT], min(links.values()))
        busier = times(mine.middle("node stress", fanout=most), mine.middle("node stress", fanout=least))
        full = max(mine.middle("most stress", fanout=fanout) / fanout for fanout in FANOUTS)
        judged += [
            by_ratio(told, dearer, dearer <= LITTLE, "a deeper tree passes more links",
                     f"the default of {FANOUT} takes at most {LITTLE}x the bytes x links of the best fanout"),
            by_ratio(told, busier, busier > 1, "most events reach few brokers",
                     f"a fanout of {most} has a higher node stress than {least}"),
            Claim(told, "no broker sends more frames for an event than it has children", f"{full:.0%} of them",
                  full <= 1, "a broker sent two frames over one edge", value=full, form="{:.0%}".format,
                  construction="all that goes over an edge for one event is one frame"),
        ]  # fmt: skip
    delay = {fanout: found.middle("farthest", placement=ANY, fanout=fanout) for fanout in FANOUTS}
    slow, later = times(delay[least], delay[most]), times(delay[FANOUT], delay[most])
    return [
        *judged,
        by_ratio("all", slow, slow >= 2, "the deep tree is not that slow",
                 f"a fanout of {least} takes at least twice as long as {most} to the farthest broker"),
        by_ratio("all", later, later <= LITTLE, "every level delays",
                 f"the default of {FANOUT} takes at most {LITTLE}x as long as {most}"),
    ]  # fmt: skip


def by_ratio(subject: str, ratio: float, holds: bool, because: str, statement: str) -> Claim:
    """A claim whose verdict depends on how many times as much something is."""
    return Claim(subject, statement, factor(ratio), holds, because, value=ratio, form=factor)


def table(found: Sweep) -> list[list[str]]:
    """Medians by fanout."""
    rows = [["by fanout", *map(str, FANOUTS)]]
    for metric in ("frames", "bytes x links", "node stress"):
        for name, told in PLACED.items():
            curve = found.along("fanout", metric, placement=name)
            rows.append([f"{metric}, {told}", *(number(median(values)) for _, values in curve)])
    for metric in ("depth", "farthest"):
        curve = found.along("fanout", metric, placement=ANY)
        rows.append([metric, *(short(median(values)) for _, values in curve)])
    return rows


def advice(found: Sweep) -> str:
    """The smallest fanout that is within a quarter of the best in traffic and delay: it spreads the load most."""
    chosen = {}
    for name, told in PLACED.items():
        near = set(FANOUTS)
        for metric in ("bytes x links", "farthest"):
            of = {fanout: found.middle(metric, placement=name, fanout=fanout) for fanout in FANOUTS}
            near &= {fanout for fanout in FANOUTS if of[fanout] <= LITTLE * min(of.values())}
        chosen[told] = min(near, default="none")
    listed = ", ".join(f"{fanout} ({told})" for told, fanout in chosen.items())
    return f"The smallest fanout within {LITTLE}x of the best, both in bytes x links and in delay: {listed}."


STUDY = Study(
    name="fanout",
    title="How many children should a broker have?",
    about="Brokers form a tree below the server. A large fanout makes it flat: few levels, little delay, and one "
    "broker that sends most frames. A small one spreads the work, and each level delays.",
    parts=(StudyPart("", points, measure, sections, cost=lambda point: COST[point["placement"]]),),
    words={
        "fanout": "how many children a broker has at most",
        "by content, nearest, random": "which broker a subscription is at: the one that owns its range, the nearest to "
        "the subscriber, or any",
        "bytes x links": "the bytes of every frame, times the physical links on its way, per event",
        "node stress": "the most frames that one broker sends for an event; the mean over all events",
        "depth": "levels below the server",
        "farthest": "latency from the server down the tree to the broker that it takes longest to reach, as a multiple "
        "of the latency to the farthest broker by the direct way",
    },
)
