"""The key map agrees with a dict on every history."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hullcast.broker.tables.keys import ABSENT, KeyMap

# Neighbours, multiples of large powers of two (equal low bits) and fractions: keys that a poor hash would pile up.
keys = st.lists(
    st.one_of(st.integers(-5, 5), st.integers(0, 5).map(lambda n: n * 2.0**40), st.sampled_from([0.5, -0.25, 1e300])),
    max_size=30,
).map(lambda drawn: np.array(drawn, np.float64) + 0.0)


class KeyMapMachine(RuleBasedStateMachine):
    """Assigns, finds and removes columns of keys."""

    def __init__(self) -> None:
        super().__init__()
        self.map = KeyMap()
        self.model: dict[float, int] = {}
        self.next = 0

    @rule(column=keys)
    def assign(self, column: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        fresh = np.arange(self.next, self.next + len(column))
        slots, taken = self.map.assign(column, fresh)
        for key, slot in zip(column.tolist(), slots.tolist(), strict=True):
            if key not in self.model:
                self.model[key] = self.next
                self.next += 1
            assert slot == self.model[key]
        assert self.next == (fresh[0] if len(fresh) else self.next) + taken

    @rule(column=keys)
    def remove(self, column: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        assert self.map.remove(column).tolist() == [self.model.pop(key, ABSENT) for key in column.tolist()]

    @rule(column=keys)
    def find(self, column: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        assert self.map.find(column).tolist() == [self.model.get(key, ABSENT) for key in column.tolist()]

    @invariant()
    def the_structure_is_sound(self) -> None:
        self.map.check()
        assert len(self.map) == len(self.model)


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
    empty = np.flatnonzero(held.slots < 0)
    assert np.diff(empty).max() <= 64, "no long run of occupied places"
