"""Charts of the traffic experiments: one panel a placement, one line an approach, named where it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from hullcast.sim.experiments.traffic.judging import AGGREGATED, NET, SERVER_NET, UNICAST, curve, placements_of
from hullcast.sim.experiments.traffic.networks import Draw
from hullcast.sim.experiments.traffic.summary import Stress, TrafficLine
from hullcast.sim.output.charts import (
    BLUE,
    DPI,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PINK,
    BandCurve,
    Panel,
    draw_panels,
    finish,
    format_axes,
    panels,
    pyplot,
    save,
)
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
    grid = []
    for i, (name, lines) in enumerate(rows):
        grid.append(
            [
                Panel(
                    TITLES.get(placement, placement) if i == 0 else "",
                    _curves(lines, placement, x, value),
                    (f"{fill(name, 32)}\n{y_label}" if name else y_label) if j == 0 else "",
                    (goal[0], goal[1] if j == len(columns) - 1 else "") if goal is not None else None,
                )
                for j, placement in enumerate(columns)
            ]
        )
    return draw_panels(grid, path, title=title, x_label=x_label, x_log=x_log, x_format=x_format, source=source)


def _curves(
    lines: Sequence[TrafficLine],
    placement: str,
    x: Callable[[TrafficLine], float],
    value: Callable[[TrafficLine], float],
) -> list[BandCurve]:
    """Each approach; with the CAN also S-CN as it is where rectangles enter greedily, if that was measured."""

    def points(of: str, approach: str) -> list[tuple[float, list[float]]]:
        found: dict[float, list[float]] = {}
        for line in curve(lines, of, approach):
            found.setdefault(x(line), []).append(value(line))
        return list(found.items())

    curves = [BandCurve(name, points(placement, of), colour, mark) for of, (colour, mark, name) in STYLES.items()]
    if placement == "can":
        curves.append(BandCurve("S-CN, greedy", points("can-greedy", SERVER_NET), GREEN, "o", thin=True))
    return curves


def draw_servers(draws: Sequence[Draw], path: Path) -> Path:
    """For each draw how far its brokers are from all others, as a line of quantiles, and where the server is on it."""
    figure, axes = pyplot().subplots(figsize=(8.0, 1.6 + 0.34 * len(draws)), dpi=DPI, layout="constrained")
    for row, draw in enumerate(draws):
        low, q1, middle, q3, high = draw.quantiles
        axes.plot((low, high), (row, row), color="#dddddd", lw=2, zorder=1)
        axes.plot((q1, q3), (row, row), color=GREY, lw=6, solid_capstyle="butt", zorder=2)
        axes.plot(middle, row, "|", color=INK, ms=12, zorder=3)
        axes.plot(draw.distance, row, "o", color=ORANGE, ms=8, zorder=4)
        axes.annotate(
            f"{draw.rank:.0%}", (draw.distance, row), xytext=(0, 7), textcoords="offset points", ha="center",
            fontsize=8, color=ORANGE,
        )  # fmt: skip
    axes.set_yticks(range(len(draws)), [f"seed {draw.seed}" for draw in draws])
    axes.set_ylim(len(draws) - 0.4, -0.7)
    axes.set_xlabel("mean latency to all brokers")
    axes.set_title(
        "Where the server is (dot): the share of brokers that are nearer to all others than it is", fontsize=10
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(colors=INK, length=0)
    told = "Grey: all brokers of the draw, from the least to the greatest, with quartiles and median"
    figure.supxlabel(told, fontsize=7.5, color=GREY)
    return save(figure, path)


def draw_stress(stress: Sequence[Stress], path: Path, *, title: str, goal: float, fanout: int) -> Path:
    """For each placement, which share of the events has at least a certain node stress: both axes logarithmic.

    `fanout` is told above trees: no broker of one sends more frames of S-CN or CN than it has children.
    """
    there = {entry.placement for entry in stress}
    columns = [name for name in TITLES if name in there and name != "can-greedy"]
    figure, grid = panels(1, len(columns))
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
    format_axes(grid, short, lambda value: f"{100 * value:g} %")
    return finish(figure, grid, title, path)


def stairs(values: Any, share: Any) -> tuple[Any, Any]:
    """Corners of the steps, from the left edge on: all that have at least the least value have at least 1."""
    return np.repeat(np.concatenate(([LEFT], values)), 2)[1:-1], np.repeat(share, 2)


def at_least(stress: Sequence[Stress], placement: str, approach: str) -> tuple[Any, Any]:
    """Values of node stress above 0, rising, and the share of all events of all draws that has at least each."""
    mine: dict[int, int] = {}
    for entry in stress:
        if entry.placement == placement and entry.approach == approach:
            mine[entry.node_stress] = mine.get(entry.node_stress, 0) + entry.events
    if not mine:
        return np.empty(0), np.empty(0)
    values, counts = np.array(sorted(mine.items()), np.float64).T
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
