"""The server's metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hullcast.broker.server.warehouse import VIEWS
from hullcast.network.node.metrics import families, shared_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client.metrics_core import Metric

    from hullcast.broker.server.service import Server
    from hullcast.network.node.metrics import Row


# fmt: off
def server_metrics(server: Server) -> list[Metric]:
    """Rows and log, the nodes' lag, and everything below."""
    engine, log, hall, jobs = server.engine, server.log.statistics(), server.hall, server.jobs
    in_work, lingering = server.working.statistics().waiting, server.attendance.lingering
    lag, queries = engine.seq - server.children.through, server.queries.status()
    known = [attending.channel.ranges_known() for attending in server.attendance]
    rows = {name: engine.rows(name) for name in engine.catalogue.shown_tables}
    return families([
        ("hullcast_updates_total", "Updates since the database began: its sequence number.", engine.seq),
        ("hullcast_lag_updates", "Updates applied whose messages have not left yet.", lag),
        ("hullcast_requests_total", "Requests of clients and reports of nodes.", hall.requests),
        ("hullcast_requests_refused_total", "Requests that their senders had no right to make.", hall.refused),
        ("hullcast_requests_failed_total", "Requests that failed because of a bug in the server.", hall.failures),
        ("hullcast_requests_in_work", "Requests answered in several turns, not done yet.", in_work),
        ("hullcast_queries_total", "One-time queries answered.", queries["answered"]),
        ("hullcast_queries_failed_total", "One-time queries refused or stopped.", queries["failed"]),
        ("hullcast_queries_given_up_total", "One-time queries that clients gave up.", queries["given_up"]),
        ("hullcast_views_given_up_total", "CREATE VIEW that clients gave up.", jobs.given_up[VIEWS]),
        ("hullcast_queries_waiting", "One-time queries whose turn has not come.", queries["waiting"]),
        ("hullcast_queries_running", "One-time queries being answered.", queries["running"]),
        *_warehouse(queries),
        *_conditionals(server),
        *_streams(server.streams.status()),
        ("hullcast_feed_bytes", "Changes that followers have not read.", engine.feed.size_bytes),
        ("hullcast_staged_bytes", "First answers waiting to be fetched.", server.subscribing.staged_bytes),
        ("hullcast_table_rows", "Rows.", rows, "table"),
        ("hullcast_channels", "Channels that subscribers elsewhere attend, or did lately.", len(server.attendance)),
        ("hullcast_ranges_distinct", "Different ranges of joins that are wanted.", sum(one for one, _ in known)),
        ("hullcast_ranges", "Ranges of joins that are wanted, one per subscription.", sum(n for _, n in known)),
        ("hullcast_ranges_lingering", "Of these, ranges of lost clients, kept in case they reconnect.", lingering),
        ("hullcast_engine_memory_bytes", "Rows, trees and subscriptions.", engine.memory_bytes()),
        ("hullcast_stream_window_bytes", "Windows over streams.", server.windows.size_bytes),
        ("hullcast_retention_bytes", "Recent messages kept for clients that reconnect.", server.retention.size_bytes),
        ("hullcast_pending_bytes", "Requests that wait for the disk.", server.pipeline.waiting_bytes),
        ("hullcast_log_synced_seq", "Update up to which everything is on disk.", log.synced_seq),
        ("hullcast_log_pending_records", "Records not on disk yet.", log.pending_records),
        ("hullcast_log_pending_bytes", "Bytes of these records.", log.pending_bytes),
        *_space(server),
        ("hullcast_log_broken", "1 when the log can no longer be written.", log.broken),
        ("hullcast_log_written_bytes_total", "Bytes written to the log.", log.written_bytes),
        ("hullcast_log_groups_total", "Groups of records synced together.", log.groups),
        ("hullcast_checkpoints_total", "Checkpoints written.", server.storage.checkpoints),
        ("hullcast_node_lag_updates", "Updates a node had not seen at its report.", _lags(server), "node", "id"),
    ]) + shared_metrics(server.children, server.pauses)


def _space(server: Server) -> list[Row]:
    space, full = server.storage.space, server.commits.disk_full() is not None
    return [] if space is None else [
        ("hullcast_disk_full", "1 while publishes are refused: no room for them.", full),
        ("hullcast_disk_free_bytes", "Free on the disk of the data directory.", space.free_bytes),
        ("hullcast_disk_reserve_bytes", "Of these, only for the log.", space.reserve_bytes),
    ]


