"""The client: everything one can ask of a server, as coroutines."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from clients.sdk.connecting import configure
from clients.sdk.gate import Gate
from clients.sdk.groups import SubscriptionGroup
from clients.sdk.line import Line
from clients.sdk.session import receipt_of
from clients.sdk.subscription import LiveSubscription
from clients.sdk.subscriptions import LiveSubscriptions
from clients.sdk.token import read_token
from network.answers.named import QueryRows
from network.wire import bodies
from network.wire.errors import BadFrame, BadParameter, BadSetting, ClientClosed
from network.wire.values import from_user, keys_to_column, rows_of, rows_to_columns, scalars

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    import zmq

    from clients.sdk.connecting import Connection
    from clients.sdk.policy import Overflow
    from clients.sdk.subscription import Callback
    from network.link.dialer import DialerStatistics
    from network.link.limits import LinkLimits

#: Changes without a reply. The server remembers the receipts of a publisher's last 64: a retry must find its own.
CHANGES_WAITING = 32
CHANGES_WAITING_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Receipt:
    """A change is durable: its `updates` have the sequence numbers `first_seq` to `seq`."""

    first_seq: int
    seq: int

    @property
    def updates(self) -> int:
        """How many rows it wrote or removed."""
        return self.seq - self.first_seq + 1


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """Counters since the client was opened, and what is there now."""

    subscriptions: int
    groups: int
    seq: int
    resumes: int  # times all subscriptions were subscribed again
    retries: int  # requests sent again because nobody could take them
    waiting: int  # calls without a reply
    paused: bool  # nothing is read: a queue that blocks is full
    link: DialerStatistics


class Client:
    """What `async with hullcast.connect(..)` gives. For one event loop; from other threads use `hullcast.blocking`.

    Lost connections are its business: it dials again (elsewhere, if need be), subscribes again, and asks again what was
    not answered; changes are applied once however often they were sent. A call that has no reply within
    `timeout` seconds raises TimedOut.
    """

    def __init__(self, connection: Connection, context: zmq.Context[Any] | None = None) -> None:
        self.connection = connection
        self.name = connection.name
        self._line = Line(connection, context)
        self._publisher = os.urandom(16)
        self._next_change = 1
        self._gate = Gate(CHANGES_WAITING, CHANGES_WAITING_BYTES)
        self._state = "new"

    # --- opening and closing -------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def open(self) -> Self:
        """Connect; ConnectionLost if nobody answers in time."""
        if self._state != "new":
            raise BadSetting("client", self.name, "a client can be opened once")
        self._state = "open"
        try:
            await self._line.dial()
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """End all subscriptions and hang up. Closing twice is fine."""
        if self._state != "closed":
            self._state = "closed"
            self._end_subscriptions()
            await self._line.hang_up()

    async def drain(self) -> None:
        """Stop taking in: unsubscribe, let callbacks and iterators have what is queued, wait for calls, hang up.

        Iterators of other tasks end after what is queued; only callbacks are waited for.
        """
        self._check_open()
        self._end_subscriptions()
        await self._line.settle()
        await self.close()

    def _end_subscriptions(self) -> None:
        for owner in list(self._line.owners.values()):
            owner.drain()

    # --- changes and questions -----------------------------------------------------------------------------

    async def execute(self, sql: str) -> Receipt:
        """Run CREATE TABLE or DROP TABLE."""
        return await self._change(bodies.Execute(_sql(sql), self._publisher, self._number()), "execute")

    async def publish(self, table: str, rows: object) -> Receipt:
        """Insert or change rows, in order; durable when it returns.

        `rows`: a list of dicts, a dict of columns (lists, NumPy arrays), a pyarrow Table, a pandas DataFrame; a column
        not given keeps its value. All rows or, if one is bad, none. A batch beyond 64 MB is refused (TooLarge): publish
        it in parts, which are then not applied as one.
        """
        columns, absent = rows_to_columns(rows, str(table))
        return await self._change(
            bodies.Publish(str(table), columns, absent, self._publisher, self._number()), f"publish to {table}"
        )

    async def delete(self, table: str, keys: object) -> Receipt:
        """Remove rows by primary key, one or a list; a key that is not there changes nothing."""
        column = keys_to_column(keys, str(table))
        return await self._change(
            bodies.Delete(str(table), column, self._publisher, self._number()), f"delete from {table}"
        )

    async def query(self, sql: str, *parameters: object) -> QueryRows:
        """Read the rows once, with any SELECT that SQLite runs; rows as named tuples."""
        reply = await self._ask(bodies.Query(_sql(sql), scalars(parameters)), "query")
        if not isinstance(reply, bodies.Rows):
            raise BadFrame(f"a {type(reply).__name__} answers no query")
        return QueryRows(reply.names, rows_of(reply.columns))

    async def tables(self) -> dict[str, Any]:
        """The tables by name: their key, the types of their columns, how many rows."""
        tables: dict[str, Any] = (await self._information(bodies.Describe(), "tables"))["tables"]
        return tables

    async def status(self) -> dict[str, Any]:
        """How the server and its nodes are doing."""
        return await self._information(bodies.Status(), "status")

    async def explain(self, sql: str, *parameters: object) -> dict[str, Any]:
        """How a subscription would be served, and what traffic to expect."""
        return await self._information(bodies.Explain(_sql(sql), scalars(parameters)), "explain")

    async def sync(self) -> int:
        """Wait until all that the server had applied when asked is in all answers here; returns up to where."""
        reply = await self._ask(bodies.Sync(), "sync")
        if not isinstance(reply, bodies.Synced):
            raise BadFrame(f"a {type(reply).__name__} answers no sync")
        if self._line.session.doubtful:  # sums that lost bits have been asked for: this reply comes after theirs
            await self._ask(bodies.Sync(), "sync")
        return reply.seq

    # --- subscriptions ---------------------------------------------------------------------------------------

    def subscribe(
        self,
        sql: str,
        *parameters: object,
        overflow: Overflow | None = None,
        buffer: int = 1024,
        resume: str | None = None,
        snapshot: bool = False,
        progress: bool = False,
        callback: Callback | None = None,
    ) -> LiveSubscription:
        """Subscribe to a SELECT, its `?` bound to the parameters; `async with` or `await` what this returns.

        `overflow` says what happens when events come faster than they are taken: "latest" keeps only the newest answer
        (the default for single values), "block" reads no further (for sets and rows), "drop_oldest" drops and tells so
        by a Resync, "error" ends the subscription; `buffer` events may wait. `resume` is an earlier one's token.
        With `snapshot` the first event is the answer to begin with (a Resync, if a token could not be resumed); with
        `progress` a Progress comes when updates passed without a change. A callback, plain or async, gets each event in
        turn; its errors are logged and counted (`callback_errors`), and end nothing.
        """
        self._check_open()
        bound = scalars(parameters)
        token = None if resume is None else read_token(resume, _sql(sql), bound)
        group = SubscriptionGroup(_sql(sql), bound, 1, overflow, buffer, token)
        return LiveSubscription(self._line, group, snapshot=snapshot, progress=progress, callback=callback)

    def subscribe_many(
        self, sql: str, *columns: object, overflow: Overflow = "latest", buffer: int = 1024
    ) -> LiveSubscriptions:
        """Subscribe many times at once: a column of values per `?`, a subscription per row of them."""
        self._check_open()
        if overflow == "error":
            raise BadSetting("overflow", overflow, "many subscriptions take latest, block or drop_oldest")
        bound = tuple(from_user(column) for column in columns)
        if not bound:
            raise BadParameter(0, "many subscriptions take one column of values per `?`, at least one")
        counts = {len(column) for column in bound}
        if len(counts) > 1:
            raise BadParameter(
                0, f"the columns have {', '.join(map(str, sorted(counts)))} values; give as many of each"
            )
        return LiveSubscriptions(self._line, SubscriptionGroup(_sql(sql), bound, counts.pop(), overflow, buffer))

    @property
    def seq(self) -> int:
        """The sequence number of the update up to which all answers here are right."""
        return self._line.session.position

    @property
    def connected(self) -> bool:
        """Whether there is a connection at the moment, and all subscriptions are subscribed."""
        return not self._line.session.resuming

    def statistics(self) -> ClientStatistics:
        """Counters, and what is there now."""
        session = self._line.session
        return ClientStatistics(
            subscriptions=session.groups.subscriptions,
            groups=len(session.groups),
            seq=session.position,
            resumes=session.resumes,
            retries=self._line.retries,
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

    async def _change(self, body: bodies.Execute | bodies.Publish | bodies.Delete, what: str) -> Receipt:
        async with self._gate.passing(_size(body)):
            done = receipt_of(await self._ask(body, what))
        return Receipt(done.first, done.last)

    async def _information(self, body: bodies.Body, what: str) -> dict[str, Any]:
        reply = await self._ask(body, what)
        if not isinstance(reply, bodies.Information):
            raise BadFrame(f"a {type(reply).__name__} answers no {what}")
        return reply.values

    async def _ask(self, body: bodies.Body, what: str) -> bodies.Body:
        self._check_open()
        return await self._line.ask(body, what)


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
    """A client, to be opened by `async with` (or `await`, and closed later).

    `url`: one address or several, such as tcp://127.0.0.1:7600; without one HULLCAST_URL says it. `timeout`: seconds
    that connecting and each call may take (30). `name`: how the server sees this client. `key` and `server_key`:
    files of keys for an encrypted connection; without them only this host is dialled, unless `insecure`.
    """
    return Client(
        configure(url, name=name, timeout=timeout, key=key, server_key=server_key, insecure=insecure, limits=limits)
    )


def _sql(sql: object) -> str:
    if not isinstance(sql, str):
        raise BadSetting("sql", type(sql).__name__, "it takes a str")
    return sql


def _size(body: bodies.Execute | bodies.Publish | bodies.Delete) -> int:
    """About the bytes of a change while it waits."""
    if isinstance(body, bodies.Execute):
        return len(body.sql)
    columns = body.columns.values() if isinstance(body, bodies.Publish) else (body.keys,)
    return sum(16 * len(column) for column in columns)
