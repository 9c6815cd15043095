"""A child process that does what it is told, for `test_child.py`."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hullcast.broker.processes.ends import BlockingEnd
from hullcast.broker.processes.logs import log_through
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    import socket

log = logger(__name__)


def serve(connection: socket.socket) -> None:
    """Do as told, until the server is gone."""
    end = BlockingEnd(connection)
    log_through(end.write)
    first = end.read()
    while True:
        told, *arguments = end.read()
        end.write(globals()[told](first, *arguments))
        end.flush()


def facts(first: object) -> dict[str, Any]:
    """About this process."""
    score = Path("/proc/self/oom_score_adj")
    return {
        "first": first,
        "pid": os.getpid(),
        "group": os.getpgid(0),
        "session": os.getsid(0),
        "nice": os.nice(0),
        "oom_score": int(score.read_text()) if score.exists() else None,
    }


def start_another(_: object) -> int:
    """A process that is started by this one."""
    return subprocess.Popen(["sleep", "60"]).pid


def sleep(_: object, seconds: float) -> None:
    """Say nothing for a while."""
    time.sleep(seconds)


def complain(_: object, event: str, fields: dict[str, object]) -> None:
    """Log something, and an error."""
    log.warning(event, extra=fields)
    try:
        raise ValueError("what happened")
    except ValueError:
        log.exception("it failed")
