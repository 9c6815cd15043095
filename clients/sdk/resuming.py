"""Subscribing again after a break, in portions: what is asked for next, and what a refusal means."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.clients.sdk.groups import PORTION_GROUPS, PORTION_SUBSCRIPTIONS
from hullcast.network.wire.bodies import Subscribe
from hullcast.network.wire.errors import TooLarge
from hullcast.network.wire.value_columns import sent_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hullcast.clients.sdk.groups import Groups, SubscriptionGroup
    from hullcast.network.wire.errors import HullcastError

#: About the size of a request, whose subscriptions and groups are bounded too. A single group may have more bytes: it
#: was taken before, and is again.
PORTION_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Standing:
    """Up to which update of which server a group has heard everything."""

    seq: int
    epoch: bytes | None


@dataclass(frozen=True, slots=True)
class Portion:
    """Groups that are asked for in one request; all stand at the same update. Without `since` they start again."""

    groups: list[SubscriptionGroup]
    since: Standing | None

    def body(self) -> Subscribe:
        """The request."""
        groups = tuple(group.on_wire() for group in self.groups)
        return Subscribe(groups) if self.since is None else Subscribe(groups, self.since.seq, self.since.epoch)

    def smaller(self) -> list[Portion]:
        """What to ask for if this is too large: its halves, or the answers instead of what was missed; or nothing."""
        half = len(self.groups) // 2
        if half:
            return [Portion(self.groups[:half], self.since), Portion(self.groups[half:], self.since)]
        return [] if self.since is None else [Portion(self.groups, None)]


class Resuming:
    """The groups that are not subscribed again yet.

    Every group was taken by itself once, but a request for all of them, or its reply, may be larger than a frame, and
    would stop the server and the nodes on the way for too long. So they are asked for portion by portion; one that is
    refused as too large is asked for in smaller ones.
    """

    def __init__(self, groups: Iterable[SubscriptionGroup], position: int) -> None:
        self.position = position  # up to which everybody has heard everything
        self.begun = False  # a first portion is here again: what is delivered counts for it
        self.asked: Portion | None = None
        self._waiting = deque(_portions(groups))

    def next(self, groups: Groups) -> Portion | None:
        """The portion to ask for now, without groups that left meanwhile; None: there are no more."""
        self.asked = None
        while self.asked is None and self._waiting:
            portion = self._waiting.popleft()
            here = [group for group in portion.groups if group.number in groups]
            self.asked = Portion(here, portion.since) if here else None
        return self.asked

    def refused(self, error: HullcastError) -> list[SubscriptionGroup]:
        """The portion asked for was refused as a whole; returns the groups that end, the others are asked for again."""
        assert self.asked is not None, "nothing was asked for"
        smaller = self.asked.smaller() if isinstance(error, TooLarge) else []
        self._waiting.extendleft(reversed(smaller))
        return [] if smaller else self.asked.groups

    def refused_one(self, group: SubscriptionGroup, error: HullcastError) -> bool:
        """One group of a portion was refused; returns whether it ends, else it is asked for again."""
        assert self.asked is not None, "nothing was asked for"
        again = isinstance(error, TooLarge) and self.asked.since is not None
        if again:
            self._waiting.append(Portion([group], None))
        return not again


def _portions(groups: Iterable[SubscriptionGroup]) -> list[Portion]:
    """Conditional subscriptions come last, by themselves: after a restart their SELECTs must be run first."""
    found: list[Portion] = []
    size_bytes = subscriptions = 0
    conditional = False
    for group in sorted(groups, key=lambda group: group.trigger is not None):
        group_bytes = 4 * len(group.sql) + sum(map(sent_bytes, group.parameters))
        size_bytes += group_bytes
        subscriptions += group.count
        full = (
            size_bytes > PORTION_BYTES
            or subscriptions > PORTION_SUBSCRIPTIONS
            or (found and len(found[-1].groups) == PORTION_GROUPS)
        )
        others_are = conditional
        conditional = group.trigger is not None
        if not found or full or found[-1].since != group.away or conditional != others_are:
            found.append(Portion([], group.away))
            size_bytes, subscriptions = group_bytes, group.count
        found[-1].groups.append(group)
    return found
