"""Sums of REALs that never drift: whole numbers times a power of two, rounded when read.

Every float64 is such a number, so sums and differences of them are, too: what was added and taken away again leaves
nothing behind. SQLite keeps a sum as a BLOB (two bytes of exponent, then the number) and calls these functions.
"""

from __future__ import annotations

from collections import defaultdict
from math import frexp, inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

#: Aggregate of (value, weight): the exact sum of the products; scalar: the sum of two sums; scalar: its float64.
SUM, PLUS, ROUNDED = "hullcast_exact_sum", "hullcast_exact_plus", "hullcast_exact_rounded"


def install(database: sqlite3.Connection) -> None:
    """Make the functions known to a connection."""
    database.create_aggregate(SUM, 2, ExactSum)  # type: ignore[arg-type]  # typeshed wants it to return an int
    database.create_function(PLUS, 2, plus, deterministic=True)
    database.create_function(ROUNDED, 1, rounded, deterministic=True)


class ExactSum:
    """The aggregate. NULLs are left out."""

    def __init__(self) -> None:
        self._by_exponent: defaultdict[int, int] = defaultdict(int)

    def step(self, value: float | None, weight: int) -> None:
        """One row more."""
        if value is not None:
            fraction, exponent = frexp(value)
            self._by_exponent[exponent - 53] += int(fraction * 2**53) * weight

    def finalize(self) -> bytes:
        """The sum."""
        return _packed(*_total(self._by_exponent))


def plus(one: bytes, other: bytes) -> bytes:
    """The sum of two sums."""
    by_exponent: dict[int, int] = defaultdict(int)
    for packed in (one, other):
        exponent, whole = _unpacked(packed)
        by_exponent[exponent] += whole
    return _packed(*_total(by_exponent))


def rounded(packed: bytes) -> float:
    """The float64 nearest to a sum; an infinity if it is larger than all of them."""
    exponent, whole = _unpacked(packed)
    try:
        if exponent >= 0:
            return float(whole << exponent)
        return whole / (1 << -exponent)  # Python divides whole numbers exactly, and rounds once
    except OverflowError:
        return inf if whole > 0 else -inf


def _total(by_exponent: dict[int, int]) -> tuple[int, int]:
    least = min(by_exponent, default=0)
    return least, sum(whole << (exponent - least) for exponent, whole in by_exponent.items())


def _packed(exponent: int, whole: int) -> bytes:
    if not whole:
        return b""
    zeros = (whole & -whole).bit_length() - 1
    whole, exponent = whole >> zeros, exponent + zeros
    return exponent.to_bytes(2, "big", signed=True) + whole.to_bytes(whole.bit_length() // 8 + 1, "big", signed=True)


def _unpacked(packed: bytes) -> tuple[int, int]:
    return int.from_bytes(packed[:2], "big", signed=True), int.from_bytes(packed[2:], "big", signed=True)
