"""The log as tuples: what the streams and tables that queries read have in it, as codes.

Streams and tables are read one by one up to the same sequence number, the tables first: so whoever has a tuple has all
changes of tables before it. What the log does not reach back to any more is in a checkpoint.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.log.changes import GatheredChanges, LogReader
from hullcast.broker.log.checkpoint import open_checkpoint, removed_through, stored_rows
from hullcast.broker.log.directory import read_identity
from hullcast.broker.log.history import gone, readable_from
from hullcast.broker.streams.batch import StreamMoment, TupleBatch
from hullcast.broker.streams.operators.table_join import TableChanges
from hullcast.broker.tables.ingest import ingest
from hullcast.broker.tables.schema import fold
from hullcast.broker.warehouse.source import TableSource
from hullcast.network.wire.errors import HistoryGone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from hullcast.broker.log.changes import LogPosition
    from hullcast.broker.log.history import Life
    from hullcast.broker.streams.messages import TimeWord
    from hullcast.broker.tables.interning import Interner
    from hullcast.network.wire.arrays import Floats, Ints

#: How often rows are read again because the log or a checkpoint was cut under our hands.
ATTEMPTS = 5
#: Rows of a checkpoint that are read at once.
STORED_AT_ONCE = 4096
_NOT_RETAINED = "a join came too late for it; the stream's retain_rows or the server's history_bytes keeps more"


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
        """Tuples that follow those before, with their effective times; all up to `through` was looked at."""
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

    def stored(self, life: Life, seq: int, behind: int | None = None) -> Iterator[tuple[int, TableChanges]]:
        """The rows of a table or stream as the newest checkpoint up to `seq` has them, some at a time, and of which
        moment they are; at first no rows. FileNotFoundError if it is removed in this moment; HistoryGone if tuples of
        a stream `behind` a position are not retained."""
        base = next(self._source.bases(life, seq), None)
        if base is None:
            yield life.created, no_changes(life)
            return
        with closing(open_checkpoint(base.path)) as database:  # from here on it may be removed
            removed = 0 if behind is None else removed_through(database, life.table, life.created)
            if behind is not None and removed > behind:
                raise HistoryGone(life.table.name, behind + 1, removed + 1, _NOT_RETAINED)
            yield base.seq, no_changes(life)
            for columns in stored_rows(database, life.table, life.created, STORED_AT_ONCE):
                cells = ingest(life.table, columns, None, self._interner).cells
                count = cells.shape[1]
                yield base.seq, TableChanges(np.full(count, base.seq), cells, np.zeros(count, np.bool_))

    def stretch(
        self, life: Life, after: int, through: int, start: LogPosition | None
    ) -> tuple[TableChanges, LogPosition | None]:
        """The changes behind `after` up to `through`, and where to go on. FileNotFoundError if the log does not reach
        back that far, or is cut meanwhile."""
        return self._changes(life, after, through, start), self._log.position

    def gone(self, life: Life, after: int) -> HistoryGone:
        """Why the changes behind `after` cannot be read."""
        return gone(life, after + 1, readable_from(self._directory))

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


class StreamPast:
    """The tuples of a stream behind a position, stretch by stretch: from the log, or, where that was cut, from a
    checkpoint. Tuples do not change, so it may be a later one; it is read once, and what it has is held here until it
    is due. What retention removes from the stream is not taken from it here."""

    def __init__(self, follower: LogFollower, life: Life, after: int) -> None:
        self._follower, self._life = follower, life
        self.reached = max(after, life.created)  # up to there it was given, or is held
        self._start: LogPosition | None = None  # of what is behind that
        self._held: Floats = np.empty((len(life.table.columns), 0))
        self._loading: list[Floats] = []

    def held(self) -> Iterator[Floats]:
        """The codes that are held here: no text may lose its code while it is among them."""
        yield self._held
        yield from self._loading

    def reading(self, through: int, known: Callable[[], int]) -> Iterator[None]:
        """Read on up to `through`; `known` says up to where all is on disk. It stops now and then. HistoryGone if
        tuples are not retained any more, or files are cut again and again while they are read."""
        for _ in range(ATTEMPTS):
            try:
                if self.reached < through:
                    found, self._start = self._follower.stretch(self._life, self.reached, through, self._start)
                    tuples = found.cells
                    if found.deleted.any():
                        tuples = np.compress(~found.deleted, tuples, axis=1)
                    self._hold(tuples, through)
                return
            except FileNotFoundError:  # the log was cut, perhaps in this moment
                yield from self._load(known())
        raise self._follower.gone(self._life, self.reached)

    def take(self, through: int) -> TableChanges:
        """The tuples up to `through` that were not given before."""
        key = self._life.table.key
        due = int(np.searchsorted(self._held[key], through, "right"))
        cells, self._held = np.ascontiguousarray(self._held[:, :due]), self._held[:, due:]
        return TableChanges(cells[key].astype(np.int64), cells, np.zeros(due, np.bool_))

    def _load(self, known: int) -> Iterator[None]:
        """Hold what a checkpoint has."""
        key, reached, self._loading = self._life.table.key, self.reached, []
        try:
            for moment, part in self._follower.stored(self._life, known, self.reached):
                reached = max(reached, moment)
                self._loading.append(part.cells[:, part.cells[key] > self.reached])
                yield
        except FileNotFoundError:  # another one took its place
            return
        loaded = np.concatenate(self._loading, axis=1)
        self._hold(loaded[:, np.argsort(loaded[key], kind="stable")], reached)
        self._start, self._loading = None, []

    def _hold(self, more: Floats, reached: int) -> None:
        """Tuples behind those that are held; up to `reached` there are no others."""
        self._held = np.concatenate([self._held, more], axis=1) if self._held.size else more
        self.reached = reached


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
