"""Sets and rows in a client: each listener's collection, its waiting changes, and gaps."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.sdk.listening import Listening, Stored
from hullcast.clients.sdk.mailbox import Gap
from hullcast.clients.sdk.single import UNKNOWN
from hullcast.network.answers.events import Change, Resync

if TYPE_CHECKING:
    from hullcast.clients.sdk.mailbox import Attention, OverflowPolicy
    from hullcast.network.answers.answers import CollectionAnswers
    from hullcast.network.answers.collection import Collection
    from hullcast.network.answers.outbox import Taken
    from hullcast.network.wire.arrays import Booleans, Ints
    from hullcast.network.wire.bodies import ChannelSpec
    from hullcast.network.wire.columns import Columns


class CollectionListening(Listening):
    """Each listener has a queue: a Python object, made when it is first touched by an event or a look."""

    answers: CollectionAnswers

    def __init__(self, spec: ChannelSpec, coordinates: int, attention: Attention) -> None:
        super().__init__(spec, coordinates, attention)
        self._styles: dict[int, tuple[OverflowPolicy, tuple[str, ...]]] = {}  # how each one is kept and shown

    def _admit(self, ids: Ints, policy: OverflowPolicy, names: tuple[str, ...]) -> None:
        self.mailbox.queue(ids)
        self._styles.update(dict.fromkeys(ids.tolist(), (policy, names)))

    def dismiss(self, ids: Ints) -> None:
        super().dismiss(ids)
        self.answers.forget(ids)
        for listener in ids.tolist():
            self._styles.pop(listener, None)

    def _opened(self, listener: int) -> CollectionBacklog:
        return self._backlog(listener, self.answers.contents(listener))

    def _backlog(self, listener: int, contents: dict[Any, Any]) -> CollectionBacklog:
        policy, names = self._styles[listener]
        collection = self.answers.collection(contents, names, policy.limit, policy.room)
        return CollectionBacklog(collection, policy)

    def _known(self, listener: int) -> CollectionBacklog | None:
        backlog = self.mailbox.backlogs.get(listener)
        assert backlog is None or isinstance(backlog, CollectionBacklog), "collections have no other queue"
        return backlog

    def _collected(self, listener: int) -> CollectionBacklog:
        backlog = self._known(listener)
        if backlog is None:
            backlog = self.mailbox.backlogs[listener] = self._opened(listener)
        return backlog

    def _missed(self, listener: int, seq: int, lost: int, reason: str) -> CollectionBacklog:
        contents, backlog = self.answers.contents(listener), self._known(listener)
        if backlog is None:
            backlog = self.mailbox.backlogs[listener] = self._backlog(listener, {})
        backlog.resync(seq, contents, lost, reason)
        return backlog

    def _others(self, ids: Ints, snapshot: Columns) -> Booleans:
        fresh = type(self.answers)(self.spec, self.answers.decoder, self.answers.recompute)
        fresh.start(ids, snapshot)
        other = np.zeros(len(ids), np.bool_)
        here = ids >= 0
        other[here] = [self._is_other(listener, fresh.contents(listener)) for listener in ids[here].tolist()]
        return other

    def _is_other(self, listener: int, contents: dict[Any, Any]) -> bool:
        if self._known(listener) is None:
            return self.answers.contents(listener, keep=True) != contents
        return bool(self.answer(listener) != self._backlog(listener, contents).collection.answer())

    def answer(self, listener: int) -> Any:
        return self._collected(listener).collection.answer()

    def take_changed(self, group: int) -> tuple[Ints, Ints]:
        mailbox = self.mailbox
        candidates = mailbox.take_noticed(group)
        taken = np.array([one for one in candidates.tolist() if self._take_merged(one)], np.int64)
        mailbox.conflated[candidates] += mailbox.fresh[candidates]
        mailbox.conflated[taken] -= 1
        gaps = mailbox.gaps[taken]
        mailbox.fresh[candidates] = mailbox.gaps[candidates] = 0
        return taken, gaps

    def _take_merged(self, listener: int) -> bool:
        """Whether a collection has another answer than when this was last asked, as far as that is kept."""
        backlog = self._known(listener)
        if not self.mailbox.fresh[listener] or backlog is None or backlog.policy.queues:
            return bool(self.mailbox.fresh[listener])
        events = 0
        while self.take(listener) is not None:
            events += 1
        return events > 0

    def stored(self, listener: int, position: int) -> Stored:
        """As it was before the first event not taken."""
        backlog = self._collected(listener)
        first = backlog.collection.first_seq
        pairs = [[key, row] for key, row in backlog.collection.settled().items()]
        return Stored(position if first is None else first - 1, pairs, [], backlog.has_gap, UNKNOWN)

    def first_of(self, stored: Stored) -> Columns:
        return {"of": np.empty(0, np.int64)}

    def restore(self, listener: int, stored: Stored) -> None:
        self.answers.forget(np.array([listener]))
        backlog = self._backlog(listener, self.answers.restored(stored.state))
        self.mailbox.backlogs[listener] = backlog
        if stored.gap:
            backlog.resync(stored.seq, None, 0, "gap")


class CollectionBacklog:
    """A collection, its changes that wait, and gaps among them.

    After a gap there are new contents, so what waited before it is made into events at once: `_before` holds them.
    """

    __slots__ = ("_before", "_counted", "_gap", "collection", "dropped", "policy")

    def __init__(self, collection: Collection, policy: OverflowPolicy) -> None:
        self.collection, self.policy = collection, policy
        self.dropped = 0
        self._before: deque[Change | Resync] = deque()
        self._gap: tuple[int, Gap] | None = None  # between those before and those in the collection
        self._counted = 0  # of collection.lost, how many are in `dropped`

    @property
    def conflated(self) -> int:
        """Changes that went into another one."""
        return self.collection.conflated

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
