"""Columns become codes: a batch that came in is checked and coded as a whole.

The server's batches and the embedded engine's take this one way. A batch of one row is coded value by value (a NumPy
call a cell would cost more than the rest of an update), any other column by column. The short way never refuses:
whatever it does not like is judged with the columns, which find the first bad value in row order.

Nothing is interned before every value of the batch was judged good.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hullcast.broker.tables.interning import UNKNOWN
from hullcast.broker.tables.schema import POSITION, Column, ColumnType, Table
from hullcast.broker.tables.values import (
    EXACT,
    LARGEST,
    NAN,
    NULL,
    Refused,
    Words,
    encode_number,
    encode_numbers,
    words_of,
)
from hullcast.network.wire.errors import BadBatch, BadValue, UsageError
from hullcast.network.wire.value_columns import Mixed, is_values, row_count, taken
from hullcast.network.wire.values import KEYS_ONLY, condition_in

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from hullcast.broker.tables.interning import Interner
    from hullcast.network.wire.arrays import Floats
    from hullcast.network.wire.value_columns import Masks, ValueColumns, Values


KEEP = -math.inf  # in a batch: "not given"; a stored row keeps its value, a new row gets NULL

#: Rows of a large batch that are coded at once, and about how long that takes.
CODED_ROWS, CODING_COST_S = 4096, 0.002

_TEXT, _REAL, _TIMESTAMP = ColumnType.TEXT, ColumnType.REAL, ColumnType.TIMESTAMP
_ALL = slice(None)  # rows
_SPELLINGS = 1024  # of column names remembered per table, so that strangers cannot fill memory with cAsEs
_PLANS = 1024  # tables whose plan is remembered


class Encoded(NamedTuple):
    """A batch as codes, of shape (columns, rows). `partial`: KEEP may occur; a store need not look where it cannot."""

    cells: Floats
    partial: bool


def ingest(table: Table, columns: ValueColumns, absent: Masks | None, interner: Interner) -> Encoded:
    """The codes of columns, or a UsageError, and then nothing has changed anywhere.

    `absent` has, for each column that some row lacks, a mask of these rows.
    """
    plan = _plan(table)
    return (None if absent else _one_row(plan, columns, interner)) or _columns(plan, columns, absent or {}, interner)


def ingesting(
    judge: Callable[[Table, ValueColumns, Masks | None, Interner], Encoded],
    table: Table,
    columns: ValueColumns,
    absent: Masks | None,
    interner: Interner,
) -> Generator[float, None, Encoded]:
    """`ingest` or `ingest_tuples` of many rows as work (broker/scheduling/driver.py), during which no code may be given
    back.

    What the slices do not like is judged as a whole. Texts of a batch that is refused then are nobody's.
    """
    rows, parts = _rows(_plan(table), columns), list[Encoded]()
    try:
        for start in range(0, rows, CODED_ROWS):
            some = slice(start, start + CODED_ROWS)
            masks = {name: mask[some] for name, mask in (absent or {}).items()}
            parts.append(judge(table, {name: taken(values, some) for name, values in columns.items()}, masks, interner))
            yield CODING_COST_S
    except UsageError:
        parts.clear()
    return joined(parts) if parts else judge(table, columns, absent, interner)


def ingest_tuples(table: Table, columns: ValueColumns, absent: Masks | None, interner: Interner) -> Encoded:
    """The codes of tuples that users publish to a stream, as `ingest` gives them. Their positions are 0 until the store
    appends them; a column that is not given is NULL."""
    plan = _plan(table)
    for name in columns:
        if plan.place(name)[0] == table.key:
            raise BadBatch(table.name, f"{POSITION.name} is assigned by the server; leave it out")
    encoded = _one_row(plan, columns, interner, keyed=False) if columns and not absent else None
    encoded = encoded or _columns(plan, columns, absent or {}, interner, keyed=False)
    cells = encoded.cells
    if len(columns) < plan.width - 1 or absent:
        lacking = cells == KEEP
        for position, column in enumerate(plan.columns[:-1]):
            if column.not_null and lacking[position].any():
                reason = "a tuple needs a value here (NOT NULL)"
                raise BadValue(table.name, int(lacking[position].argmax()), column.name, reason)
        cells[lacking] = NULL
    cells[table.key] = 0.0
    return Encoded(cells, partial=False)


def joined(batches: Sequence[Encoded]) -> Encoded:
    """Several batches of one table, one behind the other."""
    if len(batches) == 1:
        return batches[0]
    return Encoded(np.concatenate([batch.cells for batch in batches], axis=1), any(batch.partial for batch in batches))


def ingest_keys(table: Table, keys: Values, interner: Interner) -> Floats:
    """The codes of keys to delete. Never interns: an unseen text is UNKNOWN."""
    column = _plan(table).columns[table.key]
    try:
        if type(keys) is Mixed and len(keys.items) == 1 and column.type is not _TEXT:
            return np.array([encode_number(column, keys.items[0])])
        if column.type is _TEXT:
            words = words_of(column, keys)
            return words.spread(interner.find_all(words.texts))
        return encode_numbers(column, keys)
    except Refused as refused:
        reason = "NaN is not allowed in a key" if refused.reason is NAN else refused.reason
        if type(keys) is Mixed and condition_in(list(keys.items)) is not None:
            reason += KEYS_ONLY
        raise BadValue(table.name, refused.row, column.name, reason) from None


class _Plan:
    """What is known of a table: its columns (the key as NOT NULL) and where each spelling of a name leads."""

    __slots__ = ("columns", "places", "table", "width")

    def __init__(self, table: Table) -> None:
        self.table = table
        self.width = len(table.columns)
        self.columns = tuple(
            Column(column.name, column.type, column.not_null or position == table.key)
            for position, column in enumerate(table.columns)
        )
        self.places: dict[str, tuple[int, ColumnType]] = {}
        for position, column in enumerate(table.columns):
            for spelling in (column.name, column.name.lower(), column.name.upper()):
                self.places.setdefault(spelling, (position, column.type))

    def place(self, name: str) -> tuple[int, ColumnType]:
        """Position and type of a column in any spelling, or UnknownColumn."""
        place = self.places.get(name)
        if place is None:
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


def _one_row(plan: _Plan, row: dict[str, Any], interner: Interner, *, keyed: bool = True) -> Encoded | None:
    """The codes of one row of scalars; None for whatever needs a closer look."""
    codes = [KEEP] * plan.width
    fresh: list[tuple[int, str]] = []
    places = plan.places
    code: float | None
    for name, value in row.items():
        position, kind = places.get(name) or plan.place(name)
        if codes[position] is not KEEP:
            return None
        value_type = type(value)
        if value is None:
            if plan.columns[position].not_null:
                return None
            code = NULL
        elif kind is _TEXT:
            if value_type is not str:
                return None
            code = interner.find(value)
            if code is None:
                fresh.append((position, value))
                code = UNKNOWN  # until the whole row is judged
        elif value_type is float and kind is _REAL and -LARGEST <= value <= LARGEST:
            code = value + 0.0
        elif value_type is int and kind is not _TIMESTAMP and -EXACT <= value <= EXACT:
            code = float(value)
        elif is_values(value):
            return None
        else:
            try:
                code = encode_number(plan.columns[position], value)
            except Refused:
                return None
        codes[position] = code
    if keyed and codes[plan.table.key] is KEEP:
        return None
    if fresh:
        try:
            interner.check([text for _, text in fresh])
        except Refused:
            return None
        for position, text in fresh:
            codes[position] = interner.code(text)
    return Encoded(np.array(codes).reshape(plan.width, 1), len(row) < plan.width)


def _columns(plan: _Plan, columns: ValueColumns, absent: Masks, interner: Interner, *, keyed: bool = True) -> Encoded:
    """The codes of columns: judge them all, then intern new texts."""
    table, rows = plan.table, _rows(plan, columns)
    places: list[tuple[int, Any]] = []  # position, and which rows
    found: list[Floats | Words] = []
    refusals: list[tuple[int, int, str]] = []
    for name, values in columns.items():
        position, kind = plan.place(name)
        column = plan.columns[position]
        judged: Values = values if is_values(values) else Mixed((values,))
        which: Any = _ALL
        if name in absent:
            which = np.flatnonzero(~absent[name])
            judged = taken(judged, which)
        places.append((position, which))
        try:
            found.append(_judged(column, judged, interner) if kind is _TEXT else encode_numbers(column, judged))
        except Refused as refused:
            refusals.append((refused.row if which is _ALL else int(which[refused.row]), position, refused.reason))
    keyless = _keyless(plan, rows, places)
    if keyed and keyless is not None:
        refusals.append((keyless, table.key, "the primary key is missing"))
    if refusals:
        row, position, reason = min(refusals)
        raise BadValue(table.name, row, plan.columns[position].name, reason)
    partial = bool(absent) or len(columns) < plan.width
    cells = np.empty((plan.width, rows))
    if partial:
        cells.fill(KEEP)
    for (position, which), codes in zip(places, found, strict=True):
        cells[position, which] = codes.spread(interner.encode(codes.texts)) if isinstance(codes, Words) else codes
    return Encoded(cells, partial)


def _keyless(plan: _Plan, rows: int, places: list[tuple[int, Any]]) -> int | None:
    """The first row without a key, if there is one; BadBatch if a row gives a column twice."""
    given = dict(places)
    which = given.get(plan.table.key, ())
    if len(given) < len(places):  # a name is spelled in several ways
        times = np.zeros((plan.width, rows), np.int16)
        for position, there in places:
            times[position, there] += 1
        if times.max(initial=0) > 1:
            position, row = np.argwhere(times > 1)[0].tolist()
            raise BadBatch(plan.table.name, f"column {plan.columns[position].name} is given twice in row {row}")
        which = np.flatnonzero(times[plan.table.key])
    if which is _ALL or len(which) == rows:
        return None
    return int(np.setdiff1d(np.arange(rows), which)[0])


def _judged(column: Column, values: Values, interner: Interner) -> Floats | Words:
    """The codes of a TEXT column; if it has new texts, which are good, these."""
    words = words_of(column, values)
    codes = interner.known(words.texts)
    if codes is not None:
        return words.spread(codes)
    words.check(interner)
    return words


def _rows(plan: _Plan, columns: ValueColumns) -> int:
    """The number of rows, the same in all columns; else BadBatch."""
    lengths = list(map(row_count, columns.values()))
    if len(set(lengths)) > 1:
        (first, rows), *others = zip(columns, lengths, strict=True)
        name, length = next(other for other in others if other[1] != rows)
        raise BadBatch(plan.table.name, f"column {name} has {length} values, {first} has {rows}")
    return lengths[0] if lengths else 0
