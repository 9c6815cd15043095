"""A subscription's events out of the change history, by the engine that the server has.

    the tables at seq   ->  an engine, and the subscription in it: the answer at seq
    their changes, merged  ->  the engine's updates 1, 2, ..: each is one change, whose number on the server is known
    the engine's events    ->  the rows of a stream, with the server's numbers

An update gives one event at most, in however many portions the changes come. So a range gives the same rows whenever
it is read.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.broker.engine.engine import Engine
from hullcast.broker.sql.create import create_text
from hullcast.network.answers.events import Change
from hullcast.network.wire.errors import HistoryGone, NoHistory, NotPermitted, UnknownTable, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hullcast.broker.engine.subscription import EngineSubscription
    from hullcast.broker.sql.subscription import ParsedQuery
    from hullcast.clients.sdk.client import Client
    from hullcast.clients.sdk.history import ChangePart, History, TablePart
    from hullcast.network.wire.arrays import Ints

Rows = list[tuple[int, str, tuple[Any, ...]]]  # what a stream gives: _seq, _event, the answer's columns

#: Changes that the engine takes at once, and events that they may have: a change of a join may have many.
UPDATES_AT_ONCE, MOST_WAITING = 4096, 1 << 22
#: Why a table's history cannot be read.
UNREADABLE = (HistoryGone, NoHistory, NotPermitted, UnknownTable)


class NotReplayable(UsageError):
    """The history does not have what is needed; the text says why."""


class ReplayedSubscription:
    """The subscription in an engine of its own, whose tables are as they were after update `seq`."""

    def __init__(self, query: ParsedQuery, parameters: Sequence[Any], seq: int) -> None:
        self.seq = seq
        self._query, self._parameters = query, parameters
        self._tables = {table.name: table for table in query.tables}  # one, where a table is joined with itself
        self._engine = Engine(event_limit=MOST_WAITING)
        for table in self._tables.values():
            self._engine.execute(create_text(table))
        self._subscription: EngineSubscription | None = None

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables."""
        return tuple(self._tables)

    def load(self, table: str, part: TablePart) -> None:
        """Take in rows at `seq`; all of them come before `begin`."""
        if len(part):
            self._engine.upsert(table, part.to_arrow())

    def begin(self) -> None:
        """All rows are here."""
        self._subscription = self._engine.subscribe(self._query.sql, *self._parameters)

    @property
    def answer(self) -> Any:
        """The answer at `seq`."""
        assert self._subscription is not None, "begin comes first"
        return self._subscription.answer

    def apply(self, parts: Mapping[str, ChangePart], through: int, most: int | None = None) -> Rows:
        """Go on to update `through`, or to an earlier one if that makes `most` rows. The parts have all changes of the
        tables between `seq` and it, and maybe more."""
        found: Rows = []
        for table, deleted, numbers, rows in _runs(parts, self.seq, through):
            if deleted:
                key = self._tables[table].key_column.name
                batch = self._engine.delete(table, rows.column(key))
            else:
                batch = self._engine.upsert(table, rows)
            if batch.last_seq - batch.first_seq + 1 != len(numbers):
                raise NotReplayable(f"the history of {table} does not fit the rows before update {numbers[0]:,}")
            found += self._events(batch.first_seq, numbers)
            if most is not None and len(found) >= most:
                self.seq = int(numbers[-1])
                return found
        self.seq = through
        return found

    def _events(self, first: int, numbers: Ints) -> Rows:
        """The events of the engine's updates from `first` on, with the numbers that these have on the server."""
        assert self._subscription is not None, "begin comes first"
        found: Rows = []
        for event in self._subscription.drain():
            if not isinstance(event, Change):
                raise NotReplayable(f"{len(numbers):,} changes from {numbers[0]:,} on have too many events at once")
            found += change_rows(int(numbers[event.seq - first]), event)  # an event that is kept keeps the answer
        return found


def change_rows(seq: int, event: Change) -> Rows:
    """A change as rows."""
    if not (event.entered or event.left or event.changed):
        return [(seq, "change", (event.answer,))]
    left = [*event.left, *(before for before, _ in event.changed)]
    entered = [*event.entered, *(after for _, after in event.changed)]
    return [(seq, "left", _values(row)) for row in left] + [(seq, "entered", _values(row)) for row in entered]


def whole_answer(seq: int, event: str, answer: Any) -> Rows:
    """An answer as rows: of a single value one; of a set or rows a mark, and then each."""
    if isinstance(answer, set | frozenset):
        answer = sorted(answer, key=repr)  # a set has another order in another process
    if isinstance(answer, list):
        return [(seq, event, ()), *((seq, "entered", _values(row)) for row in answer)]
    return [(seq, event, (answer,))]


