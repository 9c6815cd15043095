"""What a server asks of an engine beyond what users do: subscribers elsewhere, followers, rows that have travelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.engine.engine import LOADED_AT_ONCE, Engine
from hullcast.broker.queries.view import ViewDefinition, bind_view
from hullcast.broker.queries.view import create_text as view_text
from hullcast.broker.reformulate.channel import Attended
from hullcast.broker.reformulate.channels import channel_name
from hullcast.broker.reformulate.result import ResultChannel
from hullcast.broker.scheduling.driver import finish
from hullcast.broker.sql.query import Shape
from hullcast.broker.sql.subscription import ParsedQuery, names_in
from hullcast.broker.sql.text import shorten
from hullcast.broker.sql.view import CreateView
from hullcast.broker.tables.ingest import ingest, joined
from hullcast.broker.tables.schema import fold
from hullcast.network.answers.kinds import KINDS
from hullcast.network.wire.errors import DuplicateView, SqlError, TableInView, UnknownTable, UnknownView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hullcast.broker.joins.costs import Coefficients
    from hullcast.broker.reformulate.channel import Channel
    from hullcast.broker.reformulate.messages import Batch
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.sql.create import CreateTable, DropTable
    from hullcast.broker.sql.encode import ParameterColumn
    from hullcast.broker.sql.query import Predicates
    from hullcast.broker.sql.view import DropView
    from hullcast.broker.tables.feed import ChangeFeed
    from hullcast.broker.tables.ingest import Encoded
    from hullcast.broker.tables.interning import Texts
    from hullcast.broker.tables.store import TableStore, Updates
    from hullcast.network.wire.value_columns import Masks, ValueColumns, Values


class WatchedCondition(NamedTuple):
    """A subscription that the server itself listens to: its channel, and its number there."""

    channel: Channel
    listener: int


#: About how long it takes a channel being opened to take in `LOADED_AT_ONCE` rows.
LOAD_COST_S = 0.001


class ServedEngine(Engine):
    """The engine of a server. Its users see less: `Engine`.

    It knows what views there are, and keeps none ready: the warehouse does.
    """

    def __init__(self) -> None:
        super().__init__()
        self._views: dict[str, ViewDefinition] = {}

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
        return ingest(self._store(table).table, columns, absent, self._interner)

    def upsert_encoded(self, table: str, batches: Sequence[Encoded]) -> tuple[Batch, Updates]:
        """`upsert` of batches that follow each other, as one; and what it did to the rows."""
        self._check_sound()
        store, encoded = self._store(table), joined(batches)
        done: list[Updates] = []

        def change() -> Updates:
            done.append(store.apply(encoded))
            return done[0]

        return self._publish(store, change), done[0]

    def delete_column(self, table: str, keys: Values) -> Batch:
        """`delete` of a column of keys as it travels."""
        return self._delete(table, keys)

    # --- views -------------------------------------------------------------------------------------------

    @property
    def views(self) -> Mapping[str, ViewDefinition]:
        """The views, by folded name."""
        return self._views

    def spelt(self, names: Sequence[str]) -> list[str]:
        """The tables and views of these folded names as they were created."""
        found = (self._catalog.get(name) or self._views.get(name) for name in names)
        return [name if known is None else known.name for name, known in zip(names, found, strict=True)]

    def views_named(self, sql: str) -> list[ViewDefinition]:
        """The views that occur in a text."""
        return [self._views[name] for name in names_in(sql) if name in self._views] if self._views else []

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
            hint = "subscribe with when=.. or every=.., or ask for it with query()"
            raise SqlError(view.name, "it is a view, whose changes are not pushed one by one", hint) from None

    def pass_number(self) -> int:
        """A sequence number under which no row changes: what is delivered with it has its place among the updates."""
        self._check_sound()
        self._seq += 1
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
        query = self._parse(sql)
        predicates = query.bind_many(columns, count)
        channel = self._open(query)
        channel.holders += 1  # nobody shall close it meanwhile, or drop its tables
        try:
            while not self._channels.load(channel, LOADED_AT_ONCE):
                yield LOAD_COST_S
                self._check_sound()
            channel.attended = True
        finally:
            channel.holders -= 1
            self._channels.close_if_unused(channel)
        return Attended(channel, predicates, query.columns)

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
        predicates = query.bind(parameters)
        channel = self._open(query)
        channel.holders += 1  # nobody shall close it meanwhile, or drop its tables
        try:
            while not self._channels.load(channel, LOADED_AT_ONCE):
                yield LOAD_COST_S
                self._check_sound()
            return WatchedCondition(channel, int(channel.admit(predicates)[0]))
        finally:
            channel.holders -= 1
            self._channels.close_if_unused(channel)

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
        return query, query.bind(parameters), self._channels.find(query.shape)

    def channel_name(self, query: ParsedQuery) -> str:
        """How a query's channel is, or would be, called."""
        return channel_name(query.shape, query.tables)

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
        """Forget groups and texts that nothing refers to any more, also where no row changes for a while."""
        self._check_sound()
        self._sweep(list(self._channels))
