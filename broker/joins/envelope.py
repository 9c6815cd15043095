"""Envelopes: how far the rectangles of a stabbing group that hold x reach in y, in one look-up.

The y-ranges of a stabbing group share a point. So those of them whose x-range holds some x unite to *one* interval,
from the lowest y_low to the highest y_high among them, and both are step functions of x:

    y ^      +-----+                  pieces    from x    y         x = 7 meets three rectangles of
      |   +--+-----+--+                         -inf      nothing   the group: one interval
      |   |  |     |  |                          2        3 .. 7
    p | - | -|- - -+- + - - +- -                 4        1 .. 9
      |   +--+-----+--+     |                    8        2 .. 7
      |      +-----+  +-----+                   ..
      +----------------------------> x

A rectangle that leaves may have been what a piece rests on. Each piece counts its supports, from below; where none is
known to be left the piece may reach too far: it is *wide*, and what is found there is not sure. Pieces are computed
again from the group's rectangles when being unsure has cost as much as that would (`rebuild_due`).
"""

from __future__ import annotations

import numpy as np

from hullcast.broker.joins.plan import X_HIGH, X_LOW, Y_HIGH, Y_LOW, RectangleTable
from hullcast.network.compiled import kernel, part
from hullcast.network.wire.arrays import Floats, Ints

# Columns of a piece's values: its y-interval, and how many rectangles at least its two ends rest on, over all of it.
LOWEST, HIGHEST, LOW_SUPPORTS, HIGH_SUPPORTS = 0, 1, 2, 3
# Columns of the table of groups: where its pieces begin, how many there are and have room; how many rectangles, and
# the last of them; whether a piece is wide, how often a wide one was looked up, and how many rows were tested for that.
FIRST, PIECES, ROOM, MEMBERS, LAST, WIDE, LOOKS, TESTS = 0, 1, 2, 3, 4, 5, 6, 7
#: What being unsure costs, in rectangles whose pieces could be computed in that time: a look-up, and a row tested.
LOOK_COST, TEST_COST = 64, 4


