"""Tables and views in the warehouse process: when each is loaded, by which message, and what it amounted to.

`LiveWarehouse` (`live.py`) does not ask which of the two it has. Views have a worker of their own (`ViewTurns`): a
question that reads a view gets it refreshed there at once; in between, what the upkeep of a view says is due is
propagated. So no promise waits behind a long query, or the first load of a large table, whatever the policy is.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from hullcast.broker.log.history import Life
from hullcast.broker.tables.schema import fold
from hullcast.broker.views.upkeep import Upkeep
from hullcast.broker.warehouse.deciding.board import Feed, Load, ViewFeed
from hullcast.broker.warehouse.files.table_file import file_of, remove, size_of
from hullcast.broker.warehouse.files.table_loader import FileLoader, Loader
from hullcast.broker.warehouse.files.view_file import LearnedCosts, ViewLife
from hullcast.broker.warehouse.files.view_loader import ViewLoader
from hullcast.broker.warehouse.messages import LoadTable, LoadView
from hullcast.network.wire.errors import HullcastError
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hullcast.broker.views.upkeep import Propagation
    from hullcast.broker.warehouse.deciding.board import Board, Question, Release
    from hullcast.broker.warehouse.deciding.turns import Turns
    from hullcast.broker.warehouse.files.table_file import FileState
    from hullcast.broker.warehouse.files.table_loader import Loaded

log = logger(__name__)

#: Seconds in all for which this process counts updates that were released before it began. Meanwhile all others wait.
COUNTING_S = 1.0
#: Views whose questions wait for nothing: how long they took to be ready counts as nothing, too.
READY_S = 0.0
#: Seconds that changes wait at most, however little they would take: the log is kept for some time only.
MOST_WAIT_S = 10.0

AnyLoader = TypeVar("AnyLoader", bound=FileLoader[Any, Any, Any])
Found = TypeVar("Found")


class FeedWorld:
    """What tables and views are told to: the board, the turns, and their files.

    A look at a file takes moments, and no connection stays open after it: a fork would share it.
    """

    def __init__(self, directory: Path, board: Board, turns: Turns, view_turns: ViewTurns) -> None:
        self.directory, self.board, self.turns, self.view_turns = directory, board, turns, view_turns
        self._counting_s = COUNTING_S  # left

    def look(
        self, kind: type[AnyLoader], life: Life | ViewLife, read: Callable[[AnyLoader], Found | None]
    ) -> Found | None:
        """What a loader finds; None also if a file or the log cannot be read: the next load will say why."""
        with closing(kind(self.directory)) as loader:
            try:
                return read(loader)
            except HullcastError as error:
                log.warning("file cannot be read", extra={kind.KIND: life.table.name, "why": str(error)})
                return None

    def missing(self, life: Life, after: int, through: int) -> int | None:
        """How many updates a table has behind a sequence number; None if the log cannot tell, or not soon."""
        began = time.monotonic()
        found = self.look(Loader, life, lambda loader: loader.count(life, after, through, within_s=self._counting_s))
        self._counting_s = max(0.0, self._counting_s - (time.monotonic() - began))
        return found


class LiveFeed(ABC):
    """A table or view, from when it is known until it is gone. `on_board` is where it stands there, if it does.
    `sources` are the tables whose updates it waits for, by folded name."""

    #: The part of a report that tells of it, and whether it is loaded on a place of its own.
    SECTION: ClassVar[str]
    APART: ClassVar[bool] = False
    LOADER: ClassVar[type[FileLoader[Any, Any, Any]]]

    life: Life | ViewLife
    sources: dict[str, Life]
    on_board: Feed | None = None
    is_loaded = False  # whether there are rows to show, however old
    is_failing = False  # whether its last load failed

    def __init__(self, world: FeedWorld, name: str) -> None:
        self.name, self._world = name, world
        self._unseen = 0  # updates while it was not on the board

    @property
    def feed(self) -> Feed:
        """Where it stands on the board; it does."""
        assert self.on_board is not None
        return self.on_board

    @property
    @abstractmethod
    def is_due(self) -> bool:
        """Whether it comes to the board before somebody asks for it."""

    def put(self) -> None:
        """Let it come to the board, if it is not there. All tables are known, and all that was released."""
        if self.on_board is not None:
            return
        found, now, board = self._found(), time.monotonic(), self._world.board
        self.on_board = self._made(found, now)
        board.add(self.on_board)
        for source, life in self.sources.items():
            at = life.created if found is None else found[source].current
            rows = None if found is None else self._world.missing(life, at, board.horizon)
            if rows is None:  # at least
                rows = self._assumed()
            if rows and board.horizon > at:
                self._release(source, at + 1, board.horizon, rows, now)
        self._unseen = 0

    def put_again(self) -> None:
        self.leave_board()
        self.is_loaded = False
        self.put()

    def leave_board(self) -> None:
        """Its loads are over, or stopped."""
        if self.on_board is not None:
            self._world.board.remove(self.name)
            self.on_board = None

    def forget(self) -> None:
        self.leave_board()
        remove(file_of(self._world.directory, self.life))

    @property
    def is_lost(self) -> bool:
        return self._found() is None

    def _found(self) -> dict[str, FileState] | None:
        """How far its file has each source; None if there is none that can be used. What is behind the horizon is of
        another course of events."""
        return self._world.look(
            self.LOADER, self.life, lambda loader: loader.state(self.life, self._world.board.horizon)
        )

    @abstractmethod
    def _made(self, found: dict[str, FileState] | None, now: float) -> Feed:
        """Where it stands, by its file."""

    def _assumed(self) -> int:
        """How many updates are missing, where nobody can tell."""
        return 1

    @abstractmethod
    def _release(self, source: str, first: int, through: int, rows: int, at: float) -> None:
        """Note updates that its file lacks."""

    def released(self, source: str, first: int, through: int, rows: int, at: float) -> None:
        """Updates of one of its sources were acknowledged."""
        if self.on_board is None:
            self._unseen += rows
        else:
            self._release(source, first, through, rows, at)

    @abstractmethod
    def message(self, load: Load, now: float) -> LoadTable | LoadView:
        """What a worker is told to do for a load, which has begun."""

    @abstractmethod
    def loaded(self, load: Load, result: Any, took_s: float) -> None:
        """A load was done, and the board knows it."""

    @abstractmethod
    def look(self) -> None:
        """A worker died while it loaded this: it may have come to the end of that before."""

    def left(self, release: Release, seq: int) -> Release | None:
        """What a release has behind a sequence number; None if there is no update."""
        return release

    def worth(self, question: Question) -> dict[str, Any]:
        """What else an answer to a question that reads it now is worth."""
        return {}

    def over(self, question: Question, *, answered: bool) -> None:  # noqa: B027  (only views need it)
        """A question needs it no longer."""

    def report(self, now: float) -> dict[str, Any]:
        """How it is, for people; it is on the board."""
        return {**self._facts(now), "bytes": size_of(file_of(self._world.directory, self.life))}

    @abstractmethod
    def _facts(self, now: float) -> dict[str, Any]: ...


class LiveTable(LiveFeed):
    """A table. It comes to the board when a query first names it, or at once if it is declared a feed."""

    SECTION, LOADER = "tables", Loader
    life: Life

    def __init__(self, world: FeedWorld, name: str, life: Life, rows: int) -> None:
        """`rows` it has about, as it became known."""
        super().__init__(world, name)
        self.life, self.sources, self._rows = life, {name: life}, rows

    @property
    def is_due(self) -> bool:
        return self.life.table.feed is not None

    def _made(self, found: dict[str, FileState] | None, now: float) -> Feed:
        terms = self.life.table.feed
        self.is_loaded = found is not None
        feed = Feed(self.name, now)
        feed.loaded = feed.version = self.life.created
        if found is not None:
            feed.loaded, feed.version, _ = found[self.name]
        if terms is not None:
            feed.period_s, feed.weight = terms.period_s, terms.weight
        return feed

    def _assumed(self) -> int:
        return max(1, self._unseen + (0 if self.is_loaded else self._rows))

    def _release(self, source: str, first: int, through: int, rows: int, at: float) -> None:
        board = self._world.board
        release = board.release(self.name, first, through, rows, at)
        self._world.turns.policy.released(self.feed, release, board, time.monotonic())

    def message(self, load: Load, now: float) -> LoadTable:
        return LoadTable(self.life, load.through)

    def loaded(self, load: Load, result: Loaded, took_s: float) -> None:
        board, feed, now = self._world.board, self.feed, time.monotonic()
        self.is_loaded = True
        feed.loaded, feed.version = max(feed.loaded, result.current), result.last
        if feed.pending and feed.pending[0].first <= feed.loaded < feed.pending[0].through:
            board.left(feed, self.left(feed.pending[0], feed.loaded))
        feed.cost.learn(result.rows_read, took_s)
        self._world.turns.policy.ended(load, took_s, board, now)

    def look(self) -> None:
        found = self._found()
        if found is not None:
            self.is_loaded = True
            current, last, _ = found[self.name]
            self._world.board.found(self.name, current, last, time.monotonic())

    def left(self, release: Release, seq: int) -> Release | None:
        if release.first > seq:
            return release
        rows = self._world.missing(self.life, seq, release.through)
        return None if rows == 0 else release._replace(first=seq + 1, rows=release.rows if rows is None else rows)

    def _facts(self, now: float) -> dict[str, Any]:
        feed = self.feed
        return {
            "loaded": feed.loaded,
            "staleness_s": feed.lag(now),
            "unapplied": feed.pending_rows,
            "stretch": feed.stretch,
            "period_s": feed.period_s,
            "weight": feed.weight,
            "loads": feed.loads,
            "loaded_rows": feed.loaded_rows,
        }


class LiveView(LiveFeed):
    """A view. `upkeep` decides what is due of it."""

    SECTION, APART, LOADER = "views", True, ViewLoader
    life: ViewLife
    on_board: ViewFeed | None = None

    def __init__(self, world: FeedWorld, name: str, life: ViewLife) -> None:
        super().__init__(world, name)
        self.life, self.sources = life, {fold(base.table.name): base for base in life.bases}
        self.upkeep = self._new_upkeep()
        self.is_overdue = False  # whether changes have waited for long
        self._ready_after: dict[int, float] = {}  # seconds, by the number of a question that waits

    def _new_upkeep(self) -> Upkeep:
        return Upkeep(tuple(self.sources), self.life.definition.response_time_s)

    @property
    def feed(self) -> ViewFeed:
        assert self.on_board is not None
        return self.on_board

    @property
    def is_due(self) -> bool:
        return True

    def _made(self, found: dict[str, FileState] | None, now: float) -> ViewFeed:
        feed = ViewFeed(self.name, now)
        feed.behind = {table: deque() for table in self.sources}
        feed.loaded = feed.version = self.life.created
        self._world.view_turns.add(self)
        if found is not None:
            feed.loaded = feed.version = max(state.current for state in found.values())
            learned = self._world.look(ViewLoader, self.life, lambda loader: loader.learned(self.life))
            learned = learned or LearnedCosts()
            self.upkeep.computing = learned.computing
            if learned.deltas is not None:
                with suppress(ValueError):  # another version's: it is learned again
                    self.upkeep.begin_with(learned.deltas)
        return feed

    def _release(self, source: str, first: int, through: int, rows: int, at: float) -> None:
        self._world.board.release_for(self.feed, source, first, through, rows, at)

    def put_again(self) -> None:
        """What was learned of deltas is right for the file that is made again, too."""
        kept, self.upkeep = self.upkeep.kept(), self._new_upkeep()
        super().put_again()
        self.upkeep.begin_with(kept)

    def leave_board(self) -> None:
        self._world.view_turns.remove(self)
        super().leave_board()

    def released(self, source: str, first: int, through: int, rows: int, at: float) -> None:
        super().released(source, first, through, rows, at)
        if self.on_board is not None:
            self.upkeep.changes += rows
            self._world.view_turns.note(self)

    def message(self, load: Load, now: float) -> LoadView:
        rows, behind = self.feed.behind_rows(), self.feed.behind
        tables = load.only or tuple(rows)
        recompute = self.upkeep.recomputes({table: rows[table] for table in tables})
        since = {table: behind[table][0].first - 1 if behind[table] else load.through for table in tables}
        return LoadView(self.life, dict.fromkeys(tables, load.through), since, recompute, self.upkeep.to_keep(now))

    def loaded(self, load: Load, result: Propagation, took_s: float) -> None:
        now, board, pending = time.monotonic(), self._world.board, self.feed.behind_rows()
        self.is_overdue = False
        self._world.view_turns.note(self)
        self.upkeep.propagated(result, pending, now)
        if load.question is not None and not any(pending.values()):
            self.upkeep.up_to_date(now)
        for question in board.waiting:
            if self.name in question.tables and board.valid_until(self.feed) >= question.seq:
                self._ready_after.setdefault(question.number, max(0.0, now - question.arrived))

    def look(self) -> None:
        self._world.view_turns.note(self)
        for table, state in (self._found() or {}).items():
            self.feed.take((table,), state.current)
            self.feed.loaded = self.feed.version = max(self.feed.loaded, state.current)

    def worth(self, question: Question) -> dict[str, Any]:
        took_s = self._ready_after.get(question.number, READY_S)
        return {"refresh_s": took_s, "promise_s": self.upkeep.response_time_s}

    def over(self, question: Question, *, answered: bool) -> None:
        took_s = self._ready_after.pop(question.number, READY_S)
        if answered and self.on_board is not None:
            self.upkeep.refreshed(took_s)
            self._world.view_turns.note(self)  # what may be pending is another time now

    def _facts(self, now: float) -> dict[str, Any]:
        return self.upkeep.facts(self.feed.behind_rows())


class ViewTurns:
    """What the place of views does next. A view is looked at when something happened to it, and not otherwise."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._views: dict[str, LiveView] = {}  # those on the board
        self._news: dict[str, LiveView] = {}  # views that something may be due of since they were looked at last

    def add(self, view: LiveView) -> None:
        self._views[view.name] = view
        self.note(view)

    def remove(self, view: LiveView) -> None:
        self._views.pop(view.name, None)
        self._news.pop(view.name, None)
        view.is_overdue = False

    def note(self, view: LiveView) -> None:
        """Something happened to a view: what is due may be other tables now."""
        self._news[view.name] = view

    def next(self, now: float) -> Load | None:
        """A refresh that a question waits for, or what is due; None: nothing, until something happens."""
        for question in self._board.waiting if self._views else ():
            for load in self._board.missing(question, apart=True):
                return load
        for name, view in list(self._news.items()):
            feed = view.feed
            if feed.loading is not None or self._board.is_awaited(name):
                continue  # whoever asks refreshes it, and reads it before it changes again
            pending = feed.behind_rows()
            due = view.upkeep.due(pending, now) if feed.pending else ()
            if not due and view.is_overdue:
                due = tuple(table for table, rows in pending.items() if rows)
            if not due:
                del self._news[name]
            elif (through := self._board.reach(feed)) > feed.loaded:
                return Load(name, through, only=due)
        return None

    def look_at_age(self, now: float) -> None:
        """Called now and then: changes that nobody asks for do not wait for ever, or the log is cut behind them and the
        view must be made again."""
        for view in self._views.values():
            view.is_overdue = view.feed.lag(now) > MOST_WAIT_S
            if view.is_overdue:
                self.note(view)
