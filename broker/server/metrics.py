"""The server's metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client.metrics_core import CounterMetricFamily as Counter
from prometheus_client.metrics_core import GaugeMetricFamily as Gauge

from hullcast.broker.server.views import VIEWS
from hullcast.network.node.metrics import Family, each, shared_metrics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from hullcast.broker.server.service import Server


def server_metrics(server: Server) -> list[Metric]:
    """Rows and log, the nodes' lag, and everything below."""
    engine, log = server.engine, server.log.statistics()
    waiting = server.pipeline.waiting_bytes
    lag = engine.seq - server.children.through
    known = [attending.channel.ranges_known() for attending in server.attendance]
    queries, working = server.queries, server.working.statistics()
    return [
        Counter("hullcast_updates_total", "Updates since the database began: its sequence number.", engine.seq),
        Gauge("hullcast_lag_updates", "Updates applied whose messages have not left yet.", lag),
        Counter("hullcast_requests_total", "Requests of clients and reports of nodes.", server.hall.requests),
        Counter(
            "hullcast_requests_refused_total", "Requests that their senders had no right to make.", server.hall.refused
        ),
        Counter(
            "hullcast_requests_failed_total",
            "Requests that failed because of a bug in the server.",
            server.hall.failures,
        ),
        Gauge("hullcast_requests_in_work", "Requests answered in several turns, not done yet.", working.waiting),
        Counter("hullcast_queries_total", "One-time queries answered.", queries.answered),
        Counter("hullcast_queries_failed_total", "One-time queries refused or stopped.", queries.failed),
        Counter("hullcast_queries_given_up_total", "One-time queries that clients gave up.", queries.given_up),
        Counter("hullcast_views_given_up_total", "CREATE VIEW that clients gave up.", server.jobs.given_up[VIEWS]),
        Gauge("hullcast_queries_waiting", "One-time queries whose turn has not come.", queries.waiting),
        Gauge("hullcast_queries_running", "One-time queries being answered.", queries.running),
        *_warehouse(queries.status()),
        *_conditionals(server),
        *_streams(server.streams.status()),
        Gauge("hullcast_feed_bytes", "Changes that followers have not read.", engine.feed.size_bytes),
        Gauge("hullcast_staged_bytes", "First answers waiting to be fetched.", server.subscribing.staged_bytes),
        each(
            Gauge("hullcast_table_rows", "Rows.", labels=["table"]),
            {name: engine.rows(name) for name in engine.catalogue.shown_tables},
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
        Gauge("hullcast_stream_window_bytes", "Windows over streams.", server.windows.size_bytes),
        Gauge(
            "hullcast_retention_bytes", "Recent messages kept for clients that reconnect.", server.retention.size_bytes
        ),
        Gauge("hullcast_pending_bytes", "Requests that wait for the disk.", waiting),
        Gauge("hullcast_log_synced_seq", "Update up to which everything is on disk.", log.synced_seq),
        Gauge("hullcast_log_pending_records", "Records not on disk yet.", log.pending_records),
        Gauge("hullcast_log_pending_bytes", "Bytes of these records.", log.pending_bytes),
        *_space(server),
        Gauge("hullcast_log_broken", "1 when the log can no longer be written.", log.broken),
        Counter("hullcast_log_written_bytes_total", "Bytes written to the log.", log.written_bytes),
        Counter("hullcast_log_groups_total", "Groups of records synced together.", log.groups),
        Counter("hullcast_checkpoints_total", "Checkpoints written.", server.storage.checkpoints),
        _nodes(server),
        *shared_metrics(server.children, server.pauses),
    ]


def _space(server: Server) -> list[Metric]:
    space = server.storage.space
    if space is None:
        return []
    return [
        Gauge(
            "hullcast_disk_full",
            "1 while publishes are refused: no room for them.",
            server.commits.disk_full() is not None,
        ),
        Gauge("hullcast_disk_free_bytes", "Free on the disk of the data directory.", space.free_bytes),
        Gauge("hullcast_disk_reserve_bytes", "Of these, only for the log.", space.reserve_bytes),
    ]


def _warehouse(known: dict[str, Any]) -> list[Metric]:
    """What one-time queries are answered from, as of half a second ago at most."""

    def by_table(family: Family, fact: str) -> Family:
        return each(family, {name: facts[fact] for name, facts in known["tables"].items()})

    def by_view(family: Family, fact: str) -> Family:
        return each(family, {name: facts[fact] for name, facts in known["views"].items()})

    view = ["view"]
    pending = Gauge("hullcast_view_pending", "Changes not propagated yet.", labels=["view", "table"])
    for name, facts in known["views"].items():
        for source, rows in facts["pending"].items():
            pending.add_metric([name, source], rows)
    table, behind = ["table"], "Seconds since the oldest change not loaded yet was acknowledged."
    counters = Gauge("hullcast_policy_counter", "What the policy in force counts.", labels=["policy", "counter"])
    for name, value in sorted(known["counters"].items()):
        counters.add_metric([known["policy"], name], value)
    return [
        Counter("hullcast_queries_late_total", "One-time queries aborted at their deadline.", known["missed"]),
        Gauge("hullcast_queries_kept_bytes", "Rest of large answers, waiting to be fetched.", known["kept_bytes"]),
        Counter("hullcast_warehouse_processes_total", "Warehouse processes started.", known["processes"]),
        Counter("hullcast_warehouse_worker_restarts_total", "Its workers replaced.", known["worker_restarts"]),
        Counter("hullcast_warehouse_load_failures_total", "Loads that failed.", known["load_failures"]),
        by_table(Gauge("hullcast_warehouse_bytes", "Size of a table's file for queries.", labels=table), "bytes"),
        by_table(Counter("hullcast_warehouse_loads_total", "Loads of changes into a table.", labels=table), "loads"),
        by_table(Counter("hullcast_warehouse_rows_total", "Rows these loads wrote.", labels=table), "loaded_rows"),
        by_table(Gauge("hullcast_warehouse_staleness_seconds", behind, labels=table), "staleness_s"),
        by_table(Gauge("hullcast_warehouse_unapplied", "Changes not loaded yet.", labels=table), "unapplied"),
        by_table(
            Gauge("hullcast_warehouse_stretch", "Largest stretch: a batch's delay against its period.", labels=table),
            "stretch",
        ),
        by_view(Gauge("hullcast_view_promise_seconds", "The response time promised.", labels=view), "response_time_s"),
        by_view(Gauge("hullcast_view_refresh_seconds", "What a refresh would take now.", labels=view), "refresh_s"),
        pending,
        by_view(Counter("hullcast_view_refreshes_kept_total", "Refreshes within the promise.", labels=view), "within"),
        by_view(Counter("hullcast_view_refreshes_late_total", "Refreshes beyond it.", labels=view), "beyond"),
        by_view(Counter("hullcast_view_changes_total", "Changes of the tables it reads.", labels=view), "changes"),
        by_view(Counter("hullcast_view_seconds_total", "Time spent propagating them.", labels=view), "spent_s"),
        by_view(Counter("hullcast_view_expected_seconds_total", "As it was expected.", labels=view), "expected_s"),
        each(Gauge("hullcast_policy", "1 for the policy in force.", labels=["policy"]), {known["policy"]: 1}),
        counters,
    ]


def _conditionals(server: Server) -> list[Metric]:
    """Conditional subscriptions: however many clients share one, it counts once."""
    all_ = server.conditionals
    return [
        Gauge("hullcast_conditionals", "Different conditional subscriptions.", len(all_)),
        Gauge("hullcast_conditionals_waiting", "Of these, those that are due and wait for their turn.", all_.waiting),
        Counter("hullcast_conditionals_fired_total", "Changes of conditions, and times that came.", all_.counts.fires),
        Counter("hullcast_conditionals_runs_total", "Runs of their queries.", all_.counts.runs),
        Counter("hullcast_conditionals_failed_total", "Runs that gave an error instead of rows.", all_.counts.failures),
        Counter("hullcast_conditionals_seconds_total", "Time these runs took.", all_.counts.took_s),
        Counter("hullcast_conditionals_delivered_total", "Results delivered.", all_.counts.delivered),
    ]


def _streams(known: dict[str, Any]) -> list[Metric]:
    """Derived streams and joins of subscriptions, as of a second ago at most. Joins have names that only status tells
    more of."""
    derived = {**known["derived"], **{one["name"]: one for one in known["joins"]}}

    def by_stream(family: Family, fact: str) -> Family:
        return each(family, {name: one[fact] for name, one in derived.items() if one[fact] is not None})

    missed = {name: one["memory"]["missed_share"] for name, one in derived.items() if one["memory"] is not None}
    stream, behind = (
        ["stream"],
        "Seconds between what a join of two streams has consumed and the time of the later one.",
    )
    return [
        Gauge("hullcast_stream_queue_bytes", "Tuples waiting in joins over streams.", known.get("waiting_bytes", 0)),
        Gauge(
            "hullcast_stream_queue_most_bytes",
            "The most that waited since the process was started.",
            known.get("most_waiting_bytes", 0),
        ),
        Gauge("hullcast_stream_kept_bytes", "Windows and tables that joins keep.", known.get("kept_bytes", 0)),
        Gauge("hullcast_stream_full", "Streams of which no more tuples are taken now.", len(known["full"])),
        Counter("hullcast_stream_overloaded_total", "Publishes refused because too much waits.", known["refused"]),
        Gauge("hullcast_stream_behind_updates", "Updates that joins have not read from the log.", known["behind"]),
        Counter("hullcast_stream_processes_total", "Streams processes started.", known["processes"]),
        by_stream(Gauge("hullcast_stream_waiting", "Tuples waiting in a join.", labels=stream), "waiting"),
        by_stream(Gauge("hullcast_stream_behind_seconds", behind, labels=stream), "behind_s"),
        by_stream(Counter("hullcast_stream_results_total", "Results of a join.", labels=stream), "results"),
        by_stream(Counter("hullcast_stream_gaps_total", "Times that results are missing.", labels=stream), "gaps"),
        each(Gauge("hullcast_stream_missed_share", "Share of results missed, estimated.", labels=stream), missed),
        each(Gauge("hullcast_stream_policy", "1 for the policy in force.", labels=["policy"]), {known["policy"]: 1}),
    ]


def _nodes(server: Server) -> Metric:
    """How far behind each node was when it last reported; at most a second old, so never quite 0 under load."""
    lag = Gauge("hullcast_node_lag_updates", "Updates a node had not seen at its report.", labels=["node", "id"])
    for report in server.nodes.live():
        through = report.get("through")
        if isinstance(through, int):
            labels = [str(report.get("name", "")), str(report.get("id", ""))]
            lag.add_metric(labels, max(0, server.engine.seq - through))
    return lag
