"""Policies compared by their means over all draws, as the thesis compares them by the means of 50 runs.

A verdict needs the 95 % interval of the ratio of two means: where a limit lies inside, these draws cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from hullcast.sim.experiments.study import Sweep
from hullcast.sim.output.claims import Claim
from hullcast.sim.output.text import factor

#: What figures say below, and sections beside them.
BANDS = "Lines: means of all draws; bands: 95 % intervals"
NOTE = (
    "Judged by means over all draws, as the thesis has means of 50 runs; in brackets 95 % intervals. A verdict whose "
    "limit lies inside is none."
)

Interval = tuple[float, float, float]


def interval(values: Sequence[float]) -> Interval:
    """The low end of the 95 % interval of a mean, the mean, and the high end (Student's t, by draws)."""
    mean = fmean(values)
    if len(values) < 2:
        return mean, mean, mean
    from scipy.special import stdtrit

    off = float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / sqrt(len(values))
    return mean - off, mean, mean + off


def ratio_of(above: Sequence[float], below: Sequence[float]) -> Interval:
    """The ratio of two means, and its interval: that of what `above` has beyond so many times `below`, draw by draw."""
    whole = fmean(below)
    if not whole:
        return (1.0, 1.0, 1.0) if not any(above) else (float("inf"),) * 3
    ratio = fmean(above) / whole
    low, _, high = interval([a - ratio * b for a, b in zip(above, below, strict=True)])
    return ratio + low / whole, ratio, ratio + high / whole


def mean_claim(
    subject: str,
    statement: str,
    above: Sequence[float],
    rivals: Sequence[Sequence[float]],
    holds: Callable[[float], bool] = lambda ratio: ratio > 1.0,
    because: str = "",
    **more: Any,
) -> Claim:
    """A claim on how many times as much as the rival with the highest mean something has, each by draw."""
    low, ratio, high = ratio_of(above, max(rivals, key=fmean))
    ours = factor(ratio)
    if len(above) > 1:
        first = sum(mine > max(others) for mine, *others in zip(above, *rivals, strict=True))
        ours += f" [{factor(low)} .. {factor(high)}], more in {first} of {len(above)} draws"
    if not holds(low) == holds(ratio) == holds(high):
        more["unknown"] = f"the limit is within the 95 % interval of {len(above)} draws"
    return Claim(subject, statement, ours, holds(ratio), because, value=ratio, form=factor, **more)


def bands(found: Sweep, parameter: str, metric: str, **point: Any) -> list[tuple[float, Sequence[float]]]:
    """A curve of means and their intervals, for `draw_panels`."""
    return [(x, interval(values)) for x, values in found.along(parameter, metric, **point)]
