"""More subscriptions than one request asks for: they come, break, go on and leave as one."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hullcast
from hullcast import Resync, testing
from hullcast.clients.sdk import groups, resuming
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.subscriptions import Subscriptions
from hullcast.network.wire import bodies
from tests.support.cluster import cluster, wait_for
from tests.support.links import wait_until

LIMIT_S = 60
PORTION, GROUPS = 4, 2
CREATE = "CREATE TABLE T (K INTEGER PRIMARY KEY, X INTEGER, Y INTEGER)"
MIN = "SELECT MIN(Y) FROM T WHERE X BETWEEN ? AND ?"
SUM = "SELECT SUM(Y) FROM T WHERE X BETWEEN ? AND ?"
ROWS = "SELECT K, Y FROM T WHERE X BETWEEN ? AND ?"
LOWS = [i % 5 for i in range(3 * PORTION)]
HIGHS = [low + 1 + i % 3 for i, low in enumerate(LOWS)]


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bodies.Subscribe]:
    """Portions are small, and these are the requests for them."""
    for module in (groups, resuming):
        monkeypatch.setattr(module, "PORTION_SUBSCRIPTIONS", PORTION)
    monkeypatch.setattr(resuming, "PORTION_GROUPS", GROUPS)
    encode, found = bodies.encode, []

    def encode_and_note(body: bodies.Body, *more: Any) -> bytes:
        if isinstance(body, bodies.Subscribe):
            found.append(body)
        return encode(body, *more)

    monkeypatch.setattr("hullcast.clients.sdk.session.bodies.encode", encode_and_note)
    return found


def check_sizes(asked: list[bodies.Subscribe]) -> None:
    assert max(sum(group.count for group in body.groups) for body in asked) <= PORTION
    assert max(len(body.groups) for body in asked) <= GROUPS


def when_taken(monkeypatch: pytest.MonkeyPatch, portions: int, do: Callable[[Subscriptions], object]) -> None:
    """Do something at the moment when the server has taken so many portions; once."""
    opened = Subscriptions._group_taken
    done: list[object] = []

    def opened_and_do(many: Subscriptions) -> None:
        opened(many)
        if many._taken == portions and not done:
            done.append(do(many))

    monkeypatch.setattr(Subscriptions, "_group_taken", opened_and_do)


class History:
    """Rows that change until it is enough, one with each update, and what SQL says of them after each."""

    def __init__(self, hc: Client) -> None:
        self._hc, self._chance = hc, random.Random(5)
        self.tables: list[dict[int, tuple[int, int]]] = [{}]  # by sequence number
        self.enough = False

    async def publish(self) -> None:
        while not self.enough:
            table = dict(self.tables[-1])
            key = self._chance.randrange(30)
            table[key] = (self._chance.randrange(8), self._chance.randrange(100))
            receipt = await self._hc.publish("T", {"K": key, "X": table[key][0], "Y": table[key][1]})
            assert receipt.seq == len(self.tables)  # acknowledged changes are applied once each
            self.tables.append(table)

    async def more(self, updates: int = 30) -> None:
        """Wait for so many updates from now on."""
        until = len(self.tables) + updates
        await wait_for(lambda: len(self.tables) >= until, "updates")

    def answer(self, sql: str, seq: int, member: int) -> Any:
        low, high = LOWS[member], HIGHS[member]
        rows = {key: y for key, (x, y) in self.tables[seq].items() if low <= x <= high}
        if sql == ROWS:
            return sorted(rows.items())
        return (min if sql == MIN else sum)(rows.values()) if rows else None

    def check_events(self, sql: str, member: int, start: int, heard: list[hullcast.Event], *, resyncs: int) -> None:
        """Each change since `start` was told once, in order, unless a Resync stands for it."""
        seqs = [event.seq for event in heard]
        assert seqs == sorted(set(seqs))
        assert sum(isinstance(event, Resync) for event in heard) <= resyncs
        before = start
        for event in [*heard, None]:
            now = len(self.tables) - 1 if event is None else event.seq
            changes = [
                seq
                for seq in range(before + 1, now + 1)
                if self.answer(sql, seq, member) != self.answer(sql, seq - 1, member)
            ]
            if event is None:
                assert changes == []
            elif not isinstance(event, Resync):
                assert changes == [now]
            before = now


def comparable(sql: str, answer: Any) -> Any:
    if sql == ROWS:
        return sorted(map(tuple, answer))
    return None if answer is None or answer != answer else answer


@pytest.mark.parametrize("sql", [MIN, SUM, ROWS])
async def test_portions_stay_right_while_rows_change_and_a_gateway_and_the_server_go(
    sql: str, tmp_path: Path, asked: list[bodies.Subscribe]
) -> None:
    async with (
        asyncio.timeout(LIMIT_S),
        cluster(3, tmp_path) as made,
        made.client("root") as publisher,
        made.client("g1", "g2") as hc,
    ):
        await publisher.execute(CREATE)
        history = History(publisher)
        publishing = asyncio.create_task(history.publish())
        await history.more()
        many = await hc.subscribe_many(sql, LOWS, HIGHS, overflow="block", buffer=1 << 16)
        start, first = many.seq, [comparable(sql, answer) for answer in many.answers.tolist()]
        newest = await hc.subscribe_many(sql, LOWS, HIGHS)
        heard: list[list[hullcast.Event]] = [[] for _ in LOWS]
        changed: dict[int, Any] = {}

        async def collect(member: int) -> None:
            with contextlib.suppress(hullcast.SubscriptionClosed):
                async for event in many[member]:
                    heard[member].append(event)

        async def collect_changes() -> None:
            async for news in newest.changes():
                told = [comparable(sql, answer) for answer in news.answer.tolist()]
                changed.update(zip(news.which.tolist(), told, strict=True))

        async with asyncio.TaskGroup() as tasks:
            for member in range(len(many)):
                tasks.create_task(collect(member))
            tasks.create_task(collect_changes())
            await history.more()
            assert len(asked) == 6
            await made.kill("g1")
            await wait_for(lambda: hc.statistics().resumes and hc.connected, "another gateway")
            assert len(asked) >= 12
            await history.more()
            assert not any(isinstance(event, Resync) for events in heard for event in events)
            resumes = hc.statistics().resumes
            await made.stop_server()
            await made.restart_server()
            await wait_for(lambda: hc.statistics().resumes > resumes and hc.connected, "the server again")
            await history.more()
            history.enough = True
            await publishing
            last = await hc.sync()
            last_answers = [comparable(sql, answer) for answer in many.answers.tolist()]
            newest_answers = [comparable(sql, answer) for answer in newest.answers.tolist()]
            assert many.seq == newest.seq == last
            await wait_for(lambda: not any(sub.pending for sub in many), "what waits to be taken")
            await wait_for(lambda: changed == dict(enumerate(newest_answers)), "the changes to be told")
            await many.close()
            await newest.close()
        assert len(history.tables) == last + 1
        check_sizes(asked)
        for member, (low, high) in enumerate(zip(LOWS, HIGHS, strict=True)):
            assert first[member] == history.answer(sql, start, member)
            rows = await hc.query(sql, low, high)
            right = sorted(map(tuple, rows)) if sql == ROWS else rows[0][0]
            assert last_answers[member] == newest_answers[member] == right == history.answer(sql, last, member)
            history.check_events(sql, member, start, heard[member], resyncs=1)
        assert sum(map(len, heard)) > 3 * len(LOWS)


async def test_a_break_while_the_portions_are_opened_is_no_matter(
    monkeypatch: pytest.MonkeyPatch, asked: list[bodies.Subscribe]
) -> None:
    async with asyncio.timeout(LIMIT_S), cluster(1) as made, made.client() as publisher, made.client() as hc:
        await publisher.execute(CREATE)
        history = History(publisher)
        publishing = asyncio.create_task(history.publish())
        await history.more()
        when_taken(monkeypatch, 2, lambda many: hc._line.dialer.redial(why="test"))
        many = await hc.subscribe_many(SUM, LOWS, HIGHS)
        assert hc.statistics().resumes == 1
        answers, seq = many.answers.tolist(), many.seq
        history.enough = True
        await publishing
        assert [comparable(SUM, answer) for answer in answers] == [
            history.answer(SUM, seq, member) for member in range(len(many))
        ]
        check_sizes(asked)


async def come_back(hc: Client) -> None:
    before = hc.statistics().resumes
    hc._line.dialer.redial(why="test")
    await wait_until(lambda: hc.statistics().resumes > before and hc.connected)


async def test_members_leave_one_by_one_and_only_the_others_come_back() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster(1) as endpoint, hullcast.connect(endpoint) as hc:
        await hc.execute(CREATE)
        await hc.publish("T", {"K": np.arange(8), "X": np.arange(8), "Y": np.arange(10, 18)})
        many = await hc.subscribe_many(MIN, LOWS, HIGHS)
        assert (hc.statistics().subscriptions, hc.statistics().groups, len(many)) == (12, 3, 12)
        leaving = [0, 1, 2, 3, 5, 10]  # the whole first portion, and some of the others
        for member in leaving:
            await many[member].close()
        staying = [member for member in range(len(many)) if member not in leaving]
        assert (hc.statistics().subscriptions, hc.statistics().groups) == (6, 2)
        for _ in range(2):
            assert [many[member].answer for member in staying] == [LOWS[member] + 10 for member in staying]
            with pytest.raises(hullcast.SubscriptionClosed):
                _ = many.answers
            with pytest.raises(hullcast.SubscriptionClosed):
                _ = many[2]
            await come_back(hc)
        assert await many.next_changes(0.0) is None
        await hc.publish("T", {"K": np.arange(8), "Y": np.arange(8)})
        told: set[int] = set()
        while len(told) < len(staying):
            changed = await many.next_changes()
            assert changed is not None
            told |= set(changed.which.tolist())
        assert told == set(staying)
        assert many.seq == await hc.sync()
        assert [sub.answer for sub in many] == [LOWS[member] for member in staying]
        await many.close()
        assert hc.statistics().subscriptions == 0
        await hc.execute("DROP TABLE T")


async def test_if_a_later_portion_is_refused_all_are_left_again(asked: list[bodies.Subscribe]) -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster(1) as endpoint, hullcast.connect(endpoint) as hc:
        await hc.execute(CREATE)
        refused = hc.subscribe_many(MIN, [*LOWS[:-1], "x"], HIGHS)
        with pytest.raises(hullcast.BadParameter, match=r"^parameter 1: X \(INTEGER\) .* \(row 11\)$"):
            await refused
        assert len(asked) == 3
        assert refused.closed
        assert (hc.statistics().subscriptions, hc.statistics().groups, hc._line.owners) == (0, 0, {})
        await hc.execute("DROP TABLE T")


async def test_a_table_that_is_gone_ends_all_portions_with_one_error() -> None:
    async with asyncio.timeout(LIMIT_S), cluster(0) as made, made.client() as admin:
        await admin.execute(CREATE)
        async with made.client() as hc:
            many = await hc.subscribe_many(MIN, LOWS, HIGHS)
            waiting = asyncio.create_task(many.next_changes())
            hc._line.dialer.endpoints = ["tcp://127.0.0.1:1"]
            hc._line.dialer.redial(why="test")
            await drop(admin)
            hc._line.dialer.endpoints = [made.server.endpoint]
            with pytest.raises(hullcast.UnknownTable):
                await waiting
            with pytest.raises(hullcast.UnknownTable):
                _ = many.answers
            await wait_until(lambda: hc.connected)
            assert (hc.statistics().subscriptions, hc._line.owners) == (0, {})


async def test_too_many_for_a_client_are_refused_before_the_first_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: list[bodies.Subscribe]
) -> None:
    monkeypatch.setattr(groups, "MOST_SUBSCRIPTIONS", 10)
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as hc:
        await hc.execute(CREATE)
        with pytest.raises(hullcast.UsageError, match="more than 10 subscriptions in one client"):
            await hc.subscribe_many(MIN, LOWS, HIGHS)
        assert asked == []


@pytest.mark.parametrize("on_the_way", [False, True])
@pytest.mark.parametrize("how", ["close", "drain", "cancel", "close the client"])
async def test_who_gives_up_between_portions_leaves_nothing_behind(
    how: str, on_the_way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the next portion is asked for, or while that request is on the way."""
    async with asyncio.timeout(LIMIT_S), testing.cluster(1) as endpoint, hullcast.connect(endpoint) as admin:
        await admin.execute(CREATE)
        hc = await hullcast.connect(endpoint)
        tasks: list[asyncio.Task[None]] = []

        async def give_up(many: Subscriptions) -> None:
            if on_the_way:
                await asyncio.sleep(0)  # the task that opens runs first
            assert hc._line.session.waiting == on_the_way
            match how:
                case "close":
                    await many.close()
                case "drain":
                    await hc.drain()
                case "cancel":
                    opening.cancel()
                case _:
                    await hc.close()

        async def opened() -> Subscriptions:
            return await hc.subscribe_many(MIN, LOWS, HIGHS)

        when_taken(monkeypatch, 1, lambda many: tasks.append(asyncio.create_task(give_up(many))))
        opening = asyncio.create_task(opened())
        (outcome,) = await asyncio.gather(opening, return_exceptions=True)
        await asyncio.gather(*tasks)
        if how == "cancel":
            assert isinstance(outcome, asyncio.CancelledError)
        elif how == "close the client" and on_the_way:
            assert isinstance(outcome, hullcast.ClientClosed)
        else:
            assert isinstance(outcome, Subscriptions)
            assert outcome.closed
        assert (hc.statistics().subscriptions, hc._line.owners) == (0, {})
        await drop(admin)
        await hc.close()


async def drop(admin: Client) -> None:
    """Drop the table as soon as the server has seen that nobody uses it."""
    while await admin.tables():
        with contextlib.suppress(hullcast.TableInUse):
            await admin.execute("DROP TABLE T")


async def test_every_type_of_parameter_is_divided() -> None:
    texts = ["z", "a", "b", "c", "d", "e"] * 3
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as hc:
        await hc.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, S TEXT, X REAL)")
        await hc.publish("T", {"K": np.arange(5), "S": ["a", "b", "c", "d", "e"], "X": np.arange(5.0)})
        sql = "SELECT COUNT(*) FROM T WHERE S = ? AND X >= ?"
        async with hc.subscribe_many(sql, texts, [*range(9), *(float(i) for i in range(9))]) as many:
            expected = [(await hc.query(sql, text, i % 9))[0][0] for i, text in enumerate(texts)]
            assert many.answers.tolist() == expected
            assert [many[i].answer for i in range(len(texts))] == expected
