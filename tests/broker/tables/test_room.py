"""Arrays that grow keep what they hold, and are copied only while they are small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.tables import room
from hullcast.broker.tables.room import SMALL_BYTES, with_room


@given(
    kind=st.sampled_from([np.float64, np.int64, np.bool_]),
    columns=st.sampled_from([(), (1,), (3,)]),
    steps=st.lists(st.integers(0, 300), max_size=8),
)
def test_an_array_that_grew_begins_with_what_it_held_and_is_zero_beyond(
    kind: type[Any], columns: tuple[int, ...], steps: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "SMALL_BYTES", 256)
        patch.setattr(room, "RESERVED_BYTES", 2048)
        array: np.ndarray[Any, np.dtype[Any]] = np.empty((*columns, 0), kind)
        used = 0
        for step in steps:
            array = with_room(array, used + step)
            assert array.shape[:-1] == columns
            assert array.shape[-1] >= used + step
            assert array.flags.c_contiguous
            array[..., used : used + step] = 1
            used += step
            assert (array[..., :used] == 1).all()
            assert not array[..., used:].any()


@pytest.mark.parametrize("columns", [(), (5,)])
def test_an_array_is_copied_only_while_it_is_small(columns: tuple[int, ...]) -> None:
    """Up to four million rows, in batches: what is copied, at a time and in all."""
    array: np.ndarray[Any, np.dtype[Any]] = np.empty((*columns, 0))
    copied = []
    for needed in range(4096, 4_200_000, 4096):
        larger = with_room(array, needed)
        if larger is not array:
            copied.append(array.shape[-1] * array.itemsize)
        array = larger
    assert max(copied) <= SMALL_BYTES
    assert sum(copied) <= 2 * SMALL_BYTES


def test_a_machine_smaller_than_what_is_reserved_gives_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "RESERVED_BYTES", 1 << 55)
    grown = with_room(np.ones((2, 10)), 150_000)
    assert 150_000 <= grown.shape[1] < (1 << 55) // 16
    assert grown[:, :10].all()
    assert not grown[:, 10:150_000].any()
    with pytest.raises(MemoryError):
        with_room(grown, 1 << 55)
