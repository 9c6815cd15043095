"""Views in SQLite that are maintained in batches, to measure what that takes.

Two views. `join`: R joined with S (all pairs, counted by key), as in the example that opens the chapter. `cheapest`:
the minimum over PartSupp, Supplier, Nation and Region.

A table in the file is as far as the view is: its pending changes wait outside. To propagate a batch, the changes (old
rows count -1, new ones +1) are joined with the other tables, added to the view, and then made in their own table. So
the view is always right for the tables in the file, and when nothing is pending, for all.

With an index on the partner the batch is looked up in it, row by row: time grows with the batch. Without one the
partner is read as a whole, and looked up in the batch: time hardly grows.
"""

from __future__ import annotations

import sqlite3
from statistics import median
from time import thread_time
from typing import Protocol

import numpy as np

from hullcast.broker.views.costs import CurveCost
from hullcast.sim.seeds import generator
from hullcast.sim.traces.tpcr import COSTS, REGION_OF, REGIONS, tpcr_tables

#: Batches that are timed, and how often each.
BATCHES = (1, 3, 10, 30, 100, 300, 900)
ROUNDS = 5


class MaintainedView(Protocol):
    """A view over two tables that change: numbers 0 and 1."""

    def propagate(self, table: int, changes: int) -> float:
        """Propagate so many new changes of a table; the seconds of processor time that it took."""

    def is_right(self) -> bool:
        """Whether the view is what its query gives."""


class _InSqlite:
    """What both have in common: a database in memory, and changes that are drawn when they are needed."""

    def __init__(self, seed: int, name: str) -> None:
        self._file = sqlite3.connect(":memory:", isolation_level=None)
        self._chance = generator(seed, "batching", name)

    def _timed(
        self, delta: list[tuple[int, int, int]], joined: str, changed: str, rows: list[tuple[int, int]]
    ) -> float:
        began = thread_time()
        run = self._file.execute
        run("BEGIN")
        run("CREATE TEMP TABLE delta (key INTEGER, value INTEGER, sign INTEGER)")
        self._file.executemany("INSERT INTO delta VALUES (?, ?, ?)", delta)
        run("CREATE INDEX temp.delta_key ON delta (key)")
        run(joined)
        self._file.executemany(changed, rows)
        run("DROP TABLE temp.delta")
        run("COMMIT")
        return thread_time() - began

    def _rows(self, query: str) -> list[tuple[int, ...]]:
        return self._file.execute(query).fetchall()


class JoinView(_InSqlite):
    """R join S on KEY, counted by KEY; R (0) has an index on it, S (1) has none. A change is another key."""

    QUERY = "SELECT r.key, COUNT(*) FROM r JOIN s ON r.key = s.key GROUP BY r.key"

    def __init__(self, scale: float, seed: int) -> None:
        super().__init__(seed, "join")
        self._keys = max(10, round(100_000 * scale))
        self._held = [self._chance.integers(0, self._keys, self._keys).tolist() for _ in range(2)]
        for table, keys in zip("rs", self._held, strict=True):
            self._file.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, key INTEGER, pad TEXT)")
            self._file.executemany(f"INSERT INTO {table} VALUES (?, ?, 'some text of a row')", enumerate(keys))
        self._file.execute("CREATE INDEX r_key ON r (key)")
        self._file.execute("CREATE TABLE view (key INTEGER PRIMARY KEY, pairs INTEGER)")
        self._file.execute(f"INSERT INTO view {self.QUERY}")

    def propagate(self, table: int, changes: int) -> float:
        ids, new = self._chance.integers(0, self._keys, (2, changes)).tolist()
        held, delta = self._held[table], []
        for id_, key in zip(ids, new, strict=True):
            delta += [(held[id_], 0, -1), (key, 0, 1)]
            held[id_] = key
        source = "delta d CROSS JOIN r p" if table else "s p CROSS JOIN delta d"
        joined = (
            f"INSERT INTO view SELECT d.key, SUM(d.sign) FROM {source} ON p.key = d.key WHERE true GROUP BY d.key "
            "ON CONFLICT (key) DO UPDATE SET pairs = pairs + excluded.pairs"
        )
        changed = f"UPDATE {'s' if table else 'r'} SET key = ? WHERE id = ?"
        return self._timed(delta, joined, changed, list(zip(new, ids, strict=True)))

    def is_right(self) -> bool:
        return self._rows("SELECT * FROM view WHERE pairs ORDER BY key") == self._rows(f"{self.QUERY} ORDER BY r.key")


