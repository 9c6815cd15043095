"""Charts of the traffic experiments: one panel a placement, one line an approach, named where it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from hullcast.sim.experiments.traffic.judging import AGGREGATED, NET, SERVER_NET, UNICAST, curve, placements_of
from hullcast.sim.experiments.traffic.summary import Stress, TrafficLine
from hullcast.sim.output.charts import BLUE, DPI, GREEN, GREY, INK, ORANGE, PINK, pyplot, save
from hullcast.sim.output.labels import name_lines
from hullcast.sim.output.text import short

# A mark each, for readers who print in grey.
STYLES = {
    SERVER_NET: (GREEN, "o", "S-CN"),
    NET: (BLUE, "s", "CN"),
    UNICAST: (ORANGE, "^", "S-UN"),
    AGGREGATED: (PINK, "v", "S-UN aggr."),
}
TITLES = {
    "can": "CAN, zone owners are gateways",
    "can-greedy": "CAN, entered neighbour by neighbour",
    "tree-content": "tree, gateways by content",
    "tree-nearest": "tree, nearest gateway",
    "tree-random": "tree, random gateway",
}
PANEL = (3.7, 3.3)
LEFT = 0.8  # where an axis of whole numbers begins


def draw_curves(
    rows: Sequence[tuple[str, Sequence[TrafficLine]]],
    path: Path,
    *,
    title: str,
    x_label: str,
    y_label: str,
    value: Callable[[TrafficLine], float],
    x: Callable[[TrafficLine], float] = lambda line: line.x,
    x_log: bool = False,
    x_format: Callable[[float], str] = short,
    goal: tuple[float, str] | None = None,
    source: str = "",
) -> Path:
    """A row of panels for each workload: `value` against `x`, both axes shared, y logarithmic; below all its source."""
    columns = [name for name in placements_of([line for _, lines in rows for line in lines]) if name != "can-greedy"]
    figure, grid = _panels(len(rows), len(columns))
    for i, (name, lines) in enumerate(rows):
        for j, placement in enumerate(columns):
            axes = grid[i][j]
            _curves(axes, lines, placement, x, value)
            if i == 0:
                axes.set_title(TITLES.get(placement, placement), fontsize=10, color=INK)
            if goal is not None:
                _goal(axes, *goal, told=j == len(columns) - 1)
        grid[i][0].set_ylabel(f"{name}\n{y_label}" if name else y_label)
    for axes in grid[-1]:
        axes.set_xlabel(x_label)
    _scales(grid, [x(line) for _, lines in rows for line in lines], x_log)
    _formats(grid, x_format, short)
    for axes in grid.flat:
        axes.tick_params(colors=INK, labelsize=8.5)
    if source:
        figure.supxlabel(fill(source, 50 * len(columns)), fontsize=7.5, color=GREY)
    return _finish(figure, grid, title, path)


def _panels(rows: int, columns: int) -> tuple[Any, Any]:
    size, shared = (PANEL[0] * columns, PANEL[1] * rows + 0.7), {"sharex": True, "sharey": True, "squeeze": False}
    figure, grid = pyplot().subplots(rows, columns, figsize=size, dpi=DPI, layout="constrained", **shared)
    return figure, grid


def _formats(grid: Any, x_format: Callable[[float], str], y_format: Callable[[float], str]) -> None:
    for axes in grid.flat:
        axes.xaxis.set_major_formatter(lambda value, _: x_format(value))
        axes.yaxis.set_major_formatter(lambda value, _: y_format(value))
        axes.grid(alpha=0.22, lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)


def _finish(figure: Any, grid: Any, title: str, path: Path) -> Path:
    """With each line's name beside it, when all else has its place."""
    figure.suptitle(title, fontsize=12, color=INK)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the panels stay where they are, and layout is not done once more for the names
    for axes in grid.flat:
        axes.autoscale(False)
        name_lines(axes)
    return save(figure, path)


def _curves(
    axes: Any,
    lines: Sequence[TrafficLine],
    placement: str,
    x: Callable[[TrafficLine], float],
    value: Callable[[TrafficLine], float],
) -> None:
    """Each approach; with the CAN also S-CN as it is where rectangles enter greedily, if that was measured."""

    def plot(of: str, approach: str, **style: Any) -> None:
        points = sorted((x(line), value(line)) for line in curve(lines, of, approach))
        if points:
            axes.plot(*zip(*points, strict=True), **style)

    for approach, (colour, mark, name) in STYLES.items():
        plot(placement, approach, marker=mark, ms=4, color=colour, lw=1.6, label=name)
    if placement == "can":
        plot("can-greedy", SERVER_NET, marker="o", ms=3, color=GREEN, lw=1.0, ls="--", label="S-CN, greedy")


