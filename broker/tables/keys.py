"""Finds the slot of a row by its key: a hash table of key codes, for whole columns of keys.

Not a dict: at a million rows nearly every step of a dict lookup is a wait for memory (entry, key object, slot object),
one after the other, and each entry takes some 150 bytes. Here an entry takes 16 bytes, at most half of them
are in use, and a batch's places are fetched ahead of their turn.
"""

from __future__ import annotations

import numpy as np

from hullcast.network.compiled import inlined, kernel, prefetch
from hullcast.network.wire.arrays import Floats, Ints

ABSENT = -1
_EMPTY, _GONE = -1, -2  # slots of places never used, and of places whose key was removed
_SMALLEST = 64
_AHEAD = 8
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: neighbouring keys land far apart (Knuth 6.4)


class KeyMap:
    """Key codes (no NaN, one sign of zero) to slots (0 and up). Kernels search `keys` (bits) and `slots` by `find`.

    Invariants (`check` tests them):
      K1  A key stands at most once, on the way from its home to the next empty place.
      K2  The number of places is a power of two, and at most half of them are used or gone.
    """

    def __init__(self) -> None:
        self._used = 0  # places not empty
        self._live = 0
        self._clear(_SMALLEST)

    def __len__(self) -> int:
        return self._live

    def find(self, keys: Floats) -> Ints:
        """The slot of each key, ABSENT where there is none."""
        slots = np.empty(len(keys), np.int64)
        find(self.keys, self.slots, keys.view(np.int64), slots)
        return slots

    def assign(self, keys: Floats, fresh: Ints) -> tuple[Ints, int]:
        """The slot of each key, in order; a key that is not there yet takes the next of the fresh slots.

        Returns the slots and how many fresh ones were taken; there must be enough of them.
        """
        self._make_room(len(fresh))
        slots = np.empty(len(keys), np.int64)
        taken = _assign(self.keys, self.slots, keys.view(np.int64), fresh, slots)
        self._live += taken
        self._used += taken
        return slots, taken

    def remove(self, keys: Floats) -> Ints:
        """Forget keys, in order; gives their slots, ABSENT where there is none (any more)."""
        slots = np.empty(len(keys), np.int64)
        self._live -= _remove(self.keys, self.slots, keys.view(np.int64), slots)
        return slots

    def memory_bytes(self) -> int:
        """Bytes of the table."""
        return self.keys.nbytes + self.slots.nbytes

    def items(self) -> tuple[Floats, Ints]:
        """All keys and their slots, in no particular order."""
        there = self.slots >= 0
        return self.keys[there].view(np.float64), self.slots[there]

    def check(self) -> None:
        """Verify K1 and K2."""
        keys, slots = self.items()
        assert len(keys) == self._live == len(set(keys.tolist())), "K1"
        assert np.array_equal(self.find(keys), slots), "K1"
        size = len(self.keys)
        assert size & (size - 1) == 0, "K2"
        assert np.count_nonzero(self.slots != _EMPTY) == self._used <= size // 2, "K2"

    def _clear(self, size: int) -> None:
        self.keys: Ints = np.zeros(size, np.int64)
        self.slots: Ints = np.full(size, _EMPTY, np.int64)
        self._used = 0

    def _make_room(self, more: int) -> None:
        if 2 * (self._used + more) <= len(self.keys):
            return
        size = _SMALLEST
        while size < 4 * (self._live + more):
            size *= 2
        keys, slots = self.items()
        self._clear(size)
        self._used = _assign(self.keys, self.slots, keys.view(np.int64), slots, np.empty(len(keys), np.int64))


@inlined
def _home(key: int, mask: int) -> int:
    """Where a key belongs: the upper bits of a product are the well mixed ones.

    Codes are float64: of a small whole number only the upper bits are not zero, so they are folded down first.
    """
    bits = np.uint64(key)
    return int(((bits ^ (bits >> np.uint64(32))) * _SPREAD) >> np.uint64(32)) & mask


@inlined
def _place(table: Ints, slots: Ints, key: int) -> int:
    """Where a key stands, or the empty place where its search ends."""
    mask = len(table) - 1
    at = _home(key, mask)
    while slots[at] != _EMPTY and (table[at] != key or slots[at] == _GONE):
        at = (at + 1) & mask
    return at


@inlined
def _look_ahead(table: Ints, slots: Ints, keys: Ints, i: int) -> None:
    if i + _AHEAD < len(keys):
        at = _home(keys[i + _AHEAD], len(table) - 1)
        prefetch(table, at)
        prefetch(slots, at)


@kernel
def find(table: Ints, slots: Ints, keys: Ints, found: Ints) -> bool:
    """The slot of each key (its bits), ABSENT where there is none; returns whether all are there."""
    there = True
    for i in range(len(keys)):
        _look_ahead(table, slots, keys, i)
        found[i] = slots[_place(table, slots, keys[i])]
        there &= found[i] >= 0
    return there


@kernel
def _assign(table: Ints, slots: Ints, keys: Ints, fresh: Ints, found: Ints) -> int:
    taken = 0
    for i in range(len(keys)):
        _look_ahead(table, slots, keys, i)
        at = _place(table, slots, keys[i])
        if slots[at] == _EMPTY:
            table[at] = keys[i]
            slots[at] = fresh[taken]
            taken += 1
        found[i] = slots[at]
    return taken


@kernel
def _remove(table: Ints, slots: Ints, keys: Ints, found: Ints) -> int:
    removed = 0
    for i in range(len(keys)):
        _look_ahead(table, slots, keys, i)
        at = _place(table, slots, keys[i])
        found[i] = slots[at]  # _EMPTY is ABSENT
        if slots[at] != _EMPTY:
            slots[at] = _GONE
            removed += 1
    return removed
