"""Strangers and broken peers: each is closed with a reason, and nobody else notices."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import psutil
import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

from hullcast.broker.server.metrics import server_metrics
from hullcast.broker.server.pipeline import STEP_BYTES
from hullcast.clients.cli.commands.status import StatusSample, screen
from hullcast.clients.sdk.client import Client
from hullcast.network.link import listener
from hullcast.network.link.header import Ack, Bye, Data, Header, Hello, Resend, Welcome, decode, encode
from hullcast.network.link.peer import Peer
from hullcast.network.wire import bodies, frames
from hullcast.network.wire.limits import DEFAULT
from hullcast.network.wire.value_columns import Mixed
from tests.support.cluster import (
    PATIENCE_S,
    PATIENT,
    SERVER,
    Cluster,
    TaskMember,
    cluster,
    node_of,
    server_of,
    wait_for,
)
from tests.support.watching import EVERY_KIND, History, check_answers, check_streams, settle, watch
from tests.support.wire import any_body, any_frame

GREETING = bytes([0xFF, *bytes(8), 0x7F, 3, 0]) + b"NULL".ljust(20, b"\0") + bytes(32)
MOST_MEMORY = 300 << 20  # what strangers may make this process grow by


class Stranger:
    """A DEALER that speaks the link's protocol as it likes."""

    def __init__(self, context: zmq.Context[Any], endpoint: str) -> None:
        self._socket = context.socket(zmq.DEALER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.connect(endpoint)
        self.sent = 0
        self.heard: list[Header] = []

    def send(self, *parts: bytes) -> None:
        with suppress(zmq.Again):
            self._socket.send_multipart(parts, zmq.DONTWAIT)

    def say(self, payload: bytes) -> None:
        """The next frame of the link."""
        self.sent += 1
        self.send(encode(Data(self.sent, 0)), payload)

    def hello(self, role: str, received: int = -1) -> None:
        node = os.urandom(16) if role == "node" else b""
        self.send(encode(Hello(os.urandom(16), received, role, "stranger", node, None, 1 << 20)))

    async def wait(self, kind: type[Header]) -> Header:
        """Wait for such a header, or fail when BYE comes instead."""
        while True:
            try:
                parts = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                await asyncio.sleep(0.002)
                continue
            header = decode(parts[0])
            self.heard.append(header)
            if isinstance(header, kind):
                return header
            assert not isinstance(header, Bye), header

    async def bye(self) -> str:
        """The code with which it was sent away."""
        header = await self.wait(Bye)
        assert isinstance(header, Bye)
        assert header.text
        return header.code

    def close(self) -> None:
        self._socket.close()


@asynccontextmanager
async def beside_others(c: Cluster, rng: Random) -> AsyncIterator[History]:
    """Clients that publish and subscribe before and after; they must not notice anything."""
    history = History()
    async with c.client("g1") as one, c.client("server") as other:
        await history.create(one)
        watchers = await watch(one, EVERY_KIND) + await watch(other, EVERY_KIND[:4])
        for _ in range(5):
            await history.publish(other, rng)
        await one.sync()  # everything is compiled and paged in by now
        before = psutil.Process().memory_info().rss
        yield history
        grown = psutil.Process().memory_info().rss - before
        for _ in range(5):
            await history.publish(one, rng)
        await settle((one, other))
        check_answers(history, watchers)
        check_streams(history, watchers, resyncs_allowed=False)
        for client in (one, other):
            link = client.statistics().link
            assert (link.fresh, link.interruptions) == (1, 0), "others were hurt"
        assert grown < MOST_MEMORY, f"{grown >> 20} MiB more"


def listener_of(c: Cluster, name: str) -> Any:
    member = c[name]
    assert isinstance(member, TaskMember)
    return member.service.listener


async def test_bytes_that_are_not_zeromq_s_close_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "BUSY_HANDSHAKES", 1)
    rng = Random(1)
    openings = [b"GET / HTTP/1.1\r\n\r\n", GREETING, GREETING + b"\x04\x05READY", b"\xff", b""]
    openings += [GREETING + b"\x06" + (1 << 62).to_bytes(8, "big"), GREETING + b"\x04\xff" + rng.randbytes(255)]
    openings += [rng.randbytes(rng.randrange(1, 500)) for _ in range(20)]
    async with asyncio.timeout(PATIENCE_S), cluster(2, link=PATIENT) as c, beside_others(c, rng):
        places = [c[name].listen for name in ("server", "g1")]
        said = [(at, opening + rng.randbytes(2000)) for at in places for opening in openings]
        await asyncio.gather(*(_closed(at, content) for at, content in said))
        for name in ("server", "g1"):
            assert listener_of(c, name).statistics().peers <= 2


