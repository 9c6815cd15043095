"""Places: so many whole tasks run side by side, and the next is chosen when a place is free.

(The driver of `broker/scheduling/driver.py` divides work into slices on one thread; here a task has a place of its own,
a process or a simulated processor, until it ends.)
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class TaskPlaces(Generic[T]):
    """Tasks on places. `choose` says what a free place does next (None: nothing for now), `begin` begins it."""

    def __init__(self, places: int, choose: Callable[[float], T | None], begin: Callable[[T, float], None]) -> None:
        self.places = places
        self.busy: list[T] = []
        self._choose, self._begin = choose, begin

    def fill(self, now: float) -> None:
        """Begin tasks while there are free places and something to do."""
        while len(self.busy) < self.places and (task := self._choose(now)) is not None:
            self.busy.append(task)
            self._begin(task, now)

    def ended(self, task: T) -> None:
        """A task is over; its place is free."""
        self.busy.remove(task)


class SimulatedTime:
    """A clock that jumps from one event to the next. Events of one moment happen in the order in which they were
    set, then `settle` is called, once: so nothing is decided before all of a moment is known."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def at(self, when: float, happens: Callable[[], None]) -> None:
        """Let something happen then (a moment that has passed: now)."""
        heappush(self._events, (max(when, self.now), next(self._order), happens))

    def run(self, settle: Callable[[float], None], until: float = float("inf")) -> None:
        """Let everything happen up to and including `until`; what it sets is part of it."""
        while self._events and self._events[0][0] <= until:
            self.now = self._events[0][0]
            while self._events and self._events[0][0] <= self.now:
                heappop(self._events)[2]()
            settle(self.now)
        if until != float("inf"):
            self.now = max(self.now, until)
