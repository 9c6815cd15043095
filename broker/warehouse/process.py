"""The warehouse process: keeps the board, asks the policy what is next, and lets workers do it.

    server --(tables, what was released, queries)--> this process --(tasks)--> workers, forked from it
    server <--(portions of answers, counters)------- this process <--(how far they are)--'

It holds no rows: they are in the log, the checkpoints and the warehouse's files, all of them on disk. So a worker is
forked in a few milliseconds, and whoever is killed, nothing is lost: the next one goes on from the files.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.broker.log.private import make_private
from hullcast.broker.scheduling.background import step_back
from hullcast.broker.warehouse.live import SPOOL, LiveWarehouse
from hullcast.broker.warehouse.messages import BlockingEnd, Logged, MessageEnd
from hullcast.network import compiled
from hullcast.network.wire.logs import event_of, fields_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.broker.warehouse.messages import Begin

#: Seconds between two reports to the server.
REPORT_S = 0.5
#: How likely the kernel is to end this process if the machine runs out of memory (workers come first).
OOM_SCORE = 500


def main() -> None:
    """Serve until the server's end of the socket is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when this ends
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    step_back(OOM_SCORE, 0)
    connection = socket.socket(fileno=int(sys.argv[1]))
    begin = BlockingEnd(connection).read()
    compiled.load()  # once here, instead of in every worker
    _empty(Path(begin.directory) / SPOOL)
    gc.collect()
    gc.freeze()
    with contextlib.suppress(EOFError):
        asyncio.run(_serve(begin, connection))


async def _serve(begin: Begin, connection: socket.socket) -> None:
    """Serve until the server is gone."""
    gone = asyncio.Event()
    warehouse = LiveWarehouse(begin)
    await warehouse.start()
    end = await MessageEnd.over(connection, warehouse.on_message, gone.set, on_quiet=warehouse.on_quiet)
    warehouse.say = end.write
    logging.basicConfig(handlers=[ServersLog(end.write)], force=True)
    try:
        while not gone.is_set():
            end.write(warehouse.report())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await gone.wait()
    finally:
        warehouse.stop()


def _empty(folder: Path) -> None:
    """A folder without what another life of this process has left in it, or somebody else put there."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    make_private(folder)


class ServersLog(logging.Handler):
    """Hands what is logged to the server, which has the form and the place that the operator has chosen."""

    def __init__(self, say: Callable[[object], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        fields = {key: str(value) for key, value in fields_of(record).items()}
        if record.exc_info:
            fields["traceback"] = logging.Formatter().formatException(record.exc_info)
        self._say(Logged(record.levelno, event_of(record), fields))
