"""A node among failures above it: a full way up, and a ring."""

from __future__ import annotations

import asyncio
import logging
import socket as sockets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace

import numpy as np
import pytest

from hullcast.network.link.listener import Listener
from hullcast.network.link.peer import Peer
from hullcast.network.node.children import Children
from hullcast.network.node.node import MOST_GONE_KEPT, Node
from hullcast.network.node.settings import NodeSettings
from hullcast.network.routing.router import Router
from hullcast.network.security.rights import Rights
from hullcast.network.settings.common import LinkSettings
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import Overloaded
from hullcast.network.wire.frames import (
    Deliver,
    Directory,
    Frame,
    Install,
    Interest,
    Leave,
    Reply,
    Request,
    Reset,
    Withdrawn,
    decode,
    encode,
)
from hullcast.network.wire.logs import event_of
from tests.support.links import QUICK, Parent, running_dialer, running_listener, wait_until

LINK = LinkSettings(heartbeat_s=0.1, silence_s=1.5)


@asynccontextmanager
async def running_node(*parents: str, listen: str = "tcp://127.0.0.1:0", name: str = "node") -> AsyncIterator[Node]:
    node = Node(NodeSettings(listen=listen, parent=parents, name=name, link=LINK), Rights.everything())
    started = asyncio.Event()
    task = asyncio.create_task(node.run(started), name=f"test.{name}")
    await started.wait()
    try:
        yield node
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def fill(node: Node) -> None:
    """Let the way up be as full as it may be."""
    filler = encode(Request(0, (), None, bodies.encode(bodies.NodeReport({"filler": "x" * 500_000}))))
    small = encode(Request(0, (), None, bodies.encode(bodies.NodeReport({}))))
    for payload in (filler, small):
        with suppress(Overloaded):
            while True:
                node.dialer.send(payload)


def interests(parent: Parent) -> list[Interest]:
    return [frame for frame in map(decode, parent.frames) if isinstance(frame, Interest)]


async def test_a_node_without_a_name_is_called_by_host_and_port() -> None:
    async with running_listener(limits=QUICK) as (above, parent), running_node(above.endpoint, name="") as node:
        await wait_until(lambda: node.attached)
        assert f"tcp://{node.name}" == node.endpoint
        assert node.status()["name"] == node.name
        assert [peer.name for peer in parent.joined] == [node.name]
    named = Node(NodeSettings(advertise="tcp://db-2:7600"), Rights.everything())
    assert named.name == "db-2:7600"


async def test_a_full_way_up_loses_no_interest_and_ends_nobody() -> None:
    async with running_listener(limits=QUICK) as (above, parent), running_node(above.endpoint) as node:
        await wait_until(lambda: node.attached)
        async with running_dialer(node.endpoint, name="leaver"):
            await wait_until(lambda: node.children.peers)
            (number,) = node.children.peers
            points = np.tile([0.0, 9.0], (10, 1))
            parent.joined[0].send(encode(Reply(1, (number,), (Install(1, 5, "places", False, points),), b"")))
            await wait_until(lambda: node.children.router.channels() == (5,))
            fill(node)
            node.children.router.withdraw(number, 1)
            node._round(report=True)
            node.on_children_changed()
            node._round(report=False)
            assert node.skipped_reports == 2
            assert not interests(parent)
            await wait_until(lambda: interests(parent))
            assert [(told.channel, len(told.lows)) for told in interests(parent)] == [(5, 0)]


def heard(parent: Parent) -> list[Frame]:
    """All but reports."""
    found = list(map(decode, parent.frames))
    return [frame for frame in found if not isinstance(frame, Request) or frame.id]


def gone(parent: Parent) -> list[tuple[int, ...]]:
    """Which links the node said were gone, each time."""
    said = [bodies.decode(frame.body) for frame in map(decode, parent.frames) if isinstance(frame, Request)]
    return [body.links for body in said if isinstance(body, bodies.LinksGone)]


