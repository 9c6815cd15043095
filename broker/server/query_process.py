"""The query process as the server holds it: what it has copied, what is sent to it, and which answers it owes.

The process itself is `broker/queries/process.py`. All that goes to it is written in the order in which it happens, so a
query sees just what was sent before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hullcast.broker.queries.process import (
    SECRET_BYTES,
    Ask,
    Create,
    Drop,
    Known,
    Put,
    message_bytes,
)
from hullcast.broker.sql.text import shorten
from hullcast.broker.tables.feed import TableCopy, note_changes
from hullcast.broker.tables.schema import ColumnType, fold
from hullcast.broker.tables.travel import travelling
from hullcast.network.wire.columns import TextColumn
from hullcast.network.wire.errors import ConnectionLost, HullcastError, SqlError
from hullcast.network.wire.limits import DEFAULT

if TYPE_CHECKING:
    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.scheduling.driver import Work
    from hullcast.broker.server.working import Working
    from hullcast.broker.tables.feed import Follower, SlotRows
    from hullcast.broker.tables.schema import Table

log = logging.getLogger(__name__)

#: Rows that go to the process at once: about two milliseconds of work.
PORTION = 4096
#: Bytes that may wait in the pipe to the process before it is given a chance to take them.
PIPE_BYTES = 4 << 20
#: Tables that are sent to the process within the turn of a query; more take several turns.
FEW_TABLES = 4
#: Seconds that the process may take before a query begins, for rows that were sent before it.
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What one query may take, and how many run at once."""

    time_s: float
    memory_bytes: int
    at_once: int


def schema_of(engine: ServedEngine) -> dict[str, Table]:
    """The tables by folded name."""
    return {fold(table.name): table for table in engine.tables.values()}


