"""The door: all forms of a batch mean the same; a refusal names the first bad value and leaves no trace."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # no stubs installed
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.tables.ingest import KEEP, ingest
from hullcast.broker.tables.interning import UNKNOWN, Interner
from hullcast.broker.tables.schema import Column, ColumnType, Table
from hullcast.network.wire import bodies
from hullcast.network.wire import values as door
from hullcast.network.wire.containers import Nan
from hullcast.network.wire.errors import BadBatch, BadValue, UnknownColumn
from hullcast.network.wire.limits import WireLimits
from hullcast.network.wire.values import rows_to_columns
from tests.support.rows import coded, coded_keys, decoded, expected

STOCK = Table(
    "STOCK",
    (
        Column("SYMBOL", ColumnType.TEXT),
        Column("PER", ColumnType.REAL),
        Column("VOLUME", ColumnType.INTEGER, not_null=True),
        Column("AT", ColumnType.TIMESTAMP),
    ),
    0,
)
SYMBOLS = ["A", "B", "A"]
FULL = {
    "SYMBOL": SYMBOLS,
    "PER": [1.0, 2.5, 3.0],
    "VOLUME": [1, 2, 3],
    "AT": np.arange(3).astype("datetime64[us]"),
}
CODES = [[0.0, 1.0, 0.0], [1.0, 2.5, 3.0], [1.0, 2.0, 3.0], [0.0, 1.0, 2.0]]


@pytest.fixture(autouse=True, scope="module")
def arrays_of_few_rows() -> Iterator[None]:
    """Lists of more than 8 rows travel as arrays here, so that small examples have both forms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(door, "SHORT", 8)
        yield


