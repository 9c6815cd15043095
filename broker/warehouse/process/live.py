"""The warehouse process: the board, driven by what the server says and by what workers do.

It holds no rows: they are in the log, the checkpoints and the warehouse's files, all of them on disk. So a worker is
forked in a few milliseconds, and whoever is killed, nothing is lost: the next one goes on from the files. Everything
here happens on its event loop, and takes moments. Which task is next is said by `broker/warehouse/deciding/turns.py`,
for views by `feeds.py`; what a task is, and what becomes of it, by `loads.py` and `questions.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import shutil
import time
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hullcast.broker.log.private import make_private
from hullcast.broker.processes.ends import BlockingEnd, MessageEnd
from hullcast.broker.processes.logs import log_through
from hullcast.broker.warehouse import messages
from hullcast.broker.warehouse.deciding.board import Answer, Board, Load
from hullcast.broker.warehouse.deciding.policies import POLICIES
from hullcast.broker.warehouse.deciding.turns import Turns
from hullcast.broker.warehouse.process.feeds import ViewTurns
from hullcast.broker.warehouse.process.loads import LiveLoads, ViewBuilds
from hullcast.broker.warehouse.process.questions import SPOOL, LiveQuestions
from hullcast.broker.warehouse.process.workers import Hand, Workers, WorkLane
from hullcast.network import compiled

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from hullcast.broker.warehouse.process.workers import LiveTask, LiveWork

#: Seconds after which the propagation of changes into a view makes way for other views, and how many go on beside them.
LONG_S, MOST_LONG = 0.2, 2
#: Seconds between two reports to the server.
REPORT_S = 0.5


def serve(connection: socket.socket) -> None:
    begin = BlockingEnd(connection).read()
    compiled.load()  # once here, instead of in every worker
    _empty(Path(begin.directory) / SPOOL)
    gc.collect()
    gc.freeze()
    asyncio.run(_serve(begin, connection))


async def _serve(begin: messages.Begin, connection: socket.socket) -> None:
    gone = asyncio.Event()
    end = MessageEnd()
    warehouse = LiveWarehouse(begin, end.write)
    await warehouse.start()
    await end.attach(connection, warehouse.on_message, gone.set, warehouse.on_quiet)
    log_through(end.write)
    try:
        while not gone.is_set():
            end.write(warehouse.report())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await gone.wait()
    finally:
        warehouse.stop()


def _empty(folder: Path) -> None:
    """A folder without what another life of this process has left in it, or somebody else put there."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    make_private(folder)


