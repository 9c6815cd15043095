"""A load: brings the file of a table to exactly one sequence number, in one transaction.

    no file, or not usable     newest checkpoint -> new file under another name, then the log behind it -> renamed
    a file as of `current`     the log behind `current`, coalesced by key -> upserts and deletes
    the log is cut behind it   all rows are removed, and come again from the newest checkpoint and the log behind it

`current` is written in the same transaction: a change is applied once, whoever is killed when. A load that fails (a
full disk, a read-only folder) leaves the file as it was, and the next one goes on from there.
"""

from __future__ import annotations

import os
import sqlite3
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from hullcast.broker.log.directory import read_identity
from hullcast.broker.log.history import Life, gone, readable_from
from hullcast.broker.log.source import TableSource
from hullcast.broker.queries.sqlite_copy import stored_column
from hullcast.broker.tables.ingest import Encoded, ingest
from hullcast.broker.tables.schema import ColumnType, fold
from hullcast.broker.tables.store import TableStore
from hullcast.broker.tables.values import decode_column
from hullcast.broker.warehouse.files.table_file import (
    FOLDER,
    FileBounds,
    FileState,
    KeptLife,
    LoadedFile,
    NewFile,
    OpenFiles,
    TableFile,
    is_transient,
)
from hullcast.network.wire.errors import LoadFailed
from hullcast.network.wire.values import from_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hullcast.broker.log.changes import ChangeBatch
    from hullcast.broker.log.run import LogPosition
    from hullcast.broker.log.source import Base, ChangeBlock
    from hullcast.broker.tables.interning import Interner
    from hullcast.broker.tables.schema import Table
    from hullcast.network.wire.arrays import Floats, Ints

#: How often a load begins again because the log or a checkpoint was cut under its hands.
_ATTEMPTS = 5
#: A disk with less is called full.
_NO_SPACE_BYTES = 64 << 10
#: Rows that are made Python objects at once.
_ROWS_PUT = 1 << 15


OneLife = TypeVar("OneLife", bound=KeptLife)
OneFile = TypeVar("OneFile", bound=LoadedFile)
Done = TypeVar("Done")


class PartialRowsError(FileNotFoundError):
    """The log has rows that lack columns, as an earlier version of the server logged them."""


class Loaded(NamedTuple):
    """How a load went: the file is the table as of `current`; `last` is the last update of the table up to there."""

    current: int
    last: int
    rows_read: int  # updates of the table in the log, and rows of a checkpoint


class Bases:
    """What the rows of a file begin with, by table: a checkpoint, a table's own file, or nothing; and the names under
    which these files are attached."""

    def __init__(self, of: Mapping[Life, Base | Path | None]) -> None:
        self.of = of
        self.attached: dict[str, Path] = {}
        self.names: dict[Life, str] = {}
        for life, base in of.items():
            if base is not None:
                path = base.path if isinstance(base, tuple) else base
                known = {path: name for name, path in self.attached.items()}
                self.names[life] = known.get(path, f"base{len(known)}")
                self.attached[self.names[life]] = path


