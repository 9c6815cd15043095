"""Versions of objects with the time for which each is right, and readers that see one moment.

From Vu and Gopalkrishnan, *On Scheduling Data Loading and View Maintenance in Soft Real-time Data Warehouses* (2009),
sections 3.2 to 3.5. A base object gets a version from every update; a view is computed from base objects. A version is
right in its *validity interval* [begins, ends): from its update to the next one. A reader T has an interval too, VI(T),
which shrinks to what it has in common with each version that T reads: while it is not empty, everything T has read
was true at one moment (*relative consistency*).

    STOCK   [0 ......... 4)[4 ........ 9)[9 ....          updates came at 4 and 9
    view    [0 ......... 4)[4 ........ 9)                 computed from it, for the last time at 6; outdated since 9
    T starts at 5:          [5 .........................  VI(T)
      reads STOCK at 7:     [5 .........................  the version of 4, which is right still
      STOCK changes at 9:   [5 ....... 9)                 what T reads from now on must have been right before 9
      reads the view at 10: [5 ....... 9)                 the version computed at 6

Which of several versions a reader takes, how far back it may look, and what may be forgotten is a `ReadingRule`: see
`OradReading` and `OdrtbReading`. Pure: the time is an argument, in seconds or in sequence numbers.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, pairwise
from math import inf, nextafter
from typing import Generic, NamedTuple, Protocol, TypeVar

from hullcast.broker.warehouse.deciding.policies.orad import Orad
from hullcast.sim.experiments.studies.scheduling.baselines import Odrtb

Id = TypeVar("Id", bound=Hashable)


@dataclass(eq=False, slots=True)
class Version:
    """What an object is from `begins` (LTB) until before `ends` (UTB). Not applied: its update still waits."""

    begins: float
    ends: float = inf
    applied: bool = True


@dataclass(eq=False, slots=True)
class Reader(Generic[Id]):
    """A transaction that reads: [begins, ends) is VI(T), and `reads` what it has read, views' parents too."""

    start: float
    begins: float
    ends: float = inf
    until: float = inf  # where ODRTB takes it to end when it compares overlaps
    reads: dict[Id, Version] = field(default_factory=dict)

    def takes(self, object_id: Id, version: Version) -> None:
        """Read a version: VI(T) shrinks to what the two have in common."""
        self.reads[object_id] = version
        self.begins = max(self.begins, version.begins)
        self.ends = min(self.ends, version.ends)

    @property
    def consistent(self) -> bool:
        """Whether all that it has read was right at one moment."""
        return self.begins < self.ends


class Look(NamedTuple):
    """The version that a reader takes, and how many were looked at to find it. None: a view must be computed."""

    version: Version | None
    looked: int


class ReadingRule(Protocol):
    """What tells ORAD and ODRTB apart."""

    def earliest(self, start: float) -> float:
        """Where the interval of a reader that starts now begins."""

    def choose(self, versions: Sequence[Version], reader: Reader[Id]) -> Look:
        """One of an object's versions, sorted by when they begin; None if none meets the reader's interval."""

    def horizon(self, readers: Iterable[Reader[Id]], now: float) -> float:
        """A version that ended by then is needed by no reader, neither of those that are active nor a later one."""


