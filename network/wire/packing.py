"""Bytes to plain values and back: MessagePack, the few scalars it lacks, nothing a stranger could abuse.

    value                          on the wire
    None, bool, float, str, bytes  MessagePack's own
    int                            MessagePack's own up to 64 bits, else extension 2: sign byte, magnitude
    datetime                       extension 1: microseconds since 1970 UTC, 8 bytes
    timedelta                      extension 5: microseconds, 9 bytes
    datetime64, timedelta64        extension 4: "M" or "m", ticks in 8 bytes, the unit's name
    anything else                  extension 3: the name of its type

All numbers inside extensions are little-endian. Texts are UTF-8; a lone surrogate, which has none, travels as
three bytes all the same, so that the receiver can say which row it refuses.

`unpack` walks the headers first, so that size, nesting and number of objects are known before one is made, and with
them what they cost: an array, a map or a value of an extension type takes up to a hundred times its bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgpack  # type: ignore[import-untyped]  # has no types
import numpy as np

from hullcast.network.wire.errors import BadFrame, TooLarge
from hullcast.network.wire.limits import DEFAULT, WireLimits
from hullcast.network.wire.tally import ValueTally
from hullcast.network.wire.walk import FOREIGN, exceeded, is_ready, walk

Scalar = (
    Any  # None | bool | int | float | str | bytes | datetime | timedelta | np.datetime64 | np.timedelta64 | Foreign
)

INSTANT, BIG, TICKS, DURATION = 1, 2, 4, 5  # and FOREIGN, 3
UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_BITS = 1025  # no float64 reaches 2**1024: larger integers mean the same to every receiver, and are cut
_NAME_BYTES = 80  # of a type
_SURELY_FINE_BYTES = 4096  # no limit is reached with fewer


@dataclass(frozen=True, slots=True)
class Foreign:
    """Stands for a value that no receiver takes: all that is left of it is the name of its type.

    The receiver words the refusal, since it knows row, column and what is accepted there; it reads as it would
    have in one process, if it names types by `type_name`.
    """

    type_name: str

    def __repr__(self) -> str:
        return f"<a {self.type_name}>"


def foreign(type_name: str) -> Foreign:
    """A stand-in for a value of a type of that name."""
    name = type_name.encode(errors="replace")[:_NAME_BYTES].decode(errors="ignore")
    return Foreign(name.replace("\0", "?") or "?")


def type_name(value: object) -> str:
    """The name of a value's type, or of the type that a stand-in stands for: for error messages."""
    return value.type_name if isinstance(value, Foreign) else type(value).__name__


def pack(value: object) -> bytes:
    """The bytes of lists, str-keyed dicts and scalars."""
    try:
        packed: bytes = msgpack.packb(value, default=_extension)
    except UnicodeEncodeError:  # rare, and the other way is slower
        packed = msgpack.packb(value, default=_extension, unicode_errors="surrogatepass")
    return packed


def check_taken(what: str, value: object, packed: bytes, most_bytes: int, limits: WireLimits = DEFAULT) -> None:
    """TooLarge for what a receiver would refuse, and close the link for: a value, and its bytes."""
    if len(packed) <= _SURELY_FINE_BYTES:
        return
    if len(packed) > most_bytes:
        raise TooLarge(f"bytes of this {what}", len(packed), most_bytes)
    too_much = exceeded(packed, limits) if is_ready() else ValueTally(value, limits, Foreign).exceeded()
    if too_much is not None:
        raise TooLarge(f"{too_much[0]} in this {what}", too_much[1] + 1, too_much[1])


def unpack(data: bytes, limits: WireLimits = DEFAULT) -> Any:
    """The value of bytes, or BadFrame; nothing is built before the limits were seen to hold."""
    if len(data) > limits.frame_bytes:
        raise BadFrame(f"{len(data)} bytes; at most {limits.frame_bytes}")
    refusal = walk(data, limits)
    if refusal:
        raise BadFrame(refusal)
    try:
        return msgpack.unpackb(data, ext_hook=_scalar, unicode_errors="surrogatepass", max_ext_len=256)
    except BadFrame:
        raise
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise BadFrame(f"not MessagePack as we speak it: {type(error).__name__} {error}"[:200]) from None


def microseconds(instant: datetime) -> int:
    """Microseconds since 1970 of a datetime; one without a zone is UTC."""
    if instant.utcoffset() is None:
        instant = instant.replace(tzinfo=UTC)
    return (instant - _EPOCH) // _MICROSECOND


def _extension(value: object) -> Any:
    """What msgpack does not know by itself; it asks for integers beyond 64 bits as well."""
    if isinstance(value, datetime):
        count = min(max(microseconds(value), _FIRST), _LAST)  # a zone may put it into the year 0: no table takes either
        return msgpack.ExtType(INSTANT, struct.pack("<q", count))
    if isinstance(value, int):
        size = min(value.bit_length(), _BITS)
        magnitude = abs(value) if size < _BITS else 1 << (_BITS - 1)
        return msgpack.ExtType(BIG, bytes([value < 0]) + magnitude.to_bytes((size + 7) // 8, "little"))
    if isinstance(value, timedelta):
        return msgpack.ExtType(DURATION, (value // _MICROSECOND).to_bytes(9, "little", signed=True))
    if isinstance(value, np.datetime64 | np.timedelta64):
        ticks = struct.pack("<q", value.astype(np.int64))
        return msgpack.ExtType(TICKS, value.dtype.kind.encode() + ticks + np.datetime_data(value.dtype)[0].encode())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Foreign):
        return msgpack.ExtType(FOREIGN, value.type_name.encode())
    raise TypeError(f"a {type(value).__name__} has no form on the wire")


def _scalar(code: int, data: bytes) -> object:
    size = len(data)
    try:
        if code == INSTANT and size == 8:
            return _EPOCH + timedelta(microseconds=struct.unpack("<q", data)[0])
        if code == BIG and 9 <= size <= 2 + _BITS // 8 and data[0] <= 1 and data[-1]:
            magnitude = int.from_bytes(data[1:], "little")
            return -magnitude if data[0] else magnitude
        if code == FOREIGN and 1 <= size <= _NAME_BYTES and b"\0" not in data:
            return foreign(data.decode())
        if code == TICKS and data[:1] in (b"M", b"m") and data[9:].decode() in UNITS:
            kind: Any = np.datetime64 if data[:1] == b"M" else np.timedelta64
            return kind(struct.unpack("<q", data[1:9])[0], data[9:].decode())
        if code == DURATION and size == 9:
            return timedelta(microseconds=int.from_bytes(data, "little", signed=True))
    except (OverflowError, UnicodeDecodeError):
        raise BadFrame(f"extension {code} with a value out of range") from None
    raise BadFrame(f"extension {code} of {size} bytes is not one of this protocol")
