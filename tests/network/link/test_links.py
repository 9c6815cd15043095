"""Listener and dialer over real sockets: order, exactly once, isolation, strangers, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import re
import socket as sockets
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import msgpack  # type: ignore[import-untyped]  # has no types
import pytest
import zmq

from hullcast.network.link.connections import Connections, raise_open_files
from hullcast.network.link.dialer import Dialer
from hullcast.network.link.header import (
    BUNDLE_BYTES,
    BUNDLE_FRAMES,
    VERSION,
    Ack,
    Bye,
    Data,
    Hello,
    Resend,
    Welcome,
    decode,
    encode,
    read_data,
)
from hullcast.network.link.limits import ACK_BYTES, BUSY_HANDSHAKES, HEARTBEATS_PER_S, LinkLimits
from hullcast.network.link.listener import Listener
from hullcast.network.link.peer import Peer
from hullcast.network.link.socket import (
    MOST_SOCKETS,
    SOCKETS_PER_DIALER,
    EventSocket,
    LinkContext,
    Message,
    bound_endpoint,
    open_dealer,
    open_router,
    stop_monitor,
)
from hullcast.network.security.curve import Curve
from hullcast.network.security.keys import make_pair
from hullcast.network.wire.errors import BadFrame, BadSetting, ConnectionLost, Overloaded, TooLarge
from tests.support.links import QUICK, Child, Parent, descriptors, running_dialer, running_listener, wait_until
from tests.support.proxy import running_proxy

ENDPOINTS = ["tcp://127.0.0.1:*", "inproc://links"]
HELLO = Hello(bytes(16), -1, "client", "raw", b"", None, 1 << 20)


Opener = Callable[[str], "zmq.Socket[bytes]"]


@pytest.fixture
def stranger() -> Iterator[Opener]:
    """Opens sockets that are no links."""
    opened: list[zmq.Socket[bytes]] = []

    def connect(endpoint: str) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = LinkContext.instance().socket(zmq.DEALER)
        opened.append(socket)
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RECONNECT_IVL, -1)
        socket.connect(endpoint)
        return socket

    yield connect
    for socket in opened:
        socket.close()


async def answer(socket: zmq.Socket[bytes]) -> list[bytes]:
    await wait_until(lambda: socket.poll(0))
    return socket.recv_multipart()


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_frames_go_both_ways_in_order(endpoint: str) -> None:
    async with running_listener(endpoint, echo=True) as (listener, parent), running_dialer(listener.endpoint) as (d, c):
        payloads = [b"%d" % n for n in range(3000)]
        for payload in payloads:
            d.send(payload)
        await wait_until(lambda: len(c.frames) == len(payloads))
        assert parent.frames == c.frames == payloads
        assert c.ups[0][1]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_large_frames_arrive_whole(endpoint: str) -> None:
    async with running_listener(endpoint, echo=True) as (listener, _), running_dialer(listener.endpoint) as (d, c):
        payloads = [os.urandom(size) for size in (0, 1, 200_000, 5_000_000, 12_000_000)]
        for payload in payloads:
            d.send(payload)
        await wait_until(lambda: len(c.frames) == len(payloads))
        assert c.frames == payloads


async def test_both_ends_know_each_other() -> None:
    async with running_listener(welcome=lambda: {"epoch": b"e"}) as (listener, parent):
        options: dict[str, Any] = {
            "role": "node",
            "name": "gate",
            "id": bytes(range(16)),
            "listen": "tcp://127.0.0.1:9",
        }
        async with running_dialer(listener.endpoint, **options) as (_, child):
            (peer,) = parent.joined
            assert (peer.role, peer.name, peer.id, peer.listen) == tuple(options.values())
            assert peer.key is None
            assert child.ups == [({"epoch": b"e", "number": peer.number, "heartbeat_s": 0.1, "silence_s": 1.5}, True)]
        await wait_until(lambda: parent.left)
        assert parent.left == [(peer, "leaving: the child stops")]
        assert listener.statistics().left == {"leaving": 1}


async def test_cut_connections_lose_and_repeat_nothing_under_load() -> None:
    async with (
        running_listener(echo=True) as (listener, parent),
        running_proxy(listener.endpoint) as proxy,
        running_dialer(proxy.endpoint) as (dialer, child),
    ):
        sent: list[bytes] = []
        for round_number in range(10):
            for n in range(60):
                payload = b"%d " % len(sent) + bytes(n % 7 * 30_000)
                await dialer.wait_writable()
                dialer.send(payload)
                sent.append(payload)
            goal = (round_number * 60) + 20
            await wait_until(lambda goal=goal: len(child.frames) >= goal)  # type: ignore[misc]  # mypy: default
            ups = len(child.ups)
            proxy.cut()
            await wait_until(lambda ups=ups: len(child.ups) > ups)  # type: ignore[misc]
        await wait_until(lambda: len(child.frames) == len(sent))
        assert parent.frames == sent
        assert child.frames == sent
        assert [fresh for _, fresh in child.ups] == [True] + [False] * 10
        assert len(parent.joined) == 1
        assert not parent.left


async def welcomed(socket: zmq.Socket[bytes]) -> None:
    """Say hello, and hear welcome."""
    socket.send(encode(HELLO))
    await answer(socket)


async def test_frames_of_one_turn_travel_in_few_messages(stranger: Opener) -> None:
    async with running_listener() as (listener, parent):
        socket = stranger(listener.endpoint)
        await welcomed(socket)
        large = bytes(2 * BUNDLE_BYTES)
        sent = [b"%d" % n for n in range(2 * BUNDLE_FRAMES)] + [large] + [b"last", b""]
        for payload in sent:
            parent.joined[0].send(payload)
        got = [read_data(await answer(socket), 1 << 20) for _ in range(4)]
        assert [payload for _, _, payloads in got for payload in payloads] == sent
        assert [seq for seq, _, _ in got] == [1, BUNDLE_FRAMES + 1, 2 * BUNDLE_FRAMES + 1, 2 * BUNDLE_FRAMES + 2]


async def test_both_ends_are_told_when_all_that_came_was_handed_over() -> None:
    async with running_listener(echo=True) as (listener, parent), running_dialer(listener.endpoint) as (dialer, child):
        await dialer.wait_writable()
        assert not child.quiets
        for n in range(100):
            dialer.send(b"%d" % n)
        await wait_until(lambda: child.quiets and child.quiets[-1] == 100)
        assert parent.quiets == child.quiets == [100]  # they came in one message


async def test_what_is_sent_when_all_was_handed_over_leaves_in_the_same_turn(stranger: Opener) -> None:
    async with running_listener() as (listener, parent):
        socket = stranger(listener.endpoint)
        await welcomed(socket)

        def answer_all() -> None:
            asyncio.get_running_loop().call_soon(parent.joined[0].send, b"the next turn")
            for payload in parent.frames:
                parent.joined[0].send(payload)

        parent.on_quiet = answer_all  # type: ignore[method-assign]
        socket.send_multipart([encode(Data(1, 0, (1, 1, 1))), b"abc"])
        assert read_data(await answer(socket), 100) == (1, 3, [b"a", b"b", b"c"])
        assert read_data(await answer(socket), 100) == (4, 3, (b"the next turn",))


@pytest.mark.parametrize("side", ["listener", "dialer"])
async def test_an_error_of_the_handler_after_the_last_frame_reaches_the_owner(side: str) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    async with running_listener(echo=True) as (listener, parent):
        dialer, child = Dialer([listener.endpoint], role="client", name="x", limits=QUICK), Child()
        dialer.start(child)
        await wait_until(lambda: child.ups)
        (parent if side == "listener" else child).on_quiet = fail  # type: ignore[method-assign]
        dialer.send(b"now")
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(10):
                await (listener if side == "listener" else dialer).failed
        await dialer.stop()
        listener.failed = asyncio.get_running_loop().create_future()


async def test_what_was_sent_before_the_end_arrives_before_it() -> None:
    async with running_listener() as (listener, parent):
        async with running_dialer(listener.endpoint) as (dialer, child):
            parent.joined[0].send(b"last words")
            parent.joined[0].close("moved", "elsewhere")
            await wait_until(lambda: child.downs)
            assert child.frames == [b"last words"]
            await wait_until(lambda: len(child.ups) == 2)
            dialer.send(b"mine")
            await dialer.stop()
        await wait_until(lambda: parent.frames == [b"mine"])


@pytest.mark.parametrize("size", [50, 300, 1000, 2500, 4000])
async def test_a_bundle_cut_in_the_middle_comes_whole_and_once(size: int) -> None:
    async with (
        running_listener(echo=True) as (listener, parent),
        running_proxy(listener.endpoint) as proxy,
        running_dialer(proxy.endpoint) as (dialer, child),
    ):
        sent = [b"%04d" % n + bytes(n % 50) for n in range(BUNDLE_FRAMES)]  # in all 4 KB, one message
        proxy.cut_after(size)
        for payload in sent:
            dialer.send(payload)
        await wait_until(lambda: len(child.frames) == len(sent))
        assert parent.frames == child.frames == sent
        assert [fresh for _, fresh in child.ups] == [True, False]


@pytest.mark.parametrize(
    "message",
    [
        [encode(Data(1, 0, (1, 2))), b"four"],
        [encode(Data(1, 0, (2**32 - 1, 5))), b"four"],
        [encode(Data(1, 0)) + bytes(4 * (BUNDLE_FRAMES + 1)), b""],
        [encode(Data(1, 0)) + b"xyz", b"four"],
        [encode(Data(1, 0, (BUNDLE_BYTES, 1))), bytes(BUNDLE_BYTES + 1)],
        [encode(Data(1, 0, (1, 1)))],
        [encode(Data(1, 0)), b"one", b"two"],
        [encode(Data(1, 1, (1, 1))), b"ab"],
        [encode(Ack(0, 0)), b"payload"],
        [b"\x01"],
        [b"\x02"],
    ],
)
async def test_a_peer_that_sends_a_broken_bundle_is_closed(stranger: Opener, message: list[bytes]) -> None:
    async with running_listener(echo=True) as (listener, parent), running_dialer(listener.endpoint) as (d, c):
        socket = stranger(listener.endpoint)
        await welcomed(socket)
        socket.send_multipart(message)
        await wait_until(lambda: parent.left)
        assert parent.left[0][1].startswith("protocol")
        bye = decode((await answer(socket))[0])
        assert isinstance(bye, Bye)
        d.send(b"unhurt")
        await wait_until(lambda: c.frames == [b"unhurt"])


async def test_a_parent_that_was_restarted_is_dialed_again_at_once() -> None:
    patient = replace(QUICK, backoff_s=600.0, backoff_most_s=600.0)
    async with (
        running_listener() as (before, _),
        running_listener() as (after, parent),
        running_proxy(before.endpoint) as proxy,
        running_dialer(proxy.endpoint, limits=patient) as (_, child),
    ):
        proxy.retarget(after.endpoint)
        proxy.cut()
        await wait_until(lambda: len(child.ups) == 2)
        assert child.ups[1][1]  # fresh: the one that answers knows nothing of the session
        assert after.statistics().refused == {"unknown": 1}
        assert len(parent.joined) == 1


async def test_a_stalled_connection_is_noticed_and_resumed() -> None:
    async with (
        running_listener() as (listener, parent),
        running_proxy(listener.endpoint) as proxy,
        running_dialer(proxy.endpoint) as (dialer, child),
    ):
        proxy.stall()
        dialer.send(b"held")
        await wait_until(lambda: child.downs)
        assert dialer.state == "interrupted"
        dialer.send(b"meanwhile")
        proxy.cut()
        proxy.resume()
        await wait_until(lambda: len(child.ups) == 2)
        await wait_until(lambda: len(parent.frames) == 2)
        assert parent.frames == [b"held", b"meanwhile"]
        assert not child.ups[1][1]


async def test_a_child_that_stays_away_leaves_and_comes_back_fresh() -> None:
    async with (
        running_listener() as (listener, parent),
        running_proxy(listener.endpoint) as proxy,
        running_dialer(proxy.endpoint) as (dialer, child),
    ):
        proxy.refuse()
        proxy.cut()
        await wait_until(lambda: parent.left)
        assert parent.left[0][1].startswith("silent")
        proxy.refuse(False)
        await wait_until(lambda: len(child.ups) == 2)
        assert child.ups[1][1]
        assert [peer.number for peer in parent.joined] == [1, 2]
        dialer.send(b"again")
        await wait_until(lambda: parent.frames == [b"again"])


async def test_without_a_session_send_says_so() -> None:
    async with running_listener() as (listener, _):
        dialer = Dialer([listener.endpoint], role="client", name="x", limits=QUICK)
        with pytest.raises(ConnectionLost):
            dialer.send(b"too early")
        with pytest.raises(ConnectionLost):
            await dialer.wait_writable()


@pytest.mark.parametrize("scheme", ["tcp", "inproc"])
async def test_the_next_parent_takes_over_when_one_stops(scheme: str) -> None:
    first, second = ("tcp://127.0.0.1:*",) * 2 if scheme == "tcp" else ("inproc://first", "inproc://second")
    async with running_listener(second) as (other, other_parent):
        listener, parent = Listener(first, limits=QUICK), Parent()
        listener.start(parent)
        async with running_dialer(listener.endpoint, other.endpoint) as (dialer, child):
            assert dialer.endpoint == listener.endpoint
            await listener.stop()
            await wait_until(lambda: len(child.ups) == 2)
            assert dialer.endpoint == other.endpoint
            assert child.downs == ["leaving: it stops"]
            assert child.ups[1][1]
            dialer.send(b"here now")
            await wait_until(lambda: other_parent.frames == [b"here now"])


async def test_redial_moves_to_another_parent() -> None:
    async with (
        running_listener() as (one, parent),
        running_listener() as (two, other),
        running_dialer(one.endpoint) as (dialer, child),
    ):
        dialer.endpoints = [two.endpoint, one.endpoint]
        dialer.redial()
        await wait_until(lambda: other.joined)
        await wait_until(lambda: parent.left)
        await wait_until(lambda: len(child.ups) == 2)
        dialer.redial(one.endpoint)
        await wait_until(lambda: len(parent.joined) == 2)


async def test_a_slow_peer_is_closed_and_hurts_nobody(stranger: Opener) -> None:
    limits = replace(QUICK, window_bytes=ACK_BYTES, queue_bytes=4 * ACK_BYTES, silence_s=20.0)
    async with running_listener(limits=limits) as (listener, parent), running_dialer(listener.endpoint) as (_, child):
        slow = stranger(listener.endpoint)
        slow.send(encode(HELLO))  # and never acknowledges anything
        await wait_until(lambda: len(parent.joined) == 2)
        payload = bytes(100_000)
        for n in range(100):
            for peer in parent.joined:
                peer.send(payload)
            await wait_until(lambda n=n: len(child.frames) == n + 1)  # type: ignore[misc]
        await wait_until(lambda: parent.left)
        assert [(peer.name, why.split(":")[0]) for peer, why in parent.left] == [("raw", "slow")]
        assert listener.statistics().left == {"slow": 1}
        await wait_until(lambda: listener.statistics().connections == 1)  # its connection is cut too


async def test_an_eager_child_is_held_back() -> None:
    limits = replace(QUICK, window_bytes=ACK_BYTES, queue_bytes=4 * ACK_BYTES)
    async with (
        running_listener() as (listener, parent),
        running_dialer(listener.endpoint, limits=limits) as (dialer, _),
    ):
        payload = bytes(100_000)
        for _ in range(4 * ACK_BYTES // len(payload)):
            dialer.send(payload)
        with pytest.raises(Overloaded):
            dialer.send(payload)
        async with asyncio.timeout(10):
            await dialer.wait_writable()
        dialer.send(b"last")
        await wait_until(lambda: parent.frames and parent.frames[-1] == b"last")


async def test_a_paused_child_takes_nothing_and_misses_nothing() -> None:
    async with running_listener() as (listener, parent), running_dialer(listener.endpoint) as (dialer, child):
        dialer.pause()
        sent = [b"%d" % n for n in range(500)]
        for payload in sent:
            parent.joined[0].send(payload)
        dialer.send(b"still speaking")
        await wait_until(lambda: parent.frames)
        loop = asyncio.get_running_loop()
        until = loop.time() + 2 * QUICK.silence_s
        await wait_until(lambda: loop.time() > until)  # alive all the while, on both sides
        assert not child.frames
        assert not child.downs
        assert not parent.left
        dialer.resume()
        await wait_until(lambda: child.frames == sent)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ([b"garbage"], "protocol"),
        ([b""], "protocol"),
        ([encode(HELLO), b"x", b"y"], "protocol"),
        ([b"x"] * 50, "protocol"),
        ([encode(Data(1, 0)), b"no hello before"], "protocol"),
        ([bytes(100_000)], "protocol"),
        ([msgpack.packb([VERSION + 1, "hello", {}])], "version"),
        ([msgpack.packb([VERSION - 1, "hello", HELLO._asdict()])], "version"),
        ([encode(HELLO._replace(received=7))], "unknown"),
    ],
)
@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_a_stranger_is_told_why_and_cut(endpoint: str, message: list[bytes], code: str, stranger: Opener) -> None:
    async with running_listener(endpoint, echo=True) as (listener, parent), running_dialer(listener.endpoint) as (d, c):
        socket = stranger(listener.endpoint)
        for _ in range(3):
            socket.send_multipart(message)
        bye = decode((await answer(socket))[0])
        assert isinstance(bye, Bye)
        assert bye.code == code
        if code == "version":
            assert re.fullmatch(
                f"this side has protocol version {VERSION}, the other side "
                f"({VERSION - 1}; upgrade the other|{VERSION + 1}; upgrade this) side",
                bye.text,
            )
        await wait_until(lambda: listener.statistics().ignored == 2)  # told once
        assert listener.statistics().refused == {code: 1}
        if endpoint.startswith("tcp"):
            await wait_until(lambda: listener.statistics().cut == 1)
        d.send(b"unhurt")
        await wait_until(lambda: c.frames == [b"unhurt"])
        assert len(parent.joined) == 1


async def test_a_message_beyond_the_limit_ends_its_connection(stranger: Opener) -> None:
    async with (
        running_listener(limits=replace(QUICK, message_bytes=2048)) as (listener, parent),
        running_dialer(listener.endpoint) as (dialer, _),
    ):
        with pytest.raises(TooLarge):
            dialer.send(bytes(2049))  # what the parent accepts is known here
        dialer.send(bytes(2048))
        await wait_until(lambda: parent.frames == [bytes(2048)])
        socket = stranger(listener.endpoint)
        socket.send(encode(HELLO))
        await answer(socket)
        socket.send_multipart([encode(Data(1, 0)), bytes(5000)])
        await wait_until(lambda: parent.left)
        assert parent.left[0][0].name == "raw"
        assert parent.left[0][1].startswith("silent")


async def test_a_peer_that_breaks_the_protocol_is_closed(stranger: Opener) -> None:
    async with running_listener() as (listener, parent):
        socket = stranger(listener.endpoint)
        socket.send(encode(HELLO))
        await answer(socket)
        socket.send(encode(HELLO))
        await wait_until(lambda: parent.left)
        assert parent.left[0][1].startswith("protocol")
        assert isinstance(decode((await answer(socket))[0]), Bye)


def test_whoever_was_told_bye_is_cut_while_others_keep_the_listener_busy() -> None:
    """Or one that never stops sending would never be: not all that came is ever read."""
    connections = Connections(strangers_most=10, handshake_s=9.0)
    with sockets.create_server(("127.0.0.1", 0)) as server:
        pairs = []
        for _ in range(2):
            dialed = sockets.create_connection(server.getsockname())
            pairs.append((dialed, server.accept()[0]))
        (stranger, to_stranger), (told, to_told) = pairs
        for accepted in (to_stranger, to_told):
            event = struct.pack("=hi", zmq.Event.ACCEPTED, accepted.fileno())
            connections.apply(Message(zmq.Frame(event), []), 0.0)
        connections.expel(to_told.fileno(), 0.5)
        connections.sweep(0.4, all_read=True)
        assert connections.cut == 0
        connections.sweep(9.0, all_read=False)  # the stranger's HELLO may be unread
        assert connections.cut == 1
        assert told.recv(1) == b""
        connections.sweep(9.0, all_read=True)
        assert connections.cut == 2
        assert stranger.recv(1) == b""
        for dialed, accepted in pairs:
            dialed.close()
            accepted.close()


async def test_connections_that_say_nothing_are_cut(stranger: Opener) -> None:
    limits = replace(QUICK, handshake_s=0.3, strangers=5)
    async with running_listener(limits=limits) as (listener, _):
        host, _, port = listener.endpoint.removeprefix("tcp://").rpartition(":")
        half_open = [sockets.create_connection((host, int(port))) for _ in range(20)]  # more than may wait
        silent = stranger(listener.endpoint)  # a whole handshake, and then nothing
        try:
            await wait_until(lambda: listener.statistics().cut >= 15)
            await wait_until(lambda: listener.statistics().connections == 0 or silent.poll(0))
        finally:
            for connection in half_open:
                connection.close()
        async with running_dialer(listener.endpoint):
            assert listener.statistics().peers == 1


async def test_beyond_the_limit_of_peers_newcomers_are_refused() -> None:
    async with (
        running_listener(limits=replace(QUICK, peers=1)) as (listener, _),
        running_dialer(listener.endpoint),
        running_dialer(listener.endpoint, linked=False) as (dialer, _),
    ):
        await wait_until(lambda: listener.statistics().refused.get("full", 0) >= 2)
        assert dialer.state == "down"
        assert listener.statistics().peers == 1


async def test_a_session_cannot_be_taken_over_by_a_chosen_name(stranger: Opener) -> None:
    async with running_listener() as (listener, _):
        socket = stranger("inproc://nobody")
        socket.set(zmq.ROUTING_ID, b"chosen")
        socket.disconnect("inproc://nobody")
        socket.connect(listener.endpoint)
        socket.send(encode(HELLO))
        assert isinstance(decode((await answer(socket))[0]), Bye)


async def test_a_peer_error_of_the_handler_closes_only_that_peer() -> None:
    def refuse(peer: Peer, payload: bytes) -> None:
        if payload == b"bad":
            raise BadFrame("this one")

    async with running_listener(echo=True) as (listener, parent):
        parent.act = refuse
        async with (
            running_dialer(listener.endpoint) as (bad, bad_child),
            running_dialer(listener.endpoint) as (good, c),
        ):
            bad.send(b"bad")
            await wait_until(lambda: bad_child.downs)
            assert bad_child.downs[0].startswith("protocol: malformed frame: this one")
            good.send(b"good")
            await wait_until(lambda: c.frames == [b"good"])
            assert not c.downs


@pytest.mark.parametrize("side", ["listener", "dialer"])
async def test_any_other_error_of_the_handler_reaches_the_owner(side: str) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    async with running_listener(echo=True) as (listener, parent):
        dialer, child = Dialer([listener.endpoint], role="client", name="x", limits=QUICK), Child()
        dialer.start(child)
        await wait_until(lambda: child.ups)
        (parent if side == "listener" else child).act = fail
        dialer.send(b"now")
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(10):
                await (listener if side == "listener" else dialer).failed
        await dialer.stop()
        listener.failed = asyncio.get_running_loop().create_future()


async def test_a_peer_can_be_closed_and_sent_to_without_harm() -> None:
    async with running_listener() as (listener, parent), running_dialer(listener.endpoint) as (_, child):
        (peer,) = parent.joined
        peer.close("moved", "elsewhere")
        peer.send(b"into the void")
        peer.close("moved", "again")
        assert not parent.left  # told at the loop's next turn, not from inside the call
        await wait_until(lambda: child.downs == ["moved: elsewhere"])
        await wait_until(lambda: parent.left == [(peer, "moved: elsewhere")])
        await wait_until(lambda: len(child.ups) == 2)
        assert parent.joined[1].number > peer.number


async def test_many_children_at_once() -> None:
    async with running_listener(echo=True, limits=LinkLimits()) as (listener, parent):
        async with asyncio.TaskGroup() as tasks:

            async def visit(n: int) -> None:
                async with running_dialer(listener.endpoint, name=str(n), limits=LinkLimits()) as (dialer, child):
                    for i in range(20):
                        dialer.send(b"%d %d" % (n, i))
                    await wait_until(lambda: len(child.frames) == 20)
                    assert child.frames == [b"%d %d" % (n, i) for i in range(20)]

            for n in range(50):
                tasks.create_task(visit(n), name=f"visit.{n}")
        await wait_until(lambda: len(parent.left) == 50)


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:*", "inproc://nothing-left"])
async def test_nothing_is_left_after_stop(endpoint: str) -> None:
    async with (
        running_listener("inproc://warm") as (listener, parent),
        running_dialer(listener.endpoint) as (dialer, _),
    ):
        dialer.send(bytes(1 << 20))  # the process' own threads: ZeroMQ's, and pyzmq's for shared payloads
        await wait_until(lambda: parent.frames)
    await asyncio.sleep(0)
    tasks = asyncio.all_tasks()
    loop = asyncio.get_running_loop()
    readers = set(loop._selector.get_map())  # type: ignore[attr-defined]  # asyncio offers no other way to see them
    before = descriptors()
    async with (
        running_listener(endpoint, echo=True) as (listener, _),
        running_dialer(listener.endpoint) as (dialer, child),
        running_dialer("tcp://127.0.0.1:1", linked=False),
    ):
        dialer.send(bytes(200_000))
        await wait_until(lambda: child.frames)
    assert asyncio.all_tasks() == tasks
    assert set(loop._selector.get_map()) == readers  # type: ignore[attr-defined]
    await wait_until(lambda: len(descriptors()) <= len(before))  # ZeroMQ's reaper thread closes them


@pytest.mark.parametrize(
    "endpoint", ["tcp://*:0", "tcp://0.0.0.0:*", "tcp://10.0.0.1:5", "udp://x:1", "nonsense", "tcp://"]
)
def test_endpoints_that_are_not_safe_are_refused(endpoint: str) -> None:
    with pytest.raises(BadSetting):
        Listener(endpoint)
    with pytest.raises(BadSetting):
        Dialer([endpoint], role="client", name="x")


@pytest.mark.parametrize("secured", [False, True])
async def test_an_address_in_use_is_refused_and_nothing_is_left(secured: bool) -> None:
    public, secret = zmq.curve_keypair()
    curve = Curve(public.decode(), secret.decode()) if secured else None
    async with running_listener() as (listener, _):
        await asyncio.sleep(0)
        before, readers = descriptors(), set(asyncio.get_running_loop()._selector.get_map())  # type: ignore[attr-defined]
        other = Listener(listener.endpoint, curve=curve, limits=QUICK)
        with pytest.raises(BadSetting):
            other.start(Parent())
        await other.stop()
        assert set(asyncio.get_running_loop()._selector.get_map()) == readers  # type: ignore[attr-defined]
        await wait_until(lambda: len(descriptors()) <= len(before))

    def starts() -> bool:
        try:
            other.start(Parent())
        except BadSetting:
            return False
        return True

    await wait_until(starts)  # ZeroMQ lets go of the address a moment later
    await other.stop()


@pytest.mark.parametrize("sockets_most", [1, 2])
async def test_a_listener_that_finds_no_socket_leaves_none(sockets_most: int) -> None:
    """It needs three: its own, and two to watch its connections."""
    with sockets.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def is_free() -> bool:
        try:
            sockets.create_server(("127.0.0.1", port)).close()
        except OSError:
            return False
        return True

    with zmq.Context() as context:
        context.set(zmq.MAX_SOCKETS, sockets_most)
        with pytest.raises(BadSetting):
            Listener(f"tcp://127.0.0.1:{port}", limits=QUICK, context=context).start(Parent())
        await wait_until(is_free)


async def test_a_frame_the_child_does_not_take_is_refused_and_the_link_stays() -> None:
    async with (
        running_listener() as (listener, parent),
        running_dialer(listener.endpoint, limits=replace(QUICK, message_bytes=2048)) as (_, child),
    ):
        with pytest.raises(TooLarge) as caught:
            parent.joined[0].send(bytes(2049))
        assert (caught.value.size, caught.value.limit) == (2049, 2048)
        parent.joined[0].send(b"smaller")
        await wait_until(lambda: child.frames == [b"smaller"])
        assert not parent.left


async def test_who_asks_for_frames_again_and_again_is_closed(stranger: Opener) -> None:
    async with running_listener(limits=replace(QUICK, heartbeat_s=1.0, silence_s=20.0)) as (listener, parent):
        socket = stranger(listener.endpoint)
        socket.send(encode(HELLO))
        await answer(socket)
        for _ in range(10):
            parent.joined[0].send(bytes(100_000))
        for _ in range(150):
            socket.send(encode(Resend(1)))
        await wait_until(lambda: parent.left)
        assert parent.left[0][1].startswith("protocol")
        assert listener.statistics().sent_frames == 20
        assert parent.joined[0].statistics().ignored > 0


async def test_a_parent_that_denies_is_told_at_once() -> None:
    def deny(peer: Peer) -> None:
        peer.close("denied", "not you")

    async with running_listener() as (listener, parent):
        parent.on_join = deny  # type: ignore[method-assign]
        async with running_dialer(listener.endpoint, linked=False) as (dialer, child):
            await wait_until(lambda: child.downs, QUICK.handshake_s)
            assert child.downs[0] == "denied: not you"
            await wait_until(lambda: dialer.failure == "denied: not you")


async def test_pauses_grow_when_links_are_left_in_vain() -> None:
    limits = replace(QUICK, backoff_s=0.2, backoff_most_s=5.0)
    async with (
        running_listener() as (listener, parent),
        running_dialer(listener.endpoint, limits=limits) as (dialer, child),
    ):

        def leave(welcome: Mapping[str, object], fresh: bool) -> None:
            child.ups.append(({}, True))
            dialer.redial(listener.endpoint, "a ring", in_vain=True)

        child.on_up = leave  # type: ignore[method-assign]
        dialer.redial(in_vain=True)
        await asyncio.sleep(1.0)
        assert 2 <= len(parent.joined) <= 6


async def test_a_process_has_room_for_more_dialers_than_a_shared_context_would_take() -> None:
    context = LinkContext.instance()
    assert context.get(zmq.MAX_SOCKETS) == MOST_SOCKETS == context.get(zmq.SOCKET_LIMIT)
    assert context is not zmq.Context.instance()
    with zmq.Context() as small:  # how many sockets a dialer takes is ZeroMQ's business: count them
        small.set(zmq.MAX_SOCKETS, 4 * SOCKETS_PER_DIALER)
        opened = [open_dealer(small, "tcp://127.0.0.1:1", LinkLimits(), None) for _ in range(4)]
        with pytest.raises(BadSetting, match="Too many open files"):
            open_dealer(small, "tcp://127.0.0.1:1", LinkLimits(), None)
        for socket, monitor in opened:
            stop_monitor(socket)
            monitor.close()
            socket.close()


async def test_what_came_before_the_connection_ended_is_read_whole() -> None:
    """ZeroMQ hears of the end at every hundredth part that is read: here between the parts of a message."""
    context, other = LinkContext(), LinkContext()
    router = open_router(other, "tcp://127.0.0.1:*", LinkLimits(), None, "")
    dealer, monitor = open_dealer(context, bound_endpoint(router), LinkLimits(), None)
    try:
        dealer.send(b"hello")
        child, _ = router.recv_multipart()
        for _ in range(80):
            router.send_multipart([child, b"header", b"payload"])
        router.close(linger=5000)
        other.term()
        assert monitor.poll(5000)  # it is over
        got: list[Message] = []
        reading = EventSocket(dealer, got.append)
        reading.read_now()
        reading.close()
        assert [message.rest for message in got] == [[b"payload"]] * 80
    finally:
        stop_monitor(dealer)
        monitor.close()
        dealer.close()
        context.term()


async def test_what_others_tell_is_dialled_only_where_the_settings_would_allow_it() -> None:
    def dialer(**options: Any) -> Dialer:
        return Dialer(["tcp://127.0.0.1:1"], role="client", name="x", **options)

    assert dialer().may_dial("tcp://127.0.0.1:5")
    assert not dialer().may_dial("tcp://10.0.0.1:5")
    assert not dialer().may_dial("tcp://127.0.0.1:0")
    assert dialer(insecure=True).may_dial("tcp://10.0.0.1:5")
    assert not dialer(insecure=True).may_dial("nonsense")
    keys = make_pair("x")
    assert dialer(curve=Curve(keys.public, keys.secret, keys.public)).may_dial("tcp://10.0.0.1:5")
    only_there = Curve(keys.public, keys.secret, servers={"tcp://10.0.0.1:5": keys.public})
    assert dialer(curve=only_there).may_dial("tcp://10.0.0.1:5")
    assert not dialer(curve=only_there).may_dial("tcp://10.0.0.1:6")


def told(child: Child) -> float:
    """The heartbeat a child was told at the beginning."""
    heartbeat_s = child.ups[0][0]["heartbeat_s"]
    assert isinstance(heartbeat_s, float)
    return heartbeat_s


def kept(dialer: Dialer) -> float:
    """The one it keeps now."""
    assert dialer._bond is not None
    return dialer._bond.session.heartbeat_s


async def test_the_more_clients_the_fewer_heartbeats_and_nodes_keep_theirs() -> None:
    limits = LinkLimits(heartbeat_s=0.02, silence_s=10.0)
    most, crowd = int(limits.heartbeat_s * HEARTBEATS_PER_S), 40
    async with (
        running_listener(limits=limits) as (listener, parent),
        running_dialer(listener.endpoint, limits=limits) as (first, first_child),
        running_dialer(listener.endpoint, limits=limits, role="node", id=bytes(16)) as (node, _),
    ):
        assert told(first_child) == limits.heartbeat_s
        async with AsyncExitStack() as others:
            dialers = []
            for _ in range(crowd - 1):
                dialer, child = await others.enter_async_context(running_dialer(listener.endpoint, limits=limits))
                dialers.append(dialer)
                assert told(child) == max(most, len(dialers) + 1) / HEARTBEATS_PER_S
            await wait_until(lambda: {kept(dialer) for dialer in (first, *dialers)} == {crowd / HEARTBEATS_PER_S})
            assert kept(node) == limits.heartbeat_s
        await wait_until(lambda: kept(first) == limits.heartbeat_s)  # now that the others left
        assert len(parent.left) == crowd - 1


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_parent_that_is_busy_gets_more_time_than_one_that_is_not_there(is_there: bool) -> None:
    """In both cases the connection is accepted, but only one of them speaks ZeroMQ's protocol."""
    limits = replace(QUICK, handshake_s=0.3)
    context = LinkContext()
    with sockets.create_server(("127.0.0.1", 0)) as dead, context.socket(zmq.ROUTER) as router:
        router.set(zmq.LINGER, 0)
        busy = f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}"
        endpoint = busy if is_there else f"tcp://127.0.0.1:{dead.getsockname()[1]}"
        async with (
            running_listener() as (listener, _),
            running_dialer(endpoint, listener.endpoint, limits=limits, linked=False) as (dialer, child),
        ):
            began = asyncio.get_running_loop().time()
            await wait_until(lambda: child.ups)
            waited = asyncio.get_running_loop().time() - began
            assert dialer.endpoint == listener.endpoint
            assert waited >= (BUSY_HANDSHAKES if is_there else 1) * limits.handshake_s
            if not is_there:
                assert dialer.statistics().attempts == 2
    context.term()


