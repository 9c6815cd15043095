"""The best lazy-greedy-minimal plan: against all plans, its bound along every edge, and what follows a guess of it."""

from __future__ import annotations

from math import ceil

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hullcast.broker.views.costs import CostFunction, CurveCost, LinearCost
from hullcast.broker.views.planner import minimal_actions
from hullcast.sim.experiments.studies.batching.costs import StepCost
from hullcast.sim.experiments.studies.batching.guessed import Guessed, even_arrivals
from hullcast.sim.experiments.studies.batching.lgm import MOST_TABLES, KnownArrivals, LeastAhead, Lgm, best_plan
from hullcast.sim.experiments.studies.batching.simulated import simulate
from tests.broker.views.test_planner import Watched, costs, limits, views
from tests.support.plans import State, least_lgm, least_lgm_from, least_of_all

View = tuple[npt.NDArray[np.int64], list[CostFunction], float]
lines = st.builds(LinearCost, st.integers(0, 2), st.integers(0, 5))


@st.composite
def small(draw: st.DrawFn, function: st.SearchStrategy[CostFunction], most: int = 2, steps: int = 6) -> View:
    """Few changes: all plans are tried."""
    functions = draw(st.lists(function, min_size=1, max_size=2))
    row = st.lists(st.integers(0, most), min_size=len(functions), max_size=len(functions))
    return np.array(draw(st.lists(row, min_size=1, max_size=steps))), functions, draw(limits)


def rows(arrivals: npt.NDArray[np.int64]) -> list[State]:
    return [tuple(row) for row in arrivals.tolist()]


@settings(max_examples=50)
@given(small(lines))
def test_with_linear_costs_no_valid_plan_is_cheaper(view: View) -> None:
    arrivals, functions, limit_s = view
    assert best_plan(*view).cost_s == pytest.approx(least_of_all(rows(arrivals), functions, limit_s))


@given(small(costs))
def test_with_any_costs_no_valid_plan_is_cheaper_than_half(view: View) -> None:
    arrivals, functions, limit_s = view
    assert best_plan(*view).cost_s <= 2 * least_of_all(rows(arrivals), functions, limit_s) * (1 + 1e-12)


@given(views())
def test_the_search_finds_the_cheapest_of_all_lazy_greedy_minimal_plans(view: View) -> None:
    arrivals, functions, limit_s = view
    plan = best_plan(*view)
    assert plan.exact
    assert plan.cost_s == pytest.approx(least_lgm(rows(arrivals), functions, limit_s))
    followed = simulate(Watched(Lgm(plan), minimal=True), *view)
    assert followed.cost_s == pytest.approx(plan.cost_s)
    done = [(each.step, each.tables) for each in followed.actions if each.step < len(arrivals) - 1]
    assert done == plan.actions


@settings(max_examples=50)
@given(views(), st.integers(0, 3))
def test_when_the_effort_runs_out_the_plan_is_valid_and_what_it_may_cost_too_much_is_known(
    view: View, effort: int
) -> None:
    arrivals, functions, limit_s = view
    plan, least = best_plan(*view, effort=effort), least_lgm(rows(arrivals), functions, limit_s)
    assert plan.least_s <= least * (1 + 1e-9) + 1e-9
    assert plan.cost_s >= least * (1 - 1e-9)
    assert simulate(Watched(Lgm(plan), minimal=True), *view).cost_s == pytest.approx(plan.cost_s)


def at_least(view: KnownArrivals, bound: LeastAhead, step: int, since: tuple[int, ...]) -> float:
    """h, from its definition."""
    last = len(view.come) - 2
    each = [bound.ahead[bound.first[table, u] + step - u] for table, u in enumerate(since)]
    return float(sum(each) - bound.price * view.limit_s * (last - step))


