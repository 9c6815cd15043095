"""The outbox: events that wait for the subscriptions of one channel, in bounded memory."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.network.compiled import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.network.wire.arrays import Floats, Ints


NO_RESTS: Floats = np.empty(0)
NO_PLACES: Ints = np.empty(0, np.int64)

SMALLEST = 1024
SUBSCRIPTION, NEXT, SEQ, ITEM = 0, 1, 2, 3  # columns of `events`
HEAD, TAIL, WAITING, LOST = 0, 1, 2, 3  # columns of `lists`
START, END, LIVE = 0, 1, 2  # of `state`


class Taken(NamedTuple):
    """The waiting events of one subscription, oldest first, as columns."""

    seqs: list[int]
    values: list[float]
    rests: list[float]
    items: list[object]


class Outbox:
    """A ring of events shared by all subscriptions of a channel, each of which can take its own, in order.

    When full, the oldest event of all is dropped and its subscription's LOST counter rises: one subscription that
    nobody drains cannot make the outbox grow, nor block the others. (Not a queue a subscription: with a million of
    them, most empty, the arrays of one ring are far smaller.)

    An event is numbered by its position since the beginning, and lives at that number modulo the capacity. The
    events of one subscription are chained by NEXT from its HEAD to its TAIL::

        position   .. 40  41  42  43  44     START 40, END 45; 42 was taken already: a hole
        subscr.        7   3   -   7   3     HEAD[7] = 40, NEXT[40] = 43, TAIL[7] = 43

    Invariants (`check` tests them):
      O1  START <= END <= START + capacity; the capacity is a power of two, at most the limit.
      O2  Each chain runs through rising positions, all of that subscription; WAITING is its length.
      O3  LIVE is the number of positions that are not holes; the event at START is not a hole.
      O4  Items are held for positions from START on only, so there are no more chunks than positions.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"an outbox must have room for at least 1 event, got a limit of {limit}")
        self.limit = 1 << (limit - 1).bit_length()
        self._allocate(min(SMALLEST, self.limit))
        self._lists: Ints = np.full((16, 4), -1, np.int64)
        self._lists[:, WAITING:] = 0
        self._state: Ints = np.zeros(3, np.int64)
        self._chunks: list[Sequence[object]] = []  # items that events point to, released with the events
        self._bases: list[int] = []
        self._next_item = 0

    def __len__(self) -> int:
        """Events waiting."""
        return int(self._state[LIVE])

    def reserve(self, subscriptions: int) -> None:
        """Be ready for subscription numbers below this."""
        if subscriptions > len(self._lists):
            lists = np.full((max(subscriptions, 2 * len(self._lists)), 4), -1, np.int64)
            lists[:, WAITING:] = 0
            lists[: len(self._lists)] = self._lists
            self._lists = lists

    def put(
        self,
        subscriptions: Ints,
        seqs: Ints,
        values: Floats,
        rests: Floats = NO_RESTS,
        places: Ints = NO_PLACES,
        items: Sequence[object] = (),
    ) -> None:
        """Append events: a value and perhaps a rest each; with items, event k carries items[places[k]]."""
        n = len(subscriptions)
        if not n:
            return
        self._make_room(n)
        base = self._next_item
        if items:
            self._chunks.append(items)
            self._bases.append(base)
            self._next_item += len(items)
        _put(self._events, self._numbers, self._lists, self._state, subscriptions, seqs, values, rests, places, base)
        if items:
            self._release()

    def take(self, subscription: int) -> Taken:
        """Remove and return what waits for one subscription."""
        n = int(self._lists[subscription, WAITING])
        if not n:
            return Taken([], [], [], [])
        events, numbers = np.empty((n, 4), np.int64), np.empty((n, 2))
        _take(self._events, self._numbers, self._lists, self._state, subscription, events, numbers)
        items = [self._item(number) for number in events[:, ITEM].tolist()]
        self._release()
        return Taken(events[:, SEQ].tolist(), numbers[:, 0].tolist(), numbers[:, 1].tolist(), items)

    def lose(self, subscriptions: Ints) -> None:
        """An event of each of these was lost."""
        self._lists[subscriptions, LOST] += 1

    def amend(self, subscription: int, seq: int, value: float, rest: float) -> None:
        """Correct what the event of a subscription at `seq`, its last, says; add it if there is none."""
        if self._told_at(subscription, seq):
            self._numbers[self._lists[subscription, TAIL] & (len(self._events) - 1)] = value, rest
        else:
            self.put(np.array([subscription]), np.array([seq]), np.array([value]), np.array([rest]))

    def retract(self, subscription: int, seq: int) -> None:
        """Take back the event of a subscription at `seq`, its last, if there is one: nothing happened after all."""
        if self._told_at(subscription, seq):
            taken = self.take(subscription)
            kept = len(taken.seqs) - 1
            self.put(
                np.full(kept, subscription),
                np.array(taken.seqs[:kept], np.int64),
                np.array(taken.values[:kept], np.float64),
                np.array(taken.rests[:kept], np.float64),
            )

    def _told_at(self, subscription: int, seq: int) -> bool:
        """Whether the last waiting event of a subscription is at `seq`."""
        last = self._lists[subscription, TAIL] & (len(self._events) - 1)
        return bool(self._lists[subscription, WAITING] and self._events[last, SEQ] == seq)

    def who_waits(self) -> Ints:
        """The subscriptions with events, waiting or lost."""
        return np.flatnonzero((self._lists[:, WAITING:] > 0).any(axis=1))

    def waiting(self, subscription: int) -> int:
        """How many events wait for a subscription."""
        return int(self._lists[subscription, WAITING])

    def take_lost(self, subscription: int) -> int:
        """How many events of a subscription were dropped since last asked."""
        lost = int(self._lists[subscription, LOST])
        self._lists[subscription, LOST] = 0
        return lost

    def forget(self, subscriptions: Ints) -> None:
        """Drop what waits for subscriptions that leave; their numbers may be given to others."""
        lists = self._lists[subscriptions]
        for subscription in subscriptions[lists[:, WAITING] > 0].tolist():
            self.take(subscription)
        self._lists[subscriptions, LOST] = 0

    def memory_bytes(self) -> int:
        """Bytes of the arrays."""
        return self._events.nbytes + self._numbers.nbytes + self._lists.nbytes

    def check(self) -> None:
        """Verify O1 to O4."""
        start, end, live = self._state.tolist()
        mask = len(self._events) - 1
        assert start <= end <= start + len(self._events) <= start + self.limit, "O1"
        assert len(self._events) & mask == 0, "O1"
        seen = 0
        for subscription, (head, tail, waiting, _) in enumerate(self._lists.tolist()):
            at, last, count = head, -1, 0
            while at >= 0:
                assert max(start, last + 1) <= at < end, "O2"
                assert self._events[at & mask, SUBSCRIPTION] == subscription, "O2"
                last, count, at = at, count + 1, int(self._events[at & mask, NEXT])
            assert (count, last) == (waiting, tail), "O2"
            seen += count
        assert seen == live, "O3"
        assert start == end or self._events[start & mask, SUBSCRIPTION] >= 0, "O3"
        assert len(self._chunks) <= max(1, end - start), "O4"

    def _item(self, number: int) -> object:
        if number < 0:
            return None
        chunk = bisect_right(self._bases, number) - 1
        return self._chunks[chunk][number - self._bases[chunk]]

    def _release(self) -> None:
        """Let go of the items that no waiting event can point to any more."""
        start, end, _ = self._state.tolist()
        oldest = self._next_item if start == end else int(self._events[start & (len(self._events) - 1), ITEM])
        keep = max(0, bisect_right(self._bases, oldest) - 1) if start != end else len(self._bases)
        del self._chunks[:keep], self._bases[:keep]

    def _allocate(self, capacity: int) -> None:
        self._events: Ints = np.empty((capacity, 4), np.int64)
        self._numbers: Floats = np.empty((capacity, 2))

    def _make_room(self, wanted: int) -> None:
        """Close the holes if that is enough; else double the ring, up to the limit, until it holds so many more."""
        start, end, live = self._state.tolist()
        capacity = len(self._events)
        if end - start + wanted > capacity and 2 * live <= end - start:
            self._close_holes()
            start, end, _ = self._state.tolist()
        while capacity < self.limit and end - start + wanted > capacity:
            capacity *= 2
        if capacity > len(self._events):
            events, numbers = self._events, self._numbers
            positions = np.arange(start, end)
            old, new = positions & (len(events) - 1), positions & (capacity - 1)
            self._allocate(capacity)
            self._events[new] = events[old]
            self._numbers[new] = numbers[old]

    def _close_holes(self) -> None:
        """Move the waiting events together, in order. At least half are holes then, so it pays for itself."""
        start, end, live = self._state.tolist()
        positions = np.arange(start, end)
        places = positions & (len(self._events) - 1)
        waits = self._events[places, SUBSCRIPTION] >= 0
        old, places = positions[waits], places[waits]
        events, numbers = self._events[places], self._numbers[places]

        def moved(numbers_of_positions: Ints) -> Ints:
            """Old positions as new ones; -1, the end of a chain, stays."""
            return np.where(numbers_of_positions < 0, -1, start + np.searchsorted(old, numbers_of_positions))

        if self._chunks:  # the items move too: a chunk would be held for one of its many
            items = [self._item(number) for number in events[:, ITEM].tolist()]
            self._chunks, self._bases = [items], [self._next_item]
            events[:, ITEM] = np.arange(self._next_item, self._next_item + live)
            self._next_item += live
        events[:, NEXT] = moved(events[:, NEXT])
        self._lists[:, HEAD:WAITING] = moved(self._lists[:, HEAD:WAITING])
        places = np.arange(start, start + live) & (len(self._events) - 1)
        self._events[places], self._numbers[places] = events, numbers
        self._state[END] = start + live