def dicts(columns: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@pytest.mark.parametrize(
    "rows",
    [
        FULL,
        {name.lower(): np.array(values) for name, values in FULL.items()},
        dicts(FULL),
        tuple(dicts(FULL)),
        pa.table(FULL),
        pa.table(FULL).to_batches()[0],
        pd.DataFrame(FULL),
        pd.DataFrame(FULL, index=[9, 9, 9]),
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_every_form_of_a_batch_has_the_same_codes(rows: object) -> None:
    encoded = coded(STOCK, rows, Interner())
    assert encoded.cells.tolist() == CODES
    assert not encoded.partial


def test_what_is_not_given_is_kept() -> None:
    rows = [{"symbol": "A", "PER": 1}, {"SYMBOL": "B", "volume": 2}, {"Symbol": "C", "per": None}]
    encoded = coded(STOCK, rows, Interner())
    assert encoded.partial
    np.testing.assert_array_equal(encoded.cells[1], [1, KEEP, math.nan])
    assert encoded.cells[2].tolist() == [KEEP, 2, KEEP]
    columns = coded(STOCK, {"SYMBOL": ["A"], "PER": [2.0]}, Interner())
    assert columns.cells.tolist() == [[0], [2], [KEEP], [KEEP]]
    assert columns.partial


def test_a_dict_of_plain_values_is_one_row() -> None:
    interner = Interner()
    for rows in (
        {"SYMBOL": "A", "PER": 3},
        [{"SYMBOL": "A", "PER": 3}],
        {"PER": np.float64(3), "SYMBOL": "A"},
    ):
        assert coded(STOCK, rows, interner).cells.tolist() == [[0], [3], [KEEP], [KEEP]]


def test_an_empty_list_is_an_empty_batch() -> None:
    assert coded(STOCK, [], Interner()).cells.shape == (4, 0)
    assert coded(STOCK, {"SYMBOL": []}, Interner()).cells.shape == (4, 0)


@pytest.mark.parametrize(
    "rows",
    [
        {},
        [{}],
        [{"SYMBOL": "A"}, {}],
        [{"SYMBOL": "A"}, 3],
        "rows",
        None,
        {"SYMBOL": ["A"], "PER": [1.0, 2.0]},
        {"SYMBOL": ["A"], "PER": 1.0},
        {"SYMBOL": ["A"], "symbol": ["A"]},
        {"SYMBOL": "A", "symbol": "A"},
        [{"SYMBOL": "A", "symbol": "A"}, {"SYMBOL": "B"}],
        {"SYMBOL": np.array([["A"]])},
        pd.DataFrame([["A", "B"]], columns=["SYMBOL", "symbol"]),
    ],
    ids=repr,
)
def test_a_batch_of_wrong_form_is_refused(rows: object) -> None:
    interner = Interner()
    with pytest.raises(BadBatch):
        coded(STOCK, rows, interner)
    assert len(interner) == 0


@pytest.mark.parametrize("rows", [{"SYMBOL": "A", "X": 1}, {"SYMBOL": ["A"], 3: [1]}, [{"X": 1}, {"SYMBOL": "A"}]])
def test_an_unknown_column_is_named(rows: object) -> None:
    with pytest.raises(UnknownColumn):
        coded(STOCK, rows, Interner())


def test_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "DEFAULT", WireLimits(rows=2))
    for rows in (FULL, dicts(FULL)):
        with pytest.raises(BadBatch, match="at most 2"):
            coded(STOCK, rows, Interner())


@pytest.mark.parametrize(
    ("rows", "row", "column"),
    [
        ({"PER": 1.0}, 0, "SYMBOL"),
        ({"PER": [1.0]}, 0, "SYMBOL"),
        ([{"PER": 1.0}] * 20, 0, "SYMBOL"),
        ({"SYMBOL": None}, 0, "SYMBOL"),
        ({"VOLUME": 1.5, "PER": math.nan, "SYMBOL": "A"}, 0, "PER"),
        ([{"SYMBOL": "A"}, {"SYMBOL": "B", "VOLUME": None}, {"SYMBOL": "C", "PER": "x"}], 1, "VOLUME"),
        ([{"SYMBOL": "A"}, {"PER": 1}], 1, "SYMBOL"),
        ({"SYMBOL": ["A", "B", "\0"], "VOLUME": [1, True, 1], "PER": [1.0, math.inf, 1.0]}, 1, "PER"),
    ],
)
def test_the_first_bad_value_in_row_order_is_named(rows: object, row: int, column: str) -> None:
    interner = Interner()
    with pytest.raises(BadValue) as caught:
        coded(STOCK, rows, interner)
    assert (caught.value.row, caught.value.column) == (row, column)
    assert len(interner) == 0


# -- the door agrees with an obvious definition, whatever the form ---------------------------------------------

MOMENT = datetime(2024, 5, 1, 12, 30, tzinfo=UTC)
likely: dict[str, list[Any]] = {
    "SYMBOL": ["A", "B", "C"],
    "PER": [1, 2.5, -0.0, None, 2**53 + 1],
    "VOLUME": [1, 2.0, -(2**53)],
    "AT": [None, MOMENT, MOMENT.replace(tzinfo=None), MOMENT.astimezone(timezone(timedelta(hours=2))), "2026-01-01"],
}
odd: list[Any] = [None, 1, 1.5, 2**53 + 1, 2**80, math.nan, math.inf, True, "A", "\0", "x", "2026-01-01", MOMENT, b"x"]


@st.composite
def batches(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows; most are good, some have a value that does not fit, and all may lack a column."""
    size = draw(st.sampled_from([1, 2, 3, 12]))  # more than SHORT travel as arrays
    ragged, wrong = draw(st.booleans()), draw(st.booleans())
    names = draw(st.sets(st.sampled_from([*likely, "symbol", "per"]), min_size=1))
    names -= {name.lower() for name in names if name.isupper()}
    rows = []
    for _ in range(size):
        here = sorted(names - draw(st.sets(st.sampled_from(sorted(names)), max_size=1)) if ragged else names)
        rows.append({name: draw(st.sampled_from(likely[name.upper()])) for name in here or sorted(names)})
    if wrong:
        row = draw(st.sampled_from(rows))
        row[draw(st.sampled_from(sorted(row)))] = draw(st.sampled_from(odd))
    return rows


def forms(rows: list[dict[str, Any]]) -> Iterator[tuple[str, object]]:
    """The same rows in every form that holds them."""
    yield "rows", rows
    yield "tuple of rows", tuple(rows)
    if len(rows) == 1:
        yield "one row", rows[0]
    if len(set(map(frozenset, rows))) > 1:
        return
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    yield "columns", columns
    yield "tuples", {name: tuple(values) for name, values in columns.items()}
    yield "objects", {name: np.array([*values, None], object)[:-1] for name, values in columns.items()}
    yield "arrays", {name: _array(values) for name, values in columns.items()}
    yield "frame", pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
    if all(len(set(map(type, values)) - {type(None)}) <= 1 for values in columns.values()):  # or Arrow converts some
        with suppress(OverflowError):  # it has no type for large integers
            yield "arrow", pa.table(columns)


def _array(values: list[Any]) -> object:
    """An array of the type that NumPy takes, if the values are all of one."""
    if set(map(type, values)) in ({int}, {float}, {str}, {bool}) and not any("\0" in str(value) for value in values):
        array = np.array(values)
        return array if array.dtype.kind in "ifUb" else values
    return values


def outcome(rows: object, nan: Nan, *, travelling: bool) -> tuple[object, str]:
    """The rows that a table holds, or (row, column), and the words, of the refusal."""
    interner = Interner()
    try:
        columns, absent = rows_to_columns(rows, "STOCK", nan)
        if travelling:
            body = bodies.decode(bodies.encode(bodies.Publish("STOCK", columns, absent, bytes(16), 1)))
            assert isinstance(body, bodies.Publish)
            columns, absent = body.columns, body.absent
        return decoded(STOCK, ingest(STOCK, columns, absent, interner), interner), ""
    except BadValue as error:
        assert len(interner) == 0, "a refusal leaves no trace"
        return (error.row, error.column), str(error)


@given(batches(), st.sampled_from(["refuse", "null"]))
def test_every_form_has_the_outcome_that_the_definition_has(rows: list[dict[str, Any]], nan: Nan) -> None:
    wanted = expected(STOCK, rows, nan_is_null=nan == "null")
    words = set()
    for form, given_rows in forms(rows):
        for travelling in (False, True):
            found, message = outcome(given_rows, nan, travelling=travelling)
            if form == "frame" and any(value != value for row in rows for value in row.values()):
                continue  # pandas takes NaN for NULL in columns of objects
            assert found == wanted, (form, travelling)
            words.add(message)
    assert len(words) == 1


def test_keys_to_delete_are_looked_up_and_never_interned() -> None:
    interner = Interner()
    interner.encode(["A", "B"])
    for keys in (["B", "Z"], np.array(["B", "Z"]), pa.array(["B", "Z"]), pd.Series(["B", "Z"]), ("B", "Z")):
        assert coded_keys(STOCK, keys, interner).tolist() == [1, UNKNOWN]
    assert coded_keys(STOCK, "A", interner).tolist() == [0]
    assert coded_keys(STOCK, "Z", interner).tolist() == [UNKNOWN]
    assert coded_keys(STOCK, [], interner).tolist() == []
    assert len(interner) == 2
    numbered = Table("N", (Column("K", ColumnType.INTEGER),), 0)
    assert coded_keys(numbered, 3, interner).tolist() == [3]
    assert coded_keys(numbered, np.array([3, -1]), interner).tolist() == [3, -1]


@pytest.mark.parametrize("keys", [None, ["A", None], 3, ["A", 3]])
def test_a_key_that_cannot_be_one_is_refused(keys: object) -> None:
    with pytest.raises(BadValue):
        coded_keys(STOCK, keys, Interner())


def test_nan_as_a_key_is_refused_without_the_advice_for_rows() -> None:
    table = Table("N", (Column("K", ColumnType.REAL),), 0)
    for keys in (math.nan, [1.0, math.nan], np.array([math.nan] * 9)):
        with pytest.raises(BadValue, match="NaN is not allowed in a key; nothing"):
            coded_keys(table, keys, Interner())


@pytest.mark.parametrize("keys", [{"A": 1}, {"A"}, pd.DataFrame({"A": [1]}), np.array([["A"]])])
def test_keys_of_wrong_form_are_refused(keys: object) -> None:
    with pytest.raises(BadBatch):
        coded_keys(STOCK, keys, Interner())
