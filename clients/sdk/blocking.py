"""Hullcast without asyncio: the same client for programs and notebooks that block.

A thread of its own runs an event loop with the client in it; every call here waits for the coroutine of the same name
there, and has its signature. Safe for use from several threads, except that a subscription's events are for one of them
at a time.
"""

from __future__ import annotations

import asyncio
import builtins
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.client import connect as connect_async
from hullcast.clients.sdk.publisher import WINDOW_BYTES, Publisher
from hullcast.clients.sdk.subscription import EventT_co, Subscription
from hullcast.clients.sdk.subscriptions import Subscriptions
from hullcast.network.wire.errors import ClientClosed, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
    from contextlib import AbstractAsyncContextManager
    from typing import Literal, Unpack

    import numpy.typing as npt

    from hullcast.clients.sdk.client import Callback, ClientStatistics, SubscribeOptions
    from hullcast.clients.sdk.gathering import Row
    from hullcast.clients.sdk.history import ChangePart, TablePart
    from hullcast.clients.sdk.subscriptions import Changed
    from hullcast.network.answers.events import AnyEvent, Event, Progress, Snapshot
    from hullcast.network.answers.named import QueryRows
    from hullcast.network.wire.containers import Nan


class _Closes(Protocol):
    async def close(self) -> None: ...


Inner = TypeVar("Inner", bound=_Closes)
Inner_co = TypeVar("Inner_co", bound=_Closes, covariant=True)
P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own. `stop` leaves neither task nor thread.

    Whatever the loop was given before `stop` is run or cancelled there, so nobody waits for ever.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()  # between what the loop is given and its end
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        for task in (tasks := asyncio.all_tasks(self._loop)):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def check_caller(self) -> None:
        """RuntimeError in the thread of the loop, which cannot wait for itself."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call inside a callback would wait for itself; use the asyncio client there")

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, and wait for it here; Ctrl-C here cancels it there. After `stop` it runs in a loop of
        its own: what is closed says so itself."""
        try:
            self.check_caller()
        except RuntimeError:
            work.close()
            raise
        with self._lock:
            future = None if self._stopped else asyncio.run_coroutine_threadsafe(work, self._loop)
        if future is None:
            with ThreadPoolExecutor(1) as elsewhere:  # this thread may have a loop of its own, as notebooks do
                return elsewhere.submit(asyncio.run, work).result()
        try:
            return future.result()
        except CancelledError:
            if self._stopped:
                raise ClientClosed(self._thread.name) from None
            raise
        except BaseException:
            future.cancel()
            raise

    def soon(self, work: Callable[[], None]) -> None:
        """Call a function there, and do not wait for it; ClientClosed after `stop`."""
        with self._lock:
            if self._stopped:
                raise ClientClosed(self._thread.name)
            self._loop.call_soon_threadsafe(work)

    def look(self, read: Callable[[], T]) -> T:
        """Call a function there."""

        async def run() -> T:
            return read()

        return self.wait(run())

    def stop(self) -> None:
        """End the loop and its thread. Stopping twice is fine."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


@contextmanager
def run_in_thread(service: AbstractAsyncContextManager[T], name: str) -> Iterator[T]:
    """An async context manager, entered and left in a thread of its own; both by one task, as task groups need."""
    thread = LoopThread(name)
    try:
        ready: asyncio.Future[T] = thread.look(lambda: asyncio.get_running_loop().create_future())
        leave = thread.look(asyncio.Event)

        async def hold() -> None:
            try:
                async with service as value:
                    ready.set_result(value)
                    await leave.wait()
            except BaseException as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        async def start() -> tuple[asyncio.Task[None], T]:
            task = asyncio.create_task(hold(), name=name)
            return task, await ready

        async def finish(task: asyncio.Task[None]) -> None:
            leave.set()
            await task

        task, value = thread.wait(start())
        try:
            yield value
        finally:
            thread.wait(finish(task))
    finally:
        thread.stop()


class _Face(Generic[Inner_co]):
    """An object of the asyncio client, used from other threads."""

    def __init__(self, thread: LoopThread, inner: Inner_co) -> None:
        self._thread, self._inner = thread, inner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End it. Closing twice is fine."""
        self._thread.wait(self._inner.close())

    def _iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """What an asynchronous iterator gives, as it comes."""

        async def one() -> tuple[T, ...]:
            try:
                return (await anext(items),)
            except StopAsyncIteration:  # cannot leave a coroutine
                return ()

        while found := self._thread.wait(one()):
            yield found[0]


