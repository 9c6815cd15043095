"""Derived streams with real processes: whatever is killed, their tuples are those of a plain evaluation of the log."""

from __future__ import annotations

import asyncio
import inspect
import os
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest
import zmq

from hullcast import (
    Client,
    HistoryGone,
    HullcastError,
    Overloaded,
    Resync,
    SqlError,
    StreamTuple,
    TableInUse,
    UsageError,
)
from hullcast.broker.server import streams
from hullcast.broker.server.pipeline import Commits
from hullcast.clients.sdk.connecting import configure
from hullcast.clients.sdk.subscription import Subscription
from tests.support.cluster import Cluster, cluster, server_of, wait_for
from tests.support.exposition import samples
from tests.support.processes import ANYWHERE, started
from tests.support.stream_oracle import moment

PATIENCE_S = 300.0
ROWS, RANGE_S = 20, 5
CREATES = (
    "CREATE STREAM R (TS TIMESTAMP, K INTEGER, A REAL)",
    "CREATE STREAM S (TS TIMESTAMP, K INTEGER, B REAL)",
    "CREATE TABLE T (K INTEGER PRIMARY KEY, V REAL)",
)
ON = f"FROM R [ROWS {ROWS}] r JOIN S [RANGE '{RANGE_S}s'] s ON r.K = s.K"
LOOKED_UP = "FROM R r JOIN T t ON r.K = t.K"
KEYS = 4

Logged = tuple[int, int, int, float]  # position, time, key, value


class Written:
    """What was acknowledged: the tuples of both streams, and the rows of the table."""

    def __init__(self) -> None:
        self.streams: dict[str, list[Logged]] = {"R": [], "S": []}
        self.rows: list[tuple[int, int, float]] = []
        self.now = 0

    async def publish(self, hc: Client, rng: Random) -> None:
        name = rng.choice("RSSRT")
        if name == "T":
            key, value = rng.randrange(KEYS), float(rng.randrange(100))
            receipt = await hc.publish("T", {"K": key, "V": value})
            self.rows.append((receipt.first_seq, key, value))
            return
        value_name, some = "A" if name == "R" else "B", []
        for _ in range(rng.choice([1, 1, 3, 20])):
            self.now += rng.choice([0, 0, 1])
            late = max(0, self.now - rng.choice([0, 0, 0, 2]))
            some.append((late, rng.randrange(KEYS), float(rng.randrange(100))))
        receipt = await hc.publish(name, [{"TS": moment(at), "K": key, value_name: value} for at, key, value in some])
        self.streams[name] += [(receipt.first_seq + i, *one) for i, one in enumerate(some)]

    def joined(self) -> list[tuple[int, float, float]]:
        """(AT, A, B) of the window join, as it is defined: each tuple, in the order of (effective time, position), with
        the window of the other stream."""
        order = []
        for name, came in self.streams.items():
            reached = -1
            for position, happened, key, value in came:
                reached = max(reached, happened)
                order.append((reached, position, name, key, value))
        found, consumed = [], {"R": [], "S": []}  # type: ignore[var-annotated]
        for at, position, name, key, value in sorted(order):
            if name == "R":
                window = [one for one in consumed["S"] if one[0] >= at - RANGE_S]
                found += [(position, value, other) for _, k, other in window if k == key]
            else:
                found += [(position, other, value) for _, k, other in consumed["R"][-ROWS:] if k == key]
            consumed[name].append((at, key, value))
        return found

    def looked_up(self) -> list[tuple[int, float, float]]:
        """(AT, A, V): each tuple of R with the row of T as of its own position."""
        found = []
        for position, _, key, value in self.streams["R"]:
            known = [v for seq, k, v in self.rows if k == key and seq < position]
            found += [(position, value, known[-1])] if known else []
        return found


