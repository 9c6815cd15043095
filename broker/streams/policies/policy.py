"""What policies know of operators, their queues and the progress charts of their paths; and the policy FIFO."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from hullcast.broker.scheduling.policy import Item, Policy, Ready

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.streams.chart import Chart


@dataclass(eq=False, slots=True)
class OperatorQueue(Item):
    """The queue in front of one operator on one path. (An operator with two inputs is on two paths.)

    `owner` is the query; `arrived` is when the oldest tuple in the queue entered the system, and is kept up to date by
    whoever takes tuples in and out. Tuples leave a queue in the order in which they came. Its places on paths never
    change.
    """

    path: int = 0  # the number of its path: from one stream to the output of one query
    place: int = 0  # 0: the first operator of the path
    size: float = 0.0  # what waits, in units of memory
    also: tuple[tuple[int, int], ...] = ()  # other paths that lead through the same queue: (path, place) of each
    ages: Callable[[], Iterable[tuple[float, float]]] | None = None  # what waits: (arrived, size), oldest first


class OperatorPolicy(Policy, Protocol):
    """Picks the operator that runs next; ties go to the oldest tuple, so that no two drivers can differ.

    Of tuples of one age the one that is farthest on its path comes first, then the path with the least number.
    """

    name: ClassVar[str]
    about: ClassVar[str]

    def measured(self, charts: Sequence[Chart | None], now: float) -> None:
        """From now on paths have these progress charts, by their numbers; None: nothing is known of this one."""
        return

    def served(self, item: Item, seconds: float, now: float) -> None:
        """It has run for so long."""
        return


class Priorities:
    """A number for each operator of each path; one that is not known has 0. Those of queues are looked up once."""

    def __init__(self) -> None:
        self._by_path: Sequence[Sequence[float]] = ()
        self._known: dict[OperatorQueue, float] = {}

    def set(self, by_path: Sequence[Sequence[float]]) -> None:
        """From now on they are these."""
        self._by_path = by_path
        self._known.clear()

    def of(self, queue: OperatorQueue) -> float:
        """That of a queue; the highest, if several paths lead through it."""
        priority = self._known.get(queue)
        if priority is None:
            places = ((queue.path, queue.place), *queue.also)
            priority = self._known[queue] = max(self._number(path, place) for path, place in places)
        return priority

    def _number(self, path: int, place: int) -> float:
        try:
            return self._by_path[path][place]
        except IndexError:
            return 0.0

    def order(self, queue: OperatorQueue) -> tuple[float, float, int, int]:
        """Sorts queues: the highest priority first, then by `age`."""
        priority = self._known.get(queue)
        if priority is None:
            priority = self.of(queue)
        return -priority, queue.arrived, -queue.place, queue.path

    def first(self, queues: Iterable[Item]) -> OperatorQueue:
        """The first by `order`. O(n), about 0.1 us a queue; of `Ready` ones, which are kept in this order, O(log n)."""
        if isinstance(queues, Ready):
            return cast("OperatorQueue", queues.first())
        best: OperatorQueue | None = None
        highest, arrived, known = -inf, inf, self._known
        for queue in cast("Iterable[OperatorQueue]", queues):
            priority = known.get(queue)
            if priority is None:
                priority = self.of(queue)
            if priority > highest or best is None:
                best, highest, arrived = queue, priority, queue.arrived
            elif priority == highest and (
                queue.arrived < arrived
                or (queue.arrived == arrived and (-queue.place, queue.path) < (-best.place, best.path))
            ):
                best, arrived = queue, queue.arrived
        assert best is not None, "a policy is asked only if something waits"
        return best


def age(queue: OperatorQueue) -> tuple[float, int, int]:
    """Sorts queues by their oldest tuple; of tuples of one age the one that is farthest on comes first."""
    return queue.arrived, -queue.place, queue.path


class FifoPolicy(OperatorPolicy):
    """The oldest tuple comes first until it has left. No policy has a lower longest latency; a burst waits where it is
    largest, before the first operator."""

    name: ClassVar[str] = "fifo"
    about: ClassVar[str] = "each tuple to completion, in the order in which they came"

    order = staticmethod(age)

    def pick(self, items: Iterable[Item], now: float) -> OperatorQueue:
        first = items.first() if isinstance(items, Ready) else min(cast("Iterable[OperatorQueue]", items), key=age)
        return cast("OperatorQueue", first)
