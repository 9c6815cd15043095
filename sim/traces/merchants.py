"""Merchants who watch supply and demand (Xie (2007), section 4.3): two tables, changes, many joins.

A merchant wants offers of one size that meet requests of one size, for any product. A range is narrow, and midpoints
are uniform: a row meets a thousand others, but few of these pairs matter to anybody.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hullcast.network.wire.arrays import Floats, Ints
from hullcast.sim.seeds import generator

QUANTITIES = 10_000.0
TABLES = ("SUPPLY", "DEMAND")
CREATES = tuple(f"CREATE TABLE {name} (ID INTEGER PRIMARY KEY, PRODUCT INTEGER, QUANTITY REAL)" for name in TABLES)
JOIN = (
    "SELECT SUPPLY.ID, DEMAND.ID FROM SUPPLY JOIN DEMAND USING (PRODUCT) "
    "WHERE SUPPLY.QUANTITY BETWEEN ? AND ? AND DEMAND.QUANTITY BETWEEN ? AND ?"
)


@dataclass(frozen=True, slots=True)
class Merchants:
    """One workload; everything is a function of these."""

    rows: int  # of each table
    meeting: int  # rows of the other table that a row meets, on average
    merchants: int
    width: float  # of a range, on average
    seed: int = 0

    def table(self, name: str) -> dict[str, Floats | Ints]:
        """The rows of a table at the start."""
        random = generator(self.seed, "merchants", name, self.rows, self.meeting)
        products = random.integers(0, max(1, self.rows // self.meeting), self.rows)
        return {"ID": np.arange(self.rows), "PRODUCT": products, "QUANTITY": random.uniform(0, QUANTITIES, self.rows)}

    def changes(self, count: int, batch: int) -> list[tuple[str, dict[str, Floats | Ints]]]:
        """Batches of new quantities, of both tables in turn; in one batch no row occurs twice."""
        found = []
        for number in range(-(-count // batch)):
            random = generator(self.seed, "merchants", "changes", self.rows, number, batch)
            ids = random.permutation(self.rows)[:batch]
            columns: dict[str, Floats | Ints] = {"ID": ids, "QUANTITY": random.uniform(0, QUANTITIES, len(ids))}
            found.append((TABLES[number % 2], columns))
        return found

    def ranges(self, part: int = 0, parts: int = 1) -> tuple[Floats, Floats, Floats, Floats]:
        """The four parameters of JOIN, for the merchants of one part of all."""
        random = generator(self.seed, "merchants", "ranges", self.merchants, self.width)
        middles = random.uniform(0, QUANTITIES, (2, self.merchants))
        halves = random.uniform(0, self.width, (2, self.merchants))
        mine = slice(self.merchants * part // parts, self.merchants * (part + 1) // parts)
        (low, other_low), (high, other_high) = middles - halves, middles + halves
        return low[mine], high[mine], other_low[mine], other_high[mine]


def answers(tables: dict[str, dict[str, Floats | Ints]], ranges: tuple[Floats, ...]) -> list[list[tuple[int, int]]]:
    """The pairs each merchant should have, in order; by NumPy, without any of our indexes."""
    sides = []
    for name, low, high in zip(TABLES, ranges[::2], ranges[1::2], strict=True):
        columns = tables[name]
        order = np.argsort(columns["QUANTITY"], kind="stable")
        quantities = columns["QUANTITY"][order]
        begin, end = np.searchsorted(quantities, low, "left"), np.searchsorted(quantities, high, "right")
        sides.append((columns["ID"][order], columns["PRODUCT"][order], begin.tolist(), end.tolist()))
    (ids, products, begins, ends), (other_ids, other_products, other_begins, other_ends) = sides
    found = []
    for i in range(len(begins)):
        mine, theirs = slice(begins[i], ends[i]), slice(other_begins[i], other_ends[i])
        left, right = np.nonzero(products[mine][:, None] == other_products[theirs])
        pairs = zip(ids[mine][left].tolist(), other_ids[theirs][right].tolist(), strict=True)
        found.append(sorted(pairs))
    return found
