"""The server as `hullcast status` and its monitor show it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hullcast.broker.queries.derived import is_hidden
from hullcast.broker.server.history import HISTORY

if TYPE_CHECKING:
    from hullcast.broker.server.attendance import Attending
    from hullcast.broker.server.service import Server


def server_status(server: Server) -> dict[str, object]:
    """One map: the server itself, its tables, its channels, and what the nodes have reported."""
    engine, log = server.engine, server.log.statistics()
    space, full = server.storage.space, server.commits.disk_full()
    return {
        "name": server.settings.name,
        "id": server.id.hex(),
        "endpoint": server.endpoint,
        "epoch": server.epoch.hex(),
        "uptime_s": time.monotonic() - server.started,
        "seq": engine.seq,
        "through": server.children.through,
        "requests": server.hall.requests,
        "tables": {name: engine.rows(name) for name in engine.catalogue.shown_tables},
        "streams": {
            stream.store.table.name: stream.facts()
            for stream in engine.streams.values()
            if not is_hidden(stream.store.table.name)
        },
        "operators": server.streams.status(),
        "memory_bytes": engine.memory_bytes(),
        "channels": [_channel(server, attending) for attending in server.attendance],
        "channels_per_client": {
            "limit": server.attendance.shares.limit,
            "most": server.attendance.shares.fullest,
            "refused": server.attendance.shares.refused,
        },
        "children": server.children.status(),
        "log": {
            "memory_only": server.settings.data is None,
            "synced_seq": log.synced_seq,
            "pending_bytes": log.pending_bytes,
            "written_bytes": log.written_bytes,
            "groups": log.groups,
            "checkpoints": server.storage.checkpoints,
            "readable_from": server.storage.readable_from,
            "free_bytes": None if space is None else space.free_bytes,
            "reserve_bytes": None if space is None else space.reserve_bytes,
            "disk_full": None if full is None else str(full),
        },
        "retention_bytes": server.retention.size_bytes,
        "refused": server.hall.refused,
        "failed": server.hall.failures,
        "longest_pause_s": server.pauses.longest_s,
        "recent_pause_s": server.pauses.recent_s,
        "queries": server.queries.status(),
        "conditionals": server.conditionals.status(),
        "history": {
            "answered": server.history.answered,
            "failed": server.history.failed,
            "waiting": server.jobs.waiting(HISTORY),
        },
        "nodes": server.nodes.live(),
    }


def _channel(server: Server, attending: Attending) -> dict[str, object]:
    statistics = attending.channel.statistics()
    distinct, wanted = attending.channel.ranges_known()
    ranges = {"distinct": distinct, "wanted": wanted, "lingering": attending.lingering_ranges}
    return {
        "number": attending.number,
        "name": server.engine.catalogue.channel_shown(attending.channel),
        "updates": statistics.updates,
        "messages": statistics.messages,
        "ignorable": statistics.ignorable,
        "easy": statistics.easy,
        "difficult": statistics.difficult,
        "deserted": attending.deserted_at is not None,
        "ranges": ranges if attending.channel.counted else None,
    }
