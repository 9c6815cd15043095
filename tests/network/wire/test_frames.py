"""Frames and bodies: what is sent comes back, and whatever else comes is refused as BadFrame."""

from __future__ import annotations

import dataclasses
import struct
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgpack  # type: ignore[import-untyped]  # has no types
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.wire import bodies, frames, packing
from hullcast.network.wire.columns import Columns, TextColumn
from hullcast.network.wire.errors import BadFrame, TooLarge
from hullcast.network.wire.limits import DEFAULT, WireLimits
from hullcast.network.wire.value_columns import Mixed
from hullcast.network.wire.walk import walk
from tests.support.wire import any_body, any_frame

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
DECODERS: list[Callable[[bytes], object]] = [frames.decode, bodies.decode]
decoders = pytest.mark.parametrize("decode", DECODERS, ids=["frames", "bodies"])
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
SPEC_FIELDS = [field.name for field in dataclasses.fields(bodies.ChannelSpec)]
types = st.sampled_from(sorted({*frames.FRAMES.layouts, *bodies.BODIES.layouts}))


def refused(decode: Callable[[bytes], object], data: bytes) -> bool:
    """Whether bytes are refused; anything but BadFrame would come out of here."""
    try:
        decode(data)
    except BadFrame:
        return True
    return False


@given(any_frame)
def test_a_frame_comes_back_as_it_was_sent(frame: frames.Frame) -> None:
    sent = frames.encode(frame)
    received = frames.decode(sent)
    assert type(received) is type(frame)
    assert frames.encode(received) == sent


@given(any_body)
def test_a_body_comes_back_as_it_was_sent(body: bodies.Body) -> None:
    sent = bodies.encode(body)
    received = bodies.decode(sent)
    assert type(received) is type(body)
    assert bodies.encode(received) == sent


@decoders
@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused(decode: Callable[[bytes], object], data: bytes) -> None:
    refused(decode, data)


@decoders
@given(kind=types, parts=st.lists(anything, max_size=6))
def test_random_fields_are_refused(decode: Callable[[bytes], object], kind: str, parts: list[object]) -> None:
    refused(decode, msgpack.packb([kind, *parts]))


@given(
    sent=any_frame.map(frames.encode) | any_body.map(bodies.encode),
    changes=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.none() | st.integers(0, 2**16),
)
def test_damaged_frames_are_refused_or_still_frames(
    sent: bytes, changes: list[tuple[int, int]], cut: int | None
) -> None:
    damaged = bytearray(sent)
    for place, value in changes:
        damaged[place % len(damaged)] = value
    if cut is not None:
        del damaged[cut % len(damaged) :]
    for decode, encode in ((frames.decode, frames.encode), (bodies.decode, bodies.encode)):
        again: Any = decode
        back: Any = encode
        if not refused(again, bytes(damaged)):
            back(again(bytes(damaged)))  # what was accepted can be sent on


@given(anything, st.integers(1, 6), st.integers(1, 30))
def test_the_walk_agrees_with_msgpack(value: object, nesting: int, objects: int) -> None:
    data = msgpack.packb(value)
    fits = _depth(value) <= nesting and _count(value) <= objects
    try:
        packing.unpack(data, WireLimits(nesting=nesting, objects=objects))
        assert fits
    except BadFrame:
        assert not fits
    with pytest.raises(BadFrame):
        packing.unpack(data + b"\0")
    with pytest.raises(BadFrame):
        packing.unpack(data[:-1])


def _depth(value: object) -> int:
    if isinstance(value, list):
        return 1 + max(map(_depth, value), default=0)
    return 1 + max(map(_depth, value.values()), default=0) if isinstance(value, dict) else 0


def _count(value: object) -> int:
    if isinstance(value, list):
        return 1 + sum(map(_count, value))
    return 1 + sum(1 + _count(item) for item in value.values()) if isinstance(value, dict) else 1


def matrix(*rows: tuple[float, ...]) -> list[object]:
    return [len(rows), len(rows[0]), b"".join(struct.pack("<d", number) for row in rows for number in row)]


ID = bytes(range(16))
SPEC: dict[str, object] = {"name": "MIN(Y)", "kind": "MIN", "form": "rectangles"}


def subscribed(spec: object) -> list[object]:
    """A Subscribed with a channel of that description."""
    return ["subscribed", 1, ID, [], [[7, spec]], []]


