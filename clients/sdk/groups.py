"""Groups of subscriptions: what one call opened, told to the server as one, and its listeners here."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.sdk.collected import CollectionListening
from hullcast.clients.sdk.mailbox import Attention, OverflowPolicy
from hullcast.clients.sdk.single import SingleListening
from hullcast.clients.sdk.tuples import TupleListening
from hullcast.network.answers.answers import SingleAnswers
from hullcast.network.answers.kinds import KINDS
from hullcast.network.answers.tuples import TupleAnswers
from hullcast.network.wire import bodies
from hullcast.network.wire.columns import take
from hullcast.network.wire.errors import BadFrame, BadSetting, HullcastError, UsageError, from_wire
from hullcast.network.wire.value_columns import is_values, taken
from hullcast.network.wire.values import to_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hullcast.clients.sdk.listening import Listening
    from hullcast.clients.sdk.resuming import Standing
    from hullcast.clients.sdk.token import Token
    from hullcast.network.answers.answers import Overflow
    from hullcast.network.wire.arrays import Floats, Ints
    from hullcast.network.wire.bodies import Opened, Subscribed, Trigger


TUPLES = "TUPLES"  # the kind of subscriptions to tuples of a stream
_NO_POINTS: Floats = np.empty((0, 0))

#: Subscriptions of one client.
MOST_SUBSCRIPTIONS = 1_000_000
#: The most that one request asks for, in subscriptions and in groups of them; more go in portions, one after the other.
#: The server and each node on the way pause while they enter the points of a reply. Measured with one node and ranges
#: of MIN: about 50 ms for 25,000, 150 ms for 50,000, half a second and more for a million.
PORTION_SUBSCRIPTIONS, PORTION_GROUPS = 25_000, 500


class SubscriptionGroup:
    """`count` subscriptions to one text. Members are numbered as they were last told to the server.

    `listeners[i]` is the number of member i among the channel's listeners, or -1 after it left.
    """

    def __init__(
        self,
        sql: str,
        parameters: tuple[Any, ...],
        count: int,
        overflow: Overflow | None,
        buffer: int,
        token: Token | None = None,
        trigger: Trigger | None = None,
        after: int | None = None,
        many: bool = False,
    ) -> None:
        self.number = 0
        self.channel = 0  # as the server last numbered it: only the same channel can be resumed
        self.sql = sql
        self.parameters = parameters
        self.count = count
        self.trigger = trigger  # of a conditional subscription
        self.after = after  # of tuples of a stream: it begins behind this position
        self.columns: tuple[str, ...] = ()
        self.listeners: Ints = np.empty(0, np.int64)
        self.boxes: Ints | None = None  # how many points each member has; None: one
        self.token = token
        if token is not None:
            self.channel = token.channel
            self.after = token.stored.seq if token.kind == TUPLES else None
        self.resumable = False  # somebody has a token of it
        self.away: Standing | None = None  # after a break, until it is subscribed again: where it stood
        self._overflow, self._buffer, self._many = overflow, buffer, many
        self._listening: Listening | None = None
        OverflowPolicy(overflow or "conflate", buffer)  # refuses what is out of range before anything is sent

    @property
    def listening(self) -> Listening:
        """Its channel's listeners; there once it is open."""
        assert self._listening is not None, "the group is not open"
        return self._listening

    @property
    def is_open(self) -> bool:
        """Whether the server has taken it."""
        return self._listening is not None

    def join(self, listening: Listening, columns: tuple[str, ...]) -> OverflowPolicy:
        """It is taken; its policy is known now, since the default goes by kind of answer."""
        self._listening, self.columns = listening, columns
        usual = listening.answers.overflow_of_many if self._many else listening.answers.overflow
        return OverflowPolicy(self._overflow or usual, self._buffer)

    @property
    def asked(self) -> int | None:
        """Of tuples of a stream: those behind this position are asked for."""
        if self._listening is None or self._listening.has_answers:
            return self.after
        return self.after if self.away is None else self.away.seq

    def on_wire(self) -> bodies.Group:
        """As the server gets it; members that left are left out and the others get new numbers."""
        gone = self.listeners < 0
        if gone.any():
            stay = np.flatnonzero(~gone)
            self.boxes = None if self.boxes is None else self.boxes[stay]
            self.parameters = tuple(taken(values, stay) for values in self.parameters)
            self.listeners, self.count = self.listeners[stay], len(stay)
        number, channel = self.number, self.channel
        return bodies.Group(number, self.sql, self.parameters, self.count, channel, self.trigger, self.asked)

    def in_portions(self) -> list[SubscriptionGroup]:
        """The same members, none of them open yet, in groups of which each fits into one request."""
        if self.count <= PORTION_SUBSCRIPTIONS:
            return [self]
        pieces = [slice(at, at + PORTION_SUBSCRIPTIONS) for at in range(0, self.count, PORTION_SUBSCRIPTIONS)]
        return [self._some(piece, min(piece.stop, self.count) - piece.start) for piece in pieces]

    def _some(self, members: Ints | slice, count: int) -> SubscriptionGroup:
        """A group (new) of some members."""
        columns = any(map(is_values, self.parameters))
        parameters = tuple(taken(values, members) for values in self.parameters) if columns else self.parameters
        return SubscriptionGroup(
            self.sql, parameters, count, self._overflow, self._buffer, after=self.after, many=self._many
        )

    def points(self, members: Ints) -> Ints:
        """Which points of the group are of some of its members."""
        return points_of(self.boxes, members)

    @property
    def members(self) -> Ints | None:
        """Of which member each point is; None: each of its own."""
        return None if self.boxes is None else np.repeat(np.arange(len(self.boxes)), self.boxes)

    def one(self, listener: int) -> Ints:
        """One listener, as a column."""
        return np.array([listener], np.int64)

    def parameters_of(self, listener: int) -> tuple[Any, ...]:
        """What one member's `?` are bound to."""
        if not any(map(is_values, self.parameters)):
            return self.parameters
        member = np.flatnonzero(self.listeners == listener)
        return tuple(to_list(taken(values, member))[0] for values in self.parameters)

    def of(self, listeners: Ints) -> tuple[Ints, SubscriptionGroup]:
        """Some of its listeners, in the order of its members, and a group (new) of just those."""
        members = np.flatnonzero(np.isin(self.listeners, listeners))
        return self.listeners[members], self._some(members, len(members))


