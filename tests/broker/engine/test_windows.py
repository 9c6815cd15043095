"""Windows over streams in a server's engine: opened and emptied some tuples at a time, and bounded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from hullcast import Overloaded, TableInUse, TooLarge
from hullcast.broker.engine import engine as engine_module
from hullcast.broker.engine.engine import LOADED_AT_ONCE
from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.engine.subscription import EngineSubscription
from hullcast.broker.reformulate.keeper import TreeKeeper
from hullcast.broker.scheduling.driver import Work
from hullcast.broker.server.changing import SETTLED_AT_ONCE
from hullcast.broker.server.making import MOST_WINDOWS, WindowLimits
from hullcast.broker.server.outcome import Outcome
from hullcast.broker.sql.create import advance_text
from hullcast.broker.tables import stream as stream_module
from hullcast.broker.tables import windows as windows_module
from hullcast.broker.tables.stream import REMOVED_AT_ONCE
from hullcast.broker.tables.windows import MOVED_AT_ONCE, WindowTable
from hullcast.network.wire import bodies
from hullcast.network.wire.values import rows_to_columns
from tests.broker.server.test_deciding import ME, Desk
from tests.support.engines import attend
from tests.support.stream_oracle import AGGREGATES, StreamModel, aggregate, moment

TRADES = "CREATE STREAM TRADES (TS TIMESTAMP, SYMBOL TEXT, PRICE REAL)"
WINDOWS = ("[ROWS 1]", "[ROWS 3]", "[ROWS 7]", "[RANGE '1s']", "[RANGE '4s']", "[RANGE '9s']")

seconds = st.integers(0, 20)
tuples = st.lists(
    st.tuples(seconds, st.none() | st.sampled_from("ab"), st.none() | st.integers(0, 4).map(float)), max_size=5
)


def append(engine: ServedEngine, rows: Any) -> int:
    """Publish as a server does, which lets tuples go later; the first position."""
    columns, absent = rows_to_columns(rows)
    batch, _ = engine.changes.upsert("TRADES", engine.encoded("TRADES", columns, absent))
    return batch.first_seq


def advance(engine: ServedEngine, second: float) -> None:
    engine.execute(advance_text("TRADES", moment(second).timestamp() * 1e6))


class Opening:
    """A subscription to a window whose channel is being opened."""

    def __init__(self, engine: ServedEngine, kind: str, window: str) -> None:
        self.kind, self.window = kind, window
        self.sql = f"SELECT {kind} FROM TRADES {window}"
        self._engine, self._work = engine, engine.attending(self.sql, [])
        self.subscription: EngineSubscription | None = None

    def step(self) -> None:
        try:
            next(self._work)
        except StopIteration:
            self.subscription = self._engine.subscribe(self.sql)

    def close(self) -> None:
        self._work.close()
        if self.subscription is not None:
            self.subscription.close()


class SlicedWindows(RuleBasedStateMachine):
    """Between any two tuples that a window takes in or lets go of, anything may happen."""

    opening: Bundle[Opening] = Bundle("opening")

    @initialize(
        retain=st.sampled_from(["", "WITH (retain_rows = 9)", "WITH (retain_rows = 9, retain = '9s')"]),
        moved=st.integers(1, 3),
    )
    def create(self, retain: str, moved: int) -> None:
        self.patches = ExitStack()
        for module, name, value in (
            (stream_module, "FEWEST_OVER", 2),
            (stream_module, "REMOVED_AT_ONCE", 3),
            (windows_module, "MOVED_AT_ONCE", moved),
            (windows_module, "SMALLEST", 2),
            (engine_module, "LOADED_AT_ONCE", moved),
        ):
            self.patches.enter_context(patch.object(module, name, value))
        self.engine, self.model = ServedEngine(), StreamModel()
        self.engine.execute(f"{TRADES} {retain}")
        self.all: list[Opening] = []

    def teardown(self) -> None:
        if hasattr(self, "patches"):
            self.patches.close()

    @rule(rows=tuples)
    def publish(self, rows: list[tuple[int, str | None, float | None]]) -> None:
        first = append(
            self.engine, [{"TS": moment(at), "SYMBOL": symbol, "PRICE": price} for at, symbol, price in rows]
        )
        for i, (second, symbol, price) in enumerate(rows):
            self.model.append(first + i, moment(second), symbol, price)

    @rule(second=seconds)
    def advance(self, second: int) -> None:
        advance(self.engine, second)
        self.model.advance(moment(second))

    @rule()
    def let_some_go(self) -> None:
        self.engine.settle_some("TRADES")

    @rule()
    def let_all_go(self) -> None:
        while self.engine.settle_some("TRADES") is not None:
            pass
        self.look()
        for one in self.all:
            if one.subscription is not None:
                assert len(self.table(one)) == len(self.held(one))

    @rule(
        target=opening,
        kind=st.sampled_from(AGGREGATES),
        window=st.sampled_from(WINDOWS),
        times=st.sampled_from([1, 99]),
    )
    def open(self, kind: str, window: str, times: int) -> Opening:
        self.all.append(Opening(self.engine, kind, window))
        self.go_on(self.all[-1], times)
        return self.all[-1]

    @rule(one=opening, times=st.integers(1, 4))
    def go_on(self, one: Opening, times: int) -> None:
        for _ in range(times):
            if one.subscription is None:
                one.step()

    @rule(one=consumes(opening))
    def close(self, one: Opening) -> None:
        """Also if it is only half open."""
        one.close()
        self.all.remove(one)

    def table(self, one: Opening) -> WindowTable:
        return next(
            found for found in self.engine.streams["trades"].windows.values() if found.window.declared == one.window
        )

    def held(self, one: Opening) -> list[Any]:
        size = one.window.strip("[]").split()
        if size[0] == "ROWS":
            return self.model.rows_window(int(size[1]))
        return self.model.range_window(float(size[1].strip("'s")))

    @invariant()
    def look(self) -> None:
        """Answers are of the tuples in the window; which are those that belong there, and older ones that still must
        go."""
        if not hasattr(self, "engine"):
            return
        self.model.kept_from = len(self.model.tuples) - self.engine.rows("TRADES")
        for window in self.engine.streams.windows().values():
            window.check()
        for one in self.all:
            if one.subscription is None:
                continue
            window = self.table(one)
            inside = self.model.retained[len(self.model.retained) - len(window) :]
            expected = self.held(one)
            assert inside[len(inside) - len(expected) :] == expected
            assert len(inside) == len(expected) or window.overdue
            assert one.subscription.answer == aggregate(one.kind, inside)
        for channel in self.engine._channels:
            for keeper in channel.keepers:
                keeper.tree.check()


TestSlicedWindows = SlicedWindows.TestCase
TestSlicedWindows.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("window", ["[ROWS 40]", "[RANGE '3s']"])
@pytest.mark.parametrize("seed", range(5))
def test_a_window_that_grows_and_shrinks_keeps_its_tuples_where_they_are(
    window: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trees know rows by their slots, so a tuple must keep its own."""
    for name, value in (("SMALLEST", 2), ("MOVED_AT_ONCE", 3)):
        monkeypatch.setattr(windows_module, name, value)
    chance = random.Random(seed)
    engine = ServedEngine()
    engine.execute(TRADES)
    subscription = engine.subscribe(f"SELECT MIN(PRICE) FROM TRADES {window}")
    (table,) = engine.streams.windows().values()
    second, slots = 0.0, dict[float, int]()
    for step in range(150):
        burst = 4 if step % 50 < 25 else 1
        n = chance.randrange(2 * burst)
        second += chance.random()
        append(engine, [{"TS": moment(second), "PRICE": chance.random()} for _ in range(n)])
        for _ in range(chance.randrange(4)):
            engine.settle_some("TRADES")
        table.check()
        live = table.live_slots()
        positions = table.cells[table.table.key, live]
        assert np.array_equal(table.slots_of(positions), live)
        found = dict(zip(positions.tolist(), live.tolist(), strict=True))
        assert all(slots.get(position, slot) == slot for position, slot in found.items())
        slots = found
        assert subscription.answer == min(table.cells[2, live].tolist(), default=None)


