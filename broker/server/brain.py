"""What the server does with a request: decides everything, and returns what must happen next as data."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from hullcast.broker.engine.catalogue import query_name
from hullcast.broker.queries.derived import is_hidden
from hullcast.broker.queries.view import create_text as view_text
from hullcast.broker.reformulate.channel import column_name, side_names
from hullcast.broker.server.changing import Arrived, Changing
from hullcast.broker.server.conditionals import Conditionals
from hullcast.broker.server.outcome import Outcome
from hullcast.broker.server.retention import concerned
from hullcast.broker.server.subscribing import NOTHING_PREPARED, Limits, Subscribing
from hullcast.broker.tables.schema import fold
from hullcast.network.security.rights import TABLE_ACTIONS, Action
from hullcast.network.wire import bodies
from hullcast.network.wire.bodies import (
    Delete,
    Describe,
    Execute,
    Explain,
    Failed,
    Fetch,
    Information,
    Publish,
    Status,
    Subscribe,
    Sync,
    Synced,
)
from hullcast.network.wire.columns import concatenate, size_bytes
from hullcast.network.wire.errors import (
    HullcastError,
    InvariantBroken,
    NotPermitted,
    UnknownTable,
    UsageError,
    to_wire,
)
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.log.publishers import Publishers
    from hullcast.broker.queries.view import ViewDefinition
    from hullcast.broker.reformulate.channel import Channel
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.server.attendance import Attendance, Attending
    from hullcast.broker.server.retention import Retention
    from hullcast.broker.server.subscribing import May, Prepared
    from hullcast.broker.tables.schema import Table
    from hullcast.network.security.rights import Identity, Rights
    from hullcast.network.wire.arrays import Floats
    from hullcast.network.wire.bodies import Body, Explain
    from hullcast.network.wire.frames import Origin, Request

log = logger(__name__)

#: Bodies up to this are decoded whoever sends them.
LARGE_BYTES = 16 << 10
#: One of which rights a large request must have, by its body's kind, or it is refused unread; others: any.
_NEEDED: Mapping[str, tuple[Action, ...]] = {
    "publish": ("publish",),
    "delete": ("publish",),
    "execute": ("admin", "publish"),
    "query": ("query",),
    "subscribe": ("subscribe", "query"),
    "explain": ("subscribe", "query"),
}


class Brain:
    """Applies requests to the engine, in the order in which they come.

    `work` is the one method that changes anything. A request that is wrong is answered with `Failed`; a failure
    of ours (a bug) is raised when it may have left the engine half-changed, and answered when it cannot.
    """

    def __init__(
        self,
        engine: ServedEngine,
        epoch: bytes,
        publishers: Publishers,
        rights: Callable[[], Rights],
        attendance: Attendance,
        retention: Retention,
        status: Callable[[], dict[str, object]],
        wanted: Callable[[], set[int]],
        *,
        limits: Limits,
        conditionals: Conditionals | None = None,
        durable: bool = False,
        feeds: Callable[[], Mapping[str, Any]] = lambda: {"tables": {}, "views": {}},
    ) -> None:
        self.engine = engine
        self.epoch = epoch
        self.publishers = publishers
        self.refused = 0  # requests that the sender had no right to
        self.failures = 0  # requests that failed through a fault of ours
        self._rights = rights
        self._attendance = attendance
        self._retention = retention
        if conditionals is None:
            conditionals = Conditionals(engine, attendance, 0)
        self._conditionals = conditionals
        self._status, self._feeds = status, feeds
        self.explain_derived: Callable[[Table], dict[str, Any]] = lambda stream: {}
        self.subscribing = Subscribing(engine, epoch, attendance, retention, conditionals, limits, durable=durable)
        self.changing = Changing(engine, publishers, rights, attendance, retention, conditionals, wanted, limits.rows)

    def work(
        self,
        body: Body,
        request: Request,
        owner: str,
        now: Callable[[], float],
        prepared: Prepared = NOTHING_PREPARED,
    ) -> Work:
        """Do what a request (with its body decoded) asks for, in slices; the result is an Outcome, whatever happens.

        Rights are those in force when something is done, however long it waited.
        """
        assert request.origin is not None, "Children fills it in"
        origin = request.origin
        before = self.engine.seq
        try:
            if isinstance(body, Subscribe):
                outcome: Outcome = yield from self.subscribing.subscribe(body, self.may(origin), owner, now, prepared)
                return outcome
            return self._handle(body, request, origin, owner, now())
        except HullcastError as error:
            return self.refusal(error, origin)
        except (Exception, MemoryError) as error:
            if not isinstance(body, Subscribe) and self.engine.seq != before:
                raise  # rows may have changed without a record of it: stop
            return self.failure(error, type(body).__name__)

    def refusal(self, error: HullcastError, origin: Origin) -> Outcome:
        """The answer to a request that cannot be met; InvariantBroken is raised where it says that the engine is."""
        if isinstance(error, InvariantBroken):
            return self.failure(error, "request")
        if isinstance(error, PermissionError):
            self.refused += 1
            log.warning("request refused", extra={"why": str(error)})
        if isinstance(error, UnknownTable):  # it names the tables there are
            sender = self._sender(origin)
            known = (table for table in error.known if not is_hidden(table))
            error = UnknownTable(error.table, tuple(table for table in known if _may_see(sender, table)))
        return Outcome(Failed(*to_wire(error)))

    def failure(self, error: BaseException, what: str) -> Outcome:
        """The answer to a request that failed by a fault of ours; raises it if the engine's state is in doubt."""
        if self.engine.broken:
            raise error
        self.failures += 1
        log.error("request failed", extra={"request": what}, exc_info=error)
        bug = error if isinstance(error, InvariantBroken) else None
        bug = bug or InvariantBroken(f"{type(error).__name__} in a {what}; nothing was changed")
        return Outcome(Failed(*to_wire(bug)))

    def check(self, origin: Origin, action: Action, tables: Iterable[str] = ()) -> None:
        """NotPermitted unless the sender may do that now."""
        self._rights().check(self._sender(origin), action, tables)

    def check_unread(self, request: Request) -> None:
        """NotPermitted if a large request can only be refused: to decode it could take half a second of everybody's
        time."""
        assert request.origin is not None, "Children fills it in"
        if len(request.body) <= LARGE_BYTES:
            return
        sender, needed = self._sender(request.origin), _NEEDED.get(bodies.tag_of(request.body), get_args(Action))
        if not any(map(sender.may_at_all, needed)):
            raise NotPermitted(sender.name, needed[0])

    def may(self, origin: Origin) -> May:
        """`check` for one sender."""
        return partial(self.check, origin)

    def _sender(self, origin: Origin) -> Identity:
        """The sender of a request, with the rights it has now: not to be kept while the request waits."""
        return self._rights().who(origin.key, origin.name)

    def _handle(self, body: Body, request: Request, origin: Origin, owner: str, now: float) -> Outcome:
        match body:
            case Publish():
                return self.publish([Arrived(body, request)], now)[0]
            case Delete() | Execute():
                return self.changing.change(body, request, now)
            case Fetch():
                return Outcome(self.subscribing.fetch(body, owner, now))
            case Sync():
                return Outcome(Synced(self.engine.seq), ordered=True)
            case Explain():
                return Outcome(Information(self._explain(body, origin)))
            case Status():
                self.check(origin, "admin")  # it names the queries of all clients
                return Outcome(Information(self._status()))
            case Describe():
                return Outcome(Information(self._describe(origin)))
        raise UsageError(f"a {type(body).__name__} is not a request of a client")

    def _explain(self, body: Explain, origin: Origin) -> dict[str, object]:
        """How a subscription would be served, and how current the tables are that it, or its SELECT, reads. Of a SELECT
        that reads views: how these are kept ready."""
        views = self.engine.catalogue.views_named(body.sql)
        if views:
            self.check(origin, "query", [view.name for view in views])
        sender = self._sender(origin)
        kept: dict[str, object] = (
            {"views": {view.name: self._explain_view(view, sender) for view in views}} if views else {}
        )
        if body.trigger is None:
            if views:
                return kept
            self.check(origin, "subscribe", self.engine.catalogue.tables_named(body.sql))
            facts = explain(self.engine, self._attendance, self._retention, body)
            tables = self.engine.catalogue.tables_of(body.sql)
            planned = self.engine.catalogue.join_planned(body.sql)
            known = [self.engine.tables[name] for name in self.engine.catalogue.derived_behind(body.sql)]
            derived = [*known, *([] if planned is None else [planned])]
            kept |= (
                {"derived": {table.name: self._explain_derived(table, sender) for table in derived}} if derived else {}
            )
        else:
            tables = self.engine.catalogue.tables_named(body.sql)  # only the warehouse can read all of it
            self.check(origin, "query", tables)
            if body.trigger.tables:
                self.check(origin, "subscribe", self.engine.catalogue.spelt(body.trigger.tables))
                self.engine.catalogue.followable(body.trigger.tables)
            facts = {"conditional": self._conditionals.explain(body.sql, body.parameters, body.trigger)}
            when = body.trigger.when
            condition = None if when is None else Explain(when, body.trigger.parameters)
            facts["condition"] = None if condition is None else self._explain(condition, origin)
        feeds = self._feeds()["tables"]
        return facts | kept | {"loaded": {table: feeds[table] for table in tables if table in feeds}}

    # --- changes ---------------------------------------------------------------------------------------

    def publish(self, arrived: Sequence[Arrived], now: float) -> list[Outcome]:
        """Apply publishes that arrived together; an outcome for each, whatever happens."""
        return [
            found if isinstance(found, Outcome) else self._refused(found, one.request, "Publish")
            for found, one in zip(self.changing.publish(arrived, now), arrived, strict=True)
        ]

    def _refused(self, error: Exception, request: Request, what: str) -> Outcome:
        assert request.origin is not None, "Children fills it in"
        if isinstance(error, HullcastError):
            return self.refusal(error, request.origin)
        return self.failure(error, what)

    def tidy(self) -> None:
        """Forget texts that only requests mentioned, if there are many."""
        self.engine.tidy()
        self.changing.forget_swept()

    # --- describing ------------------------------------------------------------------------------------

    def _describe(self, origin: Origin) -> dict[str, object]:
        """The tables and views that the sender may do something with."""
        sender = self._sender(origin)
        return {
            "tables": {
                table.name: {
                    "rows": self.engine.rows(table.name),
                    "key": table.key_column.name,
                    "columns": {column.name: column.type.value for column in table.columns},
                    **({} if table.feed is None else {"period_s": table.feed.period_s, "weight": table.feed.weight}),
                    **({} if table.stream is None else {"stream": self._stream_facts(table, sender)}),
                }
                for table in self.engine.catalogue.shown_tables.values()
                if _may_see(sender, table.name)
            },
            "views": {
                view.name: {
                    "columns": {column.name: column.type.value for column in view.table.columns},
                    "response_time_s": view.response_time_s,
                    **_definition(view, sender),
                }
                for view in self.engine.catalogue.views.values()
                if _may_see(sender, view.name)
            },
        }

    def _stream_facts(self, stream: Table, sender: Identity) -> dict[str, object]:
        """A stream; of a derived one not by what SELECT, if the sender may not read what that reads."""
        facts = self.engine.streams[fold(stream.name)].facts()
        return facts if _may_read(sender, self._sources(stream)) else {**facts, "source": None}

    def _explain_derived(self, stream: Table, sender: Identity) -> dict[str, Any]:
        """How a derived stream is computed. Its source and its paths are left out if they show what the sender may not
        read."""
        facts = self.explain_derived(stream)
        if facts and not _may_read(sender, self._sources(stream)):
            facts |= {"source": None, "paths": [], "waits_for": None}
            facts["failed"] = facts.get("failed") and "something in its sources is wrong"
        return facts

    def _sources(self, stream: Table) -> list[str]:
        """The streams and tables that a derived stream is made of; none for any other."""
        made = stream.stream is not None and stream.stream.source
        return [table.name for table in self.engine.catalogue.made_of(stream).tables] if made else []

    def _explain_view(self, view: ViewDefinition, sender: Identity) -> dict[str, Any]:
        """What a view is, and how it is kept ready; the latter is missing until the warehouse has said it."""
        facts = dict(self._feeds()["views"].get(view.name, {}))
        for by_table in ("pending", "costs"):
            if by_table in facts:
                shown = {table: known for table, known in facts[by_table].items() if _may_see(sender, table)}
                facts[by_table] = shown
        return {**_definition(view, sender), "upkeep": facts}


