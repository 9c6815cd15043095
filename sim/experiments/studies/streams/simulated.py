"""Streams by a simulated clock: abstract operators, arriving tuples, and a policy that picks.

The decisions of policies are compiled (`simulated_world.pick`), which is much faster than to ask the objects; tests
ask them, too, and hold the two to the same decisions.

`least_memory` is what no schedule can be below, even of somebody who knows all that will come: what Chain needs on the
lower envelopes of the charts (Babcock et al. (2003)).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hullcast.broker.streams.chart import Chart
from hullcast.broker.streams.policies.bounded_chain import RESERVE, BoundedChain
from hullcast.broker.streams.policies.chain import ChainPolicy
from hullcast.broker.streams.policies.policy import FifoPolicy, OperatorQueue, Priorities
from hullcast.sim.experiments.studies.streams.baselines import GreedyPolicy, RoundRobinPolicy
from hullcast.sim.experiments.studies.streams.overdue import Overdue
from hullcast.sim.experiments.studies.streams.simulated_world import (
    AREA,
    BOUND,
    BY_OVERDUE,
    BY_PRIORITY,
    BY_SPARE_TIME,
    BY_WHOLE_QUEUES,
    HEARTBEATS,
    IN_TURN,
    LAST,
    NOBODY,
    NOW,
    PEAK,
    PICKS,
    QUANTUM,
    SAMPLES,
    SEED,
    SWITCHES,
    TURN,
    URGENT,
    SimulatedWorld,
    drain,
    run,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hullcast.broker.streams.policies.policy import OperatorPolicy
    from hullcast.network.wire.arrays import Floats


@dataclass(frozen=True, slots=True)
class SimulatedOperator:
    """Takes so long for a unit of its input, and makes so many of it. (Of the last one of a query all leaves.)"""

    cost: float
    selectivity: float = 1.0


@dataclass(frozen=True, slots=True)
class SimulatedQuery:
    """One stream through its operators; or two, each through its own, then through a window join and what follows it.

    The join takes tuples of both in the order in which they arrived, and blocks while one of its inputs is empty.
    """

    before: tuple[tuple[SimulatedOperator, ...], ...]  # by stream
    join: SimulatedOperator | None = None
    after: tuple[SimulatedOperator, ...] = ()

    def __post_init__(self) -> None:
        streams = 1 if self.join is None else 2
        if len(self.before) != streams or (self.join is None and (self.after or not self.before[0])):
            raise ValueError("a query has operators for one stream; or two streams, a join, and operators behind it")

    @classmethod
    def of(cls, chart: Chart) -> SimulatedQuery:
        """The query of one stream that has this chart."""
        sizes, times = chart.sizes, chart.times
        return cls(
            (
                tuple(
                    SimulatedOperator((times[at + 1] - times[at]) / sizes[at], sizes[at + 1] / sizes[at])
                    for at in range(chart.operators)
                    if sizes[at] > 0  # nothing comes farther
                ),
            )
        )

    def paths(self) -> list[tuple[SimulatedOperator, ...]]:
        """By stream all operators from there to the output."""
        shared = () if self.join is None else (self.join, *self.after)
        return [(*own, *shared) for own in self.before]

    def charts(self) -> list[Chart]:
        """By stream the progress chart of its path."""
        return [Chart.of([each.selectivity for each in path], [each.cost for each in path]) for path in self.paths()]


@dataclass(frozen=True, slots=True)
class StreamArrivals:
    """When the tuples of a stream arrive, in order, and how large they are; none: each is one unit."""

    times: Floats
    sizes: Floats | None = None

    def weights(self) -> Floats:
        """By tuple its size."""
        return np.ones(len(self.times)) if self.sizes is None else self.sizes


@dataclass(frozen=True, slots=True)
class SimulatedStreams:
    """What became of it."""

    memory: Floats  # in all queues, at the samples
    peak: float
    area: float  # memory times seconds
    ended: float  # when all had left
    latency: Floats  # by tuple in order of arrival, from arrival to when it left; nan: it was dropped on its way
    starved: Floats  # by queue, the longest that something waited in it and its operator did not run
    picks: int
    switches: int  # how often another operator ran than before


@dataclass(frozen=True, slots=True)
class LeastMemory:
    """What no schedule can be below."""

    memory: Floats
    peak: float
    area: float


def charts_of(queries: Sequence[SimulatedQuery]) -> list[Chart]:
    """The charts of all paths, by number: query by query, stream by stream."""
    return [chart for query in queries for chart in query.charts()]


def simulate(
    policy: OperatorPolicy,
    queries: Sequence[SimulatedQuery],
    arrivals: Sequence[StreamArrivals],
    samples: Floats | None = None,
    *,
    seed: int | None = None,
    heartbeats: bool = False,
    charts: Sequence[Chart | None] | None = None,
    whole: bool = False,
) -> SimulatedStreams:
    """Let a policy run queries whose streams (of all queries, in order) have these arrivals, until all have left.

    `seed`: tuples pass operators as a whole or not at all, by chance, the same for every policy; None: each becomes
    smaller, or larger, by the selectivity. `heartbeats`: joins know how far their streams are; else an empty input
    blocks until its stream has ended. `charts`: what the policy believes; None: what is true. `samples`: moments.
    `whole`: Chain and Greedy decide only when a queue is empty, or something arrived.
    """
    world, queues = world_of(queries, arrivals, samples, seed=seed, heartbeats=heartbeats)
    policy.measured(charts_of(queries) if charts is None else charts, 0.0)
    run(world, *_compiled(policy, queues, whole))
    return found_in(world)


def found_in(world: SimulatedWorld) -> SimulatedStreams:
    """What became of a world, in the end."""
    return SimulatedStreams(
        world.memory,
        float(world.clock[PEAK]),
        float(world.clock[AREA]),
        float(world.clock[NOW]),
        world.left - world.arrived,
        world.starved,
        int(world.counts[PICKS]),
        int(world.counts[SWITCHES]),
    )


def least_memory(
    charts: Sequence[Chart], arrivals: Sequence[StreamArrivals], samples: Floats | None = None
) -> LeastMemory:
    """The memory that Chain needs on the envelopes of these paths: no schedule needs less at any moment.

    With window joins it is a bound still, but nobody may be able to reach it: a blocked join is not part of it. Where
    tuples pass by chance it holds of what is to be expected.
    """
    times, stream, weight = _merged(arrivals)
    segments = sorted(
        (
            (chart.slopes()[begin], path, chart.times[end] - chart.times[begin])
            for path, chart in enumerate(charts)
            for begin, end in pairwise(chart.envelope())
        ),
        key=lambda segment: -segment[0],
    )
    slope, owner, length = zip(*segments, strict=True)
    at = np.zeros(0) if samples is None else samples
    memory, found = np.zeros(len(at)), np.zeros(3)
    drain(times, stream, weight, np.array(slope), np.array(owner, np.int64), np.array(length), at, memory, found)
    return LeastMemory(memory, float(found[0]), float(found[1]))


def _merged(arrivals: Sequence[StreamArrivals]) -> tuple[Floats, np.ndarray, Floats]:
    """All tuples in the order in which they arrive; of one moment by stream."""
    times = np.concatenate([each.times for each in arrivals]).astype(np.float64)
    stream = np.repeat(np.arange(len(arrivals)), [len(each.times) for each in arrivals])
    weight = np.concatenate([each.weights() for each in arrivals]).astype(np.float64)
    order = np.argsort(times, kind="stable")
    return times[order], stream[order], weight[order]


def world_of(
    queries: Sequence[SimulatedQuery],
    arrivals: Sequence[StreamArrivals],
    samples: Floats | None,
    *,
    seed: int | None,
    heartbeats: bool,
) -> tuple[SimulatedWorld, list[OperatorQueue]]:
    """The world before anything has happened, and its queues as policies know them."""
    queues: list[OperatorQueue] = []
    operators: list[SimulatedOperator] = []
    number: dict[tuple[int, int], int] = {}  # by path and place
    joins: list[tuple[int, int]] = []
    path = 0
    for name, query in enumerate(queries):
        for stream, own in enumerate(query.paths()):
            apart = len(query.before[stream]) + (query.join is not None)  # queues that are this stream's only
            for place, operator in enumerate(own):
                if stream and place >= apart:  # as that of the first stream, which has it at another place
                    shared = number[path - 1, place - apart + len(query.before[0]) + 1]
                    number[path, place] = shared
                    queues[shared].also = ((path, place),)
                    continue
                number[path, place] = len(queues)
                queues.append(OperatorQueue(f"query {name}", 0.0, path, place))
                operators.append(operator)
            path += 1
        if query.join is not None:
            left, right = number[path - 2, len(query.before[0])], number[path - 1, len(query.before[1])]
            joins += [(left, right), (right, left)]
    if len(arrivals) != path:
        raise ValueError(f"these queries have {path} streams, and there are arrivals of {len(arrivals)}")
    many = len(queues)
    following = np.full(many, NOBODY, np.int64)
    for (of, place), at in number.items():
        following[at] = number.get((of, place + 1), NOBODY)
    partner = np.full(many, NOBODY, np.int64)
    for mine, theirs in joins:
        partner[mine] = theirs
    times, streams, weights = _merged(arrivals)
    moments = np.zeros(0) if samples is None else np.ascontiguousarray(samples, np.float64)
    counts = np.zeros(7, np.int64)
    counts[LAST], counts[HEARTBEATS], counts[SEED] = NOBODY, heartbeats, -1 if seed is None else seed
    clock = np.zeros(4)
    clock[NOW] = times[0] if len(times) else 0.0
    counts[SAMPLES] = np.searchsorted(moments, clock[NOW])  # before anything has arrived there is nothing
    world = SimulatedWorld(
        path=np.array([queue.path for queue in queues], np.int64),
        place=np.array([queue.place for queue in queues], np.int64),
        cost=np.array([operator.cost for operator in operators], np.float64),
        selectivity=np.array([operator.selectivity for operator in operators], np.float64),
        following=following,
        partner=partner,
        head=np.full(many, NOBODY, np.int64),
        tail=np.full(many, NOBODY, np.int64),
        size=np.zeros(many),
        since=np.zeros(many),
        starved=np.zeros(many),
        first=np.array([number[of, 0] for of in range(path)], np.int64),
        coming=np.array([len(each.times) for each in arrivals], np.int64),
        arrived=times,
        stream=streams,
        weight=weights,
        worked=np.zeros(len(times)),
        link=np.full(len(times), NOBODY, np.int64),
        left=np.full(len(times), np.nan),
        at=moments,
        memory=np.zeros(len(moments)),
        clock=clock,
        counts=counts,
    )
    return world, queues


def _compiled(
    policy: OperatorPolicy, queues: Sequence[OperatorQueue], whole: bool
) -> tuple[int, Floats, Floats, Floats, float]:
    """How the compiled `pick` decides as this policy does: rule, priorities, work remaining, state and reserve."""
    state = np.zeros(7)
    state[TURN], state[URGENT] = NOBODY, -np.inf
    nothing = np.zeros(len(queues))

    def by_queue(numbers: Priorities) -> Floats:
        return np.array([numbers.of(queue) for queue in queues])

    match policy:
        case Overdue():
            state[BOUND] = policy.bound_s
            return BY_OVERDUE, by_queue(policy.priorities), nothing, state, 0.0
        case ChainPolicy() | GreedyPolicy():
            return BY_WHOLE_QUEUES if whole else BY_PRIORITY, by_queue(policy.priorities), nothing, state, 0.0
        case FifoPolicy():
            return BY_PRIORITY, nothing, nothing, state, 0.0
        case RoundRobinPolicy():
            state[QUANTUM] = policy.quantum_s
            return IN_TURN, nothing, nothing, state, 0.0
        case BoundedChain():
            state[BOUND], remaining = policy.bound_s, by_queue(policy.remaining)
            return BY_SPARE_TIME, by_queue(policy.priorities), remaining, state, RESERVE * policy.bound_s
    raise TypeError(f"{policy.name} is not compiled")