# --- how much is done at once ------------------------------------------------------------------------------------


@pytest.fixture
def entered() -> Iterator[list[int]]:
    """How many tuples windows, and rows trees, have taken in at once."""
    counted: list[int] = []
    enter, run = WindowTable._enter, TreeKeeper._run

    def count_tuples(self: WindowTable, slots: Any, cells: Any) -> Any:
        counted.append(cells.shape[1])
        return enter(self, slots, cells)

    def count_rows(self: TreeKeeper, slots: Any, *arguments: Any) -> Any:
        counted.append(len(slots))
        return run(self, slots, *arguments)

    with patch.object(WindowTable, "_enter", count_tuples), patch.object(TreeKeeper, "_run", count_rows):
        yield counted


def filled(n: int, options: str = "") -> ServedEngine:
    """A stream with a tuple for each millisecond."""
    engine = ServedEngine()
    engine.execute(f"{TRADES} {options}")
    times = [moment(i / 1000) for i in range(n)]
    append(engine, {"TS": times, "SYMBOL": ["a"] * n, "PRICE": np.arange(float(n))})
    return engine


@pytest.mark.parametrize("window", ["[ROWS 10000]", "[RANGE '10s']"])
@pytest.mark.parametrize("kind", ["COUNT(*)", "MIN(PRICE)"])
def test_no_slice_of_opening_a_window_takes_in_many_tuples(window: str, kind: str, entered: list[int]) -> None:
    """In one of them the window is finished, and its tree begun."""
    engine = filled(10_000)
    sql = f"SELECT {kind} FROM TRADES {window}"
    work: Work = engine.attending(sql, [])
    slices = []
    while True:
        entered.clear()
        ended = next(work, None) is None
        slices.append(sum(entered))
        if ended:
            break
    assert max(slices) <= MOVED_AT_ONCE + LOADED_AT_ONCE
    assert sum(slices) == (10_000 if kind == "COUNT(*)" else 20_000)
    assert engine.subscribe(sql).answer == (10_000 if kind == "COUNT(*)" else 0.0)