class FileLoader(ABC, Generic[OneLife, OneFile, Done]):
    """What loads of tables and of views have in common. Any number of loaders may load the files of a data directory,
    in processes of their own; but one load of a file at a time."""

    KIND: ClassVar[str]
    FILE: ClassVar[type[LoadedFile]]

    def __init__(self, directory: Path, bounds: FileBounds | None = None) -> None:
        self._directory, self._bounds = directory, bounds or FileBounds(directory)
        self._identity = read_identity(directory) or b""
        self._source = TableSource(directory, self._identity)
        self._files = OpenFiles[OneFile](directory, self._identity, self.FILE)  # type: ignore[arg-type]

    @abstractmethod
    def build(self, life: OneLife, through: int) -> Done:
        """Bring a file to a sequence number; one that is not there is made."""

    def state(self, life: OneLife, newest: int | None = None) -> dict[str, FileState] | None:
        """How far a file has each of its tables, by folded name; None if there is none that can be used. One that has
        updates behind `newest`, the last there is, is of another course of events (the log was restored from a copy),
        and is removed."""
        with self._opened(life) as file:
            if file is None:
                return None
            try:
                states = file.states()
            except sqlite3.DatabaseError as error:
                if is_transient(error):
                    raise
                states = None
            if states is None or (newest is not None and any(state.current > newest for state in states.values())):
                self.discard(life)
                return None
            return states

    def discard(self, life: OneLife) -> None:
        """Remove a file, which a reader found damaged: it is made again when it is needed."""
        self._files.discard(life)

    def close(self) -> None:
        self._files.close()

    @contextmanager
    def _opened(self, life: OneLife) -> Iterator[OneFile | None]:
        """A file, if it is there."""
        with self._failing(life):
            yield self._files.get(life)

    @contextmanager
    def _failing(self, life: OneLife) -> Iterator[None]:
        """Errors of the disk as our own."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if (bound := self._bounds.explain(error)) is not None:
                raise LoadFailed(life.table.name, bound, self.KIND) from error
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            with suppress(OSError):
                folder = self._directory / FOLDER
                space = os.statvfs(folder if folder.exists() else self._directory)
                is_full = space.f_bavail * space.f_frsize < _NO_SPACE_BYTES
                if is_full and "is full" not in reason:  # SQLite may say no more than "disk I/O error"
                    reason = f"the disk is full: {reason}"
            raise LoadFailed(life.table.name, reason, self.KIND) from error

    def _loading(
        self,
        life: OneLife,
        table: Life,
        through: int,
        go_on: Callable[[OneFile], Done],
    ) -> Done:
        """Load a file: from what it has (`go_on`); if the log does not reach back to that, without it; if there is
        none, make it. HistoryGone of a table if all is in vain.
        """

        def load() -> Done:
            partial = False
            for attempt in range(_ATTEMPTS):
                file = self._files.get(life)
                try:
                    if file is None:
                        done = self._make(life, through, partial=partial)
                        self._files.get(life)  # stays open: what SQLite needs to read is there if the disk fills up
                        return done
                    return self._renew(file, life, through, partial=partial) if attempt else go_on(file)
                except FileNotFoundError as error:  # the log or a checkpoint was cut, before or under way
                    partial |= isinstance(error, PartialRowsError)
            raise gone(table, table.created + 1, readable_from(self._directory))

        with self._failing(life):
            try:
                return load()
            except sqlite3.DatabaseError as error:
                if is_transient(error):
                    raise
                self.discard(life)  # damaged: once more, from the beginning
                return load()

    def _make(self, life: OneLife, through: int, *, partial: bool) -> Done:
        bases = Bases(self._bases(life, through, partial=partial))
        with NewFile(self._directory, self._identity, life, self.FILE, bases.attached, self._bounds) as new:
            file: OneFile = new.file  # type: ignore[assignment]  # as FILE says
            done, state = self._fill(file, life, through, bases, file.index)
            new.finish(state)
        return done

    def _renew(self, file: OneFile, life: OneLife, through: int, *, partial: bool) -> Done:
        """A file that is there, without what it has. Readers have the old rows until the load ends."""
        through = max(through, *(state.current for state in file.states().values()))
        bases = Bases(self._bases(life, through, partial=partial))
        try:
            for name, path in bases.attached.items():
                file.attach(path, name)
            with file.loading(self._bounds):
                file.clear()
                done, state = self._fill(file, life, through, bases, lambda: None)
                file.end(state)
        finally:
            for name in bases.attached:
                file.detach(name)
        file.tidy()
        return done

    @abstractmethod
    def _bases(self, life: OneLife, through: int, *, partial: bool) -> Mapping[Life, Base | Path | None]:
        """What the rows of each table begin with; `partial`: the log has rows that lack columns."""

    @abstractmethod
    def _fill(
        self, file: OneFile, life: OneLife, through: int, bases: Bases, index: Callable[[], None]
    ) -> tuple[Done, FileState]:
        """Bring a file without rows to a sequence number; `index` makes its indexes. How that went, and what it is."""


class Loader(FileLoader[Life, TableFile, Loaded]):
    KIND, FILE = "table", TableFile

    def load(self, life: Life, through: int) -> Loaded:
        """Bring the file of a table to `through`, which is on disk in the log; a file that is further stays as it is.

        LoadFailed if the disk refuses; HistoryGone if neither the log nor a checkpoint has what is needed.
        """
        return self._loading(life, life, through, lambda file: self._go_on(file, life, through))

    build = load

    def count(self, life: Life, after: int, through: int, within_s: float = inf) -> int | None:
        """How many updates of a table there are behind `after` up to `through`; None if that cannot be said in time,
        or if the log does not reach back that far."""
        states, began, found = self.state(life), time.perf_counter(), 0
        state = None if states is None else states[fold(life.table.name)]
        start = None if state is None or state.current > after else state.position
        try:
            for updates in self._source.counts(life, after, through, start):
                found += updates
                if time.perf_counter() - began > within_s:
                    return None
        except FileNotFoundError:
            return None
        return found

    # -- a load ------------------------------------------------------------------------------------------------

    def _go_on(self, file: TableFile, life: Life, through: int) -> Loaded:
        """A file that is there, from what it has."""
        with file.loading(self._bounds):
            current, last, start = file.state()
            if current >= through:
                return Loaded(current, last, 0)
            updates, last = self._apply(file, life, current, through, start, last)
            file.end(FileState(through, last, self._source.position))
        file.tidy()
        return Loaded(through, last, updates)

    def _bases(self, life: Life, through: int, *, partial: bool) -> Mapping[Life, Base | Path | None]:
        return {life: next(self._source.bases(life, through), None)}

    def _fill(
        self, file: TableFile, life: Life, through: int, bases: Bases, index: Callable[[], None]
    ) -> tuple[Loaded, FileState]:
        """When the last update of the table before a checkpoint was is not known: at its end at the latest, which is
        what is noted."""
        base, rows, last = bases.of[life], 0, life.created
        if isinstance(base, tuple):
            rows, last = file.copy(base, bases.names[life]), base.seq
        index()
        updates, last = self._apply(file, life, last, through, None, last)
        return Loaded(through, last, rows + updates), FileState(through, last, self._source.position)

    def _apply(
        self, file: TableFile, life: Life, after: int, through: int, start: LogPosition | None, last: int
    ) -> tuple[int, int]:
        """Apply the changes behind `after`: how many there were, and the last of them (or `last`)."""
        updates = 0
        for block in self._source.changes(life, after, through, start):
            self._bounds.check()
            (_apply_partial if is_partial(block) else _apply_whole)(file, block)
            updates, last = updates + block.updates, block.last
        return updates, last


# -- rows --------------------------------------------------------------------------------------------------


def _apply_whole(file: TableFile, block: ChangeBlock) -> None:
    """Write the last word on each key, in the order of the keys: then rows that stand together are written together."""
    table = file.life.table
    words = last_words_of(table, block)
    file.remove(words.gone)
    _put(file, words.rows, block.interner)


def last_words(keys: Floats) -> Ints:
    """Where each distinct key occurs last, ordered by key. Keys are codes, none of them NULL."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    last: Ints = order[np.append(ordered[1:] != ordered[:-1], np.ones(min(1, len(keys)), np.bool_))]
    return last


