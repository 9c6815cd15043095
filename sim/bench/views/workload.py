"""What `hullcast bench views` maintains: the four-way join of Xie (2007), section 2.5, over tables like those of TPC-R.

PARTSUPP has 80 offers for each supplier; 25 nations are in 5 regions. Costs of offers change, and suppliers move to
other nations. A change of an offer joins with one row of each other table, a change of a supplier with 80 offers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hullcast.network.wire.arrays import Ints
from hullcast.sim.seeds import generator

OFFERS_EACH, NATIONS, REGIONS = 80, 25, 5
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
    "JOIN REGION r ON n.REGIONKEY = r.REGIONKEY WHERE r.NAME = 'REGION 2' GROUP BY n.NAME"
)


def create_view(name: str, response_time_s: float) -> str:
    """CREATE VIEW of that join."""
    return f"CREATE VIEW {name} AS {SELECT} WITH (response_time = '{1e3 * response_time_s:g}ms')"


def first_rows(suppliers: int, seed: int) -> dict[str, dict[str, Any]]:
    """The rows that the tables begin with, as columns."""
    draw = generator(seed, "bench/views/first")
    nations, places, offers = np.arange(NATIONS), np.arange(suppliers), np.arange(OFFERS_EACH * suppliers)
    return {
        "REGION": {"REGIONKEY": np.arange(REGIONS), "NAME": [f"REGION {i}" for i in range(REGIONS)]},
        "NATION": {
            "NATIONKEY": nations,
            "NAME": [f"NATION {i}" for i in range(NATIONS)],
            "REGIONKEY": nations % REGIONS,
        },
        SUPPLIERS: {
            "SUPPKEY": places,
            "NATIONKEY": draw.integers(NATIONS, size=suppliers),
            "ACCTBAL": draw.uniform(-1_000, 10_000, suppliers),
        },
        OFFERS: {
            "ID": offers,
            "PARTKEY": draw.integers(10 * suppliers, size=len(offers)),
            "SUPPKEY": offers % suppliers,
            "COST": _costs(draw, len(offers)),
        },
    }


def _costs(draw: np.random.Generator, count: int) -> Any:
    return draw.integers(100, 100_001, size=count) / 100  # as TPC-R has them: 1.00 to 1,000.00


@dataclass(frozen=True, slots=True)
class ChangedOffers:
    """Rows of one table that change together."""

    table: str
    columns: dict[str, Any]


class OfferChanges:
    """Draws changes of a table's rows: costs of offers, nations of suppliers. Other columns stay as they are."""

    def __init__(self, suppliers: int, seed: int, name: str) -> None:
        self.rows = first_rows(suppliers, seed)
        self.draw = generator(seed, "bench/views/changes", name)

    def of(self, table: str, count: int) -> ChangedOffers:
        """So many changes of a table, by chance."""
        rows = self.rows[table]
        places: Ints = self.draw.integers(len(rows["SUPPKEY"]), size=count)
        if table == OFFERS:
            rows["COST"][places] = _costs(self.draw, count)
        else:
            rows["NATIONKEY"][places] = self.draw.integers(NATIONS, size=count)
        return ChangedOffers(table, {name: column[places] for name, column in rows.items()})

    def which(self, count: int, offers_share: float) -> list[str]:
        """The tables of a stream of changes."""
        return [OFFERS if mine else SUPPLIERS for mine in self.draw.random(count) < offers_share]
