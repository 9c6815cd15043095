"""The processes of `bench peers`: one publishes, others hold connections, for any peer."""

from __future__ import annotations

import asyncio
import selectors
import sys
from pathlib import Path
from time import monotonic_ns
from typing import Any

import numpy as np

from hullcast.sim.bench.frame.worker import Sampler, Told, tasks_served
from hullcast.sim.bench.peers.cells import PEERS
from hullcast.sim.bench.peers.interface import Facts, Part, PeerPublisher, Seen, Subscriber
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
        self._calls: list[tuple[int, int]] = []  # number of the last update, and when it was due or sent

    async def subscribe(self, peer: str, facts: Facts, folder: str, connections: list[int], total: int) -> None:
        """Open these connections, of so many in all."""
        job = Job.load(Path(folder) / "job.npz")
        part = Part(job, connections, total, self._sampler, Seen(Path(folder) / "progress", total))
        self._subscriber = PEERS[peer]().subscriber(facts, part)
        await self._subscriber.open()

    async def connect(self, peer: str, facts: Facts, folder: str, total: int) -> None:
        """Open the publishing end."""
        self._job, here = Job.load(Path(folder) / "job.npz"), PEERS[peer]()
        both: Any = self._subscriber if here.in_process else None
        self._publisher = both or here.publisher(facts, Seen(Path(folder) / "progress", total))
        await self._publisher.open()

    async def fast(self, seconds: float, rows: int, path: str) -> Told:
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

    async def offered(self, seconds: float, rows: int, rate: float, path: str) -> Told:
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
        self._calls.append((call.end - 1, when))
        self._published = call.end

    async def _finished(self, publisher: PeerPublisher, began: int, path: str) -> Told:
        await publisher.flush()
        last, sent = np.array(self._calls, np.int64).reshape(-1, 2).T
        np.savez(path, last=last, sent=sent)
        return {"began": began, "published": self._published}

    async def sample(self) -> None:
        """Remember from now on when each update was heard of."""
        self._sampler.begin()

    async def samples(self, path: str) -> None:
        """Write them to a file, and stop."""
        self._sampler.write(path)

    async def drained(self, published: int) -> Told:
        """Wait until all connections have so many updates."""
        assert self._subscriber is not None, "subscribe comes first"
        return {"now": await self._subscriber.drained(published)}

    async def answers(self, path: str) -> None:
        """Write all answers to a file, connection by connection."""
        assert self._subscriber is not None, "subscribe comes first"
        np.savez(path, answers=np.concatenate(await self._subscriber.answers()))

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
