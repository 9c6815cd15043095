"""Joins: every answer is its SQL, every change is heard once, and a pair is described iff some range wants it.

The histories of test_engine_machine.py, with joins alone: few texts, so that many subscriptions share a channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from math import inf
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from hullcast.broker.engine.engine import Engine
from hullcast.broker.engine.subscriptions import EngineSubscriptions
from hullcast.broker.reformulate import join as join_module
from hullcast.broker.reformulate.channels import channel_name
from hullcast.broker.reformulate.messages import Batch
from hullcast.broker.sql.query import Ref
from hullcast.network.wire.errors import TableInUse
from tests.broker.engine.test_machine import EngineHistory
from tests.support.queries import CREATE, SEEDS, Asked, row, value

SPANS = [timedelta(microseconds=n) for n in (-1_000_000, -1, 0, 1, 2, 1_000_000)]
WIDTHS = [-2, -0.5, 0, 0.25, 1, 3, inf, -inf]


class Text(NamedTuple):
    """A join, and what its parameters are compared with: a column, a difference, a duration, or a pair of them."""

    sql: str
    parameters: str


#: Per parameter a letter: a column of queries.py, `#` a difference of numbers, `~` of instants; two in brackets ascend.
TEXTS = [
    Text("R.K, S.K, R.D FROM R JOIN S ON R.A = S.A WHERE R.B BETWEEN ? AND ? AND S.B BETWEEN ? AND ?", "(BB)(BB)"),
    Text("R.K, S.E FROM R JOIN S ON R.C = S.C WHERE R.A >= ? AND R.D BETWEEN ? AND ? AND S.E < ?", "A(DD)E"),
    Text("S.K FROM R JOIN S USING (C) WHERE R.D = ? AND S.E = ? AND S.B > ?", "DEB"),
    Text("R.A, S.A FROM R JOIN S ON R.T = S.U WHERE S.U >= ? AND R.C = ?", "UC"),
    Text("R.K, S.K FROM R JOIN S ON R.D = S.E", ""),
    Text("R.K, S.A FROM R JOIN S ON S.B - R.B BETWEEN ? AND ? WHERE R.A BETWEEN ? AND ?", "(##)(AA)"),
    Text("* FROM R JOIN S ON S.U - R.T BETWEEN ? AND ?", "(~~)"),
    Text("R.K FROM R JOIN S ON R.D - S.E >= ? WHERE R.C = ? AND S.A <= ? AND S.B <= ?", "#CAB"),
    Text("x.K, y.K, y.C FROM R x JOIN R y ON x.A = y.D WHERE x.B BETWEEN ? AND ? AND y.B >= ?", "(BB)B"),
    Text("x.A, y.A FROM R x JOIN R y USING (C) WHERE y.D BETWEEN ? AND ?", "(DD)"),
    Text("x.K, y.A FROM R x JOIN R y ON y.B - x.B BETWEEN ? AND ? WHERE x.A <= ? AND y.C = ?", "(##)AC"),
    Text("x.K, y.K FROM R x JOIN R y ON ABS(x.T - y.T) <= ? WHERE x.D = ?", "~D"),
    Text("x.K, y.B FROM S x JOIN S y ON x.B = y.A WHERE x.E > ? AND y.U < ?", "EU"),
]


def joins() -> st.SearchStrategy[Asked]:
    """A join."""
    return SEEDS.map(lambda seed: a_join(Random(seed)))


def a_join(rng: Random, text: Text | None = None) -> Asked:
    """One of the texts, with parameters."""
    text = text or rng.choice(TEXTS)
    found: list[Any] = []
    for letter in text.parameters:
        if letter == ")" and found[-1] < found[-2] and rng.random() < 0.9:
            found[-2:] = found[-1], found[-2]
        elif letter in "#~":
            found.append(rng.choice(WIDTHS if letter == "#" else SPANS))
        elif letter not in "()":
            found.append(value(rng, "R", letter))
    return Asked(f"SELECT {text.sql}", tuple(found))


class JoinHistory(EngineHistory):
    """Joins come and go while rows do."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, Asked]] = []  # channels held, and the range of each
        self.contents: dict[Asked, Any] = {}  # what each range has, before an update
        self.rows: dict[str, dict[Any, Any]] = {}
        self.due: set[tuple[str, int, Any]] = set()  # channel, update and pair of the messages that there must be

    @initialize(seed=st.integers(0, 2**32 - 1), first=st.lists(joins(), max_size=6))
    def start(self, seed: int, first: list[Asked]) -> None:
        super().start(seed, first)

    @rule(some=st.lists(joins(), min_size=1, max_size=4), eager=st.booleans())
    def subscribe(self, some: list[Asked], eager: bool) -> None:
        super().subscribe(some, eager)

    @rule(asked=joins(), others=st.lists(SEEDS, max_size=3), eager=st.booleans())
    def subscribe_many(self, asked: Asked, others: list[int], eager: bool) -> None:
        super().subscribe_many(asked, others, eager)

    @rule(asked=joins())
    def hold_a_channel(self, asked: Asked) -> None:
        if len(self.open) < 3:
            self.open.append((self.engine.open_channel(asked.sql, *asked.parameters), asked))

    @rule()
    def release_a_channel(self) -> None:
        if self.open:
            name, _ = self.open.pop()  # the latest of its name too
            self.engine.close_channel(name)

    # --- what must be described ------------------------------------------------------------------------------

    def live(self) -> list[Asked]:
        """All ranges that are wanted."""
        return [*(one.asked for one in self.listeners), *(asked for _, asked in self.open)]

    def follow(self, batch: Batch, updates: list[tuple[str, str, Any]], silent: bool = False) -> None:
        self.due.clear()
        self.contents = {asked: self.oracle.contents(asked.sql, *asked.parameters) for asked in self.live()}
        self.rows = {table: self.all_rows(table) for table in "RSW"}
        super().follow(batch, updates, silent)
        described = set[tuple[str, int, Any]]()
        for name, messages in batch.messages.items():
            columns = messages.columns
            keys = [column.tolist() for name, column in columns.items() if name.startswith("key.")]
            pairs = list(zip([name] * len(messages), columns["seq"].tolist(), zip(*keys, strict=True), strict=True))
            assert len(set(pairs)) == len(pairs), "each pair once"
            assert columns["seq"].tolist() == sorted(columns["seq"].tolist())
            described.update(pairs)
        assert described == self.due

    def happened(self, seq: int, table: str) -> None:
        before, self.rows[table] = self.rows.get(table, {}), self.all_rows(table)
        after = self.rows[table]
        (key,) = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)] or [None]
        for asked, contents in self.contents.items():
            self.contents[asked] = self.oracle.contents(asked.sql, *asked.parameters)
            query = self.engine._catalogue.parse(asked.sql)
            shape = query.shape
            assert shape.on is not None
            refs = {*shape.ranges, *shape.partition, *shape.projection, Ref(0, shape.on.left), Ref(1, shape.on.right)}
            for pair in {*contents, *self.contents[asked]}:
                for side, name in enumerate(shape.tables):
                    if name == table and pair[side] == key and key is not None:
                        was, now = before.get(key), after.get(key)
                        if was is None or now is None or any(was[c] != now[c] for s, c in refs if s == side):
                            self.due.add((channel_name(shape, query.tables), seq, pair))

    def all_rows(self, table: str) -> dict[Any, Any]:
        """The rows as SQLite has them, by key."""
        rows = self.oracle.database.execute(f"SELECT * FROM {table}").fetchall()
        return {row[self.oracle.tables[table].key]: row for row in rows}

    def teardown(self) -> None:
        while self.open:
            self.release_a_channel()
        for channel in self.engine._channels:
            assert isinstance(channel, join_module.JoinChannel)
            channel.standing.check()
        super().teardown()