async def test_a_welcome_that_this_process_was_too_slow_to_read_counts() -> None:
    limits = replace(QUICK, handshake_s=0.2)
    context = LinkContext()
    with context.socket(zmq.ROUTER) as router:
        router.set(zmq.LINGER, 0)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        async with running_dialer(f"tcp://127.0.0.1:{port}", limits=limits, linked=False) as (dialer, child):
            await wait_until(lambda: router.poll(0))
            identity, _ = router.recv_multipart()
            router.send_multipart([identity, encode(Welcome(False, 0, 1, 0.5, 4.0, 1 << 20, {}))])
            time.sleep(4 * limits.handshake_s)  # noqa: ASYNC251  (that is the point)
            await wait_until(lambda: child.ups)
            assert dialer.statistics().attempts == 1
    context.term()


async def test_a_thousand_clients_that_come_at_once_are_all_taken_in_at_the_first_try() -> None:
    raise_open_files(10_000)
    async with running_listener(limits=LinkLimits()) as (listener, parent):
        dialers = [Dialer([listener.endpoint], role="client", name=str(n)) for n in range(1000)]
        try:
            for dialer in dialers:
                dialer.start(Child())
            await wait_until(lambda: listener.statistics().peers == len(dialers), 60)
            await wait_until(lambda: all(dialer.state == "up" for dialer in dialers), 60)
            statistics = listener.statistics()
            assert (statistics.joined, statistics.cut, statistics.left) == (len(dialers), 0, {})
            assert {dialer.statistics().attempts for dialer in dialers} == {1}
        finally:
            await asyncio.gather(*(dialer.stop() for dialer in dialers))
        await wait_until(lambda: len(parent.left) == len(dialers), 60)


