"""Group commit: what requests lead to waits here until the log has it, and leaves in the order it came."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hullcast.broker.log.commit_log import CommitLog
    from hullcast.broker.server.outcome import Outcome
    from hullcast.network.security.rights import Rights
    from hullcast.network.wire.frames import Request


class Step(NamedTuple):
    """An outcome, its encoded reply, the request it answers, and the rights by which that was allowed."""

    request: Request
    outcome: Outcome
    reply: bytes
    rights: Rights | None = None

    @property
    def size_bytes(self) -> int:
        """About what it holds while it waits."""
        entry = self.outcome.entry
        installs = sum(install.points.nbytes for install in self.outcome.installs)
        return len(self.reply) + installs + (len(entry.payload) if entry is not None else 0)


class Pipeline:
    """Steps in two groups: one whose entries are being synced, one that gathers meanwhile.

        requests -> brain -> [gathering] -> [syncing, in a thread] -> release -> replies and messages

    Nothing is released before the entries of its own group and all earlier ones are on disk; while a group is being
    synced the next one gathers, so the slower the disk, the larger the groups. A group without entries does not
    touch the disk, but still waits for those before it.
    """

    def __init__(self, log: CommitLog, release: Callable[[list[Step]], None], limit_bytes: int) -> None:
        self._log = log
        self._release = release
        self._limit_bytes = limit_bytes
        self._gathering: list[Step] = []
        self._syncing: list[Step] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hullcast-log")
        self._task: asyncio.Future[int] | None = None
        self._scheduled = False
        self.waiting_bytes = 0
        self.groups = 0
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def full(self) -> bool:
        """Whether more is waiting for the disk than may."""
        return self.waiting_bytes >= self._limit_bytes

    def __iter__(self) -> Iterator[Step]:
        """All steps that have not left yet."""
        yield from self._syncing
        yield from self._gathering

    def put(self, step: Step) -> None:
        """Take in a step; its entry goes to the log with the next group."""
        if step.outcome.entry is not None:
            kind, payload, first, count, publisher, number = step.outcome.entry
            self._log.append(kind, payload, first=first, count=count, publisher=publisher, publisher_number=number)
        self.waiting_bytes += step.size_bytes
        self._gathering.append(step)
        if self._task is None and not self._scheduled:
            # not at once: all requests that have arrived by now make one group
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        self._scheduled = False
        if self._task is not None or not self._gathering or self.failed.done():
            return
        self._syncing, self._gathering = self._gathering, []
        if any(step.outcome.entry is not None for step in self._syncing):
            self.groups += 1
            loop = asyncio.get_running_loop()
            self._task = loop.run_in_executor(self._thread, self._log.write_and_sync)
            self._task.add_done_callback(self._synced)
        else:
            self._leave()

    def _synced(self, task: asyncio.Future[int]) -> None:
        self._task = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:  # nothing that waits may ever be acknowledged: the server must stop
            if not self.failed.done():
                self.failed.set_exception(error)
            return
        self._leave()
        self._start()

    def _leave(self) -> None:
        steps, self._syncing = self._syncing, []
        self.waiting_bytes -= sum(step.size_bytes for step in steps)
        try:
            self._release(steps)
        except Exception as error:  # noqa: BLE001  (`Server.run` raises it)
            if not self.failed.done():
                self.failed.set_exception(error)

    async def stop(self) -> None:
        """Sync and release what is still waiting, then end the thread."""
        while (self._gathering or self._task is not None) and not self.failed.done():
            if self._task is not None:
                await asyncio.wait([self._task])
            self._start()
        self._thread.shutdown(wait=True)
        if self.failed.done():
            self.failed.exception()  # seen
