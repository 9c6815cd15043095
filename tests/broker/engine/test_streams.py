"""Streams in an embedded engine: appending, what is refused, retention, events; and the order by itself."""

from __future__ import annotations

import numpy as np
import pytest

from hullcast import (
    BadBatch,
    BadSetting,
    BadValue,
    Engine,
    InvariantBroken,
    Resync,
    SqlError,
    StreamTuple,
    TableInUse,
    UsageError,
)
from hullcast.broker.sql.create import CreateTable, parse_statement
from hullcast.broker.tables.stream import StreamOrder
from tests.support.stream_oracle import moment

TRADES = "CREATE STREAM TRADES (TS TIMESTAMP, SYMBOL TEXT, PRICE REAL)"


@pytest.fixture
def engine() -> Engine:
    found = Engine()
    found.execute(TRADES)
    return found


def test_a_tuple_has_its_sequence_number_as_its_position(engine: Engine) -> None:
    engine.execute("CREATE TABLE T (K INTEGER PRIMARY KEY)")
    engine.upsert("T", {"K": [1, 2, 3]})
    engine.upsert("TRADES", [{"TS": moment(1), "SYMBOL": "a", "PRICE": 1.0}, {"TS": moment(1), "PRICE": 2.0}])
    engine.upsert("trades", {"ts": [moment(2)]})
    rows = engine.query("SELECT POSITION, SYMBOL, PRICE FROM TRADES ORDER BY POSITION")
    assert list(map(tuple, rows)) == [(4, "a", 1.0), (5, None, 2.0), (6, None, None)]


def test_equal_tuples_are_all_kept(engine: Engine) -> None:
    for _ in range(3):
        engine.upsert("TRADES", {"TS": [moment(1)] * 2, "PRICE": [1.0, 1.0]})
    assert engine.rows("TRADES") == 6


def test_what_cannot_be_appended_is_refused_as_a_whole(engine: Engine) -> None:
    with pytest.raises(BadBatch, match="POSITION is assigned by the server"):
        engine.upsert("TRADES", {"TS": [moment(1)], "position": [7]})
    with pytest.raises(BadValue, match="column TS: a tuple needs a value here"):
        engine.upsert("TRADES", [{"TS": moment(1)}, {"PRICE": 1.0}])
    with pytest.raises(BadValue, match="row 0, column TS"):
        engine.upsert("TRADES", {"PRICE": 1.0})
    with pytest.raises(BadValue, match="row 1, column PRICE"):
        engine.upsert("TRADES", {"TS": [moment(1)] * 2, "PRICE": [1.0, "x"]})
    assert (engine.rows("TRADES"), engine.seq) == (0, 0)


def test_tuples_cannot_be_deleted(engine: Engine) -> None:
    engine.upsert("TRADES", {"TS": moment(1)})
    with pytest.raises(UsageError, match="TRADES is a stream: its tuples cannot be deleted"):
        engine.delete("trades", 1)
    assert engine.rows("TRADES") == 1


def test_a_stream_that_a_window_reads_is_not_dropped(engine: Engine) -> None:
    with engine.subscribe("SELECT COUNT(*) FROM TRADES [ROWS 5]"), pytest.raises(TableInUse):
        engine.execute("DROP STREAM TRADES")
    with engine.subscribe("SELECT * FROM TRADES"), pytest.raises(TableInUse):
        engine.execute("DROP STREAM TRADES")
    engine.execute("DROP STREAM TRADES")


def test_the_oldest_tuples_go_when_there_are_an_eighth_too_many() -> None:
    engine = Engine()
    engine.execute(f"{TRADES} WITH (retain_rows = 10000)")
    most = 0
    for start in range(0, 40_000, 500):
        engine.upsert("TRADES", {"TS": [moment(start + i) for i in range(500)]})
        most = max(most, engine.rows("TRADES"))
    assert 10_000 < most <= 11_250 + 500
    assert engine.rows("TRADES") >= 10_000
    oldest = engine.query("SELECT MIN(POSITION), MAX(POSITION), COUNT(*) FROM TRADES")[0]
    assert tuple(oldest)[1] - engine.seq <= 0
    assert tuple(oldest)[2] == engine.rows("TRADES")


