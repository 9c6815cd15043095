"""Rows through the one door, and what must come out of it: slow and obvious."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hullcast.broker.tables.ingest import KEEP, Encoded, ingest, ingest_keys
from hullcast.broker.tables.interning import Interner
from hullcast.broker.tables.schema import Column, ColumnType, Table
from hullcast.broker.tables.values import decode
from hullcast.network.wire.containers import Nan
from hullcast.network.wire.values import keys_to_column, rows_to_columns

KEPT = "<kept>"  # a value that a row does not give


def coded(table: Table, rows: object, interner: Interner, nan: Nan = "refuse") -> Encoded:
    """The codes of rows in any form that users may hold."""
    return ingest(table, *rows_to_columns(rows, table.name, nan), interner)


def coded_keys(table: Table, keys: object, interner: Interner) -> NDArray[np.float64]:
    """The codes of keys in any form that users may hold."""
    return ingest_keys(table, keys_to_column(keys, table.name), interner)


def decoded(table: Table, encoded: Encoded, interner: Interner) -> list[dict[str, Any]]:
    """The rows of codes."""
    return [
        {
            column.name: KEPT if code == KEEP else decode(column.type, code, interner)
            for column, code in zip(table.columns, codes, strict=True)
        }
        for codes in encoded.cells.T.tolist()
    ]


def expected(table: Table, rows: list[dict[str, Any]], *, nan_is_null: bool = False) -> list[dict[str, Any]] | Any:
    """What a table holds of rows of plain values: the rows, complete; or (row, column) of the first bad value."""
    found = []
    for number, row in enumerate(rows):
        given = {name.upper(): value for name, value in row.items()}
        whole = {}
        for position, column in enumerate(table.columns):
            value = given.get(column.name, KEPT)
            if nan_is_null and isinstance(value, float) and math.isnan(value):
                value = None
            required = column.not_null or position == table.key
            if (value is None and required) or (value is KEPT and position == table.key):
                return number, column.name
            whole[column.name] = value if value is KEPT or value is None else _held(column, value)
            if whole[column.name] is _BAD:
                return number, column.name
        found.append(whole)
    return found


_BAD = object()


def _held(column: Column, value: Any) -> Any:
    """A value as its column holds it, or _BAD."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match column.type:
        case ColumnType.REAL:
            return float(value) if is_number and abs(value) < 2**1023 else _BAD  # no NaN either
        case ColumnType.INTEGER:
            return int(value) if is_number and abs(value) <= 2**53 and value == int(value) else _BAD
        case ColumnType.TEXT:
            return value if isinstance(value, str) and "\0" not in value and len(value) < 100 else _BAD
        case ColumnType.TIMESTAMP:
            if isinstance(value, str):
                try:
                    value = datetime.fromisoformat(value)
                except ValueError:
                    return _BAD
            if not isinstance(value, datetime) or not 1690 < value.year < 2250:
                return _BAD
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
