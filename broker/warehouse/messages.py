"""What the server, the warehouse process and its workers tell each other, and how it travels.

    server <==(a socket pair)==> warehouse process <==(a socket pair each)==> workers

Only our own processes have the ends of these sockets, hence pickle. A message is its length and then its bytes. All
times are of the monotonic clock, which the processes of a machine share.

Tables and plans go to a worker with the first message that has them, and by a number from then on: to pickle them each
time takes longer than a point query does.
"""

from __future__ import annotations

import asyncio
import io
import pickle
import socket
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from hullcast.broker.log.history import Life
from hullcast.broker.queries.reading import Plan
from hullcast.broker.views.file import ViewLife

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hullcast.broker.tables.schema import Table

_SIZE = struct.Struct("<Q")
#: Tables and plans that a worker has by numbers; when there are more, all are forgotten.
MOST_SHARED = 256


# -- from the server to the process ------------------------------------------------------------------------


class Begin(NamedTuple):
    """The first message: whose files, how many workers, what a query may take, and who decides."""

    directory: str
    places: int
    limits: QueryLimits
    policy: str
    disk: DiskLimits


class Known(NamedTuple):
    """A table or view (folded name) as it is now, and about how many rows it has; without a life: it is gone."""

    name: str
    life: Life | ViewLife | None
    rows: int = 0


class Released(NamedTuple):
    """All up to `through` was acknowledged at `at`; by folded name, the first and the last update of tables that
    changed since the message before, and how many."""

    through: int
    at: float
    tables: dict[str, tuple[int, int, int]]


class AskTables(NamedTuple):
    """Which tables does a text read?"""

    number: int
    owner: str
    sql: str


class Ask(NamedTuple):
    """A query that may read these tables (folded names). If its answer is large, `ticket` is to fetch it with."""

    number: int
    owner: str
    sql: str
    parameters: tuple[Any, ...]
    tables: tuple[str, ...]
    arrived: float
    ticket: bytes
    freshness: float = 1.0
    deadline_s: float | None = None
    priority: int = 0
    consistent: bool = False


class MakeView(NamedTuple):
    """Make the file of a view that is to be created, and measure what keeping it ready takes."""

    number: int
    owner: str
    life: ViewLife


class Withdraw(NamedTuple):
    """Nobody waits for that answer any more."""

    number: int


class Switch(NamedTuple):
    """Another policy, by name."""

    policy: str


# -- from the process to the server ------------------------------------------------------------------------


class Tables(NamedTuple):
    """The tables (folded names) that a text reads."""

    number: int
    names: tuple[str, ...]


class ViewMade(NamedTuple):
    """The file of a view is made; the shortest response time that can be promised."""

    number: int
    shortest_s: float


class AnswerRows(NamedTuple):
    """The first portion of an answer, encoded. If there are more, they are in the file `spool`."""

    number: int
    body: bytes
    spool: str | None


class SpooledPart(NamedTuple):
    """One more portion is in the file, at this place."""

    number: int
    offset: int
    size: int


class AnswerEnded(NamedTuple):
    """That was the last portion; what the rows are worth."""

    number: int
    worth: dict[str, Any]


class QueryRefused(NamedTuple):
    """A query failed: see `errors.to_wire`."""

    number: int
    code: str
    arguments: tuple[Any, ...]
    ran_s: float = 0.0


class Report(NamedTuple):
    """How things are, for people."""

    counters: dict[str, Any]


class Logged(NamedTuple):
    """What the process has to say to operators: it goes to the server's log."""

    level: int
    event: str
    fields: dict[str, str]


# -- from the process to a worker --------------------------------------------------------------------------


class ReadText(NamedTuple):
    """Read a text, in so much time; these are the tables it may name."""

    sql: str
    known: Mapping[str, Table]
    time_s: float


class FileOf(NamedTuple):
    """The file of a table or view. It may be read if it is current up to a number from `least` to `most`."""

    life: Life | ViewLife
    path: str
    least: int
    most: float


class LoadTable(NamedTuple):
    """Bring a table's file to a sequence number."""

    life: Life
    through: int


class LoadView(NamedTuple):
    """Propagate changes of tables (folded names) into a view, up to these sequence numbers; `recompute`: into its
    copies, from which its result is computed then. `since`: up to where each table has no changes that are pending.
    `deltas`: what is known of the costs of deltas, to be kept."""

    life: ViewLife
    through: dict[str, int]
    since: dict[str, int]
    recompute: bool = False
    deltas: str | None = None


class BuildView(NamedTuple):
    """Make the file of a view as of a sequence number, and measure what propagating takes."""

    life: ViewLife
    through: int


class Select(NamedTuple):
    """Run a SELECT. `plan`: the text as it was read, if it was."""

    sql: str
    plan: Plan | None
    parameters: tuple[Any, ...]
    files: tuple[FileOf, ...]
    ticket: bytes
    spool: str
    limits: QueryLimits


class DiskLimits(NamedTuple):
    """What files may take: one of a table or view; and what all of them leave to the log."""

    file_bytes: int
    reserve_bytes: int = 0


class QueryLimits(NamedTuple):
    """What one query may take."""

    time_s: float
    memory_bytes: int
    rows: int
    spool_bytes: int


# -- from a worker to the process --------------------------------------------------------------------------


class ReadPlan(NamedTuple):
    """A text was read."""

    plan: Plan


class Pinned(NamedTuple):
    """The query sees its tables as they are now, up to these numbers, whatever is loaded from now on."""

    loaded: tuple[int, ...]


