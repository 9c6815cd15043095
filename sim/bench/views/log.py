"""A data directory with the tables of the four-way join, written as a server does, without one."""

from __future__ import annotations

from pathlib import Path

from hullcast.broker.log.history import Life
from hullcast.broker.queries.view import bind_view
from hullcast.broker.sql.create import parse_statement
from hullcast.broker.sql.view import CreateView
from hullcast.broker.tables.schema import fold
from hullcast.broker.warehouse.files.view_file import ViewLife
from hullcast.sim.bench.frame.log import WrittenLog
from hullcast.sim.bench.frame.worker import FILL_ROWS
from hullcast.sim.bench.views.workload import CREATE_TABLES, create_view, first_rows


class OfferLog(WrittenLog):
    """The tables with their first rows, and what comes then."""

    def __init__(self, path: Path, suppliers: int, seed: int) -> None:
        super().__init__(path)
        self._tables = {fold(table.name): table for table in map(self.create, CREATE_TABLES.values())}
        for table, columns in first_rows(suppliers, seed).items():
            for start in range(0, len(next(iter(columns.values()))), FILL_ROWS):
                self.append(table, {name: column[start : start + FILL_ROWS] for name, column in columns.items()})
        self.sync()

    def view(self, name: str, response_time_s: float) -> ViewLife:
        """A view of the four-way join, created now."""
        statement = parse_statement(create_view(name, response_time_s))
        assert isinstance(statement, CreateView), "as written there"
        definition = bind_view(statement, self._tables)
        return ViewLife(definition, self.seq, tuple(Life(table, 0) for table in definition.tables))
