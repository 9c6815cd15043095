"""One Spark session for all tests that ask for it; tests/conftest.py has them run in one worker of pytest-xdist."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from hullcast.sim.spark.options import SparkOptions
from hullcast.sim.spark.session import spark_session
from hullcast.sim.spark.storage import Place, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

_MOUNT = "spark.hadoop.fs.viewfs.mounttable.tests.link./elsewhere"


@pytest.fixture(scope="session")
def elsewhere_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `viewfs://tests/elsewhere` is."""
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture
def elsewhere(spark: SparkSession, elsewhere_folder: Path) -> Place:
    """A folder that is not there yet, in a storage that only Spark reaches: Hadoop's own viewfs."""
    return place_of(f"viewfs://tests/elsewhere/{uuid4().hex}")


@pytest.fixture(scope="session")
def spark(elsewhere_folder: Path) -> Iterator[SparkSession]:
    """A small session on two cores. A task may fail three times. The JVM's second compiler would cost more than it
    brings in a minute of tests."""
    options = {"spark_sql_shuffle_partitions": "4", "spark_driver_extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    with spark_session(
        SparkOptions("local[2,4]", {_MOUNT: f"file:{elsewhere_folder}"}, memory="1g"), app="tests", **options
    ) as session:
        yield session
