"""Turns: what a free worker does next is what the policy chooses, within bounds that hold for every policy. Pure.

Of two places or more, queries and loads each leave one to the other. Of the places of queries one owner leaves one to
others; and the last one that is free goes to the owner that was served least of late.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.broker.scheduling.policy import FairShare, Item
from hullcast.broker.warehouse.board import Answer, Load
from hullcast.broker.warehouse.policies.fifo import Fifo
from hullcast.broker.warehouse.policies.policy import in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hullcast.broker.warehouse.board import Board, Task
    from hullcast.broker.warehouse.messages import AskTables
    from hullcast.broker.warehouse.policies.policy import WarehousePolicy

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class TextReading:
    """A text that is to be read: a task that no policy decides on."""

    ask: AskTables


class Turns:
    """Chooses for free places."""

    def __init__(self, board: Board, policy: WarehousePolicy) -> None:
        self._board = board
        self.policy = policy
        self.texts: list[TextReading] = []  # that wait to be read
        self._most_answers = self._most_loads = max(1, board.places - 1)
        self._most_of_one = max(1, self._most_answers - 1)
        self._shares = FairShare()

    def served(self, task: Answer | TextReading, seconds: float, now: float) -> None:
        """An owner had a place for so long."""
        self._shares.served(Item(_owner(task), now), seconds, now)

    def next(self, running: Sequence[Task | TextReading], now: float) -> Task | TextReading | None:
        """What a free place does next; None: nothing, until something happens."""
        owners = Counter(_owner(task) for task in running if not isinstance(task, Load))
        free = self._most_answers - owners.total()
        last = self._least_served(owners, now) if free == 1 else None

        def may(owner: str) -> bool:
            return free > 0 and owners[owner] < self._most_of_one and last in (None, owner)

        for reading in self.texts:
            if may(reading.ask.owner):
                self.texts.remove(reading)
                return reading
        task = self._chosen(may, now)
        if isinstance(task, Load) and sum(isinstance(one, Load) for one in running) < self._most_loads:
            return task
        if isinstance(task, Answer) and may(task.question.owner):
            return task
        others = [one for one in in_turn(self._board.waiting) if may(one.owner)]
        ready = next((one for one in others if self._board.ready(one)), None)
        if ready is not None:
            return Answer(ready)
        if others:  # or its tables would never be of one moment, under a policy that always loads
            self._board.aim(others[0])
        return None

    def _least_served(self, owners: Counter[str], now: float) -> str | None:
        """Who gets the last free place of queries, if several have something for it. So with one place for all, nobody
        waits behind everything that somebody else has asked before."""
        waiting = {question.owner for question in self._board.waiting if self._board.ready(question)}
        waiting |= {reading.ask.owner for reading in self.texts}
        may = [owner for owner in waiting if owners[owner] < self._most_of_one]
        return min(may, key=lambda owner: self._shares.given(owner, now)) if len(may) > 1 else None

    def _chosen(self, may: Callable[[str], bool], now: float) -> Task | None:
        """What the policy chooses. It does not see questions that could be answered but may not: it would choose one
        of them again and again."""
        waiting = self._board.waiting
        self._board.waiting = [one for one in waiting if may(one.owner) or not self._board.ready(one)]
        try:
            return self.policy.next(self._board, now)
        except Exception:
            log.exception("policy failed", extra={"policy": self.policy.name})
            self.policy = Fifo()
            return self.policy.next(self._board, now)
        finally:
            self._board.waiting = waiting


def _owner(task: Task | TextReading) -> str:
    if isinstance(task, TextReading):
        return task.ask.owner
    assert isinstance(task, Answer)
    return task.question.owner
