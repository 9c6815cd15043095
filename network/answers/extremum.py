"""Answers that a message replaces outright: range MIN and MAX; and who hears a rectangle at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hullcast.network.answers.audience import PAIRS
from hullcast.network.matching.duality import in_rectangles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hullcast.network.answers.audience import Audience

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def heard(
    audience: Audience, inner_l: Floats, inner_r: Floats, outer_l: Floats, outer_r: Floats, partitions: Floats
) -> Iterator[tuple[Ints, Ints]]:
    """(messages, listeners) of rectangle messages, some messages at a time; see `in_rectangles`."""
    start = 0
    while start < len(inner_l):
        start, messages, listeners = in_rectangles(
            audience.index.arrays, inner_l, inner_r, outer_l, outer_r, partitions, start, PAIRS
        )
        if len(messages):
            yield messages, listeners


class ExtremumAnswers:
    """One number a listener; an infinity stands for NULL."""

    def __init__(self) -> None:
        self.values: Floats = np.empty(16)

    def start(self, ids: Ints, values: Floats) -> None:
        """Set the first answers of new listeners."""
        highest = int(ids.max(initial=-1)) + 1
        if highest > len(self.values):
            grown = np.empty(max(highest, 2 * len(self.values)))
            grown[: len(self.values)] = self.values
            self.values = grown
        self.values[ids] = values

    def hear(self, audience: Audience, messages: Ints, listeners: Ints, seqs: Ints, best: Floats) -> None:
        """Take messages in order: each listener paired with one has that answer now."""
        values = best[messages]
        self.values[listeners] = values  # of several messages to one listener the last one stays
        audience.outbox.put(listeners, seqs[messages], values)
