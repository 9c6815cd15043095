"""What a user's list, array, pandas or Arrow column holds, without importing pandas or pyarrow.

A value of theirs can only arrive if its module is loaded.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hullcast.network.wire.arrays import Booleans, objects

Nan = Literal["refuse", "null"]  # what becomes of a NaN in a batch
Plain = list[Any] | NDArray[Any]
Nulls = Booleans | None


def is_column(values: object) -> bool:
    """Whether this is a column of values (rather than one value)."""
    return (
        isinstance(values, list | tuple)
        or (isinstance(values, np.ndarray) and values.ndim > 0)
        or made_by("pandas", values, "Series", "Index", "Categorical")
        or made_by("pyarrow", values, "Array", "ChunkedArray")
    )


def made_by(module: str, value: object, *names: str) -> bool:
    """Whether `value` is an instance of one of a module's classes; False if that module is not loaded."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, tuple(getattr(loaded, name) for name in names))


def is_null(value: object) -> bool:
    """Whether a value means NULL. A float NaN does not: it is more often an accident than an intention."""
    if value is None:
        return True
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    return type(value).__name__ in ("NAType", "NaTType")  # pandas; NaT would pass for a datetime


def number_of(value: Decimal) -> int | float:
    """The number that a Decimal counts for: a whole one itself, any other the float64 nearest to it."""
    if not value.is_finite():
        return float("nan") if value.is_nan() else float(value)
    if abs(value.adjusted()) > _FAR:  # no float64 reaches so far: exact digits would only cost memory
        beyond = 10**_FAR if value > 0 else -(10**_FAR)
        return beyond if value.adjusted() > 0 else 0.0
    return int(value) if value == value.to_integral_value() else float(value)


_FAR = 400  # decimal places


def named_columns(rows: Any) -> list[tuple[Any, Any]] | None:
    """Names and columns of a table of Arrow or pandas (whose index is not looked at); None for anything else."""
    if made_by("pyarrow", rows, "Table", "RecordBatch"):
        return list(zip(rows.schema.names, rows.columns, strict=True))
    if made_by("pandas", rows, "DataFrame"):
        return [(name, rows.iloc[:, i]) for i, name in enumerate(rows.columns)]
    return None


def plain(values: Any) -> tuple[Plain, Nulls]:
    """A column as a list or a non-object array, with the rows that are NULL besides None and NaT."""
    if isinstance(values, list):
        return values, None
    if isinstance(values, np.ndarray) and values.dtype.kind == "V":  # records: their masks have fields
        return list(np.asarray(values)), None
    if isinstance(values, np.ma.MaskedArray):
        return np.asarray(values.data), np.ma.getmaskarray(values)
    if isinstance(values, np.ndarray):
        return (values.tolist() if values.dtype.kind in "OUT" else values), None
    if made_by("pyarrow", values, "Array", "ChunkedArray"):
        return _plain_arrow(values)
    if made_by("pandas", values, "Series", "Index", "Categorical"):
        return _plain_pandas(sys.modules["pandas"].Series(values))
    return list(values), None


def _plain_arrow(values: Any) -> tuple[Plain, Nulls]:
    types = sys.modules["pyarrow"].types
    if types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if types.is_integer(values.type) or types.is_floating(values.type):
        if not values.null_count:
            return np.asarray(values.to_numpy(zero_copy_only=False)), None
        null = np.asarray(values.is_null().to_numpy(zero_copy_only=False))
        # fill first: otherwise arrow hands out integers with nulls as floats, rounding beyond 2**53
        return np.asarray(values.fill_null(0).to_numpy(zero_copy_only=False)), null
    if types.is_timestamp(values.type) or types.is_date(values.type):
        return np.asarray(values.to_numpy(zero_copy_only=False)).astype(_arrow_unit(values.type)), None
    if types.is_string(values.type) or types.is_large_string(values.type):
        return values.to_numpy(zero_copy_only=False).tolist(), None
    return values.to_pylist(), None


def _arrow_unit(kind: Any) -> str:
    text = str(kind)
    if text.startswith("timestamp"):
        return f"datetime64[{kind.unit}]"
    return "datetime64[D]" if text.startswith("date32") else "datetime64[ms]"


def _plain_pandas(series: Any) -> tuple[Plain, Nulls]:
    pandas = sys.modules["pandas"]
    kind = series.dtype
    if isinstance(kind, np.dtype) and kind.kind != "O":
        return series.to_numpy(), None
    if isinstance(kind, pandas.DatetimeTZDtype):
        return series.dt.tz_convert(None).to_numpy(), None
    if isinstance(kind, pandas.ArrowDtype):
        return _plain_arrow(series.array.__arrow_array__())
    if isinstance(kind, pandas.CategoricalDtype):
        categories = np.array([*series.cat.categories.to_numpy(dtype=object), None], dtype=object)
        return categories[series.cat.codes.to_numpy()].tolist(), None  # code -1 is NULL: the last one
    null = series.isna().to_numpy()
    if getattr(kind, "kind", "O") in "iuf" and hasattr(kind, "numpy_dtype"):
        return series.to_numpy(dtype=kind.numpy_dtype, na_value=0), null
    return masked_list(series.to_numpy(dtype=object), null), None


def masked_list(array: NDArray[Any], null: Nulls) -> list[Any]:
    """The values of an array, None where they are NULL."""
    return with_holes(array.tolist(), null)


def with_holes(values: list[Any], null: Nulls) -> list[Any]:
    """The values, None where they are NULL."""
    if null is None or not null.any():
        return values
    boxed = objects(values)
    boxed[null] = None
    holed: list[Any] = boxed.tolist()
    return holed
