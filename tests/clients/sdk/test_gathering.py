"""Rows published one by one against a real server: they travel together, and each has its own receipt or refusal."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hullcast
from hullcast import testing
from hullcast.clients.sdk import gathering
from hullcast.network.wire import bodies, frames
from tests.support.cluster import QUICK, cluster

LIMIT_S = 60
CREATE = "CREATE TABLE T (K INTEGER PRIMARY KEY, X REAL)"
ALL = "SELECT K, X FROM T ORDER BY K"


class Outgoing:
    """The changes that a client sends, in order; each with its request."""

    def __init__(self, client: hullcast.Client) -> None:
        self.changes: list[tuple[frames.Request, Any]] = []
        self._send = client._line._send
        client._line._send = self._sent  # type: ignore[method-assign]

    def _sent(self, payload: bytes, dispensable: bool = False) -> None:
        frame = frames.decode(payload)
        if isinstance(frame, frames.Request):
            body = bodies.decode(frame.body)
            if isinstance(body, bodies.Publish | bodies.Delete | bodies.Execute):
                self.changes.append((frame, body))
        self._send(payload, dispensable)


async def test_rows_of_one_turn_travel_in_one_frame_and_each_has_its_own_receipt() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster(nodes=1) as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        out = Outgoing(client)
        forms: list[Any] = [
            {"K": 0, "X": 0.0},
            [{"K": 1, "X": 1.0}],
            {"K": [2], "X": np.array([2.0])},
            {"K": np.int64(3), "X": np.float32(3)},
            {"X": 4.0, "K": 4},
        ]
        forms += [{"K": key, "X": float(key)} for key in range(5, 100)]
        receipts = await asyncio.gather(*(client.publish("T", row) for row in forms))
        assert [(one.first_seq, one.seq, one.updates, one.deleted) for one in receipts] == [
            (seq, seq, 1, None) for seq in range(1, 101)
        ]
        assert len(out.changes) == 1
        assert await client.query(ALL) == [(key, float(key)) for key in range(100)]


async def test_changes_of_all_kinds_are_applied_in_the_order_of_their_calls() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster(nodes=1) as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        await client.execute(CREATE.replace(" T ", " U "))
        calls: list[Any] = []
        for turn in range(20):
            calls += [
                client.publish("T", {"K": 1, "X": turn + 0.1}),
                client.publish("T", {"K": 2, "X": turn + 0.1}),
                client.delete("T", [1]),
                client.publish("T", {"K": 1, "X": turn + 0.2}),
                client.publish("U", {"K": 1, "X": turn + 0.3}),
                client.publish("T", {"K": [1, 2], "X": [turn + 0.4, turn + 0.4]}),
                client.publish("T", {"K": 1}),
                client.publish("T", {"K": 2, "X": float(turn)}),
            ]
        receipts = await asyncio.gather(*calls)
        ends = [receipt.seq for receipt in receipts]
        assert ends == sorted(ends)
        assert [receipt.first_seq for receipt in receipts] == [1, *(end + 1 for end in ends[:-1])]
        assert await client.query(ALL) == [(1, 19.4), (2, 19.0)]
        assert await client.query("SELECT X FROM U") == [(19.3,)]


async def test_bad_rows_are_refused_alone_among_good_ones_and_later_changes() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster(nodes=1) as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        bad: dict[int, Any] = {3: "no number", 17: float("nan"), 18: object(), 40: "no", 63: b"x"}

        async def burst(start: int) -> list[Any]:
            rows = ({"K": start + i, "X": bad.get(i, float(i))} for i in range(64))
            return await asyncio.gather(*(client.publish("T", row) for row in rows), return_exceptions=True)

        async def later(start: int) -> list[Any]:
            await asyncio.sleep(0)  # in turns of their own, while the first are on the way
            return await burst(start)

        for results in await asyncio.gather(burst(0), later(1000), later(2000)):
            for i, result in enumerate(results):
                if i in bad:
                    assert isinstance(result, hullcast.BadValue)
                    assert (result.row, result.column) == (0, "X")
                    assert ("NaN" in result.reason) == (i == 17)
                    assert ("object" in result.reason) == (i == 18)
                else:
                    assert isinstance(result, hullcast.Receipt), result
        good = [i for i in range(64) if i not in bad]
        assert await client.query(ALL) == [(start + i, float(i)) for start in (0, 1000, 2000) for i in good]
        with pytest.raises(hullcast.UnknownColumn):
            await client.publish("T", {"K": 1, "Y": 1.0})
        gone = await asyncio.gather(*(client.publish("NO", {"K": i}) for i in range(3)), return_exceptions=True)
        assert [type(error) for error in gone] == [hullcast.UnknownTable] * 3
        assert len(set(map(id, gone))) == 3  # each caller has an error of its own, with its own traceback
        keyless = await asyncio.gather(*(client.publish("T", {"X": 1.0}) for _ in range(3)), return_exceptions=True)
        assert {str(error) for error in keyless} == {str(keyless[0])}
        assert "primary key" in str(keyless[0])


async def test_while_changes_are_on_the_way_rows_gather_into_the_next() -> None:
    async with asyncio.timeout(LIMIT_S):
        async with testing.cluster() as endpoint:
            client = await hullcast.connect(endpoint)
            await client.execute(CREATE)
        tasks = []
        for key in range(200):  # nobody answers: some changes leave, and the rest is one
            tasks.append(asyncio.create_task(client.publish("T", {"K": key, "X": 1.0})))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert client.statistics().waiting == gathering.ON_THE_WAY
        change = client._gathering._waiting[-1]
        assert len(client._gathering._waiting) == 1
        assert len(change.rows) == 200 - gathering.ON_THE_WAY
        tasks[150].cancel()  # its row has not left
        with pytest.raises(hullcast.TimedOut, match=r"publish to T \(earlier changes have no reply\)"):
            await client.publish("T", {"K": 999, "X": 1.0}, timeout=0.02)
        await asyncio.gather(tasks[150], return_exceptions=True)
        assert [row.values[0] for row in change.rows] == [key for key in range(gathering.ON_THE_WAY, 200) if key != 150]
        for task in tasks[gathering.ON_THE_WAY :]:
            task.cancel()
        await asyncio.gather(*tasks[gathering.ON_THE_WAY :], return_exceptions=True)
        assert not client._gathering._waiting
        await client.close()
        ends = await asyncio.gather(*tasks[: gathering.ON_THE_WAY], return_exceptions=True)
        assert [type(end) for end in ends] == [hullcast.ClientClosed] * gathering.ON_THE_WAY


async def test_a_change_is_given_up_when_nobody_waits_for_any_of_its_rows() -> None:
    async with asyncio.timeout(LIMIT_S):
        async with testing.cluster() as endpoint:
            client = await hullcast.connect(endpoint, timeout=0.2)
            await client.execute(CREATE)
        own = asyncio.create_task(client.publish("T", {"K": 1, "X": 1.0}, timeout=20))
        cancelled = asyncio.create_task(client.publish("T", {"K": 2, "X": 1.0}))
        with pytest.raises(hullcast.TimedOut, match=r"publish to T \(no connection\): no reply after 0\.2 s"):
            await client.publish("T", {"K": 3, "X": 1.0})
        assert client.statistics().waiting == 1
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        assert client.statistics().waiting == 1  # the first has a timeout of its own
        own.cancel()
        await asyncio.gather(own, return_exceptions=True)
        assert client.statistics().waiting == 0
        await client.close()


async def test_a_queue_to_the_server_that_is_full_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        room = asyncio.Event()
        dialer = client._line.dialer
        monkeypatch.setattr(type(dialer), "writable", property(lambda self: room.is_set()))
        monkeypatch.setattr(dialer, "wait_writable", room.wait)
        first = asyncio.create_task(client.publish("T", {"K": 1, "X": 1.0}))
        await asyncio.sleep(0.01)
        others = [asyncio.create_task(client.publish("T", {"K": key, "X": 2.0})) for key in (1, 2)]
        with pytest.raises(hullcast.TimedOut, match="earlier changes have no reply"):
            await client.publish("T", {"K": 3, "X": 3.0}, timeout=0.02)
        assert client.statistics().waiting == 0
        room.set()
        assert [(await task).seq for task in (first, *others)] == [1, 2, 3]
        assert await client.query(ALL) == [(1, 2.0), (2, 2.0)]


async def test_draining_waits_for_rows_that_have_not_left() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as other:
        await other.execute(CREATE)
        client = await hullcast.connect(endpoint)
        calls = [asyncio.create_task(client.publish("T", {"K": key, "X": 1.0})) for key in range(10)]
        await asyncio.sleep(0)
        await client.drain()
        assert [receipt.seq for receipt in await asyncio.gather(*calls)] == list(range(1, 11))


async def test_draining_does_not_wait_for_a_row_that_was_given_up() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint:
        client = await hullcast.connect(endpoint, timeout=2 * LIMIT_S)
        await client.execute(CREATE)
        with client._gate.turn():  # another change is before it
            call = asyncio.create_task(client.publish("T", {"K": 1, "X": 1.0}))
            await asyncio.sleep(0)
            draining = asyncio.create_task(client.drain())
            await asyncio.sleep(0)
            call.cancel()
            await draining
        await asyncio.gather(call, return_exceptions=True)


async def test_a_row_that_the_server_would_not_take_is_refused_and_holds_up_no_other() -> None:
    small = replace(QUICK, message_bytes=64 << 10)
    async with asyncio.timeout(LIMIT_S), cluster(0, link=small) as members, members.client() as client:
        await client.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, X TEXT)")
        with pytest.raises(hullcast.TooLarge):
            await client.publish("T", {"K": 1, "X": "x" * 100_000})
        assert client.statistics().waiting == 0
        large = [client.publish("T", [{"K": key, "X": "x" * 50_000} for key in (1, 3)]), client.query("x" * 100_000)]
        calls = [*large, client.publish("T", {"K": 2, "X": "y"})]
        *refused, receipt = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(error) for error in refused] == [hullcast.TooLarge] * 2
        assert isinstance(receipt, hullcast.Receipt)
        assert receipt.seq == 1
        assert client.statistics().waiting == 0


async def test_no_more_rows_travel_together_than_the_server_takes_at_once() -> None:
    small = replace(QUICK, message_bytes=64 << 10)
    async with asyncio.timeout(LIMIT_S), cluster(0, link=small) as members, members.client() as client:
        await client.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, X TEXT)")
        rows = [{"K": key, "X": "\N{GRINNING FACE}" * 4_000} for key in range(20)]
        receipts = await asyncio.gather(*(client.publish("T", row) for row in rows))
        assert [receipt.seq for receipt in receipts] == list(range(1, 21))
