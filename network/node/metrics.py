"""A node in numbers, for its monitor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.network.monitor.metrics import counter, gauge
from hullcast.network.monitor.process import pause_metrics, process_metrics
from hullcast.network.node.children_metrics import children_metrics

if TYPE_CHECKING:
    from hullcast.network.monitor.metrics import Metric
    from hullcast.network.node.node import Node


def node_metrics(node: Node) -> list[Metric]:
    """The way up, and everything below."""
    link = node.dialer.statistics()
    waiting = link.session.unacknowledged_bytes if link.session is not None else 0
    return [
        gauge("hullcast_parent_attached", "1 while there is a parent.", node.attached),
        gauge("hullcast_depth", "Links between this node and the server.", len(node.path)),
        counter(
            "hullcast_parent_changes_total", "Times the node lost its parent and found one again.", node.reattached
        ),
        counter("hullcast_parent_dialled_total", "Attempts to reach a parent.", link.attempts),
        counter("hullcast_parent_resumed_total", "Cuts after which the link went on, nothing lost.", link.resumed),
        counter("hullcast_parent_interruptions_total", "Times the connection to the parent broke.", link.interruptions),
        gauge("hullcast_parent_queue_bytes", "Bytes on their way to the parent, not acknowledged yet.", waiting),
        counter("hullcast_greedy_refused_total", "Requests of a child beyond its share.", node.greedy_refused),
        counter("hullcast_reports_skipped_total", "Reports skipped, the way up being full.", node.skipped_reports),
        *pause_metrics(node.pauses),
        *children_metrics(node.children),
        *process_metrics(),
    ]
