"""Views in the warehouse process: kept almost ready, refreshed for questions, and counted.

Views have a place of their own among the workers. A question that reads a view gets it refreshed there at once; in
between, what the upkeep of a view says is due is propagated. So no promise waits behind a long query, or behind the
first load of a large table, whatever the policy is.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hullcast.broker.tables.schema import fold
from hullcast.broker.views.upkeep import Upkeep
from hullcast.broker.warehouse.board import Load, ViewFeed
from hullcast.broker.warehouse.live_feeds import LiveFeed
from hullcast.broker.warehouse.messages import LoadView
from hullcast.broker.warehouse.view_file import ViewLife

if TYPE_CHECKING:
    from hullcast.broker.views.upkeep import Propagation
    from hullcast.broker.warehouse.board import Board, Question
    from hullcast.broker.warehouse.live_feeds import FeedWorld
    from hullcast.broker.warehouse.looks import FoundView

#: Views whose questions wait for nothing: how long they took to be ready counts as nothing, too.
READY_S = 0.0
#: Seconds that changes wait at most, however little they would take: the log is kept for some time only.
MOST_WAIT_S = 10.0


class ViewTurns:
    """What the place of views does next. A view is looked at when something happened to it, and not otherwise."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.views: dict[str, LiveView] = {}  # those on the board
        self._overdue: set[str] = set()  # views with changes that have waited for long
        self._news: dict[str, None] = {}  # views that something may be due of since they were looked at last

    def add(self, view: LiveView) -> None:
        """A view is on the board from now on."""
        self.views[view.name] = view
        self.note(view.name)

    def remove(self, name: str) -> None:
        """A view is on the board no longer."""
        self.views.pop(name, None)
        self._news.pop(name, None)
        self._overdue.discard(name)

    def note(self, name: str, *, loaded: bool = False) -> None:
        """Something happened to a view: what is due may be other tables now."""
        self._news[name] = None
        if loaded:
            self._overdue.discard(name)

    def next(self, now: float) -> Load | None:
        """A refresh that a question waits for, or what is due; None: nothing, until something happens."""
        for question in self._board.waiting if self.views else ():
            for load in self._board.missing(question, apart=True):
                return load
        for name in list(self._news):
            feed, upkeep = self.views[name].feed, self.views[name].upkeep
            if feed.loading is not None or self._board.is_awaited(name):
                continue  # whoever asks refreshes it, and reads it before it changes again
            pending = feed.behind_rows()
            due = upkeep.due(pending, now) if feed.pending else ()
            if not due and name in self._overdue:
                due = tuple(table for table, rows in pending.items() if rows)
            if not due:
                del self._news[name]
            elif (through := self._board.reach(feed)) > feed.loaded:
                return Load(name, through, only=due)
        return None

    def look_at_age(self, now: float) -> None:
        """Called now and then: changes that nobody asks for do not wait for ever, or the log is cut behind them and the
        view must be made again."""
        self._overdue = {name for name, view in self.views.items() if view.feed.lag(now) > MOST_WAIT_S}
        self._news.update(dict.fromkeys(self._overdue))


class LiveView(LiveFeed[ViewLife, ViewFeed]):
    """A view. `upkeep` decides what is due of it."""

    SECTION, APART = "views", True

    def __init__(self, world: FeedWorld, name: str, life: ViewLife, rows: int = 0) -> None:
        super().__init__(world, name, life, rows)
        self._bases = {fold(base.table.name): base for base in life.bases}
        self.upkeep = self._new_upkeep()
        self._found: FoundView | None = None
        self._ready_after: dict[int, float] = {}  # seconds, by the number of a question that waits

    def _new_upkeep(self) -> Upkeep:
        return Upkeep(self.sources, self.life.definition.response_time_s)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(self._bases)

    @property
    def is_due(self) -> bool:
        return True

    def _made(self) -> ViewFeed:
        self._found = self._world.looks.view(self.life)
        feed = ViewFeed(self.name, time.monotonic())
        feed.behind = {table: deque() for table in self._bases}
        feed.loaded = feed.version = max(self._positions().values())
        if self._found is not None:
            self.upkeep.computing = self._found.learned.computing
            if self._found.learned.deltas is not None:
                with suppress(ValueError):  # another version's: it is learned again
                    self.upkeep.begin_with(self._found.learned.deltas)
        return feed

    def _positions(self) -> dict[str, int]:
        """How far its file has each table."""
        return dict.fromkeys(self._bases, self.life.created) if self._found is None else dict(self._found.tables)

    def _release_missing(self) -> None:
        self._world.view_turns.add(self)
        now, board, positions = time.monotonic(), self._world.board, self._positions()
        for table, base in self._bases.items():
            at, rows = positions[table], None
            if self._found is not None:
                rows = self._world.looks.missing(base, at, board.horizon)
            if rows is None:  # one at least: it is to be loaded
                rows = int(board.horizon > at)
            if rows:
                board.release_for(self.feed, table, at + 1, board.horizon, rows, now)

    def put_again(self) -> None:
        """What was learned of deltas is right for the file that is made again, too."""
        kept, self.upkeep = self.upkeep.kept(), self._new_upkeep()
        super().put_again()
        self.upkeep.begin_with(kept)

    def leave_board(self) -> None:
        self._world.view_turns.remove(self.name)
        super().leave_board()

    @property
    def is_lost(self) -> bool:
        return self._world.looks.view(self.life) is None

    def released(self, source: str, first: int, through: int, rows: int, at: float) -> None:
        if self.on_board is not None:
            self._world.board.release_for(self.on_board, source, first, through, rows, at)
            self.upkeep.released(source, rows, at)
            self._world.view_turns.note(self.name)

    def message(self, load: Load, now: float) -> LoadView:
        rows, behind = self.feed.behind_rows(), self.feed.behind
        tables = load.only or tuple(rows)
        recompute = self.upkeep.recomputes({table: rows[table] for table in tables})
        since = {table: behind[table][0].first - 1 if behind[table] else load.through for table in tables}
        return LoadView(self.life, dict.fromkeys(tables, load.through), since, recompute, self.upkeep.to_keep(now))

    def loaded(self, load: Load, result: Propagation, took_s: float) -> None:
        now, board, pending = time.monotonic(), self._world.board, self.feed.behind_rows()
        self._world.view_turns.note(self.name, loaded=True)
        self.upkeep.propagated(result, pending, now)
        if load.question is not None and not any(pending.values()):
            self.upkeep.up_to_date(now)
        for question in board.waiting:
            if self.name in question.tables and board.valid_until(self.feed) >= question.seq:
                self._ready_after.setdefault(question.number, max(0.0, now - question.arrived))

    def look(self) -> None:
        self._world.view_turns.note(self.name)
        self._found = self._world.looks.view(self.life)
        for table, at in ({} if self._found is None else self._found.tables).items():
            self.feed.take((table,), at)
            self.feed.loaded = self.feed.version = max(self.feed.loaded, at)

    def worth(self, question: Question) -> dict[str, Any]:
        took_s = self._ready_after.get(question.number, READY_S)
        return {"refresh_s": took_s, "promise_s": self.upkeep.response_time_s}

    def over(self, question: Question, *, answered: bool) -> None:
        took_s = self._ready_after.pop(question.number, READY_S)
        if answered and self.on_board is not None:
            self.upkeep.refreshed(took_s)
            self._world.view_turns.note(self.name)  # what may be pending is another time now

    def _facts(self, now: float) -> dict[str, Any]:
        return self.upkeep.facts(self.feed.behind_rows())
