"""`hullcast bench hop`: the budget of a frame: what each stage may cost, what it costs, and what a cluster uses."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from hullcast.sim.bench.frame.benchmark import Benchmark, BenchSection, Shown, Tick
from hullcast.sim.bench.frame.machine import process_of
from hullcast.sim.bench.frame.stage import PUBLISHER, BenchStage
from hullcast.sim.bench.hop.floor import Floor, measure_floor
from hullcast.sim.bench.hop.stages import (
    NODE_DOWN,
    NODE_UP,
    PROCESSES,
    SERVER,
    SUBSCRIBER,
    Counted,
    StageTimes,
    measure_stages,
)
from hullcast.sim.bench.hop.stages import PUBLISHER as PUBLISHING
from hullcast.sim.bench.live.benchmark import LiveSettings, live_stage, load_rows, subscribed
from hullcast.sim.output.charts import BLUE, DPI, GREEN, GREY, INK, ORANGE, PINK, pyplot, save
from hullcast.sim.output.text import number, plain_table
from hullcast.sim.traces.table51 import RANGE_MIN

#: What a stage may cost for a frame of 1 row and for one of 100, in hops of bare ZeroMQ with the same bytes, measured
#: in the same run. A hop is what the machine takes anyway, mostly to wake somebody up: so goals hold on any machine.
SIZES = (1, 100)
BUDGET: dict[str, dict[str, tuple[float, float]]] = {
    PUBLISHING: {
        "decode": (0.10, 0.10), "session": (0.10, 0.10), "encode": (0.10, 0.30), "work": (0.05, 0.30),
        "rest": (0.50, 0.50),
    },
    NODE_UP: {
        "decode": (0.10, 0.10), "session": (0.20, 0.20), "encode": (0.10, 0.10), "rest": (0.30, 0.30),
    },
    SERVER: {
        "decode": (0.15, 0.30), "session": (0.15, 0.15), "routing": (0.30, 0.50), "encode": (0.20, 0.40),
        "work": (0.60, 1.50), "rest": (0.80, 0.80),
    },
    NODE_DOWN: {
        "decode": (0.10, 0.10), "session": (0.10, 0.10), "routing": (0.40, 1.00), "encode": (0.10, 0.30),
        "rest": (0.10, 0.10),
    },
    SUBSCRIBER: {
        "decode": (0.10, 0.15), "session": (0.10, 0.10), "work": (0.60, 1.50), "rest": (0.50, 1.00),
    },
}  # fmt: skip
#: To hand a message over and to be woken by one: as so many times what bare ZeroMQ takes for that.
SEND, WAKE = 1.25, 1.25
#: A group through the log and back, as so many times the CPU of its sync and of two wake-ups.
LOG = 1.5


@dataclass(frozen=True, slots=True)
class HopSettings:
    """Sizes and times."""

    rows: tuple[int, ...] = SIZES  # of a frame
    frames: int = 800  # timed for each of them
    table_rows: int = 10_000
    subscriptions: int = 10_000
    messages: int = 1_500  # of bare ZeroMQ, for each size
    rate: int = 1_000  # messages/s then
    rounds: int = 3
    clients: int = 4
    gateways: int = 2
    live_frames_s: tuple[int, ...] = (1_000, 200)  # published by the cluster, for each of `rows`
    live_s: float = 4.0


FULL_HOP = HopSettings()
QUICK_HOP = HopSettings(frames=200, messages=450, live_s=1.5)


@dataclass(frozen=True, slots=True)
class StageLine:
    """One stage of one process, per update."""

    process: str
    rows: int
    stage: str
    us: float
    share: float  # of the process
    floor_us: float | None  # what the machine takes, where it takes anything
    budget_us: float
    kept: bool  # whether it stays in its budget


@dataclass(frozen=True, slots=True)
class Used:
    """What a process used so far, or between two readings; of a cluster's, per frame."""

    user_us: float
    system_us: float
    loop_us: float  # of both, the thread with the event loop; the others are ZeroMQ's and the log's
    wakes: float  # voluntary context switches, of all threads

    @property
    def us(self) -> float:
        """All of it."""
        return self.user_us + self.system_us


