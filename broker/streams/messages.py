"""What the server and the streams process tell each other; it travels as the warehouse's messages do.

    server <==(a socket pair)==> streams process

The process holds nothing that the server could not tell it again: with each batch of results it says how far the query
is (`reached`). So if it is killed, the server starts another one and opens the queries with what it was told last:
results go on behind the last ones that came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hullcast.broker.log.payload import encode_tuples
from hullcast.broker.tables.travel import CodedRows, valued

if TYPE_CHECKING:
    from hullcast.broker.log.history import Life
    from hullcast.broker.streams.batch import StreamMoment, TupleBatch
    from hullcast.broker.streams.memory.bounded_join import BoundedJoinStatistics
    from hullcast.broker.streams.operators.windows import StreamWindow
    from hullcast.broker.streams.runner import PathStatistics
    from hullcast.broker.tables.interning import Interner
    from hullcast.broker.tables.schema import Table

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

    @property
    def sources(self) -> tuple[SourceTerms, ...]:
        """Both sides, or the only one."""
        return (self.left,) if self.right is None else (self.left, self.right)

    @property
    def streams(self) -> tuple[SourceTerms, ...]:
        """Those that are streams."""
        return tuple(source for source in self.sources if not source.is_table)

    @property
    def timed(self) -> bool:
        """Whether it consumes in the order of times: all its streams have some."""
        return all(stream.time is not None for stream in self.streams)


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
    """Begin a query, whose results are tuples of the stream `made`. Nothing behind `start.seq` may have been released
    before this message, except of one that was open before. `gives_way`: it fails rather than hold publishers up for
    long, since only subscriptions need it."""

    number: int
    terms: QueryTerms
    made: Table
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


class MadeTuples(NamedTuple):
    """Results as tuples of their stream, coded once: as the log will have them but for their positions
    (`payload.positioned`), and for the server's engine."""

    record: bytes
    rows: CodedRows

    @classmethod
    def of(cls, stream: Table, results: TupleBatch, texts: Interner) -> MadeTuples:
        """Results of a query, in codes of the process that made them."""
        rows = len(results.seqs)
        cells = np.empty((len(stream.columns), rows))
        cells[:-2], cells[-2], cells[-1] = results.cells, results.seqs, 0.0  # AT, and POSITION, which the server gives
        columns = valued(stream, cells, texts)
        return cls(encode_tuples(stream.name, dict(columns), rows), CodedRows.of(cells, columns.values()))

    @property
    def tuples(self) -> int:
        """How many there are."""
        return int(self.rows.cells.shape[1])

    @property
    def size_bytes(self) -> int:
        """About what they take."""
        return len(self.record) + self.rows.size_bytes


class StreamResults(NamedTuple):
    """Results of a query in order, all up to `reached`; None if there are none. `batch_number` counts these
    messages."""

    batch_number: int
    number: int
    made: MadeTuples | None
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
