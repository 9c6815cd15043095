"""A large batch in slices: the outcome is that of a batch at the moment of the last slice, whatever happens between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from hullcast.broker.engine import publishing
from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.engine.subscription import EngineSubscription
from hullcast.broker.log.checkpoint import CapturedState, capturing
from hullcast.broker.log.publishers import Publishers
from hullcast.broker.reformulate import join as join_module
from hullcast.broker.reformulate.channel import Attended
from hullcast.broker.reformulate.messages import Batch, Messages
from hullcast.broker.scheduling.driver import Until, Work, finish
from hullcast.broker.tables import ingest as ingest_module
from hullcast.broker.tables.store import Updates
from hullcast.network.answers.events import Change
from hullcast.network.wire.columns import Column, TextColumn
from hullcast.network.wire.errors import BadValue, InvariantBroken, UsageError
from hullcast.network.wire.values import keys_to_column, rows_to_columns
from tests.broker.engine import test_streams_machine
from tests.broker.engine.test_join_machine import JoinHistory
from tests.broker.engine.test_machine import EngineHistory, check_structures
from tests.broker.engine.test_streams_machine import Streams, tuples
from tests.support.engines import attend
from tests.support.queries import CREATE, KEYS, SEEDS, Asked, row
from tests.support.stream_oracle import moment

Rows = list[dict[str, Any]]
Trade = tuple[int, str | None, float | None]


def upserting(engine: ServedEngine, table: str, rows: Rows) -> Work:
    """The batch, in slices."""
    columns, absent = rows_to_columns(rows, table, "refuse")
    return engine.upserting(table, columns, absent)


def slices(work: Work) -> Iterator[tuple[Batch, Updates] | None]:
    """Slice after slice; the last gives the result."""
    try:
        while True:
            assert isinstance(next(work), float), "nobody else is at work"
            yield None
    except StopIteration as stop:
        yield stop.value


def plain(messages: Messages) -> dict[str, list[str]]:
    """All that people see of messages; NaN equals NaN."""
    return {name: list(map(repr, column.tolist())) for name, column in messages.columns.items()}


def one_by_one(messages: Messages) -> Counter[tuple[str, ...]]:
    """The same, a message each, in no order."""
    return Counter(zip(*plain(messages).values(), strict=True))


class SlicedHistory(EngineHistory):
    """Histories in which batches take a while, and other tables and subscriptions change meanwhile."""

    engine: ServedEngine

    def __init__(self) -> None:
        super().__init__()
        self.engine = ServedEngine()
        for statement in CREATE:
            self.engine.execute(statement)

    @rule(seeds=st.lists(SEEDS, min_size=1, max_size=12), table=st.sampled_from("RRSSW"), seed=SEEDS)
    def upsert_in_slices(self, seeds: list[int], table: str, seed: int) -> None:
        rng, some = Random(seed), [row(Random(one), table) for one in seeds]
        work = upserting(self.engine, table, some)
        self.in_slices(work, table, [("upsert", table, one) for one in some], rng)

    @rule(seeds=st.lists(SEEDS, min_size=1, max_size=12), table=st.sampled_from("RRSSW"), seed=SEEDS)
    def delete_in_slices(self, seeds: list[int], table: str, seed: int) -> None:
        keys = [Random(one).choice(KEYS[table]) for one in seeds]
        work = self.engine.deleting(table, keys_to_column(keys, table))
        self.in_slices(work, table, [("delete", table, key) for key in keys], Random(seed))

    def in_slices(self, work: Work, table: str, steps: list[tuple[str, str, Any]], rng: Random) -> None:
        changed, left = len(self.listeners), False
        publishing.SLICED_ROWS = rng.randint(1, 4)
        publishing.SLICED_MESSAGES = rng.choice([1, 4, 4096])
        for done in slices(work):
            if done is None:
                self.meanwhile(table, rng)
                left |= len(self.listeners) < changed
                changed = len(self.listeners)
                continue
            batch, updates = done
            assert len(updates) == len(steps)
            twin, given = self.twin(batch.first_seq - 1), [what for _, _, what in steps]
            self.compare(
                batch, twin.upsert(table, given) if steps[0][0] == "upsert" else twin.delete(table, given), left
            )
            self.follow(batch, steps)

    def meanwhile(self, table: str, rng: Random) -> None:
        """Something else happens, as far as tables are free."""
        assert self.engine.changes.held([table])
        free = [other for other in "RSW" if not self.engine.changes.held([other])]
        other = rng.choice(free or [""])
        match rng.randrange(6):
            case 0 | 1 if free:
                some = [row(rng, other) for _ in range(rng.randint(1, 3))]
                self.follow(self.engine.upsert(other, some), [("upsert", other, one) for one in some])
            case 2 if free:
                key = rng.choice(KEYS[other])
                self.follow(self.engine.delete(other, key), [("delete", other, key)])
            case 3 if free:
                self.subscribe_one(Asked(f"SELECT COUNT(*) FROM {other}", ()), eager=True)
            case 4:
                self.close(rng.randrange(20))
            case _:
                for one in self.listeners:
                    assert not one.eager or not one.subscription.pending

    def live(self) -> list[Asked]:
        """What somebody here listens to."""
        return [one.asked for one in self.listeners]

    def twin(self, seq: int) -> ServedEngine:
        """An engine with the same rows and ranges."""
        twin = ServedEngine()
        for statement in CREATE:
            twin.execute(statement)
        for table in "RSW":
            rows = self.oracle.answer(f"SELECT * FROM {table}")
            if rows:
                twin.upsert(table, [dict(zip([c.name for c in twin.tables[table].columns], one)) for one in rows])  # noqa: B905
        for asked in self.live():
            twin.open_channel(asked.sql, *asked.parameters)
        twin.start_at(seq)
        return twin

    def compare(self, batch: Batch, expected: Batch, left: bool) -> None:
        """The messages are those of the plain way; `left`: besides some for those who have left."""
        assert (batch.first_seq, batch.last_seq) == (expected.first_seq, expected.last_seq)
        for name, messages in expected.messages.items():
            found = batch.messages[name]
            assert found.seqs.tolist() == sorted(found.seqs.tolist())
            if " JOIN " not in name:
                assert plain(found) == plain(messages)
            elif left:
                assert one_by_one(found) >= one_by_one(messages)
            else:
                assert one_by_one(found) == one_by_one(messages)
            assert (len(found.wire()["seq"]), found.complete) == (len(found), messages.complete)


class SlicedJoins(SlicedHistory, JoinHistory):
    """The same for joins, pair by pair."""

    def live(self) -> list[Asked]:
        return JoinHistory.live(self)

    def meanwhile(self, table: str, rng: Random) -> None:
        """Ranges stay, so that just their pairs are described."""
        assert self.engine.changes.held([table])
        free = [other for other in "RSW" if not self.engine.changes.held([other])]
        if free and rng.random() < 0.5:
            other = rng.choice(free)
            some = [row(rng, other) for _ in range(rng.randint(1, 3))]
            self.follow(self.engine.upsert(other, some), [("upsert", other, one) for one in some])


class SlicedStreams(Streams):
    """Histories of a stream whose large batches take a while."""

    engine: ServedEngine

    @initialize(retain=st.sampled_from(["", "WITH (retain_rows = 9)", "WITH (retain_rows = 7, retain = '5s')"]))
    def create(self, retain: str) -> None:
        with patch.object(test_streams_machine, "Engine", ServedEngine):
            super().create(retain)
        self.definition = f"CREATE STREAM TRADES (TS TIMESTAMP, SYMBOL TEXT, PRICE REAL) {retain}"
        self.texts: dict[str, str] = {}
        subscribe = self.engine.subscribe

        def noting(sql: str, *parameters: object, **options: Any) -> EngineSubscription:
            made = subscribe(sql, *parameters, **options)
            self.texts[made._channel.name] = sql
            return made

        self.engine.subscribe = noting  # type: ignore[method-assign]  # to know the texts of channels

    @rule(compared=st.sampled_from(["MAX(POSITION) FROM TRADES [ROWS 3]", "* FROM TRADES WHERE POSITION > 3"]))
    def compare_positions(self, compared: str) -> None:
        self.engine.subscribe(f"SELECT {compared}")

    @rule(rows=tuples, seed=SEEDS)
    def publish_in_slices(self, rows: list[Trade], seed: int) -> None:
        rng = Random(seed)
        given = [{"TS": moment(second), "SYMBOL": symbol, "PRICE": price} for second, symbol, price in rows]
        publishing.SLICED_ROWS = rng.randint(1, 4)
        work = upserting(self.engine, "TRADES", given)
        twin = self.twin()
        for done in slices(work):
            if done is None:
                assert self.engine.changes.held(["trades"])
                for _ in range(rng.randrange(3)):
                    self.something_else()
                continue
            batch, updates = done
            twin.start_at(batch.first_seq - 1)
            coded = twin.encoded("TRADES", *rows_to_columns(given, "TRADES", "refuse"))
            expected = twin.changes.upsert("TRADES", coded)
            assert (batch.first_seq, batch.last_seq) == (expected[0].first_seq, expected[0].last_seq)
            assert updates.new.shape == expected[1].new.shape
            assert (
                updates.new[-1].tolist()
                == expected[1].new[-1].tolist()
                == list(range(batch.first_seq, batch.last_seq + 1))
            )
            assert batch.messages.keys() == expected[0].messages.keys()
            for name, messages in expected[0].messages.items():
                assert plain(batch.messages[name]) == plain(messages), name
                assert wired(batch.messages[name]) == wired(messages), name
            for i, (second, symbol, price) in enumerate(rows):
                self.model.append(batch.first_seq + i, moment(second), symbol, price)
        while self.engine.settle_some("TRADES") is not None:
            pass
        self.follow_retention()

    def twin(self) -> ServedEngine:
        """An engine with the same tuples and channels."""
        twin, stream = ServedEngine(), self.engine.streams["trades"]
        twin.execute(self.definition)
        kept = [
            {"POSITION": one.position, "TS": one.ts, "SYMBOL": one.symbol, "PRICE": one.price}
            for one in self.model.retained
        ]
        if kept:
            twin.load_rows("TRADES", rows_to_columns(kept, "TRADES", "refuse")[0])
        twin.streams["trades"].restore(stream.order.removed, list(stream.order.marks), [])
        twin.start_at(self.engine.seq)
        for channel in self.engine._channels:
            attend(twin, self.texts[channel.name], [])
        return twin


def wired(messages: Messages) -> dict[str, list[Any]]:
    """All that nodes see of messages, but the numbers of partitions, which are an engine's own."""

    def listed(column: Column) -> list[Any]:
        if isinstance(column, TextColumn):
            return [column.words[code] if code >= 0 else None for code in column.codes.tolist()]
        return list(map(repr, np.asarray(column).tolist()))

    return {name: listed(column) for name, column in messages.wire().items() if not name.endswith("part")}


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "SLICED_ROWS", 2)
    monkeypatch.setattr(publishing, "SLICED_MESSAGES", publishing.SLICED_MESSAGES)
    monkeypatch.setattr(ingest_module, "CODED_ROWS", 3)


