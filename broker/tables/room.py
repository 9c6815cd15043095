"""Room for arrays that grow with their rows: address space that is reserved ahead, so that no large array is copied.

An array that doubles holds up everybody while it is copied: half a second at two million rows. But memory that is
reserved and not touched costs nothing. So an array doubles while it is small, and then moves once, to a place as large
as it is ever likely to need. What lies beyond its entries is zero, and takes no memory.
"""

from __future__ import annotations

from math import prod
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

Array = TypeVar("Array", bound=npt.NDArray[Any])

SMALLEST = 64  # entries
#: Bytes of a column up to which an array doubles: to copy five of them takes some milliseconds.
SMALL_BYTES = 2 << 20
#: What is reserved for a larger one (25 million rows of five columns), and how often as much when that is full. Not a
#: power of two: a row's columns would share lines of the cache, and all need a new page at the same row.
RESERVED_BYTES, FURTHER = 1_000_000_000, 8


def with_room(array: Array, needed: int) -> Array:
    """The array, or a larger one that begins with it and has room for so many entries (along the last axis)."""
    known, others = array.shape[-1], array.shape[:-1]
    if needed <= known:
        return array
    capacity = max(known, SMALLEST)
    while capacity < needed:
        capacity *= 2
    if capacity * array.itemsize > SMALL_BYTES:
        capacity = max(FURTHER * needed, RESERVED_BYTES // (array.itemsize * prod(others)))
    while True:
        try:
            larger = np.zeros((*others, capacity), array.dtype)
            break
        except MemoryError:  # the machine is smaller than that
            if capacity == needed:
                raise
            capacity = max(needed, capacity // 2)
    larger[..., :known] = array
    return cast("Array", larger)
