"""A publisher: rows are sent one by one, and nobody waits for each; receipts are counted."""

from __future__ import annotations

import asyncio
import time
from reprlib import Repr
from typing import TYPE_CHECKING, Any, Self, TypeVar

from hullcast.clients.sdk.connecting import seconds
from hullcast.clients.sdk.gathering import Row, row_or_columns
from hullcast.network.wire.errors import (
    BadBatch,
    BadSetting,
    BadValue,
    ClientClosed,
    HullcastError,
    Overloaded,
    TimedOut,
    UsageError,
)
from hullcast.network.wire.logs import Sparingly, logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.clients.sdk.gathering import Gathered, Gathering
    from hullcast.network.wire.containers import Nan

    OnError = Callable[[dict[str, Any], Exception], object]

T = TypeVar("T")

log = logger(__name__)

#: About the bytes of rows without a receipt that a publisher holds unless it is told otherwise.
WINDOW_BYTES = 8 << 20
#: Refused rows that `RowsRefused` names; the others are counted.
REFUSALS_KEPT = 100

#: Logged once by each publisher. A program that has not set up logging sees these words only, so they say what helps.
ROW_REFUSED = "row refused; flush() raises why, or on_error= is called with it"
CLOSED_EARLY = "client closed while rows of a publisher had no receipt, they may be lost; call flush() first"

_ROW = Repr()
_ROW.maxdict, _ROW.maxstring, _ROW.maxother = 8, 40, 40


class RowsRefused(HullcastError):
    """Rows that a publisher sent were refused; the others are durable. `refusals` has the first 100 of them as (row,
    error), and `__cause__` is the first error."""

    table: str
    count: int
    refusals: tuple[tuple[dict[str, Any], Exception], ...]

    def __str__(self) -> str:
        first = f"{_ROW.repr(self.refusals[0][0])}: {_why(self.refusals[0][1])}" if self.refusals else "unknown"
        rows = (
            f"1 row sent to {self.table} was" if self.count == 1 else f"{self.count:,} rows sent to {self.table} were"
        )
        return f"{rows} refused, the others are durable; the first refusal: {first}"


def _why(error: Exception) -> str:
    """Why a row was refused, as its sender sees it: the row has no number, and the rows beside it were applied."""
    if isinstance(error, BadValue):
        return f"column {error.column}: {error.reason}".replace("publish(.., nan", "publisher(.., nan")
    if isinstance(error, ClientClosed):
        return "the client was closed before the receipt came, so it may not be applied; call flush() first"
    return str(error)


class WindowFull(Overloaded):
    """The rows that a publisher sent and that have no receipt yet fill its window; this row was not taken."""

    def __str__(self) -> str:
        return (
            f"{self.queue}: rows without a receipt fill its window of {self.limit:,} bytes; wait with ready() before "
            "sending more, or give publisher() a larger window_bytes"
        )


