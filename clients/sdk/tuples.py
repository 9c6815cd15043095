"""Tuples of streams in a client: those that wait for each listener, and gaps among them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from hullcast.clients.sdk.listening import Listening, News, Stored
from hullcast.clients.sdk.mailbox import GAPS
from hullcast.clients.sdk.single import UNKNOWN
from hullcast.network.answers.events import Resync, StreamTuple
from hullcast.network.answers.named import row_type
from hullcast.network.wire.arrays import objects
from hullcast.network.wire.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.clients.sdk.mailbox import OverflowPolicy
    from hullcast.network.answers.outbox import Taken
    from hullcast.network.answers.tuples import TupleAnswers
    from hullcast.network.wire.arrays import Booleans, Ints
    from hullcast.network.wire.bodies import Opened
    from hullcast.network.wire.columns import Columns


class TupleListening(Listening):
    """Each listener has a queue of tuples, and no answer."""

    answers: TupleAnswers
    has_answers = False

    def _admit(self, ids: Ints, policy: OverflowPolicy, names: tuple[str, ...]) -> None:
        self.mailbox.queue(ids)
        self.mailbox.backlogs.update((listener, TupleBacklog(policy, row_type(names))) for listener in ids.tolist())

    def _opened(self, listener: int) -> TupleBacklog:
        raise AssertionError("queues of tuples are there from the beginning")

    def _backlog(self, listener: int) -> TupleBacklog:
        backlog = self.mailbox.backlogs[listener]
        assert isinstance(backlog, TupleBacklog), "tuples have no other queue"
        return backlog

    def begin(self, ids: Ints, opened: Opened, asked: int | None) -> None:
        """Begin, or go on after a break: those of `ids` (-1: gone) asked for the tuples behind a position. If these are
        not all there, a Resync comes first."""
        here = ids[ids >= 0]
        if asked is not None and opened.after != asked:
            self.answers.heard[here] = opened.after
            for listener in here.tolist():
                self._missed(listener, opened.after, 0, "gap")
            self.mailbox.fresh[here] += 1
            self.mailbox.notice(here)
            self.mailbox.waken(here)
        if opened.snapshot is not None:
            self.answers.hear_first(self.audience, ids, opened.snapshot)
            self.mailbox.flush()

    def come_back(self, ids: Ints, opened: Opened, seq: int, asked: int, *, only_if_other: bool) -> None:
        self.begin(ids, opened, asked)

    def skip(self, ids: Ints) -> None:
        """What waits for new listeners are the tuples that they asked for."""

    def _missed(self, listener: int, seq: int, lost: int, reason: str) -> TupleBacklog:
        backlog = self._backlog(listener)
        backlog.resync(seq, lost, reason)
        self.mailbox.measure(listener, backlog)
        return backlog

    def _others(self, ids: Ints, snapshot: Columns) -> Booleans:
        return ids >= 0

    def answer(self, listener: int) -> Any:
        raise UsageError("a subscription to a stream has no answer; its events are the tuples")

    def take_changed(self, group: int) -> tuple[Ints, Ints]:
        raise AssertionError("tuples are taken by `take_news`")

    def take_news(self, group: int) -> News:
        """All tuples that wait, those of one listener in order."""
        mailbox = self.mailbox
        candidates = mailbox.take_noticed(group)
        who: list[int] = []
        seqs: list[int] = []
        rows: list[Any] = []
        gaps: list[int] = []
        for listener in candidates.tolist():
            mailbox.consume(listener)
            backlog = self._backlog(listener)
            before = len(seqs)
            backlog.take_all(seqs, rows, gaps)
            who += [listener] * (len(seqs) - before)
            mailbox.measure(listener, backlog)
        mailbox.fresh[candidates] = mailbox.gaps[candidates] = 0
        return News(np.array(who, np.int64), np.array(seqs, np.int64), objects(rows), np.array(gaps, np.int64))

    def stored(self, listener: int, position: int) -> Stored:
        """Where it stands: before the first tuple not taken. The server has the tuples."""
        backlog = self._backlog(listener)
        first = backlog.first_seq
        if backlog.has_gap:
            return Stored(position if first is None else first, [], [], True, UNKNOWN)
        return Stored(position if first is None else first - 1, [], [], False, UNKNOWN)

    def first_of(self, stored: Stored) -> Columns:
        return {"of": np.empty(0, np.int64)}

    def restore(self, listener: int, stored: Stored) -> None:
        self.answers.heard[listener] = stored.seq
        if stored.gap:
            self._backlog(listener).resync(stored.seq, 0, "gap")


class TupleBacklog:
    """Tuples that wait, in order, each as (position, row) or (position, row, how many others it stands for); a Resync
    stands where some are missing.

    When there is no room the oldest becomes a Resync, which moves on with each one more.
    """

    __slots__ = ("_show", "_waiting", "conflated", "dropped", "policy")

    def __init__(self, policy: OverflowPolicy, show: Callable[[Any], Any]) -> None:
        self.policy = policy
        self.dropped = 0
        self.conflated = 0
        self._show = show
        self._waiting: deque[tuple[int, Any] | tuple[int, Any, int] | Resync] = deque()

    @property
    def pending(self) -> int:
        """Events that wait."""
        return len(self._waiting)

    @property
    def first_seq(self) -> int | None:
        """The sequence number of the first event that waits."""
        if not self._waiting:
            return None
        first = self._waiting[0]
        return first.seq if isinstance(first, Resync) else first[0]

    @property
    def has_gap(self) -> bool:
        """Whether a Resync waits before all tuples."""
        return bool(self._waiting) and isinstance(self._waiting[0], Resync)

    def hear(self, taken: Taken) -> None:
        """Tuples came; None among them says that tuples up to there are missing."""
        came = zip(taken.seqs, taken.items, strict=True)
        if None in taken.items:
            self._waiting.extend(Resync(seq, None, 0, "gap") if row is None else (seq, row) for seq, row in came)
        else:
            self._waiting.extend(came)
        if self.policy.overflow == "drop_oldest":
            self.keep(self.policy.limit)
        else:
            self._conflate(max(1, self.policy.room))

    def _conflate(self, room: int) -> None:
        """If there is no room, let the newest tuple stand for all from the last place on, behind one Resync if there
        were some."""
        if len(self._waiting) <= room:
            return
        last = [self._waiting.pop() for _ in range(len(self._waiting) - room + 1)]
        gaps = [event for event in last if isinstance(event, Resync)]
        tuples = [event for event in last if not isinstance(event, Resync)]
        self.conflated += len(tuples)
        conflated = sum(1 + sum(more) for _, _, *more in tuples) + sum(gap.conflated for gap in gaps)
        is_gap = isinstance(last[0], Resync)
        if gaps:
            lost = sum(gap.lost for gap in gaps)
            self._waiting.append(Resync(gaps[0].seq, None, lost, gaps[0].reason, conflated if is_gap else 0))
        if not is_gap:
            seq, row, *_ = tuples[0]
            self._waiting.append((seq, row, conflated - 1))
            self.conflated -= 1

    def resync(self, seq: int, lost: int, reason: str) -> None:
        """Tuples up to `seq` are missing here."""
        self.dropped += lost
        self._waiting.append(Resync(seq, None, lost, reason))

    def keep(self, limit: int) -> None:
        """Keep the newest, so many of them; a Resync at the front takes no room."""
        if len(self._waiting) <= limit + self.has_gap:
            return
        lost, reason, seq = 0, "overflow", 0
        if isinstance(first := self._waiting[0], Resync):
            lost, reason = first.lost, first.reason
            self._waiting.popleft()
        while len(self._waiting) > limit:
            oldest = self._waiting.popleft()
            if isinstance(oldest, Resync):
                lost, seq = lost + oldest.lost, oldest.seq
            else:
                lost, seq, self.dropped = lost + 1, oldest[0], self.dropped + 1
        self._waiting.appendleft(Resync(seq, None, lost, reason))

    def take(self) -> StreamTuple | Resync | None:
        """Remove and return the oldest event."""
        if not self._waiting:
            return None
        first = self._waiting.popleft()
        return first if isinstance(first, Resync) else StreamTuple(first[0], self._show(first[1]), *first[2:])

    def take_all(self, seqs: list[int], rows: list[Any], gaps: list[int]) -> None:
        """Remove all events, oldest first, and append what they are: numbers, rows, and of a Resync why it is one (a
        place in GAPS). An object for each would take longer than the rest."""
        show = self._show
        for event in self._waiting:
            if isinstance(event, Resync):
                seqs.append(event.seq)
                rows.append(None)
                gaps.append(GAPS.index(event.reason))
            else:
                seqs.append(event[0])
                rows.append(show(event[1]))
                gaps.append(0)
        self._waiting.clear()
