"""Columns: how rows travel. A batch of messages or an answer is a dict of columns of one length.

    in memory                on the wire
    float64 array            ["f8", bytes]
    int64 array              ["i8", bytes]
    bool array               ["b1", bytes], each 0 or 1
    TextColumn               ["t4", bytes of int32 codes, [words]], code -1: NULL

All little-endian. Decoding a column is one copy, and the copy is what kernels want: writable, aligned, contiguous.
Columns that users publish may hold more than these; see `network/wire/value_columns.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from hullcast.network.wire.arrays import Booleans, Floats, Ints, Narrow
from hullcast.network.wire.errors import BadFrame
from hullcast.network.wire.limits import DEFAULT, WireLimits

Which: TypeAlias = "Ints | Booleans | slice"  # which rows: their numbers, a mask, or a stretch


@dataclass(frozen=True, slots=True, eq=False)
class TextColumn:
    """A column of texts, each distinct one sent once. `codes` are places in `words`; -1 is NULL."""

    codes: Narrow
    words: tuple[str, ...]

    @classmethod
    def from_texts(cls, texts: Sequence[str | None]) -> TextColumn:
        """The column of these texts; None is NULL."""
        places: dict[str | None, int] = dict.fromkeys(texts, -1)
        if len(places) == len(texts) and None not in places:  # a key
            return cls(np.arange(len(texts), dtype=np.int32), tuple(places))  # type: ignore[arg-type]  # without None
        places.pop(None, None)
        words = tuple(places)
        places.update(zip(words, range(len(words)), strict=True))
        places[None] = -1
        return cls(np.fromiter(map(places.__getitem__, texts), np.int32, len(texts)), words)  # type: ignore[arg-type]

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.codes)

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same texts, whatever their words' order."""
        return isinstance(other, TextColumn) and self.to_list() == other.to_list()

    __hash__ = None  # type: ignore[assignment]  # as arrays

    def to_list(self) -> list[str | None]:
        """The texts, None for NULL."""
        texts = (*self.words, None)  # code -1: the last
        return list(map(texts.__getitem__, self.codes.tolist()))

    def take(self, rows: Which) -> TextColumn:
        """Some rows. If most words are no longer used, those are left out: they would be sent for nothing."""
        codes = self.codes[rows]
        if 8 * len(codes) < len(self.words):
            used, places = np.unique(codes, return_inverse=True)
            shift = int(len(used) > 0 and used[0] < 0)  # NULL comes first, and has no word
            return TextColumn(
                (places - shift).astype(np.int32), tuple(map(self.words.__getitem__, used[shift:].tolist()))
            )
        marks = np.zeros(len(self.words) + 1, dtype=np.bool_)  # the last: NULL
        marks[codes] = True
        kept = np.flatnonzero(marks[:-1])
        if 2 * len(kept) >= len(self.words):
            return TextColumn(codes, self.words)
        renumbered = np.full(len(self.words) + 1, -1, dtype=np.int32)
        renumbered[kept] = np.arange(len(kept), dtype=np.int32)
        return TextColumn(renumbered[codes], tuple(map(self.words.__getitem__, kept.tolist())))


Column: TypeAlias = Floats | Ints | Booleans | TextColumn
Columns: TypeAlias = dict[str, Column]

_KINDS: dict[str, tuple[np.dtype[Any], Any]] = {  # on the wire, in memory
    "f8": (np.dtype("<f8"), np.float64),
    "i8": (np.dtype("<i8"), np.int64),
}
_TYPES = {np.dtype(np.float64): "f8", np.dtype(np.int64): "i8", np.dtype(np.bool_): "b1"}


# -- whole batches ---------------------------------------------------------------------------------------


def length(columns: Mapping[str, Column]) -> int:
    """The number of rows; 0 without columns."""
    for column in columns.values():
        return len(column)
    return 0


def size_bytes(columns: Mapping[str, Column]) -> int:
    """About what the columns take, in memory and on the wire."""
    return sum(
        column.codes.nbytes + sum(map(len, column.words)) if isinstance(column, TextColumn) else column.nbytes
        for column in columns.values()
    )


def take(columns: Mapping[str, Column], rows: Which) -> Columns:
    """Some rows of every column."""
    return {
        name: column.take(rows) if isinstance(column, TextColumn) else column[rows] for name, column in columns.items()
    }


def concatenate(parts: Sequence[Mapping[str, Column]]) -> Columns:
    """The rows of all parts, one after the other. All parts have the same columns, of the same types."""
    if not parts:
        return {}
    if len(parts) == 1:
        return dict(parts[0])
    return {name: _joined([part[name] for part in parts]) for name in parts[0]}


