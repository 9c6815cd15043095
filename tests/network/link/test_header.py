"""Link headers: what goes in comes out, and nothing else gets through."""

from __future__ import annotations

import msgpack  # type: ignore[import-untyped]  # has no types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.link.header import (
    BUNDLE_BYTES,
    BUNDLE_FRAMES,
    BYE_CODES,
    HEADER_BYTES,
    VERSION,
    Ack,
    Bye,
    Data,
    Header,
    Hello,
    Resend,
    Welcome,
    decode,
    encode,
    read_data,
)
from hullcast.network.wire.errors import BadFrame, PeerError, VersionMismatch

counts = st.integers(0, 2**63 - 1)
seconds = st.floats(0.001, 3600)
sizes = st.integers(1024, 2**40)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
headers: st.SearchStrategy[Header] = st.one_of(
    st.builds(Data, st.integers(1, 2**63 - 1), counts, st.lists(st.integers(0, 2**32 - 1), max_size=20).map(tuple)),
    st.builds(Ack, counts, counts, st.just(0), st.just(0)),
    st.builds(Ack, counts, counts, st.integers(1, 10_000), st.integers(10_000, 3_600_000)),
    st.builds(Resend, st.integers(1, 2**63 - 1)),
    st.builds(Bye, st.sampled_from(BYE_CODES), texts),
    st.builds(
        Hello,
        st.binary(min_size=16, max_size=16),
        st.integers(-1, 2**63 - 1),
        st.sampled_from(["client", "node"]),
        texts,
        st.sampled_from([b"", bytes(16)]),
        st.none() | texts,
        sizes,
    ),
    st.builds(
        Welcome, st.booleans(), counts, counts, seconds, seconds, sizes, st.dictionaries(texts, st.integers(0, 9))
    ),
)
HELLO = Hello(bytes(16), -1, "client", "x", b"", None, 1 << 20)
WELCOME = Welcome(False, 0, 1, 0.5, 4.0, 1 << 20, {})
integers = st.integers(-(2**63), 2**64 - 1)  # all that msgpack has
junk = st.recursive(
    st.none() | st.booleans() | integers | st.floats() | st.text(max_size=5) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5) | integers, inner, max_size=4),
    max_leaves=8,
)


@given(headers)
def test_a_header_comes_out_as_it_went_in(header: Header) -> None:
    back = decode(encode(header))
    assert back == header
    assert type(back) is type(header)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_header_or_a_peer_error(data: bytes) -> None:
    _decodes_or_refuses(data)


@given(headers, st.data())
def test_a_damaged_header_is_a_header_or_a_peer_error(header: Header, data: st.DataObject) -> None:
    encoded = bytearray(encode(header))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] = data.draw(st.integers(0, 255))
    _decodes_or_refuses(bytes(encoded[: data.draw(st.integers(0, len(encoded)))]))
    _decodes_or_refuses(bytes(encoded))


@given(st.sampled_from(["resend", "bye", "hello", "welcome", "data", "other"]), st.lists(junk, max_size=4))
def test_any_fields_are_a_header_or_a_peer_error(kind: str, fields: list[object]) -> None:
    _decodes_or_refuses(msgpack.packb([VERSION, kind, *fields]))


@given(st.sampled_from([HELLO, WELCOME]), st.data())
def test_a_greeting_with_one_wrong_field_is_a_header_or_a_peer_error(
    greeting: Hello | Welcome, data: st.DataObject
) -> None:
    fields = greeting._asdict()
    fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(junk)
    _decodes_or_refuses(msgpack.packb([VERSION, type(greeting).__name__.lower(), fields]))


def _decodes_or_refuses(data: bytes) -> None:
    try:
        header = decode(data)
    except PeerError:
        return
    assert encode(decode(encode(header))) == encode(header)  # as bytes: NaN is not equal to itself


