"""The workers of the warehouse, as their process holds them: forked, given tasks, killed and replaced."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from hullcast.broker.processes.ends import MessageEnd, SharedOut
from hullcast.broker.processes.heartbeat import is_stopped
from hullcast.broker.warehouse.deciding.board import Answer, Load
from hullcast.broker.warehouse.files.table_file import FOLDER, remove_unfinished
from hullcast.broker.warehouse.messages import SHARED, MakeView
from hullcast.broker.warehouse.process.worker import serve
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hullcast.broker.warehouse.messages import DiskLimits, Failure, Finished

log = logger(__name__)

#: Seconds after which another fork is tried, where there was no memory or no process for one.
FORK_PAUSE_S = 0.5
#: What they are given to do.
LiveTask = Load | Answer | MakeView
OneTask = TypeVar("OneTask", Load, Answer, MakeView)


@dataclass(eq=False, slots=True)
class WorkLane:
    """Tasks of which so many are done side by side; `choose` says what is next (None: nothing for now)."""

    places: int
    choose: Callable[[float], LiveTask | None]


@dataclass(eq=False, slots=True)
class Hand:
    process: int
    end: MessageEnd
    doing: LiveTask | None = None
    lane: WorkLane | None = None
    began: float = 0.0
    limit: asyncio.TimerHandle | None = None


class LiveWork(ABC, Generic[OneTask]):
    """Tasks of one kind. Each is begun; then it is over, takes too long, or its worker dies; and then it has ended."""

    @abstractmethod
    def owner(self, task: OneTask) -> str | None:
        """Whom the time of its worker is charged to."""

    @abstractmethod
    def begin(self, task: OneTask, hand: Hand, now: float) -> float | None:
        """Tell a worker what to do; gives the seconds after which that takes too long."""

    @abstractmethod
    def ended(self, task: OneTask, hand: Hand, now: float, *, done: bool, killed: bool) -> None:
        """Its worker has let go of it, or is killed; what became of it is told next, if somebody wants to know."""

    @abstractmethod
    def over(self, task: OneTask, message: Finished | Failure, took_s: float) -> None:
        """Its worker has done it, or failed to."""

    def too_long(self, task: OneTask) -> None:
        """It takes longer than `begin` allowed, and is about to be stopped."""
        raise AssertionError("it takes as long as it takes")

    @abstractmethod
    def died(self, task: OneTask) -> None:
        """Its worker has died, of itself or by somebody else."""


class Workers:
    """So many workers, always: one that dies, or is killed, is replaced by another fork of this process."""

    def __init__(
        self,
        directory: Path,
        limits: DiskLimits,
        on_message: Callable[[Hand, object], None],
        on_quiet: Callable[[], None],
        on_death: Callable[[Hand], None],
        on_ready: Callable[[], None],
    ) -> None:
        self._directory, self._limits = directory, limits
        self._on_message, self._on_quiet = on_message, on_quiet
        self._on_death, self._on_ready = on_death, on_ready
        self._hands: list[Hand] = []
        self._hiring: set[asyncio.Task[None]] = set()
        self._dying: list[int] = []
        self._stopping = False
        self.restarts = 0

    async def start(self, count: int) -> None:
        for _ in range(count):
            await self._hire()

    def stop(self) -> None:
        self._stopping = True
        for hand in self._hands:
            _kill(hand.process)

    def free(self) -> Hand | None:
        return next((hand for hand in self._hands if hand.doing is None), None)

    def doing(self, lane: WorkLane) -> list[LiveTask]:
        """What is being done in a lane."""
        return [hand.doing for hand in self._hands if hand.doing is not None and hand.lane is lane]

    def busy(self) -> list[Hand]:
        return [hand for hand in self._hands if hand.doing is not None]

    def replace(self, hand: Hand) -> None:
        """Kill a worker, whatever it does, and fork another one."""
        if hand not in self._hands or self._stopping:
            return
        self._hands.remove(hand)
        _kill(hand.process)
        hand.end.close()
        self._dying.append(hand.process)
        self.restarts += 1
        self.one_more()

    def look_after(self) -> list[int]:
        """Remove what killed ones left of new files, and replace those that somebody has stopped (SIGSTOP): they would
        keep their places, and what they load, for ever. Gives the processes that are gone now."""
        gone = [process for process in self._dying if _is_reaped(process)]
        for process in gone:
            self._dying.remove(process)
            remove_unfinished(self._directory / FOLDER, process=process)
        for hand in list(self._hands):
            if is_stopped(hand.process):
                self._ended(hand)
        return gone

    async def _hire(self) -> None:
        """Fork one more worker."""
        with contextlib.ExitStack() as failing:
            try:
                ours, theirs = socket.socketpair()
                failing.callback(ours.close)
                failing.callback(theirs.close)
                process = os.fork()
            except OSError as error:  # no memory, process or file for one more
                log.error("no worker", extra={"why": error.strerror})
                asyncio.get_running_loop().call_later(FORK_PAUSE_S, self.one_more)
                return
            failing.pop_all()
        if process == 0:
            serve(theirs, self._directory, self._limits)
        theirs.close()
        hand = Hand(process, MessageEnd(SharedOut(SHARED)))
        await hand.end.attach(
            ours, lambda message: self._on_message(hand, message), lambda: self._ended(hand), self._on_quiet
        )
        self._hands.append(hand)
        self._on_ready()

    def one_more(self) -> None:
        """Fork one more, soon."""
        task = asyncio.get_running_loop().create_task(self._hire(), name="warehouse.hire")
        self._hiring.add(task)
        task.add_done_callback(self._hiring.discard)

    def _ended(self, hand: Hand) -> None:
        """A worker has died, of itself or by somebody else."""
        if hand in self._hands and not self._stopping:
            log.warning("a worker died", extra={"did": "nothing" if hand.doing is None else type(hand.doing).__name__})
            self._on_death(hand)
            self.replace(hand)


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _is_reaped(process: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(process, os.WNOHANG)[0] != 0
    return True
