"""What a table is: its columns, their types, its primary key.

Inside the server every value is one float64, its *code* (see `broker/tables/values.py`): numbers are
themselves, a TIMESTAMP is microseconds since 1970 UTC, a TEXT is its number in the interner, and NULL is NaN
(NaN and infinities are refused at the door, so they are free for our own use). One array type for
all columns is what keeps the kernels few and small.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from enum import Enum
from typing import Final

from hullcast.network.wire.durations import duration_text
from hullcast.network.wire.errors import UnknownColumn


def fold(name: str) -> str:
    """A table's or column's name as names are compared: A to Z without regard to case, as SQLite does."""
    return name.lower() if name.isascii() else name.translate(_LOWER)


_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


class ColumnType(Enum):
    """The four column types; the value is the SQL name."""

    TEXT = "TEXT"
    REAL = "REAL"
    INTEGER = "INTEGER"
    TIMESTAMP = "TIMESTAMP"

    @property
    def ordered(self) -> bool:
        """Whether codes sort as values do: a range needs that, and interned TEXT does not have it."""
        return self is not ColumnType.TEXT

    @property
    def numeric(self) -> bool:
        """Whether SUM and AVG make sense."""
        return self in (ColumnType.REAL, ColumnType.INTEGER)


@dataclass(frozen=True, slots=True)
class Column:
    """One column as declared."""

    name: str
    type: ColumnType
    not_null: bool = False

    @property
    def declared(self) -> str:
        """Type and constraint as SQL writes them."""
        return f"{self.type.value}{' NOT NULL' if self.not_null else ''}"


@dataclass(frozen=True, slots=True)
class FeedTerms:
    """What a table declares about how it is loaded for queries: WITH (period = '1m', weight = 3).

    `period_s`: how often its changes come, if they come regularly. `weight`: how much its staleness counts beside that
    of other tables.
    """

    period_s: float | None = None
    weight: float = 1.0

    @property
    def declared(self) -> str:
        """The terms as SQL writes them, behind WITH."""
        period = "" if self.period_s is None else f"period = '{duration_text(self.period_s)}', "
        return f"({period}weight = {self.weight:.17g})"


#: The last column of a stream, and its key: the sequence number of the tuple.
POSITION: Final = Column("POSITION", ColumnType.INTEGER, not_null=True)
#: The column before it, of a derived stream: the position of the tuple that made this one.
AT: Final = Column("AT", ColumnType.INTEGER, not_null=True)


@dataclass(frozen=True, slots=True)
class StreamTerms:
    """What a stream declares about how much of it is kept: WITH (retain_rows = 1000000, retain = '1h').

    None: nothing is said. Then about `DEFAULT_ROWS` tuples are kept, of any age. `source` is the SELECT whose results
    are the tuples of a derived stream; nobody publishes to it.
    """

    retain_rows: int | None = None
    retain_s: float | None = None
    source: str = ""

    @property
    def rows(self) -> int:
        """The oldest tuples go when there are more than so many (and an eighth)."""
        return DEFAULT_ROWS if self.retain_rows is None else self.retain_rows

    @property
    def declared(self) -> str:
        """The terms as SQL writes them, behind WITH; empty if there are none."""
        rows = [] if self.retain_rows is None else [f"retain_rows = {self.retain_rows}"]
        age = [] if self.retain_s is None else [f"retain = '{duration_text(self.retain_s)}'"]
        escaped = self.source.replace("'", "''")
        source = [f"derived_from = '{escaped}'"] if self.source else []
        return f"({', '.join(rows + age + source)})" if rows or age or source else ""


#: How many tuples a stream keeps that does not say.
DEFAULT_ROWS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Table:
    """One table as declared. Names compare without regard to case, and print as declared.

    A stream is a table with `stream` terms: its rows are tuples that are appended and never change, its last column and
    key is `POSITION`, which users do not declare.
    """

    name: str
    columns: tuple[Column, ...]
    key: int  # position of the primary key in `columns`
    feed: FeedTerms | None = None
    stream: StreamTerms | None = None

    @property
    def word(self) -> str:
        """What it is: a table or a stream."""
        return "table" if self.stream is None else "stream"

    @property
    def is_derived(self) -> bool:
        """Whether it is a stream whose tuples are the results of a SELECT."""
        return self.stream is not None and bool(self.stream.source)

    @property
    def time(self) -> int | None:
        """Of a stream: the column that says when a tuple happened, its first TIMESTAMP that is never NULL; None if it
        has none."""
        stamps = (place for place, one in enumerate(self.columns) if one.type is ColumnType.TIMESTAMP and one.not_null)
        return next(stamps, None)

    def __hash__(self) -> int:
        """Of what nearly always tells tables apart: it is asked for several times for each query."""
        return hash((self.name, self.key, len(self.columns)))

    def position(self, column: str) -> int:
        """Where a column stands, or UnknownColumn."""
        folded = fold(column)
        for position, declared in enumerate(self.columns):
            if fold(declared.name) == folded:
                return position
        raise UnknownColumn(column, self.name, tuple(c.name for c in self.columns))

    def column(self, name: str) -> Column:
        """The column of that name, or UnknownColumn."""
        return self.columns[self.position(name)]

    def difference(self, wanted: Table) -> str:
        """How this table differs from one wanted in its place, in words; empty if it does not."""
        if self.word != wanted.word:
            return f"it is a {self.word}, not a {wanted.word}"
        for column in wanted.columns:
            there = next((one for one in self.columns if fold(one.name) == fold(column.name)), None)
            if there is None:
                return f"it has no column {column.name}"
            if (there.type, there.not_null) != (column.type, column.not_null):
                return f"its column {there.name} is {there.declared}, not {column.declared}"
        wanted_names = [fold(column.name) for column in wanted.columns]
        for column in self.columns:
            if fold(column.name) not in wanted_names:
                return f"it also has a column {column.name} ({column.declared})"
        if fold(self.key_column.name) != fold(wanted.key_column.name):
            return f"its primary key is {self.key_column.name}, not {wanted.key_column.name}"
        if [fold(column.name) for column in self.columns] != wanted_names:
            return f"its columns are in another order: {', '.join(column.name for column in self.columns)}"
        if wanted.feed not in (None, self.feed):  # a statement that says nothing about it takes it as it is
            there_is = "is without WITH" if self.feed is None else f"is WITH {self.feed.declared}"
            return f"it {there_is}, not WITH {wanted.feed.declared}"
        if self.stream is not None and wanted.stream not in (None, StreamTerms(), self.stream):
            there_is = f"is WITH {self.stream.declared}" if self.stream.declared else "is without WITH"
            return f"it {there_is}, not WITH {wanted.stream.declared}"
        return ""

    @property
    def key_column(self) -> Column:
        """The primary key."""
        return self.columns[self.key]
