"""Shortest paths by latency between the brokers, link by link, and the broker nearest to each node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hullcast.network.compiled import kernel
from hullcast.network.wire.arrays import Floats, Ints, Narrow
from hullcast.network.wire.errors import UsageError
from hullcast.sim.topology.graph import Topology

CHUNK = 64  # sources at a time: 64 x 20,000 distances are 10 MB


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """How brokers reach one another over a topology.

    A path is the one of least latency. Among equally fast ones it is the one that, seen from its end, comes from the
    lowest-numbered neighbour at every step: the same on every machine, whatever order a heap kept. (There
    and back may therefore be two equally fast paths.)
    """

    nodes: Ints  # (b,) the node each broker sits at
    latency: Floats  # (b, b) of the shortest path
    starts: Ints  # (b*b + 1,) the path from broker a to broker c is links[starts[a*b + c] : starts[a*b + c + 1]]
    links: Narrow  # link numbers, in the order they are passed
    nearest: Narrow  # (n,) for every node the broker nearest by latency; of equally near ones the lowest number

    @property
    def brokers(self) -> int:
        """How many brokers; they are numbered from 0."""
        return len(self.nodes)

    def path(self, a: int, c: int) -> Narrow:
        """The links from broker a to broker c, in order."""
        pair = a * self.brokers + c
        return self.links[self.starts[pair] : self.starts[pair + 1]]


def routes(topology: Topology, brokers: Ints, tick: Callable[[int], None] | None = None) -> Routes:
    """Shortest paths between all brokers. `tick(done)` is called after each chunk of sources.

    Dijkstra from each broker gives latencies, O(b m log n); a path is then followed backwards
    along links that explain the latency of its end. Memory: 12 bytes x CHUNK x n beside the result.
    """
    from scipy.sparse.csgraph import dijkstra  # here: Spark's workers have routes, and no scipy

    sites = np.ascontiguousarray(brokers, np.int64)
    _check(topology, sites)
    near, matrix = topology.neighbours(), topology.matrix()
    count, nodes = len(sites), topology.nodes
    latency = np.empty((count, count))
    hops = np.empty((count, count), np.int64)
    nearest, least = np.zeros(nodes, np.int32), np.full(nodes, np.inf)
    pieces: list[Narrow] = []
    for begin in range(0, count, CHUNK):
        chunk = sites[begin : begin + CHUNK]
        distance = dijkstra(matrix, directed=True, indices=chunk)
        back = np.full((len(chunk), nodes), -1, np.int32)
        here = hops[begin : begin + len(chunk)]
        ends = topology.source, topology.target
        explain(distance, chunk, sites, near.starts, near.node, near.link, near.latency, *ends, back, here)
        found = np.empty(int(here.sum()), np.int32)
        follow(back, chunk, sites, *ends, here, found)
        pieces.append(found)
        latency[begin : begin + len(chunk)] = distance[:, sites]
        first = distance.argmin(axis=0)
        value = distance[first, np.arange(nodes)]
        closer = value < least  # strictly: an equally near broker before these stays
        nearest[closer] = (begin + first[closer]).astype(np.int32)
        least[closer] = value[closer]
        if tick is not None:
            tick(begin + len(chunk))
    starts = np.concatenate(([0], np.cumsum(hops.ravel()))).astype(np.int64)
    return Routes(sites, latency, starts, np.concatenate(pieces), nearest)


def _check(topology: Topology, sites: Ints) -> None:
    if sites.ndim != 1 or len(sites) == 0:
        raise UsageError("routes need at least one broker")
    if sites.min() < 0 or sites.max() >= topology.nodes:
        raise UsageError(
            f"brokers are at nodes {sites.min()} .. {sites.max()}, "
            f"but topology {topology.name!r} has 0 .. {topology.nodes - 1}"
        )
    if len(np.unique(sites)) < len(sites):
        raise UsageError("two brokers are at the same node; each needs its own")


@kernel
def explain(
    distance: Floats,
    sources: Ints,
    targets: Ints,
    starts: Ints,
    node: Ints,
    link: Ints,
    latency: Floats,
    source: Ints,
    target: Ints,
    back: Narrow,
    hops: Ints,
) -> None:
    """Fill `back[s, v]` with the last link of the path from source s to v, for all v on paths to targets; and `hops`.

    Dijkstra set distance[v] to distance[u] + latency for some neighbour u, so exact equality finds one, in floats too.
    """
    for s in range(len(sources)):
        for t in range(len(targets)):
            at, steps = targets[t], 0
            while at != sources[s]:
                if back[s, at] < 0:  # not on an earlier path: hubs are on most, and long to look through
                    i = starts[at]
                    while distance[s, node[i]] + latency[i] != distance[s, at]:
                        i += 1
                    back[s, at] = link[i]
                number = back[s, at]
                at = source[number] + target[number] - at
                steps += 1
            hops[s, t] = steps


@kernel
def follow(back: Narrow, sources: Ints, targets: Ints, source: Ints, target: Ints, hops: Ints, out: Narrow) -> None:
    """Write all paths, one after the other, each from its source to its target."""
    end = 0
    for s in range(len(sources)):
        for t in range(len(targets)):
            at = targets[t]
            end += hops[s, t]
            for i in range(hops[s, t]):
                number = back[s, at]
                out[end - 1 - i] = number
                at = source[number] + target[number] - at
