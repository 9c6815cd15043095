"""What `bench warehouse` publishes and asks: feeds with periods, and a mix of queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.seeds import generator

#: Groups of rows in each table: what aggregates are grouped by.
GROUPS = 100
#: Share of questions by kind, and deadlines of those that have one.
KINDS = {"point": 0.6, "aggregate": 0.25, "join": 0.15}
DEADLINES_S = {"point": 0.1, "aggregate": 0.5, "join": 0.5}
FRESHNESS = (0.0, 0.5, 1.0)


def create(table: str, *, period_s: float | None = None, weight: float = 1.0) -> str:
    """A table of a key, a group and a value; with a period it is declared as a feed."""
    columns = f"CREATE TABLE {table} (ID INTEGER PRIMARY KEY, GRP INTEGER, V REAL)"
    return columns if period_s is None else f"{columns} WITH (period = '{period_s:g}s', weight = {weight:g})"


def rows(keys: Ints, values: Floats) -> dict[str, Any]:
    """Rows as columns."""
    return {"ID": keys, "GRP": keys % GROUPS, "V": values}


@dataclass(frozen=True, slots=True)
class BusyFeed:
    """A table that gets a batch of rows each period, so many a second on average."""

    table: str
    period_s: float
    weight: float
    rows_s: float
    keys: int  # rows of the table

    @property
    def batch(self) -> int:
        """Rows of one release."""
        return max(1, round(self.rows_s * self.period_s))

    @property
    def create(self) -> str:
        """Its CREATE TABLE."""
        return create(self.table, period_s=self.period_s, weight=self.weight)


def feeds(rows_s: float, keys: int) -> tuple[BusyFeed, ...]:
    """Four, with different periods and weights, and equally many rows a second."""
    terms = ((0.05, 4.0), (0.1, 3.0), (0.2, 2.0), (0.5, 1.0))
    return tuple(
        BusyFeed(f"FEED{i}", period_s, weight, rows_s / len(terms), keys) for i, (period_s, weight) in enumerate(terms)
    )


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question, and when it is asked: seconds from the beginning of a phase."""

    at_s: float
    kind: str
    sql: str
    parameters: tuple[int, ...]
    freshness: float
    deadline_s: float | None
    consistent: bool = False


def questions(tables: list[str], keys: int, rate: float, seconds: float, seed: str) -> Iterator[AskedQuestion]:
    """A Poisson stream of questions, the same for the same seed: all policies are asked the same."""
    draw = generator(0, f"bench/warehouse/questions/{seed}")
    at_s = 0.0
    while (at_s := at_s + float(draw.exponential(1 / rate))) < seconds:
        kind = str(draw.choice(list(KINDS), p=list(KINDS.values())))
        one, other = (tables[int(i)] for i in draw.choice(len(tables), 2, replace=False))
        group = int(draw.integers(GROUPS))
        sql, parameters = {
            "point": (f"SELECT V FROM {one} WHERE ID = ?", (int(draw.integers(keys)),)),
            "aggregate": (f"SELECT GRP, COUNT(*), AVG(V) FROM {one} GROUP BY GRP", ()),
            "join": (
                f"SELECT COUNT(*), SUM(a.V - b.V) FROM {one} a JOIN {other} b ON a.ID = b.ID WHERE a.GRP = ?",
                (group,),
            ),
        }[kind]
        deadline_s = DEADLINES_S[kind] if draw.random() < 0.5 else None
        yield AskedQuestion(at_s, kind, sql, parameters, float(draw.choice(FRESHNESS)), deadline_s, kind == "join")


def busy_question(table: str) -> str:
    """A question that takes a while: it goes through a whole table and sorts it."""
    return f"SELECT GRP, COUNT(*), AVG(V), MAX(V * V) FROM {table} GROUP BY GRP ORDER BY 3"


def first_rows(keys: int, seed: int, name: str) -> dict[str, Any]:
    """The rows that a table begins with."""
    return rows(np.arange(keys), generator(seed, f"bench/warehouse/{name}").random(keys))