def test_no_portion_that_leaves_windows_and_stream_is_large() -> None:
    engine = filled(20_000, "WITH (retain = '30s')")
    subscriptions = [engine.subscribe(f"SELECT COUNT(*) FROM TRADES [RANGE '{size}s']") for size in (5, 15, 30)]
    assert [one.answer for one in subscriptions] == [5001, 15_001, 20_000]
    advance(engine, 1000)
    moved, seqs = [], [engine.seq]
    while (settled := engine.settle_some("TRADES")) is not None:
        assert (settled.batch.first_seq, settled.batch.last_seq) == (seqs[-1] + 1, engine.seq)
        moved.append(settled.moved)
        seqs.append(engine.seq)
    assert max(moved) <= max(MOVED_AT_ONCE, REMOVED_AT_ONCE)
    assert sum(moved) >= 40_000
    assert [one.answer for one in subscriptions] == [0, 0, 0]
    assert engine.rows("TRADES") == 0


def test_a_large_batch_lets_as_many_go_as_it_brings() -> None:
    """Or windows and streams that are fed without a pause would become longer and longer."""
    desk = Desk()
    desk.office.changing._most_rows = 10_000
    desk.execute(f"{TRADES} WITH (retain_rows = 5000)")
    desk.subscribe("SELECT COUNT(*) FROM TRADES [RANGE '1s']")
    most, at = 0, 0
    for _ in range(5):
        n = 8000
        columns, absent = rows_to_columns({"TS": [moment((at + i) / 1000) for i in range(n)]})
        at += n
        desk.number += 1
        desk.ask(bodies.Publish("TRADES", columns, absent, ME, desk.number))
        most = max(most, desk.engine.rows("TRADES"))
    assert most <= 5000 + 2 * 8000