class CheapestView(_InSqlite):
    """MIN(supply cost) over PartSupp (0), Supplier (1), Nation and Region, for one region: how often each cost occurs,
    so that the least is known when it goes. A change of PartSupp is a new cost, one of Supplier another nation.

    `indexed`: which of the two has an index on the supplier's key.
    """

    QUERY = (
        "SELECT ps.cost, COUNT(*) FROM partsupp ps JOIN supplier s ON s.key = ps.supplier JOIN nation n ON n.key = "
        "s.nation JOIN region r ON r.key = n.region WHERE r.name = 'MIDDLE EAST' GROUP BY ps.cost"
    )

    def __init__(self, scale: float, seed: int, *, indexed: str = "partsupp") -> None:
        super().__init__(seed, "cheapest")
        run, many, drawn = self._file.execute, self._file.executemany, tpcr_tables(scale, seed)
        run("CREATE TABLE region (key INTEGER PRIMARY KEY, name TEXT)")
        run("CREATE TABLE nation (key INTEGER PRIMARY KEY, region INTEGER)")
        run("CREATE TABLE supplier (id INTEGER PRIMARY KEY, key INTEGER, nation INTEGER, pad TEXT)")
        run("CREATE TABLE partsupp (id INTEGER PRIMARY KEY, supplier INTEGER, cost INTEGER)")
        many("INSERT INTO region VALUES (?, ?)", enumerate(REGIONS))
        many("INSERT INTO nation VALUES (?, ?)", enumerate(REGION_OF))
        self._nation, self._supplier, self._cost = (
            column.tolist() for column in (drawn.nation, drawn.supplier, drawn.cost)
        )
        many("INSERT INTO supplier VALUES (?, ?, ?, 'name and address')",
             ((id_, id_, nation) for id_, nation in enumerate(self._nation)))  # fmt: skip
        many("INSERT INTO partsupp VALUES (?, ?, ?)",
             ((id_, *row) for id_, row in enumerate(zip(self._supplier, self._cost, strict=True))))  # fmt: skip
        self._looks_up = {0: indexed == "supplier", 1: indexed == "partsupp"}
        if self._looks_up[0]:
            run("CREATE INDEX supplier_key ON supplier (key)")
        if self._looks_up[1]:
            run("CREATE INDEX partsupp_supplier ON partsupp (supplier)")
        run("CREATE TABLE view (cost INTEGER PRIMARY KEY, rows INTEGER)")
        run(f"INSERT INTO view {self.QUERY}")

    def propagate(self, table: int, changes: int) -> float:
        return self._costs(changes) if table == 0 else self._nations(changes)

    def _costs(self, changes: int) -> float:
        chosen = self._chance.choice(len(self._cost), min(changes, len(self._cost)), replace=False).tolist()
        new = self._chance.integers(COSTS[0], COSTS[1] + 1, len(chosen)).tolist()
        delta = []
        for row, cost in zip(chosen, new, strict=True):
            delta += [(self._supplier[row], self._cost[row], -1), (self._supplier[row], cost, 1)]
            self._cost[row] = cost
        source = "delta d CROSS JOIN supplier s" if self._looks_up[0] else "supplier s CROSS JOIN delta d"
        joined = (
            f"INSERT INTO view SELECT d.value, SUM(d.sign) FROM {source} ON s.key = d.key CROSS JOIN nation n ON n.key "
            "= s.nation CROSS JOIN region r ON r.key = n.region WHERE r.name = 'MIDDLE EAST' GROUP BY d.value "
            "ON CONFLICT (cost) DO UPDATE SET rows = rows + excluded.rows"
        )
        changed = "UPDATE partsupp SET cost = ? WHERE id = ?"
        return self._timed(delta, joined, changed, list(zip(new, chosen, strict=True)))

    def _nations(self, changes: int) -> float:
        chosen = self._chance.integers(0, len(self._nation), changes).tolist()  # one may change twice
        new = self._chance.integers(0, len(REGION_OF), len(chosen)).tolist()
        delta = []
        for row, nation in zip(chosen, new, strict=True):
            delta += [(row, self._nation[row], -1), (row, nation, 1)]
            self._nation[row] = nation
        source = "delta d CROSS JOIN partsupp ps" if self._looks_up[1] else "partsupp ps CROSS JOIN delta d"
        joined = (
            f"INSERT INTO view SELECT ps.cost, SUM(d.sign) FROM {source} ON ps.supplier = d.key CROSS JOIN nation n ON "
            "n.key = d.value CROSS JOIN region r ON r.key = n.region WHERE r.name = 'MIDDLE EAST' GROUP BY ps.cost "
            "ON CONFLICT (cost) DO UPDATE SET rows = rows + excluded.rows"
        )
        changed = "UPDATE supplier SET nation = ? WHERE id = ?"
        return self._timed(delta, joined, changed, list(zip(new, chosen, strict=True)))

    def is_right(self) -> bool:
        return self._rows("SELECT * FROM view WHERE rows ORDER BY cost") == self._rows(f"{self.QUERY} ORDER BY ps.cost")

    @property
    def least(self) -> int:
        """The minimum."""
        return self._rows("SELECT MIN(cost) FROM view WHERE rows > 0")[0][0]


def measured_costs(view: MaintainedView, batches: tuple[int, ...] = BATCHES, rounds: int = ROUNDS) -> list[CurveCost]:
    """What batches of each table take, the median of some rounds; the first one warms up."""
    seconds = np.array(
        [[[view.propagate(table, k) for k in batches] for table in (0, 1)] for _ in range(rounds + 1)]
    )[1:]  # fmt: skip
    return [
        CurveCost([(float(k), max(1e-9, median(seconds[:, table, at]))) for at, k in enumerate(batches)])
        for table in (0, 1)
    ]
