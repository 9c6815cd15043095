"""Topologies as lines of numbers: edge lists as SNAP and CAIDA publish them, and INET's format.

An edge list has lines `a b` or `a b latency`, where a and b are whole numbers; `#` begins a comment. Spaces, tabs,
commas or pipes are between them, in all lines the same. SNAP's variants are read too: the number of nodes alone in the
first line, -1 alone in the last, CRLF, links in both directions, loops. So are CAIDA's lists of links between
autonomous systems: `a|b|-1` and `a|b|-1|bgp`, where the third column is who pays whom, and `D a b ..`, of which other
lines (I: links with a gap, M, T) are left out. Of any other file a user says which columns are the ends and the
latency (`Columns`). INET's format is `nodes links`, then `id x y` for each node, then `id id weight` for each link.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hullcast.network.wire.arrays import Floats, Ints
from hullcast.network.wire.errors import UsageError
from hullcast.sim.topology.graph import Topology

MOST_NODES, MOST_LINKS = 1_000_000, 20_000_000
LARGEST_ID = 2**53  # ids are read as float64
#: Which columns are the two ends and, if there is one, the latency: numbers from 1 on, or names in the first line.
Columns = tuple[str, ...]
#: What CAIDA writes in the third column: a pays b, peers, the other way round, the same owner.
_RELATIONS = ("-1", "0", "1", "2")
#: What CAIDA's lines of links between autonomous systems begin with: link, link with a gap, monitor, time.
_AS_LINES = ("D", "I", "M", "T")
_SET = re.compile(r"\{?([0-9]+)[_,][0-9_,]+\}?|\{([0-9]+)\}")
_HELP = "--columns says which columns are the two ends and the latency, such as --columns 1,2"


def columns_of(text: str) -> Columns:
    """From the words of a command line: `1,2`, `1,2,5`, `source,target`."""
    parts = [part.strip() for part in text.split(",")]
    columns = tuple(str(int(part)) if part.isascii() and part.isdigit() else part for part in parts)  # 01 is 1
    different = {column.lower() for column in columns}
    if len(columns) not in (2, 3) or len(different) < len(columns) or not all(columns) or "0" in columns:
        raise UsageError(
            f"--columns {text}: give two columns, the ends of a link, or three, with its latency, by their numbers "
            "from 1 on or their names: --columns 1,2 or --columns source,target,latency"
        )
    return columns


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """What a file says, not yet checked as a graph."""

    nodes: int
    a: Ints
    b: Ints
    latency: Floats | None = None
    places: tuple[Floats, Floats] | None = None
    notes: list[str] = field(default_factory=list)  # what was left out or taken otherwise, in sentences


def read_listing(text: str, file: str, columns: Columns = ()) -> Listing:
    """Read an edge list or INET's format, whichever it is; `file` is for messages. With `columns` it is a list."""
    rows = _Rows(text, file)
    if not rows.fields:
        raise UsageError(f"{file}: it has no links; expected lines 'a b' or 'a b latency', or INET's format")
    if columns:
        rows.choose(columns)
        return _edges(rows, chosen=True)
    if rows.fields[0][0] in _AS_LINES:
        rows.keep_links()
    elif rows.sign == "|" or rows.are_relations():
        rows.without_relations()
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
    """The lines that say something, split at what is between their columns, with their numbers."""

    def __init__(self, text: str, file: str) -> None:
        lines = [line.partition("#")[0].strip() for line in text.split("\n")]  # a CR is white space
        self.file = file
        self.numbers = [number for number, line in enumerate(lines, 1) if line]
        lines = [line for line in lines if line]
        self.sign = _sign(lines[1] if len(lines) > 1 else lines[0]) if lines else None
        self.fields = [_split(line, self.sign) for line in lines]
        self._sets = any(sign in text for sign in ("_{" if self.sign == "," else "_{,"))  # or nobody need look for them
        self.notes: list[str] = []

    def keep_links(self) -> None:
        """Of CAIDA's lines `D a b ..` the two ends; all others are left out, and links with a gap counted."""
        links = [row for row, fields in enumerate(self.fields) if fields[0] == "D"]
        strange = next((row for row, fields in enumerate(self.fields) if fields[0] not in _AS_LINES), None)
        if strange is not None:
            raise self.bad(strange, f"a line begins with D, I, M or T here, not {self.shown(strange)}; {_HELP}")
        gaps = sum(fields[0] == "I" for fields in self.fields)
        if gaps:
            self.notes.append(f"{gaps:,} links with a gap (I) are left out")
        if not links:
            raise UsageError(f"{self.file}: no line begins with D, so it has no links")
        self._take(links, (1, 2))

    def are_relations(self) -> bool:
        """Whether each third column is one of CAIDA's relations, and one of them at least can be no latency."""
        thirds = {fields[2] for fields in self.fields if len(fields) == 3} if len(self.fields[0]) == 3 else set()
        return bool(thirds & {"-1", "0"}) and thirds <= set(_RELATIONS)

    def without_relations(self) -> None:
        """Of CAIDA's lines `a|b|relation` the two ends."""
        for row, fields in enumerate(self.fields):
            if not 2 <= len(fields) <= 4 or (len(fields) > 2 and fields[2] not in _RELATIONS):
                raise self.bad(
                    row, f"expected a|b|relation with a relation of -1, 0, 1 or 2, not {self.shown(row)}; {_HELP}"
                )
        if len(self.fields[0]) > 2:
            self.notes.append("the third column is taken as the relation of the two ends, not as a latency")
        self._take(range(len(self.fields)), (0, 1))

    def choose(self, columns: Columns) -> None:
        """Only these columns, by number or by name; lines with the number of nodes, or -1 at the end, stay."""
        begin, first = 0, self.fields[0]
        if all(column.isascii() and column.isdigit() for column in columns):
            places = [int(column) - 1 for column in columns]
            begin = int(not any(map(_is_id, (first[place] for place in places[:2] if place < len(first)))))
            begin = 0 if len(first) == 1 else begin  # names of columns are no ids
        else:
            begin, places = 1, []
            for column in columns:
                found = [place for place, name in enumerate(first) if name.strip('"').lower() == column.lower()]
                if len(found) != 1:
                    problem = f"{len(found)} columns are named" if found else "no column is named"
                    raise self.bad(0, f"{problem} {column!r} in {self.shown(0)}; give numbers, such as --columns 1,2")
                places += found
        rows = range(begin, len(self.fields))
        if not rows:
            raise self.bad(0, "no links follow")
        self._take(rows, places)

    def _take(self, rows: Sequence[int], places: Sequence[int]) -> None:
        """Only these rows and columns."""
        taken: list[list[str]] = []
        last = len(self.fields) - 1
        for row in rows:
            fields = self.fields[row]
            if len(fields) == 1 and (row == 0 or (row == last and fields == ["-1"])):
                taken.append(fields)
            elif len(fields) <= max(places):
                raise self.bad(row, f"it has no column {max(places) + 1}: {self.shown(row)}; {_HELP}")
            else:
                taken.append([fields[place] for place in places])
        self.numbers = [self.numbers[row] for row in rows]
        self.fields = taken

    def take_first_of_sets(self) -> None:
        """Where an end is several systems (`1_2`, `{1,2}`), the first of them."""
        several, such = 0, ""
        for fields in self.fields if self._sets else ():
            for end, text in enumerate(fields[:2]):
                if not text.isdigit() and (found := _SET.fullmatch(text)):
                    several, such = several + 1, such or text
                    fields[end] = found[1] or found[2]
        if several:
            self.notes.append(f"{several:,} ends name several systems, such as {such}; the first of each is taken")

    def table(self, begin: int, end: int, columns: int) -> Floats:
        """Rows begin .. end as numbers; refused if one has another number of columns."""
        rows = self.fields[begin:end]
        for row, fields in enumerate(rows, begin):
            if len(fields) != columns:
                raise self.bad(row, f"{columns} columns are expected here, not {len(fields)}: {self.shown(row)}")
        if self._sets and any("_" in text for fields in rows for text in fields):
            raise self._no_number(begin, end)  # 1_2 is 12 to Python
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
                    float(text.replace("_", "?"))
                except ValueError:
                    return self.bad(row, f"{text[:40]!r} is not a number; {self.remedy(row)}")
        raise AssertionError("some field is no number")

    def remedy(self, row: int) -> str:
        """What would help with a line that is no link."""
        fields = self.fields[row]
        if fields[0] == "link" and len(fields) > 1 and fields[1].endswith(":"):
            return "this seems to be CAIDA's ITDK, whose links of routers are not read; give a list of links 'a b'"
        if row == 0 and not any(map(_is_id, fields)):
            return f"if this line has the names of columns, say --columns {','.join(fields[:2])}"
        return _HELP


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


