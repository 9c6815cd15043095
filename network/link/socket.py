"""ZeroMQ sockets: all are opened here, each option with its reason, and read by the asyncio loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeAlias

import zmq

from hullcast.network.link.limits import BUSY_HANDSHAKES, LinkLimits
from hullcast.network.security.curve import Curve
from hullcast.network.wire.errors import BadSetting

#: A plain ZeroMQ context and socket; pyzmq's asyncio variants are not used: their futures cost more than the messages.
Context: TypeAlias = "zmq.Context[zmq.Socket[bytes]]"
Socket: TypeAlias = "zmq.Socket[bytes]"

BATCH_MESSAGES: Final = 256  # messages read before the loop gets its turn ..
BATCH_S: Final = 0.005  # .. or time spent on them
ZAP: Final = "inproc://zeromq.zap.01"  # where ZeroMQ asks about keys; the name is its own (RFC 27)
PARTS_MOST: Final = 8  # parts of one message kept; no message of ours or of ZAP has more
_RECEIVE_MESSAGES: Final = 256  # RCVHWM: what ZeroMQ reads ahead for each connection; then TCP pushes back

_NEVER_MS: Final = 3_600_000  # long after everybody has noticed that the connection is over

#: Sockets of one context; more is beyond ZeroMQ.
MOST_SOCKETS: Final = 65_535
SOCKETS_PER_DIALER: Final = 3

_monitor_numbers = itertools.count()
#: Payloads from this size on are not copied but shared with ZeroMQ, also among peers. That halves the sender's work at
#: 200 KB; for it pyzmq keeps one thread (and a context) for the life of the process. Smaller ones are cheaper to copy.
_SHARED_BYTES: Final = 64 << 10
_NOW: Final = int(zmq.DONTWAIT)  # plain integers: to combine flags of an enumeration costs as much as a small message
_NOW_AND_MORE: Final = int(zmq.DONTWAIT) | int(zmq.SNDMORE)
_EVENTS: Final = int(zmq.EVENTS)
_READABLE: Final = int(zmq.POLLIN)


class Message(NamedTuple):
    """A message's parts: the first with what ZeroMQ knows of its connection, the others as bytes."""

    first: zmq.Frame
    rest: list[bytes]


class LinkContext(zmq.Context):  # type: ignore[type-arg]  # of sockets that `Context` names
    """The ZeroMQ context of a process's links (`LinkContext.instance()`): its own, with as many sockets as ZeroMQ has.

    A dialer takes SOCKETS_PER_DIALER of them: the DEALER, its monitor, and the end of the monitor that ZeroMQ opens
    itself. With ZeroMQ's own limit, 1023, a process would have room for 341 clients. The limit must be set before the
    first socket is opened, so the context that programs share (`zmq.Context.instance()`) would not do: they may have
    opened some.
    """

    _instance = None  # not the one of the base class

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.set(zmq.MAX_SOCKETS, MOST_SOCKETS)


def open_router(context: Context, endpoint: str, limits: LinkLimits, curve: Curve | None, domain: str) -> Socket:
    """A bound ROUTER for many children."""
    socket = _open(context, zmq.ROUTER, endpoint, limits)
    try:
        socket.set(zmq.ROUTER_MANDATORY, 1)  # a vanished peer is an error (EHOSTUNREACH) and no silent drop
        # Children of a restarted parent come back all at once. (No ZMTP PING beside our own heartbeat: a child that is
        # not heard is forgotten, and its connection cut.)
        socket.set(zmq.BACKLOG, 1 << 16)
        if curve is not None:
            socket.curve_server = True
            socket.curve_publickey, socket.curve_secretkey = curve.public.encode(), curve.secret.encode()
            socket.zap_domain = domain.encode()  # tells the authenticator which listener asks
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        socket.close()
        reason = f"cannot listen there: {zmq.strerror(error.errno or 0)}"
        if error.errno == zmq.EADDRINUSE:
            reason += "; stop the process that listens there, or choose another port (--listen; port 0: any free one)"
        raise BadSetting("listen", endpoint, reason) from error
    return socket


def bound_endpoint(socket: Socket) -> str:
    """Where a socket listens, with the port the system chose."""
    endpoint = socket.get(zmq.LAST_ENDPOINT)
    assert isinstance(endpoint, bytes)
    return endpoint.rstrip(b"\0").decode()