def test_another_version_is_told_apart_from_garbage() -> None:
    with pytest.raises(VersionMismatch) as caught:
        decode(msgpack.packb([VERSION + 1, "hello", {"whatever": 1}]))
    assert (caught.value.ours, caught.value.theirs) == (VERSION, VERSION + 1)


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [VERSION],
        [True, "resend", 1],
        [VERSION, "resend"],
        [VERSION, "resend", 1, 1],
        [VERSION, "resend", True],
        [VERSION, "resend", -1],
        [VERSION, "resend", 2**63],
        [VERSION, "resend", 0],
        [VERSION, "ack", 1, 1],
        [VERSION, "data", 1, 1],
        [VERSION, "bye", "because", ""],
        [VERSION, "bye", "slow", "x" * 2000],
        [VERSION, "hello", {**HELLO._asdict(), "more": 1}],
        [VERSION, "hello", {**HELLO._asdict(), "session": b"short"}],
        [VERSION, "hello", {**HELLO._asdict(), "received": -2}],
        [VERSION, "hello", {**HELLO._asdict(), "role": "king"}],
        [VERSION, "hello", {**HELLO._asdict(), "name": "x" * 300}],
        [VERSION, "welcome", {**WELCOME._asdict(), "silence_s": float("nan")}],
        [VERSION, "welcome", {**WELCOME._asdict(), "extra": {1: 2}}],
    ],
)
def test_what_is_not_exactly_a_header_is_refused(fields: list[object]) -> None:
    with pytest.raises(BadFrame):
        decode(msgpack.packb(fields))


def test_a_header_larger_than_the_limit_is_refused_unread() -> None:
    with pytest.raises(BadFrame):
        decode(bytes(HEADER_BYTES + 1))


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(BadFrame):
        decode(b"\x91" * 5000 + b"\x01")


@pytest.mark.parametrize(
    "header",
    [
        b"\x01",
        encode(Data(1, 0))[:-1],
        encode(Data(1, 0)) + b"\0",
        encode(Data(0, 0)),
        encode(Data(-1, 0)),
        encode(Data(1, -1)),
        encode(Data(1, 0)) + bytes(4 * (BUNDLE_FRAMES + 1)),
        encode(Ack(-1, 0)),
        encode(Ack(0, -1)),
        encode(Ack(0, 0)) + bytes(4),
        encode(Ack(0, 0))[:17],
        encode(Ack(0, 0, 0, 4000)),
        encode(Ack(0, 0, 500, 0)),
        encode(Ack(0, 0, 500, 400)),
        encode(Ack(0, 0, 500, 3_600_001)),
    ],
)
def test_binary_headers_of_another_form_are_refused(header: bytes) -> None:
    with pytest.raises(BadFrame):
        decode(header)
    if header[:1] == b"\x01":
        with pytest.raises(BadFrame):
            read_data((header, b""), 1 << 20)


@given(st.lists(st.binary(max_size=50), min_size=2, max_size=BUNDLE_FRAMES))
def test_the_payloads_of_a_bundle_come_out_as_they_went_in(payloads: list[bytes]) -> None:
    header = encode(Data(7, 3, tuple(map(len, payloads))))
    assert len(header) <= 1024  # the least that an end may announce as what it takes
    assert read_data((header, b"".join(payloads)), 1 << 20) == (7, 3, payloads)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20), st.binary(max_size=100))
def test_lengths_that_do_not_add_up_are_refused(lengths: list[int], body: bytes) -> None:
    message = encode(Data(1, 0, tuple(lengths))), body
    if sum(lengths) == len(body):
        assert b"".join(read_data(message, 1 << 20)[2]) == body
        return
    with pytest.raises(BadFrame, match="add up"):
        read_data(message, 1 << 20)


@given(st.lists(st.binary(max_size=600), max_size=4))
def test_any_message_that_begins_like_data_is_data_or_a_peer_error(parts: list[bytes]) -> None:
    parts = [b"\x01" + b"".join(parts[:1]), *parts[1:]]
    try:
        seq, ack, payloads = read_data(parts, 500)
    except BadFrame:
        return
    assert seq >= 1
    assert ack >= 0
    assert b"".join(payloads) == parts[1]
    assert 1 <= len(payloads) <= BUNDLE_FRAMES


def test_data_beyond_the_limits_is_refused() -> None:
    with pytest.raises(BadFrame, match="at most 1000"):
        read_data((encode(Data(1, 0)), bytes(1001)), 1000)
    half = BUNDLE_BYTES // 2
    assert len(read_data((encode(Data(1, 0, (half, half))), bytes(2 * half)), 1 << 20)[2]) == 2
    with pytest.raises(BadFrame, match=f"at most {BUNDLE_BYTES}"):
        read_data((encode(Data(1, 0, (half, half + 1))), bytes(2 * half + 1)), 1 << 20)
    for parts in ((encode(Data(1, 0)),), (encode(Data(1, 0)), b"", b"")):
        with pytest.raises(BadFrame, match="a header and a payload"):
            read_data(parts, 1000)
