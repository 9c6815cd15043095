"""The upkeep of a view: what is pending never takes longer than its limit; broken promises are learned from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.views.costs import LinearCost
from hullcast.broker.views.upkeep import (
    LEAST_SHARE,
    OVERHEAD_S,
    SHARE,
    Propagation,
    Spent,
    Upkeep,
    limit_of,
    shortest_promise,
)
from hullcast.sim.experiments.studies.batching.planners import Naive, Online

TABLES = ("r", "s", "t")
#: Seconds of a batch and of a row: flat, linear, and both.
COSTS = {"r": (0.010, 1e-6), "s": (1e-5, 0.001), "t": (0.002, 0.0001)}


def cost_s(table: str, rows: int) -> float:
    fixed_s, row_s = COSTS[table]
    return fixed_s + row_s * rows if rows else 0.0


def measured() -> dict[str, list[Spent]]:
    return {table: [Spent(rows, cost_s(table, rows)) for rows in (1, 8, 64, 512)] for table in TABLES}


@given(
    st.lists(st.tuples(st.sampled_from(TABLES), st.integers(1, 60)), max_size=40),
    st.sampled_from((0.06, 0.1, 0.5)),
    st.sampled_from((Online, Naive)),
)
def test_what_is_pending_takes_at_most_the_limit_whenever_nothing_is_due(
    releases: list[tuple[str, int]], response_time_s: float, planner: type[Online | Naive]
) -> None:
    upkeep = Upkeep(TABLES, response_time_s, measured(), planner())
    pending = dict.fromkeys(TABLES, 0)
    now = 0.0
    for table, rows in releases:
        now += 0.02
        pending[table] += rows
        due = upkeep.due(pending, now)
        assert all(pending[one] for one in due)
        if due:
            assert upkeep.refresh_s({**pending, **dict.fromkeys(due, 0)}) <= upkeep.limit_s
            spent = {one: Spent(pending[one], cost_s(one, pending[one])) for one in due}
            pending |= dict.fromkeys(due, 0)
            upkeep.propagated(Propagation(spent), pending, now)
        upkeep.check(pending)
    facts = upkeep.facts(pending)
    assert facts["pending"] == pending


def test_only_what_gains_from_waiting_waits() -> None:
    """A table with a high cost a batch, and one with a high cost a row: batching pays for the first only."""
    online, naive = (Upkeep(("r", "s"), 0.2, {t: measured()[t] for t in ("r", "s")}, p()) for p in (Online, Naive))
    for upkeep in (online, naive):
        pending = {"r": 0, "s": 0}
        for step in range(2000):
            for table in ("r", "s"):
                pending[table] += 1
            if due := upkeep.due(pending, step * 0.1):
                spent = {one: Spent(pending[one], cost_s(one, pending[one])) for one in due}
                pending |= dict.fromkeys(due, 0)
                upkeep.propagated(Propagation(spent), pending, step * 0.1)
    assert online.spent_s < 0.98 * naive.spent_s


def test_a_broken_promise_leaves_less_to_wait_and_kept_ones_bring_it_back() -> None:
    upkeep = Upkeep(TABLES, 0.1, measured())
    before = upkeep.limit_s
    upkeep.refreshed(0.11)
    assert upkeep.limit_s < before
    assert (upkeep.within, upkeep.beyond, upkeep.longest_s) == (0, 1, 0.11)
    for _ in range(50):
        upkeep.refreshed(0.5)
    assert upkeep.share == LEAST_SHARE
    for _ in range(1000):
        upkeep.refreshed(0.01)
    assert SHARE * 0.99 < upkeep.share <= SHARE


def test_the_shortest_promise_is_that_of_one_change_of_each_table() -> None:
    upkeep = Upkeep(TABLES, 1.0, measured())
    shortest_s = shortest_promise(list(upkeep.costs.values()))
    assert shortest_s == pytest.approx(OVERHEAD_S + sum(cost_s(table, 1) for table in TABLES))
    assert limit_of(shortest_s) < shortest_s


def test_the_result_is_computed_again_where_that_takes_less() -> None:
    upkeep = Upkeep(TABLES, 1.0, measured())
    many, few = {"s": 500, "t": 20}, {"s": 5, "t": 20}
    assert not upkeep.recomputes(many), "what it would take is not known"
    upkeep.computing = LinearCost(1e-5, 0.05)
    assert (upkeep.recomputes(many), upkeep.recomputes(few)) == (True, False)
    assert upkeep.refresh_s({"r": 0, **many}) == pytest.approx(0.05 + 500e-5 + cost_s("t", 20))


def test_more_may_be_pending_where_the_result_can_be_computed_in_time() -> None:
    upkeep = Upkeep(("s",), 0.2, {"s": measured()["s"]})
    pending = {"s": 10_000}
    assert upkeep.due(pending, 1.0) == ("s",)
    upkeep.computing = LinearCost(1e-6, 0.05)
    assert upkeep.due(pending, 1.0) == ()
    upkeep.check(pending)


def test_recomputing_teaches_nothing_of_deltas_but_what_was_given_up_does() -> None:
    upkeep = Upkeep(TABLES, 1.0, measured())
    before, nothing = upkeep.costs["s"].of(64), dict.fromkeys(TABLES, 0)
    done = Propagation({"s": Spent(64, 0.001)}, 0.05, computing=LinearCost(1e-5, 0.05))
    upkeep.propagated(done, nothing, 1.0)
    assert upkeep.costs["s"].of(64) == before
    upkeep.propagated(done._replace(given_up=("s", 10.0)), nothing, 2.0)
    assert upkeep.costs["s"].of(64) > 5 * before
    assert upkeep.recomputes({"s": 64})
    facts = upkeep.facts(nothing)
    assert (facts["propagations"], facts["recomputations"], facts["recompute_s"]) == (2, 2, 0.05)
    assert facts["spent_s"] == pytest.approx(2 * 0.051 + 10.0)


def test_what_was_learned_outlives_the_upkeep() -> None:
    upkeep, again = Upkeep(TABLES, 0.1, measured()), Upkeep(TABLES, 0.1)
    upkeep.refreshed(1.0)
    assert again.costs["r"].of(64) != upkeep.costs["r"].of(64)
    again.begin_with(upkeep.kept())
    pending = {"r": 7, "s": 64, "t": 100}
    assert again.refresh_s(pending) == upkeep.refresh_s(pending)
    assert again.share == upkeep.share < SHARE


@pytest.mark.parametrize("kept", ["", "[]", "{}", '{"share": 1, "costs": {"r": [], "s": []}}', '{"share": "x"}'])
def test_what_is_not_kept_by_a_view_is_refused(kept: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Upkeep(TABLES, 0.1).begin_with(kept)


def test_what_was_learned_is_kept_now_and_then() -> None:
    upkeep = Upkeep(TABLES, 0.1, measured())
    assert [upkeep.to_keep(now) is not None for now in (0.0, 0.5, 0.9, 1.1, 1.2, 5.0)] == [
        True,
        False,
        False,
        True,
        False,
        True,
    ]
