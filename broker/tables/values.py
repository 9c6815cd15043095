"""The code of a value: how each value of each column type becomes one float64, and comes back.

    type       value                                  code
    REAL       int, float, Decimal                    the float64 nearest to it (-0.0 becomes 0.0)
    INTEGER    the same, without a fraction           itself, |v| <= 2**53 so that float64 holds it exactly
    TIMESTAMP  datetime, date, datetime64, ISO text   microseconds since 1970 UTC, |code| <= 2**53
    TEXT       str                                    its number in the interner
    any        None, pandas NA and NaT                NaN

The definition is `encode_number` and `take_text`, one value at a time. `encode_numbers` and `words_of` are the same
over a column as it travels: arrays are judged whole by NumPy, and whatever looks unusual there is handed to the
definition, which alone words the refusals. So the fast way can be wrong only by accepting too much, and a test holds
the two together.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from hullcast.broker.tables.schema import Column, ColumnType
from hullcast.network.wire.columns import TextColumn
from hullcast.network.wire.containers import is_null, with_holes
from hullcast.network.wire.errors import InvariantBroken, Remedy
from hullcast.network.wire.packing import microseconds, type_name
from hullcast.network.wire.value_columns import Mixed, Nullable
from hullcast.network.wire.values import to_list, whole_microseconds

if TYPE_CHECKING:
    from hullcast.broker.tables.interning import Interner, Texts
    from hullcast.network.wire.arrays import Booleans, Floats, Ints, Narrow
    from hullcast.network.wire.value_columns import Values

NULL = math.nan
EXACT = 2**53  # up to here float64 holds every integer
LARGEST = sys.float_info.max
LONGEST_TEXT_BYTES = 64 * 1024

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NULLS = np.array([NULL])
_NANOSECONDS = np.dtype("M8[ns]")
_NONE = type(None)


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


def encode_number(column: Column, value: object) -> float:
    """The code of one value of a column that is not TEXT, or Refused."""
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
        raise Refused(NAN if _is_nan(value) else f"TEXT takes str, got {_shown(value)}")
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


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and value != value


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
    if not is_number(value):
        raise Refused(f"REAL takes a number, got {_shown(value)}")
    try:
        code = float(value)
    except OverflowError:
        raise Refused("the number is too large for REAL (a float64)") from None
    return _finite(code) + 0.0  # -0.0 + 0.0 is 0.0: equal numbers have one code


def _integer(value: object) -> float:
    if not is_number(value):
        hint = f"; publish int() of it, which is {int(value)}" if isinstance(value, bool | np.bool_) else ""
        raise Refused(f"INTEGER takes a whole number, got {_shown(value)}{hint}")
    if isinstance(value, float | np.floating) and _finite(float(value)) != math.floor(value):
        raise Refused(f"INTEGER takes a whole number, got {value!s}")
    whole = int(value)
    if not -EXACT <= whole <= EXACT:
        raise Refused(f"INTEGER must be between -2**53 and 2**53, got {_shown(value)}")
    return float(whole)


def _finite(code: float) -> float:
    if not math.isfinite(code):
        raise Refused(NAN if code != code else f"{code} is not allowed: numbers must be finite")
    return code


def _instant(value: object) -> float:
    if isinstance(value, np.datetime64):
        found: Any = value.item()  # a datetime or a date; ticks where these are too coarse, or do not reach
        if not isinstance(found, int):
            value = found
        elif value.dtype == _NANOSECONDS:
            return _within(found // 1000)
        else:
            instants = whole_microseconds(np.array([value]))
            assert instants is not None, "only exact ones may be lost"
            return _within(int(instants.view(np.int64)[0]))
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise Refused(f"{str(value)[:40]!r} is not an ISO-8601 timestamp") from None
    elif isinstance(value, datetime) and hasattr(value, "to_pydatetime"):  # pandas.Timestamp
        value = value.to_pydatetime(warn=False)  # microsecond precision is ours; no warning about nanoseconds
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        kinds = "a datetime, a datetime64 or ISO-8601 text"
        raise Refused(NAN if _is_nan(value) else f"TIMESTAMP takes {kinds}, got {_shown(value)}")
    return _within(microseconds(value))


def _within(code: int) -> float:
    if not -EXACT <= code <= EXACT:
        raise Refused("TIMESTAMP must be within 2**53 microseconds of 1970 (years 1684 to 2255)")
    return float(code)


# -- one column: the same, fast ----------------------------------------------------------------------------


def encode_numbers(column: Column, values: Values) -> Floats:
    """`encode_number` over a column; Refused carries the first bad row."""
    if isinstance(values, Mixed):
        return _list_codes(column, values.items)
    if isinstance(values, TextColumn):
        return _word_codes(column, values)
    array, null = (values.values, values.nulls) if isinstance(values, Nullable) else (values, None)
    if array.dtype.kind not in ("M" if column.type is ColumnType.TIMESTAMP else "fi"):
        return _one_by_one(column, _listed(values))
    return _array_codes(column, array, null)


class Words(NamedTuple):
    """A TEXT column: its distinct texts, and the place of each row's text (-1: NULL); None if each row has its own."""

    texts: Sequence[str | None]
    places: Ints | Narrow | None

    def check(self, interner: Interner) -> None:
        """Refused, with the first bad row, if a text cannot be interned."""
        try:
            interner.check(self.texts)
        except Refused:
            if self.places is not None:  # the first bad text need not be that of the first bad row
                interner.check([(*self.texts, None)[place] for place in self.places.tolist()])
            raise

    def spread(self, codes: Floats) -> Floats:
        """The codes of the rows, from those of the texts."""
        return codes if self.places is None else np.concatenate((codes, _NULLS))[self.places]


