"""The sections of `hullcast bench warehouse` as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import Any

from hullcast.sim.bench.warehouse.live import PolicySection, PushSection
from hullcast.sim.bench.warehouse.loading import LoadingLine
from hullcast.sim.bench.warehouse.report import LOADED_S, WarehouseReport
from hullcast.sim.output.charts import BLUE, DPI, GREEN, GREY, INK, ORANGE, pyplot, save
from hullcast.sim.output.text import number, short


def draw_warehouse(report: WarehouseReport, folder: Path) -> list[Path]:
    """Write the figures that the report can fill; their paths."""
    written = []
    if report.loading is not None:
        written.append(_loading(report.loading, folder / "warehouse_loading.png"))
    if report.policies is not None:
        written.append(_policies(report.policies, folder / "warehouse_policies.png"))
    if report.push is not None:
        title = "from publish to event, by what the warehouse does"
        written.append(draw_push(report.push, title, folder / "warehouse_push.png"))
    return written


def axes_beside(columns: int, rows: int) -> tuple[Any, Any]:
    """A figure with so many charts side by side, for so many bars each."""
    size = (4.2 * columns + 1.4, 0.42 * rows + 1.6)
    figure, grid = pyplot().subplots(
        1, columns, figsize=size, dpi=DPI, layout="constrained", sharey=True, squeeze=False
    )
    return figure, grid[0]


def bars(
    axes: Any, names: Sequence[str], values: Sequence[float], colour: str, title: str, *, log: bool = False
) -> None:
    """Bars from the top down; where there is no value there is no bar."""
    shown = [0.0 if isnan(value) else value for value in values]
    axes.barh(list(names)[::-1], shown[::-1], color=colour, height=0.62)
    for place, value in enumerate(list(values)[::-1]):
        if not isnan(value):
            text = short(value) if value >= 1_000 else number(value)
            axes.annotate(text, (value, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5)
    most = max(shown, default=0.0) or 1.0
    if log:
        axes.set_xscale("log")
        axes.set_xlim(min(value for value in shown if value > 0) / 2, most * 4)
    else:
        axes.set_xlim(0, 1.25 * most)
    axes.xaxis.set_major_formatter(lambda value, _: short(value))
    axes.set_title(title, fontsize=10, color=INK)
    axes.grid(alpha=0.22, lw=0.6, axis="x")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=8.5)
    axes.minorticks_off()


def _loading(lines: Sequence[LoadingLine], path: Path) -> Path:
    figure, (ours, plain) = axes_beside(2, len(lines))
    names = [line.name for line in lines]
    bars(ours, names, [line.rows_s for line in lines], GREEN, "a load", log=True)
    ours.axvline(LOADED_S, color=GREY, ls=":", lw=1.2)
    bars(plain, names, [line.plain_rows_s for line in lines], GREY, "plain SQLite, row by row", log=True)
    figure.suptitle(f"updates a second (dotted: the goal, {short(LOADED_S)})", fontsize=12, color=INK)
    return save(figure, path)


def _policies(section: PolicySection, path: Path) -> Path:
    figure, grid = axes_beside(4, len(section.lines))
    names = [line.policy for line in section.lines]
    columns = (
        ("response p50, ms", [line.p50_ms for line in section.lines], BLUE),
        ("response p99, ms", [line.p99_ms for line in section.lines], BLUE),
        ("staleness of answers, ms", [1e3 * line.staleness_s for line in section.lines], ORANGE),
        ("deadlines missed, %", [100 * line.missed_share for line in section.lines], GREEN),
    )
    for axes, (title, values, colour) in zip(grid, columns, strict=True):
        bars(axes, names, values, colour, title)
    load = f"{short(section.rows_s)} updates and {section.questions_s:g} questions a second"
    figure.suptitle(f"policies of the warehouse: {load}", fontsize=12, color=INK)
    return save(figure, path)


def draw_push(section: PushSection, title: str, path: Path) -> Path:
    """The push path by phases."""
    figure, (middle, late) = axes_beside(2, len(section.phases) + 2)
    names = [phase.name for phase in section.phases]
    bars(middle, names, [phase.p50_ms for phase in section.phases], BLUE, "p50, ms")
    bars(late, names, [phase.p99_ms for phase in section.phases], ORANGE, "p99, ms")
    figure.suptitle(title, fontsize=12, color=INK)
    return save(figure, path)
