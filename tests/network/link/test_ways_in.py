"""Where to dial when the parent is gone."""

from __future__ import annotations

from hullcast.network.link.endpoints import ways_in, ways_up
from hullcast.network.wire.frames import NodeEntry

PATH = ((b"s" * 16, "tcp://127.0.0.1:1"), (b"r" * 16, "tcp://127.0.0.1:2"))


def anywhere(endpoint: str) -> bool:
    return True


def test_a_node_climbs_towards_the_server() -> None:
    assert ways_up(("tcp://127.0.0.1:9",), PATH, anywhere) == (
        "tcp://127.0.0.1:9",
        "tcp://127.0.0.1:2",
        "tcp://127.0.0.1:1",
    )


def test_what_others_tell_is_dialled_only_where_our_settings_allow_it() -> None:
    def local(endpoint: str) -> bool:
        return "127.0.0.1:1" in endpoint

    assert ways_up(("tcp://10.0.0.1:9",), PATH, local) == ("tcp://10.0.0.1:9", "tcp://127.0.0.1:1")


def test_a_client_prefers_deep_and_idle_gateways() -> None:
    nodes = (
        NodeEntry(b"r" * 16, "root", "tcp://127.0.0.1:2", 1, 0),
        NodeEntry(b"a" * 16, "busy", "tcp://127.0.0.1:3", 2, 9),
        NodeEntry(b"b" * 16, "idle", "tcp://127.0.0.1:4", 2, 1),
    )
    assert ways_in(("tcp://127.0.0.1:3",), PATH, nodes, anywhere) == (
        "tcp://127.0.0.1:3",
        "tcp://127.0.0.1:4",
        "tcp://127.0.0.1:2",
        "tcp://127.0.0.1:1",
    )
