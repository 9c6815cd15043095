"""First answers that take several turns or several frames, while rows change: what comes out is of one moment."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

import hullcast
from hullcast import testing
from hullcast.broker.engine import engine as engine_module
from hullcast.broker.reformulate.extremum import ExtremumChannel
from hullcast.broker.server import subscribing
from hullcast.broker.server.service import Server
from hullcast.broker.server.settings import ServerSettings
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.connecting import configure
from hullcast.network.security.rights import Rights
from hullcast.network.wire import bodies
from hullcast.network.wire.bodies import AnswerPart, decode
from hullcast.network.wire.columns import Columns, TextColumn, concatenate
from tests.support.cluster import PATIENT, free_port

CREATE = "CREATE TABLE T (K INTEGER PRIMARY KEY, X REAL, Y REAL, S TEXT)"
KINDS = (
    "SELECT MIN(Y) FROM T WHERE X BETWEEN ? AND ?",
    "SELECT COUNT(*) FROM T WHERE X BETWEEN ? AND ?",
    "SELECT SUM(Y) FROM T WHERE X BETWEEN ? AND ? AND S = 's1'",
    "SELECT DISTINCT S FROM T WHERE X BETWEEN ? AND ?",
    "SELECT K, Y, S FROM T WHERE X BETWEEN ? AND ?",
)
PATIENCE_S = 60.0


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server for which everything is large: it works in tiny slices, in threads, and stages what it can."""
    monkeypatch.setattr(subscribing, "AT_ONCE_LOOKS", -1)
    monkeypatch.setattr(subscribing, "PART_BYTES", 500)
    monkeypatch.setattr(subscribing, "SLICE_S", 0.0)
    monkeypatch.setattr(ExtremumChannel, "capture_at_once", 3)
    monkeypatch.setattr(engine_module, "LOADED_AT_ONCE", 5)


async def publish_without_end(hc: hullcast.Client, chance: random.Random) -> None:
    while True:
        keys = [chance.randrange(60) for _ in range(3)]
        if chance.random() < 0.3:
            await hc.delete("T", keys)
        else:
            await hc.publish(
                "T",
                [
                    {"K": key, "X": chance.randrange(8), "Y": chance.randrange(5), "S": f"s{chance.randrange(3)}"}
                    for key in keys
                ],
            )


async def expected(hc: hullcast.Client, sql: str, low: int, high: int) -> Any:
    rows = await hc.query(sql, low, high)
    if sql.startswith("SELECT K"):
        return sorted(tuple(row) for row in rows)
    return {row[0] for row in rows} if "DISTINCT" in sql else rows[0][0]


@pytest.mark.usefixtures("slowly")
@pytest.mark.parametrize("sql", KINDS)
async def test_answers_taken_in_many_turns_and_parts_are_right(sql: str) -> None:
    chance = random.Random(sql)
    lows, highs = np.arange(40) % 5, np.arange(40) % 5 + np.arange(40) % 3
    async with asyncio.timeout(PATIENCE_S), testing.cluster(2) as url, hullcast.connect(url) as hc:
        await hc.execute(CREATE)
        async with hullcast.connect(url) as other:
            publishing = asyncio.create_task(publish_without_end(other, chance))
            try:
                await asyncio.sleep(0)
                async with (
                    hc.subscribe_many(sql, lows, highs) as many,
                    hc.subscribe(sql, 1, 5, overflow="error", buffer=100_000) as one,
                ):
                    begun = one.answer
                    for _ in range(50):
                        await hc.sync()
                    publishing.cancel()
                    await asyncio.gather(publishing, return_exceptions=True)
                    await hc.sync()
                    for i in range(len(lows)):
                        found: Any = many[i].answer
                        found = sorted(map(tuple, found)) if isinstance(found, list) else found
                        assert found == await expected(hc, sql, int(lows[i]), int(highs[i]))
                    found = one.answer
                    assert (sorted(map(tuple, found)) if isinstance(found, list) else found) == await expected(
                        hc, sql, 1, 5
                    )
                    if isinstance(begun, set):  # the events lead from the first answer to the last
                        while one.pending:
                            event = one.take_nowait()
                            assert isinstance(event, hullcast.Change)
                            begun = (begun - set(event.left)) | set(event.entered)
                        assert begun == found
            finally:
                publishing.cancel()
                await asyncio.gather(publishing, return_exceptions=True)


