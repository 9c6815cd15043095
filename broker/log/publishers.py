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
RECEIPTS_PER_PUBLISHER = 4  # on average, at most: what bounds memory, to some 100 MB


class Receipt(NamedTuple):
    """What a request was answered with: the sequence numbers of its first and last update."""

    first: int
    last: int


class Entry(NamedTuple):
    """One receipt, as a checkpoint keeps it."""

    publisher: bytes
    number: int
    first: int
    last: int


class Publishers:
    """The latest receipts of each publisher; the publisher heard of least recently is forgotten first.

    Several requests of one publisher may be on the way at once, and a lost connection brings all of them again; hence
    a window of receipts and not only the last one. Within the window a number that is not there was refused, and may
    be judged again; one below it was applied and forgotten.

    Invariants:
      P1  receipts of a publisher are in the order of their numbers, at most `window` of them.
      P2  at most `limit` publishers, and `limit * RECEIPTS_PER_PUBLISHER` receipts, unless one publisher has them all.
    """

    def __init__(self, limit: int = LIMIT, window: int = WINDOW) -> None:
        self._limit, self._window = limit, window
        self._receipts: OrderedDict[bytes, dict[int, Receipt]] = OrderedDict()
        self._trimmed: set[bytes] = set()  # publishers that had more receipts than are kept
        self._count = 0

    def __len__(self) -> int:
        """How many publishers are known."""
        return len(self._receipts)

    def receipt(self, publisher: bytes, number: int) -> Receipt | None:
        """The answer to a request that was applied before, None for one that was not; RetryTooOld if it was, and the
        answer is forgotten. Requests of NOBODY are never the same."""
        receipts = self._receipts.get(publisher)
        if receipts is None:
            return None
        self._receipts.move_to_end(publisher)
        found = receipts.get(number)
        if found is None and publisher in self._trimmed and number < (oldest := next(iter(receipts))):
            raise RetryTooOld(number, oldest)
        return found

    def applied(self, publisher: bytes, number: int, first: int, last: int) -> None:
        """Remember what a request was answered with."""
        if publisher == NOBODY:
            return
        receipts = self._receipts.setdefault(publisher, {})
        self._receipts.move_to_end(publisher)
        late = bool(receipts) and number < next(reversed(receipts))
        self._count += number not in receipts
        receipts[number] = Receipt(first, last)
        if late:  # one that was refused at first and taken when sent again
            self._receipts[publisher] = receipts = dict(sorted(receipts.items()))
        if len(receipts) > self._window:
            del receipts[next(iter(receipts))]
            self._trimmed.add(publisher)
            self._count -= 1
        most = self._limit * RECEIPTS_PER_PUBLISHER
        while len(self._receipts) > self._limit or (self._count > most and len(self._receipts) > 1):
            forgotten, gone = self._receipts.popitem(last=False)
            self._trimmed.discard(forgotten)
            self._count -= len(gone)

    def entries(self) -> list[Entry]:
        """All receipts, the publisher heard of least recently first: `restore` makes the same of them."""
        return [
            Entry(publisher, number, *receipt)
            for publisher, receipts in self._receipts.items()
            for number, receipt in receipts.items()
        ]

    def restore(self, entries: Iterable[Entry]) -> None:
        """Take in what `entries` gave. A full window counts as one that had more."""
        for entry in entries:
            self.applied(*entry)
        self._trimmed.update(name for name, receipts in self._receipts.items() if len(receipts) == self._window)
