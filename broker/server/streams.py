"""The streams process as the server sees it: started while there are derived streams, and restarted.

The process itself is `broker/streams/process.py`. It reads tuples from the log, so all that goes to it is small: which
queries there are, and how far the log can be read. Results come back in batches, and become tuples of their streams
like any published ones: in the log first, then to subscribers. What a derived stream holds says how far its query is,
so nothing else must be remembered: a process that was killed, and a server that was, go on behind its last tuple.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hullcast.broker.processes.child import ChildKind, ChildProcess
from hullcast.broker.queries.derived import is_hidden
from hullcast.broker.streams.definition import begins_behind, is_torn, kept_counts, start_of, terms_of
from hullcast.broker.streams.messages import (
    AskPaths,
    BeginStreams,
    CloseQuery,
    GiveWay,
    OpenQuery,
    QueryFailed,
    QueryOpened,
    QueryPaths,
    ReleasedTo,
    StreamResults,
    StreamsReport,
    SwitchOperatorPolicy,
    TimeWord,
    TookResults,
)
from hullcast.broker.streams.operators.operator import check_kept
from hullcast.broker.streams.plan import kept_bytes, plan_of, query_of
from hullcast.broker.streams.policies import OPERATOR_POLICIES
from hullcast.broker.tables.schema import AT, fold
from hullcast.network.wire.errors import BadSetting, HullcastError, Overloaded, TooLarge, from_wire, to_wire
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.engine.stream import Stream
    from hullcast.broker.log.commit_log import CommitLog
    from hullcast.broker.log.recovery import DataDirectory
    from hullcast.broker.streams.memory.bounded_join import BoundedJoinStatistics
    from hullcast.broker.streams.messages import MadeTuples, QueryStart, QueryTerms
    from hullcast.broker.streams.runner import PathStatistics
    from hullcast.broker.tables.schema import Table

log = logger(__name__)

#: Updates that the process may be behind before publishers of the streams that it reads are refused.
MOST_BEHIND = 250_000
#: Updates for which the log is kept until the process has read them.
MOST_KEPT = 4 * MOST_BEHIND
#: Seconds for which joins may hold publishers up before those give way that only subscriptions need.
PATIENCE_S = 5.0
#: Its first word may come late: to compile takes a minute and more where much else runs.
STREAMS = ChildKind(
    "streams",
    "the streams process",
    "hullcast.broker.streams.process",
    silence_s=30.0,
    first_word_s=300.0,
    retry_s=1.0,
)
#: Seconds between two looks at operators.
LOOK_S = 1.0
#: Seconds after which a query that failed is begun again, from then on. One that gave way to publishers waits twice as
#: long each time, up to so many times that.
AGAIN_S, MOST_AGAIN = 5.0, 64


@dataclass(eq=False, slots=True)
class _Counts:
    """What came of a derived stream since the server started, however many processes there were."""

    stream: Stream
    results: int = 0
    gaps: int = 0  # times that results are missing; subscribers got a Resync


class _Noted(NamedTuple):
    """A record of the log that says up to which update a join has consumed it; `before`: the one before says that."""

    record: int
    seq: int
    before: int


@dataclass(eq=False, slots=True)
class _Derived:
    """A derived stream as the process knows it."""

    number: int
    stream: Stream
    counts: _Counts
    opened: bool = False
    failed: HullcastError | None = None
    again_at: float = 0.0
    paths: tuple[PathStatistics, ...] = ()
    memory: BoundedJoinStatistics | None = None
    kept_bytes: int = 0
    reads: tuple[str, ...] = field(default_factory=tuple)  # folded names


class StreamsProcess:
    """The process, what it was told, and what has come of it."""

    def __init__(
        self,
        engine: ServedEngine,
        commit_log: CommitLog,
        files: Callable[[], Awaitable[DataDirectory]],
        append: Callable[[str, MadeTuples], None],
        mark_gap: Callable[[str, str, tuple[float, int] | None], None],
        note_consumed: Callable[[str], None],
        busy: Callable[[], bool],
        *,
        policy: str,
        limit_bytes: int,
        memory_bytes: int,
    ) -> None:
        """`files` gives the directory whose log the process may read; it is another one than that of `commit_log` where
        the server keeps its rows in memory. `append` makes results tuples of a stream; not while `busy` says that too
        much waits for the disk. `mark_gap` tells the subscribers of a stream that results are missing, why, and from
        which moment of its sources on there are all of them again; `note_consumed` lets the log say how far a stream
        is."""
        self._engine, self._log, self._files = engine, commit_log, files
        self._append, self._mark_gap, self._note_consumed, self._busy = append, mark_gap, note_consumed, busy
        self.policy, self._limit_bytes, self._memory_bytes = policy, limit_bytes, memory_bytes
        self._child = ChildProcess(STREAMS, self._on_message, self._on_gone)
        self._directory: DataDirectory | None = None
        self._known: dict[str, _Derived] = {}  # by folded name
        self._numbered: dict[int, _Derived] = {}
        self._terms: dict[Stream, QueryTerms] = {}
        self._counts: dict[str, _Counts] = {}  # by folded name
        self._noted: dict[Stream, _Noted] = {}  # of joins with tables
        self._numbers = 0
        self._definitions = -1
        self._told = -1
        self._words: dict[str, list[TimeWord]] = {}
        self._came: deque[StreamResults] = deque()  # results that wait for the disk
        self._taking = False  # the next of them, in the next turn of the event loop
        self._report = StreamsReport(0, frozenset(), {})
        self._looked_at = 0.0
        self._relaxed_at = 0.0  # until then publishers were not held up, or joins have given way since
        self._writing: asyncio.Task[None] | None = None
        self._reading_from = engine.seq  # up to there it has read, or need not
        self._unread = self._passed_over = 0  # results of streams that no join reads: so far, and up to there
        self._tellings: deque[tuple[int, int]] = deque()  # what it was told and has not read; results unread by then
        self.refused = 0  # publishes that were refused because too much waits

    @property
    def running(self) -> bool:
        """Whether there is a process that listens."""
        return self._child.running

    @property
    def processes(self) -> int:
        """Processes started so far."""
        return self._child.lives

    # -- one life of the process -------------------------------------------------------------------------------

    def watch(self, now: float) -> None:
        """Called now and then: start the process if there are derived streams, kill one that hangs, and ask how its
        operators are."""
        self._child.watch(now)
        if not self._engine.derived:
            self._reading_from, self._passed_over = self._engine.seq, self._unread
        if not self.running:
            if self._engine.derived:
                self._child.keep_started(now, self._start)
            return
        self.on_release()
        self._relieve(now)
        for one in list(self._known.values()):
            if one.failed is not None and now >= one.again_at:
                self._begin_again(one)
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            for one in self._known.values():
                self._child.write(AskPaths(one.number))
            self._note_tables()

    def _relieve(self, now: float) -> None:
        """If publishers have been held up for a while, joins of subscriptions stop, and begin again later: whoever may
        subscribe may not stop those who publish."""
        held = self._overload if self._child.spoke else None
        late = held is not None and now - self._relaxed_at >= PATIENCE_S
        if held is not None and late:
            self._child.write(GiveWay(bool(self._report.full), *to_wire(held)))
        if held is None or late:
            self._relaxed_at = now

    @property
    def _overload(self) -> Overloaded | None:
        """Why publishers are refused, or about to be, if they are."""
        if self._report.full:
            return Overloaded("bytes of tuples that wait in joins, too many of them in this one", self._limit_bytes)
        if self._behind > MOST_BEHIND * 3 // 4:  # refused publishers keep it near the limit, not above
            return Overloaded("updates that joins have not seen, because this one is slow", MOST_BEHIND)
        return None

    def _note_tables(self) -> None:
        """Let the log say how far joins with tables are: it is kept from there on (`needed_behind`)."""
        for stream in self._engine.derived:
            consumed, noted = stream.consumed, self._noted.get(stream)
            if consumed is None or not self._reads_table(stream):
                continue
            if noted is None or (noted.record <= self._log.synced and noted.seq < consumed[1]):
                self._note_consumed(stream.store.table.name)
                self._noted[stream] = _Noted(self._log.number, consumed[1], self._durable(stream))

    async def _start(self) -> None:
        directory = await self._files()
        await self._child.start(BeginStreams(str(directory.path), self.policy, self._limit_bytes, self._memory_bytes))
        self._directory = directory
        self._definitions = self._told = -1
        self.on_release()

    def _on_gone(self) -> None:
        self._known.clear()
        self._numbered.clear()
        self._came.clear()
        self._words.clear()
        self._tellings.clear()
        self._report = StreamsReport(0, frozenset(), {})

    async def stop(self) -> None:
        """End the process, and wait for that."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        await self._child.stop()

    # -- what it is told ---------------------------------------------------------------------------------------

    def on_release(self) -> None:
        """More of the log is on disk; or results may go on, for which there was no room."""
        if not self.running or self._directory is None:
            return
        self._take_soon()
        if self._directory.log.pending_bytes and self._directory.log is not self._log:
            self._write()
        synced = self._directory.log.synced_seq
        if self._definitions != self._engine.definitions:
            self._tell_queries(synced)
        due = {name: [word for word in words if word.seq <= synced] for name, words in self._words.items()}
        said = {name: tuple(words) for name, words in due.items() if words}
        if synced == self._told and not said:
            return
        self._told = synced
        self._tellings.append((synced, self._unread))
        self._words = {name: [word for word in words if word.seq > synced] for name, words in self._words.items()}
        self._child.write(ReleasedTo(synced, said))

    def _write(self) -> None:
        """Replies do not wait for these files (there is no data directory), but the process does."""
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._written(), name="server.streams.write")

    async def _written(self) -> None:
        try:
            directory = await self._files()
        except HullcastError as error:
            log.error("streams process has no files", extra={"why": str(error)})
            self._child.kill()
            return
        if directory is not self._directory:  # the disk refused the one before
            self._child.kill()
        self.on_release()

    def _tell_queries(self, synced: int) -> None:
        derived = {fold(stream.store.table.name): stream for stream in self._engine.derived}
        for name, one in list(self._known.items()):
            if derived.get(name) is not one.stream:
                self._child.write(CloseQuery(one.number))
                del self._known[name], self._numbered[one.number]
        self._counts = {name: counts for name, counts in self._counts.items() if derived.get(name) is counts.stream}
        self._noted = {stream: noted for stream, noted in self._noted.items() if stream in derived.values()}
        later = False
        for name, stream in derived.items():
            if name in self._known:
                continue
            if stream.store.created > synced:  # what was before it must be on disk
                later = True
                continue
            self._open(name, stream, synced)
        self._definitions = -1 if later else self._engine.definitions

    def _open(self, name: str, stream: Stream, synced: int, *, lost: str = "") -> None:
        """Open a derived stream: behind what it has, or, if that cannot be (`lost` says why), from now on."""
        self._numbers += 1
        terms = self._terms_of(stream)
        created = max(stream.store.created, stream.order.removed)  # results may be gone, by age
        start = start_of(terms, self._engine.streams, _last_at(stream), created, synced, stream.consumed)
        counts = self._counts.setdefault(name, _Counts(stream))
        if not lost and is_torn(terms, self._engine.streams, created, start):
            lost = "tuples that its results are made of are no longer retained"
        if lost:
            start = start_of(terms, self._engine.streams, None, synced, synced)
            counts.gaps += 1
            log.error("results of a derived stream are missing", extra={"stream": stream.store.table.name, "why": lost})
            self._mark_gap(stream.store.table.name, lost, begins_behind(terms, self._engine.streams, synced))
        reads = tuple(fold(side.life.table.name) for side in (terms.left, terms.right) if side is not None)
        one = _Derived(self._numbers, stream, counts, reads=reads)
        self._known[name] = self._numbered[one.number] = one
        self._child.write(OpenQuery(one.number, terms, stream.store.table, start, is_hidden(stream.store.table.name)))

    def _terms_of(self, stream: Stream) -> QueryTerms:
        """What makes a derived stream; its text is read once."""
        if stream not in self._terms:
            self._terms = {one: terms for one, terms in self._terms.items() if one in self._engine.derived}
            self._terms[stream] = terms_of(stream.store.table, self._engine.stores)
        return self._terms[stream]

    def needs(self, stream: Stream) -> int | None:
        """The last position of a stream that no derived stream needs any more, to go on from what it has consumed; None
        if none is made of it."""
        name, found = fold(stream.store.table.name), []
        for made in self._engine.derived:
            terms = self._terms_of(made)
            sides = [side for side in (terms.left, terms.right) if side is not None and not side.is_table]
            names = [fold(side.life.table.name) for side in sides]
            if name in names:
                bases = self._start_of(made).bases
                found += [base.seq for base, one in zip(bases, names, strict=True) if one == name]
        return min(found, default=None)

    def _start_of(self, stream: Stream) -> QueryStart:
        """Where a derived stream would go on, had everything been released."""
        at = _last_at(stream) if stream.consumed is None else None
        created = max(stream.store.created, stream.order.removed)
        streams, seq = self._engine.streams, self._engine.seq
        return start_of(self._terms_of(stream), streams, at, created, seq, stream.consumed)

    def check_room(self, table: Table, but: Stream | None = None) -> None:
        """TooLarge if there is no room for what a derived stream would keep, beside all others (`but` one)."""
        others = sum(self._kept_bytes(stream) for stream in self._engine.derived if stream is not but)
        check_kept(others, self._needed_bytes(terms_of(table, self._engine.stores)), self._memory_bytes)

    def _needed_bytes(self, terms: QueryTerms) -> int:
        """What a join keeps in memory, as far as that is known before it does."""
        query = query_of(terms, lambda end: 0.0 if isinstance(end, str) else end)
        return kept_bytes(query, kept_counts(terms, self._engine.streams, self._engine.stores))

    def _kept_bytes(self, stream: Stream) -> int:
        """What the join of a derived stream keeps, or will."""
        one = self._known.get(fold(stream.store.table.name))
        return max(self._needed_bytes(self._terms_of(stream)), 0 if one is None else one.kept_bytes)

    def _begin_again(self, one: _Derived) -> None:
        """A query failed: what it needed is no longer there. It goes on from now, and some results are missing; later,
        if there is no room for what it keeps."""
        assert self._directory is not None
        try:
            self.check_room(one.stream.store.table, one.stream)
        except TooLarge as error:
            one.failed, one.again_at = error, time.monotonic() + AGAIN_S
            return
        name = fold(one.stream.store.table.name)
        self._known.pop(name, None)
        self._numbered.pop(one.number, None)
        self._open(name, one.stream, self._directory.log.synced_seq, lost=str(one.failed))

    def needed_behind(self) -> int | None:
        """The log behind this sequence number is needed to go on with joins with tables, whose rows are those of each
        tuple's own moment; None if there are none. Not what is further behind than publishers may leave a join: then
        the log would grow without end, and the join begins again."""
        needed = [self._durable(stream) for stream in self._engine.derived if self._reads_table(stream)]
        return min((seq for seq in needed if self._engine.seq - seq <= MOST_KEPT), default=None)

    def _reads_table(self, stream: Stream) -> bool:
        return any(table.stream is None for table in self._engine.made_of(stream.store.table).tables)

    def _durable(self, stream: Stream) -> int:
        """Up to which update a derived stream has consumed the log, by what would be known after a crash."""
        noted = self._noted.get(stream)
        if noted is not None:
            return noted.seq if noted.record <= self._log.synced else noted.before
        return stream.store.created if stream.logged is None else stream.logged[1]

    def advanced(self, stream: str, seq: int, reached: float) -> None:
        """A heartbeat: a stream's time has come so far, after all updates up to `seq`."""
        name = fold(stream)
        if self.running and any(name in one.reads for one in self._known.values()):
            self._words.setdefault(name, []).append(TimeWord(seq, reached))

    def switch(self, policy: str) -> None:
        """Let another policy decide which operator runs next."""
        if policy not in OPERATOR_POLICIES:
            raise BadSetting("policy", policy, f"must be one of {', '.join(sorted(OPERATOR_POLICIES))}")
        self.policy = policy
        if self.running:
            self._child.write(SwitchOperatorPolicy(policy))

    def refuse_more(self, table: str) -> None:
        """Overloaded while too much of a stream waits for a join: its publisher tries again."""
        name = fold(table)
        if name in self._report.full:
            self.refused += 1
            raise Overloaded(f"bytes of tuples of {table} and others that wait in joins", self._limit_bytes)
        if self._behind > MOST_BEHIND and self._is_joined(table):
            self.refused += 1
            raise Overloaded(f"updates that the joins over {table} have not seen", MOST_BEHIND)

    @property
    def _behind(self) -> int:
        """Updates that the process has not read, but for results that it only passes over: millions may be made of a
        few tuples while its word on how far it is comes here."""
        return (self._engine.seq - self._reading_from) - (self._unread - self._passed_over)

    def _is_joined(self, table: str) -> bool:
        """Whether a join reads a stream, or will when there is a process again."""
        joins = (self._known.get(fold(made.name)) for made in self._engine.reading(table))
        return any(one is None or one.failed is None for one in joins)

    # -- what it says ------------------------------------------------------------------------------------------

    def _on_message(self, message: object) -> None:
        match message:
            case StreamResults():
                self._came.append(message)
                self._take_soon()
            case QueryOpened(number):
                if number in self._numbered:
                    self._numbered[number].opened = True
            case QueryFailed(number, code, arguments):
                self._failed(number, from_wire(code, arguments))
            case QueryPaths(number, paths, memory, kept_bytes):
                if number in self._numbered:
                    one = self._numbered[number]
                    one.paths, one.memory, one.kept_bytes = paths, memory, kept_bytes
            case StreamsReport():
                self._report = message
                self._reading_from = message.read or self._reading_from  # 0: it has just begun
                while self._tellings and self._tellings[0][0] <= message.read:
                    self._passed_over = self._tellings.popleft()[1]

    def _failed(self, number: int, error: HullcastError) -> None:
        one = self._numbered.get(number)
        if one is not None:
            name = one.stream.store.table.name
            log.error("derived stream failed", extra={"stream": name, "why": str(error)})
            wait_s = AGAIN_S * (min(2**one.counts.gaps, MOST_AGAIN) if isinstance(error, Overloaded) else 1)
            one.failed, one.again_at, one.opened = error, time.monotonic() + wait_s, False
            self._mark_gap(name, str(error), None)  # at once; and again when it is known from where on it is complete

    def _take_soon(self) -> None:
        """Take what came when all others have had their turn: some thousand results take milliseconds."""
        if self._came and not self._taking and not self._busy():
            self._taking = True
            asyncio.get_running_loop().call_soon(self._take_next)

    def _take_next(self) -> None:
        self._taking = False
        if self._came and self.running and not self._busy():
            self._take(self._came.popleft())
            self._take_soon()

    def _take(self, results: StreamResults) -> None:
        """Results become tuples of their stream, if there is still one."""
        self._child.write(TookResults(results.batch_number))
        one = self._numbered.get(results.number)
        if one is None or one.failed is not None:
            return
        if results.made is not None:
            self._append(one.stream.store.table.name, results.made)
            one.counts.results += (made := results.made.rows.cells.shape[1])
            name = fold(one.stream.store.table.name)
            if not any(name in other.reads for other in self._known.values()):
                self._unread += made
        one.stream.consumed = results.reached  # not before its results are there: a checkpoint has both, or neither

    # -- for people --------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What runs, what waits, and how far behind it is, as of half a second ago at most (operators: of a second)."""
        synced = 0 if self._directory is None else self._directory.log.synced_seq
        counters = {key: value for key, value in self._report.counters.items() if key != "policy"}
        derived = [(stream.store.table.name, self._facts(stream)) for stream in self._engine.derived]
        return {
            "running": self.running,
            "processes": self.processes,
            "policy": self.policy,
            "behind": max(0, synced - self._report.read) if self.running else 0,
            "limit_bytes": self._limit_bytes,
            "memory_bytes": self._memory_bytes,
            "full": self._engine.spelt(sorted(self._report.full)),
            "refused": self.refused,
            **counters,
            "derived": {name: facts for name, facts in derived if not is_hidden(name)},
            "joins": [{"name": name, **facts} for name, facts in derived if is_hidden(name)],
        }

    def policy_facts(self) -> dict[str, Any]:
        """The policy in force, what it counts, and all there are with a line about each."""
        counters = self._report.counters
        busy_s = counters.get("busy_s", 0.0)
        counted = {"steps": counters["steps"], "busy_s": busy_s} if busy_s else {}
        if busy_s:
            counted["deciding_share"] = 1 - counters["operators_s"] / busy_s
        policies = {name: policy().about for name, policy in OPERATOR_POLICIES.items()}
        return {"policy": self.policy, "counters": counted, "policies": policies}

    def _facts(self, stream: Stream) -> dict[str, Any]:
        """A derived stream, opened or not."""
        table = stream.store.table
        name = fold(table.name)
        one, counts = self._known.get(name), self._counts.get(name)
        memory = None if one is None else one.memory
        kept = self._engine.made_of(table).shape.memory
        waiting = 0 if one is None else sum(operator.waiting for path in one.paths for operator in path.operators)
        behind_s, slowest = self._waits_for(stream)
        return {
            "source": self._engine.source_shown(table),
            "results": 0 if counts is None else counts.results,
            "memory": None if memory is None else {**asdict(memory), "missed_share": memory.missed_share},
            "memory_limit": kept,
            "kept_bytes": 0 if one is None else one.kept_bytes,
            "needed_bytes": self._needed_bytes(self._terms_of(stream)),
            "waiting": waiting,
            "behind_s": behind_s,
            "waits_for": slowest if waiting else None,
            "opened": one is not None and one.opened,
            "gaps": 0 if counts is None else counts.gaps,
            "failed": None if one is None or one.failed is None else str(one.failed),
        }

    def _waits_for(self, stream: Stream) -> tuple[float | None, str | None]:
        """Of a join of two streams with times: how far what it has consumed is behind the one that is ahead, in
        seconds, and the name of the other one, whose time it waits for."""
        sources = [
            self._engine.streams.get(fold(table.name)) for table in self._engine.made_of(stream.store.table).tables
        ]
        known = [source for source in sources if source is not None and source.store.table.time is not None]
        if len(known) < 2 or not all(np.isfinite(source.order.time) for source in known):
            return None, None
        first, last = sorted(known, key=lambda source: source.order.time)
        reached = first.order.time if stream.consumed is None else min(stream.consumed[0], last.order.time)
        slowest = first.store.table.name if first.order.time < last.order.time else None
        return max(0.0, last.order.time - reached) / 1e6, slowest

    def explain(self, table: Table) -> dict[str, Any]:
        """How a derived stream is computed, or would be: its operators, what they were measured to take and to let
        through, their progress charts and envelopes. `made`: whether it exists."""
        one = self._known.get(fold(table.name))
        stream = self._engine.streams.get(fold(table.name))
        if stream is None:
            facts: dict[str, Any] = {
                "source": self._engine.source_shown(table),
                "memory": None,
                "memory_limit": self._engine.made_of(table).shape.memory,
                "kept_bytes": 0,
                "needed_bytes": self._needed_bytes(terms_of(table, self._engine.stores)),
            }
        else:
            facts = self._facts(stream)
        if one is not None and one.paths:
            paths = [path_facts(path) for path in one.paths]
        else:
            paths = planned_paths(terms_of(table, self._engine.stores))
        for path in paths:
            (path["stream"],) = self._engine.spelt([path["stream"]])
        return {**facts, "made": stream is not None, "policy": self.policy, "paths": paths}


