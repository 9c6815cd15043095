"""The door: rows in any form a caller may hold become one array of codes, or are refused as a whole.

Two ways lead through it. A single row of plain values fills a short list and becomes an array at the end (a
NumPy call a cell would cost more than the rest of an update). Everything else is brought into columns
first, and then judged and coded column by column. The short way never refuses by itself: whatever it does not
like goes the long way, which finds the first bad value in row order.

Nothing is interned before every value of the batch was judged good.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hullcast.broker.tables.interning import UNKNOWN, Interner
from hullcast.broker.tables.schema import Column, ColumnType, Table
from hullcast.broker.tables.values import (
    EXACT,
    LARGEST,
    Refused,
    encode_number,
    encode_numbers,
    take_texts,
)
from hullcast.network.wire.containers import Nan, is_column, made_by, nan_as_null
from hullcast.network.wire.errors import BadBatch, BadValue, UnknownColumn

KEEP = -math.inf  # in a batch: "not given"; a stored row keeps its value, a new row gets NULL
MAXIMUM_ROWS = 10_000_000

_SPELLINGS = 1024  # of column names remembered per table, so that strangers cannot fill memory with cAsEs
_PLANS = 1024  # tables whose plan is remembered
_PLAIN_TYPES = frozenset({str, int, float, type(None), datetime})
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch that passed the door: codes of shape (columns, rows).

    `partial` says whether KEEP may occur in `cells`; where it is False a store need not look.
    """

    cells: NDArray[np.float64]
    partial: bool = True

    def __len__(self) -> int:
        """The number of rows."""
        return int(self.cells.shape[1])


def ingest(table: Table, rows: object, interner: Interner, nan: Nan = "refuse") -> Encoded:
    """The codes of rows, or a UsageError, and then nothing has changed anywhere.

    `rows` is a list of dicts, one dict of columns, one dict of values (a single row), a pyarrow Table or
    RecordBatch, or a pandas DataFrame (its index is not looked at). `nan`: whether NaN is refused or is NULL.
    """
    plan = _plan(table)
    rows = nan_as_null(rows, nan)
    if isinstance(rows, dict):
        if rows and type(next(iter(rows.values()))) in _PLAIN_TYPES:
            return _single(plan, rows, interner) or _from_dicts(plan, [rows], interner)
        return _from_mapping(plan, rows, interner)
    if isinstance(rows, list | tuple):
        if len(rows) == 1 and type(rows[0]) is dict:
            return _single(plan, rows[0], interner) or _from_dicts(plan, rows, interner)
        return _from_dicts(plan, rows, interner)
    if made_by("pyarrow", rows, "Table", "RecordBatch"):
        arrow: Any = rows
        return _from_columns(plan, list(zip(arrow.schema.names, arrow.columns, strict=True)), interner)
    if made_by("pandas", rows, "DataFrame"):
        frame: Any = rows
        return _from_columns(plan, [(name, frame.iloc[:, i]) for i, name in enumerate(frame.columns)], interner)
    raise BadBatch(
        table.name,
        f"{type(rows).__name__} is not a batch of rows; pass a list of dicts, a dict of columns, a pyarrow Table or "
        "RecordBatch, or a pandas DataFrame (convert an iterator with list())",
    )


def ingest_keys(table: Table, keys: object, interner: Interner) -> NDArray[np.float64]:
    """The codes of keys to delete: one key or a column of them. Never interns: an unseen text is UNKNOWN."""
    plan = _plan(table)
    column = plan.columns[table.key]
    if not is_column(keys):
        if isinstance(keys, Mapping | set | frozenset) or made_by("pandas", keys, "DataFrame"):
            raise BadBatch(table.name, f"a {type(keys).__name__} is not a list of keys; pass one key or a list of keys")
        if type(keys) is str and column.type is ColumnType.TEXT:
            code = interner.find(keys)
            return np.array([UNKNOWN if code is None else code])
        keys = [keys]
    _length(table, column.name, keys)
    try:
        if column.type is ColumnType.TEXT:
            return interner.find_all(take_texts(column, keys))
        return encode_numbers(column, keys)
    except Refused as refused:
        raise BadValue(table.name, refused.row, column.name, refused.reason) from None


