"""The listeners of one channel in this process: their answers, and what messages do to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hullcast.broker.tables.travel import Codes
from hullcast.clients.sdk.mailbox import GAPS, Attention, Mailbox
from hullcast.network.answers.audience import Audience
from hullcast.network.answers.kinds import KINDS
from hullcast.network.matching.index import PointIndex
from hullcast.network.wire.arrays import objects

if TYPE_CHECKING:
    from hullcast.clients.sdk.mailbox import Backlog, OverflowPolicy
    from hullcast.network.answers.answers import Answers
    from hullcast.network.answers.events import Change, Resync, StreamTuple
    from hullcast.network.wire.arrays import Booleans, Floats, Ints
    from hullcast.network.wire.bodies import ChannelSpec, Opened
    from hullcast.network.wire.columns import Columns


class Stored(NamedTuple):
    """Where a listener stands, for a resume token."""

    seq: int  # the answer is as of here
    state: list[Any]  # numbers, or [key, row] pairs
    waiting: list[list[Any]]  # of single values: [seq, value, rest, conflated] of events not taken
    gap: bool  # events were lost before, and the subscriber was not told yet
    told: tuple[float, float]  # of single values that wait: the one taken before them, as (value, rest)


class News(NamedTuple):
    """What listeners of a group have heard since last asked, as columns: who, when, the answer (of a stream: the row),
    and why it is a Resync (a place in GAPS)."""

    who: Ints
    seqs: Ints
    answers: npt.NDArray[Any]
    gaps: Ints


class Listening(ABC):
    """What the client holds of a channel, for all its subscriptions there. Pure: called with what came in.

    The answers themselves are an object by kind (network/answers). Here is what is common to all kinds: who listens,
    what waits, and what must be recomputed. Single values and collections differ in how events wait: single.py and
    collected.py.
    """

    answers: Answers
    has_answers = True  # False: only events

    def __init__(self, spec: ChannelSpec, coordinates: int, attention: Attention) -> None:
        self.spec = spec
        self.channels: set[int] = set()  # the server's numbers for it: one, or none while it is not known there
        self.mailbox = Mailbox(self._opened, attention)
        self.audience = Audience(coordinates, self.mailbox)
        self.suspects: set[int] = set()  # listeners whose answer the server must recompute
        self.asked: set[int] = set()  # those for which it has been asked
        self.answers = KINDS[spec.kind].answers(spec, Codes(), self._doubt)
        self._attention = attention
        self._parted: Ints = np.empty(0, np.int64)  # listeners that no message reaches until they are moved

    # --- what single values and collections do each in their own way ------------------------------------------

    @abstractmethod
    def _admit(self, ids: Ints, policy: OverflowPolicy, names: tuple[str, ...]) -> None:
        """New listeners: how their events wait, and how their answers are shown."""

    @abstractmethod
    def _opened(self, listener: int) -> Backlog:
        """The queue of a listener that has one, made when it is first needed."""

    @abstractmethod
    def _missed(self, listener: int, seq: int, lost: int, reason: str) -> Backlog:
        """A listener with a queue begins again; returns the queue, with the Resync in it."""

    @abstractmethod
    def _others(self, ids: Ints, snapshot: Columns) -> Booleans:
        """Who has another answer than the snapshot says; not those who left (-1)."""

    @abstractmethod
    def answer(self, listener: int) -> Any:
        """A listener's answer now."""

    @abstractmethod
    def take_changed(self, group: int) -> tuple[Ints, Ints]:
        """The listeners of a watched group that have a new answer since last asked, by rising number, and of each why
        it is a Resync (a place in GAPS)."""

    @abstractmethod
    def stored(self, listener: int, position: int) -> Stored:
        """Where a listener stands, which has heard everything up to `position`."""

    @abstractmethod
    def first_of(self, stored: Stored) -> Columns:
        """A stored answer as first answers, to `admit` a listener with; then comes `restore`."""

    @abstractmethod
    def restore(self, listener: int, stored: Stored) -> None:
        """Give a listener just admitted what it had not taken yet."""

    def take_news(self, group: int) -> News:
        """`take_changed`, with what users want to know."""
        changed, gaps = self.take_changed(group)
        return News(changed, self.mailbox.seqs[changed], self.column(changed), gaps)

    def begin(self, ids: Ints, opened: Opened, asked: int | None) -> None:  # noqa: B027  (what was first is in `admit`)
        """New listeners are here, and asked for the tuples of a stream behind a position."""

    def come_back(self, ids: Ints, opened: Opened, seq: int, asked: int, *, only_if_other: bool) -> None:
        """New answers after a break, at `seq`: see `renew`. Those who hear tuples asked for what is behind a
        position, and get it."""
        assert opened.snapshot is not None, "else it is resumed"
        self.renew(ids, opened.snapshot, seq, only_if_other=only_if_other)

    def _tell(self, ids: Ints) -> None:  # noqa: B027  (collections need not know)
        """Whoever these listeners are for has seen the answers there are now."""

    def _hear(self, columns: Columns) -> int:
        """Take messages; returns how many events it made beside those in the mailbox."""
        self.answers.hear(self.audience, columns)
        return 0

    # --- who listens ---------------------------------------------------------------------------------------

    def admit(
        self,
        group: int,
        points: Floats,
        of: Ints | None,
        snapshot: Columns,
        policy: OverflowPolicy,
        names: tuple[str, ...],
        seq: int,
    ) -> Ints:
        """Take in the listeners of a group with their first answers at `seq`; returns their numbers. `of` says which
        member each point is of; None: each of its own."""
        ids = self.audience.admit(points, of=of)
        self.mailbox.seqs[ids] = seq
        self.mailbox.groups[ids] = group
        self._admit(ids, policy, names)
        self.answers.start(ids, snapshot)
        self._tell(ids)
        return ids

    def part(self, ids: Ints) -> None:
        """Let no message reach these listeners until they are moved. They keep their answers and what waits."""
        ids = ids[~np.isin(ids, self._parted)]
        self.audience.index.delete(self.audience.numbers(ids))
        self._parted = np.concatenate((self._parted, ids))

    def move(self, ids: Ints, points: Floats) -> None:
        """The same listeners, found by other points: a server that was restarted gives partitions new numbers."""
        index, numbers = self.audience.index, self.audience.numbers(ids)
        if len(self._parted):
            self._rejoin(ids, points)
        elif not np.array_equal(index.points_of(numbers), points):
            index.delete(numbers)
            index.insert(numbers, points)

    def _rejoin(self, ids: Ints, points: Floats) -> None:
        parted = np.isin(ids, self._parted)
        self._parted = self._parted[~np.isin(self._parted, ids)]
        self.audience.index.delete(self.audience.numbers(ids[~parted]))
        self.audience.index.insert(self.audience.numbers(ids), points)

    def dismiss(self, ids: Ints) -> None:
        """Forget listeners."""
        if len(self._parted):  # an audience dismisses only listeners that messages reach
            self._rejoin(ids, np.zeros((len(self.audience.numbers(ids)), self.audience.index.dimensions)))
        self.audience.dismiss(ids)
        self._believe(ids)

    # --- what happens ----------------------------------------------------------------------------------------

    def hear(self, columns: Columns) -> int:
        """Take messages, in order; returns how many events they made."""
        told = self._hear(columns) if len(self.audience) else 0
        return told + self.mailbox.flush()

    def hear_alone(self, ids: Ints, points: Floats, columns: Columns) -> None:
        """Messages that only these have not heard yet."""
        everybody, numbers = self.audience.index, self.audience.numbers(ids)
        if len(numbers) == len(everybody):
            self.hear(columns)
            return
        alone = PointIndex(everybody.dimensions)
        alone.insert(numbers, points)
        self.audience.index = alone
        try:
            self.hear(columns)
        finally:
            self.audience.index = everybody

    def _doubt(self, ids: Ints) -> None:
        """Answers that messages cannot bring up to date, such as sums whose lost bits could show. The rows are
        not here, so the server is asked, and events wait till then."""
        for listener in ids.tolist():
            if listener not in self.asked:
                self.suspects.add(listener)
            self.mailbox.held.setdefault(listener, 0)
        self._attention.doubted.add(self)

    def doubted(self) -> dict[int, Ints]:
        """The listeners whose answers the server must still be asked to recompute, by the number of their group."""
        ids = np.array(sorted(self.suspects), np.int64)
        groups = self.mailbox.groups[ids]
        order = np.argsort(groups, kind="stable")
        numbers, starts = np.unique(groups[order], return_index=True)
        return dict(zip(numbers.tolist(), np.split(ids[order], starts[1:]), strict=True))

    def ask(self, ids: Ints) -> None:
        """The server has been asked for these answers."""
        self.suspects.difference_update(ids.tolist())
        self.asked.update(ids.tolist())

    def ask_again(self) -> None:
        """What the server was asked for will not come."""
        self.suspects |= self.asked
        self.asked.clear()

    def _believe(self, ids: Ints) -> None:
        """These answers are right again, or nobody's."""
        if self.suspects or self.asked:
            self.suspects.difference_update(ids.tolist())
            self.asked.difference_update(ids.tolist())
            if not (self.suspects or self.asked):
                self._attention.doubted.discard(self)

    def restart(self, ids: Ints, snapshot: Columns, seq: int, reason: str) -> None:
        """New answers, at `seq`, after events were missed: each listener's next event is a Resync.

        `ids` may hold -1 for members that left; the snapshot has them all.
        """
        mailbox = self.mailbox
        self.answers.start(ids, snapshot)
        ids = ids[ids >= 0]
        mailbox.seqs[ids] = seq
        mailbox.fresh[ids] += 1
        mailbox.gaps[ids] = GAPS.index(reason)
        for listener in ids[mailbox.queued[ids]].tolist():
            backlog = self._missed(listener, seq, mailbox.held.get(listener, 0), reason)
            mailbox.trim(listener, backlog)
            mailbox.measure(listener, backlog)
        self._release(ids)
        mailbox.notice(ids)
        mailbox.waken(ids)

    def renew(self, ids: Ints, snapshot: Columns, seq: int, *, only_if_other: bool) -> None:
        """New answers after a break: a Resync for each listener, or only for those whose answer is another one."""
        other = self._others(ids, snapshot) if only_if_other else ids >= 0
        self.restart(np.where(other, ids, -1), snapshot, seq, "gap")

    def skip(self, ids: Ints) -> None:
        """Whoever these listeners are for has seen their answers: what waits is in them."""
        self.mailbox.fresh[ids] = self.mailbox.gaps[ids] = 0
        self._tell(ids)
        for listener in ids[self.mailbox.queued[ids]].tolist():
            while self.take(listener) is not None:
                pass

    def _release(self, ids: Ints) -> None:
        if self.mailbox.held:
            self._believe(ids)
            for listener in ids.tolist():
                self.mailbox.held.pop(listener, None)

    # --- what users see ------------------------------------------------------------------------------------

    def column(self, ids: Ints) -> npt.NDArray[Any]:
        """Many answers as a column."""
        return objects([self.answer(listener) for listener in ids.tolist()])

    def take(self, listener: int) -> Change | Resync | StreamTuple | None:
        """The next event of a listener, removed."""
        backlog = self.mailbox.backlogs.get(listener)
        if backlog is None or listener in self.mailbox.held:
            return None
        event = backlog.take()
        self.mailbox.measure(listener, backlog)
        return event

    def pending(self, listener: int) -> int:
        """Events that wait."""
        backlog = self.mailbox.backlogs.get(listener)
        return 0 if backlog is None else backlog.pending

    def first_seq(self, listener: int) -> int | None:
        """The sequence number of the first event that waits."""
        backlog = self.mailbox.backlogs.get(listener)
        if backlog is not None:
            return backlog.first_seq
        return int(self.mailbox.seqs[listener]) if self.pending(listener) else None

    def dropped(self, listener: int) -> int:
        """Events lost here over the whole life."""
        backlog = self.mailbox.backlogs.get(listener)
        return 0 if backlog is None else backlog.dropped

    def conflated(self, listener: int) -> int:
        """Events that a newer one replaced."""
        backlog = self.mailbox.backlogs.get(listener)
        return int(self.mailbox.conflated[listener]) if backlog is None else backlog.conflated
