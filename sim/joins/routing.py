"""A plan for each row as Xie (2007), section 4.5, chooses it: cost models, their regression, and plain histograms.

What the server does instead is in broker/joins/costs.py and planner.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hullcast.broker.joins.histogram import Counts, Density, Steps
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.joins.histogram import equal_width

#: Table 4.2: plan, coefficient, value and 95 % interval. The unit is not given.
TABLE_42 = (
    ("JoinFirst-E", "alpha", "0.25 [0.24 .. 0.26]"),
    ("JoinFirst-E", "beta", "4.34 [4.23 .. 4.44]"),
    ("JoinFirst-S", "alpha", "0.36 [0.33 .. 0.38]"),
    ("JoinFirst-S", "beta", "0.17 [0.15 .. 0.20]"),
    ("SelectFirst", "alpha", "0.64 [0.63 .. 0.65]"),
    ("SelectFirst", "beta", "42.49 [35.06 .. 49.92]"),
    ("SelectFirst", "gamma", "1.19 [1.16 .. 1.22]"),
    ("Hotspot", "alpha", "0.19 [0.19 .. 0.20]"),
    ("Hotspot", "beta", "0.08 [0.06 .. 0.10]"),
    ("Hotspot", "gamma", "70.19 [50.49 .. 89.89]"),
    ("Hotspot", "delta", "1.17 [1.14 .. 1.21]"),
)
PLANS = tuple(dict.fromkeys(plan for plan, *_ in TABLE_42))
#: Of both histograms (section 4.6.7).
BUCKETS = 100
#: Half of a 95 % interval, in standard errors.
WITHIN = 1.96


class RouterLoad(NamedTuple):
    """What costs depend on besides the row."""

    rows: int
    queries: int
    hot: Ints  # queries of each hot group
    cold: int  # queries in none


def terms(plan: str, load: RouterLoad, k_j: Floats, k_s: Floats) -> Floats:
    """(row, term): what the coefficients of a plan are multiplied with; logarithms are to base 2, of one more."""
    one, log_k_j = np.ones(len(k_j)), np.log2(1 + k_j)
    find = one * np.log2(1 + load.rows)
    if plan == "JoinFirst-E":
        columns = [find, k_j * np.sqrt(load.queries)]
    elif plan == "JoinFirst-S":
        columns = [find, load.queries * log_k_j]
    elif plan == "SelectFirst":
        columns = [find, one * np.log2(1 + load.queries), k_s * log_k_j]
    else:
        cold = k_s * load.cold / load.queries
        columns = [find, one * np.sqrt(load.hot).sum(), one * np.log2(1 + load.cold), cold * log_k_j]
    return np.column_stack(columns)


def regress(design: Floats, driver: Floats, measured: Floats) -> tuple[Floats, Floats]:
    """Coefficients of a plan and half of their 95 % intervals, by least squares of each part of the cost by itself.

    What any row costs shows in the tenth of the rows where what drives the cost (k_j or k_s) is least; the last term in
    what is left of all.
    """
    few = driver <= np.quantile(driver, 0.1)
    values, halves = _least_squares(design[few, :-1], measured[few])
    value, half = _least_squares(design[:, -1:], measured - design[:, :-1] @ values)
    return np.append(values, value), np.append(halves, half)


def _least_squares(design: Floats, measured: Floats) -> tuple[Floats, Floats]:
    values = np.asarray(np.linalg.lstsq(design, measured, rcond=None)[0], np.float64)
    rest = measured - design @ values
    variance = rest @ rest / max(1, len(measured) - len(values))
    return values, WITHIN * np.sqrt(variance * np.diag(np.linalg.pinv(design.T @ design)))


class PlanRouter:
    """DYNAMIC: the plan of the least estimated cost, by two equal-width histograms of 100 buckets."""

    def __init__(self, load: RouterLoad, joined: Floats, rectangles: Floats, coefficients: dict[str, Floats]) -> None:
        """`joined` is S.B of all rows."""
        self._load, self._coefficients = load, coefficients
        values, counts = np.unique(joined, return_counts=True)
        edges = np.linspace(values[0], np.nextafter(values[-1], np.inf), BUCKETS + 1)
        rows, _ = np.histogram(values, edges, weights=counts.astype(np.float64))
        kinds, _ = np.histogram(values, edges)
        self._joining = Steps(edges, np.concatenate((rows / np.maximum(kinds, 1), np.zeros(2))))
        lows, highs = np.sort(rectangles[:, 0]), np.sort(rectangles[:, 1])
        reach = Density.uniform(float(lows[0]), float(highs[-1]))
        self._selecting = equal_width(Counts.of(lows, highs, reach), BUCKETS)

    def choose(self, joined: Floats, xs: Floats) -> Ints:
        """The place of the plan in PLANS, for rows with these R.B and R.A."""
        k_j, k_s = self._joining.at(joined), np.maximum(self._selecting.at(xs), 0.0)
        costs = [terms(plan, self._load, k_j, k_s) @ self._coefficients[plan] for plan in PLANS]
        found: Ints = np.argmin(costs, axis=0)
        return found
