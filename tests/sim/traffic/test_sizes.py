"""Sizes of frames are those of the encoder, for any number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hullcast.network.compiled import kernel
from hullcast.network.wire.frames import Deliver, decode, encode
from hullcast.sim.traffic.sizes import (
    LAST,
    block_bytes,
    rectangle_bytes,
    row_bytes,
    size_of,
    unicast_bytes,
    wire_columns,
    wire_sizes,
)

if TYPE_CHECKING:
    from hullcast.network.wire.arrays import Ints

#: Where the length of a block takes one more byte or two, and next to it.
ROWS = [1, 2, 5, 6, 7, 15, 16, 31, 32, 33, 255, 256, 1_638, 1_639, 4_095, 4_096, 8_191, LAST - 1, LAST, 30_000]


@kernel
def size(table: Ints, rows: int) -> int:
    """`size_of` is a part of kernels; Python asks through this one."""
    return size_of(table, rows)


@pytest.mark.parametrize("rows", ROWS)
def test_tables_say_what_encoding_so_many_rows_gives(rows: int) -> None:
    measured = wire_sizes()
    assert size(measured.rectangles, rows) == rectangle_bytes(rows)
    assert size(measured.unicast, rows) == unicast_bytes(rows)


def test_no_rows_are_no_frame_and_more_rows_are_more_bytes() -> None:
    for table in (wire_sizes().rectangles, wire_sizes().unicast):
        assert table[0] == 0
        assert (np.diff(table) > 0).all()


@pytest.mark.parametrize("rows", [1, 7, 300])
def test_blocks_are_packed_just_as_rectangles_are(rows: int) -> None:
    assert block_bytes(rows, 5) == rectangle_bytes(rows)


def test_a_row_as_blocks_is_smaller_than_the_frame_an_engine_sends() -> None:
    assert wire_sizes().row == row_bytes()
    assert unicast_bytes(1) < rectangle_bytes(1) < wire_sizes().row
    assert wire_sizes().lean_row < wire_sizes().row


@pytest.mark.parametrize(
    ("asked", "needed"),
    [
        ("MIN(Y)", {"seq", "il", "ir", "ol", "or", "best"}),
        ("X, Y", {"seq", "old.0", "new.0", "key.0", "row.0", "row.1"}),
    ],
)
def test_what_is_measured_can_be_read_again_with_all_a_subscriber_needs(asked: str, needed: set[str]) -> None:
    columns = wire_columns(f"SELECT {asked} FROM POINTS WHERE X BETWEEN ? AND ?")
    frame = decode(encode(Deliver(1, {1: columns})))
    assert isinstance(frame, Deliver)
    assert needed <= set(frame.channels[1])
