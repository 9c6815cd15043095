"""Arrays by what they hold, for annotations; and arrays of objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Narrow = npt.NDArray[np.int32]
Booleans = npt.NDArray[np.bool_]


def objects(values: Sequence[Any]) -> npt.NDArray[Any]:
    """An array of these values as they are: `np.array` would make columns of tuples and lists of one length."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
