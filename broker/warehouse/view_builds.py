"""Views on their way: waiting to be made, made but not known yet, or given up.

A view is made before there is one: the server decides when it has heard what can be promised. Until then its file is
nobody's, and whoever gives it up must see that it goes, also if a worker was killed in the very moment in which it gave
the file its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.broker.tables.schema import fold
from hullcast.broker.warehouse.files import file_of, remove
from hullcast.broker.warehouse.turns import ViewBuilding

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from hullcast.broker.warehouse.messages import MakeView
    from hullcast.broker.warehouse.view_file import ViewLife


class ViewBuilds:
    """The views of one data directory that are on their way.

    Y1  A file of a view is there only if the view is known, made, being made, or about to be removed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._waiting: list[ViewBuilding] = []
        self._running: list[ViewBuilding] = []
        self._made: dict[int, ViewLife] = {}  # by the number of the request
        self._left: dict[int, ViewLife] = {}  # what a worker that was killed may have made, by its process

    def put(self, making: MakeView) -> None:
        """A view is to be made. What was made under its name before, and is not known as a view, will never be one."""
        name = fold(making.life.definition.name)
        for number in [number for number, made in self._made.items() if fold(made.definition.name) == name]:
            self._unmake(number)
        self._waiting.append(ViewBuilding(making))

    def next(self) -> ViewBuilding | None:
        """The one that is made next; it is being made from now on."""
        if not self._waiting:
            return None
        self._running.append(self._waiting.pop(0))
        return self._running[-1]

    def made(self, building: ViewBuilding) -> None:
        """The file of a view is made; the server decides whether there will be such a view."""
        self._running.remove(building)
        self._made[building.ask.number] = building.ask.life

    def failed(self, building: ViewBuilding, known: Iterable[ViewLife]) -> None:
        """A worker has let go of a view that it could not make to the end."""
        self._running.remove(building)
        self._remove(building.ask.life, known)

    def stopped(self, building: ViewBuilding, process: int) -> None:
        """The worker that makes a view is killed; until it is `gone`, it may come to the end of the file."""
        self._running.remove(building)
        self._left[process] = building.ask.life

    def gone(self, process: int, known: Iterable[ViewLife]) -> None:
        """A process is gone that was killed."""
        life = self._left.pop(process, None)
        if life is not None:
            self._remove(life, known)

    def known(self, life: ViewLife) -> None:
        """There is such a view now."""
        self._made = {number: made for number, made in self._made.items() if made != life}

    def withdraw(self, number: int) -> None:
        """Nobody wants a view any more, which waits or is made."""
        self._waiting = [building for building in self._waiting if building.ask.number != number]
        if number in self._made:
            self._unmake(number)

    def _unmake(self, number: int) -> None:
        remove(file_of(self._directory, self._made.pop(number)))

    def _remove(self, life: ViewLife, known: Iterable[ViewLife]) -> None:
        """Remove the file of a view, unless the same one is wanted again by now."""
        coming = (building.ask.life for building in (*self._waiting, *self._running))
        if life not in (*coming, *self._made.values(), *known):
            remove(file_of(self._directory, life))
