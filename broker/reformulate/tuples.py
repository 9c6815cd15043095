"""Filters over a stream: each tuple is one message, which the network matches with all boxes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from hullcast.broker.reformulate.boxes import Places
from hullcast.broker.reformulate.channel import Channel
from hullcast.broker.reformulate.first import Boxes, rows_in_boxes
from hullcast.broker.reformulate.messages import Messages, on_the_way
from hullcast.network.matching.messages import GAP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hullcast.broker.reformulate.channel import Opening
    from hullcast.broker.reformulate.messages import ShownColumn
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.tables.schema import ColumnType
    from hullcast.broker.tables.store import Updates
    from hullcast.broker.tables.stream import StreamOrder
    from hullcast.network.answers.tuples import TupleAnswers
    from hullcast.network.wire.arrays import Floats, Ints
    from hullcast.network.wire.columns import Columns


#: Tuples that one request may begin with: more than a stream has that says nothing about its retention.
REPLAYED_TUPLES = 2_000_000


class TuplesChannel(Channel):
    """Tuples of one stream within ranges of some of its columns. It keeps nothing: what came is in the stream."""

    answers: TupleAnswers

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self._gaps: set[int] = set()

    @cached_property
    def types(self) -> Mapping[str, ColumnType]:
        """What is shown of a tuple."""
        columns = self.tables[0].columns
        return {f"row.{i}": columns[ref.column].type for i, ref in enumerate(self.shape.projection)}

    def update(self, side: int, updates: Updates, first_seq: int) -> Messages:
        """Tuples that are removed (the oldest, when there are too many) are nobody's news."""
        at = slice(None) if updates.exists.all() else np.flatnonzero(updates.exists)
        cells = updates.new[:, at]
        n = cells.shape[1]
        places = Places.of(self, [cells], np.ones(n, np.bool_))
        self.count(n, np.array([len(updates) - n, n, 0]))
        shown = {name: cells[ref.column] for name, ref in zip(self.types, self.shape.projection, strict=True)}
        texts = self.interner.texts

        def columns() -> dict[str, ShownColumn]:
            named: dict[str, ShownColumn] = {"THERE": places.there}
            for ref in (*self.shape.ranges, *self.shape.partition):
                named[f"at.{self.column_name(ref)}"] = self.decoded(ref, cells[ref.column], texts)
            for ref in self.shape.projection:
                named[f"row.{self.column_name(ref)}"] = self.decoded(ref, cells[ref.column], texts)
            return named

        seqs = np.arange(first_seq, first_seq + len(updates))[at]
        codes: Columns = {"seq": seqs, **places.codes("new"), **shown, **self._no_gaps(n)}
        return Messages(self.name, codes, columns, self.types, texts)

    def _no_gaps(self, n: int) -> Columns:
        """The column that says which of n tuples are gaps: none. Only results of joins can be missing."""
        return {GAP: np.zeros(n, np.bool_)} if self.tables[0].is_derived else {}

    def gap(self, seq: int) -> Columns:
        """The message, as it travels, that results are missing up to there; it is for all subscribers."""
        nothing = np.full(1, np.nan)
        place: Columns = {f"new.{i}": np.zeros(1) for i in range(self.shape.dimensions)}
        if self.shape.partition:
            place["new.part"] = np.zeros(1)
        codes: Columns = {
            "seq": np.array([seq]),
            "new.there": np.ones(1, np.bool_),
            **place,
            **dict.fromkeys(self.types, nothing),
            GAP: np.ones(1, np.bool_),
        }
        return on_the_way(codes, self.types, self.interner.texts)

    def capture(self, predicates: Predicates) -> Callable[[], Columns]:
        """Nothing: a subscription begins with what comes next, unless it says otherwise (`capture_after`)."""
        nothing: Columns = {"of": np.empty(0, np.int64), "seq": np.empty(0, np.int64)}
        empty = np.empty(0)
        shown = on_the_way(dict.fromkeys(self.types, empty), self.types, self.interner.texts)
        return lambda: nothing | shown | self._no_gaps(0)

    def cost_after(self, n: int, after: int) -> int:
        """How many tuples are looked at, at most, for n subscriptions that begin behind a position."""
        return n * (len(self.order.behind(after)) + len(self.order.gaps_behind(after)))

    def capture_cost(self, n: int) -> int:
        return 0

    def selected_after(self, predicates: Predicates, after: int) -> Callable[[], Columns]:
        """The tuples behind a position that predicates select, as codes, in two steps as in `capture`. Column "of" says
        for which predicate each is; of one predicate they are in order, with the gaps among them."""
        positions, gaps = self.order.behind(after), np.array(self.order.gaps_behind(after), np.int64)
        asked = (*self.shape.ranges, *self.shape.partition)
        shown = [ref.column for ref in self.shape.projection]
        store, (low, high) = self.stores[0], self.bounds(predicates)
        slots = store.slots_of(positions.astype(np.float64))
        taken = {column: store.cells[column, slots] for column in {*(ref.column for ref in asked), *shown}}

        def rows() -> Columns:
            columns = [self.placed(ref, taken[ref.column]) for ref in asked]
            boxes = Boxes.of(low, high, predicates.never, predicates.of)
            of, found = rows_in_boxes(columns, len(positions), boxes, REPLAYED_TUPLES)
            found = found[np.lexsort((found, of))]  # one after the other, as they came
            cells = {name: taken[column][found] for name, column in zip(self.types, shown, strict=True)}
            selected: Columns = {"of": of, "seq": positions[found], **cells, **self._no_gaps(len(found))}
            return _among(selected, gaps, len(predicates)) if len(gaps) else selected

        return rows

    @property
    def order(self) -> StreamOrder:
        """The order of the stream's tuples."""
        order = self.stores[0].order
        assert order is not None, "a stream"
        return order

    def begins(self, after: int | None, seq: int) -> int:
        """Where a subscription begins that asks for the tuples behind a position, after update `seq`: there, or where
        the stream begins if that is later. None: now, and so does a position that is none of this stream's."""
        if after is None or after > seq:
            return seq
        created = self.stores[0].created
        return max(self.order.removed, created) if self.order.lost_before(after, created) else after

    def capture_after(self, predicates: Predicates, after: int) -> Callable[[], Columns]:
        """`selected_after` as columns that travel."""
        texts, rows, types = self.interner.texts, self.selected_after(predicates, after), self.types
        return lambda: on_the_way(rows(), types, texts)

    def admit_after(self, predicates: Predicates, after: int, seq: int) -> Ints:
        """`admit` local subscriptions that begin behind a position: its tuples wait for them."""
        ids, begins = self.admit(predicates), self.begins(after, seq)
        self._told += self.answers.hear_first(self.audience, ids, self.selected_after(predicates, begins)())
        if begins != after:
            self._gaps.update(ids.tolist())
        return ids

    def take_gap(self, listener: int) -> bool:
        """Whether tuples were missing where a local subscription began, and it was not told yet."""
        missing = listener in self._gaps
        self._gaps.discard(listener)
        return missing

    def dismiss(self, listeners: Ints) -> None:
        super().dismiss(listeners)
        self._gaps.difference_update(listeners.tolist())

    def admit(self, predicates: Predicates) -> Ints:
        ids = super().admit(predicates)
        self.answers.start(ids, cast("Columns", {}))
        return ids


def _among(selected: Columns, gaps: Ints, members: int) -> Columns:
    """Tuples of some members with the gaps of their stream among them, which are for all."""
    of, seqs = cast("Ints", selected["of"]), cast("Ints", selected["seq"])
    count = len(gaps) * members
    of = np.concatenate([of, np.repeat(np.arange(members), len(gaps))])
    seqs = np.concatenate([seqs, np.tile(gaps, members)])
    order = np.lexsort((seqs, of))
    more: Columns = {"of": of[order], "seq": seqs[order]}
    for name, column in selected.items():
        if name not in more:
            nothing = np.ones(count, np.bool_) if name == GAP else np.full(count, np.nan)
            more[name] = np.concatenate([cast("Floats", column), nothing])[order]
    return more
