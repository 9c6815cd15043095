"""A data directory that gets tables and rows as from a server, without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.log.record import NOBODY, RecordKind
from hullcast.broker.log.recovery import open_directory
from hullcast.broker.server.changing import apply_record
from hullcast.broker.sql.create import CreateTable, parse_statement
from hullcast.broker.tables.schema import Table
from hullcast.network.wire import bodies
from hullcast.network.wire.values import rows_to_columns


class WrittenLog:
    """Records are appended one by one, and are on disk after `sync`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = open_directory(path, ServedEngine(), apply_record, history_bytes=1 << 40)

    @property
    def seq(self) -> int:
        """The last sequence number."""
        return self._data.log.seq

    def create(self, sql: str) -> Table:
        """A CREATE TABLE."""
        self._data.log.append(RecordKind.STATEMENT, sql.encode(), first=1, count=0)
        statement = parse_statement(sql)
        assert isinstance(statement, CreateTable), "a CREATE TABLE"
        return statement.table

    def append(self, table: str, columns: dict[str, Any]) -> int:
        """Rows as one record; the sequence number of the last of them."""
        payload = bodies.encode(bodies.Publish(table, rows_to_columns(columns)[0], None, NOBODY, 0))
        count = len(next(iter(columns.values())))
        self._data.log.append(RecordKind.BATCH, payload, first=self.seq + 1, count=count)
        return self.seq

    def sync(self) -> None:
        """Have on disk what was appended."""
        self._data.log.write_and_sync()

    def close(self) -> None:
        """Close the directory."""
        self._data.close()
