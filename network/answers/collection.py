"""An answer that is a collection, folded from events: what came, what went, what changed."""

from __future__ import annotations

import sys
import weakref
from collections import Counter, deque
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sortedcontainers import SortedDict

from hullcast.network.answers.events import Change
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.network.answers.outbox import Taken

#: What an event does to the collection; stored as the event's value.
ENTER, CHANGE, LEAVE = 1.0, 2.0, 3.0


class Collection:
    """Contents by key, and the changes nobody has taken yet.

    With `shown` (how a row is presented) the answer is a list of rows in key order, without it a set of values.
    All messages of one update make one change: a subscription hears of an update at most once. While `room` changes
    wait, those that come go into the last of them. Without any room, what waits is the difference between the answer
    last taken and the answer now, if there is one.
    """

    def __init__(
        self, contents: dict[Any, Any], shown: Callable[[Any], Any] | None, limit: int, room: int = sys.maxsize
    ) -> None:
        self._shown = shown
        self._limit = limit
        self._room = room
        self._contents = self._kept(contents)
        self._changes: deque[Waiting] = deque()
        self._history: _History | None = None  # of the events handed out since the contents last changed
        self._passed = 0  # how many of its deltas wait no longer
        self._look: weakref.ref[_Look] | None = None  # there as long as somebody holds one of those events
        self._silent = 0  # changes that show nothing new: they are kept for the history only
        self.conflated = 0  # changes that went into another, over the whole life
        self.lost = 0
        self.lost_seq = 0  # of the last change lost by overflow

    @property
    def pending(self) -> int:
        """Changes waiting to be taken."""
        return len(self._changes) - self._silent

    def answer(self) -> Any:
        """The whole collection now."""
        return self._present(self._contents)

    def hear(self, taken: Taken) -> None:
        """Fold events in, oldest first."""
        if not taken.seqs:
            return
        self._part_from_history()
        contents = self._contents
        events = zip(taken.seqs, taken.values, taken.items, strict=True)
        for seq, same_update in groupby(events, key=lambda event: event[0]):
            delta = Delta()
            for _, how, item in same_update:
                key, row = cast("tuple[Any, Any]", item)
                delta.note(key, contents.get(key, _NOTHING), _NOTHING if how == LEAVE else row)
                if how == LEAVE:
                    del contents[key]
                else:
                    if how == ENTER and key in contents:
                        raise InvariantBroken(f"collection: {key!r} enters twice")
                    contents[key] = row
            silent = delta.silent
            self._add(Waiting(seq, seq, delta, 0 if silent else 1, silent))
        self.keep(self._limit)

    def _add(self, change: Waiting) -> None:
        """Let a change wait, by itself or as part of the last one."""
        if self._changes and (self.pending >= self._room or (change.silent and self._changes[-1].silent)):
            last = self._changes.pop()
            self._silent -= last.silent
            self.conflated += bool(last.stands and change.stands)
            change = last.followed_by(change)
            if not self._room:
                change = change._replace(silent=change.delta.silent)
        self._changes.append(change)
        self._silent += change.silent

    def keep(self, limit: int) -> None:
        """Lose the oldest changes, if more than so many wait."""
        while self.pending > limit:
            oldest = self._changes.popleft()
            self._silent -= oldest.silent
            self._passed += 1
            self.lost_seq, self.lost = oldest.seq, self.lost + (not oldest.silent)

    def take(self, limit: int | None = None) -> list[Change]:
        """The changes not yet taken, oldest first; at most `limit` of them."""
        if not self._changes:
            return []
        if self._history is None:  # once, however many calls it takes to take them all
            self._history, self._passed = _History(self._contents, [change.delta for change in self._changes]), 0
        look = self._look() if self._look is not None else None
        if look is None:
            look = _Look(self._history, self._present)
            self._look = weakref.ref(look)
        taken: list[Change] = []
        room = len(self._changes) if limit is None else limit
        while self._changes and len(taken) < room:
            change = self._changes.popleft()
            if change.silent:
                self._silent -= 1
                self.conflated += bool(change.stands)
            else:
                taken.append(self._event(change, partial(look.answer_after, self._passed)))
            self._passed += 1
        if not self._changes:
            self._history = None
        return taken

    def _event(self, waiting: Waiting, answer: Callable[[], Any]) -> Change:
        return waiting.delta.event(waiting, answer, self._show)

    def settled(self) -> dict[Any, Any]:
        """The contents before the changes not yet taken."""
        contents = self._contents.copy()
        for change in reversed(self._changes):
            change.delta.undo(contents)
        return contents

    def settled_answer(self) -> Any:
        """The answer before the changes not yet taken."""
        return self._present(self.settled() if self._changes else self._contents)

    @property
    def first_seq(self) -> int | None:
        """The sequence number of the first change not yet taken, also if later ones went into it."""
        return self._changes[0].first if self._changes else None

    def lose(self, contents: dict[Any, Any], lost: int) -> None:
        """So many events were lost: begin again with the contents as they are now."""
        self.lost += lost + self.pending
        self._forget()
        self._look = None  # whoever looks keeps the contents there were
        self._contents = self._kept(contents)

    def take_lost(self) -> int:
        """How many changes were lost since last asked; none is pending after a loss."""
        lost, self.lost = self.lost + self.pending, 0
        self._forget()
        return lost

    def _forget(self) -> None:
        self._changes.clear()
        self._silent = 0
        self._history = None

    def _part_from_history(self) -> None:
        """Before the contents change: events that somebody still holds get a copy of them as they are."""
        look = self._look() if self._look is not None else None
        if look is not None:
            look.history.final = self._contents.copy()
            if self._changes:  # others may go into the last of them
                look.history.deltas[-1] = look.history.deltas[-1].copy()
        self._history = self._look = None

    def _kept(self, contents: dict[Any, Any]) -> dict[Any, Any]:
        """Rows are kept in the order of their keys, so that showing them all need not sort."""
        return contents if self._shown is None else SortedDict(contents)

    def _present(self, contents: dict[Any, Any]) -> Any:
        return set(contents) if self._shown is None else list(map(self._shown, contents.values()))

    def _show(self, row: Any) -> Any:
        return row if self._shown is None else self._shown(row)


