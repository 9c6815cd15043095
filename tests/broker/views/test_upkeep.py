"""The upkeep of a view: what is pending never takes longer than its limit; broken promises are learned from."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.views.planners.naive import Naive
from hullcast.broker.views.planners.online import Online
from hullcast.broker.views.upkeep import LEAST_SHARE, OVERHEAD_S, SHARE, Spent, Upkeep, limit_of, shortest_promise

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
        upkeep.released(table, rows, now)
        due = upkeep.due(pending, now)
        assert all(pending[one] for one in due)
        if due:
            assert upkeep.left_after(pending, due) <= upkeep.limit_s
            spent = {one: Spent(pending[one], cost_s(one, pending[one])) for one in due}
            pending |= dict.fromkeys(due, 0)
            upkeep.propagated(spent, pending, now)
        upkeep.check(pending)
    facts = upkeep.facts(pending)
    assert facts["changes"] == sum(rows for _, rows in releases)
    assert facts["pending"] == pending


def test_only_what_gains_from_waiting_waits() -> None:
    """A table with a high cost a batch, and one with a high cost a row: batching pays for the first only."""
    online, naive = (Upkeep(("r", "s"), 0.2, {t: measured()[t] for t in ("r", "s")}, p()) for p in (Online, Naive))
    for upkeep in (online, naive):
        pending = {"r": 0, "s": 0}
        for step in range(2000):
            for table in ("r", "s"):
                pending[table] += 1
                upkeep.released(table, 1, step * 0.1)
            if due := upkeep.due(pending, step * 0.1):
                spent = {one: Spent(pending[one], cost_s(one, pending[one])) for one in due}
                pending |= dict.fromkeys(due, 0)
                upkeep.propagated(spent, pending, step * 0.1)
    assert online.spent_s < 0.98 * naive.spent_s
    assert abs(naive.naive_s - naive.spent_s) < 0.05 * naive.spent_s  # what it says of naive is what naive takes


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
