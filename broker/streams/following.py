"""The log as tuples: what the streams and tables that queries read have in it, as codes.

Streams and tables are read one by one up to the same sequence number, the tables first: so whoever has a tuple has all
changes of tables before it. What the log does not reach back to any more is in a checkpoint.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.log.checkpoint import open_checkpoint, stored_rows
from hullcast.broker.log.directory import read_identity
from hullcast.broker.log.history import gone, readable_from
from hullcast.broker.log.source import TableSource
from hullcast.broker.streams.batch import StreamMoment, TupleBatch
from hullcast.broker.streams.operators.table_join import TableChanges
from hullcast.broker.tables.ingest import ingest
from hullcast.broker.tables.schema import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

    from hullcast.broker.log.history import Life
    from hullcast.broker.log.run import LogPosition
    from hullcast.broker.streams.messages import TimeWord
    from hullcast.broker.tables.interning import Interner
    from hullcast.network.wire.arrays import Floats, Ints
    from hullcast.network.wire.errors import HistoryGone

#: How often rows are read again because the log or a checkpoint was cut under our hands.
ATTEMPTS = 5
#: Rows of a checkpoint that are read at once.
STORED_AT_ONCE = 4096


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
        self._source = TableSource(directory, read_identity(directory) or b"")
        self._positions: dict[str, LogPosition] = {}  # where the next stretch begins, by folded name

    def forget(self, name: str) -> None:
        """A stream or table (folded name) is not followed any more."""
        self._positions.pop(name, None)

    def follow(self, life: Life, after: int, through: int) -> TableChanges:
        """The changes behind `after`, which is where the last stretch ended, up to `through`, which is on disk.
        HistoryGone if the log was cut."""
        name = fold(life.table.name)
        try:
            changes, position = self.stretch(life, after, through, self._positions.get(name))
        except FileNotFoundError:
            raise self.gone(life, after) from None
        if position is not None:
            self._positions[name] = position
        return changes

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

    def stored(self, life: Life, seq: int) -> Iterator[tuple[int, TableChanges]]:
        """The rows of a table or stream as the newest checkpoint up to `seq` has them, some at a time, and of which
        moment they are; at first no rows. FileNotFoundError if it is removed meanwhile."""
        base = next(self._source.bases(life, seq), None)
        yield (life.created if base is None else base.seq), no_changes(life)
        if base is not None:
            with closing(open_checkpoint(base.path)) as database:
                for columns in stored_rows(database, life.table, life.created, STORED_AT_ONCE):
                    cells = ingest(life.table, columns, None, self._interner).cells
                    count = cells.shape[1]
                    yield base.seq, TableChanges(np.full(count, base.seq), cells, np.zeros(count, np.bool_))

    def stretch(
        self, life: Life, after: int, through: int, start: LogPosition | None
    ) -> tuple[TableChanges, LogPosition | None]:
        """The changes behind `after` up to `through`, and where to go on. FileNotFoundError if the log does not reach
        back that far, or is cut meanwhile."""
        return self._changes(life, after, through, start), self._source.position

    def gone(self, life: Life, after: int) -> HistoryGone:
        """Why the changes behind `after` cannot be read."""
        return gone(life, after + 1, readable_from(self._directory))

    def _patiently(self, life: Life, seq: int, read: Callable[[], TableChanges]) -> TableChanges:
        for _ in range(ATTEMPTS):
            try:
                return read()
            except FileNotFoundError:  # the log or a checkpoint was cut in this moment
                continue
        raise self.gone(life, seq)

    def _rows(self, life: Life, seq: int) -> TableChanges:
        moments, parts = zip(*self.stored(life, seq), strict=True)
        return together([*parts, self._changes(life, moments[0], seq, None)])

    def _changes(self, life: Life, after: int, through: int, start: LogPosition | None) -> TableChanges:
        parts = [
            TableChanges(batch.seqs, batch.cells, np.full(len(batch.seqs), batch.deleted))
            for block in self._source.changes(life, after, through, start, self._interner)
            for batch in block.batches
        ]
        return together(parts) if parts else no_changes(life)


class StreamPast:
    """The tuples of a stream behind a position, stretch by stretch: from the log, or, where that was cut, from a
    checkpoint. Tuples do not change, so it may be a later one; those that it has are held here until they are due."""

    def __init__(self, follower: LogFollower, life: Life, after: int) -> None:
        self._follower, self._life = follower, life
        self._after = max(after, life.created)  # up to there it was given, or is held
        self._start: LogPosition | None = None  # of what is behind that
        self._held: Floats = np.empty((len(life.table.columns), 0))
        self._loading: list[Floats] = []

    def held(self) -> Iterator[Floats]:
        """The codes that are held here: no text may lose its code while it is among them."""
        yield self._held
        yield from self._loading

    def reading(self, through: int, known: int) -> Generator[None, None, TableChanges]:
        """The tuples behind those that were given before, up to `through`; all up to `known` is on disk. It stops now
        and then. HistoryGone if files are cut again and again while they are read."""
        life, logged = self._life, no_changes(self._life)
        for _ in range(ATTEMPTS):
            try:
                if self._after < through:
                    logged, self._start = self._follower.stretch(life, self._after, through, self._start)
                    self._after = through
                break
            except FileNotFoundError:  # the log was cut, perhaps in this moment
                yield from self._load(known)
        else:
            raise self._follower.gone(life, self._after)
        due = int(np.searchsorted(self._held[life.table.key], through, "right"))
        cells, self._held = self._held[:, :due], self._held[:, due:]
        kept = TableChanges(cells[life.table.key].astype(np.int64), cells, np.zeros(due, np.bool_))
        return together([kept, logged])

    def _load(self, known: int) -> Iterator[None]:
        """Hold what a checkpoint has."""
        key, after, self._loading = self._life.table.key, self._after, []
        try:
            for moment, part in self._follower.stored(self._life, known):
                after = max(after, moment)
                self._loading.append(part.cells[:, part.cells[key] > self._after])
                yield
        except FileNotFoundError:  # another one took its place
            return
        held = np.concatenate([self._held, *self._loading], axis=1)
        self._held = np.ascontiguousarray(held[:, np.argsort(held[key], kind="stable")])
        self._after, self._start, self._loading = after, None, []


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
