"""Measured selectivity and cost of the operators of a path, and the progress chart they give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.broker.streams.chart import Chart

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Seconds of a window.
WINDOW_S = 1.0
#: Units that an operator must have seen before it is judged; with fewer, its counts go on into the next window.
ENOUGH = 32.0
#: The least that an operator is believed to take for a unit, in seconds: clocks are coarser than that.
LEAST_COST = 1e-9
#: What an operator takes for a unit before it was measured.
FIRST_COST = 1e-6
#: An operator that let nothing pass is believed to let pass half a unit of all that it saw: what comes behind it would
#: have no priority at all otherwise.
HALF_UNIT = 0.5


@dataclass(slots=True)
class OperatorMeasure:
    """What is known of one operator: as of the last window that said something, and what this window has so far."""

    selectivity: float
    cost: float  # seconds for a unit of its input
    taken: float = 0.0
    given: float = 0.0
    seconds: float = 0.0

    def ran(self, taken: float, given: float, seconds: float) -> None:
        """It took so many units, made so many of them, and needed so long."""
        self.taken += taken
        self.given += given
        self.seconds += seconds

    def settle(self) -> bool:
        """Believe what this window says, if it says enough; whether it does."""
        if self.taken < ENOUGH:
            return False
        self.selectivity = max(self.given, HALF_UNIT) / self.taken
        self.cost = max(self.seconds / self.taken, LEAST_COST)
        self.taken = self.given = self.seconds = 0.0
        return True


class PathMeasures:
    """Measures of the operators of one path, window by window.

    The chart is that of the last window, as in Babcock et al. (2003): a path whose data change is judged by what they
    are now. An operator that saw too little keeps what it was believed to be, and its counts, until it has seen enough.

    M1  The chart holds only of what has been settled at the end of a window; it never changes within one.
    """

    def __init__(self, guessed: Sequence[tuple[float, float]], now: float, window_s: float = WINDOW_S) -> None:
        """`guessed`: by operator its selectivity and its cost, until they are measured."""
        self.operators = [OperatorMeasure(selectivity, max(cost, LEAST_COST)) for selectivity, cost in guessed]
        self.chart = self._charted()
        self._window_s, self._ends = window_s, now + window_s

    @classmethod
    def unknown(cls, operators: int, now: float, window_s: float = WINDOW_S) -> PathMeasures:
        """Of operators of which nothing is known: all alike, and all pass."""
        return cls([(1.0, FIRST_COST)] * operators, now, window_s)

    def ran(self, place: int, taken: float, given: float, seconds: float) -> None:
        """As `OperatorMeasure.ran`, of one of them."""
        self.operators[place].ran(taken, given, seconds)

    def rebuilt(self, now: float) -> bool:
        """End the window if it is over; whether the chart is a new one."""
        if now < self._ends:
            return False
        self._ends = now + self._window_s
        settled = [operator.settle() for operator in self.operators]
        if not any(settled):
            return False
        before, self.chart = self.chart, self._charted()
        return self.chart != before

    def _charted(self) -> Chart:
        return Chart.of(
            [operator.selectivity for operator in self.operators], [operator.cost for operator in self.operators]
        )
