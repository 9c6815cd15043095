"""One-time queries: one at a time, in a thread, so that nobody's slow SELECT holds up the updates."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.server.outcome import Outcome
from network.wire.bodies import Failed, Rows
from network.wire.errors import HullcastError, InvariantBroken, Overloaded, to_wire
from network.wire.values import table_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.engine import Engine
    from network.answers.named import QueryRows
    from network.wire.bodies import Query
    from network.wire.frames import Request

#: Queries that may wait; when full, more are refused as Overloaded.
WAITING = 1000


class Queries:
    """A queue of queries and the one who works it off.

    The copy of the tables that a query reads is brought up to date on the event loop, where rows change; the reading
    itself looks at the copy only.
    """

    def __init__(
        self,
        engine: Engine,
        check: Callable[[Request, Query], None],
        done: Callable[[Request, Outcome], None],
    ) -> None:
        """`check` raises what speaks against a query when its turn has come; it may have waited for long."""
        self._engine = engine
        self._check = check
        self._done = done
        self._waiting: asyncio.Queue[tuple[Request, Query]] = asyncio.Queue(WAITING)
        self.answered = 0

    def put(self, request: Request, query: Query) -> None:
        """Queue a query."""
        try:
            self._waiting.put_nowait((request, query))
        except asyncio.QueueFull:
            raise Overloaded("queries waiting", WAITING) from None

    async def run(self) -> None:
        """Answer queries until cancelled."""
        while True:
            request, query = await self._waiting.get()
            try:
                self._check(request, query)
                read = self._engine.prepare_query(query.sql, *query.parameters)
                outcome = Outcome(await asyncio.to_thread(_rows, read), ordered=True)
            except InvariantBroken:
                raise
            except HullcastError as error:
                outcome = Outcome(Failed(*to_wire(error)))
            self.answered += 1
            self._done(request, outcome)


def _rows(read: Callable[[], QueryRows]) -> Rows:
    rows = read()
    return Rows(*table_of(rows, rows.columns))
