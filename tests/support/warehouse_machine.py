"""Histories of a server with a warehouse: what is published, switched and killed is drawn.

What is asked, and how answers are judged, says the test that derives a machine from this one.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import psutil
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from hullcast.broker.warehouse.deciding.policies import POLICIES
from tests.support.answered import UpdateHistory, together
from tests.support.cluster import PATIENCE_S, PATIENT, Cluster, ProcessMember, cluster
from tests.support.queries import SEEDS

#: Short segments and many checkpoints, so that the log is cut.
OPTIONS: dict[str, Any] = {
    "segment_bytes": 64 << 10,
    "checkpoint_updates": 50,
    "warehouse_processes": 3,
    "warehouse_policy": "fifo",
}


def warehouse_of(made: Cluster) -> psutil.Process | None:
    """The process, if there is one now."""
    member = made.server
    server = psutil.Process(member.process.pid) if isinstance(member, ProcessMember) and member.process else None
    for one in (server or psutil.Process()).children():
        with suppress(psutil.Error):
            if "hullcast.broker.warehouse.process.live" in " ".join(one.cmdline()):
                return one
    return None


def kill_workers(made: Cluster, rng: Random, most: int = 2) -> int:
    """Kill some workers, whatever they do; how many."""
    warehouse = warehouse_of(made)
    workers = []
    with suppress(psutil.Error):
        workers = warehouse.children() if warehouse is not None else []
    chosen = rng.sample(workers, min(len(workers), rng.randint(1, most)))
    for worker in chosen:
        with suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
    return len(chosen)


def histories(examples: int, steps: int) -> settings:
    """As they are drawn: to shrink one would take too long."""
    return settings(max_examples=examples, stateful_step_count=steps, phases=[Phase.generate], deadline=None)


class WarehouseHistories(RuleBasedStateMachine):
    """A server in this process."""

    durable: ClassVar[bool] = True
    processes: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.folder = TemporaryDirectory()
        self.history = UpdateHistory()
        #: None while it may be one or another.
        self.policy: str | None = "fifo"
        self.failed = True

    # -- what a test says ----------------------------------------------------------------------------------------

    async def ask(self, rng: Random, questions: int) -> list[Any]:
        """Ask so many at the same time; what `judge` shall look at."""
        raise NotImplementedError

    def judge(self, answers: list[Any]) -> None:
        """Check answers; all that was published is acknowledged."""

    async def check_all(self) -> None:
        """In the end all is there."""
        raise NotImplementedError

    # -- what happens --------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, object]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(PATIENCE_S):
                await work

        self.failed = True  # unless it comes to its end
        self.runner.run(bounded())
        self.failed = False

    @property
    def data(self) -> Path:
        return Path(self.folder.name) / "data"

    @initialize(seed=SEEDS)
    def start(self, seed: int) -> None:
        self.run(self.begin(Random(seed)))

    async def begin(self, rng: Random) -> None:
        logs = Path(self.folder.name) if self.processes else None
        made = cluster(0, self.data if self.durable else None, processes=logs, link=PATIENT, **OPTIONS)
        self.cluster = await self.stack.enter_async_context(made)
        self.client = await self.stack.enter_async_context(self.cluster.client())
        await self.history.create(self.client)
        await self.publish(rng, 5)

    async def publish(self, rng: Random, batches: int) -> None:
        while batches > 0:
            at_once = rng.randint(1, min(3, batches))
            await together(*(self.history.publish(self.client, rng) for _ in range(at_once)))
            batches -= at_once

    async def meanwhile(self, rng: Random, *more: Coroutine[Any, Any, Any]) -> None:
        """Rows and questions come while something happens; those are judged when all receipts are there."""
        answers, *_ = await together(self.ask(rng, rng.randint(1, 6)), self.publish(rng, rng.randint(1, 6)), *more)
        self.judge(answers)

    @rule(seed=SEEDS)
    def change(self, seed: int) -> None:
        rng = Random(seed)
        self.run(self.publish(rng, rng.randint(1, 8)))

    @rule(seed=SEEDS)
    def change_much(self, seed: int) -> None:
        self.run(self.history.publish_much(self.client, Random(seed)))

    @rule(seed=SEEDS)
    def change_then_ask(self, seed: int) -> None:
        async def both() -> None:
            rng = Random(seed)
            await self.publish(rng, rng.randint(1, 3))
            self.judge(await self.ask(rng, rng.randint(1, 4)))

        self.run(both())

    @rule(seed=SEEDS)
    def change_and_ask(self, seed: int) -> None:
        self.run(self.meanwhile(Random(seed)))

    @rule(seed=SEEDS, name=st.sampled_from(sorted(POLICIES)))
    def switch(self, seed: int, name: str) -> None:
        async def switched() -> None:
            assert (await self.client.policy(name))["policy"] == name
            self.policy = name
            await self.meanwhile(Random(seed))

        self.run(switched())

    @rule(seed=SEEDS)
    def workers_are_killed(self, seed: int) -> None:
        rng = Random(seed)

        async def kill() -> None:
            for _ in range(rng.randint(1, 3)):
                await asyncio.sleep(rng.choice([0, 0.001, 0.01]))
                kill_workers(self.cluster, rng)

        self.run(self.meanwhile(rng, kill()))

    def teardown(self) -> None:
        try:
            self.run(self.stack.aclose() if self.failed else self.end())
        finally:
            self.runner.close()
            self.folder.cleanup()

    async def end(self) -> None:
        try:
            await self.check_all()
        finally:
            await self.stack.aclose()


class WithRestarts(WarehouseHistories):
    """The warehouse process and the server are killed, too, or stopped with a checkpoint, and come back."""

    async def disturb(self, rng: Random, trouble: Coroutine[Any, Any, None], *, quiet: bool) -> None:
        """While nothing else happens, or among rows and questions."""
        if not quiet:
            await self.meanwhile(rng, trouble)
            return
        await self.publish(rng, 2)
        await trouble
        self.judge(await self.ask(rng, 4))

    @rule(seed=SEEDS, quiet=st.booleans())
    def the_warehouse_is_killed(self, seed: int, quiet: bool) -> None:
        async def kill() -> None:
            found = warehouse_of(self.cluster)
            if found is not None:
                os.kill(found.pid, signal.SIGKILL)

        self.run(self.disturb(Random(seed), kill(), quiet=quiet))

    @rule(seed=SEEDS, quiet=st.booleans(), stopped=st.booleans())
    def the_server_starts_again(self, seed: int, quiet: bool, stopped: bool) -> None:
        async def again() -> None:
            await (self.cluster.stop_server() if stopped else self.cluster.kill("server"))
            await self.cluster.server.start()

        if self.durable:
            self.policy = None
            self.run(self.disturb(Random(seed), again(), quiet=quiet))
            self.policy = "fifo"
