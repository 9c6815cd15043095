"""What somebody wrote (file, variable or flag) becomes a value of a setting, or a reason why not.

Text comes from the environment and from flags, TOML's own types from files; both end in the same value. A size may be
written `64MiB`, a duration `500ms`, `15min` or `1h 30m`: the units are those that the setting's own name ends with.
"""

from __future__ import annotations

import re
from enum import Enum
from math import isfinite
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType

from hullcast.network.wire import durations

#: What a number may be followed by, by the end of the setting's name.
_SIZES = MappingProxyType({"": 1.0, "B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40})
_DURATIONS = MappingProxyType({"": 1.0} | {unit: float(factor) for unit, factor in durations.UNITS.items()})
UNITS = MappingProxyType({"_bytes": _SIZES, "_s": _DURATIONS, "_seconds": _DURATIONS})
_NUMBER = re.compile(r"\s*([+-]?[0-9]+(?:_[0-9]+)*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*")
LONGEST_NUMBER = 64
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")

Value = bool | int | float | str | Path | tuple[str, ...] | None


class ValueType(Enum):
    """The types a setting may have; the value says what to write."""

    YES_OR_NO = "true or false"
    WHOLE = "a whole number"
    NUMBER = "a number"
    TEXT = "text"
    FILE = "a path"
    TEXTS = "a list of texts"


class Unreadable(ValueError):
    """Not a value of that type; the text says what would be."""


def type_of(hint: object) -> ValueType | None:
    """What a field's annotation stands for; None if a setting cannot have that type."""
    types: dict[object, ValueType] = {
        bool: ValueType.YES_OR_NO,
        int: ValueType.WHOLE,
        float: ValueType.NUMBER,
        str: ValueType.TEXT,
        Path | None: ValueType.FILE,
        tuple[str, ...]: ValueType.TEXTS,
    }
    return types.get(hint)


def read(kind: ValueType, name: str, given: object, folder: Path | None = None) -> Value:
    """The value; `folder` is what a relative path starts from, if not from the current directory."""
    match kind:
        case ValueType.YES_OR_NO:
            return _yes_or_no(given)
        case ValueType.WHOLE:
            number = _number(name, given, kind)
            if isinstance(number, float) and not number.is_integer():
                raise Unreadable(_expected(name, kind))
            return int(number)
        case ValueType.NUMBER:
            return float(_number(name, given, kind))
        case ValueType.TEXT:
            if not isinstance(given, str):
                raise Unreadable("must be text, in quotes")
            return given
        case ValueType.FILE:
            if not isinstance(given, str | Path):
                raise Unreadable("must be a path, in quotes")
            if not str(given):
                return None
            path = Path(given).expanduser()
            return folder / path if folder is not None else path
        case ValueType.TEXTS:
            return _texts(given)


def shown(name: str, value: float) -> str:
    """A number for people: a size in its largest whole unit, anything else with thousands apart."""
    if name.endswith("_bytes"):
        for unit, factor in sorted(_SIZES.items(), key=itemgetter(1), reverse=True):
            if factor > 1 and value >= factor and value % factor == 0:
                return f"{value / factor:,.0f}{unit}"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,g}"


def _yes_or_no(given: object) -> bool:
    if isinstance(given, bool):
        return given
    word = given.strip().lower() if isinstance(given, str) else ""
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise Unreadable(f"must be {ValueType.YES_OR_NO.value}")


def _number(name: str, given: object, kind: ValueType) -> int | float:
    if isinstance(given, int | float) and not isinstance(given, bool):
        if not isfinite(given):
            raise Unreadable(_expected(name, kind))
        return given
    if isinstance(given, str) and _units(name) is _DURATIONS:
        try:
            return durations.seconds_of(given)
        except ValueError:
            raise Unreadable(_expected(name, kind)) from None
    found = _NUMBER.fullmatch(given) if isinstance(given, str) and len(given) <= LONGEST_NUMBER else None
    if found is None:
        raise Unreadable(_expected(name, kind))
    digits, unit = found.groups()
    factor = _units(name).get(unit)
    if factor is None:
        raise Unreadable(_expected(name, kind))
    plain = digits.lstrip("+-").replace("_", "").isdigit()
    if plain and factor.is_integer():
        return int(digits) * int(factor)  # whole numbers stay exact, beyond 2^53 too
    number = float(digits) * factor
    if not isfinite(number):
        raise Unreadable(_expected(name, kind))
    return number


def _units(name: str) -> MappingProxyType[str, float] | dict[str, float]:
    return next((units for ending, units in UNITS.items() if name.endswith(ending)), {"": 1.0})


def _expected(name: str, kind: ValueType) -> str:
    units = [unit for unit in _units(name) if unit]
    return f"must be {kind.value}" + (f"; it may have a unit ({', '.join(units)})" if units else "")


def _texts(given: object) -> tuple[str, ...]:
    """A TOML list, flags given several times, or one text with commas; empty texts are left out."""
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, list | tuple) or not all(isinstance(part, str) for part in given):
        raise Unreadable("must be a list of texts, or one text with commas")
    return tuple(word for part in given for text in part.split(",") if (word := text.strip()))
