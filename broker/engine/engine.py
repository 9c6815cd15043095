"""The engine: tables, channels and local subscriptions in one process, without sockets, disk or clock."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hullcast.broker.engine.catalogue import Catalogue, joins_streams, not_joined
from hullcast.broker.engine.publishing import Publishing
from hullcast.broker.engine.stream import Needed, Settled, Stream, Streams, nothing_needed
from hullcast.broker.engine.subscription import (
    CollectionSubscription,
    EngineSubscription,
    SingleSubscription,
    TupleSubscription,
)
from hullcast.broker.engine.subscriptions import EngineSubscriptions
from hullcast.broker.queries.mirror import Mirror
from hullcast.broker.reformulate.channel import CollectionChannel, SingleChannel
from hullcast.broker.reformulate.channels import Channels
from hullcast.broker.reformulate.tuples import TuplesChannel
from hullcast.broker.scheduling.driver import finish, until
from hullcast.broker.sql.create import AdvanceStream, parse_statement
from hullcast.broker.sql.encode import Unfit, encode_instant
from hullcast.broker.sql.subscription import ParsedQuery
from hullcast.broker.tables.feed import ChangeFeed
from hullcast.broker.tables.ingest import ingest, ingest_keys, ingest_tuples
from hullcast.broker.tables.interning import Interner
from hullcast.broker.tables.schema import fold
from hullcast.broker.tables.store import TableStore
from hullcast.broker.tables.windows import WindowTable
from hullcast.network.wire.errors import BadSetting, InvariantBroken, SqlError, UnknownChannel
from hullcast.network.wire.values import keys_to_column, rows_to_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hullcast.broker.reformulate.channel import Channel, ChannelStatistics
    from hullcast.broker.reformulate.messages import Batch
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.tables.schema import Table
    from hullcast.broker.tables.store import Updates
    from hullcast.network.answers.named import QueryRows
    from hullcast.network.wire.arrays import Floats
    from hullcast.network.wire.containers import Nan
    from hullcast.network.wire.value_columns import Masks, ValueColumns, Values

Listeners = npt.NDArray[np.int64]

#: Rows that a channel being opened takes in at once, and about how long that takes; a window takes more in that time.
LOADED_AT_ONCE = 512
LOAD_COST_S = 0.001
#: Why there is no `after` for a subscription.
NO_POSITION = "only a subscription to the tuples of a stream can begin at a position; leave it out"


class Engine:
    """Subscribe to SQL over tables in this process.

    One part changes the rows (`Publishing`); everything else reads, opens or closes. An update has a sequence
    number; after it every subscription's `answer` equals its SQL on the rows as they are then, and each
    subscription whose answer changed has one event more.

    `event_limit` (rounded up to a power of two) bounds the events waiting per channel: beyond it the oldest is dropped
    and its subscription resynchronised when next drained. Not safe for use by several threads at once. `served` is for
    servers alone.
    """

    def __init__(self, *, event_limit: int = 1 << 18, served: bool = False) -> None:
        given: object = event_limit
        if type(given) is not int or given < 1:
            raise BadSetting("event_limit", event_limit, "must be a whole number, 1 or more")
        self._stores: dict[str, TableStore] = {}
        self._interner = Interner()
        self._channels = Channels(self._interner, event_limit)
        self._streams = Streams(self._channels)  # those of the stores that are streams
        self._feed = ChangeFeed()
        self._changes = Publishing(self._stores, self._streams, self._channels, self._interner, self._feed)
        self._catalogue = Catalogue(self._stores, self._streams, self._channels, self._changes, served=served)
        self._opened: dict[str, list[Floats | None]] = {}  # by channel: what `open_channel` wants of it

    @property
    def seq(self) -> int:
        """Sequence number of the latest update; 0 before the first."""
        return self._changes.seq

    @property
    def tables(self) -> Mapping[str, Table]:
        """The tables by their declared names."""
        return self._catalogue.tables

    # --- tables ----------------------------------------------------------------------------------------

    def execute(self, sql: str) -> None:
        """Run CREATE TABLE or STREAM [IF NOT EXISTS], or DROP TABLE or STREAM [IF EXISTS]. One that exists with another
        definition is a DuplicateTable either way."""
        self._changes.check_sound()
        statement = parse_statement(sql)
        if isinstance(statement, AdvanceStream):
            self._advance(statement)
        else:
            self._catalogue.change(statement)

    def upsert(self, table: str, rows: object, *, nan: Nan = "refuse") -> Batch:
        """Insert or change rows, in order; a column that is not given keeps its value, a new row has NULL there.

        `rows`: a list of dicts, a dict of columns (lists or NumPy arrays), a pyarrow Table, a pandas DataFrame.
        One bad row refuses all, before anything changes; `nan="null"` takes NaN for NULL instead of refusing it.
        To a stream the rows are appended, each with its sequence number as POSITION; a column that is not given is
        NULL. Tuples that the stream no longer retains go afterwards, by updates of their own.
        """
        columns, absent = rows_to_columns(rows, table, nan)
        given: object = table
        stream = self._streams.find(given) if isinstance(given, str) else None
        if stream is None:
            return self._upsert(table, columns, absent)
        self._changes.check_sound()
        batch, _ = self._changes.upsert(table, ingest_tuples(stream.store.table, columns, absent, self._interner))
        self._settle(stream)
        return batch

    def _upsert(self, table: str, columns: ValueColumns, absent: Masks | None) -> Batch:
        """Rows of a table, or tuples of a stream that have their positions."""
        self._changes.check_sound()
        store = self._catalogue.store(table)
        stream = self._streams.find(table)
        encoded = ingest(store.table, columns, absent, self._interner)
        change = partial(store.apply if stream is None else stream.append, encoded)
        return self._changes.publish(store, change)[0]

    def progress(self, stream: str, timestamp: object) -> None:
        """Say that a stream's time has come to `timestamp` (a datetime, or ISO-8601 text): no earlier tuple follows.

        Tuples that a RANGE window or the retention then no longer holds leave it.
        """
        self._changes.check_sound()
        try:
            time = encode_instant(timestamp)[0]
        except Unfit as error:
            raise BadSetting("timestamp", timestamp, str(error)) from None
        self._advance(AdvanceStream(stream, float(time)))
        self._settle(self._catalogue.stream(stream))

    def _advance(self, statement: AdvanceStream) -> None:
        stream = self._catalogue.stream(statement.name)
        if stream.store.table.time is None:
            name = stream.store.table.name
            raise SqlError(name, "the stream has no TIMESTAMP column, so no time to advance", "create it with one")
        stream.order.advance(statement.time, self._changes.seq)

    def _settle(self, stream: Stream) -> None:
        while self._settle_some(stream) is not None:
            pass

    def _settle_some(self, stream: Stream, needed: Needed = nothing_needed) -> Settled | None:
        """Let go of some tuples that have become too old, or too many, for a window or for the stream; None if there
        are none. Anything may happen before the next ones go."""
        stream.drop_windows(self._channels.reading)
        found = stream.overdue(needed)
        if found is None:
            return None
        if isinstance(found, WindowTable):
            batch, _ = self._changes.publish(found, found.expire)
            return Settled(batch, None, len(batch))
        batch, _ = self._changes.publish(stream.store, partial(stream.remove, found))
        return Settled(batch, found, len(batch) * (1 + len(stream.windows)))

    def delete(self, table: str, keys: object) -> Batch:
        """Delete rows by primary key (one key or a list). A key that does not exist changes nothing."""
        self._streams.refuse_delete(self._catalogue.store(table).table.name)
        return self._delete(table, keys_to_column(keys, table))[0]

    def _delete(self, table: str, keys: Values) -> tuple[Batch, Updates]:
        """Rows of a table, or the oldest tuples of a stream; and what that did to the rows."""
        self._changes.check_sound()
        store = self._catalogue.store(table)
        stream = self._streams.find(table)
        codes = ingest_keys(store.table, keys, self._interner)
        return self._changes.publish(store, partial(store.remove if stream is None else stream.remove, codes))

    def query(self, sql: str, *parameters: object) -> QueryRows:
        """Run any SELECT that SQLite understands, once, over the current rows. Rows are named tuples."""
        self._changes.check_sound()
        self._changes.check_free(self._stores)
        return self._mirror.query(sql, parameters)

    @cached_property
    def _mirror(self) -> Mirror:
        """Made for the first query: from then on it follows the tables that queries name."""
        return Mirror(self._stores, self._interner, self._feed)

    def rows(self, table: str) -> int:
        """How many rows a table has."""
        return len(self._catalogue.store(table))

    # --- subscriptions ---------------------------------------------------------------------------------

    def subscribe(
        self,
        sql: str,
        *parameters: object,
        after: int | None = None,
        when: object = None,
        every: object = None,
    ) -> EngineSubscription:
        """Subscribe to a SELECT, with the parameters for its `?`. `when` and `every` are for clients of a server.

        A subscription to the tuples of a stream begins with those behind the position `after`, as far as they are
        retained (0: with the oldest); without it, with the next one.
        """
        if when is not None or every is not None:
            given = "when" if when is not None else "every"
            remedy = (
                "an embedded engine has no conditional subscriptions; connect to a server, or query() at each event"
            )
            raise BadSetting(given, every if when is None else when, remedy)
        self._changes.check_sound()
        query = self._catalogue.parse(sql)
        predicates = query.bind(parameters)
        with self._channel(query) as channel:
            listener = self._admit(channel, predicates, after)
        return self._subscription(query, channel, listener, predicates)

    def _admit(self, channel: Channel, predicates: Predicates, after: int | None) -> Listeners:
        if after is None:
            return channel.admit(predicates)
        given: object = after
        if type(given) is not int or given < 0:
            raise BadSetting("after", after, "must be a position: a whole number, 0 or more")
        if not isinstance(channel, TuplesChannel):
            raise BadSetting("after", after, NO_POSITION)
        return channel.admit_after(predicates, after, self._changes.seq)

    def subscribe_many(
        self, sql: str, *columns: Sequence[object] | np.ndarray[Any, Any], after: int | None = None
    ) -> EngineSubscriptions:
        """Subscribe many times at once: one column of values per `?`, one subscription per row."""
        self._changes.check_sound()
        query = self._catalogue.parse(sql)
        predicates = query.bind_many(columns)
        with self._channel(query) as channel:
            listeners = self._admit(channel, predicates, after)
        return EngineSubscriptions(
            query,
            channel,
            listeners,
            lambda i, close: self._subscription(query, channel, listeners[i : i + 1], predicates.only(i), close),
            lambda leaving: self._leave(channel, leaving),
            self._changes.check_sound,
        )

    def open_channel(self, sql: str, *parameters: object) -> str:
        """Compute a channel without a local subscription; batches then carry its messages.

        This is what a server does for subscribers elsewhere. Returns the channel's name. Parameters matter only for
        joins: the messages describe the pairs in this range, or, without the parameters, all pairs.
        """
        self._changes.check_sound()
        query = self._catalogue.parse(sql)
        everything = not parameters and bool(query.binder.slots)
        predicates = None if everything else query.bind(parameters)
        with self._channel(query) as channel:
            channel.holders += 1
            points = None if predicates is None else channel.points_elsewhere(predicates)
            channel.want(points)
            self._opened.setdefault(channel.name, []).append(points)
        return channel.name

    def close_channel(self, name: str) -> None:
        """Undo one `open_channel`, the latest of this name."""
        channel = self._channels.named(name)
        if name not in self._opened:
            raise UnknownChannel(name)
        channel.holders -= 1
        channel.forgo(self._opened[name].pop())
        if not self._opened[name]:
            del self._opened[name]
        self._channels.close_if_unused(channel)

    def statistics(self) -> dict[str, ChannelStatistics]:
        """The counters of each open channel, by its name."""
        self._changes.check_sound()
        return {channel.name: channel.statistics() for channel in self._channels}

    def memory_bytes(self) -> int:
        """About how much memory tables, indexes and local subscriptions use."""
        stores = sum(store.memory_bytes() for store in self._stores.values())
        stores += sum(stream.memory_bytes() for stream in self._streams.values())
        return stores + self._interner.memory_bytes() + self._channels.memory_bytes()

    # --- inside ----------------------------------------------------------------------------------------

    def _opening(self, query: ParsedQuery) -> Work:
        """Open the query's channel, some rows at a time: first the window that it reads, then its trees. The result is
        the channel, held so that nobody closes it, or drops its tables: whoever gets it lets go of it (`_let_go`)."""
        tables = {fold(table.name) for table in query.tables}
        yield from until(partial(self._changes.free, tables))
        with self._changes.using(tables):
            return (yield from self._loading(query))

    def _loading(self, query: ParsedQuery) -> Work:
        window = self._window(query)
        if window is not None:
            window.holders += 1
        try:
            while window is not None and not window.load():
                yield LOAD_COST_S
                self._changes.check_sound()
            channel = self._open(query, window)
            channel.holders += 1
        finally:
            if window is not None:
                window.holders -= 1
        try:
            while not self._channels.load(channel, LOADED_AT_ONCE):
                yield LOAD_COST_S
                self._changes.check_sound()
        except BaseException:
            self._let_go(channel)
            raise
        return channel

    def _window(self, query: ParsedQuery) -> WindowTable | None:
        """The window that a query reads, perhaps not loaded; None if it reads none."""
        if len(query.shape.windows) != 1:  # a join keeps its own
            return None
        (stream,), (window,) = query.tables, query.shape.windows
        assert window is not None, "S5"
        return self._streams[fold(stream.name)].window(window, query.shape.sources[0])

    def _open(self, query: ParsedQuery, window: WindowTable | None) -> Channel:
        if joins_streams(query):  # that of a server is one over its own stream by now, or was not served
            raise not_joined(query)
        stores = [self._stores[fold(table.name)] for table in query.tables]
        return self._channels.open(query.shape, stores if window is None else [window])

    def _let_go(self, channel: Channel) -> None:
        channel.holders -= 1
        self._channels.close_if_unused(channel)

    @contextmanager
    def _channel(self, query: ParsedQuery) -> Iterator[Channel]:
        """The query's channel, opened if need be, and closed again if it was opened for nothing."""
        channel = finish(self._opening(query))
        try:
            yield channel
        finally:
            self._let_go(channel)

    def _subscription(
        self,
        query: ParsedQuery,
        channel: Channel,
        listener: Listeners,
        predicates: Predicates,
        close: Callable[[EngineSubscription], None] | None = None,
    ) -> EngineSubscription:
        def now() -> int:
            self._changes.check_sound()
            return self._changes.seq

        def leave(subscription: EngineSubscription) -> None:
            self._leave(channel, listener)

        number, close = int(listener[0]), close or leave
        match channel:
            case SingleChannel():
                return SingleSubscription(query, channel, number, now, close)
            case CollectionChannel():
                return CollectionSubscription(query, channel, number, now, close, predicates)
            case TuplesChannel():
                return TupleSubscription(query, channel, number, now, close)
        raise InvariantBroken(f"a channel of no known kind: {channel.name}")

    def _leave(self, channel: Channel, listeners: Listeners) -> None:
        channel.dismiss(listeners)
        self._channels.close_if_unused(channel)
        self._changes.sweep((channel,))
