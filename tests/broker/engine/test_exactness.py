"""Answers are exact: whole numbers, sums through any history, differences, zeros, instants."""

from __future__ import annotations

import math
from datetime import UTC, timedelta
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from hullcast import BadParameter
from tests.support.engines import NOON, engine_with


def test_integers_are_exact_to_the_last() -> None:
    engine = engine_with()
    low, high = engine.subscribe("SELECT MIN(N) FROM T"), engine.subscribe("SELECT MAX(N) FROM T")
    total = engine.subscribe("SELECT SUM(N) FROM T")
    edge = engine.subscribe("SELECT COUNT(*) FROM T WHERE N > ?", 2**53 - 1)
    values = [2**53, 2**53 - 1, -(2**53), 1 - 2**53, 3]
    for k, value in enumerate(values):
        engine.upsert("T", {"K": k, "N": value})
    assert (low.answer, high.answer, total.answer, edge.answer) == (-(2**53), 2**53, 3, 1)
    assert all(type(one.answer) is int for one in (low, high, total, edge))


def test_sums_of_integers_beyond_a_float_are_exact() -> None:
    engine = engine_with()
    total = engine.subscribe("SELECT SUM(N) FROM T")
    rng = np.random.default_rng(1)
    held: dict[int, int] = {}
    for round_ in range(30):
        keys = rng.integers(0, 300, 100).tolist()
        values = rng.integers(2**52, 2**53, 100, endpoint=True).tolist()
        engine.upsert("T", {"K": keys, "N": values})
        held.update(zip(keys, values, strict=True))
        assert total.answer == sum(held.values()) > 2**53
        assert [event.answer for event in total.drain()][-1] == sum(held.values())
        if round_ % 5 == 4:
            gone = sorted(held)[::2]
            engine.delete("T", gone)
            for key in gone:
                del held[key]
            assert total.answer == sum(held.values())


def test_sums_of_reals_do_not_drift() -> None:
    """After 10^5 rows came and went the sum is that of the rows there are, rounded once."""
    engine = engine_with()
    whole, part = engine.subscribe("SELECT SUM(Y) FROM T"), engine.subscribe("SELECT AVG(Y) FROM T WHERE X < ?", 0.5)
    rng = np.random.default_rng(2)
    rows: dict[int, tuple[float, float]] = {}
    for _ in range(60):
        keys = rng.integers(0, 500, 2000).tolist()
        x, y = rng.random(2000), rng.normal(0, 1, 2000) * 10.0 ** rng.integers(-6, 7, 2000)
        engine.upsert("T", {"K": keys, "X": x, "Y": y, "N": np.zeros(2000, np.int64)})
        rows.update(zip(keys, zip(x.tolist(), y.tolist(), strict=True), strict=True))
        gone = rng.integers(0, 500, 100).tolist()
        engine.delete("T", gone)
        for key in gone:
            rows.pop(key, None)
        exact = sum((Fraction(value) for _, value in rows.values()), Fraction(0))
        assert whole.answer == float(exact) == math.fsum(value for _, value in rows.values())
        inside = [value for at, value in rows.values() if at < 0.5]
        assert part.answer == float(sum(map(Fraction, inside), Fraction(0)) / len(inside))
    fresh = engine.subscribe("SELECT SUM(Y) FROM T")
    assert fresh.answer == whole.answer
    engine.delete("T", list(rows))
    assert (whole.answer, part.answer) == (None, None)


def test_a_sum_beyond_all_floats_comes_back_when_the_rows_go() -> None:
    engine = engine_with()
    total, mean = engine.subscribe("SELECT SUM(Y) FROM T"), engine.subscribe("SELECT AVG(Y) FROM T")
    engine.upsert("T", {"K": 1, "Y": 1.5e308, "N": 0})
    engine.upsert("T", {"K": 2, "Y": 1.5e308, "N": 0})
    engine.delete("T", 2)
    assert (total.answer, mean.answer) == (1.5e308, 1.5e308)


