"""What a trace costs on the wire, slow and obvious: straight from the definitions, with dicts, sets and plain loops.

Who is affected is decided by asking every subscription before and after; the rectangles are the definition's
(tests/support/reference.py). Two ways to the same gateways, and `cost` insists that they agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, nextafter

from tests.support.reference import Message, Point, messages

SERVER = 0
NO_ROW = inf  # the minimum of no row: SQL's NULL, but equal to itself
Range = tuple[float, float]
Edge = tuple[int, int]  # sender, receiver
Zone = tuple[Range, Range]  # low <= p < high in x1, and in x2


@dataclass
class Overlay:
    """Where subscriptions live, and how brokers reach each other. With `parents` a tree, else a CAN of `zones`."""

    gateways: Sequence[int]  # by subscription
    paths: Callable[[int, int], Sequence[int]]  # links from broker to broker
    parents: Sequence[int] | None = None  # by broker; -1: the root
    zones: Sequence[Zone] | None = None  # by broker
    hops: Callable[[float, float], Sequence[Edge]] | None = (
        None  # from the server to the owner of a point, if not at once
    )


@dataclass
class Sizes:
    """Bytes of a frame with so many rows."""

    rectangles: Callable[[int], int]
    unicast: Callable[[int], int]
    row: int


@dataclass
class Cost:
    """The metrics of one event in one approach; `frames` are (sender, receiver, bytes)."""

    frames: list[tuple[int, int, int]] = field(default_factory=list)

    def metrics(self, paths: Callable[[int, int], Sequence[int]]) -> tuple[int, int, int, int, int]:
        """messages, bytes, byte_links, node_stress, link_stress."""
        moving = [frame for frame in self.frames if frame[0] != frame[1]]
        leaving = Counter(sender for sender, _, _ in moving)
        crossing = Counter(link for sender, receiver, _ in moving for link in paths(sender, receiver))
        return (
            len(moving),
            sum(size for _, _, size in moving),
            sum(size * len(paths(sender, receiver)) for sender, receiver, size in moving),
            max(leaving.values(), default=0),
            max(crossing.values(), default=0),
        )


@dataclass
class Told:
    """One event: its rectangles, the affected subscriptions, and by approach the five metrics."""

    rectangles: int
    affected: int
    metrics: dict[str, tuple[int, int, int, int, int]]


class Oracle:
    """Rows, and what each event costs in one overlay."""

    def __init__(self, ranges: Sequence[Range], overlay: Overlay, sizes: Sizes) -> None:
        self.rows: dict[int, Point] = {}
        self.ranges, self.overlay, self.sizes = ranges, overlay, sizes

    def event(self, key: int, x: float, y: float) -> Told:
        """Apply an event (NaN, NaN: delete) and say what it costs."""
        old, new = self.rows.get(key), None if x != x else (x, y)
        before = self._answers()
        others = [row for other, row in self.rows.items() if other != key]
        said = [] if old == new else sorted(messages(others, old, new))
        if new is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = new
        after = self._answers()
        affected = [i for i in range(len(self.ranges)) if before[i] != after[i]]
        concerned = [[i for i in affected if message.concerns(*self.ranges[i])] for message in said]
        assert sorted(i for some in concerned for i in some) == affected, "rectangles and answers agree"
        frames = {
            "S-CN": self._tree(concerned) if self.overlay.parents is not None else self._can(said),
            "S-UN": [(SERVER, self.overlay.gateways[i], self.sizes.unicast(1)) for i in affected],
            "S-UN aggregated": [
                (SERVER, gateway, self.sizes.unicast(count))
                for gateway, count in Counter(self.overlay.gateways[i] for i in affected).items()
            ],
            "CN": self._relaxed({row[0] for row in (old, new) if row is not None}),
        }
        paths = self.overlay.paths
        return Told(len(said), len(affected), {name: Cost(some).metrics(paths) for name, some in frames.items()})

    def _answers(self) -> list[float]:
        return [
            min((y for x, y in self.rows.values() if low <= x <= high), default=NO_ROW) for low, high in self.ranges
        ]

    def _tree(self, concerned: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
        carried: Counter[Edge] = Counter()
        for some in concerned:
            carried.update({edge for i in some for edge in self._way_down(self.overlay.gateways[i])})
        return [(*edge, self.sizes.rectangles(rows)) for edge, rows in carried.items()]

    def _way_down(self, broker: int) -> list[Edge]:
        assert self.overlay.parents is not None
        parent = self.overlay.parents[broker]
        return [] if parent < 0 else [*self._way_down(parent), (parent, broker)]

    def _can(self, said: Sequence[Message]) -> list[tuple[int, int, int]]:
        carried: Counter[Edge] = Counter()
        for message in said:
            corner = message.inner_l, message.inner_r
            hops = self.overlay.hops or (lambda x1, x2: [(SERVER, self._owner(x1, x2))])
            edges = {*hops(*corner), *self._flood(corner, message.outer_l, message.outer_r)}
            carried.update(edge for edge in edges if edge[0] != edge[1])
        return [(*edge, self.sizes.rectangles(rows)) for edge, rows in carried.items()]

    def _owner(self, x1: float, x2: float) -> int:
        assert self.overlay.zones is not None
        (owner,) = (i for i, ((a, b), (c, d)) in enumerate(self.overlay.zones) if a <= x1 < b and c <= x2 < d)
        return owner

    def _flood(self, corner: Point, outer_l: float, outer_r: float) -> set[Edge]:
        """Who sends it to whom: every zone that meets the rectangle gets it from one nearer to the corner."""
        assert self.overlay.zones is not None
        least = outer_l if outer_l == -inf else nextafter(outer_l, inf)  # the bounds towards OUTER are strict
        most = outer_r if outer_r == inf else nextafter(outer_r, -inf)
        edges = set()
        for zone, ((a, b), (c, d)) in enumerate(self.overlay.zones):
            if not (a <= corner[0] and least < b and c <= most and corner[1] < d):
                continue
            if b <= corner[0]:
                edges.add((self._owner(b, max(c, corner[1])), zone))
            elif c > corner[1]:
                edges.add((self._owner(corner[0], nextafter(c, -inf)), zone))
        return edges

    def _relaxed(self, places: set[float]) -> list[tuple[int, int, int]]:
        edges: set[Edge] = set()
        for x in places:
            if self.overlay.parents is None:
                edges |= self._flood((x, x), -inf, inf)
            else:
                held = (i for i, (low, high) in enumerate(self.ranges) if low <= x <= high)
                edges |= {edge for i in held for edge in self._way_down(self.overlay.gateways[i])}
        return [(*edge, self.sizes.row) for edge in edges]
