"""Single values in a client: the newest one in arrays, a queue of them where each change is wanted."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hullcast.clients.sdk.listening import Listening, Stored
from hullcast.clients.sdk.mailbox import GAPS, Gap
from hullcast.network.answers.events import Change, Resync, change_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.clients.sdk.mailbox import OverflowPolicy
    from hullcast.network.answers.answers import SingleAnswers
    from hullcast.network.answers.events import StreamTuple
    from hullcast.network.answers.outbox import Taken
    from hullcast.network.wire.arrays import Booleans, Ints
    from hullcast.network.wire.columns import Columns

#: The answer last taken, where that is not kept: equal to none.
UNKNOWN = (math.nan, math.nan)


class SingleListening(Listening):
    """Answers are right as soon as `hear` returns. Most listeners want the newest only, and have no queue."""

    answers: SingleAnswers

    def _admit(self, ids: Ints, policy: OverflowPolicy, names: tuple[str, ...]) -> None:
        if policy.queues:
            self.mailbox.queue(ids)
            made = ((listener, SingleBacklog(policy, self.answers.read)) for listener in ids.tolist())
            self.mailbox.backlogs.update(made)

    def _opened(self, listener: int) -> SingleBacklog:
        raise AssertionError("queues of single values are there from the beginning")

    def _missed(self, listener: int, seq: int, lost: int, reason: str) -> SingleBacklog:
        backlog = self.mailbox.backlogs[listener]
        assert isinstance(backlog, SingleBacklog), "single values have no other queue"
        backlog.resync(seq, self.answers.number(listener), lost, reason)
        return backlog

    def _tell(self, ids: Ints) -> None:
        self.mailbox.told[ids], self.mailbox.told_rests[ids] = self.answers.numbers(ids)

    def _hear(self, columns: Columns) -> int:
        mailbox = self.mailbox
        if mailbox.only_newest:
            heard = self.answers.hear_newest(self.audience, columns, mailbox.seqs, mailbox.fresh)
            if heard is not None:
                told, news = heard
                mailbox.notice(news)
                mailbox.waken(news)  # whoever waits has nothing to take, and is news as soon as there is something
                return told
        return super()._hear(columns)

    def renew(self, ids: Ints, snapshot: Columns, seq: int, *, only_if_other: bool) -> None:
        super().renew(ids, snapshot, seq, only_if_other=only_if_other)
        self.answers.start(ids, snapshot)  # the same answer, perhaps of more exact sums

    def _others(self, ids: Ints, snapshot: Columns) -> Booleans:
        return self.answers.others(ids, snapshot)

    def answer(self, listener: int) -> Any:
        return self.answers.answer(listener)

    def column(self, ids: Ints) -> npt.NDArray[Any]:
        return self.answers.column(ids)

    def take(self, listener: int) -> Change | Resync | StreamTuple | None:
        mailbox = self.mailbox
        if mailbox.queued[listener]:
            return super().take(listener)
        if listener in mailbox.held or not mailbox.fresh[listener]:
            return None
        one, conflated = np.array([listener], np.int64), int(mailbox.fresh[listener]) - 1
        taken, gaps = mailbox.take_events(one, *self.answers.numbers(one))
        if not len(taken):
            return None
        seq, gap, answer = int(mailbox.seqs[listener]), int(gaps[0]), self.answer(listener)
        return Resync(seq, answer, 0, GAPS[gap], conflated) if gap else change_to(seq, answer, conflated)

    def take_changed(self, group: int) -> tuple[Ints, Ints]:
        candidates = self.mailbox.take_noticed(group)
        return self.mailbox.take_events(candidates, *self.answers.numbers(candidates))

    def pending(self, listener: int) -> int:
        if self.mailbox.queued[listener]:
            return super().pending(listener)
        return int(self.mailbox.has_newest(listener, *self.answers.number(listener)))

    def stored(self, listener: int, position: int) -> Stored:
        mailbox, state = self.mailbox, self.answers.stored(listener)
        backlog = mailbox.backlogs.get(listener)
        if isinstance(backlog, SingleBacklog):
            return Stored(position, state, backlog.waiting(), False, UNKNOWN)
        conflated = int(mailbox.fresh[listener]) - 1
        newest = [int(mailbox.seqs[listener]), *self.answers.number(listener), conflated]
        told = float(mailbox.told[listener]), float(mailbox.told_rests[listener])
        waiting = [newest] if self.pending(listener) else []
        return Stored(position, state, waiting, bool(mailbox.gaps[listener]), told)

    def first_of(self, stored: Stored) -> Columns:
        return self.answers.restored(stored.state)

    def restore(self, listener: int, stored: Stored) -> None:
        if not stored.waiting:
            return
        backlog, mailbox = self.mailbox.backlogs.get(listener), self.mailbox
        if isinstance(backlog, SingleBacklog):
            for seq, value, rest, conflated in stored.waiting:
                backlog.put(Note(int(seq), value, rest, conflated=int(conflated)))
        else:
            mailbox.fresh[listener] = sum(1 + int(conflated) for *_, conflated in stored.waiting)
            mailbox.seqs[listener] = int(stored.waiting[-1][0])
            mailbox.told[listener], mailbox.told_rests[listener] = stored.told
            mailbox.gaps[listener] = GAPS.index("gap") if stored.gap else 0


class Note(NamedTuple):
    """A change of a single value in numbers; after a gap it is told as a Resync."""

    seq: int
    value: float
    rest: float
    gap: Gap | None = None
    conflated: int = 0

    def instead_of(self, last: Note) -> Note:
        """This one, which stands for the one before it, too."""
        gap = self.gap if last.gap is None else last.gap.and_then(self.gap)
        return self._replace(gap=gap, conflated=self.conflated + last.conflated + 1)


class SingleBacklog:
    """Changes of a single value, made into events one by one when taken.

    When there is no room, the newest change takes the place of the last one and says so, or the oldest becomes a
    Resync, and with each one more that Resync moves on by one event::

        room for 2, changes 1 2 3 4 5      "conflate"       1 2    1 3(+1)          1 4(+2)          1 5(+3)
                                           "drop_oldest"    1 2    Resync(1) 2 3    Resync(2) 3 4    Resync(3) 4 5
    """

    __slots__ = ("_notes", "_read", "conflated", "dropped", "policy")

    def __init__(self, policy: OverflowPolicy, read: Callable[[float, float], Any]) -> None:
        self.policy = policy
        self._read = read
        self.dropped = 0  # over the whole life
        self.conflated = 0  # the same
        self._notes: deque[Note] = deque()

    @property
    def pending(self) -> int:
        """Events that wait."""
        return len(self._notes)

    @property
    def first_seq(self) -> int | None:
        """The sequence number of the first event that waits."""
        return self._notes[0].seq if self._notes else None

    def put(self, note: Note) -> None:
        """Append a change."""
        if len(self._notes) >= self.policy.room:
            note = note.instead_of(self._notes.pop())
            self.conflated += 1
        self._notes.append(note)
        self.keep(self.policy.limit)

    def hear(self, taken: Taken) -> None:
        """Append changes."""
        for seq, value, rest in zip(taken.seqs, taken.values, taken.rests, strict=True):
            self.put(Note(seq, value, rest))

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

    def resync(self, seq: int, number: tuple[float, float], lost: int, reason: str) -> None:
        """Events were missed here; this is the answer after them."""
        self.dropped += lost
        self.put(Note(seq, *number, Gap(lost, reason)))

    def take(self) -> Change | Resync | None:
        """Remove and return the oldest event."""
        if not self._notes:
            return None
        seq, value, rest, gap, conflated = self._notes.popleft()
        answer = self._read(value, rest)
        if gap is None:
            return change_to(seq, answer, conflated)
        return Resync(seq, answer, gap.lost, gap.reason, conflated)

    def waiting(self) -> list[list[float]]:
        """The changes that wait, for a resume token; a gap counts as the change to its answer."""
        return [[note.seq, note.value, note.rest, note.conflated] for note in self._notes]
