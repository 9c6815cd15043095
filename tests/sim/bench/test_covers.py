"""The benchmark of covers at toy sizes: it runs, and its figures have the right shape."""

from __future__ import annotations

import json
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from hullcast.clients.cli import main as cli
from hullcast.sim.bench.covers import COVERS, CoverLines, CoverSettings
from hullcast.sim.bench.frame.benchmark import BenchReport
from hullcast.sim.bench.frame.report import show, to_json, write_json

if TYPE_CHECKING:
    from pathlib import Path

TINY = CoverSettings(
    rows=300, subscriptions=400, gateways=3, budgets=(1, 16, 400), singly=16, updates=300, batch=100, rounds=1
)


@pytest.fixture(scope="module")
def report() -> BenchReport:
    ticks: list[str] = []
    report = COVERS.measure(TINY, tick=ticks.append, look_s=0)
    assert len(ticks) == COVERS.steps(TINY)
    return report


@pytest.fixture
def found(report: BenchReport) -> CoverLines:
    lines: CoverLines = report.found["covers"]
    return lines


def test_covers_send_all_that_is_needed_and_less_with_more_boxes(found: CoverLines) -> None:
    for form, split in {(line.form, line.split) for line in found.lines}:
        lines = {(line.way, line.singly): line for line in found.lines if (line.form, line.split) == (form, split)}
        exact, everything = lines["exact", False], lines["everything", False]
        assert exact.sent == exact.needed
        assert exact.needless == 0
        assert everything.sent == 1
        assert all(line.sent >= line.needed == exact.needed for line in lines.values())
        assert lines["1", False].sent >= lines["16", False].sent >= lines["400", False].sent == exact.sent
        assert lines["16", True].boxes <= 16
        assert lines["16", False].bytes < exact.bytes


def test_content_is_told_apart_better_than_chance(found: CoverLines) -> None:
    sent = {line.split: line.sent for line in found.lines if (line.form, line.way) == ("MIN", "1")}
    assert sent["content"] < sent["random"]


def test_the_report_is_shown_and_written(report: BenchReport, tmp_path: Path) -> None:
    text = StringIO()
    show(report, Console(file=text, width=80))
    for expected in ("MIN, 400 subscriptions", "SUM", "one by one", "needless"):
        assert expected in text.getvalue()
    write_json(to_json(report), tmp_path / "deep" / "covers.json")
    read = json.loads((tmp_path / "deep" / "covers.json").read_text())
    assert read["settings"]["gateways"] == 3
    assert len(read["lines"]) == len(report.found["covers"].lines)
    assert {"cpu", "cores"} <= read["machine"].keys()


def test_too_many_gateways_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "covers", "--subscriptions", "3", "--gateways", "4"]) == 2
    assert "too few" in capsys.readouterr().err
