"""Topologies as lines of numbers: edge lists, as SNAP and others publish them, and INET's own format.

An edge list has lines `a b` or `a b latency`, where a and b are whole numbers; `#` begins a comment. SNAP's
variants are read too: the number of nodes alone in the first line, -1 alone in the last, CRLF, tabs, links in both
directions, loops. INET's format is `nodes links`, then `id x y` for each node, then `id id weight` for each link.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hullcast.network.wire.arrays import Floats, Ints
from hullcast.network.wire.errors import UsageError
from hullcast.sim.topology.graph import Topology

MOST_NODES, MOST_LINKS = 1_000_000, 20_000_000
LARGEST_ID = 2**53  # ids are read as float64


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """What a file says, not yet checked as a graph."""

    nodes: int
    a: Ints
    b: Ints
    latency: Floats | None = None
    places: tuple[Floats, Floats] | None = None


def read_listing(text: str, file: str) -> Listing:
    """Read an edge list or INET's format, whichever it is; `file` is for messages."""
    rows = _Rows(text, file)
    if not rows.fields:
        raise UsageError(f"{file}: it has no links; expected lines 'a b' or 'a b latency', or INET's format")
    if len(rows.fields) > 1 and len(rows.fields[0]) == 2 and len(rows.fields[1]) == 3 and rows.fields[1][0] == "0":
        return _inet(rows)  # `nodes links`, then node 0; the lines of an edge list are all of one length
    return _edges(rows)


def write_edges(topology: Topology) -> str:
    """Lines `a b latency`. Places are not kept: INET's format and GraphML have them."""
    columns = (topology.source, topology.target, topology.latency)
    head = (
        f"# {_plain(topology.name)}: {topology.nodes} nodes, {topology.links} links; columns: source target latency\n"
    )
    return head + _lines(*columns)


def write_inet(topology: Topology) -> str:
    """INET's own format."""
    head = (
        f"# {_plain(topology.name)}; line: nodes links / id x y / id1 id2 weight\n{topology.nodes}\t{topology.links}\n"
    )
    nodes = _lines(np.arange(topology.nodes), topology.x, topology.y)
    return head + nodes + _lines(topology.source, topology.target, topology.latency)


class _Rows:
    """The lines that say something, split at white space, with their numbers."""

    def __init__(self, text: str, file: str) -> None:
        split = [line.partition("#")[0].split() for line in text.split("\n")]  # a CR is white space
        self.file = file
        self.numbers = [number for number, fields in enumerate(split, 1) if fields]
        self.fields = [fields for fields in split if fields]

    def table(self, begin: int, end: int, columns: int) -> Floats:
        """Rows begin .. end as numbers; refused if one has another number of columns."""
        rows = self.fields[begin:end]
        for row, fields in enumerate(rows, begin):
            if len(fields) != columns:
                raise self.bad(row, f"{columns} columns are expected here, not {len(fields)}: {self.shown(row)}")
        try:
            return np.array(rows, np.float64).reshape(-1, columns)
        except ValueError:
            raise self._no_number(begin, end) from None

    def ids(self, table: Floats, begin: int, below: int = LARGEST_ID) -> tuple[Ints, Ints]:
        """The first two columns as ids; `begin` is the table's first row."""
        ends = table[:, :2]
        right = (ends >= 0) & (ends < below) & (ends == np.floor(ends))
        if not right.all():
            row = begin + int(np.flatnonzero(~right.all(axis=1))[0])
            limit = "2^53" if below == LARGEST_ID else f"{below:,}"
            raise self.bad(row, f"ids are whole numbers, 0 or more and below {limit}, not {self.shown(row)}")
        return ends[:, 0].astype(np.int64), ends[:, 1].astype(np.int64)

    def whole(self, row: int, column: int, what: str, most: int) -> int:
        """One number of a header."""
        text = self.fields[row][column]
        if not (text.isascii() and text.isdigit()) or len(text) > 15 or not 1 <= int(text) <= most:
            raise self.bad(row, f"{text[:40]!r} is not a valid {what}; it must be an integer from 1 to {most:,}")
        return int(text)

    def bad(self, row: int, why: str) -> UsageError:
        return UsageError(f"{self.file}, line {self.numbers[row]}: {why}")

    def shown(self, row: int) -> str:
        text = " ".join(self.fields[row][:5])
        return repr(text if len(text) <= 60 else text[:60] + "..")

    def _no_number(self, begin: int, end: int) -> UsageError:
        for row in range(begin, end):
            for text in self.fields[row]:
                try:
                    float(text)
                except ValueError:
                    return self.bad(row, f"{text[:40]!r} is not a number")
        raise AssertionError("some field is no number")


