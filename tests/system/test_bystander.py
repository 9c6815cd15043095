"""Greedy and hostile requests, one after the other, beside somebody who publishes and must not notice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence, Set
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from hullcast.broker.log.publishers import Publishers
from hullcast.clients.sdk.client import Client
from hullcast.network.monitor.pauses import LOOK_S, Pauses
from hullcast.network.wire.errors import HullcastError
from tests.support.bystander import Bystander, bystander
from tests.support.cluster import PATIENT, ProcessMember, cluster

ROWS = 200_000
#: A publish takes no longer than this, whatever others ask for, on a machine that is quiet ..
QUIET_S = 0.25
#: .. and on one that is not, no longer than so many times what it took at worst before the attack.
NOISY = 8.0
#: While a table grows by the publishes of somebody else, which four channels read.
GROWING_S = 0.1
#: An attack that seems to hurt is tried again: what others do on this machine does not come back each time, it does.
#: (Channels do not linger in this test, so it opens them again. Only tables once copied for queries stay copied.)
TRIES = 3
#: What the server may take beyond its rows, whatever it is asked.
MEMORY_BYTES = 1 << 30
MINUTES_S = 300.0

Attack = Callable[[Client], Awaitable[object]]


def opening(sql: str, *parameters: object) -> Attack:
    async def attack(hc: Client) -> None:
        async with hc.subscribe(sql, *parameters, timeout=MINUTES_S):
            pass

    return attack


def asking(sql: str) -> Attack:
    async def attack(hc: Client) -> None:
        await hc.query(sql, timeout=MINUTES_S)

    return attack


def many(sql: str, lows: Any, highs: Any) -> Attack:
    async def attack(hc: Client) -> None:
        async with hc.subscribe_many(sql, lows, highs, timeout=MINUTES_S):
            pass
        await hc.sync()  # behind the leaving, which costs something too

    return attack


async def many_queries(hc: Client) -> None:
    sql = "SELECT count(*) FROM T a, T b WHERE a.Y < b.Y"
    await asyncio.gather(*(hc.query(sql, timeout=MINUTES_S) for _ in range(8)), return_exceptions=True)


async def many_texts(hc: Client) -> None:
    """Texts that nobody has seen before, each parsed, each with a table of a million looks."""
    for i in range(30):
        padding = " AND ".join(f"Y <= {i + j + 2}" for j in range(40))
        async with hc.subscribe(f"SELECT COUNT(*) FROM T WHERE X BETWEEN 1 AND 900 AND {padding}"):
            pass


async def many_groups(hc: Client) -> None:
    subs = [hc.subscribe(f"SELECT SUM(Y) FROM T WHERE X BETWEEN {i} AND 999") for i in range(200)]
    await asyncio.gather(*subs)
    for sub in subs:
        await sub.close()


async def all_history(hc: Client) -> None:
    """Four readers of all changes, and four of the table in parts, as of a moment that nobody has asked for."""

    async def changes() -> None:
        async for part in hc.changes("T", timeout=MINUTES_S):
            assert part.last

    async def rows(part: int) -> None:
        seq = (await hc.history("T")).last - CHANCE.integers(1, 1000)
        async for portion in hc.table_at("T", int(seq), part=part, parts=4, timeout=MINUTES_S):
            assert portion.seq

    await asyncio.gather(*(changes() for _ in range(4)), *map(rows, range(4)))


CHANCE = np.random.default_rng(0)
LOWS = CHANCE.random(50_000) * 900
#: A million are entered in 2.8 s, but the index they are in is built anew now and then: 0.2 to 0.4 s on a busy machine.
MANY = CHANCE.random(250_000) * 900
ATTACKS: dict[str, Attack] = {
    "the first query on a large table": asking("SELECT count(*), min(S) FROM T"),
    "a recursive query": asking(
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT group_concat(x) FROM c"
    ),
    "a text that breaks the parser": asking("SELECT * FROM T LATERAL . UNION SELECT * FROM T"),
    "eight joins without a condition": many_queries,
    "MIN": opening("SELECT MIN(Y) FROM T WHERE X BETWEEN ? AND ?", 1, 500),
    "MAX in partitions": opening("SELECT MAX(Y) FROM T WHERE X > ? AND S = ? AND G = ?", 1, "s3", 4),
    "DISTINCT in partitions": opening("SELECT DISTINCT S FROM T WHERE X > ? AND G = ?", 1, 4),
    "COUNT in partitions": opening("SELECT COUNT(*) FROM T WHERE X > ? AND S = ? AND G = ?", 1, "s3", 4),
    "two hundred thousand rows": opening("SELECT ID, S, Y FROM T WHERE X >= ?", 0),
    "a band join without bounds": opening("SELECT R.ID, Q.ID FROM R JOIN Q ON Q.B - R.B BETWEEN ? AND ?", -1e9, 1e9),
    "equal row ranges": many(
        "SELECT ID FROM T WHERE X BETWEEN ? AND ?", np.full(100_000, 3.0), np.full(100_000, 3.001)
    ),
    "MIN ranges": many("SELECT MIN(Y) FROM T WHERE X BETWEEN ? AND ?", LOWS, LOWS + 10),
    "a quarter of a million MIN ranges": many("SELECT MIN(Y) FROM T WHERE X BETWEEN ? AND ?", MANY, MANY + 10),
    "SUM ranges": many("SELECT SUM(Y) FROM T WHERE X BETWEEN ? AND ?", LOWS[:10_000], LOWS[:10_000] + 10),
    "ranges that overlap": many(
        "SELECT COUNT(*) FROM T WHERE (X >= ? OR Y < -1) AND (X <= ? OR Y < -2)", LOWS[:10_000], LOWS[:10_000] + 10
    ),
    "two hundred values": opening(f"SELECT ID, Y FROM T WHERE X NOT IN ({', '.join('?' * 200)})", *range(200)),
    "texts that nobody knows": many_texts,
    "two hundred subscriptions": many_groups,
    "explain": lambda hc: hc.explain("SELECT MAX(ID) FROM T WHERE X BETWEEN ? AND ? AND S = 's1'", 1, 5),
}


async def test_nobody_waits_for_what_somebody_else_asks(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(MINUTES_S),
        cluster(0, processes=tmp_path, link=PATIENT, query_s=2.0, channel_linger_s=0.0) as made,
        made.client() as hc,
    ):
        await _fill(hc)
        for table in ("R", "Q"):
            await hc.execute(f"CREATE TABLE {table} (ID INTEGER PRIMARY KEY, B REAL)")
            await hc.publish(table, {"ID": np.arange(6000), "B": CHANCE.random(6000)})
        member = made.server
        assert isinstance(member, ProcessMember)
        assert member.process is not None
        process = psutil.Process(member.process.pid)
        before = process.memory_info().rss
        async with bystander(member.listen) as beside:  # not by the proxy, which waits for the attacker's own work
            await asyncio.sleep(1.0)
            quiet_s = await beside.worst(lambda: asyncio.sleep(2.0))
            allowed_s = max(QUIET_S, NOISY * quiet_s)
            worst: dict[str, float] = {}
            for name, attack in ATTACKS.items():
                for _ in range(TRIES):
                    took_s = await beside.worst(partial(_whatever_comes, attack, hc))
                    worst[name] = min(took_s, worst.get(name, took_s))
                    if took_s <= allowed_s:
                        break
            status = await hc.status()
        print(
            f"quiet {quiet_s * 1000:.0f} ms, allowed {allowed_s * 1000:.0f} ms, pause {status['longest_pause_s']:.3f} s"
        )
        for name, took_s in worst.items():
            print(f"{took_s * 1000:6.0f} ms  {name}")
        assert {name: took_s for name, took_s in worst.items() if took_s > allowed_s} == {}
        assert process.memory_info().rss - before < MEMORY_BYTES
        assert status["failed"] == 0


async def test_nobody_waits_for_readers_of_the_change_history(tmp_path: Path) -> None:
    """On a server with a disk: the longest publish beside readers is compared with the longest without them."""
    async with (
        asyncio.timeout(MINUTES_S),
        cluster(0, tmp_path / "data", processes=tmp_path, link=PATIENT) as made,
        made.client() as hc,
    ):
        await _fill(hc)
        async with bystander(made.server.listen) as beside:
            await asyncio.sleep(1.0)
            for _ in range(TRIES):
                quiet_s = await beside.worst(lambda: asyncio.sleep(2.0))
                allowed_s = max(QUIET_S, NOISY * quiet_s)
                took_s = await beside.worst(partial(all_history, hc))
                print(f"quiet {quiet_s * 1000:.0f} ms, allowed {allowed_s * 1000:.0f} ms, took {took_s * 1000:.0f} ms")
                if took_s <= allowed_s:
                    break
        assert took_s <= allowed_s
        history = (await hc.status())["history"]
        assert history["answered"] >= 20
        assert history["failed"] == 0


@pytest.mark.slow
async def test_nobody_waits_for_the_first_query_on_a_million_rows(tmp_path: Path) -> None:
    """Its rows come from the log, by another process: the longest publish beside it is compared with the longest
    without it, and nothing of it is on the server's event loop."""
    async with (
        asyncio.timeout(MINUTES_S),
        cluster(0, tmp_path / "data", processes=tmp_path, link=PATIENT) as made,
        made.client() as hc,
    ):
        await hc.query("SELECT 1")  # so that there is a process
        async with bystander(made.server.listen) as beside:
            for attempt in range(TRIES):
                await _fill(hc, 1_000_000, name := f"M{attempt}")
                quiet_s = await beside.worst(lambda: asyncio.sleep(2.0))
                allowed_s = max(QUIET_S, NOISY * quiet_s)
                sql = f"SELECT count(*), count(DISTINCT S) FROM {name}"
                began = time.monotonic()
                took_s = await beside.worst(partial(asking(sql), hc))
                first_s = time.monotonic() - began
                pause_s = (await hc.status())["recent_pause_s"]
                print(f"quiet {quiet_s:.3f} s, took {took_s:.3f} s, pause {pause_s:.3f} s, the query {first_s:.1f} s")
                if took_s <= allowed_s:
                    break
        assert took_s <= allowed_s
        assert await hc.query(sql) == [(1_000_000, 5000)]


