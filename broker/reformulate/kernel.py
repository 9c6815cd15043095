"""Range MIN and MAX: each update becomes the few rectangles in which an answer changed (Mar and Hull).

A subscription [x1, x2] is the point (x1, x2) of the plane; a message is the rectangle

    OUTER_L < x1 <= INNER_L   and   INNER_R <= x2 < OUTER_R      "your answer is now BEST"

and the rectangles of one update never overlap: nobody is missed, nobody is told twice.

One rule serves inserts, deletes, changes of y, moves and changes of partition. With P the other rows and the row
going from (xo, yo) to (xn, yn):

  1. one Mar message for inserting (xn, yn), against P + {old}: who gets a better answer;
  2. hull messages for removing (xo, yo), against P + {new}: who loses the best, and what is uncovered.

A subscription holding both places is kept out of 1 by the old row when that is at least as good, out of 2 by
the new row when that is: it is in exactly one of them, or in neither when both are equal.

MAX is MIN of -y; `sign` carries the difference (see `broker/index/find.py`), so one pass over the batch and one
tree serve both. BEST of no row is +inf for MIN and -inf for MAX: SQL's NULL.
"""

from __future__ import annotations

import numpy as np

from hullcast.broker.index.find import beside_run, find
from hullcast.broker.index.nodes import (
    COUNT,
    FREE_NODES,
    GROUP,
    HEIGHT,
    LEAF,
    NEXT,
    PREVIOUS,
    ROW,
    S_GROUP,
    S_X,
    S_Y,
    X,
    Y,
    change_y,
    insert,
    position_of,
    remove,
    seek,
    separator_of,
)
from hullcast.network.compiled import inlined, kernel, part, prefetch
from hullcast.network.wire.arrays import Booleans, Floats, Ints

#: Fields of a message, in this order. UPDATE is the position of the update in its batch, SIGN says MIN or MAX.
UPDATE, SIGN, PARTITION, BEST, INNER_L, INNER_R, OUTER_L, OUTER_R = 0, 1, 2, 3, 4, 5, 6, 7
FIELDS = 8

#: How many updates ahead the kernel asks for memory, three times over (see `_look_ahead`).
AHEAD = 4

#: Classes of updates, and where each is counted in a tally: MIN's three, then MAX's three.
IGNORABLE, EASY, DIFFICULT = 0, 1, 2


@inlined
def _put(
    out: Floats,
    count: int,
    update: int,
    sign: float,
    group: float,
    value: float,
    inner_l: float,
    inner_r: float,
    outer_l: float,
    outer_r: float,
) -> int:
    """Write message number `count`; the caller made room. Returns the number of messages now."""
    at = count * FIELDS
    out[at + UPDATE] = update
    out[at + SIGN] = sign
    out[at + PARTITION] = group
    out[at + BEST] = sign * value
    out[at + INNER_L] = inner_l
    out[at + INNER_R] = inner_r
    out[at + OUTER_L] = outer_l
    out[at + OUTER_R] = outer_r
    return count + 1


@part
def _x_found(m: Floats, leaf: int, i: int, group: float, step: int) -> float:
    """The x of a found entry, or infinity where the search left the group (or the table)."""
    if leaf < 0 or m[leaf + GROUP + i] != group:
        return step * np.inf
    return float(m[leaf + X + i])


@inlined
def _best_at(m: Floats, leaf: int, i: int, group: float, x: float, sign: float) -> float:
    """Value of the best row at x, given the place beside its run (see `beside_run`); +inf without rows."""
    if sign < 0:  # (leaf, i) is one behind the run
        i -= 1
        if i < 0:
            leaf = int(m[leaf + PREVIOUS])
            if leaf < 0:
                return np.inf
            i = int(m[leaf + COUNT]) - 1
    elif i == m[leaf + COUNT]:
        return np.inf
    if m[leaf + X + i] != x or m[leaf + GROUP + i] != group:
        return np.inf
    return float(sign * m[leaf + Y + i])


