"""The study of response time against freshness, on workloads small enough to look at."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hullcast.broker.scheduling.knapsack import packed
from hullcast.sim.bench.warehouse.knapsack import knapsack_cost
from hullcast.sim.experiments.studies.scheduling import tradeoff
from hullcast.sim.experiments.studies.scheduling.tradeoff import flips, preferences, stability
from hullcast.sim.experiments.studies.scheduling.tradeoff.fronts import FewTransactions, efficient, update_prioritizing
from hullcast.sim.experiments.studies.scheduling.tradeoff.paper import (
    QUERIES_FIRST,
    UPDATES_FIRST,
    PaperScheduler,
    distance,
)
from hullcast.sim.experiments.studies.scheduling.tradeoff.runs import FAR
from hullcast.sim.experiments.study import SEED, Sweep
from hullcast.sim.traces.tradeoff import CITED, READ, TABLES, WORKLOADS, knapsack_of, positions_of, tradeoff_workload

if TYPE_CHECKING:
    from pathlib import Path


def small() -> list[dict[str, Any]]:
    """The points of a quick run, those that take long with few queries."""
    few = ("flips", "stable", "load", "rates")
    return [
        {**point, "size": 60} if point["figure"] in few else point for point in tradeoff.points(quick=True)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def found() -> Sweep:
    return Sweep([{**point, SEED: 0, **tradeoff.measure(point, 0)} for point in small()])


def ran(kind: str, qos: float, position: int | None = None) -> PaperScheduler:
    scheduler = PaperScheduler(tradeoff_workload(kind, 200, 0), lambda now: qos, position)
    scheduler.run()
    return scheduler


def test_the_distance_of_the_papers_example() -> None:
    before = {1: 6, 2: 2, 3: 4}
    after = {2: 1, 3: 5}  # update 1 has been executed
    assert distance(before, after) == (abs(2 - 1) + abs(4 - 5)) / 2 == 1
    assert distance(before, {4: 1}) is None


def test_the_items_of_the_papers_example() -> None:
    """Figure 5 with an update of cost 5 and profit 10; which queries depend on it is lost with the figure."""
    positions = positions_of(np.array([[False, True, False, True]]), np.array([5]), np.array([10]))
    assert positions.place.tolist() == [0, 2, 4]
    assert positions.cost.tolist() == [0, 5 * 2, 5 * 4]
    assert positions.profit.tolist() == [0, 10, 2 * 10]


@pytest.mark.parametrize("figure", ["Figure 1", "Figure 3"])
def test_every_order_comes_to_what_the_definitions_say(figure: str) -> None:
    few = FewTransactions.drawn(figure, 1)
    queries, updates = len(few.takes), len(few.costs)
    first = sum(few.takes[: each + 1].sum() for each in range(queries))
    quickest = (first, 0)
    freshest = (first + few.costs.sum() * queries, few.profits.sum() * queries)
    dearest_last = first + few.costs[0] * 1, few.profits[0] * 1  # the first update before the last query
    found = {tuple(row) for row in few.orders().tolist()}
    assert {quickest, freshest, dearest_last} <= found
    assert len(few.orders()) == np.prod(np.arange(1, queries + updates + 1))
    front = efficient(few.orders())
    assert (front[0], front[-1]) == (quickest, freshest)
    assert front == [
        one for one in sorted(found)
        if not any(other != one and other[0] <= one[0] and other[1] >= one[1] for other in found)
    ]  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.lists(st.booleans(), min_size=4, max_size=4))),
    st.integers(0, 40),
)
def test_algorithm_1_finds_the_most_profit_within_the_bound(
    updates: list[tuple[int, int, list[bool]]], bound: int
) -> None:
    depends = np.array([row for _, _, row in updates], dtype=bool).reshape(len(updates), 4)
    costs, profits = (np.array([each[at] for each in updates], dtype=np.int64) for at in (0, 1))
    place, _ = update_prioritizing(positions_of(depends, costs, profits), bound)
    assert sum(costs * place) <= bound
    gained = sum(profit * row[:at].sum() for profit, row, at in zip(profits, depends, place, strict=True))
    assert gained == packed(positions_of(depends, costs, profits), bound).profit


@pytest.mark.parametrize("kind", WORKLOADS)
def test_at_qos_1_the_knapsack_is_queries_first_and_at_0_fresh_and_quicker_than_updates_first(kind: str) -> None:
    assert ran(kind, 1.0).begun == ran(kind, 0.0, QUERIES_FIRST).begun
    knapsack, first = (np.array(ran(kind, 0.0, position).begun) for position in (None, UPDATES_FIRST))
    assert len(knapsack) == len(first) == 200
    assert knapsack[:, 2].tolist() == first[:, 2].tolist() == [1.0] * 200
    assert knapsack[:, 1].mean() < first[:, 1].mean(), "updates that no waiting query reads come later"


def test_a_point_is_measured_alike_each_time() -> None:
    point = next(point for point in small() if point["figure"] == "stay" and point["qos"] == 0.5)
    one, other = tradeoff.measure(point, 3), tradeoff.measure(point, 3)
    assert [value for value in one.values() if not isnan(value)] == [
        value for value in other.values() if value == value
    ]
    assert set(one) == set(tradeoff.METRICS)


def test_preferences_are_between_the_pure_policies(found: Sweep) -> None:
    for kind in WORKLOADS:
        for policy in preferences.POLICIES:
            stay = found.where(figure="stay", workload=kind, policy=policy)
            assert stay.middle("freshness", qos=0.0) == 1.0
            assert stay.middle("freshness", qos=1.0) < stay.middle("freshness", qos=0.5) <= 1.0
            assert stay.middle("response", qos=1.0) < stay.middle("response", qos=0.0)


def test_every_schedule_that_is_compared_is_counted_once(found: Sweep) -> None:
    stable = found.where(figure="stable")
    for row in stable.rows:
        assert sum(row[f"far {whole}"] for whole in range(FAR + 1)) == row["schedules"] > 0
    assert {row["policy"] for row in stable.rows} == {"knapsack", "pareto"}


def test_what_could_not_be_otherwise_is_marked(found: Sweep, tmp_path: Path) -> None:
    (section,) = stability.sections(found, tmp_path)
    marked = {claim.subject for claim in section.claims if claim.construction}
    assert marked == {"pareto, qos 0 to 1"}
    (section,) = flips.sections(found, tmp_path)
    assert {claim.statement for claim in section.claims if claim.given} == {
        "at the end of phases with qos = 0 answers are as fresh as with updates-first"
    }


def test_the_report_has_its_sections_and_pictures(found: Sweep, tmp_path: Path) -> None:
    sections = tradeoff.sections(found, tmp_path)
    assert [section.name for section in sections] == [
        "tradeoff-front", "tradeoff-flips", "tradeoff-stay", "tradeoff-knapsack", "tradeoff-effort",
        "tradeoff-stability",
    ]  # fmt: skip
    for section in sections:
        assert section.cited == CITED
        assert section.items
        assert section.claims
        assert all(claim.item for claim in section.claims)
        assert all(path.exists() for path in section.pictures.values())


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_tenth_of_all_updates_concern_a_query(kind: str) -> None:
    load = tradeoff_workload(kind, 300, 0)
    assert tradeoff.USUAL["dependency"] == READ / TABLES
    assert all(len(set(row)) == READ for row in load.reads.tolist())
    positions, slot = knapsack_of(kind, 300, 0.1, 0.5, 0)
    assert 0.08 < (len(positions.cost) - 300) / 300**2 < 0.12
    assert slot == int((load.costs * 1_000).round().sum()) * 300 // 2


def test_the_benchmark_of_the_knapsack_measures_the_case_of_the_goal() -> None:
    goals = [cost for cost in knapsack_cost(lambda what: None, quick=True) if cost.is_goal]
    assert [cost.workload for cost in goals] == ["Gauss", "Zipf"]
    assert all(cost.exact and cost.seconds > 0 for cost in goals)
