"""How many channels each owner keeps open: each one costs time at every update.

A channel counts for every owner with a subscription in it, and for `linger_s` after the last of these has gone: so long
it stays open. A conditional subscription counts with the channel that its condition reads.

Subscriptions are counted in groups, where they were installed (`Place`): a gateway tells how many groups of its clients
have gone (`Left`), and with a lost node goes all that was below it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from hullcast.network.wire.errors import TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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
        """The most channels that count for one owner."""
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
        """An owner has one more group in a channel."""
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
        """What has lingered long enough counts no more."""
        while self._until:
            (owner, key), until = next(iter(self._until.items()))
            if until > now:
                return
            del self._until[owner, key]
            self._forget(owner, key)
