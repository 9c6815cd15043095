"""Subscribing over the network: SQL becomes channels and points, with first answers or what was missed.

Everything here is work in slices (`broker/scheduling/driver.py`): a small request is done in one, a large one lets
others run in between. So first answers may be older than the reply that carries them, and not all of one moment; each
says how old it is, and the reply's replay has what came since. What the subscriber makes of both is of the reply's
moment.

    understand each group (parse, open its channel)  ->  take first answers  ->  [stage what is too large for a frame]
                                                     ->  points, replay, reply: in one slice
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hullcast.broker.engine.engine import NO_POSITION
from hullcast.broker.reformulate.tuples import TuplesChannel
from hullcast.broker.server.attendance import ASKED
from hullcast.broker.server.outcome import Outcome
from hullcast.network.wire import bodies, errors
from hullcast.network.wire.columns import concatenate, length, size_bytes, take
from hullcast.network.wire.frames import Install
from hullcast.network.wire.values import parameter_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.reformulate.channel import Attended
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.server.access import Access, Asked, Needs
    from hullcast.broker.server.attendance import Attendance, Attending
    from hullcast.broker.server.conditionals import Conditionals
    from hullcast.broker.server.settings import ServerSettings
    from hullcast.network.wire.arrays import Floats
    from hullcast.network.wire.columns import Columns


#: A replay beyond this is not worth its bytes, nor sure to fit a frame: a snapshot says as much.
REPLAY_BYTES = 16 << 20
#: First answers of one request up to this go in its reply; more are staged in parts of about this size.
PART_BYTES = 8 << 20
#: First answers being computed or staged, of all owners and of one.
HELD_BYTES, HELD_BYTES_PER_OWNER = 512 << 20, 256 << 20
#: Seconds after which staged answers are forgotten, if no further part is fetched.
STAGED_S = 60.0
#: Rows looked at for first answers without leaving the event loop: a few milliseconds, if all of them are found.
AT_ONCE_LOOKS = 20_000
#: What reading a text costs, about.
PARSE_S = 0.002
#: Work in one slice, about.
SLICE_S = 0.004
#: Ranges that a channel is told of in one slice.
WANTED_AT_ONCE = 1000
#: Of no tuple ever.
NO_SUCH_POSITION = (1 << 63) - 1
#: How often first answers are looked at, and taken again because too much happened meanwhile.
TRIES = 4


#: By the number of a group that is a conditional subscription: what it needs, or why it cannot be subscribed to.
Prepared: TypeAlias = "Mapping[int, Needs | errors.HullcastError]"
NOTHING_PREPARED: Prepared = MappingProxyType({})


@dataclass(slots=True, eq=False)
class _Asked:
    """A group that was understood, its channel held open until it is released."""

    group: bodies.Group
    attended: Attended
    attending: Attending
    needs: Needs
    since: int | None  # it resumes from there; None: it begins with a snapshot
    holding: ExitStack
    points: Floats | None = None  # where the channel counts its ranges: those that this request wants
    snapshot: Columns | None = None
    begins: int = 0  # of tuples of a stream: the snapshot has those behind this position
    held_bytes: int = 0  # of the snapshot
    runs: list[tuple[int, int]] = field(default_factory=list)  # members, and the moment their snapshot is of

    @property
    def oldest(self) -> int:
        """The moment after which it has not heard everything."""
        return self.since if self.since is not None else min((seq for _, seq in self.runs), default=0)

    def again(self) -> None:
        """Drop what it has: it begins with a new snapshot."""
        self.since, self.snapshot = None, None
        self.runs.clear()

    def forgo(self) -> None:
        """Nobody takes over the ranges that this request wants."""
        if self.points is not None:
            self.attended.channel.forgo(self.points)
            self.points = None


@dataclass(slots=True, eq=False)
class _Request:
    access: Access
    asked: list[_Asked] = field(default_factory=list)
    failed: list[bodies.Opened] = field(default_factory=list)
    held_bytes: int = 0  # first answers, staged or not
    parts: list[bytes] = field(default_factory=list)  # staged answers
    fetched: int = 0  # of the parts
    until: float = 0.0


@dataclass(eq=False)
class Subscribing:
    """Answers requests to subscribe; the service enters the points into its routing table when the answer leaves."""

    _engine: ServedEngine
    _epoch: bytes
    _attendance: Attendance
    _conditionals: Conditionals
    _settings: ServerSettings
    _make_for: Callable[[str, str], None]  # makes what the text of an owner's subscription needs, before that is done

    def __post_init__(self) -> None:
        self._retention = self._attendance.retention
        #: Bytes of one reply: so few that a child which takes its time is not closed for it, again and again.
        self._reply_bytes = self._settings.link.queue_bytes // 4
        self._staged: dict[bytes, _Request] = {}  # by ticket
        self._held: Counter[str] = Counter()  # bytes of first answers, by owner

    @property
    def staged_bytes(self) -> int:
        return sum(request.held_bytes for request in self._staged.values())

    def subscribe(
        self, body: bodies.Subscribe, access: Access, now: Callable[[], float], prepared: Prepared = NOTHING_PREPARED
    ) -> Work:
        """All groups of a request in one reply. The result is an Outcome. Conditionals that it subscribes to were made
        before, by `Evaluating`: `prepared` says what each needs, or why there is none."""
        if body.ticket is not None:
            request = self._kept(body.ticket, access.owner)
            del self._staged[body.ticket]
            try:
                return (yield from self._finish(request, now))
            finally:
                self._release(request)
        self.check_size(body)
        since = body.since if body.epoch == self._epoch else None
        if body.epoch not in (None, self._epoch) and self._settings.data is None:
            # positions of another run mean nothing here: this one did not go on from its log
            groups = (one if one.after is None else replace(one, after=NO_SUCH_POSITION) for one in body.groups)
            body = replace(body, groups=tuple(groups))
        request = _Request(access)
        try:
            spent = 0.0
            for group in body.groups:
                try:
                    one = yield from self._understand(group, request, since, prepared.get(group.group, ()))
                    request.asked.append(one)
                    if one.since is None:
                        yield from self._answer(request, one)
                except errors.HullcastError as error:  # of several groups, one may be wrong (its table is gone) alone
                    comes_again = isinstance(error, errors.Unavailable) and group.trigger is not None
                    if len(body.groups) == 1 or comes_again or isinstance(error, errors.InvariantBroken):
                        raise
                    request.failed.append(_failed(group, error))
                    self._drop(request, group)
                self._check_room(request)
                spent += PARSE_S
                if spent >= SLICE_S:
                    yield spent
                    spent = 0.0
            return (yield from self._finish(request, now))
        finally:
            if request not in self._staged.values():
                self._release(request)

    def check_size(self, body: bodies.Subscribe) -> None:
        count, groups, limits = sum(group.count for group in body.groups), len(body.groups), self._settings
        if count > limits.subscribe_rows:
            raise errors.TooLarge("subscriptions in one request (send several requests)", count, limits.subscribe_rows)
        if groups > limits.subscribe_groups:
            raise errors.TooLarge(
                "different queries in one request (send several requests)", groups, limits.subscribe_groups
            )

    def _drop(self, request: _Request, group: bodies.Group) -> None:
        for one in [one for one in request.asked if one.group is group]:
            one.holding.close()
            self._count(request, one, 0)
            request.asked.remove(one)

    def _release(self, request: _Request) -> None:
        for one in request.asked:
            one.holding.close()
        self._hold(request, 0)

    # --- room ----------------------------------------------------------------------------------------------

    def _count(self, request: _Request, one: _Asked, size: int) -> None:
        more, one.held_bytes = size - one.held_bytes, size
        self._hold(request, request.held_bytes + more)

    def _hold(self, request: _Request, size: int) -> None:
        self._held[request.access.owner] += size - request.held_bytes
        request.held_bytes = size
        if not self._held[request.access.owner]:
            del self._held[request.access.owner]

    def _check_room(self, request: _Request) -> None:
        """TooLarge if a request's first answers are too much in any case, Overloaded if they are for now."""
        if request.held_bytes > HELD_BYTES_PER_OWNER:
            what = "bytes of first answers in one request (subscribe to fewer or narrower ranges at a time)"
            raise errors.TooLarge(what, request.held_bytes, HELD_BYTES_PER_OWNER)
        if self._held[request.access.owner] > HELD_BYTES_PER_OWNER:
            raise errors.Overloaded("bytes of first answers that one client has not fetched", HELD_BYTES_PER_OWNER)
        if self._held.total() > HELD_BYTES:
            raise errors.Overloaded("bytes of first answers that clients have not fetched", HELD_BYTES)

    # --- the groups --------------------------------------------------------------------------------------

    def _understand(
        self, group: bodies.Group, request: _Request, since: int | None, prepared: Needs | errors.HullcastError
    ) -> Work:
        """A group's channel (opened if need be), and whether what it missed since then is still here."""
        attended: Attended
        if group.trigger is None:
            tables = self._engine.catalogue.tables_named(group.sql)
            request.access.allow((("subscribe", tables),))
            refuse_views(self._engine, group.sql, request.access)
            self._attendance.shares.check(request.access.owner, self._engine.catalogue.channel_needed(group.sql))
            self._make_for(group.sql, request.access.owner)
            yield from self._engine.changes.freed(tables)
            attended = yield from self._engine.attending(group.sql, parameter_columns(group), group.count)
            needs: Needs = (("subscribe", attended.reads),)
            costs: str | None = attended.channel.name
        elif isinstance(prepared, errors.HullcastError):
            raise prepared
        else:
            made = self._conditionals.find(group)
            if made is None or not made.ready:
                raise errors.ConnectionLost("the conditional subscription has ended meanwhile")
            attended, needs, costs = made.attended, prepared, made.condition
        channel = attended.channel
        refusal: errors.HullcastError | None = None
        new, most = self._attendance.find(channel.name) is None, self._settings.max_channels
        boxes = len(attended.predicates.low)
        if boxes > self._settings.subscribe_rows:
            what = "ranges and values in one request (send several requests)"
            refusal = errors.TooLarge(what, boxes, self._settings.subscribe_rows)
        elif group.after is not None and not isinstance(channel, TuplesChannel):
            refusal = errors.BadSetting("after", group.after, NO_POSITION)
        elif new and len(self._attendance) >= most:
            refusal = errors.Overloaded("open channels (max_channels): different queries of all clients", most)
        if refusal is not None:
            if new:
                self._engine.forsake(channel.name)
            raise refusal
        attending = self._attendance.attend(channel, costs)
        holding = ExitStack()
        attending.pins += 1
        holding.callback(self._unpin, attending)
        self._attendance.shares.hold(request.access.owner, ASKED, attending.number)
        holding.callback(self._attendance.shares.release, request.access.owner, ASKED, attending.number)
        one = _Asked(group, attended, attending, needs, None, holding)
        if channel.counted:
            try:
                yield from self._engine.changes.freed(attended.reads)
                with self._engine.changes.using(attended.reads):
                    yield from self._want(one)
            except BaseException:
                holding.close()
                raise
        if (
            since is not None
            and since <= self._engine.seq
            and self._retention.reaches(attending.number, since, listened=group.channel == attending.number)
            and (one.points is None or channel.wanted_since(one.points) <= since)
        ):
            one.since = since
        return one

    def _want(self, one: _Asked) -> Work:
        """Let a channel know the ranges, before first answers are taken: messages since then describe them."""
        channel, predicates = one.attended.channel, one.attended.predicates
        points = np.empty((len(predicates.low), channel.audience.index.dimensions))
        one.holding.callback(one.forgo)
        for start in range(0, len(points), WANTED_AT_ONCE):
            if start:
                yield SLICE_S
            some = slice(start, start + WANTED_AT_ONCE)
            points[some] = channel.points_elsewhere(predicates.boxes(some))  # a sweep keeps just what is wanted by then
            channel.want(points[some])
            one.points = points[: some.stop]
        one.points = points

    def _unpin(self, attending: Attending) -> None:
        """A request is done with a channel. One that was opened in vain is closed again."""
        attending.pins -= 1
        if not attending.taken and not attending.pins:
            self._attendance.close(attending)

    def _answer(self, request: _Request, one: _Asked) -> Work:
        """Take a group's first answers, each run of members at one moment."""
        channel, n = one.attended.channel, one.group.count
        one.again()
        self._count(request, one, 0)
        parts: list[Columns] = []
        step = min(channel.capture_at_once, max(n, 1))
        for start in range(0, max(n, 1), step):
            capture = partial(self._capture, one, slice(start, start + step))
            at_once = self._capture_cost(one, step) <= AT_ONCE_LOOKS or step < n
            yield from self._engine.changes.freed(one.attended.reads)
            with self._engine.changes.using(one.attended.reads):
                parts.append(capture()() if at_once else (yield capture))
            if start + step < n:
                yield SLICE_S
        one.snapshot = parts[0] if len(parts) == 1 else concatenate(parts)
        self._count(request, one, size_bytes(one.snapshot))
        if self._engine.changes.broken:
            raise errors.InvariantBroken("the engine stopped")

    def _capture_cost(self, one: _Asked, members: int) -> int:
        channel, after = one.attended.channel, one.group.after
        if isinstance(channel, TuplesChannel) and after is not None:
            return channel.cost_after(members, channel.begins(after, self._engine.seq))
        boxes = -(-len(one.attended.predicates.low) // max(one.group.count, 1))  # of each, on average
        return channel.capture_cost(members * boxes)

    def _capture(self, one: _Asked, members: slice) -> Callable[[], Columns]:
        """Take what the first answers of some members are computed from, and note of which moment it is."""
        channel, predicates = one.attended.channel, one.attended.predicates.some(members)
        if isinstance(channel, TuplesChannel):
            one.begins = channel.begins(one.group.after, self._engine.seq)
            compute = channel.capture_after(predicates, one.begins)
        else:
            compute = channel.capture(predicates)
        one.runs.append((min(members.stop, one.group.count) - members.start, self._engine.seq))
        return compute

    # --- what is too large for a frame -----------------------------------------------------------------------

    def _stage(self, request: _Request, part_bytes: int, now: Callable[[], float]) -> Work:
        """Keep first answers in parts, to be fetched one by one."""
        snapshots = [(one.group.group, one.snapshot) for one in request.asked if one.snapshot is not None]
        request.parts = yield lambda: partial(_parts, snapshots, part_bytes)
        for one in request.asked:
            if one.snapshot is not None:
                one.snapshot, one.held_bytes = {}, 0  # fetched, not sent again
        self._hold(request, sum(map(len, request.parts)))
        self._check_room(request)
        ticket = os.urandom(16)
        request.until = now() + STAGED_S
        self._staged[ticket] = request
        return Outcome(bodies.Staged(ticket, len(request.parts)))

    def fetch(self, asked: Asked[bodies.Fetch], now: float) -> Outcome:
        """A part of first answers that were too large for one reply, if the sender may still have them."""
        body, request = asked.body, self._kept(asked.body.ticket, asked.access.owner)
        if body.part >= len(request.parts):
            raise errors.UsageError(
                f"there is no part {body.part} of these answers, only 0 to {len(request.parts) - 1}"
            )
        for one in request.asked:
            request.access.allow(one.needs)
        if body.part >= request.fetched:  # fetching the same part again does not keep them for ever
            request.fetched, request.until = body.part + 1, now + STAGED_S
        return Outcome(request.parts[body.part])

    def _kept(self, ticket: bytes, owner: str) -> _Request:
        request = self._staged.get(ticket)
        if request is None or request.access.owner != owner:
            raise errors.UsageError("these staged answers are no longer kept; subscribe again")
        return request

    def expire(self, now: float) -> None:
        for ticket in [ticket for ticket, request in self._staged.items() if request.until < now]:
            self._release(self._staged.pop(ticket))

    # --- the reply -------------------------------------------------------------------------------------------

    def _finish(self, request: _Request, now: Callable[[], float]) -> Work:
        """Points, replay and reply, all at one moment."""
        staged, part_bytes = bool(request.parts), min(PART_BYTES, self._reply_bytes)
        for tries in range(TRIES):
            replay = self._replay(request.asked)
            stale = [one for one in request.asked if one.since is None and one.snapshot is None]
            if not stale and not staged and request.held_bytes > part_bytes:
                return (yield from self._stage(request, part_bytes, now))
            if not stale:
                break
            if staged or tries == TRIES - 1:
                what = "bytes of messages kept for subscribers (retention_bytes)"
                raise errors.Overloaded(what, self._retention.limit_bytes)
            for one in stale:
                yield from self._answer(request, one)
                self._check_room(request)
        opened: list[bodies.Opened] = []
        admitted: list[_Asked] = []
        installs: list[Install] = []
        specs: dict[int, bodies.ChannelSpec] = {}
        for one in request.asked:
            try:
                request.access.allow(one.needs)  # it may have taken a while
            except errors.HullcastError as error:
                if len(request.asked) == 1:
                    raise
                request.failed.append(_failed(one.group, error))
                continue
            points = self._points(one)
            one.attending.taken = True
            late = [] if one.since is not None or (one.oldest == self._engine.seq and not staged) else one.runs
            snapshot = None if staged else one.snapshot
            names, spec = one.attended.columns, one.attending.spec
            after = one.begins if one.since is None else one.since
            of, number = one.attended.predicates.of, one.attending.number
            boxes = None if of is None else np.bincount(of)
            opened.append(bodies.Opened(one.group.group, number, names, snapshot, None, tuple(late), after, boxes))
            counted = one.points is not None
            installs.append(
                Install(one.group.group, one.attending.number, spec.form, spec.partitioned, points, counted)
            )
            specs[one.attending.number] = spec
            admitted.append(one)
        reply = bodies.Subscribed(self._engine.seq, self._epoch, (*opened, *request.failed), specs, replay)
        outcome = Outcome(reply, installs=tuple(installs), ordered=True)
        for one in admitted:
            one.points = None  # the outcome's from now on
        return outcome

    def _points(self, one: _Asked) -> Floats:
        """Computed again where nobody holds them: partitions may have been given other numbers since."""
        return one.attended.channel.points_elsewhere(one.attended.predicates) if one.points is None else one.points

    def _replay(self, asked: list[_Asked]) -> dict[int, Columns]:
        """Per channel what the groups have missed. Where that is not kept, or is too much, a group begins again."""
        replay: dict[int, Columns] = {}
        left = min(REPLAY_BYTES, self._reply_bytes)
        late = [one for one in asked if one.oldest < self._engine.seq]
        for number in {one.attending.number for one in late}:
            members = [one for one in late if one.attending.number == number]
            for one in members:
                if not self._retention.reaches(number, one.oldest, listened=True):
                    one.again()
            members = [one for one in members if one.since is not None or one.snapshot is not None]
            if not members:
                continue
            oldest = min(one.oldest for one in members)
            points = np.concatenate([self._points(one) for one in members])
            missed = self._retention.replay(number, oldest, members[0].attending.spec, points)
            if missed is None:
                continue
            size = size_bytes(missed)
            if size <= left:
                replay[number] = missed
                left -= size
            else:
                for one in members:
                    one.again()
        return replay


def refuse_views(engine: ServedEngine, sql: str, access: Access, *, condition: bool = False) -> None:
    """SqlError if a subscription or a condition names a view. It names no view that the sender may not query, and no
    table that the sender may not read."""
    views = engine.catalogue.views_named(sql)
    if not views:
        return
    access.check("query", [view.name for view in views])
    names = list(dict.fromkeys(table.name for view in views for table in view.tables))
    try:
        access.check("subscribe", names)
    except errors.NotPermitted:
        names = []
    raise engine.catalogue.not_pushed(views[0], sql, names, condition=condition)


def _failed(group: bodies.Group, error: errors.HullcastError) -> bodies.Opened:
    return bodies.Opened(group.group, 0, (), None, bodies.Failed(*errors.to_wire(error)))


def _parts(snapshots: list[tuple[int, Columns]], part_bytes: int) -> list[bytes]:
    """Snapshots cut into encoded parts of so many bytes at most, but for rows that are larger by themselves."""
    parts: list[bytes] = []
    gathered: list[tuple[int, Columns]] = []
    size = total = 0

    def encode() -> None:
        nonlocal size, total
        parts.append(bodies.encode(bodies.AnswerPart(tuple(gathered))))
        gathered.clear()
        size, total = 0, total + len(parts[-1])
        if total > HELD_BYTES_PER_OWNER:
            what = "bytes of first answers waiting to be fetched (subscribe to less at a time)"
            raise errors.TooLarge(what, total, HELD_BYTES_PER_OWNER)

    for group, columns in snapshots:
        for some in _pieces(columns, part_bytes):
            if gathered and size + size_bytes(some) > part_bytes:
                encode()
            gathered.append((group, some))
            size += size_bytes(some)
    if gathered:
        encode()
    return parts


def _pieces(columns: Columns, part_bytes: int) -> Iterator[Columns]:
    """Consecutive rows, of so many bytes at most. How many rows that is differs where texts do: each text goes once in
    a piece, however many rows of it have it, and again in the next one."""
    rows, whole = length(columns), size_bytes(columns)
    if whole <= part_bytes or rows <= 1:
        yield columns
        return
    step = max(1, min(rows // 2, rows * part_bytes // whole))
    for start in range(0, rows, step):
        yield from _pieces(take(columns, np.arange(start, min(rows, start + step))), part_bytes)