def _may_see(sender: Identity, table: str) -> bool:
    """Whether a sender may know of a table."""
    return sender.admin or any(sender.may(action, table) for action in TABLE_ACTIONS)


def _may_read(sender: Identity, tables: Iterable[str]) -> bool:
    """Whether a sender may know what is computed from tables: it may read each of them, one way or the other."""
    return sender.admin or all(sender.may("query", table) or sender.may("subscribe", table) for table in tables)


def _definition(view: ViewDefinition, sender: Identity) -> dict[str, object]:
    """What a view is made of, as far as the sender may know."""
    names = [table.name for table in view.tables]
    sql = view_text(view) if _may_read(sender, names) else None
    return {"tables": [name for name in names if _may_see(sender, name)], "sql": sql}


#: Of the messages kept, the latest up to so many bytes are looked at: a few milliseconds of work.
LOOKED_AT_BYTES = 2 << 20

_MEANING = {
    "rectangles": "the point (low, high); a message is a rectangle, and concerns it if the point is inside",
    "places": "a box; a message is a row's place before and after, and concerns it if one of them is inside",
    "points": "a box; a message is a tuple, and concerns it if the tuple is inside",
}


def explain(engine: ServedEngine, attendance: Attendance, retention: Retention, body: Explain) -> dict[str, object]:
    """What is known now; nothing is opened for it. Traffic is measured on the messages kept for resuming, where the
    channel is open already."""
    query, predicates, channel = engine.described(body.sql, body.parameters)
    shape, tables = query.shape, query.tables
    form = shape.kind.answers.form
    facts: dict[str, object] = {
        "channel": query_name(query),
        "kind": shape.kind.name,
        "form": form,
        "tables": side_names(tables),
        "answer": list(query.columns),
        "becomes": _MEANING[form],
        "ranges": [column_name(tables, ref) for ref in shape.ranges],
        "partitions": [column_name(tables, ref) for ref in shape.partition],
        "low": predicates.low[0].tolist(),
        "high": predicates.high[0].tolist(),
        "never": bool(predicates.never is not None and predicates.never[0]),
        "rows": [engine.rows(table) for table in shape.tables],
        "channel_open": False,
        "seq": engine.seq,
    }
    attending = None if channel is None else attendance.find(channel.name)
    if channel is not None and attending is not None:
        facts["channel_open"] = True
        facts.update(_traffic(channel, attending, retention, channel.points_elsewhere(predicates)))
        facts.update(channel.facts())
    return facts


