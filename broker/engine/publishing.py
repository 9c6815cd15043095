"""The one way of a batch: rows change, updates get their numbers, channels say what that means. At once, or in slices.

A large batch is prepared in slices, between which anything else may happen, and switched to at once::

    slice        1        2        3        4     ..      n       n + 1
    rows         0..511   .        .        512..         .       .
    channels     .        MIN      DISTINCT .             join    all: numbers, answers of subscriptions here

While it is on its way its tables are *held*: its own, and those that share a channel with it. Whoever wants to read or
change one of them asks first (`held`), and waits. Work that began before says what it reads (`using`), and the batch
waits for it. Other tables change meanwhile, so a batch gets its sequence numbers at the end.

The positions of tuples are their sequence numbers. So a stream gets those of a large batch at the end. Its windows and
channels take them before, at positions that are corrected then; no order depends on that. If a channel compares
positions with something, all slices are done in one go.

Invariants:
  H1  no two batches that have begun hold the same table.
  H2  between two slices that begin with other rows, a table (a window, for streams), its trees and its channels are of
      the same moment.
  H3  no code and no group number is given back while a batch is on its way.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.reformulate.messages import Batch, Messages
from hullcast.broker.scheduling.driver import finish, until
from hullcast.broker.tables.ingest import Encoded
from hullcast.broker.tables.interning import BLOCK
from hullcast.broker.tables.schema import ColumnType, fold
from hullcast.broker.tables.store import Updates
from hullcast.network.wire.errors import InvariantBroken, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hullcast.broker.engine.stream import Stream, Streams
    from hullcast.broker.reformulate.channel import Channel
    from hullcast.broker.reformulate.channels import Channels
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.tables.feed import ChangeFeed
    from hullcast.broker.tables.interning import Interner
    from hullcast.broker.tables.store import TableStore

#: Rows of a large batch that a channel takes at once, and about how long that takes.
SLICED_ROWS = 512
SLICE_COST_S = 0.001
#: Messages that a channel should make at once: where rows make more, fewer rows are taken.
SLICED_MESSAGES = 4096
#: Texts that are looked at behind each batch, while those that nobody uses are looked for: a millisecond or two.
SWEPT_TEXTS = 2 * BLOCK
#: A batch is large when rows times channels are more than this, about 20 milliseconds.
LARGE = 1 << 14


class LargeChange(NamedTuple):
    """What a large batch does to a table, and work that finds the codes of its rows."""

    store: TableStore
    coding: Work
    apply: Callable[[Encoded], Updates]  # to some of the rows; of a stream: to what windows and channels will see
    stream: Stream | None = None


class _Hold:
    """A large batch on its way. It has begun when nobody else may read or change its tables any more."""

    def __init__(self, store: TableStore) -> None:
        self.store = store
        self.begun = False
        self.tables: set[str] = set()  # by folded name, once it has begun


class _Gathering:
    """What a channel has made of a large batch so far, numbered from 1."""

    def __init__(self, channel: Channel, side: int) -> None:
        self.channel, self.side = channel, side
        self.parts: list[Messages] = []
        self.count = 0
        self.complete = True

    def take(self, updates: Updates, first: int) -> int:
        """Some more rows; returns how many messages they make."""
        if not self.complete:
            self.channel.absorb(self.side, updates)
            return 0
        part = self.channel.update(self.side, updates, first)
        self.parts.append(part)
        self.count += len(part)
        self.complete = part.complete and self.count <= self.channel.most_messages
        if not self.complete:
            self.parts = [self.parts[0].nothing()]
        return len(part)

    def join(self) -> Work:
        """All rows were taken: of the parts make one."""
        self.parts = [(yield from Messages.joining(self.parts))]
        self.parts[0].complete = self.complete

    def number(self, before: int, *, of_stream: bool) -> Messages:
        """The messages, of updates behind `before`."""
        (messages,) = self.parts
        messages.advance(before, self.channel.positions if of_stream else {})
        return messages


class Publishing:
    """Changes rows and numbers the changes: nothing else does."""

    def __init__(
        self,
        stores: Mapping[str, TableStore],
        streams: Streams,
        channels: Channels,
        interner: Interner,
        feed: ChangeFeed,
    ) -> None:
        self.seq = 0  # of the latest update
        self.sweeps = 0  # how often codes and partition numbers were given back
        self._stores, self._streams, self._channels = stores, streams, channels
        self._interner, self._feed = interner, feed
        self._broken: str | None = None
        self._sweep: Iterator[int] | None = None  # of texts, under way
        self._holds: list[_Hold] = []
        self._users: Counter[str] = Counter()

    @property
    def broken(self) -> bool:
        return self._broken is not None

    def check_sound(self) -> None:
        """The rows are stored before channels hear of them; a channel that failed half-way has wrong answers."""
        if self._broken is not None:
            raise InvariantBroken(f"the engine stopped: {self._broken}; make a new one and load it again")

    def _break(self, error: BaseException, first_seq: int) -> None:
        self._broken = f"{type(error).__name__} in the batch from update {first_seq} on {error}".rstrip()

    # --- at once -------------------------------------------------------------------------------------------

    def publish(self, store: TableStore, change: Callable[[], Updates]) -> tuple[Batch, Updates]:
        """Change the rows, number the batch, describe it channel by channel, tell the local subscriptions."""
        self.check_free((store.table.name,))
        first_seq = self.seq + 1
        messages: dict[str, Messages] = {}
        told: list[Channel] = []
        try:
            updates = change()
            self.seq += len(updates)
            if self._stores.get(fold(store.table.name)) is store:  # no feed knows a window
                self._feed.append(store, first_seq, updates)
            for source, seen in self._sources(store, updates):
                for channel, side in self._channels.reading(source):
                    told.append(channel)
                    if channel.loading():  # it is being opened, and nobody listens yet
                        channel.absorb(side, seen)
                        continue
                    described = channel.update(side, seen, first_seq)
                    channel.tell(described)
                    messages[channel.name] = described
            self.sweep(told)
        except UsageError:  # the store refuses before it changes anything
            raise
        except BaseException as error:
            self._break(error, first_seq)
            raise
        return Batch(first_seq, self.seq, messages), updates

    def upsert(self, table: str, encoded: Encoded) -> tuple[Batch, Updates]:
        """Rows of a table; or tuples of a stream, which get their positions: their sequence numbers. And what that did
        to the rows."""
        self.check_sound()
        stream = self._streams.find(table)
        if stream is None:
            store = self._stores[fold(table)]
            return self.publish(store, partial(store.apply, encoded))
        stream.number(encoded, self.seq + 1)
        return self.publish(stream.store, partial(stream.append, encoded))

    def _sources(self, store: TableStore, updates: Updates) -> Iterator[tuple[str, Updates]]:
        """What channels read that changed: the table, and windows of it; or a window alone."""
        name = store.table.name
        yield name, updates
        stream = self._streams.find(name)
        if stream is not None and stream.windows:
            stream.drop_windows(self._channels.reading)
            yield from stream.seen(updates)

    # --- in slices -----------------------------------------------------------------------------------------

    def is_large(self, table: str, rows: int) -> bool:
        """Whether a batch of so many rows of a table should be published in slices; not if there is no such table."""
        store = self._stores.get(fold(table))
        return store is not None and rows * (1 + len(self._readers(store))) > LARGE

    def _readers(self, store: TableStore) -> list[tuple[str, Channel, int]]:
        """What reads a table, or windows of it."""
        stream = self._streams.find(store.table.name)
        sources = (store.table.name, *(stream.windows if stream is not None else ()))
        return [(source, *reader) for source in sources for reader in self._channels.reading(source)]

    def changing(self, change: LargeChange) -> Work:
        """`publish` in slices: the result is the same, as of the moment of the last slice.

        The table is held from now on. Refused, or given up before it has changed rows, it leaves nothing; after that
        the engine is broken.
        """
        work = self._changing(change)
        next(work)
        return work

    def _changing(self, change: LargeChange) -> Work:
        store, hold, touched = change.store, _Hold(change.store), False
        self._holds.append(hold)
        try:
            yield 0.0
            yield from until(partial(self._may_begin, hold))
            hold.tables, hold.begun = self._together(hold), True
            encoded = yield from change.coding
            self.check_sound()
            store.check_complete(encoded)
            touched, before = True, self.seq
            if change.stream is not None:
                change.stream.drop_windows(self._channels.reading)
                change.stream.number(encoded, before + 1)
            gathered: dict[str, list[_Gathering]] = {}
            for source, channel, side in self._readers(store):
                channel.hold()
                gathered.setdefault(source, []).append(_Gathering(channel, side))
            preparing = self._prepare(change, encoded, gathered)
            compared = change.stream is not None and any(
                one.channel.compares(store.table.key) for some in gathered.values() for one in some
            )
            parts = finish(preparing) if compared else (yield from preparing)
            self._holds.remove(hold)
            return self._switch(change, encoded, parts, gathered, before)
        except BaseException as error:
            if touched:
                self._break(error, self.seq + 1)
            raise
        finally:
            if hold in self._holds:
                self._holds.remove(hold)

    def _prepare(self, change: LargeChange, encoded: Encoded, gathered: Mapping[str, Sequence[_Gathering]]) -> Work:
        """All that a batch takes but its numbers."""
        changed: list[Updates] = []
        start, step = 0, SLICED_ROWS
        while not changed or start < encoded.cells.shape[1]:
            some = change.apply(Encoded(encoded.cells[:, start : start + step], encoded.partial))
            changed.append(some)
            yield SLICE_COST_S
            most = 0
            for source, seen in self._sources(change.store, some):
                for one in gathered.get(source, ()):
                    most = max(most, one.take(seen, start + 1))
                    yield SLICE_COST_S
            start += len(some)
            step = max(1, min(SLICED_ROWS, SLICED_MESSAGES * len(some) // max(most, 1)))
        for some_gathered in gathered.values():
            for one in some_gathered:
                yield from one.join()
        return changed

    def _switch(
        self,
        change: LargeChange,
        encoded: Encoded,
        parts: Sequence[Updates],
        gathered: Mapping[str, Sequence[_Gathering]],
        prepared_at: int,
    ) -> tuple[Batch, Updates]:
        """Number a batch that was prepared since an update, and tell the local subscriptions."""
        before = self.seq
        if change.stream is not None:
            updates = change.stream.append_seen(encoded, before - prepared_at)
        else:
            updates = _joined(parts)
        self.seq += len(updates)
        self._feed.append(change.store, before + 1, updates)
        messages: dict[str, Messages] = {}
        for some in gathered.values():
            for one in some:
                channel = one.channel
                channel.let_go(self.seq)
                self._channels.close_if_unused(channel)
                if self._channels.find(channel.shape) is channel:  # else the last who listened has left meanwhile
                    described = one.number(before, of_stream=change.stream is not None)
                    channel.tell(described)
                    messages[channel.name] = described
        return Batch(before + 1, self.seq, messages), updates  # no sweep: the caller may need the texts of the batch

    # --- held tables ---------------------------------------------------------------------------------------

    def held(self, tables: Iterable[str] | None = None) -> bool:
        """Whether one of these tables is held by a large batch on its way; None: any table."""
        if not self._holds or tables is None:
            return bool(self._holds)
        names = set(map(fold, tables))
        return any(self._together(hold) & names for hold in self._holds)

    def freed(self, tables: Iterable[str] | None) -> Work:
        """Ends when none of these tables is held; None: no table."""
        return until(lambda: not self.held(tables))

    def check_free(self, tables: Iterable[str]) -> None:
        """InvariantBroken if a batch has begun that holds one of these tables: somebody did not ask."""
        if self._holds and not self.free(set(map(fold, tables))):
            raise InvariantBroken(f"a large batch holds {' or '.join(tables)}")

    def free(self, names: set[str]) -> bool:
        """Whether no batch has begun that holds one of these tables, by folded name."""
        return not any(hold.begun and self._together(hold) & names for hold in self._holds)

    @contextmanager
    def using(self, tables: Iterable[str]) -> Iterator[None]:
        """Read these tables for a while, in slices: a large batch that has not begun waits."""
        names = tuple(map(fold, tables))
        self.check_free(names)
        self._users.update(names)
        try:
            yield
        finally:
            self._users.subtract(names)

    def _together(self, hold: _Hold) -> set[str]:
        """The table of a batch, and those that share a channel with it; nobody opens one when it has begun."""
        if hold.begun:
            return hold.tables
        name = hold.store.table.name
        return {
            fold(name),
            *(fold(table.name) for channel, _ in self._channels.reading(name) for table in channel.tables),
        }

    def _may_begin(self, hold: _Hold) -> bool:
        """Whether nobody reads or changes what a batch holds, and no channel of it is being opened."""
        names = self._together(hold)
        return (
            self.free(names)
            and not any(self._users[name] for name in names)
            and not any(channel.loading() for _, channel, _ in self._readers(hold.store))
        )

    # --- what nobody needs any more ------------------------------------------------------------------------

    def sweep(self, channels: Iterable[Channel]) -> None:
        """Forget groups and texts that nothing refers to any more, where enough have gathered.

        Only after all channels have heard a batch: channels share groups (H3).
        """
        if self._holds:
            return
        for channel in channels:
            if channel.wants_sweep and not channel.loading():  # it would number all rows at once, and find them in use
                self.sweeps += channel.sweep()
        if self._sweep is None and self._interner.wants_sweep:
            self._interner.begin_sweep()
            self._sweep = self._forget_texts()
        looked_at = 0
        while self._sweep is not None and looked_at < SWEPT_TEXTS:
            some = next(self._sweep, None)
            if some is None:
                self._sweep = None
            else:
                looked_at += some

    def _forget_texts(self) -> Iterator[int]:
        """Forget texts that nothing refers to any more, some at a time: says how many it looked at. What rows have is
        marked while these change; the rest, which is little, at the end: see `Interner.begin_sweep`."""
        for store in list(self._stores.values()):
            texts = [at for at, column in enumerate(store.table.columns) if column.type is ColumnType.TEXT]
            start = 0
            while texts and start < store.high_water:
                stop = min(start + SWEPT_TEXTS // len(texts), store.high_water)
                for column in texts:
                    self._interner.mark(store.cells[column, start:stop])
                yield (stop - start) * len(texts)
                start = stop
        self._interner.mark(self._feed.live_codes())
        for channel in self._channels:
            self._interner.mark(channel.live_codes())
        self.sweeps += 1
        while not self._interner.sweep_some():
            yield BLOCK


def _joined(parts: Sequence[Updates]) -> Updates:
    slots, existed, exists = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("slots", "existed", "exists")
    )
    old, new = np.hstack([part.old for part in parts]), np.hstack([part.new for part in parts])
    return Updates(slots, existed, exists, old, new)