class Envelopes:
    """The pieces of all groups, in flat arrays, so that one kernel call serves many arrivals and all groups.

    Invariants (`check` tests them):
      E1  Pieces of a group begin at -inf, and ascend; every rectangle of the group lies in the pieces over its x-range.
      E2  The end of a piece without a wide mark (supports > 0) is that of so many rectangles, at every x of the piece.
      E3  Every rectangle is in the list of its group; the room of groups does not overlap.

    Cost for a group of n rectangles and p <= 2 n + 1 pieces (mostly far fewer): a look-up O(log p), adding k rectangles
    O(p + k log k), removing one O(p) at worst, computing anew O(n log n).
    """

    def __init__(self, rectangles: RectangleTable) -> None:
        self._rectangles = rectangles  # by id; whoever adds ids here has put them there
        self.starts: Floats = np.empty(64)
        self.values: Floats = np.empty((64, 4))
        self.table: Ints = _no_groups(4)
        self._top: Ints = np.zeros(1, np.int64)  # pieces are handed out up to here
        self.recomputed = 0  # rectangles whose pieces were computed again
        self._links: Ints = np.full((16, 3), -1, np.int64)  # by id: group, the one before in its list, the one behind

    def add(self, ids: Ints, groups: Ints) -> None:
        """These rectangles join these groups."""
        if not len(ids):
            return
        if len(ids) > 1:
            order = np.argsort(groups, kind="stable")
            ids, groups = ids[order], groups[order]
        self._reserve(int(ids.max()) + 1, int(groups[-1]) + 1)
        self.starts, self.values = _add(
            self.starts, self.values, self._top, self.table, self._links, self._rectangles.rows, ids, groups
        )

    def remove(self, ids: Ints) -> None:
        """These leave their groups. Their rectangles must still be known."""
        _remove(self.starts, self.values, self.table, self._links, self._rectangles.rows, ids)

    def group_of(self, ids: Ints) -> Ints:
        """The groups of ids, -1 of those that are in none."""
        known = ids < len(self._links)
        groups = np.full(len(ids), -1, np.int64)
        groups[known] = self._links[ids[known], 0]
        return groups

    def charge(self, tests: int) -> None:
        """So many rows had to be tested one by one, since look-ups were not sure."""
        looks = self.table[:, LOOKS]
        total = int(looks.sum())
        if total:
            self.table[:, TESTS] += tests * looks // total

    @property
    def is_due(self) -> bool:
        """Whether `rebuild_due` has something to do."""
        return len(self._due(0)) > 0

    def rebuild_due(self, arrivals: int) -> None:
        """Compute those wide groups again for which that is cheaper than being unsure, for so many arrivals more."""
        self.rebuild(self._due(arrivals))

    def _due(self, arrivals: int) -> Ints:
        wide = np.flatnonzero(self.table[:, WIDE])
        costs = LOOK_COST * (self.table[wide, LOOKS] + arrivals) + TEST_COST * self.table[wide, TESTS]
        due: Ints = wide[costs >= self.table[wide, MEMBERS]]
        return due

    def rebuild(self, groups: Ints) -> None:
        """Compute the pieces of these groups again."""
        if len(groups):
            self.recomputed += int(self.table[groups, MEMBERS].sum())
            self.starts, self.values = _rebuild(
                self.starts, self.values, self._top, self.table, self._links, self._rectangles.rows, groups
            )

    def memory_bytes(self) -> int:
        """Bytes held, without the rectangles."""
        return self.starts.nbytes + self.values.nbytes + self.table.nbytes + self._links.nbytes

    def check(self) -> None:
        """Test E1 to E3. Slow: plain Python."""
        taken = np.zeros(len(self.starts), np.int64)
        seen = 0
        for group, (first, pieces, room, members, last, wide, _, _) in enumerate(self.table.tolist()):
            taken[first : first + room] += 1
            assert pieces <= room, "E3"
            ids: list[int] = []
            behind = -1
            while last >= 0:
                assert self._links[last, 0] == group, "E3"
                assert self._links[last, 2] == behind, "E3"
                ids.append(last)
                behind, last = last, int(self._links[last, 1])
            assert len(ids) == members, "E3"
            seen += members
            if not pieces:
                assert not members, "E1"
                continue
            starts, values = self.starts[first : first + pieces], self.values[first : first + pieces]
            assert starts[0] == -np.inf, "E1"
            assert (np.diff(starts) > 0).all(), "E1"
            rectangles = self._rectangles.rows[ids]
            with np.errstate(over="ignore"):  # -inf is before the lowest number
                ends = [*np.nextafter(starts[1:], -np.inf).tolist(), np.inf]
            for start, end, piece in zip(starts, ends, values, strict=True):
                for x in (start, end):
                    held = rectangles[(rectangles[:, X_LOW] <= x) & (x <= rectangles[:, X_HIGH])]
                    assert (piece[LOWEST] <= held[:, Y_LOW]).all(), "E1"
                    assert (piece[HIGHEST] >= held[:, Y_HIGH]).all(), "E1"
                    if piece[LOWEST] < np.inf:
                        assert wide or min(piece[LOW_SUPPORTS], piece[HIGH_SUPPORTS]) > 0, "E2"
                        assert (held[:, Y_LOW] == piece[LOWEST]).sum() >= piece[LOW_SUPPORTS], "E2"
                        assert (held[:, Y_HIGH] == piece[HIGHEST]).sum() >= piece[HIGH_SUPPORTS], "E2"
        assert taken.max(initial=0) <= 1, "E3"
        assert seen == np.count_nonzero(self._links[:, 0] >= 0), "E3"

    def _reserve(self, ids: int, groups: int) -> None:
        if ids > len(self._links):
            links = np.full((max(ids, 2 * len(self._links)), 3), -1, np.int64)
            links[: len(self._links)] = self._links
            self._links = links
        if groups > len(self.table):
            table = _no_groups(max(groups, 2 * len(self.table)))
            table[: len(self.table)] = self.table
            self.table = table


def _no_groups(n: int) -> Ints:
    table = np.zeros((n, 8), np.int64)
    table[:, LAST] = -1
    return table


@part
def piece_at(starts: Floats, first: int, pieces: int, x: float) -> int:
    """The piece of a group that holds x."""
    low, n = first, pieces
    while n > 1:  # the last start <= x is among n from `low` on
        half = n >> 1
        if starts[low + half] <= x:
            low += half
        n -= half
    return low


@part
def _same_size(a: float, b: float) -> bool:
    """Whether two counts have the same highest bit: pieces that differ in less are united.

    A piece then knows at least half of the supports it has at its poorest x, and counts that vary make few pieces.
    """
    return a == b or (int(a) ^ int(b)) <= (int(a) & int(b))