def test_a_heartbeat_lets_a_few_tuples_go_and_the_others_follow() -> None:
    desk = Desk()
    desk.office.changing._most_rows = 10_000
    desk.execute(TRADES)
    columns, absent = rows_to_columns({"TS": [moment(0)] * 10_000})
    desk.number += 1
    desk.ask(bodies.Publish("TRADES", columns, absent, ME, desk.number))
    desk.subscribe("SELECT COUNT(*) FROM TRADES [RANGE '5s']")
    assert not desk.office.changing.unsettled
    (window,) = desk.engine.streams.windows().values()
    heartbeat = desk.execute(advance_text("TRADES", moment(9).timestamp() * 1e6))

    def used(outcome: Outcome) -> int:
        assert outcome.entry is not None
        assert outcome.through == outcome.entry.first + outcome.entry.updates - 1 == desk.engine.seq
        return outcome.entry.updates

    assert sum(map(used, heartbeat.then)) <= SETTLED_AT_ONCE
    assert len(desk.office.changing._unsettled) == 1
    left = len(window)
    assert left >= 10_000 - SETTLED_AT_ONCE
    while outcomes := desk.office.changing.settle(0.0):
        (outcome,) = outcomes
        assert used(outcome) <= MOVED_AT_ONCE
        left -= used(outcome)
        assert len(window) == left
    assert (left, desk.office.changing.unsettled) == (0, False)


def test_a_stream_that_is_dropped_lets_nothing_go() -> None:
    desk = Desk()
    desk.execute(TRADES)
    desk.office.changing._unsettled["trades"] = None
    desk.execute("DROP STREAM TRADES")
    assert desk.office.changing.settle(0.0) == []


def test_a_stream_is_not_dropped_under_a_window_that_is_being_loaded() -> None:
    engine = filled(5000)
    work = engine.attending("SELECT COUNT(*) FROM TRADES [ROWS 5000]", [])
    next(work)
    with pytest.raises(TableInUse, match="ROWS 5000"):
        engine.execute("DROP STREAM TRADES")
    engine.tidy()
    assert len(engine.streams.windows()) == 1
    work.close()
    assert not engine.streams.windows()
    engine.execute("DROP STREAM TRADES")


# --- limits ------------------------------------------------------------------------------------------------------


def test_one_client_opens_half_of_the_windows_at_most() -> None:
    engine = filled(10)
    limits = WindowLimits(engine, 1 << 30)

    def subscribe(rows: int, owner: str) -> None:
        sql = f"SELECT COUNT(*) FROM TRADES [ROWS {rows}]"
        limits.admit(sql, owner)
        attend(engine, sql, [])

    half = MOST_WINDOWS // 2
    for rows in range(1, half + 1):
        subscribe(rows, "a")
    with pytest.raises(TooLarge, match=rf"streams of one client \(.*\): {half + 1} is more than the limit of {half}"):
        subscribe(half + 1, "a")
    subscribe(1, "a")  # it is there
    for rows in range(half + 1, MOST_WINDOWS + 1):
        subscribe(rows, "b")
    with pytest.raises(Overloaded, match=f"windows over streams of all clients: the limit of {MOST_WINDOWS}"):
        subscribe(MOST_WINDOWS + 1, "c")
    limits.admit("SELECT PRICE FROM TRADES", "c")
    engine.forsake("COUNT(*) FROM TRADES [ROWS 1]")
    subscribe(MOST_WINDOWS + 1, "a")


def test_windows_that_would_take_too_much_memory_are_not_opened() -> None:
    engine = filled(10_000)
    limits = WindowLimits(engine, 1 << 20)
    each = 4 * 8 + 1

    def subscribe(window: str) -> None:
        sql = f"SELECT COUNT(*) FROM TRADES {window}"
        limits.admit(sql, "a")
        attend(engine, sql, [])

    with pytest.raises(
        TooLarge, match=rf"ROWS 1000000.*stream_window_bytes\): {1_000_000 * each:,} is more than .* 1,048,576"
    ):
        subscribe("[ROWS 1000000]")
    assert not engine.streams.windows()
    subscribe("[ROWS 25000]")  # which it may have some day
    assert limits.size_bytes == 25_000 * each
    with pytest.raises(Overloaded, match=r"\(stream_window_bytes; 825,000 are taken, .*RANGE '1m'.*1,048,576"):
        subscribe("[RANGE '1m']")
    subscribe("[RANGE '0.1s']")
    engine.forsake("COUNT(*) FROM TRADES [ROWS 25000]")
    subscribe("[RANGE '1m']")
    assert 0 < limits.size_bytes <= 1 << 20


def test_a_window_takes_memory_for_the_tuples_it_has() -> None:
    engine = filled(10)
    before = engine.memory_bytes()
    with engine.subscribe("SELECT COUNT(*) FROM TRADES [ROWS 1000000]"):
        assert engine.memory_bytes() - before < 1 << 20
