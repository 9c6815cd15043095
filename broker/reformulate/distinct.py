"""Range DISTINCT: which values appear in or vanish from which ranges.

A value v is in the answer of [x1, x2] iff some row with y = v lies there: a range MIN over the rows of that value, all
with the same constant. So DISTINCT is a MIN channel whose groups are the values: an insert gives at most one rectangle
(+, the value appears), a removal at most one (-, it vanishes), and a row that moves within its value's range
tells nobody, all by the one rule in `kernel.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.broker.index.grouping import Grouping
from hullcast.broker.reformulate.channel import CollectionChannel, Floats, Ints, Opening
from hullcast.broker.reformulate.first import Boxes, captured, values_in_boxes
from hullcast.broker.reformulate.keeper import TreeKeeper
from hullcast.broker.reformulate.kernel import BEST, INNER_L, INNER_R, OUTER_L, OUTER_R, UPDATE
from hullcast.broker.reformulate.messages import Messages
from hullcast.broker.tables.travel import travelling
from hullcast.broker.tables.values import decode_column
from hullcast.network.answers.extremum import heard
from hullcast.network.answers.rows import ENTER, LEAVE, deliver
from hullcast.network.matching.duality import NO_PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hullcast.broker.reformulate.messages import Column
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.tables.store import TableStore, Updates
    from hullcast.network.wire.columns import Columns


class DistinctChannel(CollectionChannel):
    """The set of values of y over ranges of x. NULL is a value (SQL's DISTINCT lists it)."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        shape = opening.shape
        assert shape.y is not None, "S2"
        self.y = shape.y.column
        self.x = shape.ranges[0].column if shape.ranges else None
        self._y_type = self.tables[0].columns[self.y].type
        self._partition = tuple(ref.column for ref in shape.partition)
        self._partitions = Grouping(len(self._partition))
        self.keeper = TreeKeeper(self.x, None, (*self._partition, self.y), null_group=self.y)
        self.keeper.wanted = 1
        self.keeper.begin_load(self.stores[0])
        self._fields: Floats = np.empty((0, 0))
        self._values: Floats = np.empty(0)
        self._places: Floats = np.empty(0)

    def memory_bytes(self) -> int:
        return super().memory_bytes() + self.keeper.tree.memory_bytes()

    @property
    def wants_sweep(self) -> bool:
        return self.keeper.grouping.wants_sweep or self._partitions.wants_sweep

    def sweep(self) -> None:
        self.keeper.sweep(self.stores[0])
        self._partitions.sweep(self.partitions_asked())

    def partition_numbers(self, columns: Sequence[Floats], n: int) -> Floats:
        return self._partitions.numbers(columns, n)

    def codes_of(self, partitions: Floats) -> list[Floats]:
        return self._partitions.columns(partitions)

    def partitions_numbered(self) -> Floats:
        return self._partitions.known()

    def update(self, side: int, updates: Updates, first_seq: int) -> Messages:
        raw, tally = self.keeper.update(updates)
        self._fields = fields = np.ascontiguousarray(raw.T)
        update = fields[UPDATE].astype(np.int64)
        appears = np.isfinite(fields[BEST])
        # A value appears because of the row as it is now, and vanishes because of the row as it was.
        y, *partition = (
            np.where(appears, updates.new[column][update], updates.old[column][update])
            for column in (self.y, *self._partition)
        )
        self._values = y
        self._places = np.ascontiguousarray(self._partitions.numbers(partition, len(update)))
        self.count(len(raw), tally[:3])
        texts, values = self.interner.texts, self._values

        def columns() -> dict[str, Column]:
            named: dict[str, Column] = {}
            for column, codes in zip(self._partition, partition, strict=True):
                declared = self.tables[0].columns[column]
                named[f"by.{declared.name}"] = np.array(decode_column(declared.type, codes, texts), dtype=object)
            named["VALUE"] = np.array(decode_column(self._y_type, values, texts), dtype=object)
            named["APPEARS"] = appears
            for field, name in ((INNER_L, "X"), (OUTER_L, "OUTER_L"), (OUTER_R, "OUTER_R")):
                named[name] = fields[field]
            return named

        places = self._places

        def wire() -> Columns:
            names = {"il": INNER_L, "ir": INNER_R, "ol": OUTER_L, "or": OUTER_R}
            named: Columns = {name: fields[field] for name, field in names.items()}
            if self.shape.partition:
                named["part"] = places
            return {**named, "appears": appears, "value": travelling(self._y_type, values, texts)}

        return Messages(self.name, update + first_seq, columns, wire)

    def tell(self, messages: Messages) -> None:
        if not len(self.audience) or not len(messages):
            return
        f = self._fields
        partitions = self._places if self.shape.partition else NO_PARTITIONS
        how = np.where(np.isfinite(f[BEST]), ENTER, LEAVE)
        for what, who in heard(self.audience, f[INNER_L], f[INNER_R], f[OUTER_L], f[OUTER_R], partitions):
            deliver(self.audience, who, what, how[what], messages.seqs, self._items)
            self._told += len(who)

    def _items(self, heard: Ints) -> list[tuple[Any, Any]]:
        values = decode_column(self._y_type, self._values[heard], self.interner.texts)
        return list(zip(values, values, strict=True))

    def admit(self, predicates: Predicates) -> Ints:
        return self.audience.admit(self.points(predicates), predicates.never)

    def loading(self) -> list[tuple[TreeKeeper, TableStore]]:
        return [] if self.keeper.loaded else [(self.keeper, self.stores[0])]

    def absorb(self, side: int, updates: Updates) -> None:
        self.keeper.update(updates)

    def contents(self, predicate: Predicates) -> dict[Any, Any]:
        _, codes = self._captured(predicate)()
        values = decode_column(self._y_type, codes, self.interner.texts)
        return dict(zip(values, values, strict=True))

    def capture(self, predicates: Predicates) -> Callable[[], Columns]:
        texts, found = self.interner.texts, self._captured(predicates)

        def first() -> Columns:
            of, codes = found()
            return {"of": of, "value": travelling(self._y_type, codes, texts)}

        return first

    def _captured(self, predicates: Predicates) -> Callable[[], tuple[Ints, Floats]]:
        """(member, code) of the values that predicates select, from the rows as they are now."""
        columns = ([] if self.x is None else [self.x]) + list(self._partition)
        taken = captured(self.stores[0], {*columns, self.y})
        low, high = self.bounds(predicates)

        def found() -> tuple[Ints, Floats]:
            live = taken.live()
            return values_in_boxes([live[c] for c in columns], live[self.y], Boxes.of(low, high, predicates.never))

        return found
