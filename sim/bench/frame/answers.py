"""Which answers of range minima are wrong: all beside NumPy, some beside SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import numpy as np

from hullcast.network.wire.arrays import Booleans, Floats


def range_minima(x: Floats, y: Floats, low: Floats, high: Floats) -> Floats:
    """The least y of the rows with low <= x <= high, NaN where there are none: a table of minima of 2**k neighbours."""
    order = np.argsort(x)
    levels = [y[order]]
    while len(levels[-1]) > (step := 1 << (len(levels) - 1)):
        levels.append(np.minimum(levels[-1][:-step], levels[-1][step:]))
    first, stop = np.searchsorted(x[order], low, "left"), np.searchsorted(x[order], high, "right")
    found = np.full(len(low), np.nan)
    length = stop - first
    for k, minima in enumerate(levels):
        mine = (length >= 1 << k) & (length < 2 << k)
        found[mine] = np.minimum(minima[first[mine]], minima[stop[mine] - (1 << k)])
    return found


def minima_by_sql(statements: Iterable[str], rows: Iterable[Any], sql: str, low: Floats, high: Floats) -> Floats:
    """The same as SQLite gives them. The statements make a table of three columns; the first names it."""
    with closing(sqlite3.connect(":memory:")) as database:
        first, *others = statements
        database.execute(first)
        database.executemany(f"INSERT INTO {first.split()[2]} VALUES (?, ?, ?)", rows)
        for statement in others:
            database.execute(statement)
        ranges = zip(low.tolist(), high.tolist(), strict=True)
        return np.array([database.execute(sql, between).fetchone()[0] for between in ranges], np.float64)


def different(answers: Floats, right: Floats) -> Booleans:
    """Where they differ; nothing is as right as nothing."""
    wrong: Booleans = ~((answers == right) | (np.isnan(answers) & np.isnan(right)))
    return wrong