class FileMoved(NamedTuple):
    """A file was loaded further than it may be for this question, or is `lost`; nothing was read."""

    lost: bool = False


class FirstRows(NamedTuple):
    """The first portion, encoded; whether there are more."""

    body: bytes
    more: bool


class NextRows(NamedTuple):
    """One more portion is in the spool file."""

    offset: int
    size: int


class Finished(NamedTuple):
    """The task is done. `spent`: the worker has taken memory that it may not get rid of, and should be replaced."""

    spent: bool = False
    result: Any = None


class Failure(NamedTuple):
    """The task failed."""

    code: str
    arguments: tuple[Any, ...]
    spent: bool = False


# -- how they travel ---------------------------------------------------------------------------------------


def message_bytes(message: object) -> bytes:
    """A message as it travels."""
    content = pickle.dumps(message, protocol=5)
    return _SIZE.pack(len(content)) + content


class SharedOut:
    """Messages as they travel to an end that remembers: a table or a plan is in the first message that has it."""

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[int, object]] = {}  # by identity, which is theirs while they are kept here

    def message_bytes(self, message: object) -> bytes:
        """A message as it travels."""
        content = io.BytesIO()
        content.write(bytes(_SIZE.size))
        pickler = pickle.Pickler(content, protocol=5)
        pickler.persistent_id = self._reference  # type: ignore[method-assign]  # as documented
        pickler.dump(message)
        content.seek(0)
        content.write(_SIZE.pack(len(content.getbuffer()) - _SIZE.size))
        return content.getvalue()

    def _reference(self, thing: object) -> int | tuple[int, bytes] | None:
        if type(thing) not in (Life, ViewLife, Plan):
            return None
        known = self._numbers.get(id(thing))
        if known is not None:
            return known[0]
        if len(self._numbers) >= MOST_SHARED:
            self._numbers.clear()
        number = len(self._numbers)
        self._numbers[id(thing)] = (number, thing)
        return number, pickle.dumps(thing, protocol=5)


class SharedIn:
    """The other end of `SharedOut`: what came is kept by its number. Number 0 with a thing: all before is forgotten."""

    def __init__(self) -> None:
        self._things: dict[int, object] = {}

    def message(self, content: bytearray) -> Any:
        """The message that travelled."""
        unpickler = pickle.Unpickler(io.BytesIO(content))
        unpickler.persistent_load = self._thing  # type: ignore[method-assign]  # as documented
        return unpickler.load()

    def _thing(self, reference: Any) -> object:
        if isinstance(reference, int):
            return self._things[reference]
        number, content = reference
        if number == 0:
            self._things.clear()
        self._things[number] = thing = pickle.loads(content)
        return thing


class BlockingEnd:
    """An end that waits for each message: a worker's. What is written goes out when it is flushed."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._shared = SharedIn()
        self._written: list[bytes] = []

    def read(self) -> Any:
        """The next message, and no byte behind it; EOFError if there is none any more."""
        return self._shared.message(self._exactly(_SIZE.unpack(self._exactly(_SIZE.size))[0]))

    def _exactly(self, size: int) -> bytearray:
        content = bytearray(size)
        left = memoryview(content)
        while left:
            came = self._connection.recv_into(left)
            if not came:
                raise EOFError
            left = left[came:]
        return content

    def write(self, message: object) -> None:
        """Send a message with the next flush: the other end wakes up once for all."""
        self._written.append(message_bytes(message))

    def flush(self) -> None:
        """Send what was written."""
        if self._written:
            written, self._written = b"".join(self._written), []
            self._connection.sendall(written)


class MessageEnd(asyncio.Protocol):
    """An end on an event loop: hands over each message as it comes, and says when there are no more."""

    def __init__(
        self,
        on_message: Callable[[Any], None],
        on_end: Callable[[], None],
        shared: SharedOut | None = None,
        on_quiet: Callable[[], None] | None = None,
    ) -> None:
        self._on_message, self._on_end, self._shared, self._on_quiet = on_message, on_end, shared, on_quiet
        self._came = bytearray()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def over(
        cls,
        connection: socket.socket,
        on_message: Callable[[Any], None],
        on_end: Callable[[], None],
        shared: SharedOut | None = None,
        on_quiet: Callable[[], None] | None = None,
    ) -> MessageEnd:
        """The end of a connected socket, which it owns from now on; with `shared`, the other one is a BlockingEnd.
        `on_quiet` is called when all messages that came together were handed over."""
        loop = asyncio.get_running_loop()
        _, end = await loop.create_connection(lambda: cls(on_message, on_end, shared, on_quiet), sock=connection)
        return end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._came += data
        start = 0
        while len(self._came) - start >= _SIZE.size:
            end = start + _SIZE.size + _SIZE.unpack_from(self._came, start)[0]
            if len(self._came) < end:
                break
            with memoryview(self._came) as view:
                message = pickle.loads(view[start + _SIZE.size : end])
            start = end
            self._on_message(message)
        if start:
            del self._came[:start]
            if self._on_quiet is not None:
                self._on_quiet()

    def connection_lost(self, error: Exception | None) -> None:
        self._on_end()

    def write(self, message: object) -> None:
        """Send a message; it goes nowhere if the other end is gone."""
        assert self._transport is not None
        if not self._transport.is_closing():
            as_bytes = message_bytes if self._shared is None else self._shared.message_bytes
            self._transport.write(as_bytes(message))

    def close(self) -> None:
        """Send nothing more. `on_end` is called soon."""
        if self._transport is not None:
            self._transport.abort()
