"""Children, links and routing in numbers: what the monitors of a server and of a node have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from hullcast.network.monitor.metrics import Metric, Sample, counter, gauge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hullcast.network.link.listener import ListenerStatistics
    from hullcast.network.node.children import Children


def children_metrics(children: Children) -> list[Metric]:
    """Who is there, what went to them, and what waits for them."""
    status = cast("dict[str, int]", children.status())
    return [
        gauge("hullcast_children", "Peers below, by what they are.", status["clients"], role="client"),
        gauge("hullcast_children", "Peers below, by what they are.", status["nodes"], role="node"),
        gauge("hullcast_subscriptions", "Subscriptions of the clients connected here.", status["subscriptions"]),
        gauge("hullcast_channels_routed", "Channels that somebody below wants.", status["channels"]),
        gauge("hullcast_through_seq", "Update up to which the children have everything.", children.through),
        counter("hullcast_messages_total", "Messages that came to the routing table.", status["messages"]),
        counter("hullcast_messages_routed_total", "Messages sent on, once for each child.", status["routed"]),
        counter(
            "hullcast_messages_filtered_total",
            "Messages kept from children that want others of their channel, once for each child.",
            status["filtered"],
        ),
        counter("hullcast_delivered_messages_total", "Messages handed to links.", status["delivered_messages"]),
        counter(
            "hullcast_delivered_bytes_total", "Bytes of the frames with these messages.", status["delivered_bytes"]
        ),
        counter("hullcast_too_large_total", "Replies and updates too large for a child.", status["too_large"]),
        counter("hullcast_nodes_refused_total", "Nodes that had no right to join.", status["refused"]),
        counter(
            "hullcast_frames_failed_total", "Frames that failed because of a bug in this process.", children.failures
        ),
        gauge("hullcast_queue_bytes", "Bytes on their way to children, not acknowledged yet.", status["queued_bytes"]),
        gauge("hullcast_queue_fullest_bytes", "The same for the child with the most.", status["fullest_bytes"]),
        *listener_metrics(children.listener.statistics()),
    ]


def listener_metrics(links: ListenerStatistics) -> list[Metric]:
    """Links and connections: how many came, went, came back and were sent away."""
    return [
        gauge("hullcast_links", "Links to children.", links.peers),
        gauge("hullcast_connections", "TCP connections of children, strangers included.", links.connections),
        counter("hullcast_links_joined_total", "Links that began.", links.joined),
        counter("hullcast_links_resumed_total", "Links that went on after a cut, with nothing lost.", links.resumed),
        counter("hullcast_slow_peers_closed_total", "Links closed because too much waited.", links.left.get("slow", 0)),
        _by_code("hullcast_links_left_total", "Links that ended, by reason.", links.left),
        _by_code("hullcast_links_refused_total", "Links refused at the greeting, by reason.", links.refused),
        counter("hullcast_keys_refused_total", "Connections with a key that may not come in.", links.refused_keys),
        counter("hullcast_handshakes_failed_total", "Connections that never became a link.", links.failed_handshakes),
        counter("hullcast_connections_cut_total", "Connections cut because they did not leave.", links.cut),
        counter("hullcast_link_received_frames_total", "Frames from children.", links.received_frames),
        counter("hullcast_link_received_bytes_total", "Bytes of these frames.", links.received_bytes),
        counter("hullcast_link_sent_frames_total", "Frames to children, repetitions included.", links.sent_frames),
        counter("hullcast_link_sent_bytes_total", "Bytes of these frames.", links.sent_bytes),
    ]


def _by_code(name: str, about: str, counts: Mapping[str, int]) -> Metric:
    return Metric(name, "counter", about, tuple(Sample(n, (("code", code),)) for code, n in sorted(counts.items())))
