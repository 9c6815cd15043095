"""The engine as a server uses it: remote subscribers, followers, and rows that have travelled."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.engine.catalogue import joins_streams
from hullcast.broker.engine.engine import Engine
from hullcast.broker.engine.publishing import LargeChange
from hullcast.broker.engine.stream import nothing_needed
from hullcast.broker.reformulate.channel import Attended
from hullcast.broker.reformulate.result import ResultChannel
from hullcast.broker.sql.query import Shape
from hullcast.broker.tables.ingest import Encoded, ingest, ingest_keys, ingest_tuples, ingesting
from hullcast.broker.tables.schema import fold
from hullcast.network.answers.kinds import KINDS
from hullcast.network.wire.errors import SqlError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.engine.stream import Needed, Settled, StreamGap
    from hullcast.broker.reformulate.channel import Channel
    from hullcast.broker.reformulate.messages import Batch
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.sql.encode import ParameterColumn
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.sql.subscription import ParsedQuery
    from hullcast.broker.tables.store import Updates
    from hullcast.broker.tables.travel import CodedRows
    from hullcast.network.wire.value_columns import Masks, ValueColumns, Values


class WatchedCondition(NamedTuple):
    """A subscription that the server itself listens to: its channel, and its number there."""

    channel: Channel
    listener: int


class ServedEngine(Engine):
    """The engine of a server, which hands out its parts. Its users see less: `Engine`.

    What texts mean, and which tables there are, its `catalogue` knows; how changes are on their way, `changes`.
    """

    def __init__(self) -> None:
        super().__init__(served=True)
        self.catalogue, self.streams, self.channels = self._catalogue, self._streams, self._channels
        self.changes, self.feed, self.interner = self._changes, self._feed, self._interner

    def upsert_columns(self, table: str, columns: ValueColumns, absent: Masks | None = None) -> Batch:
        """`upsert` of a batch that is columns as they travel, and masks of the rows that lack some."""
        return self._upsert(table, columns, absent)

    def encoded(self, table: str, columns: ValueColumns, absent: Masks | None) -> Encoded:
        """The codes of a batch, to apply together with others; they hold until something is applied."""
        self._changes.check_sound()
        judge = ingest if self._streams.find(table) is None else ingest_tuples
        return judge(self._catalogue.store(table).table, columns, absent, self._interner)

    def recoded(self, rows: CodedRows) -> Encoded:
        """The codes here of rows that another process of ours has coded; they hold until something is applied."""
        self._changes.check_sound()
        return Encoded(rows.recoded(self._interner), partial=False)

    def upserting(self, table: str, columns: ValueColumns, absent: Masks | None) -> Work:
        """A batch in slices, its codes, too; the result is as of `Publishing.upsert`, of the moment of the last slice.
        Tuples that a stream no longer retains stay until `settle_some`."""
        self._changes.check_sound()
        store, stream = self._catalogue.store(table), self._streams.find(table)
        judge, apply = (ingest, store.apply) if stream is None else (ingest_tuples, stream.coming)
        coding = ingesting(judge, store.table, columns, absent, self._interner)
        return self._changes.changing(LargeChange(store, coding, apply, stream))

    def deleting(self, table: str, keys: Values) -> Work:
        """`delete_column` in slices, and what it did to the rows. Not for streams."""
        self._changes.check_sound()
        store = self._catalogue.store(table)

        def coding() -> Work:  # when nobody else gives codes to texts of this table any more
            yield 0.0
            return Encoded(ingest_keys(store.table, keys, self._interner).reshape(1, -1), partial=False)

        return self._changes.changing(LargeChange(store, coding(), lambda some: store.remove(some.cells[0])))

    def settle_some(self, table: str, needed: Needed = nothing_needed) -> Settled | None:
        """Let go of some tuples that have become too old, or too many, for a stream or a window of it; None if there
        are none, or no such stream. Tuples that its joins need stay."""
        stream = self._streams.find(table)
        if stream is None:
            return None
        self._changes.check_sound()
        return self._settle_some(stream, needed)

    def load_rows(self, table: str, rows: ValueColumns) -> None:
        """Rows of a checkpoint, in any order. Those of a stream need `Stream.restore` when all are here."""
        store = self._catalogue.store(table)
        encoded = ingest(store.table, rows, None, self._interner)
        self._changes.publish(store, partial(store.apply, encoded))

    def delete_column(self, table: str, keys: Values) -> tuple[Batch, Updates]:
        return self._delete(table, keys)

    def pass_number(self, count: int = 1) -> int:
        """Sequence numbers under which no row changes: what is delivered with them has its place among the updates.
        Returns the last of them."""
        self._changes.check_sound()
        self._changes.seq += count
        return self._changes.seq

    def mark_gap(self, gap: StreamGap) -> int:
        """Results of a derived stream are missing up to here, the sequence number that this returns."""
        seq, stream = self.pass_number(), self._streams[fold(gap.stream)]
        stream.order.missing(seq)
        if gap.goes_on is not None:
            stream.consumed = stream.logged = gap.goes_on
        return seq

    def start_at(self, seq: int) -> None:
        """Count on from `seq`: the rows loaded so far are those after that update."""
        self._changes.seq = seq

    # --- subscribers elsewhere -----------------------------------------------------------------------------

    def attending(self, sql: str, columns: Sequence[ParameterColumn], count: int = 1) -> Work:
        """Open the channel of subscriptions elsewhere, some rows at a time; the result is an `Attended`.

        They are bound as by `subscribe_many`; without a `?` there are `count`. The channel stays open until
        `forsake`, however often it is attended.
        """
        self._changes.check_sound()
        parsed = self._catalogue.parse(sql)
        query = self._catalogue.executable(parsed)
        predicates = yield from query.binder.binding(columns, count)
        channel = yield from self._opening(query)
        channel.attended = True
        self._let_go(channel)
        return Attended(channel, predicates, query.columns, parsed.shape.tables)

    def watching(self, sql: str, parameters: Sequence[object]) -> Work:
        """Listen to a subscription here, in the server, without a look at its answer; the result is a WatchedCondition.

        Its channel is opened some rows at a time. It stays open until `unwatch`.
        """
        self._changes.check_sound()
        query = self._catalogue.parse(sql)
        if joins_streams(query):
            hint = "CREATE STREAM .. AS SELECT .., and use that stream"
            raise SqlError(" and ".join(query.shape.sources), "a join over streams cannot be a condition", hint)
        predicates = query.bind(parameters)
        channel = yield from self._opening(query)
        try:
            return WatchedCondition(channel, int(channel.admit(predicates)[0]))
        finally:
            self._let_go(channel)

    def unwatch(self, watched: WatchedCondition) -> None:
        self._leave(watched.channel, np.array([watched.listener]))

    def open_result(self, name: str) -> ResultChannel:
        """The channel of a conditional subscription, held until `close_result`."""
        channel = self._channels.open(Shape(KINDS["RESULT"], (), (), (), result=name), ())
        assert isinstance(channel, ResultChannel)
        channel.holders += 1
        return channel

    def close_result(self, channel: ResultChannel) -> None:
        channel.holders -= 1
        self._channels.close_if_unused(channel)

    def described(self, sql: str, parameters: Sequence[object]) -> tuple[ParsedQuery, Predicates, Channel | None]:
        """What a subscription would be: its query, its predicate, and its channel where that is open. Opens nothing."""
        self._changes.check_sound()
        query = self._catalogue.parse(sql)
        return query, query.bind(parameters), self._catalogue.find(query)

    def forsake(self, name: str) -> bool:
        """Nobody elsewhere listens to a channel any more; whether it stays open all the same."""
        channel = self._channels.named(name)
        channel.attended, channel.asked_elsewhere = False, None
        self._channels.close_if_unused(channel)
        return self._channels.find(channel.shape) is channel

    def tidy(self) -> None:
        """Forget windows, groups and texts that nothing refers to any more, also where no row changes for a while."""
        self._changes.check_sound()
        self._streams.windows()
        self._changes.sweep(list(self._channels))
