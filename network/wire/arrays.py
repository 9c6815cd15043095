"""Arrays by what they hold, for annotations; arrays of objects, and sets of small numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Narrow = npt.NDArray[np.int32]
Booleans = npt.NDArray[np.bool_]

#: Beyond so many possible numbers for each given one, sorting those given beats a mark for every possible one.
SPARSE = 256


def objects(values: Sequence[Any]) -> npt.NDArray[Any]:
    """An array of these values as they are: `np.array` would make columns of tuples and lists of one length."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def distinct(numbers: Ints, below: int) -> Ints:
    """Numbers from 0 to `below` - 1, each once, rising. NumPy's `unique` takes five times as long or more."""
    if SPARSE * len(numbers) < below:
        return np.unique(numbers)
    marks = np.zeros(below, np.bool_)
    marks[numbers] = True
    return np.flatnonzero(marks)
