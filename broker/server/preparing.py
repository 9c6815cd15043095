"""Requests for many subscriptions at once: parsed and opened piece by piece, so that nobody else waits for them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from network.wire.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.server.subscribing import Subscribing
    from network.security.rights import Identity
    from network.wire.bodies import Subscribe
    from network.wire.frames import Request

    Handle = Callable[[Request, Subscribe, Identity], None]

#: Groups up to which a request is answered at once.
FEW = 4
#: Requests that may wait; when full, more are refused as Overloaded.
WAITING = 1000
#: Seconds of work between two turns of the event loop.
TURN_S = 0.005


class Preparing:
    """A queue of large requests, and the one who prepares them.

    Parsing a text takes milliseconds and opening a channel reads its table; neither changes an answer. What is left
    for the one turn in which all groups are answered, at one moment, is quick.
    """

    def __init__(self, subscribing: Subscribing, handle: Handle) -> None:
        self._subscribing = subscribing
        self._handle = handle
        self._waiting: asyncio.Queue[tuple[Request, Subscribe, Identity]] = asyncio.Queue(WAITING)

    def put(self, request: Request, body: Subscribe, sender: Identity) -> None:
        """Queue a request."""
        try:
            self._waiting.put_nowait((request, body, sender))
        except asyncio.QueueFull:
            raise Overloaded("requests to subscribe waiting", WAITING) from None

    async def run(self) -> None:
        """Prepare requests until cancelled."""
        while True:
            request, body, sender = await self._waiting.get()
            began = time.monotonic()
            for group in body.groups:
                self._subscribing.prepare(group, sender)
                if time.monotonic() - began > TURN_S:
                    await asyncio.sleep(0)
                    began = time.monotonic()
            self._handle(request, body, sender)
