"""Equality and band joins: a changed row becomes one message for each of its pairs somebody wants.

A changed row arrives twice, as it was and as it is. Each time the index of the other side is asked for the partners
with which some range wants it; a partner found twice is one message. What the index cannot know (further range
columns, partitions) is tested pair by pair. Where a table is joined with itself, a changed row arrives on both sides.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.joins.plan import Arrivals
from hullcast.broker.joins.standing import JoinLayout, StandingJoins
from hullcast.broker.reformulate.boxes import Places
from hullcast.broker.reformulate.channel import Opening
from hullcast.broker.reformulate.first import JoinSide, pairs_in_boxes
from hullcast.broker.reformulate.keeper import TreeKeeper
from hullcast.broker.reformulate.selection import RowsChannel
from hullcast.broker.tables.schema import ColumnType
from hullcast.network.compiled import kernel
from hullcast.network.matching.duality import box_points
from hullcast.network.matching.messages import unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hullcast.broker.reformulate.boxes import Cells
    from hullcast.broker.reformulate.first import Boxes
    from hullcast.broker.reformulate.messages import Messages
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.tables.store import Updates
    from hullcast.network.wire.arrays import Booleans, Floats, Ints

#: Pairs described for one batch. Where a batch has more, nobody is told which: whoever listens begins again.
MOST_PAIRS = 500_000
#: Pairs looked at, for one described; and at once.
LOOKED_AT, AT_ONCE = 8, 1 << 16
#: Of a table that is joined with itself: changes of one batch that are paired with each other at once, at least.
TOGETHER = 64


@kernel
def each_once(arrivals: Ints, slots: Ints, sure: Booleans, n: int, seen: Ints) -> tuple[Ints, Ints, Booleans]:
    """Partners of n updates, of which update i arrives as i and as n + i, in the order of the updates and each once.

    `seen` is zeros, one a slot: sorting would take longer than all else.
    """
    begins, order = np.zeros(n + 1, np.int64), np.empty(len(slots), np.int64)
    for i in range(len(slots)):
        begins[arrivals[i] % n + 1] += 1
    for update in range(n):
        begins[update + 1] += begins[update]
    ends = begins[:-1].copy()
    for i in range(len(slots)):
        order[ends[arrivals[i] % n]] = i
        ends[arrivals[i] % n] += 1
    which, once, certain = (
        np.empty(len(slots), np.int64),
        np.empty(len(slots), np.int64),
        np.empty(len(slots), np.bool_),
    )
    count = 0
    for update in range(n):
        first = count
        for place in range(begins[update], begins[update + 1]):
            i = order[place]
            before = seen[slots[i]] - 1  # where it stands, if it was found for this update already
            if before >= first:
                certain[before] |= sure[i]
            else:
                which[count], once[count], certain[count] = update, slots[i], sure[i]
                count += 1
                seen[slots[i]] = count
    return which[:count], once[:count], certain[:count]


class Pairs(NamedTuple):
    """Pairs that somebody wants: the update that changes each, and the rows of both sides before and after it."""

    updates: Ints
    before: Sequence[Cells]
    after: Sequence[Cells]
    old: Places
    new: Places

    def take(self, some: Booleans | Ints) -> Pairs:
        """Some of them."""
        before, after = (
            [{column: values[some] for column, values in cells.items()} for cells in sides]
            for sides in (self.before, self.after)
        )
        return Pairs(self.updates[some], before, after, self.old.take(some), self.new.take(some))


class TooManyPairs(Exception):
    """A batch changes more pairs than can be described."""


class JoinChannel(RowsChannel):
    """Pairs of rows of two tables that meet, within ranges of columns of both.

    It knows the ranges anybody asks for, counted (never who asked), and describes the pairs that one of them wants.
    """

    counted = True

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        shape = opening.shape
        assert shape.on is not None, "S3"
        self.band = shape.on.band
        self._itself = shape.tables[0] == shape.tables[1]
        self._columns = (shape.on.left, shape.on.right)
        firsts = [next((ref.column for ref in shape.ranges if ref.side == side), None) for side in (0, 1)]
        self._firsts = tuple(firsts)  # the first range column of each side
        self.keepers = tuple(
            self.share(side, join, None, ()) if self.band else self.share(side, first, None, (join,))
            for side, (join, first) in enumerate(zip(self._columns, firsts, strict=True))
        )
        kinds = {table.columns[column].type for table, column in zip(self.tables, self._columns, strict=True)}
        self._whole = ColumnType.REAL not in kinds
        sides = [ref.side for ref in shape.ranges]
        layout = JoinLayout.of(sides, band=self.band, partitioned=self.spec.partitioned)
        self.standing = StandingJoins(layout, opening.coefficients, at_once=opening.at_once)
        self._described = 0  # the last update that messages were made of
        self._everything = 0  # how many want all pairs

    @property
    def most_messages(self) -> int:
        return MOST_PAIRS

    def let_go(self, seq: int) -> None:
        super().let_go(seq)
        self._described = seq

    def relevant(self, side: int) -> tuple[int, ...]:
        return tuple(sorted({*super().relevant(side), self._columns[side]}))

    # --- what is wanted ------------------------------------------------------------------------------------

    def admit(self, predicates: Predicates) -> Ints:
        listeners = super().admit(predicates)
        self.want(self.audience.points_of(listeners))
        return listeners

    def dismiss(self, listeners: Ints) -> None:
        self.forgo(self.audience.points_of(listeners))
        super().dismiss(listeners)

    def want(self, points: Floats | None) -> None:
        self.check_free()
        self._everything += points is None
        self.standing.add(self._reachable(points), self._described)

    def forgo(self, points: Floats | None) -> None:
        self._everything -= points is None
        self.standing.remove(self._reachable(points))

    def wanted_since(self, points: Floats) -> int:
        return self.standing.wanted_since(self._reachable(points))

    def ranges_known(self) -> tuple[int, int]:
        return len(self.standing), self.standing.ranges.total

    def _reachable(self, points: Floats | None) -> Floats:
        """Those that a message can concern. For all points (None) the widest range, in a partition that no row has:
        it finds the partners, and `_is_wanted` knows."""
        if points is None:
            d = self.spec.dimensions
            partitions = np.full(1, np.inf) if self.spec.partitioned else None
            return box_points(np.full((1, d), -np.inf), np.full((1, d), np.inf), partitions)
        return points[~unreachable(points, self.spec.dimensions)]

    def upkeep(self) -> Work | None:
        return self.standing.upkeep()

    def facts(self) -> dict[str, object]:
        return {"join": self.standing.describe()}

    def partitions_asked(self) -> Floats:
        asked = self.standing.ranges.index.points()[:, -1]
        return asked[np.isfinite(asked)]

    def memory_bytes(self) -> int:
        return super().memory_bytes() + self.standing.memory_bytes()

    # --- changes -------------------------------------------------------------------------------------------

    def absorb(self, side: int, updates: Updates) -> None:
        for role in self._roles(side):
            self.keepers[role].update(updates)

    def _roles(self, side: int) -> tuple[int, ...]:
        """The sides on which a changed row of one table arrives."""
        return (0, 1) if self._itself else (side,)

    def update(self, side: int, updates: Updates, first_seq: int) -> Messages:
        self.absorb(side, updates)
        self._described = first_seq + len(updates) - 1
        parts: list[Pairs] = []
        complete = True
        try:
            for part in self._changed_pairs(side, updates):
                parts.append(part)
                if sum(len(part.updates) for part in parts) > MOST_PAIRS:
                    raise TooManyPairs
        except TooManyPairs:
            parts, complete = [], False
        if not parts and complete:
            self.count(0, np.array([len(updates), 0, 0]))
            return self._silence
        pairs = self._joined(parts)
        heard = int((np.diff(pairs.updates) != 0).sum()) + bool(parts)
        self.count(len(pairs.updates), np.array([len(updates) - heard, heard, 0]))
        messages = self.describe(pairs.updates + first_seq, *pairs[1:])
        messages.complete = complete
        return messages

    @cached_property
    def _silence(self) -> Messages:
        """What updates of which nobody wants to hear become: most do."""
        return self.describe(*self._joined([]))

    def _joined(self, parts: Sequence[Pairs]) -> Pairs:
        """Parts as one, in the order of the updates."""
        if not parts:
            none = np.empty(0, np.int64)
            nothing = [{column: np.empty(0) for column in columns} for columns in self.needed]
            return self._pairs(none, nothing, nothing)
        if len(parts) == 1:
            return parts[0]
        rows = np.concatenate([part.updates for part in parts])
        before, after = (
            [
                {column: np.concatenate([sides[side][column] for sides in some]) for column in columns}
                for side, columns in enumerate(self.needed)
            ]
            for some in ([part.before for part in parts], [part.after for part in parts])
        )
        order = np.argsort(rows, kind="stable")
        return self._pairs(rows, before, after).take(order)

    def _pairs(self, rows: Ints, before: Sequence[Cells], after: Sequence[Cells]) -> Pairs:
        old, new = (Places.of(self, cells, self._met(cells), self._difference(cells)) for cells in (before, after))
        return Pairs(rows, before, after, old, new)

    def _met(self, cells: Sequence[Cells]) -> Booleans:
        """Which pairs meet. In a band all do whose difference is one: whether it is small enough, ranges say."""
        left, right = cells[0][self._columns[0]], cells[1][self._columns[1]]
        met: Booleans = ~(np.isnan(left) | np.isnan(right)) if self.band else left == right
        return met

    def _changed_pairs(self, side: int, updates: Updates) -> Iterator[Pairs]:
        """The wanted pairs of a batch, in parts."""
        if not len(self.standing):
            return
        changed = {role: self.changed(role, updates) for role in self._roles(side)}
        for role, some in changed.items():
            at = np.flatnonzero(some)
            if not len(at):
                continue
            old, new = updates.old[:, at], updates.new[:, at]
            which, partners, sure = self._partners(role, self.keepers[1 - role].tree.memory, old, new)
            if self._itself:  # what the index has of rows of this batch is of its end: they are paired below
                touched = np.unique(updates.slots[changed[0] | changed[1]])
                others = touched[np.searchsorted(touched[:-1], partners)] != partners
                which, partners, sure = which[others], partners[others], sure[others]
            yield from self._wanted(role, at, which, old, new, self.stores[1 - role].cells, partners, sure)
        if self._itself:
            yield from self._among_themselves(updates, changed)

    def _among_themselves(self, updates: Updates, changed: Mapping[int, Booleans]) -> Iterator[Pairs]:
        """The wanted pairs of rows that a batch changes, where a table is joined with itself."""
        at = np.flatnonzero(changed[0] | changed[1])
        if len(at) > 1:
            yield from self._with_each_other(updates, at, changed)
        before, after = ([self.taken(role, cells, at) for role in (0, 1)] for cells in (updates.old, updates.new))
        with_itself = self._pairs(at, before, after)
        wanted = self._is_wanted(with_itself)
        if wanted.any():
            yield with_itself.take(wanted)

    def _with_each_other(self, updates: Updates, at: Ints, changed: Mapping[int, Booleans]) -> Iterator[Pairs]:
        """The wanted pairs of two rows that a batch changes.

        Each update sees the other rows as they are after the updates before it. A version of a row holds from one
        update of that row to its next one; updates are taken some at a time, with the versions that hold then::

            update     0    1    2    3    4
            row        A    B    A    C    B
            A      a0  |    a1   |    a2          version a1 (made by 0) holds for 1, a2 for 3 and 4
        """
        n, slots, old, new = len(at), updates.slots[at], updates.old[:, at], updates.new[:, at]
        order = np.argsort(slots, kind="stable")
        first = np.ones(n, np.bool_)
        first[1:] = slots[order][1:] != slots[order][:-1]
        distinct = int(first.sum())
        if distinct < 2:
            return
        nexts = np.full(n, n)
        nexts[order[:-1][~first[1:]]] = order[1:][~first[1:]]
        firsts = order[first]
        there = np.concatenate((updates.exists[at], updates.existed[at[firsts]]))
        versions = np.hstack((new, old[:, firsts]))[:, there]
        version_slots = np.concatenate((slots, slots[firsts]))[there]
        starts = np.concatenate((np.arange(n), np.full(distinct, -1)))[there]
        stops = np.concatenate((nexts, firsts))[there]
        step = max(distinct, TOGETHER)
        for begin in range(0, n, step):
            end = min(begin + step, n)
            some = np.flatnonzero((starts < end - 1) & (stops > begin))
            held = np.ascontiguousarray(versions[:, some])
            old_some, new_some = old[:, begin:end], new[:, begin:end]
            scratch = {(keeper.x, keeper.groups): TreeKeeper(keeper.x, None, keeper.groups) for keeper in self.keepers}
            for one in scratch.values():
                one.take(held)
            for role in (0, 1):
                tree = scratch[self.keepers[1 - role].x, self.keepers[1 - role].groups].tree.memory
                which, partners, sure = self._partners(role, tree, old_some, new_some)
                now, version = begin + which, some[partners]
                holds = (starts[version] < now) & (now < stops[version]) & (version_slots[version] != slots[now])
                holds &= changed[role][at[now]]
                which, partners, sure = which[holds], partners[holds], sure[holds]
                yield from self._wanted(role, at[begin:end], which, old_some, new_some, held, partners, sure)

    def _partners(self, side: int, tree: Floats, old: Floats, new: Floats) -> tuple[Ints, Ints, Booleans]:
        """(update, slot, surely wanted) of the rows in a tree of the other side that may be wanted with rows that
        arrive on this one, as they were or as they are; each once, in the order of the updates."""
        n = old.shape[1]
        arrivals = self._arrivals(side, np.hstack((old, new)))
        same = np.ones(n, np.bool_)
        for column in arrivals:
            same &= column[:n] == column[n:]
        arrivals.groups[n:][same] = np.nan  # it would find the same again
        which, slots, sure, complete = self.standing.partners(side, tree, arrivals, LOOKED_AT * MOST_PAIRS)
        if not complete:
            raise TooManyPairs
        return each_once(which, slots, sure, n, np.zeros(1 + int(slots.max(initial=0)), np.int64))

    def _arrivals(self, side: int, cells: Floats) -> Arrivals:
        join, first = cells[self._columns[side]], self._firsts[side]
        nowhere = np.zeros(len(join))
        xs = nowhere if first is None else cells[first]
        return Arrivals(nowhere.copy(), join, xs) if self.band else Arrivals(join.copy(), nowhere, xs)

    def _wanted(
        self,
        side: int,
        at: Ints,
        which: Ints,
        old: Floats,
        new: Floats,
        others: Floats,
        partners: Ints,
        sure: Booleans,
    ) -> Iterator[Pairs]:
        """The pairs of changed rows (on one side) and partners that somebody wants, some at a time."""
        for start in range(0, len(which), AT_ONCE):
            rows, slots = which[start : start + AT_ONCE], partners[start : start + AT_ONCE]
            partner = self.taken(1 - side, others, slots)
            before, after = [self.taken(side, old, rows), partner], [self.taken(side, new, rows), partner]
            if side == 1:
                before.reverse()
                after.reverse()
            pairs = self._pairs(at[rows], before, after)
            known = sure[start : start + AT_ONCE]
            for places in (pairs.old, pairs.new) if self.band and self._whole else ():
                known = known & ((places.columns[-1] == places.uppers[-1]) | ~places.there)
            if not known.all():
                pairs = pairs.take(known | self._is_wanted(pairs))
            if len(pairs.updates):
                yield pairs

    def _is_wanted(self, pairs: Pairs) -> Booleans:
        if self._everything:
            return pairs.old.there | pairs.new.there
        return self.standing.wanted(*pairs.old.boxes()) | self.standing.wanted(*pairs.new.boxes())

    def _difference(self, cells: Sequence[Cells]) -> list[tuple[Floats, Floats]]:
        """right - left as SQL has it, from below and from above.

        Rounded for REAL, as SQL rounds it; exact for whole numbers, whose difference may be no float64.
        """
        if not self.band:
            return []
        left, right = cells[0][self._columns[0]], cells[1][self._columns[1]]
        with np.errstate(over="ignore", invalid="ignore"):  # an infinite difference is in one-sided bands, as in SQL
            difference = right - left
            if not self._whole:
                return [(difference, difference)]
            from_right = difference + left
            error = (right - from_right) - (left - (from_right - difference))
        lower = np.where(error < 0, np.nextafter(difference, -np.inf), difference)
        return [(lower, np.where(error > 0, np.nextafter(difference, np.inf), difference))]

    # --- first answers -------------------------------------------------------------------------------------

    def capture_cost(self, n: int) -> int:
        left, right = map(len, self.stores)
        return left + right + n * (min(left, right) + left * right)

    def found(self, sides: Sequence[Cells], boxes: Boxes) -> tuple[Ints, list[Ints]]:
        band = len(self.shape.ranges)
        after = band + self.band
        dimensions = [*range(band), *range(after, after + len(self.shape.partition))]
        refs = list(zip((*self.shape.ranges, *self.shape.partition), dimensions, strict=True))
        left, right = (
            JoinSide(
                [cells[ref.column] for ref, _ in refs if ref.side == side],
                [d for ref, d in refs if ref.side == side],
                cells[self._columns[side]],
            )
            for side, cells in enumerate(sides)
        )
        return pairs_in_boxes((left, right), band if self.band else None, boxes, whole=self._whole)
