"""Faults drawn by seed, and a workload that goes on while they happen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from hullcast.clients.sdk.client import Client
from hullcast.clients.sdk.subscriptions import Subscriptions
from tests.support.cluster import ROOT, SERVER, Cluster, TaskMember, server_of
from tests.support.queries import subscription
from tests.support.ranges import wait_exact
from tests.support.watching import EVERY_KIND, History, Watcher, check_answers, check_streams, settle, watch

#: What can happen to a member (or to the connections into it).
#: cut      its connections end, new ones are welcome
#: outage   its connections end, new ones are welcome after some seconds
#: stall    nothing passes for some seconds
#: restart  it stops as asked, and comes back after some seconds
#: kill     it dies without a word, and comes back after some seconds
KINDS = ("cut", "outage", "stall", "restart", "kill")

MANY = "SELECT MIN(B) FROM R WHERE A BETWEEN ? AND ?"
#: Subscriptions whose every event is judged: SQLite is asked for each of them after each update.
MOST_WATCHERS = 100
LOWS, HIGHS = (grid.ravel() for grid in np.meshgrid(np.arange(-1, 5), np.arange(-1, 5)))


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens, to whom, for how long, and how many updates later the next one comes."""

    kind: str
    member: str
    seconds: float
    updates: int


def plan(rng: Random, members: list[str], count: int) -> list[Fault]:
    """Some faults. Some are short beside the silence after which a link is lost, some are long."""
    return [
        Fault(rng.choice(KINDS), rng.choice(members), rng.choice((0.05, 0.3, 1.0, 2.0)), rng.randrange(40))
        for _ in range(count)
    ]


async def happen(fault: Fault, cluster: Cluster) -> None:
    """Let it happen, and be over."""
    member = cluster[fault.member]
    proxy = member.proxy
    match fault.kind:
        case "cut":
            proxy.cut()
        case "outage":
            proxy.refuse()
            proxy.cut()
            await asyncio.sleep(fault.seconds)
            proxy.refuse(False)
        case "stall":
            proxy.stall()
            await asyncio.sleep(fault.seconds)
            proxy.resume()
        case "restart" | "kill":
            await (member.stop() if fault.kind == "restart" else member.kill())
            await asyncio.sleep(fault.seconds)
            await member.start()
        case _:
            raise AssertionError(fault.kind)


class Workload:
    """Publishers that never stop and subscribers of every kind at several gateways, from `start` to `finish`."""

    def __init__(self, cluster: Cluster, rng: Random, pause_s: float) -> None:
        self.cluster = cluster
        self.pause_s = pause_s
        self.history = History()
        self.rng = rng
        self.watchers: list[Watcher] = []
        self.clients: list[Client] = []
        self._many: list[Subscriptions] = []
        self.resyncs_allowed = False  # set when the server itself begins anew
        self._stopping = asyncio.Event()
        self._acknowledged = asyncio.Condition()

    async def start(self, stack: AsyncExitStack) -> None:
        places: list[tuple[str, ...]] = [("g1", "g2"), ("g2", "g1"), ("g1",), (ROOT, "g1"), (SERVER,)]
        for at in places:
            here = [name for name in at if name in self.cluster.members] or [SERVER]
            self.clients.append(await stack.enter_async_context(self.cluster.client(*here)))
        await self.history.create(self.clients[0])
        for client in self.clients:
            self.watchers += await watch(client, EVERY_KIND if client is self.clients[0] else self._some(6))
            self._many.append(await client.subscribe_many(MANY, LOWS, HIGHS))

    def _some(self, count: int) -> list[Any]:
        return [subscription(self.rng) for _ in range(count)]

    async def publish(self, client: Client, rng: Random) -> None:
        """Publish until the end, a batch after the other."""
        while not self._stopping.is_set():
            await self.history.publish(client, rng)
            async with self._acknowledged:
                self._acknowledged.notify_all()
            await asyncio.sleep(self.pause_s)

    async def come_and_go(self, client: Client, rng: Random) -> None:
        """Subscribe now and then, whatever happens at the moment, and leave again."""
        while not self._stopping.is_set():
            await self.wait_acknowledged(rng.randrange(10, 40))
            (one,) = await watch(client, [subscription(rng)])
            if rng.random() < 0.5 or len(self.watchers) >= MOST_WATCHERS:
                await one.subscription.close()
            else:
                self.watchers.append(one)

    async def wait_acknowledged(self, updates: int) -> None:
        """Wait until so many more updates are acknowledged: everything works again."""
        wanted = self.history.seq + updates
        async with self._acknowledged:
            await self._acknowledged.wait_for(lambda: self.history.seq >= wanted or self._stopping.is_set())

    def stop(self) -> None:
        self._stopping.set()

    async def check(self) -> None:
        """All that was promised, after everything is over."""
        await settle(self.clients)
        if isinstance(self.cluster.server, TaskMember):
            await wait_exact(server_of(self.cluster), self.clients)
        self.history.check_complete(await self.clients[0].sync())
        check_answers(self.history, self.watchers)
        check_streams(self.history, self.watchers, resyncs_allowed=self.resyncs_allowed)
        oracle = self.history.now()
        expected = [oracle.answer(MANY, *ends) for ends in zip(LOWS.tolist(), HIGHS.tolist(), strict=True)]
        for many in self._many:
            answers = [None if np.isnan(answer) else answer for answer in many.answers.tolist()]
            assert answers == expected


@asynccontextmanager
async def workload(cluster: Cluster, rng: Random, pause_s: float = 0.0) -> AsyncIterator[Workload]:
    """A workload that runs for the length of the block; then all promises are checked.

    A publisher pauses for `pause_s` after each batch: all that is told is kept, and judged in the end.
    """
    async with AsyncExitStack() as stack:
        made = Workload(cluster, rng, pause_s)
        await made.start(stack)
        async with asyncio.TaskGroup() as tasks:
            for number, client in enumerate(made.clients[:3]):
                tasks.create_task(made.publish(client, Random(rng.random())), name=f"test.publisher {number}")
            tasks.create_task(made.come_and_go(made.clients[1], Random(rng.random())), name="test.comer")
            try:
                yield made
            finally:
                made.stop()
                async with made._acknowledged:
                    made._acknowledged.notify_all()
        await made.check()
        for client in made.clients:
            await client.close()