def streams_processes() -> list[int]:
    """The streams processes of servers that this test started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any("hullcast.broker.streams.process" in word for word in process.cmdline()):
                found.append(process.pid)
    return found


async def trouble(made: Cluster, rng: Random) -> None:
    """Kill the streams process and the server, in turns."""
    for _ in range(3):
        await asyncio.sleep(0.3 + rng.random())
        await wait_for(streams_processes, "a streams process")
        for pid in streams_processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.5 + rng.random() * 2)
        await made.kill("server")
        await made.restart_server()


def heard(subscription: Subscription) -> list[tuple[Any, ...]]:
    found = []
    while (event := subscription.take_nowait()) is not None:
        assert isinstance(event, StreamTuple), event
        found.append(tuple(event.row))
    return found


async def until(hc: Client, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What the status says of operators, as soon as it meets a condition."""
    deadline = time.monotonic() + 120.0
    while True:
        found: dict[str, Any] = (await hc.status())["operators"]
        if condition(found):
            return found
        assert time.monotonic() < deadline, f"waited in vain for {inspect.getsource(condition).strip()}: {found}"
        await asyncio.sleep(0.1)


async def complete(hc: Client, stream: str, count: int) -> list[tuple[Any, ...]]:
    """The tuples of a derived stream, as soon as there are so many, or it seems that no more come."""
    deadline, before = time.monotonic() + 60.0, -1
    while True:
        rows = [tuple(row) for row in await hc.query(f"SELECT * FROM {stream} ORDER BY POSITION")]
        if len(rows) >= count:
            return rows
        if len(rows) > before:
            deadline, before = time.monotonic() + 60.0, len(rows)
        if time.monotonic() > deadline:
            pytest.fail(f"{stream} has {len(rows)} of {count} tuples: {(await hc.status())['operators']}")
        await asyncio.sleep(0.2)


#: So many checkpoints that the log is cut behind all that happens.
OFTEN: dict[str, Any] = {"checkpoint_updates": 150, "segment_bytes": 1 << 16}


@pytest.mark.parametrize(
    ("seed", "settings"),
    [
        pytest.param(1, {}, id="one log", marks=pytest.mark.slow),
        pytest.param(2, OFTEN, id="cut log"),
        *(pytest.param(seed, OFTEN if seed % 2 else {}, marks=pytest.mark.slow) for seed in range(3, 11)),
    ],
)
async def test_a_derived_stream_is_the_join_of_the_log_whatever_is_killed(
    seed: int, settings: dict[str, Any], tmp_path: Path
) -> None:
    rng, written = Random(seed), Written()
    data, logs = tmp_path / "data", tmp_path / "logs"
    logs.mkdir()
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(2, data, processes=logs, **settings) as made,
        made.client() as publisher,
        made.client("g1") as hc,
    ):
        for sql in (
            *CREATES,
            f"CREATE STREAM J AS SELECT r.A, s.B {ON}",
            f"CREATE STREAM L AS SELECT A, V {LOOKED_UP}",
        ):
            await publisher.execute(sql)
        joined = await hc.subscribe("SELECT AT, A, B FROM J", buffer=1_000_000)
        hidden = await hc.subscribe(f"SELECT r.A, s.B {ON} WHERE r.A BETWEEN ? AND ?", 10, 60, buffer=1_000_000)
        looked_up = await hc.subscribe("SELECT AT, A, V FROM L WHERE A < ?", 50, buffer=1_000_000)
        stop = asyncio.Event()

        async def publish() -> None:
            while not stop.is_set():
                await written.publish(publisher, rng)
                await asyncio.sleep(rng.random() * 0.02)

        publishing = asyncio.create_task(publish())
        await trouble(made, rng)
        stop.set()
        await publishing
        for name in "RS":
            await publisher.progress(name, moment(written.now + 100))
        expected, found_up = written.joined(), written.looked_up()
        assert len(expected) > 100
        rows = await complete(publisher, "J", len(expected))
        assert [(at, a, b) for a, b, at, _ in rows] == expected
        rows = await complete(publisher, "L", len(found_up))
        assert [(at, a, v) for a, v, at, _ in rows] == found_up
        wanted = sum(10 <= a <= 60 for _, a, _ in expected)
        await wait_for(lambda: joined.pending >= len(expected), "all results of J")
        await wait_for(lambda: hidden.pending >= wanted, "all results of the join")
        await hc.sync()
        assert heard(joined) == expected
        assert heard(hidden) == [(a, b) for _, a, b in expected if 10 <= a <= 60]
        assert heard(looked_up) == [one for one in found_up if one[1] < 50]
        status = (await publisher.status())["operators"]
        assert status["derived"]["J"]["gaps"] == status["derived"]["L"]["gaps"] == 0
        assert len(status["joins"]) == 1


