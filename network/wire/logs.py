"""Log lines that say what they know, however the program that uses us has set up its logs.

    log = logger(__name__)
    log.warning("server not reached", extra={"address": "tcp://..", "why": "refused", "attempts": 3})

is, with plain `logging.basicConfig()`, the message `server not reached address=tcp://.. why=refused attempts=3`. The
event and its fields stay apart on the record (`event_of`, `fields_of`), for those who print or send them otherwise.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

#: Of lines that are alike, how often one is written.
EACH_S: Final = 10.0

_EVENT: Final = "hullcast_event"
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", _EVENT}


class FactsLogger(logging.LoggerAdapter[logging.Logger]):
    """Puts the fields of a line (`extra`) into its message, too. A line with fields takes no arguments for `%`."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """The message with its fields."""
        fields = kwargs.get("extra")
        if not fields:
            return msg, kwargs
        return f"{msg}{fields_text(fields)}", {**kwargs, "extra": {**fields, _EVENT: msg}}


def logger(name: str) -> FactsLogger:
    """The logger of a module."""
    return FactsLogger(logging.getLogger(name))


def event_of(record: logging.LogRecord) -> str:
    """What happened, without the fields."""
    return str(getattr(record, _EVENT, None) or record.getMessage())


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of a line."""
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def fields_text(fields: Mapping[str, Any]) -> str:
    """Fields as ` key=value ..`: without surprises, quoted if one has spaces, quotes or what could look like another
    line."""
    return "".join(f" {key}={_plain(value)}" for key, value in fields.items())


def _plain(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if text and text.isprintable() and not any(sign in text for sign in ' "='):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


class Sparingly:
    """Says when a line that may repeat is due: the first, and then one every EACH_S seconds."""

    def __init__(self) -> None:
        self._again_at, self._left_out = float("-inf"), 0

    def due(self, now: float) -> int | None:
        """None: leave the line out. Otherwise write it; so many were left out since the last one."""
        if now < self._again_at:
            self._left_out += 1
            return None
        left_out, self._left_out, self._again_at = self._left_out, 0, now + EACH_S
        return left_out
