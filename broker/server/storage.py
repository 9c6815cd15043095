"""The files of a server: its log and checkpoints, or temporary ones for queries.

    with a data directory    DIR: log (replies wait for it), checkpoints
    without                  nothing .. first query .. a temporary folder: log (nobody waits for it), checkpoints

Queries are answered from files by another process. A server without a data directory therefore copies its log, from the
first query on, into a temporary folder, beside a checkpoint of what was there before. These files are never synced and
are removed when the server stops; new checkpoints bound their size. If the disk refuses them they are removed at once,
queries fail, and the next one tries again.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from typing import TYPE_CHECKING

from hullcast.broker.engine.served import ServedEngine
from hullcast.broker.log.commit_log import CommitLog
from hullcast.broker.log.publishers import Publishers
from hullcast.broker.log.recovery import TemporaryFolder, open_directory
from hullcast.broker.log.space import DiskSpace
from hullcast.broker.server.changing import apply_record
from hullcast.network.node.stopping import CHECKPOINT_S
from hullcast.network.wire.errors import CheckpointFailed, ConnectionLost, LogBroken, QueriesFailed, Unavailable
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from hullcast.broker.log.checkpoint import CapturedState
    from hullcast.broker.log.recovery import DataDirectory
    from hullcast.broker.server.jobs import Working
    from hullcast.broker.server.settings import ServerSettings

log = logger(__name__)

#: Bytes of a temporary log after which it begins again behind a new checkpoint; more if that is larger itself.
TEMPORARY_LOG_BYTES = 32 << 20
#: Seconds after a failure in which queries are refused at once: to try again means to copy all tables.
PAUSE_S = 1.0
#: A server that stops leaves a checkpoint if that saves the next start as much as replaying so many updates.
STOP_UPDATES = 10_000
#: About how many updates could be replayed while a record is begun, and while a row of a checkpoint is loaded.
RECORD_UPDATES, ROW_UPDATES = 50, 2
#: Seconds between two attempts to make room by removing history.
REMOVAL_S = 5.0


class Storage:
    """Engine, receipts and log of a server, and its files. One thing is done with them at a time (`_under_way`)."""

    def __init__(self, settings: ServerSettings, working: Working, say: Callable[[str], None] = lambda _: None) -> None:
        self._settings, self._working = settings, working
        self.directory: DataDirectory | None = None  # what was given; a temporary one is only for queries
        self.engine = ServedEngine()
        if settings.data is None:
            self.publishers, self.log = Publishers(), CommitLog(None)
            self.space: DiskSpace | None = None
        else:
            self.space = DiskSpace(settings.data, settings.reserve_bytes)
            self.directory = data = open_directory(
                settings.data,
                self.engine,
                apply_record,
                segment_bytes=settings.segment_bytes,
                history_bytes=settings.history_bytes,
                say=say,
            )
            self.publishers, self.log = data.publishers, data.log
            data.space = self.space
        self.checkpoints = 0
        self._checkpointed = (self.engine.seq, time.monotonic())  # when the last one was begun
        self._left = (0, 0, 0)  # what a start would find in a checkpoint: up to which record and update, and rows
        if self.directory is not None:
            found = self.directory.recovered
            self._left = (found.checkpoint or 0, self.engine.seq - found.updates, found.rows)
        self._writing_since, self._give_up_at = 0.0, math.inf
        self._temporary: DataDirectory | None = None
        self._temporary_due = 0  # bytes written to its log at which the next checkpoint is due
        self._next_removal = 0.0
        self._refused: tuple[float, QueriesFailed] | None = None  # when, and why
        self._under_way: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def readable_from(self) -> int | None:
        """The first sequence number as of which the history can be read; None without a data directory."""
        return None if self.directory is None else self.directory.readable_from

    @property
    def has_files(self) -> bool:
        """Whether `for_queries` has a directory to give at once."""
        return self.directory is not None or self._usable() is not None

    def keep_behind(self, seq: int | None) -> None:
        """What is behind a sequence number is still read; None: nobody needs more than a restart does."""
        for directory in (self.directory, self._temporary):
            if directory is not None:
                directory.needed_behind = seq

    async def for_queries(self) -> DataDirectory:
        """The directory that queries read from. What was acknowledged before the call is in its log, which can be read
        up to `log.synced_seq`.

        Without a data directory the first call takes a while, and a later one gives another directory if the disk
        refused the one before. QueriesFailed if it refuses this one, too.
        """
        if self.directory is not None:
            return self.directory
        while (directory := self._usable()) is None:
            if self._stopping:
                raise ConnectionLost("the server is stopping")
            if self._refused is not None and time.monotonic() < self._refused[0] + PAUSE_S:
                raise QueriesFailed(*self._refused[1].args)
            if self._under_way is None:
                self._start(self._begin(), "begin")
            assert self._under_way is not None
            await asyncio.shield(self._under_way)  # others may wait for it, too
        if directory.log.pending_bytes:
            await self._write(directory)
        return directory

    def keep_up(self, now: float) -> None:
        """Do what is due, unless something is under way: called every round."""
        if self._under_way is not None or self._stopping:
            return
        if self.directory is not None:
            seq, at = self._checkpointed
            updates, settings = self.engine.seq - seq, self._settings
            if updates >= settings.checkpoint_updates or (updates and now - at >= settings.checkpoint_s):
                self._checkpointed = (self.engine.seq, now)
                self._start(self._checkpoint(self.directory), "checkpoint")
            elif settings.history_bytes and self._crowded and now >= self._next_removal:
                self._next_removal = now + REMOVAL_S
                self._start(asyncio.to_thread(self.directory.remove_old), "remove")
        elif (directory := self._usable()) is not None:
            if directory.log.statistics().written_bytes >= self._temporary_due:
                self._start(self._checkpoint(directory), "checkpoint")
            elif directory.log.pending_bytes:
                self._start(self._write(directory), "write")
        elif self._temporary is not None:
            log.error("files for queries given up", extra={"why": self._temporary.log.why_broken})
            self._start(self._remove_temporary(), "remove")

    @property
    def _crowded(self) -> bool:
        return self.space is not None and not self.space.room_bytes

    async def stop(self, asked_at: float) -> None:
        """Begin nothing more, and wait for what is under way; the work on the event loop has ended."""
        self._stopping = True
        self._give_up_at = asked_at + CHECKPOINT_S
        if self._under_way is not None:
            await asyncio.gather(self._under_way, return_exceptions=True)

    async def leave_checkpoint(self) -> None:
        """Let the next start be quick: a checkpoint of everything, if that is worth it and there is time for it. Behind
        `stop`, when nobody uses the engine any more."""
        directory = self.directory
        if directory is not None and self._saved_updates >= STOP_UPDATES:
            try:
                captured = await asyncio.to_thread(self._capture, directory)
                await self._write_checkpoint(directory, captured)
            except (TimeoutError, Unavailable) as error:  # the log still has everything
                log.warning("no checkpoint left, the next start replays the log", extra={"why": str(error)})

    @property
    def _saved_updates(self) -> int:
        """What a checkpoint saves the next start, counted in updates that need not be replayed. Less than nothing where
        most updates brought new rows in large batches: replaying these is quicker than loading them."""
        number, seq, rows = self._left
        more_rows = sum(map(self.engine.rows, self.engine.tables)) - rows
        return self.engine.seq - seq + RECORD_UPDATES * (self.log.number - number) - ROW_UPDATES * more_rows

    def close(self) -> None:
        """Write what is pending, and let others have the directory; or remove it, if it is temporary."""
        if self._temporary is not None:
            self.log.copy_to(None)
            self._temporary.remove()
        (self.directory or self.log).close()

    # --- one at a time -----------------------------------------------------------------------------------

    def _start(self, work: Coroutine[None, None, None], name: str) -> None:
        self._under_way = asyncio.create_task(self._alone(work), name=f"server.storage.{name}")
        self._under_way.add_done_callback(self._ended)

    async def _alone(self, work: Coroutine[None, None, None]) -> None:
        """Do it, and say so when it is over. Not in a callback, which runs later: whoever comes in between would find a
        task that is done, wait for it again and again, and never let the callback have its turn."""
        try:
            await work
        except QueriesFailed as error:
            self._refused = (time.monotonic(), error)
            raise
        finally:
            self._under_way = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("files not written", extra={"why": str(error), "what": task.get_name()})

    def _usable(self) -> DataDirectory | None:
        return None if self._temporary is None or self._temporary.log.why_broken else self._temporary

    async def _begin(self) -> None:
        """Make a temporary directory, with all that is in the tables by now."""
        await self._remove_temporary()
        try:
            folder = await asyncio.to_thread(TemporaryFolder.make)
        except OSError as error:
            raise QueriesFailed(tempfile.gettempdir(), error.strerror or str(error)) from error
        directory = folder.begin(self.engine, self.publishers, self.log, self._settings.pending_bytes)
        try:
            await self._capture_and_write(directory)
        except BaseException as error:
            self.log.copy_to(None)
            await asyncio.to_thread(directory.remove)
            if isinstance(error, LogBroken | CheckpointFailed):
                raise QueriesFailed(tempfile.gettempdir(), error.reason) from error
            raise
        self._temporary = directory
        log.info("files for queries begun", extra={"directory": str(directory.path), "seq": directory.log.seq})

    async def _checkpoint(self, directory: DataDirectory) -> None:
        try:
            await self._capture_and_write(directory)
        except Unavailable as error:
            log.error("checkpoint failed", extra={"why": str(error)})  # the log still has everything
            if directory is self._temporary:  # nobody needs it that much
                await self._remove_temporary()

    async def _capture_and_write(self, directory: DataDirectory) -> None:
        captured: CapturedState = await self._working.do("checkpoint", directory.capturing())
        await self._write_checkpoint(directory, captured)

    async def _write_checkpoint(self, directory: DataDirectory, captured: CapturedState) -> None:
        log_bytes = directory.log.statistics().written_bytes
        self._writing_since = time.monotonic()
        written = await asyncio.to_thread(directory.write_checkpoint, captured, self._go_on)
        self._temporary_due = log_bytes + max(TEMPORARY_LOG_BYTES, written.size_bytes)
        self._left = (written.number, written.seq, written.rows)
        self.checkpoints += 1
        log.info("checkpoint written", extra={"seq": written.seq, "rows": written.rows, "bytes": written.size_bytes})

    def _capture(self, directory: DataDirectory) -> CapturedState:
        """The state, copied in one go; TimeoutError if a stop cannot wait for it."""
        work = directory.capturing()
        try:
            while True:
                next(work)
                self._go_on(1, 1)
        except StopIteration as captured:
            state: CapturedState = captured.value
            return state
        finally:
            work.close()

    def _go_on(self, done: int, total: int) -> None:
        """Called between parts of a checkpoint, in its thread: TimeoutError if a stop cannot wait for the rest."""
        now = time.monotonic()
        if now + (now - self._writing_since) / done * (total - done) > self._give_up_at:
            raise TimeoutError(f"the server is stopping, and it would not be ready {CHECKPOINT_S:g} s after that began")

    async def _write(self, directory: DataDirectory) -> None:
        """Let other processes read what is in the log by now."""
        try:
            await asyncio.to_thread(directory.log.write_and_sync)
        except LogBroken as error:
            raise QueriesFailed(tempfile.gettempdir(), error.reason) from error

    async def _remove_temporary(self) -> None:
        if self._temporary is not None:
            directory, self._temporary = self._temporary, None
            self.log.copy_to(None)
            await asyncio.to_thread(directory.remove)
