"""Finds the slot of a row by its key: a hash table of key codes, for whole columns of keys.

Not a dict: at a million rows nearly every step of a dict lookup is a wait for memory (entry, key object, slot object),
one after the other, and each entry takes some 150 bytes. Here an entry takes 16 bytes, about half of them at most are
in use, and a batch's places are fetched ahead of their turn.

A table that doubles does so in place, from its end, some places for each key that comes. A home is the upper bits of a
key's hash, so what was at home h belongs to 2h or 2h + 1, behind everything that has not moved yet::

    homes by 2 bits     | 0 | 1 | 2 | 3 |                       boundary 4
    half of them moved  | 0 | 1 |   |   | 4 | 5 | 6 | 7 |       boundary 2: 2 and 3 are now 4 to 7
    homes by 3 bits     | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |       boundary 0, which is to say 8
"""

from __future__ import annotations

import numpy as np

from hullcast.broker.tables.room import SMALLEST, with_room
from hullcast.network.compiled import borrowing, kernel, part, prefetch
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.network.wire.errors import InvariantBroken

ABSENT = -1
#: Homes that are divided for each key that comes, while there are too few of them. Two would be enough.
DIVIDED = 8
_AT_ONCE = 512  # homes: what is moved stays in the cache
_AHEAD = 16
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: neighbouring keys land far apart (Knuth 6.4)

# A table is one array: these figures, then places of two numbers each, the bits of a key and its slot + 1 (0: empty).
SHIFT, BOUNDARY, LIVE = 0, 1, 2
PLACES = 8


class KeyMap:
    """Key codes (no NaN, one sign of zero) to slots (0 and up). Kernels search `table` by `find`.

    Invariants (`check` tests them):
      K1  A key stands at most once, and no place from its home to where it stands is empty.
      K2  There are at most half as many keys as homes; while these are divided, an eighth (1 / DIVIDED) more.
      K3  Homes from the boundary on are divided; the table has room for them all, and for all keys behind the last.

    Cost: O(1) a key, growth included: `assign` divides at most DIVIDED homes for each key, and what they touch.
    """

    def __init__(self) -> None:
        self.table: Ints = np.zeros(PLACES + 4 * SMALLEST, np.int64)
        self.table[SHIFT] = 64 - SMALLEST.bit_length() + 1
        self.table[BOUNDARY] = SMALLEST

    def __len__(self) -> int:
        return int(self.table[LIVE])

    def find(self, keys: Floats) -> Ints:
        """The slot of each key, ABSENT where there is none."""
        slots = np.empty(len(keys), np.int64)
        find(self.table, keys.view(np.int64), slots)
        return slots

    def assign(self, keys: Floats, fresh: Ints) -> tuple[Ints, int]:
        """The slot of each key, in order; a key that is not there yet takes the next of the fresh slots.

        Returns the slots and how many fresh ones were taken; there must be enough of them.
        """
        self.make_room(len(fresh))
        slots = np.empty(len(keys), np.int64)
        return slots, _assign(self.table, keys.view(np.int64), fresh, slots, DIVIDED * len(fresh))

    def make_room(self, more: int) -> None:
        """Have memory for so many more keys (K3)."""
        count = len(self) + more
        homes = 2 * self._size if self.table[BOUNDARY] < self._size else self._size
        self.table = with_room(self.table, PLACES + 2 * (max(homes, 4 * count) + count + 1))

    def remove(self, keys: Floats) -> Ints:
        """Forget keys, in order; gives their slots, ABSENT where there is none (any more)."""
        slots = np.empty(len(keys), np.int64)
        _remove(self.table, keys.view(np.int64), slots)
        return slots

    def memory_bytes(self) -> int:
        """Bytes of the places that are homes."""
        return 16 * self._homes

    def check(self) -> None:
        """InvariantBroken unless K1 to K3 hold."""
        bits, slots = self.table[PLACES::2], self.table[PLACES + 1 :: 2] - 1
        taken = slots >= 0
        keys = bits[taken].view(np.float64)
        if len(keys) != len(self) or len(set(keys.tolist())) != len(self):
            raise InvariantBroken("K1: keys are not counted, or not there once each")
        if not np.array_equal(self.find(keys), slots[taken]):
            raise InvariantBroken("K1: a key is not found")
        if len(self) > self._size // 2 + (self._size // DIVIDED if self.table[BOUNDARY] < self._size else 0):
            raise InvariantBroken("K2: there are too few homes")
        if not 0 < self.table[BOUNDARY] <= self._size or len(bits) <= self._homes + len(self):
            raise InvariantBroken("K3: the boundary is out of range, or the table too short")

    @property
    def _size(self) -> int:
        """How many homes there are, those that are divided counted once."""
        return 1 << int(64 - self.table[SHIFT])

    @property
    def _homes(self) -> int:
        return 2 * self._size - int(self.table[BOUNDARY])