def test_tuples_go_by_time_when_the_streams_time_has_left_them_behind() -> None:
    engine = Engine()
    engine.execute(f"{TRADES} WITH (retain = '10s')")
    engine.upsert("TRADES", {"TS": [moment(second) for second in range(5)]})
    engine.progress("TRADES", moment(12).isoformat())
    assert [row.PRICE for row in engine.query("SELECT * FROM TRADES")] == [None] * 3
    engine.upsert("TRADES", {"TS": moment(0)})  # late, and counts as of 12
    engine.progress("TRADES", moment(22))
    assert engine.rows("TRADES") == 1
    engine.progress("TRADES", moment(21))
    engine.progress("TRADES", moment(23))
    assert engine.rows("TRADES") == 0


def test_only_a_stream_with_a_time_has_progress(engine: Engine) -> None:
    engine.execute("CREATE STREAM CLICKS (PAGE TEXT)")
    engine.execute("CREATE TABLE T (K INTEGER PRIMARY KEY)")
    with pytest.raises(SqlError, match="no TIMESTAMP column"):
        engine.progress("CLICKS", moment(1))
    with pytest.raises(SqlError, match="it is a table, not a stream"):
        engine.progress("T", moment(1))
    with pytest.raises(BadSetting, match="timestamp"):
        engine.progress("TRADES", "soon")


def test_a_filter_gets_each_tuple_as_a_named_row(engine: Engine) -> None:
    subscription = engine.subscribe("SELECT SYMBOL AS s, PRICE FROM TRADES WHERE PRICE > ?", 1)
    engine.upsert("TRADES", {"TS": [moment(1)] * 3, "SYMBOL": ["a", "b", "c"], "PRICE": [1.0, 2.0, 3.0]})
    events = subscription.drain()
    assert events == [StreamTuple(2, ("b", 2.0)), StreamTuple(3, ("c", 3.0))]
    assert isinstance(events[0], StreamTuple)
    assert (events[0].row.s, events[0].row.PRICE) == ("b", 2.0)
    assert subscription.drain() == []
    with pytest.raises(UsageError, match="it has no answer"):
        _ = subscription.answer


def test_many_filters_are_one_channel_and_begin_where_they_want(engine: Engine) -> None:
    engine.upsert("TRADES", {"TS": [moment(1)] * 100, "PRICE": [float(i) for i in range(100)]})
    lows = [float(i) for i in range(100)]
    many = engine.subscribe_many("SELECT PRICE FROM TRADES WHERE PRICE BETWEEN ? AND ?", lows, lows, after=50)
    assert [[event.row.PRICE for event in one.drain() if isinstance(event, StreamTuple)] for one in many] == [
        [price] if price >= 50 else [] for price in lows
    ]
    assert len(engine.statistics()) == 1


def test_an_event_that_did_not_fit_leaves_a_resync_before_the_others() -> None:
    engine = Engine(event_limit=4)
    engine.execute(TRADES)
    subscription = engine.subscribe("SELECT PRICE FROM TRADES")
    engine.upsert("TRADES", {"TS": [moment(1)] * 6, "PRICE": [float(i) for i in range(6)]})
    assert subscription.drain() == [Resync(2, None, 2), *(StreamTuple(i + 1, (float(i),)) for i in range(2, 6))]
    assert subscription.dropped == 2


def test_only_filters_over_a_stream_begin_at_a_position(engine: Engine) -> None:
    engine.execute("CREATE TABLE T (K INTEGER PRIMARY KEY)")
    for sql in ("SELECT * FROM T", "SELECT COUNT(*) FROM TRADES [ROWS 5]"):
        with pytest.raises(BadSetting, match="only a subscription to the tuples of a stream"):
            engine.subscribe(sql, after=0)
    with pytest.raises(BadSetting, match="must be a position"):
        engine.subscribe("SELECT * FROM TRADES", after=-1)


def test_tuples_of_one_batch_pass_a_small_window_one_by_one(engine: Engine) -> None:
    subscription = engine.subscribe("SELECT SUM(PRICE) FROM TRADES [ROWS 2]")
    engine.upsert("TRADES", {"TS": [moment(1)] * 5, "PRICE": [1.0, 2.0, 4.0, 8.0, 16.0]})
    assert [(event.seq, event.answer) for event in subscription.drain() if not isinstance(event, StreamTuple)] == [
        (1, 1.0),
        (2, 3.0),
        (3, 6.0),
        (4, 12.0),
        (5, 24.0),
    ]


