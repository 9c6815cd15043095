"""Policies of one rule: what came first, queries first, updates first."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hullcast.broker.warehouse.deciding.policies.policy import WarehousePolicy, first_toward, in_turn, oldest_load

if TYPE_CHECKING:
    from hullcast.broker.warehouse.deciding.board import Board, Task


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


class QueriesFirst(WarehousePolicy):
    """The shortest waits; tables get older the more is asked."""

    name: ClassVar[str] = "queries-first"
    about: ClassVar[str] = "queries first; loads tables when no query waits"

    def next(self, board: Board, now: float) -> Task | None:
        return first_toward(in_turn(board.waiting), board) or (None if board.waiting else oldest_load(board))


class UpdatesFirst(WarehousePolicy):
    """The freshest answers; they come late, or never, while updates come faster than they can be loaded."""

    name: ClassVar[str] = "updates-first"
    about: ClassVar[str] = "loads first; answers queries when all tables are loaded"

    def next(self, board: Board, now: float) -> Task | None:
        return oldest_load(board) or first_toward(in_turn(board.waiting), board)


class Myopic(UpdatesFirst):
    """Loads the table whose oldest pending update was released first (Bateni et al. (2009)).

    Never leaves a place idle while a table could be loaded: the paper calls that eager. Total staleness is then
    within a constant of the least possible if loads are fast enough (Theorem 3.1).

    Feeds are all that the paper has; questions are answered, in their turn, on places that loads leave free. That is
    what updates-first does too: a load takes all that waits for its table, so no other order of updates is left.
    """

    name: ClassVar[str] = "myopic"
    about: ClassVar[str] = "loads the table that has waited longest; queries get the workers that are left"
