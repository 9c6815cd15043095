"""The queries that the warehouse process has: from their arrival to the last row, and wherever they end before.

A query whose text nobody has read yet waits like any other. Its worker reads the text; and if its tables are as fresh
as it needs them, and no others than its sender may read, it answers in the same visit. If not, the query waits on the
board again, with its tables known.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hullcast.broker.sql.text import shorten
from hullcast.broker.warehouse import messages
from hullcast.broker.warehouse.deciding.board import Answer, Question
from hullcast.broker.warehouse.files.table_file import file_of
from hullcast.broker.warehouse.process.answering import with_worth
from hullcast.broker.warehouse.process.workers import LiveWork
from hullcast.network.wire.errors import (
    ConnectionLost,
    DeadlineMissed,
    HullcastError,
    SqlError,
    UnknownTable,
    to_wire,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.broker.queries.reading import Plan
    from hullcast.broker.tables.schema import Table
    from hullcast.broker.warehouse.deciding.board import Board, Release
    from hullcast.broker.warehouse.deciding.turns import Turns
    from hullcast.broker.warehouse.process.feeds import LiveFeed
    from hullcast.broker.warehouse.process.loads import LiveLoads
    from hullcast.broker.warehouse.process.workers import Hand

#: Folder of a data directory with portions of answers that wait to be fetched.
SPOOL = "spool"
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


@dataclass(eq=False, slots=True, kw_only=True)
class _Asked(Question):
    """A query: where it stands on the board, what was asked, and what is known of its answer so far."""

    ask: messages.Ask
    read: bool = False  # whether its text was, and so which tables it `reads`
    reads: tuple[str, ...] = ()
    alarm: asyncio.TimerHandle | None = None  # at its deadline
    hand: Hand | None = None  # the worker that has it
    definitions: int = 0  # when it began
    tries: int = 0
    horizon: int = 0  # when it began
    files: dict[str, _FileThen] = field(default_factory=dict)  # then
    answered: bool = False  # in part at least
    more: bool = False
    worth: dict[str, Any] = field(default_factory=dict)


class LiveQuestions(LiveWork[Answer]):
    """Queries by number. `say` is heard by the server; `stop` kills a worker, whatever it does."""

    def __init__(
        self,
        begin: messages.Begin,
        board: Board,
        turns: Turns,
        loads: LiveLoads,
        say: Callable[[object], None],
        stop: Callable[[Hand], None],
    ) -> None:
        self._directory, self._limits = Path(begin.directory), begin.limits
        self._spools = f"{self._directory / SPOOL}/{os.getpid()}-"
        self._board, self._turns, self._feeds = board, turns, loads.feeds
        self._named_in, self._say, self._stop = loads.named_in, say, stop
        self._asked: dict[int, _Asked] = {}
        self._plans: dict[str, Plan] = {}
        self._takes: dict[str, float] = {}  # seconds, by text
        self._definitions = 0  # changes of tables and views, ever
        self.missed = 0

    # -- coming and going ------------------------------------------------------------------------------------

    def ask(self, ask: messages.Ask) -> None:
        now, loop = time.monotonic(), asyncio.get_running_loop()
        deadline = inf if ask.deadline_s is None else ask.arrived + ask.deadline_s
        place = (ask.number, ask.owner, (), ask.arrived, deadline, ask.priority, ask.freshness, ask.consistent)
        asked = self._asked[ask.number] = _Asked(*place, self._takes.get(ask.sql, EXPECTED_S), ask=ask)
        plan = self._plans.get(ask.sql)
        if plan is None or self._know_tables(asked, plan.tables):
            asked.tables = asked.reads
            self._turns.ask(asked)
            if deadline < inf:
                asked.alarm = loop.call_at(loop.time() + deadline - now, self._miss, asked)

    def _know_tables(self, asked: _Asked, tables: tuple[str, ...]) -> bool:
        """The text of a query was read; whether it goes on. It does not if it reads more than its sender may: then the
        server must say whether that is allowed."""
        asked.read = True
        if asked.ask.only_tables or not set(tables).issubset(asked.ask.tables):
            self._say(messages.AnswerRows(asked.number, tables))
            self._forget(asked)
            return False
        unknown = [name for name in tables if name not in self._feeds]
        if unknown:
            self._fail(asked, UnknownTable(unknown[0], ()))
            return False
        for name in tables:
            self._feeds[name].put()
        if not all(self._feeds[name].is_loaded for name in tables):
            asked.freshness = 1.0  # a table that was never loaded has no rows to show: its first load is waited for
        asked.reads = tables
        return True

    def withdraw(self, number: int) -> None:
        """Nobody waits for the answer to a query any more."""
        asked = self._asked.get(number)
        if asked is not None:
            self._drop(asked)
        else:
            self._spool(number).unlink(missing_ok=True)  # it was answered before this was known: the file may be left

    def forget(self, feed: LiveFeed) -> None:
        """A table or view is gone. A text may mean another one now, also one that a worker is reading."""
        for asked in list(self._asked.values()):
            if feed.name in asked.tables:
                if asked.read:
                    self._fail(asked, UnknownTable(feed.life.table.name, ()))
                elif asked.hand is not None:
                    self._stop(asked.hand)
                    self._again(asked)

    def definitions_changed(self) -> None:
        """A table or view was made, or is gone: a text may mean another one now."""
        self._definitions += 1
        self._plans.clear()

    def load_failed(self, table: str, failure: messages.Failure) -> None:
        """Queries that cannot do without a load that failed fail."""
        for asked in list(self._asked.values()):
            if asked.began is None and table in asked.tables and not self._board.ready(asked):
                self._refuse(asked, failure)
                self._drop(asked)

    def _miss(self, asked: _Asked) -> None:
        asked.alarm = None
        assert asked.ask.deadline_s is not None
        self.missed += 1
        began, now = asked.began, time.monotonic()
        waited_s = (now if began is None else began) - asked.arrived
        ran_s = 0.0 if began is None else max(now - began, 1e-6)
        self._fail(asked, DeadlineMissed(asked.ask.deadline_s, max(waited_s, 0.0), ran_s))

    def _fail(self, asked: _Asked, error: HullcastError) -> None:
        self._say(messages.QueryRefused(asked.number, *to_wire(error)))
        self._drop(asked)

    def _refuse(self, asked: _Asked, failure: messages.Failure) -> None:
        self._say(messages.QueryRefused(asked.number, failure.code, failure.arguments))

    def _drop(self, asked: _Asked) -> None:
        """Nobody waits for an answer any more: stop what is done for it."""
        self._forget(asked)
        if asked.hand is not None:
            self._stop(asked.hand)
            self._spool(asked.number).unlink(missing_ok=True)
        self._turns.withdraw(asked, time.monotonic())
        self._leave(asked, answered=False)

    def _leave(self, asked: _Asked, *, answered: bool) -> None:
        for name in asked.tables:
            if name in self._feeds:
                self._feeds[name].over(asked, answered=answered)

    def _forget(self, asked: _Asked) -> None:
        self._asked.pop(asked.number, None)
        if asked.alarm is not None:
            asked.alarm.cancel()

    def _again(self, asked: _Asked) -> None:
        asked.tables = asked.reads
        self._turns.put(asked, time.monotonic())

    # -- a visit of a worker ---------------------------------------------------------------------------------

    def owner(self, task: Answer) -> str:
        return task.question.owner

    def begin(self, task: Answer, hand: Hand, now: float) -> float:
        asked = self._asked[task.question.number]
        ask, asked.hand, asked.definitions = asked.ask, hand, self._definitions
        if not asked.read:
            asked.tables = self._offered(asked)
        feeds = {name: self._board.feeds[name] for name in asked.tables}
        asked.horizon = self._board.horizon
        asked.files = {name: _FileThen(feed.loaded, feed.version, tuple(feed.pending)) for name, feed in feeds.items()}
        self._board.begin(task, now)
        files = tuple(self._file(self._feeds[name], asked) for name in asked.tables)
        plan = self._plans.get(ask.sql) if asked.read else None
        known: dict[str, Table] = {}
        if plan is None or plan.tables != asked.tables:
            tables = {name: self._feeds[name].life.table for name in asked.tables}
            plan, known = None, tables if asked.read else self._named_in(ask.sql)
        terms = (ask.parameters, files, ask.ticket, str(self._spool(ask.number)), self._limits, ask.only_tables)
        hand.end.write(messages.Select(ask.sql, plan, known, *terms))
        return self._limits.time_s

    def _offered(self, asked: _Asked) -> tuple[str, ...]:
        """The tables that a query may have been answered from as soon as its text is read: those that it may read, if
        all of them are as fresh as it needs them. Where freshness is a matter of taste, a policy decides."""
        tables = asked.ask.tables
        feeds = [self._feeds.get(name) for name in tables]
        if any(feed is None or not feed.is_loaded or feed.on_board is None for feed in feeds):
            return ()
        asked.tables = tables
        if not self._board.ready(asked):
            return ()
        weighs = 0.0 < asked.freshness < 1.0 and any(self._board.feeds[name].pending for name in tables)
        return () if weighs else tables

    def _file(self, feed: LiveFeed, question: Question) -> messages.FileOf:
        """A table's file, and how far it may be loaded for a question that is ready: what a file holds is the same
        from its last update to the table's next one."""
        most = self._board.valid_until(feed.feed) if question.needs_common else inf
        return messages.FileOf(feed.life, str(file_of(self._directory, feed.life)), feed.feed.version, most)

    def said(self, task: Answer, message: object) -> None:
        asked = self._asked.get(task.question.number)
        if asked is None:  # it turned out that it is not to be answered
            return
        match message:
            case messages.ReadPlan(plan):
                self._read(asked, plan)
            case messages.Pinned(loaded):
                self._pinned(asked, loaded)
            case messages.FirstRows(body, more):
                asked.answered, asked.more, spool = True, more, str(self._spool(asked.number))
                answer = (body, spool) if more else (with_worth(body, self._worth(asked)), None)
                self._say(messages.AnswerRows(asked.number, asked.tables, *answer))
            case messages.NextRows(offset, size):
                self._say(messages.SpooledPart(asked.number, offset, size))
            case messages.FileMoved(lost):
                self._moved(asked, lost)

    def _read(self, asked: _Asked, plan: Plan) -> None:
        """The worker goes on with what it has of the tables, if that is all of them."""
        if asked.definitions == self._definitions:
            _remember(self._plans, asked.ask.sql, plan)
        if not asked.read and not self._know_tables(asked, plan.tables):
            return
        if plan.tables != asked.tables and set(plan.tables).issubset(asked.files):
            self._board.narrow(asked, plan.tables, time.monotonic())

    def _pinned(self, asked: _Asked, loaded: tuple[int, ...]) -> None:
        """A query has begun to read: loads may go on. What it sees is worth this much, by all that was known when it
        was begun: a load may have ended since, and what it sees be older."""
        now = time.monotonic()
        self._board.pinned(asked)
        tables, versions, latest = {}, [], max(asked.horizon, *loaded, 0)
        for name, seq in zip(asked.tables, loaded, strict=True):
            feed, file = self._feeds[name], asked.files[name]
            feed.is_loaded = True  # a file that was not there is made for the query, perhaps without a load
            behind = (feed.left(release, seq) for release in file.pending if release.through > seq)
            missing = [release for release in behind if release is not None]
            tables[feed.life.table.name] = {
                "seq": seq,
                "staleness_s": max(0.0, now - missing[0].at) if missing else 0.0,
                "unapplied": sum(release.rows for release in missing),
                **feed.worth(asked),
            }
            versions.append(file.version if seq == file.loaded else seq)
            latest = min(latest, max(seq, missing[0].first - 1 if missing else asked.horizon))
        asked.worth = {
            "seq": latest if all(version <= latest for version in versions) else None,
            "tables": tables,
            "waited_s": max(0.0, (asked.began or now) - asked.arrived),
            "ran_s": 0.0,
            "deadline_s": asked.ask.deadline_s,
            "met": True,
            "policy": self._turns.policy.name,
        }

    def _worth(self, asked: _Asked) -> dict[str, Any]:
        assert asked.began is not None
        return {**asked.worth, "ran_s": time.monotonic() - asked.began}

    def _spool(self, number: int) -> Path:
        return Path(f"{self._spools}{number}")

    def _moved(self, asked: _Asked, lost: bool) -> None:
        """A file was loaded further than it should be; or it is lost, and cannot be made again as it was."""
        asked.tries += 1
        for name in asked.tables if lost else ():
            feed = self._feeds[name]
            if feed.feed.loading is None and feed.is_lost:
                feed.put_again()
                asked.freshness = 1.0  # its first load is waited for

    # -- how it ends -----------------------------------------------------------------------------------------

    def ended(self, task: Answer, hand: Hand, now: float, *, done: bool, killed: bool) -> None:
        self._board.end(task, now, done=done)
        if task.question.number in self._asked:
            self._asked[task.question.number].hand = None

    def over(self, task: Answer, message: messages.Finished | messages.Failure, took_s: float) -> None:
        asked = self._asked.get(task.question.number)
        if asked is None:
            return
        if isinstance(message, messages.Failure):
            self._refuse(asked, message)
            self._spool(asked.number).unlink(missing_ok=True)
            self._drop(asked)
        elif not asked.answered:  # its files were not as they had to be, or not known before it was read
            if asked.tries >= MOST_TRIES:
                self._fail(asked, ConnectionLost("tables changed again and again before they could be read together"))
            else:
                self._again(asked)
        else:
            if asked.more:
                self._say(messages.AnswerEnded(asked.number, self._worth(asked)))
            took = 0.7 * self._takes.get(asked.ask.sql, took_s) + 0.3 * took_s
            _remember(self._takes, asked.ask.sql, took)
            self._leave(asked, answered=True)
            self._forget(asked)
            self._turns.policy.ended(task, took_s, self._board, time.monotonic())

    def too_long(self, task: Answer) -> None:
        self._stopped(task, f"stopped after {self._limits.time_s:g} s", "narrow it with WHERE, or join on keys")

    def died(self, task: Answer) -> None:
        self._stopped(task, "its process was killed", "it may have taken too much memory; ask for less")

    def _stopped(self, task: Answer, reason: str, hint: str) -> None:
        asked = self._asked.get(task.question.number)
        if asked is not None:
            hint = hint if asked.read else "write a simpler statement"
            self._fail(asked, SqlError(shorten(asked.ask.sql), reason, hint))


def _remember(known: dict[str, Any], sql: str, what: object) -> None:
    if len(known) >= REMEMBERED:
        known.clear()
    known[sql] = what
