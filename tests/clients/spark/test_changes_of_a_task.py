"""What a task's rows become before they are sent: cut where a key is both written and deleted, and numbered."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
from hypothesis import given
from hypothesis import strategies as st

from hullcast.clients.spark.writing import LANE, Numbering, split

ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 99), st.sampled_from([True, False, None])), max_size=30)


@given(ROWS)
def test_rows_and_deletes_give_what_they_would_give_one_by_one(rows: list[tuple[int, int, bool | None]]) -> None:
    expected: dict[int, int] = {}
    for key, value, gone in rows:
        expected.pop(key, None)
        if not gone:
            expected[key] = value
    keys, values, marks = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    batch = pa.record_batch(
        [pa.array(keys, pa.int64()), pa.array(values, pa.int64()), pa.array(marks, pa.bool_())], ["K", "V", "_gone"]
    )
    found: dict[int, int] = {}
    updates = 0
    for kept, gone in split(batch, "K", "_gone"):
        assert (kept is None) != (gone is None)
        if kept is not None:
            assert kept.schema.names == ["K", "V"]
            found.update(zip(kept.column("K").to_pylist(), kept.column("V").to_pylist(), strict=True))
            updates += kept.num_rows
        else:
            for key in gone.to_pylist():
                found.pop(key, None)
            updates += len(gone)
    assert found == expected
    assert updates == len(rows)  # every row is an update, none is left out


def test_numbers_ascend_whatever_the_digest_and_stay_within_the_wire_s_range() -> None:
    most = (1 << 26) - 1
    numbers = [
        Numbering(b"w", 0, batch).number(place, digest)
        for batch in (0, 1, (1 << 31) - 1)
        for place in range(LANE)
        for digest in (0, most)
    ]
    assert numbers == sorted(set(numbers))
    assert numbers[0] > 0
    assert numbers[-1] < 2**63


def test_publishers_differ_by_write_partition_lane_and_attempt() -> None:
    found = {
        Numbering(write, partition, 0).publisher(lane, attempt)
        for write in (b"one", b"two")
        for partition in (0, 1)
        for lane in (0, 1)
        for attempt in (-1, 7)
    }
    assert len(found) == 16
    assert {len(one) for one in found} == {16}
