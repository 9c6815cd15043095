"""The benchmark of joins at toy sizes: it runs, plans agree, and tables, file and pictures have the form expected."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hullcast.broker.engine.engine import Engine
from hullcast.broker.joins.naive import NaivePlan
from hullcast.broker.joins.plan import Arrivals, Spans
from hullcast.broker.reformulate.join import JoinChannel
from hullcast.network.wire.arrays import Floats
from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.frame.benchmark import BenchReport
from hullcast.sim.bench.frame.report import draw, to_json, write_json
from hullcast.sim.bench.frame.timing import MeasurementFailed
from hullcast.sim.bench.joins.benchmark import JOINS, SELECTS
from hullcast.sim.bench.joins.cells import (
    PlanCell,
    check_same_answers,
    check_same_rows,
    measure,
    select_arrivals,
    select_tree,
)
from hullcast.sim.bench.joins.charts import NEVER, JoinChart, JoinCurve
from hullcast.sim.bench.joins.judging import Aim, Stated
from hullcast.sim.bench.joins.live import LiveJoinSettings
from hullcast.sim.bench.joins.probe import describe_every_pair
from hullcast.sim.bench.joins.sections import FULL_JOINS, QUICK_JOINS, JoinSettings
from hullcast.sim.joins.routing import PLANS, PlanRouter, RouterLoad, regress, terms
from hullcast.sim.traces.merchants import CREATES, JOIN, QUANTITIES, TABLES, Merchants, answers
from hullcast.sim.traces.table41 import Table41
from tests.sim.bench.reports import shown

if TYPE_CHECKING:
    from pathlib import Path

TINY_LIVE = LiveJoinSettings(
    rows=300, meeting=30, merchants=60, width=500.0, clients=2, gateways=1, batch=20, warm=1, batches=4, probe_batches=2
)
TINY = JoinSettings(
    rows=2_000,
    queries=1_000,
    sweep=(100, 1_000),
    groups=(30, 250),
    selectivities=(0.01, 0.1),
    joining=(1_000, 10_000),
    hot_queries=2_000,
    hot_shares=(0.2, 0.6, 1.0),
    hot_groups=10,
    bands=(50, 500),
    band_groups=(30, 100),
    changes=400,
    buckets=(20, 30),
    mixed=(500, 1_000),
    mixed_arrivals=20,
    rounds=2,
    budget_s=0.0,
    live=TINY_LIVE,
)
MEASURED_HERE = [section.name for section in JOINS.sections if section.name != "live"]


@pytest.fixture(scope="module")
def report() -> BenchReport:
    ticks: list[str] = []
    report = JOINS.measure(TINY, MEASURED_HERE, ticks.append, look_s=0)
    assert len(ticks) == JOINS.steps(TINY, MEASURED_HERE)
    return report


def test_all_sections_are_measured_and_shown(report: BenchReport) -> None:
    charts = {chart.figure: chart for chart in _charts(report)}
    names = [curve.name for curve in charts["4.7(i)"].curves]
    assert names == ["SSI", "SelectFirst", "JoinFirst", "NAIVE", "SSI, counted", "ours (spans)"]
    names = [curve.name for curve in charts["4.10(i)"].curves]
    assert names == ["BJ-SSI", "BJ-SSI, one list", "BJ-MJ", "BJ-DOuter", "BJ-QOuter", "BJ-SSI, read off"]
    assert [curve.name for curve in charts["4.13"].curves][-3:] == ["DYNAMIC", "OPT", "ours (spans)"]
    text = shown(report, 80)
    assert "…" not in text  # all fits in 80 columns
    for figure in charts:
        assert f"Figure {figure}:" in " ".join(text.split())
    for expected in ("Table 4.2", "claims of Xie 2007", "goals"):
        assert expected in text


def _charts(report: BenchReport) -> list[JoinChart]:
    """Of all sections."""
    return [chart for name in MEASURED_HERE for chart in getattr(report.found[name], "charts", report.found[name])]


def test_every_figure_has_a_claim_with_what_the_source_says(report: BenchReport) -> None:
    figures = {claim.item.partition("(")[0] for claim in report.claims}
    assert figures == {"Table 4.2", "Figure 4.2", *(f"Figure 4.{number}" for number in range(7, 22))}
    assert all(claim.paper for claim in report.claims)
    assert len(report.goals) == 13


def test_no_bound_lets_the_opposite_pass(report: BenchReport) -> None:
    """An SSI that gets faster with more queries has no loss of less than 20 %; neither has one that gets slower."""
    loss = next(row for row in SELECTS if isinstance(row, Stated) and "loss" in row.words)

    def judged(last: float) -> bool:
        return loss.judge(lambda figure, name: JoinCurve(name, (100.0, 1e5), ((1.0, 1.0), (last, last)))).holds

    assert [judged(last) for last in (0.45, 1.0, 1.2, 2.0)] == [False, True, True, False]


def test_a_judged_number_is_a_median_with_its_quartiles() -> None:
    row = Stated("4.7(i)", "it", "2x", lambda found: [1.0, 2.0, 3.0, 4.0, 9.0], (2, 4))
    claim = row.judge(lambda figure, name: JoinCurve(name, (), ()))
    assert (claim.item, claim.ours, claim.holds) == ("Figure 4.7(i)", "3.0x [2.0x .. 4.0x]", True)
    aim = Aim("it", 6.0, row.values).judge(lambda figure, name: JoinCurve(name, (), ()))
    assert (aim.target, aim.measured, aim.share) == (">= 6.0x", "3.0x [2.0x .. 4.0x]", 0.5)


def test_a_curve_says_where_it_passes_another() -> None:
    low = JoinCurve("low", (1.0, 10.0, 100.0), ((1.0, 5.0, 1.0), (10.0, 50.0, 1.0), (100.0, 500.0, 1.0)))
    level = JoinCurve("level", low.xs, ((10**1.5, 1.0, 10.0),) * 3)
    assert low.passes(level) == pytest.approx([10**1.5, 0.0, NEVER])
    assert low.slopes() == pytest.approx([1.0, 1.0, 0.0])
    assert JoinCurve("", low.xs, ((1.0,), (10.0,), (100.0,))).straight()[0] == pytest.approx((1.0, 1.0))


def test_workloads_have_the_groups_they_are_asked_for(report: BenchReport) -> None:
    charts = {chart.figure: chart for chart in _charts(report)}
    assert charts["4.7(ii)"].groups == pytest.approx((30, 250), rel=0.15)
    assert charts["4.10(ii)"].groups == pytest.approx((30, 100), rel=0.15)
    assert charts["4.9"].groups == (10, 10, 10)


def test_a_regression_finds_the_coefficients_and_how_sure_they_are() -> None:
    random = np.random.default_rng(0)
    load = RouterLoad(1_000, 5_000, np.array([2_000, 1_000]), 2_000)
    k_j, k_s = random.uniform(1, 1_000, (2, 400))
    k_s[:80] = 0.0
    design = terms("SelectFirst", load, k_j, k_s)[:, [0, 2]]
    values, half = regress(design, k_s, design @ np.array([3.0, 0.5]) * random.normal(1, 0.05, 400))
    assert values == pytest.approx([3.0, 0.5], rel=0.02)
    assert (half < values / 50).all()


def test_a_router_gives_a_row_that_meets_few_another_plan_than_one_that_meets_many() -> None:
    joined = np.repeat((1.0, 2.0), (1, 900))
    queries = np.tile((0.0, 10.0, 0.0, 1.0), (1_000, 1))
    cost = {plan: np.zeros(2 if "Join" in plan else 3) for plan in PLANS}
    cost["JoinFirst-E"][1], cost["JoinFirst-S"][:], cost["SelectFirst"][1] = 1.0, 1e6, 50.0
    cost["Hotspot"] = np.full(4, 1e6)
    load = RouterLoad(901, 1_000, np.array([1_000]), 0)
    chosen = PlanRouter(load, joined, queries, cost).choose(np.array([1.0, 2.0]), np.array([5.0, 5.0]))
    assert [PLANS[number] for number in chosen] == ["JoinFirst-E", "SelectFirst"]


def test_the_file_holds_sections_claims_and_goals(report: BenchReport, tmp_path: Path) -> None:
    write_json(to_json(report), tmp_path / "joins.json")
    content = json.loads((tmp_path / "joins.json").read_text(encoding="utf-8"))
    assert content["live"] is None
    assert content["selects"][0]["curves"][0]["name"] == "SSI"
    assert content["planning"]["coefficients"][0]["theirs"] == "0.25 [0.24 .. 0.26]"
    assert {"statement", "item", "paper", "ours", "verdict", "holds"} < set(content["claims"][0])
    assert {"name", "target", "measured", "share", "passed"} == set(content["goals"][0])


def test_a_picture_is_drawn_for_each_figure(report: BenchReport, tmp_path: Path) -> None:
    names = [path.name for path in draw(report, tmp_path)]
    figures = ["2", "7_i", "7_ii", "8_iii", "8_iv", "9", "10_i", "10_ii", *map(str, range(11, 22)), "13_ours"]
    assert sorted(names) == sorted(f"fig_4_{figure}.png" for figure in figures)
    assert all((tmp_path / name).stat().st_size > 10_000 for name in names)


def test_an_unknown_section_is_refused() -> None:
    with pytest.raises(UsageError, match="no section 'x'; sections: coverage, "):
        JOINS.measure(TINY, ["x"])


def test_quick_measures_a_part_of_what_full_does() -> None:
    assert JOINS.steps(QUICK_JOINS) < JOINS.steps(FULL_JOINS)
    assert max(QUICK_JOINS.sweep) == max(FULL_JOINS.sweep) == 100_000  # where the goals are


class _Forgetful(NaivePlan):
    """Misses what the last span holds."""

    def spans(self, tree: Floats, arrivals: Arrivals) -> Spans:
        of, low, high, sure = super().spans(tree, arrivals)
        return Spans(of[:-1], low[:-1], high[:-1], sure[:-1])


def test_a_plan_that_misses_rows_is_found_out() -> None:
    tables = Table41(500, 50)
    rows, queries = tables.partners(), tables.select_joins(200)
    tree, arrivals = select_tree(rows), select_arrivals(tables.arrivals(30))
    for plan in (NaivePlan(), _Forgetful()):
        plan.add(np.arange(200), queries)
        if isinstance(plan, _Forgetful):
            with pytest.raises(MeasurementFailed, match="NAIVE leads to"):
                check_same_rows([plan], tree, rows.c, arrivals, queries)
        else:
            check_same_rows([plan], tree, rows.c, arrivals, queries)


def test_cells_take_turns() -> None:
    order: list[str] = []
    cells = [PlanCell(name, 1.0, lambda count, name=name: order.append(name)) for name in ("a", "b")]  # type: ignore[misc]
    curves = measure(cells, 3, 0.0)
    assert order == ["a", "a", "b", "b", *("a", "b") * 3]
    assert [(curve.name, curve.xs, len(curve.rounds[0])) for curve in curves] == [("a", (1.0,), 3), ("b", (1.0,), 3)]


def test_plans_that_name_other_queries_are_found_out() -> None:
    arrivals = Arrivals(*np.zeros((3, 2)))
    same: dict[str, Any] = {"a": lambda tree, some: ([0, 0], [2, 1]), "b": lambda tree, some: ([0, 0], [1, 2])}
    check_same_answers(same, np.empty(0), arrivals)
    with pytest.raises(MeasurementFailed, match=r"affected queries differ: \{'a': 2, 'b': 2, 'c': 1\}"):
        check_same_answers({**same, "c": lambda tree, some: ([0], [2])}, np.empty(0), arrivals)


def test_merchants_answers_are_those_of_a_nested_loop() -> None:
    load = Merchants(40, 10, 30, 2_000.0)
    tables = {name: load.table(name) for name in TABLES}
    ranges = load.ranges()
    supply, demand = (list(zip(*(tables[name].values()), strict=True)) for name in TABLES)
    for found, (low, high, other_low, other_high) in zip(
        answers(tables, ranges), zip(*ranges, strict=True), strict=True
    ):
        assert found == [
            (one, other)
            for one, product, quantity in supply
            for other, other_product, other_quantity in demand
            if product == other_product and low <= quantity <= high and other_low <= other_quantity <= other_high
        ]
    parts = [load.ranges(part, 3) for part in range(3)]
    assert np.array_equal(np.concatenate([part[0] for part in parts]), ranges[0])
    assert 0 <= tables["SUPPLY"]["QUANTITY"].min() <= tables["SUPPLY"]["QUANTITY"].max() <= QUANTITIES


@pytest.mark.parametrize(("probe", "messages"), [(False, 1), (True, 10)])
def test_a_server_can_be_made_to_describe_every_pair(
    probe: bool, messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JoinChannel, "__init__", JoinChannel.__init__)  # undone afterwards, both
    monkeypatch.setattr(JoinChannel, "counted", JoinChannel.counted)
    if probe:
        describe_every_pair()
    engine = Engine()
    for create in CREATES:
        engine.execute(create)
    engine.upsert("DEMAND", {"ID": np.arange(10), "PRODUCT": np.zeros(10, np.int64), "QUANTITY": np.arange(10.0)})
    merchant = engine.subscribe(JOIN, 5, 5, 7, 7)
    engine.upsert("SUPPLY", {"ID": 1, "PRODUCT": 0, "QUANTITY": 5.0})
    assert [tuple(row) for row in merchant.answer] == [(1, 7)]
    (statistics,) = engine.statistics().values()
    assert statistics.messages == messages


@pytest.mark.slow
def test_every_answer_is_right_over_a_cluster() -> None:
    section = JOINS.measure(TINY, ["live"], look_s=0).found["live"]
    for line, batches in ((section.ranges, 4), (section.probe, 2)):
        assert (line.checked, line.wrong) == (60, 0)
        assert line.changes == 20 * batches
        assert line.pairs > 0