F8 = ["f8", struct.pack("<d", 1.5)]


TABLE_WORTH = {"seq": 7, "staleness_s": 0.5, "unapplied": 2}
WORTH: dict[str, object] = {
    "seq": 7, "tables": {"t": TABLE_WORTH}, "waited_s": 0.0, "ran_s": 0.25, "deadline_s": None, "met": True,
    "policy": "fifo",
}  # fmt: skip


def query(**terms: object) -> list[object]:
    """A query with these terms, else the usual ones."""
    usual: dict[str, object] = {"freshness": 1.0, "deadline_s": None, "priority": 0, "read_set": ""}
    return ["query", "SELECT 1", [], *(usual | terms).values()]


def request_bytes(
    flags: int = 0, route: tuple[int, ...] = (), origin: bytes = b"", number: int = 1, after: int = 0
) -> bytes:
    """A request with a body of three bytes."""
    head = struct.pack("<BBBHQQ", ord("Q"), flags, len(route), len(origin), number, after)
    return head + struct.pack(f"<{len(route)}I", *route) + origin + b"abc"


def reply_bytes(installs: object = None, hops: int = 0, size: int | None = None) -> bytes:
    """A reply without a body."""
    packed = b"" if installs is None else msgpack.packb(installs)
    return struct.pack("<BBIQ", ord("A"), hops, len(packed) if size is None else size, 7) + packed


