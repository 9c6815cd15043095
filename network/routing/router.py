"""Router: which neighbour gets which messages. It owns all routing state of a process. Pure.

down     install(peer, *installs)    a reply with new subscriptions passes
         route(channel, columns)     messages pass: which neighbour gets which rows
up       withdraw, leave, void       subscriptions go
         interest(peer, ..)          a node below has fewer left
         interests()                 what to tell the parent, so that it sends less
         withdrawn(peer, ..)         points of a counted channel are not wanted any more below a node
         withdrawals                 what went, to be passed on to the parent, or at the server to the channel
         left                        how many groups of whose clients went, for the server, which counts them by owner
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from hullcast.network.matching.messages import dimensions_of, query_boxes, unreachable
from hullcast.network.routing.counted import Withdrawals
from hullcast.network.routing.table import ChannelTable
from hullcast.network.wire.errors import BadFrame
from hullcast.network.wire.frames import Interest, Withdrawn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hullcast.network.wire.arrays import Booleans, Floats, Ints
    from hullcast.network.wire.columns import Column
    from hullcast.network.wire.frames import Install


#: Boxes a node remembers of a neighbouring node and channel, unless the setting `cover_budget` says otherwise.
#: `hullcast bench covers` shows what more would bring.
BUDGET = 256
#: Boxes of an Interest, as a multiple of what a node remembers; more count as the one box around them.
MOST_BOXES = 4
#: Clients that have gone and whose replies may still come: whom these belonged to is remembered of so many.
GONE_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Held:
    """What one neighbour wants of one channel: points (of a node, about), boxes (nodes only), bytes spent on it."""

    channel: int
    peer: int
    points: int
    boxes: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RouterStatistics:
    """A snapshot. Messages are counted once when they come in and once per neighbour they are sent to.

    `filtered` are those kept from a neighbour that wants other messages of the channel. Whether one that was sent on
    concerned anybody below can only be known there.
    """

    held: tuple[Held, ...]
    messages: int
    routed: int
    routed_to: Mapping[int, int]
    filtered: int
    unknown: int  # messages of channels that no neighbour wants


@dataclass(slots=True)
class _Neighbour:
    exact: bool
    owner: str = ""  # of a client: who it counts for
    sent: int = 0  # replies with installs
    resets: int = 0  # sent to it on this link
    groups: dict[int, int] = field(default_factory=dict)  # group -> its channel


@dataclass(slots=True)
class _Told:
    """What the parent believes of a channel."""

    coordinates: int
    points: int


class Router:
    """Neighbours below, their subscriptions as points, and the way of every message.

    A neighbour is exact (a client: its points are known one by one, and it gets the messages that concern them) or a
    node (a Subtree: a cover that may let through a few more). Nothing that concerns a subscription is ever kept back
    (R1), whatever crosses on the way: see subtree.py. Of a counted channel every point is known also of nodes, and for
    each that was installed exactly one comes to `withdrawals` when it goes (R3), unless the parent declared it void.

    `everything` switches pruning off for nodes, to measure what it saves. `tells` is False for the server, which has
    no parent to tell.
    """

    def __init__(self, budget: int = BUDGET, *, everything: bool = False, tells: bool = True) -> None:
        self.everything = everything
        self._budget = budget
        self._tells = tells
        self._neighbours: dict[int, _Neighbour] = {}
        self._tables: dict[int, ChannelTable] = {}
        self._told: dict[int, _Told] = {}
        self._unwanted: set[int] = set()  # channels that nobody below wants, and the parent does not know it yet
        self.withdrawals = Withdrawals()
        self.left: Counter[tuple[str, int]] = Counter()  # by owner and channel
        self._gone: dict[int, str] = {}  # owners of clients that have gone
        self._heard = 0
        self._resets = 0  # that came from the parent over this link
        self._messages = self._filtered = self._unknown = self._routed = 0
        self._routed_to: dict[int, int] = {}

    @property
    def heard(self) -> int:
        """Replies with installs that came from the parent over this link."""
        return self._heard

    @property
    def resets(self) -> int:
        """Resets that came from the parent over this link."""
        return self._resets

    def join(self, peer: int, exact: bool, owner: str = "") -> None:
        """A neighbour below; exact: a client, which counts for that owner."""
        self._neighbours[peer] = _Neighbour(exact, owner)

    def leave(self, peer: int) -> None:
        """A neighbour has gone, and with it all it wanted."""
        neighbour = self._neighbours.pop(peer, None)
        if neighbour is None:
            return
        self._routed_to.pop(peer, None)
        self._release(peer, neighbour)
        if neighbour.exact:
            self._gone[peer] = neighbour.owner
            if len(self._gone) > GONE_KEPT:
                del self._gone[next(iter(self._gone))]

    def void(self, peer: int) -> None:
        """A neighbour is told that all it has installed is void; replies to it are counted on."""
        neighbour = self._neighbours[peer]
        neighbour.resets += 1
        self._release(peer, neighbour)
        neighbour.groups.clear()

    def _release(self, peer: int, neighbour: _Neighbour) -> None:
        self._count_left(neighbour)
        for channel in set(neighbour.groups.values()) if neighbour.exact else set(self._tables):
            self._tables[channel].leave(peer)
            self._settle(channel, lost=True)

    def _count_left(self, neighbour: _Neighbour) -> None:
        for channel in neighbour.groups.values():
            self.left[neighbour.owner, channel] += 1

    def install(self, peer: int, *installs: Install, taken: bool = True) -> None:
        """One reply with its installs, all of them, is on its way to this neighbour, or too large for it (not `taken`).

        Call it once for each reply that brings any, also when the neighbour has gone meanwhile: the parent counts
        them too.
        """
        if not installs:
            return
        self._heard += 1
        neighbour = self._neighbours.get(peer)
        owner = neighbour.owner if neighbour is not None and neighbour.exact else self._gone.get(peer)
        if not taken:
            neighbour = None
        if neighbour is not None:
            neighbour.sent += 1
        for install in installs:
            if neighbour is None and owner is not None:
                self.left[owner, install.channel] += 1
            if self._tells and not install.counted:
                told = self._told.setdefault(install.channel, _Told(install.points.shape[1], 0))
                told.points += int((~unreachable(install.points, _dimensions(install))).sum())
            if neighbour is not None:
                self._install(peer, neighbour, install)
            elif install.counted:
                loud = ~unreachable(install.points, _dimensions(install))
                self.withdrawals.add(install.channel, True, install.points[loud])

    def _install(self, peer: int, neighbour: _Neighbour, install: Install) -> None:
        table = self._table(install)
        if not neighbour.exact:
            table.install(peer, neighbour.sent, install.points)
        else:
            if install.group in neighbour.groups:
                self.withdraw(peer, install.group)
                table = self._table(install)  # the group may have been all there was
            if table.hold(peer, install.group, install.points):
                neighbour.groups[install.group] = install.channel
            else:
                self.left[neighbour.owner, install.channel] += 1
        self._settle(install.channel)

    def withdraw(self, peer: int, group: int, members: Ints | None = None, *, lost: bool = False) -> None:
        """A client closes a group, or the members with these numbers; those it does not have are ignored. `lost`: it
        may resume them."""
        neighbour = self._neighbours.get(peer)
        channel = neighbour.groups.get(group) if neighbour is not None else None
        if neighbour is None or channel is None:
            return
        if not self._tables[channel].release(peer, group, members):
            del neighbour.groups[group]
            self.left[neighbour.owner, channel] += 1
        self._settle(channel, lost=lost)

    def interest(self, peer: int, interest: Interest) -> None:
        """A node says what is left of a channel below it."""
        neighbour = self._neighbours.get(peer)
        if neighbour is None:
            return
        if neighbour.exact:
            raise BadFrame("an Interest from a client")
        table = self._tables.get(interest.channel)
        if table is None:
            return  # from before the installs were declared void
        if table.counted:
            raise BadFrame(f"an Interest in channel {interest.channel}, whose points are counted")
        if interest.lows.shape[1] != table.coordinates or not (interest.lows <= interest.highs).all():
            raise BadFrame(f"the boxes of an Interest in channel {interest.channel} do not fit the channel")
        lows, highs = interest.lows, interest.highs
        if len(lows) > MOST_BOXES * self._budget:  # to find a few that cover very many takes seconds
            lows, highs = lows.min(axis=0, keepdims=True), highs.max(axis=0, keepdims=True)
        table.replace(peer, interest.heard, lows, highs)
        self._settle(interest.channel)

    def withdrawn(self, peer: int, withdrawn: Withdrawn) -> None:
        """A node says that points of a counted channel are not wanted any more below it."""
        neighbour = self._neighbours.get(peer)
        if neighbour is None:
            return
        if neighbour.exact:
            raise BadFrame("a Withdrawn from a client")
        if withdrawn.resets > neighbour.resets:
            raise BadFrame(f"a Withdrawn after {withdrawn.resets} resets, of which {neighbour.resets} were sent")
        table = self._tables.get(withdrawn.channel)
        if table is None or withdrawn.resets < neighbour.resets:
            return  # from before the installs were declared void
        if not table.counted or withdrawn.points.shape[1] != table.coordinates:
            raise BadFrame(f"the points of a Withdrawn in channel {withdrawn.channel} do not fit the channel")
        table.withdraw(peer, withdrawn.points)
        self._settle(withdrawn.channel, lost=withdrawn.lost)

    def route(self, channel: int, columns: Mapping[str, Column]) -> list[tuple[int, Ints | None]]:
        """Which neighbours get which of these messages (their rows, rising; None: all). Nobody else gets any."""
        n = len(columns["seq"])
        self._messages += n
        table = self._tables.get(channel)
        if table is None:
            self._unknown += n
            return []
        boxes = query_boxes(table.form, table.dimensions, table.partitioned, columns)
        routed = list(table.route(boxes, everything=self.everything)) if n else []
        sent = 0
        for peer, rows in routed:
            count = n if rows is None else len(rows)
            self._routed_to[peer] = self._routed_to.get(peer, 0) + count
            sent += count
        self._routed += sent
        self._filtered += n * len(table) - sent
        return routed

    def interests(self) -> list[Interest]:
        """What the parent should know: channels that nobody below wants now, or of which fewer than half as much."""
        news = self.unwanted()
        for channel, told in list(self._told.items()):
            table = self._tables.get(channel)
            if table is None:  # the client that asked for it left before the reply came
                news.append(self._nothing(channel))
            elif 2 * (points := table.points) < told.points:
                told.points = points
                news.append(Interest(channel, self._heard, *table.boxes()))
        return news

    def unwanted(self) -> list[Interest]:
        """Of `interests`, the channels that nobody wants since this was asked last: cheap where nothing has changed."""
        if not self._unwanted:
            return []
        gone = [channel for channel in self._unwanted if channel not in self._tables and channel in self._told]
        self._unwanted.clear()
        return [self._nothing(channel) for channel in gone]

    def _nothing(self, channel: int) -> Interest:
        nothing = np.empty((0, self._told.pop(channel).coordinates))
        return Interest(channel, self._heard, nothing, nothing)

    def clear(self, *, fresh_link: bool = True) -> None:
        """All installs are void, here and above, and all neighbours are told so. On a fresh link replies and resets are
        counted from 0, and nothing has `left`: the server knew it by another link. At the server, which has nobody
        above, counted points come to `withdrawals`."""
        if self._tells:
            self.withdrawals.clear()
        else:
            for channel, table in self._tables.items():
                for peer in table.peers():
                    table.leave(peer)
                self._take_gone(channel, table, lost=True)
        self._tables.clear()
        self._told.clear()
        self._unwanted.clear()
        if fresh_link:
            self.left.clear()
        for neighbour in self._neighbours.values():
            if not fresh_link:
                self._count_left(neighbour)
            neighbour.groups.clear()
            neighbour.resets += 1
        self._heard, self._resets = (0, 0) if fresh_link else (self._heard, self._resets + 1)

    def channels(self) -> tuple[int, ...]:
        """The channels that somebody below wants."""
        return tuple(self._tables)

    def partitions_held(self, channel: int, numbers: Floats) -> Booleans:
        """Which of these partition numbers of a channel somebody below may still ask for."""
        table = self._tables.get(channel)
        if table is None or not table.partitioned:
            return np.zeros(len(numbers), np.bool_)
        return table.partitions_held(numbers)

    def statistics(self) -> RouterStatistics:
        """A snapshot."""
        held = tuple(
            Held(channel, peer, *table.sizes(peer)) for channel, table in self._tables.items() for peer in table.peers()
        )
        return RouterStatistics(
            held, self._messages, self._routed, dict(self._routed_to), self._filtered, self._unknown
        )

    def check(self) -> None:
        """Test the invariants of all tables; AssertionError names the one that is broken."""
        for channel, table in self._tables.items():
            assert len(table), f"nobody wants channel {channel}"
            table.check()

    def _table(self, install: Install) -> ChannelTable:
        """The table of the channel; its form is that of the first install."""
        table = self._tables.get(install.channel)
        form = (install.form, install.points.shape[1], install.partitioned, install.counted)
        if table is None:
            table = ChannelTable(form[0], form[1], partitioned=form[2], counted=form[3], budget=self._budget)
            self._tables[install.channel] = table
        elif (table.form, table.coordinates, table.partitioned, table.counted) != form:
            raise BadFrame(f"an Install in channel {install.channel} of another form than the first")
        return table

    def _settle(self, channel: int, *, lost: bool = False) -> None:
        """After a change: points that went are to be passed on, and a channel that nobody wants is forgotten."""
        table = self._tables[channel]
        self._take_gone(channel, table, lost=lost)
        if not len(table):
            del self._tables[channel]
            if self._tells:
                self._unwanted.add(channel)

    def _take_gone(self, channel: int, table: ChannelTable, *, lost: bool) -> None:
        for points in table.take_gone():
            self.withdrawals.add(channel, lost, points)


def _dimensions(install: Install) -> int:
    return dimensions_of(install.form, install.points.shape[1], partitioned=install.partitioned)
