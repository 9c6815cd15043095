"""Replaying a chunk of consecutive events: what each costs in every placement, each of the four ways.

    S-CN              rectangles, routed by content or flooded (served.py)
    S-UN              one frame for each affected subscription (served.py)
    S-UN aggregated   one frame for each gateway of an affected subscription (served.py)
    CN                the row itself, to whoever's range holds it (relaxed.py)

Pure: arrays in, arrays out. What is told of an event does not depend on where the chunk begins or ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hullcast.network.wire.arrays import Ints
from hullcast.sim.traffic.audience import ENOUGH, by_gateway, concerned
from hullcast.sim.traffic.rectangles import Events, Rectangles, StartRows, before, checked, rectangles_of
from hullcast.sim.traffic.relaxed import relaxed
from hullcast.sim.traffic.served import down_the_tree, over_the_zones, unicast
from hullcast.sim.traffic.tally import METRICS, tally_of
from hullcast.sim.traffic.world import World

APPROACHES = ("S-CN", "S-UN", "S-UN aggregated", "CN")
S_CN, S_UN, AGGREGATED, CN = 0, 1, 2, 3

#: Columns of the result and their types, in this order. `placement` and `approach` are places in `World.names` and
#: APPROACHES; `rectangles` (0: the event is ignorable) and `affected` (subscriptions) are the event's own and repeat.
COLUMNS: dict[str, type[np.generic]] = {
    "seq": np.int64,
    "placement": np.int8,
    "approach": np.int8,
    **dict.fromkeys(METRICS, np.int64),
    "rectangles": np.int32,
    "affected": np.int64,
}


def replay_chunk(state: StartRows, events: Events, world: World) -> dict[str, npt.NDArray[Any]]:
    """The COLUMNS of the events' costs: a row for each event, placement and approach, in that order of rank.

    Time: O(log) for the engine's part of each event, O(1) for each affected subscription and placement, O(path) for
    each frame's way; CN once for each pair of positions (relaxed.py). Memory: the result, 8 b^2 bytes for
    a CAN of b brokers, and ENOUGH subscriptions at a time.
    """
    state, events = checked(state, events)
    n, shape = len(events), (len(events), len(world.placements), len(APPROACHES))
    old_x, old_y = before(state, events)
    rectangles = rectangles_of(state, events, old_x, old_y)
    costs = np.zeros((len(world.placements), len(APPROACHES), n, len(METRICS)), np.int64)
    affected = _with_server(world, rectangles, costs)
    for placed, out in zip(world.placements, costs, strict=True):
        out[CN] = relaxed(placed, old_x, events.x, world.sizes.row)
    numbers = np.indices(shape[1:], np.int8)
    columns: dict[str, npt.NDArray[Any]] = {
        "seq": np.broadcast_to(events.seq[:, None, None], shape),
        "placement": np.broadcast_to(numbers[0], shape),
        "approach": np.broadcast_to(numbers[1], shape),
        **{name: costs[..., i].transpose(2, 0, 1) for i, name in enumerate(METRICS)},
        "rectangles": np.broadcast_to(np.diff(rectangles.starts)[:, None, None], shape),
        "affected": np.broadcast_to(affected[:, None, None], shape),
    }
    return {name: np.ascontiguousarray(columns[name].reshape(-1), kind) for name, kind in COLUMNS.items()}


def _with_server(world: World, rectangles: Rectangles, costs: Ints) -> Ints:
    """S-CN and both forms of S-UN, into `costs`; gives the number of affected subscriptions of each event.

    Trees and unicast go by the subscriptions concerned, some events at a time; a CAN needs the rectangles only.
    """
    n = len(rectangles.starts) - 1
    affected, first, ids = np.zeros(n, np.int64), 0, np.empty(ENOUGH, np.int64)
    tallies = [tally_of(placed.placement.routes) for placed in world.placements]
    while first < n:
        end, starts, ids = concerned(world.subscriptions, rectangles, first, ENOUGH, ids)
        events = rectangles.starts[first : end + 1] - rectangles.starts[first]
        affected[first:end] = np.diff(starts[events])
        for placed, tally, out in zip(world.placements, tallies, costs, strict=True):
            heard = by_gateway(starts, ids, placed.gateways, placed.brokers)
            unicast(tally, events, heard, world.sizes.unicast, out[S_UN], out[AGGREGATED], first)
            tree = placed.placement.tree
            if tree is not None:
                down_the_tree(tally, events, heard, tree.parent, world.sizes.rectangles, out[S_CN], first)
        first = end
    for placed, tally, out in zip(world.placements, tallies, costs, strict=True):
        zones = placed.placement.zones
        if placed.placement.tree is None and zones is not None:
            greedy = placed.placement.entry == "greedy"
            over_the_zones(tally, rectangles, zones, greedy, world.sizes.rectangles, out[S_CN])
    return affected
