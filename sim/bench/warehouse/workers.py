"""Processes of `bench warehouse`: clients that load feeds, ask, publish, listen, or probe a server.

What goes on for a while (`load`, `ask`, `hear`, `probe`) is begun by one task and ended by another, so that several
processes do it at the same time.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from time import monotonic, monotonic_ns, perf_counter, sleep, thread_time
from typing import Any

import numpy as np

from hullcast.clients.processes.worker import serve
from hullcast.clients.sdk.client import Client, connect
from hullcast.network.answers.events import Change
from hullcast.network.wire.arrays import Floats
from hullcast.network.wire.errors import DeadlineMissed, HullcastError
from hullcast.sim.bench.warehouse.workload import AskedQuestion, BusyFeed, busy_question, first_rows, questions, rows
from hullcast.sim.seeds import generator

#: The table of pushes: the value is the moment at which it was published, so that an event tells its own age.
PUSHES = "PUSHES"
CREATE_PUSHES = f"CREATE TABLE {PUSHES} (ID INTEGER PRIMARY KEY, X REAL, SENT INTEGER)"
NEWEST = f"SELECT MAX(SENT) FROM {PUSHES} WHERE X BETWEEN 0 AND 100"
#: Publishes of one feed that wait for their receipts; with more the feed waits, and is late.
IN_FLIGHT = 16
_FILL_BATCH = 50_000
_SYNC_BYTES = 200
_SPIN_S = 0.002
_TIMEOUT_S = 110.0


class WarehouseBenchClient:
    """One client; it does one thing for a while at a time."""

    answered: tuple[str, ...] = (
        "open",
        "fill",
        "load",
        "ask",
        "grind",
        "hear",
        "probe",
        "spin",
        "end",
        "push",
        "points",
    )

    def __init__(self) -> None:
        self._client: Client | None = None
        self._goes_on: asyncio.Task[dict[str, Any]] | None = None
        self._stop = asyncio.Event()
        self._file = tempfile.TemporaryFile(prefix="hullcast-bench-", buffering=0)  # noqa: SIM115  (ends with us)
        self._values: dict[str, Floats] = {}  # of each table that is loaded, by key
        self._draws: dict[str, np.random.Generator] = {}

    @property
    def client(self) -> Client:
        """The client, after `open`."""
        assert self._client is not None, "open comes first"
        return self._client

    async def open(self, url: str, name: str) -> dict[str, Any]:
        """Connect."""
        await self.close()
        self._client = await connect(url, name=name, timeout=_TIMEOUT_S)
        return {}

    async def close(self) -> None:
        """Hang up."""
        if self._goes_on is not None:
            self._goes_on.cancel()
            await asyncio.gather(self._goes_on, return_exceptions=True)
            self._goes_on = None
        if self._client is not None:
            await self._client.close()
            self._client = None

    # -- what goes on until `end` ----------------------------------------------------------------------------

    def _begin(self, work: Callable[[], Awaitable[dict[str, Any]]], name: str) -> dict[str, Any]:
        assert self._goes_on is None, "one thing at a time"
        self._stop.clear()

        async def whole() -> dict[str, Any]:
            return await work()

        self._goes_on = asyncio.create_task(whole(), name=name)
        return {}

    async def end(self) -> dict[str, Any]:
        """End what goes on; what came of it."""
        assert self._goes_on is not None, "something was begun"
        self._stop.set()
        going, self._goes_on = self._goes_on, None
        return await going

    async def _wait(self, until: float) -> bool:
        """Wait until a moment; False if the end came first."""
        try:
            async with asyncio.timeout(max(0.0, until - monotonic())):
                await self._stop.wait()
        except TimeoutError:
            return True
        return False

    async def load(self, feeds: list[dict[str, Any]], seed: int) -> dict[str, Any]:
        """Publish batches of all feeds, each by its period, whether or not the last one has its receipt."""
        return self._begin(lambda: self._load([BusyFeed(**feed) for feed in feeds], seed), "load")

    async def _load(self, feeds: list[BusyFeed], seed: int) -> dict[str, Any]:
        """Gives how many rows were published, and what the values of each table must sum up to now."""
        done = dict.fromkeys((feed.table for feed in feeds), 0)
        late_s = [0.0]
        began = monotonic()

        async def go_on(feed: BusyFeed) -> None:
            if feed.table not in self._values:
                self._values[feed.table] = first_rows(feed.keys, seed, feed.table)["V"]
                self._draws[feed.table] = generator(seed, "bench/warehouse/load", feed.table)
            values, draw = self._values[feed.table], self._draws[feed.table]
            waiting: set[asyncio.Task[Any]] = set()
            due = monotonic()
            while await self._wait(due):
                late_s.append(monotonic() - due)
                due = max(due + feed.period_s, monotonic() - 1.0)  # what a second could not make up for is left out
                keys, new = draw.integers(feed.keys, size=feed.batch), draw.random(feed.batch)
                values[keys] = new  # of several with one key the last one holds, as in the table
                task = asyncio.create_task(self.client.publish(feed.table, rows(keys, new)), name="publish")
                waiting.add(task)
                task.add_done_callback(waiting.discard)
                done[feed.table] += feed.batch
                if len(waiting) > IN_FLIGHT:
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*waiting)

        async with asyncio.TaskGroup() as tasks:
            for feed in feeds:
                tasks.create_task(go_on(feed), name=feed.table)
        return {
            "seconds": monotonic() - began,
            "rows": done,
            "sums": {feed.table: float(self._values[feed.table].sum()) for feed in feeds},
            "late_p99_s": float(np.quantile(late_s, 0.99)),
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

    async def hear(self) -> dict[str, Any]:
        """Subscribe to the newest push, and note the age of each as it comes."""
        ready = asyncio.Event()
        told = self._begin(lambda: self._hear(ready), "hear")
        await ready.wait()
        return told

    async def _hear(self, ready: asyncio.Event) -> dict[str, Any]:
        ages: list[int] = []
        async with self.client.subscribe(NEWEST, overflow="block") as newest:

            async def note() -> None:
                async for event in newest:
                    now = monotonic_ns()
                    if isinstance(event, Change):
                        ages.append(now - int(event.answer))

            noting = asyncio.create_task(note(), name="note")
            ready.set()
            await self._stop.wait()
            await self.client.sync()
            await asyncio.sleep(0)
        await noting
        return {"ms": [age / 1e6 for age in ages]}

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

    async def spin(self, share: float, nice: int) -> dict[str, Any]:
        """Take a share of a processor, as nice as that."""
        os.nice(nice - os.nice(0))
        return self._begin(lambda: asyncio.to_thread(self._spin, share), "spin")

    def _spin(self, share: float) -> dict[str, Any]:
        began, used = perf_counter(), thread_time()
        while not self._stop.is_set():
            due = used + share * (perf_counter() - began)  # of CPU, so that time lost to others is made up for
            if thread_time() >= due:
                sleep(_SPIN_S)
        return {"cpu_s": thread_time() - used}

    # -- what is over when it is answered ----------------------------------------------------------------------

    async def fill(self, table: str, keys: int, seed: int) -> dict[str, Any]:
        """Publish the rows that a table begins with."""
        columns = first_rows(keys, seed, table)
        began = perf_counter()
        for start in range(0, keys, _FILL_BATCH):
            await self.client.publish(
                table, {name: column[start : start + _FILL_BATCH] for name, column in columns.items()}
            )
        return {"seconds": perf_counter() - began, "sum": float(columns["V"].sum())}

    async def push(self, rate: float, seconds: float) -> dict[str, Any]:
        """Publish single rows, each when it is due, which say when they were sent."""
        due = monotonic()
        end = due + seconds
        async with asyncio.TaskGroup() as tasks:
            while due < end:
                await asyncio.sleep(max(0.0, due - monotonic()))
                due = max(due + 1 / rate, monotonic() - 1.0)
                row = {"ID": 1, "X": 50.0, "SENT": monotonic_ns()}
                tasks.create_task(self.client.publish(PUSHES, row), name="push")
        return {}

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


async def main(client: type[WarehouseBenchClient] = WarehouseBenchClient) -> None:
    """Serve until standard input ends."""
    worker = client()
    try:
        await serve({name: getattr(worker, name) for name in worker.answered})
    finally:
        await worker.close()


if __name__ == "__main__":
    asyncio.run(main())
