"""A worker of the warehouse: a forked child that does one task at a time until it is ended.

It loads a table or a view, or reads a text and runs it. A SELECT is bounded in memory by the operating system and by
SQLite, in time by the warehouse process, which kills the worker; if that is killed itself, by an alarm. Whatever
happens to it, files are right: a load is one transaction, and readers change nothing.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import resource
import signal
import sqlite3
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hullcast.broker.log.directory import read_identity
from hullcast.broker.log.history import Life
from hullcast.broker.log.space import DiskSpace
from hullcast.broker.processes.background import step_back
from hullcast.broker.processes.ends import BlockingEnd
from hullcast.broker.queries.reading import read_query
from hullcast.broker.sql.text import shorten
from hullcast.broker.tables.schema import fold
from hullcast.broker.views.upkeep import Spent, Upkeep
from hullcast.broker.warehouse import messages
from hullcast.broker.warehouse.files.table_file import FileBounds
from hullcast.broker.warehouse.files.table_loader import Loader
from hullcast.broker.warehouse.files.view_file import COMMIT_S, ViewLife
from hullcast.broker.warehouse.files.view_loader import ViewLoader
from hullcast.broker.warehouse.process.answering import Answering
from hullcast.network.wire.errors import HullcastError, InvariantBroken, SqlError, to_wire

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from hullcast.broker.queries.reading import Plan
    from hullcast.broker.views.upkeep import Propagation
    from hullcast.broker.warehouse.files.table_loader import FileLoader

#: How likely the kernel is to end a worker if the machine runs out of memory.
OOM_SCORE = 1000
#: A worker that holds more than this share of a query's memory after it, or so many bytes after a load, is replaced.
SPENT, SPENT_BYTES = 0.25, 256 << 20
#: What SQLite may take at least: its limit cannot be raised again, and loads in this process need some, too.
LEAST_HEAP_BYTES = 512 << 20
#: Changes of a table that are propagated on trial when a view is made.
MEASURED = (1, 8, 64, 512)
#: Seconds of a trial after which no larger one is tried.
LONG_S = 0.25
#: Seconds after which a worker ends by itself, when the process that should have stopped it is gone.
ALARM_LATE_S = 1


def serve(connection: socket.socket, directory: Path, limits: messages.DiskLimits) -> NoReturn:
    """Do tasks until the other end is gone. This is a fork: nothing of the parent is ours to clean up."""
    try:
        _leave_parent(connection)
        WarehouseWorker(connection, directory, limits).run()
    except BaseException:  # noqa: BLE001  (a fork must not go on as its parent)
        traceback.print_exc()
    finally:
        os._exit(0)


class WarehouseWorker:
    """What a worker keeps between tasks: open files."""

    def __init__(self, connection: socket.socket, directory: Path, limits: messages.DiskLimits) -> None:
        self._end = BlockingEnd(connection)
        bounds = FileBounds(directory, limits.file_bytes, limits.reserve_bytes)
        self._loader = Loader(directory, bounds)
        self._views = ViewLoader(directory, bounds)
        self._loaders: dict[type, FileLoader[Any, Any, Any]] = {Life: self._loader, ViewLife: self._views}
        space = DiskSpace(directory, limits.reserve_bytes)
        self._answering = Answering(directory, read_identity(directory) or b"", space)
        self._memory = AddressSpace()
        self._base_bytes = self._memory.reserved_bytes()
        self._heap_bytes = 0

    def run(self) -> None:
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                task = self._end.read()
                self._end.write(self._done(task))
                self._end.flush()
                if isinstance(task, messages.LoadView):  # whoever waits for the view need not wait for this
                    self._tidy(task.life)

    def _done(self, task: object) -> messages.Finished | messages.Failure:
        try:
            match task:
                case messages.Select():
                    return self._select(task)
                case messages.LoadTable():
                    return self._loaded(self._loader.load(task.life, task.through))
                case messages.LoadView():
                    return self._loaded(self._propagate(task))
                case messages.BuildView():
                    return self._loaded(self._build(task))
            raise InvariantBroken(f"a worker was given a {type(task).__name__}")
        except HullcastError as error:
            return messages.Failure(*to_wire(error))
        except MemoryError:
            return messages.Failure(*to_wire(InvariantBroken("the warehouse has too little memory")), spent=True)
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001  (a fault of ours: it fails this task only)
            traceback.print_exc()
            bug = InvariantBroken(f"{type(error).__name__} in the warehouse: {error}")
            return messages.Failure(*to_wire(bug), spent=True)

    def _tidy(self, life: ViewLife) -> None:
        with contextlib.suppress(HullcastError):  # the disk refuses; the next propagation will say so
            self._views.tidy(life)

    def _loaded(self, result: object) -> messages.Finished:
        return messages.Finished(self._memory.reserved_bytes() > self._base_bytes + SPENT_BYTES, result)

    def _propagate(self, task: messages.LoadView) -> Propagation:
        life, through, since, recompute, deltas = task
        return self._views.propagate(life, through, since=since, recompute=recompute, deltas=deltas)

    def _build(self, task: messages.BuildView) -> dict[str, list[Spent]]:
        """Make the file of a view; what it takes to propagate few and many changes of each of its tables, which the
        file keeps."""
        life = task.life
        self._views.build(life, task.through)
        measured = {fold(table.name): self._measured(life, fold(table.name)) for table in life.definition.tables}
        self._views.keep_deltas(life, Upkeep(tuple(measured), life.definition.response_time_s, measured).kept())
        return measured

    def _measured(self, life: ViewLife, table: str) -> list[Spent]:
        """The better of two times each: the first one may find a cold cache. Where changes take long, more of them are
        not tried: they take longer in proportion at most."""
        measured = []
        for changes in MEASURED:
            took_s = self._views.measure(life, table, changes)
            if took_s < LONG_S:
                took_s = min(took_s, self._views.measure(life, table, changes))
            measured.append(Spent(changes, took_s + COMMIT_S))
            if took_s >= LONG_S:
                break
        return measured

    def _select(self, select: messages.Select) -> messages.Finished | messages.Failure:
        memory_bytes = select.limits.memory_bytes
        try:
            with _alarm(select.limits.time_s):
                if select.plan is None:  # that is no part of its memory
                    plan = read_query(select.sql, select.known, attached=True)
                    self._end.write(messages.ReadPlan(plan))
                    files = files_of(plan, select.files)
                    if files is None or select.only_read:
                        return messages.Finished()
                    select = select._replace(plan=plan, files=files)
                self._limit(memory_bytes)
                self._answering.answer(select, self._end.write, self._end.flush, self._load)
        except HullcastError as error:
            if "out of memory" not in str(error):
                self._lift()
                return messages.Failure(*to_wire(error), spent=self._spent(memory_bytes))
            return self._out_of_memory(select)
        except MemoryError:
            return self._out_of_memory(select)
        self._lift()
        return messages.Finished(self._spent(memory_bytes))

    def _out_of_memory(self, select: messages.Select) -> messages.Failure:
        self._lift()
        reason = f"it needs more than {select.limits.memory_bytes >> 20} MiB of memory"
        refusal = SqlError(shorten(select.sql), reason, "ask for less, or sort less")
        return messages.Failure(*to_wire(refusal), spent=True)

    def _load(self, life: Life | ViewLife, through: int, *, anew: bool) -> None:
        """Make the file of a table that a query found missing or damaged. That is no part of the query's memory."""
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        self._lift()
        try:
            loader = self._loaders[type(life)]
            if anew:
                loader.discard(life)
            loader.build(life, through)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

    def _limit(self, memory_bytes: int) -> None:
        heap_bytes = max(memory_bytes, LEAST_HEAP_BYTES)
        if self._heap_bytes != heap_bytes:
            with contextlib.closing(sqlite3.connect(":memory:")) as database:  # it holds for all of the process
                database.execute(f"PRAGMA hard_heap_limit = {heap_bytes}")
            self._heap_bytes = heap_bytes
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (self._memory.reserved_bytes() + memory_bytes, hard))

    def _lift(self) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))

    def _spent(self, memory_bytes: int) -> bool:
        return self._memory.reserved_bytes() > self._base_bytes + SPENT * memory_bytes