def _traffic(channel: Channel, attending: Attending, retention: Retention, points: Floats) -> dict[str, object]:
    facts: dict[str, object] = {}
    statistics = channel.statistics()
    if statistics.updates:
        facts["updates_seen"] = statistics.updates
        facts["messages_per_update"] = statistics.messages / statistics.updates
        facts["ignorable_share"] = statistics.ignorable / statistics.updates
    kept = retention.latest(attending.number, LOOKED_AT_BYTES)
    if channel.counted:
        distinct, wanted = channel.ranges_known()
        facts["ranges_distinct"], facts["ranges_wanted"] = distinct, wanted
        if kept and channel.wanted_since(points) >= int(np.asarray(kept[0]["seq"])[0]):
            kept = []  # they do not describe this range from the first one on
            facts["range_is_new"] = True
    if kept:
        columns = concatenate(kept)
        hit = concerned(columns, attending.spec, points)
        seqs = np.asarray(columns["seq"])
        facts["recent_messages"] = len(seqs)
        facts["recent_messages_matching"] = int(hit.sum())
        facts["recent_updates_telling"] = len(np.unique(seqs[hit]))
        facts["recent_span_updates"] = int(seqs.max() - seqs.min() + 1)
        facts["bytes_per_message"] = size_bytes(columns) / len(seqs)
    return facts
