"""Channels with remote subscribers: their wire numbers, and how long they and lost ranges live on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.server.shares import ChannelShares
from hullcast.broker.tables.schema import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.reformulate.channel import Channel
    from hullcast.broker.server.retention import Retention
    from hullcast.network.wire.arrays import Booleans, Floats
    from hullcast.network.wire.bodies import ChannelSpec

    Asked = Callable[[int, Floats], Booleans]


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
        """How many ranges are wanted only because their subscriber may come back."""
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

    def find(self, name: str) -> Attending | None:
        """The channel of that name, if subscribers elsewhere attend it."""
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
        """The ranges whose subscribers did not come back in time have no owner any more."""
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
        """Close a channel now."""
        self.retention.close(attending.number)
        while attending.lingering:
            self._end_lingering(attending)
        left = [points for one, points in self._leaving if one is attending]
        self._leaving = deque((one, points) for one, points in self._leaving if one is not attending)
        del self._by_name[attending.channel.name], self._by_number[attending.number]
        if self._engine.forsake(attending.channel.name) and left:  # it is just being opened again, by another request
            attending.channel.forgo(np.concatenate(left))