def _inet(rows: _Rows) -> Listing:
    nodes = rows.whole(0, 0, "number of nodes", MOST_NODES)
    links = rows.whole(0, 1, "number of links", MOST_LINKS)
    there = len(rows.fields) - 1
    if there != nodes + links:
        raise rows.bad(0, f"{nodes:,} nodes and {links:,} links are announced, but {there:,} lines follow: cut short?")
    places = rows.table(1, 1 + nodes, 3)
    wrong = np.flatnonzero(places[:, 0] != np.arange(nodes))
    if len(wrong):
        raise rows.bad(1 + int(wrong[0]), f"node {wrong[0]} is expected here, not {rows.shown(1 + int(wrong[0]))}")
    wrong = np.flatnonzero(~np.isfinite(places).all(axis=1))
    if len(wrong):
        raise rows.bad(1 + int(wrong[0]), f"a place is two finite numbers, not {rows.shown(1 + int(wrong[0]))}")
    table = rows.table(1 + nodes, 1 + nodes + links, 3)
    a, b = rows.ids(table, 1 + nodes, nodes)
    table[:, 2] = np.where(table[:, 2] == 0, 1.0, table[:, 2])  # INET's for two nodes less than 1 apart
    return Listing(nodes, a, b, _latency(rows, table, 1 + nodes), (places[:, 1].copy(), places[:, 2].copy()))


def _edges(rows: _Rows) -> Listing:
    begin, end = 0, len(rows.fields)
    announced = 0
    if len(rows.fields[0]) == 1:
        announced = rows.whole(0, 0, "number of nodes", MOST_NODES)
        begin = 1
    if rows.fields[-1] == ["-1"]:
        end -= 1
    if begin >= end:
        raise rows.bad(0, "no links follow")
    if end - begin > MOST_LINKS:
        raise UsageError(f"{rows.file}: {end - begin:,} links; the limit is {MOST_LINKS:,}")
    columns = len(rows.fields[begin])
    if columns not in (2, 3):
        raise rows.bad(begin, f"a link is 'a b' or 'a b latency', not {rows.shown(begin)}")
    table = rows.table(begin, end, columns)
    a, b = rows.ids(table, begin, announced or LARGEST_ID)
    nodes = announced
    if not announced:
        ids, numbers = np.unique(np.concatenate((a, b)), return_inverse=True)
        a, b, nodes = numbers[: len(a)], numbers[len(a) :], len(ids)
        if nodes > MOST_NODES:
            raise UsageError(f"{rows.file}: {nodes:,} nodes; the limit is {MOST_NODES:,}")
    if columns == 2 or (table[:, 2] == 1).all():  # a column of ones says that there is a link, not how long it is
        return Listing(nodes, a, b)
    return Listing(nodes, a, b, _latency(rows, table, begin))


def _latency(rows: _Rows, table: Floats, begin: int) -> Floats:
    wrong = np.flatnonzero(~(np.isfinite(table[:, 2]) & (table[:, 2] >= 1)))
    if len(wrong):
        row = begin + int(wrong[0])
        raise rows.bad(row, f"a latency is a number of at least 1, not {rows.shown(row)}")
    return table[:, 2].copy()


def _lines(*columns: Ints | Floats) -> str:
    """Columns as lines; whole numbers without a point."""
    whole = [bool(((column == np.floor(column)) & (np.abs(column) < LARGEST_ID)).all()) for column in columns]
    texts = [
        map(str, column.astype(np.int64).tolist() if plain else column.tolist())
        for column, plain in zip(columns, whole, strict=True)
    ]
    return "".join(map("{}\t{}\t{}\n".format, *texts))


def _plain(name: str) -> str:
    return " ".join(name.split())
