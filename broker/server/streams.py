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
from typing import TYPE_CHECKING, Any

from hullcast.broker.processes.child import ChildKind, ChildProcess
from hullcast.broker.queries.derived import is_hidden
from hullcast.broker.scheduling.policy import one_of
from hullcast.broker.server.making import check_share
from hullcast.broker.streams import messages
from hullcast.broker.streams.definition import begins_behind, is_torn, start_of
from hullcast.broker.streams.joins import DerivedJoins, JoinState, Noted
from hullcast.broker.streams.policies import OPERATOR_POLICIES
from hullcast.broker.tables.schema import fold
from hullcast.network.wire.errors import HullcastError, Overloaded, TooLarge, from_wire, to_wire
from hullcast.network.wire.logs import logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hullcast.broker.engine.served import ServedEngine
    from hullcast.broker.log.commit_log import CommitLog
    from hullcast.broker.log.recovery import DataDirectory
    from hullcast.broker.server.attendance import Attendance
    from hullcast.broker.server.changing import Changing
    from hullcast.broker.server.pipeline import Commits
    from hullcast.broker.server.settings import ServerSettings
    from hullcast.broker.streams.joins import DerivedJoin
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
    "streams", "the streams process", "hullcast.broker.streams.process", silence_s=30.0, first_word_s=300.0, retry_s=1.0
)
#: How long results wait for a sync that is made for others.
RESULTS_PATIENCE_S = 0.005
#: Seconds between two looks at operators.
LOOK_S = 1.0
#: Seconds after which a query that failed is begun again, from then on. One that gave way to publishers waits twice as
#: long each time, up to so many times that.
AGAIN_S, MOST_AGAIN = 5.0, 64
#: Different joins over streams that subscriptions may need at once; each is computed for all tuples of its streams.
MOST_JOINS = 64


