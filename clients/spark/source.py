"""The data source itself: which reader or writer serves a `format("hullcast")`, by its options."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from hullcast.clients.spark import SEQ
from hullcast.clients.spark.options import EVENTS, READ, STREAM, WRITE, Options
from hullcast.clients.spark.reading import ChangesReader, ChangesStreamReader, TableReader
from hullcast.clients.spark.schema import TableColumns, columns_of
from hullcast.clients.spark.writing import BatchWriter, StreamWriter, Target
from hullcast.network.wire.errors import BadSetting, UsageError

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        SimpleDataSourceStreamReader,
    )

    from hullcast.clients.sdk.history import History
    from hullcast.clients.spark.events import EventsWanted
    from hullcast.clients.spark.options import ServerAccess
    from hullcast.network.wire.containers import Nan


class HullcastSource(DataSource):
    """`format("hullcast")`. Spark makes one on the driver for each `load`, `save` or `start`."""

    @classmethod
    def name(cls) -> str:
        """What users write in `format`."""
        return "hullcast"

    _seq: int | None = None  # what the table is read as of, once its columns were asked for
    _created: int | None = None  # of which table of that name they were

    # --- reading -------------------------------------------------------------------------------------------

    def schema(self) -> StructType:
        """The columns. A table's also say as of when it is read: by this DataFrame, now and later."""
        if "subscription" in self.options:
            return asyncio.run(self._question(Options(self.options, EVENTS, "a subscription")).schema())
        options = Options(self.options, (*READ, *STREAM), "a read")
        access, table = options.access(), options.needed("table", "STOCK")
        columns, span = asyncio.run(_history(access, table))
        self._created = span.created
        if options.flag("changes", False):
            return columns.changes()
        seq = options.whole("seq", 0)
        self._seq = span.last if seq is None else seq
        return StructType(columns.fields({SEQ: self._seq}))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        if "subscription" in self.options:
            raise UsageError("the events of a subscription are a stream; use spark.readStream")
        options = Options(self.options, READ, "a read")
        access, table = options.access(), options.needed("table", "STOCK")
        parts = options.partitions()
        if options.flag("changes", False):
            if "seq" in options:
                raise BadSetting("option seq", options.text("seq"), "with changes, give after and through instead")
            span = options.whole("after", 0), options.whole("through", 0)
            return ChangesReader(access, table, schema, span, parts, self._created)
        for name in ("after", "through"):
            if name in options:
                raise BadSetting(f"option {name}", options.text(name), 'needs .option("changes", "true")')
        seq = options.whole("seq", 0)
        return TableReader(access, table, schema, self._seq if seq is None else seq, parts, self._created)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream` of a table's changes; what NotImplemented means here is in `simpleStreamReader`."""
        if "subscription" in self.options:
            return super().streamReader(schema)
        options = Options(self.options, STREAM, "a stream")
        table = options.needed("table", "STOCK")
        if not options.flag("changes", False):
            raise UsageError(f'a stream of {table} reads its changes; add .option("changes", "true")')
        return ChangesStreamReader(
            options.access(),
            table,
            schema,
            options.starting(),
            options.whole("max_rows_per_trigger", 1),
            options.flag("fail_on_data_loss", True),
            options.partitions(),
        )

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        """For `spark.readStream` of a subscription: its events pass through the driver."""
        from hullcast.clients.spark.events import EventReader

        options = Options(self.options, EVENTS, "a subscription")
        resume = options.text("resume")
        if resume is not None and "starting_seq" in options:
            raise BadSetting("option startingSeq", options.text("starting_seq"), "resume says where to begin, too")
        return EventReader(self._question(options), schema, options.starting(), resume)

    def _question(self, options: Options) -> EventsWanted:
        """A subscription. Only these load the parser of SQL: every worker that starts imports this module."""
        from hullcast.clients.spark.events import EventsWanted

        sql = options.needed("subscription", "SELECT MIN(PER) FROM STOCK")
        return EventsWanted(options.access(), sql, options.parameters(), options.flag("fail_on_data_loss", True))

    # --- writing -------------------------------------------------------------------------------------------

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`: checks the columns, and gives the write its identity."""
        if overwrite:
            raise UsageError(
                'rows are added to a table or change it: use mode("append") (to empty a table, drop and create it)'
            )
        options, table, deleted, nan = self._written()
        access = options.access()
        columns = asyncio.run(_described(access, table))
        columns.check_written(schema, deleted)
        return BatchWriter(Target(access, columns, deleted, nan), os.urandom(16))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`; made twice for each micro-batch, so the tasks check the columns. In the mode `complete`
        (`overwrite`) a micro-batch has all rows of the result, and each is written again under its key."""
        options, table, deleted, nan = self._written()
        return StreamWriter(options.access(), table, schema, deleted, nan)

    def _written(self) -> tuple[Options, str, str | None, Nan]:
        options = Options(self.options, WRITE, "a write")
        nan = options.text("nan") or "refuse"
        if nan not in ("refuse", "null"):
            raise BadSetting("option nan", nan, "must be refuse or null")
        return options, options.needed("table", "STOCK"), options.text("deleted"), cast("Nan", nan)


async def _described(access: ServerAccess, table: str) -> TableColumns:
    async with access.client() as client:
        return await columns_of(client, table)


async def _history(access: ServerAccess, table: str) -> tuple[TableColumns, History]:
    async with access.client() as client:
        columns = await columns_of(client, table)
        return columns, await client.history(columns.name)
