"""`explain`: what a subscription becomes, whom it shares messages with, and what traffic it would have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.reformulate.channel import column_name
from hullcast.broker.server.retention import concerned
from hullcast.network.wire.columns import concatenate, size_bytes

if TYPE_CHECKING:
    from hullcast.broker.engine.engine import Engine
    from hullcast.broker.reformulate.channel import Channel, Floats
    from hullcast.broker.server.attendance import Attendance, Attending
    from hullcast.broker.server.retention import Retention
    from hullcast.network.wire.bodies import Explain

#: Of the messages kept, the latest up to so many bytes are looked at: a few milliseconds of work.
LOOKED_AT_BYTES = 2 << 20

_MEANING = {
    "rectangles": "the point (low, high); a message is a rectangle, and concerns it if the point is inside",
    "places": "a box; a message is a row's place before and after, and concerns it if one of them is inside",
}


def explain(engine: Engine, attendance: Attendance, retention: Retention, body: Explain) -> dict[str, object]:
    """What is known now; nothing is opened for it. Traffic is measured on the messages kept for resuming, where the
    channel is open already."""
    query, predicates, channel = engine.described(body.sql, [[value] for value in body.parameters])
    shape, tables = query.shape, query.tables
    form = shape.kind.answers.form
    told: dict[str, object] = {
        "channel": engine.channel_name(query),
        "kind": shape.kind.name,
        "form": form,
        "tables": list(shape.tables),
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
        told["channel_open"] = True
        told.update(_traffic(channel, attending, retention, channel.points_elsewhere(predicates)))
    return told


def _traffic(channel: Channel, attending: Attending, retention: Retention, points: Floats) -> dict[str, object]:
    told: dict[str, object] = {}
    statistics = channel.statistics()
    if statistics.updates:
        told["updates_seen"] = statistics.updates
        told["messages_per_update"] = statistics.messages / statistics.updates
        told["ignorable_share"] = statistics.ignorable / statistics.updates
    kept = retention.latest(attending.number, LOOKED_AT_BYTES)
    if kept:
        columns = concatenate(kept)
        hit = concerned(columns, attending.spec, points)
        seqs = np.asarray(columns["seq"])
        told["recent_messages"] = len(seqs)
        told["recent_messages_matching"] = int(hit.sum())
        told["recent_updates_telling"] = len(np.unique(seqs[hit]))
        told["recent_span_updates"] = int(seqs.max() - seqs.min() + 1)
        told["bytes_per_message"] = size_bytes(columns) / len(seqs)
    return told
