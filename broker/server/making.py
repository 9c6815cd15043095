"""How much of a kind owners may make by subscribing, and the windows over streams that they open.

Each tuple goes into every window over its stream, in the turn of its publish, so the number of windows is bounded
whatever their size. Windows that are equal are one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.network.wire.errors import Overloaded, TooLarge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.engine.served import ServedEngine

#: Different windows over streams that may be open at once.
MOST_WINDOWS = 64


def check_share(owner: str, makers: Sequence[str | None], most: int, of_one: str, of_all: str) -> None:
    """TooLarge, or Overloaded, if an owner may not make one more thing of a kind. There are those of these `makers`;
    there may be `most`, and half of them of one owner."""
    half = max(1, most // 2)
    if makers.count(owner) >= half:
        raise TooLarge(of_one, half + 1, half)
    if len(makers) >= most:
        raise Overloaded(of_all, most)


class WindowLimits:
    """Which client opened which window, and what all of them take."""

    def __init__(self, engine: ServedEngine, limit_bytes: int) -> None:
        self._engine, self._limit_bytes = engine, limit_bytes
        self._opened_by: dict[str, str | None] = {}

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
        self._opened_by = {name: self._opened_by.get(name) for name in self._engine.streams.windows()}
        what = "different windows over streams of"
        of_one, of_all = f"{what} one client (share some: WHERE comes after the window)", f"{what} all clients"
        check_share(owner, list(self._opened_by.values()), MOST_WINDOWS, of_one, of_all)
        size, taken, limit = planned.size_bytes, self.size_bytes, self._limit_bytes
        if size > limit:
            remedy = "use a smaller one, or ask the operator to raise stream_window_bytes"
            raise TooLarge(f"bytes of the window {planned.name} ({remedy})", size, limit)
        if taken + size > limit:
            room = f"stream_window_bytes; {taken:,} are taken, {planned.name} needs {size:,}"
            raise Overloaded(f"bytes of windows over streams ({room})", limit)
        self._opened_by[planned.name] = owner
