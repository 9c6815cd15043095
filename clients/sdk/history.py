"""The change history and tables at a sequence number, as users read them: in portions, one ahead."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.network import compiled
from hullcast.network.answers.named import QueryRows
from hullcast.network.wire.bodies import MOST_TABLE_PARTS, ChangedRows, ReadChanges, ReadTable, RowsAsOf
from hullcast.network.wire.columns import TextColumn
from hullcast.network.wire.errors import BadFrame, BadSetting, UsageError
from hullcast.network.wire.value_columns import Nullable
from hullcast.network.wire.values import rows_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from numpy.typing import NDArray

    from hullcast.network.wire.arrays import Booleans, Ints
    from hullcast.network.wire.bodies import Body
    from hullcast.network.wire.value_columns import Values

    Ask = Callable[[Body, str, float | None], Awaitable[Body]]


@dataclass(frozen=True, slots=True)
class History:
    """Changes with sequence numbers `first` to `last` can be read, and the table as of `first` - 1 to `last`.

    The table was created after update `created`. A table that is dropped and created again is another: its `created`
    is another number, and the changes of the earlier one can no longer be read.
    """

    first: int
    last: int
    created: int


class _Portion:
    """Rows as columns."""

    def __init__(self, values: dict[str, Values]) -> None:
        self._values = values

    def __len__(self) -> int:
        """The number of rows."""
        return len(next(iter(self._values.values()), ()))

    @cached_property
    def columns(self) -> dict[str, NDArray[Any]]:
        """A NumPy array a column: float64 (NaN is NULL) for REAL, datetime64[us] (NaT is NULL) for TIMESTAMP, str and
        None for TEXT; int64 for INTEGER, or int and None where this portion has a NULL."""
        return {name: _array(column) for name, column in self._values.items()}

    @property
    def rows(self) -> QueryRows:
        """The rows as `query` gives them: named tuples, None for NULL."""
        return QueryRows(tuple(self._values), rows_of(tuple(self._values.values())))


class ChangePart(_Portion):
    """Changes of a table, in order. Row i has number `seq[i]`; where `deleted[i]`, only its key is there.

    All changes up to `last` have been given with this portion: it is what to go on from (`after=part.last`).
    """

    def __init__(self, reply: ChangedRows) -> None:
        super().__init__(reply.columns)
        self.seq: Ints = reply.seq
        self.deleted: Booleans = reply.deleted
        self.last = reply.last

    def to_arrow(self) -> Any:
        """A pyarrow Table: `_seq`, `_deleted`, then the table's columns. Needs the extra `arrow`."""
        return _arrow({"_seq": self.seq, "_deleted": self.deleted}, self._values)

    def __repr__(self) -> str:
        return f"ChangePart({len(self)} rows, last={self.last})"


class TablePart(_Portion):
    """Rows of a table as it was after update `seq`."""

    def __init__(self, reply: RowsAsOf) -> None:
        super().__init__(reply.columns)
        self.seq = reply.seq

    def to_arrow(self) -> Any:
        """A pyarrow Table. Needs the extra `arrow`."""
        return _arrow({}, self._values)

    def __repr__(self) -> str:
        return f"TablePart({len(self)} rows, seq={self.seq})"


async def read_changes(
    ask: Ask, table: str, after: int | None, through: int | None, timeout_s: float | None
) -> AsyncGenerator[ChangePart, None]:
    """The changes behind `after`, a portion at a time."""
    after = None if after is None else whole_number("after", after, 0)
    through = None if through is None else whole_number("through", through, 0)
    if after is not None and through is not None and through < after:
        raise BadSetting("through", through, f"must not be less than after, which is {after}")
    what = f"changes of {table}"

    def asked(after: int | None, through: int | None) -> asyncio.Task[Body]:
        body = ReadChanges(table, after, through)
        return asyncio.create_task(_awaited(ask(body, what, timeout_s)), name="client.changes")

    coming = asked(after, through)
    try:
        while True:
            reply = await coming
            if not isinstance(reply, ChangedRows) or reply.last < (after or 0):
                raise BadFrame(f"{type(reply).__name__} is not a reply to a read of changes")
            after, done = reply.last, reply.last >= reply.through
            if not done:
                coming = asked(after, reply.through)
                await _prepare_for_more()
            if len(reply.seq) or done:
                yield ChangePart(reply)
            if done:
                return
    finally:
        await given_up(coming)


