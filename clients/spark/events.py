"""The events of a subscription as a stream of Spark's.

The subscription lives in the process on the driver that Spark keeps for the stream's source. An offset holds a resume
token, so that a query which is started again goes on where its checkpoint is, with the events that the server has.

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
from hullcast.broker.tables.schema import Column, ColumnType, Table, fold
from hullcast.clients.sdk.blocking import LoopThread
from hullcast.clients.spark.schema import SEQ_COLUMN, SPARK_TYPES, arrow_schema
from hullcast.network.answers.events import Change, Resync
from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hullcast.clients.sdk.client import Client
    from hullcast.clients.sdk.subscription import LiveSubscription
    from hullcast.clients.spark.options import Access

EVENT_COLUMN = "_event"
#: Events of one micro-batch; they pass through the driver.
MOST_EVENTS = 100_000
#: Updates without an event after which an offset moves all the same, so that its token does not grow too old.
STALE_UPDATES = 10_000

Rows = list[tuple[int, str, tuple[Any, ...]]]


def parsed(sql: str, tables: dict[str, Any]) -> ParsedQuery:
    """A subscription, understood here as the server does, whose tables these are (as `Client.tables` gives them)."""
    catalog = {}
    for name, facts in tables.items():
        names = list(facts["columns"])
        columns = tuple(Column(one, ColumnType(kind)) for one, kind in facts["columns"].items())
        catalog[fold(name)] = Table(name, columns, names.index(facts["key"]))
    return parse_subscription(sql, catalog)


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
class Question:
    """A subscription, and what its events look like."""

    access: Access
    sql: str
    parameters: tuple[Any, ...]
    fail_on_data_loss: bool

    async def schema(self) -> StructType:
        """The columns of its events."""
        async with self.access.client() as client:
            query = parsed(self.sql, await client.tables())
            await client.explain(self.sql, *self.parameters)  # the server's word on rights and parameters
        before = [StructField(SEQ_COLUMN, LongType(), False), StructField(EVENT_COLUMN, StringType(), False)]
        return StructType([*before, *answer_fields(query)])

    async def opened(self, client: Client, token: str | None) -> LiveSubscription:
        """The subscription, from a token on; no event of it is left out for a newer one."""
        return await client.subscribe(self.sql, *self.parameters, overflow="block", buffer=1 << 16, resume=token)

    def rows_of(self, event: Change | Resync, since: int) -> Rows:
        """An event as rows; UsageError if some are missing before it and that is not wanted."""
        if isinstance(event, Resync):
            if self.fail_on_data_loss and event.reason != "sum":
                why = "more came than can wait" if event.reason == "overflow" else "the server no longer has them"
                raise UsageError(
                    f"events of `{self.sql}` after seq {since} are lost: {why}. Begin again with a new checkpoint, or "
                    'go on from the current answer with .option("failOnDataLoss", "false")'
                )
            return whole_answer(event.seq, "resync", event.answer)
        if not (event.entered or event.left or event.changed):
            return [(event.seq, "change", (event.answer,))]
        left = [*event.left, *(before for before, _ in event.changed)]
        entered = [*event.entered, *(after for _, after in event.changed)]
        return [(event.seq, "left", _values(row)) for row in left] + [
            (event.seq, "entered", _values(row)) for row in entered
        ]


def whole_answer(seq: int, event: str, answer: Any) -> Rows:
    """An answer as rows: of a single value one; of a set or rows a mark, and then each."""
    if isinstance(answer, list | set | frozenset):
        return [(seq, event, ()), *((seq, "entered", _values(row)) for row in answer)]
    return [(seq, event, (answer,))]


def _values(row: Any) -> tuple[Any, ...]:
    return tuple(row) if isinstance(row, tuple) else (row,)


async def taken(sub: LiveSubscription, through: int, most: int) -> list[Change | Resync]:
    """The events up to a sequence number that the subscription will reach, at most so many."""
    events: list[Change | Resync] = []
    while len(events) < most:
        event = sub.take_nowait()
        if event is None:
            if sub.seq >= through:
                break
            event = await anext(sub)
        if isinstance(event, Change | Resync):
            events.append(event)
    return events


class EventReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """`readStream` with a `subscription`. An offset is {"seq": last event, "token": .., "first": the first answer}."""

    def __init__(self, question: Question, schema: StructType, resume: str | None) -> None:
        self._question, self._schema, self._resume = question, schema, resume
        self._thread: LoopThread | None = None
        self._client: Client | None = None
        self._sub: LiveSubscription | None = None
        self._stands: dict[str, Any] | None = None  # the offset that the subscription is at
        self._once = self._done = False  # trigger(availableNow=True): all that is there now, and no more

    def initialOffset(self) -> dict[str, Any]:
        """Where the stream begins: the answer now, or a token's."""
        return self._loop().wait(self._begin())

    async def _begin(self) -> dict[str, Any]:
        sub = await self._subscribed(self._resume)
        if self._resume is not None:
            return {"seq": 0, "token": self._resume}
        first = [[seq, event, list(values)] for seq, event, values in whole_answer(sub.seq, "snapshot", sub.answer)]
        self._stands = {"seq": sub.seq, "token": sub.token, "first": json.dumps(first, default=_text)}
        return self._stands

    def prepareForTriggerAvailableNow(self) -> None:
        """Read once what is there, and no more."""
        self._once = True

    def read(self, start: dict[str, Any]) -> tuple[Iterator[Any], dict[str, Any]]:
        """What came after an offset, and the offset after that."""
        if self._once and self._done:
            return iter(()), start
        rows, end = self._loop().wait(self._read(start))
        self._done = True
        return iter([self._batch(rows)] if rows else []), end

    async def _read(self, start: dict[str, Any]) -> tuple[Rows, dict[str, Any]]:
        if self._sub is None or self._stands != start:
            await self._subscribed(start["token"])
        assert self._sub is not None
        assert self._client is not None
        rows = first_rows(start)
        events = await taken(self._sub, await self._client.sync(), MOST_EVENTS)
        for event in events:
            rows += self._question.rows_of(event, start["seq"])
        seq = events[-1].seq if len(events) == MOST_EVENTS else self._sub.seq
        if not rows and seq < start["seq"] + STALE_UPDATES:
            self._stands = start
            return [], start
        self._stands = {"seq": seq, "token": self._sub.token}
        return rows, self._stands

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[Any]:
        """The same rows once more, in a worker: after a failure Spark asks for a range again."""
        rows = asyncio.run(self._again(start, end["seq"]))
        return iter([self._batch(rows)] if rows else [])

    async def _again(self, start: dict[str, Any], through: int) -> Rows:
        rows = first_rows(start)
        async with self._question.access.client() as client:
            sub = await self._question.opened(client, start["token"])
            for event in await taken(sub, through, MOST_EVENTS):
                if event.seq <= through or isinstance(event, Resync):
                    rows += self._question.rows_of(event, start["seq"])
        return rows

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

    async def _subscribed(self, token: str | None) -> LiveSubscription:
        if self._client is None:
            self._client = await self._question.access.client()
        if self._sub is not None:
            await self._sub.close()
        self._sub = await self._question.opened(self._client, token)
        return self._sub

    def _loop(self) -> LoopThread:
        if self._thread is None:
            self._thread = LoopThread("hullcast events")
        return self._thread

    def __getstate__(self) -> dict[str, Any]:
        """What a worker needs to read a range again."""
        return {"_question": self._question, "_schema": self._schema, "_resume": self._resume}


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
