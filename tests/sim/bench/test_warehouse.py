"""The benchmark of the warehouse at toy sizes: it runs, tables are right, and figures are of what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from math import isnan, nan
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from hullcast.broker.warehouse.policies import POLICIES
from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.engine import write_json
from hullcast.sim.bench.warehouse.figures import draw_warehouse
from hullcast.sim.bench.warehouse.live import (
    BUSY,
    CONTENDED,
    IDLE,
    LiveWarehouseSettings,
    PolicySection,
    PushPhase,
    PushSection,
    _Phase,
    _policy_line,
)
from hullcast.sim.bench.warehouse.report import (
    FULL_WAREHOUSE,
    QUICK_WAREHOUSE,
    WAREHOUSE_SECTIONS,
    WarehouseReport,
    WarehouseSettings,
    _of_policies,
    _of_push,
    run_warehouse,
    show_warehouse,
    warehouse_steps,
)
from hullcast.sim.bench.warehouse.workload import FRESHNESS, KINDS, questions

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


HERE = ("loading", "knapsack")  # without other processes


def shown(report: WarehouseReport) -> str:
    text = StringIO()
    show_warehouse(report, Console(file=text, width=100))
    return text.getvalue()


def test_loads_are_measured_shown_and_drawn(tmp_path: Path) -> None:
    ticks: list[str] = []
    report = run_warehouse(TINY, ["loading"], ticks.append)
    assert len(ticks) == warehouse_steps(TINY, ["loading"])
    assert report.loading is not None
    by_name = {line.name: line for line in report.loading}
    assert by_name["repeating keys, batches of 1,000"].updates == 2_000
    assert by_name["repeating keys, batches of 1,000"].written <= 200  # each key once
    assert by_name["distinct keys, single rows"].written == by_name["distinct keys, single rows"].updates == 200
    assert len(report.goals) == len(report.loading)
    assert "loading: updates a second" in shown(report)
    write_json(report, tmp_path / "warehouse.json")
    content = json.loads((tmp_path / "warehouse.json").read_text(encoding="utf-8"))
    assert content["policies"] is None
    assert "others_cores" in content["machine"]
    (picture,) = draw_warehouse(report, tmp_path)
    assert picture.stat().st_size > 10_000


def test_the_knapsack_is_judged_where_the_goal_speaks_of_it() -> None:
    report = run_warehouse(TINY, ["knapsack"])
    assert report.knapsack is not None
    assert [goal.aim.partition(": ")[2] for goal in report.goals] == ["time", "memory", "exact"] * 2  # Gauss and Zipf
    assert all(cost.peak_bytes > 0 for cost in report.knapsack)
    assert "1,000 x 1,000, 10% dependent" in report.goals[0].name
    assert "knapsack: the slowest" in shown(report)


@pytest.mark.slow
def test_every_live_section_runs(tmp_path: Path) -> None:
    live = [name for name in WAREHOUSE_SECTIONS if name not in HERE]
    ticks: list[str] = []
    report = run_warehouse(TINY, live, ticks.append)
    assert len(ticks) == warehouse_steps(TINY, live)
    assert report.policies is not None
    assert [line.policy for line in report.policies.lines] == list(POLICIES)
    assert not report.policies.wrong
    assert not report.policies.errors
    assert report.push is not None
    assert [phase.name for phase in report.push.phases] == [IDLE, BUSY, CONTENDED]
    assert report.push.phase(IDLE).warehouse_cores == 0  # nobody asked that server
    assert all(phase.events for phase in report.push.phases)
    assert report.points is not None
    assert [line.count for line in report.points.lines] == [10, 10, 10]
    assert report.first is not None
    assert {line.probe for line in report.first.lines} == {"publish", "status", "disk", "nobody"}
    assert len(report.goals) == 2 + 2 + 1 + 2
    assert report.push.phase(CONTENDED).warehouse_cores > 0  # of the plain processes
    assert "goals" in shown(report)
    assert [path.name for path in draw_warehouse(report, tmp_path)] == ["warehouse_policies.png", "warehouse_push.png"]


def _asked(deadline_s: float | None, **more: object) -> dict[str, object]:
    return {
        "kind": "point",
        "freshness": 0.0,
        "deadline_s": deadline_s,
        "missed": False,
        "error": "",
        "s": 0.01,
        **more,
    }


def _answered(deadline_s: float | None, s: float) -> dict[str, object]:
    return _asked(deadline_s, s=s, staleness_s=0.5, unapplied=7, waited_s=0.0, ran_s=s)


def test_misses_and_failures_are_told_apart_and_do_not_shorten_response_times() -> None:
    """A miss that came as another error once counted as no miss at all."""
    asked = [_answered(None, 0.1), _answered(0.2, 0.001), _asked(0.2, missed=True), _asked(0.2, error="TimedOut: x")]
    line = _policy_line("fifo", [_Phase(2.0, asked, 100, 80, 0.2, 0.4)])
    assert (line.deadlines, line.missed, line.failed) == (3, 1, 1)
    assert line.p50_ms == pytest.approx(100)  # those without a deadline only: none of them is cut off
    assert (line.loaded_s, line.published_s, line.staleness_s, line.unapplied) == (40, 50, 0.5, 7)
    fail, right = _of_policies(PolicySection(1.0, 1.0, (line,), (), ("TimedOut: x",)))
    assert not fail.passed
    assert right.passed
    nothing = _policy_line("fifo", [_Phase(2.0, [], 0, 0, 0.0, 0.0)])
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
    assert [goal.passed for goal in _of_push(section)] == [passed, passed]
    assert section.contention(lambda phase: phase.p50_ratio) == pytest.approx(part, nan_ok=True)


def test_all_policies_are_asked_the_same_questions_of_every_kind() -> None:
    first, again, other = (list(questions(["A", "B"], 100, 200.0, 2.0, seed)) for seed in ("1", "1", "2"))
    assert first == again != other
    assert {one.kind for one in first} == set(KINDS)
    assert {one.freshness for one in first} == set(FRESHNESS)
    assert {one.deadline_s is None for one in first} == {True, False}
    assert all(one.at_s < 2.0 for one in first)


def test_a_run_on_a_busy_machine_says_so() -> None:
    report = WarehouseReport(
        {"cpu": "x", "cores": 2, "load": [9.0], "python": "3", "others_cores": 1.9},
        TINY, None, None, None, None, None, None, (),
    )  # fmt: skip
    assert "other programs used 1.90 of 2 cores" in shown(report)
    assert "other programs" not in shown(replace(report, machine=report.machine | {"others_cores": 0.05}))


def test_an_unknown_section_is_refused() -> None:
    with pytest.raises(UsageError, match="no section 'x'; sections: loading, "):
        run_warehouse(TINY, ["x"])


def test_quick_measures_a_part_of_what_full_does() -> None:
    assert warehouse_steps(QUICK_WAREHOUSE) < warehouse_steps(FULL_WAREHOUSE)