#: Plans by the planner's numbers; None: the planner chooses. NAIVE is for a few ranges, whatever the planner says.
PLANS: dict[str, int | None] = {"chosen": None}
if find_spec("hullcast.broker.joins.planner"):
    PLANS |= {"NAIVE": -1, "JoinFirst": 0, "SelectFirst": 2, "Hotspot": 3}


def force(monkeypatch: pytest.MonkeyPatch, plan: int | None) -> None:
    """Let one plan find all partners."""
    if plan is None:
        return
    monkeypatch.setattr("hullcast.broker.joins.standing.FEW", 1 << 60 if plan < 0 else 0)
    monkeypatch.setattr(
        "hullcast.broker.joins.planner.Planner.choose",
        lambda self, tree, arrivals, facts, plans: np.full(len(arrivals.xs), plan),
    )


@pytest.mark.parametrize("plan", [*PLANS][::4])  # few ranges need none; the last one forced to be used for these
def test_join_histories(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, PLANS[plan])
    run_state_machine_as_test(JoinHistory, settings=settings(max_examples=25, stateful_step_count=25))


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_long_join_histories(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, PLANS[plan])
    run_state_machine_as_test(JoinHistory, settings=settings(max_examples=300, stateful_step_count=60))


# --- a table joined with itself, piece by piece --------------------------------------------------------------------


