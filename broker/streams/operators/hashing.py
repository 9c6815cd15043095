"""Hashes of codes, for kernels that find tuples by the columns that must be equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.compiled import part

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats, Ints


@part
def hash_of(cells: Floats, at: int, columns: Ints, code: Floats, bits: Ints) -> int:
    """Of some columns of a tuple; -1 if one of them is NULL, which equals nothing.

    `code` and `bits` are room for one number, seen as both. Codes are mostly small whole numbers, whose bits as floats
    differ at the upper end only: each is mixed well (the finalizer of SplitMix64) before the next one is added.
    """
    mixed = np.uint64(0)
    for k in range(len(columns)):
        value = cells[columns[k], at]
        if value != value:
            return -1
        code[0] = value + 0.0  # one hash for both zeros
        mixed = (mixed ^ np.uint64(bits[0])) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return int(np.int64(mixed >> np.uint64(1)))
