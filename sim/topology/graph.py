"""A physical network: nodes with places in a plane, links with latencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hullcast.network.wire.arrays import Booleans, Floats, Ints
from hullcast.network.wire.errors import UsageError
from hullcast.sim.seeds import generator

PLANE = 10_000.0  # INET's: nodes lie in [0, PLANE) x [0, PLANE)


class Neighbours(NamedTuple):
    """Both directions of every link by node: those of node v are at [starts[v] : starts[v + 1]]."""

    starts: Ints  # (n + 1,)
    node: Ints  # (2m,) who is there, ascending within a node
    link: Ints  # (2m,) by which link
    latency: Floats  # (2m,)


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """A connected simple graph; `make_topology` makes one of any links, and checks.

    Invariants:
      T1  source < target for every link, links in lexicographic order, none twice.
      T2  every node can reach every other.
      T3  latency >= 1: no link is free, so the hops of a shortest path are finite and it visits no node twice.
    """

    name: str
    x: Floats
    y: Floats
    source: Ints
    target: Ints
    latency: Floats

    @property
    def nodes(self) -> int:
        """How many nodes; they are numbered from 0."""
        return len(self.x)

    @property
    def links(self) -> int:
        """How many links; they are numbered from 0."""
        return len(self.source)

    def degrees(self) -> Ints:
        """The number of links of each node."""
        both = np.concatenate((self.source, self.target))
        return np.bincount(both, minlength=self.nodes).astype(np.int64)

    def neighbours(self) -> Neighbours:
        """The links by node, both directions."""
        here = np.concatenate((self.source, self.target))
        there = np.concatenate((self.target, self.source))
        order = np.lexsort((there, here))
        starts = np.concatenate(([0], np.cumsum(self.degrees()))).astype(np.int64)
        link = (order % max(self.links, 1)).astype(np.int64)
        return Neighbours(starts, there[order], link, self.latency[link])

    def matrix(self) -> Any:
        """Latencies as a symmetric sparse matrix, for scipy.sparse.csgraph."""
        near = self.neighbours()
        from scipy.sparse import csr_array  # here: Spark's workers have topologies, and no scipy

        return csr_array((near.latency, near.node, near.starts), shape=(self.nodes, self.nodes))

    def to_networkx(self) -> Any:
        """As a networkx.Graph: nodes have `x` and `y`, edges have `latency`."""
        import networkx

        graph = networkx.Graph(name=self.name)
        places = zip(self.x.tolist(), self.y.tolist(), strict=True)
        graph.add_nodes_from((node, {"x": x, "y": y}) for node, (x, y) in enumerate(places))
        links = zip(self.source.tolist(), self.target.tolist(), self.latency.tolist(), strict=True)
        graph.add_edges_from((a, b, {"latency": latency}) for a, b, latency in links)
        return graph

    @staticmethod
    def from_networkx(graph: Any, name: str = "", *, seed: int = 0, largest: bool = False) -> Topology:
        """Nodes are numbered in the graph's order; places are drawn if any node has none.

        Any kind of networkx graph: directions are forgotten, and of parallel edges the fastest stays.
        """
        number = {node: index for index, node in enumerate(graph)}
        ends = np.array([(number[a], number[b]) for a, b in graph.edges()], np.int64).reshape(-1, 2)
        x, y = (_attribute(graph.nodes(data=attribute), attribute) for attribute in ("x", "y"))
        latency = _attribute(((f"{a} - {b}", value) for a, b, value in graph.edges(data="latency")), "latency")
        return make_topology(
            name or str(graph.name),
            len(number),
            ends[:, 0],
            ends[:, 1],
            places=None if x is None or y is None else (x, y),
            latency=latency,
            seed=seed,
            largest=largest,
        )


def make_topology(
    name: str,
    nodes: int,
    a: Ints,
    b: Ints,
    *,
    places: tuple[Floats, Floats] | None = None,
    latency: Floats | None = None,
    seed: int = 0,
    plane: float = PLANE,
    largest: bool = False,
) -> Topology:
    """A topology of links in any order and direction.

    Loops are left out, of links given twice the fastest stays. Places that are not given are drawn uniformly,
    latencies that are not given follow from the places. A graph in several pieces is refused,
    or with `largest` reduced to its largest one, the nodes keeping their order.
    """
    if nodes < 1:
        raise UsageError(f"topology {name!r} has no nodes")
    x, y = draw_places(nodes, seed, plane) if places is None else places
    if latency is None:
        latency = distances(x, y, a, b)
    if len(latency) and not (np.isfinite(latency).all() and latency.min() >= 1):
        bad = int(np.flatnonzero(~(np.isfinite(latency) & (latency >= 1)))[0])
        raise UsageError(
            f"link {a[bad]} - {b[bad]} of {name!r} has latency {latency[bad]}; it must be at least 1 and finite"
        )
    kept, pieces = _largest_piece(nodes, a, b)
    if len(pieces) > 1:
        if not largest:
            sizes = ", ".join(f"{size:,}" for size in pieces[:5]) + (", .." if len(pieces) > 5 else "")
            raise UsageError(
                f"topology {name!r} is not connected: {len(pieces):,} components of {sizes} nodes; "
                "connect them, or keep the largest: hullcast sim topology --read FILE --largest --out FILE"
            )
        number = np.cumsum(kept) - 1
        inside = kept[a]
        a, b, latency = number[a[inside]], number[b[inside]], latency[inside]
        x, y = x[kept], y[kept]
    order = simple_links(a, b, latency)
    low, high = np.minimum(a, b)[order], np.maximum(a, b)[order]
    return Topology(name, x, y, low, high, latency[order])


def draw_places(nodes: int, root: int, plane: float = PLANE) -> tuple[Floats, Floats]:
    """Uniform places, whole numbers as INET's; one seed gives each node the same place in a larger network too."""
    drawn = np.floor(generator(root, "topology", "places").random((nodes, 2)) * plane)
    return np.ascontiguousarray(drawn[:, 0]), np.ascontiguousarray(drawn[:, 1])


def distances(x: Floats, y: Floats, a: Ints, b: Ints) -> Floats:
    """INET's link weight: the Euclidean distance without its fraction; at least 1."""
    return np.maximum(np.floor(np.hypot(x[a] - x[b], y[a] - y[b])), 1.0)


def simple_links(a: Ints, b: Ints, latency: Floats) -> Ints:
    """Which links stay, in lexicographic order: no loops, and of equal ones the fastest."""
    low, high = np.minimum(a, b), np.maximum(a, b)
    order = np.lexsort((latency, high, low))
    order = order[low[order] != high[order]]
    first = np.ones(len(order), np.bool_)
    first[1:] = (np.diff(low[order]) != 0) | (np.diff(high[order]) != 0)
    kept: Ints = order[first].astype(np.int64)
    return kept


def _largest_piece(nodes: int, a: Ints, b: Ints) -> tuple[Booleans, list[int]]:
    """Which nodes are in the largest component, and the sizes of all, largest first."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    graph = csr_array((np.ones(len(a), np.int8), (a, b)), shape=(nodes, nodes))
    _, piece = connected_components(graph, directed=False)
    sizes = np.bincount(piece)
    return piece == np.argmax(sizes), sorted(sizes.tolist(), reverse=True)


def _attribute(pairs: Any, attribute: str) -> Floats | None:
    """The values of an attribute, or None where at least one is missing."""
    values = []
    for which, value in pairs:
        if value is None:
            return None
        try:
            values.append(float(value))
        except (TypeError, ValueError):
            raise UsageError(f"{attribute} of {which!r} is {value!r}, which is not a number") from None
    return np.array(values, np.float64)
