"""The process that reads the change history for the server: a request at a time, from stdin to stdout.

    server --(stdin: a pickled `HistoryRequest`)--> this process --(stdout: a reply's body, or a Failed)--> server

Each request gives one portion, in about a second at most, so that others have their turns. Only our own server writes
to stdin, hence pickle. The process ends when stdin does.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hullcast.broker.log.history import HistoryReader, Life, PortionLimits
from hullcast.broker.processes.background import step_back
from hullcast.network import compiled
from hullcast.network.wire.bodies import Body, ChangedRows, Failed, ReadChanges, ReadTable, RowsAsOf, encode
from hullcast.network.wire.errors import HullcastError, InvariantBroken, to_wire

if TYPE_CHECKING:
    from hullcast.broker.tables.schema import Table

SIZE = struct.Struct("<Q")
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


def main() -> None:
    """Serve until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when this ends
    step_back(500)
    compiled.load()  # not within the time of the first portion, which would end early
    reader = HistoryReader(Path(sys.argv[1]))
    source, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with contextlib.suppress(BrokenPipeError):  # the server is gone
        while len(header := source.read(SIZE.size)) == SIZE.size:
            body = _answer(reader, pickle.loads(source.read(SIZE.unpack(header)[0])))
            replies.write(SIZE.pack(len(body)))
            replies.write(body)
            replies.flush()


def message_bytes(reading: HistoryRequest) -> bytes:
    """A request as it goes to stdin."""
    content = pickle.dumps(reading, protocol=5)
    return SIZE.pack(len(content)) + content


def _answer(reader: HistoryReader, reading: HistoryRequest) -> bytes:
    try:
        return encode(_read(reader, reading))
    except HullcastError as error:
        return encode(Failed(*to_wire(error)))
    except MemoryError:
        return encode(
            Failed(*to_wire(InvariantBroken("the server has too little memory to read that table's history")))
        )
    except Exception as error:  # noqa: BLE001  a fault of ours: told, rather than tried again until the client gives up
        traceback.print_exc()
        bug = InvariantBroken(f"the history cannot be read: {type(error).__name__} {error}")
        return encode(Failed(*to_wire(bug)))


def _read(reader: HistoryReader, reading: HistoryRequest) -> Body:
    until = time.monotonic() + PORTION_S
    limits = PortionLimits(PORTION_ROWS, PORTION_BYTES, lambda: time.monotonic() >= until)
    life, asked = Life(reading.table, reading.created), reading.asked
    if isinstance(asked, ReadChanges):
        through = reading.synced if asked.through is None else min(asked.through, reading.synced)
        changes = reader.changes(life, reading.before, through, limits)
        return ChangedRows(changes.last, through, changes.seq, changes.deleted, changes.columns)
    rows = reader.rows(life, reading.before, asked.part, asked.parts, asked.start, limits)
    return RowsAsOf(reading.before, rows.next, rows.columns)
