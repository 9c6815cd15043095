"""Placements: an overlay of brokers together with the rule that gives subscriptions their gateways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hullcast.network.wire.arrays import Floats, Ints, Narrow
from hullcast.network.wire.errors import UsageError
from hullcast.sim.overlay import PLACEMENTS
from hullcast.sim.overlay.can import ENTRIES, Entry
from hullcast.sim.overlay.division import balanced_zones, zones_along
from hullcast.sim.overlay.tree import FANOUT, BrokerTree, latency_tree
from hullcast.sim.overlay.zones import Zones, locate
from hullcast.sim.seeds import generator
from hullcast.sim.topology.graph import Topology
from hullcast.sim.topology.paths import Routes

Rule = Literal["content", "nearest", "random"]


def gateways(rule: Rule, points: Floats, *, routes: Routes, zones: Zones | None = None, root: int = 0) -> Narrow:
    """The gateway of each subscription (x1, x2).

    content  the owner of the zone that it lies in
    nearest  its subscriber sits at any physical node, each as likely, and dials the broker nearest by latency
    random   any broker, each as likely

    Subscriptions are taken in order: those that come first get the same gateways whatever comes after them.
    """
    count = len(points)
    if rule == "content":
        if zones is None:
            raise UsageError("gateways by content need the zones of the brokers; give zones=")
        return locate(zones, points)
    random = generator(root, "gateways", rule)
    if rule == "nearest":
        return routes.nearest[random.integers(0, len(routes.nearest), count)].astype(np.int32)
    if rule == "random":
        return random.integers(0, len(routes.nodes), count).astype(np.int32)
    raise UsageError(f"unknown gateway rule {rule!r}; choose content, nearest or random")


#: Of Xie (2007): 1,000 of 20,000 nodes.
BROKERS = 1_000


def choose_brokers(topology: Topology, count: int = BROKERS, *, root: int = 0) -> Ints:
    """The node of each broker, all different; [0] is the server's.

    Fewer brokers are the first of many, so the server stays where it is when their number changes.
    """
    if not 1 <= count <= topology.nodes:
        limit = f"topology {topology.name} has {topology.nodes} nodes"
        raise UsageError(f"{limit}, so it can have 1 to {topology.nodes} brokers, got {count}")
    order = generator(root, "brokers", topology.nodes).permutation(topology.nodes)
    return order[:count].astype(np.int64)


RULES: dict[str, Rule] = {
    "can": "content",
    "tree-content": "content",
    "tree-nearest": "nearest",
    "tree-random": "random",
}


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """How messages travel among brokers, and where subscriptions live."""

    name: str
    routes: Routes
    tree: BrokerTree | None  # None: a CAN
    zones: Zones | None  # of a CAN, and where gateways go by content
    entry: Entry = "map"  # how rectangles enter a CAN

    @property
    def label(self) -> str:
        """Its name in results: CAN's neighbour-by-neighbour entry is another way of sending, so it has another name."""
        return f"{self.name}-greedy" if self.tree is None and self.entry == "greedy" else self.name

    def gateways(self, points: Floats, root: int = 0) -> Narrow:
        """The gateway of each subscription (x1, x2)."""
        return gateways(RULES[self.name], points, routes=self.routes, zones=self.zones, root=root)


def place(
    name: str, routes: Routes, sample: Floats, *, fanout: int = FANOUT, entry: Entry = "map", root: int = 0
) -> Placement:
    """The placement of that name. `sample`: subscriptions (x1, x2) like those to come, to divide the plane by."""
    if name not in PLACEMENTS:
        raise UsageError(f"unknown placement {name!r}; choose among {', '.join(PLACEMENTS)}")
    if entry not in ENTRIES:
        raise UsageError(f"unknown entry {entry!r} into a CAN; choose {' or '.join(ENTRIES)}")
    if name == "can":
        owners = generator(root, "can", len(routes.nodes)).permutation(len(routes.nodes)).astype(np.int64)
        return Placement(name, routes, None, balanced_zones(sample, owners), entry)
    tree = latency_tree(routes, fanout)
    return Placement(name, routes, tree, zones_along(tree, sample) if RULES[name] == "content" else None)
