"""Hullcast without asyncio: the same client for programs and notebooks that block.

A thread of its own runs an event loop with the client in it; every call here waits for the coroutine of the same name
there. Safe for use from several threads, except that a subscription's events are for one of them at a time.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.connecting import configure

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from contextlib import AbstractAsyncContextManager

    import numpy.typing as npt

    from hullcast.clients.sdk.client import ClientStatistics, Receipt
    from hullcast.clients.sdk.subscription import LiveSubscription
    from hullcast.clients.sdk.subscriptions import Changed, LiveSubscriptions
    from hullcast.network.answers.events import Event
    from hullcast.network.wire.containers import Nan

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own. `stop` leaves neither task nor thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
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

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there, and wait for it here; Ctrl-C here cancels it there."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("a blocking call inside a callback would wait for itself; use the asyncio client there")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def look(self, read: Callable[[], T]) -> T:
        """Call a function there."""

        async def run() -> T:
            return read()

        return self.wait(run())

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the loop and its thread."""
        if self._thread.is_alive():
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


class BlockingClient:
    """What `hullcast.connect_blocking(..)` returns: open, to be closed or used in a `with`."""

    def __init__(self, url: Any = None, **settings: Any) -> None:
        connection = configure(url, **settings)
        self._thread = LoopThread(f"hullcast {connection.name}")

        async def opened() -> Client:
            return await Client(connection)

        try:
            self._client: Client = self._thread.wait(opened())
        except BaseException:
            self._thread.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End all subscriptions and hang up. Closing twice is fine."""
        if self._thread.alive:
            try:
                self._thread.wait(self._client.close())
            finally:
                self._thread.stop()

    def drain(self) -> None:
        """Let callbacks have what is queued, wait for calls, then hang up."""
        try:
            self._thread.wait(self._client.drain())
        finally:
            self._thread.stop()

    def execute(self, sql: str, *, timeout: float | None = None) -> Receipt:
        """Run CREATE TABLE or DROP TABLE."""
        return self._thread.wait(self._client.execute(sql, timeout=timeout))

    def publish(self, table: str, rows: object, *, nan: Nan = "refuse", timeout: float | None = None) -> Receipt:
        """Insert or change rows; durable when it returns. `nan="null"` takes NaN for NULL instead of refusing it."""
        return self._thread.wait(self._client.publish(table, rows, nan=nan, timeout=timeout))

    def delete(self, table: str, keys: object, *, timeout: float | None = None) -> Receipt:
        """Remove rows by primary key."""
        return self._thread.wait(self._client.delete(table, keys, timeout=timeout))

    def query(self, sql: str, *parameters: object, timeout: float | None = None) -> list[Any]:
        """Read the rows once; rows as named tuples."""
        return self._thread.wait(self._client.query(sql, *parameters, timeout=timeout))

    def tables(self, *, timeout: float | None = None) -> dict[str, Any]:
        """The tables by name."""
        return self._thread.wait(self._client.tables(timeout=timeout))

    def status(self, *, timeout: float | None = None) -> dict[str, Any]:
        """How the server and its nodes are doing."""
        return self._thread.wait(self._client.status(timeout=timeout))

    def explain(self, sql: str, *parameters: object, timeout: float | None = None) -> dict[str, Any]:
        """How a subscription would be served."""
        return self._thread.wait(self._client.explain(sql, *parameters, timeout=timeout))

    def sync(self, *, timeout: float | None = None) -> int:
        """Wait until all that the server has applied is in all answers here."""
        return self._thread.wait(self._client.sync(timeout=timeout))

    def statistics(self) -> ClientStatistics:
        """Counters, and what is there now."""
        return self._thread.look(self._client.statistics)

    @property
    def seq(self) -> int:
        """The sequence number of the update up to which all answers here are right."""
        return self._client.seq

    def subscribe(self, sql: str, *parameters: object, **options: Any) -> BlockingSubscription:
        """As `Client.subscribe`, and open at once. A callback is called in the client's thread."""

        async def opened() -> LiveSubscription:
            return await self._client.subscribe(sql, *parameters, **options)

        return BlockingSubscription(self._thread, self._thread.wait(opened()))

    def subscribe_many(self, sql: str, *columns: object, **options: Any) -> BlockingSubscriptions:
        """As `Client.subscribe_many`, and open at once."""

        async def opened() -> LiveSubscriptions:
            return await self._client.subscribe_many(sql, *columns, **options)

        return BlockingSubscriptions(self._thread, self._thread.wait(opened()))


class BlockingSubscription:
    """A subscription; iterate to wait for events without end, or take them with a timeout."""

    def __init__(self, thread: LoopThread, subscription: LiveSubscription) -> None:
        self._thread, self._subscription = thread, subscription
        self.sql = subscription.sql

    def __getattr__(self, name: str) -> Any:
        """What `LiveSubscription` shows (`answer`, `seq`, `pending`, `token` ..), read in the client's thread."""
        if name not in ("answer", "seq", "pending", "dropped", "conflated", "lag", "token", "columns", "closed"):
            raise AttributeError(name)
        return self._thread.look(lambda: getattr(self._subscription, name))

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event; None after `timeout` seconds without one. StopIteration when the subscription is over."""

        async def taken() -> tuple[bool, Event | None]:
            try:
                async with asyncio.timeout(timeout):
                    return True, await anext(self._subscription)
            except TimeoutError:
                return True, None
            except StopAsyncIteration:  # cannot leave a coroutine
                return False, None

        alive, event = self._thread.wait(taken())
        if not alive:
            raise StopIteration
        return event

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Events as they come, until none came for `timeout` seconds or the subscription is over."""
        while True:
            try:
                event = self.next(timeout)
            except StopIteration:
                return
            if event is None:
                return
            yield event

    def __iter__(self) -> Iterator[Event]:
        return self.events()

    def close(self) -> None:
        """Hear no more."""
        self._thread.wait(self._subscription.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class BlockingSubscriptions:
    """Many subscriptions, as columns."""

    def __init__(self, thread: LoopThread, subscriptions: LiveSubscriptions) -> None:
        self._thread, self._subscriptions = thread, subscriptions
        self.sql = subscriptions.sql

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __getitem__(self, i: int) -> BlockingSubscription:
        return BlockingSubscription(self._thread, self._thread.look(lambda: self._subscriptions[i]))

    @property
    def answers(self) -> npt.NDArray[Any]:
        """All answers as a column."""
        return self._thread.look(lambda: self._subscriptions.answers)

    @property
    def seq(self) -> int:
        """Up to where the answers are right."""
        return self._thread.look(lambda: self._subscriptions.seq)

    def next_changes(self, timeout: float | None = None) -> Changed | None:
        """Who has a new answer since last told; None if nobody has within `timeout` seconds."""
        return self._thread.wait(self._subscriptions.next_changes(timeout))

    def close(self) -> None:
        """Hear no more."""
        self._thread.wait(self._subscriptions.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def connect(url: Any = None, **settings: Any) -> BlockingClient:
    """Connect, as `hullcast.connect` does, and wait until it is done."""
    return BlockingClient(url, **settings)


__all__ = ["BlockingClient", "BlockingSubscription", "BlockingSubscriptions", "connect"]
