"""Views are their SELECTs at one sequence number, whatever is published, dropped, switched or killed meanwhile.

Each view is asked for in one query with its own SELECT over the tables: so SQLite itself, over the tables' own files,
says what the rows must be, at the very sequence number that the view was brought to.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from hullcast.network.wire.errors import ConnectionLost, SqlError
from tests.support.answered import KILLED, together
from tests.support.queries import SEEDS
from tests.support.warehouse_machine import WarehouseHistories, WithRestarts, histories

#: Views of every shape over the tables of `UpdateHistory`: keys and columns of every type, ties and NULLs in all.
SELECTS = {
    "SOME": "SELECT K, V, S, AT FROM A WHERE V >= 0 AND S IN ('a', 'ü', 'x')",
    "PAIRS": "SELECT A.K, B.NAME, A.V AS W, B.X FROM A JOIN B ON A.V = B.V",
    "PER_S": "SELECT S, COUNT(*) AS N, SUM(V) AS T, AVG(X) AS M, MIN(X) AS LOW, MAX(AT) AS LATEST FROM A GROUP BY S",
    "WHOLE": (
        "SELECT COUNT(*) AS N, MIN(A.X) AS LOW, MAX(C.S) AS HIGH, AVG(B.X) AS M, SUM(A.V) AS T "
        "FROM A JOIN B ON A.V = B.V JOIN C ON C.V = B.V"
    ),
    "SELF": "SELECT p.K AS P, q.K AS Q FROM A p JOIN A q ON p.V = q.V WHERE p.X < q.X",
    "TIMES": "SELECT D.S, COUNT(A.X) AS N, MIN(D.AT) AS FIRST FROM D JOIN A ON D.AT = A.AT GROUP BY D.S",
    "MIXED": (
        "SELECT C.X, COUNT(*) AS N, MAX(B.NAME) AS HIGH FROM C JOIN A ON C.X = A.V JOIN B ON B.V = A.V GROUP BY C.X"
    ),
    "FOUR": (
        "SELECT A.S, MIN(C.X) AS LOW, COUNT(D.V) AS N FROM A JOIN B ON A.V = B.V JOIN C ON B.V = C.V "
        "JOIN D ON D.V = C.V WHERE D.S IS NOT NULL AND A.X BETWEEN 0 AND 2 GROUP BY A.S"
    ),
}
RESPONSE_TIMES = ("1s", "5s", "1d")


class ViewHistories(WarehouseHistories):
    """A server in this process."""

    asked: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.views: set[str] = set()

    async def begin(self, rng: Random) -> None:
        await super().begin(rng)
        for name in rng.sample(sorted(SELECTS), 3):
            await self.create(name, rng)

    async def create(self, name: str, rng: Random) -> None:
        create = f"CREATE VIEW {name} AS {SELECTS[name]} WITH (response_time = '{rng.choice(RESPONSE_TIMES)}')"
        while True:
            try:
                await self.client.execute(create)
                break
            except ConnectionLost:  # who made it was killed
                continue
        self.views.add(name)

    async def drop(self, name: str) -> None:
        self.views.discard(name)
        await self.client.execute(f"DROP VIEW {name}")

    async def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows, asked for again if a worker was killed."""
        while True:
            try:
                return list(await self.client.query(sql))
            except (SqlError, ConnectionLost) as error:
                if KILLED not in str(error) and "process ended" not in str(error):
                    raise

    async def ask_for(self, rng: Random, name: str) -> None:
        """A view beside its SELECT, alone, with a table or with another view: all of one moment."""
        kind, select = rng.choice(("beside", "beside", "alone", "table", "views")), SELECTS[name]
        type(self).asked[kind] += 1
        if kind == "alone":
            await self.query(f"SELECT * FROM {name}")
            return
        if kind == "beside":
            rows = await self.query(f"SELECT 0 AS SIDE, * FROM {name} UNION ALL SELECT 1, * FROM ({select})")
            sides = [Counter(row[1:] for row in rows if row[0] == side) for side in (0, 1)]
            assert sides[0] == sides[1], (name, sides[0] - sides[1], sides[1] - sides[0])
            return
        counts = f"(SELECT COUNT(*) FROM {name}), (SELECT COUNT(*) FROM ({select}))"
        if kind == "views":
            other = rng.choice(sorted(self.views))
            counts += f", (SELECT COUNT(*) FROM {other}), (SELECT COUNT(*) FROM ({SELECTS[other]}))"
        ((*found,),) = await self.query(f"SELECT {counts}, (SELECT COUNT(*) FROM A)")
        assert found[0:-1:2] == found[1:-1:2], (name, found)

    async def ask(self, rng: Random, questions: int) -> list[Any]:
        if self.views:
            names = sorted(self.views)
            await together(*(self.ask_for(rng, rng.choice(names)) for _ in range(questions)))
        return []

    @rule(seed=SEEDS, name=st.sampled_from(sorted(SELECTS)))
    def create_or_drop(self, seed: int, name: str) -> None:
        rng = Random(seed)
        work = self.drop(name) if name in self.views else self.create(name, rng)

        async def quietly() -> None:
            await work
            await self.ask(rng, 2)

        async def among_others() -> None:
            await together(work, self.publish(rng, 3), *(self.ask_for(rng, one) for one in sorted(self.views - {name})))

        self.run(quietly() if rng.random() < 0.5 else among_others())

    async def check_all(self) -> None:
        assert set(await self.client.views()) == self.views
        for name in sorted(self.views):
            rows = await self.query(f"SELECT * FROM {name}")
            assert Counter(rows) == Counter(await self.query(SELECTS[name])), name


class ViewHistoriesInMemory(ViewHistories):
    """A server without a data directory."""

    durable = False


class ViewHistoriesWithRestarts(ViewHistories, WithRestarts):
    """The warehouse process and the server come back from the files."""


class ViewHistoriesWithKills(ViewHistoriesWithRestarts):
    """The server is a process of its own, and killed in earnest."""

    processes = True


@pytest.mark.parametrize(("machine", "examples"), [(ViewHistories, 2), (ViewHistoriesInMemory, 1)])
def test_histories_of_views(machine: type[ViewHistories], examples: int) -> None:
    run_state_machine_as_test(machine, settings=histories(examples, 10))


@pytest.mark.slow
@pytest.mark.parametrize("machine", [ViewHistories, ViewHistoriesWithRestarts, ViewHistoriesWithKills])
def test_long_histories_of_views(machine: type[ViewHistories]) -> None:
    run_state_machine_as_test(machine, settings=histories(20, 40))
    assert min(machine.asked.values()) > 10, machine.asked
