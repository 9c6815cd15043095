"""The door: all forms of a batch mean the same; a refusal names the first bad value and leaves no trace."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # no stubs installed
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.tables import ingest as door
from hullcast.broker.tables.ingest import KEEP, ingest, ingest_keys
from hullcast.broker.tables.interning import UNKNOWN, Interner
from hullcast.broker.tables.schema import Column, ColumnType, Table
from hullcast.network.wire.errors import BadBatch, BadValue, UnknownColumn

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
    encoded = ingest(STOCK, rows, Interner())
    assert encoded.cells.tolist() == CODES
    assert not encoded.partial
    assert len(encoded) == 3


def test_what_is_not_given_is_kept() -> None:
    rows = [{"symbol": "A", "PER": 1}, {"SYMBOL": "B", "volume": 2}, {"Symbol": "C", "per": None}]
    encoded = ingest(STOCK, rows, Interner())
    assert encoded.partial
    np.testing.assert_array_equal(encoded.cells[1], [1, KEEP, math.nan])
    assert encoded.cells[2].tolist() == [KEEP, 2, KEEP]
    columns = ingest(STOCK, {"SYMBOL": ["A"], "PER": [2.0]}, Interner())
    assert columns.cells.tolist() == [[0], [2], [KEEP], [KEEP]]
    assert columns.partial


def test_a_dict_of_plain_values_is_one_row() -> None:
    interner = Interner()
    for rows in (
        {"SYMBOL": "A", "PER": 3},
        [{"SYMBOL": "A", "PER": 3}],
        {"PER": np.float64(3), "SYMBOL": "A"},
    ):
        assert ingest(STOCK, rows, interner).cells.tolist() == [[0], [3], [KEEP], [KEEP]]


def test_an_empty_list_is_an_empty_batch() -> None:
    assert ingest(STOCK, [], Interner()).cells.shape == (4, 0)
    assert len(ingest(STOCK, {"SYMBOL": []}, Interner())) == 0


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
        {"PER": [1.0]},
        {"SYMBOL": np.array([["A"]])},
        pd.DataFrame([["A", "B"]], columns=["SYMBOL", "symbol"]),
    ],
    ids=repr,
)
def test_a_batch_of_wrong_form_is_refused(rows: object) -> None:
    interner = Interner()
    with pytest.raises(BadBatch):
        ingest(STOCK, rows, interner)
    assert len(interner) == 0


@pytest.mark.parametrize("rows", [{"SYMBOL": "A", "X": 1}, {"SYMBOL": ["A"], 3: [1]}, [{"X": 1}, {"SYMBOL": "A"}]])
def test_an_unknown_column_is_named(rows: object) -> None:
    with pytest.raises(UnknownColumn):
        ingest(STOCK, rows, Interner())


def test_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "MAXIMUM_ROWS", 2)
    for rows in (FULL, dicts(FULL)):
        with pytest.raises(BadBatch, match="at most 2"):
            ingest(STOCK, rows, Interner())


@pytest.mark.parametrize(
    ("rows", "row", "column"),
    [
        ({"PER": 1.0}, 0, "SYMBOL"),
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
        ingest(STOCK, rows, interner)
    assert (caught.value.row, caught.value.column) == (row, column)
    assert len(interner) == 0


cells = st.sampled_from([None, 1, 2.0, 1.5, math.nan, True, "A", "B", "\0", "2026-01-01"])
names = st.sampled_from(["SYMBOL", "symbol", "PER", "VOLUME", "AT"])


@given(rows=st.lists(st.dictionaries(names, cells, min_size=1, max_size=4), max_size=4))
def test_a_batch_is_the_sum_of_its_rows(rows: list[dict[str, Any]]) -> None:
    """The long way over many rows agrees with the short way over each; the first refused row is the same."""
    together, alone = Interner(), Interner()
    singles = []
    failure: tuple[int, str, str] | None = None
    malformed = False
    for index, row in enumerate(rows):
        try:
            singles.append(ingest(STOCK, row, alone).cells)
        except BadBatch:
            malformed = True
        except BadValue as error:
            failure = failure or (index, error.column, error.reason)
    if malformed:
        with pytest.raises(BadBatch):
            ingest(STOCK, rows, together)
        assert len(together) == 0
    elif failure:
        with pytest.raises(BadValue) as caught:
            ingest(STOCK, rows, together)
        assert (caught.value.row, caught.value.column, caught.value.reason) == failure
        assert len(together) == 0
    elif rows:
        np.testing.assert_array_equal(ingest(STOCK, rows, together).cells, np.hstack(singles))


def test_keys_to_delete_are_looked_up_and_never_interned() -> None:
    interner = Interner()
    interner.encode(["A", "B"])
    for keys in (["B", "Z"], np.array(["B", "Z"]), pa.array(["B", "Z"]), pd.Series(["B", "Z"]), ("B", "Z")):
        assert ingest_keys(STOCK, keys, interner).tolist() == [1, UNKNOWN]
    assert ingest_keys(STOCK, "A", interner).tolist() == [0]
    assert ingest_keys(STOCK, "Z", interner).tolist() == [UNKNOWN]
    assert ingest_keys(STOCK, [], interner).tolist() == []
    assert len(interner) == 2
    numbered = Table("N", (Column("K", ColumnType.INTEGER),), 0)
    assert ingest_keys(numbered, 3, interner).tolist() == [3]
    assert ingest_keys(numbered, np.array([3, -1]), interner).tolist() == [3, -1]


@pytest.mark.parametrize("keys", [None, ["A", None], 3, ["A", 3]])
def test_a_key_that_cannot_be_one_is_refused(keys: object) -> None:
    with pytest.raises(BadValue):
        ingest_keys(STOCK, keys, Interner())


@pytest.mark.parametrize("keys", [{"A": 1}, {"A"}, pd.DataFrame({"A": [1]}), np.array([["A"]])])
def test_keys_of_wrong_form_are_refused(keys: object) -> None:
    with pytest.raises(BadBatch):
        ingest_keys(STOCK, keys, Interner())
