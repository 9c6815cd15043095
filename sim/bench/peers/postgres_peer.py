"""PostgreSQL: NOTIFY says that a table changed, and one query answers all ranges of a client."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np

from hullcast.clients.processes.worker import WorkerFailed
from hullcast.network.wire.arrays import Floats
from hullcast.sim.bench.peers.interface import (
    LOOK_S,
    Facts,
    Part,
    Seen,
    ServerPeer,
    executable,
    free_port,
    importable,
)
from hullcast.sim.bench.peers.sending import BatchingPublisher
from hullcast.sim.bench.peers.workload import Call, Job

PLACES = tuple(f"/usr/lib/postgresql/{version}/bin" for version in range(20, 11, -1))
NOTIFYING = (
    "WITH APPLIED AS (INSERT INTO STOCK SELECT * FROM unnest(%b::bigint[], %b::float8[], %b::float8[]) "
    "ON CONFLICT (ID) DO UPDATE SET RISK = excluded.RISK, PER = excluded.PER) SELECT pg_notify('stock', %s)"
)
ALL_ANSWERS = (
    "SELECT A.LEAST FROM RANGES R, LATERAL (SELECT MIN(PER) AS LEAST FROM STOCK WHERE RISK BETWEEN R.LOW AND R.HIGH) A "
    "WHERE R.CONNECTION = %s ORDER BY R.I"
)
TABLES = (
    "CREATE TABLE STOCK (ID BIGINT PRIMARY KEY, RISK FLOAT8, PER FLOAT8)",
    "CREATE INDEX ON STOCK (RISK, PER)",
    "CREATE TABLE RANGES (CONNECTION INT, I INT, LOW FLOAT8, HIGH FLOAT8, PRIMARY KEY (CONNECTION, I))",
)


def _user() -> str | None:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    with suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    return None


def _hand_over(data: Path, user: str | None) -> None:
    """Make the folder, for that user to write in."""
    data.mkdir()
    if user:
        data.parent.chmod(0o711)
        shutil.chown(data, user)


async def _postgres(facts: Facts) -> Any:
    import psycopg

    for _ in range(100):
        with suppress(psycopg.OperationalError):  # it accepts connections some moments before it takes them
            return await psycopg.AsyncConnection.connect(facts["conninfo"], autocommit=True)
        await asyncio.sleep(0.05)
    raise WorkerFailed("PostgreSQL takes no connections")


class PostgresPublisher(BatchingPublisher):
    """Each call is one statement; those that wait share a pipeline, and a commit."""

    def __init__(self, facts: Facts, progress: Seen) -> None:
        super().__init__(None)  # a slow client asks less often: nothing piles up
        self._facts = facts
        self._connection: Any = None

    async def connect(self) -> None:
        """Connect."""
        self._connection = await _postgres(self._facts)

    async def deliver(self, calls: Sequence[Call]) -> None:
        """The number of the last update goes with each notification."""
        async with self._connection.pipeline():
            for call in calls:
                rows = call.rows
                last = len(rows) - 1 - np.unique(rows.ids[::-1], return_index=True)[1]  # of each ID in the call
                columns = (rows.ids[last].tolist(), rows.risk[last].tolist(), rows.per[last].tolist())
                await self._connection.execute(NOTIFYING, (*columns, str(call.end)))

    async def disconnect(self) -> None:
        """Hang up."""
        if self._connection is not None:
            await self._connection.close()


class PostgresSubscriber:
    """Two connections for each of ours: one listens, one asks for all answers again when something has changed."""

    def __init__(self, facts: Facts, part: Part) -> None:
        self._facts, self._part = facts, part
        self._open: list[Any] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._answers: dict[int, Floats] = {}
        self._at = dict.fromkeys(part.connections, 0)
        self._when = 0

    async def open(self) -> None:
        """Connect, store the ranges, ask once."""
        job = self._part.job
        for number in self._part.connections:
            hearing, asking = await _postgres(self._facts), await _postgres(self._facts)
            self._open += [hearing, asking]
            which = job.part(number, self._part.total)
            columns = (job.low[which].tolist(), job.high[which].tolist())
            await asking.execute(
                "INSERT INTO RANGES SELECT %s, I, LOW, HIGH FROM unnest(%b::float8[], %b::float8[]) "
                "WITH ORDINALITY AS NEW (LOW, HIGH, I)",
                (number, *columns),
            )
            await hearing.execute("LISTEN stock")
            self._answers[number] = await _ask(asking, number)
            self._tasks.append(asyncio.create_task(self._follow(hearing, asking, number), name="postgres.follow"))

    async def _follow(self, hearing: Any, asking: Any, number: int) -> None:
        saw = self._part.progress.saw(number)
        while True:
            at = 0
            async for notification in hearing.notifies(stop_after=1):  # and all others that are here already
                at = int(notification.payload)
            answers = await _ask(asking, number)
            before, self._answers[number] = self._answers[number], answers
            self._when = monotonic_ns()
            if not np.array_equal(answers, before, equal_nan=True):
                self._part.sampler.heard(self._when, np.arange(self._at[number], at))
            self._at[number] = at
            saw(at)

    async def drained(self, published: int) -> int:
        """Wait until every connection has asked after the last update."""
        while min(self._at.values()) < published:
            for task in self._tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(LOOK_S)
        return self._when

    async def answers(self) -> list[Floats]:
        """Of each connection."""
        return [self._answers[number] for number in self._part.connections]

    async def close(self) -> None:
        """Hang up."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self._open:
            await connection.close()


