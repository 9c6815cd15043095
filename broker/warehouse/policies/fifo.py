"""FIFO: questions and updates in the order in which they came."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hullcast.broker.warehouse.policies.policy import WarehousePolicy, first_toward, in_turn, oldest_load

if TYPE_CHECKING:
    from hullcast.broker.warehouse.board import Board, Task


class Fifo(WarehousePolicy):
    """What came first is done first. Priorities hold among questions."""

    name: ClassVar[str] = "fifo"
    about: ClassVar[str] = "queries and loads in the order in which they came"

    def next(self, board: Board, now: float) -> Task | None:
        oldest = min((feed.pending[0].at for feed in board.loadable()), default=None)
        earlier = [question for question in board.waiting if oldest is None or question.arrived < oldest]
        return (
            first_toward(in_turn(earlier), board) or oldest_load(board) or first_toward(in_turn(board.waiting), board)
        )