def test_requests_and_replies_are_as_the_page_says() -> None:
    request = frames.Request(1, (5, 6), frames.Origin("k", "ann"), b"abc", 9, True, False, True)
    assert frames.encode(request) == request_bytes(5, (5, 6), b"\1kann", after=9)
    assert frames.decode(request_bytes(2, origin=b"\xffann")) == frames.Request(
        1, (), frames.Origin(None, "ann"), b"abc", apart=True
    )
    assert frames.decode(reply_bytes()) == frames.Reply(7, (), (), b"")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (request_bytes()[:20], "header is not whole"),
        (request_bytes(route=(1, 2))[:28], "header is not whole"),
        (request_bytes(route=(1,) * 65), "route is too long"),
        (request_bytes(8), "impossible"),
        (request_bytes(number=2**63), "impossible"),
        (request_bytes(after=2**63), "impossible"),
        (request_bytes(origin=b"\xff" + b"x" * 2048), "impossible"),
        (request_bytes(origin=b"\xffann")[:24], "impossible"),
        (request_bytes(origin=b"\x04abc"), "shorter than its key"),
        (request_bytes(origin=b"\xff\xff"), "not UTF-8"),
        (request_bytes(origin=b"\x03\xed\xa0\x80ann"), "not UTF-8"),  # half a pair of surrogates: no hash takes it
        (request_bytes(origin=b"\xff\xed\xa0\x80"), "not UTF-8"),
        (reply_bytes()[:13], "header is not whole"),
        (reply_bytes(hops=1), "header is not whole"),
        (reply_bytes(size=1), "impossible"),
        (reply_bytes([]), "left out"),
        (reply_bytes({}), "must be an array"),
        (reply_bytes([[1, 1, "circles", False, matrix((1.0,)), False]]), "rectangles, places"),
        (reply_bytes([[1, 1, "places", 0, matrix((1.0,)), False]]), "partitioned must be true or false"),
        (reply_bytes([[1, 1, "places", False, matrix((1.0,)), 1]]), "counted must be true or false"),
        (reply_bytes([[1, 1, "places", False, matrix((1.0,))]]), "array of 6"),
    ],
)
def test_a_malformed_request_or_reply_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadFrame, match=reason):
        frames.decode(data)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([], "begins with its type"),
        (["nonsense"], "begins with its type"),
        (["progress", 1, 2], "array of 2"),
        (["progress", -1], "whole number"),
        (["progress", True], "whole number"),
        (["progress", 2**63], "whole number"),
        (["progress", 1.0], "whole number"),
        (["reset", "a", b"b"], "must be a text"),
        (["leave", 1, b"1234567", False], "8-byte values"),
        (["leave", 1, struct.pack("<q", -1), False], "numbered from 0"),
        (["leave", 1, None, 0], "resumable must be true or false"),
        (["leave", 1, None], "array of 4"),
        (["interest", 1, 0, matrix((1.0, 2.0)), matrix((1.0,))], "as many lows"),
        (["interest", 1, 0, matrix((float("nan"),)), matrix((1.0,))], "NaN"),
        (["interest", 1, 0, [2, 1, bytes(8)], matrix((1.0,))], "bytes"),
        (["interest", 1, 0, [0, 0, b""], [0, 0, b""]], "whole number from 1"),
        (["withdrawn", 1, 0, 1, matrix((1.0,))], "lost must be true or false"),
        (["withdrawn", 1, -1, True, matrix((1.0,))], "resets must be a whole number"),
        (["withdrawn", 1, 0, True, matrix((float("nan"),))], "NaN"),
        (["withdrawn", 1, 0, True, [2, 1, bytes(8)]], "bytes"),
        (["withdrawn", 1, 0, True], "array of 5"),
        (["withdrawn", 1, 0, True, [32_769, 1, bytes(8 * 32_769)]], "32769 points withdrawn at once; at most 32768"),
        (["deliver", 1, [[1, {"a": F8}], [1, {"a": F8}]]], "twice"),
        (["deliver", 1, [[1, {"a": F8, "b": ["b1", b"\0\1"]}]]], "2 rows, others have 1"),
        (["deliver", 1, [[1, {"a": ["b1", b"\2"]}]]], "0 or 1"),
        (["deliver", 1, [[1, {"a": ["f4", bytes(4)]}]]], "no column"),
        (["deliver", 1, [[1, {"a": ["v", [1]]}]]], "no column"),
        (["deliver", 1, [[1, {"a": ["t4", struct.pack("<i", 1), ["x"]]}]]], "no word"),
        (["deliver", 1, [[1, {"a": ["t4", struct.pack("<i", -2), ["x"]]}]]], "no word"),
        (["deliver", 1, [[1, {"a": ["t4", struct.pack("<i", 0), [b"x"]]}]]], "is a text"),
        (["deliver", 1, [[1]]], "array of 2 or 3, not of 1"),
        (["deliver", 1, [[1, bytes(8), bytes(40), b""]]], "array of 2 or 3, not of 4"),
        (["deliver", 1, [[1, bytes(8), "text"]]], "two blocks of bytes"),
        (["deliver", 1, [[1, {}, bytes(40)]]], "two blocks of bytes"),
        (["deliver", 1, [[1, b"", b""]]], "no rectangle"),
        (["deliver", 1, [[1, bytes(7), bytes(35)]]], "8-byte values"),
        (["deliver", 1, [[1, bytes(16), bytes(40)]]], "2 rectangles of 5 or 6 numbers are not 40 bytes"),
        (["directory", ID[:15], [], []], "16 bytes"),
        (["directory", ID, [[ID]], []], "step of the path"),
    ],
)
def test_a_malformed_frame_is_refused_with_a_reason(parts: list[object], reason: str) -> None:
    with pytest.raises(BadFrame, match=reason):
        frames.decode(msgpack.packb(parts))


