"""HEEB by its definition, and what theory says of it: slow and direct, for tests of curves and of the compiled join."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np

from hullcast.network.wire.arrays import Booleans, Floats, Ints
from hullcast.sim.experiments.studies.caching.benefit import caching_benefit, dominates, joining_benefit
from hullcast.sim.experiments.studies.caching.curves import steps_for
from hullcast.sim.experiments.studies.caching.models import Autoregressive, Chances, RandomWalk, StreamModel
from hullcast.sim.experiments.studies.caching.policy import Candidates, MemoryPolicy


@dataclass(frozen=True, slots=True)
class Stationary:
    """A stream with the same chances in every step."""

    chances: Chances

    def ahead(self, dt: int, now: int, last: int) -> Chances:
        return self.chances


@dataclass(frozen=True, slots=True, eq=False)
class KnownSequence:
    """A stream whose values are all known, the first at t = 0; after the last none comes."""

    values: Ints

    def ahead(self, dt: int, now: int, last: int) -> Chances:
        at = now + dt
        if at >= len(self.values):
            return Chances(0, np.zeros(1))
        return Chances(int(self.values[at]), np.ones(1))


class A0(MemoryPolicy):
    """The least likely value goes, by known chances: optimal for caches of stationary streams."""

    name = "A0"

    def __init__(self, chances: Chances) -> None:
        self._chances = chances

    def worth(self, candidates: Candidates, now: int) -> Floats:
        return self._chances.of(candidates.values)


@dataclass(frozen=True, slots=True)
class DirectWorth:
    """H by the direct sum, for any model."""

    model: StreamModel
    alpha: float
    caching: bool

    def of(self, values: Ints, now: int, last: int) -> Floats:
        steps = steps_for(self.alpha)
        if self.caching:
            return estimated(cached_benefit(self.model, values, steps, now, last), self.alpha)
        return estimated(joining_benefit(self.model, values, steps, now, last), self.alpha)


def survival(alpha: float, steps: int, left: Ints | None = None) -> Floats:
    """L(1) .. L(steps); where tuples leave their windows after so many more steps, a row for each, 0 from then on."""
    dt = np.arange(1, steps + 1)
    kept = np.exp(-dt / alpha)
    return kept if left is None else np.where(dt <= left[:, None], kept, 0.0)


def estimated(benefit: Floats, alpha: float, left: Ints | None = None) -> Floats:
    """H by the direct sum, for ECBs in rows. Steps beyond the last are left out: take enough of them."""
    each = np.diff(benefit, axis=1, prepend=0.0)
    return np.asarray((each * survival(alpha, benefit.shape[1], left)).sum(axis=1))


def next_joining(before: Floats, shown: Floats, alpha: float) -> Floats:
    """H one step later, from H and Pr{the other stream shows the value in that step}; for independent streams
    (Corollary 3): what was expected of this step is taken away, and the rest is a step nearer."""
    return exp(1.0 / alpha) * before - shown


def next_caching(before: Floats, shown: Floats, alpha: float) -> Floats:
    """The same for cached tuples (Corollary 4), of values that can fail to be shown."""
    return (exp(1.0 / alpha) * before - shown) / (1.0 - shown)


def windowed_joining(now: Floats, at_end: Floats, left: Ints, alpha: float) -> Floats:
    """H of tuples that leave their windows after so many more steps: from H without windows, now and of the step in
    which they leave, as that is what is taken away. For independent streams."""
    return now - np.exp(-left / alpha) * at_end


def cached_benefit(model: StreamModel, values: Ints, steps: int, now: int, last: int) -> Floats:
    """ECBs of cached tuples, also where the next value depends on the last one."""
    if not isinstance(model, RandomWalk | Autoregressive):
        return caching_benefit(model, values, steps, now)
    return np.stack([np.cumsum(_first_uses(model, int(value), steps, last)) for value in values])


def _first_uses(model: StreamModel, value: int, steps: int, last: int) -> Floats:
    """Pr{the stream shows a value for the first time dt steps from now}."""
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


def as_join(references: Ints) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """A caching problem as one of joining: the i-th occurrence of v becomes (v, i - 1) in the reference stream, and the
    tuple that is fetched, or in the cache, becomes (v, i) in a supply stream. Hits are results (Xie (2007), Theorem 7).
    """
    seen: dict[int, int] = {}
    reference, supply = [], []
    for value in references.tolist():
        before = seen.get(value, 0)
        reference.append((value, before))
        supply.append((value, before + 1))
        seen[value] = before + 1
    return reference, supply
