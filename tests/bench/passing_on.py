"""What one Deliver costs a node, in microseconds of CPU: `python -m tests.bench.passing_on`.

The node is the real one, without sockets: frames are handed to `Node.on_frame`, and its nine children (nodes below, as
in the middle of the overlay) take bytes and do nothing. `all` is a frame of which each child takes every row, `half`
one of which each takes the same half.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any, cast

import numpy as np

from hullcast.network.node.node import Node
from hullcast.network.node.settings import NodeSettings
from hullcast.network.security.rights import Rights
from hullcast.network.wire.columns import Columns, TextColumn
from hullcast.network.wire.frames import Deliver, Install, Reply, encode

CHILDREN, CHANNEL, ROUNDS, SECONDS = 9, 1, 7, 0.3


class Below:
    """A child that takes everything."""

    role, name, key = "node", "below", None

    def __init__(self, number: int) -> None:
        self.number = number
        self.frames = 0

    def send(self, payload: bytes) -> None:
        self.frames += 1


def rectangles(rows: int) -> Columns:
    """Messages of a MIN that concern the range from 4 to 6."""
    inner = {"il": np.full(rows, 4.0), "ir": np.full(rows, 6.0), "ol": np.full(rows, 3.0), "or": np.full(rows, 7.0)}
    return {"seq": np.arange(1, rows + 1), **inner, "best": np.full(rows, 1.0)}


def places(rows: int) -> Columns:
    """Messages of a SELECT of two columns that concern the range from 4 to 6."""
    there = {"old.there": np.zeros(rows, np.bool_), "new.there": np.ones(rows, np.bool_)}
    shown = {"altered": np.ones(rows, np.bool_), "key.0": np.full(rows, 2.0), "row.0": np.full(rows, 5.0)}
    texts = TextColumn.from_texts([f"name {i % 50}" for i in range(rows)])
    where = {"old.0": np.zeros(rows), "new.0": np.full(rows, 5.0)}
    return {"seq": np.arange(1, rows + 1), **there, **where, **shown, "row.1": texts}


def microseconds(form: str, columns: Columns, *, half: bool) -> float:
    """CPU time of one frame, the median of some rounds."""
    node = Node(NodeSettings(parent=("tcp://127.0.0.1:1",)), Rights.everything())
    if half:
        name = "or" if form == "rectangles" else "new.0"
        cast("Any", columns[name])[::2] = 5.5 if form == "rectangles" else 50.0
    for number in range(1, CHILDREN + 1):
        child: Any = Below(number)
        node.children.on_join(child)
        install = Install(1, CHANNEL, cast("Any", form), False, np.array([[4.0, 6.0]]))
        node.children.answer(Reply(1, (number,), (install,), b""))
    frame = encode(Deliver(len(columns["seq"]), {CHANNEL: columns}))
    node.on_frame(frame)  # kernels are there now
    sent = [cast("Any", peer).frames for peer in node.children.peers.values()]
    assert sent == [2] * CHILDREN, sent
    costs = []
    for _ in range(ROUNDS):
        begun, frames = time.process_time(), 0
        while time.process_time() - begun < SECONDS / ROUNDS:
            node.on_frame(frame)
            frames += 1
        costs.append((time.process_time() - begun) / frames * 1e6)
    return median(costs)


def main() -> None:
    """Print a line for each kind of frame."""
    for form, make in (("rectangles", rectangles), ("places", places)):
        for rows in (1, 1000):
            for half in (False, True)[: 1 if rows == 1 else 2]:
                cost = microseconds(form, make(rows), half=half)
                print(f"{form:10} {rows:5} rows, {'half' if half else 'all'}: {cost:8.1f} us")


if __name__ == "__main__":
    main()
