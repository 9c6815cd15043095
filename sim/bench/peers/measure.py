"""Measures peers in turn: starts one, runs a group of cells, judges its answers, stops it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hullcast.clients.processes.worker import Worker, ask_all
from hullcast.network.wire.arrays import Floats
from hullcast.network.wire.errors import HullcastError
from hullcast.sim.bench.frame.answers import different, minima_by_sql, range_minima
from hullcast.sim.bench.frame.benchmark import Tick
from hullcast.sim.bench.frame.stage import ages_ms, collected
from hullcast.sim.bench.frame.timing import p50_and_p99
from hullcast.sim.bench.peers import meter
from hullcast.sim.bench.peers.cells import PEERS, PROCESSES, Cell, PeerSettings, groups
from hullcast.sim.bench.peers.interface import BenchPeer, Seen
from hullcast.sim.bench.peers.report import PeerFigures, PeerLine
from hullcast.sim.bench.peers.state import ClientState
from hullcast.sim.bench.peers.workload import CREATE, RANGE_MIN, Job

WORKERS = "hullcast.sim.bench.peers.workers"
#: A peer that is this far behind when the last update was due does not keep up: a share of the time it was offered.
BEHIND = 0.1
PREPARE_S = 60.0


def peer_steps(settings: PeerSettings) -> int:
    """How often `tick` is called."""
    installed = [name for name in settings.peers or PEERS if not PEERS[name]().missing()]
    return settings.rounds * len(settings.cells) * len(installed)


async def measure_peers(settings: PeerSettings, tick: Tick) -> PeerFigures:
    """Measure all; skips peers that are not installed."""
    names = settings.peers or tuple(PEERS)
    missing = {name: PEERS[name]().missing() for name in names}
    skipped = {name: why for name, why in missing.items() if why}
    lines: list[PeerLine] = []
    for cells in groups(settings.cells):
        subscriptions, _, _ = cells[0].setup
        job = Job.drawn(rows=settings.rows, updates=settings.updates, subscriptions=subscriptions, seed=settings.seed)
        ClientState(job.start, job.capacity, job.low[:1], job.high[:1])  # compiled once, before clients load it
        for number in range(settings.rounds):
            for name in (name for name in names if name not in skipped):
                with tempfile.TemporaryDirectory(prefix="hullcast-peers-", ignore_cleanup_errors=True) as folder:
                    run = PeerRun(PEERS[name](), settings, job, cells, Path(folder), number)
                    lines += await run.measured(tick)
    return PeerFigures(settings, skipped, tuple(lines))


@dataclass(slots=True)
class PeerRun:
    """One peer, from its start to its stop."""

    peer: BenchPeer
    settings: PeerSettings
    job: Job
    cells: Sequence[Cell]
    folder: Path
    number: int  # of the round

    async def measured(self, tick: Tick) -> list[PeerLine]:
        """All cells; one that fails says why, and those after it are not tried."""
        lines: list[PeerLine] = []
        left_out = ""
        setting_up = _Setup(self)
        try:
            for cell in self.cells:
                tick(f"{cell.name}: {self.peer.title}")
                if left_out:
                    lines.append(PeerLine.failure(self.peer.name, cell, self.number, left_out))
                    continue
                try:
                    if not lines:
                        await setting_up.start()
                    lines.append(await setting_up.measure(cell))
                except (HullcastError, TimeoutError) as error:
                    why = str(error) or f"not done after {PREPARE_S:g} s"
                    lines.append(PeerLine.failure(self.peer.name, cell, self.number, why))
                    left_out = f"not tried, because {cell.name} failed"
            if lines and not lines[-1].failed:
                wrong = await setting_up.judge_by_sql()
                lines[-1] = replace(lines[-1], wrong=max(lines[-1].wrong, wrong))
        finally:
            await setting_up.stop()
        return lines


class _Setup:
    """A started peer with its publisher and clients."""

    def __init__(self, run: PeerRun) -> None:
        self._run, self._peer, self._job = run, run.peer, run.job
        self._folder, self._settings = run.folder, run.settings
        self._publisher: Worker | None = None
        self._clients: list[Worker] = []
        self._published = 0

    @property
    def publisher(self) -> Worker:
        assert self._publisher is not None, "start comes first"
        return self._publisher

    @property
    def subscribers(self) -> list[Worker]:
        """The processes with subscriptions."""
        return [self.publisher] if self._peer.in_process else self._clients

    async def start(self) -> None:
        """Start everything, and have all first answers."""
        _, connections, durable = self._run.cells[0].setup
        self._job.save(self._folder / "job.npz")
        Seen(self._folder / "progress", connections, create=True)
        self._publisher = await Worker.start("publisher", WORKERS, "publisher")
        processes = 0 if self._peer.in_process else min(PROCESSES, connections)
        for number in range(processes):
            self._clients.append(await Worker.start(f"client-{number + 1}", WORKERS, "client"))
        facts = await self._peer.start(self._folder, self._job, durable=durable)
        known = {"peer": self._peer.name, "facts": facts, "folder": str(self._folder), "total": connections}
        spread = np.array_split(np.arange(connections), len(self.subscribers))
        await asyncio.gather(
            *(
                worker.ask("subscribe", connections=some.tolist(), **known)
                for worker, some in zip(self.subscribers, spread, strict=True)
            )
        )
        await self.publisher.ask("connect", **known)

    async def stop(self) -> None:
        """End all processes."""
        workers = [*self._clients, *([] if self._publisher is None else [self._publisher])]
        await asyncio.gather(*(worker.stop() for worker in workers))
        await self._peer.stop()

    async def measure(self, cell: Cell) -> PeerLine:
        """Warm up, then measure one cell."""
        await self._load(cell, self._settings.warm_s)
        await ask_all(self.subscribers, "sample")
        before, published = self._read(), self._published
        said = await self._load(cell, self._settings.measured_s)
        after = self._read()
        updates = self._published - published
        seconds = (said["finished"] - said["began"]) / 1e9
        ages = await ages_ms(self._folder / "sent.npz", self.subscribers, self._folder)
        p50, p99 = p50_and_p99(ages) if len(ages) else (None, None)
        kept_up = None
        if cell.rate is not None:
            lag_s = (said["finished"] - said["due"]) / 1e9
            kept_up = not said["gave_up"] and lag_s <= max(0.1, BEHIND * self._settings.measured_s)
        return PeerLine(
            peer=self._peer.name,
            cell=cell.name,
            round=self._run.number,
            keeps=self._peer.keeps(durable=cell.durable),
            updates=updates,
            updates_s=updates / seconds,
            cpu_us=1e6 * (after.cpu_s - before.cpu_s) / updates,
            p50_ms=p50,
            p99_ms=p99,
            samples=len(ages),
            kept_up=kept_up,
            client_bytes=_each(after.client_bytes, before.client_bytes, updates),
            wire_bytes=_each(after.wire_bytes, before.wire_bytes, updates),
            peak_mb=after.peak_bytes / 1e6,
            wrong=wrong_answers(self._job, self._published, await self._answers()),
        )

    async def judge_by_sql(self) -> int:
        """How many answers SQLite gives otherwise."""
        return wrong_by_sql(self._job, self._published, await self._answers())

    async def _load(self, cell: Cell, seconds: float) -> dict[str, Any]:
        how = {"seconds": seconds, "rows": cell.rows, "path": str(self._folder / "sent.npz")}
        async with asyncio.timeout(PREPARE_S + seconds):
            if cell.rate is None:
                said = await self.publisher.ask("fast", **how)
            else:
                said = await self.publisher.ask("offered", rate=cell.rate, **how)
            self._published = said["published"]
            replies = await ask_all(self.subscribers, "drained", published=self._published)
        return {**said, "finished": max(reply["now"] for reply in replies)}

    async def _answers(self) -> Floats:
        held = await collected(self.subscribers, "answers", self._folder)
        return np.concatenate([one["answers"] for one in held])

    def _read(self) -> meter.Reading:
        return meter.read(self._peer.pids, self.publisher.pid, [client.pid for client in self._clients])


def _each(after: int | None, before: int | None, updates: int) -> float | None:
    return None if after is None or before is None else (after - before) / updates


def wrong_answers(job: Job, published: int, answers: Floats) -> int:
    """How many of all answers differ from what the rows give after so many updates, by NumPy."""
    rows = job.after(published)
    return _count(answers, range_minima(rows.risk, rows.per, job.low, job.high))


def wrong_by_sql(job: Job, published: int, answers: Floats) -> int:
    """The same, with SQLite as the judge: some seconds for 100,000 answers."""
    rows = job.after(published)
    columns = zip(rows.ids.tolist(), rows.risk.tolist(), rows.per.tolist(), strict=True)
    statements = (CREATE, "CREATE INDEX BY_RISK ON STOCK (RISK, PER)")
    return _count(answers, minima_by_sql(statements, columns, RANGE_MIN, job.low, job.high))


def _count(answers: Floats, right: Floats) -> int:
    return int(different(answers, right).sum()) if len(answers) == len(right) else len(right)
