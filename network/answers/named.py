"""Rows as users see them: tuples with column names, and lists that know their columns and worth."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


@dataclass(frozen=True, slots=True)
class TableWorth:
    """How current a table was when a query read it: all updates up to `seq` were loaded. `unapplied` later ones were
    not, and the oldest of these had been released `staleness_s` seconds ago.

    A view is brought up to date before it is read: that took `refresh_s` (from the arrival of the query on), and
    `promise_s` is what its `response_time` promises. Both are None for tables."""

    seq: int
    staleness_s: float
    unapplied: int
    refresh_s: float | None = None
    promise_s: float | None = None


@dataclass(frozen=True, slots=True)
class QueryWorth:
    """How good the rows of a query are.

    They are what the SQL gives at update `seq`; None if its tables were read as of different ones. `staleness_s` is
    that of the stalest table, `unapplied` counts the updates that are in no table yet, `tables` has both of each table.
    The query waited (for its turn, and for rows to be loaded) and then ran. Without a deadline, `deadline_met` is True.
    """

    seq: int | None
    staleness_s: float
    unapplied: int
    tables: Mapping[str, TableWorth]
    waited_s: float
    ran_s: float
    deadline_s: float | None
    deadline_met: bool
    policy: str

    @classmethod
    def of(cls, worth: Mapping[str, Any]) -> QueryWorth:
        """The worth that came with an answer (PROTOCOL.md, rows)."""
        tables = {name: TableWorth(**one) for name, one in worth["tables"].items()}
        return cls(
            worth["seq"],
            max((table.staleness_s for table in tables.values()), default=0.0),
            sum(table.unapplied for table in tables.values()),
            tables,
            worth["waited_s"],
            worth["ran_s"],
            worth["deadline_s"],
            worth["met"],
            worth["policy"],
        )


class QueryRows(list[Any]):
    """What a query gives: named tuples, and `columns`, the names as SQL gives them, also where there is no row.

    `worth` says how current the rows are and how long they took; None where a server did not answer (an embedded
    engine), and for all but the last portion of an answer.
    """

    def __init__(
        self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]], worth: QueryWorth | None = None
    ) -> None:
        super().__init__(map(row_type(columns), rows))
        self.columns = columns
        self.worth = worth

    def __reduce__(self) -> tuple[Any, ...]:
        return QueryRows, (self.columns, list(map(tuple, self)), self.worth)


@lru_cache(maxsize=256)  # a statement may name its columns as it likes, so their number is bounded
def row_type(columns: tuple[str, ...]) -> Callable[[Any], Any]:
    """What makes a row of a tuple: a named one, where the columns are identifiers (else `_0`, by position)."""
    row: Any = namedtuple("Row", columns, rename=True)  # type: ignore[misc]  # names are known at run time only

    def reduce(self: Any) -> tuple[Any, ...]:
        """For pickle, which cannot find such a type by its name."""
        return _make_row, (columns, tuple(self))

    setattr(row, "__reduce__", reduce)  # noqa: B010
    made: Callable[[Any], Any] = row._make
    return made


def _make_row(columns: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return row_type(columns)(values)