def triggered(trigger: object, parameters: Sequence[object] = (), count: int = 1) -> list[object]:
    """A subscribe with such a trigger; without tables and pause unless it has them."""
    if isinstance(trigger, list) and len(trigger) == 3:
        trigger = [*trigger, [], None]
    return ["subscribe", [[1, "sql", list(parameters), count, 0, trigger, None]], None, None, None]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (["publish", "t", {"a": F8}, {"b": ["b1", b"\0"]}, ID, 1], "no mask"),
        (["rows_at", "t", None, 2, 2, None], "a part must be"),
        (["rows_at", "t", None, 0, 0, None], "parts must be"),
        (["changes", "t", -1, None], "after must be"),
        (["changed", 1, 1, F8, ["b1", b"\0"], {}], "whole numbers"),
        (["changed", 1, 1, ["i8", bytes(8)], F8, {}], "truth values"),
        (["changed", 1, 1, ["i8", bytes(8)], ["b1", b"\0"], {"a": ["f8", b""]}], "one length"),
        (["as_of", 1, None, {"a": F8, "b": ["f8", b""]}], "one length"),
        (["as_of", 1, None, {b"a": F8}], "map of names"),
        (["as_of", 1, None, [F8]], "must be a map"),
        (["publish", "t", {"a": F8}, {"a": F8}, ID, 1], "no mask"),
        (["publish", "t", {"a": F8}, {"a": ["b1", b"\0\0"]}, ID, 1], "one length"),
        (["publish", "t", {"a": [*F8, b""]}, None, ID, 1], "marks of NULL"),
        (["publish", "t", {"a": ["v", [[1]]]}, None, ID, 1], "scalar"),
        (["publish", "t", {"a": ["v", [msgpack.ExtType(3, b"x")] * 2]}, None, ID, 1], "more than one foreign"),
        (["publish", "t", {"a": ["v", [msgpack.ExtType(9, b"x")]]}, None, ID, 1], "not one of"),
        (["publish", "t", {"a": ["v", [msgpack.ExtType(1, b"\xff" * 7 + b"\x7f")]]}, None, ID, 1], "out of range"),
        (
            ["publish", "t", {"a": ["v", [msgpack.ExtType(4, b"M" + bytes(8) + b"xx")]]}, None, ID, 1],
            "not one of",
        ),
        (["publish", "t", {}, None, b"short", 1], "16 bytes"),
        (["subscribe", [[1, "sql", [F8], 2, 0, None, None]], None, None, None], "1 values of a parameter for 2"),
        (["subscribe", [[1, "sql", [5], 2, 0, None, None]], None, None, None], "one value"),
        (["subscribe", [[1, "sql", [], -1, 0, None, None]], None, None, None], "count"),
        (["subscribe", [[1, "sql", [], 1, 0]], None, None, None], "array of 7"),
        (["subscribe", [[1, "sql", [], 1, 0, None, -1]], None, None, None], "after"),
        (["subscribe", [[1, "sql", [], 1, 0, None, "x"]], None, None, None], "after"),
        (triggered({}), "a trigger must be an array of 5"),
        (triggered(["when", []]), "a trigger must be an array of 5"),
        (triggered([None, [], None]), "a text with its parameters or tables, or a period"),
        (triggered([None, [1], 2.0]), "a text with its parameters or tables, or a period"),
        (triggered([b"when", [], None]), "when must be a text"),
        (triggered(["when", "parameters", None]), "parameters must be an array"),
        (triggered(["when", [[1]], None]), "scalar"),
        (triggered(["when", [1] * 5000, None]), "5000 parameters; at most 4096"),
        (triggered(["when", [], 1]), "every_s must be a float from 0.1"),
        (triggered(["when", [], 0.0]), "every_s must be a float from 0.1"),
        (triggered(["when", [], float("nan")]), "every_s must be a float from 0.1"),
        (triggered([None, [], float("inf")]), "every_s must be a float from 0.1"),
        (triggered([None, [], None, "R", None]), "tables must be an array"),
        (triggered([None, [], None, [b"R"], None]), "a table must be a text"),
        (triggered([None, [], None, ["R"] * 65, None]), "65 tables in a trigger; at most 64"),
        (triggered([None, [1], None, ["R"], None]), "a text with its parameters or tables"),
        (triggered(["when", [], None, ["R"], None]), "a text or tables, not both"),
        (triggered(["when", [], None, [], 1]), "at_most_every_s must be a float from 0.001"),
        (triggered([None, [], 1.0, [], 1.0]), "at_most_every_s is for a trigger with a text or tables"),
        (triggered(["when", [], None], count=0), "alone in its group"),
        (triggered(["when", [], None], parameters=[F8]), "alone in its group"),
        (["explain", "SELECT 1", []], "array of 4"),
        (["explain", "SELECT 1", [], []], "a trigger must be an array of 5"),
        (["fetch", ID[:3], 0], "16 bytes"),
        (["staged", ID, 0], "whole number from 1"),
        (["part", [[1]]], "array of 2"),
        (["rows", ["a", "b"], [F8], None, None], "as many columns"),
        (["rows", ["a", "b"], [F8, ["v", []]], None, None], "one length"),
        (["rows", ["a"], [F8], b"", None], "16 bytes"),
        (["rows", ["a"], [F8], None, []], "a worth must be a map"),
        (["rows", ["a"], [F8] * 5000, None, None], "at most 4096 columns"),
        (["portion", [F8, ["v", []]], False, None], "one length"),
        (["portion", [F8], 1, None], "more must be true or false"),
        (["portion", [F8], False, {**WORTH, "tables": []}], "tables must be a map"),
        (["portion", [F8], False, {**WORTH, "tables": {b"t": TABLE_WORTH}}], "map of names"),
        (
            ["portion", [F8], False, {**WORTH, "tables": {"t": {**TABLE_WORTH, "staleness_s": -1.0}}}],
            "staleness_s must",
        ),
        (["portion", [F8], False, {**WORTH, "tables": {"t": {"seq": 1}}}], "a table's worth has no staleness_s"),
        (["portion", [F8], False, {**WORTH, "waited_s": float("nan")}], "waited_s must be a float"),
        (["portion", [F8], False, {**WORTH, "ran_s": float("inf")}], "ran_s must be a float"),
        (["portion", [F8], False, {"seq": 1}], "a worth has no deadline_s"),
        (query(freshness=1), "freshness must be a float"),
        (query(freshness=float("nan")), "freshness must be a float from 0 to 1"),
        (query(freshness=1.5), "freshness must be a float from 0 to 1"),
        (query(deadline_s=-1.0), "deadline_s must be a float from 0"),
        (query(deadline_s=float("inf")), "deadline_s must be a float from 0"),
        (query(priority=1.0), "priority must be a whole number"),
        (query(priority=10**7), "priority must be a whole number from -1000000"),
        (query(read_set="all"), "read_set must be one of"),
        (["query", "SELECT 1", []], "array of 7"),
        (["fetch_rows", ID[:3], 1], "16 bytes"),
        (["fetch_rows", ID, 0], "whole number from 1"),
        (["give_up", 7], "array of 1"),
        (["drop_rows", ID[:3]], "16 bytes"),
        (["drop_rows", None], "16 bytes"),
        (["gone", 7], "links must be an array"),
        (["gone", [1, -1]], "links must be a whole number"),
        (["gone", [[1]]], "links must be a whole number"),
        (["gone", list(range(4097))], "4097 links gone at once; at most 4096"),
        (["policy", None, "streams"], "a policy must be a text"),
        (["policy", "", "views"], "whose policy must be one of"),
        (["report", []], "must be a map"),
        (subscribed(["MIN(Y)", "MIN", "rectangles", 1, False, 0, "REAL", [], [], []]), "description must be a map"),
        (subscribed({"name": "x", "form": "places"}), "has no kind"),
        (subscribed({**SPEC, "form": "circles"}), "form must be one of"),
        (subscribed({**SPEC, "dimensions": -1}), "dimensions must be a whole number"),
        (subscribed({**SPEC, "partitioned": 0}), "partitioned must be true or false"),
        (subscribed({**SPEC, "key_types": ["TEXT", 1]}), "key_types must be an array of texts"),
        (["subscribed", 1, ID, [], [[1, SPEC], [1, SPEC]], []], "a channel twice"),
        (["failed", "code", [[1]]], "texts"),
    ],
)
def test_a_malformed_body_is_refused_with_a_reason(parts: list[object], reason: str) -> None:
    with pytest.raises(BadFrame, match=reason):
        bodies.decode(msgpack.packb(parts))


