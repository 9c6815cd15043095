"""Earnings and recommendations from a file: by any of their names, and every symbol that cannot be used says why."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.traces.fundamentals import Fundamentals, fundamentals, number, read_fundamentals, spread_reco

if TYPE_CHECKING:
    from pathlib import Path


def problems(stocks: Fundamentals) -> dict[str, str | None]:
    return dict(zip(stocks.symbols, stocks.problems, strict=True))


@pytest.mark.parametrize("header", ["symbol,EPS,RECO", "Ticker,EPS (ttm),Analyst Recom", '\ufeff"SYMBOL", eps ,reco'])
def test_columns_are_found_by_any_of_their_names(tmp_path: Path, header: str) -> None:
    path = tmp_path / "f.csv.gz"
    path.write_bytes(gzip.compress(f"\n{header}\nA, 1.5 ,2.25\n\n,1,1\nB,2\n".encode()))
    stocks = read_fundamentals(path)
    assert (stocks.symbols, stocks.eps.tolist()) == (("A", "B"), [1.5, 2.0])
    assert problems(stocks) == {"A": None, "B": "RECO missing"}


def test_what_is_wrong_with_a_symbol_is_kept() -> None:
    eps = np.array([1, np.nan, 0, -1, 1, 1, 1, 1, np.nan])
    reco = np.array([1, 1, 1, 1, np.nan, 0.99, 5, 5.01, np.nan])
    stocks = fundamentals(tuple("ABCDEFGHI"), eps, reco, ambiguous=["G"], wide=["G", "I"])
    assert stocks.problems == (
        *(None, "EPS missing", "EPS not positive", "EPS not positive", "RECO missing", "RECO outside 1 to 5"),
        *("ambiguous fundamentals", "RECO outside 1 to 5", "fundamentals with more cells than columns"),
    )


def test_a_symbol_that_comes_twice_must_say_the_same(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("symbol,EPS,RECO\nA,1,2\nB,1,-\nC,1,2\nA,1,2.5\nB,1,-\nC,1.0,2.0\n")
    assert problems(read_fundamentals(path)) == {"A": "ambiguous fundamentals", "B": "RECO missing", "C": None}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a line of column names is needed"),
        ("symbol,EPS\n", "no column for RECO; .* --column RECO=.*; columns: symbol, EPS"),
        ("symbol,EPS,RECO,ticker\n", "2 columns for SYMBOL"),
        ('symbol,EPS,RECO\n\nA,1,2\nB,1,"2\nC,1,2\n', "the row from line 4 on: unexpected end of data"),
    ],
)
def test_a_file_without_the_columns_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "f.csv"
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        read_fundamentals(path)
    with pytest.raises(UsageError, match="cannot read"):
        read_fundamentals(tmp_path / "gone.csv")


def test_numbers_are_finite_and_plain() -> None:
    assert [number(text) for text in ("1", "-2.5", "+.5", "3.", "1e2", " 7 ")] == [1, -2.5, 0.5, 3, 100, 7]
    for text in ("", "-", "NaN", "inf", "1e309", "1,000", "0x1", "1d", "1_0", "٣"):
        assert np.isnan(number(text)), text


def test_a_spread_recommendation_stays_in_its_cell_whoever_else_is_there() -> None:
    reco = np.tile(np.round(np.arange(1.0, 5.05, 0.1), 1), 20)
    symbols = tuple(f"S{n}" for n in range(len(reco)))
    stocks = fundamentals(symbols, np.ones(len(reco)), reco)
    spread = spread_reco(stocks, 0.01, root=3)
    assert np.all(np.abs(spread.reco - reco) <= 0.05 + 1e-9)
    assert spread.reco.min() >= 1
    assert spread.reco.max() <= 5
    np.testing.assert_array_equal(spread.reco, np.round(spread.reco, 2))  # equal places are equal numbers
    assert len(np.unique(spread.reco)) > 300
    few = spread_reco(fundamentals(symbols[5:8], np.ones(3), reco[5:8]), 0.01, root=3)
    np.testing.assert_array_equal(few.reco, spread.reco[5:8])
    assert spread_reco(stocks, 0.01, root=4).reco.tolist() != spread.reco.tolist()
    with pytest.raises(UsageError, match="must be above 0"):
        spread_reco(stocks, 0.0)


def test_a_row_with_more_cells_than_columns_is_not_guessed_at(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("symbol,EPS,RECO\nA,1,234.5,2\nB,1,2,,\nC,1,2,3\nC,1,2\n,1,2\n,,\n")
    stocks = read_fundamentals(path)
    assert problems(stocks) == {
        "A": "fundamentals with more cells than columns",
        "B": None,
        "C": "ambiguous fundamentals",
    }
    assert stocks.nameless == 2


def test_a_damaged_compressed_file_is_told(tmp_path: Path) -> None:
    whole = gzip.compress(b"symbol,EPS,RECO\n" + b"".join(b"S%d,1.%d,2\n" % (n, n * 7919) for n in range(3_000)))
    for content in (whole[:-500], whole[:200] + bytes(200) + whole[400:]):
        (tmp_path / "f.csv.gz").write_bytes(content)
        with pytest.raises(UsageError, match=r"cannot read .*f\.csv\.gz"):
            read_fundamentals(tmp_path / "f.csv.gz")
