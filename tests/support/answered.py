"""One-time queries and their judge: every update by its sequence number, and SQLite over the rows as of any of them."""

from __future__ import annotations

import asyncio
import sqlite3
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any, NamedTuple

from hullcast.clients.sdk.client import Client, Receipt
from hullcast.network.answers.named import QueryRows, QueryWorth
from hullcast.network.wire.errors import DeadlineMissed, SqlError

#: Columns of each table, the key first.
TABLES: dict[str, dict[str, str]] = {
    "A": {"K": "INTEGER", "V": "INTEGER", "X": "REAL", "S": "TEXT", "AT": "TIMESTAMP"},
    "B": {"NAME": "TEXT", "V": "INTEGER", "X": "REAL"},
    "C": {"X": "REAL", "V": "INTEGER", "S": "TEXT"},
    "D": {"AT": "TIMESTAMP", "V": "INTEGER", "S": "TEXT"},
}
TERMS = {"B": " WITH (period = '50ms', weight = 3)"}
#: Sums of these numbers are exact, in whatever order they are added.
VALUES: dict[str, list[Any]] = {
    "INTEGER": [-3, 0, 1, 2, 5, 2**40],
    "REAL": [-1.5, -0.0, 0.0, 0.25, 2.0, 1e9],
    "TEXT": ["", "a", "ü", 'it\'s "q"', "%_\n\t", "😀", "A"],
    "TIMESTAMP": [
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 12, 0, 0, 500_000, UTC),
        datetime(2026, 1, 1, 12, 0, 1, tzinfo=UTC),
    ],
}
QUERIES: list[tuple[str, tuple[str, ...]]] = [
    *((f"SELECT * FROM {name}", (name,)) for name in TABLES),
    ("SELECT count(*), sum(V), avg(X), max(S), min(AT), max(AT) FROM A", ("A",)),
    ("SELECT S, count(*), sum(V) FROM C GROUP BY S", ("C",)),
    ("SELECT A.K, B.NAME, A.V FROM A JOIN B ON A.V = B.V", ("A", "B")),
    ("SELECT C.X, D.AT, B.NAME FROM C JOIN D USING (V) LEFT JOIN B ON B.X = C.X", ("B", "C", "D")),
    (
        "WITH m AS (SELECT V, count(*) AS n FROM A GROUP BY V) SELECT m.V, m.n, C.X FROM m LEFT JOIN C ON C.V = m.V",
        ("A", "C"),
    ),
    ("SELECT V FROM A UNION SELECT V FROM B UNION ALL SELECT V FROM D", ("A", "B", "D")),
    ("SELECT NAME FROM B WHERE V > (SELECT avg(V) FROM D)", ("B", "D")),
    ("SELECT AT, V FROM D WHERE S IN (SELECT S FROM A) OR S IS NULL", ("A", "D")),
    (
        "SELECT (SELECT count(*) FROM A), (SELECT sum(V) FROM B), (SELECT max(X) FROM C), (SELECT max(AT) FROM D)",
        ("A", "B", "C", "D"),
    ),
]
#: In portions.
LARGE = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
    "SELECT i, (SELECT sum(V) FROM A), (SELECT sum(V) FROM C), 'text of some length' FROM n",
    ("A", "C"),
)
KILLED = "its process was killed"


def create(table: str) -> str:
    """Its CREATE TABLE."""
    columns = [f"{name} {kind}" for name, kind in TABLES[table].items()]
    columns[0] += " PRIMARY KEY"
    return f"CREATE TABLE {table} ({', '.join(columns)}){TERMS.get(table, '')}"


class LoggedUpdate(NamedTuple):
    """One change of one row, with what was given of it; None: the row was deleted."""

    seq: int
    key: Any
    given: dict[str, Any] | None


@dataclass(eq=False)
class Sending:
    """Updates on their way; `seq` is that of the last one, when they are acknowledged."""

    seq: int = 0


@dataclass
class Answered:
    """An answer, and what was acknowledged before it was asked for; `lives` of tables then."""

    sql: str
    parameters: tuple[Any, ...]
    tables: tuple[str, ...]
    terms: dict[str, Any]
    lives: dict[str, int]
    before: int
    rows: list[tuple[Any, ...]]
    worth: QueryWorth
    after: int = 0  # what was acknowledged when it came
    under_way: list[Sending] = field(default_factory=list)  # what was not acknowledged then
    policy: str | None = None

    @property
    def latest(self) -> int:
        """No update behind this one can have been released when the answer came."""
        return max([self.after, *(sending.seq for sending in self.under_way)])


