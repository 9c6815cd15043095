"""What the server does with a request: decides everything, and returns what must happen next as data."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.log.publishers import scoped
from hullcast.broker.log.record import RecordKind
from hullcast.broker.reformulate.channel import column_name
from hullcast.broker.server.outcome import LogEntry, Outcome
from hullcast.broker.server.retention import concerned
from hullcast.broker.server.subscribing import Limits, Subscribing
from hullcast.broker.sql.create import DropTable, parse_statement
from hullcast.network.security.rights import TABLE_ACTIONS
from hullcast.network.wire import bodies
from hullcast.network.wire.bodies import (
    Delete,
    Describe,
    Done,
    Execute,
    Explain,
    Failed,
    Fetch,
    Information,
    Publish,
    Status,
    Subscribe,
    Sync,
    Synced,
)
from hullcast.network.wire.columns import concatenate, size_bytes
from hullcast.network.wire.errors import (
    BadFrame,
    HullcastError,
    InvariantBroken,
    TooLarge,
    Unavailable,
    UnknownTable,
    UsageError,
    to_wire,
)
from hullcast.network.wire.value_columns import most_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.log.publishers import Publishers
    from hullcast.broker.log.record import Record
    from hullcast.broker.reformulate.channel import Channel
    from hullcast.broker.reformulate.messages import Batch
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.server.attendance import Attendance, Attending
    from hullcast.broker.server.retention import Retention
    from hullcast.network.security.rights import Action, Identity, Rights
    from hullcast.network.wire.arrays import Floats
    from hullcast.network.wire.bodies import Body, Explain
    from hullcast.network.wire.columns import Columns
    from hullcast.network.wire.frames import Origin, Request

log = logging.getLogger(__name__)


class Brain:
    """Applies requests to the engine, in the order in which they come.

    `work` is the one method that changes anything. A request that is wrong is answered with `Failed`; a failure
    of ours (a bug) is raised when it may have left the engine half-changed, and answered when it cannot.
    """

    def __init__(
        self,
        engine: ServedEngine,
        epoch: bytes,
        publishers: Publishers,
        rights: Callable[[], Rights],
        attendance: Attendance,
        retention: Retention,
        status: Callable[[], dict[str, object]],
        wanted: Callable[[], set[int]],
        *,
        limits: Limits,
    ) -> None:
        self.engine = engine
        self.epoch = epoch
        self.publishers = publishers
        self.refused = 0  # requests that the sender had no right to
        self.failures = 0  # requests that failed through a fault of ours
        self._rights = rights
        self._attendance = attendance
        self._retention = retention
        self._status = status
        self._wanted = wanted
        self._limits = limits
        self.subscribing = Subscribing(engine, epoch, attendance, retention, limits)
        self._sweeps = engine.sweeps

    def work(self, body: Body, request: Request, owner: str, now: Callable[[], float]) -> Work:
        """Do what a request (with its body decoded) asks for, in slices; the result is an Outcome, whatever happens.

        Rights are those in force when something is done, however long it waited.
        """
        assert request.origin is not None, "Children fills it in"
        origin = request.origin
        before = self.engine.seq
        try:
            if isinstance(body, Subscribe):

                def may(action: Action, tables: Iterable[str] = ()) -> None:
                    self.check(origin, action, tables)

                outcome: Outcome = yield from self.subscribing.subscribe(body, may, owner, now)
                return outcome
            return self._handle(body, request, origin, owner, now())
        except HullcastError as error:
            return self.refusal(error, origin)
        except (Exception, MemoryError) as error:
            if not isinstance(body, Subscribe) and self.engine.seq != before:
                raise  # rows may have changed without a record of it: stop
            return self.failure(error, type(body).__name__)

    def refusal(self, error: HullcastError, origin: Origin) -> Outcome:
        """The answer to a request that cannot be met; InvariantBroken is raised where it says that the engine is."""
        if isinstance(error, InvariantBroken):
            return self.failure(error, "request")
        if isinstance(error, PermissionError):
            self.refused += 1
            log.warning("request refused", extra={"why": str(error)})
        if isinstance(error, UnknownTable):  # it names the tables there are
            sender = self._sender(origin)
            error = UnknownTable(error.table, tuple(table for table in error.known if _may_see(sender, table)))
        return Outcome(Failed(*to_wire(error)))

    def failure(self, error: BaseException, what: str) -> Outcome:
        """The answer to a request that failed by a fault of ours; raises it if the engine's state is in doubt."""
        if self.engine.broken:
            raise error
        self.failures += 1
        log.error("request failed", extra={"request": what}, exc_info=error)
        bug = error if isinstance(error, InvariantBroken) else None
        bug = bug or InvariantBroken(f"{type(error).__name__} in a {what}; nothing was changed")
        return Outcome(Failed(*to_wire(bug)))

    def check(self, origin: Origin, action: Action, tables: Iterable[str] = ()) -> None:
        """NotPermitted unless the sender may do that now."""
        self._rights().check(self._sender(origin), action, tables)

    def _sender(self, origin: Origin) -> Identity:
        """The sender of a request, with the rights it has now: not to be kept while the request waits."""
        return self._rights().who(origin.key, origin.name)

    def _handle(self, body: Body, request: Request, origin: Origin, owner: str, now: float) -> Outcome:
        match body:
            case Publish() | Delete() | Execute():
                return self._change(body, request, origin, now)
            case Fetch():
                return Outcome(self.subscribing.fetch(body, owner, now))
            case Sync():
                return Outcome(Synced(self.engine.seq), ordered=True)
            case Explain():
                self.check(origin, "subscribe", self.engine.tables_named(body.sql))
                return Outcome(Information(explain(self.engine, self._attendance, self._retention, body)))
            case Status():
                self.check(origin, "admin")  # it names the queries of all clients
                return Outcome(Information(self._status()))
            case Describe():
                return Outcome(Information(self._describe(origin)))
        raise UsageError(f"a {type(body).__name__} is not a request of a client")

    # --- writing ---------------------------------------------------------------------------------------

    def _change(self, body: Publish | Delete | Execute, request: Request, origin: Origin, now: float) -> Outcome:
        """Apply a change once, and after the earlier ones of its publisher."""
        publisher = scoped(self._sender(origin).public, body.publisher)
        answered = self.publishers.judge(publisher, body.number, request.after, request.again)
        if answered is not None:
            return Outcome(Done(*answered))
        try:
            if isinstance(body, Execute):
                self.check(origin, "admin")
                return self._execute(body, publisher)
            self.check(origin, "publish", (body.table,))
            return self._publish(body, request.body, publisher, now)
        except Unavailable:
            raise
        except HullcastError:
            self.publishers.refused(publisher, body.number)
            raise

    def _publish(self, body: Publish | Delete, payload: bytes, publisher: bytes, now: float) -> Outcome:
        rows = most_rows(body.columns) if isinstance(body, Publish) else len(body.keys)
        if rows > self._limits.rows:
            raise TooLarge("rows in one batch", rows, self._limits.rows)
        before = self.engine.rows(body.table)
        batch = apply_batch(self.engine, body)
        deleted = before - self.engine.rows(body.table) if isinstance(body, Delete) else None
        first, last = batch.first_seq, batch.last_seq
        self.publishers.applied(publisher, body.number, first, last)
        entry = LogEntry(RecordKind.BATCH, payload, first, len(batch), publisher, body.number)
        messages = self._messages(batch, now)
        return Outcome(Done(first, last, deleted), entry, through=last, messages=messages, void=self._void(batch))

    def _messages(self, batch: Batch, now: float) -> dict[int, Columns]:
        """The batch's messages by channel number, which the retention keeps too."""
        self._forget_swept()
        described: dict[int, Columns] = {}
        for name, messages in batch.messages.items():
            attended = self._attendance.find(name)
            if attended is not None and len(messages):
                columns = messages.wire()
                self._retention.keep(attended.number, batch.last_seq, columns, now)
                described[attended.number] = columns
        return described

    def tidy(self) -> None:
        """Forget texts that only requests mentioned, if there are many."""
        self.engine.tidy()
        self._forget_swept()

    def _forget_swept(self) -> None:
        """After a sweep, earlier messages may name partitions by numbers that others have now."""
        if self.engine.sweeps != self._sweeps:
            self._sweeps = self.engine.sweeps
            for attending in self._attendance:
                if attending.spec.partitioned:
                    self._retention.forget(attending.number, self.engine.seq)

    def _void(self, batch: Batch) -> tuple[int, ...]:
        """The channels for which a batch had more messages than can be sent."""
        lost = [self._attendance.find(name) for name, messages in batch.messages.items() if not messages.complete]
        numbers = tuple(attending.number for attending in lost if attending is not None)
        for number in numbers:  # + 1: a client with the messages of other channels lacks these
            self._retention.forget(number, batch.last_seq + 1)
        return numbers

    def _execute(self, body: Execute, publisher: bytes) -> Outcome:
        statement = parse_statement(body.sql)
        if isinstance(statement, DropTable):  # a channel that lingers without subscribers does not keep a table
            for attending in self._attendance.close_now(statement.name, self._wanted()):
                self._retention.close(attending.number)
        self.engine.execute(body.sql)
        first, last = self.engine.seq + 1, self.engine.seq
        self.publishers.applied(publisher, body.number, first, last)
        entry = LogEntry(RecordKind.STATEMENT, body.sql.encode(), first, 0, publisher, body.number)
        return Outcome(Done(first, last), entry)

    # --- describing ------------------------------------------------------------------------------------

    def _describe(self, origin: Origin) -> dict[str, object]:
        """The tables that the sender may do something with."""
        sender = self._sender(origin)
        return {
            "tables": {
                table.name: {
                    "rows": self.engine.rows(table.name),
                    "key": table.key_column.name,
                    "columns": {column.name: column.type.value for column in table.columns},
                }
                for table in self.engine.tables.values()
                if _may_see(sender, table.name)
            }
        }


