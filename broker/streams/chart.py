"""Progress charts: how a unit of input shrinks, or grows, while the operators of a path work on it.

Four operators that take 1, 2, 1 and 2 seconds for what is left of a unit (CHAIN.md has more pictures):

    size
    1.0 o--------.                       o  the points: (0, 1.0) (1, 0.9) (3, 0.85) (4, 0.1) (6, 0)
    0.9          o-----------------.     -  a unit keeps its size until an operator is done with it
    0.85           .               o-------.
                     .  (1.0 - 0.1) / 4 s  .      the lower envelope: (0, 1.0), (4, 0.1), (6, 0)
                              .            .      its slopes: 0.225 for operators 0, 1 and 2, 0.05 for operator 3
    0.1                             .      o-----------------.
    0.0                                                      o
        0        1        2        3       4        5        6  seconds of work

From every point the envelope jumps to the later point with the steepest descent. What it jumps over is a *chain* of
operators: run together they free memory faster than any part of them would, so they have one priority, the slope
(Babcock et al. (2003)).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf, nextafter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: An operator behind one that lets nothing pass still takes time for this part of a unit, so that times increase.
LEAST_SIZE = 1e-6


@dataclass(frozen=True, slots=True)
class Chart:
    """One path: after `times[i]` seconds of work a unit of input has become `sizes[i]` units.

    C1  `times` increase strictly and begin with 0; `sizes` begin with 1 and are never negative; both are of one length.
    C2  Operator i (from 0) leads from point i to point i + 1; what has passed the last one has left: its size is 0.
    """

    times: tuple[float, ...]
    sizes: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.times) != len(self.sizes) or len(self.times) < 2:
            raise ValueError(
                f"a chart needs as many times as sizes, two or more; got {len(self.times)} and {len(self.sizes)}"
            )
        if self.times[0] != 0 or not all(before < after < inf for before, after in pairwise(self.times)):
            raise ValueError(f"the times of a chart begin with 0 and increase, got {self.times}")
        if self.sizes[0] != 1 or self.sizes[-1] != 0 or not all(0 <= size < inf for size in self.sizes):
            raise ValueError(f"the sizes of a chart begin with 1, end with 0 and are never negative, got {self.sizes}")

    @classmethod
    def of(cls, selectivities: Sequence[float], costs: Sequence[float]) -> Chart:
        """The chart of operators of which each makes so many units of one, in so many seconds for one.

        Both are per unit of the operator's own input. What the last one makes leaves the path: its selectivity counts
        as 0. ValueError for costs that are not positive.
        """
        if len(selectivities) != len(costs) or not costs:
            raise ValueError(
                f"each operator has a selectivity and a cost, got {len(selectivities)} selectivities and {len(costs)} "
                "costs"
            )
        if not all(0 < cost < inf for cost in costs) or not all(
            0 <= selectivity < inf for selectivity in selectivities
        ):
            raise ValueError(
                f"costs must be positive and selectivities 0 or more, got {list(costs)} and {list(selectivities)}"
            )
        times, sizes = [0.0], [1.0]
        for selectivity, cost in zip(selectivities, costs, strict=True):
            took = cost * max(sizes[-1], LEAST_SIZE)
            times.append(max(times[-1] + took, nextafter(times[-1], inf)))
            sizes.append(sizes[-1] * selectivity)
        return cls(tuple(times), (*sizes[:-1], 0.0))

    @property
    def operators(self) -> int:
        """How many there are."""
        return len(self.times) - 1

    def envelope(self) -> tuple[int, ...]:
        """The points of the lower envelope: from each the later one with the steepest descent, the first of equals.

        O(n^2) for n operators, of which a path has a few.
        """
        points = [0]
        while points[-1] < self.operators:
            at = points[-1]
            points.append(max(range(at + 1, self.operators + 1), key=lambda later: (self._descent(at, later), -later)))
        return tuple(points)

    def slopes(self) -> tuple[float, ...]:
        """By operator what its chain frees per second of work: the slope of its segment of the envelope. Never
        increases from operator to operator."""
        return tuple(self._descent(begin, end) for begin, end in pairwise(self.envelope()) for _ in range(begin, end))

    def steps(self) -> tuple[float, ...]:
        """By operator what it alone frees per second of work, (1 - selectivity) / cost; negative if it makes more."""
        return tuple(self._descent(place, place + 1) for place in range(self.operators))

    def gaps(self) -> tuple[float, ...]:
        """By segment of the envelope the largest gap between chart and envelope over it.

        A unit keeps its size while an operator works on it, so the gap is widest just before an operator is done. If no
        selectivity is above 1, a gap is at most what its segment descends, and all of a path are at most 1 together.
        """
        return tuple(
            max(
                self.sizes[place]
                - (self.sizes[begin] - self._descent(begin, end) * (self.times[place + 1] - self.times[begin]))
                for place in range(begin, end)
            )
            for begin, end in pairwise(self.envelope())
        )

    def remaining(self, place: int) -> float:
        """Seconds of work until a unit that waits before this operator has left the path."""
        return (self.times[-1] - self.times[place]) / max(self.sizes[place], LEAST_SIZE)

    def _descent(self, begin: int, end: int) -> float:
        return (self.sizes[begin] - self.sizes[end]) / (self.times[end] - self.times[begin])
