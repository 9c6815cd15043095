"""Processes of `bench warehouse`: clients that load feeds, ask, or probe a server."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from hullcast.network.wire.arrays import Floats
from hullcast.network.wire.errors import DeadlineMissed, HullcastError
from hullcast.sim.bench.frame.push import PUSHES, PushWorker
from hullcast.sim.bench.frame.worker import Batch, main
from hullcast.sim.bench.warehouse.workload import AskedQuestion, BusyFeed, busy_question, first_rows, questions, rows
from hullcast.sim.seeds import generator

_FILL_ROWS = 50_000
_SYNC_BYTES = 200


class WarehouseBenchWorker(PushWorker):
    """One client; it does one thing for a while at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._file = tempfile.TemporaryFile(prefix="hullcast-bench-", buffering=0)  # noqa: SIM115  (ends with us)
        self._values: dict[str, Floats] = {}  # of each table that is loaded, by key
        self._draws: dict[str, np.random.Generator] = {}

    # -- what goes on until `end` ----------------------------------------------------------------------------

    async def load(self, feeds: list[dict[str, Any]], seed: int) -> dict[str, Any]:
        """Publish batches of all feeds, each by its period, whether or not the last one has its receipt."""
        return self._begin(lambda: self._load([BusyFeed(**feed) for feed in feeds], seed), "load")

    async def _load(self, feeds: list[BusyFeed], seed: int) -> dict[str, Any]:
        """Gives how many rows were published, and what the values of each table must sum up to now."""
        done = dict.fromkeys((feed.table for feed in feeds), 0)
        for feed in feeds:
            if feed.table not in self._values:
                self._values[feed.table] = first_rows(feed.keys, seed, feed.table)["V"]
                self._draws[feed.table] = generator(seed, "bench/warehouse/load", feed.table)

        def due_now(feed: BusyFeed) -> Iterator[Batch]:
            draw = self._draws[feed.table]
            keys, new = draw.integers(feed.keys, size=feed.batch), draw.random(feed.batch)
            self._values[feed.table][keys] = new  # of several with one key the last one holds, as in the table
            done[feed.table] += feed.batch
            yield feed.table, rows(keys, new)

        began = monotonic()
        late = await asyncio.gather(
            *(self._publish_paced(feed.period_s, lambda feed=feed: due_now(feed)) for feed in feeds)  # type: ignore[misc]
        )
        return {
            "seconds": monotonic() - began,
            "rows": done,
            "sums": {feed.table: float(self._values[feed.table].sum()) for feed in feeds},
            "late_p99_s": float(np.quantile(np.concatenate(late), 0.99)),
        }

    async def ask(self, tables: list[str], keys: int, rate: float, seconds: float, seed: str) -> dict[str, Any]:
        """Ask a stream of questions, each when it is due."""
        stream = list(questions(tables, keys, rate, seconds, seed))
        return self._begin(lambda: self._ask(stream), "ask")

    async def _ask(self, stream: list[AskedQuestion]) -> dict[str, Any]:
        began, asked = monotonic(), []
        async with asyncio.TaskGroup() as tasks:
            for question in stream:
                if not await self._wait(began + question.at_s):
                    break
                asked.append(tasks.create_task(self._asked(question), name="question"))
        return {"asked": [task.result() for task in asked]}

    async def _asked(self, question: AskedQuestion) -> dict[str, Any]:
        started = perf_counter()
        told: dict[str, Any] = {"kind": question.kind, "freshness": question.freshness}
        told |= {"deadline_s": question.deadline_s, "missed": False, "error": ""}
        try:
            answer = await self.client.query(
                question.sql,
                *question.parameters,
                freshness=question.freshness,
                deadline=question.deadline_s,
                read_set="consistent" if question.consistent else None,
            )
        except DeadlineMissed:
            return told | {"missed": True, "s": perf_counter() - started}
        except HullcastError as error:
            return told | {"error": f"{type(error).__name__}: {error}", "s": perf_counter() - started}
        told["s"] = perf_counter() - started
        worth = answer.worth
        assert worth is not None, "each answer of a server says what it is worth"
        return told | {
            "staleness_s": worth.staleness_s,
            "unapplied": worth.unapplied,
            "waited_s": worth.waited_s,
            "ran_s": worth.ran_s,
        }

    async def grind(self, tables: list[str], at_once: int) -> dict[str, Any]:
        """Ask long questions about everything acknowledged, so many at a time, one after the other."""
        return self._begin(lambda: self._grind(tables, at_once), "grind")

    async def _grind(self, tables: list[str], at_once: int) -> dict[str, Any]:
        counted = 0

        async def one_after_the_other(number: int) -> None:
            nonlocal counted
            while not self._stop.is_set():
                await self.client.query(busy_question(tables[number % len(tables)]))
                counted += 1

        await asyncio.gather(*(one_after_the_other(number) for number in range(at_once)))
        return {"answers": counted}

    async def probe(self, how: str) -> dict[str, Any]:
        """Do one thing after the other: "publish" a row, ask for the "status", sync a file of our own to "disk", or
        ask "nobody"."""
        trip = {
            "publish": self._published,
            "status": self.client.status,
            "disk": self._synced,
            "nobody": self._nobody,
        }[how]
        return self._begin(lambda: self._probe(trip), "probe")

    async def _published(self) -> Any:
        return await self.client.publish(PUSHES, {"ID": -1, "X": -1.0, "SENT": 0})

    async def _synced(self) -> None:
        """As a server does with its log; in this thread, because nothing else happens here."""
        self._file.write(bytes(_SYNC_BYTES))
        os.fdatasync(self._file.fileno())

    async def _nobody(self) -> None:
        await asyncio.sleep(0.001)  # longer than that: the machine had no time for this process

    async def _probe(self, trip: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
        trips: list[tuple[float, float]] = []
        while not self._stop.is_set():
            started = monotonic()
            await trip()
            trips.append((started, monotonic()))
            await asyncio.sleep(0.001)  # a pause is what we look for, not how many there can be
        return {"trips": trips}

    # -- what is over when it is answered ----------------------------------------------------------------------

    async def fill(self, table: str, keys: int, seed: int) -> dict[str, Any]:
        """Publish the rows that a table begins with."""
        columns = first_rows(keys, seed, table)
        await self._fill(table, columns, _FILL_ROWS)
        return {"sum": float(columns["V"].sum())}

    async def points(self, table: str, keys: int, count: int, freshness: float, seed: str) -> dict[str, Any]:
        """Ask for single rows, one after the other; and, in turns with that, for something that takes no query."""
        draw = generator(0, "bench/warehouse/points", seed)
        sql = f"SELECT V FROM {table} WHERE ID = ?"
        asked, bare = [], []
        for key in draw.integers(keys, size=count).tolist():
            started = perf_counter()
            await self.client.query(sql, key, freshness=freshness)
            asked.append(1e3 * (perf_counter() - started))
            started = perf_counter()
            await self.client.tables()
            bare.append(1e3 * (perf_counter() - started))
        return {"ms": asked, "bare_ms": bare}


if __name__ == "__main__":
    main(WarehouseBenchWorker)