def _values(row: Any) -> tuple[Any, ...]:
    return tuple(row) if isinstance(row, tuple) else (row,)


def _runs(parts: Mapping[str, ChangePart], after: int, through: int) -> list[tuple[str, bool, Ints, Any]]:
    """Changes of all tables in the order of their numbers: (table, whether deleted, numbers, rows as Arrow) of as many
    at once as are of one table and one kind."""
    names = list(parts)
    spans = [np.searchsorted(part.seq, (after, through), side="right") for part in parts.values()]
    rows = [_own_columns(part).slice(low, high - low) for part, (low, high) in zip(parts.values(), spans, strict=True)]
    seqs = [part.seq[low:high] for part, (low, high) in zip(parts.values(), spans, strict=True)]
    kinds = [
        2 * at + part.deleted[low:high].astype(np.int64)
        for at, (part, (low, high)) in enumerate(zip(parts.values(), spans, strict=True))
    ]
    order = np.argsort(np.concatenate(seqs), kind="stable")
    numbers, kind = np.concatenate(seqs)[order], np.concatenate(kinds)[order]
    places = np.concatenate([np.arange(len(one)) for one in seqs])[order]  # within their own table: they rise
    edges = np.flatnonzero(np.diff(kind)) + 1
    found = []
    for begin, end in zip([0, *edges], [*edges, len(kind)], strict=True):
        for low in range(begin, end, UPDATES_AT_ONCE):
            high = min(low + UPDATES_AT_ONCE, end)
            at, deleted = divmod(int(kind[low]), 2)
            taken = rows[at].slice(int(places[low]), high - low)
            found.append((names[at], bool(deleted), numbers[low:high], taken))
    return found


def _own_columns(part: ChangePart) -> Any:
    """Without _seq and _deleted, which the table itself may have, too."""
    rows = part.to_arrow()
    return rows.select(list(range(2, rows.num_columns)))


# --- with a server -------------------------------------------------------------------------------------------


async def spans_of(client: Client, query: ParsedQuery) -> dict[str, History]:
    """How far the history of a subscription's tables reaches."""
    return {table.name: await client.history(table.name) for table in query.tables}


async def created_of(client: Client, query: ParsedQuery) -> list[int] | None:
    """After which updates the tables were created; None if their history cannot be read."""
    try:
        return [span.created for span in (await spans_of(client, query)).values()]
    except UNREADABLE:
        return None


async def rebuilt(
    client: Client, query: ParsedQuery, parameters: Sequence[Any], seq: int, created: list[int] | None
) -> ReplayedSubscription:
    """The subscription as of an update; `created` says of which tables. NotReplayable if the history lacks it."""
    try:
        for at, (table, span) in enumerate((await spans_of(client, query)).items()):
            if span.created > seq or (created is None and span.created == seq):
                raise NotReplayable(f"{table} was created after update {seq:,}")
            if created is not None and span.created != created[at]:
                raise NotReplayable(f"{table} was dropped and created again")
            if span.last < seq:
                raise NotReplayable(f"the server's history ends with update {span.last:,}")
        replay = ReplayedSubscription(query, parameters, seq)
        for table in replay.tables:
            async with aclosing(client.table_at(table, seq)) as portions:
                async for rows in portions:
                    await asyncio.to_thread(replay.load, table, rows)  # links must not wait for it
    except UNREADABLE as error:
        raise NotReplayable(str(error)) from error
    await asyncio.to_thread(replay.begin)
    return replay


async def advanced(client: Client, replay: ReplayedSubscription, through: int, most: int | None = None) -> Rows:
    """The rows up to an update, or up to an earlier one if that makes so many; `replay.seq` says which."""
    found: Rows = []
    try:
        async with AsyncExitStack() as stack:
            coming = {
                table: await stack.enter_async_context(aclosing(client.changes(table, replay.seq, through)))
                for table in replay.tables
            }
            parts: dict[str, ChangePart] = {}
            while replay.seq < through and (most is None or len(found) < most):
                for table, portions in coming.items():
                    if table not in parts or parts[table].last <= replay.seq:
                        parts[table] = await anext(portions)
                reached = min(part.last for part in parts.values())
                rest = None if most is None else most - len(found)
                found += await asyncio.to_thread(replay.apply, parts, reached, rest)
    except UNREADABLE as error:
        raise NotReplayable(str(error)) from error
    except StopAsyncIteration:
        raise NotReplayable(f"the server's history ends with update {replay.seq:,}, before {through:,}") from None
    return found
