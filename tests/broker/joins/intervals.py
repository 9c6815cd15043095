"""Intervals on a coarse grid, a model to compare with, and a consumer that follows changes."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Protocol

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hullcast.broker.joins.partition import NO_GROUP, PartitionChanges, StabbingGroups
from hullcast.network.wire.arrays import Floats, Ints

Interval = tuple[float, float]

ENDS = st.sampled_from([-inf, inf, -0.0, *map(float, range(-6, 7))])
INTERVALS = st.tuples(ENDS, ENDS).map(lambda ends: (min(ends), max(ends)))
IDS = st.integers(0, 30)


class Tracked(Protocol):
    """What partitions and trackers have in common."""

    @property
    def group_of(self) -> Ints: ...
    def __len__(self) -> int: ...
    def add(self, ids: Ints, lows: Floats, highs: Floats) -> None: ...
    def remove(self, ids: Ints) -> None: ...
    def groups(self) -> StabbingGroups: ...
    def take_changes(self) -> PartitionChanges: ...
    def check(self) -> None: ...


def fewest(intervals: Iterable[Interval]) -> int:
    """tau by its other definition, the largest number of intervals that do not overlap: always take what ends first."""
    count, end = 0, None
    for low, high in sorted(intervals, key=lambda interval: interval[::-1]):
        if end is None or low > end:
            count, end = count + 1, high
    return count


def common(intervals: Iterable[Interval]) -> Interval:
    """What they have in common."""
    lows, highs = zip(*intervals, strict=True)
    return max(lows), min(highs)


class Followed:
    """A partition or tracker, a dict of the same intervals, and a consumer that knows only what it was told."""

    def __init__(self, tracked: Tracked) -> None:
        self.tracked = tracked
        self.model: dict[int, Interval] = {}
        self.known: dict[int, tuple[int, Interval]] = {}  # the consumer's index: group and interval of each id
        self.moved = 0

    def add(self, new: dict[int, Interval]) -> None:
        ids = np.array(list(new), np.int64)
        ends = np.array(list(new.values()), float).reshape(-1, 2)
        self.tracked.add(ids, ends[:, 0], ends[:, 1])
        self.model.update(new)

    def remove(self, ids: list[int]) -> None:
        self.tracked.remove(np.array(ids, np.int64))
        for number in ids:
            del self.model[number]

    def follow(self) -> None:
        """Take changes, and compare what the consumer knows then with how it is."""
        changes = self.tracked.take_changes()
        self.moved += len(changes.ids)
        assert len(set(changes.ids.tolist())) == len(changes.ids)
        for number, group in zip(changes.ids.tolist(), changes.groups.tolist(), strict=True):
            if group == NO_GROUP:
                del self.known[number]
            else:
                self.known[number] = (group, self.model[number])
        assert not {group for group, _ in self.known.values()} & set(changes.vanished.tolist())
        self.compare()

    def compare(self) -> None:
        """The consumer knows every interval, and its group."""
        group_of = self.tracked.group_of
        assert self.known == {number: (int(group_of[number]), ends) for number, ends in self.model.items()}


class FollowedMachine(RuleBasedStateMachine):
    """Intervals come and go, few or many at once, and a consumer asks now and then."""

    followed: Followed

    @rule(new=st.dictionaries(IDS, INTERVALS, max_size=4))
    def add(self, new: dict[int, Interval]) -> None:
        self.followed.add({number: ends for number, ends in new.items() if number not in self.followed.model})

    @rule(new=st.lists(INTERVALS, min_size=20, max_size=60), first=st.sampled_from([100, 200]))
    def add_many(self, new: list[Interval], first: int) -> None:
        ids = [number for number in range(first, first + len(new)) if number not in self.followed.model]
        self.followed.add(dict(zip(ids, new, strict=False)))

    @rule(data=st.data(), most=st.sampled_from([1, 3, 100]))
    def remove(self, data: st.DataObject, most: int) -> None:
        if self.followed.model:
            ids = st.lists(st.sampled_from(sorted(self.followed.model)), unique=True, max_size=most)
            self.followed.remove(data.draw(ids))

    @rule()
    def replace_all(self) -> None:
        """The same ids with other intervals, before the consumer asks."""
        before = dict(self.followed.model)
        self.followed.remove(list(before))
        self.followed.add({number: (-high, -low) for number, (low, high) in before.items()})

    @rule()
    def follow(self) -> None:
        self.followed.follow()

    @invariant()
    def is_sound(self) -> None:
        tracked, model = self.followed.tracked, self.followed.model
        tracked.check()
        assert len(tracked) == len(model)
        group_of = tracked.group_of
        assert set(np.flatnonzero(group_of != NO_GROUP).tolist()) == set(model)
        for group, low, high, size in zip(*(column.tolist() for column in tracked.groups()), strict=True):
            members = [ends for number, ends in model.items() if group_of[number] == group]
            most_low, least_high = common(members)
            assert most_low <= low <= high <= least_high
            assert len(members) == size

    def teardown(self) -> None:
        self.followed.follow()


def random_changes(followed: Followed, seed: int, changes: int, centres: int, check_each: int) -> None:
    """Batches and single changes around moving centres, up to some thousands of intervals."""
    rng = np.random.default_rng(seed)
    tracked, live, free = followed.tracked, np.empty(0, np.int64), np.arange(6_000)
    done, checked = 0, 0
    while done < changes:
        n = int(rng.choice([1, 1, 1, 10, 300]))
        grows = rng.random() < (0.8 if (done // 10_000) % 2 == 0 else 0.3)
        if grows and len(free) >= n:
            middles = np.round(rng.integers(0, centres, n) * 10 + done / changes * 30 + rng.normal(0, 1, n))
            ids, free = free[:n], free[n:]
            tracked.add(ids, middles - rng.integers(0, 6, n), middles + rng.integers(0, 6, n))
            live = np.concatenate((live, ids))
        else:
            n = min(n, len(live))
            rng.shuffle(live)
            ids, live = live[:n], live[n:]
            tracked.remove(ids)
            free = np.concatenate((free, ids))
        done += n
        if done - checked >= check_each:
            tracked.check()
            tracked.take_changes()
            checked = done
    tracked.check()
    assert len(tracked) == len(live)
