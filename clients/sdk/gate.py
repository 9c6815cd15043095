"""A gate: callers take turns in the order they came, and so many are inside at once, with so many bytes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Turn:
    """A caller's turn, once it was taken, until it is over; at the end of a `with` block at the latest."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._taken = False

    async def take(self) -> None:
        """Wait for it; who has it already has it still."""
        if not self._taken:
            await self._lock.acquire()
            self._taken = True

    def end(self) -> None:
        """Let the next one have it."""
        if self._taken:
            self._taken = False
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()


class Gate:
    """Whoever has the turn may go inside, and waits while it is full. One alone always passes, whatever its size."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._inside = self._bytes = 0
        self._turn = asyncio.Lock()  # given to those who wait in the order they came
        self._someone_left = asyncio.Event()

    def turn(self) -> Turn:
        """A turn, not yet taken."""
        return Turn(self._turn)

    @asynccontextmanager
    async def passing(self, size_bytes: int) -> AsyncIterator[None]:
        """Be inside, for longer than one's turn if need be."""
        while not self._has_room(size_bytes):
            self._someone_left.clear()
            await self._someone_left.wait()
        self._inside += 1
        self._bytes += size_bytes
        try:
            yield
        finally:
            self._inside -= 1
            self._bytes -= size_bytes
            self._someone_left.set()

    def _has_room(self, size_bytes: int) -> bool:
        return not self._inside or (self._inside < self._most and self._bytes + size_bytes <= self._most_bytes)
