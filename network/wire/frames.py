"""Payload frames: what a link carries between a child and its parent. PROTOCOL.md says what each is for.

Requests and replies, which are most of what nodes pass on, have fixed headers: a node adds its hop, or takes it off,
and does not look inside. The others are MessagePack arrays, their type first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Any, Final, Literal, NamedTuple, TypeAlias, assert_never, cast

import numpy as np

from hullcast.network.wire import columns as column_format
from hullcast.network.wire import fields, packing
from hullcast.network.wire.arrays import Ints
from hullcast.network.wire.columns import Column, Columns
from hullcast.network.wire.errors import BadFrame, TooLarge
from hullcast.network.wire.fields import Matrix, array, integer, text
from hullcast.network.wire.limits import DEFAULT, WireLimits

Form: TypeAlias = Literal["rectangles", "places", "points"]

#: How many links a request may have passed; more is a loop.
LONGEST_ROUTE = 64

#: Points of one Withdrawn: to take each out costs its receiver some microseconds.
MOST_WITHDRAWN = 32_768

#: More than the fields of a request, a reply or an install take beside what is counted.
_OVERHEAD_BYTES = 64

#: The first byte of a request and of a reply; no MessagePack array begins with it.
_REQUEST, _REPLY = b"QA"
#: A request: first byte, flags, links passed, bytes of the origin, id, after; then the route, the origin, the body.
_REQUEST_HEADER: Final = Struct("<BBBHQQ")
#: A reply: first byte, links to pass, bytes of the installs, id; then the route, the installs, the body.
_REPLY_HEADER: Final = Struct("<BBIQ")
_ROUTES: Final = tuple(Struct(f"<{hops}I") for hops in range(LONGEST_ROUTE + 1))
_AGAIN, _APART, _LAZY, _ALL_FLAGS = 1, 2, 4, 7
_KEYLESS: Final = 0xFF  # in place of the length of an origin's key
_ORIGIN_BYTES: Final = 2048  # a name has 255 characters at most

#: The numbers of a MIN or MAX message as they travel: what the network mostly carries, and mostly one at a time. As
#: columns with names and kinds a lone one is a frame of 123 bytes, of which 48 are numbers; as two blocks, of 69.
_NUMBERS = ("il", "ir", "ol", "or", "best", "part")
_PLAIN = frozenset(("seq", *_NUMBERS[:-1]))
_PARTITIONED = frozenset(("seq", *_NUMBERS))
_WHOLE, _REAL = np.dtype(np.int64), np.dtype(np.float64)


class Origin(NamedTuple):
    """Who a request comes from: what its gateway knows. `key` is the authenticated public key, if there is one."""

    key: str | None
    name: str


class Request(NamedTuple):
    """Up: a request. `route` are the numbers of the links it came by, the newest last.

    The last four are about changes. They may differ from one time a change is sent to the next, so they are not part of
    the body, whose bytes the log keeps.
    """

    id: int
    route: tuple[int, ...]
    origin: Origin | None
    body: bytes
    after: int = 0  # the number of the sender's latest earlier change that has no reply yet
    again: bool = False  # it may have been applied already: it was sent before, and that time no reply came
    apart: bool = False  # its rows were published one by one: refused for one of them, it comes again without it
    lazy: bool = False  # nobody waits for its receipt, which may come later, with others


@dataclass(frozen=True, slots=True, eq=False)
class Leave:
    """Up: a client tells its gateway that it closed a group of subscriptions, or some members of it.

    `resumable`: it has a token to resume them with, now or in another process.
    """

    group: int
    members: Ints | None
    resumable: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Interest:
    """Up: the sender now wants only these boxes of a channel, and what replies after the first `heard` installed."""

    channel: int
    heard: int
    lows: Matrix
    highs: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Withdrawn:
    """Up: these points of a counted channel, each as often as it stands here, are no longer wanted below the sender.

    `resets`: how many resets the sender had received on this link. `lost`: their clients may come back and resume.
    """

    channel: int
    resets: int
    lost: bool
    points: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Install:
    """Part of a reply: every node on the way notes these points for the link on which it sends the reply on.

    `counted`: the server must know which of them are still wanted, so each goes up again in a Withdrawn.
    """

    group: int
    channel: int
    form: Form
    partitioned: bool
    points: Matrix
    counted: bool = False


class Reply(NamedTuple):
    """Down: the answer to a request. Each node takes the last number off `route`; without any it is the receiver's."""

    id: int
    route: tuple[int, ...]
    installs: tuple[Install, ...]
    body: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Deliver:
    """Down: messages. With it, all messages up to `through` that concern this link have been sent."""

    through: int
    channels: dict[int, Columns] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Advance:
    """Down: the same as a Deliver without messages."""

    through: int