def open_dealer(context: Context, endpoint: str, limits: LinkLimits, curve: Curve | None) -> tuple[Socket, Socket]:
    """A DEALER on its way to one parent, and its monitor (opened first, so that it misses nothing)."""
    socket = _open(context, zmq.DEALER, endpoint, limits)
    monitor: Socket | None = None
    try:
        # The dialer makes a new socket when the connection ends: nothing old may be in its pipes. Not -1 (never): then
        # ZeroMQ would take the pipe away when the connection ends, maybe between two parts of a message, and abort.
        socket.set(zmq.RECONNECT_IVL, _NEVER_MS)
        socket.set(zmq.CONNECT_TIMEOUT, max(1, int(BUSY_HANDSHAKES * limits.handshake_s * 1000)))
        if curve is not None:
            socket.curve_publickey, socket.curve_secretkey = curve.public.encode(), curve.secret.encode()
            socket.curve_serverkey = curve.server_key(endpoint).encode()
        monitor = open_monitor(context, socket, DIAL_EVENTS)
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        if monitor is not None:
            stop_monitor(socket)
            monitor.close()
        socket.close()
        raise BadSetting("endpoint", endpoint, f"cannot dial it: {error.strerror}") from error
    except BadSetting:
        socket.close()
        raise
    return socket, monitor


#: A dialer's connection is there; is over; or never came to be.
DIAL_EVENTS: Final = (
    zmq.Event.HANDSHAKE_SUCCEEDED
    | zmq.Event.DISCONNECTED
    | zmq.Event.CLOSED
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_AUTH
)
#: What a listener wants to know of its connections.
DOOR_EVENTS: Final = (
    zmq.Event.ACCEPTED
    | zmq.Event.DISCONNECTED
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_AUTH
)


def open_monitor(context: Context, socket: Socket, events: int) -> Socket:
    """The socket on which ZeroMQ tells what happens to `socket`'s connections."""
    address = f"inproc://hullcast.monitor.{next(_monitor_numbers)}"
    monitor = context.socket(zmq.PAIR)
    monitor.set(zmq.LINGER, 0)
    try:
        socket.monitor(address, events)
    except zmq.ZMQError:  # out of sockets
        monitor.close()
        raise
    monitor.set(zmq.RCVHWM, 0)  # with a limit, ZeroMQ's I/O thread would wait for this process to read
    monitor.connect(address)
    return monitor


def stop_monitor(socket: Socket) -> None:
    """Stop monitoring; before the monitor is closed: without a reader ZeroMQ's I/O thread would wait for one, and
    whoever stops the monitor then would wait for the I/O thread."""
    with suppress(zmq.ZMQError):
        socket.disable_monitor()


def release_zap(socket: Socket) -> None:
    """Before it is closed: let the next one have its place at once. `close` alone leaves that to another thread."""
    if not socket.closed:
        socket.unbind(ZAP)


def open_zap(context: Context) -> Socket:
    """The socket on which ZeroMQ asks whether a key may come in; REP, since each question is answered at once."""
    socket = context.socket(zmq.REP)
    socket.set(zmq.LINGER, 0)
    try:
        socket.bind(ZAP)
    except zmq.ZMQError as error:
        socket.close()
        raise BadSetting("context", "in use", "another ZAP handler answers on this ZeroMQ context") from error
    return socket


def check_curve(endpoint: str, curve: Curve | None) -> Curve | None:
    """The keys to use at `endpoint`: inproc does not leave the process and knows no CURVE."""
    return None if endpoint.startswith("inproc://") else curve


