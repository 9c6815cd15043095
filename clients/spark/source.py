"""The data source itself: which reader or writer serves a `format("hullcast")`, by its options."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSource

from hullcast.clients.spark.options import WRITE, Options
from hullcast.clients.spark.schema import TableColumns, columns_of
from hullcast.clients.spark.writing import BatchWriter, StreamWriter, Target, refuse_overwrite
from hullcast.network.wire.errors import BadSetting

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from hullcast.clients.spark.options import Access
    from hullcast.network.wire.containers import Nan


class HullcastSource(DataSource):
    """`format("hullcast")`. Spark makes one on the driver for each `load`, `save` or `start`."""

    @classmethod
    def name(cls) -> str:
        """What users write in `format`."""
        return "hullcast"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`: checks the columns, and gives the write its identity."""
        options, table, deleted, nan = self._written(overwrite)
        access = options.access()
        columns = asyncio.run(_described(access, table))
        columns.check_written(schema, deleted)
        return BatchWriter(Target(access, columns, deleted, nan), os.urandom(16))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`; made twice for each micro-batch, so the tasks check the columns."""
        options, table, deleted, nan = self._written(overwrite)
        return StreamWriter(options.access(), table, schema, deleted, nan)

    def _written(self, overwrite: bool) -> tuple[Options, str, str | None, Nan]:
        options = Options(self.options, WRITE, "a write")
        refuse_overwrite(overwrite)
        nan = options.text("nan") or "refuse"
        if nan not in ("refuse", "null"):
            raise BadSetting("option nan", nan, "must be refuse or null")
        return options, options.needed("table", "STOCK"), options.text("deleted"), cast("Nan", nan)


async def _described(access: Access, table: str) -> TableColumns:
    async with access.client() as client:
        return await columns_of(client, table)
