"""Versions and readers: Theorem 1, relative consistency and pruning, over random interleavings on a coarse clock."""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hullcast.broker.warehouse.deciding.policies.orad import ClockCache
from hullcast.sim.experiments.studies.scheduling.validity import (
    OdrtbReading,
    OradReading,
    Reader,
    ReadingRule,
    Version,
    Versions,
)

BASE, VIEWS = ("a", "b", "c"), {"ab": ("a", "b"), "bc": ("b", "c"), "a2": ("a",)}
TICKS = st.sampled_from([0.0, 0.0, 1.0, 3.0])  # ties are common
PLACES = st.integers(0, 9)


class _Readers(RuleBasedStateMachine):
    """Readers, updates, computations and pruning in any order. The oracle keeps all versions that ever were, and what
    is in each of them."""

    def __init__(self, reading: ReadingRule, *, until_now: bool = False) -> None:
        super().__init__()
        self.until_now = until_now
        self.time = 0.0
        self.store: Versions[str] = Versions(reading)
        self.ever: dict[str, list[Version]] = {}
        self.content: dict[Version, Any] = {}  # of a base object: a number; of a view: that of its parents
        self.computing: dict[Reader[str], tuple[str, list[str]]] = {}
        self.numbers = 0
        for name in BASE:
            self.add(name)
        for name, parents in VIEWS.items():
            self.store.add(name, self.time, parents)
            (version,) = self.store.of(name)
            self.ever[name] = [version]
            self.content[version] = tuple(self.content[self.ever[parent][0]] for parent in parents)

    def add(self, name: str) -> None:
        self.store.add(name, self.time)
        self.keep(name, self.store.of(name)[-1])

    def keep(self, name: str, version: Version) -> None:
        self.numbers += 1
        self.ever.setdefault(name, []).append(version)
        self.content[version] = self.numbers

    def pick(self, place: int) -> Reader[str]:
        return list(self.store.readers)[place % len(self.store.readers)]

    # -- what happens --------------------------------------------------------------------------------------

    @rule(tick=TICKS)
    def time_passes(self, tick: float) -> None:
        self.time += tick

    @rule(place=PLACES)
    def an_update_comes(self, place: int) -> None:
        name = [name for name in self.ever if name not in VIEWS][place % (len(self.ever) - len(VIEWS))]
        self.keep(name, self.store.arrive(name, self.time))

    @precondition(lambda self: len(self.ever) < 8)
    @rule()
    def an_object_is_added(self) -> None:
        self.add(f"new{len(self.ever)}")

    @precondition(lambda self: len(self.store.readers) < 4)
    @rule()
    def a_reader_begins(self) -> None:
        self.store.begin(self.time)

    @precondition(lambda self: self.store.readers)
    @rule(reader=PLACES, place=PLACES)
    def a_reader_reads(self, reader: int, place: int) -> None:
        """The next object; or, if it computes a view, its next parent, then the view. In between all may happen."""
        mine = self.pick(reader)
        if mine in self.computing:
            view, parents = self.computing[mine]
            if parents:
                self.reads(mine, parents.pop())
            else:
                del self.computing[mine]
                self.computed(mine, view)
            return
        name = list(self.ever)[place % len(self.ever)]
        if not self.store.existed(mine, name):
            return
        if self.until_now:
            mine.until = self.time
        if self.reads(mine, name) is None:
            self.computing[mine] = name, list(VIEWS[name])

    def reads(self, reader: Reader[str], name: str) -> Version | None:
        wanted = reader.reads.get(name) or self.store.rule.choose(self.ever[name], reader).version
        look = self.store.read(reader, name)
        assert look.version is wanted, "what was forgotten was needed"
        assert 1 <= look.looked <= len(self.store.of(name))
        if look.version is None:
            assert name in VIEWS, "Theorem 1"
        elif not look.version.applied:
            self.store.applied(name, look.version)
        return look.version

    def computed(self, reader: Reader[str], view: str) -> None:
        changed = self.store.changed(reader, view)
        latest = self.store.of(view)[-1]
        version = self.store.compute(reader, view)
        self.ever[view] = sorted([*self.ever[view], version], key=lambda each: each.begins)
        self.content[version] = tuple(self.content[reader.reads[parent]] for parent in VIEWS[view])
        differ = zip(VIEWS[view], self.content[latest], self.content[version], strict=True)
        assert changed == [parent for parent, before, after in differ if before != after]

    @precondition(lambda self: self.store.readers)
    @rule(reader=PLACES)
    def a_reader_ends(self, reader: int) -> None:
        mine = self.pick(reader)
        self.computing.pop(mine, None)
        self.store.end(mine)

    @precondition(lambda self: self.store.unapplied)
    @rule()
    def idle_time_applies_an_update(self) -> None:
        name, version = next(iter(self.store.unapplied.items()))
        self.store.applied(name, version)

    @precondition(lambda self: self.store.outdated)
    @rule()
    def idle_time_computes_a_view(self) -> None:
        view = next(iter(self.store.outdated))
        reader = self.store.begin(self.time)
        for parent in VIEWS[view]:
            self.reads(reader, parent)
        self.computed(reader, view)
        self.store.end(reader)
        assert view not in self.store.outdated

    @rule()
    def old_versions_are_forgotten(self) -> None:
        self.store.prune(self.time)
        horizon = self.store.rule.horizon(self.store.readers, self.store.now)
        for name in self.ever:
            assert all(version.ends > horizon for version in self.store.of(name)[:-1])

    # -- what is always true -------------------------------------------------------------------------------

    @invariant()
    def the_structure_is_sound(self) -> None:
        self.store.check()

    @invariant()
    def every_read_set_is_of_one_moment(self) -> None:
        moments = sorted({version.begins for versions in self.ever.values() for version in versions})
        for reader in self.store.readers:
            seen = {name: self.content[version] for name, version in reader.reads.items()}
            good = [moment for moment in moments if all(self.at(name, moment) == seen[name] for name in seen)]
            earliest = self.store.rule.earliest(reader.start)
            assert any(self.until(moment, moments) > earliest for moment in good), "relatively consistent, not too old"

    def at(self, name: str, moment: float) -> Any:
        """What an object was at a moment."""
        if name in VIEWS:
            return tuple(self.at(parent, moment) for parent in VIEWS[name])
        return next((self.content[each] for each in reversed(self.ever[name]) if each.begins <= moment), None)

    @staticmethod
    def until(moment: float, moments: list[float]) -> float:
        """How long nothing changes."""
        return next((later for later in moments if later > moment), float("inf"))


