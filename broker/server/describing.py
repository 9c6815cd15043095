"""What the server tells of itself: its tables, and how a subscription is, or would be, served. Nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.broker.engine.catalogue import query_name
from hullcast.broker.queries.view import create_text as view_text
from hullcast.broker.reformulate.channel import column_name, side_names
from hullcast.broker.server.retention import concerned
from hullcast.broker.tables.schema import fold
from hullcast.network.wire.bodies import Explain
from hullcast.network.wire.columns import concatenate, size_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.queries.view import ViewDefinition
    from hullcast.broker.reformulate.channel import Channel
    from hullcast.broker.server.access import Access, Needs
    from hullcast.broker.server.attendance import Attendance, Attending
    from hullcast.broker.server.conditionals import Conditionals
    from hullcast.broker.server.retention import Retention
    from hullcast.broker.tables.schema import Table
    from hullcast.network.wire.arrays import Floats


@dataclass(eq=False)
class Describing:
    """Answers questions about tables, views, streams and subscriptions, as far as the sender may know."""

    _engine: ServedEngine
    _attendance: Attendance
    _conditionals: Conditionals
    _loaded: Callable[[], Mapping[str, Any]]  # how current the warehouse's tables and views are
    _derived: Callable[[Table], dict[str, Any]]  # how a stream is computed

    def explain(self, body: Explain, access: Access) -> dict[str, object]:
        """How a subscription would be served, and how current the tables are that it, or its SELECT, reads. Of a SELECT
        that reads views: how these are kept ready."""
        access.allow(self._needs(body))
        views = self._engine.catalogue.views_named(body.sql)
        kept: dict[str, object] = {}
        if views:
            kept["views"] = {view.name: self._explain_view(view, access) for view in views}
        if body.trigger is None:
            if views:
                return kept
            facts = explain(self._engine, self._attendance, body)
            tables = self._engine.catalogue.tables_of(body.sql)
            planned = self._engine.catalogue.join_planned(body.sql)
            known = [self._engine.tables[name] for name in self._engine.catalogue.derived_behind(body.sql)]
            derived = [*known, *([] if planned is None else [planned])]
            if derived:
                kept["derived"] = {table.name: self._explain_derived(table, access) for table in derived}
        else:
            tables = self._engine.catalogue.tables_named(body.sql)  # only the warehouse can read all of it
            if body.trigger.tables:
                self._engine.catalogue.followable(body.trigger.tables)
            facts = {"conditional": self._conditionals.explain(body.sql, body.parameters, body.trigger)}
            when = body.trigger.when
            parameters = body.trigger.parameters
            facts["condition"] = None if when is None else self.explain(Explain(when, parameters), access)
        feeds = self._loaded()["tables"]
        return facts | kept | {"loaded": {table: feeds[table] for table in tables if table in feeds}}

    def _needs(self, body: Explain) -> Needs:
        catalogue = self._engine.catalogue
        views, named = catalogue.views_named(body.sql), catalogue.tables_named(body.sql)
        needs: Needs = (("query", tuple(view.name for view in views)),) if views else ()
        if body.trigger is not None:
            needs += (("query", named),)
            if body.trigger.tables:
                needs += (("subscribe", catalogue.spelt(body.trigger.tables)),)
        elif not views:
            needs += (("subscribe", named),)
        return needs

    def describe(self, access: Access) -> dict[str, object]:
        return {
            "tables": {
                table.name: {
                    "rows": self._engine.rows(table.name),
                    "key": table.key_column.name,
                    "columns": {column.name: column.type.value for column in table.columns},
                    **({} if table.feed is None else {"period_s": table.feed.period_s, "weight": table.feed.weight}),
                    **({} if table.stream is None else {"stream": self._stream_facts(table, access)}),
                }
                for table in self._engine.catalogue.shown_tables.values()
                if access.sees(table.name)
            },
            "views": {
                view.name: {
                    "columns": {column.name: column.type.value for column in view.table.columns},
                    "response_time_s": view.response_time_s,
                    **_definition(view, access),
                }
                for view in self._engine.catalogue.views.values()
                if access.sees(view.name)
            },
        }

    def _stream_facts(self, stream: Table, access: Access) -> dict[str, object]:
        """A stream; of a derived one not by what SELECT, if the sender may not read what that reads."""
        facts = self._engine.streams[fold(stream.name)].facts()
        return facts if access.reads(self._sources(stream)) else {**facts, "source": None}

    def _explain_derived(self, stream: Table, access: Access) -> dict[str, Any]:
        """How a derived stream is computed. Its source and its paths are left out if they show what the sender may not
        read."""
        facts = self._derived(stream)
        if facts and not access.reads(self._sources(stream)):
            facts |= {"source": None, "paths": [], "waits_for": None}
            facts["failed"] = facts.get("failed") and "something in its sources is wrong"
        return facts

    def _sources(self, stream: Table) -> list[str]:
        """The streams and tables that a derived stream is made of; none for any other."""
        made = stream.stream is not None and stream.stream.source
        return [table.name for table in self._engine.catalogue.made_of(stream).tables] if made else []

    def _explain_view(self, view: ViewDefinition, access: Access) -> dict[str, Any]:
        """What a view is, and how it is kept ready; the latter is missing until the warehouse has said it."""
        facts = dict(self._loaded()["views"].get(view.name, {}))
        for by_table in ("pending", "costs"):
            if by_table in facts:
                shown = {table: known for table, known in facts[by_table].items() if access.sees(table)}
                facts[by_table] = shown
        return {**_definition(view, access), "upkeep": facts}


def _definition(view: ViewDefinition, access: Access) -> dict[str, object]:
    names = [table.name for table in view.tables]
    sql = view_text(view) if access.reads(names) else None
    return {"tables": [name for name in names if access.sees(name)], "sql": sql}


#: Of the messages kept, the latest up to so many bytes are looked at: a few milliseconds of work.
LOOKED_AT_BYTES = 2 << 20

_MEANING = {
    "rectangles": "the point (low, high); a message is a rectangle, and concerns it if the point is inside",
    "places": "a box; a message is a row's place before and after, and concerns it if one of them is inside",
    "points": "a box; a message is a tuple, and concerns it if the tuple is inside",
}


def explain(engine: ServedEngine, attendance: Attendance, body: Explain) -> dict[str, object]:
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
        "never": bool(predicates.never is not None and predicates.never.all()),
        "boxes": len(predicates.low),
        "rows": [engine.rows(table) for table in shape.tables],
        "channel_open": False,
        "seq": engine.seq,
    }
    attending = None if channel is None else attendance.find(channel.name)
    if channel is not None and attending is not None:
        facts["channel_open"] = True
        facts.update(_traffic(channel, attending, attendance.retention, channel.points_elsewhere(predicates)))
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
