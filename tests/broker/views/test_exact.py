"""Sums are exact, whatever is added and taken away."""

from __future__ import annotations

import sqlite3
from fractions import Fraction
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.views.exact import PLUS, ROUNDED, SUM, install, plus, rounded

values = st.floats(allow_nan=False, allow_infinity=False)
terms = st.lists(st.tuples(st.one_of(st.none(), values), st.sampled_from([-1, 1])), min_size=1, max_size=20)


def in_sqlite(some: list[tuple[float | None, int]]) -> bytes:
    database = sqlite3.connect(":memory:")
    install(database)
    database.execute("CREATE TABLE t (v REAL, w INTEGER)")
    database.executemany("INSERT INTO t VALUES (?, ?)", some)
    (packed, value), *_ = database.execute(f"SELECT {SUM}(v, w), {ROUNDED}({PLUS}(x'', {SUM}(v, w))) FROM t").fetchall()
    assert value == rounded(packed)
    database.close()
    assert isinstance(packed, bytes)
    return packed


def nearest(total: Fraction) -> float:
    try:
        return float(total)
    except OverflowError:
        return inf if total > 0 else -inf


@given(terms, terms)
def test_a_sum_is_rounded_once(one: list[tuple[float | None, int]], other: list[tuple[float | None, int]]) -> None:
    total = sum((Fraction(value) * weight for value, weight in one + other if value is not None), Fraction(0))
    assert rounded(plus(in_sqlite(one), in_sqlite(other))) == nearest(total)


@given(terms)
def test_what_is_taken_away_again_leaves_nothing(some: list[tuple[float | None, int]]) -> None:
    assert plus(in_sqlite(some), in_sqlite([(value, -weight) for value, weight in some])) == b""