class EventSocket:
    """A ZeroMQ socket on the asyncio loop: `on_message` gets each message, and `on_quiet` is called after the last one
    of a turn: all that had arrived was read, or others on the loop shall have theirs.

    ZeroMQ's descriptor becomes readable when something *changed*, and any call on the socket may take that signal
    away (edge-triggered). So: after the signal we read until nothing is left, or come back by ourselves when a batch
    is full, and whoever sends asks afterwards whether something came (`sent`).
    """

    def __init__(
        self, socket: Socket, on_message: Callable[[Message], None], on_quiet: Callable[[], None] | None = None
    ) -> None:
        self._socket = socket
        self._on_message = on_message
        self._on_quiet = on_quiet
        self._loop = asyncio.get_running_loop()
        self._descriptor = int(socket.get(zmq.FD))
        self._again: asyncio.Handle | None = None
        self._reading = False
        self._paused = False
        #: Whether all that had arrived was read when it was last looked.
        self.drained = False
        self._loop.add_reader(self._descriptor, self._read)
        self.look_again()  # the signal may have come before the reader was added

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._descriptor < 0

    @property
    def reading(self) -> bool:
        """Whether this is called from inside `on_message`, which `on_quiet` follows in the same turn, or from there."""
        return self._reading

    def send(self, *parts: bytes) -> None:
        """Send one message now, its last part without a copy if it is large; `zmq.ZMQError` when there is nobody to
        take it. `sent` must follow, once for all messages of a turn."""
        send, last = self._socket.send, parts[-1]
        for part in parts[:-1]:
            send(part, _NOW_AND_MORE)
        send(last, _NOW, len(last) < _SHARED_BYTES)

    def sent(self) -> None:
        """Sending may have taken the signal away that something came: read that at the loop's next turn."""
        if self._again is None and self._may_read() and self._is_readable():
            self.look_again()

    def look_again(self) -> None:
        """Read at the loop's next turn."""
        if self._again is None:
            self._again = self._loop.call_soon(self._read)

    @property
    def paused(self) -> bool:
        """Whether what comes is left where it is."""
        return self._paused

    def pause(self) -> None:
        """Leave what comes where it is, until `resume`; then ZeroMQ and the network fill up and the sender waits."""
        if not self.closed and not self._paused:
            self._loop.remove_reader(self._descriptor)  # an unanswered signal would keep the loop turning
        self._paused = True

    def resume(self) -> None:
        """Read again."""
        if not self.closed and self._paused:
            self._loop.add_reader(self._descriptor, self._read)
            self.look_again()
        self._paused = False

    def read_now(self) -> None:
        """Read what is there, without limit; for a socket whose news must be known before going on."""
        while not self.closed and (message := self._receive()) is not None:
            self._on_message(message)
        if self._on_quiet is not None and not self._reading:
            self._on_quiet()

    def close(self, linger_s: float = 0.0) -> None:
        """Stop reading and close the socket; last words may take `linger_s`. More than once does no harm."""
        if self.closed:
            return
        self._loop.remove_reader(self._descriptor)  # a paused one has none, which is fine
        self._descriptor = -1
        if self._again is not None:
            self._again.cancel()
            self._again = None
        self._socket.close(linger=int(linger_s * 1000))

    def _read(self) -> None:
        """Read a batch. To ask whether something is there costs half of what it costs to be told `Again`, but is one
        more call where much is there: so we ask before the first message when nothing was signalled, and before the
        second one, since a single message is what mostly comes."""
        ask_before = 1
        if self._again is not None:
            self._again.cancel()
            self._again = None
            ask_before = 0
        if self._reading or not self._may_read():
            return
        self._reading, self.drained = True, False
        try:
            self.drained = self._read_batch(ask_before)
        finally:
            if not self.drained and self._may_read():
                self.look_again()
            self._reading = False
        if self._on_quiet is not None:
            self._reading = True
            try:
                self._on_quiet()
            finally:
                self._reading = False

    def _read_batch(self, ask_before: int) -> bool:
        """Whether nothing was left."""
        until = self._loop.time() + BATCH_S
        for count in range(BATCH_MESSAGES):
            if count == ask_before and not self._is_readable():
                return True
            message = self._receive()
            if message is None:
                return True
            self._on_message(message)
            if not self._may_read() or self._loop.time() >= until:
                return False
        return False

    def _is_readable(self) -> bool:
        return bool(int(self._socket.get(_EVENTS)) & _READABLE)

    def _may_read(self) -> bool:
        return self._descriptor >= 0 and not self._paused

    def _receive(self) -> Message | None:
        receive = self._socket.recv
        try:
            first = part = receive(_NOW, False)
        except zmq.Again:
            return None
        rest: list[bytes] = []
        while part.more:  # the parts of a message come together: none of these waits
            part = receive(_NOW, False)  # a frame knows whether more follow; else the socket would have to be asked
            if len(rest) < PARTS_MOST:
                rest.append(part.bytes)
        return Message(first, rest)


def _open(context: Context, kind: int, endpoint: str, limits: LinkLimits) -> Socket:
    """What ROUTER and DEALER have in common."""
    try:
        socket = context.socket(kind)
    except zmq.ZMQError as error:  # out of sockets, or of open files
        raise BadSetting("endpoint", endpoint, f"no socket for it: {error.strerror}") from error
    socket.set(zmq.LINGER, 0)  # closing does not wait for peers that stopped reading
    socket.set(zmq.SNDHWM, 0)  # the session's window is the limit; a second one would drop or block
    socket.set(zmq.RCVHWM, _RECEIVE_MESSAGES)
    socket.set(zmq.MAXMSGSIZE, limits.message_bytes)  # ZeroMQ cuts a connection that announces more
    handshake_s = BUSY_HANDSHAKES * limits.handshake_s  # half-open handshakes end
    socket.set(zmq.HANDSHAKE_IVL, max(1, int(handshake_s * 1000)))
    socket.set(zmq.IPV6, int("[" in endpoint))  # only when asked: else 127.0.0.1 is shown as an IPv6 address
    socket.set(zmq.TCP_KEEPALIVE, 1)  # a machine that vanished is noticed even when nobody sends
    return socket
