"""Changes on their way to the server: in turn and not too many at once, and large ones in pieces."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from itertools import islice
from typing import TYPE_CHECKING, Self

from hullcast.network.wire.errors import BadValue, HullcastError
from hullcast.network.wire.value_columns import most_rows, row_count, taken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from hullcast.network.wire.value_columns import Masks, ValueColumns

#: Rows that a server takes at once unless it is set otherwise (`batch_rows`), and of each piece of more than these.
WHOLE_ROWS, PIECE_ROWS = 100_000, 50_000


class PartlyPublished(HullcastError):
    """A change went in several pieces, and one failed: the rows before it are durable. `__cause__` is why."""

    table: str
    durable: int
    rows: int
    seq: int
    reason: str
    _says = (
        "the first {durable} of {rows} rows for {table} are durable, up to seq {seq}; "
        "the piece from row {durable} on failed: {reason}"
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


class Gate:
    """Callers take turns in the order they came. So many are inside at once, with so many bytes: whoever has the turn
    waits while it is full. One alone always passes, whatever its size."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._inside = self._bytes = 0
        self._row: deque[Turn] = deque()  # the first has the turn
        self._someone_left = asyncio.Event()

    def turn(self, look: Callable[[], None] | None = None) -> Turn:
        """A place in the row, from now on. Who does not wait for its turn (`Turn.come`) is called when it may have come
        (`look`), at the loop's next turn or later."""
        turn = Turn(self, look)
        self._row.append(turn)
        if len(self._row) > 1:
            self._row[-2]._look()  # it is not the last any more
        return turn

    @asynccontextmanager
    async def passing(self, size_bytes: int) -> AsyncIterator[None]:
        """Be inside; to be entered by whoever has the turn, which may end long before the stay inside."""
        while not self.has_room(size_bytes):
            self._someone_left.clear()
            await self._someone_left.wait()
        self.enter(size_bytes)
        try:
            yield
        finally:
            self.leave(size_bytes)

    def enter(self, size_bytes: int) -> None:
        """Go inside, where there is room."""
        self._inside += 1
        self._bytes += size_bytes

    def leave(self, size_bytes: int) -> None:
        """Be inside no longer."""
        self._inside -= 1
        self._bytes -= size_bytes
        self._someone_left.set()
        self._wake()

    def has_room(self, size_bytes: int) -> bool:
        """Whether one more may come in."""
        return not self._inside or (self._inside < self._most and self._bytes + size_bytes <= self._most_bytes)

    def _wake(self) -> None:
        """Let the next ones look whether it is their turn. As many as may pass, so that they do so in one go: woken in
        the order of the row, each is the first when it looks, if those before it passed."""
        for turn in islice(self._row, max(1, self._most - self._inside)):
            turn._look()


class Turn:
    """A place in the row before a gate, until its end; at the end of a `with` block at the latest."""

    def __init__(self, gate: Gate, look: Callable[[], None] | None = None) -> None:
        self._gate, self._called = gate, look
        self._over = False
        self._waiting: asyncio.Future[None] | None = None

    @property
    def is_first(self) -> bool:
        """Whether the turn has come."""
        return self._gate._row[0] is self

    @property
    def is_last(self) -> bool:
        """Whether nobody is behind."""
        return not self._over and self._gate._row[-1] is self

    async def come(self) -> None:
        """Wait until this is the first in the row."""
        while self._gate._row[0] is not self:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting

    def end(self) -> None:
        """Leave the row: the next one is the first."""
        if not self._over:
            self._over = True
            self._gate._row.remove(self)
            self._gate._wake()

    def _look(self) -> None:
        if self._called is not None:
            self._called()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()
