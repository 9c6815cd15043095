"""Small worlds drawn by seed, for the kernels and for the oracle alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import networkx
import numpy as np

from hullcast.sim.overlay import PLACEMENTS
from hullcast.sim.overlay.placement import Placement, place
from hullcast.sim.seeds import generator
from hullcast.sim.topology.graph import Topology
from hullcast.sim.topology.paths import routes
from hullcast.sim.traffic.chunk import APPROACHES
from hullcast.sim.traffic.rectangles import Events, StartRows
from hullcast.sim.traffic.sizes import rectangle_bytes, row_bytes, unicast_bytes
from hullcast.sim.traffic.tally import METRICS
from hullcast.sim.traffic.world import World
from tests.sim.overlay.plans import approached
from tests.support.traffic_oracle import Oracle, Overlay, Sizes

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Ends of ranges: on rows' places, between them, beyond them, and none at all.
ENDS = [-np.inf, -1.0, *(step / 2 for step in range(13)), 7.0, np.inf]
NOWHERE = (float("nan"), float("nan"))

#: A key and its new row, or NOWHERE.
Change = tuple[int, tuple[float, float]]

SIZES = Sizes(rectangle_bytes, unicast_bytes, row_bytes())


@dataclass
class Small:
    """Subscriptions in all placements, those of a CAN with either way in."""

    ranges: list[tuple[float, float]]
    placements: list[tuple[Placement, NDArray[np.int32]]]
    world: World

    def oracles(self) -> list[Oracle]:
        """One for each placement, without any row."""
        return [Oracle(self.ranges, overlay_of(*placed), SIZES) for placed in self.placements]


def small_world(seed: int) -> Small:
    """A handful of nodes, brokers and subscriptions."""
    random = generator(seed, "small world")
    nodes, brokers, count = (int(random.integers(low, high)) for low, high in ((7, 14), (1, 8), (1, 25)))
    graph = networkx.random_labeled_tree(nodes, seed=seed % 1000)
    graph.add_edges_from(random.integers(0, nodes, (4, 2)).tolist())
    graph.remove_edges_from(list(networkx.selfloop_edges(graph)))
    ways = routes(Topology.from_networkx(graph, "small", seed=seed), random.permutation(nodes)[:brokers])
    ends = np.sort(random.choice(ENDS, (count, 2)), axis=1)
    ends = ends[(ends[:, 0] < np.inf) & (ends[:, 1] > -np.inf)]
    sample = np.sort(random.integers(0, 7, (12, 2)).astype(np.float64), axis=1)
    wanted = [(name, "map") for name in PLACEMENTS] + [("can", "greedy")]
    placements = []
    for name, entry in wanted:
        placement = place(name, ways, sample, fanout=2, entry=entry, root=seed)  # type: ignore[arg-type]  # of ENTRIES
        placements.append((placement, placement.gateways(ends, seed)))
    low, high = ends[:, 0].copy(), ends[:, 1].copy()
    return Small(list(map(tuple, ends.tolist())), placements, World.of(low, high, placements))


def overlay_of(placement: Placement, gateways: NDArray[np.int32]) -> Overlay:
    """The same for the oracle."""
    ways, zones = placement.routes, placement.zones
    paths: dict[tuple[int, int], list[int]] = {
        (a, b): ways.path(a, b).tolist() for a in range(len(ways.nodes)) for b in range(len(ways.nodes))
    }

    def path(a: int, b: int) -> Sequence[int]:
        return paths[a, b]

    if placement.tree is not None:
        return Overlay(gateways.tolist(), path, parents=placement.tree.parent.tolist())
    assert zones is not None
    bounds = zip(zones.low.tolist(), zones.high.tolist(), strict=True)
    overlay = Overlay(gateways.tolist(), path, zones=[((a, b), (c, d)) for (a, c), (b, d) in bounds])
    if placement.entry == "greedy":
        overlay.hops = lambda x1, x2: approached(zones, 0, np.array([x1, x2]))
    return overlay


def events_of(changes: Sequence[Change], first: int = 0) -> Events:
    """As columns, numbered from `first` on."""
    keys = np.array([key for key, _ in changes], np.int64)
    rows = np.array([row for _, row in changes], np.float64).reshape(-1, 2)
    return Events(np.arange(first, first + len(keys)), keys, rows[:, 0].copy(), rows[:, 1].copy())


def state_of(changes: Sequence[Change]) -> StartRows:
    """The rows that these leave, deleted ones as NaN."""
    last = dict(changes)
    rows = np.array(list(last.values()), np.float64).reshape(-1, 2)
    return StartRows(np.array(list(last), np.int64), rows[:, 0].copy(), rows[:, 1].copy())


def table(columns: dict[str, NDArray[Any]]) -> list[tuple[int, ...]]:
    """The rows of a result."""
    return list(zip(*(column.tolist() for column in columns.values()), strict=True))


def expected(oracles: Sequence[Oracle], changes: Sequence[Change], first: int = 0) -> list[tuple[int, ...]]:
    """What `table` must be."""
    rows: list[tuple[int, ...]] = []
    for seq, (key, (x, y)) in enumerate(changes, first):
        for number, oracle in enumerate(oracles):
            told = oracle.event(key, x, y)
            assert all(len(metrics) == len(METRICS) for metrics in told.metrics.values())
            rows += [
                (seq, number, way, *told.metrics[approach], told.rectangles, told.affected)
                for way, approach in enumerate(APPROACHES)
            ]
    return rows
