"""The messages of MIN and MAX as two blocks of bytes: what the network mostly carries, and mostly one at a time.

As columns with names and kinds a lone rectangle is a frame of 123 bytes, of which 48 are numbers; as blocks, of 69.
Any other set of columns travels as a map (see `network/wire/columns.py`); in memory both are columns.

    blocks   [bytes of `seq`, n int64; bytes of `il`, `ir`, `ol`, `or`, `best` and, if there are partitions, `part`:
              n float64 of the first, then n of the second ..]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hullcast.network.wire.columns import Column, Columns, array_of, raw
from hullcast.network.wire.errors import BadFrame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hullcast.network.wire.limits import WireLimits

NUMBERS = ("il", "ir", "ol", "or", "best", "part")
_PLAIN = frozenset(("seq", *NUMBERS[:-1]))
_PARTITIONED = frozenset(("seq", *NUMBERS))
_WHOLE, _REAL = np.dtype(np.int64), np.dtype(np.float64)


def are_rectangles(columns: Mapping[str, Column]) -> bool:
    """Whether `pack_rectangles` can take these columns: the names and types of a MIN or MAX, and at least a row."""
    names = columns.keys()
    if (names != _PLAIN and names != _PARTITIONED) or not len(columns["seq"]):
        return False
    arrays = cast("Mapping[str, np.ndarray[Any, Any]]", columns)
    return all(arrays[name].dtype == (_WHOLE if name == "seq" else _REAL) for name in names)


def pack_rectangles(columns: Mapping[str, Column]) -> list[object]:
    """The two blocks as MessagePack takes them."""
    arrays = cast("Mapping[str, np.ndarray[Any, Any]]", columns)
    numbers = np.concatenate([arrays[name] for name in NUMBERS[: len(columns) - 1]])
    return [raw(arrays["seq"], np.dtype("<i8")), raw(numbers, np.dtype("<f8"))]


def unpack_rectangles(seqs: object, numbers: object, limits: WireLimits) -> Columns:
    """The columns of two blocks, or BadFrame: each writable and contiguous."""
    if type(seqs) is not bytes or type(numbers) is not bytes:
        raise BadFrame("rectangles are two blocks of bytes")
    seq = array_of("i8", seqs, limits)
    if not len(seq):
        raise BadFrame("blocks of no rectangle")
    width = len(NUMBERS) if len(numbers) == len(NUMBERS) * len(seqs) else len(NUMBERS) - 1
    if len(numbers) != width * len(seqs):
        raise BadFrame(f"{len(seq)} rectangles of 5 or 6 numbers are not {len(numbers)} bytes")
    table = np.frombuffer(numbers, "<f8").astype(np.float64).reshape(width, len(seq))
    columns: Columns = {"seq": seq}
    columns.update(zip(NUMBERS, table, strict=False))  # `part` is left out where there is none
    return columns
