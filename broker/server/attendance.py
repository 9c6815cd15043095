"""Channels with remote subscribers: their wire numbers, how long they and lost ranges live on, whom they count for.

A channel counts for every owner with a subscription in it, and for `linger_s` after the last of these has gone: so long
it stays open, and costs time at every update. A conditional subscription counts with the channel that its condition
reads. Subscriptions are counted in groups, where they were installed (`Place`): a gateway tells how many groups of its
clients have gone (`Left`), and with a lost node goes all that was below it.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hullcast.broker.tables.schema import fold
from hullcast.network.wire.errors import TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.reformulate.channel import Channel
    from hullcast.broker.server.retention import Retention
    from hullcast.network.wire.arrays import Booleans, Floats
    from hullcast.network.wire.bodies import ChannelSpec

    Asked = Callable[[int, Floats], Booleans]

#: The route to a node whose clients have subscriptions, () for clients of our own.
Place: TypeAlias = "tuple[int, ...]"
#: The number of a channel that is attended, or the name of one that a condition is about to read.
Key: TypeAlias = "int | str"
#: Where nothing is installed yet: requests that are being answered, and conditionals that are being made.
ASKED: Place = (-1,)


class ChannelShares:
    """Owners, and the channels that count for them: `limit` at most."""

    def __init__(self, limit: int, linger_s: float, name_of: Callable[[int], str | None]) -> None:
        """`name_of` says which channel the attended one with a number costs; None if it is closed, or costs nothing."""
        self.limit, self._linger_s, self._name_of = limit, linger_s, name_of
        self._at: dict[Place, Counter[tuple[str, Key]]] = {}  # groups
        self._of: dict[str, Counter[Key]] = {}  # by owner: groups at all places, 0 while it lingers
        self._until: dict[tuple[str, Key], float] = {}  # those that linger, or have: until when, rising
        self.refused = 0

    @property
    def fullest(self) -> int:
        return max((len(self._names(owner)) for owner in list(self._of)), default=0)

    def check(self, owner: str, name: str) -> None:
        """TooLarge if a channel would be one too many for an owner."""
        names = self._names(owner)
        if name in names or len(names) < self.limit:
            return
        self.refused += 1
        what = (
            f"channels of one client (different queries, whatever their constants; those closed less than "
            f"{self._linger_s:g} s ago count; close some, or ask the operator to raise channels_per_client)"
        )
        raise TooLarge(what, len(names) + 1, self.limit)

    def _names(self, owner: str) -> set[str]:
        """The channels that count for an owner; what is closed is forgotten on the way."""
        keys = self._of.get(owner)
        if keys is None:
            return set()
        found = {key: key if isinstance(key, str) else self._name_of(key) for key in keys}
        for key in [key for key, name in found.items() if name is None]:
            del keys[key]
        if not keys:
            del self._of[owner]
        return {name for name in found.values() if name is not None}

    def hold(self, owner: str, place: Place, key: Key) -> None:
        self._at.setdefault(place, Counter())[owner, key] += 1
        self._of.setdefault(owner, Counter())[key] += 1

    def release(self, owner: str, place: Place, key: Key, count: int = 1, now: float | None = None) -> None:
        """So many groups of an owner have gone; those it does not have are ignored. Without `now` nothing lingers."""
        held = self._at.get(place)
        gone = min(count, held[owner, key]) if held is not None else 0
        if held is None or not gone:
            return
        held[owner, key] -= gone
        if not held[owner, key]:
            del held[owner, key]
        if not held:
            del self._at[place]
        self._less(owner, key, gone, now)

    def _less(self, owner: str, key: Key, gone: int, now: float | None) -> None:
        keys = self._of.get(owner)
        if keys is None or key not in keys:  # the channel was closed before
            return
        keys[key] = max(0, keys[key] - gone)
        if keys[key]:
            return
        if now is not None:
            self._until.pop((owner, key), None)
            self._until[owner, key] = now + self._linger_s
        elif (owner, key) not in self._until:
            self._forget(owner, key)

    def _forget(self, owner: str, key: Key) -> None:
        keys = self._of.get(owner)
        if keys is not None and keys.get(key) == 0:
            del keys[key]
            if not keys:
                del self._of[owner]

    def lose(self, links: Iterable[int], route: Sequence[int], now: float) -> None:
        """Nodes have gone, and all that was installed below them: by their links at the node at the end of a route."""
        gone = {(link, *route) for link in links}
        depth = 1 + len(route)
        for place in [place for place in self._at if place[-depth:] in gone]:
            for (owner, key), count in self._at.pop(place).items():
                self._less(owner, key, count, now)

    def expire(self, now: float) -> None:
        while self._until:
            (owner, key), until = next(iter(self._until.items()))
            if until > now:
                return
            del self._until[owner, key]
            self._forget(owner, key)


#: Ranges of lost subscribers that are kept at once, in all channels; beyond it a channel that loses more gives up its
#: oldest. Clients that come and go in a hurry could leave any number behind.
MOST_LINGERING = 1_000_000
#: Ranges forgone in one go: a few milliseconds.
FORGONE_AT_ONCE = 500


@dataclass(slots=True)
class Attending:
    """One channel that subscribers elsewhere listen to, or did a moment ago."""

    number: int
    channel: Channel
    spec: ChannelSpec
    costs: str | None  # the channel that updates go through for it: itself, or that of its condition, if it has one
    deserted_at: float | None = None  # since when it has no subscriber
    pins: int = 0  # requests that are being answered with it
    taken: bool = False  # some request was answered with it
    lingering: deque[tuple[float, Floats]] = field(default_factory=deque)  # ranges of lost subscribers: until when

    @property
    def lingering_ranges(self) -> int:
        return sum(len(points) for _, points in self.lingering)


class Attendance:
    """Numbers for channels, never given twice, so that a late message cannot be taken for another channel's; what was
    sent in a channel is kept (`retention`) as long as it has its number.

    A channel without subscribers lives on for `linger_s`: a subscriber whose gateway died comes
    back within seconds, and finds the messages it missed. For the same reason the ranges of a channel that counts them
    live on for as long, if their subscriber was lost.

    A range is wanted by the channel from `want` to `forgo`; in between it has one owner: the request that is worked on
    (subscribing.py), the outcome whose reply has not left (leaving.py), the routing table, or it lingers here.
    """

    def __init__(
        self, engine: ServedEngine, retention: Retention, linger_s: float, asked: Asked, per_owner: int = 1_000_000
    ) -> None:
        self.shares = ChannelShares(per_owner, linger_s, self._costs)
        self._engine, self.retention = engine, retention
        self._linger_s = linger_s
        self._asked = asked
        self._by_name: dict[str, Attending] = {}
        self._by_number: dict[int, Attending] = {}
        self._next = 1
        self.lingering = 0  # ranges of lost subscribers
        self._leaving: deque[tuple[Attending, Floats]] = deque()  # ranges that nobody wants, not forgone yet

    def __iter__(self) -> Iterator[Attending]:
        return iter(self._by_number.values())

    def __len__(self) -> int:
        return len(self._by_number)

    def tables_read(self) -> set[str]:
        return {fold(table) for attending in self for table in attending.channel.shape.tables}

    def find(self, name: str) -> Attending | None:
        return self._by_name.get(name)

    def _costs(self, number: int) -> str | None:
        attending = self._by_number.get(number)
        return None if attending is None else attending.costs

    def attend(self, channel: Channel, costs: str | None) -> Attending:
        """A channel with its number, which is new if it had none. Updates go through the channel `costs` for it."""
        known = self._by_name.get(channel.name)
        if known is not None:
            known.deserted_at = None
            return known
        attending = Attending(self._next, channel, channel.spec, costs)
        self._next += 1
        self._by_name[channel.name] = self._by_number[attending.number] = attending
        if channel.shape.partition:
            channel.asked_elsewhere = partial(self._asked, attending.number)
        self.retention.open(attending.number, self._engine.seq)
        return attending

    def forgo(self, number: int, points: Floats, until: float | None = None) -> None:
        """Ranges of a channel have no owner any more; with `until`, their subscribers may come back before that."""
        attending = self._by_number[number]
        if until is None:
            self._leaving.append((attending, points))
            return
        attending.lingering.append((until, points))
        self.lingering += len(points)
        while self.lingering > MOST_LINGERING and attending.lingering:
            self._end_lingering(attending)

    def _end_lingering(self, attending: Attending) -> None:
        _, points = attending.lingering.popleft()
        self.lingering -= len(points)
        self._leaving.append((attending, points))

    def forgo_some(self, most: int = FORGONE_AT_ONCE) -> bool:
        """Let channels forgo so many of the ranges that have no owner; whether there are more."""
        while self._leaving and most:
            attending, points = self._leaving.popleft()
            if len(points) > most:
                self._leaving.appendleft((attending, points[most:]))
                points = points[:most]
            attending.channel.forgo(points)
            most -= len(points)
        return bool(self._leaving)

    def expire(self, now: float) -> None:
        self.shares.expire(now)
        for attending in self:
            while attending.lingering and attending.lingering[0][0] <= now:
                self._end_lingering(attending)

    def close_deserted(self, wanted: set[int], now: float) -> None:
        """Close the channels that had no subscriber during the last `linger_s`."""
        for attending in list(self):
            if attending.number in wanted or attending.pins:
                attending.deserted_at = None
            elif attending.deserted_at is None:
                attending.deserted_at = now
            elif now - attending.deserted_at >= self._linger_s:
                self.close(attending)

    def close_now(self, table: str, wanted: set[int]) -> None:
        """Close the deserted channels that read a table, which is about to be dropped."""
        folded = fold(table)
        for attending in list(self):
            reads = map(fold, attending.channel.shape.tables)
            if folded in reads and attending.number not in wanted and not attending.pins:
                self.close(attending)

    def close(self, attending: Attending) -> None:
        self.retention.close(attending.number)
        while attending.lingering:
            self._end_lingering(attending)
        left = [points for one, points in self._leaving if one is attending]
        self._leaving = deque((one, points) for one, points in self._leaving if one is not attending)
        del self._by_name[attending.channel.name], self._by_number[attending.number]
        if self._engine.forsake(attending.channel.name) and left:  # it is just being opened again, by another request
            attending.channel.forgo(np.concatenate(left))
