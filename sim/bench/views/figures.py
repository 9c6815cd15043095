"""The sections of `hullcast bench views` as PNG files."""

from __future__ import annotations

from pathlib import Path

from hullcast.sim.bench.views.live import LiveViewSection
from hullcast.sim.bench.views.report import ViewReport
from hullcast.sim.bench.views.upkeep import WAYS, ViewUpkeepSection
from hullcast.sim.bench.warehouse.figures import axes_beside, bars, draw_push
from hullcast.sim.output.charts import BLUE, GREEN, GREY, INK, ORANGE, save
from hullcast.sim.output.text import short


def draw_views(report: ViewReport, folder: Path) -> list[Path]:
    """Write the figures that the report can fill; their paths."""
    written = []
    if report.upkeep is not None:
        written.append(_upkeep(report.upkeep, folder / "views_upkeep.png"))
    if report.live is not None:
        written.append(_live(report.live, folder / "views_live.png"))
    if report.push is not None:
        written.append(draw_push(report.push, "from publish to event, by what views do", folder / "views_push.png"))
    return written


def _upkeep(section: ViewUpkeepSection, path: Path) -> Path:
    figure, grid = axes_beside(len(WAYS), len(section.lines) + 1)
    names = [line.name for line in section.lines]
    for place, (axes, way, colour) in enumerate(zip(grid, WAYS, (GREY, ORANGE, GREEN), strict=True)):
        bars(axes, names, [line.ways[place].us for line in section.lines], colour, way, log=True)
    every = [way.us for line in section.lines for way in line.ways]
    for axes in grid:
        axes.set_xlim(min(every) / 2, max(every) * 4)
    title = f"upkeep of a four-way join: microseconds of CPU a change, {short(section.offers)} offers"
    figure.suptitle(title, fontsize=12, color=INK)
    return save(figure, path)


def _live(section: LiveViewSection, path: Path) -> Path:
    figure, (refresh, compared) = axes_beside(2, 6)
    names = ["p50", "p99", "longest", "view, idle", "view, load", "SELECT, idle", "SELECT, load"]
    nothing = float("nan")
    times = [section.refresh_p50_ms, section.refresh_p99_ms, section.refresh_max_ms]
    answers = [
        section.idle.view_p50_ms,
        section.busy.view_p50_ms,
        section.idle.select_p50_ms,
        section.busy.select_p50_ms,
    ]
    bars(refresh, names, [*times, *[nothing] * 4], BLUE, f"refresh, ms ({1e3 * section.promise_s:g} ms promised)")
    bars(compared, names, [*[nothing] * 3, *answers], GREEN, "answer p50, ms")
    figure.suptitle(f"a view under {short(section.changes_s)} changes a second", fontsize=12, color=INK)
    return save(figure, path)