@pytest.mark.parametrize("history", [SlicedHistory, SlicedJoins, SlicedStreams])
def test_histories_with_batches_in_slices(history: type[RuleBasedStateMachine]) -> None:
    run_state_machine_as_test(history, settings=settings(max_examples=60, stateful_step_count=20))


@pytest.mark.parametrize("history", [SlicedHistory, SlicedJoins, SlicedStreams])
@pytest.mark.slow
def test_long_histories_with_batches_in_slices(history: type[RuleBasedStateMachine]) -> None:
    run_state_machine_as_test(history, settings=settings(max_examples=1000, stateful_step_count=40))


# --- held tables ---------------------------------------------------------------------------------------------------

TABLES = (
    "CREATE TABLE T (K INTEGER PRIMARY KEY, X REAL, Y REAL, S TEXT NOT NULL)",
    "CREATE TABLE U (K INTEGER PRIMARY KEY, X REAL)",
    "CREATE TABLE V (K INTEGER PRIMARY KEY, X REAL)",
)
JOIN = "SELECT T.K, U.K FROM T JOIN U USING (X) WHERE T.Y BETWEEN ? AND ?"


def rows(n: int, first: int = 0, **more: Any) -> Rows:
    return [{"K": first + i, "X": i % 5, "Y": i % 3, "S": f"s{i % 4}"} | more for i in range(n)]


