"""How a comparison with a value becomes one edge of a closed box of floats, exactly.

A value need not be a float64: 2**53 + 1 is not, nor is half a microsecond more than one. So a value
is kept as a *code*, the two floats around it::

    down <= value <= up          down == up when the value is a float64 itself

    x >= value   low  = up                    the smallest float not below the value
    x >  value   low  = the float after down  (which is `up` when they differ)
    x <= value   high = down
    x <  value   high = the float before up
    x =  value   low  = up, high = down       empty when the value is not a float: no row equals it

which makes the box agree with exact arithmetic on every float64 that a row can hold. The code of a
TEXT is the text itself, twice: it is compared for equality only.
"""

from __future__ import annotations

import math
from enum import Enum
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np

from hullcast.network.wire.arrays import Floats

Code = tuple[Any, Any]  # (float, float), or (str, str) for TEXT; checked by the encoder, trusted here

INFINITY: Final = math.inf
LARGEST: Final = float(np.finfo(np.float64).max)


class Comparison(Enum):
    """The comparisons of the language."""

    LESS = "<"
    AT_MOST = "<="
    EQUAL = "="
    AT_LEAST = ">="
    GREATER = ">"
    NOT_EQUAL = "<>"
    NULL = "IS NULL"
    NOT_NULL = "IS NOT NULL"

    @property
    def mirrored(self) -> Comparison:
        """The comparison that holds after swapping the sides, or after negating both."""
        return _MIRRORED[self]

    @property
    def opposite(self) -> Comparison:
        """The comparison that holds where this one does not, of a value that is not NULL."""
        return _OPPOSITE[self]

    @property
    def sides(self) -> tuple[tuple[bool, bool], ...]:
        """The edges it sets, as (upper, strict); none for <>, which cuts a box in two, nor for tests for NULL."""
        return _SIDES.get(self, ())


_MIRRORED = {
    Comparison.LESS: Comparison.GREATER,
    Comparison.AT_MOST: Comparison.AT_LEAST,
    Comparison.EQUAL: Comparison.EQUAL,
    Comparison.AT_LEAST: Comparison.AT_MOST,
    Comparison.GREATER: Comparison.LESS,
    Comparison.NOT_EQUAL: Comparison.NOT_EQUAL,
}
_OPPOSITE = {
    Comparison.LESS: Comparison.AT_LEAST,
    Comparison.AT_MOST: Comparison.GREATER,
    Comparison.EQUAL: Comparison.NOT_EQUAL,
    Comparison.AT_LEAST: Comparison.LESS,
    Comparison.GREATER: Comparison.AT_MOST,
    Comparison.NOT_EQUAL: Comparison.EQUAL,
    Comparison.NULL: Comparison.NOT_NULL,
    Comparison.NOT_NULL: Comparison.NULL,
}
_SIDES = {
    Comparison.LESS: ((True, True),),
    Comparison.AT_MOST: ((True, False),),
    Comparison.EQUAL: ((False, False), (True, False)),
    Comparison.AT_LEAST: ((False, False),),
    Comparison.GREATER: ((False, True),),
}


class Edge(NamedTuple):
    """One edge of the box that a parameter sets; a tuple because `bind` unpacks it on its fast path."""

    dimension: int
    upper: bool
    strict: bool
    parameter: int  # from 0
    negated: bool  # the edge is at minus the parameter


def code_of(value: int | Fraction) -> Code:
    """The two floats around an exact number."""
    try:
        nearest = float(value)
    except OverflowError:
        return (LARGEST, INFINITY) if value > 0 else (-INFINITY, -LARGEST)
    if nearest == value:  # Python compares int and Fraction with float exactly
        return nearest, nearest
    if nearest < value:
        return nearest, math.nextafter(nearest, INFINITY)
    return math.nextafter(nearest, -INFINITY), nearest


def negated(code: Code) -> Code:
    """The code of minus the value; zero has one sign only, so that equal values have equal bytes."""
    down, up = code
    return 0.0 - up, 0.0 - down


def edge_at(code: Code, upper: bool, strict: bool) -> float:
    """Where the closed box ends."""
    down, up = code
    if upper:
        return math.nextafter(up, -INFINITY) if strict else down
    return math.nextafter(down, INFINITY) if strict else up


def edges_at(down: Floats, up: Floats, upper: bool, strict: bool) -> Floats:
    """`edge_at` for a column of values."""
    if not strict:
        return down if upper else up
    with np.errstate(all="ignore"):  # NumPy warns when the next float is infinite or subnormal; both are right
        return np.nextafter(up, -INFINITY) if upper else np.nextafter(down, INFINITY)
