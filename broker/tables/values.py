"""The code of a value: how each value of each column type becomes one float64, and comes back.

    type       value                                  code
    REAL       int, float, Decimal                    the float64 nearest to it (-0.0 becomes 0.0)
    INTEGER    the same, without a fraction           itself, |v| <= 2**53 so that float64 holds it exactly
    TIMESTAMP  datetime, date, datetime64, ISO text   microseconds since 1970 UTC, |code| <= 2**53
    TEXT       str                                    its number in the interner
    any        None, pandas NA and NaT                NaN

The definition is `encode`, one value at a time. `encode_column` is the same function over a column: arrays
are judged whole by NumPy, and whatever looks unusual there is handed to the definition, which alone words
the refusals. So the fast way can be wrong only by accepting too much, and a test holds the two together.

What containers hold (lists, arrays, pandas, Arrow) is found out in `network/wire/containers.py`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import repeat
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from hullcast.broker.tables.schema import Column, ColumnType, Table
from hullcast.network.wire.containers import is_nan, is_null, masked_list, number_of, plain
from hullcast.network.wire.errors import BadValue, InvariantBroken, Remedy
from hullcast.network.wire.packing import type_name

if TYPE_CHECKING:
    from hullcast.broker.tables.interning import Interner, Texts

NULL = math.nan
EXACT = 2**53  # up to here float64 holds every integer
LARGEST = sys.float_info.max
LONGEST_TEXT_BYTES = 64 * 1024

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NONE = type(None)
_MICROSECONDS_PER = {
    "W": 604_800_000_000,
    "D": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
_PER_MICROSECOND = {"ns": 10**3, "ps": 10**6, "fs": 10**9, "as": 10**12}
_CALENDAR_UNITS_PER_YEAR = {"Y": 1, "M": 12}


#: Not NULL unless that is asked for: a NaN is more often an accident than an intention.
NAN = Remedy(
    'NaN is not allowed; upsert(.., nan="null") stores NaN as NULL',
    'NaN is not allowed; publish(.., nan="null") stores NaN as NULL',
)


class Refused(ValueError):
    """A value that its column does not take. Callers turn it into BadValue, since they know the table."""

    def __init__(self, reason: str, row: int = 0) -> None:
        super().__init__(reason, row)
        self.reason, self.row = reason, row


# -- one value: the definition ---------------------------------------------------------------------------


def encode(column: Column, value: object, interner: Interner) -> float:
    """The code of one value, or Refused. A TEXT not seen before is interned, after it was judged."""
    if column.type is not ColumnType.TEXT:
        return encode_number(column, value)
    text = take_text(column, value)
    return NULL if text is None else interner.code(text)


def encode_number(column: Column, value: object) -> float:
    """`encode` for the types that need no interner: all but TEXT."""
    if is_null(value):
        _refuse_null(column)
        return NULL
    match column.type:
        case ColumnType.REAL:
            return _real(value)
        case ColumnType.INTEGER:
            return _integer(value)
        case ColumnType.TIMESTAMP:
            return _instant(value)
        case ColumnType.TEXT:
            raise InvariantBroken("TEXT has no code without an interner")


def take_text(column: Column, value: object) -> str | None:
    """The str of a TEXT value (NULL is None), or Refused by its type; `check_text` judges what is in it."""
    if isinstance(value, str):
        return str.__str__(value)  # subclasses become plain: no array hangs on them, and an Enum is its value
    if not is_null(value):
        raise Refused(NAN if is_nan(value) else f"TEXT takes str, got {_shown(value)}")
    _refuse_null(column)
    return None


def check_text(text: str) -> None:
    """Refuse what could not be stored or sent as UTF-8 text."""
    if "\0" in text:
        raise Refused("TEXT must not contain a NUL character")
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        raise Refused(f"TEXT has a lone surrogate at character {error.start}, which UTF-8 cannot encode") from None
    if size_bytes > LONGEST_TEXT_BYTES:
        raise Refused(f"TEXT of {size_bytes} bytes is too long; at most {LONGEST_TEXT_BYTES} bytes are allowed")


def texts_are_good(texts: Collection[str]) -> bool:
    """Whether `check_text` would pass each one; judged on the whole at C speed."""
    if not texts:
        return True
    joined = "".join(texts)
    if "\0" in joined:
        return False
    if max(map(len, texts)) * 4 > LONGEST_TEXT_BYTES:  # a character takes at most 4 bytes
        return all(map(_text_is_good, texts))
    return joined.isascii() or has_utf8(joined)


def decode(kind: ColumnType, code: float, interner: Interner | Texts) -> float | int | str | datetime | None:
    """The value of a code."""
    if code != code:
        return None
    match kind:
        case ColumnType.REAL:
            return float(code)
        case ColumnType.INTEGER:
            return int(code)
        case ColumnType.TIMESTAMP:
            return _EPOCH + timedelta(microseconds=int(code))
        case ColumnType.TEXT:
            return interner.text(code)


def _refuse_null(column: Column) -> None:
    if column.not_null:
        raise Refused("NULL is not allowed: the column is NOT NULL or the primary key")


def has_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text_is_good(text: str) -> bool:
    try:
        check_text(text)
    except Refused:
        return False
    return True


def is_number(value: object) -> TypeGuard[int | float | np.integer[Any] | np.floating[Any]]:
    """Whether a value is a number for SQL. For NumPy a timedelta64 is an integer, which it cannot convert."""
    if isinstance(value, bool | np.timedelta64):
        return False
    return isinstance(value, int | float | np.integer | np.floating)


def _shown(value: object) -> str:
    """The type of a value that was refused, and the value itself where that is short and certainly helps."""
    if isinstance(value, str):
        return f"{type_name(value)} {str.__str__(value)[:40]!r}"
    if isinstance(value, bool | float) or (type(value) is int and abs(value) < 2**64):  # Python shows no huge ones
        return f"{type_name(value)} {value!s}"
    return type_name(value)


def _real(value: object) -> float:
    if isinstance(value, Decimal):
        value = number_of(value)
    if not is_number(value):
        raise Refused(f"REAL takes a number, got {_shown(value)}")
    try:
        code = float(value)
    except OverflowError:
        raise Refused("the number is too large for REAL (a float64)") from None
    return _finite(code) + 0.0  # -0.0 + 0.0 is 0.0: equal numbers have one code


def _integer(value: object) -> float:
    if isinstance(value, Decimal):
        value = number_of(value)
    if not is_number(value):
        raise Refused(f"INTEGER takes a whole number, got {_shown(value)}")
    if isinstance(value, float | np.floating) and _finite(float(value)) != math.floor(value):
        raise Refused(f"INTEGER takes a whole number, got {value!s}")
    whole = int(value)
    if not -EXACT <= whole <= EXACT:
        raise Refused("INTEGER must be between -2**53 and 2**53")
    return float(whole)


def _finite(code: float) -> float:
    if not math.isfinite(code):
        raise Refused(NAN if code != code else f"{code} is not allowed: numbers must be finite")
    return code


def _instant(value: object) -> float:
    if isinstance(value, np.datetime64):
        codes, bad = _microseconds(np.array([value]))
        if bad[0]:
            raise Refused(_BEYOND)
        return float(codes[0])
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise Refused(f"{str(value)[:40]!r} is not an ISO-8601 timestamp") from None
    elif isinstance(value, datetime) and hasattr(value, "to_pydatetime"):  # pandas.Timestamp
        value = value.to_pydatetime(warn=False)  # microsecond precision is ours; no warning about nanoseconds
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if not isinstance(value, datetime):
        kinds = "a datetime, a datetime64 or ISO-8601 text"
        raise Refused(NAN if is_nan(value) else f"TIMESTAMP takes {kinds}, got {_shown(value)}")
    if value.utcoffset() is None:
        value = value.replace(tzinfo=UTC)
    code = (value - _EPOCH) // _MICROSECOND
    if not -EXACT <= code <= EXACT:
        raise Refused(_BEYOND)
    return float(code)


_BEYOND = "TIMESTAMP must be within 2**53 microseconds of 1970 (years 1684 to 2255)"


# -- one column: the same, fast ----------------------------------------------------------------------------


def encode_column(column: Column, values: object, interner: Interner, table: Table) -> NDArray[np.float64]:
    """The codes of a column; BadValue names the first bad row, and then nothing was interned."""
    if column == table.key_column:
        column = Column(column.name, column.type, not_null=True)
    try:
        if column.type is not ColumnType.TEXT:
            return encode_numbers(column, values)
        texts = take_texts(column, values)
        interner.check(texts)
    except Refused as refused:
        raise BadValue(table.name, refused.row, column.name, refused.reason) from None
    return interner.encode(texts)


def encode_numbers(column: Column, values: object) -> NDArray[np.float64]:
    """`encode_number` over a column; Refused carries the first bad row."""
    held, null = plain(values)
    if isinstance(held, list):
        return _list_codes(column, held)
    if held.dtype.kind not in ("M" if column.type is ColumnType.TIMESTAMP else "fiu"):
        return _one_by_one(column, _listed(held, null))
    return _array_codes(column, held, null)


def _listed(array: NDArray[Any], null: NDArray[np.bool_] | None) -> list[Any]:
    """The values of an array that does not suit its column: each one NULL, or refused by its own type."""
    match array.dtype.kind:
        case "M" | "m":  # `tolist` makes integers of nanoseconds, and of what is far away
            return masked_list(np.fromiter(array, dtype=object, count=len(array)), null)
        case "V":  # records, whose masks have a field for each of theirs
            return list(array)
    return masked_list(array, null)


def take_texts(column: Column, values: object) -> list[str | None]:
    """`take_text` over a column; Refused carries the first bad row. Texts are judged by `Interner.check`."""
    held, null = plain(values)
    texts = held if isinstance(held, list) else _listed(held, null)
    if set(map(type, texts)) <= ({str} if column.not_null else {str, _NONE}):
        return texts
    taken: list[str | None] = []
    for row, value in enumerate(texts):  # odd types only: numpy.str_, pandas NA, or a refusal
        try:
            text = take_text(column, value)
            if text is not None:
                check_text(text)  # here too: a bad text may stand before a bad type
        except Refused as refused:
            raise Refused(refused.reason, row) from None
        taken.append(text)
    return taken


def decode_column(kind: ColumnType, codes: NDArray[np.float64], interner: Interner | Texts | None) -> list[Any]:
    """The values of a column of codes; only those of texts need the interner."""
    if kind is ColumnType.TEXT:
        assert interner is not None, "texts have no meaning without their interner"
        texts: list[Any] = interner.decode(codes).tolist()
        return texts
    null = np.isnan(codes)
    holes = bool(null.any())
    filled = np.where(null, 0.0, codes) if holes else codes
    values: list[Any]
    match kind:
        case ColumnType.REAL:
            values = filled.tolist()
        case ColumnType.INTEGER:
            values = filled.astype(np.int64).tolist()
        case ColumnType.TIMESTAMP:
            naive = filled.astype(np.int64).astype("datetime64[us]").tolist()
            values = list(map(partial(datetime.replace, tzinfo=UTC), naive))
    return _with_holes(values, null) if holes else values


def _with_holes(values: Sequence[object], null: NDArray[np.bool_]) -> list[Any]:
    boxed = np.empty(len(values), dtype=object)
    boxed[:] = values
    boxed[null] = None
    holed: list[Any] = boxed.tolist()
    return holed


def _array_codes(column: Column, array: NDArray[Any], null: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    """Codes of an array whose dtype suits the column: find all bad rows at once, word the first one."""
    bad: NDArray[np.bool_]
    if array.dtype.kind == "M":
        codes, bad = _microseconds(array)
    else:
        with np.errstate(over="ignore"):  # a longdouble beyond float64 becomes an infinity, refused below
            codes = array.astype(np.float64)
        codes += 0.0  # one code for both zeros
        if array.dtype.kind == "f":
            bad = ~np.isfinite(codes)
            if column.type is ColumnType.INTEGER:
                bad |= (codes != np.rint(codes)) | (np.abs(codes) > EXACT)
        elif column.type is ColumnType.INTEGER and array.dtype.itemsize == 8:
            bad = (array > EXACT) | (array < -EXACT)  # before rounding: 2**53 + 1 would round into range
        else:
            bad = np.zeros(len(array), dtype=np.bool_)
    if null is not None:
        codes[null] = NULL
        bad &= ~null
    if column.not_null:
        bad |= np.isnan(codes)
    if bad.any():
        row = int(np.argmax(bad))
        _word(column, None if null is not None and null[row] else array[row], row)
    return codes


def _word(column: Column, value: object, row: int) -> None:
    """Let the definition say why it refuses a value that the fast way found bad."""
    try:
        encode_number(column, value)
    except Refused as refused:
        raise Refused(refused.reason, row) from None
    raise InvariantBroken(f"row {row}: {value!r} is refused in a column and taken alone")


def _microseconds(array: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Codes of datetime64 values (NaT is NULL) and which are out of range; no silent overflow."""
    unit, count = np.datetime_data(array.dtype)
    null = np.isnat(array)
    far = np.zeros(len(array), dtype=np.bool_)
    if unit == "generic":  # a datetime64 without a unit can only hold NaT
        return np.full(len(array), NULL), far
    ticks = np.where(null, 0, array.astype(np.int64))
    if unit in _CALENDAR_UNITS_PER_YEAR:  # months differ in length: NumPy turns them into days
        limit = 300 * _CALENDAR_UNITS_PER_YEAR[unit] // count
        far |= (ticks > limit) | (ticks < -limit)
        days = np.where(far, 0, ticks).astype(f"datetime64[{count}{unit}]").astype("datetime64[D]")
        ticks, unit, count = days.astype(np.int64), "D", 1
    if unit in _MICROSECONDS_PER:
        factor = _MICROSECONDS_PER[unit] * count
        limit = EXACT // factor
        far |= (ticks > limit) | (ticks < -limit)
        whole = np.where(far, 0, ticks) * factor
    else:
        divisor = _PER_MICROSECOND[unit]
        limit = np.iinfo(np.int64).max // count
        far |= (ticks > limit) | (ticks < -limit)
        whole = (np.where(far, 0, ticks) * count) // divisor
        far |= np.abs(whole) > EXACT
    codes = whole.astype(np.float64)
    codes[null] = NULL
    return codes, far & ~null


