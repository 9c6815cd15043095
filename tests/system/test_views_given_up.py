"""CREATE VIEW that nobody waits for any more: it ends, nothing is left of it, and later changes of its client go on."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hullcast.broker.server.warehouse import VIEWS
from hullcast.broker.warehouse.files.table_file import FOLDER
from hullcast.network.wire.errors import TimedOut
from tests.support.cluster import COMMAND, PATIENCE_S, PATIENT, QUICK, cluster, server_of, wait_for
from tests.system.test_giving_up import PLACES, nothing_is_open

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from hullcast.broker.server.service import Server
    from hullcast.clients.sdk.client import Client
    from tests.support.cluster import Cluster

#: Every row of T joins with thousands: to make this view takes minutes, and more rows than a view may have.
PAIRS = "SELECT a.G, COUNT(*) AS N, MIN(b.V) AS LOW FROM T a JOIN T b ON a.G = b.G GROUP BY a.G"
ENDLESS = f"CREATE VIEW ENDLESS AS {PAIRS} WITH (response_time = '5s')"
SUMS = "CREATE VIEW SUMS AS SELECT G, COUNT(*) AS N FROM T GROUP BY G WITH (response_time = '5s')"


@asynccontextmanager
async def making(nodes: int, tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[Cluster, Server, Client]]:
    """A cluster with a table whose view takes minutes to make, and a client of its gateway."""
    settings = {"link": PATIENT, **settings}
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(nodes, tmp_path / "data", **settings) as made,
        made.client() as hc,
    ):
        await hc.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, G INTEGER, V REAL)")
        await hc.publish("T", {"K": np.arange(20_000), "G": np.arange(20_000) % 4, "V": np.arange(20_000) / 8})
        await hc.query("SELECT 1")
        yield made, server_of(made), hc


def files(tmp_path: Path, pattern: str) -> list[Path]:
    return list((tmp_path / "data" / FOLDER).glob(pattern))


async def begun(tmp_path: Path) -> None:
    await wait_for(lambda: files(tmp_path, "endless-*.tmp"), "it is being made")


async def nothing_is_left(tmp_path: Path, server: Server, hc: Client) -> None:
    await wait_for(lambda: not server.views._making and not len(server.jobs.open), "the server has let go")
    await wait_for(lambda: not files(tmp_path, "endless-*"), "no file is left of it")
    assert nothing_is_open(server)
    assert await hc.views() == {}
    assert "ENDLESS" not in (await hc.status())["queries"]["views"]


@PLACES
async def test_a_cancelled_create_view_ends_and_leaves_nothing(tmp_path: Path, nodes: int) -> None:
    async with making(nodes, tmp_path) as (_, server, hc):
        asked = asyncio.create_task(hc.execute(ENDLESS))
        await begun(tmp_path)
        asked.cancel()
        await nothing_is_left(tmp_path, server, hc)
        assert server.jobs.given_up[VIEWS] == 1
        await hc.execute(SUMS)
        assert await hc.query("SELECT SUM(N) FROM SUMS") == [(20_000,)]


async def test_a_create_view_that_timed_out_ends_and_changes_behind_it_go_on(tmp_path: Path) -> None:
    """They wait for it, in the order of the client's calls, until it is given up."""
    async with making(1, tmp_path) as (_, server, hc):
        slow = asyncio.create_task(hc.execute(ENDLESS, timeout=2.0))
        await begun(tmp_path)
        behind = [
            asyncio.create_task(hc.publish("T", [{"K": 0, "G": 7, "V": 1.0}])),
            asyncio.create_task(hc.execute(SUMS)),
            asyncio.create_task(hc.delete("T", [1])),
        ]
        with pytest.raises(TimedOut, match="execute"):
            await slow
        await asyncio.gather(*behind)
        await wait_for(lambda: not files(tmp_path, "endless-*"), "no file is left of it")
        assert list(await hc.views()) == ["SUMS"]
        assert await hc.query("SELECT N FROM SUMS WHERE G = 7") == [(1,)]
        assert await hc.query("SELECT SUM(N) FROM SUMS") == [(19_999,)]
        assert server.jobs.given_up[VIEWS] == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "Ctrl-C"])
async def test_the_view_of_a_client_that_vanishes_behind_gateways_ends(tmp_path: Path, how: signal.Signals) -> None:
    async with making(2, tmp_path, link=QUICK) as (made, server, hc):
        process = await asyncio.create_subprocess_exec(
            COMMAND,
            "execute",
            ENDLESS,
            "--url",
            made["g1"].endpoint,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await begun(tmp_path)
        process.send_signal(how)
        await process.wait()
        await nothing_is_left(tmp_path, server, hc)


async def test_nobody_gives_up_the_view_of_another(tmp_path: Path) -> None:
    async with making(1, tmp_path) as (made, server, hc), made.client() as other:
        asked = asyncio.create_task(hc.execute(ENDLESS))
        await begun(tmp_path)
        for _ in range(3):
            with pytest.raises(TimedOut):
                await other.execute(ENDLESS, timeout=0.1)  # one of this name is being made: it would have to wait
        async with made.client() as third:
            await third.sync()
        await other.sync()
        assert server.jobs.given_up[VIEWS] == 0
        assert not asked.done()
        asked.cancel()
        await nothing_is_left(tmp_path, server, hc)


async def test_a_view_that_is_given_up_while_its_promise_is_measured_leaves_no_file(tmp_path: Path) -> None:
    """Its file is complete then, under its own name, but there is no such view yet."""
    async with making(0, tmp_path) as (_, server, hc):
        await hc.execute("CREATE TABLE R (K INTEGER PRIMARY KEY, W INTEGER)")
        await hc.publish("R", [{"K": i % 4, "W": i} for i in range(4)])
        few = "SELECT R.W, COUNT(*) AS N, MIN(V) AS LOW, MAX(T.K) AS HIGH FROM T JOIN R ON T.G = R.K GROUP BY R.W"
        for _ in range(3):
            asked = asyncio.create_task(hc.execute(f"CREATE VIEW ENDLESS AS {few} WITH (response_time = '5s')"))
            await wait_for(lambda: files(tmp_path, "endless-*.sqlite"), "its file is made")
            assert not asked.done()
            asked.cancel()
            await nothing_is_left(tmp_path, server, hc)
        await hc.execute(f"CREATE VIEW ENDLESS AS {few} WITH (response_time = '5s')")
        assert await hc.query("SELECT SUM(N) FROM ENDLESS") == [(20_000,)]


async def test_a_view_is_made_once_if_its_client_is_told_to_begin_again(tmp_path: Path) -> None:
    """A reset: the statement is sent again under another id, and finds that it is under way or done."""
    async with making(1, tmp_path) as (_, server, hc):
        asked = asyncio.create_task(hc.execute(SUMS))
        await wait_for(lambda: server.views._making, "it is being made")
        server.take_rights(server.children.rights)
        await asked
        assert server.jobs.given_up[VIEWS] == 0
        assert await hc.query("SELECT SUM(N) FROM SUMS") == [(20_000,)]