def words_of(column: Column, values: Values) -> Words:
    """The texts of a column, or Refused with the first row that has none; `Words.check` judges what is in them."""
    if not isinstance(values, TextColumn):
        return Words(_texts(column, _listed(values)), None)
    used = np.zeros(len(values.words) + 1, np.bool_)
    used[values.codes] = True
    if column.not_null and used[-1]:
        _texts(column, values.to_list())
    if used[:-1].all():
        return Words(values.words, values.codes)
    renumbered = np.cumsum(used) - 1  # a piece of a longer column: some words occur elsewhere only
    renumbered[-1] = -1
    return Words([values.words[place] for place in np.flatnonzero(used[:-1]).tolist()], renumbered[values.codes])


def _texts(column: Column, values: Sequence[Any]) -> Sequence[str | None]:
    """`take_text` over a column; Refused carries the first bad row."""
    if set(map(type, values)) <= ({str} if column.not_null else {str, _NONE}):
        return values
    for row, value in enumerate(values):
        try:
            text = take_text(column, value)
            if text is not None:
                check_text(text)  # here too: a bad text may stand before a bad type
        except Refused as refused:
            raise Refused(refused.reason, row) from None
    raise InvariantBroken("texts are bad together and good alone")


def _listed(values: Values) -> Sequence[Any]:
    """The values of a column, each of a type that says what it is."""
    if isinstance(values, Mixed):
        return values.items
    listed = to_list(values)
    if isinstance(values, np.ndarray) and values.dtype.kind == "M":  # what is too far for a datetime is an int there
        return [instant if type(value) is int else value for value, instant in zip(listed, values, strict=True)]
    return listed


def decode_column(kind: ColumnType, codes: Floats, interner: Interner | Texts | None) -> list[Any]:
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
    return with_holes(values, null)


def _array_codes(column: Column, array: NDArray[Any], null: Booleans | None) -> Floats:
    """Codes of an array whose dtype suits the column: find all bad rows at once, word the first one."""
    codes: Floats
    if array.dtype.kind == "M":
        null = np.isnat(array)
        array = array.view(np.int64)
    codes = array + 0.0  # one code for both zeros
    if array.dtype.kind == "f":
        bad = ~np.isfinite(codes)
        if column.type is ColumnType.INTEGER:
            bad |= (codes != np.rint(codes)) | (np.abs(codes) > EXACT)
    elif column.type is ColumnType.REAL:
        bad = np.zeros(len(array), np.bool_)
    else:
        bad = (array > EXACT) | (array < -EXACT)  # before rounding: 2**53 + 1 would round into range
    if null is not None:
        codes[null] = NULL
        bad = bad | null if column.not_null else bad & ~null
    if bad.any():
        row = int(np.argmax(bad))
        value = array[row].view("M8[us]") if column.type is ColumnType.TIMESTAMP else array[row].item()
        _one_by_one(column, [None if null is not None and null[row] else value], row)
        raise InvariantBroken(f"row {row}: {value!r} is refused in a column and taken alone")
    return codes


def _word_codes(column: Column, values: TextColumn) -> Floats:
    """Codes of instants written as text: each distinct one is read once."""
    try:
        codes = _one_by_one(Column(column.name, column.type), values.words)
    except Refused:
        return _one_by_one(column, values.to_list())  # with its row, if a row has it
    if column.not_null and (values.codes < 0).any():
        return _one_by_one(column, values.to_list())
    return np.concatenate((codes, _NULLS))[values.codes]


def _list_codes(column: Column, values: Sequence[Any]) -> Floats:
    """Codes of scalars: through one NumPy conversion if they are plain numbers, else one by one.

    They are mostly few, so judging them in Python takes less time than the NumPy calls it saves.
    """
    types = set(map(type, values))
    if column.type is ColumnType.TIMESTAMP or not types <= {float, int, _NONE} or (_NONE in types and column.not_null):
        return _one_by_one(column, values)
    given = [value for value in values if value is not None] if _NONE in types else values
    try:
        good = float not in types or all(map(math.isfinite, given))
        if good and given and column.type is ColumnType.INTEGER:
            whole = float not in types or all(map(float.is_integer, map(float, given)))
            good = whole and max(given) < EXACT and min(given) > -EXACT  # 2**53 may have been rounded: look closer
        if good:
            return np.array(values, np.float64) + 0.0  # None becomes NaN; one code for both zeros
    except OverflowError:
        pass
    return _one_by_one(column, values)


def _one_by_one(column: Column, values: Iterable[Any], first_row: int = 0) -> Floats:
    """The definition applied to each value: for values only Python can convert, and for wording refusals."""
    codes: list[float] = []
    for value in values:
        try:
            codes.append(encode_number(column, value))
        except Refused as refused:
            raise Refused(refused.reason, first_row + len(codes)) from None
    return np.array(codes, dtype=np.float64)
