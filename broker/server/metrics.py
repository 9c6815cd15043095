"""The server in numbers, for its monitor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.network.monitor.metrics import Metric, Sample, counter, gauge
from hullcast.network.monitor.process import pause_metrics, process_metrics
from hullcast.network.node.children_metrics import children_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hullcast.broker.server.service import Server


def server_metrics(server: Server) -> list[Metric]:
    """Rows and log, the nodes' lag, and everything below."""
    engine, log = server.engine, server.log.statistics()
    waiting = server.pipeline.waiting_bytes if server.pipeline is not None else 0
    lag = engine.seq - server.children.through
    queries, working = server.queries, server.working.statistics()
    return [
        counter("hullcast_updates_total", "Updates since the database began: its sequence number.", engine.seq),
        gauge("hullcast_lag_updates", "Updates applied whose messages have not left yet.", lag),
        counter("hullcast_requests_total", "Requests of clients and reports of nodes.", server.requests),
        counter(
            "hullcast_requests_refused_total", "Requests that their senders had no right to make.", server.brain.refused
        ),
        counter(
            "hullcast_requests_failed_total",
            "Requests that failed because of a bug in the server.",
            server.brain.failures,
        ),
        gauge("hullcast_requests_in_work", "Requests answered in several turns, not done yet.", working.waiting),
        counter("hullcast_queries_total", "One-time queries answered.", queries.answered),
        counter("hullcast_queries_failed_total", "One-time queries refused or stopped.", queries.failed),
        gauge("hullcast_queries_waiting", "One-time queries whose turn has not come.", queries.waiting),
        gauge("hullcast_queries_running", "One-time queries being answered.", queries.running),
        counter("hullcast_query_processes_total", "Query processes started.", queries.processes),
        gauge("hullcast_feed_bytes", "Changes that followers have not read.", engine.feed.size_bytes),
        gauge("hullcast_staged_bytes", "First answers waiting to be fetched.", server.brain.subscribing.staged_bytes),
        *pause_metrics(server.pauses),
        _each("hullcast_table_rows", "Rows.", "table", {name: engine.rows(name) for name in engine.tables}),
        gauge(
            "hullcast_channels", "Channels that subscribers elsewhere attend, or did lately.", len(server.attendance)
        ),
        gauge("hullcast_engine_memory_bytes", "Rows, trees and subscriptions.", engine.memory_bytes()),
        gauge(
            "hullcast_retention_bytes", "Recent messages kept for clients that reconnect.", server.retention.size_bytes
        ),
        gauge("hullcast_pending_bytes", "Requests that wait for the disk.", waiting),
        gauge("hullcast_log_synced_seq", "Update up to which everything is on disk.", log.synced_seq),
        gauge("hullcast_log_pending_records", "Records not on disk yet.", log.pending_records),
        gauge("hullcast_log_pending_bytes", "Bytes of these records.", log.pending_bytes),
        gauge("hullcast_log_broken", "1 when the log can no longer be written.", log.broken),
        counter("hullcast_log_written_bytes_total", "Bytes written to the log.", log.written_bytes),
        counter("hullcast_log_groups_total", "Groups of records synced together.", log.groups),
        counter("hullcast_checkpoints_total", "Checkpoints written.", server.checkpoints),
        _nodes(server),
        *children_metrics(server.children),
        *process_metrics(),
    ]


def _nodes(server: Server) -> Metric:
    """How far behind each node was when it last reported; at most a second old, so never quite 0 under load."""
    samples = []
    for report in server.live_reports():
        through = report.get("through")
        if isinstance(through, int):
            labels = (("node", str(report.get("name", ""))), ("id", str(report.get("id", ""))))
            samples.append(Sample(max(0, server.engine.seq - through), labels))
    return Metric("hullcast_node_lag_updates", "gauge", "Updates a node had not seen at its report.", tuple(samples))


def _each(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    return Metric(name, "gauge", about, tuple(Sample(value, ((label, key),)) for key, value in values.items()))