async def test_children_that_left_are_told_of_together_and_wait_while_the_way_up_is_full() -> None:
    async with running_listener(limits=QUICK) as (above, parent), running_node(above.endpoint) as node:
        await wait_until(lambda: node.attached)
        async with running_dialer(node.endpoint, name="one"), running_dialer(node.endpoint, name="other"):
            await wait_until(lambda: len(node.children.peers) == 2)
            numbers = tuple(node.children.peers)
            fill(node)
            for peer in list(node.children.peers.values()):
                node.children.on_leave(peer, "test")
            node._round(report=False)
            assert tuple(node._gone) == numbers
            await wait_until(lambda: gone(parent))
            assert gone(parent) == [numbers]
            assert not node._gone


async def test_very_many_children_that_left_are_told_of_in_several_frames_and_kept_in_bounds() -> None:
    async with running_listener(limits=QUICK) as (above, parent), running_node(above.endpoint) as node:
        await wait_until(lambda: node.attached)
        node._gone.extend(range(3 * MOST_GONE_KEPT))
        assert len(node._gone) == MOST_GONE_KEPT
        node._round(report=False)
        assert not node._gone
        await wait_until(lambda: sum(map(len, gone(parent))) == MOST_GONE_KEPT)
        assert max(map(len, gone(parent))) == bodies.MOST_GONE


def counted(group: int, points: int) -> Install:
    x = np.arange(float(points))
    return Install(group, 5, "places", False, np.column_stack((x, x + 1)), True)


async def test_withdrawn_points_pass_before_the_next_request_and_wait_while_the_way_up_is_full() -> None:
    async with running_listener(limits=QUICK) as (above, parent), running_node(above.endpoint) as node:
        await wait_until(lambda: node.attached)
        async with running_dialer(node.endpoint, name="leaver") as (dialer, child):
            await wait_until(lambda: node.children.peers)
            (number,) = node.children.peers
            parent.joined[0].send(encode(Reply(1, (number,), (counted(1, 3), counted(2, 2)), b"")))
            await wait_until(lambda: child.frames)
            dialer.send(encode(Leave(1, np.array([0, 2]))))
            dialer.send(encode(Request(7, (), None, b"next")))
            await wait_until(lambda: any(isinstance(frame, Request) for frame in heard(parent)))
            told, request = heard(parent)
            assert isinstance(told, Withdrawn)
            assert (told.channel, told.resets, told.lost, told.points.tolist()) == (5, 0, False, [[0, 1], [2, 3]])
            assert isinstance(request, Request)
            fill(node)
            node.children.router.withdraw(number, 2)
            node._round(report=True)
            assert node.children.router.withdrawals.points == 2
        await wait_until(lambda: sum(isinstance(frame, Withdrawn) for frame in heard(parent)) == 3)
        later = [frame for frame in heard(parent)[2:] if isinstance(frame, Withdrawn)]
        assert [(frame.lost, frame.points.tolist()) for frame in later] == [(False, [[0, 1], [1, 2]]), (True, [[1, 2]])]
        assert not interests(parent)


async def test_many_withdrawn_points_are_cut_to_what_the_parent_takes() -> None:
    little = replace(QUICK, message_bytes=2048)
    async with running_listener(limits=little) as (above, parent), running_node(above.endpoint) as node:
        await wait_until(lambda: node.attached)
        parent.joined[0].send(encode(Reply(1, (99,), (counted(1, 1000),), b"")))  # for a child that has gone
        await wait_until(lambda: sum(len(f.points) for f in heard(parent) if isinstance(f, Withdrawn)) == 1000)
        assert all(isinstance(frame, Withdrawn) and frame.lost for frame in heard(parent))
        assert max(map(len, parent.frames)) <= 2048


