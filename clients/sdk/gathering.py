"""Gathers rows that are published one by one: those of one turn of the event loop are one change."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hullcast.network.wire import bodies
from hullcast.network.wire.errors import BadFrame, ConnectionLost, HullcastError, TimedOut
from hullcast.network.wire.limits import DEFAULT
from hullcast.network.wire.packing import Foreign
from hullcast.network.wire.value_columns import Masks, ValueColumns, is_values
from hullcast.network.wire.values import PLAIN, rows_to_columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.clients.sdk.line import Line
    from hullcast.clients.sdk.publishing import Gate
    from hullcast.network.wire.containers import Nan

#: Rows, and about the bytes, of one change. More rows would hardly be cheaper each; and the server names one bad row at
#: a time, so that a change is sent again for each.
GATHERED_ROWS, GATHERED_BYTES = 1024, 1 << 20
#: Where the parent takes only small frames, a quarter of one: a character is counted as a byte, and may take four.
FRAME_PART = 4
#: The fewest rows that are gathered after rows were refused.
FEWEST_ROWS = 16
#: While so many gathered changes have no receipt, the next one waits and grows. Of a sender there may be more: its
#: receipts come later.
ON_THE_WAY, ON_THE_WAY_LAZY = 4, 8
#: After so many lazy changes comes one that is not, so that receipts come before nothing more may be sent.
LAZY_ON_END = ON_THE_WAY_LAZY // 2 - 1

_NAMES = frozenset({str})
_TEXTS = frozenset({str, bytes})


class Row(NamedTuple):
    """One row to publish: its columns, and a value for each."""

    names: tuple[str, ...]
    values: tuple[Any, ...]
    size_bytes: int  # about what it takes in memory
    alone: bool  # it has a value that no table takes; of several in a column only one would be sent

    def as_dict(self) -> dict[str, Any]:
        """The row as users hold it."""
        return dict(zip(self.names, self.values, strict=True))


def row_or_columns(rows: object, table: str, nan: Nan) -> Row | tuple[ValueColumns, Masks | None]:
    """What a user publishes: a single row, or the columns of any other batch (as `rows_to_columns` gives them)."""
    if (
        isinstance(rows, dict)
        and PLAIN.issuperset(map(type, rows.values()))
        and _NAMES.issuperset(map(type, rows))
        and 0 < len(rows) <= DEFAULT.columns
        and nan in ("refuse", "null")
    ):
        return _row(rows, alone=False)
    columns, absent = rows_to_columns(rows, table, nan)
    if absent is None and columns and not any(map(is_values, columns.values())):
        return _row(columns, alone=Foreign in map(type, columns.values()))
    return columns, absent


def _row(columns: ValueColumns, *, alone: bool) -> Row:
    values = tuple(columns.values())
    texts = [len(value) for value in values if type(value) in _TEXTS]
    return Row(tuple(columns), values, 64 + 32 * len(values) + sum(texts), alone)


class Sender(Protocol):
    """Whose rows are sent without anybody waiting for each of them."""

    @property
    def lazy(self) -> bool:
        """Whether nobody waits for receipts at the moment."""

    def refused(self, rows: list[Row], error: Exception) -> None:
        """Rows were refused."""

    def over(self, change: Gathered, last: int) -> None:
        """All rows of a change have been told of; those not refused are durable, up to this sequence number (or 0)."""


class Gathered:
    """Rows of one table with the same columns: one change (see `Posted`). It takes more rows until it is sent.

    Who published row i waits for `futures[i]`, which becomes its sequence number. Or the rows are those of a `sender`,
    who waits for none of them.
    """

    def __init__(self, within: Gathering, table: str, row: Row, nan: Nan, sender: Sender | None) -> None:
        self.table, self.names, self.nan, self.sender = table, row.names, nan, sender
        self.alone = row.alone
        self.rows: list[Row] = []
        self.futures: list[asyncio.Future[int]] = []
        self.timed: set[asyncio.Future[int]] = set()  # those whose callers have a timeout of their own
        self.size_bytes = 0
        self.number = 0  # among the client's changes; 0: its turn has not come
        self.call = 0  # 0: not sent
        self.turn = within.gate.turn(within.soon)
        self._within = within
        self._timer: asyncio.TimerHandle | None = None
        self._over = False

    def takes(self, row: Row, table: str, nan: Nan, sender: Sender | None, most: int, most_bytes: int) -> bool:
        """Whether one more row may be gathered here."""
        return (
            self.names == row.names
            and self.table == table
            and self.sender is sender
            and self.nan == nan
            and len(self.rows) < most
            and not (self.alone or row.alone)
            and self.size_bytes + row.size_bytes <= most_bytes
            and self.turn.is_last
        )

    def columns(self) -> ValueColumns:
        """The rows as a batch."""
        if len(self.rows) == 1 and (self.alone or self.nan == "refuse"):
            return self.rows[0].as_dict()
        values = zip(*(row.values for row in self.rows), strict=True)
        columns, _ = rows_to_columns(dict(zip(self.names, map(list, values), strict=True)), self.table, self.nan)
        return columns

    # --- waiting ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Its turn has come: from now on the client's timeout counts."""
        if len(self.futures) > len(self.timed):
            self._timer = asyncio.get_running_loop().call_later(self._within.line.timeout_s, self._expire)

    def why_waiting(self) -> str:
        """What this has been waiting for, in words."""
        if not self.number:
            return "earlier changes have no reply"
        return self._within.line.why_waiting(self.call) if self.call else "the queue to the server is full"

    def give_up(self, future: asyncio.Future[int]) -> None:
        """A caller waits no longer: its row is taken out, if it has not left."""
        if self._over:
            return
        if not self.number:
            place = self.futures.index(future)
            del self.futures[place]
            self.timed.discard(future)
            self.size_bytes -= self.rows.pop(place).size_bytes
            if not self.rows:
                self._within.withdraw(self)
        else:
            self._abandon()

    def _abandon(self) -> None:
        """Give the change up, if nobody waits for any of its rows."""
        if self.sender is None and all(future.done() for future in self.futures):
            if self.call:
                self._within.line.give_up(self.call)
            self._end()

    def _expire(self) -> None:
        why, timeout_s = self.why_waiting(), self._within.line.timeout_s
        for future in self.futures:
            if not future.done() and future not in self.timed:
                future.set_exception(TimedOut(f"publish to {self.table} ({why})", timeout_s))
        self._abandon()

    # --- as `Posted` -----------------------------------------------------------------------------------------

    def done(self) -> bool:
        """Whether it was told the end."""
        return self._over

    def set_result(self, reply: bodies.Body) -> None:
        """The change was applied: each row has its own sequence number."""
        if not isinstance(reply, bodies.Done):
            self.set_exception(BadFrame(f"{type(reply).__name__} is not a reply to a change"))
            return
        for seq, future in enumerate(self.futures, reply.first):
            if not future.done():
                future.set_result(seq)
        self._end(reply.last)

    def set_exception(self, error: Exception) -> None:
        """The change has failed, and so has each row that is left in it."""
        for future in self.futures:
            if not future.done():
                future.set_exception(copy(error) if isinstance(error, HullcastError) else error)
        if self.sender is not None:
            self.sender.refused(self.rows, error)
        self._end()

    def refuse_row(self, row: int, error: HullcastError) -> None:
        """One row was refused."""
        if self.sender is not None:
            self.sender.refused([self.rows[row]], error)
        else:
            future = self.futures.pop(row)
            if not future.done():
                future.set_exception(error)
        del self.rows[row]
        self._within.refused()

    def _end(self, last: int = 0) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        if self.sender is not None:
            self.sender.over(self, last)
        self._within.over(self, applied=last > 0)


