"""The measurement of Spark's data source: how its report reads, and (slowly) that it runs."""

from __future__ import annotations

import pytest

from hullcast.sim.bench.spark_source import AIM, SPARK, SourceLine, SourceSettings, source_goals
from tests.sim.bench.reports import report_of, shown


def test_the_report_judges_rows_a_second_and_shows_what_they_cost() -> None:
    found = (SourceLine("in", 1_000_000, 4.0, 2.0, 3.0), SourceLine("out", 1_000_000, 10.0, 0.5, 6.5))
    goals = tuple(source_goals(found))
    assert [goal.share for goal in goals] == [250_000 / AIM, 100_000 / AIM]
    text = shown(report_of(SPARK, SourceSettings(), spark=found))
    for expected in ("250,000", "100,000", "2.00", "6.50", "PASS", "MISS"):
        assert expected in text


@pytest.mark.slow
def test_every_way_is_measured() -> None:
    told: list[str] = []
    settings = SourceSettings(60_000)  # more than the warm-up wrote
    report = SPARK.measure(settings, tick=told.append, look_s=0)
    assert len(told) == SPARK.steps(settings)
    assert {line.rows for line in report.found["spark"]} == {60_000}
    assert len(report.goals) == 4