async def _ask(connection: Any, number: int) -> Floats:
    cursor = await connection.execute(ALL_ANSWERS, (number,), binary=True)
    return np.array([answer for (answer,) in await cursor.fetchall()], np.float64)


class Postgres(ServerPeer):
    """A database cluster of its own, in the benchmark's folder."""

    name, title = "postgres", "PostgreSQL, NOTIFY + re-query"
    publisher, subscriber = PostgresPublisher, PostgresSubscriber

    def __init__(self) -> None:
        super().__init__("postgres")

    def missing(self) -> str:
        """It needs the server and its Python client, and a user that may run it."""
        if not (executable("postgres", *PLACES) and executable("initdb", *PLACES)):
            return "PostgreSQL is not installed (apt install postgresql)"
        if os.geteuid() == 0 and not _user():
            return "PostgreSQL does not run as root, and there is no user postgres here"
        return "" if importable("psycopg") else "psycopg is not installed (pip install 'hullcast[peers]')"

    def keeps(self, *, durable: bool) -> str:
        """A commit is synced unless told otherwise."""
        return "synced" if durable else "memory"

    async def start(self, folder: Path, job: Job, *, durable: bool) -> Facts:
        """Make the cluster, start it, load the rows."""
        data, port, user = folder / "postgres", free_port(), _user()
        _hand_over(data, user)
        made = await asyncio.create_subprocess_exec(
            *(executable("initdb", *PLACES), "-D", str(data), "-U", "bench", "-A", "trust", "--no-sync", "-E", "UTF8"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            user=user,
            cwd=data,
        )
        said, _ = await made.communicate()
        if made.returncode:
            raise WorkerFailed(f"initdb failed: {said.decode().strip().splitlines()[-1]}")
        words = [executable("postgres", *PLACES), "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", ""]
        for setting in ("max_connections=500", "shared_buffers=256MB", f"fsync={'on' if durable else 'off'}"):
            words += ["-c", setting]
        words += ["-c", f"synchronous_commit={'on' if durable else 'off'}"]
        await self._server.start(words, port, folder, user=user)
        facts = {"conninfo": f"host=127.0.0.1 port={port} user=bench dbname=postgres"}
        connection = await _postgres(facts)
        async with connection:
            for statement in TABLES:
                await connection.execute(statement)
            rows = job.start
            await connection.execute(NOTIFYING, (rows.ids.tolist(), rows.risk.tolist(), rows.per.tolist(), "0"))
            await connection.execute("ANALYZE STOCK")
        return facts
