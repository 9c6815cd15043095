"""CREATE VIEW: the view is made, and its promise measured, before there is such a view.

Everything else about views is a statement like others, or a query. To make one takes as long as reading its tables,
and happens in the warehouse: the request waits, and nobody else does. Only then is the statement executed and logged.
A view that nobody waits for any more is given up before that, and nothing is left of it. If the server ends before
that, there is a file that nobody knows, which the next start removes.
"""

from __future__ import annotations

from functools import partial
from math import ceil, floor, log10
from typing import TYPE_CHECKING

from hullcast.broker.server.jobs import Awaited, Room
from hullcast.broker.server.warehouse import life_of
from hullcast.broker.tables.schema import fold
from hullcast.network.wire.errors import HullcastError, Overloaded, PromiseTooShort, SqlError

if TYPE_CHECKING:
    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.server.warehouse import Warehouse
    from hullcast.broker.sql.view import CreateView

#: Views of a server: each is looked at whenever something happens.
MOST_VIEWS = 64
#: Requests that wait for a view to be made.
VIEWS = Room("requests to create views", waiting=MOST_VIEWS, waiting_per_owner=MOST_VIEWS)


class ViewMaking:
    """The views that are being made."""

    def __init__(self, engine: ServedEngine, warehouse: Warehouse) -> None:
        self._engine, self._warehouse = engine, warehouse
        self._making: set[str] = set()  # folded names

    def wait(self, statement: CreateView, owner: str) -> Awaited:
        """What a statement that creates a view waits for."""
        return Awaited(VIEWS, partial(self._make, statement, owner))

    async def _make(self, statement: CreateView, owner: str) -> int | None:
        """Make what a statement creates: a number for `Warehouse.withdraw`; None if nothing need be made."""
        name, others = fold(statement.name), len(self._engine.catalogue.views) + len(self._making)
        if name in self._making:
            raise Overloaded(f"requests to create view {statement.name}", 1)
        if others >= MOST_VIEWS:
            raise SqlError(statement.name, f"there are {others} views", "DROP VIEW one that nobody needs")
        self._making.add(name)
        try:
            while True:  # once more, if its tables were dropped and created again meanwhile
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
                    bound = self._engine.catalogue.bound(statement)
                    if bound == definition and life_of(definition, self._engine) == life:
                        return number
                except HullcastError:
                    self._warehouse.withdraw(number)
                    raise
                self._warehouse.withdraw(number)
        finally:
            self._making.discard(name)

    def executed(self, statement: CreateView, number: int | None) -> None:
        """The statement was executed, and the warehouse knows of the view before it can be dropped; or it was refused
        in the end, and nothing is left of it."""
        if fold(statement.name) in self._engine.catalogue.views:
            self._warehouse.tell_view(fold(statement.name))
        elif number is not None:
            self._warehouse.withdraw(number)


def rounded_up(seconds: float) -> float:
    """With two digits, for people, who may ask for it then."""
    unit = floor(log10(seconds)) - 1
    return float(f"{ceil(seconds / 10.0**unit)}e{unit}")
