"""One-time queries: which goes to the warehouse next, who may ask, and the rest of large answers.

A query goes to the warehouse process behind everything that was acknowledged before it; what is done when is decided
there, by a policy. An answer that is too large for one reply comes in portions: the client fetches them from a file,
one by one.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from hullcast.broker.server.jobs import ANY, Awaited, Room
from hullcast.broker.server.outcome import Outcome
from hullcast.broker.sql.text import check_text
from hullcast.broker.tables.schema import fold
from hullcast.broker.warehouse.messages import Ask
from hullcast.broker.warehouse.process.answering import no_room
from hullcast.network.wire.errors import (
    AnswerGone,
    DeadlineMissed,
    HullcastError,
    NotPermitted,
    Overloaded,
    UnknownTable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.log.space import DiskSpace
    from hullcast.broker.server.access import Access, Asked
    from hullcast.broker.server.jobs import Jobs
    from hullcast.broker.server.warehouse import LargeAnswer, QueryOutcome, Warehouse
    from hullcast.network.wire.bodies import DropRows, FetchRows, Query
    from hullcast.network.wire.packing import Scalar

#: The warehouse has all of them: there they wait for their turn.
QUERIES = Room("queries", waiting=1000, waiting_per_owner=200)
#: Portions being read: one of each large answer.
FETCHES = Room("fetches", waiting=ANY, waiting_per_owner=ANY)
#: Large answers that are kept to be fetched, of all and of one owner, and their bytes.
KEPT, KEPT_PER_OWNER = 1000, 100
KEPT_BYTES, KEPT_BYTES_PER_OWNER = 4 << 30, 1 << 30
#: Seconds without a fetch after which the rest of an answer is dropped.
KEPT_S = 30.0
TICKET_BYTES = 16
_WORD = re.compile(r"\w+")


@dataclass(eq=False, slots=True)
class _Kept:
    """The rest of a large answer, which its owner may fetch."""

    ticket: bytes
    asked: Asked[Query]
    tables: tuple[str, ...]
    rest: LargeAnswer
    until: float
    give_up: Callable[[_Kept], None]
    fetched: int = 0  # portions, of which the last may be fetched again
    done: bool = False  # the very last one was fetched: it is kept only in case it was lost on its way
    fetching: asyncio.Task[Any] | None = None

    @property
    def owner(self) -> str:
        return self.asked.access.owner

    def stop(self) -> None:
        self.give_up(self)

    def link_gone(self) -> None:
        """The same, unless it may be fetched by another link: by whoever has the key."""
        if not self.asked.access.keyed:
            self.give_up(self)


class Queries:
    """Asks the warehouse, and keeps large answers that wait to be fetched."""

    def __init__(self, engine: ServedEngine, warehouse: Warehouse, jobs: Jobs, space: DiskSpace | None) -> None:
        """`space` is that of the disk on which large answers are, if some of it is reserved."""
        self._engine, self.warehouse, self._jobs, self._space = engine, warehouse, jobs, space
        self._kept: dict[bytes, _Kept] = {}
        self.answered = self.failed = self._not_fetched = 0
        self.late = 0  # past their deadline before the warehouse had them; it counts the others

    @property
    def waiting(self) -> int:
        """Queries whose turn has not come, here or in the warehouse (of that as of half a second ago)."""
        return self._jobs.waiting(QUERIES) + min(self.admitted, self.warehouse.reported("waiting"))

    @property
    def admitted(self) -> int:
        return self._jobs.running(QUERIES)

    @property
    def given_up(self) -> int:
        """Queries that nobody waited for any more, or whose rest nobody fetched."""
        return self._jobs.given_up[QUERIES] + self._not_fetched

    @property
    def kept_bytes(self) -> int:
        return sum(kept.rest.size_bytes for kept in self._kept.values())

    def status(self) -> dict[str, Any]:
        known = self.warehouse.status()
        return {
            **known,
            "missed": known["missed"] + self.late,
            "answered": self.answered,
            "failed": self.failed,
            "given_up": self.given_up,
            "waiting": self.waiting,
            "running": min(self.admitted, self.warehouse.reported("running")),
            "kept_bytes": self.kept_bytes,
        }

    def wait(self, asked: Asked[Query]) -> Awaited:
        """Ask the warehouse when its turn comes."""
        check_text(asked.body.sql)
        arrived, within_s = time.monotonic(), asked.body.deadline_s
        run = partial(self._serve, asked, arrived, self._engine.seq)
        deadline = None if within_s is None else arrived + within_s
        return Awaited(QUERIES, run, deadline, partial(self._missed, within_s or 0.0, arrived))

    def _missed(self, within_s: float, arrived: float) -> DeadlineMissed:
        """It was not even asked in time."""
        self.late += 1
        self.failed += 1
        return DeadlineMissed(within_s, time.monotonic() - arrived, 0.0)

    async def _serve(self, asked: Asked[Query], arrived: float, seq: int) -> Outcome:
        """The reply to a query that came when everything up to `seq` had been applied."""
        try:
            body = await self._answer(asked, arrived, seq)
        except UnknownTable as error:
            self.failed += 1
            raise UnknownTable(error.table, tuple(self._engine.catalogue.shown_tables)) from error
        except TimeoutError:
            raise self._missed(asked.body.deadline_s or 0.0, arrived) from None
        except Exception:
            self.failed += 1
            raise
        self.answered += 1
        return Outcome(body, ordered=True, on_disk=True)

    async def _answer(self, asked: Asked[Query], arrived: float, seq: int) -> bytes:
        """The encoded reply; the rest of it, if there is one, is kept."""
        query, access = asked.body, asked.access
        ticket = os.urandom(TICKET_BYTES)
        terms = (query.freshness, query.deadline_s, query.priority, query.read_set == "consistent")
        ask = Ask(0, access.owner, query.sql, tuple(query.parameters), (), arrived, ticket, *terms)
        tables, body, rest = await self._ask(ask, seq, access)
        assert body is not None, "it was run"
        if rest is not None:
            asked = asked._replace(request=asked.request._replace(body=b""))
            self._keep(_Kept(ticket, asked, tables, rest, time.monotonic() + KEPT_S, self._give_up))
        return body

    async def _ask(self, ask: Ask, seq: int, access: Access | None) -> QueryOutcome:
        """The tables and the answer, or its first portion and the rest, with everything up to a sequence number;
        TimeoutError if its deadline passed before it was asked.

        Rights are asked for before a query may read tables, and before the answer leaves; without `access`, the server
        itself asks, which may read all. Only the warehouse can read a text: where it reads other tables than its words
        say, it is asked again with these.
        """
        deadline = None if ask.deadline_s is None else ask.arrived + ask.deadline_s
        tables: tuple[str, ...] = ()
        while True:
            async with asyncio.timeout_at(_loop_time(deadline)):
                await self._ready(seq)
            found = await self.warehouse.ask(ask._replace(tables=tables or self._may_read(ask.sql, access)))
            try:
                self._check(access, found.tables)
            except HullcastError:
                if found.rest is not None:
                    self.let_go(found.rest)
                raise
            if found.body is not None:
                return found
            tables = found.tables

    def _check(self, access: Access | None, tables: tuple[str, ...]) -> None:
        if access is not None:
            access.check("query", self._engine.catalogue.spelt(tables))

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
        _, body, rest = await self._ask(ask, self._engine.seq, None)
        assert body is not None, "it was run"
        return body, rest

    async def tables_read(self, owner: str, sql: str) -> tuple[str, ...]:
        """The tables that a text reads, as they were created; raises why it cannot be read."""
        catalogue = self._engine.catalogue
        while True:
            await self._ready(0)
            as_of = catalogue.definitions
            ask = Ask(0, owner, sql, (), (), time.monotonic(), b"", only_tables=True)
            tables = (await self.warehouse.ask(ask)).tables
            if as_of == catalogue.definitions:
                return catalogue.spelt(tables)

    def _may_read(self, sql: str, access: Access | None) -> tuple[str, ...]:
        """The tables and views that a text names, and that may be read: if it reads no others, it can be answered by
        the worker that reads it."""
        found, catalogue = [], self._engine.catalogue
        for name in sorted(set(_WORD.findall(fold(sql)))):
            if name not in catalogue.stores and name not in catalogue.views:
                continue
            with suppress(NotPermitted):
                self._check(access, (name,))
                found.append(name)
        return tuple(found)

    def let_go(self, rest: LargeAnswer) -> None:
        """Nobody reads the rest of an answer any more."""
        self.warehouse.withdraw(rest.number)
        rest.close()

    # --- the rest of large answers ----------------------------------------------------------------------------

    def _keep(self, kept: _Kept) -> None:
        for owner, most in ((kept.owner, KEPT_PER_OWNER), (None, KEPT)):
            while len(self._kept_of(owner)) >= most:
                if not self._drop_done(owner):
                    self.let_go(kept.rest)
                    raise Overloaded("large answers being fetched", most)
        self._kept[kept.ticket] = kept
        self._jobs.open.add(kept.asked.request, kept)
        kept.rest.on_growth = partial(self._bound, kept)
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
                self.warehouse.withdraw(kept.rest.number)
                kept.rest.fail(no_room(kept.asked.body.sql, self._space))
                return
        for owner, most in ((kept.owner, KEPT_BYTES_PER_OWNER), (None, KEPT_BYTES)):
            while sum(one.rest.size_bytes for one in self._kept_of(owner)) > most:
                if not self._drop_done(owner):
                    self.warehouse.withdraw(kept.rest.number)
                    kept.rest.fail(Overloaded("bytes of large answers being fetched", most))
                    return

    def expire(self, now: float) -> None:
        for ticket in [ticket for ticket, kept in self._kept.items() if kept.until < now and not kept.fetching]:
            self._drop(ticket)

    def _drop(self, ticket: bytes) -> None:
        kept = self._kept.pop(ticket)
        self._jobs.open.discard(kept.asked.request, kept)
        if kept.fetching is not None:
            kept.fetching.cancel()
        self.let_go(kept.rest)

    def _give_up(self, kept: _Kept) -> None:
        self._not_fetched += not kept.done
        self._drop(kept.ticket)

    def drop(self, asked: Asked[DropRows]) -> None:
        kept = self._kept.get(asked.body.ticket)
        if kept is not None and kept.owner == asked.access.owner:
            self._give_up(kept)

    def fetch(self, asked: Asked[FetchRows]) -> Awaited:
        """Answer with a portion as soon as it is there."""
        part, kept = asked.body.part, self._kept.get(asked.body.ticket)
        if kept is None or kept.owner != asked.access.owner:
            why = f"it was not fetched for {KEPT_S:g} s, or the connection was lost, or the server was restarted"
            raise AnswerGone(part, why)
        self._check(asked.access, kept.tables)
        if part not in (kept.fetched, kept.fetched + 1) or part < 1:
            raise AnswerGone(part, "portions are fetched in their order")
        return Awaited(FETCHES, partial(self._fetch, kept, part))

    async def _fetch(self, kept: _Kept, part: int) -> Outcome:
        if kept.ticket not in self._kept:
            raise AnswerGone(part, "it was given up")
        if kept.fetching is not None:
            raise Overloaded("simultaneous fetches of one answer", 1)
        kept.fetching = asyncio.current_task()
        try:
            portion, last = await kept.rest.read(part - 1)
            kept.fetched, kept.done = part, last
            return Outcome(portion, at_once=True)
        finally:
            kept.fetching, kept.until = None, time.monotonic() + KEPT_S

    def close(self) -> None:
        for ticket in list(self._kept):
            self._drop(ticket)


def _loop_time(moment: float | None) -> float | None:
    """A moment of the monotonic clock, if there is one, by the clock of the event loop."""
    return None if moment is None else asyncio.get_running_loop().time() + moment - time.monotonic()
