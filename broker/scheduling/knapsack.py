"""Where pending updates go between waiting queries: the most profit within a slot, at the least cost.

Every update is a *class* of positions. At position k it runs before the last k queries: that costs k times its own time
(each of them waits for it) and brings its profit once for each of them that depends on it. Position 0, after all
queries, costs and brings nothing. One position of each update is chosen (Thiele, Bader, Lehner: Multi-objective
scheduling for real-time data warehouses, 2009, section 3.2: a knapsack problem with classes).

It is not the paper's table, but begins with the relaxed problem (D. Pisinger: A minimal algorithm for the
multiple-choice knapsack problem, 1995; `sim/experiments/studies/scheduling/POLICIES.md` has the steps):

1 At a price of num / den profit for a unit of time each class has a best item, its *base*; any other item has a
  *loss*, what it brings less than the base at that price. For every choice

      profit = bound - losses - price * time of the slot that is not used

2 Dynamic programming over the classes that remain, those with the cheapest changes first. A state is a choice for the
  classes so far, base for the others: a complete answer. A state that another dominates is dropped, and so is any that
  cannot become better than the best so far.

The answer is exact: the most profit, and of the choices with that profit one of least cost. If there are more states
than there is room or `effort` for, it is less than exact, and `lost_profit` and `lost_cost` bound what that may have
cost.

Cost for N items: O(N log N), and for each class that is looked at O(S m log m) with S states and m items that are left
of it; memory for N items and S states, and one node (8 bytes) for each state that was kept, to walk back.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, inf
from typing import Any

import numpy as np
import numpy.typing as npt

from hullcast.network.compiled import kernel, part

Integers = npt.NDArray[np.int64]

#: States kept at once, and nodes for the walk back: 80 and 8 bytes each.
STATES = 1 << 17
NODES = 1 << 22
#: Whole numbers stay below this, so that sums of two cannot wrap.
ROOM = 1 << 61
#: States there is room for at the beginning.
FEW = 1024
#: Rounds of the first guess; each moves one update to where it helps most.
GUESSES = 8
#: States looked at in all: some tenths of a second.
EFFORT = 1 << 23
# what `_expand` gives back in place of a number of states
NO_ROOM, TOO_LONG = -1, -2
# places in the array that kernels and Python share
PROFIT, COST, NODE, ITEM, USED, WORK = range(6)


@dataclass(frozen=True, slots=True)
class UpdatePositions:
    """The positions of each update that no other position of it dominates; position 0 is always the first of its class.

    Invariant P1: within a class places, costs and profits increase strictly.
    """

    first: Integers  # by class where its items begin, and at the end how many there are
    place: Integers
    cost: Integers
    profit: Integers


@dataclass(frozen=True, slots=True)
class PackedUpdates:
    """What was chosen, and how good it is."""

    place: Integers  # by update
    profit: int
    cost: int
    lost_profit: int  # an optimal choice has at most this much more profit; 0: this has the most there is
    lost_cost: int  # and with the same profit its cost is at most this much less
    work: int  # states looked at
    states: int  # most at once
    size_bytes: int  # of all arrays

    @property
    def exact(self) -> bool:
        """Whether no choice can be better."""
        return not self.lost_profit and not self.lost_cost


def update_positions(costs: Integers, profits: Integers, first: Integers, depends: Integers) -> UpdatePositions:
    """The classes of updates with these costs (1 or more) and profits.

    `depends[first[u] : first[u + 1]]` are the positions of the queries that depend on update u, counted from the last
    query (1), in increasing order.
    """
    assert len(costs) == 0 or costs.min() > 0, "an update takes at least one unit of time"
    useful = np.where(profits > 0, np.diff(first), 0)
    counts = useful + 1
    begins = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    owner = np.repeat(np.arange(len(costs)), counts)
    rank = np.arange(begins[-1]) - begins[owner]
    place = np.zeros(begins[-1], dtype=np.int64)
    behind = rank > 0
    place[behind] = depends[(first[owner] + rank - 1)[behind]]
    return UpdatePositions(begins, place, costs[owner] * place, profits[owner] * rank)


def packed(positions: UpdatePositions, slot: int, effort: int = EFFORT) -> PackedUpdates:
    """The most profitable positions whose costs together are within the slot, and of these the cheapest."""
    if slot < 0:
        raise ValueError(f"the slot must be 0 or more, got {slot}")
    cost, profit = positions.cost, positions.profit
    step, gain = (max(1, int(np.gcd.reduce(each))) if len(each) else 1 for each in (cost, profit))
    cost, profit = cost // step if step > 1 else cost, profit // gain if gain > 1 else profit
    task = _Packing(positions.first, cost, profit, slot // step, effort)
    chosen = task.solve()
    found, paid = int(positions.profit[chosen].sum()), int(positions.cost[chosen].sum())
    lost = task.lost[0] * gain, task.lost[1] * step
    return PackedUpdates(positions.place[chosen], found, paid, *lost, task.work, task.states, task.size_bytes)


@dataclass(frozen=True, slots=True)
class _Relaxed:
    """The problem with a price for time in place of the slot."""

    num: int  # price of a unit of time: num / den profit; 0 if everything fits
    den: int
    slot: int
    base: Integers  # by class the item that is best at this price
    steps: Integers  # of the hulls, the steepest first, from the one on that does not fit
    base_cost: int
    base_profit: int

    @classmethod
    def of(cls, first: Integers, cost: Integers, profit: Integers, slot: int) -> _Relaxed:
        """At the price at which the slot is just used up."""
        steps = np.empty((4, len(cost)), dtype=np.int64)
        steps = steps[:, : _hulls(first, cost, profit, steps)]
        order = np.argsort(-(steps[1] / steps[0]), kind="stable")
        breaks = int(np.searchsorted(np.cumsum(steps[0][order]), slot, side="right"))
        num, den = 0, 1
        if breaks < len(order):
            num, den = int(steps[1, order[breaks]]), int(steps[0, order[breaks]])
            num, den = num // gcd(num, den), den // gcd(num, den)
        most, dearest = int(profit[first[1:] - 1].sum()), int(cost[first[1:] - 1].sum())
        while den > 1 and max(num * max(slot, dearest), most * den) >= ROOM:  # any price bounds, this one less tightly
            num, den = num >> 1, den >> 1
        base = first[:-1].copy()
        np.maximum.at(base, steps[2, order[:breaks]], steps[3, order[:breaks]])
        _bases(first, cost, profit, num, den, base)
        return cls(
            num,
            den,
            slot,
            base,
            np.ascontiguousarray(steps[:, order[breaks:]]),
            int(cost[base].sum()),
            int(profit[base].sum()),
        )

    def short_of(self, profit: int, cost: int) -> tuple[int, int]:
        """How much more profit there may be in the slot, and how much less the same profit may cost."""
        gap = self.base_profit * self.den + self.num * (self.slot - self.base_cost) - profit * self.den
        if not self.num:
            return gap // self.den, 0 if gap == 0 else cost
        # profit at cost c is at most bound - price * (slot - c)
        least = self.slot - gap // self.num
        return gap // self.den, max(0, cost - max(0, least))


class _Packing:
    """One knapsack to pack."""

    def __init__(self, first: Integers, cost: Integers, profit: Integers, slot: int, effort: int) -> None:
        self._first, self._cost, self._profit, self._slot, self._effort = first, cost, profit, slot, effort
        self.work = self.states = 0
        self.size_bytes = first.nbytes + 10 * cost.nbytes  # with what the relaxed problem and the core take for a while
        self.lost = 0, 0

    def solve(self) -> Integers:
        """By class the item chosen."""
        relaxed = _Relaxed.of(self._first, self._cost, self._profit, self._slot)
        chosen = relaxed.base.copy()
        if not relaxed.num:
            return chosen  # everything fits: the base is each class's most profitable item
        if relaxed.base_cost > self._slot:  # by rounding of slopes; the guess begins with nothing
            chosen[:] = self._first[:-1]
        _fill(relaxed.steps, self._cost, self._slot, chosen)
        for _ in range(GUESSES):
            if not _improve(self._first, self._cost, self._profit, self._slot, chosen):
                break
        core = _Core(relaxed, self._first, self._cost, self._profit, chosen)
        core.run(self._effort)
        self.work, self.states = core.work, core.most
        chosen = core.chosen()
        self.size_bytes += core.size_bytes
        if core.cut:
            self.lost = relaxed.short_of(int(self._profit[chosen].sum()), int(self._cost[chosen].sum()))
        return chosen


class _Core:
    """Dynamic programming over the classes near the price: costs and profits are told relative to the base.

    Invariant K1: states are in increasing order of cost, and of profit.
    """

    def __init__(self, relaxed: _Relaxed, first: Integers, cost: Integers, profit: Integers, guess: Integers) -> None:
        self._relaxed, self._first, self._guess = relaxed, first, guess
        owner = np.repeat(np.arange(len(first) - 1), np.diff(first))
        base = relaxed.base[owner]
        changed_cost, changed_profit = cost - cost[base], profit - profit[base]
        self._slack = relaxed.slot - relaxed.base_cost
        self._best = np.zeros(6, dtype=np.int64)
        self._best[PROFIT] = int(profit[guess].sum()) - relaxed.base_profit
        self._best[COST] = int(cost[guess].sum()) - relaxed.base_cost
        self._best[NODE] = self._best[ITEM] = -1
        loss = relaxed.num * changed_cost - relaxed.den * changed_profit
        left = np.flatnonzero((changed_cost != 0) & (loss <= self._gap()))
        rate = loss[left] / np.abs(changed_cost[left])
        up = changed_cost[left] > 0
        classes = len(first) - 1
        cheapest = np.full(classes, inf)
        np.minimum.at(cheapest, owner[left], rate)
        self._order = np.argsort(cheapest, kind="stable")[: np.count_nonzero(cheapest < inf)]
        position = np.empty(classes, dtype=np.int64)
        position[self._order] = np.arange(len(self._order))
        sorting = np.argsort(position[owner[left]], kind="stable")
        self._item = left[sorting]
        self._dc, self._dp, self._loss = changed_cost[self._item], changed_profit[self._item], loss[self._item]
        turn = position[owner[self._item]]
        self._begin = np.searchsorted(turn, np.arange(len(self._order) + 1))
        # what the classes after each charge at least for a unit of time more, or less
        self._dearer, self._cheaper = np.full(len(self._order) + 1, inf), np.full(len(self._order) + 1, inf)
        np.minimum.at(self._dearer, turn[up[sorting]], rate[sorting][up[sorting]])
        np.minimum.at(self._cheaper, turn[~up[sorting]], rate[sorting][~up[sorting]])
        for rates in (self._dearer, self._cheaper):
            rates[:] = np.minimum.accumulate(rates[::-1])[::-1]
        self._nodes = np.empty((2, FEW), dtype=np.int32)  # for the walk back: the node before, and the item
        self._states, self._grown = np.empty((5, FEW), dtype=np.int64), np.empty((5, FEW), dtype=np.int64)
        self._states[:, 0] = (0, 0, -1, -1, 0)
        self._heap = np.empty((int(np.diff(self._begin).max(initial=0)) + 2, 4), dtype=np.int64)
        self.cut, self.most = False, 1

    @property
    def work(self) -> int:
        """States looked at."""
        return int(self._best[WORK])

    @property
    def size_bytes(self) -> int:
        """Of all that is here."""
        return 4 * self._item.nbytes + 2 * self._states.nbytes + self._nodes.nbytes

    def run(self, effort: int) -> None:
        """Go through the classes until none of those left can make the best better."""
        count, cap = 1, ROOM
        for turn in range(len(self._begin) - 1):
            low, high = int(self._begin[turn]), int(self._begin[turn + 1])
            if self._loss[low:high].min() > self._gap():
                continue  # it stays at its base in any better choice
            while (grown := self._expand(turn, low, high, count, cap, effort)) == NO_ROOM:
                if self._states.shape[1] < STATES:
                    self._states, self._grown = _doubled(self._states), _doubled(self._grown)
                else:
                    self.cut, cap = True, min(cap, self._gap()) * 4 // 5
            if grown == TOO_LONG:
                self.cut = True
                break
            count, self.most = grown, max(self.most, grown)
            used = int(self._best[USED])
            while used + count > self._nodes.shape[1] < NODES:
                self._nodes = _doubled(self._nodes)
            if used + count > self._nodes.shape[1]:
                self.cut = True
                break
            self._best[USED] = _keep(self._grown, count, self._nodes, used)
            self._states, self._grown = self._grown, self._states
            if not count:
                break

    def chosen(self) -> Integers:
        """The best choice."""
        if self._best[ITEM] < 0:
            return self._guess
        chosen = self._relaxed.base.copy()
        item, node = int(self._best[ITEM]), int(self._best[NODE])
        while item >= 0:
            at = self._item[item]
            chosen[int(np.searchsorted(self._first, at, side="right")) - 1] = at
            node, item = (int(each) for each in self._nodes[:, node]) if node >= 0 else (-1, -1)
        return chosen

    def _gap(self) -> int:
        """No choice with larger losses is better than the best: brings more, or as much for less."""
        return int(_gap(self._best, self._slack, self._relaxed.num, self._relaxed.den))

    def _expand(self, turn: int, low: int, high: int, count: int, cap: int, effort: int) -> int:
        """Let the states differ in one more class; how many there are then (in `_grown`), NO_ROOM or TOO_LONG."""
        rates = min(float(self._dearer[turn + 1]), float(self._relaxed.num)), float(self._cheaper[turn + 1])
        terms = self._slack, self._relaxed.num, self._relaxed.den, cap, effort
        items = self._dc, self._dp, self._loss, low, high
        return int(_expand(self._states, count, self._grown, *items, self._heap, *terms, *rates, self._best))


def _doubled(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.concatenate([rows, np.empty_like(rows)], axis=1)


@kernel
def _hulls(first: Integers, cost: Integers, profit: Integers, steps: Integers) -> int:
    """The steps of each class's upper hull (cost, profit, class, item it leads to); how many there are."""
    count = 0
    for each in range(len(first) - 1):
        begin = count
        for item in range(first[each] + 1, first[each + 1]):
            more_cost, more_profit = cost[item] - cost[item - 1], profit[item] - profit[item - 1]
            # a step that is as steep as the one before, or steeper, becomes one with it
            while count > begin and steps[1, count - 1] * more_cost <= more_profit * steps[0, count - 1]:
                count -= 1
                more_cost += steps[0, count]
                more_profit += steps[1, count]
            steps[0, count], steps[1, count], steps[2, count], steps[3, count] = more_cost, more_profit, each, item
            count += 1
    return count


