"""Columns: rows are taken and joined as rows are, and a batch that travelled is the batch that was given."""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, cast

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # no stubs installed
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.engine.served import ServedEngine
from hullcast.network.wire import bodies
from hullcast.network.wire import values as wire_values
from hullcast.network.wire.columns import Column, Columns, TextColumn, concatenate, length, size_bytes, take
from hullcast.network.wire.containers import Nan
from hullcast.network.wire.errors import BadBatch, BadSetting, BadValue, HullcastError
from hullcast.network.wire.packing import foreign
from hullcast.network.wire.values import (
    from_user,
    keys_to_column,
    parameter_columns,
    rows_of,
    rows_to_columns,
    scalars,
    table_of,
    to_list,
)
from tests.support.wire import arrays, tables

texts = st.lists(st.none() | st.sampled_from(["a", "b", "ab", "", "ä"]), max_size=30)


@pytest.fixture(autouse=True, scope="module")
def arrays_of_few_rows() -> Iterator[None]:
    """Lists of more than 8 rows travel as arrays here, so that small examples have both forms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_values, "SHORT", 8)
        yield


# -- text columns and whole batches ------------------------------------------------------------------------


@given(texts, st.data())
def test_rows_taken_from_texts_are_those_rows(found: list[str | None], data: st.DataObject) -> None:
    rows = np.array(data.draw(st.lists(st.integers(0, len(found) - 1)) if found else st.just([])), np.int64)
    mask = np.array([data.draw(st.booleans()) for _ in found], np.bool_)
    column = TextColumn.from_texts(found)
    assert column.to_list() == found
    assert column.take(rows).to_list() == [found[row] for row in rows]
    assert column.take(mask).to_list() == [text for text, taken in zip(found, mask, strict=True) if taken]


@pytest.mark.parametrize("rows", [1, 30])
def test_words_that_most_rows_left_behind_are_dropped(rows: int) -> None:
    column = TextColumn.from_texts([None, *(f"word {i}" for i in range(100))])
    taken = column.take(np.arange(rows + 1))
    assert len(taken.words) == rows
    assert taken.to_list() == column.to_list()[: rows + 1]
    assert len(column.take(np.arange(60, 101)).words) == 41
    assert column.take(np.arange(80)).words is column.words


@given(st.lists(st.lists(st.tuples(st.integers(-3, 3), st.none() | st.sampled_from("abc"))), min_size=1, max_size=4))
def test_joined_batches_have_all_rows_in_order(batches: list[list[tuple[int, str | None]]]) -> None:
    def columns(rows: list[tuple[int, str | None]]) -> Columns:
        return {"n": np.array([n for n, _ in rows], np.int64), "t": TextColumn.from_texts([t for _, t in rows])}

    joined = concatenate([columns(batch) for batch in batches])
    expected = columns([row for batch in batches for row in batch])
    assert length(joined) == length(expected)
    assert joined["t"] == expected["t"]
    assert np.asarray(joined["n"]).tolist() == np.asarray(expected["n"]).tolist()
    assert size_bytes(joined) >= 8 * length(joined)


@given(tables(arrays), st.data())
def test_taking_rows_takes_them_of_every_column(columns: Columns, data: st.DataObject) -> None:
    mask = np.array([data.draw(st.booleans()) for _ in range(length(columns))], np.bool_)
    for name, column in take(columns, mask).items():
        assert repr(_listed(column)) == repr(
            [value for value, t in zip(_listed(columns[name]), mask, strict=True) if t]
        )


def _listed(column: Column) -> list[Any]:
    return to_list(column)


def test_nothing_joined_is_nothing() -> None:
    assert concatenate([]) == {}
    assert length({}) == 0


# -- what users give ---------------------------------------------------------------------------------------

TABLES = {
    "whole": "CREATE TABLE whole (k TEXT PRIMARY KEY, i INTEGER, r REAL NOT NULL, t TIMESTAMP, x TEXT)",
    "bare": "CREATE TABLE bare (k INTEGER PRIMARY KEY, r REAL)",
}
INSTANT = datetime(2024, 5, 1, 12, 30, 0, 123456)


class Colour(enum.IntEnum):
    """A number that is more than a number."""

    RED = 3


def outcome(table: str, rows: Any, travelling: bool, nan: Nan = "refuse") -> object:
    """All rows after an upsert, or the refusal."""
    engine = ServedEngine()
    for sql in TABLES.values():
        engine.execute(sql)
    engine.upsert("whole", {"k": ["a", "b"], "r": [1.0, 2.0], "x": ["old", None]})
    try:
        if travelling:
            body = bodies.Publish(table, *rows_to_columns(rows, table, nan), bytes(16), 1)
            received = bodies.decode(bodies.encode(body))
            assert isinstance(received, bodies.Publish)
            batch = engine.upsert_columns(received.table, received.columns, received.absent)
        else:
            batch = engine.upsert(table, rows, nan=nan)
    except HullcastError as error:
        return type(error), error.args
    return batch.first_seq, batch.last_seq, engine.query("SELECT * FROM whole"), engine.query("SELECT * FROM bare")


def same(table: str, rows: Any) -> object:
    """The outcome, which must be the same whether the rows travelled or not."""
    direct = outcome(table, rows, travelling=False)
    assert outcome(table, rows, travelling=True) == direct
    return direct


cells = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-4, 4),
    st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63, 2**64, 2**1023, 2**1024, 10**400]),
    st.sampled_from([0.0, -0.0, 0.5, 1e300, math.inf, math.nan]),
    st.sampled_from(["a", "b", "", "2024-05-01", "nul\0", "lone \ud800", "x" * 70_000]),
    st.sampled_from(
        [
            INSTANT,
            INSTANT.replace(tzinfo=timezone(timedelta(hours=2))),
            datetime(9999, 12, 31),
            datetime(1, 1, 1),
            datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        ]
    ),
    st.sampled_from([b"bytes", timedelta(1), 1j, [1], {"a": 1}, object]),
)
spellings = st.sampled_from(["k", "K", "i", "r", "t", "x", "unknown"])
row_lists = st.lists(st.dictionaries(spellings, cells, max_size=5), max_size=12)
likely = st.fixed_dictionaries(
    {"k": st.sampled_from("abc"), "r": st.floats(-3, 3) | st.integers(-3, 3)},
    optional={
        "i": st.none() | st.integers(-3, 3),
        "t": st.none() | st.just(INSTANT) | st.just("2024-05-01"),
        "x": st.none() | st.sampled_from(["x", "y"]),
    },
)


@pytest.mark.parametrize("hours", [14, -14])
def test_an_instant_whose_zone_puts_it_beyond_the_years_of_a_datetime_is_refused_by_its_row(hours: int) -> None:
    moment = datetime(1, 1, 1) if hours > 0 else datetime(9999, 12, 31, 23)
    rows = [
        {"k": "a", "r": 1, "t": None},
        {"k": "b", "r": 1, "t": moment.replace(tzinfo=timezone(timedelta(hours=hours)))},
    ]
    kind, arguments = cast("Any", same("whole", rows))
    assert kind is BadValue
    assert arguments[1:3] == (1, "t")


@given(row_lists | st.lists(likely, max_size=12), st.sampled_from(["whole", "bare", "nowhere"]))
def test_rows_that_travelled_have_the_same_effect(rows: list[dict[str, Any]], table: str) -> None:
    if table != "nowhere" or any(rows):
        same(table, rows)


@given(st.dictionaries(spellings, st.lists(cells, min_size=10, max_size=10) | st.lists(cells, max_size=3), max_size=4))
def test_columns_that_travelled_have_the_same_effect(columns: dict[str, list[Any]]) -> None:
    same("whole", columns)


@given(st.dictionaries(spellings, cells, max_size=5))
def test_a_row_that_travelled_has_the_same_effect(row: dict[str, Any]) -> None:
    same("whole", row)


@given(
    st.sampled_from(["i", "r", "t", "x"]),
    st.sampled_from(
        [st.floats(), st.integers(-(2**63), 2**63 - 1), st.booleans(), st.just(INSTANT), st.text(max_size=2)]
    ),
    st.booleans(),
    st.data(),
)
def test_long_columns_of_one_type_have_the_same_effect(
    column: str, kind: st.SearchStrategy[Any], nulls: bool, data: st.DataObject
) -> None:
    values = data.draw(st.lists(kind | st.none() if nulls else kind, min_size=9, max_size=12))
    batch: dict[str, Any] = {"k": [f"key {i}" for i in range(len(values))], "r": [1.0] * len(values)}
    same("whole", batch | {column: values})
    rows = [
        dict(zip(batch, row, strict=True)) | {column: value}
        for row, value in zip(zip(*batch.values(), strict=True), values, strict=True)
    ]
    same("whole", rows)


NUMPY_COLUMNS = [
    np.array([1.5, -2.0]),
    np.array([1.5, np.nan]),
    np.array([1.5, 2.0], np.float32),
    np.array([1, 2], np.int8),
    np.array([1, 2**53 + 1]),
    np.array([1, 2**63], np.uint64),
    np.array([True, False]),
    np.array(["a", "b"]),
    np.array(["a", None], object),
    np.array([b"a", b"b"]),
    np.array([1j, 2j]),
    np.ma.MaskedArray([1.0, 2.0], [True, False]),
    np.ma.MaskedArray([1, 2], [True, False]),
    np.ma.MaskedArray([True, False], [True, False]),
    np.array(["2024-05-01", "NaT"], "M8[D]"),
    np.array(["2024-05", "1969-12"], "M8[M]"),
    np.array(["1969-12-31T23:59:59.123456789", "NaT"], "M8[ns]"),
    np.array(["2024-05-01T12:30", "1000-01-01"], "M8[s]"),
    np.array([2**62, -(2**62)], "M8[D]"),
    np.array([2**62, -(2**62)], "M8[us]"),
    np.array([1, "NaT"], "m8[ns]"),
    np.array([["a"], ["b"]]),
    np.array([]),
]
OTHER_COLUMNS = [
    ("a", "b"),
    (Colour.RED, 1),
    [np.float64(1.5), 2],
    [np.datetime64("2024-05-01"), None],
    [date(2024, 5, 1), None],
    [pd.Timestamp("2024-05-01T12:30:00.123456789"), pd.NaT],
    [pd.NA, 1],
    pd.Series([1, None], dtype="Int64"),
    pd.Series(["a", None], dtype="string"),
    pd.Series(["a", "b"], dtype="category"),
    pd.Series(pd.to_datetime(["2024-05-01", None])),
    pd.Series(pd.to_datetime(["2024-05-01", None])).dt.tz_localize("Europe/Zurich"),
    pd.Index([1, 2]),
    pa.array([1, None]),
    pa.array([1.5, None]),
    pa.array(["a", None]),
    pa.array(["a", "a"]).dictionary_encode(),
    pa.array([INSTANT, None], pa.timestamp("ns")),
    pa.array([date(2024, 5, 1), None]),
    pa.chunked_array([[1], [2]]),
    pa.array([Decimal(1), None]),
]


EVERY_COLUMN = [*NUMPY_COLUMNS, *OTHER_COLUMNS]


@pytest.mark.parametrize("column", ["i", "r", "t", "x", "k"])
@pytest.mark.parametrize("values", EVERY_COLUMN, ids=[f"{i}-{type(v).__name__}" for i, v in enumerate(EVERY_COLUMN)])
def test_arrays_of_every_kind_have_the_same_effect(values: Any, column: str) -> None:
    direct = same("whole", {"k": ["a", "b"], "r": [1.0, 2.0]} | {column: values})
    assert isinstance(direct, tuple)


def test_tables_of_others_have_the_same_effect() -> None:
    frame = pd.DataFrame({"k": ["a", "c"], "r": [1.0, 2.0], "t": pd.to_datetime(["2024-05-01", None])})
    assert isinstance(same("whole", frame), tuple)
    assert isinstance(same("whole", pa.Table.from_pandas(frame)), tuple)
    assert isinstance(same("whole", pa.RecordBatch.from_pandas(frame)), tuple)
    twice = pd.concat([frame, frame[["r"]]], axis=1)
    assert same("whole", twice) == (BadBatch, ("whole", "column r is given twice"))


@pytest.mark.parametrize("rows", [5, "text", None, {}, {"k": "a", "r": [1]}, {"r": [1], "k": "a"}, [5], [{}], iter([])])
def test_what_is_no_batch_is_refused_at_once_in_the_same_words(rows: Any) -> None:
    same("whole", rows)


def test_rows_of_other_mappings_and_rows_without_a_key_have_the_same_effect() -> None:
    same("whole", [pd.Series({"k": "a", "r": 1.0}).to_dict(), {"k": "b", "r": 2}])
    same("whole", [{"r": 1.0}] * 20)
    same("whole", [{"k": "a", "K": "b", "r": 1.0}] * 20)
    same("whole", [{"k": f"{i}", "r": 1.0, "nope": i} for i in range(20)])
    same("whole", [])


@pytest.mark.parametrize(
    "keys", ["a", 5, None, ["a", "zzz"], [1, "a"], ("a",), np.array(["a"]), {"a"}, {"k": "a"}, 1j, []]
)
def test_keys_that_travelled_delete_the_same_rows(keys: Any) -> None:
    found = []
    for travelling in (False, True):
        engine = ServedEngine()
        engine.execute(TABLES["whole"])
        engine.upsert("whole", {"k": ["a", "b"], "r": [1.0, 2.0]})
        try:
            if not travelling:
                engine.delete("whole", keys)
            else:
                sent = bodies.encode(bodies.Delete("whole", keys_to_column(keys, "whole"), bytes(16), 1))
                body = bodies.decode(sent)
                assert isinstance(body, bodies.Delete)
                engine.delete_column("whole", body.keys)
            found.append((engine.seq, engine.query("SELECT k FROM whole")))
        except HullcastError as error:
            found.append((type(error), error.args))  # type: ignore[arg-type]  # either outcome
    assert found[0] == found[1]


# -- parameters and answers --------------------------------------------------------------------------------


DECIMALS = [
    "1",
    "-7",
    "0.1",
    "1.5",
    "9007199254740993",
    "1e30",
    "1E+400",
    "-1E+999999",
    "1E-999999",
    "NaN",
    "sNaN",
    "Infinity",
]


@pytest.mark.parametrize("text", DECIMALS)
@pytest.mark.parametrize("column", ["i", "r"])
@pytest.mark.parametrize("rows", [1, 20])
def test_decimals_have_the_same_effect(text: str, column: str, rows: int) -> None:
    columns = {"k": [f"k{n}" for n in range(rows)], "r": [0.5] * rows, column: [Decimal(text)] * rows}
    same("whole", columns)
    same("whole", [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])
    if text != "sNaN":  # pandas itself fails on it
        same("whole", pd.DataFrame(columns))


NANS: list[Any] = [
    {"k": "a", "r": 1.0, "i": math.nan},
    {"k": "a", "r": 1.0, "x": np.float64("nan")},
    [{"k": "a", "r": 1.0, "t": math.nan}, {"k": "b", "i": Decimal("NaN")}],
    {"k": ["a", "b"], "r": [1.0, 2.0], "i": np.array([1.0, np.nan])},
    {"k": ["a", "b"], "r": [1.0, 2.0], "x": ["x", math.nan]},
    pd.DataFrame({"k": ["a", "b"], "r": [1.0, 2.0], "i": [np.nan, 3], "x": ["x", np.nan], "t": [pd.NaT, INSTANT]}),
    {"k": pd.Series(["a", "b"]), "r": pd.Series([1.0, 2.0], dtype="Float64"), "i": pd.Series([np.nan, 2.0])},
    pa.table({"k": ["a", "b"], "r": [1.0, 2.0], "i": [None, math.nan]}),
]


@pytest.mark.parametrize("rows", NANS)
def test_nan_is_null_where_that_is_asked_for(rows: Any) -> None:
    assert "NaN is not allowed" in str(same("whole", rows)), "refused, unless asked for"
    taken = outcome("whole", rows, travelling=False, nan="null")
    assert taken == outcome("whole", rows, travelling=True, nan="null")
    assert "NaN" not in str(taken)
    assert "None" in str(taken)


def test_nan_is_null_only_where_null_may_be() -> None:
    rows = {"k": ["a", "b"], "r": [1.0, math.nan]}
    assert "row 1, column r: NULL is not allowed" in _message("whole", rows, travelling=False)
    assert _message("whole", rows, travelling=False) == _message("whole", rows, travelling=True)
    with pytest.raises(BadSetting, match=r'must be "refuse" or "null"'):
        rows_to_columns(rows, "whole", "zero")  # type: ignore[arg-type]  # what an untyped caller may do


def _message(table: str, rows: Any, *, travelling: bool) -> str:
    found = outcome(table, rows, travelling, nan="null")
    assert isinstance(found, tuple)
    return str(found[0](*found[1]))


def test_parameters_travel_exactly() -> None:
    fine = np.datetime64("2024-05-01T12:30:00.123456789")
    given = (
        None,
        True,
        2**70,
        1.5,
        "x",
        INSTANT.replace(tzinfo=UTC),
        timedelta(days=-1),
        fine,
        np.timedelta64(5, "ns"),
    )
    received = bodies.decode(bodies.encode(bodies.Query("SELECT 1", scalars(given))))
    assert isinstance(received, bodies.Query)
    assert received.parameters == given
    foreigners = bodies.decode(bodies.encode(bodies.Query("", scalars([1j, 2j]))))
    assert isinstance(foreigners, bodies.Query)
    assert foreigners.parameters[0] == foreign("complex")
    assert foreigners.parameters[1] is None


def test_columns_of_parameters_bind_as_they_would_have_at_home() -> None:
    columns: list[Any] = [
        [1.5] * 10,
        list(range(10)),
        [f"{i}" for i in range(10)],
        np.array(["2024-05-01T00:00:00.000000001"] * 10, "M8[ns]"),
        np.array(["2024-05-01"] * 10, "M8[D]"),
        [1, None, *range(8)],
    ]
    group = bodies.Group(1, "SELECT 1", tuple(from_user(column, exact=True) for column in columns), 10)
    received = bodies.decode(bodies.encode(bodies.Subscribe((group,))))
    assert isinstance(received, bodies.Subscribe)
    for bound, column in zip(parameter_columns(received.groups[0]), columns, strict=True):
        assert list(bound) == list(column)
    single = bodies.Group(1, "SELECT 1", scalars([5, "x"]), 1)
    assert parameter_columns(single) == ([5], ["x"])


def test_answers_travel_with_names_that_occur_twice() -> None:
    engine = ServedEngine()
    engine.execute(TABLES["whole"])
    engine.upsert("whole", [{"k": f"{i}", "r": float(i), "t": INSTANT if i % 2 else None} for i in range(12)])
    rows = engine.query("SELECT k, r, t, i, x'00' AS b FROM whole")
    names, columns = table_of(rows)
    received = bodies.decode(bodies.encode(bodies.QueryAnswer((*names, "k"), (*columns, columns[0]))))
    assert isinstance(received, bodies.QueryAnswer)
    assert received.names == ("k", "r", "t", "i", "b", "k")
    assert [row[:5] for row in rows_of(received.columns)] == [tuple(row) for row in rows]
    assert table_of([], ["a"])[0] == ("a",)


@pytest.mark.parametrize("count", [1, 8, 9, 100])
def test_instants_come_back_in_utc_however_many_rows_there_are(count: int) -> None:
    engine = ServedEngine()
    engine.execute(TABLES["whole"])
    engine.upsert("whole", [{"k": f"{i}", "r": 0.0, "t": INSTANT if i % 3 else None} for i in range(count)])
    rows = engine.query("SELECT k, t FROM whole ORDER BY k")
    received = bodies.decode(bodies.encode(bodies.QueryAnswer(*table_of(rows))))
    assert isinstance(received, bodies.QueryAnswer)
    assert rows_of(received.columns) == [tuple(row) for row in rows]  # a naive datetime equals no aware one
    assert {value.tzinfo for _, value in rows_of(received.columns) if value is not None} <= {UTC}


def test_one_row_is_its_values_whatever_it_is_given_as() -> None:
    row = {"k": "a", "v": 1, "w": 2.5}
    for rows in (row, [row], (row,), {name: [value] for name, value in row.items()}):
        assert rows_to_columns(rows) == (row, None)
        assert rows_to_columns(rows)[0] is not row, "the user may change it while it waits"
    assert rows_to_columns({"k": ("a",), "v": np.array([1]), "w": np.array([2.5])}) == (row, None)
    body = bodies.decode(bodies.encode(bodies.Publish("t", row, None, bytes(16), 1)))
    assert isinstance(body, bodies.Publish)
    assert body.columns == row


def test_neither_pandas_nor_arrow_is_imported_by_the_wire() -> None:
    for name in ("values", "containers"):
        module = sys.modules[f"hullcast.network.wire.{name}"]
        assert not {"pandas", "pyarrow", "pd", "pa"} & set(vars(module))
