"""Policies: which of the items that wait is served next. Pure: `now` is an argument."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from itertools import count
from math import inf, log2
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hullcast.network.wire.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator


@dataclass(eq=False, slots=True)
class Item:
    """Something that waits to be served."""

    owner: str  # who asked for it: no owner may keep the others waiting
    arrived: float


class Policy(Protocol):
    """Picks the next item, and learns what serving it took."""

    def pick(self, items: Iterable[Item], now: float) -> Item:
        """One of the items; there is at least one."""

    def served(self, item: Item, seconds: float, now: float) -> None:
        """An item, or a slice of it, was served in so much time."""


@runtime_checkable
class OrderedPolicy(Policy, Protocol):
    """A policy that picks by an order of items which changes with the items themselves, and not as time passes."""

    def order(self, item: Item) -> Any:
        """Sorts items; the least is picked first."""


#: Outdated entries that `Ready` may have, beside as many as there are items.
OUTDATED = 64


class Ready:
    """The items that may be served, in the order in which they came; and the first of them by an order, if there is
    one. To find that takes O(log n) for each item that came, or was touched, since it was asked for last.

    A sorted list of entries, in which outdated ones stay until they are first. (Not a heap, as in ranking.py: of a few
    hundred the first one is gone faster from a list, and that happens each time.)

    O1  Whoever changes what an item is ordered by touches it, or all.
    """

    __slots__ = ("_entries", "_numbers", "_order", "_touched", "items")

    def __init__(self, order: Callable[[Any], Any] | None = None) -> None:
        self._order = order
        self.items: dict[Item, tuple[Any, int, Item] | None] = {}  # and their entries; to read
        self._touched: dict[Item, None] = {}
        self._entries: list[tuple[Any, int, Item]] = []
        self._numbers = count()  # of equal ones the one that came first; items are never compared

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def add(self, item: Item) -> None:
        """Take in an item, or say that its order may have changed."""
        self.items.setdefault(item)
        self._touched[item] = None

    def remove(self, item: Item) -> None:
        """An item that is here may not be served any more."""
        del self.items[item]
        self._touched.pop(item, None)

    def touch_all(self) -> None:
        """The order of all may have changed."""
        self._touched.update(dict.fromkeys(self.items))

    def order_by(self, order: Callable[[Any], Any] | None) -> None:
        """From now on they have another order."""
        self._order = order
        self._entries.clear()
        self.items = dict.fromkeys(self.items)
        self.touch_all()

    def first(self) -> Item:
        """The first by the order; there is an item, and an order."""
        items, entries = self.items, self._entries
        if self._touched:
            order = self._order
            assert order is not None
            for item in self._touched:
                entry, place = items[item], order(item)
                if entry is None or entry[0] != place:
                    items[item] = entry = place, next(self._numbers), item
                    insort(entries, entry)
            self._touched.clear()
            if len(entries) > 2 * len(items) + OUTDATED:
                entries[:] = [entry for entry in entries if items.get(entry[2]) is entry]
        while items.get(entries[0][2]) is not entries[0]:
            del entries[0]
        return entries[0][2]


class FairShare:
    """The owner with the least recent service comes first; within an owner, first come first served.

    What an owner was given is forgotten by half in every `half_life_s`, so that a burst is not held against it
    for ever. An owner that keeps the server busy waits behind owners that ask for little.
    """

    #: Owners remembered; those served least are forgotten first.
    MOST_OWNERS = 10_000

    def __init__(self, half_life_s: float = 10.0) -> None:
        self._half_life_s = half_life_s
        self._given: dict[str, tuple[float, float]] = {}  # seconds of service, as of when
        self.forgotten = 0  # times that owners were forgotten, and so ranks changed that nobody was served for

    def given(self, owner: str, now: float) -> float:
        """Recent service of an owner, in seconds."""
        seconds, at = self._given.get(owner, (0.0, now))
        return float(seconds * 0.5 ** ((now - at) / self._half_life_s))

    def rank(self, owner: str) -> float:
        """Orders owners as `given` does, at any moment: what they were given is halved for all alike, so this changes
        only when the owner is served, or forgotten."""
        seconds, at = self._given.get(owner, (0.0, 0.0))
        return log2(seconds) + at / self._half_life_s if seconds > 0 else -inf

    def pick(self, items: Iterable[Item], now: float) -> Item:
        waiting = list(items)
        given = {owner: self.given(owner, now) for owner in {item.owner for item in waiting}}
        return min(waiting, key=lambda item: (given[item.owner], item.arrived))

    def served(self, item: Item, seconds: float, now: float) -> None:
        self._given[item.owner] = (self.given(item.owner, now) + seconds, now)
        if len(self._given) > self.MOST_OWNERS:
            kept = sorted(self._given, key=lambda owner: -self.given(owner, now))[: self.MOST_OWNERS // 2]
            self._given = {owner: self._given[owner] for owner in kept}
            self.forgotten += 1


def one_of(policies: Collection[str], name: str) -> str:
    """The name of one of these policies; BadSetting for any other."""
    if name not in policies:
        raise BadSetting("policy", name, f"must be one of {', '.join(sorted(policies))}")
    return name
