"""The audience of a channel: who listens here, where each one's predicate lies, what waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from hullcast.network.answers.outbox import NO_PLACES, NO_RESTS
from hullcast.network.compiled import inlined
from hullcast.network.matching.duality import in_rectangles
from hullcast.network.matching.index import PointIndex
from hullcast.network.matching.search import report_some
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hullcast.network.wire.arrays import Booleans, Floats, Ints


#: Pairs (message, listener) handled at once. More would only cost memory: a message may concern everybody.
PAIRS = 1 << 18


class EventSink(Protocol):
    """Where the events of listeners go: the `Outbox` of an engine's channel, or the `Mailbox` of a client."""

    def reserve(self, subscriptions: int) -> None: ...

    def put(
        self,
        subscriptions: Ints,
        seqs: Ints,
        values: Floats,
        rests: Floats = NO_RESTS,
        places: Ints = NO_PLACES,
        items: Sequence[object] = (),
    ) -> None: ...

    def forget(self, subscriptions: Ints) -> None: ...


class Audience:
    """Numbers for listeners, the index that finds them by predicate, and where their events go.

    Listeners have small numbers, reused after they leave, so that answers can live in plain arrays beside the index.
    A point in the index has the number of its listener. One with several points (none of whose boxes overlap) has more
    numbers, which nobody else knows.
    """

    def __init__(self, dimensions: int, outbox: EventSink) -> None:
        self.index = PointIndex(max(1, dimensions))
        self.outbox = outbox
        self._free: dict[int, None] = {}  # in the order they left
        self._used = 0
        self._silent: set[int] = set()  # points that no message can ever concern: not in the index
        self._further: dict[int, Ints] = {}  # by listener with several points: the numbers of all but the first
        self._listener: Ints = np.empty(0, np.int64)  # by number, if some listener has several points

    def __len__(self) -> int:
        return self._used - len(self._free) - sum(map(len, self._further.values()))

    @property
    def capacity(self) -> int:
        """Numbers given out so far are below this."""
        return self._used

    def admit(self, points: Floats, never: Booleans | None = None, of: Ints | None = None) -> Ints:
        """Numbers for new listeners with these predicates (n, dimensions); `never` marks those that match nothing. `of`
        says which listener each is of, from 0 in order; None: each of its own."""
        n = len(points)
        numbers = [self._free.popitem()[0] for _ in range(min(n, len(self._free)))]
        numbers.extend(range(self._used, self._used + n - len(numbers)))
        self._used = max(self._used, max(numbers, default=-1) + 1)
        ids = np.array(numbers, np.int64)
        self.outbox.reserve(self._used)
        if self._further or of is not None:
            self._listener = np.concatenate((self._listener, np.arange(len(self._listener), self._used)))
        admitted = ids if of is None else self._share(ids, of)
        if never is None or not never.any():
            self.index.insert(ids, points)
        else:
            self._silent.update(ids[never].tolist())
            self.index.insert(ids[~never], points[~never])
        return admitted

    def _share(self, numbers: Ints, of: Ints) -> Ints:
        """The listeners that numbers are of: each gets the first of its own."""
        starts = np.flatnonzero(np.diff(of, prepend=-1))
        listeners = numbers[starts]
        self._listener[numbers] = listeners[of]
        for listener, own in zip(listeners.tolist(), np.split(numbers, starts[1:]), strict=True):
            if len(own) > 1:
                self._further[listener] = own[1:]
        return listeners

    def numbers(self, ids: Ints) -> Ints:
        """The numbers of all points of some listeners, in the order in which these were admitted."""
        if not self._further:
            return ids
        none = ids[:0]
        return np.concatenate([none, *(np.append(one, self._further.get(one, none)) for one in ids.tolist())])

    def members(self, ids: Ints) -> Ints | None:
        """Which of some listeners each of their points is of, by its place among them; None: they have one each."""
        if not self._further:
            return None
        counts = np.array([1 + len(self._further.get(one, ())) for one in ids.tolist()], np.int64)
        members: Ints = np.repeat(np.arange(len(ids)), counts)
        return members

    def _heard(self, numbers: Ints) -> Ints:
        """Whose the points are that a message was matched with."""
        return self._listener[numbers] if self._further else numbers

    def partitions(self) -> Floats:
        """The partitions listeners ask for: the last coordinate of their points."""
        return self.index.points()[:, -1]

    def points_of(self, ids: Ints) -> Floats:
        """The predicates of those among these listeners that a message can concern."""
        ids = self.numbers(ids)
        heard = [one for one in ids.tolist() if one not in self._silent] if self._silent else ids
        return self.index.points_of(np.asarray(heard, np.int64))

    def everybody(self) -> Ints:
        """The numbers of all who are here."""
        here = np.array([i for i in range(self._used) if i not in self._free], np.int64)
        listeners: Ints = here[self._heard(here) == here]
        return listeners

    def dismiss(self, ids: Ints) -> None:
        """Forget listeners and what waited for them."""
        numbers = self.numbers(ids)
        leaving = set(numbers.tolist())
        unknown = any(map(self._free.__contains__, leaving)) or max(leaving, default=-1) >= self._used
        if unknown or len(leaving) < len(numbers):
            raise InvariantBroken("audience: a listener leaves who is not here")
        self.outbox.forget(ids)
        if len(numbers) > len(ids):
            self._listener[numbers] = numbers
            for listener in ids.tolist():
                self._further.pop(listener, None)
        silent = leaving & self._silent
        self._silent -= silent
        self.index.delete(np.array(sorted(leaving - silent), np.int64))
        self._free.update(dict.fromkeys(leaving))

    def inside(
        self, inner_l: Floats, inner_r: Floats, outer_l: Floats, outer_r: Floats, partitions: Floats
    ) -> Iterator[tuple[Ints, Ints]]:
        """Pairs (messages, listeners) for messages that are rectangles, some at a time; see `in_rectangles`."""
        start = 0
        while start < len(inner_l):
            start, messages, listeners = in_rectangles(
                self.index.arrays, inner_l, inner_r, outer_l, outer_r, partitions, start, PAIRS
            )
            if len(messages):
                yield messages, self._heard(listeners)

    def at(self, lows: Floats, highs: Floats) -> Iterator[tuple[Ints, Ints]]:
        """Pairs (messages, listeners) for the query boxes of messages, some messages at a time."""
        tree, n, start = self.index.arrays, len(lows), 0
        while start < n:
            start, messages, listeners = report_some(tree, lows, highs, start, n, PAIRS)
            if len(messages):
                yield messages, self._heard(listeners)

    def around(
        self, old: tuple[Floats, Floats], new: tuple[Floats, Floats]
    ) -> Iterator[tuple[tuple[Ints, Ints], tuple[Ints, Ints]]]:
        """Pairs (messages, listeners) for the query boxes around the old places, and the same for the new ones,
        for some messages at a time."""
        tree, n, start = self.index.arrays, len(old[0]), 0
        while start < n:
            stop, was, who_was = report_some(tree, *old, start, n, PAIRS)
            stop, now, who_is = report_some(tree, *new, start, stop, PAIRS)
            kept = int(np.searchsorted(was, stop))
            if kept or len(now):
                yield (was[:kept], self._heard(who_was[:kept])), (now, self._heard(who_is))
            start = stop


@inlined
def next_message(old_messages: Ints, a: int, new_messages: Ints, b: int) -> int:
    """Of the two columns of pairs that `around` gives: the message that comes next, if old pairs are taken up to a and
    new ones up to b; -1 at the end."""
    if a == len(old_messages) and b == len(new_messages):
        return -1
    if b == len(new_messages) or (a < len(old_messages) and old_messages[a] <= new_messages[b]):
        return int(old_messages[a])
    return int(new_messages[b])


@inlined
def end_of(messages: Ints, start: int, message: int) -> int:
    """Where the pairs of a message end that begin at `start`."""
    while start < len(messages) and messages[start] == message:
        start += 1
    return start
