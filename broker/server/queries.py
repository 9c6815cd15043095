"""One-time queries: which runs next, and its answer. SQLite is never touched here.

The work is done in `broker/queries/process.py`. A query waits for its turn; its text goes there to be read (which
tables?); the copies of these tables are brought up to date, some rows at a time; then it is sent there, behind all
rows of that moment. It sees everything that was applied before, and is killed at its time limit.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.broker.queries.process import REPLY
from hullcast.broker.scheduling.policy import FairShare, Item
from hullcast.broker.server.query_process import QueryProcess, schema_of
from hullcast.broker.sql.text import check_text
from hullcast.network.wire.bodies import Failed, decode
from hullcast.network.wire.errors import HullcastError, InvariantBroken, Overloaded, from_wire

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.server.query_process import QueryLimits
    from hullcast.broker.server.working import Working
    from hullcast.broker.tables.schema import Table
    from hullcast.network.wire.bodies import Query
    from hullcast.network.wire.frames import Origin, Request

    Check = Callable[[Origin, tuple[str, ...]], None]

log = logging.getLogger(__name__)

#: Queries that may wait, of all and of one owner; when full, more are refused as Overloaded.
WAITING, WAITING_PER_OWNER = 1000, 200
#: Bytes of such queries, with their parameters (a query that waits alone may exceed them).
WAITING_BYTES, WAITING_BYTES_PER_OWNER = 128 << 20, 64 << 20
#: Texts whose tables are remembered.
REMEMBERED = 1024


@dataclass(eq=False, slots=True)
class _WaitingQuery(Item):
    request: Request | None = None
    query: Query | None = None
    size_bytes: int = 0


def _bytes(items: list[_WaitingQuery]) -> int:
    return sum(item.size_bytes for item in items)


class Queries:
    """The queries that wait, those that run, and the process they run in.

    The process is started for the first query, and again when it ends; tables are copied when first named. One owner
    may have all but one of the places, and waits behind owners that were served less.
    """

    def __init__(
        self,
        engine: ServedEngine,
        working: Working,
        limits: QueryLimits,
        check: Check,
        refusal: Callable[[HullcastError, Request], bytes],
        done: Callable[[Request, bytes], None],
    ) -> None:
        self._engine, self._working, self._limits = engine, working, limits
        self._check, self._refusal, self._done = check, refusal, done
        self._policy = FairShare()
        self._waiting: list[_WaitingQuery] = []
        self._running: dict[asyncio.Task[None], str] = {}
        self._something = asyncio.Event()
        self._process: QueryProcess | None = None
        self._starting = asyncio.Lock()
        self._planned: dict[str, tuple[str, ...]] = {}
        self._planned_for: dict[str, Table] = {}
        self.answered = self.failed = self.processes = 0

    @property
    def waiting(self) -> int:
        """Queries whose turn has not come."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Queries being answered."""
        return len(self._running)

    def put(self, request: Request, query: Query, owner: str) -> None:
        """Queue a query. If too many wait, it is Overloaded, or else a query of an owner that has more waiting."""
        check_text(query.sql)
        item = _WaitingQuery(owner, time.monotonic(), request=request, query=query, size_bytes=len(request.body))
        mine = [other for other in self._waiting if other.owner == owner]
        if len(mine) >= WAITING_PER_OWNER:
            raise Overloaded("queries waiting", WAITING_PER_OWNER)
        if mine and _bytes(mine) + item.size_bytes > WAITING_BYTES_PER_OWNER:
            raise Overloaded("bytes of queries waiting", WAITING_BYTES_PER_OWNER)
        while len(self._waiting) >= WAITING:
            self._make_room(Overloaded("queries waiting", WAITING), [*mine, item], len)
        while self._waiting and _bytes(self._waiting) + item.size_bytes > WAITING_BYTES:
            self._make_room(Overloaded("bytes of queries waiting", WAITING_BYTES), [*mine, item], _bytes)
        self._waiting.append(item)
        self._something.set()

    def _make_room(
        self, refusal: Overloaded, mine: list[_WaitingQuery], weight: Callable[[list[_WaitingQuery]], int]
    ) -> None:
        """Refuse the latest query of the owner that has most waiting; raise `refusal` if that is the newcomer."""
        by_owner: dict[str, list[_WaitingQuery]] = {}
        for item in self._waiting:
            by_owner.setdefault(item.owner, []).append(item)
        most = max(by_owner.values(), key=weight)
        if weight(most) <= weight(mine):
            raise refusal
        self._waiting.remove(most[-1])
        assert most[-1].request is not None
        self._done(most[-1].request, self._refusal(refusal, most[-1].request))

    def stay_with(self, links: Container[int]) -> None:
        """Forget waiting queries of clients whose link is gone."""
        self._waiting = [item for item in self._waiting if item.request is None or item.request.route[-1] in links]

    async def run(self) -> None:
        """Answer queries until cancelled."""
        try:
            while True:
                await self._something.wait()
                self._something.clear()
                while (item := self._next()) is not None:
                    task = asyncio.create_task(self._serve(item), name="server.query")
                    self._running[task] = item.owner
                    task.add_done_callback(self._ended)
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
            if self._process is not None:
                await self._process.stop()

    def _next(self) -> _WaitingQuery | None:
        """The query whose turn it is, if there is room for one."""
        if len(self._running) >= self._limits.at_once:
            return None
        most = max(1, self._limits.at_once - 1)  # of one owner, so that others find a place
        owners = list(self._running.values())
        may = [item for item in self._waiting if owners.count(item.owner) < most]
        if not may:
            return None
        item = self._policy.pick(may, time.monotonic())
        assert isinstance(item, _WaitingQuery)
        self._waiting.remove(item)
        return item

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._something.set()

    async def _serve(self, item: _WaitingQuery) -> None:
        assert item.request is not None
        assert item.query is not None
        began = time.monotonic()
        try:
            body = await self._answer(item.owner, item.request, item.query)
        except HullcastError as error:
            self.failed += 1
            if isinstance(error, InvariantBroken) and self._engine.broken:
                raise
            body = self._refusal(error, item.request)
        except Exception as error:
            self.failed += 1
            log.exception("query failed")
            body = self._refusal(
                InvariantBroken(f"{type(error).__name__} in a query; nothing was changed"), item.request
            )
        self._policy.served(item, time.monotonic() - began, time.monotonic())
        self.answered += 1
        self._done(item.request, body)

    async def _answer(self, owner: str, request: Request, query: Query) -> bytes:
        assert request.origin is not None
        self._check(request.origin, ())
        async with self._starting:
            process = await self._started()
        await process.bring_up_to_date(owner, ())
        tables = await self._tables(process, query.sql)
        self._check(request.origin, tables)  # with the rights in force now
        await process.bring_up_to_date(owner, tables)
        kind, body = await process.ask(query.sql, tuple(query.parameters), tables)
        if kind != REPLY:
            raise InvariantBroken("the query process answered another question")
        return body

    async def _started(self) -> QueryProcess:
        if self._process is None or self._process.ended:
            if self._process is not None:
                log.warning("query process ended", extra={"code": self._process.returncode})
                await self._process.stop()
            self._process = None
            self._process = await QueryProcess.start(self._engine, self._working, self._limits)
            self.processes += 1
        return self._process

    async def _tables(self, process: QueryProcess, sql: str) -> tuple[str, ...]:
        """The tables a text reads (folded names); read once, in the process: parsing may take its time."""
        if self._planned_for != (schema := schema_of(self._engine)):
            self._planned, self._planned_for = {}, schema  # a text may mean another table now
        known = self._planned.get(sql)
        if known is None:
            kind, body = await process.ask(sql, (), None)
            if kind == REPLY:
                refusal = decode(body)
                assert isinstance(refusal, Failed), "a text is planned or refused"
                raise from_wire(refusal.code, refusal.arguments)
            known = tuple(map(str, json.loads(body)))
            if self._planned_for == schema:
                if len(self._planned) >= REMEMBERED:
                    self._planned.clear()
                self._planned[sql] = known
        return known