class Gathering:
    """Gathers the rows of a client, and sends them in their turn among its other changes.

        calls in one turn      T(a) T(b) T(c)  delete  T(d) U(e)        T and U are tables
        changes                [T: a b c]      delete  [T: d] [U: e]    in the order of the calls

    A change is sent at the end of the turn in which its first row came. While some others (ON_THE_WAY) have no receipt,
    the last one waits, and takes the rows that come until then: the more is published, the more rows share a change.
    """

    def __init__(self, line: Line, gate: Gate, publisher: bytes, number: Callable[[], int]) -> None:
        self.line, self.gate = line, gate
        self._publisher, self._next_number = publisher, number
        self._waiting: deque[Gathered] = deque()  # whose turn has not come
        self._posting: Gathered | None = None  # its turn has come, but the queue to the server is full
        self._on_the_way: set[Gathered] = set()
        self._most_rows = GATHERED_ROWS
        self._lazy = 0  # changes sent since the last one that is not lazy
        self._pump_soon = False
        self._settled = asyncio.Event()

    @property
    def _most_bytes(self) -> int:
        return min(GATHERED_BYTES, self.line.dialer.message_bytes // FRAME_PART)

    def add(
        self, table: str, row: Row, nan: Nan, sender: Sender | None = None
    ) -> tuple[Gathered, asyncio.Future[int] | None]:
        """Publish a row; the future is for who waits for it, None for a sender's."""
        change = self._waiting[-1] if self._waiting else None
        if change is not None and change.names != row.names and set(change.names) == set(row.names):
            row = row._replace(names=change.names, values=tuple(map(row.as_dict().__getitem__, change.names)))
        if change is None or not change.takes(row, table, nan, sender, self._most_rows, self._most_bytes):
            change = Gathered(self, table, row, nan, sender)
            self._waiting.append(change)
            self.soon()
        change.rows.append(row)
        change.size_bytes += row.size_bytes
        if sender is not None:
            return change, None
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        change.futures.append(future)
        return change, future

    def soon(self) -> None:
        """Send what may be sent, when this turn of the loop is over."""
        if not self._pump_soon and self._waiting:
            self._pump_soon = True
            asyncio.get_running_loop().call_soon(self._pump)

    def withdraw(self, change: Gathered) -> None:
        """A change that was not sent has no rows left."""
        self._waiting.remove(change)
        change.turn.end()
        self._look_settled()

    def refused(self) -> None:
        """A row was refused, and the rest of its change sent again: gather fewer for a while."""
        self._most_rows = max(FEWEST_ROWS, self._most_rows // 2)

    def over(self, change: Gathered, *, applied: bool) -> None:
        """A change needs nothing more."""
        if applied:
            self._most_rows = min(GATHERED_ROWS, 2 * self._most_rows)
        if change.number:
            self._on_the_way.discard(change)
            self.gate.leave(change.size_bytes)
        change.turn.end()
        self._look_settled()

    async def settle(self) -> None:
        """Wait until every row has its receipt or was refused."""
        while self._on_the_way or self._waiting:
            self._settled.clear()
            await self._settled.wait()

    def _look_settled(self) -> None:
        if not self._on_the_way and not self._waiting:
            self._settled.set()

    def close(self, error: HullcastError) -> None:
        """Nothing is sent any more: rows that have not left fail."""
        waiting = [self._posting] if self._posting is not None else []
        waiting += self._waiting
        self._posting = None
        self._waiting.clear()
        for change in waiting:
            if not change.done():
                change.set_exception(error)

    def _pump(self) -> None:
        self._pump_soon = False
        before = len(self._on_the_way)
        self._send_waiting()
        if len(self._on_the_way) > before:
            self.line.dialer.flush()  # the turn is over

    def _send_waiting(self) -> None:
        while self._waiting and self._waiting[0].turn.is_first:
            change = self._waiting[0]
            has_room = len(change.rows) < self._most_rows and change.size_bytes < self._most_bytes
            growing = change.turn.is_last and has_room
            most = ON_THE_WAY if change.sender is None else ON_THE_WAY_LAZY
            if (growing and len(self._on_the_way) >= most) or not self.gate.has_room(change.size_bytes):
                return
            self._waiting.popleft()
            self._go(change)

    def _go(self, change: Gathered) -> None:
        change.number = self._next_number()
        self.gate.enter(change.size_bytes)
        self._on_the_way.add(change)
        change.begin()
        if self.line.dialer.writable:
            self._post(change)
        else:
            self._posting = change
            self.line.spawn(self._post_later(change), "publish later")

    async def _post_later(self, change: Gathered) -> None:
        with suppress(ConnectionLost):  # it is sent when there is a connection again
            await self.line.dialer.wait_writable()
        self._posting = None
        if not change.done():
            self._post(change)

    def _post(self, change: Gathered) -> None:
        lazy = change.sender is not None and change.sender.lazy and self._lazy < LAZY_ON_END
        self._lazy = self._lazy + 1 if lazy else 0
        try:
            self.line.check()
            body = bodies.Publish(change.table, change.columns(), None, self._publisher, change.number)
            change.call = self.line.post(body, change, apart=len(change.rows) > 1, lazy=lazy)
        except Exception as error:  # noqa: BLE001  whoever published the rows hears of it
            change.set_exception(error)
        change.turn.end()
