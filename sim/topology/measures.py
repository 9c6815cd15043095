"""What a topology looks like in figures: degrees, paths, clustering."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hullcast.network.compiled import kernel
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.network.wire.errors import UsageError
from hullcast.sim.seeds import generator
from hullcast.sim.topology.graph import Topology

#: The degrees over which the slope is fitted. Degree 1 has a law of its own, and above 100 so few nodes
#: are left (0.5 % of 20,000) that single hubs would bend the line.
FITTED = (2, 100)


@dataclass(frozen=True, slots=True)
class Measures:
    """The figures by which topologies are compared; NaN where there is nothing to measure."""

    nodes: int
    links: int
    mean_degree: float
    largest: tuple[int, ...]  # the three largest degrees, or fewer
    degree_one_share: float
    ccdf_slope: float  # of log P(degree > d) over log d, by least squares over the degrees that occur in FITTED
    mean_path: float  # links between two nodes, over the sampled sources and all targets
    clustering: float  # mean over nodes of degree > 1: the share of pairs of neighbours that are linked


def measure(topology: Topology, *, sources: int = 200, root: int = 0) -> Measures:
    """Measure a topology. Paths from so many random nodes; with at least as many as there are, exactly."""
    degrees = topology.degrees()
    near = topology.neighbours()
    hops = hop_counts(topology, sources=sources, root=root)
    pairs = int(hops[1:].sum())
    inner = degrees > 1
    return Measures(
        nodes=topology.nodes,
        links=topology.links,
        mean_degree=2 * topology.links / topology.nodes,
        largest=tuple(np.sort(degrees)[::-1][:3].tolist()),
        degree_one_share=float((degrees == 1).mean()),
        ccdf_slope=slope(*ccdf(degrees)),
        mean_path=float(hops @ np.arange(len(hops))) / pairs if pairs else float("nan"),
        clustering=float(local_clustering(near.starts, near.node)[inner].mean()) if inner.any() else float("nan"),
    )


def hop_counts(topology: Topology, *, sources: int = 200, root: int = 0) -> Ints:
    """How many of the paths from the sources to all nodes have 0, 1, 2 .. links."""
    if sources < 1:
        raise UsageError(f"paths need at least one source, got {sources}")
    begin = np.arange(topology.nodes)
    if sources < topology.nodes:
        random = generator(root, "topology", "measures", topology.nodes)
        begin = np.sort(random.choice(topology.nodes, sources, replace=False))
    near = topology.neighbours()
    counts = count_hops(near.starts, near.node, begin)
    return counts[: int(np.flatnonzero(counts)[-1]) + 1]


def ccdf(degrees: Ints) -> tuple[Ints, Floats]:
    """The degrees that occur, ascending, and the share of nodes with a larger one."""
    values, counts = np.unique(degrees, return_counts=True)
    return values, 1.0 - np.cumsum(counts) / len(degrees)


def slope(degree: Ints, share: Floats, fitted: tuple[int, int] = FITTED) -> float:
    """The exponent of a CCDF between two degrees; NaN with fewer than two points."""
    low, high = fitted
    # the last share is 0 but for rounding: the largest degree has no logarithm
    used = (degree >= low) & (degree <= high) & (np.arange(len(degree)) < len(degree) - 1)
    if used.sum() < 2:
        return float("nan")
    return float(np.polyfit(np.log(degree[used]), np.log(share[used]), 1)[0])


@kernel
def count_hops(starts: Ints, node: Ints, sources: Ints) -> Ints:
    """By number of links: the pairs of a source and a node so far apart, by breadth-first search."""
    nodes = len(starts) - 1
    queue, distance, counts = np.empty(nodes, np.int64), np.empty(nodes, np.int64), np.zeros(nodes, np.int64)
    for s in range(len(sources)):
        distance[:] = -1
        distance[sources[s]] = 0
        queue[0], head, tail = sources[s], 0, 1
        while head < tail:
            here = queue[head]
            head += 1
            counts[distance[here]] += 1
            for i in range(starts[here], starts[here + 1]):
                if distance[node[i]] < 0:
                    distance[node[i]] = distance[here] + 1
                    queue[tail] = node[i]
                    tail += 1
    return counts


@kernel
def local_clustering(starts: Ints, node: Ints) -> Floats:
    """For each node the share of pairs of its neighbours that are linked; 0 for degree < 2.

    Each triangle a < b < c is found once, at its link a - b.
    """
    nodes = len(starts) - 1
    triangles, mark = np.zeros(nodes), np.full(nodes, -1, np.int64)
    for a in range(nodes):
        for i in range(starts[a], starts[a + 1]):
            mark[node[i]] = a
        for i in range(starts[a], starts[a + 1]):
            b = node[i]
            if b < a:
                continue
            for j in range(starts[b], starts[b + 1]):
                c = node[j]
                if c > b and mark[c] == a:
                    triangles[a] += 1
                    triangles[b] += 1
                    triangles[c] += 1
    for a in range(nodes):
        degree = starts[a + 1] - starts[a]
        if degree > 1:
            triangles[a] /= degree * (degree - 1) / 2
    return triangles