class _OradReaders(_Readers):
    def __init__(self) -> None:
        super().__init__(OradReading())


class _OdrtbReaders(_Readers):
    def __init__(self) -> None:
        super().__init__(OdrtbReading(tolerance_s=2.0))


class _OdrtbNowReaders(_Readers):
    def __init__(self) -> None:
        super().__init__(OdrtbReading(tolerance_s=2.0), until_now=True)


STEPS = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestOradReaders = _OradReaders.TestCase
TestOradReaders.settings = STEPS
TestOdrtbReaders = _OdrtbReaders.TestCase
TestOdrtbReaders.settings = STEPS
TestOdrtbNowReaders = _OdrtbNowReaders.TestCase
TestOdrtbNowReaders.settings = STEPS


def test_the_picture_of_the_module_is_right() -> None:
    store: Versions[str] = Versions(OradReading())
    store.add("STOCK", 0.0)
    store.add("view", 0.5, ["STOCK"])
    store.arrive("STOCK", 4.0)
    reader = store.begin(5.0)
    other = store.begin(6.0)
    store.read(other, "STOCK")
    store.compute(other, "view")
    store.end(other)
    assert not store.outdated
    assert store.read(reader, "STOCK").version is store.of("STOCK")[1]
    store.arrive("STOCK", 9.0)
    assert (reader.begins, reader.ends) == (5.0, 9.0)
    assert store.outdated
    look = store.read(reader, "view")
    assert look.version is not None
    assert (look.version.begins, look.version.ends) == (4.0, 9.0)
    store.prune(10.0)
    assert [version.begins for version in store.of("STOCK")] == [4.0, 9.0]
    store.end(reader)
    store.prune(10.0)
    assert [version.begins for version in store.of("STOCK")] == [9.0]
    assert [(version.begins, version.ends) for version in store.of("view")] == [(4.0, 9.0)]


def test_orad_takes_the_latest_version_after_one_look_where_odrtb_looks_at_all_and_takes_the_widest() -> None:
    versions = [Version(0.0, 4.0), Version(4.0, 9.0), Version(9.0)]
    reader: Reader[str] = Reader(start=5.0, begins=0.0, ends=10.0)
    assert OradReading().choose(versions, reader) == (versions[2], 1)
    assert OdrtbReading().choose(versions, reader) == (versions[1], 3)
    reader.ends = float("inf")
    assert OdrtbReading().choose(versions, reader) == (versions[2], 3), "no end of the overlap"
    for until, widest in ((13.0, 1), (14.0, 2)):  # right for 5 s; or for as long, and later
        reader.until = until
        assert OdrtbReading().choose(versions, reader) == (versions[widest], 3)


def test_what_began_after_a_reader_is_not_read() -> None:
    store: Versions[str] = Versions(OradReading())
    store.add("old", 0.0)
    reader = store.begin(0.0)
    store.add("new", 0.0)
    assert store.existed(reader, "old")
    assert not store.existed(reader, "new")
    assert not store.existed(reader, "never")


@given(st.integers(1, 4), st.lists(st.integers(0, 6), max_size=40))
def test_the_clock_cache_gives_every_object_that_is_read_again_a_second_chance(size: int, reads: list[int]) -> None:
    cache: ClockCache[int] = ClockCache(size)
    queue: deque[tuple[int, bool]] = deque()  # the oracle: who is marked goes to the end, without the mark
    for each in reads:
        cache.touch(each)
        cache.check()
        marks = dict(queue)
        if each in marks:
            queue = deque((one, mark or one == each) for one, mark in queue)
        else:
            while len(queue) == size:
                one, mark = queue.popleft()
                if mark:
                    queue.append((one, False))
            queue.append((each, True))
        assert {one: cache.rank(one) for one in range(7)} == {
            one: 2 if one not in dict(queue) else 0 if dict(queue)[one] else 1 for one in range(7)
        }