@pytest.mark.parametrize(("hard", "warned"), [(400, True), (10_200, False)])
def test_the_limit_of_open_files_is_raised_and_a_warning_says_if_that_is_not_enough(hard: int, warned: bool) -> None:
    program = f"""
import logging, resource
from hullcast.network.link.connections import Connections, raise_open_files
logging.basicConfig()
resource.setrlimit(resource.RLIMIT_NOFILE, (300, {hard}))
raise_open_files(10_000)
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"({hard}, {hard})\n"
    assert ("lower --max-children" in done.stderr) == warned


async def test_a_crowd_that_vanishes_is_gone_after_one_silence(stranger: Opener) -> None:
    """Each one that goes lets the others have more heartbeats; that must not give them time again."""
    limits = LinkLimits(heartbeat_s=0.02, silence_s=0.5)
    crowd = 150
    async with running_listener(limits=limits) as (listener, parent):
        opened = [stranger(listener.endpoint) for _ in range(crowd)]
        for socket in opened:
            socket.send(encode(Hello(os.urandom(16), -1, "client", "one of many", b"", None, 1 << 20)))
        await wait_until(lambda: len(parent.joined) == crowd)
        for socket in opened:
            socket.close()
        await wait_until(lambda: not listener.peers, 10 * limits.silence_s)
        assert {why.split(":")[0] for _, why in parent.left} == {"silent"}
