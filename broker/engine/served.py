"""The engine as a server uses it: remote subscribers, followers, and rows that have travelled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.engine.engine import Engine
from hullcast.broker.queries.derived import HiddenJoin, as_join, bind_derived, is_hidden
from hullcast.broker.queries.view import ViewDefinition, bind_view
from hullcast.broker.queries.view import create_text as view_text
from hullcast.broker.reformulate.channel import Attended
from hullcast.broker.reformulate.channels import channel_name
from hullcast.broker.reformulate.result import ResultChannel
from hullcast.broker.scheduling.driver import finish
from hullcast.broker.sql.create import CreateTable
from hullcast.broker.sql.query import Shape
from hullcast.broker.sql.refusals import call, tables_hint, tables_instead
from hullcast.broker.sql.subscription import ParsedQuery, names_in, parse_subscription
from hullcast.broker.sql.text import shorten
from hullcast.broker.sql.view import CreateView
from hullcast.broker.tables.ingest import Encoded, ingest, ingest_tuples, joined
from hullcast.broker.tables.schema import fold
from hullcast.network.answers.kinds import KINDS
from hullcast.network.wire.errors import (
    DuplicateView,
    InvariantBroken,
    SqlError,
    TableInUse,
    TableInView,
    UnknownTable,
    UnknownView,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hullcast.broker.engine.stream import Settled, Stream
    from hullcast.broker.joins.costs import Coefficients
    from hullcast.broker.reformulate.channel import Channel
    from hullcast.broker.reformulate.messages import Batch
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.sql.create import CreateDerived, DropTable
    from hullcast.broker.sql.encode import ParameterColumn
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.sql.view import DropView
    from hullcast.broker.tables.feed import ChangeFeed
    from hullcast.broker.tables.interning import Texts
    from hullcast.broker.tables.schema import Table
    from hullcast.broker.tables.store import TableStore, Updates
    from hullcast.broker.tables.stream import TimeMark
    from hullcast.broker.tables.travel import CodedRows
    from hullcast.broker.tables.windows import WindowTable
    from hullcast.network.wire.arrays import Floats
    from hullcast.network.wire.value_columns import Masks, ValueColumns, Values


class StreamGap(NamedTuple):
    """Results of a derived stream are missing. `goes_on`: it has all results of what its sources bring behind this
    moment; None if it does not go on yet, or the gap is that of a stream that it is made of."""

    stream: str
    why: str
    goes_on: tuple[float, int] | None

    def encode(self) -> bytes:
        """As the log has it."""
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, payload: bytes) -> StreamGap:
        """What `encode` made."""
        stream, why, goes_on = json.loads(payload)
        return cls(stream, why, None if goes_on is None else (float(goes_on[0]), int(goes_on[1])))


class WatchedCondition(NamedTuple):
    """A subscription that the server itself listens to: its channel, and its number there."""

    channel: Channel
    listener: int


class PlannedWindow(NamedTuple):
    """A window that is not open: its name, and the memory that it would take."""

    name: str
    size_bytes: int


class ServedEngine(Engine):
    """The engine of a server. Its users see less: `Engine`.

    It knows what views there are, and keeps none ready: the warehouse does.
    """

    def __init__(self) -> None:
        super().__init__()
        self._views: dict[str, ViewDefinition] = {}
        #: The last position of a stream that its joins do not need any more; None if it has none.
        self.joins_need: Callable[[Stream], int | None] = lambda stream: None

    @property
    def broken(self) -> bool:
        """Whether a batch failed half-way: then nothing is answered any more."""
        return self._broken is not None

    @property
    def sweeps(self) -> int:
        """How often codes and partition numbers were given back: what remembers some must not outlive a sweep."""
        return self._sweeps

    @property
    def definitions(self) -> int:
        """How often tables were created or dropped: what remembers a text must not outlive that."""
        return self._definitions

    def plan_with(self, coefficients: Coefficients) -> None:
        """Choose among the plans of joins by these costs, in channels opened from now on."""
        self._channels.coefficients = coefficients

    def leave_upkeep(self) -> None:
        """Let channels opened from now on leave long work for `Channel.upkeep`, which the caller runs now and then."""
        self._channels.at_once = False

    def upsert_columns(self, table: str, columns: ValueColumns, absent: Masks | None = None) -> Batch:
        """`upsert` of a batch that is columns as they travel, and masks of the rows that lack some."""
        return self._upsert(table, columns, absent)

    def encoded(self, table: str, columns: ValueColumns, absent: Masks | None) -> Encoded:
        """The codes of a batch, to apply together with others; they hold until something is applied."""
        self._check_sound()
        judge = ingest_tuples if self._streams and fold(table) in self._streams else ingest
        return judge(self._store(table).table, columns, absent, self._interner)

    def recoded(self, rows: CodedRows) -> Encoded:
        """The codes here of rows that another process of ours has coded; they hold until something is applied."""
        self._check_sound()
        return Encoded(rows.recoded(self._interner), partial=False)

    def upsert_encoded(self, table: str, batches: Sequence[Encoded]) -> tuple[Batch, Updates]:
        """`upsert` of batches that follow each other, as one; and what it did to the rows. Tuples that a stream no
        longer retains stay until `settle_some`."""
        self._check_sound()
        store, encoded = self._store(table), joined(batches)
        stream = self._streams.get(fold(table))
        if stream is not None:
            return self._append(stream, encoded)
        done: list[Updates] = []

        def change() -> Updates:
            done.append(store.apply(encoded))
            return done[0]

        return self._publish(store, change), done[0]

    def is_stream(self, table: str) -> bool:
        """Whether a table is a stream."""
        return bool(self._streams) and fold(table) in self._streams

    def settle_some(self, table: str) -> Settled | None:
        """Let go of some tuples that have become too old, or too many, for a stream or a window of it; None if there
        are none, or no such stream."""
        stream = self._streams.get(fold(table)) if self._streams else None
        if stream is None:
            return None
        self._check_sound()
        return self._settle_some(stream)

    def windows(self) -> Mapping[str, WindowTable]:
        """The windows that somebody reads, or is about to, by name."""
        for stream in self._streams.values():
            stream.drop_windows(self._channels.reading)
        return {name: window for stream in self._streams.values() for name, window in stream.windows.items()}

    def window_to_open(self, sql: str) -> PlannedWindow | None:
        """The window that a subscription would open; None if it reads none, or the window is there."""
        query = self._parse(sql)
        if len(query.shape.windows) != 1:  # a join keeps its own
            return None
        (table,), (window,), (name,) = query.tables, query.shape.windows, query.shape.sources
        assert window is not None, "S5"
        stream = self._streams[fold(table.name)]
        return None if name in stream.windows else PlannedWindow(name, stream.window_bytes(window))

    def refuse_delete(self, table: str) -> None:
        """UsageError if nobody may delete rows of a table, because it is a stream."""
        self._refuse_delete(table)

    def load_rows(self, table: str, rows: ValueColumns) -> None:
        """Rows of a checkpoint, in any order. Those of a stream need `restore_stream` when all are here."""
        store = self._store(table)
        encoded = ingest(store.table, rows, None, self._interner)
        self._publish(store, lambda: store.apply(encoded))

    def restore_stream(self, table: str, removed: int, marks: list[TimeMark], gaps: list[int]) -> None:
        """What a checkpoint knows of a stream besides its tuples, which were loaded."""
        self._streams[fold(table)].restore(removed, marks, gaps)

    @property
    def streams(self) -> Mapping[str, Stream]:
        """The streams, by folded name."""
        return self._streams

    def delete_column(self, table: str, keys: Values) -> Batch:
        """`delete` of a column of keys as it travels."""
        return self._delete(table, keys)

    def _spare(self, stream: Stream, positions: Floats) -> Floats:
        """What a join has not consumed stays, though it is too much or too old."""
        needed = self.joins_need(stream) if len(positions) else None
        return positions if needed is None else stream.order.spare(positions, needed)

    # --- derived streams -----------------------------------------------------------------------------------

    @property
    def shown_tables(self) -> Mapping[str, Table]:
        """The tables and streams that users know of, by their declared names."""
        return {name: table for name, table in self.tables.items() if not is_hidden(name)}

    @property
    def derived(self) -> list[Stream]:
        """The streams whose tuples are the results of a SELECT."""
        return [stream for stream in self._streams.values() if _source(stream.store.table)]

    def reading(self, table: str) -> list[Table]:
        """The derived streams that are made of a table or stream."""
        name = fold(table)
        return [stream.store.table for stream in self.derived if name in names_in(_source(stream.store.table))]

    def mark_gap(self, gap: StreamGap) -> int:
        """Results of a derived stream are missing up to here, the sequence number that this returns."""
        seq, stream = self.pass_number(), self._streams[fold(gap.stream)]
        stream.order.missing(seq)
        if gap.goes_on is not None:
            stream.consumed = stream.logged = gap.goes_on
        return seq

    def restore_consumed(self, payload: bytes) -> None:
        """What the log says of how far a derived stream had come (RecordKind.CONSUMED)."""
        gap = StreamGap.decode(payload)
        stream = self._streams[fold(gap.stream)]
        stream.consumed = stream.logged = gap.goes_on

    def refuse_publish(self, table: str) -> None:
        """UsageError if nobody may publish to a table, because it is a derived stream."""
        stream = self._streams.get(fold(table)) if self._streams else None
        if stream is not None and _source(stream.store.table):
            name = stream.store.table.name
            raise UsageError(
                f"{name} is a derived stream: its tuples are the results of its SELECT; publish to its sources"
            )

    def join_to_make(self, sql: str) -> str | None:
        """The statement that makes the stream behind a subscription to a join over streams; None if the text is no such
        subscription, or the stream is there."""
        query = self._parse(sql)
        if not _is_join(query):
            return None
        hidden = HiddenJoin(query)
        return None if fold(hidden.name) in self._catalog else hidden.statement_text

    def derived_behind(self, sql: str) -> list[str]:
        """The derived streams that a subscription reads; one to a join over streams reads its own, if it is there."""
        query = self._parse(sql)
        names = [HiddenJoin(query).name] if _is_join(query) else list(query.shape.tables)
        found = (self._streams.get(fold(name)) for name in names)
        return [stream.store.table.name for stream in found if stream is not None and _source(stream.store.table)]

    def join_planned(self, sql: str) -> Table | None:
        """The stream that a subscription to a join over streams would read; None if there it is, or is not needed."""
        query = self._parse(sql)
        if not _is_join(query):
            return None
        hidden = HiddenJoin(query)
        return None if fold(hidden.name) in self._catalog else bind_derived(hidden.statement, self._catalog)

    def made_of(self, stream: Table) -> ParsedQuery:
        """The SELECT whose results are the tuples of a derived stream."""
        return self._parse(_source(stream))

    def source_shown(self, stream: Table) -> str:
        """That SELECT as users know it: their own text, or of a hidden stream the join that subscriptions name."""
        if not is_hidden(stream.name):
            return _source(stream)
        made_of = self.made_of(stream)
        return channel_name(made_of.shape, made_of.tables)

    def channel_shown(self, channel: Channel) -> str:
        """The name of a channel as users would write it: a hidden stream is the join that it holds."""
        stream = self._catalog.get(fold(channel.shape.tables[0])) if channel.shape.tables else None
        if stream is None or not is_hidden(stream.name):
            return channel.name
        made_of = self.made_of(stream)
        return channel_name(as_join(channel.shape, made_of), made_of.tables)

    def _executable(self, query: ParsedQuery) -> ParsedQuery:
        """A query as one over what channels can read: a join over streams as one over its own stream."""
        if not _is_join(query):
            return query
        hidden = HiddenJoin(query)
        stream = self._catalog.get(fold(hidden.name))
        if stream is None:
            raise InvariantBroken(f"{hidden.name} was not made")
        return hidden.rewritten(stream)

    def _check_executable(self, query: ParsedQuery) -> None:
        if _is_join(query):
            HiddenJoin(query)  # SqlError if it cannot be made

    def _open(self, query: ParsedQuery, window: WindowTable | None) -> Channel:
        super()._check_executable(query)  # a join over streams is one over its own stream by now, or was not served
        return super()._open(query, window)

    def derivable(self, statement: CreateDerived) -> Table | None:
        """The derived stream that a statement would make; None if one of that name is there."""
        return None if fold(statement.name) in self._catalog else bind_derived(statement, self._catalog)

    def _create_derived(self, statement: CreateDerived) -> bool:
        known = self._views.get(fold(statement.name))
        if known is not None:
            raise DuplicateView(known.name)
        return self._create_table(CreateTable(bind_derived(statement, self._catalog), statement.if_missing))

    # --- views -------------------------------------------------------------------------------------------

    @property
    def views(self) -> Mapping[str, ViewDefinition]:
        """The views, by folded name."""
        return self._views

    def spelt(self, names: Sequence[str]) -> list[str]:
        """The tables and views of these folded names as they were created."""
        found = (self._catalog.get(name) or self._views.get(name) for name in names)
        return [name if known is None else known.name for name, known in zip(names, found, strict=True)]

    def tables_spelt(self, names: Sequence[str]) -> tuple[str, ...]:
        """These tables and views as they were created; names that there are not, as they are given."""
        return tuple(self.spelt(tuple(map(fold, names))))

    def followable(self, names: Sequence[str]) -> tuple[str, ...]:
        """These tables and streams as they were created; UnknownTable or SqlError if one of them cannot be followed."""
        for name in names:
            if fold(name) in self._views:
                reason = "it is a view, which changes whenever a table changes that it reads"
                raise SqlError(self._views[fold(name)].name, reason, "name those tables in `when`")
            if fold(name) not in self._catalog or is_hidden(name):
                raise UnknownTable(name, tuple(self.shown_tables))
        return self.tables_spelt(names)

    def views_named(self, sql: str) -> list[ViewDefinition]:
        """The views that occur in a text."""
        if not self._views or sql in self._parsed:  # a subscription reads none
            return []
        return [self._views[name] for name in names_in(sql) if name in self._views]

    def bound(self, statement: CreateView) -> ViewDefinition | None:
        """What CREATE VIEW would create; None if the same view exists and may. DuplicateView, UnknownTable or SqlError
        if it cannot be."""
        name = fold(statement.name)
        if name in self._catalog:
            raise DuplicateView(self._catalog[name].name, "table")
        definition, known = bind_view(statement, self._catalog, self._views), self._views.get(name)
        if known is None:
            return definition
        if not statement.if_missing:
            raise DuplicateView(known.name)
        if known != definition:
            raise DuplicateView(known.name, "view", shorten(view_text(known)))
        return None

    def _create_table(self, statement: CreateTable) -> bool:
        known = self._views.get(fold(statement.table.name))
        if known is not None:
            raise DuplicateView(known.name)
        return super()._create_table(statement)

    def _drop_table(self, statement: DropTable) -> bool:
        name = fold(statement.name)
        readers = [view for view in self._views.values() if any(fold(table.name) == name for table in view.tables)]
        if readers:
            raise TableInView(self._store(statement.name).table.name, tuple(view.name for view in readers))
        made_of = self.reading(statement.name)
        if made_of and name in self._catalog:
            names = [_source(table) if is_hidden(table.name) else f"stream {table.name}" for table in made_of]
            raise TableInUse(self._store(statement.name).table.name, tuple(names))
        return super()._drop_table(statement)

    def _change_view(self, statement: CreateView | DropView) -> bool:
        if isinstance(statement, CreateView):
            definition = self.bound(statement)
            if definition is not None:
                self._views[fold(statement.name)] = definition
            return definition is not None
        if self._views.pop(fold(statement.name), None) is None:
            if not statement.if_there:
                raise UnknownView(statement.name, tuple(view.name for view in self._views.values()))
            return False
        return True

    def _parse(self, sql: str) -> ParsedQuery:
        try:
            return super()._parse(sql)
        except UnknownTable as error:
            view = self._views.get(fold(error.table))
            if view is None:
                raise
            raise self.not_pushed(view, sql) from None

    def not_pushed(
        self, view: ViewDefinition, sql: str, when: Sequence[str] = (), *, condition: bool = False
    ) -> SqlError:
        """The error for a subscription to a view, or a condition on one; `when`: the tables to name to its author."""
        if condition:
            hint = tables_hint(when) if when else 'use every="1h" instead of when='
        else:
            hint = f"to get all rows whenever {' or '.join(when)} changes: " if when else "to get all rows every hour: "
            hint += call(sql, "?" in sql, when=when, every="1h")
        return SqlError(view.name, "it is a view, whose changes are not pushed one by one", hint)

    def _store(self, table: str) -> TableStore:
        given: object = table
        view = self._views.get(fold(given)) if isinstance(given, str) else None
        if view is not None:
            reason = f"{view.name} is a view, not a table: name a table that it reads, or DROP VIEW {view.name}"
            raise UsageError(reason)
        return super()._store(table)

    def pass_number(self, count: int = 1) -> int:
        """Sequence numbers under which no row changes: what is delivered with them has its place among the updates.
        Returns the last of them."""
        self._check_sound()
        self._seq += count
        return self._seq

    # --- followers ---------------------------------------------------------------------------------------

    @property
    def feed(self) -> ChangeFeed:
        """What changed, for its followers."""
        return self._feed

    @property
    def stores(self) -> Mapping[str, TableStore]:
        """The rows of all tables, by folded name, for followers of the feed."""
        return self._stores

    def store_of(self, table: str) -> TableStore:
        """The rows of a table, for followers of the feed; UnknownTable if there is none of that name."""
        return self._store(table)

    @property
    def texts(self) -> Texts:
        """The texts of all codes in use now, to decode with later."""
        return self._interner.texts

    def start_at(self, seq: int) -> None:
        """Count on from `seq`: the rows loaded so far are those after that update."""
        self._seq = seq

    # --- subscribers elsewhere -----------------------------------------------------------------------------

    def attending(self, sql: str, columns: Sequence[ParameterColumn], count: int = 1) -> Work:
        """Open the channel of subscriptions elsewhere, some rows at a time; the result is an `Attended`.

        They are bound as by `subscribe_many`; without a `?` there are `count`. The channel stays open until
        `forsake`, however often it is attended.
        """
        self._check_sound()
        parsed = self._parse(sql)
        query = self._executable(parsed)
        predicates = query.bind_many(columns, count)
        channel = yield from self._opening(query)
        channel.attended = True
        self._let_go(channel)
        return Attended(channel, predicates, query.columns, parsed.shape.tables)

    def attend(self, sql: str, columns: Sequence[ParameterColumn], count: int = 1) -> Attended:
        """`attending`, all of it now."""
        attended: Attended = finish(self.attending(sql, columns, count))
        attended.channel.want(attended.channel.points_elsewhere(attended.predicates))
        return attended

    def watching(self, sql: str, parameters: Sequence[object]) -> Work:
        """Listen to a subscription here, in the server, without a look at its answer; the result is a WatchedCondition.

        Its channel is opened some rows at a time. It stays open until `unwatch`.
        """
        self._check_sound()
        query = self._parse(sql)
        if _is_join(query):
            hint = "CREATE STREAM .. AS SELECT .., and use that stream"
            raise SqlError(" and ".join(query.shape.sources), "a join over streams cannot be a condition", hint)
        predicates = query.bind(parameters)
        channel = yield from self._opening(query)
        try:
            return WatchedCondition(channel, int(channel.admit(predicates)[0]))
        finally:
            self._let_go(channel)

    def unwatch(self, watched: WatchedCondition) -> None:
        """Listen no longer."""
        self._leave(watched.channel, np.array([watched.listener]))

    def open_result(self, name: str) -> ResultChannel:
        """The channel of a conditional subscription, held until `close_result`."""
        channel = self._channels.open(Shape(KINDS["RESULT"], (), (), (), result=name), ())
        assert isinstance(channel, ResultChannel)
        channel.holders += 1
        return channel

    def close_result(self, channel: ResultChannel) -> None:
        """Undo one `open_result`."""
        channel.holders -= 1
        self._channels.close_if_unused(channel)

    def described(self, sql: str, parameters: Sequence[object]) -> tuple[ParsedQuery, Predicates, Channel | None]:
        """What a subscription would be: its query, its predicate, and its channel where that is open. Opens nothing."""
        self._check_sound()
        query = self._parse(sql)
        made = not _is_join(query) or fold(HiddenJoin(query).name) in self._catalog
        channel = self._channels.find(self._executable(query).shape) if made else None
        return query, query.bind(parameters), channel

    def channel_name(self, query: ParsedQuery) -> str:
        """How a query's channel is, or would be, called."""
        return channel_name(query.shape, query.tables)

    def channel_needed(self, sql: str) -> str:
        """The name of the channel that a subscription or a condition reads, open or not."""
        query = self._parse(sql)
        made = not _is_join(query) or fold(HiddenJoin(query).name) in self._catalog
        return self.channel_name(self._executable(query) if made else query)

    def condition_needed(self, when: str) -> str:
        """`channel_needed` of a condition; an error says what to give as `when` instead."""
        if when not in self._parsed:
            parse_subscription(when, self._catalog, tables_instead)
        return self.channel_needed(when)

    def tables_of(self, sql: str) -> tuple[str, ...]:
        """The tables that a subscription reads."""
        return tuple(table.name for table in self._parse(sql).tables)

    def tables_named(self, sql: str) -> tuple[str, ...]:
        """The tables that occur in a text, whether or not it is a subscription: whoever may not see them shall not
        learn from our errors what is in them."""
        if sql in self._parsed:
            return self.tables_of(sql)
        return tuple(self._catalog[name].name for name in names_in(sql) if name in self._catalog)

    def forsake(self, name: str) -> bool:
        """Nobody elsewhere listens to a channel any more; whether it stays open all the same."""
        channel = self._channels.named(name)
        channel.attended, channel.asked_elsewhere = False, None
        self._channels.close_if_unused(channel)
        return self._channels.find(channel.shape) is channel

    def tidy(self) -> None:
        """Forget windows, groups and texts that nothing refers to any more, also where no row changes for a while."""
        self._check_sound()
        self.windows()
        self._sweep(list(self._channels))


def _source(table: Table) -> str:
    """The SELECT that a derived stream is made by; empty for anything else."""
    return "" if table.stream is None else table.stream.source


def _is_join(query: ParsedQuery) -> bool:
    """Whether a subscription joins streams with each other or with a table."""
    return query.shape.kind.name == "TUPLES" and query.shape.on is not None
