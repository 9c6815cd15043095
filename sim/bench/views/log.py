"""A data directory with the tables of the four-way join, written as a server does, without one."""

from __future__ import annotations

from pathlib import Path

from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.log.history import Life
from hullcast.broker.log.record import NOBODY, RecordKind
from hullcast.broker.log.recovery import open_directory
from hullcast.broker.queries.view import bind_view
from hullcast.broker.server.changing import apply_record
from hullcast.broker.sql.create import CreateTable, parse_statement
from hullcast.broker.sql.view import CreateView
from hullcast.broker.tables.schema import Table, fold
from hullcast.broker.warehouse.view_file import ViewLife
from hullcast.network.wire import bodies
from hullcast.network.wire.values import rows_to_columns
from hullcast.sim.bench.views.workload import CREATE_TABLES, ChangedOffers, create_view, first_rows

_FILL_BATCH = 20_000


class OfferLog:
    """The tables with their first rows, and what comes then."""

    def __init__(self, path: Path, suppliers: int, seed: int) -> None:
        self.path = path
        self._data = open_directory(path, ServedEngine(), apply_record, history_bytes=1 << 40)
        self._tables: dict[str, Table] = {}
        for create in CREATE_TABLES.values():
            self._data.log.append(RecordKind.STATEMENT, create.encode(), first=1, count=0)
            statement = parse_statement(create)
            assert isinstance(statement, CreateTable), "as written there"
            self._tables[fold(statement.table.name)] = statement.table
        for table, columns in first_rows(suppliers, seed).items():
            rows = len(next(iter(columns.values())))
            for start in range(0, rows, _FILL_BATCH):
                some = {name: column[start : start + _FILL_BATCH] for name, column in columns.items()}
                self.append(ChangedOffers(table, some))
        self.sync()

    @property
    def seq(self) -> int:
        """The last sequence number."""
        return self._data.log.seq

    def append(self, changed: ChangedOffers) -> int:
        """Append rows as one record; the sequence number of the last of them."""
        columns, log = rows_to_columns(changed.columns)[0], self._data.log
        payload = bodies.encode(bodies.Publish(changed.table, columns, None, NOBODY, 0))
        log.append(RecordKind.BATCH, payload, first=log.seq + 1, count=len(next(iter(changed.columns.values()))))
        return log.seq

    def sync(self) -> None:
        """Have on disk what was appended."""
        self._data.log.write_and_sync()

    def view(self, name: str, response_time_s: float) -> ViewLife:
        """A view of the four-way join, created now."""
        statement = parse_statement(create_view(name, response_time_s))
        assert isinstance(statement, CreateView), "as written there"
        definition = bind_view(statement, self._tables)
        return ViewLife(definition, self.seq, tuple(Life(table, 0) for table in definition.tables))

    def close(self) -> None:
        """Close the directory."""
        self._data.close()