@given(st.dictionaries(st.text(min_size=1).filter(lambda name: name not in WORTH), anything, max_size=3))
def test_fields_of_a_worth_that_a_reader_does_not_know_are_ignored(unknown: dict[str, object]) -> None:
    body = bodies.decode(msgpack.packb(["portion", [], False, {**unknown, **WORTH}]))
    assert isinstance(body, bodies.QueryPart)
    assert body.worth == WORTH


@given(st.dictionaries(st.sampled_from([*sorted(WORTH), "t"]), anything, max_size=9))
def test_random_worths_are_read_or_refused(worth: dict[str, object]) -> None:
    refused(bodies.decode, msgpack.packb(["portion", [], False, worth]))
    refused(bodies.decode, msgpack.packb(["portion", [], False, {**WORTH, **worth}]))
    refused(bodies.decode, msgpack.packb(["rows", [], [], None, {**WORTH, "tables": {"t": {**TABLE_WORTH, **worth}}}]))


def test_whole_seconds_travel_as_floats() -> None:
    sent = bodies.encode(bodies.Query("SELECT 1", (), freshness=1, deadline_s=2))
    assert bodies.decode(sent) == bodies.Query("SELECT 1", (), 1.0, 2.0)
    whole = {**WORTH, "waited_s": 0, "deadline_s": 2, "tables": {"t": {**TABLE_WORTH, "staleness_s": 0}}}
    portion = bodies.decode(bodies.encode(bodies.QueryPart((), False, whole)))
    assert isinstance(portion, bodies.QueryPart)
    assert portion.worth == whole


