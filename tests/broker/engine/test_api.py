"""The engine's contract with its callers: what is refused and how, forms of rows, life cycles."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from datetime import timedelta
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
from tests.support.engines import COUNT, DISTINCT, MAX, MIN, NOON, ROWS, engine_with


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda e: e.execute("CREATE TABLE t (K INTEGER PRIMARY KEY)"),
            DuplicateTable,
            ["T already exists", "IF NOT EXISTS"],
        ),
        (
            lambda e: e.execute("CREATE TABLE IF NOT EXISTS t (K INTEGER PRIMARY KEY)"),
            DuplicateTable,
            ["table T exists with another definition", "it also has a column X (REAL)"],
        ),
        (lambda e: e.query("SELECT * FROM T WHERE X > %s", 5), SqlError, ["`%s`: parameters are written as ?"]),
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
        (lambda e: e.upsert("T", 7), BadBatch, ["int is not a batch of rows", "list of dicts"]),
        (lambda e: e.upsert("T", {"K": [1, 2], "X": [1.0]}), BadBatch, ["X has 1 values", "K has 2"]),
        (lambda e: e.upsert("T", [{"X": 1.0}]), BadValue, ["row 0, column K", "nothing was applied"]),
        (lambda e: e.upsert("T", {"K": 9}), BadValue, ["column N", "NOT NULL"]),
        (lambda e: e.upsert("T", {"K": 9, "N": None}), BadValue, ["column N", "NOT NULL"]),
        (
            lambda e: e.upsert("T", {"K": 9, "N": 1, "X": math.nan}),
            BadValue,
            ["column X", 'NaN is not allowed; upsert(.., nan="null")'],
        ),
        (lambda e: e.upsert("T", {"K": 9, "N": 1, "Y": math.inf}), BadValue, ["column Y", "inf is not allowed"]),
        (lambda e: e.upsert("T", {"K": 9, "N": 1.5}), BadValue, ["column N", "a whole number, got 1.5"]),
        (lambda e: e.upsert("T", {"K": 9, "N": 2**53 + 1}), BadValue, ["column N", "2**53"]),
        (lambda e: e.upsert("T", {"K": 9, "N": "1"}), BadValue, ["column N", "got str '1'"]),
        (
            lambda e: e.upsert("T", {"K": 9, "N": True}),
            BadValue,
            ["column N", "got bool True; publish int() of it, which is 1"],
        ),
        (lambda e: e.upsert("T", {"K": 9, "N": 1, "P": 5}), BadValue, ["column P", "TEXT takes str, got int 5"]),
        (lambda e: e.upsert("T", {"K": 9, "N": 1, "P": 10**5000}), BadValue, ["column P", "got int; nothing"]),
        (lambda e: e.upsert("T", {"K": 9, "N": 1, "P": "a\0"}), BadValue, ["column P", "NUL"]),
        (lambda e: e.upsert("T", {"K": 9, "N": 1, "W": "noon"}), BadValue, ["column W", "ISO-8601"]),
        (lambda e: e.delete("T", ["1"]), BadValue, ["column K", "got str"]),
        (lambda e: e.subscribe(MIN, 1), BadParameter, ["takes 2 parameters (X (REAL), X (REAL)), got 1"]),
        (lambda e: e.subscribe(MIN, 1, 2, 3), BadParameter, ["takes 2 parameters", "got 3"]),
        (lambda e: e.subscribe(MIN, 1, "2"), BadParameter, ["parameter 2", "X (REAL) takes a number, got str"]),
        (lambda e: e.subscribe(MIN, None, 2), BadParameter, ["parameter 1", "never true"]),
        (lambda e: e.subscribe(MIN, math.nan, 2), BadParameter, ["parameter 1", "NaN"]),
        (lambda e: e.subscribe("SELECT MIN(Y) FROM T WHERE P = ?", 3), BadParameter, ["P (TEXT) takes a str"]),
        (lambda e: e.subscribe("SELECT MIN(Y) FROM T WHERE W > ?", 3), BadParameter, ["W (TIMESTAMP)"]),
        (lambda e: e.subscribe_many(MIN, [1, 2], [3]), BadParameter, ["parameter 2", "1 values"]),
        (lambda e: e.subscribe("SELECT MIN(P) FROM T"), SqlError, ["MIN of P (TEXT) is not supported"]),
        (lambda e: e.subscribe("SELECT SUM(W) FROM T"), SqlError, ["SUM of W (TIMESTAMP) is not supported"]),
        (lambda e: e.subscribe("SELECT MIN(Y) FROM T WHERE X > 1 AND N > 2"), SqlError, ["range on one column"]),
        (lambda e: e.subscribe("SELECT MIN(Y) FROM T WHERE X > 1 OR X < 0"), SqlError, ["one subscription for each"]),
        (lambda e: e.subscribe("SELECT MIN(Y) FROM T GROUP BY P"), SqlError, ["GROUP BY is not supported"]),
        (lambda e: e.subscribe("SELECT K FROM T ORDER BY K"), SqlError, ["in key order"]),
        (lambda e: e.subscribe("SELECT K FROM T LIMIT 1"), SqlError, ["LIMIT is not supported"]),
        (lambda e: e.subscribe("DELETE FROM T"), SqlError, ["DELETE is not supported; use engine.delete(table, keys)"]),
        (lambda e: e.subscribe("SELECT FROM"), SqlError, ["accepted: SELECT"]),
        (lambda e: e.query("DELETE FROM T"), SqlError, ["DELETE is not supported; use engine.delete(table, keys)"]),
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


def test_a_table_is_created_if_missing_and_dropped_if_there() -> None:
    engine = Engine()
    engine.execute("DROP TABLE IF EXISTS T")
    for _ in range(2):
        engine.execute("CREATE TABLE IF NOT EXISTS T (K INTEGER PRIMARY KEY, P TEXT NOT NULL, X REAL)")
        engine.execute("create table if not exists t (k INT, p VARCHAR(9) NOT NULL, x DOUBLE, PRIMARY KEY (K))")
        engine.upsert("T", {"K": 1, "P": "a", "X": 1.5})
    assert engine.rows("T") == 1
    with engine.subscribe("SELECT MIN(X) FROM T"), pytest.raises(TableInUse):
        engine.execute("DROP TABLE IF EXISTS T")
    engine.execute("DROP TABLE IF EXISTS T")
    with pytest.raises(UnknownTable):
        engine.execute("DROP TABLE T")


@pytest.mark.parametrize(
    ("columns", "difference"),
    [
        ("K INTEGER PRIMARY KEY, P TEXT NOT NULL", "it also has a column X (REAL)"),
        ("K INTEGER PRIMARY KEY, P TEXT NOT NULL, X REAL, Y REAL", "it has no column Y"),
        ("K INTEGER PRIMARY KEY, P TEXT NOT NULL, X INTEGER", "its column X is REAL, not INTEGER"),
        ("K INTEGER PRIMARY KEY, P TEXT, X REAL", "its column P is TEXT NOT NULL, not TEXT"),
        ("K INTEGER NOT NULL, P TEXT PRIMARY KEY, X REAL", "its primary key is K, not P"),
        ("K INTEGER PRIMARY KEY, X REAL, P TEXT NOT NULL", "its columns are in another order: K, P, X"),
    ],
)
def test_a_table_that_exists_with_another_definition_is_an_error_that_says_what_differs(
    columns: str, difference: str
) -> None:
    engine = Engine()
    engine.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, P TEXT NOT NULL, X REAL)")
    with pytest.raises(DuplicateTable) as caught:
        engine.execute(f"CREATE TABLE IF NOT EXISTS t ({columns})")
    assert str(caught.value) == (
        f"table T exists with another definition: {difference}; "
        "change the statement, choose another name or DROP TABLE T"
    )


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
    assert "inf is not allowed" in caught.value.reason
    after = (engine.seq, engine.statistics(), [one.answer for one in watchers], len(engine._interner))
    assert after == before
    assert [one.drain() for one in watchers] == [[]] * len(watchers)
    assert engine.query("SELECT K, X FROM T") == [(1, 1.0)]


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
    with pytest.raises(
        TableInUse, match=r"table T is in use by subscriptions to MIN\(Y\) FROM T OVER X; close them first"
    ):
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


def test_an_engine_that_failed_half_way_says_so_instead_of_answering(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_with({"K": 1, "X": 1})
    count, many = engine.subscribe(COUNT, 0, 9), engine.subscribe_many(COUNT, [0], [9])

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hullcast.broker.reformulate.aggregate.AggregateChannel.update", fail)
    with pytest.raises(KeyboardInterrupt):
        engine.upsert("T", {"K": 2, "X": 2, "N": 0})
    calls: list[Callable[[], object]] = [
        lambda: count.answer,
        count.drain,
        lambda: many.answers,
        engine.statistics,
        lambda: engine.upsert("T", {"K": 3, "N": 0}),
        lambda: engine.subscribe(MIN, 0, 9),
    ]
    for call in calls:
        with pytest.raises(hullcast.InvariantBroken, match="KeyboardInterrupt in the batch from update 2"):
            call()
