"""Range DISTINCT: which values appear in or vanish from which ranges.

A value v is in the answer of [x1, x2] iff some row with y = v lies there: a range MIN over the rows of that value, all
with the same constant. So DISTINCT is a MIN channel whose groups are the values: an insert gives at most one rectangle
(+, the value appears), a removal at most one (-, it vanishes), and a row that moves within its value's range
tells nobody, all by the one rule in `kernel.py`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.reformulate.channel import CollectionChannel, Opening
from hullcast.broker.reformulate.first import Boxes, captured, values_in_boxes
from hullcast.broker.reformulate.keeper import TreeKeeper
from hullcast.broker.reformulate.kernel import BEST, INNER_L, OUTER_L, OUTER_R, UPDATE, rectangles
from hullcast.broker.reformulate.messages import Messages
from hullcast.broker.sql.query import Ref

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hullcast.broker.reformulate.messages import ShownColumn
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.tables.schema import ColumnType
    from hullcast.broker.tables.store import Updates
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
        self.keeper = TreeKeeper(self.x, None, (*self._partition, self.y), null_group=self.y)
        self.keeper.wanted = 1
        self.keeper.begin_load(self.stores[0])
        self.keepers = (self.keeper,)

    def memory_bytes(self) -> int:
        return super().memory_bytes() + self.keeper.tree.memory_bytes()

    @property
    def wants_sweep(self) -> bool:
        return self.keeper.grouping.wants_sweep or super().wants_sweep

    def sweep(self) -> bool:
        swept = self.keeper.grouping.wants_sweep and self.keeper.sweep(self.stores[0])
        return (super().wants_sweep and super().sweep()) or swept

    def update(self, side: int, updates: Updates, first_seq: int) -> Messages:
        raw, tally = self.keeper.update(updates)
        fields = np.ascontiguousarray(raw.T)
        update = fields[UPDATE].astype(np.int64)
        appears = np.isfinite(fields[BEST])
        # A value appears because of the row as it is now, and vanishes because of the row as it was.
        values, *partition = (
            np.where(appears, updates.new[column][update], updates.old[column][update])
            for column in (self.y, *self._partition)
        )
        self.count(len(raw), tally[:3])
        texts = self.interner.texts

        def columns() -> dict[str, ShownColumn]:
            named = self.partition_columns(partition, texts)
            named["VALUE"] = self.decoded(Ref(0, self.y), values, texts)
            named["APPEARS"] = appears
            for field, name in ((INNER_L, "X"), (OUTER_L, "OUTER_L"), (OUTER_R, "OUTER_R")):
                named[name] = fields[field]
            return named

        codes: Columns = {"seq": update + first_seq, **rectangles(fields), "appears": appears, "value": values}
        if self.shape.partition:
            codes["part"] = np.ascontiguousarray(self.grouping.numbers(partition, len(update)))
        return Messages(self.name, codes, columns, self.types, texts)

    @cached_property
    def types(self) -> Mapping[str, ColumnType]:
        return {"value": self._y_type}

    def selected(self, predicates: Predicates) -> Callable[[], Columns]:
        columns = ([] if self.x is None else [self.x]) + list(self._partition)
        taken = captured(self.stores[0], {*columns, self.y})
        low, high = self.bounds(predicates)

        def found() -> Columns:
            live = taken.live()
            boxes = Boxes.of(low, high, predicates.never)
            of, codes = values_in_boxes([live[c] for c in columns], live[self.y], boxes)
            return {"of": of, "value": codes}

        return found