BEHIND = "Seconds between what a join of two streams has consumed and the time of the later one."
STALE = "Seconds since the oldest change not loaded yet was acknowledged."
#: By table, by view and by stream: name, what it tells, and the fact that is its value.
TABLES = (
    ("hullcast_warehouse_bytes", "Size of a table's file for queries.", "bytes"),
    ("hullcast_warehouse_loads_total", "Loads of changes into a table.", "loads"),
    ("hullcast_warehouse_rows_total", "Rows these loads wrote.", "loaded_rows"),
    ("hullcast_warehouse_staleness_seconds", STALE, "staleness_s"),
    ("hullcast_warehouse_unapplied", "Changes not loaded yet.", "unapplied"),
    ("hullcast_warehouse_stretch", "Largest stretch: a batch's delay against its period.", "stretch"),
)
VIEW_FACTS = (
    ("hullcast_view_promise_seconds", "The response time promised.", "response_time_s"),
    ("hullcast_view_refresh_seconds", "What a refresh would take now.", "refresh_s"),
    ("hullcast_view_refreshes_kept_total", "Refreshes within the promise.", "within"),
    ("hullcast_view_refreshes_late_total", "Refreshes beyond it.", "beyond"),
    ("hullcast_view_changes_total", "Changes of the tables it reads.", "changes"),
    ("hullcast_view_seconds_total", "Time spent propagating them.", "spent_s"),
    ("hullcast_view_expected_seconds_total", "As it was expected.", "expected_s"),
)
STREAMS = (
    ("hullcast_stream_waiting", "Tuples waiting in a join.", "waiting"),
    ("hullcast_stream_behind_seconds", BEHIND, "behind_s"),
    ("hullcast_stream_results_total", "Results of a join.", "results"),
    ("hullcast_stream_gaps_total", "Times that results are missing.", "gaps"),
)


def _each(label: str, table: tuple[tuple[str, str, str], ...], all_: Mapping[str, dict[str, Any]]) -> list[Row]:
    return [
        (name, about, {of: facts[fact] for of, facts in all_.items() if facts[fact] is not None}, label)
        for name, about, fact in table
    ]


def _warehouse(known: dict[str, Any]) -> list[Row]:
    """What one-time queries are answered from, as of half a second ago at most."""
    pending = {(name, of): rows for name, facts in known["views"].items() for of, rows in facts["pending"].items()}
    counters = {(known["policy"], name): value for name, value in known["counters"].items()}
    return [
        ("hullcast_queries_late_total", "One-time queries aborted at their deadline.", known["missed"]),
        ("hullcast_queries_kept_bytes", "Rest of large answers, waiting to be fetched.", known["kept_bytes"]),
        ("hullcast_warehouse_processes_total", "Warehouse processes started.", known["processes"]),
        ("hullcast_warehouse_worker_restarts_total", "Its workers replaced.", known["worker_restarts"]),
        ("hullcast_warehouse_load_failures_total", "Loads that failed.", known["load_failures"]),
        *_each("table", TABLES, known["tables"]),
        *_each("view", VIEW_FACTS, known["views"]),
        ("hullcast_view_pending", "Changes not propagated yet.", pending, "view", "table"),
        ("hullcast_policy", "1 for the policy in force.", {known["policy"]: 1}, "policy"),
        ("hullcast_policy_counter", "What the policy in force counts.", counters, "policy", "counter"),
    ]


def _conditionals(server: Server) -> list[Row]:
    """Conditional subscriptions: however many clients share one, it counts once."""
    all_ = server.conditionals
    return [
        ("hullcast_conditionals", "Different conditional subscriptions.", len(all_)),
        ("hullcast_conditionals_waiting", "Of these, those that are due and wait for their turn.", all_.waiting),
        ("hullcast_conditionals_fired_total", "Changes of conditions, and times that came.", all_.counts.fires),
        ("hullcast_conditionals_runs_total", "Runs of their queries.", all_.counts.runs),
        ("hullcast_conditionals_failed_total", "Runs that gave an error instead of rows.", all_.counts.failures),
        ("hullcast_conditionals_seconds_total", "Time these runs took.", all_.counts.took_s),
        ("hullcast_conditionals_delivered_total", "Results delivered.", all_.counts.delivered),
    ]


def _streams(known: dict[str, Any]) -> list[Row]:
    """Derived streams and joins of subscriptions, as of a second ago at most. Joins have names that only status tells
    more of."""
    derived = {**known["derived"], **{one["name"]: one for one in known["joins"]}}
    missed = {name: one["memory"]["missed_share"] for name, one in derived.items() if one["memory"] is not None}
    most = known.get("most_waiting_bytes", 0)
    return [
        ("hullcast_stream_queue_bytes", "Tuples waiting in joins over streams.", known.get("waiting_bytes", 0)),
        ("hullcast_stream_queue_most_bytes", "The most that waited since the process was started.", most),
        ("hullcast_stream_kept_bytes", "Windows and tables that joins keep.", known.get("kept_bytes", 0)),
        ("hullcast_stream_full", "Streams of which no more tuples are taken now.", len(known["full"])),
        ("hullcast_stream_overloaded_total", "Publishes refused because too much waits.", known["refused"]),
        ("hullcast_stream_behind_updates", "Updates that joins have not read from the log.", known["behind"]),
        ("hullcast_stream_processes_total", "Streams processes started.", known["processes"]),
        *_each("stream", STREAMS, derived),
        ("hullcast_stream_missed_share", "Share of results missed, estimated.", missed, "stream"),
        ("hullcast_stream_policy", "1 for the policy in force.", {known["policy"]: 1}, "policy"),
    ]


def _lags(server: Server) -> dict[tuple[str, str], float]:
    """How far behind each node was when it last reported; at most a second old, so never quite 0 under load."""
    return {
        (str(report.get("name", "")), str(report.get("id", ""))): max(0, server.engine.seq - through)
        for report in server.nodes.live() if isinstance(through := report.get("through"), int)
    }