@pytest.fixture
def engine() -> ServedEngine:
    made = ServedEngine()
    for table in TABLES:
        made.execute(table)
    made.upsert("T", rows(4))
    made.upsert("U", [{"K": 1, "X": 1}])
    return made


def test_what_did_not_ask_is_stopped_while_a_batch_is_on_its_way(engine: ServedEngine) -> None:
    minimum, pairs = "SELECT MIN(Y) FROM T WHERE X BETWEEN ? AND ?", attend(engine, JOIN, [[0], [9]])
    attended = attend(engine, minimum, [[0], [9]])
    assert not engine.changes.held()
    work = upserting(engine, "T", rows(7))
    assert engine.changes.held(["t"])
    assert engine.changes.held(["U"])
    assert engine.changes.held()
    assert not engine.changes.held(["V"])
    engine.upsert("U", [{"K": 2, "X": 2}])  # it has not begun
    for _ in range(3 + 1):  # slices that find codes, and one that changes rows
        next(work)
    for touch in (
        lambda: engine.upsert("T", rows(1)),
        lambda: engine.delete("U", [1]),
        lambda: engine.subscribe(minimum, 0, 9),
        lambda: attend(engine, "SELECT COUNT(*) FROM T", []),
        lambda: engine.query("SELECT * FROM T"),
        lambda: attended.channel.capture(attended.predicates),
        lambda: pairs.channel.capture(pairs.predicates),
        lambda: pairs.channel.want(None),
        lambda: engine.changes.using(["T"]).__enter__(),
    ):
        with pytest.raises(InvariantBroken):
            touch()
    engine.upsert("V", [{"K": 1, "X": 1}])
    opening = engine.attending("SELECT SUM(Y) FROM T", [])
    waits = next(opening)
    assert isinstance(waits, Until)
    assert not waits.comes()
    batch, _ = finish(work)
    assert not engine.changes.broken
    assert not engine.changes.held()
    assert waits.comes()
    assert (batch.first_seq, len(batch), engine.seq) == (8, 7, 14)
    total: Attended = finish(opening)
    assert total.channel.name == "SUM(Y) FROM T"
    assert engine.subscribe("SELECT SUM(Y) FROM T").answer == 6.0
    assert pairs.channel.wanted_since(pairs.channel.points_elsewhere(pairs.predicates)) <= 14


