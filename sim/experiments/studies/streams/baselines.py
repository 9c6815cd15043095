"""Policies that no server offers: Greedy and Round-Robin, which the paper compares Chain with (`STUDIED` has all)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from hullcast.broker.streams.policies import OPERATOR_POLICIES
from hullcast.broker.streams.policies.policy import OperatorPolicy, OperatorQueue, Priorities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hullcast.broker.scheduling.policy import Item
    from hullcast.broker.streams.chart import Chart

#: Seconds that an operator may run before it is the next one's turn.
QUANTUM_S = 0.01


class GreedyPolicy(OperatorPolicy):
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


class RoundRobinPolicy(OperatorPolicy):
    """The operators in a circle, by path and place. One that has work keeps its turn until its quantum is used up or
    nothing waits for it any more. Nothing starves, and nothing is learned from selectivities."""

    name: ClassVar[str] = "round-robin"
    about: ClassVar[str] = "every operator in turn, each for a fixed time"

    def __init__(self, quantum_s: float = QUANTUM_S) -> None:
        if not quantum_s > 0:
            raise ValueError(f"the quantum of round-robin must be positive, got {quantum_s} s")
        self.quantum_s = quantum_s
        self._turn, self._left = (-1, -1), 0.0

    def pick(self, items: Iterable[Item], now: float) -> OperatorQueue:
        turn, has_time = self._turn, self._left > 0
        first: OperatorQueue | None = None
        following: OperatorQueue | None = None
        first_at = following_at = turn
        for queue in cast("Iterable[OperatorQueue]", items):
            at = queue.path, queue.place
            if at > turn:
                if following is None or at < following_at:
                    following, following_at = queue, at
            elif at == turn and has_time:
                return queue
            elif first is None or at < first_at:
                first, first_at = queue, at
        chosen = first if following is None else following  # a queue without tuples is false, and may have work
        assert chosen is not None, "a policy is asked only if something waits"
        self._turn, self._left = _where(chosen), self.quantum_s
        return chosen

    def served(self, item: Item, seconds: float, now: float) -> None:
        if isinstance(item, OperatorQueue) and _where(item) == self._turn:
            self._left -= seconds


def _where(queue: OperatorQueue) -> tuple[int, int]:
    return queue.path, queue.place


#: All policies by name: those that servers offer, and these.
STUDIED: dict[str, Callable[[], OperatorPolicy]] = {
    **OPERATOR_POLICIES,
    **{policy.name: policy for policy in (GreedyPolicy, RoundRobinPolicy)},
}
