"""Which operator runs next: every policy by hand-made queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.scheduling.driver import Driver
from hullcast.broker.scheduling.policy import Item, OrderedPolicy, Ready
from hullcast.broker.streams.chart import Chart
from hullcast.broker.streams.policies.bounded_chain import BoundedChain
from hullcast.broker.streams.policies.chain import ChainPolicy
from hullcast.broker.streams.policies.policy import FifoPolicy, OperatorPolicy, OperatorQueue
from hullcast.broker.streams.queue import TupleQueue
from hullcast.sim.experiments.studies.streams.baselines import STUDIED, GreedyPolicy, RoundRobinPolicy

#: Envelope slopes 0.225 0.225 0.225 0.05, slopes of the operators themselves 0.1 0.025 0.75 0.05.
FOUR = Chart((0, 1, 3, 4, 6), (1, 0.9, 0.85, 0.1, 0))
#: 0.2 for both of its operators.
EVEN = Chart((0, 1, 5), (1, 0.8, 0))


def queue(path: int, place: int, arrived: float = 0.0, size: float = 1.0) -> OperatorQueue:
    return OperatorQueue("query", arrived, path, place, size)


def ready(policy: OperatorPolicy) -> OperatorPolicy:
    policy.measured([FOUR, EVEN], 0.0)
    return policy


def test_chain_prefers_the_steepest_segment_whatever_its_operators_do_alone() -> None:
    policy = ready(ChainPolicy())
    unselective, flat, even = queue(0, 1, 9.0), queue(0, 3), queue(1, 0)
    assert policy.pick([flat, even, unselective], 9.0) is unselective
    assert policy.pick([flat, even], 9.0) is even


def test_greedy_looks_at_operators_alone() -> None:
    policy = ready(GreedyPolicy())
    unselective, flat, selective = queue(0, 1), queue(0, 3, 9.0), queue(0, 2, 9.0)
    assert policy.pick([unselective, flat, selective], 9.0) is selective
    assert policy.pick([unselective, flat], 9.0) is flat


@pytest.mark.parametrize("policy", [ChainPolicy(), BoundedChain(1e9)], ids=lambda policy: policy.name)
def test_ties_go_to_the_oldest_tuple_and_then_to_the_one_that_is_farthest_on(policy: OperatorPolicy) -> None:
    ready(policy)
    assert policy.pick([queue(0, 0, 2.0), older := queue(0, 1, 1.0), queue(0, 2, 3.0)], 9.0) is older
    assert policy.pick([queue(0, 0, 1.0), farther := queue(0, 2, 1.0), queue(0, 1, 1.0)], 9.0) is farther
    assert policy.pick([queue(1, 1, 1.0), queue(1, 0, 1.0), queue(1, 1, 2.0)], 9.0).arrived == 1.0


def test_the_number_of_the_path_decides_last() -> None:
    policy = ChainPolicy()
    policy.measured([EVEN, EVEN], 0.0)
    first, second = queue(0, 0), queue(1, 0)
    assert policy.pick([second, first], 0.0) is first
    assert policy.pick([first, second], 0.0) is first


@pytest.mark.parametrize("make", STUDIED.values(), ids=STUDIED)
def test_every_policy_picks_one_of_what_is_ready_before_anything_is_measured(make: type[OperatorPolicy]) -> None:
    policy = make()
    queues = [queue(7, 3, 1.0), queue(2, 0, 2.0)]
    for now in (0.0, 5.0):
        chosen = policy.pick(iter(queues), now)
        assert chosen in queues
        policy.served(chosen, 1.0, now)
    policy.measured([None, EVEN], 5.0)
    assert policy.pick(queues, 6.0) in queues


def test_a_queue_on_two_paths_has_the_steeper_of_its_slopes() -> None:
    policy = ready(ChainPolicy())
    assert policy.pick([queue(1, 1), other := queue(0, 0, 5.0)], 9.0) is other
    shared = queue(1, 1)
    shared.also = ((0, 2),)
    assert policy.pick([shared, other], 9.0) is shared


def test_fifo_takes_the_oldest_tuple_to_completion() -> None:
    policy = ready(FifoPolicy())
    assert policy.pick([queue(0, 0, 1.0), under_way := queue(0, 2, 0.0), queue(1, 0, 0.5)], 9.0) is under_way
    assert policy.pick([queue(0, 0, 1.0), farther := queue(0, 1, 1.0)], 9.0) is farther


def test_round_robin_gives_each_a_quantum_in_a_circle() -> None:
    policy = RoundRobinPolicy(quantum_s=2.0)
    queues = [queue(0, 0), queue(0, 1), queue(1, 0)]
    turns = []
    for now in range(8):
        chosen = policy.pick(queues, float(now))
        assert isinstance(chosen, OperatorQueue)
        turns.append(queues.index(chosen))
        policy.served(chosen, 1.0, now + 1.0)
    assert turns == [0, 0, 1, 1, 2, 2, 0, 0]


def test_round_robin_goes_on_when_nothing_waits_for_an_operator_any_more() -> None:
    policy = RoundRobinPolicy(quantum_s=2.0)
    first, second = queue(0, 0), queue(0, 1)
    assert policy.pick([first, second], 0.0) is first
    policy.served(first, 1.0, 1.0)
    assert policy.pick([second], 1.0) is second
    assert policy.pick([first, second], 1.0) is second
    policy.served(second, 2.0, 3.0)
    assert policy.pick([second], 3.0) is second  # alone, it has its turn again


def test_bounded_chain_hurries_only_when_a_tuple_has_no_time_to_spare() -> None:
    policy = BoundedChain(bound_s=32.0)  # 1 s in reserve
    policy.measured([FOUR, EVEN], 0.0)
    late, steep = queue(0, 3, 0.0, 0.1), queue(0, 0, 1.0)
    assert policy.pick([late, steep], 5.0) is steep
    assert policy.pick([late, steep], 28.9) is steep  # 2 s of work are left of it, and it must have left at 32
    assert policy.pick([late, steep], 29.0) is steep  # looked at again after half a second
    assert policy.pick([late, steep], 29.5) is late


def test_of_tuples_without_time_bounded_chain_takes_the_steepest() -> None:
    policy = BoundedChain(bound_s=32.0)
    policy.measured([FOUR, EVEN], 0.0)
    oldest, old, new = queue(0, 3, 0.0, 0.1), queue(1, 0, 0.5, 1.0), queue(0, 0, 9.0)
    assert policy.pick([oldest, old, new], 25.0) is old  # 7 s of work for the two: the second has 0.5 s to spare
    assert policy.pick([oldest, new], 25.1) is oldest
    assert policy.pick([oldest, new], 25.5) is new  # looked at again: the oldest has 4.5 s to spare


def test_when_tuples_without_time_have_left_bounded_chain_looks_again_at_once() -> None:
    policy = BoundedChain(bound_s=32.0)
    policy.measured([FOUR, EVEN], 0.0)
    oldest, old, new = queue(0, 3, 0.0, 0.1), queue(0, 3, 0.5, 0.1), queue(0, 0, 9.0)
    assert policy.pick([oldest, old, new], 29.0) is oldest
    assert policy.pick([old, new], 29.1) is new  # the other has 1.4 s to spare
    assert policy.pick([old, new], 29.7) is old


def test_bounded_chain_looks_at_the_ages_that_a_queue_tells() -> None:
    many, steep = queue(0, 3, 0.0, 1.6), queue(0, 0, 1.0)
    policy = BoundedChain(bound_s=32.0)
    policy.measured([FOUR, EVEN], 0.0)
    assert policy.pick([many, steep], 0.0) is many  # 32 s of work, as far as one knows all as old as the oldest
    policy = BoundedChain(bound_s=32.0)
    policy.measured([FOUR, EVEN], 0.0)
    many.ages = lambda: [(0.0, 0.1), (10.0, 1.5)]
    assert policy.pick([many, steep], 0.0) is steep


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan")])
def test_times_that_are_not_positive_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        RoundRobinPolicy(wrong)
    with pytest.raises(ValueError, match="positive"):
        BoundedChain(wrong)


def test_round_robin_lets_an_operator_run_that_has_work_but_no_tuples() -> None:
    policy = RoundRobinPolicy(quantum_s=2.0)
    queues: list[OperatorQueue] = [TupleQueue("query", 0.0, path=0, place=place) for place in range(2)]
    turns = []
    for now in range(4):  # changes of a table wait there
        turns.append(queues.index(policy.pick(queues, now)))
        policy.served(queues[turns[-1]], 2.0, now)
    assert turns == [0, 1, 0, 1]


class Noticed:
    """A policy and its twin, which is given a list: they must pick the same."""

    def __init__(self, policy: OperatorPolicy, twin: OperatorPolicy) -> None:
        self.policy, self.twin = policy, twin
        if isinstance(policy, OrderedPolicy):
            self.order = policy.order

    def pick(self, items: Iterable[Item], now: float) -> Item:
        assert isinstance(items, Ready)
        wanted = self.twin.pick(list(items), now)
        assert self.policy.pick(items, now) is wanted
        return wanted

    def served(self, item: Item, seconds: float, now: float) -> None:
        self.policy.served(item, seconds, now)
        self.twin.served(item, seconds, now)


class SlowClock:
    time = 0.0

    def now(self) -> float:
        return self.time

    def pass_by(self, cost_s: float) -> None:
        self.time += cost_s


events = st.tuples(st.sampled_from(["come", "step", "step", "measure"]), st.integers(0, 5), st.booleans())


@pytest.mark.parametrize("make", STUDIED.values(), ids=STUDIED)
@given(history=st.lists(events, max_size=40))
@settings(max_examples=60, deadline=None)
def test_a_driver_that_keeps_queues_in_order_picks_what_a_look_at_all_would(
    make: Callable[[], OperatorPolicy], history: list[tuple[str, int, bool]]
) -> None:
    both, clock = Noticed(make(), make()), SlowClock()
    driver = Driver(both, clock)
    queues = [queue(number // 4, number % 4) for number in range(6)]

    def run(one: OperatorQueue, done: bool) -> float:
        one.arrived = clock.time
        if done:
            driver.rest(one)
        else:
            driver.wake(one, partial(run, one, True))
        return 0.25

    for what, which, twice in history:
        if what == "come" and not driver.is_awake(queues[which]):
            queues[which].arrived = clock.time - which % 3
            driver.wake(queues[which], partial(run, queues[which], not twice))
        elif what == "measure":
            for policy in (both.policy, both.twin):
                policy.measured([FOUR, EVEN] if twice else [EVEN, FOUR], clock.time)
            driver.order_again()
        elif what == "step":
            driver.step()
        driver.check()
