"""Updates first: no question is answered while there is something to load."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hullcast.broker.warehouse.policies.policy import WarehousePolicy, first_toward, in_turn, oldest_load

if TYPE_CHECKING:
    from hullcast.broker.warehouse.board import Board, Task


class UpdatesFirst(WarehousePolicy):
    """The freshest answers; they come late, or never, while updates come faster than they can be loaded."""

    name: ClassVar[str] = "updates-first"
    about: ClassVar[str] = "loads first; answers queries when all tables are loaded"

    def next(self, board: Board, now: float) -> Task | None:
        return oldest_load(board) or first_toward(in_turn(board.waiting), board)
