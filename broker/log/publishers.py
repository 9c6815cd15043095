"""Who sent what: the receipts of recent requests, so that one that is sent again is applied once. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from broker.log.record import NOBODY
from network.wire.errors import RetryTooOld

if TYPE_CHECKING:
    from collections.abc import Iterable

LIMIT = 100_000  # publishers
WINDOW = 64  # receipts of one publisher: how many requests it may have on the way at once
HOLES = 256  # of one publisher: how many old requests that were never applied are told from those that were
RECEIPTS_PER_PUBLISHER = 4  # receipts and holes, on average, at most: what bounds memory, to some 100 MB


class Answered(NamedTuple):
    """What a request was answered with: the sequence numbers of its first and last update."""

    first: int
    last: int


class Entry(NamedTuple):
    """One receipt, as a checkpoint keeps it."""

    publisher: bytes
    number: int
    first: int
    last: int


class Past(NamedTuple):
    """What is known of a publisher's requests whose receipts are gone, as a checkpoint keeps it."""

    publisher: bytes
    through: int
    holes: tuple[int, ...]


class _Publisher:
    """One publisher's requests.

    Invariants:
      P1  `receipts` are those of the requests applied last, in this order.
      P2  a number above `through` was applied exactly if it has a receipt.
      P3  a number up to `through` without a receipt was never applied if it is one of the `holes` (ascending).
          Otherwise it was, or it was one of more holes than are kept.
    """

    __slots__ = ("holes", "receipts", "through")

    def __init__(self) -> None:
        self.receipts: dict[int, Answered] = {}
        self.holes: dict[int, None] = {}
        self.through = -1

    def __len__(self) -> int:
        """How much there is to remember."""
        return len(self.receipts) + len(self.holes)

    def find(self, number: int) -> Answered | None:
        found = self.receipts.get(number)
        if found is None and number <= self.through and number not in self.holes:
            raise RetryTooOld(number, min(self.receipts, default=self.through))
        return found

    def add(self, number: int, answered: Answered, window: int, most_holes: int) -> None:
        self.holes.pop(number, None)
        self.receipts.pop(number, None)
        self.receipts[number] = answered
        if len(self.receipts) > window:
            dropped = next(iter(self.receipts))
            del self.receipts[dropped]
            self._raise(dropped, most_holes)

    def _raise(self, dropped: int, most_holes: int) -> None:
        """A receipt is gone: the numbers from `through` to its own that were not applied are holes now."""
        if dropped < self.through:
            return
        found: list[int] = []
        for number in range(dropped - 1, self.through, -1):
            if len(found) == most_holes:  # numbers may jump by billions: the highest holes are enough
                break
            if number not in self.receipts:
                found.append(number)
        self.holes.update(dict.fromkeys(reversed(found)))
        while len(self.holes) > most_holes:
            del self.holes[next(iter(self.holes))]
        self.through = dropped


class Publishers:
    """The latest receipts of each publisher; the publisher heard of least recently is forgotten first.

    Several requests of one publisher may be on the way at once, and a lost connection brings all of them again; hence
    a window of receipts and not only the last one. A request that was refused may come again long after others that
    were sent behind it: so the numbers that were passed over are remembered too. What is remembered depends only on
    which requests were applied in which order, as the log tells it again.

    Invariant P4: at most `limit` publishers, and `limit * RECEIPTS_PER_PUBLISHER` receipts and holes, unless one
    publisher has them all.
    """

    def __init__(self, limit: int = LIMIT, window: int = WINDOW, holes: int = HOLES) -> None:
        self._limit, self._window, self._holes = limit, window, holes
        self._known: OrderedDict[bytes, _Publisher] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        """How many publishers are known."""
        return len(self._known)

    def receipt(self, publisher: bytes, number: int) -> Answered | None:
        """The answer to a request that was applied before, None for one that was not; RetryTooOld if it was, and the
        answer is forgotten. Requests of NOBODY are never the same."""
        known = self._known.get(publisher)
        if known is None:
            return None
        self._known.move_to_end(publisher)
        return known.find(number)

    def applied(self, publisher: bytes, number: int, first: int, last: int) -> None:
        """Remember what a request was answered with."""
        if publisher == NOBODY:
            return
        known = self._touch(publisher)
        before = len(known)
        known.add(number, Answered(first, last), self._window, self._holes)
        self._count += len(known) - before
        most = self._limit * RECEIPTS_PER_PUBLISHER
        while len(self._known) > self._limit or (self._count > most and len(self._known) > 1):
            _, forgotten = self._known.popitem(last=False)
            self._count -= len(forgotten)

    def entries(self) -> list[Entry]:
        """All receipts, the publisher heard of least recently first."""
        return [
            Entry(publisher, number, *answered)
            for publisher, known in self._known.items()
            for number, answered in known.receipts.items()
        ]

    def pasts(self) -> list[Past]:
        """What is known beside the receipts; `restore` makes the same of both."""
        return [
            Past(publisher, known.through, tuple(known.holes))
            for publisher, known in self._known.items()
            if known.through >= 0
        ]

    def restore(self, entries: Iterable[Entry], pasts: Iterable[Past]) -> None:
        """Take in what `entries` and `pasts` gave."""
        for entry in entries:
            self.applied(*entry)
        for past in pasts:
            known = self._known.get(past.publisher)
            if known is not None:
                known.through, known.holes = past.through, dict.fromkeys(past.holes)
                self._count += len(known.holes)

    def _touch(self, publisher: bytes) -> _Publisher:
        known = self._known.get(publisher)
        if known is None:
            known = self._known[publisher] = _Publisher()
        else:
            self._known.move_to_end(publisher)
        return known