@settings(max_examples=60)
@given(views(steps=9))
def test_the_bound_is_admissible_and_consistent_along_every_edge(view: View) -> None:
    arrivals, functions, limit_s = view
    known = KnownArrivals.of(arrivals, functions, limit_s)
    bound, come, last = known.least_ahead(), known.come, len(arrivals) - 1
    assert bound.total_s == pytest.approx(at_least(known, bound, 0, (0,) * len(functions)))

    def full(step: int, since: tuple[int, ...]) -> int:
        """The next step in which the limit is broken, or the last."""
        while step < last and sum(priced(step, since)) <= limit_s:
            step += 1
        return step

    def priced(step: int, since: tuple[int, ...]) -> list[float]:
        return [
            cost.of(int(come[step + 1, table] - come[u, table]))
            for table, (cost, u) in enumerate(zip(functions, since, strict=True))
        ]

    first = (0,) * len(functions)
    states, waiting = {(full(0, first), first)}, [(full(0, first), first)]
    while waiting:
        step, since = waiting.pop()
        here = at_least(known, bound, step, since)
        pending = tuple(int(come[step + 1, table] - come[u, table]) for table, u in enumerate(since))
        left = least_lgm_from(step, pending, rows(arrivals), functions, limit_s)
        assert here <= left + 1e-9, "admissible"
        each_s = priced(step, since)
        if step == last:
            assert here == pytest.approx(sum(each_s)), "exact in the last step"
            continue
        for tables in minimal_actions(each_s, limit_s):
            after = tuple(step + 1 if table in tables else u for table, u in enumerate(since))
            to = full(step + 1, after)
            edge = sum(each_s[table] for table in tables)
            assert here <= edge + at_least(known, bound, to, after) + 1e-9, "consistent"
            if (to, after) not in states:
                states.add((to, after))
                waiting.append((to, after))


def test_the_bound_of_the_thesis_is_not_consistent() -> None:
    """Table 0 has exactly p changes to propagate; propagating one of them lowers the bound by more than it costs."""
    cost, limit_s = LinearCost(1.0, 10.0), 15.0
    p = cost.largest_within(limit_s) + 1

    def bound(left: int) -> float:
        return left // p * cost.of(p)

    assert bound(p) > cost.of(1) + bound(p - 1)


@pytest.mark.parametrize("inverse", [2, 4, 8])
def test_the_tight_example_costs_nearly_twice_as_much_as_the_best_plan(inverse: int) -> None:
    """Xie (2007), Example 1, with epsilon = 1 / inverse and a limit of 1."""
    epsilon, rounds = 1 / inverse, 2
    whole = 2 * inverse
    cost = CurveCost([(1.0, epsilon / 2), (whole, 1.0), (whole + 1, 1 + epsilon / 2), (1e9, 1 + epsilon / 2)])
    arrivals = np.full((2 * rounds, 1), whole + 1, dtype=np.int64)
    found = best_plan(arrivals, [cost], 1.0).cost_s
    assert found == pytest.approx((2 + epsilon) * rounds)
    best = least_of_all(rows(arrivals), [cost], 1.0)
    assert best == pytest.approx((1 + epsilon) * rounds)
    assert found >= (2 - epsilon) * best


@st.composite
def guesses(draw: st.DrawFn) -> tuple[list[int], list[LinearCost], float, int, int]:
    """Rates, lines, a limit, and the times of refresh: guessed and real."""
    functions = draw(st.lists(lines, min_size=1, max_size=3))
    rates = draw(st.lists(st.integers(0, 2), min_size=len(functions), max_size=len(functions)))
    return rates, functions, draw(limits), draw(st.integers(1, 12)), draw(st.integers(1, 30))


@given(guesses())
def test_a_guessed_plan_costs_at_most_one_batch_of_each_table_more_in_each_round(
    guess: tuple[list[int], list[LinearCost], float, int, int],
) -> None:
    """Theorems 5 (T <= T0) and 6."""
    rates, functions, limit_s, guessed, real = guess
    arrivals = even_arrivals(rates, real)
    planner = Guessed(float(guessed), rates, steps=guessed)
    found = simulate(planner, arrivals, functions, limit_s).cost_s
    best = best_plan(arrivals, functions, limit_s).cost_s
    more = ceil(real / guessed) * sum(cost.fixed_s for cost in functions)
    assert best * (1 - 1e-9) <= found <= (best + more) * (1 + 1e-9)


