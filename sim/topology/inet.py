"""A topology like the Internet's autonomous systems, by INET-3.0 (Winick and Jamin (2002)).

First the degrees are laid down, then the nodes are joined:

    I    nodes of degree >= 2, the largest first, each to one that is already in the tree
    II   nodes of degree 1, each to one with a stub to spare
    III  stubs that are left, of the largest node first, to nodes not yet joined to it

Each time node i chooses node j with probability proportional to `weights`, which depends on their degrees alone. So
nodes of one degree form a class: choose the class, O(classes), then any of its members. Exact, and without a weight
per node.
"""

from __future__ import annotations

from math import exp, log

import numpy as np
from numpy.random import Generator

from hullcast.network.compiled import kernel, part
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.network.wire.errors import UsageError
from hullcast.sim.seeds import generator
from hullcast.sim.topology.graph import PLANE, Topology, draw_places, make_topology

#: INET's fit: the Internet had 3,037 systems in November 1997, and grew by 2.81 % a month.
FIRST, GROWTH = 3_037, 0.0281
LAST = 40_000  # beyond, the fitted slope gives hubs more links than find partners: it stays as it is here
MOST = 1_000_000
FEWEST = 10  # fewer nodes than that are a star
HUBS = 3  # as many largest degrees have a formula of their own


def inet(nodes: int = 20_000, *, root: int = 0, degree_one: float | None = None, plane: float = PLANE) -> Topology:
    """A topology of so many nodes, numbered by decreasing degree; another `root` is another one.

    `degree_one` is the share of nodes with one link (INET's own: 31.5 % of 20,000), `plane` the side of the square.
    """
    if not 1 <= plane <= 1e9:
        raise UsageError(f"the side of the plane is {plane}; it must be 1 to 1e9")
    degrees = inet_degrees(nodes, degree_one)
    a, b = join(degrees, generator(root, "topology", "inet", nodes, degree_one))
    places = draw_places(nodes, root, plane)
    return make_topology(f"INET {nodes:,} seed {root}", nodes, a, b, places=places)


def inet_degrees(nodes: int, degree_one: float | None = None) -> Ints:
    """The degree each node shall have, largest first; their sum is even.

    As published from 3,037 to 40,000 nodes. Below (INET refuses), slope and share of degree 1 are those of 3,037,
    and the largest degrees shrink on; above, the slope is that of 40,000. No degree exceeds nodes - 1.
    """
    if not 1 <= nodes <= MOST:
        raise UsageError(f"a topology must have 1 to {MOST:,} nodes, got {nodes:,}")
    if degree_one is not None and not 0 <= degree_one < 1:
        raise UsageError(f"the share of nodes with one link must be at least 0 and below 1, got {degree_one}")
    if nodes < FEWEST:
        return np.array([nodes - 1, *[1] * (nodes - 1)], np.int64)
    months = log(min(max(nodes, FIRST), LAST) / FIRST) / GROWTH
    ones = int(0.292 * nodes + 462 * min(1.0, nodes / FIRST)) if degree_one is None else int(degree_one * nodes)
    ones = min(ones, nodes - HUBS)
    degree, count = _middle(nodes, ones, 0.00324 * months - 1.223)
    rank = np.arange(1, HUBS + 1)
    hubs = exp(6.5285) * (nodes / FIRST) ** (0.0228 / 0.0281) * rank**-0.87
    hubs = np.clip(hubs.astype(np.int64), 2, nodes - 1)
    degrees = np.sort(np.concatenate((np.repeat(degree, count), hubs, np.ones(ones, np.int64))))[::-1]
    degrees = np.ascontiguousarray(degrees)
    if degrees.sum() % 2:  # the largest gets one more, or fewer if it has all
        degrees[0] += 1 if degrees[0] < nodes - 1 else -1
    inner = degrees[degrees > 1]
    spare = int(inner.sum()) - 2 * (len(inner) - 1)
    if spare < ones:
        raise UsageError(
            f"{ones:,} of {nodes:,} nodes should have one link, but the others can take only {spare:,} of them; "
            "give a smaller --degree-one"
        )
    return degrees


def _middle(nodes: int, ones: int, slope: float) -> tuple[Ints, Ints]:
    """Degrees from 2 on, and how many nodes get each: as many as bring the CCDF down to its target."""
    degrees, counts = [], []
    left = nodes - ones  # the actual CCDF, P(degree > d), times nodes
    degree = 2
    while left > HUBS:
        surplus = left - nodes * exp(-0.711) * degree**slope
        count = min(int(surplus), left - HUBS) if degree < nodes - 1 else left - HUBS
        if count >= 1:
            degrees.append(degree)
            counts.append(count)
            left -= count
        degree += 1
    return np.array(degrees, np.int64), np.array(counts, np.int64)


def weights(degree: Ints, count: Ints) -> Floats:
    """INET's weight of joining a node of one degree (row) to one of another (column), by class."""
    size, frequency = np.log(degree), np.log(count)
    apart = np.hypot(size[:, None] - size, frequency[:, None] - frequency)
    whole: Floats = np.floor(np.maximum(apart, 1.0) / 2 * degree)
    return np.maximum(whole, 1.0)