@dataclass
class UpdateHistory:
    """Every acknowledged update, and the answers that are judged by them."""

    updates: dict[tuple[str, int], list[LoggedUpdate]] = field(default_factory=lambda: defaultdict(list))
    lives: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    under_way: set[Sending] = field(default_factory=set)

    async def create(self, client: Client, tables: Iterable[str] = TABLES) -> None:
        for table in tables:
            await client.execute(create(table))
            self.lives[table] = self.lives.get(table, 0) + 1

    async def drop(self, client: Client, table: str) -> None:
        await client.execute(f"DROP TABLE {table}")

    async def publish(self, client: Client, rng: Random, tables: str = "ABCD") -> None:
        """Some rows, one row or some keys to delete; ties are common."""
        table = rng.choice(tables)
        (key, kind), *others = TABLES[table].items()
        many = rng.choice([1, 1, 2, 5, 20])
        keys = [a_key(rng, kind) for _ in range(many)]
        if rng.random() < 0.25:
            await self._send(table, client.delete(table, keys), [(one, None) for one in keys])
            return
        some = others if rng.random() < 0.7 else rng.sample(others, rng.randint(0, len(others)))
        rows = [{key: one, **{name: a_value(rng, kind) for name, kind in some}} for one in keys]
        alone = many == 1 and rng.random() < 0.5
        await self._send(table, client.publish(table, rows[0] if alone else rows), list(zip(keys, rows, strict=True)))

    async def publish_much(self, client: Client, rng: Random) -> None:
        """More than a segment of the log."""
        rows = [{"K": i % 50, "V": rng.randint(0, 9), "S": rng.choice("xyz") * 1000} for i in range(80)]
        await self._send("A", client.publish("A", rows), [(row["K"], row) for row in rows])

    async def _send(
        self, table: str, sent: Awaitable[Receipt], updates: list[tuple[Any, dict[str, Any] | None]]
    ) -> None:
        sending, life = Sending(), self.lives[table]
        self.under_way.add(sending)
        receipt = await sent
        assert receipt.updates == len(updates)
        noted = [LoggedUpdate(seq, *one) for seq, one in enumerate(updates, receipt.first_seq)]
        self.updates[table, life] += noted
        sending.seq = receipt.seq
        self.under_way.discard(sending)
        self.acknowledged = max(self.acknowledged, receipt.seq)

    # -- questions ---------------------------------------------------------------------------------------------

    async def ask(
        self, client: Client, rng: Random, *, policy: str | None = None, among: str = "ABCD", **given: Any
    ) -> Answered | None:
        """Any question; None if it was not answered in time. Of tables `among` these."""
        choice = [one for one in QUERIES if set(among).issuperset(one[1])]
        sql, tables = rng.choice(choice) if rng.random() < 0.97 else LARGE
        parameters: tuple[Any, ...] = ()
        if len(tables) == 1 and sql.startswith("SELECT *") and rng.random() < 0.5:
            key, kind = next(iter(TABLES[tables[0]].items()))
            sql, parameters = f"{sql} WHERE {key} = ?", (a_key(rng, kind),)
        terms: dict[str, Any] = {"freshness": rng.choice([1.0, 1.0, 1.0, 0.0, 0.0, 0.5, 0.9])}
        if rng.random() < 0.4:
            terms["read_set"] = "consistent"
        if rng.random() < 0.2:
            terms["deadline"] = rng.choice([0.001, 0.01, 0.1, 30.0])
        if rng.random() < 0.2:
            terms["priority"] = rng.randint(-2, 5)
        return await self.answer(client, sql, parameters, tables, terms | given, policy)

    async def answer(
        self,
        client: Client,
        sql: str,
        parameters: tuple[Any, ...],
        tables: tuple[str, ...],
        terms: dict[str, Any],
        policy: str | None = None,
    ) -> Answered | None:
        """A question, again if its worker was killed."""
        while True:
            before, lives = self.acknowledged, {table: self.lives[table] for table in tables}
            try:
                rows = await client.query(sql, *parameters, **terms)
            except DeadlineMissed:
                assert "deadline" in terms
                return None
            except SqlError as error:
                if KILLED not in str(error):
                    raise
                continue
            assert isinstance(rows, QueryRows)
            assert rows.worth is not None
            found = [tuple(map(plain, row)) for row in rows]
            under_way = list(self.under_way)
            return Answered(
                sql, parameters, tables, terms, lives, before, found, rows.worth, self.acknowledged, under_way, policy
            )

    # -- the judge ---------------------------------------------------------------------------------------------

    def judge(self, answers: Iterable[Answered | None]) -> Counter[str]:
        """Check all of them; says how many of which kind there were."""
        kinds: Counter[str] = Counter()
        assert not self.under_way
        given = [one for one in answers if one is not None]
        for updates in self.updates.values():
            updates.sort(key=lambda update: update.seq)
        needed = set()
        for one in given:
            for table in one.tables:
                needed.add((table, one.lives[table], one.worth.tables[table].seq))
                if one.worth.seq is not None:
                    needed.add((table, one.lives[table], one.worth.seq))
        states = self.states(needed)
        for one in given:
            kinds += self._judge(one, states)
        return kinds

    def states(self, needed: Iterable[tuple[str, int, int]]) -> dict[tuple[str, int, int], list[tuple[Any, ...]]]:
        """The rows of tables (name, life) as of sequence numbers."""
        found = {}
        wanted: dict[tuple[str, int], list[int]] = defaultdict(list)
        for table, life, seq in needed:
            wanted[table, life].append(seq)
        for (table, life), seqs in wanted.items():
            names = list(TABLES[table])
            updates = self.updates[table, life]
            state: dict[Any, tuple[Any, ...]] = {}
            place = 0
            for seq in sorted(seqs):
                while place < len(updates) and updates[place].seq <= seq:
                    _, key, row = updates[place]
                    place += 1
                    if row is None:
                        state.pop(key, None)
                    else:
                        old = dict(zip(names, state.get(key, [None] * len(names)), strict=True))
                        state[key] = tuple(plain(value) for value in (old | row).values())
                found[table, life, seq] = list(state.values())
        return found

    def _judge(self, one: Answered, states: Mapping[tuple[str, int, int], list[tuple[Any, ...]]]) -> Counter[str]:
        worth, fresh = one.worth, one.terms.get("freshness", 1.0) >= 1.0
        assert set(worth.tables) == set(one.tables), one
        of_each = {table: states[table, one.lives[table], worth.tables[table].seq] for table in one.tables}
        expected = sql_over(of_each, one.sql, one.parameters)
        assert Counter(one.rows) == Counter(expected), (one, expected)
        if worth.seq is not None:
            of_one = {table: states[table, one.lives[table], worth.seq] for table in one.tables}
            expected = sql_over(of_one, one.sql, one.parameters)
            assert Counter(one.rows) == Counter(expected), (one, expected)
            assert worth.seq <= one.latest, one
        if fresh or one.terms.get("read_set") == "consistent" or len(one.tables) == 1:
            assert worth.seq is not None, one
        if fresh:
            assert worth.seq is not None
            assert worth.seq >= one.before, one
        for table, its in worth.tables.items():
            life = one.lives[table]
            least, most = (self._between(table, life, its.seq, seq) for seq in (one.before, one.latest))
            assert least <= its.unapplied <= most, (table, least, most, one)
            assert (its.unapplied == 0) == (its.staleness_s == 0), (table, one)
            if fresh:
                assert least == 0, (table, one)
        assert worth.unapplied == sum(its.unapplied for its in worth.tables.values())
        assert one.policy in (None, worth.policy), one
        return Counter(
            {
                "answers": 1,
                "fresh": fresh,
                "stale": worth.unapplied > 0,
                "of one moment": worth.seq is not None,
                "of several moments": worth.seq is None,
            }
        )

    def _between(self, table: str, life: int, after: int, through: int) -> int:
        """How many updates there are."""
        updates = self.updates[table, life]
        first, last = (bisect_right(updates, seq, key=lambda update: update.seq) for seq in (after, through))
        return max(0, last - first)


