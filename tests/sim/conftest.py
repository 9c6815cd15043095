"""One Spark session for all tests that ask for it, in one worker of pytest-xdist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hullcast.sim.spark.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

GROUP = "spark"


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whoever uses the session goes to the same worker, so that it starts once."""
    if not config.pluginmanager.has_plugin("xdist"):
        return  # one process, and the mark is unknown
    for item in items:
        if GROUP in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(GROUP))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A small session on two cores. A task may fail three times. The JVM's second compiler would cost more than it
    brings in a minute of tests."""
    options = {"spark_sql_shuffle_partitions": "4", "spark_driver_extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    with spark_session("local[2,4]", app="tests", memory="1g", **options) as session:
        yield session