def join(degrees: Ints, random: Generator) -> tuple[Ints, Ints]:
    """Links that give nodes these degrees (decreasing); a few stubs may find no partner."""
    if len(degrees) == 1:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    degree, begin, count = np.unique(-degrees, return_index=True, return_counts=True)
    classes = np.repeat(np.arange(len(degree)), count)
    table = weights(-degree, count)
    ends = np.full((int(degrees.sum()) // 2, 2), -1, np.int64)
    made = connect(degrees, classes, begin, table, random, ends)
    return ends[:made, 0].copy(), ends[:made, 1].copy()


@kernel
def connect(degrees: Ints, classes: Ints, begin: Ints, table: Floats, random: Generator, ends: Ints) -> int:
    """Run the three phases; gives the number of links written to `ends`.

    pool[begin[c] : begin[c] + alive[c]] are the nodes of class c that may be chosen, place[v] is where v is in it.
    """
    nodes = len(degrees)
    free, pool, place = degrees.copy(), np.arange(nodes), np.arange(nodes)
    alive, blocked = np.zeros(len(begin), np.int64), np.zeros(len(begin), np.int64)
    chosen_by = np.full(nodes, -1, np.int64)  # in phase III: whose neighbour a node is, for the one whose turn it is
    starts = np.zeros(nodes + 1, np.int64)  # neighbours of v so far: near[starts[v] : starts[v] + degrees[v] - free[v]]
    for v in range(nodes):
        starts[v + 1] = starts[v] + degrees[v]
    near = np.empty(starts[nodes], np.int64)
    made = 0
    for v in range(nodes):  # I and II: decreasing degree, so those of degree 1 come last
        if v > 0:
            other = choose(table[classes[v]], alive, blocked, begin, pool, chosen_by, v, random)
            made = link(v, other, ends, made, free, near, starts, degrees)
            if free[other] == 0:
                remove(other, classes, begin, alive, pool, place)
        if free[v] > 0:
            admit(v, classes, begin, alive, pool, place)
    for v in range(nodes):  # III
        if free[v] == 0:
            continue
        remove(v, classes, begin, alive, pool, place)
        blocked[:] = 0
        for i in range(starts[v], starts[v] + degrees[v] - free[v]):
            chosen_by[near[i]] = v
            blocked[classes[near[i]]] += in_pool(near[i], classes, begin, alive, place)
        while free[v] > 0:
            other = choose(table[classes[v]], alive, blocked, begin, pool, chosen_by, v, random)
            if other < 0:
                break
            made = link(v, other, ends, made, free, near, starts, degrees)
            chosen_by[other] = v
            if free[other] == 0:
                remove(other, classes, begin, alive, pool, place)
            else:
                blocked[classes[other]] += 1
    return made


@part
def choose(
    weight: Floats, alive: Ints, blocked: Ints, begin: Ints, pool: Ints, chosen_by: Ints, v: int, random: Generator
) -> int:
    """A node for v by weight, none that it has already; -1 if there is none."""
    total = 0.0
    for c in range(len(alive)):
        total += weight[c] * (alive[c] - blocked[c])
    if total == 0.0:
        return -1
    at, last = random.random() * total, -1
    for c in range(len(alive)):
        if alive[c] > blocked[c]:
            last = c
            at -= weight[c] * (alive[c] - blocked[c])
            if at < 0:
                break
    while True:  # each free member is equally likely; most members of large classes are free
        other = pool[begin[last] + int(random.random() * alive[last])]
        if chosen_by[other] != v:
            return int(other)


@part
def link(a: int, b: int, ends: Ints, made: int, free: Ints, near: Ints, starts: Ints, degrees: Ints) -> int:
    """Join two nodes; gives the number of links now."""
    ends[made, 0], ends[made, 1] = a, b
    near[starts[a] + degrees[a] - free[a]] = b
    near[starts[b] + degrees[b] - free[b]] = a
    free[a] -= 1
    free[b] -= 1
    return made + 1


@part
def admit(v: int, classes: Ints, begin: Ints, alive: Ints, pool: Ints, place: Ints) -> None:
    """Put v among those that may be chosen."""
    exchange(place[v], begin[classes[v]] + alive[classes[v]], pool, place)
    alive[classes[v]] += 1


@part
def remove(v: int, classes: Ints, begin: Ints, alive: Ints, pool: Ints, place: Ints) -> None:
    """Take v out of those that may be chosen."""
    alive[classes[v]] -= 1
    exchange(place[v], begin[classes[v]] + alive[classes[v]], pool, place)


@part
def in_pool(v: int, classes: Ints, begin: Ints, alive: Ints, place: Ints) -> bool:
    """Whether v may be chosen."""
    return bool(place[v] < begin[classes[v]] + alive[classes[v]])


@part
def exchange(i: int, j: int, pool: Ints, place: Ints) -> None:
    """Exchange two places of the pool."""
    pool[i], pool[j] = pool[j], pool[i]
    place[pool[i]], place[pool[j]] = i, j
