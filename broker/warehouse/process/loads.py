"""All tables and views of the warehouse process: their loads, and views on their way, which nobody knows yet."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from hullcast.broker.tables.schema import fold
from hullcast.broker.views.upkeep import Upkeep, shortest_promise
from hullcast.broker.warehouse.deciding.board import Load
from hullcast.broker.warehouse.files.table_file import file_of, remove, remove_others
from hullcast.broker.warehouse.files.view_file import ViewLife
from hullcast.broker.warehouse.messages import BuildView, Failure, Finished, MakeView, QueryRefused, ViewMade
from hullcast.broker.warehouse.process.feeds import FeedWorld, LiveTable, LiveView
from hullcast.broker.warehouse.process.workers import LiveWork
from hullcast.network.wire.errors import ConnectionLost, HistoryGone, SqlError, from_wire, to_wire
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from hullcast.broker.tables.schema import Table
    from hullcast.broker.warehouse.deciding.board import Board, Feed
    from hullcast.broker.warehouse.deciding.turns import Turns
    from hullcast.broker.warehouse.files.table_file import KeptLife
    from hullcast.broker.warehouse.messages import Known, Released
    from hullcast.broker.warehouse.process.feeds import LiveFeed, ViewTurns
    from hullcast.broker.warehouse.process.workers import Hand
    from hullcast.network.wire.errors import HullcastError

log = logger(__name__)

#: Seconds after which a load that failed is tried again.
LOAD_PAUSE_S = 0.5
#: Seconds after which the making of a view is stopped.
BUILD_S = 600.0


class LiveLoads(LiveWork[Load]):
    """`on_failure` is told of a load that failed, and will fail again; `fill_soon` that there is something to do."""

    def __init__(
        self,
        directory: Path,
        board: Board,
        turns: Turns,
        view_turns: ViewTurns,
        on_failure: Callable[[str, Failure], None],
        fill_soon: Callable[[], None],
    ) -> None:
        self._world = FeedWorld(directory, board, turns, view_turns)
        self._on_failure, self._fill_soon = on_failure, fill_soon
        self.feeds: dict[str, LiveFeed] = {}
        self._followers: dict[str, list[LiveFeed]] = {}  # by table: who waits for its updates
        self._tidied = False
        self.failures = 0

    # -- which there are -------------------------------------------------------------------------------------

    def know(self, known: Known) -> LiveFeed | None:
        """There is such a table or view now; none of its name is there."""
        if known.life is None:
            return None
        feed: LiveFeed
        if isinstance(known.life, ViewLife):
            feed = LiveView(self._world, known.name, known.life)
        else:
            feed = LiveTable(self._world, known.name, known.life, known.rows)
        self.feeds[known.name] = feed
        for source in feed.sources:
            self._followers.setdefault(source, []).append(feed)
        if self._tidied and feed.is_due:
            feed.put()
        return feed

    def forget(self, feed: LiveFeed) -> None:
        for source in feed.sources:
            self._followers[source].remove(feed)
        del self.feeds[feed.name]
        feed.forget()

    def released(self, released: Released) -> None:
        """Updates were acknowledged. With the first of these messages all tables are known, and not before it what was
        there already."""
        for name, (first, last, rows) in released.tables.items():
            for feed in self._followers.get(name, ()):
                feed.released(name, first, last, rows, released.at)
        self._world.board.advance(released.through)
        if not self._tidied:
            self._tidied = True
            remove_others(self._world.directory, self.lives())
            for feed in self.feeds.values():
                if feed.is_due:
                    feed.put()

    def lives(self) -> list[KeptLife]:
        return [feed.life for feed in self.feeds.values()]

    def named_in(self, sql: str) -> dict[str, Table]:
        """The tables and views that a text may name: those whose name is in it, or may be written in another way."""
        text = fold(sql)
        return {
            name: feed.life.table for name, feed in self.feeds.items() if name in text or "'" in name or "`" in name
        }

    # -- loads -----------------------------------------------------------------------------------------------

    def owner(self, task: Load) -> str | None:
        return None if task.question is None else task.question.owner

    def begin(self, task: Load, hand: Hand, now: float) -> None:
        self._world.board.begin(task, now)
        hand.end.write(self.feeds[task.table].message(task, now))

    def ended(self, task: Load, hand: Hand, now: float, *, done: bool, killed: bool) -> None:
        self._world.board.end(task, now, done=done)

    def over(self, task: Load, message: Finished | Failure, took_s: float) -> None:
        feed = self.feeds[task.table]
        if isinstance(message, Failure):
            if not feed.is_failing:  # it is tried again and again
                why = str(from_wire(message.code, message.arguments))
                log.warning("load failed", extra={"table": task.table, "why": why})
            feed.is_failing = True
            self._failed(task, message, took_s)
        else:
            feed.is_failing = False
            feed.loaded(task, message.result, took_s)

    def died(self, task: Load) -> None:
        self.feeds[task.table].look()
        self._failed(task, None, 0.0)

    def _failed(self, load: Load, failure: Failure | None, took_s: float) -> None:
        """A load was in vain. It is tried again after a while, later if it took long. Questions that cannot do without
        it fail, unless it was only a worker that died."""
        board, feed = self._world.board, self.feeds[load.table].feed
        error = None if failure is None else from_wire(failure.code, failure.arguments)
        if isinstance(error, HistoryGone) and load.through < error.first - 1:  # cut meanwhile: load to behind that
            board.aim_again(load.table)
            if error.first - 1 <= board.horizon:
                return
            failure = None  # the server will say how far it is
        self.failures += 1
        feed.loading = load  # so that nobody begins another one
        asyncio.get_running_loop().call_later(LOAD_PAUSE_S + took_s, self._again, feed, load)
        if failure is not None:
            self._on_failure(load.table, failure)

    def _again(self, feed: Feed, load: Load) -> None:
        if feed.loading is load:
            feed.loading = None
            self._fill_soon()

    # -- for people ------------------------------------------------------------------------------------------

    def report(self) -> dict[str, dict[str, Any]]:
        """How tables and views on the board are, apart."""
        now = time.monotonic()
        found: dict[str, dict[str, Any]] = {kind.SECTION: {} for kind in (LiveTable, LiveView)}
        for feed in self.feeds.values():
            if feed.on_board is not None:
                found[feed.SECTION][feed.life.table.name] = feed.report(now)
        return found


class ViewBuilds(LiveWork[MakeView]):
    """The views of one data directory that are on their way: waiting to be made, made but not known yet, or given up.
    `known` gives the tables and views that there are.

    A view is made before there is one: the server decides when it has heard what can be promised. Until then its file
    is nobody's, and whoever gives it up must see that it goes, also if a worker was killed in the very moment in which
    it gave the file its name.

    Y1  A file of a view is there only if the view is known, made, being made, or about to be removed.
    """

    def __init__(
        self, directory: Path, board: Board, known: Callable[[], Iterable[KeptLife]], say: Callable[[object], None]
    ) -> None:
        self._directory, self._board, self._known, self._say = directory, board, known, say
        self._waiting: list[MakeView] = []
        self._running: list[MakeView] = []
        self._made: dict[int, ViewLife] = {}  # by the number of the request
        self._left: dict[int, ViewLife] = {}  # what a worker that was killed may have made, by its process

    def put(self, making: MakeView) -> None:
        """A view is to be made. What was made under its name before, and is not known as a view, will never be one."""
        name = fold(making.life.definition.name)
        for number in [number for number, made in self._made.items() if fold(made.definition.name) == name]:
            self._unmake(number)
        self._waiting.append(making)

    def next(self, now: float) -> MakeView | None:
        """The one that is made next; it is being made from now on."""
        if not self._waiting:
            return None
        self._running.append(self._waiting.pop(0))
        return self._running[-1]

    def owner(self, task: MakeView) -> str:
        return task.owner

    def begin(self, task: MakeView, hand: Hand, now: float) -> float:
        hand.end.write(BuildView(task.life, self._board.horizon))
        return BUILD_S

    def ended(self, task: MakeView, hand: Hand, now: float, *, done: bool, killed: bool) -> None:
        """A worker that is killed may come to the end of the file, until it is `gone`."""
        self._running.remove(task)
        if killed:
            self._left[hand.process] = task.life
        elif done:
            self._made[task.number] = task.life
        else:
            self._remove(task.life)

    def over(self, task: MakeView, message: Finished | Failure, took_s: float) -> None:
        """If it is made, the server decides whether there will be such a view."""
        if isinstance(message, Failure):
            self._say(QueryRefused(task.number, message.code, message.arguments))
            return
        upkeep = Upkeep(tuple(message.result), task.life.definition.response_time_s, message.result)
        self._say(ViewMade(task.number, shortest_promise(list(upkeep.costs.values()))))

    def too_long(self, task: MakeView) -> None:
        reason = f"creating the view was stopped after {BUILD_S:g} s"
        self._refuse(task, SqlError(task.life.table.name, reason, "join on more columns, or narrow it with WHERE"))

    def died(self, task: MakeView) -> None:
        self._refuse(task, ConnectionLost("the process that made the view was killed"))

    def _refuse(self, task: MakeView, error: HullcastError) -> None:
        self._say(QueryRefused(task.number, *to_wire(error)))

    def gone(self, process: int) -> None:
        life = self._left.pop(process, None)
        if life is not None:
            self._remove(life)

    def known(self, life: KeptLife) -> None:
        self._made = {number: made for number, made in self._made.items() if made != life}

    def withdraw(self, number: int) -> MakeView | None:
        """Nobody wants a view any more; gives the task if it is being made."""
        self._waiting = [making for making in self._waiting if making.number != number]
        if number in self._made:
            self._unmake(number)
        return next((making for making in self._running if making.number == number), None)

    def _unmake(self, number: int) -> None:
        remove(file_of(self._directory, self._made.pop(number)))

    def _remove(self, life: ViewLife) -> None:
        """Remove the file of a view, unless the same one is wanted again by now."""
        coming = (making.life for making in (*self._waiting, *self._running))
        if life not in (*coming, *self._made.values(), *self._known()):
            remove(file_of(self._directory, life))
