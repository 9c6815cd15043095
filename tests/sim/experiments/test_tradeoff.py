"""The study of response time against freshness, on workloads small enough to look at."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Any

import pytest

from hullcast.sim.bench.warehouse.knapsack import knapsack_cost
from hullcast.sim.experiments.studies.scheduling import tradeoff
from hullcast.sim.experiments.study import SEED, Sweep
from hullcast.sim.traces.tradeoff import READ, TABLES, knapsack_of, tradeoff_workload

if TYPE_CHECKING:
    from pathlib import Path


def small() -> list[dict[str, Any]]:
    """The points of a quick run, most with few queries."""
    return [
        {**point, "size": point["size"] if point["figure"] == "stay" else min(60, point["size"])}
        for point in tradeoff.points(quick=True)
    ]


@pytest.fixture(scope="module")
def found() -> Sweep:
    unique = {tuple(point.items()): point for point in small()}.values()
    return Sweep([{**point, SEED: 0, **tradeoff.measure(point, 0)} for point in unique])


def test_a_point_is_measured_alike_each_time() -> None:
    point = next(point for point in small() if point["figure"] == "stay" and point["qos"] == 0.5)
    one, other = tradeoff.measure(point, 3), tradeoff.measure(point, 3)
    assert [value for value in one.values() if not isnan(value)] == [
        value for value in other.values() if value == value
    ]
    assert set(one) == set(tradeoff.METRICS)


def test_in_each_phase_every_decision_is_that_of_the_pure_policy(found: Sweep) -> None:
    for kind in tradeoff.WORKLOADS:
        assert found.values("agreed", figure="flips", workload=kind, policy="pareto") == [1.0]
    for flips in found.where(figure="stable").all_of("flips"):
        assert found.values("agreed", figure="stable", flips=flips) == [1.0]


def test_preferences_are_between_the_pure_policies(found: Sweep) -> None:
    for kind in tradeoff.WORKLOADS:
        stay = found.where(figure="stay", workload=kind)
        assert stay.middle("freshness", qos=0.0) == 1.0
        assert stay.middle("freshness", qos=1.0) < stay.middle("freshness", qos=0.5) <= 1.0
        assert stay.middle("response", qos=1.0) < stay.middle("response", qos=0.0)


def test_the_report_has_its_sections_and_pictures(found: Sweep, tmp_path: Path) -> None:
    sections = tradeoff.sections(found, tmp_path)
    assert [section.name for section in sections] == [
        "tradeoff-flips", "tradeoff-stay", "tradeoff-knapsack", "tradeoff-stability",
    ]  # fmt: skip
    assert all(path.exists() for section in sections for path in section.pictures.values())
    assert all(section.claims for section in sections)


@pytest.mark.parametrize("kind", tradeoff.WORKLOADS)
def test_a_tenth_of_all_updates_concern_a_query(kind: str) -> None:
    load = tradeoff_workload(kind, 300, 0)
    assert READ / TABLES == tradeoff.DEPENDENCY
    assert all(len(set(row)) == READ for row in load.reads.tolist())
    positions, slot = knapsack_of(kind, 300, 0.1, 0.5, 0)
    assert 0.08 < (len(positions.cost) - 300) / 300**2 < 0.12
    assert slot == int((load.costs * 1_000).round().sum()) * 300 // 2


def test_the_benchmark_of_the_knapsack_measures_the_case_of_the_goal() -> None:
    goals = [cost for cost in knapsack_cost(lambda what: None, quick=True) if cost.is_goal]
    assert [cost.workload for cost in goals] == ["Gauss", "Zipf"]
    assert all(cost.exact and cost.seconds > 0 for cost in goals)
