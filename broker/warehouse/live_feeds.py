"""What a file on the board is, a table or a view: when it is loaded, by which message, and what it amounted to.

The warehouse process (`live.py`) does not ask which of the two it has. `LiveTable` is here, `LiveView` in
`live_views.py`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from hullcast.broker.log.history import Life
from hullcast.broker.warehouse.board import Feed
from hullcast.broker.warehouse.files import file_of, remove, size_of
from hullcast.broker.warehouse.messages import LoadTable
from hullcast.broker.warehouse.view_file import ViewLife

if TYPE_CHECKING:
    from pathlib import Path

    from hullcast.broker.warehouse.board import Board, Load, Question, Release
    from hullcast.broker.warehouse.live_views import ViewTurns
    from hullcast.broker.warehouse.loader import Loaded
    from hullcast.broker.warehouse.looks import FileLooks
    from hullcast.broker.warehouse.messages import LoadView
    from hullcast.broker.warehouse.turns import Turns

OneLife = TypeVar("OneLife", Life, ViewLife)
OneFeed = TypeVar("OneFeed", bound=Feed)


class FeedWorld(NamedTuple):
    """What tables and views are told to: the board, whoever decides, and their files."""

    directory: Path
    board: Board
    turns: Turns
    view_turns: ViewTurns
    looks: FileLooks


class LiveFeed(ABC, Generic[OneLife, OneFeed]):
    """A table or view, from when it is known until it is gone. `on_board` is where it stands there, if it does."""

    #: The part of a report that tells of it, and whether it is loaded on a place of its own.
    SECTION: ClassVar[str]
    APART: ClassVar[bool] = False

    def __init__(self, world: FeedWorld, name: str, life: OneLife, rows: int) -> None:
        """`rows` it has about, as it became known."""
        self.name = name
        self.life: OneLife = life
        self._world, self._rows = world, rows
        self.on_board: OneFeed | None = None
        self.is_loaded = False  # whether there are rows to show, however old
        self.is_failing = False  # whether its last load failed

    @property
    def feed(self) -> OneFeed:
        """Where it stands on the board; it does."""
        assert self.on_board is not None
        return self.on_board

    @property
    @abstractmethod
    def sources(self) -> tuple[str, ...]:
        """The tables whose updates it waits for (folded names)."""

    @property
    @abstractmethod
    def is_due(self) -> bool:
        """Whether it comes to the board before somebody asks for it."""

    def put(self) -> None:
        """Let it come to the board, if it is not there. All tables are known, and all that was released."""
        if self.on_board is None:
            self.on_board = self._made()
            self._world.board.add(self.on_board)
            self._release_missing()

    def put_again(self) -> None:
        """Its file is lost: begin anew."""
        self.leave_board()
        self.is_loaded = False
        self.put()

    def leave_board(self) -> None:
        """Its loads are over, or stopped."""
        if self.on_board is not None:
            self._world.board.remove(self.name)
            self.on_board = None

    def forget(self) -> None:
        """It is gone."""
        self.leave_board()
        remove(file_of(self._world.directory, self.life))

    @abstractmethod
    def _made(self) -> OneFeed:
        """Where it stands, by its file."""

    @abstractmethod
    def _release_missing(self) -> None:
        """Note what its file lacks."""

    @property
    @abstractmethod
    def is_lost(self) -> bool:
        """Whether there is no file of it that can be used."""

    @abstractmethod
    def released(self, source: str, first: int, through: int, rows: int, at: float) -> None:
        """Updates of one of its sources were acknowledged."""

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

    def over(self, question: Question, *, answered: bool) -> None:
        """A question needs it no longer."""

    def report(self, now: float) -> dict[str, Any]:
        """How it is, for people; it is on the board."""
        return {**self._facts(now), "bytes": size_of(file_of(self._world.directory, self.life))}

    @abstractmethod
    def _facts(self, now: float) -> dict[str, Any]: ...


class LiveTable(LiveFeed[Life, Feed]):
    """A table. It comes to the board when a query first names it, or at once if it is declared a feed."""

    SECTION = "tables"

    def __init__(self, world: FeedWorld, name: str, life: Life, rows: int) -> None:
        super().__init__(world, name, life, rows)
        self._unseen = 0  # updates while it was not on the board

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def is_due(self) -> bool:
        return self.life.table.feed is not None

    def _made(self) -> Feed:
        state, terms = self._world.looks.table(self.life), self.life.table.feed
        self.is_loaded = state is not None
        feed = Feed(self.name, time.monotonic())
        feed.loaded = state.current if state is not None else self.life.created
        feed.version = state.last if state is not None else self.life.created
        if terms is not None:
            feed.period_s, feed.weight = terms.period_s, terms.weight
        return feed

    def _release_missing(self) -> None:
        loaded, horizon = self.feed.loaded, self._world.board.horizon
        missing = self._world.looks.missing(self.life, loaded, horizon) if self.is_loaded else None
        if missing is None:  # at least
            missing = max(1, self._unseen + (0 if self.is_loaded else self._rows))
        self._unseen = 0
        if missing and horizon > loaded:
            self.released(self.name, loaded + 1, horizon, missing, time.monotonic())

    @property
    def is_lost(self) -> bool:
        return self._world.looks.table(self.life) is None

    def released(self, source: str, first: int, through: int, rows: int, at: float) -> None:
        if self.on_board is None:
            self._unseen += rows
            return
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
        state = self._world.looks.table(self.life)
        if state is not None:
            self.is_loaded = True
            self._world.board.found(self.name, state.current, state.last, time.monotonic())

    def left(self, release: Release, seq: int) -> Release | None:
        if release.first > seq:
            return release
        rows = self._world.looks.missing(self.life, seq, release.through)
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
