"""The inner loop of a join in bounded memory: arrivals in order, each matched, then kept or dropped.

For each arrival, in this order: time and ordinals advance, and tuples that left their windows go; the kept tuples of
the other side with its value are its results; then it is kept, and if memory is full, the tuple that is worth least
goes, which may be the arrival itself.

Worth changes with every arrival. To look at all k tuples for each drop would take O(k); so a look finds the k / 8 that
are worth least, and they are dropped one after the other, unless an arrival is worth less than the next of them. After
k / 8 arrivals the next look is due. So a decision takes 8 evaluations of worth, amortised; with fewer than 16 tuples
every drop has a look of its own. Where a batch ends makes no difference.

What is dropped could have had results. The *shadow* keeps a sample of the dropped tuples (their values only) until they
leave their windows, each standing for 2^LEVEL of them, and counts what they would have joined. A full shadow is thinned
to half, and the rest weighs twice. While it is not full, no tuple is left out, and the count is exact.
"""

from __future__ import annotations

import numpy as np

from hullcast.broker.streams.memory.kept import (
    BEFORE,
    CODE,
    COUNT,
    FIRST,
    FREE,
    KEY,
    NEXT,
    NONE,
    NUMBER,
    ORDINAL,
    SAME_BEFORE,
    SAME_NEXT,
    SIDE,
    STEP,
    TIME,
    USED,
    Slots,
    bucket_of,
    insert,
    mixed,
    remove,
)
from hullcast.broker.streams.memory.worth import (
    ARRIVED,
    DROPPED,
    EXPIRED,
    FOUND,
    GAP,
    HEAD,
    HEEB,
    LATELY,
    LATELY_SUM,
    LET_GO,
    LEVEL,
    LIFETIME,
    LOOKED,
    LOOKS,
    LRU,
    MEMORY_OF_MEANS,
    MISSED,
    NOW,
    PACE,
    POSITION,
    PRODUCED,
    QUEUED,
    RAND,
    REFUSED,
    SHARE,
    SHORTER,
    SHOWN,
    SMOOTH,
    STATIONARY,
    STEPS,
    Beliefs,
    alpha_of,
    arrivals_left,
    by_chance,
    by_curve,
    by_frequency,
    count,
    counter_places,
    outlook_of,
    worth_of,
)
from hullcast.network.compiled import borrowing, kernel, part, prefetch
from hullcast.network.wire.arrays import Floats, Ints

#: A look finds the tuples for so many drops: this share of those kept.
LOOK_SHARE = 8
#: How many arrivals, and drops, ahead their memory is asked for.
AHEAD = 4


@kernel
def join_arrivals(
    sides: Ints, keys: Ints, codes: Floats, ordinals: Ints, times: Floats, start: int, stop: int, memory: int,
    policy: int, windows: Floats, kept: Slots, shadow: Slots, beliefs: Beliefs, state: Ints, clock: Floats,
    queue: Ints, queued_worth: Floats, recent: Floats, pairs: Ints, let_go: Ints,
) -> int:  # fmt: skip
    """Take arrivals `start` .. `stop` - 1; how far it came: fewer if `pairs` has no room for the next one's results.

    `pairs` gets (place of the arrival in the batch, number of the kept tuple) from row state[FOUND] on, `let_go` the
    numbers of tuples that are not kept any more from state[LET_GO] on. Number n is the n-th arrival of all. `recent`
    gets the last values of each side, in rings.
    """
    return _join(
        sides, keys, codes, ordinals, times, start, stop, memory, policy, windows, kept, shadow, beliefs, state, clock,
        queue, queued_worth, recent, pairs, let_go,
    )  # fmt: skip


