"""The compiled world of simulated streams: queues, one processor, time that jumps between events.

An operator works on one tuple at a time, and may be interrupted: whenever a tuple arrives, or an operator is done with
one, it is asked again who runs next. Nothing else could change the answer of a policy that looks at priorities and
ages. (Round-Robin looks at its quantum, and bounded Chain at its clock, when they are asked.)

Tuples are numbered in the order in which they arrive; all that is known of them is in columns. A queue is a list of
tuples: `head`, then `link` of each.

`pick` decides as the policy objects of `policies/` do, in their words: tests compare the two on random worlds. By
`BY_WHOLE_QUEUES` it decides as rarely as Babcock et al. (2003) say: an operator runs until its queue is empty, or until
something arrives and one with a higher priority can run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hullcast.network.compiled import kernel, part
from hullcast.network.wire.arrays import Floats, Ints

#: Places in `SimulatedWorld.clock`.
NOW, MEMORY, PEAK, AREA = range(4)
#: Places in `SimulatedWorld.counts`: arrivals so far, samples taken, decisions, changes of the operator that runs, the
#: last one, whether joins know what is under way to them, and the seed of chance (-1: every tuple shrinks).
ARRIVALS, SAMPLES, PICKS, SWITCHES, LAST, HEARTBEATS, SEED = range(7)
#: What `pick` goes by.
BY_PRIORITY, BY_WHOLE_QUEUES, IN_TURN, BY_SPARE_TIME, BY_OVERDUE = range(5)
#: Places in what `pick` remembers, and is told: whose turn it is, how long still; the bound, when to look again, and
#: until when tuples must have arrived to be urgent (-inf: none is); how many had arrived at the last decision.
TURN, LEFT, QUANTUM, BOUND, LOOK_AGAIN, URGENT, SEEN = range(7)
#: Rounding: work below this part of an operator's is done.
ROUNDING = 1e-9
NOBODY = -1


class SimulatedWorld(NamedTuple):
    """Columns by queue, path, tuple and sample, and numbers of the whole. Queues are in order of path and place."""

    path: Ints
    place: Ints
    cost: Floats  # of a unit of its input
    selectivity: Floats
    following: Ints  # the next queue; NOBODY: out
    partner: Ints  # the other input of a join; NOBODY: not a join
    head: Ints
    tail: Ints
    size: Floats  # what waits
    since: Floats  # when it began to wait, or was served last
    starved: Floats  # the longest that something waited and nothing was served
    first: Ints  # by path its first queue
    coming: Ints  # by path how many are still to come
    arrived: Floats  # by tuple
    stream: Ints  # its path
    weight: Floats
    worked: Floats  # what its operator has done of it
    link: Ints
    left: Floats  # when it left as a result; nan: not
    at: Floats  # samples are taken at these moments, after all that happens then
    memory: Floats
    clock: Floats
    counts: Ints


@part
def _pass_until(world: SimulatedWorld, moment: float) -> None:
    """Let time pass; memory stays what it is."""
    clock, count = world.clock, world.counts
    while count[SAMPLES] < len(world.at) and world.at[count[SAMPLES]] < moment:
        world.memory[count[SAMPLES]] = clock[MEMORY]
        count[SAMPLES] += 1
    clock[AREA] += clock[MEMORY] * (moment - clock[NOW])
    clock[NOW] = moment


@part
def _put(world: SimulatedWorld, queue: int, entry: int) -> None:
    world.link[entry] = NOBODY
    if world.head[queue] == NOBODY:
        world.head[queue] = entry
        world.since[queue] = world.clock[NOW]
    else:
        world.link[world.tail[queue]] = entry
    world.tail[queue] = entry
    world.size[queue] += world.weight[entry]


@part
def _chance(seed: int, entry: int, queue: int) -> float:
    """A number in [0, 1) for a tuple at an operator, the same whatever else happens (splitmix64)."""
    mixed = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(entry) * np.uint64(64) + np.uint64(queue)
    for _ in range(2):
        mixed += np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return float(mixed >> np.uint64(11)) / float(1 << 53)


@part
def _open(world: SimulatedWorld, queue: int) -> bool:
    """Whether the operator behind a queue that is not empty can run: a join blocks on an input that is empty, unless
    nothing older can come from there."""
    other = world.partner[queue]
    if other == NOBODY or world.head[other] != NOBODY:
        return True
    stream = world.path[other]
    if world.coming[stream] > 0 and world.counts[HEARTBEATS] == 0:
        return False
    oldest = world.arrived[world.head[queue]]
    for before in range(len(world.path)):
        upstream = world.path[before] == stream and world.place[before] < world.place[other]
        if not upstream or world.head[before] == NOBODY:
            continue
        if world.counts[HEARTBEATS] == 0 or world.arrived[world.head[before]] <= oldest:
            return False
    return True


@kernel
def settle(world: SimulatedWorld, ready: Ints) -> int:
    """Let all arrive that has arrived by now, and find the queues whose operators can run: how many there are, 0 when
    nothing will ever happen again. If none can run, time passes until one can."""
    clock, count = world.clock, world.counts
    while True:
        while count[ARRIVALS] < len(world.arrived) and world.arrived[count[ARRIVALS]] <= clock[NOW]:
            entry = count[ARRIVALS]
            count[ARRIVALS] += 1
            stream = world.stream[entry]
            world.coming[stream] -= 1
            _put(world, world.first[stream], entry)
            clock[MEMORY] += world.weight[entry]
            clock[PEAK] = max(clock[PEAK], clock[MEMORY])
        found = 0
        for queue in range(len(world.path)):
            if world.head[queue] != NOBODY and _open(world, queue):
                ready[found] = queue
                found += 1
        if found > 0:
            return found
        if count[ARRIVALS] == len(world.arrived):
            while count[SAMPLES] < len(world.at):
                world.memory[count[SAMPLES]] = clock[MEMORY]
                count[SAMPLES] += 1
            return 0
        _pass_until(world, world.arrived[count[ARRIVALS]])


@kernel
def work(world: SimulatedWorld, picked: int) -> float:
    """Let the operator behind a ready queue work until it is done with a tuple, or another one arrives; how long."""
    clock, count = world.clock, world.counts
    queue, other = picked, world.partner[picked]
    if other != NOBODY and world.head[other] != NOBODY:  # a join takes the older tuple, whichever input was picked
        mine, theirs = world.arrived[world.head[queue]], world.arrived[world.head[other]]
        if theirs < mine or (theirs == mine and other < queue):
            queue = other
    count[PICKS] += 1
    if count[LAST] != queue and (other == NOBODY or world.partner[queue] != count[LAST]):  # a join is one operator
        count[SWITCHES] += 1
    count[LAST] = queue
    entry = world.head[queue]
    began = clock[NOW]
    world.starved[queue] = max(world.starved[queue], began - world.since[queue])
    whole = world.cost[queue] * world.weight[entry]
    left = whole - world.worked[entry]
    until = world.arrived[count[ARRIVALS]] if count[ARRIVALS] < len(world.arrived) else np.inf
    if began + left > until + ROUNDING * whole:
        _pass_until(world, until)
        world.worked[entry] += until - began
        world.since[queue] = until
        return float(until - began)
    _pass_until(world, began + max(left, 0.0))
    world.worked[entry] = 0.0
    world.since[queue] = clock[NOW]
    world.head[queue] = world.link[entry]
    world.size[queue] -= world.weight[entry]
    clock[MEMORY] -= world.weight[entry]
    following = world.following[queue]
    if following == NOBODY:
        world.left[entry] = clock[NOW]
    else:
        selectivity = world.selectivity[queue]
        if count[SEED] >= 0:
            whole_part = np.floor(selectivity)
            more = _chance(count[SEED], entry, queue) < selectivity - whole_part
            selectivity = whole_part + (1.0 if more else 0.0)
        world.weight[entry] *= selectivity
        if world.weight[entry] > 0.0:
            _put(world, following, entry)
            clock[MEMORY] += world.weight[entry]
            clock[PEAK] = max(clock[PEAK], clock[MEMORY])
    if world.head[queue] == NOBODY:
        world.size[queue] = 0.0  # not what rounding leaves
    return float(clock[NOW] - began)


# -- decisions -------------------------------------------------------------------------------------------------


@part
def _first(world: SimulatedWorld, ready: Ints, found: int, priority: Floats, latest: float) -> int:
    """The queue with the highest priority among those whose oldest tuple arrived by then; NOBODY if there is none.

    Ties: the oldest tuple, then the one that is farthest on, then the path with the least number.
    """
    best = NOBODY
    for at in range(found):
        queue = ready[at]
        mine = world.arrived[world.head[queue]]
        if mine > latest:
            continue
        if best == NOBODY or priority[queue] > priority[best]:
            best = queue
        elif priority[queue] == priority[best]:
            theirs = world.arrived[world.head[best]]
            farther = world.place[queue] > world.place[best]
            lower = world.place[queue] == world.place[best] and world.path[queue] < world.path[best]
            if mine < theirs or (mine == theirs and (farther or lower)):
                best = queue
    return best


@part
def _look(world: SimulatedWorld, ready: Ints, found: int, remaining: Floats, state: Floats, reserve: float) -> None:
    """Find the oldest tuple without time to spare, as `BoundedChain` does: what waits, merged by age."""
    now = world.clock[NOW]
    state[URGENT], state[LOOK_AGAIN] = -np.inf, now + reserve / 2
    cursor = np.empty(found, np.int64)
    for at in range(found):
        cursor[at] = world.head[ready[at]]
    total = 0.0
    while True:
        best = -1
        for at in range(found):
            if cursor[at] != NOBODY and (best < 0 or world.arrived[cursor[at]] < world.arrived[cursor[best]]):
                best = at
        if best < 0:
            return
        entry = cursor[best]
        total += world.weight[entry] * remaining[ready[best]]
        if world.arrived[entry] + state[BOUND] - now - total <= reserve:
            state[URGENT] = world.arrived[entry]
            return
        cursor[best] = world.link[entry]


@part
def _whole_queues(world: SimulatedWorld, ready: Ints, found: int, priority: Floats, state: Floats) -> int:
    came, last, same = float(world.counts[ARRIVALS]), int(world.counts[LAST]), NOBODY
    for at in range(found):
        if last != NOBODY and (ready[at] == last or ready[at] == world.partner[last]):
            same = int(ready[at])
    if same != NOBODY and state[SEEN] == came:
        return same
    state[SEEN] = came
    best = _first(world, ready, found, priority, np.inf)
    return same if same != NOBODY and priority[same] == priority[best] else best


@part
def _in_turn(ready: Ints, found: int, state: Floats) -> int:
    turn = int(state[TURN])
    following, first = NOBODY, NOBODY
    for at in range(found):  # by number, which is by path and place
        queue = int(ready[at])
        if queue == turn and state[LEFT] > 0:
            return queue
        if first == NOBODY:
            first = queue
        if queue > turn and following == NOBODY:
            following = queue
    chosen = first if following == NOBODY else following
    state[TURN], state[LEFT] = float(chosen), state[QUANTUM]
    return chosen


@part
def pick(
    world: SimulatedWorld,
    ready: Ints,
    found: int,
    rule: int,
    priority: Floats,
    remaining: Floats,
    nothing: Floats,
    state: Floats,
    reserve: float,
) -> int:
    """The queue that the policy with this rule picks. `nothing`: priorities that are all 0."""
    if rule == IN_TURN:
        return _in_turn(ready, found, state)
    if rule == BY_WHOLE_QUEUES:
        return _whole_queues(world, ready, found, priority, state)
    if rule == BY_OVERDUE:
        oldest = _first(world, ready, found, nothing, np.inf)
        if world.clock[NOW] - world.arrived[world.head[oldest]] > state[BOUND]:
            return oldest
    if rule == BY_SPARE_TIME:
        chosen = _first(world, ready, found, priority, state[URGENT])
        if world.clock[NOW] >= state[LOOK_AGAIN] or (state[URGENT] > -np.inf and chosen == NOBODY):
            _look(world, ready, found, remaining, state, reserve)
            chosen = _first(world, ready, found, priority, state[URGENT])
        if chosen != NOBODY:
            return chosen
    return _first(world, ready, found, priority, np.inf)


@kernel
def run(world: SimulatedWorld, rule: int, priority: Floats, remaining: Floats, state: Floats, reserve: float) -> None:
    """Everything, to the end."""
    ready = np.empty(len(world.path), np.int64)
    nothing = np.zeros(len(world.path))
    while True:
        found = settle(world, ready)
        if found == 0:
            return
        chosen = pick(world, ready, found, rule, priority, remaining, nothing, state, reserve)
        took = work(world, chosen)
        if rule == IN_TURN and chosen == int(state[TURN]):
            state[LEFT] -= took


# -- the clairvoyant bound -------------------------------------------------------------------------------------


@kernel
def drain(
    arrived: Floats,
    stream: Ints,
    weight: Floats,
    slope: Floats,
    owner: Ints,
    length: Floats,
    at: Floats,
    memory: Floats,
    found: Floats,
) -> None:
    """The memory that Chain needs on envelopes, at the samples; `found` becomes peak, area and when it ended.

    Segments (`slope`, the steepest first, `owner`: their path, `length`: seconds of work for a unit) are served in this
    order. A segment that is served has none steeper with work, so all tuples with work there have come to it: that they
    must pass one segment after the other needs no care.
    """
    backlog = np.zeros(len(slope))
    held, area, peak, now = 0.0, 0.0, 0.0, arrived[0] if len(arrived) else 0.0
    sample, entry = 0, 0
    while sample < len(at) and at[sample] < now:
        memory[sample] = 0.0
        sample += 1
    while True:
        while entry < len(arrived) and arrived[entry] <= now:
            for segment in range(len(slope)):
                if owner[segment] == stream[entry]:
                    backlog[segment] += weight[entry] * length[segment]
            held += weight[entry]
            entry += 1
        peak = max(peak, held)
        until = arrived[entry] if entry < len(arrived) else np.inf
        busy = 0
        while busy < len(slope) and backlog[busy] <= 0.0:
            busy += 1
        if busy == len(slope):
            if entry == len(arrived):
                break
            end, falls = until, 0.0
        else:
            end, falls = min(until, now + backlog[busy]), slope[busy]
        while sample < len(at) and at[sample] < end:
            memory[sample] = held - falls * (at[sample] - now)
            sample += 1
        area += (held - falls * (end - now) / 2) * (end - now)
        held -= falls * (end - now)
        if busy < len(slope):
            backlog[busy] = 0.0 if end == now + backlog[busy] else backlog[busy] - (end - now)
        now = end
    while sample < len(at):
        memory[sample] = 0.0
        sample += 1
    found[0], found[1], found[2] = peak, area, now
