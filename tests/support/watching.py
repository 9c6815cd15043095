"""Clients under a storm of updates, and the judge: SQLite replays every acknowledged update and says who should have
heard what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from hullcast.broker.engine.engine import Engine
from hullcast.clients.sdk.client import Client, Receipt
from hullcast.clients.sdk.subscription import Subscription
from hullcast.network.answers.events import Change, Event, Resync, Snapshot
from tests.broker.engine.test_machine import answer_of, check_difference, rows_of, same
from tests.support.queries import COLUMNS, CREATE, KEYS, Asked, row
from tests.support.sqlite_oracle import Oracle

#: More than any test lets pass: nothing may be dropped for want of room.
BUFFER = 1 << 20

#: One of every kind, with what makes each hard: partitions, open bounds, NULLs, every type.
EVERY_KIND = (
    Asked("SELECT MIN(B) FROM R WHERE A BETWEEN ? AND ?", (1, 2)),
    Asked("SELECT MIN(T) FROM R WHERE B > ?", (0.0,)),
    Asked("SELECT MAX(A) FROM S WHERE B < ? AND C = ?", (1.5, "a")),
    Asked("SELECT MAX(D) FROM R", ()),
    Asked("SELECT DISTINCT C FROM R WHERE A >= ?", (1,)),
    Asked("SELECT DISTINCT U FROM S WHERE C = ?", ("b",)),
    Asked("SELECT COUNT(*) FROM R WHERE A BETWEEN ? AND ? AND D <= ?", (0, 2, 0)),
    Asked("SELECT COUNT(C) FROM S", ()),
    Asked("SELECT SUM(D) FROM R WHERE B >= ?", (0.0,)),
    Asked("SELECT SUM(B) FROM S WHERE E BETWEEN ? AND ? AND C = ?", (0, 1, "")),
    Asked("SELECT AVG(A) FROM R WHERE C = ?", ("a",)),
    Asked("SELECT K, B, T FROM R WHERE A BETWEEN ? AND ? AND B > ?", (0, 2, -0.5)),
    Asked("SELECT * FROM S WHERE C = ?", ("ü",)),
    Asked("SELECT * FROM W", ()),
    Asked("SELECT R.K, S.K FROM R JOIN S USING (C) WHERE R.A BETWEEN ? AND ? AND S.E >= ?", (0, 2, 1)),
    Asked("SELECT R.A, S.E FROM R JOIN S ON R.T = S.U", ()),
    Asked("SELECT R.K, S.K FROM R JOIN S ON S.B - R.B BETWEEN ? AND ?", (-0.5, 1)),
    Asked("SELECT R.K, S.C, R.T, S.U FROM R JOIN S ON ABS(S.A - R.A) < ? WHERE R.C = ?", (2, "a")),
)


class Update(NamedTuple):
    """One acknowledged change of one row."""

    how: str
    table: str
    what: Any


class History:
    """Every acknowledged update by its sequence number, whoever published it."""

    def __init__(self) -> None:
        engine = Engine()
        for statement in CREATE:
            engine.execute(statement)
        self._tables = dict(engine.tables)
        self.updates: dict[int, Update] = {}

    async def create(self, client: Client) -> None:
        for statement in CREATE:
            await client.execute(statement)

    async def publish(self, client: Client, rng: Random) -> Receipt:
        """A random batch: rows with some columns, whole rows, or keys to delete."""
        table = rng.choice("RRRSSSW")
        if rng.random() < 0.2:
            keys = [rng.choice(KEYS[table]) for _ in range(rng.randint(1, 3))]
            return self._note(await client.delete(table, keys), [Update("delete", table, key) for key in keys])
        given = COLUMNS[table] if rng.random() < 0.5 else None
        rows = [row(rng, table, given) for _ in range(rng.randint(1, 5))]
        return self._note(await client.publish(table, rows), [Update("upsert", table, one) for one in rows])

    def _note(self, receipt: Receipt, updates: list[Update]) -> Receipt:
        assert receipt.updates == len(updates)
        for seq, update in enumerate(updates, receipt.first_seq):
            assert seq not in self.updates, f"two updates are number {seq}"
            self.updates[seq] = update
        return receipt

    @property
    def seq(self) -> int:
        return max(self.updates, default=0)

    def check_complete(self, server_seq: int) -> None:
        """Nothing was applied twice, and nothing that nobody published: the numbers are without gaps."""
        assert sorted(self.updates) == list(range(1, server_seq + 1)), "updates that nobody has a receipt for"

    def oracle(self) -> Oracle:
        """SQLite, still empty."""
        return Oracle(self._tables)

    def apply(self, oracle: Oracle, seq: int) -> None:
        """What update `seq` did; nothing, if it is not ours (see `check_complete`)."""
        if seq not in self.updates:
            return
        how, table, what = self.updates[seq]
        if how == "upsert":
            oracle.upsert(table, what)
        else:
            oracle.delete(table, what)

    def now(self) -> Oracle:
        """SQLite with all of it."""
        oracle = self.oracle()
        for seq in sorted(self.updates):
            self.apply(oracle, seq)
        return oracle


@dataclass
class Watcher:
    """A subscription, how it began, and all it ever told."""

    client: Client
    asked: Asked
    subscription: Subscription[Event | Snapshot]
    first_seq: int
    first_answer: Any
    events: list[Event | Snapshot] = field(default_factory=list)
    resyncs: int = 0

    def collect(self) -> None:
        """Take what has come."""
        while (event := self.subscription.take_nowait()) is not None:
            self.events.append(event)
            self.resyncs += isinstance(event, Resync)


async def watch(client: Client, some: Iterable[Asked]) -> list[Watcher]:
    """Subscribe, with room for all that comes, and remember the first answer."""
    watchers = []
    for asked in some:
        made = await client.subscribe(asked.sql, *asked.parameters, overflow="block", buffer=BUFFER, snapshot=True)
        first = made.take_nowait()
        assert isinstance(first, Snapshot | Resync), first  # Resync: the server began anew in this very moment
        watchers.append(Watcher(client, asked, made, first.seq, first.answer))
    return watchers


async def settle(clients: Iterable[Client]) -> None:
    """Wait until everybody has heard everything."""
    await asyncio.gather(*(client.sync() for client in clients))


def check_answers(history: History, watchers: Iterable[Watcher]) -> None:
    """Promise 1: after everything, every answer is SQL's."""
    oracle = history.now()
    for one in watchers:
        expected = oracle.contents(one.asked.sql, *one.asked.parameters)
        assert same(one.subscription.answer, answer_of(expected)), (one.asked, one.subscription.answer, expected)


