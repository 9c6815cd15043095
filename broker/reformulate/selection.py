"""Selections: rows enter, change in, and leave the boxes of subscriptions."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.reformulate.boxes import Cells, Places
from hullcast.broker.reformulate.channel import CollectionChannel, differs, side_names
from hullcast.broker.reformulate.first import Boxes, captured, rows_in_boxes
from hullcast.broker.reformulate.messages import Messages
from hullcast.broker.sql.query import Ref

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hullcast.broker.reformulate.messages import ShownColumn
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.tables.schema import ColumnType
    from hullcast.broker.tables.store import Updates
    from hullcast.network.wire.arrays import Booleans, Floats, Ints
    from hullcast.network.wire.columns import Columns


class RowsChannel(CollectionChannel):
    """What selections and joins share: a row, before and after, matched with boxes and shown by its projection.

    A row here is a virtual one, made of one row per table; its key is the key of that row (of both, for a join).
    """

    def relevant(self, side: int) -> tuple[int, ...]:
        """The columns of one table whose change can change an answer."""
        shape = self.shape
        refs = {*shape.ranges, *shape.partition, *shape.projection}
        return tuple(sorted({ref.column for ref in refs if ref.side == side}))

    @cached_property
    def needed(self) -> list[set[int]]:
        """Of each side the columns that messages need: the relevant ones, and the key."""
        return [{*self.relevant(side), table.key} for side, table in enumerate(self.tables)]

    def taken(self, side: int, cells: Floats, rows: Ints | slice) -> Cells:
        """The needed columns of some rows of a (columns, n) array."""
        return {column: cells[column][rows] for column in self.needed[side]}

    def changed(self, side: int, updates: Updates) -> Booleans:
        """Which updates can change an answer."""
        changed: Booleans = updates.existed != updates.exists
        for column in self._relevant[side]:
            changed |= differs(updates.old[column], updates.new[column])
        return changed

    @cached_property
    def _relevant(self) -> list[tuple[int, ...]]:
        return [self.relevant(side) for side in range(len(self.stores))]

    def describe(
        self, seqs: Ints, before: Sequence[Cells], after: Sequence[Cells], old: Places, new: Places
    ) -> Messages:
        """Messages out of each side's columns before and after."""
        keys = []
        for store, was, now in zip(self.stores, before, after, strict=True):
            key = store.table.key
            keys.append(np.where(np.isnan(now[key]), was[key], now[key]))
        altered = np.zeros(len(seqs), np.bool_)
        for ref in self.shape.projection:
            altered |= differs(before[ref.side][ref.column], after[ref.side][ref.column])
        texts = self.interner.texts

        def columns() -> dict[str, ShownColumn]:
            named: dict[str, ShownColumn] = {}
            for side, (table, codes) in enumerate(zip(self.tables, keys, strict=True)):
                name = "KEY" if len(keys) == 1 else f"key.{side_names(self.tables)[side]}"
                named[name] = self.decoded(Ref(side, table.key), codes, texts)
            for prefix, places, cells in (("old", old, before), ("new", new, after)):
                named[f"{prefix.upper()}_THERE"] = places.there
                if len(places.columns) > len(self.shape.ranges):  # a band join: the difference is the last place
                    named[f"{prefix.upper()}_DIFFERENCE"] = places.columns[-1]
                for ref in (*self.shape.ranges, *self.shape.partition):
                    named[f"{prefix}.{self.column_name(ref)}"] = self.decoded(ref, cells[ref.side][ref.column], texts)
            for ref in self.shape.projection:
                named[f"row.{self.column_name(ref)}"] = self.decoded(ref, after[ref.side][ref.column], texts)
            return named

        band = self.shape.on is not None and self.shape.on.band
        places = {**old.codes("old", uppers=band), **new.codes("new", uppers=band)}
        codes: Columns = {"seq": seqs, **places, "altered": altered, **self._entries(after, keys)}
        return Messages(self.name, codes, columns, self.types, texts)

    def _entries(self, cells: Sequence[Cells], keys: Sequence[Floats]) -> Columns:
        """Keys and what is shown of rows."""
        shown = (cells[ref.side][ref.column] for ref in self.shape.projection)
        return dict(zip(self.types, chain(keys, shown), strict=True))

    @cached_property
    def types(self) -> Mapping[str, ColumnType]:
        """Keys first, then what is shown."""
        keys = {f"key.{i}": table.key_column.type for i, table in enumerate(self.tables)}
        refs = enumerate(self.shape.projection)
        return keys | {f"row.{i}": self.tables[ref.side].columns[ref.column].type for i, ref in refs}

    @abstractmethod
    def found(self, sides: Sequence[Cells], boxes: Boxes) -> tuple[Ints, list[Ints]]:
        """(member, each side's row) of what boxes select from rows given as each side's columns."""

    def selected(self, predicates: Predicates) -> Callable[[], Columns]:
        taken = [captured(store, some) for store, some in zip(self.stores, self.needed, strict=True)]
        low, high = self.bounds(predicates)

        def rows() -> Columns:
            sides = [side.live() for side in taken]
            of, found = self.found(sides, Boxes.of(low, high, predicates.never, predicates.of))
            cells: list[Cells] = [
                {column: values[at] for column, values in side.items()} for side, at in zip(sides, found, strict=True)
            ]
            keys = [side[table.key] for side, table in zip(cells, self.tables, strict=True)]
            return {"of": of, **self._entries(cells, keys)}

        return rows


class SelectionChannel(RowsChannel):
    """Rows of one table within ranges of some of its columns."""

    def update(self, side: int, updates: Updates, first_seq: int) -> Messages:
        at = np.flatnonzero(self.changed(0, updates))
        before, after = self.taken(0, updates.old, at), self.taken(0, updates.new, at)
        old = Places.of(self, [before], updates.existed[at])
        new = Places.of(self, [after], updates.exists[at])
        self.count(len(at), np.array([len(updates) - len(at), len(at), 0]))
        return self.describe(at + first_seq, [before], [after], old, new)

    def found(self, sides: Sequence[Cells], boxes: Boxes) -> tuple[Ints, list[Ints]]:
        refs = (*self.shape.ranges, *self.shape.partition)
        columns = [self.placed(ref, sides[0][ref.column]) for ref in refs]
        of, rows = rows_in_boxes(columns, len(sides[0][self.tables[0].key]), boxes)
        return of, [rows]
