"""The events that wait for one subscription, where each event is kept: bounded, in order, gaps marked."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hullcast.network.answers.collection import Collection
from hullcast.network.answers.events import Change, Resync

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.clients.sdk.policy import Policy
    from hullcast.network.answers.outbox import Taken


class Gap(NamedTuple):
    """Events are missing: how many of them were dropped here, and why."""

    lost: int
    reason: str

    def and_then(self, later: Gap | None) -> Gap:
        """Two gaps with nothing in between."""
        if later is None:
            return self
        return Gap(self.lost + later.lost, later.reason if self.reason == "overflow" else self.reason)


class Note(NamedTuple):
    """A change of a single value in numbers; after a gap it is told as a Resync."""

    seq: int
    value: float
    rest: float
    gap: Gap | None = None


class ScalarBacklog:
    """Changes of a single value, made into events one by one when taken.

    When there is no room the oldest becomes a Resync, and with each one more that Resync moves on by one event::

        room for 2, changes 1 2 3 4 5      1 2    Resync(1) 2 3    Resync(2) 3 4    Resync(3) 4 5
    """

    __slots__ = ("_notes", "conflated", "dropped", "policy")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.dropped = 0  # over the whole life
        self.conflated = 0
        self._notes: deque[Note] = deque()

    @property
    def pending(self) -> int:
        """Events that wait."""
        return len(self._notes)

    @property
    def first_seq(self) -> int | None:
        """The sequence number of the first event that waits."""
        return self._notes[0].seq if self._notes else None

    def put(self, seq: int, value: float, rest: float, gap: Gap | None = None) -> None:
        """Append a change."""
        self._notes.append(Note(seq, value, rest, gap))
        self.keep(self.policy.limit)

    def keep(self, limit: int) -> None:
        """Keep the newest events, so many of them; a Resync at the front takes no room."""
        while len(self._notes) > limit and len(self._notes) > limit + (self._notes[0].gap is not None):
            oldest = self._notes.popleft()
            told = oldest.gap is not None
            before = oldest.gap if oldest.gap is not None else Gap(1, "overflow")
            if told:  # the front is a Resync already: it moves on by one event
                before = before.and_then(Gap(1, "overflow"))
                oldest = self._notes.popleft()
                before = before.and_then(oldest.gap)
            self._notes.appendleft(oldest._replace(gap=before))
            self.dropped += 1

    def resync(self, seq: int, value: float, rest: float, lost: int, reason: str) -> None:
        """Events were missed here; this is the answer after them."""
        self.dropped += lost
        self.put(seq, value, rest, Gap(lost, reason))

    def take(self, read: Callable[[float, float], Any]) -> Change | Resync | None:
        """Remove and return the oldest event."""
        if not self._notes:
            return None
        seq, value, rest, gap = self._notes.popleft()
        if gap is not None:
            return Resync(seq, read(value, rest), gap.lost, gap.reason)
        return Change(seq, partial(_same, read(value, rest)))

    def waiting(self) -> list[tuple[int, float, float]]:
        """The changes that wait, for a resume token; a gap counts as the change to its answer."""
        return [note[:3] for note in self._notes]


class CollectionBacklog:
    """A collection, its changes that wait, and gaps among them.

    After a gap the contents come anew, so what waited before it is made into events at once: `_before` holds them.
    """

    __slots__ = ("_before", "_counted", "_gap", "collection", "dropped", "policy")

    def __init__(self, contents: dict[Any, Any], shown: Callable[[Any], Any] | None, policy: Policy) -> None:
        self.policy = policy
        self.collection = Collection(contents, shown, policy.limit, merging=not policy.queues)
        self.dropped = 0
        self._before: deque[Change | Resync] = deque()
        self._gap: tuple[int, Gap] | None = None  # between those before and those in the collection
        self._counted = 0  # of collection.lost, how many are in `dropped`

    @property
    def conflated(self) -> int:
        """Changes that went into another one."""
        return self.collection.merged

    @property
    def has_gap(self) -> bool:
        """Whether a Resync waits."""
        return self._gap is not None or self.collection.lost > 0 or bool(self._before)

    @property
    def pending(self) -> int:
        """Events that wait."""
        resync = self._gap is not None or self.collection.lost > 0
        return len(self._before) + resync + self.collection.pending

    @property
    def first_seq(self) -> int | None:
        """The sequence number of the first event that waits."""
        if self._before:
            return self._before[0].seq
        if self._gap is not None:
            return self._gap[0]
        return self.collection.lost_seq if self.collection.lost else self.collection.first_seq

    def hear(self, taken: Taken) -> None:
        """Fold messages in."""
        self.collection.hear(taken)
        self._count()

    def _count(self) -> None:
        self.dropped += self.collection.lost - self._counted
        self._counted = self.collection.lost

    def resync(self, seq: int, contents: dict[Any, Any] | None, lost: int, reason: str) -> None:
        """Events were missed here; these are the contents after them (None: they are right as they are)."""
        if self.policy.queues:
            while (event := self._take_after()) is not None:
                self._before.append(event)
        if contents is not None:
            self.collection.lose(contents, 0)
        self.collection.take_lost()
        self._counted = 0
        self.dropped += lost
        self._gap = (seq, Gap(lost, reason))
        self.keep(self.policy.limit)

    def keep(self, limit: int) -> None:
        """Keep the newest events, so many of them before a gap and as many after it."""
        if self._gap is not None and len(self._before) > limit:  # all go: the Resync covers no part of a queue
            seq, gap = self._gap
            self._gap = (seq, gap._replace(lost=gap.lost + len(self._before)))
            self.dropped += len(self._before)
            self._before.clear()
        self.collection.keep(limit)
        self._count()

    def take(self) -> Change | Resync | None:
        """Remove and return the oldest event."""
        return self._before.popleft() if self._before else self._take_after()

    def _take_after(self) -> Change | Resync | None:
        collection = self.collection
        if self._gap is not None or collection.lost:
            seq, gap = self._gap or (0, Gap(0, "overflow"))
            if collection.lost:
                seq, gap = collection.lost_seq, gap.and_then(Gap(collection.lost, "overflow"))
            self._gap, collection.lost, self._counted = None, 0, 0
            return Resync(seq, collection.settled_answer(), gap.lost, gap.reason)
        taken = collection.take(1)
        return taken[0] if taken else None


def _same(value: Any) -> Any:
    return value