class LiveWarehouse:
    """The board, driven by what the server says and what workers do."""

    def __init__(self, begin: messages.Begin, say: Callable[[object], None]) -> None:
        directory = Path(begin.directory)
        self._loop = asyncio.get_running_loop()
        self.board = Board(begin.places)
        self._turns = Turns(self.board, POLICIES[begin.policy]())
        self._view_turns = ViewTurns(self.board)
        self.loads = LiveLoads(
            directory, self.board, self._turns, self._view_turns, self._on_load_failure, self._fill_soon
        )
        self._questions = LiveQuestions(begin, self.board, self._turns, self.loads, say, self._stop)
        self._builds = ViewBuilds(directory, self.board, self.loads.lives, say)
        kinds = (Load, self.loads), (Answer, self._questions), (messages.MakeView, self._builds)
        self._work: dict[type[Any], LiveWork[Any]] = dict(kinds)
        self._shared = WorkLane(begin.places, self._choose)
        self._views_lane = WorkLane(0, self._view_turns.next)  # one place if there are views
        self._long_lane = WorkLane(0, lambda now: None)  # see `_make_way`
        self._builds_lane = WorkLane(0, self._builds.next)  # one place from the first on
        self._workers = Workers(directory, begin.disk, self._on_worker, self.on_quiet, self._on_death, self._fill_soon)
        self._filling: asyncio.Handle | None = None  # about to
        self._gathered: asyncio.TimerHandle | None = None  # when there is something to load, if nothing happens before
        self._long_propagations = 0

    async def start(self) -> None:
        await self._workers.start(self._shared.places)

    def stop(self) -> None:
        self._workers.stop()

    # -- what the server says --------------------------------------------------------------------------------

    def on_message(self, message: object) -> None:
        match message:
            case messages.Ask():
                self._questions.ask(message)
            case messages.Released():
                self.loads.released(message)
            case messages.MakeView():
                self._builds.put(message)
                self._one_more_for(self._builds_lane)  # it takes as long as reading its tables: nobody waits for that
            case messages.Withdraw(number):
                self._withdraw(number)
            case messages.Known():
                self._know(message)
            case messages.Switch(policy):
                self._turns.policy = POLICIES[policy]()
            case _:
                raise TypeError(f"the server sent a {type(message).__name__}")
        self._fill_soon()

    def _know(self, known: messages.Known) -> None:
        """A table or view was made, or is gone."""
        self._questions.definitions_changed()
        old = self.loads.feeds.get(known.name)
        if old is not None:
            self._questions.forget(old)
            for hand in self._workers.busy():
                if isinstance(hand.doing, Load) and hand.doing.table == known.name:
                    self._stop(hand)
            self.loads.forget(old)
        new = self.loads.know(known)
        if new is not None:
            self._builds.known(new.life)
            if new.APART:
                self._one_more_for(self._views_lane)  # no promise shall wait behind queries and loads

    def _one_more_for(self, lane: WorkLane, places: int = 1) -> None:
        """So many places at least, with a worker for each."""
        while lane.places < places:
            lane.places += 1
            self._workers.one_more()

    def _withdraw(self, number: int) -> None:
        self._questions.withdraw(number)
        making = self._builds.withdraw(number)
        for hand in self._workers.busy() if making is not None else ():
            if hand.doing is making:
                self._stop(hand)

    def _on_load_failure(self, table: str, failure: messages.Failure) -> None:
        self._questions.load_failed(table, failure)  # which are made after the loads

    # -- what is done next -----------------------------------------------------------------------------------

    def _fill_soon(self) -> None:
        """Give free places something to do, when all that has arrived by now is known."""
        if self._filling is None:
            self._filling = self._loop.call_soon(self._fill)

    def on_quiet(self) -> None:
        """All that had arrived from the server, or from a worker, was read: do now what is to be done soon."""
        if self._filling is not None:
            self._fill()

    def _fill(self) -> None:
        if self._filling is not None:
            self._filling.cancel()
        self._filling, now = None, time.monotonic()
        self._turns.come_forward(now)
        gathered = self.board.gather(now)
        for lane in (self._views_lane, self._shared, self._builds_lane):
            while (hand := self._workers.free()) is not None and len(self._workers.doing(lane)) < lane.places:
                task = lane.choose(now)
                if task is None:
                    break
                self._begin(task, hand, lane, now)
        if self._gathered is not None:
            self._gathered.cancel()
        self._gathered = self._loop.call_later(gathered - now, self._fill_soon) if gathered < inf else None

    def _choose(self, now: float) -> LiveTask | None:
        self._turns.come_forward(now)
        return self._turns.next(self._workers.doing(self._shared), now)

    def _begin(self, task: LiveTask, hand: Hand, lane: WorkLane, now: float) -> None:
        hand.doing, hand.lane, hand.began = task, lane, now
        limit_s = self._work[type(task)].begin(task, hand, now)
        if limit_s is not None:
            hand.limit = self._loop.call_later(limit_s, self._too_long, hand)
        elif lane is self._views_lane:
            hand.limit = self._loop.call_later(LONG_S, self._make_way, hand)

    # -- what workers do -------------------------------------------------------------------------------------

    def _on_worker(self, hand: Hand, message: object) -> None:
        task = hand.doing
        if task is None:  # it was stopped meanwhile
            return
        if isinstance(message, messages.Finished | messages.Failure):
            took_s = time.monotonic() - hand.began
            self._end(hand, done=isinstance(message, messages.Finished))
            self._work[type(task)].over(task, message, took_s)
            if message.spent:
                self._workers.replace(hand)
        elif isinstance(task, Answer):
            self._questions.said(task, message)
        self._fill_soon()

    def _too_long(self, hand: Hand) -> None:
        """A query, or the making of a view, takes too long."""
        task = hand.doing
        self._work[type(task)].too_long(task)
        if hand.doing is not None:
            self._stop(hand)
        self._fill_soon()

    def _make_way(self, hand: Hand) -> None:
        """A propagation takes long, because its changes join with very much, or the file is made again. It goes on, and
        another worker serves the other views. If several do already, it keeps the place of views until one ends."""
        hand.limit = None
        if len(self._workers.doing(self._long_lane)) >= MOST_LONG:
            hand.limit = self._loop.call_later(LONG_S, self._make_way, hand)
            return
        hand.lane = self._long_lane
        self._long_propagations += 1
        self._one_more_for(self._long_lane, len(self._workers.doing(self._long_lane)))
        self._fill_soon()

    def _stop(self, hand: Hand) -> None:
        """Kill a worker: nobody needs what it does."""
        self._end(hand, done=False, killed=True)
        self._workers.replace(hand)

    def _end(self, hand: Hand, *, done: bool, killed: bool = False) -> None:
        """The task of a worker is over, one way or another."""
        task, hand.doing, now = hand.doing, None, time.monotonic()
        assert task is not None
        if hand.limit is not None:
            hand.limit.cancel()
            hand.limit = None
        work = self._work[type(task)]
        if (owner := work.owner(task)) is not None:
            self._turns.served(owner, now - hand.began, now)
        work.ended(task, hand, now, done=done, killed=killed)

    def _on_death(self, hand: Hand) -> None:
        """A worker has died, of itself or by somebody else."""
        task = hand.doing
        if task is not None:
            self._end(hand, done=False, killed=True)
            self._work[type(task)].died(task)
        self._fill_soon()

    # -- for people ------------------------------------------------------------------------------------------

    def report(self) -> messages.Report:
        for process in self._workers.look_after():
            self._builds.gone(process)
        self._view_turns.look_at_age(time.monotonic())
        self._fill_soon()  # time has passed: see `Turns._let_tables_go`
        shared = self._workers.doing(self._shared)
        loading = sum(isinstance(task, Load) for task in shared)
        return messages.Report(
            {
                "policy": self._turns.policy.name,
                "counters": self._turns.policy.counters(),
                **self.loads.report(),
                "waiting": self._turns.waiting,
                "running": len(shared) - loading,
                "loading": loading,
                "missed": self._questions.missed,
                "load_failures": self.loads.failures,
                "long_propagations": self._long_propagations,
                "worker_restarts": self._workers.restarts,
            }
        )
