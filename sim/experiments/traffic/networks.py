"""The simulated network of an experiment: topology, brokers, placements and subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from scipy.special import ndtr, ndtri

from hullcast.network.wire.arrays import Floats, Narrow
from hullcast.sim.experiments.traffic.settings import NetworkSettings
from hullcast.sim.overlay import PLACEMENTS
from hullcast.sim.overlay.placement import Placement, choose_brokers, place
from hullcast.sim.seeds import generator
from hullcast.sim.topology.files import read_topology
from hullcast.sim.topology.graph import Topology
from hullcast.sim.topology.inet import inet
from hullcast.sim.topology.paths import Routes, routes
from hullcast.sim.traces.table51 import DOMAIN, LENGTH, MIDPOINT, RangeColumns
from hullcast.sim.traffic.sizes import WireSizes, wire_sizes
from hullcast.sim.traffic.world import World

#: Subscriptions that content zones are made from: others than those that then live in them.
SAMPLE = 100_000


@dataclass(frozen=True, slots=True)
class Law:
    """How ranges are drawn: mean and deviation of midpoint and length, as in Table 5.1; no length is negative."""

    midpoint: tuple[float, float] = MIDPOINT
    length: tuple[float, float] = LENGTH

    def over(self, domain: tuple[float, float]) -> Law:
        """The same for another domain: this one is for Table 5.1's."""
        low, width = domain[0], (domain[1] - domain[0]) / DOMAIN
        (middle, spread), (length, deviation) = self.midpoint, self.length
        return Law((low + middle * width, spread * width), (length * width, deviation * width))

    def ranges(self, count: int, *, root: int, name: str = "subscriptions") -> RangeColumns:
        """So many of them. Fewer are the first of many: a run with more subscriptions adds some, and changes none."""
        middle = generator(root, "law", name, "midpoints").normal(*self.midpoint, count)
        mean, deviation = self.length
        # Drawing again until it is positive is drawing from the part of the normal law that is: by its inverse.
        below = ndtr(-mean / deviation)
        share = generator(root, "law", name, "lengths").random(count)
        length = np.maximum(mean + deviation * ndtri(below + share * (1.0 - below)), 0.0)
        return RangeColumns(middle - length / 2, middle + length / 2)

    def sample(self, *, root: int) -> Floats:
        """Points (x1, x2) to divide the plane by."""
        ranges = self.ranges(SAMPLE, root=root, name="sample")
        return np.stack((ranges.low, ranges.high), axis=1)


#: Of Figure 5.8: short ranges, spread over three times the domain and more.
SHORT = Law(midpoint=(5_000.0, 10_000.0), length=(50.0, 10.0))
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
        return World.of(ranges.low, ranges.high, self.populated(law, ranges, names), self.sizes)

    def populated(self, law: Law, ranges: RangeColumns, names: Sequence[str]) -> list[tuple[Placement, Narrow]]:
        """The placements, each with the gateways of these subscriptions."""
        points = np.stack((ranges.low, ranges.high), axis=1)
        placed = [self.placement(name, law) for name in names]
        return [(placement, placement.gateways(points, self.settings.seed)) for placement in placed]

    def draw(self) -> Draw:
        """Where its server is."""
        latency, links = self.routes.latency, np.diff(self.routes.starts).reshape(2 * (len(self.routes.nodes),))
        others = max(len(self.routes.nodes) - 1, 1)
        far, hops = latency.sum(axis=1) / others, links.sum(axis=1) / others
        quantiles = tuple(np.quantile(far, (0.0, 0.25, 0.5, 0.75, 1.0)).tolist())
        return Draw(
            self.settings.seed, float(far[0]), float((far[1:] < far[0]).mean()), quantiles, float(hops[0]),
            float(np.median(hops)),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Draw:
    """Where the server of one drawn network is, by its mean distance to the other brokers."""

    seed: int
    distance: float  # latency
    rank: float  # the share of the brokers that are nearer to all others than the server is
    quantiles: tuple[float, ...]  # of that distance over all brokers: least, quartiles, greatest
    links: float  # physical links to a broker, mean
    links_median: float  # the same of the broker in the middle


def drawn_world(networks: Sequence[Network], law: Law, ranges: RangeColumns, names: Sequence[str]) -> World:
    """The same subscriptions on several networks at a time: what an event affects is then found once for all.

    Placements are named with the number of the network where there are several, as in `2/can` (so they are in tables of
    events); `undrawn` takes such a name apart.
    """
    if len(networks) == 1:
        return networks[0].world(law, ranges, names)
    placed = [
        (replace(placement, name=f"{number}{_OF_DRAW}{placement.name}"), gateways)
        for number, network in enumerate(networks)
        for placement, gateways in network.populated(law, ranges, names)
    ]
    return World.of(ranges.low, ranges.high, placed, networks[0].sizes)


def undrawn(name: str) -> tuple[int, str]:
    """The number of the network, and the name of the placement."""
    number, _, placement = name.rpartition(_OF_DRAW)
    return int(number or 0), placement


_OF_DRAW = "/"
#: Placements of a world are numbered in one byte, and there are up to five for each draw.
MOST_DRAWS = 25


def frame_sizes() -> dict[str, object]:
    """What frames weigh, as part of a run's settings: results of another wire format are other results."""
    sizes = wire_sizes()
    return {"frame bytes": [int(sizes.rectangles[1]), int(sizes.unicast[1]), sizes.row]}


def build_network(settings: NetworkSettings, file: Path | None = None) -> Network:
    """An INET topology of the size asked for, or the one in a file, with brokers and all shortest paths among them."""
    if file is None:
        topology = inet(settings.nodes, root=settings.seed)
    else:
        topology = read_topology(file, root=settings.seed, columns=settings.columns)
    brokers = choose_brokers(topology, settings.brokers, root=settings.seed)
    return Network(topology, routes(topology, brokers), settings, wire_sizes())
