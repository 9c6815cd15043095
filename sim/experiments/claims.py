"""What the thesis says of a figure, what we find, and whether the one agrees with the other: judged from data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sim.experiments.summary import Cost, Line

SERVER_NET, UNICAST, AGGREGATED, NET = "S-CN", "S-UN", "S-UN aggregated", "CN"
#: Growth up to which we call something flat, and nearly flat.
FLAT, NEARLY_FLAT = 1.25, 1.5


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence of the thesis (or one of our goals) beside what was measured."""

    subject: str  # of which placement or workload
    thesis: str
    ours: str
    holds: bool
    because: str = ""  # said only where it does not hold

    @property
    def verdict(self) -> str:
        """In words."""
        if self.holds:
            return "holds"
        return f"does not hold, because {self.because}" if self.because else "does not hold"


def curve(lines: Iterable[Line], placement: str, approach: str) -> list[Line]:
    """One line of a chart: by what the experiment varies."""
    mine = [line for line in lines if line.cost.placement == placement and line.cost.approach == approach]
    return sorted(mine, key=lambda line: line.x)


def cost_at(lines: Iterable[Line], placement: str, approach: str, x: float) -> Cost:
    """One point of it."""
    return next(line.cost for line in curve(lines, placement, approach) if line.x == x)


def placements_of(lines: Iterable[Line]) -> list[str]:
    """Placements in the order of the design, as far as they were measured."""
    order = ("can", "can-greedy", "tree-content", "tree-nearest", "tree-random")
    there = {line.cost.placement for line in lines}
    return [name for name in order if name in there] + sorted(there - set(order))


def growth(values: Sequence[float]) -> float:
    """From the least to the largest, as a factor."""
    low, high = min(values), max(values)
    return high / low if low > 0 else (1.0 if high == 0 else float("inf"))


def times(above: float, below: float) -> float:
    """How many times as much; whatever is above nothing is infinitely so."""
    return above / below if below > 0 else (1.0 if above == 0 else float("inf"))


def number(value: float) -> str:
    """Short enough for a table: 0.42, 8.1, 97, 12,345."""
    size = abs(value)
    if size >= 99.95 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def spread_of(cost: Cost) -> str:
    """Why a placement is dear, in one clause: over how many overlay edges a change goes."""
    return f"a change takes {number(cost.messages_changing)} frames of {number(_frame(cost))} bytes on the way"


def _frame(cost: Cost) -> float:
    return cost.bytes_changing / cost.messages_changing if cost.messages_changing else 0.0