@kernel
def _bases(first: Integers, cost: Integers, profit: Integers, num: int, den: int, base: Integers) -> None:
    """By class the best item at a price; of equals the one that is there."""
    for each in range(len(first) - 1):
        best = base[each]
        value = profit[best] * den - cost[best] * num
        for item in range(first[each], first[each + 1]):
            if profit[item] * den - cost[item] * num > value:
                best, value = item, profit[item] * den - cost[item] * num
        base[each] = best


@kernel
def _fill(steps: Integers, cost: Integers, slot: int, chosen: Integers) -> None:
    """Take further steps of the hulls, where they begin at what is chosen and still fit."""
    left = slot
    for each in range(len(chosen)):
        left -= cost[chosen[each]]
    for step in range(steps.shape[1]):
        each, item = steps[2, step], steps[3, step]
        if steps[0, step] <= left and cost[chosen[each]] + steps[0, step] == cost[item]:
            chosen[each] = item
            left -= steps[0, step]


@kernel
def _improve(first: Integers, cost: Integers, profit: Integers, slot: int, chosen: Integers) -> bool:
    """Change the choice in the one class where that helps most; whether there was one."""
    used = 0
    for each in range(len(chosen)):
        used += cost[chosen[each]]
    which, better, gained, saved = -1, -1, 0, 0
    for each in range(len(chosen)):
        now = chosen[each]
        for item in range(first[each], first[each + 1]):
            more, spare = profit[item] - profit[now], cost[now] - cost[item]
            if used - spare > slot:
                break  # by P1 those behind cost more
            if more > gained or (more == gained and spare > saved):
                which, better, gained, saved = each, item, more, spare
    if which < 0:
        return False
    chosen[which] = better
    return True


@kernel
def _gap(best: Integers, slack: int, num: int, den: int) -> int:
    """The largest loss with which a choice can still bring more than the best, or as much for less."""
    profit, cost = int(best[PROFIT]), int(best[COST])
    return max(num * slack - (profit + 1) * den, num * (cost - 1) - profit * den)


@part
def _hopeful(
    cost: int, loss: int, cap: int, best: Integers, slack: int, num: int, den: int, dearer: float, cheaper: float
) -> bool:
    """Whether a state can become better than the best: its losses, and what it takes at least to bring its cost to the
    slot (or, to be as good for less, to just below the best's), leave room for it. `cap`: the most these may be, where
    there are too many states.

    The rates are taken a little lower than they are, for rounding: a state too many does no harm.
    """
    off = slack - cost
    back = off * dearer * 0.999999 if off > 0 else (-off * cheaper * 0.999999 if off < 0 else 0.0)
    if loss + back <= min(cap, num * slack - (best[PROFIT] + 1) * den):
        return True
    off = best[COST] - 1 - cost
    back = off * dearer * 0.999999 if off > 0 else (-off * cheaper * 0.999999 if off < 0 else 0.0)
    return bool(loss + back <= min(cap, num * (best[COST] - 1) - best[PROFIT] * den))


@part
def _next(states: Integers, count: int, dc: Integers, dp: Integers, loss: Integers, gap: int, row: Integers) -> bool:
    """Move a merged row, its item and its place in the states, to its next state with losses within the gap; whether
    there is one."""
    item = row[2]
    more = 0 if item < 0 else loss[item]
    at = row[3] + 1
    while at < count and states[4, at] + more > gap:
        at += 1
    if at == count:
        return False
    row[0] = states[0, at] + (0 if item < 0 else dc[item])
    row[1] = states[1, at] + (0 if item < 0 else dp[item])
    row[3] = at
    return True


