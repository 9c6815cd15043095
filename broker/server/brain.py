"""What the server does with a request: decides everything, and returns what must happen next as data."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.log.publishers import scoped
from broker.log.record import Kind
from broker.server.explaining import explain
from broker.server.outcome import Entry, Outcome
from broker.server.subscribing import Limits, Subscribing
from broker.sql.create import DropTable, parse_statement
from network.security.rights import TABLE_ACTIONS
from network.wire.bodies import (
    Delete,
    Describe,
    Done,
    Execute,
    Explain,
    Failed,
    Information,
    Publish,
    Status,
    Subscribe,
    Sync,
    Synced,
)
from network.wire.errors import HullcastError, InvariantBroken, TooLarge, Unavailable, UsageError, to_wire
from network.wire.values import to_ingest, upsert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.engine import Engine
    from broker.log.publishers import Publishers
    from broker.messages import Batch
    from broker.server.attendance import Attendance
    from broker.server.retention import Retention
    from network.security.rights import Action, Identity, Rights
    from network.wire.bodies import Body
    from network.wire.columns import Columns
    from network.wire.frames import Request

log = logging.getLogger(__name__)


class Brain:
    """Applies requests to the engine, in the order in which they come.

    `handle` is the one method that changes anything. A request that is wrong is answered with `Failed`; a failure
    that is ours (a bug) is raised when it may have left the engine in pieces, and answered when it cannot.
    """

    def __init__(
        self,
        engine: Engine,
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
        self._rights = rights
        self._attendance = attendance
        self._retention = retention
        self._status = status
        self._wanted = wanted
        self._limits = limits
        self.subscribing = Subscribing(engine, epoch, attendance, retention, self.check, limits)
        self.now = 0.0  # set by the service, now and then: how old kept messages are need not be exact
        self._sweeps = engine.sweeps

    def handle(self, body: Body, request: Request) -> Outcome:
        """Do what a request (with its body decoded) asks for, if its sender may do that now."""
        before = self.engine.seq
        try:
            return self._handle(body, request, self.sender(request))
        except InvariantBroken:
            raise
        except HullcastError as error:
            return self.refusal(error)
        except (Exception, MemoryError) as error:
            if self.engine.broken or self.engine.seq != before:  # rows may have changed without a record of it: stop
                raise
            log.exception("request failed", extra={"request": type(body).__name__})
            bug = InvariantBroken(f"{type(error).__name__} in a {type(body).__name__}; nothing was changed")
            return Outcome(Failed(*to_wire(bug)))

    def refusal(self, error: HullcastError) -> Outcome:
        """The answer to a request that cannot be met."""
        if isinstance(error, PermissionError):
            self.refused += 1
            log.warning("request refused", extra={"why": str(error)})
        return Outcome(Failed(*to_wire(error)))

    def sender(self, request: Request) -> Identity:
        """Who sent a request, with the rights they have now: not to be kept while the request waits."""
        assert request.origin is not None, "Children fills it in"
        return self._rights().who(request.origin.key, request.origin.name)

    def check(self, sender: Identity, action: Action, tables: Iterable[str] = ()) -> None:
        """NotPermitted unless the sender may do that."""
        self._rights().check(sender, action, tables)

    def _handle(self, body: Body, request: Request, sender: Identity) -> Outcome:
        may = self.check
        match body:
            case Publish() | Delete() | Execute():
                return self._change(body, request, sender)
            case Subscribe():
                return self.subscribing.subscribe(body, sender)
            case Sync():
                return Outcome(Synced(self.engine.seq), ordered=True)
            case Explain():
                may(sender, "subscribe", self.engine.tables_of(body.sql))
                return Outcome(Information(explain(self.engine, self._attendance, self._retention, body)))
            case Status():
                may(sender, "admin")  # it names everybody's queries
                return Outcome(Information(self._status()))
            case Describe():
                return Outcome(Information(self._describe(sender)))
        raise UsageError(f"a {type(body).__name__} is no request of a client")

    # --- writing ---------------------------------------------------------------------------------------

    def _change(self, body: Publish | Delete | Execute, request: Request, sender: Identity) -> Outcome:
        """Apply a change once, and after the earlier ones of its publisher."""
        publisher = scoped(sender.public, body.publisher)
        answered = self.publishers.judge(publisher, body.number, request.after, request.again)
        if answered is not None:
            return Outcome(Done(*answered))
        try:
            if isinstance(body, Execute):
                self.check(sender, "admin")
                return self._execute(body, publisher)
            self.check(sender, "publish", (body.table,))
            return self._publish(body, request.body, publisher)
        except Unavailable:
            raise
        except HullcastError:
            self.publishers.refused(publisher, body.number)
            raise

    def _publish(self, body: Publish | Delete, payload: bytes, publisher: bytes) -> Outcome:
        rows = max(map(len, body.columns.values()), default=0) if isinstance(body, Publish) else len(body.keys)
        if rows > self._limits.rows:
            raise TooLarge("rows in one batch", rows, self._limits.rows)
        batch = apply_batch(self.engine, body)
        first, last = batch.first_seq, batch.last_seq
        self.publishers.applied(publisher, body.number, first, last)
        entry = Entry(Kind.BATCH, payload, first, len(batch), publisher, body.number)
        return Outcome(Done(first, last), entry, through=last, messages=self._messages(batch))

    def _messages(self, batch: Batch) -> dict[int, Columns]:
        """The batch's messages by channel number, which the retention keeps too."""
        if self.engine.sweeps != self._sweeps:
            self._sweeps = self.engine.sweeps
            for attending in self._attendance:
                if attending.spec.partitioned:  # earlier messages may name partitions by numbers that others have now
                    self._retention.forget(attending.number, self.engine.seq)
        described: dict[int, Columns] = {}
        for name, messages in batch.messages.items():
            attended = self._attendance.find(name)
            if attended is not None and len(messages):
                columns = messages.wire()
                self._retention.keep(attended.number, batch.last_seq, columns, self.now)
                described[attended.number] = columns
        return described

    def _execute(self, body: Execute, publisher: bytes) -> Outcome:
        statement = parse_statement(body.sql)
        if isinstance(statement, DropTable):  # a channel that lingers for nobody does not keep a table
            for attending in self._attendance.close_now(statement.name, self._wanted()):
                self._retention.close(attending.number)
        self.engine.execute(body.sql)
        first, last = self.engine.seq + 1, self.engine.seq
        self.publishers.applied(publisher, body.number, first, last)
        entry = Entry(Kind.STATEMENT, body.sql.encode(), first, 0, publisher, body.number)
        return Outcome(Done(first, last), entry)

    # --- telling ---------------------------------------------------------------------------------------

    def _describe(self, sender: Identity) -> dict[str, object]:
        """The tables that the sender may do something with."""
        return {
            "tables": {
                table.name: {
                    "rows": self.engine.rows(table.name),
                    "key": table.key_column.name,
                    "columns": {column.name: column.type.value for column in table.columns},
                }
                for table in self.engine.tables.values()
                if sender.admin or any(sender.may(action, table.name) for action in TABLE_ACTIONS)
            }
        }


def apply_batch(engine: Engine, body: Publish | Delete) -> Batch:
    """Apply a published batch; also what recovery does with the log."""
    if isinstance(body, Publish):
        return upsert(engine.upsert, body.table, body.columns, body.absent)
    return engine.delete(body.table, to_ingest(body.keys))