def _may_see(sender: Identity, table: str) -> bool:
    """Whether a sender may know of a table."""
    return sender.admin or any(sender.may(action, table) for action in TABLE_ACTIONS)


def apply_batch(engine: ServedEngine, body: Publish | Delete) -> Batch:
    """Apply a published batch."""
    if isinstance(body, Publish):
        return engine.upsert_columns(body.table, body.columns, body.absent)
    return engine.delete_column(body.table, body.keys)


def apply_record(engine: ServedEngine, record: Record) -> None:
    """Do once more what a record of the log did."""
    if record.kind is RecordKind.STATEMENT:
        engine.execute(record.payload.decode())
        return
    body = bodies.decode(record.payload)
    if not isinstance(body, Publish | Delete):
        raise BadFrame(f"a {type(body).__name__} in the log")
    apply_batch(engine, body)


#: Of the messages kept, the latest up to so many bytes are looked at: a few milliseconds of work.
LOOKED_AT_BYTES = 2 << 20

_MEANING = {
    "rectangles": "the point (low, high); a message is a rectangle, and concerns it if the point is inside",
    "places": "a box; a message is a row's place before and after, and concerns it if one of them is inside",
}


def explain(engine: ServedEngine, attendance: Attendance, retention: Retention, body: Explain) -> dict[str, object]:
    """What is known now; nothing is opened for it. Traffic is measured on the messages kept for resuming, where the
    channel is open already."""
    query, predicates, channel = engine.described(body.sql, [[value] for value in body.parameters])
    shape, tables = query.shape, query.tables
    form = shape.kind.answers.form
    facts: dict[str, object] = {
        "channel": engine.channel_name(query),
        "kind": shape.kind.name,
        "form": form,
        "tables": list(shape.tables),
        "answer": list(query.columns),
        "becomes": _MEANING[form],
        "ranges": [column_name(tables, ref) for ref in shape.ranges],
        "partitions": [column_name(tables, ref) for ref in shape.partition],
        "low": predicates.low[0].tolist(),
        "high": predicates.high[0].tolist(),
        "never": bool(predicates.never is not None and predicates.never[0]),
        "rows": [engine.rows(table) for table in shape.tables],
        "channel_open": False,
        "seq": engine.seq,
    }
    attending = None if channel is None else attendance.find(channel.name)
    if channel is not None and attending is not None:
        facts["channel_open"] = True
        facts.update(_traffic(channel, attending, retention, channel.points_elsewhere(predicates)))
    return facts


def _traffic(channel: Channel, attending: Attending, retention: Retention, points: Floats) -> dict[str, object]:
    facts: dict[str, object] = {}
    statistics = channel.statistics()
    if statistics.updates:
        facts["updates_seen"] = statistics.updates
        facts["messages_per_update"] = statistics.messages / statistics.updates
        facts["ignorable_share"] = statistics.ignorable / statistics.updates
    kept = retention.latest(attending.number, LOOKED_AT_BYTES)
    if kept:
        columns = concatenate(kept)
        hit = concerned(columns, attending.spec, points)
        seqs = np.asarray(columns["seq"])
        facts["recent_messages"] = len(seqs)
        facts["recent_messages_matching"] = int(hit.sum())
        facts["recent_updates_telling"] = len(np.unique(seqs[hit]))
        facts["recent_span_updates"] = int(seqs.max() - seqs.min() + 1)
        facts["bytes_per_message"] = size_bytes(columns) / len(seqs)
    return facts
