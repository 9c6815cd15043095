"""A gate: callers take turns in the order they came, and so many are inside at once, with so many bytes."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from itertools import islice
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Gate:
    """Whoever has the turn may go inside, and waits while it is full. One alone always passes, whatever its size."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._inside = self._bytes = 0
        self._row: deque[Turn] = deque()  # the first has the turn
        self._someone_left = asyncio.Event()

    def turn(self) -> Turn:
        """A place in the row, from now on."""
        turn = Turn(self)
        self._row.append(turn)
        return turn

    @asynccontextmanager
    async def passing(self, size_bytes: int) -> AsyncIterator[None]:
        """Be inside; to be entered by whoever has the turn, which may end long before the stay inside."""
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
            self._wake()

    def _has_room(self, size_bytes: int) -> bool:
        return not self._inside or (self._inside < self._most and self._bytes + size_bytes <= self._most_bytes)

    def _wake(self) -> None:
        """Let the next ones look whether it is their turn. As many as may pass, so that they do so in one go: woken in
        the order of the row, each is the first when it looks, if those before it passed."""
        for turn in islice(self._row, max(1, self._most - self._inside)):
            turn._look()


class Turn:
    """A place in the row before a gate, until its end; at the end of a `with` block at the latest."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._over = False
        self._waiting: asyncio.Future[None] | None = None

    async def come(self) -> None:
        """Wait until this is the first in the row."""
        while self._gate._row[0] is not self:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    def end(self) -> None:
        """Leave the row: the next one is the first."""
        if not self._over:
            self._over = True
            self._gate._row.remove(self)
            self._gate._wake()

    def _look(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()
