"""Subscribing from elsewhere: SQL becomes channels and points, with first answers or with what was missed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from broker.server.outcome import Outcome
from network.wire.bodies import ChannelSpec, Failed, Group, Opened, Subscribe, Subscribed
from network.wire.columns import size_bytes
from network.wire.errors import HullcastError, InvariantBroken, Overloaded, TooLarge, to_wire
from network.wire.frames import Install
from network.wire.values import parameter_columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from broker.engine import Engine
    from broker.reformulate.channel import Attended
    from broker.server.attendance import Attendance, Attending
    from broker.server.retention import Retention
    from network.security.rights import Action, Identity
    from network.wire.columns import Columns

    Floats = npt.NDArray[np.float64]

#: A replay beyond this is not worth its bytes, nor sure to fit a frame: a snapshot says as much.
REPLAY_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one request may ask for, and all together."""

    rows: int  # in one batch
    subscriptions: int  # in one request
    groups: int  # in one request
    channels: int  # open at once, whoever asked for them


class Check(Protocol):
    """Raises NotPermitted unless the sender may do that."""

    def __call__(self, sender: Identity, action: Action, tables: Iterable[str] = ()) -> None: ...


@dataclass(slots=True)
class _Asked:
    """A group that was understood."""

    group: Group
    attended: Attended
    attending: Attending
    points: Floats
    resumes: bool

    def opened(self) -> Opened:
        snapshot = None if self.resumes else self.attended.channel.first(self.attended.predicates)
        return Opened(self.group.group, self.attending.number, self.attended.columns, self.points, snapshot)

    def install(self) -> Install:
        spec = self.attending.spec
        return Install(self.group.group, self.attending.number, spec.form, spec.partitioned, self.points)


class Subscribing:
    """Answers requests to subscribe; the service enters the points into its routing table when the answer leaves."""

    def __init__(
        self,
        engine: Engine,
        epoch: bytes,
        attendance: Attendance,
        retention: Retention,
        check: Check,
        limits: Limits,
    ) -> None:
        self._engine = engine
        self._epoch = epoch
        self._attendance = attendance
        self._retention = retention
        self._check = check
        self._limits = limits

    def prepare(self, group: Group, sender: Identity) -> None:
        """Do what takes long and changes no answer: parse, and open the channel. Errors are for `subscribe` to tell."""
        try:
            self._understand(group, sender, None)
        except InvariantBroken:
            raise
        except HullcastError:
            return

    def subscribe(self, body: Subscribe, sender: Identity) -> Outcome:
        """All groups of a request in one reply: the subscriber's answers then are all of one moment."""
        count = sum(group.count for group in body.groups)
        if count > self._limits.subscriptions:
            raise TooLarge("subscriptions in one request", count, self._limits.subscriptions)
        if len(body.groups) > self._limits.groups:
            raise TooLarge("groups in one request", len(body.groups), self._limits.groups)
        since = body.since if body.epoch == self._epoch else None
        asked: list[_Asked] = []
        failed: list[Opened] = []
        for group in body.groups:
            try:
                asked.append(self._understand(group, sender, since))
            except InvariantBroken:
                raise
            except HullcastError as error:  # of several groups, one may be wrong (its table is gone) without the others
                if len(body.groups) == 1:
                    raise
                failed.append(_failed(group, error))
        replay = self._replay(asked, since)
        opened: list[Opened] = []
        installs: list[Install] = []
        specs: dict[int, ChannelSpec] = {}
        for one in asked:
            try:
                opened.append(one.opened())
            except TooLarge as error:  # its first answer alone
                if len(body.groups) == 1:
                    raise
                failed.append(_failed(one.group, error))
                continue
            installs.append(one.install())
            specs[one.attending.number] = one.attending.spec
        reply = Subscribed(self._engine.seq, self._epoch, (*opened, *failed), specs, replay)
        return Outcome(reply, installs=tuple(installs), ordered=True)

    def _understand(self, group: Group, sender: Identity, since: int | None) -> _Asked:
        """A group's channel (opened if need be) and points, and whether what it missed since then is still here."""
        self._check(sender, "subscribe", self._engine.tables_of(group.sql))
        attended = self._engine.attend(group.sql, parameter_columns(group), group.count)
        channel = attended.channel
        if self._attendance.find(channel.name) is None and len(self._attendance) >= self._limits.channels:
            self._engine.forsake(channel.name)
            raise Overloaded("open channels", self._limits.channels)
        attending, new = self._attendance.attend(channel)
        if new:
            self._retention.open(attending.number, self._engine.seq)
        resumes = (
            since is not None
            and since <= self._engine.seq
            and self._retention.reaches(attending.number, since, listened=group.channel == attending.number)
        )
        return _Asked(group, attended, attending, channel.points_elsewhere(attended.predicates), resumes)

    def _replay(self, asked: list[_Asked], since: int | None) -> dict[int, Columns]:
        """Per channel what those who come back have missed. Where that is too much, they get snapshots instead."""
        replay: dict[int, Columns] = {}
        if since is None:
            return replay
        left = REPLAY_BYTES
        for number in {one.attending.number for one in asked if one.resumes}:
            members = [one for one in asked if one.attending.number == number]
            points = np.concatenate([one.points for one in members])
            missed = self._retention.replay(number, since, members[0].attending.spec, points)
            if missed is None:
                continue
            left -= size_bytes(missed)
            if left >= 0:
                replay[number] = missed
            else:
                for one in members:
                    one.resumes = False
        return replay


def _failed(group: Group, error: HullcastError) -> Opened:
    return Opened(group.group, 0, (), np.empty((0, 1)), None, Failed(*to_wire(error)))
