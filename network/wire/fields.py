"""Fields of frames and bodies: each reader gives the checked value of a decoded one, or BadFrame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from hullcast.network.wire.arrays import Floats
from hullcast.network.wire.errors import BadFrame
from hullcast.network.wire.limits import WireLimits

Matrix = Floats  # of shape (n, k)
Item = TypeVar("Item")

MOST = 2**63 - 1
ID_BYTES = 16
_WIDEST = 64  # columns of a matrix: dimensions of a point


def array(value: object, what: str, size: int | None = None) -> list[Any]:
    """An array, of that many items if it says so."""
    if type(value) is not list or (size is not None and len(value) != size):
        raise BadFrame(f"{what} must be an array" + ("" if size is None else f" of {size}"))
    return value


def items(value: object, what: str, read: Callable[[Any], Item]) -> tuple[Item, ...]:
    """An array of one kind of thing."""
    return tuple(map(read, array(value, what)))


def integer(value: object, what: str, least: int = 0, most: int = MOST) -> int:
    """A whole number in a range."""
    if type(value) is not int or not least <= value <= most:
        raise BadFrame(f"{what} must be a whole number from {least} to {most}")
    return value


def number(value: object, what: str, least: float = 0.0, most: float = float(MOST)) -> float:
    """A finite number in a range."""
    if type(value) is not float or not least <= value <= most:  # written this way round so that NaN is refused too
        raise BadFrame(f"{what} must be a float from {least:g} to {most:g}")
    return value


def boolean(value: object, what: str) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise BadFrame(f"{what} must be true or false")
    return value


def text(value: object, what: str) -> str:
    """A text."""
    if type(value) is not str:
        raise BadFrame(f"{what} must be a text")
    return value


def choice(value: object, what: str, *among: str) -> str:
    """One of some words."""
    if type(value) is not str or value not in among:
        raise BadFrame(f"{what} must be one of {', '.join(among)}")
    return value


def texts(value: object, what: str) -> tuple[str, ...]:
    """An array of texts."""
    found = array(value, what)
    if not set(map(type, found)) <= {str}:
        raise BadFrame(f"{what} must be an array of texts")
    return tuple(found)


def data(value: object, what: str) -> bytes:
    """Bytes."""
    if type(value) is not bytes:
        raise BadFrame(f"{what} must be bytes")
    return value


def identity(value: object, what: str) -> bytes:
    """A 16 byte id."""
    if type(value) is not bytes or len(value) != ID_BYTES:
        raise BadFrame(f"{what} must be {ID_BYTES} bytes")
    return value


def optional(value: object, read: Callable[..., Item], *arguments: Any) -> Item | None:
    """What `read` makes of it, unless it is nil."""
    return None if value is None else read(value, *arguments)


def integers(value: object, what: str) -> tuple[int, ...]:
    """An array of whole numbers."""
    found = array(value, what)
    for number in found:
        integer(number, what)
    return tuple(found)


def pack_matrix(matrix: Matrix) -> list[object]:
    """A matrix as MessagePack takes it: rows, columns, bytes."""
    rows, width = matrix.shape
    return [rows, width, np.ascontiguousarray(matrix, dtype="<f8").reshape(-1).view(np.uint8).data]


def matrix(value: object, what: str, limits: WireLimits) -> Matrix:
    """A writable matrix of numbers; infinities are welcome, NaN is not: it would lie in no box and outside of none."""
    rows, width, raw = array(value, what, 3)
    integer(rows, what, 0, limits.rows)
    integer(width, what, 1, _WIDEST)
    if len(data(raw, what)) != 8 * rows * width:
        raise BadFrame(f"{what} has {len(raw)} bytes, {rows} x {width} numbers have {8 * rows * width}")
    numbers = np.frombuffer(raw, "<f8").astype(np.float64)
    if np.isnan(numbers).any():
        raise BadFrame(f"{what} has a NaN")
    return numbers.reshape(rows, width)
