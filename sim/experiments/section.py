"""What an experiment gives to the report: a table on disk, a picture, some figures side by side, and its claims."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hullcast.sim.experiments.claims import AGGREGATED as BUNDLED
from hullcast.sim.experiments.claims import NET, SERVER_NET, UNICAST, Claim, curve, number, placements_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hullcast.sim.experiments.summary import Line


@dataclass(frozen=True, slots=True)
class Picture:
    """A file, and what it shows, for those who do not see it."""

    path: Path
    alt: str


@dataclass(frozen=True, slots=True)
class Section:
    """One figure of the report."""

    name: str
    title: str
    workload: str  # what was replayed, in a sentence
    thesis: str  # what Xie (2007) says, in a sentence
    claims: list[Claim]
    tables: list[Path] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    figures: list[list[list[str]]] = field(default_factory=list)  # tables for the reader; first rows name the columns
    notes: list[str] = field(default_factory=list)

    @property
    def told(self) -> str:
        """How many statements hold, in a clause; what could not be otherwise is not counted."""
        counted = [claim for claim in self.claims if claim.counted]
        given, unknown = (
            sum(claim.given for claim in self.claims),
            sum(bool(claim.unknown) for claim in self.claims),
        )
        parts = [f"{sum(claim.holds for claim in counted)} of {len(counted)} statements hold"] if counted else []
        parts += [f"{given} more by construction"] if given else []
        parts += [f"{unknown} not measurable here"] if unknown else []
        return "; ".join(parts)


def figures_of(lines: Sequence[Line], show: Callable[[Line], str]) -> list[list[str]]:
    """Bytes per event of each approach by placement, at the first point and at the last; all are in the Parquet."""
    approaches = (SERVER_NET, NET, UNICAST, BUNDLED)
    rows: list[list[str]] = []
    for placement in placements_of(lines):
        curves = {name: curve(lines, placement, name) for name in approaches}
        if not rows:
            ends = " and at ".join(dict.fromkeys(show(curves[SERVER_NET][i]) for i in (0, -1)))
            rows.append([f"bytes at {ends}", *approaches])
        cells = [", ".join(number(points[i].cost.bytes) for i in _ends(points)) for points in curves.values()]
        rows.append([placement, *cells])
    return rows


def _ends(points: Sequence[Line]) -> tuple[int, ...]:
    return (0, len(points) - 1) if len(points) > 1 else (0,)


def bytes_along(lines: Sequence[Line], placement: str, approach: str) -> list[float]:
    """Bytes per event along a line of the chart."""
    return [line.cost.bytes for line in curve(lines, placement, approach)]