async def test_streams_behind_subscriptions_come_and_go_with_them(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(1, channel_linger_s=0.3) as made,
        made.client() as hc,
        made.client() as other,
    ):
        for sql in CREATES:
            await hc.execute(sql)
        query = f"SELECT r.A, s.B {ON} WHERE r.A > ?"
        async with hc.subscribe(query, 1), other.subscribe(query, 2):
            assert "join" not in str(await hc.tables())
            assert set(await hc.tables()) == {"R", "S", "T"}
            with pytest.raises(TableInUse, match="in use"):
                await hc.execute("DROP STREAM R")
            assert len((await hc.status())["channels"]) == 1
        with pytest.raises(SqlError, match="cannot be a condition"):
            await hc.subscribe("SELECT * FROM T", when=f"SELECT r.A, s.B {ON}")
        await hc.execute("DROP STREAM S")  # nobody reads the join any more
        await hc.execute("DROP STREAM R")


async def test_what_users_may_not_do_with_derived_streams_is_refused_with_the_remedy(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0) as made, made.client() as hc:
        for sql in CREATES:
            await hc.execute(sql)
        await hc.execute(f"CREATE STREAM J AS SELECT r.A, s.B {ON}")
        await hc.execute(f"CREATE STREAM IF NOT EXISTS J AS SELECT r.A, s.B {ON}")
        with pytest.raises(UsageError, match="publish to its sources"):
            await hc.publish("J", {"A": 1.0, "B": 2.0, "AT": 3})
        with pytest.raises(SqlError, match="CREATE STREAM name AS SELECT"):
            await hc.execute("CREATE STREAM X (A REAL, AT INTEGER NOT NULL) WITH (derived_from = 'SELECT A FROM R')")
        with pytest.raises(SqlError, match="choose another name"):
            await hc.execute('CREATE STREAM "(join 1)" (A REAL)')
        with pytest.raises(TableInUse, match="stream J"):
            await hc.execute("DROP STREAM R")
        await hc.execute("DROP STREAM J")
        await hc.execute("DROP STREAM R")