def _joined(columns: Sequence[Column]) -> Column:
    texts = [column for column in columns if isinstance(column, TextColumn)]
    if not texts:
        return np.concatenate(columns)  # type: ignore[arg-type]  # arrays of one type
    words: dict[str, int] = {}
    codes = []
    for column in texts:
        places = [words.setdefault(word, len(words)) for word in column.words]
        codes.append(np.array([*places, -1], dtype=np.int32)[column.codes])
    return TextColumn(np.concatenate(codes), tuple(words))


# -- the wire --------------------------------------------------------------------------------------------


def pack(columns: Mapping[str, Column]) -> dict[str, list[object]]:
    """Columns as MessagePack takes them."""
    return {name: pack_column(column) for name, column in columns.items()}


def pack_column(column: Column) -> list[object]:
    """One column as MessagePack takes it. Arrays are lent, not copied: pack them before they change."""
    if isinstance(column, TextColumn):
        return ["t4", raw(column.codes, np.dtype("<i4")), column.words]
    kind = _TYPES[column.dtype]
    return [kind, raw(column, column.dtype if kind == "b1" else _KINDS[kind][0])]


def raw(array: NDArray[Any], kind: np.dtype[Any]) -> memoryview:
    """The bytes of an array, as that type."""
    return np.ascontiguousarray(array, dtype=kind).view(np.uint8).data


def unpack(packed: object, limits: WireLimits = DEFAULT) -> Columns:
    """The columns of a decoded map, or BadFrame: all of one length, each writable."""
    if type(packed) is not dict or len(packed) > limits.columns:
        raise BadFrame(f"columns are a map of at most {limits.columns}")
    columns: Columns = {}
    rows = -1
    for name, item in packed.items():
        if type(name) is not str:
            raise BadFrame("a column's name is a text")
        column = unpack_column(item, limits)
        if rows < 0:
            rows = len(column)
        elif len(column) != rows:
            raise BadFrame(f"column {name[:80]!r} has {len(column)} rows, others have {rows}")
        columns[name] = column
    return columns


def unpack_column(packed: object, limits: WireLimits = DEFAULT) -> Column:
    """One column, or BadFrame."""
    match packed:
        case ["f8" | "i8" as kind, bytes(data)]:
            return cast("Column", array_of(kind, data, limits))
        case ["b1", bytes(data)]:
            return mask_of(data, limits)
        case ["t4", bytes(data), list(words)]:
            return _texts_of(data, words, limits)
    raise BadFrame(f"no column: {_sketch(packed)}")


def array_of(kind: str, data: bytes, limits: WireLimits) -> Any:
    """A writable array of the numbers in some bytes."""
    wire, memory = _KINDS[kind]
    _check_rows(data, 8, limits)
    return np.frombuffer(data, wire).astype(memory)


def mask_of(data: bytes, limits: WireLimits) -> Booleans:
    """A writable mask of bytes 0 and 1."""
    _check_rows(data, 1, limits)
    if data.translate(None, b"\0\1"):
        raise BadFrame("a truth value is a byte 0 or 1")
    return np.frombuffer(data, np.bool_).copy()


def _texts_of(data: bytes, words: list[Any], limits: WireLimits) -> TextColumn:
    _check_rows(data, 4, limits)
    if len(words) > limits.words:
        raise BadFrame(f"{len(words)} words in one column; at most {limits.words}")
    check_texts(words)
    codes = np.frombuffer(data, "<i4").astype(np.int32)
    if len(codes) and not (codes.min() >= -1 and codes.max() < len(words)):
        raise BadFrame("a text's code has no word")
    return TextColumn(codes, tuple(words))


def check_texts(words: Iterable[object]) -> None:
    """BadFrame unless all are texts."""
    if not set(map(type, words)) <= {str}:
        raise BadFrame("a word is a text")


def _check_rows(data: bytes, width: int, limits: WireLimits) -> None:
    rows, rest = divmod(len(data), width)
    if rest:
        raise BadFrame(f"{len(data)} bytes are not a column of {width}-byte values")
    if rows > limits.rows:
        raise BadFrame(f"a column of {rows} rows; at most {limits.rows}")


def _sketch(packed: object) -> str:
    """What was sent, short: for the reason of a refusal."""
    if isinstance(packed, list):
        return f"an array of {len(packed)}" + (f" beginning with {packed[0]!r:.20}" if packed else "")
    return f"a {type(packed).__name__}"
