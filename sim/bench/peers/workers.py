"""The processes of `bench peers`: one publishes, others hold connections, for any peer."""

from __future__ import annotations

import asyncio
import selectors
import sys
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np

from hullcast.sim.bench.frame.worker import tasks_served
from hullcast.sim.bench.peers.catalogue import publisher_of, subscriber_of
from hullcast.sim.bench.peers.interface import Facts, Part, PeerPublisher, Sampler, Seen, Subscriber
from hullcast.sim.bench.peers.workload import Call, Job

#: A publisher that is so late gives up: the peer does not take that rate.
LATE_S = 3.0


class PeerWorker:
    """Both ends; a process opens the one it is for, or both for a peer that lives in one process."""

    def __init__(self) -> None:
        self._job: Job | None = None
        self._subscriber: Subscriber | None = None
        self._publisher: PeerPublisher | None = None
        self._sampler = Sampler()
        self._published = 0
        self._calls: list[tuple[int, int]] = []  # number of the first update, and when it was due or sent

    async def subscribe(
        self, peer: str, facts: Facts, folder: str, connections: list[int], total: int
    ) -> dict[str, Any]:
        """Open these connections, of so many in all."""
        job = Job.load(Path(folder) / "job.npz")
        part = Part(job, connections, total, self._sampler, Seen(Path(folder) / "progress", total))
        self._subscriber = subscriber_of(peer, facts, part)
        await self._subscriber.open()
        return {}

    async def connect(self, peer: str, facts: Facts, folder: str, total: int) -> dict[str, Any]:
        """Open the publishing end."""
        self._job = Job.load(Path(folder) / "job.npz")
        self._publisher = publisher_of(peer, facts, Seen(Path(folder) / "progress", total), self._subscriber)
        await self._publisher.open()
        return {}

    async def fast(self, seconds: float, rows: int, path: str) -> dict[str, Any]:
        """Publish as fast as there is room, for so long."""
        publisher, until = self._opened(), monotonic_ns() + int(1e9 * seconds)
        began = monotonic_ns()
        for call in self._all_calls(rows):
            sent = monotonic_ns()
            if sent >= until:
                break
            await publisher.send(call, wait=True)
            self._sent(call, sent)
        return await self._finished(publisher, began, path)

    async def offered(self, seconds: float, rows: int, rate: float, path: str) -> dict[str, Any]:
        """Publish when it is due, whether or not there is room, until it makes no sense any more."""
        publisher, step = self._opened(), int(1e9 * rows / rate)
        began = monotonic_ns()
        due, lateness = began, 0
        for call in self._all_calls(rows):
            if due >= began + 1e9 * seconds or lateness > 1e9 * LATE_S:
                break
            await asyncio.sleep(max(0, due - monotonic_ns()) / 1e9)  # others have their turn, however late we are
            await publisher.send(call, wait=False)
            lateness = monotonic_ns() - due
            self._sent(call, due)
            due += step
        return {**await self._finished(publisher, began, path), "due": due - step, "gave_up": lateness > 1e9 * LATE_S}

    def _opened(self) -> PeerPublisher:
        assert self._publisher is not None, "connect comes first"
        self._calls = []
        return self._publisher

    def _all_calls(self, rows: int) -> Any:
        assert self._job is not None, "connect comes first"
        return self._job.calls(self._published, rows)

    def _sent(self, call: Call, when: int) -> None:
        self._calls.append((call.first, when))
        self._published = call.end

    async def _finished(self, publisher: PeerPublisher, began: int, path: str) -> dict[str, Any]:
        await publisher.flush()
        np.save(path, np.array(self._calls, np.int64).reshape(-1, 2))
        return {"began": began, "published": self._published, "calls": len(self._calls)}

    async def sample(self) -> dict[str, Any]:
        """Remember from now on when each update was heard of."""
        self._sampler.take()
        self._sampler.on = True
        return {}

    async def samples(self, path: str) -> dict[str, Any]:
        """Write them to a file, and stop."""
        self._sampler.on = False
        times, updates = self._sampler.take()
        np.savez(path, time=times, update=updates)
        return {}

    async def drained(self, published: int) -> dict[str, Any]:
        """Wait until all connections have so many updates."""
        assert self._subscriber is not None, "subscribe comes first"
        return {"now": await self._subscriber.drained(published)}

    async def answers(self, path: str) -> dict[str, Any]:
        """Write all answers to a file, connection by connection."""
        assert self._subscriber is not None, "subscribe comes first"
        np.save(path, np.concatenate(await self._subscriber.answers()))
        return {}

    async def close(self) -> None:
        """Hang up."""
        for end in {id(end): end for end in (self._publisher, self._subscriber) if end is not None}.values():
            await end.close()


if __name__ == "__main__":
    # epoll's timeouts are whole milliseconds, select's are not: a publisher that keeps a rate needs them finer.
    precise = sys.argv[1] == "publisher"
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector()) if precise else asyncio.new_event_loop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(tasks_served(PeerWorker()))
