"""The study of batched maintenance: views that it measures are right, and its sections judge every claim."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hullcast.sim.experiments.steps import read_rows
from hullcast.sim.experiments.studies import batching, studies
from hullcast.sim.experiments.studies.batching import example, plans, real
from hullcast.sim.experiments.studies.batching.lgm import best_plan
from hullcast.sim.experiments.studies.batching.live import CheapestView, JoinView, MaintainedView, measured_costs
from hullcast.sim.experiments.studies.batching.planning import (
    ADAPT,
    KINDS,
    LGM,
    NAIVE,
    PLANNERS,
    UNIFORM,
    drawn_arrivals,
)
from hullcast.sim.experiments.study import PartModule, Sweep
from hullcast.sim.experiments.sweeping import checked, parts_of, run_study
from hullcast.sim.traces.tpcr import REGION_OF, REGIONS, SUPPLIERS_OF_PART, tpcr_tables

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class Told:
    """Nobody watches."""

    def begin(self, what: str) -> None: ...

    def tasks(self, done: int, known: int) -> None: ...


def small(part: PartModule, seeds: int, **sizes: Any) -> Sweep:
    """The quick points of a part, some of their parameters replaced by smaller ones."""
    points = {tuple({**point, **sizes}.items()): {**point, **sizes} for point in part.points(True)}
    return Sweep([{**of, "seed": seed, **part.measure(of, seed)} for seed in range(seeds) for of in points.values()])


@pytest.fixture(scope="module")
def planned() -> Sweep:
    points = [
        {**point, "T": {"T": point["T"] // 5, "kinds": 60}[point["figure"]]} for point in plans.points(quick=True)
    ]
    return Sweep([{**point, "seed": seed, **plans.measure(point, seed)} for seed in (0, 1) for point in points])


def test_the_parts_have_points_and_metrics_of_their_own() -> None:
    assert "batching" in studies()
    assert list(parts_of(batching.STUDY, quick=True)) == ["example", "plans", "limits", "real"]
    for part in batching.STUDY.parts:
        for quick in (True, False):
            checked(part.points(quick))


def test_tpcr_tables_have_the_sizes_and_keys_of_the_benchmark() -> None:
    drawn = tpcr_tables(0.01, 0)
    assert len(drawn.nation) == 100
    assert len(drawn.supplier) == len(drawn.cost) == 8_000
    assert set(np.bincount(drawn.supplier).tolist()) == {80}
    of_part = drawn.supplier.reshape(-1, SUPPLIERS_OF_PART)
    assert all(len(set(row)) == SUPPLIERS_OF_PART for row in of_part.tolist()), "a part has four different suppliers"
    assert drawn.cost.min() >= 100
    assert drawn.cost.max() <= 100_000
    assert sorted(set(REGION_OF)) == list(range(len(REGIONS)))
    assert len(REGION_OF) == 25


@pytest.mark.parametrize("view", real.VIEWS)
def test_a_view_is_right_after_any_batches(view: str) -> None:
    opened = real.opened(view, 0.002, 1)
    assert opened.is_right()
    chance = np.random.default_rng(1)
    for table, k in zip(chance.integers(0, 2, 40).tolist(), chance.integers(1, 30, 40).tolist(), strict=True):
        assert opened.propagate(table, k) >= 0
        assert opened.is_right()


def test_the_least_cost_is_known_also_when_it_goes() -> None:
    view = CheapestView(0.001, 3)
    for _ in range(300):
        view.propagate(0, 5)
        joined = "SELECT MIN(cost) FROM (" + CheapestView.QUERY + ")"
        assert (view.least,) == view._file.execute(joined).fetchone()


def test_a_view_that_is_wrong_is_found_out() -> None:
    view = JoinView(0.001, 0)
    view._file.execute("UPDATE view SET pairs = pairs + 1")
    assert not view.is_right()


@pytest.mark.parametrize("make", [lambda: JoinView(0.01, 0), lambda: CheapestView(0.01, 0)])
def test_measured_costs_are_costs(make: Any) -> None:
    view: MaintainedView = make()
    for cost in measured_costs(view, (1, 10, 100), 2):
        cost.check()
        assert cost.ks == [1.0, 10.0, 100.0]
    assert sqlite3.sqlite_version_info >= (3, 24), "ON CONFLICT"


@pytest.mark.parametrize("kind", KINDS)
def test_arrivals_come_as_often_and_as_many_as_their_kind_says(kind: str) -> None:
    p, sd = KINDS[kind]
    come = drawn_arrivals(kind, 20_000, 0)
    assert (come > 0).mean() == pytest.approx(p, abs=0.01)
    drawn = np.rint(np.random.default_rng(0).normal(1, sd, 1_000_000))
    assert come[come > 0].mean() == pytest.approx(drawn[drawn > 0].mean(), rel=0.02)
    assert (come == drawn_arrivals(kind, 20_000, 0)).all()
    assert (come != drawn_arrivals(kind, 20_000, 1)).any()


def test_all_shapes_take_as_long_for_as_many_changes() -> None:
    for shape in plans.SHAPES:
        costs = plans.costs_of(shape)
        assert sum(cost.of(plans.TOGETHER) for cost in costs) == pytest.approx(plans.TOGETHER_S)


def test_a_row_depends_on_nothing_but_its_point_and_its_seed(planned: Sweep) -> None:
    for row in planned.rows[::17]:
        point = {name: row[name] for name in plans.points(True)[0]}
        again = plans.measure(point, row["seed"])
        assert again == {name: row[name] for name in again}


def test_the_best_plan_of_a_row_is_the_best_plan(planned: Sweep) -> None:
    (row,) = planned.where(figure="T", shape="measured", planner=LGM, T=100, seed=0).rows
    plan = best_plan(drawn_arrivals(UNIFORM, 100, 0), plans.costs_of("measured"), plans.LIMITS["T"])
    assert row["cost"] == pytest.approx(plan.cost_s)
    assert planned.middle("cost", figure="T", shape="measured", T=100, planner=NAIVE) > row["cost"]


def test_of_the_first_example_a_limit_holds_82_of_100_parts_of_fixed_cost() -> None:
    for limit in plans.LIMITS.values():
        costs = plans.costs_of(plans.EXAMPLE, limit)
        assert sum(cost.of(plans.TOGETHER) for cost in costs) == pytest.approx(limit)
        assert sum(2 * cost.of(1) - cost.of(2) for cost in costs) == pytest.approx(0.82 * limit, rel=0.01)


def test_the_example_costs_what_the_text_says(tmp_path: Path) -> None:
    found = small(example, 1)
    (section,) = example.sections(found, tmp_path)
    assert all(claim.holds for claim in section.claims)
    told = {example.BY_HAND: example.BY_HAND_MS, NAIVE: example.NAIVE_MS}
    for name, ms in told.items():  # the refresh at T pays a fixed cost more, at most
        for steps in example.STEPS:
            over = found.middle("ms per change", planner=name, steps=steps) - ms
            assert -0.01 < over < 1e3 * example.R.fixed_s / (2 * steps) + 0.01


def test_sections_judge_every_claim_of_the_thesis(planned: Sweep, tmp_path: Path) -> None:
    sections = plans.sections(planned, tmp_path)
    assert [section.name for section in sections] == ["batching-T", "batching-kinds"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for of in sections for path in of.pictures.values())
    [bound] = [of for of in sections[0].claims if of.item == "Theorem 5"]
    assert (bound.subject, bound.workload, bound.holds) == (ADAPT, plans.EXAMPLE, True)
    much = {of.workload: of.holds for of in sections[0].claims if of.subject == LGM and "largest T" in of.statement}
    assert much == {"measured": False, plans.EXAMPLE: True, "concave": True, "step": False}


def test_real_totals_are_reported_beside_simulated_ones(tmp_path: Path) -> None:
    found = small(real, 1, scale=0.002, T=60)
    assert set(found.values("right")) == {1.0}
    costs, totals = real.sections(found, tmp_path)
    assert len(totals.figures[0]) == 1 + len(real.VIEWS) * len(PLANNERS)
    assert len(costs.claims) == 6
    assert all(path.exists() for section in (costs, totals) for path in section.pictures.values())


def test_spark_measures_what_we_measure_without_it(spark: SparkSession, tmp_path: Path) -> None:
    ended = run_study(batching.STUDY, tmp_path / "out", Told(), quick=True, seeds=1, only=["example"], spark=spark)
    rows = read_rows(tmp_path / "out" / "batching-example.parquet")
    assert len(rows) == len(example.points(quick=True))
    for row in rows:
        ours = example.measure(row, 0)
        assert {name: row[name] for name in ours} == pytest.approx(ours)
    assert "The example: R join S" in ended.report.read_text()
    assert (tmp_path / "out" / "batching-example.png").exists()
