"""What signals do to a process that serves: they stop it, in time whatever it is doing (network/node/stopping.py).

SIGTERM, SIGINT   its work is cancelled, and cleans up
a second one      it ends now, with exit code 143 or 130
none, but 4.25 s  it ends by force, and says what it was busy with; exit code 2
SIGHUP            as SIGTERM; or what the process does then, unless it came because the terminal was closed

A thread hears of them, from the system's own handler (`signal.set_wakeup_fd`): so they count, too, while the event loop
is busy, or the main thread is in a call that does not return.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from hullcast.network.node.stopping import END_S
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

log = logger(__name__)

FAILED, SIGNALLED = 2, 128  # exit codes; the number of the signal is added to the second
NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: What is heard when standard input has ended: no signal has this number.
INPUT_ENDED = 0
#: A signal that comes so soon after another is the same one: `timeout` sends one to the process, and one to its group.
SAME_S = 0.1
#: How long the last words of a process may take: whoever holds the lock of the log may be stuck, too.
LAST_WORDS_S = 0.1

Result = TypeVar("Result")


class Signals:
    """The signals of this process, while it does its work."""

    def __init__(
        self,
        called: str,
        at_end: Callable[[], str],
        *,
        limit_s: float = END_S,
        hang_up: Callable[[], None] | None = None,
        until_input_ends: bool = False,
    ) -> None:
        """`at_end` is called in a thread before the process ends by force: it says what is busy. `hang_up` is called on
        the event loop."""
        self._called, self._at_end, self._limit_s = called, at_end, limit_s
        self._hang_up, self._until_input_ends = hang_up, until_input_ends
        self._had_terminal = os.isatty(0)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        self.asked_at: float | None = None  # when a stop was asked for

    def run(self, work: Coroutine[Any, Any, Result]) -> Result | None:
        """What the work gives, on an event loop of its own; None if it was cancelled because a stop was asked for."""
        ours, theirs = socket.socketpair()
        threading.Thread(target=self._hear, args=(ours,), name="hullcast-signals", daemon=True).start()
        with theirs, _sent_to(theirs):
            if self._until_input_ends:
                threading.Thread(target=_wait_input, args=(theirs,), name="hullcast-input", daemon=True).start()
            return asyncio.run(self._run(work))

    async def _run(self, work: Coroutine[Any, Any, Result]) -> Result | None:
        self._task = task = asyncio.create_task(work, name="work")
        self._loop = asyncio.get_running_loop()
        if self.asked_at is not None:  # before there was a loop
            self._cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if self.asked_at is None:
                raise
            return None

    def _cancel(self) -> None:
        """Once: a second time would break into what the work does to clean up."""
        if not self._cancelled and self._task is not None:
            self._cancelled = True
            self._task.cancel()

    # --- in the thread ---------------------------------------------------------------------------------------

    def _hear(self, heard: socket.socket) -> None:
        with heard:
            while True:
                try:
                    numbers = heard.recv(64)
                except TimeoutError:
                    self._end(FAILED, f"{self._called} did not stop within {self._limit_s:g} s")
                if not numbers:
                    return
                for number in numbers:
                    self._take(number)
                if self.asked_at is not None:
                    heard.settimeout(max(0.001, self.asked_at + self._limit_s - time.monotonic()))

    def _take(self, number: int) -> None:
        if number == signal.SIGHUP and self._hang_up is not None and os.isatty(0) == self._had_terminal:
            self._call(self._hang_up)
        elif number not in (INPUT_ENDED, *NUMBERS):
            return
        elif self.asked_at is None:
            self.asked_at = time.monotonic()
            name = "none, its input has ended" if number == INPUT_ENDED else signal.Signals(number).name
            log.info("stopping", extra={"signal": name})
            self._call(self._cancel)
        elif number in (signal.SIGTERM, signal.SIGINT) and time.monotonic() > self.asked_at + SAME_S:
            self._end(SIGNALLED + number, "a second signal")

    def _call(self, function: Callable[[], None]) -> None:
        """Call it on the event loop, if there is one."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed
                self._loop.call_soon_threadsafe(function)

    def _end(self, code: int, why: str) -> NoReturn:
        said = {"why": why, "busy": self._at_end()}
        words = threading.Thread(target=log.error, args=("ended by force",), kwargs={"extra": said}, daemon=True)
        words.start()
        words.join(LAST_WORDS_S)
        os._exit(code)


@contextmanager
def _sent_to(theirs: socket.socket) -> Iterator[None]:
    """Signals send their numbers there, and do nothing else."""
    theirs.setblocking(False)
    fd_before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, lambda *_: None) for number in NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(fd_before)


def _wait_input(theirs: socket.socket) -> None:
    """Our standard input ends when the process that started this one is gone, however it ended."""
    while os.read(0, 4096):
        pass
    with suppress(OSError):  # the work is over
        theirs.send(bytes([INPUT_ENDED]))
