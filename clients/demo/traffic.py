"""What the updates cost on the wire, and what two other approaches would have cost.

All three are counted on the same tree, in messages and bytes on all links (server to root, root to gateways, gateways
to clients), without snapshots, replays and acknowledgements:

Hullcast   measured: the frames with messages that each process handed to its children
CN         computed: content-based routing. Each changed row goes, once a link, to all clients with a range that holds
           it, before or after; encoded as Hullcast would encode it. Clients get rows, not answers: they have to keep
           all rows in their ranges and ask SQL again, here once a frame for each range that holds a row of it.
unicast    computed: one message for each changed answer, from the server all the way: number, update, new answer
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.demo.scenario import CLIENTS, WANTED, share_of
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
    asked: int  # subscriptions whose range holds a row of a frame, over all frames: what clients of CN ask SQL again
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
    """CN: routes rows by content. Conditions of the watched subscriptions are put to SQLite."""

    def __init__(self, ranges: RangeColumns) -> None:
        self.load = LinkLoad()
        self.asked = 0
        self._ranges = ranges
        shares = {client: share_of(ranges, client) for client in CLIENTS}
        self._ends = {client: (np.sort(share.low), np.sort(share.high)) for client, share in shares.items()}
        self._database = sqlite3.connect(":memory:")
        for sql in CREATES:
            self._database.execute(sql.replace("CREATE TABLE ", "CREATE TABLE MOVED_").replace(" PRIMARY KEY", ""))
        self._columns: dict[str, list[str]] = {}
        for table in TABLES:
            self._database.execute(f"ALTER TABLE MOVED_{table} ADD COLUMN NUMBER INTEGER")
            rows = self._database.execute("SELECT name FROM pragma_table_info(?)", (f"MOVED_{table}",))
            self._columns[table] = [name for (name,) in rows][:-1]

    def carry(self, table: str, last: int, moved: Sequence[Moved], places: Mapping[str, str]) -> None:
        """Send a frame of updates to those they concern; `places` says at which gateway each client is."""
        concerned = self.concerned(table, moved)
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

    def concerned(self, table: str, moved: Sequence[Moved]) -> dict[str, frozenset[int]]:
        """By client, which of these updates it must hear of. Counts what it has to ask again."""
        self._database.execute(f"DELETE FROM MOVED_{table}")
        marks = ", ".join("?" * (len(self._columns[table]) + 1))
        both = [(*row, n) for n, one in enumerate(moved) for row in (one.before, one.after) if row is not None]
        self._database.executemany(f"INSERT INTO MOVED_{table} VALUES ({marks})", both)
        found: dict[str, frozenset[int]] = dict.fromkeys(CLIENTS, frozenset())
        for client, one in WANTED.items():
            if table in one.holds:
                rows = self._database.execute(f"SELECT DISTINCT NUMBER FROM MOVED_{table} WHERE {one.holds[table]}")
                found[client] = frozenset(number for (number,) in rows)
                self.asked += bool(found[client])
        if table == "STOCK":
            risk = self._columns[table].index("RISK")  # constant for a stock: the same before and after
            numbered = [(n, row) for n, one in enumerate(moved) if (row := one.after or one.before) is not None]
            numbers = np.array([n for n, _ in numbered])
            values = np.array([row[risk] for _, row in numbered], np.float64)
            for client, (lows, highs) in self._ends.items():
                holding = np.searchsorted(lows, values, "right") > np.searchsorted(highs, values, "left")
                found[client] |= frozenset(numbers[holding].tolist())
            values.sort()
            first, end = np.searchsorted(values, self._ranges.low), np.searchsorted(values, self._ranges.high, "right")
            self.asked += int((first < end).sum())
        return found

    def _size(self, table: str, last: int, moved: Sequence[Moved]) -> int:
        """The frame with these rows as they are now; of a deleted one, as it was."""
        rows: list[Row] = [row for one in moved if (row := one.after or one.before) is not None]
        columns: dict[str, Any] = {"seq": np.arange(len(rows), dtype=np.int64)}
        for name, values in zip(self._columns[table], zip(*rows, strict=True), strict=True):
            columns[name] = TextColumn.from_texts(values) if _is_text(values) else np.array(values, np.float64)
        return len(encode(Deliver(last, {0: columns})))


def _is_text(values: Sequence[object]) -> bool:
    return any(isinstance(value, str) for value in values)
