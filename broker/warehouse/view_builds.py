"""Views on their way: waiting to be made, made but not known yet, or given up.

A view is made before there is one: the server decides when it has heard what can be promised. Until then its file is
nobody's, and whoever gives it up must see that it goes, also if a worker was killed in the very moment in which it gave
the file its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.broker.tables.schema import fold
from hullcast.broker.views.upkeep import Upkeep, shortest_promise
from hullcast.broker.warehouse.files import file_of, remove
from hullcast.broker.warehouse.messages import BuildView, Failure, Finished, MakeView, QueryRefused, ViewMade
from hullcast.broker.warehouse.work import LiveWork
from hullcast.network.wire.errors import ConnectionLost, SqlError, to_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from hullcast.broker.warehouse.board import Board
    from hullcast.broker.warehouse.files import KeptLife
    from hullcast.broker.warehouse.view_file import ViewLife
    from hullcast.broker.warehouse.workers import Hand
    from hullcast.network.wire.errors import HullcastError

#: Seconds after which the making of a view is stopped.
BUILD_S = 600.0


class ViewBuilds(LiveWork[MakeView]):
    """The views of one data directory that are on their way. `known` gives the tables and views that there are.

    Y1  A file of a view is there only if the view is known, made, being made, or about to be removed.
    """

    def __init__(
        self, directory: Path, board: Board, known: Callable[[], Iterable[KeptLife]], say: Callable[[object], None]
    ) -> None:
        self._directory, self._board, self._known, self._say = directory, board, known, say
        self._waiting: list[MakeView] = []
        self._running: list[MakeView] = []
        self._made: dict[int, ViewLife] = {}  # by the number of the request
        self._left: dict[int, ViewLife] = {}  # what a worker that was killed may have made, by its process

    def put(self, making: MakeView) -> None:
        """A view is to be made. What was made under its name before, and is not known as a view, will never be one."""
        name = fold(making.life.definition.name)
        for number in [number for number, made in self._made.items() if fold(made.definition.name) == name]:
            self._unmake(number)
        self._waiting.append(making)

    def next(self, now: float) -> MakeView | None:
        """The one that is made next; it is being made from now on."""
        if not self._waiting:
            return None
        self._running.append(self._waiting.pop(0))
        return self._running[-1]

    def owner(self, task: MakeView) -> str:
        return task.owner

    def begin(self, task: MakeView, hand: Hand, now: float) -> float:
        hand.end.write(BuildView(task.life, self._board.horizon))
        return BUILD_S

    def ended(self, task: MakeView, hand: Hand, now: float, *, done: bool, killed: bool) -> None:
        """A worker that is killed may come to the end of the file, until it is `gone`."""
        self._running.remove(task)
        if killed:
            self._left[hand.process] = task.life
        elif done:
            self._made[task.number] = task.life
        else:
            self._remove(task.life)

    def over(self, task: MakeView, message: Finished | Failure, took_s: float) -> None:
        """If it is made, the server decides whether there will be such a view."""
        if isinstance(message, Failure):
            self._say(QueryRefused(task.number, message.code, message.arguments))
            return
        upkeep = Upkeep(tuple(message.result), task.life.definition.response_time_s, message.result)
        self._say(ViewMade(task.number, shortest_promise(list(upkeep.costs.values()))))

    def too_long(self, task: MakeView) -> None:
        reason = f"creating the view was stopped after {BUILD_S:g} s"
        self._refuse(task, SqlError(task.life.table.name, reason, "join on more columns, or narrow it with WHERE"))

    def died(self, task: MakeView) -> None:
        self._refuse(task, ConnectionLost("the process that made the view was killed"))

    def _refuse(self, task: MakeView, error: HullcastError) -> None:
        self._say(QueryRefused(task.number, *to_wire(error)))

    def gone(self, process: int) -> None:
        """A process is gone that was killed."""
        life = self._left.pop(process, None)
        if life is not None:
            self._remove(life)

    def known(self, life: KeptLife) -> None:
        """There is such a view now."""
        self._made = {number: made for number, made in self._made.items() if made != life}

    def withdraw(self, number: int) -> MakeView | None:
        """Nobody wants a view any more; gives the task if it is being made."""
        self._waiting = [making for making in self._waiting if making.number != number]
        if number in self._made:
            self._unmake(number)
        return next((making for making in self._running if making.number == number), None)

    def _unmake(self, number: int) -> None:
        remove(file_of(self._directory, self._made.pop(number)))

    def _remove(self, life: ViewLife) -> None:
        """Remove the file of a view, unless the same one is wanted again by now."""
        coming = (making.life for making in (*self._waiting, *self._running))
        if life not in (*coming, *self._made.values(), *self._known()):
            remove(file_of(self._directory, life))
