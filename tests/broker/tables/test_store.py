"""The store against a dict of dicts: every batch, in order, with what was before and what is after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hullcast.broker.tables import keys as keys_of
from hullcast.broker.tables import room
from hullcast.broker.tables.feed import OVERHEAD_BYTES, Behind, ChangeFeed, SlotRows, TableCopy
from hullcast.broker.tables.interning import Interner
from hullcast.broker.tables.room import SMALLEST
from hullcast.broker.tables.schema import Column, ColumnType, Table
from hullcast.broker.tables.store import TableStore, row_bytes
from hullcast.broker.tables.values import decode
from hullcast.network.wire.errors import BadValue, InvariantBroken
from tests.support.rows import coded, coded_keys

TABLE = Table(
    "T",
    (
        Column("A", ColumnType.REAL),
        Column("K", ColumnType.TEXT),
        Column("B", ColumnType.INTEGER, not_null=True),
        Column("C", ColumnType.TEXT),
    ),
    1,
)
Row = dict[str, Any]
keys = st.sampled_from(["a", "b", "c", "d", "e"])
rows = st.fixed_dictionaries(
    {"K": keys},
    optional={"A": st.none() | st.integers(-2, 2).map(float), "B": st.integers(0, 2), "C": st.none() | keys},
)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.interner = Interner()
        self.store = TableStore(TABLE)
        self.feed = ChangeFeed(limit_bytes=4 * OVERHEAD_BYTES)  # so small that a follower is behind now and then
        self.follower = self.feed.follower("copy")
        self.follower.add(TABLE)
        self.copy = TableCopy(self.store)
        self.model: dict[str, Row] = {}
        self.slots: dict[str, int] = {}
        self.followed: dict[int, list[float]] = {}

    def value(self, codes: np.ndarray[Any, Any], column: int) -> Row | None:
        """A row decoded; None if it is NULL throughout, as an absent one is."""
        row = {
            declared.name: decode(declared.type, float(codes[i, column]), self.interner)
            for i, declared in enumerate(TABLE.columns)
        }
        return row if row["K"] is not None else None

    @rule(batch=st.lists(rows, max_size=6))
    def apply(self, batch: list[Row]) -> None:
        after = {key: dict(row) for key, row in self.model.items()}
        expected: list[tuple[Row | None, Row]] = []
        refused: int | None = None
        for index, row in enumerate(batch):
            old = after.get(row["K"])
            if old is None and "B" not in row:
                refused = index
                break
            after[row["K"]] = {"A": None, "B": None, "C": None} | (old or {}) | row
            expected.append((old, after[row["K"]]))
        encoded = coded(TABLE, batch, self.interner)
        if refused is not None:
            with pytest.raises(BadValue) as caught:
                self.store.apply(encoded)
            assert (caught.value.row, caught.value.column) == (refused, "B")
            return
        updates = self.store.apply(encoded)
        self.feed.append(self.store, 1, updates)
        assert len(updates) == len(batch)
        for index, (old, new) in enumerate(expected):
            assert self.value(updates.old, index) == old
            assert self.value(updates.new, index) == new
            assert updates.existed[index] == (old is not None)
            assert updates.exists[index]
            if old is not None and new["K"] in self.slots:
                assert updates.slots[index] == self.slots[new["K"]]
            self.slots[new["K"]] = int(updates.slots[index])
        self.model = after

    @rule(batch=st.lists(keys, max_size=5))
    def remove(self, batch: list[str]) -> None:
        updates = self.store.remove(coded_keys(TABLE, batch, self.interner))
        self.feed.append(self.store, 1, updates)
        assert len(updates) == len(batch)
        assert not updates.exists.any()
        assert np.isnan(updates.new).all()
        for index, key in enumerate(batch):
            old = self.model.pop(key, None)
            assert self.value(updates.old, index) == old
            assert updates.existed[index] == (old is not None)
            assert updates.slots[index] == (-1 if old is None else self.slots.pop(key))

    @rule(rows=st.integers(1, 3))
    def follow_a_little(self, rows: int) -> None:
        """Read some changes and some rows."""
        try:
            for change in self.follower.read(rows):
                self.copy.note(change)
        except Behind:
            self.copy.restart()
        self.take(self.copy.portion(rows))

    def take(self, rows: SlotRows | None) -> None:
        if rows is not None:
            for slot in rows.slots[~rows.alive].tolist():
                self.followed.pop(slot, None)
            live = rows.slots[rows.alive].tolist()
            self.followed.update(zip(live, rows.cells.T.tolist(), strict=True))

    @rule()
    def follow(self) -> None:
        """A follower that has read all there is has the same rows."""
        while self.follower.pending or self.copy.left:
            self.follow_a_little(2)
        live = self.store.live_slots().tolist()
        assert sorted(self.followed) == live
        for slot in live:
            np.testing.assert_array_equal(self.followed[slot], self.store.cells[:, slot])
        assert self.copy.portion(1) is None
        assert len(self.feed) == self.feed.size_bytes == 0

    @invariant()
    def the_rows_are_the_models(self) -> None:
        self.store.check()
        assert len(self.store) == len(self.model)
        live = self.store.live_slots()
        assert live.tolist() == sorted(live.tolist()) == sorted(self.slots.values())
        stored = [self.value(self.store.cells, slot) for slot in live.tolist()]
        assert {row["K"]: row for row in stored if row} == self.model


TestStore = StoreMachine.TestCase


class GrowingStoreMachine(StoreMachine):
    """The same over many rows, with arrays that leave their first places early and homes of keys divided slowly."""

    def __init__(self) -> None:
        super().__init__()
        self.early = pytest.MonkeyPatch()
        for module, name, value in (
            (room, "SMALL_BYTES", 1024),
            (room, "RESERVED_BYTES", 8192),
            (keys_of, "DIVIDED", 2),
        ):
            self.early.setattr(module, name, value)

    @rule(first=st.integers(0, 12), count=st.integers(1, 70), b=st.integers(0, 2))
    def apply_many(self, first: int, count: int, b: int) -> None:
        self.apply([{"K": f"k{20 * first + i}", "B": b} for i in range(count)])

    @rule(first=st.integers(0, 12), count=st.integers(1, 70))
    def remove_many(self, first: int, count: int) -> None:
        self.remove([f"k{20 * first + i}" for i in range(count)])

    def teardown(self) -> None:
        self.early.undo()


TestGrowingStore = GrowingStoreMachine.TestCase
TestGrowingStore.settings = settings(deadline=None, max_examples=30)


def test_slots_are_reused_so_that_churn_does_not_grow_the_store() -> None:
    interner, store = Interner(), TableStore(TABLE)
    for round_number in range(40):
        names = [f"{round_number}/{i}" for i in range(100)]
        updates = store.apply(coded(TABLE, {"K": names, "B": np.ones(100, dtype=int)}, interner))
        assert len(set(updates.slots.tolist())) == 100
        store.remove(coded_keys(TABLE, names, interner))
    store.check()
    assert store.cells.shape[1] == 128
    assert store.memory_bytes() > 100 * row_bytes(TABLE)


def test_the_store_grows_by_doubling_and_keeps_its_rows() -> None:
    interner, store = Interner(), TableStore(TABLE)
    for i in range(SMALLEST + 1):
        store.apply(coded(TABLE, {"K": str(i), "B": i}, interner))
    store.check()
    assert store.cells.shape[1] == 2 * SMALLEST
    code = interner.find("7")
    assert code is not None
    (slot,) = np.flatnonzero(store.cells[TABLE.key] == code)
    assert store.cells[2, slot] == 7


@pytest.mark.parametrize("harm", ["S1", "S2", "S3", "S4"])
def test_check_finds_a_broken_invariant(harm: str) -> None:
    interner, store = Interner(), TableStore(TABLE)
    store.apply(coded(TABLE, [{"K": "a", "B": 1}, {"K": "b", "B": 1}], interner))
    match harm:
        case "S1":
            store._keys.assign(np.array([99.0]), np.array([0]))
        case "S2":
            store.remove(coded_keys(TABLE, ["b"], interner))
            store.cells[0, 1] = 1
        case "S3":
            store._free.append(0)
        case "S4":
            store.cells[2, 0] = np.nan
    with pytest.raises(InvariantBroken, match=harm):
        store.check()
