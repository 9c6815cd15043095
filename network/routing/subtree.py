"""Subtree: what a process remembers of one neighbouring node's interest in one channel.

The node below tells, now and then, what is left of it (`Interest`), while new subscriptions pass on their way down:

    parent      installs 1 2 3 ................ 4 ......... 5        the Interest was made when the node had heard of 3
                          \\ \\ \\                \\   /                installs: those that it replaces. 4 is younger,
    node                  1 2 3 .. Interest(heard 3) .. 4 .. 5       and stays; so nobody is forgotten, whatever crosses

The younger ones must therefore be remembered, apart from the cover. There are few, unless the node is silent for long;
the oldest of them then become boxes too (S1), which at worst keeps interest that could have gone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.network.routing.cover import Cover

if TYPE_CHECKING:
    from hullcast.network.routing.carve import Space
    from hullcast.network.wire.arrays import Floats


#: Of the budget: boxes that stand for the young installs grown too many.
COARSE = 4


class Young(NamedTuple):
    """Installs that no Interest has answered yet."""

    number: int  # of the last reply that brought them
    points: int
    lows: Floats
    highs: Floats


class Subtree:
    """A cover, and the installs in it that an Interest under way may not know.

    Invariants (`check` tests the first):
      S1  The young installs take at most twice the budget in boxes, and their numbers rise.
      S2  The cover contains the last Interest and all young installs, and hence every point below.
    """

    def __init__(self, space: Space, budget: int) -> None:
        self.cover = Cover(space, budget)
        self.points = 0  # how many there are below, about: an Interest tells boxes only
        self._space, self._budget = space, budget
        self._young: deque[Young] = deque()
        self._young_boxes = 0

    def install(self, number: int, points: Floats) -> None:
        """Points on their way down, in the reply of that number."""
        self.cover.extend(points)
        self.points += len(points)
        few = self._few(points, points)
        self._young.append(Young(number, len(points), *few))
        self._young_boxes += len(few[0])
        if self._young_boxes > 2 * self._budget:
            self._coarsen()

    def replace(self, heard: int, lows: Floats, highs: Floats) -> None:
        """What the node below had left when it had heard that many replies with installs."""
        while self._young and self._young[0].number <= heard:
            self._young_boxes -= len(self._young.popleft().lows)
        # it speaks when fewer than half are left, but a box has one point at least
        known = self.points - sum(young.points for young in self._young)
        self.points = max(len(lows), known // 2) if len(lows) else 0
        self.cover = Cover(self._space, self._budget)
        self.cover.extend_boxes(lows, highs)
        for young in self._young:
            self.cover.extend_boxes(young.lows, young.highs)
            self.points += young.points

    def memory_bytes(self) -> int:
        """Bytes held by all boxes."""
        return self.cover.memory_bytes() + sum(young.lows.nbytes + young.highs.nbytes for young in self._young)

    def check(self) -> None:
        """Test S1, and the cover."""
        self.cover.check()
        assert self._young_boxes == sum(len(young.lows) for young in self._young) <= 2 * self._budget, "S1"
        assert all(a.number <= b.number for a, b in zip(self._young, list(self._young)[1:], strict=False)), "S1"

    def _coarsen(self) -> None:
        """Let the older half of the young ones be one, with the number of its last."""
        older = [self._young.popleft()]
        boxes = len(older[0].lows)
        while self._young and 2 * boxes < self._young_boxes:
            older.append(self._young.popleft())
            boxes += len(older[-1].lows)
        few = self._few(
            *(np.concatenate(side) for side in zip(*((young.lows, young.highs) for young in older), strict=True))
        )
        self._young.appendleft(Young(older[-1].number, sum(young.points for young in older), *few))
        self._young_boxes += len(few[0]) - boxes

    def _few(self, lows: Floats, highs: Floats) -> tuple[Floats, Floats]:
        cover = Cover(self._space, max(1, self._budget // COARSE))
        cover.extend_boxes(lows, highs)
        return cover.boxes()
