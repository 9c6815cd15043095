"""Changes: each is applied once, in its publisher's order; publishes that arrive together are one batch."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hullcast.broker.engine.stream import StreamGap
from hullcast.broker.log.payload import decode_batch, positioned
from hullcast.broker.log.publishers import scoped
from hullcast.broker.log.record import NOBODY, RecordKind
from hullcast.broker.queries.derived import is_hidden
from hullcast.broker.reformulate.tuples import TuplesChannel
from hullcast.broker.server.outcome import LogEntry, Outcome
from hullcast.broker.sql.create import AdvanceStream, CreateDerived, CreateTable, DropTable, parse_statement
from hullcast.broker.sql.view import DropView
from hullcast.broker.tables.ingest import joined
from hullcast.broker.tables.schema import POSITION, fold
from hullcast.broker.tables.travel import published
from hullcast.network.wire import bodies
from hullcast.network.wire.bodies import Delete, Done, Execute, Publish
from hullcast.network.wire.errors import (
    BadValue,
    HullcastError,
    InvariantBroken,
    SqlError,
    TableInUse,
    TooLarge,
    Unavailable,
)
from hullcast.network.wire.limits import LOGGED
from hullcast.network.wire.value_columns import is_values, most_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.engine.stream import Settled
    from hullcast.broker.log.publishers import Publishers
    from hullcast.broker.log.record import Record
    from hullcast.broker.reformulate.messages import Batch
    from hullcast.broker.reformulate.result import Result, ResultChannel
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.server.access import Asked
    from hullcast.broker.server.attendance import Attendance
    from hullcast.broker.server.conditionals import Conditionals
    from hullcast.broker.server.pipeline import Commits
    from hullcast.broker.server.streams import StreamsProcess
    from hullcast.broker.sql.create import Definition
    from hullcast.broker.streams.messages import MadeTuples
    from hullcast.broker.tables.ingest import Encoded
    from hullcast.broker.tables.interning import Texts
    from hullcast.broker.tables.store import Updates
    from hullcast.network.wire.arrays import Floats
    from hullcast.network.wire.columns import Columns

#: Rows of publishes that become one batch: more would gain nothing, and the loop stands still while they are applied.
TOGETHER_ROWS = 4096

#: No publish of so few rows is large, however many channels there are.
LEAST_LARGE = 64

#: Rows published one by one that may travel together, however few rows one batch may have.
APART_ROWS = 1024

#: Tuples that leave a stream and its windows right behind a change of it, if the change itself did not bring as many: a
#: few milliseconds. The others leave later, some at a time (`Changing.settle`).
SETTLED_AT_ONCE = 2048

#: About how long it takes to let tuples go, once.
SETTLE_COST_S = 0.002

#: A publisher's id as it is kept; clients send the same one with every change.
_scoped = lru_cache(maxsize=4096)(scoped)


class _Ready(NamedTuple):
    """A publish that may be applied: its turn has come, its sender has the right, its values are good."""

    place: int  # among those that arrived together
    arrived: Asked[Publish]
    publisher: bytes
    encoded: Encoded

    @property
    def rows(self) -> int:
        return int(self.encoded.cells.shape[1])


@dataclass(slots=True)
class _Run:
    """Publishes to one table that are ready, in order, and not applied yet."""

    table: str = ""
    ready: list[_Ready] = field(default_factory=list)
    rows: int = 0
    latest: dict[bytes, int] = field(default_factory=dict)  # by publisher, the number of its last one here

    def add(self, ready: _Ready) -> None:
        self.table = ready.arrived.body.table
        self.ready.append(ready)
        self.rows += ready.rows
        if ready.publisher != NOBODY:
            self.latest[ready.publisher] = ready.arrived.body.number


@dataclass(eq=False)
class Changing:
    """Applies changes to the engine, in the order in which they come, and says what each leads to."""

    _engine: ServedEngine
    _publishers: Publishers
    _attendance: Attendance
    _conditionals: Conditionals
    _wanted: Callable[[], set[int]]
    _most_rows: int
    _joins: StreamsProcess
    _door: Commits  # for changes that nobody asked for

    def __post_init__(self) -> None:
        self._sweeps, self._retention = self._engine.changes.sweeps, self._attendance.retention
        #: By publisher, its changes that are not done at once, in the order in which they came.
        self._lines: dict[bytes, dict[int, None]] = {}
        #: Streams that may have tuples to let go of. All of them at first: a crash may have come in between.
        self._unsettled: dict[str, None] = dict.fromkeys(self._engine.streams)

    # --- the order of a publisher's changes ----------------------------------------------------------------

    @contextmanager
    def in_line(self, asked: Asked[Any]) -> Iterator[None]:
        """A change is not done at once: later ones of its publisher are behind it until it is."""
        publisher = self._publisher(asked)
        line = self._lines.setdefault(publisher, {})
        line[id(asked)] = None
        try:
            yield
        finally:
            del line[id(asked)]
            if not line:
                del self._lines[publisher]

    def is_behind(self, asked: Asked[Any]) -> bool:
        line = self._lines.get(self._publisher(asked)) if self._lines and asked.body.publisher != NOBODY else None
        return line is not None and next(iter(line)) != id(asked)

    def _publisher(self, asked: Asked[Any]) -> bytes:
        return _scoped(asked.access.public, asked.body.publisher)

    # --- changes that come alone ---------------------------------------------------------------------------

    def change(self, asked: Asked[Any], now: float) -> Outcome:
        body, publisher, before = asked.body, self._publisher(asked), self._engine.seq
        if isinstance(body, Publish):
            (outcome,) = self.publish([asked], now)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        answered = self._answered(asked, publisher)
        if answered is not None:
            return answered
        try:
            if isinstance(body, Execute):
                asked.allow()
                statement = parse_statement(body.sql)
                _refuse_hidden(statement)
                if not isinstance(statement, DropTable | DropView):  # these make room
                    self._door.check_disk()
                return self._execute(body, statement, publisher, now)
            self._check(asked)
            return self._changed(asked, publisher, *self._engine.delete_column(body.table, body.keys), now)
        except HullcastError as error:
            self.refused(asked, error)
            raise
        except Exception as error:
            if self._engine.seq != before:
                self._door.fail(error)
            raise

    def refused(self, asked: Asked[Any], error: HullcastError) -> None:
        """A change is refused: let later ones of its publisher pass, unless it will come again."""
        comes_again = asked.request.apart and isinstance(error, BadValue)
        if not comes_again and not isinstance(error, Unavailable):
            self._publishers.refused(_scoped(asked.access.public, asked.body.publisher), asked.body.number)

    def _answered(self, asked: Asked[Any], publisher: bytes) -> Outcome | None:
        """The receipt of a change that was applied before; raises why it is not its turn."""
        body, request = asked.body, asked.request
        answered = self._publishers.judge(publisher, body.number, request.after, request.again)
        return None if answered is None else Outcome(Done(*answered))

    def _check(self, asked: Asked[Any]) -> None:
        asked.allow()
        body, streams, most = asked.body, self._engine.streams, self._most_rows
        if isinstance(body, Publish):
            streams.refuse_publish(body.table)
            self._door.check_disk()
            self._joins.refuse_more(body.table)
            what, rows = "rows", most_rows(body.columns)
            if asked.request.apart:
                most = max(most, APART_ROWS)
        else:
            streams.refuse_delete(body.table)
            self._door.check_disk()
            what, rows = "keys", len(body.keys)
        if rows > most:
            raise TooLarge(f"{what} in one batch (send smaller batches)", rows, self._most_rows)

    # --- publishes ---------------------------------------------------------------------------------------

    def publish(self, arrived: Sequence[Asked[Publish]], now: float) -> list[Outcome | Exception]:
        """Apply publishes that arrived together, as few batches: of each what it leads to, or why it is refused.

        Each row has its own sequence number, and each publish its own receipt and its own record in the log, as if they
        had come one by one. The messages of a batch are with the last outcome of it.
        """
        outcomes: list[Outcome | Exception] = [_NOT_YET] * len(arrived)
        try:
            self._publish(arrived, outcomes, now)
        except Exception as error:
            self._door.fail(error)
            raise
        return outcomes

    def _publish(self, arrived: Sequence[Asked[Publish]], outcomes: list[Outcome | Exception], now: float) -> None:
        run = _Run()
        for place, one in enumerate(arrived):
            if run.ready and (one.body.table != run.table or run.rows >= TOGETHER_ROWS):
                run = self._apply(run, outcomes, now)
            judged = self._judge(place, one, run)
            if judged is None:  # what becomes of those before it must be known first
                run = self._apply(run, outcomes, now)
                judged = self._judge(place, one, run)
            if isinstance(judged, _Ready):
                run.add(judged)
            elif judged is not None:
                outcomes[place] = judged
        if run.ready:
            self._apply(run, outcomes, now)

    def _judge(self, place: int, one: Asked[Publish], run: _Run) -> _Ready | Outcome | Exception | None:
        """Whether a publish may be applied behind those of the run; None if that shows when they have been applied."""
        try:
            return self._prepare(place, one, run)
        except Exception as error:  # noqa: BLE001  (the hall answers it; nothing has changed)
            return error

    def _prepare(self, place: int, one: Asked[Publish], run: _Run) -> _Ready | Outcome | None:
        """Judge a publish behind those of the run; the outcome, if it was applied before. None if the run must come
        first: this one is in it already and was sent again, or is refused, which must not count while an earlier one of
        its publisher may still have to come again."""
        body, publisher = one.body, self._publisher(one)
        before = run.latest.get(publisher, -1)
        if body.number <= before:
            return None
        if before < 0 or one.request.after > before:  # else it waits for one of the run, and that is before it
            answered = self._answered(one, publisher)
            if answered is not None:
                return answered
        try:
            self._check(one)
            return _Ready(place, one, publisher, self._engine.encoded(body.table, body.columns, body.absent))
        except HullcastError as error:
            if before >= 0:
                return None
            self.refused(one, error)
            raise

    def is_large(self, body: Publish | Delete, rows: int) -> bool:
        """Whether a change of so many rows takes so long that others must have their turns in between."""
        return rows > LEAST_LARGE and self._engine.changes.is_large(body.table, rows)

    def change_in_slices(self, asked: Asked[Publish] | Asked[Delete], now: Callable[[], float]) -> Work:
        """Apply a large change in slices, and all of it in the last: the result is its Outcome. Nobody else changes or
        reads its table meanwhile; whoever holds the table comes first."""
        body, publisher = asked.body, self._publisher(asked)
        answered = self._answered(asked, publisher)
        if answered is not None:
            return answered
        try:
            self._check(asked)
            if isinstance(body, Publish):
                yield from self._settled_before(body.table, now)
                work = self._engine.upserting(body.table, body.columns, body.absent)
            else:
                work = self._engine.deleting(body.table, body.keys)
            batch, updates = yield from work
        except HullcastError as error:
            self.refused(asked, error)
            raise
        finally:
            if self._engine.streams.find(body.table) is not None:
                self._unsettled[fold(body.table)] = None
        try:
            return self._changed(asked, publisher, batch, updates, now())
        except Exception as error:
            self._door.fail(error)
            raise

    def _settled_before(self, table: str, now: Callable[[], float]) -> Work:
        """Tuples leave first that should: a stream that gets large batches without end does not grow without end."""
        while fold(table) in self._unsettled:
            self._door.change(lambda: self.settle(now()))
            yield SETTLE_COST_S

    def _changed(
        self, asked: Asked[Publish] | Asked[Delete], publisher: bytes, batch: Batch, updates: Updates, now: float
    ) -> Outcome:
        """The outcome of a change that was done alone."""
        body, first, last, payload = asked.body, batch.first_seq, batch.last_seq, asked.request.body
        self._publishers.applied(publisher, body.number, first, last)
        deleted = None if isinstance(body, Publish) else int(updates.existed.sum())
        if isinstance(body, Publish):
            payload = self._recorded(body, updates.new, first, self._engine.interner.texts) or payload
        entry = LogEntry(RecordKind.BATCH, payload, first, len(batch), publisher, body.number)
        return self._told(Done(first, last, deleted), entry, batch, now, body.table)

    def _apply(self, run: _Run, outcomes: list[Outcome | Exception], now: float) -> _Run:
        """Apply a run as one batch; where the table refuses that, one by one. Returns an empty run."""
        before = self._engine.seq
        try:
            texts = self._engine.interner.texts  # before a sweep, which may follow the batch
            batch, updates = self._engine.changes.upsert(run.table, joined([ready.encoded for ready in run.ready]))
        except Exception as error:
            if self._engine.changes.broken or self._engine.seq != before:
                raise
            self._apply_singly(run, error, outcomes, now)
            return _Run()
        first, is_stream = batch.first_seq, self._engine.streams.find(run.table) is not None
        for ready in run.ready:
            body, last = ready.arrived.body, first + ready.rows - 1
            self._publishers.applied(ready.publisher, body.number, first, last)
            payload = ready.arrived.request.body
            if is_stream or ready.encoded.partial:
                cells = updates.new[:, first - batch.first_seq : last - batch.first_seq + 1]
                payload = self._recorded(body, cells, first, texts) or payload
            entry = LogEntry(RecordKind.BATCH, payload, first, ready.rows, ready.publisher, body.number)
            if ready is run.ready[-1]:
                told = self._told(Done(first, last), entry, batch, now, run.table)
                then = self._follow(run.table, run.rows, now) if is_stream else ()
                outcomes[ready.place] = replace(told, then=then) if then else told
            else:
                outcomes[ready.place] = Outcome(Done(first, last), entry)
            first = last + 1
        if first != batch.last_seq + 1:
            raise InvariantBroken(f"{len(batch)} updates of {run.rows} rows")
        return _Run()

    def _follow(self, table: str, rows: int, now: float) -> tuple[Outcome, ...]:
        """What follows from a change of a stream that brought so many tuples: tuples leave windows, and the oldest go.

        No more here than the change itself was work; or the little that may always go. What is left goes by `settle`,
        while others have their turns. So a window or a stream that is fed without end does not grow without end.
        """
        found: list[Outcome] = []
        most = max(SETTLED_AT_ONCE, rows * (1 + len(self._engine.streams[fold(table)].windows)))
        while most > 0:
            settled = self._engine.settle_some(table, self._joins.needs)
            if settled is None:
                return tuple(found)
            most -= settled.moved
            found += self._let_go(table, settled, now)
        self._unsettled[fold(table)] = None
        return tuple(found)

    @property
    def unsettled(self) -> bool:
        return bool(self._unsettled)

    def settle(self, now: float) -> list[Outcome]:
        """Let some tuples go that have become too old, or too many; empty if none are left. Streams take turns."""
        while self._unsettled:
            name = next(iter(self._unsettled))
            del self._unsettled[name]
            if self._engine.changes.held((name,)):  # whoever holds it will say so again
                continue
            settled = self._engine.settle_some(name, self._joins.needs)
            if settled is not None:
                self._unsettled[name] = None
                return self._let_go(self._engine.catalogue.store(name).table.name, settled, now)
        return []

    def _let_go(self, table: str, settled: Settled, now: float) -> list[Outcome]:
        """Tuples have left. If the stream itself lets them go, the log first says how far joins are: else a restart
        would take what is gone for something that they have missed."""
        batch, found = settled.batch, []
        kind, payload = RecordKind.RESULT, table.encode()
        if settled.removed is not None:
            names = [table, *(made.name for made in self._engine.streams.reading(table))]
            found += self.note_consumed(names, batch.first_seq)
            kind, payload = RecordKind.BATCH, bodies.encode(Delete(table, settled.removed.astype(np.int64), NOBODY, 0))
        entry = LogEntry(kind, payload, batch.first_seq, len(batch), NOBODY, 0)
        return [*found, self._told(b"", entry, batch, now)]

    def note_consumed(self, names: Sequence[str], first: int | None = None) -> list[Outcome]:
        """Log how far some derived streams are with their sources, if that is known, and not in the log; before update
        `first`, if it has been made."""
        first = self._engine.seq + 1 if first is None else first
        found = []
        for name in names:
            stream = self._engine.streams[fold(name)]
            if stream.consumed != stream.logged:
                stream.logged = stream.consumed
                payload = StreamGap(stream.store.table.name, "", stream.consumed).encode()
                found.append(Outcome(b"", LogEntry(RecordKind.CONSUMED, payload, first, 0, NOBODY, 0)))
        return found

    # --- derived streams -----------------------------------------------------------------------------------

    def append(self, stream: str, made: MadeTuples, now: float) -> Outcome:
        rows = made.tuples
        payload = positioned(made.record, rows, self._engine.seq + 1)
        batch, _ = self._engine.changes.upsert(stream, self._engine.recoded(made.rows))
        entry = LogEntry(RecordKind.BATCH, payload, batch.first_seq, rows, NOBODY, 0)
        return replace(self._told(b"", entry, batch, now, stream), then=self._follow(stream, rows, now))

    def gap(self, stream: str, why: str, goes_on: tuple[float, int] | None, now: float) -> list[Outcome]:
        """Results of a derived stream are missing up to here: its subscribers hear of that, and those of streams that
        are made of it. See `StreamGap`."""
        found, names = [], [stream]
        for name in names:  # it grows
            gap = StreamGap(name, why, goes_on if name == stream else None)
            seq = self._engine.mark_gap(gap)
            messages: dict[int, Columns] = {}
            for attending in self._attendance:
                channel = attending.channel
                if isinstance(channel, TuplesChannel) and channel.tables[0].name == name:
                    messages[attending.number] = channel.gap(seq)
                    self._retention.keep(attending.number, seq, messages[attending.number], now)
            entry = LogEntry(RecordKind.GAP, gap.encode(), seq, 1, NOBODY, 0)
            found.append(Outcome(b"", entry, through=seq, messages=messages))
            names += [made.name for made in self._engine.streams.reading(name) if made.name not in names]
        return found

    def execute_own(self, sql: str) -> None:
        """Do a statement that nobody asked for, in its turn among the changes of others."""

        def make() -> list[Outcome]:
            self._engine.execute(sql)
            return [Outcome(b"", LogEntry(RecordKind.STATEMENT, sql.encode(), self._engine.seq + 1, 0, NOBODY, 0))]

        self._door.change(make)

    def _recorded(self, body: Publish, cells: Floats, first: int, texts: Texts) -> bytes:
        """What the log has of a publish, if not itself: tuples have their positions, and rows that lacked columns are
        as they became, whatever was there before. Else empty, and where no record can hold such rows."""
        table = self._engine.catalogue.store(body.table).table
        is_stream = table.stream is not None
        if body.absent or len(table.columns) - len(body.columns) > is_stream:
            with suppress(TooLarge):
                return bodies.encode(replace(body, columns=published(table, cells, texts), absent=None), LOGGED)
        elif is_stream:
            alone = not any(map(is_values, body.columns.values()))
            positions = first if alone else np.arange(first, first + cells.shape[1])
            return bodies.encode(replace(body, columns={**body.columns, POSITION.name: positions}), LOGGED)
        return b""

    def _apply_singly(self, run: _Run, error: Exception, outcomes: list[Outcome | Exception], now: float) -> None:
        """A batch was refused, and nothing changed: whose fault it is shows when they come one by one."""
        if len(run.ready) > 1:
            for ready in run.ready:
                outcomes[ready.place] = self.publish([ready.arrived], now)[0]
            return
        if isinstance(error, HullcastError):
            self.refused(run.ready[0].arrived, error)
        outcomes[run.ready[0].place] = error

    def deliver(self, channel: ResultChannel, result: Result, now: float) -> Outcome | None:
        """Tell the subscribers of a conditional subscription of a new result, in its place among the updates; None if
        there are none yet, and it is a first answer."""
        attending = self._attendance.find(channel.name)
        if attending is None:
            channel.result = result
            return None
        seq = self._engine.pass_number()
        columns = channel.deliver(result, seq)
        self._retention.keep(attending.number, seq, columns, now)
        entry = LogEntry(RecordKind.RESULT, channel.name.encode(), seq, 1, NOBODY, 0)
        return Outcome(b"", entry, through=seq, messages={attending.number: columns})

    def _told(
        self, done: Done | bytes, entry: LogEntry, batch: Batch, now: float, changed: str | None = None
    ) -> Outcome:
        """The outcome that brings the messages of a batch. It changed a table, or (None) tuples of a stream went."""
        self._conditionals.hear(batch, changed)
        self.forget_swept()
        described: dict[int, Columns] = {}
        void: list[int] = []  # channels for which there are more messages than can be sent
        for name, messages in batch.messages.items():
            attending = self._attendance.find(name)
            if attending is not None and len(messages):
                columns = described[attending.number] = messages.wire()
                self._retention.keep(attending.number, batch.last_seq, columns, now)
            if attending is not None and not messages.complete:
                void.append(attending.number)
        for number in void:  # + 1: a client with the messages of other channels lacks these
            self._retention.forget(number, batch.last_seq + 1)
        return Outcome(done, entry, through=batch.last_seq, messages=described, void=tuple(void))

    # --- others ------------------------------------------------------------------------------------------

    def _execute(self, body: Execute, statement: Definition | AdvanceStream, publisher: bytes, now: float) -> Outcome:
        if isinstance(statement, AdvanceStream):
            self._engine.streams.refuse_publish(statement.name)
        if isinstance(statement, CreateDerived) and (made := self._engine.catalogue.derivable(statement)) is not None:
            self._joins.check_room(made)
        if isinstance(statement, DropTable):  # a channel that lingers without subscribers does not keep a table
            wanted = self._wanted()
            self._conditionals.close_now(statement.name, wanted)
            joins = [table.name for table in self._engine.streams.reading(statement.name) if is_hidden(table.name)]
            for name in (statement.name, *joins):
                self._attendance.close_now(name, wanted)
            if self._conditionals.is_followed(statement.name):
                name = self._engine.catalogue.store(statement.name).table.name
                raise TableInUse(name, ("its changes (when=)",))
            read = self._attendance.tables_read()
            for name in joins:
                if fold(name) not in read:
                    self.drop_hidden(name)
        self._engine.execute(body.sql)
        first, last = self._engine.seq + 1, self._engine.seq
        self._publishers.applied(publisher, body.number, first, last)
        entry = LogEntry(RecordKind.STATEMENT, body.sql.encode(), first, 0, publisher, body.number)
        then: tuple[Outcome, ...] = ()
        if isinstance(statement, AdvanceStream):
            self._joins.advanced(statement.name, last, statement.time)
            then = self._follow(statement.name, 0, now)
        return Outcome(Done(first, last), entry, then=then)

    def drop_hidden(self, stream: str) -> None:
        with suppress(TableInUse):
            self.execute_own(f'DROP STREAM "{stream}"')

    def forget_swept(self) -> None:
        """After a sweep, earlier messages may name partitions by numbers that others have now."""
        if self._engine.changes.sweeps != self._sweeps:
            self._sweeps = self._engine.changes.sweeps
            for attending in self._attendance:
                if attending.spec.partitioned:
                    self._retention.forget(attending.number, self._engine.seq)


def _refuse_hidden(statement: Definition | AdvanceStream) -> None:
    """SqlError for what only the server itself may say."""
    name = statement.table.name if isinstance(statement, CreateTable) else statement.name
    if is_hidden(name):
        raise SqlError(name, "streams of this name belong to subscriptions", "choose another name")
    if isinstance(statement, CreateTable) and statement.table.stream is not None and statement.table.stream.source:
        raise SqlError("derived_from", "only the server writes this", "use CREATE STREAM name AS SELECT ..")


_NOT_YET = InvariantBroken("a publish without an outcome")


def apply_record(engine: ServedEngine, record: Record) -> None:
    match record.kind:
        case RecordKind.STATEMENT:
            engine.execute(record.payload.decode())
        case RecordKind.RESULT:
            engine.pass_number(record.count)
        case RecordKind.CONSUMED:
            engine.streams.restore_consumed(record.payload)
        case RecordKind.GAP:
            engine.mark_gap(StreamGap.decode(record.payload))
        case _:
            body = decode_batch(record.payload)
            if isinstance(body, Publish):
                engine.upsert_columns(body.table, body.columns, body.absent)
            else:
                engine.delete_column(body.table, body.keys)