def _list_codes(column: Column, values: list[Any]) -> NDArray[np.float64]:
    """Codes of a list: through one NumPy conversion if its types are plain, else one by one."""
    types = set(map(type, values))
    if column.type is ColumnType.TIMESTAMP:
        if types == {datetime} and set(map(id, map(attrgetter("tzinfo"), values))) <= {id(None), id(UTC)}:
            naive = map(partial(datetime.replace, tzinfo=None), values)
            return _array_codes(column, np.array(list(naive), dtype="datetime64[us]"), None)
        return _one_by_one(column, values)
    if not types <= {float, int, _NONE} or (_NONE in types and column.not_null):
        return _one_by_one(column, values)
    try:
        codes = np.array(values, dtype=np.float64) + 0.0  # None becomes NaN
    except OverflowError:
        return _one_by_one(column, values)
    good = np.isfinite(codes)
    if column.type is ColumnType.INTEGER:  # at 2**53 itself an integer may have been rounded: look closer
        good &= (codes == np.rint(codes)) & (np.abs(codes) < EXACT)
    if _NONE in types:
        good |= np.fromiter(map(is_, values, repeat(None)), np.bool_, len(values))
    return codes if good.all() else _one_by_one(column, values)


def _one_by_one(column: Column, values: Iterable[Any]) -> NDArray[np.float64]:
    """The definition applied to each value: for values only Python can convert, and for wording refusals."""
    codes: list[float] = []
    for value in values:
        try:
            codes.append(encode_number(column, value))
        except Refused as refused:
            raise Refused(refused.reason, len(codes)) from None
    return np.array(codes, dtype=np.float64)