def check_streams(history: History, watchers: list[Watcher], *, resyncs_allowed: bool) -> None:
    """Promises 1, 2, 3 and 5: first answers, and each change told once, in order, as of its number, and no others.

    Where a Resync is, the changes up to its number may be missing, and its answer is the one as of it.
    """
    for one in watchers:
        one.collect()
    oracle = history.oracle()
    judges = [_Judge(one, resyncs_allowed) for one in watchers]
    for seq in range(history.seq + 1):
        if seq:
            history.apply(oracle, seq)
        for judge in judges:
            judge.step(seq, oracle)
    for judge in judges:
        judge.end()


class _Judge:
    def __init__(self, watcher: Watcher, resyncs_allowed: bool) -> None:
        self._watcher = watcher
        self._resyncs_allowed = resyncs_allowed
        self._events = watcher.events
        self._next = 0
        self._contents: Any = None
        self._missed: list[int] = []  # changes not told; a Resync may excuse them

    def step(self, seq: int, oracle: Oracle) -> None:
        one, asked = self._watcher, self._watcher.asked
        before, after = self._contents, oracle.contents(asked.sql, *asked.parameters)
        self._contents = after
        if seq < one.first_seq:
            return
        if seq == one.first_seq:
            assert same(one.first_answer, answer_of(after)), (asked, seq, one.first_answer, after)
        elif rows_of(before) != rows_of(after):
            self._missed.append(seq)
        while self._next < len(self._events) and self._events[self._next].seq == seq:
            event = self._events[self._next]
            self._next += 1
            where = (asked, event, self._events[max(0, self._next - 3) : self._next + 2])
            assert isinstance(event, Change | Resync), where
            assert same(event.answer, answer_of(after)), (where, answer_of(after))
            if isinstance(event, Resync):
                assert self._resyncs_allowed, where
                self._missed.clear()
            else:
                assert self._missed == [seq], (where, "told", seq, "but changed at", self._missed)
                self._missed.clear()
                if not self._after_resync(seq):
                    check_difference(event, before, after)

    def _after_resync(self, seq: int) -> bool:
        """A Resync with the same number came before it."""
        return any(isinstance(event, Resync) and event.seq == seq for event in self._events[: self._next])

    def end(self) -> None:
        one = self._watcher
        assert self._next == len(self._events), (one.asked, "events out of order", self._events[self._next - 1 :][:3])
        assert not self._missed, (one.asked, "changes not told", self._missed, one.first_seq, self._events[-3:])
