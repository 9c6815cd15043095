"""`explain`: what a subscription becomes, whom it shares messages with, and what traffic it would have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from broker.server.retention import concerned
from network.wire.columns import concatenate, size_bytes

if TYPE_CHECKING:
    from broker.engine import Engine
    from broker.reformulate.channel import Attended
    from broker.server.attendance import Attendance
    from broker.server.retention import Retention
    from network.wire.bodies import Explain

_MEANING = {
    "rectangles": "the point (low, high); a message is a rectangle, and concerns it if the point is inside",
    "places": "a box; a message is a row's place before and after, and concerns it if one of them is inside",
}


def explain(engine: Engine, attendance: Attendance, retention: Retention, body: Explain) -> dict[str, object]:
    """What is known now. Traffic is measured on the messages kept for resuming, where the channel is open already."""
    attended = engine.attend(body.sql, [[value] for value in body.parameters])
    try:
        return _explained(engine, attendance, retention, attended)
    finally:
        if attendance.find(attended.channel.name) is None:  # asked about, not subscribed to
            engine.forsake(attended.channel.name)


def _explained(engine: Engine, attendance: Attendance, retention: Retention, attended: Attended) -> dict[str, object]:
    channel = attended.channel
    shape, statistics = channel.shape, channel.statistics()
    attending = attendance.find(channel.name)
    rectangular = shape.kind.value in ("MIN", "MAX", "DISTINCT")
    points = channel.points_elsewhere(attended.predicates)
    told: dict[str, object] = {
        "channel": channel.name,
        "kind": shape.kind.value,
        "tables": list(shape.tables),
        "answer": list(attended.columns),
        "becomes": _MEANING["rectangles" if rectangular else "places"],
        "ranges": [channel.column_name(ref) for ref in shape.ranges],
        "partitions": [channel.column_name(ref) for ref in shape.partition],
        "low": attended.predicates.low[0].tolist(),
        "high": attended.predicates.high[0].tolist(),
        "never": bool(attended.predicates.never is not None and attended.predicates.never[0]),
        "rows": [engine.rows(table) for table in shape.tables],
        "channel_open": attending is not None,
        "seq": engine.seq,
    }
    if statistics.updates:
        told["updates_seen"] = statistics.updates
        told["messages_per_update"] = statistics.messages / statistics.updates
        told["ignorable_share"] = statistics.ignorable / statistics.updates
    kept = [] if attending is None else retention.after(attending.number, -1)
    if attending is not None and kept:
        columns = concatenate(kept)
        hit = concerned(columns, attending.spec, points)
        seqs = np.asarray(columns["seq"])
        told["recent_messages"] = len(seqs)
        told["recent_messages_matching"] = int(hit.sum())
        told["recent_updates_telling"] = len(np.unique(seqs[hit]))
        told["recent_span_updates"] = int(seqs.max() - seqs.min() + 1)
        told["bytes_per_message"] = size_bytes(columns) / len(seqs)
    return told