@part
def _mar(m: Floats, leaf: int, i: int, group: float, value: float, sign: float) -> tuple[float, float]:
    """Mar(x, y): from the nearest row on the left that is at least as good to the nearest on the right."""
    bound = np.nextafter(value, np.inf)
    at, k = find(m, leaf, i - 1, -1, sign, bound)
    left = _x_found(m, at, k, group, -1)
    at, k = find(m, leaf, i, 1, sign, bound)
    return left, _x_found(m, at, k, group, 1)


@part
def _walk_hull(
    m: Floats, leaf: int, i: int, step: int, group: float, peak: float, stop: float, sign: float, hull: Floats, at: int
) -> tuple[int, float]:
    """LHull (step -1) or RHull (step +1) into hull[at:] as x, value, x, value.., nearest first.

    Returns the number of points (-1: the hull array is too small) and the x that bounds the hull. Values fall
    strictly from the peak outwards; the first row with value <= stop is not part of the hull but its
    bound: ranges that hold it did not change.
    """
    count, last = 0, peak
    while True:
        leaf, i = find(m, leaf, i, step, sign, last)
        if leaf < 0 or m[leaf + GROUP + i] != group:
            return count, step * np.inf
        x = m[leaf + X + i]
        if step * sign < 0:  # on this side a run is met worst row first: go on to its best
            leaf, i = beside_run(m, leaf, i, sign)
            last = _best_at(m, leaf, i, group, x, sign)
            i = i - 1 if sign > 0 else i
        else:
            last = sign * m[leaf + Y + i]
            i += step
        if last <= stop:
            return count, x
        if at + 2 * count + 2 > (len(hull) >> 1 if step < 0 else len(hull)):
            return -1, 0.0
        hull[at + 2 * count] = x
        hull[at + 2 * count + 1] = last
        count += 1


@part
def _put_hull(
    out: Floats,
    count: int,
    update: int,
    sign: float,
    group: float,
    x: float,
    peak: float,
    hull: Floats,
    lefts: int,
    rights: int,
    bound_l: float,
    bound_r: float,
) -> int:
    """One message per hull point; all EMars come out of one merge of the two hulls by falling value.

    When a point of value v is announced, a and b are the nearest points not yet announced on either side: a
    left point spans to the first right one with value < v, a right point to the first left one with
    value <= v. That asymmetry keeps equal minima from being announced twice.
    """
    half = len(hull) >> 1
    outer_l = hull[0] if lefts > 0 else bound_l
    outer_r = hull[half] if rights > 0 else bound_r
    count = _put(out, count, update, sign, group, peak, x, x, outer_l, outer_r)
    a, b, end_a, end_b = 0, half, 2 * lefts, half + 2 * rights
    while a < end_a or b < end_b:
        if b < end_b and (a == end_a or hull[b + 1] >= hull[a + 1]):
            outer_l = hull[a] if a < end_a else bound_l
            outer_r = hull[b + 2] if b + 2 < end_b else bound_r
            count = _put(out, count, update, sign, group, hull[b + 1], x, hull[b], outer_l, outer_r)
            b += 2
        else:
            outer_l = hull[a + 2] if a + 2 < end_a else bound_l
            outer_r = hull[b] if b < end_b else bound_r
            count = _put(out, count, update, sign, group, hull[a + 1], hull[a], x, outer_l, outer_r)
            a += 2
    return count


@part
def _stays(m: Floats, leaf: int, i: int, y: float) -> bool:
    """Whether entry i may take y without leaving its place: no neighbour of its x, nor a separator, is in the way."""
    group, x = m[leaf + GROUP + i], m[leaf + X + i]
    if i == 0:
        s = separator_of(m, leaf)
        if s >= 0 and m[s + S_X] == x and m[s + S_GROUP] == group and y < m[s + S_Y]:
            return False
    elif m[leaf + X + i - 1] == x and m[leaf + GROUP + i - 1] == group and m[leaf + Y + i - 1] > y:
        return False
    if i + 1 == m[leaf + COUNT]:
        after = int(m[leaf + NEXT])
        if after < 0:
            return True
        s = separator_of(m, after)
        return not (m[s + S_X] == x and m[s + S_GROUP] == group and y > m[s + S_Y])
    return not (m[leaf + X + i + 1] == x and m[leaf + GROUP + i + 1] == group and m[leaf + Y + i + 1] < y)


