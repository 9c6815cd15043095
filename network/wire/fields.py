"""Fields of frames and bodies: how each kind of field travels, what is refused, and how PROTOCOL.md calls it.

`layouts.py` finds the codec of a field by its type. Where the type says too little (a range, a limit, a column), it is
`Annotated[type, codec]`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from hullcast.network.wire.arrays import Floats
from hullcast.network.wire.errors import BadFrame
from hullcast.network.wire.limits import WireLimits

Matrix = Floats  # of shape (n, k)
Read: TypeAlias = Callable[[Any, WireLimits], Any]
Pack: TypeAlias = Callable[[Any], object]

MOST = 2**63 - 1
ID_BYTES = 16
_WIDEST = 64  # columns of a matrix: dimensions of a point


@dataclass(frozen=True, slots=True)
class Codec:
    """How a kind of field travels. `said` is its type in PROTOCOL.md.

    `reader` makes, for a field of that name, what gives the checked value of a decoded one, or BadFrame. `pack` gives
    what MessagePack takes; None: the value itself. `most` limits its items.
    """

    said: str
    reader: Callable[[str], Read]
    pack: Pack | None = None
    most: Callable[[WireLimits], int] | None = None


def plain(
    said: str, kind: type, needed: str, what: str, fits: Callable[[Any], bool] | None = None, pack: Pack | None = None
) -> Codec:
    """Values of a type that MessagePack has. `what` is how a refusal calls it, if not as the field is called."""

    def reader(name: str) -> Read:
        refusal = f"{what or name} must be {needed}"

        def read(value: Any, limits: WireLimits) -> Any:
            if type(value) is not kind or (fits is not None and not fits(value)):
                raise BadFrame(refusal)
            return value

        return read

    return Codec(said, reader, pack)


def integer(what: str = "", least: int = 0, most: int = MOST) -> Codec:
    """A whole number in a range."""

    def reader(name: str) -> Read:
        def read(value: Any, limits: WireLimits) -> int:
            if type(value) is not int or not least <= value <= most:
                raise BadFrame(f"{what or name} must be a whole number from {least} to {most}")
            return value

        return read

    limited = (f" from {least:,}" if least or most < MOST else "") + (f" to {most:,}" if most < MOST else "")
    return Codec(f"integer{limited}", reader)


def number(least: float = 0.0, most: float = float(MOST)) -> Codec:
    """A finite number in a range; a whole one travels as a float too."""
    said = f"float from {least:g}" + (f" to {most:,.15g}" if most < MOST else "")
    needed = f"a float from {least:g} to {most:g}"
    return plain(said, float, needed, "", lambda value: least <= value <= most, float)  # NaN is refused too


def boolean(what: str = "") -> Codec:
    """True or false."""
    return plain("boolean", bool, "true or false", what)


def text(what: str = "") -> Codec:
    """A text."""
    return plain("text", str, "a text", what)


def choice(*among: str, what: str = "") -> Codec:
    """One of some words."""
    said = " or ".join(f"`{word}`" if word else "an empty text" for word in among)
    return plain(said, str, f"one of {', '.join(among)}", what, lambda value: value in among)


def identity(what: str = "") -> Codec:
    """A 16 byte id."""

    def reader(name: str) -> Read:
        def read(value: Any, limits: WireLimits) -> bytes:
            if type(value) is not bytes or len(value) != ID_BYTES:
                raise BadFrame(f"{what or name} must be {ID_BYTES} bytes")
            return value

        return read

    return Codec("id", reader)


def mapping(what: str = "") -> Codec:
    """A map of anything."""
    return plain("map", dict, "a map", what)


def texts(what: str = "") -> Codec:
    """An array of texts."""

    def reader(name: str) -> Read:
        def read(value: Any, limits: WireLimits) -> tuple[str, ...]:
            if not set(map(type, array(value, what or name))) <= {str}:
                raise BadFrame(f"{what or name} must be an array of texts")
            return tuple(value)

        return read

    return Codec("[text, ...]", reader)


def optional(of: Codec) -> Codec:
    """Such a field, or nil for None."""
    pack = of.pack

    def reader(name: str) -> Read:
        read = of.reader(name)
        return lambda value, limits: None if value is None else read(value, limits)

    packed = None if pack is None else lambda value: None if value is None else pack(value)
    return Codec(f"{of.said} or nil", reader, packed)


def items(of: Codec, what: str = "", most: int | Callable[[WireLimits], int] | None = None, many: str = "") -> Codec:
    """An array of such fields: not more than `most`, and what there are `many` of then is said."""
    pack = of.pack
    limit = (lambda limits: most) if isinstance(most, int) else most

    def reader(name: str) -> Read:
        called = what or name
        read = of.reader(called)

        def read_items(value: Any, limits: WireLimits) -> tuple[Any, ...]:
            found = array(value, called)
            if limit is not None and len(found) > limit(limits):
                raise BadFrame(f"{len(found)} {many or called}; at most {limit(limits)}")
            return tuple([read(item, limits) for item in found])

        return read_items

    said = f"[{of.said}, ...]" + (f" of at most {most:,}" if isinstance(most, int) else "")
    return Codec(said, reader, None if pack is None else lambda value: [pack(item) for item in value], limit)


def row(what: str, **of: Codec) -> Codec:
    """An array with these fields in their order, a tuple in memory."""
    packers = [codec.pack for codec in of.values()]

    def reader(_: str) -> Read:
        readers = [codec.reader(name) for name, codec in of.items()]

        def read(value: Any, limits: WireLimits) -> tuple[Any, ...]:
            found = array(value, what, len(readers))
            return tuple([read(item, limits) for read, item in zip(readers, found, strict=True)])

        return read

    def pack(value: Any) -> list[object]:
        return [one if pack is None else pack(one) for pack, one in zip(packers, value, strict=True)]

    said = ", ".join(f"{name}: {codec.said}" for name, codec in of.items())
    return Codec(f"[{said}]", reader, pack if any(packers) else None)


def named(of: Codec) -> Codec:
    """A map from texts to such fields, at most as many as columns are allowed."""

    def reader(name: str) -> Read:
        read = of.reader(name)

        def read_named(value: Any, limits: WireLimits) -> dict[str, Any]:
            if type(value) is not dict:
                raise BadFrame(f"{name} must be a map")
            if len(value) > limits.columns or not {str}.issuperset(map(type, value)):
                raise BadFrame(f"{name} are a map of names, at most {limits.columns}")
            return {key: read(item, limits) for key, item in value.items()}

        return read_named

    pack = of.pack
    packed = None if pack is None else lambda value: {key: pack(item) for key, item in value.items()}
    return Codec(f"map of {of.said}", reader, packed)


def matrix() -> Codec:
    """Points; infinities are welcome, NaN is not: it would lie in no box and outside of none."""
    return Codec("matrix", lambda name: lambda value, limits: _matrix(value, name, limits), pack_matrix)


def pack_matrix(matrix: Matrix) -> list[object]:
    """A matrix as MessagePack takes it: rows, columns, bytes."""
    rows, width = matrix.shape
    return [rows, width, np.ascontiguousarray(matrix, dtype="<f8").reshape(-1).view(np.uint8).data]


def _matrix(value: object, what: str, limits: WireLimits) -> Matrix:
    """A writable one."""
    rows, width, raw = array(value, what, 3)
    for count, least, most in ((rows, 0, limits.rows), (width, 1, _WIDEST)):
        if type(count) is not int or not least <= count <= most:
            raise BadFrame(f"{what} must be a whole number from {least} to {most}")
    if type(raw) is not bytes:
        raise BadFrame(f"{what} must be bytes")
    if len(raw) != 8 * rows * width:
        raise BadFrame(f"{what} has {len(raw)} bytes, {rows} x {width} numbers have {8 * rows * width}")
    numbers = np.frombuffer(raw, "<f8").astype(np.float64)
    if np.isnan(numbers).any():
        raise BadFrame(f"{what} has a NaN")
    return numbers.reshape(rows, width)


def array(value: object, what: str, size: int | None = None) -> list[Any]:
    """An array, of that many items if it says so."""
    if type(value) is not list or (size is not None and len(value) != size):
        raise BadFrame(f"{what} must be an array" + ("" if size is None else f" of {size}"))
    return value
