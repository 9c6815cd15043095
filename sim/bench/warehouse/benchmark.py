"""`hullcast bench warehouse`: one-time queries against loading feeds, and what the push path notices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import isnan
from pathlib import Path

from hullcast.broker.warehouse.deciding.policies import POLICIES
from hullcast.sim.bench.frame.benchmark import SHARED, Benchmark, BenchSection, Shown
from hullcast.sim.bench.frame.charts import Bars, draw_bars
from hullcast.sim.bench.frame.push import BUSY, PushSection, contention_words, draw_push, push_table
from hullcast.sim.bench.warehouse.first import ASKING, DISK, NOBODY, FirstQuerySection, first_query
from hullcast.sim.bench.warehouse.knapsack import GOAL_S, KnapsackCost, knapsack_cost
from hullcast.sim.bench.warehouse.live import (
    LiveWarehouseSettings,
    PointSection,
    PolicySection,
    points,
    policies,
    push,
)
from hullcast.sim.bench.warehouse.loading import LoadingLine, loading
from hullcast.sim.output.charts import GREEN, GREY, ORANGE
from hullcast.sim.output.goals import Goal, share_under
from hullcast.sim.output.text import factor, number, plain_table, short

#: Goals.
LOADED_S = 100_000.0
PUSH = 1.1
POINT_MS = 2.0
#: "Does not hold up": the longest request takes at most so many times as long as without the query. Fixed before
#: anything was measured.
HELD_UP = 2.0


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


# --- goals ---------------------------------------------------------------------------------------------------------


def _goals_of_loading(lines: tuple[LoadingLine, ...]) -> list[Goal]:
    return [
        Goal(f"loading, {line.name}", f">= {short(LOADED_S)} rows/s", short(line.rows_s), line.rows_s / LOADED_S)
        for line in lines
    ]


def _goals_of_policies(section: PolicySection) -> list[Goal]:
    failed = sum(line.failed for line in section.lines)
    told = "all" if not section.wrong else f"wrong: {', '.join(section.wrong)}"
    return [
        Goal.fact("policies: no question fails but by its deadline", "0", f"{failed:,} failed", not failed),
        Goal.fact("policies: every table right in the end", "all", told, not section.wrong),
    ]


def _goals_of_push(section: PushSection) -> list[Goal]:
    busy = section.phase(BUSY)
    return [
        Goal(f"push path, busy / idle warehouse, {name}", f"<= {PUSH}x", f"{ratio:.2f}x", PUSH / ratio)
        for name, ratio in (("p50", busy.p50_ratio), ("p99", busy.p99_ratio))
    ]


def _goals_of_points(section: PointSection) -> list[Goal]:
    line = next(line for line in section.lines if line.way == "direct" and line.freshness == 0)
    took_ms, name = line.ms.p50_ms, "point query at freshness 0, direct, p50"
    return [Goal(name, f"< {POINT_MS:g} ms", f"{took_ms:.2f} ms", share_under(took_ms, POINT_MS))]


def _goals_of_first(section: FirstQuerySection) -> list[Goal]:
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


def _goals_of_knapsack(costs: tuple[KnapsackCost, ...]) -> list[Goal]:
    return [
        Goal(
            f"knapsack, {cost.size:,} x {cost.size:,}, {cost.dependency:.0%} dependent, {cost.workload}",
            f"<= {GOAL_S:g} s",
            f"{cost.seconds:.3f} s",
            GOAL_S / cost.seconds,
        )
        for cost in costs
        if cost.is_goal
    ]


# --- tables --------------------------------------------------------------------------------------------------------


def _tables_of_loading(lines: tuple[LoadingLine, ...]) -> Iterator[Shown]:
    table = plain_table("loading: updates a second", "", "load", "plain\nSQLite", "ratio", "rows\nwritten", "new file")
    table.columns[0].no_wrap = False
    for line in lines:
        rates = (short(line.rows_s), short(line.plain_rows_s), factor(line.ratio))
        table.add_row(line.name, *rates, f"{line.written / line.updates:.0%}", short(line.first_rows_s))
    yield table


def _tables_of_policies(section: PolicySection) -> Iterator[Shown]:
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
    yield table
    by = plain_table("p50 ms, and mean staleness in ms, by freshness", "policy", "0", "", "0.5", "", "1", "")
    for line in section.lines:
        cells = ((_number(one.p50_ms), _number(1e3 * one.staleness_s)) for one in line.by_freshness)
        by.add_row(line.policy, *(cell for pair in cells for cell in pair))
    yield by
    if section.errors:
        yield "Questions failed, and are missing from the other figures: " + "; ".join(section.errors)


def _tables_of_push(section: PushSection) -> Iterator[Shown]:
    yield push_table(section.phases, f"{short(section.rows_s)} updates/s", "warehouse")
    yield contention_words(section, f"Busy: {section.answers_s:.1f} long questions a second.")


def _tables_of_points(section: PointSection) -> Iterator[Shown]:
    title = f"point queries: ms, {short(section.rows)} rows"
    table = plain_table(title, "way", "freshness", "p50", "p99", "bare request p50", "p99", "ratio")
    for line in section.lines:
        table.add_row(line.way, f"{line.freshness:g}", *line.ms.cells, factor(line.ms.ratio))
    yield table


def _tables_of_first(section: FirstQuerySection) -> Iterator[Shown]:
    title = f"first query on {short(section.rows)} rows: the longest request, ms"
    table = plain_table(title, "request", "without", "during", "ratio", "worst table", "p50 without", "p50 during")
    for line in section.lines:
        times = (number(line.worst_ms), number(line.without_p50_ms), number(line.during_p50_ms))
        table.add_row(line.probe, number(line.without_ms), number(line.during_ms), factor(line.ratio), *times)
    yield table
    yield (
        f"Medians over {section.tables} tables. {DISK.capitalize()}: a process that syncs a file of its own; "
        f"{NOBODY}: one that only wakes up again. Where these wait as long, the machine is the cause. "
        f"The query itself: {section.first_s:.2f} s; again: "
        f"{section.second_s:.2f} s."
    )


def _tables_of_knapsack(costs: tuple[KnapsackCost, ...]) -> Iterator[Shown]:
    columns = ("workload", "queries = updates", "dependent", "ms", "items", "exact", "lost at most")
    table = plain_table("knapsack: the slowest of several preferences", *columns)
    for cost in costs:
        sizes = (f"{cost.size:,}", f"{cost.dependency:.0%}", number(1e3 * cost.seconds), f"{cost.items:,}")
        table.add_row(cost.workload, *sizes, "yes" if cost.exact else "no", f"{cost.lost_profit:.2%}")
    yield table
    yield "Its memory: `hullcast sim tradeoff`, where it does not depend on the machine."


def _number(value: float) -> str:
    return "" if isnan(value) else number(value)


# --- pictures ------------------------------------------------------------------------------------------------------


def _draw_loading(lines: tuple[LoadingLine, ...], path: Path) -> Path:
    title = f"updates a second (dotted: the goal, {short(LOADED_S)})"
    ours = Bars("a load", [line.rows_s for line in lines], GREEN, log=True, goal=LOADED_S)
    plain = Bars("plain SQLite, row by row", [line.plain_rows_s for line in lines], GREY, log=True)
    return draw_bars(path, title, [line.name for line in lines], (ours, plain))


def _draw_policies(section: PolicySection, path: Path) -> Path:
    load = f"{short(section.rows_s)} updates and {section.questions_s:g} questions a second"
    lines = section.lines
    panels = (
        Bars("response p50, ms", [line.p50_ms for line in lines]),
        Bars("response p99, ms", [line.p99_ms for line in lines]),
        Bars("staleness of answers, ms", [1e3 * line.staleness_s for line in lines], ORANGE),
        Bars("deadlines missed, %", [100 * line.missed_share for line in lines], GREEN),
    )
    return draw_bars(path, f"policies of the warehouse: {load}", [line.policy for line in lines], panels)


# --- the benchmark -------------------------------------------------------------------------------------------------


WAREHOUSE = Benchmark(
    name="warehouse",
    about="one-time queries while tables are loaded, and their effect on subscriptions",
    description="Measures loads, all policies under one load, the push path with the warehouse idle and busy, point "
    "queries, and the effect of the first query on a large table on others; with real servers on disk.",
    full=FULL_WAREHOUSE,
    quick=QUICK_WAREHOUSE,
    quick_about="fewer rows and rounds: about two minutes",
    head=lambda settings: SHARED,
    sections=(
        BenchSection(
            "loading",
            "rows a second through a load, beside plain SQLite",
            lambda s, tick: loading(s.load_rows, s.load_singles, s.load_rounds, s.seed, tick),
            _tables_of_loading,
            _goals_of_loading,
            {"warehouse_loading": _draw_loading},
            lambda settings: 1 + settings.load_rounds,
        ),
        BenchSection(
            "policies",
            "response time, staleness, missed deadlines and loaded rows of all policies under one load",
            lambda settings, tick: policies(settings.live, tick),
            _tables_of_policies,
            _goals_of_policies,
            {"warehouse_policies": _draw_policies},
            lambda settings: 1 + settings.live.policy_rounds * len(POLICIES),
        ),
        BenchSection(
            "push",
            "from publish to event, with the warehouse idle and busy",
            lambda settings, tick: push(settings.live, tick),
            _tables_of_push,
            _goals_of_push,
            {"warehouse_push": partial(draw_push, by="the warehouse does")},
            lambda settings: 1 + 3 * (1 + settings.live.push_rounds),
        ),
        BenchSection(
            "points",
            "single rows at freshness 0, directly and through a gateway",
            lambda settings, tick: points(settings.live, tick),
            _tables_of_points,
            _goals_of_points,
            steps=lambda settings: 2 + settings.live.point_rounds,
        ),
        BenchSection(
            "first",
            "what others notice of the first query on a large table",
            lambda settings, tick: first_query(settings.first_rows, settings.first_tables, settings.seed, tick),
            _tables_of_first,
            _goals_of_first,
            steps=lambda settings: settings.first_tables,
        ),
        BenchSection(
            "knapsack",
            "seconds of Pareto's knapsack",
            lambda settings, tick: knapsack_cost(tick, quick=settings.knapsack_quick),
            _tables_of_knapsack,
            _goals_of_knapsack,
        ),
    ),
)
