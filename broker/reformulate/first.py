"""First answers: what many boxes select from rows, as pure functions that may run in any thread.

A channel copies the columns it needs (`captured`), which takes as long as copying memory; what is computed from them
here may take its time elsewhere, while the rows change. Equal boxes are computed once. Work is bounded before it
is done: rows looked at, and rows found, each counted as often as somebody asked for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.network.answers.aggregate import LOST_BITS, exact_state, sums_in_boxes, together
from hullcast.network.compiled import kernel, part
from hullcast.network.wire.errors import TooLarge

if TYPE_CHECKING:
    from hullcast.broker.tables.store import TableStore
    from hullcast.network.wire.arrays import Booleans, Floats, Ints


#: Rows in the first answers of one group of subscriptions, so that nobody asks us out of memory.
FIRST_ROWS = 1_000_000
#: Rows looked at for them: some seconds of work, elsewhere.
MOST_LOOKS = 2_000_000_000
#: From so many boxes on, sorting the rows once is cheaper than looking at all of them each time.
WORTH_SORTING = 8


class Captured(NamedTuple):
    """Some columns of a table as they were at one moment, dead slots included."""

    cells: dict[int, Floats]
    alive: Booleans

    def live(self) -> dict[int, Floats]:
        """The columns of the rows alone."""
        if self.alive.all():
            return self.cells
        return {column: values[self.alive] for column, values in self.cells.items()}


def captured(store: TableStore, columns: set[int]) -> Captured:
    """Copy columns: contiguous memory, so about a millisecond per million rows each."""
    used = store.high_water
    return Captured({column: store.cells[column, :used].copy() for column in columns}, store.alive[:used].copy())


class Boxes(NamedTuple):
    """Boxes (n, d) without repetition, and how they came: box `which[i]` is what `member[i]` asked for, as its only one
    (None: member i), or as one of several that do not overlap."""

    low: Floats
    high: Floats
    which: Ints
    weights: Ints  # members per box
    member: Ints | None = None

    @classmethod
    def of(cls, low: Floats, high: Floats, never: Booleans | None = None, member: Ints | None = None) -> Boxes:
        """The distinct ones among boxes; one that can `never` hold a row is an empty one."""
        low, high = np.hstack((low, np.zeros((len(low), 1)))), np.hstack((high, np.zeros((len(high), 1))))
        if never is not None:  # the last dimension is one that all rows have at 0
            high[never, -1] = -1.0
        # not np.unique by rows: it holds the interpreter's lock, and with it the event loop, while it sorts
        order = np.lexsort((*low.T, *high.T))
        low, high = low[order], high[order]
        first = np.ones(len(low), np.bool_)
        first[1:] = (low[1:] != low[:-1]).any(axis=1) | (high[1:] != high[:-1]).any(axis=1)
        which = np.empty(len(low), np.int64)
        which[order] = np.cumsum(first) - 1
        low, high = low[first], high[first]
        return cls(low, high, which, np.bincount(which, minlength=len(low)).astype(np.int64), member)

    def ranges(self, column: Floats) -> tuple[Ints, Ints]:
        """Where in a sorted column each box's first dimension begins and ends; an empty one ends where it begins."""
        starts, stops = np.searchsorted(column, self.low[:, 0]), np.searchsorted(column, self.high[:, 0], "right")
        return starts, np.maximum(starts, stops)


def table_of(columns: list[Floats], n: int) -> Floats:
    """Columns of n rows as one table (d, n), with the dimension that all rows have at 0."""
    return np.array([*columns, np.zeros(n)]).reshape(len(columns) + 1, n)


def sorted_for(boxes: Boxes, table: Floats) -> tuple[Floats, Ints, Ints, Ints]:
    """(table in some order, that order, starts, stops): for box i only rows starts[i] to stops[i] can be inside."""
    n = table.shape[1]
    if len(boxes.low) < WORTH_SORTING or len(table) == 1:
        starts, stops = np.zeros(len(boxes.low), np.int64), np.full(len(boxes.low), n)
        return table, np.arange(n), starts, stops
    order = np.argsort(table[0], kind="stable")
    table = np.ascontiguousarray(table[:, order])
    starts, stops = boxes.ranges(table[0])
    return table, order, starts, stops


