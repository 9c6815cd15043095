"""The warehouse process as the server sees it: started, informed, asked, and restarted when it dies.

The process itself is `broker/warehouse/process/live.py`. It reads rows from the files of the data directory, so all
that goes to it is small: which tables there are, how far they were changed, and queries. All is written in the order in
which it happens: a query comes behind everything that was acknowledged before it.
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any, NamedTuple

from hullcast.broker.log.history import Life
from hullcast.broker.processes.child import ChildKind, ChildProcess
from hullcast.broker.scheduling.policy import one_of
from hullcast.broker.server.jobs import Awaited, Room
from hullcast.broker.tables.schema import fold
from hullcast.broker.warehouse import messages
from hullcast.broker.warehouse.deciding.policies import POLICIES
from hullcast.broker.warehouse.files.view_file import ViewLife
from hullcast.broker.warehouse.process.answering import with_worth
from hullcast.network.wire.errors import (
    ConnectionLost,
    HullcastError,
    Overloaded,
    PromiseTooShort,
    SqlError,
    from_wire,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.log.recovery import DataDirectory
    from hullcast.broker.queries.view import ViewDefinition
    from hullcast.broker.server.settings import ServerSettings
    from hullcast.broker.sql.view import CreateView
    from hullcast.broker.tables.feed import ChangeTally
    from hullcast.broker.tables.schema import Table

#: Seconds between two messages on what was released, unless a query must know.
RELEASE_S = 0.02
#: Rows and bytes of the answer to one query.
ROW_LIMIT, ANSWER_BYTES = 1_000_000, 512 << 20
#: Tables that the process is told of at once; then others have their turn.
TABLES_AT_ONCE = 10
#: Views of a server: each is looked at whenever something happens.
MOST_VIEWS = 64
#: Requests that wait for a view to be made.
VIEWS = Room("requests to create views", waiting=MOST_VIEWS, waiting_per_owner=MOST_VIEWS)
#: It is as urgent as the server; its workers are less.
WAREHOUSE = ChildKind(
    "warehouse",
    "the warehouse process",
    "hullcast.broker.warehouse.process.live",
    silence_s=30.0,
    first_word_s=30.0,
    retry_s=5.0,
    niceness=0,
)


class LargeAnswer:
    """The portions of an answer behind the first, in a file that has no name any more: it goes with this process."""

    def __init__(self, number: int, spool: str) -> None:
        self.number, self._spool = number, spool
        self.on_growth: Callable[[], None] | None = None  # told when there is more: whoever keeps it
        self._file: int | None = None
        self._parts: list[tuple[int, int]] = []
        self._worth: dict[str, Any] | None = None
        self._error: HullcastError | None = None
        self._closed = False
        self._more = asyncio.Event()
        self.size_bytes = 0

    @property
    def ended(self) -> bool:
        return self._worth is not None or self._error is not None

    def add(self, part: messages.SpooledPart) -> None:
        if self._closed:
            return
        try:
            if self._file is None:
                self._file = os.open(self._spool, os.O_RDONLY)
                os.unlink(self._spool)
        except OSError as error:
            self.fail(ConnectionLost(f"the rest of an answer cannot be read ({error.strerror})"))
            return
        self._parts.append((part.offset, part.size))
        self.size_bytes += part.size
        self._tell()
        if self.on_growth is not None:
            self.on_growth()

    def end(self, worth: dict[str, Any]) -> None:
        self._worth = worth
        self._tell()

    def fail(self, error: HullcastError) -> None:
        self._error = self._error or error
        self._tell()

    def _tell(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    async def read(self, part: int) -> tuple[bytes, bool]:
        """Portion `part` (from 0 on) as soon as it is there, and whether it is the last; raises why there is none."""
        while len(self._parts) < part + 2 and not self.ended:  # whether it is the last is known when the next one is
            await self._more.wait()
        last = part == len(self._parts) - 1
        if self._error is not None and (last or part >= len(self._parts)):
            raise self._error
        if part >= len(self._parts) or self._file is None:
            raise ConnectionLost("there is no such portion")
        offset, size = self._parts[part]
        try:
            # to its end, also if nobody waits any more: it closes what it reads from
            body = await asyncio.shield(asyncio.to_thread(_read, os.dup(self._file), size, offset))
        except OSError as error:  # too many open files, or a disk that fails
            raise ConnectionLost(f"a portion of an answer cannot be read ({error.strerror})") from error
        if last:
            assert self._worth is not None
            body = with_worth(body, self._worth)
        return body, last

    def close(self) -> None:
        self._closed = True
        if self._file is not None:
            os.close(self._file)
            self._file = None


class QueryOutcome(NamedTuple):
    """What became of a query: the tables (folded names) that its text reads, and the encoded answer, or its first
    portion and the rest. No body: it reads others than it may, and was not run."""

    tables: tuple[str, ...]
    body: bytes | None
    rest: LargeAnswer | None = None


def _read(file: int, size: int, offset: int) -> bytes:
    try:
        return os.pread(file, size, offset)
    finally:
        os.close(file)


def life_of(view: ViewDefinition, engine: ServedEngine) -> ViewLife:
    """A view as files know it. When it was created does not matter: what a file of the same definition over the same
    tables holds is right for this one, too."""
    stores = [engine.catalogue.store(table.name) for table in view.tables]
    bases = tuple(Life(store.table, store.created) for store in stores)
    return ViewLife(view, max(life.created for life in bases), bases)


class Warehouse:
    """The process, what it was told, and what it owes."""

    def __init__(
        self, engine: ServedEngine, files: Callable[[], Awaitable[DataDirectory]], settings: ServerSettings
    ) -> None:
        """`files` gives the directory that the process may read: all that was acknowledged before is in its log."""
        self._engine, self._files, self._places = engine, files, settings.warehouse_processes
        self._limits = messages.QueryLimits(settings.query_s, settings.query_memory_bytes, ROW_LIMIT, ANSWER_BYTES)
        reserve_bytes = 0 if settings.data is None else settings.reserve_bytes
        self._disk = messages.DiskLimits(settings.warehouse_file_bytes, reserve_bytes)
        self.policy = settings.warehouse_policy
        self.child = ChildProcess(WAREHOUSE, self._on_message, self._on_gone)
        self._directory: DataDirectory | None = None
        self._starting = asyncio.Lock()
        self._known: dict[str, Table | ViewDefinition] = {}
        self._definitions = -1  # up to which tables are known
        self._tally: ChangeTally | None = None
        self._tally_from = self._through = -1
        self._told_at = 0.0
        self._release_due: asyncio.TimerHandle | None = None
        self._more_on_disk = asyncio.Event()  # set, and exchanged for another one, when there is
        self._numbers = 0
        self._owed: dict[int, asyncio.Future[Any]] = {}
        self._large: dict[int, LargeAnswer] = {}
        self._report: dict[str, Any] = {}

    # -- one life of the process -----------------------------------------------------------------------------

    async def start(self) -> None:
        """Return when there is a process that knows all tables; ConnectionLost if there can be none."""
        directory = await self._files()
        async with self._starting:
            if directory is not self._directory or not self.child.running:
                begin = messages.Begin(str(directory.path), self._places, self._limits, self.policy, self._disk)
                await self.child.start(begin)
                self._directory = directory
                self._tally, self._tally_from = self._engine.feed.tally(), self._engine.seq
                self._known, self._definitions, self._through = {}, -1, -1
            await self._tell_tables()
            if directory.log.synced_seq < self._tally_from:
                await self.wait_released(self._tally_from)  # what the tally has not counted is on disk, and so known
                await self._tell_tables()

    def _on_gone(self) -> None:
        """The process has ended: what it owes is lost."""
        if self._tally is not None:
            self._tally.close()
            self._tally = None
        lost = ConnectionLost(f"{WAREHOUSE.called} ended")
        for owed in self._owed.values():
            if not owed.done():
                owed.set_exception(lost)
        for large in self._large.values():
            large.fail(lost)
        self._owed.clear()
        self._large.clear()

    async def stop(self) -> None:
        if self._release_due is not None:
            self._release_due.cancel()
        await self.child.stop()

    def watch(self, now: float) -> None:
        """Called now and then: start the process if there are views, or a table is declared a feed; kill one that
        hangs."""
        self.on_release()  # files that replies do not wait for are written now and then
        self.child.watch(now)
        due = self._definitions != self._engine.catalogue.definitions if self.child.running else self._has_feeds()
        if due:
            self.child.keep_started(now, self._keep_told)

    def _has_feeds(self) -> bool:
        catalogue = self._engine.catalogue
        return bool(catalogue.views) or any(table.feed is not None for table in catalogue.tables.values())

    async def _keep_told(self) -> None:
        await self.start()
        self.tell_released()

    # -- what it is told -------------------------------------------------------------------------------------

    async def _tell_tables(self) -> None:
        """Let the process know what tables and views there are, some at a time."""
        catalogue = self._engine.catalogue
        while self._definitions != (definitions := catalogue.definitions):
            stores, views, told = dict(catalogue.stores), dict(catalogue.views), 0
            for name in [name for name in self._known if name not in stores and name not in views]:
                del self._known[name]
                self.child.write(messages.Known(name, None))
            for name, store in stores.items():
                if self._known.get(name) is store.table:
                    continue
                self._known[name] = store.table
                self.child.write(messages.Known(name, Life(store.table, store.created), len(store)))
                told += 1
                if told % TABLES_AT_ONCE == 0:
                    await asyncio.sleep(0)
            for name in views:  # after the tables that they read
                self.tell_view(name)
            self._definitions = definitions

    def tell_view(self, name: str) -> None:
        """Let the process know of a view, if it knows its tables, and there is such a view."""
        view = self._engine.catalogue.views.get(name)
        if view is None or not self.child.running or self._known.get(name) is view:
            return
        if all(fold(table.name) in self._known for table in view.tables):
            self._known[name] = view
            self.child.write(messages.Known(name, life_of(view, self._engine)))

    def on_release(self) -> None:
        """What was appended to the log is on disk; the process learns of it soon."""
        self._more_on_disk.set()
        self._more_on_disk = asyncio.Event()
        if self._directory is None or self._directory.log.synced_seq == self._through:
            return
        if self.child.running and self._release_due is None:
            wait_s = max(0.0, self._told_at + RELEASE_S - time.monotonic())
            self._release_due = asyncio.get_running_loop().call_later(wait_s, self.tell_released)

    def tell_released(self) -> None:
        """Let the process know what was released up to now."""
        if self._release_due is not None:
            self._release_due.cancel()
            self._release_due = None
        if self._tally is None or not self.child.running or self._directory is None:
            return
        if self._definitions < 0 or self._directory.log.synced_seq < self._tally_from:
            return  # it does not know all tables yet, or would miss what was applied before the tally began
        through, counts = self._tally.take(self._directory.log.synced_seq)
        if through == self._through and not counts:
            return
        self._through, self._told_at = through, time.monotonic()
        stores = self._engine.catalogue.stores
        tables = {name: count for store, count in counts.items() if stores.get(name := fold(store.table.name)) is store}
        self.child.write(messages.Released(through, self._told_at, tables))

    async def wait_released(self, seq: int) -> None:
        """Return when the process can read everything up to a sequence number; or, while the disk has no room for that,
        everything that was acknowledged."""
        while (files := self._directory) is not None and files.log.synced_seq < seq and files.log.stalled is None:
            await self._more_on_disk.wait()

    # -- what it is asked ------------------------------------------------------------------------------------

    @property
    def knows_all(self) -> bool:
        return self._definitions == self._engine.catalogue.definitions

    async def ask(self, ask: messages.Ask) -> QueryOutcome:
        """What becomes of a query; raises why it cannot be answered."""
        found: QueryOutcome = await self._answer(ask._replace(number=self._numbers + 1))
        return found

    async def make_view(self, view: ViewLife, owner: str) -> tuple[int, float]:
        """Make the file of a view that is to be created: a number for `withdraw`, and the shortest response time that
        can be promised."""
        made: messages.ViewMade = await self._answer(messages.MakeView(self._numbers + 1, owner, view))
        return made.number, made.shortest_s

    async def _answer(self, message: messages.Ask | messages.MakeView) -> Any:
        """What comes of the next message that has a number."""
        self._numbers = number = message.number
        self.tell_released()
        owed = self._owed[number] = asyncio.get_running_loop().create_future()
        try:
            self.child.write(message)
            return await owed
        except asyncio.CancelledError:  # nobody waits for it any more
            came = owed.result() if owed.done() and not owed.cancelled() and owed.exception() is None else None
            if isinstance(came, QueryOutcome) and came.rest is not None:  # in the same moment
                came.rest.close()
            self.withdraw(number)
            raise
        finally:
            self._owed.pop(number, None)

    def withdraw(self, number: int) -> None:
        """Nobody wants an answer any more, or the rest of one; or there will be no view for which a file was made."""
        self._large.pop(number, None)
        if self.child.running:
            self.child.write(messages.Withdraw(number))

    def switch(self, policy: str) -> None:
        self.policy = one_of(POLICIES, policy)
        if self.child.running:
            self.child.write(messages.Switch(policy))

    def policy_facts(self) -> dict[str, Any]:
        """The policy in force, what it counts, and all there are with a line about each."""
        status = self.status()
        policies = {name: policy.about for name, policy in POLICIES.items()}
        return {"policy": status["policy"], "counters": status["counters"], "policies": policies}

    # -- what it says ----------------------------------------------------------------------------------------

    def _on_message(self, message: object) -> None:
        match message:
            case messages.AnswerRows(number, tables, body, spool):
                large = None
                if spool is not None and number in self._owed:  # else nobody waits for it, and it was withdrawn
                    large = self._large[number] = LargeAnswer(number, spool)
                self._settle(number, QueryOutcome(tables, body, large))
            case messages.SpooledPart(number):
                if number in self._large:
                    self._large[number].add(message)
            case messages.AnswerEnded(number, worth):
                if number in self._large:
                    self._large.pop(number).end(worth)
            case messages.ViewMade(number):
                self._settle(number, message)
            case messages.QueryRefused(number, code, arguments):
                error = from_wire(code, arguments)
                if number in self._large:
                    self._large.pop(number).fail(error)
                self._settle(number, error)
            case messages.Report(counters):
                self._report = counters

    def _settle(self, number: int, result: object) -> None:
        owed = self._owed.get(number)
        if owed is None or owed.done():
            return
        if isinstance(result, HullcastError):
            owed.set_exception(result)
        else:
            owed.set_result(result)

    # -- for people ------------------------------------------------------------------------------------------

    def reported(self, counter: str) -> int:
        """A counter of the process, as of half a second ago at most."""
        return int(self._report.get(counter, 0)) if self.child.running else 0

    def status(self) -> dict[str, Any]:
        """Policy, tables and counters, as of half a second ago at most."""
        empty = {"counters": {}, "tables": {}, "views": {}, "missed": 0, "load_failures": 0, "worker_restarts": 0}
        known = {**empty, **self._report, "started": self.child.running, "processes": self.child.lives}
        if known.get("policy") != self.policy:  # switched since: the counters were the other one's
            known |= {"policy": self.policy, "counters": {}}
        return known


class ViewMaking:
    """The views that are being made, for CREATE VIEW.

    To make one takes as long as reading its tables, so it is made, and its promise measured, before there is such a
    view: the request waits, and nobody else does. Only then is the statement executed and logged. A view that nobody
    waits for any more is given up before that, and nothing is left of it. If the server ends before that, there is a
    file that nobody knows, which the next start removes.
    """

    def __init__(self, engine: ServedEngine, warehouse: Warehouse) -> None:
        self._engine, self._warehouse = engine, warehouse
        self._making: set[str] = set()  # folded names

    def wait(self, statement: CreateView, owner: str) -> Awaited:
        """What a statement that creates a view waits for."""
        return Awaited(VIEWS, partial(self._make, statement, owner))

    async def _make(self, statement: CreateView, owner: str) -> int | None:
        """Make what a statement creates: a number for `Warehouse.withdraw`; None if nothing need be made."""
        name, others = fold(statement.name), len(self._engine.catalogue.views) + len(self._making)
        if name in self._making:
            raise Overloaded(f"requests to create view {statement.name}", 1)
        if others >= MOST_VIEWS:
            raise SqlError(statement.name, f"there are {others} views", "DROP VIEW one that nobody needs")
        self._making.add(name)
        try:
            while True:  # once more, if its tables were dropped and created again meanwhile
                await self._warehouse.start()
                await self._warehouse.wait_released(self._engine.seq)
                definition = self._engine.catalogue.bound(statement)
                if definition is None:
                    return None
                life = life_of(definition, self._engine)
                number, shortest_s = await self._warehouse.make_view(life, owner)
                try:
                    if definition.response_time_s < shortest_s:
                        raise PromiseTooShort(definition.name, definition.response_time_s, rounded_up(shortest_s))
                    bound = self._engine.catalogue.bound(statement)
                    if bound == definition and life_of(definition, self._engine) == life:
                        return number
                except HullcastError:
                    self._warehouse.withdraw(number)
                    raise
                self._warehouse.withdraw(number)
        finally:
            self._making.discard(name)

    def executed(self, statement: CreateView, number: int | None) -> None:
        """The statement was executed, and the warehouse knows of the view before it can be dropped; or it was refused
        in the end, and nothing is left of it."""
        if fold(statement.name) in self._engine.catalogue.views:
            self._warehouse.tell_view(fold(statement.name))
        elif number is not None:
            self._warehouse.withdraw(number)


def rounded_up(seconds: float) -> float:
    """With two digits, for people, who may ask for it then."""
    unit = floor(log10(seconds)) - 1
    return float(f"{ceil(seconds / 10.0**unit)}e{unit}")
