"""What Xie (2007) says of a figure, what we find, and whether the one agrees with the other: judged from data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hullcast.sim.experiments.summary import Cost, Line

SERVER_NET, UNICAST, AGGREGATED, NET = "S-CN", "S-UN", "S-UN aggregated", "CN"
#: Growth up to which we call something flat, and nearly flat.
FLAT, NEARLY_FLAT = 1.25, 1.5
#: Gateways by content: what the goals speak of.
BY_CONTENT = ("can", "tree-content")
#: Why some statements could not fail, and why some do.
FLOODS = "a CAN sends to all zones that a message meets, whether or not a subscription there is affected"
DEAR = "a change takes many frames to reach all gateways with an affected subscription"
BY_X = "what CN sends depends on a row's x alone"


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement, of Xie (2007) or ours, beside what was measured."""

    subject: str  # the placement; empty where it is about the whole
    statement: str
    ours: str  # figures only: it stands in a cell
    holds: bool
    because: str = ""  # said only where it does not hold; the same for all placements it is true of
    detail: str = ""  # and what it comes to for this one
    workload: str = ""  # where a section has several
    construction: str = ""  # why it could not be otherwise: what holds for that reason is no finding
    unknown: str = ""  # why it cannot be judged

    @property
    def counted(self) -> bool:
        """Whether the verdict says something about the world."""
        return not self.unknown and not self.given

    @property
    def given(self) -> bool:
        """Whether it holds by construction."""
        return self.holds and not self.unknown and bool(self.construction)

    @property
    def verdict(self) -> str:
        """In words."""
        if self.unknown:
            return f"not measurable here: {self.unknown}"
        if self.given:
            return f"by construction: {self.construction}"
        if self.holds:
            return "holds"
        detail = f" ({self.detail})" if self.detail else ""
        return f"does not hold, because {self.because}{detail}" if self.because else "does not hold"


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
    """How dear a placement is: over how many overlay edges a change goes."""
    return f"{number(cost.messages_changing)} frames of {number(_frame(cost))} bytes"


def _frame(cost: Cost) -> float:
    return cost.bytes_changing / cost.messages_changing if cost.messages_changing else 0.0


def factor(ratio: float) -> str:
    """How many times, short enough for a table: 0.72x, 8.2x, 31x, 1,087x."""
    if ratio >= 1.095:
        return f"{ratio:,.0f}x" if ratio >= 19.95 else f"{ratio:.1f}x"
    return f"{ratio:.3g}x" if ratio > 0.9 else f"{ratio:.2g}x"  # near 1 it matters on which side


def span(ratios: Sequence[float]) -> str:
    """From the least to the largest, or the one they are all alike."""
    low, high = factor(min(ratios)), factor(max(ratios))
    return low if low == high else f"{low} to {high}"


def spanned(values: Sequence[float]) -> str:
    """The same for figures that are no factors."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"
