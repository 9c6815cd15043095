"""Who of a crowd gets which messages: hits of a shared index, gathered as one bit per neighbour and message.

A message may concern everybody, several times over (by its old and its new place, by several points of one neighbour).
Bits cost the same however many hits there are, and count nobody twice:

    message    0 1 2 3 ..         10,000 neighbours and 2,000 messages are 2.5 MB, where a list of hits could
    slot 0     1 0 0 1            be 20 million pairs
    slot 1     0 0 0 0
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.compiled import kernel
from hullcast.network.matching.search import report_some

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hullcast.network.matching.tree import Tree

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

#: Hits gathered at a time.
PORTION = 1 << 17
WORD = 64


def rows_by_owner(
    tree: Tree, owners: Ints, slots: int, boxes: Sequence[tuple[Floats, Floats]]
) -> tuple[Ints, Ints, Ints]:
    """For owners below `slots`: how many of the messages concern each, where its rows begin, and the rows of all.

    Rows of one owner rise. The rows of an owner whom all messages concern are left out.
    """
    n = len(boxes[0][0])
    bits = np.zeros((slots, (n + WORD - 1) // WORD), np.int64)
    for lows, highs in boxes:
        start = 0
        while start < n:
            start, rows, ids = report_some(tree, lows, highs, start, n, PORTION)
            mark_bits(bits, owners, rows, ids)
    return listed(bits, n)


@kernel
def mark_bits(bits: Ints, owners: Ints, rows: Ints, ids: Ints) -> None:
    """Set the bit of every hit."""
    for i in range(len(rows)):
        bits[owners[ids[i]], rows[i] // WORD] |= np.int64(1) << (rows[i] % WORD)


@kernel
def listed(bits: Ints, n: int) -> tuple[Ints, Ints, Ints]:
    """The bits of each line counted, and listed as numbers; lines with all n bits set are only counted."""
    counts, begins = np.zeros(len(bits), np.int64), np.zeros(len(bits) + 1, np.int64)
    for slot in range(len(bits)):
        for word in range(bits.shape[1]):
            rest = bits[slot, word]
            while rest != 0:
                rest &= rest - 1
                counts[slot] += 1
        begins[slot + 1] = begins[slot] + (counts[slot] if counts[slot] < n else 0)
    rows = np.empty(begins[-1] + 1, np.int64)  # the last write may be one too far
    for slot in range(len(bits)):
        if counts[slot] == n:
            continue
        place = begins[slot]
        for word in range(bits.shape[1]):
            rest = bits[slot, word]
            if rest == 0:
                continue
            for bit in range(WORD):
                rows[place] = word * WORD + bit
                place += (rest >> bit) & 1
    return counts, begins, rows[:-1]