@dataclass(frozen=True, slots=True)
class LiveLoad:
    """A cluster of real processes under a steady load."""

    rows: int  # of a frame
    frames_s: float
    receipt_p50_ms: float
    used: dict[str, Used]  # by process


@dataclass(frozen=True, slots=True)
class HopFigures:
    """Everything that was measured."""

    floor: Floor
    stages: tuple[StageTimes, ...]
    counted: tuple[Counted, ...]
    lines: tuple[StageLine, ...]
    live: tuple[LiveLoad, ...]


async def measure_hop(settings: HopSettings, tick: Tick) -> HopFigures:
    """Measure everything; less than two minutes for the full settings."""
    tick("stages of a frame")
    stages, counted = await measure_stages(
        settings.rows, settings.frames, table_rows=settings.table_rows, subscriptions=settings.subscriptions
    )
    tick("bare ZeroMQ, wake-ups, disk")
    sizes = {one.rows: round(one.bytes) for one in stages if one.process == NODE_DOWN}
    floor = measure_floor(sizes, settings.messages, settings.rate, settings.rounds)
    tick("a cluster of processes")
    live = await _live(settings, tick)
    lines = tuple(line for one in stages for line in stage_lines(one, floor))
    return HopFigures(floor, tuple(stages), tuple(counted), lines, tuple(live))


def stage_lines(times: StageTimes, floor: Floor) -> Iterator[StageLine]:
    """The stages of a process with what they may cost. Messages come and go one by one, as at a low rate."""
    carried = floor.carried[times.rows]
    size = SIZES.index(times.rows)
    budget = {stage: hops[size] * carried.hop_us for stage, hops in BUDGET[times.process].items()}
    us, floors = dict(times.us), dict[str, float]()
    for stage, count, ours, bare, factor in (
        ("send", times.sent, carried.send_us, carried.bare_send_us, SEND),
        ("wake-up", times.received, carried.receive_us, carried.bare_receive_us, WAKE),
    ):
        us[stage], floors[stage], budget[stage] = count * ours, count * bare, factor * count * bare
    if times.process == SERVER:
        us["log"], floors["log"] = floor.log_cpu_us, floor.sync_cpu_us + 2 * floor.wake_us
        budget["log"] = LOG * floors["log"]
    whole = sum(us.values())
    for stage, spent in us.items():
        if round(spent, 1):
            limit = budget.get(stage, 0.0)
            line = (times.process, times.rows, stage, spent, spent / whole, floors.get(stage), limit)
            yield StageLine(*line, kept=spent <= limit)


# --- real processes ----------------------------------------------------------------------------------------------


async def _live(settings: HopSettings, tick: Tick) -> list[LiveLoad]:
    loads = []
    shape = LiveSettings(
        rows=settings.table_rows,
        subscriptions=settings.subscriptions,
        clients=settings.clients,
        gateways=settings.gateways,
        prepared=100_000,
    )
    async with live_stage(shape) as stage:
        await load_rows(stage, shape)
        await subscribed(stage, shape, RANGE_MIN, settings.subscriptions)
        tick("the cluster under load")
        for rows, frames_s in zip(settings.rows, settings.live_frames_s, strict=True):
            loads.append(await _load(stage, rows, frames_s, settings.live_s))
    return loads


async def _load(stage: BenchStage, rows: int, frames_s: int, seconds: float) -> LiveLoad:
    how = {"rate": rows * frames_s, "batch": rows}
    await stage.workers[PUBLISHER].ask("paced", updates=int(rows * frames_s * seconds / 4), **how)
    await stage.synced()
    before = {name: used(pid) for name, pid in stage.pids.items()}
    said = await stage.workers[PUBLISHER].ask("paced", updates=int(rows * frames_s * seconds), **how)
    await stage.synced()
    published = said["updates"] / rows
    after = {name: used(pid) for name, pid in stage.pids.items()}
    await stage.heard()  # raises if somebody lost a link
    return LiveLoad(
        rows,
        published / (said["ended"] - said["began"]) * 1e9,
        said["receipt_p50_ms"],
        {name: _per(published, before[name], after[name]) for name in before},
    )


def _per(count: float, before: Used, after: Used) -> Used:
    return Used(*((now - then) / count for now, then in zip(astuple(after), astuple(before), strict=True)))


