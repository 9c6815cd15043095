"""Curves over one parameter with every round they were measured in, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median
from textwrap import fill

import numpy as np
from rich.table import Table

from hullcast.network.wire.arrays import Floats
from hullcast.sim.output.charts import BandCurve, Panel, draw_panels
from hullcast.sim.output.text import number, plain_table, short

#: Where curves cross that do not: no number of anything is as large.
NEVER = 1e15
#: What a chart's values are. Rates are kept as microseconds, and drawn as rows a second.
RATES, TIMES, PERCENT = "us an arrival", "us", "%"


@dataclass(frozen=True, slots=True)
class JoinCurve:
    """What was found at each x, round by round (or seed by seed)."""

    name: str
    xs: tuple[float, ...]
    rounds: tuple[tuple[float, ...], ...]

    @property
    def medians(self) -> list[float]:
        """At each x."""
        return [median(values) for values in self.rounds]

    def times(self, other: JoinCurve, at: int = -1) -> list[float]:
        """How many times the value of this one the other one has at one place, in each round."""
        return [theirs / mine for mine, theirs in zip(self.rounds[at], other.rounds[at], strict=True)]

    def growth(self, least: float = -inf, most: float = inf) -> list[float]:
        """The last value by the first one, among the places from `least` to `most`."""
        first, *_, last = (values for x, values in zip(self.xs, self.rounds, strict=True) if least <= x <= most)
        return [b / a for a, b in zip(first, last, strict=True)]

    @property
    def spreads(self) -> list[float]:
        """The greatest value by the smallest, in each round."""
        return [max(values) / min(values) for values in zip(*self.rounds, strict=True)]

    def slopes(self, least: float = 0.0) -> list[float]:
        """The exponent of x in the values, from `least` on (or the last two places): 1 is linear, 0 is flat."""
        start = min(sum(x < least for x in self.xs), len(self.xs) - 2)
        fitted: list[float] = np.polyfit(np.log(self.xs[start:]), np.log(self.rounds[start:]), 1)[0].tolist()
        return fitted

    def straight(self) -> list[tuple[float, float]]:
        """(slope, R2) of the straight line through the values of each round."""
        xs, lines = np.array(self.xs), []
        for values in np.array(self.rounds).T:
            slope, start = np.polyfit(xs, values, 1)
            off = values - (start + slope * xs)
            lines.append((float(slope), 1.0 - float((off**2).sum() / ((values - values.mean()) ** 2).sum())))
        return lines

    def passes(self, other: JoinCurve) -> list[float]:
        """From which x on this one has the greater values: by proportion on log axes. 0: everywhere; NEVER: nowhere."""
        return [_crossing(np.log(self.xs), gaps) for gaps in np.log(self.rounds).T - np.log(other.rounds).T]


def _crossing(xs: Floats, gaps: Floats) -> float:
    if gaps[-1] <= 0:
        return NEVER
    below = np.flatnonzero(gaps <= 0)
    if not len(below):
        return 0.0
    i = below[-1]
    return float(np.exp(xs[i] + (xs[i + 1] - xs[i]) * gaps[i] / (gaps[i] - gaps[i + 1])))


@dataclass(frozen=True, slots=True)
class JoinChart:
    """Curves over the same places."""

    figure: str  # such as "4.7(i)"
    title: str
    x_label: str
    curves: tuple[JoinCurve, ...]
    unit: str = RATES
    groups: tuple[int, ...] = ()  # how many stabbing groups there are at each x


def find(charts: Sequence[JoinChart], figure: str, name: str) -> JoinCurve:
    """One curve of one of the charts."""
    return next(curve for chart in charts if chart.figure == figure for curve in chart.curves if curve.name == name)


def table(chart: JoinChart) -> Table:
    """Medians."""
    names = (fill(chart.x_label, 18), *(("groups",) if chart.groups else ()))
    names = (*names, *(fill(curve.name, 11, break_long_words=False) for curve in chart.curves))
    shown = plain_table(f"Figure {chart.figure}: {chart.title}; {chart.unit}", *names)
    medians = [curve.medians for curve in chart.curves]
    xs = chart.curves[0].xs
    for i, x in enumerate(xs):
        groups = (f"{chart.groups[i]:,}",) if chart.groups else ()
        shown.add_row(_place(x, xs[-1]), *groups, *(number(values[i]) for values in medians))
    return shown


def draw(chart: JoinChart, path: Path) -> Path:
    """Medians, and how far the rounds are apart."""
    rates = chart.unit == RATES
    curves = [
        BandCurve(curve.name, [
            (x, [1e6 / value for value in values] if rates else values)
            for x, values in zip(curve.xs, curve.rounds, strict=True)
        ])
        for curve in chart.curves
    ]  # fmt: skip
    xs = chart.curves[0].xs
    return draw_panels(
        [[Panel(chart.title, curves, "rows of R a second" if rates else chart.unit)]], path,
        title=f"Xie (2007), Figure {chart.figure}", x_label=chart.x_label, x_format=lambda x: _place(x, xs[-1]),
        y_log=rates, bands="Lines: medians of the rounds; bands: from the least to the greatest",
        x_log=xs[0] > 0 and xs[-1] > 20 * xs[0],
    )  # fmt: skip


def _place(x: float, most: float) -> str:
    return f"{100 * x:.3g}%" if most <= 1 else short(x)
