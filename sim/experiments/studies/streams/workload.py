"""What all parts need: queries, arrivals that are real or drawn, the policies by name, words.

The paper's figures have lost their digits in the copy that we have, so the charts here are ours, with the shapes that
the text describes. Work is in units of time in which the processor does one; a tuple takes 10 of them in all, if its
query has one stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hullcast.broker.streams.chart import Chart
from hullcast.broker.streams.policies.chain import ChainPolicy
from hullcast.broker.streams.policies.policy import FifoPolicy, OperatorPolicy
from hullcast.network.wire.arrays import Floats
from hullcast.sim.experiments.studies.streams.baselines import GreedyPolicy, RoundRobinPolicy
from hullcast.sim.experiments.studies.streams.simulated import (
    LeastMemory,
    SimulatedOperator,
    SimulatedQuery,
    SimulatedStreams,
    StreamArrivals,
    charts_of,
    least_memory,
    simulate,
)
from hullcast.sim.seeds import generator, seed_of
from hullcast.sim.traces.bursts import pareto_bursts
from hullcast.sim.traces.packets import PacketTrace

CITED = "Babcock et al. (2003)"
WORDS: Mapping[str, str] = {
    CITED: "B. Babcock, S. Babu, M. Datar, R. Motwani, Chain: Operator Scheduling for Memory Minimization in Data "
    "Stream Systems, SIGMOD 2003",
    "memory": "what waits in all queues, in units: a tuple on arrival is one (of the Ethernet trace: by its size)",
    "peak, average": "the most memory at any moment, and memory over the time in which tuples arrive",
    "bound": "what no schedule can be below, even of somebody who knows all that will come: Chain on lower envelopes "
    "(if tuples pass by chance, on average)",
    "excess": "memory less the bound, the most at 4,000 moments",
    "chain, fifo": "policies that ship, in broker/streams/policies",
    "greedy": "the operator that frees memory fastest, each seen by itself",
    "round-robin": "every operator in turn for 10 units of time, the work of one tuple",
    "bounded-chain": "ours: Chain, unless a tuple would be later than the bound; `overdue` is the simple rule, to run "
    "tuples first that are older than the bound",
    "bursts": "flows begin by a Poisson process, send a tuple per unit of time, and last for Pareto-distributed times "
    "(shape 1.5); load 0.5",
    "Ethernet, UDP": "the packet traces BC-pAug89 and DEC-PKT-1; load 0.8",
    "load": "work that arrives, as part of the time",
    "by fraction, by chance": "every tuple shrinks by the selectivity, as charts have it; or passes as a whole or not "
    "at all, as real ones do",
    "latency": "from the arrival of a tuple to when it leaves as a result",
    "starved": "the longest time in which something waited before an operator and it did not run",
}

CHAIN, GREEDY, FIFO, ROUND_ROBIN = "chain", "greedy", "fifo", "round-robin"
POLICIES = (CHAIN, GREEDY, FIFO, ROUND_ROBIN)
#: Round-Robin's turn.
QUANTUM = 10.0

TWO, FOUR, STORED, WINDOW, TOGETHER = "two", "four", "stored join", "window join", "together"
_TWO = SimulatedQuery.of(Chart((0, 1, 10), (1, 0.2, 0)))
_FOUR = SimulatedQuery.of(Chart((0, 2, 4, 5, 10), (1, 0.9, 0.88, 0.1, 0)))
_STORED = SimulatedQuery.of(Chart((0, 1, 2, 3, 10), (1, 0.9, 1.35, 0.1, 0)))
_WINDOW = SimulatedQuery(
    ((SimulatedOperator(2.0, 0.9),), ()),
    SimulatedOperator(2.0, 1.2),
    (SimulatedOperator(1.0, 0.1), SimulatedOperator(40.0, 0.9)),
)
QUERIES: dict[str, tuple[SimulatedQuery, ...]] = {
    TWO: (_TWO,),
    FOUR: (_FOUR,),
    STORED: (_STORED,),
    WINDOW: (_WINDOW,),
    TOGETHER: (_TWO, _FOUR, _WINDOW),
}
TITLES = {
    TWO: "Two operators: fast and selective, then slow",
    FOUR: "Four operators, of which the third is fast and selective",
    STORED: "A join with a stored relation that makes more than it takes",
    WINDOW: "A sliding-window join with selections around it",
    TOGETHER: "Three queries together: two operators, four, and the window join",
}
#: Moments at which memory is looked at.
MOMENTS = 4_000

BURSTS, ETHERNET, UDP, UDP_ALL = "bursts", "Ethernet", "UDP", "UDP, all of it"
LOADS = {BURSTS: 0.5, ETHERNET: 0.8, UDP: 0.8, UDP_ALL: 0.8}
FRACTION, CHANCE = "fraction", "chance"

Traces = tuple[PacketTrace, ...]


@dataclass(frozen=True, slots=True)
class StreamLoad:
    """Queries, what arrives for them, and the moments to look at."""

    queries: tuple[SimulatedQuery, ...]
    arrivals: tuple[StreamArrivals, ...]
    moments: Floats
    seed: int | None  # of chance; None: tuples shrink

    @property
    def span(self) -> float:
        """The time in which tuples arrive."""
        return max(float(each.times[-1]) for each in self.arrivals if len(each.times))

    @property
    def tuples(self) -> int:
        """Of all streams."""
        return sum(len(each.times) for each in self.arrivals)

    @property
    def heaviest(self) -> float:
        """The size of the largest tuple."""
        return max(float(each.weights().max()) for each in self.arrivals if len(each.times))

    def run(self, policy: OperatorPolicy, **how: Any) -> SimulatedStreams:
        """Let a policy run it."""
        return simulate(policy, self.queries, self.arrivals, self.moments, seed=self.seed, **how)

    def least(self) -> LeastMemory:
        """What no policy can be below."""
        return least_memory(charts_of(self.queries), self.arrivals, self.moments)


def load_of(query: str, source: str, tuples: int, drop: str, seed: int, traces: Traces) -> StreamLoad:
    """The load of one row; all policies get the same."""
    queries = QUERIES[query]
    streams = [
        (number, stream, len(each.before)) for number, each in enumerate(queries) for stream in range(len(each.before))
    ]
    if source == BURSTS:
        arrivals = [StreamArrivals(_drawn(tuples, seed, number, stream)) for number, stream, _ in streams]
    else:
        trace = _stretch(source, tuples, seed, traces)
        arrivals = [_copied(trace, stream, of, seed) for _, stream, of in streams]
    shortest = min(float(each.times[-1]) for each in arrivals)
    arrivals = [_until(each, shortest) for each in arrivals]
    work = sum(
        chart.times[-1] * float(each.weights().sum()) for chart, each in zip(charts_of(queries), arrivals, strict=True)
    )
    slower = work / LOADS[source] / shortest
    arrivals = [StreamArrivals(each.times * slower, each.sizes) for each in arrivals]
    moments = np.linspace(0.0, 1.1 * shortest * slower, MOMENTS)
    chance = seed_of(seed, "streams", "chance") >> 2 if drop == CHANCE else None
    return StreamLoad(queries, tuple(arrivals), moments, chance)


@lru_cache(maxsize=8)
def _drawn(tuples: int, seed: int, number: int, stream: int) -> Floats:
    return pareto_bursts(tuples, generator(seed, "streams", "bursts", number, stream))


def _stretch(source: str, tuples: int, seed: int, traces: Traces) -> PacketTrace:
    """A part of a trace that begins at random, or all of it."""
    [trace] = [each for each in traces if each.name == source.partition(",")[0]]
    if source == UDP_ALL or len(trace) <= tuples:
        return trace
    return trace.stretch(int(generator(seed, "streams", source).integers(len(trace) - tuples)), tuples)


def _copied(trace: PacketTrace, stream: int, of: int, seed: int) -> StreamArrivals:
    """The trace as one stream; or as one of two, by chance."""
    if of == 1:
        return StreamArrivals(trace.times, trace.sizes)
    mine = generator(seed, "streams", "sides").integers(of, size=len(trace)) == stream
    return StreamArrivals(trace.times[mine], None if trace.sizes is None else trace.sizes[mine])


def _until(arrivals: StreamArrivals, end: float) -> StreamArrivals:
    many = int(np.searchsorted(arrivals.times, end, side="right"))
    return StreamArrivals(arrivals.times[:many], None if arrivals.sizes is None else arrivals.sizes[:many])


def policy_of(name: str) -> OperatorPolicy:
    """A new policy."""
    made: dict[str, Callable[[], OperatorPolicy]] = {
        CHAIN: ChainPolicy, GREEDY: GreedyPolicy, FIFO: FifoPolicy, ROUND_ROBIN: lambda: RoundRobinPolicy(QUANTUM),
    }  # fmt: skip
    return made[name]()


def metrics(load: StreamLoad, found: SimulatedStreams) -> dict[str, float]:
    """What every row tells."""
    least = load.least()
    latency = found.latency[~np.isnan(found.latency)]
    return {
        "peak": found.peak,
        "average": found.area / load.span,
        "bound peak": least.peak,
        "bound average": least.area / load.span,
        "excess": float((found.memory - least.memory).max()),
        "gaps": load.heaviest * sum(gap for chart in charts_of(load.queries) for gap in chart.gaps()),
        "units": load.heaviest * len(load.queries),
        "latency": float(latency.mean()),
        "latency p99": float(np.quantile(latency, 0.99)),
        "latency longest": float(latency.max()),
        "starved": float(found.starved.max()),
    }


def sources_of(rows: Sequence[str]) -> list[str]:
    """Sources in the order in which they are shown."""
    return [source for source in (BURSTS, ETHERNET, UDP, UDP_ALL) if source in rows]
