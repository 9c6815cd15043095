"""`hullcast bench streams`: all its sections as one report, and the goals."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from hullcast.broker.streams.memory.bounded_join import KeepBy
from hullcast.broker.streams.runner import MICRO_BATCH
from hullcast.sim.bench.sections import Tick, machine_and_others, show_sections, wanted_sections
from hullcast.sim.bench.streams import STREAM_SECTIONS
from hullcast.sim.bench.streams.bursts import RIVALS, BurstSection, bursts
from hullcast.sim.bench.streams.engine import (
    ALL_KEPT,
    EngineSection,
    JoinSizes,
    joins,
    micro_batch_name,
    path,
)
from hullcast.sim.bench.streams.live import (
    FILTER_WAYS,
    FilterSection,
    LiveStreamSettings,
    StreamJoinSection,
    filters,
    live_join,
)
from hullcast.sim.bench.streams.memory import DECISION_STREAMS, DecisionSection, decisions
from hullcast.sim.bench.streams.scheduling import JUDGED, SCHEDULING_CASES, SchedulingLoad, scheduling
from hullcast.sim.bench.streams.workload import TICKS
from hullcast.sim.bench.timing import Spread, process_of
from hullcast.sim.bench.warehouse.live import BUSY
from hullcast.sim.experiments.studies.streams.workload import POLICIES
from hullcast.sim.output.goals import Goal, share_under
from hullcast.sim.output.text import factor, middle, number, plain_table, short

#: Goals.
PATH_S, JOIN_S, FILTERED_S = 500_000.0, 100_000.0, 100_000.0
DECISION_US = 1.0
OVERHEAD = 0.03
LESS_MEMORY = 2.0


@dataclass(frozen=True, slots=True)
class StreamBenchSettings:
    """Sizes. More rounds: steadier medians."""

    path_tuples: int = 1_000_000
    join: JoinSizes = field(default_factory=JoinSizes)
    decision_arrivals: int = 200_000
    kept: int = 10_000
    rounds: int = 5  # of all sections in the engine
    burst_arrivals: int = 20_000
    burst_draws: int = 5
    live: LiveStreamSettings = field(default_factory=LiveStreamSettings)
    seed: int = 0


FULL_STREAMS = StreamBenchSettings()
QUICK_STREAMS = StreamBenchSettings(
    path_tuples=300_000,
    join=JoinSizes(tuples=100_000, warm=60_000, plain=40_000),
    decision_arrivals=40_000,
    rounds=2,
    burst_arrivals=4_000,
    burst_draws=3,
    live=LiveStreamSettings(
        filter_s=2.0, filter_rounds=1, join_s=2.0, join_rounds=1, latency_s=3.0, push_s=1.5, push_rounds=3
    ),
)


@dataclass(frozen=True, slots=True)
class StreamBenchReport:
    """Everything that was measured. A section is None when it was not asked for."""

    machine: dict[str, Any]
    settings: StreamBenchSettings
    path: EngineSection | None
    join: EngineSection | None
    decisions: DecisionSection | None
    scheduling: tuple[SchedulingLoad, ...] | None
    bursts: BurstSection | None
    filters: FilterSection | None
    derived: StreamJoinSection | None
    goals: tuple[Goal, ...]


def run_streams(
    settings: StreamBenchSettings, only: Collection[str] = (), tick: Tick = lambda what: None
) -> StreamBenchReport:
    """Measure the sections asked for, all if none is named."""
    wanted = wanted_sections(only, STREAM_SECTIONS)
    process_of()  # or CPU time cannot be measured; better said before measuring than after
    here = machine_and_others()
    rounds, seed = settings.rounds, settings.seed
    on_path = path(settings.path_tuples, rounds, seed, tick) if "path" in wanted else None
    joined = joins(settings.join, rounds, seed, tick) if "join" in wanted else None
    sizes = (settings.kept, settings.decision_arrivals, rounds, seed)
    decided = decisions(*sizes, tick) if "decisions" in wanted else None
    scheduled = scheduling(SCHEDULING_CASES, rounds, seed, tick) if "scheduling" in wanted else None
    burst = bursts(settings.burst_arrivals, settings.burst_draws, seed, tick) if "bursts" in wanted else None
    filtered = asyncio.run(filters(settings.live, tick)) if "filters" in wanted else None
    derived = asyncio.run(live_join(settings.live, tick)) if "derived" in wanted else None
    goals = [
        *(_of_path(on_path) if on_path else ()),
        *(_of_join(joined) if joined else ()),
        *(_of_decisions(decided) if decided else ()),
        *(_of_scheduling(scheduled) if scheduled else ()),
        *(_of_bursts(burst) if burst else ()),
        *(_of_filters(filtered) if filtered else ()),
        *(_of_derived(derived) if derived else ()),
    ]
    sections = (on_path, joined, decided, scheduled, burst, filtered, derived)
    return StreamBenchReport(here, settings, *sections, tuple(goals))


def stream_steps(settings: StreamBenchSettings, only: Collection[str] = ()) -> int:
    """How many times `run_streams` will tick."""
    live, turns = settings.live, 1 + settings.rounds
    counts = {
        "path": turns,
        "join": turns,
        "decisions": turns * len(DECISION_STREAMS),
        "scheduling": turns * len(SCHEDULING_CASES),
        "bursts": settings.burst_draws * len(POLICIES),
        "filters": 1 + (1 + live.filter_rounds) * len(FILTER_WAYS),
        "derived": 2 + (1 + live.join_rounds) + 3 * (1 + live.push_rounds),
    }
    return sum(counts[name] for name in (set(only) or counts))


# --- goals ---------------------------------------------------------------------------------------------------------


def _of_path(section: EngineSection) -> list[Goal]:
    line = section.line(micro_batch_name(MICRO_BATCH))
    return [_rate("three operators in the engine", PATH_S, line.tuples_s, f"{factor(line.ratio.median)} of NumPy's")]


def _of_join(section: EngineSection) -> list[Goal]:
    goals = []
    for name, how in ((KeepBy.HEEB.name, "with HEEB, of windows twice as large"), (ALL_KEPT, "all of its windows")):
        line = section.line(name)
        aim = f"window join in the engine that keeps {section.kept:,} tuples, {how}"
        goals.append(_rate(aim, JOIN_S, line.tuples_s, f"{factor(line.ratio.median)} of Python's"))
    return goals


def _rate(aim: str, goal: float, tuples_s: float, beside: str) -> Goal:
    return Goal(aim, f">= {short(goal)} tuples/s", f"{short(tuples_s)} ({beside})", tuples_s / goal)


def _of_decisions(section: DecisionSection) -> list[Goal]:
    goals = []
    for stream in section.streams:
        line = stream.line(KeepBy.HEEB.name)
        more = line.more_than_unbounded_us
        beside = f"{line.more_than_rand_us:.2f} us more than RAND, which takes {stream.line('RAND').us:.2f}"
        goals.append(
            Goal(
                f"HEEB's decision, {stream.stream} streams, {section.kept:,} kept",
                f"< {DECISION_US:g} us a tuple",
                f"{more:.2f} us ({beside})",
                share_under(more, DECISION_US),
            )
        )
    return goals


def _of_scheduling(loads: tuple[SchedulingLoad, ...]) -> list[Goal]:
    return [
        Goal(
            f"scheduling, {line.policy}, {load.case.name}",
            f"< {OVERHEAD:.0%} of the time",
            f"{line.deciding:.1%} ({line.step_us:.1f} us a step)",
            share_under(line.deciding, OVERHEAD),
        )
        for load in loads[:JUDGED]
        for line in load.lines
    ]


def _of_bursts(section: BurstSection) -> list[Goal]:
    goals = []
    for rival in RIVALS:
        ratios, simulated = section.ratios(rival), section.ratios(rival, simulated=True)
        ratio = sorted(ratios)[len(ratios) // 2]
        goals.append(
            Goal(
                f"peak queue memory on bursts, four operators, {rival} / chain, median of {len(ratios)} draws",
                f">= {LESS_MEMORY:g}x",
                f"{middle(ratios, _times)} (simulator: {middle(simulated, _times)})",
                ratio / LESS_MEMORY,
            )
        )
    return goals


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x"


def _of_filters(section: FilterSection) -> list[Goal]:
    goals = []
    for line in section.lines:
        if line.source == TICKS and line.by_table is not None:
            aim = f"{section.filters:,} filters in {section.clients} processes, {line.wanted_by:g} for a tuple, durable"
            goals.append(_rate(aim, FILTERED_S, line.tuples_s, f"{factor(line.by_table.median)} of a table's"))
    wrong = sum(line.wrong + line.missed for line in section.lines if line.source == TICKS)
    goals.append(Goal("every filter got its tuples", "all", f"{wrong:,} wrong", float(wrong == 0)))
    return goals


def _of_derived(section: StreamJoinSection) -> list[Goal]:
    right = f"{section.wrong:,} wrong"
    return [Goal("a join in a server has the results of a plain one", "all", right, float(section.wrong == 0))]


# --- in the terminal -----------------------------------------------------------------------------------------------


def show_streams(report: StreamBenchReport, console: Console) -> None:
    """Print everything that was measured."""
    sections = (
        (report.path, _show_path),
        (report.join, _show_join),
        (report.decisions, _show_decisions),
        (report.scheduling, _show_scheduling),
        (report.bursts, _show_bursts),
        (report.filters, _show_filters),
        (report.derived, _show_derived),
    )
    show_sections(report.machine, sections, report.goals, console)


def _quartiles(of: Spread) -> str:
    return f"{of.median:.2f}x ({of.q1:.2f} to {of.q3:.2f})"


def _show_path(section: EngineSection, console: Console) -> None:
    title = f"path: selection, projection, join with a table; {short(section.tuples)} tuples"
    _show_engine(section, console, title, "NumPy's time / ours")


def _show_join(section: EngineSection, console: Console) -> None:
    title = f"window join, {section.kept:,} tuples kept; {short(section.tuples)} tuples"
    _show_engine(section, console, title, "Python's time / ours")


def _show_engine(section: EngineSection, console: Console, title: str, ratio: str) -> None:
    table = plain_table(title, "", "tuples/s", "results", "deciding", ratio)
    for line in section.lines:
        cells = (short(line.tuples_s), f"{line.results:,}", f"{line.deciding:.1%}", _quartiles(line.ratio))
        table.add_row(line.name, *cells)
    table.add_row(section.baseline, short(section.baseline_tuples_s), "", "", "")
    console.print(table)


def _show_decisions(section: DecisionSection, console: Console) -> None:
    title = f"decisions: us of CPU an arrival, {section.kept:,} tuples kept of windows twice as large"
    table = plain_table(title, "streams", "policy", "us", "- unbounded", "- RAND", "results")
    for stream in section.streams:
        told = f"{stream.stream} (taken for {stream.model})"
        table.add_row(told, "no bound, as many", f"{stream.unbounded_us:.2f}", "", "", "")
        for line in stream.lines:
            more = (f"{line.more_than_unbounded_us:.2f}", f"{line.more_than_rand_us:.2f}")
            table.add_row("", line.policy, f"{line.us:.2f}", *more, f"{line.produced:.0%}")
    console.print(table)
    console.print(
        "Results: of those of the same windows without a bound. Each arrival is a decision, once memory is full; "
        "fitting models is part of HEEB's.",
        style="dim",
    )


def _show_scheduling(loads: tuple[SchedulingLoad, ...], console: Console) -> None:
    table = plain_table("scheduling: time of steps", "load", "policy", "deciding", "us a step", "/ fixed order")
    for load in loads:
        for place, line in enumerate(load.lines):
            head = load.case.name if place == 0 else ""
            cells = (f"{line.deciding:.1%}", f"{line.step_us:.1f}", _quartiles(line.by_fixed_order))
            table.add_row(head, line.policy, *cells)
    console.print(table)
    console.print(
        "Deciding: the part of the time of steps outside of operators. Fixed order: the same operators, one after the "
        "other, without a policy. Of so few tuples at once as in the last load, the goal is not asked.",
        style="dim",
    )


def _show_bursts(section: BurstSection, console: Console) -> None:
    title = f"bursts: tuples that wait, four operators, {short(section.tuples)} tuples a draw, medians"
    table = plain_table(title, "policy", "peak", "average", "peak / chain", "simulator: peak", "peak / chain")
    for line in section.lines:
        mine, simulated = (section.ratios(line.policy, simulated=one) for one in (False, True))
        cells = (middle(mine, _times), short(line.simulated_peak), middle(simulated, _times))
        table.add_row(line.policy, short(line.peak), short(line.average), *cells)
    console.print(table)
    console.print(
        "The runner that ships, with its micro-batches, turns and measured charts, by a simulated clock. At the peak "
        "of a burst more comes than even the best operators can take: that waits under every policy.",
        style="dim",
    )


def _show_filters(section: FilterSection, console: Console) -> None:
    title = f"{section.filters:,} filters in {section.clients} client processes, {section.gateways} gateways"
    table = plain_table(
        title, "", "filters\na tuple", "tuples/s", "receipts/s", "/ table", "server", "nodes", "clients"
    )
    for line in section.lines:
        cores = (f"{line.cores[name]:.2f}" for name in ("server", "nodes", "clients"))
        ratio = "" if line.by_table is None else _quartiles(line.by_table)
        rates = (short(line.tuples_s), short(line.acknowledged_s))
        table.add_row("stream" if line.source == TICKS else "table", f"{line.wanted_by:g}", *rates, ratio, *cores)
    console.print(table)
    console.print(
        "Tuples/s: until the last client had the last one. On the right: cores in use by kind of process. The table "
        "has 10,000 rows, which the same rows replace: what leaves a selection is sent, too, and of several changes of "
        "a selection a slow reader takes the last.",
        style="dim",
    )


def _show_derived(section: StreamJoinSection, console: Console) -> None:
    table = plain_table(f"a join in a server, windows of {section.window:,} rows each", "", "")
    table.add_row("tuples/s, until their last result is heard", short(section.tuples_s))
    table.add_row("results/s", short(section.results_s))
    table.add_row("the same publishes where nobody joins, tuples/s", short(section.plain_tuples_s))
    table.add_row("with the join / without", _quartiles(section.ratio))
    table.add_row("cores: server, streams process", f"{section.server_cores:.2f}, {section.streams_cores:.2f}")
    table.add_row(f"latency of results at {short(section.rate)} tuples/s, p50 ms", number(section.p50_ms))
    table.add_row("p99 ms", number(section.p99_ms))
    console.print(table)
    console.print()
    title = f"push path: ms from publish to event, beside {short(section.rate)} tuples/s"
    push = plain_table(title, "join", "p50", "p99", "p50/idle", "p99/idle", "server", "streams", "machine")
    for phase in section.pushes:
        cores = (f"{phase.server_cores:.2f}", f"{phase.warehouse_cores:.2f}", f"{phase.machine_cores:.2f}")
        ratios = (f"{phase.p50_ratio:.2f}x", f"{phase.p99_ratio:.2f}x")
        push.add_row(phase.name, number(phase.p50_ms), number(phase.p99_ms), *ratios, *cores)
    console.print(push)
    busy = section.push(BUSY)
    console.print(
        f"Beside the join a MAX subscription hears of a publish after {busy.p50_ratio:.2f}x the time (p50). Results of "
        "the join, here about as many as there are tuples, are tuples, too: the server writes and delivers them. "
        f"Contended: no join, but plain processes as nice ({section.nice}) that take as much CPU as the streams "
        f"process. On the right: cores in use, of {section.cores}.",
        style="dim",
    )
