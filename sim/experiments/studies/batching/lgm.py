"""The best lazy-greedy-minimal plan for a known refresh time, by A* (Xie (2007), 2.3 and 2.4.2).

A plan that acts only at the limit, empties tables as a whole and empties no more of them than needed costs at most
twice as much as any valid plan, and if all costs are linear as little as any. These plans are paths in a graph:

    state     a step in which the limit is broken, and for each table the step before which it was emptied
    edge      a minimal action; it costs what it propagates, and leads to the next step in which the limit is broken
    goal      the last step: everything is propagated

A* takes the state next that promises the cheapest path: what it cost so far, plus h, what it costs at least from here.
For h each table is looked at by itself, and pays a price p for what it leaves pending after a step:

    ahead_i(u, t) = min of  f_i(k) + ahead_i(t + 1, t + 1)            it is emptied in step t
                            p f_i(k) + ahead_i(u, t + 1)               it is not; only if f_i(k) <= limit
    k: what came of table i in steps u to t;  in the last step it is emptied

    h = sum_i ahead_i(u_i, t) - p limit (steps from t on, without the last)

In a valid plan what all tables leave pending costs at most the limit, so together they pay for a step at most what is
given back for it: no plan costs less than h. And h is *consistent*: along an edge each table does one of the things
that `ahead` is the minimum of, so h falls by no more than the edge costs, and no state is expanded twice. At p = 0
tables know nothing of each other; the price that makes h largest at the start (a concave function of p) makes them
leave room for each other.

Where we leave the thesis: its bound is sum_i floor(N_i / p_i) f_i(p_i), for N_i changes to propagate yet and
p_i = min {k : f_i(k) > limit}. It is a bound if one change comes in a step and average costs fall, and ours then is no
lower. But it is not consistent: with N_i = p_i, to propagate a single change lowers it by f_i(p_i) and costs f_i(1). So
a state may be reached at a lower cost after it was expanded, which the thesis excludes (its Theorem 4).

With linear costs a state that has no more pending of any table than another one of the same step, and cost no more, is
at least as good: it can do whatever the other does. So the other one is dropped. With other costs that need not be so:
what it can do then need not be lazy and greedy.

The graph grows exponentially with the tables. When `effort` states were expanded, the best plan of a *beam* is taken,
which goes from step to step and keeps the `BEAM` most promising states of each; and the least promise in the queue
bounds what any lazy-greedy-minimal plan costs.

Cost for n tables and T steps: n T^2 / 2 numbers (8 bytes) for `ahead`, and O(2^n + actions n log T) for each state.
PLANNERS.md has figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from hullcast.broker.views.planner import ViewPlanner
from hullcast.network.compiled import kernel, part
from hullcast.sim.experiments.studies.batching.costs import tabulated
from hullcast.sim.experiments.studies.batching.planners import made_minimal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.views.costs import CostFunction

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: States expanded before the search gives up and takes the best plan of a beam: some seconds.
EFFORT = 300_000
#: States that a beam keeps of a step.
BEAM = 128
#: Costs are told apart to this part of the whole.
EXACTLY = 1e-12
#: States of the same step that one is compared with, the latest first.
COMPARED = 64
#: Prices looked at, each twice the one before or between two others.
PRICES = 24
#: More tables have too many actions in a step, more steps (times tables) too large bounds: half a gigabyte.
MOST_TABLES, MOST_CELLS = 8, 1 << 26


@dataclass(frozen=True, slots=True)
class MaintenancePlan:
    """Actions up to a refresh, and what they cost with it."""

    actions: list[tuple[int, tuple[int, ...]]]  # step, tables; without the refresh in the last step
    cost_s: float
    least_s: float  # no lazy-greedy-minimal plan costs less; the same if the search came to its end
    expanded: int  # states

    @property
    def exact(self) -> bool:
        """Whether no lazy-greedy-minimal plan is cheaper."""
        return self.least_s == self.cost_s


@dataclass(frozen=True, slots=True)
class LeastAhead:
    """What the tables cost at least from any state on: h above.

    `ahead[first[i, u] + t - u]` is ahead_i(u, t); rows end where table i must be emptied.
    """

    price: float
    first: Integers  # table, step -> place
    width: Integers  # table, step -> how many steps
    ahead: Floats
    total_s: float  # h at the start


@dataclass(frozen=True, slots=True)
class KnownArrivals:
    """A view up to a refresh: what comes when, what it costs, and the limit."""

    come: Integers  # changes of each table before step t, and in the last row all
    each_s: Floats  # f_i(k) by table and k
    most: Integers  # by table the largest batch within the limit
    limit_s: float

    @classmethod
    def of(cls, arrivals: Integers, costs: Sequence[CostFunction], limit_s: float) -> KnownArrivals:
        """`arrivals[t]` changes of each table come in step t, and the view is refreshed in the last one."""
        steps, tables = arrivals.shape
        if not 1 <= tables <= MOST_TABLES or steps < 1 or tables != len(costs):
            raise ValueError(
                f"a plan needs a step or more and 1 to {MOST_TABLES} tables with a cost each, got {steps} steps, "
                f"{tables} tables and {len(costs)} costs"
            )
        come = np.zeros((steps + 1, tables), np.int64)
        np.cumsum(arrivals, axis=0, out=come[1:])
        largest = int(come[-1].max())
        each_s = np.array([tabulated(cost, largest) for cost in costs])
        most = np.array([min(cost.largest_within(limit_s), largest) for cost in costs], np.int64)
        return cls(come, each_s, most, float(limit_s))

    @property
    def linear(self) -> bool:
        """Whether all costs are lines from 1 on."""
        slopes = np.diff(self.each_s[:, 1:], axis=1)
        return not slopes.size or bool((np.ptp(slopes, axis=1) <= 1e-9 * self.each_s[:, -1]).all())

    def least_ahead(self) -> LeastAhead:
        """The bounds with the price that makes them largest at the start, as far as it was looked for."""
        steps, tables = len(self.come) - 1, self.come.shape[1]
        width = np.empty((tables, steps + 1), np.int64)
        for table in range(tables):
            mine = self.come[:, table]
            width[table] = np.searchsorted(mine, mine + self.most[table], side="right") - np.arange(steps + 1)
        width = np.minimum(width, steps - np.arange(steps + 1))
        if width.sum() > MOST_CELLS:
            raise ValueError(f"{steps} steps of {tables} tables are too many to plan for; plan for fewer steps")
        ends = np.cumsum(width.ravel())
        first = (ends - width.ravel()).reshape(width.shape)
        ahead = np.empty(max(1, int(ends[-1])))

        def at(price: float) -> tuple[float, float]:
            total_s, excess_s = _fill_ahead(self.come, self.each_s, first, width, price, self.limit_s, ahead)
            return float(total_s), float(excess_s)

        best, (total_s, excess_s) = 0.0, at(0.0)
        low, high, found = 0.0, 0.5 / steps, False
        for _ in range(PRICES if excess_s > 0 else 0):
            price = (low + high) / 2 if found else 2 * high
            value, excess_s = at(price)
            if value > total_s:
                best, total_s = price, value
            found = found or excess_s <= 0
            if not found:
                low, high = price, price
            elif excess_s > 0:
                low = price
            else:
                high = price
        return LeastAhead(best, first, width, ahead, at(best)[0])


def best_plan(
    arrivals: Integers, costs: Sequence[CostFunction], limit_s: float, effort: int = EFFORT
) -> MaintenancePlan:
    """The cheapest lazy-greedy-minimal plan where `arrivals[t]` changes of each table come in step t, and the view is
    refreshed in the last step; a good one if that takes more than `effort` states. ValueError if it is too large.
    """
    view = KnownArrivals.of(np.ascontiguousarray(arrivals, dtype=np.int64), costs, limit_s)
    bound = view.least_ahead()
    tables = (view.come, view.each_s, bound.first, bound.ahead, bound.price, view.limit_s)
    cost_s, least_s, expanded, when, which = _search(*tables, view.linear, effort)
    if cost_s < 0:
        cost_s, when, which = _beam(*tables, BEAM)
    actions = [
        (step, tuple(table for table in range(len(costs)) if mask >> table & 1))
        for step, mask in zip(when.tolist(), which.tolist(), strict=True)
    ]
    return MaintenancePlan(actions, float(cost_s), float(min(least_s, cost_s)), int(expanded))


class Lgm(ViewPlanner):
    """Follows the best lazy-greedy-minimal plan for changes that are known ahead, action by action."""

    name: ClassVar[str] = "lgm"

    def __init__(self, plan: MaintenancePlan) -> None:
        self._plan = plan
        self._at = 0

    def next(
        self, pending: Sequence[int], costs: Sequence[CostFunction], limit_s: float, now: float
    ) -> tuple[int, ...]:
        wanted = self._plan.actions[self._at][1] if self._at < len(self._plan.actions) else ()
        chosen = made_minimal([cost.of(k) for k, cost in zip(pending, costs, strict=True)], wanted, limit_s)
        self._at += bool(chosen)
        return chosen

    def refreshed(self, now: float) -> None:
        self._at = 0


# -- the bound -------------------------------------------------------------------------------------------------


@kernel
def _fill_ahead(
    come: Integers, each_s: Floats, first: Integers, width: Integers, price: float, limit_s: float, ahead: Floats
) -> tuple[float, float]:
    """ahead_i(u, t) for all; h at the start, and by how much tables that follow it exceed the limit, over all steps."""
    steps, n = come.shape[0] - 1, come.shape[1]
    total_s = -price * limit_s * (steps - 1)
    excess_s = -limit_s * (steps - 1)
    for i in range(n):
        for u in range(steps - 1, -1, -1):
            row = first[i, u]
            for t in range(u + width[i, u] - 1, u - 1, -1):
                cost = each_s[i, come[t + 1, i] - come[u, i]]
                if t == steps - 1:
                    ahead[row + t - u] = cost
                    continue
                value = cost + ahead[first[i, t + 1]]
                if t + 1 < u + width[i, u]:
                    value = min(value, price * cost + ahead[row + t + 1 - u])
                ahead[row + t - u] = value
        total_s += ahead[first[i, 0]]
        u = 0
        for t in range(steps - 1):
            cost = each_s[i, come[t + 1, i] - come[u, i]]
            stays = t + 1 < u + width[i, u]
            if stays and price * cost + ahead[first[i, u] + t + 1 - u] <= cost + ahead[first[i, t + 1]]:
                excess_s += cost
            else:
                u = t + 1
    return total_s, excess_s


@part
def _at_least(
    first: Integers, ahead: Floats, price: float, limit_s: float, last: int, step: int, since: Integers
) -> float:
    """h of a state."""
    cost = -price * limit_s * (last - step)
    for i in range(len(since)):
        cost += ahead[first[i, since[i]] + step - since[i]]
    return cost


# -- the search ------------------------------------------------------------------------------------------------


@kernel
def _search(
    come: Integers, each_s: Floats, first: Integers, ahead: Floats, price: float, limit_s: float, linear: bool,
    effort: int,
) -> tuple[float, float, int, Integers, Integers]:  # fmt: skip
    """Cost of the best plan (-1: the effort ran out), the least cost of any, states expanded, and the steps and tables
    (as bits) of all actions."""
    steps, n = come.shape[0] - 1, come.shape[1]
    last = steps - 1
    room, queue_room = 1024, 1024
    step_of = np.empty(room, np.int32)
    since = np.empty((room, n), np.int32)
    spent = np.empty(room, np.float64)
    before = np.empty(room, np.int32)  # the state that it was reached from
    done_by = np.empty(room, np.int32)  # and by which action
    closed = np.zeros(room, np.bool_)
    slots = np.full(4096, -1, np.int32)
    heads = np.full(steps, -1, np.int32)  # by step its states that may be dropped, as a list
    linked = np.empty(room, np.int32)
    keys = np.empty(queue_room, np.int64)
    queue = np.empty(queue_room, np.int32)
    same = _same(come)
    u = np.zeros(n, np.int64)
    total = _at_least(first, ahead, price, limit_s, last, 0, u)
    unit = max(total, 1e-300) * EXACTLY
    least = total
    each = np.zeros(n)
    valid = np.zeros(1 << n, np.bool_)
    used, waiting, expanded = 0, 0, 0

    # the first state
    step = _advance(come, each_s, limit_s, -1, u)
    step_of[0], spent[0], before[0], done_by[0] = step, 0.0, -1, 0
    for i in range(n):
        since[0, i] = 0
    used = 1
    slots[_slot(slots, step_of, since, step, u)] = 0
    waiting = _push(keys, queue, step_of, waiting, 0, 0)

    while waiting:
        state = queue[0]
        least = max(least, total + keys[0] * unit)
        waiting = _pop(keys, queue, step_of, waiting)
        if closed[state]:
            continue
        closed[state] = True
        step = step_of[state]
        for i in range(n):
            each[i] = each_s[i, come[step + 1, i] - come[since[state, i], i]]
        if step == last:
            cost = spent[state]
            for i in range(n):
                cost += each[i]
            when, which = _walked(state, before, done_by, step_of)
            return cost, cost, expanded, when, which
        if linear:
            if _is_dominated(heads, linked, since, spent, step, state, unit):
                continue
            linked[state], heads[step] = heads[step], state
        expanded += 1
        if expanded > effort:
            break
        if used + (1 << n) > room:
            room *= 2
            step_of, spent, before = _longer(step_of, room), _longer(spent, room), _longer(before, room)
            done_by, linked, closed = _longer(done_by, room), _longer(linked, room), _longer(closed, room)
            closed[room // 2 :] = False
            since = _taller(since, room)
            slots = np.full(4 * room, -1, np.int32)
            for old in range(used):
                for i in range(n):
                    u[i] = since[old, i]
                slots[_slot(slots, step_of, since, step_of[old], u)] = old
        if waiting + (1 << n) > queue_room:
            queue_room *= 2
            keys, queue = _longer(keys, queue_room), _longer(queue, queue_room)

        for mask in range(1 << n):  # supersets have larger numbers
            cost = _acted(mask, each, limit_s, valid, since, state, same, step, u)
            if cost < 0:
                continue
            cost += spent[state]
            to = _advance(come, each_s, limit_s, step, u)
            slot = _slot(slots, step_of, since, to, u)
            known = slots[slot]
            if known >= 0 and (closed[known] or spent[known] <= cost):
                continue
            if known < 0:
                known = used
                used += 1
                slots[slot] = known
                step_of[known] = to
                for i in range(n):
                    since[known, i] = u[i]
            spent[known], before[known], done_by[known] = cost, state, mask
            rank = cost + _at_least(first, ahead, price, limit_s, last, to, u)
            waiting = _push(keys, queue, step_of, waiting, max(0, int((rank - total) / unit)), known)
    return -1.0, least, expanded, np.empty(0, np.int64), np.empty(0, np.int64)


@kernel
def _beam(
    come: Integers, each_s: Floats, first: Integers, ahead: Floats, price: float, limit_s: float, kept: int
) -> tuple[float, Integers, Integers]:
    """Cost, and the steps and tables of all actions, of a plan found by keeping so many states of each step."""
    steps, n = come.shape[0] - 1, come.shape[1]
    last = steps - 1
    room = 1024
    step_of, next_in = np.empty(room, np.int32), np.empty(room, np.int32)
    since = np.empty((room, n), np.int32)
    spent, rank = np.empty(room, np.float64), np.empty(room, np.float64)
    before, done_by = np.empty(room, np.int32), np.empty(room, np.int32)
    heads = np.full(steps, -1, np.int32)  # by step its states, as a list
    same = _same(come)
    u, each, valid = np.zeros(n, np.int64), np.zeros(n), np.zeros(1 << n, np.bool_)
    used = 1
    step_of[0] = _advance(come, each_s, limit_s, -1, u)
    for i in range(n):
        since[0, i] = 0
    spent[0], rank[0], before[0], done_by[0], next_in[0] = 0.0, 0.0, -1, 0, -1
    heads[step_of[0]] = 0
    for step in range(last):
        count, state = 0, heads[step]
        while state >= 0:
            count, state = count + 1, next_in[state]
        if count == 0:
            continue
        found, ranks = np.empty(count, np.int64), np.empty(count)
        state = heads[step]
        for place in range(count):
            found[place], ranks[place] = state, rank[state]
            state = next_in[state]
        chosen = np.empty(kept, np.int64)
        size = 0
        for place in np.argsort(ranks):
            state, again = found[place], False
            for other in range(size):
                twin = True
                for i in range(n):
                    twin = twin and since[chosen[other], i] == since[state, i]
                again = again or twin
            if not again:
                chosen[size] = state
                size += 1
            if size == kept:
                break
        for place in range(size):
            state = chosen[place]
            if used + (1 << n) > room:
                room *= 2
                step_of, next_in, spent = _longer(step_of, room), _longer(next_in, room), _longer(spent, room)
                rank, before, done_by = _longer(rank, room), _longer(before, room), _longer(done_by, room)
                since = _taller(since, room)
            for i in range(n):
                each[i] = each_s[i, come[step + 1, i] - come[since[state, i], i]]
            for mask in range(1 << n):
                cost = _acted(mask, each, limit_s, valid, since, state, same, step, u)
                if cost < 0:
                    continue
                to = _advance(come, each_s, limit_s, step, u)
                step_of[used], spent[used], before[used], done_by[used] = to, spent[state] + cost, state, mask
                for i in range(n):
                    since[used, i] = u[i]
                rank[used] = spent[used] + _at_least(first, ahead, price, limit_s, last, to, u)
                next_in[used], heads[to] = heads[to], used
                used += 1
    best = heads[last]
    state = best
    while state >= 0:
        if rank[state] < rank[best]:
            best = state
        state = next_in[state]
    cost = spent[best]
    for i in range(n):
        cost += each_s[i, come[steps, i] - come[since[best, i], i]]
    when, which = _walked(best, before, done_by, step_of)
    return cost, when, which


@part
def _acted(
    mask: int, each: Floats, limit_s: float, valid: Any, since: Any, state: int, same: Any, step: int, u: Integers
) -> float:
    """The cost of emptying the tables in `mask`, -1 if that is not a minimal valid action; `u` is when each table was
    emptied last. To be called for all masks in their order: subsets come before their supersets."""
    minimal, rest, cost = True, 0.0, 0.0
    for i in range(len(u)):
        if mask >> i & 1:
            cost += each[i]
            minimal = minimal and each[i] > 0.0 and not valid[mask ^ (1 << i)]
            u[i] = same[step + 1, i]
        else:
            rest += each[i]
            u[i] = since[state, i]
    valid[mask] = rest <= limit_s
    return cost if minimal and valid[mask] else -1.0


@part
def _taller(rows: Any, length: int) -> Any:
    grown = np.empty((length, rows.shape[1]), rows.dtype)
    grown[: len(rows)] = rows
    return grown


@part
def _same(come: Integers) -> Any:
    """For each step and table the first step before which as much had come: so that equal states look equal."""
    same = np.zeros(come.shape, np.int32)
    for t in range(1, come.shape[0]):
        for i in range(come.shape[1]):
            same[t, i] = same[t - 1, i] if come[t, i] == come[t - 1, i] else t
    return same


@part
def _walked(state: int, before: Any, done_by: Any, step_of: Any) -> tuple[Integers, Integers]:
    """The steps and tables of the actions that led to a state."""
    count, at = 0, before[state]
    while at >= 0:
        count, at = count + 1, before[at]
    when, which = np.empty(count, np.int64), np.empty(count, np.int64)
    at = state
    for place in range(count - 1, -1, -1):
        which[place] = done_by[at]
        at = before[at]
        when[place] = step_of[at]
    return when, which


@part
def _advance(come: Integers, each_s: Floats, limit_s: float, step: int, since: Integers) -> Any:
    """The next step in which the limit is broken, or the last one."""
    n, last = come.shape[1], come.shape[0] - 2
    low, high = step, last  # the limit holds in `low`; it is broken in `high`, or that is the last
    while high - low > 1:
        middle = (low + high) // 2
        cost = 0.0
        for i in range(n):
            cost += each_s[i, come[middle + 1, i] - come[since[i], i]]
        if cost > limit_s:
            high = middle
        else:
            low = middle
    return high


@part
def _slot(slots: Any, step_of: Any, since: Any, step: int, u: Integers) -> Any:
    """Where a state is in the hash table, or would be."""
    hashed = np.uint64(step + 1)
    for i in range(len(u)):
        hashed = (hashed ^ np.uint64(u[i])) * np.uint64(0x9E3779B97F4A7C15)
        hashed ^= hashed >> np.uint64(29)
    slot = np.int64(hashed & np.uint64(len(slots) - 1))
    while slots[slot] >= 0:
        state = slots[slot]
        same = step_of[state] == step
        for i in range(len(u)):
            same = same and since[state, i] == u[i]
        if same:
            break
        slot = (slot + 1) & (len(slots) - 1)
    return slot


@part
def _is_dominated(heads: Any, linked: Any, since: Any, spent: Any, step: int, state: int, unit: float) -> bool:
    """Whether a state of the same step that was expanded has no more pending of any table, and cost no more."""
    other = heads[step]
    for _ in range(COMPARED):
        if other < 0:
            break
        if spent[other] <= spent[state] + unit:
            less = True
            for i in range(since.shape[1]):
                if since[other, i] < since[state, i]:
                    less = False
                    break
            if less:
                return True
        other = linked[other]
    return False


@part
def _longer(array: Any, length: int) -> Any:
    grown = np.empty(length, array.dtype)
    grown[: len(array)] = array
    return grown


@part
def _first(keys: Any, queue: Any, step_of: Any, a: int, b: int) -> Any:
    """Whether entry a comes before entry b: by its key; if these tie, the later step is nearer to the goal."""
    return keys[a] < keys[b] or (keys[a] == keys[b] and step_of[queue[a]] > step_of[queue[b]])


@part
def _push(keys: Any, queue: Any, step_of: Any, waiting: int, key: int, state: int) -> int:
    at = waiting
    keys[at], queue[at] = key, state
    while at > 0:
        above = (at - 1) // 2
        if not _first(keys, queue, step_of, at, above):
            break
        keys[at], keys[above] = keys[above], keys[at]
        queue[at], queue[above] = queue[above], queue[at]
        at = above
    return waiting + 1


@part
def _pop(keys: Any, queue: Any, step_of: Any, waiting: int) -> int:
    waiting -= 1
    keys[0], queue[0] = keys[waiting], queue[waiting]
    at = 0
    while True:
        least = at
        for below in (2 * at + 1, 2 * at + 2):
            if below < waiting and _first(keys, queue, step_of, below, least):
                least = below
        if least == at:
            return waiting
        keys[at], keys[least] = keys[least], keys[at]
        queue[at], queue[least] = queue[least], queue[at]
        at = least