@inlined
def _class_of(mars: int, hulls: int, own: bool) -> int:
    """The class of an update by its messages; `own`: the only hull point is the row itself, risen."""
    if mars + hulls == 0:
        return IGNORABLE
    return EASY if hulls == 0 or (hulls == 1 and mars == 0 and own) else DIFFICULT


@part
def _look_ahead(m: Floats, leaf_of: Ints, slots: Ints, update: int, places: Ints) -> None:
    """Fetch what coming updates will touch: first which leaf, then its rows, then the row's x and y.

    Notes in `places` (by update, modulo AHEAD) where the row was found, for `_position`.

    A leaf is rarely in the cache when its turn comes, and each of the three needs the one before it. Changes
    in between can make this look at the wrong place; that costs time, never correctness.
    """
    n = len(slots)
    if update + 3 * AHEAD < n and slots[update + 3 * AHEAD] >= 0:
        prefetch(leaf_of, slots[update + 3 * AHEAD])
    if update + 2 * AHEAD < n and slots[update + 2 * AHEAD] >= 0:
        leaf = leaf_of[slots[update + 2 * AHEAD]]
        if leaf >= 0:
            prefetch(m, leaf)
            for i in range(0, LEAF, 8):
                prefetch(m, leaf + ROW + i)
    if update + AHEAD < n and slots[update + AHEAD] >= 0:
        slot = slots[update + AHEAD]
        leaf = leaf_of[slot]
        if leaf >= 0:
            i = position_of(m, leaf, slot)
            places[update % AHEAD] = i
            near = i - 8 if i >= 8 else 0
            for k in range(near, i + 9, 8):
                prefetch(m, leaf + X + k)
                prefetch(m, leaf + GROUP + k)
                prefetch(m, leaf + Y + k)


@inlined
def _position(m: Floats, leaf: int, slot: int, hint: int) -> int:
    """`position_of`, most often where the row was found when looking ahead."""
    if hint < m[leaf + COUNT] and m[leaf + ROW + hint] == slot:
        return hint
    return position_of(m, leaf, slot)


@part
def _grown(array: Floats, used: int) -> Floats:
    larger = np.empty(2 * len(array))
    for i in range(used):
        larger[i] = array[i]
    return larger


@inlined
def _place(
    cells: Floats, groups: Floats, present: Booleans, x: int, y: int, update: int
) -> tuple[bool, float, float, float]:
    """Whether a row is in the channel, and its group, x and y. NULL anywhere: it is not."""
    group = groups[update] if len(groups) else 0.0
    x_value = cells[x, update] if x >= 0 else 0.0
    y_value = cells[y, update] if y >= 0 else 0.0
    there = present[update] and group == group and x_value == x_value and y_value == y_value
    return there, group, x_value, y_value


