"""S-CN in a broker tree: each rectangle goes down to where an affected subscription lives, as real nodes route it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.compiled import kernel
from hullcast.sim.traffic.sizes import size_of
from hullcast.sim.traffic.tally import Tally, add, begin, note

if TYPE_CHECKING:
    from hullcast.sim.traffic.audience import Heard, Ints, Narrow

ROOT = 0


@kernel
def down_the_tree(tally: Tally, starts: Ints, heard: Heard, parent: Narrow, sizes: Ints, out: Ints, first: int) -> None:
    """The frame from a parent to a child holds the rectangles with an affected gateway at or below the child.

    Events as in `unicast`. For each gateway the walk goes up only as far as this rectangle has not been yet.
    """
    brokers = len(parent)
    rows = np.zeros(brokers, np.int64)  # of the frame to each child
    passed = np.full(brokers, -1, np.int64)  # the last rectangle that went there
    touched = np.empty(brokers, np.int64)
    for event in range(len(starts) - 1):
        used = 0
        for rectangle in range(starts[event], starts[event + 1]):
            for i in range(heard.starts[rectangle], heard.starts[rectangle + 1]):
                child = heard.gateway[i]
                while child != ROOT and passed[child] != rectangle:
                    passed[child] = rectangle
                    if rows[child] == 0:
                        touched[used] = child
                        used += 1
                    rows[child] += 1
                    child = parent[child]
        begin(tally)
        for i in range(used):
            child = touched[i]
            add(tally, parent[child], child, 1, size_of(sizes, rows[child]))
            rows[child] = 0
        note(tally, out, first + event)
