"""All tables and views of the warehouse process, and their loads: begun, done, failed and tried again."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from hullcast.broker.log.history import Life
from hullcast.broker.tables.schema import fold
from hullcast.broker.warehouse.board import Load
from hullcast.broker.warehouse.files import remove_others
from hullcast.broker.warehouse.live_feeds import FeedWorld, LiveFeed, LiveTable
from hullcast.broker.warehouse.live_views import LiveView
from hullcast.broker.warehouse.looks import FileLooks
from hullcast.broker.warehouse.messages import Failure, Finished
from hullcast.broker.warehouse.view_file import ViewLife
from hullcast.broker.warehouse.work import LiveWork
from hullcast.network.wire.errors import HistoryGone, from_wire
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hullcast.broker.tables.schema import Table
    from hullcast.broker.warehouse.board import Board, Feed
    from hullcast.broker.warehouse.files import KeptLife
    from hullcast.broker.warehouse.live_views import ViewTurns
    from hullcast.broker.warehouse.messages import Known, Released
    from hullcast.broker.warehouse.turns import Turns
    from hullcast.broker.warehouse.workers import Hand

    AnyFeed = LiveFeed[Any, Any]

log = logger(__name__)

#: Seconds after which a load that failed is tried again.
LOAD_PAUSE_S = 0.5
#: What the life of a table or view is in this process.
KINDS: dict[type, type[AnyFeed]] = {Life: LiveTable, ViewLife: LiveView}


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
        looks = FileLooks(directory, lambda: board.horizon)
        self._world = FeedWorld(directory, board, turns, view_turns, looks)
        self._on_failure, self._fill_soon = on_failure, fill_soon
        self.feeds: dict[str, AnyFeed] = {}
        self._followers: dict[str, list[AnyFeed]] = {}  # by table: who waits for its updates
        self._tidied = False
        self.failures = 0

    # -- which there are -------------------------------------------------------------------------------------

    def know(self, known: Known) -> AnyFeed | None:
        """There is such a table or view now; none of its name is there."""
        if known.life is None:
            return None
        feed = self.feeds[known.name] = KINDS[type(known.life)](self._world, known.name, known.life, known.rows)
        for source in feed.sources:
            self._followers.setdefault(source, []).append(feed)
        if self._tidied and feed.is_due:
            feed.put()
        return feed

    def forget(self, feed: AnyFeed) -> None:
        """A table or view is gone."""
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
        """All tables and views."""
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

    def too_long(self, task: Load) -> None:
        raise AssertionError("a load takes as long as it takes")

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
        found: dict[str, dict[str, Any]] = {kind.SECTION: {} for kind in KINDS.values()}
        for feed in self.feeds.values():
            if feed.on_board is not None:
                found[feed.SECTION][feed.life.table.name] = feed.report(now)
        return found