@kernel
def reformulate(
    m: Floats,
    leaf_of: Ints,
    slots: Ints,
    existed: Booleans,
    exists: Booleans,
    old: Floats,
    new: Floats,
    old_groups: Floats,
    new_groups: Floats,
    x: int,
    y: int,
    start: int,
    wanted: int,
    out: Floats,
    count: int,
    tally: Ints,
) -> tuple[int, Floats, int]:
    """Apply updates from `start` on to the tree, in order, and append their messages.

    `old` and `new` hold all columns (columns, n), of which `x` and `y` are used (-1: everywhere 0); the groups are
    empty arrays where the channel has one group only. NaN is NULL: such a row is not in the channel.
    `wanted` is 1 for MIN, 2 for MAX, 3 for both. Returns where it stopped (short of n when the tree needs more
    nodes: grow it and come again), the message array, which may have moved, and the number of messages.
    """
    hull = np.empty(64)
    places = np.zeros(AHEAD, np.int64)
    update = start
    while update < len(slots):
        if m[FREE_NODES] < m[HEIGHT] + 2:  # a split on every level, and a new root
            break
        place = places[update % AHEAD]
        _look_ahead(m, leaf_of, slots, update, places)
        slot = slots[update]
        had, go, xo, yo = _place(old, old_groups, existed, x, y, update)
        has, gn, xn, yn = _place(new, new_groups, exists, x, y, update)
        same_place = had and has and go == gn and xo == xn
        if (same_place and yo == yn) or not (had or has):
            tally[IGNORABLE] += 1
            tally[3 + IGNORABLE] += 1
            update += 1
            continue
        leaf, at = -1, -1
        if had:
            leaf = leaf_of[slot]
            at = _position(m, leaf, slot, place)
        mars_min, mars_max = 0, 0
        for side in range(2):  # step 1, before the change
            sign = 1.0 - 2.0 * side
            if not (has and wanted & (1 + side)) or (same_place and sign * yo <= sign * yn):
                continue  # nobody asks, or the old row was at least as good in the same place
            if same_place:
                a, i = beside_run(m, leaf, at, sign)
            else:
                a, i = seek(m, gn, xn, -sign * np.inf)
            if _best_at(m, a, i, gn, xn, sign) > sign * yn:
                left, right = _mar(m, a, i, gn, sign * yn, sign)
                if (count + 1) * FIELDS > len(out):
                    out = _grown(out, count * FIELDS)
                count = _put(out, count, update, sign, gn, sign * yn, xn, xn, left, right)
                mars_min += 1 - side
                mars_max += side
        if same_place and _stays(m, leaf, at, yn):
            change_y(m, leaf, at, yn)
        else:
            leaf = -1
            if had:
                remove(m, leaf_of, slot)
            if has:
                insert(m, leaf_of, slot, gn, xn, yn)
        for side in range(2):  # step 2, after the change
            if not wanted & (1 + side):
                continue
            sign = 1.0 - 2.0 * side
            before, peak = count, np.inf
            if had and not (same_place and sign * yn <= sign * yo):
                if leaf >= 0:
                    a, i = beside_run(m, leaf, at, sign)
                else:
                    a, i = seek(m, go, xo, -sign * np.inf)
                peak = _best_at(m, a, i, go, xo, sign)
                if peak > sign * yo:
                    while True:
                        lefts, bound_l = _walk_hull(m, a, i - 1, -1, go, peak, sign * yo, sign, hull, 0)
                        rights, bound_r = _walk_hull(m, a, i, 1, go, peak, sign * yo, sign, hull, len(hull) >> 1)
                        if lefts >= 0 and rights >= 0:
                            break
                        hull = np.empty(2 * len(hull))
                    while (count + lefts + rights + 1) * FIELDS > len(out):
                        out = _grown(out, count * FIELDS)
                    count = _put_hull(out, count, update, sign, go, xo, peak, hull, lefts, rights, bound_l, bound_r)
            own = same_place and peak == sign * yn
            tally[3 * side + _class_of(mars_max if side else mars_min, count - before, own)] += 1
        update += 1
    return update, out, count


@kernel
def by_field(messages: Floats, sign: float, first_seq: int) -> tuple[Ints, Floats]:
    """Of the messages of a batch those for MIN (sign +1) or MAX (-1): sequence numbers, and a row for each field."""
    n = 0
    for i in range(len(messages)):
        n += messages[i, SIGN] == sign
    seqs, fields, k = np.empty(n, np.int64), np.empty((FIELDS, n)), 0
    for i in range(len(messages)):
        if messages[i, SIGN] == sign:
            seqs[k] = int(messages[i, UPDATE]) + first_seq
            for field in range(FIELDS):
                fields[field, k] = messages[i, field]
            k += 1
    return seqs, fields


def rectangles(fields: Floats) -> dict[str, Floats]:
    """The sides of messages, given as columns of fields, by their names on the wire."""
    return {"il": fields[INNER_L], "ir": fields[INNER_R], "ol": fields[OUTER_L], "or": fields[OUTER_R]}
