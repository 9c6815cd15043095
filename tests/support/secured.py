"""A server and a gateway with keys and an allow list, inside this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq

from hullcast.broker.server.service import Server
from hullcast.broker.server.settings import ServerSettings
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.connecting import configure
from hullcast.network.node.node import Node
from hullcast.network.node.settings import NodeSettings
from hullcast.network.security.curve import Curve
from hullcast.network.security.keys import KeyPair, make_pair, write_pair
from hullcast.network.security.rights import Rights
from hullcast.network.settings.common import SecuritySettings
from tests.support.cluster import PATIENCE_S, wait_for

#: Of everybody who is on no list, these have a key.
OTHERS = ("server", "outsider", "impostor")
RIGHTS: dict[str, dict[str, object]] = {
    "gateway": {"node": True},
    "admin": {"admin": True},
    "ticker": {"publish": ["STOCK"]},
    "reader": {"subscribe": ["stock"], "query": ["STOCK"]},
}


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
async def secured(
    folder: Path, granted: dict[str, dict[str, object]] = RIGHTS, **options: Any
) -> AsyncIterator[Secured]:
    """`granted`: the rights of each, by name; `gateway` is the node's. The options are the server's."""
    pairs = {name: make_pair(name) for name in (*OTHERS, *granted)}
    for pair in pairs.values():
        write_pair(pair, folder)
    rights = allowed(pairs, granted)
    context: zmq.Context[Any] = zmq.Context()
    async with AsyncExitStack() as stack:
        stack.callback(context.destroy, linger=0)
        server = Server(
            ServerSettings(
                listen="tcp://127.0.0.1:0",
                **options,
                security=SecuritySettings(key=folder / "server.key", allow=folder / "allow.toml"),
            ),
            rights,
            curve=curve_of(pairs["server"]),
            context=context,
        )
        await stack.enter_async_context(running(server.run))
        node = gateway(folder, server, pairs["gateway"], pairs["server"], rights, context)
        await stack.enter_async_context(running(node.run))
        await wait_for(lambda: node.path, "the gateway is attached")
        yield Secured(folder, pairs, context, server, node)


def allowed(pairs: dict[str, KeyPair], granted: dict[str, dict[str, object]]) -> Rights:
    return Rights.parse(
        {"key": [{"name": name, "public": pairs[name].public, **rights} for name, rights in granted.items()]}
    )


def gateway(
    folder: Path, server: Server, pair: KeyPair, parent: KeyPair, rights: Rights, context: zmq.Context[Any]
) -> Node:
    settings = NodeSettings(
        parent=(server.endpoint,),
        name=pair.name,
        security=SecuritySettings(key=folder / f"{pair.name}.key", allow=folder / "allow.toml"),
    )
    return Node(settings, rights, curve=curve_of(pair), parent_curve=curve_of(pair, parent), context=context)


def curve_of(pair: KeyPair, other: KeyPair | None = None) -> Curve:
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
