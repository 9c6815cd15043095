"""Codes as columns that travel: numbers stay codes, texts take their words along, for their codes are ours alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.tables.schema import ColumnType
from hullcast.network.wire.columns import TextColumn

if TYPE_CHECKING:
    import numpy.typing as npt

    from hullcast.broker.tables.interning import Interner, Texts
    from hullcast.network.wire.columns import Column

    Floats = npt.NDArray[np.float64]


def travelling(kind: ColumnType, codes: Floats, texts: Interner | Texts) -> Column:
    """A column of codes in the form in which subscribers elsewhere understand it."""
    if kind is not ColumnType.TEXT:
        return np.ascontiguousarray(codes)
    distinct, places = np.unique(codes, return_inverse=True)  # NULL, a NaN, comes last, and once
    codes_of_words: npt.NDArray[np.int32] = places.reshape(-1).astype(np.int32)
    if len(distinct) and np.isnan(distinct[-1]):
        distinct = distinct[:-1]
        codes_of_words[codes_of_words == len(distinct)] = -1
    return TextColumn(codes_of_words, tuple(texts.decode(distinct).tolist()))
