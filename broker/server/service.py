"""The server: owns the sockets, the log's thread and the rounds around the engine; the brain decides."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hullcast.broker.server.attendance import Attendance
from hullcast.broker.server.brain import Brain
from hullcast.broker.server.calibration import stored_coefficients
from hullcast.broker.server.changing import TOGETHER_ROWS, Arrived
from hullcast.broker.server.conditionals import Conditionals
from hullcast.broker.server.derived import HiddenStreams
from hullcast.broker.server.evaluating import Evaluating
from hullcast.broker.server.history import HistoryReads
from hullcast.broker.server.outcome import Outcome
from hullcast.broker.server.pipeline import Pipeline, Step
from hullcast.broker.server.queries import Queries
from hullcast.broker.server.receipts import OwedReceipts
from hullcast.broker.server.retention import Retention
from hullcast.broker.server.status import server_status
from hullcast.broker.server.storage import Storage
from hullcast.broker.server.streams import StreamsProcess
from hullcast.broker.server.subscribing import Limits
from hullcast.broker.server.views import ViewMaking
from hullcast.broker.server.warehouse import Warehouse
from hullcast.broker.server.windows import WindowLimits
from hullcast.broker.server.working import Working
from hullcast.broker.sql.create import CreateDerived, parse_statement
from hullcast.broker.warehouse.messages import DiskLimits, QueryLimits
from hullcast.broker.warehouse.policies import POLICIES
from hullcast.network.link.listener import Listener
from hullcast.network.monitor.pauses import Pauses
from hullcast.network.node.children import Children
from hullcast.network.routing.router import Router
from hullcast.network.security.rights import is_public_key
from hullcast.network.wire import bodies
from hullcast.network.wire.bodies import Done, Failed
from hullcast.network.wire.columns import concatenate
from hullcast.network.wire.errors import (
    BadFrame,
    ConnectionLost,
    DiskFull,
    HullcastError,
    NotPermitted,
    Overloaded,
    TooLarge,
    Unavailable,
    to_wire,
)
from hullcast.network.wire.fields import ID_BYTES
from hullcast.network.wire.frames import LONGEST_ROUTE, Directory, NodeEntry, Reply, Request
from hullcast.network.wire.limits import DEFAULT
from hullcast.network.wire.logs import logger
from hullcast.network.wire.value_columns import most_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import zmq

    from hullcast.broker.log.recovery import DataDirectory
    from hullcast.broker.reformulate.result import Result
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.server.conditionals import Conditional
    from hullcast.broker.server.settings import ServerSettings
    from hullcast.broker.server.subscribing import Prepared
    from hullcast.broker.streams.messages import MadeTuples
    from hullcast.network.link.peer import Peer
    from hullcast.network.security.curve import Curve
    from hullcast.network.security.rights import Rights
    from hullcast.network.wire.arrays import Booleans, Floats
    from hullcast.network.wire.columns import Columns
    from hullcast.network.wire.frames import Origin

log = logger(__name__)

#: Seconds between two rounds: progress to the children, channels to close, checkpoints.
ROUND_S = 0.1
#: How long results of joins wait for a sync that is made for others.
RESULTS_PATIENCE_S = 0.005
#: A node that has not reported for this long is neither shown nor offered to clients.
REPORT_VALID_S = 5.0
#: Nodes that may report; more are served, but not shown.
MOST_NODES = 10_000
#: Characters of a name or endpoint in the directory that all clients get.
LONGEST_TEXT = 256
#: What nodes count, and report.
REPORTED_COUNTS = (
    "reattached", "through", "clients", "nodes", "subscriptions", "channels", "messages", "routed", "filtered",
    "delivered_messages", "delivered_bytes", "refused", "too_large", "queued_bytes", "fullest_bytes", "up_bytes",
    "greedy_refused", "skipped_reports",
)  # fmt: skip
#: Bytes of ranges handed to a channel at once, about.
RANGES_BYTES = 1 << 20
#: About how long it takes to let tuples leave a window or a stream, once; and how often that is done for one sync.
SETTLE_COST_S, SETTLED_TOGETHER = 0.002, 4
#: Rows and bytes of the answer to one query.
ROW_LIMIT, ANSWER_BYTES = 1_000_000, 512 << 20
#: Texts read in one go, to find out whether one of them is a join over streams: a few milliseconds each.
READ_AT_ONCE = 4
#: Rounds remembered: what a node's lag is measured with, up to a minute.
HISTORY = 600


class Server:
    """The database server of an overlay: root of the tree, and the one place where rows change.

    `run` serves until cancelled; when it returns or raises, no task, socket, thread or file is left.
    """

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
        self.id = os.urandom(16)
        self.epoch = os.urandom(16)
        self.started = time.monotonic()
        self.working = Working()
        self.storage = Storage(settings, self.working, say)
        self.engine, self.log = self.storage.engine, self.storage.log
        if settings.data is not None:
            self.engine.plan_with(stored_coefficients(settings.data))
        self.engine.leave_upkeep()
        try:
            self.listener = Listener(
                settings.listen,
                limits=settings.link.limits(settings.max_children),
                curve=curve,
                allow=self._knows,
                insecure=settings.security.insecure,
                context=context,
            )
        except BaseException:
            self.storage.close()
            raise
        router = Router(settings.cover_budget, everything=not settings.prune, tells=False)
        self.children = Children(self.listener, router, rights, self)
        self.children.through = self.engine.seq
        self.retention = Retention(settings.retention_bytes)
        self.attendance = Attendance(self.engine, settings.channel_linger_s, self._asked, settings.channels_per_client)
        self.conditionals = Conditionals(self.engine, self.attendance, settings.max_conditionals)
        self.brain = Brain(
            self.engine,
            self.epoch,
            self.storage.publishers,
            lambda: self.children.rights,
            self.attendance,
            self.retention,
            lambda: server_status(self),
            self._wanted,
            limits=Limits(
                settings.batch_rows,
                settings.subscribe_rows,
                settings.subscribe_groups,
                settings.max_channels,
                settings.link.queue_bytes,
            ),
            conditionals=self.conditionals,
            durable=settings.data is not None,
            feeds=lambda: self.warehouse.status(),  # noqa: PLW0108  (there is none yet)
        )
        self.hidden = HiddenStreams(self.engine, self.attendance, settings.channel_linger_s, self._execute_own)
        self.windows = WindowLimits(self.engine, settings.stream_window_bytes)
        self.brain.subscribing.make_for = self._make_for
        self.brain.changing.on_drop = self.hidden.close_now
        self.brain.changing.on_unsettled = self._settle_on
        self._settling = False
        self._settled_unsent = 0
        self.streams = StreamsProcess(
            self.engine,
            self.log,
            self.storage.for_queries,
            self._append_results,
            self._mark_gap,
            self._note_consumed,
            lambda: self.pipeline is None or self.pipeline.held or self.disk_full() is not None,
            policy=settings.stream_policy,
            limit_bytes=settings.stream_queue_bytes,
            memory_bytes=settings.stream_memory_bytes,
        )
        self.engine.joins_need = self.streams.needs
        self.hidden.check_room = self.brain.changing.on_derive = self.streams.check_room
        self.brain.changing.on_advance = self.streams.advanced
        self.brain.changing.check_disk = self._check_disk
        self.brain.changing.refuse_more = self.streams.refuse_more
        self.brain.explain_derived = self.streams.explain
        self.warehouse = Warehouse(
            self.engine,
            self.storage.for_queries,
            places=settings.warehouse_processes,
            limits=QueryLimits(settings.query_s, settings.query_memory_bytes, ROW_LIMIT, ANSWER_BYTES),
            policy=settings.warehouse_policy,
            disk=DiskLimits(settings.warehouse_file_bytes, 0 if settings.data is None else settings.reserve_bytes),
        )
        self.queries = Queries(
            self.engine,
            self.warehouse,
            lambda origin, tables: self.brain.check(origin, "query", self.engine.spelt(tables)),
            self._refused_query,
            lambda request, body: self._put(request, Outcome(body, ordered=True, on_disk=True)),
            self._answer_at_once,
            self.storage.space,
        )
        self.views = ViewMaking(self.engine, self.warehouse, self._execute, self._refuse_change)
        self.evaluating = Evaluating(
            self.engine,
            self.queries,
            self.working,
            self.conditionals,
            self._deliver_result,
            lambda: self.pipeline is None or self.pipeline.held,
        )
        self.evaluating.make_for = self.windows.admit
        self.history = HistoryReads(
            settings.name,
            self.engine,
            self.storage.directory,
            self.log,
            lambda origin, tables: self.brain.check(origin, "query", tables),
            self._refused_query,
            self._answer_at_once,
        )
        self.receipts = OwedReceipts(self.children.answer)
        self.pauses = Pauses()
        self._arrived: list[Arrived] = []  # publishes that have been read in this turn of the loop
        self._arrived_rows = 0
        self.pipeline: Pipeline | None = None
        self.requests = 0
        self._stopping = False
        self._told_full = False
        self._preparing: set[asyncio.Task[None]] = set()
        self._ranges_left = asyncio.Event()
        self._history: deque[tuple[float, int]] = deque(maxlen=HISTORY)  # when everything up to where had been sent
        self._reports: dict[str, tuple[float, dict[str, object]]] = {}
        self._nodes: tuple[NodeEntry, ...] = ()

    @property
    def name(self) -> str:
        """What it is called."""
        return self.settings.name

    @property
    def endpoint(self) -> str:
        """Where children dial."""
        return self.settings.advertise or self.listener.endpoint

    def _knows(self, key: str) -> bool:
        return self.children.rights.knows(key)

    async def run(self, started: asyncio.Event | None = None) -> None:
        """Serve until cancelled."""
        self.pipeline = Pipeline(self.log, self._release, self.settings.pending_bytes)
        tasks: list[asyncio.Task[None]] = []
        sound = False
        try:
            self.listener.start(self.children)
            self._tell_directory()
            for work in (
                self._rounds,
                self._forgo_ranges,
                self.queries.run,
                self.evaluating.run,
                self.history.run,
                self.working.run,
                self.pauses.run,
            ):
                tasks.append(asyncio.create_task(work(), name=f"server.{work.__qualname__}"))
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
            self._stopping = True
            tasks += self._preparing
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.streams.stop()
            await self.views.stop()
            await self.storage.stop()
            self._publish_arrived()
            await self.pipeline.stop()
            self.receipts.close()
            await self.listener.stop()
            try:
                if sound and not self.pipeline.failed.done():
                    await self.storage.leave_checkpoint()
            finally:
                self.storage.close()

    async def directory_for_queries(self) -> DataDirectory:
        """The files to read rows from: its `path`, its `identity`, and `log.synced_seq`, which is how far the log there
        can be read. All that was acknowledged before the call is in them."""
        return await self.storage.for_queries()

    def ready(self) -> str | None:
        """Why the server cannot do all that it should, if so."""
        full = self.disk_full()
        return self.missing() or (None if full is None else f"disk full: publishes refused ({full})")

    def missing(self) -> str | None:
        """Why the server cannot serve, if it cannot."""
        return None if self.pipeline is not None and not self.pipeline.failed.done() else "starting"

    def disk_full(self) -> DiskFull | None:
        """Why changes are refused, if the disk has no room for them; the rest goes on."""
        if self.pipeline is None or self.storage.space is None:
            return None
        return self.pipeline.stuck or self.storage.space.log_full(self.pipeline.waiting_bytes)

    def _check_disk(self) -> None:
        full = self.disk_full()
        if full is not None:
            raise DiskFull(*full.args)

    # --- requests ----------------------------------------------------------------------------------------

    def on_request(self, peer: Peer, request: Request) -> None:
        """Do what a child, or a client below it, asks for."""
        assert self.pipeline is not None, "the listener starts after the pipeline"
        assert request.origin is not None, "Children fills it in"
        self.requests += 1
        self._forgo_withdrawn()
        origin, owner = request.origin, owner_of(request)
        unavailable: Unavailable | None = None
        if self._stopping:
            unavailable = ConnectionLost("the server is stopping")
        elif self.pipeline.full:
            unavailable = Overloaded("bytes of changes waiting for the disk", self.settings.pending_bytes)
        if unavailable is not None:
            self._refuse_at_once(request, owner, unavailable)
            return
        try:
            self.brain.check_unread(request)
            body = bodies.decode(request.body)
            if self.pipeline.stuck is not None and isinstance(body, _WAITS):
                self._check_disk()
            if isinstance(body, bodies.Subscribe):
                self.brain.subscribing.check_size(body)
            if isinstance(body, bodies.Publish):
                self._gather(Arrived(body, request))
                return
            self._publish_arrived()  # what was asked before this is done before it
            if isinstance(body, bodies.NodeReport) and not request.id:  # `Children` lets only nodes send one
                self._take_report(body)
            elif isinstance(body, bodies.Query):
                self.brain.check(origin, "query")
                self.queries.put(request, body, owner)
            elif isinstance(body, bodies.Subscribe) and body.ticket is None and _conditional(body):
                self._prepare(request, body, owner)
            elif isinstance(body, bodies.FetchRows):
                self.queries.fetch(request, body, owner)
            elif isinstance(body, bodies.Execute) and self._makes_view(request, body, owner):
                pass  # it is executed when the view is made
            elif self._awaits_files(request, body, owner):
                pass  # it is done when they are there
            elif self._let_go(body, request, owner):
                pass
            elif isinstance(body, bodies.SetPolicy):
                self._put(request, Outcome(self._policy(body, origin)))
            elif isinstance(body, bodies.AskHistory):
                self._put(request, Outcome(self.history.span(body, origin)))
            elif isinstance(body, bodies.ReadChanges | bodies.ReadTable):
                self.history.put(request, body, owner)
            else:
                self._begin(request, self.brain.work(body, request, owner, time.monotonic), owner)
        except HullcastError as error:
            self._put(request, self.brain.refusal(error, origin))
        except Exception as error:  # noqa: BLE001  (`failure` raises it, if the engine's state is in doubt)
            self._put(request, self.brain.failure(error, "request"))

    def _makes_view(self, request: Request, body: bodies.Execute, owner: str) -> bool:
        """Begin to make the view that a statement creates; False if it creates none, or its sender may not."""
        assert request.origin is not None
        try:
            self.brain.check(request.origin, "admin")
        except NotPermitted:
            return False
        return self.views.put(request, body, owner)

    def _awaits_files(self, request: Request, body: bodies.Body, owner: str) -> bool:
        """Make the files that the streams process reads, if there are none and a request needs the process: what comes
        behind the request must be in them. Only a server without a data directory has none."""
        if self.storage.has_files or not self._derives(body):
            return False
        assert isinstance(body, bodies.Execute | bodies.Subscribe)
        task = asyncio.create_task(self._with_files(request, body, owner), name="server.files")
        self._preparing.add(task)
        task.add_done_callback(self._preparing.discard)
        return True

    def _derives(self, body: bodies.Body) -> bool:
        """Whether a request makes a derived stream."""
        with contextlib.suppress(HullcastError):  # whoever does the request words it
            if isinstance(body, bodies.Execute):
                return isinstance(parse_statement(body.sql), CreateDerived)
            if isinstance(body, bodies.Subscribe):
                texts = [group.sql for group in body.groups if group.trigger is None and _may_join(group.sql)]
                if not self.engine.streams or len(texts) > READ_AT_ONCE:  # the files are made in vain, perhaps
                    return bool(self.engine.streams)
                return any(self.engine.join_to_make(sql) is not None for sql in texts)
        return False

    async def _with_files(self, request: Request, body: bodies.Execute | bodies.Subscribe, owner: str) -> None:
        assert request.origin is not None
        try:
            await self.storage.for_queries()
            self._publish_arrived()
            self._begin(request, self.brain.work(body, request, owner, time.monotonic), owner)
        except HullcastError as error:
            if isinstance(body, bodies.Execute):
                self._refuse_change(request, body, error)
            else:
                self._put(request, self.brain.refusal(error, request.origin))
        except Exception as error:  # noqa: BLE001  (`failure` raises it, if the engine's state is in doubt)
            self._put(request, self.brain.failure(error, "request"))

    def _execute(self, request: Request, body: bodies.Execute, owner: str) -> None:
        """Do a statement whose view is made."""
        self._publish_arrived()
        self._begin(request, self.brain.work(body, request, owner, time.monotonic), owner)

    def _refuse_change(self, request: Request, body: bodies.Execute, error: HullcastError) -> None:
        assert request.origin is not None
        self.brain.changing.refuse(body, request, error)
        self._put(request, self.brain.refusal(error, request.origin))

    def _refuse_at_once(self, request: Request, owner: str, why: Unavailable) -> None:
        """Past the pipeline, which is being emptied, or has no room for refusals either. But what only ends something
        makes room."""
        if bodies.only_ends(request.body):
            with contextlib.suppress(BadFrame):
                if self._let_go(bodies.decode(request.body), request, owner):
                    return
        if request.id:
            self.children.answer(Reply(request.id, request.route, (), bodies.encode(Failed(*to_wire(why)))))

    def _let_go(self, body: bodies.Body, request: Request, owner: str) -> bool:
        """Whether a request only says that nobody waits for an answer any more; there is no reply to that."""
        match body:
            case bodies.GiveUp():
                self.queries.give_up(request)
                self.views.give_up(request)
            case bodies.DropRows():
                self.queries.drop(body, owner)
            case bodies.LinksGone(links) if not request.id:  # `Children` lets only nodes send one
                self.queries.gone(links, request.route)
                self.views.gone(links, request.route)
                self.attendance.shares.lose(links, request.route, time.monotonic())
            case bodies.Left(groups) if not request.id:
                self._release_shares(groups, request.route)
            case _:
                return False
        return True

    def _gather(self, arrived: Arrived) -> None:
        """A publish waits until all that has arrived by now was read: then they are applied together. Not when they
        are many rows already: then others shall have their turn in between."""
        self._arrived.append(arrived)
        self._arrived_rows += most_rows(arrived.body.columns)
        if self._arrived_rows >= TOGETHER_ROWS:
            self._publish_arrived()

    def on_quiet(self) -> None:
        """All that had arrived was read: apply it, and let the log begin."""
        self._forgo_withdrawn()
        self._publish_arrived()
        if self.pipeline is not None:
            self.pipeline.start()

    def _publish_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        self._arrived_rows = 0
        if not arrived:
            return
        try:
            for one, outcome in zip(arrived, self.brain.publish(arrived, time.monotonic()), strict=True):
                self._put(one.request, outcome)
        except Exception as error:  # noqa: BLE001  (rows may have changed without a record of it)
            self._fail(error)

    def _begin(self, request: Request, work: Work, owner: str) -> None:
        """Do a request, at once if it is done in a slice; otherwise others have their turns in between."""
        try:
            yielded = work.send(None)
        except StopIteration as stop:
            self._put(request, stop.value)
            return

        def done(outcome: Outcome, error: BaseException | None) -> None:
            if error is not None:  # only where the engine's state is in doubt
                self._fail(error)
                return
            try:
                self._put(request, outcome)
            except Exception as bug:  # noqa: BLE001  (it fails this request only)
                self._put(request, self.brain.failure(bug, "reply"))

        try:
            self.working.put(owner, work, done, len(request.body), yielded)
        except Overloaded:
            work.close()
            raise

    def _prepare(self, request: Request, body: bodies.Subscribe, owner: str) -> None:
        """Subscribe as soon as the conditionals among the groups are there."""
        assert request.origin is not None

        def ready(prepared: Prepared) -> None:
            try:
                self._begin(request, self.brain.work(body, request, owner, time.monotonic, prepared), owner)
            except HullcastError as error:
                self._put(request, self.brain.refusal(error, origin))
            except Exception as error:  # noqa: BLE001  (`failure` raises it, if the engine's state is in doubt)
                self._put(request, self.brain.failure(error, "request"))

        origin = request.origin
        self.evaluating.put(body, self.brain.may(origin), owner, request.route[-1], ready)

    def _deliver_result(self, conditional: Conditional, result: Result) -> None:
        """A conditional subscription was run: its result has its turn among the changes of others."""
        assert self.pipeline is not None
        try:
            outcome = self.brain.changing.deliver(conditional.channel, result, time.monotonic())
            if outcome is not None:
                self.conditionals.told(conditional)
                self.pipeline.put(Step(_OURS, outcome, b""))
        except Exception as error:  # noqa: BLE001  (a number may be used up without a record of it)
            self._fail(error)

    def _append_results(self, stream: str, made: MadeTuples) -> None:
        """Results of a derived stream have their turn among the changes of others."""
        assert self.pipeline is not None
        try:
            outcome = self.brain.changing.append(stream, made, time.monotonic())
            for one in (outcome, *outcome.then):
                self.pipeline.put(Step(_OURS, one, b""), RESULTS_PATIENCE_S)
        except Exception as error:  # noqa: BLE001  (tuples may be there without a record of them)
            self._fail(error)

    def _make_for(self, sql: str, owner: str) -> None:
        """Make what a subscription needs; TooLarge or Overloaded if there is too much of it."""
        self.hidden.make_for(sql, owner)
        self.windows.admit(sql, owner)

    def _settle_on(self) -> None:
        """Go on to let tuples leave streams and windows, if some are left that must; in turn with other long work."""
        if self._settling or self._stopping or not self.brain.changing.unsettled:
            return
        try:
            self.working.put("streams", self._settle(), self._settled)
        except Overloaded:
            return  # another time
        self._settling = True

    def _settle(self) -> Work:
        """Ends when none are left, or when so many wait for the disk that they should leave first: what one sync lets
        go is sent in one go."""
        assert self.pipeline is not None
        while self._settled_unsent < SETTLED_TOGETHER and not self.pipeline.held:
            outcomes = self.brain.changing.settle(time.monotonic())
            if not outcomes:
                return
            self._settled_unsent += len(outcomes)
            for outcome in outcomes:
                self.pipeline.put(Step(_SETTLING, outcome, b""))
            yield SETTLE_COST_S

    def _settled(self, _: object, error: BaseException | None) -> None:
        self._settling = False
        if error is not None:  # numbers may be used up without a record of it
            self._fail(error)

    def _mark_gap(self, stream: str, why: str, goes_on: tuple[float, int] | None) -> None:
        """Results of a derived stream are missing: that, too, has its turn among the changes of others."""
        assert self.pipeline is not None
        try:
            for outcome in self.brain.changing.gap(stream, why, goes_on, time.monotonic()):
                self.pipeline.put(Step(_OURS, outcome, b""))
        except Exception as error:  # noqa: BLE001  (a number may be used up without a record of it)
            self._fail(error)

    def _note_consumed(self, stream: str) -> None:
        """Let the log say how far a derived stream is."""
        assert self.pipeline is not None
        for outcome in self.brain.changing.note_consumed([stream]):
            self.pipeline.put(Step(_OURS, outcome, b""))

    def _execute_own(self, sql: str) -> None:
        """Do a statement of the server's own, in its turn among the changes of others."""
        assert self.pipeline is not None
        self.pipeline.put(Step(_OURS, self.brain.changing.execute_own(sql), b""))

    def _fail(self, error: BaseException) -> None:
        """The engine's state is in doubt: `run` raises this, and the server stops."""
        assert self.pipeline is not None
        if not self.pipeline.failed.done():
            self.pipeline.failed.set_exception(error)

    def _refused_query(self, error: HullcastError, request: Request) -> bytes:
        assert request.origin is not None
        reply = self.brain.refusal(error, request.origin).reply
        return reply if isinstance(reply, bytes) else bodies.encode(reply)

    def _answer_at_once(self, request: Request, body: bytes) -> None:
        """Answer with rows that are on disk: they need not wait behind what is not."""
        self.children.answer(Reply(request.id, request.route, (), body))
        self.listener.flush()

    def _policy(self, body: bodies.SetPolicy, origin: Origin) -> bodies.Information:
        """Switch a policy, if one is named; which one decides, and which there are."""
        if body.name:
            self.brain.check(origin, "admin")
            (self.streams if body.of == "streams" else self.warehouse).switch(body.name)
        if body.of == "streams":
            return bodies.Information(self.streams.policy_facts())
        status = self.warehouse.status()
        policies = {policy.name: policy.about for policy in POLICIES.values()}
        return bodies.Information(
            {
                "policy": status["policy"],
                "counters": status["counters"],
                "policies": policies,
            }
        )

    def on_children_changed(self) -> None:
        """Somebody came, or left; nodes report by themselves."""

    def on_gone(self, peer: Peer) -> None:
        """Nobody waits any more for what was asked by a link."""
        self.queries.gone((peer.number,))
        self.views.gone((peer.number,))
        self.attendance.shares.lose((peer.number,), (), time.monotonic())
        self.evaluating.stay_with(self.children.peers)
        self.history.stay_with(self.children.peers)

    def _put(self, request: Request, outcome: Outcome) -> None:
        assert self.pipeline is not None
        if outcome.entry is None and request.body:  # only the log needs it; the reply may wait for long
            request = request._replace(body=b"")
        try:
            sent, reply = _encoded(outcome)
        except BaseException:
            self._forgo(outcome)
            raise
        if sent is not outcome:
            self._forgo(outcome)
        else:
            self._share(request, outcome, 1)
        if isinstance(sent.reply, _ON_DISK):
            sent = replace(sent, on_disk=True)
        self.pipeline.put(Step(request, sent, reply, self.children.rights))
        for one in outcome.then:
            self.pipeline.put(Step(_OURS, one, b""))

    def _share(self, request: Request, outcome: Outcome, change: int) -> None:
        """The channels of an outcome count for who asked, unless it has gone; or they do no longer (-1)."""
        if outcome.installs and request.route[-1] in self.children.peers:
            owner, place, shares = owner_of(request), request.route[1:], self.attendance.shares
            for install in outcome.installs:
                if change > 0:
                    shares.hold(owner, place, install.channel)
                else:
                    shares.release(owner, place, install.channel, now=time.monotonic())

    def _release_shares(self, groups: Iterable[tuple[str, int, int]], route: tuple[int, ...]) -> None:
        """Groups of clients have gone, at the node at the end of the route (without one: of our own clients)."""
        now = time.monotonic()
        for owner, channel, count in groups:
            whole = owner if is_public_key(owner) else "/".join(map(str, (owner, *route)))
            self.attendance.shares.release(whole, route, channel, count, now)

    def _forgo(self, outcome: Outcome) -> None:
        """An outcome never leaves. The client may ask again."""
        until = time.monotonic() + self.settings.channel_linger_s
        for install in outcome.installs:
            if install.counted:
                self.attendance.forgo(install.channel, install.points, until)

    def _forgo_withdrawn(self) -> None:
        """Hand to their channels the ranges that the routing table has no neighbour for any more: those of closed
        subscriptions at once, those of lost ones after a while. Channels count less for the owners of what went."""
        left = self.children.router.left
        if left:
            self._release_shares([(owner, channel, count) for (owner, channel), count in left.items()], ())
            left.clear()
        withdrawals = self.children.router.withdrawals
        while withdrawals:
            channel, lost, points = withdrawals.take(RANGES_BYTES)
            until = time.monotonic() + self.settings.channel_linger_s if lost else None
            self.attendance.forgo(channel, points, until)
        if self.attendance.forgo_some():
            self._ranges_left.set()

    async def _forgo_ranges(self) -> None:
        """Where many ranges have gone: the others have their turns in between."""
        while True:
            await self._ranges_left.wait()
            self._ranges_left.clear()
            more = True
            while more:
                await asyncio.sleep(0)
                more = self.attendance.forgo_some()

    def _release(self, steps: list[Step]) -> None:
        """Send what a synced group leads to; the messages of consecutive batches go out as one."""
        gathered: dict[int, list[Columns]] = {}
        through = 0
        for request, outcome, reply, rights in steps:
            if outcome.installs and rights is not self.children.rights:  # what it installs may no longer be allowed
                again = Failed(*to_wire(ConnectionLost("the allow list was read again")))
                self._forgo(outcome)
                self._share(request, outcome, -1)
                outcome, reply = Outcome(again), bodies.encode(again)
            if outcome.ordered and through:
                self._deliver(through, gathered)
                through, gathered = 0, {}
            if outcome.through:
                through = outcome.through
                for channel, columns in outcome.messages.items():
                    gathered.setdefault(channel, []).append(columns)
            if outcome.void:
                self._deliver(through, gathered)
                through, gathered = 0, {}
                self.children.void(outcome.void)
            if request.id and isinstance(outcome.reply, Done) and outcome.reply.deleted is None:
                self.receipts.owe(request, outcome.reply)
            elif request.id:
                self.children.answer(Reply(request.id, request.route, outcome.installs, reply))
            else:
                self._forgo(outcome)
                self._share(request, outcome, -1)
            self._settled_unsent -= request is _SETTLING
        if through:
            self._deliver(through, gathered)
        self._settle_on()
        self.receipts.settle()
        self._forgo_withdrawn()
        self.listener.flush()
        self.warehouse.on_release()
        self.streams.on_release()

    def _deliver(self, through: int, gathered: dict[int, list[Columns]]) -> None:
        self.children.deliver(through, {channel: concatenate(batches) for channel, batches in gathered.items()})

    def take_rights(self, rights: Rights) -> None:
        """Take over a new allow list: all clients subscribe again, and keep what is still allowed."""
        self.children.take_rights(rights)
        self.children.reset("rights", "the allow list was read again", fresh_link=False)

    def _wanted(self) -> set[int]:
        """The channels in use, including those whose reply has not left yet."""
        self._forgo_withdrawn()  # a channel that is closed hears of no ranges any more
        coming = {install.channel for step in self.pipeline or () for install in step.outcome.installs}
        return coming.union(self.children.router.channels())

    def _asked(self, channel: int, partitions: Floats) -> Booleans:
        """Which partition numbers subscribers elsewhere use, including those whose reply has not left yet."""
        held = self.children.router.partitions_held(channel, partitions)
        for step in self.pipeline or ():
            for install in step.outcome.installs:
                if install.channel == channel:
                    held |= np.isin(partitions, install.points[:, -1])
        return held

    # --- rounds ------------------------------------------------------------------------------------------

    async def _rounds(self) -> None:
        assert self.pipeline is not None
        while True:
            await asyncio.sleep(ROUND_S)
            now = time.monotonic()
            if next(iter(self.pipeline), None) is None:  # nothing waits for the disk
                self.children.through = self.engine.seq
            self._history.append((now, self.children.through))
            self.children.tell_progress()
            self.retention.expire(now - self.settings.retention_s)
            self.brain.subscribing.expire(now)
            self.brain.tidy()
            self.attendance.expire(now)
            for attending in self.attendance.close_deserted(self._wanted(), now):
                self.retention.close(attending.number)
            self.conditionals.expire(now)
            self.hidden.expire(now)
            self._settle_on()
            self._tell_directory()
            self._keep_up()
            self.queries.expire(now)
            self.warehouse.watch(now)
            self.streams.watch(now)
            self.history.watch(now)
            self.storage.keep_behind(self.streams.needed_behind())
            self.storage.keep_up(now)
            self._tell_of_disk()

    def _tell_of_disk(self) -> None:
        """Log when changes begin to be refused for want of room, and when they are accepted again."""
        full = self.disk_full()
        if (full is not None) != self._told_full:
            self._told_full = full is not None
            if full is not None:
                log.error("disk full: publishes refused", extra={"why": str(full)})
            else:
                log.warning("disk has room again: publishes accepted")

    def _keep_up(self) -> None:
        """Let channels do what makes changes cheaper, and would take too long while one is applied."""
        for channel in (*(attending.channel for attending in self.attendance), *self.conditionals.channels()):
            work = channel.upkeep()
            if work is None:
                continue
            try:
                self.working.put("upkeep", work, self._kept_up)
            except Overloaded:
                work.close()  # another time

    def _kept_up(self, _: object, error: BaseException | None) -> None:
        if error is not None:  # answers are the same without it
            self.brain.failure(error, "upkeep of a channel")

    def _take_report(self, report: bodies.NodeReport) -> None:
        try:
            facts = _checked(report.node)
        except (KeyError, ValueError) as error:
            log.warning("report refused", extra={"why": repr(error)})
            return
        key = str(facts["id"])
        if len(self._reports) < MOST_NODES or key in self._reports:
            self._reports[key] = (time.monotonic(), {**facts, "lag_s": self._lag_s(cast("int", facts["through"]))})

    def _lag_s(self, through: int) -> float:
        """How long ago a node that is complete up to `through` was up to date."""
        later = [at for at, reached in self._history if reached > through]
        return time.monotonic() - later[0] if later else 0.0

    def live_reports(self) -> list[dict[str, object]]:
        """The recent reports of nodes."""
        now = time.monotonic()
        self._reports = {key: (at, report) for key, (at, report) in self._reports.items() if now - at < REPORT_VALID_S}
        return [report for _, report in self._reports.values()]

    def _tell_directory(self) -> None:
        """Send the list of nodes to all children, if it has changed."""
        nodes = tuple(sorted(map(_entry, self.live_reports()), key=lambda node: node.id))
        places = [(node.id, node.endpoint, node.depth) for node in nodes]
        known = [(node.id, node.endpoint, node.depth) for node in self._nodes]
        if places != known or not self.children.has_directory:
            self._nodes = nodes
            self.children.tell_directory(Directory(self.epoch, ((self.id, self.endpoint),), nodes))


