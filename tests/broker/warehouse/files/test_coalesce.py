"""Coalescing keeps the last word on every key, as a dict does."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.log.changes import ChangeBatch
from hullcast.broker.warehouse.files.table_loader import coalesced, last_words

keys = st.integers(-2, 3).map(float)


@given(st.lists(keys))
def test_the_last_place_of_each_key_is_found_in_the_order_of_keys(some: list[float]) -> None:
    expected = {key: place for place, key in enumerate(some)}
    assert last_words(np.array(some, np.float64)).tolist() == [expected[key] for key in sorted(expected)]


@given(st.lists(st.tuples(st.booleans(), st.lists(keys, max_size=4)), min_size=1, max_size=8), st.sampled_from([0, 1]))
def test_changes_become_the_last_word_on_each_key(batches: list[tuple[bool, list[float]]], key: int) -> None:
    rows: dict[float, float | None] = {}  # None: gone
    made, seq = [], 0
    for deleted, some in batches:
        cells = np.full((2, len(some)), np.nan)
        cells[key] = some
        if not deleted:
            cells[1 - key] = np.arange(seq, seq + len(some))
        for place, one in enumerate(some):
            rows[one] = None if deleted else float(seq + place)
        made.append(ChangeBatch(np.arange(seq + 1, seq + 1 + len(some)), cells, deleted, False))
        seq += len(some)
    found_rows, found_gone = coalesced(made, key)
    there = sorted((one, value) for one, value in rows.items() if value is not None)
    assert list(zip(found_rows[key].tolist(), found_rows[1 - key].tolist(), strict=True)) == there
    assert found_gone.tolist() == sorted(one for one, value in rows.items() if value is None)
