"""The benchmark of joins at toy sizes: it runs, plans agree, and tables, file and pictures have the form expected."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

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
from hullcast.sim.bench.joins.benchmark import JOINS, _judged_histograms
from hullcast.sim.bench.joins.cells import PlanCell, check_same_rows, measure, select_arrivals, select_tree
from hullcast.sim.bench.joins.live import LiveJoinSettings
from hullcast.sim.bench.joins.probe import describe_every_pair
from hullcast.sim.bench.joins.sections import FULL_JOINS, QUICK_JOINS, JoinSettings
from hullcast.sim.output.goals import Goal
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
    mixed=(1_000,),
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
    assert [chart.key for chart in report.found["selects"]] == ["4.7(i)", "4.7(ii)", "4.8(iii)", "4.8(iv)"]
    assert [curve.name for curve in report.found["selects"][0].curves] == [
        *("SSI", "SelectFirst", "JoinFirst-E", "JoinFirst-S", "NAIVE"),
    ]
    text = shown(report, 80)
    for expected in ("Figure 4.7(i)", "Figure 4.9", "Figure 4.10(ii)", "Figure 4.11", "Figure 4.12", "4.13", "goals"):
        assert expected in text
    assert "…" not in text  # all fits in 80 columns


def test_every_goal_of_plans_is_judged_and_every_figure_has_a_claim(report: BenchReport) -> None:
    assert len(report.goals) == 13
    assert {claim.item.removeprefix("Figure ")[:4].rstrip("(") for claim in report.claims} == {
        *("4.7", "4.8", "4.9", "4.10", "4.11", "4.12", "4.13", "4.15"),
    }


def test_workloads_have_the_groups_they_are_asked_for(report: BenchReport) -> None:
    assert report.found["selects"][1].taus == pytest.approx((30, 250), rel=0.15)
    assert report.found["bands"].by_groups.taus == pytest.approx((30, 100), rel=0.15)
    assert report.found["hotspots"].hot_groups == (10, 10, 10)
    assert report.found["hotspots"].hot_share == pytest.approx((0.2, 0.6, 1.0), abs=0.05)


def test_the_error_of_equal_width_is_judged_too(report: BenchReport) -> None:
    easy, steep = (
        replace(report.found["histogram"], ours=(0.01, 0.01), equal=(error, error)) for error in (0.69, 0.71)
    )
    assert [[goal.passed for goal in _judged_histograms(case) if isinstance(goal, Goal)] for case in (easy, steep)] == [
        [True, False],
        [True, True],
    ]


def test_the_file_holds_sections_claims_and_goals(report: BenchReport, tmp_path: Path) -> None:
    write_json(to_json(report), tmp_path / "joins.json")
    content = json.loads((tmp_path / "joins.json").read_text(encoding="utf-8"))
    assert content["live"] is None
    assert content["selects"][0]["curves"][0]["name"] == "SSI"
    assert {"statement", "item", "paper", "ours", "verdict", "holds"} < set(content["claims"][0])
    assert {"name", "target", "measured", "share", "passed"} == set(content["goals"][0])


def test_a_picture_is_drawn_for_each_figure(report: BenchReport, tmp_path: Path) -> None:
    names = [path.name for path in draw(report, tmp_path)]
    assert names == ["fig_4_7_4_8.png", "fig_4_9.png", "fig_4_10.png", "fig_4_11.png", "fig_4_12.png", "fig_4_13.png"]
    assert all((tmp_path / name).stat().st_size > 10_000 for name in names)


def test_an_unknown_section_is_refused() -> None:
    with pytest.raises(UsageError, match="no section 'x'; sections: selects, "):
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
    assert [len(curve.rounds[0]) for curve in curves] == [3, 3]


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
