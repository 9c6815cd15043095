"""Columns off the wire as the values users see."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from hullcast.broker.tables.schema import ColumnType
from hullcast.broker.tables.values import decode, decode_column
from hullcast.network.wire.columns import TextColumn, take

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from hullcast.broker.tables.interning import Interner
    from hullcast.network.wire.bodies import ChannelSpec
    from hullcast.network.wire.columns import Column, Columns

    Ints = npt.NDArray[np.int64]

_NO_TEXTS: Interner = None  # type: ignore[assignment]  # texts come with their words: nobody asks


def values_of(kind: str, column: Column) -> list[Any]:
    """The values of a column of that type; None is NULL."""
    if isinstance(column, TextColumn):
        return column.to_list()
    return decode_column(_type(kind), column, _NO_TEXTS)  # type: ignore[arg-type]  # codes are float64


def value_of(kind: str, code: float) -> Any:
    """The value of one code; not of a text."""
    return decode(_type(kind), code, _NO_TEXTS)


def entries(spec: ChannelSpec, columns: Columns, rows: Ints) -> list[tuple[Any, Any]]:
    """(key, what is shown) of some rows of a channel whose answers are collections."""
    if spec.kind == "DISTINCT":
        values = values_of(spec.y_type, take({"value": columns["value"]}, rows)["value"])
        return list(zip(values, values, strict=True))
    names = [f"key.{i}" for i in range(len(spec.key_types))]
    shown = [f"row.{i}" for i in range(len(spec.row_types))]
    some = take({name: columns[name] for name in (*names, *shown)}, rows)
    keys = [values_of(kind, some[name]) for kind, name in zip(spec.key_types, names, strict=True)]
    cells = [values_of(kind, some[name]) for kind, name in zip(spec.row_types, shown, strict=True)]
    return list(zip(keys[0] if len(keys) == 1 else zip(*keys, strict=True), zip(*cells, strict=True), strict=True))


@cache
def _type(kind: str) -> ColumnType:
    return ColumnType(kind)
