"""An embedded engine's streams against a list of tuples: filters, windows, retention, heartbeats; and a restart."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from hullcast import Engine, Resync, StreamTuple
from hullcast.broker.engine.subscription import EngineSubscription
from hullcast.broker.tables import stream as stream_module
from hullcast.broker.tables.stream import StreamOrder
from tests.support.stream_oracle import AGGREGATES, StreamModel, aggregate, moment

seconds = st.integers(0, 12)
prices = st.none() | st.integers(0, 4).map(float)
symbols = st.none() | st.sampled_from("ab")
tuples = st.lists(st.tuples(seconds, symbols, prices), max_size=6)
WINDOWS = ("[ROWS 1]", "[ROWS 3]", "[ROWS 7]", "[RANGE '1s']", "[RANGE '4s']")
CONDITIONS = ("", "WHERE PRICE BETWEEN 1 AND 3", "WHERE SYMBOL = 'a'", "WHERE PRICE >= 2 AND SYMBOL = 'b'")


def holds(condition: str, price: float | None, symbol: str | None) -> bool:
    match condition:
        case "":
            return True
        case "WHERE PRICE BETWEEN 1 AND 3":
            return price is not None and 1 <= price <= 3
        case "WHERE SYMBOL = 'a'":
            return symbol == "a"
        case _:
            return price is not None and price >= 2 and symbol == "b"


class Streams(RuleBasedStateMachine):
    """`over` is small here, so that the retention lets go of tuples often."""

    windows: Bundle[tuple[EngineSubscription, str, str, str]] = Bundle("windows")
    filters: Bundle[tuple[EngineSubscription, str, int]] = Bundle("filters")

    @initialize(retain=st.sampled_from(["", "WITH (retain_rows = 9)", "WITH (retain_rows = 7, retain = '5s')"]))
    def create(self, retain: str) -> None:
        self.patches = [
            patch.object(stream_module, "FEWEST_OVER", 2),
            patch.object(stream_module, "REMOVED_AT_ONCE", 3),
        ]
        for one in self.patches:
            one.start()
        self.engine, self.model = Engine(), StreamModel()
        self.engine.execute("CREATE TABLE OTHER (K INTEGER PRIMARY KEY)")
        self.engine.execute(f"CREATE STREAM TRADES (TS TIMESTAMP, SYMBOL TEXT, PRICE REAL) {retain}")

    def teardown(self) -> None:
        for one in getattr(self, "patches", []):
            one.stop()

    @rule(rows=tuples)
    def publish(self, rows: list[tuple[int, str | None, float | None]]) -> None:
        given = [{"TS": moment(second), "SYMBOL": symbol, "PRICE": price} for second, symbol, price in rows]
        batch = self.engine.upsert("TRADES", given)
        assert len(batch) == len(rows)
        for i, (second, symbol, price) in enumerate(rows):
            self.model.append(batch.first_seq + i, moment(second), symbol, price)
        self.follow_retention()

    @rule(second=seconds)
    def advance(self, second: int) -> None:
        self.engine.progress("TRADES", moment(second))
        self.model.advance(moment(second))
        self.follow_retention()

    @rule()
    def something_else(self) -> None:
        self.engine.upsert("OTHER", {"K": 1})

    def follow_retention(self) -> None:
        """What is retained is a suffix; how long it may be, the test below says."""
        self.model.kept_from = len(self.model.tuples) - self.engine.rows("TRADES")

    @rule(
        target=windows,
        kind=st.sampled_from(AGGREGATES),
        window=st.sampled_from(WINDOWS),
        condition=st.sampled_from(CONDITIONS),
    )
    def watch_window(self, kind: str, window: str, condition: str) -> Any:
        if kind in ("MIN(PRICE)", "MAX(PRICE)", "DISTINCT SYMBOL") and condition.count("AND") == 1 and "=" in condition:
            condition = "WHERE SYMBOL = 'a'"
        subscription = self.engine.subscribe(f"SELECT {kind} FROM TRADES {window} {condition}")
        return subscription, kind, window, condition

    @rule(subscription=consumes(windows))
    def close_window(self, subscription: tuple[EngineSubscription, str, str, str]) -> None:
        self.check_window(*subscription)
        subscription[0].close()

    @rule(subscription=windows)
    def look(self, subscription: tuple[EngineSubscription, str, str, str]) -> None:
        self.check_window(*subscription)

    def check_window(self, subscription: EngineSubscription, kind: str, window: str, condition: str) -> None:
        size = window.strip("[]").split()
        held = (
            self.model.rows_window(int(size[1]))
            if size[0] == "ROWS"
            else self.model.range_window(float(size[1].strip("'s")))
        )
        inside = [one for one in held if holds(condition, one.price, one.symbol)]
        assert subscription.answer == aggregate(kind, inside)

    @rule(target=filters, condition=st.sampled_from(CONDITIONS), after=st.none() | st.integers(0, 30))
    def filter(self, condition: str, after: int | None) -> Any:
        subscription = self.engine.subscribe(f"SELECT * FROM TRADES {condition}", after=after)
        begin = self.engine.seq if after is None else after
        trimmed = self.model.kept_from and begin < self.model.tuples[self.model.kept_from - 1].position
        lost = trimmed or begin > self.engine.seq
        events = subscription.drain()
        assert any(isinstance(event, Resync) for event in events) == bool(lost)
        expected = [
            StreamTuple(one.position, one.row)
            for one in self.model.retained
            if one.position > begin and holds(condition, one.price, one.symbol)
        ]
        assert [event for event in events if isinstance(event, StreamTuple)] == expected
        return subscription, condition, self.engine.seq

    @rule(subscription=consumes(filters))
    def hear(self, subscription: tuple[EngineSubscription, str, int]) -> None:
        self.check_filter(*subscription)
        subscription[0].close()

    def check_filter(self, subscription: EngineSubscription, condition: str, since: int) -> None:
        expected = [
            StreamTuple(one.position, one.row)
            for one in self.model.tuples
            if one.position > since and holds(condition, one.price, one.symbol)
        ]
        assert subscription.drain() == expected

    @invariant()
    def structures_are_sound(self) -> None:
        if not hasattr(self, "engine"):
            return
        found = self.engine._streams["trades"]
        cells = found.store.cells[:, found.store.live_slots()]
        found.store.check()
        found.order.check(cells)
        for window in found.windows.values():
            if self.engine._channels.reading(window.name):
                window.check()
        retained = self.model.retained
        assert found.order.positions.tolist() == [one.position for one in retained]
        assert found.order.times.tolist() == [
            (one.effective - moment(0)).total_seconds() * 1e6 + ZERO for one in retained
        ]

    @invariant()
    def the_order_can_be_restored(self) -> None:
        if not hasattr(self, "engine"):
            return
        found = self.engine._streams["trades"]
        cells = found.store.cells[:, found.store.live_slots()]
        again = StreamOrder(found.store.table)
        again.restored(cells, found.order.removed, list(found.order.marks), [])
        assert again.positions.tolist() == found.order.positions.tolist()
        assert again.times.tolist() == found.order.times.tolist()
        assert (again.time, again.removed, again.marks) == (found.order.time, found.order.removed, found.order.marks)

    @invariant()
    def enough_is_retained_and_not_too_much(self) -> None:
        if not hasattr(self, "engine"):
            return
        terms = self.engine.tables["TRADES"].stream
        assert terms is not None
        rows, ever = self.engine.rows("TRADES"), len(self.model.tuples)
        assert rows <= terms.rows + 3
        if terms.retain_s is None:
            assert rows >= min(ever, terms.rows)


ZERO = 1714521600e6
TestStreams = Streams.TestCase
TestStreams.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