def spec_of(parts: list[object]) -> bodies.ChannelSpec:
    body = bodies.decode(msgpack.packb(parts))
    assert isinstance(body, bodies.Subscribed)
    return body.channels[7]


@given(st.dictionaries(st.text(min_size=1).filter(lambda name: name not in SPEC_FIELDS), anything))
def test_fields_of_a_spec_that_a_reader_does_not_know_are_ignored(unknown: dict[str, object]) -> None:
    known: dict[str, object] = {**SPEC, "dimensions": 1, "y_type": "REAL"}
    assert spec_of(subscribed({**unknown, **known})) == spec_of(subscribed(known))


def test_fields_of_a_spec_that_are_missing_have_their_defaults_and_are_not_sent() -> None:
    spec = spec_of(subscribed(SPEC))
    assert spec == bodies.ChannelSpec("MIN(Y)", "MIN", "rectangles", 0, False, 0, "", (), (), ())
    sent = bodies.encode(bodies.Subscribed(1, ID, (), {7: spec}))
    assert msgpack.unpackb(sent)[4] == [[7, SPEC]]


@given(st.dictionaries(st.sampled_from(sorted(SPEC_FIELDS)), anything, max_size=10))
def test_random_specs_are_read_or_refused(spec: dict[str, object]) -> None:
    refused(bodies.decode, msgpack.packb(subscribed(spec)))
    refused(bodies.decode, msgpack.packb(subscribed({**SPEC, **spec})))


def test_what_a_spec_holds_beside_the_known_fields_is_within_the_limits_too() -> None:
    deep: object = 0
    for _ in range(DEFAULT.nesting):
        deep = [deep]
    for more, reason in ((deep, "nested deeper"), ([[]] * DEFAULT.containers, "more than 131072 arrays and maps")):
        with pytest.raises(BadFrame, match=reason):
            bodies.decode(msgpack.packb(subscribed({**SPEC, "new": more})))


def test_limits_hold_before_anything_is_built() -> None:
    deep = b"\x91" * 1000 + b"\xc0"
    bomb = b"\xdd\x03\x00\x00\x00" + b"\x90" * 0x03000000  # 50 million empty arrays
    promise = b"\xdd\xff\xff\xff\xff"
    for data, reason in ((deep, "nested"), (bomb, "arrays and maps in one frame"), (promise, "end in the middle")):
        with pytest.raises(BadFrame, match=reason):
            frames.decode(data)
    small = WireLimits(frame_bytes=100, rows=3, columns=2, words=1, text_bytes=10)
    wide = frames.Deliver(1, {1: {name: np.zeros(1) for name in "abc"}})
    long = frames.Deliver(1, {1: {"a": np.zeros(4)}})
    wordy = frames.Deliver(1, {1: {"a": TextColumn.from_texts(["x", "y"])}})
    for frame, reason in (
        (wide, "at most 2"),
        (long, "4 rows"),
        (wordy, "2 words"),
        (frames.Reset("a" * 11, ""), "text"),
    ):
        with pytest.raises(BadFrame, match=reason):
            frames.decode(frames.encode(frame), small)
    with pytest.raises(BadFrame, match="at most 100"):
        frames.decode(bytes(101), small)