class _Plan:
    """What the door knows of a table: its columns (the key as NOT NULL) and where each spelling leads."""

    __slots__ = ("columns", "places", "table", "width")

    def __init__(self, table: Table) -> None:
        self.table = table
        self.width = len(table.columns)
        self.columns = tuple(
            Column(column.name, column.type, column.not_null or position == table.key)
            for position, column in enumerate(table.columns)
        )
        self.places: dict[object, tuple[int, ColumnType]] = {}
        for position, column in enumerate(table.columns):
            for spelling in (column.name, column.name.lower(), column.name.upper()):
                self.places.setdefault(spelling, (position, column.type))

    def place(self, name: object) -> tuple[int, ColumnType]:
        """Position and type of a column in any spelling, or UnknownColumn."""
        place = self.places.get(name)
        if place is None:
            if not isinstance(name, str):
                raise UnknownColumn(repr(name)[:80], self.table.name, tuple(c.name for c in self.columns))
            position = self.table.position(name)
            place = (position, self.columns[position].type)
            if len(self.places) < _SPELLINGS:
                self.places[name] = place
        return place


_plans: dict[int, _Plan] = {}


def _plan(table: Table) -> _Plan:
    """A table's plan. Found by identity (a plan keeps its table alive, so an id means one table):
    hashing a Table costs more than coding a row."""
    plan = _plans.get(id(table))
    if plan is None or plan.table is not table:
        if len(_plans) >= _PLANS:
            _plans.clear()
        plan = _plans[id(table)] = _Plan(table)
    return plan


def _single(plan: _Plan, row: dict[Any, Any], interner: Interner) -> Encoded | None:
    """The short way for one row; None for whatever needs a closer look."""
    codes = [KEEP] * plan.width
    fresh: list[tuple[int, str]] = []
    taken = 0
    for name, value in row.items():
        try:
            position, kind = plan.places.get(name) or plan.place(name)
            if codes[position] is not KEEP:
                return None
            value_type = type(value)
            if kind is ColumnType.TEXT:
                if value_type is not str:
                    return None
                code = interner.find(value)
                if code is None:
                    interner.check((value,))
                    fresh.append((position, value))
                    code = UNKNOWN  # until the whole row is judged
            elif value_type is float and kind is ColumnType.REAL and -LARGEST <= value <= LARGEST:
                code = value + 0.0
            elif value_type is int and kind is not ColumnType.TIMESTAMP and -EXACT <= value <= EXACT:
                code = float(value)
            else:
                code = encode_number(plan.columns[position], value)
        except Refused:
            return None
        codes[position] = code
        taken += 1
    if codes[plan.table.key] is KEEP:
        return None
    for position, text in fresh:
        codes[position] = interner.code(text)
    return Encoded(np.array(codes).reshape(plan.width, 1), taken < plan.width)


def _from_mapping(plan: _Plan, columns: dict[Any, Any], interner: Interner) -> Encoded:
    """One dict: of columns, or of values that are one row."""
    forms = set(map(is_column, columns.values()))
    if forms == {True}:
        return _from_columns(plan, list(columns.items()), interner)
    if forms == {False}:
        return _from_dicts(plan, [columns], interner)
    if not forms:
        raise BadBatch(plan.table.name, "the dict is empty; pass at least the key column")
    odd = next(name for name, values in columns.items() if not is_column(values))
    raise BadBatch(plan.table.name, f"{odd!s:.80} is a single value but others are columns; pass columns only")


def _from_columns(plan: _Plan, columns: Sequence[tuple[Any, Any]], interner: Interner) -> Encoded:
    """Columns by name, of one length."""
    table = plan.table
    spelled: dict[int, Any] = {}
    lengths: dict[int, int] = {}
    for name, values in columns:
        position, _ = plan.place(name)
        if position in spelled:
            raise BadBatch(table.name, f"column {plan.columns[position].name} is given twice")
        spelled[position] = values
        lengths[position] = _length(table, name, values)
    if table.key not in spelled:
        raise BadBatch(table.name, f"the key column {table.key_column.name} is missing")
    n = lengths[table.key]
    for position, length in lengths.items():
        if length != n:
            raise BadBatch(
                table.name,
                f"column {plan.columns[position].name} has {length} values, {table.key_column.name} has {n}",
            )
    return _assemble(plan, n, [(position, values, None) for position, values in spelled.items()], interner)


