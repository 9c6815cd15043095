"""Codes as columns that travel: numbers stay codes, texts take their words along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from hullcast.broker.tables.schema import ColumnType
from hullcast.broker.tables.values import NULL, decode, decode_column
from hullcast.network.wire.columns import TextColumn
from hullcast.network.wire.value_columns import Nullable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hullcast.broker.tables.interning import Interner, Texts
    from hullcast.broker.tables.schema import Table
    from hullcast.network.wire.arrays import Booleans, Floats, Narrow
    from hullcast.network.wire.columns import Column
    from hullcast.network.wire.value_columns import ValueColumns, Values


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


def published(table: Table, cells: Floats, texts: Interner | Texts) -> ValueColumns:
    """Rows of codes, of shape (columns, rows), as whole rows that a client might publish."""
    if cells.shape[1] == 1:
        codes = cells[:, 0].tolist()
        return {column.name: decode(column.type, codes[i], texts) for i, column in enumerate(table.columns)}
    return dict(valued(table, cells, texts))


def valued(table: Table, cells: Floats, texts: Interner | Texts) -> dict[str, Values]:
    """Rows of codes, of shape (columns, rows), as columns of values: by type float64, int64, datetime64 or texts."""
    nulls: Booleans = np.isnan(cells)
    some: list[bool] = np.any(nulls, axis=1).tolist()
    holes = [null if any_null else None for null, any_null in zip(nulls, some, strict=True)]
    return {column.name: _values(column.type, cells[i], holes[i], texts) for i, column in enumerate(table.columns)}


def _values(kind: ColumnType, codes: Floats, null: Booleans | None, texts: Interner | Texts) -> Values:
    """A column of codes as values; some are NULL, or (None) none is."""
    if kind is ColumnType.TEXT:
        return travelling(kind, codes, texts)
    if kind is ColumnType.REAL:
        return np.ascontiguousarray(codes) if null is None else Nullable(codes, null)
    whole = (codes if null is None else np.where(null, 0.0, codes)).astype(np.int64)
    if kind is ColumnType.INTEGER:
        return whole if null is None else Nullable(whole, null)
    if null is not None:
        whole[null] = _NAT
    return whole.view("M8[us]")


_NAT = np.iinfo(np.int64).min


class CodedRows(NamedTuple):
    """Rows of codes, of shape (columns, rows), for an engine that has texts under codes of its own: in the columns
    `texts` are places in `words` instead, -1 for NULL."""

    cells: Floats
    texts: list[int]
    words: list[str]

    @classmethod
    def of(cls, cells: Floats, columns: Iterable[Values]) -> CodedRows:
        """Rows whose columns are at hand as values, too; the cells belong to the result."""
        texts: list[int] = []
        words: list[str] = []
        for place, column in enumerate(columns):
            if isinstance(column, TextColumn):
                cells[place] = np.where(column.codes < 0, -1, column.codes + len(words))
                texts.append(place)
                words += column.words
        return cls(cells, texts, words)

    @property
    def size_bytes(self) -> int:
        """About what they take."""
        return self.cells.nbytes + sum(map(len, self.words))

    def recoded(self, interner: Interner) -> Floats:
        """The codes of these rows by an interner, once."""
        if self.texts:
            codes = np.array([*interner.encode(self.words).tolist(), NULL])
            self.cells[self.texts] = codes[self.cells[self.texts].astype(np.int64)]
        return self.cells


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
