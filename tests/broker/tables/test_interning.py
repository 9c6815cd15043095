"""The interner against a dict: codes are stable while live, and dead texts are forgotten."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hullcast.broker.tables import interning
from hullcast.broker.tables.interning import BLOCK, DICT_TEXTS, SWEEP_SLACK, UNKNOWN, Interner, Texts
from hullcast.broker.tables.values import LONGEST_TEXT_BYTES, Refused

texts = st.sampled_from([f"t{i}" for i in range(40)])


class InternerMachine(RuleBasedStateMachine):
    """The model: which code each text was given, as long as it may not be forgotten. Dicts and blocks are tiny."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for name, value in (("DICT_TEXTS", 3), ("BLOCK_BITS", 2), ("BLOCK", 4), ("SMALLEST_BLOCK", 2)):
            self.patch.setattr(interning, name, value)
        self.interner = Interner()
        self.model: dict[str, float] = {}
        self.marked: set[str] | None = None  # while a sweep is under way
        self.snapshots: list[tuple[Texts, dict[str, float]]] = []

    def teardown(self) -> None:
        self.patch.undo()

    @rule(batch=st.lists(st.none() | texts, max_size=8))
    def encode(self, batch: list[str | None]) -> None:
        codes = self.interner.encode(batch)
        assert self.interner.decode(codes).tolist() == batch
        for text, code in zip(batch, codes.tolist(), strict=True):
            if text is not None:
                assert self.model.setdefault(text, code) == code
                if self.marked is not None:
                    self.marked.add(text)

    @rule(text=texts)
    def code(self, text: str) -> None:
        code = self.interner.code(text)
        assert self.model.setdefault(text, code) == code
        if self.marked is not None:
            self.marked.add(text)

    @rule(batch=st.lists(texts, max_size=3))
    def find(self, batch: list[str]) -> None:
        assert self.interner.find_all(batch).tolist() == [self.model.get(text, UNKNOWN) for text in batch]
        if self.marked is not None:
            self.marked |= self.model.keys() & set(batch)

    @rule(
        batch=st.lists(texts, max_size=3),
        bad=st.sampled_from(["\0", "\ud800", "x" * (LONGEST_TEXT_BYTES + 1)]),
    )
    def a_refused_batch_interns_nothing(self, batch: list[str], bad: str) -> None:
        with pytest.raises(Refused) as caught:
            self.interner.encode([*batch, bad])
        assert caught.value.row == len(batch)

    @precondition(lambda self: self.marked is None)
    @rule(live=st.sets(texts))
    def sweep(self, live: set[str]) -> None:
        live &= set(self.model)
        codes = [self.model[text] for text in live]
        before = len(self.model)
        forgotten = self.interner.sweep(np.array([*codes, *codes, np.nan, -np.inf, UNKNOWN, 1e9]))
        self.model = {text: code for text, code in self.model.items() if text in live}
        assert forgotten == before - len(self.model)

    @rule()
    def take_a_snapshot(self) -> None:
        self.snapshots.append((self.interner.texts, dict(self.model)))

    @precondition(lambda self: self.marked is None)
    @rule()
    def begin_to_sweep(self) -> None:
        self.interner.begin_sweep()
        self.marked = set()

    @precondition(lambda self: self.marked is not None)
    @rule(live=st.sets(texts))
    def mark(self, live: set[str]) -> None:
        assert self.marked is not None
        live &= set(self.model)
        self.interner.mark(np.array([self.model[text] for text in live]))
        self.marked |= live

    @precondition(lambda self: self.marked is not None)
    @rule()
    def sweep_some(self) -> None:
        """Some of those that nobody marked go, and in the end all; no other."""
        assert self.marked is not None
        known, done = len(self.model), self.interner.sweep_some()
        there = {text for text in self.model if text in self.marked or self.model[text] in self.interner.codes()}
        assert not done or there <= self.marked
        self.model = {text: code for text, code in self.model.items() if text in there}
        assert known - len(self.model) <= interning.BLOCK
        if done:
            self.marked = None

    @invariant()
    def it_knows_exactly_the_model(self) -> None:
        self.interner.check_invariants()
        assert len(self.interner) == len(self.model)
        for text, code in self.model.items():
            assert self.interner.text(code) == text

    @invariant()
    def no_snapshot_ever_changes(self) -> None:
        for snapshot, model in self.snapshots:
            assert snapshot.decode(np.array([*model.values(), np.nan])).tolist() == [*model, None]


TestInterner = InternerMachine.TestCase


def test_memory_stays_bounded_under_churn() -> None:
    interner = Interner()
    sweeps = 0
    for round_number in range(50):
        codes = interner.encode([f"{round_number}/{i}" for i in range(1000)])
        if interner.wants_sweep:
            interner.sweep(codes)
            sweeps += 1
        assert codes.max() < SWEEP_SLACK + 4000
    assert sweeps > 0
    interner.check_invariants()


def test_however_many_texts_there_are_new_ones_move_few_others() -> None:
    """Once a single dict was copied as a whole: a pause of 0.1 s at a million texts."""
    interner, moved = Interner(), [0]
    for start in range(0, 400_000, 4096):
        interner.encode([f"{i}" for i in range(start, start + 4096)])
        moved.append(interner.moved)
    assert max(np.diff(moved)) < 3 * DICT_TEXTS
    assert interner.moved < 3 * len(interner)


def test_a_sweep_in_parts_looks_at_few_texts_at_once_and_gives_memory_back() -> None:
    """Once all texts were stored anew: a pause of 0.5 s at two million texts."""
    interner = Interner()
    codes = interner.encode([f"{i}" for i in range(100_000)])
    full = interner.memory_bytes()
    interner.begin_sweep()
    interner.mark(codes[:10])
    known, done = [len(interner)], False
    while not done:
        done = interner.sweep_some()
        known.append(len(interner))
    assert max(-np.diff(known)) <= BLOCK
    assert known[-1] == 10
    assert interner.memory_bytes() < full / 2
    interner.check_invariants()


def test_a_lookup_never_interns() -> None:
    interner = Interner()
    assert interner.find("a") is None
    assert interner.find_all(["a", "b"]).tolist() == [UNKNOWN, UNKNOWN]
    assert len(interner) == 0


def test_a_code_not_in_use_has_no_text() -> None:
    interner = Interner()
    interner.encode(["a", "b"])
    interner.sweep(np.array([1.0]))
    for code in (0.0, 2.0, UNKNOWN):
        with pytest.raises(KeyError):
            interner.text(code)
        with pytest.raises(KeyError):
            interner.decode(np.array([1.0, code]))


def test_the_longest_text_is_counted_in_bytes() -> None:
    interner = Interner()
    assert interner.code("é" * (LONGEST_TEXT_BYTES // 2)) == 0
    with pytest.raises(Refused, match="65538 bytes"):
        interner.code("é" * (LONGEST_TEXT_BYTES // 2 + 1))