class StreamsProcess:
    """The process, what it was told, and what has come of it."""

    def __init__(
        self,
        engine: ServedEngine,
        commit_log: CommitLog,
        files: Callable[[], Awaitable[DataDirectory]],
        commits: Commits,
        changing: Callable[[], Changing],
        settings: ServerSettings,
    ) -> None:
        """`files` gives the directory whose log the process may read; it is another one than that of `commit_log` where
        the server keeps its rows in memory. `changing` gives what makes results tuples of a stream; it asks joins."""
        self._engine, self._log, self._files = engine, commit_log, files
        self._commits, self._changing = commits, changing
        self.policy, self._limit_bytes = settings.stream_policy, settings.stream_queue_bytes
        self._memory_bytes = settings.stream_memory_bytes
        self._joins = DerivedJoins(engine, self._memory_bytes)
        self.needs, self.check_room = self._joins.needs, self._joins.check_room
        self._child = ChildProcess(STREAMS, self._on_message, self._on_gone)
        self._directory: DataDirectory | None = None
        self._numbered: dict[int, DerivedJoin] = {}  # those that the process knows
        self._numbers = 0
        self._definitions = self._told = -1
        self._words: dict[str, list[messages.TimeWord]] = {}
        self._came: deque[messages.StreamResults] = deque()  # results that wait for the disk
        self._taking = False  # the next of them, in the next turn of the event loop
        self._report = messages.StreamsReport(0, frozenset(), {})
        self._looked_at = 0.0
        self._relaxed_at = 0.0  # until then publishers were not held up, or joins have given way since
        self._writing: asyncio.Task[None] | None = None
        self._reading_from = engine.seq  # up to there it has read, or need not
        self._unread = self._passed_over = 0  # results of streams that no join reads: so far, and up to there
        self._tellings: deque[tuple[int, int]] = deque()  # what it was told and has not read; results unread by then
        self.refused = 0  # publishes that were refused because too much waits

    # -- one life of the process -------------------------------------------------------------------------------

    def watch(self, now: float) -> None:
        """Called now and then: start the process if there are derived streams, kill one that hangs, and ask how its
        operators are."""
        self._child.watch(now)
        needed = bool(self._engine.streams.derived)
        if not needed:
            self._reading_from, self._passed_over = self._engine.seq, self._unread
        if not self._child.running:
            if needed:
                self._child.keep_started(now, self._start)
            return
        self.on_release()
        self._relieve(now)
        for join in list(self._numbered.values()):
            if join.state.failed is not None and now >= join.state.again_at:
                self._begin_again(join)
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            for number in self._numbered:
                self._child.write(messages.AskPaths(number))
            self._note_tables()

    def _relieve(self, now: float) -> None:
        """If publishers have been held up for a while, joins of subscriptions stop, and begin again later: whoever may
        subscribe may not stop those who publish."""
        held = self._overload if self._child.spoke else None
        late = held is not None and now - self._relaxed_at >= PATIENCE_S
        if held is not None and late:
            self._child.write(messages.GiveWay(bool(self._report.full), *to_wire(held)))
        if held is None or late:
            self._relaxed_at = now

    @property
    def _overload(self) -> Overloaded | None:
        """Why publishers are refused, or about to be, if they are."""
        if self._report.full:
            return Overloaded(
                "bytes of tuples waiting in joins (stream_queue_bytes), too many of them in this one", self._limit_bytes
            )
        if self._behind > MOST_BEHIND * 3 // 4:  # refused publishers keep it near the limit, not above
            return Overloaded("updates that joins have not read, because this one is slow", MOST_BEHIND)
        return None

    def _note_tables(self) -> None:
        """Let the log say how far joins with tables are: it is kept from there on (`needed_behind`)."""
        for join in self._joins:
            consumed, noted, synced = join.stream.consumed, join.noted, self._log.synced
            if consumed is None or not join.reads_table:
                continue
            if noted is None or (noted.record <= synced and noted.seq < consumed[1]):
                name = join.table.name
                self._commits.change(lambda: self._changing().note_consumed([name]))  # noqa: B023  (called right away)
                join.noted = Noted(self._log.number, consumed[1], join.durable(synced))

    def needed_behind(self) -> int | None:
        """The log behind this sequence number is needed to go on with joins with tables, whose rows are those of each
        tuple's own moment; None if there are none. Not what is further behind than publishers may leave a join: then
        the log would grow without end, and the join begins again."""
        needed = [join.durable(self._log.synced) for join in self._joins if join.reads_table]
        return min((seq for seq in needed if self._engine.seq - seq <= MOST_KEPT), default=None)

    async def _start(self) -> None:
        directory = await self._files()
        await self._child.start(
            messages.BeginStreams(str(directory.path), self.policy, self._limit_bytes, self._memory_bytes)
        )
        self._directory = directory
        self._definitions = self._told = -1
        self.on_release()

    def _on_gone(self) -> None:
        for join in self._numbered.values():
            join.state = JoinState()
        for told in (self._numbered, self._came, self._words, self._tellings):
            told.clear()
        self._report = messages.StreamsReport(0, frozenset(), {})

    async def stop(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        await self._child.stop()

    # -- what it is told ---------------------------------------------------------------------------------------

    def on_release(self) -> None:
        """More of the log is on disk; or results may go on, for which there was no room."""
        if not self._child.running or self._directory is None:
            return
        self._take_soon()
        if self._directory.log.pending_bytes and self._directory.log is not self._log:
            self._write()
        synced = self._directory.log.synced_seq
        if self._definitions != self._engine.catalogue.definitions:
            self._tell_queries(synced)
        due = {name: tuple(word for word in words if word.seq <= synced) for name, words in self._words.items()}
        said = {name: words for name, words in due.items() if words}
        if synced == self._told and not said:
            return
        self._told = synced
        self._tellings.append((synced, self._unread))
        self._words = {name: words[len(due[name]) :] for name, words in self._words.items()}
        self._child.write(messages.ReleasedTo(synced, said))

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
        joins, later = list(self._joins), False
        for number, join in list(self._numbered.items()):
            if join not in joins:
                self._child.write(messages.CloseQuery(number))
                del self._numbered[number]
        for join in joins:
            if not join.state.number and join.stream.store.created > synced:  # what was before it must be on disk
                later = True
            elif not join.state.number:
                self._open(join, synced)
        self._definitions = -1 if later else self._engine.catalogue.definitions

    def _open(self, join: DerivedJoin, synced: int, *, lost: str = "") -> None:
        """Open a derived stream: behind what it has, or, if that cannot be (`lost` says why), from now on."""
        terms, table, streams = join.terms, join.table, self._engine.streams
        start = join.start(streams, join.last_at(), synced)
        if not lost and is_torn(terms, streams, join.created, start):
            lost = "tuples that its results are made of are no longer retained"
        if lost:
            start = start_of(terms, streams, None, synced, synced)
            join.gaps += 1
            log.error("results of a derived stream are missing", extra={"stream": table.name, "why": lost})
            self._mark_gap(table.name, lost, begins_behind(terms, streams, synced))
        self._numbers += 1
        join.state = JoinState(self._numbers)
        self._numbered[self._numbers] = join
        self._child.write(messages.OpenQuery(self._numbers, terms, table, start, is_hidden(table.name)))

    def _begin_again(self, join: DerivedJoin) -> None:
        """A query failed: what it needed is no longer there. It goes on from now, and some results are missing; later,
        if there is no room for what it keeps."""
        assert self._directory is not None
        try:
            self._joins.check_room(join.table, join)
        except TooLarge as error:
            join.state.failed, join.state.again_at = error, time.monotonic() + AGAIN_S
            return
        del self._numbered[join.state.number]
        self._open(join, self._directory.log.synced_seq, lost=str(join.state.failed))

    def advanced(self, stream: str, seq: int, reached: float) -> None:
        """A heartbeat: a stream's time has come so far, after all updates up to `seq`."""
        if self._is_read(stream):
            self._words.setdefault(fold(stream), []).append(messages.TimeWord(seq, reached))

    def _is_read(self, stream: str) -> bool:
        return any(join.state.number for join in self._joins.reading(stream))

    def switch(self, policy: str) -> None:
        self.policy = one_of(OPERATOR_POLICIES, policy)
        if self._child.running:
            self._child.write(messages.SwitchOperatorPolicy(policy))

    def refuse_more(self, table: str) -> None:
        """Overloaded while too much of a stream waits for a join: its publisher tries again."""
        if fold(table) in self._report.full:
            self.refused += 1
            raise Overloaded(f"bytes of tuples of {table} and others that wait in joins", self._limit_bytes)
        if self._behind > MOST_BEHIND and any(join.state.failed is None for join in self._joins.reading(table)):
            self.refused += 1
            raise Overloaded(f"updates that joins over {table} have not read", MOST_BEHIND)

    @property
    def _behind(self) -> int:
        """Updates that the process has not read, but for results that it only passes over: millions may be made of a
        few tuples while its word on how far it is comes here."""
        return (self._engine.seq - self._reading_from) - (self._unread - self._passed_over)

    # -- what it says ------------------------------------------------------------------------------------------

    def _on_message(self, message: object) -> None:
        match message:
            case messages.StreamResults():
                self._came.append(message)
                self._take_soon()
            case messages.QueryOpened(number) if number in self._numbered:
                self._numbered[number].state.opened = True
            case messages.QueryFailed(number, code, arguments):
                if (join := self._there(number)) is not None:
                    self._failed(join, from_wire(code, arguments))
            case messages.QueryPaths(number, paths, memory, kept_bytes) if number in self._numbered:
                state = self._numbered[number].state
                state.paths, state.memory, state.kept_bytes = paths, memory, kept_bytes
            case messages.StreamsReport():
                self._report = message
                self._reading_from = message.read or self._reading_from  # 0: it has just begun
                while self._tellings and self._tellings[0][0] <= message.read:
                    self._passed_over = self._tellings.popleft()[1]

    def _mark_gap(self, stream: str, why: str, goes_on: tuple[float, int] | None) -> None:
        """Tell the subscribers of a stream that results are missing, why, and from which moment of its sources on there
        are all of them again."""
        self._commits.change(lambda: self._changing().gap(stream, why, goes_on, time.monotonic()))

    def _there(self, number: int) -> DerivedJoin | None:
        """The join that the process knows by a number; None if its stream was dropped, also if that is not on disk and
        the process has not heard of it."""
        join = self._numbered.get(number)
        return join if join in list(self._joins) else None

    def _failed(self, join: DerivedJoin, error: HullcastError) -> None:
        name, state = join.table.name, join.state
        log.error("derived stream failed", extra={"stream": name, "why": str(error)})
        wait_s = AGAIN_S * (min(2**join.gaps, MOST_AGAIN) if isinstance(error, Overloaded) else 1)
        state.failed, state.again_at, state.opened = error, time.monotonic() + wait_s, False
        self._mark_gap(name, str(error), None)  # at once; and again when it is known from where on it is complete

    def _take_soon(self) -> None:
        """Take what came when all others have had their turn: some thousand results take milliseconds."""
        if self._came and not self._taking and not self._commits.busy:
            self._taking = True
            asyncio.get_running_loop().call_soon(self._take_next)

    def _take_next(self) -> None:
        self._taking = False
        if self._came and self._child.running and not self._commits.busy:
            self._take(self._came.popleft())
            self._take_soon()

    def _take(self, results: messages.StreamResults) -> None:
        """Results become tuples of their stream, if there is still one."""
        self._child.write(messages.TookResults(results.batch_number))
        join = self._there(results.number)
        if join is None or join.state.failed is not None:
            return
        if results.made is not None:
            name, made, now = join.table.name, results.made, time.monotonic()
            self._commits.change(lambda: [self._changing().append(name, made, now)], patience_s=RESULTS_PATIENCE_S)
            join.results += made.tuples
            self._unread += 0 if self._is_read(join.table.name) else results.made.tuples
        join.stream.consumed = results.reached  # not before its results are there: a checkpoint has both, or neither

    # -- for people --------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What runs, what waits, and how far behind it is, as of half a second ago at most (operators: of a second)."""
        synced = 0 if self._directory is None else self._directory.log.synced_seq
        derived = [(join.table.name, self._joins.facts(join)) for join in self._joins]
        return {
            "running": self._child.running,
            "processes": self._child.lives,
            "behind": max(0, synced - self._report.read) if self._child.running else 0,
            "limit_bytes": self._limit_bytes,
            "memory_bytes": self._memory_bytes,
            "full": list(self._engine.catalogue.spelt(sorted(self._report.full))),
            "refused": self.refused,
            **self._report.counters,
            "policy": self.policy,
            "derived": {name: facts for name, facts in derived if not is_hidden(name)},
            "joins": [{"name": name, **facts} for name, facts in derived if is_hidden(name)],
        }

    def policy_facts(self) -> dict[str, Any]:
        counters, counted = self._report.counters, {}
        if busy_s := counters.get("busy_s", 0.0):
            share = 1 - counters["operators_s"] / busy_s
            counted = {"steps": counters["steps"], "busy_s": busy_s, "deciding_share": share}
        policies = {name: policy().about for name, policy in OPERATOR_POLICIES.items()}
        return {"policy": self.policy, "counters": counted, "policies": policies}

    def explain(self, table: Table) -> dict[str, Any]:
        return {**self._joins.explain(table), "policy": self.policy}


class HiddenStreams:
    """Streams of joins that subscriptions made, and since when nobody has read them.

    A subscription to a join over streams reads a stream of its own (broker/queries/derived.py), which all that are
    alike share. It is made before the subscription is understood, by a statement that is logged like any other: so it
    is there after a restart, with its results, and subscribers go on where they were.
    """

    def __init__(
        self, engine: ServedEngine, attendance: Attendance, linger_s: float, changing: Changing, joins: StreamsProcess
    ) -> None:
        self._engine, self._attendance, self._linger_s = engine, attendance, linger_s
        self._changing, self._joins = changing, joins
        self._deserted: dict[str, float] = {}
        self._made_by: dict[str, str | None] = {}  # None: before the server started

    def make_for(self, sql: str, owner: str) -> None:
        """Make the stream that a subscription needs, if it is not there. TooLarge or Overloaded if there are too many,
        or they would keep too much."""
        statement = self._engine.catalogue.join_to_make(sql)
        if statement is None:
            return
        self._made_by = {name: self._made_by.get(name) for name in self._names()}
        what = "different joins over streams of"
        of_one, of_all = f"{what} one client (close some of its subscriptions)", f"{what} all clients"
        check_share(owner, list(self._made_by.values()), MOST_JOINS, of_one, of_all)
        planned = self._engine.catalogue.join_planned(sql)
        assert planned is not None, "it is not there"
        self._joins.check_room(planned)
        self._changing.execute_own(statement)
        self._made_by = {name: self._made_by.get(name, owner) for name in self._names()}

    def _names(self) -> list[str]:
        return [name for name in self._engine.tables if is_hidden(name)]

    def expire(self, now: float) -> None:
        """Drop those that nobody has read for a while; a subscriber that was lost may come back until then."""
        read = self._attendance.tables_read()
        self._deserted = {name: self._deserted.get(name, now) for name in self._names() if fold(name) not in read}
        for name, since in list(self._deserted.items()):
            if now - since >= self._linger_s:
                del self._deserted[name]
                self._changing.drop_hidden(name)  # another time, if it is in use
