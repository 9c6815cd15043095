"""CREATE TABLE and DROP TABLE over the network: repeated, after subscriptions closed, and errors that help."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hullcast.clients.sdk.client import Client
from hullcast.network.answers.events import Change
from hullcast.network.wire.errors import (
    BadBatch,
    BadValue,
    DuplicateTable,
    HullcastError,
    SqlError,
    TableInUse,
    UnknownTable,
)
from tests.support.cluster import PATIENCE_S, cluster, server_of, wait_for

CREATE = "CREATE TABLE IF NOT EXISTS T (K INTEGER PRIMARY KEY, V REAL)"
HALVES = {0: "server", 3: "g1"}


@pytest.mark.parametrize("nodes", HALVES)
async def test_a_subscription_that_was_closed_is_never_in_the_way_of_a_drop(nodes: int) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(nodes) as c, c.client(HALVES[nodes]) as client:
        for _ in range(20):
            await client.execute(CREATE)
            one = await client.subscribe("SELECT MIN(V) FROM T WHERE K < ?", 5)
            many = await client.subscribe_many("SELECT COUNT(*) FROM T WHERE V > ?", [1.0, 2.0])
            await client.publish("T", [{"K": 1, "V": 1.5}])
            await one.close()
            await many.close()
            await client.execute("DROP TABLE T")


@pytest.mark.parametrize("nodes", HALVES)
async def test_a_subscription_that_was_given_up_is_not_in_the_way_either(nodes: int) -> None:
    """Whoever gives up before the reply came leaves when it comes."""
    async with asyncio.timeout(PATIENCE_S), cluster(nodes) as c, c.client(HALVES[nodes]) as client:
        for rounds in range(20):
            await client.execute(CREATE)
            opening = asyncio.create_task(_subscribe(client), name="test.opening")
            for _ in range(rounds % 5):
                await asyncio.sleep(0)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            await client.execute("DROP TABLE T")


async def _subscribe(client: Client) -> object:
    return await client.subscribe("SELECT MIN(V) FROM T WHERE K < ?", 5)


async def test_a_client_that_vanished_with_its_gateway_is_not_in_the_way_once_that_is_known() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(3) as c, c.client("server") as other:
        await other.execute(CREATE)
        async with c.client("g1") as client:
            await client.subscribe("SELECT MIN(V) FROM T WHERE K < ?", 5)
            with pytest.raises(TableInUse):
                await other.execute("DROP TABLE T")
            await c.kill("g1")
            await c.kill("root")  # what is left of both is the server's link to the root
            router = server_of(c).children.router
            await wait_for(lambda: not router.channels(), "the server forgets the root")
            await other.execute("DROP TABLE T")
            await c["root"].start()
            await c["g1"].start()


async def test_a_table_that_somebody_reads_is_not_dropped() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(3) as c, c.client("g1") as one, c.client("g2") as other:
        await one.execute(CREATE)
        async with one.subscribe("SELECT MIN(V) FROM T") as sub:
            with pytest.raises(TableInUse, match="in use by subscriptions to MIN"):
                await other.execute("DROP TABLE IF EXISTS T")
            await other.publish("T", [{"K": 1, "V": 1.5}])
            event = await anext(sub)
            assert isinstance(event, Change)
            assert event.answer == 1.5


async def test_statements_can_be_repeated_and_survive_a_restart(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path / "data") as c, c.client() as client:
        await client.execute("DROP TABLE IF EXISTS T")
        for _ in range(2):
            await client.execute(CREATE)
            await client.publish("T", [{"K": 1, "V": 1.5}])
        with pytest.raises(DuplicateTable) as caught:
            await client.execute("CREATE TABLE IF NOT EXISTS T (K INTEGER PRIMARY KEY, V INTEGER)")
        assert str(caught.value) == (
            "table T exists with another definition: its column V is REAL, not INTEGER; change the statement, choose "
            "another name or DROP TABLE T"
        )
        with pytest.raises(DuplicateTable, match="already exists; use CREATE TABLE IF NOT EXISTS"):
            await client.execute(CREATE.replace("IF NOT EXISTS ", ""))
        for _ in range(2):
            await client.execute("CREATE TABLE IF NOT EXISTS GONE (K INTEGER PRIMARY KEY)")
            await client.execute("DROP TABLE IF EXISTS GONE")
            await client.execute("DROP TABLE IF EXISTS GONE")
        with pytest.raises(UnknownTable):
            await client.execute("DROP TABLE GONE")
        await c.stop_server()
        await c.restart_server()
        assert list(await client.tables()) == ["T"]
        assert await client.query("SELECT * FROM T") == [(1, 1.5)]


async def test_errors_name_the_calls_that_clients_have() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0) as c, c.client() as client:
        await client.execute(CREATE)
        calls = (client.execute, client.query, client.subscribe)
        for call in calls:
            with pytest.raises(SqlError) as caught:
                await call("INSERT INTO T VALUES (1, 2)")
            assert str(caught.value) == "INSERT is not supported; use publish(table, rows)"
            with pytest.raises(SqlError) as caught:
                await call("DELETE FROM T")
            assert str(caught.value) == (
                "DELETE is not supported; use delete(table, keys); by a condition, "
                'delete(table, [key for (key,) in await query("SELECT key FROM table WHERE ..")])'
            )
        for call in calls[1:]:
            with pytest.raises(SqlError) as caught:
                await call("DROP TABLE T")
            assert str(caught.value) == "DROP is not supported here; use execute(sql)"
            with pytest.raises(SqlError, match=r"^`%s`: parameters are written as \?"):
                await call("SELECT MIN(V) FROM T WHERE K < %s", 5)
        with pytest.raises(SqlError, match=r'hc\.subscribe\("SELECT MIN\(V\) FROM T WHERE K IS NULL", when="T"\)'):
            await client.subscribe("SELECT MIN(V) FROM T WHERE K IS NULL")


REFUSED = (
    "INSERT INTO T VALUES (1, 2)",
    "UPDATE T SET V = 1",
    "DELETE FROM T",
    "CREATE TABLE U (K INTEGER PRIMARY KEY)",
    "DROP TABLE U",
    "SELECT V FROM T WHERE V IS NULL AND V IS NULL",
    "SELECT K, COUNT(*) FROM T GROUP BY K",
    "BEGIN",
    "ALTER TABLE T ADD COLUMN W REAL",
    "SELECT MIN(V) FROM T WHERE V = ?",
)


async def test_no_error_tells_a_client_to_call_the_embedded_engine() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0) as c, c.client() as client:
        await client.execute(CREATE)
        said: list[object] = []
        for sql in REFUSED:
            calls = (client.execute(sql), client.query(sql), client.explain(sql), _open(client, sql))
            said += await asyncio.gather(*calls, return_exceptions=True)
        for rows in ([{"K": 1, "V": float("nan")}], [{"K": "x"}], {"K": [1], "V": [float("inf")]}, [{"X": 1}]):
            said += await asyncio.gather(client.publish("T", rows), return_exceptions=True)
    errors = [str(error) for error in said if isinstance(error, HullcastError)]
    assert len(errors) > 2 * len(REFUSED)
    assert not [error for error in errors if "engine" in error or "upsert" in error]


async def _open(client: Client, sql: str) -> object:
    return await client.subscribe(sql)


async def test_a_condition_in_place_of_a_key_gets_a_hint(caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0) as c, c.client() as client:
        await client.execute(CREATE)
        await client.execute("CREATE TABLE U (K TEXT PRIMARY KEY, V REAL)")
        await client.publish("U", [{"K": "V = 3"}, {"K": "a"}])
        with pytest.raises(BadValue, match="got str 'V > 3'; delete takes keys, not conditions: find the keys with a"):
            await client.delete("T", "V > 3")
        with pytest.raises(BadBatch, match=r"a row is not a key; pass \[key for \(key,\) in rows\], from a query of"):
            await client.delete("U", await client.query("SELECT K FROM U"))
        assert await client.query("SELECT COUNT(*) FROM U") == [(2,)]
        with pytest.raises(BadValue, match="got str 'x'; nothing was applied"):
            await client.delete("T", "x")
        assert (await client.delete("U", "V = 3")).deleted == 1
        assert (await client.delete("U", "V")).deleted == 0
        assert not caplog.records
        for keys in ("V > 3", ["K LIKE 'a%'"]):
            assert (await client.delete("U", keys)).deleted == 0
            assert "delete takes keys, not conditions" in caplog.records.pop().getMessage()