@borrowing
def _join(
    sides: Ints, keys: Ints, codes: Floats, ordinals: Ints, times: Floats, start: int, stop: int, memory: int,
    policy: int, windows: Floats, kept: Slots, shadow: Slots, beliefs: Beliefs, state: Ints, clock: Floats,
    queue: Ints, queued_worth: Floats, recent: Floats, pairs: Ints, let_go: Ints,
) -> int:  # fmt: skip
    counts, terms, curves = beliefs.counts, beliefs.terms, beliefs.curves
    for at in range(start, stop):
        if at + AHEAD < stop:
            _fetch_arrival(kept, counts, sides[at + AHEAD], keys[at + AHEAD])
        side, code = sides[at], codes[at]
        if not _found(kept, side, keys[at], code, at, ordinals[at], times[at], windows, state, clock, pairs, let_go):
            return at
        _advance_means(side, at, ordinals, state, clock)
        recent[side, (state[ARRIVED + side] - 1) % recent.shape[1]] = code
        number = state[STEPS]
        state[STEPS] += 1
        if code != code:  # NULL joins nothing
            let_go[state[LET_GO]] = number
            state[LET_GO] += 1
            continue
        if memory >= 0:
            _miss(shadow, side, keys[at], windows, state, clock)
            count(counts, side, keys[at], state)
            clock[SHOWN + side] += terms[side, SMOOTH] * (code - clock[SHOWN + side])
            if kept.ends[0, COUNT] + kept.ends[1, COUNT] >= memory:
                worth = worth_of(
                    policy, side, keys[at], code, number, ordinals[at], clock[NOW], number, counts, curves,
                    outlook_of(side, terms, windows, state, clock),
                )  # fmt: skip
                worst = _worst(policy, memory, kept, beliefs, windows, state, clock, queue, queued_worth)
                if worst == NONE or worth < queued_worth[state[HEAD]]:
                    state[REFUSED] += 1
                    _lived(0, state, clock)
                    let_go[state[LET_GO]] = number
                    state[LET_GO] += 1
                    _overshadow(shadow, side, keys[at], code, number, ordinals[at], clock[NOW], windows, state, clock)
                    continue
                _drop(kept, worst, shadow, number, windows, state, clock, let_go)
                state[HEAD] += 1
                _fetch_queued(kept, queue, state)
        insert(kept, side, keys[at], code, number, ordinals[at], clock[NOW], number)
    return stop


@borrowing
def _fetch_arrival(kept: Slots, counts: Ints, side: int, key: int) -> None:
    """Ask for what an arrival will need, so that memory has come when it is its turn."""
    size, width = len(kept.buckets) // 2, counts.shape[2]
    bucket = bucket_of(key, size)
    prefetch(kept.buckets, 2 * bucket)
    prefetch(kept.buckets, 2 * (size + bucket))
    one, two = counter_places(key, width)
    prefetch(counts, 2 * side * width + one)
    prefetch(counts, (2 * side + 1) * width + two)


@borrowing
def _fetch_queued(kept: Slots, queue: Ints, state: Ints) -> None:
    """Ask for what the next drops will need: first the tuple, then its neighbours in lists."""
    links = kept.links
    columns = links.shape[1]
    if state[HEAD] + 2 * AHEAD < state[QUEUED]:
        slot = queue[state[HEAD] + 2 * AHEAD, 0]
        prefetch(links, columns * slot)
        prefetch(links, columns * slot + columns - 1)
        prefetch(kept.places, 2 * slot)
    if state[HEAD] + AHEAD < state[QUEUED]:
        slot = queue[state[HEAD] + AHEAD, 0]
        size = len(kept.buckets) // 2
        prefetch(kept.buckets, 2 * (links[slot, SIDE] * size + bucket_of(links[slot, KEY], size)))
        prefetch(links, columns * links[slot, BEFORE] + NEXT)
        prefetch(links, columns * links[slot, NEXT] + BEFORE)
        prefetch(links, columns * links[slot, SAME_BEFORE] + SAME_NEXT)
        prefetch(links, columns * links[slot, SAME_NEXT] + SAME_BEFORE)


