"""Streams that subscriptions to joins make: created for the first, dropped some time after the last.

A subscription to a join over streams reads a stream of its own (broker/queries/derived.py), which all that are alike
share. It is made before the subscription is understood, by a statement that is logged like any other: so it is there
after a restart, with its results, and subscribers go on where they were.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hullcast.broker.queries.derived import is_hidden
from hullcast.broker.tables.schema import fold
from hullcast.network.wire.errors import Overloaded, TableInUse, TooLarge

if TYPE_CHECKING:
    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.server.attendance import Attendance
    from hullcast.broker.server.changing import Changing, Joins

#: Different joins over streams that subscriptions may need at once; each is computed for all tuples of its streams.
MOST_JOINS = 64


class HiddenStreams:
    """Which of them there are, and since when nobody has read them."""

    def __init__(
        self, engine: ServedEngine, attendance: Attendance, linger_s: float, changing: Changing, joins: Joins
    ) -> None:
        self._engine, self._attendance, self._linger_s = engine, attendance, linger_s
        self._changing, self._joins = changing, joins
        self._deserted: dict[str, float] = {}
        self._made_by: dict[str, str] = {}  # since the server started

    def make_for(self, sql: str, owner: str) -> None:
        """Make the stream that a subscription needs, if it is not there. TooLarge or Overloaded if there are too many,
        or they would keep too much; one owner makes half of them at most."""
        statement = self._engine.catalogue.join_to_make(sql)
        if statement is None:
            return
        names = set(self._names())
        self._made_by = {name: maker for name, maker in self._made_by.items() if name in names}
        if list(self._made_by.values()).count(owner) >= MOST_JOINS // 2:
            what = "different joins over streams of one client (close some of its subscriptions)"
            raise TooLarge(what, MOST_JOINS // 2 + 1, MOST_JOINS // 2)
        if len(names) >= MOST_JOINS:
            raise Overloaded("different joins over streams of all clients", MOST_JOINS)
        planned = self._engine.catalogue.join_planned(sql)
        assert planned is not None, "it is not there"
        self._joins.check_room(planned)
        self._changing.execute_own(statement)
        self._made_by.update((name, owner) for name in self._names() if name not in names)

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