def _waiting(
    method: Callable[Concatenate[Inner, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Face[Inner], P], T]:
    """A coroutine of the asyncio client as a method that waits for it, with the same arguments."""

    @wraps(method)
    def call(self: _Face[Inner], /, *arguments: P.args, **options: P.kwargs) -> T:
        return self._thread.wait(method(self._inner, *arguments, **options))

    return call


def _describe(call: Any, original: Callable[..., object], returns: str, first_line: str) -> None:
    """For `help` and completion: what the original says of its arguments, and nothing of `async` and `await`."""
    call.__signature__ = signature(original).replace(return_annotation=returns)
    call.__doc__ = first_line + "".join((original.__doc__ or "").partition("\n")[1:])


async def _closed(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()


async def _opened(opening: Callable[[], Awaitable[T]]) -> T:
    return await opening()


def _opening(
    subscribe: Callable[Concatenate[Client, P], Awaitable[Inner]],
    face: Callable[[LoopThread, Inner], T],
    first_line: str,
) -> Callable[Concatenate[_Face[Client], P], T]:
    """A way to subscribe, with the same arguments; open when it returns. Callbacks run in the client's thread."""

    @wraps(subscribe)
    def call(self: _Face[Client], /, *arguments: P.args, **options: P.kwargs) -> T:
        opened = self._thread.wait(_opened(lambda: subscribe(self._inner, *arguments, **options)))
        return face(self._thread, opened)

    _describe(call, subscribe, face.__name__, first_line)
    return call


class BlockingSubscription(_Face[Subscription[EventT_co]]):
    """A subscription. Iterate over it to wait for events, or take them with a timeout (`next`, `events`)."""

    @property
    def sql(self) -> str:
        """The text that was subscribed to."""
        return self._inner.sql

    @property
    def answer(self) -> Any:
        """What the SQL gives at `seq`: None, a number, a timestamp, a set or a list of rows."""
        return self._thread.look(lambda: self._inner.answer)

    @property
    def seq(self) -> int:
        """`answer` includes the updates up to this sequence number."""
        return self._thread.look(lambda: self._inner.seq)

    @property
    def has_answer(self) -> bool:
        """Whether there is an `answer`; False for the tuples of a stream, which are events only."""
        return self._thread.look(lambda: self._inner.has_answer)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the answer's columns."""
        return self._thread.look(lambda: self._inner.columns)

    @property
    def pending(self) -> int:
        """How many events wait to be taken."""
        return self._thread.look(lambda: self._inner.pending)

    @property
    def dropped(self) -> int:
        """How many events were lost since subscribing: not taken in time, or missed while disconnected."""
        return self._thread.look(lambda: self._inner.dropped)

    @property
    def conflated(self) -> int:
        """How many events a newer one replaced before they were taken (`overflow="conflate"` or `"latest"`)."""
        return self._thread.look(lambda: self._inner.conflated)

    @property
    def lag(self) -> int:
        """How many updates the consumer is behind; 0 if no event waits."""
        return self._thread.look(lambda: self._inner.lag)

    @property
    def token(self) -> str:
        """A text that another subscription can continue from (`resume=token`), later or in another process.

        It gets the events not yet taken here and all later ones, each once, or a Resync if the server no longer has
        them.
        """
        return self._thread.look(lambda: self._inner.token)

    @property
    def closed(self) -> bool:
        """Whether the subscription has ended."""
        return self._thread.look(lambda: self._inner.closed)

    missed_share = _waiting(Subscription.missed_share)

    def next(self, timeout: float | None = None) -> EventT_co | None:
        """The next event; None after `timeout` seconds without one. StopIteration if the subscription has ended."""

        async def taken() -> tuple[EventT_co | None, ...]:
            try:
                async with asyncio.timeout(timeout):
                    return (await anext(self._inner),)
            except TimeoutError:
                return (None,)
            except StopAsyncIteration:  # cannot leave a coroutine
                return ()

        for event in self._thread.wait(taken()):
            return event
        raise StopIteration

    def events(self, timeout: float | None = None) -> Iterator[EventT_co]:
        """Events as they come, until none came for `timeout` seconds or the subscription has ended."""
        while True:
            try:
                event = self.next(timeout)
            except StopIteration:
                return
            if event is None:
                return
            yield event

    def __iter__(self) -> Iterator[EventT_co]:
        return self.events()

    def batches(self, max_events: int = 1024, max_wait: float = 0.1) -> Iterator[list[EventT_co]]:
        """Events in lists: those within `max_wait` seconds of the first one, at most `max_events`."""
        return self._iterate(self._inner.batches(max_events, max_wait))


class BlockingSubscriptions(_Face[Subscriptions]):
    """Many subscriptions, as `subscribe_many` returns them; `many[i]` is one of them."""

    next_changes = _waiting(Subscriptions.next_changes)

    def __len__(self) -> int:
        return len(self._inner)

    def __getitem__(self, i: int) -> BlockingSubscription:
        return BlockingSubscription(self._thread, self._thread.look(lambda: self._inner[i]))

    @property
    def sql(self) -> str:
        """The text that was subscribed to."""
        return self._inner.sql

    @property
    def answers(self) -> npt.NDArray[Any]:
        """All answers as a column: float64 (NaN is NULL), int64 for COUNT, datetime64 (NaT is NULL), else objects.
        Raises SubscriptionClosed if one of the subscriptions was closed by itself."""
        return self._thread.look(lambda: self._inner.answers)

    @property
    def seq(self) -> int:
        """All answers include the updates up to this sequence number."""
        return self._thread.look(lambda: self._inner.seq)

    @property
    def conflated(self) -> int:
        """How many changes, over all subscriptions, a newer one replaced before `changes` gave them."""
        return self._thread.look(lambda: self._inner.conflated)

    @property
    def closed(self) -> bool:
        """Whether the subscriptions have ended."""
        return self._thread.look(lambda: self._inner.closed)

    def changes(self) -> Iterator[Changed]:
        """The subscriptions with a new answer since the last time, again and again: the newest answer of each, if it
        differs from the last one given. If events were lost, it is given in any case, with the reason."""
        return self._iterate(self._inner.changes())


class BlockingPublisher(_Face[Publisher]):
    """Sends the rows of one table one by one, as `publisher` returns it. Safe for use from several threads.

    `send` returns at once; `flush`, or the end of a `with`, waits until all rows are durable. The rows of one thread
    are applied in the order in which they were sent, each once, also over broken connections. A row that the server
    refuses keeps no other from being applied.
    """

    def __init__(self, thread: LoopThread, inner: Publisher) -> None:
        super().__init__(thread, inner)
        self._lock = threading.RLock()  # `on_error` may be called inside it, and look at this
        self._rows: list[Row] = []  # not yet handed to the client's thread
        self._bytes = 0

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:  # type: ignore[override]  # it has three arguments
        self._thread.wait(self._inner.__aexit__(kind, error, trace))

    ready = _waiting(Publisher.ready)
    flush = _waiting(Publisher.flush)

    def send(self, row: dict[str, Any]) -> None:
        """Publish one row: a dict with a value per column. Returns at once, without a receipt.

        Raises WindowFull (an Overloaded) if rows without a receipt fill the window; the row was not taken then. What
        the server refuses is told by `flush` or `on_error`.
        """
        self._inner._check()
        prepared = self._inner._prepared(row)
        with self._lock:
            self._inner._check_room(self._inner.waiting_bytes + self._bytes, prepared.size_bytes)
            if not self._rows:  # else they are about to be taken
                self._thread.soon(self._hand_over)
            self._rows.append(prepared)
            self._bytes += prepared.size_bytes

    def _hand_over(self) -> None:
        """Give the rows to the client, in its thread."""
        with self._lock:
            rows, self._rows, self._bytes = self._rows, [], 0
            self._inner._put_all(rows)

    def __repr__(self) -> str:
        return self._inner._shown(self.sent)

    @property
    def sent(self) -> int:
        """How many rows were sent."""
        with self._lock:
            return self._inner.sent + len(self._rows)

    @property
    def acknowledged(self) -> int:
        """How many of the rows are on the server's disk."""
        return self._inner.acknowledged

    @property
    def refused(self) -> int:
        """How many of the rows were refused."""
        return self._inner.refused

    @property
    def seq(self) -> int:
        """The sequence number of the last row that is on the server's disk; 0 if none is."""
        return self._inner.seq

    @property
    def waiting_bytes(self) -> int:
        """About the memory of the rows that have no receipt yet."""
        with self._lock:
            return self._inner.waiting_bytes + self._bytes


def _refuse_in_a_loop() -> None:
    """UsageError in a running event loop, which waiting would hold up: for ever, if what is waited for runs in it.
    Cells of notebooks may wait, though they run in one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if not hasattr(builtins, "__IPYTHON__"):
        why = "the blocking client was called inside a running event loop, which it would hold up"
        raise UsageError(f"{why}; use `async with hullcast.connect(..) as hc:` there")


class BlockingClient(_Face[Client]):
    """A connection to a server, as `hullcast.connect_blocking(..)` returns it: close it, or use `with`."""

    def __init__(self, make: Callable[[], Client]) -> None:
        _refuse_in_a_loop()
        thread = LoopThread("hullcast client")
        self._closing = threading.Lock()
        try:
            super().__init__(thread, thread.wait(_opened(make)))
        except BaseException:
            thread.stop()
            raise

    def close(self) -> None:
        """End all subscriptions and disconnect. Closing twice is fine."""
        self._thread.check_caller()
        with self._closing:  # a second caller waits until it is closed
            try:
                self._thread.wait(self._inner.close())
            finally:
                self._thread.stop()

    def drain(self) -> None:
        """Unsubscribe, hand queued events to callbacks, wait for pending calls, then disconnect."""
        try:
            self._thread.wait(self._inner.drain())
        finally:
            self.close()

    def changes(
        self, table: str, after: int | None = None, through: int | None = None, *, timeout: float | None = None
    ) -> Iterator[ChangePart]:
        """The changes of a table behind sequence number `after`, in order, each once; a portion at a time.

        Without `after` they begin with the first that the server keeps; with 0 they begin with the table's first one,
        and HistoryGone says if that is no longer kept. They end with `through`, or else with what is on the server's
        disk when this is asked. Needs the right to query the table, and a server with a data directory. HistoryGone
        says from where on changes are kept. `timeout` is for each portion.
        """
        return self._portions(self._inner.changes(table, after, through, timeout=timeout))

    def table_at(
        self, table: str, seq: int | None = None, *, part: int = 0, parts: int = 1, timeout: float | None = None
    ) -> Iterator[TablePart]:
        """The rows of a table as it was after update `seq`, or else as it is on the server's disk, a portion at a time.

        With `parts`, only one part of the rows: parts 0 to `parts` - 1 of the same `seq` are disjoint and together all
        rows, whoever reads them, and when. Conditions and `timeout` are those of `changes`.
        """
        return self._portions(self._inner.table_at(table, seq, part=part, parts=parts, timeout=timeout))

    def query_portions(
        self,
        sql: str,
        *parameters: object,
        deadline: float | str | None = None,
        freshness: float = 1.0,
        priority: int = 0,
        read_set: str | None = None,
        timeout: float | None = None,
    ) -> Iterator[QueryRows]:
        """The rows of a SELECT, a portion at a time, for answers that should not be held whole; see `query`.

        At least one portion comes, if only an empty one; the last has `worth`. Take them without long pauses: an answer
        of which nothing was fetched for 30 seconds, or whose server was restarted, raises AnswerGone.
        """
        return self._portions(
            self._inner.query_portions(
                sql,
                *parameters,
                deadline=deadline,
                freshness=freshness,
                priority=priority,
                read_set=read_set,
                timeout=timeout,
            )
        )

    def _portions(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        try:
            yield from self._iterate(items)
        finally:
            self._thread.wait(_closed(items))

    execute = _waiting(Client.execute)
    publish = _waiting(Client.publish)
    delete = _waiting(Client.delete)
    progress = _waiting(Client.progress)
    change_once = _waiting(Client.change_once)
    query = _waiting(Client.query)
    policy = _waiting(Client.policy)
    tables = _waiting(Client.tables)
    views = _waiting(Client.views)
    status = _waiting(Client.status)
    explain = _waiting(Client.explain)
    history = _waiting(Client.history)
    sync = _waiting(Client.sync)

    @overload
    def subscribe(
        self,
        sql: str,
        *parameters: object,
        snapshot: Literal[False] = False,
        progress: Literal[False] = False,
        callback: Callback[Event] | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> BlockingSubscription[Event]: ...
    @overload
    def subscribe(
        self,
        sql: str,
        *parameters: object,
        snapshot: Literal[True],
        progress: Literal[False] = False,
        callback: Callback[Event | Snapshot] | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> BlockingSubscription[Event | Snapshot]: ...
    @overload
    def subscribe(
        self,
        sql: str,
        *parameters: object,
        snapshot: Literal[False] = False,
        progress: Literal[True],
        callback: Callback[Event | Progress] | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> BlockingSubscription[Event | Progress]: ...
    @overload
    def subscribe(
        self,
        sql: str,
        *parameters: object,
        snapshot: bool = False,
        progress: bool = False,
        callback: Callback[AnyEvent] | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> BlockingSubscription[AnyEvent]: ...
    def subscribe(self, *arguments: Any, **options: Any) -> BlockingSubscription[Any]:
        opened = self._thread.wait(_opened(lambda: self._inner.subscribe(*arguments, **options)))
        return BlockingSubscription(self._thread, opened)

    _describe(
        subscribe,
        Client.subscribe,
        "BlockingSubscription",
        "Subscribe to a SELECT, with the parameters for its `?`. Use `with` on what this returns, or close it later.",
    )

    subscribe_many = _opening(
        Client.subscribe_many,
        BlockingSubscriptions,
        "Subscribe many times at once: one column of values per `?`, one subscription per row.",
    )

    def publisher(
        self,
        table: str,
        *,
        nan: Nan = "refuse",
        window_bytes: int = WINDOW_BYTES,
        on_error: Callable[[dict[str, Any], Exception], object] | None = None,
    ) -> BlockingPublisher:
        """A publisher, for rows that come one by one: `send(row)` returns at once, `flush()` waits for receipts.

        Rows without a receipt take at most `window_bytes`; `ready()` waits for room. `on_error(row, error)` is called,
        in the client's thread, for each row that is refused; without it, `flush` raises RowsRefused. NaN is refused
        unless `nan` is "null".
        """
        made = self._thread.look(
            lambda: self._inner.publisher(table, nan=nan, window_bytes=window_bytes, on_error=on_error)
        )
        return BlockingPublisher(self._thread, made)

    def statistics(self) -> ClientStatistics:
        """Counters and current state."""
        return self._thread.look(self._inner.statistics)

    @property
    def seq(self) -> int:
        """All answers of this client include the updates up to this sequence number."""
        return self._inner.seq

    @property
    def connected(self) -> bool:
        """Whether the client is connected and all its subscriptions are in effect."""
        return self._thread.look(lambda: self._inner.connected)


def _connecting(connect: Callable[P, Client]) -> Callable[P, BlockingClient]:
    """`hullcast.connect` as a function that waits until it is connected, with the same arguments."""

    @wraps(connect)
    def call(*arguments: P.args, **options: P.kwargs) -> BlockingClient:
        return BlockingClient(lambda: connect(*arguments, **options))

    _describe(call, connect, "BlockingClient", "A connected client: use it in a `with`, or close it later.")
    return call


connect = _connecting(connect_async)

__all__ = ["BlockingClient", "BlockingPublisher", "BlockingSubscription", "BlockingSubscriptions", "connect"]
