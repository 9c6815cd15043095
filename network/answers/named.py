"""Rows as users see them: tuples with the columns' names, and lists of them that know their columns."""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class QueryRows(list[Any]):
    """What a query gives: named tuples, and `columns`, the names as SQL gives them, also where there is no row."""

    def __init__(self, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
        super().__init__(map(row_type(columns), rows))
        self.columns = columns

    def __reduce__(self) -> tuple[Any, ...]:
        return QueryRows, (self.columns, list(map(tuple, self)))


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
