"""Who subscribes to what in the demo: each client process one query of every kind, and its share of many MIN ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hullcast.clients.demo.stocks import SECTORS
from hullcast.sim.seeds import generator
from hullcast.sim.traces.table51 import RangeColumns

CLIENTS = ("client-1", "client-2", "client-3")
PUBLISHER = "publisher"
GATEWAYS = ("gateway-1", "gateway-2")
#: The gateway that is killed, and who is there then: two of three subscribing processes, and the publisher itself.
VICTIM = GATEWAYS[0]
AT_FIRST = {"client-1": VICTIM, "client-2": GATEWAYS[1], "client-3": VICTIM, PUBLISHER: VICTIM}

#: What the many subscribe to: ranges of RISK, as a million users might draw them.
MANY = "SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?"
EVERY_ROW = "1"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A subscription one looks at. `holds`: by table, the condition on a row of it alone; an update that brings or
    takes such a row concerns this subscription, as far as a network can tell that knows rows and ranges only."""

    kind: str
    sql: str
    holds: Mapping[str, str]


def wanted(client: str) -> tuple[Wanted, ...]:
    """The subscriptions of a client process, one of each kind; those of other clients have other bounds."""
    i = CLIENTS.index(client)
    per, level = f"PER > {50 - 3 * i}", f"LEVEL > {1000 - 50 * i}"
    return (
        _over_stock("MIN", "MIN(PER)", f"RISK BETWEEN {20 + 10 * i} AND {60 + 10 * i}"),
        _over_stock("MIN", "MIN(PER)", f"SECTOR = '{SECTORS[i]}'"),
        _over_stock("MAX", "MAX(PER)", f"RECO < {1.5 + 0.25 * i}"),
        _over_stock("DISTINCT", "DISTINCT SECTOR", f"PER > {45 - 3 * i}"),
        _over_stock("COUNT", "COUNT(*)", f"PER BETWEEN {10 + i} AND {15 + i}"),
        _over_stock("SUM", "SUM(PER)", f"RISK > {90 - 5 * i}"),
        _over_stock("AVG", "AVG(PER)", f"RECO BETWEEN {2 + i / 2:g} AND {2.5 + i / 2:g}"),
        _over_stock("rows", "SYMBOL, PER", f"RISK < {40 + 10 * i} AND PER < 8"),
        Wanted(
            "join",
            f"SELECT SYMBOL, LEVEL FROM STOCK JOIN SECTOR_INDEX USING (SECTOR) WHERE {per} AND {level}",
            {"STOCK": per, "SECTOR_INDEX": level},
        ),
        Wanted(
            "band join",
            f"SELECT NAME, SYMBOL FROM STOCK JOIN ANALYST ON TARGET - PER BETWEEN 0 AND {0.05 + 0.01 * i:g}",
            {"STOCK": EVERY_ROW, "ANALYST": EVERY_ROW},
        ),
    )


def _over_stock(kind: str, what: str, where: str) -> Wanted:
    return Wanted(kind, f"SELECT {what} FROM STOCK WHERE {where}", {"STOCK": where})


def share_of(ranges: RangeColumns, client: str) -> RangeColumns:
    """The ranges that a client subscribes to."""
    part, parts = CLIENTS.index(client), len(CLIENTS)
    mine = slice(len(ranges) * part // parts, len(ranges) * (part + 1) // parts)
    return RangeColumns(ranges.low[mine], ranges.high[mine])


def merged(ranges: RangeColumns) -> list[tuple[float, float]]:
    """What ranges cover together, as few intervals as possible."""
    covered: list[tuple[float, float]] = []
    for low, high in sorted(zip(ranges.low.tolist(), ranges.high.tolist(), strict=True)):
        if covered and low <= covered[-1][1]:
            covered[-1] = (covered[-1][0], max(high, covered[-1][1]))
        else:
            covered.append((low, high))
    return covered


def many_ranges(count: int, root: int) -> RangeColumns:
    """RangeColumns of RISK (0 to 100) shaped like those of Table 5.1 in Xie (2007)."""
    random = generator(root, "demo", "ranges", count)
    middle, length = random.normal(50, 15, count), np.abs(random.normal(10, 10, count))
    return RangeColumns(np.round(middle - length / 2, 1), np.round(middle + length / 2, 1))
