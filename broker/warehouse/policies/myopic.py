"""Myopic: loads the table whose oldest pending update was released first (Bateni et al. (2009))."""

from __future__ import annotations

from math import inf, sqrt
from typing import ClassVar

from hullcast.broker.warehouse.policies.updates_first import UpdatesFirst

#: Corollary 3.2: loads that take less than this share of what the places could do.
EAGER_LIMIT = (sqrt(3) - 1) / 2


class Myopic(UpdatesFirst):
    """Never leaves a place idle while a table could be loaded: the paper calls that eager. Total staleness is then
    within a constant of the least possible if loads are fast enough (Theorem 3.1).

    Feeds are all that the paper has; questions are answered, in their turn, on places that loads leave free. That is
    what updates-first does too: a load takes all that waits for its table, so no other order of updates is left.
    """

    name: ClassVar[str] = "myopic"
    about: ClassVar[str] = "loads the table that has waited longest; queries get the workers that are left"


def eager_bound(alpha: float, places: int, tables: int) -> float:
    """The factor within which total staleness is of the least possible, for every eager policy: Theorem 3.1 with the
    beta and delta that give the least. inf where it promises nothing.

    `alpha`: how long it takes at most to load what a table gets in a second.
    """
    share = alpha * tables / places
    if share >= EAGER_LIMIT:
        return inf
    gamma = sqrt(3) * share / (1 - share)  # sqrt(delta) (1 - beta) must be as large; it is less than 1

    def factor(beta: float) -> float:
        return 1 / (beta**4 * (1 - (gamma / (1 - beta)) ** 2))

    low, high = 0.0, 1 - gamma  # factor is convex between, and infinite at both
    for _ in range(100):
        third = (high - low) / 3
        if factor(low + third) < factor(high - third):
            high -= third
        else:
            low += third
    return (1 + alpha) ** 2 * factor((low + high) / 2)
