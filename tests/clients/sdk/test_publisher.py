"""A publisher: rows sent one by one without waiting, and what becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import hullcast
from hullcast import testing
from hullcast.clients.sdk import gathering
from hullcast.clients.sdk.publisher import REFUSALS_KEPT, SentRows
from tests.clients.sdk.test_gathering import Outgoing
from tests.support.cluster import PATIENCE_S, PATIENT, ProcessMember, cluster, wait_for

LIMIT_S = 60
CREATE = "CREATE TABLE T (K INTEGER PRIMARY KEY, X REAL)"
ALL = "SELECT K, X FROM T ORDER BY K"


def row(key: int, x: object = 1.0) -> dict[str, object]:
    return {"K": key, "X": x}


async def test_a_thousand_rows_of_one_turn_are_one_frame() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster(nodes=1) as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        out = Outgoing(client)
        async with client.publisher("T") as publisher:
            reused: dict[str, object] = {}
            for key in range(1000):
                reused["K"], reused["X"] = key, float(key)  # a row is taken as it is when it is sent
                publisher.send(reused)
            assert (publisher.sent, publisher.acknowledged) == (1000, 0)
        assert [(request.apart, request.lazy) for request, _ in out.changes] == [(True, False)]  # its end waits for it
        assert (publisher.sent, publisher.acknowledged, publisher.refused, publisher.seq) == (1000, 1000, 0, 1000)
        assert publisher.waiting_bytes == 0
        assert await client.query("SELECT COUNT(*), SUM(X) FROM T") == [(1000, 499500.0)]


async def test_rows_sent_in_turns_of_their_own_are_lazy_and_gather_while_others_are_on_the_way() -> None:
    async with asyncio.timeout(LIMIT_S):
        async with testing.cluster() as endpoint:
            client = await hullcast.connect(endpoint)
            await client.execute(CREATE)
            out = Outgoing(client)
            publisher = client.publisher("T")
            line, client._line.dialer.pause = client._line, lambda: None  # type: ignore[method-assign]
            line.dialer._socket.pause()  # type: ignore[union-attr]  # no receipt is read
            for key in range(100):
                publisher.send(row(key))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            most = gathering.ON_THE_WAY_LAZY
            assert [request.lazy for request, _ in out.changes] == ([True] * (most // 2 - 1) + [False]) * 2
            with pytest.raises(hullcast.TimedOut, match=r"flush of the publisher for T \(no reply\)"):
                await publisher.flush(timeout=0.05)
            assert len(out.changes) == most
            line.dialer._socket.resume()  # type: ignore[union-attr]
            assert await publisher.flush() == 100
            assert len(out.changes) == most + 1
            assert await publisher.flush() == 100  # nothing is left to wait for
            await client.close()


async def test_what_can_be_seen_at_once_is_raised_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        publisher = client.publisher("T")
        many: Any = [[row(1)], {"K": [1, 2], "X": [1.0, 2.0]}, None, {}]
        for rows in many:
            with pytest.raises(hullcast.BadBatch):
                publisher.send(rows)
        for setting in ({"window_bytes": 0}, {"window_bytes": "1"}, {"nan": "keep"}, {"on_error": "print"}):
            with pytest.raises(hullcast.BadSetting):
                client.publisher("T", **setting)
        publisher.send({"K": [1], "X": [1.0]})  # columns of one row are a row
        await publisher.close()
        with pytest.raises(hullcast.UsageError, match="publisher for T is closed"):
            publisher.send(row(1))
        assert publisher.sent == publisher.seq == 1
        assert repr(publisher) == "<publisher for T: 1 sent, 1 acknowledged, 0 refused, closed>"
        publisher = client.publisher("T")
        publisher.send(row(2))
        await client.close()
        with pytest.raises(hullcast.ClientClosed):
            publisher.send(row(1))
        with pytest.raises(hullcast.ClientClosed):
            client.publisher("T")
        with pytest.raises(hullcast.RowsRefused, match="1 row sent to T was refused") as lost:
            await publisher.flush()
        assert isinstance(lost.value.__cause__, hullcast.ClientClosed)  # it is not known whether it was applied
        assert "closed before the receipt came, so it may not be applied; call flush() first" in str(lost.value)
        assert "call flush() first" in caplog.text  # without a flush, this is all that its user sees


async def test_refused_rows_are_raised_by_the_next_flush_and_stop_no_other() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster(nodes=1) as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        publisher = client.publisher("T")
        for key in range(200):
            publisher.send(row(key, "no" if key % 50 == 7 else 1.0))
        await asyncio.sleep(0)
        publisher.send(row(500))
        with pytest.raises(hullcast.RowsRefused, match="4 rows sent to T were refused") as refused:
            await publisher.flush()
        assert (refused.value.count, [bad["K"] for bad, _ in refused.value.refusals]) == (4, [7, 57, 107, 157])
        assert all(isinstance(error, hullcast.BadValue) for _, error in refused.value.refusals)
        assert refused.value.__cause__ is refused.value.refusals[0][1]
        assert (publisher.sent, publisher.acknowledged, publisher.refused) == (201, 197, 4)
        await publisher.flush()  # it was told
        assert len(await client.query(ALL)) == 197
        async with client.publisher("T", nan="null") as lenient:
            lenient.send(row(1, float("nan")))
        assert await client.query("SELECT X FROM T WHERE K = 1") == [(None,)]
        nowhere = client.publisher("NO")
        for key in range(150):
            nowhere.send(row(key))
        with pytest.raises(hullcast.RowsRefused, match="150 rows") as refused:
            await nowhere.close()
        assert len(refused.value.refusals) == REFUSALS_KEPT
        assert isinstance(refused.value.__cause__, hullcast.UnknownTable)


async def test_a_refusal_shows_the_row_and_speaks_of_it_alone() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        publisher = client.publisher("T")
        for bad, why in (
            (row(7, "cheap"), "{'K': 7, 'X': 'cheap'}: column X: REAL takes a number, got str 'cheap'"),
            (row(8, float("nan")), "{'K': 8, 'X': nan}: column X: NaN is not allowed; publisher(.., nan=\"null\")"),
            (row(9, "long" * 1000), "{'K': 9, 'X': 'longlong"),
        ):
            publisher.send(row(1))
            publisher.send(bad)
            with pytest.raises(hullcast.RowsRefused) as refused:
                await publisher.flush()
            said = str(refused.value)
            assert f"the others are durable; the first refusal: {why}" in said
            assert "row 0" not in said
            assert "nothing was applied" not in said
            assert len(said) < 300


async def test_a_callback_hears_of_refused_rows_instead(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[tuple[Any, Exception]] = []

    def told(bad: dict[str, Any], error: Exception) -> None:
        heard.append((bad, error))
        raise RuntimeError("a bug in the callback")

    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        async with client.publisher("T", on_error=told) as publisher:
            for key in (1, 2, 3):
                publisher.send(row(key, "no" if key == 2 else 1.0))
        assert [bad for bad, _ in heard] == [row(2, "no")]
        assert isinstance(heard[0][1], hullcast.BadValue)
        assert (publisher.refused, publisher.acknowledged) == (1, 2)
        assert "on_error failed" in caplog.text


async def test_the_error_of_the_block_matters_more_than_refused_rows() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        publisher = client.publisher("T")

        async def fail() -> None:
            async with publisher:
                publisher.send(row(1, "no"))
                publisher.send(row(2))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert (publisher.refused, publisher.acknowledged) == (1, 1)


async def test_rows_keep_their_order_among_the_other_changes() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster(nodes=1) as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        async with client.publisher("T") as publisher:
            calls = []
            for turn in range(20):
                publisher.send(row(1, turn + 0.1))
                calls.append(asyncio.ensure_future(client.publish("T", row(1, turn + 0.2))))
                await asyncio.sleep(0)
                publisher.send(row(1, turn + 0.3))
                calls.append(asyncio.ensure_future(client.delete("T", 1)))
                await asyncio.sleep(0)
                publisher.send(row(1, turn + 0.4))
            receipts = await asyncio.gather(*calls)
        assert [receipt.seq for receipt in receipts] == [
            seq for turn in range(20) for seq in (5 * turn + 2, 5 * turn + 4)
        ]
        assert await client.query(ALL) == [(1, 19.4)]


# --- faults --------------------------------------------------------------------------------------------------


async def test_nothing_is_lost_or_doubled_when_gateways_are_killed_while_rows_are_sent(tmp_path: Path) -> None:
    keys, sent = 50, 0
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(3, tmp_path) as made,
        made.client("g1", "g2") as client,
        made.client("root") as other,
    ):
        await client.execute(CREATE)
        many = await other.subscribe_many("SELECT MIN(X) FROM T WHERE K BETWEEN ? AND ?", [0, 10], [40, 12])
        last = await other.subscribe("SELECT K, X FROM T WHERE K < ?", keys, overflow="latest")
        publisher = client.publisher("T", window_bytes=256 << 10)
        for gateway in ("g1", "g2"):
            fresh = client.statistics().link.fresh
            killing = asyncio.create_task(made.kill(gateway), name="test.kill")
            while not killing.done() or client.statistics().link.fresh == fresh:
                for _ in range(10):
                    publisher.send(row(sent % keys, float(sent)))
                    sent += 1
                await publisher.ready()
                await asyncio.sleep(0)
            await made[gateway].start()
        assert await publisher.flush() == sent  # no update but these: each was applied once
        assert (publisher.acknowledged, publisher.refused, publisher.waiting_bytes) == (sent, 0, 0)
        expected = sorted((number % keys, float(number)) for number in range(sent - keys, sent))
        assert await client.query(ALL) == expected  # in order, since the last value of each key is the last sent
        await other.sync()
        assert last.answer == expected
        assert many.answers.tolist() == [
            min(x for k, x in expected if low <= k <= high) for low, high in ((0, 40), (10, 12))
        ]


async def test_while_the_server_stands_still_the_window_fills_and_ready_waits(tmp_path: Path) -> None:
    window = 64 << 10
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(0, tmp_path, processes=tmp_path, link=PATIENT) as made,
        made.client() as client,
    ):
        await client.execute(CREATE)
        server = made.server
        assert isinstance(server, ProcessMember)
        assert server.process is not None
        publisher = client.publisher("T", window_bytes=window)
        server.process.send_signal(signal.SIGSTOP)
        try:
            with contextlib.suppress(hullcast.Overloaded):
                for key in range(10_000):
                    publisher.send(row(key))
                    if key % 7 == 0:
                        await asyncio.sleep(0)
            sent = publisher.sent
            with pytest.raises(hullcast.WindowFull, match="65,536 bytes; wait with ready"):
                publisher.send(row(-1))
            assert publisher.sent == sent
            assert window - 1000 < publisher.waiting_bytes <= window
            with pytest.raises(hullcast.TimedOut, match="room in the publisher for T"):
                await publisher.ready(timeout=0.05)
            ready = asyncio.create_task(publisher.ready(), name="test.ready")
            await asyncio.sleep(0)
            assert not ready.done()
        finally:
            server.process.send_signal(signal.SIGCONT)
        await ready
        assert publisher.waiting_bytes <= window // 2
        publisher.send(row(sent))
        assert await publisher.flush() == sent + 1
        assert await client.query(ALL) == [(key, 1.0) for key in range(sent + 1)]
        lone = client.publisher("T", window_bytes=1)
        lone.send(row(0))  # one row alone always has room
        with pytest.raises(hullcast.WindowFull):
            lone.send(row(1))
        await lone.ready()
        lone.send(row(1))
        await lone.close()


# --- without asyncio -----------------------------------------------------------------------------------------


def test_threads_share_a_publisher_of_a_blocking_client() -> None:
    with testing.blocking_cluster() as endpoint, hullcast.connect_blocking(endpoint) as hc:
        hc.execute(CREATE)
        with hc.publisher("T", window_bytes=16 << 10) as publisher:

            def work(thread: int) -> None:
                for number in range(500):
                    publisher.ready()
                    try:
                        publisher.send(row(thread, float(number)))
                    except hullcast.WindowFull:  # others were quicker
                        publisher.flush()
                        publisher.send(row(thread, float(number)))

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert publisher.sent == 2000
            assert publisher.flush() == publisher.seq == publisher.acknowledged == 2000
            assert publisher.waiting_bytes == 0
        assert hc.query(ALL) == [(thread, 499.0) for thread in range(4)]
        with pytest.raises(hullcast.UsageError, match="closed"):
            publisher.send(row(1))


def test_a_blocking_publisher_says_what_was_refused() -> None:
    heard: list[Any] = []
    with testing.blocking_cluster() as endpoint:
        with hullcast.connect_blocking(endpoint) as hc:
            hc.execute(CREATE)
            publisher = hc.publisher("T")
            with pytest.raises(hullcast.BadBatch):
                publisher.send([row(1)])  # type: ignore[arg-type]
            publisher.send(row(1, "no"))
            publisher.send(row(2))
            with pytest.raises(hullcast.RowsRefused):
                publisher.flush()
            assert (publisher.refused, publisher.acknowledged) == (1, 1)
            with hc.publisher("T", on_error=lambda bad, error: heard.append(bad)) as other:
                other.send(row(3, "no"))
            assert heard == [row(3, "no")]
            full, go_on = hc.publisher("T", window_bytes=300), threading.Event()

            def have_other_things_to_do() -> None:
                go_on.wait(LIMIT_S)

            hc._thread.soon(have_other_things_to_do)
            full.send(row(4))
            full.send(row(5))
            with pytest.raises(hullcast.WindowFull):
                full.send(row(6))
            assert (full.sent, full.waiting_bytes > 0) == (2, True)
            assert repr(full) == "<publisher for T: 2 sent, 0 acknowledged, 0 refused>"
            go_on.set()
            assert full.flush() == full.seq == 3
            failing = hc.publisher("T")

            def fail() -> None:
                with failing:
                    failing.send(row(1, "no"))
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                fail()
            assert failing.refused == 1
        with pytest.raises(hullcast.ClientClosed):
            publisher.send(row(1))


async def test_a_flush_that_is_cancelled_takes_nothing_with_it_and_draining_waits_for_rows() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        publisher = client.publisher("T")
        publisher.send(row(1))
        flushing = asyncio.create_task(publisher.flush(), name="test.flush")
        await asyncio.sleep(0)
        flushing.cancel()
        await asyncio.gather(flushing, return_exceptions=True)
        await wait_for(lambda: publisher.acknowledged == 1, "the receipt")
        publisher.send(row(2))
        await client.drain()  # waits for rows that were sent
        assert publisher.acknowledged == 2


class OneRow:
    """A change, as far as `SentRows` looks at it."""

    size_bytes, rows = 100, (row(1),)


async def test_a_receipt_that_comes_when_the_time_is_over_is_not_too_late() -> None:
    sent = SentRows("T", None)
    change: Any = OneRow()
    sent.put(change, 100)
    loop = asyncio.get_running_loop()
    flushing = asyncio.create_task(sent.flushed(0.0))
    loop.call_soon(sent.over, change, 1)  # behind the task's first step, before its timeout
    await flushing
    assert (sent.acknowledged, sent.waiting_bytes) == (1, 0)