async def test_withdrawals_say_how_many_resets_came_before_them() -> None:
    async with running_listener(limits=QUICK) as (above, parent), running_node(above.endpoint) as node:
        await wait_until(lambda: node.attached)

        async def told(times: int) -> None:
            await wait_until(lambda: len(heard(parent)) == times)

        for resets in range(3):
            parent.joined[0].send(encode(Reply(1, (99,), (counted(1, 1),), b"")))
            await told(resets + 1)
            parent.joined[0].send(encode(Reset("overflow", "x")))
        assert [frame.resets for frame in heard(parent) if isinstance(frame, Withdrawn)] == [0, 1, 2]


async def test_what_comes_from_above_goes_down_in_the_same_turn_and_the_other_way_round() -> None:
    async with running_listener(limits=QUICK) as (above, _), running_node(above.endpoint) as node:
        await wait_until(lambda: node.attached)
        async with running_dialer(node.endpoint, name="below"):
            await wait_until(lambda: node.children.peers)
            (peer,) = node.children.peers.values()
            flown = peer.session.flown
            node.on_frame(encode(Directory(bytes(16), ((bytes(16), above.endpoint),), ())))
            assert peer.session.flown == flown  # there may be more
            node.on_quiet()
            assert peer.session.flown == flown + 1
            assert node.dialer._bond is not None
            flown = node.dialer._bond.session.flown
            node.on_request(peer, Request(1, (peer.number,), None, b""))
            assert node.dialer._bond.session.flown == flown
            node.on_quiet()
            assert node.dialer._bond.session.flown == flown + 1


async def test_children_that_come_at_the_same_time_are_reported_together() -> None:
    async with running_listener(limits=QUICK) as (above, parent), running_node(above.endpoint) as node:
        await wait_until(lambda: node.attached)
        async with AsyncExitStack() as children:
            for _ in range(50):
                await children.enter_async_context(running_dialer(node.endpoint, linked=False))
            await wait_until(lambda: [report["clients"] for report in reports(parent)][-1:] == [50])
            assert len(reports(parent)) < 25


def reports(parent: Parent) -> list[Mapping[str, object]]:
    requests = [frame for frame in map(decode, parent.frames) if isinstance(frame, Request)]
    found = [bodies.decode(request.body) for request in requests]
    return [body.node for body in found if isinstance(body, bodies.NodeReport)]


async def test_a_request_that_the_parent_does_not_take_is_answered_and_the_node_lives() -> None:
    async with (
        running_listener(limits=replace(QUICK, message_bytes=4096)) as (above, _),
        running_node(above.endpoint) as node,
    ):
        await wait_until(lambda: node.attached)
        async with running_dialer(node.endpoint) as (dialer, child):
            dialer.send(encode(Request(7, (), None, bytes(5000))))
            await wait_until(lambda: child.frames)
            reply = decode(child.frames[-1])
            assert isinstance(reply, Reply)
            failed = bodies.decode(reply.body)
            assert isinstance(failed, bodies.Failed)
            assert (reply.id, failed.code) == (7, "TooLarge")


class Nobody:
    """Answers no request."""

    def on_request(self, peer: Peer, request: Request) -> None:
        """Reports do not matter here."""

    def on_quiet(self) -> None:
        pass

    def on_children_changed(self) -> None:
        """Nor does who is there."""

    def on_gone(self, peer: Peer) -> None:
        """Nor who was."""


def free_endpoint() -> str:
    with sockets.create_server(("127.0.0.1", 0)) as server:
        return f"tcp://127.0.0.1:{server.getsockname()[1]}"


async def test_nodes_in_a_ring_dial_ever_less_often() -> None:
    one, other = free_endpoint(), free_endpoint()
    listener = Listener("tcp://127.0.0.1:*", limits=QUICK)
    server = Children(listener, Router(tells=False), Rights.everything(), Nobody())
    listener.start(server)
    server.tell_directory(Directory(bytes(16), ((bytes(16), listener.endpoint),), ()))
    async with (
        running_node(listener.endpoint, other, listen=one, name="one") as first,
        running_node(listener.endpoint, one, listen=other, name="other") as second,
    ):
        await wait_until(lambda: first.path and second.path)
        await listener.stop()  # each finds only the other
        await wait_until(lambda: first.reattached + second.reattached >= 2)
        before = first.dialer.statistics().attempts + second.dialer.statistics().attempts
        await asyncio.sleep(3.0)
        assert first.dialer.statistics().attempts + second.dialer.statistics().attempts - before < 35


