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

All here is direct and slow: what faster forms are tested against, and what decides by dominance alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Booleans, Floats, Ints
    from hullcast.sim.experiments.studies.caching.models import StreamModel


def chances_ahead(model: StreamModel, values: Ints, steps: int, now: int, last: int) -> Floats:
    """Pr{the stream shows values[i] at now + dt}, in row i and column dt - 1."""
    return np.stack([model.ahead(dt, now, last).of(values) for dt in range(1, steps + 1)], axis=1)


def joining_benefit(model: StreamModel, values: Ints, steps: int, now: int, last: int) -> Floats:
    """ECBs of tuples with these values, joined with a stream: row i is B(1) .. B(steps) of values[i]."""
    return np.cumsum(chances_ahead(model, values, steps, now, last), axis=1)


def caching_benefit(model: StreamModel, values: Ints, steps: int, now: int, last: int) -> Floats:
    """ECBs of cached tuples with these values, for a reference stream."""
    if model.independent:
        return 1.0 - np.multiply.accumulate(1.0 - chances_ahead(model, values, steps, now, last), axis=1)
    return np.stack([np.cumsum(first_uses(model, int(value), steps, last)) for value in values])


def first_uses(model: StreamModel, value: int, steps: int, last: int) -> Floats:
    """Pr{a stream whose next value depends on its last one shows a value for the first time dt steps from now}."""
    at: dict[int, float] = {last: 1.0}
    found = np.zeros(steps)
    for dt in range(steps):
        after: dict[int, float] = {}
        for where, weight in at.items():
            step = model.ahead(1, 0, where)
            for to, chance in zip(step.values().tolist(), (weight * step.each).tolist(), strict=True):
                after[to] = after.get(to, 0.0) + chance
        found[dt] = after.pop(value, 0.0)  # those paths end here
        at = {to: chance for to, chance in after.items() if chance > 1e-12}
    return found


def windowed(benefit: Floats, left: Ints) -> Floats:
    """ECBs of tuples that leave their windows after so many more steps: from then on they stay as they are."""
    last = np.clip(left, 1, benefit.shape[1]) - 1
    ends = np.take_along_axis(benefit, last[:, None], axis=1)
    inside = np.arange(1, benefit.shape[1] + 1) <= left[:, None]
    return np.where(inside, benefit, np.where(left[:, None] > 0, ends, 0.0))


def dominates(x: Floats, y: Floats, *, slack: float = 0.0) -> bool:
    """Whether one ECB is nowhere below another."""
    return bool((x >= y - slack).all())


def strongly_dominates(x: Floats, y: Floats) -> bool:
    """Whether one ECB is above another everywhere."""
    return bool((x > y).all())


def dominated_subset(benefits: Floats, at_most: int) -> Booleans:
    """The largest set of at most so many tuples that are dominated by every tuple outside: it is optimal to drop it
    (Xie (2007), Corollary 2). Often empty. O(n^2) comparisons."""
    n = len(benefits)
    above = np.array([[dominates(benefits[x], benefits[y]) for y in range(n)] for x in range(n)])
    # A tuple can only be in such a set together with all that do not dominate it, and all those of these, and so on.
    least = []
    for start in range(n):
        inside = np.zeros(n, np.bool_)
        inside[start] = True
        while (more := (~above[:, inside]).any(axis=1) & ~inside).any():
            inside |= more
        least.append(inside)
    # These sets are nested, but for tuples with equal ECBs; and a union of dominated sets is one.
    chosen = np.zeros(n, np.bool_)
    for inside in sorted(least, key=np.count_nonzero):
        if np.count_nonzero(chosen | inside) <= at_most:
            chosen |= inside
    return chosen
