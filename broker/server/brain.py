"""What the server does with a request: decides everything, and returns what must happen next as data."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from broker.log.record import Kind
from broker.server.explaining import explain
from broker.sql.create import DropTable, parse_statement
from network.wire.bodies import (
    ChannelSpec,
    Delete,
    Describe,
    Done,
    Execute,
    Explain,
    Failed,
    Group,
    Information,
    Opened,
    Publish,
    Status,
    Subscribe,
    Subscribed,
    Sync,
    Synced,
)
from network.wire.errors import HullcastError, InvariantBroken, Overloaded, TooLarge, UsageError, to_wire
from network.wire.frames import Install
from network.wire.values import parameter_columns, to_ingest, upsert

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.engine import Engine
    from broker.log.publishers import Publishers
    from broker.messages import Batch
    from broker.server.attendance import Attendance, Attending
    from broker.server.retention import Retention
    from network.security.rights import Action, Identity, Rights
    from network.wire.bodies import Body
    from network.wire.columns import Columns

log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """What the log must hold before anybody hears of a change."""

    kind: Kind
    payload: bytes
    first: int
    updates: int
    publisher: bytes
    publisher_number: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request leads to. Nothing of it may leave the server before the entry, if there is one, is synced."""

    reply: Body
    entry: Entry | None = None
    installs: tuple[Install, ...] = ()
    through: int = 0
    messages: dict[int, Columns] = field(default_factory=dict)
    ordered: bool = False  # the reply must not overtake messages of earlier requests


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
        most_rows: int,
        most_subscriptions: int,
        most_channels: int,
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
        self._most_rows, self._most_subscriptions, self._most_channels = most_rows, most_subscriptions, most_channels
        self.now = 0.0  # set by the service, now and then: how old kept messages are need not be exact
        self._sweeps = engine.sweeps

    def handle(self, body: Body, payload: bytes, sender: Identity) -> Outcome:
        """Do what a request (with its bytes) asks for."""
        try:
            return self._handle(body, payload, sender)
        except InvariantBroken:
            raise
        except HullcastError as error:
            return self.refusal(error)

    def refusal(self, error: HullcastError) -> Outcome:
        """The answer to a request that cannot be met."""
        if isinstance(error, PermissionError):
            self.refused += 1
            log.warning("request refused", extra={"why": str(error)})
        return Outcome(Failed(*to_wire(error)))

    def check(self, sender: Identity, action: Action, tables: Iterable[str] = ()) -> None:
        """NotPermitted unless the sender may do that."""
        self._rights().check(sender, action, tables)

    def _handle(self, body: Body, payload: bytes, sender: Identity) -> Outcome:
        may = self.check
        match body:
            case Publish():
                may(sender, "publish", (body.table,))
                return self._publish(body, payload)
            case Delete():
                may(sender, "publish", (body.table,))
                return self._publish(body, payload)
            case Execute():
                may(sender, "admin")
                return self._execute(body)
            case Subscribe():
                return self._subscribe(body, sender)
            case Sync():
                return Outcome(Synced(self.engine.seq), ordered=True)
            case Explain():
                may(sender, "subscribe", self.engine.tables_of(body.sql))
                return Outcome(Information(explain(self.engine, self._attendance, self._retention, body)))
            case Status():
                return Outcome(Information(self._status()))
            case Describe():
                return Outcome(Information(self._describe()))
        raise UsageError(f"a {type(body).__name__} is no request of a client")

    # --- writing ---------------------------------------------------------------------------------------

    def _publish(self, body: Publish | Delete, payload: bytes) -> Outcome:
        again = self.publishers.receipt(body.publisher, body.number)
        if again is not None:
            return Outcome(Done(*again))
        rows = max(map(len, body.columns.values()), default=0) if isinstance(body, Publish) else len(body.keys)
        if rows > self._most_rows:
            raise TooLarge("rows in one batch", rows, self._most_rows)
        batch = apply_batch(self.engine, body)
        first, last = batch.first_seq, batch.last_seq
        self.publishers.applied(body.publisher, body.number, first, last)
        entry = Entry(Kind.BATCH, payload, first, len(batch), body.publisher, body.number)
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

    def _execute(self, body: Execute) -> Outcome:
        again = self.publishers.receipt(body.publisher, body.number)
        if again is not None:
            return Outcome(Done(*again))
        statement = parse_statement(body.sql)
        if isinstance(statement, DropTable):  # a channel that lingers for nobody does not keep a table
            for attending in self._attendance.close_now(statement.name, self._wanted()):
                self._retention.close(attending.number)
        self.engine.execute(body.sql)
        first, last = self.engine.seq + 1, self.engine.seq
        self.publishers.applied(body.publisher, body.number, first, last)
        entry = Entry(Kind.STATEMENT, body.sql.encode(), first, 0, body.publisher, body.number)
        return Outcome(Done(first, last), entry)

    # --- subscribing -----------------------------------------------------------------------------------

    def _subscribe(self, body: Subscribe, sender: Identity) -> Outcome:
        """All groups of a request in one reply: the subscriber's answers then are all of one moment."""
        count = sum(group.count for group in body.groups)
        if count > self._most_subscriptions:
            raise TooLarge("subscriptions in one request", count, self._most_subscriptions)
        since = body.since if body.epoch == self.epoch else None
        opened: list[Opened] = []
        installs: list[Install] = []
        specs: dict[int, ChannelSpec] = {}
        resumed: dict[int, list[np.ndarray[tuple[int, int], np.dtype[np.float64]]]] = {}
        for group in body.groups:
            try:
                self.check(sender, "subscribe", self.engine.tables_of(group.sql))
                member, attending = self._open(group, since)
            except InvariantBroken:
                raise
            except HullcastError as error:  # of several groups, one may be wrong (its table is gone) without the others
                if len(body.groups) == 1:
                    raise
                opened.append(Opened(group.group, 0, (), np.empty((0, 1)), None, Failed(*to_wire(error))))
                continue
            spec = attending.spec
            specs[attending.number] = spec
            opened.append(member)
            installs.append(Install(group.group, attending.number, spec.form, spec.partitioned, member.points))
            if member.snapshot is None:
                resumed.setdefault(attending.number, []).append(member.points)
        replay: dict[int, Columns] = {}
        for number, points in resumed.items():
            assert since is not None
            missed = self._retention.replay(number, since, specs[number], np.concatenate(points))
            if missed is not None:
                replay[number] = missed
        reply = Subscribed(self.engine.seq, self.epoch, tuple(opened), specs, replay)
        return Outcome(reply, installs=tuple(installs), ordered=True)

    def _open(self, group: Group, since: int | None) -> tuple[Opened, Attending]:
        """One group's channel, points and first answers (or none, if what it missed can be replayed)."""
        channel, predicates, columns = self.engine.attend(group.sql, parameter_columns(group), group.count)
        if self._attendance.find(channel.name) is None and len(self._attendance) >= self._most_channels:
            self.engine.forsake(channel.name)
            raise Overloaded("open channels", self._most_channels)
        attending, new = self._attendance.attend(channel)
        if new:
            self._retention.open(attending.number, self.engine.seq)
        points = channel.points_elsewhere(predicates)
        # A new channel is never resumed, not even at the same update: its table may have been made anew meanwhile.
        known = since is not None and not new and since <= self.engine.seq
        resumes = known and since is not None and self._retention.reaches(attending.number, since)
        snapshot = None if resumes else channel.first(predicates)
        return Opened(group.group, attending.number, columns, points, snapshot, None), attending

    # --- telling ---------------------------------------------------------------------------------------

    def _describe(self) -> dict[str, object]:
        return {
            "tables": {
                table.name: {
                    "rows": self.engine.rows(table.name),
                    "key": table.key_column.name,
                    "columns": {column.name: column.type.value for column in table.columns},
                }
                for table in self.engine.tables.values()
            }
        }


def apply_batch(engine: Engine, body: Publish | Delete) -> Batch:
    """Apply a published batch; also what recovery does with the log."""
    if isinstance(body, Publish):
        return upsert(engine.upsert, body.table, body.columns, body.absent)
    return engine.delete(body.table, to_ingest(body.keys))
