"""The engine: tables, channels and local subscriptions in one process, without sockets, disk or clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from broker.channels import Channels
from broker.ingest import ingest, ingest_keys
from broker.interning import Interner
from broker.messages import Batch, Messages
from broker.mirror import Mirror
from broker.reformulate.channel import CollectionChannel, ScalarChannel
from broker.reformulate.join import JoinChannel
from broker.schema import ColumnType
from broker.sql.create import CreateTable, parse_statement
from broker.sql.subscription import ParsedQuery, parse_subscription
from broker.store import TableStore, Updates
from broker.subscription import CollectionSubscription, ScalarSubscription, Subscription
from broker.subscriptions import Subscriptions
from network.wire.errors import DuplicateTable, InvariantBroken, TableInUse, UnknownTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.reformulate.channel import Channel, ChannelStatistics
    from broker.schema import Table

#: Parsed texts remembered, so that the same SQL with other parameters is parsed once.
REMEMBERED_QUERIES = 1024


class Engine:
    """Subscribe to SQL over tables in this process.

    One method changes the rows (`_publish`); every other one reads, opens or closes. An update has a sequence
    number; after it every subscription's `answer` equals its SQL on the rows as they are then, and each
    subscription whose answer changed has one event more.

    `event_limit` bounds the events waiting per channel: beyond it the oldest is dropped and its subscription
    resynchronised when next drained. Not safe for use by several threads at once.
    """

    def __init__(self, *, event_limit: int = 1 << 18) -> None:
        self._stores: dict[str, TableStore] = {}
        self._catalog: dict[str, Table] = {}
        self._interner = Interner()
        self._channels = Channels(self._interner, event_limit)
        self._mirror = Mirror(self._stores, self._interner)
        self._parsed: dict[str, ParsedQuery] = {}
        self._seq = 0

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
        """Run CREATE TABLE or DROP TABLE."""
        statement = parse_statement(sql)
        if isinstance(statement, CreateTable):
            table = statement.table
            folded = table.name.casefold()
            if folded in self._catalog:
                raise DuplicateTable(self._catalog[folded].name)
            self._catalog[folded] = table
            self._stores[folded] = TableStore(table)
        else:
            store = self._store(statement.name)
            readers = self._channels.reading(store.table.name)
            if readers:
                raise TableInUse(store.table.name, tuple(channel.name for channel, _ in readers))
            del self._catalog[statement.name.casefold()], self._stores[statement.name.casefold()]
        self._parsed.clear()  # a text may mean another table now

    def upsert(self, table: str, rows: object) -> Batch:
        """Insert or change rows, in order; a column that is not given keeps its value.

        `rows`: a list of dicts, a dict of columns (lists or NumPy arrays), a pyarrow Table, a pandas DataFrame.
        One bad row refuses all, before anything changes.
        """
        store = self._store(table)
        encoded = ingest(store.table, rows, self._interner)
        return self._publish(store, store.apply(encoded))

    def delete(self, table: str, keys: object) -> Batch:
        """Remove rows by primary key; a key that is not there changes nothing."""
        store = self._store(table)
        return self._publish(store, store.remove(ingest_keys(store.table, keys, self._interner)))

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Read the current state once, with any SELECT that SQLite runs; rows as named tuples."""
        return self._mirror.query(sql, parameters)

    def rows(self, table: str) -> int:
        """How many rows a table has."""
        return len(self._store(table))

    # --- subscriptions ---------------------------------------------------------------------------------

    def subscribe(self, sql: str, *parameters: object) -> Subscription:
        """Subscribe to a SELECT, its `?` bound to the parameters."""
        query = self._parse(sql)
        predicates = query.bind(parameters)
        channel = self._channel(query)
        listener = int(channel.admit(predicates)[0])
        return self._subscription(query, channel, listener, predicates, 0)

    def subscribe_many(self, sql: str, *columns: Sequence[object] | np.ndarray[Any, Any]) -> Subscriptions:
        """Subscribe many times at once: one column of values per `?`, one subscription per row of them."""
        query = self._parse(sql)
        predicates = query.bind_many(columns)
        channel = self._channel(query)
        listeners = channel.admit(predicates)
        return Subscriptions(
            query,
            channel,
            listeners,
            lambda i: self._subscription(query, channel, int(listeners[i]), predicates, i),
            lambda: self._leave(channel, listeners),
        )

    def open_channel(self, sql: str, *parameters: object) -> str:
        """Compute a channel although nobody here subscribes to it; batches then carry its messages.

        This is what a server does for subscribers elsewhere. Returns the channel's name. Parameters matter only for
        the width of a band join.
        """
        query = self._parse(sql)
        channel = self._channel(query)
        channel.holders += 1
        if isinstance(channel, JoinChannel):
            channel.widen(query.bind(parameters))
        return channel.name

    def close_channel(self, name: str) -> None:
        """Take one `open_channel` back."""
        channel = self._channels.named(name)
        channel.holders = max(0, channel.holders - 1)
        self._channels.close_if_unused(channel)

    def statistics(self) -> dict[str, ChannelStatistics]:
        """Per open channel, by name."""
        return {channel.name: channel.statistics() for channel in self._channels}

    def memory_bytes(self) -> int:
        """About what tables, indexes and local subscriptions hold."""
        stores = sum(store.memory_bytes() for store in self._stores.values())
        return stores + self._interner.memory_bytes() + sum(c.memory_bytes() for c in self._channels)

    # --- inside ----------------------------------------------------------------------------------------

    def _publish(self, store: TableStore, updates: Updates) -> Batch:
        """The one way of a batch: number it, describe it channel by channel, tell the local subscriptions."""
        first_seq = self._seq + 1
        self._seq += len(updates)
        messages: dict[str, Messages] = {}
        for channel, side in self._channels.reading(store.table.name):
            described = channel.update(side, updates, first_seq)
            channel.tell(described)
            messages[channel.name] = described
            if channel.wants_sweep:
                channel.sweep()
        if self._interner.wants_sweep:
            self._sweep()
        return Batch(first_seq, self._seq, messages)

    def _sweep(self) -> None:
        """Forget texts that nothing refers to any more."""
        live = [np.empty(0)]
        for store in self._stores.values():
            slots = store.live_slots()
            for position, column in enumerate(store.table.columns):
                if column.type is ColumnType.TEXT:
                    live.append(store.cells[position, slots])
        live.extend(channel.live_codes() for channel in self._channels)
        self._interner.sweep(np.concatenate(live))

    def _store(self, table: str) -> TableStore:
        store = self._stores.get(str(table).casefold())
        if store is None:
            raise UnknownTable(str(table), tuple(known.name for known in self._catalog.values()))
        return store

    def _parse(self, sql: str) -> ParsedQuery:
        query = self._parsed.get(sql)
        if query is None:
            query = parse_subscription(sql, self._catalog)
            if len(self._parsed) >= REMEMBERED_QUERIES:
                self._parsed.clear()
            self._parsed[sql] = query
        return query

    def _channel(self, query: ParsedQuery) -> Channel:
        stores = [self._stores[table.name.casefold()] for table in query.tables]
        return self._channels.open(query.shape, stores)

    def _subscription(
        self, query: ParsedQuery, channel: Channel, listener: int, predicates: Any, row: int
    ) -> Subscription:
        def now() -> int:
            return self._seq

        def close(subscription: Subscription) -> None:
            self._leave(channel, np.array([listener]))

        match channel:
            case ScalarChannel():
                return ScalarSubscription(query, channel, listener, now, close)
            case CollectionChannel():
                return CollectionSubscription(query, channel, listener, now, close, predicates, row)
        raise InvariantBroken(f"a channel of no known kind: {channel.name}")

    def _leave(self, channel: Channel, listeners: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        channel.audience.dismiss(listeners)
        self._channels.close_if_unused(channel)
