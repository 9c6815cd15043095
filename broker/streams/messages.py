"""What the server and the streams process tell each other; it travels as the warehouse's messages do.

    server <==(a socket pair)==> streams process

The process holds nothing that the server could not tell it again: with each batch of results it says how far the query
is (`reached`). So if it is killed, the server starts another one and opens the queries with what it was told last:
results go on behind the last ones that came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from hullcast.broker.log.history import Life
    from hullcast.broker.streams.batch import StreamMoment
    from hullcast.broker.streams.memory.bounded_join import BoundedJoinStatistics
    from hullcast.broker.streams.operators.windows import StreamWindow
    from hullcast.broker.streams.runner import PathStatistics
    from hullcast.network.wire.arrays import Ints
    from hullcast.network.wire.columns import Column

#: The end of a range: a code, or a text, which then is both ends.
RangeEnd = float | str


class SourceTerms(NamedTuple):
    """A stream or table that a query reads. `time`: the stream's time column, if it has one. `columns` and `boxes`:
    what subscribers want of it together, (low, high) for each of the columns in each box; no columns: everything."""

    life: Life
    time: int | None = None
    window: StreamWindow | None = None
    columns: tuple[int, ...] = ()
    boxes: tuple[tuple[tuple[RangeEnd, RangeEnd], ...], ...] = ()
    is_table: bool = False


class QueryTerms(NamedTuple):
    """A query: what it reads, which columns must be equal, pair by pair, and (side, column) of its results."""

    left: SourceTerms
    right: SourceTerms | None
    equal: tuple[tuple[int, int], ...]
    out: tuple[tuple[int, int], ...]
    memory: int | None = None
    memory_policy: str = ""


class TimeWord(NamedTuple):
    """A stream had reached a time when all updates up to `seq` were made: nothing behind that is earlier."""

    seq: int
    time: float


class QueryStart(NamedTuple):
    """Where a query begins: with what would come from `seq` on, had it been open all along. `bases`: for each of its
    streams the moment behind which its windows need it.

    `words`: for each of its streams how far its time had come by heartbeats, behind its base, in order.
    """

    seq: int
    bases: tuple[StreamMoment, ...]
    words: tuple[tuple[TimeWord, ...], ...] = ()
    after: StreamMoment | None = None  # of one that was open before: results up to there are known


# -- from the server to the process ------------------------------------------------------------------------


class BeginStreams(NamedTuple):
    """The first message: whose log, who decides, what queues may hold, and what joins may keep."""

    directory: str
    policy: str
    limit_bytes: int
    memory_bytes: int


class ReleasedTo(NamedTuple):
    """All up to `through` is on disk and acknowledged; by stream (folded name), heartbeats since the message before."""

    through: int
    words: dict[str, tuple[TimeWord, ...]]


class OpenQuery(NamedTuple):
    """Begin a query. Nothing behind `start.seq` may have been released before this message, except of one that was open
    before. `gives_way`: it fails rather than hold publishers up for long, since only subscriptions need it."""

    number: int
    terms: QueryTerms
    start: QueryStart
    gives_way: bool = False


class CloseQuery(NamedTuple):
    """Nobody wants its results any more."""

    number: int


class TookResults(NamedTuple):
    """Results up to this one (`StreamResults.batch_number`) were taken: more may come."""

    batch_number: int


class GiveWay(NamedTuple):
    """Publishers have been held up for some time: let queries fail that give way, for this reason (see
    `errors.to_wire`), if they take more than their share of time; with `full`, of what waits."""

    full: bool
    code: str
    arguments: tuple[Any, ...]


class AskPaths(NamedTuple):
    """How are the operators of a query?"""

    number: int


class SwitchOperatorPolicy(NamedTuple):
    """Another policy, by name."""

    policy: str


# -- from the process to the server ------------------------------------------------------------------------


class StreamResults(NamedTuple):
    """Results of a query in order, all up to `reached`: the tuples that made them (`at`, their sequence numbers), and
    columns as they travel. `batch_number` counts these messages."""

    batch_number: int
    number: int
    at: Ints
    columns: tuple[Column, ...]
    reached: StreamMoment


class QueryOpened(NamedTuple):
    """A query is open; its results follow."""

    number: int


class QueryFailed(NamedTuple):
    """A query could not be opened, or cannot go on: see `errors.to_wire`."""

    number: int
    code: str
    arguments: tuple[Any, ...]


class QueryPaths(NamedTuple):
    """The operators of a query, stream by stream; what its join kept and missed, if its memory is bounded; and the
    bytes that its windows and its table take."""

    number: int
    paths: tuple[PathStatistics, ...]
    memory: BoundedJoinStatistics | None = None
    kept_bytes: int = 0


class StreamsReport(NamedTuple):
    """How things are. `read`: everything up to there was taken from the log, by all queries; `full`: streams (folded
    names) of which no more should be published for now."""

    read: int
    full: frozenset[str]
    counters: dict[str, Any]
