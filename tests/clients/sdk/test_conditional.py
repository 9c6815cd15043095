"""Conditional subscriptions of a client: what comes when, what it is worth, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hullcast
from hullcast import testing
from hullcast.broker.server import evaluating
from hullcast.broker.server.service import Server
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.subscription import Subscription
from hullcast.network.answers.events import AnyEvent
from hullcast.network.wire import packing
from hullcast.network.wire.limits import WireLimits
from tests.support.cluster import PATIENCE_S, PATIENT, Cluster, cluster, server_of, wait_for

CREATE = (
    "CREATE TABLE FUEL (ID INTEGER PRIMARY KEY, X REAL, PRICE REAL)",
    "CREATE TABLE STATION (ID INTEGER PRIMARY KEY, NAME TEXT, X REAL)",
)
QUERY = "SELECT ID, PRICE FROM FUEL ORDER BY ID"
LOWEST = "SELECT MIN(PRICE) FROM FUEL WHERE X BETWEEN ? AND ?"


@asynccontextmanager
async def live(nodes: int = 0, **settings: Any) -> AsyncIterator[tuple[Cluster, Server, Client]]:
    """A cluster with both tables, and a client."""
    async with asyncio.timeout(PATIENCE_S), cluster(nodes, link=PATIENT, **settings) as made, made.client() as hc:
        server = server_of(made)
        for sql in CREATE:
            await hc.execute(sql)
        yield made, server, hc


async def put(hc: Client, number: int, x: float, price: float) -> int:
    return (await hc.publish("FUEL", [{"ID": number, "X": x, "PRICE": price}])).seq


async def next_event(subscription: Subscription[AnyEvent]) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        return await anext(subscription)


def sent(server: Server) -> Any:
    return server.children.status()["messages"]


def runs(server: Server) -> int:
    return server.conditionals.counts.runs


async def test_rows_come_when_the_conditions_answer_changes_and_not_otherwise() -> None:
    async with live(1) as (_, server, hc):
        await put(hc, 1, 2, 5.0)
        async with hc.subscribe(QUERY, when=LOWEST, when_parameters=(1, 5)) as sub:
            assert sub.answer == [(1, 5.0)]
            assert sub.columns == ("ID", "PRICE")
            assert sub.answer[0].PRICE == 5.0
            assert sub.answer.worth is not None
            assert (sub.answer.worth.seq, sub.answer.fired) == (1, None)
            await put(hc, 2, 9, 1.0)  # out of its range
            await put(hc, 3, 3, 7.0)  # not the lowest
            assert await hc.sync() == 3
            assert runs(server) == 1
            lower = await put(hc, 4, 4, 4.0)
            event = await next_event(sub)
            assert isinstance(event, hullcast.Change)
            assert event.answer == [(1, 5.0), (2, 1.0), (3, 7.0), (4, 4.0)]
            assert (event.answer.fired, event.answer.worth.seq, event.seq) == (lower, lower, lower + 1)
            assert abs((datetime.now(UTC) - event.answer.at).total_seconds()) < PATIENCE_S
            assert runs(server) == 2


CONDITIONS: dict[str, tuple[Any, ...]] = {
    "SELECT MIN(PRICE) FROM FUEL": (),
    "SELECT COUNT(*) FROM FUEL WHERE PRICE < ?": (100,),
    "SELECT AVG(PRICE) FROM FUEL": (),
    "SELECT DISTINCT PRICE FROM FUEL": (),
    "SELECT ID, PRICE FROM FUEL WHERE X > ?": (0,),
    "SELECT f.ID, s.NAME FROM FUEL f JOIN STATION s ON f.ID = s.ID WHERE f.PRICE < ?": (100,),
    "SELECT f.ID, s.ID FROM FUEL f JOIN STATION s ON s.X - f.X BETWEEN ? AND ?": (-1, 1),
}


async def test_any_subscription_may_be_a_condition() -> None:
    async with live() as (_, server, hc):
        await hc.publish("STATION", [{"ID": i, "NAME": f"s{i}", "X": float(i)} for i in range(4)])
        subs = [
            await hc.subscribe(QUERY, when=when, when_parameters=parameters) for when, parameters in CONDITIONS.items()
        ]
        for number, price in ((1, 9.0), (2, 8.0), (3, 7.0)):
            seq = await put(hc, number, number, price)
            for sub in subs:
                event = await next_event(sub)
                assert (event.answer.fired, len(event.answer)) == (seq, number), sub.sql
        for sub in subs:
            assert sub.pending == 0
        assert runs(server) == 4 * len(subs)


async def test_any_change_of_a_table_brings_the_rows_also_if_no_aggregate_changes() -> None:
    async with live(1) as (_, server, hc):
        await hc.publish("FUEL", {"ID": [1, 2], "X": [1.0, 2.0], "PRICE": [5.0, 5.0]})
        groups = "SELECT X, SUM(PRICE) FROM FUEL GROUP BY X ORDER BY X"
        async with hc.subscribe(groups, when="FUEL") as sub, hc.subscribe(QUERY, when="fuel, STATION") as both:
            assert sub.answer == [(1.0, 5.0), (2.0, 5.0)]
            moved = await put(hc, 2, 1, 5.0)  # to another group: the sum of all is what it was
            for event in (await next_event(sub), await next_event(both)):
                assert (event.answer.fired, event.answer.worth.seq) == (moved, moved)
            assert sub.answer == [(1.0, 10.0)]
            seq = (await hc.publish("STATION", [{"ID": 1}])).seq
            event = await next_event(both)
            assert (event.answer.fired, event.answer) == (seq, [(1, 5.0), (2, 5.0)])
            seq = (await hc.delete("FUEL", [2])).seq
            for event in (await next_event(sub), await next_event(both)):
                assert event.answer.fired == seq
            assert (sub.pending, both.pending) == (0, 0)
            assert runs(server) == 7


async def test_each_arrival_in_a_stream_brings_the_rows_and_tuples_that_go_do_not() -> None:
    async with live() as (_, server, hc):
        await hc.execute("CREATE STREAM TICKS (PRICE REAL) WITH (retain_rows = 2)")
        async with hc.subscribe("SELECT COUNT(*) FROM TICKS", when=["TICKS"]) as sub:
            for number in range(1, 5):
                seq = (await hc.publish("TICKS", [{"PRICE": number}])).seq
                assert (await next_event(sub)).answer.fired == seq
            await hc.sync()
            assert (sub.pending, runs(server)) == (0, 5)


@pytest.mark.parametrize("when", ["FUEL", "SELECT COUNT(*) FROM FUEL"])
async def test_changes_that_come_faster_share_a_result_and_the_last_one_is_not_left_out(when: str) -> None:
    async with live() as (_, server, hc):
        began = asyncio.get_running_loop().time()
        async with hc.subscribe(QUERY, when=when, at_most_every="300ms") as sub:
            for number in range(20):
                last = await put(hc, number, 1, 1.0)
            while (await next_event(sub)).answer.worth.seq < last:
                pass
            took_s = asyncio.get_running_loop().time() - began
            assert sub.pending == 0
            assert runs(server) <= 1 + took_s / 0.3


async def test_a_period_brings_the_rows_again_and_again_also_if_they_are_the_same() -> None:
    async with live() as (_, server, hc):
        await put(hc, 1, 2, 5.0)
        async with hc.subscribe(QUERY, every="300ms", snapshot=True) as sub:
            first = await next_event(sub)
            assert isinstance(first, hullcast.Snapshot)
            events = [await next_event(sub) for _ in range(3)]
            assert [event.answer for event in (first, *events)] == [[(1, 5.0)]] * 4
            seqs = [event.seq for event in events]
            assert seqs == sorted(set(seqs))
            assert all(event.answer.fired is None for event in events)
            ones = list(server.conditionals)
            assert ones[0].counts.fires >= 3


async def test_all_who_subscribe_to_the_same_share_one_run_and_one_message() -> None:
    """However they are spread; also those that come later, and those that come all at once."""
    async with live(3) as (made, server, hc):
        await put(hc, 1, 2, 5.0)
        clients = [await made.client(f"g{1 + i % 2}") for i in range(4)]

        async def subscribe(client: Client) -> Subscription:
            return await client.subscribe(QUERY, when=LOWEST, when_parameters=(1, 5))

        subs = list(await asyncio.gather(*(subscribe(clients[i % 4]) for i in range(200))))
        assert (len(server.conditionals), runs(server)) == (1, 1)
        messages = sent(server)
        for i in range(1, 4):
            await put(hc, 1, 2, 5.0 - i)
            events = [await next_event(sub) for sub in subs]
            assert {(event.seq, event.answer[0].PRICE) for event in events} == {(2 * i + 1, 5.0 - i)}
            assert runs(server) == 1 + i
        late = await subscribe(hc)
        assert late.answer == [(1, 2.0)]
        assert runs(server) == 4
        assert sent(server) - messages == 3
        for client in clients:
            await client.close()


async def test_a_query_that_fails_says_so_and_the_next_good_one_comes() -> None:
    async with live() as (_, server, hc):
        await hc.publish("STATION", [{"ID": 1, "NAME": "a"}])
        when = "SELECT COUNT(*) FROM FUEL"
        async with hc.subscribe("SELECT NAME FROM STATION", when=when) as sub:
            await hc.execute("DROP TABLE STATION")
            await put(hc, 1, 1, 1.0)
            event = await next_event(sub)
            assert isinstance(event.answer.error, hullcast.UnknownTable)
            with pytest.raises(hullcast.UnknownTable, match="no table STATION"):
                list(event.answer)
            assert sub.answer.error is not None
            with pytest.raises(hullcast.UnknownTable):
                await hc.subscribe("SELECT NAME FROM STATION", when=when)
            server.children.reset("rights", "as after a lost link", fresh_link=False)
            await put(hc, 2, 1, 1.0)
            event = await next_event(sub)
            assert isinstance(event, hullcast.Change)
            assert isinstance(event.answer.error, hullcast.UnknownTable)
            await hc.execute(CREATE[1])
            await hc.publish("STATION", [{"ID": 1, "NAME": "b"}])
            await put(hc, 3, 1, 1.0)
            event = await next_event(sub)
            assert event.answer.error is None
            assert event.answer == [("b",)]
            assert server.conditionals.counts.failures == 2


async def test_a_result_that_grows_too_large_says_what_would_help() -> None:
    async with live() as (_, _, hc):
        sql, when = "SELECT ID, NAME FROM STATION ORDER BY ID", "SELECT COUNT(*) FROM FUEL"
        async with hc.subscribe(sql, when=when) as sub:
            for rows, number in ((3000, 1), (8000, 2), (100, 3)):
                old = [row.ID for row in await hc.query("SELECT ID FROM STATION")]
                await hc.delete("STATION", old)
                await hc.publish("STATION", {"ID": np.arange(rows), "NAME": ["x" * 200 + str(i) for i in range(rows)]})
                await put(hc, number, 1, 1.0)
                event = await next_event(sub)
                if rows == 8000:
                    with pytest.raises(hullcast.SqlError, match=r"more than 750 KiB.*aggregate them.*query\(\)"):
                        len(event.answer)
                else:
                    assert [row.ID for row in event.answer] == list(range(rows))
                    assert event.answer.worth is not None
        await hc.publish("STATION", {"ID": np.arange(8000), "NAME": ["x" * 200 + str(i) for i in range(8000)]})
        with pytest.raises(hullcast.SqlError, match="more than 750 KiB"):
            await hc.subscribe(sql, every=60)


async def test_the_largest_result_passes_and_one_byte_more_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async with live(1) as (_, server, hc):
        sql, when = "SELECT NAME FROM STATION ORDER BY ID", "SELECT COUNT(*) FROM FUEL"
        sub = await hc.subscribe(sql, when=when)
        await hc.publish("STATION", [{"ID": i, "NAME": chr(97 + i) * 60_000} for i in range(12)])
        await put(hc, 1, 1, 1.0)
        assert [len(row.NAME) for row in (await next_event(sub)).answer] == [60_000] * 12
        (one,) = server.conditionals
        size = sum(map(len, packing.unpack(base64.b64decode(one.channel.result.text))))
        more = evaluating.RESULT_BYTES - size  # a letter is a byte
        assert 1000 < more < 60_000
        for too_much in (0, 1):
            await hc.publish("STATION", [{"ID": 12, "NAME": "z" * (more - 64 + 128 * too_much)}])
            await put(hc, 2 + too_much, 1, 1.0)
            event = await next_event(sub)
            assert (event.answer.error is not None) == bool(too_much)
        assert len(one.channel.result.text) < WireLimits().text_bytes


async def test_results_of_the_past_are_held_by_the_retention_alone(tmp_path: Path) -> None:
    async with live(data=tmp_path / "data", retention_bytes=1 << 20) as (_, server, hc):
        await hc.publish("STATION", [{"ID": i, "NAME": chr(97 + i) * 20_000} for i in range(10)])
        texts = server.engine._interner.characters()
        async with hc.subscribe("SELECT NAME FROM STATION", when="SELECT COUNT(*) FROM FUEL") as sub:
            written = server.log.statistics().written_bytes
            for number in range(20):
                await put(hc, number, 1, 1.0)
                assert len((await next_event(sub)).answer) == 10
            assert server.conditionals.counts.delivered == 20
            assert server.engine._interner.characters() == texts
            assert server.log.statistics().written_bytes - written < 40_000, "each is a name and a number there"
            assert server.retention.size_bytes <= 1 << 20
            (one,) = server.conditionals
            assert server.engine.memory_bytes() < 4 * len(one.channel.result.text) + (8 << 20)


async def test_what_cannot_be_is_refused_at_once_and_leaves_nothing() -> None:
    async with live() as (_, server, hc):
        when = "SELECT COUNT(*) FROM FUEL"
        await hc.execute(
            "CREATE VIEW CHEAP AS SELECT X, SUM(PRICE) AS S FROM FUEL GROUP BY X WITH (response_time = '1s')"
        )
        for sql, given, error, match in (
            ("SELECT * FROM NOBODY", {"every": 1}, hullcast.UnknownTable, "no table NOBODY"),
            ("DELETE FROM FUEL", {"every": 1}, hullcast.SqlError, "DELETE is not supported"),
            ("SELECT NOTHING FROM FUEL", {"every": 1}, hullcast.UsageError, "NOTHING"),
            (QUERY, {"when": "SELECT PRICE FROM FUEL ORDER BY ID"}, hullcast.SqlError, "ORDER BY"),
            (QUERY, {"when": "SELECT COUNT(*) FROM NOBODY"}, hullcast.UnknownTable, "no table NOBODY"),
            (QUERY, {"when": LOWEST}, hullcast.BadParameter, "of the condition"),
            (QUERY, {"when": when, "when_parameters": (1,)}, hullcast.BadParameter, "of the condition"),
            (QUERY + " LIMIT ?", {"when": when}, hullcast.BadParameter, "1 `.` and got 0"),
            (QUERY, {"every": 0}, hullcast.BadSetting, "every"),
            (QUERY, {"every": 0.01}, hullcast.BadSetting, "must be from 0.1"),
            (QUERY, {"every": "often"}, hullcast.BadSetting, "every"),
            (QUERY, {"when": 5}, hullcast.BadSetting, "when"),
            (QUERY, {"when": []}, hullcast.BadSetting, "must name a table"),
            (QUERY, {"when": " "}, hullcast.BadSetting, "when.*must name a table"),
            (QUERY, {"when": ["FUEL", 5]}, hullcast.BadSetting, "or the name of a table"),
            (QUERY, {"when": ["FUEL"] * 65}, hullcast.BadSetting, "at most 64 tables"),
            (QUERY, {"when": "FUEL, NOBODY"}, hullcast.UnknownTable, "no table NOBODY; tables: FUEL, STATION"),
            (QUERY, {"when": "CHEAP"}, hullcast.SqlError, "CHEAP.*it is a view.*name those tables in `when`"),
            (QUERY, {"when": "FUEL", "when_parameters": (1,)}, hullcast.BadSetting, "tables have no `.`"),
            (QUERY, {"when": "FUEL", "at_most_every": 0.0001}, hullcast.BadSetting, "must be from 0.001"),
            (QUERY, {"every": 1, "at_most_every": 1}, hullcast.BadSetting, "needs `when`"),
            (QUERY, {"when_parameters": (1,), "every": 1}, hullcast.BadSetting, "no `when`"),
            (QUERY, {"when": LOWEST, "when_parameters": "12"}, hullcast.BadSetting, "must be a sequence"),
        ):
            with pytest.raises(error, match=match):
                await hc.subscribe(sql, **given)
        wrong: tuple[dict[str, Any], ...] = ({"when": when}, {"every": "1s"})
        for given in wrong:
            with pytest.raises(hullcast.BadSetting, match=r"one by one; use subscribe\(\)"):
                hc.subscribe_many("SELECT COUNT(*) FROM FUEL WHERE X > ?", [1, 2], **given)
            with pytest.raises(hullcast.BadSetting, match="embedded engine"):
                hullcast.Engine().subscribe("SELECT COUNT(*) FROM FUEL", **given)
        await wait_for(lambda: not len(server.conditionals), "nothing is left")
        assert not list(server.engine._channels)
        await hc.execute("DROP VIEW CHEAP")
        for table in ("FUEL", "STATION"):
            await hc.execute(f"DROP TABLE {table}")


async def test_what_a_refusal_advises_works_when_it_is_typed() -> None:
    async with live() as (_, _, hc):
        await hc.execute("CREATE STREAM SALE (ID INTEGER, AT TIMESTAMP)")
        await hc.execute(
            "CREATE VIEW CHEAP AS SELECT X, COUNT(*) AS N FROM FUEL GROUP BY X WITH (response_time = '1s')"
        )
        await hc.publish("FUEL", {"ID": [1, 2], "X": [1.0, None], "PRICE": [5.0, 4.0]})
        views = 0
        for sql, rows in (
            ("SELECT DISTINCT ID FROM FUEL WHERE X IS NULL", [(2,)]),
            ("SELECT MAX(ID) FROM FUEL WHERE X IS NOT NULL", [(1,)]),
            ("SELECT MIN(PRICE) FROM FUEL WHERE X IS NULL", [(4.0,)]),
            ("SELECT X, COUNT(*) FROM FUEL GROUP BY X", [(None, 1), (1.0, 1)]),
            ("SELECT COUNT(*), AVG(PRICE) FROM FUEL", [(2, 4.5)]),
            ("SELECT * FROM FUEL ORDER BY PRICE LIMIT 1", [(2, None, 4.0)]),
            ("SELECT ID, PRICE AS p FROM FUEL f ORDER BY p DESC, f.ID", [(1, 5.0), (2, 4.0)]),
            ("SELECT ID FROM SALE WHERE AT > datetime('now', '-1 hour')", []),
            ("SELECT ID, COUNT(*) FROM SALE GROUP BY ID", []),
            ("SELECT ID FROM SALE WHERE ID + 1 = 2", []),
            ("SELECT X, N FROM CHEAP WHERE X = 1", [(1.0, 1)]),
        ):
            with pytest.raises(hullcast.SqlError) as refused:
                await hc.subscribe(sql)
            said = str(refused.value)
            (call,) = re.findall(r'hc\.subscribe\(".*?", \w+="[^"]*"\)', said)
            async with eval(call, {"hc": hc}) as sub:
                assert sub.answer == rows, call
            for view, read in re.findall(
                r"(CREATE VIEW name .*'50ms'\))(?:, and read it with (hc\.query.*\))$)?", said
            ):
                await hc.execute(view.replace("name", f"V{views}"))
                asked = (read or 'hc.query("SELECT * FROM name")').replace("name", f"V{views}")
                assert await eval(asked, {"hc": hc}) == rows, asked
                views += 1
        assert views == 6
        for when in ("SELECT MEDIAN(PRICE) FROM FUEL", "SELECT N FROM CHEAP", "SELECT ID FROM FUEL ORDER BY X"):
            with pytest.raises(hullcast.SqlError, match=r'changes count: when="FUEL"$') as refused:
                await hc.subscribe(QUERY, when=when)
            assert "hc.subscribe" not in str(refused.value)
        for ask in (hc.query, hc.subscribe):
            with pytest.raises(hullcast.SqlError, match=r"function: MEDIAN.*compute the rest in your program"):
                await ask("SELECT MEDIAN(PRICE) FROM FUEL")
            with pytest.raises(hullcast.SqlError, match=r"datetime\('now', '-1 hour'\)"):
                await ask("SELECT ID FROM SALE WHERE AT > NOW() - INTERVAL '1 hour'")
        for change in (hc.publish("CHEAP", [{"X": 1.0}]), hc.delete("CHEAP", [1.0]), hc.execute("DROP TABLE CHEAP")):
            with pytest.raises(hullcast.UsageError, match="CHEAP is a view, not a table"):
                await change
        with pytest.raises(hullcast.DuplicateView, match="or keep it with CREATE VIEW IF NOT EXISTS"):
            await hc.execute("CREATE VIEW CHEAP AS SELECT ID FROM FUEL WITH (response_time = '1s')")


async def test_limits_of_conditionals_are_per_client_and_in_all() -> None:
    async with live(max_conditionals=4) as (made, _, hc):
        kept = [await hc.subscribe(QUERY, every=10 + i) for i in range(2)]
        with pytest.raises(hullcast.TooLarge, match=r"different conditional subscriptions of one client .*: 3"):
            await hc.subscribe(QUERY, every=50)
        kept.append(await hc.subscribe(QUERY, every=10))  # not a different one
        async with made.client(timeout=1.0) as other, made.client(timeout=1.0) as third:
            for i in range(2):
                await other.subscribe(QUERY, every=20 + i)
            with pytest.raises(hullcast.TimedOut, match="different conditional subscriptions"):
                await third.subscribe(QUERY, every=50)


@pytest.mark.parametrize("when", ["SELECT COUNT(*) FROM STATION", "station"])
async def test_one_that_nobody_subscribes_to_goes_after_a_while_and_its_tables_can_be_dropped(when: str) -> None:
    async with live(channel_linger_s=0.2) as (_, server, hc):
        sub = await hc.subscribe(QUERY, when=when)
        with pytest.raises(hullcast.TableInUse, match="table STATION is in use by subscriptions"):
            await hc.execute("DROP TABLE STATION")
        await sub.close()
        await hc.execute("DROP TABLE STATION")  # it lingers, and does not keep a table
        assert not len(server.conditionals)
        await hc.execute(CREATE[1])
        sub = await hc.subscribe(QUERY, when=when)
        await sub.close()
        for one in server.conditionals:
            one.keep_until = 0.0
        await wait_for(lambda: not len(server.conditionals), "it goes")
        before = runs(server)
        await hc.publish("STATION", [{"ID": 1}])
        await hc.sync()
        assert runs(server) == before
        assert not list(server.engine._channels)


@pytest.mark.parametrize("when", ["SELECT COUNT(*) FROM FUEL", "FUEL"])
async def test_a_token_continues_with_the_results_that_were_missed(when: str) -> None:
    async with live() as (made, _, hc):
        given: dict[str, Any] = {"when": when, "overflow": "block"}
        await put(hc, 1, 1, 1.0)
        sub = await hc.subscribe(QUERY, **given)
        await put(hc, 2, 1, 2.0)
        assert len((await next_event(sub)).answer) == 2
        await put(hc, 3, 1, 3.0)
        await wait_for(lambda: sub.pending == 1, "the next one waits")
        token = sub.token
        await sub.close()
        await put(hc, 4, 1, 4.0)
        await hc.sync()
        async with made.client() as other:
            with pytest.raises(hullcast.BadSetting, match="condition differ"):
                other.subscribe(QUERY, when="SELECT MAX(ID) FROM FUEL", resume=token)
            with pytest.raises(hullcast.BadSetting, match="condition differ"):
                other.subscribe(QUERY, resume=token)
            for changed in ({"when": "FUEL, STATION"}, {"at_most_every": 1}):
                with pytest.raises(hullcast.BadSetting, match="condition differ"):
                    other.subscribe(QUERY, resume=token, **given | changed)
            again = await other.subscribe(QUERY, resume=token, **given)
            events = [await next_event(again) for _ in range(2)]
            assert [type(event) for event in events] == [hullcast.Change] * 2
            assert [len(event.answer) for event in events] == [3, 4]
            assert again.pending == 0


@pytest.mark.parametrize("overflow", ["latest", "drop_oldest", "error"])
async def test_results_that_nobody_takes_follow_the_overflow_policy(overflow: Any) -> None:
    async with live() as (_, server, hc):
        sub = await hc.subscribe(QUERY, when="SELECT COUNT(*) FROM FUEL", overflow=overflow, buffer=2)
        for number in range(1, 6):
            await put(hc, number, 1, 1.0)
            await wait_for(lambda number=number: server.conditionals.counts.delivered == number, "it is delivered")  # type: ignore[misc]
        await hc.sync()
        if overflow == "error":
            await wait_for(lambda: sub.closed, "it ends")
            while sub.pending:
                await next_event(sub)
            with pytest.raises(hullcast.SubscriptionOverflow):
                await next_event(sub)
        event = None if overflow == "error" else await next_event(sub)
        if overflow == "latest":
            assert event is not None
            assert (len(event.answer), sub.pending, sub.conflated) == (5, 0, 4)
        elif overflow == "drop_oldest":
            assert isinstance(event, hullcast.Resync)
            assert (event.lost, len(event.answer)) == (3, 3)
            assert [len((await next_event(sub)).answer) for _ in range(2)] == [4, 5]


async def test_parameters_bind_the_select_and_the_condition() -> None:
    async with live() as (_, server, hc):
        for number in (1, 2, 3):
            await put(hc, number, number, float(number))
        sql = "SELECT ID FROM FUEL WHERE PRICE > ? ORDER BY ID LIMIT ?"
        async with (
            hc.subscribe(sql, 1.5, 1, when=LOWEST, when_parameters=[2, 3]) as one,
            hc.subscribe(sql, 0, 5, when=LOWEST, when_parameters=[2, 3]) as other,
        ):
            assert (one.answer, other.answer) == ([(2,)], [(1,), (2,), (3,)])
            await put(hc, 2, 2, 1.0)
            assert (await next_event(one)).answer == [(3,)]
            assert (await next_event(other)).answer == [(1,), (2,), (3,)]
            assert len(server.conditionals) == 2


async def test_status_and_explain_show_what_is_run_when() -> None:
    async with live() as (_, _, hc):
        given: dict[str, Any] = {"when": LOWEST, "when_parameters": (1, 5), "every": "1h"}
        facts = await hc.explain(QUERY, **given)
        assert facts["conditional"]["made"] is False
        assert facts["condition"]["kind"] == "MIN"
        async with hc.subscribe(QUERY, **given) as sub:
            await put(hc, 1, 2, 5.0)
            await next_event(sub)
            facts = await hc.explain(QUERY, **given)
            known = facts["conditional"]
            assert (known["made"], known["fired"], known["runs"], known["delivered"]) == (True, 1, 2, 1)
            assert known["every_s"] == 3600.0
            assert known["last"]["as_of"] == 1
            (one,) = (await hc.status())["conditionals"]["each"]
            assert one["query"] == QUERY
            assert one["when"] == LOWEST
            facts = await hc.explain(QUERY, when=["FUEL", "STATION"], at_most_every="100ms")
            known = facts["conditional"]
            assert (known["made"], known["tables"], known["when"]) == (False, ["FUEL", "STATION"], None)
            assert (known["at_most_every_s"], facts["condition"]) == (0.1, None)
        facts = await hc.explain(QUERY, every="5s")
        assert facts["condition"] is None
        while not facts["loaded"]:  # the warehouse reports twice a second
            facts = await hc.explain(QUERY, every="5s")
        assert facts["loaded"].keys() == {"FUEL"}


def test_a_blocking_client_has_them_too() -> None:
    with testing.blocking_cluster() as endpoint, hullcast.connect_blocking(endpoint) as hc:
        hc.execute(CREATE[0])
        with hc.subscribe(QUERY, when="FUEL", at_most_every="1ms") as sub:
            assert sub.answer == []
            hc.publish("FUEL", [{"ID": 1, "PRICE": 2.0}])
            event = next(iter(sub))
            assert isinstance(event, hullcast.Change)
            assert event.answer == [(1, 2.0)]
            assert event.answer.worth.seq == 1
