"""Channels with subscribers elsewhere: their numbers on the wire, and how long they live after the last one left."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from hullcast.broker.tables.schema import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.reformulate.channel import Channel
    from hullcast.network.wire.arrays import Booleans, Floats
    from hullcast.network.wire.bodies import ChannelSpec

    Asked = Callable[[int, Floats], Booleans]


@dataclass(slots=True)
class Attending:
    """One channel that subscribers elsewhere listen to, or did a moment ago."""

    number: int
    channel: Channel
    spec: ChannelSpec
    deserted_at: float | None = None  # since when it has no subscriber
    pins: int = 0  # requests that are being answered with it
    taken: bool = False  # some request was answered with it


class Attendance:
    """Numbers for channels, never given twice, so that a late message cannot be taken for another channel's.

    A channel without subscribers lives on for `linger_s`: a subscriber whose gateway died comes
    back within seconds, and finds the messages it missed.
    """

    def __init__(self, engine: ServedEngine, linger_s: float, asked: Asked) -> None:
        self._engine = engine
        self._linger_s = linger_s
        self._asked = asked
        self._by_name: dict[str, Attending] = {}
        self._by_number: dict[int, Attending] = {}
        self._next = 1

    def __iter__(self) -> Iterator[Attending]:
        return iter(self._by_number.values())

    def __len__(self) -> int:
        return len(self._by_number)

    def find(self, name: str) -> Attending | None:
        """The channel of that name, if subscribers elsewhere attend it."""
        return self._by_name.get(name)

    def numbered(self, number: int) -> Attending:
        """The channel with that number."""
        return self._by_number[number]

    def attend(self, channel: Channel) -> tuple[Attending, bool]:
        """The number of a channel, and whether it is new."""
        known = self._by_name.get(channel.name)
        if known is not None:
            known.deserted_at = None
            return known, False
        attending = Attending(self._next, channel, channel.spec)
        self._next += 1
        self._by_name[channel.name] = self._by_number[attending.number] = attending
        if channel.shape.partition:
            channel.asked_elsewhere = partial(self._asked, attending.number)
        return attending, True

    def close_deserted(self, wanted: set[int], now: float) -> list[Attending]:
        """Close the channels that had no subscriber during the last `linger_s`; returns them."""
        closed = []
        for attending in list(self):
            if attending.number in wanted or attending.pins:
                attending.deserted_at = None
            elif attending.deserted_at is None:
                attending.deserted_at = now
            elif now - attending.deserted_at >= self._linger_s:
                self._close(attending)
                closed.append(attending)
        return closed

    def close_now(self, table: str, wanted: set[int]) -> list[Attending]:
        """Close the deserted channels that read a table, which is about to be dropped."""
        folded = fold(table)
        closed = [
            a for a in self if folded in map(fold, a.channel.shape.tables) and a.number not in wanted and not a.pins
        ]
        for attending in closed:
            self._close(attending)
        return closed

    def withdraw(self, attending: Attending) -> None:
        """Close a channel at once that was opened for a request which then was refused."""
        self._close(attending)

    def _close(self, attending: Attending) -> None:
        del self._by_name[attending.channel.name], self._by_number[attending.number]
        self._engine.forsake(attending.channel.name)
