"""The measurement of Spark's data source: how its report reads, and (slowly) that it runs."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from hullcast.sim.bench.spark_source import AIM, STEPS, SourceLine, SourceReport, _goal, run_source, show_source


def test_the_report_judges_rows_a_second_and_shows_what_they_cost() -> None:
    lines = (SourceLine("in", 1_000_000, 4.0, 2.0, 3.0), SourceLine("out", 1_000_000, 10.0, 0.5, 6.5))
    goals = tuple(map(_goal, lines))
    assert [goal.share for goal in goals] == [250_000 / AIM, 100_000 / AIM]
    text = StringIO()
    show_source(SourceReport(lines, goals), Console(file=text, width=120))
    for expected in ("250,000", "100,000", "2.00", "6.50", "PASS", "MISS"):
        assert expected in text.getvalue()


@pytest.mark.slow
def test_every_way_is_measured() -> None:
    told: list[str] = []
    report = run_source(60_000, told.append)  # more than the warm-up wrote
    assert len(told) == STEPS
    assert {line.rows for line in report.lines} == {60_000}
    assert len(report.goals) == 4
