"""HEEB, the heuristic of estimated expected benefit: what a tuple should produce while it is kept, looked up.

    H_x = sum over dt >= 1 of (B_x(dt) - B_x(dt - 1)) L(dt),    L(dt) = exp(-dt / alpha)

L estimates the chance that x is still kept dt steps from now. alpha is such that the mean lifetime by this estimate,
1 / (1 - exp(-1 / alpha)), is the one observed. The tuple of smallest H is dropped. As L is the same for all tuples and
never rises, H_x >= H_y wherever B_x dominates B_y: HEEB makes every decision that dominance makes (Xie (2007),
section 3.4.3). Precomputed:

    TrendCurve     linear trends: a curve over v - f(t), filled by stepping in time and value at once
    WalkCurve      random walks: a curve h1 over v - x_t (Theorem 11)
    Surface        AR(1): a surface h2 over (v, x_t), by bicubic interpolation between 5 x 5 points

(Xie (2007), sections 3.4.4 and 3.7.5.) For caching, walks and AR(1) need the chance that a value is shown *for the
first time*. We get it from the joining form. With G(x, v) = sum of exp(-dt / alpha) Pr{X_dt = v | x}, and F the same of
first times, every time that v is shown is the first or follows the first: G(x, v) = F(x, v) (1 + G(v, v)).
"""

from __future__ import annotations

from math import ceil, exp, log
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hullcast.sim.experiments.studies.caching.models import (
    Autoregressive,
    LinearTrend,
    RandomWalk,
    normal_below,
)

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats, Ints
    from hullcast.sim.experiments.studies.caching.models import StreamModel

#: Control points of a surface in each direction, and how far they reach, in standard deviations of the stream, where
#: the values of the stream are not known.
POINTS, REACH = 5, 3.0
_LONGEST_CURVE = 1 << 15


class Worth(Protocol):
    """H of tuples by their values."""

    def of(self, values: Ints, now: int, last: int) -> Floats:
        """H now, where `last` was shown by the stream that they wait for."""


def worth_for(model: StreamModel, alpha: float, *, caching: bool = False, points: int = POINTS) -> Worth:
    """The form that there is for a model; `points`: those of a surface."""
    match model:
        case LinearTrend():
            return TrendCurve(model, alpha, caching=caching)
        case RandomWalk():
            return WalkCurve(model, alpha, caching=caching)
        case Autoregressive():
            return Surface(model, alpha, caching=caching, points=points)
        case _:
            raise TypeError(f"no form of H is known for {model}")


def steps_for(alpha: float, exactly: float = 1e-10) -> int:
    """How many steps matter: what comes later adds less than `exactly` to any H."""
    return max(1, int(np.ceil(-alpha * log(exactly * (1.0 - exp(-1.0 / alpha))))))


