"""Long work on the event loop: the driver by the real clock, a few milliseconds a turn."""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from hullcast.broker.scheduling.driver import Driver
from hullcast.broker.scheduling.policy import FairShare

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.broker.scheduling.driver import DriverStatistics, WhenDone, Work, Yielded
    from hullcast.broker.scheduling.policy import Item

#: Seconds of work between two turns of the event loop.
TURN_S = 0.003
#: Threads for work without shared state; they spend their time in compiled code, which lets others run.
THREADS = 2


class _RealClock:
    def now(self) -> float:
        return time.perf_counter()

    def pass_by(self, cost_s: float) -> None:
        """It passes by itself."""


class Working:
    """Runs the work of requests in turns, so that other requests do not wait for it; owners get equal shares."""

    def __init__(self) -> None:
        self._driver = Driver(FairShare(), _RealClock(), self._elsewhere, THREADS)
        self._something = asyncio.Event()
        self._awaited: set[asyncio.Future[Any]] = set()
        self._ended = False
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="hullcast-work")

    def put(self, owner: str, work: Work, done: WhenDone, yielded: Yielded | None = None) -> Item:
        """Take in work, as `Driver.put` does. `done` is called in the very turn in which the last slice ends: what
        the work found out then still holds."""
        item = self._driver.put(owner, work, done, yielded)
        self._something.set()
        return item

    def withdraw(self, item: Item) -> None:
        """The result of some work is no longer needed."""
        self._driver.withdraw(item)

    async def do(self, owner: str, work: Work) -> Any:
        """The result of some work; by the time it is here, more may have happened. Cancelled if `run` ends first."""
        if self._ended:
            work.close()
            raise asyncio.CancelledError
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._awaited.add(future)

        def done(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        try:
            item = self.put(owner, work, done)
            try:
                return await future
            finally:
                self._driver.withdraw(item)
        finally:
            self._awaited.discard(future)

    def _elsewhere(self, call: Callable[[], Any], done: WhenDone) -> None:
        """Call it in a thread; `done` is called here, on the loop."""
        loop = asyncio.get_running_loop()

        def back(future: Future[Any]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            result = None if error is not None else future.result()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(returned, result, error)

        def returned(result: Any, error: BaseException | None) -> None:
            done(result, error)
            self._something.set()

        self._threads.submit(call).add_done_callback(back)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                await self._something.wait()
                began = time.perf_counter()
                while not self._driver.idle and time.perf_counter() - began < TURN_S:
                    self._driver.step()
                if self._driver.idle:
                    self._something.clear()
                await asyncio.sleep(0)
        finally:
            self._driver.withdraw_all()
            self._ended = True
            for future in self._awaited:
                future.cancel()
            # what is being computed there is no longer needed, and touches no shared state: do not wait for it;
            # threads without work end at once
            self._threads.shutdown(wait=not self._driver.away, cancel_futures=True)

    def statistics(self) -> DriverStatistics:
        """A snapshot."""
        return self._driver.statistics()
