"""Bad days of views: lost files, views that are too large, statements given up, and nobody else who notices."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from hullcast.broker.log.checkpoint import checkpoints
from hullcast.broker.log.history import readable_from
from hullcast.broker.warehouse.files import FOLDER, remove
from hullcast.network.wire.errors import SqlError
from tests.support.cluster import PATIENCE_S, PATIENT, TaskMember, cluster
from tests.system.test_warehouse_answers import workers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from hullcast.broker.server.service import Server
    from hullcast.clients.sdk.client import Client

TABLE = "CREATE TABLE T (K INTEGER PRIMARY KEY, G INTEGER, V REAL)"
OTHER = "CREATE TABLE OTHER (K INTEGER PRIMARY KEY, S TEXT)"
VIEW = "CREATE VIEW SUMS AS SELECT G, COUNT(*) AS N, MIN(V) AS LOW FROM T GROUP BY G WITH (response_time = '5s')"


@asynccontextmanager
async def serving(data: Path, **settings: Any) -> AsyncIterator[tuple[Server, Client]]:
    async with asyncio.timeout(PATIENCE_S), cluster(0, data, link=PATIENT, **settings) as made, made.client() as hc:
        assert isinstance(made.server, TaskMember)
        yield made.server.service, hc  # type: ignore[misc]  # it is the server


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