@pytest.mark.usefixtures("slowly")
async def test_a_reply_that_cannot_be_encoded_fails_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = bodies.encode

    def fails(body: bodies.Body) -> bytes:
        if isinstance(body, bodies.Subscribed):
            raise MemoryError
        return encode(body)

    async with asyncio.timeout(PATIENCE_S), testing.cluster() as url, hullcast.connect(url) as hc:
        await hc.execute(CREATE)
        await hc.publish("T", {"K": np.arange(50), "X": np.arange(50.0)})
        with monkeypatch.context() as broken:
            broken.setattr(bodies, "encode", fails)
            with pytest.raises(hullcast.InvariantBroken):
                await hc.subscribe(KINDS[0], 0, 5)
        async with hc.subscribe(KINDS[1], 0, 5) as sub:
            assert sub.answer == 6


@pytest.mark.usefixtures("slowly")
async def test_events_go_on_where_a_staged_answer_ends() -> None:
    async with asyncio.timeout(PATIENCE_S), testing.cluster() as url, hullcast.connect(url) as hc:
        await hc.execute(CREATE)
        await hc.publish("T", {"K": np.arange(500), "X": np.arange(500) % 7, "S": ["some text"] * 500})
        async with hc.subscribe(KINDS[4], 0, 9) as sub:
            assert len(sub.answer) == 500
            await hc.delete("T", [5])
            async for event in sub:
                assert isinstance(event, hullcast.Change)
                assert event.left == ((5, None, "some text"),)
                break


@pytest.mark.parametrize("texts", ["few of the rows", "the same again and again"])
def test_parts_fit_a_frame_however_long_some_texts_are(monkeypatch: pytest.MonkeyPatch, texts: str) -> None:
    monkeypatch.setattr(subscribing, "PART_BYTES", 100_000)
    n = 1000
    long = [f"{i}{'x' * 20_000}" for i in range(50)]
    given = ["short"] * (n - 50) + long if texts == "few of the rows" else [long[i % 10] for i in range(n)]
    whole: dict[int, Columns] = {7: {"of": np.arange(n), "text": TextColumn.from_texts(given)}, 8: {"of": np.arange(3)}}
    parts = subscribing._parts(list(whole.items()), subscribing.PART_BYTES)
    assert max(map(len, parts)) < 110_000
    found: dict[int, list[Columns]] = {7: [], 8: []}
    for part in map(decode, parts):
        assert isinstance(part, AnswerPart)
        for group, columns in part.snapshots:
            found[group].append(columns)
    for group, expected_columns in whole.items():
        joined = concatenate(found[group])
        assert np.array_equal(np.asarray(joined["of"]), np.asarray(expected_columns["of"]))
        assert joined.get("text") == expected_columns.get("text")


async def test_answers_too_large_to_be_kept_leave_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribing, "PART_BYTES", 500)
    monkeypatch.setattr(subscribing, "HELD_BYTES_PER_OWNER", 2000)
    async with asyncio.timeout(PATIENCE_S), testing.cluster() as url, hullcast.connect(url) as hc:
        await hc.execute(CREATE)
        await hc.publish("T", {"K": np.arange(500), "X": np.ones(500), "S": [f"text {i}" for i in range(500)]})
        with pytest.raises(hullcast.TooLarge, match="bytes of first answers"):
            await hc.subscribe(KINDS[4], 0, 9)
        await hc.execute("DROP TABLE T")


async def test_a_token_taken_where_its_channel_opened_goes_on_without_a_resync() -> None:
    async with asyncio.timeout(PATIENCE_S), testing.cluster() as url, hullcast.connect(url) as hc:
        await hc.execute(CREATE)
        sql = KINDS[0]
        async with hc.subscribe(sql, 0, 5) as sub:
            token = sub.token
        async with hc.subscribe(sql, 0, 5, resume=token) as again:  # at once
            await hc.publish("T", [{"K": 1, "X": 2, "Y": 3}])
            event = await anext(again)
            assert isinstance(event, hullcast.Change)
            assert event.answer == 3.0
        async with hc.subscribe(sql, 0, 5, resume=token) as later:  # the event that came since is told
            event = await anext(later)
            assert isinstance(event, hullcast.Change)
            assert event.answer == 3.0


