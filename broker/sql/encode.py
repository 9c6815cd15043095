"""Parameter values become codes, singly or by column, by what the placeholder is compared with.

Everything a caller may pass is checked here and nowhere later; `Unfit` carries the reason, and the
binder adds which parameter and which column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hullcast.broker.sql.bounds import Code, code_of
from hullcast.broker.sql.text import shorten
from hullcast.broker.tables.values import Refused, check_text, is_number
from hullcast.network.wire.arrays import Floats, objects
from hullcast.network.wire.containers import number_of
from hullcast.network.wire.packing import microseconds, type_name

_MICROSECONDS: Final[dict[str, int | Fraction]] = {
    "W": 7 * 86_400_000_000,
    "D": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1000,
    "us": 1,
    "ns": Fraction(1, 10**3),
    "ps": Fraction(1, 10**6),
    "fs": Fraction(1, 10**9),
    "as": Fraction(1, 10**12),
}


class Domain(Enum):
    """What a value is compared with; the value says what the parameter may be."""

    NUMBER = "a number"
    TEXT = "a str"
    INSTANT = "a datetime (naive means UTC), a date or ISO-8601 text"
    DURATION = "a number of seconds or a timedelta"
    DIFFERENCE = "a number below 2**53 in size, or an infinity"


@dataclass(frozen=True, slots=True)
class Slot:
    """One placeholder: what its value is compared with, for checking and for naming it in an error."""

    label: str  # "PER (REAL)"
    domain: Domain


class Unfit(Exception):
    """The value cannot stand here; the text completes a sentence that begins with the slot's label. Of a column it is
    the value of a `row`, else -1."""

    def __init__(self, reason: str, row: int = -1) -> None:
        super().__init__(reason)
        self.row = row


def encode_number(value: object) -> Code:
    """An int, a float or their NumPy kin; NaN is refused, an infinity means no bound."""
    if type(value) is float:  # the common case first: `bind` is on the path of every subscribe
        if value == value:
            value += 0.0  # one sign of zero only
            return value, value
        raise Unfit("cannot be compared with NaN")
    if isinstance(value, Decimal):  # as it would be stored
        return encode_number(number_of(value))
    if not is_number(value):
        raise _wrong(value, Domain.NUMBER)
    if isinstance(value, int | np.integer):
        return code_of(int(value))
    if isinstance(value, float) or value.itemsize <= 8:
        return encode_number(float(value))
    raise _wrong(value, Domain.NUMBER)


def encode_text(value: object) -> Code:
    """A str that can travel as UTF-8."""
    if not isinstance(value, str):
        raise _wrong(value, Domain.TEXT)
    text = str.__str__(value)  # a subclass becomes plain, an Enum its value
    try:
        check_text(text)
    except Refused as refused:
        raise Unfit(f"cannot be compared with this text: {refused.reason}") from None
    return text, text


def encode_instant(value: object) -> Code:
    """A point in time, as microseconds since 1970 UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise Unfit(f"takes ISO-8601 text such as '2024-05-01T12:30:00', got {_shown(value)}") from None
    if isinstance(value, date) and hasattr(value, "to_datetime64"):  # pandas.Timestamp and NaT, with nanoseconds
        value = value.to_datetime64()
    if isinstance(value, np.datetime64):
        return _encode_datetime64(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        raise _wrong(value, Domain.INSTANT)
    return code_of(microseconds(value))


def encode_duration(value: object) -> Code:
    """A length of time, as microseconds. Seconds are rounded to microseconds, as TIMESTAMPs are exact to
    these only: without rounding 4.35 seconds would miss rows 4,350,000 microseconds apart."""
    if isinstance(value, timedelta) and hasattr(value, "to_timedelta64"):  # pandas.Timedelta
        value = value.to_timedelta64()
    if isinstance(value, np.timedelta64):
        return _encode_timedelta64(value)
    if isinstance(value, timedelta):
        return code_of(value // timedelta(microseconds=1))
    try:
        seconds, above = encode_number(value)
    except Unfit:
        raise _wrong(value, Domain.DURATION) from None
    if math.isinf(seconds) or seconds != above:  # beyond any difference of two rows: no need to be exact
        return seconds * 1e6, above * 1e6
    return code_of(round(Fraction(seconds) * 1_000_000))


def within_reach(code: Code, domain: Domain) -> Code:
    """A bound on the difference of whole numbers (TIMESTAMPs are: microseconds), if it differs from its
    neighbours. Beyond 2**53 the floats are two apart, and a difference may lie between them."""
    down, up = code
    if (down == up and math.isinf(down)) or -REACH < down <= up < REACH:
        return code
    raise Unfit(f"must be below 2**53{' microseconds' if domain is Domain.DURATION else ''} in size, or none")


REACH: Final = 2.0**53

ENCODERS: Final[dict[Domain, Callable[[object], Code]]] = {
    Domain.NUMBER: encode_number,
    Domain.TEXT: encode_text,
    Domain.INSTANT: encode_instant,
    Domain.DURATION: lambda value: within_reach(encode_duration(value), Domain.DURATION),
    Domain.DIFFERENCE: lambda value: within_reach(encode_number(value), Domain.DIFFERENCE),
}


def microseconds_per_tick(dtype: np.dtype[np.datetime64] | np.dtype[np.timedelta64]) -> int | Fraction | None:
    """Length of one tick of a NumPy time type, None where it has no fixed length (months, years)."""
    unit, step = np.datetime_data(dtype)
    length = _MICROSECONDS.get(unit)
    return None if length is None else length * step


def _encode_datetime64(value: np.datetime64) -> Code:
    if np.isnat(value):
        raise Unfit("cannot be compared with NaT")
    tick = microseconds_per_tick(value.dtype)
    ticks = int(value.astype(np.int64))
    if tick is not None:
        return code_of(ticks * tick)
    unit, step = np.datetime_data(value.dtype)
    years, months = divmod(ticks * step * (12 if unit == "Y" else 1), 12)
    if not 1 <= 1970 + years <= 9999:
        raise Unfit("takes the years 1 to 9999")
    return code_of(microseconds(datetime(1970 + years, 1 + months, 1)))


def _encode_timedelta64(value: np.timedelta64) -> Code:
    tick = microseconds_per_tick(value.dtype)
    if tick is None or np.isnat(value):
        raise _wrong(value, Domain.DURATION)
    return code_of(int(value.astype(np.int64)) * tick)


def _wrong(value: object, domain: Domain) -> Unfit:
    if value is None:
        return Unfit("cannot be compared with None: a comparison with NULL is never true")
    return Unfit(f"takes {domain.value}, got {_shown(value)}")


def _shown(value: object) -> str:
    """Type and, for plain values, the value itself: a stranger's object may have any repr."""
    plain = isinstance(value, str | bool | int | float | complex | np.generic) and not isinstance(value, np.void)
    if isinstance(value, int) and value.bit_length() > 200:
        return f"int of {value.bit_length()} bits"
    text = repr(value[:60] if isinstance(value, str) else value) if plain else ""
    return f"{type_name(value)} {shorten(text)}".rstrip()


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
        texts = objects([text for text, _ in codes])
        return texts, texts
    pairs = np.array(codes, dtype=np.float64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