class TrendCurve:
    """H by the distance o = v - f(t) of a value from a trend that rises by `slope`, a whole number, a step.

    A step later the distance is o - slope. So what is known of H a step later (Corollary 3) is known of H now at
    another distance (Corollary 5), and the curve is filled from its low end, where the trend is past::

        h(o) = e^(-1/alpha) (q(o - slope) + h(o - slope)),    q the chances of the noise
    """

    def __init__(self, model: LinearTrend, alpha: float, *, caching: bool = False) -> None:
        self._model, self._keep, self._slope = model, exp(-1.0 / alpha), int(model.slope)
        noise = model.noise
        # below the noise H is 0; above it each step down brings a value nearer, and nothing else changes
        self._first = noise.first
        self._curve = np.zeros(len(noise.each) + self._slope)
        for place in range(self._slope, len(self._curve)):
            q, h = noise.each[place - self._slope], self._curve[place - self._slope]
            self._curve[place] = self._keep * (q + (h * (1.0 - q) if caching else h))

    def of(self, values: Ints, now: int, last: int) -> Floats:
        place = values - self._model.trend(now) - self._first
        ahead = np.maximum(0, -((len(self._curve) - 1 - place) // self._slope))  # steps until it is on the curve
        return np.where(place < 0, 0.0, self._keep**ahead * self._curve[np.maximum(0, place - ahead * self._slope)])


class WalkCurve:
    """H by the distance d = v - x_t of a value from where the walk is.

    The chances of all steps together are a geometric series of convolutions; its Fourier transform is
    z s / (1 - z s), s that of one step and z = e^(-1/alpha): one transform and its inverse give the whole curve.
    """

    def __init__(self, model: RandomWalk, alpha: float, *, caching: bool = False) -> None:
        steps, z = model.steps, exp(-1.0 / alpha)
        reach = max(abs(steps.first), abs(steps.first + len(steps.each) - 1), 1)
        wanted = 40 * reach * max(4, ceil(alpha**0.5)) + 8 * ceil(alpha * abs(float(steps.each @ steps.values())))
        size = 1 << (min(max(1_024, wanted), _LONGEST_CURVE) - 1).bit_length()
        around = np.zeros(size)
        np.add.at(around, steps.values() % size, steps.each)
        s = np.fft.rfft(around)
        curve = np.fft.irfft(z * s / (1.0 - z * s), size)
        self._half = size // 2
        curve = np.maximum(0.0, np.roll(curve, self._half))
        self._curve = curve / (1.0 + curve[self._half]) if caching else curve

    def of(self, values: Ints, now: int, last: int) -> Floats:
        place = values - last + self._half
        known = (place >= 0) & (place < len(self._curve))
        return np.where(known, self._curve[np.where(known, place, 0)], 0.0)


class Surface:
    """H by a value and the value shown last, of an AR(1) stream, both within a domain; beyond it the surface is that of
    the edge.

    `points` in each direction: 5 as in Xie (2007); more are more exact. `points=0` keeps none, and computes each.
    """

    def __init__(
        self, model: Autoregressive, alpha: float, *, caching: bool = False, points: int = POINTS,
        domain: tuple[float, float] | None = None,
    ) -> None:  # fmt: skip
        self._model, self._alpha, self._caching, self._points = model, alpha, caching, points
        low, high = domain or (model.mean - REACH * model.spread, model.mean + REACH * model.spread)
        self._low, self._wide = low, high - low
        if points:
            grid = self._low + self._wide * np.arange(points) / (points - 1)
            table = np.stack([self.exact(grid, last) for last in grid.tolist()], axis=1)  # (value, last)
            self._table = _edged(_edged(table).T).T

    def exact(self, values: Floats, last: float) -> Floats:
        """H without interpolation."""
        joining = self._summed(values, np.full(len(values), last))
        return joining / (1.0 + self._summed(values, values)) if self._caching else joining

    def of(self, values: Ints, now: int, last: int) -> Floats:
        if not self._points:
            return self.exact(values.astype(np.float64), float(last))
        along = self._weights((values.astype(np.float64) - self._low) / self._wide)
        across = self._weights(np.array([(last - self._low) / self._wide]))
        return np.asarray(np.maximum(0.0, along @ self._table @ across[0]))

    def _weights(self, at: Floats) -> Floats:
        """For each place between 0 and 1 the weights of the control points, and of one beyond each end: cubic
        convolution (Keys 1981), whose value and slope are continuous."""
        n = self._points
        place = np.clip(at, 0.0, 1.0) * (n - 1)
        below = np.minimum(place.astype(np.int64), n - 2)
        t = (place - below)[:, None]
        four = np.hstack([
            ((-0.5 * t + 1.0) * t - 0.5) * t,
            (1.5 * t - 2.5) * t * t + 1.0,
            ((-1.5 * t + 2.0) * t + 0.5) * t,
            (0.5 * t - 0.5) * t * t,
        ])  # fmt: skip
        weights = np.zeros((len(place), n + 2))
        np.put_along_axis(weights, below[:, None] + np.arange(4), four, axis=1)
        return weights

    def _summed(self, values: Floats, last: Floats) -> Floats:
        """G: the joining form. Sums until the stream has forgotten where it was, and the rest in one."""
        model, keep = self._model, exp(-1.0 / self._alpha)
        found, weight = np.zeros(len(values)), 1.0
        steps = min(steps_for(self._alpha), max(1, ceil(np.log(1e-9) / np.log(abs(model.factor)))))
        for dt in range(1, steps + 1):
            weight *= keep
            far = model.factor**dt
            mean, sd = model.mean + far * (last - model.mean), model.spread * (1.0 - far * far) ** 0.5
            found += weight * _rounded(values, mean, sd)
        return found + weight * keep / (1.0 - keep) * _rounded(values, model.mean, model.spread)


def _rounded(values: Floats, mean: Floats | float, sd: float) -> Floats:
    """Pr{a normal variate is within a half of the value}: the density where that is as good, as it is far faster."""
    z = (values - mean) / sd
    if sd >= 3.0:
        return np.asarray(np.exp(-0.5 * z * z) / (sd * 2.5066282746310002))
    return normal_below(z + 0.5 / sd) - normal_below(z - 0.5 / sd)


def _edged(table: Floats) -> Floats:
    """One more row at each end, which continues the last three by a parabola."""
    before = 3 * table[0] - 3 * table[1] + table[2]
    after = 3 * table[-1] - 3 * table[-2] + table[-3]
    return np.vstack([before, table, after])
