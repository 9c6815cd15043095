"""Figures 4.7 to 4.13 of Xie (2007), as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hullcast.sim.bench.joins.sections import (
    BandSection,
    HistogramErrors,
    HotspotSection,
    JoinChart,
    MixedLine,
    UpkeepSection,
)
from hullcast.sim.output.charts import BLUE, DPI, GREEN, GREY, INK, ORANGE, PINK, finish, pyplot, save
from hullcast.sim.output.text import number, short

#: A colour and a mark for each plan, the same in all figures.
_STYLE = {
    "SSI": (GREEN, "o"),
    "BJ-SSI": (GREEN, "o"),
    "Hotspot": (GREEN, "o"),
    "SelectFirst": (ORANGE, "^"),
    "BJ-MJ": (ORANGE, "^"),
    "JoinFirst-E": (BLUE, "s"),
    "BJ-DOuter": (BLUE, "s"),
    "JoinFirst-S": (PINK, "v"),
    "BJ-QOuter": (PINK, "v"),
    "NAIVE": (GREY, "x"),
}


def draw_selects(charts: tuple[JoinChart, ...], path: Path) -> Path:
    """Figures 4.7 and 4.8."""
    return _rates(charts, "Xie (2007), Figures 4.7 and 4.8: select-joins, rows of R a second", path)


def draw_bands(section: BandSection, path: Path) -> Path:
    """Figure 4.10."""
    charts = (section.by_queries, section.by_groups)
    return _rates(charts, "Xie (2007), Figure 4.10: band joins, rows of R a second", path)


def _axes(count: int, title_height: float = 0.6) -> tuple[Any, Any]:
    columns = min(2, count)
    rows = -(-count // columns)
    size = (5.4 * columns, 3.9 * rows + title_height)
    figure, grid = pyplot().subplots(rows, columns, figsize=size, dpi=DPI, layout="constrained", squeeze=False)
    return figure, grid


def _finish_axes(axes: Any) -> None:
    axes.grid(alpha=0.22, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=8.5)
    axes.minorticks_off()


def _place(x: float) -> str:
    return f"{100 * x:g}%" if x <= 1 else short(x)


def _rates(charts: Sequence[JoinChart], title: str, path: Path) -> Path:
    figure, grid = _axes(len(charts))
    for axes, chart in zip(grid.flat, charts, strict=True):
        for curve in chart.curves:
            colour, mark = _STYLE[curve.name]
            axes.plot(
                curve.xs, [1e6 / us for us in curve.us], marker=mark, color=colour, lw=1.6, ms=4, label=curve.name
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        xs = chart.curves[0].xs
        axes.set_xticks(xs, [_place(x) for x in xs])
        axes.set_xlim(xs[0] * (xs[0] / xs[-1]) ** 0.05, xs[-1] * (xs[-1] / xs[0]) ** 0.36)
        bottom, top = axes.get_ylim()
        axes.set_ylim(bottom / 1.6, top * 1.6)
        axes.yaxis.set_major_formatter(lambda value, _: short(value))
        axes.set_xlabel(chart.x_label)
        axes.set_ylabel("rows a second")
        axes.set_title(f"{chart.key}: {chart.title}", fontsize=10, color=INK)
        _finish_axes(axes)
    return finish(figure, grid, title, path)


def draw_hotspots(section: HotspotSection, path: Path) -> Path:
    """Figure 4.9."""
    chart = section.chart
    figure, grid = _axes(1)
    axes = grid[0][0]
    for curve in chart.curves:
        colour, mark = _STYLE[curve.name]
        axes.plot(curve.xs, curve.us, marker=mark, color=colour, lw=1.6, ms=4, label=curve.name)
    xs = chart.curves[0].xs
    axes.set_xticks(xs, [_place(x) for x in xs])
    axes.set_xlim(xs[0] - 0.05, xs[-1] + 0.32)
    axes.set_ylim(0, 1.1 * max(us for curve in chart.curves for us in curve.us))
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel("microseconds an arriving row")
    axes.set_title(chart.title, fontsize=10, color=INK)
    _finish_axes(axes)
    return finish(figure, grid, "Xie (2007), Figure 4.9: hotspots", path)


def draw_upkeep(section: UpkeepSection, path: Path) -> Path:
    """Figure 4.11."""
    figure, grid = _axes(2, 0.3)
    ways = ((f"{section.batch:,} changes to a call", "batch_us"), ("one change to a call", "single_us"))
    for axes, (name, field) in zip(grid.flat, ways, strict=True):
        lines = section.lines[::-1]
        values = [getattr(line, field) for line in lines]
        colours = [GREEN if "MJ" not in line.name and "DOuter" not in line.name else GREY for line in lines]
        axes.barh([line.name.replace(" as the ", "\nas the ") for line in lines], values, color=colours, height=0.6)
        for place, value in enumerate(values):
            axes.annotate(
                number(value), (value, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9
            )
        axes.set_xlim(0, 1.18 * max(values))
        axes.set_xlabel("microseconds a change")
        axes.set_title(name, fontsize=10, color=INK)
        _finish_axes(axes)
    figure.suptitle(f"Xie (2007), Figure 4.11: upkeep, from {section.queries:,} bands", fontsize=12, color=INK)
    return save(figure, path)


def draw_errors(errors: HistogramErrors, path: Path) -> Path:
    """Figure 4.12."""
    figure, grid = _axes(1)
    axes = grid.flat[0]
    for name, values, colour, mark in (
        ("ours", errors.ours, GREEN, "o"),
        ("equal width", errors.equal, ORANGE, "^"),
        ("optimal, of sampled places", errors.optimal, BLUE, "s"),
    ):
        axes.plot(
            errors.buckets, [100 * value for value in values], marker=mark, color=colour, lw=1.6, ms=4, label=name
        )
    first, last = errors.buckets[0], errors.buckets[-1]
    axes.set_xticks(errors.buckets)
    axes.set_xlim(first - 0.05 * (last - first), last + 0.55 * (last - first))
    axes.set_ylim(0, None)
    axes.set_xlabel("buckets")
    axes.set_ylabel("mean relative error, %")
    axes.set_title(f"intervals in {errors.tau} groups", fontsize=9.5, color=INK)
    _finish_axes(axes)
    return finish(figure, grid, "Xie (2007), Figure 4.12: interval histograms", path)


def draw_mixed(lines: Sequence[MixedLine], path: Path) -> Path:
    """Figure 4.13."""
    figure, grid = _axes(len(lines), 0.3)
    for axes in list(grid.flat)[len(lines) :]:
        axes.set_visible(False)
    for axes, line in zip(grid.flat, lines, strict=False):
        names = list(line.us)[::-1]
        rates = [1e6 / line.us[name] for name in names]
        own = {"a plan per row": GREEN, "best in hindsight": GREY}
        axes.barh(names, rates, color=[own.get(name, BLUE) for name in names], height=0.65)
        for place, rate in enumerate(rates):
            axes.annotate(
                short(rate), (rate, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9
            )
        axes.set_xlim(0, 1.18 * max(rates))
        axes.xaxis.set_major_formatter(lambda value, _: short(value))
        axes.set_xlabel("rows a second")
        axes.set_title(f"{line.queries:,} queries, {line.rows:,} rows", fontsize=10, color=INK)
        _finish_axes(axes)
    figure.suptitle("Xie (2007), Figure 4.13: a plan per row, mixed workload", fontsize=12, color=INK)
    return save(figure, path)
