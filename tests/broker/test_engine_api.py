"""The engine's contract with its callers: what is refused and how, forms of rows, life cycles, exactness, bounds."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # no stubs are installed
import pyarrow as pa  # type: ignore[import-untyped]  # has none
import pytest

import hullcast
from hullcast import (
    BadBatch,
    BadParameter,
    BadSetting,
    BadValue,
    DuplicateTable,
    Engine,
    Resync,
    SqlError,
    SubscriptionClosed,
    TableInUse,
    UnknownChannel,
    UnknownColumn,
    UnknownTable,
    UsageError,
)

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
MIN = "SELECT MIN(Y) FROM T WHERE X BETWEEN ? AND ?"
MAX = "SELECT MAX(Y) FROM T WHERE X BETWEEN ? AND ?"
ROWS = "SELECT K, Y FROM T WHERE X BETWEEN ? AND ?"
DISTINCT = "SELECT DISTINCT Y FROM T WHERE X BETWEEN ? AND ?"
COUNT = "SELECT COUNT(*) FROM T WHERE X BETWEEN ? AND ?"


def engine_with(*rows: dict[str, Any], **options: int) -> Engine:
    engine = Engine(**options)
    engine.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, X REAL, Y REAL, N INTEGER NOT NULL, P TEXT, W TIMESTAMP)")
    if rows:
        engine.upsert("T", [{"N": 0} | row for row in rows])
    return engine


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda e: e.execute("CREATE TABLE t (K INTEGER PRIMARY KEY)"), DuplicateTable, ["T exists already"]),
        (lambda e: e.execute("CREATE TABLE V (K INTEGER)"), SqlError, ["no primary key"]),
        (lambda e: e.execute("DROP TABLE V"), UnknownTable, ["no table V", "tables: T"]),
        (lambda e: e.execute("INSERT INTO T VALUES (1)"), SqlError, ["engine.upsert"]),
        (lambda e: e.upsert("V", []), UnknownTable, ["no table V"]),
        (lambda e: e.delete("V", [1]), UnknownTable, ["no table V"]),
        (lambda e: e.rows("V"), UnknownTable, ["no table V"]),
        (lambda e: e.query("SELECT * FROM V"), UnknownTable, ["no table V"]),
        (lambda e: e.subscribe("SELECT MIN(Y) FROM V"), UnknownTable, ["no table V"]),
        (lambda e: e.subscribe("SELECT MIN(Q) FROM T"), UnknownColumn, ["no column Q in T", "K, X, Y"]),
        (lambda e: e.upsert("T", {"K": 9, "Q": 1}), UnknownColumn, ["no column Q in T"]),
        (lambda e: e.upsert("T", 7), BadBatch, ["int is no batch", "list of dicts"]),
        (lambda e: e.upsert("T", {"K": [1, 2], "X": [1.0]}), BadBatch, ["X has 1 values", "K has 2"]),
        (lambda e: e.upsert("T", [{"X": 1.0}]), BadValue, ["row 0, column K", "nothing was applied"]),
        (lambda e: e.upsert("T", {"K": 9}), BadValue, ["column N", "NOT NULL"]),
        (lambda e: e.upsert("T", {"K": 9, "N": None}), BadValue, ["column N", "NOT NULL"]),
        (lambda e: e.upsert("T", {"K": 9, "N": 1, "X": math.nan}), BadValue, ["column X", "nan is no SQL number"]),
        (lambda e: e.upsert("T", {"K": 9, "N": 1, "Y": math.inf}), BadValue, ["column Y", "inf is no SQL number"]),
        (lambda e: e.upsert("T", {"K": 9, "N": 1.5}), BadValue, ["column N", "no fraction"]),
        (lambda e: e.upsert("T", {"K": 9, "N": 2**53 + 1}), BadValue, ["column N", "2**53"]),
        (lambda e: e.upsert("T", {"K": 9, "N": "1"}), BadValue, ["column N", "got str"]),
        (lambda e: e.upsert("T", {"K": 9, "N": True}), BadValue, ["column N", "got bool"]),
        (lambda e: e.upsert("T", {"K": 9, "N": 1, "P": 5}), BadValue, ["column P", "TEXT takes str"]),
        (lambda e: e.upsert("T", {"K": 9, "N": 1, "P": "a\0"}), BadValue, ["column P", "NUL"]),
        (lambda e: e.upsert("T", {"K": 9, "N": 1, "W": "noon"}), BadValue, ["column W", "ISO-8601"]),
        (lambda e: e.delete("T", ["1"]), BadValue, ["column K", "got str"]),
        (lambda e: e.subscribe(MIN, 1), BadParameter, ["1 parameter(s) given", "2 (X (REAL), X (REAL))"]),
        (lambda e: e.subscribe(MIN, 1, 2, 3), BadParameter, ["3 parameter(s) given"]),
        (lambda e: e.subscribe(MIN, 1, "2"), BadParameter, ["parameter 2", "X (REAL) takes a number, got str"]),
        (lambda e: e.subscribe(MIN, None, 2), BadParameter, ["parameter 1", "never true"]),
        (lambda e: e.subscribe(MIN, math.nan, 2), BadParameter, ["parameter 1", "NaN"]),
        (lambda e: e.subscribe("SELECT MIN(Y) FROM T WHERE P = ?", 3), BadParameter, ["P (TEXT) takes a str"]),
        (lambda e: e.subscribe("SELECT MIN(Y) FROM T WHERE W > ?", 3), BadParameter, ["W (TIMESTAMP)"]),
        (lambda e: e.subscribe_many(MIN, [1, 2], [3]), BadParameter, ["parameter 2", "1 values"]),
        (lambda e: e.subscribe("SELECT MIN(P) FROM T"), SqlError, ["has no order"]),
        (lambda e: e.subscribe("SELECT SUM(W) FROM T"), SqlError, ["cannot be added up"]),
        (lambda e: e.subscribe("SELECT MIN(Y) FROM T WHERE X > 1 AND N > 2"), SqlError, ["range on one column"]),
        (lambda e: e.subscribe("SELECT MIN(Y) FROM T WHERE X > 1 OR X < 0"), SqlError, ["one subscription for each"]),
        (lambda e: e.subscribe("SELECT MIN(Y) FROM T GROUP BY P"), SqlError, ["GROUP BY is not offered"]),
        (lambda e: e.subscribe("SELECT K FROM T ORDER BY K"), SqlError, ["answers have no order"]),
        (lambda e: e.subscribe("SELECT K FROM T LIMIT 1"), SqlError, ["LIMIT is not offered"]),
        (lambda e: e.subscribe("DELETE FROM T"), SqlError, ["a subscription only reads"]),
        (lambda e: e.subscribe("SELECT FROM"), SqlError, ["cannot take"]),
        (lambda e: e.query("DELETE FROM T"), SqlError, ["not a single SELECT"]),
        (lambda e: e.close_channel("nothing"), UnknownChannel, ["nothing"]),
    ],
)
def test_what_cannot_work_is_refused_with_its_reason_and_changes_nothing(
    call: Callable[[Engine], object], error: type[UsageError], words: list[str]
) -> None:
    engine = engine_with({"K": 1, "X": 1.0, "Y": 2.0})
    with engine.subscribe(MIN, 0, 9) as subscription:
        before = (engine.seq, engine.statistics(), engine.rows("T"), dict(engine.tables))
        with pytest.raises(error) as caught:
            call(engine)
        assert all(word in str(caught.value) for word in words), str(caught.value)
        assert isinstance(caught.value, hullcast.HullcastError)
        assert isinstance(caught.value, ValueError)
        assert (engine.seq, engine.statistics(), engine.rows("T"), dict(engine.tables)) == before
        assert (subscription.answer, subscription.drain()) == (2.0, [])
        again = pickle.loads(pickle.dumps(caught.value))
        assert (type(again), str(again), again.args) == (error, str(caught.value), caught.value.args)
        assert vars(again) == vars(caught.value)


def test_a_setting_out_of_its_range_is_refused() -> None:
    with pytest.raises(BadSetting, match="event_limit"):
        Engine(event_limit=0)


@pytest.mark.parametrize("form", ["dicts", "columns", "arrow", "pandas"])
def test_one_bad_row_refuses_the_batch_and_names_the_first(form: str) -> None:
    engine = engine_with({"K": 1, "X": 1.0, "Y": 2.0})
    watchers = [engine.subscribe(sql, 0, 9) for sql in (MIN, MAX, ROWS, DISTINCT, COUNT)]
    before = (engine.seq, engine.statistics(), [one.answer for one in watchers], len(engine._interner))
    columns: dict[str, list[Any]] = {
        "K": [1, 2, 3],
        "X": [5.0, 5.0, 5.0],
        "Y": [0.0, math.inf, math.inf],
        "N": [1, 2, 3],
        "P": ["fresh", "text", "here"],
    }
    batch: Any = {
        "dicts": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        "columns": columns,
        "arrow": pa.table(columns),
        "pandas": pd.DataFrame(columns),
    }[form]
    with pytest.raises(BadValue) as caught:
        engine.upsert("T", batch)
    assert (caught.value.table, caught.value.row, caught.value.column) == ("T", 1, "Y")
    assert "inf is no SQL number" in caught.value.reason
    after = (engine.seq, engine.statistics(), [one.answer for one in watchers], len(engine._interner))
    assert after == before
    assert [one.drain() for one in watchers] == [[]] * len(watchers)
    assert engine.query("SELECT K, X FROM T") == [(1, 1.0)]


# --- rows in any form ------------------------------------------------------------------------------------------------


def test_every_form_of_rows_gives_the_same_answers_events_and_messages() -> None:
    columns: dict[str, list[Any]] = {
        "K": [1, 2, 3, 1],
        "X": [1.0, None, 3.0, 2.5],
        "Y": [5.0, 1.0, None, 4.0],
        "N": [1, 2, 3, 4],
        "P": ["a", None, "b", "ü"],
        "W": [NOON, None, NOON + timedelta(microseconds=1), NOON],
    }
    forms: list[Any] = [
        [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        columns,
        {name.lower(): tuple(values) for name, values in columns.items()},
        pa.table(columns),
        pa.table(columns).to_batches()[0],
        pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()}),
        pd.DataFrame(
            {
                "K": columns["K"],
                "X": pd.array(columns["X"], dtype="Float64"),
                "Y": pd.array(columns["Y"], dtype="Float64"),
                "N": np.array(columns["N"], np.int32),
                "P": pd.Series(columns["P"], dtype="category"),
                "W": pd.to_datetime(pd.Series(columns["W"]), utc=True),
            }
        ),
    ]
    results = []
    for rows in forms:
        engine = engine_with()
        watchers = [engine.subscribe(sql, 0, 9) for sql in (MIN, MAX, ROWS, DISTINCT, COUNT)]
        watchers.append(engine.subscribe("SELECT * FROM T"))
        watchers.append(engine.subscribe("SELECT MAX(W) FROM T WHERE P = 'ü'"))
        batch = engine.upsert("T", rows)
        said = {
            name: {column: values.tolist() for column, values in messages.columns.items()}
            for name, messages in batch.messages.items()
        }
        heard = [[(e.seq, e.answer, getattr(e, "entered", ())) for e in one.drain()] for one in watchers]
        results.append((repr(said), [one.answer for one in watchers], heard, (batch.first_seq, batch.last_seq)))
    assert results[0][1][-1] == NOON
    for result in results[1:]:
        assert result == results[0]


def test_batches_have_consecutive_sequence_numbers() -> None:
    engine = engine_with()
    assert engine.seq == 0
    sizes = [3, 0, 1, 2]
    batches = [engine.upsert("T", [{"K": k, "N": k} for k in range(n)]) for n in sizes]
    batches.append(engine.delete("T", [0, 77, 0]))
    assert [(b.first_seq, b.last_seq, len(b)) for b in batches] == [
        (1, 3, 3),
        (4, 3, 0),
        (4, 4, 1),
        (5, 6, 2),
        (7, 9, 3),
    ]
    assert engine.seq == 9
    assert engine.rows("T") == 2


# --- life cycles -----------------------------------------------------------------------------------------------------


def test_a_closed_subscription_says_so_and_closing_twice_is_fine() -> None:
    engine = engine_with()
    subscription = engine.subscribe(MIN, 0, 9)
    states = [subscription.closed]
    with subscription as same:
        assert same is subscription
    subscription.close()
    states.append(subscription.closed)
    assert states == [False, True]
    assert "closed" in repr(subscription)
    for use in (lambda: subscription.answer, subscription.drain, lambda: subscription.pending):
        with pytest.raises(SubscriptionClosed, match="subscribe again"):
            use()
    assert engine.statistics() == {}


def test_a_channel_lives_while_somebody_wants_it() -> None:
    engine = engine_with()
    first, second = engine.subscribe(MIN, 0, 9), engine.subscribe(MIN, 1, 2)
    assert first.channel == second.channel == "MIN(Y) FROM T OVER X"
    assert engine.statistics()[first.channel].subscriptions == 2
    assert engine.open_channel(MIN) == first.channel
    first.close()
    second.close()
    assert engine.statistics()["MIN(Y) FROM T OVER X"].subscriptions == 0
    engine.close_channel("MIN(Y) FROM T OVER X")
    assert engine.statistics() == {}
    assert engine.upsert("T", {"K": 1, "N": 1}).messages == {}


def test_an_open_channel_describes_updates_without_subscribers() -> None:
    engine = engine_with()
    name = engine.open_channel(MIN)
    batch = engine.upsert("T", {"K": 1, "X": 3, "Y": 4, "N": 0})
    columns = batch.messages[name].columns
    assert {k: v.tolist() for k, v in columns.items()} == {
        "seq": [1],
        "NEWMIN": [4.0],
        "INNER_L": [3.0],
        "INNER_R": [3.0],
        "OUTER_L": [-math.inf],
        "OUTER_R": [math.inf],
    }
    assert "MIN(Y)" in repr(batch.messages[name])
    assert engine.statistics()[name].told == 0


def test_min_and_max_share_a_tree_and_part_in_any_order() -> None:
    engine = engine_with({"K": 1, "X": 1, "Y": 1})
    low, high = engine.subscribe(MIN, 0, 9), engine.subscribe(MAX, 0, 9)
    channels = {channel.name: channel for channel in engine._channels}
    keepers = [getattr(channel, "keeper") for channel in channels.values()]  # noqa: B009  (not on every channel)
    assert keepers[0] is keepers[1]
    engine.upsert("T", {"K": 2, "X": 2, "Y": 5, "N": 0})
    assert (low.answer, high.answer) == (1, 5)
    low.close()
    engine.upsert("T", {"K": 2, "Y": 0})
    assert high.answer == 1
    low = engine.subscribe(MIN, 0, 9)
    assert low.answer == 0
    high.close()
    engine.delete("T", 2)
    assert low.answer == 1
    assert [event.answer for event in low.drain()] == [1]


def test_a_table_in_use_cannot_be_dropped_and_a_new_one_of_its_name_is_new() -> None:
    engine = engine_with({"K": 1, "X": 1, "Y": 1})
    subscription = engine.subscribe(MIN, 0, 9)
    with pytest.raises(TableInUse, match=r"read by 1 open channel\(s\): MIN\(Y\) FROM T OVER X; close them first"):
        engine.execute("DROP TABLE T")
    subscription.close()
    engine.execute("DROP TABLE t")
    assert engine.tables == {}
    engine.execute("CREATE TABLE T (Y TEXT, X TIMESTAMP PRIMARY KEY)")
    assert engine.subscribe("SELECT DISTINCT Y FROM T WHERE X >= ?", NOON).answer == set()


def test_many_subscriptions_at_once_equal_as_many_single_ones() -> None:
    engine = engine_with(*({"K": k, "X": k % 7, "Y": k % 5, "P": "ab"[k % 2]} for k in range(40)))
    lows, highs = [0, 3, 5, 6, 2], [6, 3, 1, 9, 4]
    for sql in (MIN, MAX, ROWS, DISTINCT, COUNT, "SELECT SUM(Y) FROM T WHERE X > ? AND X < ?"):
        with engine.subscribe_many(sql, lows, np.array(highs)) as many:
            single = [engine.subscribe(sql, low, high) for low, high in zip(lows, highs, strict=True)]
            assert [one.answer for one in many] == [one.answer for one in single]
            engine.upsert("T", [{"K": k, "X": k % 6, "Y": k % 3, "N": 0} for k in range(0, 40, 3)])
            engine.delete("T", [1, 2, 3])
            assert [one.answer for one in many] == [one.answer for one in single]
            heard = [[[(e.seq, e.answer) for e in one.drain()] for one in group] for group in (many, single)]
            assert heard[0] == heard[1]
            assert many[-1] is many[4]
            with pytest.raises(IndexError):
                many[5]
        assert all(one.answer is not ... for one in single)
        with pytest.raises(SubscriptionClosed):
            many[0]
        for one in single:
            one.close()
    assert engine.statistics() == {}


def test_answers_of_many_come_as_a_column() -> None:
    engine = engine_with({"K": 1, "X": 1, "Y": 1}, {"K": 2, "X": 2, "Y": 0})
    with engine.subscribe_many(MIN, [0, 0, 5], [1, 9, 9]) as many:
        assert repr(many.answers.tolist()) == "[1.0, 0.0, nan]"
    with engine.subscribe_many(COUNT, [0, 0, 5], [1, 9, 9]) as many:
        assert many.answers.tolist() == [1, 2, 0]


@pytest.mark.parametrize("sql", [MIN, COUNT, ROWS, DISTINCT])
def test_subscriptions_may_be_looked_at_late(sql: str) -> None:
    """`subscribe_many` makes each subscription when asked for; what happened before that must not count twice.

    A collection that was not there to hear is resynchronised instead.
    """
    engine = engine_with({"K": 1, "X": 1, "Y": 1})
    with engine.subscribe_many(sql, [0], [9]) as many, engine.subscribe(sql, 0, 9) as single:
        engine.upsert("T", {"K": 2, "X": 2, "Y": 0, "N": 0})
        engine.delete("T", 1)
        assert many[0].answer == single.answer
        heard, missed = single.drain(), many[0].drain()
        if isinstance(missed[0], Resync):
            assert (len(missed), missed[0].seq, missed[0].answer) == (1, engine.seq, single.answer)
            assert many[0].dropped == missed[0].lost > 0
        else:
            assert [(e.seq, e.answer) for e in missed] == [(e.seq, e.answer) for e in heard]
        engine.upsert("T", {"K": 3, "X": 3, "Y": -1, "N": 0})
        assert many[0].answer == single.answer
        assert [(e.seq, e.answer) for e in many[0].drain()] == [(e.seq, e.answer) for e in single.drain()]


def test_one_of_many_may_be_closed_by_itself() -> None:
    engine = engine_with({"K": 1, "X": 1, "Y": 1})
    many = engine.subscribe_many(MIN, [0, 0, 0], [1, 2, 3])
    many[1].close()
    other = engine.subscribe(MIN, 0, 5)
    many.close()
    engine.upsert("T", {"K": 1, "Y": 0})
    assert other.answer == 0
    assert engine.statistics()[other.channel].subscriptions == 1
    other.close()
    assert engine.statistics() == {}


# --- overflow --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", [MIN, COUNT, ROWS, DISTINCT])
@pytest.mark.parametrize("look", [False, True], ids=["undisturbed", "answer read before"])
def test_a_subscription_nobody_drains_is_resynchronised_and_others_hear_all(sql: str, look: bool) -> None:
    engine = engine_with(event_limit=8)
    slow, brisk = engine.subscribe(sql, 0, 9), engine.subscribe(sql, 0, 9)
    heard = 0
    for i in range(50):
        engine.upsert("T", {"K": i, "X": 1, "Y": -i, "N": 0})
        events = brisk.drain()
        assert [event.seq for event in events] == [engine.seq]
        assert events[0].answer == brisk.answer
        heard += len(events)
    assert (heard, brisk.dropped) == (50, 0)
    if look:
        assert slow.answer == brisk.answer
    (resync,) = slow.drain()
    assert isinstance(resync, Resync)
    assert (resync.seq, resync.answer) == (50, brisk.answer)
    assert slow.answer == brisk.answer
    assert slow.dropped == resync.lost > 0
    assert slow.drain() == []
    engine.upsert("T", {"K": 99, "X": 1, "Y": -99, "N": 0})
    assert [event.seq for event in slow.drain()] == [51]
    assert slow.answer == brisk.answer


@pytest.mark.parametrize("sql", [MIN, COUNT, ROWS, DISTINCT])
@pytest.mark.parametrize("look", [False, True], ids=["undisturbed", "answer read before"])
def test_a_resync_counts_every_event_that_was_not_heard(sql: str, look: bool) -> None:
    engine = engine_with(event_limit=8)
    slow = engine.subscribe(sql, 0, 9)
    for i in range(20):
        engine.upsert("T", {"K": i, "X": 1, "Y": -i, "N": 0})
        if look and i in (3, 19):
            assert slow.answer is not None
    (resync,) = slow.drain()
    assert isinstance(resync, Resync)
    assert (resync.lost, slow.dropped) == (20, 20)


# --- exactness -------------------------------------------------------------------------------------------------------


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
        assert part.answer == math.fsum(inside) / len(inside)
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
        exact = float(sum(held, Fraction(0))) if held else None
        expected = [exact, None if exact is None else exact / len(held)]
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
    pairs = engine.subscribe("SELECT T.K FROM T JOIN S ON S.M - T.N BETWEEN ? AND ?", 0, 2**53)
    engine.upsert("T", {"K": 1, "N": -1})
    engine.upsert("S", {"K": 1, "M": 2**53})
    assert engine.query("SELECT T.K FROM T JOIN S ON S.M - T.N BETWEEN ? AND ?", 0, 2**53) == []
    assert pairs.answer == []


# --- bounded memory, and texts ---------------------------------------------------------------------------------------


def test_texts_that_come_and_go_do_not_fill_memory_and_partitions_stay_right() -> None:
    engine = engine_with({"K": 0, "X": 1, "Y": 7, "P": "stays"})
    waiting = engine.subscribe("SELECT MIN(Y) FROM T WHERE P = ?", "comes at last")
    stays = engine.subscribe("SELECT MIN(Y) FROM T WHERE P = ?", "stays")
    rows = engine.subscribe("SELECT K, P FROM T WHERE P = ? AND X < ?", "comes at last", 5)
    distinct = engine.subscribe("SELECT DISTINCT P FROM T WHERE X BETWEEN ? AND ?", 0, 9)
    sizes = []
    for round_ in range(30):
        texts = [f"{round_}-{i}" for i in range(1000)]
        engine.upsert(
            "T", {"K": list(range(1, 1001)), "X": [1.0] * 1000, "Y": [1.0] * 1000, "N": [0] * 1000, "P": texts}
        )
        distinct.drain()
        assert distinct.answer == {"stays", *texts}
        assert (waiting.answer, stays.answer, rows.answer) == (None, 7, [])
        sizes.append((len(engine._interner), engine.memory_bytes()))
    assert max(size for size, _ in sizes) < 8000
    assert sizes[-1][1] < 2 * sizes[9][1]
    engine._interner.check_invariants()
    engine.upsert("T", {"K": 5, "Y": -1, "P": "comes at last"})
    assert (waiting.answer, stays.answer, rows.answer) == (-1, 7, [(5, "comes at last")])


@pytest.mark.parametrize("function", ["MIN", "MAX", "COUNT", "DISTINCT", "rows"])
def test_partitions_of_two_columns_survive_sweeps_although_no_row_is_in_them(function: str) -> None:
    engine = engine_with()
    what = {"DISTINCT": "DISTINCT Y", "rows": "Y"}.get(function, f"{function}(Y)")
    by = "FROM T WHERE X BETWEEN 0 AND 9 AND P = ? AND N = ?"
    others = [engine.subscribe(f"SELECT {f}(Y) {by}", "other", 1) for f in ("MIN", "MAX")]  # share the tree
    waiting = engine.subscribe(f"SELECT {what} {by}", "comes at last", 3)
    for round_ in range(12):
        texts = [f"{round_}-{i}" for i in range(1000)]
        numbers = list(range(1000))
        engine.upsert("T", {"K": numbers, "X": [1.0] * 1000, "Y": [1.0] * 1000, "N": numbers, "P": texts})
    engine.upsert("T", {"K": 5, "Y": 4, "N": 3, "P": "comes at last"})
    expected = {"COUNT": 1, "DISTINCT": {4.0}, "rows": [(4.0,)]}.get(function, 4.0)
    assert waiting.answer == expected
    assert [event.answer for event in waiting.drain()] == [expected]
    assert [one.answer for one in others] == [None, None]


def test_partitions_of_numbers_that_come_and_go_do_not_fill_memory() -> None:
    engine = engine_with()
    engine.execute("CREATE TABLE S (K INTEGER PRIMARY KEY, A INTEGER, B INTEGER, Y REAL)")
    channel = engine.subscribe("SELECT MIN(Y) FROM S WHERE A = ? AND B = ? AND Y > 0", 1, 2)
    numbers = np.arange(1000)
    for round_ in range(30):
        engine.upsert("S", {"K": numbers, "A": numbers + 1000 * round_, "B": numbers, "Y": numbers + 1.0})
    assert channel.answer is None
    keepers = [getattr(one, "keeper") for one in engine._channels]  # noqa: B009  (not on every channel)
    assert len(keepers[0].grouping._combinations) < 12_000


@pytest.mark.parametrize("text", ["a\0b", "x" * 70_000], ids=["NUL", "long"])
def test_a_text_no_row_can_hold_is_refused_or_never_found(text: str) -> None:
    engine = engine_with({"K": 1, "X": 1, "Y": 1, "P": "a"})
    try:
        subscription = engine.subscribe("SELECT MIN(Y) FROM T WHERE P = ?", text)
    except hullcast.UsageError:
        assert engine.statistics() == {}, "a refused subscription opens no channel"
    else:
        assert subscription.answer is None


def test_a_channel_that_cannot_be_opened_is_not_held() -> None:
    engine = engine_with()
    engine.execute("CREATE TABLE S (K INTEGER PRIMARY KEY, M INTEGER)")
    with pytest.raises(BadParameter):
        engine.open_channel("SELECT T.K FROM T JOIN S ON S.M - T.N BETWEEN ? AND ?")
    assert engine.statistics() == {}
    engine.execute("DROP TABLE S")


def test_only_a_band_needs_parameters_to_open_its_channel() -> None:
    engine = engine_with()
    engine.execute("CREATE TABLE S (K INTEGER PRIMARY KEY, M INTEGER)")
    name = engine.open_channel("SELECT T.K FROM T JOIN S ON S.M = T.N WHERE T.X BETWEEN ? AND ?")
    assert list(engine.statistics()) == [name]
    engine.upsert("S", {"K": 1, "M": 4})
    assert len(engine.upsert("T", {"K": 1, "N": 4, "X": 1}).messages[name]) == 1


@pytest.mark.parametrize(("on", "bound"), [("ABS(S.Y - T.Y) < ?", math.inf), ("S.Y - T.Y >= ?", -1e308)])
def test_bands_as_wide_as_all_numbers_need_no_warning(on: str, bound: float) -> None:
    engine = engine_with({"K": 1, "Y": -1.7e308}, {"K": 2, "Y": 0.0}, {"K": 3, "Y": 1.7e308})
    engine.execute("CREATE TABLE S (K INTEGER PRIMARY KEY, Y REAL)")
    sql = f"SELECT T.K, S.K FROM T JOIN S ON {on}"
    early = engine.subscribe(sql, bound)
    engine.upsert("S", {"K": [1, 2, 3], "Y": [1.7e308, 0.0, -1.7e308]})
    expected = sorted(tuple(row) for row in engine.query(sql, bound))
    assert [tuple(row) for row in early.answer] == expected
    assert [tuple(row) for row in engine.subscribe(sql, bound).answer] == expected


def test_statistics_count_what_was_told_and_what_waits() -> None:
    engine = engine_with()
    one, other = engine.subscribe(MIN, 0, 5), engine.subscribe(MIN, 5, 9)
    engine.upsert("T", [{"K": 1, "X": 1, "Y": 5, "N": 0}, {"K": 2, "X": 5, "Y": 1, "N": 0}, {"K": 3, "N": 0}])
    statistics = engine.statistics()[one.channel]
    assert (statistics.updates, statistics.ignorable, statistics.easy, statistics.difficult) == (3, 1, 2, 0)
    assert (statistics.messages, statistics.subscriptions, statistics.told, statistics.waiting) == (2, 2, 3, 3)
    assert statistics.memory_bytes > 0
    assert (one.pending, other.pending) == (2, 1)
    assert [event.answer for event in one.drain()] == [5, 1]
    assert engine.statistics()[one.channel].waiting == 1
