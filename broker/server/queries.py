"""One-time queries: which goes to the warehouse next, who may ask, and the rest of large answers.

A query waits for its turn; its text goes to the warehouse process to be read (which tables?), once for each text; the
sender's rights are checked; then it goes there behind everything that was acknowledged before it. What is done when is
decided there, by a policy. An answer that is too large for one reply comes in portions: the client fetches them from a
file, one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from hullcast.broker.scheduling.fair_queue import FairQueue, Queued
from hullcast.broker.server.open_requests import ByRoute
from hullcast.broker.sql.text import check_text
from hullcast.broker.tables.schema import fold
from hullcast.broker.warehouse.answering import no_room
from hullcast.broker.warehouse.messages import Ask
from hullcast.network.wire.errors import (
    AnswerGone,
    DeadlineMissed,
    HullcastError,
    InvariantBroken,
    Overloaded,
    UnknownTable,
)
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.log.space import DiskSpace
    from hullcast.broker.scheduling.fair_queue import Measure
    from hullcast.broker.server.warehouse import LargeAnswer, Warehouse
    from hullcast.network.wire.bodies import DropRows, FetchRows, Query
    from hullcast.network.wire.frames import Origin, Request
    from hullcast.network.wire.packing import Scalar

    Check = Callable[[Origin, tuple[str, ...]], None]

log = logger(__name__)

#: Queries that may wait, of all and of one owner; when full, more are refused as Overloaded.
WAITING, WAITING_PER_OWNER = 1000, 200
#: Bytes of queries, with their parameters, until they are answered (one that is alone may exceed them).
WAITING_BYTES, WAITING_BYTES_PER_OWNER = 128 << 20, 64 << 20
#: Queries that the warehouse process has at once, of all and of one owner: whose turn it is, is decided there.
ADMITTED, ADMITTED_PER_OWNER = 1000, 200
#: Queries that are refused at once because their deadlines have passed; then others have their turn.
REFUSED_AT_ONCE = 20
#: Texts whose tables are remembered.
REMEMBERED = 1024
#: Large answers that are kept to be fetched, of all and of one owner, and their bytes.
KEPT, KEPT_PER_OWNER = 1000, 100
KEPT_BYTES, KEPT_BYTES_PER_OWNER = 4 << 30, 1 << 30
#: Seconds without a fetch after which the rest of an answer is dropped.
KEPT_S = 30.0
TICKET_BYTES = 16
_WORD = re.compile(r"\w+")


@dataclass(eq=False, slots=True)
class _Asked(Queued):
    """A query, while it waits and while the warehouse has it."""

    request: Request
    query: Query
    seq: int  # of the last update that was applied when it came
    began: float = 0.0  # when the warehouse got it

    def missed(self) -> DeadlineMissed:
        """It was not even asked in time."""
        assert self.query.deadline_s is not None
        return DeadlineMissed(self.query.deadline_s, time.monotonic() - self.arrived, 0.0)


@dataclass(eq=False, slots=True)
class _Kept:
    """The rest of a large answer, which its owner may fetch."""

    ticket: bytes
    owner: str
    tables: tuple[str, ...]
    sql: str
    rest: LargeAnswer
    until: float
    request: Request  # the query's
    fetched: int = 0  # portions, of which the last may be fetched again
    done: bool = False  # the very last one was fetched: it is kept only in case it was lost on its way
    fetching: asyncio.Task[None] | None = None

    @property
    def may_move(self) -> bool:
        """Whether it may be fetched by another link: by whoever has the key."""
        return self.request.origin is not None and self.request.origin.key is not None


class _Rows(NamedTuple):
    """An answer, or its first portion and the rest."""

    tables: tuple[str, ...]
    body: bytes
    rest: LargeAnswer | None


class Queries:
    """The queries that wait, those that the warehouse has, and large answers that wait to be fetched."""

    def __init__(
        self,
        engine: ServedEngine,
        warehouse: Warehouse,
        check: Check,
        refusal: Callable[[HullcastError, Request], bytes],
        done: Callable[[Request, bytes], None],
        fetched: Callable[[Request, bytes], None],
        space: DiskSpace | None = None,
    ) -> None:
        """`space` is that of the disk on which large answers are, if some of it is reserved."""
        self._engine, self.warehouse = engine, warehouse
        self._check, self._refusal, self._done, self._fetched = check, refusal, done, fetched
        self._space = space
        self._queue: FairQueue[_Asked] = FairQueue(ADMITTED_PER_OWNER)
        self._running: dict[_Asked, asyncio.Task[None]] = {}
        self._fetching: set[asyncio.Task[None]] = set()
        self._open: ByRoute[_Asked | _Kept | asyncio.Task[None]] = ByRoute()  # all of these, by the request
        self._something = asyncio.Event()
        self._tables: dict[str, tuple[str, ...]] = {}  # of texts
        self._tables_as_of = -1
        self._kept: dict[bytes, _Kept] = {}
        self.answered = self.failed = self.given_up = 0
        self.late = 0  # past their deadline before the warehouse had them; it counts the others

    @property
    def waiting(self) -> int:
        """Queries whose turn has not come, here or in the warehouse (of that as of half a second ago)."""
        return len(self._queue) + min(len(self._running), self.warehouse.reported("waiting"))

    @property
    def running(self) -> int:
        """Queries being answered, as of half a second ago."""
        return min(len(self._running), self.warehouse.reported("running"))

    @property
    def admitted(self) -> int:
        """Queries that the warehouse has."""
        return len(self._running)

    @property
    def kept_bytes(self) -> int:
        """Bytes of large answers that wait to be fetched."""
        return sum(kept.rest.size_bytes for kept in self._kept.values())

    def status(self) -> dict[str, Any]:
        """All there is to show of queries and the warehouse."""
        known = self.warehouse.status()
        return {
            **known,
            "missed": known["missed"] + self.late,
            "answered": self.answered,
            "failed": self.failed,
            "given_up": self.given_up,
            "waiting": self.waiting,
            "running": self.running,
            "kept_bytes": self.kept_bytes,
        }

    def put(self, request: Request, query: Query, owner: str) -> None:
        """Queue a query. If too many wait, it is Overloaded, or else a query of an owner that has more waiting."""
        check_text(query.sql)
        now, size = time.monotonic(), len(request.body)
        deadline = None if query.deadline_s is None else now + query.deadline_s
        item, queue = _Asked(owner, now, size, deadline, request, query, self._engine.seq), self._queue
        if queue.waiting_of(owner) >= WAITING_PER_OWNER:
            raise Overloaded("queries waiting", WAITING_PER_OWNER)
        if queue.holds(owner) and queue.held_by(owner) + size > WAITING_BYTES_PER_OWNER:
            raise Overloaded("bytes of queries waiting", WAITING_BYTES_PER_OWNER)
        while len(queue) >= WAITING:
            self._make_room(Overloaded("queries waiting", WAITING), item, "items")
        while queue.held_bytes and queue.held_bytes + size > WAITING_BYTES:
            self._make_room(Overloaded("bytes of queries waiting", WAITING_BYTES), item, "bytes")
        queue.add(item)
        self._open.add(request, item)
        self._begin_next()
        if len(queue):
            self._something.set()

    def _make_room(self, refusal: Overloaded, newcomer: _Asked, measure: Measure) -> None:
        """Refuse the latest query of the owner that has most waiting; raise `refusal` if that is the newcomer's."""
        queue = self._queue
        most = queue.most(measure)
        mine = queue.waiting_of(newcomer.owner, measure) + (1 if measure == "items" else newcomer.size_bytes)
        if most is None or queue.waiting_of(most, measure) <= mine:
            raise refusal
        latest = queue.latest_of(most)
        self._remove(latest)
        self._done(latest.request, self._refusal(refusal, latest.request))

    # --- what nobody waits for any more -----------------------------------------------------------------------

    def give_up(self, request: Request) -> None:
        """A client does not wait any more for the answer to its query, which had the same id. It is stopped wherever it
        is; if it was answered meanwhile, what is kept of it is dropped."""
        for asked in self._open.of(request):
            self._stop(asked)

    def drop(self, body: DropRows, owner: str) -> None:
        """The rest of an answer will not be fetched."""
        kept = self._kept.get(body.ticket)
        if kept is not None and kept.owner == owner:
            self.given_up += not kept.done
            self._drop(body.ticket)

    def gone(self, links: Sequence[int], route: tuple[int, ...] = ()) -> None:
        """Nobody takes answers any more by these links of the node at the end of the route (without one: by our own).
        Large answers of a key are kept for a while: it may return by another link."""
        for asked in self._open.below(links, route):
            if not isinstance(asked, _Kept) or not asked.may_move:
                self._stop(asked)

    def _stop(self, asked: _Asked | _Kept | asyncio.Task[None]) -> None:
        match asked:
            case _Asked():
                self.given_up += 1
                if asked.serving:
                    self._running[asked].cancel()
                else:
                    self._remove(asked)
            case _Kept():
                self.given_up += not asked.done
                self._drop(asked.ticket)
            case fetching:
                fetching.cancel()

    async def run(self) -> None:
        """Answer queries until cancelled."""
        try:
            while True:
                urgent = self._queue.most_urgent()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(None if urgent is None else _loop_time(urgent.deadline)):
                        await self._something.wait()
                self._something.clear()
                self._refuse_late()
                while self._begin_next():  # noqa: ASYNC110  it begins one each time
                    await asyncio.sleep(0)  # others have their turns in between
        finally:
            tasks = [*self._running.values(), *self._fetching]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for ticket in list(self._kept):
                self._drop(ticket)
            await self.warehouse.stop()

    def _refuse_late(self) -> None:
        """Answer queries whose deadline has passed while they waited, some at a time."""
        now = time.monotonic()
        for _ in range(REFUSED_AT_ONCE):
            item = self._queue.most_urgent()
            if item is None or item.deadline is None or item.deadline > now:
                return
            self._remove(item)
            self.failed += 1
            self.late += 1
            self._done(item.request, self._refusal(item.missed(), item.request))

    def _begin_next(self) -> bool:
        """Let the warehouse have the query whose turn it is, if there is room for one."""
        item = self._queue.next() if len(self._running) < ADMITTED else None
        if item is None:
            return False
        self._queue.begin(item)
        item.began = time.monotonic()
        self._running[item] = task = asyncio.create_task(self._serve(item), name="server.query")
        task.add_done_callback(partial(self._ended, item))
        return True

    def _remove(self, item: _Asked) -> None:
        """A query does not wait any more, and is not served either."""
        self._queue.remove(item)
        self._open.discard(item.request, item)

    def _ended(self, item: _Asked, task: asyncio.Task[None]) -> None:
        """A query was answered, or given up: its owner had the warehouse's time in both cases."""
        now = time.monotonic()
        del self._running[item]
        self._open.discard(item.request, item)
        self._queue.end(item, now - item.began, now)
        if len(self._queue):
            self._something.set()

    async def _serve(self, item: _Asked) -> None:
        try:
            body = await self._answer(item)
            self.answered += 1
        except HullcastError as error:
            self.failed += 1
            if isinstance(error, InvariantBroken) and self._engine.broken:
                raise
            if isinstance(error, UnknownTable):
                error = UnknownTable(error.table, tuple(self._engine.shown_tables))
            body = self._refusal(error, item.request)
        except Exception as error:
            self.failed += 1
            log.exception("query failed")
            body = self._refusal(
                InvariantBroken(f"{type(error).__name__} in a query; nothing was changed"), item.request
            )
        self._done(item.request, body)

    async def _answer(self, item: _Asked) -> bytes:
        """The encoded reply to a query; the rest of it, if there is one, is kept."""
        origin, query = item.request.origin, item.query
        assert origin is not None
        self._check(origin, ())
        ticket = os.urandom(TICKET_BYTES)
        terms = (query.freshness, query.deadline_s, query.priority, query.read_set == "consistent")
        ask = Ask(0, item.owner, query.sql, tuple(query.parameters), (), item.arrived, ticket, *terms)
        try:
            tables, body, rest = await self._ask(ask, item.seq, partial(self._check, origin))
        except TimeoutError:
            self.late += 1
            raise item.missed() from None
        if rest is not None:
            request = item.request._replace(body=b"")
            self._keep(_Kept(ticket, item.owner, tables, query.sql, rest, time.monotonic() + KEPT_S, request))
        return body

    async def _ask(self, ask: Ask, seq: int, check: Callable[[tuple[str, ...]], None]) -> _Rows:
        """The answer, with everything up to a sequence number; TimeoutError if its deadline passed before it was asked.

        `check` raises if the tables that it is given may not be read: it is asked before a query may read them, and
        before the answer leaves, with the rights in force then.
        """
        deadline = None if ask.deadline_s is None else ask.arrived + ask.deadline_s
        while True:
            async with asyncio.timeout_at(_loop_time(deadline)):
                await self._ready(seq)
            as_of, tables = self._engine.definitions, self._tables_of(ask.sql)
            if tables is not None:
                check(tables)
                found = await self.warehouse.ask(ask._replace(tables=tables))
            else:
                may = self._may_read(ask.sql, check)
                found = await self.warehouse.ask(ask._replace(tables=may, read=False))
                self._remember(ask.sql, found.tables, as_of)
            try:
                check(found.tables)
            except HullcastError:
                if found.rest is not None:
                    self._let_go(found.rest)
                raise
            if found.body is not None:
                return _Rows(found.tables, found.body, found.rest)

    async def _ready(self, seq: int) -> None:
        """Return when the warehouse knows all tables, and can read everything up to a sequence number."""
        while True:
            await self.warehouse.start()
            await self.warehouse.wait_released(seq)
            if self.warehouse.knows_all:
                return

    async def run_once(self, owner: str, sql: str, parameters: tuple[Scalar, ...]) -> tuple[bytes, LargeAnswer | None]:
        """The answer to a query of the server itself, with everything applied up to now, whoever may read that. The
        caller fetches the rest, if there is one, and lets go of it."""
        ask = Ask(0, owner, sql, tuple(parameters), (), time.monotonic(), os.urandom(TICKET_BYTES))
        _, body, rest = await self._ask(ask, self._engine.seq, lambda tables: None)
        return body, rest

    async def tables_read(self, owner: str, sql: str) -> list[str]:
        """The tables that a text reads, as they were created; raises why it cannot be read."""
        while True:
            await self._ready(0)
            as_of, tables = self._engine.definitions, self._tables_of(sql)
            if tables is None:
                ask = Ask(0, owner, sql, (), (), time.monotonic(), b"", read=False, only_tables=True)
                tables = (await self.warehouse.ask(ask)).tables
                self._remember(sql, tables, as_of)
            if as_of == self._engine.definitions:
                return self._engine.spelt(tables)

    def _tables_of(self, sql: str) -> tuple[str, ...] | None:
        """The tables a text reads (folded names), if that is known; a worker reads it: parsing may take its time."""
        if self._tables_as_of != self._engine.definitions:
            self._tables, self._tables_as_of = {}, self._engine.definitions  # a text may mean another table now
        return self._tables.get(sql)

    def _remember(self, sql: str, tables: tuple[str, ...], as_of: int) -> None:
        if self._tables_as_of == as_of == self._engine.definitions:
            if len(self._tables) >= REMEMBERED:
                self._tables.clear()
            self._tables[sql] = tables

    def _may_read(self, sql: str, check: Callable[[tuple[str, ...]], None]) -> tuple[str, ...]:
        """The tables and views that a text names, and that may be read: if it reads no others, it can be answered by
        the worker that reads it."""
        words, found = set(_WORD.findall(fold(sql))), []
        for name in sorted(words.intersection(self._engine.stores) | words.intersection(self._engine.views)):
            with contextlib.suppress(HullcastError):
                check((name,))
                found.append(name)
        return tuple(found)

    def _let_go(self, rest: LargeAnswer) -> None:
        self.warehouse.withdraw(rest)
        rest.close()

    # --- the rest of large answers ----------------------------------------------------------------------------

    def _keep(self, kept: _Kept) -> None:
        for owner, most in ((kept.owner, KEPT_PER_OWNER), (None, KEPT)):
            while len(self._kept_of(owner)) >= most:
                if not self._drop_done(owner):
                    self._let_go(kept.rest)
                    raise Overloaded("large answers being fetched", most)
        self._kept[kept.ticket] = kept
        self._open.add(kept.request, kept)
        kept.rest.on_growth = lambda: self._bound(kept)
        self._bound(kept)

    def _kept_of(self, owner: str | None) -> list[_Kept]:
        """What is kept of an owner's, or in all."""
        return [one for one in self._kept.values() if owner in (None, one.owner)]

    def _drop_done(self, owner: str | None) -> bool:
        """Make room: drop the first answer that was fetched to its end, if there is one."""
        ticket = next((ticket for ticket, one in self._kept.items() if one.done and owner in (None, one.owner)), None)
        if ticket is not None:
            self._drop(ticket)
        return ticket is not None

    def _bound(self, kept: _Kept) -> None:
        """An answer has grown: fail it if that is too much. One owner leaves half of the room on the disk to others."""
        if self._space is not None:
            mine = sum(one.rest.size_bytes for one in self._kept_of(kept.owner))
            if mine > (self.kept_bytes + self._space.room_bytes) // 2:
                self.warehouse.withdraw(kept.rest)
                kept.rest.fail(no_room(kept.sql, self._space))
                return
        for owner, most in ((kept.owner, KEPT_BYTES_PER_OWNER), (None, KEPT_BYTES)):
            while sum(one.rest.size_bytes for one in self._kept_of(owner)) > most:
                if not self._drop_done(owner):
                    self.warehouse.withdraw(kept.rest)
                    kept.rest.fail(Overloaded("bytes of large answers being fetched", most))
                    return

    def expire(self, now: float) -> None:
        """Drop answers that were not fetched in time."""
        for ticket in [ticket for ticket, kept in self._kept.items() if kept.until < now and not kept.fetching]:
            self._drop(ticket)

    def _drop(self, ticket: bytes) -> None:
        kept = self._kept.pop(ticket)
        self._open.discard(kept.request, kept)
        if kept.fetching is not None:
            kept.fetching.cancel()
        self._let_go(kept.rest)

    def fetch(self, request: Request, body: FetchRows, owner: str) -> None:
        """Answer with a portion as soon as it is there."""
        kept = self._kept.get(body.ticket)
        if kept is None or kept.owner != owner:
            raise AnswerGone(
                body.part,
                f"it was not fetched for {KEPT_S:g} s, or the connection was lost, or the server was restarted",
            )
        assert request.origin is not None
        self._check(request.origin, kept.tables)
        if body.part not in (kept.fetched, kept.fetched + 1) or body.part < 1:
            raise AnswerGone(body.part, "portions are fetched in their order")
        if kept.fetching is not None:
            raise Overloaded("fetches of one answer", 1)
        kept.fetching = task = asyncio.create_task(self._fetch(request, body, kept), name="server.fetch")
        self._fetching.add(task)
        self._open.add(request, task)
        task.add_done_callback(partial(self._fetch_ended, request, kept))

    def _fetch_ended(self, request: Request, kept: _Kept, task: asyncio.Task[None]) -> None:
        self._fetching.discard(task)
        self._open.discard(request, task)
        kept.fetching, kept.until = None, time.monotonic() + KEPT_S

    async def _fetch(self, request: Request, body: FetchRows, kept: _Kept) -> None:
        try:
            portion, last = await kept.rest.read(body.part - 1)
            kept.fetched, kept.done = body.part, last
        except HullcastError as error:
            portion = self._refusal(error, request)
        self._fetched(request, portion)


def _loop_time(moment: float | None) -> float | None:
    """A moment of the monotonic clock, if there is one, by the clock of the event loop."""
    return None if moment is None else asyncio.get_running_loop().time() + moment - time.monotonic()
