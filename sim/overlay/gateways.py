"""At which broker a subscription lives: by its content, by where its subscriber is, or by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from hullcast.network.wire.errors import UsageError
from hullcast.sim.overlay.zones import Zones, locate
from hullcast.sim.seeds import generator

if TYPE_CHECKING:
    import numpy.typing as npt

    from hullcast.sim.topology.paths import Routes

    Floats = npt.NDArray[np.float64]
    Numbers = npt.NDArray[np.int32]

Rule = Literal["content", "nearest", "random"]


def gateways(rule: Rule, points: Floats, *, routes: Routes, zones: Zones | None = None, root: int = 0) -> Numbers:
    """The gateway of each subscription (x1, x2).

    content  the owner of the zone that it lies in
    nearest  its subscriber sits at any physical node, each as likely, and dials the broker nearest by latency
    random   any broker, each as likely

    Subscriptions are taken in order: those that come first get the same gateways whatever comes after them.
    """
    count = len(points)
    if rule == "content":
        if zones is None:
            raise UsageError("gateways by content need the zones of the brokers; give zones=")
        return locate(zones, points)
    random = generator(root, "gateways", rule)
    if rule == "nearest":
        return routes.nearest[random.integers(0, len(routes.nearest), count)].astype(np.int32)
    if rule == "random":
        return random.integers(0, len(routes.nodes), count).astype(np.int32)
    raise UsageError(f"unknown gateway rule {rule!r}; choose content, nearest or random")
