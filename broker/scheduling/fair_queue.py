"""A queue that is fair to owners: what waits, what is served, whose turn it is, who has most.

What a newcomer costs does not depend on how many wait: counts and bytes are kept by owner, and owners in the order of
each question that is asked of them (whose turn is it? who has most waiting?). Pure: `now` is an argument.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from hullcast.broker.scheduling.policy import FairShare, Item
from hullcast.broker.scheduling.ranking import Ranking
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What an owner may have most of among what waits.
Measure = Literal["items", "bytes"]


@dataclass(eq=False, slots=True)
class Queued(Item):
    """Something that waits, and is served then."""

    size_bytes: int
    deadline: float | None  # the moment by which it must be served
    number: int = field(default=0, init=False)  # in the order in which they came; given by the queue
    serving: bool = field(default=False, init=False)


T = TypeVar("T", bound=Queued)


@dataclass(eq=False, slots=True)
class _Owner(Generic[T]):
    waiting: dict[int, T] = field(default_factory=dict)  # by number, so in order
    waiting_bytes: int = 0
    serving: int = 0
    serving_bytes: int = 0


class FairQueue(Generic[T]):
    """Items that wait and items that are served, at most `at_once` of one owner.

    The owner that was served least has its turn next, with the item that came first; of such owners the one whose item
    came first (`FairShare`). All is O(log n) but to iterate.

    Invariants:
      Q1  Counts and bytes, in all and by owner, are those of the items; an owner without items is not kept.
      Q2  An owner has its turn if something of it waits and fewer than `at_once` are served, ranked as FairShare says.
      Q3  Owners with something waiting are ranked by how many items and how many bytes wait: the most first, of equal
          ones the one whose first item came first.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._shares = FairShare()
        self._forgotten = 0
        self._owners: dict[str, _Owner[T]] = {}
        self._numbers = 0
        self._waiting = 0
        self._turns: Ranking[str] = Ranking()
        self._most: dict[Measure, Ranking[str]] = {"items": Ranking(), "bytes": Ranking()}
        self.serving = 0
        self.held_bytes = 0  # of all items, waiting or served

    # -- coming and going ------------------------------------------------------------------------------------

    def add(self, item: T) -> None:
        """An item waits from now on."""
        self._numbers += 1
        item.number = self._numbers
        owner = self._owners.setdefault(item.owner, _Owner())
        owner.waiting[item.number] = item
        owner.waiting_bytes += item.size_bytes
        self._waiting += 1
        self.held_bytes += item.size_bytes
        self._rank(item.owner)

    def remove(self, item: T) -> None:
        """An item that waits is not wanted any more."""
        self._stop_waiting(item)
        self.held_bytes -= item.size_bytes
        self._rank(item.owner)

    def begin(self, item: T) -> None:
        """An item that waits is served from now on."""
        self._stop_waiting(item)
        owner = self._owners[item.owner]
        item.serving = True
        owner.serving += 1
        owner.serving_bytes += item.size_bytes
        self.serving += 1
        self._rank(item.owner)

    def end(self, item: T, seconds: float, now: float) -> None:
        """An item was served, or given up, and that took so much time."""
        owner = self._owners[item.owner]
        item.serving = False
        owner.serving -= 1
        owner.serving_bytes -= item.size_bytes
        self.serving -= 1
        self.held_bytes -= item.size_bytes
        self._shares.served(item, seconds, now)
        if self._shares.forgotten != self._forgotten:
            self._forgotten = self._shares.forgotten
            for name in list(self._turns):
                self._rank(name)
        self._rank(item.owner)

    def _stop_waiting(self, item: T) -> None:
        owner = self._owners[item.owner]
        del owner.waiting[item.number]
        owner.waiting_bytes -= item.size_bytes
        self._waiting -= 1

    def _rank(self, name: str) -> None:
        """Q2 and Q3 for one owner; forget it if it has nothing."""
        owner = self._owners[name]
        first = next(iter(owner.waiting), None)
        if first is None:
            self._turns.drop(name)
            for ranking in self._most.values():
                ranking.drop(name)
            if not owner.serving:
                del self._owners[name]
            return
        self._most["items"].set(name, (-len(owner.waiting), first))
        self._most["bytes"].set(name, (-owner.waiting_bytes, first))
        if owner.serving < self._at_once:
            self._turns.set(name, (self._shares.rank(name), first))
        else:
            self._turns.drop(name)

    # -- questions -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many wait."""
        return self._waiting

    def __contains__(self, item: T) -> bool:
        """Whether an item waits."""
        owner = self._owners.get(item.owner)
        return owner is not None and owner.waiting.get(item.number) is item

    def __iter__(self) -> Iterator[T]:
        """All that wait, owner by owner."""
        for owner in self._owners.values():
            yield from owner.waiting.values()

    def waiting_of(self, owner: str, measure: Measure = "items") -> int:
        """How many items of an owner wait, or their bytes."""
        known = self._owners.get(owner)
        if known is None:
            return 0
        return len(known.waiting) if measure == "items" else known.waiting_bytes

    def held_by(self, owner: str) -> int:
        """Bytes of an owner's items, waiting or served."""
        known = self._owners.get(owner)
        return 0 if known is None else known.waiting_bytes + known.serving_bytes

    def holds(self, owner: str) -> bool:
        """Whether an owner has any item here."""
        return owner in self._owners

    def next(self) -> T | None:
        """The item whose turn it is, if there is one."""
        name = self._turns.first()
        return None if name is None else next(iter(self._owners[name].waiting.values()))

    def most(self, measure: Measure) -> str | None:
        """The owner that has most waiting; None if nothing waits."""
        return self._most[measure].first()

    def latest_of(self, owner: str) -> T:
        """The item of an owner that came last; something of it waits."""
        return next(reversed(self._owners[owner].waiting.values()))

    @property
    def steps(self) -> int:
        """Entries of rankings that were looked at, ever."""
        return sum(ranking.steps for ranking in self._rankings())

    def _rankings(self) -> list[Ranking[Any]]:
        return [self._turns, *self._most.values()]

    def check(self) -> None:
        """Raise InvariantBroken unless Q1 to Q3 hold; looks at everything."""
        for ranking in self._rankings():
            ranking.check()
        counts: Counter[str] = Counter()
        turns, most = {}, {}
        for name, owner in self._owners.items():
            size = sum(item.size_bytes for item in owner.waiting.values())
            counts += Counter(waiting=len(owner.waiting), serving=owner.serving, bytes=size + owner.serving_bytes)
            if size != owner.waiting_bytes or not (owner.waiting or owner.serving):
                raise InvariantBroken(f"Q1: owner {name} has {size} bytes waiting, counted as {owner.waiting_bytes}")
            if owner.waiting:
                first = min(owner.waiting)
                most[name] = ((-len(owner.waiting), first), (-size, first))
                if owner.serving < self._at_once:
                    turns[name] = (self._shares.rank(name), first)
        found = (self._waiting, self.serving, self.held_bytes)
        if found != (counts["waiting"], counts["serving"], counts["bytes"]):
            raise InvariantBroken(f"Q1: waiting, served and bytes are {dict(counts)}, counted as {found}")
        if turns != {name: self._turns.rank(name) for name in self._turns}:
            raise InvariantBroken("Q2: owners have other turns than they should")
        for at, measure in enumerate(self._most.values()):
            if {name: ranks[at] for name, ranks in most.items()} != {name: measure.rank(name) for name in measure}:
                raise InvariantBroken("Q3: owners are ranked by other amounts than they have waiting")