def sql_over(tables: Mapping[str, list[tuple[Any, ...]]], sql: str, parameters: tuple[Any, ...]) -> list[Any]:
    """What SQLite says about these rows."""
    with closing(sqlite3.connect(":memory:")) as database:
        for table, rows in tables.items():
            columns = TABLES[table]
            kinds = [f"{name} {'TEXT' if kind == 'TIMESTAMP' else kind}" for name, kind in columns.items()]
            database.execute(f"CREATE TABLE {table} ({', '.join(kinds)})")
            database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)
        return [tuple(row) for row in database.execute(sql, tuple(map(plain, parameters)))]


def plain(value: Any) -> Any:
    """A value as SQLite keeps it: a TIMESTAMP is text."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return value


def a_value(rng: Random, kind: str) -> Any:
    return None if rng.random() < 0.2 else rng.choice(VALUES[kind])


def a_key(rng: Random, kind: str) -> Any:
    if rng.random() < 0.5:
        return rng.choice(VALUES[kind])
    number = rng.randint(0, 9)
    match kind:
        case "INTEGER":
            return number
        case "REAL":
            return number / 4
        case "TEXT":
            return f"key {number}"
    return datetime(2026, 2, 1, 0, 0, number, tzinfo=UTC)


async def together(*work: Awaitable[Any]) -> list[Any]:
    """All at once; if one fails, the others are cancelled."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_awaited(one)) for one in work]
    return [task.result() for task in tasks]


async def _awaited(work: Awaitable[Any]) -> Any:
    return await work