class Groups:
    """The open groups of a client, and the channels they listen to.

    Neither a message nor a group that opens or leaves costs more where many groups are open: whatever needs attention
    says so (`attention`), and nothing but a break walks through all groups.
    """

    def __init__(self) -> None:
        self.channels: dict[int, Listening] = {}  # by the server's number
        self.attention = Attention()
        self.subscriptions = 0  # listeners of all groups
        self._open: dict[int, SubscriptionGroup] = {}
        self._joined: Counter[Listening] = Counter()  # open groups, those without members included
        self._next = 1

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[SubscriptionGroup]:
        return iter(list(self._open.values()))

    def __contains__(self, number: int) -> bool:
        return number in self._open

    def get(self, number: int) -> SubscriptionGroup | None:
        """The open group of that number."""
        return self._open.get(number)

    def check_room(self, count: int) -> None:
        """UsageError if so many more subscriptions would be too much."""
        if self.subscriptions + count > MOST_SUBSCRIPTIONS:
            raise UsageError(f"more than {MOST_SUBSCRIPTIONS} subscriptions in one client; use several clients")

    def number(self, group: SubscriptionGroup) -> None:
        """Give a group its number, never given before."""
        group.number, self._next = self._next, self._next + 1

    def part(self, standing: Standing) -> None:
        """The server knows nothing of the groups any more; those that were not away before it stand here."""
        for group in self._open.values():
            group.away = group.away or standing

    def open(self, group: SubscriptionGroup, opened: Opened, reply: Subscribed) -> None:
        """A new group is taken: with a snapshot, or, from a token, with what came since."""
        _check(opened, reply, group)
        listening = self._listening(opened, reply)
        policy = group.join(listening, opened.columns)
        token, group.token = group.token, None
        if token is None:
            if opened.snapshot is None:
                raise BadFrame("no snapshot of a new subscription")
            first, seq = opened.snapshot, reply.seq
        else:
            if token.kind != listening.spec.kind:
                reason = f"the token is of a {token.kind} subscription, this is a {listening.spec.kind}"
                raise BadSetting("resume", "..", reason)
            first, seq = listening.first_of(token.stored), token.stored.seq
        group.listeners = listening.admit(
            group.number, opened.points, group.members, first, policy, opened.columns, seq
        )
        self._open[group.number] = group
        self._joined[listening] += 1
        self.subscriptions += len(group.listeners)
        if token is None:
            listening.begin(group.listeners, opened, group.after)
            catch_up(listening, group.listeners, opened, reply)
            listening.skip(group.listeners)
            return
        listening.restore(int(group.listeners[0]), token.stored)
        if opened.snapshot is not None:
            nothing_happened = (token.stored.seq, token.epoch) == (reply.seq, reply.epoch)
            seq = moment_of(opened, reply)
            listening.come_back(group.listeners, opened, seq, token.stored.seq, only_if_other=nothing_happened)
            catch_up(listening, group.listeners, opened, reply)
        elif opened.channel in reply.replay:
            listening.hear_alone(group.listeners, opened.points, reply.replay[opened.channel])

    def resume(self, reply: Subscribed, *, first: bool) -> list[tuple[SubscriptionGroup, HullcastError]]:
        """Some groups are taken again; returns those that are not, and stay away.

        After the `first` reply what is delivered counts, but not for those still away: no message must reach them.
        """
        refused: list[tuple[SubscriptionGroup, HullcastError]] = []
        back: list[tuple[SubscriptionGroup, Opened]] = []
        for opened in reply.groups:
            group = self._open.get(opened.group)
            if group is None:  # left meanwhile
                continue
            if opened.failed is not None:
                refused.append((group, from_wire(opened.failed.code, opened.failed.arguments)))
                continue
            _check(opened, reply, group)
            if group.away is None:
                raise BadFrame("a group is subscribed again that was not away")
            if group.listening.spec != reply.channels[opened.channel]:
                refused.append(
                    (group, UsageError(f"the tables of `{group.sql}` were dropped and created again; subscribe again"))
                )
                continue
            back.append((group, opened))
        if first:
            for listening in self.channels.values():
                listening.channels.clear()
            self.channels = {}
            here = {group.number for group, _ in back}
            for listening, (ids, _) in _present([(group, None) for group in self if group.number not in here]).items():
                listening.part(ids)
        for group, opened in back:
            self._register(opened.channel, group.listening)
        for listening, (ids, points) in _present([(group, opened.points) for group, opened in back]).items():
            listening.move(ids, points)
        _replay(reply, back, self.channels)
        for group, opened in back:
            away, group.away = group.away, None
            if opened.snapshot is not None and away is not None:
                nothing_happened = (away.seq, away.epoch) == (reply.seq, reply.epoch)
                seq = moment_of(opened, reply)
                group.listening.come_back(group.listeners, opened, seq, away.seq, only_if_other=nothing_happened)
                catch_up(group.listening, group.listeners, opened, reply)
        return refused

    def leave(self, group: SubscriptionGroup, listeners: Ints | None) -> Ints | None:
        """Forget a group (None), or some of its listeners; returns which of its points left, None for all."""
        if self._open.get(group.number) is not group:
            return np.empty(0, np.int64)
        if listeners is not None:
            leaving = np.isin(group.listeners, listeners) & (group.listeners >= 0)
            if leaving.sum() < (group.listeners >= 0).sum():
                group.listening.dismiss(group.listeners[leaving])
                group.listeners[leaving] = -1
                self.subscriptions -= int(leaving.sum())
                return group.points(np.flatnonzero(leaving))
        self._drop(group)
        return None

    def gone(self, numbers: list[int]) -> list[tuple[int, Ints, bool]]:
        """Of groups taken again, the points that left in the meantime, and whether they may be resumed."""
        groups = [self._open[number] for number in numbers if number in self._open]
        return [
            (group.number, group.points(np.flatnonzero(group.listeners < 0)), group.resumable)
            for group in groups
            if group.away is None and (group.listeners < 0).any()
        ]

    def _drop(self, group: SubscriptionGroup) -> None:
        del self._open[group.number]
        listening, present = group.listening, group.listeners[group.listeners >= 0]
        listening.dismiss(present)
        self.subscriptions -= len(present)
        self._joined[listening] -= 1
        if not self._joined[listening]:
            del self._joined[listening]
            for channel in listening.channels:
                del self.channels[channel]
            listening.channels.clear()

    def _register(self, channel: int, listening: Listening) -> None:
        """The server's number for a channel."""
        before = self.channels.get(channel)
        if before is not None:
            before.channels.discard(channel)
        self.channels[channel] = listening
        listening.channels.add(channel)

    def _listening(self, opened: Opened, reply: Subscribed) -> Listening:
        spec = reply.channels[opened.channel]
        listening = self.channels.get(opened.channel)
        if listening is None or listening.spec != spec:
            answers = KINDS[spec.kind].answers
            family: type[Listening] = SingleListening if issubclass(answers, SingleAnswers) else CollectionListening
            family = TupleListening if issubclass(answers, TupleAnswers) else family
            listening = family(spec, opened.points.shape[1], self.attention)
            self._register(opened.channel, listening)
        return listening


