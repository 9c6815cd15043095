"""What a child does not take never costs it its link, and nobody else notices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hullcast.network.link.dialer import Dialer
from hullcast.network.link.listener import Listener
from hullcast.network.link.peer import Peer
from hullcast.network.node import children as children_module
from hullcast.network.node.children import Children
from hullcast.network.routing.router import Router
from hullcast.network.security.rights import Rights
from hullcast.network.wire import bodies
from hullcast.network.wire.columns import Columns
from hullcast.network.wire.errors import TooLarge, from_wire
from hullcast.network.wire.frames import (
    LONGEST_ROUTE,
    Advance,
    Deliver,
    Frame,
    Install,
    Interest,
    Origin,
    Reply,
    Request,
    Reset,
    decode,
    encode,
)
from hullcast.network.wire.limits import WireLimits
from tests.support.links import QUICK, Child, running_dialer, wait_until

LITTLE = replace(QUICK, message_bytes=4096)


class Above:
    """Takes note of requests."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def on_request(self, peer: Peer, request: Request) -> None:
        self.requests.append(request)

    def on_quiet(self) -> None:
        pass

    def on_children_changed(self) -> None:
        """Nothing depends on it here."""

    def on_gone(self, peer: Peer) -> None:
        """Nor on this."""


@asynccontextmanager
async def parent(router: Router) -> AsyncIterator[Children]:
    listener = Listener("tcp://127.0.0.1:*", limits=QUICK)
    children = Children(listener, router, Rights.everything(), Above())
    listener.start(children)
    try:
        yield children
    finally:
        await listener.stop()
    assert not listener.failed.done()


def dialing(children: Children, role: str, **options: Any) -> Any:
    return running_dialer(children.listener.endpoint, role=role, id=bytes(16), **options)


def heard(child: Child) -> list[Frame]:
    return [decode(payload) for payload in child.frames]


def install(group: int, channel: int, count: int = 1) -> Install:
    return Install(group, channel, "places", False, np.tile([0.0, 9.0], (count, 1)))


def messages(seq: int, count: int = 1) -> Columns:
    places = {"old.there": np.zeros(count, np.bool_), "new.there": np.ones(count, np.bool_)}
    return {"seq": np.full(count, seq), **places, "old.0": np.zeros(count), "new.0": np.ones(count)}


async def _number(children: Children, name: str) -> int:
    await wait_until(lambda: any(peer.name == name for peer in children.peers.values()))
    return next(peer.number for peer in children.peers.values() if peer.name == name)


async def test_of_many_clients_some_are_told_of_progress_at_a_time_and_nodes_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(children_module, "TOLD_AT_ONCE", 3)
    async with AsyncExitStack() as stack:
        children = await stack.enter_async_context(parent(Router()))
        told: dict[str, Child] = {}
        for name in ("node", *map(str, range(7))):
            role = "node" if name == "node" else "client"
            _, told[name] = await stack.enter_async_context(dialing(children, role, name=name))
        await wait_until(lambda: len(children.peers) == 8)

        async def rounds(through: int, count: int) -> dict[str, int]:
            children.through = through
            for _ in range(count):
                children.tell_progress()
            sent = sum(peer.session.sent for peer in children.peers.values())
            await wait_until(lambda: sum(len(child.frames) for child in told.values()) == sent)
            last = {name: heard(child)[-1:] for name, child in told.items()}
            return {name: frame[0].through for name, frame in last.items() if frame and isinstance(frame[0], Advance)}

        assert len(first := await rounds(10, 1)) == 4
        assert first["node"] == 10
        assert (await rounds(11, 1))["node"] == 11
        assert len(await rounds(11, 1)) == 8  # the lap ends, with where we are by now
        assert set((await rounds(12, 3)).values()) == {12}  # those told at its beginning are told again
        before = sum(len(child.frames) for child in told.values())
        await rounds(12, 5)
        assert sum(len(child.frames) for child in told.values()) == before