class Versions(Generic[Id]):
    """All objects with their versions, and all active readers.

    Instants are in the order of events. An update that comes at the same time as something before it (a start, another
    update) is taken to come a moment later, by the smallest step that a float can make: so no interval is ever empty.

    Invariants (`check`):
      V1  the intervals of a base object's versions follow one another without gaps, none is empty, and the last is open
          (Lemma 1)
      V2  no version of a view is empty; a view without an open version is in `outdated`, in the order of events
      V3  a base object whose last version is not applied is in `unapplied`, in the order of arrival
      V4  VI(T) of an active reader is what all that it has read have in common (with `earliest`), and not empty
      V5  all that an active reader has read is still there
      V6  `held` counts all versions; those that have ended, and only those, wait in `_ended` to be forgotten, or are
          the latest of a view, `_spared` until there is a later one: the next computation starts from it
    V4 and V5 are promised by rules whose readers look at intervals at all.
    """

    def __init__(self, rule: ReadingRule) -> None:
        self.rule = rule
        self.now = -inf  # the instant of the last event
        self.held = 0
        self.unapplied: dict[Id, Version] = {}  # by object, its last version
        self.outdated: dict[Id, None] = {}
        self.readers: dict[Reader[Id], None] = {}
        self.parents: dict[Id, tuple[Id, ...]] = {}  # of each view
        self._added: dict[Id, float] = {}
        self._versions: dict[Id, list[Version]] = {}
        self._derived: dict[Id, list[Id]] = {}  # views, by base object
        self._ended: list[tuple[float, int, Id, Version]] = []  # a heap
        self._spared: dict[Id, Version] = {}
        self._order = count()

    def __len__(self) -> int:
        """How many objects there are."""
        return len(self._versions)

    def of(self, object_id: Id) -> Sequence[Version]:
        """An object's versions, the latest last."""
        return self._versions[object_id]

    # -- what happens --------------------------------------------------------------------------------------

    def add(self, object_id: Id, now: float, parents: Iterable[Id] = ()) -> None:
        """A new object: a base object as it is now, or (with parents) a view that is computed now."""
        self.parents |= {object_id: mine} if (mine := tuple(parents)) else {}
        for parent in mine:
            self._derived.setdefault(parent, []).append(object_id)
        self._added[object_id] = self._later(now)
        self._versions[object_id] = [Version(self.now)]
        self.held += 1

    def arrive(self, object_id: Id, now: float) -> Version:
        """An update of a base object came: its last version ends, so do the views of it, and so do the intervals of
        those who have read them (Algorithm 1)."""
        instant = self._later(now)
        self._end(object_id, self._versions[object_id][-1], instant)
        for view in self._derived.get(object_id, ()):
            for version in self._versions[view]:
                if version.ends == inf:
                    self._end(view, version, instant)
                    self.outdated[view] = None
        version = Version(instant, applied=False)
        self._versions[object_id].append(version)
        self.held += 1
        self.unapplied[object_id] = version  # keeps the place of an earlier one
        return version

    def begin(self, now: float) -> Reader[Id]:
        """A reader starts."""
        self.now = max(self.now, now)
        reader: Reader[Id] = Reader(self.now, self.rule.earliest(self.now))
        self.readers[reader] = None
        return reader

    def existed(self, reader: Reader[Id], object_id: Id) -> bool:
        """Whether an object was there when a reader's interval began; if not, it must not read it: what the reader has
        seen so far may have ended before the object began."""
        return self._added.get(object_id, inf) <= self.rule.earliest(reader.start)

    def read(self, reader: Reader[Id], object_id: Id) -> Look:
        """Let a reader take a version of an object; what it has read before it gets again (Algorithm 2).

        If the version is not applied, its update must be done first. If there is none (views only), the reader reads
        all parents, and then calls `compute`.
        """
        if (again := reader.reads.get(object_id)) is not None:
            return Look(again, 1)
        look = self.rule.choose(self._versions[object_id], reader)
        if look.version is not None:
            reader.takes(object_id, look.version)
        else:
            assert object_id in self.parents, "some version of a base object always qualifies (Theorem 1)"
        return look

    def applied(self, object_id: Id, version: Version) -> None:
        """An update was done."""
        version.applied = True
        if self.unapplied.get(object_id) is version:
            del self.unapplied[object_id]

    def compute(self, reader: Reader[Id], view: Id) -> Version:
        """A view was computed from what a reader has read of its parents; the reader takes it.

        It is right for as long as all these are. (The paper cuts it to VI(T) besides, so that fewer could use it.)
        """
        used = [reader.reads[parent] for parent in self.parents[view]]
        version = Version(max(each.begins for each in used), min(each.ends for each in used))
        self._insert(view, version)
        reader.takes(view, version)
        return version

    def changed(self, reader: Reader[Id], view: Id) -> list[Id]:
        """The parents that a reader would see otherwise than the latest version of a view did."""
        made_at = self._versions[view][-1].begins
        found = []
        for parent in self.parents[view]:
            version = reader.reads.get(parent) or self.rule.choose(self._versions[parent], reader).version
            if version is None or not version.begins <= made_at < version.ends:
                found.append(parent)
        return found

    def end(self, reader: Reader[Id]) -> None:
        """A reader commits, or is aborted."""
        del self.readers[reader]

    def prune(self, now: float) -> int:
        """Forget what no reader can need any more; how many versions that were."""
        self.now = max(self.now, now)
        horizon = self.rule.horizon(self.readers, self.now)
        before = self.held
        while self._ended and self._ended[0][0] <= horizon:
            _, _, object_id, version = heappop(self._ended)
            versions = self._versions[object_id]
            if version is versions[-1]:  # of a view: by V1 that of a base object is open
                self._spared[object_id] = version
            else:
                versions.remove(version)
                self.held -= 1
        return before - self.held

    # -- inside --------------------------------------------------------------------------------------------

    def _later(self, now: float) -> float:
        self.now = now if now > self.now else nextafter(self.now, inf)
        return self.now

    def _end(self, object_id: Id, version: Version, instant: float) -> None:
        version.ends = instant
        self._forget_later(object_id, version)
        for reader in self.readers:
            if reader.reads.get(object_id) is version:
                reader.ends = min(reader.ends, instant)

    def _insert(self, view: Id, version: Version) -> None:
        insort(self._versions[view], version, key=lambda each: each.begins)
        self.held += 1
        if version.ends == inf:
            self.outdated.pop(view, None)
        else:
            self._forget_later(view, version)
        if (spared := self._spared.pop(view, None)) is not None:
            self._forget_later(view, spared)

    def _forget_later(self, object_id: Id, version: Version) -> None:
        heappush(self._ended, (version.ends, next(self._order), object_id, version))

    def check(self) -> None:
        """AssertionError if an invariant does not hold."""
        for object_id, versions in self._versions.items():
            is_open = [version for version in versions if version.ends == inf]
            assert all(version.begins < version.ends for version in versions), (object_id, "V1, V2")
            assert [each.begins for each in versions] == sorted(each.begins for each in versions)
            if object_id in self.parents:
                assert bool(is_open) != (object_id in self.outdated), (object_id, "V2")
            else:
                assert is_open == versions[-1:], (object_id, "V1")
                assert all(a.ends == b.begins for a, b in pairwise(versions)), (object_id, "V1")
                waits = None if versions[-1].applied else versions[-1]
                assert self.unapplied.get(object_id) is waits, (object_id, "V3")
        for reader in self.readers:
            taken = reader.reads.values()
            assert reader.begins == max([self.rule.earliest(reader.start), *(each.begins for each in taken)]), "V4"
            assert reader.ends == min([inf, *(each.ends for each in taken)]), "V4"
            assert reader.consistent, "V4"
            for object_id, version in reader.reads.items():
                assert any(each is version for each in self._versions[object_id]), (object_id, "V5")
        held = [version for versions in self._versions.values() for version in versions]
        assert self.held == len(held), "V6"
        waiting = [*(each for *_, each in self._ended), *self._spared.values()]
        assert sorted(map(id, waiting)) == sorted(id(each) for each in held if each.ends < inf), "V6"
        assert all(self._versions[view][-1] is version for view, version in self._spared.items()), "V6"


