"""The line to the server: owns the link and the calls that wait; the session decides."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from hullcast.clients.sdk.effects import (
    CallAnswered,
    CallRefused,
    Ended,
    Failover,
    GroupOpened,
    RetryLater,
    RowRefused,
    SendFrame,
)
from hullcast.clients.sdk.session import ClientSession
from hullcast.network import compiled
from hullcast.network.link.dialer import Dialer
from hullcast.network.link.endpoints import ways_in
from hullcast.network.wire.errors import (
    ClientClosed,
    ConnectionLost,
    HullcastError,
    InvariantBroken,
    Overloaded,
    PeerClosed,
    TimedOut,
    TooLarge,
)
from hullcast.network.wire.logs import Sparingly, logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    import zmq

    from hullcast.clients.sdk.connecting import Connection
    from hullcast.clients.sdk.effects import Effect
    from hullcast.clients.sdk.groups import SubscriptionGroup
    from hullcast.clients.sdk.mailbox import Mailbox
    from hullcast.network.wire import bodies

log = logger(__name__)

#: While a queue that blocks is full and a call waits, frames up to the reply are read and held, so many bytes of them.
READ_AHEAD_BYTES = 64 << 20
#: How long held frames are heard at a time, in seconds.
SLICE_S = 0.005
#: What a server says to those it will not let in however often they come.
FINAL = ("denied", "version")


def _nothing(listener: int) -> None:
    pass


@dataclass(frozen=True, slots=True, eq=False)
class Owner:
    """What to call of the subscription, or the many, that hold a group. Not their own methods: users see those."""

    opened: Callable[[], None]  # the server has taken it; what comes from now on concerns it
    ended: Callable[[HullcastError], None]  # the server does not take it any more
    drain: Callable[[], None]  # leave, but keep what waits
    overflowed: Callable[[int], None] = _nothing  # a queue of this size is full, and the policy is to give up then
    left: Callable[[int], None] = _nothing  # one listener is gone


class Posted(Protocol):
    """Who is told of a change that no coroutine waits for (`Line.post`); like a future, but it hears of rows too."""

    def done(self) -> bool:
        """Whether it was told the end."""

    def set_result(self, reply: bodies.Body, /) -> None:
        """The change has its reply."""

    def set_exception(self, error: Exception, /) -> None:
        """The change has failed."""

    def refuse_row(self, row: int, error: HullcastError) -> None:
        """A row of it was refused, counted among those still in it; the others go on."""


class Line:
    """Makes the session's decisions happen, and tells it what happens. Everything runs on one event loop.

    While a queue with the policy "block" is full, no frame is heard:

        frames read   .. 7 8 9 | 10 11 12 ..         7 to 9 are in the queue, which is full: a frame is heard whole,
                        queued | held | unread       however many events are in it, so the queue may be longer than
                                                     its buffer by one frame

    Without a call that waits nothing is read either, and the gateway keeps what comes. With one, frames are read on
    until its reply and held as they came, in bytes; so much of them (READ_AHEAD_BYTES), then reading stops, and the
    call may time out. Replies overtake held frames, but for those to Subscribe and Sync, which say up to where
    everything was heard: frames before these are heard although the queue is full, and count for the limit. So
    nothing is lost to whoever keeps taking, and memory is bounded. (Not heard in pieces: a queue would have to be
    asked after every row, and the columns of the rest be kept; a frame is bounded as it is.) A fresh link makes held
    frames void: the session was told of none of them, so what they say is replayed.
    """

    def __init__(self, connection: Connection, context: zmq.Context[Any] | None) -> None:
        self.session = ClientSession()
        self.dialer = Dialer(
            connection.endpoints,
            role="client",
            name=connection.name,
            limits=connection.limits,
            curve=connection.curve,
            context=context,
            insecure=connection.insecure,
        )
        self.paused = False
        self.progress_waiters: set[Callable[[], None]] = set()
        self._told = 0  # up to which they were woken
        self._held: deque[bytes] = deque()  # frames that came while a queue that blocks is full, not heard yet
        self._held_bytes = 0
        self._early_bytes = 0  # of frames heard although a queue was full, since it was
        self._due = 0  # how many of the held frames must be heard although a queue is full
        self._catching_up: asyncio.Handle | None = None
        self.owners: dict[int, Owner] = {}
        self._connection = connection
        self._waiting: dict[int, asyncio.Future[Any] | Posted] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._linked = asyncio.Event()
        self._random = random.Random()
        self._overflows = Sparingly()

    # --- from the first call to the last ---------------------------------------------------------------------

    async def dial(self, timeout_s: float | None = None) -> None:
        """Connect. PeerClosed if we are not wanted, ConnectionLost if nobody answers in time, each with the reason."""
        self.dialer.start(self)
        self.dialer.failed.add_done_callback(self._broken)
        timeout_s = self._connection.timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._let_in()
            self.check()
        except TimeoutError:
            places = ", ".join(self._connection.endpoints)
            why = self.dialer.failure or "is a Hullcast server listening there? is the network reachable?"
            raise ConnectionLost(f"no answer from {places} after {timeout_s:g} s ({why})") from None

    async def _let_in(self) -> None:
        """Until there is a link; PeerClosed when all places were tried and one said that it never will be."""
        refusal = ""
        while not self._linked.is_set():
            await self.dialer.wait_change()
            failure = self.dialer.failure
            refusal = failure if failure.startswith(FINAL) else refusal
            if refusal and self.dialer.statistics().attempts > len(self._connection.endpoints):
                code, _, text = refusal.partition(": ")
                if self.dialer.mismatch is not None:
                    raise self.dialer.mismatch
                raise PeerClosed(code, f"{text} (connected to: {', '.join(self._connection.endpoints)})")

    async def settle(self) -> None:
        """Wait for the tasks and calls there are."""
        current = asyncio.current_task()
        await asyncio.gather(*(task for task in self._tasks if task is not current), return_exceptions=True)
        waiting = [one for one in self._waiting.values() if isinstance(one, asyncio.Future) and not one.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=self._connection.timeout_s)

    async def hang_up(self) -> None:
        """End everything: calls fail, tasks are cancelled, the server is told."""
        for timer in self._timers:
            timer.cancel()
        self._let_go()
        for waiting in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(ClientClosed(self._connection.name))
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.dialer.stop()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task that ends with the line."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def check(self) -> None:
        """Raise what went wrong in here, if anything did: a bug."""
        if self.dialer.failed.done():
            self.dialer.failed.result()

    def _broken(self, failed: asyncio.Future[None]) -> None:
        """Something in here failed (a bug), and the link is gone for good: nobody shall wait for it."""
        error = None if failed.cancelled() else failed.exception()
        if not isinstance(error, Exception):
            return
        for waiting in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(error)
        self._linked.set()
        for owner in list(self.owners.values()):
            owner.ended(InvariantBroken(f"the client stopped: {type(error).__name__} {error}"))

    # --- calls -----------------------------------------------------------------------------------------------

    async def ask(
        self,
        body: bodies.Body,
        what: str,
        timeout_s: float | None = None,
        called: Callable[[], None] | None = None,
    ) -> bodies.Body:
        """Send a request, and wait for its reply; all that for `timeout_s` seconds at most.

        `called` is called as soon as the session has it: what is asked from then on comes behind it.
        """
        timeout_s = self._connection.timeout_s if timeout_s is None else timeout_s
        until = asyncio.get_running_loop().time() + timeout_s
        try:
            async with asyncio.timeout_at(until):
                with contextlib.suppress(ConnectionLost):  # it is sent when there is a connection again
                    await self.dialer.wait_writable()
        except TimeoutError:
            raise TimedOut(f"{what} (the queue to the server is full)", timeout_s) from None
        number, effects = self.session.call(body)
        if called is not None:
            called()
        reply: bodies.Body = await self._reply(number, effects, what, timeout_s, until)
        return reply

    def post(self, body: bodies.Publish, posted: Posted, *, apart: bool, lazy: bool) -> int:
        """Send a change (see `ClientSession.call`), and tell `posted` what becomes of it; returns the call's number."""
        number, effects = self.session.call(body, apart=apart, lazy=lazy)
        self._waiting[number] = posted
        self._perform(effects)
        self.regulate()
        return number

    def give_up(self, number: int) -> None:
        """Nobody wants to know any more what becomes of a change that was posted."""
        self._waiting.pop(number, None)
        self._perform(self.session.abandon(number))
        self.regulate()

    def tell(self, body: bodies.DropRows) -> None:
        """Say what has no reply; it may get lost."""
        self._perform(self.session.tell(body))

    @property
    def timeout_s(self) -> float:
        """The seconds that a call may take if it has no timeout of its own."""
        return self._connection.timeout_s

    async def open_group(self, group: SubscriptionGroup, owner: Owner, timeout_s: float | None = None) -> None:
        """Subscribe a group, and remember whose it is."""
        timeout_s = self._connection.timeout_s if timeout_s is None else timeout_s
        until = asyncio.get_running_loop().time() + timeout_s
        if not compiled.is_loaded():  # numba, for a client's first subscription: a while that others need not wait
            await asyncio.to_thread(compiled.load)
        token = group.token
        since, epoch = (None, None) if token is None else (token.stored.seq, token.epoch)
        opening = self.session.subscribe(group, since, epoch)
        self.owners[group.number] = owner
        try:
            await self._reply(*opening, f"subscribe to `{' '.join(group.sql.split())}`", timeout_s, until)
        except BaseException:
            self.owners.pop(group.number, None)
            if group.is_open:  # given up in the very moment in which the reply came
                self._perform(self.session.leave(group))
                self.regulate()
            raise

    def leave(self, group: SubscriptionGroup, listener: int | None, who: Owner) -> None:
        """A subscription, or (None) a group, is over."""
        owner = self.owners.get(group.number)
        if owner is None:
            return
        if listener is None or owner is who:
            del self.owners[group.number]
            self._perform(self.session.leave(group))
        else:
            owner.left(listener)
            self._perform(self.session.leave(group, group.one(listener)))
        self.regulate()

    def taken(self) -> None:
        """Somebody took an event: a queue may have room again."""
        if self.paused or self._held:
            self.regulate()

    async def _reply(self, number: int, effects: list[Effect], what: str, timeout_s: float, until: float) -> Any:
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._perform(effects)
            self.regulate()
            async with asyncio.timeout_at(until):
                return await future
        except TimeoutError:
            raise TimedOut(f"{what} ({self.why_waiting(number)})", timeout_s) from None
        finally:
            self._waiting.pop(number, None)
            self._perform(self.session.abandon(number))
            self.regulate()

    # --- the link --------------------------------------------------------------------------------------------

    def on_up(self, welcome: Mapping[str, object], fresh: bool) -> None:
        """The dialer has a link."""
        self._linked.set()
        if fresh:
            self._let_go()
        self._perform(self.session.link_up(fresh))
        self.regulate()  # the frames that were held may have been all that kept us from reading

    def on_down(self, why: str) -> None:
        """The dialer lost it."""
        self._perform(self.session.link_down())
        self.on_quiet()  # of what came before nothing more is heard

    def on_frame(self, payload: bytes) -> None:
        """The next frame from the server: heard at once, or held while a queue that blocks is full."""
        if not self._held and not self.session.groups.attention.blocking:
            self._perform(self.session.take(payload))
            return
        urgency = self.session.urgency(payload)
        if urgency == "overtakes":
            self._perform(self.session.take(payload))
            return
        self._held.append(payload)
        self._held_bytes += len(payload)
        if urgency == "needed":
            self._due = len(self._held)

    def on_quiet(self) -> None:
        """All that had arrived was heard: wake those who wait, end those who gave up, once for all of it, and read on
        only if there is room."""
        waking = self.session.groups.attention.waking
        while waking:
            mailbox = waking.pop()
            for listener in mailbox.overflowed():
                self._overflowed(mailbox, listener)
            mailbox.wake()
        if self.session.heard != self._told:
            self._told = self.session.heard
            for wake in list(self.progress_waiters):
                wake()
        self.regulate()

    def _overflowed(self, mailbox: Mailbox, listener: int) -> None:
        group = self.session.groups.get(int(mailbox.groups[listener]))
        owner = None if group is None else self.owners.get(group.number)
        if group is not None and owner is not None:  # else it is about to leave
            buffer = mailbox.backlogs[listener].policy.buffer
            if (others := self._overflows.due(asyncio.get_running_loop().time())) is not None:
                which = {"sql": group.sql, "parameters": group.parameters_of(listener), "buffer": buffer}
                more = {"others_since": others} if others else {}
                log.warning("subscription overflowed and ended", extra=which | more)
            owner.overflowed(buffer)

    def regulate(self) -> None:
        """Hear no frames while a queue that blocks is full, and read none, but for those a call's reply is behind."""
        blocked = bool(self.session.groups.attention.blocking)
        if not blocked:
            self._early_bytes = 0
        if self._held and self._catching_up is None and (self._due or not blocked):
            self._catching_up = asyncio.get_running_loop().call_soon(self.dialer.guard, self._catch_up, SLICE_S)
        wanted = self._waiting and self._held_bytes + self._early_bytes < READ_AHEAD_BYTES
        pause = (blocked or bool(self._held)) and not wanted
        if pause != self.paused:
            self.paused = pause
            if pause:
                self.dialer.pause()
            else:
                self.dialer.resume()

    def _catch_up(self, slice_s: float) -> None:
        """Hear frames that were held, as long as there is room, and those that are due in any case."""
        self._catching_up = None
        clock, blocking = asyncio.get_running_loop().time, self.session.groups.attention.blocking
        until = clock() + slice_s
        while self._held and (self._due or not blocking) and clock() < until:
            payload = self._held.popleft()
            self._held_bytes -= len(payload)
            self._early_bytes += len(payload) if blocking else 0
            self._due = max(0, self._due - 1)
            self._perform(self.session.take(payload))
        self.on_quiet()

    def _let_go(self) -> None:
        """Forget the frames that are held: whoever subscribes again is told what came since the last one heard."""
        self._held.clear()
        self._held_bytes = self._early_bytes = self._due = 0
        if self._catching_up is not None:
            self._catching_up.cancel()
            self._catching_up = None

    def why_waiting(self, number: int) -> str:
        """What a call has been waiting for, in words."""
        if self.paused:
            return 'no reply was read: events of a subscription with overflow="block" wait to be taken'
        return self.session.why_waiting(number)

    def _perform(self, effects: Sequence[Effect]) -> None:
        """Make the session's decisions happen."""
        for effect in effects:
            match effect:
                case SendFrame(payload, dispensable):
                    self._send(payload, dispensable)
                case CallAnswered(call, reply):
                    self._settle(call, reply, None)
                case GroupOpened(call, group):
                    self._opened(call, group)
                case CallRefused(call, error):
                    self._settle(call, None, error)
                case RowRefused(call, row, error):
                    posted = self._waiting.get(call)
                    if posted is not None and not isinstance(posted, asyncio.Future):
                        posted.refuse_row(row, error)
                case RetryLater(call, delay_s):
                    self._retry_later(call, delay_s)
                case Ended(group, error):
                    owner = self.owners.pop(group.number, None)
                    if owner is not None:
                        owner.ended(error)
                case Failover(directory):
                    known = self._connection.endpoints
                    self.dialer.endpoints = ways_in(known, directory.path, directory.nodes, self.dialer.may_dial)

    def _send(self, payload: bytes, dispensable: bool = False) -> None:
        try:
            self.dialer.send(payload)
        except ConnectionLost:
            log.debug(
                "not sent: no connection", extra={"client": self._connection.name}
            )  # all is sent when there is one
        except Overloaded:
            if dispensable:
                return
            why = "the queue to the server is full"
            log.warning("connecting again", extra={"client": self._connection.name, "why": why})
            self.dialer.redial(why=why)
        except TooLarge as error:
            self._perform(self.session.not_taken(payload, error))

    def _settle(self, call: int, reply: Any, error: HullcastError | None) -> None:
        waiting = self._waiting.pop(call, None)
        if waiting is not None and not waiting.done():
            if error is not None:
                waiting.set_exception(error)
            else:
                waiting.set_result(reply)

    def _opened(self, call: int, group: SubscriptionGroup) -> None:
        future, owner = self._waiting.get(call), self.owners.get(group.number)
        if not isinstance(future, asyncio.Future) or future.done() or owner is None:  # cancelled in the same moment
            self._perform(self.session.leave(group))
        else:
            owner.opened()
            future.set_result(group)

    def _retry_later(self, call: int, delay_s: float) -> None:
        def retry() -> None:
            self._timers.discard(timer)
            self._perform(self.session.retry(call))

        delay_s *= self._random.uniform(0.75, 1.25)  # many clients of one node do not come back in step
        timer = asyncio.get_running_loop().call_later(delay_s, retry)
        self._timers.add(timer)
