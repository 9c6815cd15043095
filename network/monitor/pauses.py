"""How long the event loop stood still: what everybody connected to this process had to wait for."""

from __future__ import annotations

import asyncio
from collections import deque

#: How often the loop is looked at: a pause is noted up to this much too short, and one shorter than this may go
#: unnoticed. Looking is what an idle process wakes up for: five times as often costs half a per cent of a core more.
LOOK_S = 0.1
#: The time over which the longest pause is told, in so many pieces.
RECENT_S, PIECES = 60.0, 12


class Pauses:
    """Looks at the loop now and then, and notes how late each look came."""

    def __init__(self) -> None:
        self.longest_s = 0.0  # since the start
        self._pieces: deque[float] = deque([0.0], maxlen=PIECES)
        self._piece_ends = 0.0

    @property
    def recent_s(self) -> float:
        """The longest pause of the last minute."""
        return max(self._pieces)

    def note(self, pause_s: float, now: float) -> None:
        """A look came so late."""
        if now >= self._piece_ends:
            self._piece_ends = now + RECENT_S / PIECES
            self._pieces.append(0.0)
        self._pieces[-1] = max(self._pieces[-1], pause_s)
        self.longest_s = max(self.longest_s, pause_s)

    async def run(self) -> None:
        """Look until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOK_S
            await asyncio.sleep(LOOK_S)
            now = loop.time()
            self.note(max(0.0, now - due), now)
