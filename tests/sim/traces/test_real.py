"""Real prices, earnings and recommendations: the counts, and how they come to those of the notes."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pytest

from hullcast.sim.traces.checking import classify
from hullcast.sim.traces.trace import read_parts
from hullcast.sim.traces.yahoo import yahoo_trace
from tests.support.shared_data import shared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def compiling(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with plans compiled, as commands have it."""
    names = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: spark.conf.get(name) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        assert old is not None
        spark.conf.set(name, old)


@pytest.mark.slow
def test_sixty_days_of_real_prices(compiling: SparkSession, tmp_path: Path) -> None:
    prices, stocks = shared("pystock_open_close_20150320_20170331.csv.gz"), shared("finviz_20130128.csv.gz")
    first = datetime.date(2015, 4, 1)
    info = yahoo_trace(compiling, prices, stocks, tmp_path / "grid", first=first, days=60)
    assert info.events == 310_436
    assert info.refused["split-like jump"] == 18
    assert (info.notes["stocks"], info.notes["last day"]) == (2_599, "2015-06-25")
    assert info.events + sum(info.refused.values()) == info.notes["prices"]
    # The notes have 293,491: changes alone, of stocks with a price on the first day, jumps included. Ours are 16 fewer:
    # 18 jumps are refused, and two prices that repeat a refused one count as changes.
    table = pa.concat_tables(read_parts(tmp_path / "grid"))
    key, price, at = (table.column(name).to_numpy(zero_copy_only=False) for name in ("key", "y", "at"))
    there = np.isin(key.astype(str), np.unique(key[at.astype("datetime64[D]") == np.datetime64(first)].astype(str)))
    order = np.argsort(key[there].astype(str), kind="stable")
    same_stock = key[there][order][1:] == key[there][order][:-1]
    changed = price[there][order][1:] != price[there][order][:-1]
    assert int(np.sum(same_stock & changed)) == 293_491 - 16
    assert 1 - classify(tmp_path / "grid").share == pytest.approx(0.0115, abs=0.001)
    yahoo_trace(compiling, prices, stocks, tmp_path / "spread", first=first, days=60, spread=0.01)
    assert 1 - classify(tmp_path / "spread").share == pytest.approx(0.093, abs=0.004)
