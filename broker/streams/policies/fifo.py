"""FIFO: each tuple to completion, in the order in which they came."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from hullcast.broker.scheduling.policy import Ready
from hullcast.broker.streams.policies.policy import OperatorQueue, age

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hullcast.broker.scheduling.policy import Item
    from hullcast.broker.streams.chart import Chart


class FifoPolicy:
    """The oldest tuple comes first until it has left. No policy has a lower longest latency; a burst waits where it is
    largest, before the first operator."""

    name: ClassVar[str] = "fifo"
    about: ClassVar[str] = "each tuple to completion, in the order in which they came"

    order = staticmethod(age)

    def measured(self, charts: Sequence[Chart | None], now: float) -> None:
        pass

    def pick(self, items: Iterable[Item], now: float) -> OperatorQueue:
        first = items.first() if isinstance(items, Ready) else min(cast("Iterable[OperatorQueue]", items), key=age)
        return cast("OperatorQueue", first)

    def served(self, item: Item, seconds: float, now: float) -> None:
        pass