@dataclass(frozen=True, slots=True)
class Reset:
    """Down: the way to the server broke; all installs are void, subscribe again."""

    code: str
    text: str


class NodeEntry(NamedTuple):
    """A node as others may dial it."""

    id: bytes
    name: str
    endpoint: str
    depth: int
    children: int


@dataclass(frozen=True, slots=True)
class Directory:
    """Down: the way up to the server (it first, the sender last) and the nodes there are, for failover."""

    epoch: bytes
    path: tuple[tuple[bytes, str], ...]
    nodes: tuple[NodeEntry, ...]


Frame: TypeAlias = Request | Leave | Interest | Withdrawn | Reply | Deliver | Advance | Reset | Directory


def encode(frame: Frame, limits: WireLimits = DEFAULT) -> bytes:
    """The bytes of a frame; TooLarge if no receiver would take them."""
    if isinstance(frame, Request):
        return _encode_request(frame, limits)
    if isinstance(frame, Reply):
        return _encode_reply(frame, limits)
    listed = _listed(frame)
    encoded = packing.pack(listed)
    packing.check_taken(str(listed[0]), listed, encoded, limits.frame_bytes, limits)
    return encoded


def _encode_request(frame: Request, limits: WireLimits) -> bytes:
    number, route, origin, body, after, again, apart, lazy = frame
    sender = b"" if origin is None else origin_bytes(origin)
    flags = _AGAIN * again | _APART * apart | _LAZY * lazy
    hops = len(route)
    encoded = b"".join(
        (
            _REQUEST_HEADER.pack(_REQUEST, flags, hops, len(sender), number, after),
            _ROUTES[hops].pack(*route),
            sender,
            body,
        )
    )
    if len(encoded) > limits.frame_bytes:
        raise TooLarge("bytes of this request", len(encoded), limits.frame_bytes)
    return encoded


def _encode_reply(frame: Reply, limits: WireLimits) -> bytes:
    number, route, installs, body = frame
    packed = b""
    if installs:
        check_size(frame, limits)
        listed = [_listed_install(install) for install in installs]
        packed = packing.pack(listed)
        packing.check_taken("reply", listed, packed, limits.frame_bytes, limits)
    hops = len(route)
    head = _REPLY_HEADER.pack(_REPLY, hops, len(packed), number)
    encoded = b"".join((head, _ROUTES[hops].pack(*route), packed, body))
    if len(encoded) > limits.frame_bytes:
        raise TooLarge("bytes of this reply", len(encoded), limits.frame_bytes)
    return encoded


@lru_cache(maxsize=1024)
def origin_bytes(origin: Origin) -> bytes:
    """An origin as requests carry it; a gateway needs the same few again and again."""
    key = b"" if origin.key is None else origin.key.encode()
    length = _KEYLESS if origin.key is None else len(key)
    if length > _KEYLESS or (length == _KEYLESS and origin.key is not None):
        raise TooLarge("bytes of a key", len(key), _KEYLESS - 1)
    found = bytes((length,)) + key + origin.name.encode()
    if len(found) > _ORIGIN_BYTES:
        raise TooLarge("bytes of an origin", len(found), _ORIGIN_BYTES)
    return found


