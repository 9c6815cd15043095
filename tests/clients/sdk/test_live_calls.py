"""Calls against a real server: given up at bad moments, with times of their own, and larger than a server takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hullcast
from hullcast import testing
from hullcast.clients.sdk import publishing
from hullcast.clients.sdk.client import CHANGES_WAITING
from hullcast.clients.sdk.publishing import PartlyPublished

LIMIT_S = 60
CREATE = "CREATE TABLE T (K INTEGER PRIMARY KEY, X REAL)"
COUNT = "SELECT COUNT(*) FROM T WHERE X >= ?"
ROWS = "SELECT K, X FROM T WHERE X >= ?"


async def give_up_as_the_reply_comes(client: hullcast.Client, work: Callable[[], Any]) -> None:
    """Cancel a subscribing task in the same turn of the loop in which its reply comes."""
    line = client._line
    opened = line._opened

    async def run() -> Any:
        return await work()

    task = asyncio.create_task(run())

    def opened_and_cancelled(call: int, group: Any) -> None:
        opened(call, group)
        task.cancel()

    line._opened = opened_and_cancelled  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await task
    line._opened = opened  # type: ignore[method-assign]


# --- refused -------------------------------------------------------------------------------------------------


async def test_a_refused_subscription_names_the_value_and_no_row_that_the_caller_does_not_have() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        for call in (client.subscribe, client.explain):
            with pytest.raises(hullcast.BadParameter, match=r"^parameter 1: X \(REAL\) takes a number, got str 'a'$"):
                await call(COUNT, "a")
        with pytest.raises(hullcast.BadParameter, match=r"takes a number, got str 'a' \(row 1\)$"):
            await client.subscribe_many(COUNT, [0.0, "a"])
        for wrong in (7, "a", None):
            with pytest.raises(hullcast.BadParameter, match=r"^parameter 1: needs a column of values \(a list"):
                await client.subscribe_many(COUNT, wrong)


async def test_zero_subscriptions_are_refused_because_the_columns_are_empty() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        with pytest.raises(hullcast.BadParameter, match="the columns are empty"):
            await client.subscribe_many(COUNT, np.empty(0))


# --- given up ------------------------------------------------------------------------------------------------


async def test_who_gives_up_in_the_moment_of_the_reply_leaves_nothing_behind() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        for work in (lambda: client.subscribe(COUNT, 0), lambda: client.subscribe_many(COUNT, [0.0, 1.0])):
            await give_up_as_the_reply_comes(client, work)
            assert (client.statistics().groups, client.statistics().subscriptions) == (0, 0)
        await client.sync()
        await client.execute("DROP TABLE T")  # the server has nobody either


async def test_a_queue_that_is_full_after_its_owner_gave_up_hurts_nobody() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        await give_up_as_the_reply_comes(client, lambda: client.subscribe(ROWS, 0, overflow="error", buffer=2))
        for key in range(5):
            await client.publish("T", {"K": [key], "X": [1.0]})
        assert await client.sync() >= 5


async def test_a_subscription_closed_while_it_opens_leaves_nothing_behind() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        subscription = client.subscribe(COUNT, 0)
        opening = asyncio.ensure_future(subscription.__aenter__())
        await asyncio.sleep(0)
        await subscription.close()
        await opening
        assert subscription.closed
        assert client.statistics().groups == 0


async def test_sums_taken_anew_do_not_end_a_client_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hullcast.clients.sdk.groups.MOST_SUBSCRIPTIONS", 2)
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        await client.publish("T", {"K": [1], "X": [1.0]})
        sums = await client.subscribe_many("SELECT SUM(X) FROM T WHERE K >= ?", [0, 1])
        await client.publish("T", {"K": [2, 3], "X": [1e40, 1e70]})
        await client.delete("T", [3, 2])
        await client.sync()
        assert sums.answers.tolist() == [1.0, 1.0]


# --- what was seen -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overflow", ["latest", "block"])
@pytest.mark.parametrize("sql", [COUNT, ROWS])
async def test_events_begin_after_the_answer_with_which_subscribing_returned(sql: str, overflow: Any) -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        line, went_on = client._line, asyncio.Event()
        opened = line._opened

        def opened_and_told(call: int, group: Any) -> None:  # an update comes before the subscriber's task is awake
            opened(call, group)
            group.listening.hear(_row_comes(sql, client.seq + 1))
            went_on.set()

        line._opened = opened_and_told  # type: ignore[method-assign]
        subscription = await client.subscribe(sql, 0, overflow=overflow)
        line._opened = opened  # type: ignore[method-assign]
        assert went_on.is_set()
        assert subscription.answer in (1, [(7, 1.0)])
        assert subscription.take_nowait() is None
        assert subscription.pending == 0
        await client.publish("T", {"K": [8], "X": [2.0]})
        assert (await anext(subscription)).answer in (2, [(7, 1.0), (8, 2.0)])


def _row_comes(sql: str, seq: int) -> dict[str, Any]:
    no, yes, x = np.array([False]), np.array([True]), np.array([1.0])
    places = {"seq": np.array([seq]), "old.there": no, "old.0": x, "new.there": yes, "new.0": x}
    if sql == COUNT:
        return places | {"old.y": np.zeros(1), "new.y": np.zeros(1)}
    return places | {"altered": no, "key.0": np.array([7.0]), "row.0": np.array([7.0]), "row.1": x}


# --- times ---------------------------------------------------------------------------------------------------


async def test_each_call_may_have_a_timeout_of_its_own() -> None:
    async with asyncio.timeout(LIMIT_S):
        async with testing.cluster() as endpoint:
            client = await hullcast.connect(endpoint, timeout=30)
            await client.execute(CREATE, timeout=20)
            many = await client.subscribe_many(COUNT, [0.0], timeout=20)
            assert many.answers.tolist() == [0]
        calls: list[Callable[[], Any]] = [
            lambda: client.execute("DROP TABLE T", timeout=0.05),
            lambda: client.publish("T", {"K": [1], "X": [1.0]}, timeout=0.05),
            lambda: client.delete("T", 1, timeout=0.05),
            lambda: client.query("SELECT * FROM T", timeout=0.05),
            lambda: client.tables(timeout=0.05),
            lambda: client.status(timeout=0.05),
            lambda: client.explain(COUNT, 0, timeout=0.05),
            lambda: client.sync(timeout=0.05),
            lambda: client.subscribe(COUNT, 0, timeout=0.05),
            lambda: client.subscribe_many(COUNT, [0.0], timeout=0.05),
        ]
        for call in calls:
            async with asyncio.timeout(10):
                with pytest.raises(hullcast.TimedOut, match=r"no reply after 0\.0\d* s"):
                    await call()
        with pytest.raises(hullcast.TimedOut, match=r"subscribe to `SELECT COUNT\(\*\) FROM T WHERE X >= \?`"):
            await client.subscribe("SELECT COUNT(*)\n  FROM T\n  WHERE X >= ?", 1, timeout=0.05)
        with pytest.raises(hullcast.BadSetting, match="timeout"):
            await client.sync(timeout=0)
        await client.close()


async def test_a_change_whose_turn_does_not_come_times_out_by_its_own_time() -> None:
    async with asyncio.timeout(LIMIT_S):
        async with testing.cluster() as endpoint:
            client = await hullcast.connect(endpoint, timeout=30)
            await client.execute(CREATE)
        two: dict[str, Any] = {"K": [1, 2], "X": [1.0, 2.0]}  # single rows would share a change
        waiting = [asyncio.create_task(client.publish("T", two)) for _ in range(CHANGES_WAITING)]
        await asyncio.sleep(0)
        for rows in (two, {"K": 1, "X": 1.0}):
            with pytest.raises(hullcast.TimedOut, match="earlier changes have no reply"):
                await client.publish("T", rows, timeout=0.05)
        await client.close()
        await asyncio.gather(*waiting, return_exceptions=True)


# --- larger than a server takes ------------------------------------------------------------------------------


async def test_more_rows_than_a_server_takes_go_in_pieces_under_one_receipt() -> None:
    rows = 120_001
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        before = (await client.publish("T", {"K": [-1], "X": [1.0]})).seq
        receipt = await client.publish("T", {"K": np.arange(rows), "X": np.ones(rows)})
        assert (receipt.first_seq, receipt.seq, receipt.updates) == (before + 1, before + rows, rows)
        assert await client.query("SELECT COUNT(*), MAX(K) FROM T") == [(rows + 1, rows - 1)]
        gone = await client.delete("T", np.arange(rows))
        assert gone.updates == rows
        assert await client.query("SELECT COUNT(*) FROM T") == [(1,)]


async def test_if_a_later_piece_is_bad_the_error_says_what_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "WHOLE_ROWS", 4)
    monkeypatch.setattr(publishing, "PIECE_ROWS", 2)
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute(CREATE)
        rows: list[dict[str, object]] = [{"K": key, "X": 1.0} for key in range(5)]
        rows[1].pop("X")
        rows[3]["X"] = "no number"
        with pytest.raises(PartlyPublished, match="the first 2 of 5 rows for T are durable") as partly:
            await client.publish("T", rows)
        cause = partly.value.__cause__
        assert isinstance(cause, hullcast.BadValue)
        assert (cause.row, cause.column) == (3, "X")
        assert (partly.value.durable, partly.value.seq) == (2, client.seq) or await client.sync() == partly.value.seq
        assert await client.query("SELECT K, X FROM T ORDER BY K") == [(0, 1.0), (1, None)]
        with pytest.raises(hullcast.BadValue):  # nothing is durable: the error is as it is
            await client.publish("T", rows[3:] + rows)
        with pytest.raises(hullcast.BadBatch):  # no batch at all: not one piece of it
            await client.publish("T", {"K": [1, 2, 3, 4, 5], "X": [1.0, 2.0]})
        assert await client.query("SELECT COUNT(*) FROM T") == [(2,)]


# --- parameters ------------------------------------------------------------------------------------------------


async def test_instants_finer_than_a_microsecond_are_compared_exactly() -> None:
    instants = np.array([1000, 1001, 1999], "M8[ns]")  # a row at 1 us is before the last two
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint, hullcast.connect(endpoint) as client:
        await client.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, AT TIMESTAMP)")
        await client.publish("T", {"K": [1], "AT": np.array([1], "M8[us]")})
        sql = "SELECT COUNT(*) FROM T WHERE AT < ?"
        async with client.subscribe_many(sql, instants) as many:
            assert many.answers.tolist() == [0, 1, 1]
        async with client.subscribe(sql, instants[1]) as one:
            assert one.answer == 1


async def test_a_change_that_another_client_sends_again_under_its_number_is_applied_once() -> None:
    async with asyncio.timeout(LIMIT_S), testing.cluster() as endpoint:
        async with hullcast.connect(endpoint) as first:
            await first.execute(CREATE)
            one = await first.change_once(b"p" * 16, 7, "T", rows={"K": [1, 2], "X": [1.0, 2.0]})
            gone = await first.change_once(b"p" * 16, 9, "T", keys=[1])
        async with hullcast.connect(endpoint) as second:
            assert await second.change_once(b"p" * 16, 7, "T", rows={"K": [1, 2], "X": [1.0, 2.0]}) == one
            again = await second.change_once(b"p" * 16, 9, "T", keys=[1])
            assert (again.first_seq, again.seq, gone.deleted) == (gone.first_seq, gone.seq, 1)
            with pytest.raises(hullcast.Superseded):
                await second.change_once(b"p" * 16, 8, "T", keys=[2])
            with pytest.raises(hullcast.BadSetting, match="16 bytes"):
                await second.change_once(b"short", 8, "T", keys=[2])
            for both_or_neither in ({"rows": {"K": [2]}, "keys": [2]}, {}):
                with pytest.raises(hullcast.BadSetting, match="either rows to publish or keys to delete"):
                    await second.change_once(b"p" * 16, 10, "T", **both_or_neither)  # type: ignore[arg-type]  # on purpose
            await second.change_once(b"q" * 16, 8, "T", rows={"K": [3], "X": [3.0]})
            assert await second.query("SELECT K FROM T ORDER BY K") == [(2,), (3,)]
            assert await second.sync() == gone.seq + 1
