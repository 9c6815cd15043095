"""A child's end of its link: one DEALER to one parent at a time, out of a list of parents."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeVar

import zmq

from hullcast.network.link.endpoints import check_endpoint
from hullcast.network.link.header import (
    BYE_CODES,
    DATA,
    SESSION_BYTES,
    Ack,
    Bye,
    Header,
    Hello,
    Resend,
    Welcome,
    encode,
    read_data,
    read_message,
)
from hullcast.network.link.limits import BUSY_HANDSHAKES, FAREWELL_S, LinkLimits
from hullcast.network.link.session import Session, SessionStatistics
from hullcast.network.link.socket import (
    Context,
    EventSocket,
    LinkContext,
    Message,
    Socket,
    check_curve,
    open_dealer,
    stop_monitor,
)
from hullcast.network.security.curve import Curve
from hullcast.network.wire.errors import BadFrame, BadSetting, ConnectionLost, PeerError, VersionMismatch
from hullcast.network.wire.logs import Sparingly, logger

log = logger(__name__)

Argument = TypeVar("Argument")
State = Literal["new", "up", "interrupted", "down", "stopped"]
_LAST_WORDS_S: Final = 0.1  # how long a BYE may still go out after its socket was closed
_STEADY_S: Final = 1.0  # a link that was up for so long has earned a retry at once
_LASTING_S = 10.0  # a link that has been away for so long is worth a warning


class ParentHandler(Protocol):
    """What a dialer tells its owner; on the event loop, one call at a time, `on_up` and `on_down` in turns."""

    def on_up(self, welcome: Mapping[str, object], fresh: bool) -> None:
        """The parent answers. Fresh: a new session, and what an older one still held is dropped. Not fresh: nothing
        was lost and nothing comes twice."""

    def on_frame(self, payload: bytes) -> None:
        """The parent's next payload; a `PeerError` raised here closes the link, and the next one is fresh."""

    def on_quiet(self) -> None:
        """All that had arrived was handed to `on_frame`, or others on the loop shall have their turn: once after one or
        more frames. What is sent here leaves at once, with what was sent since. Errors mean what they do there."""

    def on_down(self, why: str) -> None:
        """The connection is gone and the dialer tries again; `Dialer.state` says whether the session may go on."""


@dataclass(frozen=True, slots=True)
class DialerStatistics:
    """Counters since the start, and what is there now."""

    state: State
    endpoint: str | None
    attempts: int
    fresh: int
    resumed: int
    interruptions: int
    session: SessionStatistics | None


@dataclass(slots=True)
class _Bond:
    """A session and the parent it is with."""

    id: bytes
    endpoint: str
    session: Session


