"""What `hullcast server` and `hullcast node` do first: settings, keys, rights, logs.

Logs are one line an event on standard error, as text or as JSON, with the fields of `extra`:

2026-03-01T12:00:00.123Z INFO    hullcast.network.node.node joined parent=tcp://10.0.0.1:7600
{"time": "2026-03-01T12:00:00.123Z", "level": "info", "logger": "hullcast.network.node.node", "event": "joined", ..}
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from hullcast.broker.server.settings import ServerSettings
from hullcast.network.link.connections import raise_open_files
from hullcast.network.node.settings import NodeSettings
from hullcast.network.security.curve import Curve
from hullcast.network.security.keys import load_pair, load_public
from hullcast.network.security.rights import Rights
from hullcast.network.settings.flags import example, from_arguments, report
from hullcast.network.wire.logs import event_of, fields_of, fields_text, logger

if TYPE_CHECKING:
    import argparse
    from typing import TextIO

log = logger(__name__)

#: What every record has; anything else came by `extra`.
_FIRST = ("time", "level", "logger", "event")

Kind = TypeVar("Kind", bound=ServerSettings | NodeSettings)


class Prepared(NamedTuple, Generic[Kind]):
    """What a process serves with; `parent_curve` is for processes that dial a parent."""

    settings: Kind
    rights: Rights
    curve: Curve | None
    parent_curve: Curve | None


def add_process_arguments(parser: argparse.ArgumentParser) -> None:
    """What commands that serve have in common, besides their settings."""
    parser.add_argument("--json", action="store_true", help="print the ready line as JSON, for programs")
    parser.add_argument(
        "--until-input-ends",
        action="store_true",
        help="stop, as by SIGTERM, when standard input is closed, for instance because the parent process ended",
    )
    parser.add_argument(
        "--progress",
        action="store_true",
        help="before the ready line, print what the process is doing, one JSON object per line, for programs",
    )


def prepare(kind: type[Kind], arguments: argparse.Namespace) -> Prepared[Kind] | None:
    """Read and check everything, and set up the logs; None if only the settings were asked for, and shown."""
    if arguments.print_config:
        sys.stdout.write(example(kind))
        return None
    loaded = from_arguments(kind, arguments)
    settings, security = loaded.settings, loaded.settings.security
    rights = Rights.load(security.allow)
    curve = parent_curve = None
    if security.key is not None:
        pair = load_pair(security.key)
        curve = Curve(pair.public, pair.secret)
        expected = settings.parent_key if isinstance(settings, NodeSettings) else ""
        server = load_public(expected, setting="parent_key") if expected else pair.public
        parent_curve = Curve(pair.public, pair.secret, server=server)
    if arguments.check_config:
        sys.stdout.write(report(loaded))
        return None
    configure_logs(settings.log.level, settings.log.format)
    raise_open_files(settings.max_children)
    if security.open:
        log.warning("every client that connects may do everything (--open); --allow FILE would limit that")
    return Prepared(settings, rights, curve, parent_curve)


def configure_logs(level: str = "info", form: str = "text", stream: TextIO | None = None) -> None:
    """Send what is logged, from `level` up, to the stream (standard error). A second call replaces the first."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)


class TextLines(logging.Formatter):
    """For people: time, level, logger, event, and fields as key=value."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the fields hold; a traceback follows on lines of its own."""
        said = f"{_one_line(event_of(record))}{fields_text(fields_of(record))}"
        line = f"{_time(record)} {record.levelname:<7} {record.name} {said}"
        return line + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


class JsonLines(logging.Formatter):
    """For programs: one object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record; a traceback becomes the field `traceback`."""
        values: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": event_of(record),
        }
        for key, value in fields_of(record).items():
            values[f"{key}_" if key in _FIRST else key] = value
        if record.exc_info:
            values["traceback"] = self.formatException(record.exc_info)
        return json.dumps(values, default=str)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _one_line(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)[1:-1]
