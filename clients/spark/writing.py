"""Rows from Spark into a table; a task that runs again is applied once.

A task's rows go in changes of up to 50,000. Who sends a change, and its number, follow from what is written and not
from who writes it:

    publisher   the write (or the streaming query), the partition, and the lane: every 32 changes the next one
    number      the micro-batch, the place in the lane, and 26 bits of a digest of all rows of the task so far

So a task that was killed, or runs twice (speculation), or a micro-batch that is done again after a restart gives the
same numbers for the same rows, and gets the receipts of the first time. Rows that came in another order have other
digests: the server has no receipt for them, and the rest of that task is applied under a publisher of its own. No row
is lost then, but some are applied twice.

The server keeps a publisher's last 64 receipts. A lane has 32, so those of the present micro-batch are always there.

When what computes the rows fails, Spark only closes its end of the worker's connection, which looks like the end of the
rows (Arrow needs no mark there). A last change that is shorter than it will be in the next attempt would be applied
besides: so before the last change the connection itself is asked (`SparkInput`).
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import stat
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # the same
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from hullcast.clients.spark.schema import TableColumns, as_sent, columns_of
from hullcast.network.wire.errors import ConnectionLost, InvariantBroken, RetryTooOld, Superseded, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from pyspark.sql.types import StructType

    from hullcast.clients.sdk.client import Client, Receipt
    from hullcast.clients.spark.options import ServerAccess
    from hullcast.network.wire.containers import Nan

#: Rows, and about the bytes, of one change.
CHANGE_ROWS, CHANGE_BYTES = 50_000, 16 << 20
#: Changes of a task without a receipt.
ON_THE_WAY = 4
LANE = 32
_LANE_BITS, _DIGEST_BITS = 6, 26
_BATCHES = 1 << (63 - _LANE_BITS - _DIGEST_BITS)

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go, and what their columns mean."""

    access: ServerAccess
    table: TableColumns
    deleted: str | None  # the column that says which rows to delete
    nan: Nan


@dataclass
class TaskWritten(WriterCommitMessage):
    """What a task wrote."""

    rows: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class RowChange:
    """Rows to publish or keys to delete, as one change."""

    rows: Any  # a RecordBatch, or None
    keys: Any  # an Array, or None
    digest: int

    def __len__(self) -> int:
        """The number of updates."""
        return len(self.keys) if self.rows is None else self.rows.num_rows


