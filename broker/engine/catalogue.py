"""The catalogue: which tables, streams and views there are, and what the texts of users name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hullcast.broker.engine.stream import Stream, source
from hullcast.broker.queries.derived import HiddenJoin, as_join, bind_derived, is_hidden
from hullcast.broker.queries.view import bind_view
from hullcast.broker.queries.view import create_text as view_text
from hullcast.broker.reformulate.channels import channel_name
from hullcast.broker.sql.create import CreateDerived, CreateTable, DropTable
from hullcast.broker.sql.refusals import call, tables_hint, tables_instead
from hullcast.broker.sql.subscription import ParsedQuery, names_in, parse_subscription
from hullcast.broker.sql.text import shorten
from hullcast.broker.sql.view import CreateView, DropView
from hullcast.broker.tables.schema import fold
from hullcast.broker.tables.store import TableStore
from hullcast.network.wire.errors import (
    DuplicateTable,
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
    from collections.abc import Mapping, Sequence

    from hullcast.broker.engine.publishing import Publishing
    from hullcast.broker.engine.stream import Streams
    from hullcast.broker.queries.view import ViewDefinition
    from hullcast.broker.reformulate.channel import Channel
    from hullcast.broker.reformulate.channels import Channels
    from hullcast.broker.sql.create import Definition
    from hullcast.broker.tables.schema import Table

#: Parsed texts remembered, so that the same SQL with other parameters is parsed once.
REMEMBERED_QUERIES = 1024


class PlannedWindow(NamedTuple):
    """A window that is not open: its name, and the memory that it would take."""

    name: str
    size_bytes: int


class Catalogue:
    """Tables, streams and views by their names, and subscriptions by their texts.

    A server has derived streams, and views, which its warehouse keeps ready; an embedded engine refuses both.
    """

    def __init__(
        self, stores: dict[str, TableStore], streams: Streams, channels: Channels, changes: Publishing, *, served: bool
    ) -> None:
        self.stores = stores  # the rows of all tables, by folded name
        self.views: dict[str, ViewDefinition] = {}  # by folded name
        self.definitions = 0  # how often there were others: what remembers a text must not outlive that
        self._streams, self._channels, self._changes, self._served = streams, channels, changes, served
        self._tables: dict[str, Table] = {}
        self._parsed: dict[str, ParsedQuery] = {}

    # --- tables and views ----------------------------------------------------------------------------------

    @property
    def tables(self) -> Mapping[str, Table]:
        return {table.name: table for table in self._tables.values()}

    @property
    def shown_tables(self) -> Mapping[str, Table]:
        return {name: table for name, table in self.tables.items() if not is_hidden(name)}

    def store(self, table: str) -> TableStore:
        """The rows of a table or stream; UnknownTable or UsageError if there is none of that name."""
        given: object = table
        name = given if isinstance(given, str) else f"a {type(given).__name__}"
        store = self.stores.get(fold(name))
        if store is not None:
            return store
        view = self.views.get(fold(name))
        if view is not None:
            reason = f"{view.name} is a view, not a table: name a table that it reads, or DROP VIEW {view.name}"
            raise UsageError(reason)
        raise UnknownTable(name, tuple(self.tables))

    def stream(self, name: str) -> Stream:
        store = self.store(name)
        if fold(name) not in self._streams:
            raise SqlError(store.table.name, "it is a table, not a stream", "only streams have a time")
        return self._streams[fold(name)]

    def change(self, statement: Definition) -> None:
        match statement:
            case CreateTable():
                changed = self._create_table(statement)
            case CreateDerived():
                hint = "connect to a server, or CREATE STREAM with columns and upsert() the tuples"
                self._check_served(statement.name, "streams that are derived from others", hint)
                self._check_no_view(statement.name)
                table = bind_derived(statement, self._tables)
                changed = self._create_table(CreateTable(table, statement.if_missing))
            case DropTable():
                changed = self._drop_table(statement)
            case CreateView() | DropView():
                hint = "connect to a server, or run the SELECT with engine.query()"
                self._check_served(statement.name, "views", hint)
                changed = self._change_view(statement)
        if changed:
            self._parsed.clear()  # a text may mean another table now
            self.definitions += 1

    def _check_served(self, name: str, what: str, hint: str) -> None:
        if not self._served:
            raise SqlError(name, f"an embedded engine has no {what}", hint)

    def _check_no_view(self, name: str) -> None:
        if fold(name) in self.views:
            raise DuplicateView(self.views[fold(name)].name)

    def _create_table(self, statement: CreateTable) -> bool:
        table = statement.table
        folded = fold(table.name)
        self._check_no_view(folded)
        known = self._tables.get(folded)
        if known is not None:
            difference = known.difference(table) if statement.if_missing else ""
            if statement.if_missing and not difference:
                return False
            raise DuplicateTable(known.name, difference, known.word)
        self._tables[folded] = table
        self.stores[folded] = TableStore(table, self._changes.seq)
        if table.stream is not None:
            self._streams[folded] = Stream(self.stores[folded])
        return True

    def _drop_table(self, statement: DropTable) -> bool:
        folded = fold(statement.name)
        if folded not in self._tables and statement.if_there:
            return False
        table = self.store(statement.name).table
        views = [view.name for view in self.views.values() if any(fold(read.name) == folded for read in view.tables)]
        if views:
            raise TableInView(table.name, tuple(views))
        made_of = self._streams.reading(folded)
        if made_of:
            names = [source(derived) if is_hidden(derived.name) else f"stream {derived.name}" for derived in made_of]
            raise TableInUse(table.name, tuple(names))
        if table.word != statement.word:
            hint = f"DROP {table.word.upper()} {table.name}"
            raise SqlError(table.name, f"it is a {table.word}, not a {statement.word}", hint)
        windows = self._streams[folded].windows if folded in self._streams else {}
        readers = [reader for read in (table.name, *windows) for reader in self._channels.reading(read)]
        names = [channel.name for channel, _ in readers]
        names += [window.name for window in windows.values() if window.holders]
        if names:
            raise TableInUse(table.name, tuple(names))
        self._changes.check_free((folded,))
        del self._tables[folded], self.stores[folded]
        self._streams.pop(folded, None)
        return True

    def _change_view(self, statement: CreateView | DropView) -> bool:
        if isinstance(statement, CreateView):
            definition = self.bound(statement)
            if definition is not None:
                self.views[fold(statement.name)] = definition
            return definition is not None
        known = self.views.pop(fold(statement.name), None)
        if known is None and not statement.if_there:
            raise UnknownView(statement.name, tuple(view.name for view in self.views.values()))
        return known is not None

    def bound(self, statement: CreateView) -> ViewDefinition | None:
        """What CREATE VIEW would create; None if the same view exists and may. DuplicateView, UnknownTable or SqlError
        if it cannot be."""
        name = fold(statement.name)
        if name in self._tables:
            raise DuplicateView(self._tables[name].name, "table")
        definition, known = bind_view(statement, self._tables, self.views), self.views.get(name)
        if known is None:
            return definition
        if not statement.if_missing:
            raise DuplicateView(known.name)
        if known != definition:
            raise DuplicateView(known.name, "view", shorten(view_text(known)))
        return None

    def derivable(self, statement: CreateDerived) -> Table | None:
        """The derived stream that a statement would make; None if one of that name is there."""
        return None if fold(statement.name) in self._tables else bind_derived(statement, self._tables)

    # --- names in texts ------------------------------------------------------------------------------------

    def spelt(self, names: Sequence[str]) -> tuple[str, ...]:
        """These tables and views as they were created; names that there are not, as they are given."""
        found = (self._tables.get(fold(name)) or self.views.get(fold(name)) for name in names)
        return tuple(name if known is None else known.name for name, known in zip(names, found, strict=True))

    def followable(self, names: Sequence[str]) -> tuple[str, ...]:
        """These tables and streams as they were created; UnknownTable or SqlError if one of them cannot be followed."""
        for name in names:
            if fold(name) in self.views:
                reason = "it is a view, which changes whenever a table changes that it reads"
                raise SqlError(self.views[fold(name)].name, reason, "name those tables in `when`")
            if fold(name) not in self._tables or is_hidden(name):
                raise UnknownTable(name, tuple(self.shown_tables))
        return self.spelt(names)

    def views_named(self, sql: str) -> list[ViewDefinition]:
        if not self.views or sql in self._parsed:  # a subscription reads none
            return []
        return [self.views[name] for name in names_in(sql) if name in self.views]

    def tables_of(self, sql: str) -> tuple[str, ...]:
        return tuple(table.name for table in self.parse(sql).tables)

    def tables_named(self, sql: str) -> tuple[str, ...]:
        """The tables that occur in a text, whether or not it is a subscription: whoever may not see them shall not
        learn from our errors what is in them."""
        if sql in self._parsed:
            return self.tables_of(sql)
        return tuple(self._tables[name].name for name in names_in(sql) if name in self._tables)

    # --- subscriptions -------------------------------------------------------------------------------------

    def parse(self, sql: str) -> ParsedQuery:
        """The query of a subscription; SqlError or UnknownTable if there can be none."""
        if not isinstance(sql, str):
            raise SqlError(type(sql).__name__, "the SQL must be a str")
        query = self._parsed.get(sql)
        if query is None:
            try:
                query = parse_subscription(sql, self._tables)
            except UnknownTable as error:
                view = self.views.get(fold(error.table))
                if view is None:
                    raise
                raise self.not_pushed(view, sql) from None
            if joins_streams(query) and not self._served:
                raise not_joined(query)
            self._not_made(query)  # SqlError if a join over streams cannot be made
            if len(self._parsed) >= REMEMBERED_QUERIES:
                self._parsed.clear()
            self._parsed[sql] = query
        return query

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

    def executable(self, query: ParsedQuery) -> ParsedQuery:
        """A query as one over what channels can read: a join over streams as one over its own stream."""
        if not joins_streams(query):
            return query
        hidden = HiddenJoin(query)
        stream = self._tables.get(fold(hidden.name))
        if stream is None:
            raise InvariantBroken(f"{hidden.name} was not made")
        return hidden.rewritten(stream)

    def find(self, query: ParsedQuery) -> Channel | None:
        return None if self._not_made(query) else self._channels.find(self.executable(query).shape)

    def channel_needed(self, sql: str) -> str:
        """The name of the channel that a subscription or a condition reads, open or not."""
        query = self.parse(sql)
        return query_name(query if self._not_made(query) else self.executable(query))

    def condition_needed(self, when: str) -> str:
        """`channel_needed` of a condition; an error says what to give as `when` instead."""
        if when not in self._parsed:
            parse_subscription(when, self._tables, tables_instead)
        return self.channel_needed(when)

    def channel_shown(self, channel: Channel) -> str:
        """The name of a channel as users would write it: a hidden stream is the join that it holds."""
        stream = self._tables.get(fold(channel.shape.tables[0])) if channel.shape.tables else None
        if stream is None or not is_hidden(stream.name):
            return channel.name
        made_of = self.made_of(stream)
        return channel_name(as_join(channel.shape, made_of), made_of.tables)

    def window_to_open(self, sql: str) -> PlannedWindow | None:
        """The window that a subscription would open; None if it reads none, or the window is there."""
        query = self.parse(sql)
        if len(query.shape.windows) != 1:  # a join keeps its own
            return None
        (table,), (window,), (name,) = query.tables, query.shape.windows, query.shape.sources
        assert window is not None, "S5"
        stream = self._streams[fold(table.name)]
        return None if name in stream.windows else PlannedWindow(name, stream.window_bytes(window))

    # --- derived streams -----------------------------------------------------------------------------------

    def _not_made(self, query: ParsedQuery) -> HiddenJoin | None:
        """The join over streams that a query is, if its stream is not there."""
        hidden = HiddenJoin(query) if joins_streams(query) else None
        return None if hidden is None or fold(hidden.name) in self._tables else hidden

    def join_to_make(self, sql: str) -> str | None:
        """The statement that makes the stream behind a subscription to a join over streams; None if the text is no such
        subscription, or the stream is there."""
        hidden = self._not_made(self.parse(sql))
        return None if hidden is None else hidden.statement_text

    def join_planned(self, sql: str) -> Table | None:
        """The stream that a subscription to a join over streams would read; None if there it is, or is not needed."""
        hidden = self._not_made(self.parse(sql))
        return None if hidden is None else bind_derived(hidden.statement, self._tables)

    def derived_behind(self, sql: str) -> list[str]:
        """The derived streams that a subscription reads; one to a join over streams reads its own, if it is there."""
        query = self.parse(sql)
        names = [HiddenJoin(query).name] if joins_streams(query) else list(query.shape.tables)
        found = (self._streams.get(fold(name)) for name in names)
        return [stream.store.table.name for stream in found if stream is not None and source(stream.store.table)]

    def made_of(self, stream: Table) -> ParsedQuery:
        """The SELECT whose results are the tuples of a derived stream."""
        return self.parse(source(stream))

    def source_shown(self, stream: Table) -> str:
        """That SELECT as users know it: their own text, or of a hidden stream the join that subscriptions name."""
        return query_name(self.made_of(stream)) if is_hidden(stream.name) else source(stream)


def query_name(query: ParsedQuery) -> str:
    return channel_name(query.shape, query.tables)


def joins_streams(query: ParsedQuery) -> bool:
    return query.shape.kind.name == "TUPLES" and query.shape.on is not None


def not_joined(query: ParsedQuery) -> SqlError:
    """The error for a join over streams where nothing makes its stream."""
    return SqlError(" and ".join(query.shape.sources), "joins over streams need a server")
