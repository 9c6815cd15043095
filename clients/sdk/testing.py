"""`hullcast.testing`: a real server and nodes inside your test's process.

    async with testing.cluster() as endpoint, hullcast.connect(endpoint) as hc:
        ...

Nothing is mocked: the same server, nodes, links and wire format as in production, over `inproc://`, with the rows in
memory. A cluster starts in milliseconds and leaves nothing behind. Only the first one on a machine compiles the kernels
before it starts, for about a minute, and says so (`hullcast warm` does that ahead).
"""

from __future__ import annotations

import asyncio
import itertools
import os
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Protocol

from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.server.service import Server
from hullcast.broker.server.settings import ServerSettings
from hullcast.clients.sdk.blocking import run_in_thread
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.connecting import configure
from hullcast.network.node.node import Node
from hullcast.network.node.settings import NodeSettings
from hullcast.network.security.rights import Rights

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

_numbers = itertools.count(1)

START_S = 30.0


class _Service(Protocol):
    @property
    def endpoint(self) -> str: ...

    async def run(self, started: asyncio.Event | None = None) -> None: ...


def memory() -> ServedEngine:
    """An embedded engine, without a network, for tests of queries alone."""
    return ServedEngine()


@asynccontextmanager
async def cluster(nodes: int = 0, data: Path | None = None) -> AsyncIterator[str]:
    """A running server with `nodes` nodes; gives the endpoint of the last node, or of the server if there is none.

    The nodes form a tree: the first one connects to the server, the others connect to the first. With `data`, a folder,
    the rows are kept there, and their change history can be read.
    """
    await asyncio.to_thread(_compile_once)
    name = f"inproc://hullcast-{os.getpid()}-{next(_numbers)}"
    everybody = Rights.everything()
    async with AsyncExitStack() as stack:
        server = Server(ServerSettings(listen=name, data=data), everybody)
        await stack.enter_async_context(serving(server))
        endpoint, parent = server.endpoint, server.endpoint
        for i in range(nodes):
            node = Node(NodeSettings(listen=f"{name}-{i}", parent=(parent,), name=f"node-{i}"), everybody)
            await stack.enter_async_context(serving(node))
            endpoint = node.endpoint
            if i == 0:
                parent = node.endpoint
        if nodes:
            await _reach(endpoint)
        yield endpoint


@asynccontextmanager
async def serving(service: _Service) -> AsyncIterator[None]:
    """A server or node at work; when its task fails, so does what is inside."""
    started = asyncio.Event()
    body = asyncio.current_task()
    assert body is not None
    failures: list[BaseException] = []

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            failures.append(task.exception() or RuntimeError())
            body.cancel()

    task = asyncio.create_task(service.run(started), name=f"testing {type(service).__name__}")
    task.add_done_callback(ended)
    try:
        async with asyncio.timeout(START_S):
            await started.wait()
        yield
    except asyncio.CancelledError:
        if failures:
            body.uncancel()
            raise failures[0] from None
        raise
    finally:
        task.remove_done_callback(ended)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@cache
def _compile_once() -> None:
    """Compile what this machine has not compiled yet: the first calls would time out while they wait for it."""
    from hullcast.broker.server.warming import is_cold, warm_server  # here: it loads numba, which clients do without

    if is_cold():
        warm_server()


async def _reach(endpoint: str) -> None:
    """Until the way to the server is complete."""
    async with Client(configure(endpoint, name="testing", timeout=START_S)) as client:
        await client.sync()


@contextmanager
def blocking_cluster(nodes: int = 0, data: Path | None = None) -> Iterator[str]:
    """A running cluster for tests without asyncio; connect with `hullcast.connect_blocking`."""
    with run_in_thread(cluster(nodes, data), "hullcast testing") as endpoint:
        yield endpoint


__all__ = ["blocking_cluster", "cluster", "memory"]
