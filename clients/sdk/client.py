"""The client: everything one can ask of a server, as coroutines."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self, get_args, overload

import numpy as np

from hullcast.clients.sdk.connecting import configure, seconds
from hullcast.clients.sdk.gathering import Gathering, Row, row_or_columns
from hullcast.clients.sdk.groups import SubscriptionGroup
from hullcast.clients.sdk.history import History, read_changes, read_table
from hullcast.clients.sdk.line import Line
from hullcast.clients.sdk.publisher import WINDOW_BYTES, Publisher
from hullcast.clients.sdk.publishing import Gate, PartlyPublished, Turn, counted_from, ranges, some_rows
from hullcast.clients.sdk.querying import GRACE_S, checked_query, read_portions, read_whole
from hullcast.clients.sdk.session import receipt_of
from hullcast.clients.sdk.subscription import Subscription
from hullcast.clients.sdk.subscriptions import Subscriptions
from hullcast.clients.sdk.token import read_token
from hullcast.clients.sdk.triggers import checked_trigger
from hullcast.network.wire import bodies
from hullcast.network.wire.errors import (
    BadFrame,
    BadParameter,
    BadSetting,
    ClientClosed,
    HullcastError,
    TableInUse,
    TimedOut,
)
from hullcast.network.wire.fields import ID_BYTES
from hullcast.network.wire.logs import logger
from hullcast.network.wire.value_columns import row_count
from hullcast.network.wire.values import KEYS_ONLY, condition_in, from_user, keys_to_column, rows_to_columns, scalars

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
    from pathlib import Path
    from typing import Literal, TypedDict, TypeVar, Unpack

    import zmq

    from hullcast.clients.sdk.connecting import Connection
    from hullcast.clients.sdk.history import ChangePart, TablePart
    from hullcast.network.answers.answers import Overflow
    from hullcast.network.answers.events import AnyEvent, Event, Progress, Snapshot
    from hullcast.network.answers.named import QueryRows
    from hullcast.network.link.dialer import DialerStatistics
    from hullcast.network.link.limits import LinkLimits
    from hullcast.network.wire.containers import Nan
    from hullcast.network.wire.value_columns import ValueColumns

    ChangeBody = bodies.Execute | bodies.Publish | bodies.Delete
    EventT = TypeVar("EventT")
    Callback = Callable[[EventT], Awaitable[None] | None]

    class SubscribeOptions(TypedDict, total=False):
        """The options of `subscribe` that do not decide which events there are."""

        overflow: Overflow | None
        buffer: int
        resume: str | None
        after: int | None
        when: str | Sequence[str] | None
        when_parameters: Sequence[object]
        every: float | str | None
        at_most_every: float | str | None
        timeout: float | None


log = logger(__name__)

#: Changes without a reply. The server remembers the receipts of a publisher's last 64: a retry must find its own.
CHANGES_WAITING = 32
CHANGES_WAITING_BYTES = 32 << 20
_NO_SUCH_KEY = f"no row has this key{KEYS_ONLY}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """A change is durable: its `updates` have the sequence numbers `first_seq` to `seq`.

    A row written is an update, and so is a key to delete, whether it was there or not; `deleted` counts those that were
    (None for other changes, and where the first reply was lost and the change sent again). If a change went in several
    pieces, changes of others may have numbers in between.
    """

    first_seq: int
    seq: int
    updates: int
    deleted: int | None = None


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """Counters since the client was opened, and its current state."""

    subscriptions: int
    groups: int
    seq: int
    resumes: int  # times all subscriptions were subscribed again
    retries: int  # requests sent again because the server was overloaded or not reachable
    waiting: int  # requests without a reply
    paused: bool  # nothing is read: a queue that blocks is full
    link: DialerStatistics


class Client:
    """A connection to a server, as `async with hullcast.connect(..)` gives it.

    It belongs to one event loop; without one, or from other threads, use `hullcast.connect_blocking`. When the
    connection is lost, the client connects again (if necessary to another node), subscribes again and repeats the
    requests that had no reply. A change is applied once, however often it was sent. A call without a reply within
    `timeout` seconds (the call's own, else the client's) raises TimedOut.

    For low latency call `gc.collect(); gc.freeze()` when everything is subscribed: with 100,000 subscriptions a full
    garbage collection stops the event loop for a noticeable time, and frees nothing.
    """

    def __init__(self, connection: Connection, context: zmq.Context[Any] | None = None) -> None:
        self.connection = connection
        self.name = connection.name
        self._line = Line(connection, context)
        self._publisher = os.urandom(16)
        self._next_change = 1
        self._gate = Gate(CHANGES_WAITING, CHANGES_WAITING_BYTES)
        self._gathering = Gathering(self._line, self._gate, self._publisher, self._number)
        self._state = "new"

    # --- opening and closing -------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def open(self, *, timeout: float | None = None) -> Self:  # noqa: ASYNC109
        """Connect. Raises ConnectionLost if no server or node answers in time."""
        if self._state != "new":
            raise BadSetting("client", self.name, "a client can be opened once")
        self._state = "open"
        try:
            await self._line.dial(_timeout(timeout))
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """End all subscriptions and disconnect. Closing twice is fine."""
        if self._state != "closed":
            self._state = "closed"
            self._end_subscriptions()
            self._gathering.close(ClientClosed(self.name))
            await self._line.hang_up()

    async def drain(self) -> None:
        """Unsubscribe, hand queued events to callbacks and iterators, wait for pending calls, then disconnect.

        Iterators in other tasks end after the queued events. This waits for callbacks, not for iterators.
        """
        self._check_open()
        self._end_subscriptions()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._line.timeout_s):
                await self._gathering.settle()
        await self._line.settle()
        await self.close()

    def _end_subscriptions(self) -> None:
        for owner in list(self._line.owners.values()):
            owner.drain()

    # --- changes and questions -----------------------------------------------------------------------------

    async def execute(self, sql: str, *, timeout: float | None = None) -> Receipt:  # noqa: ASYNC109
        """Run CREATE TABLE, DROP TABLE, CREATE VIEW or DROP VIEW, with IF [NOT] EXISTS if you like.

        CREATE VIEW returns when the view is ready to be queried, which takes as long as reading its tables.
        """
        text, timeout_s = _sql(sql), _timeout(timeout)

        async def once() -> Receipt:
            with self._gate.turn() as turn:
                return await self._change(partial(bodies.Execute, text, self._publisher), "execute", timeout_s, turn)

        try:
            return await once()
        except TableInUse:  # perhaps by a subscription given up before its reply came, which has been left since
            return await once()

    async def publish(
        self,
        table: str,
        rows: object,
        *,
        nan: Nan = "refuse",
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Receipt:
        """Insert or change rows, in order. When this returns, they are on the server's disk.

        `rows` is a dict, a list of dicts, a dict of columns (lists, NumPy arrays), a pyarrow Table or a pandas
        DataFrame. A column that is not given keeps its value. If one row is bad, none is applied; that holds for up to
        100,000 rows. More are sent in pieces of 50,000 rows, each applied as a whole or not at all; if a piece fails,
        PartlyPublished says how many rows are durable. A piece above 64 MiB raises TooLarge: publish very wide rows in
        smaller parts. With `nan="null"`, NaN is stored as NULL; otherwise it is refused. `timeout` is for each piece.
        """
        name = str(table)
        found = row_or_columns(rows, name, nan)
        if isinstance(found, Row):
            return await self._publish_row(name, found, nan, _timeout(timeout))
        columns, absent = found

        def piece(which: slice, number: int) -> ChangeBody:
            return bodies.Publish(name, *some_rows(columns, absent, which), self._publisher, number)

        return await self._change_in_pieces(columns, piece, name, f"publish to {name}", _timeout(timeout))

    def publisher(
        self,
        table: str,
        *,
        nan: Nan = "refuse",
        window_bytes: int = WINDOW_BYTES,
        on_error: Callable[[dict[str, Any], Exception], object] | None = None,
    ) -> Publisher:
        """A publisher, for rows that come one by one: `send(row)` returns at once, `await flush()` waits for receipts.

        Rows without a receipt take at most `window_bytes`; `await ready()` waits for room. `on_error(row, error)` is
        called for each row that is refused; without it, `flush` raises RowsRefused. NaN is refused unless `nan` is
        "null".
        """
        self._check_open()
        return Publisher(self._gathering, self._check_open, str(table), nan, window_bytes, on_error)

    async def delete(self, table: str, keys: object, *, timeout: float | None = None) -> Receipt:  # noqa: ASYNC109
        """Delete rows by primary key (one key or a list), not by a condition. A key that does not exist changes
        nothing."""
        name = str(table)
        columns = {"keys": keys_to_column(keys, name)}

        def piece(which: slice, number: int) -> ChangeBody:
            return bodies.Delete(name, some_rows(columns, None, which)[0]["keys"], self._publisher, number)

        receipt = await self._change_in_pieces(columns, piece, name, f"delete from {name}", _timeout(timeout))
        if receipt.deleted == 0 and (key := condition_in(keys)) is not None:
            log.warning(_NO_SUCH_KEY, extra={"table": name, "key": key})
        return receipt

    async def progress(self, stream: str, timestamp: object, *, timeout: float | None = None) -> Receipt:  # noqa: ASYNC109
        """Say that a stream's time has come to `timestamp` (a datetime, or ISO-8601 text): no earlier tuple follows.

        Whatever waits for time to pass goes on: RANGE windows, retention by time. Later tuples that are earlier all the
        same count as of this time. When this returns, it is on the server's disk.
        """
        return await self.execute(f"ADVANCE STREAM \"{stream}\" TO '{_moment(timestamp)}'", timeout=timeout)

    async def change_once(
        self,
        publisher: bytes,
        number: int,
        table: str,
        *,
        rows: object = None,
        keys: object = None,
        nan: Nan = "refuse",
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Receipt:
        """Publish `rows`, or delete the rows with these `keys`, as change `number` of a `publisher` of your own.

        For work that may be done again by another process: a change with the same publisher (16 bytes), number and
        client key is applied once, and whoever sends it again gets its receipt. Numbers ascend. The server keeps the
        receipts of a publisher's last 64 changes; a lower number that is not among them raises Superseded (it was never
        applied) or RetryTooOld (it may have been). At most 100,000 rows, applied as a whole or not at all.
        """
        name = str(table)
        if len(publisher) != ID_BYTES:
            raise BadSetting("publisher", publisher, f"must be {ID_BYTES} bytes")
        if (rows is None) == (keys is None):
            raise BadSetting("rows", rows, "give either rows to publish or keys to delete")
        body: ChangeBody
        if rows is not None:
            columns, absent = rows_to_columns(rows, name, nan)
            body = bodies.Publish(name, columns, absent, publisher, number)
        else:
            body = bodies.Delete(name, keys_to_column(keys, name), publisher, number)
        with self._gate.turn() as turn:
            return await self._change(lambda _: body, f"change {table}", _timeout(timeout), turn)

    async def query(
        self,
        sql: str,
        *parameters: object,
        deadline: float | str | None = None,
        freshness: float = 1.0,
        priority: int = 0,
        read_set: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> QueryRows:
        """Run any SELECT that SQLite understands, once. Rows are named tuples; `worth` says how current they are.

        With `freshness` 1 the rows include everything acknowledged before the call; with 0 they come at once from what
        is loaded; between them it is a preference. After `deadline` (seconds, or a text such as "200ms") the query is
        aborted and raises DeadlineMissed. Of queries that wait, a higher `priority` goes first. With
        `read_set="consistent"` all tables are read as of one sequence number, whatever the freshness. A large answer
        comes in portions, here put together; `timeout` is for each (by default long enough for the deadline).
        """
        query = checked_query(_sql(sql), scalars(parameters), deadline, freshness, priority, read_set)
        return await read_whole(self._ask, self._line.tell, query, self._query_timeout(query, timeout))

    def query_portions(
        self,
        sql: str,
        *parameters: object,
        deadline: float | str | None = None,
        freshness: float = 1.0,
        priority: int = 0,
        read_set: str | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[QueryRows, None]:
        """The rows of a SELECT, a portion at a time, for answers that should not be held whole; see `query`.

        At least one portion comes, if only an empty one; the last has `worth`. Take them without long pauses: an answer
        of which nothing was fetched for 30 seconds, or whose server was restarted, raises AnswerGone.
        """
        query = checked_query(_sql(sql), scalars(parameters), deadline, freshness, priority, read_set)
        return read_portions(self._ask, self._line.tell, query, self._query_timeout(query, timeout))

    async def policy(
        self,
        name: str | None = None,
        *,
        of: bodies.PolicyOf = "warehouse",
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> dict[str, Any]:
        """What decides which rows are loaded and which query is answered next: `policy`, its `counters`, and the
        `policies` there are, with a line about each. With `name`, switch to that one (needs the right `admin`). With
        `of="streams"`: what decides which operator of a join over streams runs next."""
        if name is not None and not str(name):
            raise BadSetting("policy", name, "must be the name of a policy; policy() without a name lists them")
        if of not in get_args(bodies.PolicyOf):
            raise BadSetting("of", of, f"must be one of {', '.join(get_args(bodies.PolicyOf))}")
        asked = bodies.SetPolicy("" if name is None else str(name), of)
        return await self._information(asked, "policy", _timeout(timeout))

    async def tables(self, *, timeout: float | None = None) -> dict[str, Any]:  # noqa: ASYNC109
        """The tables by name, each with its key, its columns' types and its number of rows."""
        tables: dict[str, Any] = (await self._information(bodies.Describe(), "tables", _timeout(timeout)))["tables"]
        return tables

    async def views(self, *, timeout: float | None = None) -> dict[str, Any]:  # noqa: ASYNC109
        """The views by name, each with its columns' types, the tables it reads, what it promises, and its SQL, which is
        None if the key may not read all these tables."""
        views: dict[str, Any] = (await self._information(bodies.Describe(), "views", _timeout(timeout)))["views"]
        return views

    async def status(self, *, timeout: float | None = None) -> dict[str, Any]:  # noqa: ASYNC109
        """The state of the server and its nodes, as `hullcast status` shows it."""
        return await self._information(bodies.Status(), "status", _timeout(timeout))

    async def explain(
        self,
        sql: str,
        *parameters: object,
        when: str | Sequence[str] | None = None,
        when_parameters: Sequence[object] = (),
        every: float | str | None = None,
        at_most_every: float | str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> dict[str, Any]:
        """How a subscription would be served, and what traffic to expect; it is not opened. With `when` or `every`, a
        conditional one: see `subscribe`."""
        trigger = checked_trigger(when, when_parameters, every, at_most_every)
        body = bodies.Explain(_sql(sql), scalars(parameters), trigger)
        return await self._information(body, "explain", _timeout(timeout))

    async def history(self, table: str, *, timeout: float | None = None) -> History:  # noqa: ASYNC109
        """Which changes of a table can be read, and as of which sequence numbers the table itself."""
        reply = await self._ask(bodies.AskHistory(str(table)), f"history of {table}", _timeout(timeout))
        if not isinstance(reply, bodies.HistorySpan):
            raise BadFrame(f"{type(reply).__name__} is not a reply to history")
        return History(reply.first, reply.last, reply.created)

    def changes(
        self, table: str, after: int | None = None, through: int | None = None, *, timeout: float | None = None
    ) -> AsyncGenerator[ChangePart, None]:
        """The changes of a table behind sequence number `after`, in order, each once; a portion at a time.

        Without `after` they begin with the first that the server keeps; with 0 they begin with the table's first one,
        and HistoryGone says if that is no longer kept. They end with `through`, or else
        with what is on the server's disk when this is asked. Needs the right to query the table, and a server with a
        data directory. HistoryGone says from where on changes are kept. `timeout` is for each portion.
        """
        return read_changes(self._ask, str(table), after, through, _timeout(timeout))

    def table_at(
        self,
        table: str,
        seq: int | None = None,
        *,
        part: int = 0,
        parts: int = 1,
        timeout: float | None = None,
    ) -> AsyncGenerator[TablePart, None]:
        """The rows of a table as it was after update `seq`, or else as it is on the server's disk, a portion at a time.

        With `parts`, only one part of the rows: parts 0 to `parts` - 1 of the same `seq` are disjoint and together all
        rows, whoever reads them, and when. Conditions and `timeout` are those of `changes`.
        """
        return read_table(self._ask, str(table), seq, part, parts, _timeout(timeout))

    async def sync(self, *, timeout: float | None = None) -> int:  # noqa: ASYNC109
        """Wait until all answers here include everything that the server had applied; returns the sequence number."""
        reply = await self._ask(bodies.Sync(), "sync", _timeout(timeout))
        if not isinstance(reply, bodies.Synced):
            raise BadFrame(f"{type(reply).__name__} is not a reply to a sync")
        if self._line.session.doubtful:  # sums that lost bits have been asked for: this reply comes after theirs
            await self._ask(bodies.Sync(), "sync", _timeout(timeout))
        return reply.seq

    # --- subscriptions ---------------------------------------------------------------------------------------

    @overload
    def subscribe(
        self,
        sql: str,
        *parameters: object,
        snapshot: Literal[False] = False,
        progress: Literal[False] = False,
        callback: Callback[Event] | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[Event]: ...
    @overload
    def subscribe(
        self,
        sql: str,
        *parameters: object,
        snapshot: Literal[True],
        progress: Literal[False] = False,
        callback: Callback[Event | Snapshot] | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[Event | Snapshot]: ...
    @overload
    def subscribe(
        self,
        sql: str,
        *parameters: object,
        snapshot: Literal[False] = False,
        progress: Literal[True],
        callback: Callback[Event | Progress] | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[Event | Progress]: ...
    @overload
    def subscribe(
        self,
        sql: str,
        *parameters: object,
        snapshot: bool = False,
        progress: bool = False,
        callback: Callback[AnyEvent] | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> Subscription[AnyEvent]: ...
    def subscribe(
        self,
        sql: str,
        *parameters: object,
        overflow: Overflow | None = None,
        buffer: int = 1024,
        resume: str | None = None,
        after: int | None = None,
        snapshot: bool = False,
        progress: bool = False,
        callback: Callback[Any] | None = None,
        when: str | Sequence[str] | None = None,
        when_parameters: Sequence[object] = (),
        every: float | str | None = None,
        at_most_every: float | str | None = None,
        timeout: float | None = None,
    ) -> Subscription[Any]:
        """Subscribe to a SELECT, with the parameters for its `?`. Use `async with` or `await` on what this returns.

        You get every change, in order; `buffer` events may wait, and `overflow` says what happens then. With "conflate"
        (the default, but for streams) the last of them is replaced by one with the newest answer, whose `conflated` is
        the number of changes it stands for beside its own. "block" stops reading until events are taken (default for
        streams). "drop_oldest" drops events, and a Resync says so. "error" ends the subscription. With "latest", for
        dashboards, only the newest answer waits, whatever `buffer` is. `resume` is the `token` of an earlier
        subscription: you get all that it missed.
        With `snapshot` the first event is the first answer (or a Resync, if the token could not be resumed). With
        `progress` a Progress event says that updates passed without a change. `callback` is a function or coroutine
        function that gets each event in turn; its errors are logged and counted (`callback_errors`). `timeout` is for
        subscribing.

        Of a subscription to a stream each event is a StreamTuple (its `seq` is the position in the stream, its `row`
        what the SELECT shows), each comes once and in order, and there is no answer. It begins with the next tuple, or
        with `after=position` behind that position; 0 is the beginning. If tuples there are no longer retained, a Resync
        comes first.

        With `when` or `every` the subscription is conditional: the SELECT may be any that `query` takes, and each event
        holds all its rows, up to date. They come when the answer of the SELECT `when` changes, which may be any
        subscription (`when_parameters` are for its `?`), and at each multiple of `every` (seconds, or a text such as
        "1h") by the server's clock. `when` may also be the name of a table or stream, or several (a text with commas,
        or a sequence): then they come whenever anything in these changes. With `at_most_every` changes share a result,
        so that no more than one run begins in that time; the last change is never left out. `answer` is a ResultRows.
        Between two events it stays as it was.
        """
        self._check_open()
        bound, trigger = scalars(parameters), checked_trigger(when, when_parameters, every, at_most_every)
        token = None if resume is None else read_token(resume, _sql(sql), bound, trigger)
        position = _position(after)
        if position is not None and (token is not None or trigger is not None):
            raise BadSetting("after", after, "cannot be combined with resume, when or every")
        group = SubscriptionGroup(_sql(sql), bound, 1, overflow, buffer, token, trigger, position)
        return Subscription(
            self._line, group, snapshot=snapshot, progress=progress, callback=callback, timeout_s=_timeout(timeout)
        )

    def subscribe_many(
        self,
        sql: str,
        *columns: object,
        overflow: Overflow | None = None,
        buffer: int = 1024,
        after: int | None = None,
        when: object = None,
        every: object = None,
        timeout: float | None = None,
    ) -> Subscriptions:
        """Subscribe many times at once: one column of values per `?`, one subscription per row.

        More than 25,000 go in several requests, one after the other; if one is refused, all are closed again. When this
        returns, all subscriptions are in effect, and all answers are right at `seq`. `timeout` is for each request.
        `overflow` is "latest" if nothing is said, so that many cost little: to get every change, say "conflate" or
        "block". For streams it is "block"; there, all begin behind position `after`.
        """
        self._check_open()
        if when is not None or every is not None:
            given = "when" if when is not None else "every"
            raise BadSetting(given, when or every, "conditional subscriptions are made one by one; use subscribe()")
        if overflow == "error":
            raise BadSetting("overflow", overflow, "many subscriptions take latest, conflate, block or drop_oldest")
        for position, column in enumerate(columns, 1):
            if isinstance(column, str) or not hasattr(column, "__len__"):
                got = type(column).__name__
                raise BadParameter(position, f"needs a column of values (a list or an array), got {got}")
        bound = tuple(from_user(column, exact=True) for column in columns)
        if not bound:
            raise BadParameter(0, "many subscriptions take one column of values per `?`, at least one")
        counts = {len(column) for column in bound}
        if len(counts) > 1:
            raise BadParameter(
                0, f"the columns have {', '.join(map(str, sorted(counts)))} values; give the same number in each"
            )
        count = counts.pop()
        if not count:
            raise BadParameter(0, "the columns are empty; give at least one value per `?`")
        group = SubscriptionGroup(_sql(sql), bound, count, overflow, buffer, after=_position(after), many=True)
        return Subscriptions(self._line, group.in_portions(), _timeout(timeout))

    @property
    def seq(self) -> int:
        """All answers of this client include the updates up to this sequence number."""
        return self._line.session.position

    @property
    def connected(self) -> bool:
        """Whether the client is connected and all its subscriptions are in effect."""
        return self._state == "open" and not self._line.session.resuming

    def statistics(self) -> ClientStatistics:
        """Counters and current state."""
        session = self._line.session
        return ClientStatistics(
            subscriptions=session.groups.subscriptions,
            groups=len(session.groups),
            seq=session.position,
            resumes=session.resumes,
            retries=session.retries,
            waiting=session.waiting,
            paused=self._line.paused,
            link=self._line.dialer.statistics(),
        )

    # --- inside ------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._state != "open":
            raise ClientClosed(self.name)
        self._line.check()

    def _number(self) -> int:
        number, self._next_change = self._next_change, self._next_change + 1
        return number

    async def _publish_row(self, table: str, row: Row, nan: Nan, timeout_s: float | None) -> Receipt:
        """Publish one row, in one change with others of this turn of the loop; no task or timer of its own."""
        self._check_open()
        change, future = self._gathering.add(table, row, nan)
        assert future is not None, "it has no sender"
        try:
            if timeout_s is None:
                seq = await future
            else:
                change.timed.add(future)
                async with asyncio.timeout(timeout_s):
                    seq = await future
        except TimeoutError:
            why = change.why_waiting()
            change.give_up(future)
            raise TimedOut(f"publish to {table} ({why})", timeout_s or 0.0) from None
        except asyncio.CancelledError:
            change.give_up(future)
            raise
        return Receipt(seq, seq, 1)

    async def _change_in_pieces(
        self,
        columns: ValueColumns,
        piece: Callable[[slice, int], ChangeBody],
        table: str,
        what: str,
        timeout_s: float | None,
    ) -> Receipt:
        """Send a batch. In several pieces, it keeps its turn until the last is sent: no other change comes between."""
        pieces = ranges(columns)
        receipt: Receipt | None = None
        with self._gate.turn() as turn:
            for which in pieces:
                try:
                    done = await self._change(
                        lambda number: piece(which, number),  # noqa: B023
                        what,
                        timeout_s,
                        turn,
                        more=which is not pieces[-1],
                    )
                except HullcastError as error:
                    if receipt is None:
                        raise
                    cause = counted_from(error, which.start)
                    raise PartlyPublished(table, which.start, pieces[-1].stop, receipt.seq, str(cause)) from cause
                receipt = done if receipt is None else _joined(receipt, done)
        assert receipt is not None, "there is a piece, if only an empty one"
        return receipt

    async def _change(
        self,
        make: Callable[[int], ChangeBody],
        what: str,
        timeout_s: float | None,
        turn: Turn,
        *,
        more: bool = False,
    ) -> Receipt:
        """Send a change when its turn has come, and wait for its reply. The turn ends when it is sent, unless there is
        `more` to send. Its own timeout counts from now, the client's from its turn on."""
        self._check_open()
        loop = asyncio.get_running_loop()
        until = None if timeout_s is None else loop.time() + timeout_s
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(until):
                    await turn.come()
                    body = make(self._number())
                    await stack.enter_async_context(self._gate.passing(_size(body)))
            except TimeoutError:
                raise TimedOut(f"{what} (earlier changes have no reply)", timeout_s or 0.0) from None
            self._check_open()
            left = None if until is None else max(0.0, until - loop.time())
            called = None if more else turn.end
            done = receipt_of(await self._line.ask(body, what, left, called))
        return Receipt(done.first, done.last, done.last - done.first + 1, done.deleted)

    def _query_timeout(self, query: bodies.Query, given: float | None) -> float | None:
        if given is None and query.deadline_s is not None:
            return max(self._line.timeout_s, query.deadline_s + GRACE_S)
        return _timeout(given)

    async def _information(self, body: bodies.Body, what: str, timeout_s: float | None) -> dict[str, Any]:
        reply = await self._ask(body, what, timeout_s)
        if not isinstance(reply, bodies.Information):
            raise BadFrame(f"{type(reply).__name__} is not a reply to {what}")
        return reply.values

    async def _ask(self, body: bodies.Body, what: str, timeout_s: float | None) -> bodies.Body:
        self._check_open()
        return await self._line.ask(body, what, timeout_s)


def connect(
    url: str | Sequence[str] | None = None,
    *,
    name: str | None = None,
    timeout: float | None = None,
    key: str | Path | None = None,
    server_key: str | Path | None = None,
    insecure: bool | None = None,
    limits: LinkLimits | None = None,
) -> Client:
    """A client: open it with `async with`, or with `await` and close it later.

    `url` is one endpoint or several, such as tcp://127.0.0.1:7600; the default is HULLCAST_URL. `timeout` is in
    seconds, for connecting and for each call (default 30). `name` is what the server's logs show. `key` and
    `server_key` are key files for an encrypted connection; without them the client connects to this host only, unless
    `insecure`.
    """
    return Client(
        configure(url, name=name, timeout=timeout, key=key, server_key=server_key, insecure=insecure, limits=limits)
    )


def _position(after: int | None) -> int | None:
    """A position in a stream, or BadSetting."""
    given: object = after
    if given is not None and (type(given) is not int or given < 0):
        raise BadSetting("after", after, "must be a position: a whole number, 0 or more")
    return after


def _moment(timestamp: object) -> str:
    """A moment as ISO-8601 text, or BadSetting."""
    if isinstance(timestamp, np.datetime64):
        timestamp = timestamp.astype("M8[us]").item()
    try:
        moment = datetime.fromisoformat(timestamp) if isinstance(timestamp, str) else timestamp
    except ValueError:
        moment = None
    if not isinstance(moment, datetime):
        raise BadSetting("timestamp", timestamp, "must be a datetime (naive means UTC) or ISO-8601 text")
    return moment.isoformat()


def _sql(sql: object) -> str:
    if not isinstance(sql, str):
        raise BadSetting("sql", type(sql).__name__, "must be a str")
    return sql


def _timeout(given: float | None) -> float | None:
    return None if given is None else seconds(given)


def _size(body: ChangeBody) -> int:
    """About the bytes of a change while it waits."""
    if isinstance(body, bodies.Execute):
        return len(body.sql)
    columns = body.columns.values() if isinstance(body, bodies.Publish) else (body.keys,)
    return 16 * sum(map(row_count, columns))


def _joined(earlier: Receipt, later: Receipt) -> Receipt:
    """One receipt for two pieces of a change."""
    deleted = None if earlier.deleted is None or later.deleted is None else earlier.deleted + later.deleted
    return Receipt(earlier.first_seq, later.seq, earlier.updates + later.updates, deleted)
