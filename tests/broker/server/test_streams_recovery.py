"""Streams through the server's office, its log and its checkpoints: after a crash all is as it was, to the position."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.log.history import Life
from hullcast.broker.log.record import RecordKind
from hullcast.broker.log.recovery import DataDirectory, open_directory
from hullcast.broker.log.source import TableSource
from hullcast.broker.server import changing as changing_module
from hullcast.broker.server.changing import apply_record
from hullcast.broker.server.outcome import Outcome
from hullcast.broker.server.retention import concerned
from hullcast.broker.sql.create import advance_text
from hullcast.broker.streams.batch import END, TupleBatch
from hullcast.broker.streams.messages import MadeTuples
from hullcast.broker.tables import stream as stream_module
from hullcast.broker.tables import windows as windows_module
from hullcast.broker.tables.ingest import ingest
from hullcast.broker.tables.interning import Interner, Texts
from hullcast.broker.tables.schema import Table
from hullcast.broker.tables.travel import valued
from hullcast.network.security.rights import Rights
from hullcast.network.wire import bodies
from hullcast.network.wire.arrays import Floats
from hullcast.network.wire.values import keys_to_column, rows_to_columns, to_list
from tests.broker.server.test_deciding import KEY, ME, Desk, refusal, subscribed
from tests.support.durable import captured, crash
from tests.support.stream_oracle import moment

TRADES = "CREATE STREAM TRADES (TS TIMESTAMP, SYMBOL TEXT, PRICE REAL) WITH (retain_rows = 6, retain = '5s')"
WINDOW = "SELECT COUNT(*) FROM TRADES [RANGE '2s']"

seconds = st.integers(0, 12)
tuples = st.tuples(seconds, st.none() | st.sampled_from("ab"), st.none() | st.just(1.0))
steps = st.one_of(
    st.tuples(st.just("publish"), st.lists(tuples, min_size=1, max_size=5)),
    st.tuples(st.just("advance"), seconds),
    st.tuples(st.sampled_from(["checkpoint", "crash", "watch", "settle"]), st.none()),
)


@pytest.fixture(autouse=True)
def remove_often() -> Iterator[None]:
    with (
        patch.object(stream_module, "FEWEST_OVER", 2),
        patch.object(stream_module, "REMOVED_AT_ONCE", 3),
        patch.object(windows_module, "MOVED_AT_ONCE", 2),
        patch.object(changing_module, "SETTLED_AT_ONCE", 1),
    ):
        yield


class Durable:
    """An office over a data directory, whose outcomes go to the log at once."""

    def __init__(self, path: Path) -> None:
        self.path, self.number = path, 0
        self.open()

    def open(self) -> None:
        self.data: DataDirectory = open_directory(self.path, ServedEngine(), apply_record)
        with patch("tests.broker.server.test_deciding.ServedEngine", lambda: self.data.engine):
            self.desk = Desk(publishers=self.data.publishers)

    def keep(self, outcome: Outcome) -> Outcome:
        for one in (outcome, *outcome.then):
            if one.entry is not None:
                kind, payload, first, count, publisher, number = one.entry
                self.data.log.append(
                    kind, payload, first=first, count=count, publisher=publisher, publisher_number=number
                )
        assert self.data.log.seq == self.data.engine.seq
        self.data.log.write_and_sync()
        return outcome

    def execute(self, sql: str) -> Outcome:
        self.number += 1
        return self.keep(self.desk.ask(bodies.Execute(sql, ME, self.number)))

    def publish(self, rows: Any) -> Outcome:
        self.number += 1
        columns, absent = rows_to_columns(rows)
        return self.keep(self.desk.ask(bodies.Publish("TRADES", columns, absent, ME, self.number)))

    def settle(self) -> bool:
        """Let some tuples go that must; whether there were any."""
        outcomes = self.desk.office.changing.settle(0.0)
        if outcomes:
            self.keep(replace(outcomes[0], then=tuple(outcomes[1:])))
        return bool(outcomes)

    def crash(self) -> None:
        crash(self.data)
        self.data._lock.release()
        self.open()

    def state(self) -> Any:
        """All that is known of the stream."""
        order = self.data.engine.streams["trades"].order
        store = self.data.engine.streams["trades"].store
        order.check(store.cells[:, store.live_slots()])
        rows = sorted(map(tuple, self.data.engine.query("SELECT POSITION, TS, SYMBOL, PRICE FROM TRADES")))
        return (
            order.positions.tolist(),
            order.times.tolist(),
            order.time,
            order.removed,
            store.created,
            self.data.engine.seq,
            rows,
        )


def given_rows(rows: list[tuple[int, str | None, float | None]]) -> list[dict[str, Any]]:
    return [{"TS": moment(second), "SYMBOL": symbol, "PRICE": price} for second, symbol, price in rows]


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=14))
def test_after_a_crash_a_stream_is_as_it_was(several: list[tuple[str, Any]]) -> None:
    with TemporaryDirectory() as name:
        server = Durable(Path(name))
        server.execute("CREATE TABLE OTHER (K INTEGER PRIMARY KEY)")
        server.execute(TRADES)
        for what, value in several:
            if what == "publish":
                server.publish(given_rows(value))
            elif what == "advance":
                server.execute(advance_text("TRADES", moment(value).timestamp() * 1e6))
            elif what == "checkpoint":
                server.data.write_checkpoint(captured(server.data))
            elif what == "watch":
                server.desk.subscribe(WINDOW)
            elif what == "settle":
                server.settle()
            else:
                before = server.state()
                server.crash()
                assert server.state() == before
        before = server.state()
        server.crash()
        assert server.state() == before
        server.data.close()


def test_the_log_has_tuples_with_their_positions_and_removals_as_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changing_module, "SETTLED_AT_ONCE", 100)
    monkeypatch.setattr(windows_module, "MOVED_AT_ONCE", 100)
    server = Durable(tmp_path)
    server.execute(TRADES)
    server.desk.subscribe(WINDOW)
    whole = server.publish({"TS": [moment(0)] * 4, "SYMBOL": ["a"] * 4, "PRICE": [1.0] * 4})
    alone = server.publish({"TS": moment(0), "PRICE": 2.0})
    assert [len(outcome.then) for outcome in (whole, alone)] == [0, 0]
    lacking = server.publish({"TS": [moment(3)] * 4})
    assert whole.reply == bodies.Done(1, 4)
    for outcome, positions in ((whole, [1, 2, 3, 4]), (lacking, [6, 7, 8, 9])):
        assert outcome.entry is not None
        logged = bodies.decode(outcome.entry.payload)
        assert isinstance(logged, bodies.Publish)
        assert to_list(logged.columns["POSITION"]) == positions
    window, *removals = lacking.then
    assert window.entry is not None
    assert (window.entry.kind, window.entry.first, window.entry.updates) == (RecordKind.RESULT, 10, 5)
    keys = []
    for removal in removals:
        assert removal.entry is not None
        deleted = bodies.decode(removal.entry.payload)
        assert isinstance(deleted, bodies.Delete)
        keys += to_list(deleted.keys)
        assert removal.through == removal.entry.first + len(deleted.keys) - 1
    assert keys == [1, 2, 3]
    assert removals[-1].through == 17


@pytest.mark.parametrize("portions", [0, 1, 2, 3, 5, 8, 12])
def test_after_a_crash_between_two_portions_a_window_has_what_it_should_and_the_rest_goes(
    portions: int, tmp_path: Path
) -> None:
    server = Durable(tmp_path)
    server.execute("CREATE STREAM TRADES (TS TIMESTAMP, SYMBOL TEXT, PRICE REAL) WITH (retain = '5s')")
    server.publish({"TS": [moment(second) for second in (0, 0, 0, 0, 0, 1, 2, 3)]})
    server.desk.subscribe(WINDOW)
    server.desk.subscribe("SELECT COUNT(*) FROM TRADES [RANGE '4s']")
    heartbeat = server.execute(advance_text("TRADES", moment(7).timestamp() * 1e6))
    assert len(heartbeat.then) == 1
    for _ in range(portions):
        server.settle()
    before = server.state()
    server.crash()
    assert server.state() == before
    windows = [server.data.engine.subscribe(sql) for sql in (WINDOW, WINDOW.replace("2s", "4s"))]
    assert [window.answer for window in windows] == [0, 1]
    while server.settle():
        pass
    assert [row[0] for row in server.state()[-1]] == [7, 8]
    assert [window.answer for window in windows] == [0, 1]
    server.data.close()


def test_users_neither_delete_tuples_nor_say_their_positions(tmp_path: Path) -> None:
    server = Durable(tmp_path)
    server.execute(TRADES)
    server.publish({"TS": moment(1)})
    delete = bodies.Delete("TRADES", keys_to_column([1]), ME, 99)
    assert "its tuples cannot be deleted" in refusal(server.desk.ask(delete))
    assert "POSITION is assigned by the server" in refusal(server.publish({"TS": moment(1), "POSITION": 9}))
    assert server.data.engine.rows("TRADES") == 1


def test_who_may_publish_to_a_stream_may_advance_it_and_nothing_else_is_needed(tmp_path: Path) -> None:
    server = Durable(tmp_path)
    server.execute(TRADES)
    advance = bodies.Execute(advance_text("trades", 5e6), ME, 50)
    server.desk.rights = Rights.parse({"key": [{"name": "reader", "public": KEY, "subscribe": ["TRADES"]}]})
    assert "does not have the right" in refusal(server.desk.ask(advance, KEY))
    server.desk.rights = Rights.parse({"key": [{"name": "feed", "public": KEY, "publish": ["TRADES"]}]})
    assert server.keep(server.desk.ask(advance, KEY)).reply == bodies.Done(1, 0)
    assert server.data.engine.streams["trades"].order.time == 5e6
    assert server.keep(server.desk.ask(advance, KEY, again=True)).entry is None
    for sql in ("DROP STREAM TRADES", "CREATE STREAM T (A TEXT)"):
        assert "does not have the right" in refusal(server.desk.ask(bodies.Execute(sql, ME, 51), KEY))


def test_a_position_in_a_stream_that_was_dropped_is_none_of_the_next_one(tmp_path: Path) -> None:
    server = Durable(tmp_path)

    def begins(after: int | None) -> int:
        group = bodies.Group(1, "SELECT * FROM TRADES", (), 1, after=after)
        return subscribed(server.desk.ask(bodies.Subscribe((group,)))).groups[0].after

    server.execute(TRADES)
    server.publish({"TS": [moment(0)] * 3})
    assert [begins(after) for after in (0, 1, 3, 4, None)] == [0, 1, 3, 3, 3]
    server.desk.attendance.close_deserted(set(), 0.0)
    server.desk.attendance.close_deserted(set(), 99.0)
    server.execute("DROP STREAM TRADES")
    server.execute(TRADES)
    server.publish({"TS": [moment(0)] * 3})
    assert [begins(after) for after in (0, 1, 2, 3, 4, None)] == [0, 3, 3, 3, 4, 6]


# -- derived streams: what is missing, and how far they are ------------------------------------------------------

LARGE = "CREATE STREAM LARGE AS SELECT TS, SYMBOL, PRICE FROM TRADES WHERE PRICE > 0 WITH (retain_rows = 8)"
happenings = st.lists(st.sampled_from(["result", "result", "gap", "checkpoint", "crash"]), max_size=20)


class Derived(Durable):
    """The same with a derived stream, whose results are ours to make."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.execute(TRADES)
        self.execute(LARGE)

    def result(self) -> int:
        self.append("LARGE", [(1, (moment(0), "a", 1.0))] * 2)
        return self.data.engine.streams["large"].order.last

    def append(self, stream: str, results: list[tuple[int, tuple[Any, ...]]]) -> None:
        """Results (AT, values), coded by another interner and pickled as by the streams process."""
        table, interner = self.data.engine.catalogue.store(stream).table, Interner()
        interner.encode(["of no use", "here"])
        names = [column.name for column in table.columns]
        rows = [dict(zip(names, (*values, at, place), strict=True)) for place, (at, values) in enumerate(results)]
        cells = ingest(table, *rows_to_columns(rows), interner).cells[:-2]
        at = np.array([at for at, _ in results])
        batch = TupleBatch(at, np.zeros(len(at)), cells, END, 0.0)
        made: MadeTuples = pickle.loads(pickle.dumps(MadeTuples.of(table, batch, interner), protocol=5))
        self.keep(self.desk.office.changing.append(stream, made, 0.0))

    def rows(self, stream: str) -> list[tuple[Any, ...]]:
        """What the stream has, by position."""
        store, texts = self.data.engine.catalogue.store(stream), self.data.engine.interner.texts
        cells = store.cells[:, store.live_slots()]
        return as_values(store.table, cells[:, np.argsort(cells[-1])], texts)

    def in_log(self, stream: str) -> list[tuple[Any, ...]]:
        """What followers of the log find there of a stream that nothing has left."""
        store, source, interner = (
            self.data.engine.catalogue.store(stream),
            TableSource(self.path, self.data.identity),
            Interner(),
        )
        blocks = source.changes(
            Life(store.table, store.created), store.created, self.data.log.synced_seq, None, interner
        )
        batches = [batch for block in blocks for batch in block.batches]
        return [row for batch in batches for row in as_values(store.table, batch.cells, interner.texts)]

    def gap(self, goes_on: tuple[float, int] | None = None) -> Outcome:
        (outcome,) = self.desk.office.changing.gap("LARGE", "a test", goes_on, 0.0)
        return self.keep(outcome)

    def replayed(self, after: int) -> list[tuple[int, bool]]:
        """(position, whether it is a gap) of what two subscriptions hear that begin behind a position."""
        group = bodies.Group(1, "SELECT PRICE FROM LARGE WHERE PRICE < ?", (keys_to_column([5, 6]),), 2, after=after)
        (opened,) = subscribed(self.desk.ask(bodies.Subscribe((group,)))).groups
        assert opened.snapshot is not None
        of, seq, gap = (np.asarray(opened.snapshot[name]).tolist() for name in ("of", "seq", "gap"))
        found = [[(s, g) for o, s, g in zip(of, seq, gap, strict=True) if o == member] for member in (0, 1)]
        assert found[0] == found[1]
        return found[0]


