"""The server: puts its parts together, runs them, and stops them. What a request leads to is decided elsewhere.

children -> Hall -> requests: one row for each        broker/server/hall.py, requests.py
              |        |-> Jobs: what waits            broker/server/jobs.py
              v        v
            Commits -> Pipeline: the log -> Releases   broker/server/pipeline.py
                                              |-> children, and followers of the log
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from typing import TYPE_CHECKING

from hullcast.broker.server.attendance import Attendance
from hullcast.broker.server.calibration import stored_coefficients
from hullcast.broker.server.changing import Changing
from hullcast.broker.server.conditionals import Conditionals
from hullcast.broker.server.describing import Describing
from hullcast.broker.server.evaluating import Evaluating
from hullcast.broker.server.hall import Hall
from hullcast.broker.server.history import HistoryReads
from hullcast.broker.server.jobs import Jobs, Working
from hullcast.broker.server.leaving import Housekeeping, Leaving, partitions_asked
from hullcast.broker.server.making import WindowLimits
from hullcast.broker.server.nodes import Nodes
from hullcast.broker.server.pipeline import Commits, Pipeline
from hullcast.broker.server.queries import Queries
from hullcast.broker.server.releases import Releases
from hullcast.broker.server.retention import Retention
from hullcast.broker.server.storage import Storage
from hullcast.broker.server.streams import HiddenStreams, StreamsProcess
from hullcast.broker.server.subscribing import Subscribing
from hullcast.broker.server.warehouse import ViewMaking, Warehouse
from hullcast.network.link.listener import Listener
from hullcast.network.monitor.pauses import Pauses
from hullcast.network.node.children import Children
from hullcast.network.node.stopping import Stopping
from hullcast.network.routing.router import Router
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    import zmq

    from hullcast.broker.server.settings import ServerSettings
    from hullcast.network.link.peer import Peer
    from hullcast.network.security.curve import Curve
    from hullcast.network.security.rights import Rights
    from hullcast.network.wire.frames import Request

log = logger(__name__)

#: Seconds between two rounds: progress to the children, channels to close, checkpoints.
ROUND_S = 0.1


class Server:
    """The database server of an overlay: root of the tree, and the one place where rows change."""

    def __init__(
        self,
        settings: ServerSettings,
        rights: Rights,
        *,
        curve: Curve | None = None,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Recovers the tables, which may take long: `say` hears how far that is. In any thread, while no other uses
        the server."""
        self.settings = settings
        self.id, self.epoch = os.urandom(16), os.urandom(16)
        self.started = time.monotonic()
        self.working = Working()
        self.storage = storage = Storage(settings, self.working, say)
        engine = self.engine = storage.engine
        self.log = storage.log
        if settings.data is not None:
            engine.channels.coefficients = stored_coefficients(settings.data)
        engine.channels.at_once = False  # long work is left to `Housekeeping`
        try:
            self.listener = Listener(
                settings.listen,
                limits=settings.link.limits(settings.max_children),
                curve=curve,
                allow=lambda key: self.children.rights.knows(key),  # noqa: PLW0108  (there are none yet)
                insecure=settings.security.insecure,
                context=context,
            )
        except BaseException:
            storage.close()
            raise
        router = Router(settings.cover_budget, everything=not settings.prune, tells=False)
        self.children = Children(self.listener, router, rights, self)
        self.children.through = engine.seq
        self._make_ways_out(settings)
        self._make_changes(settings)
        self._make_answers(settings)
        self.pauses = Pauses()
        self.stopping = Stopping()
        self.nodes = Nodes(self.children, self.epoch, self.id)
        followers = (self.housekeeping, self.warehouse, self.streams)
        self.releases = Releases(self.children, self.pipeline, self.leaving, followers)
        self.hall = Hall(self)

    def _make_ways_out(self, settings: ServerSettings) -> None:
        linger_s = settings.channel_linger_s
        self.pipeline = Pipeline(self.log, settings.pending_bytes)
        self.retention = Retention(settings.retention_bytes)
        asked = partial(partitions_asked, self.children, self.pipeline)
        self.attendance = Attendance(self.engine, self.retention, linger_s, asked, settings.channels_per_client)
        self.leaving = Leaving(self.children, self.pipeline, self.attendance, linger_s)
        self.commits = Commits(self.pipeline, self.children, self.leaving, self.storage.space)
        self.jobs = Jobs(self.working, self.pipeline.fail)

    def _make_changes(self, settings: ServerSettings) -> None:
        engine, storage = self.engine, self.storage
        due = self._conditionals_due = asyncio.Event()
        self.conditionals = Conditionals(engine, self.attendance, settings.max_conditionals, due.set)
        ways = (storage.for_queries, self.commits, lambda: self.changing)
        self.streams = StreamsProcess(engine, self.log, *ways, settings)
        known = (self.attendance, self.conditionals, self.leaving.wanted)
        ends = (settings.batch_rows, self.streams, self.commits)
        self.changing: Changing = Changing(engine, storage.publishers, *known, *ends)
        self.housekeeping = Housekeeping(self.changing, self.commits, self.pipeline, self.working)
        self.hidden = HiddenStreams(engine, self.attendance, settings.channel_linger_s, self.changing, self.streams)
        self.windows = WindowLimits(engine, settings.stream_window_bytes)

    def _make_answers(self, settings: ServerSettings) -> None:
        engine, storage = self.engine, self.storage
        known = (self.attendance, self.conditionals)
        self.subscribing = Subscribing(engine, self.epoch, *known, settings, self._make_for)
        self.warehouse = Warehouse(engine, storage.for_queries, settings)
        self.describing = Describing(engine, *known, self.warehouse.status, self.streams.explain)
        self.queries = Queries(engine, self.warehouse, self.jobs, storage.space)
        self.views = ViewMaking(engine, self.warehouse)
        self.history = HistoryReads(settings.name, engine, storage.directory, self.log)
        ways = (self.queries, self.working, self.jobs)
        self.evaluating = Evaluating(
            engine, *ways, self.conditionals, self.changing, self.commits, self.windows.admit, self._conditionals_due
        )

    def _make_for(self, sql: str, owner: str) -> None:
        self.hidden.make_for(sql, owner)
        self.windows.admit(sql, owner)

    now = staticmethod(time.monotonic)

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def endpoint(self) -> str:
        return self.settings.advertise or self.listener.endpoint

    async def run(self, started: asyncio.Event | None = None) -> None:
        """Serve until cancelled. When it returns or raises, no task, socket, thread or file is left."""
        self.pipeline.begin(self.releases.release)
        tasks: list[asyncio.Task[None]] = []
        sound = False
        try:
            self.listener.start(self.children)
            self.nodes.tell(self.endpoint, time.monotonic())
            tasks.append(asyncio.create_task(self._rounds(), name="server.rounds"))
            for part in (self.leaving, self.evaluating, self.working, self.pauses):
                tasks.append(asyncio.create_task(part.run(), name=f"server.{type(part).__name__}"))
            if started is not None:
                started.set()
            log.info("serving", extra={"endpoint": self.endpoint, "seq": self.engine.seq})
            ends = (*tasks, self.pipeline.failed, self.listener.failed)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                if end.done():
                    end.result()
        except asyncio.CancelledError:
            sound = True  # a stop that was asked for: nothing is wrong with the engine
            raise
        finally:
            self.hall.stopping = True
            stopping = self.stopping
            asked_at = stopping.begin(time.monotonic())
            stopping.busy = "ending requests"
            await asyncio.gather(self.history.stop(), self.jobs.stop())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.queries.close()
            stopping.busy = "ending its processes, and what is being written to its files"
            await asyncio.gather(self.warehouse.stop(), self.streams.stop(), self.storage.stop(asked_at))
            stopping.busy = "syncing the log"
            self.hall.apply_arrived()
            await self.pipeline.stop()
            stopping.busy = "sending last replies and messages"
            self.releases.close()
            await self.listener.stop()
            try:
                if sound and self.pipeline.sound and not self.engine.changes.broken:  # a large batch may be half-way
                    stopping.busy = "leaving a checkpoint"
                    await self.storage.leave_checkpoint()
            finally:
                stopping.busy = "closing its files"
                self.storage.close()
                stopping.busy = "ending its threads"

    async def _rounds(self) -> None:
        while True:
            await asyncio.sleep(ROUND_S)
            now = time.monotonic()
            if next(iter(self.pipeline), None) is None and not self.releases.sending:
                self.children.through = self.engine.seq
            self.children.tell_progress()
            self.retention.expire(now - self.settings.retention_s)
            self.subscribing.expire(now)
            self.engine.tidy()
            self.changing.forget_swept()
            self.attendance.expire(now)
            self.attendance.close_deserted(self.leaving.wanted(), now)
            self.conditionals.expire(now)
            self.hidden.expire(now)
            self.housekeeping.on_release()
            self.housekeeping.keep_up((*(one.channel for one in self.attendance), *self.conditionals.channels()))
            self.nodes.tell(self.endpoint, now)
            self.queries.expire(now)
            self.warehouse.watch(now)
            self.streams.watch(now)
            self.history.watch(now)
            self.storage.keep_behind(self.streams.needed_behind())
            self.storage.keep_up(now)
            self.commits.tell_of_disk()

    # --- called by the children --------------------------------------------------------------------------------

    def on_request(self, peer: Peer, request: Request) -> None:
        self.hall.on_request(request)

    def on_quiet(self) -> None:
        """All that had arrived was read: apply it, and let the log begin."""
        self.leaving.forgo_withdrawn()
        self.hall.apply_arrived()
        self.pipeline.start()

    def on_children_changed(self) -> None:
        """Somebody came, or left; nodes report by themselves."""

    def on_gone(self, peer: Peer) -> None:
        """Nobody waits any more for what was asked by a link."""
        self.jobs.gone((peer.number,))
        self.leaving.links_gone((peer.number,))

    # --- called by operators -----------------------------------------------------------------------------------

    def take_rights(self, rights: Rights) -> None:
        """Take over a new allow list: all clients subscribe again, and keep what is still allowed."""
        self.children.take_rights(rights)
        self.children.reset("rights", "the allow list was read again", fresh_link=False)

    def ready(self) -> str | None:
        """Why the server cannot do all that it should, if so."""
        full = self.commits.disk_full()
        return self.missing() or (None if full is None else f"disk full: publishes refused ({full})")

    def missing(self) -> str | None:
        return None if self.pipeline.sound else "starting"
