"""The log lines of a child process: the server writes them, in the form and to the place that operators have chosen."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from hullcast.network.wire.logs import event_of, fields_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Logged(NamedTuple):
    """What a child process has to say to operators: it goes to the server's log."""

    level: int
    event: str
    fields: dict[str, str]


def log_through(say: Callable[[object], None]) -> None:
    """Let the server log what this process logs from now on; `say` tells it."""
    logging.basicConfig(handlers=[_ServersLog(say)], force=True)


class _ServersLog(logging.Handler):
    def __init__(self, say: Callable[[object], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        fields = {key: str(value) for key, value in fields_of(record).items()}
        if record.exc_info:
            fields["traceback"] = logging.Formatter().formatException(record.exc_info)
        self._say(Logged(record.levelno, event_of(record), fields))
