"""The warehouse as it runs: the board, driven by what the server says and by what workers do.

Everything here happens on the event loop of the warehouse process (`broker/warehouse/process.py`), and takes moments:
rows are read and written by workers (`broker/warehouse/workers.py`), and which task is next is said by
`broker/warehouse/turns.py`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hullcast.broker.scheduling.places import TaskPlaces
from hullcast.broker.sql.text import shorten
from hullcast.broker.tables.schema import fold
from hullcast.broker.views.upkeep import Upkeep, shortest_promise
from hullcast.broker.warehouse.answering import with_worth
from hullcast.broker.warehouse.board import Answer, Board, Feed, Load, Question
from hullcast.broker.warehouse.files import FOLDER, file_name, file_of, remove, remove_others, size_of
from hullcast.broker.warehouse.live_views import LiveViews
from hullcast.broker.warehouse.looks import FileLooks
from hullcast.broker.warehouse.messages import (
    AnswerEnded,
    AnswerRows,
    Ask,
    AskTables,
    Begin,
    BuildView,
    Failure,
    FileMoved,
    FileOf,
    Finished,
    FirstRows,
    Known,
    LoadTable,
    MakeView,
    NextRows,
    Pinned,
    QueryRefused,
    ReadPlan,
    ReadText,
    Released,
    Report,
    Select,
    SpooledPart,
    Switch,
    Tables,
    ViewMade,
    Withdraw,
)
from hullcast.broker.warehouse.policies import POLICIES
from hullcast.broker.warehouse.turns import TextReading, Turns, ViewBuilding
from hullcast.broker.warehouse.view_builds import ViewBuilds
from hullcast.broker.warehouse.view_file import ViewLife
from hullcast.broker.warehouse.workers import Hand, Workers
from hullcast.network.wire.errors import (
    ConnectionLost,
    DeadlineMissed,
    HistoryGone,
    HullcastError,
    SqlError,
    UnknownTable,
    from_wire,
    to_wire,
)
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hullcast.broker.log.history import Life
    from hullcast.broker.queries.reading import Plan
    from hullcast.broker.views.upkeep import Spent
    from hullcast.broker.warehouse.board import Release
    from hullcast.broker.warehouse.policies.policy import WarehousePolicy
    from hullcast.broker.warehouse.turns import LiveTask

log = logger(__name__)

#: Folder of a data directory with portions of answers that wait to be fetched.
SPOOL = "spool"
#: Seconds after which a load that failed is tried again.
LOAD_PAUSE_S = 0.5
#: Seconds after which the propagation of changes into a view makes way for other views, and how many go on beside them.
LONG_S, MOST_LONG = 0.2, 2
#: Seconds after which the making of a view is stopped.
BUILD_S = 600.0
#: Texts that are remembered as they were read, and how long they took.
REMEMBERED = 1024
#: What a query is expected to take, as long as nothing is known of its text.
EXPECTED_S = 0.002
#: How often a query begins again because files were not as they had to be.
MOST_TRIES = 20


class _FileThen(NamedTuple):
    """A table as it stood on the board when a query of it began."""

    loaded: int
    version: int
    pending: tuple[Release, ...]


@dataclass(eq=False, slots=True)
class _Asked:
    """A query: what was asked, where it stands on the board, and what is known of its answer so far."""

    ask: Ask
    question: Question
    deadline: asyncio.TimerHandle | None = None
    tries: int = 0
    began: float | None = None
    horizon: int = 0  # then
    files: tuple[_FileThen, ...] = ()  # then; those of the question's tables
    answered: bool = False  # in part at least
    more: bool = False
    worth: dict[str, Any] = field(default_factory=dict)


class LiveWarehouse:
    """The board, driven by what the server says and what workers do."""

    def __init__(self, begin: Begin, say: Callable[[object], None]) -> None:
        self._say = say  # to the server
        self._directory, self._limits = Path(begin.directory), begin.limits
        self._folder, self._spools = f"{self._directory / FOLDER}", f"{self._directory / SPOOL}/{os.getpid()}-"
        self._loop = asyncio.get_running_loop()
        self.board = Board(begin.places)
        self._turns = Turns(self.board, POLICIES[begin.policy]())
        self._places: TaskPlaces[LiveTask] = TaskPlaces(begin.places, self._choose, self._begin)
        self._looks = FileLooks(self._directory, lambda: self.board.horizon)
        self._views = LiveViews(self.board, self._looks.view, self._looks.missing)
        self._views_place: TaskPlaces[LiveTask] = TaskPlaces(0, self._choose_view, self._begin)  # 1 if there are views
        self._long_places: TaskPlaces[LiveTask] = TaskPlaces(0, lambda now: None, self._begin)  # see `_make_way`
        self._builds = ViewBuilds(self._directory)
        self._builds_place: TaskPlaces[LiveTask] = TaskPlaces(0, self._choose_build, self._begin)  # 1 from the first on
        self._workers = Workers(
            self._directory, begin.disk, self._on_worker, self.on_quiet, self._on_death, self._fill_soon
        )
        self._lives: dict[str, Life] = {}  # of tables
        self._unseen: dict[str, int] = {}  # updates of tables that are not on the board
        self._rows: dict[str, int] = {}  # of tables, when they became known
        self._loaded: set[str] = set()  # tables on the board that have a file
        self._failing: set[str] = set()  # tables whose last load failed
        self._asked: dict[int, _Asked] = {}
        self._plans: dict[str, Plan] = {}
        self._takes: dict[str, float] = {}  # seconds, by text
        self._filling: asyncio.Handle | None = None  # about to
        self._tidied = False
        self._gathered: asyncio.TimerHandle | None = None  # when there is something to load, if nothing happens before
        self.counts: Counter[str] = Counter()

    async def start(self) -> None:
        """Fork the workers."""
        await self._workers.start(self._places.places)

    def stop(self) -> None:
        """Kill the workers."""
        self._workers.stop()

    @property
    def policy(self) -> WarehousePolicy:
        """Who decides."""
        return self._turns.policy

    # -- what the server says --------------------------------------------------------------------------------

    def on_message(self, message: object) -> None:
        """The server says something."""
        match message:
            case Ask():
                self._ask(message)
            case Released():
                self._released(message)
            case AskTables():
                self._turns.texts.append(TextReading(message))
            case MakeView():
                self._builds.put(message)
                self._one_more_for(self._builds_place)  # it takes as long as reading its tables: nobody waits for that
            case Withdraw(number):
                self._withdraw(number)
            case Known():
                self._know(message)
            case Switch(policy):
                self._turns.policy = POLICIES[policy]()
            case _:
                raise TypeError(f"the server sent a {type(message).__name__}")
        self._fill_soon()

    def _know(self, known: Known) -> None:
        """A table was made, or is gone. A text may mean another table now."""
        self._plans.clear()
        name, old = known.name, self._lives.pop(known.name, None) or self._views.lives.get(known.name)
        if old is not None:
            for asked in list(self._asked.values()):
                if name in asked.question.tables:
                    self._fail(asked, UnknownTable(old.table.name, ()))
            if name in self.board.feeds:
                for hand in self._workers.busy():
                    if isinstance(hand.doing, Load) and hand.doing.table == name:
                        self._stop_doing(hand)
                self.board.remove(name)
            if name in self._views:
                self._views.forget(name)
            self._unseen.pop(name, None)
            self._loaded.discard(name)
            self._failing.discard(name)
            remove(file_of(self._directory, old))
        if isinstance(known.life, ViewLife):
            self._know_view(name, known.life)
        elif known.life is not None:
            self._lives[name], self._rows[name] = known.life, known.rows
            if known.life.table.feed is not None and self._tidied:
                self._feed(name)

    def _one_more_for(self, place: TaskPlaces[LiveTask], places: int = 1) -> None:
        """So many places at least, with a worker for each."""
        while place.places < places:
            place.places += 1
            self._workers.one_more()

    def _know_view(self, name: str, life: ViewLife) -> None:
        self._views.know(name, life)
        self._builds.known(life)
        self._one_more_for(self._views_place)  # no promise shall wait behind queries and loads
        if self._tidied:
            self._views.put_on_board()

    def _released(self, released: Released) -> None:
        now = time.monotonic()
        for name, (first, last, rows) in released.tables.items():
            feed = self.board.feeds.get(name)
            if feed is not None:
                release = self.board.release(name, first, last, rows, released.at)
                self.policy.released(feed, release, self.board, now)
            elif name in self._lives:
                self._unseen[name] = self._unseen.get(name, 0) + rows
            self._views.released(name, first, last, rows, released.at)
        self.board.advance(released.through)
        if not self._tidied:  # all tables are known now
            self._tidied = True
            remove_others(self._directory, (*self._lives.values(), *self._views.lives.values()))
            for name, life in self._lives.items():  # not before: that rows were there already is known by the horizon
                if life.table.feed is not None:
                    self._feed(name)
            self._views.put_on_board()

    def _feed(self, name: str) -> Feed:
        """A table on the board; it comes there when a query first names it, or at once if it is declared a feed."""
        feed = self.board.feeds.get(name)
        if feed is None:
            life, now = self._lives[name], time.monotonic()
            state = self._looks.table(life)
            if state is not None:
                self._loaded.add(name)
            terms = life.table.feed
            feed = Feed(name, now)
            feed.loaded = state.current if state is not None else life.created
            feed.version = state.last if state is not None else life.created
            if terms is not None:
                feed.period_s, feed.weight = terms.period_s, terms.weight
            self.board.add(feed)
            unseen = self._unseen.pop(name, 0)
            missing = self._looks.missing(life, feed.loaded, self.board.horizon) if state is not None else None
            if missing is None:  # at least
                missing = max(1, unseen + (self._rows[name] if state is None else 0))
            if missing and self.board.horizon > feed.loaded:
                release = self.board.release(name, feed.loaded + 1, self.board.horizon, missing, now)
                self.policy.released(feed, release, self.board, now)
        return feed

    def _left(self, name: str, release: Release, seq: int) -> Release | None:
        """What a release of a table has behind a sequence number; None if there is no update."""
        if release.first > seq or name in self._views:
            return release
        rows = self._looks.missing(self._lives[name], seq, release.through)
        return None if rows == 0 else release._replace(first=seq + 1, rows=release.rows if rows is None else rows)

    def _ask(self, ask: Ask) -> None:
        now = time.monotonic()
        unknown = [name for name in ask.tables if name not in self._lives and name not in self._views]
        if unknown:
            self._say(QueryRefused(ask.number, *to_wire(UnknownTable(unknown[0], ()))))
            return
        for name in ask.tables:
            if name not in self._views:
                self._feed(name)
        deadline = inf if ask.deadline_s is None else ask.arrived + ask.deadline_s
        # a table that was never loaded has no rows to show: its first load is waited for
        freshness = ask.freshness if self._loaded.issuperset(ask.tables) else 1.0
        expected_s = self._takes.get(ask.sql, EXPECTED_S)
        question = Question(ask.number, ask.owner, ask.tables, ask.arrived, deadline, ask.priority, freshness)
        question.consistent, question.expected_s = ask.consistent, expected_s
        asked = self._asked[ask.number] = _Asked(ask, question)
        self.board.ask(question)
        self.policy.asked(question, self.board, now)
        if deadline < inf:
            asked.deadline = self._loop.call_at(self._loop.time() + deadline - now, self._miss, asked)

    def _withdraw(self, number: int) -> None:
        self._builds.withdraw(number)
        self._turns.texts = [reading for reading in self._turns.texts if reading.ask.number != number]
        asked = self._asked.get(number)
        if asked is not None:
            self._drop(asked)
            return
        self._spool(number).unlink(missing_ok=True)  # it was answered before this was known, and the file may be left
        for hand in self._workers.busy():
            if isinstance(hand.doing, TextReading | ViewBuilding) and hand.doing.ask.number == number:
                self._stop_doing(hand)

    def _miss(self, asked: _Asked) -> None:
        """A query is past its deadline."""
        asked.deadline = None
        assert asked.ask.deadline_s is not None
        self.counts["missed"] += 1
        began, now = asked.began, time.monotonic()
        waited_s = (now if began is None else began) - asked.ask.arrived
        ran_s = 0.0 if began is None else max(now - began, 1e-6)
        self._fail(asked, DeadlineMissed(asked.ask.deadline_s, max(waited_s, 0.0), ran_s))

    def _drop(self, asked: _Asked) -> None:
        """Nobody waits for an answer any more: stop what is done for it."""
        self._forget(asked)
        question = asked.question
        hand = next((hand for hand in self._workers.busy() if _question(hand.doing) is question), None)
        if hand is not None:
            self._stop_doing(hand)
            self._spool(asked.ask.number).unlink(missing_ok=True)
        self.board.withdraw(question)
        self._views.over(question, answered=False)
        self.policy.withdrawn(question, self.board, time.monotonic())

    def _fail(self, asked: _Asked, error: HullcastError) -> None:
        ran_s = 0.0 if asked.began is None else time.monotonic() - asked.began
        self._say(QueryRefused(asked.ask.number, *to_wire(error), ran_s=ran_s))
        self._drop(asked)

    def _forget(self, asked: _Asked) -> None:
        self._asked.pop(asked.ask.number, None)
        if asked.deadline is not None:
            asked.deadline.cancel()

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
        gathered = self.board.gather(now)
        self._views_place.fill(now)
        self._places.fill(now)
        self._builds_place.fill(now)
        if self._gathered is not None:
            self._gathered.cancel()
        self._gathered = self._loop.call_later(gathered - now, self._fill_soon) if gathered < inf else None

    def _choose(self, now: float) -> LiveTask | None:
        return self._turns.next(self._places.busy, now) if self._workers.free() is not None else None

    def _choose_view(self, now: float) -> Load | None:
        return self._views.next(now) if self._workers.free() is not None else None

    def _choose_build(self, now: float) -> ViewBuilding | None:
        return self._builds.next() if self._workers.free() is not None else None

    def _begin(self, task: LiveTask, now: float) -> None:
        hand = self._workers.free()
        assert hand is not None
        hand.doing, hand.began = task, now
        if isinstance(task, Load):
            self.board.begin(task, now)
            if task.table in self._views:
                hand.limit = self._loop.call_later(LONG_S, self._make_way, hand)
                hand.end.write(self._views.message(task, now))
            else:
                hand.end.write(LoadTable(self._lives[task.table], task.through))
            return
        if isinstance(task, ViewBuilding):
            hand.limit = self._loop.call_later(BUILD_S, self._stop_running, hand)
            hand.end.write(BuildView(task.ask.life, self.board.horizon))
            return
        hand.limit = self._loop.call_later(self._limits.time_s, self._stop_running, hand)
        if isinstance(task, TextReading):
            hand.end.write(ReadText(task.ask.sql, self._named_in(task.ask.sql), self._limits.time_s))
            return
        asked = self._asked[task.question.number]
        feeds = [self.board.feeds[name] for name in task.question.tables]
        asked.horizon = self.board.horizon
        asked.files = tuple(_FileThen(feed.loaded, feed.version, tuple(feed.pending)) for feed in feeds)
        self.board.begin(task, now)
        asked.began, ask = now, asked.ask
        files = tuple(self._file(name, task.question) for name in ask.tables)
        spool, plan = f"{self._spools}{ask.number}", self._plans.get(ask.sql)
        hand.end.write(Select(ask.sql, plan, ask.parameters, files, ask.ticket, spool, self._limits))

    def _named_in(self, sql: str) -> dict[str, Any]:
        """The tables that a text may name: those whose name is in it, or may be written in another way."""
        text = fold(sql)
        known: dict[str, Life | ViewLife] = {**self._lives, **self._views.lives}
        return {name: life.table for name, life in known.items() if name in text or "'" in name or "`" in name}

    def _life(self, name: str) -> Life | ViewLife:
        """A table or a view."""
        return self._views.lives[name] if name in self._views else self._lives[name]

    def _file(self, name: str, question: Question) -> FileOf:
        """A table's file, and how far it may be loaded for a question that is ready: what a file holds is the same
        from its last update to the table's next one."""
        feed, life = self.board.feeds[name], self._life(name)
        most = self.board.valid_until(feed) if question.needs_common else inf
        return FileOf(life, f"{self._folder}/{file_name(life)}", feed.version, most)

    # -- what workers do -------------------------------------------------------------------------------------

    def _on_worker(self, hand: Hand, message: object) -> None:
        """A worker says something."""
        task = hand.doing
        if task is None:  # it was stopped meanwhile
            return
        asked = self._asked.get(task.question.number) if isinstance(task, Answer) else None
        match message:
            case Pinned(loaded):
                assert asked is not None
                self._pinned(asked, loaded)
            case FirstRows(body, more):
                assert asked is not None
                self._first_rows(asked, body, more)
            case NextRows(offset, size):
                assert asked is not None
                self._say(SpooledPart(asked.ask.number, offset, size))
            case ReadPlan(plan):
                assert isinstance(task, TextReading)
                self._remember(task.ask.sql, plan)
                self._say(Tables(task.ask.number, plan.tables))
            case FileMoved(lost):
                assert asked is not None
                self._moved(asked, lost)
            case Finished() | Failure():
                self._over(hand, task, message)
        self._fill_soon()

    def _pinned(self, asked: _Asked, loaded: tuple[int, ...]) -> None:
        """A query has begun to read: loads may go on. What it sees is worth this much, by all that was known when it
        was begun: a load may have ended since, and what it sees be older."""
        now, question = time.monotonic(), asked.question
        self.board.pinned(question)
        self._loaded.update(question.tables)  # a file that was not there is made for the query, perhaps without a load
        tables, versions, latest = {}, [], max(asked.horizon, *loaded, 0)
        views = self._views.begun(question)
        for name, seq, file in zip(question.tables, loaded, asked.files, strict=True):
            behind = (self._left(name, release, seq) for release in file.pending if release.through > seq)
            missing = [release for release in behind if release is not None]
            tables[self._life(name).table.name] = {
                "seq": seq,
                "staleness_s": max(0.0, now - missing[0].at) if missing else 0.0,
                "unapplied": sum(release.rows for release in missing),
                **views.get(name, {}),
            }
            versions.append(file.version if seq == file.loaded else seq)
            latest = min(latest, max(seq, missing[0].first - 1 if missing else asked.horizon))
        asked.worth = {
            "seq": latest if all(version <= latest for version in versions) else None,
            "tables": tables,
            "waited_s": max(0.0, (asked.began or now) - asked.ask.arrived),
            "ran_s": 0.0,
            "deadline_s": asked.ask.deadline_s,
            "met": True,
            "policy": self.policy.name,
        }

    def _first_rows(self, asked: _Asked, body: bytes, more: bool) -> None:
        asked.answered, asked.more = True, more
        number = asked.ask.number
        if more:
            self._say(AnswerRows(number, body, str(self._spool(number))))
        else:
            self._say(AnswerRows(number, with_worth(body, self._worth(asked)), None))

    def _worth(self, asked: _Asked) -> dict[str, Any]:
        assert asked.began is not None
        return {**asked.worth, "ran_s": time.monotonic() - asked.began}

    def _spool(self, number: int) -> Path:
        return Path(f"{self._spools}{number}")

    def _moved(self, asked: _Asked, lost: bool) -> None:
        """A file was loaded further than it should be; or it is lost, and cannot be made again as it was."""
        asked.tries += 1
        for name in asked.question.tables if lost else ():
            if self.board.feeds[name].loading is not None:
                continue
            if name in self._views:
                if self._looks.view(self._views.lives[name]) is None:
                    self._views.put_again(name)
            elif self._looks.table(self._lives[name]) is None:
                self._loaded.discard(name)
                self.board.remove(name)
                self._feed(name)
                asked.question.freshness = 1.0  # its first load is waited for

    def _over(self, hand: Hand, task: LiveTask, message: Finished | Failure) -> None:
        """A worker has done its task, or failed to."""
        took_s = time.monotonic() - hand.began
        failure = message if isinstance(message, Failure) else None
        self._end(hand, done=failure is None)
        if isinstance(task, Load):
            self._load_over(task, took_s, message)
        elif isinstance(task, Answer):
            self._answer_over(task, took_s, failure)
        elif isinstance(task, ViewBuilding) and failure is None:
            self._built(task, message.result)  # type: ignore[union-attr]  # it is Finished
        elif failure is not None:
            self._say(QueryRefused(task.ask.number, failure.code, failure.arguments, took_s))
            if isinstance(task, ViewBuilding):
                self._builds.failed(task, self._views.lives.values())
        if message.spent:
            self._workers.replace(hand)

    def _built(self, building: ViewBuilding, measured: Mapping[str, Sequence[Spent]]) -> None:
        """The file of a view is made; the server decides whether there will be such a view."""
        view = building.ask.life.definition
        upkeep = Upkeep(tuple(measured), view.response_time_s, measured)
        self._builds.made(building)
        self._say(ViewMade(building.ask.number, shortest_promise(list(upkeep.costs.values()))))

    def _load_over(self, load: Load, took_s: float, message: Finished | Failure) -> None:
        if isinstance(message, Failure):
            if load.table not in self._failing:  # it is tried again and again
                self._failing.add(load.table)
                why = str(from_wire(message.code, message.arguments))
                log.warning("load failed", extra={"table": load.table, "why": why})
            self._load_failed(load, message, took_s)
            return
        self._failing.discard(load.table)
        if load.table in self._views:
            self._views.loaded(load, message.result, time.monotonic())
            return
        feed = self.board.feeds[load.table]
        self._loaded.add(load.table)
        feed.loaded = max(feed.loaded, message.result.current)
        feed.version = message.result.last
        if feed.pending and feed.pending[0].first <= feed.loaded < feed.pending[0].through:
            self.board.left(feed, self._left(load.table, feed.pending[0], feed.loaded))
        feed.cost.learn(message.result.rows_read, took_s)
        self.policy.ended(load, took_s, self.board, time.monotonic())

    def _load_failed(self, load: Load, failure: Failure | None, took_s: float) -> None:
        """A load was in vain. It is tried again after a while, later if it took long. Questions that cannot do without
        it fail, unless it was only a worker that died."""
        feed = self.board.feeds.get(load.table)
        error = None if failure is None else from_wire(failure.code, failure.arguments)
        if isinstance(error, HistoryGone) and load.through < error.first - 1:  # cut meanwhile: load to behind that
            self.board.aim_again(load.table)
            if error.first - 1 <= self.board.horizon:
                return
            failure = None  # the server will say how far it is
        self.counts["load_failures"] += 1
        if feed is not None:
            feed.loading = load  # so that nobody begins another one
            self._loop.call_later(LOAD_PAUSE_S + took_s, self._load_again, feed, load)
        if failure is not None:
            for asked in list(self._asked.values()):
                question = asked.question
                if asked.began is None and load.table in question.tables and not self.board.ready(question):
                    self._say(QueryRefused(asked.ask.number, failure.code, failure.arguments))
                    self._drop(asked)

    def _look(self, table: str) -> None:
        """A worker died while it loaded a table: it may have come to the end of that before."""
        if table in self._views:
            self._views.look(table)
            return
        state = self._looks.table(self._lives[table]) if table in self.board.feeds else None
        if state is not None:
            self._loaded.add(table)
            self.board.found(table, state.current, state.last, time.monotonic())

    def _load_again(self, feed: Feed, load: Load) -> None:
        if feed.loading is load:
            feed.loading = None
            self._fill_soon()

    def _answer_over(self, answer: Answer, took_s: float, failure: Failure | None) -> None:
        asked = self._asked[answer.question.number]
        if failure is not None:
            self._say(QueryRefused(asked.ask.number, failure.code, failure.arguments, took_s))
            self._spool(asked.ask.number).unlink(missing_ok=True)
            self._forget(asked)
            self._views.over(answer.question, answered=False)
            self.policy.withdrawn(answer.question, self.board, time.monotonic())
            return
        if not asked.answered:  # its files were not as they had to be
            if asked.tries >= MOST_TRIES:
                self._fail(asked, ConnectionLost("tables changed again and again before they could be read together"))
                return
            asked.began = answer.question.began = answer.question.target = None
            self.board.waiting.append(answer.question)
            self.board.waiting.sort(key=lambda question: question.arrived)
            return
        if asked.more:
            self._say(AnswerEnded(asked.ask.number, self._worth(asked)))
        self.counts["answered"] += 1
        self._takes_about(asked.ask.sql, took_s)
        self._views.over(answer.question, answered=True)
        self._forget(asked)
        self.policy.ended(answer, took_s, self.board, time.monotonic())

    def _remember(self, sql: str, plan: Plan) -> None:
        if len(self._plans) >= REMEMBERED:
            self._plans.clear()
        self._plans[sql] = plan

    def _takes_about(self, sql: str, took_s: float) -> None:
        if len(self._takes) >= REMEMBERED:
            self._takes.clear()
        self._takes[sql] = 0.7 * self._takes.get(sql, took_s) + 0.3 * took_s

    def _stop_running(self, hand: Hand) -> None:
        """A query, the reading of a text, or the making of a view takes too long."""
        task = hand.doing
        limit_s = BUILD_S if isinstance(task, ViewBuilding) else self._limits.time_s
        reason = f"stopped after {limit_s:g} s"
        if isinstance(task, Answer):
            asked = self._asked[task.question.number]
            self._fail(asked, SqlError(shorten(asked.ask.sql), reason, "narrow it with WHERE, or join on keys"))
        elif isinstance(task, TextReading):
            refusal = SqlError(shorten(task.ask.sql), reason, "write a simpler statement")
            self._say(QueryRefused(task.ask.number, *to_wire(refusal), ran_s=self._limits.time_s))
            self._stop_doing(hand)
        elif isinstance(task, ViewBuilding):
            name = task.ask.life.definition.name
            refusal = SqlError(name, f"to make it was {reason}", "join on more columns, or narrow it with WHERE")
            self._say(QueryRefused(task.ask.number, *to_wire(refusal)))
            self._stop_doing(hand)
        self._fill_soon()

    def _make_way(self, hand: Hand) -> None:
        """A propagation takes long, because its changes join with very much, or the file is made again. It goes on, and
        another worker serves the other views. If several do already, it keeps the place of views until one ends."""
        assert hand.doing is not None
        hand.limit = None
        if len(self._long_places.busy) >= MOST_LONG:
            hand.limit = self._loop.call_later(LONG_S, self._make_way, hand)
            return
        self._views_place.move(hand.doing, self._long_places)
        self.counts["long_propagations"] += 1
        self._one_more_for(self._long_places, len(self._long_places.busy))
        self._fill_soon()

    def _stop_doing(self, hand: Hand) -> None:
        """Kill a worker: nobody needs what it does."""
        if isinstance(hand.doing, ViewBuilding):
            self._builds.stopped(hand.doing, hand.process)
        self._end(hand, done=False)
        self._workers.replace(hand)

    def _end(self, hand: Hand, *, done: bool) -> None:
        """The task of a worker is over, one way or another."""
        task, hand.doing = hand.doing, None
        assert task is not None
        if hand.limit is not None:
            hand.limit.cancel()
            hand.limit = None
        places = (self._views_place, self._long_places, self._builds_place, self._places)
        next(place for place in places if task in place.busy).ended(task)
        if not isinstance(task, Load) or task.question is not None:
            now = time.monotonic()
            self._turns.served(task, now - hand.began, now)
        if not isinstance(task, TextReading | ViewBuilding):
            self.board.end(task, time.monotonic(), done=done)

    def _on_death(self, hand: Hand) -> None:
        """A worker has died, of itself or by somebody else."""
        task = hand.doing
        if task is not None:
            self._end(hand, done=False)
        killed = "its process was killed"
        if isinstance(task, Load):
            self._look(task.table)
            self._load_failed(task, None, 0.0)
        elif isinstance(task, Answer):
            asked = self._asked[task.question.number]
            self._fail(
                asked, SqlError(shorten(asked.ask.sql), killed, "it may have taken too much memory; ask for less")
            )
        elif isinstance(task, TextReading):
            refusal = SqlError(shorten(task.ask.sql), killed, "write a simpler statement")
            self._say(QueryRefused(task.ask.number, *to_wire(refusal)))
        elif isinstance(task, ViewBuilding):
            self._builds.stopped(task, hand.process)
            self._say(
                QueryRefused(task.ask.number, *to_wire(ConnectionLost("the process that made the view was killed")))
            )
        self._fill_soon()

    # -- for people ------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """How things are."""
        for process in self._workers.look_after():
            self._builds.gone(process, self._views.lives.values())
        now = time.monotonic()
        self._views.look_at_age(now)
        self._fill_soon()  # time has passed: see `Turns._let_tables_go`
        tables = {
            self._lives[name].table.name: {
                "loaded": feed.loaded,
                "staleness_s": feed.lag(now),
                "unapplied": feed.pending_rows,
                "stretch": feed.stretch,
                "period_s": feed.period_s,
                "weight": feed.weight,
                "loads": feed.loads,
                "loaded_rows": feed.loaded_rows,
                "bytes": size_of(file_of(self._directory, self._lives[name])),
            }
            for name, feed in self.board.feeds.items()
            if name not in self._views
        }
        views = self._views.report()
        for life in self._views.lives.values():
            if life.table.name in views:
                views[life.table.name]["bytes"] = size_of(file_of(self._directory, life))
        return Report(
            {
                "policy": self.policy.name,
                "counters": self.policy.counters(),
                "tables": tables,
                "views": views,
                "waiting": len(self.board.waiting) + len(self._turns.texts),
                "running": sum(not isinstance(task, Load) for task in self._places.busy),
                "loading": sum(isinstance(task, Load) for task in self._places.busy),
                "missed": self.counts["missed"],
                "load_failures": self.counts["load_failures"],
                "long_propagations": self.counts["long_propagations"],
                "worker_restarts": self._workers.restarts,
            }
        )


def _question(task: LiveTask | None) -> Question | None:
    return task.question if isinstance(task, Answer) else None
