"""Columns of values in pieces: some rows of one, and about how many bytes it takes when sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.network.wire.columns import TextColumn
from hullcast.network.wire.value_columns import Mixed, Nullable

if TYPE_CHECKING:
    import numpy.typing as npt

    Rows = npt.NDArray[np.int64] | slice

_SCALAR_BYTES = 9  # of a number; a text has its own length besides


def taken(values: Any, rows: Rows) -> Any:
    """Some rows of a column."""
    if isinstance(values, Mixed):
        return Mixed(values.items[rows] if isinstance(rows, slice) else tuple(values.items[row] for row in rows))
    if isinstance(values, Nullable):
        return Nullable(values.values[rows], values.nulls[rows])
    if isinstance(values, TextColumn):
        return values.take(np.arange(len(values))[rows])
    return values[rows]


def sent_bytes(values: Any) -> int:
    """About the bytes of a column or a single value when it is sent."""
    if isinstance(values, Mixed):
        return sum(map(sent_bytes, values.items))
    if isinstance(values, Nullable):
        return int(values.values.nbytes + values.nulls.nbytes)
    if isinstance(values, TextColumn):
        return values.codes.nbytes + sum(map(sent_bytes, values.words))
    if isinstance(values, np.ndarray):
        return values.nbytes
    return _SCALAR_BYTES + (4 * len(values) if isinstance(values, str) else 0)
