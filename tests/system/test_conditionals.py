"""Conditional subscriptions in a cluster of processes: every result is the SQL at its sequence number, whoever dies."""

from __future__ import annotations

import asyncio
import sqlite3
from bisect import bisect_right
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hullcast.broker.log.record import RecordKind
from hullcast.broker.log.verify import show
from hullcast.broker.server.conditionals import name_of
from hullcast.clients.sdk.client import Client, Receipt
from hullcast.clients.sdk.subscription import Subscription
from hullcast.network.answers.events import Change, Event, Resync, Snapshot
from hullcast.network.security.rights import Rights
from hullcast.network.wire.bodies import Group, Trigger
from hullcast.network.wire.durations import seconds_of
from hullcast.network.wire.errors import NotPermitted
from tests.support.cluster import SERVER, Cluster, cluster, wait_for
from tests.support.secured import RIGHTS, allowed, secured

PATIENCE_S = 120.0
TABLES = {
    "FUEL": "CREATE TABLE FUEL (ID INTEGER PRIMARY KEY, X REAL, PRICE REAL)",
    "STATION": "CREATE TABLE STATION (ID INTEGER PRIMARY KEY, NAME TEXT, X REAL)",
}
QUERY = (
    "SELECT s.NAME, COUNT(*), MIN(f.PRICE), SUM(f.PRICE) FROM FUEL f JOIN STATION s ON f.X = s.X "
    "GROUP BY s.NAME ORDER BY s.NAME"
)
#: Conditions of several kinds, with their parameters.
CONDITIONS: dict[str, tuple[Any, ...]] = {
    "SELECT MIN(PRICE) FROM FUEL WHERE X BETWEEN ? AND ?": (1, 3),
    "SELECT COUNT(*) FROM FUEL WHERE PRICE < ?": (20,),
    "SELECT ID, PRICE FROM FUEL WHERE X = ?": (2,),
    "SELECT f.ID, s.ID FROM FUEL f JOIN STATION s ON f.X = s.X WHERE f.PRICE < ?": (20,),
}
#: Tables whose every change counts, and what must lie between two results.
FOLLOWED: dict[tuple[str, ...], str | None] = {("STATION",): None, ("FUEL", "STATION"): "100ms"}


@dataclass
class Past:
    """What the tables held after each update: one client changes them, row by row."""

    rows: dict[str, dict[int, dict[str, Any]]] = field(default_factory=lambda: {name: {} for name in TABLES})
    seqs: list[int] = field(default_factory=lambda: [0])
    tables: list[str] = field(default_factory=list)  # which one each update changed
    states: list[dict[str, list[dict[str, Any]]]] = field(default_factory=lambda: [{name: [] for name in TABLES}])

    async def step(self, hc: Client, rng: Random) -> int:
        """One more change."""
        table, key = rng.choice(["FUEL", "FUEL", "FUEL", "STATION"]), rng.randrange(8)
        receipt: Receipt
        if rng.random() < 0.2:
            receipt = await hc.delete(table, [key])
            self.rows[table].pop(key, None)
        else:
            row: dict[str, Any] = {"ID": key, "X": float(rng.randrange(4))}
            row |= {"PRICE": float(rng.randrange(40))} if table == "FUEL" else {"NAME": rng.choice("abc")}
            receipt = await hc.publish(table, [row])
            self.rows[table][key] = row
        self.seqs.append(receipt.seq)
        self.tables.append(table)
        self.states.append({name: list(map(dict, rows.values())) for name, rows in self.rows.items()})
        return receipt.seq

    def answer(self, sql: str, parameters: tuple[Any, ...], seq: int) -> list[tuple[Any, ...]]:
        """What SQLite says of the tables as of a sequence number."""
        state = self.states[bisect_right(self.seqs, seq) - 1]
        with closing(sqlite3.connect(":memory:")) as database:
            for name, create in TABLES.items():
                database.execute(create)
                for row in state[name]:
                    names, marks = ", ".join(row), ", ".join("?" * len(row))
                    database.execute(f"INSERT INTO {name} ({names}) VALUES ({marks})", tuple(row.values()))
            return database.execute(sql, parameters).fetchall()

    def changes(self, trigger: Trigger) -> list[int]:
        """The updates at which an answer became another one, or that changed a table."""
        if trigger.when is None:
            return [seq for seq, name in zip(self.seqs[1:], self.tables, strict=True) if name in trigger.tables]
        answers = [sorted(map(repr, self.answer(trigger.when, trigger.parameters, seq))) for seq in self.seqs]
        return [seq for seq, before, now in zip(self.seqs[1:], answers[:-1], answers[1:], strict=True) if before != now]


