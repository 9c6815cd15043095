"""Subscriptions drawn as in Table 5.1: a midpoint, a length, both normal, over the domain of the range column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri

from hullcast.sim.seeds import generator
from hullcast.sim.traces.table51 import DOMAIN, LENGTH, MIDPOINT, RangeColumns

if TYPE_CHECKING:
    import numpy.typing as npt

#: Subscriptions that content zones are made from: others than those that then live in them.
SAMPLE = 100_000


@dataclass(frozen=True, slots=True)
class Law:
    """How ranges are drawn: mean and deviation of the midpoint and of the length; negative lengths are drawn again."""

    midpoint: tuple[float, float] = MIDPOINT
    length: tuple[float, float] = LENGTH

    def over(self, domain: tuple[float, float]) -> Law:
        """The same for another domain: this one is for Table 5.1's."""
        low, width = domain[0], (domain[1] - domain[0]) / DOMAIN
        (middle, spread), (length, deviation) = self.midpoint, self.length
        return Law((low + middle * width, spread * width), (length * width, deviation * width))

    def ranges(self, count: int, *, root: int, name: str = "subscriptions") -> RangeColumns:
        """So many of them. Fewer are the first of many: a run with more subscriptions adds some, and changes none."""
        middle = generator(root, "law", name, "midpoints").normal(*self.midpoint, count)
        mean, deviation = self.length
        # Drawing again until it is positive is drawing from the part of the normal law that is: by its inverse.
        below = ndtr(-mean / deviation)
        share = generator(root, "law", name, "lengths").random(count)
        length = np.maximum(mean + deviation * ndtri(below + share * (1.0 - below)), 0.0)
        return RangeColumns(middle - length / 2, middle + length / 2)

    def sample(self, *, root: int) -> npt.NDArray[np.float64]:
        """Points (x1, x2) to divide the plane by."""
        ranges = self.ranges(SAMPLE, root=root, name="sample")
        return np.stack((ranges.low, ranges.high), axis=1)


#: Of Figure 5.8: short ranges, spread over three times the domain and more.
SHORT = Law(midpoint=(5_000.0, 10_000.0), length=(50.0, 10.0))
