"""The runner: takes in streams and tables, runs one operator at a time, gives out results in order.

    arrive, progress, change ->  queue > operator > queue > operator > queue > operator  -> results
                                       `-- step: the driver asks the policy which queue; its operator runs once

Results do not depend on the policy, nor on how tuples are cut into batches: every operator consumes in an order that
the streams alone determine. The policy decides how much waits meanwhile, and for how long. Pure: the clock is given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hullcast.broker.scheduling.driver import Driver
from hullcast.broker.streams.batch import BEGINNING, END, StreamMoment, TupleBatch, empty, joined
from hullcast.broker.streams.measuring import OperatorMeasure, PathMeasures
from hullcast.broker.streams.operators.bounded import BoundedStore
from hullcast.broker.streams.operators.operator import RESULTS_AT_ONCE, KeptMemory
from hullcast.broker.streams.operators.table_join import TableChanges, TableJoin
from hullcast.broker.streams.operators.window_join import WindowJoin
from hullcast.broker.streams.plan import OperatorPlan, StreamQuery, plan_of
from hullcast.broker.streams.queue import TupleQueue
from hullcast.network.wire.errors import InvariantBroken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hullcast.broker.scheduling.driver import Clock, Slice
    from hullcast.broker.streams.chart import Chart
    from hullcast.broker.streams.memory.bounded_join import BoundedJoinStatistics
    from hullcast.broker.streams.operators.operator import Operator
    from hullcast.broker.streams.plan import StreamInput
    from hullcast.broker.streams.policies.policy import OperatorPolicy
    from hullcast.network.wire.arrays import Floats

#: Tuples that an operator is given at once, and that it may take in one turn. More at once: fewer calls, more memory of
#: the processor's fast kind. More in a turn: less is spent on deciding who runs, and each decision holds longer.
MICRO_BATCH, TURN = 1024, 8192
#: Seconds after which a turn ends with the micro-batch that it is at: a slow operator would hold up what comes
#: meanwhile, and deciding costs little beside it.
TURN_S = 0.002
#: Bytes that all queues may hold before streams are `full`.
LIMIT_BYTES = 64 << 20
#: What a run is taken to cost a simulated clock, in seconds: a call, and so much for each tuple.
RUN_COST_S, TUPLE_COST_S = 2e-5, 2e-7
#: Seconds between two looks at what was measured.
LOOK_S = 0.25
#: Runs of operators, at most, that finish what has come in for a query before another one shares it.
SHARING_RUNS = 16


@dataclass(eq=False, slots=True)
class Stage:
    """An operator, the queues before it, and the queue behind it (None: results come out)."""

    operator: Operator
    inputs: list[TupleQueue]
    output: TupleQueue | None = None
    places: tuple[tuple[int, int], ...] = ()  # on the paths that lead through it
    measured: list[OperatorMeasure] = field(default_factory=list)  # there
    turn: Slice | None = None  # as the driver takes it
    #: What it took and made since it was opened.
    runs: int = 0
    tuples: int = 0
    size_bytes: float = 0.0
    made: int = 0
    made_bytes: float = 0.0
    seconds: float = 0.0


class Results(NamedTuple):
    """Results of a query in order; all up to `batch.reached` have come out. `batch.seqs` is `at`: the tuple that made
    each."""

    query: int
    batch: TupleBatch


class OperatorStatistics(NamedTuple):
    """One operator: what waits before it, what it took and made, and what that took, since it was opened."""

    name: str
    waiting: int
    waiting_bytes: float
    runs: int
    tuples: int
    made: int
    selectivity: float  # in bytes, as measured last
    seconds_per_tuple: float


class PathStatistics(NamedTuple):
    """One path of a query: its stream, its operators, and its progress chart."""

    stream: str
    operators: tuple[OperatorStatistics, ...]
    chart: Chart


class OperatorFailed(Exception):
    """An operator of a query failed: the query cannot go on, and must be closed. Others can."""

    def __init__(self, query: int, error: Exception) -> None:
        super().__init__(f"query {query}: {error}")
        self.query, self.error = query, error


class RunnerStatistics(NamedTuple):
    """All queues together."""

    queries: int
    waiting: int
    waiting_bytes: float
    most_waiting_bytes: float
    steps: int
    busy_s: float  # in operators and in deciding which
    operators_s: float  # in operators


@dataclass(eq=False, slots=True)
class _Open:
    """A query, its stages, and what of it has come out."""

    number: int
    query: StreamQuery
    plan: OperatorPlan
    users: int
    leaves: list[TupleQueue]
    stages: list[Stage]
    paths: list[int]
    after: StreamMoment = BEGINNING  # results up to there are known, or not wanted
    reached: StreamMoment = BEGINNING
    table: TableJoin | None = None
    made: list[TupleBatch] = field(default_factory=list)


class Runner:
    """All open queries, their queues, and who runs next.

    Invariants (`check` tests them):
      R1  A queue is among those that the policy picks from exactly if its operator can run.
      R2  `held_bytes` is what all queues hold, and changes of tables that wait.
      R3  `memory.used_bytes` is what all operators keep.
    """

    def __init__(
        self,
        policy: OperatorPolicy,
        clock: Clock,
        *,
        micro_batch: int = MICRO_BATCH,
        turn: int = TURN,
        limit_bytes: float = LIMIT_BYTES,
        memory: KeptMemory | None = None,
    ) -> None:
        self._driver = Driver(policy, clock)
        self._policy, self._clock = policy, clock
        self._micro_batch, self._turn, self.limit_bytes = micro_batch, turn, limit_bytes
        self.memory = memory or KeptMemory()
        self._queries: dict[int, _Open] = {}
        self._alike: dict[StreamQuery, _Open] = {}
        self._leaves: dict[str, list[tuple[_Open, TupleQueue]]] = {}
        self._tables: dict[str, list[_Open]] = {}
        self._measures: list[PathMeasures | None] = []  # by number of path
        self._stage_of: dict[TupleQueue, tuple[_Open, Stage]] = {}
        self._numbers = 0
        self._look_at = -inf
        self._steps, self._busy_s, self._operators_s = 0, 0.0, 0.0
        self.held_bytes = self.most_held_bytes = 0.0
        self._news: dict[int, _Open] = {}  # queries with results, or progress, that nobody took

    # -- queries -----------------------------------------------------------------------------------------------

    def share(self, query: StreamQuery) -> int | None:
        """The number of a query that is alike, from now on for one user more; None if there is none. What has come in
        for it is worked on first: results from now on are made of what comes from now on. None, too, if that is much:
        one that is behind may have millions of results to make."""
        alike = self._alike.get(query)
        if alike is None or not self.drain(alike.number, SHARING_RUNS):
            return None
        alike.users += 1
        return alike.number

    def open(
        self,
        query: StreamQuery,
        after: StreamMoment = BEGINNING,
        *,
        plan: OperatorPlan | None = None,
        attached: bool = True,
    ) -> int:
        """The number of a new query. It begins with empty windows and tables: they must be filled from before
        (`arrive_at`, `change_at`). Results up to `after` are dropped. Unless it is `attached`, nothing else comes to it
        until `attach`."""
        plan = plan or plan_of(query)
        self.memory.grow(0, sum(operator.size_bytes for operator in plan.operators()))
        for operator in plan.operators():
            operator.keep_in(self.memory)
        self._numbers += 1
        opened = self._wired(query, plan)
        _drop_until(opened, after)
        self._queries[opened.number] = opened
        if attached:
            self.attach(opened.number)
        self._tell_policy()
        return opened.number

    def attach(self, number: int) -> None:
        """From now on a query gets what arrives for all: it has everything up to there."""
        opened = self._queries[number]
        query = opened.query
        self._alike.setdefault(query, opened)
        for stream, queue in zip(query.streams, opened.leaves, strict=True):
            self._leaves.setdefault(stream.stream, []).append((opened, queue))
        if query.table is not None:
            self._tables.setdefault(query.table.table, []).append(opened)

    def close(self, number: int) -> bool:
        """One user less of a query; whether that was the last one, and the query is gone."""
        opened = self._queries[number]
        opened.users -= 1
        if opened.users:
            return False
        del self._queries[number]
        if self._alike.get(opened.query) is opened:
            del self._alike[opened.query]
            attached = {id(one) for leaves in self._leaves.values() for one, _ in leaves}
            for other in self._queries.values():
                if other.query == opened.query and id(other) in attached:
                    self._alike[other.query] = other
        self._news.pop(number, None)
        self.memory.grow(0, -_kept_bytes(opened))
        for stage in opened.stages:
            for queue in stage.inputs:
                self._driver.rest(queue)
                self.held_bytes -= queue.size
                del self._stage_of[queue]
        for stream in opened.query.streams:
            leaves = self._leaves.get(stream.stream, [])
            self._leaves[stream.stream] = [leaf for leaf in leaves if leaf[0] is not opened]
        if opened.table is not None:
            self.held_bytes -= opened.table.changes_bytes
            for users in self._tables.values():
                if opened in users:
                    users.remove(opened)
        for path in opened.paths:
            self._measures[path] = None
        self._tell_policy()
        return True

    def _wired(self, query: StreamQuery, plan: OperatorPlan) -> _Open:
        """The stages of a plan, with queues between them."""
        now, owner = self._clock.now(), str(self._numbers)
        paths = [self._new_path(len(plan.path(leaf)), now) for leaf in range(len(plan.branches))]
        leaves, stages, ends = [], [], []
        for leaf, branch in enumerate(plan.branches):
            queue = TupleQueue(owner, now, path=paths[leaf], place=0)
            leaves.append(queue)
            for place, operator in enumerate(branch):
                stage = Stage(operator, [queue])
                if place + 1 < len(branch) or plan.trunk:
                    queue = stage.output = TupleQueue(owner, now, path=paths[leaf], place=place + 1)
                stages.append(stage)
            ends.append(queue)
        for place, operator in enumerate(plan.trunk):
            stage = Stage(operator, ends)
            if place + 1 < len(plan.trunk):
                (first, *others) = [(path, len(plan.branches[i]) + place + 1) for i, path in enumerate(paths)]
                stage.output = TupleQueue(owner, now, path=first[0], place=first[1], also=tuple(others))
                ends = [stage.output]
            stages.append(stage)
        opened = _Open(self._numbers, query, plan, 1, leaves, stages, paths)
        opened.table = next((operator for operator in plan.trunk if isinstance(operator, TableJoin)), None)
        for stage in stages:
            for queue in stage.inputs:
                queue.ages = queue.waiting
                self._stage_of[queue] = opened, stage
        for stage in stages:
            stage.places = tuple(place for queue in stage.inputs for place in ((queue.path, queue.place), *queue.also))
            paths_of = [(self._measures[path], place) for path, place in stage.places]
            stage.measured = [measures.operators[place] for measures, place in paths_of if measures is not None]
            stage.turn = partial(self._take_turn, opened, stage)
        return opened

    def _new_path(self, operators: int, now: float) -> int:
        measures = PathMeasures.unknown(operators, now)
        for number, used in enumerate(self._measures):
            if used is None:
                self._measures[number] = measures
                return number
        self._measures.append(measures)
        return len(self._measures) - 1

    # -- what comes in -----------------------------------------------------------------------------------------

    def arrive(self, stream: str, batch: TupleBatch) -> None:
        """Tuples of a stream (folded name), behind all that came before; without tuples: how far it is."""
        for opened, queue in self._leaves.get(stream, ()):
            self._put(opened, queue, batch)

    def arrive_at(self, number: int, leaf: int, batch: TupleBatch) -> None:
        """The same for one query's stream: to fill its windows before it takes part."""
        opened = self._queries[number]
        self._put(opened, opened.leaves[leaf], batch)

    def progress(self, stream: str, reached: StreamMoment) -> None:
        """Whatever the stream brings from now on is behind this moment."""
        for opened, queue in self._leaves.get(stream, ()):
            self._put(opened, queue, empty(opened.query.left.width, reached, self._clock.now()))

    def change(self, table: str, changes: TableChanges) -> None:
        """Changes of a table (folded name). They must come before the tuples and the progress behind them."""
        for opened in self._tables.get(table, ()):
            self.change_at(opened.number, changes)

    def change_at(self, number: int, changes: TableChanges) -> None:
        """The same for one query: to give it the rows that the table has at the beginning."""
        opened = self._queries[number]
        assert opened.table is not None
        assert opened.plan.table_columns is not None
        before = opened.table.changes_bytes
        opened.table.change(changes.columns(opened.plan.table_columns))
        self._hold(opened.table.changes_bytes - before)
        for stage in opened.stages:
            if stage.operator is opened.table:
                self._settle(opened, stage)  # they may be due at once

    def full(self) -> set[str]:
        """The streams of which no more should come for now: all queues hold too much together, and these are read by a
        query that holds more than its share of it."""
        if self.held_bytes <= self.limit_bytes:
            return set()
        share = self.limit_bytes / len(self._queries)
        return {
            stream.stream
            for opened in self._queries.values()
            for stream, waiting in self._waiting(opened)
            if waiting * len(opened.leaves) > share
        }

    def queued(self) -> dict[int, float]:
        """The bytes that wait in each query."""
        return {
            number: sum(waiting for _, waiting in self._waiting(opened)) for number, opened in self._queries.items()
        }

    def seconds(self) -> dict[int, float]:
        """What the operators of each query have taken since it was opened."""
        return {number: sum(stage.seconds for stage in opened.stages) for number, opened in self._queries.items()}

    @staticmethod
    def _waiting(opened: _Open) -> Iterator[tuple[StreamInput, float]]:
        """The bytes that wait on the way from each stream of a query."""
        behind = sum(q.size for stage in opened.stages for q in stage.inputs if q.also) + (
            0 if opened.table is None else opened.table.changes_bytes
        )
        for stream, path in zip(opened.query.streams, opened.paths, strict=True):
            own = sum(q.size for stage in opened.stages for q in stage.inputs if q.path == path and not q.also)
            yield stream, own + behind

    # -- steps -------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no operator can run."""
        return self._driver.idle

    def can_run(self, number: int) -> bool:
        """Whether an operator of this query can run."""
        return any(stage.operator.can_run(stage.inputs) for stage in self._queries[number].stages)

    def step(self) -> bool:
        """Run one operator on one micro-batch; whether there was one to run."""
        served = self._driver.step()
        if served is None:
            return False
        seconds, now = served
        self._steps += 1
        self._busy_s += seconds
        if now >= self._look_at:
            self._look(now)
        return True

    def _look(self, now: float) -> None:
        """Take in what was measured."""
        self._look_at = now + LOOK_S
        rebuilt = [measures is not None and measures.rebuilt(now) for measures in self._measures]
        if any(rebuilt):
            self._tell_policy()

    def drain(self, number: int, most: float = inf) -> bool:
        """Run the operators of one query, whatever the policy says, so many times at most; whether none can run."""
        opened = self._queries[number]
        runs = 0
        while self.can_run(number) and runs < most:
            for stage in opened.stages:
                while runs < most and stage.operator.can_run(stage.inputs):
                    self._run(opened, stage)
                    runs += 1
                self._settle(opened, stage)
        return not self.can_run(number)

    def skip(self, number: int) -> None:
        """Drop what has come out of a query, and whatever is not behind that."""
        opened = self._queries[number]
        opened.made.clear()
        _drop_until(opened, opened.reached)
        self._news.pop(number, None)

    def switch(self, policy: OperatorPolicy) -> None:
        """Let another policy decide."""
        self._policy = policy
        self._driver.switch(policy)
        self._tell_policy()

    def _tell_policy(self) -> None:
        charts = [None if measures is None else measures.chart for measures in self._measures]
        self._policy.measured(charts, self._clock.now())
        self._driver.order_again()

    def _take_turn(self, opened: _Open, stage: Stage) -> float:
        """Some runs of an operator, and what they are taken to cost."""
        began = self._clock.now()
        runs = tuples = 0
        taken_bytes, made, made_bytes = stage.size_bytes, stage.made, stage.made_bytes
        while True:
            runs += 1
            tuples += self._run(opened, stage)
            enough = tuples >= self._turn or stage.made - made >= RESULTS_AT_ONCE
            if enough or self._clock.now() - began >= TURN_S:
                break
            if not stage.operator.can_run(stage.inputs):
                break
        self._settle(opened, stage)
        cost = RUN_COST_S * runs + TUPLE_COST_S * (tuples + stage.made - made)
        seconds = self._clock.now() - began or cost  # by a simulated clock it takes no time
        stage.seconds += seconds
        self._operators_s += seconds
        for measure in stage.measured:
            measure.ran(stage.size_bytes - taken_bytes, stage.made_bytes - made_bytes, seconds)
        return cost

    def _run(self, opened: _Open, stage: Stage) -> int:
        """One run of an operator; how many tuples it took."""
        inputs = stage.inputs
        before = sum(queue.size for queue in inputs)
        changes = 0 if opened.table is None else opened.table.changes_bytes
        try:
            ran = stage.operator.run(inputs, self._micro_batch)
        except Exception as error:
            raise OperatorFailed(opened.number, error) from error
        self._hold(sum(queue.size for queue in inputs) - before)
        if opened.table is not None:
            self._hold(opened.table.changes_bytes - changes)
        stage.runs += 1
        stage.tuples += ran.tuples
        stage.size_bytes += ran.size_bytes
        made = ran.made
        stage.made += len(made.seqs)
        stage.made_bytes += made.size_bytes
        self._give(opened, stage, made)
        return ran.tuples

    def _give(self, opened: _Open, stage: Stage, made: TupleBatch) -> None:
        """What a stage made goes to the next one, or out."""
        if stage.output is not None:
            self._put_raw(opened, stage.output, made)
            return
        if opened.reached < made.reached or len(made.seqs):
            opened.reached = max(opened.reached, made.reached)
            self._news[opened.number] = opened
        if len(made.seqs):
            made = _behind(made, opened.after)
            if len(made.seqs):
                opened.made.append(made)

    def _put(self, opened: _Open, queue: TupleQueue, batch: TupleBatch) -> None:
        if not opened.query.timed:
            batch = batch._replace(times=np.zeros(len(batch.seqs)), reached=StreamMoment(0.0, batch.reached.seq))
        self._put_raw(opened, queue, batch)

    def _put_raw(self, opened: _Open, queue: TupleQueue, batch: TupleBatch) -> None:
        before = queue.size
        queue.put(batch)
        self._hold(queue.size - before)
        self._settle(opened, self._stage_of[queue][1])

    def _settle(self, opened: _Open, stage: Stage) -> None:
        """R1 for a stage; if it has nothing to do, how far it is matters to the next one."""
        inputs = stage.inputs
        if stage.operator.can_run(inputs):
            for queue in inputs:
                if queue.tuples or len(inputs) == 1:
                    assert stage.turn is not None
                    self._driver.wake(queue, stage.turn)
                else:
                    self._driver.rest(queue)
            return
        for queue in inputs:
            self._driver.rest(queue)
        frontier = inputs[0].frontier() if len(inputs) == 1 else min(queue.frontier() for queue in inputs)
        if frontier > (opened.reached if stage.output is None else stage.output.reached):
            self._give(opened, stage, empty(0, frontier, self._clock.now()))

    def _hold(self, size_bytes: float) -> None:
        self.held_bytes += size_bytes
        self.most_held_bytes = max(self.most_held_bytes, self.held_bytes)

    # -- what comes out ----------------------------------------------------------------------------------------

    def take(self) -> list[Results]:
        """What has come out since this was asked last, query by query; also how far queries are without results."""
        taken = []
        for opened in self._news.values():
            if opened.after == END:  # its windows are being filled: until `skip` nothing of it counts
                continue
            reached = self.reached(opened.number)
            batch, opened.made = _complete(opened.made, len(opened.query.out), reached, self._clock.now())
            taken.append(Results(opened.number, batch))
        self._news.clear()
        return taken

    def reached(self, number: int) -> StreamMoment:
        """Up to this moment all results of a query have come out, or are not wanted."""
        opened = self._queries[number]
        return max(opened.reached, opened.after)

    # -- for people --------------------------------------------------------------------------------------------

    def held(self) -> Iterator[Floats]:
        """All codes that are kept anywhere here: no text may lose its code while it is among them."""
        for opened in self._queries.values():
            for stage in opened.stages:
                yield from stage.operator.held()
                for queue in stage.inputs:
                    yield from (batch.cells for batch in queue.contents())
            yield from (batch.cells for batch in opened.made)

    def statistics(self) -> RunnerStatistics:
        """A snapshot."""
        waiting = sum(queue.tuples for queue in self._stage_of)
        return RunnerStatistics(
            len(self._queries),
            waiting,
            self.held_bytes,
            self.most_held_bytes,
            self._steps,
            self._busy_s,
            self._operators_s,
        )

    def paths(self, number: int) -> tuple[PathStatistics, ...]:
        """The paths of a query."""
        now = self._clock.now()
        if now >= self._look_at:  # there may have been no step since
            self._look(now)
        opened = self._queries[number]
        found = []
        for leaf, (stream, path) in enumerate(zip(opened.query.streams, opened.paths, strict=True)):
            measures = self._measures[path]
            assert measures is not None
            own = [stage for stage in opened.stages if any(p == path for p, _ in stage.places)]
            operators = tuple(
                OperatorStatistics(
                    stage.operator.name,
                    stage.inputs[min(leaf, len(stage.inputs) - 1)].tuples,
                    stage.inputs[min(leaf, len(stage.inputs) - 1)].size,
                    stage.runs,
                    stage.tuples,
                    stage.made,
                    measure.selectivity,
                    stage.seconds / stage.tuples if stage.tuples else 0.0,
                )
                for stage, measure in zip(own, measures.operators, strict=True)
            )
            found.append(PathStatistics(stream.stream, operators, measures.chart))
        return tuple(found)

    def bounded(self, number: int) -> BoundedJoinStatistics | None:
        """What a window join with bounded memory kept, dropped and missed; None of any other query."""
        for stage in self._queries[number].stages:
            if isinstance(stage.operator, WindowJoin) and isinstance(stage.operator.store, BoundedStore):
                return stage.operator.store.statistics()
        return None

    def kept(self, number: int) -> int:
        """The bytes that the windows and the table of a query take."""
        return _kept_bytes(self._queries[number])

    def check(self) -> None:
        """Raise InvariantBroken unless R1, R2, R3 and O1 (of the driver) hold; looks at everything."""
        self._driver.check()
        if (kept := sum(map(_kept_bytes, self._queries.values()))) != self.memory.used_bytes:
            raise InvariantBroken(f"R3: operators keep {kept} bytes, counted as {self.memory.used_bytes}")
        held = sum(queue.size for queue in self._stage_of)
        held += sum(opened.table.changes_bytes for opened in self._queries.values() if opened.table is not None)
        if held != self.held_bytes:
            raise InvariantBroken(f"R2: queues hold {held} bytes, counted as {self.held_bytes}")
        for opened, stage in self._stage_of.values():
            can = stage.operator.can_run(stage.inputs)
            for queue in stage.inputs:
                queue.check()
                awake = can and (queue.tuples > 0 or len(stage.inputs) == 1)
                if awake != self._driver.is_awake(queue):
                    raise InvariantBroken(f"R1: query {opened.number}, {stage.operator.name}: awake is not {awake}")
        for opened in self._queries.values():
            for stage in opened.stages:
                checked = getattr(stage.operator, "check", None) or getattr(
                    getattr(stage.operator, "store", None), "check", None
                )
                if checked is not None:
                    checked()


