"""The life of a server: it starts, does its rounds, and stops."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from hullcast.broker.server.service import Server

log = logger(__name__)

#: Seconds between two rounds: progress to the children, channels to close, checkpoints.
ROUND_S = 0.1


async def serve(server: Server, started: asyncio.Event | None) -> None:
    """Serve until cancelled. When it returns or raises, no task, socket, thread or file is left."""
    server.pipeline.begin(server.releases.release)
    tasks: list[asyncio.Task[None]] = []
    sound = False
    try:
        server.listener.start(server.children)
        server.nodes.tell(server.endpoint, time.monotonic())
        tasks.append(asyncio.create_task(_rounds(server), name="server.rounds"))
        for part in (server.leaving, server.evaluating, server.working, server.pauses):
            tasks.append(asyncio.create_task(part.run(), name=f"server.{type(part).__name__}"))
        if started is not None:
            started.set()
        log.info("serving", extra={"endpoint": server.endpoint, "seq": server.engine.seq})
        ends = (*tasks, server.pipeline.failed, server.listener.failed)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            if end.done():
                end.result()
    except asyncio.CancelledError:
        sound = True  # a stop that was asked for: nothing is wrong with the engine
        raise
    finally:
        server.hall.stopping = True
        stopping = server.stopping
        asked_at = stopping.begin(time.monotonic())
        stopping.busy = "ending requests"
        await asyncio.gather(server.history.stop(), server.jobs.stop())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.queries.close()
        stopping.busy = "ending its processes, and what is being written to its files"
        await asyncio.gather(server.warehouse.stop(), server.streams.stop(), server.storage.stop(asked_at))
        stopping.busy = "syncing the log"
        server.hall.apply_arrived()
        await server.pipeline.stop()
        stopping.busy = "sending last replies and messages"
        server.releases.close()
        await server.listener.stop()
        try:
            if sound and server.pipeline.sound and not server.engine.broken:  # a large batch may be half-way
                stopping.busy = "leaving a checkpoint"
                await server.storage.leave_checkpoint()
        finally:
            stopping.busy = "closing its files"
            server.storage.close()
            stopping.busy = "ending its threads"


async def _rounds(server: Server) -> None:
    while True:
        await asyncio.sleep(ROUND_S)
        now = time.monotonic()
        if next(iter(server.pipeline), None) is None and not server.releases.sending:
            server.children.through = server.engine.seq
        server.children.tell_progress()
        server.retention.expire(now - server.settings.retention_s)
        server.subscribing.expire(now)
        server.engine.tidy()
        server.changing.forget_swept()
        server.attendance.expire(now)
        for attending in server.attendance.close_deserted(server.leaving.wanted(), now):
            server.retention.close(attending.number)
        server.conditionals.expire(now)
        server.hidden.expire(now)
        server.housekeeping.on_release()
        server.housekeeping.keep_up((*(one.channel for one in server.attendance), *server.conditionals.channels()))
        server.nodes.tell(server.endpoint, now)
        server.queries.expire(now)
        server.warehouse.watch(now)
        server.streams.watch(now)
        server.history.watch(now)
        server.storage.keep_behind(server.streams.needed_behind())
        server.storage.keep_up(now)
        server.commits.tell_of_disk()
