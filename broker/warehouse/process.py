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
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from hullcast.broker.log.private import make_private
from hullcast.broker.processes.ends import BlockingEnd, MessageEnd
from hullcast.broker.processes.logs import log_through
from hullcast.broker.warehouse.live import LiveWarehouse
from hullcast.broker.warehouse.live_questions import SPOOL
from hullcast.network import compiled

if TYPE_CHECKING:
    import socket

    from hullcast.broker.warehouse.messages import Begin

#: Seconds between two reports to the server.
REPORT_S = 0.5


def serve(connection: socket.socket) -> None:
    """Serve until the server is gone."""
    begin = BlockingEnd(connection).read()
    compiled.load()  # once here, instead of in every worker
    _empty(Path(begin.directory) / SPOOL)
    gc.collect()
    gc.freeze()
    asyncio.run(_serve(begin, connection))


async def _serve(begin: Begin, connection: socket.socket) -> None:
    gone = asyncio.Event()
    end = MessageEnd()
    warehouse = LiveWarehouse(begin, end.write)
    await warehouse.start()
    await end.attach(connection, warehouse.on_message, gone.set, warehouse.on_quiet)
    log_through(end.write)
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
