"""Lines to standard output from an event loop, which never waits for whoever reads them.

A reader that is slow makes `write` wait, not the loop: heartbeats go on, and the subscription's own overflow policy
decides what becomes of events meanwhile. A reader that is gone (`| head -1`) is noticed at once, without another
line having to be written into the void.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import stat
import sys
from typing import Self

#: A pipe that poll calls writable takes so many bytes without waiting (POSIX's PIPE_BUF; Linux has 4096).
_PIECE = select.PIPE_BUF


class Output:
    """Standard output, for `async with`. `gone` is set when nobody reads any more."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        try:
            self._fd = sys.stdout.fileno()
            mode = os.fstat(self._fd).st_mode
        except (OSError, ValueError):  # replaced by something that is no file
            self._fd, mode = -1, 0
        self._waits = bool(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode))
        self._watched = bool(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
        self._encoding = getattr(sys.stdout, "encoding", None) or "utf-8"

    async def __aenter__(self) -> Self:
        sys.stdout.flush()
        if self._watched:
            # A pipe's writing end is never readable; what the loop reports as such is the error that its reader left.
            asyncio.get_running_loop().add_reader(self._fd, self._left)
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._watched:
            asyncio.get_running_loop().remove_reader(self._fd)

    def _left(self) -> None:
        poll = select.poll()
        poll.register(self._fd, 0)
        if poll.poll(0):  # POLLERR or POLLHUP; a socket may also be readable because its peer talks, which is nothing
            self.gone.set()
        asyncio.get_running_loop().remove_reader(self._fd)

    async def write(self, text: str) -> None:
        """Write, and return when the system has all of it; BrokenPipeError if nobody reads."""
        if self._fd < 0:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        rest = memoryview(text.encode(self._encoding, "backslashreplace"))
        while rest:
            if self._waits and not _writable(self._fd):
                await self._wait_writable()
            try:
                rest = rest[os.write(self._fd, rest[:_PIECE] if self._waits else rest) :]
            except BlockingIOError:
                await self._wait_writable()

    async def _wait_writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_writer(self._fd, _settle, ready)
        except OSError as error:  # a device that cannot be watched, as /dev/null: it never makes us wait
            if error.errno != errno.EPERM:
                raise
            return
        try:
            await ready
        finally:
            loop.remove_writer(self._fd)


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _writable(fd: int) -> bool:
    return bool(select.select((), (fd,), (), 0)[1])
