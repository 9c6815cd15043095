"""What subscriptions make: streams of joins, dropped some time after the last one, and windows over streams.

A subscription to a join over streams reads a stream of its own (broker/queries/derived.py), which all that are alike
share. It is made before the subscription is understood, by a statement that is logged like any other: so it is there
after a restart, with its results, and subscribers go on where they were.

Each tuple goes into every window over its stream, in the turn of its publish, so the number of windows is bounded
whatever their size. Windows that are equal are one.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hullcast.broker.queries.derived import is_hidden
from hullcast.broker.tables.schema import fold
from hullcast.network.wire.errors import Overloaded, TableInUse, TooLarge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.server.attendance import Attendance
    from hullcast.broker.server.changing import Changing
    from hullcast.broker.server.streams import StreamsProcess

#: Different joins over streams that subscriptions may need at once; each is computed for all tuples of its streams.
MOST_JOINS = 64
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


class HiddenStreams:
    """Streams of joins that subscriptions made, and since when nobody has read them."""

    def __init__(
        self, engine: ServedEngine, attendance: Attendance, linger_s: float, changing: Changing, joins: StreamsProcess
    ) -> None:
        self._engine, self._attendance, self._linger_s = engine, attendance, linger_s
        self._changing, self._joins = changing, joins
        self._deserted: dict[str, float] = {}
        self._made_by: dict[str, str | None] = {}  # None: before the server started

    def make_for(self, sql: str, owner: str) -> None:
        """Make the stream that a subscription needs, if it is not there. TooLarge or Overloaded if there are too many,
        or they would keep too much."""
        statement = self._engine.catalogue.join_to_make(sql)
        if statement is None:
            return
        self._made_by = {name: self._made_by.get(name) for name in self._names()}
        what = "different joins over streams of"
        of_one, of_all = f"{what} one client (close some of its subscriptions)", f"{what} all clients"
        check_share(owner, list(self._made_by.values()), MOST_JOINS, of_one, of_all)
        planned = self._engine.catalogue.join_planned(sql)
        assert planned is not None, "it is not there"
        self._joins.check_room(planned)
        self._changing.execute_own(statement)
        self._made_by = {name: self._made_by.get(name, owner) for name in self._names()}

    def _names(self) -> list[str]:
        return [name for name in self._engine.tables if is_hidden(name)]

    def expire(self, now: float) -> None:
        """Drop those that nobody has read for a while; a subscriber that was lost may come back until then."""
        read = {fold(table) for attending in self._attendance for table in attending.channel.shape.tables}
        self._deserted = {name: self._deserted.get(name, now) for name in self._names() if fold(name) not in read}
        for name, since in list(self._deserted.items()):
            if now - since >= self._linger_s:
                del self._deserted[name]
                with suppress(TableInUse):  # another time
                    self._changing.execute_own(f'DROP STREAM "{name}"')


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
