"""What listeners of a channel have heard and not taken yet: newest answers, or queues."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, get_args

import numpy as np

from hullcast.network.answers.aggregate import same
from hullcast.network.answers.answers import Overflow
from hullcast.network.answers.newest import settle, take_newest
from hullcast.network.answers.outbox import NO_PLACES, NO_RESTS, Taken
from hullcast.network.wire.arrays import distinct
from hullcast.network.wire.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hullcast.clients.sdk.listening import Listening
    from hullcast.network.answers.events import Change, Resync, StreamTuple
    from hullcast.network.wire.arrays import Booleans, Floats, Ints

    EventColumns = tuple["Ints", "Ints", "Floats", "Floats", "Ints", Sequence[object]]  # as `put` takes them


#: Why the next event of a listener is a Resync; 0: it is none.
GAPS = ("", "gap", "sum", "overflow")
#: The arrays of a mailbox, a cell for each listener.
COLUMNS = ("seqs", "fresh", "conflated", "gaps", "told", "told_rests", "queued", "wanted", "watched", "groups")
#: A queue that blocks holds back nobody while no event of it was ever taken: whoever subscribes only for `answer` need
#: not take any. It then keeps so many times its buffer, and what the last frame brought; the oldest become a Resync.
OVERSHOOT = 8
UNTAKEN = 64  # frames whose changes are listed one by one for whoever follows a group


@dataclass(frozen=True, slots=True)
class OverflowPolicy:
    """A subscription's overflow policy; `buffer` is the number of events that may wait."""

    overflow: Overflow
    buffer: int = 1024

    def __post_init__(self) -> None:
        if self.overflow not in get_args(Overflow):
            raise BadSetting("overflow", self.overflow, f"must be one of {', '.join(get_args(Overflow))}")
        given: object = self.buffer
        if type(given) is not int or given < 1:
            raise BadSetting("buffer", self.buffer, "must be a whole number, 1 or more")

    @property
    def queues(self) -> bool:
        """Whether single events wait, rather than the newest answer."""
        return self.overflow != "latest"

    @property
    def room(self) -> int:
        """Events that wait as they are; what comes then goes into the last of them."""
        return {"conflate": self.buffer, "latest": 0}.get(self.overflow, sys.maxsize)

    @property
    def limit(self) -> int:
        """Events that wait at most; beyond that the oldest becomes a Resync. With "block" and "error" there is no such
        limit: what a frame brings waits in full, and no more frames are heard (or the subscription ends)."""
        return self.buffer if self.overflow in ("drop_oldest", "conflate") else sys.maxsize


class Attention:
    """Where in a client something is to be done, so that nobody walks through all channels and groups to find out."""

    def __init__(self) -> None:
        self.waking: set[Mailbox] = set()  # somebody is to be woken, or a queue is too full for its policy
        self.blocking: set[Mailbox] = set()  # a queue is full that makes the link wait
        self.doubted: set[Listening] = set()  # sums must be recomputed, or have been asked for


class Backlog(Protocol):
    """The queue of a listener: its events in order, bounded, gaps among them marked."""

    policy: OverflowPolicy
    dropped: int

    @property
    def pending(self) -> int: ...
    @property
    def first_seq(self) -> int | None: ...
    @property
    def conflated(self) -> int: ...
    def hear(self, taken: Taken) -> None: ...
    def take(self) -> Change | Resync | StreamTuple | None: ...
    def keep(self, limit: int) -> None: ...


class Gap(NamedTuple):
    """Events are missing: how many of them were dropped here, and why."""

    lost: int
    reason: str

    def and_then(self, later: Gap | None) -> Gap:
        """Two gaps with nothing in between."""
        if later is None:
            return self
        return Gap(self.lost + later.lost, later.reason if self.reason == "overflow" else self.reason)


