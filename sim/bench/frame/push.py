"""From publish to a subscriber's event, beside something that keeps the machine busy.

Three ways take turns: at a server that nobody asks (idle), at one that does what is looked at (busy), and at the first
again beside plain processes that take as much CPU, as nice (contended).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from pathlib import Path
from statistics import median
from time import monotonic, monotonic_ns, perf_counter, sleep, thread_time

from rich.table import Table

from hullcast.clients.processes.worker import Worker
from hullcast.clients.sdk.subscription import Subscription
from hullcast.network.answers.events import Change, Event
from hullcast.sim.bench.frame.benchmark import Tick
from hullcast.sim.bench.frame.charts import Bars, draw_bars
from hullcast.sim.bench.frame.stage import BenchStage
from hullcast.sim.bench.frame.timing import MeasurementFailed, p50_and_p99
from hullcast.sim.bench.frame.worker import BenchWorker, Told, goes_on
from hullcast.sim.output.charts import ORANGE
from hullcast.sim.output.text import number, plain_table

IDLE, BUSY, CONTENDED = "idle", "busy", "contended"
#: The clients that this takes: who publishes, who listens, and plain processes.
PUSHER, HEARER, SPINNERS = "pusher", "hearer", ("spinner-1", "spinner-2")
PUSH_CLIENTS = (PUSHER, HEARER, *SPINNERS)
#: The table of pushes: the value is the moment at which it was published, so that an event tells its own age.
PUSHES = "PUSHES"
CREATE_PUSHES = f"CREATE TABLE {PUSHES} (ID INTEGER PRIMARY KEY, X REAL, SENT INTEGER)"
NEWEST = f"SELECT MAX(SENT) FROM {PUSHES} WHERE X BETWEEN 0 AND 100"
_SPIN_S = 0.002


@dataclass(frozen=True, slots=True)
class PushPhase:
    """One way, over all rounds: from publish to the subscriber's event."""

    name: str
    events: int
    p50_ms: float
    p99_ms: float
    p50_ratio: float  # by that of the idle phase of the same round, median over rounds
    p99_ratio: float
    server_cores: float
    warehouse_cores: float  # of processes below the server; of plain processes, where there are some instead
    machine_cores: float  # everything on this machine


@dataclass(frozen=True, slots=True)
class PushSection:
    """All three ways."""

    rows_s: float
    answers_s: float  # questions answered a second while it was busy
    nice: int  # of the processes below the server
    cores: int
    phases: tuple[PushPhase, ...]

    def phase(self, name: str) -> PushPhase:
        """One of them."""
        return next(phase for phase in self.phases if phase.name == name)

    def contention(self, ratio: Callable[[PushPhase], float]) -> float:
        """Which part of the growth a plain process of the same CPU time and niceness causes as well; nan: it does not
        grow."""
        grown = ratio(self.phase(BUSY)) - 1
        return min(1.0, max(0.0, (ratio(self.phase(CONTENDED)) - 1) / grown)) if grown > 0 else nan


@dataclass(frozen=True, slots=True)
class Pushed:
    """What came of one phase."""

    ms: list[float]
    answers: int
    seconds: float
    server_s: float
    warehouse_s: float
    machine_s: float


@dataclass(frozen=True, slots=True)
class PushLoad:
    """How often rows are pushed, for how long and in how many rounds; and what goes on beside it at a server, busy or
    not: `end` says how many questions were answered."""

    rate: float
    seconds: float
    rounds: int
    begin: Callable[[BenchStage, bool], Awaitable[object]]
    end: Callable[[BenchStage, bool], Awaitable[int]]
    what: str = "push path"


async def push_beside(load: PushLoad, quiet: BenchStage, asked: BenchStage, rows_s: float, tick: Tick) -> PushSection:
    """All three ways in turns. The clients are those of the first server."""
    found: dict[str, list[Pushed]] = {IDLE: [], BUSY: [], CONTENDED: []}
    nice, workers = asked.nice(), quiet.workers
    for turn in range(load.rounds + 1):
        for name, stage in ((IDLE, quiet), (BUSY, asked), (CONTENDED, quiet)):
            tick(f"{load.what}, round {turn} of {load.rounds}, {name}" if turn else f"{load.what}, {name}")
            spinners = [workers[spinner] for spinner in SPINNERS] if name == CONTENDED else []
            for spinner in spinners:
                share = found[BUSY][-1].warehouse_s / found[BUSY][-1].seconds / len(spinners)
                await spinner.ask("spin", share=min(1.0, share), nice=nice)
            pushed = await _pushed(load, stage, workers, name == BUSY)
            spun = [(await spinner.ask("end"))["cpu_s"] for spinner in spinners]
            found[name].append(replace(pushed, warehouse_s=pushed.warehouse_s + sum(spun)))
    for of in found.values():
        del of[0]  # the first round only warms up
    phases = tuple(push_phase(name, of, found[IDLE]) for name, of in found.items())
    answers_s = sum(one.answers for one in found[BUSY]) / sum(one.seconds for one in found[BUSY])
    return PushSection(rows_s, answers_s, nice, os.cpu_count() or 1, phases)


