"""Selections: rows enter, change in, and leave the boxes of subscriptions."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.broker.reformulate.boxes import Cells, Partitioned, Places
from hullcast.broker.reformulate.channel import (
    Booleans,
    CollectionChannel,
    Floats,
    Ints,
    Opening,
    differs,
)
from hullcast.broker.reformulate.first import Boxes, captured, rows_in_boxes
from hullcast.broker.reformulate.messages import Messages
from hullcast.broker.tables.travel import travelling
from hullcast.broker.tables.values import decode_column
from hullcast.network.answers.rows import RowAnswers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hullcast.broker.reformulate.messages import Column
    from hullcast.broker.sql.query import Predicates, Ref
    from hullcast.broker.tables.interning import Texts
    from hullcast.broker.tables.store import Updates
    from hullcast.network.wire.columns import Columns


class RowsChannel(Partitioned, CollectionChannel):
    """What selections and joins share: a row, before and after, matched with boxes and shown by its projection.

    A row here is a virtual one, made of one row per table; its key is the key of that row (of both, for a join).
    """

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self.answers = RowAnswers()
        self._old: Places
        self._new: Places
        self._shown: Sequence[Cells]  # each side's columns of the messages, after the update
        self._keys: list[Floats]
        self._altered: Booleans

    def relevant(self, side: int) -> tuple[int, ...]:
        """The columns of one table whose change can change an answer."""
        shape = self.shape
        refs = {*shape.ranges, *shape.partition, *shape.projection}
        return tuple(sorted({ref.column for ref in refs if ref.side == side}))

    def taken(self, side: int, cells: Floats, rows: Ints | slice) -> Cells:
        """Of some rows of a (columns, n) array the columns that messages need: the relevant ones, and the key."""
        return {column: cells[column][rows] for column in {*self.relevant(side), self.stores[side].table.key}}

    def changed(self, side: int, updates: Updates) -> Booleans:
        """Which updates can change an answer."""
        changed: Booleans = updates.existed != updates.exists
        for column in self.relevant(side):
            changed |= differs(updates.old[column], updates.new[column])
        return changed

    def describe(
        self, seqs: Ints, before: Sequence[Cells], after: Sequence[Cells], old: Places, new: Places
    ) -> Messages:
        """Messages out of each side's columns before and after."""
        self._old, self._new, self._shown = old, new, after
        self._keys = []
        for store, was, now in zip(self.stores, before, after, strict=True):
            key = store.table.key
            self._keys.append(np.where(np.isnan(now[key]), was[key], now[key]))
        altered = np.zeros(len(seqs), np.bool_)
        for ref in self.shape.projection:
            altered |= differs(before[ref.side][ref.column], after[ref.side][ref.column])
        self._altered = altered
        texts, keys = self.interner.texts, self._keys

        def columns() -> dict[str, Column]:
            named: dict[str, Column] = {}
            for store, codes in zip(self.stores, keys, strict=True):
                name = "KEY" if len(self.stores) == 1 else f"key.{store.table.name}"
                named[name] = np.array(decode_column(store.table.key_column.type, codes, texts), dtype=object)
            for prefix, places, cells in (("old", old, before), ("new", new, after)):
                named[f"{prefix.upper()}_THERE"] = places.there
                if len(places.columns) > len(self.shape.ranges):  # a band join: the difference is the last place
                    named[f"{prefix.upper()}_DIFFERENCE"] = places.columns[-1]
                for ref in (*self.shape.ranges, *self.shape.partition):
                    named[f"{prefix}.{self.column_name(ref)}"] = self._decoded(ref, cells, texts)
            for ref in self.shape.projection:
                named[f"row.{self.column_name(ref)}"] = self._decoded(ref, after, texts)
            return named

        band = self.shape.on is not None and self.shape.on.band

        def wire() -> Columns:
            named: Columns = {**old.wire("old", band), **new.wire("new", band), "altered": altered}
            return {**named, **self._travelling(after, keys, texts)}

        return Messages(self.name, seqs, columns, wire)

    def _travelling(self, cells: Sequence[Cells], keys: Sequence[Floats], texts: Texts) -> Columns:
        """Keys and what is shown of rows, as columns that travel."""
        named: Columns = {}
        for i, (table, codes) in enumerate(zip(self.tables, keys, strict=True)):
            named[f"key.{i}"] = travelling(table.key_column.type, codes, texts)
        for i, ref in enumerate(self.shape.projection):
            kind = self.tables[ref.side].columns[ref.column].type
            named[f"row.{i}"] = travelling(kind, cells[ref.side][ref.column], texts)
        return named

    def _decoded(self, ref: Ref, cells: Sequence[Cells], texts: Texts) -> Column:
        column = self.tables[ref.side].columns[ref.column]
        return np.array(decode_column(column.type, cells[ref.side][ref.column], texts), dtype=object)

    def tell(self, messages: Messages) -> None:
        if not len(self.audience) or not len(messages):
            return
        self._told += self.answers.hear(
            self.audience, self._old.queries(), self._new.queries(), messages.seqs, self._altered, self._items
        )

    def _items(self, heard: Ints) -> list[tuple[Any, Any]]:
        """(key, shown row) of some messages."""
        cells = [{column: values[heard] for column, values in side.items()} for side in self._shown]
        return self.shown(cells, [codes[heard] for codes in self._keys])

    def shown(self, cells: Sequence[Cells], keys: Sequence[Floats]) -> list[tuple[Any, Any]]:
        """(key, shown row) of rows given as each side's columns and key codes."""
        texts = self.interner.texts
        key_columns = [
            decode_column(table.key_column.type, codes, texts) for table, codes in zip(self.tables, keys, strict=True)
        ]
        names = key_columns[0] if len(key_columns) == 1 else list(zip(*key_columns, strict=True))
        columns = [
            decode_column(self.tables[ref.side].columns[ref.column].type, cells[ref.side][ref.column], texts)
            for ref in self.shape.projection
        ]
        return list(zip(names, zip(*columns, strict=True), strict=True))

    def admit(self, predicates: Predicates) -> Ints:
        return self.audience.admit(self.points(predicates), predicates.never)

    @abstractmethod
    def found(self, sides: Sequence[Cells], boxes: Boxes) -> tuple[Ints, list[Ints]]:
        """(member, each side's row) of what boxes select from rows given as each side's columns."""

    def _captured(self, predicates: Predicates) -> Callable[[], tuple[Ints, list[Cells], list[Floats]]]:
        """(member, each side's columns, each side's key codes) of what predicates select from the rows as they are."""
        columns = [{*self.relevant(side), table.key} for side, table in enumerate(self.tables)]
        taken = [captured(store, some) for store, some in zip(self.stores, columns, strict=True)]
        low, high = self.bounds(predicates)

        def selected() -> tuple[Ints, list[Cells], list[Floats]]:
            sides = [side.live() for side in taken]
            of, rows = self.found(sides, Boxes.of(low, high, predicates.never))
            shown: list[Cells] = [
                {column: values[at] for column, values in side.items()} for side, at in zip(sides, rows, strict=True)
            ]
            return of, shown, [cells[table.key] for cells, table in zip(shown, self.tables, strict=True)]

        return selected

    def contents(self, predicate: Predicates) -> dict[Any, Any]:
        _, cells, keys = self._captured(predicate)()
        return dict(self.shown(cells, keys))

    def capture(self, predicates: Predicates) -> Callable[[], Columns]:
        texts, selected = self.interner.texts, self._captured(predicates)

        def first() -> Columns:
            of, cells, keys = selected()
            return {"of": of, **self._travelling(cells, keys, texts)}

        return first


class SelectionChannel(RowsChannel):
    """Rows of one table within ranges of some of its columns."""

    def update(self, side: int, updates: Updates, first_seq: int) -> Messages:
        at = np.flatnonzero(self.changed(0, updates))
        before, after = self.taken(0, updates.old, at), self.taken(0, updates.new, at)
        old = self.places([before], updates.existed[at])
        new = self.places([after], updates.exists[at])
        self.count(len(at), np.array([len(updates) - len(at), len(at), 0]))
        return self.describe(at + first_seq, [before], [after], old, new)

    def found(self, sides: Sequence[Cells], boxes: Boxes) -> tuple[Ints, list[Ints]]:
        columns = [sides[0][ref.column] for ref in (*self.shape.ranges, *self.shape.partition)]
        of, rows = rows_in_boxes(columns, len(sides[0][self.tables[0].key]), boxes)
        return of, [rows]
