"""The warehouse process: keeps the board, asks the policy what is next, and lets workers do it.

    server --(tables, what was released, queries)--> this process --(tasks)--> workers, forked from it
    server <--(portions of answers, counters)------- this process <--(how far they are)--'

It holds no rows: they are in the log, the checkpoints and the warehouse's files, all of them on disk. So a worker is
forked in a few milliseconds, and whoever is killed, nothing is lost: the next one goes on from the files.

Whatever the policy wants, neither loads nor queries have all places, and one owner does not have all places of queries;
the last place of queries, and the last of loads, is for who was served least. Tables are not held for a query for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import shutil
import signal
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hullcast.broker.log.private import make_private
from hullcast.broker.scheduling.background import step_back
from hullcast.broker.scheduling.places import TaskPlaces
from hullcast.broker.scheduling.policy import FairShare, Item
from hullcast.broker.sql.text import shorten
from hullcast.broker.tables.schema import fold
from hullcast.broker.warehouse.answering import with_worth
from hullcast.broker.warehouse.board import Answer, Board, Feed, Load, Question
from hullcast.broker.warehouse.files import file_of, remove, remove_others, remove_unfinished_of
from hullcast.broker.warehouse.loader import Loader
from hullcast.broker.warehouse.messages import (
    Ask,
    AskTables,
    Begin,
    BlockingEnd,
    Ended,
    Failure,
    FileOf,
    Finished,
    FirstRows,
    Known,
    LoadTable,
    Logged,
    MessageEnd,
    Moved,
    NextRows,
    Part,
    Pinned,
    ReadPlan,
    ReadText,
    Refused,
    Released,
    Report,
    Rows,
    Select,
    Switch,
    Tables,
    Withdraw,
)
from hullcast.broker.warehouse.policies import POLICIES
from hullcast.broker.warehouse.policies.fifo import Fifo
from hullcast.broker.warehouse.policies.policy import in_turn
from hullcast.broker.warehouse.worker import serve
from hullcast.network import compiled
from hullcast.network.wire.errors import (
    ConnectionLost,
    DeadlineMissed,
    HullcastError,
    SqlError,
    UnknownTable,
    from_wire,
    to_wire,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.broker.log.history import Life
    from hullcast.broker.queries.reading import Plan
    from hullcast.broker.warehouse.board import Task
    from hullcast.broker.warehouse.files import FileState
    from hullcast.broker.warehouse.policies.policy import WarehousePolicy

log = logging.getLogger(__name__)

#: Folder of a data directory with portions of answers that wait to be fetched.
SPOOL = "spool"
#: Seconds between two reports to the server.
REPORT_S = 0.5
#: Seconds after which a load that failed is tried again.
LOAD_PAUSE_S = 0.5
#: Texts that are remembered as they were read, and how long they took.
REMEMBERED = 1024
#: Seconds for which a query that waits may keep its tables as they are if others need later rows of them, or for as
#: long as it had waited before.
HOLD_S = 0.5
#: What a query is expected to take, as long as nothing is known of its text.
EXPECTED_S = 0.002
#: How often a query begins again because files were not as they had to be.
MOST_TRIES = 20
_STANDARD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
#: How likely the kernel is to end this process if the machine runs out of memory (workers come first).
OOM_SCORE = 500


@dataclass(eq=False, slots=True)
class _Reading:
    """A text that is to be read."""

    ask: AskTables


@dataclass(eq=False, slots=True)
class _Asked:
    """A query: what was asked, where it stands on the board, and what is known of its answer so far."""

    ask: Ask
    question: Question
    deadline: asyncio.TimerHandle | None = None
    tries: int = 0
    began: float | None = None
    answered: bool = False  # in part at least
    more: bool = False
    worth: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Hand:
    """A worker as this process holds it."""

    process: int
    end: MessageEnd = field(init=False)
    doing: Task | _Reading | None = None
    began: float = 0.0
    limit: asyncio.TimerHandle | None = None


class LiveWarehouse:
    """The board, driven by what the server says and what workers do."""

    say: Callable[[object], None]  # to the server

    def __init__(self, begin: Begin) -> None:
        self._directory, self._limits = Path(begin.directory), begin.limits
        self._loop = asyncio.get_running_loop()
        self.board = Board(begin.places)
        self.policy: WarehousePolicy = POLICIES[begin.policy]()
        self._places: TaskPlaces[Task | _Reading] = TaskPlaces(begin.places, self._choose, self._begin)
        self._most_answers = self._most_loads = max(1, begin.places - 1)
        self._most_of_one = max(1, self._most_answers - 1)
        self._shares = FairShare()
        self._hands: list[_Hand] = []
        self._hiring: set[asyncio.Task[None]] = set()
        self._dying: list[int] = []
        self._lives: dict[str, Life] = {}
        self._unseen: dict[str, int] = {}  # updates of tables that are not on the board
        self._rows: dict[str, int] = {}  # of tables, when they became known
        self._loaded: set[str] = set()  # tables on the board that have a file
        self._failing: set[str] = set()  # tables whose last load failed
        self._asked: dict[int, _Asked] = {}
        self._texts: list[_Reading] = []
        self._plans: dict[str, Plan] = {}
        self._takes: dict[str, float] = {}  # seconds, by text
        self._filling = self._tidied = self._stopping = False
        self.counts: Counter[str] = Counter()

    async def start(self) -> None:
        """Fork the workers."""
        for _ in range(self._places.places):
            await self._hire()

    def stop(self) -> None:
        """Kill the workers."""
        self._stopping = True
        for hand in self._hands:
            _kill(hand.process)

    # -- what the server says --------------------------------------------------------------------------------

    def on_message(self, message: object) -> None:
        """The server says something."""
        match message:
            case Ask():
                self._ask(message)
            case Released():
                self._released(message)
            case AskTables():
                self._texts.append(_Reading(message))
            case Withdraw(number):
                self._withdraw(number)
            case Known():
                self._know(message)
            case Switch(policy):
                self.policy = POLICIES[policy]()
            case _:
                raise TypeError(f"the server sent a {type(message).__name__}")
        self._fill_soon()

    def _know(self, known: Known) -> None:
        """A table was made, or is gone. A text may mean another table now."""
        self._plans.clear()
        name, old = known.name, self._lives.pop(known.name, None)
        if old is not None:
            for asked in list(self._asked.values()):
                if name in asked.question.tables:
                    self._fail(asked, UnknownTable(old.table.name, ()))
            if name in self.board.feeds:
                for hand in list(self._hands):
                    if isinstance(hand.doing, Load) and hand.doing.table == name:
                        self._end(hand, done=False)
                        self._replace(hand)
                self.board.remove(name)
            self._unseen.pop(name, None)
            self._loaded.discard(name)
            self._failing.discard(name)
            remove(file_of(self._directory, old))
        if known.life is not None:
            self._lives[name], self._rows[name] = known.life, known.rows
            if known.life.table.feed is not None and self._tidied:
                self._feed(name)

    def _released(self, released: Released) -> None:
        now = time.monotonic()
        for name, (first, last, rows) in released.tables.items():
            feed = self.board.feeds.get(name)
            if feed is not None:
                release = self.board.release(name, first, last, rows, released.at)
                self.policy.released(feed, release, self.board, now)
            elif name in self._lives:
                self._unseen[name] = self._unseen.get(name, 0) + rows
        self.board.advance(released.through)
        if not self._tidied:  # all tables are known now
            self._tidied = True
            remove_others(self._directory, self._lives.values())
            for name, life in self._lives.items():  # not before: that rows were there already is known by the horizon
                if life.table.feed is not None:
                    self._feed(name)

    def _feed(self, name: str) -> Feed:
        """A table on the board; it comes there when a query first names it, or at once if it is declared a feed."""
        feed = self.board.feeds.get(name)
        if feed is None:
            life, now = self._lives[name], time.monotonic()
            state = self._state(life)
            if state is not None:
                self._loaded.add(name)
            terms = life.table.feed
            feed = Feed(name, now)
            feed.loaded = state.current if state is not None else life.created
            feed.version = state.last if state is not None else life.created
            if terms is not None:
                feed.period_s, feed.weight = terms.period_s, terms.weight
            self.board.add(feed)
            rows = self._unseen.pop(name, 0) + (self._rows[name] if state is None else 0)
            if self.board.horizon > feed.loaded:  # what this process has not seen may have been updates of this table
                release = self.board.release(name, feed.loaded + 1, self.board.horizon, max(rows, 1), now)
                self.policy.released(feed, release, self.board, now)
        return feed

    def _state(self, life: Life) -> FileState | None:
        """How far a table is loaded. No connection stays open: a fork would share it."""
        loader = Loader(self._directory)
        try:
            return loader.state(life, self.board.horizon)
        except HullcastError as error:  # a load will say it
            log.warning("file of a table cannot be read", extra={"table": life.table.name, "why": str(error)})
            return None
        finally:
            loader.close()

    def _ask(self, ask: Ask) -> None:
        now = time.monotonic()
        unknown = [name for name in ask.tables if name not in self._lives]
        if unknown:
            self.say(Refused(ask.number, *to_wire(UnknownTable(unknown[0], ()))))
            return
        for name in ask.tables:
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
        self._texts = [reading for reading in self._texts if reading.ask.number != number]
        asked = self._asked.get(number)
        if asked is not None:
            self._drop(asked)
            return
        self._spool(number).unlink(missing_ok=True)  # it was answered before this was known, and the file may be left
        for hand in list(self._hands):
            if isinstance(hand.doing, _Reading) and hand.doing.ask.number == number:
                self._end(hand, done=False)
                self._replace(hand)

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
        hand = next((hand for hand in self._hands if _question(hand.doing) is question), None)
        if hand is not None:
            self._end(hand, done=False)
            self._replace(hand)
            self._spool(asked.ask.number).unlink(missing_ok=True)
        self.board.withdraw(question)
        self.policy.withdrawn(question, self.board, time.monotonic())

    def _fail(self, asked: _Asked, error: HullcastError) -> None:
        ran_s = 0.0 if asked.began is None else time.monotonic() - asked.began
        self.say(Refused(asked.ask.number, *to_wire(error), ran_s=ran_s))
        self._drop(asked)

    def _forget(self, asked: _Asked) -> None:
        self._asked.pop(asked.ask.number, None)
        if asked.deadline is not None:
            asked.deadline.cancel()

    # -- what is done next -----------------------------------------------------------------------------------

    def _fill_soon(self) -> None:
        """Give free places something to do, when all that has arrived by now is known."""
        if not self._filling:
            self._filling = True
            self._loop.call_soon(self._fill)

    def _fill(self) -> None:
        self._filling = False
        self._places.fill(time.monotonic())

    def _choose(self, now: float) -> Task | _Reading | None:
        if all(hand.doing is not None for hand in self._hands):
            return None
        running = self._places.busy
        owners = Counter(_owner(task) for task in running if not isinstance(task, Load))
        free = self._most_answers - sum(owners.values())
        self._let_tables_go(owners, now)
        last = self._least_served(owners, now) if free == 1 else None

        def may(owner: str) -> bool:
            return free > 0 and owners[owner] < self._most_of_one and last in (None, owner)

        for reading in self._texts:
            if may(reading.ask.owner):
                self._texts.remove(reading)
                return reading
        task = self._chosen(may, now)
        loads = sum(isinstance(task, Load) for task in running)
        if isinstance(task, Load) and loads < self._most_loads:
            if loads == self._most_loads - 1:
                task = self._load_for_least_served(now) or task
            if task.question is not None and owners[task.question.owner] >= self._most_of_one:
                task = Load(task.table, task.through)  # it will not run soon, and need not hold its tables
            return task
        if isinstance(task, Answer) and may(task.question.owner):
            return task
        return next(
            (Answer(one) for one in in_turn(self.board.waiting) if may(one.owner) and self.board.ready(one)), None
        )

    def _least_served(self, owners: Counter[str], now: float) -> str | None:
        """Who gets the last free place of queries: of the owners that have something for it, the one that was served
        least of late. With one place for all, nobody waits behind all that somebody else has asked before."""
        waiting = {question.owner for question in self.board.waiting if self.board.ready(question)}
        waiting |= {reading.ask.owner for reading in self._texts}
        may = [owner for owner in waiting if owners[owner] < self._most_of_one]
        return min(may, key=lambda owner: self._shares.given(owner, now)) if len(may) > 1 else None

    def _load_for_least_served(self, now: float) -> Load | None:
        """What the last free place of loads does if several owners wait for loads; else the policy decides."""
        wanted = {question.owner for question in self.board.waiting if self.board.missing(question)}
        if len(wanted) < 2:
            return None
        owner = min(wanted, key=lambda owner: self._shares.given(owner, now))
        asked = in_turn([question for question in self.board.waiting if question.owner == owner])
        return next(loads[0] for question in asked if (loads := self.board.missing(question)))

    def _let_tables_go(self, owners: Counter[str], now: float) -> None:
        """Let loads go on where a query keeps its tables as they are but will not read them soon: because its owner has
        all places that it may have, or because another of its tables takes long and somebody needs later rows."""
        for question in self.board.waiting:
            if question.target is not None and (
                owners[question.owner] >= self._most_of_one
                or (
                    now - question.held_at > max(HOLD_S, question.held_at - question.arrived)
                    and self._is_in_the_way(question)
                )
            ):
                self.board.let_go(question)

    def _is_in_the_way(self, holding: Question) -> bool:
        assert holding.target is not None
        return any(
            other.owner != holding.owner
            and other.seq > holding.target
            and not set(other.tables).isdisjoint(holding.tables)
            and not self.board.ready(other)
            for other in self.board.waiting
        )

    def _chosen(self, may: Callable[[str], bool], now: float) -> Task | None:
        """What the policy chooses. It does not see questions that could be answered but may not: it would choose one
        of them again and again."""
        waiting = self.board.waiting
        self.board.waiting = [one for one in waiting if may(one.owner) or not self.board.ready(one)]
        try:
            return self.policy.next(self.board, now)
        except Exception:
            log.exception("policy failed", extra={"policy": self.policy.name})
            self.policy = Fifo()
            return self.policy.next(self.board, now)
        finally:
            self.board.waiting = waiting

    def _begin(self, task: Task | _Reading, now: float) -> None:
        hand = next(hand for hand in self._hands if hand.doing is None)
        hand.doing, hand.began = task, now
        if isinstance(task, Load):
            self.board.begin(task, now)
            hand.end.write(LoadTable(self._lives[task.table], task.through))
            return
        hand.limit = self._loop.call_later(self._limits.time_s, self._stop_running, hand)
        if isinstance(task, _Reading):
            hand.end.write(ReadText(task.ask.sql, self._named_in(task.ask.sql), self._limits.time_s))
            return
        asked = self._asked[task.question.number]
        self.board.begin(task, now)
        asked.began, ask = now, asked.ask
        files = tuple(self._file(name, task.question) for name in ask.tables)
        spool, plan = str(self._spool(ask.number)), self._plans.get(ask.sql)
        hand.end.write(Select(ask.sql, plan, ask.parameters, files, ask.ticket, spool, self._limits))

    def _named_in(self, sql: str) -> dict[str, Any]:
        """The tables that a text may name: those whose name is in it, or may be written in another way."""
        text = fold(sql)
        return {name: life.table for name, life in self._lives.items() if name in text or "'" in name or "`" in name}

    def _file(self, name: str, question: Question) -> FileOf:
        """A table's file, and how far it may be loaded for a question that is ready: what a file holds is the same
        from its last update to the table's next one."""
        feed, life = self.board.feeds[name], self._lives[name]
        most = self.board.valid_until(feed) if question.needs_common else inf
        return FileOf(life, str(file_of(self._directory, life)), feed.version, most)

    # -- what workers do -------------------------------------------------------------------------------------

    def _on_worker(self, hand: _Hand, message: object) -> None:
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
                self.say(Part(asked.ask.number, offset, size))
            case ReadPlan(plan):
                assert isinstance(task, _Reading)
                self._remember(task.ask.sql, plan)
                self.say(Tables(task.ask.number, plan.tables))
            case Moved():
                assert asked is not None
                self._moved(asked)
            case Finished() | Failure():
                self._over(hand, task, message)
        self._fill_soon()

    def _pinned(self, asked: _Asked, loaded: tuple[int, ...]) -> None:
        """A query has begun to read: loads may go on. What it sees is worth this much."""
        board, now, question = self.board, time.monotonic(), asked.question
        board.pinned(question)
        tables, versions, latest = {}, [], board.horizon
        for name, seq in zip(question.tables, loaded, strict=True):
            feed = board.feeds[name]
            missing = [release for release in feed.pending if release.through > seq]
            tables[self._lives[name].table.name] = {
                "seq": seq,
                "staleness_s": max(0.0, now - missing[0].at) if missing else 0.0,
                "unapplied": sum(release.rows for release in missing),
            }
            versions.append(feed.version if seq == feed.loaded else seq)
            latest = min(latest, max(seq, missing[0].first - 1 if missing else board.horizon))
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
            self.say(Rows(number, body, str(self._spool(number))))
        else:
            self.say(Rows(number, with_worth(body, self._worth(asked)), None))

    def _worth(self, asked: _Asked) -> dict[str, Any]:
        assert asked.began is not None
        return {**asked.worth, "ran_s": time.monotonic() - asked.began}

    def _spool(self, number: int) -> Path:
        return self._directory / SPOOL / f"{os.getpid()}-{number}"

    def _moved(self, asked: _Asked) -> None:
        """A file was loaded further than it should be. It may be further than we know, by a worker that was killed
        before it could say so: then look at the file."""
        asked.tries += 1
        for name in asked.question.tables if asked.tries > 1 else ():
            if self.board.feeds[name].loading is None:
                self._unseen[name] = self.board.feeds[name].pending_rows
                self.board.remove(name)
                self._feed(name)

    def _over(self, hand: _Hand, task: Task | _Reading, message: Finished | Failure) -> None:
        """A worker has done its task, or failed to."""
        took_s = time.monotonic() - hand.began
        failure = message if isinstance(message, Failure) else None
        self._end(hand, done=failure is None)
        if isinstance(task, Load):
            self._load_over(task, took_s, message)
        elif isinstance(task, Answer):
            self._answer_over(task, took_s, failure)
        elif failure is not None:
            self.say(Refused(task.ask.number, failure.code, failure.arguments, took_s))
        if message.spent:
            self._replace(hand)

    def _load_over(self, load: Load, took_s: float, message: Finished | Failure) -> None:
        if isinstance(message, Failure):
            if load.table not in self._failing:  # it is tried again and again
                self._failing.add(load.table)
                why = str(from_wire(message.code, message.arguments))
                log.warning("load failed", extra={"table": load.table, "why": why})
            self._load_failed(load, message)
            return
        self._failing.discard(load.table)
        feed = self.board.feeds[load.table]
        self._loaded.add(load.table)
        feed.loaded = max(feed.loaded, message.result.current)
        feed.version = message.result.last
        feed.cost.learn(message.result.rows_read, took_s)
        self.policy.ended(load, took_s, self.board, time.monotonic())

    def _load_failed(self, load: Load, failure: Failure | None) -> None:
        """A load was in vain. It is tried again after a while; questions that cannot do without it fail, unless it
        was only a worker that died."""
        self.counts["load_failures"] += 1
        feed = self.board.feeds.get(load.table)
        if feed is not None:
            feed.loading = load  # so that nobody begins another one
            self._loop.call_later(LOAD_PAUSE_S, self._load_again, feed, load)
        if failure is not None:
            for asked in list(self._asked.values()):
                question = asked.question
                if asked.began is None and load.table in question.tables and not self.board.ready(question):
                    self.say(Refused(asked.ask.number, failure.code, failure.arguments))
                    self._drop(asked)

    def _load_again(self, feed: Feed, load: Load) -> None:
        if feed.loading is load:
            feed.loading = None
            self._fill_soon()

    def _answer_over(self, answer: Answer, took_s: float, failure: Failure | None) -> None:
        asked = self._asked[answer.question.number]
        if failure is not None:
            self.say(Refused(asked.ask.number, failure.code, failure.arguments, took_s))
            self._spool(asked.ask.number).unlink(missing_ok=True)
            self._forget(asked)
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
            self.say(Ended(asked.ask.number, self._worth(asked)))
        self.counts["answered"] += 1
        self._takes_about(asked.ask.sql, took_s)
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

    def _stop_running(self, hand: _Hand) -> None:
        """A query, or the reading of a text, takes too long."""
        task = hand.doing
        reason = f"stopped after {self._limits.time_s:g} s"
        if isinstance(task, Answer):
            asked = self._asked[task.question.number]
            self._fail(asked, SqlError(shorten(asked.ask.sql), reason, "narrow it with WHERE, or join on keys"))
        elif isinstance(task, _Reading):
            refusal = SqlError(shorten(task.ask.sql), reason, "write a simpler statement")
            self.say(Refused(task.ask.number, *to_wire(refusal), ran_s=self._limits.time_s))
            self._end(hand, done=False)
            self._replace(hand)
        self._fill_soon()

    def _end(self, hand: _Hand, *, done: bool) -> None:
        """The task of a worker is over, one way or another."""
        task, hand.doing = hand.doing, None
        assert task is not None
        if hand.limit is not None:
            hand.limit.cancel()
            hand.limit = None
        self._places.ended(task)
        if not isinstance(task, Load) or task.question is not None:
            now = time.monotonic()
            self._shares.served(Item(_owner(task), now), now - hand.began, now)
        if not isinstance(task, _Reading):
            self.board.end(task, time.monotonic(), done=done)

    # -- workers ---------------------------------------------------------------------------------------------

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
                self._loop.call_later(LOAD_PAUSE_S, self._hire_soon)
                return
            failing.pop_all()
        if process == 0:
            serve(theirs, self._directory)
        theirs.close()
        hand = _Hand(process)
        hand.end = await MessageEnd.over(
            ours, lambda message: self._on_worker(hand, message), lambda: self._on_worker_end(hand)
        )
        self._hands.append(hand)
        self._fill_soon()

    def _hire_soon(self) -> None:
        task = self._loop.create_task(self._hire(), name="warehouse.hire")
        self._hiring.add(task)
        task.add_done_callback(self._hiring.discard)

    def _replace(self, hand: _Hand) -> None:
        """Kill a worker, whatever it does, and fork another one."""
        if hand not in self._hands or self._stopping:
            return
        self._hands.remove(hand)
        _kill(hand.process)
        hand.end.close()
        self._dying.append(hand.process)
        self.counts["restarts"] += 1
        self._hire_soon()

    def _on_worker_end(self, hand: _Hand) -> None:
        """A worker has died, of itself or by somebody else."""
        if hand not in self._hands or self._stopping:
            return
        task = hand.doing
        if task is not None:
            self._end(hand, done=False)
        if isinstance(task, Load):
            self._load_failed(task, None)
        elif isinstance(task, Answer):
            asked = self._asked[task.question.number]
            reason = "its process was killed"
            self._fail(
                asked, SqlError(shorten(asked.ask.sql), reason, "it may have taken too much memory; ask for less")
            )
        elif isinstance(task, _Reading):
            refusal = SqlError(shorten(task.ask.sql), "its process was killed", "write a simpler statement")
            self.say(Refused(task.ask.number, *to_wire(refusal)))
        log.warning("a worker died", extra={"did": type(task).__name__})
        self._replace(hand)
        self._fill_soon()

    def _look_after_workers(self) -> None:
        """Remove what killed ones left of new files, and replace those that somebody has stopped (SIGSTOP): they would
        keep their places, and what they load, for ever."""
        for process in [process for process in self._dying if _is_reaped(process)]:
            self._dying.remove(process)
            remove_unfinished_of(self._directory, process)
        for hand in list(self._hands):
            if _is_stopped(hand.process):
                self._on_worker_end(hand)
        self._fill_soon()  # time has passed: see `_let_tables_go`

    # -- for people ------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """How things are."""
        self._look_after_workers()
        now = time.monotonic()
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
            }
            for name, feed in self.board.feeds.items()
        }
        return Report(
            {
                "policy": self.policy.name,
                "counters": self.policy.counters(),
                "tables": tables,
                "waiting": len(self.board.waiting) + len(self._texts),
                "running": sum(not isinstance(task, Load) for task in self._places.busy),
                "loading": sum(isinstance(task, Load) for task in self._places.busy),
                "missed": self.counts["missed"],
                "load_failures": self.counts["load_failures"],
                "worker_restarts": self.counts["restarts"],
            }
        )


