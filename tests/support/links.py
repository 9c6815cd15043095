"""Handlers that record what links say, and a wait for conditions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from hullcast.network.link.dialer import Dialer
from hullcast.network.link.limits import LinkLimits
from hullcast.network.link.listener import Listener
from hullcast.network.link.peer import Peer

#: Quick to notice, so that tests need not wait; long enough for a busy machine.
QUICK = LinkLimits(heartbeat_s=0.1, silence_s=1.5, handshake_s=1.0, backoff_s=0.02, backoff_most_s=0.2)


async def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for a condition; the test fails when it does not come."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  the conditions are of many objects, none with an event of its own
            await asyncio.sleep(0.002)


class Parent:
    """A listener's handler that records, and echoes if told to."""

    def __init__(self, echo: bool = False) -> None:
        self.echo = echo
        self.joined: list[Peer] = []
        self.left: list[tuple[Peer, str]] = []
        self.frames: list[bytes] = []
        self.quiets: list[int] = []  # how many frames had come at each
        self.act: Callable[[Peer, bytes], None] | None = None

    def on_join(self, peer: Peer) -> None:
        self.joined.append(peer)

    def on_frame(self, peer: Peer, payload: bytes) -> None:
        self.frames.append(payload)
        if self.act is not None:
            self.act(peer, payload)
        if self.echo:
            peer.send(payload)

    def on_quiet(self) -> None:
        self.quiets.append(len(self.frames))

    def on_leave(self, peer: Peer, why: str) -> None:
        self.left.append((peer, why))


class Child:
    """A dialer's handler that records."""

    def __init__(self) -> None:
        self.ups: list[tuple[Mapping[str, object], bool]] = []
        self.downs: list[str] = []
        self.frames: list[bytes] = []
        self.quiets: list[int] = []  # how many frames had come at each
        self.act: Callable[[bytes], None] | None = None

    def on_up(self, welcome: Mapping[str, object], fresh: bool) -> None:
        self.ups.append((welcome, fresh))

    def on_frame(self, payload: bytes) -> None:
        self.frames.append(payload)
        if self.act is not None:
            self.act(payload)

    def on_quiet(self) -> None:
        self.quiets.append(len(self.frames))

    def on_down(self, why: str) -> None:
        self.downs.append(why)


@asynccontextmanager
async def running_listener(
    endpoint: str = "tcp://127.0.0.1:*", *, echo: bool = False, **options: Any
) -> AsyncIterator[tuple[Listener, Parent]]:
    """A listener for the length of the block; a failure of its handler fails the test."""
    if endpoint.startswith("inproc:"):  # a name each: it is taken until ZeroMQ's own thread has closed the socket
        endpoint += os.urandom(4).hex()
    listener, parent = Listener(endpoint, **{"limits": QUICK, **options}), Parent(echo)
    listener.start(parent)
    try:
        yield listener, parent
    finally:
        await listener.stop()
    if listener.failed.done():
        listener.failed.result()


@asynccontextmanager
async def running_dialer(*endpoints: str, linked: bool = True, **options: Any) -> AsyncIterator[tuple[Dialer, Child]]:
    """A dialer for the length of the block, linked at its beginning unless told otherwise."""
    dialer, child = Dialer(endpoints, **{"role": "client", "name": "child", "limits": QUICK, **options}), Child()
    dialer.start(child)
    try:
        if linked:
            await wait_until(lambda: child.ups)
        yield dialer, child
    finally:
        await dialer.stop()
    if dialer.failed.done():
        dialer.failed.result()


def descriptors() -> set[tuple[str, str]]:
    """The open files of this process, by number and what they are."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
        except FileNotFoundError:
            continue  # the listing's own
    return found
