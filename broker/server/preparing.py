"""Requests for many subscriptions at once: parsed and opened piece by piece, so that nobody else waits for them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from network.wire.errors import Overloaded

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.server.brain import Brain
    from network.wire.bodies import Subscribe
    from network.wire.frames import Request

    Handle = Callable[[Request, Subscribe], None]

#: Groups up to which a request is answered at once.
FEW = 4
#: Requests that may wait; when full, more are refused as Overloaded.
WAITING = 1000
#: Seconds of work between two turns of the event loop.
TURN_S = 0.005


class Preparing:
    """A queue of large requests, and the one who prepares them.

    Parsing a text takes milliseconds and opening a channel reads its table; neither changes an answer. What is left
    for the one turn in which all groups are answered, at one moment, is quick. What a sender may do is looked up
    when it is done, since rights may be withdrawn while a request waits.
    """

    def __init__(self, brain: Brain, handle: Handle) -> None:
        self._brain = brain
        self._handle = handle
        self._waiting: asyncio.Queue[tuple[Request, Subscribe]] = asyncio.Queue(WAITING)

    def put(self, request: Request, body: Subscribe) -> None:
        """Queue a request."""
        try:
            self._waiting.put_nowait((request, body))
        except asyncio.QueueFull:
            raise Overloaded("requests to subscribe waiting", WAITING) from None

    async def run(self) -> None:
        """Prepare requests until cancelled."""
        while True:
            request, body = await self._waiting.get()
            began = time.monotonic()
            for group in body.groups:
                self._brain.subscribing.prepare(group, self._brain.sender(request))
                if time.monotonic() - began > TURN_S:
                    await asyncio.sleep(0)
                    began = time.monotonic()
            self._handle(request, body)
