"""Reads of the change history: which runs next, and the process that they run in.

The work is done in `broker/log/history_process.py`, from the files on disk. A request gives one portion. It waits for
its turn like a query, and rights are checked when that comes. A client that left costs no more than the portion under
way.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

from hullcast.broker.log.history import Life, gone
from hullcast.broker.log.history_process import HistoryRequest
from hullcast.broker.processes.child import ChildKind, ChildProcess
from hullcast.broker.server.jobs import Awaited, Room
from hullcast.broker.server.outcome import Outcome
from hullcast.network.wire.bodies import AskHistory, HistorySpan, ReadChanges, ReadTable
from hullcast.network.wire.errors import BadSetting, ConnectionLost, NoHistory

if TYPE_CHECKING:
    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.log.commit_log import CommitLog
    from hullcast.broker.log.recovery import DataDirectory
    from hullcast.broker.server.access import Access, Asked

#: Reads wait for the one process.
HISTORY = Room("reads of the change history", waiting=1000, waiting_per_owner=100, at_once=1)
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


class HistoryReads:
    """The read under way, and the process that reads. It is started for the first, and ends when there are none."""

    def __init__(
        self, server: str, engine: ServedEngine, directory: DataDirectory | None, commit_log: CommitLog
    ) -> None:
        self._server, self._engine, self._directory, self._log = server, engine, directory, commit_log
        self.child = ChildProcess(READER, self._on_answer, self._on_gone)
        self._owed: asyncio.Future[bytes] | None = None
        self._used_at = 0.0
        self.answered = self.failed = 0

    def span(self, asked: Asked[AskHistory]) -> Outcome:
        """Which changes of a table can be read."""
        life, kept_from = self._life(asked.body.table, asked.access)
        return Outcome(HistorySpan(max(life.created, kept_from) + 1, self._log.synced_seq, life.created))

    def wait(self, asked: Asked[ReadChanges] | Asked[ReadTable]) -> Awaited:
        """Read a portion when its turn comes; what cannot be answered is refused now."""
        self._reading(asked)
        return Awaited(HISTORY, partial(self._read, asked))

    def watch(self, now: float) -> None:
        """Called now and then: kill a process that hangs, or that nobody has needed for long. Whoever waits for it then
        hears of it."""
        self.child.watch(now)
        if self.child.running and self._owed is None and now - self._used_at > IDLE_S:
            self.child.kill()

    async def stop(self) -> None:
        await self.child.stop()

    def _life(self, table: str, access: Access) -> tuple[Life, int]:
        """A table as it is now, and the sequence number from which on tables can be read."""
        access.check("query", (table,))
        if self._directory is None:
            raise NoHistory(self._server)
        store = self._engine.catalogue.store(table)
        return Life(store.table, store.created), self._directory.readable_from

    def _reading(self, request: Asked[ReadChanges] | Asked[ReadTable]) -> HistoryRequest:
        """A request with what is to be known of its table now; or why it is refused."""
        asked = request.body
        life, kept_from = self._life(asked.table, request.access)
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

    async def _read(self, asked: Asked[ReadChanges] | Asked[ReadTable]) -> Outcome:
        try:
            body = await self._answer(self._reading(asked))  # with the rights and the table of now
        except Exception:
            self.failed += 1
            raise
        finally:
            self.answered += 1
            self._used_at = time.monotonic()
        return Outcome(body, at_once=True)

    async def _answer(self, reading: HistoryRequest) -> bytes:
        assert self._directory is not None
        if not self.child.running:
            await self.child.start(str(self._directory.path))
        self._owed = owed = asyncio.get_running_loop().create_future()
        self.child.write(reading)
        try:
            return await asyncio.shield(owed)
        finally:  # nobody may wait for it any more, but the next one is read when this is over
            await asyncio.wait((owed,))
            owed.exception()  # seen
            self._owed = None

    def _on_answer(self, body: bytes) -> None:
        if self._owed is not None and not self._owed.done():
            self._owed.set_result(body)

    def _on_gone(self) -> None:
        if self._owed is not None and not self._owed.done():
            self._owed.set_exception(ConnectionLost(f"{READER.called} ended"))
