"""Which nodes are brokers: some nodes drawn at random, the first of them the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.wire.errors import UsageError
from hullcast.sim.seeds import generator

if TYPE_CHECKING:
    import numpy.typing as npt

    from hullcast.sim.topology.graph import Topology

    Ints = npt.NDArray[np.int64]

#: Of Xie (2007): 1,000 of 20,000 nodes.
BROKERS = 1_000


def choose_brokers(topology: Topology, count: int = BROKERS, *, root: int = 0) -> Ints:
    """The node of each broker, all different; [0] is the server's.

    Fewer brokers are the first of many, so the server stays where it is when their number changes.
    """
    if not 1 <= count <= topology.nodes:
        limit = f"topology {topology.name} has {topology.nodes} nodes"
        raise UsageError(f"{limit}, so it can have 1 to {topology.nodes} brokers, got {count}")
    order = generator(root, "brokers", topology.nodes).permutation(topology.nodes)
    return order[:count].astype(np.int64)