def check_size(frame: Reply, limits: WireLimits = DEFAULT) -> None:
    """TooLarge if `encode` would say so: judged without packing anything, and on the safe side by a few bytes."""
    size = len(frame.body) + _OVERHEAD_BYTES * (1 + len(frame.route))
    size += sum(install.points.nbytes + _OVERHEAD_BYTES for install in frame.installs)
    if size > limits.frame_bytes:
        raise TooLarge("bytes of this reply", size, limits.frame_bytes)


def decode(data: bytes, limits: WireLimits = DEFAULT, *, kinds: frozenset[str] | None = None) -> Frame:
    """The frame of bytes, or BadFrame; never anything else, whatever the bytes. Of other than those `kinds` nothing is
    built: what a child cannot send costs its parent nothing."""
    if len(data) > limits.frame_bytes:
        raise BadFrame(f"a frame of {len(data)} bytes; at most {limits.frame_bytes}")
    first = data[0] if data else None
    if first == _REQUEST:
        _check_kind("request", kinds)
        return _decode_request(data, limits)
    if first == _REPLY:
        _check_kind("reply", kinds)
        return _decode_reply(data, limits)
    parts = array(packing.unpack(data, limits), "a frame")
    kind = parts[0] if parts else None
    reader = _READERS.get(kind) if type(kind) is str else None
    if reader is None:
        raise BadFrame(f"a frame begins with its type, not with {kind!r:.40}")
    _check_kind(str(kind), kinds)
    size, read = reader
    return read(array(parts, f"a {kind} frame", size), limits)


def _check_kind(kind: str, kinds: frozenset[str] | None) -> None:
    if kinds is not None and kind not in kinds:
        raise BadFrame(f"a {kind} frame does not come from below")


#: The types of frames that a child sends to its parent.
UPWARD = frozenset({"request", "leave", "interest", "withdrawn"})


def _listed(frame: Frame) -> list[object]:
    match frame:
        case Deliver():
            return ["deliver", frame.through, pack_channels(frame.channels)]
        case Leave():
            members = None if frame.members is None else column_format.pack_column(frame.members)[1]
            return ["leave", frame.group, members, frame.resumable]
        case Interest():
            boxes = [fields.pack_matrix(frame.lows), fields.pack_matrix(frame.highs)]
            return ["interest", frame.channel, frame.heard, *boxes]
        case Withdrawn():
            return ["withdrawn", frame.channel, frame.resets, frame.lost, fields.pack_matrix(frame.points)]
        case Advance():
            return ["progress", frame.through]
        case Reset():
            return ["reset", frame.code, frame.text]
        case Directory():
            return ["directory", frame.epoch, frame.path, frame.nodes]
        case Request() | Reply():
            raise AssertionError("they have fixed headers")
        case _:
            assert_never(frame)


def _listed_install(install: Install) -> list[object]:
    points = fields.pack_matrix(install.points)
    return [install.group, install.channel, install.form, install.partitioned, points, install.counted]


def pack_channels(channels: Mapping[int, Columns]) -> list[object]:
    """Columns by channel number, as arrays that begin with it: MessagePack maps of ours have texts for keys."""
    return [
        [channel, *_pack_rectangles(columns)] if _are_rectangles(columns) else [channel, column_format.pack(columns)]
        for channel, columns in channels.items()
    ]


def read_channels(value: object, limits: WireLimits) -> dict[int, Columns]:
    """The opposite, or BadFrame."""
    channels: dict[int, Columns] = {}
    for item in array(value, "channels"):
        match array(item, "a channel with its messages"):
            case [channel, columns]:
                channels[integer(channel, "a channel")] = column_format.unpack(columns, limits)
            case [channel, seqs, numbers]:
                channels[integer(channel, "a channel")] = _unpack_rectangles(seqs, numbers, limits)
            case other:
                raise BadFrame(f"a channel with its messages is an array of 2 or 3, not of {len(other)}")
    if len(channels) < len(cast("list[Any]", value)):
        raise BadFrame("a channel twice")
    return channels


