"""What is known of a stream that shows one whole number a step: the chances of its future values.

    LinearTrend      slope * t + base, rounded, plus noise that is drawn anew in every step
    RandomWalk       the value before, plus drift, plus a step that is drawn anew
    Autoregressive   AR(1): constant + factor * the value before, plus normal noise, rounded

(Xie (2007), section 3.5; values on another grid, say of a tenth of a degree, are whole numbers of that grid.)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erf, sqrt
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats, Ints

#: Normal chances are cut off so many standard deviations from the mean.
FAR = 8.0


@dataclass(frozen=True, slots=True, eq=False)
class Chances:
    """Chances of whole numbers: `each[i]` is that of `first` + i. They add up to 1, or less if nothing may come."""

    first: int
    each: Floats

    def of(self, values: Ints) -> Floats:
        """The chance of each of these values."""
        places = values - self.first
        known = (places >= 0) & (places < len(self.each))
        return np.where(known, self.each[np.where(known, places, 0)], 0.0)

    def moved(self, by: int) -> Chances:
        """Those of the number plus a constant."""
        return Chances(self.first + by, self.each)

    def plus(self, other: Chances) -> Chances:
        """Those of the sum of two independent numbers."""
        return Chances(self.first + other.first, np.convolve(self.each, other.each))

    def values(self) -> Ints:
        """The numbers that it has chances for."""
        return np.arange(self.first, self.first + len(self.each))

    def drawn(self, count: int, chance: np.random.Generator) -> Ints:
        """Numbers drawn by these chances."""
        return chance.choice(self.values(), count, p=self.each / self.each.sum())


def uniform_chances(bound: int) -> Chances:
    """All numbers from -bound to bound, alike."""
    return Chances(-bound, np.full(2 * bound + 1, 1.0 / (2 * bound + 1)))


def normal_chances(sd: float, bound: int | None = None, mean: float = 0.0) -> Chances:
    """A normal variate, rounded, and within `bound` of 0 if that is given (the rest in proportion)."""
    reach = int(FAR * sd) + 1
    first, last = (int(np.floor(mean)) - reach, int(np.ceil(mean)) + reach) if bound is None else (-bound, bound)
    edges = (np.arange(first, last + 2) - 0.5 - mean) / sd
    each = np.diff(normal_below(edges.astype(np.float64)))
    return Chances(first, each / each.sum())


def normal_below(edges: Floats) -> Floats:
    """The chance that a standard normal variate is below."""
    return np.asarray(0.5 * (1.0 + np.vectorize(erf, otypes=[np.float64])(edges / sqrt(2.0))))


class StreamModel(Protocol):
    """Answers: which value will be shown dt steps from now?"""

    def ahead(self, dt: int, now: int, last: int) -> Chances:
        """The chances of the value at now + dt (dt >= 1), where `last` was shown now."""


@dataclass(frozen=True, slots=True)
class LinearTrend:
    """A trend f(t) = slope * t + base, rounded, and noise around it."""

    slope: float
    base: float
    noise: Chances

    def trend(self, t: int) -> int:
        """f(t)."""
        return int(np.floor(self.slope * t + self.base + 0.5))

    def ahead(self, dt: int, now: int, last: int) -> Chances:
        return self.noise.moved(self.trend(now + dt))


@dataclass(frozen=True, slots=True)
class RandomWalk:
    """Each value is the one before plus a step; a drift is part of the chances of steps."""

    steps: Chances

    def ahead(self, dt: int, now: int, last: int) -> Chances:
        far, power, left = Chances(0, np.ones(1)), self.steps, dt
        while left:  # as powers are computed: by squares
            if left & 1:
                far = far.plus(power)
            power, left = (power.plus(power) if left > 1 else power), left >> 1
        return far.moved(last)


@dataclass(frozen=True, slots=True)
class Autoregressive:
    """AR(1) with normal noise: X_t = constant + factor * X_(t-1) + N(0, sd), 0 < |factor| < 1."""

    factor: float
    constant: float
    sd: float

    @property
    def mean(self) -> float:
        """Where it goes back to."""
        return self.constant / (1.0 - self.factor)

    @property
    def spread(self) -> float:
        """The standard deviation of its values."""
        return self.sd / sqrt(1.0 - self.factor**2)

    def expected(self, dt: int, last: float) -> tuple[float, float]:
        """Mean and standard deviation of the value dt steps ahead."""
        far = self.factor**dt
        return self.mean + far * (last - self.mean), self.spread * sqrt(1.0 - far * far)

    def ahead(self, dt: int, now: int, last: int) -> Chances:
        mean, sd = self.expected(dt, last)
        return normal_chances(sd, mean=mean)
