"""ODRTB: on demand, but content with data that were right some seconds ago; compared with ORAD.

The on-demand hybrid with relative consistency of Kao et al., *Maintaining Temporal Consistency of Discrete Objects in
Soft Real-Time Database Systems* (2003), as Vu and Gopalkrishnan (2009) describe what they compare ORAD with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hullcast.broker.warehouse.policies.orad import before_it, by_deadline, fresher
from hullcast.broker.warehouse.policies.policy import WarehousePolicy, oldest_load, toward
from hullcast.broker.warehouse.policies.validity import Look

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hullcast.broker.warehouse.board import Board, Question, Task
    from hullcast.broker.warehouse.policies.validity import Id, Reader, Version

#: How old data may be (Delta).
TOLERANCE_S = 10.0


class Odrtb(WarehousePolicy):
    """The earliest deadline first. A reader takes the version that has most in common with its interval, which begins
    10 s before it does: so it looks at all versions, and they must be kept for so long. Idle places load in the order
    of arrival."""

    name: ClassVar[str] = "odrtb"
    about: ClassVar[str] = "the earliest deadline first; loads what a query reads when that is 10 s old"

    def __init__(self, tolerance_s: float = TOLERANCE_S) -> None:
        self._tolerance_s = tolerance_s

    # -- live ----------------------------------------------------------------------------------------------

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

    # -- what idle time is for -----------------------------------------------------------------------------

    def committed(self, objects: Iterable[Id]) -> None:
        """It does not matter what was read."""

    def first_of(self, objects: Iterable[Id]) -> Id:
        """The update that came first."""
        return next(iter(objects))

    # -- reads one by one: `ReadingRule` -------------------------------------------------------------------

    def earliest(self, start: float) -> float:
        """Some seconds before its start."""
        return start - self._tolerance_s

    def choose(self, versions: Sequence[Version], reader: Reader[Id]) -> Look:
        """The one with the widest overlap, and of equals the latest: look at all."""
        begins, ends = reader.begins, reader.ends
        widest, found = 0.0, None
        for version in reversed(versions):
            width = min(version.ends, ends) - max(version.begins, begins)
            if width > widest:
                widest, found = width, version
        return Look(found, len(versions))

    def horizon(self, readers: Iterable[Reader[Id]], now: float) -> float:
        """What ended 10 s before the start of the first reader."""
        return min((reader.start for reader in readers), default=now) - self._tolerance_s