def used(pid: int | None = None) -> Used:
    """What a process has used since it began. Linux counts switches by thread, other systems by process."""
    process = process_of(pid)
    user, system = process.cpu_times()[:2]
    threads = process.threads() if sys.platform == "linux" else []
    loop = next((1e6 * (one.user_time + one.system_time) for one in threads if one.id == process.pid), 0.0)
    wakes = sum(_switches(one.id) for one in threads) or process.num_ctx_switches().voluntary
    return Used(1e6 * user, 1e6 * system, loop, float(wakes))


def _switches(thread: int) -> int:
    import psutil

    try:
        return int(psutil.Process(thread).num_ctx_switches().voluntary)
    except psutil.Error:  # it has ended
        return 0


# --- tables and picture --------------------------------------------------------------------------------------------

COLOURS = {
    "decode": BLUE, "session": "#56B4E9", "routing": GREEN, "work": INK, "encode": PINK, "rest": GREY,
    "log": "#F0E442", "send": ORANGE, "wake-up": "#E69F00",
}  # fmt: skip


def hop_tables(found: HopFigures) -> Iterator[Shown]:
    """What the machine takes, the stages by size, and the cluster."""
    floor = found.floor
    table = plain_table("what this machine takes, us of CPU", "", *(_rows(rows) for rows in floor.carried))
    carried = floor.carried.values()
    table.add_row("bytes of a message", *(f"{one.bytes:,}" for one in carried))
    table.add_row("bare ZeroMQ, send", *(number(one.bare_send_us) for one in carried))
    table.add_row("bare ZeroMQ, receive", *(number(one.bare_receive_us) for one in carried))
    table.add_row("our sockets, send", *(number(one.send_us) for one in carried))
    table.add_row("our sockets, receive", *(number(one.receive_us) for one in carried))
    yield table
    yield (
        f"To wake a thread: {number(floor.wake_us)} us. A write and fdatasync: {number(floor.sync_us)} us of time, "
        f"{number(floor.sync_cpu_us)} of CPU; a group through the log's thread and back: {number(floor.log_us)} and "
        f"{number(floor.log_cpu_us)}."
    )
    for counted in found.counted:
        yield _stages(found, counted.rows)
        yield (
            f"Garbage collections per 10,000 frames, all processes together: {counted.collections[0]} young, "
            f"{counted.collections[1]} middle, {counted.collections[2]} full."
        )
    yield (
        "work: rows to columns (publisher), engine (server), answers (subscriber). rest: calls, checks and the turns "
        "of the loop. floor: what bare ZeroMQ or the disk takes. The budget is in hops of bare ZeroMQ. blocks: of "
        "memory, allocated in a process's part and still there at its end."
    )
    for load in found.live:
        yield _cluster(load)
    yield (
        "Per frame published. loop: the thread with the event loop; the other threads are ZeroMQ's and the log's. "
        "wake-ups: voluntary context switches of all threads."
    )


def _stages(found: HopFigures, rows: int) -> Table:
    title = f"us of CPU a frame, {_rows(rows)} each"
    table = plain_table(title, "process and stage", "us", "share", "floor", "budget", "", "blocks")
    for process in PROCESSES:
        lines = lines_of(found, process, rows)
        blocks = next(one.blocks for one in found.stages if (one.process, one.rows) == (process, rows))
        whole, budget = sum(line.us for line in lines), sum(line.budget_us for line in lines)
        verdict = _verdict(whole <= budget)
        table.add_row(f"[bold]{process}[/]", number(whole), "", "", number(budget), verdict, f"{blocks:.0f}")
        for line in lines:
            figures = (number(line.us), f"{line.share:.0%}", number(line.floor_us), number(line.budget_us))
            table.add_row(f"  {line.stage}", *figures, _verdict(line.kept), "", end_section=line is lines[-1])
    return table


def _verdict(kept: bool) -> str:
    return "[green]ok[/]" if kept else "[red]OVER[/]"


def lines_of(found: HopFigures, process: str, rows: int) -> list[StageLine]:
    """The stages of a process, the largest first."""
    lines = [line for line in found.lines if (line.process, line.rows) == (process, rows)]
    return sorted(lines, key=lambda line: -line.us)