async def test_a_join_that_waits_for_a_silent_stream_stops_its_publisher_until_there_is_progress(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0, stream_queue_bytes=200_000) as made, made.client() as hc:
        for sql in CREATES:
            await hc.execute(sql)
        await hc.execute(f"CREATE STREAM J AS SELECT r.A, s.B {ON}")
        await hc.publish("S", {"TS": moment(0), "K": 1, "B": 1.0})

        async def flood() -> None:
            async with asyncio.timeout(5):
                await hc.publish("R", [{"TS": moment(10 + i // 100), "K": 2, "A": 0.5} for i in range(1000)])

        while (await hc.status())["operators"]["full"] != ["R"]:  # a busy machine may take 5 s for something else
            with suppress(TimeoutError, Overloaded):
                await flood()
        with pytest.raises((TimeoutError, Overloaded)):
            await flood()
        operators = (await hc.status())["operators"]
        assert operators["full"] == ["R"]
        assert operators["refused"] > 0
        await hc.publish("S", {"TS": moment(1), "K": 1, "B": 1.0})  # of the other stream more is welcome
        await hc.progress("S", moment(1000))
        await until(hc, lambda operators: not operators["full"])
        await hc.publish("R", {"TS": moment(1001), "K": 2, "A": 0.5})


async def test_memory_bounds_what_a_join_keeps_and_says_what_is_missed(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0) as made, made.client() as hc:
        for sql in CREATES:
            await hc.execute(sql)
        select = "SELECT r.A, s.B FROM R [ROWS 1000] r JOIN S [ROWS 1000] s ON r.K = s.K"
        await hc.execute(f"CREATE STREAM W AS {select}")
        await hc.execute(f"CREATE STREAM M AS {select} WITH (memory = 100)")
        rng = Random(1)
        for _ in range(20):
            for name, value in (("R", "A"), ("S", "B")):
                rows = [{"TS": moment(0), "K": rng.randrange(400), value: float(rng.randrange(9))} for _ in range(100)]
                await hc.publish(name, rows)
        found = await until(hc, lambda operators: (operators["derived"]["M"]["memory"] or {}).get("arrived") == 4000)
        memory = found["derived"]["M"]["memory"]
        whole = await hc.query("SELECT COUNT(*) AS N FROM W")
        part = await hc.query("SELECT COUNT(*) AS N FROM M")
        assert memory["kept"] == 100
        assert 0 < part[0].N < whole[0].N
        missed = 1 - part[0].N / whole[0].N
        assert memory["missed_share"] == pytest.approx(missed, abs=0.1)
        facts = (await hc.explain("SELECT A FROM M"))["derived"]["M"]
        assert facts["memory"]["missed_share"] == memory["missed_share"]


async def test_in_memory_a_join_with_a_table_misses_none_of_the_tuples_right_behind_its_statement(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0) as made, made.client() as hc:
        for sql in CREATES:
            await hc.execute(sql)
        await hc.publish("T", [{"K": key, "V": float(key)} for key in range(KEYS)])
        await hc.execute(f"CREATE STREAM L AS SELECT A, V {LOOKED_UP}")
        for number in range(20):
            await hc.publish("R", {"TS": moment(number), "K": number % KEYS, "A": float(number)})
        await hc.publish("T", {"K": 0, "V": 100.0})
        await hc.publish("R", {"TS": moment(20), "K": 0, "A": 20.0})
        rows = await complete(hc, "L", 21)
        assert [(a, v) for a, v, _, _ in rows] == [*((float(i), float(i % KEYS)) for i in range(20)), (20.0, 100.0)]
        assert (await hc.status())["operators"]["derived"]["L"]["gaps"] == 0


async def test_a_join_that_failed_is_begun_again_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "AGAIN_S", 0.1)
    async with asyncio.timeout(PATIENCE_S), cluster(0, tmp_path / "data") as made, made.client() as hc:
        for sql in CREATES:
            await hc.execute(sql)
        await hc.execute(f"CREATE STREAM L AS SELECT A, V {LOOKED_UP}")
        await hc.execute(f"CREATE STREAM J AS SELECT r.A, s.B {ON}")
        await hc.publish("T", {"K": 1, "V": 5.0})
        server = server_of(made)
        await until(hc, lambda operators: operators["derived"]["L"]["opened"])
        process = server.streams
        (join,) = process._joins.reading("T")
        process._failed(join, HistoryGone("T", 1, 2, "test"))
        assert "cannot be read" in (await hc.status())["operators"]["derived"]["L"]["failed"]
        found = await until(hc, lambda operators: operators["derived"]["L"]["gaps"] == 1)
        assert found["derived"]["J"]["gaps"] == 0
        await until(hc, lambda operators: operators["derived"]["L"]["opened"])
        await hc.publish("R", {"TS": moment(1), "K": 1, "A": 2.0})
        assert [row[:2] for row in await complete(hc, "L", 1)] == [(2.0, 5.0)]
        assert samples(server, "hullcast_stream_gaps") == {("L",): 1, ("J",): 0}
        assert samples(server, "hullcast_stream_results") == {("L",): 1, ("J",): 0}


async def test_results_of_a_stream_that_is_being_dropped_go_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process hears of the drop when it is on disk; until then results may come."""
    async with asyncio.timeout(PATIENCE_S), cluster(0) as made, made.client() as hc:
        for sql in (*CREATES, f"CREATE STREAM L AS SELECT A, V {LOOKED_UP}"):
            await hc.execute(sql)
        await hc.publish("T", {"K": 1, "V": 5.0})
        await until(hc, lambda operators: operators["derived"]["L"]["opened"])
        server = server_of(made)
        process = server.streams
        monkeypatch.setattr(Commits, "busy", True)
        await hc.publish("R", {"TS": moment(1), "K": 1, "A": 2.0})
        await wait_for(lambda: any(came.made for came in process._came), "a result")
        server.changing.execute_own("DROP STREAM L")
        while process._came:
            process._take(process._came.popleft())
        assert await hc.query("SELECT A FROM R") == [(2.0,)]
        assert "L" not in (await hc.status())["operators"]["derived"]


async def test_explain_status_and_metrics_tell_how_a_join_is_computed_what_waits_and_what_it_misses(
    tmp_path: Path,
) -> None:
    query = f"SELECT r.A, s.B {ON} WHERE r.A > ? WITH (memory = 8)"
    async with asyncio.timeout(PATIENCE_S), cluster(1, tmp_path / "data") as made, made.client() as hc:
        for sql in CREATES:
            await hc.execute(sql)
        (planned,) = (await hc.explain(query, 1))["derived"].values()
        assert (planned["made"], planned["memory_limit"], planned["memory"]) == (False, 8, None)
        assert [(path["stream"], path["chart"]) for path in planned["paths"]] == [("R", None), ("S", None)]
        names = [operator["name"] for operator in planned["paths"][0]["operators"]]
        assert names == ["projection", "window join"]
        assert not (await hc.status())["operators"]["joins"]  # nothing was made for that
        async with hc.subscribe(query, 1) as sub, hc.subscribe("SELECT A FROM R") as plain:
            assert await plain.missed_share() == 0.0
            for second in range(10):
                some = [{"TS": moment(second), "K": key % KEYS} for key in range(100)]
                await hc.publish("R", [one | {"A": 5.0} for one in some])
                await hc.publish("S", [one | {"B": 6.0} for one in some])

            def measured(operators: dict[str, Any]) -> bool:
                (one,) = operators["joins"]
                return bool((one["memory"] or {}).get("arrived", 0) >= 1900)

            (join,) = (await until(hc, measured))["joins"]
            assert join["source"] == (
                "SELECT R.A, S.B FROM R [ROWS 20] JOIN S [RANGE '5s'] ON R.K = S.K WITH (memory = 8)"
            )
            assert join["results"] > 0
            share = await sub.missed_share()
            assert 0.5 < share < 1
            (known,) = (await hc.explain(query, 1))["derived"].values()
            assert (known["made"], known["opened"]) == (True, True)
            (path, _) = known["paths"]
            assert [operator["name"] for operator in path["operators"]] == names
            assert path["operators"][0]["tuples"] == 1000
            chart = path["chart"]
            assert (chart["envelope"][0], chart["envelope"][-1]) == (0, 2)
            assert len(chart["slopes"]) == 2
            (channel, _) = (await hc.status())["channels"]
            assert channel["name"].startswith(
                "SELECT R.A, S.B FROM R [ROWS 20] JOIN S [RANGE '5s'] ON R.K = S.K OVER R.A"
            )
            await hc.publish("R", {"TS": moment(60), "K": 1, "A": 5.0})
            (waits,) = (await until(hc, lambda operators: operators["joins"][0]["waiting"] > 0))["joins"]
            assert (waits["waits_for"], waits["waiting"]) == ("S", 1)
            assert waits["behind_s"] > 50
            server = server_of(made)
            name = join["name"]
            assert samples(server, "hullcast_stream_waiting") == {(name,): 1}
            assert samples(server, "hullcast_stream_behind_seconds")[name,] > 50
            assert samples(server, "hullcast_stream_missed_share")[name,] == pytest.approx(share, abs=0.1)
            assert samples(server, "hullcast_stream_queue_bytes")[()] > 0
            assert samples(server, "hullcast_stream_policy") == {("bounded-chain",): 1}
            assert samples(server, "hullcast_stream_processes") == {(): 1}
            await hc.progress("S", moment(60))
            await until(hc, lambda operators: operators["joins"][0]["waiting"] == 0)


async def test_a_join_that_explodes_fails_alone_and_says_why(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0) as made, made.client() as hc:
        for sql in CREATES:
            await hc.execute(sql)
        await hc.execute("CREATE STREAM X AS SELECT r.A, s.B FROM R [ROWS 100000] r JOIN S [ROWS 9] s ON r.K = s.K")
        await hc.execute(f"CREATE STREAM L AS SELECT A, V {LOOKED_UP}")
        await hc.publish("T", {"K": 1, "V": 5.0})
        for _ in range(5):
            await hc.publish("R", [{"TS": moment(0), "K": 1, "A": 1.0}] * 4000)
        await hc.publish("S", {"TS": moment(0), "K": 1, "B": 1.0})
        await hc.progress("R", moment(1))
        found = await until(hc, lambda operators: operators["derived"]["X"]["failed"] is not None)
        assert "results of one tuple" in found["derived"]["X"]["failed"]
        await hc.publish("R", {"TS": moment(2), "K": 1, "A": 2.0})
        assert len(await complete(hc, "L", 20_001)) == 20_001
        assert found["processes"] == (await hc.status())["operators"]["processes"] == 1


async def test_what_came_while_there_was_no_process_is_joined_though_nothing_comes_later(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(0, tmp_path / "data") as made,
        made.client() as hc,
    ):
        for sql in CREATES:
            await hc.execute(sql)
        await hc.execute(f"CREATE STREAM L AS SELECT A, V {LOOKED_UP}")
        await hc.publish("T", {"K": 1, "V": 5.0})
        await hc.publish("R", {"TS": moment(0), "K": 1, "A": 1.0})
        await complete(hc, "L", 1)
        await until(hc, lambda operators: operators["behind"] == 0)
        (pid,) = streams_processes()
        os.kill(pid, signal.SIGKILL)
        await hc.publish("R", {"TS": moment(0), "K": 1, "A": 2.0})
        await until(hc, lambda operators: operators["processes"] == 2)
        assert [row[0] for row in await complete(hc, "L", 2)] == [1.0, 2.0]


async def test_what_a_join_has_not_consumed_is_retained_for_it(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(0, tmp_path / "data", **OFTEN) as made,
        made.client() as hc,
    ):
        for sql in CREATES[:2]:
            await hc.execute(f"{sql} WITH (retain_rows = 20)")
        await hc.execute("CREATE STREAM J AS SELECT A, B FROM R [ROWS 2] r JOIN S [ROWS 2] s ON r.K = s.K")
        await hc.publish("R", {"TS": moment(0), "K": 1, "A": -1.0})
        await hc.publish("S", {"TS": moment(0), "K": 1, "B": -1.0})
        await complete(hc, "J", 1)
        (pid,) = streams_processes()
        os.kill(pid, signal.SIGKILL)
        for some in range(10):
            for name, column in (("R", "A"), ("S", "B")):
                rows = [{"TS": moment(some), "K": 1, column: float(400 * some + i)} for i in range(400)]
                await hc.publish(name, rows)
        await hc.progress("R", moment(100))
        await hc.progress("S", moment(100))
        expected, windows = [], ([], [])  # type: ignore[var-annotated]
        for some in range(-1, 10):
            for mine in (0, 1):
                for value in [-1.0] if some < 0 else [float(400 * some + i) for i in range(400)]:
                    pairs = [(value, other) if mine == 0 else (other, value) for other in windows[1 - mine][-2:]]
                    expected += pairs
                    windows[mine].append(value)
        assert [(a, b) for a, b, _, _ in await complete(hc, "J", len(expected))] == expected
        await hc.publish("R", [{"TS": moment(200), "K": 2, "A": 0.0}] * 1000)
        await hc.publish("S", [{"TS": moment(200), "K": 2, "B": 0.0}] * 1000)
        await hc.progress("R", moment(300))
        await hc.progress("S", moment(300))

        await until(hc, lambda operators: operators["behind"] == 0)
        await hc.publish("R", {"TS": moment(300), "K": 3, "A": 0.0})
        assert (await hc.query("SELECT COUNT(*) AS N FROM R"))[0].N < 2000, "consumed, so it need not stay"
        assert (await hc.status())["operators"]["derived"]["J"]["gaps"] == 0


async def test_when_the_disk_was_full_a_join_goes_on_where_it_was(tmp_path: Path) -> None:
    """The server stops, since its log cannot be written; in the middle of results, as it may be."""
    words = ("server", "--data", str(tmp_path / "data"), "--listen", ANYWHERE)
    context: zmq.Context[Any] = zmq.Context()
    at = 0

    async def publish(hc: Client, rows: int) -> None:
        nonlocal at
        at += 1
        for name, column in (("R", "A"), ("S", "B")):
            some = [{"TS": moment(at), "K": i % 5, column: float(1000 * at + i)} for i in range(rows)]
            await hc.publish(name, some, timeout=2)

    async with (
        asyncio.timeout(PATIENCE_S),
        started(*words) as server,
        Client(configure([server.endpoint], timeout=60), context) as hc,
    ):
        for sql in CREATES[:2]:
            await hc.execute(sql)
        await hc.execute("CREATE STREAM J AS SELECT A, B FROM R [ROWS 10000] r JOIN S [ROWS 10000] s ON r.K = s.K")
        await publish(hc, 20)
        await publish(hc, 20)
        await complete(hc, "J", 20 * 4)
        (segment,) = (tmp_path / "data" / "log").glob("*.log")
        room = segment.stat().st_size + 20_000
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (room, room))
        with suppress(HullcastError):
            while True:
                await publish(hc, 5)
        assert await server.wait() == 2
    async with (
        asyncio.timeout(PATIENCE_S),
        started(*words) as server,
        Client(configure([server.endpoint], timeout=60), context) as hc,
    ):
        await publish(hc, 5)
        for name in "RS":
            await hc.progress(name, moment(at + 1))
        left, right = [[tuple(row) for row in await hc.query(f"SELECT * FROM {name}")] for name in "RS"]
        wanted = sorted((a, b, max(p, q)) for _, j, a, p in left for _, k, b, q in right if j == k)
        found = [(a, b, at) for a, b, at, _ in await complete(hc, "J", len(wanted))]
        assert sorted(found) == wanted
        assert (await hc.status())["operators"]["derived"]["J"]["gaps"] == 0
    context.destroy(linger=0)


async def test_a_join_of_a_subscription_that_waits_for_a_silent_stream_gives_way_to_publishers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "PATIENCE_S", 0.5)  # not less: news of what waits comes four times a second
    options: dict[str, Any] = {"stream_queue_bytes": 500_000}
    async with asyncio.timeout(PATIENCE_S), cluster(0, **options) as made, made.client() as hc, made.client() as reader:
        for sql in CREATES:
            await hc.execute(sql)
        await hc.publish("T", {"K": 2, "V": 1.0})
        await hc.publish("S", {"TS": moment(0), "K": 1, "B": 1.0})
        looked_up = await reader.subscribe("SELECT A, V FROM R JOIN T ON R.K = T.K")
        joined = await reader.subscribe(f"SELECT r.A, s.B {ON}")
        await until(hc, lambda operators: [join["opened"] for join in operators["joins"]] == [True, True])
        batches, gave_way = 0, asyncio.create_task(anext(joined))
        while not gave_way.done():
            await hc.publish("R", [{"TS": moment(10 + batches), "K": 2, "A": float(batches)} for _ in range(1000)])
            found = [await anext(looked_up) for _ in range(1000)]  # nothing is missing there
            assert [one.row.A for one in found if isinstance(one, StreamTuple)] == [float(batches)] * 1000
            batches += 1
        assert isinstance(await gave_way, Resync)
        failed = [join["failed"] for join in (await hc.status())["operators"]["joins"]]
        assert failed[0] is None
        assert "too many of them in this one: the limit of 500,000 is reached" in failed[1]
