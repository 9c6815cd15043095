"""ODRTB: on demand, but content with data that were right some seconds ago; compared with ORAD.

The on-demand hybrid with relative consistency of Kao et al., *Maintaining Temporal Consistency of Discrete Objects in
Soft Real-Time Database Systems* (2003), as Vu and Gopalkrishnan (2009) describe what they compare ORAD with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hullcast.broker.warehouse.policies.orad import before_it, by_deadline, fresher
from hullcast.broker.warehouse.policies.policy import WarehousePolicy, oldest_load, toward

if TYPE_CHECKING:
    from hullcast.broker.warehouse.board import Board, Question, Task

#: How old data may be (Delta).
TOLERANCE_S = 10.0


class Odrtb(WarehousePolicy):
    """The earliest deadline first. Idle places load in the order of arrival."""

    name: ClassVar[str] = "odrtb"
    about: ClassVar[str] = "the earliest deadline first; loads what a query reads when that is 10 s old"

    def __init__(self, tolerance_s: float = TOLERANCE_S) -> None:
        self._tolerance_s = tolerance_s

    def next(self, board: Board, now: float) -> Task | None:
        for question in by_deadline(board.waiting, now):
            if (task := self._toward(question, board)) is not None:
                return task
        return oldest_load(board)

    def _toward(self, question: Question, board: Board) -> Task | None:
        if 0.0 < question.freshness < 1.0 and question.target is None:
            late = before_it(question, board, since=question.arrived - self._tolerance_s)
            load = fresher(question, late, board)
            if load is not None or any(board.feeds[table].loading for table in late):
                return load
        return toward(question, board)
