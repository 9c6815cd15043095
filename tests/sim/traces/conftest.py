"""The Spark session, set for a few rows: compiling a plan costs more than the rows that go through it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="package")
def spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of all tests; given back as it was."""
    before = {name: spark.conf.get(name) for name in FEW_ROWS}
    for name, value in FEW_ROWS.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        assert old is not None
        spark.conf.set(name, old)
