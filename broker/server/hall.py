"""The hall: every request comes in here, is checked, done in its lane, and answered.

    large and without any right? -> decoded -> room on the disk? -> what came before is applied -> its right
      -> what it waits for -> done: now, in slices, or elsewhere -> the outcome is committed, an error is a refusal

What is done with which request is said in `broker/server/requests.py`; no condition here knows one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hullcast.broker.queries.derived import is_hidden
from hullcast.broker.server.access import Access, Asked
from hullcast.broker.server.changing import TOGETHER_ROWS
from hullcast.broker.server.jobs import Room, ServerJob
from hullcast.broker.server.outcome import Outcome
from hullcast.broker.server.requests import HANDLERS, Lane, check_complete
from hullcast.network.wire import bodies, errors
from hullcast.network.wire.bodies import Failed
from hullcast.network.wire.logs import logger
from hullcast.network.wire.value_columns import most_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.server.jobs import Awaited
    from hullcast.broker.server.requests import Handler
    from hullcast.broker.server.service import Server
    from hullcast.network.wire.bodies import Publish
    from hullcast.network.wire.frames import Request

log = logger(__name__)

#: Bodies up to this are decoded whoever sends them: to decode a large one may take half a second of everybody's time.
LARGE_BYTES = 16 << 10
#: Requests that are done in slices.
WORK = Room("requests", waiting=4096, waiting_per_owner=1024, held_bytes=256 << 20)


class Hall:
    """Takes in requests, in the order in which they come. A request that is wrong is answered with `Failed`; a failure
    of ours (a bug) is raised when it may have left the engine half-changed, and answered when it cannot."""

    def __init__(self, server: Server) -> None:
        check_complete()
        self._server, self._commits, self._pipeline = server, server.commits, server.pipeline
        self._rights = lambda: server.children.rights  # a value that changes as a whole
        self._arrived: list[Asked[Publish]] = []  # publishes that have been read in this turn of the loop
        self._arrived_rows = 0
        self.requests = 0
        self.refused = 0  # requests that the sender had no right to
        self.failures = 0  # requests that failed through a fault of ours
        self.stopping = False

    def on_request(self, request: Request) -> None:
        self.requests += 1
        access, unavailable = Access(self._rights, request), self._unavailable()
        try:
            if unavailable is not None or len(request.body) > LARGE_BYTES:
                likely = HANDLERS.get(bodies.REQUESTS.get(bodies.tag_of(request.body), bodies.Body))  # at a glance
                if unavailable is not None and not (likely is not None and likely.ends):
                    self._commits.refuse(request, unavailable)
                    return
                if len(request.body) > LARGE_BYTES:
                    access.check_one_of(() if likely is None else likely.rights)
            body = bodies.decode(request.body)
            handler = HANDLERS.get(type(body))
            if handler is None or (handler.of_nodes and request.id):  # `Children` lets only nodes omit the id
                raise errors.UsageError(f"a {type(body).__name__} is not a request of a client")
            self._take(handler, Asked(body, request, access, handler.needed))
        except Exception as error:  # noqa: BLE001  (`refusal` raises it, if the engine's state is in doubt)
            if unavailable is not None and isinstance(error, errors.HullcastError):
                self._commits.refuse(request, unavailable)
            else:
                self._answer(request, access, self.refusal(error, access))

    def _unavailable(self) -> errors.Unavailable | None:
        if self.stopping:
            return errors.ConnectionLost("the server is stopping")
        if self._pipeline.full:
            return errors.Overloaded(
                "bytes of changes waiting for the disk (pending_bytes)", self._server.settings.pending_bytes
            )
        return None

    def _take(self, handler: Handler, asked: Asked[Any]) -> None:
        if handler.on_disk and self._pipeline.stuck is not None:
            self._commits.check_disk()
        if handler.together and self._gathers(asked):
            return
        self._server.leaving.forgo_withdrawn()
        self.apply_arrived()  # what was asked before this is done before it
        wait = handler.first(self._server, asked) if handler.first is not None else None
        if wait is not None:
            self._wait(handler, asked, wait)
        elif handler.lane is Lane.PROCESS:
            asked.allow()
            self._wait(handler, asked, handler.do(self._server, asked))
        else:
            self._do(handler, asked)

    def _answer(self, request: Request, access: Access, outcome: Outcome | None) -> None:
        if outcome is not None:
            self._commits.commit(outcome, request, access.owner)

    # --- publishes that arrived together -----------------------------------------------------------------------

    def _gathers(self, asked: Asked[Publish]) -> bool:
        """A publish waits until all that has arrived by now was read: then they are applied together. Not when they
        are many rows already: then others shall have their turn in between. False for one that is large, or must wait
        for a large change."""
        body, changing, rows = asked.body, self._server.changing, most_rows(asked.body.columns)
        held = self._server.engine.changes.held((body.table,))
        if held or changing.is_large(body, rows) or changing.is_behind(asked):
            return False
        self._arrived.append(asked)
        self._arrived_rows += rows
        if self._arrived_rows >= TOGETHER_ROWS:
            self.apply_arrived()
        return True

    def apply_arrived(self) -> None:
        arrived, self._arrived = self._arrived, []
        self._arrived_rows = 0
        if not arrived:
            return
        try:
            for one, outcome in zip(arrived, self.publish(arrived), strict=True):
                self._answer(one.request, one.access, outcome)
        except Exception as error:  # noqa: BLE001  (rows may have changed without a record of it)
            self._commits.fail(error)

    def publish(self, arrived: Sequence[Asked[Publish]]) -> list[Outcome]:
        """Apply publishes together; an outcome for each, whatever happens."""
        found = self._server.changing.publish(arrived, self._server.now())
        return [
            outcome if isinstance(outcome, Outcome) else self.refusal(outcome, one.access, "Publish")
            for one, outcome in zip(arrived, found, strict=True)
        ]

    # --- one request -------------------------------------------------------------------------------------------

    def _wait(self, handler: Handler, asked: Asked[Any], wait: Awaited) -> None:
        """Do a request when what it waits for has come; or answer with what has come."""
        request, access = asked.request, asked.access

        async def run() -> None:
            try:
                found = await wait.run()
                if handler.lane is not Lane.PROCESS:
                    self.apply_arrived()
                    self._do(handler, asked, found)
                    return
            except Exception as error:  # noqa: BLE001  (`refusal` raises it, if the engine's state is in doubt)
                found = self.refusal(error, access, type(asked.body).__name__)
            self._answer(request, access, found)

        def refuse(error: errors.HullcastError) -> None:
            self._answer(request, access, self.refusal(error, access))

        now, size = time.monotonic(), len(request.body)
        self._server.jobs.put(
            ServerJob(access.owner, now, size, wait.deadline, wait.room, request, run, refuse, wait.late)
        )

    def _do(self, handler: Handler, asked: Asked[Any], prepared: object = None) -> None:
        """Do a request, now if it is done in a slice; otherwise others have their turns in between."""
        request, access = asked.request, asked.access
        work = self.decide(handler, asked, prepared)
        try:
            yielded = work.send(None)
        except StopIteration as stop:
            self._answer(request, access, stop.value)
            return

        def done(outcome: Outcome, error: BaseException | None) -> None:
            if error is not None:  # only where the engine's state is in doubt
                self._pipeline.fail(error)
                return
            try:
                self._answer(request, access, outcome)
            except Exception as bug:  # noqa: BLE001  (it fails this request only)
                self._answer(request, access, self.refusal(bug, access, "reply"))

        stoppable = None if handler.stays else request
        job = ServerJob(access.owner, time.monotonic(), len(request.body), None, WORK, stoppable)
        self._server.jobs.work(job, work, done, yielded)

    def decide(self, handler: Handler, asked: Asked[Any], prepared: object = None) -> Work:
        """Do what a request asks for, in slices; the result is an Outcome, whatever happens, or None if there is no
        answer. Rights are those in force when something is done, however long it waited."""
        given = () if handler.first is None else (prepared,)
        try:
            if not handler.asks:
                asked.allow()
            if handler.lane is Lane.SLICES:
                return (yield from handler.do(self._server, asked, *given))
            return handler.do(self._server, asked, *given)
        except Exception as error:  # noqa: BLE001  (`refusal` raises it, if the engine's state is in doubt)
            return self.refusal(error, asked.access, type(asked.body).__name__)

    # --- errors ------------------------------------------------------------------------------------------------

    def refusal(self, error: Exception, access: Access, what: str = "request") -> Outcome:
        """The answer to a request that cannot be met, or failed by a fault of ours: that is raised if the engine's
        state is in doubt."""
        if isinstance(error, errors.InvariantBroken) or not isinstance(error, errors.HullcastError):
            return self._failure(error, what)
        if isinstance(error, PermissionError):
            self.refused += 1
            log.warning("request refused", extra={"why": str(error)})
        if isinstance(error, errors.UnknownTable):  # it names the tables there are
            known = (table for table in error.known if not is_hidden(table) and access.sees(table))
            error = errors.UnknownTable(error.table, tuple(known))
        return Outcome(Failed(*errors.to_wire(error)))

    def _failure(self, error: Exception, what: str) -> Outcome:
        if self._server.engine.changes.broken:
            raise error
        self.failures += 1
        log.error("request failed", extra={"request": what}, exc_info=error)
        bug = error if isinstance(error, errors.InvariantBroken) else None
        bug = bug or errors.InvariantBroken(f"{type(error).__name__} in a {what}; nothing was changed")
        return Outcome(Failed(*errors.to_wire(bug)))