def rows_in_boxes(columns: list[Floats], n: int, boxes: Boxes, most: int | None = None) -> tuple[Ints, Ints]:
    """(member, row) of every row that a member's box selects, members in order. TooLarge if there are too many: more
    than `most`, or than first answers may have."""
    most = FIRST_ROWS if most is None else most
    table, order, starts, stops = sorted_for(boxes, table_of(columns, n))
    each = np.arange(n)  # every row is a value of its own
    of, rows, found, looks = _select(
        table, each, n, boxes.low, boxes.high, starts, stops, boxes.weights, most, MOST_LOOKS
    )
    check_work(found, looks, most)
    return expanded(of, order[rows], boxes)


def values_in_boxes(columns: list[Floats], values: Floats, boxes: Boxes) -> tuple[Ints, Floats]:
    """(member, value) of every distinct value among the rows that a member's box selects; NULL is a value."""
    table, order, starts, stops = sorted_for(boxes, table_of(columns, len(values)))
    distinct, ranks = np.unique(values, return_inverse=True)  # NaN once, at the end
    ranks = ranks.reshape(-1).astype(np.int64)[order]
    of, found_ranks, found, looks = _select(
        table, ranks, len(distinct), boxes.low, boxes.high, starts, stops, boxes.weights, FIRST_ROWS, MOST_LOOKS
    )
    check_work(found, looks)
    of, found_ranks = expanded(of, found_ranks, boxes)
    return of, distinct[found_ranks]


def states_in_boxes(columns: list[Floats], y: Floats, boxes: Boxes, *, exact: bool = False) -> Floats:
    """The state (`AggregateAnswers`) of each member's boxes over rows with these columns; a NaN in y does not count.

    Where bits were lost, or `exact` is asked for, all bits of the rows are added up before rounding.
    """
    table, order, starts, stops = sorted_for(boxes, table_of(columns, len(y)))
    y = np.ascontiguousarray(y[order])
    check_work(0, int((stops - starts).sum()))
    low, high = boxes.low, boxes.high
    state = np.zeros((len(low), 4))
    sums_in_boxes(table, y, low, high, starts, stops, state)
    members: list[Ints] = list(np.arange(len(low)).reshape(-1, 1))
    if boxes.member is not None:
        state = together(state[boxes.which], boxes.member)
        members = np.split(boxes.which, np.flatnonzero(np.diff(boxes.member)) + 1)
    doubted = range(len(state)) if exact else np.flatnonzero(state[:, LOST_BITS]).tolist()
    for i in doubted:
        inside = np.zeros(len(y), np.bool_)
        for box in members[i]:
            within = ~np.isnan(y)
            for column, lower, upper in zip(table, low[box].tolist(), high[box].tolist(), strict=True):
                within &= (lower <= column) & (column <= upper)
            inside |= within
        state[i] = exact_state(y[inside].tolist())
    return state[boxes.which] if boxes.member is None else state


