"""The budget of a frame: what each stage may cost, what it costs, and what a cluster uses."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from hullcast.sim.bench.engine import machine
from hullcast.sim.bench.hop.floor import Floor, measure_floor
from hullcast.sim.bench.hop.stages import (
    NODE_DOWN,
    NODE_UP,
    PUBLISHER,
    SERVER,
    SUBSCRIBER,
    Counted,
    StageTimes,
    measure_stages,
)
from hullcast.sim.bench.live.cluster import LiveCluster, LiveSettings
from hullcast.sim.bench.timing import process_of
from hullcast.sim.traces.table51 import RANGE_MIN

#: What a stage may cost for a frame of 1 row and for one of 100, in hops of bare ZeroMQ with the same bytes, measured
#: in the same run. A hop is what the machine takes anyway, mostly to wake somebody up: so goals hold on any machine.
SIZES = (1, 100)
BUDGET: dict[str, dict[str, tuple[float, float]]] = {
    PUBLISHER: {
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

STEPS = 4


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
class HopReport:
    """Everything that was measured."""

    machine: dict[str, Any]
    settings: HopSettings
    floor: Floor
    stages: tuple[StageTimes, ...]
    counted: tuple[Counted, ...]
    lines: tuple[StageLine, ...]
    live: tuple[LiveLoad, ...]


def run_hop(settings: HopSettings, tick: Callable[[str], None] = lambda what: None) -> HopReport:
    """Measure everything; less than two minutes for the full settings."""
    process_of()  # or CPU time cannot be measured
    here = machine()
    tick("stages of a frame")
    stages, counted = measure_stages(
        settings.rows, settings.frames, table_rows=settings.table_rows, subscriptions=settings.subscriptions
    )
    tick("bare ZeroMQ, wake-ups, disk")
    sizes = {one.rows: round(one.bytes) for one in stages if one.process == NODE_DOWN}
    floor = measure_floor(sizes, settings.messages, settings.rate, settings.rounds)
    tick("a cluster of processes")
    live = asyncio.run(_live(settings, tick))
    lines = tuple(line for one in stages for line in stage_lines(one, floor))
    return HopReport(here, settings, floor, tuple(stages), tuple(counted), lines, tuple(live))


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


async def _live(settings: HopSettings, tick: Callable[[str], None]) -> list[LiveLoad]:
    loads = []
    shape = LiveSettings(
        rows=settings.table_rows,
        subscriptions=settings.subscriptions,
        clients=settings.clients,
        gateways=settings.gateways,
        prepared=100_000,
    )
    with tempfile.TemporaryDirectory(prefix="hullcast-hop-", ignore_cleanup_errors=True) as folder:
        cluster = LiveCluster(shape, Path(folder))
        try:
            await cluster.start()
            await cluster.subscribe(RANGE_MIN, settings.subscriptions)
            tick("the cluster under load")
            for rows, frames_s in zip(settings.rows, settings.live_frames_s, strict=True):
                loads.append(await _load(cluster, rows, frames_s, settings.live_s))
        finally:
            await cluster.stop()
    return loads


async def _load(cluster: LiveCluster, rows: int, frames_s: int, seconds: float) -> LiveLoad:
    how = {"rate": rows * frames_s, "batch": rows, "path": None}
    await cluster.publisher.ask("paced", updates=int(rows * frames_s * seconds / 4), **how)
    await cluster.synced()
    before = {name: used(pid) for name, pid in cluster.pids().items()}
    said = await cluster.publisher.ask("paced", updates=int(rows * frames_s * seconds), **how)
    await cluster.synced()
    published = said["updates"] / rows
    after = {name: used(pid) for name, pid in cluster.pids().items()}
    await cluster.told()  # raises if somebody lost a link
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
