"""Compiles or loads what a node runs before it serves, so its first clients do not wait.

Where the code is on disk already this takes half a second. A server needs more than this: broker/server/warming.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.network.routing.router import Router
from hullcast.network.wire.frames import Deliver, Install, Interest, Reply, Withdrawn, decode, encode

if TYPE_CHECKING:
    from hullcast.network.wire.frames import Form

#: Points of a client that has an index to itself, and of one that shares one; see network/routing/table.py.
MANY, FEW = 256, 2
BUDGET = 4  # boxes of a child node; fewer than its points, so that they have to be carved and absorbed
CLIENTS, NODE = (1, 2, 3), 4


def warm_node() -> None:
    """What carries messages: the router, with neighbours of every kind, and the wire format."""
    for form in _FORMS:
        router = Router(BUDGET)
        for client in CLIENTS:
            router.join(client, exact=True)
        router.join(NODE, exact=False)
        for group, (peer, count) in enumerate(((1, MANY), (2, FEW), (3, FEW), (NODE, MANY), (NODE, MANY)), 1):
            install = Install(group, 1, form, False, _points(count))
            reply = decode(encode(Reply(1, (), (install,), b"")))
            assert isinstance(reply, Reply), "what was encoded is decoded"
            router.install(peer, *reply.installs)
        boxes = decode(encode(Interest(1, 1, _points(MANY), _points(MANY) + 1.0)))
        assert isinstance(boxes, Interest), "what was encoded is decoded"
        for rows in (1, 200):
            router.route(1, _messages(form, rows))
        router.withdraw(1, 1, np.arange(MANY - 8))
        router.interests()
        router.interest(NODE, boxes)
        router.route(1, _messages(form, 2))
        counted = decode(encode(Reply(1, (), (Install(1, 2, form, False, _points(MANY), True),), b"")))
        assert isinstance(counted, Reply), "what was encoded is decoded"
        router.install(NODE, *counted.installs)
        router.route(2, _messages(form, 2))
        router.withdrawn(NODE, Withdrawn(2, 0, False, counted.installs[0].points[:FEW]))
        for peer in (*CLIENTS, NODE):
            router.leave(peer)
        router.interests()


_FORMS: tuple[Form, ...] = ("rectangles", "places")


def _points(count: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    low = np.arange(float(count))
    return np.column_stack((low, low + 1.0))


def _messages(form: str, rows: int) -> Any:
    """Messages as they arrive: decoded from the wire, so that their arrays are of the types that will be met."""
    at = np.linspace(0.0, 9.0, rows)
    columns: dict[str, Any] = {"seq": np.arange(rows)}
    if form == "rectangles":
        columns |= {"il": at, "ir": at, "ol": at - 1.0, "or": at + 1.0, "best": at}
    else:
        for side in ("old", "new"):
            columns |= {f"{side}.there": np.ones(rows, np.bool_), f"{side}.0": at, f"{side}.y": at}
    frame = decode(encode(Deliver(rows, {1: columns})))
    assert isinstance(frame, Deliver), "what was encoded is decoded"
    return frame.channels[1]