def _scales(grid: Any, xs: Sequence[float], x_log: bool) -> None:
    """Room for the names at the right."""
    axes, low, high = grid[0][0], min(xs), max(xs)
    axes.set_yscale("log")
    if x_log:
        axes.set_xscale("log")
        axes.set_xlim(low * (low / high) ** 0.06, high * (high / low) ** 0.42)
    else:
        axes.set_xlim(low - 0.05 * (high - low), high + 0.42 * (high - low))
        ticks = sorted(set(xs))
        axes.set_xticks(ticks if len(ticks) <= 5 else ticks[:: -(-len(ticks) // 5)])
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.5, high * 1.5)


def _goal(axes: Any, level: float, words: str, *, told: bool) -> None:
    axes.axhline(level, color=GREY, ls=":", lw=1.2)
    if told:
        axes.annotate(
            words, (0.985, level), xycoords=("axes fraction", "data"), xytext=(0, -3), textcoords="offset points",
            fontsize=8, color=GREY, va="top", ha="right", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )  # fmt: skip


def draw_stress(stress: Sequence[Stress], path: Path, *, title: str, goal: float, fanout: int) -> Path:
    """For each placement, which share of the events has at least a certain node stress: both axes logarithmic.

    `fanout` is told above trees: no broker of one sends more frames of S-CN or CN than it has children.
    """
    there = {entry.placement for entry in stress}
    columns = [name for name in TITLES if name in there and name != "can-greedy"]
    figure, grid = _panels(1, len(columns))
    for axes, placement in zip(grid[0], columns, strict=True):
        for approach, (colour, _, name) in STYLES.items():
            values, share = at_least(stress, placement, approach)
            if len(values):
                axes.plot(*stairs(values, share), color=colour, lw=1.6, label=name)
        axes.axvline(goal, color=GREY, ls=":", lw=1.2)
        limited = f", fanout {fanout}" if placement.startswith("tree") else ""
        axes.set_title(TITLES[placement] + limited, fontsize=10, color=INK)
        axes.set_xlabel("frames that one broker sends for an event")
    first = grid[0][0]
    first.set(ylabel="share of events with at least so many", xscale="log", yscale="log")
    first.set_xlim(LEFT, 3 * first.get_xlim()[1])
    first.set_ylim(first.get_ylim()[0] / 2, 2)
    first.annotate(f"goal: below {goal:g}", (goal, 0.96), xycoords=("data", "axes fraction"), xytext=(4, 0),
                   textcoords="offset points", fontsize=8, color=GREY)  # fmt: skip
    _formats(grid, short, lambda value: f"{100 * value:g} %")
    return _finish(figure, grid, title, path)


def stairs(values: Any, share: Any) -> tuple[Any, Any]:
    """Corners of the steps, from the left edge on: all that have at least the least value have at least 1."""
    return np.repeat(np.concatenate(([LEFT], values)), 2)[1:-1], np.repeat(share, 2)


def at_least(stress: Sequence[Stress], placement: str, approach: str) -> tuple[Any, Any]:
    """Values of node stress above 0, rising, and the share of all events that has at least each."""
    mine = sorted(
        (entry.node_stress, entry.events)
        for entry in stress
        if entry.placement == placement and entry.approach == approach
    )
    if not mine:
        return np.empty(0), np.empty(0)
    values, counts = np.array(mine, np.float64).T
    share = counts[::-1].cumsum()[::-1] / counts.sum()
    return values[values > 0], share[values > 0]


#: Whose figures stand above the dots; the others' stand below, so that neighbours do not overlap.
ABOVE = (SERVER_NET, UNICAST)


def draw_summary(lines: Sequence[TrafficLine], path: Path) -> Path:
    """Dots on logarithmic scales, one row a placement: bytes per event on the left, node stress on the right."""
    placements = placements_of(lines)[::-1]
    size = (11.0, 1.5 + 0.62 * len(placements))
    figure, (left, right) = pyplot().subplots(1, 2, figsize=size, dpi=DPI, sharey=True, layout="constrained")
    _dots(left, lines, placements, lambda line: line.cost.bytes)
    _dots(right, lines, placements, lambda line: line.cost.node_stress)
    left.set_xlabel("bytes between brokers per event (log)")
    right.set_xlabel("mean node stress: frames of the busiest broker (log)")
    left.set_yticks(range(len(placements)), [TITLES.get(name, name) for name in placements])
    left.set_ylim(-0.6, len(placements) - 0.4)
    figure.legend(handles=_handles(lines), loc="outside upper center", ncols=4, frameon=False)
    return save(figure, path)


def _dots(
    axes: Any, lines: Sequence[TrafficLine], placements: Sequence[str], value: Callable[[TrafficLine], float]
) -> None:
    for row, placement in enumerate(placements):
        mine = [line for line in lines if line.cost.placement == placement]
        values = [value(line) for line in mine if value(line) > 0]
        if values:
            axes.plot((min(values), max(values)), (row, row), color="#dddddd", lw=2, zorder=1)
        for line in mine:
            if value(line) > 0:
                colour, mark, _ = STYLES[line.cost.approach]
                axes.plot(value(line), row, mark, color=colour, ms=8, zorder=2)
                axes.annotate(
                    short(value(line)), (value(line), row), xytext=(0, 8 if line.cost.approach in ABOVE else -14),
                    textcoords="offset points", ha="center", fontsize=8, color=colour,
                )  # fmt: skip
    if axes.lines:
        axes.set_xscale("log")
    else:  # a logarithmic scale has no place for 0
        axes.set_xlim(0, 1)
        axes.text(0.5, 0.5, "0 everywhere", transform=axes.transAxes, ha="center", va="center", color=INK)
    axes.margins(x=0.1)
    axes.xaxis.set_major_formatter(lambda at, _: short(at))
    axes.grid(alpha=0.22, axis="x")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(colors=INK, length=0)


def _handles(lines: Sequence[TrafficLine]) -> list[Any]:
    """Of every approach that was replayed, also of one that costs nothing and so has no dot."""
    replayed = {line.cost.approach for line in lines}
    styles = [style for approach, style in STYLES.items() if approach in replayed]
    return [
        pyplot().Line2D([], [], color=colour, marker=mark, ls="", ms=8, label=name) for colour, mark, name in styles
    ]
