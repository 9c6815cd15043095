"""Columns as users hold them, with NULLs and mixed types: published, bound to `?` or answered.

    in memory                       on the wire
    any column of columns.py        the same
    datetime64[us] array            ["us", bytes]: int64 microseconds since 1970 UTC, NaT (-2**63): NULL
    Nullable                        its array's, with a third item: one byte a row, 1: NULL
    Mixed                           ["v", [scalars]]
    a scalar, among published ones  the scalar: a column of one row

Which form a column takes says nothing about what it means. The tables judge the values (`broker/tables/ingest.py`), so
a column keeps apart what a table keeps apart: 1 is not 1.0 (a TEXT column says which it got), NaN is not NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from hullcast.network.wire import columns as column_format
from hullcast.network.wire.arrays import Booleans, Ints
from hullcast.network.wire.columns import Column, TextColumn, array_of, mask_of, pack_column, raw, unpack_column
from hullcast.network.wire.errors import BadFrame
from hullcast.network.wire.limits import DEFAULT, WireLimits
from hullcast.network.wire.packing import Foreign, Scalar


@dataclass(frozen=True, slots=True, eq=False)
class Nullable:
    """An array some of whose rows are NULL; what the array holds there is of no meaning."""

    values: NDArray[Any]  # float64, int64 or bool
    nulls: Booleans

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Mixed:
    """Rows of any scalars: several types, or so few rows that an array would cost more than it saves."""

    items: tuple[Scalar, ...]

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.items)


Values: TypeAlias = Column | NDArray[np.datetime64] | Nullable | Mixed
ValueColumns: TypeAlias = dict[str, Values | Scalar]
Masks: TypeAlias = dict[str, Booleans]  # of the rows that lack a column

_COLUMNS = (np.ndarray, TextColumn, Nullable, Mixed)
_SCALARS = frozenset({type(None), bool, int, float, str, bytes})  # what MessagePack decodes to; the others are ours
_NAMES = frozenset({str})
_SCALAR_BYTES = 9  # of a number when sent; a text has its own length besides


def row_count(column: Values | Scalar) -> int:
    """The number of rows of one column."""
    if type(column) in _SCALARS:  # first: each row that is published alone is asked
        return 1
    return len(column) if isinstance(column, _COLUMNS) else 1


def most_rows(columns: ValueColumns) -> int:
    """The number of rows of the longest column."""
    return max(map(row_count, columns.values()), default=0)


def taken(values: Values | Scalar, rows: Ints | slice) -> Any:
    """Some rows of a column."""
    if isinstance(values, Mixed):
        return Mixed(
            values.items[rows] if isinstance(rows, slice) else tuple(map(values.items.__getitem__, rows.tolist()))
        )
    if isinstance(values, Nullable):
        return Nullable(values.values[rows], values.nulls[rows])
    if isinstance(values, TextColumn):
        return values.take(np.arange(len(values))[rows])
    return values[rows] if isinstance(values, np.ndarray) else taken(Mixed((values,)), rows)


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


def pack_value_columns(columns: ValueColumns) -> dict[str, Any]:
    """Columns as MessagePack takes them."""
    if _SCALARS.issuperset(map(type, columns.values())):  # one row
        return columns
    return {name: pack_values(column) if is_values(column) else column for name, column in columns.items()}


def pack_values(column: Values) -> list[object]:
    """One column as MessagePack takes it."""
    if isinstance(column, Mixed):
        return ["v", column.items]
    if isinstance(column, Nullable):
        return [*pack_column(column.values), raw(column.nulls, column.nulls.dtype)]
    if isinstance(column, np.ndarray) and column.dtype.kind == "M":
        return ["us", raw(column.astype("M8[us]", copy=False), np.dtype("<M8[us]"))]
    return pack_column(cast("Column", column))


def unpack_value_columns(packed: object, limits: WireLimits = DEFAULT) -> ValueColumns:
    """Columns by name, or BadFrame. Their lengths may differ: the receiver's table has the words for that."""
    if type(packed) is not dict or len(packed) > limits.columns:
        raise BadFrame(f"columns are a map of at most {limits.columns}")
    if not _NAMES.issuperset(map(type, packed)):
        raise BadFrame("a column's name is a text")
    if _SCALARS.issuperset(map(type, packed.values())):  # one row
        return packed
    return {
        name: unpack_values(item, limits) if type(item) is list else check_scalars([item], limits)[0]
        for name, item in packed.items()
    }


def unpack_masks(packed: object, limits: WireLimits = DEFAULT) -> Masks:
    """Which rows lack which columns, or BadFrame."""
    masks = column_format.unpack(packed, limits)
    for name, mask in masks.items():
        if isinstance(mask, TextColumn) or mask.dtype != np.bool_:
            raise BadFrame(f"no mask of a column: {name[:80]!r}")
    return cast("Masks", masks)


def check_masks(masks: Masks, columns: ValueColumns) -> None:
    """BadFrame unless they are masks of columns that are there, of their length."""
    for name in masks.keys() - columns.keys():
        raise BadFrame(f"no mask of a column: {name[:80]!r}")
    if len(set(map(row_count, (*columns.values(), *masks.values())))) > 1:
        raise BadFrame("columns of rows have one length, and so have their masks")


def unpack_values(packed: object, limits: WireLimits = DEFAULT) -> Values:
    """One column, or BadFrame."""
    match packed:
        case ["v", list(items)]:
            return Mixed(check_scalars(items, limits))
        case ["us", bytes(data)]:
            return cast("NDArray[np.datetime64]", array_of("i8", data, limits).view("M8[us]"))
        case ["f8" | "i8" | "b1" as kind, bytes(data), bytes(mask)]:
            values = mask_of(data, limits) if kind == "b1" else array_of(kind, data, limits)
            nulls = mask_of(mask, limits)
            if len(nulls) != len(values):
                raise BadFrame(f"{len(nulls)} marks of NULL for {len(values)} rows")
            return Nullable(values, nulls)
    return unpack_column(packed, limits)


def are_plain(items: Sequence[Any]) -> bool:
    """Whether all are scalars of MessagePack's own, which need no further look."""
    return _SCALARS.issuperset(map(type, items))


def check_scalars(items: Sequence[Any], limits: WireLimits = DEFAULT) -> tuple[Scalar, ...]:
    """Scalars of a decoded array, or BadFrame. One stand-in for a foreign value is enough to be refused by."""
    odd = set(map(type, items)) - _SCALARS
    if odd:
        if list in odd or dict in odd:
            raise BadFrame("an array or map where a scalar is needed")
        if sum(isinstance(item, Foreign) for item in items) > 1:
            raise BadFrame("more than one foreign value in a column")
    if len(items) > limits.rows:
        raise BadFrame(f"{len(items)} values; at most {limits.rows}")
    return tuple(items)


def is_values(value: object) -> bool:
    """Whether this is a column, and not a scalar."""
    return isinstance(value, _COLUMNS)
