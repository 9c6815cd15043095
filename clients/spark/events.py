"""The events of a subscription as a stream of Spark's.

The subscription lives in the process on the driver that Spark keeps for the stream's source. An offset holds a resume
token, so that a query which is started again goes on where its checkpoint is, with the events that the server has. What
it no longer has in memory is replayed from its change history (replaying.py).

    _seq   _event     the answer's columns
    7      snapshot   the answer to begin with. Of sets and rows: NULLs, and `entered` rows of the same _seq follow
    9      change     the new answer, of a single value
    9      left       of sets and rows: a row that went, or was there before it changed
    9      entered    of sets and rows: a row that came, or is there after it changed
    12     resync     as snapshot: events were lost, or a sum was recomputed; forget what was before
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
from pyspark.sql.datasource import SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import LongType, StringType, StructField, StructType

from hullcast.broker.sql.subscription import ParsedQuery, parse_subscription
from hullcast.broker.tables.schema import Column, ColumnType, StreamTerms, Table, fold
from hullcast.clients.sdk.blocking import LoopThread
from hullcast.clients.sdk.token import read_token
from hullcast.clients.spark.options import EARLIEST, LATEST
from hullcast.clients.spark.replaying import (
    NotReplayable,
    ReplayedSubscription,
    Rows,
    advanced,
    change_rows,
    created_of,
    rebuilt,
    spans_of,
    whole_answer,
)
from hullcast.clients.spark.schema import SEQ_COLUMN, SPARK_TYPES, arrow_schema
from hullcast.network.answers.events import Change, Resync
from hullcast.network.wire.errors import BadSetting, UnknownTable, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hullcast.clients.sdk.client import Client
    from hullcast.clients.sdk.subscription import Subscription
    from hullcast.clients.spark.options import ServerAccess

EVENT_COLUMN = "_event"
#: Events of one micro-batch; they pass through the driver.
MOST_EVENTS = 100_000
#: Updates without an event after which an offset moves all the same, so that its token does not grow too old.
STALE_UPDATES = 10_000


def parsed(sql: str, tables: dict[str, Any]) -> ParsedQuery:
    """A subscription, understood here as the server does, whose tables these are (as `Client.tables` gives them)."""
    catalog = {}
    for name, facts in tables.items():
        names = list(facts["columns"])
        columns = tuple(Column(one, ColumnType(kind)) for one, kind in facts["columns"].items())
        terms = StreamTerms() if "stream" in facts else None
        catalog[fold(name)] = Table(name, columns, names.index(facts["key"]), stream=terms)
    query = parse_subscription(sql, catalog)
    streams = [table.name for table in query.tables if table.stream is not None]
    if streams:
        reason = "subscriptions to streams cannot be read here; read the stream as a table, or its changes"
        raise UsageError(f"{streams[0]} is a stream: {reason}")
    return query


def answer_fields(query: ParsedQuery) -> list[StructField]:
    """The columns of a subscription's answer as Spark's."""
    shape = query.shape
    if shape.kind.name in ("COUNT", "AVG"):
        types = ["INTEGER" if shape.kind.name == "COUNT" else "REAL"]
    else:
        refs = shape.projection if shape.y is None else (shape.y,)
        types = [query.tables[ref.side].columns[ref.column].type.value for ref in refs]
    return [StructField(name, SPARK_TYPES[kind]) for name, kind in zip(query.columns, types, strict=True)]


@dataclass(frozen=True, slots=True)
class EventsWanted:
    """A subscription, and what its events look like."""

    access: ServerAccess
    sql: str
    parameters: tuple[Any, ...]
    fail_on_data_loss: bool

    async def schema(self) -> StructType:
        """The columns of its events."""
        async with self.access.client() as client:
            query = await self.query(client)
            await client.explain(self.sql, *self.parameters)  # the server's word on rights and parameters
        before = [StructField(SEQ_COLUMN, LongType(), False), StructField(EVENT_COLUMN, StringType(), False)]
        return StructType([*before, *answer_fields(query)])

    async def opened(self, client: Client, token: str | None) -> Subscription:
        """The subscription, from a token on; no event of it is left out for a newer one."""
        return await client.subscribe(self.sql, *self.parameters, overflow="block", buffer=1 << 16, resume=token)

    async def query(self, client: Client) -> ParsedQuery:
        """What it asks, of the tables there are now."""
        return parsed(self.sql, await client.tables())

    async def rebuilt(self, client: Client, start: dict[str, Any]) -> ReplayedSubscription:
        """The subscription as of an offset, out of the history; NotReplayable if that is not possible."""
        if start["seq"] < 0:
            raise NotReplayable("the resume token was made after events were lost")
        try:
            query = await self.query(client)
        except UnknownTable as error:
            raise NotReplayable(str(error)) from error
        return await rebuilt(client, query, self.parameters, start["seq"], start.get("created"))

    async def resynced(self, client: Client, start: dict[str, Any], why: NotReplayable) -> tuple[Rows, Subscription]:
        """The answer now, and the subscription from there on; UsageError if events must not be left out."""
        if self.fail_on_data_loss:
            raise UsageError(
                f"events of `{self.sql}` after seq {start['seq']} are lost: {why}. Begin again with a new checkpoint, "
                'or go on from the current answer with .option("failOnDataLoss", "false")'
            ) from None
        sub = await self.opened(client, None)
        return whole_answer(sub.seq, "resync", sub.answer), sub


def is_gap(event: Change | Resync) -> bool:
    """Whether events are missing before this one. A sum that was recomputed follows its events."""
    return isinstance(event, Resync) and event.reason != "sum"


def rows_of(event: Change | Resync) -> Rows:
    """An event as rows."""
    if isinstance(event, Resync):
        return whole_answer(event.seq, "resync", event.answer)
    return change_rows(event.seq, event)


async def taken(sub: Subscription, through: int, most: int | None = None) -> list[Change | Resync]:
    """The events up to a sequence number that the subscription will reach, and none behind it. With `most` at most so
    many, and all that are here. Behind a gap there is nothing to take."""
    events: list[Change | Resync] = []
    while most is None or len(events) < most:
        event = sub.take_nowait()
        if event is None:
            if sub.seq >= through:
                break
            event = await anext(sub)
        if not isinstance(event, Change | Resync):
            continue
        if is_gap(event):
            return [*events, event]
        if most is None and event.seq > through:
            break
        events.append(event)
    return events


class EventReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """`readStream` with a `subscription`.

    An offset has "seq": the events up to here were given; "token": where to go on, or None if only the history says;
    "created": of which tables (`rebuilt`). Where a stream begins also "first": the answer, or "snapshot": it is the one
    at "seq".
    """

    def __init__(self, question: EventsWanted, schema: StructType, starting: int | str, resume: str | None) -> None:
        self._question, self._schema, self._starting, self._resume = question, schema, starting, resume
        self._thread: LoopThread | None = None
        self._client: Client | None = None
        self._sub: Subscription | None = None
        self._stands: dict[str, Any] | None = None  # the offset that the subscription is at
        self._replay: ReplayedSubscription | None = None  # on the way from a beginning long ago to the answer now
        self._once = False  # trigger(availableNow=True): what there is when it begins, and no more
        self._target: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where the stream begins: the answer now, that as of an update, or a token's."""
        return self._loop().wait(self._begin())

    async def _begin(self) -> dict[str, Any]:
        client = await self._connected()
        query = await self._question.query(client)
        if self._resume is not None:
            position = read_token(self._resume, self._question.sql, self._question.parameters).position
            created = await created_of(client, query)
            return {"seq": -1 if position is None else position, "token": self._resume, "created": created}
        if self._starting == LATEST:
            created = await created_of(client, query)
            sub = await self._subscribed(None)
            first = [[seq, event, list(values)] for seq, event, values in whole_answer(sub.seq, "snapshot", sub.answer)]
            self._stands = self._offset(sub, created) | {"first": json.dumps(first, default=_text)}
            return self._stands
        spans = (await spans_of(client, query)).values()
        last = min(span.last for span in spans)
        if self._starting == EARLIEST:
            seq = max(span.first for span in spans) - 1
        else:
            seq = int(self._starting) or max(span.created for span in spans)  # 0: from the beginning
        if seq > last:
            raise BadSetting("option startingSeq", seq, f"the last update on the server's disk is {last}")
        return {"seq": seq, "token": None, "created": [span.created for span in spans], "snapshot": True}

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there, and no more."""
        self._once = True

    def read(self, start: dict[str, Any]) -> tuple[Iterator[Any], dict[str, Any]]:
        """What came after an offset, and the offset after that."""
        if self._target is not None and start["seq"] >= self._target and start["token"] is not None:
            return iter(()), start
        rows, end = self._loop().wait(self._read(start))
        return iter([self._batch(rows)] if rows else []), end

    async def _read(self, start: dict[str, Any]) -> tuple[Rows, dict[str, Any]]:
        client = await self._connected()
        reached = await client.sync()
        if self._once and self._target is None:
            self._target = reached
        if start["token"] is None:
            return await self._read_history(client, start, reached)
        if self._sub is None or self._stands != start:
            await self._subscribed(start["token"])
        assert self._sub is not None
        events = await taken(self._sub, reached, MOST_EVENTS)
        end = self._offset(self._sub, start.get("created"))
        if any(map(is_gap, events)):
            return await self._read_history(client, start, reached)
        if len(events) == MOST_EVENTS:
            end["seq"] = events[-1].seq
        rows = first_rows(start) + [row for event in events for row in rows_of(event)]
        if not rows and end["seq"] < start["seq"] + STALE_UPDATES:
            self._stands = start
            return [], start
        self._stands = end
        return rows, end

    async def _read_history(self, client: Client, start: dict[str, Any], reached: int) -> tuple[Rows, dict[str, Any]]:
        """The events that the server has on its disk only, and then a live subscription as of the last of them."""
        await self._leave()
        replay, self._replay = self._replay, None
        rows = first_rows(start)
        try:
            if replay is None or replay.seq != start["seq"] or "snapshot" in start:
                replay = await self._question.rebuilt(client, start)
            rows += await replayed(client, replay, start, reached, MOST_EVENTS)
            if replay.seq < reached:
                self._replay = replay
                return rows, {"seq": replay.seq, "token": None, "created": start.get("created")}
            sub = await self._subscribed(None)
            end = self._offset(sub, start.get("created"))
            rows += await advanced(client, replay, end["seq"])
        except NotReplayable as why:
            await self._leave()
            resync, self._sub = await self._question.resynced(client, start, why)
            rows, end = first_rows(start) + resync, self._offset(self._sub, None)
            end["created"] = await created_of(client, await self._question.query(client))
        self._stands = end
        return rows, end

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[Any]:
        """The same rows once more, in a worker: after a failure Spark asks for a range again."""
        rows = asyncio.run(self._again(start, end["seq"]))
        return iter([self._batch(rows)] if rows else [])

    async def _again(self, start: dict[str, Any], through: int) -> Rows:
        async with self._question.access.client() as client:
            if start["token"] is not None:
                sub = await self._question.opened(client, start["token"])
                events = await taken(sub, through)
                await sub.close()
                if not any(map(is_gap, events)):
                    return first_rows(start) + [row for event in events for row in rows_of(event)]
            try:
                replay = await self._question.rebuilt(client, start)
                return first_rows(start) + await replayed(client, replay, start, through, None)
            except NotReplayable as why:
                rows, _ = await self._question.resynced(client, start, why)
                return first_rows(start) + rows

    def _batch(self, rows: Rows) -> pa.RecordBatch:
        schema = arrow_schema(self._schema.fields)
        width = len(schema) - 2
        columns: list[list[Any]] = [[], [], *([] for _ in range(width))]
        for seq, event, values in rows:
            columns[0].append(seq)
            columns[1].append(event)
            for column, value in zip(columns[2:], values or (None,) * width, strict=True):
                column.append(value)
        arrays = [_array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    async def _connected(self) -> Client:
        if self._client is None:
            self._client = await self._question.access.client()
        return self._client

    async def _subscribed(self, token: str | None) -> Subscription:
        await self._leave()
        self._sub = await self._question.opened(await self._connected(), token)
        return self._sub

    async def _leave(self) -> None:
        sub, self._sub, self._stands = self._sub, None, None
        if sub is not None:
            await sub.close()

    def _offset(self, sub: Subscription, created: list[int] | None) -> dict[str, Any]:
        return {"seq": sub.seq, "token": sub.token, "created": created}

    def _loop(self) -> LoopThread:
        if self._thread is None:
            self._thread = LoopThread("hullcast events")
        return self._thread

    def __getstate__(self) -> dict[str, Any]:
        """What a worker needs to read a range again."""
        return {"_question": self._question, "_schema": self._schema}


async def replayed(
    client: Client, replay: ReplayedSubscription, start: dict[str, Any], through: int, most: int | None
) -> Rows:
    """What the history has behind an offset, where the replay is; with the answer there, if a stream begins so."""
    first = whole_answer(start["seq"], "snapshot", replay.answer) if "snapshot" in start else []
    return first + await advanced(client, replay, through, most)


def first_rows(start: dict[str, Any]) -> Rows:
    """The answer that a stream begins with, where an offset has one."""
    return [(seq, event, tuple(values)) for seq, event, values in json.loads(start.get("first", "[]"))]


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.item()  # a NumPy scalar


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        values = [datetime.fromisoformat(value) if isinstance(value, str) else value for value in values]
    elif pa.types.is_integer(kind):
        values = [None if value is None else int(value) for value in values]
    return pa.array(values, kind)
