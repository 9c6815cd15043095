"""The simulated network of an experiment: a topology, brokers on it, placements, and worlds of subscriptions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hullcast.sim.overlay.placement import PLACEMENTS, Placement, choose_brokers, place
from hullcast.sim.topology.files import read_topology
from hullcast.sim.topology.inet import inet
from hullcast.sim.topology.paths import Routes, routes
from hullcast.sim.traffic.chunk import World
from hullcast.sim.traffic.sizes import WireSizes, wire_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hullcast.sim.experiments.settings import NetworkSettings
    from hullcast.sim.experiments.subscriptions import Law
    from hullcast.sim.topology.graph import Topology
    from hullcast.sim.traces.table51 import RangeColumns

#: All placements, and CAN once more with CAN's own way in.
WITH_GREEDY = (*PLACEMENTS, "can-greedy")


@dataclass(slots=True)
class Network:
    """Brokers and the ways between them. Placements are made when first asked for, and kept."""

    topology: Topology
    routes: Routes
    settings: NetworkSettings
    sizes: WireSizes
    _placed: dict[tuple[Law, str], Placement] = field(default_factory=dict)

    def placement(self, name: str, law: Law) -> Placement:
        """The placement of that name (`can-greedy`: the CAN, entered greedily) for subscriptions of that law."""
        if (law, name) not in self._placed:
            greedy, seed = name == "can-greedy", self.settings.seed
            made = place(
                "can" if greedy else name,
                self.routes,
                law.sample(root=seed),
                fanout=self.settings.fanout,
                entry="greedy" if greedy else "map",
                root=seed,
            )
            assert made.label == name
            self._placed[law, name] = made
        return self._placed[law, name]

    def world(self, law: Law, ranges: RangeColumns, names: Sequence[str] = PLACEMENTS) -> World:
        """These subscriptions on each of the placements."""
        points = np.stack((ranges.low, ranges.high), axis=1)
        placed = [self.placement(name, law) for name in names]
        gateways = [placement.gateways(points, self.settings.seed) for placement in placed]
        return World.of(ranges.low, ranges.high, list(zip(placed, gateways, strict=True)), self.sizes)


def frame_sizes() -> dict[str, object]:
    """What frames weigh, as part of a run's settings: results of another wire format are other results."""
    sizes = wire_sizes()
    return {"frame bytes": [int(sizes.rectangles[1]), int(sizes.unicast[1]), sizes.row]}


def build_network(settings: NetworkSettings, file: Path | None = None) -> Network:
    """An INET topology of the size asked for, or the one in a file, with brokers and all shortest paths among them."""
    topology = inet(settings.nodes, root=settings.seed) if file is None else read_topology(file, root=settings.seed)
    brokers = choose_brokers(topology, settings.brokers, root=settings.seed)
    return Network(topology, routes(topology, brokers), settings, wire_sizes())
