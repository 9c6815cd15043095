"""The sections of `hullcast bench streams` as PNG files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hullcast.sim.bench.streams.bursts import BurstSection
from hullcast.sim.bench.streams.engine import EngineSection
from hullcast.sim.bench.streams.live import FilterSection, StreamJoinSection
from hullcast.sim.bench.streams.memory import KEPT_BY, DecisionSection
from hullcast.sim.bench.streams.report import (
    DECISION_US,
    FILTERED_S,
    JOIN_S,
    OVERHEAD,
    PATH_S,
    StreamBenchReport,
)
from hullcast.sim.bench.streams.scheduling import SchedulingLoad
from hullcast.sim.bench.streams.workload import TICKS
from hullcast.sim.bench.warehouse.figures import axes_beside, bars
from hullcast.sim.output.charts import BLUE, GREEN, GREY, INK, ORANGE, save
from hullcast.sim.output.text import short


def draw_streams(report: StreamBenchReport, folder: Path) -> list[Path]:
    """Write the figures that the report can fill; their paths."""
    written = []
    if report.path is not None or report.join is not None:
        written.append(_engine(report.path, report.join, folder / "streams_engine.png"))
    if report.decisions is not None:
        written.append(_decisions(report.decisions, folder / "streams_decisions.png"))
    if report.scheduling is not None:
        written.append(_scheduling(report.scheduling, folder / "streams_scheduling.png"))
    if report.bursts is not None:
        written.append(_bursts(report.bursts, folder / "streams_bursts.png"))
    if report.filters is not None:
        written.append(_filters(report.filters, folder / "streams_filters.png"))
    if report.derived is not None:
        written.append(_derived(report.derived, folder / "streams_derived.png"))
    return written


def _engine(path: EngineSection | None, join: EngineSection | None, target: Path) -> Path:
    sections = [(of, goal) for of, goal in ((path, PATH_S), (join, JOIN_S)) if of is not None]
    rows = [(line.name, line.tuples_s, goal) for of, goal in sections for line in of.lines]
    rows += [(of.baseline, of.baseline_tuples_s, float("nan")) for of, _ in sections]
    figure, (rates, shares) = axes_beside(2, len(rows))
    names = [name for name, _, _ in rows]
    bars(rates, names, [rate for _, rate, _ in rows], GREEN, "tuples a second", log=True)
    bars(shares, names, [rate / goal for _, rate, goal in rows], BLUE, "times the goal")
    figure.suptitle("the engine alone: a path of three operators, and window joins", fontsize=12, color=INK)
    return save(figure, target)


def _decisions(section: DecisionSection, target: Path) -> Path:
    figure, grid = axes_beside(len(section.streams), len(KEPT_BY) + 1)
    for axes, stream in zip(grid, section.streams, strict=True):
        names = ["no bound", *(line.policy for line in stream.lines)]
        bars(axes, names, [stream.unbounded_us, *(line.us for line in stream.lines)], ORANGE, stream.stream)
        _mark_goal(axes, stream.unbounded_us + DECISION_US)
    title = f"a bounded join of {short(section.kept)} tuples: microseconds an arrival (dotted: the goal)"
    figure.suptitle(title, fontsize=12, color=INK)
    return save(figure, target)


def _scheduling(loads: tuple[SchedulingLoad, ...], target: Path) -> Path:
    figure, grid = axes_beside(len(loads), len(loads[0].lines))
    for axes, load in zip(grid, loads, strict=True):
        names = [line.policy for line in load.lines]
        bars(axes, names, [100 * line.deciding for line in load.lines], BLUE, load.case.name)
        _mark_goal(axes, 100 * OVERHEAD)
    figure.suptitle("scheduling: % of the time of steps (dotted: the goal)", fontsize=12, color=INK)
    return save(figure, target)


def _bursts(section: BurstSection, target: Path) -> Path:
    figure, (peak, average, simulated) = axes_beside(3, len(section.lines))
    names = [line.policy for line in section.lines]
    bars(peak, names, [line.peak for line in section.lines], GREEN, "peak, the runner")
    bars(average, names, [line.average for line in section.lines], BLUE, "average, the runner")
    bars(simulated, names, [line.simulated_peak for line in section.lines], GREY, "peak, the simulator")
    figure.suptitle("four operators on bursts: tuples that wait, medians of draws", fontsize=12, color=INK)
    return save(figure, target)


def _filters(section: FilterSection, target: Path) -> Path:
    figure, (rates,) = axes_beside(1, len(section.lines) + 1)
    names = [f"{'stream' if line.source == TICKS else 'table'}, {line.wanted_by:g} a tuple" for line in section.lines]
    bars(rates, names, [line.tuples_s for line in section.lines], GREEN, "tuples a second (dotted: the goal)")
    _mark_goal(rates, FILTERED_S)
    figure.suptitle(f"{short(section.filters)} filters, {section.clients} client processes", fontsize=12, color=INK)
    return save(figure, target)


def _derived(section: StreamJoinSection, target: Path) -> Path:
    figure, (rates, late) = axes_beside(2, 7)
    nothing = float("nan")
    names = [
        "with the join",
        "nobody joins",
        "results p50",
        "results p99",
        *(f"push p50, {p.name}" for p in section.pushes),
    ]
    bars(rates, names, [section.tuples_s, section.plain_tuples_s, *[nothing] * 5], GREEN, "tuples a second")
    times = [section.p50_ms, section.p99_ms, *(phase.p50_ms for phase in section.pushes)]
    bars(late, names, [nothing, nothing, *times], ORANGE, f"ms, at {short(section.rate)} tuples/s")
    figure.suptitle("a join of two streams in a server", fontsize=12, color=INK)
    return save(figure, target)


def _mark_goal(axes: Any, at: float) -> None:
    """A dotted line, with room for it if all bars are shorter."""
    axes.axvline(at, color=GREY, ls=":", lw=1.2)
    axes.set_xlim(right=max(axes.get_xlim()[1], 1.05 * at))
