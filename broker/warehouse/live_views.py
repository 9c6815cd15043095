"""Views in the warehouse process: kept almost ready, refreshed for questions, and counted.

Views have a place of their own among the workers. A question that reads a view gets it refreshed there at once; in
between, what the upkeep of a view says is due is propagated. So no promise waits behind a long query, or behind the
first load of a large table, whatever the policy is.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from hullcast.broker.tables.schema import fold
from hullcast.broker.views.upkeep import Upkeep
from hullcast.broker.warehouse.board import Load, ViewFeed
from hullcast.broker.warehouse.messages import LoadView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hullcast.broker.log.history import Life
    from hullcast.broker.views.upkeep import Propagation
    from hullcast.broker.warehouse.board import Board, Question
    from hullcast.broker.warehouse.view_file import LearnedCosts, ViewLife

#: Views whose questions wait for nothing: how long they took to be ready counts as nothing, too.
READY_S = 0.0
#: Seconds that changes wait at most, however little they would take: the log is kept for some time only.
MOST_WAIT_S = 10.0


class FoundView(NamedTuple):
    """The file of a view: how far it has each table (folded name), and what it keeps of costs."""

    tables: Mapping[str, int]
    learned: LearnedCosts

    def teach(self, upkeep: Upkeep) -> None:
        """Let an upkeep begin with what was learned."""
        upkeep.computing = self.learned.computing
        if self.learned.deltas is not None:
            with suppress(ValueError):  # another version's: it is learned again
                upkeep.begin_with(self.learned.deltas)


@dataclass(eq=False, slots=True)
class LiveView:
    """One view: what it is, where it stands on the board, and who decides about it."""

    life: ViewLife
    feed: ViewFeed
    upkeep: Upkeep
    ready_after: dict[int, float] = field(default_factory=dict)  # seconds, by the number of a question that waits


class LiveViews:
    """All views of the warehouse.

    `found` gives what the file of a view has, None if there is no file; `missing` counts the updates of a table behind
    a sequence number, None if that cannot be said.
    """

    def __init__(
        self,
        board: Board,
        found: Callable[[ViewLife], FoundView | None],
        missing: Callable[[Life, int, int], int | None],
    ) -> None:
        self._board = board
        self._found, self._missing = found, missing
        self.lives: dict[str, ViewLife] = {}
        self._views: dict[str, LiveView] = {}  # those on the board
        self._readers: dict[str, list[LiveView]] = {}  # by table
        self._overdue: set[str] = set()  # views with changes that have waited for long
        self._news: dict[str, None] = {}  # views that something may be due of since they were looked at last

    def __contains__(self, name: str) -> bool:
        return name in self.lives

    def __len__(self) -> int:
        return len(self.lives)

    # -- which there are -------------------------------------------------------------------------------------

    def know(self, name: str, life: ViewLife) -> None:
        """There is a view of this name (folded)."""
        self.lives[name] = life

    def forget(self, name: str) -> None:
        """There is no view of this name any more."""
        del self.lives[name]
        self._news.pop(name, None)
        self._overdue.discard(name)
        view = self._views.pop(name, None)
        if view is not None:
            for readers in self._readers.values():
                if view in readers:
                    readers.remove(view)

    def put_on_board(self) -> None:
        """Let those that are not on the board come there. All tables are known, and all that was released."""
        for name, life in self.lives.items():
            if name not in self._views:
                self._put(name, life)

    def put_again(self, name: str) -> None:
        """The file of a view is not what it should be: look at it again. What was learned is right for another one."""
        life, before = self.lives[name], self._views.get(name)
        self.forget(name)
        self._board.remove(name)
        self.lives[name] = life
        self._put(name, life)
        if before is not None:
            self._views[name].upkeep.begin_with(before.upkeep.kept())

    def _put(self, name: str, life: ViewLife) -> None:
        now, sources = time.monotonic(), {fold(base.table.name): base for base in life.bases}
        feed = ViewFeed(name, now)
        feed.behind = {table: deque() for table in sources}
        found = self._found(life)
        position = dict.fromkeys(sources, life.created) if found is None else found.tables
        feed.loaded = feed.version = max(position.values())
        upkeep = Upkeep(tuple(sources), life.definition.response_time_s)
        if found is not None:
            found.teach(upkeep)
        view = self._views[name] = LiveView(life, feed, upkeep)
        self._board.add(feed)
        self._news[name] = None
        horizon = self._board.horizon
        for table, source in sources.items():
            self._readers.setdefault(table, []).append(view)
            rows = self._missing(source, position[table], horizon) if found is not None else None
            if rows is None:  # one at least: it is to be loaded
                rows = int(horizon > position[table])
            if rows:
                self._board.release_for(feed, table, position[table] + 1, horizon, rows, now)

    # -- what happens ----------------------------------------------------------------------------------------

    def released(self, table: str, first: int, through: int, rows: int, at: float) -> None:
        """Updates of a table were acknowledged."""
        for view in self._readers.get(table, ()):
            self._board.release_for(view.feed, table, first, through, rows, at)
            view.upkeep.released(table, rows, at)
            self._news[view.feed.name] = None

    def next(self, now: float) -> Load | None:
        """What the place of views does next: a refresh that a question waits for, or what is due."""
        for question in self._board.waiting:
            for load in self._board.missing_views(question):
                return load
        for name in list(self._news):
            view = self._views[name]
            if view.feed.loading is not None or self._board.is_awaited(name):
                continue  # whoever asks refreshes it, and reads it before it changes again
            pending = view.feed.behind_rows()
            due = view.upkeep.due(pending, now) if view.feed.pending else ()
            if not due and name in self._overdue:
                due = tuple(table for table, rows in pending.items() if rows)
            if not due:
                del self._news[name]
            elif (through := self._board.reach(view.feed)) > view.feed.loaded:
                return Load(name, through, only=due)
        return None

    def message(self, load: Load, now: float) -> LoadView:
        """What a worker is told to do for a load."""
        view = self._views[load.table]
        rows = view.feed.behind_rows()
        tables = load.only or tuple(rows)
        recompute = view.upkeep.recomputes({table: rows[table] for table in tables})
        through = dict.fromkeys(tables, load.through)
        behind = view.feed.behind
        since = {table: behind[table][0].first - 1 if behind[table] else load.through for table in tables}
        return LoadView(view.life, through, since, recompute, view.upkeep.to_keep(now))

    def look_at_age(self, now: float) -> None:
        """Called now and then: changes that nobody asks for do not wait for ever, or the log is cut behind them and the
        view must be made again."""
        self._overdue = {name for name, view in self._views.items() if view.feed.lag(now) > MOST_WAIT_S}
        self._news.update(dict.fromkeys(self._overdue))

    def loaded(self, load: Load, done: Propagation, now: float) -> None:
        """Changes of a view's tables were propagated."""
        view = self._views[load.table]
        self._news[load.table] = None
        self._overdue.discard(load.table)
        pending = view.feed.behind_rows()
        view.upkeep.propagated(done, pending, now)
        if load.question is not None and not any(pending.values()):
            view.upkeep.up_to_date(now)
        for question in self._board.waiting:
            if load.table in question.tables and self._board.valid_until(view.feed) >= question.seq:
                view.ready_after.setdefault(question.number, max(0.0, now - question.arrived))

    def look(self, name: str) -> None:
        """A worker died while it propagated changes: it may have come to the end of that before."""
        view = self._views[name]
        self._news[name] = None
        found = self._found(view.life)
        for table, at in ({} if found is None else found.tables).items():
            view.feed.take((table,), at)
            view.feed.loaded = view.feed.version = max(view.feed.loaded, at)

    def begun(self, question: Question) -> dict[str, dict[str, float]]:
        """A question reads its views: how long each took to be ready, by name, and what was promised."""
        found = {}
        for name, view in self._of(question):
            took_s = view.ready_after.get(question.number, READY_S)
            found[name] = {"refresh_s": took_s, "promise_s": view.upkeep.response_time_s}
        return found

    def over(self, question: Question, *, answered: bool) -> None:
        """A question needs its views no longer."""
        for name, view in self._of(question):
            took_s = view.ready_after.pop(question.number, READY_S)
            if answered:
                view.upkeep.refreshed(took_s)
                self._news[name] = None  # what may be pending is another time now

    def _of(self, question: Question) -> Iterator[tuple[str, LiveView]]:
        for name in question.tables:
            if name in self._views:
                yield name, self._views[name]

    def report(self) -> dict[str, Any]:
        """How they are, for people."""
        return {view.life.table.name: view.upkeep.facts(view.feed.behind_rows()) for view in self._views.values()}
