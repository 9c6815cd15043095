"""The stages of a frame, timed in one process with real clients, node and server, without sockets.

    publisher  --request-->  a node  --request-->  server      what travels is real bytes, by real sessions of links;
    publisher  <--receipt--  a node  <--receipt--  server      only the sockets are left out: a `Wire` holds messages
    subscriber <--messages-- another <--messages-- server      until the one who measures carries them on

A process's part in a frame is timed as a whole; inside it, the functions of `STAGES` are timed each by itself, and the
remainder is the stage "rest". When an API of links or frames changes, `STAGES` and `Wire` are the places to follow.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from statistics import fmean, median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hullcast.broker.engine.publishing import Publishing
from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.server.service import Server
from hullcast.broker.server.settings import ServerSettings
from hullcast.clients.sdk import gathering
from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.connecting import configure
from hullcast.clients.sdk.listening import Listening
from hullcast.network.link.header import DATA, Ack, read_data, read_message
from hullcast.network.link.limits import LinkLimits
from hullcast.network.link.session import Session
from hullcast.network.node.node import Node
from hullcast.network.node.settings import NodeSettings
from hullcast.network.routing.router import Router
from hullcast.network.security.rights import Rights
from hullcast.network.wire import bodies, frames, values
from hullcast.sim.traces.table51 import CREATE, DOMAIN, RANGE_MIN

if TYPE_CHECKING:
    from hullcast.clients.sdk.subscriptions import Subscriptions

#: By stage: functions, wherever they are imported to, and methods as (class, name).
STAGES: dict[str, tuple[object, ...]] = {
    "decode": (frames.decode, bodies.decode),
    "routing": ((Router, "route"),),
    "encode": (frames.encode, bodies.encode),
    "work": (
        values.rows_to_columns,
        gathering.row_or_columns,
        (ServedEngine, "upsert_columns"),
        (ServedEngine, "encoded"),
        (Publishing, "upsert"),
        (Listening, "hear"),
    ),
}
#: The processes in the order in which a frame passes them; a node takes part twice.
PUBLISHER, NODE_UP, SERVER, NODE_DOWN, SUBSCRIBER = "publisher", "node, up", "server", "node, down", "subscriber"
PROCESSES = (PUBLISHER, NODE_UP, SERVER, NODE_DOWN, SUBSCRIBER)

_LIMITS = LinkLimits()
MOST_TURNS, PATIENCE = 1000, 5  # of the loop, until what is waited for must have come


@dataclass(frozen=True, slots=True)
class StageTimes:
    """One process's part in one frame: microseconds by stage, messages, and memory."""

    process: str
    rows: int
    us: dict[str, float]  # by stage; together they are the whole
    sent: float  # messages handed to ZeroMQ
    received: float  # messages taken from it: as many wake-ups, where frames come one by one
    bytes: float  # of a message, on average
    blocks: float  # of memory that stay allocated, per frame


@dataclass(frozen=True, slots=True)
class Counted:
    """What was counted over all processes and frames of one size."""

    rows: int
    frames: int
    collections: tuple[int, int, int]  # garbage collections by generation, per 10,000 frames


# --- the stopwatch ---------------------------------------------------------------------------------------------


class Stopwatch:
    """Time by stage: while a stage runs inside another one, only the inner one's time counts."""

    def __init__(self) -> None:
        self.ns: Counter[str] = Counter()
        self._inner = 0  # time that belongs to stages inside the present one

    def timed(self, stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, with its time noted."""

        def wrapped(*arguments: Any, **options: Any) -> Any:
            outer, self._inner = self._inner, 0
            began = perf_counter_ns()
            try:
                return call(*arguments, **options)
            finally:
                took = perf_counter_ns() - began
                self.ns[stage] += took - self._inner
                self._inner = outer + took

        return wrapped

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Time the functions of STAGES, in whichever of our modules they are used."""
        modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "hullcast"]
        undo: list[tuple[Any, str, Any]] = []
        for stage, targets in STAGES.items():
            for target in targets:
                if isinstance(target, tuple):
                    owner, method = target
                    places = [(owner, method, vars(owner)[method])]
                else:  # not in `STAGES` itself, which is no module's attribute
                    found = (
                        (module, name)
                        for module in modules
                        for name, value in list(vars(module).items())
                        if value is target
                    )
                    places = [(module, name, target) for module, name in found]
                for owner, name, function in places:
                    setattr(owner, name, self.timed(stage, function))
                undo += places
        try:
            yield
        finally:
            for owner, name, value in undo:
                setattr(owner, name, value)