def coalesced(batches: Sequence[ChangeBatch], key: int) -> tuple[Floats, Floats]:
    """What became of the keys (the column at `key`) that changed in batches of whole rows, which follow each other: the
    rows that are there, of shape (columns, rows), and the keys of those that are gone; both ordered by the codes of
    their keys."""
    cells = batches[0].cells if len(batches) == 1 else np.concatenate([batch.cells for batch in batches], axis=1)
    deleted = np.repeat([batch.deleted for batch in batches], [batch.cells.shape[1] for batch in batches])
    last = last_words(cells[key])
    is_gone = deleted[last]
    return cells[:, last[~is_gone]], cells[key, last[is_gone]]


class LastWords(NamedTuple):
    """What became of the keys that changed: the codes of rows that are there, and the keys of those that are gone as
    SQLite keeps them; both in the order of their keys."""

    rows: Floats
    gone: list[Any]


def last_words_of(table: Table, block: ChangeBlock) -> LastWords:
    rows, gone_keys = coalesced(block.batches, table.key)
    if table.key_column.type is ColumnType.TEXT:  # codes of texts have an order of their own
        texts = stored_cells(table, table.key, rows[table.key], block.interner)
        rows = rows[:, sorted(range(len(texts)), key=texts.__getitem__)]
    return LastWords(rows, sorted(stored_cells(table, table.key, gone_keys, block.interner)))


def _put(file: TableFile, rows: Floats, interner: Interner) -> None:
    for start in range(0, rows.shape[1], _ROWS_PUT):
        some = rows[:, start : start + _ROWS_PUT]
        file.put([stored_cells(file.life.table, position, codes, interner) for position, codes in enumerate(some)])


def is_partial(block: ChangeBlock) -> bool:
    """Whether rows lack columns, as earlier versions logged them."""
    return any(batch.partial for batch in block.batches)


def _apply_partial(file: TableFile, block: ChangeBlock) -> None:
    """The same for rows that lack columns, as earlier versions logged them: what they lack is in the file, or in rows
    before them. So the rows concerned are read into a store, which does the rest."""
    table, interner = file.life.table, block.interner
    store = TableStore(table)
    keys = np.unique(np.concatenate([batch.cells[table.key] for batch in block.batches]))
    there = file.rows(stored_cells(table, table.key, keys, interner))
    if there:
        columns = zip(table.columns, zip(*there, strict=True), strict=True)
        store.apply(ingest(table, {column.name: from_list(list(values)) for column, values in columns}, None, interner))
    for batch in block.batches:
        if batch.deleted:
            store.remove(batch.cells[table.key])
        else:
            store.apply(Encoded(batch.cells, batch.partial))
    rows = store.cells[:, store.live_slots()]
    gone_keys = np.setdiff1d(keys, rows[table.key])
    file.remove(stored_cells(table, table.key, gone_keys, interner))
    _put(file, rows, interner)


def stored_cells(table: Table, position: int, codes: Floats, interner: Interner) -> list[Any]:
    """A column of codes as SQLite keeps it."""
    column = table.columns[position]
    if column.type is ColumnType.TEXT:
        return decode_column(column.type, codes, interner)
    return stored_column(column, codes)
