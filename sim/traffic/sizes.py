"""Bytes of a frame by the rows in it, measured by packing frames with the network's own encoder.

What counts is what a link hands to its socket: the header part and the payload part of one Deliver frame.

    S-CN   rectangles  seq; il, ir, ol, or, best         what an engine's MIN channel puts on the wire, as blocks
    S-UN   unicast     seq; sub, best                    whose answer, and what it is now: no process of ours sends it,
                                                         so it gets the leanest form, blocks as rectangles have
    CN     row         seq, old.*, new.*, altered,       a change of `SELECT X, Y .. WHERE X BETWEEN` as an engine puts
                       key.0, row.0, row.1               it on the wire: for who keeps the rows of the range himself
           lean row    seq; key, old x, new x, y         the same row as blocks: the least that CN could do with

Not counted: ZMTP's and TCP/IP's own framing, acknowledgements, heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from hullcast.broker.engine.engine import Engine
from hullcast.network.compiled import part
from hullcast.network.link.header import encode_data
from hullcast.network.wire.arrays import Ints
from hullcast.network.wire.columns import Columns, take
from hullcast.network.wire.frames import Deliver, encode
from hullcast.network.wire.packing import pack

#: Frame and sequence numbers as in a system that has run for a while: from 65,536 to 4 billion they take 5 bytes.
NUMBER = 1_000_000
CHANNEL = 1
_HEADER_BYTES = len(encode_data(NUMBER, NUMBER))

#: Rows up to which the tables go. From 8,192 rows on, MessagePack writes the length of every block of 8-byte numbers
#: with four bytes; each further row then adds the same number of bytes for ever.
LAST = 8_193


@dataclass(frozen=True, slots=True, eq=False)
class WireSizes:
    """Bytes of frames. The tables are indexed by rows, 0: no frame; beyond their end `size_of` goes on linearly."""

    rectangles: Ints
    unicast: Ints
    row: int
    lean_row: int  # for comparison: CN's bytes are in proportion to `row`, so they scale by lean_row / row


@part
def size_of(table: Ints, rows: int) -> int:
    """Bytes of a frame with so many rows."""
    last = len(table) - 1
    if rows <= last:
        return int(table[rows])
    return int(table[last] + (rows - last) * (table[last] - table[last - 1]))


@cache
def wire_sizes() -> WireSizes:
    """The sizes of the wire format as it is now."""
    return WireSizes(_table(rectangle_bytes), _table(unicast_bytes), row_bytes(), block_bytes(1, 4))


def rectangle_bytes(rows: int) -> int:
    """Bytes of a frame with so many rectangles."""
    return column_bytes(wire_columns("SELECT MIN(Y) FROM POINTS WHERE X BETWEEN ? AND ?"), rows)


def unicast_bytes(rows: int) -> int:
    """Bytes of a frame with the new answers of so many subscriptions."""
    return block_bytes(rows, 2)


def row_bytes() -> int:
    """Bytes of a frame with a change of one row."""
    return column_bytes(wire_columns("SELECT X, Y FROM POINTS WHERE X BETWEEN ? AND ?"), 1)


def column_bytes(columns: Columns, rows: int) -> int:
    """Bytes of the frame that carries the first row so many times."""
    channels = {CHANNEL: take(columns, np.zeros(rows, np.int64))}
    return _HEADER_BYTES + len(encode(Deliver(NUMBER, channels)))


def block_bytes(rows: int, numbers: int) -> int:
    """Bytes of a frame in the form that rectangles have: a block of `seq`, and one of so many other numbers a row."""
    blocks = [bytes(8 * rows), bytes(8 * numbers * rows)]
    return _HEADER_BYTES + len(pack(["deliver", NUMBER, [[CHANNEL, *blocks]]]))


@cache
def wire_columns(sql: str) -> Columns:
    """What a real engine tells the subscribers of a query, in columns as they travel, when a row is inserted."""
    engine = Engine()
    engine.execute("CREATE TABLE POINTS (ID INTEGER PRIMARY KEY, X REAL, Y REAL)")
    channel = engine.open_channel(sql)
    batch = engine.upsert("POINTS", {"ID": 1, "X": 1.0, "Y": 1.0})
    return batch.messages[channel].wire()


def _table(size: Callable[[int], int]) -> Ints:
    """Sizes for 0 .. LAST rows. A row adds the same everywhere but where the length of a block takes a byte more."""
    table = np.zeros(LAST + 1, np.int64)
    table[1], table[LAST] = size(1), size(LAST)
    a_row = size(2) - table[1]
    between = [(1, LAST)]
    while between:
        low, high = between.pop()
        if table[high] - table[low] == a_row * (high - low):  # lengths only grow: nothing in between does
            table[low:high] = table[low] + a_row * np.arange(high - low)
        elif high - low > 1:
            middle = (low + high) // 2
            table[middle] = size(middle)
            between += [(low, middle), (middle, high)]
    return table
