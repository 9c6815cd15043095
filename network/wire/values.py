"""The door for rows: what users hold becomes columns that travel, once.

The SDK and the embedded engine use the same door, and the same tables judge what comes out of it
(`broker/tables/ingest.py`): so publishing rows and `Engine.upsert` give the same rows, or the same refusal. The door
itself refuses only what no table could take, such as a row that is not a dict.

Values keep what a table can tell apart. Numbers of other widths, subclasses and pandas' scalars become plain ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import repeat
from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hullcast.network.wire.columns import TextColumn
from hullcast.network.wire.containers import (
    Nan,
    is_column,
    is_null,
    made_by,
    masked_list,
    named_columns,
    number_of,
    plain,
)
from hullcast.network.wire.errors import BadBatch, BadSetting, TooLarge, UnknownColumn
from hullcast.network.wire.limits import DEFAULT
from hullcast.network.wire.packing import Foreign, Scalar, foreign, microseconds
from hullcast.network.wire.value_columns import Masks, Mixed, Nullable, ValueColumns, Values, is_values

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Booleans
    from hullcast.network.wire.bodies import Group

SHORT = 32  # rows up to which a list travels as it is: an array of fewer takes longer to make, and to code
PLAIN = frozenset({type(None), bool, int, float, str, bytes, datetime, timedelta})

_NONE = type(None)
_NAMES = frozenset({str})
_LISTS = (list, tuple)
_FAR = 2**55  # microseconds: further than any table reaches, within the years of a datetime
_ABSENT = object()


# -- rows --------------------------------------------------------------------------------------------------


def rows_to_columns(rows: object, table: str = "", nan: Nan = "refuse") -> tuple[ValueColumns, Masks | None]:
    """The columns of a batch: of a list of dicts, a dict of columns, a dict of values (one row), a pyarrow Table or
    RecordBatch, or a pandas DataFrame. With `nan="null"` each NaN becomes NULL.

    The second is, for each column that some row lacks, a mask of these rows; None if no row lacks any.
    """
    if nan not in ("refuse", "null"):
        raise BadSetting("nan", nan, 'must be "refuse" or "null"')
    columns, absent = _columns(rows, table)
    if len(columns) > DEFAULT.columns:
        raise TooLarge("columns of a batch", len(columns), DEFAULT.columns)
    if nan == "null":
        columns = {name: _without_nan(values) for name, values in columns.items()}
    return columns, absent


def keys_to_column(keys: object, table: str = "") -> Values:
    """The column of one key, or of a list or array of them."""
    if isinstance(keys, list) and keys and isinstance(keys[0], tuple):
        raise BadBatch(table, "a row is not a key; pass [key for (key,) in rows], from a query of the key column alone")
    if is_column(keys):
        return _column("of keys", keys, table)
    if isinstance(keys, Mapping | set | frozenset) or made_by("pandas", keys, "DataFrame"):
        raise BadBatch(table, f"a {type(keys).__name__} is not a list of keys; pass one key or a list of keys")
    return Mixed((keys if type(keys) in PLAIN else _scalar(keys),))


KEYS_ONLY = "; delete takes keys, not conditions: find the keys with a query first, and pass [key for (key,) in rows]"
_CONDITION = re.compile(r'\s*"?[^\W\d]\w*"?\s*(=|<>|!=|<|>|\bin\b|\blike\b|\bbetween\b|\bis\b)\s*\S', re.IGNORECASE)


def condition_in(keys: object) -> str | None:
    """The only key, if it looks like a condition: somebody may take delete for a statement of SQL."""
    key = keys[0] if isinstance(keys, _LISTS) and len(keys) == 1 else keys
    return key if isinstance(key, str) and _CONDITION.match(key) else None


def _columns(rows: object, table: str) -> tuple[ValueColumns, Masks | None]:
    if isinstance(rows, dict):
        if PLAIN.issuperset(map(type, rows.values())) and _NAMES.issuperset(map(type, rows)):
            if not rows:
                raise BadBatch(table, "the dict is empty; pass at least the key column")
            return dict(rows), None
        row = _only_row(rows)
        if row is not None:
            return _row(row, table), None
        forms = set(map(is_column, rows.values()))
        if forms == {True}:
            return _named(rows.items(), table), None
        if forms == {False}:
            return _row(dict(rows), table), None
        odd = next(name for name, values in rows.items() if not is_column(values))
        raise BadBatch(table, f"{odd!s:.80} is a single value but others are columns; pass columns only")
    if isinstance(rows, _LISTS):
        if len(rows) == 1 and type(rows[0]) is dict and rows[0]:
            return _row(dict(rows[0]), table), None
        return _from_rows(rows, table)
    columns = named_columns(rows)
    if columns is not None:
        return _named(columns, table), None
    raise BadBatch(
        table,
        f"{type(rows).__name__} is not a batch of rows; pass a list of dicts, a dict of columns, a pyarrow Table or "
        "RecordBatch, or a pandas DataFrame (convert an iterator with list())",
    )


def _row(row: dict[Any, Any], table: str) -> ValueColumns:
    """One row: a scalar for each column. Nearly all batches are this."""
    if not _NAMES.issuperset(map(type, row)):
        row = {_name(name, table): value for name, value in row.items()}
    if PLAIN.issuperset(map(type, row.values())):
        return row
    return {name: value if type(value) in PLAIN else _scalar(value) for name, value in row.items()}


def _only_row(columns: dict[Any, Any]) -> dict[Any, Any] | None:
    """The row of columns that have one value each; None where there are more, or they are of an unusual kind."""
    row = {}
    for name, values in columns.items():
        kind = type(values)
        if (kind is list or kind is tuple) and len(values) == 1:
            row[name] = values[0]
        elif kind is np.ndarray and values.shape == (1,) and values.dtype.kind in "fiubU":
            row[name] = values.item()
        else:
            return None
    return row


def _named(columns: Iterable[tuple[Any, Any]], table: str) -> ValueColumns:
    found: ValueColumns = {}
    for name, values in columns:
        text = _name(name, table)
        if text in found:
            raise BadBatch(table, f"column {text} is given twice")
        found[text] = _column(text, values, table)
    return found


def _column(name: str, values: Any, table: str) -> Values:
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise BadBatch(table, f"column {name} has {values.ndim} dimensions; pass one-dimensional columns")
    _check_rows(len(values), table)
    return from_user(values)


def _from_rows(rows: Sequence[Any], table: str) -> tuple[ValueColumns, Masks | None]:
    _check_rows(len(rows), table)
    for row, mapping in enumerate(rows) if not set(map(type, rows)) <= {dict} else ():
        if not isinstance(mapping, Mapping):
            raise BadBatch(table, f"row {row} is a {type(mapping).__name__}; each row must be a dict")
    widths = set(map(len, rows))
    if 0 in widths:
        row = next(row for row, mapping in enumerate(rows) if not mapping)
        raise BadBatch(table, f"row {row} is an empty dict; pass at least the key")
    if len(widths) == 1:
        try:  # rows of one width that all have the first one's names have the same names
            return {_name(name, table): from_list(list(map(itemgetter(name), rows))) for name in rows[0]}, None
        except KeyError:
            pass
    columns: ValueColumns = {}
    masks: Masks = {}
    for name in dict.fromkeys(name for mapping in rows for name in mapping):
        text = _name(name, table)
        values = [mapping.get(name, _ABSENT) for mapping in rows]
        mask = np.fromiter(map(is_, values, repeat(_ABSENT)), np.bool_, len(values))
        if mask.any():
            masks[text] = mask
            values = [None if value is _ABSENT else value for value in values]
        columns[text] = from_list(values)
    return columns, masks or None


def _name(name: object, table: str) -> str:
    if isinstance(name, str):
        return str.__str__(name)
    raise UnknownColumn(repr(name)[:80], table)


def _check_rows(rows: int, table: str) -> None:
    if rows > DEFAULT.rows:
        raise BadBatch(table, f"{rows} rows in one batch; send at most {DEFAULT.rows} at a time")


def _without_nan(values: Any) -> Any:
    """A column with NULL for each NaN."""
    if isinstance(values, float):
        return None if values != values else values
    if isinstance(values, Mixed):
        return Mixed(tuple(map(_without_nan, values.items)))
    array, nulls = (values.values, values.nulls) if isinstance(values, Nullable) else (values, None)
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        return values
    unknown = np.isnan(array)
    return Nullable(array, unknown if nulls is None else nulls | unknown)


# -- columns -----------------------------------------------------------------------------------------------


def from_user(values: object, *, exact: bool = False) -> Values:
    """A user's column as it travels: a list, a tuple, or an array of NumPy, pandas or Arrow.

    Instants become whole microseconds, rounded down, as tables keep them; `exact` keeps finer ones apart.
    """
    found, nulls = plain(values)
    if isinstance(found, list):
        return from_list(found)
    return _from_array(found, nulls, exact)


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
    """A list of any values as it travels."""
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
        nulls = np.fromiter(map(is_, values, repeat(None)), np.bool_, len(values)) if _NONE in types else None
        array = _array(kind, values, nulls)
        if array is not None:
            return array if nulls is None or array.dtype.kind == "M" else Nullable(array, nulls)
    return Mixed(tuple(values))


def _array(kind: type, values: list[Any], nulls: Booleans | None) -> NDArray[Any] | None:
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


def _from_array(array: NDArray[Any], nulls: Booleans | None, exact: bool) -> Values:
    kind = array.dtype.kind
    if nulls is not None and not nulls.any():
        nulls = None
    if kind == "M" and np.datetime_data(array.dtype)[0] != "generic":
        instants = whole_microseconds(array, exact)
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


def whole_microseconds(array: NDArray[Any], exact: bool = False) -> NDArray[np.datetime64] | None:
    """Instants in whole microseconds, a copy; what is too far for them is put further than any table reaches. None if
    that would lose something an exact caller wants to keep."""
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
    """Single values as they travel. The first that no table takes becomes a stand-in, which is enough to be refused."""
    kept: list[Scalar] = []
    refused = False
    for value in values:
        scalar = value if type(value) in PLAIN else _scalar(value)
        if isinstance(scalar, Foreign):
            scalar, refused = (None if refused else scalar), True
        kept.append(scalar)
    return tuple(kept)


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


# -- parameters and answers --------------------------------------------------------------------------------


def parameter_columns(group: Group) -> tuple[Any, ...]:
    """The parameters of a group of subscriptions, a column each, as the engine binds them."""
    return tuple(
        (value if isinstance(value, np.ndarray) else to_list(value)) if is_values(value) else [value]
        for value in group.parameters
    )


def table_of(rows: Sequence[Any], names: Sequence[str] = ()) -> tuple[tuple[str, ...], tuple[Values, ...]]:
    """Names and columns of a query's rows, which are named tuples unless names are given."""
    found = tuple(names) or (tuple(getattr(rows[0], "_fields", ())) if rows else ())
    if not rows:
        return found, tuple(Mixed(()) for _ in found)
    return found, tuple(from_list(list(column)) for column in zip(*rows, strict=True))


def rows_of(columns: Sequence[Values]) -> list[tuple[Any, ...]]:
    """The rows of a query's columns; the opposite of `table_of`."""
    return list(zip(*map(to_list, columns), strict=True))
