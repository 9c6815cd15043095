"""The benchmark at toy sizes: it runs, its file has the form readers expect, and its counts have the right shape."""

from __future__ import annotations

import json
import sys
from io import StringIO
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console

from hullcast.network.wire.errors import UsageError
from hullcast.sim.bench.engine.baselines import ceiling_subject, per_subscriber_rate, requery_us
from hullcast.sim.bench.engine.benchmark import ENGINE, FULL, QUICK, EngineSettings
from hullcast.sim.bench.engine.subjects import engine_subject, kernel_subject
from hullcast.sim.bench.frame.benchmark import BenchReport
from hullcast.sim.bench.frame.report import draw, show, to_json, write_json
from hullcast.sim.bench.frame.timing import Run, messages_per_update, ratio, spread
from hullcast.sim.bench.nodes import kernel_ns
from hullcast.sim.output.goals import Goal
from hullcast.sim.traces.table51 import Workload

if TYPE_CHECKING:
    from pathlib import Path

TINY = EngineSettings(
    rows=(200, 2_000),
    subscriptions=300,
    fewest_rows=200,
    sweep=(100, 400),
    rounds=2,
    updates=200,
    unicast_updates=100,
    batch=50,
    batches=(1, 20),
    types_rows=300,
    single_updates=20,
    curve=(10, 100),
    curve_seconds=0.001,
    requeries=5,
)


@pytest.fixture(scope="module")
def report() -> BenchReport:
    ticks: list[str] = []
    report = ENGINE.measure(TINY, tick=ticks.append, look_s=0)
    assert len(ticks) == ENGINE.steps(TINY)
    return report


def test_all_sections_are_measured_and_shown(report: BenchReport) -> None:
    assert [line.rows for line in report.found["rows"].lines] == [200, 2_000]
    assert [line.subscriptions for line in report.found["subscriptions"].lines] == [100, 400]
    assert len(report.found["throughput"].by_type) == 10
    text = StringIO()
    show(report, Console(file=text, width=80))
    for expected in ("Table 5.2", "Table 5.3", "band join", "goals", "PASS"):
        assert expected in text.getvalue()
    assert "…" not in text.getvalue()  # all fits in 80 columns


def test_the_file_holds_machine_settings_sections_and_goals(report: BenchReport, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "report.json"
    write_json(to_json(report), path)
    read = json.loads(path.read_text())
    assert read == json.loads(json.dumps(to_json(report)))
    assert read["format"] == 3
    assert {"cpu", "cores", "python", "numba"} <= read["machine"].keys()
    assert read["settings"]["seed"] == 0
    assert read["rows"]["lines"][0].keys() >= {"rows", "messages", "told", "engine_us", "unicast_ratio", "thesis"}
    assert {goal["name"]: type(goal["passed"]) for goal in read["goals"]}.values()
    assert all(goal.keys() == {"name", "target", "measured", "share", "passed"} for goal in read["goals"])


def test_figures_are_drawn(report: BenchReport, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    written = draw(report, tmp_path)
    assert [path.name for path in written] == ["fig_5_6.png", "fig_5_7.png", "throughput.png"]
    for path in written:
        assert path.read_bytes().startswith(b"\x89PNG")


def test_one_section_alone_leaves_the_others_out(report: BenchReport) -> None:
    alone = ENGINE.measure(TINY, ["subscriptions"], look_s=0)
    assert list(alone.found) == ["subscriptions"]
    assert to_json(alone)["rows"] is None
    assert len(alone.goals) == 1
    with pytest.raises(UsageError, match="no section 'none'"):
        ENGINE.measure(TINY, ["none"])


def test_unicast_grows_with_subscriptions_and_descriptions_do_not() -> None:
    load = Workload(1_000)
    changes = load.changes(2_000)
    described = engine_subject(load.rows, changes, 2_000, 500).run(0)
    told = [engine_subject(load.rows, changes, 2_000, 500, load.ranges(n)).run(0).messages for n in (500, 5_000)]
    assert 1.9 < described.messages / described.updates < 2.3
    assert told[1] / told[0] == pytest.approx(10, rel=0.25)


def test_rows_add_no_messages() -> None:
    counts = [
        kernel_subject(load.rows, load.changes(20_000), 20_000, 1_000).run(0).messages
        for load in (Workload(1_000), Workload(30_000))
    ]
    assert counts[1] / counts[0] == pytest.approx(1, abs=0.06)


def test_the_ceiling_finds_the_very_messages_of_the_engine() -> None:
    for n in (1, 2, 3, 700):
        load = Workload(n)
        changes = load.changes(1_000)
        ceiling = ceiling_subject(load.rows, changes, 500)
        kernel = kernel_subject(load.rows, changes, 500, 100)
        engine = engine_subject(load.rows, changes, 500, 100)
        for turn in range(2):
            assert ceiling.run(turn).messages == kernel.run(turn).messages == engine.run(turn).messages


def test_brute_force_baselines_answer() -> None:
    load = Workload(500)
    scan, search = requery_us(load.rows, load.ranges(20), 20)
    assert scan > 0
    assert search > 0
    assert per_subscriber_rate(load.ranges(20), load.changes(10), 0.0) > 0


def test_node_sizes_are_measured_by_the_kernel_subject() -> None:
    assert kernel_ns([100], 100, 1, 0).keys() == {100}


def test_medians_ratios_and_shares() -> None:
    assert spread([3.0]).median == 3.0
    assert (spread([1, 2, 3, 4, 5]).q1, spread([1, 2, 3, 4, 5]).q3) == (2, 4)
    ours, theirs = [Run(2.0, 10, 4), Run(4.0, 10, 6)], [Run(1.0, 10), Run(1.0, 10)]
    assert ratio(ours, theirs).median == 3
    assert messages_per_update(ours) == 0.5
    assert Goal("a", "", "", 1.0).passed
    assert not Goal("a", "", "", 0.99).passed


def test_the_quick_form_covers_the_ends_of_the_full_one() -> None:
    for name in ("rows", "sweep"):
        full, quick = getattr(FULL, name), getattr(QUICK, name)
        assert (full[0], full[-1]) == (quick[0], quick[-1])
    assert {section.name for section in ENGINE.sections} == {"rows", "subscriptions", "throughput"}
    assert np.all(np.diff(FULL.curve) > 0)


def test_a_missing_package_is_named_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)  # as if it were not installed
    ticks: list[str] = []
    with pytest.raises(UsageError, match=r"install it: pip install 'hullcast\[bench\]'"):
        ENGINE.measure(TINY, (), ticks.append)
    assert ticks == []
