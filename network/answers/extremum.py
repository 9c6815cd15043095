"""Answers that a message replaces outright: range MIN and MAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from network.matching.duality import rectangle_query, with_partition

if TYPE_CHECKING:
    import numpy.typing as npt

    from network.answers.audience import Audience

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]


def rectangles(
    inner_l: Floats, inner_r: Floats, outer_l: Floats, outer_r: Floats, partitions: Floats | None
) -> tuple[Floats, Floats]:
    """The query boxes of rectangle messages, with the partition as last coordinate where the channel has one."""
    lows, highs = rectangle_query(inner_l, inner_r, outer_l, outer_r)
    if partitions is None:
        return lows, highs
    return with_partition(lows, partitions), with_partition(highs, partitions)


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

    def hear(self, audience: Audience, lows: Floats, highs: Floats, seqs: Ints, best: Floats) -> int:
        """Take messages in order: whoever is in a rectangle has that answer now. Returns how many were told."""
        told = 0
        for _, _, messages, listeners in audience.chunks(lows, highs):
            n = len(listeners)
            if not n:
                continue
            values = best[messages]
            self.values[listeners] = values  # of several messages to one listener the last one stays
            audience.outbox.put(listeners, seqs[messages], values, np.zeros(n), np.full(n, -1))
            told += n
        return told