def _are_rectangles(columns: Mapping[str, Column]) -> bool:
    """Whether these columns can travel as two blocks: the names and types of a MIN or MAX, and at least a row."""
    names = columns.keys()
    if (names != _PLAIN and names != _PARTITIONED) or not len(columns["seq"]):
        return False
    arrays = cast("Mapping[str, np.ndarray[Any, Any]]", columns)
    return all(arrays[name].dtype == (_WHOLE if name == "seq" else _REAL) for name in names)


def _pack_rectangles(columns: Mapping[str, Column]) -> list[object]:
    """The two blocks as MessagePack takes them."""
    arrays = cast("Mapping[str, np.ndarray[Any, Any]]", columns)
    numbers = np.concatenate([arrays[name] for name in _NUMBERS[: len(columns) - 1]])
    return [column_format.raw(arrays["seq"], np.dtype("<i8")), column_format.raw(numbers, np.dtype("<f8"))]


def _unpack_rectangles(seqs: object, numbers: object, limits: WireLimits) -> Columns:
    """The columns of two blocks, or BadFrame: each writable and contiguous."""
    if type(seqs) is not bytes or type(numbers) is not bytes:
        raise BadFrame("rectangles are two blocks of bytes")
    seq = column_format.array_of("i8", seqs, limits)
    if not len(seq):
        raise BadFrame("blocks of no rectangle")
    width = len(_NUMBERS) if len(numbers) == len(_NUMBERS) * len(seqs) else len(_NUMBERS) - 1
    if len(numbers) != width * len(seqs):
        raise BadFrame(f"{len(seq)} rectangles of 5 or 6 numbers are not {len(numbers)} bytes")
    table = np.frombuffer(numbers, "<f8").astype(np.float64).reshape(width, len(seq))
    columns: Columns = {"seq": seq}
    columns.update(zip(_NUMBERS, table, strict=False))  # `part` is left out where there is none
    return columns


def _decode_request(data: bytes, limits: WireLimits) -> Request:
    try:
        _, flags, hops, size, number, after = _REQUEST_HEADER.unpack_from(data)
        route = _ROUTES[hops].unpack_from(data, _REQUEST_HEADER.size)
    except (StructError, IndexError):
        raise BadFrame("a request whose header is not whole, or whose route is too long") from None
    begin = _REQUEST_HEADER.size + 4 * hops
    end = begin + size
    if size > _ORIGIN_BYTES or end > len(data) or flags > _ALL_FLAGS or max(number, after) > fields.MOST:
        raise BadFrame("a request with an impossible number, flag or size of its origin")
    _check_body(len(data) - end, "a request's body", limits)
    origin = _origin(data[begin:end]) if size else None
    return Request(
        number, route, origin, data[end:], after, bool(flags & _AGAIN), bool(flags & _APART), bool(flags & _LAZY)
    )


def _check_body(size: int, what: str, limits: WireLimits) -> None:
    """A body must leave room for what the frame gets on its way."""
    if size > limits.body_bytes:
        raise BadFrame(f"{what} of {size} bytes; at most {limits.body_bytes}")


@lru_cache(maxsize=1024)
def _origin(data: bytes) -> Origin:
    length = data[0]
    end = 1 if length == _KEYLESS else 1 + length
    if end > len(data):
        raise BadFrame("an origin shorter than its key")
    try:
        return Origin(None if length == _KEYLESS else data[1:end].decode(), data[end:].decode())
    except UnicodeDecodeError:
        raise BadFrame("the origin of a request is not UTF-8") from None


