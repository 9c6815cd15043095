"""Large deliveries are cut between updates."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.node.children import portions
from hullcast.network.wire.columns import Columns, size_bytes


def columns(seqs: list[int]) -> Columns:
    return {"seq": np.array(seqs, np.int64), "x": np.arange(len(seqs), dtype=np.float64)}


@given(st.dictionaries(st.integers(1, 3), st.lists(st.integers(1, 9), min_size=1).map(sorted)), st.integers(16, 200))
def test_portions_hold_everything_in_order_and_no_half_update(channels: dict[int, list[int]], most: int) -> None:
    through = 20
    given_columns = {channel: columns(seqs) for channel, seqs in channels.items()}
    parts = list(portions(through, given_columns, most))
    assert parts[-1][0] == through
    before = 0
    for until, part in parts:
        seqs = [seq for some in part.values() for seq in np.asarray(some["seq"]).tolist()]
        assert all(before < seq <= until for seq in seqs)
        assert len(parts) == 1 or sum(map(size_bytes, part.values())) <= most or len(set(seqs)) == 1
        before = until
    for channel, seqs in channels.items():
        found = [np.asarray(part[channel]["seq"]).tolist() for _, part in parts if channel in part]
        assert [seq for some in found for seq in some] == seqs
