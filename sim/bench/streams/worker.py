"""Processes of `bench streams`: clients that publish to streams, filter them, and listen to joins."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from math import inf
from time import monotonic_ns, perf_counter

from hullcast.network.answers.events import StreamTuple
from hullcast.network.wire.arrays import Floats
from hullcast.sim.bench.frame.push import PushWorker
from hullcast.sim.bench.frame.worker import Batch, Told, goes_on, main, part_of, until
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

#: How often a count is looked at.
_LOOK_S = 0.005
#: Time between two publishes of a paced load, and how many of them may wait for their receipts.
_PERIOD_S, MANY = 0.01, 10_000


class StreamWorker(PushWorker):
    """One client; it does one thing for a while at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._ticks: Floats | None = None
        self._ages: list[int] = []
        self._fed = 0  # tuples of each of the two streams that are joined

    async def close(self) -> None:
        """Leave, and hang up."""
        await self.unlisten()
        await super().close()

    # -- many filters ------------------------------------------------------------------------------------------

    async def filters(self, source: str, total: int, wanted_by: float, part: int, parts: int, seed: int) -> Told:
        """Subscribe to our part of the filters."""
        low, high = filter_ranges(total, wanted_by, seed)
        mine = part_of(total, part, parts)
        return await self._subscribe(filters_of(source), low[mine], high[mine])

    async def filtered(self, events: int, patience_s: float) -> Told:
        """Wait until so many tuples came, or until nothing comes any more; 0: until all that was applied is here."""
        await self.client.sync()
        await self._until(events, patience_s)
        return await self.heard()

    async def _until(self, events: int, patience_s: float) -> None:
        """Wait until so many came; an event for each would cost more than a look now and then."""
        deadline = perf_counter() + patience_s
        while self._events < events and perf_counter() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)

    # -- publishing --------------------------------------------------------------------------------------------

    async def prepare(self, size: int, seed: int) -> None:
        """Draw the ticks."""
        self._ticks = ticks(size, seed)

    async def tick(self, source: str, seconds: float, batch: int, in_flight: int) -> Told:
        """Publish ticks from the first on, again and again, as fast as receipts come, to the stream or the table."""
        assert self._ticks is not None, "prepare comes first"
        drawn = self._ticks

        def batches() -> Iterator[Batch]:
            for start in count(0, batch):
                place = start % len(drawn)
                yield source, tick_rows(source, drawn[place : place + batch], start)

        return await self._publish_all(until(seconds, batches()), in_flight)

    async def begin_at(self, each: int) -> None:
        """The two streams that are joined have so many tuples each."""
        self._fed = each

    async def feed(self, seconds: float, batch: int, in_flight: int, keys: int, seed: int) -> Told:
        """Publish to both streams in turns, as fast as receipts come, so many publishes on the way at a time."""
        before = self._fed
        told = await self._publish_all(self._both(batch, keys, seed, perf_counter() + seconds), in_flight)
        return {**told, "each": self._fed - before, "fed": self._fed}

    def _both(self, batch: int, keys: int, seed: int, end: float = inf) -> Iterator[Batch]:
        """Batches of both streams in turns, as many of each, which say when they were published."""
        while perf_counter() < end:
            start, self._fed = self._fed, self._fed + batch
            for stream in (TRADES, QUOTES):
                some = joined_keys(stream, keys, start, start + batch, seed)
                yield stream, joined_rows(stream, some, start, monotonic_ns())

    async def advance(self) -> None:
        """Say that no earlier tuple will come to either stream."""
        for stream in (TRADES, QUOTES):
            await self.client.progress(stream, time_after(self._fed))

    @goes_on
    async def feed_paced(self, rate: float, keys: int, seed: int) -> Told:
        """Publish so many tuples a second to both streams together, until `end`."""
        batch, before = max(1, round(rate * _PERIOD_S / 2)), self._fed
        both = self._both(batch, keys, seed)
        await self._publish_paced(2 * batch / rate, lambda: (next(both), next(both)), at_most=MANY)
        return {"each": self._fed - before}

    # -- results -----------------------------------------------------------------------------------------------

    async def listen(self, keys: int) -> None:
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

        self._taking = asyncio.create_task(take(), name="take results")

    async def listened(self, events: int, patience_s: float) -> Told:
        """Wait until so many results came, or until patience ends."""
        await self._until(events, patience_s)
        return await self.heard()

    async def settled(self, quiet_s: float, patience_s: float) -> Told:
        """Wait until no more results come."""
        before, deadline = -1, perf_counter() + patience_s
        while self._events > before and perf_counter() < deadline:
            before = self._events
            await asyncio.sleep(quiet_s)
        return await self.heard()

    async def latencies(self) -> Told:
        """The ages of results since this was asked last, in milliseconds; of many, as many as are needed."""
        ages, self._ages = self._ages, []
        step = max(1, len(ages) // 20_000)
        return {"ms": [age / 1e6 for age in ages[::step]], "events": len(ages)}

    async def unlisten(self) -> None:
        """Leave the results."""
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.gather(self._taking, return_exceptions=True)
            self._taking = None


if __name__ == "__main__":
    main(StreamWorker)
