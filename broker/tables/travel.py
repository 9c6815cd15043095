"""Codes as columns that travel: numbers stay codes, texts take their words along, for their codes are ours alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hullcast.broker.tables.schema import ColumnType
from hullcast.broker.tables.values import decode, decode_column
from hullcast.network.wire.columns import TextColumn

if TYPE_CHECKING:
    from hullcast.broker.tables.interning import Interner, Texts
    from hullcast.network.wire.arrays import Floats, Narrow
    from hullcast.network.wire.columns import Column


def travelling(kind: ColumnType, codes: Floats, texts: Interner | Texts) -> Column:
    """A column of codes in the form in which subscribers elsewhere understand it."""
    if kind is not ColumnType.TEXT:
        return np.ascontiguousarray(codes)
    distinct, places = np.unique(codes, return_inverse=True)  # NULL, a NaN, comes last, and once
    codes_of_words: Narrow = places.reshape(-1).astype(np.int32)
    if len(distinct) and np.isnan(distinct[-1]):
        distinct = distinct[:-1]
        codes_of_words[codes_of_words == len(distinct)] = -1
    return TextColumn(codes_of_words, tuple(texts.decode(distinct).tolist()))


class Codes:
    """Codes as the values that users see, by the name of their type.

    Where the interner is, texts are codes too. Elsewhere they come with their words, so none is needed.
    """

    def __init__(self, interner: Interner | None = None) -> None:
        self._interner = interner

    def value(self, kind: str, code: float) -> Any:
        """The value of one code."""
        return decode(_TYPES[kind], code, cast("Interner", self._interner))

    def values(self, kind: str, column: Column) -> list[Any]:
        """The values of a column; None is NULL."""
        if isinstance(column, TextColumn):
            return column.to_list()
        texts = None if self._interner is None else self._interner.texts
        return decode_column(_TYPES[kind], cast("Floats", column), texts)


_TYPES = {kind.value: kind for kind in ColumnType}
