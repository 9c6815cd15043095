"""Reading a checkpoint back into an engine: the same values, to the bit."""

from __future__ import annotations

import gc
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hullcast.broker.log.checkpoint import CHECKSUM, FORMAT, ROWS_AT_ONCE, checksum
from hullcast.broker.log.publishers import Entry
from hullcast.broker.tables.schema import ColumnType, Table
from hullcast.network.wire.errors import HullcastError, LogDamaged

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hullcast.broker.engine.engine import Engine

#: Receipts of format 2 are left out: their ids have another form, and no client of that time can send a change again.
READABLE = (2, FORMAT)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a checkpoint brought back."""

    number: int
    seq: int
    rows: int
    receipts: list[Entry]
    forgotten: list[bytes]


def check(path: Path, number: int, identity: bytes) -> None:
    """LogDamaged unless the file is as it was written, by this data directory."""
    if not _is_whole(path):
        raise _damaged(path, "its checksum is wrong")
    with closing(_open(path)) as database:
        meta = _meta(path, database)
    if meta.get("format") not in READABLE:
        raise _damaged(path, f"it has format {meta.get('format')}, this program reads {FORMAT}")
    if meta.get("identity") != identity:
        raise _damaged(path, "it belongs to another data directory")
    if meta.get("number") != number:
        raise _damaged(path, f"it holds record {meta.get('number')}, not as its name says")


def load(path: Path, engine: Engine) -> Loaded:
    """Fill an engine without tables with those of a checkpoint that passed `check`."""
    rows = 0
    collecting = gc.isenabled()
    gc.disable()  # millions of values come and none of them is garbage: looking for it takes a quarter of the time
    try:
        with closing(_open(path)) as database:
            meta = _meta(path, database)
            stored = database.execute('SELECT stored, "create" FROM hullcast_tables ORDER BY rowid').fetchall()
            for name, create in stored:
                before = set(engine.tables)
                engine.execute(create)
                (declared,) = set(engine.tables) - before
                rows += _load_rows(database, name, engine, engine.tables[declared])
            receipts, forgotten = _load_receipts(database) if meta["format"] == FORMAT else ([], [])
    except (sqlite3.Error, HullcastError, ValueError) as error:
        raise _damaged(path, f"its content is not what it should be: {error}") from error
    finally:
        if collecting:
            gc.enable()
    engine.start_at(meta["seq"])
    return Loaded(meta["number"], meta["seq"], rows, receipts, forgotten)


def _load_receipts(database: sqlite3.Connection) -> tuple[list[Entry], list[bytes]]:
    receipts = database.execute("SELECT * FROM hullcast_receipts ORDER BY rowid")
    forgotten = database.execute("SELECT key FROM hullcast_forgotten")
    return list(map(Entry._make, receipts)), [key for (key,) in forgotten]


def _load_rows(database: sqlite3.Connection, stored: str, engine: Engine, table: Table) -> int:
    rows = 0
    cursor = database.execute(f'SELECT * FROM "{stored}"')
    cursor.arraysize = ROWS_AT_ONCE
    while block := cursor.fetchmany():
        columns = zip(table.columns, zip(*block, strict=True), strict=True)
        engine.upsert(table.name, {column.name: _column(column.type, values) for column, values in columns})
        rows += len(block)
    return rows


def _column(kind: ColumnType, values: Sequence[Any]) -> list[Any] | NDArray[Any]:
    """A column as the engine's door takes it."""
    if kind is not ColumnType.TIMESTAMP:
        return list(values)
    codes = np.array(values, dtype=np.float64)  # None becomes NaN
    null = np.isnan(codes)
    instants = np.where(null, 0.0, codes).astype(np.int64).astype("datetime64[us]")
    instants[null] = np.datetime64("NaT")
    return instants


def _is_whole(path: Path) -> bool:
    with path.open("rb") as file:
        header = file.read(CHECKSUM.stop)
    return len(header) == CHECKSUM.stop and checksum(path) == int.from_bytes(header[CHECKSUM], "big")


def _open(path: Path) -> sqlite3.Connection:
    """Read only, and without looking for a journal beside it."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None)


def _meta(path: Path, database: sqlite3.Connection) -> dict[str, Any]:
    try:
        return dict(database.execute("SELECT name, value FROM hullcast_meta"))
    except sqlite3.Error as error:
        raise _damaged(path, f"SQLite says: {error}") from error


def _damaged(path: Path, reason: str) -> LogDamaged:
    return LogDamaged(str(path), -1, reason, "Restore it from a copy, or remove it if an older checkpoint is left")
