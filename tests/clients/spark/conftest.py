"""One cluster of processes for all tests of the data source, and the Spark session of all tests."""

from __future__ import annotations

import itertools
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession

import hullcast
from hullcast.clients.sdk.blocking import LoopThread
from hullcast.network.settings.common import LinkSettings
from tests.sim.conftest import elsewhere_folder, spark  # noqa: F401  fixtures
from tests.support.cluster import PATIENCE_S, Cluster, cluster

T = TypeVar("T")

COLUMNS = "SYMBOL TEXT PRIMARY KEY, SECTOR TEXT, RISK REAL, PER REAL, LOTS INTEGER, AT TIMESTAMP"


class Live:
    """A server, a root node and two gateways, as processes; and a client without asyncio."""

    def __init__(self, thread: LoopThread, made: Cluster, folder: Path, session: SparkSession) -> None:
        self._thread, self.cluster, self.folder, self.spark = thread, made, folder, session
        self.url = ",".join(gateway.endpoint for gateway in made.gateways)
        self.db = hullcast.connect_blocking(self.url, timeout=PATIENCE_S)
        self._names = itertools.count(1)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.wait(work)

    def table(self, columns: str = COLUMNS) -> str:
        """A new table, empty."""
        name = f"T{next(self._names)}"
        self.db.execute(f"CREATE TABLE {name} ({columns})")
        return name

    def options(self, table: str, **options: object) -> dict[str, str]:
        return {"url": self.url, "table": table, "timeout": str(PATIENCE_S)} | {k: str(v) for k, v in options.items()}

    def read(self, table: str, **options: object) -> DataFrame:
        reader: DataFrameReader = self.spark.read.format("hullcast").options(**self.options(table, **options))
        return reader.load()

    def write(self, frame: DataFrame, table: str, **options: object) -> None:
        writer: DataFrameWriter = frame.write.format("hullcast").options(**self.options(table, **options))
        writer.mode("append").save()

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.db.query(sql, *parameters)]


@pytest.fixture(scope="package")
def live(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:  # noqa: F811
    folder = tmp_path_factory.mktemp("live")
    hullcast.spark.register(spark)
    thread = LoopThread("tests live")
    made = cluster(3, folder / "data", processes=folder, link=LinkSettings(heartbeat_s=0.5, silence_s=5.0))
    try:
        entered = thread.wait(made.__aenter__())
        found = Live(thread, entered, folder, spark)
        yield found
        found.db.close()
        thread.wait(made.__aexit__(None, None, None))
    finally:
        thread.stop()
