"""A data directory that is written as a server writes it, and what its table T held after each update."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.log.history import Life
from hullcast.broker.log.record import RecordKind
from hullcast.broker.log.recovery import DataDirectory, open_directory
from hullcast.broker.scheduling.driver import finish
from hullcast.broker.server.changing import apply_record
from hullcast.broker.server.outcome import Outcome
from hullcast.network.wire import bodies
from hullcast.network.wire.frames import Origin, Request
from hullcast.network.wire.values import keys_to_column, rows_to_columns
from tests.support.durable import captured
from tests.support.office import Office

CREATE = "CREATE TABLE T (K TEXT PRIMARY KEY, I INTEGER, R REAL, W TIMESTAMP, S TEXT)"
OTHER = "CREATE TABLE U (K INTEGER PRIMARY KEY, V REAL)"
COLUMNS = ("K", "I", "R", "W", "S")
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
Row = tuple[Any, ...]
#: Keys of T, and rows as they are published.
KEYS = st.sampled_from(["a", "b", "c", "é", "", "a longer key"])
ROWS = st.fixed_dictionaries(
    {"K": KEYS},
    optional={
        "I": st.sampled_from([None, 0, -1, 2**53]),
        "R": st.sampled_from([None, 0.5, -1e300]),
        "W": st.sampled_from([None, NOON]),
        "S": st.sampled_from([None, "", "x", "ü" * 40]),
    },
)


class Ledger:
    """A data directory that is written as a server does, and what its table T held after each update."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path, self.options = path, {"segment_bytes": 2000, "history_bytes": 1 << 40, **options}
        self.number = 0
        self.rows: dict[str, Row] = {}
        self.at: dict[int, dict[str, Row]] = {0: {}}  # T as of each sequence number of its present life
        self.changes: list[tuple[int, str, Row | None]] = []
        self.updates: list[int] = []  # of T, also those that changed nothing
        self.open()
        self.execute(CREATE)
        self.execute(OTHER)

    def open(self) -> None:
        self.data: DataDirectory = open_directory(self.path, ServedEngine(), apply_record, **self.options)
        engine = self.data.engine
        self.office = Office(engine, self.data.publishers)

    def reopen(self) -> None:
        self.data.close()
        self.open()

    def checkpoint(self) -> None:
        self.data.write_checkpoint(captured(self.data))

    def ask(self, make: Callable[[int], bodies.Body]) -> bodies.Done:
        self.number += 1
        body = make(self.number)
        request = Request(1, (1,), Origin("", ""), bodies.encode(body))
        outcome = finish(self.office.work(body, request))
        assert isinstance(outcome.reply, bodies.Done), outcome.reply
        self.keep(outcome, *outcome.then)
        return outcome.reply

    def keep(self, *outcomes: Outcome) -> None:
        for outcome in outcomes:
            assert outcome.entry is not None
            kind, payload, first, count, publisher, number = outcome.entry
            self.data.log.append(kind, payload, first=first, count=count, publisher=publisher, publisher_number=number)
        self.data.log.write_and_sync()

    def execute(self, sql: str) -> None:
        self.ask(lambda number: bodies.Execute(sql, b"p" * 16, number))

    def create_again(self) -> None:
        self.execute("DROP TABLE T")
        self.execute(CREATE)
        self.rows, self.changes, self.updates = {}, [], []
        self.at = {self.seq: {}}

    def publish(self, rows: list[dict[str, Any]]) -> None:
        columns, absent = rows_to_columns(rows)
        done = self.ask(lambda number: bodies.Publish("t", columns, absent, b"p" * 16, number))
        for seq, row in enumerate(rows, done.first):
            old = self.rows.get(row["K"], (None,) * len(COLUMNS))
            new = tuple(row.get(name, before) for name, before in zip(COLUMNS, old, strict=True))
            self._change(seq, row["K"], new)

    def delete(self, keys: list[str]) -> None:
        done = self.ask(lambda number: bodies.Delete("T", keys_to_column(keys), b"p" * 16, number))
        for seq, key in enumerate(keys, done.first):
            self._change(seq, key, None)

    def elsewhere(self) -> None:
        columns, absent = rows_to_columns([{"K": 1, "V": 1.5}, {"K": 2}])
        done = self.ask(lambda number: bodies.Publish("U", columns, absent, b"p" * 16, number))
        for seq in range(done.first, done.last + 1):
            self.at[seq] = dict(self.rows)

    def deliver(self) -> None:
        """A result of a conditional subscription has a number of its own, and changes no row."""
        seq = self.data.engine.pass_number()
        self.data.log.append(RecordKind.RESULT, b"a name", first=seq, count=1)
        self.data.log.write_and_sync()
        self.at[seq] = dict(self.rows)

    def _change(self, seq: int, key: str, row: Row | None) -> None:
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row
        self.updates.append(seq)
        if "\0" not in key:
            self.changes.append((seq, key, row))
        self.at[seq] = dict(self.rows)

    @property
    def seq(self) -> int:
        return self.data.engine.seq

    @property
    def life(self) -> Life:
        store = self.data.engine.catalogue.store("T")
        return Life(store.table, store.created)
