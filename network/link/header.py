"""The first part of every link message: what it is, as bytes and as checked values.

A header is a msgpack array `[version, kind, ...]`; PROTOCOL.md has the table. Whatever a stranger sends becomes one
of the values below, a `BadFrame` or a `VersionMismatch`: nothing else, and at a cost bounded by `HEADER_BYTES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgpack  # type: ignore[import-untyped]  # has no types

from hullcast.network.wire.errors import BadFrame, PeerError, VersionMismatch

VERSION: Final = 2
HEADER_BYTES: Final = 64 << 10
SESSION_BYTES: Final = 16
ROLES: Final = ("client", "node")
#: Why a link ends. slow: does not keep up; silent: not heard; unknown: no such session to resume; full: too many
#: peers; denied: may not; moved: go elsewhere; leaving: stops; protocol, version, internal: as they say.
BYE_CODES: Final = (
    "slow", "silent", "unknown", "full", "denied", "moved", "leaving", "protocol", "version", "internal",
)  # fmt: skip
#: One for all: msgpack's `packb` makes a packer, with a buffer, for each header. Only plain values go through it, so
#: no other thread can come in between.
_pack: Final = msgpack.Packer().pack
_COUNT_MOST: Final = (1 << 63) - 1
_TEXT_MOST: Final = 1024


class Hello(NamedTuple):
    """A child introduces itself; `received` is -1 for a fresh link, else the last frame it has of this session."""

    session: bytes
    received: int
    role: str
    name: str
    id: bytes  # 16 bytes, or none
    listen: str | None
    message_bytes: int


class Welcome(NamedTuple):
    """The parent's answer; `received` is the last frame it has of this session."""

    resumed: bool
    received: int
    number: int
    heartbeat_s: float
    silence_s: float
    message_bytes: int
    extra: Mapping[str, object]


class Data(NamedTuple):
    """Payload `seq` of this direction follows; everything up to `ack` of the other direction has come."""

    seq: int
    ack: int


class Ack(NamedTuple):
    """Everything up to `ack` has come, and `sent` was the last one sent; also the heartbeat."""

    ack: int
    sent: int


class Resend(NamedTuple):
    """Frames are missing: send again, beginning with `start`."""

    start: int


class Bye(NamedTuple):
    """The link ends here, and why; nothing follows it in its direction."""

    code: str
    text: str


Header: TypeAlias = Hello | Welcome | Data | Ack | Resend | Bye


def encode(header: Header) -> bytes:
    """The header as the message's first part."""
    match header:
        case Data(seq, ack):
            return encode_data(seq, ack)
        case Ack(ack, sent):
            fields: list[object] = ["ack", ack, sent]
        case Resend(start):
            fields = ["resend", start]
        case Bye(code, text):
            fields = ["bye", code, text[:_TEXT_MOST]]
        case Hello():
            fields = ["hello", header._asdict()]
        case Welcome():
            fields = ["welcome", header._asdict()]
    packed: bytes = msgpack.packb([VERSION, *fields])
    return packed


def encode_data(seq: int, ack: int) -> bytes:
    """The header of a payload."""
    packed: bytes = _pack((VERSION, "data", seq, ack))
    return packed


def decode(data: bytes) -> Header:
    """The value of a header, or `BadFrame`, or `VersionMismatch` when it speaks another version."""
    if len(data) > HEADER_BYTES:
        raise BadFrame(f"header of {len(data)} bytes, at most {HEADER_BYTES}")
    try:
        fields = msgpack.unpackb(data)
    except (ValueError, TypeError, RecursionError) as error:  # msgpack's own errors are ValueErrors
        raise BadFrame("header is not msgpack") from error
    if type(fields) is not list or len(fields) < 2 or type(fields[0]) is not int or type(fields[1]) is not str:
        raise BadFrame("header is not [version, kind, ...]")
    if fields[0] != VERSION:
        raise VersionMismatch(VERSION, fields[0])
    if fields[1] == "data" and len(fields) == 4:  # nearly all are: the same as `_data`, without its calls
        seq, ack = fields[2], fields[3]
        if type(seq) is int and type(ack) is int and 1 <= seq <= _COUNT_MOST and 0 <= ack <= _COUNT_MOST:
            return Data(seq, ack)
    decoder = _DECODERS.get(fields[1])
    if decoder is None:
        raise BadFrame(f"unknown kind of header {fields[1][:20]!r}")
    try:
        return decoder(*fields[2:])
    except TypeError as error:  # too few or too many fields
        raise BadFrame(f"{fields[1]} header with {len(fields) - 2} fields") from error