def stocks() -> Engine:
    """STOCK, and another table that a self-join must not be taken for."""
    engine = Engine()
    engine.execute("CREATE TABLE STOCK (K INTEGER PRIMARY KEY, X REAL, C TEXT)")
    engine.execute('CREATE TABLE "STOCK 2" (K INTEGER PRIMARY KEY, X REAL)')
    return engine


def test_the_sides_of_a_self_join_have_names_of_their_own() -> None:
    engine = stocks()
    own = engine.open_channel("SELECT a.K, b.K FROM STOCK a JOIN STOCK b ON a.X = b.X WHERE a.K > 0 AND b.C = 'u'")
    other = engine.open_channel('SELECT a.K, b.K FROM STOCK a JOIN "STOCK 2" b ON a.X = b.X WHERE a.K > 0')
    assert own == (
        'SELECT STOCK.K, "STOCK 2".K FROM STOCK JOIN STOCK AS "STOCK 2" ON STOCK.X = "STOCK 2".X '
        'OVER STOCK.K BY "STOCK 2".C'
    )
    assert other == 'SELECT STOCK.K, "STOCK 2".K FROM STOCK JOIN "STOCK 2" ON STOCK.X = "STOCK 2".X OVER STOCK.K'
    columns = engine.upsert("STOCK", [{"K": 7, "X": 1, "C": "u"}]).messages[own].columns
    sides = "OLD_THERE old.STOCK.K old.STOCK_2.C NEW_THERE new.STOCK.K new.STOCK_2.C"
    names = f"seq key.STOCK key.STOCK_2 {sides} row.STOCK.K row.STOCK_2.K"
    assert " ".join(columns).replace("STOCK 2", "STOCK_2") == names
    assert (columns["key.STOCK"].tolist(), columns["key.STOCK 2"].tolist()) == ([7], [7])
    with pytest.raises(TableInUse, match="STOCK"):
        engine.execute("DROP TABLE STOCK")
    engine.close_channel(own)
    engine.close_channel(other)
    engine.execute("DROP TABLE STOCK")


def test_rows_of_one_batch_meet_as_of_their_own_turn() -> None:
    """7 joins 8 for as long as both are at 1: from the second update to the third."""
    engine = stocks()
    pairs = engine.subscribe("SELECT a.K, b.K FROM STOCK a JOIN STOCK b ON a.X = b.X WHERE a.K <= 7 AND b.K >= 8")
    engine.upsert("STOCK", [{"K": 7, "X": 1}, {"K": 8, "X": 1}, {"K": 7, "X": 2}, {"K": 8, "X": 2}, {"K": 9, "X": 2}])
    assert [(event.seq, sorted(map(tuple, event.answer))) for event in pairs.drain()] == [
        (2, [(7, 8)]),
        (3, []),
        (4, [(7, 8)]),
        (5, [(7, 8), (7, 9)]),
    ]


OWN = [text for text in TEXTS if " x JOIN " in text.sql]


@pytest.mark.parametrize(("text", "together"), [*((text, 64) for text in TEXTS), *((text, 1) for text in OWN)], ids=str)
def test_a_batch_says_what_its_rows_say_one_by_one(text: Text, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_module, "TOGETHER", together)
    monkeypatch.setattr(join_module, "AT_ONCE", 16)
    rng = Random(together)
    asked = [a_join(rng, text) for _ in range(4)]
    said = []
    batches = [("RS"[n % 2], [row(rng, "RS"[n % 2]) for _ in range(rng.choice([3, 40, 100]))]) for n in range(3)]
    for at_once in (True, False):
        engine = Engine()
        for statement in CREATE:
            engine.execute(statement)
        subscriptions = [engine.subscribe(one.sql, *one.parameters) for one in asked]
        messages = []
        for table, rows in batches:
            for some in [rows] if at_once else [[one] for one in rows]:
                for described in engine.upsert(table, some).messages.values():
                    columns = {name: column.tolist() for name, column in described.columns.items()}
                    messages += sorted(map(repr, zip(*columns.values(), strict=True)))
        events = [[(event.seq, event.answer) for event in subscription.drain()] for subscription in subscriptions]
        said.append((sorted(messages), events))
    assert said[0] == said[1]