@pytest.mark.parametrize("rows", [250_000, pytest.param(1_020_000, marks=pytest.mark.slow)])
async def test_nobody_waits_for_a_table_that_grows(tmp_path: Path, rows: int) -> None:
    """A publish of 4,096 rows, each with a new text, takes no longer because something grows with them: 2^18 rows and
    2^20 are sizes at which much did. The latter was half a second once."""
    async with (
        asyncio.timeout(MINUTES_S),
        cluster(0, processes=tmp_path, link=PATIENT) as made,
        made.client() as hc,
        bystander(made.server.listen) as beside,
    ):
        for attempt in range(TRIES):
            await _fill(hc, rows, name := f"G{attempt}", texts=2 * rows)
            async with (
                hc.subscribe(f"SELECT MIN(Y) FROM {name} WHERE X BETWEEN ? AND ?", 1, 500, timeout=MINUTES_S),
                hc.subscribe(f"SELECT COUNT(*) FROM {name} WHERE X BETWEEN ? AND ?", 1, 500),
                hc.subscribe(f"SELECT DISTINCT G FROM {name} WHERE X > ?", 1, timeout=MINUTES_S),
                hc.subscribe(f"SELECT ID, Y FROM {name} WHERE X BETWEEN ? AND ?", 1, 2),
            ):
                quiet_s = await beside.worst(lambda: asyncio.sleep(2.0))
                allowed_s = max(GROWING_S, NOISY * quiet_s)
                took_s = await beside.worst(partial(_grow, hc, name, rows, rows + 80_000, texts=2 * rows))
            print(f"quiet {quiet_s * 1000:.0f} ms, allowed {allowed_s * 1000:.0f} ms, took {took_s * 1000:.0f} ms")
            if took_s <= allowed_s:
                break
        assert took_s <= allowed_s
        assert await hc.query(f"SELECT count(*) FROM {name}", timeout=MINUTES_S) == [(rows + 80_000,)]


