"""The way out: every outcome goes through `Commits`, waits in `Pipeline` for the log, and leaves by `Releases`.

a request is answered   commit(outcome, request, owner) -.
the server's own change change(make)                    -+-> Pipeline: the log -> Releases: replies, messages,
                                                                                and whoever follows the log
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from hullcast.broker.server.outcome import Outcome
from hullcast.network.wire import bodies
from hullcast.network.wire.bodies import Done, Failed
from hullcast.network.wire.errors import DiskFull, TooLarge, UsageError, to_wire
from hullcast.network.wire.frames import Reply, Request
from hullcast.network.wire.limits import DEFAULT
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hullcast.broker.log.commit_log import CommitLog
    from hullcast.broker.log.space import DiskSpace
    from hullcast.broker.server.leaving import Leaving
    from hullcast.network.node.children import Children
    from hullcast.network.security.rights import Rights
    from hullcast.network.wire.errors import Unavailable

#: About what a step takes beside its contents.
STEP_BYTES = 512
#: Seconds after which a group that found no room on the disk is tried again.
RETRY_S = 0.25


class Step(NamedTuple):
    """An outcome, its encoded reply, the request it answers, the rights by which that was allowed, and who asked."""

    request: Request
    outcome: Outcome
    reply: bytes
    rights: Rights | None = None
    owner: str = ""

    @property
    def size_bytes(self) -> int:
        entry = self.outcome.entry
        installs = sum(install.points.nbytes for install in self.outcome.installs)
        return STEP_BYTES + len(self.reply) + installs + (len(entry.payload) if entry is not None else 0)


class Pipeline:
    """Steps in two groups: one whose entries are being synced, one that gathers meanwhile.

        Commits -> [gathering] -> [syncing, in a thread] -> release -> replies and messages

    A step may be in no hurry (`patience_s`): it goes with the next one that is, or by itself when its time is up.
    Results of joins do so: each would be a sync of its own otherwise, and others would wait for that.

    Nothing is released before the entries of its own group and all earlier ones are on disk; while a group is being
    synced the next one gathers, so the slower the disk, the larger the groups. A group without entries does not
    touch the disk, but still waits for those before it; where there is no disk, nothing waits.

    A group that finds no room on the disk waits for it (`stuck` says so), and so does everything behind it, except what
    tells of rows on disk only. It is tried again and again; whoever puts steps puts no more changes until then.

    The thread is our own: `run_in_executor` makes two futures a group, and takes one more turn of the loop to come
    back. Hence a queue that wakes the thread, and a callback that wakes the loop.
    """

    def __init__(self, log: CommitLog, limit_bytes: int) -> None:
        self._log = log
        self._limit_bytes = limit_bytes
        self._gathering: list[Step] = []
        self._syncing: list[Step] = []
        self.behind: list[Step] = []  # on disk; they wait behind messages that leave in portions
        self._thread: Thread | None = None  # from the first group on
        self._groups_to_sync: SimpleQueue[bool] = SimpleQueue()  # False: no more; at most one waits
        self._busy = False  # the thread has a group
        self._scheduled = False
        self._urgent = False  # a step that gathers is in a hurry
        self._later: asyncio.TimerHandle | None = None  # for those that are not
        self._retry: asyncio.TimerHandle | None = None  # of a group that found no room
        self.stuck: DiskFull | None = None
        self._came_back: asyncio.Future[None] | None = None  # of whoever waits for the thread
        self.waiting_bytes = 0
        self.groups = 0
        self.begun = False

    def begin(self, release: Callable[[list[Step]], None]) -> None:
        """Take in steps from now on, on the running event loop; `release` is given those that may leave."""
        self._loop = asyncio.get_running_loop()
        self._release = release
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self.begun = True

    @property
    def sound(self) -> bool:
        return self.begun and not self.failed.done()

    def fail(self, error: BaseException) -> None:
        """The state of the engine, or of the log, is in doubt: nothing that waits may leave, and the server stops."""
        if not self.failed.done():
            self.failed.set_exception(error)

    @property
    def full(self) -> bool:
        return self.waiting_bytes >= self._limit_bytes

    @property
    def held(self) -> bool:
        """Whether changes that nobody asked for should not be made now."""
        return self.full or self.stuck is not None

    def __iter__(self) -> Iterator[Step]:
        yield from self.behind
        yield from self._syncing
        yield from self._gathering

    def put(self, step: Step, patience_s: float = 0.0) -> None:
        """Take in a step; its entry goes to the log with the next group, which begins within `patience_s`."""
        if step.outcome.entry is not None:
            kind, payload, first, count, publisher, number = step.outcome.entry
            self._log.append(kind, payload, first=first, count=count, publisher=publisher, publisher_number=number)
        self.waiting_bytes += step.size_bytes
        self._gathering.append(step)
        if self.stuck is not None:
            self._pass()
        if patience_s and self._log.directory is not None:
            if self._later is None:
                self._later = self._loop.call_later(patience_s, self._hurry)
            return
        self._urgent = True
        if not self._busy and not self._scheduled:
            # not at once: all requests that have arrived by now make one group
            self._scheduled = True
            self._loop.call_soon(self.start)

    def _hurry(self) -> None:
        self._later, self._urgent = None, True
        self.start()

    def start(self) -> None:
        """Begin a group with what has gathered, unless one is under way."""
        self._scheduled = False
        if self._busy or self._syncing or not self._gathering or self.failed.done():
            return
        self._syncing, self._gathering, self._urgent = self._gathering, [], False
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if not any(step.outcome.entry is not None for step in self._syncing):
            self._leave()
            return
        self.groups += 1
        if self._log.directory is None:
            self._leave()
            return
        if self._thread is None:
            self._thread = Thread(target=self._sync_groups, name="hullcast-log", daemon=True)
            self._thread.start()
        self._sync()

    def _sync(self) -> None:
        self._busy = True
        self._groups_to_sync.put(True)

    def _sync_groups(self) -> None:
        """The thread: sync a group each time it is told to, and say so on the loop."""
        while self._groups_to_sync.get():
            error: BaseException | None = None
            try:
                self._log.write_and_sync()
            except BaseException as raised:  # noqa: BLE001  (`Server.run` raises it)
                error = raised
            self._loop.call_soon_threadsafe(self._synced, error)

    def _synced(self, error: BaseException | None) -> None:
        self._busy = False
        if self._came_back is not None and not self._came_back.done():
            self._came_back.set_result(None)
        if isinstance(error, DiskFull):
            self.stuck = error
            self._pass()
            self._retry = self._loop.call_later(RETRY_S, self._sync)
            return
        self.stuck = None
        if error is not None:  # nothing that waits may ever be acknowledged: the server must stop
            self.fail(error)
            return
        self._leave()
        if self._urgent:
            self.start()

    def _pass(self) -> None:
        """Release what need not wait for room on the disk."""
        passing = [step for step in (*self._syncing, *self._gathering) if step.outcome.on_disk]
        if passing:
            self._syncing = [step for step in self._syncing if not step.outcome.on_disk]
            self._gathering = [step for step in self._gathering if not step.outcome.on_disk]
            self._let_go(passing)

    def _leave(self) -> None:
        steps, self._syncing = self._syncing, []
        self._let_go(steps)

    def _let_go(self, steps: list[Step]) -> None:
        self.waiting_bytes -= sum(step.size_bytes for step in steps)
        try:
            self._release(steps)
        except Exception as error:  # noqa: BLE001  (`Server.run` raises it)
            self.fail(error)

    async def stop(self) -> None:
        """Sync and release what is still waiting, if there is room for it, then end the thread."""
        while (self._gathering or self._busy) and not self.failed.done():
            if self.stuck is not None and not self._busy:
                break
            if self._busy:
                self._came_back = self._loop.create_future()
                await self._came_back
            self.start()
        if self._retry is not None:
            self._retry.cancel()
        if self._thread is not None:
            self._groups_to_sync.put(False)
            self._thread.join()
        if self.failed.done():
            self.failed.exception()  # seen


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