@borrowing
def home(table: Ints, key: int) -> int:
    """Where a key belongs, as an index into the table: the upper bits of a product are the well mixed ones.

    Codes are float64: of a small whole number only the upper bits are not zero, so they are folded down first.
    """
    bits = np.uint64(key)
    mixed = (bits ^ (bits >> np.uint64(32))) * _SPREAD
    home = int(np.int64(mixed >> np.uint64(table[SHIFT])))  # to numba int alone is unsigned, and soon a float
    if home >= table[BOUNDARY]:
        home = int(np.int64(mixed >> np.uint64(table[SHIFT] - 1)))
    return PLACES + 2 * home


@borrowing
def _place(table: Ints, key: int) -> int:
    """Where a key stands, or the empty place where its search ends. The last place is always empty (K3)."""
    at = home(table, key)
    while table[at + 1] != 0 and table[at] != key:
        at += 2
    return at


@borrowing
def _look_ahead(table: Ints, keys: Ints, i: int) -> None:
    if i + _AHEAD < len(keys):
        prefetch(table, home(table, keys[i + _AHEAD]))


@kernel
def find(table: Ints, keys: Ints, found: Ints) -> bool:
    """The slot of each key (its bits), ABSENT where there is none; returns whether all are there."""
    there = True
    for i in range(len(keys)):
        _look_ahead(table, keys, i)
        found[i] = table[_place(table, keys[i]) + 1] - 1
        there &= found[i] >= 0
    return there


@kernel
def _assign(table: Ints, keys: Ints, fresh: Ints, found: Ints, homes: int) -> int:
    """Divide up to so many homes, and give slots to keys; returns how many."""
    divide_some(table, len(fresh), homes)
    taken = 0
    for i in range(len(keys)):
        _look_ahead(table, keys, i)
        at = _place(table, keys[i])
        if table[at + 1] == 0:
            table[at] = keys[i]
            table[at + 1] = fresh[taken] + 1
            taken += 1
        found[i] = table[at + 1] - 1
    table[LIVE] += taken
    return taken


@kernel
def _remove(table: Ints, keys: Ints, found: Ints) -> None:
    for i in range(len(keys)):
        _look_ahead(table, keys, i)
        at = _place(table, keys[i])
        found[i] = table[at + 1] - 1
        if found[i] < 0:
            continue
        take_out(table, at)


@part
def take_out(table: Ints, at: int) -> None:
    """Empty a place."""
    table[LIVE] -= 1
    other = at + 2
    while table[other + 1] != 0:  # whoever may, moves up, so that no search ends at the gap
        if home(table, table[other]) <= at:
            table[at], table[at + 1] = table[other], table[other + 1]
            at = other
        other += 2
    table[at + 1] = 0


@part
def divide_some(table: Ints, coming: int, homes: int) -> None:
    """Divide up to so many homes, if there are too few, or will be when as many keys come."""
    while homes > 0:
        size = 1 << (64 - table[SHIFT])
        if table[BOUNDARY] == size and 2 * (table[LIVE] + coming) <= size:
            break
        homes -= _divide(table, min(homes, _AT_ONCE))


@part
def _divide(table: Ints, homes: int) -> int:
    """Divide the homes before the boundary, at least so many if there are; returns how many.

    The first of them is behind an empty place, so that all keys of theirs, and of no homes before them, are taken out.
    """
    boundary = int(table[BOUNDARY])
    first = max(0, boundary - homes)
    while first > 0 and table[PLACES + 2 * first - 1] != 0:
        first -= 1
    end = PLACES + 2 * boundary
    while table[end + 1] != 0:
        end += 2
    start = PLACES + 2 * first
    moved, n = np.empty(end - start, np.int64), 0
    for at in range(start, end, 2):
        if table[at + 1] != 0:
            moved[n], moved[n + 1] = table[at], table[at + 1]
            table[at + 1] = 0
            n += 2
    table[BOUNDARY] = first
    if first == 0:
        table[SHIFT] -= 1
        table[BOUNDARY] = 1 << (64 - table[SHIFT])
    for i in range(0, n, 2):
        at = home(table, moved[i])
        while table[at + 1] != 0:  # they are all different
            at += 2
        table[at], table[at + 1] = moved[i], moved[i + 1]
    return boundary - first
