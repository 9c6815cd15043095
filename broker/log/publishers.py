"""Receipts of recent changes: each change is applied once, those of one publisher in order. Pure."""

from __future__ import annotations

from hashlib import blake2b
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from hullcast.broker.log.record import NOBODY
from hullcast.network.wire.errors import InvariantBroken, OutOfTurn, RetryTooOld, Superseded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Receipts of one publisher: more than the changes it may have on the way at once.
WINDOW = 64
#: About what the receipts of one key's publishers may take (9,000 of them, with all their receipts), and those of all.
KEY_BYTES, TOTAL_BYTES = 16 << 20, 64 << 20
#: What a publisher takes, beside its receipts.
PUBLISHER_BYTES = 256
#: Keys that are known to have had publishers that are forgotten; if there are more, all keys count as such (EVERY_KEY).
KEYS_FORGOTTEN = 10_000
EVERY_KEY = b""
#: Publishers whose latest refusal is remembered. It saves them a round trip; nothing else depends on it.
REFUSED = 1024

_ID_BYTES = 8
_RECEIPT = Struct("<QQQ")  # number, first, last


class Answered(NamedTuple):
    """What a change was answered with: the sequence numbers of its first and last update."""

    first: int
    last: int


class KeptReceipt(NamedTuple):
    """One receipt, as a checkpoint keeps it."""

    publisher: bytes
    number: int
    first: int
    last: int


def scoped(key: str, publisher: bytes) -> bytes:
    """A publisher's id as it is kept and logged. Its first half stands for the sender's key: no client can use the
    ids of another key, or push them out."""
    if publisher == NOBODY:
        return NOBODY
    return blake2b(key.encode(), digest_size=_ID_BYTES).digest() + blake2b(publisher, digest_size=_ID_BYTES).digest()


class KeptReceipts(NamedTuple):
    """All that `Publishers` knows at one moment; what is applied later does not change it."""

    packed: dict[bytes, bytes]
    forgotten: frozenset[bytes]

    def entries(self) -> Iterator[KeptReceipt]:
        """Every receipt; publishers whose last change is longest ago come first. Not for the event loop."""
        for publisher in sorted(self.packed, key=lambda publisher: _last(self.packed[publisher])[1:]):
            for receipt in _RECEIPT.iter_unpack(self.packed[publisher]):
                yield KeptReceipt(publisher, *receipt)


