"""The way out: every outcome goes through `Commits`, waits for the log, and leaves by `Releases` (releases.py).

a request is answered   commit(outcome, request, owner) -.
the server's own change change(make)                    -+-> Pipeline: the log -> Releases: replies, messages,
                                                                                and whoever follows the log
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hullcast.broker.server.outcome import Outcome
from hullcast.broker.server.pipeline import Step
from hullcast.network.wire import bodies
from hullcast.network.wire.bodies import Done, Failed
from hullcast.network.wire.errors import DiskFull, TooLarge, UsageError, to_wire
from hullcast.network.wire.frames import Reply, Request
from hullcast.network.wire.limits import DEFAULT
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hullcast.broker.log.space import DiskSpace
    from hullcast.broker.server.leaving import Leaving
    from hullcast.broker.server.pipeline import Pipeline
    from hullcast.network.node.children import Children
    from hullcast.network.wire.errors import Unavailable

log = logger(__name__)

#: Replies that tell nothing of changes which wait for room on the disk.
_ON_DISK = bodies.Information | bodies.HistorySpan | Failed
#: What the server does of its own accord: a request that nobody waits for.
OURS = Request(0, (), None, b"")


class Commits:
    """Takes in outcomes, and says whether the disk has room for more changes."""

    def __init__(self, pipeline: Pipeline, children: Children, leaving: Leaving, space: DiskSpace | None) -> None:
        self._pipeline, self._children, self._leaving, self._space = pipeline, children, leaving, space
        self._told_full = False

    def commit(self, outcome: Outcome, request: Request, owner: str) -> None:
        """Answer a request: what it changed is logged first, and nothing of it leaves before that."""
        if outcome.entry is None and request.body:  # only the log needs it; the reply may wait for long
            request = request._replace(body=b"")
        try:
            sent, reply = _encoded(outcome)
        except BaseException:
            self._leaving.forgo(outcome)
            raise
        if outcome.at_once:
            self._children.answer(Reply(request.id, request.route, (), reply))
            self._children.listener.flush()
            return
        if sent is not outcome:
            self._leaving.forgo(outcome)
        elif outcome.installs:
            self._leaving.hold(request, owner, outcome)
        if isinstance(sent.reply, _ON_DISK):
            sent = replace(sent, on_disk=True)
        self._pipeline.put(Step(request, sent, reply, self._children.rights, owner))
        self._put_own(outcome.then)

    def refuse(self, request: Request, why: Unavailable) -> None:
        """Answer past the pipeline, which is being emptied, or has no room for refusals either."""
        if request.id:
            reply = bodies.encode(Failed(*to_wire(why)))
            self._children.answer(Reply(request.id, request.route, (), reply))

    def change(
        self, make: Callable[[], Iterable[Outcome]], *, request: Request = OURS, patience_s: float = 0.0
    ) -> None:
        """Make a change of the server's own, in its turn among the changes of others. A UsageError says that nothing
        has changed; whatever else is raised stops the server: rows may be there without a record of them."""
        try:
            self._put_own(make(), request, patience_s)
        except UsageError:
            raise
        except Exception as error:  # noqa: BLE001  (`Server.run` raises it)
            self._pipeline.fail(error)

    def _put_own(self, outcomes: Iterable[Outcome], request: Request = OURS, patience_s: float = 0.0) -> None:
        for outcome in outcomes:
            self._pipeline.put(Step(request, outcome, b""), patience_s)
            self._put_own(outcome.then, request, patience_s)

    def fail(self, error: BaseException) -> None:
        """Rows have changed without a record of it: the server stops."""
        self._pipeline.fail(error)

    # --- room on the disk ------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether the server should make no changes of its own now."""
        return not self._pipeline.begun or self._pipeline.held or self.disk_full() is not None

    def disk_full(self) -> DiskFull | None:
        """Why changes are refused, if the disk has no room for them; the rest goes on."""
        if not self._pipeline.begun or self._space is None:
            return None
        return self._pipeline.stuck or self._space.log_full(self._pipeline.waiting_bytes)

    def check_disk(self) -> None:
        """DiskFull while there is no room for changes."""
        full = self.disk_full()
        if full is not None:
            raise DiskFull(*full.args)

    def tell_of_disk(self) -> None:
        """Log when changes begin to be refused for want of room, and when they are accepted again."""
        full = self.disk_full()
        if (full is not None) != self._told_full:
            self._told_full = full is not None
            if full is not None:
                log.error("disk full: publishes refused", extra={"why": str(full)})
            else:
                log.warning("disk has room again: publishes accepted")


def _encoded(outcome: Outcome) -> tuple[Outcome, bytes]:
    """An outcome with its reply's bytes; one too large for a frame is refused. Receipts are encoded when they leave."""
    if isinstance(outcome.reply, Done) and outcome.reply.deleted is None:
        return outcome, b""
    try:
        body = outcome.reply if isinstance(outcome.reply, bytes) else bodies.encode(outcome.reply)
        size = len(body) + sum(install.points.nbytes + 64 for install in outcome.installs)
        if size > DEFAULT.body_bytes:
            raise TooLarge("bytes of this answer (ask for less)", size, DEFAULT.body_bytes)
    except TooLarge as error:
        refusal = Failed(*to_wire(error))
        return Outcome(refusal, at_once=outcome.at_once), bodies.encode(refusal)
    return outcome, body