def _cluster(load: LiveLoad) -> Table:
    title = (
        f"a cluster at {load.frames_s:,.0f} frames/s of {_rows(load.rows)}, receipt p50 {load.receipt_p50_ms:.1f} ms"
    )
    table = plain_table(title, "process", "CPU us", "user", "system", "loop", "wake-ups")
    for name, used in load.used.items():
        table.add_row(name, *map(number, (used.us, used.user_us, used.system_us, used.loop_us, used.wakes)))
    table.add_row("all", number(sum(used.us for used in load.used.values())), "", "", "", "")
    return table


def _rows(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"


def draw_hop(found: HopFigures, path: Path) -> Path:
    """Stages by size, and processes."""
    sizes = [counted.rows for counted in found.counted]
    figure, panels = pyplot().subplots(1, len(sizes) + 1, figsize=(13, 4.8), dpi=DPI, layout="constrained")
    for axes, rows in zip(panels, sizes, strict=False):
        _bars(axes, found, rows)
    _live_bars(panels[-1], found.live)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    panels[0].set_ylabel("microseconds of CPU a frame")
    figure.suptitle("What a frame costs each process (line: its budget)")
    return save(figure, path)


def _bars(axes: Any, found: HopFigures, rows: int) -> None:
    tops: list[tuple[int, float, float]] = []
    for place, process in enumerate(PROCESSES):
        lines = {line.stage: line for line in lines_of(found, process, rows)}
        bottom = 0.0
        for stage, colour in COLOURS.items():
            height = lines[stage].us if stage in lines else 0.0
            axes.bar(place, height, bottom=bottom, color=colour, width=0.65, label=stage if place == 0 else None)
            bottom += height
        budget = sum(line.budget_us for line in lines.values())
        axes.hlines(budget, place - 0.42, place + 0.42, color="black", lw=1.4)
        tops.append((place, bottom, budget))
    room = 0.06 * max(max(top, budget) for _, top, budget in tops)
    for place, top, budget in tops:  # above the line of the budget, if that would strike the number through
        axes.text(
            place, budget if top <= budget < top + room else top, f"{top:,.0f}", ha="center", va="bottom", fontsize=8.5
        )
    axes.set_xticks(range(len(PROCESSES)), [process.replace(", ", "\n") for process in PROCESSES])
    _finish(axes, f"stages, {_rows(rows)} a frame")


def _live_bars(axes: Any, loads: Sequence[LiveLoad]) -> None:
    load = loads[0]
    for place, used in enumerate(load.used.values()):
        axes.bar(place, used.user_us, color=BLUE, width=0.65, label="user" if place == 0 else None)
        label = "system" if place == 0 else None
        axes.bar(place, used.system_us, bottom=used.user_us, color=ORANGE, width=0.65, label=label)
        axes.text(place, used.us, f"{used.us:,.0f}\n{used.wakes:.1f}", ha="center", va="bottom", fontsize=7.5)
    axes.set_xticks(range(len(load.used)), list(load.used), rotation=60, fontsize=8.5)
    _finish(axes, f"real processes, {load.frames_s:,.0f} frames/s of {_rows(load.rows)}\n(below the sum: wake-ups)")
    axes.legend(frameon=False)


def _finish(axes: Any, title: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.margins(y=0.14)
    axes.grid(alpha=0.25, axis="y")
    axes.set_axisbelow(True)


HOP = Benchmark(
    name="hop",
    about="the cost of a frame in each process it passes, stage by stage",
    description="Times decoding, link session, routing, encoding, sending and wake-ups of a frame in publisher, node, "
    "server and subscriber, with 1 and 100 rows a frame, beside bare ZeroMQ for the same bytes, a thread's wake-up and "
    "a sync of the disk; then CPU and context switches of a cluster of processes. Each stage has a budget, in hops of "
    "bare ZeroMQ.",
    full=FULL_HOP,
    quick=QUICK_HOP,
    quick_about="fewer frames, shorter phases: about half a minute",
    head=lambda settings: f"Faster half of {settings.frames} frames.",
    sections=(
        BenchSection(
            "hop",
            "us of CPU a frame, by process and stage",
            measure_hop,
            hop_tables,
            pictures={"hop": draw_hop},
            steps=lambda settings: 4,
        ),
    ),
)
