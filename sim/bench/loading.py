"""How fast the warehouse loads a table: `python -m hullcast.sim.bench.loading`.

One loader, a log as a server writes it, six columns (a TEXT, two REAL, an INTEGER, a TIMESTAMP beside the key). The
file holds every key already, so that every row of the log changes one: the dear case. Rates are rows of the log per
second: by the clock, and per second of the loader's own CPU, which other processes on the machine hardly change.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hullcast.broker.log.history import Life
from hullcast.broker.log.record import RecordKind
from hullcast.broker.log.recovery import open_directory
from hullcast.broker.server.changing import apply_record
from hullcast.broker.warehouse.loader import Loader
from hullcast.network.wire import bodies
from hullcast.network.wire.values import rows_to_columns

if TYPE_CHECKING:
    from hullcast.broker.log.commit_log import CommitLog
    from hullcast.network.wire.arrays import Ints

_GROUP = 500  # records that are made durable together
_FIRST = np.datetime64("2026-01-01", "us")


class LoadRate(NamedTuple):
    """One case and what was measured."""

    key: str
    rows_per_record: int
    distinct: bool
    rows: int
    rows_written: int
    per_s: float
    per_cpu_s: float
    counted_per_s: float  # rows, when only headers are looked at


def measure_loading(key: str, rows_per_record: int, distinct: bool, rows: int) -> LoadRate:
    """Load `rows` changes into a file that has all keys: each key once, or each of a twentieth of them many times."""
    with TemporaryDirectory() as folder:
        data = open_directory(Path(folder) / "data", apply_record)
        create = (
            f"CREATE TABLE STOCK (ID {key} PRIMARY KEY, SECTOR TEXT, RISK REAL, PER REAL, SHARES INTEGER, AT TIMESTAMP)"
        )
        data.engine.execute(create)
        data.log.append(RecordKind.STATEMENT, create.encode(), first=1, count=0)
        random = np.random.default_rng(1)
        _write(data.log, key, np.arange(rows), 10_000)
        before = data.log.seq
        chosen = random.permutation(rows) if distinct else random.integers(0, max(1, rows // 20), rows)
        _write(data.log, key, chosen, rows_per_record)
        life, loader = Life(data.engine.store_of("STOCK").table, 0), Loader(data.path)
        loader.load(life, before)
        clock, cpu = time.perf_counter(), time.process_time()
        loaded = loader.load(life, data.log.seq)
        took, cpu_took = time.perf_counter() - clock, time.process_time() - cpu
        clock = time.perf_counter()
        counted = loader.count(life, before, data.log.seq)
        count_took = time.perf_counter() - clock
        loader.close()
        data.close()
    assert loaded.rows_read == counted == rows
    return LoadRate(
        key, rows_per_record, distinct, rows, loaded.rows_written, rows / took, rows / cpu_took, rows / count_took
    )


def _write(log: CommitLog, key: str, keys: Ints, rows_per_record: int) -> None:
    for number, start in enumerate(range(0, len(keys), rows_per_record), 1):
        some, first = keys[start : start + rows_per_record], log.seq + 1
        rows: dict[str, Any] = {
            "ID": some if key == "INTEGER" else [f"SYM{one:07}" for one in some.tolist()],
            "SECTOR": [f"S{one % 20}" for one in some.tolist()],
            "RISK": some * 0.25,
            "PER": np.arange(len(some)) + first / 7,
            "SHARES": np.arange(len(some)) + first,
            "AT": (_FIRST + first + np.arange(len(some))),
        }
        if rows_per_record == 1:
            rows = {name: np.asarray(values)[0] for name, values in rows.items()} | {"AT": rows["AT"][0].item()}
        columns, absent = rows_to_columns(rows)
        body = bodies.Publish("STOCK", columns, absent, b"p" * 16, number)
        log.append(RecordKind.BATCH, bodies.encode(body), first=first, count=len(some))
        if number % _GROUP == 0:
            log.write_and_sync()
    log.write_and_sync()


def main() -> None:
    """Print a line per case."""
    rows = 20_000 if "--quick" in sys.argv else 100_000
    measure_loading("TEXT", 1, True, 100)  # compiled before the clock starts
    for key in ("INTEGER", "TEXT"):
        for rows_per_record in (1000, 1):
            for distinct in (True, False):
                rate = measure_loading(key, rows_per_record, distinct, rows)
                keys = "distinct" if distinct else "repeating"
                line = (
                    f"{key:7} key, {rows_per_record:4} rows a record, {keys:9} keys: {rate.per_s:9,.0f} rows/s, "
                    f"{rate.per_cpu_s:9,.0f} rows per CPU second ({rate.rows_written:,} of {rows:,} written); "
                    f"headers alone {rate.counted_per_s:,.0f} rows/s"
                )
                sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
