"""Logging of the commands: one line an event on standard error, as text or as JSON, with the fields of `extra`.

2026-03-01T12:00:00.123Z INFO    hullcast.network.node.node joined parent=tcp://10.0.0.1:7600
{"time": "2026-03-01T12:00:00.123Z", "level": "info", "logger": "hullcast.network.node.node", "event": "joined", ..}
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TextIO

#: What every record has; anything else came by `extra`.
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_FIRST = ("time", "level", "logger", "event")


def configure(level: str = "info", form: str = "text", stream: TextIO | None = None) -> None:
    """Send what is logged, from `level` up, to the stream (standard error). A second call replaces the first."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)


class TextLines(logging.Formatter):
    """For people: time, level, logger, event, and fields as key=value."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the fields hold; a traceback follows on lines of its own."""
        fields = "".join(f" {key}={_plain(value)}" for key, value in _extra(record).items())
        event = _one_line(record.getMessage())
        line = f"{_time(record)} {record.levelname:<7} {record.name} {event}{fields}"
        return line + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


class JsonLines(logging.Formatter):
    """For programs: one object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record; a traceback becomes the field `traceback`."""
        values: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        for key, value in _extra(record).items():
            values[f"{key}_" if key in _FIRST else key] = value
        if record.exc_info:
            values["traceback"] = self.formatException(record.exc_info)
        return json.dumps(values, default=str)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> str:
    """A field without surprises: quoted if it has spaces, quotes or what could look like another line."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if text and text.isprintable() and not any(sign in text for sign in ' "='):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _one_line(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)[1:-1]
