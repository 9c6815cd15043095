"""The changes of one table as columns of codes: made of the records that `Tail` gives.

Rows of records with one row each, which are most of a log, are read by compiled code (walk.py); batches are decoded as
the server decodes them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hullcast.broker.log.payload import decode_batch
from hullcast.broker.log.walk import join_texts, read_rows, table_of
from hullcast.broker.tables.ingest import ingest, ingest_keys
from hullcast.broker.tables.schema import Column, ColumnType, Table, fold
from hullcast.broker.tables.values import encode_numbers, texts_are_good, words_of
from hullcast.network.wire.bodies import Delete, Publish
from hullcast.network.wire.value_columns import Mixed, is_values
from hullcast.network.wire.values import from_list, to_list

if TYPE_CHECKING:
    from hullcast.broker.log.run import RecordRun
    from hullcast.broker.log.walk import Bytes
    from hullcast.broker.tables.interning import Interner
    from hullcast.network.wire.arrays import Booleans, Floats, Ints
    from hullcast.network.wire.value_columns import Values

#: Records that are tried at once where plain ones are few.
_FEW = 16


class ChangeBatch(NamedTuple):
    """Changes that follow each other, as codes of shape (columns, rows)."""

    seqs: Ints
    cells: Floats
    deleted: bool
    partial: bool


class GatheredChanges:
    """Changes of a table as codes, those behind `after` up to `through`. Rows published one by one are coded together:
    a NumPy call a row would take longer than all the rest."""

    def __init__(self, table: Table, interner: Interner, after: int, through: int) -> None:
        self.table, self.interner = table, interner
        self._after, self._through = after, through
        self._plain = table_of([(fold(column.name), column.type) for column in table.columns], table.key)
        self.rows = self.size_bytes = 0
        self._batches: list[ChangeBatch] = []
        self._single: list[dict[str, Any]] = []  # rows with the same columns, not coded yet
        self._single_seqs: list[int] = []

    def _add(self, first: int, last: int, payload: bytes) -> None:
        """One more record, decoded as the server does."""
        body = decode_batch(payload)
        self.size_bytes += len(payload)
        if isinstance(body, Publish) and first == last and body.absent is None:
            if self._single and self._single[0].keys() != body.columns.keys():
                self._settle()
            self._single.append(body.columns)
            self._single_seqs.append(first)
            self.rows += 1
            return
        self._settle()
        seqs = np.arange(first, last + 1)
        partial = False
        if isinstance(body, Delete):
            cells, good = self._keys(body.keys)
            seqs = seqs[good]
        else:
            cells, partial = ingest(self.table, body.columns, body.absent, self.interner)
        if first <= self._after or last > self._through:
            wanted = (seqs > self._after) & (seqs <= self._through)
            seqs, cells = seqs[wanted], cells[:, wanted]
        self._batches.append(ChangeBatch(seqs, cells, isinstance(body, Delete), partial))
        self.rows += len(seqs)

    def add(self, run: RecordRun) -> None:
        """More records: the plain ones among them by compiled code."""
        place, most = 0, run.records
        while place < run.records:
            wanted = min(most, run.records - place)
            plain = self._add_plain(run, place, wanted)
            place += plain
            if plain == wanted:
                most *= 4
            else:
                most = _FEW  # where plain ones are few, room for many would cost more than they do
                first, updates = run.noted[2:, place].tolist()
                self._add(first, first + updates - 1, run.payload(place))
                place += 1

    def _add_plain(self, run: RecordRun, place: int, most: int) -> int:
        """The rows of records from `place` on that are one plain row each, up to `most`; how many there are."""
        if run.noted[3, place] != 1:
            return 0
        width = len(self.table.columns)
        cells, deleted = np.empty((width, most)), np.empty(most, np.bool_)
        texts = np.empty((width, 2, most), np.int64)
        rows = read_rows(run.content, run.noted, (place, place + most), self._plain, cells, deleted, texts)
        if not rows:
            return 0
        self._settle()
        cells, deleted, noted = cells[:, :rows], deleted[:rows], run.noted[:, place : place + rows]
        for position, column in enumerate(self.table.columns):
            if column.type in (ColumnType.TEXT, ColumnType.TIMESTAMP):
                self._code_texts(column, run.content, texts[position, :, :rows], cells[position])
        seqs = noted[2].copy()
        ends = [0, *(np.flatnonzero(deleted[1:] != deleted[:-1]) + 1).tolist(), rows]
        for start, stop in pairwise(ends):
            part = ChangeBatch(seqs[start:stop], cells[:, start:stop], bool(deleted[start]), False)
            self._batches.append(part)
        self.rows += rows
        self.size_bytes += int(noted[1].sum())
        return rows

    def _code_texts(self, column: Column, content: Bytes, texts: Ints, codes: Floats) -> None:
        """Put the codes of texts (where they begin and end) into a column, where there are any."""
        given = np.flatnonzero(texts[0] >= 0)
        if len(given):
            texts = np.ascontiguousarray(texts[:, given])
            joined = np.empty(int((texts[1] - texts[0] + 1).sum()), np.uint8)
            join_texts(content, texts, joined)
            words = joined.tobytes().decode().split("\0")[:-1]
            is_text = column.type is ColumnType.TEXT
            codes[given] = self.interner.encode(words) if is_text else encode_numbers(column, Mixed(tuple(words)))

    def settled(self) -> list[ChangeBatch]:
        """All that was added."""
        self._settle()
        return self._batches

    def _settle(self) -> None:
        if self._single:
            rows, names = self._single, list(self._single[0])
            lists = {name: [row[name] for row in rows] for name in names}
            columns = {name: _column(values) for name, values in lists.items()}
            cells, partial = ingest(self.table, columns, None, self.interner)
            self._batches.append(ChangeBatch(np.array(self._single_seqs), cells, False, partial))
            self._single, self._single_seqs = [], []

    def _keys(self, keys: Values) -> tuple[Floats, Booleans]:
        """Rows that have only a key; and which keys are of the kind that a table can hold: to delete another, such as a
        text with a NUL character, changes nothing."""
        column = self.table.key_column
        good = np.ones(len(keys), np.bool_)
        if column.type is ColumnType.TEXT:
            words = words_of(column, keys)
            if texts_are_good([text for text in words.texts if text is not None]):
                codes = words.spread(self.interner.encode(words.texts))
            else:
                fine = [text is not None and texts_are_good([text]) for text in words.texts]
                texts = [text if ok else None for text, ok in zip(words.texts, fine, strict=True)]
                codes = words.spread(self.interner.encode(texts))
                good = ~np.isnan(codes)
        else:
            codes = ingest_keys(self.table, keys, self.interner)
        cells = np.full((len(self.table.columns), len(codes)), np.nan)
        cells[self.table.key] = codes
        return cells[:, good], good


def _column(values: list[Any]) -> Values:
    """Values of single rows as a column; of a row that came as a column, its one value."""
    return from_list([to_list(value)[0] if is_values(value) else value for value in values])
