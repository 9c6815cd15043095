"""The streams process: follows the log beside the server, runs the operators of stream queries, and sends results.

    server --(how far the log is, queries to open)--> this process --(reads)--> log, checkpoints
    server <--(results, how far behind it is)-------- this process

It holds windows, tables and queues in memory, all made of the log: whoever kills it, the next one goes on where the
last results ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections import deque
from typing import TYPE_CHECKING

from hullcast.broker.log.walk import run_log
from hullcast.broker.scheduling.background import step_back
from hullcast.broker.streams.live import LiveStreams
from hullcast.broker.streams.warming import run_operators
from hullcast.broker.warehouse.messages import BlockingEnd, MessageEnd
from hullcast.broker.warehouse.process import ServersLog
from hullcast.network import compiled

if TYPE_CHECKING:
    from hullcast.broker.streams.messages import BeginStreams

#: Seconds between two reports to the server.
REPORT_S = 0.25
#: How likely the kernel is to end this process if the machine runs out of memory.
OOM_SCORE = 500


def main() -> None:
    """Serve until the server's end of the socket is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when this ends
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    step_back(OOM_SCORE)
    connection = socket.socket(fileno=int(sys.argv[1]))
    begin = BlockingEnd(connection).read()
    compiled.load()
    run_log()
    run_operators()
    gc.collect()
    gc.freeze()
    with contextlib.suppress(EOFError):
        asyncio.run(_serve(begin, connection))


async def _serve(begin: BeginStreams, connection: socket.socket) -> None:
    """Serve until the server is gone."""
    gone, news = asyncio.Event(), asyncio.Event()
    came: deque[object] = deque()

    def on_message(message: object) -> None:
        came.append(message)
        news.set()

    def on_end() -> None:
        gone.set()
        news.set()

    streams = LiveStreams(begin, lambda message: None)
    end = await MessageEnd.over(connection, on_message, on_end)
    streams.say = end.write
    logging.basicConfig(handlers=[ServersLog(end.write)], force=True)
    loop = asyncio.get_running_loop()
    reported = 0.0
    while not gone.is_set():
        if loop.time() >= reported + REPORT_S:
            reported = loop.time()
            end.write(streams.report())
        news.clear()
        while came:
            streams.on_message(came.popleft())
        if streams.turn():
            await asyncio.sleep(0)
            continue
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REPORT_S):
                await news.wait()
