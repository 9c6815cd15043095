"""Expected cumulative benefit (ECB): the results a tuple will have produced, on average, by a time.

    B_x(dt) = sum of Pr{the other stream shows x's value at t} for t = 1 .. dt          joining two streams
    B_x(dt) = Pr{the reference stream shows x's value at some t = 1 .. dt}              caching a relation

B_x *dominates* B_y if it is nowhere below it: then there is an optimal policy that keeps x or drops y. If it is above
everywhere (*strongly*), every optimal policy does (Xie (2007), Theorem 9). ECBs that cross are not comparable::

      B |             ___ z       z is worth more than x if it stays long enough, and x is worth more than y anyway
        |  x ____----/---
        |   /    ___/             (dominance says: drop y before x; between x and z a heuristic must decide)
        |  / ___/  _______ y
        | /_/__----
        +---------------- dt

All here is direct and slow: what is drawn, and what HEEB's faster forms are tested against.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Floats, Ints
    from hullcast.sim.experiments.studies.caching.models import StreamModel


def chances_ahead(model: StreamModel, values: Ints, steps: int, now: int, last: int = 0) -> Floats:
    """Pr{the stream shows values[i] at now + dt}, in row i and column dt - 1; `last` is what it shows now."""
    return np.stack([model.ahead(dt, now, last).of(values) for dt in range(1, steps + 1)], axis=1)


def joining_benefit(model: StreamModel, values: Ints, steps: int, now: int, last: int = 0) -> Floats:
    """ECBs of tuples with these values, joined with a stream: row i is B(1) .. B(steps) of values[i]."""
    return np.cumsum(chances_ahead(model, values, steps, now, last), axis=1)


def caching_benefit(model: StreamModel, values: Ints, steps: int, now: int) -> Floats:
    """ECBs of cached tuples with these values, for a reference stream whose values are independent."""
    return 1.0 - np.multiply.accumulate(1.0 - chances_ahead(model, values, steps, now), axis=1)


def dominates(x: Floats, y: Floats, *, slack: float = 0.0) -> bool:
    """Whether one ECB is nowhere below another."""
    return bool((x >= y - slack).all())
