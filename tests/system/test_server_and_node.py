"""A server and nodes as real processes: they start, serve, stop, die and come back."""

from __future__ import annotations

import asyncio
import re
import resource
import signal
from typing import TYPE_CHECKING

import psutil
import pytest

import hullcast
from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.log.record import NOBODY, RecordKind
from hullcast.broker.log.recovery import open_directory
from hullcast.broker.server.changing import apply_record
from hullcast.clients.processes.child import launch
from hullcast.clients.processes.signals import SAME_S
from hullcast.network.security.keys import make_pair, write_pair
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import HullcastError, NotPermitted, Unavailable
from hullcast.network.wire.values import from_list
from tests.support.exposition import OPENMETRICS, only_value, read_metrics
from tests.support.processes import ANYWHERE, LIMIT_S, get, hull, marked, started, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hullcast.network.security.keys import KeyPair

CREATE = "CREATE TABLE T (K INTEGER PRIMARY KEY, V REAL)"


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    yield from marked(monkeypatch)


async def test_a_client_of_a_node_talks_to_the_server(tmp_path: Path) -> None:
    words = ("server", "--data", str(tmp_path / "data"), "--listen", ANYWHERE, "--monitor", "127.0.0.1:0")
    async with started(*words) as server:
        assert server.facts["ready"] is True
        assert server.facts["role"] == "server"
        assert server.facts["pid"] == server.pid
        async with (
            started("node", "--parent", server.endpoint, "--listen", ANYWHERE, "--monitor", "127.0.0.1:0") as node,
            hullcast.connect(node.endpoint) as hc,
        ):
            await hc.execute(CREATE)
            async with hc.subscribe("SELECT MIN(V) FROM T WHERE K BETWEEN ? AND ?", 1, 5) as sub:
                await hc.publish("T", [{"K": 3, "V": 7.5}, {"K": 9, "V": 1.0}])
                await anext(sub)
                assert sub.answer == 7.5
                await _the_monitors_tell(str(server.monitor), str(node.monitor))
            assert await node.stop() == 0
        assert await server.stop() == 0


async def _the_monitors_tell(server: str, node: str) -> None:
    for monitor in (server, node):
        assert await get(f"{monitor}/readyz") == (200, "ready\n")
        for accept in ("*/*", OPENMETRICS):
            families = read_metrics((await get(f"{monitor}/metrics", accept))[1])
            assert all(name.startswith(("hullcast_", "process_")) for name in families)
            assert only_value(families["hullcast_delivered_messages_total"]) == 1
    families = read_metrics((await get(f"{server}/metrics"))[1])
    assert only_value(families["hullcast_updates_total"]) == 2
    assert only_value(families["hullcast_log_synced_seq"]) == 2
    (table,) = families["hullcast_table_rows"].samples
    assert (table.labels, table.value) == ({"table": "T"}, 2)


async def test_a_killed_server_comes_back_with_every_acknowledged_row(tmp_path: Path) -> None:
    words = ("server", "--data", str(tmp_path / "data"), "--listen", ANYWHERE)
    acknowledged: list[int] = []
    async with started(*words) as server, hullcast.connect(server.endpoint, timeout=0.5) as hc:
        await hc.execute(CREATE)

        async def publish() -> None:
            for number in range(1_000_000):
                await hc.publish("T", [{"K": number, "V": 1.0}])
                acknowledged.append(number)

        publishing = asyncio.create_task(publish())
        await wait_until(lambda: len(acknowledged) > 50)
        other = await asyncio.to_thread(hull, *words)
        assert other.returncode == 2
        assert len(other.stderr.splitlines()) == 1
        assert str(tmp_path / "data") in other.stderr
        assert f"process {server.pid}" in other.stderr
        server.signal(signal.SIGKILL)
        assert await server.wait() == -signal.SIGKILL
        with pytest.raises(Unavailable):
            await publishing
    async with started(*words) as server, hullcast.connect(server.endpoint) as hc:
        rows = {key for (key,) in await hc.query("SELECT K FROM T")}
    assert set(acknowledged) <= rows
    assert len(rows) <= len(acknowledged) + 1


