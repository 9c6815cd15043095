"""What `bench streams` publishes live: ticks for many filters, and two streams to be joined."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.seeds import generator

#: The stream of ticks, and a table that gets the same rows, each in the place of an older one.
TICKS, TABLE = "TICKS", "TICK_ROWS"
TABLE_KEYS = 10_000
CREATE_TICKS = (
    f"CREATE STREAM {TICKS} (X REAL, V REAL)",
    f"CREATE TABLE {TABLE} (ID INTEGER PRIMARY KEY, X REAL, V REAL)",
)
#: Two streams, and the stream of their join.
TRADES, QUOTES, HOT = "TRADES", "QUOTES", "HOT"
CREATE_JOINED = tuple(f"CREATE STREAM {name} (TS TIMESTAMP, K INTEGER, SENT INTEGER)" for name in (TRADES, QUOTES))
LISTEN = f"SELECT T_SENT, Q_SENT FROM {HOT} WHERE K BETWEEN ? AND ?"
_BEGIN = np.datetime64("2024-05-01T12:00:00", "us")


def filters_of(source: str) -> str:
    """The filter that is subscribed to many times, over the stream or the table."""
    return f"SELECT X, V FROM {source} WHERE X BETWEEN ? AND ?"


def filter_ranges(count: int, wanted_by: float, seed: int) -> tuple[Floats, Floats]:
    """So many ranges; a tuple is in `wanted_by` of them on average."""
    width = wanted_by / count
    low: Floats = generator(seed, "bench/streams/filters", wanted_by).random(count) * (1 - width)
    return low, low + width


def ticks(count: int, seed: int) -> Floats:
    """The values that filters are about."""
    drawn: Floats = generator(seed, "bench/streams/ticks").random(count)
    return drawn


def tick_rows(source: str, x: Floats, start: int) -> dict[str, Any]:
    """Rows as they are published; `start` is the place of the first of them."""
    rows: dict[str, Any] = {"X": x, "V": x}
    return {"ID": (start + np.arange(len(x))) % TABLE_KEYS, **rows} if source == TABLE else rows


def hits(x: Floats, low: Floats, high: Floats) -> Ints:
    """In how many of the ranges each value is."""
    return np.searchsorted(np.sort(low), x, "right") - np.searchsorted(np.sort(high), x, "left")


def create_hot(rows: int) -> str:
    """The join of the two streams, over windows of so many rows each."""
    return (
        f"CREATE STREAM {HOT} AS SELECT t.K AS K, t.SENT AS T_SENT, q.SENT AS Q_SENT "
        f"FROM {TRADES} [ROWS {rows}] t JOIN {QUOTES} [ROWS {rows}] q ON t.K = q.K"
    )


def joined_keys(stream: str, keys: int, start: int, stop: int, seed: int) -> Ints:
    """The keys of tuples `start` to `stop` of a stream, the same however they are cut."""
    block = 1 << 16
    parts = [
        generator(seed, "bench/streams/keys", stream, number).integers(keys, size=block)
        for number in range(start // block, (stop - 1) // block + 1)
    ]
    offset = start // block * block
    found: Ints = np.concatenate(parts)[start - offset : stop - offset]
    return found


def joined_rows(stream: str, keys: Ints, start: int, sent: int) -> dict[str, Any]:
    """Tuples of one of the two streams, in times that alternate with those of the other."""
    places = 2 * (start + np.arange(len(keys))) + (stream == QUOTES)
    return {"TS": _BEGIN + places.astype("timedelta64[us]"), "K": keys, "SENT": np.full(len(keys), sent)}


def time_after(count: int) -> datetime:
    """A time behind the first `count` tuples of both streams."""
    moment: datetime = (_BEGIN + np.timedelta64(2 * count + 2, "us")).astype(datetime)
    return moment.replace(tzinfo=UTC)