@dataclass
class Heard:
    """A conditional subscription and all its events."""

    subscription: Subscription[Event | Snapshot]
    trigger: Trigger
    events: list[Event | Snapshot] = field(default_factory=list)

    async def listen(self) -> None:
        async for event in self.subscription:
            self.events.append(event)

    @property
    def as_of(self) -> int:
        """What the latest result includes."""
        return max((event.answer.worth.seq for event in self.results()), default=0)

    @property
    def name(self) -> str:
        """What the server calls it."""
        return name_of(Group(1, QUERY, (), 1, trigger=self.trigger))

    @property
    def resyncs(self) -> int:
        """How often it began again."""
        return sum(isinstance(event, Resync) for event in self.events)

    def results(self) -> list[Any]:
        return [event for event in self.events if isinstance(event, Snapshot | Change | Resync)]

    def check(self, past: Past, delivered: list[int], *, resyncs: int) -> None:
        """Right, in order, none lost, none twice; `delivered` are the numbers that the server gave to its results."""
        results = self.results()
        assert isinstance(results[0], Snapshot)
        for event in results:
            rows = event.answer
            assert rows.error is None, rows.error
            assert list(map(tuple, rows)) == past.answer(QUERY, (), rows.worth.seq), f"as of {rows.worth.seq}"
            assert rows.fired is None or rows.fired <= rows.worth.seq < event.seq or isinstance(event, Resync)
        seqs = [event.seq for event in results]
        assert seqs == sorted(set(seqs)), "in order, none twice"
        moments = [event.answer.worth.seq for event in results]
        assert moments == sorted(moments)
        assert self.resyncs == resyncs
        told = [event.seq for event in results if isinstance(event, Change)]
        assert set(told) <= set(delivered)
        if not resyncs:
            assert told == [seq for seq in delivered if results[0].seq < seq <= results[-1].seq], "none lost"
        changes = past.changes(self.trigger)
        if self.trigger.every_s is not None:
            return
        assert len(changes) > 5
        assert moments[-1] >= changes[-1], "the last change was told"
        fired = [event.answer.fired for event in results if event.answer.fired is not None]
        for seq in changes:
            assert any(moment >= seq for moment in moments), "each change was told, at the latest with the next"
        if "JOIN" not in (self.trigger.when or ""):
            assert set(fired) <= set(changes), "nothing else fires"


async def begin(hc: Client, past: Past, rng: Random, *, every: str | None = None) -> list[Heard]:
    for create in TABLES.values():
        await hc.execute(create)
    for _ in range(10):
        await past.step(hc, rng)
    heard = []
    for when, parameters in CONDITIONS.items():
        made = hc.subscribe(
            QUERY, when=when, when_parameters=parameters, snapshot=True, overflow="block", buffer=10_000
        )
        heard.append(Heard(await made, Trigger(when, parameters)))
    for tables, pause in FOLLOWED.items():
        made = hc.subscribe(QUERY, when=tables, at_most_every=pause, snapshot=True, overflow="block", buffer=10_000)
        heard.append(
            Heard(await made, Trigger(tables=tables, at_most_every_s=None if pause is None else seconds_of(pause)))
        )
    if every is not None:
        made = hc.subscribe(QUERY, every=every, snapshot=True, buffer=10_000)
        heard.append(Heard(await made, Trigger(every_s=seconds_of(every))))
    return heard