async def test_an_update_with_too_many_results_makes_subscribers_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A band join without bounds, subscribed to while its tables are empty."""
    monkeypatch.setattr("hullcast.broker.reformulate.join.MOST_PAIRS", 50)
    sql = "SELECT R.K, Q.K FROM R JOIN Q ON Q.X - R.X BETWEEN ? AND ?"
    for nodes in (0, 2):
        async with asyncio.timeout(PATIENCE_S), testing.cluster(nodes) as url, hullcast.connect(url) as hc:
            for table in "RQ":
                await hc.execute(f"CREATE TABLE {table} (K INTEGER PRIMARY KEY, X REAL)")
            async with hc.subscribe(sql, -1e9, 1e9) as wide, hc.subscribe(sql, 0, 0) as narrow:
                await hc.publish("R", {"K": np.arange(10), "X": np.arange(10.0)})
                await hc.publish("Q", {"K": np.arange(10), "X": np.arange(10.0)})  # a hundred pairs
                event = await anext(wide)
                assert isinstance(event, hullcast.Resync)
                assert len(event.answer) == 100
                await hc.delete("Q", [3])
                event = await anext(wide)
                assert isinstance(event, hullcast.Change)
                assert len(event.left) == 10
                await hc.sync()
                assert [tuple(row) for row in narrow.answer] == [(i, i) for i in range(10) if i != 3]


async def test_who_heard_the_rest_of_such_an_update_begins_again_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has heard everything of the update in another channel: its position says that it missed nothing."""
    monkeypatch.setattr("hullcast.broker.reformulate.join.MOST_PAIRS", 50)
    for nodes in (0, 2):
        async with asyncio.timeout(PATIENCE_S), testing.cluster(nodes) as url, hullcast.connect(url) as hc:
            for table in "RQ":
                await hc.execute(f"CREATE TABLE {table} (K INTEGER PRIMARY KEY, X REAL)")
            sql = "SELECT R.K, Q.K FROM R JOIN Q ON Q.X - R.X BETWEEN ? AND ?"
            async with hc.subscribe(sql, -1e9, 1e9) as wide, hc.subscribe("SELECT COUNT(*) FROM Q") as count:
                await hc.publish("R", {"K": np.arange(10), "X": np.arange(10.0)})
                await hc.publish("Q", {"K": np.arange(10), "X": np.arange(10.0)})  # a hundred pairs
                event = await anext(wide)
                assert isinstance(event, hullcast.Resync)
                assert len(event.answer) == 100
                assert count.answer == 10


async def test_rows_beyond_a_frame_are_resumed_after_a_restart(tmp_path: Path) -> None:
    """Seventy megabytes of rows, more than a reply holds: they grow by updates, and come back in parts."""
    context: zmq.Context[Any] = zmq.Context()
    settings = ServerSettings(listen=f"tcp://127.0.0.1:{free_port()}", data=tmp_path, link=PATIENT)
    sql = "SELECT K, S FROM T WHERE X >= ?"
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            async with testing.serving(Server(settings, Rights.everything(), context=context)):
                hc = await Client(configure(settings.listen, timeout=PATIENCE_S), context)
                await hc.execute(CREATE)
                sub = await hc.subscribe(sql, 0)
                for start in range(0, 1200, 100):
                    rows = {"K": np.arange(start, start + 100), "X": np.ones(100)}
                    await hc.publish("T", {**rows, "S": [f"{start + i:05}" + "x" * 60_000 for i in range(100)]})
                await hc.sync()
                while sub.take_nowait() is not None:
                    pass
            async with testing.serving(Server(settings, Rights.everything(), context=context)):
                event = await anext(sub)
                assert isinstance(event, hullcast.Resync)
                assert [row[0] for row in event.answer] == list(range(1200))
                assert all(row[1].startswith(f"{row[0]:05}x") for row in event.answer)
                await hc.close()
    finally:
        context.destroy(linger=0)