#: Fifty shapes over one table: each is a channel that every update of it passes.
SHAPES = tuple(
    f"SELECT {what} FROM T WHERE {by} BETWEEN ? AND ?{equal}"
    for what in ("MIN(Y)", "MAX(X)", "COUNT(*)", "SUM(Y)", "DISTINCT G", "MIN(G)", "AVG(X)", "ID, G", "DISTINCT S")
    for by in ("X", "Y", "G")
    for equal in ("", " AND G = 7")
    if not (by == "G" and equal)
)[:50]


async def test_nobody_waits_for_a_large_batch_or_delete_however_many_channels_it_passes(tmp_path: Path) -> None:
    """50,000 rows and some 45 channels were seconds in which nothing else happened; so were as many keys to delete in
    one request. Then each answer is that of SQL."""
    async with (
        asyncio.timeout(MINUTES_S),
        cluster(0, processes=tmp_path, link=PATIENT) as made,
        made.client() as hc,
        made.client() as reader,
        bystander(made.server.listen) as beside,
    ):
        await _fill(hc)
        subs = [await reader.subscribe(sql, 0.3, 0.30001, overflow="latest", timeout=MINUTES_S) for sql in SHAPES]
        await _unharmed(beside, hc, partial(_grow, hc, "T", 0, 50_000, 50_000))
        await reader.sync()
        await _answers_are_those_of_sql(hc, subs)
        gone = 0

        async def delete() -> None:
            nonlocal gone
            gone += 50_000
            receipt = await hc.delete("T", np.arange(gone - 50_000, gone).tolist(), timeout=MINUTES_S)
            assert receipt.deleted == 50_000

        await _unharmed(beside, hc, delete)
        assert await hc.query("SELECT count(*), min(ID) FROM T", timeout=MINUTES_S) == [(ROWS - gone, gone)]
        await reader.sync()
        await _answers_are_those_of_sql(hc, subs)


