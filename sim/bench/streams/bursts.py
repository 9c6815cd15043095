"""Queue memory of four operators in a burst, by policy, beside the study's simulator.

The operators are the third query of `hullcast sim streams` ("four": the third operator is fast and selective), as real
selections and a projection over micro-batches. Time is simulated: each operator takes for a tuple what its chart says,
so a run is the same on every machine. Policies learn the chart by measuring, as they do in a server. Arrivals are those
of the study, each one group of tuples, so that a burst is many turns of an operator long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hullcast.broker.streams.batch import StreamMoment, TupleBatch
from hullcast.broker.streams.operators.operator import OneInput
from hullcast.broker.streams.operators.projection import Projection
from hullcast.broker.streams.operators.selection import Selection, SelectionBoxes
from hullcast.broker.streams.plan import OperatorPlan, StreamInput, StreamQuery
from hullcast.broker.streams.runner import Runner
from hullcast.network.wire.arrays import Floats
from hullcast.sim.bench.frame.benchmark import Tick
from hullcast.sim.bench.frame.timing import medians
from hullcast.sim.experiments.studies.streams.baselines import STUDIED
from hullcast.sim.experiments.studies.streams.workload import (
    BURSTS,
    CHAIN,
    FOUR,
    FRACTION,
    POLICIES,
    QUERIES,
    StreamLoad,
    load_of,
    policy_of,
)
from hullcast.sim.seeds import generator

#: Tuples of an arrival of the study, and seconds of its unit of time for one of them: a tuple takes 10 units.
GROUP, UNIT_S = 1_024, 5e-7
#: Groups of which the cells are drawn; then they come again.
DRAWN = 256
CHART = QUERIES[FOUR][0].charts()[0]


@dataclass(frozen=True, slots=True)
class BurstPeaks:
    """One policy in one draw: most that waited, in tuples as they arrive, and on average over the time of arrivals."""

    peak: float
    average: float
    simulated_peak: float  # by the simulator, in the same unit


@dataclass(frozen=True, slots=True)
class BurstLine:
    """One policy over all draws."""

    policy: str
    draws: tuple[BurstPeaks, ...]

    @property
    def middle(self) -> BurstPeaks:
        """Medians."""
        return medians(self.draws)


@dataclass(frozen=True, slots=True)
class BurstSection:
    """All policies on the same arrivals."""

    tuples: int
    lines: tuple[BurstLine, ...]

    def ratios(self, policy: str, *, simulated: bool = False) -> list[float]:
        """The peak of a policy by that of Chain, draw by draw."""

        def peaks(name: str) -> list[float]:
            (line,) = (line for line in self.lines if line.policy == name)
            return [draw.simulated_peak if simulated else draw.peak for draw in line.draws]

        return [a / b for a, b in zip(peaks(policy), peaks(CHAIN), strict=True)]


class WorkClock:
    """Simulated time, which operators move by what they take; the runner's own guess of that does not count."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def pass_by(self, cost_s: float) -> None:
        """Nothing: the operator has said it."""


class CostlyOperator(OneInput):
    """An operator that takes so much simulated time for each tuple."""

    def __init__(self, operator: OneInput, name: str, clock: WorkClock, tuple_s: float) -> None:
        self.name = name
        self._operator, self._clock, self._tuple_s = operator, clock, tuple_s

    def apply(self, batch: TupleBatch) -> TupleBatch:
        self._clock.time += self._tuple_s * len(batch.seqs)
        return self._operator.apply(batch)

    def held(self) -> Iterable[Floats]:
        return self._operator.held()


def bursts(arrivals: int, draws: int, seed: int, tick: Tick) -> BurstSection:
    """So many arrivals of the study, in some draws; a tick for each policy and draw."""
    found: dict[str, list[BurstPeaks]] = {name: [] for name in POLICIES}
    for draw in range(draws):
        load = load_of(FOUR, BURSTS, arrivals, FRACTION, seed + draw, ())
        for name in POLICIES:
            tick(f"bursts, {name}, draw {draw + 1} of {draws}")
            found[name].append(run_burst(name, load, seed + draw))
    return BurstSection(arrivals * GROUP, tuple(BurstLine(name, tuple(of)) for name, of in found.items()))


def run_burst(policy: str, load: StreamLoad, seed: int) -> BurstPeaks:
    """Let the runner work on a load."""
    (arrivals,) = load.arrivals
    simulated = load.run(policy_of(policy))
    clock, times = WorkClock(), (GROUP * UNIT_S * arrivals.times).tolist()
    runner = Runner(STUDIED[policy](), clock)
    query = StreamQuery(StreamInput("burst", 3), None, (), ((0, 0),))
    runner.open(query, plan=OperatorPlan((four_operators(clock),), (), None))
    cells = generator(seed, "bench/streams/bursts").random((3, DRAWN * GROUP))
    tuple_bytes, area, place = 1.0, 0.0, 0
    while place < len(times) or not runner.idle:
        if runner.idle:
            clock.time = max(clock.time, times[place])
        while place < len(times) and times[place] <= clock.time:
            batch = _group(cells, place, times[place])
            tuple_bytes = batch.size_bytes / GROUP
            runner.arrive("burst", batch)
            place += 1
        before, held = clock.time, runner.held_bytes
        runner.step()
        area += held * (clock.time - before)
        runner.take()
    span_s = times[-1] - times[0]
    return BurstPeaks(runner.most_held_bytes / tuple_bytes, area / tuple_bytes / span_s, simulated.peak * GROUP)


def four_operators(clock: WorkClock) -> tuple[CostlyOperator, ...]:
    """Three selections, each by a column of its own, and a projection, as slow and selective as the chart says."""
    made = []
    steps = zip(pairwise(CHART.times), pairwise(CHART.sizes), strict=True)
    for place, ((began, ended), (size, left)) in enumerate(steps):
        operator: OneInput
        if place + 1 < CHART.operators:
            box = SelectionBoxes(np.array([place]), np.array([[0.0]]), np.array([[left / size]]))
            operator = Selection(box)
        else:
            operator = Projection(np.array([0]))
        made.append(CostlyOperator(operator, f"O{place + 1}", clock, UNIT_S * (ended - began) / size))
    return tuple(made)


def _group(cells: Floats, place: int, now: float) -> TupleBatch:
    seqs = 1 + place * GROUP + np.arange(GROUP)
    start = place % DRAWN * GROUP
    some = cells[:, start : start + GROUP]
    return TupleBatch(seqs, np.full(GROUP, now), some, StreamMoment(now, int(seqs[-1])), now)