def _length(table: Table, name: object, values: Any) -> int:
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise BadBatch(table.name, f"column {name} has {values.ndim} dimensions; pass one-dimensional columns")
    if len(values) > MAXIMUM_ROWS:
        raise BadBatch(table.name, f"{len(values)} rows in one batch; at most {MAXIMUM_ROWS} are allowed")
    return len(values)


def _from_dicts(plan: _Plan, rows: Sequence[Any], interner: Interner) -> Encoded:
    """Rows as dicts, each with the key and any other columns."""
    table = plan.table
    if len(rows) > MAXIMUM_ROWS:
        raise BadBatch(table.name, f"{len(rows)} rows in one batch; at most {MAXIMUM_ROWS} are allowed")
    if not set(map(type, rows)) <= {dict}:
        for row, mapping in enumerate(rows):
            if not isinstance(mapping, Mapping):
                raise BadBatch(table.name, f"row {row} is a {type(mapping).__name__}; each row must be a dict")
        rows = list(map(dict, rows))
    shapes: dict[tuple[Any, ...], None] = dict.fromkeys(map(tuple, rows))
    spellings: dict[int, set[str]] = {}
    for shape in shapes:
        positions = [plan.place(name)[0] for name in shape]
        if not positions:
            raise BadBatch(table.name, "a row is an empty dict; pass at least the key")
        if len(set(positions)) < len(positions):
            twice = next(position for position in positions if positions.count(position) > 1)
            raise BadBatch(table.name, f"column {plan.columns[twice].name} is given twice in one row")
        for name, position in zip(shape, positions, strict=True):
            spellings.setdefault(position, set()).add(name)
    if any(len(names) > 1 for names in spellings.values()):
        rows = [{plan.place(name)[0]: value for name, value in row.items()} for row in rows]
        getters: dict[int, Any] = {position: position for position in spellings}
    else:
        getters = {position: next(iter(names)) for position, names in spellings.items()}
    if len(shapes) <= 1:
        whole = [(position, list(map(itemgetter(name), rows)), None) for position, name in getters.items()]
        return _assemble(plan, len(rows), whole, interner)
    columns: list[tuple[int, Any, NDArray[np.int64] | None]] = []
    for position, name in getters.items():
        values = [row.get(name, _ABSENT) for row in rows]
        given = [value is not _ABSENT for value in values]
        if all(given):
            columns.append((position, values, None))
        else:
            present = [value for value in values if value is not _ABSENT]
            columns.append((position, present, np.flatnonzero(given)))
    return _assemble(plan, len(rows), columns, interner)


def _assemble(
    plan: _Plan, n: int, columns: Iterable[tuple[int, Any, NDArray[np.int64] | None]], interner: Interner
) -> Encoded:
    """Judge all columns, then code them. A column is (position, values, their rows or None for all)."""
    table = plan.table
    numbers: dict[int, NDArray[np.float64]] = {}
    texts: dict[int, list[str | None]] = {}
    places: dict[int, NDArray[np.int64] | None] = {}
    refusals: list[tuple[int, int, str]] = []
    for position, values, rows in columns:
        column = plan.columns[position]
        places[position] = rows
        try:
            if column.type is ColumnType.TEXT:
                texts[position] = take_texts(column, values)
                interner.check(texts[position])
            else:
                numbers[position] = encode_numbers(column, values)
        except Refused as refused:
            row = refused.row if rows is None else int(rows[refused.row])
            refusals.append((row, position, refused.reason))
    keyed = places.get(table.key, np.empty(0, dtype=np.int64))
    if keyed is not None and len(keyed) < n:
        gap = np.setdiff1d(np.arange(n), keyed, assume_unique=True)[0]
        refusals.append((int(gap), table.key, "the primary key is missing"))
    if refusals:
        row, position, reason = min(refusals)
        raise BadValue(table.name, row, plan.columns[position].name, reason)
    partial = len(places) < plan.width or any(rows is not None for rows in places.values())
    cells = np.full((plan.width, n), KEEP) if partial else np.empty((plan.width, n))
    numbers.update((position, interner.encode(column_texts)) for position, column_texts in texts.items())
    for position, codes in numbers.items():
        rows = places[position]
        cells[position, slice(None) if rows is None else rows] = codes
    return Encoded(cells, partial and n > 0)