@part
def _sift(heap: Integers, at: int, size: int) -> None:
    """Let a row of the heap sink to its place: least cost first, and of equals most profit."""
    cost, profit, item, place = heap[at, 0], heap[at, 1], heap[at, 2], heap[at, 3]
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and (
            heap[below + 1, 0] < heap[below, 0]
            or (heap[below + 1, 0] == heap[below, 0] and heap[below + 1, 1] > heap[below, 1])
        ):
            below += 1
        if cost < heap[below, 0] or (cost == heap[below, 0] and profit >= heap[below, 1]):
            break
        heap[at, 0], heap[at, 1] = heap[below, 0], heap[below, 1]
        heap[at, 2], heap[at, 3] = heap[below, 2], heap[below, 3]
        at = below
    heap[at, 0], heap[at, 1], heap[at, 2], heap[at, 3] = cost, profit, item, place


@kernel
def _expand(
    states: Integers,
    count: int,
    grown: Integers,
    dc: Integers,
    dp: Integers,
    loss: Integers,
    low: int,
    high: int,
    heap: Integers,
    slack: int,
    num: int,
    den: int,
    cap: int,
    effort: int,
    dearer: float,
    cheaper: float,
    best: Integers,
) -> int:
    """Merge the states with themselves changed by each item of a class, in order of cost; how many remain.

    -1 if there is no room for them, -2 if that took more effort than allowed. Rows of states: cost, profit, node, item,
    loss.
    """
    gap = min(cap, _gap(best, slack, num, den))
    size = 0
    for item in range(low - 1, high):  # the one before stands for the base
        heap[size, 2], heap[size, 3] = (-1 if item < low else item), -1
        if _next(states, count, dc, dp, loss, gap, heap[size]):
            size += 1
    for at in range(size // 2, -1, -1):
        if at < size:
            _sift(heap, at, size)
    kept = 0
    top = heap[0]
    while size:
        best[WORK] += 1
        cost, profit, item, node = top[0], top[1], top[2], states[2, top[3]]
        if not _next(states, count, dc, dp, loss, gap, top):
            size -= 1
            top[0], top[1], top[2], top[3] = heap[size, 0], heap[size, 1], heap[size, 2], heap[size, 3]
        _sift(heap, 0, size)
        if kept and profit <= grown[1, kept - 1]:
            continue  # another costs no more and brings no less
        if cost <= slack and (profit > best[PROFIT] or (profit == best[PROFIT] and cost < best[COST])):
            best[PROFIT], best[COST], best[NODE], best[ITEM] = profit, cost, node, item
            gap = min(cap, _gap(best, slack, num, den))
        lost = num * cost - den * profit
        if not _hopeful(cost, lost, cap, best, slack, num, den, dearer, cheaper):
            continue
        if kept == grown.shape[1]:
            return -1
        if best[WORK] > effort:
            return -2
        grown[0, kept], grown[1, kept], grown[2, kept] = cost, profit, node
        grown[3, kept], grown[4, kept] = item, lost
        kept += 1
    return kept


@kernel
def _keep(grown: Integers, count: int, nodes: npt.NDArray[np.int32], used: int) -> int:
    """Make the result of a class the states of the next: those with a new item get nodes. How many nodes there are."""
    for at in range(count):
        node = grown[2, at]
        if grown[3, at] >= 0:
            nodes[0, used], nodes[1, used] = node, grown[3, at]
            node = used
            used += 1
        grown[2, at] = node
    return used
