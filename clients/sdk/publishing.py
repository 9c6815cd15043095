"""Changes larger than a server takes at once: the pieces they go in, and what is left when one of them fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hullcast.network.wire.errors import BadValue, HullcastError
from hullcast.network.wire.value_columns import most_rows, row_count, taken

if TYPE_CHECKING:
    from hullcast.network.wire.value_columns import Masks, ValueColumns

#: Rows that a server takes at once unless it is set otherwise (`batch_rows`), and of each piece of more than these.
WHOLE_ROWS, PIECE_ROWS = 100_000, 50_000


class PartlyPublished(HullcastError):
    """A change went in several pieces, and one failed: the rows before it are durable. `__cause__` is why."""

    def __init__(self, table: str, durable: int, rows: int, seq: int, reason: str) -> None:
        super().__init__(table, durable, rows, seq, reason)
        self.table, self.durable, self.rows, self.seq, self.reason = table, durable, rows, seq, reason

    def __str__(self) -> str:
        return (
            f"the first {self.durable} of {self.rows} rows for {self.table} are durable, up to seq {self.seq}; "
            f"the piece from row {self.durable} on failed: {self.reason}"
        )


def ranges(columns: ValueColumns) -> list[slice]:
    """The pieces of a batch: one if a server takes it whole, or if columns differ in length (it says so)."""
    lengths = set(map(row_count, columns.values()))
    rows = max(lengths, default=0)
    if rows <= WHOLE_ROWS or len(lengths) > 1:
        return [slice(0, rows)]
    return [slice(start, min(rows, start + PIECE_ROWS)) for start in range(0, rows, PIECE_ROWS)]


def some_rows(columns: ValueColumns, absent: Masks | None, rows: slice) -> tuple[ValueColumns, Masks | None]:
    """A piece of a batch, or all of it."""
    if rows.start == 0 and rows.stop == most_rows(columns):
        return columns, absent
    masks = None if absent is None else {name: mask[rows] for name, mask in absent.items()}
    return {name: taken(values, rows) for name, values in columns.items()}, masks


def counted_from(error: HullcastError, start: int) -> HullcastError:
    """The refusal of a piece, its row counted from the beginning of the whole."""
    if isinstance(error, BadValue):
        return BadValue(error.table, error.row + start, error.column, error.reason)
    return error
