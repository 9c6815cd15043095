"""Payload frames: what a link carries between a child and its parent. PROTOCOL.md says what each is for.

Requests and replies, which are most of what nodes pass on, have fixed headers: a node adds its hop, or takes it off,
and does not look inside. The others are MessagePack arrays, their type first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, get_args

from hullcast.network.wire import columns as column_format
from hullcast.network.wire import packing
from hullcast.network.wire.arrays import Ints
from hullcast.network.wire.channels import CHANNELS
from hullcast.network.wire.columns import Columns
from hullcast.network.wire.errors import BadFrame, TooLarge
from hullcast.network.wire.fields import MOST, Codec, Matrix, array, choice, identity, integer, items, matrix, row, text
from hullcast.network.wire.layouts import Tagged, layout_of, part
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
FRAMES: Tagged[Frame] = Tagged("frame", lambda limits: limits.frame_bytes)
Channel: TypeAlias = Annotated[int, integer("a channel")]
Points: TypeAlias = Annotated[Matrix, matrix()]


def _members(value: Any, limits: WireLimits) -> Ints:
    if type(value) is not bytes:
        raise BadFrame("members must be bytes")
    chosen: Ints = column_format.array_of("i8", value, limits)
    if len(chosen) and chosen.min() < 0:
        raise BadFrame("a member is numbered from 0")
    return chosen


_MEMBERS = Codec("bytes", lambda name: _members, lambda members: column_format.pack_column(members)[1])


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


@FRAMES.declare("leave")
@dataclass(frozen=True, slots=True, eq=False)
class Leave:
    """Up: a client tells its gateway that it closed a group of subscriptions, or some members of it.

    `resumable`: it has a token to resume them with, now or in another process.
    """

    group: Annotated[int, integer("a group")]
    members: Annotated[Ints, _MEMBERS] | None
    resumable: bool = False


@FRAMES.declare("interest")
@dataclass(frozen=True, slots=True, eq=False)
class Interest:
    """Up: the sender now wants only these boxes of a channel, and what replies after the first `heard` installed."""

    channel: Channel
    heard: int
    lows: Points
    highs: Points

    def check(self, limits: WireLimits) -> None:
        """Each box has two corners."""
        if self.lows.shape != self.highs.shape:
            raise BadFrame("as many lows as highs")


@FRAMES.declare("withdrawn")
@dataclass(frozen=True, slots=True, eq=False)
class Withdrawn:
    """Up: these points of a counted channel, each as often as it stands here, are no longer wanted below the sender.

    `resets`: how many resets the sender had received on this link. `lost`: their clients may come back and resume.
    """

    channel: Channel
    resets: int
    lost: bool
    points: Points

    def check(self, limits: WireLimits) -> None:
        """They are not too many."""
        if len(self.points) > MOST_WITHDRAWN:
            raise BadFrame(f"{len(self.points)} points withdrawn at once; at most {MOST_WITHDRAWN}")


@dataclass(frozen=True, slots=True, eq=False)
class Install:
    """Part of a reply: every node on the way notes these points for the link on which it sends the reply on.

    `counted`: the server must know which of them are still wanted, so each goes up again in a Withdrawn.
    """

    group: Annotated[int, integer("a group")]
    channel: Channel
    form: Annotated[Form, choice(*get_args(Form), what="a form")]
    partitioned: bool
    points: Points
    counted: bool = False


_INSTALL = layout_of(Install, "an install")


class Reply(NamedTuple):
    """Down: the answer to a request. Each node takes the last number off `route`; without any it is the receiver's."""

    id: int
    route: tuple[int, ...]
    installs: tuple[Install, ...]
    body: bytes


@FRAMES.declare("deliver")
@dataclass(frozen=True, slots=True, eq=False)
class Deliver:
    """Down: messages. With it, all messages up to `through` that concern this link have been sent."""

    through: int
    channels: Annotated[dict[int, Columns], CHANNELS] = field(default_factory=dict)


@FRAMES.declare("progress")
@dataclass(frozen=True, slots=True)
class Advance:
    """Down: the same as a Deliver without messages."""

    through: int


@FRAMES.declare("reset")
@dataclass(frozen=True, slots=True)
class Reset:
    """Down: the way to the server broke; all installs are void, subscribe again."""

    code: Annotated[str, text("a code")]
    text: Annotated[str, text("a text")]


@part("a node")
class NodeEntry(NamedTuple):
    """A node as others may dial it."""

    id: Annotated[bytes, identity("a node's id")]
    name: Annotated[str, text("a node's name")]
    endpoint: Annotated[str, text("an endpoint")]
    depth: int
    children: int


@FRAMES.declare("directory")
@dataclass(frozen=True, slots=True)
class Directory:
    """Down: the way up to the server (it first, the sender last) and the nodes there are, for failover."""

    epoch: Annotated[bytes, identity("an epoch")]
    path: Annotated[
        tuple[tuple[bytes, str], ...],
        items(row("a step of the path", id=identity("a node's id"), endpoint=text("an endpoint")), "a path"),
    ]
    nodes: tuple[NodeEntry, ...]


Frame: TypeAlias = Request | Leave | Interest | Withdrawn | Reply | Deliver | Advance | Reset | Directory


def encode(frame: Frame, limits: WireLimits = DEFAULT) -> bytes:
    """The bytes of a frame; TooLarge if no receiver would take them."""
    if isinstance(frame, Request):
        return _encode_request(frame, limits)
    if isinstance(frame, Reply):
        return _encode_reply(frame, limits)
    return FRAMES.encode(frame, limits)


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
        listed = [_INSTALL.listed(install) for install in installs]
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
    return FRAMES.decode(data, limits, kinds)


def _check_kind(kind: str, kinds: frozenset[str] | None) -> None:
    if kinds is not None and kind not in kinds:
        raise BadFrame(f"a {kind} frame does not come from below")


#: The types of frames that a child sends to its parent.
UPWARD = frozenset({"request", "leave", "interest", "withdrawn"})


def _decode_request(data: bytes, limits: WireLimits) -> Request:
    try:
        _, flags, hops, size, number, after = _REQUEST_HEADER.unpack_from(data)
        route = _ROUTES[hops].unpack_from(data, _REQUEST_HEADER.size)
    except (StructError, IndexError):
        raise BadFrame("a request whose header is not whole, or whose route is too long") from None
    begin = _REQUEST_HEADER.size + 4 * hops
    end = begin + size
    if size > _ORIGIN_BYTES or end > len(data) or flags > _ALL_FLAGS or max(number, after) > MOST:
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
    if end > len(data) or number > MOST:
        raise BadFrame("a reply with an impossible number or size of its installs")
    _check_body(len(data) - end, "a reply's body", limits)
    installs: tuple[Install, ...] = ()
    if size:
        listed = array(packing.unpack(data[begin:end], limits), "installs")
        installs = tuple([_INSTALL.read(install, limits) for install in listed])
        if not installs:
            raise BadFrame("installs of none are left out")
    return Reply(number, route, installs, data[end:])