class Waiting(NamedTuple):
    """A change not yet taken: one, or several that went into one."""

    seq: int  # of the last
    first: int  # of the first
    delta: Delta
    stands: int  # for so many that showed something new
    silent: bool  # it shows nothing new, and is no event

    @property
    def conflated(self) -> int:
        """The changes beside its own that its event stands for."""
        return self.stands - 1

    def followed_by(self, later: Waiting) -> Waiting:
        """Both as one."""
        seq = self.seq if later.silent else later.seq
        delta, stands = self.delta.followed_by(later.delta), self.stands + later.stands
        return Waiting(seq, self.first, delta, stands, self.silent and later.silent)


class _History:
    """What events share that are taken while the contents stay as they are: these, and what each change did."""

    __slots__ = ("deltas", "final")

    def __init__(self, final: dict[Any, Any], deltas: list[Delta]) -> None:
        self.final, self.deltas = final, deltas


class _Look:
    """How an event looks at its history. The events hold it and the collection does not: so it knows if any is left."""

    __slots__ = ("__weakref__", "_present", "history")

    def __init__(self, history: _History, present: Callable[[dict[Any, Any]], Any]) -> None:
        self.history, self._present = history, present

    def answer_after(self, i: int) -> Any:
        """The answer right after change i: the final one with all later changes undone."""
        later = self.history.deltas[i + 1 :]
        if not later:
            return self._present(self.history.final)
        contents = self.history.final.copy()
        for delta in reversed(later):
            delta.undo(contents)
        return self._present(contents)


_NOTHING: Any = object()


class Delta:
    """What one update did: per key, what was shown before and after."""

    __slots__ = ("after", "before")

    def __init__(self) -> None:
        self.before: dict[Any, Any] = {}
        self.after: dict[Any, Any] = {}

    def note(self, key: Any, before: Any, after: Any) -> None:
        self.before.setdefault(key, before)
        self.after[key] = after

    def copy(self) -> Delta:
        """The same, which stays as it is."""
        copied = Delta()
        copied.before, copied.after = self.before.copy(), self.after.copy()
        return copied

    @property
    def silent(self) -> bool:
        """Whether the same rows are shown as before, under other keys: a join may exchange equal pairs."""
        if len(self.before) == 1:
            return False
        before = Counter(row for row in self.before.values() if row is not _NOTHING)
        return before == Counter(row for row in self.after.values() if row is not _NOTHING)

    def followed_by(self, later: Delta) -> Delta:
        """Both as one; what is as it was before the first is left out. Takes as long as `later` is large."""
        for key, row in later.before.items():
            self.note(key, row, later.after[key])
            before = self.before[key]
            if before is self.after[key] or before == self.after[key]:
                del self.before[key], self.after[key]
        return self

    def undo(self, contents: dict[Any, Any]) -> None:
        for key, row in self.before.items():
            if row is _NOTHING:
                del contents[key]
            else:
                contents[key] = row

    def event(self, waiting: Waiting, answer: Callable[[], Any], show: Callable[[Any], Any]) -> Change:
        before, after = self.before, self.after
        return Change(
            waiting.seq,
            answer,
            entered=tuple(show(after[key]) for key in before if before[key] is _NOTHING),
            left=tuple(show(before[key]) for key in before if after[key] is _NOTHING),
            changed=tuple(
                (show(before[key]), show(after[key]))
                for key in before
                if before[key] is not _NOTHING and after[key] is not _NOTHING
            ),
            conflated=waiting.conflated,
        )
