"""No rows and no subscriptions: every kind of query takes nothing for an answer, and for a question."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.index.grouping import Grouping
from tests.support.engines import attend

SELECTS = ["COUNT(*)", "SUM(X)", "AVG(X)", "MIN(X)", "MAX(W)", "DISTINCT N", "*"]
CONDITIONS = ["X > ?", "N = ?", "N = ? AND J = ?", "N = ? AND J = ? AND X > ?", "N = ? AND W = ? AND J = 1"]
JOINS = [
    "T.K = U.K AND T.X > ?",
    "T.N = U.N AND T.J = ? AND U.J = ?",
    "U.X - T.X BETWEEN -? AND ?",
    "U.W - T.W BETWEEN -5 AND ? AND T.N = ? AND T.J = ?",
]
QUERIES = [f"SELECT {what} FROM T WHERE {condition}" for what in SELECTS for condition in CONDITIONS]
QUERIES += [f"SELECT T.K, U.K FROM T, U WHERE {join}" for join in JOINS]
ROWS: dict[str, list[Any]] = {
    "K": [1, 2, 3],
    "X": [1.0, None, 2.0],
    "N": ["x", None, "y"],
    "W": ["2026-01-01", None, "2026-01-02"],
    "J": [1, 2, None],
}


def engine_with(rows: bool) -> ServedEngine:
    engine = ServedEngine()
    for name in "TU":
        engine.execute(f"CREATE TABLE {name} (K INTEGER PRIMARY KEY, X REAL, N TEXT, W TIMESTAMP, J INTEGER)")
        if rows:
            engine.upsert(name, ROWS)
    return engine


@pytest.mark.parametrize("rows", [False, True], ids=["empty tables", "some rows"])
@pytest.mark.parametrize("sql", QUERIES)
def test_nobody_may_subscribe_to_anything(sql: str, rows: bool) -> None:
    columns = sql.count("?")
    nothings: list[Any] = [[], (), np.empty(0), np.empty(0, object)]
    for nothing in nothings:
        engine = engine_with(rows)
        subscriptions = engine.subscribe_many(sql, *[nothing] * columns)
        assert len(subscriptions) == 0
        for name in "TU":
            assert len(engine.upsert(name, [])) == 0
            assert len(engine.upsert(name, {"K": np.empty(0), "N": []})) == 0
            assert len(engine.delete(name, [])) == 0
            assert len(engine.upsert(name, ROWS)) == 3
            assert len(engine.delete(name, 1)) == 1
        subscriptions.close()
        attended = attend(engine, sql, [nothing] * columns, 0)
        engine.forsake(attended.channel.name)
        assert engine.statistics() == {}


def test_no_rows_and_rows_of_no_group_have_numbers() -> None:
    grouping = Grouping(2)
    assert grouping.numbers([np.empty(0), np.empty(0)], 0).tolist() == []
    assert np.isnan(grouping.numbers([np.array([np.nan, 1.0]), np.array([1.0, np.nan])], 2)).all()
    assert grouping.numbers([np.array([1.0]), np.array([2.0])], 1).tolist() == [0.0]
