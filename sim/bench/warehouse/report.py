"""`hullcast bench warehouse`: all its sections as one report, and the goals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from math import isnan
from typing import Any

from rich.console import Console

from hullcast.broker.warehouse.policies import POLICIES
from hullcast.sim.bench.sections import Tick, machine_and_others, show_sections, wanted_sections
from hullcast.sim.bench.timing import process_of
from hullcast.sim.bench.warehouse.first import ASKING, DISK, NOBODY, FirstQuerySection, first_query
from hullcast.sim.bench.warehouse.knapsack import GOAL_BYTES, GOAL_S, KnapsackCost, knapsack_cost
from hullcast.sim.bench.warehouse.live import (
    BUSY,
    CONTENDED,
    LiveWarehouseSettings,
    PointSection,
    PolicySection,
    PushPhase,
    PushSection,
    points,
    policies,
    push,
)
from hullcast.sim.bench.warehouse.loading import LoadingLine, loading
from hullcast.sim.output.goals import Goal, share_under
from hullcast.sim.output.text import factor, number, plain_table, short

#: Goals.
LOADED_S = 100_000.0
PUSH = 1.1
POINT_MS = 2.0
#: "Does not hold up": the longest request takes at most so many times as long as without the query. Fixed before
#: anything was measured.
HELD_UP = 2.0

#: The sections, in order, and what each one shows.
WAREHOUSE_SECTIONS = {
    "loading": "rows a second through a load, beside plain SQLite",
    "policies": "response time, staleness, missed deadlines and loaded rows of all policies under one load",
    "push": "from publish to event, with the warehouse idle and busy",
    "points": "single rows at freshness 0, directly and through a gateway",
    "first": "what others notice of the first query on a large table",
    "knapsack": "seconds and memory of Pareto's knapsack",
}


@dataclass(frozen=True, slots=True)
class WarehouseSettings:
    """Sizes. More rounds: steadier medians."""

    load_rows: int = 100_000
    load_singles: int = 50_000
    load_rounds: int = 5
    first_rows: int = 1_000_000
    first_tables: int = 5
    knapsack_quick: bool = False
    live: LiveWarehouseSettings = field(default_factory=LiveWarehouseSettings)
    seed: int = 0


FULL_WAREHOUSE = WarehouseSettings()
QUICK_WAREHOUSE = WarehouseSettings(
    load_rows=50_000,
    load_singles=10_000,
    load_rounds=3,
    first_rows=100_000,
    first_tables=3,
    knapsack_quick=True,
    live=LiveWarehouseSettings(
        policy_s=2.0, policy_rounds=1, push_s=1.5, push_rounds=3, points=100, point_rounds=2, point_rows=50_000
    ),
)


@dataclass(frozen=True, slots=True)
class WarehouseReport:
    """Everything that was measured. A section is None when it was not asked for."""

    machine: dict[str, Any]
    settings: WarehouseSettings
    loading: tuple[LoadingLine, ...] | None
    policies: PolicySection | None
    push: PushSection | None
    points: PointSection | None
    first: FirstQuerySection | None
    knapsack: tuple[KnapsackCost, ...] | None
    goals: tuple[Goal, ...]


def run_warehouse(
    settings: WarehouseSettings, only: Collection[str] = (), tick: Tick = lambda what: None
) -> WarehouseReport:
    """Measure the sections asked for, all if none is named."""
    wanted = wanted_sections(only, WAREHOUSE_SECTIONS)
    process_of()  # or CPU time cannot be measured; better said before measuring than after
    here, live = machine_and_others(), settings.live
    sizes = (settings.load_rows, settings.load_singles, settings.load_rounds)
    loads = loading(*sizes, settings.seed, tick) if "loading" in wanted else None
    by_policy = asyncio.run(policies(live, tick)) if "policies" in wanted else None
    pushed = asyncio.run(push(live, tick)) if "push" in wanted else None
    by_key = asyncio.run(points(live, tick)) if "points" in wanted else None
    large = (settings.first_rows, settings.first_tables, settings.seed)
    first = asyncio.run(first_query(*large, tick)) if "first" in wanted else None
    if "knapsack" in wanted:
        tick("knapsack")
    packed = tuple(knapsack_cost(quick=settings.knapsack_quick)) if "knapsack" in wanted else None
    goals = [
        *(_of_loading(loads) if loads else ()),
        *(_of_policies(by_policy) if by_policy else ()),
        *(_of_push(pushed) if pushed else ()),
        *(_of_points(by_key) if by_key else ()),
        *(_of_first(first) if first else ()),
        *(_of_knapsack(packed) if packed else ()),
    ]
    return WarehouseReport(here, settings, loads, by_policy, pushed, by_key, first, packed, tuple(goals))


def warehouse_steps(settings: WarehouseSettings, only: Collection[str] = ()) -> int:
    """How many times `run_warehouse` will tick."""
    live = settings.live
    counts = {
        "loading": 1 + settings.load_rounds,
        "policies": 1 + live.policy_rounds * len(POLICIES),
        "push": 1 + 3 * (1 + live.push_rounds),
        "points": 2 + live.point_rounds,
        "first": settings.first_tables,
        "knapsack": 1,
    }
    return sum(counts[name] for name in (set(only) or counts))


# --- goals ---------------------------------------------------------------------------------------------------------


def _of_loading(lines: tuple[LoadingLine, ...]) -> list[Goal]:
    return [
        Goal(f"loading, {line.name}", f">= {short(LOADED_S)} rows/s", short(line.rows_s), line.rows_s / LOADED_S)
        for line in lines
    ]


def _of_policies(section: PolicySection) -> list[Goal]:
    failed = sum(line.failed for line in section.lines)
    told = "all" if not section.wrong else f"wrong: {', '.join(section.wrong)}"
    return [
        Goal("policies: no question fails but by its deadline", "0", f"{failed:,} failed", float(not failed)),
        Goal("policies: every table right in the end", "all", told, float(not section.wrong)),
    ]


def _of_push(section: PushSection) -> list[Goal]:
    busy = section.phase(BUSY)
    return [
        Goal(f"push path, busy / idle warehouse, {name}", f"<= {PUSH}x", f"{ratio:.2f}x", PUSH / ratio)
        for name, ratio in (("p50", busy.p50_ratio), ("p99", busy.p99_ratio))
    ]


def _of_points(section: PointSection) -> list[Goal]:
    line = next(line for line in section.lines if line.way == "direct" and line.freshness == 0)
    share = share_under(line.p50_ms, POINT_MS)
    return [Goal("point query at freshness 0, direct, p50", f"< {POINT_MS:g} ms", f"{line.p50_ms:.2f} ms", share)]


def _of_first(section: FirstQuerySection) -> list[Goal]:
    where = f"longest {{}} beside the first query, {short(section.rows)} rows"
    return [
        Goal(
            where.format(line.probe),
            f"<= {HELD_UP:g}x without it",
            f"{line.ratio:.2f}x ({number(line.during_ms)} ms)",
            HELD_UP / line.ratio,
        )
        for line in section.lines
        if line.probe in ASKING
    ]


def _of_knapsack(costs: tuple[KnapsackCost, ...]) -> list[Goal]:
    goals = []
    for cost in costs:
        if cost.is_goal:
            where = f"knapsack, {cost.size:,} x {cost.size:,}, {cost.dependency:.0%} dependent, {cost.workload}"
            size = f"{cost.peak_bytes / 1e6:.1f} MB"
            goals += [
                Goal(f"{where}: time", f"<= {GOAL_S:g} s", f"{cost.seconds:.3f} s", GOAL_S / cost.seconds),
                Goal(f"{where}: memory", f"<= {GOAL_BYTES / 1e6:.0f} MB", size, GOAL_BYTES / max(1, cost.peak_bytes)),
                Goal(f"{where}: exact", "yes", "yes" if cost.exact else "no", float(cost.exact)),
            ]
    return goals


# --- in the terminal -----------------------------------------------------------------------------------------------


def show_warehouse(report: WarehouseReport, console: Console) -> None:
    """Print everything that was measured."""
    sections = (
        (report.loading, _show_loading),
        (report.policies, _show_policies),
        (report.push, _show_push),
        (report.points, _show_points),
        (report.first, _show_first),
        (report.knapsack, _show_knapsack),
    )
    show_sections(report.machine, sections, report.goals, console)


def _show_loading(lines: tuple[LoadingLine, ...], console: Console) -> None:
    table = plain_table("loading: updates a second", "", "load", "plain\nSQLite", "ratio", "rows\nwritten", "new file")
    table.columns[0].no_wrap = False
    for line in lines:
        rates = (short(line.rows_s), short(line.plain_rows_s), factor(line.ratio))
        table.add_row(line.name, *rates, f"{line.written / line.updates:.0%}", short(line.first_rows_s))
    console.print(table)


def _show_policies(section: PolicySection, console: Console) -> None:
    title = f"policies: {short(section.rows_s)} updates/s, {section.questions_s:g} questions/s"
    table = plain_table(
        title, "policy", "p50 ms", "p99 ms", "stale ms", "unapplied", "missed", "failed", "loaded/s", "cores"
    )
    for line in section.lines:
        times = (_number(line.p50_ms), _number(line.p99_ms), _number(1e3 * line.staleness_s), _number(line.unapplied))
        table.add_row(
            line.policy, *times, f"{line.missed_share:.0%}", str(line.failed), short(line.loaded_s),
            f"{line.warehouse_cores:.2f}",
        )  # fmt: skip
    console.print(table)
    by = plain_table("p50 ms, and mean staleness in ms, by freshness", "policy", "0", "", "0.5", "", "1", "")
    for line in section.lines:
        cells = ((_number(one.p50_ms), _number(1e3 * one.staleness_s)) for one in line.by_freshness)
        by.add_row(line.policy, *(cell for pair in cells for cell in pair))
    console.print()
    console.print(by)
    if section.errors:
        console.print("Questions failed, and are missing from the other figures: " + "; ".join(section.errors))


def _show_push(section: PushSection, console: Console) -> None:
    show_push(section, console, "warehouse", f"Busy: {section.answers_s:.1f} long questions a second.")


def show_push(section: PushSection, console: Console, of: str, busy: str) -> None:
    """The push path by what something (`of`) does; a sentence says what that is when it is busy."""
    title = f"push path: ms from publish to event, beside {short(section.rows_s)} updates/s"
    table = plain_table(title, of, "p50", "p99", "p50/idle", "p99/idle", "server", "warehouse", "machine")
    for phase in section.phases:
        cores = (f"{phase.server_cores:.2f}", f"{phase.warehouse_cores:.2f}", f"{phase.machine_cores:.2f}")
        ratios = (f"{phase.p50_ratio:.2f}x", f"{phase.p99_ratio:.2f}x")
        table.add_row(phase.name, number(phase.p50_ms), number(phase.p99_ms), *ratios, *cores)
    console.print(table)
    console.print(_contention(section, busy), style="dim")


def _contention(section: PushSection, busy: str) -> str:
    def part(ratio: Callable[[PushPhase], float]) -> str:
        share = section.contention(ratio)
        return "nothing to explain" if isnan(share) else f"{share:.0%}"

    return (
        f"On the right: cores in use, of {section.cores}. {busy} "
        f"{CONTENDED.capitalize()}: no warehouse, but plain processes as nice ({section.nice}) that ask for as much "
        f"CPU; of the growth they cause as well: p50 {part(lambda phase: phase.p50_ratio)}, "
        f"p99 {part(lambda phase: phase.p99_ratio)}."
    )


def _show_points(section: PointSection, console: Console) -> None:
    title = f"point queries: ms, {short(section.rows)} rows"
    table = plain_table(title, "way", "freshness", "p50", "p99", "bare request p50", "p99", "ratio")
    for line in section.lines:
        times = (number(value) for value in (line.p50_ms, line.p99_ms, line.bare_p50_ms, line.bare_p99_ms))
        table.add_row(line.way, f"{line.freshness:g}", *times, factor(line.ratio))
    console.print(table)


def _show_first(section: FirstQuerySection, console: Console) -> None:
    title = f"first query on {short(section.rows)} rows: the longest request, ms"
    table = plain_table(title, "request", "without", "during", "ratio", "worst table", "p50 without", "p50 during")
    for line in section.lines:
        times = (number(line.worst_ms), number(line.without_p50_ms), number(line.during_p50_ms))
        table.add_row(line.probe, number(line.without_ms), number(line.during_ms), factor(line.ratio), *times)
    console.print(table)
    console.print(
        f"Medians over {section.tables} tables. {DISK.capitalize()}: a process that syncs a file of its own; "
        f"{NOBODY}: one that only wakes up again. Where these wait as long, the machine is the cause. "
        f"The query itself: {section.first_s:.2f} s; again: "
        f"{section.second_s:.2f} s.",
        style="dim",
    )


def _show_knapsack(costs: tuple[KnapsackCost, ...], console: Console) -> None:
    columns = ("workload", "queries = updates", "dependent", "ms", "MB", "items", "exact", "lost at most")
    table = plain_table("knapsack: the slowest of several preferences", *columns)
    for cost in costs:
        figures = (number(1e3 * cost.seconds), f"{cost.peak_bytes / 1e6:.1f}", f"{cost.items:,}")
        sizes = (f"{cost.size:,}", f"{cost.dependency:.0%}")
        table.add_row(cost.workload, *sizes, *figures, "yes" if cost.exact else "no", f"{cost.lost_profit:.2%}")
    console.print(table)


def _number(value: float) -> str:
    return "" if isnan(value) else number(value)
