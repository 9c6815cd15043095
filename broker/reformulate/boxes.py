"""Channels matched point against box: what functions of a column, selections and joins have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.reformulate.channel import Channel, SingleChannel, differs
from hullcast.broker.reformulate.first import Boxes, captured
from hullcast.broker.reformulate.messages import Messages
from hullcast.network.matching.duality import around_points
from hullcast.network.wire.arrays import Booleans, Floats, Ints

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.broker.reformulate.messages import ShownColumn
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.tables.store import Updates
    from hullcast.network.wire.columns import Columns

#: Columns of some rows by their position in the table: just the columns that matter.
Cells = Mapping[int, Floats]


class Places:
    """The points of messages before and after an update: one column a dimension, and the partition.

    `there` says where there is such a point at all: no row, or a NULL in a range or partition column, and it
    is in nobody's box. A place that is no float64 (a difference of large integers) lies between the one in
    `columns` and the one in `uppers`, which are neighbours; elsewhere the two are the same.
    """

    def __init__(
        self,
        columns: Sequence[Floats],
        partition: Floats | None,
        there: Booleans,
        uppers: Sequence[Floats] | None = None,
    ) -> None:
        for column in columns:
            there = there & ~np.isnan(column)
        if partition is not None:
            there = there & ~np.isnan(partition)
        self.columns, self.partition, self.there = columns, partition, there
        self.uppers = columns if uppers is None else uppers

    @classmethod
    def of(
        cls,
        channel: Channel,
        cells: Sequence[Cells | Floats],
        there: Booleans,
        extra: Sequence[tuple[Floats, Floats]] = (),
    ) -> Places:
        """Where rows lie: each side's columns give the range columns; `extra` (lower, upper) follows them."""
        columns = [channel.placed(ref, cells[ref.side][ref.column]) for ref in channel.shape.ranges]
        partition = None
        if channel.shape.partition:
            equal = [cells[ref.side][ref.column] for ref in channel.shape.partition]
            partition = channel.grouping.numbers(equal, len(there))
        uppers = [*columns, *(upper for _, upper in extra)]
        return cls([*columns, *(lower for lower, _ in extra)], partition, there, uppers)

    def boxes(self) -> tuple[Floats, Floats]:
        """The query boxes that find the subscriptions around these places."""
        return around_points(self.columns, self.partition, self.there, self.uppers)

    def take(self, rows: Booleans | Ints) -> Places:
        """Some of the points."""
        partition = None if self.partition is None else self.partition[rows]
        uppers = [column[rows] for column in self.uppers]
        return Places([column[rows] for column in self.columns], partition, self.there[rows], uppers)

    def codes(self, side: str, *, uppers: bool = False) -> Columns:
        """The places as columns of messages; with `uppers` the last one's upper neighbours too."""
        named: Columns = {f"{side}.there": self.there}
        for i, column in enumerate(self.columns):
            named[f"{side}.{i}"] = column
        if uppers:
            named[f"{side}.up"] = self.uppers[-1]
        if self.partition is not None:
            named[f"{side}.part"] = self.partition
        return named


class ColumnChannel(SingleChannel):
    """A function of one column y, or of `*`, over boxes: each message is a row's place and its y, before and after.

    A row whose y is NULL counts for nothing, and has no place.
    """

    @cached_property
    def y(self) -> int | None:
        """The column; None for `*`."""
        return None if self.shape.y is None else self.shape.y.column

    def counting(self, y: Floats) -> Floats:
        """What values of y count for; NaN is NULL."""
        return y

    @abstractmethod
    def first_in(self, columns: list[Floats], y: Floats, boxes: Boxes) -> Columns:
        """First answers of boxes over rows with these range and partition columns, and this y; in any thread."""

    def _side(self, cells: Floats, there: Booleans) -> tuple[Places, Floats]:
        """Where rows lie, and what they count for."""
        y = self.counting(np.where(there, 1.0, np.nan) if self.y is None else cells[self.y])
        return Places.of(self, [cells], there & ~np.isnan(y)), y

    def update(self, side: int, updates: Updates, first_seq: int) -> Messages:
        old, old_y = self._side(updates.old, updates.existed)
        new, new_y = self._side(updates.new, updates.exists)
        changed = (old.there != new.there) | (old_y != new_y)
        for before, after in zip(old.columns, new.columns, strict=True):
            changed |= differs(before, after)
        if old.partition is not None and new.partition is not None:
            changed |= differs(old.partition, new.partition)
        matters = (old.there | new.there) & changed
        if not matters.all():
            old, new, old_y, new_y = old.take(matters), new.take(matters), old_y[matters], new_y[matters]
        n = len(old_y)
        self.count(n, np.array([len(updates) - n, n, 0]))
        at = np.flatnonzero(matters)
        texts = self.interner.texts
        sides = (("old", old, old_y, updates.old), ("new", new, new_y, updates.new))

        def columns() -> dict[str, ShownColumn]:
            named: dict[str, ShownColumn] = {}
            for prefix, places, y, cells in sides:
                for ref, column in zip(self.shape.ranges, places.columns, strict=True):
                    named[f"{prefix}.{self.column_name(ref)}"] = np.where(places.there, column, np.nan)
                for ref in self.shape.partition:
                    named[f"{prefix}.{self.column_name(ref)}"] = self.decoded(ref, cells[ref.column, at], texts)
                named[f"{prefix.upper()}_Y"] = np.where(places.there, y, np.nan)
            return named

        seqs = at + first_seq
        codes = {"seq": seqs, **old.codes("old"), **new.codes("new"), "old.y": old_y, "new.y": new_y}
        return Messages(self.name, codes, columns)

    def captured(self) -> Callable[[], tuple[list[Floats], Floats]]:
        """The range and partition columns, and what rows count for, as they are now; in two steps as in `capture`."""
        refs = (*self.shape.ranges, *self.shape.partition)
        taken = captured(self.stores[0], {*(ref.column for ref in refs), *([] if self.y is None else [self.y])})

        def rows() -> tuple[list[Floats], Floats]:
            live = taken.live()
            y = np.ones(int(taken.alive.sum())) if self.y is None else live[self.y]
            return [self.placed(ref, live[ref.column]) for ref in refs], self.counting(y)

        return rows

    def capture(self, predicates: Predicates) -> Callable[[], Columns]:
        rows, (low, high) = self.captured(), self.bounds(predicates)
        return lambda: self.first_in(*rows(), Boxes.of(low, high, predicates.never, predicates.of))
