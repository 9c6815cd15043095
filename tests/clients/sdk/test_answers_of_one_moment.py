"""Server and client without a network: answers are what SQL says, whatever happened while they were on their way.

First answers are taken in slices and parts, rows change between any two of them, texts and partition numbers are swept
all the time, the retention is short, groups come, leave and are resumed together with others.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hullcast.broker.engine import engine as engine_module
from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.index import grouping
from hullcast.broker.reformulate.extremum import ExtremumChannel
from hullcast.broker.scheduling.driver import Work
from hullcast.broker.server import subscribing
from hullcast.broker.server.attendance import Attendance
from hullcast.broker.server.outcome import Outcome
from hullcast.broker.server.retention import Retention
from hullcast.broker.server.settings import ServerSettings
from hullcast.broker.tables import interning
from hullcast.clients.sdk.groups import Groups, SubscriptionGroup
from hullcast.clients.sdk.resuming import Standing
from hullcast.clients.sdk.session import Fetching
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import Unavailable, from_wire
from hullcast.network.wire.frames import Origin, Request
from hullcast.network.wire.values import keys_to_column, rows_to_columns
from tests.support.office import Office

TABLES = (
    "CREATE TABLE R (K INTEGER PRIMARY KEY, X REAL, Y REAL, S TEXT, G INTEGER)",
    "CREATE TABLE Q (K INTEGER PRIMARY KEY, X REAL, Y REAL, S TEXT, G INTEGER)",
)
QUERIES = (
    "SELECT MIN(Y) FROM R WHERE X BETWEEN ? AND ?",
    "SELECT MAX(Y) FROM R WHERE X BETWEEN ? AND ? AND S = ?",
    "SELECT MIN(Y) FROM R WHERE X BETWEEN ? AND ? AND S = ? AND G = 1",
    "SELECT DISTINCT G FROM R WHERE X BETWEEN ? AND ? AND S = ?",
    "SELECT DISTINCT S FROM R WHERE X BETWEEN ? AND ?",
    "SELECT COUNT(*) FROM R WHERE X BETWEEN ? AND ? AND S = ? AND G = 2",
    "SELECT SUM(Y) FROM R WHERE X BETWEEN ? AND ? AND S = ?",
    "SELECT K, S FROM R WHERE X BETWEEN ? AND ? AND S = ?",
    "SELECT R.K, Q.K, Q.S FROM R JOIN Q USING (X) WHERE R.Y BETWEEN ? AND ? AND R.S = ?",
    "SELECT R.K, Q.K FROM R JOIN Q ON Q.X - R.X BETWEEN ? AND ?",
)

ME, EPOCH = b"m" * 16, b"e" * 16


class World:
    """An office, one client's groups, and chance in between."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.engine = ServedEngine()
        retention = Retention(self.chance.choice([3000, 30_000, 1 << 20]))
        attendance = Attendance(self.engine, retention, 0.0, self.asked)
        self.office = Office(
            self.engine,
            attendance=attendance,
            wanted=lambda: {channel for channel, _ in self.installed.values()},
            epoch=EPOCH,
            limits=ServerSettings(subscribe_rows=1000, subscribe_groups=100, max_channels=50),
        )
        self.groups = Groups()
        self.installed: dict[int, tuple[int, npt.NDArray[np.float64]]] = {}  # by group: channel and points
        self.connected = True
        self.number = 0
        for table in TABLES:
            self.ask(bodies.Execute(table, ME, self.next_number()))

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def asked(self, channel: int, partitions: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        held = [points[:, -1] for number, points in self.installed.values() if number == channel]
        return np.isin(partitions, np.concatenate([np.empty(0), *held]))

    def work(self, body: bodies.Body) -> Work:
        return self.office.work(body, Request(1, (1,), Origin(None, ""), bodies.encode(body)))

    def ask(self, body: bodies.Body, changing: bool = False) -> Outcome:
        """Do it slice by slice; rows may change in between."""
        work, sent = self.work(body), None
        try:
            while True:
                yielded = work.send(sent)
                self.perhaps_change(changing)
                sent = None
                if callable(yielded):
                    compute = yielded()
                    self.perhaps_change(changing)
                    sent = compute()
        except StopIteration as stop:
            outcome: Outcome = stop.value
        for install in outcome.installs:
            self.installed[install.group] = install.channel, install.points
        return outcome

    def perhaps_change(self, changing: bool) -> None:
        while changing and self.chance.random() < 0.5:
            self.change()

    def change(self) -> None:
        chance, table = self.chance, self.chance.choice("RQ")
        keys = [chance.randrange(25) for _ in range(chance.randrange(0, 4))]
        if chance.random() < 0.3:
            body: bodies.Body = bodies.Delete(table, keys_to_column(keys), ME, self.next_number())
        else:
            rows: list[dict[str, Any]] = [
                {
                    "K": key,
                    "X": chance.choice([0, 1, 2, 3, None]),
                    "Y": chance.randrange(4),
                    "S": chance.choice(["s0", "s1", f"once{self.number}", None]),
                    "G": chance.choice([1, 2, None]),
                }
                for key in keys
            ]
            if not rows:
                return
            body = bodies.Publish(table, *rows_to_columns(rows), ME, self.next_number())
        outcome = self.ask(body)
        assert isinstance(outcome.reply, bodies.Done), outcome.reply
        for channel, columns in outcome.messages.items() if self.connected else ():
            listening = self.groups.channels.get(channel)
            if listening is not None:
                listening.hear(columns)

    def subscribe(self, body: bodies.Subscribe, changing: bool = True) -> bodies.Subscribed | None:
        """The reply, with what was fetched; None: come again later."""
        outcome, fetching = self.ask(body, changing), None
        reply = outcome.reply
        if isinstance(reply, bodies.Staged):
            fetching = Fetching(reply)
            for _ in range(reply.parts):
                self.perhaps_change(changing)
                part = self.ask(bodies.decode(fetching.next(body))).reply
                assert isinstance(part, bytes), part
                decoded = bodies.decode(part)
                assert isinstance(decoded, bodies.AnswerPart)
                fetching.take(decoded)
            outcome = self.ask(bodies.decode(fetching.next(body)), changing)
            reply = outcome.reply
        if isinstance(reply, bodies.Failed):
            assert isinstance(from_wire(reply.code, reply.arguments), Unavailable), reply
            return None
        assert not isinstance(reply, bytes)
        decoded_reply = bodies.decode(bodies.encode(reply))
        assert isinstance(decoded_reply, bodies.Subscribed)
        assert decoded_reply.seq == self.engine.seq
        decoded_reply = bodies.with_points(decoded_reply, outcome.installs)
        return decoded_reply if fetching is None else fetching.complete(decoded_reply)

    def open(self) -> None:
        chance, sql = self.chance, self.chance.choice(QUERIES)
        n = chance.choice([0, 1, 7])
        low = [chance.randrange(4) for _ in range(n)]
        high = [each + chance.randrange(-1, 3) for each in low]
        texts = [chance.choice(["s0", "s1", "new", f"once{chance.randrange(50)}"]) for _ in range(n)]
        columns = (np.array(low, np.int64), np.array(high, np.int64), texts)[: sql.count("?")]
        parameters = tuple(keys_to_column(column) for column in columns)
        group = SubscriptionGroup(sql, parameters, n, None, 1000)
        self.groups.number(group)
        reply = self.subscribe(bodies.Subscribe((group.on_wire(),)))
        if reply is not None:
            assert reply.groups[0].failed is None
            self.groups.open(group, reply.groups[0], reply)

    def leave(self) -> None:
        if len(self.groups):
            group = self.chance.choice(list(self.groups))
            self.groups.leave(group, None)
            del self.installed[group.number]
            self.office.attendance.close_deserted({c for c, _ in self.installed.values()}, 1.0)

    def resume(self) -> None:
        standing = Standing(self.engine.seq, EPOCH)
        self.groups.part(standing)
        self.installed.clear()
        self.connected = False
        for _ in range(self.chance.choice([0, 1, 5])):
            self.change()
        groups, tries = list(self.groups), 0
        while groups:
            tries += 1
            body = bodies.Subscribe(tuple(group.on_wire() for group in groups), standing.seq, standing.epoch)
            reply = self.subscribe(body, changing=tries < 4)  # where all is too much for the retention it needs a rest
            if reply is not None:
                assert not self.groups.resume(reply, first=True)
                break
        self.connected = True

    def check(self) -> None:
        for group in self.groups:
            for member, listener in enumerate(group.listeners.tolist()):
                found: Any = group.listening.answer(listener)
                parameters = group.parameters_of(listener)
                rows = self.engine.query(group.sql, *parameters)
                if group.sql.startswith(("SELECT K", "SELECT R")):
                    assert sorted(map(tuple, found)) == sorted(map(tuple, rows)), (group.sql, member)
                elif "DISTINCT" in group.sql:
                    assert found == {row[0] for row in rows}, (group.sql, member)
                else:
                    assert found == rows[0][0], (group.sql, member, parameters)


@pytest.mark.parametrize("seed", range(25))
def test_answers_are_what_sql_says_at_the_moment_of_the_reply(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interning, "SWEEP_SLACK", 5)
    monkeypatch.setattr(grouping, "SWEEP_SLACK", 3)
    monkeypatch.setattr(engine_module, "LOADED_AT_ONCE", 1 + seed % 7)
    monkeypatch.setattr(ExtremumChannel, "capture_at_once", 1 + seed % 4)
    monkeypatch.setattr(subscribing, "AT_ONCE_LOOKS", -1 if seed % 2 else 1 << 20)
    monkeypatch.setattr(subscribing, "PART_BYTES", 200 if seed % 3 else 1 << 20)
    monkeypatch.setattr(subscribing, "REPLAY_BYTES", 2000 if seed % 5 else 1 << 20)
    world = World(seed)
    for _ in range(40):
        step = world.chance.choice([world.open, world.open, world.change, world.change, world.leave, world.resume])
        step()
        world.check()
    assert world.engine.changes.sweeps


def test_a_group_without_members_does_not_divide_its_channel() -> None:
    world = World(0)

    def open_group(n: int) -> SubscriptionGroup:
        column = keys_to_column(np.zeros(n, np.int64))
        group = SubscriptionGroup(QUERIES[0], (column, column), n, None, 1000)
        world.groups.number(group)
        reply = world.subscribe(bodies.Subscribe((group.on_wire(),)))
        assert reply is not None
        world.groups.open(group, reply.groups[0], reply)
        return group

    empty, first = open_group(0), open_group(1)
    world.groups.leave(first, None)
    second = open_group(1)
    assert second.listening is empty.listening
    world.groups.leave(empty, None)
    world.groups.leave(second, None)
    assert not world.groups.channels
    for _ in range(3):
        open_group(0)
        open_group(1)
        world.resume()
        world.check()