def test_both_zeros_are_one_value() -> None:
    engine = stocks()
    texts = ("a.X = b.X", "b.X - a.X BETWEEN 0 AND 0", "a.X = b.X AND a.X BETWEEN 0 AND 0 AND b.X >= 0")
    found = [engine.subscribe(f"SELECT a.K, b.K FROM STOCK a JOIN STOCK b ON {text}") for text in texts]
    engine.upsert("STOCK", [{"K": 1, "X": 0.0}, {"K": 2, "X": -0.0}])
    engine.upsert("STOCK", [{"K": 3, "X": -0.0}])
    for subscription in found:
        assert [tuple(pair) for pair in subscription.answer] == [(a, b) for a in (1, 2, 3) for b in (1, 2, 3)]


def test_too_many_pairs_of_one_batch_make_everybody_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_module, "MOST_PAIRS", 50)
    engine = stocks()
    pairs = engine.subscribe("SELECT a.K, b.K FROM STOCK a JOIN STOCK b ON a.X = b.X WHERE a.K BETWEEN ? AND ?", 0, 99)
    none = engine.subscribe("SELECT a.K, b.K FROM STOCK a JOIN STOCK b ON a.X = b.X WHERE a.K BETWEEN ? AND ?", -9, -1)
    engine.upsert("STOCK", {"K": list(range(7)), "X": [1.0] * 7})
    assert [type(event).__name__ for event in pairs.drain()] == ["Change"] * 7
    engine.upsert("STOCK", {"K": list(range(7, 11)), "X": [1.0] * 4})  # seventy-two more, of hundred and twenty-one
    assert [type(event).__name__ for event in pairs.drain()] == ["Resync"]
    assert (len(pairs.answer), none.answer) == (121, [])
    pairs.close()
    none.drain()
    engine.upsert("STOCK", {"K": list(range(30)), "X": [2.0] * 30})  # nobody wants these
    assert none.drain() == []


# --- many changes, by each plan --------------------------------------------------------------------------------------

KEYS_EACH, RANGES = 150, 120
CHURNED = {  # the columns of a place, and those whose change matters to either side
    "equality": ("R JOIN S ON R.B = S.B WHERE R.A BETWEEN ? AND ? AND S.A BETWEEN ? AND ?", "AB", "AB"),
    "band": ("R JOIN S ON S.A - R.A BETWEEN ? AND ? WHERE R.B BETWEEN ? AND ?", "AB", "A"),
    "itself": ("R JOIN R S ON R.B = S.B WHERE R.A BETWEEN ? AND ? AND S.A BETWEEN ? AND ?", "AB", "AB"),
    "band with itself": ("R JOIN R S ON S.A - R.A BETWEEN ? AND ? WHERE R.B BETWEEN ? AND ?", "AB", "A"),
}


