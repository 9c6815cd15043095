"""From what users hold to columns that travel, and from there to what the engine takes: column by column.

Values keep what a table can tell apart. Only these change, and only the words of a refusal show it: numbers of other
widths, subclasses and pandas' scalars are named by the type they travel as.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hullcast.network.wire.columns import TextColumn
from hullcast.network.wire.containers import is_null, masked_list, number_of, plain
from hullcast.network.wire.packing import Foreign, Scalar, foreign, microseconds
from hullcast.network.wire.value_columns import Mixed, Nullable, Values

SHORT = 8  # rows up to which a list travels as it is: making an array would take longer
PLAIN = frozenset({type(None), bool, int, float, str, bytes, datetime, timedelta})

_NONE = type(None)
_FAR = 2**55  # microseconds: further than any table reaches, within the years of a datetime


# -- columns -----------------------------------------------------------------------------------------------


def from_user(values: object, *, exact: bool = False) -> Values:
    """A user's column as it travels: a list, a tuple, or an array of NumPy, pandas or Arrow.

    Instants become whole microseconds, rounded down, as tables keep them; `exact` keeps finer ones apart.
    """
    found, nulls = plain(values)
    if isinstance(found, list):
        return from_list(found)
    return _from_array(found, nulls, exact)


def to_ingest(column: Values) -> object:
    """A column as the engine takes it."""
    if isinstance(column, Nullable):
        return np.ma.MaskedArray(column.values, column.nulls)
    if isinstance(column, np.ndarray):
        return column
    return to_list(column)


def to_list(column: Values) -> list[Any]:
    """A column's values, None for NULL; instants as datetimes in UTC, as single ones come off the wire."""
    if isinstance(column, Mixed):
        return list(column.items)
    if isinstance(column, TextColumn):
        return column.to_list()
    if isinstance(column, Nullable):
        return masked_list(column.values, column.nulls)
    found: list[Any] = column.tolist()
    if column.dtype.kind == "M":  # what is beyond every datetime is an int there
        return [value.replace(tzinfo=UTC) if isinstance(value, datetime) else value for value in found]
    return found


def from_list(values: list[Any]) -> Values:
    types = set(map(type, values))
    if not types <= PLAIN:
        values = list(scalars(values))
        types = set(map(type, values))
    if len(values) <= SHORT:
        return Mixed(tuple(values))
    if types <= {str, _NONE} and str in types:
        return TextColumn.from_texts(values)
    kinds = types - {_NONE}
    if len(kinds) == 1:
        kind = kinds.pop()
        nulls = np.fromiter((value is None for value in values), np.bool_, len(values)) if _NONE in types else None
        array = _array(kind, values, nulls)
        if array is not None:
            return array if nulls is None or array.dtype.kind == "M" else Nullable(array, nulls)
    return Mixed(tuple(values))


def _array(kind: type, values: list[Any], nulls: NDArray[np.bool_] | None) -> NDArray[Any] | None:
    """An array of values that are all of one type but for NULLs; None if it has no array."""
    if kind is float:
        return np.array(values, np.float64)  # None becomes NaN
    if kind is bool or kind is int:
        filled = values if nulls is None else [0 if value is None else value for value in values]
        try:
            return np.array(filled, np.bool_ if kind is bool else np.int64)
        except OverflowError:
            return None
    if kind is datetime:
        nat = np.iinfo(np.int64).min
        counts = (nat if value is None else microseconds(value) for value in values)
        return np.fromiter(counts, np.int64, len(values)).view("M8[us]")
    return None


def _from_array(array: NDArray[Any], nulls: NDArray[np.bool_] | None, exact: bool) -> Values:
    kind = array.dtype.kind
    if nulls is not None and not nulls.any():
        nulls = None
    if kind == "M" and np.datetime_data(array.dtype)[0] != "generic":
        instants = _instants(array, exact)
        if instants is not None:
            if nulls is not None:
                instants[nulls] = np.datetime64("NaT")
            return instants
        return Mixed(tuple(value if nulls is None or not nulls[row] else None for row, value in enumerate(array)))
    converted: NDArray[Any] | None = None
    if kind == "f":
        with np.errstate(over="ignore"):  # a longdouble beyond float64 becomes an infinity, which no table takes
            converted = array.astype(np.float64, copy=False)
    elif kind == "b":
        converted = array
    elif kind in "iu" and (array.dtype.itemsize < 8 or kind == "i" or not len(array) or array.max() < 2**63):
        converted = array.astype(np.int64, copy=False)
    if converted is None:
        unit = array.astype("m8[us]") if kind == "m" else array  # finer ones would list as integers
        return Mixed(scalars(masked_list(unit, nulls)))
    return converted if nulls is None else Nullable(converted, nulls)


def _instants(array: NDArray[Any], exact: bool) -> NDArray[np.datetime64] | None:
    """Instants in whole microseconds; what is too far for them is put further than any table reaches. None if that
    would lose something an exact caller wants to keep."""
    unit, step = np.datetime_data(array.dtype)
    if unit == "us" and step == 1:
        return array.astype("M8[us]")  # a copy: NULLs may be written into it
    null = np.isnat(array)
    ticks = array.astype(np.int64)
    days = np.abs(np.where(null, 0, ticks).astype(np.float64)) * step * _days_per_tick(unit)
    far = days > _FAR / 86_400e6
    with np.errstate(over="ignore"):
        instants = np.where(far, np.datetime64("NaT"), array).astype("M8[us]")
    if exact and (far.any() or (instants.astype(array.dtype) != array)[~null].any()):
        return None
    counts = instants.view(np.int64)
    counts[far] = np.where(ticks[far] > 0, _FAR, -_FAR)
    return instants


def _days_per_tick(unit: str) -> float:
    """How long a tick is, about."""
    days = {"Y": 365.25, "M": 30.5, "W": 7.0, "D": 1.0, "h": 1 / 24, "m": 1 / 1440, "s": 1 / 86_400}
    return days.get(unit) or 1 / 86_400 / 1000.0 ** ("ms", "us", "ns", "ps", "fs", "as").index(unit) / 1000


# -- scalars -----------------------------------------------------------------------------------------------


def scalars(values: Iterable[object]) -> tuple[Scalar, ...]:
    """Single values as they travel. What nobody takes is replaced by a stand-in, once: one is enough to be refused."""
    taken: list[Scalar] = []
    refused = False
    for value in values:
        kept = value if type(value) in PLAIN else _scalar(value)
        if isinstance(kept, Foreign):
            kept, refused = (None if refused else kept), True
        taken.append(kept)
    return tuple(taken)


def _scalar(value: Any) -> Scalar:
    if is_null(value):
        return None
    if isinstance(value, str):
        return str.__str__(value)  # of a member of an Enum its value, and not its name
    kinds: tuple[Any, ...] = (bytes, int, float)  # subclasses, numpy.float64 among them
    for kind in kinds:
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, np.datetime64 | np.timedelta64):
        unit, step = np.datetime_data(value.dtype)
        if unit == "generic":  # a length of nothing in particular
            return foreign(type(value).__name__)
        return value if step == 1 else value.astype(f"{value.dtype.kind}8[{unit}]")
    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    if isinstance(value, np.floating):
        return float(value)
    if isinstance(value, Decimal):
        return number_of(value)
    for method in ("to_datetime64", "to_timedelta64"):  # pandas
        if hasattr(value, method) and isinstance(value, date | timedelta):
            return getattr(value, method)()
    if isinstance(value, datetime | timedelta):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    return foreign(type(value).__name__)
