"""Streams as columns, fed to a runner as a log would, for the engine's sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np

from hullcast.broker.streams.batch import StreamMoment, TupleBatch
from hullcast.broker.streams.live import STRETCH, MonotonicClock
from hullcast.broker.streams.operators.table_join import TableChanges
from hullcast.broker.streams.plan import StreamInput, StreamQuery, TableInput, WantedRanges
from hullcast.broker.streams.runner import MICRO_BATCH, Runner
from hullcast.network.wire.arrays import Floats
from hullcast.sim.experiments.studies.streams.baselines import STUDIED
from hullcast.sim.seeds import generator

#: Tuples that come at once, as they come from a log that is read ahead.
AT_ONCE = STRETCH
#: Rows of the table, and microseconds between two tuples.
ROWS, STEP_US = 1_000, 1_000.0
#: The range that a selection lets pass.
HALF = (0.2, 0.7)


class FedStream(NamedTuple):
    """A stream: its cells, the sequence number of its first tuple, and the step to the next one."""

    cells: Floats
    first: int = ROWS + 1  # behind the rows of the table
    step: int = 1

    def batch(self, start: int, stop: int, now: float) -> TupleBatch:
        """Some of its tuples."""
        some = self.cells[:, start:stop]
        seqs = self.first + self.step * np.arange(start, start + some.shape[1])
        times = STEP_US * seqs
        return TupleBatch(seqs, times, some, StreamMoment(float(times[-1]), int(seqs[-1])), now)


@dataclass(frozen=True, slots=True)
class FedFigures:
    """Tuples that came, results, and seconds: in all, while operators were stepped, and in operators."""

    tuples: int
    results: int
    seconds: float
    stepping_s: float
    operators_s: float
    steps: int

    @property
    def tuples_s(self) -> float:
        """Tuples a second."""
        return self.tuples / self.seconds

    @property
    def deciding(self) -> float:
        """The part of the time of steps that is not spent in operators: deciding who runs, and what follows from it."""
        return max(0.0, 1 - self.operators_s / self.stepping_s)


def path_query(low: float = HALF[0], high: float = HALF[1]) -> StreamQuery:
    """A selection that a part passes, a projection, and the join with a table of a thousand rows."""
    return StreamQuery(
        StreamInput("trades", 4, WantedRanges((1,), (((low, high),),))),
        TableInput("stock", 3, 0),
        ((0, 0),),
        ((0, 0), (0, 1), (1, 1)),
    )


def path_cells(tuples: int, seed: int) -> Floats:
    """Four columns: a key, of which every second one is in the table, and three numbers between 0 and 1."""
    draw = generator(seed, "bench/streams/path")
    cells = draw.random((4, tuples))
    cells[0] = draw.integers(0, 2 * ROWS, tuples)
    return cells


def table_cells(seed: int) -> Floats:
    """The rows of the table: keys, and two numbers."""
    return np.vstack([np.arange(float(ROWS)), generator(seed, "bench/streams/table").random((2, ROWS))])


def opened(queries: Sequence[StreamQuery], policy: str, seed: int, micro_batch: int = MICRO_BATCH) -> Runner:
    """A runner with these queries, and the rows of the table in it."""
    runner = Runner(STUDIED[policy](), MonotonicClock(), micro_batch=micro_batch)
    for query in queries:
        runner.open(query)
    if any(query.table is not None for query in queries):
        rows = table_cells(seed)
        runner.change("stock", TableChanges(np.arange(1, ROWS + 1), rows, np.zeros(ROWS, np.bool_)))
    return runner


def feed(
    runner: Runner,
    streams: Mapping[str, FedStream],
    start: int,
    stop: int,
    *,
    at_once: int = AT_ONCE,
    drained: Sequence[int] = (),
) -> FedFigures:
    """Tuples `start` to `stop` of each stream, so many at once of all together. `drained`: run the operators of these
    queries in a fixed order, whatever the policy says."""
    results, stepping_s, before = 0, 0.0, runner.statistics()
    some = max(1, at_once // len(streams))
    began = perf_counter()
    for place in range(start, stop, some):
        now = runner_now()
        for name, stream in streams.items():
            runner.arrive(name, stream.batch(place, min(place + some, stop), now))
        stepped = perf_counter()
        for number in drained:
            runner.drain(number)
        while runner.step():
            pass
        stepping_s += perf_counter() - stepped
        results += sum(len(one.batch.seqs) for one in runner.take())
    seconds, after = perf_counter() - began, runner.statistics()
    return FedFigures(
        len(streams) * (stop - start),
        results,
        seconds,
        stepping_s,
        after.operators_s - before.operators_s,
        after.steps - before.steps,
    )


def finish(runner: Runner, streams: Mapping[str, FedStream]) -> int:
    """Nothing more will come; the results that this gives."""
    for name in streams:
        runner.progress(name, StreamMoment(float("inf"), 1 << 60))
    while runner.step():
        pass
    return sum(len(one.batch.seqs) for one in runner.take())


def runner_now() -> float:
    """The time of a runner's clock."""
    return MonotonicClock().now()
