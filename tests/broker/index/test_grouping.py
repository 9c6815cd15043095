"""Groups against a dict: a combination keeps its number as long as somebody may have it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hullcast.broker.index import grouping
from hullcast.broker.index.grouping import Grouping

VALUES = st.sampled_from([*map(float, range(-3, 6)), math.inf, math.nan])
Combination = tuple[float, float]


class GroupingMachine(RuleBasedStateMachine):
    """The model: the number of each combination. A sweep looks at few of them at once."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(grouping, "SWEPT_AT_ONCE", 8)
        self.grouping = Grouping(2)
        self.model: dict[Combination, float] = {}
        self.marked: set[Combination] | None = None  # while a sweep is under way

    def teardown(self) -> None:
        self.patch.undo()

    @rule(rows=st.lists(st.tuples(VALUES, VALUES), max_size=20))
    def number(self, rows: list[Combination]) -> None:
        columns = [np.array([row[at] for row in rows]) for at in (0, 1)]
        for row, number in zip(rows, self.grouping.numbers(columns, len(rows)).tolist(), strict=True):
            if any(map(math.isnan, row)):
                assert math.isnan(number)
                continue
            assert self.model.setdefault(row, number) == number
            if self.marked is not None:
                self.marked.add(row)

    @precondition(lambda self: self.marked is None)
    @rule(keep=st.sets(st.integers(0, 120)))
    def sweep(self, keep: set[int]) -> None:
        self.model = {row: number for row, number in self.model.items() if number in keep}
        self.grouping.sweep(np.array([*self.model.values(), math.nan, math.inf]))

    @precondition(lambda self: self.marked is None)
    @rule()
    def begin_to_sweep(self) -> None:
        self.grouping.begin_sweep()
        self.marked = set()

    @precondition(lambda self: self.marked is not None and not self.grouping.forgetting)
    @rule(keep=st.sets(st.integers(0, 120)))
    def mark(self, keep: set[int]) -> None:
        assert self.marked is not None
        kept = {row: number for row, number in self.model.items() if number in keep}
        self.grouping.mark(np.array(list(kept.values())))
        self.marked |= kept.keys()

    @precondition(lambda self: self.marked is not None)
    @rule()
    def sweep_some(self) -> None:
        """Some of those that nobody marked go, and in the end all; no other."""
        assert self.marked is not None
        done, known = self.grouping.sweep_some(), set(self.grouping.known().tolist())
        there = {row: number for row, number in self.model.items() if row in self.marked or number in known}
        assert len(self.model) - len(there) <= grouping.SWEPT_AT_ONCE
        assert not done or there.keys() <= self.marked
        self.model = there
        if done:
            self.marked = None

    @invariant()
    def it_knows_exactly_the_model(self) -> None:
        if self.marked is None:  # to look for them would mark them
            self.grouping.check()
        known = self.grouping.known()
        columns = (column.tolist() for column in self.grouping.columns(known))
        assert dict(zip(zip(*columns, strict=True), known.tolist(), strict=True)) == self.model
        assert len(self.grouping) == len(self.model)


TestGrouping = GroupingMachine.TestCase


def test_many_combinations_are_told_apart_and_found_again() -> None:
    chance, grouped = np.random.default_rng(0), Grouping(3)
    columns = list(chance.integers(0, 50, (3, 100_000)).astype(np.float64))
    numbers = grouped.numbers(columns, 100_000)
    assert len(grouped) == len(np.unique(np.array(columns), axis=1).T) == len(set(numbers.tolist()))
    assert np.array_equal(grouped.columns(numbers), columns)
    assert np.array_equal(grouped.numbers(columns, 100_000), numbers)
    grouped.sweep(numbers[:10])
    assert len(grouped) == len(set(numbers[:10].tolist()))
    grouped.check()


def test_numbers_of_forgotten_combinations_are_used_again() -> None:
    grouped = Grouping(2)
    for round_ in range(20):
        numbers = grouped.numbers([np.arange(100.0) + round_, np.full(100, round_ * 1.0)], 100)
        grouped.sweep(np.empty(0))
        assert numbers.max() < 100
