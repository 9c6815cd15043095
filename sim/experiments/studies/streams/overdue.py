"""Overdue: the rule for a latency bound that comes to mind first, to compare `BoundedChain` with.

It acts when it is too late. For the longest latency that it comes to it needs as much memory as `BoundedChain`
(broker/streams/CHAIN.md has figures), but that latency is not the bound, and nobody knows it beforehand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from hullcast.broker.streams.policies.chain import ChainPolicy
from hullcast.broker.streams.policies.policy import OperatorQueue, age

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hullcast.broker.scheduling.policy import Item


class Overdue(ChainPolicy):
    """Chain, but tuples older than the bound come first, oldest first."""

    name: ClassVar[str] = "overdue"
    about: ClassVar[str] = "Chain, unless a tuple is later than the bound already"

    def __init__(self, bound_s: float) -> None:
        super().__init__()
        self.bound_s = bound_s

    def pick(self, items: Iterable[Item], now: float) -> OperatorQueue:
        queues = cast("list[OperatorQueue]", list(items))
        oldest = min(queues, key=age)
        return oldest if now - oldest.arrived > self.bound_s else self.priorities.first(queues)
