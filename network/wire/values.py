"""A user's batch as it travels, and as the engine takes it again.

The rule: publishing rows and `Engine.upsert` in one process give the same rows, or the same refusal. What no table
could change (a row that is no dict, columns beside single values) is refused before it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hullcast.network.wire.containers import Nan, is_column, made_by, nan_as_null
from hullcast.network.wire.conversion import PLAIN, from_list, from_user, scalars, to_ingest, to_list
from hullcast.network.wire.errors import BadBatch, TooLarge, UnknownColumn
from hullcast.network.wire.limits import DEFAULT
from hullcast.network.wire.value_columns import Masks, Mixed, Nullable, ValueColumns, Values, is_values

if TYPE_CHECKING:
    from hullcast.network.wire.bodies import Group

__all__ = [
    "Masks",
    "Mixed",
    "Nullable",
    "ValueColumns",
    "Values",
    "columns_to_rows",
    "from_user",
    "keys_to_column",
    "parameter_columns",
    "rows_of",
    "rows_to_columns",
    "scalars",
    "table_of",
    "to_ingest",
    "to_list",
    "upsert",
]

Result = TypeVar("Result")

_ROW_TYPES = frozenset({str, int, float, type(None), datetime})  # a dict that begins with one of these is a row
_ABSENT = object()


def rows_to_columns(rows: object, table: str = "", nan: Nan = "refuse") -> tuple[ValueColumns, Masks | None]:
    """What `Publish` carries of a user's batch, in any form that `Engine.upsert` takes; `nan` as there.

    The second is None if columns were given. Of rows it holds, for each column that some row lacks, a mask of these.
    """
    rows = nan_as_null(rows, nan)
    if isinstance(rows, dict):
        if rows and type(next(iter(rows.values()))) in _ROW_TYPES:
            return _from_rows([rows], table)
        forms = set(map(is_column, rows.values()))
        if forms == {True}:
            return _from_columns(list(rows.items()), table), None
        if forms == {False}:
            return _from_rows([rows], table)
        if not forms:
            raise BadBatch(table, "the dict is empty; pass at least the key column")
        odd = next(name for name, values in rows.items() if not is_column(values))
        raise BadBatch(table, f"{odd!s:.80} is a single value but others are columns; pass columns only")
    if isinstance(rows, list | tuple):
        return _from_rows(rows, table)
    given: Any = rows
    if made_by("pyarrow", rows, "Table", "RecordBatch"):
        return _from_columns(list(zip(given.schema.names, given.columns, strict=True)), table), None
    if made_by("pandas", rows, "DataFrame"):
        return _from_columns([(name, given.iloc[:, i]) for i, name in enumerate(given.columns)], table), None
    raise BadBatch(
        table,
        f"{type(rows).__name__} is not a batch of rows; pass a list of dicts, a dict of columns, a pyarrow Table or "
        "RecordBatch, or a pandas DataFrame (convert an iterator with list())",
    )


def columns_to_rows(columns: ValueColumns, absent: Masks | None) -> object:
    """The batch as `Engine.upsert` takes it: columns, or, if the user gave rows, these rows."""
    if absent is None:
        return {name: to_ingest(column) for name, column in columns.items()}
    cells = zip(*map(to_list, columns.values()), strict=True)
    if not absent:
        return [dict(zip(columns, row, strict=True)) for row in cells]
    masks = [absent.get(name) for name in columns]
    present = zip(*([True] * _rows(columns) if mask is None else (~mask).tolist() for mask in masks), strict=True)
    return [
        {name: value for name, value, there in zip(columns, row, given, strict=True) if there}
        for row, given in zip(cells, present, strict=True)
    ]


def upsert(apply: Callable[[str, object], Result], table: str, columns: ValueColumns, absent: Masks | None) -> Result:
    """Apply a batch by `Engine.upsert`. Rows that all have the same columns need not be made rows again, which is most
    of the time; only the refusal of a batch as a whole is worded otherwise for rows, and then they are."""
    if absent is None or absent or _rows(columns) <= 1:
        return apply(table, columns_to_rows(columns, absent))
    try:
        return apply(table, columns_to_rows(columns, None))
    except BadBatch:
        return apply(table, columns_to_rows(columns, absent))


def keys_to_column(keys: object, table: str = "") -> Values:
    """What `Delete` carries: one key, or a column of them."""
    if not is_column(keys):
        if isinstance(keys, Mapping | set | frozenset) or made_by("pandas", keys, "DataFrame"):
            raise BadBatch(table, f"a {type(keys).__name__} is not a list of keys; pass one key or a list of keys")
        return Mixed(scalars([keys]))
    return _column("of keys", keys, table)


def _from_columns(columns: Sequence[tuple[Any, Any]], table: str) -> ValueColumns:
    found: ValueColumns = {}
    for name, values in columns:
        text = _name(name, table)
        if text in found:
            raise BadBatch(table, f"column {text} is given twice")
        found[text] = _column(text, values, table)
    _check_width(found)
    return found


def _column(name: str, values: Any, table: str) -> Values:
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise BadBatch(table, f"column {name} has {values.ndim} dimensions; pass one-dimensional columns")
    _check_rows(len(values), table)
    return from_user(values)


def _from_rows(rows: Sequence[Any], table: str) -> tuple[ValueColumns, Masks]:
    _check_rows(len(rows), table)
    if len(rows) == 1 and type(rows[0]) is dict and rows[0]:  # nearly all batches are one row
        return {
            name if type(name) is str else _name(name, table): Mixed(
                (value,) if type(value) in PLAIN else scalars((value,))
            )
            for name, value in rows[0].items()
        }, {}
    if not set(map(type, rows)) <= {dict}:
        for row, mapping in enumerate(rows):
            if not isinstance(mapping, Mapping):
                raise BadBatch(table, f"row {row} is a {type(mapping).__name__}; each row must be a dict")
        rows = list(map(dict, rows))
    shapes = dict.fromkeys(map(tuple, rows))
    names = {name: _name(name, table) for shape in shapes for name in shape}
    if rows and not names:
        raise BadBatch(table, "a row is an empty dict; pass at least the key")
    columns: ValueColumns = {}
    masks: Masks = {}
    for name, text in names.items():
        if len(shapes) == 1:
            columns[text] = from_user(list(map(itemgetter(name), rows)))
            continue
        values = [row.get(name, _ABSENT) for row in rows]
        mask = np.fromiter((value is _ABSENT for value in values), np.bool_, len(values))
        if mask.any():
            masks[text] = mask
            values = [None if value is _ABSENT else value for value in values]
        columns[text] = from_user(values)
    _check_width(columns)
    return columns, masks


def _name(name: object, table: str) -> str:
    if isinstance(name, str):
        return str(name)
    raise UnknownColumn(repr(name)[:80], table)


def _rows(columns: ValueColumns) -> int:
    return len(next(iter(columns.values()), ()))


def _check_rows(rows: int, table: str) -> None:
    if rows > DEFAULT.rows:
        raise BadBatch(table, f"{rows} rows in one batch; at most {DEFAULT.rows} are allowed")


def _check_width(columns: ValueColumns) -> None:
    if len(columns) > DEFAULT.columns:
        raise TooLarge("columns of a batch", len(columns), DEFAULT.columns)


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
