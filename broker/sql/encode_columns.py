"""From a column of parameter values to a column of codes, without a Python loop over NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from hullcast.broker.sql.bounds import Floats
from hullcast.broker.sql.encode import ENCODERS, REACH, Domain, Unfit, microseconds_per_tick, within_reach

CodeColumn = tuple[npt.NDArray[Any], npt.NDArray[Any]]  # (down, up), or the same array of str twice
ParameterColumn = Sequence[object] | npt.NDArray[Any]

_EXACT = 2**53
_NUMBERS = (Domain.NUMBER, Domain.DIFFERENCE)


def encode_column(domain: Domain, values: ParameterColumn) -> CodeColumn:
    """Codes of all values; an `Unfit` names the first row that does not fit."""
    if hasattr(values, "dtype"):  # also a pandas Series
        array = np.asarray(values)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        if array.ndim != 1:
            raise Unfit(f"takes one column of values, got {array.ndim} dimensions")
        if domain in _NUMBERS and array.dtype.kind == "f" and array.dtype.itemsize <= 8:
            return _reached(domain, _floats(array))
        if domain in _NUMBERS and array.dtype.kind in "iu":
            return _reached(domain, _integers(array))
        if domain is Domain.INSTANT and array.dtype.kind == "M":
            tick = microseconds_per_tick(array.dtype)
            if tick is not None and _fits(array, tick):
                return _instants(array, tick)
    return _one_by_one(domain, list(values))


def _reached(domain: Domain, codes: CodeColumn) -> CodeColumn:
    """`within_reach` on a column."""
    if domain is Domain.DIFFERENCE:
        down, up = codes
        beyond = ~(((down == up) & np.isinf(down)) | ((down > -REACH) & (up < REACH)))
        if beyond.any():
            row = int(beyond.argmax())
            try:
                within_reach((float(down[row]), float(up[row])), domain)
            except Unfit as error:
                raise Unfit(str(error), row) from None
    return codes


def _floats(array: npt.NDArray[Any]) -> CodeColumn:
    codes: Floats = array.astype(np.float64) + 0.0  # one sign of zero only
    unknown = np.isnan(codes)
    if unknown.any():
        raise Unfit("cannot be compared with NaN", int(unknown.argmax()))
    return codes, codes


def _integers(array: npt.NDArray[Any]) -> CodeColumn:
    codes: Floats = array.astype(np.float64)
    if array.dtype.itemsize < 8 or not len(array) or max(int(array.max()), -int(array.min())) <= _EXACT:
        return codes, codes
    # Near the end of the type the rounded float may be one past it, where casting back is undefined;
    # such a float is above its integer for certain.
    past_end = codes >= float(2 ** (63 if array.dtype.kind == "i" else 64))
    back = np.where(past_end, 0.0, codes).astype(array.dtype)
    above = past_end | (back > array)
    below = ~past_end & (back < array)
    down = np.where(above, np.nextafter(codes, -np.inf), codes)
    up = np.where(below, np.nextafter(codes, np.inf), codes)
    return down, up


def _fits(array: npt.NDArray[Any], tick: int | Fraction) -> bool:
    """Whether `_instants` can convert without overflow, each instant being an exact code (the years
    1685 to 2255) or NaT."""
    known = array.view(np.int64)[~np.isnat(array)]
    furthest = max(int(known.max()), -int(known.min())) if len(known) else 0
    return furthest * tick <= _EXACT and furthest * Fraction(tick).numerator < 2**63


def _instants(array: npt.NDArray[Any], tick: int | Fraction) -> CodeColumn:
    unknown = np.isnat(array)
    if unknown.any():
        raise Unfit("cannot be compared with NaT", int(unknown.argmax()))
    ticks = array.view(np.int64)
    exact = Fraction(tick)
    if exact.denominator == 1:
        codes = (ticks * exact.numerator).astype(np.float64)
        return codes, codes
    # Finer than a microsecond: whole microseconds on either side do, as no row holds anything between.
    scaled = ticks * exact.numerator
    down = np.floor_divide(scaled, exact.denominator)
    up = -np.floor_divide(-scaled, exact.denominator)
    return down.astype(np.float64), up.astype(np.float64)


def _one_by_one(domain: Domain, values: list[object]) -> CodeColumn:
    encode = ENCODERS[domain]
    codes = []
    try:
        for value in values:
            codes.append(encode(value))
    except Unfit as error:
        raise Unfit(str(error), len(codes)) from None
    if domain is Domain.TEXT:
        texts = np.empty(len(codes), dtype=object)
        texts[:] = [text for text, _ in codes]
        return texts, texts
    pairs = np.array(codes, dtype=np.float64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
