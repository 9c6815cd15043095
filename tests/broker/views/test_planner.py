"""Planners: what is pending never costs more than the limit, and actions are lazy, greedy and minimal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.views.costs import CostFunction, CurveCost, LinearCost
from hullcast.broker.views.planner import (
    MOST_TABLES,
    ArrivalRates,
    Thrifty,
    ViewPlanner,
    emptied,
    minimal_actions,
    time_until,
)
from hullcast.sim.experiments.studies.batching.costs import PowerCost, StepCost
from hullcast.sim.experiments.studies.batching.lgm import best_plan
from hullcast.sim.experiments.studies.batching.planners import PLANNERS, Naive, Online, made_minimal
from hullcast.sim.experiments.studies.batching.simulated import simulate

#: All numbers are small and whole, so that costs tie with each other and with the limit.
costs = st.one_of(
    st.builds(LinearCost, st.integers(0, 2), st.integers(0, 5)),
    st.builds(StepCost, st.integers(1, 4), st.integers(0, 3)),
    st.builds(PowerCost, st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0])),
    st.builds(lambda s, t: CurveCost([(2.0, s), (5.0, s + t)]), st.integers(1, 3), st.integers(0, 3)),
)
limits = st.sampled_from([0.0, 1.0, 2.0, 4.0, 7.0, 12.0])


@st.composite
def views(draw: st.DrawFn, steps: int = 12) -> tuple[npt.NDArray[np.int64], list[CostFunction], float]:
    """Arrivals, costs and a limit."""
    functions = draw(st.lists(costs, min_size=1, max_size=4))
    row = st.lists(st.integers(0, 3), min_size=len(functions), max_size=len(functions))
    return np.array(draw(st.lists(row, min_size=1, max_size=steps))), list(functions), draw(limits)


class Watched(ViewPlanner):
    """Sees whether every answer keeps the limit (V1), is lazy, and names each table once."""

    name = "watched"

    def __init__(self, planner: ViewPlanner, minimal: bool) -> None:
        self.planner, self.minimal, self.actions = planner, minimal, 0

    def next(
        self, pending: Sequence[int], costs: Sequence[CostFunction], limit_s: float, now: float
    ) -> tuple[int, ...]:
        before = list(pending)
        tables = self.planner.next(pending, costs, limit_s, now)
        assert list(pending) == before, "a planner changes nothing"
        assert len(set(tables)) == len(tables)
        each_s = [cost.of(k) for cost, k in zip(costs, pending, strict=True)]
        assert holds(each_s, tables, limit_s), "V1"
        assert bool(tables) == (not holds(each_s, (), limit_s)), "lazy"
        if self.minimal:
            assert all(not holds(each_s, set(tables) - {table}, limit_s) for table in tables), "minimal"
        self.actions += bool(tables)
        return tables

    def acted(self, tables: Sequence[int], left: Sequence[int], took_s: float, now: float) -> None:
        self.planner.acted(tables, left, took_s, now)

    def refreshed(self, now: float) -> None:
        self.planner.refreshed(now)


def holds(each_s: Sequence[float], tables: Sequence[int] | set[int], limit_s: float) -> bool:
    return sum(each for table, each in enumerate(each_s) if table not in tables) <= limit_s


@pytest.mark.parametrize("name", PLANNERS)
@given(view=views())
def test_what_is_pending_never_costs_more_than_the_limit(
    name: str, view: tuple[npt.NDArray[np.int64], list[CostFunction], float]
) -> None:
    watched = Watched(PLANNERS[name](), minimal=name != Naive.name)
    found = simulate(watched, *view)
    arrivals, functions, _ = view
    paid = sum(
        functions[table].of(k) for each in found.actions for table, k in zip(each.tables, each.batches, strict=True)
    )
    assert found.cost_s == pytest.approx(paid)
    for table in range(arrivals.shape[1]):
        done = sum(
            k for each in found.actions for mine, k in zip(each.tables, each.batches, strict=True) if mine == table
        )
        assert done == arrivals[:, table].sum(), "every change is propagated once"


@given(st.lists(st.integers(0, 4), max_size=6), st.integers(0, 12))
def test_minimal_actions_are_all_sets_that_hold_and_of_which_no_part_holds(each_s: list[int], limit_s: int) -> None:
    every = [set(tables) for size in range(len(each_s) + 1) for tables in combinations(range(len(each_s)), size)]
    valid = [tables for tables in every if holds(each_s, tables, limit_s)]
    minimal = [tables for tables in valid if not any(other < tables for other in valid)]
    found = minimal_actions(each_s, limit_s)
    assert sorted(map(sorted, minimal)) == sorted(map(list, found))
    assert [len(tables) for tables in found] == sorted(len(tables) for tables in found)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=16), st.data())
def test_a_wanted_action_is_made_valid_and_minimal(each_s: list[int], data: st.DataObject) -> None:
    limit_s = data.draw(st.integers(0, 12))
    wanted = data.draw(st.lists(st.sampled_from(range(len(each_s)))))
    found = made_minimal(each_s, wanted, limit_s)
    assert holds(each_s, found, limit_s)
    assert all(not holds(each_s, set(found) - {table}, limit_s) for table in found)
    if holds(each_s, wanted, limit_s):
        assert set(found) <= set(wanted)


def test_with_many_tables_some_minimal_actions_are_enough() -> None:
    each_s = [1.0] * (MOST_TABLES + 5)
    found = minimal_actions(each_s, 3.0)
    assert {table for tables in found for table in tables} == set(range(len(each_s)))
    for tables in found:
        assert holds(each_s, tables, 3.0)
        assert len(tables) == len(each_s) - 3


def test_online_empties_the_table_that_buys_most_time_for_its_cost() -> None:
    """Twenty changes of each wait; for the same cost one of them has room for many more."""
    costs = [LinearCost(0.1, 8.0), LinearCost(0.5)]
    arrivals = np.ones((400, 2), dtype=np.int64)
    online, naive = (simulate(planner, arrivals, costs, 12.0) for planner in (Online(), Naive()))
    assert online.cost_s < 0.8 * naive.cost_s
    alone = sum(each.tables == (1,) for each in online.actions)
    assert alone > len(online.actions) / 2, "the table without a fixed cost is emptied often, the other seldom"


@pytest.mark.parametrize("planner", [Online, Thrifty])
def test_rates_that_change_are_followed(planner: type[ViewPlanner]) -> None:
    costs = [LinearCost(1.0, 2.0), LinearCost(1.0, 2.0)]
    first = np.tile([3, 0], (200, 1))
    arrivals = np.concatenate([first, first[:, ::-1]])
    found = simulate(planner(), arrivals, costs, 20.0)
    late = [each.tables for each in found.actions if 220 <= each.step < 399]
    assert set(late) == {(1,)}


def test_thrifty_is_close_to_the_best_plan_where_online_is_not() -> None:
    """Four tables that differ in what they gain from batches."""
    costs = [LinearCost(0.01, 8.0), LinearCost(0.1, 0.2), LinearCost(0.02, 3.0), LinearCost(0.05, 1.0)]
    arrivals = np.ones((400, 4), dtype=np.int64)
    best = best_plan(arrivals, costs, 20.0, effort=10_000)
    thrifty, online = (simulate(planner, arrivals, costs, 20.0).cost_s for planner in (Thrifty(), Online()))
    assert thrifty < 1.1 * best.cost_s
    assert online > 1.2 * best.cost_s


def test_a_refresh_begins_a_new_account() -> None:
    online = Online()
    online.next([5, 5], [LinearCost(1.0)] * 2, 6.0, 1.0)
    online.acted((0,), [0, 5], 5.0, 1.0)
    assert online.spent_s == 5.0
    online.refreshed(2.0)
    assert online.spent_s == 0.0


def test_rates_are_learned_also_from_what_comes_while_tables_are_propagated() -> None:
    seen = ArrivalRates()
    seen.refresh(0.0)
    seen.see([2, 1], 1.0)
    seen.act([0], [4, 3], 2.0)  # 4 and 2 more came meanwhile
    assert seen.rates == pytest.approx([3.0, 1.5])
    for step in range(60):
        seen.see([10, 0], 3.0 + step)
        seen.act([0], [0, 0], 3.0 + step)
    assert seen.rates == pytest.approx([10.0, 0.0], abs=0.05)


@pytest.mark.parametrize("planner", [Online, Thrifty])
def test_before_anything_is_known_of_rates_the_cheaper_action_is_taken(planner: type[ViewPlanner]) -> None:
    assert planner().next([9, 3], [LinearCost(1.0), LinearCost(1.0)], 9.0, 5.0) == (1,)


@given(view=views(steps=1), rates=st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_the_time_until_the_limit_is_where_the_limit_breaks(
    view: tuple[npt.NDArray[np.int64], list[CostFunction], float], rates: list[int]
) -> None:
    arrivals, functions, limit_s = view
    pending, rates = arrivals[0].tolist(), rates[: len(functions)]
    while not holds([cost.of(k) for cost, k in zip(functions, pending, strict=True)], (), limit_s):
        pending = emptied(pending, [int(np.argmax(pending))])
    time = time_until(pending, rates, functions, limit_s)
    if time > 1e6:  # never, or not before any cost here is far beyond the limit
        time = 1e6
    else:
        later = [k + int(rate * time * (1 + 1e-5)) for k, rate in zip(pending, rates, strict=True)]
        assert not holds([cost.of(k) for cost, k in zip(functions, later, strict=True)], (), limit_s)
    sooner = [k + int(rate * time * (1 - 2e-5)) for k, rate in zip(pending, rates, strict=True)]
    assert holds([cost.of(k) for cost, k in zip(functions, sooner, strict=True)], (), limit_s * (1 + 1e-12))


def test_a_planner_that_breaks_the_limit_is_found_out() -> None:
    class Lazy(ViewPlanner):
        name = "lazy"

        def next(
            self, pending: Sequence[int], costs: Sequence[CostFunction], limit_s: float, now: float
        ) -> tuple[int, ...]:
            return ()

    with pytest.raises(RuntimeError, match=r"step 2: lazy leaves \[3\] pending, which take 3 s of 2 s"):
        simulate(Lazy(), np.ones((9, 1), dtype=np.int64), [LinearCost(1.0)], 2.0)
