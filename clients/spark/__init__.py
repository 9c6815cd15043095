"""`hullcast.spark`: tables, changes and subscriptions as a data source of Spark, `format("hullcast")` (SPARK.md).

hullcast.spark.register(spark)
spark.read.format("hullcast").option("url", "tcp://127.0.0.1:7600").option("table", "STOCK").load()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Where the schema of a table that was read says as of which sequence number.
SEQ = "hullcast.seq"


def register(spark: SparkSession) -> None:
    """Make `format("hullcast")` known to a session."""
    from hullcast.clients.spark.source import HullcastSource

    spark.dataSource.register(HullcastSource)


def seq_of(frame: DataFrame) -> int:
    """The sequence number that a table was read as of: the same for all partitions and all actions of the DataFrame."""
    for field in frame.schema.fields:
        if SEQ in field.metadata:
            return int(field.metadata[SEQ])
    raise UsageError(
        'no column of this DataFrame says when it was read; use the one that spark.read.format("hullcast") gave'
    )
