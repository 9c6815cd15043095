"""The made-up market: as many events as the thesis's, as few of them that matter, and one way through the ETL."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pytest

from hullcast.network.wire.errors import UsageError
from hullcast.sim.traces.checking import classify_tables
from hullcast.sim.traces.market import (
    DAYS,
    NOT_IGNORABLE,
    PRICES_MADE,
    STOCKS,
    hours_behind,
    market,
    market_columns,
    market_trace,
    write_csv,
)
from hullcast.sim.traces.trace import as_table, read_parts
from hullcast.sim.traces.yahoo import yahoo_trace

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_events_and_their_share_that_matters_are_those_of_the_thesis(seed: int) -> None:
    made = market(root=seed)
    assert made.open.shape == (STOCKS, DAYS)
    assert len(set(made.symbols)) == STOCKS
    assert made.reco.min() >= 100
    assert made.reco.max() <= 500
    info, columns = market_columns(made)
    classes = classify_tables(info, [as_table(columns)])
    assert classes.events == pytest.approx(PRICES_MADE, rel=0.003)
    assert 1 - classes.share == pytest.approx(NOT_IGNORABLE, abs=0.004)


def test_spark_makes_the_same_trace_from_memory_and_from_files(spark: SparkSession, tmp_path: Path) -> None:
    made = market(40, 8, root=2)
    _, columns = market_columns(made)
    expected = as_table(columns)
    info = market_trace(spark, made, tmp_path / "memory")
    assert (info.events, info.refused) == (len(columns), {})
    prices, stocks = write_csv(made, tmp_path / "csv")
    assert yahoo_trace(spark, prices, stocks, tmp_path / "files").events == len(columns)
    for name in ("memory", "files"):
        assert pa.concat_tables(read_parts(tmp_path / name)).equals(expected), name
    first = (prices / f"{made.symbols[0]}.csv").read_text().splitlines()
    assert first[0] == "Date,Open,High,Low,Close,Adj Close,Volume"
    with pytest.raises(UsageError, match="not empty"):
        write_csv(made, tmp_path / "csv")
    with pytest.raises(UsageError, match=r"cannot write CSV files to .*Not a directory"):
        write_csv(made, stocks)


def test_a_market_is_its_seed() -> None:
    one, same, other = market(30, 5, root=1), market(30, 5, root=1), market(30, 5, root=2)
    assert one.symbols == same.symbols != other.symbols
    np.testing.assert_array_equal(one.close, same.close)
    assert not np.array_equal(one.close, other.close)
    with pytest.raises(UsageError, match="at least one stock and one day"):
        market(0)


def test_prices_never_jump() -> None:
    made = market(1_000, 60, root=4)
    prices = np.stack((made.open, made.close), axis=2).reshape(1_000, 120)
    ratio = prices[:, 1:] / prices[:, :-1]
    assert ratio.max() < 1.3
    assert ratio.min() > 1 / 1.3


def test_new_york_is_as_far_behind_as_the_database_of_time_zones_says() -> None:
    try:
        zone = ZoneInfo("America/New_York")
    except ZoneInfoNotFoundError:
        pytest.skip("this machine has no database of time zones")
    for day in (date(2007, 1, 1) + timedelta(n) for n in range(20 * 365)):
        assert datetime.combine(day, time(12), zone).utcoffset() == timedelta(hours=-hours_behind(day)), day
    with pytest.raises(UsageError, match="2007 or later"):
        market(1, 1, first=date(2006, 12, 31))
