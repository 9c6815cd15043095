"""Processes of `bench streams`: clients that publish to streams, filter them, and listen to joins."""

from __future__ import annotations

import asyncio
from time import monotonic_ns, perf_counter
from typing import Any

from hullcast.clients.sdk.subscriptions import Subscriptions
from hullcast.network.answers.events import StreamTuple
from hullcast.network.wire.arrays import Floats
from hullcast.network.wire.errors import HullcastError
from hullcast.sim.bench.streams.workload import (
    LISTEN,
    QUOTES,
    TRADES,
    filter_ranges,
    filters_of,
    joined_keys,
    joined_rows,
    tick_rows,
    ticks,
    time_after,
)
from hullcast.sim.bench.warehouse.workers import WarehouseBenchClient, main

#: How often a count is looked at.
_LOOK_S = 0.005
#: Time between two publishes of a paced load.
_PERIOD_S = 0.01


class StreamBenchClient(WarehouseBenchClient):
    """One client; it does one thing for a while at a time."""

    answered = (
        *WarehouseBenchClient.answered,
        "filters",
        "filtered",
        "unfilter",
        "prepare",
        "tick",
        "begin_at",
        "feed",
        "feed_paced",
        "advance",
        "listen",
        "listened",
        "settled",
        "latencies",
        "unlisten",
    )

    def __init__(self) -> None:
        super().__init__()
        self._ticks: Floats | None = None
        self._many: Subscriptions | None = None
        self._task: asyncio.Task[None] | None = None
        self._events, self._last_ns, self._missed = 0, 0, 0
        self._ages: list[int] = []
        self._fed = 0  # tuples of each of the two streams that are joined

    async def close(self) -> None:
        """Leave, and hang up."""
        await self.unfilter()
        await self.unlisten()
        await super().close()

    # -- many filters ------------------------------------------------------------------------------------------

    async def filters(
        self, source: str, total: int, wanted_by: float, part: int, parts: int, seed: int
    ) -> dict[str, Any]:
        """Subscribe to our part of the filters."""
        low, high = filter_ranges(total, wanted_by, seed)
        mine = slice(total * part // parts, total * (part + 1) // parts)
        began = perf_counter()
        self._many = await self.client.subscribe_many(filters_of(source), low[mine], high[mine])
        self._events = self._last_ns = self._missed = 0
        self._task = asyncio.create_task(self._take(self._many), name="take tuples")
        return {"seconds": perf_counter() - began}

    async def _take(self, many: Subscriptions) -> None:
        async for changed in many.changes():
            self._events += len(changed)
            self._missed += int(changed.resync.sum())
            self._last_ns = monotonic_ns()

    async def filtered(self, events: int, patience_s: float) -> dict[str, Any]:
        """Wait until so many tuples came, or until nothing comes any more; 0: until all that was applied is here."""
        await self.client.sync()
        await self._until(events, patience_s)
        return {"events": self._events, "missed": self._missed, "last_ns": self._last_ns}

    async def unfilter(self) -> dict[str, Any]:
        """Leave all filters."""
        if self._many is not None:
            await self._many.close()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        self._many = self._task = None
        return {}

    async def _until(self, events: int, patience_s: float) -> None:
        """Wait until so many came; an event for each would cost more than a look now and then."""
        deadline = perf_counter() + patience_s
        while self._events < events and perf_counter() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)

    # -- publishing --------------------------------------------------------------------------------------------

    async def prepare(self, count: int, seed: int) -> dict[str, Any]:
        """Draw the ticks."""
        self._ticks = ticks(count, seed)
        return {}

    async def tick(self, source: str, seconds: float, batch: int, in_flight: int) -> dict[str, Any]:
        """Publish ticks from the first on, again and again, as fast as receipts come, to the stream or the table."""
        assert self._ticks is not None, "prepare comes first"
        drawn, at = self._ticks, 0
        began, until = monotonic_ns(), perf_counter() + seconds

        async def publish() -> None:
            nonlocal at
            while perf_counter() < until:
                start, at = at, at + batch
                place = start % len(drawn)
                await self.client.publish(source, tick_rows(source, drawn[place : place + batch], start))

        await asyncio.gather(*(publish() for _ in range(in_flight)))
        return {"tuples": at, "began_ns": began, "ended_ns": monotonic_ns()}

    async def begin_at(self, each: int) -> dict[str, Any]:
        """The two streams that are joined have so many tuples each."""
        self._fed = each
        return {}

    async def feed(self, seconds: float, batch: int, in_flight: int, keys: int, seed: int) -> dict[str, Any]:
        """Publish to both streams in turns, as fast as receipts come, so many publishes on the way at a time."""
        began, until, before = monotonic_ns(), perf_counter() + seconds, self._fed
        room = asyncio.Semaphore(in_flight)
        refused: list[str] = []

        async def publish(stream: str, start: int) -> None:
            try:
                rows = joined_keys(stream, keys, start, start + batch, seed)
                await self.client.publish(stream, joined_rows(stream, rows, start, monotonic_ns()))
            except HullcastError as error:
                refused.append(f"{type(error).__name__}: {error}")
            finally:
                room.release()

        async with asyncio.TaskGroup() as tasks:
            while perf_counter() < until and not refused:
                for stream in (TRADES, QUOTES):
                    await room.acquire()
                    tasks.create_task(publish(stream, self._fed), name="feed")
                self._fed += batch
        if refused:
            raise HullcastError(refused[0])
        return {"each": self._fed - before, "fed": self._fed, "began_ns": began, "ended_ns": monotonic_ns()}

    async def advance(self) -> dict[str, Any]:
        """Say that no earlier tuple will come to either stream."""
        for stream in (TRADES, QUOTES):
            await self.client.progress(stream, time_after(self._fed))
        return {}

    async def feed_paced(self, rate: float, keys: int, seed: int) -> dict[str, Any]:
        """Publish so many tuples a second to both streams together, until `end`."""
        return self._begin(lambda: self._feed_paced(rate, keys, seed), "feed")

    async def _feed_paced(self, rate: float, keys: int, seed: int) -> dict[str, Any]:
        batch = max(1, round(rate * _PERIOD_S / 2))
        loop = asyncio.get_running_loop()
        due, before, waiting = loop.time(), self._fed, set[asyncio.Task[Any]]()
        began = loop.time()
        while not self._stop.is_set():
            await asyncio.sleep(max(0.0, due - loop.time()))
            due = max(due + 2 * batch / rate, loop.time() - 1.0)  # what a second could not make up for is left out
            for stream in (TRADES, QUOTES):
                rows = joined_keys(stream, keys, self._fed, self._fed + batch, seed)
                some = joined_rows(stream, rows, self._fed, monotonic_ns())
                task = asyncio.create_task(self.client.publish(stream, some), name="feed")
                waiting.add(task)
                task.add_done_callback(waiting.discard)
            self._fed += batch
        await asyncio.gather(*waiting)
        return {"each": self._fed - before, "seconds": loop.time() - began}

    # -- results -----------------------------------------------------------------------------------------------

    async def listen(self, keys: int) -> dict[str, Any]:
        """Subscribe to all results of the join."""
        await self.unlisten()
        self._events = self._last_ns = self._missed = 0
        self._ages = []
        results = await self.client.subscribe(LISTEN, 0, keys)

        async def take() -> None:
            async with results:
                async for event in results:
                    now = monotonic_ns()
                    if isinstance(event, StreamTuple):
                        self._events += 1
                        self._ages.append(now - max(event.row))
                    else:
                        self._missed += 1
                    self._last_ns = now

        self._task = asyncio.create_task(take(), name="take results")
        return {}

    async def listened(self, events: int, patience_s: float) -> dict[str, Any]:
        """Wait until so many results came, or until patience ends."""
        await self._until(events, patience_s)
        return {"events": self._events, "missed": self._missed, "last_ns": self._last_ns}

    async def settled(self, quiet_s: float, patience_s: float) -> dict[str, Any]:
        """Wait until no more results come."""
        before, deadline = -1, perf_counter() + patience_s
        while self._events > before and perf_counter() < deadline:
            before = self._events
            await asyncio.sleep(quiet_s)
        return {"events": self._events, "missed": self._missed, "last_ns": self._last_ns}

    async def latencies(self) -> dict[str, Any]:
        """The ages of results since this was asked last, in milliseconds; of many, as many as are needed."""
        ages, self._ages = self._ages, []
        step = max(1, len(ages) // 20_000)
        return {"ms": [age / 1e6 for age in ages[::step]], "events": len(ages)}

    async def unlisten(self) -> dict[str, Any]:
        """Leave the results."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        return {}


if __name__ == "__main__":
    asyncio.run(main(StreamBenchClient))
