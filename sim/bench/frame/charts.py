"""Bars side by side: the picture of most sections, a panel for each figure and a bar for each way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from hullcast.sim.output.charts import BLUE, DPI, GREY, INK, pyplot, save
from hullcast.sim.output.text import number, short


@dataclass(frozen=True, slots=True)
class Bars:
    """One panel: a value for each name; where there is none (nan) there is no bar."""

    title: str
    values: Sequence[float]
    colour: str = BLUE
    log: bool = False
    goal: float | None = None  # a dotted line


def draw_bars(
    path: Path, title: str, names: Sequence[str], panels: Sequence[Bars], *, share_x: bool = False, room: int = 0
) -> Path:
    """All panels over the same names, from the top down; `room` for so many lines more."""
    size = (4.2 * len(panels) + 1.4, 0.42 * (len(names) + room) + 1.6)
    layout: dict[str, Any] = {"layout": "constrained", "sharey": True, "sharex": share_x, "squeeze": False}
    figure, grid = pyplot().subplots(1, len(panels), figsize=size, dpi=DPI, **layout)
    for axes, panel in zip(grid[0], panels, strict=True):
        _draw(axes, list(names), panel)
    if share_x:
        every = [value for panel in panels for value in panel.values if value > 0]
        grid[0][0].set_xlim(min(every) / 2, max(every) * 4)
    figure.suptitle(title, fontsize=12, color=INK)
    return save(figure, path)


def _draw(axes: Any, names: list[str], panel: Bars) -> None:
    shown = [0.0 if isnan(value) else value for value in panel.values]
    axes.barh(names[::-1], shown[::-1], color=panel.colour, height=0.62)
    for place, value in enumerate(list(panel.values)[::-1]):
        if not isnan(value):
            text = short(value) if value >= 1_000 else number(value)
            axes.annotate(text, (value, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5)
    most = max(shown, default=0.0) or 1.0
    if panel.log:
        axes.set_xscale("log")
        axes.set_xlim(min(value for value in shown if value > 0) / 2, most * 4)
    else:
        axes.set_xlim(0, 1.25 * most)
    if panel.goal is not None:
        axes.axvline(panel.goal, color=GREY, ls=":", lw=1.2)
        axes.set_xlim(right=max(axes.get_xlim()[1], 1.05 * panel.goal))
    axes.xaxis.set_major_formatter(lambda value, _: short(value))
    axes.set_title(panel.title, fontsize=10, color=INK)
    axes.grid(alpha=0.22, lw=0.6, axis="x")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=8.5)
    axes.minorticks_off()