@borrowing
def _found(
    kept: Slots, side: int, key: int, code: float, at: int, ordinal: int, time: float, windows: Floats, state: Ints,
    clock: Floats, pairs: Ints, let_go: Ints,
) -> bool:  # fmt: skip
    """Let time pass and find the results of an arrival; False, and nothing found, if they have no room."""
    if time > clock[NOW]:
        if clock[NOW] > -np.inf:
            clock[GAP] += (time - clock[NOW]) / min(MEMORY_OF_MEANS, state[STEPS] + 1.0)
        clock[NOW] = time
    expire(kept, side, ordinal, windows, state, clock, let_go)
    if code != code:
        return True
    links, buckets = kept.links, kept.buckets
    size = len(buckets) // 2
    slot = buckets[(1 - side) * size + bucket_of(key, size), FIRST]
    found = state[FOUND]
    while slot != NONE:
        if links[slot, KEY] == key:
            if found >= len(pairs):
                return False
            pairs[found, 0], pairs[found, 1] = at, links[slot, NUMBER]
            links[slot, USED] = state[STEPS]
            found += 1
        slot = links[slot, SAME_NEXT]
    state[PRODUCED] += found - state[FOUND]
    state[FOUND] = found
    return True


@borrowing
def expire(kept: Slots, side: int, ordinal: int, windows: Floats, state: Ints, clock: Floats, let_go: Ints) -> None:
    """Let those go that left their windows, now that a side came to this ordinal."""
    links, places, ends = kept.links, kept.places, kept.ends
    for one in range(2):
        position = max(ordinal, state[POSITION + one]) if one == side else state[POSITION + one]
        slot = ends[one, FIRST]
        while slot != NONE and _is_out(links[slot, ORDINAL], places[slot, TIME], one, position, windows, clock):
            let_go[state[LET_GO]] = links[slot, NUMBER]
            state[LET_GO] += 1
            state[EXPIRED] += 1
            remove(kept, slot)
            slot = ends[one, FIRST]


@borrowing
def _is_out(ordinal: int, time: float, side: int, position: int, windows: Floats, clock: Floats) -> bool:
    """Whether a tuple has left the window of its side, which came to this position."""
    return bool(ordinal <= position - windows[side, 0] or time < clock[NOW] - windows[side, 1])


@borrowing
def _advance_means(side: int, at: int, ordinals: Ints, state: Ints, clock: Floats) -> None:
    over = min(MEMORY_OF_MEANS, state[STEPS] + 1.0)
    advance = max(0, ordinals[at] - state[POSITION + side]) if state[ARRIVED + side] else 1
    state[POSITION + side] = max(state[POSITION + side], ordinals[at])
    state[ARRIVED + side] += 1
    for one in range(2):
        clock[SHARE + one] += ((1.0 if one == side else 0.0) - clock[SHARE + one]) / (over + 1.0)
        clock[PACE + one] += ((advance if one == side else 0.0) - clock[PACE + one]) / (over + 1.0)
    clock[GAP] *= 1.0 - 1.0 / (over + 1.0)


