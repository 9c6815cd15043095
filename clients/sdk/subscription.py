"""A subscription over the network: its answer now, and its events as they come."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Self, cast

from hullcast.clients.sdk.line import Line, Owner
from hullcast.clients.sdk.token import Token, subject_of
from hullcast.network.answers.events import AnyEvent, Event, Progress, Resync, Snapshot
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import (
    BadFrame,
    BadParameter,
    BadSetting,
    HullcastError,
    SubscriptionClosed,
    SubscriptionOverflow,
    UsageError,
)
from hullcast.network.wire.logs import Sparingly, logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator

    from typing_extensions import TypeVar  # only type checkers need it: they bring it along

    from hullcast.clients.sdk.groups import SubscriptionGroup
    from hullcast.clients.sdk.listening import Listening

    EventT_co = TypeVar("EventT_co", bound=AnyEvent, covariant=True, default=Event)
else:
    from typing import TypeVar

    EventT_co = TypeVar("EventT_co", covariant=True)

log = logger(__name__)


class Subscription(Generic[EventT_co]):
    """A subscription, as `Client.subscribe` returns it: use `async with`, or `await` it and `close` it later.

    Its type names the events that its options allow: `Subscription` alone means Change, Resync and StreamTuple.

    `answer` is right at once and stays up to date. For each single change, iterate, pass a callback, or use `batches`;
    one consumer at a time. Events follow the answer that was there when subscribing returned. If you read `answer`
    later, it may be newer than the next event; with `snapshot=True` the first event holds the answer that the others
    continue. Iteration survives lost connections: if events were lost, it gives a Resync. It ends when the subscription
    is closed. Use it only in its client's event loop.
    """

    def __init__(
        self,
        line: Line,
        group: SubscriptionGroup,
        *,
        snapshot: bool = False,
        progress: bool = False,
        callback: Callable[[EventT_co], Awaitable[None] | None] | None = None,
        listener: int = -1,
        timeout_s: float | None = None,
    ) -> None:
        self.sql = group.sql
        self.callback_errors = 0
        self._line = line
        self._group = group
        self._listener = listener
        self._wants_snapshot = snapshot
        self._progress = progress
        self._progress_told = 0
        self._callback = callback
        self._timeout_s = timeout_s
        self._task: asyncio.Task[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._rest: deque[AnyEvent] | None = None  # after the end: what had not been taken
        self._error: HullcastError | None = None
        self._counters = (0, 0)  # dropped and conflated, once it is over
        self._owner = Owner(self._taken, self._ended, self._drain, self._overflowed)

    # --- opening and closing -------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    async def _open(self) -> Self:
        if self._listener < 0 and self._rest is None:
            goes_on = self._group.token is not None
            try:
                await self._line.open_group(self._group, self._owner, self._timeout_s)
            except BadParameter as error:  # of a single value: to say which row of the column would puzzle
                raise BadParameter(error.position, error.reason) from None
            if self.closed:  # by somebody else, or full, before anybody had it
                self._line.leave(self._group, None, self._owner)
                return self
            if self._wants_snapshot and not self._listening.has_answers:
                self._end()
                raise BadSetting("snapshot", True, "a stream has no answer; use after=0 for the tuples that it retains")
            if not goes_on:
                self._listening.skip(self._group.listeners)
            self._progress_told = self._position
            if self._callback is not None:
                self._task = self._line.spawn(self._call_back(self._callback), f"callback of {self.sql}")
        return self

    def _taken(self) -> None:
        self._listener = int(self._group.listeners[0])

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the subscription; iteration ends. Closing twice is fine."""
        self._end()
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _end(self, *, keep: bool = False, error: HullcastError | None = None) -> None:
        """Leave, without waiting. With `keep`, what waits can still be taken; then comes the error, if there is one."""
        if self._rest is not None:
            return
        self._rest = deque()
        self._error = error
        if self._listener >= 0:
            listening, listener = self._listening, self._listener
            while keep and (event := listening.take(listener)) is not None:
                self._rest.append(event)
            self._counters = listening.dropped(listener), listening.conflated(listener)
            self._line.leave(self._group, listener, self._owner)
        self._wake()

    @property
    def closed(self) -> bool:
        """Whether the subscription has ended."""
        return self._rest is not None

    # --- the answer ------------------------------------------------------------------------------------------

    @property
    def _listening(self) -> Listening:
        return self._group.listening

    @property
    def _position(self) -> int:
        return self._line.session.standing(self._group).seq

    def _check_open(self) -> None:
        if self._rest is not None:
            raise self._error or SubscriptionClosed(self.sql)
        if self._listener < 0:
            raise UsageError(f"the subscription `{self.sql}` is not open yet; `async with` or `await` it first")

    @property
    def answer(self) -> Any:
        """What the SQL gives at `seq`: None, a number, a timestamp, a set or a list of rows."""
        self._check_open()
        return self._listening.answer(self._listener)

    @property
    def has_answer(self) -> bool:
        """Whether there is an `answer`; False for the tuples of a stream, which are events only."""
        self._check_open()
        return self._listening.has_answers

    @property
    def seq(self) -> int:
        """`answer` includes the updates up to this sequence number."""
        self._check_open()
        return self._position

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the answer's columns."""
        self._check_open()
        return self._group.columns

    @property
    def pending(self) -> int:
        """How many events wait to be taken."""
        if self._rest is not None:
            return len(self._rest)
        self._check_open()
        return self._listening.pending(self._listener)

    @property
    def dropped(self) -> int:
        """How many events were lost since subscribing: not taken in time, or missed while disconnected."""
        return self._counters[0] if self._rest is not None else self._counter(0)

    @property
    def conflated(self) -> int:
        """How many events a newer one replaced before they were taken (`overflow="conflate"` or `"latest"`)."""
        return self._counters[1] if self._rest is not None else self._counter(1)

    def _counter(self, which: int) -> int:
        self._check_open()
        count = self._listening.dropped if which == 0 else self._listening.conflated
        return count(self._listener)

    @property
    def lag(self) -> int:
        """How many updates the consumer is behind; 0 if no event waits."""
        if self._rest is not None or not self.pending:
            return 0
        first = self._listening.first_seq(self._listener)
        return 0 if first is None else max(0, self._position - first + 1)

    @property
    def token(self) -> str:
        """A text that another subscription can continue from (`resume=token`), later or in another process.

        It gets the events not yet taken here and all later ones, each once, or a Resync if the server no longer has
        them.
        """
        self._check_open()
        group = self._group
        group.resumable = True
        parameters = group.parameters_of(self._listener)
        stands = self._line.session.standing(group)
        subject = subject_of(group.sql, parameters, group.trigger)
        stored = self._listening.stored(self._listener, stands.seq)
        return Token(stands.epoch or b"", subject, self._listening.spec.kind, group.channel, stored).text()

    async def missed_share(self) -> float:
        """Of a join over streams `WITH (memory = n)`, or a stream made of one: the share of its results that it misses,
        by the server's estimate as of about a second ago. 0.0 where nothing can be missed, or nothing is known yet."""
        self._check_open()
        if self._group.trigger is not None:  # a one-time SELECT
            return 0.0
        asked = bodies.Explain(self.sql, self._group.parameters_of(self._listener))
        reply = await self._line.ask(asked, "missed_share")
        if not isinstance(reply, bodies.Information):
            raise BadFrame(f"{type(reply).__name__} is not a reply to missed_share")
        derived = reply.values.get("derived", {}).values()
        return max((float(one["memory"]["missed_share"]) for one in derived if one.get("memory")), default=0.0)

    # --- events ----------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventT_co:
        if self._rest is None:
            self._check_open()
        while True:
            event = self.take_nowait()
            if event is not None:
                return event
            if self._rest is not None:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            await self._wait()

    async def batches(self, max_events: int = 1024, max_wait: float = 0.1) -> AsyncIterator[list[EventT_co]]:
        """Events in lists: those within `max_wait` seconds of the first one, at most `max_events`."""
        loop = asyncio.get_running_loop()
        async for event in self:
            batch, until = [event], loop.time() + max_wait
            while len(batch) < max_events:
                more = self.take_nowait()
                if more is not None:
                    batch.append(more)
                    continue
                try:
                    async with asyncio.timeout_at(until):
                        batch.append(await anext(self))
                except (TimeoutError, StopAsyncIteration):
                    break
            yield batch

    def take_nowait(self) -> EventT_co | None:
        """The next event, or None if no event waits."""
        return cast("EventT_co | None", self._take())

    def _take(self) -> AnyEvent | None:
        if self._rest is not None:
            return self._rest.popleft() if self._rest else None
        self._check_open()
        if self._wants_snapshot:
            self._wants_snapshot = False
            return self._first()
        self._listening.mailbox.consume(self._listener)
        event = self._listening.take(self._listener)
        if event is not None:
            self._line.taken()
            return event
        if self._progress and self._position > self._progress_told:
            self._progress_told = self._position
            return Progress(self._progress_told)
        return None

    def _first(self) -> Resync | Snapshot:
        """The answer to begin with: as it is, and what waited for it is in it."""
        waiting: Resync | None = None
        while (event := self._listening.take(self._listener)) is not None:
            waiting = event if isinstance(event, Resync) else waiting
        return waiting or Snapshot(self._position, self.answer)

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise UsageError(f"two tasks take events of `{self.sql}`; subscribe once for each")
        self._waiter = asyncio.get_running_loop().create_future()
        listening, listener = self._listening, self._listener
        listening.mailbox.wait(listener, self._wake)
        if self._progress:
            self._line.progress_waiters.add(self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._line.progress_waiters.discard(self._wake)
            if self._rest is None:
                listening.mailbox.wait(listener, None)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _call_back(self, callback: Callable[[EventT_co], Awaitable[None] | None]) -> None:
        """Hand events to the callback, one after the other. Its errors are its own: they end nothing."""
        failures = Sparingly()
        try:
            async for event in self:
                try:
                    result = callback(event)
                    if inspect.isawaitable(result):
                        await result
                except Exception:
                    self.callback_errors += 1
                    if failures.due(asyncio.get_running_loop().time()) is not None:
                        log.exception("callback failed", extra=self._facts() | {"failures": self.callback_errors})
        except HullcastError as error:
            log.warning("subscription ended", extra=self._facts() | {"why": str(error)})

    def _facts(self) -> dict[str, object]:
        """Which subscription: for the log."""
        return {"sql": self.sql, "parameters": self._group.parameters_of(self._listener)}

    # --- what the line calls ---------------------------------------------------------------------------------

    def _overflowed(self, buffer: int) -> None:
        self._end(keep=True, error=SubscriptionOverflow(self.sql, buffer))

    def _ended(self, error: HullcastError) -> None:
        if self._rest is None:
            self._rest, self._error = deque(), error
            self._wake()

    def _drain(self) -> None:
        self._end(keep=True)

    def __repr__(self) -> str:
        return f"<subscription {self.sql!r}{' closed' if self.closed else ''}>"
