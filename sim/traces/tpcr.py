"""Four tables of TPC-R, generated: Region, Nation, Supplier and PartSupp, in the benchmark's sizes.

Sizes, keys and the suppliers of a part are those of the benchmark's specification; names and texts that no query here
reads are left out. Scale 1 has 10,000 suppliers and 800,000 rows in PartSupp, 80 for each supplier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hullcast.sim.seeds import generator

Integers = npt.NDArray[np.int64]

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
#: Of each nation the region, in the order of nation keys.
REGION_OF = (0, 1, 1, 1, 4, 0, 3, 3, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 2, 3, 4, 2, 3, 3, 1)
SUPPLIERS, PARTS, SUPPLIERS_OF_PART = 10_000, 200_000, 4
#: Supply costs are 1.00 to 1000.00, here in cents.
COSTS = (100, 100_000)


@dataclass(frozen=True, slots=True)
class TpcrTables:
    """Rows by columns. Supplier s (from 0) is of nation `nation[s]`; row p of PartSupp is of `supplier[p]`."""

    nation: Integers
    supplier: Integers
    cost: Integers


def tpcr_tables(scale: float, seed: int) -> TpcrTables:
    """The tables at a scale."""
    suppliers, parts = max(4, round(SUPPLIERS * scale)), max(1, round(PARTS * scale))
    chance = generator(seed, "tpcr", scale)
    part = np.repeat(np.arange(parts), SUPPLIERS_OF_PART)
    nth = np.tile(np.arange(SUPPLIERS_OF_PART), parts)
    supplier = (part + nth * (suppliers // SUPPLIERS_OF_PART + part // suppliers)) % suppliers
    return TpcrTables(
        chance.integers(0, len(REGION_OF), suppliers),
        supplier,
        chance.integers(COSTS[0], COSTS[1] + 1, len(supplier)),
    )
