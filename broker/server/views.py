"""CREATE VIEW: the view is made, and its promise measured, before there is such a view.

Everything else about views is a statement like others, or a query. To make one takes as long as reading its tables,
and happens in the warehouse: the request waits, and nobody else does. Only then is the statement executed and logged.
A view that nobody waits for any more is given up before that, and nothing is left of it. If the server ends before
that, there is a file that nobody knows, which the next start removes.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from math import ceil, floor, log10
from typing import TYPE_CHECKING

from hullcast.broker.server.open_requests import ByRoute
from hullcast.broker.server.warehouse import life_of
from hullcast.broker.sql.create import parse_statement
from hullcast.broker.sql.view import CreateView
from hullcast.broker.tables.schema import fold
from hullcast.network.wire.errors import HullcastError, Overloaded, PromiseTooShort, SqlError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.server.warehouse import Warehouse
    from hullcast.network.wire.bodies import Execute
    from hullcast.network.wire.frames import Request

#: Views of a server: each is looked at whenever something happens.
MOST_VIEWS = 64


class ViewMaking:
    """The views that are being made."""

    def __init__(
        self,
        engine: ServedEngine,
        warehouse: Warehouse,
        execute: Callable[[Request, Execute, str], None],
        refuse: Callable[[Request, Execute, HullcastError], None],
    ) -> None:
        """`execute` does the statement and answers; `refuse` answers that it was not done."""
        self._engine, self._warehouse = engine, warehouse
        self._execute, self._refuse = execute, refuse
        self._making: dict[str, asyncio.Task[None]] = {}  # by folded name
        self._open: ByRoute[asyncio.Task[None]] = ByRoute()  # those of them that may be given up, by the request
        self.given_up = 0

    def put(self, request: Request, body: Execute, owner: str) -> bool:
        """Begin to make a view, or refuse it. False if the statement is of another kind, or need not or cannot create
        one: then it is executed, or refused, as any other."""
        try:
            statement = parse_statement(body.sql)
            if not isinstance(statement, CreateView) or (definition := self._engine.catalogue.bound(statement)) is None:
                return False
        except HullcastError:
            return False
        name, others = fold(definition.name), len(self._engine.catalogue.views) + len(self._making)
        if name in self._making:
            self._refuse(request, body, Overloaded(f"requests to create view {definition.name}", 1))
            return True
        if others >= MOST_VIEWS:
            error = SqlError(definition.name, f"there are {others} views", "DROP VIEW one that nobody needs")
            self._refuse(request, body, error)
            return True
        task = asyncio.create_task(self._make(request, body, owner, statement), name="server.view")
        self._making[name] = task
        self._open.add(request, task)
        task.add_done_callback(partial(self._ended, request, name))
        return True

    def _ended(self, request: Request, name: str, task: asyncio.Task[None]) -> None:
        del self._making[name]
        self._open.discard(request, task)

    async def _make(self, request: Request, body: Execute, owner: str, statement: CreateView) -> None:
        try:
            number = await self._make_as_it_is(statement, owner)
        except HullcastError as error:
            self._refuse(request, body, error)
            return
        task = asyncio.current_task()
        assert task is not None
        self._open.discard(request, task)  # from here on it happens
        self._execute(request, body, owner)
        with contextlib.suppress(HullcastError):  # the next life of the process finds out by itself
            await self._warehouse.start()  # so that it knows of the view
        if number is not None and fold(statement.name) not in self._engine.catalogue.views:  # dropped before that
            self._warehouse.unmake_view(number)

    async def _make_as_it_is(self, statement: CreateView, owner: str) -> int | None:
        """Make what a statement creates; once more, if its tables were dropped and created again meanwhile. A number
        for `unmake_view`; None if nothing need be made."""
        while True:
            await self._warehouse.start()
            await self._warehouse.wait_released(self._engine.seq)
            definition = self._engine.catalogue.bound(statement)
            if definition is None:
                return None
            life = life_of(definition, self._engine)
            number, shortest_s = await self._warehouse.make_view(life, owner)
            try:
                if definition.response_time_s < shortest_s:
                    raise PromiseTooShort(definition.name, definition.response_time_s, rounded_up(shortest_s))
                if self._engine.catalogue.bound(statement) == definition and life_of(definition, self._engine) == life:
                    return number
            except HullcastError:
                self._warehouse.unmake_view(number)
                raise
            self._warehouse.unmake_view(number)

    # --- what nobody waits for any more -----------------------------------------------------------------------

    def give_up(self, request: Request) -> None:
        """A client does not wait any more for its statement, which had the same id. There is no reply, and its number
        is not refused: the client does not name it any more to what it sends later."""
        self._stop(self._open.of(request))

    def gone(self, links: Sequence[int], route: tuple[int, ...] = ()) -> None:
        """Nobody takes answers any more by these links of the node at the end of the route (without one: by our own).
        A client that returns by another link sends its statement again."""
        self._stop(self._open.below(links, route))

    def _stop(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            self.given_up += task.cancel()

    async def stop(self) -> None:
        """Give up all."""
        tasks = list(self._making.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def rounded_up(seconds: float) -> float:
    """With two digits, for people, who may ask for it then."""
    unit = floor(log10(seconds)) - 1
    return float(f"{ceil(seconds / 10.0**unit)}e{unit}")
