"""Which model fits what a stream showed lately, and its curves for a running join (worth.py).

Four models are fitted to the first half of the last values, and judged by the second half: by the mean logarithm of the
chance that they had given to each next value. Stationary is the rule; a trend must be better by MARGIN, and a walk or
an AR(1) must be better than both. The winner is fitted again, to all of them.

    stationary   how often each value was shown, and for values not seen before a normal density, as heavy as values
                 seen once are frequent (Good and Turing); or the normal density alone, if that is better
    trend        a line by least squares over the arrivals, normal residuals; once chosen, residuals as they were
    walk         each value around a level, which follows them: level += smooth (value - level). In pure walks smooth is
                 1, and the level is the last value; with less (the best of SMOOTHS) it is a walk seen through noise
    AR(1)        a line by least squares from each value to the next

All is bounded: at most RECENT values of a stream, and fits of a millisecond or so, every few thousand arrivals.
Values far out (more than OUTLIER deviations by quartiles) are set to the edge, so that one of them cannot bend a line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from hullcast.broker.streams.memory.worth import (
    ALPHA,
    BASE,
    BIN,
    KIND,
    LEVELS,
    LOW,
    RELATIVE,
    SLOPE,
    SMOOTH,
    STATIONARY,
    SURFACE,
    TREND,
    X_BIN,
    X_LOW,
)
from hullcast.network.compiled import inlined, kernel
from hullcast.network.wire.arrays import Booleans, Floats, Ints

#: How many values of a stream are remembered, and how few are enough to fit.
RECENT, FEWEST = 1_024, 64
#: By how much (natural logarithm, mean of a value) a model must be better than stationary.
MARGIN = 0.1
SMOOTHS = (1.0, 0.5, 0.25, 0.12, 0.06)
OUTLIER = 12.0
#: AR(1) with a factor outside is taken for a walk, or for stationary.
FACTORS = (0.1, 0.98)
_TINY = 1e-9
#: Below this a processor is slow with numbers.
_NOTHING = 1e-290


class Fits(Enum):
    """The models."""

    STATIONARY = "stationary"
    TREND = "trend"
    WALK = "walk"
    AR1 = "AR(1)"


@dataclass(frozen=True, slots=True, eq=False)
class FittedStream:
    """A model with its numbers, declared or fitted. `unit` is the distance of values that can be told apart."""

    model: Fits
    unit: float = 1.0
    slope: float = 0.0  # of a trend, or the drift of a walk, for an arrival of this stream
    base: float = 0.0  # of a trend: its value at arrival 0
    noise: Floats | None = None  # of a trend: a sample of its residuals, sorted
    factor: float = 0.0  # of AR(1), with `base` as its constant
    deviation: float = 1.0  # of the next value from what is expected: of steps of a walk, of the noise of AR(1)
    smooth: float = 1.0  # of a walk: how far its level follows a new value
    better: float = 0.0  # than stationary, as MARGIN

    def again(self, values: Floats, first: int) -> FittedStream:
        """The same model, fitted to other values: far cheaper than to choose one."""
        places = (first + np.flatnonzero(~np.isnan(values))).astype(np.float64)
        values = values[~np.isnan(values)]
        if self.model is Fits.STATIONARY or len(values) < FEWEST:
            return self
        fit = {Fits.TREND: _trend, Fits.WALK: _walk, Fits.AR1: _ar1}[self.model]
        found = fit(places, values, self.unit)
        return self if found is None else replace(found, better=self.better)


def fitted(values: Floats, first: int = 0) -> FittedStream:
    """The model that fits best; `values` are the last ones, oldest first, the first of them arrival number `first`.

    NaN is skipped.
    """
    places = (first + np.flatnonzero(~np.isnan(values))).astype(np.float64)
    values = values[~np.isnan(values)]
    if len(values) < FEWEST:
        return FittedStream(Fits.STATIONARY)
    distances = np.diff(np.unique(values))
    unit = float(distances.min()) if len(distances) else 1.0
    half = len(values) // 2
    steady = _steady_score(values, half, unit)
    best, found = MARGIN, FittedStream(Fits.STATIONARY, unit)
    for fit in (_trend, _walk, _ar1):
        model = fit(places[:half], values[:half], unit)
        if model is None:
            continue
        better = _score(model, places, values, half) - steady
        if better > best:
            again = fit(places, values, unit)
            if again is None:
                continue
            best, found = better, replace(again, better=better)
        if model.model is Fits.TREND:
            best += MARGIN  # a level that follows slowly is nearly a trend
    return found


def _trend(places: Floats, values: Floats, unit: float) -> FittedStream | None:
    slope, base = line_through(places, values)
    if abs(slope) < _TINY * unit:
        return None
    noise = np.sort(values - (slope * places + base))
    return FittedStream(Fits.TREND, unit, slope, base, noise, deviation=float(noise.std()))


def _walk(places: Floats, values: Floats, unit: float) -> FittedStream | None:
    smooth, ahead, deviation = following(values, SMOOTHS)
    # behind a level that follows slowly values are by drift / smooth ahead
    return FittedStream(Fits.WALK, unit, smooth * ahead, deviation=deviation, smooth=smooth)


@kernel
def following(values: Floats, smooths: tuple[float, ...]) -> tuple[float, float, float]:
    """How far a level should follow values so that it is nearest to the next one, of some choices; and the mean and the
    deviation of values from the level then."""
    best, mean, least = smooths[0], 0.0, np.inf
    for smooth in smooths:
        off = clipped(values[1:] - levels_before(values, smooth)[1:])
        deviation = float(np.std(off))
        if deviation < least or smooth == smooths[0]:
            best, mean, least = smooth, float(np.mean(off)), deviation
    return best, mean, least


@kernel
def levels_before(values: Floats, smooth: float) -> Floats:
    """The level that each value meets; the first one meets itself."""
    levels = np.empty(len(values))
    level = values[0]
    for at in range(len(values)):
        levels[at] = level
        level += smooth * (values[at] - level)
    return levels


def level_of(values: Floats, smooth: float) -> float:
    """The level after these values; NaN is skipped."""
    values = values[~np.isnan(values)]
    if not len(values):
        return 0.0
    before = float(levels_before(values, smooth)[-1])
    return before + smooth * (float(values[-1]) - before)


def _ar1(places: Floats, values: Floats, unit: float) -> FittedStream | None:
    factor, constant = line_through(values[:-1], values[1:])
    if not FACTORS[0] <= abs(factor) <= FACTORS[1]:
        return None
    noise = clipped(values[1:] - constant - factor * values[:-1])
    return FittedStream(Fits.AR1, unit, base=constant, factor=factor, deviation=float(noise.std()))


@kernel
def line_through(x: Floats, y: Floats) -> tuple[float, float]:
    """Slope and base of the line of least squares, residuals far out set to the edge once."""
    slope = base = 0.0
    for _ in range(2):
        centre, middle = float(np.mean(x)), float(np.mean(y))
        spread = float(((x - centre) ** 2).sum())
        slope = float(((x - centre) * (y - middle)).sum()) / spread if spread > 0 else 0.0
        base = middle - slope * centre
        y = slope * x + base + clipped(y - (slope * x + base))
    return slope, base


@kernel
def clipped(values: Floats) -> Floats:
    """Values, those far out set to the edge."""
    low, middle, high = quartiles(values)
    reach = OUTLIER * max(high - low, _TINY)
    if not high > low or np.abs(values - middle).max() <= reach:
        return values
    return np.minimum(np.maximum(values, middle - reach), middle + reach)


@kernel
def quartiles(values: Floats) -> tuple[float, float, float]:
    """Values with a quarter, half and three quarters below, between neighbours along a line; np.percentile gives the
    same, in ten times the time."""
    found = np.empty(3)
    for quarter in range(3):
        place = (len(values) - 1) * (quarter + 1) / 4.0
        at = int(place)
        values = np.partition(values, at)
        found[quarter] = values[at]
        if place > at:  # the next one is the least of those behind
            found[quarter] += (place - at) * (values[at + 1 :].min() - values[at])
    return found[0], found[1], found[2]


def _score(model: FittedStream, places: Floats, values: Floats, half: int) -> float:
    later = values[half:]
    before = levels_before(values, model.smooth)[half:]  # of all but walks: the value before
    if model.model is Fits.TREND:
        expected = model.slope * places[half:] + model.base
    elif model.model is Fits.WALK:
        expected = before + model.slope / model.smooth
    else:
        expected = model.base + model.factor * before
    return float(np.log(_density(later - expected, model.deviation, model.unit) + 1e-6).mean())


def _steady_score(values: Floats, half: int, unit: float) -> float:
    seen, counts = np.unique(values[:half], return_counts=True)
    once = (np.count_nonzero(counts == 1) + 1.0) / (half + 1.0)
    place = np.minimum(np.searchsorted(seen, values[half:]), len(seen) - 1)
    known = np.where(seen[place] == values[half:], counts[place], 0) / half
    base = _density(values[half:] - values[:half].mean(), float(values[:half].std()), unit)
    counted = float(np.log((1.0 - once) * known + once * base + 1e-6).mean())
    return max(counted, float(np.log(base + 1e-6).mean()))


def _density(off: Floats, deviation: float, unit: float) -> Floats:
    """About the chance to be within half a unit of a normal variate."""
    highest, variance = _normal(np.array(deviation), unit)
    return np.asarray(highest * np.exp(-0.5 * off * off / variance))


def _normal(deviation: Floats, unit: float) -> tuple[Floats, Floats]:
    """Heights and variances of such chances: the unit's own width makes narrow ones wider."""
    variance = deviation * deviation + unit * unit / 12.0
    return np.minimum(1.0, unit / np.sqrt(2.0 * np.pi * variance)), np.asarray(variance)


