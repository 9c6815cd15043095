"""Receipts on their way out: those of one client leave together, unawaited ones a little later."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hullcast.network.wire import bodies
from hullcast.network.wire.bodies import Done, Receipts
from hullcast.network.wire.frames import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.network.wire.frames import Request

#: How long a receipt that nobody waits for may stay, and how many of one client may.
LAZY_S, LAZY_MOST = 0.05, 16
#: Receipts of one reply. The slower the disk, the more are owed at once, and a frame has its limits.
TOGETHER_MOST = 4096


class OwedReceipts:
    """Receipts by client, until they leave. Those of a client that is gone leave for nobody: it will ask again."""

    def __init__(self, answer: Callable[[Reply], None]) -> None:
        self._answer = answer
        self._owed: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}  # by route
        self._due: set[tuple[int, ...]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def owe(self, request: Request, done: Done) -> None:
        """A change was applied, and is on disk."""
        owed = self._owed.setdefault(request.route, [])
        owed.append((request.id, done.first, done.last))
        if not request.lazy or len(owed) >= LAZY_MOST:
            self._due.add(request.route)

    def settle(self) -> None:
        """Send what somebody waits for; the rest when its time has come."""
        due, self._due = self._due, set()
        for route in due:
            self._send(route)
        if self._owed and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LAZY_S, self._send_all)

    def _send_all(self) -> None:
        self._timer = None
        for route in list(self._owed):
            self._send(route)

    def _send(self, route: tuple[int, ...]) -> None:
        owed = self._owed.pop(route)
        for start in range(0, len(owed), TOGETHER_MOST):
            changes = owed[start : start + TOGETHER_MOST]
            number, first, last = changes[-1]
            body = Done(first, last) if len(changes) == 1 else Receipts(tuple(changes))
            self._answer(Reply(number, route, (), bodies.encode(body)))

    def close(self) -> None:
        """Send what is owed; nothing is sent later."""
        if self._timer is not None:
            self._timer.cancel()
        self._send_all()
