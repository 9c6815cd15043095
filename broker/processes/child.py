"""A child process of the server, through all its lives: started, watched, killed, and started again.

    CLOCK = ChildKind("clock", "the clock process", "hullcast.clock", silence_s=30.0, first_word_s=60.0, retry_s=5.0)

A kind says what the process is and how patient the server is with it; a `ChildProcess` does the rest, the same for all
kinds. What the process is told first, and what is lost when it ends, its owner knows. In the process, `entry.py` calls
`serve(connection)` of the kind's module.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hullcast.broker.processes.background import NICENESS
from hullcast.broker.processes.ends import MessageEnd
from hullcast.broker.processes.heartbeat import Heartbeat
from hullcast.broker.processes.logs import Logged
from hullcast.network.wire.errors import ConnectionLost, HullcastError
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@dataclass(frozen=True, slots=True)
class ChildKind:
    name: str  # in log lines: "<name> process ended"
    called: str  # in errors: "<called> ended"
    module: str  # whose `serve(connection)` it runs
    #: Seconds without a word after which it is taken to hang, and killed: what it is told waits in our memory.
    silence_s: float
    #: The same for its first word: it may have to compile before.
    first_word_s: float
    #: Seconds after a start before the next one that nobody asks for.
    retry_s: float = 0.0
    #: False: it speaks only when it is asked, so silence counts from a question on.
    reports: bool = True
    niceness: int = NICENESS
    #: How likely the kernel is to end it if the machine runs out of memory.
    oom_score: int = 500

    def command(self, connection: socket.socket) -> list[str]:
        # not -m: what is pickled here names a module by its own name, which then is not __main__
        entry = "from hullcast.broker.processes.entry import main; main()"
        numbers = map(str, (connection.fileno(), self.oom_score, self.niceness))
        return [sys.executable, "-P", "-c", entry, self.module, *numbers]


class ChildProcess:
    def __init__(self, kind: ChildKind, on_message: Callable[[Any], None], on_gone: Callable[[], None]) -> None:
        """`on_gone` is called when a process ends, by itself or not: what it owes will not come."""
        self._kind, self._on_message, self._on_gone = kind, on_message, on_gone
        self._log = logger(kind.module)
        self._changing = asyncio.Lock()  # one starts or stops it at a time
        self._process: asyncio.subprocess.Process | None = None
        self._killed: asyncio.subprocess.Process | None = None  # the one before; its number may soon be another's
        self._end: MessageEnd | None = None
        self._heartbeat: Heartbeat | None = None
        self._owes = False
        self._stopped = False
        self._next_try = 0.0
        self._starting: asyncio.Task[None] | None = None
        self.lives = 0  # processes started so far
        self.spoke = False  # the process, since it was started

    @property
    def running(self) -> bool:
        return self._end is not None

    async def start(self, first: object) -> None:
        """Start a process instead of the one before, and tell it `first`; ConnectionLost if it cannot be started."""
        async with self._changing:
            await self._kill_and_wait()
            if self._stopped:
                raise ConnectionLost("the server is stopping")
            await self._start(first)

    async def _start(self, first: object) -> None:
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise self._not_started(error) from error
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._kind.command(theirs),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                process_group=0,  # of its own: it is killed as one, and gets no Ctrl-C; not a session, see `step_back`
            )
        except OSError as error:
            ours.close()
            raise self._not_started(error) from error
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        end = MessageEnd()
        await end.attach(ours, lambda message: self._heard(end, message), lambda: self._ended(end, process.pid))
        self._end, self._heartbeat = end, Heartbeat(process.pid, time.monotonic())
        self.spoke, self._owes = False, self._kind.reports
        self.lives += 1
        end.write(first)

    def _not_started(self, error: OSError) -> ConnectionLost:
        return ConnectionLost(f"{self._kind.called} cannot be started ({error})")

    def keep_started(self, now: float, start: Callable[[], Awaitable[None]]) -> None:
        """Called often while there should be a process, or there is news for it: `start` sees to that, once at a time.
        One that could not be started, or has ended, is tried again after `retry_s`."""
        if self._starting is not None and not self._starting.done():
            return
        if self.running or now >= self._next_try:
            self._next_try = now + self._kind.retry_s
            self._starting = asyncio.create_task(self._try(start), name=f"server.{self._kind.name}")

    async def _try(self, start: Callable[[], Awaitable[None]]) -> None:
        try:
            await start()
        except (HullcastError, OSError) as error:
            self._log.error(f"{self._kind.name} process cannot be started", extra={"why": str(error)})

    def write(self, message: object) -> None:
        """Tell it something; ConnectionLost if there is no process."""
        if self._end is None or self._heartbeat is None:
            raise ConnectionLost(f"{self._kind.called} ended")
        if not self._owes:
            self._owes = True
            self._heartbeat.heard(time.monotonic())
        self._end.write(message)

    def _heard(self, end: MessageEnd, message: object) -> None:
        if end is not self._end or self._heartbeat is None:  # on its way when the process was killed
            return
        self.spoke = True
        self._heartbeat.heard(time.monotonic())
        if isinstance(message, Logged):
            self._log.log(message.level, message.event, extra=message.fields)
        else:
            self._owes = self._kind.reports
            self._on_message(message)

    def _ended(self, end: MessageEnd, pid: int) -> None:
        if end is self._end:
            self._log.warning(f"{self._kind.name} process ended", extra={"pid": pid})  # how is not known yet
            self.kill()

    def watch(self, now: float) -> None:
        if self._end is None or self._heartbeat is None:
            return
        patience_s = self._kind.silence_s if self.spoke else self._kind.first_word_s
        why = self._heartbeat.lost(now, patience_s if self._owes else math.inf)
        if why is not None:
            self._log.error(f"{self._kind.name} process hangs", extra={"why": why})
            self.kill()

    def kill(self) -> None:
        """End the process, whatever it does, and those that it has started."""
        end, self._end = self._end, None
        if self._process is not None:
            self._killed, self._process = self._process, None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._killed.pid, signal.SIGKILL)
        if end is not None:
            end.close()
            self._on_gone()

    async def end(self) -> None:
        async with self._changing:
            await self._kill_and_wait()

    async def stop(self) -> None:
        """End the process for good: no other one can be started."""
        self._stopped = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        await self.end()

    async def _kill_and_wait(self) -> None:
        self.kill()
        if self._killed is not None:
            await self._killed.wait()
            self._killed = None
