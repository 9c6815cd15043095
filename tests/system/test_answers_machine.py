"""Answers of the warehouse are SQL's at their sequence numbers, and worth what they say, whatever is published,
dropped, switched or killed meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Coroutine
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import psutil
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from hullcast.broker.warehouse.files import FOLDER
from hullcast.broker.warehouse.policies import POLICIES
from hullcast.clients.sdk.client import Client
from tests.support.answered import TABLES, Answered, UpdateHistory, together
from tests.support.cluster import PATIENCE_S, PATIENT, Cluster, ProcessMember, cluster
from tests.support.queries import SEEDS

#: Short segments and many checkpoints, so that the log is cut.
OPTIONS: dict[str, Any] = {
    "segment_bytes": 64 << 10,
    "checkpoint_updates": 50,
    "warehouse_processes": 3,
    "warehouse_policy": "fifo",
}
EVERYTHING = " UNION ALL ".join(f"SELECT '{table}', count(*), sum(V) FROM {table}" for table in TABLES)
#: How long the storm lasts.
STORM_S = 20.0


def warehouse_of(made: Cluster) -> psutil.Process | None:
    """The process, if there is one now."""
    member = made.server
    server = psutil.Process(member.process.pid) if isinstance(member, ProcessMember) and member.process else None
    for one in (server or psutil.Process()).children():
        with suppress(psutil.Error):
            if "hullcast.broker.warehouse.process" in " ".join(one.cmdline()):
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


class AnswersOfTasks(RuleBasedStateMachine):
    """A server in this process."""

    durable: ClassVar[bool] = True
    processes: ClassVar[bool] = False
    kinds: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.folder = TemporaryDirectory()
        self.history = UpdateHistory()
        self.policy, self.failed = "fifo", True

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
        await self.publish(rng, 4)

    # -- what happens ------------------------------------------------------------------------------------------

    async def publish(self, rng: Random, batches: int) -> None:
        while batches > 0:
            at_once = rng.randint(1, min(3, batches))
            await together(*(self.history.publish(self.client, rng) for _ in range(at_once)))
            batches -= at_once

    async def ask(self, rng: Random, questions: int, **terms: Any) -> None:
        work = [self.history.ask(self.client, rng, policy=self.policy, **terms) for _ in range(questions)]
        self.judge(await together(*work))

    def judge(self, answers: list[Answered | None]) -> None:
        type(self).kinds += self.history.judge(answers)

    @rule(seed=SEEDS)
    def change(self, seed: int) -> None:
        rng = Random(seed)
        self.run(self.publish(rng, rng.randint(1, 5)))

    @rule(seed=SEEDS)
    def change_much(self, seed: int) -> None:
        self.run(self.history.publish_much(self.client, Random(seed)))

    @rule(seed=SEEDS)
    def ask_some(self, seed: int) -> None:
        rng = Random(seed)
        self.run(self.ask(rng, rng.randint(1, 5)))

    @rule(seed=SEEDS)
    def change_then_ask(self, seed: int) -> None:
        async def both() -> None:
            rng = Random(seed)
            await self.publish(rng, rng.randint(1, 3))
            await self.ask(rng, rng.randint(1, 4))

        self.run(both())

    @rule(seed=SEEDS)
    def change_and_ask(self, seed: int) -> None:
        self.run(self.meanwhile(Random(seed)))

    async def meanwhile(self, rng: Random, *more: Coroutine[Any, Any, Any]) -> None:
        """Rows and questions come while something happens; those are judged when all receipts are there."""
        work = [self.history.ask(self.client, rng, policy=self.policy) for _ in range(rng.randint(1, 6))]
        *answers, _ = await together(*work, self.publish(rng, rng.randint(1, 6)), *more)
        self.judge([one for one in answers if isinstance(one, Answered)])

    @rule(seed=SEEDS, table=st.sampled_from(sorted(TABLES)))
    def drop_and_create(self, seed: int, table: str) -> None:
        async def both() -> None:
            await self.history.drop(self.client, table)
            await self.history.create(self.client, [table])
            await self.ask(Random(seed), 2)

        self.run(both())

    @rule(seed=SEEDS, name=st.sampled_from(sorted(POLICIES)))
    def switch(self, seed: int, name: str) -> None:
        async def switched() -> None:
            found = await self.client.policy(name)
            assert found["policy"] == name
            self.policy = name
            await self.ask(Random(seed), 2)

        self.run(switched())

    @rule(seed=SEEDS, name=st.sampled_from(sorted(TABLES)))
    def loads_of_a_table_wait(self, seed: int, name: str) -> None:
        """Somebody has its file: rows of before are answered, and their worth is told. All tables were read before: for
        the first read of one, the others of that query are loaded, too."""
        if self.durable:
            self.run(self.hold(Random(seed), name))

    async def hold(self, rng: Random, name: str) -> None:
        found = list((self.data / FOLDER).glob(f"{name.lower()}-*.sqlite"))
        if len(found) != 1:
            return
        self.judge([await self.history.answer(self.client, EVERYTHING, (), tuple(TABLES), {})])
        with closing(sqlite3.connect(found[0], isolation_level=None, timeout=PATIENCE_S)) as other:
            other.execute("BEGIN IMMEDIATE")
            await self.publish(rng, rng.randint(1, 5))
            await self.ask(rng, 3, freshness=0.0, read_set=None)
            await self.ask(rng, 1, freshness=1.0, deadline=0.05)
            await self.ask(rng, 1, freshness=0.0, read_set="consistent", deadline=0.05)
            other.execute("ROLLBACK")

    # -- what breaks -------------------------------------------------------------------------------------------

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
        """In the end all is there."""
        try:
            for table in TABLES:
                self.judge([await self.history.answer(self.client, f"SELECT * FROM {table}", (), (table,), {})])
        finally:
            await self.stack.aclose()


class AnswersInMemory(AnswersOfTasks):
    """A server without a data directory."""

    durable = False


class AnswersAndRestarts(AnswersOfTasks):
    """The warehouse process and the server are killed, too, and come back from the files; that takes seconds."""

    @rule(seed=SEEDS, quiet=st.booleans())
    def the_warehouse_is_killed(self, seed: int, quiet: bool) -> None:
        rng = Random(seed)

        async def kill() -> None:
            found = warehouse_of(self.cluster)
            if found is not None:
                os.kill(found.pid, signal.SIGKILL)

        async def quietly() -> None:
            await self.publish(rng, 2)
            await kill()
            await self.ask(rng, 4)

        self.run(quietly() if quiet else self.meanwhile(rng, kill()))

    @rule(seed=SEEDS, quiet=st.booleans())
    def the_server_is_killed(self, seed: int, quiet: bool) -> None:
        rng = Random(seed)

        async def again() -> None:
            await self.cluster.kill("server")
            await self.cluster.server.start()

        async def quietly() -> None:
            await self.publish(rng, 2)
            await again()
            await self.ask(rng, 4)

        if self.durable:
            self.policy = "fifo"
            self.run(quietly() if quiet else self.meanwhile(rng, again()))


class AnswersAndKills(AnswersAndRestarts):
    """The server is a process of its own, and killed in earnest."""

    processes = True


class AnswersInMemoryAndRestarts(AnswersAndRestarts):
    """Of the warehouse process: the server has everything in memory."""

    durable = False


def histories(examples: int, steps: int) -> settings:
    return settings(max_examples=examples, stateful_step_count=steps, phases=[Phase.generate], deadline=None)


@pytest.mark.parametrize(("machine", "examples"), [(AnswersOfTasks, 2), (AnswersInMemory, 1)])
def test_histories_of_answers(machine: type[AnswersOfTasks], examples: int) -> None:
    run_state_machine_as_test(machine, settings=histories(examples, 12))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("machine", "examples"), [(AnswersAndRestarts, 8), (AnswersInMemoryAndRestarts, 8), (AnswersAndKills, 5)]
)
def test_long_histories_of_answers(machine: type[AnswersOfTasks], examples: int) -> None:
    """Each step has a limit of its own, and there are so few that all of it takes minutes on a busy machine, too."""
    run_state_machine_as_test(machine, settings=histories(examples, 30))
    assert min(machine.kinds["stale"], machine.kinds["fresh"]) > 10, machine.kinds


@pytest.mark.slow
async def test_answers_under_a_storm_of_updates_switches_and_kills(tmp_path: Path) -> None:
    """Nothing ever pauses. Each answer is judged when all is over, and then every file is its table, exactly."""
    history, answers, stop, rng = UpdateHistory(), list[Answered | None](), asyncio.Event(), Random(7)
    killed: Counter[str] = Counter()
    options = OPTIONS | {"checkpoint_updates": 2000, "warehouse_processes": 4}
    async with (
        cluster(0, tmp_path / "data", processes=tmp_path, link=PATIENT, **options) as made,
        made.client() as ticker,
        made.client() as reader,
        made.client() as other,
    ):
        await history.create(ticker)

        async def publish(seed: int) -> None:
            mine = Random(seed)
            while not stop.is_set():
                if mine.random() < 0.01:
                    await history.publish_much(ticker, mine)
                else:
                    await history.publish(ticker, mine, "ABC")

        async def ask(client: Client, seed: int) -> None:
            mine = Random(seed)
            while not stop.is_set():
                answers.append(await history.ask(client, mine, among="ABC"))

        async def drop_and_create(seed: int) -> None:
            mine = Random(seed)
            while not stop.is_set():
                for _ in range(mine.randint(0, 5)):
                    await history.publish(other, mine, "D")
                    answers.append(await history.ask(other, mine, among="D"))
                await history.drop(other, "D")
                await history.create(other, ["D"])

        async def switch() -> None:
            while not stop.is_set():
                await other.policy(rng.choice(sorted(POLICIES)))
                await asyncio.sleep(1.0)

        async def kill() -> None:
            while not stop.is_set():
                await asyncio.sleep(rng.uniform(0.05, 0.6))
                killed["workers"] += kill_workers(made, rng)

        async def end() -> None:
            await asyncio.sleep(STORM_S)
            stop.set()

        publishers = [publish(seed) for seed in range(3)]
        askers = [ask(client, seed) for seed, client in enumerate((reader, reader, other, reader))]
        await together(*publishers, *askers, drop_and_create(99), switch(), kill(), end())
        for table in TABLES:
            answers.append(await history.answer(reader, f"SELECT * FROM {table}", (), (table,), {}))
        status = await reader.status()
    kinds = history.judge(answers)
    updates = sum(map(len, history.updates.values()))
    print(dict(kinds), dict(killed), "updates", updates, {k: status["queries"].get(k) for k in ("failed", "missed")})
    assert min(kinds["stale"], kinds["fresh"], killed["workers"]) > 10, kinds
    assert kinds["of several moments"], kinds
    states = history.states((table, history.lives[table], history.acknowledged) for table in TABLES)
    for (table, _, _), rows in states.items():
        (path,) = (tmp_path / "data" / FOLDER).glob(f"{table.lower()}-*.sqlite")
        with closing(sqlite3.connect(path)) as database:
            assert Counter(database.execute(f"SELECT * FROM {table}")) == Counter(rows)
