"""A key that is on the list without any right: it learns nothing, and others do not notice what it does."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from hullcast.network.link.dialer import Dialer
from hullcast.network.node.children import POWERLESS_FRAME_BYTES, POWERLESS_HELD_BYTES
from hullcast.network.wire import bodies, frames
from tests.support.cluster import PATIENCE_S, wait_for
from tests.support.links import Child, running_dialer
from tests.support.secured import RIGHTS, Secured, curve_of, secured

GRANTED: dict[str, dict[str, object]] = {
    **RIGHTS,
    "admin": {"admin": True, "publish": ["*"], "subscribe": ["*"], "query": ["*"]},
    "nobody": {},
}
SECRET = "CREATE TABLE SECRET (HIDDEN TEXT PRIMARY KEY, V REAL)"
TICKET, NAME = bytes(16), bytes(range(16))
LOWEST = "SELECT MIN(V) FROM SECRET"
TRIGGERED = bodies.Group(1, "SELECT * FROM SECRET", (), 1, trigger=bodies.Trigger(LOWEST))
#: Every request that a client may send, and what it may be answered with besides NotPermitted.
ASKED: list[tuple[bodies.Body, str]] = [
    (bodies.Execute("DROP TABLE SECRET", NAME, 1), ""),
    (bodies.Execute("ADVANCE STREAM SECRET TO '2030-01-01'", NAME, 2), ""),
    (bodies.Execute("CREATE VIEW W AS SELECT HIDDEN, V FROM SECRET WITH (response_time = '1s')", NAME, 3), ""),
    (bodies.Publish("SECRET", {"HIDDEN": "a"}, None, NAME, 4), ""),
    (bodies.Delete("SECRET", np.arange(1), NAME, 5), ""),
    (bodies.Query("SELECT NOSUCH FROM SECRET", ()), ""),
    (bodies.Query("SELECT 1", ()), ""),
    (bodies.FetchRows(TICKET, 1), "AnswerGone"),
    (bodies.Subscribe((bodies.Group(1, LOWEST, (), 1),), None, None), ""),
    (bodies.Subscribe((TRIGGERED,), None, None), ""),
    (bodies.Subscribe((), None, None, TICKET), "UsageError"),
    (bodies.Fetch(TICKET, 0), "UsageError"),
    (bodies.Explain(LOWEST, ()), ""),
    (bodies.Explain("SELECT * FROM V", ()), ""),
    (bodies.Explain(TRIGGERED.sql, (), TRIGGERED.trigger), ""),
    (bodies.AskHistory("SECRET"), ""),
    (bodies.ReadChanges("SECRET", 0, None), ""),
    (bodies.ReadTable("SECRET", 1, 0, 1, 0), ""),
    (bodies.Status(), ""),
    (bodies.SetPolicy("fifo"), ""),
    (bodies.NodeReport({"id": "00" * 16}), "UsageError"),
    (bodies.LinksGone((1, 2)), "UsageError"),
    (bodies.Left((("x", 1, 1),)), "UsageError"),
    (bodies.Describe(), "Information"),
    (bodies.SetPolicy(""), "Information"),
    (bodies.Sync(), "Synced"),
]


def nobody(s: Secured, at: str, who: str = "nobody") -> AbstractAsyncContextManager[tuple[Dialer, Child]]:
    parent = "gateway" if at == s.node.endpoint else "server"
    return running_dialer(at, name=who, curve=curve_of(s.pairs[who], s.pairs[parent]), context=s.context)


def ask(dialer: Dialer, number: int, body: bytes) -> None:
    dialer.send(frames.encode(frames.Request(number, (), None, body)))


def replies(child: Child) -> dict[int, bodies.Body]:
    found = [frame for frame in map(frames.decode, child.frames) if isinstance(frame, frames.Reply)]
    return {reply.id: bodies.decode(reply.body) for reply in found}


async def test_it_is_refused_everything_and_learns_no_name(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(PATIENCE_S))
        s = await stack.enter_async_context(secured(tmp_path, GRANTED))
        admin = await stack.enter_async_context(s.client("admin"))
        await admin.execute(SECRET)
        await admin.execute("CREATE VIEW V AS SELECT HIDDEN, V FROM SECRET WITH (response_time = '1s')")
        await admin.publish("SECRET", [{"HIDDEN": "treasure", "V": 4711.0}])
        before = await admin.tables()
        for at in (s.node.endpoint, s.server.endpoint):
            dialer, child = await stack.enter_async_context(nobody(s, at))
            for number, (body, _) in enumerate(ASKED, 1):
                ask(dialer, number, bodies.encode(body))
            await wait_for(lambda child=child: len(replies(child)) == len(ASKED), "all are answered")  # type: ignore[misc]
            for number, (body, other) in enumerate(ASKED, 1):
                reply = replies(child)[number]
                said = reply.code if isinstance(reply, bodies.Failed) else type(reply).__name__
                assert said in ("NotPermitted", other), (body, reply)
                named = str(reply).replace("on SECRET", "")  # what it asked for itself
                assert not [word for word in ("treasure", "4711", "HIDDEN") if word in named], (body, reply)
                if isinstance(body, bodies.Describe):
                    assert reply == bodies.Information({"tables": {}, "views": {}})
        assert await admin.tables() == before
        assert not s.server.attendance.shares._of


async def test_what_can_only_be_refused_is_not_decoded(tmp_path: Path) -> None:
    """Half a second of everybody's time for six megabytes; here the rest of the body is nonsense, which shows it."""
    large = bytes(1 << 20)
    async with (
        asyncio.timeout(PATIENCE_S),
        secured(tmp_path, GRANTED) as s,
        nobody(s, s.server.endpoint, "ticker") as (dialer, child),  # may publish
    ):
        tags = {b"\x96\xa7publish": "BadFrame", b"\x97\xa5query": "NotPermitted", b"\x95\xa9subscribe": "NotPermitted"}
        for number, tag in enumerate(tags, 1):
            ask(dialer, number, tag + large)
        await wait_for(lambda: len(replies(child)) == len(tags), "all are answered")
        assert [reply.code for _, reply in sorted(replies(child).items())] == list(tags.values())  # type: ignore[attr-defined]


@pytest.mark.parametrize("greedy", ["large", "deaf"])
async def test_it_can_neither_send_much_nor_make_its_parent_keep_much(tmp_path: Path, greedy: str) -> None:
    async with asyncio.timeout(PATIENCE_S), secured(tmp_path, GRANTED) as s:
        for at, children in ((s.node.endpoint, s.node.children), (s.server.endpoint, s.server.children)):
            async with nobody(s, at) as (dialer, child):
                if greedy == "large":
                    ask(dialer, 1, bytes(POWERLESS_FRAME_BYTES + 1))
                else:
                    (peer,) = (peer for peer in children.peers.values() if peer.name == "nobody")
                    peer.send(
                        frames.encode(frames.Reset("x", "x" * POWERLESS_HELD_BYTES))
                    )  # as if refusals had gathered
                    ask(dialer, 1, bodies.encode(bodies.Sync()))
                await wait_for(partial(attrgetter("refused"), children), "its link is closed")
                assert not replies(child)
            assert s.node.attached
