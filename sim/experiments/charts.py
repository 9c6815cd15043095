"""Charts of the traffic experiments as PNG files: one panel a placement, one line an approach, named where it ends."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.goals import short
from hullcast.sim.experiments.claims import AGGREGATED, NET, SERVER_NET, UNICAST, curve, placements_of
from hullcast.sim.experiments.labels import name_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hullcast.sim.experiments.summary import Line, Stress

# Colours that stay apart for colour-blind readers (Okabe and Ito), and a mark each for those who print in grey.
STYLES = {
    SERVER_NET: ("#009E73", "o", "S-CN"),
    NET: ("#0072B2", "s", "CN"),
    UNICAST: ("#D55E00", "^", "S-UN"),
    AGGREGATED: ("#CC79A7", "v", "S-UN aggr."),
}
GREY, INK = "#8a8a8a", "#333333"
TITLES = {
    "can": "CAN, zone owners are gateways",
    "can-greedy": "CAN, entered neighbour by neighbour",
    "tree-content": "tree, gateways by content",
    "tree-nearest": "tree, nearest gateway",
    "tree-random": "tree, random gateway",
}
DPI, PANEL = 130, (3.7, 3.3)
LEFT = 0.8  # where an axis of whole numbers begins


def pyplot() -> Any:
    """Matplotlib without a window."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plot

    plot.rcParams.update({"font.size": 9.5, "axes.edgecolor": GREY, "text.color": INK, "axes.labelcolor": INK})
    return plot


