"""Coefficients of the server's cost models (broker/joins/costs.py), fitted to measured runs: `hullcast calibrate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hullcast.broker.joins.costs import MODELS, Coefficients, Facts, per_row
from hullcast.network.wire.arrays import Floats, Ints

FIT_ROUNDS = 6


class PlanRun(NamedTuple):
    """A run of one plan over rows that all have about the same k_j and k_s."""

    plan: int
    facts: Facts
    k_j: float
    k_s: float
    nanoseconds: float  # a row


class Fit(NamedTuple):
    """Coefficients, and how far predictions are off: the median of predicted / measured, either way up, less 1."""

    coefficients: Coefficients
    off: tuple[float, ...]


def fit(runs: list[PlanRun], machine: Mapping[str, str], before: Coefficients) -> Fit:
    """Least squares over measured runs, no coefficient below 0. A plan without a run keeps what it had.

    Errors count relative to the cost: a plan is chosen by comparing costs of a microsecond as often as of a
    millisecond, and plain least squares would fit the milliseconds only. Relative to the geometric mean of measured and
    predicted, in some rounds: then half as much is as wrong as twice as much.
    """
    values, off = [], []
    for plan, terms in enumerate(MODELS.values()):
        mine = [run for run in runs if run.plan == plan]
        if not mine:
            values.append(before.values[plan])
            off.append(np.nan)
            continue
        rows = per_row(*np.array([(run.k_j, run.k_s, run.facts.groups) for run in mine]).T)
        design = np.array([[term.factor(run.facts) for term in terms] for run in mine])
        design *= rows[[term.per_row for term in terms]].T
        measured = np.array([run.nanoseconds for run in mine])
        scale = measured
        for _ in range(FIT_ROUNDS):
            found = least_squares(design / scale[:, None], measured / scale)
            scale = np.sqrt(measured * np.maximum(design @ found, 0.01 * measured))
        values.append(tuple(found.tolist()))
        ratio = np.maximum(design @ found, 1e-9) / measured
        off.append(float(np.median(np.maximum(ratio, 1 / ratio)) - 1))
    return Fit(Coefficients(tuple(values), machine), tuple(off))


def least_squares(design: Floats, wanted: Floats) -> Floats:
    """The x, none below 0, with the least |design @ x - wanted|.

    Of the few columns (at most six) every choice of those that are not 0 is tried: simple, and exact.
    """
    columns = design.shape[1]
    best, least = np.zeros(columns), float(wanted @ wanted)
    for choice in range(1, 1 << columns):
        chosen: Ints = np.flatnonzero([choice >> column & 1 for column in range(columns)])
        some, *_ = np.linalg.lstsq(design[:, chosen], wanted, rcond=None)
        if (some < 0).any():
            continue
        rest = design[:, chosen] @ some - wanted
        if rest @ rest < least * (1 - 1e-12):
            best, least = np.zeros(columns), float(rest @ rest)
            best[chosen] = some
    return best
