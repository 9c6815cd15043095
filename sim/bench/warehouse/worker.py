"""Processes of `bench warehouse`: clients that load feeds, ask, or probe a server."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from functools import partial
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from hullcast.network.wire.arrays import Floats
from hullcast.network.wire.errors import DeadlineMissed, HullcastError
from hullcast.sim.bench.frame.machine import write_and_sync
from hullcast.sim.bench.frame.push import PUSHES, PushWorker
from hullcast.sim.bench.frame.worker import Batch, Told, goes_on, main
from hullcast.sim.bench.warehouse.workload import AskedQuestion, BusyFeed, busy_question, first_rows, questions, rows
from hullcast.sim.seeds import generator


class WarehouseBenchWorker(PushWorker):
    """One client; it does one thing for a while at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, Floats] = {}  # of each table that is loaded, by key
        self._draws: dict[str, np.random.Generator] = {}

    # -- what goes on until `end` ----------------------------------------------------------------------------

    @goes_on
    async def load(self, feeds: list[dict[str, Any]], seed: int) -> Told:
        """Publish batches of all feeds, each by its period, whether or not the last one has its receipt. Gives how many
        rows were published, and what the values of each table must sum up to now."""
        some = [BusyFeed(**feed) for feed in feeds]
        done = dict.fromkeys((feed.table for feed in some), 0)
        for feed in some:
            if feed.table not in self._values:
                self._values[feed.table] = first_rows(feed.keys, seed, feed.table)["V"]
                self._draws[feed.table] = generator(seed, "bench/warehouse/load", feed.table)

        def due_now(feed: BusyFeed) -> Iterator[Batch]:
            draw = self._draws[feed.table]
            keys, new = draw.integers(feed.keys, size=feed.batch), draw.random(feed.batch)
            self._values[feed.table][keys] = new  # of several with one key the last one holds, as in the table
            done[feed.table] += feed.batch
            yield feed.table, rows(keys, new)

        await asyncio.gather(*(self._publish_paced(feed.period_s, partial(due_now, feed)) for feed in some))
        return {"rows": done, "sums": {feed.table: float(self._values[feed.table].sum()) for feed in some}}

    @goes_on
    async def ask(self, tables: list[str], keys: int, rate: float, seconds: float, seed: str) -> Told:
        """Ask a stream of questions, each when it is due."""
        stream = list(questions(tables, keys, rate, seconds, seed))
        began, asked = monotonic(), []
        async with asyncio.TaskGroup() as tasks:
            for question in stream:
                if not await self._wait(began + question.at_s):
                    break
                asked.append(tasks.create_task(self._asked(question), name="question"))
        return {"asked": [task.result() for task in asked]}

    async def _asked(self, question: AskedQuestion) -> Told:
        started = perf_counter()
        told = {"freshness": question.freshness, "deadline_s": question.deadline_s, "missed": False, "error": ""}
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
        took_s, worth = perf_counter() - started, answer.worth
        assert worth is not None, "each answer of a server says what it is worth"
        return told | {"s": took_s, "staleness_s": worth.staleness_s, "unapplied": worth.unapplied}

    @goes_on
    async def grind(self, tables: list[str], at_once: int) -> Told:
        """Ask long questions about everything acknowledged, so many at a time, one after the other."""
        counted = 0

        async def one_after_the_other(number: int) -> None:
            nonlocal counted
            while not self._stop.is_set():
                await self.client.query(busy_question(tables[number % len(tables)]))
                counted += 1

        await asyncio.gather(*(one_after_the_other(number) for number in range(at_once)))
        return {"answers": counted}

    @goes_on
    async def probe(self, how: str) -> Told:
        """Do one thing after the other: "publish" a row, ask for the "status", sync a file of our own to "disk", or
        ask "nobody"."""
        trips: list[tuple[float, float]] = []
        with tempfile.TemporaryFile(prefix="hullcast-bench-", buffering=0) as file:
            while not self._stop.is_set():
                started = monotonic()
                match how:
                    case "publish":
                        await self.client.publish(PUSHES, {"ID": -1, "X": -1.0, "SENT": 0})
                    case "status":
                        await self.client.status()
                    case "disk":  # as a server does with its log; in this thread, because nothing else happens here
                        write_and_sync(file.fileno())
                    case "nobody":  # longer than that: the machine had no time for this process
                        await asyncio.sleep(0.001)
                trips.append((started, monotonic()))
                await asyncio.sleep(0.001)  # a pause is what we look for, not how many there can be
        return {"trips": trips}

    # -- what is over when it is answered ----------------------------------------------------------------------

    async def fill(self, table: str, keys: int, seed: int) -> Told:
        """Publish the rows that a table begins with."""
        columns = first_rows(keys, seed, table)
        await self._fill(table, columns)
        return {"sum": float(columns["V"].sum())}

    async def points(self, table: str, keys: int, count: int, freshness: float, seed: str) -> Told:
        """Ask for single rows, one after the other; and, in turns with that, for something that takes no query."""
        keys_drawn = generator(0, "bench/warehouse/points", seed).integers(keys, size=count).tolist()
        sql = f"SELECT V FROM {table} WHERE ID = ?"
        return await self._compare(
            (self.client.query(sql, key, freshness=freshness), self.client.tables()) for key in keys_drawn
        )


if __name__ == "__main__":
    main(WarehouseBenchWorker)