class Dialer:
    """Keeps a link to the first parent that answers, across cut connections and dead parents.

    States: new (not yet linked), up, interrupted (no connection, but the session may go on: frames queue), down (the
    session is lost: `send` raises), stopped. Each attempt has a socket of its own, so that nothing of an older
    connection is in its pipes.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        role: str,
        name: str,
        id: bytes = b"",
        listen: str | None = None,
        limits: LinkLimits | None = None,
        curve: Curve | None = None,
        context: Context | None = None,
        insecure: bool = False,
    ) -> None:
        self._curve, self._private = curve, curve is not None or insecure
        self._limits = limits or LinkLimits()
        self._context: Context = context or LinkContext.instance()
        self._role, self.name, self._id = role, name, id
        self._whom = "address" if role == "client" else "parent"  # users of a client know no parents
        self.listen = listen
        self._random = random.Random()
        self._next = 0
        self.endpoints = endpoints
        self.state: State = "new"
        self._bond: _Bond | None = None
        self._fresh_id = os.urandom(SESSION_BYTES)
        self._endpoint: str | None = None  # dialed now
        self._raw: Socket | None = None
        self._socket: EventSocket | None = None
        self._monitor: EventSocket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tries = 0  # in vain, since the link was last steady
        self._up_at = self._attempted_at = 0.0
        self._failures, self._down_at = 0, 0.0  # since there was a link, and when that ended
        self._told: dict[str, tuple[str, Sparingly]] = {}  # why each address failed, as logged since then
        self._warned = False  # that the link has been away for long
        self._is_there = False  # the parent's ZeroMQ has answered
        self._linger_s = 0.0
        self._attempts = self._fresh = self._resumed = self._interruptions = 0
        #: Why the last attempt or link ended; empty while there is a link. A BYE is told as "code: text", so "denied:"
        #: at the beginning means that the parent does not let us in (for a refused key too) and trying on is of little
        #: use. Set before `on_down` is called, and before the next attempt.
        self.failure = ""
        self.mismatch: VersionMismatch | None = None  # the failure, if the parent speaks another version
        self._writable = asyncio.Event()
        self._paused = False
        self._flushing: asyncio.Handle | None = None
        self._heard = False  # frames, since `on_quiet`

    @property
    def endpoints(self) -> Sequence[str]:
        """The parents, tried in turn; a change does not touch the present link."""
        return self._endpoints

    @endpoints.setter
    def endpoints(self, endpoints: Sequence[str]) -> None:
        if not endpoints:
            raise BadSetting("endpoints", endpoints, "needs at least one")
        for endpoint in endpoints:
            check_endpoint(endpoint, private=self._private)
        self._endpoints = tuple(endpoints)
        self._next = 0

    @property
    def sent(self) -> int:
        """The number of the last payload that `send` took; a fresh link counts from 1 again."""
        return self._bond.session.sent if self._bond is not None else 0

    @property
    def acknowledged(self) -> int:
        """Up to which of these the parent has all."""
        return self._bond.session.acknowledged if self._bond is not None else 0

    @property
    def endpoint(self) -> str | None:
        """The parent linked to or being dialed."""
        return self._endpoint

    def start(self, handler: ParentHandler) -> None:
        """Begin dialing; to be called on the event loop, once."""
        if self._timer is not None or self.state != "new":
            raise BadSetting("dialer", self.name, "can be started once")
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._down_at = self._loop.time()
        #: Becomes done only when the handler raised something other than a `PeerError`; then the dialer has stopped.
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self._parted = asyncio.Event()
        self._change = asyncio.Event()
        self._timer = self._loop.call_later(0, self._dial)

    async def stop(self, code: str = "leaving", text: str = "the child stops") -> None:
        """Say BYE, wait a moment until the parent has it, close everything. No handler is called any more."""
        if self.state == "stopped" or self._timer is None:
            self.state = "stopped"
            return
        was_up = self.state == "up"
        self.state = "stopped"
        self.resume()  # the parent's answer must be read
        self._writable.set()
        self._cancel_timer()
        try:
            if was_up:
                self.flush()
            if was_up and self._socket is not None and self._put(encode(Bye(code, text))):
                self._socket.sent()
                try:
                    async with asyncio.timeout(FAREWELL_S):
                        await self._parted.wait()
                except TimeoutError:
                    log.debug("bye not answered", extra=self._facts())
        finally:
            self._hang_up()

    def send(self, payload: bytes) -> None:
        """Send in order, at the end of this turn of the loop or when the window allows or the connection is back; never
        blocks. `Overloaded` when the queue is full, `ConnectionLost` when there is no session to send it in, `TooLarge`
        when the parent takes only smaller payloads."""
        if self._bond is None or self.state not in ("up", "interrupted"):
            raise ConnectionLost(f"the link of {self.name} is {self.state}")
        self._bond.session.send(payload)
        if self._flushing is None:
            self._mark()

    @property
    def message_bytes(self) -> int:
        """The largest payload that the parent takes; without a session, that we would take ourselves."""
        return self._limits.message_bytes if self._bond is None else self._bond.session.message_bytes

    @property
    def writable(self) -> bool:
        """Whether `send` would not add to a long queue. It adds to none while there is no session."""
        return self._bond is None or self._bond.session.writable

    def flush(self) -> None:
        """Send now what would leave at the end of this turn; for an owner that knows that nothing more will come."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if self._bond is None or self._socket is None:
            return
        messages = self._bond.session.outgoing(self._loop.time())
        for message in messages:
            if not self._put(*message):
                self._bond.session.detach()  # the monitor will say so too, at the loop's next turn
                self._loop.call_soon(self._gone, self._socket)
                return
        if messages:
            self._socket.sent()

    async def wait_writable(self) -> None:
        """Wait until `send` would not add to a long queue; `ConnectionLost` when the session is lost."""
        while True:
            if self._bond is None or self.state not in ("up", "interrupted"):
                raise ConnectionLost(f"the link of {self.name} is {self.state}")
            if self._bond.session.writable:
                return
            self._writable.clear()
            await self._writable.wait()

    async def wait_change(self) -> None:
        """Wait until an attempt begins, a link is there, or one of both ends; `state` and `failure` say which."""
        self._change.clear()
        await self._change.wait()

    def pause(self) -> None:
        """Take no more frames until `resume`, but for those that came in one message with the last one. We go on saying
        that we are there, and do not call the parent silent; what it has for us it keeps, until that is too much and it
        closes the link as slow."""
        self._paused = True
        if self._socket is not None and self.state == "up":
            self._socket.pause()

    def resume(self) -> None:
        """Take frames again."""
        self._paused = False
        if self._socket is not None:
            if self._bond is not None:
                self._bond.session.excuse(self._loop.time() - self._bond.session.heard_at)
            self._socket.resume()

    def may_dial(self, endpoint: str) -> bool:
        """Whether an endpoint that others told us of is one that our own settings would allow."""
        try:
            check_endpoint(endpoint, private=self._private)
            if self._curve is not None:
                self._curve.server_key(endpoint)
        except BadSetting:
            return False
        return True

    def redial(self, endpoint: str | None = None, why: str = "asked to dial again", *, in_vain: bool = False) -> None:
        """Leave the present parent and dial `endpoint`, or the first of the list; the next link is fresh. `in_vain`:
        the present one was useless, however long it was up; so pauses go on growing as if it had not answered."""
        if endpoint is not None:
            check_endpoint(endpoint, private=self._private)
        if self.state == "stopped" or self._timer is None:
            return
        if self.state == "up":
            self._say_bye("leaving", why)
        self._lose_session()
        self._next = 0
        if not in_vain:
            self._tries = 0
        self._lost(why, target=endpoint, in_vain=in_vain)

    def statistics(self) -> DialerStatistics:
        """Counters since the start, and what is there now."""
        return DialerStatistics(
            state=self.state,
            endpoint=self._endpoint,
            attempts=self._attempts,
            fresh=self._fresh,
            resumed=self._resumed,
            interruptions=self._interruptions,
            session=self._bond.session.statistics() if self._bond is not None else None,
        )

    # -- dialing -----------------------------------------------------------------------------------------------

    def _dial(self, target: str | None = None) -> None:
        """Open a connection to `target`, or to the next parent in turn, and say HELLO."""
        self._cancel_timer()
        if target is None:
            target = self._endpoints[self._next % len(self._endpoints)]
            self._next += 1
        self._endpoint = target
        self._attempts += 1
        self._attempted_at = self._loop.time()
        self._is_there = False
        self._change.set()
        bond = self._bond if self._bond is not None and self._bond.endpoint == target else None
        hello = Hello(
            session=bond.id if bond is not None else self._fresh_id,
            received=bond.session.received if bond is not None else -1,
            role=self._role,
            name=self.name,
            id=self._id,
            listen=self.listen,
            message_bytes=self._limits.message_bytes,
        )
        try:
            self._raw, monitor = open_dealer(self._context, target, self._limits, check_curve(target, self._curve))
        except BadSetting as error:  # such as a host name nobody knows at the moment
            self._lost(str(error))
            return
        self._socket = EventSocket(self._raw, self._on_message, self._on_quiet)
        self._monitor = EventSocket(monitor, self._on_event)
        self._timer = self._loop.call_later(self._limits.handshake_s, self._unwelcome)
        self._put(encode(hello))
        self._socket.sent()

    def _unwelcome(self) -> None:
        """No welcome in time. It may be unread, if this process is the slow one. A parent whose ZeroMQ has answered is
        there, but has much to do, as when all its children come back at the same time: it gets more time. So does every
        parent when all were tried in vain, or we would only add to what they have to do."""
        if self._socket is None:
            return
        socket = self._socket
        socket.read_now()
        if self._socket is not socket or self.state == "up":
            return
        until = self._attempted_at + BUSY_HANDSHAKES * self._limits.handshake_s
        patient = self._is_there or self._tries >= len(self._endpoints)
        if patient and self._loop.time() < until:
            self._timer = self._loop.call_at(until, self._unwelcome)
        else:
            self._lost("no welcome in time")

    def _lost(self, why: str, *, target: str | None = None, in_vain: bool = False) -> None:
        """There is no connection (any more): tell the owner if there was one, and try again."""
        if self.state == "stopped":
            self._parted.set()
            return
        now = self._loop.time()
        self.failure = why
        self._hang_up()
        self._change.set()
        was_up, self.state = self.state == "up", "interrupted" if self._bond is not None else "down"
        if was_up:
            self._interruptions += 1
            if now - self._up_at >= _STEADY_S and not in_vain:
                self._tries = 0
        if self._bond is not None:
            self._bond.session.detach()
            if now - self._bond.session.heard_at >= self._bond.session.silence_s:
                self._lose_session()
            elif was_up and target is None:
                target = self._bond.endpoint  # the same parent first: it may still have the session
        pause_s = self._pause()
        self._tell(was_up, why, pause_s, now)
        self._timer = self._loop.call_later(pause_s, self._dial, target)
        if was_up:
            try:
                self._handler.on_down(why)
            except Exception as error:  # noqa: BLE001  whoever owns the loop hears of it through `failed`
                self._fail(error)

    def _tell(self, was_up: bool, why: str, pause_s: float, now: float) -> None:
        """Log the end of a link, and failures: the first of each address, another reason, and one now and then."""
        again = {"next_try_s": round(pause_s, 2)}
        if was_up:
            self._failures, self._down_at, self._told, self._warned = 0, now, {}, False
            log.info("connection lost", extra=self._facts() | {"why": why} | again)
            return
        self._failures += 1
        address = self._endpoint or ""
        before, sparingly = self._told.get(address) or ("", Sparingly())
        sparingly = sparingly if why == before else Sparingly()
        self._told[address] = why, sparingly
        lasts = self._interruptions > 0 and now - self._down_at >= _LASTING_S
        if sparingly.due(now) is not None or lasts > self._warned:
            self._warned = lasts
            waited = {"attempts": self._failures, "for_s": round(now - self._down_at, 1)}
            level = logging.WARNING if lasts else logging.INFO
            log.log(level, "not connected", extra=self._facts() | {"why": why} | waited | again)

    def _facts(self) -> dict[str, object]:
        """Which link: for the log."""
        return {self._whom: self._endpoint, self._role: self.name}

    def _pause(self) -> float:
        """No pause for the first try and one round through the other parents, then longer ones, never in step."""
        tries, self._tries = self._tries, self._tries + 1
        free = len(self._endpoints)
        if tries < free:
            return 0.0
        longest = min(self._limits.backoff_most_s, self._limits.backoff_s * 2.0 ** min(tries - free, 30))
        return longest * self._random.uniform(0.5, 1.0)

    def _lose_session(self) -> None:
        self._bond = None
        self._fresh_id = os.urandom(SESSION_BYTES)
        if self.state in ("up", "interrupted"):
            self._writable.set()
        if self.state == "interrupted":
            self.state = "down"

    # -- what comes in -----------------------------------------------------------------------------------------

    def _on_message(self, message: Message) -> None:
        self.guard(self._read, message)

    def _read(self, message: Message) -> None:
        parts = [message.first.bytes, *message.rest]
        if parts[0][:1] == DATA:
            self._take(parts)
        else:
            self._apply(read_message(parts))

    def _on_quiet(self) -> None:
        """The end of a turn: the owner may act on all it heard, and what that leads to leaves together."""
        if self._heard and self.state != "stopped":
            self._heard = False
            self.guard(self._be_quiet, None)
        self.flush()

    def _be_quiet(self, _: None) -> None:
        self._handler.on_quiet()

    def guard(self, work: Callable[[Argument], None], argument: Argument) -> None:
        """Do what a message of the parent asks for, now or (a handler that put it off) later: a `PeerError` closes the
        link, and any other error ends it for good."""
        try:
            work(argument)
        except PeerError as error:
            code = error.code if error.code in BYE_CODES else "protocol"
            self._say_bye(code, str(error))
            self._lose_session()
            self.mismatch = error if isinstance(error, VersionMismatch) else None
            self._lost(f"{code}: {error}")
        except Exception as error:  # noqa: BLE001  whoever owns the loop hears of it through `failed`
            self._fail(error)

    def _take(self, parts: list[bytes]) -> None:
        """Hand the parent's payloads over, until one of them ends the link."""
        bond = self._bond
        if self.state != "up" or bond is None:
            if self.state == "stopped":
                return
            raise BadFrame("something else before welcome")
        seq, ack, payloads = read_data(parts, self._limits.message_bytes)
        for payload in bond.session.take_data(seq, ack, payloads, self._loop.time()):
            self._heard = True
            self._handler.on_frame(payload)
            if self._bond is not bond or self.state != "up":
                return
        self._after(bond.session)

    def _after(self, session: Session) -> None:
        """A message of the parent may call for an answer, and make room for those who wait."""
        if self._flushing is None and session.pressing:
            self._mark()
        if not self._writable.is_set() and session.writable:
            self._writable.set()

    def _apply(self, header: Header) -> None:
        if isinstance(header, Bye):
            self._say_bye("leaving", "as you said")
            again = None
            if header.code == "unknown" and self._bond is not None:  # it is there, but was restarted: begin anew
                again, self._tries = self._endpoint, 0
            self._lose_session()
            self._lost(f"{header.code}: {header.text}", target=again)
        elif self.state == "stopped":
            return
        elif isinstance(header, Welcome):
            if self.state == "up":
                raise BadFrame("welcome twice")
            self._arrive(header)
        elif self.state != "up" or self._bond is None or not isinstance(header, Ack | Resend):
            raise BadFrame("something else before welcome")
        else:
            session = self._bond.session
            if isinstance(header, Ack):
                now = self._loop.time()
                session.take_ack(header.ack, header.sent, now)
                if header.heartbeat_ms:
                    self._follow(session, header.heartbeat_ms / 1000, header.silence_ms / 1000, now)
            else:
                session.take_resend(header.start, self._loop.time())
            self._after(session)

    def _arrive(self, welcome: Welcome) -> None:
        """The parent let us in: go on with the session, or begin one."""
        assert self._endpoint is not None
        now = self._loop.time()
        bond = self._bond if self._bond is not None and self._bond.endpoint == self._endpoint else None
        if welcome.resumed != (bond is not None):
            raise BadFrame("welcomed to another kind of session than asked for")
        if bond is None:
            session = Session(self._limits, now, welcome.message_bytes)
            bond = self._bond = _Bond(self._fresh_id, self._endpoint, session)
            self._fresh_id = os.urandom(SESSION_BYTES)
            self._fresh += 1
        else:
            self._resumed += 1
        bond.session.attach(welcome.received, now)
        self.state = "up"
        self.failure = ""
        self._up_at = now
        self._writable.set()
        self._cancel_timer()
        bond.session.pace(welcome.heartbeat_s, welcome.silence_s, now)
        self._await_tick(now)
        log.info("connected", extra=self._facts() | {"failed_attempts": self._failures})
        self._mark()
        told = dict(welcome.extra) | {
            "number": welcome.number,
            "heartbeat_s": welcome.heartbeat_s,
            "silence_s": welcome.silence_s,
        }
        if self._paused and self._socket is not None:
            self._socket.pause()
        self._handler.on_up(told, not welcome.resumed)
        self._change.set()

    def _on_event(self, message: Message) -> None:
        """ZeroMQ says that the parent has answered, or that the connection is over; what came before may be unread."""
        event = zmq.Event(int.from_bytes(message.first.bytes[:2], "little"))
        if event == zmq.Event.HANDSHAKE_SUCCEEDED:
            self._is_there = True
        elif self._socket is not None:
            socket = self._socket
            if not socket.paused:
                socket.read_now()
            if self._socket is socket:
                value = int.from_bytes(message.first.bytes[2:6], "little")
                self._lost(_meaning(event, value, encrypted=self._curve is not None))

    def _follow(self, session: Session, heartbeat_s: float, silence_s: float, now: float) -> None:
        """The parent says how often heartbeats come from now on."""
        if (heartbeat_s, silence_s) != (session.heartbeat_s, session.silence_s):
            session.pace(heartbeat_s, silence_s, now)
            self._await_tick(now)

    def _await_tick(self, now: float) -> None:
        """Wake up when there may be something to do: a little after our own heartbeat is due. Mostly the parent's comes
        before, and ours goes out in answer."""
        assert self._bond is not None
        session = self._bond.session
        self._cancel_timer()
        self._stale_s = max(session.silence_s / 2, 2 * session.heartbeat_s)
        due = min(session.due_at + session.heartbeat_s / 4, session.heard_at + self._stale_s)
        self._tick_due = max(due, now + session.heartbeat_s / 4)
        self._timer = self._loop.call_at(self._tick_due, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        late = now - self._tick_due
        if self._bond is None:
            return
        session = self._bond.session
        if self._paused:  # we do not listen
            session.excuse(now - session.heard_at)
        elif late > session.heartbeat_s:  # this process stood still; its silence is not the parent's
            session.excuse(late)
        silent = session.tick(now)
        if silent:
            self._lost(f"not heard for {silent:.1f} s")
        elif session.pressing:
            self._mark()
        if self.state == "up" and now - session.heard_at >= self._stale_s:
            self._lost(f"not heard for {now - session.heard_at:.1f} s")  # another connection may do better
        if self.state == "up":
            self._await_tick(now)

    # -- what goes out -----------------------------------------------------------------------------------------

    def _mark(self) -> None:
        """There is something to say: it leaves at the end of this turn."""
        if self._socket is not None and not self._socket.reading:
            self._flushing = self._loop.call_soon(self.flush)

    def _gone(self, socket: EventSocket | None) -> None:
        if socket is not None and socket is self._socket and self.state == "up":
            self._lost("connection gone")

    def _say_bye(self, code: str, text: str) -> None:
        """Last words on a connection that is closed next."""
        self.flush()
        if self._put(encode(Bye(code, text))):
            self._linger_s = _LAST_WORDS_S

    def _put(self, *message: bytes) -> bool:
        """Whether ZeroMQ took the message; it does unless the connection is gone."""
        if self._socket is None or self._socket.closed:
            return False
        try:
            self._socket.send(*message)
        except zmq.Again:
            return False
        return True

    # -- ending ------------------------------------------------------------------------------------------------

    def _hang_up(self) -> None:
        self._cancel_timer()
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if self._raw is not None and self._socket is not None and self._monitor is not None:
            stop_monitor(self._raw)
            self._monitor.close()
            self._socket.close(self._linger_s)
        self._linger_s = 0.0
        self._raw = self._socket = self._monitor = None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _fail(self, error: Exception) -> None:
        log.error("handler failed", extra=self._facts(), exc_info=error)
        self.state = "stopped"
        self._writable.set()
        self._hang_up()
        if not self.failed.done():
            self.failed.set_exception(error)
        self._change.set()


_KEYS = "--key and --server-key; from Python, key and server_key"


def _meaning(event: zmq.Event, value: int, *, encrypted: bool) -> str:
    """What the end of a connection says about the parent. Where one of us has no key, whoever notices first hangs up;
    if that is the parent, or if it cannot read what we say, all we see is an end in the middle of the handshake."""
    if event == zmq.Event.HANDSHAKE_FAILED_AUTH:
        return "denied: the server refused our key: it is not in its allow list; ask the server's operator to add it"
    if event == zmq.Event.HANDSHAKE_FAILED_PROTOCOL and value == zmq.Event.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
        if encrypted:
            return f"denied: the server takes no keys; leave them out ({_KEYS})"
        return f"denied: the server needs a key ({_KEYS})"
    if event == zmq.Event.HANDSHAKE_FAILED_NO_DETAIL:
        if encrypted:
            return (
                "it closed the connection during the handshake; is the server key the one of this server? "
                f"if it takes no keys, leave them out ({_KEYS})"
            )
        return f"it closed the connection during the handshake; the server is stopping, or it needs a key ({_KEYS})"
    if event == zmq.Event.CLOSED:
        return "cannot connect; is a server or node running there?"
    return f"connection {str(event.name).lower()}"