async def go_through(tmp_path: Path, faults: list[Callable[[Cluster], Any]], *, steps: int = 60) -> None:
    """Changes, faults in between, and everything that was heard, checked. A server that is killed is a process."""
    rng, past = Random(len(faults)), Past()
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(3, tmp_path / "data", processes=tmp_path if _kill_server in faults else None) as c,
        c.client("g1", "g2") as hc,
        asyncio.TaskGroup() as listening,
    ):
        heard = await begin(hc, past, rng, every="400ms")
        tasks = [listening.create_task(one.listen()) for one in heard]
        expected = 0

        def all_are_back() -> bool:
            return all(one.resyncs >= expected for one in heard)

        for fault in (*faults, None):
            for _ in range(steps):
                await past.step(hc, rng)
            await wait_for(all_are_back, "all have begun again")  # else two restarts are one gap
            if fault is not None:
                await fault(c)
                expected += fault is _kill_server
        last = {one.name: [past.seqs[-1], *past.changes(one.trigger)][-1] for one in heard}

        def all_is_told() -> bool:
            return all(one.as_of >= last[one.name] for one in heard)

        await wait_for(all_is_told, "all is told")
        for one in heard:
            await one.subscription.close()
        await asyncio.gather(*tasks)
    delivered = _delivered(tmp_path / "data")
    for one in heard:
        one.check(past, delivered.get(one.name, []), resyncs=expected)


def _delivered(data: Path) -> dict[str, list[int]]:
    """The numbers of all results in the log, by the name of their conditional subscription."""
    found: dict[str, list[int]] = {}
    for _, placed in show(data, 0):
        if placed.record.kind is RecordKind.RESULT:
            found.setdefault(placed.record.payload.decode(), []).append(placed.record.first)
    return found


async def _kill_gateway(c: Cluster) -> None:
    await c.kill("g1")


async def _kill_server(c: Cluster) -> None:
    await c.kill(SERVER)
    await asyncio.sleep(0.3)
    await c.restart_server()


async def test_results_are_right_and_none_is_lost_when_a_gateway_dies(tmp_path: Path) -> None:
    await go_through(tmp_path, [_kill_gateway])


async def test_subscriptions_go_on_with_the_present_result_when_the_server_is_killed(tmp_path: Path) -> None:
    await go_through(tmp_path, [_kill_server], steps=40)


@pytest.mark.slow
async def test_results_are_right_through_a_dead_gateway_and_two_dead_servers(tmp_path: Path) -> None:
    await go_through(tmp_path, [_kill_server, _kill_gateway, _kill_server])


async def test_two_hundred_subscribers_to_the_same_cost_one_run_each_time() -> None:
    rng, past = Random(7), Past()
    async with asyncio.timeout(PATIENCE_S), cluster(3) as c, c.client() as hc:
        for create in TABLES.values():
            await hc.execute(create)
        await past.step(hc, rng)
        clients = [await c.client(f"g{1 + i % 2}") for i in range(4)]
        subs = await asyncio.gather(
            *(_opened(clients[i % 4].subscribe(QUERY, when="SELECT COUNT(*) FROM FUEL")) for i in range(200))
        )
        before = (await hc.status())["conditionals"]
        assert (len(before["each"]), before["runs"]) == (1, 1)
        for number in range(1, 6):
            receipt = await hc.publish("FUEL", [{"ID": 100 + number, "X": 1.0, "PRICE": 1.0}])
            events = await asyncio.gather(*map(anext, subs))
            assert {event.answer.fired for event in events} == {receipt.seq}
            known = (await hc.status())["conditionals"]
            assert (known["runs"], known["delivered"]) == (1 + number, number)
        for client in clients:
            await client.close()


async def _opened(opening: Subscription) -> Subscription:
    return await opening


# --- owners ----------------------------------------------------------------------------------------------------

SLOW = "WITH RECURSIVE N(I) AS (SELECT ? UNION ALL SELECT I + 1 FROM N WHERE I < 300000) SELECT COUNT(*) FROM N, STOCK"


