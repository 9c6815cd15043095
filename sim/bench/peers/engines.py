"""What incremental engines inside the publishing process share: calls go in, answers come back.

Rows join ranges by bucket of RISK, pairs outside the range are dropped, a group for each range keeps its minimum. With
the answers comes the number of the last update that they include, in a row whose range is `COUNT`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from pathlib import Path
from time import monotonic_ns

import numpy as np

from hullcast.clients.processes.worker import WorkerFailed
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.bench.peers.interface import LOOK_S, WINDOW, BenchPeer, Facts, Part
from hullcast.sim.bench.peers.workload import Call, Job

#: Every pair of a range and a row in it is kept: of more subscriptions than this some gigabytes.
MOST = 1_000
#: Width of a bucket, for the join: a tenth of a usual range.
BUCKET = 100.0
COUNT = -1


class EnginePeer(BenchPeer):
    """Nothing to start, and nothing to stop."""

    in_process = True

    def keeps(self, *, durable: bool) -> str:
        """Neither of them writes each call to disk."""
        return "memory"

    async def start(self, folder: Path, job: Job, *, durable: bool) -> Facts:
        """Refuse what does not fit."""
        if len(job.low) > MOST:
            raise WorkerFailed(
                f"not tried: it keeps each pair of a range and a row in it; at most {MOST:,} ranges here"
            )
        return {"folder": str(folder)}


class InProcessEngine(ABC):
    """Both ends in one."""

    def __init__(self, facts: Facts, part: Part) -> None:
        self.facts, self.job = facts, part.job
        self._sampler = part.sampler
        self._answers: Floats = np.full(len(part.job.low), np.nan)
        self._changed, self._opened = False, False
        self._last = -1  # the last update of which the engine has told, and the last whose answers are all here
        self._at = -1
        self._when = 0

    @abstractmethod
    def begin(self) -> None:
        """Build the query, and have the engine run with the first rows, as update number 0."""

    @abstractmethod
    def put(self, call: Call) -> None:
        """Hand a call to the engine."""

    @abstractmethod
    def failed(self) -> str:
        """Why it runs no more, if so."""

    @abstractmethod
    async def close(self) -> None:
        """End the engine."""

    def took(self, which: Ints, answers: Floats) -> None:
        """Called by the engine: answers of these ranges, of which one may be `COUNT`."""
        counted = which == COUNT
        if counted.any():
            self._last = int(answers[counted][-1])
        self._changed |= not counted.all()
        self._answers[which[~counted]] = answers[~counted]

    def finished(self) -> None:
        """Called by the engine: all answers that belong together are here."""
        before, self._at = self._at, max(self._at, self._last)
        self._when = monotonic_ns()
        if self._changed and before >= 0:
            self._sampler.heard(self._when, np.arange(before, self._at))
        self._changed = False

    async def open(self) -> None:
        """Run the engine, and wait for the first answers; the second time there is nothing to do."""
        if not self._opened:
            self._opened = True
            self.begin()
            await self.drained(0)

    async def send(self, call: Call, *, wait: bool) -> None:
        """Hand it over."""
        if wait:
            await self.drained(call.first - max(WINDOW, 8 * len(call)))
        self.put(call)

    async def flush(self) -> None:
        """Nothing is acknowledged; `drained` waits for the answers."""
        await asyncio.sleep(0)

    async def drained(self, published: int) -> int:
        """Wait until the engine has finished with so many updates."""
        while self._at < published:
            if why := self.failed():
                raise WorkerFailed(why)
            await asyncio.sleep(LOOK_S)
        return self._when

    async def answers(self) -> list[Floats]:
        """All of them."""
        return [self._answers.copy()]


def spans(job: Job) -> tuple[Ints, Floats, Floats, Ints]:
    """Each range once for each bucket it overlaps: its number, its ends, the bucket."""
    first, last = bucket(job.low), bucket(job.high)
    which = np.repeat(np.arange(len(first)), last - first + 1)
    buckets = np.concatenate([np.arange(low, high + 1) for low, high in zip(first, last, strict=True)])
    return which, job.low[which], job.high[which], buckets


def bucket(risk: Floats) -> Ints:
    """The bucket of each RISK."""
    return np.floor(risk / BUCKET).astype(np.int64)