def test_rectangles_travel_as_two_blocks_and_come_as_columns() -> None:
    numbers = {name: np.arange(4.0) + place for place, name in enumerate(("il", "ir", "ol", "or", "best"))}
    columns: dict[str, Any] = {"seq": np.arange(4), **numbers}
    alike = {**columns, "value": np.zeros(4)}  # of another kind: as a map
    block, table = (len(frames.encode(frames.Deliver(1, {1: {**some}}))) for some in (columns, alike))
    assert block == len(b"\x93\xa7deliver\x01\x91\x93\x01") + 2 + 4 * 8 + 2 + 4 * 5 * 8
    assert table > block + 4 * 8 + 50
    for some in (columns, {**columns, "part": np.ones(4)}):
        received = frames.decode(frames.encode(frames.Deliver(1, {1: {**some}})))
        assert isinstance(received, frames.Deliver)
        assert received.channels[1].keys() == some.keys()
        for name, column in received.channels[1].items():
            assert isinstance(column, np.ndarray)
            assert column.dtype == some[name].dtype
            assert (column == some[name]).all()
            assert all(column.flags[name] for name in ("WRITEABLE", "ALIGNED", "C_CONTIGUOUS"))
    with pytest.raises(BadFrame, match="4 rows; at most 3"):
        frames.decode(frames.encode(frames.Deliver(1, {1: {**columns}})), WireLimits(rows=3))


def test_a_body_that_no_receiver_takes_is_not_sent() -> None:
    column = {"a": np.zeros(9 << 20)}
    with pytest.raises(TooLarge, match="send or ask for less"):
        bodies.encode(bodies.Publish("t", {**column}, None, ID, 1))
    with pytest.raises(
        TooLarge, match=r"^bytes of one text in this publish: 1,048,577 is more than the limit of 1,048,576"
    ):
        bodies.encode(bodies.Publish("t", {"a": Mixed(("x" * (2 << 20),))}, None, ID, 1))


def test_arrays_that_come_are_fit_for_kernels() -> None:
    columns = {"f": np.arange(3.0)[::-1], "i": np.arange(6)[::2], "b": np.array([True, False, True])}
    received = frames.decode(frames.encode(frames.Deliver(1, {1: {**columns}})))
    assert isinstance(received, frames.Deliver)
    for name, column in received.channels[1].items():
        assert isinstance(column, np.ndarray)
        assert column.flags.writeable
        assert column.flags.aligned
        assert column.flags.c_contiguous
        assert column.dtype == columns[name].dtype
        assert column.tolist() == columns[name].tolist()


def test_a_body_leaves_room_in_its_frame_for_what_is_added_on_the_way() -> None:
    limits = WireLimits(body_bytes=100)
    for fitting, larger in (
        (frames.Request(1, (), None, bytes(100)), frames.Request(1, (), None, bytes(101))),
        (frames.Reply(1, (), (), bytes(100)), frames.Reply(1, (), (), bytes(101))),
    ):
        assert frames.decode(frames.encode(fitting), limits) == fitting
        with pytest.raises(BadFrame, match="at most 100"):
            frames.decode(frames.encode(larger), limits)


def test_a_frame_that_no_receiver_takes_is_not_encoded() -> None:
    install = frames.Install(1, 1, "places", False, np.zeros((100, 16)))
    small = WireLimits(frame_bytes=10_000)
    for frame in (
        frames.Reply(1, (1,), (install,), b""),
        frames.Request(1, (1,), frames.Origin(None, "x"), bytes(10_000)),
        frames.Deliver(1, {1: {"seq": np.zeros(2000, np.int64)}}),
    ):
        with pytest.raises(TooLarge) as caught:
            frames.encode(frame, small)
        assert caught.value.size > caught.value.limit == 10_000


@given(any_frame.filter(lambda frame: isinstance(frame, frames.Reply)))
def test_the_size_of_replies_is_known_before_they_are_packed(frame: frames.Reply) -> None:
    size = len(frames.encode(frame))
    with pytest.raises(TooLarge):
        frames.check_size(frame, WireLimits(frame_bytes=size - 1))
    frames.check_size(frame, WireLimits(frame_bytes=4 * size + 64 * (2 + len(frame.route)) + 1000))


#: Values that cost much for their bytes: stand-ins, instants, numbers, arrays and maps, short texts.
COSTLY = {
    "foreign": b"\xd4\x03x",
    "instant": b"\xd7\x01" + bytes(8),
    "integer beyond 64 bits": b"\xc7\x09\x02\x00" + b"\1" * 8,
    "NumPy's instant": b"\xc7\x0a\x04M" + bytes(8) + b"s",
    "duration": b"\xc7\x09\x05" + bytes(9),
    "empty map": b"\x80",
    "empty array": b"\x90",
    "map of one": b"\x81\xa1a\xc0",
    "nested arrays": b"\x91" * 13 + b"\x90",
    "short text": b"\xa2xy",
    "number": b"\xcd\x7f\xff",
    "short bytes": b"\xc4\x02ab",
}
MEGABYTE = 1 << 20


