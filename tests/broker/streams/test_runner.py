"""Stream queries give what a plain evaluation over the log gives, in order: whatever the policy, however tuples are cut
into batches, wherever a query begins, and however often it is opened again."""

from __future__ import annotations

import random
from collections.abc import Iterable
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hullcast.broker.scheduling.policy import Item
from hullcast.broker.streams.batch import BEGINNING, StreamMoment, TupleBatch
from hullcast.broker.streams.operators.projection import Projection
from hullcast.broker.streams.operators.table_join import TableChanges
from hullcast.broker.streams.operators.windows import StreamWindow
from hullcast.broker.streams.plan import OperatorPlan, StreamInput, StreamQuery, TableInput, WantedRanges
from hullcast.broker.streams.policies import OPERATOR_POLICIES
from hullcast.broker.streams.runner import TURN_S, Runner
from tests.support.log_oracle import Logged, Result, comparable, evaluate

WIDTH = 3  # of streams and of the table: a key, a value, and the sequence number (streams), or another key (the table)


class SteppedClock:
    """Time that passes by what operators are taken to cost."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def pass_by(self, cost_s: float) -> None:
        self.time += cost_s


class AnyPolicy:
    """Whatever comes to mind."""

    name = "any"

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def pick(self, items: Iterable[Item], now: float) -> Item:
        return self._chance.choice(list(items))

    def served(self, item: Item, seconds: float, now: float) -> None:
        """Nothing is learned."""

    def measured(self, charts: Any, now: float) -> None:
        """Nothing is learned."""


codes = st.sampled_from([0.0, 1.0, 2.0, nan])
cells = st.tuples(codes, codes)
ends = st.sampled_from([-inf, 0.0, 1.0, 2.0, inf])
interval = st.tuples(ends, ends)
ranges = st.one_of(
    st.none(),
    st.builds(
        lambda boxes: WantedRanges((1, 0), tuple(boxes)),
        st.lists(st.tuples(interval, interval), min_size=0, max_size=2),
    ),
    st.builds(lambda low, high: WantedRanges((1,), (((low, high),),)), ends, ends),
)
windows = st.one_of(
    st.builds(lambda n: StreamWindow(rows=n), st.integers(1, 4)),
    st.builds(lambda t: StreamWindow(range=t), st.integers(0, 4)),
)
outs = st.lists(st.tuples(st.integers(0, 1), st.integers(0, WIDTH - 1)), min_size=1, max_size=4).map(tuple)
equal = st.sampled_from([((0, 0),), ((0, 1),), ((0, 0), (1, 1)), ()])


@st.composite
def queries(draw: st.DrawFn) -> StreamQuery:
    kind = draw(st.sampled_from(["windows", "windows", "self", "table", "alone"]))
    if kind == "alone":
        left = StreamInput("r", WIDTH, draw(ranges))
        return StreamQuery(left, None, (), tuple((0, column) for _, column in draw(outs)))
    if kind == "table":
        table = TableInput("t", WIDTH, draw(st.sampled_from([0, 2])), draw(ranges))
        return StreamQuery(StreamInput("r", WIDTH, draw(ranges)), table, draw(equal), draw(outs))
    left = StreamInput("r", WIDTH, draw(ranges), draw(windows))
    right = StreamInput("r" if kind == "self" else "s", WIDTH, draw(ranges), draw(windows))
    timed = draw(st.booleans()) or inf in (left.window.rows, right.window.rows)  # type: ignore[union-attr]
    return StreamQuery(left, right, draw(equal), draw(outs), timed)


def make_runner(policy: str, micro_batch: int) -> Runner:
    made: Any = AnyPolicy(random.Random(micro_batch)) if policy == "any" else OPERATOR_POLICIES[policy]()
    return Runner(made, SteppedClock(), micro_batch=micro_batch, turn=2 * micro_batch)


class Fed:
    """A runner with one query, given a log stretch by stretch."""

    def __init__(self, query: StreamQuery, policy: str, micro_batch: int) -> None:
        self.query, self.policy, self.micro_batch = query, policy, micro_batch
        self.runner = make_runner(policy, micro_batch)
        self.number = self.runner.open(query)
        self.fed = 0  # entries of the log
        self.times = [-inf] * len(query.streams)
        self.skipped: list[int] = [-1] * len(query.streams)  # entries of streams up to there are not read
        self.table_as_of = -1
        self.results: list[Result] = []
        self.reached = BEGINNING

    def feed(self, log: list[Logged], cuts: Iterable[int] = ()) -> None:
        """What the log has more, as several stretches."""
        for end in sorted({*(self.fed + cut for cut in cuts), len(log)}):
            self._feed(log[self.fed : end])
            self.fed = max(self.fed, min(end, len(log)))

    def _feed(self, stretch: list[Logged]) -> None:
        if not stretch:
            return
        table = self.query.table
        if table is not None:
            changes = [one for one in stretch if one.name == table.table and one.seq > self.table_as_of]
            self.runner.change_at(self.number, changes_of(changes))
        for leaf, stream in enumerate(self.query.streams):
            tuples = []
            for one in stretch:
                if one.name == stream.stream and one.seq > self.skipped[leaf]:
                    self.times[leaf] = max(self.times[leaf], one.time)
                    if one.kind == "tuple":
                        tuples.append((one.seq, self.times[leaf], one.cells))
            reached = StreamMoment(self.times[leaf], stretch[-1].seq)
            self.runner.arrive_at(self.number, leaf, batch_of(tuples, reached))

    def take(self) -> None:
        for number, batch in self.runner.take():
            assert number == self.number
            assert batch.cells.shape == (len(self.query.out), len(batch.seqs))
            for i in range(len(batch.seqs)):
                self.results.append(
                    Result(float(batch.times[i]), int(batch.seqs[i]), tuple(batch.cells[:, i].tolist()))
                )
            assert self.reached <= batch.reached
            self.reached = batch.reached

    def again(self, log: list[Logged]) -> None:
        """Another runner goes on from what the first one said last; what that one did since is lost. Windows are filled
        with all there is; without any, only what comes behind is read."""
        if self.reached == BEGINNING:
            return
        read = self.fed
        self.runner = make_runner(self.policy, self.micro_batch)
        self.number = self.runner.open(self.query, self.reached)
        base = BEGINNING if len(self.query.streams) > 1 else self.reached
        self.times, self.skipped = [base.time] * len(self.times), [base.seq] * len(self.skipped)
        if self.query.table is not None:
            self.table_as_of = base.seq
            rows = [one for one in log[:read] if one.name == self.query.table.table and one.seq <= self.table_as_of]
            self.runner.change_at(self.number, changes_of(rows))
        self.fed = 0
        self._feed(log[:read])
        self.fed = read


def batch_of(tuples: list[tuple[int, float, tuple[float, ...]]], reached: StreamMoment) -> TupleBatch:
    seqs = np.array([seq for seq, _, _ in tuples], np.int64)
    times = np.array([time for _, time, _ in tuples], np.float64)
    columns = np.array([one for _, _, one in tuples], np.float64).reshape(len(tuples), WIDTH).T
    return TupleBatch(seqs, times, np.ascontiguousarray(columns), reached, 0.0)


def changes_of(changes: list[Logged]) -> TableChanges:
    return TableChanges(
        np.array([one.seq for one in changes], np.int64),
        np.ascontiguousarray(np.array([one.cells for one in changes], np.float64).reshape(len(changes), WIDTH).T),
        np.array([one.kind == "gone" for one in changes], np.bool_),
    )


def ordered(query: StreamQuery, results: list[Result]) -> list[Any]:
    """As they came; but the rows of a table that meet one tuple come in any order."""
    found = comparable(results)
    return found if query.table is None else sorted(found)


class Watched:
    """A log that grows, and a runner that is given it piece by piece, beside one that begins in the middle."""

    def __init__(self, query: StreamQuery, policy: str, micro_batch: int) -> None:
        self.query, self.log = query, list[Logged]()
        self.main = Fed(query, policy, micro_batch)
        self.late: Fed | None = None
        self.before_late = 0

    def _add(self, kind: str, name: str, row: tuple[float, ...] = (), time: float = 0.0) -> None:
        seq = len(self.log) + 1
        if kind == "tuple":
            row = (*row, float(seq))
        self.log.append(Logged(seq, kind, name, row, time))

    def publish(self, name: str, rows: list[tuple[tuple[float, ...], int]]) -> None:
        for row, time in rows:
            self._add("tuple", name, row, float(time))

    def heartbeat(self, name: str, time: int) -> None:
        self._add("reached", name, time=float(time))

    def change_table(self, rows: list[tuple[int, float]], gone: bool) -> None:
        at = 0 if self.query.table is None else self.query.table.key
        for key, code in rows:
            row = [code, code, code]
            row[at] = float(key)
            self._add("gone" if gone else "row", "t", tuple(row))

    def _chosen(self, late: bool) -> Fed:
        return self.late if late and self.late is not None else self.main

    def read(self, cuts: list[int], late: bool) -> None:
        self._chosen(late).feed(self.log, cuts)

    def step(self, steps: int, late: bool) -> None:
        for _ in range(steps):
            self._chosen(late).runner.step()

    def take(self) -> None:
        self.main.take()

    def open_again(self) -> None:
        """The process was killed: what it had not said is lost, and made again."""
        self.main.again(self.log)

    def open_in_the_middle(self) -> None:
        """Windows are filled from before; results are those that a query from the beginning would have from now on."""
        if self.late is None:
            self.late = Fed(self.query, self.main.policy, self.main.micro_batch)
            self.late.feed(self.log)
            self.late.runner.drain(self.late.number)
            self.late.runner.skip(self.late.number)
            self.before_late = len(evaluate(self.query, self.log))

    def check(self) -> int:
        """All results are there, and no others; how many."""
        wanted = evaluate(self.query, self.log)
        for fed, first in ((self.main, 0), (self.late, self.before_late)):
            if fed is None:
                continue
            fed.take()
            got = comparable(fed.results)
            if self.query.table is None:
                assert got == comparable(evaluate(self.query, self.log[: fed.fed])[first:])[: len(got)]
            fed.feed(self.log)
            while fed.runner.step():
                pass
            fed.take()
            fed.runner.check()
            assert ordered(self.query, fed.results) == ordered(self.query, wanted[first:])
        return len(wanted)


rows = st.lists(st.tuples(cells, st.integers(0, 6)), min_size=1, max_size=6)
times = st.integers(0, 8)


class StreamMachine(RuleBasedStateMachine):
    @initialize(
        query=queries(),
        policy=st.sampled_from(["any", *OPERATOR_POLICIES]),
        micro_batch=st.sampled_from([1, 2, 3, 7, 1000]),
    )
    def begin(self, query: StreamQuery, policy: str, micro_batch: int) -> None:
        self.watched = Watched(query, policy, micro_batch)

    @rule(of_r=rows, of_s=rows)
    def publish(self, of_r: list[Any], of_s: list[Any]) -> None:
        self.watched.publish("r", of_r)
        self.watched.publish("s", of_s)

    @rule(name=st.sampled_from("rs"), time=times)
    def heartbeat(self, name: str, time: int) -> None:
        self.watched.heartbeat(name, time)

    @rule(keys=st.lists(st.tuples(st.integers(0, 2), codes), min_size=1, max_size=3), gone=st.booleans())
    def change_table(self, keys: list[tuple[int, float]], gone: bool) -> None:
        self.watched.change_table(keys, gone)

    @rule(cuts=st.lists(st.integers(0, 5), max_size=2), late=st.booleans())
    def read(self, cuts: list[int], late: bool) -> None:
        self.watched.read(cuts, late)

    @rule(steps=st.integers(1, 6), late=st.booleans())
    def step(self, steps: int, late: bool) -> None:
        self.watched.step(steps, late)

    @rule()
    def take(self) -> None:
        self.watched.take()

    @rule()
    def open_again(self) -> None:
        self.watched.open_again()

    @rule()
    def open_in_the_middle(self) -> None:
        self.watched.open_in_the_middle()

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "watched"):
            self.watched.main.runner.check()

    def teardown(self) -> None:
        if hasattr(self, "watched"):
            self.watched.check()


TestStreams = StreamMachine.TestCase
TestStreams.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)


#: Results in all logs of a seed together, so that the test below says something.
ENOUGH = 4


def some_query(kind: str, chance: random.Random, memory: int | None = None) -> StreamQuery:
    """A query over few values, so that most tuples find partners."""

    def some_ranges() -> WantedRanges | None:
        return chance.choice(
            [
                None,
                None,
                WantedRanges((1,), (((0.0, 1.0),),)),
                WantedRanges((1, 0), (((1, 2), (0, 1)), ((0, 0), (1, 2)))),
            ]
        )

    def some_window() -> StreamWindow:
        return chance.choice([StreamWindow(rows=chance.randint(1, 6)), StreamWindow(range=float(chance.randint(0, 4)))])

    pairs = chance.choice([((0, 0),), ((0, 0),), ((0, 1),), ((1, 0), (0, 1))])
    out = ((0, 2), (1, 2), (0, 0)) if chance.random() < 0.5 else ((1, 1), (0, 1), (1, 2), (0, 2))
    left = StreamInput("r", WIDTH, some_ranges(), None if kind == "table" else some_window())
    if kind == "table":
        return StreamQuery(left, TableInput("t", WIDTH, chance.choice([0, 2]), some_ranges()), pairs, out)
    right = StreamInput("r" if kind == "self" else "s", WIDTH, some_ranges(), some_window())
    timed = chance.random() < 0.7 or inf in (left.window.rows, right.window.rows)  # type: ignore[union-attr]
    return StreamQuery(left, right, pairs, out, timed, memory=memory)


@pytest.mark.parametrize("kind", ["windows", "self", "table", "memory"])
@pytest.mark.parametrize("seed", range(25))
def test_results_are_those_of_the_definition(kind: str, seed: int) -> None:
    chance = random.Random(f"{kind}/{seed}")
    policy = chance.choice(["any", *OPERATOR_POLICIES])
    found = 0
    for micro_batch in (1, 3, 16, 1000):
        enough = 1000 if kind == "memory" else None
        watched = Watched(some_query(kind, chance, enough), policy, micro_batch)
        time = 0
        for _ in range(chance.randint(20, 60)):
            for name in "rs":
                count = chance.choice([0, 1, 1, 2, 5])
                watched.publish(
                    name,
                    [
                        (
                            tuple(chance.choice([0.0, 1.0, 2.0, 1.0, nan]) for _ in range(2)),
                            time + chance.randint(-2, 3),
                        )
                        for _ in range(count)
                    ],
                )
            time += chance.choice([0, 0, 1, 2])
            doing = chance.random()
            if doing < 0.2:
                watched.heartbeat(chance.choice("rs"), time)
            elif doing < 0.5:
                watched.change_table(
                    [(chance.randint(0, 5), chance.choice([0.0, 1.0, 2.0, nan]))], chance.random() < 0.3
                )
            elif doing < 0.75:
                watched.read([chance.randint(0, 9)], chance.random() < 0.3)
            elif doing < 0.9:
                watched.take()
            elif doing < 0.95:
                watched.open_again()
            else:
                watched.open_in_the_middle()
            watched.step(chance.randint(0, 8), chance.random() < 0.3)
            watched.main.runner.check()
        found += watched.check()
    assert found > ENOUGH


@pytest.mark.parametrize("seed", range(20))
def test_with_less_memory_results_are_some_of_the_others_in_order_however_they_are_cut_into_batches(seed: int) -> None:
    chance = random.Random(f"less/{seed}")
    query = some_query("windows", chance, memory=chance.randint(1, 4))
    log: list[Logged] = []
    for seq in range(1, 200):
        cells = (*(chance.choice([0.0, 1.0, 2.0, nan]) for _ in range(2)), float(seq))
        log.append(Logged(seq, "tuple", chance.choice("rs"), cells, float(seq // 3)))
    found = []
    for micro_batch in (1, 7, 1000):
        fed = Fed(query, "chain", micro_batch)
        fed.feed(log, [50, 51])
        while fed.runner.step():
            pass
        fed.runner.check()
        fed.take()
        found.append(comparable(fed.results))
    assert found[0] == found[1] == found[2]
    every = iter(comparable(evaluate(query, log)))
    assert all(one in every for one in found[0])  # a subsequence: what is found is not looked at again


class SlowOperator(Projection):
    """Takes so long for each run."""

    def __init__(self, clock: SteppedClock, run_s: float) -> None:
        super().__init__(np.array([0]))
        self._clock, self._run_s = clock, run_s

    def apply(self, batch: TupleBatch) -> TupleBatch:
        self._clock.time += self._run_s
        return super().apply(batch)


@pytest.mark.parametrize(("run_s", "tuples"), [(0.0, 80), (TURN_S / 4, 40), (TURN_S, 10), (9 * TURN_S, 10)])
def test_a_turn_ends_after_a_while_or_after_so_many_tuples(run_s: float, tuples: int) -> None:
    clock = SteppedClock()
    runner = Runner(OPERATOR_POLICIES["fifo"](), clock, micro_batch=10, turn=80)
    plan = OperatorPlan(((SlowOperator(clock, run_s),),), (), None)
    runner.open(StreamQuery(StreamInput("s", 1), None, (), ((0, 0),)), plan=plan)
    seqs = np.arange(1, 101)
    runner.arrive("s", TupleBatch(seqs, seqs.astype(float), seqs[None].astype(float), StreamMoment(100.0, 100), 0.0))
    assert runner.step()
    assert runner.statistics().waiting == 100 - tuples


def test_what_a_burst_was_measured_at_is_known_when_nothing_follows_it() -> None:
    clock = SteppedClock()
    runner = Runner(OPERATOR_POLICIES["chain"](), clock)
    ranges = WantedRanges((0,), (((0.0, 1.0),),))
    number = runner.open(StreamQuery(StreamInput("s", 1, ranges), None, (), ((0, 0),)))
    cells = np.arange(1000.0)[None] % 10
    seqs = np.arange(1, 1001)
    runner.arrive("s", TupleBatch(seqs, np.zeros(1000), cells, StreamMoment(0.0, 1000), 0.0))
    while runner.step():
        clock.time += 0.001
    clock.time += 10.0
    (path,) = runner.paths(number)
    assert path.operators[0].selectivity == pytest.approx(0.2)
