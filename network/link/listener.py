"""A parent's end of its links: one ROUTER, many children."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

import zmq

from hullcast.network.link.connections import Connections, descriptor_of
from hullcast.network.link.endpoints import check_endpoint
from hullcast.network.link.header import (
    BYE_CODES,
    DATA,
    Ack,
    Bye,
    Header,
    Hello,
    Resend,
    Welcome,
    encode,
    is_bye,
    read_data,
    read_message,
)
from hullcast.network.link.limits import BUSY_HANDSHAKES, FAREWELL_S, HEARTBEATS_PER_S, SILENT_HEARTBEATS, LinkLimits
from hullcast.network.link.peer import Peer, PeerHandler
from hullcast.network.link.session import Session
from hullcast.network.link.socket import (
    DOOR_EVENTS,
    Context,
    EventSocket,
    LinkContext,
    Message,
    Socket,
    bound_endpoint,
    check_curve,
    open_monitor,
    open_router,
    stop_monitor,
)
from hullcast.network.security.authenticator import Allow, Authenticator, Entrance, user_of
from hullcast.network.security.curve import Curve
from hullcast.network.wire.errors import BadFrame, BadSetting, Overloaded, PeerError
from hullcast.network.wire.logs import logger

log = logger(__name__)

_REFUSED_MOST: Final = 4096  # connections remembered as told BYE, so that each is told once


@dataclass(frozen=True, slots=True)
class ListenerStatistics:
    """Counters since the start, and what is there now. `left` and `refused` count by BYE code."""

    peers: int
    connections: int
    joined: int
    resumed: int
    left: Mapping[str, int]
    refused: Mapping[str, int]
    ignored: int
    failed_handshakes: int
    refused_keys: int
    cut: int
    received_frames: int
    received_bytes: int
    sent_frames: int
    sent_bytes: int


@dataclass(slots=True)
class _Counters:
    joined: int = 0
    resumed: int = 0
    ignored: int = 0
    received_frames: int = 0
    received_bytes: int = 0
    sent_frames: int = 0
    sent_bytes: int = 0
    left: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


class Listener:
    """Welcomes children, keeps a session for each, and closes those that break the protocol or do not keep up.

    A connection is a ROUTER identity; a session is found by its id (and key), so a child that comes back on a new
    connection goes on where it was. Nothing a peer does blocks the loop or costs others more than its own limits.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        limits: LinkLimits | None = None,
        curve: Curve | None = None,
        allow: Allow | None = None,
        welcome: Callable[[], Mapping[str, object]] = dict,
        context: Context | None = None,
        insecure: bool = False,
    ) -> None:
        """`allow` decides which keys may come in (with `curve`; without `allow`, every key); `welcome` says what
        children are told when they come (plain msgpack values)."""
        check_endpoint(endpoint, private=curve is not None or insecure, listening=True)
        self.endpoint = endpoint
        self._limits = limits or LinkLimits()
        self._curve = check_curve(endpoint, curve)
        self._allow: Allow = allow or (lambda key: True)
        self._welcome = welcome
        self._context: Context = context or LinkContext.instance()
        self._peers: dict[int, Peer] = {}
        self._sessions: dict[bytes, Peer] = {}
        self._session_ids: dict[int, bytes] = {}
        self._bound: dict[bytes, Peer] = {}
        self._refused: OrderedDict[bytes, None] = OrderedDict()
        self._connections = Connections(self._limits.strangers, BUSY_HANDSHAKES * self._limits.handshake_s)
        self._counters = _Counters()
        self._due: list[tuple[float, int]] = []  # a heap: when to look at which peer, once for each
        self._clients = 0
        self._by_key: Counter[str] = Counter()  # clients
        self._dirty: dict[Peer, None] = {}  # with something to say at the end of the turn
        self._flushing: asyncio.Handle | None = None
        self._heard = False  # frames, since `on_quiet`
        self._leaving: list[tuple[Peer, str]] = []
        self._farewells: set[bytes] = set()
        self._numbers = 0
        self._stopping = False
        self._raw: Socket | None = None
        self._entrance: Entrance | None = None

    def start(self, handler: PeerHandler) -> None:
        """Bind and serve; `endpoint` then is the bound one. To be called on the event loop, once; `BadSetting` when
        that cannot be, and then nothing is left of it."""
        if self._raw is not None or self._stopping:
            raise BadSetting("listener", self.endpoint, "can be started once")
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        #: Becomes done only when the handler raised something other than a `PeerError`; then reading has stopped.
        self.failed: asyncio.Future[None] = self._loop.create_future()
        with ExitStack() as undo:
            if self._curve is not None:
                self._entrance = Authenticator.open(self._context, self._allow)
                undo.callback(self._close_entrance)
            domain = self._entrance.domain if self._entrance is not None else ""
            raw = open_router(self._context, self.endpoint, self._limits, self._curve, domain)
            undo.callback(raw.close)
            try:
                monitor = open_monitor(self._context, raw, DOOR_EVENTS)
            except zmq.ZMQError as error:
                raise BadSetting("endpoint", self.endpoint, f"cannot be watched: {error.strerror}") from error
            undo.pop_all()
        self._raw = raw
        self.endpoint = bound_endpoint(raw)
        self._socket = EventSocket(raw, self._on_message, self._on_quiet)
        self._monitor = EventSocket(monitor, self._on_door)
        self._done = asyncio.Event()
        self._tick_s = self._limits.heartbeat_s / 2
        self._tick_due = self._loop.time() + self._tick_s
        self._timer = self._loop.call_at(self._tick_due, self._tick)

    async def stop(self, code: str = "leaving", text: str = "it stops") -> None:
        """Say BYE to all, give last words a moment, close everything. No handler is called any more."""
        if self._raw is None or self._stopping:
            return
        self._stopping = True
        self._timer.cancel()
        try:
            for peer in list(self._peers.values()):
                if peer.session.connected:
                    self._farewells.add(peer.identity)
                self._forget(peer, Bye(code, text))
            if self._farewells and not self._socket.closed:
                try:
                    async with asyncio.timeout(FAREWELL_S):
                        await self._done.wait()
                except TimeoutError:
                    log.debug("peers did not answer bye", extra={"peers": len(self._farewells)})
        finally:
            self._close()

    @property
    def peers(self) -> Mapping[int, Peer]:
        """The children by number."""
        return self._peers

    def statistics(self) -> ListenerStatistics:
        """Counters since the start, and what is there now."""
        counters = self._counters
        return ListenerStatistics(
            peers=len(self._peers),
            connections=len(self._connections),
            joined=counters.joined,
            resumed=counters.resumed,
            left=dict(counters.left),
            refused=dict(counters.refused),
            ignored=counters.ignored,
            failed_handshakes=self._connections.failed_handshakes,
            refused_keys=self._entrance.refused if self._entrance is not None else 0,
            cut=self._connections.cut,
            received_frames=counters.received_frames,
            received_bytes=counters.received_bytes,
            sent_frames=counters.sent_frames,
            sent_bytes=counters.sent_bytes,
        )

    def send(self, peer: Peer, payload: bytes) -> None:
        """See `Peer.send`."""
        if peer.closed:
            return
        try:
            peer.session.send(payload)
        except Overloaded as error:
            self._leave(peer, Bye("slow", str(error)))
            return
        self._mark(peer)

    def flush(self) -> None:
        """Send now what would leave at the end of this turn; for an owner that knows that nothing more will come."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if not self._dirty or self._socket.closed:
            return
        dirty, self._dirty = self._dirty, {}
        now = self._loop.time()
        for peer in dirty:
            if not peer.closed:
                self._say_all(peer, now)
        self._socket.sent()

    def close(self, peer: Peer, code: str, text: str) -> None:
        """See `Peer.close`."""
        if not peer.closed:
            self._leave(peer, Bye(code if code in BYE_CODES else "protocol", text))

    # -- what comes in -----------------------------------------------------------------------------------------

    def _on_message(self, message: Message) -> None:
        first, parts = message
        identity = first.bytes
        if self._stopping:
            if is_bye(parts):
                self._farewell(identity)
            return
        peer = self._bound.get(identity)
        if peer is None and identity in self._refused:
            self._counters.ignored += 1
            return
        try:
            if peer is None:
                self._greet(identity, read_message(parts), first)
            elif parts[0][:1] == DATA:
                self._take(peer, parts)
            else:
                self._apply(peer, read_message(parts))
        except PeerError as error:
            if peer is not None:
                self.close(peer, error.code, str(error))
            else:
                self._refuse(identity, first, Bye(error.code, str(error)))
        except Exception as error:  # noqa: BLE001  whoever owns the loop hears of it through `failed`
            self._fail(error)

    def _take(self, peer: Peer, parts: list[bytes]) -> None:
        """Hand a peer's payloads over, until it is closed."""
        session, counters = peer.session, self._counters
        seq, ack, payloads = read_data(parts, self._limits.message_bytes)
        for payload in session.take_data(seq, ack, payloads, self._loop.time()):
            counters.received_frames += 1
            counters.received_bytes += len(payload)
            self._heard = True
            self._handler.on_frame(peer, payload)
            if peer.closed:
                return
        if session.pressing:
            self._mark(peer)

    def _apply(self, peer: Peer, header: Header) -> None:
        match header:
            case Ack(ack, sent):
                peer.session.take_ack(ack, sent, self._loop.time())
            case Resend(start):
                peer.session.take_resend(start, self._loop.time())
            case Bye(code, text):
                self._leave(peer, Bye("leaving", "as you said"), why=f"{code}: {text}")
                return
            case _:
                raise BadFrame("a greeting inside a link")
        if peer.session.pressing:
            self._mark(peer)

    def _on_quiet(self) -> None:
        """The end of a turn: the owner may act on all it heard, and what that leads to leaves together."""
        if self._heard and not self._stopping:
            self._heard = False
            try:
                self._handler.on_quiet()
            except Exception as error:  # noqa: BLE001  whoever owns the loop hears of it through `failed`
                self._fail(error)
        self.flush()

    def _greet(self, identity: bytes, header: Header, frame: zmq.Frame) -> None:
        """A connection's first message: begin a session, resume one, or refuse."""
        if not isinstance(header, Hello):
            raise BadFrame("the first message is not hello")
        if identity[:1] != b"\0":  # chosen by the peer: another connection could take it over
            raise BadFrame("a connection with a name of its own")
        key = user_of(frame)
        known = self._sessions.get(header.session)
        if known is not None and known.key != key:
            self._refuse(identity, frame, Bye("denied", "the session belongs to another key"))
        elif header.received >= 0 and known is None:
            self._refuse(identity, frame, Bye("unknown", "no such session here; begin a new one"))
        elif known is None and len(self._peers) >= self._limits.peers and not self._make_room(key):
            self._refuse(identity, frame, Bye("full", f"{self._limits.peers} peers are here already"))
        elif header.received >= 0 and known is not None:
            self._resume(known, identity, header, frame)
        else:
            if known is not None:  # its WELCOME was lost, so it begins again
                self._leave(known, Bye("moved", "the session began again on another connection"))
                self._tell_leaves()
            self._begin(identity, header, frame, key)

    def _make_room(self, key: str | None) -> bool:
        """All places are taken: if one key has more than half of them, its latest client goes for one of another."""
        greedy = next(iter(self._by_key.most_common(1)), ("", 0))
        if greedy[1] <= len(self._peers) // 2 or greedy[0] == (key or ""):
            return False
        clients = (peer for peer in reversed(self._peers.values()) if peer.role == "client")
        latest = next(peer for peer in clients if peer.key == greedy[0])
        self._leave(latest, Bye("full", f"{self._limits.peers} peers are here, more than half of them with this key"))
        self._tell_leaves()
        return True

    def _begin(self, identity: bytes, hello: Hello, frame: zmq.Frame, key: str | None) -> None:
        now = self._loop.time()
        self._numbers += 1
        peer = Peer(self._numbers, hello, key, Session(self._limits, now, hello.message_bytes, leads=True), self)
        self._peers[peer.number] = self._sessions[hello.session] = peer
        self._clients += peer.role == "client"
        if key is not None and peer.role == "client":
            self._by_key[key] += 1
        self._pace(peer, now)
        heappush(self._due, (peer.session.due_at, peer.number))
        self._session_ids[peer.number] = hello.session
        self._bind(peer, identity, frame)
        self._counters.joined += 1
        log.info("peer joined", extra={"peer": peer.number, "role": peer.role, "peer_name": peer.name})
        self._say_welcome(peer, resumed=False)
        peer.session.attach(0, now)
        self._handler.on_join(peer)

    def _resume(self, peer: Peer, identity: bytes, hello: Hello, frame: zmq.Frame) -> None:
        try:
            peer.session.attach(hello.received, self._loop.time())
        except BadFrame as error:
            self._leave(peer, Bye("protocol", str(error)))
            raise
        self._unbind(peer, Bye("moved", "the session went on on another connection"))
        self._bind(peer, identity, frame)
        self._counters.resumed += 1
        log.info("peer resumed", extra={"peer": peer.number, "resent": peer.session.statistics().waiting_frames})
        self._say_welcome(peer, resumed=True)
        self._mark(peer)

    def _say_welcome(self, peer: Peer, *, resumed: bool) -> None:
        welcome = Welcome(
            resumed=resumed,
            received=peer.session.received,
            number=peer.number,
            heartbeat_s=float(peer.session.heartbeat_s),
            silence_s=float(peer.session.silence_s),
            message_bytes=self._limits.message_bytes,
            extra=dict(self._welcome()),
        )
        self._put(peer.identity, encode(welcome))

    def _on_door(self, message: Message) -> None:
        identity = self._connections.apply(message, self._loop.time())
        if identity is None:
            return
        self._farewell(identity)
        peer = self._bound.get(identity)
        if peer is not None:  # stays bound: what it sent before the end may not be read yet
            peer.session.detach()
            log.info("peer disconnected", extra={"peer": peer.number})

    def _tick(self) -> None:
        now = self._loop.time()
        late = now - self._tick_due
        try:
            if late > self._limits.heartbeat_s:  # this process stood still; its silence is not theirs
                for peer in self._peers.values():
                    peer.session.excuse(late)
            while self._due and self._due[0][0] <= now:
                self._look_at(heappop(self._due)[1], now)
            self._connections.sweep(now, all_read=self._socket.drained)
        finally:
            self._tick_due = now + self._tick_s
            if not self._stopping and not self._socket.closed:
                self._timer = self._loop.call_at(self._tick_due, self._tick)

    def _look_at(self, number: int, now: float) -> None:
        """A peer's time has come: to hear from us, or to be gone; unless one of us spoke meanwhile."""
        peer = self._peers.get(number)
        if peer is None:
            return
        session = peer.session
        self._pace(peer, now)
        silent = session.tick(now)
        if silent:
            self._leave(peer, Bye("silent", f"not heard for {silent:.1f} s"))
            return
        due_at = session.due_at
        if due_at <= now:  # we say something now, or cannot for want of a connection
            due_at = min(now + session.heartbeat_s, session.heard_at + session.silence_s)
        heappush(self._due, (due_at, number))
        if session.pressing:
            self._mark(peer)

    def _pace(self, peer: Peer, now: float) -> None:
        """The more clients, the fewer heartbeats each has; so a crowd does not cost much more than a few."""
        limits, session = self._limits, peer.session
        heartbeat_s, silence_s = limits.heartbeat_s, limits.silence_s
        if peer.role == "client" and self._clients > limits.heartbeat_s * HEARTBEATS_PER_S:
            heartbeat_s = self._clients / HEARTBEATS_PER_S
            silence_s = max(silence_s, SILENT_HEARTBEATS * heartbeat_s)
        session.pace(heartbeat_s, silence_s, now)

    # -- what goes out -----------------------------------------------------------------------------------------

    def _mark(self, peer: Peer) -> None:
        """A peer has something to say: it leaves at the end of this turn."""
        self._dirty[peer] = None
        if self._flushing is None and not self._socket.reading:
            self._flushing = self._loop.call_soon(self.flush)

    def _say_all(self, peer: Peer, now: float) -> None:
        """What the session has to say now."""
        session, counters = peer.session, self._counters
        before = session.flown
        for message in session.outgoing(now):
            if not self._put(peer.identity, *message):
                session.detach()
                return
            if len(message) == 2:
                counters.sent_bytes += len(message[1])
        counters.sent_frames += session.flown - before

    def _put(self, identity: bytes, *message: bytes) -> bool:
        """Whether ZeroMQ took the message; it does unless the connection is gone."""
        if self._socket.closed:
            return False
        try:
            self._socket.send(identity, *message)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            return False
        return True

    # -- coming and going --------------------------------------------------------------------------------------

    def _bind(self, peer: Peer, identity: bytes, frame: zmq.Frame) -> None:
        self._monitor.read_now()  # the connection's ACCEPTED, so that its descriptor is known for what it is
        peer.identity, peer.descriptor = identity, descriptor_of(frame)
        self._bound[identity] = peer
        self._connections.greet(peer.descriptor, identity)

    def _unbind(self, peer: Peer, bye: Bye) -> None:
        if self._bound.pop(peer.identity, None) is not None:
            self._dismiss(peer.identity, peer.descriptor, bye)

    def _dismiss(self, identity: bytes, descriptor: int, bye: Bye) -> None:
        """Say BYE on a connection, once, and see that it ends."""
        self._refused[identity] = None
        if len(self._refused) > _REFUSED_MOST:
            self._refused.popitem(last=False)
        self._put(identity, encode(bye))
        self._socket.sent()
        self._connections.expel(descriptor, self._loop.time() + FAREWELL_S)

    def _refuse(self, identity: bytes, frame: zmq.Frame, bye: Bye) -> None:
        self._counters.refused[bye.code] += 1
        log.warning("connection refused", extra={"code": bye.code, "why": bye.text})
        self._monitor.read_now()
        self._dismiss(identity, descriptor_of(frame), bye)

    def _leave(self, peer: Peer, bye: Bye, why: str = "") -> None:
        """Forget a peer; its owner is told at the loop's next turn, never from inside its own call."""
        if peer.closed:
            return
        self._counters.left[bye.code] += 1
        log.info("peer left", extra={"peer": peer.number, "why": why or f"{bye.code}: {bye.text}"})
        self._forget(peer, bye)
        if not self._leaving:
            self._loop.call_soon(self._tell_leaves)
        self._leaving.append((peer, why or f"{bye.code}: {bye.text}"))

    def _forget(self, peer: Peer, bye: Bye) -> None:
        self._say_all(peer, self._loop.time())
        peer.closed = True
        del self._peers[peer.number]
        self._clients -= peer.role == "client"
        if peer.key is not None and peer.role == "client":
            self._by_key[peer.key] -= 1
            if not self._by_key[peer.key]:
                del self._by_key[peer.key]
        del self._sessions[self._session_ids.pop(peer.number)]
        self._unbind(peer, bye)

    def _tell_leaves(self) -> None:
        leaving, self._leaving = self._leaving, []
        for peer, why in leaving:
            if self._stopping:
                return
            try:
                self._handler.on_leave(peer, why)
            except Exception as error:  # noqa: BLE001  whoever owns the loop hears of it through `failed`
                self._fail(error)

    def _farewell(self, identity: bytes) -> None:
        self._farewells.discard(identity)
        if self._stopping and not self._farewells:
            self._done.set()

    def _fail(self, error: Exception) -> None:
        log.error("handler failed", exc_info=error)
        if not self.failed.done():
            self.failed.set_exception(error)
        self._close()

    def _close(self) -> None:
        self._timer.cancel()
        if self._flushing is not None:
            self._flushing.cancel()
        if self._raw is not None and not self._socket.closed:
            stop_monitor(self._raw)
        self._monitor.close()
        self._socket.close()
        self._close_entrance()

    def _close_entrance(self) -> None:
        if self._entrance is not None:
            Authenticator.close(self._context, self._entrance)
