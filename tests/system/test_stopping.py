"""SIGTERM ends a server and everything it started, also where its processes are stopped (SIGSTOP)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import psutil
import pytest

import hullcast
from tests.support.processes import ANYWHERE, marked, running, started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: What the promise is; on a busy machine, so many times what an idle stop takes.
STOP_S, TIMES = 5.0, 5.0


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from marked(monkeypatch)


async def test_stopped_processes_do_not_keep_a_server_from_ending(tmp_path: Path) -> None:
    words = ("server", "--data", str(tmp_path / "data"), "--listen", ANYWHERE)
    async with started(*words) as server:
        began = time.monotonic()
        assert await server.stop() == 0
        idle_s = time.monotonic() - began
    async with started(*words) as server, hullcast.connect(server.endpoint, timeout=20.0) as hc:
        await hc.execute("CREATE TABLE T (K INTEGER PRIMARY KEY)")
        await hc.publish("T", [{"K": 1}])
        assert await hc.query("SELECT K FROM T") == [(1,)]
        assert [part async for part in hc.changes("T")]
        children = psutil.Process(server.pid).children(recursive=True)
        assert len(children) >= 3  # the warehouse, a worker of it, and the reader of the history
        for child in children:
            child.suspend()
        asked = [
            asyncio.ensure_future(hc.query("SELECT count(*) FROM T")),
            asyncio.ensure_future(anext(hc.changes("T"))),
        ]
        await asyncio.sleep(0.1)
        began = time.monotonic()
        assert await server.stop() == 0
        assert time.monotonic() - began < max(STOP_S, TIMES * idle_s)
        assert running() == []
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    async with started(*words) as server, hullcast.connect(server.endpoint, timeout=20.0) as hc:
        assert await hc.query("SELECT K FROM T") == [(1,)]
