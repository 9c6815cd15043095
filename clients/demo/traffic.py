"""What the updates cost on the wire, and what two other ways of telling the same clients would have cost.

All three are counted on the same tree, in messages and bytes on all links (server to root, root to gateways, gateways
to clients), without snapshots, replays and acknowledgements:

Hullcast   measured: the frames with messages that each process handed to its children
CN         computed: each update goes, once a link, to all that have a subscription whose range holds the row, before or
           after; encoded as Hullcast would encode it. Its clients get rows, not answers: they have to keep all
           rows in their ranges, and compute.
unicast    computed: one message for each changed answer, from the server all the way: number, update, new answer
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.demo.scenario import CLIENTS, merged, share_of, wanted
from hullcast.clients.demo.stocks import CREATES, TABLES
from hullcast.network.wire.columns import TextColumn
from hullcast.network.wire.frames import Deliver, encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hullcast.clients.demo.judge import Moved, Row
    from hullcast.sim.traces.table51 import RangeColumns

#: Links on the way from the server to a client.
HOPS = 3
#: A unicast message about a single value: subscription, sequence number, answer.
TOLD_BYTES = 24


@dataclass(slots=True)
class LinkLoad:
    """Messages and bytes over all links."""

    messages: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DemoTraffic:
    """The three ways so far."""

    updates: int
    left_server: int  # messages that left the server
    told: int  # new answers, over all subscriptions: what unicast would send
    held: int  # subscriptions whose range holds the row, over all updates: what CN would send to each by itself
    hullcast: LinkLoad
    content: LinkLoad
    unicast: LinkLoad

    def per_update(self, count: float) -> float:
        """A count for each update; 0 before the first."""
        return count / self.updates if self.updates else 0.0

    def against(self, load: LinkLoad) -> float:
        """How many times Hullcast's bytes."""
        return load.size_bytes / max(1, self.hullcast.size_bytes)


def unicast(told: int, row_bytes: int) -> LinkLoad:
    """One message for each changed answer; `row_bytes` are those of rows that came and went, over all of them."""
    return LinkLoad(HOPS * told, HOPS * (told * TOLD_BYTES + row_bytes))


class ContentNetwork:
    """CN: routes rows by content. Its conditions are those of the subscriptions, put to SQLite."""

    def __init__(self, ranges: RangeColumns) -> None:
        self.load = LinkLoad()
        self.held = 0  # subscriptions whose range holds an update's row, over all updates
        self._ends = np.sort(ranges.low), np.sort(ranges.high)
        self._singles = [one.holds for client in CLIENTS for one in wanted(client)]
        self._database = sqlite3.connect(":memory:")
        for sql in CREATES:
            self._database.execute(sql.replace("CREATE TABLE ", "CREATE TABLE MOVED_").replace(" PRIMARY KEY", ""))
        self._columns: dict[str, list[str]] = {}
        for table in TABLES:
            self._database.execute(f"ALTER TABLE MOVED_{table} ADD COLUMN NUMBER INTEGER")
            rows = self._database.execute("SELECT name FROM pragma_table_info(?)", (f"MOVED_{table}",))
            self._columns[table] = [name for (name,) in rows][:-1]
        self._conditions = {client: _conditions(client, share_of(ranges, client)) for client in CLIENTS}

    def carry(self, table: str, last: int, moved: Sequence[Moved], places: Mapping[str, str]) -> None:
        """Send updates to those they concern; `places` says at which gateway each client is."""
        self._database.execute(f"DELETE FROM MOVED_{table}")
        marks = ", ".join("?" * (len(self._columns[table]) + 1))
        both = [(*row, n) for n, one in enumerate(moved) for row in (one.before, one.after) if row is not None]
        self._database.executemany(f"INSERT INTO MOVED_{table} VALUES ({marks})", both)
        self.held += self._holding(table, moved)
        concerned = {client: self._concerned(client, table) for client in CLIENTS}
        links = list(concerned.values())
        for gateway in {places[client] for client in CLIENTS}:
            links.append(frozenset().union(*(concerned[client] for client in CLIENTS if places[client] == gateway)))
        links.append(frozenset().union(*concerned.values()))
        sizes: dict[frozenset[int], int] = {frozenset(): 0}
        for numbers in links:
            if numbers not in sizes:
                sizes[numbers] = self._size(table, last, [moved[n] for n in sorted(numbers)])
            self.load.messages += len(numbers)
            self.load.size_bytes += sizes[numbers]

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def _holding(self, table: str, moved: Sequence[Moved]) -> int:
        """How many subscriptions have a range that holds these rows, counted for each update."""
        count = 0
        for holds in self._singles:
            if table in holds:
                sql = f"SELECT COUNT(DISTINCT NUMBER) FROM MOVED_{table} WHERE {holds[table]}"
                count += self._database.execute(sql).fetchone()[0]
        if table == "STOCK":
            risk = self._columns[table].index("RISK")  # constant for a stock: the same before and after
            rows = [row for one in moved if (row := one.after or one.before) is not None]
            values = np.array([row[risk] for row in rows], np.float64)
            lows, highs = self._ends
            count += int((np.searchsorted(lows, values, "right") - np.searchsorted(highs, values, "left")).sum())
        return count

    def _concerned(self, client: str, table: str) -> frozenset[int]:
        condition = self._conditions[client].get(table)
        if condition is None:
            return frozenset()
        rows = self._database.execute(f"SELECT DISTINCT NUMBER FROM MOVED_{table} WHERE {condition}")
        return frozenset(number for (number,) in rows)

    def _size(self, table: str, last: int, moved: Sequence[Moved]) -> int:
        """The frame with these rows as they are now; of a deleted one, as it was."""
        rows: list[Row] = [row for one in moved if (row := one.after or one.before) is not None]
        columns: dict[str, Any] = {"seq": np.arange(len(rows), dtype=np.int64)}
        for name, values in zip(self._columns[table], zip(*rows, strict=True), strict=True):
            columns[name] = TextColumn.from_texts(values) if _is_text(values) else np.array(values, np.float64)
        return len(encode(Deliver(last, {0: columns})))


def _conditions(client: str, ranges: RangeColumns) -> dict[str, str]:
    """By table, when a row of it concerns a client."""
    found: dict[str, list[str]] = {"STOCK": [f"RISK BETWEEN {low} AND {high}" for low, high in merged(ranges)]}
    for one in wanted(client):
        for table, condition in one.holds.items():
            found.setdefault(table, []).append(condition)
    return {table: " OR ".join(f"({condition})" for condition in some) for table, some in found.items() if some}


def _is_text(values: Sequence[object]) -> bool:
    return any(isinstance(value, str) for value in values)
