"""Where a client's settings come from, and what it may dial."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgpack  # type: ignore[import-untyped]  # has no types
import pytest
import zmq
import zmq.asyncio

import hullcast
from hullcast import BadSetting
from hullcast.broker.server.service import Server
from hullcast.broker.server.settings import ServerSettings
from hullcast.clients.sdk.connecting import configure
from hullcast.clients.sdk.publishing import Gate
from hullcast.clients.sdk.testing import serving
from hullcast.network.link.header import VERSION
from hullcast.network.security.authenticator import LOGGED_MOST
from hullcast.network.security.curve import Curve
from hullcast.network.security.keys import KeyPair, make_pair, write_pair
from hullcast.network.security.rights import Rights
from hullcast.network.settings.common import SecuritySettings
from hullcast.network.wire.errors import VersionMismatch
from hullcast.network.wire.logs import event_of


def test_an_argument_wins_over_the_url_that_over_the_environment_that_over_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert configure().endpoints == ("tcp://127.0.0.1:7600",)
    assert configure().timeout_s == 30
    monkeypatch.setenv("HULLCAST_URL", "tcp://127.0.0.1:1, tcp://127.0.0.1:2")
    monkeypatch.setenv("HULLCAST_NAME", "environment")
    monkeypatch.setenv("HULLCAST_TIMEOUT", "7")
    found = configure()
    assert found.endpoints == ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")
    assert (found.name, found.timeout_s) == ("environment", 7)
    found = configure("tcp://127.0.0.1:3?name=url&timeout=5")
    assert (found.endpoints, found.name, found.timeout_s) == (("tcp://127.0.0.1:3",), "url", 5)
    found = configure(["tcp://127.0.0.1:3?name=url", "tcp://127.0.0.1:4"], name="argument", timeout=1)
    assert (found.endpoints, found.name, found.timeout_s) == (
        ("tcp://127.0.0.1:3", "tcp://127.0.0.1:4"),
        "argument",
        1,
    )


@pytest.mark.parametrize(
    ("url", "settings", "says"),
    [
        ("localhost:7600", {}, "tcp://HOST:PORT"),
        ("tcp://127.0.0.1:1?speed=9", {}, "unknown option 'speed'"),
        ([], {}, "at least one"),
        (None, {"timeout": 0}, "positive"),
        (None, {"timeout": "soon"}, "number of seconds"),
        (None, {"key": "some.key"}, "needs both.*--server-key"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_dialled(url: object, settings: object, says: str) -> None:
    with pytest.raises(BadSetting, match=says):
        configure(url, **settings)  # type: ignore[arg-type]  # that is the point


async def test_keys_open_an_encrypted_connection_and_rights_hold(tmp_path: Path) -> None:
    server, desk, stranger = make_pair("server"), make_pair("desk"), make_pair("stranger")
    for pair in (server, desk, stranger):
        write_pair(pair, tmp_path)
    rights = Rights.parse({"key": [{"name": "desk", "public": desk.public, "subscribe": ["*"]}]})
    curve = Curve(server.public, server.secret)
    settings = ServerSettings(listen="tcp://127.0.0.1:0", security=SecuritySettings())
    service = Server(settings, rights, curve=curve)
    public = tmp_path / "server.pub"
    async with asyncio.timeout(30), serving(service):
        async with hullcast.connect(service.endpoint, key=tmp_path / "desk.key", server_key=public) as hc:
            assert await hc.tables() == {}
            with pytest.raises(hullcast.NotPermitted, match="desk does not have the right"):
                await hc.execute("CREATE TABLE T (K INTEGER PRIMARY KEY)")
        with pytest.raises(hullcast.PeerClosed, match=f"denied.*our key.*operator.*{service.endpoint}") as refused:
            async with asyncio.timeout(5):  # at once, not after its timeout
                await hullcast.connect(service.endpoint, key=tmp_path / "stranger.key", server_key=public, timeout=60)
        assert refused.value.code == "denied"
        # who hangs up first is a matter of luck: if we do, it is known for sure
        with pytest.raises(
            (hullcast.PeerClosed, hullcast.ConnectionLost), match=r"(server|or it) needs a key.*server_key"
        ) as keyless:
            await hullcast.connect(service.endpoint, timeout=1)
        assert "try again" not in str(keyless.value)
        other = tmp_path / "stranger.pub"
        with pytest.raises(hullcast.ConnectionLost, match="is the server key the one of this server") as wrong:
            await hullcast.connect(service.endpoint, key=tmp_path / "desk.key", server_key=other, timeout=1)
        assert "if it takes no keys, leave them out (--key" in str(wrong.value)
        assert "try again" not in str(wrong.value)


async def test_a_key_for_a_server_without_one_is_told_at_once(tmp_path: Path) -> None:
    desk = make_pair("desk")
    write_pair(desk, tmp_path)
    service = Server(ServerSettings(listen="tcp://127.0.0.1:0"), Rights.everything())
    async with asyncio.timeout(30), serving(service):
        with pytest.raises(hullcast.PeerClosed, match=r"takes no keys; leave them out .--key and --server-key"):
            await hullcast.connect(service.endpoint, key=tmp_path / "desk.key", server_key=desk.public, timeout=60)


async def test_refused_keys_are_logged_with_their_fingerprints_but_do_not_flood_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, stranger = make_pair("server"), make_pair("stranger")
    service = Server(
        ServerSettings(listen="tcp://127.0.0.1:0"), Rights.parse({}), curve=Curve(server.public, server.secret)
    )

    def lines() -> list[logging.LogRecord]:
        return [line for line in caplog.records if event_of(line) == "key refused"]

    async def knock(pair: KeyPair) -> None:
        write_pair(pair, tmp_path, force=True)
        with pytest.raises(hullcast.PeerClosed):
            await hullcast.connect(
                service.endpoint, key=tmp_path / f"{pair.name}.key", server_key=server.public, timeout=60
            )

    async with asyncio.timeout(60), serving(service):
        await knock(stranger)
        await knock(stranger)
        assert [vars(line)["key"] for line in lines()] == [f"{stranger.public[:10]}.."]
        assert vars(lines()[0])["address"] == "127.0.0.1"
        for _ in range(2 * LOGGED_MOST):
            await knock(make_pair("another"))
        assert len(lines()) == LOGGED_MOST
        assert service.children.listener.statistics().refused_keys >= 2 + 2 * LOGGED_MOST


async def test_a_gate_lets_so_many_pass_in_the_order_they_came_and_a_cancelled_one_leaves_its_place() -> None:
    gate, passed = Gate(2, 100), []
    leave = asyncio.Event()

    async def pass_through(name: str, size: int) -> None:
        async with gate.passing(size):
            passed.append(name)
            await leave.wait()

    tasks = [asyncio.create_task(pass_through(name, 10)) for name in "abcd"]
    tasks.append(asyncio.create_task(pass_through("large", 1000)))
    await asyncio.sleep(0)
    assert passed == ["a", "b"]
    tasks[2].cancel()
    leave.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert passed == ["a", "b", "d", "large"]
    async with gate.passing(1):
        pass


@pytest.mark.parametrize(
    ("theirs", "remedy"), [(VERSION - 1, "upgrade the other side"), (VERSION + 1, "upgrade this side")]
)
@pytest.mark.parametrize("says", [["bye", "version", "no"], ["welcome", {}]])
async def test_a_server_of_another_version_is_named_as_such_at_once(
    theirs: int, remedy: str, says: list[object]
) -> None:
    context = zmq.asyncio.Context()
    with context.socket(zmq.ROUTER) as old:
        old.set(zmq.LINGER, 0)  # an answer to one who has left keeps nobody waiting
        port = old.bind_to_random_port("tcp://127.0.0.1")

        async def answer() -> None:
            while True:
                identity, _ = await old.recv_multipart()
                await old.send_multipart([identity, msgpack.packb([theirs, *says])])

        answering = asyncio.create_task(answer(), name="test.old server")
        with pytest.raises(VersionMismatch, match=f"version {VERSION}, the other side {theirs}; {remedy}") as caught:
            await hullcast.connect(f"tcp://127.0.0.1:{port}", timeout=30)
        assert (caught.value.ours, caught.value.theirs) == (VERSION, theirs)
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
    context.term()