def as_values(table: Table, cells: Floats, texts: Texts) -> list[tuple[Any, ...]]:
    return list(zip(*map(to_list, valued(table, cells, texts).values()), strict=True))


@settings(max_examples=40, deadline=None)
@given(happenings)
def test_gaps_of_a_derived_stream_are_replayed_among_its_tuples_whatever_happens(several: list[str]) -> None:
    with TemporaryDirectory() as name:
        server = Derived(Path(name))
        heard: list[tuple[int, bool]] = []
        for what in [*several, "crash"]:
            if what == "result":
                last = server.result()
                heard += [(last - 1, False), (last, False)]
            elif what == "gap":
                outcome = server.gap()
                if heard and heard[-1][1]:
                    heard.pop()  # nothing came since: the later one says it all
                heard.append((outcome.through, True))
            elif what == "checkpoint":
                server.data.write_checkpoint(captured(server.data))
            else:
                server.crash()
            stream = server.data.engine.streams["large"]
            stream.order.check(stream.store.cells[:, stream.store.live_slots()])
            heard = [one for one in heard if one[0] > stream.order.removed]
        for after in [stream.order.removed, *(seq for seq, _ in heard)]:
            assert server.replayed(after) == [one for one in heard if one[0] > after]
        server.data.close()


def test_a_gap_is_a_message_for_all_subscribers_of_the_stream_and_of_those_made_of_it(tmp_path: Path) -> None:
    server = Derived(tmp_path)
    server.execute("CREATE STREAM MORE AS SELECT PRICE FROM LARGE WHERE PRICE > 5")
    for sql in ("SELECT PRICE FROM LARGE WHERE SYMBOL = 'b'", "SELECT PRICE FROM MORE", "SELECT PRICE FROM TRADES"):
        server.desk.subscribe(sql)
    first, second = server.desk.office.changing.gap("LARGE", "why", (7.0, 8), 0.0)
    server.keep(replace(first, then=(second,)))
    assert [list(outcome.messages) for outcome in (first, second)] == [[1], [2]]
    point = np.array([[3.0]])  # a partition number that is none of the message's
    spec = next(one.spec for one in server.desk.attendance if one.number == 1)
    assert spec.partitioned
    assert concerned(first.messages[1], spec, point).all()
    assert not concerned(first.messages[1], spec, np.array([[np.inf]])).any(), "nothing can be missing there"
    server.crash()
    streams = server.data.engine.streams
    assert (streams["large"].consumed, streams["more"].consumed) == ((7.0, 8), None)
    assert (streams["large"].order.gaps, streams["more"].order.gaps) == ([1], [2])