#: The large ones have one sign: rows that are there together and cancel beyond 106 bits are another matter (below).
WILD = [0.1, -0.1, 1.0, -3.7, 1e-9, 1e16, 1e40, 2.0**200, 1e300, None]


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("seed", range(8))
def test_sums_of_numbers_of_all_sizes_are_rounded_once_and_told_when_they_change(size: int, seed: int) -> None:
    """Rows a quadrillion times as large as the others come and go, one by one and in batches."""
    rng = Random(seed)
    engine = engine_with()
    total, mean = engine.subscribe("SELECT SUM(Y) FROM T"), engine.subscribe("SELECT AVG(Y) FROM T")
    rows: dict[int, float | None] = {}
    before: list[float | None] = [None, None]
    for _ in range(120):
        batch = [(rng.randrange(5), rng.choice(WILD)) for _ in range(size)]
        engine.upsert("T", [{"K": key, "Y": y, "N": 0} for key, y in batch])
        rows.update(batch)
        held = [Fraction(y) for y in rows.values() if y is not None]
        exact = sum(held, Fraction(0))
        expected: list[float | None] = [float(exact), float(exact / len(held))] if held else [None, None]
        assert [total.answer, mean.answer] == expected
        for one, was, now in zip((total, mean), before, expected, strict=True):
            events = one.drain()
            if size == 1:
                assert [event.answer for event in events] == ([now] if now != was else [])
            elif events:
                assert events[-1].answer == now
            else:
                assert now == was
        before = expected


def test_sums_of_rows_that_cancel_each_other_keep_the_small_ones() -> None:
    values = [1e-9, 1e300, 1e40, -1e300, -1e40]
    engine = engine_with(*({"K": k, "Y": y} for k, y in enumerate(values)))
    assert engine.subscribe("SELECT SUM(Y) FROM T").answer == math.fsum(values) == 1e-9


def test_a_join_that_exchanges_equal_pairs_tells_nobody() -> None:
    engine = engine_with({"K": 1, "N": 1})
    engine.execute("CREATE TABLE S (K INTEGER PRIMARY KEY, N INTEGER)")
    engine.upsert("S", {"K": [1, 2, 3], "N": [1, 2, 9]})
    pairs = engine.subscribe("SELECT T.K FROM T JOIN S USING (N) WHERE S.K < ?", 9)
    engine.upsert("T", {"K": 1, "N": 2})
    assert (pairs.pending, pairs.drain(), pairs.answer) == (0, [], [(1,)])
    engine.upsert("T", {"K": 1, "N": 5})
    engine.upsert("T", {"K": 1, "N": 1})
    engine.upsert("T", {"K": 1, "N": 2})
    assert [(event.seq, event.answer) for event in pairs.drain()] == [(6, []), (7, [(1,)])]


def test_minus_zero_is_zero() -> None:
    engine = engine_with({"K": 1, "X": -0.0, "Y": -0.0}, {"K": 2, "X": 0.0, "Y": 0.0})
    assert repr(engine.subscribe("SELECT DISTINCT Y FROM T WHERE X = ?", -0.0).answer) == "{0.0}"
    assert repr(engine.subscribe("SELECT MAX(Y) FROM T WHERE X <= ?", -0.0).answer) == "0.0"
    assert repr(engine.subscribe("SELECT Y FROM T WHERE X >= ?", 0.0).answer[0]) == "Row(Y=0.0)"
    negative = engine.subscribe("SELECT MAX(Y) FROM T")
    engine.upsert("T", {"K": 1, "Y": 0.0})
    assert negative.drain() == []


