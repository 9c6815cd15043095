"""Nothing grows without bound: events that nobody drains, texts and groups that come and go."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import hullcast
from hullcast import (
    BadParameter,
    Change,
    Resync,
)
from tests.support.engines import COUNT, DISTINCT, MIN, ROWS, engine_with


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
    assert len(keepers[0].grouping) < 12_000


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
        engine.open_channel("SELECT T.K FROM T JOIN S ON S.M - T.N BETWEEN ? AND ?", 1)
    assert engine.statistics() == {}
    engine.execute("DROP TABLE S")


@pytest.mark.parametrize(
    ("query", "outside"),
    [
        ("FROM T JOIN S ON S.M = T.N WHERE T.X BETWEEN ? AND ?", {"X": 7}),
        ("FROM T JOIN S ON S.M - T.N BETWEEN ? AND ?", {"N": 1}),
        ("FROM T JOIN S ON S.M = T.N WHERE T.X BETWEEN ? AND ? AND T.P = 'a'", {"P": "b"}),
        ("FROM T JOIN S ON S.M - T.N BETWEEN ? AND ? WHERE T.P = 'a' AND S.K = 1", {"P": "b"}),
    ],
)
def test_an_open_channel_describes_the_range_of_its_parameters_or_all_pairs(query: str, outside: Any) -> None:
    engine = engine_with()
    engine.execute("CREATE TABLE S (K INTEGER PRIMARY KEY, M INTEGER)")
    engine.upsert("S", {"K": 1, "M": 4})
    sql = f"SELECT T.K, S.K {query}"
    row = {"K": 1, "N": 4, "X": 1, "P": "a"}
    for _ in range(2):
        name = engine.open_channel(sql, 0, 1)
        assert list(engine.statistics()) == [name]
        assert len(engine.upsert("T", row).messages[name]) == 1
        assert len(engine.upsert("T", row | outside | {"K": 2}).messages[name]) == 0
        assert engine.open_channel(sql) == name
        assert len(engine.upsert("T", row | outside | {"K": 3}).messages[name]) == 1
        engine.close_channel(name)
        assert [len(engine.delete("T", key).messages[name]) for key in (1, 2, 3)] == [1, 0, 0]
        engine.close_channel(name)
        assert engine.statistics() == {}


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


def test_a_subscription_that_never_drains_does_not_hold_what_others_drained() -> None:
    engine = engine_with({"K": 1, "X": 0})
    idle = engine.subscribe(ROWS, -1, 1)
    busy = engine.subscribe(ROWS, 10, 1e9)
    engine.upsert("T", {"K": 1, "X": 0.5, "Y": 1})
    for i in range(5000):
        engine.upsert("T", {"K": 2, "X": 20 + i, "Y": i, "N": 0})
        busy.drain()
    outbox = idle._outbox
    outbox.check()
    assert len(outbox) == 1
    assert sum(map(len, outbox._chunks)) <= 1024
    (change,) = idle.drain()
    assert isinstance(change, Change)
    assert change.changed == (((1, None), (1, 1.0)),)