class Churn:
    """Two tables of numbers (A, B by key; NaN: no row), ranges that come and go, and what must be described."""

    def __init__(self, kind: str, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.source, *self.relevant = CHURNED[kind]
        self.band, self.own = kind.startswith("band"), "itself" in kind
        self.engine = Engine()
        for table in "RS":
            self.engine.execute(f"CREATE TABLE {table} (K INTEGER PRIMARY KEY, A REAL, B INTEGER)")
        self.state = [np.full((2, KEYS_EACH), np.nan) for _ in "RS"]
        self.groups: list[tuple[EngineSubscriptions, np.ndarray[Any, Any]]] = []

    def subscribe(self) -> None:
        """Some ranges come; the oldest go."""
        n = int(self.rng.integers(1, RANGES // 3))
        a, b = self.rng.integers(0, 50, n) / 2, self.rng.integers(0, 8, n).astype(float)
        first = (a - 13, a - 13 + self.rng.integers(0, 4, n) / 2) if self.band else (a, a + self.rng.integers(0, 9, n))
        second = (b, b + self.rng.integers(0, 3, n)) if self.band else (a[::-1], a[::-1] + self.rng.integers(0, 9, n))
        ranges = np.column_stack((*first, *second))
        ranges[self.rng.random(n) < 0.1, 1] = np.inf
        self.groups.append((self.engine.subscribe_many(f"SELECT R.K, S.K FROM {self.source}", *ranges.T), ranges))
        while sum(len(some) for _, some in self.groups[1:]) > RANGES:
            self.groups.pop(0)[0].close()

    def change(self, n: int, check: bool) -> None:
        """A batch of updates of one table; with `check`, what is described is what the definition says."""
        side = 0 if self.own else int(self.rng.integers(2))
        keys = self.rng.integers(0, KEYS_EACH, n)
        new = np.array([self.rng.integers(0, 50, n) / 2, self.rng.integers(0, 8, n)])
        new[self.rng.random((2, n)) < 0.05] = np.nan  # NULL
        (name,) = self.engine.statistics()
        if self.rng.random() < 0.2:
            keys = np.unique(keys)[: n // 4]
            new = np.full((2, len(keys)), np.nan)
            messages = self.engine.delete("RS"[side], keys.tolist()).messages[name]
        else:
            rows = {"K": keys, "A": new[0], "B": new[1]}
            messages = self.engine.upsert("RS"[side], rows, nan="null").messages[name]
        expected = set()
        first = self.engine.seq - len(keys) + 1
        for i, key in enumerate(keys.tolist()):
            if check:
                expected |= {(first + i, *pair) for pair in self.wanted(side, key, new[:, i])}
            self.state[side][:, key] = new[:, i]
        if check:
            columns = [messages.columns[column].tolist() for column in list(messages.columns)[:3]]
            described = list(zip(*columns, strict=True))
            assert len(described) == len(set(described))
            assert set(described) == expected

    def wanted(self, side: int, key: int, new: np.ndarray[Any, Any]) -> Iterator[tuple[int, int]]:
        """The pairs (left key, right key) of a changed row that a range wants, before or after."""
        ranges = np.concatenate([some for _, some in self.groups])
        old = self.state[side][:, key].copy()
        for role in (0, 1) if self.own else (side,):
            columns = ["AB".index(column) for column in self.relevant[role]]
            if np.array_equal(old[columns], new[columns], equal_nan=True):
                continue
            others = self.state[0 if self.own else 1 - side]
            found = np.zeros(KEYS_EACH, np.bool_)
            for mine in (old, new):
                theirs = others.copy()
                if self.own:
                    theirs[:, key] = mine
                own = np.repeat(mine[:, np.newaxis], KEYS_EACH, axis=1)
                left, right = (own, theirs) if role == 0 else (theirs, own)
                places = (right[0] - left[0], left[1]) if self.band else (left[0], right[0])
                met = np.ones((KEYS_EACH, 1), np.bool_) if self.band else (left[1] == right[1])[:, np.newaxis]
                (x, y), (x_low, x_high, y_low, y_high) = (place[:, np.newaxis] for place in places), ranges.T
                found |= (met & (x_low <= x) & (x <= x_high) & (y_low <= y) & (y <= y_high)).any(axis=1)
            for other in np.flatnonzero(found).tolist():
                yield (key, other) if role == 0 else (other, key)

    def check_answers(self) -> None:
        """Some subscriptions have what SQL says."""
        group, ranges = self.groups[-1]
        for i in self.rng.integers(0, len(group), 3).tolist():
            sql = f"SELECT R.K, S.K FROM {self.source}"
            assert sorted(map(tuple, group[i].answer)) == sorted(
                map(tuple, self.engine.query(sql, *ranges[i].tolist()))
            )

    def run(self, changes: int, batch: int, every: int) -> None:
        """So many changes; every so many batches all is checked."""
        self.subscribe()
        for number in range(changes // batch):
            if number % 3 == 0:
                self.subscribe()
            self.change(batch, check=number % every == 0)
            if number % every == 0:
                self.check_answers()
                for channel in self.engine._channels:
                    assert isinstance(channel, join_module.JoinChannel)
                    channel.standing.check()


@pytest.mark.parametrize("kind", CHURNED)
@pytest.mark.parametrize("plan", PLANS)
def test_changes_are_described_as_defined(kind: str, plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, PLANS[plan])
    Churn(kind, 1).run(360, 60, 3)


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_a_hundred_thousand_changes_are_described_as_defined(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(monkeypatch, PLANS[plan])
    for seed, kind in enumerate(CHURNED):
        Churn(kind, seed).run(25_000, 200, 10)
