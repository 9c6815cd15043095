"""The streams process: follows the log, runs the operators of stream queries, and sends results.

    server --(how far the log is, queries to open)--> this process --(reads)--> log, checkpoints
    server <--(results, how far behind it is)-------- this process

It holds windows, tables and queues in memory, all made of the log: whoever kills it, the next one goes on where the
last results ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections import deque
from typing import TYPE_CHECKING

from hullcast.broker.log.walk import run_log
from hullcast.broker.processes.ends import BlockingEnd, MessageEnd
from hullcast.broker.processes.logs import log_through
from hullcast.broker.streams.live import LiveStreams
from hullcast.broker.streams.warming import run_operators
from hullcast.network import compiled

if TYPE_CHECKING:
    import socket

    from hullcast.broker.streams.messages import BeginStreams

#: Seconds between two reports to the server.
REPORT_S = 0.25


def serve(connection: socket.socket) -> None:
    """Serve until the server is gone."""
    begin = BlockingEnd(connection).read()
    compiled.load()
    run_log()
    run_operators()
    gc.collect()
    gc.freeze()
    asyncio.run(_serve(begin, connection))


async def _serve(begin: BeginStreams, connection: socket.socket) -> None:
    gone, news = asyncio.Event(), asyncio.Event()
    came: deque[object] = deque()

    def on_message(message: object) -> None:
        came.append(message)
        news.set()

    def on_end() -> None:
        gone.set()
        news.set()

    end = MessageEnd()
    streams = LiveStreams(begin, end.write)
    await end.attach(connection, on_message, on_end)
    log_through(end.write)
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