async def _pushed(load: PushLoad, stage: BenchStage, workers: dict[str, Worker], busy: bool) -> Pushed:
    await asyncio.gather(*(workers[name].ask("open", url=stage.server, name=name) for name in (PUSHER, HEARER)))
    await workers[HEARER].ask("hear")
    await load.begin(stage, busy)
    before = stage.use()
    await workers[PUSHER].ask("push", rate=load.rate, seconds=load.seconds)
    heard = await workers[HEARER].ask("end")
    used = stage.use().since(before)
    answers = await load.end(stage, busy)
    if not heard["ms"]:
        raise MeasurementFailed("no event came of all that was published")
    return Pushed(heard["ms"], answers, *used)


def push_phase(name: str, of: Sequence[Pushed], idle: Sequence[Pushed]) -> PushPhase:
    """All rounds of one way, beside those of the idle one."""
    p50, p99 = p50_and_p99([ms for one in of for ms in one.ms])
    by_round, idle_by_round = ([p50_and_p99(one.ms) for one in some] for some in (of, idle))
    seconds = sum(one.seconds for one in of)
    return PushPhase(
        name,
        sum(len(one.ms) for one in of),
        p50,
        p99,
        median(a[0] / b[0] for a, b in zip(by_round, idle_by_round, strict=True)),
        median(a[1] / b[1] for a, b in zip(by_round, idle_by_round, strict=True)),
        sum(one.server_s for one in of) / seconds,
        sum(one.warehouse_s for one in of) / seconds,
        sum(one.machine_s for one in of) / seconds,
    )


# --- how it is shown -----------------------------------------------------------------------------------------------


def push_table(phases: Sequence[PushPhase], load: str, of: str, below: str = "warehouse") -> Table:
    """The push path by what something (`of`) does; `below`: what the processes below the server are."""
    title = f"push path: ms from publish to event, beside {load}"
    table = plain_table(title, of, "p50", "p99", "p50/idle", "p99/idle", "server", below, "machine")
    for phase in phases:
        cores = (f"{phase.server_cores:.2f}", f"{phase.warehouse_cores:.2f}", f"{phase.machine_cores:.2f}")
        ratios = (f"{phase.p50_ratio:.2f}x", f"{phase.p99_ratio:.2f}x")
        table.add_row(phase.name, number(phase.p50_ms), number(phase.p99_ms), *ratios, *cores)
    return table


def contention_words(section: PushSection, busy: str) -> str:
    """What the columns are, and how much of the growth plain processes explain; a sentence says what busy means."""

    def part(ratio: Callable[[PushPhase], float]) -> str:
        share = section.contention(ratio)
        return "nothing to explain" if isnan(share) else f"{share:.0%}"

    return (
        f"On the right: cores in use, of {section.cores}. {busy} "
        f"{CONTENDED.capitalize()}: no warehouse, but plain processes as nice ({section.nice}) that ask for as much "
        f"CPU; of the growth they cause as well: p50 {part(lambda phase: phase.p50_ratio)}, "
        f"p99 {part(lambda phase: phase.p99_ratio)}."
    )


def draw_push(section: PushSection, path: Path, *, by: str) -> Path:
    """The push path by phases, that is by what something does."""
    names = [phase.name for phase in section.phases]
    middle = Bars("p50, ms", [phase.p50_ms for phase in section.phases])
    late = Bars("p99, ms", [phase.p99_ms for phase in section.phases], ORANGE)
    return draw_bars(path, f"from publish to event, by what {by}", names, (middle, late), room=2)


# --- the clients ---------------------------------------------------------------------------------------------------


class PushWorker(BenchWorker):
    """A client that pushes or hears, or only takes processor time."""

    async def hear(self) -> None:
        """Subscribe to the newest push, and note the age of each as it comes."""
        self._begin(self._note(await self.client.subscribe(NEWEST, overflow="block")), "hear")

    async def _note(self, newest: Subscription[Event]) -> Told:
        ages: list[int] = []
        async with newest:

            async def note() -> None:
                async for event in newest:
                    now = monotonic_ns()
                    if isinstance(event, Change):
                        ages.append(now - int(event.answer))

            noting = asyncio.create_task(note(), name="note")
            await self._stop.wait()
            await self.client.sync()
            await asyncio.sleep(0)
        await noting
        return {"ms": [age / 1e6 for age in ages]}

    async def push(self, rate: float, seconds: float) -> None:
        """Publish single rows, each when it is due, which say when they were sent."""
        due = monotonic()
        end = due + seconds
        async with asyncio.TaskGroup() as tasks:
            while due < end:
                await asyncio.sleep(max(0.0, due - monotonic()))
                due = max(due + 1 / rate, monotonic() - 1.0)
                row = {"ID": 1, "X": 50.0, "SENT": monotonic_ns()}
                tasks.create_task(self.client.publish(PUSHES, row), name="push")

    @goes_on
    async def spin(self, share: float, nice: int) -> Told:
        """Take a share of a processor, as nice as that."""
        os.nice(nice - os.nice(0))
        return await asyncio.to_thread(self._spin, share)

    def _spin(self, share: float) -> Told:
        began, used = perf_counter(), thread_time()
        while not self._stop.is_set():
            due = used + share * (perf_counter() - began)  # of CPU, so that time lost to others is made up for
            if thread_time() >= due:
                sleep(_SPIN_S)
        return {"cpu_s": thread_time() - used}