async def test_slow_queries_of_one_key_do_not_keep_another_key_waiting(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path) as c, c.client("admin") as admin:
        await admin.execute("CREATE TABLE STOCK (ID INTEGER PRIMARY KEY)")
        granted = {name: {**RIGHTS[name], "query": ["*"]} for name in ("reader", "ticker")}
        c.server.take_rights(_everywhere(c, {**RIGHTS, **granted}))
        async with c.client("reader") as greedy, c.client("ticker") as modest:
            await asyncio.gather(*(_opened(greedy.subscribe(SLOW, i, every="100ms")) for i in range(12)))
            sub = await modest.subscribe("SELECT COUNT(*) FROM STOCK", every="100ms")

            def slow_runs() -> int:
                return sum(one.counts.runs for one in c.server.conditionals if one.sql == SLOW)

            before = slow_runs()
            for _ in range(3):
                await anext(sub)
            assert slow_runs() - before < 12, "its turn came before all of them had one"


# --- rights ----------------------------------------------------------------------------------------------------


async def test_a_conditional_subscription_needs_both_rights_also_when_they_change(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path) as c, c.client("admin") as admin:
        for table in ("STOCK", "NEWS"):
            await admin.execute(f"CREATE TABLE {table} (ID INTEGER PRIMARY KEY, X REAL)")
        count, all_rows = "SELECT COUNT(*) FROM {}", "SELECT * FROM {} ORDER BY ID"
        granted: dict[str, dict[str, object]] = {
            **RIGHTS,
            "admin": {"admin": True, "publish": ["*"]},
            "reader": {"query": ["STOCK"], "subscribe": ["NEWS"]},
            "ticker": {"subscribe": ["STOCK", "NEWS"]},
        }
        c.server.take_rights(_everywhere(c, granted))
        async with c.client("reader") as reader, c.client("ticker") as ticker:
            for client, query, when, may in (
                (reader, "NEWS", "NEWS", "query"),
                (reader, "STOCK", "STOCK", "subscribe"),
                (ticker, "STOCK", "NEWS", "query"),
            ):
                with pytest.raises(NotPermitted, match=f"the right `{may}`"):
                    await client.subscribe(all_rows.format(query), when=count.format(when))
                with pytest.raises(NotPermitted, match=f"the right `{may}`"):
                    await client.explain(all_rows.format(query), when=count.format(when))
                with pytest.raises(NotPermitted, match=f"the right `{may}`"):
                    await client.subscribe(all_rows.format(query), when=when)
                with pytest.raises(NotPermitted, match=f"the right `{may}`"):
                    await client.explain(all_rows.format(query), when=when)
            await reader.subscribe(all_rows.format("STOCK"), every=60)
            follower = await reader.subscribe(all_rows.format("STOCK"), when="NEWS")
            sub = await reader.subscribe(all_rows.format("STOCK"), when=count.format("NEWS"))
            await admin.publish("STOCK", [{"ID": 1, "X": 1.0}])
            await admin.publish("NEWS", [{"ID": 1, "X": 1.0}])
            event = await anext(sub)
            assert isinstance(event, Change)
            assert event.answer == [(1, 1.0)]
            c.server.take_rights(_everywhere(c, {**granted, "reader": {"query": ["STOCK"], "subscribe": ["STOCK"]}}))
            with pytest.raises(NotPermitted, match="the right `subscribe` on NEWS"):
                async for _ in follower:
                    pass
            c.server.take_rights(_everywhere(c, granted))
            sub = await reader.subscribe(all_rows.format("STOCK"), when=count.format("NEWS"))
            c.server.take_rights(_everywhere(c, {**granted, "reader": {"query": ["NEWS"], "subscribe": ["NEWS"]}}))
            with pytest.raises(NotPermitted, match="the right `query` on STOCK"):
                async for _ in sub:
                    pass


def _everywhere(c: Any, granted: dict[str, dict[str, object]]) -> Rights:
    rights = allowed(c.pairs, granted)
    c.node.children.take_rights(rights)
    return rights