class Mailbox:
    """Takes the place of an engine's `Outbox`, whose ring drops the oldest event of all subscriptions together.

    Most listeners want the newest answer only. For them an event is three array cells (when, how many since one was
    taken, is somebody waiting), written for all listeners of a frame at once; Python sees an event only of listeners
    that have a queue, and wakes only those that somebody waits for. Whether the answer is another than the one last
    taken (`told`) is judged when the next one is.

    Events of a frame are gathered by `put` and settled by `flush`: only then is it known whose sum has become suspect.
    """

    def __init__(self, open_backlog: Callable[[int], Backlog], attention: Attention | None = None) -> None:
        self._open_backlog = open_backlog
        self._attention = attention or Attention()
        self._parts: list[EventColumns] = []
        self.seqs: Ints = np.zeros(16, np.int64)  # of the last change
        self.fresh: Ints = np.zeros(16, np.int64)  # changes since one was taken
        self.conflated: Ints = np.zeros(16, np.int64)
        self.gaps: Ints = np.zeros(16, np.int64)  # places in GAPS
        self.told: Floats = np.zeros(16)  # of a single value: what was last taken, and its rest
        self.told_rests: Floats = np.zeros(16)
        self.queued: Booleans = np.zeros(16, np.bool_)
        self.wanted: Booleans = np.zeros(16, np.bool_)
        self.watched: Ints = np.zeros(16, np.int64)  # the group whose changes somebody follows as a whole, or 0
        self.groups: Ints = np.zeros(16, np.int64)  # whose listeners these are, by number
        self.backlogs: dict[int, Backlog] = {}
        self.held: dict[int, int] = {}  # listeners whose events are held back, and how many were
        self.woken: list[Ints] = []  # wanted listeners that heard something since last asked
        self.noticed: dict[int, list[Ints]] = {}  # watched ones, by group; a group is here while it is watched
        self._waiters: dict[int, Callable[[], None]] = {}
        self._watchers: dict[int, Callable[[], None]] = {}
        self._roused: set[int] = set()  # watched groups with something new since they were last woken
        self._queues = 0  # listeners that have one
        self._consumed: set[int] = set()  # listeners whose events somebody takes: only these may block the link
        self._full: set[int] = set()  # queues with the policy to block that have no room left
        self._over: set[int] = set()  # queues with the policy to give up that have none, since last asked

    def reserve(self, subscriptions: int) -> None:
        """Be ready for listener numbers below this."""
        size = len(self.seqs)
        if subscriptions <= size:
            return
        size = max(subscriptions, 2 * size)
        for name in COLUMNS:
            old = getattr(self, name)
            grown = np.zeros(size, old.dtype)
            grown[: len(old)] = old
            setattr(self, name, grown)

    def put(
        self,
        subscriptions: Ints,
        seqs: Ints,
        values: Floats,
        rests: Floats = NO_RESTS,
        places: Ints = NO_PLACES,
        items: Sequence[object] = (),
    ) -> None:
        """Gather events until `flush`."""
        if len(subscriptions):
            self._parts.append((subscriptions, seqs, values, rests, places, items))

    def flush(self) -> int:
        """Settle what was gathered; returns how many events that was."""
        parts, self._parts = self._parts, []
        told = 0
        for part in parts:
            who = part[0]
            told += len(who)
            if self.held:
                part = self._without_held(part)
                who = part[0]
            news = settle(who, part[1], self.seqs, self.fresh)
            if self._queues:
                queued = self.queued[who]
                if queued.any():
                    self._enqueue(part if queued.all() else _some(part, queued))
            self.notice(news)
            self.waken(who)
        return told

    @property
    def only_newest(self) -> bool:
        """Whether every listener wants its newest answer only: then nobody needs to know who heard which message."""
        return not (self.held or self._queues)

    def notice(self, news: Ints) -> None:
        """These have something to take since now: remember those of groups that somebody follows."""
        if not self.noticed or not len(news):
            return
        watched = self.watched[news]
        if len(self.noticed) == 1:  # nothing to sort
            (group,) = self.noticed
            mine = watched == group
            self._note(group, news if mine.all() else news[mine])
        else:
            order = np.argsort(watched, kind="stable")
            news, watched = news[order], watched[order]
            starts = np.flatnonzero(np.diff(watched, prepend=0))  # of the groups that are watched: the others have 0
            stops = np.append(starts, len(news))[1:]
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
                self._note(int(watched[start]), news[start:stop])
        if self._roused:
            self._attention.waking.add(self)

    def _note(self, group: int, news: Ints) -> None:
        if len(news):
            noticed = self.noticed[group]
            noticed.append(news)
            if len(noticed) > UNTAKEN:  # nobody took them for a while: each listener once is enough
                noticed[:] = [distinct(np.concatenate(noticed), len(self.seqs))]
            self._roused.add(group)

    def waken(self, who: Ints) -> None:
        """These heard something: remember those that somebody waits for."""
        if self._waiters:
            wanted = self.wanted[who]
            if wanted.any():
                self.woken.append(who[wanted])
                self._attention.waking.add(self)

    def _without_held(self, part: EventColumns) -> EventColumns:
        held = np.isin(part[0], np.fromiter(self.held, np.int64, len(self.held)))
        for listener in part[0][held].tolist():
            self.held[listener] += 1
        return _some(part, ~held)

    def _enqueue(self, part: EventColumns) -> None:
        """Each listener's events into its queue. Columns are sorted and made lists as wholes: most listeners have an
        event or two, for which an array would take longer than the rest."""
        who, seqs, values, rests, places, items = part
        order = np.argsort(who, kind="stable")
        who = who[order]
        starts = np.flatnonzero(np.diff(who, prepend=-1))
        stops = np.append(starts[1:], len(who))
        seq, value = seqs[order].tolist(), values[order].tolist()
        rest = rests[order].tolist() if len(rests) else [0.0] * len(who)
        told = [items[place] for place in places[order].tolist()] if len(places) else []
        for listener, start, stop in zip(who[starts].tolist(), starts.tolist(), stops.tolist(), strict=True):
            backlog = self.backlogs.get(listener)
            if backlog is None:
                backlog = self.backlogs[listener] = self._open_backlog(listener)
            self.trim(listener, backlog)
            backlog.hear(Taken(seq[start:stop], value[start:stop], rest[start:stop], told[start:stop]))
            self.measure(listener, backlog)

    def queue(self, ids: Ints) -> None:
        """These listeners, new ones, have a queue each."""
        self.queued[ids] = True
        self._queues += len(ids)

    def forget(self, subscriptions: Ints) -> None:
        """Nothing waits for these any more; their numbers may be given to others."""
        self._queues -= int(self.queued[subscriptions].sum())
        for name in COLUMNS:
            getattr(self, name)[subscriptions] = 0
        for listener in subscriptions.tolist():
            self.backlogs.pop(listener, None)
            self.held.pop(listener, None)
            self._waiters.pop(listener, None)
            self._over.discard(listener)
            self._make_room(listener)
            self._consumed.discard(listener)

    # --- who waits -----------------------------------------------------------------------------------------

    def wait(self, listener: int, wake: Callable[[], None] | None) -> None:
        """Call `wake` when the listener has something to take; None: no more."""
        self.wanted[listener] = wake is not None
        if wake is None:
            self._waiters.pop(listener, None)
        else:
            self._waiters[listener] = wake

    def watch(self, group: int, ids: Ints, wake: Callable[[], None] | None) -> None:
        """Call `wake` when one of a group's listeners has a new answer; None: no more."""
        if wake is None:
            self.watched[ids] = 0
            self.noticed.pop(group, None)
            self._watchers.pop(group, None)
            self._roused.discard(group)
        else:
            self.watched[ids] = group
            already = ids[self.fresh[ids] > 0]
            self.noticed[group] = [already] if len(already) else []
            self._watchers[group] = wake

    def take_noticed(self, group: int) -> Ints:
        """The listeners of a watched group that heard something since last asked, by rising number."""
        noticed = self.noticed[group]
        if not noticed:
            return np.empty(0, np.int64)
        self.noticed[group] = []
        heard = distinct(np.concatenate(noticed), len(self.seqs))
        mine: Ints = heard[self.watched[heard] == group]  # the others left; their numbers may be somebody else's
        return mine

    def take_events(self, candidates: Ints, values: Floats, rests: Floats) -> tuple[Ints, Ints]:
        """Of listeners whose answers are now (values, rests), take the events: who has one, and why it is a Resync (a
        place in GAPS)."""
        cells = (self.told, self.told_rests, self.fresh, self.conflated, self.gaps)
        taken = candidates[take_newest(candidates, values, rests, *cells)]
        gaps = self.gaps[taken]
        self.gaps[taken] = 0
        return taken, gaps

    def has_newest(self, listener: int, value: float, rest: float) -> bool:
        """Whether an event waits for a listener that wants its newest answer only, which is now (value, rest)."""
        if self.queued[listener] or not self.fresh[listener]:
            return False
        return bool(self.gaps[listener]) or not same(value, rest, self.told[listener], self.told_rests[listener])

    def wake(self) -> None:
        """Call those who wait, if there is something for them."""
        if self.woken:
            woken, self.woken = self.woken, []
            for listener in distinct(np.concatenate(woken), len(self.seqs)).tolist():
                waiter = self._waiters.get(listener)
                if waiter is not None:
                    waiter()
        roused, self._roused = self._roused, set()
        for group in roused:
            self._watchers[group]()

    # --- queues that are full --------------------------------------------------------------------------------

    def consume(self, listener: int) -> None:
        """Somebody takes the events of a listener: from now on its queue may block the link."""
        if listener not in self._consumed:
            self._consumed.add(listener)
            if listener in self._full:
                self._attention.blocking.add(self)

    def trim(self, listener: int, backlog: Backlog) -> None:
        """Before more comes: of a queue that would block, but that nobody takes from, only so much is kept."""
        policy = backlog.policy
        if policy.overflow == "block" and listener not in self._consumed:
            backlog.keep(OVERSHOOT * policy.buffer)

    def measure(self, listener: int, backlog: Backlog) -> None:
        """Note whether a queue is full: from `buffer` events on, and until it is half empty again."""
        policy, pending = backlog.policy, backlog.pending
        if pending >= policy.buffer and policy.overflow == "block":
            self._full.add(listener)
            if listener in self._consumed:
                self._attention.blocking.add(self)
        elif pending >= policy.buffer and policy.overflow == "error":
            self._over.add(listener)
            self._attention.waking.add(self)
        elif listener in self._full and pending <= policy.buffer // 2:
            self._make_room(listener)

    def _make_room(self, listener: int) -> None:
        if listener in self._full:
            self._full.remove(listener)
            if self._full.isdisjoint(self._consumed):
                self._attention.blocking.discard(self)

    def overflowed(self) -> list[int]:
        """The listeners that give up because their queue is full; each is named once."""
        over, self._over = sorted(self._over), set()
        return over


def _some(part: EventColumns, rows: Booleans) -> EventColumns:
    who, seqs, values, rests, places, items = part
    return (
        who[rows],
        seqs[rows],
        values[rows],
        rests[rows] if len(rests) else rests,
        places[rows] if len(places) else places,
        items,
    )
