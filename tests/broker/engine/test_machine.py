"""The promise: after every update every subscription's answer is its SQL, and it hears of each change exactly once.

Three tables, subscriptions of every type coming and going, and SQLite asked the same questions after each row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from hullcast.broker.engine.engine import Engine
from hullcast.broker.engine.subscription import EngineSubscription
from hullcast.broker.engine.subscriptions import EngineSubscriptions
from hullcast.broker.reformulate.messages import Batch
from hullcast.network.answers.events import Change, Event
from tests.support.queries import COLUMNS, CREATE, KEY, KEYS, SEEDS, Asked, row, subscription, subscriptions
from tests.support.sqlite_oracle import Oracle

MOST = 14  # subscriptions open at a time


@dataclass
class Listener:
    """A subscription, what SQLite last said to its SQL, and the changes it has not yet been asked about."""

    subscription: EngineSubscription
    asked: Asked
    contents: Any
    eager: bool  # drained after every update, or only now and then
    group: EngineSubscriptions | None = None
    expected: list[tuple[int, Any, Any]] = field(default_factory=list)  # seq, contents before, contents after

    def heard(self) -> None:
        """Drain: one event per change, with the answer as of then and just the difference."""
        assert self.subscription.pending == len(self.expected), self.asked
        events = self.subscription.drain()
        assert [event.seq for event in events] == [seq for seq, _, _ in self.expected], self.asked
        for event, (_, before, after) in zip(events, self.expected, strict=True):
            assert same(event.answer, answer_of(after)), (self.asked, event)
            check_difference(event, before, after)
        self.expected.clear()
        assert self.subscription.drain() == []


class EngineHistory(RuleBasedStateMachine):
    """Rows come, change and go, one at a time or in batches; subscriptions come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine()
        for statement in CREATE:
            self.engine.execute(statement)
        self.oracle = Oracle(self.engine.tables)
        self.listeners: list[Listener] = []
        self.held: list[str] = []

    @initialize(seed=st.integers(0, 2**32 - 1), first=st.lists(subscriptions(), max_size=5))
    def start(self, seed: int, first: list[Asked]) -> None:
        """Rows that are there already, and a few who listen from the beginning."""
        rng = Random(seed)
        for table in "RSW":
            for key in rng.sample(KEYS[table], rng.randint(0, len(KEYS[table]))):
                some = row(rng, table, COLUMNS[table]) | {KEY[table]: key}
                self.follow(self.engine.upsert(table, some), [("upsert", table, some)])
        for i, asked in enumerate(first):
            self.subscribe_one(asked, eager=i % 2 == 0)

    # --- subscriptions -------------------------------------------------------------------------------------

    @rule(some=st.lists(subscriptions(), min_size=1, max_size=4), eager=st.booleans())
    def subscribe(self, some: list[Asked], eager: bool) -> None:
        for asked in some:
            self.subscribe_one(asked, eager)

    def subscribe_one(self, asked: Asked, eager: bool) -> None:
        if len(self.listeners) < MOST:
            self.listen(self.engine.subscribe(asked.sql, *asked.parameters), asked, eager)

    @rule(asked=subscriptions(), others=st.lists(SEEDS, max_size=3), eager=st.booleans())
    def subscribe_many(self, asked: Asked, others: list[int], eager: bool) -> None:
        """The same text with other parameters of the same kinds, at once."""
        if not asked.parameters or len(self.listeners) + 2 + len(others) > MOST:
            return
        wanted = [asked.parameters, asked.parameters]
        for seed in others:
            alike = list(asked.parameters)
            Random(seed).shuffle(alike)
            if [type(value) for value in alike] == [type(value) for value in asked.parameters]:
                wanted.append(tuple(alike))
        group = self.engine.subscribe_many(asked.sql, *map(list, zip(*wanted, strict=True)))
        assert len(group) == len(wanted)
        for one, parameters in zip(group, wanted, strict=True):
            self.listen(one, Asked(asked.sql, parameters), eager, group)

    def listen(
        self, made: EngineSubscription, asked: Asked, eager: bool, group: EngineSubscriptions | None = None
    ) -> None:
        contents = self.oracle.contents(asked.sql, *asked.parameters)
        assert same(made.answer, answer_of(contents)), asked
        assert made.seq == self.engine.seq
        self.listeners.append(Listener(made, asked, contents, eager, group))

    @rule(which=st.integers(0, MOST))
    def close(self, which: int) -> None:
        if not self.listeners:
            return
        leaving = self.listeners[which % len(self.listeners)]
        (leaving.group or leaving.subscription).close()
        self.listeners = [
            one
            for one in self.listeners
            if one is not leaving and (leaving.group is None or one.group is not leaving.group)
        ]

    @rule(asked=subscriptions())
    def hold_a_channel(self, asked: Asked) -> None:
        if len(self.held) < 3:
            self.held.append(self.engine.open_channel(asked.sql, *asked.parameters))

    @rule()
    def release_a_channel(self) -> None:
        if self.held:
            self.engine.close_channel(self.held.pop(0))

    @rule()
    def drain_the_lazy(self) -> None:
        for one in self.listeners:
            one.heard()

    # --- rows ----------------------------------------------------------------------------------------------

    @rule(seed=SEEDS, table=st.sampled_from("RRRSSSW"))
    def upsert_one(self, seed: int, table: str) -> None:
        some = row(Random(seed), table)
        self.follow(self.engine.upsert(table, some), [("upsert", table, some)])

    @rule(seeds=st.lists(SEEDS, min_size=2, max_size=6), table=st.sampled_from("RRSSW"))
    def upsert_batch(self, seeds: list[int], table: str) -> None:
        some = [row(Random(seed), table) for seed in seeds]
        self.follow(self.engine.upsert(table, some), [("upsert", table, one) for one in some])

    @rule(seeds=st.lists(SEEDS, min_size=1, max_size=8), table=st.sampled_from("RRSSW"))
    def upsert_columns(self, seeds: list[int], table: str) -> None:
        some = [row(Random(seed), table, COLUMNS[table]) for seed in seeds]
        columns = {name: [one[name] for one in some] for name in (KEY[table], *COLUMNS[table])}
        self.follow(self.engine.upsert(table, columns), [("upsert", table, one) for one in some])

    @rule(seed=SEEDS, table=st.sampled_from("RRSSW"))
    def change_nothing(self, seed: int, table: str) -> None:
        keys = self.oracle.keys(table)
        if keys:
            key = Random(seed).choice(keys)
            (stored,) = self.engine.query(f"SELECT * FROM {table} WHERE {KEY[table]} = ?", key)
            same_row: dict[str, Any] = dict(zip((KEY[table], *COLUMNS[table]), stored, strict=True))
            self.follow(self.engine.upsert(table, same_row), [("upsert", table, same_row)], silent=True)

    @rule(seed=SEEDS, table=st.sampled_from("RRSSW"))
    def delete_one(self, seed: int, table: str) -> None:
        key = Random(seed).choice(KEYS[table])
        absent = key not in self.oracle.keys(table)
        self.follow(self.engine.delete(table, key), [("delete", table, key)], silent=absent)

    @rule(seed=SEEDS, n=st.integers(2, 5), table=st.sampled_from("RRSSW"))
    def delete_batch(self, seed: int, n: int, table: str) -> None:
        keys = Random(seed).choices(KEYS[table], k=n)
        self.follow(self.engine.delete(table, keys), [("delete", table, key) for key in keys])

    @rule(seed=SEEDS, table=st.sampled_from("RS"))
    def replace(self, seed: int, table: str) -> None:
        """Delete a row and insert another, which gets the same slot."""
        rng = Random(seed)
        gone, come = rng.choice(KEYS[table]), row(rng, table, COLUMNS[table])
        self.follow(self.engine.delete(table, gone), [("delete", table, gone)])
        self.follow(self.engine.upsert(table, come), [("upsert", table, come)])

    # --- what must be true ---------------------------------------------------------------------------------

    def follow(self, batch: Batch, updates: list[tuple[str, str, Any]], silent: bool = False) -> None:
        """Do the same in SQLite, row by row, and note what each subscription must hear; then ask them."""
        assert (batch.last_seq, len(batch)) == (self.engine.seq, len(updates))
        for seq, (how, table, what) in enumerate(updates, batch.first_seq):
            if how == "upsert":
                self.oracle.upsert(table, what)
            else:
                self.oracle.delete(table, what)
            self.happened(seq, table)
            for one in self.listeners:
                contents = self.oracle.contents(one.asked.sql, *one.asked.parameters)
                if not same(contents, one.contents):
                    assert not silent
                    if rows_of(contents) != rows_of(one.contents):  # equal pairs may be exchanged: the same rows
                        one.expected.append((seq, one.contents, contents))
                    one.contents = contents
        for i, one in enumerate(self.listeners):
            if one.eager and (self.engine.seq + i) % 2:
                one.heard()  # drained before the answer was looked at, or after
            assert same(one.subscription.answer, answer_of(one.contents)), one.asked
            assert one.subscription.seq == self.engine.seq
            if one.eager:
                one.heard()

    def happened(self, seq: int, table: str) -> None:
        """SQLite has an update now; the engine has all of its batch."""

    def teardown(self) -> None:
        for one in self.listeners:
            one.heard()
        check_structures(self.engine)
        for one in self.listeners:
            (one.group or one.subscription).close()
        while self.held:
            self.engine.close_channel(self.held.pop())
        assert self.engine.statistics() == {}, "the last one to leave closes the channel"