def expanded(of: Ints, found: Ints, boxes: Boxes) -> tuple[Ints, Ints]:
    """What boxes found, given to every member that asked for that box; members in order."""
    n = len(boxes.low)
    starts = np.searchsorted(of, np.arange(n + 1))  # of is ascending
    counts = np.diff(starts)[boxes.which]
    members = np.repeat(np.arange(len(boxes.which)), counts)
    first = np.repeat(starts[:-1][boxes.which] - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    found = found[first + np.arange(len(members))]
    return members if boxes.member is None else boxes.member[members], found


def check_work(found: int, looks: int, most: int | None = None) -> None:
    """TooLarge if first answers are more, or more work, than one request may ask for."""
    most = FIRST_ROWS if most is None else most
    if found > most:
        raise TooLarge("rows in first answers (narrow the ranges)", found, most)
    if looks > MOST_LOOKS:
        raise TooLarge("rows to look at for first answers (narrow the ranges)", looks, MOST_LOOKS)


@kernel
def _select(
    table: Floats,
    ranks: Ints,
    distinct: int,
    low: Floats,
    high: Floats,
    starts: Ints,
    stops: Ints,
    weights: Ints,
    most_found: int,
    most_looks: int,
) -> tuple[Ints, Ints, int, int]:
    """(box, rank) of every value that a box selects, once; how many that is for all members; rows looked at.

    `ranks` are the rows' values as numbers below `distinct`. Ends early when there is too much of either.
    """
    room, count, found, looks = 64, 0, 0, 0
    pairs = np.empty((2, room), np.int64)
    seen = np.full(distinct, -1, np.int64)
    for i in range(len(low)):
        looks += stops[i] - starts[i]
        if looks > most_looks:
            break
        for row in range(starts[i], stops[i]):
            if seen[ranks[row]] == i:
                continue
            inside = True
            for d in range(table.shape[0]):
                inside = inside and low[i, d] <= table[d, row] <= high[i, d]
            if inside:
                seen[ranks[row]] = i
                if count == room:
                    larger = np.empty((2, 2 * room), np.int64)
                    larger[:, :room] = pairs
                    pairs, room = larger, 2 * room
                pairs[0, count], pairs[1, count] = i, ranks[row]
                count += 1
                found += weights[i]
                if found > most_found:
                    return pairs[0, :count], pairs[1, :count], found, looks
    return pairs[0, :count], pairs[1, :count], found, looks


class JoinSide(NamedTuple):
    """What boxes ask of one table of a join: columns, the dimension of the boxes that each is, the join column."""

    columns: list[Floats]
    dimensions: list[int]
    join: Floats

    def ordered(self, *by: Floats) -> tuple[Floats, Ints]:
        """(columns and the join column as one table, in some order; that order), without the rows that meet nobody."""
        order = np.lexsort(by) if by else np.arange(len(self.join))
        order = order[~np.isnan(self.join[order])]
        return np.ascontiguousarray(np.array([*self.columns, self.join])[:, order]), order


def pairs_in_boxes(
    sides: tuple[JoinSide, JoinSide], band: int | None, boxes: Boxes, *, whole: bool
) -> tuple[Ints, list[Ints]]:
    """(member, each side's row) of every pair of rows that a member's box selects. TooLarge if there are too many.

    Rows meet if their join columns are equal, or (`band`: that dimension of the boxes) if right - left is in the band.
    From box to box the side of which fewer rows can be inside is run through, and looks up its partners on the other
    side. That has an order for it: of an equality by the join column and the first other column, of a band by the join
    column alone.
    """
    n = len(boxes.low)
    ends = np.zeros((n, 2)) if band is None else np.column_stack((boxes.low[:, band], boxes.high[:, band]))
    runs: list[tuple[Floats, Ints, Ints, Ints]] = []
    for side in sides:
        first = side.columns[0] if side.columns else side.join
        table, order = side.ordered(first)
        starts, stops = np.zeros(n, np.int64), np.full(n, len(order))
        if side.columns:
            low, high = boxes.low[:, side.dimensions[0]], boxes.high[:, side.dimensions[0]]
            starts, stops = np.searchsorted(table[0], low), np.searchsorted(table[0], high, "right")
        stops = np.maximum(starts, np.where(boxes.high[:, -1] < 0, starts, stops))  # never
        runs.append((table, order, starts, stops))
    smaller = (runs[0][3] - runs[0][2]) <= (runs[1][3] - runs[1][2])
    of: list[Ints] = []
    found: tuple[list[Ints], list[Ints]] = ([], [])
    total = looks = 0
    for outer, some in ((0, np.flatnonzero(smaller)), (1, np.flatnonzero(~smaller))):
        if not len(some):
            continue
        table, order, starts, stops = runs[outer]
        side, other = sides[outer], sides[1 - outer]
        by = [other.join] if band is not None or not other.columns else [other.columns[0], other.join]
        inner, inner_order = other.ordered(*by)
        if band is None:
            firsts, lasts = np.searchsorted(inner[-1], table[-1]), np.searchsorted(inner[-1], table[-1], "right")
        else:
            firsts = lasts = np.empty(0, np.int64)
        which, rows, partners, pairs, seen = _pairs(
            table,
            inner,
            firsts,
            lasts,
            np.ascontiguousarray(boxes.low[some][:, side.dimensions]),
            np.ascontiguousarray(boxes.high[some][:, side.dimensions]),
            np.ascontiguousarray(boxes.low[some][:, other.dimensions]),
            np.ascontiguousarray(boxes.high[some][:, other.dimensions]),
            ends[some],
            1.0 if outer == 0 else -1.0,
            whole,
            starts[some],
            stops[some],
            boxes.weights[some],
            FIRST_ROWS - total,
            MOST_LOOKS - looks,
        )
        total, looks = total + pairs, looks + seen
        check_work(total, looks)
        of.append(some[which])
        found[outer].append(order[rows])
        found[1 - outer].append(inner_order[partners])
    members = np.concatenate(of) if of else np.empty(0, np.int64)
    by_box = np.argsort(members, kind="stable")
    members, places = expanded(members[by_box], by_box, boxes)
    return members, [np.concatenate(some)[places] if some else np.empty(0, np.int64) for some in found]


@part
def _seek_near(column: Floats, value: float, near: int) -> int:
    """Where a value belongs in an ascending column, looked for in growing steps from `near`."""
    n = len(column)
    for _ in range(4):  # where rows are run through in order, it is mostly here
        if near < n and column[near] < value:
            near += 1
        elif near == 0 or column[near - 1] < value:
            return near
        else:
            break
    low, high, step = 0, n, 1
    if near < n and column[near] < value:
        low = near + 1
        while low + step < n and column[low + step] < value:
            low += step + 1
            step *= 2
        high = min(n, low + step)
    else:
        high = near
        while high - step >= 0 and column[high - step] >= value:
            high -= step
            step *= 2
        low = max(0, high - step)
    while low < high:
        middle = (low + high) >> 1
        if column[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@part
def _in_band(difference: float, left: float, right: float, low: float, high: float, whole: bool) -> bool:
    """Whether right - left, rounded to `difference`, is in [low, high]; of whole numbers the difference itself."""
    if not low <= difference <= high:
        return False
    if whole:
        from_right = difference + left
        error = (right - from_right) - (left - (from_right - difference))
        return not (error < 0 and difference == low) and not (error > 0 and difference == high)
    return True


@kernel
def _pairs(
    outer: Floats,
    inner: Floats,
    firsts: Ints,
    lasts: Ints,
    outer_low: Floats,
    outer_high: Floats,
    inner_low: Floats,
    inner_high: Floats,
    band: Floats,
    sign: float,
    whole: bool,
    starts: Ints,
    stops: Ints,
    weights: Ints,
    most_found: int,
    most_looks: int,
) -> tuple[Ints, Ints, Ints, int, int]:
    """(box, outer row, inner row) of pairs that meet in a box; how many that is for all members; rows looked at.

    Each table ends with its join column. Of box i the outer rows starts[i] to stops[i] are looked at. Partners of an
    equality are among the inner rows firsts[row] to lasts[row], ascending in their first column; of a band (then
    `firsts` is empty) anywhere, ascending in the join column, and sign * (inner - outer) is in the band. Ends early
    when there is too much of either.
    """
    room, count, found, looks, near = 64, 0, 0, 0, 0
    pairs = np.empty((3, room), np.int64)
    banded, dimensions = len(firsts) == 0, inner.shape[0] - 1
    keys = inner[dimensions] if banded or dimensions == 0 else inner[0]
    for i in range(len(starts)):
        for row in range(starts[i], stops[i]):
            looks += 1
            inside = True
            for d in range(outer.shape[0] - 1):
                inside = inside and outer_low[i, d] <= outer[d, row] <= outer_high[i, d]
            if not inside:
                continue
            value = outer[outer.shape[0] - 1, row]
            last = inner.shape[1]
            low, high = -np.inf, np.inf
            if banded:  # a hair wider than computed, since the sum is rounded; the difference itself is tested below
                least, most = (band[i, 0], band[i, 1]) if sign > 0 else (-band[i, 1], -band[i, 0])
                low = value + least - (abs(value) + abs(least)) * 1e-15 if abs(least) < np.inf else least
                high = value + most + (abs(value) + abs(most)) * 1e-15 if abs(most) < np.inf else most
                near = at = _seek_near(keys, low, near)
            else:
                if dimensions > 0:
                    low, high = inner_low[i, 0], inner_high[i, 0]
                at, last = firsts[row], lasts[row]
                stop = last
                while at < stop:
                    middle = (at + stop) >> 1
                    if keys[middle] < low:
                        at = middle + 1
                    else:
                        stop = middle
            while at < last and keys[at] <= high:
                looks += 1
                inside = True
                for d in range(dimensions):
                    inside = inside and inner_low[i, d] <= inner[d, at] <= inner_high[i, d]
                if inside and banded:
                    other = inner[dimensions, at]
                    left, right = (value, other) if sign > 0 else (other, value)
                    inside = _in_band(right - left, left, right, band[i, 0], band[i, 1], whole)
                if inside:
                    if count == room:
                        larger = np.empty((3, 2 * room), np.int64)
                        larger[:, :room] = pairs
                        pairs, room = larger, 2 * room
                    pairs[0, count], pairs[1, count], pairs[2, count] = i, row, at
                    count += 1
                    found += weights[i]
                    if found > most_found:
                        return pairs[0, :count], pairs[1, :count], pairs[2, :count], found, looks
                at += 1
            if looks > most_looks:
                return pairs[0, :count], pairs[1, :count], pairs[2, :count], found, looks
    return pairs[0, :count], pairs[1, :count], pairs[2, :count], found, looks