async def test_a_recovering_server_answers_probes_and_stops_when_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    await asyncio.to_thread(_write_log, data, 40_000)
    words = ("server", "--data", str(data), "--listen", ANYWHERE, "--monitor", "127.0.0.1:0")
    for stop_early in (True, False):
        lines: list[str] = []
        server = await launch(words, name="server", hear=lines.append)
        try:
            async with asyncio.timeout(LIMIT_S):
                monitor = await _monitor_of(lines)
                told = [await get(f"{monitor}/readyz")]
                while told[-1][0] == 503:
                    assert await get(f"{monitor}/healthz") == (200, "ok\n")
                    assert (await get(f"{monitor}/status"))[0] == (await get(f"{monitor}/metrics"))[0] == 200
                    told.append(await get(f"{monitor}/readyz"))
                    if stop_early and "%" in told[-1][1]:
                        break
                assert told[0] == (503, "preparing compiled code\n")
                assert any(
                    re.fullmatch(r"replaying the log: [\d,]+ of [\d,]+ bytes \(\d+ %\)\n", why) for _, why in told
                )
                assert stop_early or told[-1] == (200, "ready\n")
                async with asyncio.timeout(5.0):
                    assert await server.stop() == 0
        finally:
            await server.stop(0.0)
        assert any("replaying the log after_record=0" in line for line in lines)
        assert any("data recovered" in line for line in lines) is not stop_early
    assert any("last_seq=40000" in line for line in lines)


def _write_log(data: Path, records: int) -> None:
    """A data directory whose log takes a while to replay."""
    opened = open_directory(data, ServedEngine(), apply_record)
    opened.log.append(RecordKind.STATEMENT, CREATE.encode(), first=1, count=0)
    payload = bodies.encode(bodies.Publish("T", {"K": from_list([1]), "V": from_list([1.0])}, None, NOBODY, 0))
    for number in range(records):
        opened.log.append(RecordKind.BATCH, payload, first=number + 1, count=1)
    opened.close()


async def _monitor_of(lines: list[str]) -> str:
    """Where a server's monitor listens, from its log."""
    await wait_until(lambda: any("monitor listening" in line for line in lines))
    return next("http://" + line.split("address=")[1] for line in lines if "monitor listening" in line)


async def test_a_stop_under_load_is_quick_and_loses_nothing(tmp_path: Path) -> None:
    words = ("server", "--data", str(tmp_path / "data"), "--listen", ANYWHERE)
    acknowledged: set[int] = set()
    async with started(*words) as server, hullcast.connect(server.endpoint, timeout=0.5) as hc:
        await hc.execute(CREATE)

        async def publish(first: int) -> None:
            for number in range(first, 1_000_000, 8):
                await hc.publish("T", [{"K": number, "V": 1.0}])
                acknowledged.add(number)

        publishing = [asyncio.create_task(publish(first)) for first in range(8)]
        await wait_until(lambda: len(acknowledged) > 200)
        async with asyncio.timeout(5.0):
            assert await server.stop() == 0
        results = await asyncio.gather(*publishing, return_exceptions=True)
        assert all(isinstance(result, Unavailable) for result in results)
    async with started(*words) as server, hullcast.connect(server.endpoint) as hc:
        rows = {key for (key,) in await hc.query("SELECT K FROM T")}
    assert acknowledged <= rows


@pytest.mark.slow
async def test_a_server_stops_quickly_though_its_helpers_are_stopped(tmp_path: Path) -> None:
    words = ("server", "--data", str(tmp_path / "data"), "--listen", ANYWHERE)
    async with started(*words) as server, hullcast.connect(server.endpoint) as hc:
        await hc.execute(CREATE)
        await hc.execute("CREATE STREAM R (K INTEGER)")
        await hc.execute("CREATE STREAM D AS SELECT R.K, T.V FROM R JOIN T ON R.K = T.K")
        assert await hc.query("SELECT COUNT(*) FROM T") == [(0,)]
        async for _ in hc.changes("T"):
            pass
        helpers = psutil.Process(server.pid).children
        await wait_until(lambda: len(helpers()) == 3)
        for helper in helpers(recursive=True):
            helper.suspend()
        async with asyncio.timeout(5.0):
            assert await server.stop() == 0


