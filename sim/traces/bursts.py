"""Bursty arrivals: flows that begin by a Poisson process and send for a heavy-tailed time.

The sum of many such flows looks like traffic of networks: bursts at every scale of time (Willinger, Paxson et al.,
who are cited by Babcock et al. (2003) for it). A flow sends one tuple in each unit of time while it lasts.
"""

from __future__ import annotations

import numpy as np

from hullcast.network.wire.arrays import Floats

#: Shape of the durations (their variance is infinite below 2), and the shortest.
ALPHA, SHORTEST = 1.5, 1.0
#: Units of time between the beginnings of two flows, on average.
BETWEEN = 10.0


def pareto_bursts(
    tuples: int,
    chance: np.random.Generator,
    *,
    alpha: float = ALPHA,
    shortest: float = SHORTEST,
    between: float = BETWEEN,
) -> Floats:
    """When so many tuples arrive, in order, from 0 on.

    Density of durations: alpha * shortest^alpha * x^(-alpha - 1) for x >= shortest.
    """
    if not (alpha > 1 and shortest > 0 and between > 0 and tuples > 0):
        raise ValueError(
            f"bursts need alpha above 1 and the rest above 0, got {alpha=}, {shortest=}, {between=}, {tuples=}"
        )
    times: list[Floats] = []
    have, begins = 0, 0.0
    # flows are drawn in blocks; what a later block sends may lie before the end of this one, so draw until the
    # beginning of the next block is beyond the last tuple that is asked for
    while True:
        flows = max(64, tuples // 8)
        starts = begins + np.cumsum(chance.exponential(between, flows))
        many = np.maximum(1, np.floor(shortest * (1.0 - chance.random(flows)) ** (-1.0 / alpha))).astype(np.int64)
        many = np.minimum(many, tuples)
        place = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
        times.append(np.repeat(starts, many) + place)
        begins, have = float(starts[-1]), have + int(many.sum())
        if have >= tuples:
            merged = np.sort(np.concatenate(times))
            if merged[tuples - 1] <= begins:
                return np.ascontiguousarray(merged[:tuples] - merged[0])