def test_timestamps_come_back_as_instants_in_utc() -> None:
    engine = engine_with({"K": 1, "X": 1, "W": NOON}, {"K": 2, "X": 2, "W": "2026-01-31T13:00:00.000001+01:00"})
    later = NOON + timedelta(microseconds=1)
    latest = engine.subscribe("SELECT MAX(W) FROM T WHERE X < ?", 9)
    assert latest.answer == later
    assert latest.answer.tzinfo is UTC
    assert engine.subscribe("SELECT DISTINCT W FROM T").answer == {NOON, later}
    assert engine.subscribe("SELECT K, W FROM T WHERE W > ?", NOON).answer == [(2, later)]
    engine.upsert("T", {"K": 2, "W": None})
    assert [event.answer for event in latest.drain()] == [NOON]


def test_a_difference_of_large_integers_is_exact() -> None:
    engine = engine_with()
    engine.execute("CREATE TABLE S (K INTEGER PRIMARY KEY, M INTEGER)")
    pairs = engine.subscribe("SELECT T.K FROM T JOIN S ON S.M - T.N BETWEEN ? AND ?", 0, 2**53 - 1)
    engine.upsert("T", {"K": 1, "N": -1})
    engine.upsert("S", {"K": 1, "M": 2**53})
    assert engine.query("SELECT T.K FROM T JOIN S ON S.M - T.N BETWEEN ? AND ?", 0, 2**53 - 1) == []
    assert pairs.answer == []


def test_the_bounds_of_a_band_on_whole_numbers_can_be_told_apart() -> None:
    engine = engine_with({"K": 1, "N": -1})
    engine.execute("CREATE TABLE S (K INTEGER PRIMARY KEY, M INTEGER)")
    engine.upsert("S", {"K": 1, "M": 2**53})
    for bound in (2**53, -(2**53), 2**60, 1e300):
        with pytest.raises(BadParameter, match=r"below 2\*\*53"):
            engine.subscribe("SELECT T.K FROM T JOIN S ON S.M - T.N > ?", bound)
        with pytest.raises(BadParameter, match=r"below 2\*\*53"):
            engine.subscribe_many("SELECT T.K FROM T JOIN S ON S.M - T.N > ?", np.array([1, bound], np.float64))
    assert engine.subscribe("SELECT T.K FROM T JOIN S ON S.M - T.N > ?", 2**53 - 1).answer == [(1,)]
    assert engine.subscribe("SELECT T.K FROM T JOIN S ON S.M - T.N < ?", math.inf).answer == [(1,)]


def test_bits_too_small_for_a_sum_still_break_its_ties() -> None:
    engine = engine_with()
    total = engine.subscribe("SELECT SUM(Y) FROM T")
    for k, y in enumerate([2.0**53, 1.0, 1e-20]):
        engine.upsert("T", {"K": k, "Y": y, "N": 0})
    assert total.answer == math.fsum([2.0**53, 1.0, 1e-20]) == 2.0**53 + 2
    assert total.drain()[-1].answer == total.answer
    engine.upsert("T", {"K": 2, "Y": 2e-20})
    assert (total.answer, total.drain()) == (2.0**53 + 2, []), "the same sum: nothing to tell"


@pytest.mark.parametrize("seed", range(30))
def test_sums_of_any_magnitudes_are_rounded_once_and_told_only_when_they_change(seed: int) -> None:
    rng = Random(seed)
    engine = engine_with()
    total = engine.subscribe("SELECT SUM(Y) FROM T")
    held: dict[int, float] = {}
    for _ in range(40):
        k, before = rng.randrange(6), math.fsum(held.values()) if held else None
        if rng.random() < 0.3:
            engine.delete("T", [k])
            held.pop(k, None)
        else:
            held[k] = rng.choice([2.0**53, 1.0, -1.0, 1e-20, 2e-20, 1e40, -1e40, 1e300, 0.1])
            engine.upsert("T", {"K": k, "Y": held[k], "N": 0})
        now = math.fsum(held.values()) if held else None
        assert total.answer == now
        assert [event.answer for event in total.drain()] == ([] if now == before else [now])
