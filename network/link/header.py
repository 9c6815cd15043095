"""The first part of every link message: what it is, as bytes and as checked values.

DATA and ACK, which nearly all messages are, have fixed binary headers, and their first byte tells them apart: no array
begins with it. All others are msgpack arrays `[version, kind, ...]`; PROTOCOL.md has the table. Whatever a stranger
sends becomes one of the values below, a `BadFrame` or a `VersionMismatch`: nothing else, and at a cost bounded by
`HEADER_BYTES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

import msgpack  # type: ignore[import-untyped]  # has no types

from hullcast.network.wire.errors import BadFrame, PeerError, VersionMismatch

VERSION: Final = 8
HEADER_BYTES: Final = 64 << 10
SESSION_BYTES: Final = 16
ROLES: Final = ("client", "node")
#: Why a link ends. slow: does not keep up; silent: not heard; unknown: no such session to resume; full: too many
#: peers; denied: may not; moved: go elsewhere; leaving: stops; protocol, version, internal: as they say.
BYE_CODES: Final = (
    "slow", "silent", "unknown", "full", "denied", "moved", "leaving", "protocol", "version", "internal",
)  # fmt: skip
#: Payloads of one message: so many, and so many bytes of them together. One alone may be larger. With so many lengths
#: a header has less than 1024 bytes, the least an end may announce as `message_bytes`.
BUNDLE_FRAMES: Final = 128
BUNDLE_BYTES: Final = 64 << 10
#: The first bytes of binary headers; msgpack has small numbers for them.
DATA: Final = b"\x01"
ACK: Final = b"\x02"
_BINARY: Final = Struct("<cqq")
_ACK: Final = Struct("<cqqII")
_BINARY_BYTES: Final = _BINARY.size
_LENGTHS: Final = tuple(Struct(f"<{count}I") for count in range(BUNDLE_FRAMES + 1))
_MS_MOST: Final = 3_600_000
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
    """Payload `seq` of this direction follows; everything up to `ack` of the other direction has come. With `lengths`
    it is a bundle: so many payloads one after the other, `seq` is the first one's number."""

    seq: int
    ack: int
    lengths: tuple[int, ...] = ()


class Ack(NamedTuple):
    """Everything up to `ack` has come, and `sent` was the last one sent; also the heartbeat. A parent says how often
    that comes from now on, and after how long an end not heard is gone; a child says 0 for both."""

    ack: int
    sent: int
    heartbeat_ms: int = 0
    silence_ms: int = 0


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
        case Data(seq, ack, lengths):
            return encode_data(seq, ack, lengths)
        case Ack():
            return encode_ack(*header)
        case Resend(start):
            fields: list[object] = ["resend", start]
        case Bye(code, text):
            fields = ["bye", code, text[:_TEXT_MOST]]
        case Hello():
            fields = ["hello", header._asdict()]
        case Welcome():
            fields = ["welcome", header._asdict()]
    packed: bytes = msgpack.packb([VERSION, *fields])
    return packed


def encode_data(seq: int, ack: int, lengths: Sequence[int] = ()) -> bytes:
    """The header of a payload, or of a bundle of them."""
    header = _BINARY.pack(DATA, seq, ack)
    return header + _LENGTHS[len(lengths)].pack(*lengths) if lengths else header


def encode_ack(ack: int, sent: int, heartbeat_ms: int, silence_ms: int) -> bytes:
    """The header of an acknowledgement."""
    return _ACK.pack(ACK, ack, sent, heartbeat_ms, silence_ms)


def read_data(parts: Sequence[bytes], message_bytes: int) -> tuple[int, int, Sequence[bytes]]:
    """Number of the first payload, acknowledgement and payloads of a message that begins with `DATA`, or `BadFrame`."""
    if len(parts) != 2:
        raise BadFrame("data is a header and a payload")
    header, body = parts
    size = len(body)
    if size > message_bytes:
        raise BadFrame(f"payload of {size} bytes, at most {message_bytes}")
    if len(header) == _BINARY_BYTES:
        _, seq, ack = _BINARY.unpack(header)
        payloads: Sequence[bytes] = (body,)
    else:
        seq, ack, lengths = _read_lengths(header)
        if size > BUNDLE_BYTES:
            raise BadFrame(f"bundle of {size} bytes, at most {BUNDLE_BYTES}")
        if sum(lengths) != size:
            raise BadFrame(f"bundle of {size} bytes whose lengths add up to {sum(lengths)}")
        payloads, end = [], 0
        for length in lengths:
            payloads.append(body[end : end + length])
            end += length
    if seq < 1 or ack < 0:
        raise BadFrame("a number must be an integer from 0 (of a payload: 1) to 2**63-1")
    return seq, ack, payloads


def _read_lengths(data: bytes) -> tuple[int, int, tuple[int, ...]]:
    """The two numbers of a header of data, and the lengths behind them."""
    count, rest = divmod(len(data) - _BINARY_BYTES, 4)
    if rest or not 0 <= count <= BUNDLE_FRAMES:
        raise BadFrame(f"header of data with {len(data)} bytes, for at most {BUNDLE_FRAMES} payloads")
    _, first, second = _BINARY.unpack_from(data)
    return first, second, _LENGTHS[count].unpack_from(data, _BINARY_BYTES)


def decode(data: bytes) -> Header:
    """The value of a header, or `BadFrame`, or `VersionMismatch` when it speaks another version."""
    if len(data) > HEADER_BYTES:
        raise BadFrame(f"header of {len(data)} bytes, at most {HEADER_BYTES}")
    if data[:1] == DATA:
        seq, ack, lengths = _read_lengths(data)
        return Data(_count(seq, 1), _count(ack), lengths)
    if data[:1] == ACK:
        if len(data) != _ACK.size:
            raise BadFrame(f"an acknowledgement has {_ACK.size} bytes, not {len(data)}")
        _, ack, sent, heartbeat_ms, silence_ms = _ACK.unpack(data)
        if (heartbeat_ms or silence_ms) and not 1 <= heartbeat_ms <= silence_ms <= _MS_MOST:
            raise BadFrame(f"heartbeats of {heartbeat_ms} ms, silence of {silence_ms} ms")
        return Ack(_count(ack), _count(sent), heartbeat_ms, silence_ms)
    try:
        fields = msgpack.unpackb(data)
    except (ValueError, TypeError, RecursionError) as error:  # msgpack's own errors are ValueErrors
        raise BadFrame("header is not msgpack") from error
    if type(fields) is not list or len(fields) < 2 or type(fields[0]) is not int or type(fields[1]) is not str:
        raise BadFrame("header is not [version, kind, ...]")
    if fields[0] != VERSION:
        raise VersionMismatch(VERSION, fields[0])
    decoder = _DECODERS.get(fields[1])
    if decoder is None:
        raise BadFrame(f"unknown kind of header {fields[1][:20]!r}")
    try:
        return decoder(*fields[2:])
    except TypeError as error:  # too few or too many fields
        raise BadFrame(f"{fields[1]} header with {len(fields) - 2} fields") from error


def read_message(parts: Sequence[bytes]) -> Header:
    """The header of a message that is not a payload's, or `BadFrame`."""
    if len(parts) != 1:
        raise BadFrame("a message must be a header, with a payload if it is data")
    return decode(parts[0])


def is_bye(parts: list[bytes]) -> bool:
    """Whether a message ends a link."""
    try:
        return isinstance(read_message(parts), Bye)
    except PeerError:
        return False


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
