"""Greedy: the operator that frees memory fastest, each seen by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hullcast.broker.streams.policies.policy import OperatorQueue, Priorities

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hullcast.broker.scheduling.policy import Item
    from hullcast.broker.streams.chart import Chart


class GreedyPolicy:
    """The ready operator with the highest (1 - selectivity) / cost; ties go to the oldest tuple.

    A selective operator behind unselective ones gets nothing to do while there is a burst: those before it come last.
    """

    name: ClassVar[str] = "greedy"
    about: ClassVar[str] = "the operators that free most memory per second, each seen by itself"

    def __init__(self) -> None:
        self.priorities = Priorities()
        self.order = self.priorities.order

    def measured(self, charts: Sequence[Chart | None], now: float) -> None:
        self.priorities.set([() if chart is None else chart.steps() for chart in charts])

    def pick(self, items: Iterable[Item], now: float) -> OperatorQueue:
        return self.priorities.first(items)

    def served(self, item: Item, seconds: float, now: float) -> None:
        pass