async def _closed(endpoint: str, content: bytes) -> None:
    """Say this, and be sent away."""
    host, port = endpoint.removeprefix("tcp://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        with suppress(OSError):
            writer.write(content)
            while await reader.read(4096):  # ends when the other side has closed it
                pass
    finally:
        writer.transport.abort()


async def test_what_is_no_greeting_is_refused_with_a_reason() -> None:
    rng = Random(2)
    firsts: list[tuple[bytes, ...]] = [
        (b"",), (b"\xc1",), (rng.randbytes(50),), (rng.randbytes(50), b"x"), (b"a", b"b", b"c"),
        (encode(Data(1, 0)), b"early"), (encode(Ack(0, 0)),), (encode(Resend(1)),), (rng.randbytes(70_000),),
        (encode(Welcome(False, 0, 1, 0.1, 1.0, 1024, {})),), tuple(b"%d" % i for i in range(100)),
    ]  # fmt: skip
    async with asyncio.timeout(PATIENCE_S), cluster(2, link=PATIENT) as c, beside_others(c, rng):
        for name in ("server", "g1"):
            for first in firsts:
                stranger = Stranger(c.context, c[name].listen)
                stranger.send(*first)
                assert await stranger.bye() == "protocol"
                stranger.close()
            assert listener_of(c, name).statistics().refused["protocol"] == len(firsts)
        stranger = Stranger(c.context, c["g1"].listen)
        stranger.hello("client", received=7)
        assert await stranger.bye() == "unknown"
        stranger.close()


#: What only a parent sends, and what only the other role may.
DOWNWARD = (
    frames.Deliver(1, {}), frames.Advance(1), frames.Reset("moved", "x"), frames.Reply(1, (), (), b""),
    frames.Directory(bytes(16), (), ()),
)  # fmt: skip
FOR_NODES = (
    frames.Interest(1, 0, np.zeros((1, 2)), np.ones((1, 2))),
    frames.Withdrawn(1, 0, False, np.zeros((1, 2))),
)
FOR_CLIENTS = (frames.Leave(1, None),)


@pytest.mark.parametrize(("role", "others"), [("client", FOR_NODES), ("node", FOR_CLIENTS)])
async def test_frames_that_a_role_may_not_send_close_it(role: str, others: tuple[frames.Frame, ...]) -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(2, link=PATIENT) as c, beside_others(c, Random(3)):
        for name in ("server", "g1"):
            for frame in (*DOWNWARD, *others):
                stranger = Stranger(c.context, c[name].listen)
                stranger.hello(role)
                await stranger.wait(Welcome)
                stranger.say(frames.encode(frame))
                assert await stranger.bye() == "protocol", frame
                stranger.close()


def withdrawals(c: Cluster) -> list[tuple[frames.Withdrawn, bool]]:
    """Withdrawals of what other nodes hold, and whether they break the protocol. Each is said by a node of its own."""
    server = server_of(c)
    said: list[tuple[frames.Withdrawn, bool]] = [(frames.Withdrawn(1 << 40, 0, False, np.zeros((1, 3))), False)]
    for attending in server.attendance:
        width = 2 * attending.spec.dimensions + attending.spec.partitioned or 1
        everything = np.tile(np.array([-np.inf, np.inf] * width)[:width], (1000, 1))
        for points in (everything, np.zeros((1, width)), np.empty((0, width))):
            for lost in (True, False):
                said.append((frames.Withdrawn(attending.number, 0, lost, points), not attending.channel.counted))
        said.append((frames.Withdrawn(attending.number, 0, False, np.zeros((1, width + 1))), True))
        said.append((frames.Withdrawn(attending.number, 7, False, np.zeros((1, width))), True))
    return said


async def test_withdrawals_of_what_others_hold_hurt_nobody() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(2, link=PATIENT) as c, beside_others(c, Random(6)) as history:
        server = server_of(c)
        before = [attending.channel.ranges_known() for attending in server.attendance]
        assert sum(total for _, total in before) == 4
        async with c.client(SERVER) as client:
            for frame, broken in withdrawals(c):
                stranger = Stranger(c.context, c[SERVER].listen)
                stranger.hello("node")
                await stranger.wait(Welcome)
                stranger.say(frames.encode(frame))
                stranger.say(b"nonsense")  # so that it is sent away in any case, but for another reason
                bye = await stranger.wait(Bye)
                assert isinstance(bye, Bye)
                assert ("Withdrawn" in bye.text) == broken, (frame, bye)
                stranger.close()
            await history.publish(client, Random(7))
        assert [attending.channel.ranges_known() for attending in server.attendance] == before


async def test_ranges_of_a_node_that_wants_no_reply_are_not_kept() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(0, link=PATIENT, channel_linger_s=0.0) as c, c.client() as client:
        server = server_of(c)
        await client.execute("CREATE TABLE L (K INTEGER PRIMARY KEY, J INTEGER)")
        await client.execute("CREATE TABLE R (K INTEGER PRIMARY KEY, J INTEGER)")
        pairs = "SELECT * FROM L JOIN R USING (J) WHERE L.K BETWEEN ? AND ?"
        await client.subscribe(pairs, 0, 1)
        stranger = Stranger(c.context, c[SERVER].listen)
        stranger.hello("node")
        await stranger.wait(Welcome)
        asked = bodies.encode(bodies.Subscribe((bodies.Group(1, pairs, (5, 9), 1),)))
        before = server.hall.requests
        stranger.say(frames.encode(frames.Request(0, (), None, asked)))
        await wait_for(lambda: server.hall.requests > before, "it was asked")
        await client.sync()
        await wait_for(
            lambda: [one.channel.ranges_known() for one in server.attendance] == [(1, 1)], "one range is wanted"
        )
        stranger.close()


def drawn(strategy: SearchStrategy[Any], count: int) -> list[Any]:
    """Examples, the same each time."""
    found: list[Any] = []

    @settings(max_examples=count, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def take(example: Any) -> None:
        found.append(example)

    take()
    return found


async def _throw(c: Cluster, name: str, role: str, payloads: list[bytes]) -> None:
    """Send each payload from a stranger of its own; each ends with BYE, or is still there and heard."""

    async def one(payload: bytes) -> None:
        stranger = Stranger(c.context, c[name].listen)
        try:
            stranger.hello(role)
            await stranger.wait(Welcome)
            stranger.say(payload)
            stranger.say(frames.encode(frames.Request(999, (), None, bodies.encode(bodies.Sync()))))
            with suppress(AssertionError):  # BYE: it is told why
                await stranger.wait(Data)
        finally:
            stranger.close()

    for start in range(0, len(payloads), 32):
        await asyncio.gather(*map(one, payloads[start : start + 32]))


@pytest.mark.parametrize("role", ["client", "node"])
async def test_frames_and_bodies_full_of_nonsense_harm_nobody(role: str) -> None:
    """Well formed: every frame there is, and every body in a request, with fields drawn by chance."""
    payloads = [frames.encode(frame) for frame in drawn(any_frame, 150)]
    for body in drawn(any_body, 150):
        payloads.append(frames.encode(frames.Request(5, (), None, bodies.encode(body))))
    async with asyncio.timeout(PATIENCE_S), cluster(2, link=PATIENT) as c, beside_others(c, Random(4)):
        for name in ("server", "g1"):
            await _throw(c, name, role, payloads)


async def test_true_requests_with_flipped_bits_harm_nobody() -> None:
    rng = Random(5)
    group = bodies.Group(1, "SELECT MIN(V) FROM HOSTILE WHERE K BETWEEN ? AND ?", (Mixed((1, 2)), Mixed((5, 6))), 2)
    true: list[bodies.Body] = [
        bodies.Execute("CREATE TABLE HOSTILE (K INTEGER PRIMARY KEY, V REAL)", os.urandom(16), 1),
        bodies.Publish("HOSTILE", {"K": np.arange(5), "V": np.arange(5.0)}, None, os.urandom(16), 1),
        bodies.Delete("HOSTILE", np.arange(3), os.urandom(16), 1),
        bodies.Query("SELECT * FROM HOSTILE WHERE K > ?", (1,)),
        bodies.Subscribe((group,), None, None),
        bodies.Explain(group.sql, (1, 2)),
    ]
    payloads = []
    for body in true * 40:
        payload = bytearray(frames.encode(frames.Request(5, (), None, bodies.encode(body))))
        for _ in range(rng.choice((0, 1, 1, 2, 5))):
            payload[rng.randrange(len(payload))] ^= 1 << rng.randrange(8)
        payloads.append(bytes(payload[: rng.randrange(1, len(payload))] if rng.random() < 0.1 else payload))
    async with asyncio.timeout(PATIENCE_S), cluster(2, link=PATIENT) as c, beside_others(c, rng):
        for name in ("server", "g1"):
            await _throw(c, name, "client", payloads)


async def test_numbers_out_of_order_and_acknowledgements_of_nothing_close_the_peer() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(2, link=PATIENT) as c, beside_others(c, Random(6)):
        for wrong in (Ack(1 << 40, 0), Resend(1 << 40), Hello(bytes(16), -1, "client", "again", b"", None, 1 << 20)):
            stranger = Stranger(c.context, c["g1"].listen)
            stranger.hello("client")
            await stranger.wait(Welcome)
            stranger.send(encode(wrong))
            assert await stranger.bye() == "protocol", wrong
            stranger.close()


async def test_a_message_larger_than_agreed_ends_its_connection() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(2, link=PATIENT) as c, beside_others(c, Random(7)):
        listener = listener_of(c, "g1")
        stranger = Stranger(c.context, c["g1"].listen)
        stranger.hello("client")
        await stranger.wait(Welcome)
        connected = listener.statistics().connections
        stranger.say(bytes((64 << 20) + 1))
        await wait_for(lambda: listener.statistics().connections < connected, "the connection ends")
        stranger.close()


async def test_a_crowd_of_silent_connections_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "BUSY_HANDSHAKES", 1)
    async with asyncio.timeout(PATIENCE_S), cluster(2, link=PATIENT) as c, beside_others(c, Random(8)):
        host, port = c["g1"].listen.removeprefix("tcp://").split(":")
        crowd = [await asyncio.open_connection(host, int(port)) for _ in range(400)]
        client: Client
        async with c.client("g1") as client:
            await client.sync()
        await wait_for(lambda: listener_of(c, "g1").statistics().connections <= 256 + 2, "strangers are cut")
        for _, writer in crowd:
            writer.transport.abort()


async def test_a_request_with_no_room_for_its_way_up_is_refused_and_the_node_lives() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(2, link=PATIENT) as c, beside_others(c, Random(9)):
        stranger = Stranger(c.context, c["g1"].listen)
        stranger.hello("client")
        await stranger.wait(Welcome)
        stranger.say(frames.encode(frames.Request(1, (), None, bytes(DEFAULT.body_bytes + 1))))
        assert await stranger.bye() == "protocol"
        stranger.close()
        stranger = Stranger(c.context, c["g1"].listen)
        stranger.hello("node")
        await stranger.wait(Welcome)
        largest = frames.Request(7, (), frames.Origin(None, "n" * 2047), bytes(DEFAULT.body_bytes))
        stranger.say(frames.encode(largest))  # what is added on the way has room in a frame, whatever it is
        await stranger.wait(Data)
        stranger.say(bytes([*frames.encode(largest)[:3], 1, 8]) + bytes(5000))  # an origin of 2049 bytes
        assert await stranger.bye() == "protocol"
        assert c["g1"].running
        assert node_of(c, "g1").dialer.statistics().interruptions == 0
        stranger.close()


async def test_a_greedy_child_does_not_fill_the_way_up_for_others() -> None:
    """The root does not get through to the server for a while; the way up of g1 stands still with it."""
    async with asyncio.timeout(PATIENCE_S), cluster(2, link=PATIENT) as c, beside_others(c, Random(10)):
        root = node_of(c, "root")
        stranger = Stranger(c.context, c["root"].listen)
        stranger.hello("client")
        await stranger.wait(Welcome)
        c.server.proxy.stall()
        body = bytes(1 << 20)
        for number in range(1, 81):
            stranger.say(frames.encode(frames.Request(number, (), None, body)))
        await wait_for(lambda: root.greedy_refused >= 40, "it is refused")
        session = root.dialer.statistics().session
        assert session is not None
        assert session.unacknowledged_bytes < 20 << 20
        await asyncio.sleep(1.5)  # a report is due
        assert c["root"].running
        async with c.client("g1", timeout=30) as client:
            asked = asyncio.create_task(client.sync(), name="test.sync")
            await asyncio.sleep(0.2)
            assert not asked.done()  # on its way, not refused
            c.server.proxy.resume()
            await asked
        assert root.status()["greedy_refused"] == root.greedy_refused
        stranger.close()


@pytest.mark.parametrize("again", [True, False], ids=["retries", "refusals"])
async def test_while_the_disk_stands_still_requests_without_end_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Of a change that was applied, and of one that is refused, nothing goes to the log; but its reply waits."""
    may_sync = threading.Event()
    most, size, count = 64 << 10, 100_000, 200
    async with (
        asyncio.timeout(PATIENCE_S),
        cluster(0, tmp_path, link=PATIENT, pending_bytes=most) as c,
        c.client("server") as client,
    ):
        await client.execute("CREATE TABLE HOSTILE (K INTEGER PRIMARY KEY, S TEXT)")
        server = server_of(c)
        sync, before = server.log.write_and_sync, server.hall.requests
        monkeypatch.setattr(server.log, "write_and_sync", lambda: (may_sync.wait(PATIENCE_S), sync())[1])
        stranger = Stranger(c.context, c.server.listen)
        try:
            stranger.hello("client")
            await stranger.wait(Welcome)
            publisher = os.urandom(16)
            first = bodies.Publish("HOSTILE", {"K": 1, "S": "s"}, None, publisher, 1)
            stranger.say(frames.encode(frames.Request(1, (), None, bodies.encode(first))))
            table, change = ("HOSTILE", 1) if again else ("NOWHERE", 2)
            other = bodies.Delete(table, Mixed(("s" * size,)), publisher, change)
            for number in range(2, count + 2):
                stranger.say(frames.encode(frames.Request(number, (), None, bodies.encode(other), again=again)))
            await wait_for(lambda: server.hall.requests == before + count + 1, "all were read")
            assert server.pipeline is not None
            assert sum(len(step.request.body) for step in server.pipeline) < most
            assert len(list(server.pipeline)) <= 1 + most // STEP_BYTES, "the others were refused at once"
        finally:
            may_sync.set()
            stranger.close()
        await client.publish("HOSTILE", {"K": 2, "S": "others are served"})


async def test_a_request_with_very_many_texts_is_not_read_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without a data directory looks for joins over streams, for which it needs files; each text may take
    milliseconds. More of them than one request may have are refused before any is read."""
    async with asyncio.timeout(PATIENCE_S), cluster(0, link=PATIENT) as c, c.client() as client:
        server = server_of(c)
        await client.execute("CREATE TABLE HOSTILE (K INTEGER PRIMARY KEY, V REAL)")
        await client.execute("CREATE STREAM TICKS (K INTEGER, P REAL)")
        read: list[str] = []
        at_once: list[int] = []
        parse, asked_for = server.engine.catalogue.parse, server.on_request

        def parsed(sql: str) -> Any:
            read.append(sql)
            return parse(sql)

        def on_request(peer: Peer, request: frames.Request) -> None:
            before = len(read)
            asked_for(peer, request)
            if peer.name == "stranger":
                at_once.append(len(read) - before)

        monkeypatch.setattr(server.engine.catalogue, "parse", parsed)
        monkeypatch.setattr(server, "on_request", on_request)
        stranger = Stranger(c.context, c[SERVER].listen)
        stranger.hello("client")
        await stranger.wait(Welcome)

        def groups(count: int, *, joined: bool) -> bytes:
            text = "SELECT h.V FROM HOSTILE h JOIN HOSTILE i USING (K) -- " if joined else "SELECT V FROM HOSTILE -- "
            asked = tuple(bodies.Group(i + 1, f"{text}{i}", (), 1) for i in range(count))
            return frames.encode(frames.Request(1, (), None, bodies.encode(bodies.Subscribe(asked))))

        most = server.settings.subscribe_groups
        for count, joined in ((most + 1, True), (most, False), (most, True)):
            stranger.say(groups(count, joined=joined))
        await wait_for(lambda: len(at_once) == 3, "all were asked")
        assert at_once[0] == 0
        assert max(at_once) < 50, "the others have their turns in between"
        stranger.close()


async def test_reports_of_a_node_that_lies_spoil_no_status_and_take_no_memory() -> None:
    async with asyncio.timeout(PATIENCE_S), cluster(1, link=PATIENT) as c, c.client() as client:
        server = server_of(c)
        stranger = Stranger(c.context, c[SERVER].listen)
        stranger.hello("node")
        await stranger.wait(Welcome)
        ours = set(node_of(c, "root").status()) | {"lag_s"}
        wrong: list[object] = ["x" * 100_000, -1, 1 << 62, 1.5, [[]], {"a": 1}, None, True]
        for number, value in enumerate(wrong):
            told: dict[str, Any] = dict.fromkeys(ours, value) | {"id": f"{number:032x}", "unknown": "x" * 100_000}
            body = bodies.encode(bodies.NodeReport(told if number % 2 else {"id": told["id"]}))
            stranger.say(frames.encode(frames.Request(0, (), None, body)))
        stranger.say(frames.encode(frames.Request(0, (), None, bodies.encode(bodies.NodeReport({"id": "x"})))))
        await wait_for(lambda: len(server.nodes.live()) == len(wrong) + 1, "all have reported")
        status = await client.status()
        for report in status["nodes"]:
            assert set(report) == ours
            assert len(str(report)) < 10_000
        assert screen(StatusSample(1.0, status), StatusSample(0.0, status))
        assert server_metrics(server)
        stranger.close()