class Publishers:
    """The latest receipts of each publisher.

    A publisher's changes are applied in the order of their numbers. Several may be on the way at once, and some may be
    refused on the way (a queue is full) and come again: so each says which earlier one had no reply when it was sent,
    and is sent back if that has not been applied. A client that gave up a change no longer names it; should it arrive
    after a later one was applied, it is refused.

    Each key has its own limit: when it has too many publishers, those that it has not used for longest are forgotten.
    When all keys together have too many, those with most (within a factor of two) lose some. A change sent again by a
    publisher that is not known is refused if publishers of its key were forgotten: it might have been applied before.

    Invariants (`check` tests them):
      P1  the receipts of a publisher are those of its changes applied last, at most `window`, their numbers ascending.
      P2  all its changes applied have numbers up to that of its last receipt, so a higher one was never applied.
      P3  every publisher that had a change applied is known, or its key is among the forgotten.
      P4  each key's publishers take at most `key_bytes`, all together at most `total_bytes`, one publisher excepted.
    """

    def __init__(self, key_bytes: int = KEY_BYTES, total_bytes: int = TOTAL_BYTES, window: int = WINDOW) -> None:
        self._key_bytes, self._total_bytes, self._window = key_bytes, total_bytes, window
        self._packed: dict[bytes, bytes] = {}  # receipts by publisher
        self._keys: dict[bytes, dict[bytes, None]] = {}  # publishers by key, the one heard of least recently first
        self._sizes: dict[bytes, int] = {}  # bytes by key
        self._size = 0
        self._classes: dict[int, dict[bytes, None]] = {}  # keys by the number of bits of their size
        self._forgotten: set[bytes] = set()
        self._refused: dict[bytes, int] = {}  # by publisher the number refused last; not logged

    def __len__(self) -> int:
        """How many publishers are known."""
        return len(self._packed)

    def judge(self, publisher: bytes, number: int, after: int = 0, again: bool = False) -> Answered | None:
        """The answer to a change that was applied before, None for one that is to be applied now.

        OutOfTurn if the earlier change `after` was not handled yet. RetryTooOld if it is not known whether this one was
        applied before (`again`: it may have been). Superseded if it was not, but a later one was. Changes of NOBODY are
        never the same, and have no order.
        """
        if publisher == NOBODY:
            return None
        packed, latest = self._packed.get(publisher), 0
        if packed is not None:
            latest = _last(packed)[0]
            if number <= latest:
                return self._find(publisher, packed, number)
        elif again and self._has_forgotten(publisher):
            raise RetryTooOld(number, 0)
        if after > latest and after > self._refused.get(publisher, 0):
            raise OutOfTurn(number, after)
        return None

    def _find(self, publisher: bytes, packed: bytes, number: int) -> Answered:
        """The receipt of a change that is not later than the latest applied, or why there is none."""
        receipts = list(_RECEIPT.iter_unpack(packed))
        for kept, first, last in receipts:
            if kept == number:
                return Answered(first, last)
        oldest, latest = receipts[0][0], receipts[-1][0]
        if number < oldest and (len(receipts) == self._window or self._has_forgotten(publisher)):
            raise RetryTooOld(number, oldest)
        raise Superseded(number, latest)

    def _has_forgotten(self, publisher: bytes) -> bool:
        """Whether publishers of its key were forgotten, this one perhaps among them."""
        return publisher[:_ID_BYTES] in self._forgotten or EVERY_KEY in self._forgotten

    def applied(self, publisher: bytes, number: int, first: int, last: int) -> None:
        """Remember what a change was answered with."""
        if publisher == NOBODY:
            return
        packed = self._packed.get(publisher, b"")
        if packed and number <= _last(packed)[0]:  # a log from before changes had an order; it is not sent again
            return
        key = publisher[:_ID_BYTES]
        used = self._keys.setdefault(key, {})
        used.pop(publisher, None)
        used[publisher] = None
        self._packed[publisher] = kept = (packed + _RECEIPT.pack(number, first, last))[-self._window * _RECEIPT.size :]
        self._grow(key, len(kept) - len(packed) + (0 if packed else PUBLISHER_BYTES))
        if self._sizes[key] > self._key_bytes:
            self._shrink_key(key)
        if self._size > self._total_bytes:
            self._shrink_all()

    def refused(self, publisher: bytes, number: int) -> None:
        """A change was refused for good: those that were sent behind it need not wait for it."""
        self._refused[publisher] = max(number, self._refused.pop(publisher, 0))
        if len(self._refused) > REFUSED:
            for oldest in list(islice(self._refused, REFUSED // 2)):
                del self._refused[oldest]

    def capture(self) -> KeptReceipts:
        """All there is now, in the time it takes to copy a dict: no receipt is touched."""
        return KeptReceipts(self._packed.copy(), frozenset(self._forgotten))

    def restore(self, entries: Iterable[KeptReceipt], forgotten: Iterable[bytes]) -> None:
        """Take in what a captured `KeptReceipts` held."""
        self._forgotten.update(forgotten)
        for entry in entries:
            self.applied(*entry)

    # --- forgetting ----------------------------------------------------------------------------------------

    def _grow(self, key: bytes, size: int) -> None:
        before = self._sizes.get(key, 0)
        self._sizes[key] = before + size
        self._size += size
        if (now := (before + size).bit_length()) != before.bit_length():
            self._classes.get(before.bit_length(), {}).pop(key, None)
            self._classes.setdefault(now, {})[key] = None

    def _shrink_key(self, key: bytes) -> None:
        while self._sizes[key] > self._key_bytes and len(self._keys[key]) > 1:
            self._forget_some(key)

    def _shrink_all(self) -> None:
        """Forget some publishers of the keys with most. A part of the total goes at once: to find the first of a dict
        takes long where many were removed."""
        enough = self._total_bytes - self._total_bytes // 256
        while self._size > enough and len(self._packed) > 1:
            largest = max(size for size, keys in self._classes.items() if keys)
            for key in list(islice(self._classes[largest], 64)):
                self._forget_some(key)
                if self._size <= enough or len(self._packed) == 1:
                    break

    def _forget_some(self, key: bytes) -> None:
        """Forget a small part of a key's publishers at once, for the same reason."""
        used = self._keys[key]
        for publisher in list(islice(used, 1 + len(used) // 64)):
            self._forget(key, publisher)

    def _forget(self, key: bytes, publisher: bytes) -> None:
        self._grow(key, -PUBLISHER_BYTES - len(self._packed.pop(publisher)))
        del self._keys[key][publisher]
        if not self._keys[key]:
            del self._keys[key], self._sizes[key], self._classes[0][key]
        if EVERY_KEY not in self._forgotten:
            self._forgotten.add(key)
            if len(self._forgotten) > KEYS_FORGOTTEN:
                self._forgotten = {EVERY_KEY}

    def check(self) -> None:
        """InvariantBroken unless what is remembered is as the class says."""
        for publisher, packed in self._packed.items():
            numbers = [number for number, _, _ in _RECEIPT.iter_unpack(packed)]
            if not 0 < len(numbers) <= self._window or numbers != sorted(set(numbers)):
                raise InvariantBroken(f"P1: receipts {numbers} of publisher {publisher.hex()}")
        sizes = {key: sum(PUBLISHER_BYTES + len(self._packed[one]) for one in used) for key, used in self._keys.items()}
        if {key: name for name, keys in self._classes.items() for key in keys} != {
            key: size.bit_length() for key, size in sizes.items()
        }:
            raise InvariantBroken("P4: a key in the wrong class")
        if sizes != self._sizes or sum(sizes.values()) != self._size or sum(map(len, self._keys.values())) != len(self):
            raise InvariantBroken(f"P4: counted {self._size} bytes, found {sum(sizes.values())}")
        greedy = [key for key, size in sizes.items() if size > self._key_bytes and len(self._keys[key]) > 1]
        if greedy or (self._size > self._total_bytes and len(self) > 1):
            raise InvariantBroken(f"P4: {self._size} bytes in all, {len(greedy)} keys beyond {self._key_bytes}")


def _last(packed: bytes) -> tuple[int, int, int]:
    number, first, last = _RECEIPT.unpack_from(packed, len(packed) - _RECEIPT.size)
    return number, first, last
