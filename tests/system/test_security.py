"""Keys and rights, end to end: who may come in, what each may do, also through a node that speaks for its clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zmq

from broker.server.service import Server
from broker.server.settings import ServerSettings
from clients.sdk.client import Client
from clients.sdk.connecting import configure
from network.node.node import Node
from network.node.settings import NodeSettings
from network.security.curve import Curve
from network.security.keys import KeyPair, make_pair, write_pair
from network.security.rights import Rights
from network.settings.common import SecuritySettings
from network.wire.errors import BadSetting, ConnectionLost, NotPermitted, PeerClosed
from tests.support.cluster import COMMAND, PATIENCE_S, wait_for

NAMES = ("server", "gateway", "admin", "ticker", "reader", "outsider", "impostor")
RIGHTS: dict[str, dict[str, object]] = {
    "gateway": {"node": True},
    "admin": {"admin": True},
    "ticker": {"publish": ["STOCK"]},
    "reader": {"subscribe": ["stock"], "query": ["STOCK"]},
}
CREATE = "CREATE TABLE {} (SYMBOL TEXT PRIMARY KEY, PER REAL)"
LOWEST = "SELECT MIN(PER) FROM {}"
ROW = {"SYMBOL": "ACME", "PER": 12.5}


@dataclass
class Secured:
    """A server and a gateway with keys and an allow list."""

    folder: Path
    pairs: dict[str, KeyPair]
    context: zmq.Context[Any]
    server: Server
    node: Node

    def client(self, who: str, endpoint: str = "", server: str = "server", timeout: float = PATIENCE_S) -> Client:
        """A client with that key; it dials the gateway."""
        at = endpoint or self.node.endpoint
        expected = "gateway" if at == self.node.endpoint and server == "server" else server
        key, public = self.folder / f"{who}.key", self.folder / f"{expected}.pub"
        return Client(configure(at, key=key, server_key=public, timeout=timeout, name=who), self.context)


@asynccontextmanager
async def secured(folder: Path) -> AsyncIterator[Secured]:
    pairs = {name: make_pair(name) for name in NAMES}
    for pair in pairs.values():
        write_pair(pair, folder)
    rights = Rights.parse(
        {"key": [{"name": name, "public": pairs[name].public, **granted} for name, granted in RIGHTS.items()]}
    )
    context: zmq.Context[Any] = zmq.Context()
    async with AsyncExitStack() as stack:
        stack.callback(context.destroy, linger=0)
        server = Server(
            ServerSettings(
                listen="tcp://127.0.0.1:0",
                security=SecuritySettings(key=folder / "server.key", allow=folder / "allow.toml"),
            ),
            rights,
            curve=_curve(pairs["server"]),
            context=context,
        )
        await stack.enter_async_context(running(server.run))
        node = gateway(folder, server, pairs["gateway"], pairs["server"], rights, context)
        await stack.enter_async_context(running(node.run))
        await wait_for(lambda: node.path, "the gateway is attached")
        yield Secured(folder, pairs, context, server, node)


def gateway(
    folder: Path, server: Server, pair: KeyPair, parent: KeyPair, rights: Rights, context: zmq.Context[Any]
) -> Node:
    settings = NodeSettings(
        parent=(server.endpoint,),
        name=pair.name,
        security=SecuritySettings(key=folder / f"{pair.name}.key", allow=folder / "allow.toml"),
    )
    return Node(settings, rights, curve=_curve(pair), parent_curve=_curve(pair, parent), context=context)


def _curve(pair: KeyPair, other: KeyPair | None = None) -> Curve:
    return Curve(pair.public, pair.secret, other.public if other is not None else None)


@asynccontextmanager
async def running(run: Callable[[asyncio.Event], Any]) -> AsyncIterator[None]:
    started = asyncio.Event()
    task = asyncio.create_task(run(started), name="test.service")
    try:
        await started.wait()
        yield
    finally:
        task.cancel()
        ended = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(ended[0], asyncio.CancelledError), ended


async def test_each_key_may_do_what_the_list_says_and_nothing_else(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path) as s:
        for endpoint in (s.node.endpoint, s.server.endpoint):
            table = "STOCK"
            async with (
                s.client("admin", endpoint) as admin,
                s.client("ticker", endpoint) as ticker,
                s.client("reader", endpoint) as reader,
            ):
                if endpoint == s.node.endpoint:
                    await admin.execute(CREATE.format(table))
                    await admin.execute(CREATE.format("SECRET"))
                refused_before = s.server.brain.refused
                async with reader.subscribe(LOWEST.format(table)) as made:
                    await ticker.publish(table, [ROW])
                    await reader.sync()
                    assert made.answer == 12.5
                    assert await reader.query("SELECT PER FROM STOCK") == [(12.5,)]
                refused: list[tuple[str, Any]] = [
                    ("publish", reader.publish(table, [ROW])),
                    ("publish", reader.delete(table, ["ACME"])),
                    ("publish", ticker.publish("SECRET", [ROW])),
                    ("subscribe", reader.subscribe(LOWEST.format("SECRET"))),
                    ("subscribe", ticker.subscribe(LOWEST.format(table))),
                    ("subscribe", ticker.explain(LOWEST.format(table))),
                    ("query", ticker.query("SELECT * FROM STOCK")),
                    ("query", reader.query("SELECT * FROM STOCK JOIN SECRET USING (SYMBOL)")),
                    ("query", admin.query("SELECT * FROM SECRET")),
                    ("admin", ticker.execute("DROP TABLE STOCK")),
                ]
                for action, call in refused:
                    with pytest.raises(NotPermitted) as caught:
                        await call
                    assert caught.value.action == action
                assert s.server.brain.refused == refused_before + len(refused)
                assert await reader.query("SELECT COUNT(*) FROM STOCK") == [(1,)]


@pytest.mark.parametrize("who", ["outsider", "impostor"])
async def test_a_key_on_no_list_does_not_get_in(who: str, tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path) as s:
        for endpoint in (s.node.endpoint, s.server.endpoint):
            with pytest.raises(PeerClosed, match="denied"):
                await s.client(who, endpoint, timeout=1.0)
        assert s.server.listener.statistics().refused_keys >= 1
        assert s.node.listener.statistics().refused_keys >= 1


async def test_a_server_with_another_key_is_not_trusted(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path) as s:
        with pytest.raises(ConnectionLost):
            await s.client("reader", s.server.endpoint, server="impostor", timeout=1.0)


async def test_plain_text_does_not_get_in_where_keys_are_needed(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path) as s:
        with pytest.raises((ConnectionLost, PeerClosed), match="a key"):
            await Client(configure(s.server.endpoint, timeout=1.0), s.context)
        assert s.server.listener.statistics().peers == 1  # the gateway


async def test_only_a_key_with_the_right_to_joins_as_a_node(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path) as s:
        rogue = gateway(tmp_path, s.server, s.pairs["reader"], s.pairs["server"], Rights.everything(), s.context)
        async with running(rogue.run):
            await wait_for(lambda: "denied" in rogue.dialer.failure, "it is denied")
            assert not rogue.attached
        assert s.server.children.refused >= 1
        assert [peer.name for peer in s.server.listener.peers.values()] == ["gateway"]


def test_plain_text_beyond_this_host_is_refused_unless_asked_for() -> None:
    for settings in (ServerSettings, NodeSettings):
        with pytest.raises(BadSetting, match="plain text"):
            settings(listen="tcp://10.1.2.3:7600").check()
        settings(listen="tcp://10.1.2.3:7600", security=SecuritySettings(insecure=True)).check()
    with pytest.raises(BadSetting, match="plaintext"):
        Client(configure("tcp://10.1.2.3:7600"))


async def test_the_command_line_refuses_plain_text_beyond_this_host() -> None:
    for flags, code in (((), 2), (("--insecure",), 0)):
        process = await asyncio.create_subprocess_exec(
            COMMAND, "server", "--listen", "tcp://10.1.2.3:7600", "--check-config", *flags,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
        assert process.returncode == code, output
        assert b"Traceback" not in output
        assert (b"plain text" in output) == (code == 2), output
