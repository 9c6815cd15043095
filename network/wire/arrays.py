"""Arrays by their kind of number, for annotations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Narrow = npt.NDArray[np.int32]
Booleans = npt.NDArray[np.bool_]