# --- links without sockets -------------------------------------------------------------------------------------


class Wire:
    """One end of a link, in place of a dialer or a peer: a real session, and messages that wait to be carried on."""

    def __init__(self, watch: Stopwatch, role: str = "client", number: int = 1) -> None:
        self.number, self.role, self.name, self.key, self.listen, self.closed = number, role, role, None, None, False
        self.state, self.failure, self.mismatch, self.endpoint = "up", "", None, "tcp://127.0.0.1:1"
        self.endpoints: Sequence[str] = (self.endpoint,)
        self.message_bytes = _LIMITS.message_bytes
        self.sent_messages = self.received_messages = self.sent_bytes = 0
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.session = Session(_LIMITS, 0.0)
        self.session.attach(0, 0.0)
        self._send = watch.timed("session", self.session.send)
        self._outgoing = watch.timed("session", self.session.outgoing)
        self._receive = watch.timed("session", self._received)

    # what a dialer or a peer does

    def start(self, handler: Any) -> None:
        handler.on_up({}, True)

    async def stop(self) -> None:
        pass

    async def wait_writable(self) -> None:
        pass

    @property
    def writable(self) -> bool:
        return True

    def send(self, payload: bytes) -> None:
        self._send(payload)

    def close(self, code: str, text: str = "") -> None:
        raise AssertionError(f"a link was closed: {code}: {text}")

    def guard(self, work: Callable[[Any], None], argument: Any) -> None:
        work(argument)

    def pause(self) -> None:
        pass

    def flush(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def may_dial(self, endpoint: str) -> bool:
        return True

    @property
    def sent(self) -> int:
        return self.session.sent

    @property
    def acknowledged(self) -> int:
        return self.session.acknowledged

    def statistics(self) -> Any:
        """As a peer; of a dialer only `session` is read."""
        return _Statistics(self.session.statistics())

    # what ZeroMQ does

    @property
    def waiting(self) -> bool:
        """Whether there is something to carry on."""
        return self.session.pressing

    def outgoing(self) -> list[list[bytes]]:
        """What waits, as the messages that leave at the end of a turn."""
        messages = [list(message) for message in self._outgoing(0.0)]
        self.sent_messages += len(messages)
        self.sent_bytes += sum(len(part) for message in messages for part in message)
        return messages

    def _received(self, message: list[bytes]) -> Sequence[bytes]:
        if message[0][:1] == DATA:
            return self.session.take_data(*read_data(message, _LIMITS.message_bytes), 0.0)
        header = read_message(message)
        assert isinstance(header, Ack), "nothing else is said here"
        self.session.take_ack(header.ack, header.sent, 0.0)
        return ()

    def take(self, messages: Sequence[list[bytes]], handler: Any, *first: object) -> None:
        """Messages of the other end have come: hand what is in them to the handler, as a link does."""
        for message in messages:
            self.received_messages += 1
            for payload in self._receive(message):
                handler.on_frame(*first, payload)
        handler.on_quiet()


class _Statistics:
    def __init__(self, session: Any) -> None:
        self.session, self.unacknowledged_bytes = session, session.unacknowledged_bytes


# --- the processes ---------------------------------------------------------------------------------------------


class Link(NamedTuple):
    """Both ends of a link, and who is told of what comes at each."""

    up: Wire  # the child's end
    down: Wire  # the parent's
    child: Any
    parent: Any


class Rig:
    """All processes of a small overlay in one: a publisher and a subscriber, each at a node of its own."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch
        self.server = Server(ServerSettings(listen="tcp://127.0.0.1:0"), Rights.everything())
        nodes = [Node(NodeSettings(listen="tcp://127.0.0.1:0"), Rights.everything()) for _ in range(2)]
        self.publisher, self.subscriber = Client(configure("tcp://127.0.0.1:1")), Client(configure("tcp://127.0.0.1:1"))
        self.nodes = [
            self._link(node, self.server.children, "node", number) for number, node in enumerate(nodes, start=1)
        ]
        self.clients = [
            self._link(client._line, node.children, "client", 1)
            for client, node in zip((self.publisher, self.subscriber), nodes, strict=True)
        ]

    def _link(self, child: Any, parent: Any, role: str, number: int) -> Link:
        child.dialer = Wire(self.watch, role, number)
        return Link(child.dialer, Wire(self.watch, role, number), child, parent)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The server serves, nodes are attached, and clients are connected."""
        started = asyncio.Event()
        serving = asyncio.create_task(self.server.run(started), name="hop.server")
        try:
            await started.wait()
            for link in (*self.nodes, *self.clients):
                link.parent.on_join(link.down)
            for link in self.nodes:
                link.child.on_up({}, True)
            for client in (self.publisher, self.subscriber):
                await client.open()
            yield
            for client in (self.publisher, self.subscriber):
                await self.carried(client.close())
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    def carry(self) -> bool:
        """Carry all messages that wait one step on; whether there were any."""
        moved = False
        for link in (*self.clients, *self.nodes):
            if link.up.waiting:
                self.up(link)
                moved = True
            if link.down.waiting:
                self.down(link)
                moved = True
        return moved

    @staticmethod
    def up(link: Link) -> None:
        """What a child said, to its parent."""
        link.down.take(link.up.outgoing(), link.parent, link.down)

    @staticmethod
    def down(link: Link) -> None:
        """What a parent said, to its child."""
        link.up.take(link.down.outgoing(), link.child)

    async def carried(self, work: Any) -> Any:
        """The result of a call, while messages are carried to and fro."""
        task = asyncio.ensure_future(work)
        while not task.done():
            self.carry()
            await asyncio.sleep(0)
        return task.result()

    async def turns_until(self, holds: Callable[[], object]) -> None:
        """Give the loop its turn until something has happened."""
        for turn in range(MOST_TURNS):
            if holds():
                return
            if turn >= PATIENCE:  # something else came first, such as news that the server sends by itself
                self.carry()
            await asyncio.sleep(0)
        raise AssertionError("a frame got lost")


# --- measuring -------------------------------------------------------------------------------------------------


class Rounds:
    """Publishes again and again, and times each process's part in it."""

    def __init__(self, rig: Rig, rows: int, table_rows: int) -> None:
        self._rig, self._rows, self._table_rows = rig, rows, table_rows
        self._published = 0
        self.parts: dict[str, list[dict[str, int]]] = {process: [] for process in PROCESSES}  # ns, by stage and whole
        self.counting = False

    @contextmanager
    def _part(self, process: str, *wires: Wire, more: bool = False) -> Iterator[None]:
        """Time one process's part, or `more` of it; `wires` are its ends of links."""
        before = [sum(getattr(wire, name) for wire in wires) for name in _COUNTED]
        blocks = sys.getallocatedblocks() if self.counting else 0
        self._rig.watch.ns.clear()
        began = perf_counter_ns()
        yield
        whole = perf_counter_ns() - began
        kept = sys.getallocatedblocks() - blocks if self.counting else 0
        after = [sum(getattr(wire, name) for wire in wires) for name in _COUNTED]
        found = {name: now - then for name, now, then in zip(_COUNTED, after, before, strict=True)}
        found |= {**self._rig.watch.ns, "whole": whole, "blocks": kept}
        if more:
            last = self.parts[process].pop()
            found = {name: last.get(name, 0) + found.get(name, 0) for name in last | found}
        self.parts[process].append(found)

    def _next(self) -> Any:
        """Rows whose Y is lower than any before: each is a new minimum, so each has a message and listeners."""
        at = self._published + np.arange(self._rows)
        self._published += self._rows
        ids, y = at * 7919 % self._table_rows, -1.0 - at
        return {"ID": int(ids[0]), "Y": float(y[0])} if self._rows == 1 else {"ID": ids, "Y": y}

    async def round(self, heard: Counter[str]) -> None:
        """One publish, from the call to the subscriber's event and the publisher's receipt."""
        rig, rows, before = self._rig, self._next(), heard["events"]
        (publisher, subscriber), (node, other) = rig.clients, rig.nodes
        while rig.carry():  # acknowledgements, and what the server and the nodes say by themselves
            pass
        with self._part(PUBLISHER, publisher.up):
            publishing = asyncio.ensure_future(rig.publisher.publish("POINTS", rows))
            await rig.turns_until(lambda: publisher.up.waiting)
            messages = publisher.up.outgoing()
        with self._part(NODE_UP, publisher.down, node.up):
            publisher.down.take(messages, publisher.parent, publisher.down)
            messages = node.up.outgoing()
        sent = node.down.sent, other.down.sent
        with self._part(SERVER, node.down, other.down):
            node.down.take(messages, node.parent, node.down)
            await rig.turns_until(lambda: node.down.sent > sent[0] and other.down.sent > sent[1])
            receipts, deliveries = node.down.outgoing(), other.down.outgoing()
        with self._part(NODE_UP, publisher.down, node.up, more=True):
            node.up.take(receipts, node.child)
            receipts = publisher.down.outgoing()
        with self._part(NODE_DOWN, other.up, subscriber.down):
            other.up.take(deliveries, other.child)
            deliveries = subscriber.down.outgoing()
        with self._part(SUBSCRIBER, subscriber.up):
            subscriber.up.take(deliveries, subscriber.child)
            await rig.turns_until(lambda: heard["events"] > before)
        with self._part(PUBLISHER, publisher.up, more=True):
            publisher.up.take(receipts, publisher.child)
            await rig.turns_until(publishing.done)
        await publishing

    async def run(self, at: int, count: int, heard: Counter[str]) -> int:
        """So many rounds, after `at` rows have been published; how many then have."""
        self._published = at
        for _ in range(count):
            await self.round(heard)
        return self._published

    def times(self, process: str, blocks: float) -> StageTimes:
        """The mean of the faster half of the rounds: stages then add up, and moments in which the machine was busy with
        something else are out."""
        parts = sorted(self.parts[process], key=lambda part: part["whole"])
        faster = parts[: max(1, len(parts) // 2)]
        us = {stage: fmean(part.get(stage, 0) for part in faster) / 1e3 for stage in (*STAGES, "session")}
        us["rest"] = fmean(part["whole"] for part in faster) / 1e3 - sum(us.values())
        sent, received, size = (fmean(part[name] for part in parts) for name in _COUNTED)
        return StageTimes(process, self._rows, us, sent, received, size / max(sent, 1e-9), blocks)

    def blocks(self, process: str) -> float:
        """Memory that a part left allocated."""
        return median(part["blocks"] for part in self.parts[process])


_COUNTED = ("sent_messages", "received_messages", "sent_bytes")


async def measure_stages(
    rows: Sequence[int], frames_each: int, *, table_rows: int = 10_000, subscriptions: int = 10_000
) -> tuple[list[StageTimes], list[Counted]]:
    """All processes and stages, for frames of each number of rows."""
    watch = Stopwatch()
    rig = Rig(watch)
    times: list[StageTimes] = []
    counted: list[Counted] = []
    heard: Counter[str] = Counter()
    async with rig.running():
        await rig.carried(rig.publisher.execute(CREATE))
        x = np.linspace(0.0, DOMAIN, table_rows)
        await rig.carried(
            rig.publisher.publish("POINTS", {"ID": np.arange(table_rows), "X": x, "Y": np.ones(table_rows)})
        )
        low = np.linspace(0.0, DOMAIN, subscriptions)
        width = 2 * DOMAIN / subscriptions  # every row lies in a handful of ranges
        many = await rig.carried(rig.subscriber.subscribe_many(RANGE_MIN, low - width, low + width))
        reading = asyncio.create_task(_read(many, heard), name="hop.read")
        try:
            at = 0
            for size in rows:
                warm, plain, memory, timed = (Rounds(rig, size, table_rows) for _ in range(4))
                few = max(10, frames_each // 10)
                at = await warm.run(at, few, heard)
                before = [generation["collections"] for generation in gc.get_stats()]
                at = await plain.run(at, frames_each, heard)
                after = [generation["collections"] for generation in gc.get_stats()]
                first, second, third = (
                    round(1e4 * (now - then) / frames_each) for now, then in zip(after, before, strict=True)
                )
                counted.append(Counted(size, frames_each, (first, second, third)))
                memory.counting = True
                at = await memory.run(at, few, heard)
                with watch.installed():
                    at = await timed.run(at, frames_each, heard)
                times += [timed.times(process, memory.blocks(process)) for process in PROCESSES]
        finally:
            await rig.carried(many.close())
            await reading
    return times, counted


async def _read(many: Subscriptions, heard: Counter[str]) -> None:
    async for changed in many.changes():
        heard["events"] += 1
        heard["changes"] += len(changed)
