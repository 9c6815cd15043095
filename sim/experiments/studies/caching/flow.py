r"""Policies by min-cost flow: OPT-offline knows the future, FlowExpect knows its chances.

A slot of the memory is a unit of flow through time. It rests, or is with a tuple from its arrival on, step by step, and
may leave it after any step; a step with a tuple costs minus what the tuple then produces, on average::

    time    t ------------ t+1 ------------ t+2 ------------ t+3       rest: 0, up to k slots
             \              ^                ^
    tuple x   \--- x,1 ----/                /                          kept for one step: -e(t+1)
                    \----------- x,2 ------/                           for two: -e(t+1) - e(t+2)

So a cheapest flow of k units is a best way to use k slots. (Xie (2007), section 3.3, draws copies of all tuples in
every step, with arcs between them: the same flows in a larger graph.) Where nothing is expected of a tuple, steps are
put together: OPT-offline has an arc for each result, not for each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hullcast.network.compiled import kernel, part
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.experiments.studies.caching.models import StreamModel
from hullcast.sim.experiments.studies.caching.policy import Candidates, MemoryPolicy


@kernel
def cheapest_flow(
    tails: Ints, heads: Ints, capacities: Ints, costs: Floats, nodes: int, amount: int, flows: Ints
) -> float:
    """Send up to `amount` units from node 0 to the last one at the least cost; its cost, and the flow of each arc.

    Arcs go from lower to higher numbers of nodes: so the first distances take one pass over the arcs, which are in
    order of their tails. Then shortest paths one after the other (Dijkstra with potentials). It stops early if more
    flow costs more than nothing. O(amount * arcs * log nodes).
    """
    arcs = len(tails)
    # arcs in both directions: 2i and 2i + 1
    start = np.zeros(nodes + 1, np.int64)
    for arc in range(arcs):
        start[tails[arc] + 1] += 1
        start[heads[arc] + 1] += 1
    for node in range(nodes):
        start[node + 1] += start[node]
    fill = start[:-1].copy()
    out = np.empty(2 * arcs, np.int64)
    to, room, price = np.empty(2 * arcs, np.int64), np.empty(2 * arcs, np.int64), np.empty(2 * arcs, np.float64)
    for arc in range(arcs):
        one, back = 2 * arc, 2 * arc + 1
        to[one], room[one], price[one] = heads[arc], capacities[arc], costs[arc]
        to[back], room[back], price[back] = tails[arc], 0, -costs[arc]
        out[fill[tails[arc]]] = one
        fill[tails[arc]] += 1
        out[fill[heads[arc]]] = back
        fill[heads[arc]] += 1
    potential = np.full(nodes, np.inf)
    potential[0] = 0.0
    for node in range(nodes):
        for place in range(start[node], start[node + 1]):
            arc = out[place]
            if room[arc] > 0 and potential[node] + price[arc] < potential[to[arc]]:
                potential[to[arc]] = potential[node] + price[arc]
    distance, came = np.empty(nodes, np.float64), np.empty(nodes, np.int64)
    heap, keys = np.empty(2 * arcs + 2, np.int64), np.empty(2 * arcs + 2, np.float64)
    total = 0.0
    while amount > 0:
        _shortest(start, out, to, room, price, potential, distance, came, heap, keys)
        last = nodes - 1
        if not distance[last] < np.inf:
            break
        for node in range(nodes):  # nodes farther than the end need no exact distance
            potential[node] += min(distance[node], distance[last])
        cost = potential[last] - potential[0]
        if cost > -1e-12:
            break
        sent, node = amount, last
        while node != 0:
            sent = min(sent, room[came[node]])
            node = to[came[node] ^ 1]
        node = last
        while node != 0:
            room[came[node]] -= sent
            room[came[node] ^ 1] += sent
            node = to[came[node] ^ 1]
        amount -= sent
        total += sent * cost
    for arc in range(arcs):
        flows[arc] = room[2 * arc + 1]
    return total


@part
def _shortest(
    start: Ints, out: Ints, to: Ints, room: Ints, price: Floats, potential: Floats, distance: Floats, came: Ints,
    heap: Ints, keys: Floats,
) -> None:  # fmt: skip
    """Distances from node 0 by reduced costs, up to that of the last node; `came`: the arc by which."""
    nodes = len(distance)
    distance[:] = np.inf
    came[:] = -1
    distance[0] = 0.0
    heap[0], keys[0], size = 0, 0.0, 1
    while size > 0:
        node, key = heap[0], keys[0]
        size -= 1
        _sift_down(heap, keys, size)
        if key > distance[node]:
            continue
        if node == nodes - 1:
            break
        for place in range(start[node], start[node + 1]):
            arc = out[place]
            head = to[arc]
            if room[arc] > 0:
                reduced = price[arc] + potential[node] - potential[head]
                far = key + max(reduced, 0.0)  # below 0 by rounding only
                if far < distance[head]:
                    distance[head], came[head] = far, arc
                    at = size
                    size += 1
                    while at > 0 and keys[(at - 1) // 2] > far:
                        keys[at], heap[at] = keys[(at - 1) // 2], heap[(at - 1) // 2]
                        at = (at - 1) // 2
                    keys[at], heap[at] = far, head


@part
def _sift_down(heap: Ints, keys: Floats, size: int) -> None:
    """Put the element behind the last one in the place of the first, which left."""
    node, key, at = heap[size], keys[size], 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[at], heap[at] = keys[child], heap[child]
        at = child
    keys[at], heap[at] = key, node


@dataclass(frozen=True, slots=True, eq=False)
class Stay:
    """What a tuple can do for a slot: from `begin` on, `gains[i]` in step `steps[i]` (rising, after `begin`)."""

    begin: int
    steps: Ints
    gains: Floats


def best_stays(stays: Sequence[Stay], steps: int, slots: int) -> tuple[float, list[int]]:
    """Until which step each tuple is best kept, with so many slots, in steps 0 .. `steps`; and what that gives.

    A tuple that is not kept ends when it begins.
    """
    # a node for each step, and one for each gain of each tuple, numbered by time: gains of a step come before the step
    counts = np.zeros(steps + 2, np.int64)
    for stay in stays:
        np.add.at(counts, stay.steps, 1)
    time_node = np.cumsum(counts[: steps + 1] + 1) - 1
    free = time_node - counts[: steps + 1]
    gains = sum(len(stay.steps) for stay in stays)
    arcs = 2 * gains + steps
    tails, heads, costs = np.empty(arcs, np.int64), np.empty(arcs, np.int64), np.zeros(arcs)
    capacities = np.ones(arcs, np.int64)
    tails[:steps], heads[:steps], capacities[:steps] = time_node[:-1], time_node[1:], slots
    at = steps
    nexts = free.copy()
    for stay in stays:
        n = len(stay.steps)
        if n == 0:
            continue
        mine = nexts[stay.steps]
        nexts[stay.steps] += 1
        tails[at], tails[at + 1 : at + n] = time_node[stay.begin], mine[:-1]
        heads[at : at + n], costs[at : at + n] = mine, -stay.gains
        tails[at + n : at + 2 * n], heads[at + n : at + 2 * n] = mine, time_node[stay.steps]
        at += 2 * n
    flows = np.zeros(arcs, np.int64)
    gained = -cheapest_flow(tails, heads, capacities, costs, int(time_node[-1]) + 1, slots, flows)
    ends, at = [], steps
    for stay in stays:
        n = len(stay.steps)
        kept = int(flows[at : at + n].sum())
        ends.append(int(stay.steps[kept - 1]) if kept else stay.begin)
        at += 2 * n
    return gained, ends


class OptOffline(MemoryPolicy):
    """The most results that any policy can have: it knows both streams to their ends (Das et al. 2003)."""

    name: ClassVar[str] = "OPT-offline"

    def __init__(self, r: Ints, s: Ints, memory: int) -> None:
        stays = []
        for t in range(len(r)):
            for mine, other in ((r, s), (s, r)):
                later = _positions(other).get(int(mine[t]), _NOWHERE)
                later = later[np.searchsorted(later, t, side="right") :]
                stays.append(Stay(t, later, np.ones(len(later))))
        self.results, ends = best_stays(stays, len(r) - 1, memory)
        self._ends = np.array(ends).reshape(len(r), 2)

    def worth(self, candidates: Candidates, now: int) -> Floats:
        ends = self._ends[candidates.arrived, candidates.sides]
        return np.where(ends > now, 1.0, 0.0)


_NOWHERE: Ints = np.zeros(0, np.int64)
_known: dict[int, tuple[Ints, dict[int, Ints]]] = {}


def _positions(values: Ints) -> dict[int, Ints]:
    """In which steps a stream shows each value. The last two streams asked for are remembered."""
    held = _known.get(id(values))
    if held is None or held[0] is not values:
        order = np.argsort(values, kind="stable")
        shown, first = np.unique(values[order], return_index=True)
        held = values, dict(zip(shown.tolist(), np.split(order, first[1:]), strict=True))
        while len(_known) > 1:
            _known.pop(next(iter(_known)))
        _known[id(values)] = held
    return held[1]


class FlowExpect(MemoryPolicy):
    """Plans the next `ahead` steps by a flow over what is expected, and takes the first decision of the plan.

    It weighs only plans that are fixed in advance, and so is not optimal however far it looks.
    """

    name: ClassVar[str] = "FlowExpect"

    def __init__(self, models: tuple[StreamModel, StreamModel], memory: int, ahead: int) -> None:
        self._models, self._memory, self._ahead = models, memory, ahead
        self._last = [0, 0]

    def show(self, shown: Sequence[int | None], now: int) -> None:
        for side, value in enumerate(shown):
            if value is not None:
                self._last[side] = value

    def worth(self, candidates: Candidates, now: int) -> Floats:
        steps = np.arange(1, self._ahead + 1)
        come = [[model.ahead(dt, now, last) for dt in steps.tolist()]
                for model, last in zip(self._models, self._last, strict=True)]  # fmt: skip
        gains = np.zeros((len(candidates.values), self._ahead))
        for side in (0, 1):
            mine = candidates.sides == side
            for dt in range(self._ahead):
                gains[mine, dt] = come[1 - side][dt].of(candidates.values[mine])
        stays = [Stay(0, steps, row) for row in gains]
        for begin in range(1, self._ahead):
            for side in (0, 1):
                mine = come[side][begin - 1]
                then = [float(mine.each @ other.of(mine.values())) for other in come[1 - side][begin:]]
                stays.append(Stay(begin, steps[begin:], np.array(then)))
        _, ends = best_stays(stays, self._ahead, self._memory)
        kept = np.array(ends[: len(gains)]) > 0
        # the plan says who stays; if it needs fewer than there is room for, those of most benefit stay, too
        return np.asarray(np.where(kept, 1e6, 0.0) + gains.sum(axis=1))