def _edges(rows: _Rows, *, chosen: bool = False) -> Listing:
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
    rows.take_first_of_sets()
    columns = len(rows.fields[begin])
    if columns not in (2, 3):
        raise rows.bad(begin, f"a link is 'a b' or 'a b latency', not {rows.shown(begin)}; {rows.remedy(begin)}")
    table = rows.table(begin, end, columns)
    a, b = rows.ids(table, begin, announced or LARGEST_ID)
    nodes = announced
    if not announced:
        ids, numbers = np.unique(np.concatenate((a, b)), return_inverse=True)
        a, b, nodes = numbers[: len(a)], numbers[len(a) :], len(ids)
        if nodes > MOST_NODES:
            raise UsageError(f"{rows.file}: {nodes:,} nodes; the limit is {MOST_NODES:,}")
    # A column of ones says that there is a link, not how long it is, unless it was chosen as the latency.
    if columns == 2 or (not chosen and (table[:, 2] == 1).all()):
        return Listing(nodes, a, b, notes=rows.notes)
    return Listing(nodes, a, b, _latency(rows, table, begin), notes=rows.notes)


def _sign(line: str) -> str | None:
    """What is between the columns, by one line: a pipe, a comma, or (None) any white space."""
    if "|" in line:
        return "|"
    words = line.split()
    whole = len(words) > 1 and not any(word.startswith(",") or word.endswith(",") for word in words)
    return "," if "," in line and not whole else None  # `D 1,2 3` has a comma in a set of systems


def _split(line: str, sign: str | None) -> list[str]:
    return line.split() if sign is None else [cell.strip() for cell in line.split(sign)]


def _is_id(text: str) -> bool:
    return text.lstrip("{")[:1].isdigit()


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