class SentRows:
    """What a publisher sent: rows without a receipt, by their changes, and what became of the others (a `Sender`)."""

    def __init__(self, table: str, on_error: OnError | None) -> None:
        self.table = table
        self.sent = self.acknowledged = self.refusals = self.seq = 0
        self.waiting_bytes = 0
        self._on_error = on_error
        self._changes: dict[Gathered, None] = {}
        self._flushing: dict[asyncio.Future[None], set[Gathered]] = {}
        self._room: dict[asyncio.Future[None], int] = {}  # with the bytes that may wait then
        self._untold: list[tuple[dict[str, Any], Exception]] = []
        self._untold_count = 0
        self._logged: set[str] = set()
        self._failures = Sparingly()  # of on_error

    @property
    def lazy(self) -> bool:
        """Whether nobody waits for receipts at the moment."""
        return not self._flushing and not self._room

    def put(self, change: Gathered, size_bytes: int) -> None:
        """A row is in this change."""
        self._changes[change] = None
        self.sent += 1
        self.waiting_bytes += size_bytes

    def refused(self, rows: list[Row], error: Exception) -> None:
        """Rows were refused: say so to whoever listens, or keep it for the next `flush`."""
        self.refusals += len(rows)
        if self._on_error is None:
            event = CLOSED_EARLY if isinstance(error, ClientClosed) else ROW_REFUSED
            if event not in self._logged:
                self._logged.add(event)
                log.warning(event, extra={"table": self.table, "why": _why(error)})
            self._untold += [(row.as_dict(), error) for row in rows[: REFUSALS_KEPT - len(self._untold)]]
            self._untold_count += len(rows)
            return
        for row in rows:
            try:
                self._on_error(row.as_dict(), error)
            except Exception:
                if (others := self._failures.due(time.monotonic())) is not None:
                    log.exception("on_error failed", extra={"table": self.table, "others_since": others})

    def over(self, change: Gathered, last: int) -> None:
        """A change has its receipt, or none will come."""
        del self._changes[change]
        self.waiting_bytes -= change.size_bytes
        if last:
            self.acknowledged += len(change.rows)
            self.seq = max(self.seq, last)
        for flushing, changes in self._flushing.items():
            changes.discard(change)
            if not changes and not flushing.done():
                flushing.set_result(None)
        for ready, most in self._room.items():
            if self.waiting_bytes <= most and not ready.done():
                ready.set_result(None)

    async def flushed(self, timeout_s: float) -> None:
        """Wait until all rows that are here now have been told of."""
        if self._changes:
            await self._until(self._flushing, set(self._changes), "flush of", timeout_s)

    async def room(self, most_bytes: int, timeout_s: float) -> None:
        """Wait until so many bytes wait at most."""
        if self.waiting_bytes > most_bytes:
            await self._until(self._room, most_bytes, "room in", timeout_s)

    async def _until(self, waiting: dict[asyncio.Future[None], T], what: T, words: str, timeout_s: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting[future] = what
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            if not future.cancelled():  # it came in the very moment in which the time was over
                return
            why = next(iter(self._changes)).why_waiting()
            raise TimedOut(f"{words} the publisher for {self.table} ({why})", timeout_s) from None
        finally:
            del waiting[future]

    def tell(self) -> None:
        """Raise what was refused and not told yet."""
        if self._untold_count:
            error = RowsRefused(self.table, self._untold_count, tuple(self._untold))
            self._untold, self._untold_count = [], 0
            raise error from error.refusals[0][1]


class Publisher:
    """Sends the rows of one table one by one, as `client.publisher(..)` returns it.

    `send` returns at once; `flush`, or the end of an `async with`, waits until all rows are durable. They are applied
    in the order in which they were sent (with `publish`, `delete` and `execute` of the same client), each once, also
    over broken connections. A row that the server refuses keeps no other from being applied.
    """

    def __init__(
        self,
        gathering: Gathering,
        check: Callable[[], None],
        table: str,
        nan: Nan,
        window_bytes: int,
        on_error: OnError | None,
    ) -> None:
        if nan not in ("refuse", "null"):
            raise BadSetting("nan", nan, 'must be "refuse" or "null"')
        if type(window_bytes) is not int or window_bytes < 1:
            raise BadSetting("window_bytes", window_bytes, "must be an int, 1 or more")
        if on_error is not None and not callable(on_error):
            raise BadSetting("on_error", on_error, "must be a function of a row and an error")
        self.table, self.window_bytes = table, window_bytes
        self._gathering, self._check_client, self._nan = gathering, check, nan
        self._window = SentRows(table, on_error)
        self._closed = False

    def __repr__(self) -> str:
        return self._shown(self.sent)

    def _shown(self, sent: int) -> str:
        counts = f"{sent:,} sent, {self.acknowledged:,} acknowledged, {self.refused:,} refused"
        return f"<publisher for {self.table}: {counts}{', closed' if self._closed else ''}>"

    @property
    def sent(self) -> int:
        """How many rows were sent."""
        return self._window.sent

    @property
    def acknowledged(self) -> int:
        """How many of the rows are on the server's disk."""
        return self._window.acknowledged

    @property
    def refused(self) -> int:
        """How many of the rows were refused."""
        return self._window.refusals

    @property
    def seq(self) -> int:
        """The sequence number of the last row that is on the server's disk; 0 if none is."""
        return self._window.seq

    @property
    def waiting_bytes(self) -> int:
        """About the memory of the rows that have no receipt yet."""
        return self._window.waiting_bytes

    def send(self, row: dict[str, Any]) -> None:
        """Publish one row: a dict with a value per column. Returns at once, without a receipt.

        Raises WindowFull (an Overloaded) if rows without a receipt fill the window; the row was not taken then. What
        the server refuses is told by `flush` or `on_error`.
        """
        self._check()
        prepared = self._prepared(row)
        self._check_room(self._window.waiting_bytes, prepared.size_bytes)
        self._take(prepared)

    async def ready(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait, if the window is nearly full, until half of it is free."""
        self._check()
        if 4 * self._window.waiting_bytes > 3 * self.window_bytes:
            await self._window.room(self.window_bytes // 2, self._timeout(timeout))

    async def flush(self, *, timeout: float | None = None) -> int:  # noqa: ASYNC109
        """Wait until all rows sent so far are on the server's disk; returns `seq`.

        Raises RowsRefused if rows were refused since the last `flush`, unless `on_error` was told of them. After a
        TimedOut the rows are still on their way.
        """
        await self._window.flushed(self._timeout(timeout))
        self._window.tell()
        return self._window.seq

    async def close(self) -> None:
        """Flush, and take no more rows. Closing twice is fine."""
        self._closed = True
        await self.flush()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Close it. If the block failed, that error matters more than those of `flush`; if it was cancelled, nobody
        waits: what was sent is on its way as long as the client is open."""
        if error is None:
            await self.close()
            return
        self._closed = True
        if isinstance(error, Exception):
            try:
                await self.flush()
            except HullcastError as refused:
                log.warning("not all rows were published", extra={"table": self.table, "why": str(refused)})

    def _check(self) -> None:
        self._check_client()
        if self._closed:
            raise UsageError(f"the publisher for {self.table} is closed; make another with client.publisher(..)")

    def _prepared(self, row: object) -> Row:
        """A user's row as it is kept; BadBatch if it is not one row."""
        found = row_or_columns(row, self.table, self._nan) if isinstance(row, dict) else None
        if not isinstance(found, Row):
            what = "a dict of columns" if isinstance(row, dict) else f"a {type(row).__name__}"
            raise BadBatch(
                self.table, f"{what} is not a row; send() takes a dict with one value per column, publish() any batch"
            )
        return found

    def _check_room(self, waiting_bytes: int, size_bytes: int) -> None:
        """WindowFull if there is no room for a row beside those that wait. One alone has room, whatever its size."""
        if waiting_bytes and waiting_bytes + size_bytes > self.window_bytes:
            raise WindowFull(f"the publisher for {self.table}", self.window_bytes)

    def _put_all(self, rows: list[Row]) -> None:
        """Take rows that were looked at before, in another thread."""
        try:
            self._check_client()
        except HullcastError as error:
            self._window.sent += len(rows)
            self._window.refused(rows, error)
            return
        for row in rows:
            self._take(row)

    def _take(self, row: Row) -> None:
        change, _ = self._gathering.add(self.table, row, self._nan, self._window)
        self._window.put(change, row.size_bytes)

    def _timeout(self, given: float | None) -> float:
        return self._gathering.line.timeout_s if given is None else seconds(given)
