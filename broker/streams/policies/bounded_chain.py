"""Chain with a latency bound: as Chain does, until a tuple would leave too late.

Babcock et al. (2003) admit that Chain lets tuples on flat segments starve during bursts. Our answer uses what they do
not: how much work is left for all that came before a tuple, and how long that tuple may still take.

    arrived   work left   work of all as old   must have left at      spare time at now = 10, bound 8
      3.0        1.0            1.0                 11.0               11.0 - 10 - 1.0 = 0.0    <- no time to lose
      4.0        0.5            1.5                 12.0               12.0 - 10 - 1.5 = 0.5
      9.0        2.0            3.5                 17.0               17.0 - 10 - 3.5 = 3.5

As long as every tuple has time to spare, Chain may run whatever it likes. When the spare time of one is used up, only
tuples as old as it or older are run, in the order that Chain has for them, so that its spare time stays what it is.
How much work is left in all does not depend on the policy (all are busy while there is work). So a tuple has at its
arrival the spare time that it would have with FIFO, and if FIFO keeps the bound, this policy keeps it (B1).

The rule that comes to mind first, tuples older than the bound first, acts when it is too late (CHAIN.md has figures;
`sim/experiments/studies/streams/overdue.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from hullcast.broker.scheduling.policy import Ready
from hullcast.broker.streams.policies.policy import OperatorPolicy, OperatorQueue, Priorities

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hullcast.broker.scheduling.policy import Item
    from hullcast.broker.streams.chart import Chart

#: Seconds in which a tuple should have left.
BOUND_S = 1.0
#: This part of the bound is kept in reserve: for what runs while nobody looks, and for what came since.
RESERVE = 1 / 32


class BoundedChain(OperatorPolicy):
    """Chain among all tuples while all have time to spare, and else among those that have not, and older ones.

    B1  If FIFO would let every tuple leave within 31/32 of the bound, and no run of an operator takes longer than 1/64
        of it, every tuple leaves within the bound.

    Work left is what progress charts say of what waits in ready queues; a queue that does not tell the ages of its
    tuples counts as old as its oldest. Spare time is looked at again after 1/64 of the bound at the latest, which costs
    O(n log n) for n batches that wait; else a pick costs what Chain's does.
    """

    name: ClassVar[str] = "bounded-chain"
    about: ClassVar[str] = "Chain, unless a tuple would be later than the latency bound"

    def __init__(self, bound_s: float = BOUND_S) -> None:
        if not bound_s > 0:
            raise ValueError(f"the latency bound must be positive, got {bound_s} s")
        self.bound_s = bound_s
        self.priorities, self.remaining = Priorities(), Priorities()
        self.order = self.priorities.order
        self._look_again = 0.0
        self._urgent: float | None = None  # tuples that arrived until then come first

    def measured(self, charts: Sequence[Chart | None], now: float) -> None:
        self.priorities.set([() if chart is None else chart.slopes() for chart in charts])
        self.remaining.set(
            [() if chart is None else [chart.remaining(place) for place in range(chart.operators)] for chart in charts]
        )

    def pick(self, items: Iterable[Item], now: float) -> OperatorQueue:
        if not isinstance(items, Ready):
            items = list(items)
        if now < self._look_again:
            first = self.priorities.first(items)
            if self._urgent is None or first.arrived <= self._urgent:
                return first  # the first of all is the first of those without time, if it is one of them
        queues = cast("list[OperatorQueue]", list(items))
        urgent = self._without_time(queues)
        if now >= self._look_again or (self._urgent is not None and not urgent):
            self._look(queues, now)
            urgent = self._without_time(queues)
        return self.priorities.first(urgent or items)

    def _without_time(self, queues: Sequence[OperatorQueue]) -> list[OperatorQueue]:
        latest = self._urgent
        return [] if latest is None else [queue for queue in queues if queue.arrived <= latest]

    def _look(self, queues: Sequence[OperatorQueue], now: float) -> None:
        """Find the oldest tuple without time to spare, and say when to look again."""
        waiting: list[tuple[float, float]] = []
        for queue in queues:
            remaining = self.remaining.of(queue)
            ages = ((queue.arrived, queue.size),) if queue.ages is None else queue.ages()
            for arrived, size in ages:
                waiting.append((arrived, size * remaining))
        reserve = RESERVE * self.bound_s
        self._urgent, self._look_again = None, now + reserve / 2
        work = 0.0
        for arrived, more in sorted(waiting):
            work += more
            if arrived + self.bound_s - now - work <= reserve:
                self._urgent = arrived
                return
