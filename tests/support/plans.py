"""What maintaining a view costs at least: slow and obvious, over all valid plans and over the lazy-greedy-minimal ones.

Everything that may happen in a step is tried, step by step. Nothing is shared with the planners but the definitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, combinations, product
from math import inf

from hullcast.broker.views.costs import CostFunction

State = tuple[int, ...]


def cost_of(costs: Sequence[CostFunction], changes: Sequence[int]) -> float:
    return sum(cost.of(k) for cost, k in zip(costs, changes, strict=True))


def least_of_all(arrivals: Sequence[State], costs: Sequence[CostFunction], limit_s: float) -> float:
    """Of all valid plans: in any step any number of any pending changes may be propagated."""

    @cache
    def ahead(step: int, left: State) -> float:
        pending = tuple(k + more for k, more in zip(left, arrivals[step], strict=True))
        if step == len(arrivals) - 1:
            return cost_of(costs, pending)
        best = inf
        for after in product(*(range(k + 1) for k in pending)):
            if cost_of(costs, after) <= limit_s:
                done = [k - rest for k, rest in zip(pending, after, strict=True)]
                best = min(best, cost_of(costs, done) + ahead(step + 1, after))
        return best

    return ahead(0, (0,) * len(costs))


def minimal(pending: State, costs: Sequence[CostFunction], limit_s: float) -> Iterator[State]:
    """What may be left by a minimal valid action that empties tables."""
    tables = range(len(pending))
    valid: list[frozenset[int]] = []
    for chosen in map(frozenset, chain.from_iterable(combinations(tables, size) for size in range(len(pending) + 1))):
        after = tuple(0 if table in chosen else k for table, k in enumerate(pending))
        if cost_of(costs, after) <= limit_s and not any(fewer < chosen for fewer in valid):
            valid.append(chosen)
            yield after


def least_lgm_from(
    step: int, pending: State, arrivals: Sequence[State], costs: Sequence[CostFunction], limit_s: float
) -> float:
    """Of all lazy-greedy-minimal plans, from a step on in which this is pending (with what came in it)."""

    @cache
    def ahead(step: int, pending: State) -> float:
        if step == len(arrivals) - 1:
            return cost_of(costs, pending)
        best = inf
        for after in [pending] if cost_of(costs, pending) <= limit_s else minimal(pending, costs, limit_s):
            done = [k - rest for k, rest in zip(pending, after, strict=True)]
            come = tuple(k + more for k, more in zip(after, arrivals[step + 1], strict=True))
            best = min(best, cost_of(costs, done) + ahead(step + 1, come))
        return best

    return ahead(step, pending)


def least_lgm(arrivals: Sequence[State], costs: Sequence[CostFunction], limit_s: float) -> float:
    """Of all lazy-greedy-minimal plans."""
    return least_lgm_from(0, arrivals[0], arrivals, costs, limit_s)
