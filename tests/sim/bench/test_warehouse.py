"""The benchmark of the warehouse at toy sizes: it runs, tables are right, and figures are of what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from math import isnan, nan
from typing import TYPE_CHECKING

import pytest

from hullcast.broker.warehouse.deciding.policies import POLICIES
from hullcast.sim.bench.frame.push import BUSY, CONTENDED, IDLE, PushPhase, PushSection
from hullcast.sim.bench.frame.report import draw, to_json, write_json
from hullcast.sim.bench.frame.stage import StageUse
from hullcast.sim.bench.warehouse.benchmark import (
    WAREHOUSE,
    WarehouseSettings,
    _goals_of_policies,
    _goals_of_push,
)
from hullcast.sim.bench.warehouse.live import LiveWarehouseSettings, PolicySection, _Phase, _policy_line
from hullcast.sim.bench.warehouse.workload import FRESHNESS, KINDS, questions
from tests.sim.bench.reports import HERE, report_of, shown

if TYPE_CHECKING:
    from pathlib import Path

TINY = WarehouseSettings(
    load_rows=2_000,
    load_singles=200,
    load_rounds=1,
    first_rows=2_000,
    first_tables=1,
    knapsack_quick=True,
    live=LiveWarehouseSettings(
        keys=500, rows_s=2_000.0, policy_rows_s=2_000.0, questions_s=30.0, policy_s=0.4, policy_rounds=1,
        push_s=0.3, push_rounds=1, points=10, point_rounds=1, point_rows=500,
    ),
)  # fmt: skip


LOCAL = ("loading", "knapsack")  # without other processes


def test_loads_are_measured_shown_and_drawn(tmp_path: Path) -> None:
    ticks: list[str] = []
    report = WAREHOUSE.measure(TINY, ["loading"], ticks.append, look_s=0)
    assert len(ticks) == WAREHOUSE.steps(TINY, ["loading"])
    by_name = {line.name: line for line in report.found["loading"]}
    assert by_name["repeating keys, batches of 1,000"].updates == 2_000
    assert by_name["repeating keys, batches of 1,000"].written <= 200  # each key once
    assert by_name["distinct keys, single rows"].written == by_name["distinct keys, single rows"].updates == 200
    assert len(report.goals) == len(report.found["loading"])
    assert "loading: updates a second" in shown(report)
    write_json(to_json(report), tmp_path / "warehouse.json")
    content = json.loads((tmp_path / "warehouse.json").read_text(encoding="utf-8"))
    assert content["policies"] is None
    assert "others_cores" in content["machine"]
    (picture,) = draw(report, tmp_path)
    assert picture.stat().st_size > 10_000


def test_the_knapsack_is_judged_where_the_goal_speaks_of_it() -> None:
    report = WAREHOUSE.measure(TINY, ["knapsack"], look_s=0)
    assert [goal.aim.partition(": ")[2] for goal in report.goals] == [""] * 2  # Gauss and Zipf
    assert all(cost.exact and cost.seconds > 0 for cost in report.found["knapsack"])
    assert "1,000 x 1,000, 10% dependent" in report.goals[0].name
    assert "knapsack: the slowest" in shown(report)


@pytest.mark.slow
def test_every_live_section_runs(tmp_path: Path) -> None:
    live = [name for name in (section.name for section in WAREHOUSE.sections) if name not in LOCAL]
    ticks: list[str] = []
    report = WAREHOUSE.measure(TINY, live, ticks.append, look_s=0)
    assert len(ticks) == WAREHOUSE.steps(TINY, live)
    assert [line.policy for line in report.found["policies"].lines] == list(POLICIES)
    assert not report.found["policies"].wrong
    assert not report.found["policies"].errors
    assert [phase.name for phase in report.found["push"].phases] == [IDLE, BUSY, CONTENDED]
    assert report.found["push"].phase(IDLE).warehouse_cores == 0  # nobody asked that server
    assert all(phase.events for phase in report.found["push"].phases)
    assert [line.count for line in report.found["points"].lines] == [10, 10, 10]
    assert {line.probe for line in report.found["first"].lines} == {"publish", "status", "disk", "nobody"}
    assert len(report.goals) == 2 + 2 + 1 + 2
    assert report.found["push"].phase(CONTENDED).warehouse_cores > 0  # of the plain processes
    assert "goals" in shown(report)
    assert [path.name for path in draw(report, tmp_path)] == ["warehouse_policies.png", "warehouse_push.png"]


def _asked(deadline_s: float | None, **more: object) -> dict[str, object]:
    return {
        "freshness": 0.0,
        "deadline_s": deadline_s,
        "missed": False,
        "error": "",
        "s": 0.01,
        **more,
    }


def _answered(deadline_s: float | None, s: float) -> dict[str, object]:
    return _asked(deadline_s, s=s, staleness_s=0.5, unapplied=7)


def test_misses_and_failures_are_told_apart_and_do_not_shorten_response_times() -> None:
    """A miss that came as another error once counted as no miss at all."""
    asked = [_answered(None, 0.1), _answered(0.2, 0.001), _asked(0.2, missed=True), _asked(0.2, error="TimedOut: x")]
    line = _policy_line("fifo", [_Phase(StageUse(2.0, 0.2, 0.4, 0.6), asked, 100, 80)])
    assert (line.deadlines, line.missed, line.failed) == (3, 1, 1)
    assert line.p50_ms == pytest.approx(100)  # those without a deadline only: none of them is cut off
    assert (line.loaded_s, line.published_s, line.staleness_s, line.unapplied) == (40, 50, 0.5, 7)
    fail, right = _goals_of_policies(PolicySection(1.0, 1.0, (line,), (), ("TimedOut: x",)))
    assert not fail.passed
    assert right.passed
    nothing = _policy_line("fifo", [_Phase(StageUse(2.0, 0.0, 0.0, 0.0), [], 0, 0)])
    assert isnan(nothing.p50_ms)
    assert nothing.missed_share == 0


def _phases(busy: float, contended: float) -> PushSection:
    ratios = ((IDLE, 1.0), (BUSY, busy), (CONTENDED, contended))
    return PushSection(
        1.0, 1.0, 5, 2, tuple(PushPhase(name, 1, 1.0, 1.0, ratio, ratio, 0.0, 0.0, 0.0) for name, ratio in ratios)
    )


@pytest.mark.parametrize(
    ("busy", "contended", "passed", "part"),
    [(1.05, 1.0, True, 0.0), (1.4, 1.2, False, 0.5), (1.2, 1.6, False, 1.0), (0.9, 1.2, True, nan)],
)
def test_the_push_path_is_judged_by_its_ratio_and_contention_only_explains(
    busy: float, contended: float, passed: bool, part: float
) -> None:
    section = _phases(busy, contended)
    assert [goal.passed for goal in _goals_of_push(section)] == [passed, passed]
    assert section.contention(lambda phase: phase.p50_ratio) == pytest.approx(part, nan_ok=True)


def test_all_policies_are_asked_the_same_questions_of_every_kind() -> None:
    first, again, other = (list(questions(["A", "B"], 100, 200.0, 2.0, seed)) for seed in ("1", "1", "2"))
    assert first == again != other
    assert {one.kind for one in first} == set(KINDS)
    assert {one.freshness for one in first} == set(FRESHNESS)
    assert {one.deadline_s is None for one in first} == {True, False}
    assert all(one.at_s < 2.0 for one in first)


def test_a_run_on_a_busy_machine_says_so() -> None:
    busy = replace(report_of(WAREHOUSE, TINY), machine=HERE | {"others_cores": 1.9})
    assert "other programs used 1.90 of 2 cores" in shown(busy)
    assert "other programs" not in shown(report_of(WAREHOUSE, TINY))
