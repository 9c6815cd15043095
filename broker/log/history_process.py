"""The process that reads the change history for the server: a request at a time.

    server --(the directory, then a `HistoryRequest`)--> this process --(a reply's body, or a Failed)--> server

Each request gives one portion, in about a second at most, so that others have their turns.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hullcast.broker.log.history import HistoryReader, Life, PortionLimits
from hullcast.broker.processes.ends import BlockingEnd
from hullcast.broker.processes.logs import log_through
from hullcast.network import compiled
from hullcast.network.wire.bodies import Body, ChangedRows, Failed, ReadChanges, ReadTable, RowsAsOf, encode
from hullcast.network.wire.errors import HistoryGone, HullcastError, InvariantBroken, to_wire
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    import socket

    from hullcast.broker.tables.schema import Table

log = logger(__name__)

#: Rows and bytes of a portion, about.
PORTION_ROWS, PORTION_BYTES = 50_000, 2 << 20
#: Seconds after which a portion ends, whatever is in it.
PORTION_S = 0.5


class HistoryRequest(NamedTuple):
    """A request, and what the server knows of its table; all up to update `synced` is on disk. It is about changes
    behind `before`, or the table as of it."""

    table: Table
    created: int
    asked: ReadChanges | ReadTable
    before: int
    synced: int


def serve(connection: socket.socket) -> None:
    """Answer requests until the server is gone."""
    compiled.load()  # not within the time of the first portion, which would end early
    end = BlockingEnd(connection)
    log_through(end.write)
    reader = HistoryReader(Path(end.read()))
    while True:
        end.write(_answer(reader, end.read()))
        end.flush()


def _answer(reader: HistoryReader, reading: HistoryRequest) -> bytes:
    try:
        return encode(_read(reader, reading))
    except HullcastError as error:
        return encode(Failed(*to_wire(error)))
    except MemoryError:
        return encode(
            Failed(*to_wire(InvariantBroken("the server has too little memory to read that table's history")))
        )
    except Exception as error:  # a fault of ours: told, rather than tried again until the client gives up
        log.exception("read of the change history failed")
        bug = InvariantBroken(f"the history cannot be read: {type(error).__name__} {error}")
        return encode(Failed(*to_wire(bug)))


def _read(reader: HistoryReader, reading: HistoryRequest) -> Body:
    until = time.monotonic() + PORTION_S
    limits = PortionLimits(PORTION_ROWS, PORTION_BYTES, lambda: time.monotonic() >= until)
    life, asked = Life(reading.table, reading.created), reading.asked
    if isinstance(asked, ReadChanges):
        through = reading.synced if asked.through is None else min(asked.through, reading.synced)
        try:
            changes = reader.changes(life, reading.before, through, limits)
        except HistoryGone as error:
            if asked.after is not None or error.first <= reading.before + 1:
                raise
            # the first that is kept, but it was removed meanwhile: from what is the first now
            changes = reader.changes(life, error.first - 1, max(through, error.first - 1), limits)
        return ChangedRows(changes.last, through, changes.seq, changes.deleted, changes.columns)
    rows = reader.rows(life, reading.before, asked.part, asked.parts, asked.start, limits)
    return RowsAsOf(reading.before, rows.next, rows.columns)
