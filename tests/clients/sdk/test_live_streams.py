"""Streams over the network: each tuple once and in order, from any position, whatever breaks in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import hullcast
from hullcast import BadSetting, Change, Client, Resync, SqlError, StreamTuple, TooLarge, UsageError
from hullcast.broker.server import changing as changing_module
from hullcast.broker.server import leaving as leaving_module
from hullcast.broker.server.leaving import Housekeeping
from hullcast.broker.server.service import Server
from hullcast.broker.server.settings import ServerSettings
from hullcast.broker.tables import stream as stream_module
from hullcast.broker.tables import windows as windows_module
from hullcast.clients.sdk.subscription import Subscription
from hullcast.clients.sdk.testing import serving
from hullcast.network.link.limits import LinkLimits
from hullcast.network.security.rights import Rights
from tests.support.cluster import PATIENCE_S, cluster
from tests.support.stream_oracle import moment

QUICK = LinkLimits(heartbeat_s=0.05, silence_s=0.3, backoff_s=0.02, backoff_most_s=0.1)
TRADES = "CREATE STREAM TRADES (TS TIMESTAMP, SYMBOL TEXT, PRICE REAL)"
FILTER = "SELECT SYMBOL, PRICE FROM TRADES WHERE PRICE BETWEEN ? AND ?"


@asynccontextmanager
async def server_on(data: Path | None, endpoint: str = "tcp://127.0.0.1:0") -> AsyncIterator[str]:
    """A server, or the next run of one. ZeroMQ lets go of a port a moment after its socket was closed."""
    async with AsyncExitStack() as stack:
        while True:
            server = Server(ServerSettings(listen=endpoint, data=data), Rights.everything())
            try:
                await stack.enter_async_context(serving(server))
                break
            except BadSetting as error:
                if "Address already in use" not in str(error):
                    raise
                await asyncio.sleep(0.01)
        yield server.endpoint


async def publish(hc: Client, *prices: float, symbol: str = "a", second: float = 0.0) -> hullcast.Receipt:
    n = len(prices)
    return await hc.publish("TRADES", {"TS": [moment(second)] * n, "SYMBOL": [symbol] * n, "PRICE": list(prices)})


async def take(subscription: Subscription, count: int) -> list[Any]:
    """The next events: of tuples what they show, others as they are."""
    events = [await anext(subscription) for _ in range(count)]
    return [event.row.PRICE if isinstance(event, StreamTuple) else event for event in events]


async def test_a_filter_hears_each_tuple_in_its_range_with_its_position() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster() as made, made.client() as hc, made.client() as other:
        await hc.execute(TRADES)
        async with other.subscribe(FILTER, 2, 4) as some, other.subscribe("SELECT * FROM TRADES") as all_of_them:
            receipt = await publish(hc, 1.0, 2.0, 3.0, 5.0, 4.0)
            events = [await anext(some) for _ in range(3)]
            first = receipt.first_seq
            assert events == [
                StreamTuple(first + 1, ("a", 2.0)),
                StreamTuple(first + 2, ("a", 3.0)),
                StreamTuple(first + 4, ("a", 4.0)),
            ]
            assert [(await anext(all_of_them)).seq for _ in range(5)] == list(range(first, first + 5))
            assert some.columns == ("SYMBOL", "PRICE")
            with pytest.raises(UsageError, match="has no answer"):
                _ = some.answer


async def test_a_subscription_begins_behind_a_position_and_goes_on_without_gap_or_repetition() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster() as made, made.client() as hc, made.client() as other:
        await hc.execute(TRADES)
        await publish(hc, *range(100))
        stop = asyncio.Event()

        async def go_on() -> int:
            n = 100
            while not stop.is_set():
                await publish(hc, *range(n, n + 7))
                n += 7
            return n

        publishing = asyncio.create_task(go_on())
        found = []
        for after in (0, 50, 99, 100):
            subscription = await other.subscribe(FILTER, -1, 1e9, after=after)
            found.append((after, subscription))
            await asyncio.sleep(0.05)
        now = await other.subscribe(FILTER, -1, 1e9)
        stop.set()
        last = await publishing
        for after, subscription in found:
            assert await take(subscription, last - after) == [float(i) for i in range(after, last)]
        await publish(hc, -1.0)
        rest: list[Any] = []
        while not rest or rest[-1] != -1.0:
            rest += await take(now, 1)
        assert rest[:-1] == [float(i) for i in range(last - len(rest) + 1, last)]


async def test_what_is_no_longer_retained_is_said_once() -> None:
    with patch.object(stream_module, "FEWEST_OVER", 2):
        async with asyncio.timeout(PATIENCE_S), cluster(0) as made, made.client() as hc:
            await hc.execute(f"{TRADES} WITH (retain_rows = 10)")
            await publish(hc, *range(30))
            async with hc.subscribe(FILTER, -1, 1e9, after=5) as subscription:
                found = await take(subscription, 11)
                assert found == [Resync(20, None, 0, "gap"), *map(float, range(20, 30))]
                await publish(hc, 77.0)
                assert await take(subscription, 1) == [77.0]


async def test_a_restart_of_the_server_loses_and_repeats_nothing(tmp_path: Path) -> None:
    draw = random.Random(3)
    async with asyncio.timeout(PATIENCE_S):
        heard: dict[str, list[float]] = {"all": [], "some": [], "one": []}
        client: Client | None = None
        endpoint, published = "tcp://127.0.0.1:0", 0
        for run in range(4):
            async with server_on(tmp_path, endpoint) as endpoint:
                if client is None:
                    client = await hullcast.connect(endpoint, limits=QUICK)
                    publisher = await hullcast.connect(endpoint, limits=QUICK)
                    await publisher.execute(TRADES)
                    subscriptions = {
                        "all": await client.subscribe("SELECT * FROM TRADES"),
                        "some": await client.subscribe(FILTER, 10, 50),
                        "one": await client.subscribe("SELECT PRICE FROM TRADES WHERE SYMBOL = ?", "b"),
                    }
                for _ in range(draw.randrange(1, 6)):
                    await publish(publisher, *range(published, published + 3), symbol=draw.choice("ab"))
                    published += 3
                if run == 1:  # some are taken, others wait
                    heard["all"] += await take(subscriptions["all"], 2)
            await asyncio.sleep(0.02)
        expected = published
        async with server_on(tmp_path, endpoint):
            assert client is not None
            await client.sync()
            rows = await client.query("SELECT PRICE, SYMBOL FROM TRADES ORDER BY POSITION")
            assert [row.PRICE for row in rows] == [float(i) for i in range(expected)]
            for name, subscription in subscriptions.items():
                while (event := subscription.take_nowait()) is not None:
                    assert isinstance(event, StreamTuple)
                    heard[name].append(event.row.PRICE)
            assert heard["all"] == [row.PRICE for row in rows]
            assert heard["some"] == [row.PRICE for row in rows if 10 <= row.PRICE <= 50]
            assert heard["one"] == [row.PRICE for row in rows if row.SYMBOL == "b"]
            await client.close()
            await publisher.close()


async def test_positions_of_a_server_in_memory_mean_nothing_to_the_next_one() -> None:
    async with asyncio.timeout(PATIENCE_S):
        async with server_on(None) as endpoint, hullcast.connect(endpoint, limits=QUICK) as hc:
            await hc.execute(TRADES)
            subscription = await hc.subscribe(FILTER, -1, 1e9)
            await publish(hc, *range(10))
            assert await take(subscription, 8) == [float(i) for i in range(8)]
            token = subscription.token
        async with server_on(None, endpoint) as endpoint, hullcast.connect(endpoint, limits=QUICK) as hc:
            await hc.execute(TRADES)
            await publish(hc, *range(20))
            async with hc.subscribe(FILTER, -1, 1e9, resume=token) as subscription:
                await publish(hc, 99.0)
                assert await take(subscription, 2) == [Resync(20, None, 0, "gap"), 99.0]


async def test_a_token_goes_on_where_it_was_taken_also_after_a_restart(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async with server_on(tmp_path) as endpoint, hullcast.connect(endpoint, limits=QUICK) as hc:
            await hc.execute(TRADES)
            first = await hc.subscribe(FILTER, 0, 99)
            await publish(hc, *range(10))
            assert await take(first, 4) == [0.0, 1.0, 2.0, 3.0]
            token = first.token
            await first.close()
            async with hc.subscribe(FILTER, 0, 99, resume=token) as again:
                assert await take(again, 6) == [4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
                later = again.token
        async with server_on(tmp_path, endpoint), hullcast.connect(endpoint, limits=QUICK) as hc:
            await publish(hc, 10.0)
            async with hc.subscribe(FILTER, 0, 99, resume=token) as again:
                assert await take(again, 7) == [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]
            async with hc.subscribe(FILTER, 0, 99, resume=later) as again:
                assert await take(again, 1) == [10.0]


async def test_a_cut_on_the_way_loses_and_repeats_nothing() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster() as made, made.client() as hc:
        await hc.execute(TRADES)
        async with made.client() as other, other.subscribe(FILTER, -1, 1e9) as subscription:
            for start in range(0, 60, 6):
                await publish(hc, *range(start, start + 6))
                if start % 12 == 0:
                    for gateway in made.gateways:
                        gateway.proxy.cut()
            assert await take(subscription, 60) == [float(i) for i in range(60)]


async def test_many_filters_are_followed_together() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster() as made, made.client() as hc, made.client() as other:
        await hc.execute(TRADES)
        await publish(hc, 5.0)
        lows = [float(i) for i in range(50)]
        async with other.subscribe_many(FILTER, lows, [low + 1 for low in lows], after=0) as many:
            receipt = await publish(hc, 0.5, 49.5, 5.0, 5.5)
            found: list[tuple[int, int, float]] = []
            while len(found) < 7:
                changed = await many.next_changes()
                assert changed is not None
                assert not changed.resync.any()
                rows = [row.PRICE for row in changed.answer]
                found += zip(changed.which.tolist(), changed.seq.tolist(), rows, strict=True)
            first = receipt.first_seq
            old = first - 1
            expected = [(4, old, 5.0), (5, old, 5.0), (0, first, 0.5), (49, first + 1, 49.5)]
            expected += [(4, first + 2, 5.0), (5, first + 2, 5.0), (5, first + 3, 5.5)]
            assert sorted(found) == sorted(expected)
            assert [seq for which, seq, _ in found if which == 5] == [old, first + 2, first + 3]
            await publish(hc, 7.5)
            assert await take(many[7], 1) == [7.5]


async def test_a_slow_reader_holds_the_link_back_and_gets_every_tuple() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster() as made, made.client() as hc, made.client() as other:
        await hc.execute(TRADES)
        async with other.subscribe(FILTER, -1, 1e9, buffer=4) as subscription:
            found = []
            publishing = asyncio.create_task(publish(hc, *range(3)))
            found += await take(subscription, 3)
            await publishing
            for start in range(3, 300, 9):
                await publish(hc, *range(start, start + 9))
            found += await take(subscription, 297)
            assert found == [float(i) for i in range(300)]


async def test_drop_oldest_keeps_the_newest_tuples_behind_a_resync() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0) as made, made.client() as hc:
        await hc.execute(TRADES)
        async with hc.subscribe(FILTER, -1, 1e9, overflow="drop_oldest", buffer=3) as subscription:
            await publish(hc, *range(10))
            await hc.sync()
            assert await take(subscription, 4) == [Resync(7, None, 7, "overflow"), 7.0, 8.0, 9.0]
            assert subscription.dropped == 7
        async with hc.subscribe(FILTER, -1, 1e9, overflow="latest") as subscription:
            await publish(hc, *range(10))
            await hc.sync()
            assert await take(subscription, 1) == [9.0]
            assert subscription.conflated == 9


async def test_windows_are_answers_like_any_and_time_passes_by_progress(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async with server_on(tmp_path) as endpoint:
            client = await hullcast.connect(endpoint, limits=QUICK)
            await client.execute(TRADES)
            rows = await client.subscribe("SELECT SUM(PRICE) FROM TRADES [ROWS 2] WHERE SYMBOL = 'a'")
            range_ = await client.subscribe("SELECT COUNT(*) FROM TRADES [RANGE '10s']")
            await publish(client, 1.0, 2.0, 4.0)
            await publish(client, 8.0, second=5)
            await client.sync()
            assert (rows.answer, range_.answer) == (12.0, 4)
            receipt = await client.progress("TRADES", moment(12))
            await client.sync()
            assert (rows.answer, range_.answer) == (12.0, 1)
            assert receipt.updates == 0
        async with server_on(tmp_path, endpoint):
            await client.sync()
            assert (rows.answer, range_.answer) == (12.0, 1)
            await client.progress("TRADES", moment(15).isoformat())
            await client.sync()
            assert range_.answer == 1
            await client.progress("TRADES", moment(15.001))
            await client.sync()
            assert range_.answer == 0
            stream = (await client.tables())["TRADES"]["stream"]
            assert stream["time_us"] == moment(15.001).timestamp() * 1e6
            assert stream["windows"] == {"[ROWS 2]": 2, "[RANGE '10s']": 0}
            await client.execute("CREATE STREAM S (A TEXT)")
            with pytest.raises(SqlError, match="no TIMESTAMP column"):
                await client.progress("S", moment(1))
            await client.close()


async def test_a_window_that_is_emptied_at_once_loses_its_tuples_one_by_one_while_others_go_on(tmp_path: Path) -> None:
    n = 1000
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        for module, name in ((windows_module, "MOVED_AT_ONCE"), (changing_module, "SETTLED_AT_ONCE")):
            stack.enter_context(patch.object(module, name, 10))
        made = await stack.enter_async_context(cluster(0, tmp_path))
        hc, other = [await stack.enter_async_context(made.client()) for _ in range(2)]
        await hc.execute(TRADES)
        await other.execute("CREATE TABLE T (K INTEGER PRIMARY KEY)")
        await publish(hc, *map(float, range(n)))
        window = await hc.subscribe("SELECT COUNT(*) FROM TRADES [RANGE '10s']", buffer=2 * n)
        table = await other.subscribe("SELECT COUNT(*) FROM T")
        assert window.answer == n
        with patch.object(leaving_module, "SETTLED_TOGETHER", 0):  # it is slow
            heartbeat = await hc.progress("TRADES", moment(60))
            last = await other.publish("T", {"K": 1})
        events: list[Change] = []
        while not events or events[-1].answer:  # some may be told as one
            event = await anext(window)
            assert isinstance(event, Change)
            events.append(event)
        answers, seqs = [event.answer for event in events], [event.seq for event in events]
        assert (answers, seqs) == (sorted(set(answers), reverse=True), sorted(set(seqs)))
        assert heartbeat.first_seq <= seqs[0] <= last.first_seq < seqs[-1]  # others did not wait until all had left
        await other.sync()
        assert table.answer == 1
        assert await hc.query("SELECT COUNT(*) FROM TRADES") == [(n,)]


async def test_what_was_to_leave_a_stream_when_the_server_stopped_leaves_when_it_has_started(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        stack.enter_context(patch.object(changing_module, "SETTLED_AT_ONCE", 1))
        stack.enter_context(patch.object(stream_module, "REMOVED_AT_ONCE", 10))
        with patch.object(Housekeeping, "on_release", lambda _: None):  # it has no time for it
            async with server_on(tmp_path) as endpoint, hullcast.connect(endpoint) as hc:
                await hc.execute(f"{TRADES} WITH (retain = '10s')")
                await publish(hc, *map(float, range(100)))
                await hc.progress("TRADES", moment(60))
                assert (await hc.tables())["TRADES"]["rows"] == 90
        async with server_on(tmp_path) as endpoint, hullcast.connect(endpoint) as hc:
            while (await hc.tables())["TRADES"]["rows"]:
                await hc.sync()


async def test_a_window_that_is_too_large_is_refused_before_it_is_opened() -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(0, stream_window_bytes=64 << 10) as made,
        made.client() as hc,
    ):
        await hc.execute(TRADES)
        large, small = (f"SELECT COUNT(*) FROM TRADES [ROWS {n}]" for n in (100_000, 1000))
        with pytest.raises(TooLarge, match=r"ROWS 100000\] \(.*stream_window_bytes\): 3,300,000 is more than"):
            await hc.subscribe(large)
        with pytest.raises(TooLarge, match="stream_window_bytes"):
            await hc.subscribe("SELECT COUNT(*) FROM TRADES", when=large)
        async with hc.subscribe(small) as subscription:
            await publish(hc, 1.0)
            assert (await anext(subscription)).seq == 1


async def test_history_and_queries_see_a_stream_as_a_table(tmp_path: Path) -> None:
    with patch.object(stream_module, "FEWEST_OVER", 2):
        async with (
            asyncio.timeout(PATIENCE_S),
            server_on(tmp_path) as endpoint,
            hullcast.connect(endpoint, limits=QUICK) as hc,
        ):
            await hc.execute(f"{TRADES} WITH (retain_rows = 4)")
            await publish(hc, *range(4))
            await publish(hc, *range(4, 8))
            rows = await hc.query("SELECT POSITION, PRICE FROM TRADES ORDER BY POSITION")
            assert list(map(tuple, rows)) == [(5, 4.0), (6, 5.0), (7, 6.0), (8, 7.0)]
            parts = [part async for part in hc.changes("TRADES", 0)]
            changes = [row for part in parts for row in part.to_arrow().to_pylist()]
            assert len(changes) == 12
            before = [row async for part in hc.table_at("TRADES", 8) for row in part.to_arrow().to_pylist()]
            assert sorted(row["PRICE"] for row in before) == [float(i) for i in range(8)]


async def test_only_streams_are_read_from_a_position() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0) as made, made.client() as hc:
        await hc.execute(TRADES)
        await hc.execute("CREATE TABLE T (K INTEGER PRIMARY KEY)")
        for sql in ("SELECT * FROM T", "SELECT COUNT(*) FROM T"):
            with pytest.raises(BadSetting, match="only a subscription to the tuples of a stream"):
                await hc.subscribe(sql, after=3)
        with pytest.raises(BadSetting, match="must be a position"):
            hc.subscribe("SELECT * FROM TRADES", after=-2)
        with pytest.raises(BadSetting, match="a stream has no answer"):
            await hc.subscribe("SELECT * FROM TRADES", snapshot=True)
        with pytest.raises(UsageError, match="its tuples cannot be deleted"):
            await hc.delete("TRADES", [1])
        async with hc.subscribe("SELECT COUNT(*) FROM TRADES [ROWS 3]") as subscription:
            await publish(hc, 1.0)
            event = await anext(subscription)
            assert isinstance(event, Change)


async def test_a_tuple_may_be_the_condition_of_another_select() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0) as made, made.client() as hc:
        await hc.execute(TRADES)
        await publish(hc, 1.0)
        count = "SELECT COUNT(*) AS n, MAX(PRICE) AS most FROM TRADES"
        when = "SELECT * FROM TRADES WHERE PRICE > ?"
        async with hc.subscribe(count, when=when, when_parameters=(10,)) as conditional:
            assert conditional.answer == [(1, 1.0)]
            await publish(hc, 2.0)
            await publish(hc, 11.0)
            event = await anext(conditional)
            assert isinstance(event, Change)
            assert event.answer == [(3, 11.0)]
        window = "SELECT COUNT(*) FROM TRADES [ROWS 2] WHERE PRICE > ?"
        async with hc.subscribe(count, when=window, when_parameters=(10,)) as conditional:
            await publish(hc, 3.0)  # 11 and 3: as before
            await publish(hc, 4.0)  # 3 and 4
            event = await anext(conditional)
            assert isinstance(event, Change)
            assert event.answer == [(5, 11.0)]


async def test_the_blocking_client_has_streams_too(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), server_on(tmp_path) as endpoint:

        def work() -> list[Any]:
            with hullcast.connect_blocking(endpoint) as hc:
                hc.execute(TRADES)
                hc.publish("TRADES", {"TS": [moment(0)] * 3, "PRICE": [1.0, 2.0, 3.0]})
                hc.progress("TRADES", moment(9))
                with hc.subscribe(FILTER, 2, 9, after=0) as subscription:
                    assert not subscription.has_answer
                    events = iter(subscription)
                    return [event.row.PRICE for event in (next(events), next(events)) if isinstance(event, StreamTuple)]

        assert await asyncio.to_thread(work) == [2.0, 3.0]
