"""Streams in an engine: their tuples in order, the windows that channels read, what derived ones are made of."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.sql.subscription import names_in
from hullcast.broker.tables.schema import fold
from hullcast.broker.tables.store import Updates, row_bytes
from hullcast.broker.tables.stream import StreamOrder
from hullcast.broker.tables.windows import WindowTable, due
from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hullcast.broker.reformulate.channels import Channels
    from hullcast.broker.reformulate.messages import Batch
    from hullcast.broker.sql.query import Window
    from hullcast.broker.tables.ingest import Encoded
    from hullcast.broker.tables.schema import Table
    from hullcast.broker.tables.store import TableStore
    from hullcast.broker.tables.stream import TimeMark
    from hullcast.network.wire.arrays import Floats


#: The last position of a stream that its joins do not need any more; None if it has none.
Needed = Callable[["Stream"], int | None]


class Settled(NamedTuple):
    """What followed from a change of a stream: the batch, and the positions of the tuples that were removed from the
    stream. None were if they only left a window; then nothing but sequence numbers are used up.

    `moved` counts the tuples that were looked at: those of the batch, as often as there is a table of them."""

    batch: Batch
    removed: Floats | None
    moved: int


class StreamGap(NamedTuple):
    """Results of a derived stream are missing. `goes_on`: it has all results of what its sources bring behind this
    moment; None if it does not go on yet, or the gap is that of a stream that it is made of."""

    stream: str
    why: str
    goes_on: tuple[float, int] | None

    def encode(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, payload: bytes) -> StreamGap:
        stream, why, goes_on = json.loads(payload)
        return cls(stream, why, None if goes_on is None else (float(goes_on[0]), int(goes_on[1])))


class Stream:
    """The tuples of a stream. Whatever changes them goes through here, so that order and windows stay right."""

    def __init__(self, store: TableStore) -> None:
        self.store = store
        self.order = store.order = StreamOrder(store.table)
        self.windows: dict[str, WindowTable] = {}
        #: Of a derived stream: up to which moment (time, position) of its sources all results are in it, if known.
        self.consumed: tuple[float, int] | None = None
        self.logged: tuple[float, int] | None = None  # the same, as the log has it
        self._turn = 0

    def append(self, encoded: Encoded) -> Updates:
        updates = self.store.apply(encoded)
        self.order.append(updates.new)
        return updates

    def number(self, encoded: Encoded, first: int) -> None:
        """Give tuples their positions: their sequence numbers."""
        encoded.cells[self.store.table.key] = np.arange(first, first + encoded.cells.shape[1])

    def coming(self, encoded: Encoded) -> Updates:
        """What windows and channels see of some tuples of a large batch, before the stream has them."""
        cells = encoded.cells.copy()
        n = cells.shape[1]
        return Updates(np.full(n, -1), np.zeros(n, np.bool_), np.ones(n, np.bool_), np.full(cells.shape, np.nan), cells)

    def append_seen(self, encoded: Encoded, later: int) -> Updates:
        """Add tuples that windows have taken already, at positions that are now so many later."""
        encoded.cells[self.store.table.key] += later
        for window in self.windows.values():
            window.move(encoded.cells.shape[1], later)
        return self.append(encoded)

    def remove(self, positions: Floats) -> Updates:
        updates = self.store.remove(positions)
        self.order.remove(positions)
        return updates

    def restore(self, removed: int, marks: list[TimeMark], gaps: list[int]) -> None:
        """The store was filled; this is what else was known."""
        self.order.restored(self.store.cells[:, self.store.live_slots()], removed, marks, gaps)

    def window(self, window: Window, name: str) -> WindowTable:
        """The table of a window; if nobody has used it yet, one that must be loaded."""
        found = self.windows.get(name)
        if found is None:
            found = self.windows[name] = WindowTable(self.store, self.order, window, name)
        return found

    def window_bytes(self, window: Window) -> int:
        """About what a window would take: with all the tuples that it may have, if it says how many; or else with those
        it would have now, and room for more."""
        return row_bytes(self.store.table) * (window.rows or 2 * due(window, self.order))

    def drop_windows(self, is_read: Callable[[str], object]) -> None:
        """Forget the windows that nobody reads, or is about to."""
        for name in [name for name, window in self.windows.items() if not window.holders and not is_read(name)]:
            del self.windows[name]

    def overdue(self, needed: Needed) -> WindowTable | Floats | None:
        """What is next to let go of tuples: a window; or the stream itself, of those at these positions; None if none
        must go. They take turns. What a join needs stays, though it is too much or too old."""
        found: list[WindowTable | Floats] = [window for window in self.windows.values() if window.overdue]
        positions = self.order.overdue(1 + len(self.windows))
        kept = needed(self) if len(positions) else None
        if kept is not None:
            positions = self.order.spare(positions, kept)
        if len(positions):
            found.append(positions)
        if not found:
            self._turn = 0
            return None
        self._turn += 1
        return found[(self._turn - 1) % len(found)]

    def seen(self, updates: Updates) -> Iterator[tuple[str, Updates]]:
        """What a change of the stream means for its windows, update by update."""
        for name, window in self.windows.items():
            if updates.exists.all():
                yield name, window.append(updates.new)
            else:
                yield name, window.remove(updates.old[self.store.table.key])

    def facts(self) -> dict[str, object]:
        terms, order = self.store.table.stream, self.order
        assert terms is not None, "a stream"
        return {
            "retain_rows": terms.rows,
            "retain_s": terms.retain_s,
            "first_position": int(order.positions[0]) if len(order) else None,
            "last_position": order.last or None,
            "time_us": int(order.time) if np.isfinite(order.time) else None,
            "windows": {window.window.declared: len(window) for window in self.windows.values()},
            "source": terms.source or None,
        }

    def memory_bytes(self) -> int:
        return self.order.memory_bytes() + sum(window.memory_bytes() for window in self.windows.values())


class Streams(dict[str, Stream]):
    def __init__(self, channels: Channels) -> None:
        super().__init__()
        self._channels = channels

    def find(self, table: str) -> Stream | None:
        return self.get(fold(table)) if self else None

    @property
    def derived(self) -> list[Stream]:
        return [stream for stream in self.values() if source(stream.store.table)]

    def reading(self, table: str) -> list[Table]:
        """The derived streams that are made of a table or stream."""
        name = fold(table)
        return [stream.store.table for stream in self.derived if name in names_in(source(stream.store.table))]

    def windows(self) -> Mapping[str, WindowTable]:
        """The windows that somebody reads, or is about to, by name."""
        for stream in self.values():
            stream.drop_windows(self._channels.reading)
        return {name: window for stream in self.values() for name, window in stream.windows.items()}

    def restore_consumed(self, payload: bytes) -> None:
        """What the log says of how far a derived stream had come (RecordKind.CONSUMED)."""
        gap = StreamGap.decode(payload)
        stream = self[fold(gap.stream)]
        stream.consumed = stream.logged = gap.goes_on

    def refuse_publish(self, table: str) -> None:
        """UsageError if nobody may publish to a table, because it is a derived stream."""
        stream = self.find(table)
        if stream is not None and source(stream.store.table):
            name = stream.store.table.name
            raise UsageError(
                f"{name} is a derived stream: its tuples are the results of its SELECT; publish to its sources"
            )

    def refuse_delete(self, table: str) -> None:
        """UsageError if nobody may delete rows of a table, because it is a stream."""
        stream = self.find(table)
        if stream is not None:
            name = stream.store.table.name
            remedy = "the oldest go when there are more than WITH (retain_rows = .., retain = '..') allows"
            raise UsageError(f"{name} is a stream: its tuples cannot be deleted; {remedy}")


def source(table: Table) -> str:
    """The SELECT that a derived stream is made by; empty for anything else."""
    return "" if table.stream is None else table.stream.source


def nothing_needed(stream: Stream) -> int | None:
    """`Needed` where there are no joins over streams."""
    return None