@part
def _put(
    s: Floats, v: Floats, at: int, begin: int, x: float, low: float, high: float, lows: float, highs: float
) -> int:
    """Append a piece, or extend the last one by it, if it is not the first of its function; gives the next place."""
    if at > begin:
        i = at - 1
        if (
            v[i, LOWEST] == low
            and v[i, HIGHEST] == high
            and _same_size(v[i, LOW_SUPPORTS], lows)
            and _same_size(v[i, HIGH_SUPPORTS], highs)
        ):
            v[i, LOW_SUPPORTS] = min(v[i, LOW_SUPPORTS], lows)
            v[i, HIGH_SUPPORTS] = min(v[i, HIGH_SUPPORTS], highs)
            return at
    s[at] = x
    v[at, LOWEST], v[at, HIGHEST], v[at, LOW_SUPPORTS], v[at, HIGH_SUPPORTS] = low, high, lows, highs
    return at + 1


@part
def _merge(
    s1: Floats, v1: Floats, i: int, end1: int, s2: Floats, v2: Floats, j: int, end2: int, s: Floats, v: Floats, at: int
) -> int:
    """The envelope of two, s1[i:end1] and s2[j:end2], from `at` on in s; gives where it ends.

    An end that both have rests on the supports of both; else on those of the one that reaches further.
    """
    begin, x = at, -np.inf
    while True:
        low, lows = v1[i, LOWEST], v1[i, LOW_SUPPORTS]
        if v2[j, LOWEST] < low:
            low, lows = v2[j, LOWEST], v2[j, LOW_SUPPORTS]
        elif v2[j, LOWEST] == low:
            lows += v2[j, LOW_SUPPORTS]
        high, highs = v1[i, HIGHEST], v1[i, HIGH_SUPPORTS]
        if v2[j, HIGHEST] > high:
            high, highs = v2[j, HIGHEST], v2[j, HIGH_SUPPORTS]
        elif v2[j, HIGHEST] == high:
            highs += v2[j, HIGH_SUPPORTS]
        at = _put(s, v, at, begin, x, low, high, lows, highs)
        if i + 1 < end1 and (j + 1 == end2 or s1[i + 1] <= s2[j + 1]):
            x = s1[i + 1]
            i += 1
            if j + 1 < end2 and s2[j + 1] == x:
                j += 1
        elif j + 1 < end2:
            x = s2[j + 1]
            j += 1
        else:
            return at


@part
def _single(rows: Floats, one: int, s: Floats, v: Floats, at: int) -> int:
    """The envelope of one rectangle: at most three pieces."""
    begin, x_low, x_high = at, rows[one, X_LOW], rows[one, X_HIGH]
    if x_low > -np.inf:
        at = _put(s, v, at, begin, -np.inf, np.inf, -np.inf, 0.0, 0.0)
    at = _put(s, v, at, begin, x_low, rows[one, Y_LOW], rows[one, Y_HIGH], 1.0, 1.0)
    if x_high < np.inf:
        at = _put(s, v, at, begin, np.nextafter(x_high, np.inf), np.inf, -np.inf, 0.0, 0.0)
    return at


@part
def _build(rows: Floats, ids: Ints, begin: int, end: int) -> tuple[Floats, Floats, int]:
    """The envelope of the rectangles ids[begin:end]: by pairs, then pairs of pairs, and so on."""
    n = end - begin
    s, v = np.empty(3 * n), np.empty((3 * n, 4))
    ends = np.empty(n + 1, np.int64)  # function k is s[ends[k]:ends[k + 1]]
    ends[0] = 0
    for k in range(n):
        ends[k + 1] = _single(rows, ids[begin + k], s, v, ends[k])
    if n > 1:
        s2, v2 = np.empty(3 * n), np.empty((3 * n, 4))
        while n > 1:
            at, k, made = 0, 0, 0
            while k < n:  # ends[made + 1] is written where it has been read: made <= k
                first, second = ends[k], ends[k + 1]
                if k + 1 < n:
                    third = ends[k + 2]
                    at = _merge(s, v, first, second, s, v, second, third, s2, v2, at)
                else:
                    for i in range(first, second):
                        s2[at] = s[i]
                        for j in range(4):
                            v2[at, j] = v[i, j]
                        at += 1
                made += 1
                k += 2
                ends[made] = at
            n = made
            s, v, s2, v2 = s2, v2, s, v
    return s, v, ends[1]