def _owner(task: Task | _Reading) -> str:
    return task.ask.owner if isinstance(task, _Reading) else task.question.owner  # type: ignore[union-attr]


def _question(task: Task | _Reading | None) -> Question | None:
    return task.question if isinstance(task, Answer) else None


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _is_reaped(process: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(process, os.WNOHANG)[0] != 0
    return True


class _ServersLog(logging.Handler):
    """Hands what is logged to the server, which has the form and the place that the operator has chosen."""

    def __init__(self, say: Callable[[object], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        fields = {key: str(value) for key, value in record.__dict__.items() if key not in _STANDARD_FIELDS}
        if record.exc_info:
            fields["traceback"] = logging.Formatter().formatException(record.exc_info)
        self._say(Logged(record.levelno, record.getMessage(), fields))


def _is_stopped(process: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        child, status = os.waitpid(process, os.WNOHANG | os.WUNTRACED)
        return child != 0 and os.WIFSTOPPED(status)
    return False


async def _serve(begin: Begin, connection: socket.socket) -> None:
    """Serve until the server is gone."""
    gone = asyncio.Event()
    warehouse = LiveWarehouse(begin)
    await warehouse.start()
    end = await MessageEnd.over(connection, warehouse.on_message, gone.set)
    warehouse.say = end.write
    logging.basicConfig(handlers=[_ServersLog(end.write)], force=True)
    try:
        while not gone.is_set():
            end.write(warehouse.report())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await gone.wait()
    finally:
        warehouse.stop()


def main() -> None:
    """Serve until the server's end of the socket is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when this ends
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    step_back(OOM_SCORE, 0)
    connection = socket.socket(fileno=int(sys.argv[1]))
    begin = BlockingEnd(connection).read()
    compiled.load()  # once here, instead of in every worker
    _empty(Path(begin.directory) / SPOOL)
    gc.collect()
    gc.freeze()
    with contextlib.suppress(EOFError):
        asyncio.run(_serve(begin, connection))


def _empty(folder: Path) -> None:
    """A folder without what another life of this process has left in it, or somebody else put there."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    make_private(folder)
