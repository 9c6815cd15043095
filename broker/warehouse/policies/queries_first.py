"""Queries first: nothing is loaded while a question waits, except what it cannot do without."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hullcast.broker.warehouse.policies.policy import WarehousePolicy, first_toward, in_turn, oldest_load

if TYPE_CHECKING:
    from hullcast.broker.warehouse.board import Board, Task


class QueriesFirst(WarehousePolicy):
    """The shortest waits; tables get older the more is asked."""

    name: ClassVar[str] = "queries-first"
    about: ClassVar[str] = "queries first; loads tables when no query waits"

    def next(self, board: Board, now: float) -> Task | None:
        return first_toward(in_turn(board.waiting), board) or (None if board.waiting else oldest_load(board))
