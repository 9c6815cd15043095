"""Who subscribes to what in the demo: personal ranges for all, and ten more answers on the screen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hullcast.clients.demo.stocks import SECTORS
from hullcast.sim.seeds import generator
from hullcast.sim.traces.table51 import RangeColumns

CLIENTS = tuple(f"client-{number}" for number in range(1, 25))
PUBLISHER = "publisher"
GATEWAYS = ("gateway-1", "gateway-2", "gateway-3", "gateway-4")
#: The gateway that is killed; six clients are there then, and the publisher itself.
VICTIM = GATEWAYS[0]
AT_FIRST = {name: GATEWAYS[i % len(GATEWAYS)] for i, name in enumerate(CLIENTS)} | {PUBLISHER: VICTIM}
#: The processes in which the clients are, each with a connection of its own.
HOSTS = {"clients-1": CLIENTS[:12], "clients-2": CLIENTS[12:]}

#: What the many subscribe to: every user of a client has a personal range of RISK.
MANY = "SELECT MIN(PER) FROM STOCK WHERE RISK BETWEEN ? AND ?"
EVERY_ROW = "1"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A subscription one looks at. `holds`: by table, the condition on a row of it alone; an update that brings or
    takes such a row concerns this subscription, as far as a network can tell that knows rows and ranges only."""

    kind: str
    sql: str
    holds: Mapping[str, str]


def _over_stock(kind: str, what: str, where: str) -> Wanted:
    return Wanted(kind, f"SELECT {what} FROM STOCK WHERE {where}", {"STOCK": where})


#: The subscriptions on the screen: one of each kind, each of another client.
WANTED = dict(
    zip(
        CLIENTS,
        (
            _over_stock("MIN", "MIN(PER)", "RISK BETWEEN 20 AND 60"),
            _over_stock("MIN", "MIN(PER)", f"SECTOR = '{SECTORS[0]}'"),
            _over_stock("MAX", "MAX(PER)", "RECO < 1.5"),
            _over_stock("DISTINCT", "DISTINCT SECTOR", "PER > 65"),
            _over_stock("COUNT", "COUNT(*)", "PER BETWEEN 10 AND 15"),
            _over_stock("SUM", "SUM(PER)", "RISK > 90"),
            _over_stock("AVG", "AVG(PER)", "RECO BETWEEN 2 AND 2.5"),
            _over_stock("rows", "SYMBOL, PER", "RISK < 40 AND PER < 6"),
            Wanted(
                "join",
                "SELECT SYMBOL, LEVEL FROM STOCK JOIN SECTOR_INDEX USING (SECTOR) WHERE PER > 60 AND LEVEL > 1000",
                {"STOCK": "PER > 60", "SECTOR_INDEX": "LEVEL > 1000"},
            ),
            Wanted(
                "band join",
                "SELECT NAME, SYMBOL FROM STOCK JOIN ANALYST ON TARGET - PER BETWEEN 0 AND 0.02",
                {"STOCK": EVERY_ROW, "ANALYST": EVERY_ROW},
            ),
        ),
        strict=False,  # there are more clients
    )
)


def share_of(ranges: RangeColumns, client: str) -> RangeColumns:
    """The ranges that a client subscribes to."""
    part, parts = CLIENTS.index(client), len(CLIENTS)
    mine = slice(len(ranges) * part // parts, len(ranges) * (part + 1) // parts)
    return RangeColumns(ranges.low[mine], ranges.high[mine])


def many_ranges(count: int, root: int) -> RangeColumns:
    """RangeColumns of RISK (0 to 100) shaped like those of Table 5.1 in Xie (2007)."""
    random = generator(root, "demo", "ranges", count)
    middle, length = random.normal(50, 15, count), np.abs(random.normal(10, 10, count))
    return RangeColumns(np.round(middle - length / 2, 1), np.round(middle + length / 2, 1))