async def test_a_node_passes_on_the_bytes_that_came() -> None:
    async with (
        running_listener(limits=QUICK) as (above, parent),
        running_node(above.endpoint) as node,
        running_dialer(node.endpoint) as (_, child),
    ):
        await wait_until(lambda: parent.joined and node.children.peers)
        (number,) = node.children.peers
        install = Install(1, 5, "rectangles", False, np.array([[4.0, 6.0]]))
        parent.joined[0].send(encode(Reply(1, (number,), (install,), b"")))
        sides = {name: np.array([value]) for name, value in (("il", 4.0), ("ir", 6.0), ("ol", 3.0), ("or", 7.0))}
        payload = encode(Deliver(10, {5: {"seq": np.array([10]), **sides, "best": np.array([1.0])}}))
        received = payload[:9] + b"\xcf" + (10).to_bytes(8) + payload[10:]  # as nobody here would encode it
        assert payload[9] == 10
        parent.joined[0].send(received)
        await wait_until(lambda: len(child.frames) >= 2)
        assert child.frames[1] == received


async def test_a_directory_with_an_endpoint_that_is_none_ends_no_node(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        running_listener(limits=QUICK) as (above, parent),
        running_node(above.endpoint) as node,
        running_dialer(node.endpoint) as (_, child),
    ):
        await wait_until(lambda: parent.joined and node.children.peers)
        bad = ((b"s" * 16, "tcp://nowhere"), (b"p" * 16, "tcp://127.0.0.1:0"))
        parent.joined[0].send(encode(Directory(bytes(16), bad, ())))
        await wait_until(lambda: child.frames)
        assert node.dialer.endpoints == (above.endpoint,)
        parent.joined[0].send(encode(Directory(bytes(16), ((b"s" * 16, "tcp://nowhere"), (node.id, "")), ())))
        await wait_until(lambda: node.reattached == 1)  # a ring, and the server's endpoint is of no use
        told = [event_of(line) for line in caplog.records if line.levelno == logging.WARNING]
        assert told[-2:] == ["parent lost", "attached"], "at the level of `hullcast up`"


async def test_groups_that_went_are_told_of_together_and_wait_while_the_way_up_is_full() -> None:
    async with running_listener(limits=QUICK) as (above, parent), running_node(above.endpoint) as node:
        await wait_until(lambda: node.attached)
        left = {("ann", channel): channel + 1 for channel in range(bodies.MOST_LEFT + 1)}
        fill(node)
        node.children.router.left.update(left)
        node._round(report=False)
        assert node.children.router.left == left
        await wait_until(lambda: not node.children.router.left)
        await wait_until(lambda: len(told(parent)) == 2)
        groups = [group for body in told(parent) for group in body.groups]
        assert {(owner, channel): count for owner, channel, count in groups} == left


def told(parent: Parent) -> list[bodies.Left]:
    said = [bodies.decode(frame.body) for frame in map(decode, parent.frames) if isinstance(frame, Request)]
    return [body for body in said if isinstance(body, bodies.Left)]


async def test_a_parent_that_sends_nonsense_loses_the_node_and_does_not_end_it() -> None:
    async with running_listener(limits=QUICK) as (above, parent), running_node(above.endpoint) as node:
        for times, frame in enumerate((Deliver(1, {5: {"x": np.zeros(1)}}), Deliver(1, {7: {}}))):
            await wait_until(lambda times=times: len(parent.joined) > times)  # type: ignore[misc]
            parent.joined[times].send(encode(frame))
        await wait_until(lambda: node.children.failures == 2 and len(parent.joined) == 3)
        await wait_until(lambda: node.attached)
