"""What scheduling costs: the share of time spent outside operators, by policy and load.

Queries have a path of three operators each, over one stream. Beside each policy, the same without one: operators in a
fixed order (`Runner.drain`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from hullcast.broker.streams.plan import StreamQuery
from hullcast.sim.bench.frame.benchmark import Tick
from hullcast.sim.bench.frame.timing import Spread, in_turns, spread
from hullcast.sim.bench.streams.feeding import AT_ONCE, FedFigures, FedStream, feed, opened, path_cells, path_query
from hullcast.sim.experiments.studies.streams.baselines import STUDIED

FIXED = "fixed order"
#: Queues before each query's operators.
QUEUES_EACH = 3


@dataclass(frozen=True, slots=True)
class SchedulingCase:
    """So many queries, and tuples that come at once, and in all."""

    queries: int
    at_once: int
    tuples: int

    @property
    def name(self) -> str:
        """How it is called."""
        return f"{QUEUES_EACH * self.queries} queues, {self.at_once:,} tuples at once"


#: The goal is judged by the first two; the last one is the load at which operators have least to do for a decision.
SCHEDULING_CASES = (
    SchedulingCase(4, AT_ONCE, 400_000),
    SchedulingCase(34, AT_ONCE, 80_000),
    SchedulingCase(4, 64, 40_000),
)
JUDGED = 2


@dataclass(frozen=True, slots=True)
class SchedulingLine:
    """One policy under one load."""

    policy: str
    deciding: float  # share of the time of steps
    step_us: float  # of it, a step
    steps: int
    by_fixed_order: Spread  # time of steps / that in a fixed order, round by round


@dataclass(frozen=True, slots=True)
class SchedulingLoad:
    """All policies under one load."""

    case: SchedulingCase
    lines: tuple[SchedulingLine, ...]


def scheduling(cases: tuple[SchedulingCase, ...], rounds: int, seed: int, tick: Tick) -> tuple[SchedulingLoad, ...]:
    """All policies and the fixed order in turns, under each load."""
    return tuple(_load(case, rounds, seed, tick) for case in cases)


def unlike_queries(count: int) -> list[StreamQuery]:
    """Paths that are not alike, of which each lets half of the tuples pass."""
    return [path_query(0.4 * i / count, 0.4 * i / count + 0.5) for i in range(count)]


def _load(case: SchedulingCase, rounds: int, seed: int, tick: Tick) -> SchedulingLoad:
    streams, queries = {"trades": FedStream(path_cells(case.tuples, seed))}, unlike_queries(case.queries)
    every = range(1, len(queries) + 1)

    def fed(policy: str, drained: Sequence[int], turn: int) -> FedFigures:
        runner = opened(queries, policy, seed)
        return feed(runner, streams, 0, case.tuples, at_once=case.at_once, drained=drained)

    ways = {name: partial(fed, name, ()) for name in STUDIED} | {FIXED: partial(fed, "fifo", every)}
    found = in_turns(ways, rounds, tick, f"scheduling, {case.name}")
    fixed = found.pop(FIXED)
    return SchedulingLoad(case, tuple(_line(name, of, fixed) for name, of in found.items()))


def _line(policy: str, of: list[FedFigures], fixed: list[FedFigures]) -> SchedulingLine:
    return SchedulingLine(
        policy,
        median(one.deciding for one in of),
        median(1e6 * (one.stepping_s - one.operators_s) / one.steps for one in of),
        of[-1].steps,
        spread(one.stepping_s / other.stepping_s for one, other in zip(of, fixed, strict=True)),
    )