class Numbering:
    """Publishers and numbers of one task's changes, as the module says."""

    def __init__(self, write: bytes, partition: int, batch: int) -> None:
        if not 0 <= batch < _BATCHES:
            raise InvariantBroken(f"micro-batch {batch} has no number")
        self._write, self._partition, self._batch = write, partition, batch

    def __str__(self) -> str:
        return f"partition {self._partition} of micro-batch {self._batch}"

    def publisher(self, lane: int, attempt: int = -1) -> bytes:
        """Who sends the changes of a lane. An attempt has its own, where its rows differ from an earlier one's."""
        text = f"spark {self._partition} {lane} {attempt}".encode()
        return blake2b(text, key=self._write, digest_size=16).digest()

    def number(self, place: int, digest: int) -> int:
        """The number of a change of this micro-batch, in its lane."""
        return (((self._batch << _LANE_BITS) | (place + 1)) << _DIGEST_BITS) | digest


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: each task is published by itself; the job as a whole is not atomic."""

    def __init__(self, target: Target, write: bytes) -> None:
        self._target, self._write = target, write

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of one partition, in a worker."""
        task = _task()
        return asyncio.run(publish(self._target, Numbering(self._write, task.partitionId(), 0), task, iterator))


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: the same for each micro-batch; the query's id is in its checkpoint, so it outlives restarts."""

    def __init__(self, access: ServerAccess, table: str, schema: StructType, deleted: str | None, nan: Nan) -> None:
        self._access, self._table, self._schema = access, table, schema
        self._deleted, self._nan = deleted, nan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of one partition of a micro-batch, in a worker."""
        task = _task()
        query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise InvariantBroken(f"Spark gave a streaming task neither {QUERY_ID} nor {BATCH_ID}")
        name = blake2b(f"{query} {self._table}".encode(), digest_size=16).digest()
        return asyncio.run(self._publish(Numbering(name, task.partitionId(), int(batch)), task, iterator))

    async def _publish(self, numbering: Numbering, task: TaskContext, batches: Iterator[pa.RecordBatch]) -> TaskWritten:
        async with self._access.client() as client:
            table = await columns_of(client, self._table)
        table.check_written(self._schema, self._deleted)
        return await publish(Target(self._access, table, self._deleted, self._nan), numbering, task, batches)


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise InvariantBroken("rows are written in Spark's tasks only")
    return task


async def publish(
    target: Target, numbering: Numbering, task: TaskContext, batches: Iterator[pa.RecordBatch]
) -> TaskWritten:
    """Publish a task's rows; on the server's disk when it returns."""
    rows = SparkInput(batches)
    async with target.access.client() as client:
        sending = Sending(client, target, numbering, task.taskAttemptId())
        async for change in changes(target, rows):
            await sending.put(change)
        await sending.settle()
    return TaskWritten(sending.rows, sending.last_seq)


class Sending:
    """A task's changes on their way, a few at once, in order.

    S1  changes with other rows than an earlier attempt's (Superseded) are sent again, in order, before any later one.
    """

    def __init__(self, client: Client, target: Target, numbering: Numbering, attempt: int) -> None:
        self.rows = self.last_seq = 0
        self._client, self._target, self._numbering, self._attempt = client, target, numbering, attempt
        self._on_the_way: deque[tuple[RowChange, asyncio.Task[Receipt]]] = deque()
        self._place = 0  # of the next change
        self._differs = False  # from what an earlier attempt sent

    async def put(self, change: RowChange) -> None:
        """Send a change; waits while enough are under way."""
        if self._place % LANE == 0:
            await self.settle()  # a publisher's changes are applied in order, but not those of two
        while len(self._on_the_way) >= ON_THE_WAY:
            await self._take()
        self._send(change)

    async def settle(self) -> None:
        """Wait until every change has its receipt."""
        while self._on_the_way:
            await self._take()

    def _send(self, change: RowChange) -> None:
        lane, place = divmod(self._place, LANE)
        self._place += 1
        publisher = self._numbering.publisher(lane, self._attempt if self._differs else -1)
        number = self._numbering.number(place, change.digest)
        target = self._target
        sent = self._client.change_once(
            publisher, number, target.table.name, rows=change.rows, keys=change.keys, nan=target.nan
        )
        self._on_the_way.append((change, asyncio.create_task(sent, name=f"change {self._place}")))

    async def _take(self) -> None:
        change, sent = self._on_the_way.popleft()
        try:
            receipt = await sent
        except Superseded:
            if self._differs:
                raise
            await self._send_otherwise(change)
            return
        except BaseException as error:
            for _, other in self._on_the_way:
                other.cancel()
            await asyncio.gather(*(other for _, other in self._on_the_way), return_exceptions=True)
            self._on_the_way.clear()
            if isinstance(error, RetryTooOld):
                raise UsageError(
                    f"{self._numbering} was written to {self._target.table.name} so long ago that the server no longer "
                    "knows which of its rows it has, and nothing was written now. To write them again, start the query "
                    "with a new checkpoint"
                ) from error
            raise
        self.rows += len(change)
        self.last_seq = max(self.last_seq, receipt.seq)

    async def _send_otherwise(self, first: RowChange) -> None:
        """An earlier attempt sent other rows from here on: send ours as a publisher of our own, in order (S1)."""
        behind = list(self._on_the_way)
        self._on_the_way.clear()
        await asyncio.gather(*(sent for _, sent in behind), return_exceptions=True)
        self._differs = True
        self._place = LANE * -(-self._place // LANE)  # its own lanes
        for change in (first, *(change for change, _ in behind)):
            await self.put(change)


class SparkInput:
    """A task's rows, as Spark sends them over a connection: `check` tells their end from a connection that ended."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._open = _connections() - _half_closed(_connections())

    async def next(self) -> pa.RecordBatch | None:
        """The next rows; waits in a thread, so that the client's connection stays alive meanwhile."""
        return await asyncio.to_thread(next, self._batches, None)

    def check(self) -> None:
        """ConnectionLost if Spark closed its end, as it does when what computes the rows has failed."""
        if _half_closed(self._open):
            raise ConnectionLost("the task that computes these rows has failed; Spark says why")


