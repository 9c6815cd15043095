"""Codes of values: round trips, refusals, and agreement of the column way with the definition."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # no stubs installed
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hullcast.broker.tables.interning import Interner
from hullcast.broker.tables.schema import Column, ColumnType, Table
from hullcast.broker.tables.values import NULL, Refused, decode, decode_column, encode_number, take_text
from hullcast.network.wire.errors import BadValue
from hullcast.network.wire.values import scalars
from tests.support.rows import coded

REAL = Column("R", ColumnType.REAL)
INTEGER = Column("I", ColumnType.INTEGER)
TIME = Column("T", ColumnType.TIMESTAMP)
TEXT = Column("S", ColumnType.TEXT)
COLUMNS = (Column("K", ColumnType.INTEGER), REAL, INTEGER, TIME, TEXT)
TABLE = Table("T", COLUMNS, 0)
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def encode(column: Column, value: object, interner: Interner) -> float:
    """The definition: the code of one value, as it comes through the door."""
    (scalar,) = scalars([value])
    if column.type is not ColumnType.TEXT:
        return encode_number(column, scalar)
    text = take_text(column, scalar)
    return NULL if text is None else interner.code(text)


def encode_column(column: Column, values: Any, interner: Interner, table: Table = TABLE) -> NDArray[np.float64]:
    """The codes of a column, in a table of it and a key."""
    if column == table.key_column:
        cells = coded(table, {column.name: values}, interner).cells
    else:
        alone = Table(table.name, (column, table.key_column), 1)
        cells = coded(alone, {column.name: values, "K": list(range(len(values)))}, interner).cells
    codes: NDArray[np.float64] = cells[0]
    return codes


instants = st.datetimes(datetime(1690, 1, 1), datetime(2250, 1, 1)).map(lambda d: d.replace(tzinfo=UTC))
good = {
    ColumnType.REAL: st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5),
    ColumnType.INTEGER: st.integers(-(2**53), 2**53),
    ColumnType.TIMESTAMP: instants,
    ColumnType.TEXT: st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
}
ODD_NUMBERS = [True, 1, 1.5, 2.0, -0.0, math.nan, math.inf, 2**53, 2**53 + 1, -(2**53) - 1, 10**400]
ODD_SCALARS = [
    np.float32(1.5),
    np.int64(2**53 + 1),
    np.uint8(3),
    np.bool_(True),
    np.str_("y"),
    np.timedelta64(5, "s"),
    np.timedelta64("NaT"),
    np.complex128(1),
    np.void(b"x"),
    pd.Timestamp(MOMENT),
    pd.DatetimeIndex([MOMENT]),
]
ODD_INSTANTS = [MOMENT, MOMENT.replace(tzinfo=None), date(2026, 1, 1), datetime(9999, 12, 31), "2026-01-01"]
ODD_DATETIME64 = [np.datetime64("NaT"), np.datetime64("2026-01"), np.datetime64(2**62, "s")]
ODD_TEXTS = ["x", b"x", "a\0b", "\ud800", "é" * 40000, [1]]
NULLS = [None, pd.NaT, pd.NA]
odd: st.SearchStrategy[Any] = st.sampled_from(
    [*ODD_NUMBERS, *ODD_SCALARS, *ODD_INSTANTS, *ODD_DATETIME64, *ODD_TEXTS, *NULLS]
)


@pytest.mark.parametrize("column", COLUMNS[1:], ids=lambda column: str(column.type.value))
@given(data=st.data())
def test_a_good_value_comes_back_from_its_code(column: Column, data: st.DataObject) -> None:
    interner = Interner()
    values = data.draw(st.lists(st.none() | good[column.type], max_size=6))
    codes = encode_column(column, values, interner)
    assert decode_column(column.type, codes, interner) == values
    assert [decode(column.type, encode(column, value, interner), interner) for value in values] == values


@pytest.mark.parametrize("column", COLUMNS[1:], ids=lambda column: str(column.type.value))
@pytest.mark.parametrize("not_null", [False, True])
@given(values=st.lists(odd, max_size=4))
def test_a_column_is_judged_as_its_values_are_one_by_one(column: Column, not_null: bool, values: list[Any]) -> None:
    column = Column(column.name, column.type, not_null)
    expected: list[float] = []
    alone, together = Interner(), Interner()
    boxed = np.empty(len(values), dtype=object)
    boxed[:] = values
    for form in (values, tuple(values), boxed):
        try:
            expected = [encode(column, value, alone) for value in values]
        except Refused:
            with pytest.raises(BadValue) as caught:
                encode_column(column, form, together)
            assert len(together) == 0
            with pytest.raises(Refused) as refused:
                encode(column, values[caught.value.row], alone)
            assert refused.value.reason == caught.value.reason
            for value in values[: caught.value.row]:
                encode(column, value, alone)
        else:
            np.testing.assert_array_equal(encode_column(column, form, together), expected)


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [
        (REAL, 3, 3.0),
        (REAL, 2**53 + 1, 2.0**53),
        (REAL, np.float32(0.5), 0.5),
        (INTEGER, 2.0, 2.0),
        (INTEGER, np.uint64(7), 7.0),
        (TIME, datetime(1970, 1, 1), 0.0),
        (TIME, datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0.0),
        (TIME, date(1970, 1, 2), 86_400e6),
        (TIME, "1970-01-01T00:00:01Z", 1e6),
        (TIME, np.datetime64("1970-02", "M"), 31 * 86_400e6),
        (TIME, np.datetime64(1_999, "ns"), 1.0),
        (TIME, pd.Timestamp("1970-01-01T00:00:00.000001999", tz="UTC"), 1.0),
    ],
)
def test_values_have_the_codes_written_here(column: Column, value: object, code: float) -> None:
    assert encode(column, value, Interner()) == code


def test_minus_zero_has_the_code_of_zero() -> None:
    for column in (REAL, INTEGER):
        for form in ([-0.0], np.array([-0.0])):
            assert math.copysign(1, encode_column(column, form, Interner())[0]) == 1
        assert math.copysign(1, encode(column, -0.0, Interner())) == 1


@pytest.mark.parametrize(
    ("column", "array", "row"),
    [
        (REAL, np.array([1.0, math.nan]), 1),
        (REAL, np.array([True]), 0),
        (REAL, np.array(["1"]), 0),
        (REAL, np.array([2**60], dtype="datetime64[us]"), 0),
        (REAL, np.array([0], dtype="datetime64[ns]"), 0),
        (INTEGER, np.array(["NaT", 9_000], dtype="datetime64[Y]"), 1),
        (INTEGER, np.array([5], dtype="timedelta64[ns]"), 0),
        (TIME, np.array([5], dtype="timedelta64[ns]"), 0),
        (TEXT, np.array([2**60], dtype="datetime64[us]"), 0),
        (REAL, np.ma.masked_array(np.zeros(1, [("a", "i4")]), [True]), 0),
        (INTEGER, np.array([1, 2**53 + 1]), 1),
        (INTEGER, np.array([1, 2**63 + 1], dtype=np.uint64), 1),
        (INTEGER, np.array([1.0, 1.5]), 1),
        (INTEGER, pa.array([None, 2**53 + 1]), 1),
        (INTEGER, pd.Series([None, 2**53 + 1], dtype="Int64"), 1),
        (TIME, np.array([0, 2**62], dtype="datetime64[s]"), 1),
        (TIME, np.array([0, 1000], dtype="datetime64[Y]"), 1),
        (TIME, np.array([1.0]), 0),
        (TEXT, np.array([1.0]), 0),
        (TEXT, pa.array(["a", "a\0"]), 1),
        (REAL, pd.Series([1.0, math.nan]), 1),
        (COLUMNS[0], [1, None], 1),
    ],
)
def test_arrays_are_refused_with_the_first_bad_row(column: Column, array: object, row: int) -> None:
    with pytest.raises(BadValue) as caught:
        encode_column(column, array, Interner())
    assert (caught.value.row, caught.value.column) == (row, column.name)


def test_a_nan_is_refused_with_the_hint_how_to_say_null() -> None:
    with pytest.raises(BadValue, match="stores NaN as NULL"):
        encode_column(REAL, np.array([math.nan]), Interner())


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        (REAL, np.ma.masked_array([1.0, 2.0], [False, True]), [1.0, None]),
        (REAL, pa.chunked_array([[1.5], [None]]), [1.5, None]),
        (REAL, pd.Series([1.5, None], dtype="Float64"), [1.5, None]),
        (REAL, pd.Series([1.5, None, math.nan], dtype=object), [1.5, None, None]),
        (REAL, pd.Series([1, None], dtype="int32[pyarrow]"), [1.0, None]),
        (INTEGER, np.array([1, 2], dtype=">i4"), [1, 2]),
        (INTEGER, pd.Series([2, None], dtype="Int64"), [2, None]),
        (INTEGER, pd.Series([2, None], dtype="category"), [2, None]),
        (TEXT, np.array(["a", "b"]), ["a", "b"]),
        (TEXT, pd.Series(["a", None]), ["a", None]),
        (TEXT, pd.Series(["a", None], dtype="string"), ["a", None]),
        (TEXT, pd.Series(["a", None, "a"], dtype="category"), ["a", None, "a"]),
        (TEXT, pd.Series(["a", None], dtype="string[pyarrow]"), ["a", None]),
        (TEXT, pa.array(["a", None]), ["a", None]),
        (TEXT, pa.array(["a", None]).dictionary_encode(), ["a", None]),
        (TEXT, pa.array([None, None]), [None, None]),
        (TIME, np.array([MOMENT.replace(tzinfo=None), "NaT"], dtype="datetime64[us]"), [MOMENT, None]),
        (TIME, np.array([MOMENT.replace(tzinfo=None), "NaT"], dtype=">M8[us]"), [MOMENT, None]),
        (TIME, pd.Series([MOMENT, None]), [MOMENT, None]),
        (TIME, pd.Series([MOMENT, None]).dt.tz_convert("Asia/Tokyo"), [MOMENT, None]),
        (TIME, pd.Series([MOMENT, None], dtype=object), [MOMENT, None]),
        (TIME, pa.array([MOMENT, None]), [MOMENT, None]),
        (TIME, pa.array([date(2026, 1, 2), None]), [datetime(2026, 1, 2, tzinfo=UTC), None]),
        (TIME, [MOMENT.astimezone(timezone(timedelta(hours=-5))), None], [MOMENT, None]),
        (TIME, np.array([MOMENT.isoformat()]), [MOMENT]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_columns_of_other_libraries_are_understood(column: Column, values: object, expected: list[object]) -> None:
    interner = Interner()
    assert decode_column(column.type, encode_column(column, values, interner), interner) == expected
