"""Replaying a chunk of consecutive events: what each costs in every placement, each of the four ways.

    S-CN              rectangles, routed by content or flooded (served.py)
    S-UN              one frame for each affected subscription (served.py)
    S-UN aggregated   one frame for each gateway of an affected subscription (served.py)
    CN                the row itself, to whoever's range holds it (relaxed.py)

Pure: arrays in, arrays out. What is told of an event does not depend on where the chunk begins or ends, nor on how many
events are played at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hullcast.network.wire.arrays import Ints
from hullcast.sim.traffic.audience import ENOUGH, by_gateway, concerned
from hullcast.sim.traffic.rectangles import Events, Rectangles, StartRows, TableRows, checked, keys_of
from hullcast.sim.traffic.relaxed import relaxed
from hullcast.sim.traffic.served import down_the_tree, over_the_zones, unicast
from hullcast.sim.traffic.tally import LINK_STRESS, METRICS, NODE_STRESS, tally_of
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
#: What is added up over events of one placement, one approach, one pair of stresses, and ignorable or not.
SUMS = ("messages", "bytes", "byte_links", "rectangles", "affected")
GROUPS = ("placement", "approach", "ignorable", "node_stress", "link_stress")
#: Columns of the same reduced to such sums; `seq` is the sum of the events' numbers, as a check that each came once.
REDUCED: dict[str, type[np.generic]] = {
    "placement": np.int8,
    "approach": np.int8,
    "ignorable": np.bool_,
    "node_stress": np.int64,
    "link_stress": np.int64,
    "events": np.int64,
    "seq": np.int64,
    **dict.fromkeys(SUMS, np.int64),
}


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """What events cost, one after the other."""

    seq: Ints  # (n,)
    metrics: Ints  # (placements, approaches, n, METRICS)
    rectangles: Ints  # (n,)
    affected: Ints  # (n,)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """As COLUMNS: a row for each event, placement and approach, in that order of rank."""
        placements, approaches, n, _ = self.metrics.shape
        shape, numbers = (n, placements, approaches), np.indices((placements, approaches), np.int8)
        columns: dict[str, npt.NDArray[Any]] = {
            "seq": np.broadcast_to(self.seq[:, None, None], shape),
            "placement": np.broadcast_to(numbers[0], shape),
            "approach": np.broadcast_to(numbers[1], shape),
            **{name: self.metrics[..., i].transpose(2, 0, 1) for i, name in enumerate(METRICS)},
            "rectangles": np.broadcast_to(self.rectangles[:, None, None], shape),
            "affected": np.broadcast_to(self.affected[:, None, None], shape),
        }
        return {name: np.ascontiguousarray(columns[name].reshape(-1), kind) for name, kind in COLUMNS.items()}

    def reduced(self) -> dict[str, npt.NDArray[Any]]:
        """As REDUCED: a row for each placement, approach, ignorable or not, and pair of stresses."""
        found: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in REDUCED}
        ignorable = self.rectangles == 0
        for kind in (True, False):
            mine = np.flatnonzero(ignorable == kind)
            own = {"seq": self.seq[mine], "rectangles": self.rectangles[mine], "affected": self.affected[mine]}
            for placement, approach in np.ndindex(self.metrics.shape[:2]) if len(mine) else ():
                metrics = self.metrics[placement, approach, mine]
                order, starts = _groups(metrics)
                group = {name: metrics[:, i] for i, name in enumerate(METRICS)} | own
                rows = {name: group[name][order][starts] for name in ("node_stress", "link_stress")}
                rows |= {name: np.add.reduceat(group[name][order], starts) for name in ("seq", *SUMS)}
                rows |= {"events": np.diff(starts, append=len(mine))}
                same = {"placement": placement, "approach": approach, "ignorable": kind}
                rows |= {name: np.full(len(starts), value) for name, value in same.items()}
                for name, values in rows.items():
                    found[name].append(values)
        return {
            name: np.concatenate(found[name]).astype(kind) if found[name] else np.empty(0, kind)
            for name, kind in REDUCED.items()
        }


def _groups(metrics: Ints) -> tuple[Ints, Ints]:
    """An order that puts events of the same two stresses side by side, and where each group begins in it."""
    if not metrics.any():  # nothing is sent: what most ignorable events are with a server
        return np.arange(len(metrics)), np.zeros(1, np.int64)
    link = metrics[:, LINK_STRESS]
    both = metrics[:, NODE_STRESS] * (1 + int(link.max())) + link
    order = np.argsort(both, kind="stable")
    return order, np.flatnonzero(np.diff(both[order], prepend=-1))


class ChunkReplay:
    """Replays consecutive events, some at a time, from the rows they start from.

    Time: O(log) for the engine's part of each event, O(1) for each affected subscription and placement, O(path) for
    each frame's way; CN once for each pair of positions and call (relaxed.py). Memory: the rows (rectangles.py), and
    for a call 160 bytes an event and placement, 8 b^2 bytes for a CAN of b brokers, and ENOUGH subscriptions at a time.
    """

    def __init__(self, rows: TableRows, world: World) -> None:
        self._rows, self._world = rows, world

    def play(self, events: Events) -> Costs:
        """What the next events cost."""
        world = self._world
        old_x, rectangles = self._rows.play(events)
        costs = np.zeros((len(world.placements), len(APPROACHES), len(events), len(METRICS)), np.int64)
        affected = _with_server(world, rectangles, costs)
        for placed, out in zip(world.placements, costs, strict=True):
            out[CN] = relaxed(placed, old_x, events.x, world.sizes.row)
        return Costs(events.seq, costs, np.diff(rectangles.starts), affected)


def replay_chunk(state: StartRows, events: Events, world: World) -> dict[str, npt.NDArray[Any]]:
    """The COLUMNS of the events' costs, from that state on."""
    state, events = checked(state, events)
    return ChunkReplay(TableRows(state, keys_of(state, events)), world).play(events).columns()


def compile_kernels(world: World) -> None:
    """Compile all that a replay over this world needs, here and once: workers then load it, and do not all compile."""
    one, none = np.zeros(1, np.int64), np.empty(0)
    replay_chunk(StartRows(none.astype(np.int64), none, none), Events(one, one, np.ones(1), np.ones(1)), world)


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
