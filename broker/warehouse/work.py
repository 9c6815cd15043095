"""What the warehouse process has workers do: one interface for loads, answers and views that are made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from hullcast.broker.warehouse.board import Answer, Load
from hullcast.broker.warehouse.messages import MakeView

if TYPE_CHECKING:
    from hullcast.broker.warehouse.messages import Failure, Finished
    from hullcast.broker.warehouse.workers import Hand

LiveTask = Load | Answer | MakeView
OneTask = TypeVar("OneTask", Load, Answer, MakeView)


class LiveWork(ABC, Generic[OneTask]):
    """Tasks of one kind. Each is begun; then it is over, takes too long, or its worker dies; and then it has ended."""

    @abstractmethod
    def owner(self, task: OneTask) -> str | None:
        """Whom the time of its worker is charged to."""

    @abstractmethod
    def begin(self, task: OneTask, hand: Hand, now: float) -> float | None:
        """Tell a worker what to do; gives the seconds after which that takes too long."""

    @abstractmethod
    def ended(self, task: OneTask, hand: Hand, now: float, *, done: bool, killed: bool) -> None:
        """Its worker has let go of it, or is killed; what became of it is told next, if somebody wants to know."""

    @abstractmethod
    def over(self, task: OneTask, message: Finished | Failure, took_s: float) -> None:
        """Its worker has done it, or failed to."""

    @abstractmethod
    def too_long(self, task: OneTask) -> None:
        """It takes too long, and is about to be stopped."""

    @abstractmethod
    def died(self, task: OneTask) -> None:
        """Its worker has died, of itself or by somebody else."""
