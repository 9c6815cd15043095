"""Answers of the warehouse are SQL's at their sequence numbers, and worth what they say, whatever is published,
dropped, switched or killed meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from hullcast.broker.warehouse.deciding.policies import POLICIES
from hullcast.broker.warehouse.files.table_file import FOLDER
from hullcast.clients.sdk.client import Client
from tests.support.answered import TABLES, Answered, UpdateHistory, together
from tests.support.cluster import PATIENCE_S, PATIENT, cluster
from tests.support.queries import SEEDS
from tests.support.warehouse_machine import OPTIONS, WarehouseHistories, WithRestarts, histories, kill_workers

EVERYTHING = " UNION ALL ".join(f"SELECT '{table}', count(*), sum(V) FROM {table}" for table in TABLES)
#: How long the storm lasts.
STORM_S = 20.0


class AnswersOfTasks(WarehouseHistories):
    """A server in this process."""

    kinds: ClassVar[Counter[str]] = Counter()

    async def ask(self, rng: Random, questions: int, **terms: Any) -> list[Answered | None]:
        work = [self.history.ask(self.client, rng, policy=self.policy, **terms) for _ in range(questions)]
        return await together(*work)

    def judge(self, answers: list[Answered | None]) -> None:
        type(self).kinds += self.history.judge(answers)

    @rule(seed=SEEDS)
    def ask_some(self, seed: int) -> None:
        async def asked() -> None:
            rng = Random(seed)
            self.judge(await self.ask(rng, rng.randint(1, 5)))

        self.run(asked())

    @rule(seed=SEEDS, table=st.sampled_from(sorted(TABLES)))
    def drop_and_create(self, seed: int, table: str) -> None:
        async def both() -> None:
            await self.history.drop(self.client, table)
            await self.history.create(self.client, [table])
            self.judge(await self.ask(Random(seed), 2))

        self.run(both())

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
            self.judge(await self.ask(rng, 3, freshness=0.0, read_set=None))
            self.judge(await self.ask(rng, 1, freshness=1.0, deadline=0.05))
            self.judge(await self.ask(rng, 1, freshness=0.0, read_set="consistent", deadline=0.05))
            other.execute("ROLLBACK")

    async def check_all(self) -> None:
        for table in TABLES:
            self.judge([await self.history.answer(self.client, f"SELECT * FROM {table}", (), (table,), {})])


class AnswersInMemory(AnswersOfTasks):
    """A server without a data directory."""

    durable = False


class AnswersAndRestarts(AnswersOfTasks, WithRestarts):
    """The warehouse process and the server come back from the files; that takes seconds."""


class AnswersAndKills(AnswersAndRestarts):
    """The server is a process of its own, and killed in earnest."""

    processes = True


class AnswersInMemoryAndRestarts(AnswersAndRestarts):
    """Of the warehouse process: the server has everything in memory."""

    durable = False


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
