"""Policies: which of the items that wait is served next. Pure: `now` is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log2
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


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
