"""Tuples of two sides in arrays: found by value through hash chains, let go in order of arrival.

A slot holds one tuple. Three lists go through the slots::

    buckets (side, hash of the value):  first -> slot -> slot -> last     all tuples of one value, oldest first
    ends of a side:                     first -> slot -> slot -> last     all tuples of a side, oldest first
    free slots:                         first -> slot

so that to insert, to remove and to find the oldest take O(1), and matches are met in order of arrival.

Invariants (`check_kept` tests them):
  K1  A slot is free, or it is in the list of its side and in the chain of its value.
  K2  Both lists are in order of NUMBER; links in both directions agree; COUNT says how many there are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hullcast.network.compiled import borrowing, kernel
from hullcast.network.wire.arrays import Floats, Ints
from hullcast.network.wire.errors import InvariantBroken

#: Columns of `links`, a row for each slot. KEY has the bits of the value: equal where values are.
SAME_NEXT, SAME_BEFORE, NEXT, BEFORE, SIDE, NUMBER, ORDINAL, STEP, USED, KEY = range(10)
#: Columns of `places`, a row for each slot.
CODE, TIME = range(2)
#: Rows of `ends`: those of the sides, then the list of free slots. Columns: see below.
FREE = 2
FIRST, LAST, COUNT = range(3)
NONE = -1
_SMALLEST = 64


class Slots(NamedTuple):
    """The arrays; kernels take them as they are."""

    links: Ints
    places: Floats
    buckets: Ints  # (2 x size, 2): the first and the last slot of each chain
    ends: Ints


def new_kept(capacity: int) -> Slots:
    """Room for so many tuples, none there."""
    capacity = max(_SMALLEST, capacity)
    size = 1 << (capacity - 1).bit_length()
    links = np.full((capacity, 10), NONE, np.int64)
    links[:, NEXT] = np.arange(1, capacity + 1)
    links[-1, NEXT] = NONE
    ends = np.array([[NONE, NONE, 0], [NONE, NONE, 0], [0, NONE, capacity]], np.int64)
    return Slots(links, np.zeros((capacity, 2)), np.full((2 * size, 2), NONE, np.int64), ends)


def grown_kept(kept: Slots, capacity: int) -> Slots:
    """The same tuples with more room; O(n), and slots change."""
    larger = new_kept(capacity)
    move_all(kept, larger)
    return larger


def check_kept(kept: Slots) -> None:
    """Verify K1 and K2, or raise InvariantBroken."""
    links, _, buckets, ends = kept
    seen: list[int] = []
    for side in (0, 1):
        listed = _walk(links, ends[side], NEXT, BEFORE)
        _expect(len(listed) == ends[side, COUNT], "K2 COUNT of a side")
        _expect(all(links[slot, SIDE] == side for slot in listed), "K1 a side lists its own tuples")
        seen += listed
    chained: list[int] = []
    size = len(buckets) // 2
    for bucket, chain in enumerate(buckets):
        for slot in _walk(links, chain, SAME_NEXT, SAME_BEFORE):
            wanted = links[slot, SIDE] * size + bucket_of(links[slot, KEY], size)
            _expect(wanted == bucket, "K1 a tuple is in the chain of its value")
            chained.append(slot)
    _expect(sorted(chained) == sorted(seen), "K1 both lists hold the same")
    free = _walk(links, ends[FREE], NEXT, -1)
    _expect(sorted(free + seen) == list(range(len(links))), "K1 a slot is free or in use")


def _walk(links: Ints, ends: Ints, onward: int, back: int) -> list[int]:
    found, at, before = [], int(ends[FIRST]), NONE
    while at != NONE:
        if back >= 0:
            _expect(links[at, back] == before, "K2 links in both directions")
            _expect(before == NONE or links[before, NUMBER] < links[at, NUMBER], "K2 order of arrival")
        found.append(at)
        before, at = at, int(links[at, onward])
    if back >= 0:
        _expect(ends[LAST] == before, "K2 the last is the last")
    return found


def _expect(holds: object, what: str) -> None:
    if not holds:
        raise InvariantBroken(what)


@kernel
def mixed(number: int) -> int:
    """63 well-mixed bits of a number (the finalizer of SplitMix64): chance that is the same on every machine."""
    z = np.uint64(number) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return int(np.int64((z ^ (z >> np.uint64(31))) >> np.uint64(1)))


@kernel
def bucket_of(key: int, size: int) -> int:
    """Its chain, of `size` (a power of two)."""
    return mixed(key) & (size - 1)


@borrowing
def insert(kept: Slots, side: int, key: int, code: float, number: int, ordinal: int, time: float, step: int) -> int:
    """Put a tuple into a free slot, which there must be; the slot. It is the newest of its side."""
    links, places, buckets, ends = kept
    slot = ends[FREE, FIRST]
    ends[FREE, FIRST] = links[slot, NEXT]
    ends[FREE, COUNT] -= 1
    size = len(buckets) // 2
    chain = side * size + bucket_of(key, size)
    places[slot, CODE], places[slot, TIME] = code, time
    links[slot, SIDE], links[slot, NUMBER], links[slot, ORDINAL] = side, number, ordinal
    links[slot, STEP], links[slot, USED], links[slot, KEY] = step, step, key
    before = buckets[chain, LAST]
    links[slot, SAME_BEFORE], links[slot, SAME_NEXT] = before, NONE
    if before == NONE:
        buckets[chain, FIRST] = slot
    else:
        links[before, SAME_NEXT] = slot
    buckets[chain, LAST] = slot
    before = ends[side, LAST]
    links[slot, BEFORE], links[slot, NEXT] = before, NONE
    if before == NONE:
        ends[side, FIRST] = slot
    else:
        links[before, NEXT] = slot
    ends[side, LAST] = slot
    ends[side, COUNT] += 1
    return int(slot)


@borrowing
def remove(kept: Slots, slot: int) -> None:
    """Free a slot."""
    links, _, buckets, ends = kept
    side = links[slot, SIDE]
    size = len(buckets) // 2
    chain = side * size + bucket_of(links[slot, KEY], size)
    before, after = links[slot, SAME_BEFORE], links[slot, SAME_NEXT]
    if before == NONE:
        buckets[chain, FIRST] = after
    else:
        links[before, SAME_NEXT] = after
    if after == NONE:
        buckets[chain, LAST] = before
    else:
        links[after, SAME_BEFORE] = before
    before, after = links[slot, BEFORE], links[slot, NEXT]
    if before == NONE:
        ends[side, FIRST] = after
    else:
        links[before, NEXT] = after
    if after == NONE:
        ends[side, LAST] = before
    else:
        links[after, BEFORE] = before
    ends[side, COUNT] -= 1
    links[slot, NUMBER] = NONE
    links[slot, NEXT] = ends[FREE, FIRST]
    ends[FREE, FIRST] = slot
    ends[FREE, COUNT] += 1


@kernel
def move_all(kept: Slots, larger: Slots) -> None:
    """Insert all tuples of one into the other, in order of arrival."""
    links, places = kept.links, kept.places
    for side in range(2):
        slot = kept.ends[side, FIRST]
        while slot != NONE:
            copy = insert(
                larger, side, links[slot, KEY], places[slot, CODE], links[slot, NUMBER], links[slot, ORDINAL],
                places[slot, TIME], links[slot, STEP],
            )  # fmt: skip
            larger.links[copy, USED] = links[slot, USED]
            slot = links[slot, NEXT]


@kernel
def list_numbers(kept: Slots, found: Ints) -> int:
    """Numbers of all tuples, side by side; how many there are."""
    n = 0
    for side in range(2):
        slot = kept.ends[side, FIRST]
        while slot != NONE:
            found[n] = kept.links[slot, NUMBER]
            n += 1
            slot = kept.links[slot, NEXT]
    return n