def test_tuples_leave_a_range_window_by_updates_of_their_own(engine: Engine) -> None:
    subscription = engine.subscribe("SELECT COUNT(*) FROM TRADES [RANGE '10s']")
    engine.upsert("TRADES", {"TS": [moment(0), moment(1)]})
    engine.upsert("TRADES", {"TS": moment(11)})  # 3; the tuple of 0 s leaves as update 4
    assert (engine.seq, subscription.answer) == (4, 2)  # that of 1 s is just 10 s old
    engine.progress("TRADES", moment(11.5))  # 5
    engine.upsert("TRADES", {"TS": moment(2)})  # 6: late, counts as of 11.5
    found = [(event.seq, event.answer) for event in subscription.drain() if not isinstance(event, StreamTuple)]
    assert found == [(1, 1), (2, 2), (3, 3), (4, 2), (5, 1), (6, 2)]
    assert engine.seq == 6


def test_a_table_may_be_called_like_a_window(engine: Engine) -> None:
    engine.execute('CREATE TABLE "TRADES [ROWS 5]" (K INTEGER PRIMARY KEY, PRICE REAL)')
    subscription = engine.subscribe("SELECT COUNT(*) FROM TRADES [ROWS 5]")
    engine.upsert("TRADES [ROWS 5]", {"K": [1, 2], "PRICE": [1.0, 2.0]})
    assert subscription.answer == 0
    engine.upsert("TRADES", {"TS": moment(1)})
    assert subscription.answer == 1


def test_what_many_wide_filters_begin_with_is_in_order(engine: Engine) -> None:
    prices = [float(price) for price in (7, 3, 9, 1, 8, 2, 6, 4, 0, 5)]
    engine.upsert("TRADES", {"TS": [moment(1)] * 10, "PRICE": prices})
    lows = [float(low) for low in range(20)]
    many = engine.subscribe_many("SELECT PRICE FROM TRADES WHERE PRICE >= ?", lows, after=2)
    for low, one in zip(lows, many, strict=True):
        expected = [StreamTuple(at, (price,)) for at, price in enumerate(prices, 1) if at > 2 and price >= low]
        assert one.drain() == expected


def test_a_tuple_that_is_told_again_is_not_heard_again(engine: Engine) -> None:
    subscription = engine.subscribe("SELECT PRICE FROM TRADES WHERE PRICE > 0", after=0)
    batch = engine.upsert("TRADES", {"TS": [moment(1)] * 3, "PRICE": [1.0, 2.0, 3.0]})
    (channel,) = engine._channels
    channel.tell(batch.messages[channel.name])
    assert [event.seq for event in subscription.drain()] == [1, 2, 3]


def order_of(*times: float, positions: list[int]) -> StreamOrder:
    """The order of a stream with these tuples."""
    statement = parse_statement("CREATE STREAM S (TS TIMESTAMP)")
    assert isinstance(statement, CreateTable)
    order = StreamOrder(statement.table)
    order.append(np.array([times, positions], np.float64))
    return order


def test_a_heartbeat_right_behind_the_last_tuple_removed_still_counts_for_those_behind_it() -> None:
    order = order_of(0.0, positions=[1])
    assert order.advance(10.0, 1)
    order.append(np.array([[5.0], [2.0]]))
    assert order.times.tolist() == [0.0, 10.0]
    order.remove(np.array([1.0]))
    again = order_of(positions=[])
    again.restored(np.array([[5.0], [2.0]]), order.removed, list(order.marks), [])
    assert (again.times.tolist(), again.time) == ([10.0], 10.0)


def test_the_marks_of_heartbeats_do_not_grow_while_no_tuple_comes() -> None:
    order = order_of(0.0, positions=[1])
    for time in range(1, 100):
        assert order.advance(float(time), time)
    assert list(order.marks) == [(99, 99.0)]
    assert not order.advance(99.0, 200)
    order.append(np.array([[500.0], [300.0]]))
    order.remove(np.array([1.0]))
    assert list(order.marks) == [(1, 0.0), (99, 99.0)]


def test_positions_that_do_not_rise_are_a_bug() -> None:
    order = order_of(0.0, 1.0, positions=[4, 7])
    with pytest.raises(InvariantBroken, match="T1"):
        order.append(np.array([[2.0], [7.0]]))
    with pytest.raises(InvariantBroken, match="T4"):
        order.remove(np.array([7.0]))