async def test_a_server_that_cannot_write_its_log_stops_and_says_so(tmp_path: Path) -> None:
    lines: list[str] = []
    words = ("server", "--data", str(tmp_path / "data"), "--listen", ANYWHERE)
    async with started(*words, hear=lines.append) as server, hullcast.connect(server.endpoint, timeout=2) as hc:
        await hc.execute(CREATE)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1024, 1024))  # as a full disk: writes fail from here on
        with pytest.raises(HullcastError):
            await hc.publish("T", [{"K": number, "V": 1.0} for number in range(500)])
        assert await server.wait() == 2
    last = lines[-1]
    assert last.startswith("hullcast: ")
    assert "log" in last
    assert not any("Traceback" in line for line in lines)
    async with started(*words) as server, hullcast.connect(server.endpoint) as hc:
        assert await hc.query("SELECT K FROM T") == []


async def test_a_second_interrupt_ends_at_once() -> None:
    lines: list[str] = []
    async with (
        started("server", "--listen", ANYWHERE, hear=lines.append) as server,
        started("node", "--parent", server.endpoint, "--listen", ANYWHERE) as node,
    ):
        node.signal(signal.SIGSTOP)  # so that the server waits for its answer to BYE
        server.signal(signal.SIGINT)
        await wait_until(lambda: any("stopping" in line for line in lines))
        await asyncio.sleep(2 * SAME_S)
        server.signal(signal.SIGINT)
        assert await server.wait() == 130
        assert await node.stop(0.1) == -signal.SIGKILL  # it hangs, and is killed


async def test_a_process_stops_when_its_starter_closes_its_input() -> None:
    async with started("server", "--listen", ANYWHERE) as server:
        assert server._process.stdin is not None
        server._process.stdin.close()
        async with asyncio.timeout(10):
            assert await server.wait() == 0


async def test_the_allow_list_is_read_again_and_a_bad_one_is_not_taken(tmp_path: Path) -> None:
    desk, node, hub = (make_pair(name) for name in ("desk", "node", "hub"))
    for pair in (desk, node, hub):
        write_pair(pair, tmp_path)
    allow = tmp_path / "allow.toml"
    allow.write_text(_allowed(desk))
    lines: list[str] = []
    secured = ("--key", str(tmp_path / "hub.key"), "--allow", str(allow))
    async with (
        started("server", "--listen", ANYWHERE, *secured, hear=lines.append) as server,
        hullcast.connect(server.endpoint, key=tmp_path / "desk.key", server_key=hub.public) as hc,
    ):
        with pytest.raises(NotPermitted):
            await hc.execute(CREATE)
        keys = ("--key", str(tmp_path / "node.key"), "--allow", str(allow), "--parent-key", str(tmp_path / "hub.pub"))
        words = ("node", "--parent", server.endpoint, "--listen", ANYWHERE, *keys, "--log-level", "error")
        refused = await asyncio.to_thread(hull, *words)
        assert refused.returncode == 2
        assert len(refused.stderr.splitlines()) == 1
        assert "denied" in refused.stderr
        assert server.endpoint in refused.stderr

        allow.write_text(_allowed(desk, "admin = true") + _allowed(node))
        server.signal(signal.SIGHUP)
        await wait_until(lambda: any("allow list read" in line for line in lines))
        await hc.execute(CREATE)
        refused = await asyncio.to_thread(hull, *words)  # now its key is known, but has no right to join as a node
        assert refused.returncode == 2
        assert "does not have the right `node`" in refused.stderr

        allow.write_text("[[key]\n")
        server.signal(signal.SIGHUP)
        await wait_until(lambda: any("allow list refused" in line for line in lines))
        await hc.execute("DROP TABLE T")

        allow.write_text(_allowed(desk, "admin = true") + _allowed(node, "node = true"))
        server.signal(signal.SIGHUP)
        await wait_until(lambda: sum("allow list read" in line for line in lines) == 2)
        async with started(*words) as child:
            allow.write_text("")
            server.signal(signal.SIGHUP)
            await wait_until(lambda: any("closed=2" in line for line in lines))
            assert child.alive  # it waits for better times
        assert await server.stop() == 0


def _allowed(pair: KeyPair, *rights: str) -> str:
    return "\n".join(("[[key]]", f'name = "{pair.name}"', f'public = "{pair.public}"', *rights, ""))
