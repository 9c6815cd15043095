"""The engine: tables, channels and local subscriptions in one process, without sockets, disk or clock."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hullcast.broker.engine.subscription import CollectionSubscription, SingleSubscription, Subscription
from hullcast.broker.engine.subscriptions import Subscriptions
from hullcast.broker.queries.mirror import Mirror
from hullcast.broker.reformulate.channel import CollectionChannel, SingleChannel
from hullcast.broker.reformulate.channels import Channels
from hullcast.broker.reformulate.messages import Batch, Messages
from hullcast.broker.sql.create import CreateTable, DropTable, parse_statement
from hullcast.broker.sql.subscription import ParsedQuery, parse_subscription
from hullcast.broker.sql.view import CreateView, DropView
from hullcast.broker.tables.feed import ChangeFeed
from hullcast.broker.tables.ingest import ingest, ingest_keys
from hullcast.broker.tables.interning import Interner
from hullcast.broker.tables.schema import ColumnType, fold
from hullcast.broker.tables.store import TableStore, Updates
from hullcast.network.wire.errors import (
    BadSetting,
    DuplicateTable,
    InvariantBroken,
    SqlError,
    TableInUse,
    UnknownChannel,
    UnknownTable,
    UsageError,
)
from hullcast.network.wire.values import keys_to_column, rows_to_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hullcast.broker.reformulate.channel import Channel, ChannelStatistics
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.tables.ingest import Encoded
    from hullcast.broker.tables.schema import Table
    from hullcast.network.answers.named import QueryRows
    from hullcast.network.wire.arrays import Floats
    from hullcast.network.wire.containers import Nan
    from hullcast.network.wire.value_columns import Masks, ValueColumns, Values

Listeners = npt.NDArray[np.int64]

#: Parsed texts remembered, so that the same SQL with other parameters is parsed once.
REMEMBERED_QUERIES = 1024
#: Rows that a channel being opened takes in at once.
LOADED_AT_ONCE = 512


class Engine:
    """Subscribe to SQL over tables in this process.

    One method changes the rows (`_publish`); every other one reads, opens or closes. An update has a sequence
    number; after it every subscription's `answer` equals its SQL on the rows as they are then, and each
    subscription whose answer changed has one event more.

    `event_limit` (rounded up to a power of two) bounds the events waiting per channel: beyond it the oldest is dropped
    and its subscription resynchronised when next drained. Not safe for use by several threads at once.
    """

    def __init__(self, *, event_limit: int = 1 << 18) -> None:
        given: object = event_limit
        if type(given) is not int or given < 1:
            raise BadSetting("event_limit", event_limit, "must be a whole number, 1 or more")
        self._stores: dict[str, TableStore] = {}
        self._catalog: dict[str, Table] = {}
        self._interner = Interner()
        self._channels = Channels(self._interner, event_limit)
        self._feed = ChangeFeed()
        self._parsed: dict[str, ParsedQuery] = {}
        self._opened: dict[str, list[Floats | None]] = {}  # by channel: what `open_channel` wants of it
        self._seq = 0
        self._sweeps = self._definitions = 0
        self._broken: str | None = None

    @property
    def seq(self) -> int:
        """Sequence number of the latest update; 0 before the first."""
        return self._seq

    @property
    def tables(self) -> Mapping[str, Table]:
        """The tables by their declared names."""
        return {table.name: table for table in self._catalog.values()}

    # --- tables ----------------------------------------------------------------------------------------

    def execute(self, sql: str) -> None:
        """Run CREATE TABLE [IF NOT EXISTS] or DROP TABLE [IF EXISTS]. A table that exists with another definition is a
        DuplicateTable either way."""
        self._check_sound()
        statement = parse_statement(sql)
        match statement:
            case CreateTable():
                changed = self._create_table(statement)
            case DropTable():
                changed = self._drop_table(statement)
            case CreateView() | DropView():
                changed = self._change_view(statement)
        if changed:
            self._parsed.clear()  # a text may mean another table now
            self._definitions += 1

    def _create_table(self, statement: CreateTable) -> bool:
        table = statement.table
        folded = fold(table.name)
        known = self._catalog.get(folded)
        if known is not None:
            difference = known.difference(table) if statement.if_missing else ""
            if statement.if_missing and not difference:
                return False
            raise DuplicateTable(known.name, difference)
        self._catalog[folded] = table
        self._stores[folded] = TableStore(table, self._seq)
        return True

    def _drop_table(self, statement: DropTable) -> bool:
        if fold(statement.name) not in self._catalog and statement.if_there:
            return False
        store = self._store(statement.name)
        readers = self._channels.reading(store.table.name)
        if readers:
            raise TableInUse(store.table.name, tuple(channel.name for channel, _ in readers))
        del self._catalog[fold(statement.name)], self._stores[fold(statement.name)]
        return True

    def _change_view(self, statement: CreateView | DropView) -> bool:
        """Whether there are other views now. They are kept ready by a server's warehouse; here is none."""
        hint = "connect to a server, or run the SELECT with engine.query()"
        raise SqlError(statement.name, "an embedded engine has no views", hint)

    def upsert(self, table: str, rows: object, *, nan: Nan = "refuse") -> Batch:
        """Insert or change rows, in order; a column that is not given keeps its value, a new row has NULL there.

        `rows`: a list of dicts, a dict of columns (lists or NumPy arrays), a pyarrow Table, a pandas DataFrame.
        One bad row refuses all, before anything changes; `nan="null"` takes NaN for NULL instead of refusing it.
        """
        return self._upsert(table, *rows_to_columns(rows, table, nan))

    def _upsert(self, table: str, columns: ValueColumns, absent: Masks | None) -> Batch:
        self._check_sound()
        store = self._store(table)
        return self._apply(store, ingest(store.table, columns, absent, self._interner))

    def _apply(self, store: TableStore, encoded: Encoded) -> Batch:
        return self._publish(store, lambda: store.apply(encoded))

    def delete(self, table: str, keys: object) -> Batch:
        """Delete rows by primary key (one key or a list). A key that does not exist changes nothing."""
        return self._delete(table, keys_to_column(keys, table))

    def _delete(self, table: str, keys: Values) -> Batch:
        self._check_sound()
        store = self._store(table)
        codes = ingest_keys(store.table, keys, self._interner)
        return self._publish(store, lambda: store.remove(codes))

    def query(self, sql: str, *parameters: object) -> QueryRows:
        """Run any SELECT that SQLite understands, once, over the current rows. Rows are named tuples."""
        self._check_sound()
        return self._mirror.query(sql, parameters)

    @cached_property
    def _mirror(self) -> Mirror:
        """Made for the first query: from then on it follows the tables that queries name."""
        return Mirror(self._stores, self._interner, self._feed)

    def rows(self, table: str) -> int:
        """How many rows a table has."""
        return len(self._store(table))

    # --- subscriptions ---------------------------------------------------------------------------------

    def subscribe(self, sql: str, *parameters: object, when: object = None, every: object = None) -> Subscription:
        """Subscribe to a SELECT, with the parameters for its `?`. `when` and `every` are for clients of a server."""
        if when is not None or every is not None:
            given = "when" if when is not None else "every"
            remedy = (
                "an embedded engine has no conditional subscriptions; connect to a server, or query() at each event"
            )
            raise BadSetting(given, every if when is None else when, remedy)
        self._check_sound()
        query = self._parse(sql)
        predicates = query.bind(parameters)
        with self._channel(query) as channel:
            listener = channel.admit(predicates)
        return self._subscription(query, channel, listener, predicates)

    def subscribe_many(self, sql: str, *columns: Sequence[object] | np.ndarray[Any, Any]) -> Subscriptions:
        """Subscribe many times at once: one column of values per `?`, one subscription per row."""
        self._check_sound()
        query = self._parse(sql)
        predicates = query.bind_many(columns)
        with self._channel(query) as channel:
            listeners = channel.admit(predicates)
        return Subscriptions(
            query,
            channel,
            listeners,
            lambda i, close: self._subscription(query, channel, listeners[i : i + 1], predicates.only(i), close),
            lambda leaving: self._leave(channel, leaving),
            self._check_sound,
        )

    def open_channel(self, sql: str, *parameters: object) -> str:
        """Compute a channel without a local subscription; batches then carry its messages.

        This is what a server does for subscribers elsewhere. Returns the channel's name. Parameters matter only for
        joins: the messages describe the pairs in this range, or, without the parameters, all pairs.
        """
        self._check_sound()
        query = self._parse(sql)
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
        self._check_sound()
        return {channel.name: channel.statistics() for channel in self._channels}

    def memory_bytes(self) -> int:
        """About how much memory tables, indexes and local subscriptions use."""
        stores = sum(store.memory_bytes() for store in self._stores.values())
        return stores + self._interner.memory_bytes() + self._channels.memory_bytes()

    # --- inside ----------------------------------------------------------------------------------------

    def _publish(self, store: TableStore, change: Callable[[], Updates]) -> Batch:
        """The one way of a batch: change the rows, number it, describe it channel by channel, tell the local
        subscriptions."""
        first_seq = self._seq + 1
        messages: dict[str, Messages] = {}
        readers = self._channels.reading(store.table.name)
        try:
            updates = change()
            self._seq += len(updates)
            self._feed.append(store, first_seq, updates)
            for channel, side in readers:
                if channel.loading():  # it is being opened, and nobody listens yet
                    channel.absorb(side, updates)
                    continue
                described = channel.update(side, updates, first_seq)
                channel.tell(described)
                messages[channel.name] = described
            self._sweep(channel for channel, _ in readers)
        except UsageError:  # the store refuses before it changes anything
            raise
        except BaseException as error:
            self._broken = f"{type(error).__name__} in the batch from update {first_seq} on {error}".rstrip()
            raise
        return Batch(first_seq, self._seq, messages)

    def _check_sound(self) -> None:
        """The rows are stored before channels hear of them; a channel that failed half-way has wrong answers."""
        if self._broken is not None:
            raise InvariantBroken(f"the engine stopped: {self._broken}; make a new one and load it again")

    def _sweep(self, channels: Iterable[Channel]) -> None:
        """Forget groups and texts that nothing refers to any more, where enough have gathered.

        Only after all channels have heard a batch: channels share groups.
        """
        for channel in channels:
            if channel.wants_sweep and not channel.loading():  # it would number all rows at once, and find them in use
                channel.sweep()
                self._sweeps += 1
        if not self._interner.wants_sweep:
            return
        live = [self._feed.live_codes()]
        for store in self._stores.values():
            slots = store.live_slots()
            for position, column in enumerate(store.table.columns):
                if column.type is ColumnType.TEXT:
                    live.append(store.cells[position, slots])
        live.extend(channel.live_codes() for channel in self._channels)
        self._interner.sweep(np.concatenate(live))
        self._sweeps += 1

    def _store(self, table: str) -> TableStore:
        given: object = table
        name = given if isinstance(given, str) else f"a {type(given).__name__}"
        store = self._stores.get(fold(name))
        if store is None:
            raise UnknownTable(name, tuple(known.name for known in self._catalog.values()))
        return store

    def _parse(self, sql: str) -> ParsedQuery:
        if not isinstance(sql, str):
            raise SqlError(type(sql).__name__, "the SQL must be a str")
        query = self._parsed.get(sql)
        if query is None:
            query = parse_subscription(sql, self._catalog)
            if len(self._parsed) >= REMEMBERED_QUERIES:
                self._parsed.clear()
            self._parsed[sql] = query
        return query

    def _open(self, query: ParsedQuery) -> Channel:
        return self._channels.open(query.shape, [self._stores[fold(table.name)] for table in query.tables])

    @contextmanager
    def _channel(self, query: ParsedQuery) -> Iterator[Channel]:
        """The query's channel, opened if need be, and closed again if it was opened for nothing."""
        channel = self._open(query)
        try:
            while not self._channels.load(channel, LOADED_AT_ONCE):
                pass
            yield channel
        finally:
            self._channels.close_if_unused(channel)

    def _subscription(
        self,
        query: ParsedQuery,
        channel: Channel,
        listener: Listeners,
        predicates: Predicates,
        close: Callable[[Subscription], None] | None = None,
    ) -> Subscription:
        def now() -> int:
            self._check_sound()
            return self._seq

        def leave(subscription: Subscription) -> None:
            self._leave(channel, listener)

        number, close = int(listener[0]), close or leave
        match channel:
            case SingleChannel():
                return SingleSubscription(query, channel, number, now, close)
            case CollectionChannel():
                return CollectionSubscription(query, channel, number, now, close, predicates)
        raise InvariantBroken(f"a channel of no known kind: {channel.name}")

    def _leave(self, channel: Channel, listeners: Listeners) -> None:
        channel.dismiss(listeners)
        self._channels.close_if_unused(channel)
        self._sweep((channel,))
