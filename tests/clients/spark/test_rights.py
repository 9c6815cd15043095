"""Keys and rights of Spark's tasks: those of any client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import hullcast
from hullcast.clients.processes.child import Child, start
from hullcast.clients.sdk.blocking import LoopThread
from hullcast.network.wire.errors import NotPermitted, UsageError
from tests.clients.spark.test_events import Followed
from tests.support.cluster import PATIENCE_S
from tests.support.processes import hull

CREATE = "CREATE TABLE {} (SYMBOL TEXT PRIMARY KEY, PER REAL)"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[str]:
    """A server with keys, and what it may be told by: `desk` may publish and query STOCK, and nothing else; `watch` may
    subscribe to it only."""
    allow = ("--out", str(tmp_path), "--allow", str(tmp_path / "allow.toml"))
    assert hull("keygen", "--name", "server", *allow, "--node").returncode == 0
    assert hull("keygen", "--name", "admin", *allow, "--admin").returncode == 0
    assert hull("keygen", "--name", "desk", *allow, "--publish", "STOCK", "--query", "STOCK").returncode == 0
    assert hull("keygen", "--name", "watch", *allow, "--subscribe", "STOCK").returncode == 0
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


@pytest.mark.slow
def test_events_come_from_the_history_only_with_the_right_to_query(secured: str, tmp_path: Path) -> None:
    keys = {"key": str(tmp_path / "watch.key"), "server_key": str(tmp_path / "server.pub")}
    with hullcast.connect_blocking(secured, key=tmp_path / "admin.key", server_key=tmp_path / "server.pub") as db:
        db.execute(CREATE.format("STOCK"))
        sql = "SELECT COUNT(*) AS N FROM STOCK"
        with pytest.raises(NotPermitted, match="`query` on STOCK"):
            Followed(secured, sql, startingSeq="earliest", **keys)
        one = Followed(secured, sql, **keys)
        one.go_on()
        one.offsets[-1]["token"] = None  # as if the server had it no more
        with pytest.raises(UsageError, match=r"are lost: .*`query` on STOCK.*failOnDataLoss"):
            one.go_on()
        one.start_again(failOnDataLoss="false")
        one.go_on()
        assert [row[1:] for row in one.rows] == [("snapshot", 0), ("resync", 0)]
        one.stop()