class QueryProcess:
    """One life of the process: what it has copied, and which children owe an answer."""

    def __init__(self, engine: ServedEngine, working: Working, limits: QueryLimits, folder: str) -> None:
        self._engine, self._working, self._limits, self._folder = engine, working, limits, folder
        self._follower: Follower = engine.feed.follower("queries")
        self._known: dict[str, Table] = {}
        self._copies: dict[str, TableCopy] = {}
        self._copying: dict[str, asyncio.Lock] = {}
        self._owed: dict[bytes, asyncio.Future[tuple[bytes, bytes]]] = {}
        self._process: asyncio.subprocess.Process
        self._server: asyncio.Server | None = None
        self._answering: set[asyncio.Task[None]] = set()

    @classmethod
    async def start(cls, engine: ServedEngine, working: Working, limits: QueryLimits) -> QueryProcess:
        """Start the process."""
        try:
            folder = tempfile.mkdtemp(prefix="hullcast-")
        except OSError as error:
            raise ConnectionLost(f"queries need a temporary folder ({error.strerror}); set TMPDIR") from error
        self = cls(engine, working, limits, folder)
        path = os.path.join(folder, "replies")
        try:
            self._server = await asyncio.start_unix_server(self._connected, path, limit=DEFAULT.body_bytes + 4096)
            self._process = await asyncio.create_subprocess_exec(
                # not -m: what is pickled here names the module by its own name, which then is not __main__
                *(sys.executable, "-P", "-c", "from hullcast.broker.queries.process import main; main()", path),
                stdin=asyncio.subprocess.PIPE,
                start_new_session=True,  # a process group of its own: it is killed as one, and gets no Ctrl-C
            )
        except BaseException as error:
            self._let_go()
            if isinstance(error, OSError):
                raise ConnectionLost(f"the process for queries cannot be started ({error})") from error
            raise
        return self

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.returncode is not None

    @property
    def returncode(self) -> int | None:
        """How it ended."""
        return self._process.returncode

    def kill(self) -> None:
        """End the process and all its children at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def stop(self) -> None:
        """End everything, and wait for it."""
        self._let_go()
        self.kill()
        await self._process.wait()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        for owed in self._owed.values():
            if not owed.done():
                owed.set_exception(ConnectionLost("the query process was stopped"))
        if self._process.stdin is not None:
            self._process.stdin.close()
            with contextlib.suppress(OSError):
                await self._process.stdin.wait_closed()

    def _let_go(self) -> None:
        """Follow no more, and take no more answers."""
        self._follower.close()
        if self._server is not None:
            self._server.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- the copies --------------------------------------------------------------------------------------

    async def bring_up_to_date(self, owner: str, tables: tuple[str, ...]) -> None:
        """Let the process have everything in these tables. When this returns, it has been sent, up to this moment."""
        while True:
            self._follow()
            if len(self._news()) > FEW_TABLES:
                await self._working.do(owner, self._tell_tables())
                await self._drain()
            for name in tables:
                async with self._copying.setdefault(name, asyncio.Lock()):
                    while self._left(name) > PORTION:
                        await self._working.do(owner, self._copy(name))
                        await self._drain()
            if all(self._left(name) <= PORTION for name in tables) and len(self._news()) <= FEW_TABLES:
                for name in tables:  # little is left, and it goes in this very turn
                    while self._copies[name].left:
                        self._send_portion(name)
                return

    def _news(self) -> list[str]:
        """The tables (folded names) of which the process knows something else, or nothing."""
        known, tables = self._known, schema_of(self._engine)
        if known == tables:
            return []
        return [name for name in known.keys() | tables.keys() if known.get(name) is not tables.get(name)]

    def _tell(self, name: str) -> None:
        """Let the process know what a table is, or that it is gone."""
        table = schema_of(self._engine).get(name)
        self._write(Known(name, table))
        if table is None:
            del self._known[name]
        else:
            self._known[name] = table

    def _tell_tables(self) -> Work:
        """Let the process know of all tables."""
        for name in self._news():
            if schema_of(self._engine).get(name) is not self._known.get(name):
                self._tell(name)
            yield 0.002

    def _left(self, name: str) -> int:
        """About how many rows of a table the process does not have as they are."""
        self._follow()
        store = self._engine.store_of(name)
        if name not in self._copies:
            self._write(Create(store.table))
            self._follower.add(store.table)
            self._copies[name] = TableCopy(store)
        return self._copies[name].left

    def _forget(self, name: str, copy: TableCopy) -> None:
        """A table was dropped: neither this process nor the other may hold its rows any longer."""
        self._write(Drop(copy.store.table.name))
        self._follower.drop(copy.store.table)
        del self._copies[name]
        copying = self._copying.get(name)
        if copying is not None and not copying.locked():
            del self._copying[name]

    def _follow(self) -> None:
        """Note what changed, and forget the tables that were dropped."""
        if note_changes(self._follower, self._copies):
            log.info("query process is behind; it reads its tables again", extra={"tables": len(self._copies)})
        for name, copy in list(self._copies.items()):
            if self._engine.stores.get(name) is not copy.store:
                self._forget(name, copy)

    def _copy(self, name: str) -> Work:
        """Send rows of a table until the pipe is full enough."""
        while self._left(name) > PORTION and self._pipe_bytes() < PIPE_BYTES:
            self._send_portion(name)
            yield 0.002

    def _send_portion(self, name: str) -> None:
        copy = self._copies[name]
        rows = copy.portion(PORTION)
        if rows is not None:
            self._write(Put(copy.store.table.name, rows.slots, rows.alive, self._cells(copy.store.table, rows)))

    def _cells(self, table: Table, rows: SlotRows) -> list[object]:
        texts = self._engine.texts
        cells: list[object] = []
        for i, column in enumerate(table.columns):
            if column.type is ColumnType.TEXT:
                travels = travelling(ColumnType.TEXT, rows.cells[i], texts)
                assert isinstance(travels, TextColumn)
                cells.append((travels.codes, travels.words))
            else:
                cells.append(rows.cells[i])
        return cells

    # --- to and from the process ---------------------------------------------------------------------------

    def _write(self, message: Create | Drop | Known | Put | Ask) -> None:
        assert self._process.stdin is not None
        if self.ended or self._process.stdin.is_closing():
            raise ConnectionLost("the query process ended")
        self._process.stdin.write(message_bytes(message))

    def _pipe_bytes(self) -> int:
        assert self._process.stdin is not None
        return self._process.stdin.transport.get_write_buffer_size()

    async def _drain(self) -> None:
        assert self._process.stdin is not None
        try:
            await self._process.stdin.drain()
        except OSError:
            raise ConnectionLost("the query process ended") from None

    async def ask(
        self, sql: str, parameters: tuple[object, ...], tables: tuple[str, ...] | None
    ) -> tuple[bytes, bytes]:
        """What the process says to a query: what kind of answer, and its bytes. It is written at once.

        It may read these tables, and no other that there may be by now; None: which tables does it read?
        """
        secret = os.urandom(SECRET_BYTES)
        owed = self._owed[secret] = asyncio.get_running_loop().create_future()
        time_s, memory_bytes = self._limits.time_s, self._limits.memory_bytes
        gone = asyncio.ensure_future(self._process.wait())
        try:
            for name in self._news():
                self._tell(name)
            self._write(Ask(secret, sql, parameters, tables, time_s, memory_bytes))
            began = time.monotonic()
            await asyncio.wait((owed, gone), timeout=time_s + PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
            if not owed.done():
                self.kill()
                raise ConnectionLost("the query process ended")
            kind, body = owed.result()
            if not kind:
                raise self._unanswered(sql, time.monotonic() - began)
            return kind, body
        finally:
            gone.cancel()
            del self._owed[secret]

    def _unanswered(self, sql: str, took_s: float) -> HullcastError:
        """Why a child ended without an answer."""
        if took_s >= self._limits.time_s:
            reason = f"stopped after {self._limits.time_s:g} s"
            return SqlError(shorten(sql), reason, "narrow it with WHERE, or join on keys")
        return SqlError(shorten(sql), "its process was killed", "it may have taken too much memory; ask for less")

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A child has an answer, or will have."""
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        try:
            secret = await reader.readexactly(SECRET_BYTES)
            answer = await reader.read(-1)
            owed = self._owed.get(secret)
            if owed is not None and not owed.done():
                owed.set_result((answer[:1], answer[1:]))
        except (OSError, asyncio.IncompleteReadError):
            log.info("a query ended without an answer")
        finally:
            self._answering.discard(task)
            writer.close()
