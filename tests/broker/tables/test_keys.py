"""The key map agrees with a dict on every history."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hullcast.broker.tables import keys as keys_module
from hullcast.broker.tables.keys import ABSENT, BOUNDARY, DIVIDED, PLACES, SHIFT, KeyMap

Column = np.ndarray[tuple[int], np.dtype[np.float64]]

# Neighbours, multiples of large powers of two (equal low bits) and fractions: keys that a poor hash would pile up. And
# so many in a row, from a coarse grid, that the table grows, and keys leave and come back while it does.
keys = st.one_of(
    st.lists(
        st.one_of(
            st.integers(-5, 5), st.integers(0, 5).map(lambda n: n * 2.0**40), st.sampled_from([0.5, -0.25, 1e300])
        ),
        max_size=30,
    ).map(lambda drawn: np.array(drawn, np.float64) + 0.0),
    st.tuples(st.integers(0, 12), st.integers(1, 70)).map(lambda run: 40.0 * run[0] + np.arange(run[1])),
)


class KeyMapMachine(RuleBasedStateMachine):
    """Assigns, finds and removes columns of keys. Homes are divided so slowly that this is nearly always under way."""

    def __init__(self) -> None:
        super().__init__()
        self.slowly = pytest.MonkeyPatch()
        self.slowly.setattr(keys_module, "DIVIDED", 2)
        self.map = KeyMap()
        self.model: dict[float, int] = {}
        self.next = 0

    @rule(column=keys)
    def assign(self, column: Column) -> None:
        fresh = np.arange(self.next, self.next + len(column))
        slots, taken = self.map.assign(column, fresh)
        for key, slot in zip(column.tolist(), slots.tolist(), strict=True):
            if key not in self.model:
                self.model[key] = self.next
                self.next += 1
            assert slot == self.model[key]
        assert self.next == (fresh[0] if len(fresh) else self.next) + taken

    @rule(column=keys)
    def remove(self, column: Column) -> None:
        assert self.map.remove(column).tolist() == [self.model.pop(key, ABSENT) for key in column.tolist()]

    @rule(column=keys)
    def find(self, column: Column) -> None:
        assert self.map.find(column).tolist() == [self.model.get(key, ABSENT) for key in column.tolist()]

    @invariant()
    def the_structure_is_sound(self) -> None:
        self.map.check()
        assert len(self.map) == len(self.model)

    def teardown(self) -> None:
        self.slowly.undo()


KeyMapMachine.TestCase.settings = settings(deadline=None, max_examples=60, stateful_step_count=30)
TestKeyMap = KeyMapMachine.TestCase


def test_churn_does_not_make_the_table_grow() -> None:
    keys_in = np.arange(1000.0)
    held = KeyMap()
    held.assign(keys_in, np.arange(1000))
    size = held.memory_bytes()
    for turn in range(1, 200):
        held.remove(keys_in)
        keys_in = keys_in + 1000.0 * turn
        held.assign(keys_in, np.arange(1000))
    held.check()
    assert held.memory_bytes() <= 2 * size


@pytest.mark.parametrize("count", [100, 1000, 10_000])
@pytest.mark.parametrize("step", [1.0, -1.0, 0.25, 2.0**20])
def test_whole_numbers_are_spread_over_the_table(count: int, step: float) -> None:
    """A search passes the occupied places from a key's home on; keys 0, 1, 2 .. once shared two homes."""
    held = KeyMap()
    held.assign(np.arange(count, dtype=np.float64) * np.float64(step) + 0.0, np.arange(count))
    empty = np.flatnonzero(held.table[PLACES + 1 :: 2] == 0)
    assert np.diff(empty).max() <= 64, "no long run of occupied places"


@pytest.mark.parametrize(("first", "batch"), [(3000, 1), (3000, 100), (60_000, 4096)])
def test_no_batch_pays_for_the_growth_of_the_table(first: int, batch: int) -> None:
    """Homes divided, and keys moved by that, are in proportion to the keys that come."""
    held = KeyMap()
    held.assign(np.arange(float(first)), np.arange(first))
    homes, divided = int(held.table[BOUNDARY]), 0
    places = PLACES + 6 * homes
    for start in range(first, 2 * first, batch):
        before = held.table[:places].copy()
        held.assign(np.arange(float(start), start + batch), np.arange(start, start + batch))
        after = held.table[: len(before)]
        here = int(before[BOUNDARY]) - (int(after[BOUNDARY]) if after[SHIFT] == before[SHIFT] else 0)
        assert here <= DIVIDED * batch + 64
        assert np.count_nonzero((before != after)[PLACES::2] & (before[PLACES + 1 :: 2] > 0)) <= 2 * here + 64
        divided += here
    assert divided == homes
    held.check()


def test_a_batch_larger_than_the_table_may_come_while_it_is_divided() -> None:
    held = KeyMap()
    for start, stop in ((0, 33), (33, 34), (34, 5000), (5000, 5001), (5001, 90_000)):
        held.assign(np.arange(float(start), stop), np.arange(start, stop))
        held.check()
    assert held.find(np.arange(90_001.0)).tolist() == [*range(90_000), ABSENT]


def test_keys_of_one_home_are_found_while_it_is_divided() -> None:
    """Somebody who knows the hash can choose keys that all have one home. It takes long; it stays right."""
    spread = pow(0x9E3779B97F4A7C15, -1, 1 << 64)
    folded = np.array([(((7 << 58) + n) * spread) % (1 << 64) for n in range(4000)], np.uint64)
    column = (folded ^ (folded >> np.uint64(32))).view(np.float64)
    column = column[np.isfinite(column)]
    held = KeyMap()
    for start in range(0, len(column), 10):
        part = column[start : start + 10]
        held.assign(part, np.arange(start, start + len(part)))
    held.check()
    assert held.find(column).tolist() == list(range(len(column)))
    assert held.remove(column[::2]).tolist() == list(range(0, len(column), 2))
    held.check()
    assert (held.find(column[::2]) == ABSENT).all()
    assert held.find(column[1::2]).tolist() == list(range(1, len(column), 2))