@kernel
def _put(
    events: Ints,
    numbers: Floats,
    lists: Ints,
    state: Ints,
    subscriptions: Ints,
    seqs: Ints,
    values: Floats,
    rests: Floats,
    places: Ints,
    base: int,
) -> None:
    capacity = len(events)
    mask = capacity - 1
    for k in range(len(subscriptions)):
        end = state[END]
        if end - state[START] == capacity:  # by O3 the oldest is no hole: drop it
            oldest = state[START] & mask
            loser = events[oldest, SUBSCRIPTION]
            lists[loser, HEAD] = events[oldest, NEXT]
            if lists[loser, HEAD] < 0:
                lists[loser, TAIL] = -1
            lists[loser, WAITING] -= 1
            lists[loser, LOST] += 1
            state[LIVE] -= 1
            events[oldest, SUBSCRIPTION] = -1
            while state[START] < end and events[state[START] & mask, SUBSCRIPTION] < 0:
                state[START] += 1
        subscription = subscriptions[k]
        at = end & mask
        events[at, SUBSCRIPTION] = subscription
        events[at, NEXT] = -1
        events[at, SEQ] = seqs[k]
        events[at, ITEM] = base + places[k] if len(places) else -1
        numbers[at, 0] = values[k]
        numbers[at, 1] = rests[k] if len(rests) else 0.0
        if lists[subscription, TAIL] >= 0:
            events[lists[subscription, TAIL] & mask, NEXT] = end
        else:
            lists[subscription, HEAD] = end
        lists[subscription, TAIL] = end
        lists[subscription, WAITING] += 1
        state[LIVE] += 1
        state[END] = end + 1


@kernel
def _take(
    events: Ints, numbers: Floats, lists: Ints, state: Ints, subscription: int, taken: Ints, values: Floats
) -> None:
    mask = len(events) - 1
    at, k = lists[subscription, HEAD], 0
    while at >= 0:
        i = at & mask
        for column in range(4):
            taken[k, column] = events[i, column]
        values[k, 0], values[k, 1] = numbers[i, 0], numbers[i, 1]
        events[i, SUBSCRIPTION] = -1
        at = events[i, NEXT]
        k += 1
    lists[subscription, HEAD] = lists[subscription, TAIL] = -1
    lists[subscription, WAITING] = 0
    state[LIVE] -= k
    while state[START] < state[END] and events[state[START] & mask, SUBSCRIPTION] < 0:
        state[START] += 1
