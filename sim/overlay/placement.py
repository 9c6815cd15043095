"""Placements: an overlay of brokers together with the rule that gives subscriptions their gateways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.wire.errors import UsageError
from hullcast.sim.overlay.can import ENTRIES
from hullcast.sim.overlay.division import balanced_zones, zones_along
from hullcast.sim.overlay.gateways import gateways
from hullcast.sim.overlay.tree import FANOUT, latency_tree
from hullcast.sim.seeds import generator

if TYPE_CHECKING:
    import numpy.typing as npt

    from hullcast.sim.overlay.can import Entry
    from hullcast.sim.overlay.gateways import Rule
    from hullcast.sim.overlay.tree import BrokerTree
    from hullcast.sim.overlay.zones import Zones
    from hullcast.sim.topology.paths import Routes

    Floats = npt.NDArray[np.float64]
    Numbers = npt.NDArray[np.int32]

RULES: dict[str, Rule] = {
    "can": "content",
    "tree-content": "content",
    "tree-nearest": "nearest",
    "tree-random": "random",
}
PLACEMENTS = tuple(RULES)


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """How messages travel among brokers, and where subscriptions live."""

    name: str
    routes: Routes
    tree: BrokerTree | None  # None: a CAN
    zones: Zones | None  # of a CAN, and where gateways go by content
    entry: Entry = "map"  # how rectangles enter a CAN

    def gateways(self, points: Floats, root: int = 0) -> Numbers:
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