def _kept_bytes(opened: _Open) -> int:
    return sum(stage.operator.size_bytes for stage in opened.stages)


def _drop_until(opened: _Open, moment: StreamMoment) -> None:
    """Results of a query up to a moment are not wanted: where that is easy, they are not even made."""
    opened.after = moment
    for stage in opened.stages:
        if isinstance(stage.operator, WindowJoin):
            stage.operator.after = moment


def _behind(batch: TupleBatch, after: StreamMoment) -> TupleBatch:
    """Only the results behind a moment."""
    if batch.first > after:
        return batch
    wanted = (batch.times > after.time) | ((batch.times == after.time) & (batch.seqs > after.seq))
    return batch.keep(wanted, ghosts=False)


def _complete(
    made: list[TupleBatch], columns: int, reached: StreamMoment, now: float
) -> tuple[TupleBatch, list[TupleBatch]]:
    """The results up to a moment as one batch, and the others: more of their moment will come. All that one tuple made
    goes out together, so that a moment is enough to say what has gone out."""
    if not made:
        return empty(columns, reached, now), []
    batch = joined(made)
    if batch.last <= reached:
        return batch._replace(reached=reached), []
    last = (batch.seqs == batch.seqs[-1]) & (batch.times == batch.times[-1])
    count = len(batch.seqs) - int(np.count_nonzero(last))
    if not count:
        return empty(columns, reached, now), [batch]
    batch, rest = batch.split(count)
    return batch._replace(reached=reached), [rest]
