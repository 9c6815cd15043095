"""Log lines: one an event, with its fields, whatever these hold."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

import hullcast
from hullcast.broker.server.service import Server
from hullcast.broker.server.settings import ServerSettings
from hullcast.clients.cli.commands.serving import configure_logs
from hullcast.clients.sdk.testing import serving
from hullcast.network.link import dialer
from hullcast.network.security.rights import Rights
from hullcast.network.wire.logs import logger
from tests.support.cluster import PATIENCE_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logger("hullcast.network.node")


@contextmanager
def plain_logs() -> Iterator[io.StringIO]:
    """As a program that uses the SDK sets them up: `logging.basicConfig(level=logging.INFO)`."""
    stream, ours = io.StringIO(), logging.getLogger("hullcast")
    handler, before = logging.StreamHandler(stream), ours.level
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield stream
    finally:
        ours.removeHandler(handler)
        ours.setLevel(before)


async def test_a_client_that_finds_no_server_says_where_and_why_and_what_it_does_next_but_not_seven_times() -> None:
    with plain_logs() as stream, pytest.raises(hullcast.ConnectionLost):
        await hullcast.connect("tcp://127.0.0.1:1,tcp://localhost:1", name="desk", timeout=1.0)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2, "once for each address"
    for line, address in zip(lines, ("127.0.0.1", "localhost"), strict=True):
        assert re.fullmatch(
            rf"INFO:hullcast\.network\.link\.dialer:not connected address=tcp://{address}:1 client=desk "
            r'why="cannot connect; is a server or node running there\?" attempts=\d for_s=[\d.]+ next_try_s=[\d.]+',
            line,
        )


async def test_a_client_logs_which_connection_was_lost_and_which_subscription_overflowed() -> None:
    service = Server(ServerSettings(listen="tcp://127.0.0.1:0"), Rights.everything())
    with plain_logs() as stream:
        async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
            async with serving(service):
                hc = await stack.enter_async_context(hullcast.connect(service.endpoint, name="desk"))
                await hc.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, X REAL)")
                sub = await hc.subscribe("SELECT K FROM T WHERE X > ?", 3, overflow="error", buffer=2)
                await hc.publish("T", [{"K": k, "X": 4} for k in range(9)])
                with pytest.raises(hullcast.SubscriptionOverflow):
                    async for _ in sub:
                        pass
            await wait_for(lambda: not hc.connected, "the connection is lost")
    text = stream.getvalue()
    (overflow,) = [line for line in text.splitlines() if "overflowed" in line]
    assert overflow.endswith('overflowed and ended sql="SELECT K FROM T WHERE X > ?" parameters=(3,) buffer=2')
    assert re.search(rf"connection lost address={service.endpoint} client=desk why=.+ next_try_s=0", text)


async def test_a_connection_that_stays_away_is_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialer, "_LASTING_S", 0.05)
    service = Server(ServerSettings(listen="tcp://127.0.0.1:0"), Rights.everything())
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        async with serving(service):
            await stack.enter_async_context(hullcast.connect(service.endpoint, name="desk"))

        def warnings() -> list[str]:
            lines = (line for line in caplog.records if line.name == dialer.__name__)
            return [line.getMessage() for line in lines if line.levelno == logging.WARNING]

        await wait_for(lambda: bool(warnings()), "it is said at the default level")
    assert warnings()[0].startswith(f"not connected address={service.endpoint} client=desk why=")


async def test_a_callback_that_always_fails_does_not_fill_the_log() -> None:
    async def fail(event: object) -> None:
        raise RuntimeError("my own mistake")

    with plain_logs() as stream:
        service = Server(ServerSettings(listen="tcp://127.0.0.1:0"), Rights.everything())
        async with asyncio.timeout(PATIENCE_S), serving(service), hullcast.connect(service.endpoint) as hc:
            await hc.execute("CREATE TABLE T (K INTEGER PRIMARY KEY, X REAL)")
            async with hc.subscribe("SELECT K FROM T WHERE X > ?", 3, callback=fail) as sub:
                await hc.publish("T", [{"K": k, "X": 4} for k in range(9)])
                await wait_for(lambda: sub.callback_errors == 9, "it failed for every event")
    (line,) = [line for line in stream.getvalue().splitlines() if "callback failed" in line]
    assert line.endswith('callback failed sql="SELECT K FROM T WHERE X > ?" parameters=(3,) failures=1')
    assert stream.getvalue().splitlines().count("RuntimeError: my own mistake") == 1


@contextmanager
def logging_to(level: str, form: str) -> Iterator[io.StringIO]:
    """Configure as a command does, and put everything back."""
    root = logging.getLogger()
    handlers, before = list(root.handlers), root.level
    root.handlers.clear()  # or `force` closes those of pytest
    stream = io.StringIO()
    configure_logs(level, form, stream)
    try:
        yield stream
    finally:
        logging.captureWarnings(False)
        root.handlers[:] = handlers
        root.setLevel(before)


def test_text_has_time_level_logger_event_and_fields() -> None:
    with logging_to("info", "text") as stream:
        log.info("joined", extra={"parent": "tcp://10.0.0.1:7600", "after_s": 0.25, "why": "two words", "none": ""})
        log.debug("not shown")
    line = stream.getvalue()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO    hullcast\.network\.node joined"
        r' parent=tcp://10\.0\.0\.1:7600 after_s=0\.25 why="two words" none=""\n',
        line,
    )


@pytest.mark.parametrize("odd", ["a\nERROR forged", 'say "x"', "k=v", "\x1b[31mred", "a\u2028b", "\\"])
def test_no_field_can_forge_a_line(odd: str) -> None:
    with logging_to("info", "text") as stream:
        log.warning("frame refused", extra={"peer": odd})
        log.warning("said %s", odd)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert "\x1b" not in stream.getvalue()
    field = lines[0].partition(" peer=")[2]
    assert (json.loads(field) if field.startswith('"') else field) == odd


def test_json_is_one_object_a_line() -> None:
    with logging_to("warning", "json") as stream:
        log.warning("refused", extra={"peer": 3, "why": "a\nb", "event": "mine", "what": ValueError("x")})
        log.info("not shown")
    (line,) = stream.getvalue().splitlines()
    values = json.loads(line)
    assert values.pop("time").endswith("Z")
    assert values == {
        "level": "warning",
        "logger": "hullcast.network.node",
        "event": "refused",
        "peer": 3,
        "why": "a\nb",
        "event_": "mine",
        "what": "x",
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_comes_along(form: str) -> None:
    with logging_to("info", form) as stream:
        try:
            raise RuntimeError("boom")
        except RuntimeError:
            log.exception("died")
    text = stream.getvalue()
    if form == "json":
        text = json.loads(text)["traceback"]
    assert "RuntimeError: boom" in text
    assert "Traceback" in text
