"""A node's metrics, and those a server has too: children, links, routing, pauses.

They are made of `statistics()` and counters when a monitor is asked. Names begin with `hullcast_`, units are in the
name (`_seconds`, `_bytes`), and what only grows ends in `_total`: such a family is a counter, any other a gauge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client.metrics_core import Metric

    from hullcast.network.monitor.pauses import Pauses
    from hullcast.network.node.children import Children
    from hullcast.network.node.node import Node

    Samples = Mapping[str, float] | Mapping[tuple[str, str], float]
    #: A family: its name, what it tells, its value or samples by label, and which labels these are.
    Row = tuple[str, str, float] | tuple[str, str, Samples, str] | tuple[str, str, Samples, str, str]


def families(rows: Sequence[Row]) -> list[Metric]:
    """Metrics, a row each."""
    return [_family(name, about, value, labels) for name, about, value, *labels in rows]


def _family(name: str, about: str, value: float | Samples, labels: Sequence[str]) -> Metric:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    if not isinstance(value, Mapping):
        return kind(name, about, value)
    family = kind(name, about, labels=labels)
    for label, sample in sorted(value.items()):
        family.add_metric([label] if isinstance(label, str) else label, sample)
    return family


# fmt: off
def node_metrics(node: Node) -> list[Metric]:
    """The link to the parent, and everything below."""
    link = node.dialer.statistics()
    waiting = link.session.unacknowledged_bytes if link.session is not None else 0
    return families([
        ("hullcast_parent_attached", "1 while there is a parent.", node.attached),
        ("hullcast_depth", "Links between this node and the server.", len(node.path)),
        ("hullcast_parent_changes_total", "Times the node lost its parent and found one again.", node.reattached),
        ("hullcast_parent_dialled_total", "Attempts to reach a parent.", link.attempts),
        ("hullcast_parent_resumed_total", "Cuts after which the link continued, nothing lost.", link.resumed),
        ("hullcast_parent_interruptions_total", "Times the connection to the parent broke.", link.interruptions),
        ("hullcast_parent_queue_bytes", "Bytes on their way to the parent, not acknowledged yet.", waiting),
        ("hullcast_greedy_refused_total", "Requests of a child beyond its share.", node.greedy_refused),
        ("hullcast_reports_skipped_total", "Reports skipped, the way up being full.", node.skipped_reports),
    ]) + shared_metrics(node.children, node.pauses)


def shared_metrics(children: Children, pauses: Pauses) -> list[Metric]:
    """Children, what was sent to them and what waits for them; links and connections; pauses."""
    status, links = cast("dict[str, int]", children.status()), children.listener.statistics()
    roles = {"client": status["clients"], "node": status["nodes"]}
    recent = "The longest pause of the event loop in the last minute."
    filtered = "Messages kept from children that want others of their channel, once for each child."
    return families([
        ("hullcast_children", "Clients and nodes connected here.", roles, "role"),
        ("hullcast_subscriptions", "Subscriptions of the clients connected here.", status["subscriptions"]),
        ("hullcast_channels_routed", "Channels that a client or node below wants.", status["channels"]),
        ("hullcast_through_seq", "Update up to which the children have everything.", children.through),
        ("hullcast_messages_total", "Messages that came to the routing table.", status["messages"]),
        ("hullcast_messages_routed_total", "Messages sent on, once for each child.", status["routed"]),
        ("hullcast_messages_filtered_total", filtered, status["filtered"]),
        ("hullcast_delivered_messages_total", "Messages handed to links.", status["delivered_messages"]),
        ("hullcast_delivered_bytes_total", "Bytes of the frames with these messages.", status["delivered_bytes"]),
        ("hullcast_too_large_total", "Replies and updates too large for a child.", status["too_large"]),
        ("hullcast_nodes_refused_total", "Nodes that had no right to join.", status["refused"]),
        ("hullcast_frames_failed_total", "Frames that failed because of a bug in this process.", children.failures),
        ("hullcast_queue_bytes", "Bytes on their way to children, not acknowledged yet.", status["queued_bytes"]),
        ("hullcast_queue_fullest_bytes", "The same for the child with the most.", status["fullest_bytes"]),
        ("hullcast_links", "Links to children.", links.peers),
        ("hullcast_connections", "TCP connections of children, unknown ones included.", links.connections),
        ("hullcast_links_joined_total", "Links that began.", links.joined),
        ("hullcast_links_resumed_total", "Links that continued after a cut, nothing lost.", links.resumed),
        ("hullcast_slow_peers_closed_total", "Links closed because too much waited.", links.left.get("slow", 0)),
        ("hullcast_links_left_total", "Links that ended, by reason.", links.left, "code"),
        ("hullcast_links_refused_total", "Links refused at the greeting, by reason.", links.refused, "code"),
        ("hullcast_keys_refused_total", "Connections with a key that is not allowed.", links.refused_keys),
        ("hullcast_handshakes_failed_total", "Connections that never became a link.", links.failed_handshakes),
        ("hullcast_connections_cut_total", "Connections cut because they did not leave.", links.cut),
        ("hullcast_link_received_frames_total", "Frames from children.", links.received_frames),
        ("hullcast_link_received_bytes_total", "Bytes of these frames.", links.received_bytes),
        ("hullcast_link_sent_frames_total", "Frames to children, repetitions included.", links.sent_frames),
        ("hullcast_link_sent_bytes_total", "Bytes of these frames.", links.sent_bytes),
        ("hullcast_loop_pause_recent_seconds", recent, pauses.recent_s),
        ("hullcast_loop_pause_longest_seconds", "The same, since the start.", pauses.longest_s),
    ])
