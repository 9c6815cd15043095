"""Where a child process begins: less urgent than the server, without Ctrl-C, and until the server's end is closed."""

from __future__ import annotations

import contextlib
import importlib
import logging
import signal
import socket
import sys

from hullcast.broker.processes.background import step_back


def main() -> None:
    """Be the process of a kind: `ChildKind.command` says what the arguments are."""
    module, *numbers = sys.argv[1:]
    connection, oom_score, niceness = map(int, numbers)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when this ends
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    step_back(oom_score, niceness)
    with socket.socket(fileno=connection) as server, contextlib.suppress(EOFError, ConnectionError):
        importlib.import_module(module).serve(server)
