"""Bad days of views: lost files, views that are too large, statements given up, and nobody else who notices."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hullcast.broker.log.checkpoint import checkpoints
from hullcast.broker.log.history import readable_from
from hullcast.broker.warehouse.files.table_file import FOLDER, remove
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.connecting import configure
from hullcast.network.wire.errors import NotPermitted, PromiseTooShort, SqlError, TimedOut
from tests.support.cluster import PATIENCE_S, PATIENT, cluster, wait_for
from tests.support.secured import allowed, secured
from tests.system.test_full_disk import confined
from tests.system.test_warehouse_answers import workers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.cluster import Cluster

TABLE = "CREATE TABLE T (K INTEGER PRIMARY KEY, G INTEGER, V REAL)"
OTHER = "CREATE TABLE OTHER (K INTEGER PRIMARY KEY, S TEXT)"
VIEW = "CREATE VIEW SUMS AS SELECT G, COUNT(*) AS N, MIN(V) AS LOW FROM T GROUP BY G WITH (response_time = '5s')"


@asynccontextmanager
async def serving(data: Path, **settings: Any) -> AsyncIterator[tuple[Cluster, Client]]:
    async with asyncio.timeout(PATIENCE_S), cluster(0, data, link=PATIENT, **settings) as made, made.client() as hc:
        yield made, hc


def view_file(data: Path, name: str = "sums") -> Path:
    (path,) = (data / FOLDER).glob(f"{name}-*.sqlite")
    return path


async def cut_the_log(hc: Client, data: Path) -> None:
    """Others change so much that neither the log nor a checkpoint has anything of before."""
    await hc.execute(OTHER)
    before = await hc.sync()
    first = {number for number, _ in checkpoints(data)}
    while len({number for number, _ in checkpoints(data)} - first) < 3 or readable_from(data) <= before:
        await hc.publish("OTHER", [{"K": i % 50, "S": "s" * 1000} for i in range(100)])
        await asyncio.sleep(0.01)


async def test_a_file_that_is_lost_when_the_log_is_cut_behind_it_is_made_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data, segment_bytes=64 << 10, checkpoint_updates=100) as (_, hc):
        await hc.execute(TABLE)
        await hc.publish("T", [{"K": i, "G": i % 3, "V": i / 4} for i in range(30)])
        await hc.execute(VIEW)
        rows = await hc.query("SELECT * FROM SUMS ORDER BY G")
        assert rows == [(g, 10, g / 4) for g in range(3)]
        await cut_the_log(hc, data)
        remove(view_file(data))
        assert await hc.query("SELECT * FROM SUMS ORDER BY G") == rows


async def test_a_file_that_is_damaged_when_the_log_is_cut_behind_it_is_made_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data, segment_bytes=64 << 10, checkpoint_updates=100, warehouse_processes=2) as (_, hc):
        await hc.execute(TABLE)
        await hc.publish("T", [{"K": i, "G": i, "V": i / 4} for i in range(30_000)])
        await hc.execute(VIEW)
        sql = "SELECT COUNT(*), SUM(N), MAX(LOW) FROM SUMS"
        rows = await hc.query(sql)
        await cut_the_log(hc, data)
        path = view_file(data)
        path.with_name(f"{path.name}-wal").unlink(missing_ok=True)
        with path.open("r+b") as file:
            for page in range(5, path.stat().st_size // 4096, 3):
                file.seek(page * 4096)
                file.write(os.urandom(200))
        for worker in workers():
            worker.kill()
        assert await patiently(hc, sql) == rows


async def patiently(hc: Client, sql: str) -> list[tuple[Any, ...]]:
    """Ask again if the worker was one of those that were killed."""
    while True:
        try:
            return list(await hc.query(sql))
        except SqlError as error:
            if "its process was killed" not in str(error):
                raise


async def test_a_view_that_is_refused_leaves_no_file(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data) as (_, hc):
        await hc.execute(TABLE)
        await hc.publish("T", [{"K": i, "G": i % 3, "V": i / 4} for i in range(30)])
        with pytest.raises(PromiseTooShort, match=r"promise is [0-9.]+ m?s$"):
            await hc.execute(VIEW.replace("5s", "0.1ms"))
        await wait_for(lambda: not list((data / FOLDER).glob("sums-*.sqlite*")), "its file is removed")
        await hc.execute(VIEW)
        assert await hc.query("SELECT SUM(N) FROM SUMS") == [(30,)]


async def test_a_table_that_is_made_again_under_a_view_that_is_being_made(tmp_path: Path) -> None:
    """It has other columns then: the view is made of those, and of the rows that are there."""
    data = tmp_path / "data"
    async with serving(data) as (made, hc), made.client() as other:
        await hc.execute(TABLE)
        await hc.publish("T", {"K": np.arange(60_000), "G": np.arange(60_000) % 3})
        await hc.query("SELECT 1")
        making = asyncio.create_task(hc.execute(VIEW))
        await wait_for(lambda: list((data / FOLDER).glob("sums-*.tmp")), "it is being made")
        await other.execute("DROP TABLE T")
        await other.execute("CREATE TABLE T (X TEXT, G INTEGER, V REAL, K INTEGER PRIMARY KEY)")
        await other.publish("T", [{"K": 7, "G": 5, "V": 1.5}])
        await making
        assert await other.query("SELECT * FROM SUMS") == [(5, 1, 1.5)]
        await other.publish("T", [{"K": 8, "G": 5, "V": 0.5}])
        assert await other.query("SELECT * FROM SUMS") == [(5, 2, 0.5)]
        await wait_for(lambda: len(list((data / FOLDER).glob("sums-*.sqlite"))) == 1, "the other file is removed")


async def test_a_client_that_leaves_while_its_view_is_made_leaves_nothing_behind(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data) as (made, hc):
        await hc.execute(TABLE)
        await hc.publish("T", {"K": np.arange(100_000), "G": np.arange(100_000)})
        await hc.query("SELECT 1")
        async with made.client() as leaving:
            making = asyncio.create_task(leaving.execute(VIEW))
            await wait_for(lambda: list((data / FOLDER).glob("sums-*.tmp")), "it is being made")
            making.cancel()
        await wait_for(lambda: not list((data / FOLDER).iterdir()), "nothing is left of it")
        assert await hc.views() == {}
        await hc.execute(VIEW)
        assert await hc.query("SELECT COUNT(*) FROM SUMS") == [(100_000,)]


async def test_a_view_is_read_with_the_right_on_it_alone_and_made_by_an_admin(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path) as s:
        granted: dict[str, dict[str, object]] = {
            "gateway": {"node": True},
            "admin": {"admin": True},
            "ticker": {"publish": ["STOCK"], "query": ["STOCK"]},
            "reader": {"query": ["BEST"]},
        }
        s.server.take_rights(allowed(s.pairs, granted))
        s.node.take_rights(allowed(s.pairs, granted))
        async with s.client("admin") as admin, s.client("ticker") as ticker, s.client("reader") as reader:
            await admin.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, PER REAL)")
            best = "CREATE VIEW BEST AS SELECT MIN(PER) AS PER FROM STOCK WITH (response_time = '5s')"
            for refused in (ticker, reader):
                with pytest.raises(NotPermitted, match="`admin`"):
                    await refused.execute(best)
            await ticker.publish("STOCK", [{"SYMBOL": "ACME", "PER": 12.5}])  # behind what was refused
            await admin.execute(best)
            assert await reader.query("SELECT * FROM BEST") == [(12.5,)]
            assert list(await reader.views()) == ["BEST"]
            with pytest.raises(NotPermitted, match="STOCK"):
                await reader.query("SELECT * FROM BEST, STOCK")
            with pytest.raises(NotPermitted, match="BEST"):
                await ticker.query("SELECT * FROM BEST")
            with pytest.raises(NotPermitted, match="BEST"):
                await ticker.explain("SELECT * FROM BEST")
            assert await ticker.views() == {}
            with pytest.raises(NotPermitted, match="`admin`"):
                await reader.execute("DROP VIEW BEST")


async def test_a_full_disk_is_told_to_who_asks_and_the_view_is_right_when_there_is_room_again(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        confined(tmp_path) as server,
        Client(configure(server.endpoint, timeout=PATIENCE_S), server.context) as hc,
    ):
        await hc.execute(TABLE)
        await hc.publish("T", {"K": np.arange(3000), "G": np.arange(3000)})
        await hc.execute(VIEW)
        server.fill()
        await hc.publish("T", {"K": np.arange(6000), "G": np.arange(6000) + 10})
        with pytest.raises(
            TimedOut, match=r"view SUMS cannot be loaded for queries \(.*full"
        ):  # it is tried until then
            await hc.query("SELECT COUNT(*) FROM SUMS", timeout=3.0)
        with pytest.raises(TimedOut, match="full"):
            await hc.execute(VIEW.replace("SUMS", "OTHERS"), timeout=3.0)
        await hc.publish("T", [{"K": 0, "G": 5}])
        server.make_room()
        assert await hc.query("SELECT COUNT(*), SUM(N), MIN(G) FROM SUMS") == [(6000, 6000, 5)]
        await hc.execute(VIEW.replace("SUMS", "OTHERS").replace("MIN(V) AS LOW", "MAX(V) AS HIGH"))
        assert await hc.query("SELECT COUNT(*) FROM OTHERS") == [(6000,)]


async def facts(hc: Client, propagations: int = 0) -> dict[str, Any]:
    """What the server says of the view, when it has heard of so many propagations."""
    while True:
        found: dict[str, Any] = (await hc.status())["queries"]["views"].get("SUMS", {})
        if found and found["propagations"] >= propagations:
            return found
        await asyncio.sleep(0.05)


async def test_a_table_that_changes_after_the_log_was_cut_does_not_cost_a_whole_view(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data, segment_bytes=64 << 10, checkpoint_updates=100) as (_, hc):
        await hc.execute(TABLE)
        await hc.publish("T", [{"K": i, "G": i % 3, "V": i / 4} for i in range(30_000)])
        await hc.execute(VIEW)
        made = await facts(hc)
        await cut_the_log(hc, data)
        await hc.publish("T", [{"K": 0, "G": 0, "V": -1.0}])
        assert await hc.query("SELECT * FROM SUMS ORDER BY G") == [
            (0, 10_000, -1.0),
            (1, 10_000, 0.25),
            (2, 10_000, 0.5),
        ]
        now = await facts(hc, 1)
        assert now["recomputations"] == 0
        assert now["recompute_s"] == made["recompute_s"], "measured when it was made, and not since"


async def test_a_row_that_joins_with_millions_delays_no_other_view(tmp_path: Path) -> None:
    """It takes seconds, and its own view is late; others are refreshed meanwhile."""
    async with serving(tmp_path / "data", warehouse_processes=2) as (_, hc):
        for name in "ABR":
            await hc.execute(f"CREATE TABLE {name} (K INTEGER PRIMARY KEY, G INTEGER)")
        for name in "AB":
            await hc.publish(name, {"K": np.arange(2500), "G": np.ones(2500, dtype=int)})
        pairs = "SELECT r.G, COUNT(*) AS N, MAX(a.K) AS HIGH FROM R r JOIN A a ON a.G = r.K JOIN B b ON b.G = r.K"
        await hc.execute(f"CREATE VIEW PAIRS AS {pairs} GROUP BY r.G WITH (response_time = '1s')")
        await hc.execute("CREATE VIEW PLAIN AS SELECT COUNT(*) AS N FROM R WITH (response_time = '1s')")
        assert await hc.query("SELECT * FROM PAIRS") == []
        await hc.publish("R", [{"K": 1, "G": 5}])
        late = asyncio.create_task(hc.query("SELECT * FROM PAIRS"))
        while not (await hc.status())["queries"]["long_propagations"]:  # noqa: ASYNC110  it is reported
            await asyncio.sleep(0.05)
        await hc.publish("R", [{"K": 2, "G": 5}])
        rows = await hc.query("SELECT * FROM PLAIN")
        assert rows == [(2,)]
        assert not late.done()
        assert await late == [(5, 2500 * 2500, 2499)]


async def test_what_was_learned_of_costs_survives_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"

    async with serving(data) as (_, hc):
        await hc.execute(TABLE)
        await hc.publish("T", [{"K": i, "G": i % 3, "V": i / 4} for i in range(3000)])
        await hc.execute(VIEW)
        made = await facts(hc)
        assert made["recompute_s"] is not None
    async with serving(data) as (_, hc):
        found = await facts(hc)
        assert found["propagations"] == 0
        assert found["costs"] == made["costs"], "measured when it was created"
        assert found["recompute_s"] == made["recompute_s"]
        for round_ in range(2):  # what the first one took is known to the second
            await hc.publish("T", [{"K": i, "G": i % 3, "V": i / 8 + round_} for i in range(700)])
            await hc.query("SELECT * FROM SUMS")
            await asyncio.sleep(1.1)
    async with serving(data) as (_, hc):
        again = await facts(hc)
        assert again["propagations"] == 0
        assert again["costs"] != made["costs"], "learned since"