@given(views(steps=25), st.integers(1, 9), st.booleans())
def test_a_guessed_plan_keeps_the_limit_whatever_comes(view: View, guessed: int, known: bool) -> None:
    arrivals, functions, _ = view
    planner = Guessed(float(guessed), [1.0] * len(functions) if known else None, steps=guessed)
    found = simulate(planner, *view)  # which raises if what is left exceeds the limit
    done = sum(k for each in found.actions for k in each.batches)
    assert done == arrivals.sum()


def test_a_guess_that_is_right_is_followed_to_the_end() -> None:
    functions = [LinearCost(0.01, 8.0), LinearCost(0.1, 0.2)]
    arrivals = np.ones((300, 2), dtype=np.int64)
    plan = best_plan(arrivals, functions, 12.0)
    planner = Guessed(300.0, [1.0, 1.0], steps=300)
    assert simulate(planner, arrivals, functions, 12.0).cost_s == pytest.approx(plan.cost_s)
    assert planner.counters()["plans"] == 1


def test_a_plan_is_made_again_only_if_costs_or_rates_changed() -> None:
    planner, arrivals = Guessed(50.0, [1.0, 1.0], steps=50), np.ones((400, 2), dtype=np.int64)
    simulate(planner, arrivals, [LinearCost(0.1, 2.0), LinearCost(0.2)], 6.0)
    assert planner.counters() == {"plans": 1, "rounds": 7}
    simulate(planner, arrivals, [LinearCost(0.1, 3.0), LinearCost(0.2)], 6.0)
    assert planner.counters()["plans"] == 2


def test_many_changes_are_planned_for_in_larger_units() -> None:
    planner = Guessed(100.0, [5_000.0, 5_000.0], steps=100)
    functions = [LinearCost(1e-6, 0.8), LinearCost(1e-5, 0.01)]
    found = simulate(planner, even_arrivals([5_000, 5_000], 100), functions, 1.2)
    assert found.cost_s < 2 * best_plan(even_arrivals([5_000, 5_000], 100), functions, 1.2).cost_s


def test_more_tables_than_can_be_planned_for_are_refused_and_a_guess_does_without() -> None:
    functions = [LinearCost(0.1, 1.0)] * (MOST_TABLES + 1)
    arrivals = np.ones((30, len(functions)), dtype=np.int64)
    with pytest.raises(ValueError, match="1 to 8 tables"):
        best_plan(arrivals, functions, 9.5)
    simulate(Guessed(30.0, [1.0] * len(functions)), arrivals, functions, 9.5)


def test_ties_are_broken_toward_the_end() -> None:
    """All plans cost the same; the search goes straight to one."""
    arrivals = np.ones((400, 2), dtype=np.int64)
    plan = best_plan(arrivals, [LinearCost(1.0)] * 2, 20.0)
    assert plan.cost_s == pytest.approx(800)
    assert plan.expanded < 100


@pytest.mark.parametrize(("steps", "tables"), [(1, 1), (1, 3), (2, 2)])
def test_short_plans_have_only_the_refresh(steps: int, tables: int) -> None:
    plan = best_plan(np.ones((steps, tables), dtype=np.int64), [StepCost(10, 1.0)] * tables, 5.0)
    assert plan.actions == []
    assert plan.cost_s == tables


def test_a_thousand_steps_are_planned_exactly_for_two_tables_and_nearly_for_four() -> None:
    """Seconds depend on the machine; states do not. (`broker/views/PLANNERS.md` has seconds.)"""
    lines = [LinearCost(0.01, 8.0), LinearCost(0.1, 0.2), LinearCost(0.02, 3.0), LinearCost(0.05, 1.0)]
    two = best_plan(np.ones((1_000, 2), dtype=np.int64), lines[:2], 12.0)
    assert two.exact
    assert two.expanded < 20_000
    four = best_plan(np.ones((1_000, 4), dtype=np.int64), lines, 20.0, effort=50_000)
    assert not four.exact
    assert four.cost_s < 1.1 * four.least_s, "what it may cost too much is known, and small"
