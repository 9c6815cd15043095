"""Costs of propagating that only the simulation has: given by a formula, and as a table."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from hullcast.broker.views.costs import CostFunction, largest_within


def tabulated(cost: CostFunction, upto: int) -> npt.NDArray[np.float64]:
    """f(0), f(1), .., f(upto)."""
    return np.array([cost.of(k) for k in range(upto + 1)], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class StepCost:
    """f(k) = ceil(k / size) step_s, such as pages that are read as a whole: subadditive, but its average rises and
    falls."""

    size: int
    step_s: float

    def __post_init__(self) -> None:
        if not (self.size >= 1 and 0 <= self.step_s < float("inf")):
            raise ValueError(f"a step needs 1 change or more and 0 s or more, got {self.size} and {self.step_s}")

    def of(self, k: int) -> float:
        return self.step_s * ceil(k / self.size)

    def largest_within(self, limit_s: float) -> int:
        return largest_within(self.of, limit_s)


@dataclass(frozen=True, slots=True)
class PowerCost:
    """f(k) = one_s k ** power: concave for powers up to 1."""

    one_s: float
    power: float = 0.5

    def __post_init__(self) -> None:
        if not (0 <= self.one_s < float("inf") and 0 <= self.power <= 1):
            raise ValueError(f"needs 0 s or more and a power from 0 to 1, got {self.one_s} and {self.power}")

    def of(self, k: int) -> float:
        return self.one_s * float(k) ** self.power if k else 0.0

    def largest_within(self, limit_s: float) -> int:
        return largest_within(self.of, limit_s)