def in_array(value: bytes, count: int) -> bytes:
    return b"\xdd" + struct.pack(">I", count) + value * count


@pytest.mark.parametrize("decode", [packing.unpack, *DECODERS], ids=["unpack", "frames", "bodies"])
@pytest.mark.parametrize("value", COSTLY.values(), ids=COSTLY)
def test_a_megabyte_costs_at_most_400_000_objects(decode: Callable[[bytes], object], value: bytes) -> None:
    """A short text is the dearest that may come: one object for three bytes. All else is refused by the walk."""
    data = in_array(value, (MEGABYTE - 16) // len(value))
    if walk(data, DEFAULT):
        assert refused(decode, data)
        return
    before, built = sys.getallocatedblocks(), None
    try:
        built = decode(data)
    except BadFrame:
        assert decode is not packing.unpack
    assert sys.getallocatedblocks() - before < 400_000
    assert built is not None or decode is not packing.unpack


@pytest.mark.parametrize(
    ("value", "limit", "reason"),
    [
        (COSTLY["foreign"], DEFAULT.columns, "more than 4096 foreign values"),
        (COSTLY["instant"], DEFAULT.extensions, "more than 131072 values of extension types"),
        (COSTLY["duration"], DEFAULT.extensions, "more than 131072 values of extension types"),
        (COSTLY["empty map"], DEFAULT.containers - 1, "more than 131072 arrays and maps"),
        (COSTLY["short text"], DEFAULT.objects - 1, "more than 2097152 values"),
    ],
)
def test_limits_of_kinds_of_values_hold_exactly(value: bytes, limit: int, reason: str) -> None:
    assert walk(in_array(value, limit), DEFAULT) == ""
    assert walk(in_array(value, limit + 1), DEFAULT).startswith(reason)


def test_all_foreign_values_are_of_one_class() -> None:
    kinds = {type(packing.unpack(packing.pack(packing.foreign(name)))) for name in ("Decimal", "Money", "x" * 90)}
    assert kinds == {packing.Foreign}
    assert packing.type_name(packing.foreign("Money")) == "Money"
    assert packing.type_name(1.5) == "float"


def test_what_a_receiver_would_refuse_for_its_structure_is_not_sent() -> None:
    instants = Mixed(tuple([NOON] * (DEFAULT.extensions + 1)))
    with pytest.raises(
        TooLarge, match=r"^values of extension types in this publish: 131,073 is more than the limit of 131,072"
    ):
        bodies.encode(bodies.Publish("T", {"A": instants}, None, bytes(16), 1))
    many: Columns = {"seq": np.zeros(0, np.int64)}
    with pytest.raises(TooLarge, match=r"^arrays and maps in this deliver: 131,073 is more than the limit of 131,072"):
        frames.encode(frames.Deliver(1, dict.fromkeys(range(50_000), many)))


def test_a_child_s_frame_that_only_parents_send_is_refused_before_it_is_built() -> None:
    encoded = frames.encode(frames.Reply(1, (), (), b""))
    assert isinstance(frames.decode(encoded), frames.Reply)
    with pytest.raises(BadFrame, match="a reply frame does not come from below"):
        frames.decode(encoded, kinds=frames.UPWARD)
    assert isinstance(frames.decode(frames.encode(frames.Leave(1, None)), kinds=frames.UPWARD), frames.Leave)


def test_a_subscribe_with_too_many_groups_is_refused_before_any_is_built() -> None:
    group = bodies.Group(1, "SELECT COUNT(*) FROM T", (), 1)
    full = bodies.Subscribe((group,) * DEFAULT.groups)
    read = bodies.decode(bodies.encode(full))
    assert isinstance(read, bodies.Subscribe)
    assert len(read.groups) == DEFAULT.groups
    with pytest.raises(TooLarge, match=r"^groups in this subscribe: 4,097 is more than the limit of 4,096"):
        bodies.encode(bodies.Subscribe((*full.groups, group)))
    not_even_groups = packing.pack(["subscribe", [0] * (DEFAULT.groups + 1), None, None, None])
    with pytest.raises(BadFrame, match="4097 groups in one subscribe; at most 4096"):
        bodies.decode(not_even_groups)
