"""A gate: so many at once, and so many bytes."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Gate:
    """Lets callers pass in the order they came; who finds it full waits. One alone always passes, whatever its size."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._inside = self._bytes = 0
        self._queue: deque[tuple[asyncio.Future[None], int]] = deque()

    @asynccontextmanager
    async def passing(self, size_bytes: int) -> AsyncIterator[None]:
        """Be inside."""
        if self._queue or not self._has_room(size_bytes):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append((turn, size_bytes))
            try:
                await turn  # whoever makes room counts us in
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._leave(size_bytes)
                raise
        else:
            self._enter(size_bytes)
        try:
            yield
        finally:
            self._leave(size_bytes)

    def _has_room(self, size_bytes: int) -> bool:
        return not self._inside or (self._inside < self._most and self._bytes + size_bytes <= self._most_bytes)

    def _enter(self, size_bytes: int) -> None:
        self._inside += 1
        self._bytes += size_bytes

    def _leave(self, size_bytes: int) -> None:
        self._inside -= 1
        self._bytes -= size_bytes
        while self._queue and (self._queue[0][0].done() or self._has_room(self._queue[0][1])):
            turn, size = self._queue.popleft()
            if not turn.done():
                self._enter(size)
                turn.set_result(None)
