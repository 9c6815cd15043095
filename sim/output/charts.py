"""Charts as PNG files: Matplotlib without a window, one set of colours, one way to write a file.

`draw_panels` draws what most studies need: panels side by side, in each some curves over one parameter, every curve the
median of the draws with a band around it, and named where it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from hullcast.network.wire.errors import UsageError
from hullcast.sim.output.labels import name_lines
from hullcast.sim.output.text import short

# Colours that stay apart for colour-blind readers (Okabe and Ito).
GREEN, ORANGE, BLUE, PINK = "#009E73", "#D55E00", "#0072B2", "#CC79A7"
GREY, INK = "#8a8a8a", "#333333"
DPI = 130
PANEL = (3.7, 3.3)
#: For curves that have no colour and mark of their own; a mark each, for readers who print in grey.
STYLES = ((GREEN, "o"), (ORANGE, "^"), (BLUE, "s"), (PINK, "v"), (INK, "D"), (GREY, "x"))
#: With so many draws the band leaves out a tenth at each end.
MANY = 10


def pyplot() -> Any:
    """Matplotlib's pyplot; UsageError if it is missing, so that a command can ask before it measures."""
    try:
        import matplotlib
    except ImportError:
        raise UsageError("charts need matplotlib; install it with: pip install 'hullcast[bench]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plot

    plot.rcParams.update({"font.size": 9.5, "axes.edgecolor": GREY, "text.color": INK, "axes.labelcolor": INK})
    return plot


@dataclass(frozen=True, slots=True)
class BandCurve:
    """A line of a chart: at each x the values of all draws."""

    label: str
    points: Sequence[tuple[float, Sequence[float]]]
    colour: str = ""
    mark: str = ""
    thin: bool = False  # dashed, beside the others


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    curves: Sequence[BandCurve]
    y_label: str = ""
    level: tuple[float, str] | None = None  # a dotted line, and what it means; no words: named in another panel


def draw_panels(
    rows: Sequence[Sequence[Panel]],
    path: Path,
    *,
    title: str,
    x_label: str,
    x_log: bool = False,
    x_format: Callable[[float], str] = short,
    y_log: bool = True,
    share_y: bool = True,
    source: str = "",
    bands: str = "",
) -> Path:
    """Rows of panels over one x axis; below all what the band is (`bands`, if not of draws), and where the chart comes
    from."""
    figure, grid = panels(len(rows), max(map(len, rows)), share_y=share_y)
    for axes_row, row in zip(grid, rows, strict=True):
        for axes, panel in zip(axes_row, row, strict=True):
            for place, curve in enumerate(panel.curves):
                _plot(axes, curve, STYLES[place % len(STYLES)])
            if panel.title:
                axes.set_title(panel.title, fontsize=10, color=INK)
            if panel.y_label:
                axes.set_ylabel(panel.y_label)
            if panel.level is not None:
                _level(axes, *panel.level)
    for axes in grid[-1]:
        axes.set_xlabel(x_label)
    curves = [curve for row in rows for panel in row for curve in panel.curves]
    _scales(grid, [x for curve in curves for x, _ in curve.points], x_log, y_log, share_y)
    format_axes(grid, x_format, short)
    below = ". ".join(filter(None, (bands or band_words(curves), source)))
    if below:
        figure.supxlabel(fill(below, 50 * max(map(len, rows))), fontsize=7.5, color=GREY)
    return finish(figure, grid, title, path)


def band_of(values: Sequence[float]) -> tuple[float, float, float]:
    """From where to where the draws go, and their median between: (low, median, high)."""
    low, high = (10, 90) if len(values) >= MANY else (0, 100)
    return tuple(np.percentile(values, (low, 50, high)).tolist())


def band_words(curves: Sequence[BandCurve]) -> str:
    """What lines and bands are, where there are several draws."""
    draws = max((len(values) for curve in curves for _, values in curve.points), default=0)
    if draws < 2:
        return ""
    ends = "the 10th to the 90th percentile" if draws >= MANY else "the least to the greatest"
    return f"Lines: median of {draws} draws; bands: from {ends} of them"


def _plot(axes: Any, curve: BandCurve, style: tuple[str, str]) -> None:
    if not curve.points:
        return
    colour, mark = curve.colour or style[0], curve.mark or style[1]
    points = sorted((x, *band_of(values)) for x, values in curve.points)
    x, low, middle, high = map(list, zip(*points, strict=True))
    line = {"lw": 1.0, "ls": "--", "ms": 3} if curve.thin else {"lw": 1.6, "ms": 4}
    axes.plot(x, middle, marker=mark, color=colour, label=curve.label, **line)
    if low != high:
        axes.fill_between(x, low, high, color=colour, alpha=0.18, lw=0)


def panels(rows: int, columns: int, *, share_x: bool = True, share_y: bool = True) -> tuple[Any, Any]:
    """A figure, and a grid of axes that share their x and y."""
    size, shared = (PANEL[0] * columns, PANEL[1] * rows + 0.7), {"sharex": share_x, "sharey": share_y, "squeeze": False}
    figure, grid = pyplot().subplots(rows, columns, figsize=size, dpi=DPI, layout="constrained", **shared)
    return figure, grid


def format_axes(grid: Any, x_format: Callable[[float], str], y_format: Callable[[float], str]) -> None:
    """Figures as we write them, and a light grid."""
    for axes in grid.flat:
        axes.xaxis.set_major_formatter(lambda value, _: x_format(value))
        axes.yaxis.set_major_formatter(lambda value, _: y_format(value))
        axes.grid(alpha=0.22, lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK, labelsize=8.5, which="both")
        for axis, form in ((axes.xaxis, x_format), (axes.yaxis, y_format)):
            if axis.get_scale() == "log":
                axis.set_minor_formatter(_between(axis, form))


def _between(axis: Any, form: Callable[[float], str]) -> Callable[[float, int], str]:
    """Names for 2 and 5 between the powers of ten, where the axis is so short that there is room."""

    def name(value: float, _: int) -> str:
        low, high = axis.get_view_interval()
        return form(value) if high < 1_000 * low and f"{value:.0e}"[0] in "25" else ""

    return name


def _scales(grid: Any, xs: Sequence[float], x_log: bool, y_log: bool, share_y: bool) -> None:
    """Room for the names at the right."""
    first, low, high = grid[0][0], min(xs), max(xs)
    ticks = sorted(set(xs))
    if len(ticks) > 5:
        whole = [x for x in ticks if float(x).is_integer()]
        ticks = whole if 3 <= len(whole) <= 8 else ticks[:: -(-len(ticks) // 5)]
    if low == high:
        first.set_xticks(ticks)  # one point: no scale to speak of
    elif x_log:
        first.set_xscale("log")
        first.set_xlim(low * (low / high) ** 0.06, high * (high / low) ** 0.42)
        if all(float(x).is_integer() for x in xs):  # a parameter, rather than something measured
            first.set_xticks(sorted(set(xs)))
            first.set_xticks([], minor=True)
    else:
        first.set_xlim(low - 0.05 * (high - low), high + 0.42 * (high - low))
        first.set_xticks(ticks)
    for axes in [first] if share_y else grid.flat:
        if y_log:
            axes.set_yscale("log")
            bottom, top = axes.get_ylim()
            axes.set_ylim(bottom / 1.3, top * 1.3)
        else:
            axes.set_ylim(0.0, axes.get_ylim()[1] * 1.08)


def _level(axes: Any, level: float, words: str) -> None:
    axes.axhline(level, color=GREY, ls=":", lw=1.2, label="_level")
    if words:
        axes.annotate(
            words, (0.985, level), xycoords=("axes fraction", "data"), xytext=(0, -3), textcoords="offset points",
            fontsize=8, color=GREY, va="top", ha="right", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )  # fmt: skip


def finish(figure: Any, grid: Any, title: str, path: Path) -> Path:
    """Write the picture with each line's name beside it, when all else has its place."""
    figure.suptitle(title, fontsize=12, color=INK)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the panels stay where they are, and layout is not done once more for the names
    for axes in grid.flat:
        axes.autoscale(False)
        name_lines(axes)
    return save(figure, path)


def save(figure: Any, path: Path) -> Path:
    """Write the picture and forget it; without Matplotlib's version, so that equal pictures are equal files."""
    content = BytesIO()
    try:
        figure.savefig(content, format="png", metadata={"Software": None})
    finally:
        pyplot().close(figure)
    try:
        path.write_bytes(content.getvalue())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    return path