async def read_table(
    ask: Ask, table: str, seq: int | None, part: int, parts: int, timeout_s: float | None
) -> AsyncGenerator[TablePart, None]:
    """The rows of a part of a table, a portion at a time; at least one, if only an empty one."""
    seq = None if seq is None else whole_number("seq", seq, 0)
    parts = whole_number("parts", parts, 1, MOST_TABLE_PARTS)
    part = whole_number("part", part, 0, parts - 1)
    what = f"rows of {table}"

    def asked(seq: int | None, start: int | None) -> asyncio.Task[Body]:
        body = ReadTable(table, seq, part, parts, start)
        return asyncio.create_task(_awaited(ask(body, what, timeout_s)), name="client.table_at")

    coming = asked(seq, None)
    try:
        while True:
            reply = await coming
            if not isinstance(reply, RowsAsOf):
                raise BadFrame(f"{type(reply).__name__} is not a reply to a read of rows")
            if reply.next is not None:
                coming = asked(reply.seq, reply.next)
                await _prepare_for_more()
            found = TablePart(reply)
            if len(found) or reply.next is None:
                yield found
            if reply.next is None:
                return
    finally:
        await given_up(coming)


async def _prepare_for_more() -> None:
    """Load numba, which decodes large portions faster, in a thread: the link must not wait for it."""
    if not compiled.is_loaded():
        await asyncio.to_thread(compiled.load)


async def _awaited(reply: Awaitable[Body]) -> Body:
    return await reply


async def given_up(coming: asyncio.Task[Body]) -> None:
    """Nobody waits for a portion any more."""
    coming.cancel()
    await asyncio.gather(coming, return_exceptions=True)


def whole_number(name: str, value: object, least: int, most: int = (1 << 63) - 1) -> int:
    """A whole number in a range; BadSetting otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        reason = f"must be a whole number, {least} or more"
        if most < (1 << 63) - 1:
            reason = f"must be a whole number from {least} to {most}"
        raise BadSetting(name, value, reason)
    return int(value)


def _array(column: Values) -> NDArray[Any]:
    if isinstance(column, TextColumn):
        return np.array([*column.words, None], dtype=object)[column.codes]
    if isinstance(column, Nullable):
        if column.values.dtype.kind == "f":
            return np.where(column.nulls, np.nan, column.values)
        values = column.values.astype(object)
        values[column.nulls] = None
        return values
    if isinstance(column, np.ndarray):
        return column
    return np.array([*column.items, None], dtype=object)[:-1]


def _arrow(own: dict[str, Values], values: dict[str, Values]) -> Any:
    try:
        import pyarrow as pa  # type: ignore[import-untyped]  # has no types
    except ModuleNotFoundError:
        raise UsageError("to_arrow() needs pyarrow; install it with pip install 'hullcast[arrow]'") from None

    columns = [*own.items(), *values.items()]  # a table may have columns of our names
    return pa.Table.from_arrays([_arrow_array(column) for _, column in columns], names=[name for name, _ in columns])


def _arrow_array(column: Values) -> Any:
    import pyarrow as pa

    if isinstance(column, TextColumn):
        words = pa.array(column.words, pa.string())
        codes = pa.array(column.codes, mask=column.codes < 0)
        return words.take(codes)
    if isinstance(column, Nullable):
        return pa.array(column.values, mask=column.nulls)
    if isinstance(column, np.ndarray):
        if column.dtype.kind == "M":
            return pa.array(column, pa.timestamp("us", tz="UTC"))
        return pa.array(column)
    return pa.array(column.items)