def path_facts(path: PathStatistics) -> dict[str, Any]:
    """A path as `hullcast explain` shows it. The unit of its chart is a byte of its stream's tuples: after `times[i]`
    seconds of work `sizes[i]` bytes of it are left. `envelope` has the numbers of points, `slopes` what each operator's
    chain frees, in bytes per second and byte."""
    chart = path.chart
    return {
        "stream": path.stream,
        "operators": [operator._asdict() for operator in path.operators],
        "chart": {
            "times": list(chart.times),
            "sizes": list(chart.sizes),
            "envelope": list(chart.envelope()),
            "slopes": list(chart.slopes()),
        },
    }


def planned_paths(terms: QueryTerms) -> list[dict[str, Any]]:
    """The paths of a query that is not open, with the names of their operators only."""
    query = query_of(terms._replace(memory=None), lambda end: 0.0 if isinstance(end, str) else end)
    plan = plan_of(query)
    return [
        {"stream": stream.stream, "operators": [{"name": operator.name} for operator in plan.path(leaf)], "chart": None}
        for leaf, stream in enumerate(query.streams)
    ]


def _last_at(stream: Stream) -> int | None:
    """The tuple that made the last result of a derived stream, if it has any."""
    if not len(stream.order):
        return None
    store = stream.store
    live = store.live_slots()
    last = live[np.argmax(store.cells[store.table.key, live])]
    return int(store.cells[store.table.position(AT.name), last])