@borrowing
def _worst(
    policy: int, memory: int, kept: Slots, beliefs: Beliefs, windows: Floats, state: Ints, clock: Floats, queue: Ints,
    queued_worth: Floats,
) -> int:  # fmt: skip
    """The slot of the tuple to drop next, which is at HEAD of the queue then; NONE if nothing is kept."""
    late = state[STEPS] - state[LOOKED] >= max(1, memory // LOOK_SHARE)
    while state[HEAD] < state[QUEUED] and not late:
        slot = queue[state[HEAD], 0]
        if kept.links[slot, NUMBER] == queue[state[HEAD], 1]:
            return int(slot)
        state[HEAD] += 1  # it left its window in the meantime
    if kept.ends[0, COUNT] + kept.ends[1, COUNT] == 0:
        return NONE
    _look(policy, memory, kept, beliefs, windows, state, clock, queue, queued_worth)
    return int(queue[0, 0])


@part
def _look(
    policy: int, memory: int, kept: Slots, beliefs: Beliefs, windows: Floats, state: Ints, clock: Floats, queue: Ints,
    queued_worth: Floats,
) -> None:  # fmt: skip
    """Queue those that are worth least, the least first; of equal ones the oldest first."""
    links = kept.links
    n = kept.ends[0, COUNT] + kept.ends[1, COUNT]
    slots, worths = np.empty(n, np.int64), np.empty(n, np.float64)
    _evaluate(policy, kept, beliefs, windows, state, clock, slots, worths)
    wanted = min(n, max(1, memory // LOOK_SHARE))
    if wanted == 1:
        least = 0
        for one in range(1, n):
            if worths[one] < worths[least] or (
                worths[one] == worths[least] and links[slots[one], NUMBER] < links[slots[least], NUMBER]
            ):
                least = one
        queue[0, 0], queue[0, 1], queued_worth[0] = slots[least], links[slots[least], NUMBER], worths[least]
    else:
        _queue_least(links, slots, worths, wanted, queue, queued_worth)
    state[HEAD], state[QUEUED] = 0, wanted
    state[LOOKS] += 1
    state[LOOKED] = state[STEPS]


@part
def _queue_least(links: Ints, slots: Ints, worths: Floats, wanted: int, queue: Ints, queued_worth: Floats) -> None:
    """Queue so many of some tuples, by worth, then by age. Often many are worth the same (nothing, as a trend has
    passed them): of those only as many are sorted as are queued."""
    limit = np.partition(worths, wanted - 1)[wanted - 1]
    numbers, equals, below = np.empty(len(worths)), 0, 0  # not integers: a sort of each type takes seconds to compile
    for one in range(len(worths)):
        below += worths[one] < limit
        if worths[one] == limit:
            numbers[equals] = links[slots[one], NUMBER]
            equals += 1
    newest = np.partition(numbers[:equals], wanted - below - 1)[wanted - below - 1]
    few, at = np.empty(wanted, np.int64), 0
    for one in range(len(worths)):
        if worths[one] < limit or (worths[one] == limit and links[slots[one], NUMBER] <= newest):
            few[at] = one
            at += 1
    few = few[np.argsort(worths[few])]
    start = 0
    for at in range(1, wanted + 1):
        if at == wanted or worths[few[at]] != worths[few[start]]:
            if at - start > 1:
                for one in range(start, at):
                    numbers[one] = links[slots[few[one]], NUMBER]
                few[start:at] = few[start:at][np.argsort(numbers[start:at])]
            start = at
    for at in range(wanted):
        slot = slots[few[at]]
        queue[at, 0], queue[at, 1], queued_worth[at] = slot, links[slot, NUMBER], worths[few[at]]


@borrowing
def _evaluate(
    policy: int, kept: Slots, beliefs: Beliefs, windows: Floats, state: Ints, clock: Floats, slots: Ints, worths: Floats
) -> None:
    """What all that is kept is worth now, in the order of slots: memory is read from the beginning to the end."""
    links, places = kept.links, kept.places
    counts, terms, curves = beliefs.counts, beliefs.terms, beliefs.curves
    for side in range(2):
        alpha = alpha_of(clock[LIFETIME] * clock[SHARE + side] / SHORTER)
        terms[side, LATELY], terms[side, LATELY_SUM] = alpha, np.exp(1.0 / alpha) - 1.0
    at = 0
    for side in range(2):
        outlook = outlook_of(side, terms, windows, state, clock)
        counted = policy != HEEB or outlook.kind == STATIONARY
        for slot in range(len(links)):
            if links[slot, SIDE] != side or links[slot, NUMBER] == NONE:
                continue
            slots[at] = slot
            if policy == RAND:
                worths[at] = by_chance(links[slot, NUMBER])
            elif policy == LRU:
                worths[at] = links[slot, USED]
            else:
                left = arrivals_left(links[slot, ORDINAL], places[slot, TIME], outlook)
                if counted:  # as `seen_of` has it, without a call that takes an array
                    one, two = counter_places(links[slot, KEY], counts.shape[2])
                    seen = min(counts[1 - side, 0, one], counts[1 - side, 1, two])
                    worths[at] = by_frequency(policy, seen, left, outlook)
                else:
                    worths[at] = by_curve(curves, 1 - side, places[slot, CODE], left, outlook)
            at += 1


@kernel
def list_worths(
    policy: int, kept: Slots, beliefs: Beliefs, windows: Floats, state: Ints, clock: Floats, numbers: Ints,
    worths: Floats,
) -> None:  # fmt: skip
    """Numbers and worths of all that is kept, in any order."""
    _evaluate(policy, kept, beliefs, windows, state, clock, numbers, worths)
    for at in range(len(numbers)):
        numbers[at] = kept.links[numbers[at], NUMBER]


@borrowing
def _drop(
    kept: Slots, slot: int, shadow: Slots, step: int, windows: Floats, state: Ints, clock: Floats, let_go: Ints
) -> None:
    links, places = kept.links, kept.places
    state[DROPPED] += 1
    _lived(step - links[slot, STEP], state, clock)
    let_go[state[LET_GO]] = links[slot, NUMBER]
    state[LET_GO] += 1
    _overshadow(
        shadow, links[slot, SIDE], links[slot, KEY], places[slot, CODE], links[slot, NUMBER], links[slot, ORDINAL],
        places[slot, TIME], windows, state, clock,
    )  # fmt: skip
    remove(kept, slot)


@borrowing
def _lived(steps: int, state: Ints, clock: Floats) -> None:
    """A tuple was kept for so long, and then dropped."""
    clock[LIFETIME] += (steps - clock[LIFETIME]) / min(MEMORY_OF_MEANS, state[DROPPED] + state[REFUSED] + 16.0)


@borrowing
def _overshadow(
    shadow: Slots, side: int, key: int, code: float, number: int, ordinal: int, time: float, windows: Floats,
    state: Ints, clock: Floats,
) -> None:  # fmt: skip
    """Sample a tuple that is dropped: with a chance of 1 in 2^LEVEL it is in the shadow, and then counts 2^LEVEL."""
    if shadow.ends[FREE, COUNT] == 0:
        _thin(shadow, windows, state, clock)
    if mixed(number) & ((1 << state[LEVEL]) - 1) or shadow.ends[FREE, COUNT] == 0:
        return
    slot = insert(shadow, side, key, code, number, ordinal, time, 0)
    shadow.links[slot, USED] = 1 << state[LEVEL]


@borrowing
def _thin(shadow: Slots, windows: Floats, state: Ints, clock: Floats) -> None:
    """Make room: those that left their windows go. If few did, about half of the others go, too, by chance, and each
    that stays stands for twice as many; if most did, chances rise again."""
    links, places, ends = shadow.links, shadow.places, shadow.ends
    for side in range(2):
        slot = ends[side, FIRST]
        while slot != NONE:
            after = links[slot, NEXT]
            if _is_out(links[slot, ORDINAL], places[slot, TIME], side, state[POSITION + side], windows, clock):
                remove(shadow, slot)
            slot = after
    if 4 * ends[FREE, COUNT] > 3 * len(links):
        state[LEVEL] = max(0, state[LEVEL] - 1)
    while 4 * ends[FREE, COUNT] < len(links):
        state[LEVEL] += 1
        for side in range(2):
            slot = ends[side, FIRST]
            while slot != NONE:
                after = links[slot, NEXT]
                if mixed(mixed(links[slot, NUMBER]) ^ links[slot, USED]) & 1:
                    remove(shadow, slot)
                else:
                    links[slot, USED] *= 2
                slot = after


@borrowing
def _miss(shadow: Slots, side: int, key: int, windows: Floats, state: Ints, clock: Floats) -> None:
    """Count what an arrival would have joined."""
    other = 1 - side
    if shadow.ends[other, COUNT] == 0:
        return
    links, places, buckets = shadow.links, shadow.places, shadow.buckets
    size = len(buckets) // 2
    slot = buckets[other * size + bucket_of(key, size), FIRST]
    while slot != NONE:
        if links[slot, KEY] == key and not _is_out(
            links[slot, ORDINAL], places[slot, TIME], other, state[POSITION + other], windows, clock
        ):
            clock[MISSED] += links[slot, USED]
        slot = links[slot, SAME_NEXT]
