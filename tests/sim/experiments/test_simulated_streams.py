"""Simulated streams: against unit steps, against all schedules, and against what the theorems say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hullcast.broker.streams.chart import Chart
from hullcast.broker.streams.policies.bounded_chain import RESERVE, BoundedChain
from hullcast.broker.streams.policies.chain import ChainPolicy
from hullcast.broker.streams.policies.policy import FifoPolicy, OperatorPolicy
from hullcast.network.wire.arrays import Floats
from hullcast.sim.experiments.studies.streams.baselines import GreedyPolicy, RoundRobinPolicy
from hullcast.sim.experiments.studies.streams.overdue import Overdue
from hullcast.sim.experiments.studies.streams.simulated import (
    SimulatedOperator,
    SimulatedQuery,
    SimulatedStreams,
    StreamArrivals,
    charts_of,
    least_memory,
    simulate,
)
from tests.broker.streams.charts import charts
from tests.sim.experiments.asked import asked
from tests.sim.experiments.unit_steps import (
    chain_order,
    envelope_size,
    fifo_order,
    greedy_order,
    least_of_all,
    size_of,
    stepped,
)

EXAMPLE = Chart((0, 1, 2), (1, 0.2, 0))
FOUR = Chart((0, 1, 3, 4, 6), (1, 0.9, 0.85, 0.1, 0))
ORDERS = {ChainPolicy: chain_order, GreedyPolicy: greedy_order, FifoPolicy: fifo_order}
#: Rounding of event times: memory is compared a little after each whole moment.
A_LITTLE = 1e-6

Times = list[list[int]]


def several(most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 8), max_size=most).map(sorted)


def arriving(arrivals: Sequence[Sequence[int]]) -> list[StreamArrivals]:
    return [StreamArrivals(np.array(times, np.float64)) for times in arrivals]


def moments(until: int) -> Floats:
    return np.arange(until + 1, dtype=np.float64) + A_LITTLE


def needed(charts: Sequence[Chart], arrivals: Times) -> int:
    """A moment by which all have left."""
    return 9 + sum(int(chart.times[-1]) * len(times) for chart, times in zip(charts, arrivals, strict=True))


def run(policy: OperatorPolicy, paths: Sequence[Chart], arrivals: Times, until: int) -> SimulatedStreams:
    queries = [SimulatedQuery.of(chart) for chart in paths]
    return simulate(policy, queries, arriving(arrivals), moments(until), charts=paths)


# -- the worked example ----------------------------------------------------------------------------------------


def test_queues_of_the_worked_example_are_those_of_the_paper() -> None:
    seven = [list(range(7))]
    greedy = run(GreedyPolicy(), [EXAMPLE], seven, 14).memory
    fifo = run(FifoPolicy(), [EXAMPLE], seven, 14).memory
    assert greedy[:7] == pytest.approx([1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2])
    assert fifo[:7] == pytest.approx([1.0, 1.2, 2.0, 2.2, 3.0, 3.2, 4.0])
    assert greedy[14] == pytest.approx(0)
    assert fifo[14] == pytest.approx(0)
    assert min(greedy[:14]) > 0.1
    assert min(fifo[:14]) > 0.1
    assert run(ChainPolicy(), [EXAMPLE], seven, 14).memory == pytest.approx(greedy)  # each operator is a chain
    assert least_memory([EXAMPLE], arriving(seven), moments(14)).memory == pytest.approx(greedy, abs=1e-5)


# -- the simulator is right ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ORDERS, ids=lambda kind: kind.name)
@given(
    paths=st.lists(charts(join=True, most=3), min_size=1, max_size=3),
    arrivals=st.lists(several(5), min_size=3, max_size=3),
)
def test_queues_are_those_of_unit_steps(kind: type[ChainPolicy], paths: list[Chart], arrivals: Times) -> None:
    arrivals = arrivals[: len(paths)]
    until = needed(paths, arrivals)
    found = run(kind(), paths, arrivals, until)
    told = [sum(sizes) for sizes in stepped(paths, arrivals, ORDERS[kind], until)]
    assert found.memory == pytest.approx(told)
    assert found.peak == pytest.approx(max(told))
    assert told[-1] == 0


@given(
    paths=st.lists(charts(join=False, most=3), min_size=1, max_size=2),
    arrivals=st.lists(several(4), min_size=2, max_size=2),
)
def test_peak_and_area_are_those_of_memory_over_time(paths: list[Chart], arrivals: Times) -> None:
    arrivals = arrivals[: len(paths)]
    assume(any(arrivals))
    until = needed(paths, arrivals)
    found = run(ChainPolicy(), paths, arrivals, until)
    least = least_memory(paths, arriving(arrivals), moments(until))
    assert found.area == pytest.approx(found.memory.sum())  # it changes at whole moments only
    fine = np.arange(0, until, 1 / 64) + 1 / 128
    assert least.area == pytest.approx(least_memory(paths, arriving(arrivals), fine).memory.sum() / 64, abs=0.1)
    assert least.peak == pytest.approx(least.memory.max(), abs=1e-4)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[SimulatedQuery], Times]:
    """Queries with and without joins of streams."""
    operator = st.builds(
        SimulatedOperator, st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0])
    )
    some = st.lists(operator, max_size=2).map(tuple)
    more = st.lists(operator, min_size=1, max_size=3).map(tuple)
    one = st.builds(lambda path: SimulatedQuery((path,)), more)
    two = st.builds(
        lambda left, right, join, after: SimulatedQuery((left, right), join, after), some, some, operator, some
    )
    queries = draw(st.lists(st.one_of(one, two), min_size=1, max_size=3))
    streams = sum(len(query.before) for query in queries)
    return queries, draw(st.lists(several(6), min_size=streams, max_size=streams))


POLICIES: dict[str, Callable[[], OperatorPolicy]] = {
    "chain": ChainPolicy,
    "greedy": GreedyPolicy,
    "fifo": FifoPolicy,
    "round-robin": lambda: RoundRobinPolicy(1.5),
    "bounded": lambda: BoundedChain(8.0),
    "overdue": lambda: Overdue(4.0),
}


@pytest.mark.parametrize("name", POLICIES)
@given(world=worlds(), seed=st.sampled_from([None, 0, 1]), heartbeats=st.booleans())
def test_compiled_decisions_are_those_of_the_objects(
    name: str, world: tuple[list[SimulatedQuery], Times], seed: int | None, heartbeats: bool
) -> None:
    queries, arrivals = world
    told, found = (
        decided(POLICIES[name](), queries, arriving(arrivals), moments(50), seed=seed, heartbeats=heartbeats)
        for decided in (asked, simulate)
    )
    assert (found.picks, found.switches) == (told.picks, told.switches)
    assert found.memory.tolist() == told.memory.tolist()
    assert np.array_equal(found.latency, told.latency, equal_nan=True)
    assert found.starved.tolist() == told.starved.tolist()


def test_an_operator_runs_until_its_queue_is_empty_or_something_better_comes() -> None:
    def switches(policy: OperatorPolicy, paths: Sequence[Chart], times: list[float], whole: bool = True) -> int:
        arrivals = [StreamArrivals(np.array(times, np.float64))]
        return simulate(policy, [SimulatedQuery.of(chart) for chart in paths], arrivals, whole=whole).switches

    assert switches(FifoPolicy(), [EXAMPLE], [0, 0, 0]) == 6  # each tuple through both
    assert switches(ChainPolicy(), [EXAMPLE], [0, 0, 0]) == 2
    assert switches(ChainPolicy(), [EXAMPLE], [0, 0, 2.5]) == 4  # O1, O2, O1 for the third, O2
    assert switches(ChainPolicy(), [FOUR], [0, 0, 0], whole=False) == 10  # three of the four are one chain
    assert switches(ChainPolicy(), [FOUR], [0, 0, 0]) == 4
    assert switches(ChainPolicy(), [FOUR], [0, 0, 0, 2.5]) == 4  # the fourth is no reason to stop in a chain


def test_a_join_that_takes_from_both_inputs_in_turn_is_one_operator() -> None:
    join = SimulatedQuery(((), ()), SimulatedOperator(1.0))
    found = simulate(FifoPolicy(), [join], arriving([[0, 2], [1, 3]]), heartbeats=True)
    assert found.switches == 1


@given(world=worlds(), name=st.sampled_from(sorted(POLICIES)), heartbeats=st.booleans())
def test_all_leave_in_the_order_in_which_they_arrived(
    world: tuple[list[SimulatedQuery], Times], name: str, heartbeats: bool
) -> None:
    queries, arrivals = world
    found = simulate(POLICIES[name](), queries, arriving(arrivals), np.array([1e9]), heartbeats=heartbeats)
    assert found.memory[0] == pytest.approx(0)
    merged = sorted((time, stream) for stream, times in enumerate(arrivals) for time in times)
    first = 0
    for query in queries:  # results of a query come in the order of arrival, of both of its streams
        streams = range(first, first + len(query.before))
        first += len(query.before)
        left = [
            time + latency
            for (time, stream), latency in zip(merged, found.latency.tolist(), strict=True)
            if stream in streams
        ]
        came = [moment for moment in left if not np.isnan(moment)]
        assert came == sorted(came)


@given(world=worlds(), seed=st.sampled_from([None, 7]))
def test_what_becomes_of_tuples_does_not_depend_on_the_policy(
    world: tuple[list[SimulatedQuery], Times], seed: int | None
) -> None:
    queries, arrivals = world
    passed = [
        np.isnan(simulate(make(), queries, arriving(arrivals), seed=seed).latency).tolist()
        for make in POLICIES.values()
    ]
    assert all(each == passed[0] for each in passed)


def test_tuples_that_pass_by_chance_are_as_many_as_the_selectivity_says() -> None:
    operators = (SimulatedOperator(0.001, 0.25), SimulatedOperator(0.001, 2.5), SimulatedOperator(0.001))
    found = simulate(FifoPolicy(), [SimulatedQuery((operators,))], [StreamArrivals(np.arange(100_000.0))], seed=3)
    assert 0.24 < np.mean(~np.isnan(found.latency)) < 0.26


def test_larger_tuples_take_more_memory_and_more_work() -> None:
    query = SimulatedQuery.of(EXAMPLE)
    found = simulate(FifoPolicy(), [query], [StreamArrivals(np.array([0.0]), np.array([3.0]))], moments(7))
    assert found.memory == pytest.approx([3, 3, 3, 0.6, 0.6, 0.6, 0, 0])


# -- joins of two streams --------------------------------------------------------------------------------------

JOIN = SimulatedQuery(((SimulatedOperator(1.0),), ()), SimulatedOperator(1.0, 1.0), (SimulatedOperator(1.0),))


def test_a_join_waits_for_the_input_that_is_empty() -> None:
    arrivals = [[0], [1, 5]]  # nothing tells at 2 that the first stream has no tuple older than 5
    found = simulate(FifoPolicy(), [JOIN], arriving([[0, 9], [1, 5]]), moments(20))
    assert found.latency.tolist() == [3, 11, 9, 7]
    ended = simulate(FifoPolicy(), [JOIN], arriving(arrivals), moments(20))
    assert ended.latency.tolist() == [3, 4, 2]  # no more will come of the first stream, so nothing waits


def test_a_heartbeat_lets_a_join_go_on() -> None:
    found = simulate(FifoPolicy(), [JOIN], arriving([[0, 9], [1, 5]]), moments(20), heartbeats=True)
    assert found.latency.tolist() == [3, 4, 2, 3]


def test_a_join_takes_the_older_tuple_whichever_input_was_picked() -> None:
    query = SimulatedQuery(((), ()), SimulatedOperator(1.0), ())
    found = simulate(ChainPolicy(), [query], arriving([[1, 2], [0, 1]]))
    assert (found.latency + np.array([0, 1, 1, 2])).tolist() == [2, 3, 4, 5]  # blocked until 1; of one age: the first


# -- theorems --------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    paths=st.lists(charts(join=True, most=2), min_size=1, max_size=2),
    arrivals=st.lists(st.lists(st.integers(0, 4), max_size=2).map(sorted), min_size=2, max_size=2),
)
def test_chain_on_envelopes_needs_least_at_every_moment_of_all_schedules(paths: list[Chart], arrivals: Times) -> None:
    arrivals = arrivals[: len(paths)]
    until = min(needed(paths, arrivals), 20)
    whole = np.arange(until + 1, dtype=np.float64)
    least = least_memory(paths, arriving(arrivals), whole).memory
    assert least == pytest.approx(least_of_all(paths, arrivals, until, envelope_size))
    # and so no schedule on the charts themselves needs less; Chain needs little more than the best of them
    best = least_of_all(paths, arrivals, until, size_of)
    assert all(bound <= size + 1e-9 for bound, size in zip(least, best, strict=True))
    chain = run(ChainPolicy(), paths, arrivals, until).memory
    gaps = sum(gap for chart in paths for gap in chart.gaps())
    assert all(mine <= size + gaps + 1e-6 for mine, size in zip(chain, best, strict=True))


@given(
    paths=st.lists(charts(join=False), min_size=1, max_size=4),
    arrivals=st.lists(several(8), min_size=4, max_size=4),
)
def test_without_joins_chain_is_within_one_unit_per_query_of_what_is_possible(
    paths: list[Chart], arrivals: Times
) -> None:
    arrivals = arrivals[: len(paths)]
    until = needed(paths, arrivals)
    least = least_memory(paths, arriving(arrivals), moments(until)).memory
    chain = run(ChainPolicy(), paths, arrivals, until).memory
    assert (chain <= least + len(paths) + 1e-4).all()
    assert (chain >= least - 1e-4).all()


@given(
    paths=st.lists(charts(join=True), min_size=1, max_size=4),
    arrivals=st.lists(several(8), min_size=4, max_size=4),
)
def test_chain_is_within_the_sum_of_the_gaps_of_what_is_possible(paths: list[Chart], arrivals: Times) -> None:
    arrivals = arrivals[: len(paths)]
    until = needed(paths, arrivals)
    least = least_memory(paths, arriving(arrivals), moments(until)).memory
    chain = run(ChainPolicy(), paths, arrivals, until).memory
    assert (chain <= least + sum(gap for chart in paths for gap in chart.gaps()) + 1e-4).all()


@given(
    paths=st.lists(charts(join=True), min_size=1, max_size=3),
    arrivals=st.lists(several(8), min_size=3, max_size=3),
    name=st.sampled_from(sorted(POLICIES)),
)
def test_no_policy_needs_less_than_what_is_possible(paths: list[Chart], arrivals: Times, name: str) -> None:
    arrivals = arrivals[: len(paths)]
    until = needed(paths, arrivals)
    least = least_memory(paths, arriving(arrivals), moments(until)).memory
    assert (run(POLICIES[name](), paths, arrivals, until).memory >= least - 1e-4).all()


def test_the_bound_of_one_unit_cannot_be_lower() -> None:
    """A tuple that has all but left still takes all of its memory."""
    chart = Chart((0, 1000), (1, 0))
    found = run(ChainPolicy(), [chart], [[0]], 999).memory - least_memory([chart], arriving([[0]]), moments(999)).memory
    assert 0.99 < found.max() <= 1


# -- the latency bound -----------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(
    paths=st.lists(charts(join=True), min_size=1, max_size=3),
    bursts=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), min_size=3, max_size=9),
    room=st.sampled_from([1.0, 1.2, 2.0]),
)
def test_bounded_chain_keeps_the_bound_if_fifo_does(
    paths: list[Chart], bursts: list[tuple[int, int]], room: float
) -> None:
    arrivals = [
        sorted(time for at, (time, many) in enumerate(bursts) if at % len(paths) == path for _ in range(many))
        for path in range(len(paths))
    ]
    fifo = run(FifoPolicy(), paths, arrivals, 0)
    longest = max(operator.cost for chart in paths for operator in SimulatedQuery.of(chart).paths()[0])
    bound = room * max(np.nanmax(fifo.latency) / (1 - RESERVE), 2 * longest / RESERVE) + A_LITTLE
    found = run(BoundedChain(bound), paths, arrivals, 0)
    assert np.nanmax(found.latency) <= bound


def test_a_wide_bound_costs_no_memory_and_a_narrow_one_makes_it_fifo() -> None:
    arrivals = [[*range(100), *range(100, 3_000, 6)]]  # a burst, then as much as can be done: the backlog stays
    chain = run(ChainPolicy(), [FOUR], arrivals, 0)
    fifo = run(FifoPolicy(), [FOUR], arrivals, 0)
    assert np.max(fifo.latency) < 600
    assert np.max(chain.latency) > 1_200
    wide, middle, narrow = (run(BoundedChain(bound), [FOUR], arrivals, 0) for bound in (5_000.0, 800.0, 1.0))
    assert wide.area == chain.area < middle.area < fifo.area
    assert np.max(wide.latency) == np.max(chain.latency)
    assert 600 < np.max(middle.latency) <= 800
    assert np.max(narrow.latency) == np.max(fifo.latency)
    assert narrow.area == pytest.approx(fifo.area)


def test_queries_and_arrivals_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="streams"):
        simulate(FifoPolicy(), [JOIN], arriving([[0]]))
    with pytest.raises(ValueError, match="two streams"):
        SimulatedQuery(((SimulatedOperator(1.0),), ()))
    with pytest.raises(ValueError, match="two streams"):
        SimulatedQuery(((),))
    assert len(charts_of([JOIN, JOIN])) == 4
