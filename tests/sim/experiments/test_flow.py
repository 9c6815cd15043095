"""Flows: as cheap as networkx finds them, OPT-offline as good as trying everything, FlowExpect as in its example."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.network.wire.arrays import Ints
from hullcast.sim.experiments.studies.caching.flow import FlowExpect, OptOffline, Stay, best_stays, cheapest_flow
from hullcast.sim.experiments.studies.caching.models import Chances, LinearTrend, uniform_chances
from hullcast.sim.experiments.studies.caching.policy import Candidates, R, S
from hullcast.sim.experiments.studies.caching.rivals import Lfd, Lru, Prob, Rand
from hullcast.sim.experiments.studies.caching.simulated import simulate_cache, simulate_join
from tests.support.heeb_oracles import Stationary, as_join


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int, int]], int]:
    """Nodes, arcs (tail, head, capacity, cost) from lower to higher nodes, each pair once, and an amount."""
    nodes = draw(st.integers(2, 7))
    pairs = draw(st.lists(st.sampled_from(list(combinations(range(nodes), 2))), unique=True, min_size=1, max_size=14))
    arcs = [(*pair, draw(st.integers(1, 3)), draw(st.integers(-4, 2))) for pair in sorted(pairs)]
    return nodes, arcs, draw(st.integers(0, 4))


@given(graphs())
@settings(max_examples=300, deadline=None)
def test_a_flow_is_as_cheap_as_networkx_finds_it(drawn: tuple[int, list[tuple[int, int, int, int]], int]) -> None:
    nodes, arcs, amount = drawn
    graph = nx.DiGraph()
    graph.add_nodes_from(range(nodes))
    for tail, head, capacity, cost in arcs:
        graph.add_edge(tail, head, capacity=capacity, weight=cost)
    graph.add_edge(0, "away", weight=0)  # units that do not pay may stay away
    graph.add_edge("away", nodes - 1, weight=0)
    graph.nodes[0]["demand"], graph.nodes[nodes - 1]["demand"] = -amount, amount
    cost, _ = nx.network_simplex(graph)
    columns = [np.array(column, np.int64) for column in zip(*arcs, strict=True)]
    flows = np.zeros(len(arcs), np.int64)
    found = cheapest_flow(columns[0], columns[1], columns[2], columns[3].astype(float), nodes, amount, flows)
    assert found == pytest.approx(cost)
    assert (flows <= columns[2]).all()
    assert float(flows @ columns[3]) == pytest.approx(found)
    for node in range(1, nodes - 1):
        assert flows[columns[0] == node].sum() == flows[columns[1] == node].sum()


def most_results(r: list[int], s: list[int], memory: int) -> int:
    """By trying every way to keep."""
    held: dict[frozenset[tuple[int, int]], int] = {frozenset(): 0}
    for t, pair in enumerate(zip(r, s, strict=True)):
        after: dict[frozenset[tuple[int, int]], int] = {}
        for kept, results in held.items():
            more = sum((r, s)[side][at] == pair[1 - side] for side, at in kept)
            larger = kept | {(R, t), (S, t)}
            for choice in combinations(sorted(larger), min(memory, len(larger))):
                one = frozenset(choice)
                after[one] = max(after.get(one, 0), results + more)
        held = after
    return max(held.values())


streams = st.integers(1, 6).flatmap(
    lambda n: st.tuples(*(st.lists(st.integers(0, 2), min_size=n, max_size=n) for _ in range(2)))
)


@given(streams, st.integers(1, 3))
@settings(max_examples=150, deadline=None)
def test_opt_offline_is_as_good_as_trying_everything(drawn: tuple[list[int], list[int]], memory: int) -> None:
    r, s = np.array(drawn[0]), np.array(drawn[1])
    policy = OptOffline(r, s, memory)
    assert policy.results == most_results(*drawn, memory)
    assert simulate_join(policy, r, s, memory).results.sum() == policy.results, "the plan keeps to its slots"


@given(streams, st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_no_policy_has_more_results_than_opt_offline(drawn: tuple[list[int], list[int]], memory: int) -> None:
    r, s = np.array(drawn[0]), np.array(drawn[1])
    best = OptOffline(r, s, memory).results
    for policy in (Rand(np.random.default_rng(1)), Prob(), Lru()):
        assert simulate_join(policy, r, s, memory).results.sum() <= best


@given(st.lists(st.integers(0, 4), min_size=1, max_size=25), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_the_best_join_of_a_reduced_caching_problem_is_the_best_cache(references: list[int], memory: int) -> None:
    shown = np.array(references)
    names: dict[tuple[int, int], int] = {}
    reference, supply = (np.array([names.setdefault(pair, len(names)) for pair in stream]) for stream in as_join(shown))
    assert OptOffline(reference, supply, memory).results == simulate_cache(Lfd(shown), shown, memory).sum()


@dataclass(frozen=True)
class Announced:
    """A stream whose chances are given step by step."""

    steps: list[dict[int, float]]

    def ahead(self, dt: int, now: int, last: int) -> Chances:
        each = np.zeros(10)
        if now + dt < len(self.steps):
            for value, chance in self.steps[now + dt].items():
                each[value] = chance
        return Chances(0, each)


#: The example of section 3.3.4: what R and S show in steps 0 to 3; what is missing joins nothing.
OF_R = Announced([{}, {2: 1.0}, {3: 1.0}, {2: 0.5}])
OF_S = Announced([{2: 1.0}, {3: 0.5}, {1: 0.8}, {1: 0.8}])
START = Candidates(np.array([R, S]), np.array([1, 2]), np.array([-1, 0]), np.array([-1, 0]))


def best_adaptive(kept: tuple[int, int] | None, step: int) -> float:
    """What a policy is expected to have from a step on that decides when it sees what came (memory of one)."""
    if step > 3:
        return 0.0
    total = 0.0
    for of_r, p in [*OF_R.steps[step].items(), (0, 1 - sum(OF_R.steps[step].values()))]:
        for of_s, q in [*OF_S.steps[step].items(), (0, 1 - sum(OF_S.steps[step].values()))]:
            now = 0.0 if kept is None else float((of_s, of_r)[kept[0]] == kept[1] != 0)
            options = [kept, (R, of_r), (S, of_s)]
            total += p * q * (now + max(best_adaptive(one, step + 1) for one in options))
    return total


def test_flow_expect_keeps_what_gives_1_6_where_1_75_could_be_had() -> None:
    policy = FlowExpect((OF_R, OF_S), memory=1, ahead=3)
    assert policy.dropped(START, 1, 0).tolist() == [1], "the tuple 2 of S goes"
    assert best_adaptive((R, 1), 1) == pytest.approx(1.6)
    assert best_adaptive((S, 2), 1) == pytest.approx(1.75)


def test_the_plans_of_the_example_are_worth_what_the_thesis_says() -> None:
    steps = np.array([1, 2, 3])
    keep_1 = Stay(0, steps, np.array([0.0, 0.8, 0.8]))
    keep_2 = Stay(0, steps, np.array([1.0, 0.0, 0.5]))
    new_3 = Stay(1, steps[1:], np.array([0.5, 0.0]))
    gained, ends = best_stays([keep_1, keep_2, new_3], 3, 1)
    assert (round(gained, 9), ends) == (1.6, [3, 0, 1])
    assert best_stays([keep_2, new_3], 3, 1)[0] == pytest.approx(1.5)
    assert best_stays([keep_1, keep_2, new_3], 3, 2)[0] == pytest.approx(1.6 + 1.5)


def plan_by_trying(stays: list[Stay], steps: int, slots: int) -> float:
    def tried(place: int, used: tuple[int, ...]) -> float:
        if place == len(stays):
            return 0.0
        stay = stays[place]
        best = tried(place + 1, used)
        gained = 0.0
        for at, gain in zip(stay.steps.tolist(), stay.gains.tolist(), strict=True):
            gained += gain
            now = tuple(n + (stay.begin <= t < at) for t, n in enumerate(used))
            if max(now) > slots:
                break
            best = max(best, gained + tried(place + 1, now))
        return best

    return tried(0, (0,) * steps)


@given(st.data(), st.integers(1, 5), st.integers(1, 3))
@settings(max_examples=150, deadline=None)
def test_stays_are_planned_as_well_as_by_trying(data: st.DataObject, steps: int, slots: int) -> None:
    stays = []
    for _ in range(data.draw(st.integers(1, 5))):
        begin = data.draw(st.integers(0, steps - 1))
        at = np.arange(begin + 1, steps + 1)
        gains = data.draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=len(at), max_size=len(at)))
        stays.append(Stay(begin, at, np.array(gains)))
    gained, ends = best_stays(stays, steps, slots)
    assert gained == pytest.approx(plan_by_trying(stays, steps, slots))
    kept = sum(stay.gains[stay.steps <= end].sum() for stay, end in zip(stays, ends, strict=True))
    assert kept == pytest.approx(gained)


def test_flow_expect_that_looks_one_step_ahead_keeps_what_is_likeliest_next() -> None:
    policy = FlowExpect((Stationary(uniform_chances(1)), LinearTrend(1, 0, uniform_chances(2))), 2, 1)
    policy.show((0, 10), 10)
    values: Ints = np.array([0, 5, 11, 14, 1])
    some = Candidates(np.array([S, S, R, R, S]), values, np.arange(5), np.arange(5))
    assert sorted(policy.dropped(some, 3, 10).tolist()) == [1, 2, 3]
