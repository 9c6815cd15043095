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


@dataclass(frozen=True, slots=True)
class Table:
    """One table as declared. Names compare without regard to case, and print as declared."""

    name: str
    columns: tuple[Column, ...]
    key: int  # position of the primary key in `columns`
    feed: FeedTerms | None = None

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
        return ""

    @property
    def key_column(self) -> Column:
        """The primary key."""
        return self.columns[self.key]