@pytest.mark.parametrize("role", ["client", "node"])
async def test_a_reply_that_a_child_does_not_take_becomes_an_error(role: str) -> None:
    router = Router()
    async with parent(router) as children, dialing(children, role, name="little", limits=LITTLE) as (_, child):
        number = await _number(children, "little")
        children.answer(Reply(7, (number,), (install(1, 5, 500),), b"x"))
        await wait_until(lambda: child.frames)
        (reply,) = heard(child)
        assert isinstance(reply, Reply)
        assert (reply.id, reply.installs) == (7, ())
        failed = bodies.decode(reply.body)
        assert isinstance(failed, bodies.Failed)
        assert isinstance(from_wire(failed.code, failed.arguments), TooLarge)
        assert not child.downs
        assert router.channels() == ()
        assert router.heard == 1  # the parent above has counted it
        (interest,) = router.interests()  # and is told that nobody wants it
        assert (interest.channel, len(interest.lows)) == (5, 0)
        assert children.status()["too_large"] == 1


@pytest.mark.parametrize("role", ["client", "node"])
async def test_an_update_larger_than_a_frame_resets_the_child_and_nobody_else(role: str) -> None:
    router = Router()
    async with (
        parent(router) as children,
        dialing(children, role, name="little", limits=LITTLE) as (_, little),
        dialing(children, role, name="other") as (_, other),
    ):
        numbers = [await _number(children, name) for name in ("little", "other")]
        for number in numbers:
            children.answer(Reply(1, (number,), (install(1, 5), install(2, 6)), b""))
        children.deliver(10, {5: messages(10, 1000)})
        children.deliver(11, {5: messages(11), 6: messages(11)})
        await wait_until(lambda: len(other.frames) == 3)
        await wait_until(lambda: len(little.frames) == 2)
        reset = heard(little)[1]
        assert isinstance(reset, Reset)
        assert reset.code == "overflow"
        assert [type(frame) for frame in heard(other)] == [Reply, Deliver, Deliver]
        assert {held.peer for held in router.statistics().held} == {numbers[1]}
        children.answer(Reply(2, (numbers[0],), (install(1, 5),), b""))
        children.deliver(12, {5: messages(12)})
        await wait_until(lambda: len(little.frames) == 4)
        assert isinstance(heard(little)[3], Deliver)
        assert not little.downs
        router.check()


async def test_replies_are_counted_on_across_a_reset_so_that_old_interests_keep_back_nothing() -> None:
    router = Router()
    dialer: Dialer
    async with parent(router) as children, dialing(children, "node", name="little", limits=LITTLE) as (dialer, child):
        number = await _number(children, "little")
        children.answer(Reply(1, (number,), (install(1, 5),), b""))
        children.deliver(10, {5: messages(10, 1000)})
        children.answer(Reply(2, (number,), (install(2, 5),), b""))
        nothing = np.empty((0, 2))
        dialer.send(encode(Interest(5, 1, nothing, nothing)))  # of before the reset: it knows the first reply only
        dialer.send(encode(Request(1, (), None, b"")))
        above: Any = children._upward
        await wait_until(lambda: above.requests)
        children.deliver(11, {5: messages(11)})
        await wait_until(lambda: isinstance(heard(child)[-1], Deliver))


async def test_a_route_as_long_as_it_may_be_is_not_made_longer() -> None:
    async with parent(Router()) as children, dialing(children, "node", name="loop") as (dialer, child):
        dialer.send(encode(Request(1, tuple(range(LONGEST_ROUTE)), Origin(None, "x"), b"")))
        await wait_until(lambda: child.downs)
        assert child.downs[0].startswith("protocol")


async def test_a_child_that_takes_next_to_nothing_does_not_end_its_parent() -> None:
    async with parent(Router()) as children:
        children.reset("moved", "x" * 2000, fresh_link=True)
        async with dialing(children, "client", name="tiny", limits=replace(QUICK, message_bytes=1024)) as (_, child):
            await _number(children, "tiny")
            children.reset("moved", "x" * 2000, fresh_link=True)
            await wait_until(lambda: child.downs)
            assert child.downs[0].startswith("protocol")