def _connections() -> set[int]:
    """The connections of this process to others on this host, as Spark's to its Python workers are."""
    found = set()
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as one:
                    peer = one.getpeername()
                if not isinstance(peer, tuple) or peer[0] in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
                    found.add(int(name))
    return found


def _half_closed(connections: set[int]) -> set[int]:
    """Those whose other end will send nothing more. Only Linux says so; elsewhere none."""
    closed = getattr(select, "POLLRDHUP", 0)
    poll = select.poll()
    for one in connections:
        poll.register(one, closed)
    return {one for one, events in poll.poll(0) if events & closed}


async def changes(target: Target, batches: SparkInput) -> AsyncIterator[RowChange]:
    """The rows of a task as changes."""
    digest = blake2b(digest_size=8)
    async for batch in _pieces(batches):
        for rows, keys in split(as_sent(batch, target.table, target.deleted), target.table.key, target.deleted):
            digest.update(b"rows" if keys is None else b"keys")
            digest.update((rows if keys is None else pa.record_batch([keys], names=["keys"])).serialize())
            yield RowChange(rows, keys, int.from_bytes(digest.copy().digest()) >> (64 - _DIGEST_BITS))


async def _pieces(batches: SparkInput) -> AsyncIterator[pa.RecordBatch]:
    """Rows in batches of CHANGE_ROWS, or fewer of very wide ones."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    while (batch := await batches.next()) is not None:
        while batch.num_rows:
            most = max(1, min(CHANGE_ROWS, CHANGE_BYTES * batch.num_rows // max(1, batch.nbytes)))
            part = batch.slice(0, max(1, min(most, CHANGE_ROWS - rows)))
            held.append(part)
            rows, size = rows + part.num_rows, size + part.nbytes
            batch = batch.slice(part.num_rows)
            if rows >= CHANGE_ROWS or size >= CHANGE_BYTES:
                yield _joined(held)
                held, rows, size = [], 0, 0
    batches.check()
    if held:
        yield _joined(held)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def split(batch: pa.RecordBatch, key: str, deleted: str | None) -> Iterator[tuple[Any, Any]]:
    """Rows to publish and keys to delete, in an order that gives what the rows one by one would give.

    Deletes come after the rows around them, for they concern other keys. Where a key is both written and deleted, the
    batch is cut between the two.
    """
    if deleted is None:
        yield batch, None
        return
    goes = pc.fill_null(batch.column(deleted), False)
    rows = batch.drop_columns([deleted])
    begin = 0
    for end in (*_cuts(batch.column(key), goes), batch.num_rows):
        part, marks = rows.slice(begin, end - begin), goes.slice(begin, end - begin)
        kept = part.filter(pc.invert(marks))
        gone = part.column(key).filter(marks)
        if kept.num_rows:
            yield kept, None
        if len(gone):
            yield None, gone
        begin = end


def _cuts(keys: pa.Array, goes: pa.Array) -> list[int]:
    """The rows before which to cut, so that no part both writes and deletes a key."""
    both = pc.and_(pc.is_in(keys, keys.filter(goes)), pc.is_in(keys, keys.filter(pc.invert(goes))))
    places = pc.indices_nonzero(both)
    cuts: list[int] = []
    seen: dict[Any, bool] = {}
    doubtful = zip(places.to_pylist(), keys.take(places).to_pylist(), goes.take(places).to_pylist(), strict=True)
    for row, key, mark in doubtful:  # only rows whose key is both written and deleted in this batch
        if seen.get(key, mark) != mark:
            cuts.append(row)
            seen.clear()
        seen[key] = mark
    return cuts
