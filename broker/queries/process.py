"""The process of one-time queries: keeps a SQLite copy of tables, and forks for every query.

    server --(stdin: tables, rows as they change, queries)--> this process --fork--> one child per query
    server <----------------(a Unix socket per child: the reply)-----------------------'

A child has the copy as it was when the query's turn came: memory is shared until one writes, so neither waits for the
other. The operating system bounds it: it is killed at its time limit (SIGALRM), and gets no memory beyond its own
limit. Whatever happens to it, the copy, the other queries and the server are not touched.

Only our own server writes to stdin, hence pickle. The process ends when stdin does.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from hullcast.broker.queries.reading import read_query
from hullcast.broker.queries.sqlite_copy import SqliteCopy
from hullcast.broker.sql.text import shorten
from hullcast.network import compiled
from hullcast.network.wire.bodies import Failed, QueryAnswer, encode
from hullcast.network.wire.errors import ConnectionLost, HullcastError, SqlError, to_wire
from hullcast.network.wire.values import table_of

if TYPE_CHECKING:
    from hullcast.broker.tables.schema import Table
    from hullcast.network.wire.arrays import Booleans, Ints, Narrow

SIZE = struct.Struct("<Q")
#: What a child says first: the query's secret, so that no other process can answer for it.
SECRET_BYTES = 16
#: What kind of answer follows.
TABLES, REPLY = b"T", b"R"
#: How much less urgent queries are than the server, which may have to share two cores with them.
NICENESS = 5


class Create(NamedTuple):
    """A table to be copied."""

    table: Table


class Drop(NamedTuple):
    """A table to be forgotten."""

    name: str


class Put(NamedTuple):
    """What is in some slots now. Texts are (numbers of words, words), all else codes."""

    name: str
    slots: Ints
    alive: Booleans
    cells: list[Any]


class Known(NamedTuple):
    """What is to be known of a table (folded name) that queries may name, copied or not; None: it is gone."""

    name: str
    table: Table | None


class Ask(NamedTuple):
    """A query, and the tables (folded names) that it may read; None: only which tables it reads is asked."""

    secret: bytes
    sql: str
    parameters: tuple[Any, ...]
    tables: tuple[str, ...] | None
    time_s: float
    memory_bytes: int


def main() -> None:
    """Serve until stdin ends."""
    reply_path = sys.argv[1]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are reaped by themselves
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when this ends
    prefer_to_lose(500)
    compiled.load()  # once here, instead of in every child
    copy = SqliteCopy(step_limit=None)
    schema: dict[str, Table] = {}
    source = os.fdopen(os.dup(0), "rb", buffering=1 << 20)
    while True:
        header = source.read(SIZE.size)
        if len(header) < SIZE.size:
            return
        message = pickle.loads(source.read(SIZE.unpack(header)[0]))
        match message:
            case Put(name, slots, alive, cells):
                copy.put(name, slots, alive, [_texts(cell) if isinstance(cell, tuple) else cell for cell in cells])
            case Ask():
                _fork(copy, schema, message, reply_path)
            case Known():
                if message.table is not None:
                    schema[message.name] = message.table
                else:
                    del schema[message.name]
            case Create(table):
                copy.create(table)
            case Drop(name):
                copy.drop(name)


def _fork(copy: SqliteCopy, schema: dict[str, Table], ask: Ask, reply_path: str) -> None:
    try:
        child = os.fork()
    except OSError as error:  # no memory, or no process, for one more
        refusal = Failed(*to_wire(ConnectionLost(f"no process for a query ({error.strerror})")))
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(reply_path)
            connection.sendall(ask.secret + REPLY + encode(refusal))
        return
    if child == 0:
        _serve(copy, schema, ask, reply_path)


def message_bytes(message: Create | Drop | Known | Put | Ask) -> bytes:
    """A message as it goes to stdin."""
    content = pickle.dumps(message, protocol=5)
    return SIZE.pack(len(content)) + content


def _texts(column: tuple[Narrow, tuple[str, ...]]) -> list[str | None]:
    codes, words = column
    table = (*words, None)  # -1 is NULL
    return [table[code] for code in codes.tolist()]


# -- in the child --------------------------------------------------------------------------------------------


def _serve(copy: SqliteCopy, schema: dict[str, Table], ask: Ask, reply_path: str) -> NoReturn:
    """Answer one query, in a process of its own, and end."""
    try:
        os.close(0)
        _limit(ask)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(reply_path)
            connection.sendall(ask.secret)  # if nothing follows, the server knows which query was killed
            connection.sendall(_answer(copy, schema, ask))
    finally:
        os._exit(0)  # nothing of the parent is ours to clean up


def _limit(ask: Ask) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, ask.time_s)
    used = _address_space_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (used + ask.memory_bytes, used + ask.memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICENESS)
    prefer_to_lose(1000)


def _answer(copy: SqliteCopy, schema: dict[str, Table], ask: Ask) -> bytes:
    try:
        known = schema if ask.tables is None else {name: schema[name] for name in ask.tables}
        plan = read_query(ask.sql, known)
        if ask.tables is None:
            return TABLES + json.dumps(plan.tables).encode()
        rows = copy.read(plan, ask.parameters)
        return REPLY + encode(QueryAnswer(*table_of(rows, rows.columns)))
    except HullcastError as error:
        if "out of memory" not in str(error):
            return REPLY + encode(Failed(*to_wire(error)))
    except MemoryError:
        pass
    rows = None  # type: ignore[assignment]  # gives its memory back, for what follows
    reason = f"it needs more than {ask.memory_bytes >> 20} MiB of memory"
    return REPLY + encode(Failed(*to_wire(SqlError(shorten(ask.sql), reason, "ask for less, or sort less"))))


def _address_space_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def prefer_to_lose(score: int) -> None:
    """If the machine runs out of memory, the kernel ends queries first, then their process, then others."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(score))