def write_curves(fit: FittedStream, alpha: float, terms: Floats, curves: Floats) -> None:
    """Set what is believed of a stream: its row of `terms`, and its `curves` (row, level, offset), for this alpha."""
    terms[ALPHA], terms[RELATIVE], terms[SMOOTH] = alpha, 0.0, fit.smooth
    if fit.model is Fits.TREND:
        _write_trend(fit, alpha, terms, curves)
    elif fit.model is Fits.STATIONARY:
        terms[KIND] = STATIONARY
    else:
        _write_surface(fit, alpha, terms, curves)


def _write_trend(fit: FittedStream, alpha: float, terms: Floats, curves: Floats) -> None:
    """H over the distance from the trend, within its noise; in the direction in which the trend goes.

    A distance o is where the noise would have to be now; j arrivals later it would have to be at o - slope j. So each
    bin of the noise is passed between two times, and the sum over this time is an integral of exp(-j / alpha).
    """
    assert fit.noise is not None
    up, slope = (1.0 if fit.slope > 0 else -1.0), abs(fit.slope)
    noise = up * fit.noise
    bins = curves.shape[2]
    low, high = float(noise.min()) - fit.unit, float(noise.max()) + fit.unit
    counts, edges = np.histogram(noise, min(64, max(4, len(noise) // 16)), (low, high))
    chance = counts / len(noise) / np.diff(edges) * fit.unit
    terms[KIND], terms[LOW], terms[BIN] = TREND, low, (high - low) / (bins - 1)
    sum_passages(chance, edges, slope, alpha, low, terms[BIN], curves[0, 0])
    terms[SLOPE], terms[BASE] = fit.slope, fit.base


@kernel
def sum_passages(
    chance: Floats, edges: Floats, slope: float, alpha: float, low: float, step: float, curve: Floats
) -> None:
    """curve[i]: the sum over bins of chance times the integral of exp(-j / alpha) while low + i step passes the bin.

    Where both ends of a bin are passed already, their integrals are the same number, so that the difference is 0: what
    is behind the noise is worth nothing, not nearly nothing.
    """
    curve[:] = 0.0
    before, after = np.empty(len(curve)), np.empty(len(curve))
    for edge in range(len(edges)):
        reached, fades = 0, np.exp(-step / (slope * alpha))
        while reached < len(curve) and (low + reached * step - edges[edge]) / slope <= 0.5:
            after[reached] = np.exp(-0.5 / alpha)
            reached += 1
        if reached < len(curve):
            after[reached] = np.exp(-(low + reached * step - edges[edge]) / (slope * alpha))
        for at in range(reached + 1, len(curve)):
            after[at] = after[at - 1] * fades
        if edge > 0:
            for at in range(len(curve)):
                curve[at] += chance[edge - 1] * alpha * (after[at] - before[at])
        before, after = after, before


#: A surface is summed over stretches of arrivals: four from a power of two to the next, where there are so many. They
#: end before these, and a level ends at each power of two.
_EDGES: Ints = np.unique([1] + [(1 << level) * part // 4 for level in range(LEVELS - 1) for part in (5, 6, 7, 8)])
_ENDS_LEVEL: Booleans = (_EDGES & (_EDGES - 1)) == 0
_STARTS: Ints = np.concatenate([[0], _EDGES[:-1]])
_MIDDLES: Floats = (_STARTS + 1 + _EDGES) / 2.0


def _write_surface(fit: FittedStream, alpha: float, terms: Floats, curves: Floats) -> None:
    """H over the last value, the level of arrivals left, and the value: sums over stretches of arrivals, each by the
    chances in its middle."""
    knots, _, bins = curves.shape
    walk = fit.model is Fits.WALK
    if walk:
        reach = 10.0 * fit.deviation * max(1.0, fit.smooth * np.sqrt(alpha / 2.0)) + fit.unit
        low, high = -reach + min(0.0, 6.0 * alpha * fit.slope), reach + max(0.0, 6.0 * alpha * fit.slope)
        expected = (fit.slope * (_MIDDLES - 1.0 + 1.0 / fit.smooth))[:, None]
        deviation = fit.deviation * np.sqrt(1.0 + (_MIDDLES - 1.0) * fit.smooth**2)
    else:
        mean, spread = fit.base / (1.0 - fit.factor), fit.deviation / np.sqrt(1.0 - fit.factor**2)
        low, high = mean - 5.0 * spread - fit.unit, mean + 5.0 * spread + fit.unit
        lasts = np.linspace(mean - 3.0 * spread, mean + 3.0 * spread, knots)
        terms[X_LOW], terms[X_BIN] = lasts[0], max(lasts[1] - lasts[0], _TINY)
        far = np.sign(fit.factor) ** np.rint(_MIDDLES) * abs(fit.factor) ** _MIDDLES
        expected = mean + far[:, None] * (lasts - mean)
        deviation = spread * np.sqrt(np.maximum(0.0, 1.0 - far * far))
    keep = np.exp(-1.0 / alpha)
    weights = (keep ** (_STARTS + 1) - keep ** (_EDGES + 1)) / (1.0 - keep)
    terms[KIND], terms[LOW], terms[BIN], terms[RELATIVE] = SURFACE, low, (high - low) / (bins - 1), float(walk)
    highest, variance = _normal(deviation, fit.unit)
    sum_normals(weights * highest, expected, variance, low, terms[BIN], _ENDS_LEVEL, curves)


@kernel
def sum_normals(
    heights: Floats, expected: Floats, variances: Floats, low: float, step: float, ends_level: Booleans, curves: Floats
) -> None:
    """curves[last, level, i]: the sum of the normal curves of all stretches up to the end of the level at low + i step;
    `expected` is by stretch and last value, the others by stretch."""
    total = np.empty(curves.shape[2])
    for last in range(expected.shape[1]):
        total[:] = 0.0
        level = 0
        for stretch in range(len(heights)):
            centre = (expected[stretch, last] - low) / step
            _add_normal(total, heights[stretch], centre, step * step / variances[stretch])
            if ends_level[stretch]:
                curves[last, level] = total
                level += 1


@inlined
def _add_normal(total: Floats, height: float, centre: float, narrow: float) -> None:
    """Add height exp(-narrow (i - centre)^2 / 2) to total[i], for all i.

    From one point to the next such a curve shrinks by a factor, and that factor by another, which stays the same: two
    multiplications rather than an exponential, right to 11 digits for some hundred points. It goes outward from the
    point next to the centre, so that factors are below 1.
    """
    nearest = int(min(max(np.rint(centre), 0.0), len(total) - 1.0))
    off, shrink = nearest - centre, np.exp(-narrow)
    top = height * np.exp(-0.5 * narrow * off * off)
    total[nearest] += top
    value, factor = top, np.exp(-narrow * (off + 0.5))
    for at in range(nearest + 1, len(total)):
        value *= factor
        factor *= shrink
        if value < _NOTHING:
            break
        total[at] += value
    value, factor = top, np.exp(narrow * (off - 0.5))
    for at in range(nearest - 1, -1, -1):
        value *= factor
        factor *= shrink
        if value < _NOTHING:
            break
        total[at] += value
