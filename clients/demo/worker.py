"""What the demo's own processes have in common: they stay quiet, and report when their link moves."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hullcast.clients.sdk.client import Client

LOOK_S = 0.005


def stay_quiet() -> None:
    """The terminal is the parent's: no logs on it, and Ctrl-C there is for the parent alone, who closes our input."""
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Moves:
    """Notes when a client was subscribed again, and where; times are of the clock all processes here share."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._moves: list[dict[str, Any]] = []
        self._task = asyncio.create_task(self._watch(), name="demo.moves")

    def report(self) -> dict[str, Any]:
        """Where the client is, and the moves so far."""
        return {
            "endpoint": self._client.statistics().link.endpoint,
            "connected": self._client.connected,
            "moves": self._moves,
        }

    async def stop(self) -> None:
        """Look no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        fresh = self._client.statistics().link.fresh
        while True:
            await asyncio.sleep(LOOK_S)
            now = self._client.statistics().link
            if now.fresh != fresh and now.state == "up" and self._client.connected:
                fresh = now.fresh
                self._moves.append({"at": time.monotonic(), "endpoint": now.endpoint})
