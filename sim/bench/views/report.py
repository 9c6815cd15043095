"""`hullcast bench views`: all its sections as one report, and the goals."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from hullcast.sim.bench.sections import Tick, machine_and_others, show_sections, wanted_sections
from hullcast.sim.bench.timing import process_of
from hullcast.sim.bench.views.live import (
    BUSY_CORES,
    ComparedFigures,
    LiveViewSection,
    LiveViewSettings,
    live,
    push_with_views,
)
from hullcast.sim.bench.views.plans import STEPS, PlanLine, plans
from hullcast.sim.bench.views.upkeep import CASES, OURS, ViewUpkeepLine, ViewUpkeepSection, upkeep
from hullcast.sim.bench.warehouse.live import BUSY, LiveWarehouseSettings, PushSection
from hullcast.sim.bench.warehouse.report import show_push
from hullcast.sim.output.goals import Goal, share_under
from hullcast.sim.output.text import factor, number, plain_table, short

#: Goals.
CHEAPER = 2.0
WITHIN = 0.999
FASTER = 20.0
PUSH = 1.1
PLANNED_S = {2: 1.0, 4: 10.0}  # by tables

#: The sections, in order, and what each one shows.
VIEW_SECTIONS = {
    "upkeep": "CPU to maintain a four-way join: at every change, all tables at the limit, and as a server does",
    "live": "refreshes within the promise under load, and the view beside its SELECT",
    "push": "from publish to event, without and with views",
    "plans": "seconds of A* for 1,000 steps of two and of four tables",
}


@dataclass(frozen=True, slots=True)
class ViewSettings:
    """Sizes."""

    upkeep_suppliers: int = 1_000
    upkeep_changes: int = 10_000
    upkeep_rounds: int = 3
    plan_steps: int = STEPS
    plan_rounds: int = 3
    live: LiveViewSettings = field(default_factory=LiveViewSettings)
    seed: int = 0


FULL_VIEWS = ViewSettings()
QUICK_VIEWS = ViewSettings(
    upkeep_suppliers=100,
    upkeep_changes=2_000,
    upkeep_rounds=2,
    plan_rounds=1,
    live=LiveViewSettings(
        calibrate_s=1.5,
        live_s=20.0,
        compared=30,
        push=LiveWarehouseSettings(rows_s=5_000.0, keys=5_000, push_s=1.5, push_rounds=3),
    ),
)


@dataclass(frozen=True, slots=True)
class ViewReport:
    """Everything that was measured. A section is None when it was not asked for."""

    machine: dict[str, Any]
    settings: ViewSettings
    upkeep: ViewUpkeepSection | None
    live: LiveViewSection | None
    push: PushSection | None
    plans: tuple[PlanLine, ...] | None
    goals: tuple[Goal, ...]


def run_views(settings: ViewSettings, only: Collection[str] = (), tick: Tick = lambda what: None) -> ViewReport:
    """Measure the sections asked for, all if none is named."""
    wanted = wanted_sections(only, VIEW_SECTIONS)
    process_of()  # or CPU time cannot be measured; better said before measuring than after
    here = machine_and_others()
    sizes = (settings.upkeep_suppliers, settings.upkeep_changes, settings.upkeep_rounds, settings.seed)
    maintained = upkeep(*sizes, tick) if "upkeep" in wanted else None
    promised = asyncio.run(live(settings.live, tick)) if "live" in wanted else None
    pushed = asyncio.run(push_with_views(settings.live, tick)) if "push" in wanted else None
    sought = plans(settings.plan_steps, settings.plan_rounds, settings.seed, tick) if "plans" in wanted else None
    goals = [
        *(_of_upkeep(maintained) if maintained else ()),
        *(_of_live(promised) if promised else ()),
        *(_of_push(pushed) if pushed else ()),
        *(_of_plans(sought, settings.plan_steps) if sought else ()),
    ]
    return ViewReport(here, settings, maintained, promised, pushed, sought, tuple(goals))


def view_steps(settings: ViewSettings, only: Collection[str] = ()) -> int:
    """How many times `run_views` will tick."""
    counts = {
        "upkeep": len(CASES) * (1 + settings.upkeep_rounds),
        "live": 5,
        "push": 1 + 3 * (1 + settings.live.push.push_rounds),
        "plans": len(PLANNED_S),
    }
    return sum(counts[name] for name in (set(only) or counts))


# --- goals ---------------------------------------------------------------------------------------------------------


def _of_upkeep(section: ViewUpkeepSection) -> list[Goal]:
    line = section.lines[0]
    return [
        Goal(
            f"upkeep of a four-way join, CPU of {name} / ours",
            f">= {CHEAPER:g}x",
            f"{ratio:.2f}x ({line.name})",
            ratio / CHEAPER,
        )
        for name, ratio in (("refreshing at every change", line.every_ratio), ("all at the limit", line.naive_ratio))
    ]


def _of_live(section: LiveViewSection) -> list[Goal]:
    promise = f"the promised {1e3 * section.promise_s:g} ms"
    load = f"with {section.server_cores + section.warehouse_cores:.2f} cores busy"
    shares = (("as the server counts", section.within_share), ("as replies say", section.reply_share))
    compared = (("nothing pending", section.idle), ("under load", section.busy))
    return [
        *(
            Goal(f"refreshes within {promise} {load}, {how}", f">= {WITHIN:.1%}", f"{share:.2%}", share / WITHIN)
            for how, share in shares
        ),
        *(
            Goal(
                f"SELECT * FROM view beside its SELECT, {when}, p50",
                f">= {FASTER:g}x faster",
                f"{of.ratio:.1f}x",
                of.ratio / FASTER,
            )
            for when, of in compared
        ),
        Goal("the view is its SELECT in the end", "yes", "yes" if section.right else "no", float(section.right)),
    ]


def _of_push(section: PushSection) -> list[Goal]:
    ratio = section.phase(BUSY).p50_ratio
    return [Goal("push path, with / without views, p50", f"<= {PUSH}x", f"{ratio:.2f}x", PUSH / ratio)]


def _of_plans(lines: tuple[PlanLine, ...], steps: int) -> list[Goal]:
    goals = []
    for tables, goal_s in PLANNED_S.items():
        mine = [line for line in lines if line.tables == tables]
        longest_s, best = max(line.seconds for line in mine), sum(line.best for line in mine)
        where, beyond = f"plans of {steps:,} steps, {tables} tables", max(line.above for line in mine) - 1
        told = f"{best} of {len(mine)}" + (f" (within {beyond:.1%})" if best < len(mine) else "")
        goals += [
            Goal(f"{where}: longest", f"< {goal_s:g} s", f"{longest_s:.2f} s", share_under(longest_s, goal_s)),
            Goal(f"{where}: A* came to its end", "all", told, best / len(mine)),
        ]
    return goals


# --- in the terminal -----------------------------------------------------------------------------------------------


def show_views(report: ViewReport, console: Console) -> None:
    """Print everything that was measured."""
    sections = (
        (report.upkeep, _show_upkeep),
        (report.live, _show_live),
        (report.push, _show_push),
        (report.plans, _show_plans),
    )
    show_sections(report.machine, sections, report.goals, console)


def _show_upkeep(section: ViewUpkeepSection, console: Console) -> None:
    title = f"upkeep: us of CPU a change, {short(section.offers)} offers, {section.changes:,} changes a round"
    table = plain_table(title, "", "way", "us", "/ ours", "propagations\na round", "deciding", "limit ms")
    table.columns[0].no_wrap = False
    for line in section.lines:
        ours = next(way for way in line.ways if way.way == OURS)
        for place, way in enumerate(line.ways):
            cells = (number(way.us), factor(way.cpu_s / ours.cpu_s), f"{way.propagations:,.0f}")
            head, limit = (line.name, number(line.limit_ms)) if place == 0 else ("", "")
            table.add_row(head, way.way, *cells, f"{way.deciding_share:.0%}", limit)
    console.print(table)
    console.print(
        "Deciding: what the planner itself takes, of the CPU. What ours has learned: "
        + "; ".join(f"{line.name}: {_learned(line)}" for line in section.lines)
        + ". Where a batch costs little beside its rows, all that batch pay nearly the same, whatever they batch; one "
        "index less makes batches of suppliers costly, as in Xie (2007).",
        style="dim",
    )


def _learned(line: ViewUpkeepLine) -> str:
    return ", ".join(
        f"{table} {number(batch_ms)} ms a batch and {number(line.row_us[table])} us a row"
        for table, batch_ms in line.batch_ms.items()
    )


def _show_live(section: LiveViewSection, console: Console) -> None:
    promise = f"{1e3 * section.promise_s:g} ms promised"
    title = f"live: {promise}, {short(section.offers)} offers, {short(section.changes_s)} changes/s"
    table = plain_table(title, "", "p50 ms", "p99 ms", "longest ms", "count", "beyond")
    refresh = (number(section.refresh_p50_ms), number(section.refresh_p99_ms), number(section.refresh_max_ms))
    counted = section.within + section.beyond
    table.add_row("refresh, as replies say", *refresh, f"{section.answers:,}", f"{section.late:,}")
    table.add_row("refresh, as the server counts", "", "", "", f"{counted:,}", f"{section.beyond:,}")
    table.add_row("reply", number(section.reply_p50_ms), number(section.reply_p99_ms), "", f"{section.answers:,}", "")
    console.print(table)
    if section.promise_s != section.asked_promise_s:
        console.print(
            f"The server refused to promise {1e3 * section.asked_promise_s:g} ms; within that were "
            f"{section.asked_share:.2%} of the refreshes.",
            style="yellow",
        )
    if section.late:
        told = "; ".join(f"{reason}: {count}" for reason, count in section.reasons.items() if count)
        console.print(f"Beyond the promise, by reason: {told}.")
    console.print(
        f"Cores: server {section.server_cores:.2f}, warehouse {section.warehouse_cores:.2f} (aim: {BUSY_CORES:g} "
        f"together), everything {section.machine_cores:.2f}. {section.propagations:,} propagations; a change took "
        f"{number(section.spent_us)} us, and all tables at the limit would have taken {number(section.naive_us)} us.",
        style="dim",
    )
    console.print()
    compared = plain_table("the view beside its SELECT: ms", "", "view p50", "p99", "SELECT p50", "p99", "ratio")
    for name, of in (("nothing pending", section.idle), ("under load", section.busy)):
        compared.add_row(name, *_times(of), factor(of.ratio))
    console.print(compared)


def _times(of: ComparedFigures) -> tuple[str, ...]:
    return tuple(number(ms) for ms in (of.view_p50_ms, of.view_p99_ms, of.select_p50_ms, of.select_p99_ms))


def _show_push(section: PushSection, console: Console) -> None:
    busy = (
        "Idle: no view, and no warehouse. Busy: a view over all that is loaded, "
        f"asked for {section.answers_s:.1f} times a second."
    )
    show_push(section, console, "views", busy)


def _show_plans(lines: tuple[PlanLine, ...], console: Console) -> None:
    table = plain_table(
        "plans: CPU seconds of A*", "tables", "costs", "changes", "seconds", "states", "above the bound"
    )
    for line in lines:
        cells = (f"{line.seconds:.3f}", f"{line.expanded:,}", "best" if line.best else f"{line.above - 1:.1%}")
        table.add_row(str(line.tables), line.costs, line.arrivals, *cells)
    console.print(table)
    if not all(line.best for line in lines):
        console.print(
            "Where a plan is above the bound, A* gave up, and a beam found it; no plan costs less than the bound.",
            style="dim",
        )
