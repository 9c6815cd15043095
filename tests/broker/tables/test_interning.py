"""The interner against a dict: codes are stable while live, and dead texts are forgotten."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hullcast.broker.tables.interning import SWEEP_SLACK, UNKNOWN, Interner
from hullcast.broker.tables.values import LONGEST_TEXT_BYTES, Refused

texts = st.sampled_from([f"t{i}" for i in range(12)])


class InternerMachine(RuleBasedStateMachine):
    """The model: which code each text was given, as long as it may not be forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.interner = Interner()
        self.model: dict[str, float] = {}

    @rule(batch=st.lists(st.none() | texts, max_size=8))
    def encode(self, batch: list[str | None]) -> None:
        codes = self.interner.encode(batch)
        assert self.interner.decode(codes).tolist() == batch
        for text, code in zip(batch, codes.tolist(), strict=True):
            if text is not None:
                assert self.model.setdefault(text, code) == code

    @rule(
        batch=st.lists(texts, max_size=3),
        bad=st.sampled_from(["\0", "\ud800", "x" * (LONGEST_TEXT_BYTES + 1)]),
    )
    def a_refused_batch_interns_nothing(self, batch: list[str], bad: str) -> None:
        with pytest.raises(Refused) as caught:
            self.interner.encode([*batch, bad])
        assert caught.value.row == len(batch)

    @rule(live=st.sets(texts))
    def sweep(self, live: set[str]) -> None:
        live &= set(self.model)
        codes = [self.model[text] for text in live]
        before = len(self.model)
        forgotten = self.interner.sweep(np.array([*codes, *codes, np.nan, -np.inf, UNKNOWN, 1e9]))
        self.model = {text: code for text, code in self.model.items() if text in live}
        assert forgotten == before - len(self.model)

    @invariant()
    def it_knows_exactly_the_model(self) -> None:
        self.interner.check_invariants()
        assert len(self.interner) == len(self.model)
        for text, code in self.model.items():
            assert self.interner.find(text) == code
            assert self.interner.text(code) == text


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
