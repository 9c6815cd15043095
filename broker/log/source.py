"""The rows of one table from a data directory, read beside the server: checkpoint, then log."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from hullcast.broker.log.changes import GatheredChanges
from hullcast.broker.log.checkpoint import check, checkpoints, meta_of, open_checkpoint, stored_name
from hullcast.broker.log.directory import LOG
from hullcast.broker.log.tail import Tail
from hullcast.broker.tables.interning import Interner
from hullcast.broker.tables.schema import fold
from hullcast.network.wire.errors import LogDamaged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hullcast.broker.log.changes import ChangeBatch
    from hullcast.broker.log.history import Life
    from hullcast.broker.log.run import LogPosition, RecordRun

#: Rows and bytes of the log that are taken at once: each key is written once among them.
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 1 << 18, 16 << 20


class ChangeBlock(NamedTuple):
    """Changes that follow each other. `updates` of the table, up to `last`; the codes of texts are the interner's."""

    batches: list[ChangeBatch]
    interner: Interner
    updates: int
    last: int


class Base(NamedTuple):
    """A checkpoint that holds a table as of `seq`, under the name `stored`; None: it had no rows yet."""

    path: Path
    seq: int
    stored: str | None


class TableSource:
    """Reads one data directory. Any number of sources may, beside the server; each belongs to one thread."""

    def __init__(self, directory: Path, identity: bytes) -> None:
        self._directory, self._identity = directory, identity
        self._tail = Tail(directory / LOG, identity)

    @property
    def position(self) -> LogPosition | None:
        """Where the changes read last ended, to go on from."""
        return self._tail.position

    def runs(self, life: Life, after: int, through: int, start: LogPosition | None = None) -> Iterator[RecordRun]:
        """The records with updates of the table behind `after` up to `through`, as `Tail.runs` gives them."""
        return self._tail.runs(fold(life.table.name), after, through, start)

    def changes(
        self, life: Life, after: int, through: int, start: LogPosition | None, interner: Interner | None = None
    ) -> Iterator[ChangeBlock]:
        """The changes behind `after` up to `through`; LogCut if the log does not reach back that far. Without an
        interner each block has its own."""

        def gathering() -> GatheredChanges:
            return GatheredChanges(life.table, Interner() if interner is None else interner, after, through)

        gathered, updates, last = gathering(), 0, 0
        for run in self.runs(life, after, through, start):
            if run.records:
                gathered.add(run)
                updates += run.updates(after, through)
                last = min(run.last_change, through)
            if updates >= _ROWS_AT_ONCE or gathered.size_bytes >= _BYTES_AT_ONCE:
                yield ChangeBlock(gathered.settled(), gathered.interner, updates, last)
                gathered, updates = gathering(), 0
        if updates:
            yield ChangeBlock(gathered.settled(), gathered.interner, updates, last)

    def counts(self, life: Life, after: int, through: int, start: LogPosition | None) -> Iterator[int]:
        """How many updates of the table there are behind `after` up to `through`, stretch by stretch of the log;
        LogCut as above."""
        for run in self.runs(life, after, through, start):
            yield run.updates(after, through)

    def bases(self, life: Life, through: int) -> Iterator[Base]:
        """The checkpoints with which a load up to `through` can begin, the newest first; those that are damaged, or
        removed in this moment, are left out."""
        for number, path in reversed(checkpoints(self._directory)):
            try:
                with closing(open_checkpoint(path)) as database:
                    seq = int(meta_of(path, database)["seq"])
                    if not life.created <= seq <= through:
                        continue
                    check(path, number, self._identity)
                    yield Base(path, seq, stored_name(database, life.table, life.created))
            except (FileNotFoundError, LogDamaged):
                continue
