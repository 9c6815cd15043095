"""Durations as people write them: `200ms`, `1m`, `1h 30m`, or plain seconds; and sizes as they read them."""

from __future__ import annotations

import re
from decimal import Decimal
from math import isfinite
from types import MappingProxyType
from typing import Final

#: Seconds of a unit, exactly.
UNITS: Final = MappingProxyType(
    {
        "ms": Decimal("0.001"),
        "s": Decimal(1),
        "m": Decimal(60),
        "min": Decimal(60),
        "h": Decimal(3600),
        "d": Decimal(86400),
    }
)
EXPECTED: Final = (
    f"must be a number of seconds, or a text such as '200ms', '1m' or '1h 30m' (units: {', '.join(UNITS)})"
)
LONGEST_TEXT: Final = 64
_NUMBER = r"[0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?"
_PLAIN = re.compile(rf"\s*([+-]?{_NUMBER})\s*")
_PIECE = re.compile(rf"\s*({_NUMBER})\s*([A-Za-z]+)")


def seconds_of(given: object) -> float:
    """The seconds of a number or a text; ValueError, which says what would be right, if it is none. It may be negative,
    where a number is; whether that makes sense is for the caller to say."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise ValueError(EXPECTED)
    try:
        seconds = _read(given) if isinstance(given, str) else float(given)
    except OverflowError:  # a whole number beyond any float
        raise ValueError(EXPECTED) from None
    if not isfinite(seconds):
        raise ValueError(EXPECTED)
    return seconds


def _read(text: str) -> float:
    if len(text) > LONGEST_TEXT:
        raise ValueError(EXPECTED)
    if plain := _PLAIN.fullmatch(text):
        return float(plain[1])
    sign, rest = (-1, text.lstrip()[1:]) if text.lstrip().startswith("-") else (1, text)
    total, at, rest = Decimal(0), 0, rest.rstrip()
    while piece := _PIECE.match(rest, at):
        if piece[2] not in UNITS:
            break
        total += Decimal(piece[1]) * UNITS[piece[2]]
        at = piece.end()
    if at < len(rest) or not rest:
        raise ValueError(EXPECTED)
    return float(sign * total)


def duration_text(seconds: float) -> str:
    """A duration that `seconds_of` reads as this very number: in the largest unit of which it is a whole number."""
    for unit in ("d", "h", "m", "s", "ms"):
        count = Decimal(repr(seconds)) / UNITS[unit]
        if count == int(count) and seconds_of(text := f"{int(count)}{unit}") == seconds:
            return text
    return f"{seconds!r}s"


def time_shown(seconds: float) -> str:
    """A time as people read it, rounded: 12.3 ms, 1.5 s, 1 h 30 min."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for unit, name, below, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            return f"{whole // unit} {name} {whole % unit // below} {smaller}"
    raise AssertionError


def size_text(count: float) -> str:
    """Bytes in the unit that reads best."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:,.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError
