"""`hullcast bench views`: what keeping views almost ready takes, and whether promises are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import nan
from pathlib import Path

from rich.text import Text

from hullcast.sim.bench.frame.benchmark import SHARED, Benchmark, BenchSection, Shown
from hullcast.sim.bench.frame.charts import Bars, draw_bars
from hullcast.sim.bench.frame.push import BUSY, PushSection, contention_words, draw_push, push_table
from hullcast.sim.bench.views.live import (
    BUSY_CORES,
    LiveViewSection,
    LiveViewSettings,
    live,
    push_with_views,
)
from hullcast.sim.bench.views.plans import STEPS, PlanLine, plans
from hullcast.sim.bench.views.upkeep import CASES, OURS, WAYS, ViewUpkeepLine, ViewUpkeepSection, upkeep
from hullcast.sim.bench.warehouse.live import LiveWarehouseSettings
from hullcast.sim.output.charts import GREEN, GREY, ORANGE
from hullcast.sim.output.goals import Goal, share_under
from hullcast.sim.output.text import factor, number, plain_table, short

#: Goals.
CHEAPER = 2.0
WITHIN = 0.999
FASTER = 20.0
PUSH = 1.1
PLANNED_S = {2: 1.0, 4: 10.0}  # by tables


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


# --- goals ---------------------------------------------------------------------------------------------------------


def _goals_of_upkeep(section: ViewUpkeepSection) -> list[Goal]:
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


def _goals_of_live(section: LiveViewSection) -> list[Goal]:
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
                f"{1 / of.ratio:.1f}x",
                1 / of.ratio / FASTER,
            )
            for when, of in compared
        ),
        Goal.fact("the view is its SELECT in the end", "yes", "yes" if section.right else "no", section.right),
    ]


def _goals_of_push(section: PushSection) -> list[Goal]:
    ratio = section.phase(BUSY).p50_ratio
    return [Goal("push path, with / without views, p50", f"<= {PUSH}x", f"{ratio:.2f}x", PUSH / ratio)]


def _goals_of_plans(lines: tuple[PlanLine, ...]) -> list[Goal]:
    goals = []
    for tables, goal_s in PLANNED_S.items():
        mine = [line for line in lines if line.tables == tables]
        longest_s, best = max(line.seconds for line in mine), sum(line.best for line in mine)
        where, beyond = f"plans of {mine[0].steps:,} steps, {tables} tables", max(line.above for line in mine) - 1
        told = f"{best} of {len(mine)}" + (f" (within {beyond:.1%})" if best < len(mine) else "")
        goals += [
            Goal(f"{where}: longest", f"< {goal_s:g} s", f"{longest_s:.2f} s", share_under(longest_s, goal_s)),
            Goal(f"{where}: A* came to its end", "all", told, best / len(mine), exact=True),
        ]
    return goals


# --- tables --------------------------------------------------------------------------------------------------------


def _tables_of_upkeep(section: ViewUpkeepSection) -> Iterator[Shown]:
    title = f"upkeep: us of CPU a change, {short(section.offers)} offers, {section.changes:,} changes a round"
    table = plain_table(title, "", "way", "us", "/ ours", "propagations\na round", "deciding", "limit ms")
    table.columns[0].no_wrap = False
    for line in section.lines:
        ours = next(way for way in line.ways if way.way == OURS)
        for place, way in enumerate(line.ways):
            cells = (number(way.us), factor(way.cpu_s / ours.cpu_s), f"{way.propagations:,.0f}")
            head, limit = (line.name, number(line.limit_ms)) if place == 0 else ("", "")
            table.add_row(head, way.way, *cells, f"{way.deciding_share:.0%}", limit)
    yield table
    yield (
        "Deciding: what the planner itself takes, of the CPU. What ours has learned: "
        + "; ".join(f"{line.name}: {_learned(line)}" for line in section.lines)
        + ". Where a batch costs little beside its rows, all that batch pay nearly the same, whatever they batch; one "
        "index less makes batches of suppliers costly, as in Xie (2007)."
    )


def _learned(line: ViewUpkeepLine) -> str:
    return ", ".join(
        f"{table} {number(batch_ms)} ms a batch and {number(line.row_us[table])} us a row"
        for table, batch_ms in line.batch_ms.items()
    )


def _tables_of_live(section: LiveViewSection) -> Iterator[Shown]:
    promise = f"{1e3 * section.promise_s:g} ms promised"
    title = f"live: {promise}, {short(section.offers)} offers, {short(section.changes_s)} changes/s"
    table = plain_table(title, "", "p50 ms", "p99 ms", "longest ms", "count", "beyond")
    refresh = (number(section.refresh_p50_ms), number(section.refresh_p99_ms), number(section.refresh_max_ms))
    counted = section.within + section.beyond
    table.add_row("refresh, as replies say", *refresh, f"{section.answers:,}", f"{section.late:,}")
    table.add_row("refresh, as the server counts", "", "", "", f"{counted:,}", f"{section.beyond:,}")
    table.add_row("reply", number(section.reply_p50_ms), number(section.reply_p99_ms), "", f"{section.answers:,}", "")
    yield table
    if section.promise_s != section.asked_promise_s:
        yield Text(
            f"The server refused to promise {1e3 * section.asked_promise_s:g} ms; within that were "
            f"{section.asked_share:.2%} of the refreshes.",
            style="yellow",
        )
    if section.late:
        told = "; ".join(f"{reason}: {count}" for reason, count in section.reasons.items() if count)
        yield f"Beyond the promise, by reason: {told}."
    yield (
        f"Cores: server {section.server_cores:.2f}, warehouse {section.warehouse_cores:.2f} (aim: {BUSY_CORES:g} "
        f"together), everything {section.machine_cores:.2f}. {section.propagations:,} propagations; a change took "
        f"{number(section.spent_us)} us."
    )
    compared = plain_table("the view beside its SELECT: ms", "", "view p50", "p99", "SELECT p50", "p99", "ratio")
    for name, of in (("nothing pending", section.idle), ("under load", section.busy)):
        compared.add_row(name, *of.cells, factor(1 / of.ratio))
    yield compared


def _tables_of_push(section: PushSection) -> Iterator[Shown]:
    yield push_table(section.phases, f"{short(section.rows_s)} updates/s", "views")
    busy = "Idle: no view, and no warehouse. Busy: a view over all that is loaded, "
    yield contention_words(section, f"{busy}asked for {section.answers_s:.1f} times a second.")


def _tables_of_plans(lines: tuple[PlanLine, ...]) -> Iterator[Shown]:
    table = plain_table(
        "plans: CPU seconds of A*", "tables", "costs", "changes", "seconds", "states", "above the bound"
    )
    for line in lines:
        cells = (f"{line.seconds:.3f}", f"{line.expanded:,}", "best" if line.best else f"{line.above - 1:.1%}")
        table.add_row(str(line.tables), line.costs, line.arrivals, *cells)
    yield table
    if not all(line.best for line in lines):
        yield ("Where a plan is above the bound, A* gave up, and a beam found it; no plan costs less than the bound.")


# --- pictures ------------------------------------------------------------------------------------------------------


def _draw_upkeep(section: ViewUpkeepSection, path: Path) -> Path:
    title = f"upkeep of a four-way join: microseconds of CPU a change, {short(section.offers)} offers"
    panels = [
        Bars(way, [line.ways[place].us for line in section.lines], colour, log=True)
        for place, (way, colour) in enumerate(zip(WAYS, (GREY, ORANGE, GREEN), strict=True))
    ]
    return draw_bars(path, title, [line.name for line in section.lines], panels, share_x=True, room=1)


def _draw_live(section: LiveViewSection, path: Path) -> Path:
    names = ["p50", "p99", "longest", "view, idle", "view, load", "SELECT, idle", "SELECT, load"]
    times = [section.refresh_p50_ms, section.refresh_p99_ms, section.refresh_max_ms]
    idle, busy = section.idle, section.busy
    answers = [idle.p50_ms, busy.p50_ms, idle.other_p50_ms, busy.other_p50_ms]
    panels = (
        Bars(f"refresh, ms ({1e3 * section.promise_s:g} ms promised)", [*times, *[nan] * 4]),
        Bars("answer p50, ms", [*[nan] * 3, *answers], GREEN),
    )
    return draw_bars(path, f"a view under {short(section.changes_s)} changes a second", names, panels)


# --- the benchmark -------------------------------------------------------------------------------------------------


VIEWS = Benchmark(
    name="views",
    about="the cost of keeping views almost ready, and whether promises are kept",
    description="Measures the CPU to maintain a four-way join in three ways, refreshes within the promise under "
    "load, a view beside its SELECT, the push path without and with views, and how long plans take; with real servers "
    "on disk.",
    full=FULL_VIEWS,
    quick=QUICK_VIEWS,
    quick_about="fewer rows and rounds: about two minutes",
    head=lambda settings: SHARED,
    sections=(
        BenchSection(
            "upkeep",
            "CPU to maintain a four-way join: at every change, all tables at the limit, and as a server does",
            upkeep,
            _tables_of_upkeep,
            _goals_of_upkeep,
            {"views_upkeep": _draw_upkeep},
            lambda settings: len(CASES) * (1 + settings.upkeep_rounds),
        ),
        BenchSection(
            "live",
            "refreshes within the promise under load, and the view beside its SELECT",
            lambda settings, tick: live(settings.live, tick),
            _tables_of_live,
            _goals_of_live,
            {"views_live": _draw_live},
            lambda settings: 5,
        ),
        BenchSection(
            "push",
            "from publish to event, without and with views",
            lambda settings, tick: push_with_views(settings.live, tick),
            _tables_of_push,
            _goals_of_push,
            {"views_push": partial(draw_push, by="views do")},
            lambda settings: 1 + 3 * (1 + settings.live.push.push_rounds),
        ),
        BenchSection(
            "plans",
            "seconds of A* for 1,000 steps of two and of four tables",
            lambda s, tick: plans(s.plan_steps, s.plan_rounds, s.seed, tick),
            _tables_of_plans,
            _goals_of_plans,
            steps=lambda settings: len(PLANNED_S),
        ),
    ),
)
