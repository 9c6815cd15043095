"""A node's metrics, and those a server has too: children, links, routing, pauses.

They are made of `statistics()` and counters when a monitor is asked. Names begin with `hullcast_`, units are in the
name (`_seconds`, `_bytes`), and what only grows ends in `_total`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

from prometheus_client.metrics_core import CounterMetricFamily as Counter
from prometheus_client.metrics_core import GaugeMetricFamily as Gauge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client.metrics_core import Metric

    from hullcast.network.monitor.pauses import Pauses
    from hullcast.network.node.children import Children
    from hullcast.network.node.node import Node

Family = TypeVar("Family", Counter, Gauge)


def node_metrics(node: Node) -> list[Metric]:
    """The link to the parent, and everything below."""
    link = node.dialer.statistics()
    waiting = link.session.unacknowledged_bytes if link.session is not None else 0
    return [
        Gauge("hullcast_parent_attached", "1 while there is a parent.", node.attached),
        Gauge("hullcast_depth", "Links between this node and the server.", len(node.path)),
        Counter(
            "hullcast_parent_changes_total", "Times the node lost its parent and found one again.", node.reattached
        ),
        Counter("hullcast_parent_dialled_total", "Attempts to reach a parent.", link.attempts),
        Counter("hullcast_parent_resumed_total", "Cuts after which the link continued, nothing lost.", link.resumed),
        Counter("hullcast_parent_interruptions_total", "Times the connection to the parent broke.", link.interruptions),
        Gauge("hullcast_parent_queue_bytes", "Bytes on their way to the parent, not acknowledged yet.", waiting),
        Counter("hullcast_greedy_refused_total", "Requests of a child beyond its share.", node.greedy_refused),
        Counter("hullcast_reports_skipped_total", "Reports skipped, the way up being full.", node.skipped_reports),
        *shared_metrics(node.children, node.pauses),
    ]


def shared_metrics(children: Children, pauses: Pauses) -> list[Metric]:
    """Children, what was sent to them and what waits for them; links and connections; pauses."""
    status, links = cast("dict[str, int]", children.status()), children.listener.statistics()
    roles = {"client": status["clients"], "node": status["nodes"]}
    return [
        each(Gauge("hullcast_children", "Clients and nodes connected here.", labels=["role"]), roles),
        Gauge("hullcast_subscriptions", "Subscriptions of the clients connected here.", status["subscriptions"]),
        Gauge("hullcast_channels_routed", "Channels that a client or node below wants.", status["channels"]),
        Gauge("hullcast_through_seq", "Update up to which the children have everything.", children.through),
        Counter("hullcast_messages_total", "Messages that came to the routing table.", status["messages"]),
        Counter("hullcast_messages_routed_total", "Messages sent on, once for each child.", status["routed"]),
        Counter(
            "hullcast_messages_filtered_total",
            "Messages kept from children that want others of their channel, once for each child.",
            status["filtered"],
        ),
        Counter("hullcast_delivered_messages_total", "Messages handed to links.", status["delivered_messages"]),
        Counter(
            "hullcast_delivered_bytes_total", "Bytes of the frames with these messages.", status["delivered_bytes"]
        ),
        Counter("hullcast_too_large_total", "Replies and updates too large for a child.", status["too_large"]),
        Counter("hullcast_nodes_refused_total", "Nodes that had no right to join.", status["refused"]),
        Counter(
            "hullcast_frames_failed_total", "Frames that failed because of a bug in this process.", children.failures
        ),
        Gauge("hullcast_queue_bytes", "Bytes on their way to children, not acknowledged yet.", status["queued_bytes"]),
        Gauge("hullcast_queue_fullest_bytes", "The same for the child with the most.", status["fullest_bytes"]),
        Gauge("hullcast_links", "Links to children.", links.peers),
        Gauge("hullcast_connections", "TCP connections of children, unknown ones included.", links.connections),
        Counter("hullcast_links_joined_total", "Links that began.", links.joined),
        Counter("hullcast_links_resumed_total", "Links that continued after a cut, nothing lost.", links.resumed),
        Counter("hullcast_slow_peers_closed_total", "Links closed because too much waited.", links.left.get("slow", 0)),
        each(Counter("hullcast_links_left_total", "Links that ended, by reason.", labels=["code"]), links.left),
        each(
            Counter("hullcast_links_refused_total", "Links refused at the greeting, by reason.", labels=["code"]),
            links.refused,
        ),
        Counter("hullcast_keys_refused_total", "Connections with a key that is not allowed.", links.refused_keys),
        Counter("hullcast_handshakes_failed_total", "Connections that never became a link.", links.failed_handshakes),
        Counter("hullcast_connections_cut_total", "Connections cut because they did not leave.", links.cut),
        Counter("hullcast_link_received_frames_total", "Frames from children.", links.received_frames),
        Counter("hullcast_link_received_bytes_total", "Bytes of these frames.", links.received_bytes),
        Counter("hullcast_link_sent_frames_total", "Frames to children, repetitions included.", links.sent_frames),
        Counter("hullcast_link_sent_bytes_total", "Bytes of these frames.", links.sent_bytes),
        Gauge(
            "hullcast_loop_pause_recent_seconds",
            "The longest pause of the event loop in the last minute.",
            pauses.recent_s,
        ),
        Gauge("hullcast_loop_pause_longest_seconds", "The same, since the start.", pauses.longest_s),
    ]


def each(family: Family, values: Mapping[str, float]) -> Family:
    """The family with a sample for each value of its label."""
    for label, value in sorted(values.items()):
        family.add_metric([label], value)
    return family
