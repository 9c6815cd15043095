"""Endpoints: what is accepted, what is said of the rest, and what counts as loopback."""

from __future__ import annotations

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from hullcast.network.link.endpoints import Endpoint, check_endpoint, parse_address, parse_endpoint
from hullcast.network.wire.errors import BadSetting


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp://127.0.0.1:7600", Endpoint("tcp", "127.0.0.1", 7600)),
        ("tcp://[::1]:7600", Endpoint("tcp", "::1", 7600)),
        ("tcp://db-1.example.org:65535", Endpoint("tcp", "db-1.example.org", 65535)),
        ("inproc://a name", Endpoint("inproc", name="a name")),
    ],
)
def test_an_endpoint_is_read_and_written_back(text: str, expected: Endpoint) -> None:
    assert parse_endpoint(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["tcp://*:7600", "tcp://127.0.0.1:0", "tcp://127.0.0.1:*", "tcp://*:*"])
def test_stars_and_port_0_are_for_listening_only(text: str) -> None:
    parse_endpoint(text, listening=True)
    with pytest.raises(BadSetting, match="for listening only"):
        parse_endpoint(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "write tcp://"),
        ("127.0.0.1:7600", "write tcp://"),
        ("http://127.0.0.1:7600", "write tcp://"),
        ("tcp:127.0.0.1:7600", "write tcp://"),
        ("tcp://", "the port is missing"),
        ("tcp://127.0.0.1", "the port is missing"),
        ("tcp://:7600", "the port is missing"),
        ("tcp://127.0.0.1:", "'' is not a port"),
        ("tcp://127.0.0.1:http", "'http' is not a port"),
        ("tcp://127.0.0.1:65536", "'65536' is not a port"),
        ("tcp://127.0.0.1:-1", "'-1' is not a port"),
        ("tcp://127.0.0.1:٣", "is not a port"),
        ("tcp://127.0.0.1:7600/x", "is not a port"),
        ("tcp://127.0.0:7600", "not an IPv4 address"),
        ("tcp://256.0.0.1:7600", "not an IPv4 address"),
        ("tcp://::1:7600", "in brackets"),
        ("tcp://[::g]:7600", "not an IPv6 address"),
        ("tcp://a b:7600", "not a host name"),
        ("tcp://-a:7600", "not a host name"),
        ("tcp://a..b:7600", "not a host name"),
        ("ipc:///run/hullcast.sock", "write tcp://"),
        ("inproc://", "needs a name"),
    ],
)
def test_a_bad_endpoint_is_refused_with_the_part_that_is_wrong(text: str, what: str) -> None:
    with pytest.raises(BadSetting) as refused:
        parse_endpoint(text, listening=True, setting="listen")
    assert what in str(refused.value)
    assert refused.value.setting == "listen"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp://127.0.0.1:1", True),
        ("tcp://127.9.9.9:1", True),
        ("tcp://localhost:1", True),
        ("tcp://[::1]:1", True),
        ("tcp://[::ffff:127.0.0.1]:1", True),
        ("inproc://x", True),
        ("tcp://*:1", False),
        ("tcp://0.0.0.0:1", False),
        ("tcp://[::]:1", False),
        ("tcp://10.0.0.1:1", False),
        ("tcp://localhost.example.org:1", False),
        ("tcp://128.0.0.1:1", False),
    ],
)
def test_loopback_is_what_nobody_outside_can_reach(text: str, expected: bool) -> None:
    assert parse_endpoint(text, listening=True).is_loopback is expected
    check_endpoint(text, private=True, listening=True)
    if expected:
        check_endpoint(text, private=False, listening=True)
    else:
        with pytest.raises(BadSetting, match=r"^listen.*must be encrypted"):
            check_endpoint(text, private=False, listening=True, setting="listen")


def test_addresses_of_the_monitor_have_no_scheme() -> None:
    assert parse_address("127.0.0.1:9600") == ("127.0.0.1", 9600)
    assert parse_address("[::1]:0") == ("::1", 0)
    with pytest.raises(BadSetting, match=r"monitor.*HOST:PORT"):
        parse_address("9600", setting="monitor")


@pytest.mark.parametrize("text", ["tcp://127.0.0.1:*", "tcp://localhost:0", "tcp://*:0", "inproc://endpoints"])
def test_zeromq_takes_what_we_take(text: str) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.bind(str(parse_endpoint(text, listening=True)))
        bound = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        assert str(parse_endpoint(bound)) == bound  # and what it has chosen can be dialed


@given(st.text(max_size=40) | st.from_regex(r"tcp://.{0,20}:[0-9]{0,6}", fullmatch=True))
def test_any_text_is_an_endpoint_or_refused(text: str) -> None:
    try:
        endpoint = parse_endpoint(text, listening=True)
    except BadSetting:
        return
    assert parse_endpoint(str(endpoint), listening=True) == endpoint
