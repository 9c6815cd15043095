"""How many windows over streams subscriptions may open, and how much memory these may take.

Each tuple of a stream goes into every window over it, in the turn of its publish, so the number of windows is bounded
whatever their size. Windows that are equal are one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.network.wire.errors import Overloaded, TooLarge

if TYPE_CHECKING:
    from hullcast.broker.engine.served import ServedEngine

#: Different windows over streams that may be open at once; half of them for one client.
MOST_WINDOWS = 64


class WindowLimits:
    """Which client opened which window, and what all of them take."""

    def __init__(self, engine: ServedEngine, limit_bytes: int) -> None:
        self._engine, self._limit_bytes = engine, limit_bytes
        self._opened_by: dict[str, str] = {}  # by window

    @property
    def size_bytes(self) -> int:
        """What all windows take, or will take with as many tuples as they may have, where that is known."""
        return sum(window.promised_bytes for window in self._engine.streams.windows().values())

    def admit(self, sql: str, owner: str) -> None:
        """Note who opens the window that a subscription needs, if it is not there; the caller opens it right away.
        TooLarge or Overloaded if there are too many, or if it would take too much memory."""
        planned = self._engine.catalogue.window_to_open(sql)
        if planned is None:
            return
        windows = self._engine.streams.windows()
        self._opened_by = {name: opener for name, opener in self._opened_by.items() if name in windows}
        if list(self._opened_by.values()).count(owner) >= MOST_WINDOWS // 2:
            what = "different windows over streams of one client (share some: WHERE comes after the window)"
            raise TooLarge(what, MOST_WINDOWS // 2 + 1, MOST_WINDOWS // 2)
        if len(windows) >= MOST_WINDOWS:
            raise Overloaded("different windows over streams of all clients", MOST_WINDOWS)
        size, limit = planned.size_bytes, self._limit_bytes
        if size > limit:
            remedy = "use a smaller one, or ask the operator to raise stream_window_bytes"
            what = f"bytes of the window {planned.name} ({remedy})"
            raise TooLarge(what, size, limit)
        taken = self.size_bytes
        if taken + size > limit:
            room = f"stream_window_bytes; {taken:,} are taken, {planned.name} needs {size:,}"
            what = f"bytes of windows over streams ({room})"
            raise Overloaded(what, limit)
        self._opened_by[planned.name] = owner
