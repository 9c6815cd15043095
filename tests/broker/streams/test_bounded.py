"""A window join with bounded memory in the runner: exact while memory is enough, else a part of the same results."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.streams.memory.bounded_join import KeepBy
from hullcast.broker.streams.operators.bounded import BoundedStore
from hullcast.broker.streams.operators.window_join import Merged
from hullcast.broker.streams.operators.windows import JoinColumns, StreamWindow, WindowStore

COLUMNS = JoinColumns(np.array([0]), np.array([1]), np.array([0, 1]), np.array([0]))
WIDTHS = (2, 2)

#: (side, key, steps of time, whether a filter dropped it)
arrivals = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from([0.0, 1.0, 2.0, np.nan]), st.integers(0, 2), st.booleans()),
    max_size=40,
)
windows = st.sampled_from([StreamWindow(rows=3.0), StreamWindow(rows=100.0), StreamWindow(range=4.0), StreamWindow()])


def merged(some: list[tuple[int, float, int, bool]], first: int, began: float) -> Merged:
    sides = np.array([side for side, *_ in some], np.int64)
    times = began + np.cumsum([step for _, _, step, _ in some], dtype=np.float64)
    seqs = first + np.arange(len(some))
    places = np.full(len(some), -1, np.int64)
    cells = []
    for side in (0, 1):
        full = [at for at, one in enumerate(some) if one[0] == side and not one[3]]
        places[full] = np.arange(len(full))
        keys, tags = np.array([some[at][1] for at in full]), 1000.0 + first + np.array(full, np.float64)
        cells.append(np.array([keys, tags] if side == 0 else [tags, keys]).reshape(2, len(full)))
    return Merged(sides, places, seqs, times, (cells[0], cells[1]))


def results(store: BoundedStore | WindowStore, batches: list[Merged]) -> list[tuple[int, tuple[float, ...]]]:
    found = []
    for batch in batches:
        later, cells, taken = store.consume(batch)
        assert taken == len(batch.seqs)
        found += [(int(batch.seqs[at]), tuple(cells[:, i].tolist())) for i, at in enumerate(later.tolist())]
        if isinstance(store, BoundedStore):
            store.check()
    return found


def cut(some: list[tuple[int, float, int, bool]], at: int) -> list[Merged]:
    first = merged(some[:at], 1, 0.0)
    return [first, merged(some[at:], 1 + at, float(first.times[-1]) if at else 0.0)]


@given(arrivals, st.integers(0, 40), windows, windows)
def test_with_enough_memory_a_bounded_join_is_the_join(
    some: list[tuple[int, float, int, bool]], at: int, left: StreamWindow, right: StreamWindow
) -> None:
    batches = cut(some, min(at, len(some)))
    whole = results(WindowStore(COLUMNS, WIDTHS, (left, right)), batches)
    store = BoundedStore(COLUMNS, WIDTHS, (left, right), memory=100)
    assert results(store, batches) == whole
    assert store.statistics().missed == store.statistics().dropped == 0


@pytest.mark.parametrize("policy", ["HEEB", "PROB", "LIFE", "LRU", "RAND"])
@given(some=arrivals, at=st.integers(0, 40), left=windows, right=windows, memory=st.integers(1, 4))
def test_with_less_memory_results_are_a_part_of_the_joins_and_the_rest_is_counted(
    policy: str, some: list[tuple[int, float, int, bool]], at: int, left: StreamWindow, right: StreamWindow, memory: int
) -> None:
    batches = cut(some, min(at, len(some)))
    whole = results(WindowStore(COLUMNS, WIDTHS, (left, right)), batches)
    store = BoundedStore(COLUMNS, WIDTHS, (left, right), memory, KeepBy[policy])
    found = results(store, batches)
    assert len(store) <= memory
    assert not Counter(found) - Counter(whole)
    assert [one for one in whole if one in set(found)] == found  # in the same order
    told = store.statistics()
    assert told.produced == len(found)
    assert told.missed == pytest.approx(len(whole) - len(found))  # exact, while the shadow holds all that was dropped


def test_codes_of_tuples_let_go_do_not_pile_up() -> None:
    store = BoundedStore(COLUMNS, WIDTHS, (StreamWindow(), StreamWindow()), memory=50)
    rng = np.random.default_rng(1)
    for batch in range(40):
        some = [(int(side), float(key), 1, False) for side, key in rng.integers(0, [2, 500], (500, 2))]
        store.consume(merged(some, 1 + 500 * batch, 1000.0 * batch))
        store.check()
    assert sum(cells.shape[1] for cells in store.held()) <= 2 * 50 + 1024 + 500
    assert len(store) == 50
    assert 0.5 < store.statistics().missed_share < 1
