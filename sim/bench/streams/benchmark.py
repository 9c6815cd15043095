"""`hullcast bench streams`: its settings, sections and goals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.broker.streams.memory.bounded_join import KeepBy
from hullcast.broker.streams.runner import MICRO_BATCH
from hullcast.sim.bench.frame.benchmark import SHARED, Benchmark, BenchSection, Shown, Tick
from hullcast.sim.bench.frame.charts import Bars, draw_bars
from hullcast.sim.bench.frame.push import BUSY, push_table
from hullcast.sim.bench.frame.timing import Spread
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
from hullcast.sim.output.charts import BLUE, GREEN, GREY, ORANGE
from hullcast.sim.output.goals import Goal, share_under
from hullcast.sim.output.text import factor, middle, number, plain_table, short

if TYPE_CHECKING:
    from hullcast.sim.bench.streams.bursts import BurstSection

#: Goals.
PATH_S, JOIN_S, FILTERED_S = 500_000.0, 100_000.0, 100_000.0
DECISION_US = 1.0
OVERHEAD = 0.03
LESS_MEMORY = 2.0
#: In bursts: how many policies the study has, and those that Chain is judged against.
COMPARED, RIVALS = 4, ("fifo", "round-robin")


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


# --- goals ---------------------------------------------------------------------------------------------------------


def _goals_of_path(section: EngineSection) -> list[Goal]:
    line = section.line(micro_batch_name(MICRO_BATCH))
    return [_rate("three operators in the engine", PATH_S, line.tuples_s, f"{factor(line.ratio.median)} of NumPy's")]


def _goals_of_join(section: EngineSection) -> list[Goal]:
    goals = []
    for name, how in ((KeepBy.HEEB.name, "with HEEB, of windows twice as large"), (ALL_KEPT, "all of its windows")):
        line = section.line(name)
        aim = f"in the engine, {section.what}, {how}"
        goals.append(_rate(aim, JOIN_S, line.tuples_s, f"{factor(line.ratio.median)} of Python's"))
    return goals


def _rate(aim: str, goal: float, tuples_s: float, beside: str) -> Goal:
    return Goal(aim, f">= {short(goal)} tuples/s", f"{short(tuples_s)} ({beside})", tuples_s / goal)


def _goals_of_decisions(section: DecisionSection) -> list[Goal]:
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


def _goals_of_scheduling(loads: tuple[SchedulingLoad, ...]) -> list[Goal]:
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


def _goals_of_bursts(section: BurstSection) -> list[Goal]:
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
                exact=True,  # by a simulated clock
            )
        )
    return goals


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x"


def _goals_of_filters(section: FilterSection) -> list[Goal]:
    goals = []
    for line in section.lines:
        if line.source == TICKS and line.by_table is not None:
            aim = f"{section.filters:,} filters in {section.clients} processes, {line.wanted_by:g} for a tuple, durable"
            goals.append(_rate(aim, FILTERED_S, line.tuples_s, f"{factor(line.by_table.median)} of a table's"))
    wrong = sum(line.wrong + line.missed for line in section.lines if line.source == TICKS)
    goals.append(Goal.fact("every filter got its tuples", "all", f"{wrong:,} wrong", wrong == 0))
    return goals


def _goals_of_derived(section: StreamJoinSection) -> list[Goal]:
    wrong = section.joined.wrong
    return [Goal.fact("a join in a server has the results of a plain one", "all", f"{wrong:,} wrong", wrong == 0)]


# --- tables --------------------------------------------------------------------------------------------------------


def _quartiles(of: Spread) -> str:
    return f"{of.median:.2f}x ({of.q1:.2f} to {of.q3:.2f})"


def _tables_of_engine(section: EngineSection) -> Iterator[Shown]:
    title = f"{section.what}; {short(section.tuples)} tuples"
    table = plain_table(title, "", "tuples/s", "results", "deciding", "its time / ours")
    for line in section.lines:
        cells = (short(line.tuples_s), f"{line.results:,}", f"{line.deciding:.1%}", _quartiles(line.ratio))
        table.add_row(line.name, *cells)
    table.add_row(f"beside: {section.baseline}", short(section.baseline_tuples_s), "", "", "")
    yield table


def _tables_of_decisions(section: DecisionSection) -> Iterator[Shown]:
    title = f"decisions: us of CPU an arrival, {section.kept:,} tuples kept of windows twice as large"
    table = plain_table(title, "streams", "policy", "us", "- unbounded", "- RAND", "results")
    for stream in section.streams:
        told = f"{stream.stream} (taken for {stream.model})"
        table.add_row(told, "no bound, as many", f"{stream.unbounded_us:.2f}", "", "", "")
        for line in stream.lines:
            more = (f"{line.more_than_unbounded_us:.2f}", f"{line.more_than_rand_us:.2f}")
            table.add_row("", line.policy, f"{line.us:.2f}", *more, f"{line.produced:.0%}")
    yield table
    yield (
        "Results: of those of the same windows without a bound. Each arrival is a decision, once memory is full; "
        "fitting models is part of HEEB's."
    )


def _tables_of_scheduling(loads: tuple[SchedulingLoad, ...]) -> Iterator[Shown]:
    table = plain_table("scheduling: time of steps", "load", "policy", "deciding", "us a step", "/ fixed order")
    for load in loads:
        for place, line in enumerate(load.lines):
            head = load.case.name if place == 0 else ""
            cells = (f"{line.deciding:.1%}", f"{line.step_us:.1f}", _quartiles(line.by_fixed_order))
            table.add_row(head, line.policy, *cells)
    yield table
    yield (
        "Deciding: the part of the time of steps outside of operators. Fixed order: the same operators, one after the "
        "other, without a policy. Of so few tuples at once as in the last load, the goal is not asked."
    )


def _tables_of_bursts(section: BurstSection) -> Iterator[Shown]:
    title = f"bursts: tuples that wait, four operators, {short(section.tuples)} tuples a draw, medians"
    table = plain_table(title, "policy", "peak", "average", "peak / chain", "simulator: peak", "peak / chain")
    for line in section.lines:
        mine, simulated = (section.ratios(line.policy, simulated=one) for one in (False, True))
        found = line.middle
        cells = (middle(mine, _times), short(found.simulated_peak), middle(simulated, _times))
        table.add_row(line.policy, short(found.peak), short(found.average), *cells)
    yield table
    yield (
        "The runner that ships, with its micro-batches, turns and measured charts, by a simulated clock. At the peak "
        "of a burst more comes than even the best operators can take: that waits under every policy."
    )


def _tables_of_filters(section: FilterSection) -> Iterator[Shown]:
    title = f"{section.filters:,} filters in {section.clients} client processes, {section.gateways} gateways"
    table = plain_table(
        title, "", "filters\na tuple", "tuples/s", "receipts/s", "/ table", "server", "nodes", "clients"
    )
    for line in section.lines:
        cores = (f"{line.cores[name]:.2f}" for name in ("server", "nodes", "clients"))
        ratio = "" if line.by_table is None else _quartiles(line.by_table)
        rates = (short(line.tuples_s), short(line.acknowledged_s))
        table.add_row("stream" if line.source == TICKS else "table", f"{line.wanted_by:g}", *rates, ratio, *cores)
    yield table
    yield (
        "Tuples/s: until the last client had the last one. On the right: cores in use by kind of process. The table "
        "has 10,000 rows, which the same rows replace: what leaves a selection is sent, too, and of several changes of "
        "a selection a slow reader takes the last."
    )


def _tables_of_derived(section: StreamJoinSection) -> Iterator[Shown]:
    table, joined = plain_table(f"a join in a server, windows of {section.window:,} rows each", "", ""), section.joined
    table.add_row("tuples/s, until their last result is heard", short(joined.tuples_s))
    table.add_row("results/s", short(joined.results_s))
    table.add_row("the same publishes where nobody joins, tuples/s", short(section.plain_tuples_s))
    table.add_row("with the join / without", _quartiles(section.ratio))
    table.add_row("cores: server, streams process", f"{joined.server_cores:.2f}, {joined.streams_cores:.2f}")
    table.add_row(f"latency of results at {short(section.rate)} tuples/s, p50 ms", number(section.p50_ms))
    table.add_row("p99 ms", number(section.p99_ms))
    yield table
    yield push_table(section.push.phases, f"{short(section.rate)} tuples/s", "join", "streams")
    busy = section.push.phase(BUSY)
    yield (
        f"Beside the join a MAX subscription hears of a publish after {busy.p50_ratio:.2f}x the time (p50). Results of "
        "the join, here about as many as there are tuples, are tuples, too: the server writes and delivers them. "
        f"Contended: no join, but plain processes as nice ({section.push.nice}) that take as much CPU as the streams "
        f"process. On the right: cores in use, of {section.push.cores}."
    )


# --- pictures ------------------------------------------------------------------------------------------------------


def _draw_engine(section: EngineSection, target: Path, *, goal: float) -> Path:
    names = [*(line.name for line in section.lines), section.baseline]
    rates = [*(line.tuples_s for line in section.lines), section.baseline_tuples_s]
    shares = [*(line.tuples_s / goal for line in section.lines), nan]
    panels = (Bars("tuples a second", rates, GREEN, log=True), Bars("times the goal", shares))
    return draw_bars(target, f"the engine alone: {section.what}", names, panels)


def _draw_decisions(section: DecisionSection, target: Path) -> Path:
    title = f"a bounded join of {short(section.kept)} tuples: microseconds an arrival (dotted: the goal)"
    names = ["no bound", *(line.policy for line in section.streams[0].lines)]
    panels = [
        Bars(
            stream.stream,
            [stream.unbounded_us, *(line.us for line in stream.lines)],
            ORANGE,
            goal=stream.unbounded_us + DECISION_US,
        )
        for stream in section.streams
    ]
    return draw_bars(target, title, names, panels)


def _draw_scheduling(loads: tuple[SchedulingLoad, ...], target: Path) -> Path:
    names = [line.policy for line in loads[0].lines]
    panels = [Bars(load.case.name, [100 * line.deciding for line in load.lines], goal=100 * OVERHEAD) for load in loads]
    return draw_bars(target, "scheduling: % of the time of steps (dotted: the goal)", names, panels)


def _draw_bursts(section: BurstSection, target: Path) -> Path:
    found = [line.middle for line in section.lines]
    panels = (
        Bars("peak, the runner", [one.peak for one in found], GREEN),
        Bars("average, the runner", [one.average for one in found], BLUE),
        Bars("peak, the simulator", [one.simulated_peak for one in found], GREY),
    )
    title = "four operators on bursts: tuples that wait, medians of draws"
    return draw_bars(target, title, [line.policy for line in section.lines], panels)


def _draw_filters(section: FilterSection, target: Path) -> Path:
    names = [f"{'stream' if line.source == TICKS else 'table'}, {line.wanted_by:g} a tuple" for line in section.lines]
    rates = [line.tuples_s for line in section.lines]
    panels = (Bars("tuples a second (dotted: the goal)", rates, GREEN, goal=FILTERED_S),)
    title = f"{short(section.filters)} filters, {section.clients} client processes"
    return draw_bars(target, title, names, panels, room=1)


def _draw_derived(section: StreamJoinSection, target: Path) -> Path:
    pushes = [f"push p50, {phase.name}" for phase in section.push.phases]
    names = ["with the join", "nobody joins", "results p50", "results p99", *pushes]
    times = [section.p50_ms, section.p99_ms, *(phase.p50_ms for phase in section.push.phases)]
    panels = (
        Bars("tuples a second", [section.joined.tuples_s, section.plain_tuples_s, *[nan] * len(times)], GREEN),
        Bars(f"ms, at {short(section.rate)} tuples/s", [nan, nan, *times], ORANGE),
    )
    return draw_bars(target, "a join of two streams in a server", names, panels)


# --- the benchmark -------------------------------------------------------------------------------------------------


def _bursts(settings: StreamBenchSettings, tick: Tick) -> BurstSection:
    from hullcast.sim.bench.streams.bursts import bursts  # the load of a study: it imports Spark

    return bursts(settings.burst_arrivals, settings.burst_draws, settings.seed, tick)


STREAMS = Benchmark(
    name="streams",
    about="tuples a second through operators and joins, policies and their cost, and live streams",
    description="Measures a path and window joins in the engine, decisions of HEEB and of schedulers, queue memory on "
    "bursts, many filters over a stream and a join of two streams; the last two with real servers on disk.",
    full=FULL_STREAMS,
    quick=QUICK_STREAMS,
    quick_about="fewer tuples and rounds: about two minutes",
    head=lambda settings: SHARED,
    needs_spark=True,  # its load is that of a study
    sections=(
        BenchSection(
            "path",
            "tuples a second through three operators, in the engine, beside NumPy",
            lambda settings, tick: path(settings.path_tuples, settings.rounds, settings.seed, tick),
            _tables_of_engine,
            _goals_of_path,
            {"streams_path": partial(_draw_engine, goal=PATH_S)},
            lambda settings: 1 + settings.rounds,
        ),
        BenchSection(
            "join",
            "tuples a second through window joins, in the engine, with and without bounded memory",
            lambda settings, tick: joins(settings.join, settings.rounds, settings.seed, tick),
            _tables_of_engine,
            _goals_of_join,
            {"streams_join": partial(_draw_engine, goal=JOIN_S)},
            lambda settings: 1 + settings.rounds,
        ),
        BenchSection(
            "decisions",
            "what it takes to decide which tuple a bounded join drops, by policy",
            lambda s, tick: decisions(s.kept, s.decision_arrivals, s.rounds, s.seed, tick),
            _tables_of_decisions,
            _goals_of_decisions,
            {"streams_decisions": _draw_decisions},
            lambda settings: (1 + settings.rounds) * len(DECISION_STREAMS),
        ),
        BenchSection(
            "scheduling",
            "the part of the time that is spent on deciding which operator runs, by policy",
            lambda settings, tick: scheduling(SCHEDULING_CASES, settings.rounds, settings.seed, tick),
            _tables_of_scheduling,
            _goals_of_scheduling,
            {"streams_scheduling": _draw_scheduling},
            lambda settings: (1 + settings.rounds) * len(SCHEDULING_CASES),
        ),
        BenchSection(
            "bursts",
            "peak queue memory of four operators, by policy, beside the simulator",
            _bursts,
            _tables_of_bursts,
            _goals_of_bursts,
            {"streams_bursts": _draw_bursts},
            lambda settings: settings.burst_draws * COMPARED,
        ),
        BenchSection(
            "filters",
            "tuples a second to 10,000 filters in four client processes, beside a table",
            lambda settings, tick: filters(settings.live, tick),
            _tables_of_filters,
            _goals_of_filters,
            {"streams_filters": _draw_filters},
            lambda settings: 1 + (1 + settings.live.filter_rounds) * len(FILTER_WAYS),
        ),
        BenchSection(
            "derived",
            "a join of two streams in a server: throughput, latency, and what the push path notices",
            lambda settings, tick: live_join(settings.live, tick),
            _tables_of_derived,
            _goals_of_derived,
            {"streams_derived": _draw_derived},
            lambda settings: 2 + (1 + settings.live.join_rounds) + 3 * (1 + settings.live.push_rounds),
        ),
    ),
)
