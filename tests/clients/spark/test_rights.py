"""Keys and rights of Spark's tasks: those of any client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import hullcast
from hullcast.clients.cli.processes.child import Child, start
from hullcast.clients.sdk.blocking import LoopThread
from tests.support.cluster import PATIENCE_S
from tests.support.processes import hull

CREATE = "CREATE TABLE {} (SYMBOL TEXT PRIMARY KEY, PER REAL)"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[str]:
    """A server with keys, and what it may be told by: `desk` may publish and query STOCK, and nothing else."""
    allow = ("--out", str(tmp_path), "--allow", str(tmp_path / "allow.toml"))
    assert hull("keygen", "--name", "server", *allow, "--node").returncode == 0
    assert hull("keygen", "--name", "admin", *allow, "--admin").returncode == 0
    assert hull("keygen", "--name", "desk", *allow, "--publish", "STOCK", "--query", "STOCK").returncode == 0
    words = ("server", "--data", str(tmp_path / "data"), "--listen", "tcp://127.0.0.1:0", "--json")
    keys = ("--key", str(tmp_path / "server.key"), "--allow", str(tmp_path / "allow.toml"))
    thread = LoopThread("tests secured")
    child: Child = thread.wait(start((*words, *keys), name="server", limit_s=PATIENCE_S))
    try:
        yield child.endpoint
    finally:
        thread.wait(asyncio.wait_for(child.stop(5.0), PATIENCE_S))
        thread.stop()


@pytest.mark.slow
def test_a_task_has_the_rights_of_its_key_and_no_plan_or_error_shows_the_secret(
    spark: SparkSession, secured: str, tmp_path: Path
) -> None:
    hullcast.spark.register(spark)
    keys = {"key": str(tmp_path / "desk.key"), "server_key": str(tmp_path / "server.pub")}
    with hullcast.connect_blocking(secured, key=tmp_path / "admin.key", server_key=tmp_path / "server.pub") as db:
        db.execute(CREATE.format("STOCK"))
        db.execute(CREATE.format("HIDDEN"))
    source = {"url": secured, "table": "STOCK", **keys}
    rows = spark.sql("SELECT 'IBM' AS SYMBOL, 11.5D AS PER")
    rows.write.format("hullcast").options(**source).mode("append").save()
    frame = spark.read.format("hullcast").options(**source).load()
    assert [tuple(row) for row in frame.collect()] == [("IBM", 11.5)]
    secret = (tmp_path / "desk.key").read_text().split()[-1].strip('"')
    assert len(secret) >= 32
    plan = frame._jdf.queryExecution().toString()
    with pytest.raises(PySparkException, match="HIDDEN") as hidden:
        spark.read.format("hullcast").options(**source | {"table": "HIDDEN"}).load()
    with pytest.raises(PySparkException, match="HIDDEN") as unwritten:
        rows.write.format("hullcast").options(**source | {"table": "HIDDEN"}).mode("append").save()
    with pytest.raises(PySparkException):
        rows.write.format("hullcast").options(url=secured, table="STOCK", timeout="2").mode("append").save()
    for text in (plan, str(hidden.value), str(unwritten.value)):
        assert secret not in text