def draw_curves(
    rows: Sequence[tuple[str, Sequence[Line]]],
    path: Path,
    *,
    title: str,
    x_label: str,
    y_label: str,
    value: Callable[[Line], float],
    x: Callable[[Line], float] = lambda line: line.x,
    x_log: bool = False,
    x_format: Callable[[float], str] = short,
    goal: tuple[float, str] | None = None,
    source: str = "",
    leave_out: Sequence[str] = ("can-greedy",),
) -> Path:
    """A row of panels for each workload: `value` against `x`, both axes shared, y logarithmic; below all its source."""
    plot = pyplot()
    columns = [name for name in placements_of([line for _, lines in rows for line in lines]) if name not in leave_out]
    size = (PANEL[0] * len(columns), PANEL[1] * len(rows) + 0.7)
    figure, grid = plot.subplots(
        len(rows), len(columns), figsize=size, dpi=DPI, sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for i, (name, lines) in enumerate(rows):
        for j, placement in enumerate(columns):
            axes = grid[i][j]
            _curves(axes, lines, placement, x, value, greedy="can-greedy" in leave_out)
            if i == 0:
                axes.set_title(TITLES.get(placement, placement), fontsize=10, color=INK)
            if goal is not None:
                _goal(axes, *goal, told=j == len(columns) - 1)
        grid[i][0].set_ylabel(f"{name}\n{y_label}" if name else y_label)
    for axes in grid[-1]:
        axes.set_xlabel(x_label)
    _scales(grid, [x(line) for _, lines in rows for line in lines], x_log, x_format)
    figure.suptitle(title, fontsize=12, color=INK)
    if source:
        figure.supxlabel(fill(source, 50 * len(columns)), fontsize=7.5, color=GREY)
    _name_lines(figure, grid)
    return save(plot, figure, path)


def _curves(
    axes: Any,
    lines: Sequence[Line],
    placement: str,
    x: Callable[[Line], float],
    value: Callable[[Line], float],
    *,
    greedy: bool,
) -> None:
    for approach, (colour, mark, name) in STYLES.items():
        points = sorted((x(line), value(line)) for line in curve(lines, placement, approach))
        if points:
            axes.plot(*zip(*points, strict=True), marker=mark, ms=4, color=colour, lw=1.6, label=name)
    if placement == "can" and greedy:
        points = sorted((x(line), value(line)) for line in curve(lines, "can-greedy", SERVER_NET))
        if points:
            style = {"marker": "o", "ms": 3, "color": STYLES[SERVER_NET][0], "lw": 1.0, "ls": "--"}
            axes.plot(*zip(*points, strict=True), label="S-CN, greedy", **style)


def _scales(grid: Any, xs: Sequence[float], x_log: bool, x_format: Callable[[float], str]) -> None:
    axes = grid[0][0]
    axes.set_yscale("log")
    if x_log:
        axes.set_xscale("log")
        low, high = min(xs), max(xs)
        axes.set_xlim(low * (low / high) ** 0.06, high * (high / low) ** 0.42)
    else:
        low, high = min(xs), max(xs)
        axes.set_xlim(low - 0.05 * (high - low), high + 0.42 * (high - low))
        ticks = sorted(set(xs))
        axes.set_xticks(ticks if len(ticks) <= 5 else ticks[:: -(-len(ticks) // 5)])
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.5, high * 1.5)
    for one in grid.flat:
        one.xaxis.set_major_formatter(lambda value, _: x_format(value))
        one.yaxis.set_major_formatter(lambda value, _: short(value))
        one.grid(alpha=0.22, lw=0.6)
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(colors=INK, labelsize=8.5)


def _goal(axes: Any, level: float, words: str, *, told: bool) -> None:
    axes.axhline(level, color=GREY, ls=":", lw=1.2)
    if told:
        axes.annotate(
            words, (0.985, level), xycoords=("axes fraction", "data"), xytext=(0, -3), textcoords="offset points",
            fontsize=8, color=GREY, va="top", ha="right", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )  # fmt: skip


def _name_lines(figure: Any, grid: Any) -> None:
    """Each line's name beside it, when all else has its place."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the panels stay where they are, and layout is not done once more for the names
    for axes in grid.flat:
        axes.autoscale(False)
        name_lines(axes)


def draw_stress(stress: Sequence[Stress], path: Path, *, title: str, goal: float, fanout: int) -> Path:
    """For each placement, which share of the events has at least a certain node stress: both axes logarithmic.

    `fanout` is told above trees: no broker of one sends more frames of S-CN or CN than it has children.
    """
    plot = pyplot()
    there = {entry.placement for entry in stress}
    columns = [name for name in TITLES if name in there and name != "can-greedy"]
    size = (PANEL[0] * len(columns), PANEL[1] + 0.7)
    figure, grid = plot.subplots(
        1, len(columns), figsize=size, dpi=DPI, sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for axes, placement in zip(grid[0], columns, strict=True):
        for approach, (colour, _, name) in STYLES.items():
            values, share = at_least(stress, placement, approach)
            if len(values):
                axes.plot(*stairs(values, share), color=colour, lw=1.6, label=name)
        axes.axvline(goal, color=GREY, ls=":", lw=1.2)
        limited = f", fanout {fanout}" if placement.startswith("tree") else ""
        axes.set_title(TITLES[placement] + limited, fontsize=10, color=INK)
        axes.set_xlabel("frames that one broker sends for an event")
    grid[0][0].set_ylabel("share of events with at least so many")
    first = grid[0][0]
    first.set_xscale("log")
    first.set_yscale("log")
    first.set_xlim(LEFT, 3 * first.get_xlim()[1])
    first.set_ylim(first.get_ylim()[0] / 2, 2)
    first.annotate(f"goal: below {goal:g}", (goal, 0.96), xycoords=("data", "axes fraction"), xytext=(4, 0),
                   textcoords="offset points", fontsize=8, color=GREY)  # fmt: skip
    for axes in grid[0]:
        axes.xaxis.set_major_formatter(lambda value, _: short(value))
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        axes.grid(alpha=0.22, lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title, fontsize=12, color=INK)
    _name_lines(figure, grid)
    return save(plot, figure, path)


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


def save(plot: Any, figure: Any, path: Path) -> Path:
    """Write the picture and forget it."""
    try:
        figure.savefig(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    finally:
        plot.close(figure)
    return path