async def test_children_that_want_the_same_rows_share_one_frame_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[Deliver] = []

    def counting(frame: Deliver) -> bytes:
        encoded.append(frame)
        return encode(frame)

    router = Router()
    names = ["all", "all too", "half", "half too", "other half"]
    async with parent(router) as children, AsyncExitStack() as dialers:
        below = [(await dialers.enter_async_context(dialing(children, "client", name=name)))[1] for name in names]
        numbers = [await _number(children, name) for name in names]
        for number, (low, high) in zip(
            numbers, [(0.0, 9.0), (0.0, 9.0), (0.0, 4.0), (0.0, 4.0), (5.0, 9.0)], strict=True
        ):
            points = np.array([[low, high]])
            children.answer(Reply(1, (number,), (Install(1, 5, "places", False, points),), b""))
        columns = messages(10, 4) | {"new.0": np.array([1.0, 2.0, 6.0, 7.0])}
        monkeypatch.setattr(children_module, "encode", counting)
        children.deliver(10, {5: columns})
        sent = [children.peers[number].session._waiting[-1] for number in numbers]
        assert sent[0] is sent[1]
        assert sent[2] is sent[3]
        assert [len(frame.channels[5]["seq"]) for frame in encoded] == [4, 2, 2]
        await wait_until(lambda: all(len(child.frames) == 2 for child in below))
        heard_places = [frame.channels[5]["new.0"] for frame in map(last_deliver, below)]
        assert [np.asarray(places).tolist() for places in heard_places] == [
            [1.0, 2.0, 6.0, 7.0], [1.0, 2.0, 6.0, 7.0], [1.0, 2.0], [1.0, 2.0], [6.0, 7.0],
        ]  # fmt: skip


async def test_what_no_frame_holds_is_encoded_once_for_all_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[Frame] = []

    def little(frame: Frame) -> bytes:
        tried.append(frame)
        return encode(frame, WireLimits(frame_bytes=10_000))

    async with parent(Router()) as children, AsyncExitStack() as dialers:
        names = ["a", "b", "c"]
        below = [(await dialers.enter_async_context(dialing(children, "client", name=name)))[1] for name in names]
        for name in names:
            children.answer(Reply(1, (await _number(children, name),), (install(1, 5),), b""))
        monkeypatch.setattr(children_module, "encode", little)
        children.deliver(10, {5: messages(10, 1000)})
        assert [type(frame) for frame in tried] == [Deliver, Reset, Reset, Reset]
        await wait_until(lambda: all(len(child.frames) == 2 for child in below))
        assert all(isinstance(heard(child)[1], Reset) for child in below)


async def test_received_bytes_go_on_as_they_are_to_a_child_that_wants_all(monkeypatch: pytest.MonkeyPatch) -> None:
    router = Router()
    async with (
        parent(router) as children,
        dialing(children, "node", name="all") as (_, everything),
        dialing(children, "client", name="some") as (_, some),
    ):
        whole, part = await _number(children, "all"), await _number(children, "some")
        children.answer(Reply(1, (whole,), (install(1, 5), install(2, 6)), b""))
        children.answer(Reply(1, (part,), (install(1, 5),), b""))
        payload = encode(Deliver(10, {5: messages(10), 6: messages(10)}))
        # the same frame in bytes that nobody here writes (10 in nine bytes), so that encoding it again would show
        assert payload[9] == 10
        received = payload[:9] + b"\xcf" + (10).to_bytes(8) + payload[10:]
        frame = decode(received)
        assert isinstance(frame, Deliver)
        children.deliver(frame.through, frame.channels, received)
        assert children.peers[whole].session._waiting[-1] is received
        monkeypatch.setattr(children_module, "encode", None)  # whoever wants all of a frame needs none
        children.deliver(11, {5: messages(11)}, alone := encode(Deliver(11, {5: messages(11)})))
        assert children.peers[whole].session._waiting[-1] is children.peers[part].session._waiting[-1] is alone
        await wait_until(lambda: len(everything.frames) == len(some.frames) == 3)
        assert everything.frames[1:] == [received, alone]
        assert some.frames[1:] == [encode(Deliver(10, {5: messages(10)})), alone]


def last_deliver(child: Child) -> Deliver:
    frame = heard(child)[-1]
    assert isinstance(frame, Deliver)
    return frame
