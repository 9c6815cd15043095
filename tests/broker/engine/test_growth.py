"""What a batch costs because tables, indexes, texts and groups grow with it: counted, not timed.

What the event loop waited for is timed in tests/system/test_bystander.py.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.tables.interning import DICT_TEXTS
from hullcast.broker.tables.room import SMALL_BYTES

ROWS, AT_ONCE = 300_000, 4096
#: Five columns of the table, and some others of about their size, that move to where there is room in the same batch.
MOST_COPIED_BYTES = 12 * SMALL_BYTES


@pytest.fixture
def engine() -> ServedEngine:
    engine = ServedEngine()
    engine.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, X REAL, S TEXT, A INTEGER, B INTEGER)")
    return engine


def insert(engine: ServedEngine, first: int, rows: int = AT_ONCE) -> None:
    """Rows of which each has a new text, and most have a new pair of numbers."""
    keys = np.arange(first, first + rows)
    texts = tuple(map(str, keys.tolist()))
    columns = {"K": keys, "X": keys % 1000.0, "S": np.array(texts, dtype=object), "A": keys % 500, "B": keys // 500}
    engine.upsert("T", columns)


def arrays_of(engine: ServedEngine) -> dict[str, Any]:
    """All that grows with rows and is one array."""
    store = engine.catalogue.store("T")
    found = {"cells": store.cells, "alive": store.alive, "keys": store._keys.table}
    for channel in engine._channels:
        for keeper in channel.keepers:
            found[f"{channel.name}: tree"] = keeper.tree.memory
            found[f"{channel.name}: slots"] = keeper.tree.leaf_of
            found[f"{channel.name}: groups"] = keeper.grouping._codes
            found[f"{channel.name}: group numbers"] = keeper.grouping._map.table
    return found


def test_a_batch_copies_little_and_moves_few_texts_however_many_rows_there_are(engine: ServedEngine) -> None:
    sql = "SELECT MIN(X) FROM T WHERE X BETWEEN ? AND ?", "SELECT MAX(X) FROM T WHERE X < ? AND A = ? AND B = ?"
    subs = [engine.subscribe(sql[0], 0, 5), engine.subscribe(sql[1], 5000, 7, 11)]
    moved, copied, before = [0], list[int](), arrays_of(engine)
    for first in range(0, ROWS, AT_ONCE):
        insert(engine, first)
        now = arrays_of(engine)
        moved.append(engine._interner.moved)
        copied.append(sum(before[name].nbytes for name, array in now.items() if _place(array) != _place(before[name])))
        before = now
    assert max(copied) < MOST_COPIED_BYTES
    assert copied[-1] == 0
    assert max(after - before for before, after in pairwise(moved)) < 3 * DICT_TEXTS
    assert [sub.answer for sub in subs] == [0.0, (11 * 500 + 7) % 1000.0]


def _place(array: Any) -> int:
    return int(array.ctypes.data)
