"""Reads of the change history: which runs next, and the process that they run in.

The work is done in `broker/log/history_process.py`, from the files on disk. A request gives one portion. It waits for
its turn like a query, and rights are checked when that comes. A client that left costs no more than the portion under
way.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.broker.log.history import Life, gone
from hullcast.broker.log.history_process import HistoryRequest
from hullcast.broker.processes.child import ChildKind, ChildProcess
from hullcast.broker.scheduling.policy import FairShare, Item
from hullcast.network.wire.bodies import AskHistory, HistorySpan, ReadChanges, ReadTable
from hullcast.network.wire.errors import (
    BadSetting,
    ConnectionLost,
    HullcastError,
    InvariantBroken,
    NoHistory,
    Overloaded,
)
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.log.commit_log import CommitLog
    from hullcast.broker.log.recovery import DataDirectory
    from hullcast.network.wire.frames import Origin, Request

log = logger(__name__)

#: Requests that may wait, of all and of one owner; when full, more are refused as Overloaded.
WAITING, WAITING_PER_OWNER = 1000, 100
#: Seconds without a request after which the process ends, and gives its memory back.
IDLE_S = 60.0
#: Seconds that one portion may take; the process itself stops far earlier, unless the disk hangs.
PATIENCE_S = 60.0
#: It is started for a read, and says nothing but answers.
READER = ChildKind(
    "history",
    "the process that reads the change history",
    "hullcast.broker.log.history_process",
    silence_s=PATIENCE_S,
    first_word_s=PATIENCE_S,
    reports=False,
)


@dataclass(eq=False, slots=True)
class _WaitingRead(Item):
    request: Request
    asked: ReadChanges | ReadTable


class HistoryReads:
    """The reads that wait, the one under way, and the process that reads. The process is started for the first."""

    def __init__(
        self,
        server: str,
        engine: ServedEngine,
        directory: DataDirectory | None,
        commit_log: CommitLog,
        check: Callable[[Origin, tuple[str, ...]], None],
        refusal: Callable[[HullcastError, Request], bytes],
        done: Callable[[Request, bytes], None],
    ) -> None:
        self._server, self._engine, self._directory, self._log = server, engine, directory, commit_log
        self._check, self._refusal, self._done = check, refusal, done
        self._policy = FairShare()
        self._waiting: list[_WaitingRead] = []
        self._something = asyncio.Event()
        self._child = ChildProcess(READER, self._on_answer, self._on_gone)
        self._owed: asyncio.Future[bytes] | None = None
        self.answered = self.failed = 0

    @property
    def processes(self) -> int:
        """Processes started so far."""
        return self._child.lives

    @property
    def waiting(self) -> int:
        """Reads whose turn has not come."""
        return len(self._waiting)

    def span(self, body: AskHistory, origin: Origin) -> HistorySpan:
        """Which changes of a table can be read."""
        life, kept_from = self._life(body.table, origin)
        return HistorySpan(max(life.created, kept_from) + 1, self._log.synced_seq, life.created)

    def put(self, request: Request, asked: ReadChanges | ReadTable, owner: str) -> None:
        """Queue a read; what cannot be answered is refused at once."""
        assert request.origin is not None
        self._reading(asked, request.origin)
        if sum(item.owner == owner for item in self._waiting) >= WAITING_PER_OWNER:
            raise Overloaded("reads of the change history waiting", WAITING_PER_OWNER)
        if len(self._waiting) >= WAITING:
            raise Overloaded("reads of the change history waiting", WAITING)
        self._waiting.append(_WaitingRead(owner, time.monotonic(), request, asked))
        self._something.set()

    def stay_with(self, links: Container[int]) -> None:
        """Forget waiting reads of clients whose link is gone."""
        self._waiting = [item for item in self._waiting if item.request.route[-1] in links]

    def watch(self, now: float) -> None:
        """Called now and then: kill a process that hangs. Whoever waits for it then hears of it."""
        self._child.watch(now)

    async def run(self) -> None:
        """Answer reads until cancelled."""
        try:
            while True:
                await self._wait()
                while self._waiting:
                    item = self._policy.pick(self._waiting, time.monotonic())
                    assert isinstance(item, _WaitingRead)
                    self._waiting.remove(item)
                    began = time.monotonic()
                    await self._serve(item)
                    self._policy.served(item, time.monotonic() - began, time.monotonic())
        finally:
            await self._child.stop()

    async def _wait(self) -> None:
        """Return when there may be something to do; end the process if there was nothing for long."""
        try:
            async with asyncio.timeout(IDLE_S if self._child.running else None):
                await self._something.wait()
        except TimeoutError:
            await self._child.end()
        self._something.clear()

    def _life(self, table: str, origin: Origin) -> tuple[Life, int]:
        """A table as it is now, and the sequence number from which on tables can be read."""
        self._check(origin, (table,))
        if self._directory is None:
            raise NoHistory(self._server)
        store = self._engine.catalogue.store(table)
        return Life(store.table, store.created), self._directory.readable_from

    def _reading(self, asked: ReadChanges | ReadTable, origin: Origin) -> HistoryRequest:
        """A request with what is to be known of its table now; or why it is refused."""
        life, kept_from = self._life(asked.table, origin)
        first, synced = max(life.created, kept_from), self._log.synced_seq
        name, given, without = "seq", getattr(asked, "seq", None), synced
        if isinstance(asked, ReadChanges):
            name, given, without = "after", asked.after, first
        before = without if given is None else given
        if isinstance(asked, ReadChanges) and given == 0:
            before = life.created  # from the beginning, wherever that is
        if before < first:
            raise gone(life, before + 1, kept_from)
        if before > synced:
            raise BadSetting(name, before, f"the last update on disk is {synced}")
        if isinstance(asked, ReadChanges) and given is not None and asked.through is not None and asked.through < given:
            raise BadSetting("through", asked.through, f"must not be less than after, which is {given}")
        return HistoryRequest(life.table, life.created, asked, before, synced)

    async def _serve(self, item: _WaitingRead) -> None:
        assert item.request.origin is not None
        try:
            reading = self._reading(item.asked, item.request.origin)  # with the rights and the table of now
            body = await self._answer(reading)
        except HullcastError as error:
            self.failed += 1
            body = self._refusal(error, item.request)
        except Exception as error:
            self.failed += 1
            log.exception("read of the change history failed")
            bug = InvariantBroken(f"{type(error).__name__} in a read of the change history; nothing was changed")
            body = self._refusal(bug, item.request)
        self.answered += 1
        self._done(item.request, body)

    async def _answer(self, reading: HistoryRequest) -> bytes:
        assert self._directory is not None
        if not self._child.running:
            await self._child.start(str(self._directory.path))
        self._owed = asyncio.get_running_loop().create_future()
        self._child.write(reading)
        return await self._owed

    def _on_answer(self, body: bytes) -> None:
        if self._owed is not None and not self._owed.done():
            self._owed.set_result(body)

    def _on_gone(self) -> None:
        if self._owed is not None and not self._owed.done():
            self._owed.set_exception(ConnectionLost(f"{READER.called} ended"))