#: What cannot be answered while changes that were applied wait for room on the disk: it changes more, or shows them.
_WAITS = bodies.Publish | bodies.Delete | bodies.Execute | bodies.Subscribe | bodies.Sync
#: Replies that tell nothing of such changes.
_ON_DISK = bodies.Information | bodies.HistorySpan | Failed
#: What the server does of its own accord: a request that nobody waits for.
_OURS = Request(0, (), None, b"")
#: .. letting tuples leave streams and windows.
_SETTLING = Request(0, (), None, b"")


def _may_join(sql: str) -> bool:
    """Whether a text may be a join, at a glance."""
    _, _, behind = sql.lower().partition("from")
    return "join" in behind or "," in behind


def _conditional(body: bodies.Subscribe) -> bool:
    return any(group.trigger is not None for group in body.groups)


def _encoded(outcome: Outcome) -> tuple[Outcome, bytes]:
    """An outcome with its reply's bytes; one too large for a frame is refused. Receipts are encoded when they leave."""
    if isinstance(outcome.reply, Done) and outcome.reply.deleted is None:
        return outcome, b""
    try:
        body = outcome.reply if isinstance(outcome.reply, bytes) else bodies.encode(outcome.reply)
        size = len(body) + sum(install.points.nbytes + 64 for install in outcome.installs)
        if size > DEFAULT.body_bytes:
            raise TooLarge("bytes of this answer", size, DEFAULT.body_bytes)
    except TooLarge as error:
        refusal = Failed(*to_wire(error))
        return Outcome(refusal), bodies.encode(refusal)
    return outcome, body


