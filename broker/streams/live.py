"""Stream queries as they run in the streams process: opened, fed from the log, stepped, answered.

Everything happens on the event loop of the streams process, some milliseconds at a time. The log is read no faster than
operators work: while queues hold too much, nothing more is read, unless all of them wait for what has not been read yet
(a window join whose other stream is silent). `StreamsReport.full` then names the streams of which too much waits.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hullcast.broker.streams.batch import BEGINNING, END, StreamMoment, empty, stretches
from hullcast.broker.streams.following import ATTEMPTS, LogFollower, StreamPast, StreamTime, no_changes
from hullcast.broker.streams.messages import (
    AskPaths,
    BeginStreams,
    CloseQuery,
    GiveWay,
    MadeTuples,
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
from hullcast.broker.streams.runner import OperatorFailed, Runner
from hullcast.broker.tables.interning import Interner
from hullcast.broker.tables.schema import ColumnType, fold
from hullcast.broker.tables.values import LONGEST_TEXT_BYTES
from hullcast.network.wire.errors import HullcastError, InvariantBroken, TooLarge, from_wire, to_wire
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hullcast.broker.log.history import Life
    from hullcast.broker.log.run import LogPosition
    from hullcast.broker.streams.batch import TupleBatch
    from hullcast.broker.streams.messages import QueryTerms, RangeEnd, SourceTerms, TimeWord
    from hullcast.broker.streams.operators.table_join import TableChanges
    from hullcast.broker.streams.plan import StreamQuery
    from hullcast.broker.streams.runner import Results
    from hullcast.broker.tables.schema import Table
    from hullcast.network.wire.arrays import Floats, Ints

log = logger(__name__)

#: Updates of the log that are read at once, and seconds that operators run before others have their turn.
STRETCH, SLICE_S = 8192, 0.005
#: Results sent to the server at once, about: all that one tuple made stay together.
SENT_AT_ONCE = 4096
#: Bytes of them, about, if texts are long; and of all that one tuple made, at most: they are one record of the log.
SENT_BYTES, MOST_BYTES = 4 << 20, 32 << 20
#: Bytes of results on their way to the server; when there are more, other results and operators wait.
UNTAKEN_BYTES = 8 << 20
#: Seconds between two looks at what operators take.
LOOK_S = 1.0


class MonotonicClock:
    """The clock of this machine; slices take what they take."""

    now = staticmethod(time.monotonic)  # not a function that calls it: it is asked several times a slice

    def pass_by(self, cost_s: float) -> None:
        """Nothing: it has passed by."""


#: Heartbeats of a stream (folded name).
StreamWords: TypeAlias = "tuple[str, tuple[TimeWord, ...]]"


@dataclass(eq=False, slots=True)
class _LiveQuery:
    """A query that is open: its number here, what it reads, and the stream of its results."""

    running: int
    terms: QueryTerms
    made: Table
    after: StreamMoment  # its results are behind this
    attached: bool = True  # it has all that others have; else its windows are being filled
    gives_way: bool = False  # to publishers


@dataclass(eq=False, slots=True)
class _Followed:
    """A stream or table that is read, by how many queries; of a stream its time, and what was read ahead."""

    life: Life
    users: int = 0
    time: StreamTime | None = None
    past: StreamPast | None = None
    reading: Iterator[None] | None = None  # of that, under way
    start: LogPosition | None = None  # of the next stretch of a table


@dataclass(eq=False, slots=True)
class _Filling:
    """A query whose windows and table are being filled, some of it at a time."""

    message: OpenQuery
    streams: tuple[SourceTerms, ...]
    times: list[StreamTime]
    pasts: list[StreamPast]
    work: Iterator[None]
    later: list[StreamWords]  # what was said of its streams since the server opened it
    attempts: int = 1
    heard: list[StreamWords] = field(default_factory=list)  # of the later ones
    at: int = 0  # up to there its streams were read

    @property
    def reached(self) -> int:
        """Up to where it has read what makes results: what is before that only fills windows."""
        start = self.message.start
        return max(self.at, start.seq if start.after is None else start.after.seq)

    def hear(self) -> None:
        """Take in what was said since; a query that begins now begins before that."""
        for name, words in self.later:
            for stream, clock in zip(self.streams, self.times, strict=True):
                if fold(stream.life.table.name) == name:
                    clock.heard(words)
        self.heard += self.later
        self.later.clear()


class LiveStreams:
    """The runner, fed from the log, as the server says."""

    def __init__(self, begin: BeginStreams, say: Callable[[object], None]) -> None:
        self._say = say
        self._interner = Interner()
        self._follower = LogFollower(Path(begin.directory), self._interner)
        self._runner = Runner(
            OPERATOR_POLICIES[begin.policy](),
            MonotonicClock(),
            limit_bytes=begin.limit_bytes,
            memory=KeptMemory(begin.memory_bytes),
        )
        self._followed: dict[str, _Followed] = {}
        self._queries: dict[int, _LiveQuery] = {}
        self._waiting: list[OpenQuery] = []  # to be opened when all up to their start was read
        self._later: dict[int, list[StreamWords]] = {}  # heartbeats that they have not heard of, by number
        self._filling: deque[_Filling] = deque()  # those before that are being opened
        self._released = self._read = 0
        self._sent = 0
        self._unsent: deque[tuple[int, TupleBatch]] = deque()  # results that wait for others to be taken
        self._untaken: list[tuple[int, int]] = []  # (batch number, bytes) of results on their way
        self._untaken_bytes = 0
        self._looked_at = 0.0
        self._before: dict[int, float] = {}  # what operators had taken a second or two ago
        self._lately: dict[int, float] = {}  # the same when that was looked at last

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
            case GiveWay(full, code, arguments):
                self._give_way(full, from_wire(code, arguments))
            case AskPaths(number):
                if number in self._queries:
                    running = self._queries[number].running
                    memory, kept = self._runner.bounded(running), self._runner.kept(running)
                    self._say(QueryPaths(number, self._runner.paths(running), memory, kept))
            case SwitchOperatorPolicy(policy):
                self._runner.switch(OPERATOR_POLICIES[policy]())
            case _:
                raise TypeError(f"the server sent a {type(message).__name__}")

    def _heard(self, name: str, words: tuple[TimeWord, ...]) -> None:
        """Heartbeats of a stream: a window join may have waited for them alone; one that is not open yet will."""
        for message in self._waiting:
            self._later.setdefault(message.number, []).append((name, words))
        for filling in self._filling:
            filling.later.append((name, words))
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
            if not self._followed and not self._filling:
                self._read = start
            if start <= self._read:
                self._waiting.remove(message)
                try:
                    self._open(message)
                except OperatorFailed as failed:
                    self._operator_failed(failed)  # if it was another's, whose operators are shared
                    self._say(QueryFailed(message.number, *to_wire(_worded(failed.error))))
                except Exception as error:  # noqa: BLE001  (others go on)
                    self._fail(message.number, error)

    def _fail(self, number: int, error: Exception) -> None:
        """A query cannot be opened, or cannot go on."""
        self._close(number)
        self._say(QueryFailed(number, *to_wire(_worded(error))))

    def _open(self, message: OpenQuery) -> None:
        number, terms, made, start, gives_way = message
        query = query_of(terms, self._code)
        shared = self._runner.share(query) if start.after is None and start.seq == self._read else None
        if shared is not None:
            self._send()  # what the others get and this one does not
            self._later.pop(number, None)  # the others have heard of it
            after = self._runner.reached(shared)
            self._queries[number] = _LiveQuery(shared, terms, made, after, gives_way=gives_way)
            self._follow_sources(terms)
            self._say(QueryOpened(number))
        else:
            self._begin(message, query, self._later.pop(number, []))

    def _begin(self, message: OpenQuery, query: StreamQuery, later: list[StreamWords], attempts: int = 1) -> None:
        """Open a query whose windows and table are empty, and fill them bit by bit."""
        number, terms, made, start, gives_way = message
        after = END if start.after is None else start.after  # END: until `skip`
        running = self._runner.open(query, after, attached=False)
        live = _LiveQuery(running, terms, made, BEGINNING, attached=False, gives_way=gives_way)
        self._queries[number] = live
        streams = terms.streams
        times = [StreamTime(stream.time, base.time) for stream, base in zip(streams, start.bases, strict=True)]
        for clock, words in zip(times, start.words, strict=False):
            clock.heard(words)
        pasts = [StreamPast(self._follower, one.life, base.seq) for one, base in zip(streams, start.bases, strict=True)]
        filling = _Filling(message, streams, times, pasts, iter(()), later, attempts)
        filling.work = self._fill(filling, running)
        self._filling.append(filling)

    def _fill(self, filling: _Filling, running: int) -> Iterator[None]:
        """What a query needs from before: its table, then its streams, up to where all others are. It stops whenever
        operators have something to do, or some of a file was read: others have their turns."""
        _, terms, _, start, _ = filling.message
        table, table_at, table_from = terms.right, start.bases[0].seq, None
        if table is not None and table.is_table:
            nothing = empty(len(terms.left.life.table.columns), start.bases[0], time.monotonic())
            for part in self._rows(table.life, start.bases[0].seq):
                self._runner.change_at(running, part)
                self._runner.arrive_at(running, 0, nothing)
                yield from self._worked(running)
        at, begun = min(start.seq - 1, *(base.seq for base in start.bases)), start.after is not None
        while at < max(self._read, start.seq) or filling.later:
            filling.at = at
            if begun:
                filling.hear()
            if self._interner.wants_sweep:
                self._sweep()
            at = min(at + STRETCH, start.seq if at < start.seq else max(at, self._read))
            if table is not None and table.is_table and table_at < at:
                changes, table_from = self._follower.stretch(table.life, table_at, at, table_from)
                self._runner.change_at(running, changes)
                table_at = at
            for leaf, (past, clock) in enumerate(zip(filling.pasts, filling.times, strict=True)):
                yield from past.reading(at, lambda: self._released)
                self._runner.arrive_at(running, leaf, clock.batch(past.take(at), at, time.monotonic()))
            yield from self._worked(running)
            if not begun and at == start.seq:
                self._runner.skip(running)
                begun = True

    def _rows(self, life: Life, seq: int) -> Iterator[TableChanges]:
        """What makes a table as it is at `seq`, from nothing, some rows at a time."""
        at = life.created
        for moment, rows in self._follower.stored(life, seq):
            at = moment
            yield rows
        position: LogPosition | None = None
        while at < seq:
            end = min(at + STRETCH, seq)
            changes, position = self._follower.stretch(life, at, end, position)
            at = end
            yield changes

    def _worked(self, running: int) -> Iterator[None]:
        """Wait until the operators of a query have done all they can."""
        yield
        while self._runner.can_run(running):
            yield

    def _fill_some(self) -> None:
        """Go on with one of the queries that are being opened."""
        filling = self._filling[0]
        self._filling.rotate(-1)
        number = filling.message.number
        try:
            for _ in filling.work:
                return
            self._filling.remove(filling)
            self._attach(filling)
        except FileNotFoundError:
            self._filling.remove(filling)
            self._fill_again(filling)
        except Exception as error:  # noqa: BLE001  (others go on)
            self._fail(number, error)

    def _fill_again(self, filling: _Filling) -> None:
        """Files were cut under our hands: begin again with those there are now."""
        number, terms, _, start, _ = filling.message
        live = self._queries.pop(number)
        self._runner.close(live.running)
        try:
            if filling.attempts == ATTEMPTS:
                raise self._follower.gone((terms.right or terms.left).life, start.bases[0].seq)
            later = [*filling.heard, *filling.later]
            self._begin(filling.message, query_of(terms, self._code), later, filling.attempts + 1)
        except Exception as error:  # noqa: BLE001  (others go on)
            self._fail(number, error)

    def _attach(self, filling: _Filling) -> None:
        """A query has all that others have: from now on it goes with them."""
        number, terms, *_ = filling.message
        live = self._queries[number]
        for stream, clock, past in zip(filling.streams, filling.times, filling.pasts, strict=True):
            name = fold(stream.life.table.name)
            if name not in self._followed:
                self._followed[name] = _Followed(stream.life, 0, clock, past)
        live.attached = True
        self._runner.attach(live.running)
        self._follow_sources(terms)
        self._say(QueryOpened(number))

    def _follow_sources(self, terms: QueryTerms) -> None:
        for source in terms.sources:
            self._followed.setdefault(fold(source.life.table.name), _Followed(source.life)).users += 1

    def _code(self, end: RangeEnd) -> float:
        return self._interner.code(end) if isinstance(end, str) else float(end)

    def _close(self, number: int) -> None:
        self._waiting = [message for message in self._waiting if message.number != number]
        self._later.pop(number, None)
        query = self._queries.pop(number, None)
        if query is None:
            return
        self._runner.close(query.running)
        self._filling = deque(filling for filling in self._filling if filling.message.number != number)
        for source in query.terms.sources if query.attached else ():
            name = fold(source.life.table.name)
            self._followed[name].users -= 1
            if not self._followed[name].users:
                del self._followed[name]

    # -- a turn ------------------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Read and run for some milliseconds; whether there is more to do at once."""
        began = time.monotonic()
        self._send()  # what came of filling windows, of which the log may have been the last for a long time
        while True:
            may_run = self._may_send and not self._unsent
            if self._filling and may_run:
                self._fill_some()
            blocked = self._runner.idle
            if self._read < self._released and (blocked or self._runner.held_bytes <= self._runner.limit_bytes):
                self._read_on()
            elif not may_run or (blocked and not self._filling):
                break
            try:
                while may_run and self._runner.step() and time.monotonic() - began < SLICE_S:
                    pass
            except OperatorFailed as failed:
                self._operator_failed(failed)
            self._send()
            if time.monotonic() - began >= SLICE_S:
                break
        may_run = self._may_send and not self._unsent
        may_read = self._runner.idle or self._runner.held_bytes <= self._runner.limit_bytes
        busy = bool(self._filling) or not self._runner.idle
        return (may_read and self._read < self._released) or (may_run and busy)

    def _read_on(self) -> None:
        """The next stretch of the log; or, if it was cut, some of what is in a checkpoint instead."""
        if self._interner.wants_sweep:
            self._sweep()
        starts = [message.start.seq for message in self._waiting if message.start.seq > self._read]
        through = min([self._released, *starts, *([self._read + STRETCH] if self._followed else [])])
        for name, one in list(self._followed.items()):
            try:
                if not self._is_reached(one, through):
                    return
            except HullcastError as error:
                self._give_up(name, error)
        found: dict[str, TableChanges] = {}
        for name, one in list(self._followed.items()):
            if one.past is None:
                try:
                    found[name], one.start = self._follower.stretch(one.life, self._read, through, one.start)
                except FileNotFoundError:
                    self._give_up(name, self._follower.gone(one.life, self._read))
                except HullcastError as error:
                    self._give_up(name, error)
        for name in found.keys() & self._followed:
            self._runner.change(name, found[name])
        now = time.monotonic()
        for name, one in self._followed.items():
            if one.past is not None and one.time is not None:
                self._runner.arrive(name, one.time.batch(one.past.take(through), through, now))
        self._read = through
        self._open_due()

    def _is_reached(self, one: _Followed, through: int) -> bool:
        """Read a stream up to there; False if others should have their turn before it is: a checkpoint is read."""
        while one.past is not None and one.past.reached < through:
            one.reading = one.reading or one.past.reading(through, lambda: self._released)
            for _ in one.reading:
                return False
            one.reading = None
        return True

    def _give_up(self, name: str, error: HullcastError) -> None:
        """A source cannot be read any more: the queries that read it fail, and others go on."""
        for number, query in list(self._queries.items()):
            if query.attached and any(fold(source.life.table.name) == name for source in query.terms.sources):
                self._close(number)
                self._say(QueryFailed(number, *to_wire(error)))

    def _operator_failed(self, failed: OperatorFailed) -> None:
        """An operator cannot go on: the queries that it works for fail, and others go on."""
        for number in [number for number, query in self._queries.items() if query.running == failed.query]:
            self._close(number)
            self._say(QueryFailed(number, *to_wire(_worded(failed.error))))

    def _give_way(self, full: bool, error: HullcastError) -> None:
        """A subscriber must not stop publishers: the queries fail that only subscriptions need, if they hold, or have
        taken lately, more than their share."""
        if full:
            parts = self._runner.queued() if self._runner.full() else {}
        else:
            parts = {one: taken - self._before.get(one, 0.0) for one, taken in self._runner.seconds().items()}
        share = sum(parts.values()) / max(1, len(parts))
        greedy = {running for running, part in parts.items() if part >= share > 0}
        greedy -= {query.running for query in self._queries.values() if not query.gives_way}
        for number in [number for number, query in self._queries.items() if query.running in greedy]:
            self._fail(number, error)

    @property
    def _read_by_all(self) -> int:
        """Up to where all queries have read the log, those that are being opened, too."""
        return min([self._read, *(filling.reached for filling in self._filling)])

    def _sweep(self) -> None:
        read = [one.past for one in self._followed.values() if one.past is not None]
        pasts = [cells for past in chain(read, *(one.pasts for one in self._filling)) for cells in past.held()]
        unsent = (batch.cells for _, batch in self._unsent)
        held = [np.zeros(0), *(cells[np.isfinite(cells)] for cells in (*self._runner.held(), *pasts, *unsent))]
        self._interner.sweep(np.concatenate(held))

    def _send(self) -> None:
        for results in self._runner.take():
            for number, query in list(self._queries.items()):
                if query.running == results.query:
                    try:
                        self._queue_results(number, query, results)
                    except TooLarge as error:
                        self._fail(number, error)
        while self._unsent and self._may_send:
            number, batch = self._unsent.popleft()
            if number in self._queries:
                try:
                    self._send_some(number, self._queries[number], batch)
                except TooLarge as error:  # no record of the log can hold it
                    self._fail(number, error)

    @property
    def _may_send(self) -> bool:
        return self._untaken_bytes <= UNTAKEN_BYTES

    def _queue_results(self, number: int, query: _LiveQuery, results: Results) -> None:
        batch = results.batch
        if len(batch.seqs) and query.after != BEGINNING:
            wanted = (batch.times > query.after.time) | (
                (batch.times == query.after.time) & (batch.seqs > query.after.seq)
            )
            batch = batch.keep(wanted, ghosts=False)
        *before, rest = stretches(batch.seqs, self._at_once(query, batch)) or [slice(0, 0)]
        for rows in before:
            reached = StreamMoment(float(batch.times[rows.stop - 1]), int(batch.seqs[rows.stop - 1]))
            self._unsent.append((number, batch.some(rows, reached)))
        self._unsent.append((number, batch.some(rest, batch.reached)))

    def _at_once(self, query: _LiveQuery, batch: TupleBatch) -> int:
        """How many results to send at once: fewer if texts are long. TooLarge if one tuple's are more than a record
        should hold."""
        kinds = [column.type for column in query.made.columns]
        texts = batch.cells[[place for place in range(len(batch.cells)) if kinds[place] is ColumnType.TEXT]]
        if texts.size * LONGEST_TEXT_BYTES <= SENT_BYTES:
            return SENT_AT_ONCE
        longest = len(texts) * max(map(len, self._distinct(texts)), default=0)
        if longest * len(batch.seqs) <= SENT_BYTES:
            return SENT_AT_ONCE
        most = int(np.unique(batch.seqs, return_counts=True)[1].max())
        if most * longest > MOST_BYTES:
            self._check_text_bytes(texts, batch.seqs)
        return max(1, min(SENT_AT_ONCE, SENT_BYTES // longest))

    def _check_text_bytes(self, texts: Floats, at: Ints) -> None:
        """TooLarge if the texts of one tuple's results, each counted once, are too long together."""
        for rows in stretches(at, 1):
            size = sum(len(text) for column in texts[:, rows] for text in self._distinct(column))
            if size > MOST_BYTES:
                what = "bytes of texts in the results of one tuple (use smaller windows, or select fewer columns)"
                raise TooLarge(what, size, MOST_BYTES)

    def _distinct(self, codes: Floats) -> list[str]:
        texts: list[str] = self._interner.texts.decode(np.unique(codes[np.isfinite(codes)])).tolist()
        return texts

    def _send_some(self, number: int, query: _LiveQuery, batch: TupleBatch) -> None:
        made = MadeTuples.of(query.made, batch, self._interner) if len(batch.seqs) else None
        size = 0 if made is None else made.size_bytes
        self._sent += 1
        self._untaken.append((self._sent, size))
        self._untaken_bytes += size
        self._say(StreamResults(self._sent, number, made, batch.reached))

    # -- for people --------------------------------------------------------------------------------------------

    def report(self) -> StreamsReport:
        """How things are."""
        if time.monotonic() >= self._looked_at + LOOK_S:
            self._looked_at = time.monotonic()
            self._before, self._lately = self._lately, self._runner.seconds()
        counts = self._runner.statistics()
        return StreamsReport(
            self._read_by_all,
            frozenset(self._runner.full()),
            {
                **counts._asdict(),
                "untaken_bytes": self._untaken_bytes,
                "texts": len(self._interner),
                "kept_bytes": self._runner.memory.used_bytes,
            },
        )


def _worded(error: Exception) -> HullcastError:
    """An error as the server can be told of it."""
    return error if isinstance(error, HullcastError) else InvariantBroken(f"{type(error).__name__}: {error}")
