"""Stream queries as they run beside the server: opened, fed from the log, stepped, and their results sent.

Everything happens on the event loop of the streams process, some milliseconds at a time. The log is read no faster than
operators work: while queues hold too much, nothing more is read, unless all of them wait for what has not been read yet
(a window join whose other stream is silent). `StreamsReport.full` then names the streams of which too much waits.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.streams.batch import BEGINNING, END, StreamMoment, stretches
from hullcast.broker.streams.following import LogFollower, StreamTime, no_changes
from hullcast.broker.streams.messages import (
    AskPaths,
    BeginStreams,
    CloseQuery,
    OpenQuery,
    QueryFailed,
    QueryOpened,
    QueryPaths,
    ReleasedTo,
    StreamResults,
    StreamsReport,
    SwitchOperatorPolicy,
    TookResults,
)
from hullcast.broker.streams.operators.operator import KeptMemory
from hullcast.broker.streams.plan import query_of
from hullcast.broker.streams.policies import OPERATOR_POLICIES
from hullcast.broker.streams.runner import OperatorFailed, Resume, Runner
from hullcast.broker.tables.interning import Interner
from hullcast.broker.tables.schema import ColumnType, fold
from hullcast.broker.tables.travel import travelling
from hullcast.network.wire.errors import HistoryGone, HullcastError, InvariantBroken, to_wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from hullcast.broker.log.history import Life
    from hullcast.broker.streams.batch import TupleBatch
    from hullcast.broker.streams.messages import QueryTerms, RangeEnd, TimeWord
    from hullcast.broker.streams.operators.table_join import TableChanges
    from hullcast.broker.streams.runner import Results

log = logging.getLogger(__name__)

#: Updates of the log that are read at once, and seconds that operators run before others have their turn.
STRETCH, SLICE_S = 8192, 0.005
#: Results sent to the server at once, about: all that one tuple made stay together.
SENT_AT_ONCE = 4096
#: Bytes of results on their way to the server; when there are more, operators wait.
UNTAKEN_BYTES = 8 << 20


class MonotonicClock:
    """The clock of this machine; slices take what they take."""

    def now(self) -> float:
        return time.monotonic()

    def pass_by(self, cost_s: float) -> None:
        """Nothing: it has passed by."""


@dataclass(eq=False, slots=True)
class _LiveQuery:
    """A query that is open: its number here, what it reads, and what its results are."""

    running: int
    terms: QueryTerms
    kinds: tuple[ColumnType, ...]
    after: StreamMoment  # its results are behind this
    bases: tuple[StreamMoment, ...]  # with these it can be opened again, to go on from what was sent last


@dataclass(eq=False, slots=True)
class _Followed:
    """A stream or table that is read, by how many queries; of a stream its time."""

    life: Life
    users: int = 0
    time: StreamTime | None = None


class LiveStreams:
    """The runner, fed from the log, as the server says."""

    def __init__(self, begin: BeginStreams, say: Callable[[object], None]) -> None:
        self.say = say
        self._interner = Interner()
        self._follower = LogFollower(Path(begin.directory), self._interner)
        self._runner = Runner(
            OPERATOR_POLICIES[begin.policy](),
            MonotonicClock(),
            limit_bytes=begin.limit_bytes,
            memory=KeptMemory(begin.memory_bytes),
        )
        self._policy = begin.policy
        self._followed: dict[str, _Followed] = {}
        self._queries: dict[int, _LiveQuery] = {}
        self._waiting: list[OpenQuery] = []  # to be opened when all up to their start was read
        self._released = self._read = 0
        self._sent = 0
        self._untaken: list[tuple[int, int]] = []  # (batch number, bytes) of results on their way
        self._untaken_bytes = 0

    # -- what the server says ----------------------------------------------------------------------------------

    def on_message(self, message: object) -> None:
        """The server says something."""
        match message:
            case ReleasedTo(through, words):
                self._released = max(self._released, through)
                for name, some in words.items():
                    self._heard(name, some)
                self._open_due()
            case OpenQuery():
                self._waiting.append(message)
                self._open_due()
            case CloseQuery(number):
                self._close(number)
            case TookResults(batch_number):
                self._took(batch_number)
            case AskPaths(number):
                if number in self._queries:
                    running = self._queries[number].running
                    memory, kept = self._runner.bounded(running), self._runner.kept(running)
                    self.say(QueryPaths(number, self._runner.paths(running), memory, kept))
            case SwitchOperatorPolicy(policy):
                self._runner.switch(OPERATOR_POLICIES[policy]())
                self._policy = policy
            case _:
                raise TypeError(f"the server sent a {type(message).__name__}")

    def _heard(self, name: str, words: tuple[TimeWord, ...]) -> None:
        """Heartbeats of a stream: a window join may have waited for them alone; one that is not open yet will."""
        self._waiting = [_with_words(message, name, words) for message in self._waiting]
        followed = self._followed.get(name)
        if followed is not None and followed.time is not None:
            followed.time.heard(words)
            nothing = no_changes(followed.life)
            self._runner.arrive(name, followed.time.batch(nothing, self._read, time.monotonic()))

    def _took(self, batch_number: int) -> None:
        while self._untaken and self._untaken[0][0] <= batch_number:
            self._untaken_bytes -= self._untaken.pop(0)[1]

    # -- queries -----------------------------------------------------------------------------------------------

    def _open_due(self) -> None:
        """Open what can be opened: nothing was read yet, or all up to its start."""
        for message in list(self._waiting):
            start = message.start.seq
            if start > self._released:
                continue
            if not self._followed:
                self._read = start
            if start <= self._read:
                self._waiting.remove(message)
                try:
                    self._open(message)
                except OperatorFailed as failed:
                    self._operator_failed(failed)  # if it was another's, whose operators are shared
                    self.say(QueryFailed(message.number, *to_wire(_worded(failed.error))))
                except Exception as error:  # noqa: BLE001  (others go on)
                    self.say(QueryFailed(message.number, *to_wire(_worded(error))))

    def _open(self, message: OpenQuery) -> None:
        number, terms, start = message
        query = query_of(terms, self._code)
        sources = [terms.left] if terms.right is None else [terms.left, terms.right]
        types = [[column.type for column in source.life.table.columns] for source in sources]
        kinds = tuple(types[side][column] for side, column in terms.out)
        shared = self._runner.share(query) if start.after is None and start.seq == self._read else None
        if shared is not None:
            self._send()  # what the others get and this one does not
            self._queries[number] = _LiveQuery(shared, terms, kinds, *self._runner.resume(shared))
        else:
            resume = Resume(END if start.after is None else start.after, start.bases)  # END: until `skip`
            running = self._runner.open(query, resume)
            try:
                self._fill(running, message)
            except BaseException:
                self._runner.close(running)
                raise
            self._queries[number] = _LiveQuery(running, terms, kinds, BEGINNING, start.bases)
        for source in sources:
            name = fold(source.life.table.name)
            self._followed.setdefault(name, _Followed(source.life)).users += 1
        self.say(QueryOpened(number))

    def _fill(self, running: int, message: OpenQuery) -> None:
        """What a query needs from before: its table, then its streams, up to where all others are."""
        _, terms, start = message
        now = time.monotonic()
        after = [base.seq for base in start.bases]
        streams = [terms.left] if terms.right is None or terms.right.is_table else [terms.left, terms.right]
        times = [StreamTime(stream.time, base.time) for stream, base in zip(streams, start.bases, strict=True)]
        for clock, words in zip(times, start.words, strict=False):
            clock.heard(words)
        if terms.right is not None and terms.right.is_table:
            self._runner.change_at(running, self._follower.rows(terms.right.life, start.bases[0].seq))
            since = self._follower.changes(terms.right.life, start.bases[0].seq, self._read)
            self._runner.change_at(running, since)
        for end in sorted({start.seq, self._read}):
            for leaf, (stream, clock) in enumerate(zip(streams, times, strict=True)):
                tuples = self._follower.tuples(stream.life, after[leaf], end, self._released)
                self._runner.arrive_at(running, leaf, clock.batch(tuples, end, now))
                after[leaf] = end
            self._runner.drain(running)
            if start.after is None and end == start.seq:
                self._runner.skip(running)
        for stream, clock in zip(streams, times, strict=True):
            name = fold(stream.life.table.name)
            if name not in self._followed:
                self._followed[name] = _Followed(stream.life, 0, clock)

    def _code(self, end: RangeEnd) -> float:
        return self._interner.code(end) if isinstance(end, str) else float(end)

    def _close(self, number: int) -> None:
        self._waiting = [message for message in self._waiting if message.number != number]
        query = self._queries.pop(number, None)
        if query is None:
            return
        self._runner.close(query.running)
        for source in (query.terms.left, query.terms.right):
            if source is not None:
                name = fold(source.life.table.name)
                self._followed[name].users -= 1
                if not self._followed[name].users:
                    del self._followed[name]
                    self._follower.forget(name)

    # -- a turn ------------------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Read and run for some milliseconds; whether there is more to do at once."""
        began = time.monotonic()
        self._send()  # what came of filling windows, of which the log may have been the last for a long time
        while True:
            may_run = self._untaken_bytes <= UNTAKEN_BYTES
            blocked = self._runner.idle
            if self._read < self._released and (blocked or self._runner.held_bytes <= self._runner.limit_bytes):
                self._read_on()
            elif not may_run or blocked:
                break
            try:
                while may_run and self._runner.step() and time.monotonic() - began < SLICE_S:
                    pass
            except OperatorFailed as failed:
                self._operator_failed(failed)
            self._send()
            if time.monotonic() - began >= SLICE_S:
                break
        may_run = self._untaken_bytes <= UNTAKEN_BYTES
        may_read = self._runner.idle or self._runner.held_bytes <= self._runner.limit_bytes
        return (may_read and self._read < self._released) or (may_run and not self._runner.idle)

    def _read_on(self) -> None:
        """The next stretch of the log."""
        if self._interner.wants_sweep:
            self._sweep()
        starts = [message.start.seq for message in self._waiting if message.start.seq > self._read]
        through = min([self._released, *starts, *([self._read + STRETCH] if self._followed else [])])
        now = time.monotonic()
        found: dict[str, TableChanges] = {}
        for name, one in list(self._followed.items()):
            try:
                found[name] = self._follow(one, through)
            except HullcastError as error:
                self._give_up(name, error)
        for name, one in self._followed.items():
            if one.time is None:
                self._runner.change(name, found[name])
        for name, one in self._followed.items():
            if one.time is not None:
                self._runner.arrive(name, one.time.batch(found[name], through, now))
        self._read = through
        self._open_due()

    def _follow(self, one: _Followed, through: int) -> TableChanges:
        """What a source brings; of a stream, if the log was cut before it was read, what is retained of it."""
        try:
            return self._follower.follow(one.life, self._read, through)
        except HistoryGone:
            if one.time is None:
                raise
            return self._follower.tuples(one.life, self._read, through, self._released)

    def _give_up(self, name: str, error: HullcastError) -> None:
        """A source cannot be read any more: the queries that read it fail, and others go on."""
        for number, query in list(self._queries.items()):
            sources = [source for source in (query.terms.left, query.terms.right) if source is not None]
            if any(fold(source.life.table.name) == name for source in sources):
                self._close(number)
                self.say(QueryFailed(number, *to_wire(error)))

    def _operator_failed(self, failed: OperatorFailed) -> None:
        """An operator cannot go on: the queries that it works for fail, and others go on."""
        for number in [number for number, query in self._queries.items() if query.running == failed.query]:
            self._close(number)
            self.say(QueryFailed(number, *to_wire(_worded(failed.error))))

    def _sweep(self) -> None:
        held = [np.zeros(0), *(cells[np.isfinite(cells)] for cells in self._runner.held())]
        self._interner.sweep(np.concatenate(held))

    def _send(self) -> None:
        for results in self._runner.take():
            for number, query in self._queries.items():
                if query.running == results.query:
                    self._send_to(number, query, results)

    def _send_to(self, number: int, query: _LiveQuery, results: Results) -> None:
        batch = results.batch
        if len(batch.seqs) and query.after != BEGINNING:
            wanted = (batch.times > query.after.time) | (
                (batch.times == query.after.time) & (batch.seqs > query.after.seq)
            )
            batch = batch.keep(wanted, ghosts=False)
        *before, rest = stretches(batch.seqs, SENT_AT_ONCE) or [slice(0, 0)]
        for rows in before:
            reached = StreamMoment(float(batch.times[rows.stop - 1]), int(batch.seqs[rows.stop - 1]))
            self._send_some(number, query, batch.some(rows, reached), Resume(reached, query.bases))
        self._send_some(number, query, batch.some(rest, batch.reached), results.resume)
        query.bases = results.resume.bases

    def _send_some(self, number: int, query: _LiveQuery, batch: TupleBatch, resume: Resume) -> None:
        columns = tuple(
            travelling(kind, cells, self._interner) for kind, cells in zip(query.kinds, batch.cells, strict=True)
        )
        self._sent += 1
        self._untaken.append((self._sent, batch.size_bytes))
        self._untaken_bytes += batch.size_bytes
        self.say(StreamResults(self._sent, number, batch.seqs, batch.times, columns, batch.reached, resume))

    # -- for people --------------------------------------------------------------------------------------------

    def report(self) -> StreamsReport:
        """How things are."""
        counts = self._runner.statistics()
        return StreamsReport(
            self._read,
            frozenset(self._runner.full()),
            {
                "policy": self._policy,
                **counts._asdict(),
                "untaken_bytes": self._untaken_bytes,
                "texts": len(self._interner),
                "kept_bytes": self._runner.memory.used_bytes,
            },
        )


def _with_words(message: OpenQuery, name: str, words: tuple[TimeWord, ...]) -> OpenQuery:
    """A query that is to be opened, with what its stream's publisher said meanwhile."""
    number, terms, start = message
    streams = [terms.left] if terms.right is None or terms.right.is_table else [terms.left, terms.right]
    known = start.words or ((),) * len(streams)
    more = tuple(
        (*before, *words) if fold(stream.life.table.name) == name else before
        for stream, before in zip(streams, known, strict=True)
    )
    return OpenQuery(number, terms, start._replace(words=more))


def _worded(error: Exception) -> HullcastError:
    """An error as the server can be told of it."""
    return error if isinstance(error, HullcastError) else InvariantBroken(f"{type(error).__name__}: {error}")