class OradReading(Orad):
    """ORAD over versions. A reader takes the latest version that meets its interval. That is enough (Theorem 1), needs
    one look as a rule, and lets everything be forgotten that ended before the intervals of all readers."""

    def earliest(self, start: float) -> float:
        """Nothing older than its start."""
        return start

    def choose(self, versions: Sequence[Version], reader: Reader[Id]) -> Look:
        """The latest that meets the interval: look from the latest back, and stop at the first."""
        begins, ends = reader.begins, reader.ends
        for back in range(len(versions) - 1, -1, -1):
            version = versions[back]
            if version.begins < ends and version.ends > begins:
                return Look(version, len(versions) - back)
        return Look(None, len(versions))

    def horizon(self, readers: Iterable[Reader[Id]], now: float) -> float:
        """Where the first of all intervals begins; without readers only the latest versions are kept."""
        return min((reader.begins for reader in readers), default=now)


class OdrtbReading(Odrtb):
    """ODRTB over versions. A reader takes the version that has most in common with its interval, which begins 10 s
    before it does: so it looks at all versions, and they must be kept for so long.

    With an open interval it takes the current version, whose overlap has no end, until something that it read has
    changed. With an interval that ends now (`Reader.until`), it takes what was right for long rather than what is new.
    """

    def committed(self, objects: Iterable[Id]) -> None:
        """It does not matter what was read."""

    def first_of(self, objects: Iterable[Id]) -> Id:
        """The update that came first."""
        return next(iter(objects))

    def earliest(self, start: float) -> float:
        """Some seconds before its start."""
        return start - self._tolerance_s

    def choose(self, versions: Sequence[Version], reader: Reader[Id]) -> Look:
        """The one with the widest overlap, and of equals the latest: look at all."""
        begins, ends = reader.begins, min(reader.ends, reader.until)
        widest, found = 0.0, None
        for version in reversed(versions):
            width = min(version.ends, ends) - max(version.begins, begins)
            if width > widest:
                widest, found = width, version
        return Look(found, len(versions))

    def horizon(self, readers: Iterable[Reader[Id]], now: float) -> float:
        """What ended 10 s before the start of the first reader."""
        return min((reader.start for reader in readers), default=now) - self._tolerance_s