@part
def _store(
    starts: Floats, values: Floats, top: Ints, table: Ints, group: int, s: Floats, v: Floats, count: int
) -> tuple[Floats, Floats]:
    """Give a group these pieces; where there is no room, in larger arrays, to which all others move."""
    if count > table[group, ROOM]:
        room = count + (count >> 1) + 2
        if top[0] + room > len(starts):
            table[group, PIECES] = table[group, ROOM] = 0
            total = room
            for g in range(len(table)):
                if table[g, PIECES] > 0:
                    total += table[g, PIECES] + (table[g, PIECES] >> 1) + 2
            new_starts, new_values, at = np.empty(2 * total), np.empty((2 * total, 4)), 0
            for g in range(len(table)):
                first, pieces = table[g, FIRST], table[g, PIECES]
                table[g, FIRST], table[g, ROOM] = at, pieces + (pieces >> 1) + 2 if pieces > 0 else 0
                for i in range(pieces):
                    new_starts[at + i] = starts[first + i]
                    for j in range(4):
                        new_values[at + i, j] = values[first + i, j]
                at += table[g, ROOM]
            starts, values, top[0] = new_starts, new_values, at
        table[group, FIRST], table[group, ROOM] = top[0], room
        top[0] += room
    first = table[group, FIRST]
    for i in range(count):
        starts[first + i] = s[i]
        for j in range(4):
            values[first + i, j] = v[i, j]
    table[group, PIECES] = count
    return starts, values


@kernel
def _add(
    starts: Floats, values: Floats, top: Ints, table: Ints, links: Ints, rows: Floats, ids: Ints, groups: Ints
) -> tuple[Floats, Floats]:
    """Add rectangles, ordered by group."""
    begin = 0
    while begin < len(ids):
        group, end = groups[begin], begin
        while end < len(ids) and groups[end] == group:
            one, last = ids[end], table[group, LAST]
            links[one, 0], links[one, 1], links[one, 2] = group, last, -1
            if last >= 0:
                links[last, 2] = one
            table[group, LAST] = one
            end += 1
        table[group, MEMBERS] += end - begin
        s, v, count = _build(rows, ids, begin, end)
        first, pieces = table[group, FIRST], table[group, PIECES]
        if pieces > 0:
            both_s, both_v = np.empty(count + pieces), np.empty((count + pieces, 4))
            count = _merge(starts, values, first, first + pieces, s, v, 0, count, both_s, both_v, 0)
            starts, values = _store(starts, values, top, table, group, both_s, both_v, count)
        else:
            starts, values = _store(starts, values, top, table, group, s, v, count)
        begin = end
    return starts, values


@kernel
def _remove(starts: Floats, values: Floats, table: Ints, links: Ints, rows: Floats, ids: Ints) -> None:
    for k in range(len(ids)):
        one = ids[k]
        group, before, behind = links[one, 0], links[one, 1], links[one, 2]
        if before >= 0:
            links[before, 2] = behind
        if behind >= 0:
            links[behind, 1] = before
        else:
            table[group, LAST] = before
        links[one, 0] = -1
        table[group, MEMBERS] -= 1
        if table[group, MEMBERS] == 0:
            table[group, PIECES] = table[group, WIDE] = table[group, LOOKS] = table[group, TESTS] = 0
            continue
        first, pieces = table[group, FIRST], table[group, PIECES]
        i = piece_at(starts, first, pieces, rows[one, X_LOW])
        while i < first + pieces and starts[i] <= rows[one, X_HIGH]:
            for column in range(2):
                supports = LOW_SUPPORTS + column
                if values[i, LOWEST + column] == rows[one, Y_LOW + column] and values[i, supports] > 0:
                    values[i, supports] -= 1
                    if values[i, supports] == 0:
                        table[group, WIDE] = 1
            i += 1


@kernel
def _rebuild(
    starts: Floats, values: Floats, top: Ints, table: Ints, links: Ints, rows: Floats, groups: Ints
) -> tuple[Floats, Floats]:
    for k in range(len(groups)):
        group = groups[k]
        ids, one = np.empty(table[group, MEMBERS], np.int64), table[group, LAST]
        for i in range(len(ids)):
            ids[i] = one
            one = links[one, 1]
        s, v, count = _build(rows, ids, 0, len(ids))
        starts, values = _store(starts, values, top, table, group, s, v, count)
        table[group, WIDE] = table[group, LOOKS] = table[group, TESTS] = 0
    return starts, values
