"""The benchmark of views at toy sizes: it runs, views are right, and figures are of what they say."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hullcast.broker.warehouse.files.view_loader import ViewLoader
from hullcast.sim.bench.frame.push import BUSY, CONTENDED, IDLE
from hullcast.sim.bench.frame.report import draw, to_json, write_json
from hullcast.sim.bench.frame.timing import SideBySide
from hullcast.sim.bench.views.benchmark import (
    VIEWS,
    ViewSettings,
    _goals_of_live,
    _goals_of_plans,
    _goals_of_upkeep,
)
from hullcast.sim.bench.views.live import (
    BEHIND,
    MACHINE,
    UNKNOWN,
    LiveViewSection,
    LiveViewSettings,
    reasons,
)
from hullcast.sim.bench.views.upkeep import CASES, EVERY, NAIVE, OURS, OfferLog, ReplayedView, answer, drop_index
from hullcast.sim.bench.views.workload import OFFERS, OFFERS_EACH, SUPPLIERS, OfferChanges, first_rows
from hullcast.sim.bench.warehouse.live import LiveWarehouseSettings
from tests.sim.bench.reports import report_of, shown

if TYPE_CHECKING:
    from pathlib import Path

TINY = ViewSettings(
    upkeep_suppliers=5,
    upkeep_changes=60,
    upkeep_rounds=1,
    plan_steps=120,
    plan_rounds=1,
    live=LiveViewSettings(
        suppliers=10, response_time_s=1.0, calibrate_s=0.3, live_s=1.0, compared=3,
        push=LiveWarehouseSettings(keys=500, rows_s=1_000.0, push_s=0.3, push_rounds=1),
    ),
)  # fmt: skip


def test_upkeep_is_measured_shown_and_drawn(tmp_path: Path) -> None:
    ticks: list[str] = []
    report = VIEWS.measure(TINY, ["upkeep"], ticks.append, look_s=0)
    assert len(ticks) == VIEWS.steps(TINY, ["upkeep"])
    assert [line.name for line in report.found["upkeep"].lines] == [case.name for case in CASES]
    for line, case in zip(report.found["upkeep"].lines, CASES, strict=True):
        ways = {way.way: way for way in line.ways}
        assert list(ways) == [EVERY, NAIVE, OURS]
        assert ways[EVERY].propagations == 60 + case.asked
        assert line.every_ratio == pytest.approx(ways[EVERY].cpu_s / ways[OURS].cpu_s)
    assert len(report.goals) == 2
    assert "upkeep: us of CPU a change" in shown(report)
    write_json(to_json(report), tmp_path / "views.json")
    assert json.loads((tmp_path / "views.json").read_text(encoding="utf-8"))["live"] is None
    (picture,) = draw(report, tmp_path)
    assert picture.stat().st_size > 10_000


def test_upkeep_is_judged_by_its_first_case() -> None:
    report = VIEWS.measure(TINY, ["upkeep"], look_s=0)
    first, *others = report.found["upkeep"].lines
    lines = (replace(first, every_ratio=2.0, naive_ratio=1.9), *others)
    assert [goal.passed for goal in _goals_of_upkeep(replace(report.found["upkeep"], lines=lines))] == [True, False]


@pytest.mark.parametrize("indexed", [True, False])
def test_a_view_without_an_index_is_right_as_well(tmp_path: Path, indexed: bool) -> None:
    source = OfferChanges(5, 3, "here")
    with closing(OfferLog(tmp_path / "data", 5, 3)) as log, closing(ViewLoader(log.path)) as loader:
        life = log.view("CHEAPEST", 0.05)
        loader.build(life, log.seq)
        if not indexed:
            drop_index(log.path, life, loader)
        view = ReplayedView(loader, life, None)
        assert view.rows(log.path) == answer(source)
        changes = [(table.lower(), log.append(table, source.of(table, 1))) for table in source.which(50, 0.5)]
        log.sync()
        view.turn(changes, 0.0, asked=True)
        assert view.rows(log.path) == answer(source) != answer(OfferChanges(5, 3, "here"))


def test_changes_are_costs_of_offers_and_nations_of_suppliers() -> None:
    source, before = OfferChanges(5, 0, "a"), first_rows(5, 0)
    offers, suppliers = source.of(OFFERS, 400), source.of(SUPPLIERS, 5)
    assert (offers["SUPPKEY"] == before[OFFERS]["SUPPKEY"][offers["ID"]]).all()
    assert (offers["COST"] != before[OFFERS]["COST"][offers["ID"]]).mean() > 0.9
    assert (suppliers["ACCTBAL"] == before[SUPPLIERS]["ACCTBAL"][suppliers["SUPPKEY"]]).all()
    assert len(before[OFFERS]["ID"]) == 5 * OFFERS_EACH


def test_plans_are_timed_and_those_that_are_not_the_best_are_told() -> None:
    report = VIEWS.measure(TINY, ["plans"], look_s=0)
    assert [line.tables for line in report.found["plans"]] == [2] * 4 + [4] * 4
    assert all(line.best and line.expanded for line in report.found["plans"])  # so few steps are easy
    assert [goal.passed for goal in report.goals] == [True] * 4
    assert "gave up" not in shown(report)
    late = (*report.found["plans"][:-1], replace(report.found["plans"][-1], seconds=10.0, above=1.07))
    assert [goal.passed for goal in _goals_of_plans(late)] == [True, True, False, False]
    assert "3 of 4 (within 7.0%)" in [goal.measured for goal in _goals_of_plans(late)]
    assert "7.0%" in shown(replace(report, found={"plans": late}))
    assert "gave up" in shown(replace(report, found={"plans": late}))


@pytest.mark.slow
def test_every_live_section_runs(tmp_path: Path) -> None:
    ticks: list[str] = []
    report = VIEWS.measure(TINY, ["live", "push"], ticks.append, look_s=0)
    assert len(ticks) == VIEWS.steps(TINY, ["live", "push"])
    assert report.found["live"].right
    assert report.found["live"].answers > 0
    assert report.found["live"].within + report.found["live"].beyond >= report.found["live"].answers
    assert report.found["live"].changes_s > 0
    assert [phase.name for phase in report.found["push"].phases] == [IDLE, BUSY, CONTENDED]
    assert report.found["push"].phase(IDLE).warehouse_cores == 0  # it has no views
    assert report.found["push"].phase(BUSY).warehouse_cores > 0
    assert report.found["push"].answers_s > 0
    assert "goals" in shown(report)
    assert [path.name for path in draw(report, tmp_path)] == ["views_live.png", "views_push.png"]


@pytest.mark.parametrize(
    ("naps", "reason"),
    [([], UNKNOWN), ([(10.0, 10.06)], MACHINE), ([(10.0, 10.04)], UNKNOWN), ([(9.0, 10.01), (10.2, 11.0)], UNKNOWN)],
)
def test_a_late_refresh_is_the_machines_if_that_was_away_for_as_long_as_it_was_late(
    naps: list[tuple[float, float]], reason: str
) -> None:
    found = reasons([(10.0, 0.2, 0.1)], naps, 0.05)
    assert found == dict.fromkeys((MACHINE, BEHIND, UNKNOWN), 0) | {reason: 1}


def test_who_asks_while_a_late_refresh_is_under_way_waits_behind_it() -> None:
    late = [(10.05, 0.2, 0.1), (10.0, 0.2, 0.1), (10.5, 0.2, 0.1)]
    assert reasons(late, [], 0.05) == {MACHINE: 0, BEHIND: 1, UNKNOWN: 2}


def _live(**figures: object) -> LiveViewSection:
    same = SideBySide(1.0, 2.0, 30.0, 40.0)
    section = LiveViewSection(
        800, 0.05, 0.05, 100.0, 0.2, 0.3, 1.0, 1_000, 1_000, 0, 0, 0.75, {}, 1.0, 2.0, 3.0, 1.0, 2.0, 9, 1.0,
        same, same, True,
    )  # fmt: skip
    return replace(section, **figures)  # type: ignore[arg-type]


def test_promises_are_judged_as_the_server_counts_and_as_replies_say() -> None:
    assert all(goal.passed for goal in _goals_of_live(_live()))
    verdicts = [goal.passed for goal in _goals_of_live(_live(within=998, beyond=2, late=1, right=False))]
    assert verdicts == [False, True, True, True, False]
    slow = SideBySide(2.0, 2.0, 39.0, 40.0)
    assert [goal.passed for goal in _goals_of_live(_live(busy=slow))] == [True, True, True, False, True]


def test_a_promise_that_was_refused_is_told() -> None:
    report = report_of(VIEWS, TINY, live=_live(promise_s=0.4, late=1, reasons={UNKNOWN: 1}))
    assert "The server refused to promise 50 ms; within that were 75.00% of the refreshes." in shown(report)
    assert "not explained: 1" in shown(report)
