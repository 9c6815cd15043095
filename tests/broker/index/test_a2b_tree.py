"""The A2B-tree and the messages it yields agree with the definitions on every history, for MIN and MAX at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from hullcast.broker.index.nodes import INNER, LEAF
from hullcast.broker.reformulate.keeper import TreeKeeper
from hullcast.broker.reformulate.kernel import BEST, INNER_L, INNER_R, OUTER_L, OUTER_R, PARTITION, SIGN, UPDATE
from hullcast.broker.tables.store import Updates
from tests.support.reference import Message, messages

Place = tuple[float, float, float]  # group, x, y
NOWHERE: Place = (np.nan, np.nan, np.nan)
TWO_LEVELS = LEAF * INNER  # more rows than a root above leaves can hold


class Rows:
    """Rows kept twice: in a tree, by its keeper, and in a dict; every message is compared with the reference."""

    def __init__(self) -> None:
        self.keeper = TreeKeeper(1, 2, (0,))
        self.keeper.wanted = 3
        self.model: dict[int, Place] = {}
        self.groups: dict[float, dict[int, tuple[float, float]]] = {}
        self.next_slot = 0
        self.said = 0

    def fresh(self, n: int) -> list[int]:
        """Slots that no row has."""
        slots = list(range(self.next_slot, self.next_slot + n))
        self.next_slot += n
        return slots

    def apply(self, changes: Sequence[tuple[int, Place | None]], samples: int = 60) -> None:
        """Give rows (by slot) other places, or none, in one batch; compare the messages of up to `samples` updates."""
        if not changes:
            return
        old, new = [], []
        places = dict(self.model)
        for slot, place in changes:
            old.append(places.get(slot, NOWHERE))
            new.append(NOWHERE if place is None else place)
            if place is None:
                places.pop(slot, None)
            else:
                places[slot] = place
        before, after = np.array(old).T.copy(), np.array(new).T.copy()
        slots = np.array([slot for slot, _ in changes], np.int64)
        raw, tally = self.keeper.update(Updates(slots, ~np.isnan(before[2]), ~np.isnan(after[2]), before, after))
        assert tally[:3].sum() == tally[3:].sum() == len(changes)
        assert (np.diff(raw[:, UPDATE]) >= 0).all()
        starts = np.searchsorted(raw[:, UPDATE], np.arange(len(changes) + 1))
        looked_at = set(np.linspace(0, len(changes) - 1, min(samples, len(changes))).astype(int).tolist())
        silent = np.zeros(2, np.int64)
        for i, (slot, place) in enumerate(changes):
            part = raw[starts[i] : starts[i + 1]]
            for side in range(2):
                silent[side] += not (part[:, SIGN] == 1.0 - 2.0 * side).any()
            if i in looked_at:
                self.compare(part, slot, self.model.get(slot), place)
            self.put(slot, place)
        assert silent.tolist() == [tally[0], tally[3]], "ignorable updates are those without a message"
        self.said += len(raw)

    def put(self, slot: int, place: Place | None) -> None:
        was = self.model.pop(slot, None)
        if was is not None:
            del self.groups[was[0]][slot]
        if place is not None:
            self.model[slot] = place
            self.groups.setdefault(place[0], {})[slot] = place[1:]

    def compare(
        self, part: np.ndarray[tuple[int, int], np.dtype[np.float64]], slot: int, old: Place | None, new: Place | None
    ) -> None:
        """The messages of one update are exactly those of the definition, no two alike."""
        for sign in (1.0, -1.0):
            expected: set[tuple[float, Message]] = set()
            for group in {place[0] for place in (old, new) if place is not None}:
                others = [point for other, point in self.groups.get(group, {}).items() if other != slot]
                gone = old[1:] if old is not None and old[0] == group else None
                come = new[1:] if new is not None and new[0] == group else None
                if gone != come:
                    expected |= {(group, message) for message in messages(others, gone, come, sign)}
            mine = part[part[:, SIGN] == sign]
            found = [
                (float(row[PARTITION]), Message(*row[[BEST, INNER_L, INNER_R, OUTER_L, OUTER_R]].tolist()))
                for row in mine
            ]
            assert len(found) == len(expected)
            assert set(found) == expected

    def check_ranges(self, groups: list[float], lows: list[float], highs: list[float]) -> None:
        """MIN and MAX over ranges are those of all rows looked at one by one."""
        for sign in (1.0, -1.0):
            best = self.keeper.tree.range_best(np.array(groups), np.array(lows), np.array(highs), sign)
            for group, low, high, value in zip(groups, lows, highs, best.tolist(), strict=True):
                ys = [sign * y for x, y in self.groups.get(group, {}).values() if low <= x <= high]
                assert value == sign * min(ys, default=inf)


class TreeHistory(RuleBasedStateMachine):
    """Random histories on a coarse grid: ties in x and y are the rule; batches force splits and merges."""

    @initialize(
        groups=st.sampled_from([1, 1, 3, 20]), xs=st.sampled_from([1, 2, 3, 7, 30]), ys=st.sampled_from([1, 3, 8, 1000])
    )
    def start(self, groups: int, xs: int, ys: int) -> None:
        self.rows = Rows()
        self.shape = (groups, xs, ys)

    def places(self, rng: np.random.Generator, n: int) -> list[Place]:
        columns = [rng.integers(0, high, n).astype(float).tolist() for high in self.shape]
        return list(zip(*columns, strict=True))

    def some(self, rng: np.random.Generator, n: int) -> list[int]:
        """Slots of rows, perhaps the same one several times."""
        slots = sorted(self.rows.model)
        return rng.choice(slots, n).tolist() if slots else []

    @rule(seed=st.integers(0, 2**32 - 1), n=st.sampled_from([1, 2, 5, 40, 200]))
    def insert(self, seed: int, n: int) -> None:
        places = self.places(np.random.default_rng(seed), n)
        self.rows.apply(list(zip(self.rows.fresh(n), places, strict=True)))

    @rule(seed=st.integers(0, 2**32 - 1), n=st.sampled_from([1, 2, 5, 40, 150]))
    def delete(self, seed: int, n: int) -> None:
        slots = dict.fromkeys(self.some(np.random.default_rng(seed), n))
        self.rows.apply([(slot, None) for slot in slots])

    @rule(seed=st.integers(0, 2**32 - 1), n=st.sampled_from([1, 2, 5, 40]))
    def change_y(self, seed: int, n: int) -> None:
        self.change(seed, n, keep=(0, 1))

    @rule(seed=st.integers(0, 2**32 - 1), n=st.sampled_from([1, 2, 5, 40]))
    def move_x(self, seed: int, n: int) -> None:
        self.change(seed, n, keep=(0, 2))

    @rule(seed=st.integers(0, 2**32 - 1), n=st.sampled_from([1, 2, 5, 40]))
    def move_group(self, seed: int, n: int) -> None:
        self.change(seed, n, keep=(1, 2))

    @rule(seed=st.integers(0, 2**32 - 1), n=st.sampled_from([1, 2, 5, 40]))
    def change_all(self, seed: int, n: int) -> None:
        self.change(seed, n, keep=())

    @rule(seed=st.integers(0, 2**32 - 1))
    def change_nothing(self, seed: int) -> None:
        self.change(seed, 3, keep=(0, 1, 2))

    def change(self, seed: int, n: int, keep: tuple[int, ...]) -> None:
        rng = np.random.default_rng(seed)
        now = dict(self.rows.model)
        changes: list[tuple[int, Place | None]] = []
        for slot, drawn in zip(self.some(rng, n), self.places(rng, n), strict=False):
            group, x, y = (now[slot][i] if i in keep else drawn[i] for i in range(3))
            now[slot] = (group, x, y)
            changes.append((slot, now[slot]))
        self.rows.apply(changes)

    @rule(seed=st.integers(0, 2**32 - 1))
    def ranges_match_the_definition(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        groups, xs, _ = self.shape
        lows, highs = rng.integers(-1, 2 * xs + 1, (2, 12)) / 2
        self.rows.check_ranges(
            rng.integers(0, groups + 1, 14).astype(float).tolist(),
            [*lows.tolist(), -inf, -inf],
            [*highs.tolist(), inf, 1.0],
        )

    @invariant()
    def structure_is_sound(self) -> None:
        if hasattr(self, "rows"):
            self.rows.keeper.tree.check()
            assert len(self.rows.keeper.tree) == len(self.rows.model)


TestTreeHistory = TreeHistory.TestCase
TestTreeHistory.settings = settings(max_examples=150, stateful_step_count=25)


@pytest.mark.slow
def test_long_tree_histories() -> None:
    run_state_machine_as_test(TreeHistory, settings=settings(max_examples=1500, stateful_step_count=50))


ORDERS = ["random", "rising", "falling"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("xs", "groups"), [(1_000_000, 1), (40, 1), (3, 1), (1, 1), (50, 100), (1, 700)])
def test_a_tree_of_three_levels_grows_and_shrinks_to_nothing(order: str, xs: int, groups: int) -> None:
    n = 3 * TWO_LEVELS // 2
    rng = np.random.default_rng(xs + groups)
    columns = np.stack((rng.integers(0, groups, n), rng.integers(0, xs, n), rng.integers(0, 50, n))).astype(float)
    if order != "random":
        columns = columns[:, np.lexsort(columns[::-1])[:: 1 if order == "rising" else -1]]
    rows = Rows()
    places: list[Place] = list(zip(*columns.tolist(), strict=True))
    slots = rows.fresh(n)
    for start in range(0, n, 400):
        rows.apply(list(zip(slots, places, strict=True))[start : start + 400], samples=8)
        rows.keeper.tree.check()
    assert len(rows.keeper.tree) == n > TWO_LEVELS
    ends = rng.integers(0, xs, (2, 50)).astype(float)
    rows.check_ranges(rng.integers(0, groups, 50).astype(float).tolist(), ends[0].tolist(), ends[1].tolist())
    moved = rng.permutation(n)[:400].tolist()
    rows.apply([(slot, (places[slot][0], places[slot][1], float(rng.integers(-5, 55)))) for slot in moved], samples=30)
    rows.keeper.tree.check()
    leaving = slots if order != "random" else rng.permutation(n).tolist()
    for start in range(0, n, 400):
        rows.apply([(slot, None) for slot in leaving[start : start + 400]], samples=8)
        rows.keeper.tree.check()
    assert len(rows.keeper.tree) == 0
    rows.apply([(slots[0], (0.0, 1.0, 2.0))])
    rows.keeper.tree.check()


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("tied", [False, True])
def test_a_hull_of_hundreds_is_announced_point_by_point(sign: float, tied: bool) -> None:
    """y falls (for MIN) from the middle outwards: taking the best row away uncovers every other one."""
    reach = 400
    rows = Rows()
    steps = [x for x in range(-reach, reach + 1) if x]
    places = [(0.0, float(x), sign * (1000.0 - abs(x) - (0 if tied or x < 0 else 0.5))) for x in steps]
    slots = rows.fresh(len(places))
    rows.apply(list(zip(slots, places, strict=True)), samples=5)
    middle = rows.fresh(1)[0]
    rows.apply([(middle, (0.0, 0.0, sign * 1.0))])
    said = rows.said
    rows.apply([(middle, (0.0, 0.0, sign * 2000.0))])
    assert rows.said - said == 2 * reach + 1 + 1  # every row, the middle's own value, and the mirror's one
    rows.apply([(middle, (0.0, 0.0, sign * 1.0))])
    rows.apply([(middle, (0.0, 0.5, sign * 2000.0))])
    rows.apply([(middle, (0.0, 0.0, sign * 1.0))])
    rows.apply([(middle, None)])
    rows.keeper.tree.check()


@pytest.mark.parametrize("rising", [True, False])
def test_staircases_to_one_side_and_back(rising: bool) -> None:
    rows = Rows()
    n = 600
    order = list(range(n)) if rising else list(range(n))[::-1]
    rows.apply([(slot, (0.0, float(slot), float(slot if rising else -slot))) for slot in order], samples=40)
    rows.apply([(slot, (0.0, float(slot), float(-slot if rising else slot))) for slot in order], samples=40)
    rows.apply([(slot, None) for slot in order], samples=40)
    rows.keeper.tree.check()


def test_runs_of_equal_x_across_many_leaves_keep_their_order_when_y_changes() -> None:
    rng = np.random.default_rng(7)
    rows = Rows()
    slots = rows.fresh(900)
    rows.apply([(slot, (0.0, float(slot % 3), float(rng.integers(0, 4)))) for slot in slots], samples=20)
    for _ in range(30):
        changes: list[tuple[int, Place | None]] = []
        for slot in rng.choice(slots, 60).tolist():
            changes.append((slot, (0.0, float(rng.integers(0, 3)), float(rng.integers(0, 4)))))
        rows.apply(changes, samples=15)
        rows.keeper.tree.check()


def test_the_largest_floats_are_ordinary_values() -> None:
    largest = np.finfo(np.float64).max
    rows = Rows()
    slots = rows.fresh(6)
    values = [largest, -largest, 0.0, 5e-324, -5e-324, 1.0]
    rows.apply([(slot, (0.0, x, y)) for slot, x, y in zip(slots, values, values[::-1], strict=True)])
    for y in values:
        rows.apply([(slot, (0.0, rows.model[slot][1], y)) for slot in slots])
    rows.check_ranges([0.0] * 3, [-largest, -inf, 0.0], [largest, inf, 5e-324])
    rows.apply([(slot, None) for slot in slots])
