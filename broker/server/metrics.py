"""The server's metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily as Counter
from prometheus_client.metrics_core import GaugeMetricFamily as Gauge

from hullcast.network.node.metrics import each, shared_metrics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from hullcast.broker.server.service import Server


def server_metrics(server: Server) -> list[Metric]:
    """Rows and log, the nodes' lag, and everything below."""
    engine, log = server.engine, server.log.statistics()
    waiting = server.pipeline.waiting_bytes if server.pipeline is not None else 0
    lag = engine.seq - server.children.through
    known = [attending.channel.ranges_known() for attending in server.attendance]
    queries, working = server.queries, server.working.statistics()
    return [
        Counter("hullcast_updates_total", "Updates since the database began: its sequence number.", engine.seq),
        Gauge("hullcast_lag_updates", "Updates applied whose messages have not left yet.", lag),
        Counter("hullcast_requests_total", "Requests of clients and reports of nodes.", server.requests),
        Counter(
            "hullcast_requests_refused_total", "Requests that their senders had no right to make.", server.brain.refused
        ),
        Counter(
            "hullcast_requests_failed_total",
            "Requests that failed because of a bug in the server.",
            server.brain.failures,
        ),
        Gauge("hullcast_requests_in_work", "Requests answered in several turns, not done yet.", working.waiting),
        Counter("hullcast_queries_total", "One-time queries answered.", queries.answered),
        Counter("hullcast_queries_failed_total", "One-time queries refused or stopped.", queries.failed),
        Gauge("hullcast_queries_waiting", "One-time queries whose turn has not come.", queries.waiting),
        Gauge("hullcast_queries_running", "One-time queries being answered.", queries.running),
        Counter("hullcast_warehouse_processes_total", "Warehouse processes started.", server.warehouse.processes),
        Gauge("hullcast_feed_bytes", "Changes that followers have not read.", engine.feed.size_bytes),
        Gauge("hullcast_staged_bytes", "First answers waiting to be fetched.", server.brain.subscribing.staged_bytes),
        each(
            Gauge("hullcast_table_rows", "Rows.", labels=["table"]), {name: engine.rows(name) for name in engine.tables}
        ),
        Gauge(
            "hullcast_channels", "Channels that subscribers elsewhere attend, or did lately.", len(server.attendance)
        ),
        Gauge("hullcast_ranges_distinct", "Different ranges of joins that are wanted.", sum(one for one, _ in known)),
        Gauge("hullcast_ranges", "Ranges of joins that are wanted, one per subscription.", sum(n for _, n in known)),
        Gauge(
            "hullcast_ranges_lingering",
            "Of these, ranges of lost clients, kept in case they reconnect.",
            server.attendance.lingering,
        ),
        Gauge("hullcast_engine_memory_bytes", "Rows, trees and subscriptions.", engine.memory_bytes()),
        Gauge(
            "hullcast_retention_bytes", "Recent messages kept for clients that reconnect.", server.retention.size_bytes
        ),
        Gauge("hullcast_pending_bytes", "Requests that wait for the disk.", waiting),
        Gauge("hullcast_log_synced_seq", "Update up to which everything is on disk.", log.synced_seq),
        Gauge("hullcast_log_pending_records", "Records not on disk yet.", log.pending_records),
        Gauge("hullcast_log_pending_bytes", "Bytes of these records.", log.pending_bytes),
        Gauge("hullcast_log_broken", "1 when the log can no longer be written.", log.broken),
        Counter("hullcast_log_written_bytes_total", "Bytes written to the log.", log.written_bytes),
        Counter("hullcast_log_groups_total", "Groups of records synced together.", log.groups),
        Counter("hullcast_checkpoints_total", "Checkpoints written.", server.checkpoints),
        _nodes(server),
        *shared_metrics(server.children, server.pauses),
    ]


def _nodes(server: Server) -> Metric:
    """How far behind each node was when it last reported; at most a second old, so never quite 0 under load."""
    lag = Gauge("hullcast_node_lag_updates", "Updates a node had not seen at its report.", labels=["node", "id"])
    for report in server.live_reports():
        through = report.get("through")
        if isinstance(through, int):
            labels = [str(report.get("name", "")), str(report.get("id", ""))]
            lag.add_metric(labels, max(0, server.engine.seq - through))
    return lag
