"""Rows a second from the commit log into the file of a table, beside plain SQLite.

The log is written here as a server writes it, without one: a data directory for each case. The table has rows and a
file before; each round of each case is then one load, and cases take turns.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from hullcast.broker.log.history import Life
from hullcast.broker.warehouse.files.table_file import open_for_reading
from hullcast.broker.warehouse.files.table_loader import Loader
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.bench.frame.log import WrittenLog
from hullcast.sim.bench.frame.timing import MeasurementFailed, turns
from hullcast.sim.bench.frame.worker import in_batches
from hullcast.sim.bench.warehouse.workload import GROUPS
from hullcast.sim.seeds import generator

BATCH = 1_000
TABLE = "LOADED"
#: A load of repeating keys has so many updates of each key, on average.
REPEATS = 10


@dataclass(frozen=True, slots=True)
class LoadCase:
    """Which keys change, and how they arrived."""

    keys: str  # "new", "distinct" (each row that is there, once), "repeating" (a tenth of them, again and again)
    batch: int  # rows of a record of the log
    text: bool = False  # the key is a text
    others: int = 0  # tables in the same log that get as many rows as this one: a load must pass them over

    @property
    def name(self) -> str:
        """For people."""
        how = f"batches of {self.batch:,}" if self.batch > 1 else "single rows"
        beside = f", one of {1 + self.others} tables" if self.others else ""
        return f"{self.keys} keys{' (text)' if self.text else ''}, {how}{beside}"

    def create(self, table: str) -> str:
        """A CREATE TABLE."""
        kind = "TEXT" if self.text else "INTEGER"
        return f"CREATE TABLE {table} (ID {kind} PRIMARY KEY, GRP INTEGER, V REAL)"


CASES = (
    *(LoadCase(keys, batch) for keys in ("new", "distinct", "repeating") for batch in (BATCH, 1)),
    *(LoadCase(keys, BATCH, text=True) for keys in ("new", "distinct")),
    LoadCase("distinct", BATCH, others=7),
)


@dataclass(frozen=True, slots=True)
class LoadingLine:
    """One case: medians over rounds."""

    name: str
    updates: int  # of a load
    written: int  # rows written by it: each key once
    rows_s: float  # updates a second
    plain_rows_s: float  # plain SQLite: rows already in Python, each applied as it comes, in one transaction
    first_rows_s: float  # of the load that made the file, from the log

    @property
    def ratio(self) -> float:
        """As many times as fast as plain SQLite."""
        return self.rows_s / self.plain_rows_s


@dataclass(frozen=True, slots=True)
class LoadTurn:
    """One load: updates of the table, rows written, seconds, and those of plain SQLite."""

    updates: int
    written: int
    took_s: float
    plain_s: float


class _LoadedTable:
    """A data directory that gets rows as from a server, and the loads of its table."""

    def __init__(self, path: Path, case: LoadCase, rows: int, seed: int) -> None:
        self.case, self._path, self._rows = case, path, rows
        self._draw = generator(seed, "bench/warehouse/loading", case.name)
        self._keys = 0  # keys so far, from 0 on
        self._log = WrittenLog(path)
        self._life = Life(self._log.create(case.create(TABLE)), 0)
        for table in self._others():
            self._log.create(case.create(table))
        self._loader = Loader(path)
        self._plain = sqlite3.connect(path / "plain.sqlite", isolation_level=None)
        self._plain.execute("PRAGMA journal_mode = WAL")
        self._plain.execute("PRAGMA synchronous = NORMAL")
        self._plain.execute(case.create(TABLE))

    def _others(self) -> list[str]:
        return [f"OTHER{number}" for number in range(self.case.others)]

    def turn(self, how: str) -> LoadTurn:
        """Append the rows of one load to the log, and load them; then the same with plain SQLite."""
        ids = self._next(how)
        values: Floats = self._draw.random(len(ids))
        keys: list[Any] = [f"key-{i:09d}" for i in ids.tolist()] if self.case.text else ids.tolist()
        columns: dict[str, Any] = {"ID": keys, "GRP": ids % GROUPS, "V": values}
        batch = self.case.batch if how != "first" else BATCH
        for some in in_batches(columns, batch):
            for table in (*self._others(), TABLE):
                self._log.append(table, some)
        self._log.sync()
        began = perf_counter()
        loaded = self._loader.load(self._life, self._log.seq)
        took_s = perf_counter() - began
        ready = list(zip(keys, (ids % GROUPS).tolist(), values.tolist(), strict=True))
        began = perf_counter()
        self._plain.execute("BEGIN")
        self._plain.executemany(f"INSERT OR REPLACE INTO {TABLE} VALUES (?, ?, ?)", ready)
        self._plain.execute("COMMIT")
        return LoadTurn(loaded.rows_read, len(set(keys)), took_s, perf_counter() - began)

    def _next(self, how: str) -> Ints:
        if how in ("first", "new"):
            self._keys += self._rows
            return np.arange(self._keys - self._rows, self._keys)
        if how == "distinct":
            return self._draw.permutation(self._keys)[: self._rows]
        return self._draw.integers(max(1, self._rows // REPEATS), size=self._rows)

    def close(self) -> None:
        """Close all; both files must hold the same rows."""
        everything = f"SELECT * FROM {TABLE} ORDER BY ID"
        database = open_for_reading(self._path, [self._life])
        with closing(self._log), closing(self._loader), closing(self._plain), closing(database):
            same = database.execute(everything).fetchall() == self._plain.execute(everything).fetchall()
        if not same:
            raise MeasurementFailed(f"{self.case.name}: the file is not what plain SQLite has")


def loading(rows: int, singles: int, rounds: int, seed: int, tick: Callable[[str], None]) -> tuple[LoadingLine, ...]:
    """Measure all cases: loads of so many rows (of `singles`, where each row is a record of its own)."""
    done: list[list[LoadTurn]] = [[] for _ in CASES]
    with tempfile.TemporaryDirectory(prefix="hullcast-bench-", ignore_cleanup_errors=True) as folder:
        tables = [
            _LoadedTable(Path(folder) / str(number), case, rows if case.batch > 1 else singles, seed)
            for number, case in enumerate(CASES)
        ]
        for turn in turns(rounds, tick, "loading"):
            for of, table in zip(done, tables, strict=True):
                of.append(table.turn(table.case.keys if turn else "first"))
        for table in tables:
            table.close()
    return tuple(_line(case.name, of) for case, of in zip(CASES, done, strict=True))


def _line(name: str, turns: list[LoadTurn]) -> LoadingLine:
    first, *others = turns
    return LoadingLine(
        name,
        others[-1].updates,
        others[-1].written,
        median(turn.updates / turn.took_s for turn in others),
        median(turn.updates / turn.plain_s for turn in others),
        first.updates / first.took_s,
    )