def test_before_tuples_are_removed_the_log_says_that_joins_do_not_need_them(tmp_path: Path) -> None:
    server = Derived(tmp_path)
    server.publish(given_rows([(0, "a", 1.0)] * 4))
    server.data.engine.streams["large"].consumed = (0.0, 4)
    removing = server.publish(given_rows([(9, "a", 1.0)] * 4))
    kinds = [one.entry.kind for one in removing.then if one.entry is not None]
    assert kinds[:2] == [RecordKind.CONSUMED, RecordKind.BATCH]
    server.crash()
    assert server.data.engine.streams["large"].consumed == (0.0, 4)
    again = server.publish(given_rows([(20, "a", 1.0)] * 4))
    assert RecordKind.CONSUMED not in [one.entry.kind for one in again.then if one.entry is not None], "as it was"


ALL_TYPES = "CREATE STREAM EVENTS (TS TIMESTAMP NOT NULL, A TEXT, B TEXT, R REAL, I INTEGER, T TIMESTAMP)"
ALL_MADE = "CREATE STREAM MADE AS SELECT TS, A, R, I, T, B FROM EVENTS"
texts = st.none() | st.sampled_from(["", "a", "b", "\u00fc\U0001f600", "x" * 300])
instants = st.integers(0, 3).map(moment)
results_made = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.tuples(
            instants,
            texts,
            st.none() | st.sampled_from([0.0, -1.5, 1e300]),
            st.none() | st.sampled_from([0, -(2**53), 2**53]),
            st.none() | instants,
            texts,
        ),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(results_made | st.just("checkpoint") | st.just("other"), max_size=5))
def test_results_are_after_a_crash_what_they_were_before(several: list[Any]) -> None:
    with TemporaryDirectory() as name:
        server = Derived(Path(name))
        server.execute(ALL_TYPES)
        server.execute(ALL_MADE)
        expected: list[tuple[Any, ...]] = []
        for results in several:
            if results == "checkpoint":
                server.data.write_checkpoint(captured(server.data))
            elif results == "other":
                server.publish([{"TS": moment(0), "SYMBOL": "b"}])
            else:
                first = server.data.engine.seq + 1
                server.append("MADE", results)
                expected += [(*values, at, first + place) for place, (at, values) in enumerate(results)]
        assert server.rows("MADE") == expected
        server.crash()
        assert server.rows("MADE") == expected
        assert server.in_log("MADE") == expected
        server.data.close()