def _decode_reply(data: bytes, limits: WireLimits) -> Reply:
    try:
        _, hops, size, number = _REPLY_HEADER.unpack_from(data)
        route = _ROUTES[hops].unpack_from(data, _REPLY_HEADER.size)
    except (StructError, IndexError):
        raise BadFrame("a reply whose header is not whole, or whose route is too long") from None
    begin = _REPLY_HEADER.size + 4 * hops
    end = begin + size
    if end > len(data) or number > fields.MOST:
        raise BadFrame("a reply with an impossible number or size of its installs")
    _check_body(len(data) - end, "a reply's body", limits)
    installs: tuple[Install, ...] = ()
    if size:
        listed = packing.unpack(data[begin:end], limits)
        installs = fields.items(listed, "installs", lambda install: _install(install, limits))
        if not installs:
            raise BadFrame("installs of none are left out")
    return Reply(number, route, installs, data[end:])


def _leave(parts: list[Any], limits: WireLimits) -> Leave:
    _, group, members, resumable = parts
    chosen: Ints | None = None
    if members is not None:
        chosen = column_format.array_of("i8", fields.data(members, "members"), limits)
        if len(chosen) and chosen.min() < 0:
            raise BadFrame("a member is numbered from 0")
    return Leave(integer(group, "a group"), chosen, fields.boolean(resumable, "resumable"))


def _interest(parts: list[Any], limits: WireLimits) -> Interest:
    _, channel, heard, low, high = parts
    lows, highs = fields.matrix(low, "lows", limits), fields.matrix(high, "highs", limits)
    if lows.shape != highs.shape:
        raise BadFrame("as many lows as highs")
    return Interest(integer(channel, "a channel"), integer(heard, "heard"), lows, highs)


def _withdrawn(parts: list[Any], limits: WireLimits) -> Withdrawn:
    _, channel, resets, lost, value = parts
    points = fields.matrix(value, "points", limits)
    if len(points) > MOST_WITHDRAWN:
        raise BadFrame(f"{len(points)} points withdrawn at once; at most {MOST_WITHDRAWN}")
    return Withdrawn(integer(channel, "a channel"), integer(resets, "resets"), fields.boolean(lost, "lost"), points)


def _install(value: object, limits: WireLimits) -> Install:
    group, channel, form, partitioned, points, counted = array(value, "an install", 6)
    return Install(
        integer(group, "a group"),
        integer(channel, "a channel"),
        read_form(form),
        fields.boolean(partitioned, "partitioned"),
        fields.matrix(points, "points", limits),
        fields.boolean(counted, "counted"),
    )


def read_form(value: object, what: str = "a form") -> Form:
    """The form of a channel's messages, or BadFrame."""
    return cast("Form", fields.choice(value, what, "rectangles", "places", "points"))


def _deliver(parts: list[Any], limits: WireLimits) -> Deliver:
    return Deliver(integer(parts[1], "through"), read_channels(parts[2], limits))


def _progress(parts: list[Any], limits: WireLimits) -> Advance:
    return Advance(integer(parts[1], "through"))


def _reset(parts: list[Any], limits: WireLimits) -> Reset:
    return Reset(text(parts[1], "a code"), text(parts[2], "a text"))


def _directory(parts: list[Any], limits: WireLimits) -> Directory:
    _, epoch, path, nodes = parts
    return Directory(
        fields.identity(epoch, "an epoch"),
        fields.items(path, "a path", _step),
        fields.items(nodes, "nodes", _node),
    )


def _step(value: object) -> tuple[bytes, str]:
    number, endpoint = array(value, "a step of the path", 2)
    return fields.identity(number, "a node's id"), text(endpoint, "an endpoint")


def _node(value: object) -> NodeEntry:
    number, name, endpoint, depth, children = array(value, "a node", 5)
    return NodeEntry(
        fields.identity(number, "a node's id"),
        text(name, "a node's name"),
        text(endpoint, "an endpoint"),
        integer(depth, "depth"),
        integer(children, "children"),
    )


_READERS: dict[str, tuple[int, Callable[[list[Any], WireLimits], Frame]]] = {  # with the number of parts
    "leave": (4, _leave),
    "interest": (5, _interest),
    "withdrawn": (5, _withdrawn),
    "deliver": (3, _deliver),
    "progress": (2, _progress),
    "reset": (3, _reset),
    "directory": (4, _directory),
}