def answer_of(contents: Any) -> Any:
    """What a subscription shows of contents by key."""
    return list(contents.values()) if isinstance(contents, dict) else contents


def rows_of(contents: Any) -> Any:
    """The answer as SQL sees it: rows in no order, each as often as it occurs."""
    return Counter(map(repr, contents.values())) if isinstance(contents, dict) else contents


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types: 1 is not 1.0."""
    return bool(one == other) and (isinstance(one, set) or repr(one_plain(one)) == repr(one_plain(other)))


def one_plain(value: Any) -> Any:
    """Rows as plain tuples."""
    return [tuple(row) for row in value] if isinstance(value, list) else value


def check_difference(event: Event, before: Any, after: Any) -> None:
    """What an event says came, went and changed is exactly the difference of two contents."""
    assert isinstance(event, Change)
    entered, left, changed = list[Any](), list[Any](), list[Any]()
    if isinstance(after, set):
        entered, left = list(after - before), list(before - after)
    elif isinstance(after, dict):
        entered = [row for key, row in after.items() if key not in before]
        left = [row for key, row in before.items() if key not in after]
        changed = [(before[key], row) for key, row in after.items() if key in before and before[key] != row]
    assert Counter(event.entered) == Counter(entered)
    assert Counter(event.left) == Counter(left)
    assert Counter(event.changed) == Counter(changed)


def check_structures(engine: Engine) -> None:
    """Every structure that documents invariants keeps them."""
    for store in engine._stores.values():
        store.check()
    engine._interner.check_invariants()
    for channel in engine._channels:
        channel.audience.index.check()
        channel.outbox.check()
        for keeper in (getattr(channel, "keeper", None), *getattr(channel, "keepers", ())):
            if keeper is not None:
                keeper.tree.check()
        statistics = channel.statistics()
        assert statistics.updates == statistics.ignorable + statistics.easy + statistics.difficult


TestEngineHistory = EngineHistory.TestCase
TestEngineHistory.settings = settings(max_examples=120, stateful_step_count=40)


@pytest.mark.slow
def test_long_engine_histories() -> None:
    run_state_machine_as_test(EngineHistory, settings=settings(max_examples=1200, stateful_step_count=60))


def storm(seed: int) -> None:
    """A long history in which many listen: more changes than hypothesis draws, and no shrinking."""
    rng = Random(seed)
    machine = EngineHistory()
    machine.start(rng.getrandbits(40), [])
    steps = [
        *[machine.upsert_one] * 6,
        machine.replace,
        machine.delete_one,
        machine.change_nothing,
    ]
    for step in range(120):
        if step % 20 == 0:
            for _ in range(12):
                asked = subscription(rng)
                machine.listen(machine.engine.subscribe(asked.sql, *asked.parameters), asked, rng.random() < 0.7)
        table = rng.choice("RRRSSSW")
        if step % 9 == 0:
            machine.upsert_batch([rng.getrandbits(40) for _ in range(5)], table)
        elif step % 23 == 0:
            machine.delete_batch(rng.getrandbits(40), 3, table)
        elif step % 10 == 0:
            for _ in range(4):
                machine.close(rng.randrange(99))
        else:
            rng.choice(steps)(rng.getrandbits(40), "S" if table == "W" and rng.random() < 0.5 else table)
    machine.drain_the_lazy()
    machine.teardown()


@pytest.mark.parametrize("seed", range(24))
def test_answers_are_right_through_a_storm(seed: int) -> None:
    storm(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1240))
def test_answers_are_right_through_many_storms(seed: int) -> None:
    storm(seed)
