"""What an experiment gives to the report: a table on disk, a picture, some figures side by side, and its claims."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sim.experiments.claims import AGGREGATED as BUNDLED
from sim.experiments.claims import NET, SERVER_NET, UNICAST, Claim, curve, number, placements_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from sim.experiments.summary import Line


@dataclass(frozen=True, slots=True)
class Section:
    """One figure of the report."""

    name: str
    title: str
    workload: str  # what was replayed, in a sentence
    thesis: str  # what the thesis says, in a sentence
    claims: list[Claim]
    tables: list[Path] = field(default_factory=list)
    pictures: list[Path] = field(default_factory=list)
    figures: list[list[str]] = field(default_factory=list)  # a table for the reader; its first row names the columns
    notes: list[str] = field(default_factory=list)


def figures_of(lines: Sequence[Line], heading: str, show: Callable[[Line], str]) -> list[list[str]]:
    """Bytes per event of each approach by placement and by what was varied."""
    approaches = (SERVER_NET, NET, UNICAST, BUNDLED)
    rows = [[heading, "placement", *(f"{name}, bytes" for name in approaches), "CN / S-CN", "S-UN / S-CN"]]
    for x in sorted({line.x for line in lines}):
        for placement in placements_of(lines):
            found = {line.cost.approach: line for line in lines if line.x == x and line.cost.placement == placement}
            if not found:
                continue
            ours = found[SERVER_NET].cost.bytes
            ratios = [f"{found[name].cost.bytes / ours:,.0f}x" if ours else "" for name in (NET, UNICAST)]
            values = [number(found[name].cost.bytes) for name in approaches]
            rows.append([show(found[SERVER_NET]), placement, *values, *ratios])
    return rows


def bytes_along(lines: Sequence[Line], placement: str, approach: str) -> list[float]:
    """Bytes per event along a line of the chart."""
    return [line.cost.bytes for line in curve(lines, placement, approach)]
