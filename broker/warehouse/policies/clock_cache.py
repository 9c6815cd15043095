"""The objects that are read often, told by the clock algorithm. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Id = TypeVar("Id", bound=Hashable)


class ClockCache(Generic[Id]):
    """C_ft: the objects that are read often, told by the clock algorithm (nearly: those read last).

    A hand goes round over the places. An object that is read again is marked. When a place is needed, the hand removes
    the mark of each marked object that it comes to, and the first unmarked one leaves.

    Invariant C1 (`check`): `_place` has each object at its place, and there are at most `size`.
    """

    def __init__(self, size: int) -> None:
        assert size >= 1
        self.size = size
        self._objects: list[Id] = []
        self._marked: list[bool] = []
        self._place: dict[Id, int] = {}
        self._hand = 0

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, object_id: Id) -> bool:
        return object_id in self._place

    def touch(self, object_id: Id) -> None:
        """An object was read."""
        place = self._place.get(object_id)
        if place is not None:
            self._marked[place] = True
        elif len(self._objects) < self.size:
            self._place[object_id] = len(self._objects)
            self._objects.append(object_id)
            self._marked.append(True)
        else:
            while self._marked[self._hand]:
                self._marked[self._hand] = False
                self._hand = (self._hand + 1) % self.size
            del self._place[self._objects[self._hand]]
            self._objects[self._hand], self._marked[self._hand] = object_id, True
            self._place[object_id] = self._hand
            self._hand = (self._hand + 1) % self.size

    def rank(self, object_id: Id) -> int:
        """0: read since the hand was there; 1: read before; 2: not here. Least first."""
        place = self._place.get(object_id)
        return 2 if place is None else 0 if self._marked[place] else 1

    def check(self) -> None:
        """AssertionError if C1 does not hold."""
        assert self._place == {object_id: place for place, object_id in enumerate(self._objects)}, "C1"
        assert len(self._objects) == len(self._marked) <= self.size, "C1"
        assert self._hand < self.size, "C1"
