"""The log as tuples: what the streams and tables that queries read have in it, as codes.

Streams and tables are read one by one up to the same sequence number, the tables first: so whoever has a tuple has all
changes of tables before it. What the log does not reach back to any more is in a checkpoint.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.log.changes import GatheredChanges, LogReader
from hullcast.broker.log.checkpoint import open_checkpoint, stored_rows
from hullcast.broker.log.directory import read_identity
from hullcast.broker.log.history import gone, readable_from
from hullcast.broker.streams.batch import StreamMoment, TupleBatch
from hullcast.broker.streams.operators.table_join import TableChanges
from hullcast.broker.tables.ingest import ingest
from hullcast.broker.tables.schema import fold
from hullcast.broker.warehouse.source import TableSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hullcast.broker.log.changes import LogPosition
    from hullcast.broker.log.history import Life
    from hullcast.broker.streams.messages import TimeWord
    from hullcast.broker.tables.interning import Interner
    from hullcast.network.wire.arrays import Floats, Ints

#: How often rows are read again because the log or a checkpoint was cut under our hands.
_ATTEMPTS = 5


class StreamTime:
    """How far the time of a stream has come: by its tuples, and by heartbeats. A stream without a time column stands
    still at 0."""

    def __init__(self, column: int | None, reached: float) -> None:
        self._column, self.reached = column, reached if column is not None else 0.0
        self._words: list[TimeWord] = []  # those behind what was looked at

    def heard(self, words: Sequence[TimeWord]) -> None:
        """More heartbeats, in order."""
        self._words += words

    def batch(self, changes: TableChanges, through: int, now: float) -> TupleBatch:
        """Tuples that follow those before, with their effective times; all up to `through` was looked at. What
        retention removed from the stream is not taken from it here."""
        if changes.deleted.any():
            kept = ~changes.deleted
            changes = TableChanges(changes.seqs[kept], np.compress(kept, changes.cells, axis=1), changes.deleted[kept])
        times = self._effective(changes.seqs, changes.cells, through)
        return TupleBatch(changes.seqs, times, changes.cells, StreamMoment(self.reached, through), now)

    def _effective(self, seqs: Ints, cells: Floats, through: int) -> Floats:
        if self._column is None:
            return np.zeros(len(seqs))
        times, end = cells[self._column].copy(), self.reached
        times[:1] = np.maximum(times[:1], self.reached)
        while self._words and self._words[0].seq <= through:
            seq, time = self._words.pop(0)
            place = int(np.searchsorted(seqs, seq, side="right"))
            if place < len(times):
                times[place] = max(times[place], time)
            else:
                end = max(end, time)
        effective: Floats = np.maximum.accumulate(times)
        self.reached = max(end, float(effective[-1])) if len(times) else end
        return effective


class LogFollower:
    """Reads the log of one data directory, and its checkpoints; all texts are coded by one interner."""

    def __init__(self, directory: Path, interner: Interner) -> None:
        self._directory, self._interner = directory, interner
        self._log = LogReader(directory)
        self._source = TableSource(directory, read_identity(directory) or b"")
        self._positions: dict[str, LogPosition] = {}  # where the next stretch begins, by folded name

    def forget(self, name: str) -> None:
        """A stream or table (folded name) is not followed any more."""
        self._positions.pop(name, None)

    def follow(self, life: Life, after: int, through: int) -> TableChanges:
        """The changes behind `after`, which is where the last stretch ended, up to `through`, which is on disk.
        HistoryGone if the log was cut."""
        name = fold(life.table.name)
        changes = self.changes(life, after, through, self._positions.get(name))
        if self._log.position is not None:
            self._positions[name] = self._log.position
        return changes

    def changes(self, life: Life, after: int, through: int, start: LogPosition | None = None) -> TableChanges:
        """The changes behind `after` up to `through`; HistoryGone if the log does not have them any more."""
        try:
            return self._changes(life, after, through, start)
        except FileNotFoundError:
            raise gone(life, after + 1, readable_from(self._directory)) from None

    def tuples(self, life: Life, after: int, through: int, known: int) -> TableChanges:
        """The tuples of a stream with positions behind `after` up to `through`, as far as they are kept; all up to
        `known` is on disk. What the log does not reach back to is in a checkpoint, perhaps a later one: tuples do not
        change, and those behind `through` are left out."""

        def read() -> TableChanges:
            try:
                return self._changes(life, max(after, life.created), through, None)
            except FileNotFoundError:
                found = self._rows(life, known)
                positions = found.cells[life.table.key]
                wanted = np.flatnonzero(~found.deleted & (positions > after) & (positions <= through))
                wanted = wanted[np.argsort(positions[wanted], kind="stable")]
                cells = np.ascontiguousarray(found.cells[:, wanted])
                return TableChanges(cells[life.table.key].astype(np.int64), cells, found.deleted[wanted])

        return self._patiently(life, after, read)

    def rows(self, life: Life, seq: int) -> TableChanges:
        """Changes that make a table as it is at `seq`, from nothing."""
        return self._patiently(life, seq, lambda: self._rows(life, seq))

    def _patiently(self, life: Life, seq: int, read: Callable[[], TableChanges]) -> TableChanges:
        for _ in range(_ATTEMPTS):
            try:
                return read()
            except FileNotFoundError:  # the log or a checkpoint was cut in this moment
                continue
        raise gone(life, seq + 1, readable_from(self._directory))

    def _rows(self, life: Life, seq: int) -> TableChanges:
        base = next(self._source.bases(life, seq), None)
        parts = []
        if base is not None:
            with closing(open_checkpoint(base.path)) as database:
                for columns in stored_rows(database, life.table, life.created):
                    cells = ingest(life.table, columns, None, self._interner).cells
                    count = cells.shape[1]
                    parts.append(TableChanges(np.full(count, base.seq), cells, np.zeros(count, np.bool_)))
        after = life.created if base is None else base.seq
        parts.append(self._changes(life, after, seq, None))
        return together(parts)

    def _changes(self, life: Life, after: int, through: int, start: LogPosition | None) -> TableChanges:
        gathered = GatheredChanges(life.table, self._interner, after, through)
        for run in self._log.runs(fold(life.table.name), after, through, start):
            if run.records:
                gathered.add_run(run)
        batches = gathered.settled()
        if not batches:
            return no_changes(life)
        return together(
            [TableChanges(batch.seqs, batch.cells, np.full(len(batch.seqs), batch.deleted)) for batch in batches]
        )


def together(parts: Sequence[TableChanges]) -> TableChanges:
    """Changes that follow each other as one; there is at least one part."""
    return (
        parts[0]
        if len(parts) == 1
        else TableChanges(*(np.concatenate(some, axis=-1) for some in zip(*parts, strict=True)))
    )


def no_changes(life: Life) -> TableChanges:
    """Of a table or stream."""
    return TableChanges(np.empty(0, np.int64), np.empty((len(life.table.columns), 0)), np.empty(0, np.bool_))
