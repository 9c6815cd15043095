"""Chain: the operator whose chain frees memory fastest, by the lower envelopes of the progress charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hullcast.broker.streams.policies.policy import OperatorPolicy, OperatorQueue, Priorities

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hullcast.broker.scheduling.policy import Item
    from hullcast.broker.streams.chart import Chart


class ChainPolicy(OperatorPolicy):
    """The ready operator on the steepest segment of an envelope; ties go to the oldest tuple (Babcock et al. (2003)).

    If no selectivity is above 1, queues never hold more than one unit per path above what is possible for anybody who
    knows all that will come; else at most the gaps of the charts more (`Chart.gaps`). Until charts are known it is
    FIFO. A tuple on a flat segment may wait as long as a burst lasts: `BoundedChain` does not let it.
    """

    name: ClassVar[str] = "chain"
    about: ClassVar[str] = "the operators that free most memory per second, seen together with those behind them"

    def __init__(self) -> None:
        self.priorities = Priorities()
        self.order = self.priorities.order

    def measured(self, charts: Sequence[Chart | None], now: float) -> None:
        self.priorities.set([() if chart is None else chart.slopes() for chart in charts])

    def pick(self, items: Iterable[Item], now: float) -> OperatorQueue:
        return self.priorities.first(items)
