"""Naive: when the limit is broken, all tables are propagated."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hullcast.broker.views.planners.planner import ViewPlanner, taken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.views.costs import CostFunction


class Naive(ViewPlanner):
    """A whole refresh at the limit: lazy and greedy, but not minimal. What others are measured against."""

    name: ClassVar[str] = "naive"
    about: ClassVar[str] = "propagates all tables when the limit is reached"

    def next(
        self, pending: Sequence[int], costs: Sequence[CostFunction], limit_s: float, now: float
    ) -> tuple[int, ...]:
        if taken(pending, costs) <= limit_s:
            return ()
        return tuple(table for table, k in enumerate(pending) if k)