def points_of(boxes: Ints | None, members: Ints) -> Ints:
    """Where the points of some members stand, of which each has so many (None: one)."""
    if boxes is None:
        return members
    counts = boxes[members]
    return np.arange(counts.sum()) + np.repeat(np.cumsum(boxes)[members] - np.cumsum(counts), counts)


def catch_up(listening: Listening, ids: Ints, opened: Opened, reply: Subscribed) -> None:
    """Snapshots may be older than the reply that brought them: listeners (-1: gone) hear what came since."""
    missed = reply.replay.get(opened.channel)
    start = 0
    for members, seq in opened.as_of if missed is not None else ():
        present = start + np.flatnonzero(ids[start : start + members] >= 0)
        start += members
        later = np.asarray(missed["seq"]) > seq if missed is not None else np.empty(0, np.bool_)
        if missed is not None and len(present) and later.any():
            points = opened.points[points_of(opened.boxes, present)]
            listening.hear_alone(ids[present], points, take(missed, later))


def moment_of(opened: Opened, reply: Subscribed) -> int:
    """The moment that a snapshot is of, or the earliest of them."""
    return min((seq for _, seq in opened.as_of), default=reply.seq)


def _replay(reply: Subscribed, back: list[tuple[SubscriptionGroup, Opened]], channels: dict[int, Listening]) -> None:
    """What was missed, heard only by groups that come without a snapshot."""
    without: dict[int, list[tuple[SubscriptionGroup, Floats | None]]] = {}
    for group, opened in back:
        if opened.snapshot is None:
            without.setdefault(opened.channel, []).append((group, opened.points))
    for channel, missed in reply.replay.items():
        for listening, (ids, points) in _present(without.get(channel, [])).items():
            assert listening is channels[channel], "a channel has one listening"
            listening.hear_alone(ids, points, missed)


def _present(groups: list[tuple[SubscriptionGroup, Floats | None]]) -> dict[Listening, tuple[Ints, Floats]]:
    """The listeners of groups that did not leave, and their points (if any are given), by where they listen."""
    parts: dict[Listening, tuple[list[Ints], list[Floats]]] = {}
    for group, points in groups:
        ids, where = parts.setdefault(group.listening, ([], []))
        present = np.flatnonzero(group.listeners >= 0)
        ids.append(group.listeners[present])
        where.append(_NO_POINTS if points is None else points[group.points(present)])
    return {listening: (np.concatenate(ids), np.concatenate(where)) for listening, (ids, where) in parts.items()}


def _check(opened: Opened, reply: Subscribed, group: SubscriptionGroup) -> None:
    runs, boxes = sum(members for members, _ in opened.as_of), opened.boxes
    if (
        opened.channel not in reply.channels
        or (boxes is not None and (len(boxes) != group.count or (boxes < 1).any()))
        or len(opened.points) != (group.count if boxes is None else boxes.sum())
        or (opened.as_of and runs != group.count)
    ):
        raise BadFrame("a Subscribed that does not answer what was asked")
    group.channel, group.boxes = opened.channel, boxes