def read_message(parts: list[bytes], message_bytes: int) -> tuple[Header, bytes | None]:
    """A message's header and payload, or `BadFrame`."""
    count = len(parts)
    if count == 2:
        if len(parts[1]) > message_bytes:
            raise BadFrame(f"payload of {len(parts[1])} bytes, at most {message_bytes}")
        return decode(parts[0]), parts[1]
    if count != 1:
        raise BadFrame("a message must be a header, perhaps with a payload")
    return decode(parts[0]), None


def is_bye(parts: list[bytes]) -> bool:
    """Whether a message ends a link."""
    try:
        return isinstance(read_message(parts, 0)[0], Bye)
    except PeerError:
        return False


def _data(seq: object, ack: object) -> Data:
    return Data(_count(seq, 1), _count(ack))


def _ack(ack: object, sent: object) -> Ack:
    return Ack(_count(ack), _count(sent))


def _resend(start: object) -> Resend:
    return Resend(_count(start, 1))


def _bye(code: object, text: object) -> Bye:
    if type(code) is not str or code not in BYE_CODES:
        raise BadFrame("unknown code of a bye")
    return Bye(code, _text(text, _TEXT_MOST))


def _hello(fields: object) -> Hello:
    values = _fields(fields, Hello._fields)
    role, listen = values["role"], values["listen"]
    if type(role) is not str or role not in ROLES:
        raise BadFrame(f"role must be one of {', '.join(ROLES)}")
    return Hello(
        session=_bytes(values["session"], SESSION_BYTES),
        received=_count(values["received"], -1),
        role=role,
        name=_text(values["name"], 255),
        id=b"" if values["id"] == b"" else _bytes(values["id"], 16),
        listen=None if listen is None else _text(listen, _TEXT_MOST),
        message_bytes=_count(values["message_bytes"], 1024),
    )


def _welcome(fields: object) -> Welcome:
    values = _fields(fields, Welcome._fields)
    resumed, extra = values["resumed"], values["extra"]
    if type(resumed) is not bool:
        raise BadFrame("resumed must be true or false")
    if type(extra) is not dict or not all(type(key) is str for key in extra):
        raise BadFrame("extra must be a map with texts for keys")
    return Welcome(
        resumed=resumed,
        received=_count(values["received"]),
        number=_count(values["number"]),
        heartbeat_s=_seconds(values["heartbeat_s"]),
        silence_s=_seconds(values["silence_s"]),
        message_bytes=_count(values["message_bytes"], 1024),
        extra=extra,
    )


_DECODERS: Final[dict[str, Callable[..., Header]]] = {
    "data": _data,
    "ack": _ack,
    "resend": _resend,
    "bye": _bye,
    "hello": _hello,
    "welcome": _welcome,
}


def _fields(value: object, names: tuple[str, ...]) -> dict[str, object]:
    if type(value) is not dict or value.keys() != set(names):
        raise BadFrame(f"fields are not {', '.join(names)}")
    return value


def _count(value: object, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= _COUNT_MOST:
        raise BadFrame(f"a number must be an integer from {least} to 2**63-1")
    return value


def _seconds(value: object) -> float:
    if type(value) is not float or not 0.001 <= value <= 3600:
        raise BadFrame("a duration must be a float from 0.001 to 3600")
    return value


def _text(value: object, most: int) -> str:
    if type(value) is not str or len(value) > most:
        raise BadFrame(f"a text must have at most {most} characters")
    return value


def _bytes(value: object, size: int) -> bytes:
    if type(value) is not bytes or len(value) != size:
        raise BadFrame(f"an identifier must have {size} bytes")
    return value