def owner_of(request: Request) -> str:
    """The owner that a request is charged to: its key, or, where there are no keys, its connection."""
    assert request.origin is not None
    return request.origin.key or "/".join(map(str, request.route))


def _checked(report: Mapping[str, object]) -> dict[str, object]:
    """A report as everybody may rely on it: all that is shown is there, of its type and not too long, whatever the node
    says; KeyError or ValueError if it does not say who it is."""
    node = bytes.fromhex(str(report["id"]))
    if len(node) != ID_BYTES:
        raise ValueError(f"the id of a node has {ID_BYTES} bytes, not {len(node)}")
    path, counts = report.get("path"), {name: report.get(name) for name in REPORTED_COUNTS}
    return {
        "id": node.hex(),
        **{name: str(report.get(name, ""))[:LONGEST_TEXT] for name in ("name", "endpoint", "parent")},
        "path": [str(step)[:LONGEST_TEXT] for step in path[:LONGEST_ROUTE]] if isinstance(path, list) else [],
        "attached": bool(report.get("attached")),
        **{name: count if type(count) is int and 0 <= count < 1 << 63 else 0 for name, count in counts.items()},
    }


def _entry(report: Mapping[str, Any]) -> NodeEntry:
    """A node as clients learn of it, from its checked report."""
    clients = min(report["clients"], (1 << 31) - 1)
    return NodeEntry(bytes.fromhex(report["id"]), report["name"], report["endpoint"], len(report["path"]), clients)