#: The same over a stream: windows, and filters.
STREAMED = tuple(
    f"SELECT {what} FROM W [ROWS 1000] WHERE {by} BETWEEN ? AND ?{equal}"
    for what in ("MIN(Y)", "MAX(X)", "COUNT(*)", "SUM(Y)", "DISTINCT G", "MIN(G)", "AVG(X)")
    for by in ("X", "Y", "G")
    for equal in ("", " AND G = 7")
    if not (by == "G" and equal)
) + tuple(f"SELECT {what} FROM W WHERE {by} BETWEEN ? AND ?" for what in ("*", "X, S") for by in ("X", "Y", "G"))


async def test_nobody_waits_for_a_large_batch_of_a_stream(tmp_path: Path) -> None:
    """50,000 tuples that 35 channels over a window see, and six filters. Their positions are their numbers, though
    others publish meanwhile."""
    async with (
        asyncio.timeout(MINUTES_S),
        cluster(0, processes=tmp_path, link=PATIENT) as made,
        made.client() as hc,
        made.client() as reader,
        bystander(made.server.listen) as beside,
    ):
        await hc.execute("CREATE STREAM W (ID INTEGER, X REAL, Y REAL, S TEXT, G INTEGER)")
        subs = [await reader.subscribe(sql, 0.3, 0.30001, overflow="latest", timeout=MINUTES_S) for sql in STREAMED]
        await _unharmed(beside, hc, partial(_grow, hc, "W", 0, 50_000, 50_000))
        await reader.sync()
        rows = await hc.query("SELECT POSITION, ID, X, Y, G FROM W ORDER BY POSITION", timeout=MINUTES_S)
        assert len(rows) % 50_000 == 0
        assert all(after[0] == before[0] + 1 or before[1] == 49_999 for before, after in pairwise(rows))
        window = [row for row in rows[-1000:] if 0.3 <= row[3] <= 0.30001]
        for sub, sql in zip(subs, STREAMED, strict=True):
            if sql == "SELECT COUNT(*) FROM W [ROWS 1000] WHERE Y BETWEEN ? AND ?":
                assert sub.answer == len(window)