def files_of(plan: Plan, files: tuple[messages.FileOf, ...]) -> tuple[messages.FileOf, ...] | None:
    """Those of the files that a text reads, in its order; None if it reads others."""
    given = {fold(file.life.table.name): file for file in files}
    return tuple(given[table] for table in plan.tables) if given.keys() >= set(plan.tables) else None


@contextlib.contextmanager
def _alarm(time_s: float) -> Iterator[None]:
    """Ends this process if it takes much longer; SIGALRM does, whatever it is busy with."""
    signal.alarm(math.ceil(time_s) + ALARM_LATE_S)
    try:
        yield
    finally:
        signal.alarm(0)


def _leave_parent(connection: socket.socket) -> None:
    """Let go of what belongs to the process that was forked."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
    kept = {1, 2, connection.fileno()}
    for name in os.listdir("/dev/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the one by which the folder was read
                os.close(int(name))
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", force=True)  # not by the parent's socket
    connection.setblocking(True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    step_back(OOM_SCORE)


class AddressSpace:
    """What this process has reserved. It must be the process that made this object."""

    def __init__(self) -> None:
        self._file: int | None = None
        with contextlib.suppress(OSError):  # not Linux
            self._file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def reserved_bytes(self) -> int:
        if self._file is None:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return int(os.pread(self._file, 100, 0).split()[0]) * resource.getpagesize()
