"""Keys and rights, end to end: who may come in, what each may do, also through a node that speaks for its clients."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hullcast.broker.server.settings import ServerSettings
from hullcast.clients.cli.commands.explain import in_words
from hullcast.clients.cli.commands.tables import listing
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.connecting import configure
from hullcast.network.link.peer import Peer
from hullcast.network.node.settings import NodeSettings
from hullcast.network.security.rights import Rights
from hullcast.network.settings.common import SecuritySettings
from hullcast.network.wire import bodies, frames
from hullcast.network.wire.errors import BadSetting, ConnectionLost, NotPermitted, PeerClosed, SqlError, UnknownTable
from tests.support.cluster import COMMAND, PATIENCE_S, wait_for
from tests.support.links import Child, running_dialer
from tests.support.secured import RIGHTS, allowed, curve_of, gateway, running, secured

CREATE = "CREATE TABLE {} (SYMBOL TEXT PRIMARY KEY, PER REAL)"
LOWEST = "SELECT MIN(PER) FROM {}"
ROW = {"SYMBOL": "ACME", "PER": 12.5}


async def test_each_key_may_do_what_the_list_says_and_nothing_else(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path) as s:
        for endpoint in (s.node.endpoint, s.server.endpoint):
            table = "STOCK"
            async with (
                s.client("admin", endpoint) as admin,
                s.client("ticker", endpoint) as ticker,
                s.client("reader", endpoint) as reader,
            ):
                if endpoint == s.node.endpoint:
                    await admin.execute(CREATE.format(table))
                    await admin.execute(CREATE.format("SECRET"))
                refused_before = s.server.hall.refused
                async with reader.subscribe(LOWEST.format(table)) as made:
                    await ticker.publish(table, [ROW])
                    await reader.sync()
                    assert made.answer == 12.5
                    assert await reader.query("SELECT PER FROM STOCK") == [(12.5,)]
                refused: list[tuple[str, Any]] = [
                    ("publish", reader.publish(table, [ROW])),
                    ("publish", reader.delete(table, ["ACME"])),
                    ("publish", ticker.publish("SECRET", [ROW])),
                    ("subscribe", reader.subscribe(LOWEST.format("SECRET"))),
                    ("subscribe", ticker.subscribe(LOWEST.format(table))),
                    ("subscribe", ticker.explain(LOWEST.format(table))),
                    ("query", ticker.query("SELECT * FROM STOCK")),
                    ("query", reader.query("SELECT * FROM STOCK JOIN SECRET USING (SYMBOL)")),
                    ("query", admin.query("SELECT * FROM SECRET")),
                    ("admin", ticker.execute("DROP TABLE STOCK")),
                ]
                for action, call in refused:
                    with pytest.raises(NotPermitted) as caught:
                        await call
                    assert caught.value.action == action
                    assert caught.value.table in ("", "STOCK", "SECRET"), "as the table was created"
                assert s.server.hall.refused == refused_before + len(refused)
                assert await reader.query("SELECT COUNT(*) FROM STOCK") == [(1,)]


@pytest.mark.parametrize("who", ["outsider", "impostor"])
async def test_a_key_on_no_list_does_not_get_in(who: str, tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path) as s:
        for endpoint in (s.node.endpoint, s.server.endpoint):
            with pytest.raises(PeerClosed, match="denied"):
                await s.client(who, endpoint, timeout=1.0)
        assert s.server.listener.statistics().refused_keys >= 1
        assert s.node.listener.statistics().refused_keys >= 1


async def test_a_server_with_another_key_is_not_trusted(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path) as s:
        with pytest.raises(ConnectionLost):
            await s.client("reader", s.server.endpoint, server="impostor", timeout=1.0)


async def test_plain_text_does_not_get_in_where_keys_are_needed(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path) as s:
        with pytest.raises((ConnectionLost, PeerClosed), match="a key"):
            await Client(configure(s.server.endpoint, timeout=1.0), s.context)
        assert s.server.listener.statistics().peers == 1  # the gateway


async def test_only_a_key_with_the_right_to_joins_as_a_node(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path) as s:
        rogue = gateway(tmp_path, s.server, s.pairs["reader"], s.pairs["server"], Rights.everything(), s.context)
        async with running(rogue.run):
            await wait_for(lambda: "denied" in rogue.dialer.failure, "it is denied")
            assert not rogue.attached
        assert s.server.children.refused >= 1
        assert [peer.name for peer in s.server.listener.peers.values()] == ["gateway"]


SUBSCRIBE_ONE, SUBSCRIBE_MANY, QUERY = (
    bodies.Subscribe((bodies.Group(1, LOWEST.format("STOCK"), (), 1),), None, None),
    bodies.Subscribe(tuple(bodies.Group(i, f"SELECT MIN(PER) FROM STOCK WHERE PER > {i}", (), 1) for i in range(1, 9))),
    bodies.Query("SELECT * FROM STOCK", ()),
)


def replies(child: Child) -> dict[int, bodies.Body]:
    found = [frame for frame in map(frames.decode, child.frames) if isinstance(frame, frames.Reply)]
    return {reply.id: bodies.decode(reply.body) for reply in found}


@pytest.mark.parametrize("body", [SUBSCRIBE_ONE, SUBSCRIBE_MANY, QUERY], ids=["one", "many", "query"])
async def test_a_right_withdrawn_holds_no_more_for_what_waits_already(body: bodies.Body, tmp_path: Path) -> None:
    """The list is read again as soon as the request has come: one Subscribe waits for the disk, many or a query for
    their turn. The client is not one of ours, which would ask again."""
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path) as s, s.client("admin") as admin:
        await admin.execute(CREATE.format("STOCK"))
        less = allowed(s.pairs, {**RIGHTS, "reader": {}})
        came = s.server.on_request

        def came_and_withdrawn(peer: Peer, request: frames.Request) -> None:
            came(peer, request)
            if peer.name == "stranger" and request.id == 1:
                s.server.take_rights(less)

        s.server.on_request = came_and_withdrawn  # type: ignore[method-assign]
        curve = curve_of(s.pairs["reader"], s.pairs["server"])
        stranger = running_dialer(s.server.endpoint, name="stranger", curve=curve, context=s.context)
        async with stranger as (dialer, child), s.client("ticker") as ticker:
            dialer.send(frames.encode(frames.Request(1, (), None, bodies.encode(body))))
            await wait_for(lambda: 1 in replies(child), "the request is answered")
            await ticker.publish("STOCK", [ROW])
            dialer.send(frames.encode(frames.Request(2, (), None, bodies.encode(bodies.Sync()))))
            await wait_for(lambda: 2 in replies(child), "all that concerns the stranger has come")
            assert not [frame for frame in map(frames.decode, child.frames) if isinstance(frame, frames.Deliver)]
            match replies(child)[1]:
                case bodies.Failed(code):
                    assert code == ("ConnectionLost" if body is SUBSCRIBE_ONE else "NotPermitted")
                case bodies.Subscribed(groups=opened):
                    assert [one.failed.code for one in opened if one.failed] == ["NotPermitted"] * 8
                case reply:
                    raise AssertionError(reply)


def test_plain_text_beyond_this_host_is_refused_unless_asked_for() -> None:
    for settings in (ServerSettings, NodeSettings):
        with pytest.raises(BadSetting, match="plain text"):
            settings(listen="tcp://10.1.2.3:7600").check()
        settings(listen="tcp://10.1.2.3:7600", security=SecuritySettings(insecure=True)).check()
    with pytest.raises(BadSetting, match="must be encrypted: give --key and --server-key"):
        Client(configure("tcp://10.1.2.3:7600"))


async def test_the_command_line_refuses_plain_text_beyond_this_host() -> None:
    for flags, code in (((), 2), (("--insecure",), 0)):
        process = await asyncio.create_subprocess_exec(
            COMMAND, "server", "--listen", "tcp://10.1.2.3:7600", "--check-config", *flags,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
        assert process.returncode == code, output
        assert b"Traceback" not in output
        assert (b"plain text" in output) == (code == 2), output


async def test_the_sql_behind_views_and_streams_is_shown_to_keys_that_may_read_all_it_reads(tmp_path: Path) -> None:
    """`part` may use what is made of SECRET, `all` may read SECRET itself."""
    made: dict[str, Any] = {"query": ["SRC", "SUMS", "HOT"], "subscribe": ["SRC", "HOT"]}
    also: dict[str, Any] = {"query": [*made["query"], "SECRET"], "subscribe": made["subscribe"]}
    granted = {**RIGHTS, "admin": {"admin": True, "publish": ["*"], "query": ["*"]}, "part": made, "all": also}
    joined = "SELECT s.SYMBOL, x.PER FROM SRC s JOIN SECRET x USING (SYMBOL) WHERE x.PER > 4711"
    async with (
        asyncio.timeout(PATIENCE_S),
        secured(tmp_path, granted) as s,
        s.client("admin") as admin,
        s.client("part") as part,
        s.client("all") as everything,
    ):
        await admin.execute(CREATE.format("SECRET"))
        await admin.execute("CREATE STREAM SRC (SYMBOL TEXT, P REAL)")
        await admin.execute(f"CREATE STREAM HOT AS {joined}")
        for name in ("SUMS", "OTHERS"):
            view = f"CREATE VIEW {name} AS SELECT SYMBOL, SUM(PER) AS P FROM SECRET WHERE PER > 4711 GROUP BY SYMBOL"
            await admin.execute(f"{view} WITH (response_time = '1s')")
        await admin.publish("SECRET", [ROW])
        await admin.query("SELECT * FROM SUMS")

        async def seen(hc: Client) -> list[Any]:
            found = [await hc.tables(), await hc.views()]
            for text in ("SELECT * FROM SUMS", "SELECT SYMBOL FROM HOT", "SELECT SYMBOL FROM SRC"):
                found.append(await hc.explain(text))
            return [*found, await hc.explain("SELECT * FROM SUMS", when="SELECT SYMBOL FROM HOT")]

        shown, hidden = await seen(everything), await seen(part)
        assert "OTHERS" not in str(shown + hidden), "nobody but the admin has a right to it"
        assert [str(one).count("4711") > 0 for one in shown] == [True, True, True, True, False, True]
        assert not [one for one in hidden if "4711" in str(one) or "secret" in str(one).lower()]
        assert hidden[0]["HOT"]["stream"]["source"] is hidden[1]["SUMS"]["sql"] is None
        assert hidden[1]["SUMS"]["columns"] == shown[1]["SUMS"]["columns"]
        for call in (
            part.explain(LOWEST.format("OTHERS")),
            part.subscribe(LOWEST.format("OTHERS")),
            part.subscribe("SELECT * FROM SUMS", when=LOWEST.format("OTHERS")),
            part.subscribe("SELECT NOSUCH FROM SECRET", every=10),
            part.subscribe("SELECT MIN(NOSUCH) FROM SECRET"),
            part.query("SELECT NOSUCH FROM SRC, SECRET"),
        ):
            with pytest.raises(NotPermitted):
                await call
        for refused in (part.subscribe("SELECT * FROM SUMS"), part.subscribe("SELECT 1", when="SELECT P FROM SUMS")):
            with pytest.raises(SqlError, match=r'it is a view.*every="1h"') as said:
                await refused
            assert "SECRET" not in str(said.value), "nor is a table named to those who may not follow it"
        for unknown in (part.query("SELECT * FROM NOSUCH"), part.subscribe(LOWEST.format("NOSUCH"))):
            with pytest.raises(UnknownTable) as caught:
                await unknown
            assert set(caught.value.known) == {"SRC", "HOT"}
        assert "4711" in (await admin.views())["OTHERS"]["sql"]
        assert listing(*hidden[:2])  # the command line can show what is left
        assert [in_words(one) for one in hidden[2:4]]


async def test_another_key_gains_nothing_by_the_publisher_id_and_numbers_of_somebody(tmp_path: Path) -> None:
    """Neither somebody's receipts, nor that somebody's changes are taken for applied, superseded or out of turn."""
    granted: dict[str, dict[str, object]] = {**RIGHTS, "mallory": {"publish": ["STOCK"]}}
    granted |= {"admin": {"admin": True, "query": ["STOCK"]}}
    publisher, huge = bytes(range(16)), (1 << 63) - 1

    def change(number: int, symbol: str, after: int = 0, again: bool = False) -> frames.Request:
        body = bodies.encode(bodies.Publish("STOCK", {"SYMBOL": symbol, "PER": 1.0}, None, publisher, number))
        return frames.Request(number, (), None, body, after, again)

    async with asyncio.timeout(PATIENCE_S), secured(tmp_path, granted) as s, s.client("admin") as admin:
        await admin.execute(CREATE.format("STOCK"))
        curves = [curve_of(s.pairs[who], s.pairs["gateway"]) for who in ("ticker", "mallory")]
        async with (
            running_dialer(s.node.endpoint, name="ticker", curve=curves[0], context=s.context) as (honest, heard),
            running_dialer(s.node.endpoint, name="mallory", curve=curves[1], context=s.context) as (other, told),
        ):

            async def answer(dialer: Any, child: Child, request: frames.Request) -> bodies.Body:
                child.frames.clear()
                dialer.send(frames.encode(request))
                await wait_for(lambda: request.id in replies(child), "it is answered")
                return replies(child)[request.id]

            first = await answer(honest, heard, change(1, "A"))
            assert isinstance(first, bodies.Done)
            stolen = await answer(other, told, change(1, "B", again=True))
            assert isinstance(stolen, bodies.Done)
            assert stolen != first, "a change of its own, not somebody's receipt"
            assert isinstance(await answer(other, told, change(huge, "C")), bodies.Done)
            late = await answer(other, told, change(2, "D"))
            assert isinstance(late, bodies.Failed)
            assert late.code == "Superseded"
            assert await answer(honest, heard, change(1, "A", again=True)) == first
            assert isinstance(await answer(honest, heard, change(2, "E", after=1)), bodies.Done)
        assert sorted(await admin.query("SELECT SYMBOL FROM STOCK")) == [("A",), ("B",), ("C",), ("E",)]