async def test_a_later_change_to_another_table_waits_for_the_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of one publisher is sent back (OutOfTurn) because something large of it takes a while."""
    refused: list[HullcastError] = []
    judge = Publishers.judge

    def noting(self: Publishers, *change: Any) -> Any:
        try:
            return judge(self, *change)
        except HullcastError as error:
            refused.append(error)
            raise

    monkeypatch.setattr(Publishers, "judge", noting)
    async with asyncio.timeout(MINUTES_S), cluster(0, link=PATIENT) as made, made.client() as hc:
        await _fill(hc, 10)
        await hc.execute("CREATE TABLE U (K INTEGER PRIMARY KEY)")
        large = asyncio.create_task(_grow(hc, "T", 0, 50_000, 50_000))
        await asyncio.sleep(0)
        later = [
            hc.publish("U", [{"K": 1}]),
            hc.delete("U", 1),
            hc.publish("U", [{"K": 2}]),
            hc.execute("DROP TABLE T"),
        ]
        await asyncio.gather(large, *later)
        assert await hc.query("SELECT K FROM U") == [(2,)]
    assert refused == []


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["fifty channels", "a checkpoint", "a window"])
async def test_nobody_waits_for_what_a_table_of_a_million_rows_takes(tmp_path: Path, attack: str) -> None:
    """To open fifty channels over it, to capture it for a checkpoint, to load a window of a million tuples."""
    settings: Any = {"checkpoint_updates": 1_050_000} if attack == "a checkpoint" else {}
    async with (
        asyncio.timeout(2 * MINUTES_S),
        cluster(0, tmp_path / "data", processes=tmp_path, link=PATIENT, **settings) as made,
        made.client() as hc,
        bystander(made.server.listen) as beside,
    ):
        if attack == "a window":
            await hc.execute("CREATE STREAM T (ID INTEGER, X REAL, Y REAL, S TEXT, G INTEGER)")
            await _grow(hc, "T", 0, 1_000_000, 50_000)
        else:
            await _fill(hc, 1_000_000)

        async def fifty() -> None:
            await asyncio.gather(*(opening(sql, 0.3, 0.30001)(hc) for sql in SHAPES))

        async def checkpoint() -> None:
            made_before = (await hc.status())["log"]["checkpoints"]
            await _grow(hc, "T", 0, 50_100)
            while (await hc.status())["log"]["checkpoints"] == made_before:  # noqa: ASYNC110  (it is in another process)
                await asyncio.sleep(0.1)

        window = opening("SELECT MIN(Y) FROM T [ROWS 900000] WHERE X BETWEEN ? AND ?", 1, 500)
        await _unharmed(
            beside, hc, {"fifty channels": fifty, "a checkpoint": checkpoint}.get(attack, partial(window, hc))
        )


async def _unharmed(beside: Bystander, hc: Client, attack: Callable[[], Awaitable[object]]) -> None:
    """Nobody waits long for an attack."""
    for _ in range(TRIES):
        quiet_s = await beside.worst(lambda: asyncio.sleep(2.0))
        allowed_s = max(GROWING_S, NOISY * quiet_s)
        took_s = await beside.worst(attack)
        pause_s = (await hc.status())["recent_pause_s"]
        print(f"quiet {quiet_s * 1000:.0f} ms, took {took_s * 1000:.0f} ms, pause {pause_s * 1000:.0f} ms")
        if took_s <= allowed_s:
            break
    assert took_s <= allowed_s


async def _answers_are_those_of_sql(hc: Client, subs: Sequence[Any]) -> None:
    for sub, sql in zip(subs, SHAPES, strict=True):
        rows = await hc.query(sql, 0.3, 0.30001, timeout=MINUTES_S)
        if isinstance(sub.answer, Set):
            assert sub.answer == {row[0] for row in rows}, sql
        elif isinstance(sub.answer, list):
            assert sorted(map(tuple, sub.answer)) == sorted(map(tuple, rows)), sql
        else:
            assert sub.answer == pytest.approx(rows[0][0]), sql


async def _fill(hc: Client, rows_in_all: int = ROWS, name: str = "T", texts: int = 5000) -> None:
    await hc.execute(f"CREATE TABLE {name} (ID INTEGER PRIMARY KEY, X REAL, Y REAL, S TEXT, G INTEGER)")
    await _grow(hc, name, 0, rows_in_all, 50_000, texts)


async def _grow(hc: Client, name: str, first: int, rows_in_all: int, at_once: int = 4096, texts: int = 5000) -> None:
    for start in range(first, rows_in_all, at_once):
        n = min(at_once, rows_in_all - start)
        rows = {"ID": np.arange(start, start + n), "X": CHANCE.random(n).round(5) * 1000, "Y": CHANCE.random(n)}
        words = [f"s{i % texts}" for i in range(start, start + n)]
        await hc.publish(name, {**rows, "S": words, "G": CHANCE.integers(0, 50, n)})


async def _whatever_comes(attack: Attack, hc: Client) -> None:
    try:
        await attack(hc)
    except HullcastError as error:
        print(f"refused: {str(error)[:100]}")


@pytest.mark.parametrize("pause_s", [0.0, 0.4])
async def test_a_pause_of_the_loop_is_noticed(pause_s: float) -> None:
    pauses = Pauses()
    running = asyncio.create_task(pauses.run())
    await asyncio.sleep(2 * LOOK_S)
    time.sleep(pause_s)  # noqa: ASYNC251  (that is the point)
    await asyncio.sleep(2 * LOOK_S)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (pauses.longest_s >= 0.39 - LOOK_S) == bool(pause_s)
    assert pauses.recent_s == pauses.longest_s
