"""Against a real server and real nodes: answers and events are those of an engine in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

import hullcast
from hullcast import Change, Progress, Resync, Snapshot, testing
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.mailbox import OVERSHOOT
from tests.support.links import wait_until
from tests.support.queries import Asked, subscription
from tests.support.twins import Pair, Twins

MIN = "SELECT MIN(B) FROM R WHERE A BETWEEN ? AND ?"
ROWS = "SELECT K, B FROM R WHERE A BETWEEN ? AND ?"
LIMIT_S = 60


@asynccontextmanager
async def twins(seed: int = 0, nodes: int = 0) -> AsyncIterator[Twins]:
    async with asyncio.timeout(LIMIT_S), testing.cluster(nodes) as endpoint, hullcast.connect(endpoint) as client:
        pair = Twins(client, seed)
        await pair.create()
        yield pair


async def break_link(client: Client) -> None:
    """Lose the link with all that the other side knows of us, and wait until all is subscribed again."""
    resumes = client.statistics().resumes
    client._line.dialer.redial(why="test")
    await wait_until(lambda: client.statistics().resumes > resumes and client.connected)


@pytest.mark.parametrize("nodes", [0, 1, 3])
@pytest.mark.parametrize("seed", [1, 2])
async def test_every_kind_of_subscription_has_the_answers_and_events_of_an_engine(seed: int, nodes: int) -> None:
    async with twins(seed, nodes) as pair:
        for i in range(30):
            overflow = ("block", "drop_oldest", "error", "latest", None)[i % 5]
            await pair.subscribe(subscription(pair.rng), overflow=overflow)
        for i in range(40):
            await pair.change()
            if i % 7 == 0:
                await pair.check()
        await pair.check()


@pytest.mark.parametrize("sql", [MIN, ROWS])
async def test_every_change_is_told_by_default_also_those_missed_before_a_resume(sql: str) -> None:
    async with twins() as pair:
        client = pair.client
        await client.publish("R", {"K": 1, "A": 55, "B": 100.0})
        sub = await client.subscribe(sql, 50, 60)
        for b in range(50):
            await client.publish("R", {"K": 1, "A": 55, "B": float(b)})
        await client.sync()
        events = [await anext(sub) for _ in range(sub.pending)]
        wanted: list[Any] = [float(b) if sql == MIN else [(1, float(b))] for b in range(50)]
        assert [(event.answer, event.conflated) for event in events] == [(answer, 0) for answer in wanted]
        token = sub.token
        await sub.close()
        for b in range(5):
            await client.publish("R", {"K": 1, "A": 55, "B": -1.0 - b})
        for buffer, told in ((1024, [0, 0, 0, 0, 0]), (5, [0, 0, 0, 0, 0]), (3, [0, 0, 2]), (1, [4])):
            async with client.subscribe(sql, 50, 60, resume=token, buffer=buffer) as again:
                assert again.conflated == sum(told)
                events = [await anext(again) for _ in range(again.pending)]
                assert [event.conflated for event in events] == told
                assert events[-1].answer == again.answer


@pytest.mark.parametrize("seed", range(4))
async def test_events_cover_all_changes_whatever_the_schedule_of_publishing_taking_and_resuming(seed: int) -> None:
    async with twins(seed) as pair:
        made = [(await pair.subscribe(subscription(pair.rng), buffer=1 + i % 4), 1 + i % 4) for i in range(24)]

        def take(one: Pair, most: int) -> None:
            while most and (event := one.live.take_nowait()) is not None:
                one.heard.append(event)
                most -= 1

        for _ in range(40):
            await pair.change()
            if pair.rng.random() < 0.5:
                await pair.client.sync()
            for one, buffer in pair.rng.sample(made, 4):
                assert one.live.pending <= buffer
                take(one, pair.rng.randint(0, 3))
            one, buffer = pair.rng.choice(made)
            token = one.live.token
            await one.live.close()
            await pair.change()
            one.live = await pair.client.subscribe(one.asked.sql, *one.asked.parameters, buffer=buffer, resume=token)
        await pair.client.sync()
        for one, _ in made:
            take(one, -1)
            changes, told = one.local.drain(), 0
            for event in one.heard:
                told += 1 + event.conflated
                assert (event.seq, event.answer) == (changes[told - 1].seq, changes[told - 1].answer), one.asked
            assert told == len(changes), one.asked
        assert sum(event.conflated for one, _ in made for event in one.heard) > 10


@pytest.mark.parametrize("nodes", [0, 2])
async def test_after_a_lost_link_nothing_is_missing_and_nothing_comes_twice(nodes: int) -> None:
    async with twins(3, nodes) as pair:
        for _ in range(20):
            await pair.subscribe(subscription(pair.rng), overflow="block")
        for i in range(12):
            changes = asyncio.gather(*(pair.change() for _ in range(1)))
            if i % 3 == 0:
                await break_link(pair.client)
            await changes
        await pair.check()
        assert not any(isinstance(event, Resync) for one in pair.pairs for event in one.heard)
        assert pair.client.statistics().resumes == 4


@pytest.mark.parametrize("nodes", [0, 3])
async def test_links_that_break_all_the_time_change_no_event_and_apply_no_change_twice(nodes: int) -> None:
    async with twins(7, nodes) as pair, hullcast.connect(pair.client.connection.endpoints) as publisher:
        subscriber = pair.client
        for _ in range(40):
            await pair.subscribe(subscription(pair.rng), overflow="block", buffer=10_000)

        async def break_links() -> None:
            while True:
                for client in (subscriber, publisher):
                    await asyncio.sleep(0.01 + pair.rng.random() * 0.1)
                    client._line.dialer.redial(why="test")

        breaking = asyncio.create_task(break_links())
        pair.client = publisher
        changes = 0
        while changes < 60 or subscriber.statistics().resumes <= 2:  # on a slow machine links break more rarely
            await pair.change()  # holds each receipt against the engine's
            changes += 1
        breaking.cancel()
        await asyncio.gather(breaking, return_exceptions=True)
        pair.client = subscriber
        await pair.check()
        assert sum(len(one.heard) for one in pair.pairs) > 50


async def test_a_resume_token_goes_on_where_it_was_made() -> None:
    async with twins(4) as pair:
        made = [await pair.subscribe(subscription(pair.rng), overflow="block") for _ in range(25)]
        for _ in range(10):
            await pair.change()
        await pair.client.sync()
        tokens = []
        for i, one in enumerate(made):
            if i % 2 and one.live.pending:
                event = await anext(one.live)
                one.heard.append((event.seq, event.answer, event.entered, event.left, event.changed))  # type: ignore[union-attr]
            tokens.append(one.live.token)
        for _ in range(10):
            await pair.change()
        for one, token in zip(made, tokens, strict=True):
            await one.live.close()
            one.live = await pair.client.subscribe(one.asked.sql, *one.asked.parameters, overflow="block", resume=token)
        for _ in range(5):
            await pair.change()
        await pair.check()


async def test_a_token_of_another_subscription_is_refused() -> None:
    async with twins() as pair:
        one = await pair.subscribe(Asked(MIN, (0, 2)))
        with pytest.raises(hullcast.BadSetting, match="another subscription"):
            pair.client.subscribe(MIN, 0, 3, resume=one.live.token)
        with pytest.raises(hullcast.BadSetting, match="not a resume token"):
            pair.client.subscribe(MIN, 0, 3, resume="nonsense")


async def test_iteration_begins_with_a_snapshot_only_if_asked_for() -> None:
    async with twins() as pair, pair.client.subscribe(MIN, 0, 3, snapshot=True) as sub:
        first = await anext(sub)
        assert first == Snapshot(sub.seq, sub.answer)
        assert sub.take_nowait() is None


async def test_progress_is_told_when_nothing_changed() -> None:
    async with twins() as pair, pair.client.subscribe(MIN, 100, 200, progress=True) as sub:
        receipt = await pair.client.publish("R", {"K": 1, "A": 0, "B": 0.5})
        event = await anext(sub)
        assert isinstance(event, Progress)
        assert event.seq == receipt.seq


async def test_callbacks_hear_every_event_and_their_errors_end_nothing() -> None:
    heard: list[Any] = []
    done = asyncio.Event()

    async def callback(event: hullcast.Event) -> None:
        heard.append(event)
        if len(heard) == 1:
            raise ZeroDivisionError
        if len(heard) == 3:
            done.set()

    async with twins() as pair, pair.client.subscribe(MIN, 50, 60, overflow="block", callback=callback) as sub:
        for b in (3.0, 2.0, 1.0):
            await pair.client.publish("R", {"K": 1, "A": 55, "B": b})
        await done.wait()
        assert [event.answer for event in heard] == [3.0, 2.0, 1.0]
        assert sub.callback_errors == 1


async def test_many_subscriptions_are_one_group_with_columns_of_answers() -> None:
    async with twins() as pair:
        lows = np.arange(5000) % 7 - 1.0
        highs = lows + 2
        async with pair.client.subscribe_many(MIN, lows, highs) as many:
            assert len(many) == 5000
            local = pair.engine.subscribe_many(MIN, lows, highs)
            np.testing.assert_array_equal(many.answers, local.answers)
            assert pair.client.statistics().groups == 1
            for _ in range(20):
                before = many.answers
                await pair.change()
                await pair.client.sync()
                np.testing.assert_array_equal(many.answers, local.answers)
                moved = np.flatnonzero(~((before == many.answers) | (np.isnan(before) & np.isnan(many.answers))))
                if len(moved):
                    changed = await many.next_changes()
                    assert changed is not None
                    assert set(moved) <= set(changed.which.tolist())
                    np.testing.assert_array_equal(changed.answer, many.answers[changed.which])
            assert many[3].answer == local[3].answer
            await break_link(pair.client)
            await pair.change()
            await pair.client.sync()
            np.testing.assert_array_equal(many.answers, local.answers)


async def test_one_of_many_can_be_closed_and_the_others_live_on_through_a_lost_link() -> None:
    async with twins() as pair, pair.client.subscribe_many(MIN, [0.0, 1.0, 2.0], [3.0, 3.0, 3.0]) as many:
        await many[1].close()
        with pytest.raises(hullcast.SubscriptionClosed):
            _ = many[1].answer
        await break_link(pair.client)
        await pair.client.publish("R", {"K": 1, "A": 2, "B": -9.0})
        await pair.client.sync()
        assert many[0].answer == many[2].answer == -9.0


@pytest.mark.parametrize("sql", [ROWS, "SELECT DISTINCT B FROM R WHERE A BETWEEN ? AND ?"])
async def test_many_sets_and_rows_come_anew_after_a_gap_whether_somebody_looked_or_not(sql: str) -> None:
    async with twins(5) as pair:
        lows, highs = [0, 1, 2, 0], [3, 2, 3, 0]
        async with pair.client.subscribe_many(sql, lows, highs) as many:
            local = pair.engine.subscribe_many(sql, lows, highs)
            assert many[0].answer == local[0].answer
            await many[2].close()
            for round_ in range(3):
                await pair.change()
                if round_ == 1:
                    pair.client._line.session.epoch = b"x" * 16  # as if another server had taken over
                    await break_link(pair.client)
                    assert [isinstance(many[i].take_nowait(), Resync) for i in (0, 1, 3)] == [True] * 3
                await pair.client.sync()
                for i in (0, 1, 3):
                    assert many[i].answer == local[i].answer


async def test_a_token_from_before_a_gap_leads_to_a_resync() -> None:
    async with twins(6) as pair:
        for asked in (Asked(MIN, (0, 3)), Asked(ROWS, (0, 3))):
            one = await pair.subscribe(asked, overflow="block")
            token = one.live.token
            pair.client._line.session.epoch = b"x" * 16
            stale = one.live.token
            pair.client._line.session.epoch = None
            same = await pair.client.subscribe(asked.sql, *asked.parameters, overflow="block", resume=token)
            assert same.take_nowait() is None
            await same.close()
            again = await pair.client.subscribe(asked.sql, *asked.parameters, overflow="block", resume=stale)
            event = again.take_nowait()
            assert isinstance(event, Resync)
            assert (event.answer, event.reason) == (one.local.answer, "gap")


async def test_errors_of_the_server_arrive_as_what_they_are() -> None:
    async with twins() as pair:
        client = pair.client
        with pytest.raises(hullcast.SqlError):
            await client.subscribe("SELECT MEDIAN(B) FROM R WHERE A BETWEEN ? AND ?", 1, 2)
        with pytest.raises(hullcast.UnknownTable):
            await client.publish("NOWHERE", {"K": 1})
        with pytest.raises(hullcast.BadValue):
            await client.publish("R", {"K": 1, "A": "x"})
        with pytest.raises(hullcast.BadParameter):
            await client.subscribe(MIN, 1)
        assert len(client._line.owners) == 0


async def test_a_blocked_subscription_neither_loses_events_nor_stops_calls() -> None:
    async with twins() as pair:
        sub = await pair.client.subscribe(MIN, 50, 60, overflow="block", buffer=4)
        async with hullcast.connect(pair.client.connection.endpoints) as other:
            first = asyncio.create_task(anext(sub))
            await asyncio.sleep(0)
            for b in range(30):
                await other.publish("R", {"K": 1, "A": 55, "B": float(b)})
            assert (await first).answer == 0.0
            await wait_until(lambda: pair.client.statistics().paused)
            assert 4 <= sub.pending < 30
            assert await pair.client.query("SELECT B FROM R WHERE K = 1") == [(29.0,)]
            answers = [(await anext(sub)).answer for _ in range(29)]
            assert answers == [float(b) for b in range(1, 30)]
            assert sub.dropped == 0


def falling(first: int, count: int) -> dict[str, Any]:
    """A batch each row of which is a new row in range, and a new minimum."""
    keys = np.arange(1000 + first, 1000 + first + count)
    return {"K": keys, "A": np.full(count, 55), "B": -keys.astype(float)}


async def numbers_of(sub: Any, count: int) -> list[int]:
    """The keys that the next events tell of; no event but a Change."""
    found = []
    async for event in sub:
        assert isinstance(event, Change), event
        found.append(int(event.entered[0][0]) if event.entered else -int(event.answer))
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("sql", [MIN, ROWS])
@pytest.mark.parametrize("begun", [True, False])
async def test_a_blocking_subscription_loses_nothing_however_many_changes_a_frame_holds(sql: str, begun: bool) -> None:
    async with twins() as pair:
        sub = await pair.client.subscribe(sql, 50, 60, overflow="block", buffer=16)
        taking = asyncio.create_task(numbers_of(sub, 900)) if begun else None
        await asyncio.sleep(0)
        await pair.client.publish("R", falling(0, 900))
        if taking is None:  # a consumer that begins a little later than the rows come
            await pair.client.sync()
            assert sub.pending == 900
        found = await (taking or numbers_of(sub, 900))
        assert found == list(range(1000, 1900))
        assert (sub.dropped, sub.pending) == (0, 0)


@pytest.mark.parametrize("sql", [MIN, ROWS])
async def test_a_blocking_subscription_loses_nothing_while_its_consumer_calls(sql: str) -> None:
    async with twins() as pair:
        client = pair.client
        async with hullcast.connect(client.connection.endpoints) as other, asyncio.TaskGroup() as tasks:
            sub = await client.subscribe(sql, 50, 60, overflow="block", buffer=8)
            tasks.create_task(numbers_of(sub, 1))
            await asyncio.sleep(0)
            for first in range(0, 3000, 100):
                tasks.create_task(other.publish("R", falling(first, 100)))
            await wait_until(lambda: sub.pending >= 8)
            found = [1000]
            while len(found) < 3000:
                found += await numbers_of(sub, min(40, 3000 - len(found)))
                turn = len(found) // 40 % 3
                if turn == 0:
                    await client.query("SELECT COUNT(*) FROM R")
                elif turn == 1 and len(found) < 400:
                    await client.sync()
                elif turn == 2 and len(found) < 400:
                    await (await client.subscribe(MIN, 50, 60)).close()
            assert found == list(range(1000, 4000))
            assert sub.dropped == 0


async def test_a_call_reads_ahead_only_so_far_and_then_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with twins() as pair:
        client = pair.client
        async with hullcast.connect(client.connection.endpoints) as other:
            sub = await client.subscribe(ROWS, 50, 60, overflow="block", buffer=8)
            taking = asyncio.create_task(numbers_of(sub, 1))
            await asyncio.sleep(0)
            await other.publish("R", falling(0, 20))
            await taking
            await wait_until(lambda: client.statistics().paused)
            for first in range(20, 220, 20):
                await other.publish("R", falling(first, 20))
            monkeypatch.setattr("hullcast.clients.sdk.line.READ_AHEAD_BYTES", 1000)
            with pytest.raises(hullcast.TimedOut, match="wait to be taken"):
                await client.query("SELECT COUNT(*) FROM R", timeout=0.3)
            assert client.statistics().paused
            assert sub.pending == 19  # what was read ahead is held as it came
            assert await numbers_of(sub, 219) == list(range(1001, 1220))
            assert len(await client.query("SELECT COUNT(*) FROM R")) == 1


async def test_frames_held_for_a_full_queue_are_told_anew_after_the_link_is_lost() -> None:
    async with twins() as pair:
        client = pair.client
        async with hullcast.connect(client.connection.endpoints) as other:
            sub = await client.subscribe(ROWS, 50, 60, overflow="block", buffer=8)
            taking = asyncio.create_task(numbers_of(sub, 1))
            await asyncio.sleep(0)
            for first in range(0, 200, 20):
                await other.publish("R", falling(first, 20))
            await taking
            await client.query("SELECT COUNT(*) FROM R")
            assert client._line._held
            client._line.dialer.redial(why="test")
            await wait_until(lambda: client._line.dialer.statistics().fresh > 1)
            assert await numbers_of(sub, 199) == list(range(1001, 1200))
            assert (sub.dropped, client.statistics().resumes) == (0, 1)


async def test_a_blocking_subscription_nobody_takes_from_holds_back_nobody_and_keeps_so_much() -> None:
    async with twins() as pair:
        sub = await pair.client.subscribe(ROWS, 50, 60, overflow="block", buffer=4)
        for first in range(0, 1000, 100):
            await pair.client.publish("R", falling(first, 100))
            await pair.client.sync()
            assert sub.pending <= 4 * OVERSHOOT + 1 + 100
        assert len(sub.answer) == 1000
        event = await anext(sub)
        assert isinstance(event, Resync)
        assert (event.lost, event.reason) == (sub.dropped, "overflow")
        found = [event.entered[0][0] for _ in range(sub.pending) if isinstance(event := await anext(sub), Change)]
        assert found == list(range(1000 + sub.dropped, 2000))


async def test_dropping_the_oldest_is_told_by_a_resync_and_counted() -> None:
    async with twins() as pair, pair.client.subscribe(MIN, 50, 60, overflow="drop_oldest", buffer=2) as sub:
        for b in range(5):
            await pair.client.publish("R", {"K": 1, "A": 55, "B": float(b)})
        await pair.client.sync()
        gap = await anext(sub)
        assert isinstance(gap, Resync)
        assert (gap.answer, gap.lost, gap.reason, sub.dropped) == (2.0, 3, "overflow", 3)
        assert [(await anext(sub)).answer for _ in range(2)] == [3.0, 4.0]


async def test_dropping_the_oldest_rows_leaves_the_rest_consistent() -> None:
    async with twins() as pair, pair.client.subscribe(ROWS, 50, 60, overflow="drop_oldest", buffer=2) as sub:
        for b in range(5):
            await pair.client.publish("R", {"K": 100 + b, "A": 55, "B": float(b)})
        await pair.client.sync()
        gap = await anext(sub)
        assert isinstance(gap, Resync)
        assert (gap.answer, gap.lost) == ([(100, 0.0), (101, 1.0), (102, 2.0)], 3)
        change = await anext(sub)
        assert isinstance(change, Change)
        assert change.entered == ((103, 3.0),)


COMING_BACK = [
    (MIN, lambda b: [{"K": 1, "A": 55, "B": b}]),
    ("SELECT MAX(B) FROM R WHERE A BETWEEN ? AND ?", lambda b: [{"K": 1, "A": 55, "B": b}]),
    ("SELECT SUM(B) FROM R WHERE A BETWEEN ? AND ?", lambda b: [{"K": 1, "A": 55, "B": b}]),
    ("SELECT AVG(B) FROM R WHERE A BETWEEN ? AND ?", lambda b: [{"K": 1, "A": 55, "B": b}]),
    ("SELECT COUNT(*) FROM R WHERE A BETWEEN ? AND ?", lambda b: [{"K": 1, "A": 55 if b > 4 else 1, "B": 0.0}]),
    ("SELECT DISTINCT B FROM R WHERE A BETWEEN ? AND ?", lambda b: [{"K": 1, "A": 55, "B": b}]),
    (ROWS, lambda b: [{"K": 1, "A": 55, "B": b}]),
]


@pytest.mark.parametrize(("sql", "rows"), COMING_BACK)
async def test_an_answer_that_went_and_came_back_unseen_is_no_event(sql: str, rows: Any) -> None:
    async with twins() as pair:
        client = pair.client
        await client.publish("R", rows(5.0))
        sub = await client.subscribe(sql, 50, 60, overflow="latest")
        many = await client.subscribe_many(sql, [50, 50, 0], [60, 60, 0])
        told: list[Any] = [sub.answer]
        changes = 0
        for b in (4.0, 5.0, 7.0, 8.0, 6.0, 8.0, 9.0, 8.0):  # looked at after every second one
            await client.publish("R", rows(b))
            changes += 1
            if changes % 2:
                continue
            await client.sync()
            answer = sub.answer
            assert (sub.pending, sub.lag > 0) == (int(answer != told[-1]), answer != told[-1])
            event, changed = sub.take_nowait(), await many.next_changes(0.05)
            assert (sub.pending, sub.take_nowait()) == (0, None)
            if answer == told[-1]:
                assert (event, changed) == (None, None)
            else:
                assert isinstance(event, Change)
                assert event.answer == answer
                assert changed is not None
                assert changed.which.tolist() == [0, 1]
                assert changed.reason.tolist() == ["", ""]
                told.append(answer)
        assert len(told) == (2 if "COUNT" not in sql else 1)


async def test_a_pending_answer_that_returns_to_the_one_told_is_no_event_after_resuming_either() -> None:
    async with twins() as pair:
        client = pair.client
        await client.publish("R", {"K": 1, "A": 55, "B": 5.0})
        sub = await client.subscribe(MIN, 50, 60, overflow="latest")
        await client.publish("R", {"K": 1, "A": 55, "B": 4.0})
        await client.sync()
        token = sub.token
        await client.publish("R", {"K": 1, "A": 55, "B": 5.0})
        again = await client.subscribe(MIN, 50, 60, resume=token, overflow="latest")
        assert (again.answer, again.pending, again.take_nowait()) == (5.0, 0, None)
        await client.publish("R", {"K": 1, "A": 55, "B": 6.0})
        assert (await anext(again)).answer == 6.0


async def test_a_wait_for_changes_ends_in_time_though_answers_come_and_go() -> None:
    async with twins() as pair:
        client = pair.client
        await client.publish("R", {"K": 1, "A": 55, "B": 5.0})
        many = await client.subscribe_many(MIN, [50], [60])
        done = asyncio.Event()

        async def back_and_forth() -> None:
            while not done.is_set():
                await client.publish("R", [{"K": 1, "A": 55, "B": 4.0}, {"K": 1, "A": 55, "B": 5.0}])

        task = asyncio.create_task(back_and_forth())
        assert await many.next_changes(0.3) is None
        done.set()
        await task


async def test_latest_rows_are_told_as_one_change() -> None:
    async with twins() as pair, pair.client.subscribe(ROWS, 50, 60, overflow="latest") as sub:
        for b in range(5):
            await pair.client.publish("R", {"K": 100 + b % 2, "A": 55, "B": float(b)})
        await pair.client.delete("R", [101])
        await pair.client.sync()
        change = await anext(sub)
        assert isinstance(change, Change)
        assert (change.entered, change.left, change.changed) == (((100, 4.0),), (), ())
        assert (sub.pending, sub.conflated) == (0, 5)


async def test_an_overflowing_subscription_with_policy_error_ends_after_what_is_queued() -> None:
    async with twins() as pair:
        sub = await pair.client.subscribe(MIN, 50, 60, overflow="error", buffer=2)
        other = await pair.client.subscribe(MIN, 50, 60)
        for b in range(5):
            await pair.client.publish("R", {"K": 1, "A": 55, "B": float(b)})
        await pair.client.sync()
        assert (await anext(sub)).answer == 0.0
        with pytest.raises(hullcast.SubscriptionOverflow, match="2 events"):
            async for _ in sub:
                pass
        assert other.answer == 4.0


async def test_draining_hands_out_what_is_queued_and_closes() -> None:
    heard: list[Any] = []
    async with twins() as pair, hullcast.connect(pair.client.connection.endpoints) as client:
        kept = await client.subscribe(MIN, 50, 60, overflow="block")
        await client.subscribe(MIN, 50, 60, overflow="block", callback=heard.append)
        for b in range(5):
            await client.publish("R", {"K": 1, "A": 55, "B": float(b)})
        await client.sync()
        await client.drain()
        assert [event.answer for event in heard] == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert [event.answer async for event in kept] == [0.0, 1.0, 2.0, 3.0, 4.0]
        with pytest.raises(hullcast.ClientClosed):
            await client.sync()


async def test_batches_come_when_they_are_full_or_time_is_up() -> None:
    async with twins() as pair, pair.client.subscribe(MIN, 50, 60, overflow="block") as sub:
        for b in range(5):
            await pair.client.publish("R", {"K": 1, "A": 55, "B": float(b)})
        await pair.client.sync()
        sizes = []
        async for batch in sub.batches(max_events=3, max_wait=0.01):
            sizes.append(len(batch))
            if sum(sizes) == 5:
                break
        assert sizes == [3, 2]


async def test_a_cancelled_wait_loses_no_event() -> None:
    async with twins() as pair, pair.client.subscribe(MIN, 50, 60, overflow="block") as sub:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(sub)
        await pair.client.publish("R", {"K": 1, "A": 55, "B": 7.0})
        assert (await anext(sub)).answer == 7.0


async def test_the_example_of_the_documentation_works() -> None:
    rows = [{"SYMBOL": "T1", "PER": 12.0, "RISK": 25.0}, {"SYMBOL": "T2", "PER": 9.0, "RISK": 70.0}]
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as hc:
        await hc.execute("CREATE TABLE STOCK (SYMBOL TEXT PRIMARY KEY, PER REAL, RISK REAL)")
        async with hc.subscribe("SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?", 20, 60) as sub:
            assert (sub.answer, sub.seq) == (None, 0)
            receipt = await hc.publish("STOCK", rows)
            async for event in sub:
                assert isinstance(event, Change)
                assert (event.seq, event.answer) == (1, 12.0)
                break
        assert (receipt.first_seq, receipt.seq, receipt.updates) == (1, 2, 2)


async def test_nobody_at_the_address_is_a_lost_connection_that_says_where() -> None:
    with pytest.raises(hullcast.ConnectionLost, match="inproc://nobody"):
        async with hullcast.connect("inproc://nobody", timeout=0.2):
            pass
