"""Log lines: one an event, with its fields, whatever these hold."""

from __future__ import annotations

import io
import json
import logging
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from hullcast.clients.cli.commands.serving import configure_logs

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("hullcast.network.node")


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
