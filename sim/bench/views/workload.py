"""What `bench views` maintains: the four-way join of Xie (2007), section 2.5, over TPC-R tables.

PARTSUPP has 80 offers for each supplier. Costs of offers change, and suppliers move to
other nations. A change of an offer joins with one row of each other table, a change of a supplier with 80 offers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hullcast.network.wire.arrays import Ints
from hullcast.sim.seeds import generator
from hullcast.sim.traces.tpcr import COSTS, REGION_OF, REGIONS, SUPPLIERS_OF_PART, tpcr_tables
from hullcast.sim.traces.tpcr import SUPPLIERS as TPCR_SUPPLIERS

OFFERS_EACH = 80
OFFERS, SUPPLIERS = "PARTSUPP", "SUPPLIER"

CREATE_TABLES: Mapping[str, str] = {
    "REGION": "CREATE TABLE REGION (REGIONKEY INTEGER PRIMARY KEY, NAME TEXT)",
    "NATION": "CREATE TABLE NATION (NATIONKEY INTEGER PRIMARY KEY, NAME TEXT, REGIONKEY INTEGER)",
    SUPPLIERS: f"CREATE TABLE {SUPPLIERS} (SUPPKEY INTEGER PRIMARY KEY, NATIONKEY INTEGER, ACCTBAL REAL)",
    OFFERS: f"CREATE TABLE {OFFERS} (ID INTEGER PRIMARY KEY, PARTKEY INTEGER, SUPPKEY INTEGER, COST REAL)",
}
SELECT = (
    f"SELECT n.NAME, MIN(ps.COST) AS COST, COUNT(*) AS OFFERS FROM {OFFERS} ps "
    f"JOIN {SUPPLIERS} s ON ps.SUPPKEY = s.SUPPKEY JOIN NATION n ON s.NATIONKEY = n.NATIONKEY "
    "JOIN REGION r ON n.REGIONKEY = r.REGIONKEY WHERE r.NAME = 'MIDDLE EAST' GROUP BY n.NAME"
)


def create_view(name: str, response_time_s: float) -> str:
    """CREATE VIEW of that join."""
    return f"CREATE VIEW {name} AS {SELECT} WITH (response_time = '{1e3 * response_time_s:g}ms')"


def first_rows(suppliers: int, seed: int) -> dict[str, dict[str, Any]]:
    """The rows that the tables begin with, as columns."""
    drawn, nations = tpcr_tables(suppliers / TPCR_SUPPLIERS, seed), len(REGION_OF)
    rows, draw = len(drawn.supplier), generator(seed, "bench/views/first")
    return {
        "REGION": {"REGIONKEY": np.arange(len(REGIONS)), "NAME": list(REGIONS)},
        "NATION": {
            "NATIONKEY": np.arange(nations),
            "NAME": [f"NATION {i}" for i in range(nations)],
            "REGIONKEY": np.array(REGION_OF),
        },
        SUPPLIERS: {
            "SUPPKEY": np.arange(suppliers),
            "NATIONKEY": drawn.nation,
            "ACCTBAL": draw.uniform(-1_000, 10_000, suppliers),
        },
        OFFERS: {
            "ID": np.arange(rows),
            "PARTKEY": np.arange(rows) // SUPPLIERS_OF_PART,
            "SUPPKEY": drawn.supplier,
            "COST": drawn.cost / 100,
        },
    }


class OfferChanges:
    """Draws changes of a table's rows: costs of offers, nations of suppliers. Other columns stay as they are."""

    def __init__(self, suppliers: int, seed: int, name: str) -> None:
        self.rows = first_rows(suppliers, seed)
        self.draw = generator(seed, "bench/views/changes", name)

    def of(self, table: str, count: int) -> dict[str, Any]:
        """So many changes of a table, by chance: its rows as they are then."""
        rows = self.rows[table]
        places: Ints = self.draw.integers(len(rows["SUPPKEY"]), size=count)
        if table == OFFERS:
            rows["COST"][places] = self.draw.integers(COSTS[0], COSTS[1] + 1, size=count) / 100
        else:
            rows["NATIONKEY"][places] = self.draw.integers(len(REGION_OF), size=count)
        return {name: column[places] for name, column in rows.items()}

    def which(self, count: int, offers_share: float) -> list[str]:
        """The tables of a stream of changes."""
        return [OFFERS if mine else SUPPLIERS for mine in self.draw.random(count) < offers_share]