def test_ranges_wanted_behind_a_batch_are_described_from_there_on(engine: ServedEngine) -> None:
    first = attend(engine, JOIN, [[0], [9]]).channel
    work = upserting(engine, "T", rows(7))
    next(work)
    engine.upsert("V", [{"K": k, "X": 1} for k in range(5)])
    finish(work)
    later = attend(engine, JOIN, [[1], [2]])
    assert first.wanted_since(later.channel.points_elsewhere(later.predicates)) == engine.seq == 17


def test_a_batch_waits_for_those_who_read_already(engine: ServedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hullcast.broker.engine.engine.LOADED_AT_ONCE", 1)
    opening = engine.attending("SELECT MIN(Y) FROM T", [])
    next(opening)
    work = upserting(engine, "T", rows(7))
    waits = next(work)
    assert isinstance(waits, Until)
    assert not waits.comes()
    with engine.changes.using(["V"]), engine.changes.using(["T"]):
        assert finish(opening).channel.first is not None
        assert not waits.comes()
        engine.upsert("T", rows(1))
    assert waits.comes()
    other = upserting(engine, "V", [{"K": 1, "X": 1}])
    assert len(finish(other)[0]) == 1  # two are on their way, of different tables
    third = upserting(engine, "T", rows(2))
    assert isinstance(next(work), float)
    blocked = next(third)
    assert isinstance(blocked, Until)
    assert not blocked.comes()
    assert finish(work)[0].last_seq + 2 == finish(third)[0].last_seq == engine.seq


def test_a_batch_that_is_refused_or_given_up_in_time_leaves_nothing(engine: ServedEngine) -> None:
    refused = upserting(engine, "T", [*rows(5), {"K": 9, "X": 1}])
    with pytest.raises(BadValue, match="S"):
        finish(refused)
    upserting(engine, "T", rows(9)).close()
    assert not engine.changes.held()
    assert not engine.changes.broken
    assert (engine.seq, engine.rows("T")) == (5, 4)
    batch, updates = finish(upserting(engine, "T", []))
    assert (len(batch), len(updates)) == (0, 0)
    check_structures(engine)


@pytest.mark.parametrize("bad", [{"Y": "y"}, {"K": 1.5}, {"S": None}, {"S": 7}, {"Q": 1}, {"k": 1}, {"S": "\ud800"}])
def test_a_bad_row_is_named_as_in_a_batch_at_once(engine: ServedEngine, bad: dict[str, Any]) -> None:
    some: Rows = [*rows(7), {"K": 8, "S": "new"} | bad, {"K": "z"}]
    columns, absent = rows_to_columns(some, "T", "refuse")
    with pytest.raises(UsageError) as expected:
        engine.encoded("T", columns, absent)
    with pytest.raises(UsageError) as found:
        finish(upserting(engine, "T", some))
    assert str(found.value) == str(expected.value)
    assert (engine.seq, engine.rows("T"), engine.changes.held()) == (5, 4, False)


def test_a_batch_that_is_given_up_half_way_breaks_the_engine(engine: ServedEngine) -> None:
    work = upserting(engine, "T", rows(9))
    for _ in range(3 + 1):  # slices that find codes, and one that changes rows
        next(work)
    work.close()
    assert engine.changes.broken
    with pytest.raises(InvariantBroken, match="GeneratorExit"):
        engine.upsert("V", [{"K": 1}])


def test_more_pairs_than_can_be_described(engine: ServedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_module, "MOST_PAIRS", 5)
    subscription = engine.subscribe(JOIN, 0, 9)
    engine.upsert("U", [{"K": k, "X": 1} for k in range(2)])
    subscription.drain()
    batch, _ = finish(upserting(engine, "T", rows(6, first=10, X=1)))
    (messages,) = batch.messages.values()
    assert (messages.complete, len(messages), len(messages.columns["seq"])) == (False, 0, 0)
    assert len(subscription.answer) == 14
    check_structures(engine)


def test_a_condition_hears_of_the_batch_with_its_numbers(engine: ServedEngine) -> None:
    watched = finish(engine.watching("SELECT COUNT(*) FROM T", ()))
    work = upserting(engine, "T", rows(3, first=10))
    next(work)
    engine.upsert("V", [{"K": 1, "X": 1}])
    assert not watched.channel.outbox.waiting(watched.listener)
    finish(work)
    assert watched.channel.outbox.take(watched.listener).seqs == [7, 8, 9]


def test_a_checkpoint_has_all_of_a_batch_or_nothing(engine: ServedEngine) -> None:
    work = upserting(engine, "T", rows(7))
    next(work)
    capture = capturing(engine, Publishers(), lambda: 1)
    yielded = next(capture)
    while not isinstance(yielded, Until):
        yielded = next(capture)
    finish(work)
    state: CapturedState = finish(capture)
    (cells,) = [cells[:, : len(alive)][:, alive] for table, cells, alive, _ in state.tables if table.name == "T"]
    assert (cells.shape, state.seq) == ((4, 7), engine.seq)


def test_texts_and_groups_are_given_back_when_the_batch_is_there(
    engine: ServedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hullcast.broker.tables.interning.SWEEP_SLACK", 1)
    subscription = engine.subscribe("SELECT MIN(Y) FROM T WHERE S = ? AND K = ?", "b3", 3)
    work = upserting(engine, "T", [{"K": k, "Y": k, "S": f"b{k}"} for k in range(8)])
    sweeps = engine.changes.sweeps
    for _ in range(40):
        engine.execute("DROP TABLE V")
        engine.execute("CREATE TABLE V (K TEXT PRIMARY KEY, X REAL)")
        engine.upsert("V", [{"K": f"v{_}{k}"} for k in range(200)])
    assert engine.changes.sweeps == sweeps
    finish(work)
    engine.upsert("T", [{"K": 3, "Y": 3}])  # not before the next batch: texts of the large one may be needed
    assert engine.changes.sweeps > sweeps
    assert [cast("Change", event).answer for event in subscription.drain()] == [3.0]
    assert sorted(one.S for one in engine.query("SELECT S FROM T")) == [f"b{k}" for k in range(8)]


def test_large_is_what_takes_long(engine: ServedEngine) -> None:
    assert not engine.changes.is_large("T", 4096)
    assert engine.changes.is_large("T", 50_000)
    for sql in ("MIN(Y)", "MAX(Y)", "SUM(Y)", "COUNT(*)"):
        engine.open_channel(f"SELECT {sql} FROM T WHERE X BETWEEN ? AND ?")
    assert engine.changes.is_large("t", 4096)
    engine.execute("CREATE STREAM W (X REAL)")
    assert not engine.changes.is_large("W", 4096)
    for size in (3, 4, 5, 6):
        attend(engine, f"SELECT MIN(X) FROM W [ROWS {size}]", [])
    assert engine.changes.is_large("w", 4096)
